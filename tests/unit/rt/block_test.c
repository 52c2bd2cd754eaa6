/* block_test.c - deadlines, shields and scopes as blocks: leaving them, what is in
 * force in them, and what they abort on. */
#include <errno.h>

#include "unit/rt/support.h"

#define MS INT64_C(1000000)

/* ---- Leaving a block by every way out: nothing of it stays in force ---- */

static void check_clean(void)
{
    CHECK_INT(weir_deadline_ns(), ==, WEIR_FOREVER);
    CHECK_OK(weir_sleep(50)); /* longer than any deadline below */
    CHECK_INT(weir_sleep(WEIR_FOREVER), ==, WEIR_ENODEADLINE);
}

static int return_out(int kind)
{
    switch (kind) {
    case 0:
        WEIR_DEADLINE(10) return 1;
        break;
    case 1:
        WEIR_SHIELD(10) return 1;
        break;
    case 2:
        WEIR_NO_DEADLINE("test") return 1;
        break;
    case 3:
        WEIR_DEADLINE(20) {
            WEIR_SHIELD(15) {
                WEIR_DEADLINE(10) return 1;
            }
        }
        break;
    }
    return 0;
}

static void break_out(int kind)
{
    WEIR_DEADLINE(20) {
        if (kind == 0) break;
        WEIR_SHIELD(15) {
            if (kind == 1) break;
            WEIR_NO_DEADLINE("test") {
                if (kind == 2) break;
                CHECK_INT(weir_deadline_ns(), <, INT64_MAX);
            }
        }
    }
}

static void continue_out(int kind)
{
    for (int i = 0; i < 3; i++) {
        WEIR_DEADLINE(20) {
            if (kind == 0) continue;
            WEIR_SHIELD(15) {
                if (kind == 1) continue;
                WEIR_NO_DEADLINE("test") {
                    if (kind == 2) continue;
                }
            }
        }
    }
}

static void goto_out(int kind)
{
    WEIR_DEADLINE(20) {
        if (kind == 0) goto out;
        WEIR_SHIELD(15) {
            if (kind == 1) goto out;
            WEIR_NO_DEADLINE("test") {
                if (kind == 2) goto out;
            }
        }
    }
    CHECK_INT(kind, ==, 3);
out:
    check_clean();
}

static int leave_every_way(void *arg)
{
    (void)arg;
    for (int kind = 0; kind < 4; kind++) {
        CHECK_INT(return_out(kind), ==, 1);
        check_clean();
        break_out(kind);
        check_clean();
        continue_out(kind);
        check_clean();
        goto_out(kind);
    }
    return 0;
}

TEST(blocks_may_be_left_by_return_break_continue_and_goto)
{
    test_clock_auto();
    CHECK_OK(run_on(1, leave_every_way, NULL));
}

#define SCOPE_SPEC \
    .name = "block", .on_failure = WEIR_FAIL_FAST, .max_tasks = 4, .overflow = WEIR_WAIT

static int sleep_a_little(void *arg)
{
    ++**(int **)arg;
    return weir_sleep(5);
}

static int scope_return(int *ran, int *result)
{
    WEIR_SCOPE(scope, result, SCOPE_SPEC) {
        CHECK_OK(weir_spawn(scope, sleep_a_little, &ran, sizeof ran));
        return 7;
    }
    return 0;
}

static int scope_goto(int *ran, int *result)
{
    WEIR_SCOPE(scope, result, SCOPE_SPEC) {
        CHECK_OK(weir_spawn(scope, sleep_a_little, &ran, sizeof ran));
        goto out;
    }
    return 0;
out:
    return 8;
}

static int leave_scopes(void *arg)
{
    int ran = 0, result = 1;
    int *pointer = &ran;

    (void)arg;
    CHECK_INT(scope_return(&ran, &result), ==, 7);
    CHECK_INT(ran, ==, 1); /* it was closed, so the task has ended */
    CHECK_OK(result);
    CHECK_INT(scope_goto(&ran, &result), ==, 8);
    CHECK_INT(ran, ==, 2);
    for (int i = 0; i < 2; i++) {
        result = 1;
        WEIR_SCOPE(scope, &result, SCOPE_SPEC) {
            CHECK_OK(weir_spawn(scope, sleep_a_little, &pointer, sizeof pointer));
            if (i == 0) break;
            continue;
        }
        CHECK_INT(ran, ==, 3 + i);
        CHECK_INT(result, ==, 0);
    }
    WEIR_SCOPE(scope, &result, SCOPE_SPEC) weir_scope_cancel(scope, -EIO, "the block's result");
    CHECK_INT(result, ==, -EIO);
    WEIR_SCOPE(scope, &result, .name = "refused") TEST_FAIL("%s", weir_scope_name(scope));
    CHECK_INT(result, ==, WEIR_EREFUSED);
    CHECK_STR(weir_why(), "scope 'refused': on_failure is not set");
    return 0;
}

TEST(scope_block_is_closed_however_it_is_left)
{
    test_clock_auto();
    CHECK_OK(run_on(1, leave_scopes, NULL));
}

static int deep_blocks(int depth)
{
    if (depth == 0) return weir_sleep(100);
    WEIR_DEADLINE(depth + 10) {
        int r = deep_blocks(depth - 1);

        /* Only the innermost one has passed. */
        CHECK_INT(weir_checkpoint(), ==, depth == 1 ? WEIR_ETIMEDOUT : 0);
        return r;
    }
    return 0;
}

static int nest_deeply(void *arg)
{
    (void)arg;
    CHECK_INT(deep_blocks(100), ==, WEIR_ETIMEDOUT);
    CHECK_OK(weir_checkpoint());
    return 0;
}

TEST(blocks_nest_a_hundred_deep)
{
    test_clock_auto();
    CHECK_OK(weir_run(&(weir_config){.workers = 1, .stack_bytes = 1024 * 1024}, nest_deeply, NULL));
}

/* ---- What is in force ---- */

static int level_triggered(void *arg)
{
    weir_scope *scope;

    (void)arg;
    WEIR_DEADLINE(10) {
        CHECK_INT(weir_sleep(20), ==, WEIR_ETIMEDOUT);
        for (int i = 0; i < 3; i++) {
            CHECK_INT(weir_sleep(1), ==, WEIR_ETIMEDOUT);
            CHECK_INT(weir_yield(), ==, WEIR_ETIMEDOUT);
            CHECK_INT(weir_checkpoint(), ==, WEIR_ETIMEDOUT);
            WEIR_DEADLINE(1000) CHECK_INT(weir_yield(), ==, WEIR_ECANCELED);
            WEIR_NO_DEADLINE("no way round") CHECK_INT(weir_yield(), ==, WEIR_ECANCELED);
            scope = open_scope("inside", WEIR_FAIL_FAST);
            CHECK_INT(weir_spawn(scope, return_argument, &i, sizeof i), ==, WEIR_ECANCELED);
            CHECK_OK(weir_scope_close(scope));
        }
    }
    CHECK_OK(weir_yield());
    CHECK_OK(weir_sleep(1));
    WEIR_DEADLINE(0) CHECK_INT(weir_yield(), ==, WEIR_ETIMEDOUT);
    WEIR_DEADLINE(-1) CHECK_INT(weir_checkpoint(), ==, WEIR_ETIMEDOUT);
    WEIR_DEADLINE(WEIR_FOREVER) CHECK_OK(weir_checkpoint());
    return 0;
}

TEST(passed_deadline_fails_every_call_until_the_block_is_left)
{
    test_clock_auto();
    CHECK_OK(run_on(1, level_triggered, NULL));
}

static int shielded(void *arg)
{
    weir_scope *scope = open_scope("cancelled", WEIR_FAIL_FAST);

    (void)arg;
    weir_scope_cancel(scope, 0, "now");
    CHECK_INT(weir_yield(), ==, WEIR_ECANCELED);
    WEIR_SHIELD(30) {
        int64_t start_ns = weir_now_ns();

        CHECK_INT(weir_cause(NULL), ==, WEIR_CAUSE_NONE);
        CHECK_INT(weir_deadline_ns(), ==, start_ns + 30 * MS);
        CHECK_OK(weir_sleep(20));
        WEIR_DEADLINE(5) CHECK_INT(weir_sleep(6), ==, WEIR_ETIMEDOUT); /* its own, inside */
        /* At its bound the shield is gone: cancelled from outside. */
        CHECK_INT(weir_sleep(20), ==, WEIR_ECANCELED);
        CHECK_INT(weir_now_ns() - start_ns, ==, 30 * MS);
        CHECK_INT(weir_cause(NULL), ==, WEIR_CAUSE_CANCEL);
    }
    CHECK_INT(weir_yield(), ==, WEIR_ECANCELED);
    CHECK_OK(weir_scope_close(scope));
    /* With nothing outside to be shielded from, its bound is a deadline of its own. */
    WEIR_SHIELD(5) CHECK_INT(weir_sleep(6), ==, WEIR_ETIMEDOUT);
    WEIR_DEADLINE(10) {
        WEIR_SHIELD(100) { CHECK_OK(weir_sleep(50)); /* beyond the deadline outside */ }
        CHECK_INT(weir_yield(), ==, WEIR_ETIMEDOUT);
    }
    return 0;
}

TEST(shield_masks_cancels_and_deadlines_until_its_bound)
{
    test_clock_auto();
    CHECK_OK(run_on(1, shielded, NULL));
}

static int work_in_shielded_scope(void *arg)
{
    CHECK_OK(weir_sleep(10));
    ++**(int **)arg;
    return 0;
}

static int scope_in_shield(void *arg)
{
    int cleaned = 0;
    int *pointer = &cleaned;
    weir_scope *scope = open_scope("cancelled", WEIR_FAIL_FAST);

    (void)arg;
    weir_scope_cancel(scope, 0, "now");
    WEIR_SHIELD(100) {
        weir_scope *cleanup = open_scope("cleanup", WEIR_FAIL_FAST);

        CHECK_OK(weir_spawn(cleanup, work_in_shielded_scope, &pointer, sizeof pointer));
        CHECK_OK(weir_scope_close(cleanup));
    }
    CHECK_INT(cleaned, ==, 1);
    return weir_scope_close(scope);
}

TEST(scope_opened_in_a_shield_runs_its_tasks)
{
    test_clock_auto();
    CHECK_OK(run_on(1, scope_in_shield, NULL));
}

/* A shield that was entered before the cancel came, from another worker. */
static int shield_then_wait(void *arg)
{
    struct {
        ATOM(int) shielded;
        ATOM(int) cancelled;
    } *shared = *(void **)arg;

    WEIR_SHIELD(60000) {
        atom_store(&shared->shielded, 1);
        await_flag(&shared->cancelled);
        CHECK_OK(weir_sleep(1));
    }
    CHECK_INT(weir_yield(), ==, WEIR_ECANCELED);
    return WEIR_ECANCELED;
}

static int cancel_shielded(void *arg)
{
    struct {
        ATOM(int) shielded;
        ATOM(int) cancelled;
    } shared = {0};
    void *pointer = &shared;
    weir_scope *scope = open_scope("shielded", WEIR_FAIL_FAST);
    weir_task task =
        spawn_at(scope, weir_worker_count() - 1, "s", shield_then_wait, &pointer, sizeof pointer);

    (void)arg;
    await_flag(&shared.shielded);
    CHECK_OK(weir_task_cancel(task, "while shielded"));
    atom_store(&shared.cancelled, 1);
    return weir_scope_close(scope);
}

TEST(cancel_that_comes_during_a_shield_waits_for_its_end)
{
    CHECK_OK(run_on(1, cancel_shielded, NULL));
    CHECK_OK(run_on(2, cancel_shielded, NULL));
}

static int no_deadline_is_not_inherited(void *arg)
{
    (void)arg;
    CHECK_INT(weir_sleep(WEIR_FOREVER), ==, WEIR_ENODEADLINE);
    return 0;
}

static int permission(void *arg)
{
    (void)arg;
    WEIR_NO_DEADLINE("a test") {
        weir_scope *scope = open_scope("inside", WEIR_FAIL_FAST);

        CHECK_OK(weir_spawn(scope, no_deadline_is_not_inherited, NULL, 0));
        CHECK_OK(weir_scope_close(scope));
        WEIR_SHIELD(5) CHECK_INT(weir_sleep(WEIR_FOREVER), ==, WEIR_ETIMEDOUT);
    }
    CHECK_INT(weir_sleep(WEIR_FOREVER), ==, WEIR_ENODEADLINE);
    return 0;
}

TEST(no_deadline_holds_in_its_task_and_block_only)
{
    test_clock_auto();
    CHECK_OK(run_on(1, permission, NULL));
}

/* ---- The cause as seen from other workers ---- */

struct cause_check {
    ATOM(int) stop;
    ATOM(int) looked;
};

static int look_at_cause(void *arg)
{
    struct cause_check *check = *(struct cause_check **)arg;

    CHECK_INT(sleep_until_cancelled(NULL), ==, WEIR_ECANCELED);
    while (!atom_load_acquire(&check->stop)) {
        weir_cause_info info;

        CHECK_INT(weir_cause(&info), ==, WEIR_CAUSE_CANCEL);
        CHECK_STR(info.scope, "outermost");
        (void)atom_add(&check->looked, 1);
        CHECK_INT(weir_yield(), ==, WEIR_ECANCELED);
    }
    return WEIR_ECANCELED;
}

/* While others look at the cause, the signals of the blocks in between change. */
static int change_signals(void *arg)
{
    struct cause_check check = {0};
    struct cause_check *pointer = &check;
    int rounds = *(int *)arg;
    weir_scope *outermost = open_scope("outermost", WEIR_FAIL_FAST);

    WEIR_DEADLINE(3600000) {
        weir_scope *inner = open_scope("inner", WEIR_FAIL_FAST);

        spawn_at(inner, 1, "looker", look_at_cause, &pointer, sizeof pointer);
        weir_scope_cancel(outermost, 0, "for good");
        WEIR_SHIELD(3600000) {
            while (atom_load_acquire(&check.looked) == 0) CHECK_OK(weir_yield());
            for (int i = 0; i < rounds; i++) {
                weir_scope *scope = open_scope("brief", WEIR_FAIL_FAST);

                weir_scope_cancel(scope, 0, "makes the opener look at its blocks");
                CHECK_OK(weir_scope_close(scope));
            }
        }
        atom_store(&check.stop, 1);
        CHECK_INT(weir_scope_close(inner), ==, WEIR_ECANCELED);
    }
    return weir_scope_close(outermost);
}

TEST(cause_is_right_on_another_worker_while_signals_change)
{
    int rounds = TEST_SLOW ? 5000 : 200000;

    CHECK_OK(run_on(2, change_signals, &rounds));
}

/* ---- Misuse ---- */

static int unbounded_shield(void *arg)
{
    (void)arg;
    WEIR_SHIELD(WEIR_FOREVER) return 1;
    return 0;
}

static int reasonless(void *arg)
{
    (void)arg;
    WEIR_NO_DEADLINE("") return 1;
    return 0;
}

static int block_with_open_scope(void *arg)
{
    weir_scope *scope = NULL;

    (void)arg;
    WEIR_DEADLINE(1000) scope = open_scope("left open", WEIR_FAIL_FAST);
    return weir_scope_close(scope);
}

static int returned_in_block(void *arg)
{
    static weir_block block; /* entered without its macro, so that nothing leaves it */

    (void)arg;
    (void)weir_deadline_enter(&block, 1000, "main.c:1");
    return 3;
}

static void run_misuse(void *arg)
{
    weir_task_fn fn = (weir_task_fn)(uintptr_t)arg;

    (void)run_on(1, fn, NULL);
}

static void outside(void *arg)
{
    (void)arg;
    WEIR_DEADLINE(1) return;
}

#define CHECK_MISUSE(fn, sentence) CHECK_ABORTS(run_misuse, (void *)(uintptr_t)(fn), sentence)

TEST(misused_block_aborts_with_a_sentence_that_names_its_place)
{
    CHECK_MISUSE(unbounded_shield, "WEIR_SHIELD at tests/unit/rt/block_test.c:");
    CHECK_MISUSE(unbounded_shield, ": cleanup needs a bound");
    CHECK_MISUSE(reasonless, "WEIR_NO_DEADLINE at tests/unit/rt/block_test.c:");
    CHECK_MISUSE(reasonless, ": say why this may wait for ever");
    CHECK_MISUSE(block_with_open_scope, "the block at tests/unit/rt/block_test.c:");
    CHECK_MISUSE(block_with_open_scope, " is left while scope 'left open' opened at ");
    CHECK_MISUSE(returned_in_block,
                 "task 'main' returned 3 with WEIR_DEADLINE at main.c:1 still open");
    CHECK_ABORTS(outside, NULL, " is outside a task: blocks belong to tasks");
}

/* ---- What was cancelled and is left was not ignored ---- */

static int cancel_often(void *arg)
{
    (void)arg;
    for (int i = 0; i < 3000; i++) {
        weir_scope *scope = open_scope("brief", WEIR_FAIL_FAST);
        weir_scope_cancel(scope, 0, "over");
        CHECK_INT(weir_checkpoint(), ==, WEIR_ECANCELED);
        CHECK_OK(weir_scope_close(scope));
    }
    return 0;
}

TEST(task_that_leaves_what_was_cancelled_has_ignored_nothing)
{
    struct capture capture;

    CHECK_OK(run_logged(1, WEIR_LOG_WARNING, &capture, cancel_often, NULL));
    CHECK_INT(capture.count, ==, 0);
}
