/* server_session_fuzz.c - any bytes to a service, in one piece and in others: it answers with HTTP,
 * the same both times, and not after it has said that it closes.
 *
 * The first byte says how large the pieces are. A runtime for each input, and a unix socket: that
 * is about a thousand inputs a second.
 */
#include <string.h>
#include <unistd.h>
#include <weir/weir.h>

#include "fuzz/fuzz.h"
#include "server/exchange.h"
#include "server/service.h"

enum { ANSWERS_MAX = 4096, BYTES_MAX = 16 * 1024, FIELDS_MAX = 32, DEADLINE_MS = 20 * 1000 };

struct answers {
    unsigned count;
    struct {
        unsigned status;
        size_t bytes;
    } at[ANSWERS_MAX];
    bool closes; /* the last one has said so */
};

struct input {
    const char *at;
    size_t count, piece;
};

/* ---- The service ---- */

static int serve_echo(struct exchange *x)
{
    struct bytes body;
    int r = exchange_body(x, &body);

    return r < 0 ? r : exchange_bytes(x, 200, "text/plain", body);
}

static int serve_lines(struct exchange *x)
{
    struct bytes line;
    const char *value = "";
    int r = exchange_query(x, "q", &value);

    if (r >= 0) r = exchange_stream(x, 200, "text/plain");
    while (r >= 0 && (r = exchange_line(x, 32, &line)) == 1) r = exchange_stream_put(x, line);
    return r;
}

static const struct route routes[] = {
    {.method = METHOD_GET,
     .path = "/{a}",
     .verb = VERB_READ,
     .serve = serve_echo,
     .deadline_ms = DEADLINE_MS},
    {.method = METHOD_POST,
     .path = "/e",
     .verb = VERB_READ,
     .serve = serve_echo,
     .deadline_ms = DEADLINE_MS,
     .body_bytes_max = 256},
    {.method = METHOD_PUT,
     .path = "/l",
     .verb = VERB_READ,
     .serve = serve_lines,
     .deadline_ms = DEADLINE_MS,
     .body_bytes_max = 256,
     .body_streams = true},
};

/* ---- The client ---- */

static int send_input(void *arg)
{
    struct {
        weir_conn *conn;
        const struct input *input;
    } *own = arg;
    int r = 0;

    for (size_t at = 0; at < own->input->count && r == 0; at += own->input->piece) {
        size_t left = own->input->count - at;
        r = weir_conn_send_all(own->conn, own->input->at + at,
                               left < own->input->piece ? left : own->input->piece, NULL);
        if (r == 0) r = weir_yield();
    }
    (void)weir_conn_shutdown(own->conn, SHUT_WR);
    return 0;
}

/* A stream that was cut off in an answer of pieces is one more, without a status. */
static void read_answers(weir_conn *conn, struct answers *answers)
{
    static const struct http_limits limits = {.line_bytes_max = 256,
                                              .head_bytes_max = 2048,
                                              .field_count_max = FIELDS_MAX,
                                              .body_bytes_max = 1 << 20,
                                              .chunk_line_bytes_max = 64,
                                              .trailer_bytes_max = 64};
    static char block[4096], in[4096];
    static struct http_field fields[FIELDS_MAX * 2];
    struct http_parser parser;
    ssize_t n = 0;

    http_parser_init(&parser, HTTP_KIND_ANSWER, &limits, block, fields);
    while ((n = weir_conn_read(conn, in, sizeof in)) > 0) {
        size_t at = 0, used;
        struct bytes body;
        enum http_event event;

        while ((event = http_parse(&parser, in + at, (size_t)n - at, &used, &body)) != PARSE_MORE) {
            at += used;
            MUST(event != PARSE_FAILED);
            if (event == PARSE_HEAD) {
                MUST(!answers->closes);
                MUST(answers->count < ANSWERS_MAX);
                answers->at[answers->count].status = parser.message.status;
                answers->at[answers->count].bytes = 0;
                answers->closes = !parser.message.keep_alive && parser.message.status >= 200;
            }
            if (event == PARSE_BODY) answers->at[answers->count].bytes += body.count;
            if (event == PARSE_END) {
                answers->count++;
                http_parser_next(&parser);
            }
        }
        MUST(at + used == (size_t)n);
    }
}

static void talk(const char *address, const struct input *input, struct answers *answers)
{
    int r = 0;

    memset(answers, 0, sizeof *answers);
    WEIR_SCOPE(scope, &r, .name = "talk", .on_failure = WEIR_COLLECT, .max_tasks = 2,
               .overflow = WEIR_REJECT) {
        struct {
            weir_conn *conn;
            const struct input *input;
        } own = {NULL, input};

        MUST(weir_connect(address, &own.conn) == 0);
        MUST(weir_spawn(scope, send_input, &own, sizeof own) == 0);
        read_answers(own.conn, answers);
        MUST(weir_scope_join(scope) == 0);
        weir_conn_close(own.conn);
    }
}

/* HEAD has a length and no body, which this reader cannot know: such inputs are left out. */
static bool has_head(const struct input *input)
{
    for (size_t i = 0; i + 4 <= input->count; i++) {
        if (memcmp(input->at + i, "HEAD", 4) == 0) return true;
    }
    return false;
}

static int run(void *arg)
{
    static struct answers whole, pieces;
    struct input input = *(struct input *)arg, at_once = input;
    char address[64];
    struct service_listener listener = {.address = address};
    struct service_limits limits = SERVICE_LIMITS_DEFAULT;
    int r = 0;

    limits.http.line_bytes_max = 128;
    limits.http.head_bytes_max = 512;
    limits.http.field_count_max = 8;
    limits.connections_max = 4;
    (void)snprintf(address, sizeof address, "unix:@weir-fuzz-%d", (int)getpid());
    at_once.piece = BYTES_MAX;
    WEIR_DEADLINE(DEADLINE_MS) {
        WEIR_SCOPE(scope, &r, .name = "fuzz", .on_failure = WEIR_COLLECT, .max_tasks = 8,
                   .overflow = WEIR_REJECT) {
            struct service *service;

            MUST(service_open(scope,
                              &(struct service_spec){.name = "fuzz",
                                                     .routes = {routes, 3},
                                                     .listeners = &listener,
                                                     .listener_count = 1,
                                                     .limits = limits},
                              &service) == 0);
            talk(address, &at_once, &whole);
            talk(address, &input, &pieces);
            MUST(service_close(service) == 0);
        }
    }
    MUST(whole.count == pieces.count);
    for (unsigned i = 0; i < whole.count; i++) {
        MUST(whole.at[i].status == pieces.at[i].status);
        MUST(whole.at[i].status != 200 || whole.at[i].bytes == pieces.at[i].bytes);
    }
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {(const char *)data + 1, size - 1, 0};

    if (size < 2 || size > BYTES_MAX) return 0;
    input.piece = 1 + data[0] % 64;
    if (has_head(&input)) return 0;
    MUST(weir_run(&(weir_config){.workers = 1, .log_level = WEIR_LOG_OFF}, run, &input) == 0);
    return 0;
}
