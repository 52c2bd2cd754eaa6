/* deadline_nesting.c - deadlines of blocks, scopes and tasks, nested in every way. */
#include <errno.h>

#include "unit/rt/support.h"

#define MS INT64_C(1000000)

static weir_scope *open_timed(const char *name, int64_t deadline_ms)
{
    weir_scope *scope = NULL;

    CHECK_OK(weir_scope_open(&(weir_scope_spec){.name = name,
                                                .on_failure = WEIR_FAIL_FAST,
                                                .max_tasks = 10,
                                                .overflow = WEIR_WAIT,
                                                .deadline_ms = deadline_ms},
                             &scope));
    return scope;
}

/* ---- Two deadlines, each a block or a scope: the earlier one wins ---- */

enum kind { BLOCK, SCOPE };

/* Inside `kind` with `ms`, run the rest. */
static int within(enum kind kind, int64_t ms, int (*rest)(const void *arg), const void *arg)
{
    int r = 0;

    if (kind == BLOCK) {
        WEIR_DEADLINE(ms) r = rest(arg);
        return r;
    }
    weir_scope *scope = open_timed("timed", ms);
    r = rest(arg);
    CHECK_OK(weir_scope_close(scope)); /* it had no tasks to interrupt */
    return r;
}

struct pair {
    enum kind outer, inner;
    int64_t outer_ms, inner_ms;
};

static int inner_sleep(const void *arg)
{
    const struct pair *pair = arg;
    bool own = pair->inner_ms < pair->outer_ms;
    weir_cause_info info;
    int r = weir_sleep(100);

    CHECK_INT(r, ==, own ? WEIR_ETIMEDOUT : WEIR_ECANCELED);
    CHECK_INT(weir_cause(&info), ==, WEIR_CAUSE_DEADLINE);
    CHECK_INT(info.error, ==, WEIR_ETIMEDOUT);
    return r;
}

static int outer_rest(const void *arg)
{
    const struct pair *pair = arg;
    int64_t start_ns = weir_now_ns();
    int64_t first_ms = pair->inner_ms < pair->outer_ms ? pair->inner_ms : pair->outer_ms;

    (void)within(pair->inner, pair->inner_ms, inner_sleep, pair);
    CHECK_INT(weir_now_ns() - start_ns, ==, first_ms * MS);
    /* Outside the inner one only the outer deadline counts, and it is our own. */
    CHECK_INT(weir_checkpoint(), ==, pair->inner_ms < pair->outer_ms ? 0 : WEIR_ETIMEDOUT);
    CHECK_INT(weir_sleep(100), ==, WEIR_ETIMEDOUT);
    CHECK_INT(weir_now_ns() - start_ns, ==, pair->outer_ms * MS);
    return 0;
}

static int all_pairs(void *arg)
{
    static const int64_t ms[][2] = {{50, 20}, {20, 50}, {30, 30}};

    (void)arg;
    for (int outer = BLOCK; outer <= SCOPE; outer++)
        for (int inner = BLOCK; inner <= SCOPE; inner++)
            for (int i = 0; i < 3; i++) {
                struct pair pair = {(enum kind)outer, (enum kind)inner, ms[i][0], ms[i][1]};

                test_note("outer %d, inner %d, row %d", outer, inner, i);
                CHECK_OK(within(pair.outer, pair.outer_ms, outer_rest, &pair));
                CHECK_OK(weir_sleep(100));
            }
    return 0;
}

TEST(earliest_deadline_wins_and_only_ones_own_is_a_timeout)
{
    test_clock_auto();
    CHECK_OK(run_on(1, all_pairs, NULL));
}

/* ---- A retry inside never eats the caller's timeout ---- */

static int retry_inside(void *arg)
{
    int attempts = 0, r = 0;

    (void)arg;
    WEIR_DEADLINE(100) {
        do {
            attempts++;
            WEIR_DEADLINE(30) r = weir_sleep(1000);
        } while (r == WEIR_ETIMEDOUT); /* one's own timeout: try again */
    }
    CHECK_INT(r, ==, WEIR_ECANCELED);
    CHECK_INT(attempts, ==, 4);
    return 0;
}

TEST(retry_of_own_timeouts_stops_at_the_callers_deadline)
{
    test_clock_auto();
    CHECK_OK(run_on(1, retry_inside, NULL));
}

/* ---- Tasks of a scope with a deadline ---- */

struct child {
    int result;
    enum weir_cause cause;
    int64_t deadline_ns;
    int64_t ended_ns;
};

static int wait_for_deadline(void *arg)
{
    struct child *child = *(struct child **)arg;
    weir_cause_info info;

    child->deadline_ns = weir_deadline_ns();
    child->result = weir_sleep(WEIR_FOREVER); /* a deadline is in force */
    child->cause = weir_cause(&info);
    child->ended_ns = weir_now_ns();
    return child->result;
}

static int scope_with_deadline(void *arg)
{
    int64_t start_ns = weir_now_ns();
    struct child children[2] = {{0}, {0}};
    struct child *pointers[2] = {&children[0], &children[1]};
    weir_scope *scope = open_timed("timed", 40);

    (void)arg;
    for (int i = 0; i < 2; i++)
        CHECK_OK(weir_spawn(scope, wait_for_deadline, &pointers[i], sizeof pointers[i]));
    CHECK_INT(weir_scope_close(scope), ==, WEIR_ETIMEDOUT);
    CHECK_OK(weir_checkpoint());
    for (int i = 0; i < 2; i++) {
        CHECK_INT(children[i].result, ==, WEIR_ECANCELED); /* not their own */
        CHECK_INT(children[i].cause, ==, WEIR_CAUSE_DEADLINE);
        CHECK_INT(children[i].deadline_ns - start_ns, ==, 40 * MS);
        CHECK_INT(children[i].ended_ns - start_ns, ==, 40 * MS);
    }
    return 0;
}

TEST(tasks_are_cancelled_at_their_scopes_deadline_and_close_times_out)
{
    test_clock_auto();
    CHECK_OK(run_on(1, scope_with_deadline, NULL));
}

static int scope_in_outer_deadline(void *arg)
{
    struct child child = {0};
    struct child *pointer = &child;

    (void)arg;
    WEIR_DEADLINE(20) {
        weir_scope *scope = open_timed("inner", 1000);

        CHECK_OK(weir_spawn(scope, wait_for_deadline, &pointer, sizeof pointer));
        CHECK_INT(weir_scope_close(scope), ==, WEIR_ECANCELED);
        CHECK_INT(weir_checkpoint(), ==, WEIR_ETIMEDOUT);
    }
    CHECK_INT(child.result, ==, WEIR_ECANCELED);
    CHECK_INT(child.cause, ==, WEIR_CAUSE_DEADLINE);
    return 0;
}

TEST(scope_whose_outer_deadline_passes_is_cancelled)
{
    test_clock_auto();
    CHECK_OK(run_on(1, scope_in_outer_deadline, NULL));
}

/* Three levels of tasks: the grandchild is inside all deadlines above it. */
static int level(void *arg)
{
    int depth = *(int *)arg - 1;
    weir_scope *scope;
    int r;

    if (depth == 0) return weir_sleep(WEIR_FOREVER);
    scope = open_timed("level", 1000 * depth);
    CHECK_OK(weir_spawn(scope, level, &depth, sizeof depth));
    r = weir_scope_close(scope);
    CHECK_INT(r, ==, WEIR_ECANCELED);
    return r;
}

static int levels(void *arg)
{
    int64_t start_ns = weir_now_ns();
    weir_scope *scope = open_timed("top", 70);
    int depth = 3;

    (void)arg;
    CHECK_OK(weir_spawn(scope, level, &depth, sizeof depth));
    CHECK_INT(weir_scope_close(scope), ==, WEIR_ETIMEDOUT);
    CHECK_INT(weir_now_ns() - start_ns, ==, 70 * MS);
    return 0;
}

TEST(deadline_reaches_through_every_level_of_tasks)
{
    test_clock_auto();
    CHECK_OK(run_on(1, levels, NULL));
}

static int finish_in_time(void *arg)
{
    (void)arg;
    return weir_sleep(10);
}

static int deadline_not_needed(void *arg)
{
    weir_scope *scope = open_timed("timed", 20);

    (void)arg;
    CHECK_OK(weir_spawn(scope, finish_in_time, NULL, 0));
    CHECK_OK(weir_scope_close(scope));
    CHECK_OK(weir_sleep(100)); /* the deadline of a closed scope does nothing any more */
    scope = open_timed("same memory", 1000);
    CHECK_OK(weir_sleep(100));
    return weir_scope_close(scope);
}

TEST(deadline_of_a_closed_scope_is_gone)
{
    test_clock_auto();
    CHECK_OK(run_on(1, deadline_not_needed, NULL));
}

/* On real clocks and two workers: the deadline's worker is not the task's. */
static int remote_sleep(void *arg)
{
    (void)arg;
    return weir_sleep(WEIR_FOREVER);
}

static int remote_deadlines(void *arg)
{
    (void)arg;
    for (int i = 0; i < 50; i++) {
        weir_scope *scope = open_timed("remote", 1 + i % 3);
        int spawned = 0;

        while (spawned < 5 && weir_task_spawn(scope,
                                              &(weir_task_spec){.fn = remote_sleep,
                                                                .place = WEIR_PLACE_WORKER,
                                                                .worker = spawned % 2},
                                              NULL) == 0)
            spawned++;
        /* On a busy machine the deadline may have passed before there was anybody to be reached. */
        CHECK_INT(weir_scope_close(scope), ==, spawned > 0 ? WEIR_ETIMEDOUT : 0);
    }
    return 0;
}

TEST(deadline_reaches_tasks_on_other_workers)
{
    CHECK_OK(run_on(2, remote_deadlines, NULL));
}

/* ---- Joining a scope: inside of a deadline, and while it is cancelled ---- */

struct slow_note {
    int64_t ended_ns;
    int cleaned_ms; /* how long it takes to clean up when it is cancelled */
};

static int sleep_long(void *arg)
{
    struct slow_note *note = *(struct slow_note **)arg;
    int r = weir_sleep(200);

    if (r < 0)
        WEIR_SHIELD(60000) CHECK_OK(weir_sleep(note->cleaned_ms));
    note->ended_ns = weir_now_ns();
    return r;
}

/* The deadline is inside of the scope: it is no business of the scope's tasks. */
static int join_within_deadline(void *arg)
{
    int64_t start_ns = weir_now_ns();
    struct slow_note note = {0};
    struct slow_note *pointer = &note;
    weir_scope *scope = open_scope("joined", WEIR_FAIL_FAST);
    weir_scope *inner;

    (void)arg;
    CHECK_OK(weir_spawn(scope, sleep_long, &pointer, sizeof pointer));
    for (int i = 1; i <= 2; i++) {
        WEIR_DEADLINE(50) {
            CHECK_INT(weir_scope_join(scope), ==, WEIR_ETIMEDOUT);
            CHECK_INT(weir_scope_join(scope), ==, WEIR_ETIMEDOUT); /* passed before it began */
        }
        CHECK_INT(weir_now_ns() - start_ns, ==, i * 50 * MS);
        CHECK_INT(weir_scope_task_count(scope), ==, 1);
    }
    inner = open_timed("between", 10);
    CHECK_INT(weir_scope_join(scope), ==, WEIR_ETIMEDOUT);
    CHECK_OK(weir_scope_close(inner));
    CHECK_INT(weir_now_ns() - start_ns, ==, 110 * MS);
    WEIR_DEADLINE(500) CHECK_OK(weir_scope_join(scope)); /* the task had its way */
    CHECK_INT(note.ended_ns - start_ns, ==, 200 * MS);
    return weir_scope_close(scope);
}

TEST(deadline_inside_a_scope_ends_its_join_and_the_tasks_go_on)
{
    test_clock_auto();
    CHECK_OK(run_on(1, join_within_deadline, NULL));
}

static void cancel_from_timer(weir_timer *timer, void *arg)
{
    (void)timer;
    weir_scope_cancel(arg, -EPIPE, "by a timer");
}

/* What ends the scope ends its tasks, and the join sees them end. */
static int join_while_cancelled(void *arg)
{
    int64_t start_ns = weir_now_ns();
    struct slow_note note = {.cleaned_ms = 300};
    struct slow_note *pointer = &note;
    weir_scope *outer = open_scope("outer", WEIR_FAIL_FAST);
    weir_scope *scope = open_scope("joined", WEIR_FAIL_FAST);
    weir_timer *timer;

    (void)arg;
    CHECK_OK(weir_spawn(scope, sleep_long, &pointer, sizeof pointer));
    CHECK_OK(weir_timer_open(
        outer, &(weir_timer_spec){.name = "t", .on_fire = cancel_from_timer, .keep_arg = scope},
        &timer));
    weir_timer_start(timer, 20);
    WEIR_DEADLINE(10000) CHECK_INT(weir_scope_join(scope), ==, -EPIPE);
    CHECK_INT(note.ended_ns - start_ns, ==, 320 * MS);
    CHECK_INT(weir_scope_task_count(scope), ==, 0);
    CHECK_INT(weir_scope_join(scope), ==, -EPIPE);
    CHECK_INT(weir_scope_close(scope), ==, -EPIPE);
    return weir_scope_close(outer);
}

static int join_after_own_deadline(void *arg)
{
    int64_t start_ns = weir_now_ns();
    struct slow_note note = {.cleaned_ms = 300};
    struct slow_note *pointer = &note;
    weir_scope *scope = open_timed("timed", 50);

    (void)arg;
    CHECK_OK(weir_spawn(scope, sleep_long, &pointer, sizeof pointer));
    CHECK_INT(weir_scope_join(scope), ==, WEIR_ETIMEDOUT);
    CHECK_INT(note.ended_ns - start_ns, ==, 350 * MS);
    CHECK_INT(weir_scope_close(scope), ==, WEIR_ETIMEDOUT);
    return 0;
}

TEST(join_of_a_cancelled_scope_waits_for_its_tasks)
{
    test_clock_auto();
    CHECK_OK(run_on(1, join_while_cancelled, NULL));
    CHECK_OK(run_on(1, join_after_own_deadline, NULL));
}
