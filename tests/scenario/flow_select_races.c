/* flow_select_races.c - a select with a case of every kind, and what may happen to it, in every
 * order and at the same moment.
 *
 * Whatever happens first is what the select has done; what happens besides is not lost: the item
 * is still there, the task can still be joined, the byte can still be read.
 */
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "unit/flow/flow_test.h"
#include "unit/rt/support.h"

enum happening { ITEM, ROOM, SET, IN_OVER, OUT_OVER, CANCEL, END, TIME, BYTE, HAPPENINGS };
enum which { RECV, SEND, JOIN, TIMER, EVENT, READABLE, CASES };
enum { OLD = 1, GIVEN = 7, OFFERED = 9, ENDED = 5 };

/* What a select has done if this was first. A cancel is no case. */
static const struct {
    const char *name;
    enum which which;
    int result;
    bool later; /* it takes the worker's loop to be noticed */
} table[HAPPENINGS] = {
    [ITEM] = {"item", RECV, 0, false},
    [ROOM] = {"room", SEND, 0, false},
    [SET] = {"set", EVENT, 0, false},
    [IN_OVER] = {"in-over", RECV, WEIR_ECLOSED, false},
    [OUT_OVER] = {"out-over", SEND, WEIR_ECLOSED, false},
    [CANCEL] = {"cancel", CASES, WEIR_ECANCELED, false},
    [END] = {"end", JOIN, 0, true},
    [TIME] = {"time", TIMER, 0, true},
    [BYTE] = {"byte", READABLE, 0, true},
};

struct arena {
    int_tx in_tx, out_tx;
    int_rx in_rx, out_rx;
    weir_event *event, *go;
    weir_conn *reader, *writer;
    weir_task joined;
    weir_task selecting;
    enum weir_select_order order;
    int64_t timer_ms;
    ATOM(int) dropped_offered, dropped_old;
    ATOM(int) gate;      /* how many have come to it */
    ATOM(int) gate_size; /* 0: nobody waits there */
    int given, offered;
    weir_case cases[CASES];
    int chosen;
    ATOM(int) returned;
};

static void count_dropped(void *item, enum weir_drop why, void *arg)
{
    struct arena *arena = arg;
    (void)why;
    (void)atom_add(*(int *)item == OLD ? &arena->dropped_old : &arena->dropped_offered, 1);
}

static void pass_gate(struct arena *arena)
{
    (void)atom_add(&arena->gate, 1);
    while (atom_load_acquire(&arena->gate) < atom_load(&arena->gate_size)) (void)sched_yield();
}

static int end_when_told(void *arg)
{
    int r = weir_event_wait((*(struct arena **)arg)->go);
    return r < 0 ? r : ENDED;
}

static int select_in_arena(void *arg)
{
    struct arena *arena = *(struct arena **)arg;

    if (atom_load(&arena->gate_size)) pass_gate(arena);
    arena->chosen = weir_select(arena->cases, CASES, arena->order);
    atom_store_release(&arena->returned, 1);
    return 0;
}

static void arena_open(struct arena *arena, weir_scope *scope, bool any_thread, int joined_at)
{
    weir_chan_spec spec = {.name = "arena",
                           .capacity = 1,
                           .overflow = WEIR_WAIT,
                           .on_close = WEIR_DRAIN,
                           .any_thread = any_thread,
                           .on_drop = count_dropped,
                           .keep_arg = arena};
    int old = OLD;

    CHECK_OK(weir_chan_open(scope, &spec, &arena->in_tx, &arena->in_rx));
    CHECK_OK(weir_chan_open(scope, &spec, &arena->out_tx, &arena->out_rx));
    CHECK_OK(weir_send(arena->out_tx, &old));
    CHECK_OK(weir_event_open(scope, "set", &arena->event));
    CHECK_OK(weir_event_open(scope, "go", &arena->go));
    CHECK_OK(weir_pipe(&arena->reader, &arena->writer));
    arena->joined = spawn_at(scope, joined_at, "joined", end_when_told, &arena, sizeof arena);
    arena->offered = OFFERED;
    arena->cases[RECV] = WEIR_CASE_RECV(arena->in_rx, &arena->given);
    arena->cases[SEND] = WEIR_CASE_SEND(arena->out_tx, &arena->offered);
    arena->cases[JOIN] = WEIR_CASE_JOIN(arena->joined);
    arena->cases[TIMER] = WEIR_CASE_TIMER(arena->timer_ms);
    arena->cases[EVENT] = WEIR_CASE_EVENT(arena->event);
    arena->cases[READABLE] = WEIR_CASE_READABLE(arena->reader);
}

static void happen(struct arena *arena, enum happening what)
{
    int item = GIVEN;

    switch (what) {
    case ITEM: CHECK_OK(weir_try_send(arena->in_tx, &item)); break;
    case ROOM:
        CHECK_INT(weir_try_recv(arena->out_rx, &item), ==, 1);
        CHECK_INT(item, ==, OLD);
        break;
    case SET: weir_event_set(arena->event); break;
    case IN_OVER: weir_tx_close(arena->in_tx.end); break;
    case OUT_OVER:
        weir_rx_drop(arena->out_rx.end);
        arena->out_rx.end = NULL;
        break;
    case CANCEL: (void)weir_task_cancel(arena->selecting, "the test says so"); break;
    case END: weir_event_set(arena->go); break;
    case TIME: test_clock_advance_ms(arena->timer_ms); break;
    case BYTE: CHECK_INT(weir_conn_write(arena->writer, "x", 1), ==, 1); break;
    case HAPPENINGS: break;
    }
}

/* Which of those that may have been first the select has done. */
static enum happening winner_of(const struct arena *arena, unsigned may)
{
    for (int what = 0; what < HAPPENINGS; what++) {
        if (!(may >> what & 1)) continue;
        if (what == CANCEL) {
            if (arena->chosen == WEIR_ECANCELED) return CANCEL;
        } else if (arena->chosen == (int)table[what].which &&
                   arena->cases[arena->chosen].result == table[what].result) {
            return (enum happening)what;
        }
    }
    TEST_FAIL("the select has returned %d, result %d, which none of %#x explains", arena->chosen,
              arena->chosen < 0 ? 0 : arena->cases[arena->chosen].result, may);
}

/* What has happened and was not done by the select is still there, once. */
static void check_channels(struct arena *arena, unsigned happened, enum happening winner)
{
    weir_chan_figures figures;
    int item = 0, offered = 0, old = 0, r;

    weir_tx_figures(arena->in_tx.end, &figures);
    CHECK_INT(figures.receivers_waiting, ==, 0);
    weir_tx_figures(arena->out_tx.end, &figures);
    CHECK_INT(figures.senders_waiting, ==, 0);
    if (winner == ITEM) CHECK_INT(arena->given, ==, GIVEN);
    r = weir_try_recv(arena->in_rx, &item);
    CHECK_INT(r == 1, ==, (happened >> ITEM & 1) && winner != ITEM);
    if (r == 1) {
        CHECK_INT(item, ==, GIVEN);
        r = weir_try_recv(arena->in_rx, &item);
    }
    CHECK_INT(r, ==, happened >> IN_OVER & 1 ? WEIR_ECLOSED : 0);
    if (arena->out_rx.end) {
        while (weir_try_recv(arena->out_rx, &item) == 1) {
            if (item == OFFERED) offered++;
            if (item == OLD) old++;
        }
    }
    CHECK_INT(offered + arena->dropped_offered, ==, winner == ROOM);
    CHECK_INT(old + arena->dropped_old + (int)(happened >> ROOM & 1), ==, 1);
}

static void check_others(struct arena *arena, unsigned happened, enum happening winner)
{
    int result = 0, r;
    char byte;

    if (winner == END) CHECK_INT(arena->cases[JOIN].task_result, ==, ENDED);
    if (!(happened >> END & 1)) weir_event_set(arena->go);
    r = weir_task_join(arena->joined, &result);
    CHECK_INT(r, ==, winner == END ? WEIR_ECLOSED : 0);
    if (r == 0) CHECK_INT(result, ==, ENDED);
    if (!(happened >> BYTE & 1)) happen(arena, BYTE);
    CHECK_INT(weir_conn_read(arena->reader, &byte, 1), ==, 1);
}

static enum happening arena_close(struct arena *arena, unsigned happened, unsigned may)
{
    enum happening winner;

    CHECK_OK(weir_task_join(arena->selecting, NULL));
    CHECK(arena->returned);
    winner = winner_of(arena, may);
    check_channels(arena, happened, winner);
    check_others(arena, happened, winner);
    weir_event_close(arena->event);
    weir_conn_close(arena->reader);
    weir_conn_close(arena->writer);
    weir_tx_drop(arena->in_tx.end);
    weir_tx_drop(arena->out_tx.end);
    weir_rx_drop(arena->in_rx.end);
    weir_rx_drop(arena->out_rx.end);
    return winner;
}

/* ---- In every order ---- */

enum { IN_A_ROW_MAX = 3 };
enum when { BEFORE, AT_ONCE, ONE_BY_ONE, WHENS };

struct order {
    enum happening row[IN_A_ROW_MAX];
    int count;
    enum when when;
    enum weir_select_order order;
};

/* Which of the row may be what the select does. */
static unsigned may_be_first(const struct order *order)
{
    unsigned may = 0;
    int lowest = CASES;

    if (order->when == ONE_BY_ONE) return 1u << order->row[0];
    for (int i = 0; i < order->count; i++) {
        enum happening what = order->row[i];
        if (order->when == BEFORE && what == CANCEL) return 1u << CANCEL;
        may |= 1u << what;
        if (order->when == AT_ONCE && !table[what].later) return may;
        if ((int)table[what].which < lowest) lowest = (int)table[what].which;
    }
    if (order->when == BEFORE && order->order == WEIR_IN_ORDER) {
        for (int i = 0; i < order->count; i++) {
            if ((int)table[order->row[i]].which != lowest) may &= ~(1u << order->row[i]);
        }
    }
    return may;
}

static void play(const struct order *order)
{
    struct arena arena = {.order = order->order, .timer_ms = 2}, *shared = &arena;
    unsigned happened = 0;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        arena_open(&arena, scope, false, weir_worker_index());
        CHECK_OK(weir_yield()); /* the one to be joined waits */
        if (order->when != BEFORE) {
            arena.selecting = spawn_at(scope, weir_worker_index(), "select", select_in_arena,
                                       &shared, sizeof shared);
            CHECK_OK(weir_yield()); /* it is parked */
        }
        for (int i = 0; i < order->count; i++) {
            if (order->when == BEFORE && order->row[i] == CANCEL) continue;
            happen(&arena, order->row[i]);
            happened |= 1u << order->row[i];
            if (order->when == BEFORE && order->row[i] == END) CHECK_OK(weir_yield());
            if (order->when == ONE_BY_ONE) await_flag(&arena.returned);
        }
        if (order->when == BEFORE) {
            arena.selecting = spawn_at(scope, weir_worker_index(), "select", select_in_arena,
                                       &shared, sizeof shared);
        }
        /* A task that has not begun: its first call fails. */
        if (order->when == BEFORE && may_be_first(order) == 1u << CANCEL) happen(&arena, CANCEL);
        (void)arena_close(&arena, happened, may_be_first(order));
    }
    CHECK_OK(result);
}

/* Nothing happens to an end that is over, nothing twice, and no time passes before a select. */
static bool makes_sense(const struct order *order)
{
    for (int i = 0; i < order->count; i++) {
        if (order->when == BEFORE && order->row[i] == TIME) return false;
        for (int k = 0; k < i; k++) {
            if (order->row[k] == order->row[i]) return false;
            if (order->row[k] == IN_OVER && order->row[i] == ITEM) return false;
            if (order->row[k] == OUT_OVER && order->row[i] == ROOM) return false;
        }
    }
    return true;
}

static int play_rows(enum when when, enum weir_select_order select_order, int stride)
{
    int played = 0, seen = 0;

    for (int count = 1; count <= IN_A_ROW_MAX; count++) {
        int rows = 1;
        for (int i = 0; i < count; i++) rows *= HAPPENINGS;
        for (int row = 0; row < rows; row++) {
            struct order order = {.count = count, .when = when, .order = select_order};
            for (int i = 0, rest = row; i < count; i++, rest /= HAPPENINGS) {
                order.row[i] = (enum happening)(rest % HAPPENINGS);
            }
            if (!makes_sense(&order)) continue;
            if (count == IN_A_ROW_MAX && seen++ % stride) continue;
            test_note("when %d, order %d: %s, %s, %s", when, select_order, table[order.row[0]].name,
                      count > 1 ? table[order.row[1]].name : "-",
                      count > 2 ? table[order.row[2]].name : "-");
            play(&order);
            played++;
        }
    }
    return played;
}

static int play_all(void *arg)
{
    int played = 0;

    (void)arg;
    for (int when = BEFORE; when < WHENS; when++) {
        for (int order = WEIR_FAIR; order <= WEIR_IN_ORDER; order++) {
            played += play_rows((enum when)when, (enum weir_select_order)order, TEST_SLOW ? 29 : 1);
        }
    }
    CHECK_INT(played, >, TEST_SLOW ? 400 : 2000);
    return 0;
}

TEST_WITH(select_does_what_happens_first_and_loses_nothing_in_any_order, .timeout_ms = 60000)
{
    test_clock_manual();
    CHECK_OK(weir_run(&(weir_config){.workers = test_workers(), .log_level = WEIR_LOG_OFF},
                      flow_test_task, &(weir_task_fn){play_all}));
}

/* ---- At the same moment ---- */

enum { ROUNDS = TEST_SANITIZED ? 3 : 40 };
enum { RACE_TIMER_MS = 1 };

struct racer {
    struct arena *arena;
    enum happening what;
    int64_t after_ns; /* with a timer: not before it may fire */
};

static void race_one(const struct racer *racer)
{
    pass_gate(racer->arena);
    while (weir_now_ns() < racer->after_ns) {}
    happen(racer->arena, racer->what);
}

static int race_task(void *arg)
{
    race_one(arg);
    return 0;
}

static void *race_thread(void *arg)
{
    race_one(arg);
    return NULL;
}

/* `theirs` on the other worker, or on a foreign thread, while the parked select meets `mine`. */
static void race_parked(enum happening mine, enum happening theirs, bool foreign)
{
    struct arena arena = {.order = WEIR_FAIR, .timer_ms = mine == TIME ? RACE_TIMER_MS : 60000};
    struct arena *shared = &arena;
    unsigned happened = 1u << mine | 1u << theirs;
    int result;

    FLOW_SCOPE_ANYWHERE(scope, &result)
    {
        struct racer racer = {&arena, theirs, 0};
        weir_task other = {NULL, 0};
        pthread_t thread;

        arena_open(&arena, scope, foreign, 1 - weir_worker_index());
        arena.selecting =
            spawn_at(scope, weir_worker_index(), "select", select_in_arena, &shared, sizeof shared);
        if (mine == TIME) racer.after_ns = weir_now_ns() + RACE_TIMER_MS * 1000000;
        CHECK_OK(weir_yield()); /* it is parked */
        atom_store(&arena.gate_size, 2);
        if (foreign) {
            CHECK_INT(pthread_create(&thread, NULL, race_thread, &racer), ==, 0);
        } else {
            other =
                spawn_at(scope, 1 - weir_worker_index(), "other", race_task, &racer, sizeof racer);
        }
        pass_gate(&arena);
        if (mine != TIME) happen(&arena, mine);
        if (foreign) {
            CHECK_INT(pthread_join(thread, NULL), ==, 0);
        } else {
            CHECK_OK(weir_task_join(other, NULL));
        }
        (void)arena_close(&arena, happened, happened);
    }
    CHECK_OK(result);
}

/* It happens while the select looks, and before it waits. */
static void race_begun(enum happening theirs)
{
    struct arena arena = {.order = WEIR_FAIR, .timer_ms = 60000, .gate_size = 2};
    struct arena *shared = &arena;
    int result;

    FLOW_SCOPE_ANYWHERE(scope, &result)
    {
        struct racer racer = {&arena, theirs, 0};
        weir_task other;

        arena_open(&arena, scope, false, 1 - weir_worker_index());
        other = spawn_at(scope, 1 - weir_worker_index(), "other", race_task, &racer, sizeof racer);
        arena.selecting =
            spawn_at(scope, weir_worker_index(), "select", select_in_arena, &shared, sizeof shared);
        CHECK_OK(weir_task_join(other, NULL));
        (void)arena_close(&arena, 1u << theirs, 1u << theirs);
    }
    CHECK_OK(result);
}

static int race_all(void *arg)
{
    (void)arg;
    for (int mine = 0; mine < HAPPENINGS; mine++) {
        for (int theirs = 0; theirs < HAPPENINGS; theirs++) {
            bool foreign = theirs == ITEM || theirs == IN_OVER || theirs == OUT_OVER;
            struct order both = {.row = {mine, theirs}, .count = 2, .when = AT_ONCE};
            struct order turned = {.row = {theirs, mine}, .count = 2, .when = AT_ONCE};
            if (theirs == TIME || !makes_sense(&both) || !makes_sense(&turned)) continue;
            for (int round = 0; round < ROUNDS && (round == 0 || !test_late()); round++) {
                test_note("%s against %s, round %d", table[mine].name, table[theirs].name, round);
                race_parked((enum happening)mine, (enum happening)theirs, false);
                if (foreign) race_parked((enum happening)mine, (enum happening)theirs, true);
            }
        }
        for (int round = 0; round < ROUNDS && mine != TIME && (round == 0 || !test_late());
             round++) {
            test_note("%s against the call, round %d", table[mine].name, round);
            race_begun((enum happening)mine);
        }
    }
    return 0;
}

static int race_in_time(void *arg)
{
    WEIR_DEADLINE((int64_t)60000 * test_slower()) { return race_all(arg); }
    return WEIR_EREFUSED;
}

TEST_WITH(select_meets_two_things_at_the_same_moment, .timeout_ms = 60000)
{
    CHECK_OK(weir_run(&(weir_config){.workers = 2, .log_level = WEIR_LOG_OFF}, race_in_time, NULL));
}
