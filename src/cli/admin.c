/* admin.c - weir status, queue, cron, tasks, map: how the server is, and what holds in it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/look.h"
#include "cli/output.h"
#include "cli/paths.h"
#include "proto/duration.h"
#include "proto/json_write.h"
#include "rt/mem.h"

enum { TARGET_BYTES = 2048, PAYLOAD_BYTES_MAX = 1 << 20, BODY_BYTES_MAX = 4 << 20 };

/* PATH/NAME/ACTION into the caller's block. */
static const char *target_of(char space[TARGET_BYTES], const char *path, const char *name,
                             const char *action)
{
    struct buffer target;

    buffer_init_fixed(&target, space, TARGET_BYTES);
    buffer_put_string(&target, path);
    buffer_put_char(&target, '/');
    put_encoded(&target, name);
    buffer_put_string(&target, action);
    buffer_put_char(&target, '\0');
    return space;
}

/* ---- Queues ---- */

static int64_t waiting_of(struct bytes queue)
{
    return look_int(queue, "jobs.ready", 0) + look_int(queue, "jobs.scheduled", 0) +
           look_int(queue, "jobs.held", 0) + look_int(queue, "jobs.blocked", 0);
}

static void add_queue(struct table *table, struct bytes queue)
{
    char name[LOOK_TEXT_BYTES];
    int64_t oldest = look_int(queue, "oldest_ms", 0);

    look_text(queue, "name", name, sizeof name);
    table_cell(table, "%.40s", name);
    table_cell(table, "%" PRId64, waiting_of(queue));
    table_cell(table, "%" PRId64, look_int(queue, "jobs.leased", 0));
    table_cell(table, "%" PRId64, look_int(queue, "jobs.done", 0));
    table_cell(table, "%" PRId64, look_int(queue, "jobs.dead", 0));
    table_cell(table, "%" PRId64 ".%03" PRId64 "s", oldest / 1000, oldest % 1000);
    table_cell(table, "%s%s",
               look_bool(queue, "paused")     ? "paused"
               : look_bool(queue, "draining") ? "draining"
                                              : "open",
               look_int(queue, "unknown_kind", 0) > 0 ? ", unknown kinds" : "");
}

static void list_queues(struct bytes queues)
{
    struct look_items items;
    struct table table;
    struct bytes queue;

    table_init(&table, "queue waiting> running> done> dead> oldest> state");
    look_begin(&items, queues);
    while (look_next(&items, &queue)) add_queue(&table, queue);
    table_end(&table, "there is no queue yet: the first job makes one ('weir enqueue')");
}

/* All of them as one array, page by page. CLI_OK, or another status. */
static int gather_queues(struct client *client, struct buffer *queues)
{
    char space[TARGET_BYTES], cursor[LOOK_TEXT_BYTES] = "";
    struct client_answer answer;
    struct look_items items;
    struct buffer target;
    struct bytes queue;

    buffer_put_char(queues, '[');
    do {
        int status;

        buffer_init_fixed(&target, space, sizeof space);
        buffer_put_string(&target, PATH_QUEUES);
        if (cursor[0]) put_query(&target, "cursor", cursor);
        buffer_put_char(&target, '\0');
        status = ask_get(client, space, "queues", &answer);
        if (status != CLI_OK) return status;
        look_begin(&items, look(answer.body, "queues"));
        while (look_next(&items, &queue)) {
            if (queues->used > 1) buffer_put_char(queues, ',');
            buffer_put_bytes(queues, queue);
        }
        look_text(answer.body, "next", cursor, sizeof cursor);
    } while (cursor[0] && !buffer_error(queues));
    buffer_put_char(queues, ']');
    return buffer_error(queues) ? fail(CLI_FAILED, "there are too many queues") : CLI_OK;
}

static int ask_queue_list(struct cli_call *call, struct client *client)
{
    struct buffer queues;
    int status;

    buffer_init(&queues, CLIENT_ANSWER_BYTES_MAX, client_resize, NULL);
    status = gather_queues(client, &queues);
    if (status == CLI_OK && cli_has(call, "json"))
        (void)printf("{\"queues\":%.*s}\n", (int)queues.used, queues.at);
    else if (status == CLI_OK)
        list_queues(buffer_bytes(&queues));
    buffer_deinit(&queues);
    return status;
}

int command_queue_list(struct cli_call *call)
{
    return with_client(call, ask_queue_list);
}

static void print_members(struct bytes object, const char *prefix)
{
    struct look_items items;
    struct bytes value;
    char key[64], name[160], text[LOOK_TEXT_BYTES];

    look_begin(&items, object);
    while (look_next_member(&items, key, sizeof key, &value)) {
        (void)snprintf(name, sizeof name, "%s%s%s", prefix, *prefix ? "." : "", key);
        if (value.count > 0 && value.at[0] == '{') {
            print_members(value, name);
            continue;
        }
        look_text(value, "", text, sizeof text);
        (void)printf("%-24s %s\n", name, text[0] ? text : "-");
    }
}

static int ask_queue_show(struct cli_call *call, struct client *client)
{
    char space[TARGET_BYTES];
    struct client_answer answer;
    int status = ask_get(client, target_of(space, PATH_QUEUES, cli_argument_at(call, 0), ""),
                         "queue", &answer);

    if (status != CLI_OK) return status;
    if (cli_has(call, "json"))
        print_body(&answer);
    else
        print_members(answer.body, "");
    return CLI_OK;
}

int command_queue_show(struct cli_call *call)
{
    return with_client(call, ask_queue_show);
}

static int ask_queue_state(struct cli_call *call, struct client *client)
{
    const char *action = strchr(call->command->words, ' ') + 1;
    char space[TARGET_BYTES], path[32];
    struct client_answer answer;
    int status;

    (void)snprintf(path, sizeof path, "/%s", action);
    status = ask_server(client,
                        &(struct client_request){
                            .method = METHOD_POST,
                            .target = target_of(space, PATH_QUEUES, cli_argument_at(call, 0), path),
                            .again = true},
                        "queue", &answer);
    if (status != CLI_OK) return status;
    if (cli_has(call, "json"))
        print_body(&answer);
    else
        say("queue '%s': %s", cli_argument_at(call, 0), action);
    return CLI_OK;
}

int command_queue_state(struct cli_call *call)
{
    return with_client(call, ask_queue_state);
}

/* "100/1s". 0, or -1. */
static int parse_rate(const char *text, int64_t *ret_count, int64_t *ret_period_ms)
{
    char *end;
    int64_t ns;

    *ret_count = strtoll(text, &end, 10);
    *ret_period_ms = 1000;
    if (end == text || *ret_count < 0) return -1;
    if (*end == '\0') return *ret_count == 0 ? 0 : -1;
    if (*end != '/' || duration_parse(bytes_of(end + 1), &ns) < 0) return -1;
    *ret_period_ms = ns / DURATION_MS;
    return *ret_period_ms > 0 ? 0 : -1;
}

static void put_int(struct json_writer *json, const char *key, int64_t value)
{
    json_key(json, key);
    json_put_int(json, value);
}

static void put_said(struct json_writer *json, const struct cli_call *call, const char *option,
                     const char *key)
{
    if (cli_has(call, option)) put_int(json, key, cli_number(call, option));
}

/* What is not said stays as it is. */
static int write_queue(const struct cli_call *call, struct buffer *body)
{
    int64_t count = 0, period_ms = 0;
    struct json_writer json;

    if (cli_has(call, "rate") && parse_rate(cli_text(call, "rate"), &count, &period_ms) < 0)
        return fail(CLI_USAGE, "--rate: write 100/1s, or 0 for no limit");
    json_writer_init(&json, body);
    json_open_object(&json);
    put_said(&json, call, "depth", "depth_max");
    if (cli_has(call, "overflow")) {
        json_key(&json, "overflow");
        json_put_string(&json, cli_text(call, "overflow"));
    }
    put_said(&json, call, "concurrency", "concurrency");
    if (cli_has(call, "rate") || cli_has(call, "burst")) {
        json_key(&json, "rate");
        json_open_object(&json);
        if (cli_has(call, "rate")) {
            put_int(&json, "count", count);
            put_int(&json, "period_ms", period_ms);
        }
        put_said(&json, call, "burst", "burst");
        json_close(&json);
    }
    put_said(&json, call, "latency-target", "latency_target_ms");
    json_close(&json);
    return CLI_OK;
}

static int ask_queue_set(struct cli_call *call, struct client *client)
{
    char space[TARGET_BYTES], text[1024];
    const char *target = target_of(space, PATH_QUEUES, cli_argument_at(call, 0), "");
    struct client_answer answer;
    struct buffer body;
    int status;

    buffer_init_fixed(&body, text, sizeof text);
    status = write_queue(call, &body);
    if (status != CLI_OK) return status;
    if (bytes_are(buffer_bytes(&body), BYTES("{}")))
        return fail(CLI_USAGE, "queue set: say what is to hold, such as --depth (--help has all)");
    status = ask_server(
        client,
        &(struct client_request){
            .method = METHOD_PATCH, .target = target, .body = buffer_bytes(&body), .again = true},
        "queue", &answer);
    if (status == CLI_OK && cli_has(call, "json")) print_body(&answer);
    return status;
}

int command_queue_set(struct cli_call *call)
{
    return with_client(call, ask_queue_set);
}

/* ---- Schedules ---- */

static void list_schedules(struct bytes body)
{
    static const char *const members[] = {"name", "cron", "zone", "queue", "kind"};
    struct look_items items;
    struct table table;
    struct bytes one;

    table_init(&table, "name cron zone queue kind next state");
    look_begin(&items, look(body, "schedules"));
    while (look_next(&items, &one)) {
        char text[LOOK_TEXT_BYTES];

        for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
            look_text(one, members[i], text, sizeof text);
            table_cell(&table, "%.40s", text);
        }
        format_time_ms(look_int(one, "next_ms", 0), text, sizeof text);
        table_cell(&table, "%s", text);
        table_cell(&table, "%s",
                   look_bool(one, "paused")         ? "paused"
                   : look_bool(one, "zone_missing") ? "zone is missing"
                                                    : "on");
    }
    table_end(&table, "there is no schedule yet ('weir cron set')");
}

static int ask_cron_list(struct cli_call *call, struct client *client)
{
    struct client_answer answer;
    int status = ask_get(client, PATH_SCHEDULES, "schedules", &answer);

    if (status != CLI_OK) return status;
    if (cli_has(call, "json"))
        print_body(&answer);
    else
        list_schedules(answer.body);
    return CLI_OK;
}

int command_cron_list(struct cli_call *call)
{
    return with_client(call, ask_cron_list);
}

static void put_string(struct json_writer *json, const char *key, const char *text)
{
    if (!text) return;
    json_key(json, key);
    json_put_string(json, text);
}

static void put_cron_job(struct json_writer *json, const struct cli_call *call,
                         struct bytes payload)
{
    int64_t attempts = cli_number(call, "attempts");

    json_key(json, "job");
    json_open_object(json);
    put_string(json, "queue", cli_text(call, "queue"));
    put_string(json, "kind", cli_text(call, "kind"));
    json_key(json, "idempotent");
    json_put_bool(json, attempts > 1);
    if (cli_has(call, "timeout")) put_int(json, "timeout_ms", cli_number(call, "timeout"));
    if (attempts > 1) {
        json_key(json, "retry");
        json_open_object(json);
        put_int(json, "attempts_max", attempts);
        put_int(json, "backoff_ms", cli_number(call, "backoff"));
        put_int(json, "backoff_ms_max", cli_backoff_max(call));
        json_close(json);
    }
    if (payload.count > 0) {
        json_key(json, "payload_base64");
        json_put_base64(json, payload);
    }
    json_close(json);
}

static int ask_cron_set(struct cli_call *call, struct client *client)
{
    const char *said = cli_text(call, "payload");
    char space[TARGET_BYTES], *payload = NULL;
    struct client_answer answer;
    struct json_writer json;
    struct buffer body;
    size_t count = 0;
    int r, status;

    if (!cli_text(call, "queue")) return fail(CLI_USAGE, "'weir cron set' needs --queue QUEUE");
    r = said ? read_argument(said, PAYLOAD_BYTES_MAX, &payload, &count) : 0;
    if (r < 0) return fail(CLI_FAILED, "'%s': %s", said, weir_strerror(r));
    buffer_init(&body, BODY_BYTES_MAX, client_resize, NULL);
    json_writer_init(&json, &body);
    json_open_object(&json);
    put_string(&json, "cron", cli_argument_at(call, 1));
    put_string(&json, "zone", cli_text(call, "zone"));
    put_string(&json, "overlap", cli_text(call, "overlap"));
    put_string(&json, "catch_up", cli_text(call, "catch-up"));
    json_key(&json, "paused");
    json_put_bool(&json, cli_has(call, "paused"));
    put_cron_job(&json, call, (struct bytes){payload, count});
    json_close(&json);
    status = ask_server(client,
                        &(struct client_request){.method = METHOD_PUT,
                                                 .target = target_of(space, PATH_SCHEDULES,
                                                                     cli_argument_at(call, 0), ""),
                                                 .body = buffer_bytes(&body),
                                                 .again = true},
                        "schedule", &answer);
    buffer_deinit(&body);
    mem_free(payload);
    if (status == CLI_OK && cli_has(call, "json")) print_body(&answer);
    return status;
}

int command_cron_set(struct cli_call *call)
{
    return with_client(call, ask_cron_set);
}

static int ask_cron_drop(struct cli_call *call, struct client *client)
{
    char space[TARGET_BYTES];
    struct client_answer answer;
    int status =
        ask_server(client,
                   &(struct client_request){
                       .method = METHOD_DELETE,
                       .target = target_of(space, PATH_SCHEDULES, cli_argument_at(call, 0), "")},
                   "schedule", &answer);

    if (status == CLI_OK && cli_has(call, "json")) print_body(&answer);
    return status;
}

int command_cron_drop(struct cli_call *call)
{
    return with_client(call, ask_cron_drop);
}

/* ---- The server ---- */

static void print_info(struct bytes info)
{
    char version[64], since[32], durability[32];

    look_text(info, "version", version, sizeof version);
    look_text(info, "durability", durability, sizeof durability);
    format_ago(look_int(info, "started_ms", 0), since, sizeof since);
    (void)printf("weir %s, process %" PRId64 ", for %s%s; %" PRId64 " workers; tokens %s\n",
                 version, look_int(info, "pid", 0), since,
                 look_bool(info, "draining") ? ", draining" : "", look_int(info, "workers", 0),
                 look_bool(info, "tokens") ? "required" : "not required");
    (void)printf("store: %" PRId64 " jobs, %" PRId64 " of %" PRId64 " MB of memory, %" PRId64
                 " MB of disk, %s\n",
                 look_int(info, "store.jobs", 0), look_int(info, "store.memory_bytes", 0) >> 20,
                 look_int(info, "store.memory_bytes_max", 0) >> 20,
                 look_int(info, "store.disk_bytes", 0) >> 20, durability);
    (void)printf("service: %" PRId64 " connections (%" PRId64 " idle), %" PRId64
                 " requests now, %" PRId64 " served, %" PRId64 " shed\n\n",
                 look_int(info, "service.connections", 0),
                 look_int(info, "service.connections_idle", 0),
                 look_int(info, "service.requests", 0), look_int(info, "service.served", 0),
                 look_int(info, "service.shed", 0));
}

/* Nothing is printed before all is there. */
static int ask_status(struct cli_call *call, struct client *client)
{
    struct client_answer answer;
    struct buffer info, queues;
    int status = ask_get(client, PATH_INFO, "status", &answer);

    if (status != CLI_OK) return status;
    buffer_init(&info, CLIENT_ANSWER_BYTES_MAX, client_resize, NULL);
    buffer_init(&queues, CLIENT_ANSWER_BYTES_MAX, client_resize, NULL);
    buffer_put_bytes(&info, answer.body);
    status = gather_queues(client, &queues);
    if (status == CLI_OK && cli_has(call, "json")) {
        (void)printf("{\"info\":%.*s,\"queues\":%.*s}\n", (int)info.used, info.at, (int)queues.used,
                     queues.at);
    } else if (status == CLI_OK) {
        print_info(buffer_bytes(&info));
        list_queues(buffer_bytes(&queues));
    }
    buffer_deinit(&info);
    buffer_deinit(&queues);
    return status;
}

int command_status(struct cli_call *call)
{
    return with_client(call, ask_status);
}

static int ask_tasks(struct cli_call *call, struct client *client)
{
    struct client_answer answer;
    int status = ask_get(client, PATH_TASKS, "tasks", &answer);

    (void)call;
    if (status == CLI_OK) print_body(&answer);
    return status;
}

int command_tasks(struct cli_call *call)
{
    return with_client(call, ask_tasks);
}

static int ask_map(struct cli_call *call, struct client *client)
{
    const char *format = cli_text(call, "format");
    struct client_answer answer;
    char target[128];
    int status;

    (void)snprintf(target, sizeof target, PATH_MAP "?format=%s",
                   strcmp(format, "dot") == 0 ? "graphviz" : format);
    status = ask_get(client, target, "map", &answer);
    if (status == CLI_OK) print_body(&answer);
    return status;
}

int command_map(struct cli_call *call)
{
    return with_client(call, ask_map);
}
