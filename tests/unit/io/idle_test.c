/* idle_test.c - waiting without a task: one callback, whatever ends the wait. */
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/atomic.h"
#include "io/conn.h"
#include "rt/scope.h"
#include "rt/task.h"
#include "unit/io/io_test.h"

/* What a callback saw. */
struct seen {
    ATOM(int) calls;
    ATOM(int) status;
    ATOM(bool) in_task;
    ATOM(int) worker;
    bool close;
    weir_scope *cancel;
};

static void on_ready(weir_conn *conn, int status, void *arg)
{
    struct seen *seen = arg;

    atom_store(&seen->status, status);
    atom_store(&seen->in_task, weir_task_self().ref != NULL);
    atom_store(&seen->worker, weir_worker_index());
    if (seen->close) weir_conn_close(conn);
    if (seen->cancel) weir_scope_cancel(seen->cancel, 0, "from the callback");
    (void)atom_add(&seen->calls, 1);
}

static int idle(weir_scope *scope, weir_conn *conn, struct seen *seen, int64_t idle_ms)
{
    return weir_conn_idle(
        scope, conn, &(weir_idle_spec){.on_ready = on_ready, .keep_arg = seen, .idle_ms = idle_ms});
}

static void wait_until_called(struct seen *seen)
{
    while (atom_load(&seen->calls) == 0) CHECK_OK(weir_sleep(1));
}

static void check_seen(struct seen *seen, int status)
{
    CHECK_INT(atom_load(&seen->calls), ==, 1);
    CHECK_INT(atom_load(&seen->status), ==, status);
    CHECK(!atom_load(&seen->in_task));
    CHECK_INT(atom_load(&seen->worker), >=, 0);
}

IO_TEST(an_idle_wait_is_refused_with_the_reason)
{
    weir_conn *a, *b;
    struct seen seen = {0};
    weir_idle_spec spec;
    int r;

    CHECK_OK(weir_socketpair(&a, &b));
    IO_SCOPE(scope, &r)
    {
        weir_idle_spec_init(&spec);
        CHECK_INT(weir_conn_idle(scope, a, &spec), ==, WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), "'test': on_ready");
        spec.on_ready = on_ready;
        CHECK_INT(weir_conn_idle(scope, a, &spec), ==, WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), "idle_ms is not set");
        spec.idle_ms = -5;
        CHECK_INT(weir_conn_idle(scope, a, &spec), ==, WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), "negative");
        spec.idle_ms = WEIR_FOREVER;
        CHECK_INT(weir_conn_idle(scope, a, &spec), ==, WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), "no_deadline");
        spec.idle_ms = 10;
        spec.no_deadline = "because";
        CHECK_INT(weir_conn_idle(scope, a, &spec), ==, WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), "WEIR_FOREVER");
        test_fail_alloc_at(1);
        CHECK_INT(idle(scope, a, &seen, 1000), ==, -ENOMEM);
    }
    CHECK_OK(r);
    weir_conn_close(a);
    weir_conn_close(b);
    return 0;
}

static void idle_until_readable(weir_conn *reader, weir_conn *writer, bool data_first)
{
    struct seen seen = {0};
    char data[4];
    int r;

    IO_SCOPE(scope, &r)
    {
        if (data_first) CHECK_INT(weir_conn_write(writer, "x", 1), ==, 1);
        CHECK_OK(idle(scope, reader, &seen, 10000));
        CHECK_INT(weir_conn_read(reader, data, 1), ==, WEIR_EINUSE);
        CHECK_INT(idle(scope, reader, &seen, 10000), ==, WEIR_EINUSE);
        if (!data_first) {
            CHECK_OK(weir_sleep(1));
            CHECK_INT(atom_load(&seen.calls), ==, 0);
            CHECK_INT(weir_conn_write(writer, "x", 1), ==, 1);
        }
        wait_until_called(&seen);
    }
    CHECK_OK(r);
    check_seen(&seen, 0);
    CHECK_INT(weir_conn_read(reader, data, sizeof data), ==, 1);
}

IO_TEST(data_ends_an_idle_wait)
{
    weir_conn *a, *b;

    io_test_pair(&a, &b);
    idle_until_readable(a, b, false);
    idle_until_readable(a, b, true);
    idle_until_readable(b, a, false);
    weir_conn_close(a);
    weir_conn_close(b);
    CHECK_OK(weir_pipe(&a, &b));
    idle_until_readable(a, b, false);
    idle_until_readable(a, b, true);
    weir_conn_close(a);
    weir_conn_close(b);
    return 0;
}

/* An idle wait of `conn` that ends when its peer is closed (NULL: none is), or with time. */
static void idle_until_ended(weir_conn *conn, weir_conn *take_peer, int64_t idle_ms, int status)
{
    struct seen seen = {0};
    int r;

    IO_SCOPE(scope, &r)
    {
        CHECK_OK(idle(scope, conn, &seen, idle_ms));
        weir_conn_close(take_peer);
        wait_until_called(&seen);
    }
    CHECK_OK(r);
    check_seen(&seen, status);
}

IO_TEST(the_end_of_the_stream_ends_an_idle_wait)
{
    weir_conn *a, *b;
    char byte;

    io_test_pair(&a, &b);
    idle_until_ended(a, b, 10000, 0);
    CHECK_INT(weir_conn_read(a, &byte, 1), ==, 0);
    weir_conn_close(a);
    return 0;
}

IO_TEST(time_ends_an_idle_wait_and_the_connection_stays_good)
{
    weir_conn *a, *b;
    char byte;

    CHECK_OK(weir_socketpair(&a, &b));
    idle_until_ended(a, NULL, 5, WEIR_ETIMEDOUT);
    CHECK_INT(weir_conn_write(b, "x", 1), ==, 1);
    CHECK_INT(weir_conn_read(a, &byte, 1), ==, 1);
    weir_conn_close(a);
    weir_conn_close(b);
    return 0;
}

IO_TEST(cancel_and_stop_end_an_idle_wait_on_the_workers_own_stack)
{
    weir_conn *a, *b;
    int r;

    CHECK_OK(weir_socketpair(&a, &b));
    for (int i = 0; i < 2; i++) {
        struct seen seen = {0}, late = {0};
        IO_SCOPE(scope, &r)
        {
            CHECK_OK(weir_conn_idle(scope, a,
                                    &(weir_idle_spec){.on_ready = on_ready,
                                                      .keep_arg = &seen,
                                                      .idle_ms = WEIR_FOREVER,
                                                      .no_deadline = "until the test says so"}));
            if (i == 0) {
                weir_scope_cancel(scope, 0, "enough");
            } else {
                weir_scope_stop(scope, 60000);
            }
            WEIR_SHIELD(60000) { wait_until_called(&seen); }
            CHECK_INT(idle(scope, a, &late, 1000), ==, i == 0 ? WEIR_ECANCELED : WEIR_ESTOPPING);
        }
        CHECK_OK(r);
        check_seen(&seen, i == 0 ? WEIR_ECANCELED : WEIR_ESTOPPING);
        CHECK_INT(atom_load(&late.calls), ==, 0);
    }
    weir_conn_close(a);
    weir_conn_close(b);
    return 0;
}

IO_TEST(closing_the_scope_ends_its_idle_waits_first)
{
    weir_conn *a, *b, *c, *d;
    struct seen seen = {0}, closer = {.close = true};
    int r;

    CHECK_OK(weir_socketpair(&a, &b));
    CHECK_OK(weir_socketpair(&c, &d));
    IO_SCOPE(scope, &r)
    {
        CHECK_OK(idle(scope, a, &seen, 10000));
        CHECK_OK(idle(scope, c, &closer, 10000));
    }
    CHECK_OK(r);
    check_seen(&seen, WEIR_ECANCELED);
    check_seen(&closer, WEIR_ECANCELED);
    weir_conn_close(a);
    weir_conn_close(b);
    weir_conn_close(d);
    return 0;
}

IO_TEST(the_callback_may_close_the_connection_and_cancel_the_scope)
{
    weir_conn *a, *b, *c, *d;
    struct seen closer = {.close = true}, other = {0};
    int r;

    CHECK_OK(weir_socketpair(&a, &b));
    CHECK_OK(weir_socketpair(&c, &d));
    IO_SCOPE(scope, &r)
    {
        closer.cancel = scope;
        CHECK_OK(idle(scope, a, &closer, 10000));
        CHECK_OK(idle(scope, c, &other, 10000));
        CHECK_INT(weir_conn_write(b, "x", 1), ==, 1);
        WEIR_SHIELD(60000) {
            wait_until_called(&closer);
            wait_until_called(&other);
        }
    }
    CHECK_OK(r);
    check_seen(&closer, 0);
    check_seen(&other, WEIR_ECANCELED);
    weir_conn_close(b);
    weir_conn_close(c);
    weir_conn_close(d);
    return 0;
}

/* ---- A server whose idle connections have no task ---- */

struct service {
    weir_scope *scope;
    ATOM(int) served;
    ATOM(int) gone;
};

struct visit {
    struct service *service;
    weir_conn *conn;
};

static void visitor_ready(weir_conn *conn, int status, void *arg);

static int wait_for_visitor(struct service *service, weir_conn *conn)
{
    return weir_conn_idle(
        service->scope, conn,
        &(weir_idle_spec){.on_ready = visitor_ready, .keep_arg = service, .idle_ms = 60000});
}

static int serve_once(void *arg)
{
    struct visit *visit = arg;
    char byte;
    ssize_t n = weir_conn_read(visit->conn, &byte, 1);

    if (n == 1) {
        CHECK_INT(weir_conn_write(visit->conn, &byte, 1), ==, 1);
        (void)atom_add(&visit->service->served, 1);
        if (wait_for_visitor(visit->service, visit->conn) == 0) return 0;
    }
    weir_conn_close(visit->conn);
    (void)atom_add(&visit->service->gone, 1);
    return 0;
}

static void visitor_ready(weir_conn *conn, int status, void *arg)
{
    struct visit visit = {arg, conn};

    if (status == 0 && weir_spawn(visit.service->scope, serve_once, &visit, sizeof visit) == 0) {
        return;
    }
    weir_conn_close(conn);
    (void)atom_add(&visit.service->gone, 1);
}

IO_TEST(a_thousand_idle_connections_have_no_task)
{
    enum { CONNECTIONS = TEST_SANITIZED ? 200 : 1000, VISITED_EACH = 7 };
    static weir_conn *clients[CONNECTIONS];
    struct service service = {0};
    struct rlimit limit;
    int visited = 0;
    int r;

    CHECK_INT(getrlimit(RLIMIT_NOFILE, &limit), ==, 0);
    limit.rlim_cur = limit.rlim_max < 4096 ? limit.rlim_max : 4096;
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &limit), ==, 0);
    if (limit.rlim_cur < 2 * CONNECTIONS + 64) TEST_SKIP("not enough descriptors are allowed");
    WEIR_SCOPE(scope, &r, .name = "service", .on_failure = WEIR_FAIL_FAST, .max_tasks = 64,
               .overflow = WEIR_REJECT) {
        service.scope = scope;
        for (int i = 0; i < CONNECTIONS; i++) {
            weir_conn *server;
            CHECK_OK(weir_socketpair(&clients[i], &server));
            CHECK_OK(wait_for_visitor(&service, server));
        }
        CHECK_INT(weir_scope_task_count(scope), ==, 0);
        for (int i = 0; i < CONNECTIONS; i += VISITED_EACH) {
            char byte = (char)i;
            CHECK_INT(weir_conn_write(clients[i], &byte, 1), ==, 1);
            CHECK_INT(weir_conn_read(clients[i], &byte, 1), ==, 1);
            CHECK_INT(byte, ==, (char)i);
            visited++;
        }
    }
    CHECK_OK(r);
    CHECK_INT(atom_load(&service.served), ==, visited);
    CHECK_INT(atom_load(&service.gone), ==, CONNECTIONS);
    for (int i = 0; i < CONNECTIONS; i++) weir_conn_close(clients[i]);
    return 0;
}

/* ---- Waits of one scope on several workers ---- */

struct placed {
    weir_scope *scope;
    weir_conn *conn;
    struct seen *seen;
};

static int wait_from_here(void *arg)
{
    const struct placed *placed = arg;
    return idle(placed->scope, placed->conn, placed->seen, 10000);
}

IO_TEST(idle_waits_of_other_workers_end_with_the_scope)
{
    enum { ROUNDS = 50 };
    int last = weir_worker_count() - 1;

    for (int round = 0; round < ROUNDS && (round == 0 || !test_late()); round++) {
        weir_conn *a, *b;
        struct seen seen = {0};
        int r;

        CHECK_OK(weir_socketpair(&a, &b));
        IO_SCOPE(scope, &r)
        {
            struct placed placed = {scope, a, &seen};
            weir_task task;
            CHECK_OK(weir_task_spawn(scope,
                                     &(weir_task_spec){.fn = wait_from_here,
                                                       .arg = &placed,
                                                       .arg_bytes = sizeof placed,
                                                       .place = WEIR_PLACE_WORKER,
                                                       .worker = last},
                                     &task));
            CHECK_OK(weir_task_join(task, &r));
            CHECK_OK(r);
            /* The end of the scope races with the data on the other worker. */
            CHECK_INT(weir_conn_write(b, "x", 1), ==, 1);
            if (round % 2) weir_scope_cancel(scope, 0, "enough");
        }
        CHECK_OK(r);
        CHECK_INT(atom_load(&seen.calls), ==, 1);
        CHECK_INT(atom_load(&seen.worker), ==, last);
        weir_conn_close(a);
        weir_conn_close(b);
    }
    return 0;
}

static int close_while_idle(void *arg)
{
    weir_conn *a, *b;
    struct seen seen = {0};
    int r;

    (void)arg;
    CHECK_OK(weir_socketpair(&a, &b));
    IO_SCOPE(scope, &r)
    {
        CHECK_OK(idle(scope, a, &seen, 10000));
        weir_conn_close(a);
    }
    return r;
}

static void close_while_idle_process(void *arg)
{
    (void)arg;
    (void)!io_test_run(close_while_idle);
}

TEST(closing_under_an_idle_wait_aborts_with_a_sentence)
{
    CHECK_ABORTS(close_while_idle_process, NULL, "in an idle wait");
}

/* ---- An edge that means nothing ---- */

static int spurious_edge(void *arg)
{
    weir_conn *a, *b;
    struct seen seen = {0};
    char byte;
    int r;

    (void)arg;
    CHECK_OK(weir_socketpair(&a, &b));
    IO_SCOPE(scope, &r)
    {
        CHECK_OK(idle(scope, a, &seen, 10000));
        /* The look into the socket finds nothing, twice; then what was there. */
        test_fault("recv", -EAGAIN, 2);
        CHECK_INT(weir_conn_write(b, "x", 1), ==, 1);
        wait_until_called(&seen);
        CHECK_INT(test_calls("recv"), ==, 3);
    }
    CHECK_OK(r);
    check_seen(&seen, 0);
    CHECK_INT(weir_conn_read(a, &byte, 1), ==, 1);
    weir_conn_close(a);
    weir_conn_close(b);
    return 0;
}

TEST(an_edge_with_nothing_behind_it_does_not_end_an_idle_wait)
{
    test_kernel_install();
    CHECK_OK(io_test_run(spurious_edge));
}

/* The connection cannot be watched: said at once, and when it happens later. */
static int unwatchable(void *arg)
{
    weir_conn *a, *b;
    struct seen seen = {0};
    int r;

    (void)arg;
    CHECK_OK(weir_socketpair(&a, &b));
    IO_SCOPE(scope, &r)
    {
        test_fault("queue_watch", -ENOSPC, 1);
        CHECK_INT(idle(scope, a, &seen, 10000), ==, -ENOSPC);
        CHECK_OK(idle(scope, a, &seen, 10000));
        test_fault("queue_watch", -ENOSPC, 1);
        test_fault("recv", -EAGAIN, 1);
        CHECK_INT(weir_conn_write(b, "x", 1), ==, 1);
        wait_until_called(&seen);
    }
    CHECK_OK(r);
    check_seen(&seen, -ENOSPC);
    weir_conn_close(a);
    weir_conn_close(b);
    return 0;
}

TEST(a_connection_that_cannot_be_watched_is_told)
{
    test_kernel_install();
    CHECK_OK(io_test_run(unwatchable));
}

/* ---- Where callbacks run ---- */

struct where {
    struct task *task; /* the one that cancels */
    int calls;
    bool on_its_stack;
};

static void note_where(struct where *where)
{
    const char *here = __builtin_frame_address(0);
    const struct stack *stack = where->task->stack;

    if (here >= stack->low && here < stack->top) where->on_its_stack = true;
    where->calls++;
}

static void note_idle(weir_conn *conn, int status, void *arg)
{
    (void)conn, (void)status;
    note_where(arg);
}

static void note_timer(weir_timer *timer, void *arg)
{
    (void)timer;
    note_where(arg);
}

enum ending { BY_CANCEL, BY_STOP, BY_CLOSE, ENDINGS };

/* A callback that ran inside of the call would find the program in the middle of what it
 * does, and a stack that may be nearly full. */
static void end_idle(enum ending ending)
{
    struct where where = {.task = weir_task_self().ref};
    weir_timer *timer;
    weir_conn *a, *b;
    int r;

    CHECK_OK(weir_socketpair(&a, &b));
    IO_SCOPE(scope, &r)
    {
        CHECK_OK(weir_timer_open(
            scope, &(weir_timer_spec){.name = "t", .on_fire = note_timer, .keep_arg = &where},
            &timer));
        weir_timer_start(timer, 0);
        while (where.calls == 0) CHECK_OK(weir_yield());
        CHECK_OK(weir_conn_idle(
            scope, a,
            &(weir_idle_spec){.on_ready = note_idle, .keep_arg = &where, .idle_ms = 60000}));
        if (ending == BY_CANCEL) weir_scope_cancel(scope, 0, "the wait is over");
        if (ending == BY_STOP) weir_scope_stop(scope, 60000);
        CHECK_INT(where.calls, ==, 1);
    }
    CHECK_OK(r);
    CHECK_INT(where.calls, ==, 2);
    CHECK(!where.on_its_stack);
    weir_conn_close(a);
    weir_conn_close(b);
}

IO_TEST(callbacks_never_run_on_the_stack_of_the_task_that_ends_their_scope)
{
    for (int ending = 0; ending < ENDINGS; ending++) end_idle((enum ending)ending);
    return 0;
}

/* ---- A writer on the same connection ---- */

struct writer {
    weir_conn *conn;
    int result;
};

static int write_until_told(void *arg)
{
    static const char data[64 * 1024];
    struct writer *writer = *(struct writer **)arg;

    do writer->result = weir_conn_send_all(writer->conn, data, sizeof data, NULL);
    while (writer->result == 0);
    return 0;
}

/* The idle wait registers the descriptor anew; when that fails nobody reports to the
 * writer any more. */
static int unwatchable_with_writer(void *arg)
{
    struct seen seen = {0};
    struct writer writer = {0};
    struct writer *pointer = &writer;
    weir_conn *b;
    int r;

    (void)arg;
    CHECK_OK(weir_socketpair(&writer.conn, &b));
    IO_SCOPE(scope, &r)
    {
        CHECK_OK(weir_spawn(scope, write_until_told, &pointer, sizeof pointer));
        CHECK_OK(weir_yield());
        test_fault("queue_watch", -ENOSPC, 1);
        CHECK_INT(idle(scope, writer.conn, &seen, 10000), ==, -ENOSPC);
    }
    CHECK_OK(r);
    CHECK_INT(writer.result, ==, -ENOSPC);
    CHECK_INT(atom_load(&seen.calls), ==, 0);
    weir_conn_close(writer.conn);
    weir_conn_close(b);
    return 0;
}

TEST(writer_is_told_when_its_connection_cannot_be_watched_any_more)
{
    test_kernel_install();
    CHECK_OK(io_test_run(unwatchable_with_writer));
}

IO_TEST(a_reset_that_ends_an_idle_wait_is_told_to_the_next_read)
{
    const struct linger reset = {.l_onoff = 1, .l_linger = 0};
    struct seen seen = {0};
    weir_conn *a, *b;
    char byte;
    int r;

    io_test_pair(&a, &b);
    CHECK_INT(setsockopt(weir_conn_fd(b), SOL_SOCKET, SO_LINGER, &reset, sizeof reset), ==, 0);
    IO_SCOPE(scope, &r)
    {
        CHECK_OK(idle(scope, a, &seen, 10000));
        weir_conn_close(b);
        wait_until_called(&seen);
    }
    CHECK_OK(r);
    check_seen(&seen, 0);
    CHECK_INT(weir_conn_write(a, "x", 1), ==, -EPIPE);
    CHECK_INT(weir_conn_read(a, &byte, 1), ==, -ECONNRESET);
    CHECK_INT(weir_conn_read(a, &byte, 1), ==, 0);
    weir_conn_close(a);
    return 0;
}
