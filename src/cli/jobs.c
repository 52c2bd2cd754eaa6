/* jobs.c - weir job, weir jobs: look at jobs, and change many at once. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/look.h"
#include "cli/output.h"
#include "cli/paths.h"
#include "proto/json_write.h"

enum {
    TARGET_BYTES = 8192,
    FILTER_BYTES = 2048,
    NAMES_BYTES = 1024,
    PAGE = 200,
    BULK_PAUSE_MS = 200,
};

/* ---- One ---- */

static void print_line(const char *name, const char *value)
{
    if (value[0]) (void)printf("%-16s %s\n", name, value);
}

static void print_member(struct bytes job, const char *name, const char *path)
{
    char text[LOOK_TEXT_BYTES];

    look_text(job, path, text, sizeof text);
    print_line(name, text);
}

static void print_names(struct bytes job, const char *name)
{
    char line[NAMES_BYTES] = "", one[LOOK_TEXT_BYTES];
    struct look_items items;
    struct bytes item;

    look_begin(&items, look(job, name));
    while (look_next(&items, &item)) {
        size_t used = strlen(line);

        look_text(item, "", one, sizeof one);
        (void)snprintf(line + used, sizeof line - used, "%s%s", used > 0 ? ", " : "", one);
    }
    print_line(name, line);
}

static void print_time(struct bytes job, const char *name, const char *path)
{
    char text[64], ago[32], line[128];
    int64_t ms = look_int(job, path, 0);

    if (ms <= 0) return;
    format_time_ms(ms, text, sizeof text);
    format_ago(ms, ago, sizeof ago);
    (void)snprintf(line, sizeof line, "%s (%s%s%s)", text, ms > unix_now_ms() ? "in " : "", ago,
                   ms > unix_now_ms() ? "" : " ago");
    print_line(name, line);
}

static void print_errors(struct bytes job)
{
    struct look_items items;
    struct bytes error;
    bool first = true;

    look_begin(&items, look(job, "errors"));
    while (look_next(&items, &error)) {
        char class[LOOK_TEXT_BYTES], message[LOOK_TEXT_BYTES * 2], at[64];

        if (first) (void)puts("errors");
        first = false;
        look_text(error, "class", class, sizeof class);
        look_text(error, "message", message, sizeof message);
        format_time_ms(look_int(error, "at_ms", 0), at, sizeof at);
        (void)printf("  run %lld  %s  %s%s%s\n", (long long)look_int(error, "run", 0), at, class,
                     message[0] ? ": " : "", message);
    }
}

static void print_job(struct bytes job)
{
    static const char *const members[] = {
        "queue",      "kind",          "version",         "priority",     "progress",
        "unique_key", "order_key",     "idempotency_key", "fairness_key", "blocked_on",
        "batch",      "payload_bytes", "result_bytes"};
    char state[32], attempts[64];

    look_text(job, "state", state, sizeof state);
    print_member(job, "id", "id");
    (void)printf("%-16s %s%s%s%s\n", "state", color_of_state(state), state, color_end(),
                 look_bool(job, "cancel_asked") ? " (told to cancel)" : "");
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        print_member(job, members[i], members[i]);
    print_names(job, "tags");
    print_names(job, "limit_keys");
    (void)snprintf(attempts, sizeof attempts, "%lld of %lld (begun %lld times)",
                   (long long)look_int(job, "attempt", 0),
                   (long long)look_int(job, "attempts_max", 0), (long long)look_int(job, "run", 0));
    print_line("attempt", attempts);
    print_time(job, "created", "created_ms");
    print_time(job, "started", "started_ms");
    print_time(job, "runs at", "run_at_ms");
    print_time(job, "leased until", "lease_until_ms");
    print_time(job, "expires", "expires_ms");
    print_time(job, "kept until", "kept_until_ms");
    print_errors(job);
}

static int ask_job(struct cli_call *call, struct client *client)
{
    const char *what = cli_has(call, "payload")  ? "/payload"
                       : cli_has(call, "result") ? "/result"
                                                 : "";
    char space[TARGET_BYTES];
    struct client_answer answer;
    struct buffer target;
    int status;

    buffer_init_fixed(&target, space, sizeof space);
    buffer_put_string(&target, PATH_JOBS "/");
    put_encoded(&target, cli_argument_at(call, 0));
    buffer_put_string(&target, what);
    buffer_put_char(&target, '\0');
    status = ask_get(client, space, "job", &answer);
    if (status != CLI_OK) return status;
    if (*what)
        (void)fwrite(answer.body.at, 1, answer.body.count, stdout);
    else if (cli_has(call, "json"))
        print_body(&answer);
    else
        print_job(answer.body);
    return CLI_OK;
}

int command_job(struct cli_call *call)
{
    return with_client(call, ask_job);
}

/* ---- Many ---- */

/* The words of the filter, as one. */
static int join_filter(const struct cli_call *call, char filter[FILTER_BYTES])
{
    filter[0] = '\0';
    for (unsigned i = 0; i < call->argument_count; i++) {
        size_t used = strlen(filter);

        if (used + strlen(call->arguments[i]) + 2 > FILTER_BYTES)
            return fail(CLI_USAGE, "the filter is too long");
        (void)snprintf(filter + used, FILTER_BYTES - used, "%s%s", i ? " " : "",
                       call->arguments[i]);
    }
    return CLI_OK;
}

static void add_row(struct table *table, struct bytes job)
{
    char text[LOOK_TEXT_BYTES], ago[32];
    struct look_items items;
    struct bytes error, last = {NULL, 0};

    look_text(job, "id", text, sizeof text);
    table_cell(table, "%s", text);
    look_text(job, "state", text, sizeof text);
    table_cell(table, "%s", text);
    look_text(job, "queue", text, sizeof text);
    table_cell(table, "%.30s", text);
    look_text(job, "kind", text, sizeof text);
    table_cell(table, "%.30s", text);
    table_cell(table, "%lld/%lld", (long long)look_int(job, "attempt", 0),
               (long long)look_int(job, "attempts_max", 0));
    format_ago(look_int(job, "created_ms", 0), ago, sizeof ago);
    table_cell(table, "%s", ago);
    look_begin(&items, look(job, "errors"));
    while (look_next(&items, &error)) last = error;
    look_text(last, "class", text, sizeof text);
    table_cell(table, "%.40s", text);
}

static void page_target(struct buffer *target, const char *filter, int64_t limit,
                        const char *cursor)
{
    char number[24];

    buffer_clear(target);
    buffer_put_string(target, PATH_JOBS);
    if (filter[0]) put_query(target, "filter", filter);
    (void)snprintf(number, sizeof number, "%lld", (long long)(limit < PAGE ? limit : PAGE));
    put_query(target, "limit", number);
    if (cursor[0]) put_query(target, "cursor", cursor);
    buffer_put_char(target, '\0');
}

/* Pages until there are enough; each as lines of JSON, or as rows. */
static int list_jobs(struct cli_call *call, struct client *client, const char *filter)
{
    int64_t limit = cli_has(call, "count") ? INT64_MAX : cli_number(call, "limit"), found = 0;
    char space[TARGET_BYTES], cursor[512] = "";
    struct client_answer answer;
    struct look_items items;
    struct buffer target;
    struct table table;
    struct bytes job;
    int status;

    table_init(&table, "id> state queue kind attempt age> error");
    buffer_init_fixed(&target, space, sizeof space);
    do {
        page_target(&target, filter, limit - found, cursor);
        status = ask_get(client, space, "jobs", &answer);
        if (status != CLI_OK) return status;
        look_begin(&items, look(answer.body, "jobs"));
        while (found < limit && look_next(&items, &job)) {
            found++;
            if (cli_has(call, "count")) continue;
            if (cli_has(call, "json"))
                (void)printf("%.*s\n", (int)job.count, job.at);
            else
                add_row(&table, job);
        }
        look_text(answer.body, "next", cursor, sizeof cursor);
        progress("%lld jobs", (long long)found);
    } while (cursor[0] && found < limit);
    progress_end();
    if (cli_has(call, "count"))
        (void)printf("%lld\n", (long long)found);
    else if (!cli_has(call, "json"))
        table_end(&table, "no job is like that");
    if (cursor[0] && !cli_has(call, "count"))
        say("there are more: --limit shows them, --count tells how many");
    return CLI_OK;
}

static int ask_jobs(struct cli_call *call, struct client *client)
{
    char filter[FILTER_BYTES];
    int status = join_filter(call, filter);

    return status == CLI_OK ? list_jobs(call, client, filter) : status;
}

int command_jobs(struct cli_call *call)
{
    return with_client(call, ask_jobs);
}

/* ---- Changing ---- */

static const char *action_of(const struct cli_call *call)
{
    return strchr(call->command->words, ' ') + 1;
}

static int change_one(struct cli_call *call, struct client *client, const char *id)
{
    const char *action = action_of(call);
    char target[128], state[32];
    struct client_answer answer;
    bool discard = strcmp(action, "discard") == 0;
    int status;

    (void)snprintf(target, sizeof target, PATH_JOBS "/%.30s/%s", id, action);
    status = ask_server(client, &(struct client_request){.method = METHOD_POST, .target = target},
                        "job", &answer);
    if (status != CLI_OK) return status;
    look_text(answer.body, "state", state, sizeof state);
    if (cli_has(call, "json"))
        print_body(&answer);
    else if (strcmp(action, "cancel") == 0 && strcmp(state, "leased") == 0)
        say("job %s: told to stop; it is cancelled when its worker has heard of it", id);
    else
        say("job %s: %s", id, discard ? "forgotten" : state);
    return CLI_OK;
}

static int post_bulk(struct cli_call *call, struct client *client, const char *filter,
                     int64_t expected, struct client_answer *answer)
{
    char space[FILTER_BYTES * 2 + 256];
    struct json_writer json;
    struct buffer body;

    buffer_init_fixed(&body, space, sizeof space);
    json_writer_init(&json, &body);
    json_open_object(&json);
    json_key(&json, "action");
    json_put_string(&json, action_of(call));
    json_key(&json, "filter");
    json_put_string(&json, filter);
    if (expected < 0) {
        json_key(&json, "dry_run");
        json_put_bool(&json, true);
    } else {
        json_key(&json, "expected_count");
        json_put_int(&json, expected);
    }
    json_close(&json);
    return ask_server(client,
                      &(struct client_request){.method = METHOD_POST,
                                               .target = PATH_JOBS_BULK,
                                               .body = buffer_bytes(&body)},
                      action_of(call), answer);
}

/* The set is worked off in the background: until that has been done. */
static int await_bulk(struct cli_call *call, struct client *client, const char *id)
{
    struct client_answer answer;
    char target[128];

    (void)snprintf(target, sizeof target, PATH_BULK "/%.30s", id);
    for (;;) {
        int64_t count, done;
        int status = ask_get(client, target, "set", &answer);

        if (status != CLI_OK) return status;
        count = look_int(answer.body, "count", 0);
        done = look_int(answer.body, "done", 0);
        if (done >= count) break;
        progress("%lld of %lld", (long long)done, (long long)count);
        if (weir_sleep(BULK_PAUSE_MS) < 0) return CLI_FAILED;
    }
    progress_end();
    if (cli_has(call, "json")) print_body(&answer);
    say("%s: %lld jobs, %lld of them could not be", action_of(call),
        (long long)look_int(answer.body, "count", 0),
        (long long)look_int(answer.body, "failed", 0));
    return look_int(answer.body, "failed", 0) > 0 ? CLI_FAILED : CLI_OK;
}

static int change_all(struct cli_call *call, struct client *client, const char *filter)
{
    int64_t expected = cli_has(call, "expect") ? cli_number(call, "expect") : -1;
    char question[256], id[64];
    struct client_answer answer;
    int status;

    if (expected < 0) {
        status = post_bulk(call, client, filter, -1, &answer);
        if (status != CLI_OK) return status;
        expected = look_int(answer.body, "count", 0);
        if (expected == 0) return fail(CLI_NOT_FOUND, "no job is like that");
    }
    if (!cli_has(call, "yes")) {
        if (isatty(STDIN_FILENO) != 1)
            return fail(CLI_USAGE, "%lld jobs: without a terminal to ask on, say --yes",
                        (long long)expected);
        (void)snprintf(question, sizeof question, "%s %lld jobs?", action_of(call),
                       (long long)expected);
        if (!confirm(question)) return fail(CLI_FAILED, "nothing was done");
    }
    status = post_bulk(call, client, filter, expected, &answer);
    if (status == CLI_CONFLICT)
        say("there are %lld now; look again ('weir jobs'), then say --expect %lld",
            (long long)look_int(answer.body, "actual_count", 0),
            (long long)look_int(answer.body, "actual_count", 0));
    if (status != CLI_OK) return status;
    look_text(answer.body, "id", id, sizeof id);
    return await_bulk(call, client, id);
}

static bool is_id(const char *text)
{
    if (!*text) return false;
    while (is_digit(*text)) text++;
    return *text == '\0';
}

static int ask_change(struct cli_call *call, struct client *client)
{
    char filter[FILTER_BYTES];
    int status;

    if (call->argument_count == 1 && is_id(cli_argument_at(call, 0)))
        return change_one(call, client, cli_argument_at(call, 0));
    status = join_filter(call, filter);
    return status == CLI_OK ? change_all(call, client, filter) : status;
}

int command_jobs_change(struct cli_call *call)
{
    return with_client(call, ask_change);
}
