/* echo.c - weir's side of `bench echo`: a task for each connection.
 *
 *     serve_echo              each request, read and answer, has a deadline
 *     serve_echo_no_deadline  inside WEIR_NO_DEADLINE instead
 *     serve_echo_no_task      between requests a connection waits without a task
 *
 * BENCH_BACKEND names the kernel backend; the server leaves with status 77 when weir does not have
 * it here. One worker. Serves until it is killed. */
#include <dirent.h>
#include <stdbool.h>
#include <unistd.h>
#include <weir/weir.h>

#include "bench_socket.h"

enum {
    CONNECTIONS_MAX = 20000,
    CONN_BYTES = 1024,
    REQUEST_MS = 60000, /* from the end of one answer to the end of the next */
};

static struct bench bench = {.program = "bench-echo", .peer = "weir"};
static weir_scope *connections;

static void check(const char *call, int result)
{
    if (result >= 0) return;
    bench_fail(&bench, call, *weir_why() ? weir_why() : weir_strerror(result));
}

/* Of the connection, not of the request: it is built with -ftrivial-auto-var-init=zero. */
struct buffer {
    char data[CONN_BYTES];
};

static int answer(weir_conn *conn, struct buffer *buffer)
{
    ssize_t n = weir_conn_read(conn, buffer->data, sizeof buffer->data);

    if (n <= 0) return n < 0 ? (int)n : WEIR_ECLOSED;
    return weir_conn_send_all(conn, buffer->data, (size_t)n, NULL);
}

static int serve(void *arg)
{
    weir_conn *conn = *(weir_conn **)arg;
    struct buffer buffer;
    int r = 0;

    while (r == 0) {
        WEIR_DEADLINE(REQUEST_MS) r = answer(conn, &buffer);
    }
    weir_conn_close(conn);
    return 0;
}

static int serve_without_deadline(void *arg)
{
    weir_conn *conn = *(weir_conn **)arg;
    struct buffer buffer;
    int r = 0;

    WEIR_NO_DEADLINE("to measure what a deadline costs") {
        while (r == 0) r = answer(conn, &buffer);
    }
    weir_conn_close(conn);
    return 0;
}

/* ---- Without a task ---- */

static void on_ready(weir_conn *conn, int status, void *arg);

static void wait_without_task(weir_conn *conn)
{
    check("weir_conn_idle",
          weir_conn_idle(connections, conn,
                         &(weir_idle_spec){.on_ready = on_ready, .idle_ms = REQUEST_MS}));
}

static int serve_one(void *arg)
{
    weir_conn *conn = *(weir_conn **)arg;
    struct buffer buffer;
    int r = 0;

    WEIR_DEADLINE(REQUEST_MS) r = answer(conn, &buffer);
    if (r == 0) {
        wait_without_task(conn);
    } else {
        weir_conn_close(conn);
    }
    return 0;
}

static void on_ready(weir_conn *conn, int status, void *arg)
{
    (void)arg;
    check("idle wait", status);
    check("weir_spawn", weir_spawn(connections, serve_one, &conn, sizeof conn));
}

/* ---- Accepting ---- */

static void accept_for_ever(weir_task_fn fn)
{
    weir_listener *listener;
    weir_address address;

    check("weir_listen",
          weir_listen(&(weir_listen_spec){.address = "tcp:127.0.0.1:0", .backlog = BENCH_BACKLOG},
                      &listener));
    check("weir_listener_address", weir_listener_address(listener, &address));
    bench_print_port(ntohs(((struct sockaddr_in *)&address.storage)->sin_port));
    WEIR_NO_DEADLINE("the server is killed when it has been measured") {
        for (;;) {
            weir_conn *conn;
            check("weir_accept", weir_accept(listener, &conn));
            if (fn) {
                check("weir_spawn", weir_spawn(connections, fn, &conn, sizeof conn));
            } else {
                wait_without_task(conn);
            }
        }
    }
}

static void run_with(weir_task_fn fn)
{
    int r = 0;

    WEIR_SCOPE(scope, &r, .name = "connections", .on_failure = WEIR_COLLECT,
               .max_tasks = CONNECTIONS_MAX, .overflow = WEIR_REJECT) {
        connections = scope;
        accept_for_ever(fn);
    }
    check("scope", r);
}

static void run_serve_echo(const struct bench *unused)
{
    (void)unused;
    run_with(serve);
}

static void run_serve_echo_no_deadline(const struct bench *unused)
{
    (void)unused;
    run_with(serve_without_deadline);
}

static void run_serve_echo_no_task(const struct bench *unused)
{
    (void)unused;
    run_with(NULL);
}

/* ---- main ---- */

static const struct bench_workload workloads[] = {
    {"serve_echo", 1, run_serve_echo},
    {"serve_echo_no_deadline", 1, run_serve_echo_no_deadline},
    {"serve_echo_no_task", 1, run_serve_echo_no_task},
    {0},
};

static bool has_ring(void)
{
    DIR *folder = opendir("/proc/self/fd");
    struct dirent *entry;
    bool found = false;

    if (!folder) bench_fail(&bench, "/proc/self/fd", strerror(errno));
    while ((entry = readdir(folder))) {
        char target[64] = "";

        if (readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1) < 0) continue;
        if (strstr(target, "io_uring")) found = true;
    }
    closedir(folder);
    return found;
}

static int first_task(void *arg)
{
    const struct bench_workload *workload = arg;
    const char *backend = getenv("BENCH_BACKEND");

    /* A backend that was asked for may have been replaced by one that works. */
    if (backend && strcmp(backend, "io_uring") == 0 && !has_ring()) return BENCH_NOT_HERE;
    workload->run(&bench);
    return 0;
}

int main(int argc, char **argv)
{
    const struct bench_workload *workload = bench_parse(argc, argv, workloads, &bench);
    weir_config config = {.name = "bench", .workers = 1, .backend = getenv("BENCH_BACKEND")};
    int r;

    if (!workload) return 2;
    r = weir_run(&config, first_task, (void *)(uintptr_t)workload);
    if (r == WEIR_EREFUSED || r == BENCH_NOT_HERE) {
        fprintf(stderr, "bench-echo: weir does not run on '%s' here: %s\n",
                config.backend ? config.backend : "any backend", weir_why());
        return BENCH_NOT_HERE;
    }
    check("weir_run", r);
    return 0;
}
