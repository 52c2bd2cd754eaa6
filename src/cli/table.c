/* table.c - every command of weir, once. */
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/table_parts.h"
#include "server/config.h"

#define DAY_MS (24 * 3600 * 1000LL)
#define ASKS (CLI_GROUP_CLIENT | CLI_GROUP_OUTPUT)

static const char *const durabilities[] = {"memory", "written", "synced", NULL};

#define END_OPTION \
    {              \
        0          \
    }
#define END_ARGUMENT \
    {                \
        0            \
    }
#define END_EXAMPLE \
    {               \
        0           \
    }

/* ---- serve, config ---- */

#define CONFIG_OPTIONS                                                                      \
    {.name = "config",                                                                      \
     .letter = 'c',                                                                         \
     .kind = CLI_PATH,                                                                      \
     .value = "FILE",                                                                       \
     .env = "WEIR_CONFIG",                                                                  \
     .help = "the file of settings, weir.conf(5)"},                                         \
        {.name = "set",                                                                     \
         .kind = CLI_MANY,                                                                  \
         .value = "SECTION.KEY=VALUE",                                                      \
         .help = "any setting; may be said several times"},                                 \
        {.name = "listen",                                                                  \
         .letter = 'l',                                                                     \
         .kind = CLI_TEXT,                                                                  \
         .value = "ADDRESS",                                                                \
         .setting = "server.listen",                                                        \
         .help = "where: tcp:HOST:PORT, tls:HOST:PORT, unix:PATH; several with commas"},    \
        {.name = "data",                                                                    \
         .letter = 'd',                                                                     \
         .kind = CLI_PATH,                                                                  \
         .value = "FOLDER",                                                                 \
         .setting = "server.data",                                                          \
         .help = "the folder of all that is kept"},                                         \
        {.name = "workers",                                                                 \
         .kind = CLI_TEXT,                                                                  \
         .value = "COUNT",                                                                  \
         .setting = "server.workers",                                                       \
         .help = "threads that run tasks; 0: the usable cores"},                            \
        {.name = "log-level",                                                               \
         .kind = CLI_TEXT,                                                                  \
         .value = "LEVEL",                                                                  \
         .setting = "log.level",                                                            \
         .help = "off, error, warning, info or debug"},                                     \
    {                                                                                       \
        .name = "log-format", .kind = CLI_TEXT, .value = "FORMAT", .setting = "log.format", \
        .help = "logfmt or json"                                                            \
    }

static const struct cli_option serve_options[] = {
    CONFIG_OPTIONS,
    {.name = "demo",
     .kind = CLI_FLAG,
     .help = "put jobs in and work on them in this process, to have something to look at; without "
             "--data in a folder of its own, TMPDIR/weir-demo-UID"},
    END_OPTION,
};
static const struct cli_example serve_examples[] = {
    {"weir serve --data /var/lib/weir", "on 127.0.0.1:7411"},
    {"weir serve --listen unix:/run/user/1000/weir.sock --data ~/weir", "for one user only"},
    {"weir serve --demo", "with something to look at"},
    END_EXAMPLE,
};
static const struct cli_option config_show_options[] = {
    CONFIG_OPTIONS,
    {.name = "origin",
     .kind = CLI_FLAG,
     .help = "who has said each: file and line, variable, flag"},
    {.name = "changed", .kind = CLI_FLAG, .help = "only what is not the default"},
    END_OPTION,
};
static const struct cli_argument config_check_arguments[] = {
    {"FILE", .optional = true, .help = "the file; without one what --config or WEIR_CONFIG says"},
    END_ARGUMENT,
};
static const struct cli_option config_check_options[] = {CONFIG_OPTIONS, END_OPTION};

/* ---- Jobs ---- */

static const struct cli_option enqueue_options[] = {
    {.name = "kind",
     .letter = 'k',
     .kind = CLI_TEXT,
     .value = "KIND",
     .initial = "default",
     .help = "what its worker has to know to do it"},
    {.name = "version",
     .kind = CLI_INT,
     .value = "NUMBER",
     .max = INT32_MAX,
     .help = "of the payload's schema"},
    {.name = "priority",
     .letter = 'p',
     .kind = CLI_INT,
     .value = "0..31",
     .max = 31,
     .help = "more is sooner"},
    {.name = "delay",
     .kind = CLI_DURATION,
     .value = "DURATION",
     .max = 3660 * DAY_MS,
     .help = "not before that has passed"},
    {.name = "run-at",
     .kind = CLI_INT,
     .value = "UNIX-MS",
     .max = INT64_MAX,
     .help = "not before this time, in milliseconds since 1970"},
    {.name = "timeout",
     .kind = CLI_DURATION,
     .value = "DURATION",
     .min = 1,
     .max = 30 * DAY_MS,
     .help = "of one attempt"},
    {.name = "expires",
     .kind = CLI_DURATION,
     .value = "DURATION",
     .min = 1,
     .max = 3660 * DAY_MS,
     .help = "not begun within that: expired"},
    {.name = "attempts",
     .letter = 'a',
     .kind = CLI_INT,
     .value = "COUNT",
     .initial = "1",
     .min = 1,
     .max = 1000,
     .help = "at most; more than one says that it may be begun twice"},
    {.name = "backoff",
     .kind = CLI_DURATION,
     .value = "DURATION",
     .initial = "1s",
     .min = 1,
     .max = DAY_MS,
     .help = "before the second attempt; doubles"},
    {.name = "backoff-max",
     .kind = CLI_DURATION,
     .value = "DURATION",
     .initial = "10m",
     .min = 1,
     .max = DAY_MS,
     .help = "at most"},
    {.name = "idempotent",
     .kind = CLI_FLAG,
     .help = "it may be begun twice: after a crash of its worker it is given to another instead of "
             "becoming a dead letter"},
    {.name = "unique",
     .kind = CLI_TEXT,
     .value = "KEY",
     .help = "one job with this key at a time; another is told the first one's id"},
    {.name = "idempotency-key",
     .kind = CLI_TEXT,
     .value = "KEY",
     .help = "a second request with it is the same one"},
    {.name = "limit-key",
     .kind = CLI_TEXT,
     .value = "KEY",
     .help = "shares limits with all jobs that have it"},
    {.name = "fairness-key",
     .kind = CLI_TEXT,
     .value = "KEY",
     .help = "takes turns with other keys"},
    {.name = "order-key",
     .kind = CLI_TEXT,
     .value = "KEY",
     .help = "one after the other, in the order in which they came"},
    {.name = "tags", .kind = CLI_TEXT, .value = "TAGS", .help = "to find it by"},
    {.name = "durability",
     .kind = CLI_CHOICE,
     .value = "LEVEL",
     .choices = durabilities,
     .help = "how safe it is when the command ends; default: the server's"},
    {.name = "ndjson",
     .kind = CLI_FLAG,
     .help = "PAYLOAD is lines of JSON, and each is the payload of a job of its own"},
    {.name = "wait",
     .letter = 'w',
     .kind = CLI_FLAG,
     .help = "until it has ended; prints its result, exit status 1 if it is not done"},
    END_OPTION,
};
static const struct cli_argument enqueue_arguments[] = {
    {"QUEUE", .help = "the queue; it is made if there is none"},
    {"PAYLOAD", .optional = true,
     .help = "the payload itself, @FILE or @- for standard input; without it the payload is empty"},
    END_ARGUMENT,
};
static const struct cli_example enqueue_examples[] = {
    {"weir enqueue mail '{\"to\": \"ann@example.org\"}' --kind welcome --attempts 5", "a job"},
    {"generate | weir enqueue mail @- --ndjson --kind welcome", "one for each line"},
    {"weir enqueue reports @order.json --kind pdf --wait >order.pdf", "and its result"},
    END_EXAMPLE,
};
static const struct cli_argument job_arguments[] = {
    {"ID", .help = "of the job"},
    END_ARGUMENT,
};
static const struct cli_option job_options[] = {
    {.name = "payload", .kind = CLI_FLAG, .help = "only its payload, as the bytes that came"},
    {.name = "result", .kind = CLI_FLAG, .help = "only its result, likewise"},
    END_OPTION,
};
static const struct cli_option jobs_options[] = {
    {.name = "limit",
     .letter = 'n',
     .kind = CLI_INT,
     .value = "COUNT",
     .initial = "50",
     .min = 1,
     .max = 1000000,
     .help = "at most so many"},
    {.name = "count", .kind = CLI_FLAG, .help = "only how many there are"},
    END_OPTION,
};
static const struct cli_argument filter_arguments[] = {
    {"FILTER", .optional = true, .many = true,
     .help = "state:dead, queue:mail, kind:send*, tag:eu, error:timeout, age>1h, attempt>=2, "
             "payload.user.id:17; all must hold"},
    END_ARGUMENT,
};
static const struct cli_argument change_arguments[] = {
    {"FILTER", .many = true, .help = "which jobs, as in 'weir jobs'; or one id"},
    END_ARGUMENT,
};
static const struct cli_option change_options[] = {
    {.name = "yes",
     .letter = 'y',
     .kind = CLI_FLAG,
     .help = "do not ask; needed where there is no terminal"},
    {.name = "expect",
     .kind = CLI_INT,
     .value = "COUNT",
     .max = INT64_MAX,
     .help = "only if there are exactly so many"},
    END_OPTION,
};
static const struct cli_example jobs_examples[] = {
    {"weir jobs state:dead queue:mail", "the dead letters of a queue"},
    {"weir jobs kind:send* 'age>1h' --count", "how many"},
    END_EXAMPLE,
};
static const struct cli_example change_examples[] = {
    {"weir jobs retry state:dead error:timeout", "asks, having counted them"},
    {"weir jobs retry state:dead --expect 12 --yes", "in a script"},
    END_EXAMPLE,
};

/* ---- work ---- */

static const struct cli_option work_options[] = {
    {.name = "concurrency",
     .letter = 'n',
     .kind = CLI_INT,
     .value = "COUNT",
     .initial = "1",
     .min = 1,
     .max = 1024,
     .help = "programs at a time"},
    {.name = "kinds",
     .letter = 'k',
     .kind = CLI_TEXT,
     .value = "KIND,...",
     .help = "only jobs of these kinds; default: all"},
    {.name = "name",
     .kind = CLI_TEXT,
     .value = "NAME",
     .help = "of this worker, as others see it; default: HOST-PID"},
    {.name = "lease",
     .kind = CLI_DURATION,
     .value = "DURATION",
     .initial = "30s",
     .min = 1000,
     .max = DAY_MS,
     .help = "how long a job is ours without a heartbeat, which comes three times "
             "as often"},
    {.name = "timeout",
     .letter = 't',
     .kind = CLI_DURATION,
     .value = "DURATION",
     .min = 10,
     .max = 30 * DAY_MS,
     .help = "how long the program may run; what the job says holds as well, less the "
             "grace period"},
    {.name = "grace",
     .kind = CLI_DURATION,
     .value = "DURATION",
     .initial = "5s",
     .min = 0,
     .max = 3600 * 1000,
     .help = "from TERM to KILL; at most half of the job's timeout"},
    {.name = "drain",
     .kind = CLI_DURATION,
     .value = "DURATION",
     .initial = "30s",
     .min = 0,
     .max = DAY_MS,
     .help = "after TERM: how long programs that run may take to end"},
    {.name = "result-max",
     .kind = CLI_SIZE,
     .value = "SIZE",
     .initial = "64K",
     .min = 0,
     .max = 512 * 1024,
     .help = "of standard output; more than that fails the job"},
    {.name = "retry-exit",
     .kind = CLI_TEXT,
     .value = "CODE,...",
     .initial = "75",
     .env = "WEIR_WORK_RETRY_EXIT",
     .help = "exit codes that mean: try again as the policy says"},
    {.name = "dead-exit",
     .kind = CLI_TEXT,
     .value = "CODE,...",
     .initial = "65",
     .env = "WEIR_WORK_DEAD_EXIT",
     .help = "exit codes that mean: never again, a dead letter"},
    {.name = "snooze-exit",
     .kind = CLI_TEXT,
     .value = "CODE,...",
     .initial = "69",
     .env = "WEIR_WORK_SNOOZE_EXIT",
     .help = "exit codes that mean: later; the attempt does not count"},
    {.name = "snooze",
     .kind = CLI_DURATION,
     .value = "DURATION",
     .initial = "30s",
     .min = 0,
     .max = DAY_MS,
     .help = "how much later"},
    {.name = "expose-token",
     .kind = CLI_FLAG,
     .help = "the program gets WEIR_JOB_TOKEN, with which it can settle the job itself, and "
             "keeps WEIR_TOKEN, which others do not have"},
    {.name = "once", .kind = CLI_FLAG, .help = "end when there is no job"},
    {.name = "count",
     .kind = CLI_INT,
     .value = "COUNT",
     .max = INT64_MAX,
     .help = "end after so many jobs; 0: never"},
    END_OPTION,
};
static const struct cli_argument work_arguments[] = {
    {"QUEUE", .help = "whose jobs"},
    END_ARGUMENT,
};
static const struct cli_example work_examples[] = {
    {"weir work mail -n 4 -- ./send-mail", "four at a time"},
    {"weir work thumbs -- sh -c 'convert - -resize 200x200 png:-'", "payload in, result out"},
    END_EXAMPLE,
};

const struct cli_command cli_commands[] = {
    {.words = "serve",
     .summary = "Serve jobs over HTTP from a data folder",
     .about = "TERM and INT drain: nothing new is taken, what is under way ends within "
              "server.drain, and a report is printed; a second one ends it now. HUP reads "
              "settings, tokens and certificates again. USR1 writes all tasks to standard error. "
              "It tells systemd how it is (Type=notify) and takes sockets from it.",
     .options = serve_options,
     .examples = serve_examples,
     .run = command_serve},
    {.words = "status",
     .summary = "How the server is: queues, jobs by state, store, connections",
     .groups = ASKS,
     .run = command_status},
    {.words = "enqueue",
     .summary = "Put a job into a queue, or many",
     .groups = ASKS,
     .options = enqueue_options,
     .arguments = enqueue_arguments,
     .examples = enqueue_examples,
     .run = command_enqueue},
    {.words = "job",
     .summary = "All there is to know of a job: its state, attempts and errors",
     .groups = ASKS,
     .options = job_options,
     .arguments = job_arguments,
     .run = command_job},
    {.words = "jobs",
     .summary = "Jobs that a filter finds",
     .groups = ASKS,
     .options = jobs_options,
     .arguments = filter_arguments,
     .examples = jobs_examples,
     .run = command_jobs},
    {.words = "jobs retry",
     .summary = "Begin dead letters anew",
     .groups = ASKS,
     .options = change_options,
     .arguments = change_arguments,
     .examples = change_examples,
     .run = command_jobs_change},
    {.words = "jobs cancel",
     .summary = "Cancel jobs that wait, and tell the workers of those that run",
     .groups = ASKS,
     .options = change_options,
     .arguments = change_arguments,
     .run = command_jobs_change},
    {.words = "jobs discard",
     .summary = "Forget jobs that have ended",
     .groups = ASKS,
     .options = change_options,
     .arguments = change_arguments,
     .run = command_jobs_change},
    {.words = "work",
     .summary = "Run a program for each job of a queue",
     .about = "The payload is the program's standard input, its standard output is the result, its "
              "standard error goes to ours with the job's id before each line. It gets "
              "WEIR_JOB_ID, WEIR_JOB_QUEUE, WEIR_JOB_KIND, WEIR_JOB_ATTEMPT and TRACEPARENT.\n\n"
              "Exit code 0: done. 75 (EX_TEMPFAIL): try again as the job's policy says. 65 "
              "(EX_DATAERR): a dead letter. 69 (EX_UNAVAILABLE): later, the attempt does not "
              "count. Others: as 75, with the class exit-CODE. Ended by a signal: failed with the "
              "class signal-NUMBER. After its timeout, if the job is cancelled, or if its lease "
              "could not be renewed and is about to be over: TERM, and KILL after the grace "
              "period. A result that is too large, here or for the server, is a failure of the "
              "class result-too-large.\n\n"
              "TERM drains: no more jobs are taken, what runs ends within --drain, the rest is "
              "given back. Told by the server to be quiet, it takes no more jobs, and ends after "
              "those that run, however long they take; told to end, it gives them back. A server "
              "that cannot be reached is tried again, with pauses; with --once, only once.",
     .groups = CLI_GROUP_CLIENT,
     .options = work_options,
     .arguments = work_arguments,
     .rest = "CMD...",
     .examples = work_examples,
     .run = command_work},
    {.words = "queue list",
     .summary = "All queues, with how many jobs wait, run and are dead",
     .groups = ASKS,
     .run = command_queue_list},
    {.words = "queue show",
     .summary = "A queue's settings and figures",
     .groups = ASKS,
     .arguments = queue_arguments,
     .run = command_queue_show},
    {.words = "queue set",
     .summary = "Change what holds for a queue; what is not said stays",
     .groups = ASKS,
     .options = queue_set_options,
     .arguments = queue_arguments,
     .run = command_queue_set},
    {.words = "queue pause",
     .summary = "Lease nothing from it until it is resumed",
     .groups = ASKS,
     .arguments = queue_arguments,
     .run = command_queue_state},
    {.words = "queue resume",
     .summary = "The end of pause and drain",
     .groups = ASKS,
     .arguments = queue_arguments,
     .run = command_queue_state},
    {.words = "queue drain",
     .summary = "Take nothing new; what there is is worked off",
     .groups = ASKS,
     .arguments = queue_arguments,
     .run = command_queue_state},
    {.words = "cron list",
     .summary = "All schedules, and when they come next",
     .groups = ASKS,
     .run = command_cron_list},
    {.words = "cron set",
     .summary = "Enqueue a job again and again",
     .groups = ASKS,
     .options = cron_set_options,
     .arguments = cron_set_arguments,
     .examples = cron_examples,
     .run = command_cron_set},
    {.words = "cron drop",
     .summary = "A schedule does not come any more",
     .groups = ASKS,
     .arguments = cron_arguments,
     .run = command_cron_drop},
    {.words = "tasks",
     .summary = "What every task of the server does, and where it waits",
     .groups = CLI_GROUP_CLIENT,
     .run = command_tasks},
    {.words = "map",
     .summary = "Every boundary of the server: owner, bounds, policies, figures",
     .groups = CLI_GROUP_CLIENT,
     .options = map_options,
     .run = command_map},
    {.words = "bench",
     .summary = "How many jobs a second a server takes, and how long each call lasts",
     .groups = ASKS,
     .options = bench_options,
     .run = command_bench},
    {.words = "store verify",
     .summary = "Whether the store in a folder is whole; nothing is changed",
     .groups = CLI_GROUP_OUTPUT,
     .arguments = verify_arguments,
     .run = command_store_verify},
    {.words = "store backup",
     .summary = "A copy of all that is synced by now, while the server goes on",
     .about = "It waits as long as the server gives a backup, an hour: --request-timeout does not "
              "hold for it.",
     .groups = ASKS,
     .arguments = backup_arguments,
     .run = command_store_backup},
    {.words = "store restore",
     .summary = "Make a data folder of a backup, having verified it",
     .groups = CLI_GROUP_OUTPUT,
     .arguments = restore_arguments,
     .run = command_store_restore},
    {.words = "token create",
     .summary = "A new token; its text is shown once",
     .groups = ASKS,
     .options = token_create_options,
     .arguments = token_create_arguments,
     .examples = token_examples,
     .run = command_token_create},
    {.words = "token list",
     .summary = "Tokens, without their texts, which nobody has",
     .groups = ASKS,
     .options = token_data_options,
     .run = command_token_list},
    {.words = "token revoke",
     .summary = "A token is good for nothing from now on",
     .groups = ASKS,
     .options = token_data_options,
     .arguments = token_arguments,
     .run = command_token_revoke},
    {.words = "token rotate",
     .summary = "Another text for the same token; the old one lives on for a while",
     .groups = ASKS,
     .options = token_rotate_options,
     .arguments = token_arguments,
     .run = command_token_rotate},
    {.words = "config check",
     .summary = "All that is wrong with the settings, with file and line",
     .options = config_check_options,
     .arguments = config_check_arguments,
     .run = command_config_check},
    {.words = "config show",
     .summary = "The settings that hold",
     .groups = CLI_GROUP_OUTPUT,
     .options = config_show_options,
     .run = command_config_show},
    {.words = "completion",
     .summary = "A script that completes commands, for a shell",
     .arguments = completion_arguments,
     .run = command_completion},
    {.words = "version",
     .summary = "Which weir this is",
     .groups = CLI_GROUP_OUTPUT,
     .run = command_version},
    {.words = "help",
     .summary = "What a command does, or all of them",
     .options = help_options,
     .arguments = help_arguments,
     .run = command_help},
    {0},
};
