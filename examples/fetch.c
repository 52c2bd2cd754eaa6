/* fetch.c - ask many servers at once, with one deadline for all of it.
 *
 *     fetch [--deadline N] [--collect] [--demo] ADDRESS...
 *
 * An address is tcp:HOST:PORT; names are looked up. Each gets one request line, and what it
 * answers is read, up to ANSWER_BYTES. By default the first failure ends the rest (fail fast); with
 * --collect every answer that comes in time is kept. --demo adds three slow servers that live in
 * this program. Exit status: 0 all have answered, 1 some have not, 2 wrong usage.
 */
#include <weir/weir.h>

#include "options.h"

enum { FETCHES_MAX = 100, DEMO_SERVERS = 3, ANSWER_BYTES = 4096 };
#define REQUEST "GET / HTTP/1.0\r\n\r\n"

struct fetch {
    char address[WEIR_ADDRESS_TEXT_MAX];
    int error;
    size_t bytes;
    int64_t took_ms;
    const char *why; /* there is no answer */
    char answer[ANSWER_BYTES + 1];
};

struct program {
    int deadline_ms, collect, demo;
    int count;
    struct fetch fetches[FETCHES_MAX];
    weir_listener *listeners[DEMO_SERVERS];
};

static void add(struct program *program, const char *address)
{
    struct fetch *fetch = &program->fetches[program->count++];
    (void)snprintf(fetch->address, sizeof fetch->address, "%s", address);
    fetch->error = WEIR_ECANCELED;
    fetch->why = "was not begun";
}

/* A numeric address is used as it is; any other host is looked up first. */
static int dial(const char *text, weir_conn **ret_conn)
{
    const char *colon = strrchr(text, ':');
    char host[WEIR_ADDRESS_TEXT_MAX];
    weir_address address;
    int r = weir_address_parse(text, &address);

    if (r < 0 && strncmp(text, "tcp:", 4) == 0 && colon > text + 4) {
        (void)snprintf(host, sizeof host, "%.*s", (int)(colon - text - 4), text + 4);
        r = weir_resolve(host, (uint16_t)strtol(colon + 1, NULL, 10), WEIR_TCP, &address, 1);
    }
    return r < 0 ? r : weir_connect_to(&address, ret_conn);
}

static int ask(struct fetch *fetch)
{
    weir_conn *conn;
    ssize_t n = 1;
    int r = dial(fetch->address, &conn);

    if (r < 0) return r;
    r = weir_conn_send_all(conn, REQUEST, strlen(REQUEST), NULL);
    while (r == 0 && n > 0) {
        n = weir_conn_read(conn, fetch->answer + fetch->bytes, ANSWER_BYTES - fetch->bytes);
        if (n > 0) fetch->bytes += (size_t)n;
        if (n < 0) r = (int)n;
    }
    weir_conn_close(conn);
    return r;
}

static int fetch_task(void *arg)
{
    struct fetch *fetch = *(struct fetch **)arg; /* its scope ends before the array does */
    int64_t began_ns = weir_now_ns();
    weir_cause_info info;

    fetch->error = ask(fetch);
    fetch->took_ms = (weir_now_ns() - began_ns) / 1000000;
    if (fetch->error == WEIR_ECANCELED && weir_cause(&info)) {
        fetch->why = info.why; /* the library's own: constants */
    } else if (fetch->error == WEIR_EREFUSED || fetch->error == WEIR_ENONAME) {
        (void)snprintf(fetch->answer, sizeof fetch->answer, "%s", weir_why());
        fetch->why = fetch->answer;
    } else {
        fetch->why = weir_strerror(fetch->error);
    }
    return fetch->error;
}

static int fetch_all(struct program *program)
{
    int result;

    WEIR_SCOPE(scope, &result, .name = "fetch",
               .on_failure = program->collect ? WEIR_COLLECT : WEIR_FAIL_FAST,
               .max_tasks = FETCHES_MAX, .overflow = WEIR_REJECT,
               .deadline_ms = program->deadline_ms) {
        for (int i = 0; i < program->count; i++) {
            struct fetch *fetch = &program->fetches[i];
            int r = weir_spawn(scope, fetch_task, &fetch, sizeof fetch);
            if (r < 0) weir_scope_cancel(scope, r, "a fetch could not be spawned");
        }
    }
    for (int i = 0; i < program->count; i++) {
        const struct fetch *fetch = &program->fetches[i];
        const char *text = fetch->error < 0 ? fetch->why : fetch->answer;
        printf("%-24s %5lld ms %5zu bytes  %.*s\n", fetch->address, (long long)fetch->took_ms,
               fetch->bytes, (int)strcspn(text, "\r\n"), text);
    }
    return result;
}

/* ---- The servers of --demo ---- */

struct demo_server {
    weir_listener *listener;
    int delay_ms;
};

static int demo_serve(void *arg)
{
    struct demo_server *server = arg;
    char request[256], text[64];
    int length = snprintf(text, sizeof text, "an answer after %d ms\n", server->delay_ms);

    WEIR_NO_DEADLINE("serves until the demo is over") {
        for (;;) {
            weir_conn *conn;
            int r = weir_accept(server->listener, &conn);
            if (r < 0) return r;
            r = (int)weir_conn_read(conn, request, sizeof request);
            if (r >= 0) r = weir_sleep(server->delay_ms);
            if (r == 0) r = weir_conn_send_all(conn, text, (size_t)length, NULL);
            weir_conn_close(conn);
            if (r == WEIR_ECANCELED) return r;
        }
    }
    return 0;
}

static int demo_start(struct program *program, weir_scope *scope)
{
    static const int delays_ms[DEMO_SERVERS] = {50, 100, 200};
    weir_listen_spec spec = {.address = "tcp:127.0.0.1:0"};
    weir_address address;
    char text[WEIR_ADDRESS_TEXT_MAX];

    for (int i = 0; i < DEMO_SERVERS; i++) {
        int r = weir_listen(&spec, &program->listeners[i]);
        if (r == 0) r = weir_listener_address(program->listeners[i], &address);
        if (r < 0) return r;
        (void)weir_address_format(&address, text, sizeof text);
        add(program, text);
        struct demo_server server = {program->listeners[i], delays_ms[i]};
        r = weir_spawn(scope, demo_serve, &server, sizeof server);
        if (r < 0) return r;
    }
    return 0;
}

static int run(void *arg)
{
    struct program *program = arg;
    int fetched = 0;
    int result;

    WEIR_SCOPE(scope, &result, .name = "demo", .on_failure = WEIR_FAIL_FAST,
               .max_tasks = DEMO_SERVERS, .overflow = WEIR_REJECT) {
        int r = program->demo ? demo_start(program, scope) : 0;
        if (r == 0) fetched = fetch_all(program);
        weir_scope_cancel(scope, r, "the demo is over");
    }
    for (int i = 0; i < DEMO_SERVERS; i++) weir_listener_close(program->listeners[i]);
    return result < 0 ? result : fetched;
}

int main(int argc, char **argv)
{
    static struct program program;
    weir_config config = {.name = "fetch", .log_level = WEIR_LOG_OFF}; /* the table says it all */
    const struct option_number options[] = {
        {"--deadline", &program.deadline_ms, 1000, 1, 600000, "milliseconds for everything"},
        {"--collect", &program.collect, 0, 0, 0, "let the others go on when one fails"},
        {"--demo", &program.demo, 0, 0, 0, "add three servers that take 50, 100 and 200 ms"},
        {0},
    };
    int first = options_read(argc, argv, "fetch [OPTION]... ADDRESS...", options);
    int r;

    if (argc - first + program.demo < 1 || argc - first > FETCHES_MAX - DEMO_SERVERS)
        return fprintf(stderr, "fetch: 1 to %d addresses are needed, or --demo\n",
                       FETCHES_MAX - DEMO_SERVERS),
               2;
    for (int i = first; i < argc; i++) add(&program, argv[i]);
    r = weir_run(&config, run, &program);
    if (r < 0) fprintf(stderr, "fetch: %s\n", weir_strerror(r));
    return r < 0;
}
