/* enqueue.c - weir enqueue: one job, or one for each line. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/look.h"
#include "cli/output.h"
#include "cli/paths.h"
#include "proto/json_write.h"
#include "rt/kernel.h"
#include "rt/mem.h"

enum {
    PAYLOAD_BYTES_MAX = 64 * 1024 * 1024,
    NDJSON_BYTES_MAX = 1024 * 1024 * 1024,
    CHUNK_BYTES = 1 << 20, /* of lines of one request */
    CHUNK_LINES = 1000,
    WAIT_S = 30,
    JSON_KEYS = 65000,
};

/* ---- The job in JSON ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Whether it comes out of the body of a request as it went in: with blanks around it it would not,
 * and what is as deep or has as many members as JSON may have is too much for what is around it. */
static bool is_json(struct bytes text)
{
    struct json_key *keys = mem_alloc(JSON_KEYS * sizeof *keys);
    char why[JSON_WHY_BYTES];
    size_t at;
    bool is = keys && !is_blank(text.at[0]) && !is_blank(text.at[text.count - 1]) &&
              json_check(text,
                         &(struct json_limits){
                             .depth_max = JSON_DEPTH_MAX - 1, .keys = keys, .key_room = JSON_KEYS},
                         &at, why) == 0;

    mem_free(keys);
    return is;
}

static void put_text(struct json_writer *json, const char *key, const char *text)
{
    if (!text) return;
    json_key(json, key);
    json_put_string(json, text);
}

static void put_number(struct json_writer *json, const struct cli_call *call, const char *key,
                       const char *option)
{
    if (!cli_has(call, option)) return;
    json_key(json, key);
    json_put_int(json, cli_number(call, option));
}

static void put_names(struct json_writer *json, const char *key, const char *text)
{
    struct bytes rest, part;

    if (!text) return;
    rest = bytes_of(text);
    json_key(json, key);
    json_open_array(json);
    while (bytes_split(&rest, ',', &part))
        if (part.count > 0) json_put_text(json, part);
    json_close(json);
}

/* Everything but the payload, which is the last member. */
static void put_job(struct json_writer *json, const struct cli_call *call)
{
    int64_t attempts = cli_number(call, "attempts");

    json_open_object(json);
    put_text(json, "queue", cli_argument_at(call, 0));
    put_text(json, "kind", cli_text(call, "kind"));
    put_number(json, call, "version", "version");
    put_number(json, call, "priority", "priority");
    put_number(json, call, "delay_ms", "delay");
    put_number(json, call, "run_at_ms", "run-at");
    put_number(json, call, "timeout_ms", "timeout");
    if (cli_has(call, "expires")) {
        json_key(json, "expires_ms");
        json_put_int(json, unix_now_ms() + cli_number(call, "expires"));
    }
    json_key(json, "idempotent");
    json_put_bool(json, cli_has(call, "idempotent") || attempts > 1);
    if (attempts > 1) {
        json_key(json, "retry");
        json_open_object(json);
        json_key(json, "attempts_max");
        json_put_int(json, attempts);
        json_key(json, "backoff_ms");
        json_put_int(json, cli_number(call, "backoff"));
        json_key(json, "backoff_ms_max");
        json_put_int(json, cli_backoff_max(call));
        json_close(json);
    }
    put_text(json, "unique_key", cli_text(call, "unique"));
    put_names(json, "limit_keys", cli_text(call, "limit-key"));
    put_text(json, "fairness_key", cli_text(call, "fairness-key"));
    put_text(json, "order_key", cli_text(call, "order-key"));
    put_names(json, "tags", cli_text(call, "tags"));
    put_text(json, "trace", getenv("TRACEPARENT"));
}

static void put_payload(struct json_writer *json, struct bytes payload)
{
    if (payload.count == 0) return;
    if (is_json(payload)) {
        json_key(json, "payload");
        json_put_raw(json, payload);
    } else {
        json_key(json, "payload_base64");
        json_put_base64(json, payload);
    }
}

static void write_target(struct buffer *target, const char *path, const struct cli_call *call)
{
    buffer_put_string(target, path);
    put_query(target, "durability", cli_text(call, "durability"));
    buffer_put_char(target, '\0');
}

/* ---- One ---- */

/* Until it has ended. */
static int wait_for(struct cli_call *call, struct client *client, const char *id)
{
    char target[128], state[32];
    struct client_answer answer;
    int status;

    (void)snprintf(target, sizeof target, PATH_JOBS "/%.30s?wait=%ds", id, WAIT_S);
    for (;;) {
        status = ask_server(client,
                            &(struct client_request){.method = METHOD_GET,
                                                     .target = target,
                                                     .timeout_ms = (WAIT_S + 10) * 1000},
                            "job", &answer);
        if (status != CLI_OK) return status;
        look_text(answer.body, "state", state, sizeof state);
        if (strcmp(state, "done") == 0 || strcmp(state, "dead") == 0 ||
            strcmp(state, "cancelled") == 0 || strcmp(state, "expired") == 0)
            break;
        progress("job %s is %s", id, state);
    }
    progress_end();
    if (cli_has(call, "json")) print_body(&answer);
    if (strcmp(state, "done") != 0)
        return fail(CLI_FAILED, "job %s is %s; 'weir job %s' tells why", id, state, id);
    if (cli_has(call, "json")) return CLI_OK;
    (void)snprintf(target, sizeof target, PATH_JOBS "/%.30s/result", id);
    status = ask_get(client, target, "result", &answer);
    if (status == CLI_OK) (void)fwrite(answer.body.at, 1, answer.body.count, stdout);
    return status;
}

static int enqueue_one(struct cli_call *call, struct client *client, struct bytes payload)
{
    const char *key = cli_text(call, "idempotency-key");
    char space[256], id[LOOK_TEXT_BYTES], own_key[48];
    const struct kernel *kernel = kernel_current();
    struct client_request request = {.method = METHOD_POST, .again = true};
    struct client_answer answer = {0};
    struct json_writer json;
    struct buffer body, target;
    uint64_t random[2];
    int status;

    /* With a key of its own a request that got no answer can be sent again. */
    if (!key) {
        kernel->random(kernel, random, sizeof random);
        (void)snprintf(own_key, sizeof own_key, "cli-%016llx%016llx", (unsigned long long)random[0],
                       (unsigned long long)random[1]);
    }
    buffer_init(&body, PAYLOAD_BYTES_MAX * 2, client_resize, NULL);
    buffer_init_fixed(&target, space, sizeof space);
    json_writer_init(&json, &body);
    put_job(&json, call);
    put_payload(&json, payload);
    json_close(&json);
    write_target(&target, PATH_JOBS, call);
    request.target = target.at;
    request.body = buffer_bytes(&body);
    request.fields[request.field_count++] =
        (struct http_field){BYTES("idempotency-key"), bytes_of(key ? key : own_key)};
    status = buffer_error(&body) ? fail(CLI_FAILED, "the payload is too large")
                                 : ask_server(client, &request, "job", &answer);
    buffer_deinit(&body);
    if (status != CLI_OK) return status;
    look_text(answer.body, "id", id, sizeof id);
    if (look_bool(answer.body, "duplicate")) say("job %s has this key already", id);
    if (cli_has(call, "wait")) return wait_for(call, client, id);
    if (cli_has(call, "json"))
        print_body(&answer);
    else
        (void)puts(id);
    return CLI_OK;
}

/* ---- One for each line ---- */

struct lines_of {
    struct cli_call *call;
    struct client *client;
    struct buffer body;
    unsigned lines;      /* in the body */
    int64_t sent, count; /* jobs, lines */
};

static void print_ids(const struct client_answer *answer)
{
    struct look_items items;
    struct bytes item;

    look_begin(&items, look(answer->body, "ids"));
    while (look_next(&items, &item))
        if (item.count > 2) (void)printf("%.*s\n", (int)item.count - 2, item.at + 1);
}

static int send_lines(struct lines_of *lines)
{
    char space[256];
    struct client_answer answer = {.status = 0};
    struct buffer target;
    int status;

    if (lines->lines == 0) return CLI_OK;
    if (buffer_error(&lines->body)) return fail(CLI_FAILED, "the lines are too large");
    buffer_init_fixed(&target, space, sizeof space);
    write_target(&target, PATH_JOBS_MANY, lines->call);
    status = ask_server(lines->client,
                        &(struct client_request){.method = METHOD_POST,
                                                 .target = target.at,
                                                 .type = "application/x-ndjson",
                                                 .body = buffer_bytes(&lines->body)},
                        "jobs", &answer);
    lines->sent += look_int(answer.body, "accepted", 0);
    if (status == CLI_OK && cli_has(lines->call, "json"))
        print_body(&answer);
    else
        print_ids(&answer);
    if (status != CLI_OK && look(answer.body, "line").at)
        say("line %lld is the one; the first %lld are in",
            (long long)lines->count - lines->lines + look_int(answer.body, "line", 0),
            (long long)lines->sent);
    buffer_clear(&lines->body);
    lines->lines = 0;
    progress("%lld jobs", (long long)lines->sent);
    return status;
}

static int add_line(struct lines_of *lines, struct bytes line)
{
    struct json_writer json;

    lines->count++;
    lines->lines++;
    json_writer_init(&json, &lines->body);
    put_job(&json, lines->call);
    put_payload(&json, line);
    json_close(&json);
    buffer_put_char(&lines->body, '\n');
    if (lines->lines < CHUNK_LINES && lines->body.used < CHUNK_BYTES) return CLI_OK;
    return send_lines(lines);
}

static int enqueue_lines(struct cli_call *call, struct client *client, struct bytes text)
{
    struct lines_of lines = {.call = call, .client = client};
    struct bytes line;
    int status = CLI_OK;

    buffer_init(&lines.body, PAYLOAD_BYTES_MAX * 2, client_resize, NULL);
    while (status == CLI_OK && bytes_split(&text, '\n', &line)) {
        line = bytes_trim(line);
        if (line.count > 0 && line.at[line.count - 1] == '\r') line.count--;
        if (line.count > 0) status = add_line(&lines, line);
    }
    if (status == CLI_OK) status = send_lines(&lines);
    progress_end();
    say("%lld of %lld jobs are in", (long long)lines.sent, (long long)lines.count);
    buffer_deinit(&lines.body);
    return status;
}

static int ask_enqueue(struct cli_call *call, struct client *client)
{
    const char *argument = cli_argument_at(call, 1);
    bool many = cli_has(call, "ndjson");
    char *text = NULL;
    size_t count = 0;
    int r = argument ? read_argument(argument, many ? NDJSON_BYTES_MAX : PAYLOAD_BYTES_MAX, &text,
                                     &count)
                     : 0;
    int status;

    if (r < 0) return fail(CLI_FAILED, "'%s': %s", argument, weir_strerror(r));
    if (many && (cli_has(call, "wait") || cli_has(call, "idempotency-key"))) {
        mem_free(text);
        return fail(CLI_USAGE, "--ndjson goes with neither --wait nor --idempotency-key");
    }
    status = many ? enqueue_lines(call, client, (struct bytes){text, count})
                  : enqueue_one(call, client, (struct bytes){text, count});
    mem_free(text);
    return status;
}

int command_enqueue(struct cli_call *call)
{
    return with_client(call, ask_enqueue);
}
