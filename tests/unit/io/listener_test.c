/* listener_test.c - listening, accepting and connecting. */
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/atomic.h"
#include "unit/io/io_test.h"

static int listen_at(const char *address, weir_listener **ret_listener)
{
    return weir_listen(&(weir_listen_spec){.address = address}, ret_listener);
}

/* ---- Specs ---- */

IO_TEST(a_listener_says_what_is_wrong_with_its_spec)
{
    weir_listener *listener;
    weir_conn *conn;

    CHECK_INT(weir_listen(&(weir_listen_spec){.address = NULL}, &listener), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "address is not set");
    CHECK_INT(listen_at("udp:127.0.0.1:0", &listener), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "tcp: or unix:");
    CHECK_INT(weir_listen(&(weir_listen_spec){.address = "unix:@x", .per_worker = true}, &listener),
              ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "per_worker");
    CHECK_INT(
        weir_listen(&(weir_listen_spec){.address = "tcp:127.0.0.1:0", .backlog = -1}, &listener),
        ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "backlog");
    CHECK_INT(listen_at("tcp:203.0.113.1:0", &listener), ==, -EADDRNOTAVAIL);
    CHECK_INT(weir_connect("udp:127.0.0.1:9", &conn), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "weir_udp_open");
    CHECK_INT(weir_connect("tcp:example.org:80", &conn), ==, WEIR_EREFUSED);
    weir_listener_close(NULL);
    return 0;
}

/* ---- Connecting ---- */

IO_TEST(connecting_to_nobody_is_refused)
{
    char address[WEIR_ADDRESS_TEXT_MAX];
    weir_listener *listener = io_test_listen(address);
    weir_listener *second;
    weir_conn *conn;

    CHECK_INT(listen_at(address, &second), ==, -EADDRINUSE);
    weir_listener_close(listener);
    CHECK_INT(weir_connect(address, &conn), ==, -ECONNREFUSED);
    CHECK_INT(weir_connect(io_test_name("nobody", address), &conn), ==, -ECONNREFUSED);
    CHECK_INT(weir_connect("unix:/nonexistent/weir", &conn), ==, -ENOENT);
    return 0;
}

static int accept_and_close(void *arg)
{
    weir_listener *listener = *(weir_listener **)arg;
    weir_conn *conn;
    int r = weir_accept(listener, &conn);
    if (r == 0) weir_conn_close(conn);
    return r;
}

/* A backlog that is full answers -EAGAIN to unix sockets, with no event when there
 * is room again. */
IO_TEST(connecting_waits_for_room_in_the_backlog)
{
    enum { CLIENTS = 4 };
    weir_listener *listener;
    weir_conn *clients[CLIENTS], *late;
    char address[WEIR_ADDRESS_TEXT_MAX];
    int full = 0;
    int r;

    (void)io_test_name("backlog", address);
    CHECK_OK(weir_listen(&(weir_listen_spec){.address = address, .backlog = 1}, &listener));
    for (full = 0; full < CLIENTS; full++) {
        WEIR_DEADLINE(30) { r = weir_connect(address, &clients[full]); }
        if (r < 0) break;
    }
    CHECK_INT(r, ==, WEIR_ETIMEDOUT);
    IO_SCOPE(scope, &r)
    {
        CHECK_OK(weir_spawn(scope, accept_and_close, &listener, sizeof listener));
        CHECK_OK(weir_connect(address, &late));
    }
    CHECK_OK(r);
    weir_conn_close(late);
    while (full-- > 0) weir_conn_close(clients[full]);
    weir_listener_close(listener);
    return 0;
}

/* ---- Accepting ---- */

IO_TEST(a_second_acceptor_is_told_so)
{
    char address[WEIR_ADDRESS_TEXT_MAX];
    weir_listener *listener = io_test_listen(address);
    weir_conn *conn;
    int r;

    IO_SCOPE(scope, &r)
    {
        CHECK_OK(weir_spawn(scope, accept_and_close, &listener, sizeof listener));
        CHECK_OK(weir_yield());
        CHECK_INT(weir_accept(listener, &conn), ==, WEIR_EINUSE);
        CHECK_OK(weir_connect(address, &conn));
    }
    CHECK_OK(r);
    weir_conn_close(conn);
    weir_listener_close(listener);
    return 0;
}

static int close_while_accepting(void *arg)
{
    char address[WEIR_ADDRESS_TEXT_MAX];
    weir_listener *listener = io_test_listen(address);
    int r;

    (void)arg;
    IO_SCOPE(scope, &r)
    {
        CHECK_OK(weir_spawn(scope, accept_and_close, &listener, sizeof listener));
        CHECK_OK(weir_yield());
        weir_listener_close(listener);
    }
    return r;
}

static void close_while_accepting_process(void *arg)
{
    (void)arg;
    (void)!io_test_run(close_while_accepting);
}

TEST(closing_under_an_acceptor_aborts_and_names_it)
{
    CHECK_ABORTS(close_while_accepting_process, NULL, "task 'accept_and_close' is accepting");
}

static int broken_connections(void *arg)
{
    char address[WEIR_ADDRESS_TEXT_MAX];
    weir_listener *listener = io_test_listen(address);
    weir_conn *client, *server;

    (void)arg;
    CHECK_OK(weir_connect(address, &client));
    test_fault("accept", -ECONNABORTED, 300);
    CHECK_OK(weir_accept(listener, &server));
    weir_conn_close(server);
    weir_conn_close(client);
    CHECK_OK(weir_connect(address, &client));
    test_fault("accept", -EINTR, 3);
    CHECK_OK(weir_accept(listener, &server));
    weir_conn_close(server);
    weir_conn_close(client);
    weir_listener_close(listener);
    return 0;
}

TEST(broken_connections_are_passed_over)
{
    test_kernel_install();
    CHECK_OK(io_test_run(broken_connections));
}

/* For want of descriptors or memory the connection waits, and the next accept finds
 * it, although there is no new edge for it. */
static int connection_stays(void *arg)
{
    char address[WEIR_ADDRESS_TEXT_MAX];
    weir_listener *listener = io_test_listen(address);
    static const int errors[] = {-EMFILE, -ENFILE, -ENOBUFS, -ENOMEM};
    weir_conn *client, *server;

    (void)arg;
    WEIR_DEADLINE(1) { /* the descriptor is watched from now on */
        CHECK_INT(weir_accept(listener, &server), ==, WEIR_ETIMEDOUT);
    }
    CHECK_OK(weir_connect(address, &client));
    CHECK_OK(weir_yield());
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        test_fault("accept", errors[i], 1);
        CHECK_INT(weir_accept(listener, &server), ==, errors[i]);
    }
    test_fail_alloc_at(1);
    CHECK_INT(weir_accept(listener, &server), ==, -ENOMEM);
    CHECK_OK(weir_accept(listener, &server));
    CHECK_INT(weir_conn_write(client, "x", 1), ==, 1);
    CHECK_INT(weir_conn_read(server, address, 9), ==, 1);
    weir_conn_close(server);
    weir_conn_close(client);
    weir_listener_close(listener);
    return 0;
}

TEST(a_connection_that_cannot_be_taken_stays_in_the_backlog)
{
    test_kernel_install();
    CHECK_OK(io_test_run(connection_stays));
}

/* The same with a real limit. */
static int no_descriptors(void *arg)
{
    char address[WEIR_ADDRESS_TEXT_MAX];
    weir_listener *listener = io_test_listen(address);
    struct rlimit before, none;
    weir_conn *client, *server, *other;

    (void)arg;
    CHECK_OK(weir_connect(address, &client));
    CHECK_INT(getrlimit(RLIMIT_NOFILE, &before), ==, 0);
    none = before;
    none.rlim_cur = 0;
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &none), ==, 0);
    CHECK_INT(weir_accept(listener, &server), ==, -EMFILE);
    CHECK_INT(weir_connect(address, &other), ==, -EMFILE);
    CHECK_INT(weir_socketpair(&server, &other), ==, -EMFILE);
    CHECK_INT(weir_pipe(&server, &other), ==, -EMFILE);
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &before), ==, 0);
    CHECK_OK(weir_accept(listener, &server));
    weir_conn_close(server);
    weir_conn_close(client);
    weir_listener_close(listener);
    return 0;
}

TEST(running_out_of_descriptors_loses_no_connection)
{
    TEST_SKIP_ON_VALGRIND("it makes a limit on descriptors of its own");
    CHECK_OK(io_test_run(no_descriptors));
}

/* ---- One socket per worker ---- */

struct share {
    weir_listener *listener;
    ATOM(int) * left;
};

static int accept_share(void *arg)
{
    const struct share *share = arg;
    for (;;) {
        weir_conn *conn;
        char byte;
        int r = weir_accept(share->listener, &conn);

        if (r < 0) return r;
        CHECK_INT(weir_conn_read(conn, &byte, 1), ==, 1);
        CHECK_INT(weir_conn_write(conn, &byte, 1), ==, 1);
        weir_conn_close(conn);
        (void)atom_sub(share->left, 1);
    }
}

IO_TEST(each_worker_accepts_from_its_own_socket)
{
    enum { CONNECTIONS = 64 };
    char address[WEIR_ADDRESS_TEXT_MAX];
    static ATOM(int) left;
    struct share share = {.left = &left};
    weir_address bound;
    int r;

    atom_store(&left, CONNECTIONS);
    CHECK_OK(weir_listen(&(weir_listen_spec){.address = "tcp:127.0.0.1:0", .per_worker = true},
                         &share.listener));
    CHECK_OK(weir_listener_address(share.listener, &bound));
    weir_address_format(&bound, address, sizeof address);
    IO_SCOPE(scope, &r)
    {
        for (int i = 0; i < weir_worker_count(); i++) {
            CHECK_OK(weir_task_spawn(scope,
                                     &(weir_task_spec){.fn = accept_share,
                                                       .arg = &share,
                                                       .arg_bytes = sizeof share,
                                                       .place = WEIR_PLACE_WORKER,
                                                       .worker = i},
                                     NULL));
        }
        for (int i = 0; i < CONNECTIONS; i++) {
            weir_conn *conn;
            char byte = 'x';
            CHECK_OK(weir_connect(address, &conn));
            CHECK_INT(weir_conn_write(conn, &byte, 1), ==, 1);
            CHECK_INT(weir_conn_read(conn, &byte, 1), ==, 1);
            weir_conn_close(conn);
        }
        weir_scope_cancel(scope, 0, "enough");
    }
    CHECK_OK(r);
    CHECK_INT(atom_load(&left), <=, 1);
    weir_listener_close(share.listener);
    return 0;
}

/* ---- Files of unix sockets ---- */

struct place {
    char folder[32];
    char path[64];
    char address[80];
};

static void place_make(struct place *place)
{
    strcpy(place->folder, "/tmp/weir-test-XXXXXX");
    CHECK(mkdtemp(place->folder) != NULL);
    (void)snprintf(place->path, sizeof place->path, "%s/socket", place->folder);
    (void)snprintf(place->address, sizeof place->address, "unix:%s", place->path);
}

static void place_remove(struct place *place)
{
    (void)unlink(place->path);
    CHECK_INT(rmdir(place->folder), ==, 0);
}

static bool exists(const char *path)
{
    struct stat found;
    return lstat(path, &found) == 0;
}

/* A socket file whose process is gone. */
static void leave_stale(const struct place *place)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    strcpy(name.sun_path, place->path);
    CHECK_INT(bind(fd, (struct sockaddr *)&name, sizeof name), ==, 0);
    CHECK_INT(close(fd), ==, 0);
    CHECK(exists(place->path));
}

IO_TEST(a_unix_listener_makes_its_file_and_removes_it)
{
    struct place place;
    weir_listener *listener, *second;
    weir_conn *client, *server;
    weir_address address;
    char text[WEIR_ADDRESS_TEXT_MAX];

    place_make(&place);
    CHECK_OK(listen_at(place.address, &listener));
    CHECK(exists(place.path));
    CHECK_OK(weir_listener_address(listener, &address));
    weir_address_format(&address, text, sizeof text);
    CHECK_STR(text, place.address);
    CHECK_INT(listen_at(place.address, &second), ==, -EADDRINUSE);
    CHECK_OK(weir_connect(place.address, &client));
    CHECK_OK(weir_accept(listener, &server));
    CHECK_INT(weir_conn_write(client, "x", 1), ==, 1);
    CHECK_INT(weir_conn_read(server, text, 9), ==, 1);
    weir_conn_close(client);
    weir_conn_close(server);
    weir_listener_close(listener);
    CHECK(!exists(place.path));
    place_remove(&place);
    return 0;
}

IO_TEST(a_stale_socket_file_is_replaced_and_nothing_else)
{
    struct place place;
    weir_listener *listener;
    char link_target[64];
    int file;

    place_make(&place);
    leave_stale(&place);
    CHECK_OK(listen_at(place.address, &listener));
    weir_listener_close(listener);
    CHECK(!exists(place.path));

    file = open(place.path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(file >= 0);
    CHECK_INT(close(file), ==, 0);
    CHECK_INT(listen_at(place.address, &listener), ==, -EADDRINUSE);
    CHECK(exists(place.path));
    CHECK_INT(unlink(place.path), ==, 0);

    leave_stale(&place);
    (void)snprintf(link_target, sizeof link_target, "%s/other", place.folder);
    CHECK_INT(rename(place.path, link_target), ==, 0);
    CHECK_INT(symlink(link_target, place.path), ==, 0);
    CHECK_INT(listen_at(place.address, &listener), ==, -EADDRINUSE);
    CHECK(exists(place.path));
    CHECK(exists(link_target));
    CHECK_INT(unlink(link_target), ==, 0);
    place_remove(&place);
    return 0;
}

IO_TEST(a_file_that_was_put_in_place_of_ours_is_left_alone)
{
    struct place place;
    weir_listener *listener, *second;

    place_make(&place);
    CHECK_OK(listen_at(place.address, &listener));
    CHECK_INT(unlink(place.path), ==, 0);
    CHECK_INT(listen_at(place.address, &second), ==, -EADDRINUSE); /* the path is still ours */
    leave_stale(&place);
    weir_listener_close(listener);
    CHECK(exists(place.path));
    CHECK_OK(listen_at(place.address, &second));
    weir_listener_close(second);
    CHECK(!exists(place.path));
    place_remove(&place);
    return 0;
}

/* Somebody who has the lock and has bound, and does not listen yet. */
IO_TEST(a_server_that_is_starting_keeps_its_path)
{
    struct place place;
    weir_listener *listener;
    char lock[80];
    int fd;

    place_make(&place);
    (void)snprintf(lock, sizeof lock, "%s.lock", place.path);
    fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    CHECK_INT(flock(fd, LOCK_EX | LOCK_NB), ==, 0);
    leave_stale(&place);
    CHECK_INT(listen_at(place.address, &listener), ==, -EADDRINUSE);
    CHECK(exists(place.path));
    /* Its process is killed: the files that are left are in nobody's way. */
    CHECK_INT(close(fd), ==, 0);
    CHECK(exists(lock));
    CHECK_OK(listen_at(place.address, &listener));
    weir_listener_close(listener);
    CHECK(!exists(lock));
    CHECK(!exists(place.path));
    place_remove(&place);
    return 0;
}

IO_TEST(a_lock_file_that_is_a_link_is_not_followed)
{
    struct place place;
    weir_listener *listener;
    char lock[80], target[80];

    place_make(&place);
    (void)snprintf(lock, sizeof lock, "%s.lock", place.path);
    (void)snprintf(target, sizeof target, "%s.target", place.path);
    CHECK_INT(symlink(target, lock), ==, 0);
    CHECK_INT(listen_at(place.address, &listener), ==, -ELOOP);
    CHECK(!exists(target));
    CHECK(!exists(place.path));
    CHECK_INT(unlink(lock), ==, 0);
    place_remove(&place);
    return 0;
}

IO_TEST(abstract_names_leave_no_file)
{
    weir_listener *listener;
    weir_conn *client, *server;
    weir_address address;
    char text[WEIR_ADDRESS_TEXT_MAX], name[WEIR_ADDRESS_TEXT_MAX];

    (void)io_test_name("abstract", name);
    CHECK_OK(listen_at(name, &listener));
    CHECK_OK(weir_listener_address(listener, &address));
    weir_address_format(&address, text, sizeof text);
    CHECK_STR(text, name);
    CHECK_OK(weir_connect(text, &client));
    CHECK_OK(weir_accept(listener, &server));
    weir_conn_close(client);
    weir_conn_close(server);
    weir_listener_close(listener);
    return 0;
}

/* ---- Inherited sockets ---- */

IO_TEST(a_socket_that_listens_can_be_adopted)
{
    struct sockaddr_in any = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), pair[2];
    char text[WEIR_ADDRESS_TEXT_MAX];
    weir_conn *client, *server;
    weir_listener *listener;
    weir_address address;

    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(fd >= 0);
    CHECK_INT(bind(fd, (struct sockaddr *)&any, sizeof any), ==, 0);
    CHECK_INT(weir_listener_from_fd(fd, &listener), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "does not listen");
    CHECK_INT(listen(fd, 4), ==, 0);
    CHECK_OK(weir_listener_from_fd(fd, &listener));
    CHECK_OK(weir_listener_address(listener, &address));
    weir_address_format(&address, text, sizeof text);
    CHECK(strncmp(text, "tcp:127.0.0.1:", 14) == 0);
    CHECK_OK(weir_connect(text, &client));
    CHECK_OK(weir_accept(listener, &server));
    weir_conn_close(client);
    weir_conn_close(server);
    weir_listener_close(listener);
    CHECK_INT(fcntl(fd, F_GETFD), ==, -1);
    /* What is none stays the caller's. */
    CHECK_INT(pipe2(pair, O_CLOEXEC), ==, 0);
    CHECK_INT(weir_listener_from_fd(pair[0], &listener), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "no socket");
    CHECK_INT(weir_listener_from_fd(-1, &listener), ==, -EBADF);
    CHECK_INT(close(pair[0]), ==, 0);
    CHECK_INT(close(pair[1]), ==, 0);
    return 0;
}
