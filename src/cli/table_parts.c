/* table_parts.c - options and arguments of queues, schedules, tokens and the rest. */
#include "cli/table_parts.h"

#define DAY_MS (24 * 3600 * 1000LL)
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

static const char *const durabilities[] = {"memory", "written", "synced", NULL};
static const char *const overflows[] = {"reject", "wait", NULL};
static const char *const overlaps[] = {"allow", "skip", NULL};
static const char *const catch_ups[] = {"none", "one", "all", NULL};
static const char *const map_formats[] = {"text", "json", "dot", NULL};
static const char *const bench_modes[] = {"enqueue", "lifecycle", NULL};

/* ---- Queues, schedules ---- */

const struct cli_argument queue_arguments[] = {
    {"QUEUE", .help = "its name"},
    END_ARGUMENT,
};
const struct cli_option queue_set_options[] = {
    {.name = "depth",
     .kind = CLI_INT,
     .value = "COUNT",
     .min = 1,
     .max = UINT32_MAX,
     .help = "jobs that may wait"},
    {.name = "overflow",
     .kind = CLI_CHOICE,
     .value = "POLICY",
     .choices = overflows,
     .help = "what an enqueue to a full queue gets"},
    {.name = "concurrency",
     .kind = CLI_INT,
     .value = "COUNT",
     .max = UINT32_MAX,
     .help = "jobs that run at a time; 0: no limit"},
    {.name = "rate",
     .kind = CLI_TEXT,
     .value = "COUNT/DURATION",
     .help = "jobs begun within a time: 100/1s; 0: no limit"},
    {.name = "burst",
     .kind = CLI_INT,
     .value = "COUNT",
     .max = UINT32_MAX,
     .help = "so many of them at once"},
    {.name = "latency-target",
     .kind = CLI_DURATION,
     .value = "DURATION",
     .max = DAY_MS,
     .help = "how long a job should wait; shown beside what is measured"},
    END_OPTION,
};
const struct cli_option cron_set_options[] = {
    {.name = "queue", .letter = 'q', .kind = CLI_TEXT, .value = "QUEUE", .help = "where to"},
    {.name = "kind",
     .letter = 'k',
     .kind = CLI_TEXT,
     .value = "KIND",
     .initial = "default",
     .help = "of the jobs"},
    {.name = "zone", .kind = CLI_TEXT, .value = "ZONE", .help = "Europe/Vienna; default: UTC"},
    {.name = "payload",
     .kind = CLI_TEXT,
     .value = "PAYLOAD",
     .help = "of each job: itself, @FILE or @-"},
    {.name = "overlap",
     .kind = CLI_CHOICE,
     .value = "POLICY",
     .choices = overlaps,
     .initial = "skip",
     .help = "while the job before has not ended"},
    {.name = "catch-up",
     .kind = CLI_CHOICE,
     .value = "POLICY",
     .choices = catch_ups,
     .initial = "one",
     .help = "for times that passed while the server was down"},
    {.name = "attempts",
     .kind = CLI_INT,
     .value = "COUNT",
     .initial = "1",
     .min = 1,
     .max = 1000,
     .help = "of each job, at most"},
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
    {.name = "timeout",
     .kind = CLI_DURATION,
     .value = "DURATION",
     .min = 1,
     .max = 30 * DAY_MS,
     .help = "of one attempt"},
    {.name = "paused", .kind = CLI_FLAG, .help = "it does not come until it is set again"},
    END_OPTION,
};
const struct cli_argument cron_set_arguments[] = {
    {"NAME", .help = "of the schedule; one with the same name is replaced"},
    {"CRON", .help = "\"m h dom mon dow\", or @hourly, @daily, ..."},
    END_ARGUMENT,
};
const struct cli_argument cron_arguments[] = {
    {"NAME", .help = "of the schedule"},
    END_ARGUMENT,
};
const struct cli_example cron_examples[] = {
    {"weir cron set nightly '0 3 * * *' --queue reports --kind nightly --zone Europe/Vienna",
     "at three in the night"},
    END_EXAMPLE,
};

/* ---- The rest ---- */

const struct cli_option map_options[] = {
    {.name = "format",
     .letter = 'f',
     .kind = CLI_CHOICE,
     .value = "FORMAT",
     .choices = map_formats,
     .initial = "text",
     .help = "dot is for Graphviz"},
    END_OPTION,
};
const struct cli_option bench_options[] = {
    {.name = "mode",
     .kind = CLI_CHOICE,
     .value = "MODE",
     .choices = bench_modes,
     .initial = "lifecycle",
     .help = "only put jobs in, or enqueue, lease and settle each"},
    {.name = "clients",
     .letter = 'n',
     .kind = CLI_INT,
     .value = "COUNT",
     .initial = "16",
     .min = 1,
     .max = 1024,
     .help = "connections"},
    {.name = "count",
     .kind = CLI_INT,
     .value = "COUNT",
     .initial = "10000",
     .min = 1,
     .max = 100000000,
     .help = "jobs in all"},
    {.name = "seconds",
     .kind = CLI_INT,
     .value = "SECONDS",
     .initial = "10",
     .min = 1,
     .max = 3600,
     .help = "at most"},
    {.name = "payload-bytes",
     .kind = CLI_SIZE,
     .value = "SIZE",
     .initial = "100",
     .min = 0,
     .max = 512 * 1024,
     .help = "of each job"},
    {.name = "batch",
     .kind = CLI_INT,
     .value = "COUNT",
     .initial = "1",
     .min = 1,
     .max = 64,
     .help = "jobs of one request"},
    {.name = "queue",
     .kind = CLI_TEXT,
     .value = "QUEUE",
     .initial = "weir-bench",
     .help = "which queue"},
    {.name = "durability",
     .kind = CLI_CHOICE,
     .value = "LEVEL",
     .choices = durabilities,
     .help = "default: the server's"},
    {.name = "remote",
     .kind = CLI_FLAG,
     .help = "the server may be on another machine, and is yours to burden"},
    END_OPTION,
};
const struct cli_argument verify_arguments[] = {
    {"FOLDER", .help = "the data folder of a server that does not run, or a backup"},
    END_ARGUMENT,
};
const struct cli_argument backup_arguments[] = {
    {"NAME", .optional = true,
     .help = "of the backup, in the server's folder of backups; default: the time"},
    END_ARGUMENT,
};
const struct cli_argument restore_arguments[] = {
    {"BACKUP", .help = "the folder of the backup"},
    {"DATA", .help = "the data folder, which must not have a store yet"},
    END_ARGUMENT,
};
const struct cli_option token_create_options[] = {
    {.name = "allow",
     .kind = CLI_MANY,
     .value = "VERB[:QUEUE[*]]",
     .help = "enqueue, work, read, manage, admin or all, for all queues, one, or those that begin "
             "so; may be said several times"},
    {.name = "expires",
     .kind = CLI_DURATION,
     .value = "DURATION",
     .min = 1000,
     .max = 3660 * DAY_MS,
     .help = "from now"},
    {.name = "data",
     .letter = 'd',
     .kind = CLI_PATH,
     .value = "FOLDER",
     .help = "without a server, in its data folder: for the first one"},
    END_OPTION,
};
const struct cli_argument token_create_arguments[] = {
    {"NAME", .help = "whose it is: for lists and the audit log"},
    END_ARGUMENT,
};
const struct cli_argument token_arguments[] = {
    {"ID", .help = "of the token, as 'weir token list' shows it"},
    END_ARGUMENT,
};
const struct cli_option token_data_options[] = {
    {.name = "data",
     .letter = 'd',
     .kind = CLI_PATH,
     .value = "FOLDER",
     .help = "without a server, in its data folder"},
    END_OPTION,
};
const struct cli_option token_rotate_options[] = {
    {.name = "overlap",
     .kind = CLI_DURATION,
     .value = "DURATION",
     .initial = "1h",
     .max = 365 * DAY_MS,
     .help = "how long the old one is still good"},
    {.name = "data",
     .letter = 'd',
     .kind = CLI_PATH,
     .value = "FOLDER",
     .help = "without a server, in its data folder"},
    END_OPTION,
};
const struct cli_example token_examples[] = {
    {"weir token create ops --allow all --data /var/lib/weir", "the first one"},
    {"weir token create shop --allow enqueue:mail* --expires 90d", "for a program"},
    END_EXAMPLE,
};
const struct cli_argument completion_arguments[] = {
    {"SHELL", .help = "bash, zsh or fish"},
    END_ARGUMENT,
};
const struct cli_option help_options[] = {
    {.name = "man", .kind = CLI_FLAG, .help = "the man page weir(1)"},
    {.name = "man-config", .kind = CLI_FLAG, .help = "the man page weir.conf(5)"},
    END_OPTION,
};
const struct cli_argument help_arguments[] = {
    {"COMMAND", .optional = true, .many = true, .help = "the command"},
    END_ARGUMENT,
};
