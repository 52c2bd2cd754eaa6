/* echo.c - a TCP echo server in which everything that can grow has a bound.
 *
 *     echo [--port N] [--workers N] [--seconds N]
 *
 * Each worker accepts on a socket of its own. A connection that is idle waits without a task and
 * costs a struct; a request (some bytes, sent back) is a task with a deadline. Too many
 * connections or requests are rejected and counted. TERM or INT stops the server gracefully: no
 * more is accepted, idle connections are closed, requests have DRAIN_MS to end, the rest is cut
 * off. Exit status: 0 all requests were answered, 1 failed or cut off, 2 wrong usage.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>
#include <weir/weir.h>

#include "options.h"

enum {
    CONNECTIONS_MAX = 10000, /* open at one time */
    REQUESTS_MAX = 1000,     /* in progress at one time, on each worker */
    REQUEST_MS = 5000,       /* to read a request and send all of it back */
    IDLE_MS = 60000,         /* between two requests */
    DRAIN_MS = 3000,
    REQUEST_BYTES = 16 * 1024,
};

struct server {
    int port, seconds;
    weir_listener *listener;
    weir_scope *requests[WEIR_WORKERS_MAX]; /* each worker's own */
    atomic_long open, answered, bytes, running, rejected, cut_off;
    long answered_shown, bytes_shown;
};

struct request {
    struct server *server;
    weir_conn *conn;
};

static void hang_up(struct server *server, weir_conn *conn)
{
    weir_conn_close(conn);
    server->open--;
}

static void on_ready(weir_conn *conn, int status, void *arg);

static void wait_for_request(struct server *server, weir_conn *conn)
{
    weir_idle_spec spec = {.on_ready = on_ready, .keep_arg = server, .idle_ms = IDLE_MS};
    int r = weir_conn_idle(server->requests[weir_worker_index()], conn, &spec);
    if (r < 0) hang_up(server, conn); /* the server is stopping */
}

static int answer(void *arg) /* a task: one request */
{
    struct request *request = arg;
    struct server *server = request->server;
    char data[REQUEST_BYTES];
    ssize_t n = 0;
    int r = 0;

    server->running++;
    WEIR_DEADLINE(REQUEST_MS) {
        n = weir_conn_read(request->conn, data, sizeof data);
        r = n > 0 ? weir_conn_send_all(request->conn, data, (size_t)n, NULL) : (int)n;
    }
    if (n > 0 && r == 0) {
        server->answered++;
        server->bytes += n;
        wait_for_request(server, request->conn);
    } else {
        hang_up(server, request->conn);
    }
    server->running--;
    if (r != WEIR_ECANCELED) return 0; /* what goes wrong with a client is no failure of ours */
    server->cut_off++;
    return r;
}

static void on_ready(weir_conn *conn, int status, void *arg)
{
    struct request request = {.server = arg, .conn = conn};
    weir_scope *scope = request.server->requests[weir_worker_index()];
    int r = status == 0 ? weir_spawn(scope, answer, &request, sizeof request) : status;
    if (r == WEIR_EOVERLOAD) request.server->rejected++;
    if (r < 0) hang_up(request.server, conn); /* full, idle for too long, or stopping */
}

static void admit(struct server *server, weir_conn *conn)
{
    if (server->open++ < CONNECTIONS_MAX) {
        wait_for_request(server, conn);
    } else {
        server->rejected++;
        hang_up(server, conn);
    }
}

static int accept_clients(void *arg) /* a task: one on each worker */
{
    struct server *server = *(struct server **)arg;
    weir_conn *conn;
    int result;

    WEIR_SCOPE(scope, &result, .name = "requests", .on_failure = WEIR_COLLECT,
               .max_tasks = REQUESTS_MAX, .overflow = WEIR_REJECT, .place = WEIR_PLACE_HERE) {
        server->requests[weir_worker_index()] = scope;
        WEIR_NO_DEADLINE("a server waits for its next client as long as it runs") {
            int r = 0;
            while (r != WEIR_ESTOPPING && r != WEIR_ECANCELED) {
                r = weir_accept(server->listener, &conn);
                if (r == 0) {
                    admit(server, conn);
                } else if (r != WEIR_ESTOPPING && r != WEIR_ECANCELED) {
                    r = weir_sleep(10); /* no descriptor is free, say: trying at once would spin */
                }
            }
        }
    }
    return result;
}

static void every_second(weir_timer *timer, void *arg)
{
    struct server *server = arg;
    long answered = server->answered, bytes = server->bytes;
    fprintf(stderr, "echo: %ld open, %ld requests/s, %ld bytes/s, %ld tasks, %ld rejected\n",
            (long)server->open, answered - server->answered_shown, bytes - server->bytes_shown,
            server->running + weir_worker_count() + 1, (long)server->rejected);
    server->answered_shown = answered;
    server->bytes_shown = bytes;
    if (--server->seconds == 0) (void)weir_stop(DRAIN_MS);
    weir_timer_start(timer, 1000);
}

static int start(weir_scope *scope, struct server *server)
{
    weir_timer_spec timer_spec = {.name = "figures", .on_fire = every_second, .keep_arg = server};
    weir_timer *timer;
    int r = weir_timer_open(scope, &timer_spec, &timer);
    if (r == 0) weir_timer_start(timer, 1000);
    for (int i = 0; i < weir_worker_count() && r == 0; i++) {
        weir_task_spec spec = {.fn = accept_clients,
                               .arg = &server,
                               .arg_bytes = sizeof server,
                               .name = "acceptor",
                               .place = WEIR_PLACE_WORKER,
                               .worker = i};
        r = weir_task_spawn(scope, &spec, NULL);
    }
    return r;
}

static int serve(void *arg)
{
    struct server *server = arg;
    char text[WEIR_ADDRESS_TEXT_MAX];
    weir_listen_spec spec = {.address = text, .per_worker = true};
    weir_address bound;
    int result;

    (void)snprintf(text, sizeof text, "tcp:127.0.0.1:%d", server->port);
    result = weir_listen(&spec, &server->listener);
    if (result < 0) return result;
    if (weir_listener_address(server->listener, &bound) == 0)
        (void)weir_address_format(&bound, text, sizeof text);
    printf("echo: listening on %s with %d workers; try from another terminal:\n"
           "    build/release/examples/hello %s\n    kill -USR1 %d   (the tree of tasks)\n"
           "    kill %d         (a graceful end)\n",
           text, weir_worker_count(), text, (int)getpid(), (int)getpid());
    (void)fflush(stdout);
    WEIR_SCOPE(scope, &result, .name = "server", .on_failure = WEIR_FAIL_FAST,
               .max_tasks = WEIR_WORKERS_MAX, .overflow = WEIR_REJECT) {
        int r = start(scope, server);
        if (r < 0) weir_scope_cancel(scope, r, "the server could not be started");
    }
    weir_listener_close(server->listener);
    fprintf(stderr, "echo: stopped: %ld requests answered, %ld rejected, %ld cut off\n",
            (long)server->answered, (long)server->rejected, (long)server->cut_off);
    return result;
}

int main(int argc, char **argv)
{
    static struct server server;
    weir_config config = {
        .name = "echo",
        .drain_ms = DRAIN_MS,
        .log_level = WEIR_LOG_INFO,
        .signals = WEIR_SIGNAL_DRAIN | WEIR_SIGNAL_DUMP | WEIR_SIGNAL_OVERFLOW,
    };
    const struct option_number options[] = {
        {"--port", &server.port, 7777, 0, 65535, "where to listen; 0: any port that is free"},
        {"--workers", &config.workers, 0, 0, WEIR_WORKERS_MAX, "threads; 0: the usable cores"},
        {"--seconds", &server.seconds, 0, 0, 86400, "stop after that; 0: when told to"},
        {0},
    };
    int r = options_read(argc, argv, "echo [OPTION]...", options);

    if (r < argc) return fprintf(stderr, "echo: unexpected argument '%s'\n", argv[r]), 2;
    r = weir_run(&config, serve, &server);
    if (r < 0) fprintf(stderr, "echo: %s\n", r == WEIR_EREFUSED ? weir_why() : weir_strerror(r));
    return r < 0;
}
