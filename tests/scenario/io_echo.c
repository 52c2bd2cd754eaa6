/* io_echo.c - an echo server under many clients at once. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/atomic.h"
#include "unit/io/io_test.h"

enum {
    CLIENTS = TEST_SANITIZED ? 60 : 200,
    MESSAGES = TEST_SANITIZED ? 5 : 20,
    MESSAGE_BYTES = 700,
};

static ATOM(int) served;

static int echo(void *arg)
{
    weir_conn *conn = *(weir_conn **)arg;
    char data[512];
    ssize_t n;
    int r = 0;

    while (r == 0 && (n = weir_conn_read(conn, data, sizeof data)) != 0) {
        r = n < 0 ? (int)n : weir_conn_send_all(conn, data, (size_t)n, NULL);
    }
    weir_conn_close(conn);
    (void)atom_add(&served, 1);
    return r;
}

struct server {
    weir_listener *listener;
    weir_scope *scope;
};

static int serve(void *arg)
{
    const struct server *server = arg;

    for (;;) {
        weir_conn *conn;
        int r = weir_accept(server->listener, &conn);

        if (r == WEIR_ESTOPPING) return 0;
        if (r < 0) return r;
        r = weir_spawn(server->scope, echo, &conn, sizeof conn);
        if (r < 0) {
            weir_conn_close(conn);
            return r;
        }
    }
}

static int client(void *arg)
{
    char out[MESSAGE_BYTES], in[MESSAGE_BYTES];
    weir_conn *conn;
    int r = weir_connect(arg, &conn);

    if (r < 0) return r;
    for (int i = 0; i < MESSAGES && r == 0; i++) {
        memset(out, 'a' + i % 26, sizeof out);
        r = weir_conn_send_all(conn, out, sizeof out, NULL);
        if (r == 0) r = weir_conn_read_exact(conn, in, sizeof in, NULL);
        if (r == 0) CHECK(memcmp(in, out, sizeof in) == 0);
    }
    weir_conn_close(conn);
    return r;
}

static void run_clients(const char *address, weir_scope *servers)
{
    char text[WEIR_ADDRESS_TEXT_MAX];
    int r;

    (void)snprintf(text, sizeof text, "%s", address);
    WEIR_SCOPE(scope, &r, .name = "clients", .on_failure = WEIR_FAIL_FAST, .max_tasks = CLIENTS,
               .overflow = WEIR_WAIT) {
        for (int i = 0; i < CLIENTS; i++) {
            CHECK_OK(weir_spawn(scope, client, text, sizeof text));
        }
    }
    CHECK_OK(r);
    weir_scope_stop(servers, 5000);
}

static void allow_descriptors(void)
{
    struct rlimit limit;

    CHECK_INT(getrlimit(RLIMIT_NOFILE, &limit), ==, 0);
    if (limit.rlim_max < 2 * CLIENTS + 64) TEST_SKIP("not enough descriptors are allowed");
    limit.rlim_cur = limit.rlim_max < 4096 ? limit.rlim_max : 4096;
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &limit), ==, 0);
}

static int echo_at(const weir_listen_spec *spec)
{
    struct server server;
    weir_address bound;
    char address[WEIR_ADDRESS_TEXT_MAX];
    int acceptors = spec->per_worker ? weir_worker_count() : 1;
    int r;

    allow_descriptors();
    atom_store(&served, 0);
    CHECK_OK(weir_listen(spec, &server.listener));
    CHECK_OK(weir_listener_address(server.listener, &bound));
    weir_address_format(&bound, address, sizeof address);
    WEIR_SCOPE(scope, &r, .name = "servers", .on_failure = WEIR_FAIL_FAST,
               .max_tasks = CLIENTS + 16, .overflow = WEIR_WAIT) {
        server.scope = scope;
        for (int i = 0; i < acceptors; i++) {
            CHECK_OK(weir_task_spawn(scope,
                                     &(weir_task_spec){.fn = serve,
                                                       .arg = &server,
                                                       .arg_bytes = sizeof server,
                                                       .place = WEIR_PLACE_WORKER,
                                                       .worker = i},
                                     NULL));
        }
        run_clients(address, scope);
    }
    CHECK_OK(r);
    CHECK_INT(atom_load(&served), ==, CLIENTS);
    weir_listener_close(server.listener);
    return 0;
}

IO_TEST(many_clients_are_echoed_over_tcp)
{
    return echo_at(&(weir_listen_spec){.address = "tcp:127.0.0.1:0"});
}

IO_TEST(many_clients_are_echoed_by_a_socket_per_worker)
{
    return echo_at(&(weir_listen_spec){.address = "tcp:[::1]:0", .per_worker = true});
}

IO_TEST(many_clients_are_echoed_over_unix_sockets)
{
    char address[WEIR_ADDRESS_TEXT_MAX];
    return echo_at(&(weir_listen_spec){.address = io_test_name("echo", address), .backlog = 16});
}
