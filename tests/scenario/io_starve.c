/* io_starve.c - descriptors that are always ready leave tasks and timers their share,
 * and these leave the descriptors theirs: each side goes on until the others have had
 * enough, so that a starved one is a test that does not end. */
#include "base/atomic.h"
#include "unit/io/io_test.h"

enum {
    PAIRS = 8,   /* of tasks that never have to wait for each other for long */
    IDLERS = 64, /* connections that are readable and stay so */
    ENOUGH_TICKS = 20,
    ENOUGH_YIELDS = 50,
    ENOUGH_MOVED = 2000,
};

struct contest {
    weir_scope *scope;
    ATOM(int) ticks;  /* of a timer, each a millisecond after the last */
    ATOM(int) yields; /* of a task that does nothing else */
    ATOM(int) naps;   /* of a task that sleeps */
    ATOM(int) moved;  /* bytes, or callbacks of descriptors that are ready */
};

static bool everybody_had_enough(struct contest *contest)
{
    return atom_load(&contest->ticks) >= ENOUGH_TICKS &&
           atom_load(&contest->naps) >= ENOUGH_TICKS &&
           atom_load(&contest->yields) >= ENOUGH_YIELDS &&
           atom_load(&contest->moved) >= ENOUGH_MOVED;
}

static void on_tick(weir_timer *timer, void *arg)
{
    struct contest *contest = arg;

    (void)atom_add(&contest->ticks, 1);
    if (!everybody_had_enough(contest)) weir_timer_start(timer, 1);
}

static int yield_on(void *arg)
{
    struct contest *contest = *(struct contest **)arg;

    while (!everybody_had_enough(contest)) {
        CHECK_OK(weir_yield());
        (void)atom_add(&contest->yields, 1);
    }
    return 0;
}

static int nap_on(void *arg)
{
    struct contest *contest = *(struct contest **)arg;

    while (!everybody_had_enough(contest)) {
        CHECK_OK(weir_sleep(1));
        (void)atom_add(&contest->naps, 1);
    }
    return 0;
}

static void start_others(struct contest *contest)
{
    weir_timer *timer;

    CHECK_OK(weir_timer_open(
        contest->scope, &(weir_timer_spec){.name = "tick", .on_fire = on_tick, .keep_arg = contest},
        &timer));
    weir_timer_start(timer, 1);
    CHECK_OK(weir_spawn(contest->scope, yield_on, &contest, sizeof contest));
    CHECK_OK(weir_spawn(contest->scope, nap_on, &contest, sizeof contest));
}

/* ---- Tasks whose descriptors are always ready ---- */

struct end {
    struct contest *contest;
    weir_conn *conn;
};

static int write_on(void *arg)
{
    const struct end *end = arg;
    static const char data[512];

    while (!everybody_had_enough(end->contest)) {
        CHECK_OK((int)weir_conn_write(end->conn, data, sizeof data));
    }
    weir_conn_close(end->conn);
    return 0;
}

static int read_on(void *arg)
{
    const struct end *end = arg;
    char data[64];
    ssize_t n;

    while ((n = weir_conn_read(end->conn, data, sizeof data)) > 0) {
        (void)atom_add(&end->contest->moved, 1);
    }
    CHECK_INT(n, ==, 0);
    weir_conn_close(end->conn);
    return 0;
}

IO_TEST(tasks_with_ready_descriptors_starve_neither_tasks_nor_timers)
{
    static struct contest contest;
    int r;

    IO_SCOPE(scope, &r)
    {
        contest.scope = scope;
        for (int i = 0; i < PAIRS; i++) {
            struct end reader = {&contest, NULL}, writer = {&contest, NULL};

            CHECK_OK(weir_pipe(&reader.conn, &writer.conn));
            CHECK_OK(weir_spawn(scope, read_on, &reader, sizeof reader));
            CHECK_OK(weir_spawn(scope, write_on, &writer, sizeof writer));
        }
        start_others(&contest);
    }
    return r;
}

/* ---- Callbacks of descriptors that are always ready ----
 *
 * Each is registered anew at once, with its byte unread: every look of the worker at its
 * queue finds all of them. */

static void on_ready(weir_conn *conn, int status, void *arg)
{
    struct contest *contest = arg;

    CHECK(status == 0 || status == WEIR_ECANCELED);
    (void)atom_add(&contest->moved, 1);
    if (status < 0 || everybody_had_enough(contest)) return;
    CHECK_OK(weir_conn_idle(
        contest->scope, conn,
        &(weir_idle_spec){.on_ready = on_ready, .keep_arg = contest, .idle_ms = IO_TEST_MS}));
}

IO_TEST(callbacks_of_ready_descriptors_starve_neither_tasks_nor_timers)
{
    static struct contest contest;
    weir_conn *ends[IDLERS][2];
    int r;

    for (int i = 0; i < IDLERS; i++) {
        CHECK_OK(weir_socketpair(&ends[i][0], &ends[i][1]));
        CHECK_INT(weir_conn_write(ends[i][1], "x", 1), ==, 1);
    }
    IO_SCOPE(scope, &r)
    {
        contest.scope = scope;
        for (int i = 0; i < IDLERS; i++) on_ready(ends[i][0], 0, &contest);
        start_others(&contest);
    }
    for (int i = 0; i < IDLERS; i++) {
        weir_conn_close(ends[i][0]);
        weir_conn_close(ends[i][1]);
    }
    return r;
}
