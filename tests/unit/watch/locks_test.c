/* locks_test.c - locks: held across a suspension, in both orders, twice, at the end of a task. */
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

#include "harness/test.h"
#include "unit/flow/flow_test.h"

/* Calls that the reports must name: not inlined. */
#define NAMED __attribute__((noinline))

struct pair {
    weir_mutex *a, *b, *c;
    weir_rwlock *lock;
    bool fault;
};

static int run(weir_task_fn fn, bool fault)
{
    weir_config config = {.workers = test_workers(), .log_level = WEIR_LOG_OFF};
    return weir_run(&config, fn, &fault);
}

/* With the fault it is reported once with these words; without it nothing is. */
static void check_reported(weir_task_fn fn, int kind, const char *const *words)
{
    test_checks_expected();
    CHECK_OK(run(fn, false));
    CHECK_STR(test_check_text(0), "");
    CHECK_OK(run(fn, true));
    test_note("%s", test_check_text(kind));
    CHECK_INT(test_checks(kind), ==, 1);
    CHECK_INT(test_checks(0), ==, 1);
    for (; *words; words++) CHECK_CONTAINS(test_check_text(kind), *words);
}

#define SCOPE(scope_, ret_)                                                                  \
    WEIR_SCOPE(scope_, ret_, .name = "locks", .on_failure = WEIR_FAIL_FAST, .max_tasks = 16, \
               .overflow = WEIR_REJECT)

/* ---- Across a suspension ---- */

NAMED static int rest(void)
{
    int r = weir_yield();
    __asm__ volatile("" ::: "memory"); /* no tail call */
    return r;
}

NAMED static int take_ledger(weir_mutex *mutex)
{
    int r = weir_mutex_lock(mutex);
    __asm__ volatile("" ::: "memory");
    return r;
}

NAMED static void one_round(weir_mutex *mutex, bool fault)
{
    CHECK_OK(take_ledger(mutex));
    if (fault) CHECK_OK(rest());
    weir_mutex_unlock(mutex);
    CHECK_OK(rest());
}

static int suspend_inside(void *arg)
{
    bool fault = *(bool *)arg;
    weir_mutex *mutex;
    int result;

    SCOPE(scope, &result)
    {
        CHECK_OK(weir_mutex_open(scope, "ledger", &mutex));
        for (int i = 0; i < 3; i++) one_round(mutex, fault); /* said once */
        one_round(mutex, fault);                             /* the same places from elsewhere */
    }
    return result;
}

TEST(lock_across_a_yield_is_reported_with_both_places)
{
    static const char *const words[] = {"task 'main' #",
                                        "holds mutex 'ledger' (taken at take_ledger",
                                        "at weir_yield", "at rest+", NULL};
    check_reported(suspend_inside, WEIR_CHECK_ACROSS, words);
}

/* A call that need not wait is a suspension all the same: the fault shows whenever it runs. */
static int receive_inside(void *arg)
{
    bool fault = *(bool *)arg;
    weir_rwlock *lock;
    int_tx tx;
    int_rx rx;
    int result, one = 1;

    SCOPE(scope, &result)
    {
        weir_chan_spec spec = {
            .name = "c", .capacity = 4, .overflow = WEIR_WAIT, .on_close = WEIR_DRAIN};
        CHECK_OK(weir_chan_open(scope, &spec, &tx, &rx));
        CHECK_OK(weir_rwlock_open(scope, "table", &lock));
        CHECK_OK(weir_send(tx, &one));
        CHECK_OK(weir_rwlock_read(lock));
        if (fault) CHECK_OK(weir_recv(rx, &one));
        weir_rwlock_unlock(lock);
        if (!fault) CHECK_OK(weir_recv(rx, &one));
    }
    return result;
}

TEST(lock_across_a_receive_that_finds_an_item_is_reported)
{
    static const char *const words[] = {"holds read-write lock 'table' (taken at receive_inside",
                                        "recv", "at receive_inside", NULL};
    check_reported(receive_inside, WEIR_CHECK_ACROSS, words);
}

/* The end of a scope waits for its tasks: a suspension like others. On the smallest stack. */
static int close_inside(void *arg)
{
    struct pair *pair = *(struct pair **)arg;
    int result;

    SCOPE(scope, &result)
    {
        CHECK_OK(weir_mutex_lock(pair->a));
        if (!pair->fault) weir_mutex_unlock(pair->a);
    }
    if (pair->fault) weir_mutex_unlock(pair->a);
    return result;
}

static int spawn_close_inside(void *arg)
{
    struct pair pair = {.fault = *(bool *)arg}, *pointer = &pair;
    int result;

    SCOPE(scope, &result)
    {
        CHECK_OK(weir_mutex_open(scope, "m", &pair.a));
        CHECK_OK(weir_task_spawn(scope,
                                 &(weir_task_spec){.fn = close_inside,
                                                   .arg = &pointer,
                                                   .arg_bytes = sizeof pointer,
                                                   .name = "closes",
                                                   .stack_bytes = WEIR_STACK_BYTES_MIN},
                                 NULL));
    }
    return result;
}

TEST(lock_across_the_end_of_a_scope_is_reported)
{
    static const char *const words[] = {"task 'closes' #", "holds mutex 'm' (taken at close_inside",
                                        "scope", "at close_inside", NULL};
    check_reported(spawn_close_inside, WEIR_CHECK_ACROSS, words);
}

static int suspend_where_it_may(void *arg)
{
    weir_mutex *mutex;
    weir_rwlock *lock;
    int result;

    (void)arg;
    SCOPE(scope, &result)
    {
        CHECK_OK(weir_mutex_open(scope, "m", &mutex));
        CHECK_OK(weir_rwlock_open(scope, "l", &lock));
        weir_mutex_may_suspend(mutex, "the test says so");
        weir_rwlock_may_suspend(lock, "the test says so");
        CHECK_OK(weir_mutex_lock(mutex));
        CHECK_OK(weir_rwlock_write(lock));
        CHECK_OK(weir_yield());
        weir_rwlock_unlock(lock);
        weir_mutex_unlock(mutex);
    }
    return result;
}

TEST(lock_that_may_be_held_across_suspensions_is_not_reported)
{
    CHECK_OK(run(suspend_where_it_may, false));
}

TEST(checks_that_are_off_find_nothing)
{
    bool fault = true;
    weir_config config = {.workers = test_workers(),
                          .log_level = WEIR_LOG_OFF,
                          .lock_checks = WEIR_CHECKS_OFF,
                          .deadlock_checks = WEIR_CHECKS_OFF};
    CHECK_OK(weir_run(&config, suspend_inside, &fault));
}

/* ---- Order ---- */

NAMED static int first_then_second(weir_mutex *first, weir_mutex *second)
{
    int r = weir_mutex_lock(first);
    if (r < 0) return r;
    r = weir_mutex_lock(second);
    if (r == 0) weir_mutex_unlock(second);
    weir_mutex_unlock(first);
    return r;
}

static int forwards(void *arg)
{
    struct pair *pair = *(struct pair **)arg;
    int r = first_then_second(pair->a, pair->b);
    __asm__ volatile("" ::: "memory");
    return r;
}

static int backwards(void *arg)
{
    struct pair *pair = *(struct pair **)arg;
    int r = first_then_second(pair->fault ? pair->b : pair->a, pair->fault ? pair->a : pair->b);
    __asm__ volatile("" ::: "memory");
    return r;
}

static int join(weir_scope *scope, weir_task_fn fn, const char *name, struct pair *pair)
{
    weir_task task;
    weir_task_spec spec = {.fn = fn, .arg = &pair, .arg_bytes = sizeof(pair), .name = name};
    int r = weir_task_spawn(scope, &spec, &task);
    return r < 0 ? r : weir_task_join(task, NULL);
}

static int invert(void *arg)
{
    struct pair pair = {.fault = *(bool *)arg};
    int result;

    SCOPE(scope, &result)
    {
        CHECK_OK(weir_mutex_open(scope, "a", &pair.a));
        CHECK_OK(weir_mutex_open(scope, "b", &pair.b));
        CHECK_OK(join(scope, forwards, "one", &pair));
        CHECK_OK(join(scope, backwards, "two", &pair));
        CHECK_OK(join(scope, backwards, "again", &pair));
    }
    return result;
}

TEST(order_inversion_is_reported_on_first_sight_with_both_stacks)
{
    static const char *const words[] = {
        "lock order: mutex 'b' and mutex 'a' are taken in both orders",
        "task 'two' #",
        "takes mutex 'a' while it holds mutex 'b' (taken at first_then_second",
        "at first_then_second",
        "at backwards",
        "task 'one' #",
        "took mutex 'b' while it held mutex 'a'",
        "at forwards",
        NULL};
    check_reported(invert, WEIR_CHECK_ORDER, words);
}

/* Locks of one class, made at one place, are told apart. */
static int invert_alike(void *arg)
{
    struct pair pair = {.fault = *(bool *)arg};
    weir_mutex *accounts[3];
    int result;

    SCOPE(scope, &result)
    {
        for (int i = 0; i < 3; i++) CHECK_OK(weir_mutex_open(scope, "account", &accounts[i]));
        CHECK_OK(first_then_second(accounts[0], accounts[1]));
        CHECK_OK(first_then_second(accounts[1], accounts[2]));
        if (pair.fault) {
            CHECK_OK(first_then_second(accounts[2], accounts[0]));
        } else {
            CHECK_OK(first_then_second(accounts[0], accounts[2]));
        }
    }
    return result;
}

TEST(order_inversion_around_three_locks_of_one_name_is_reported)
{
    static const char *const words[] = {"mutex 'account' and mutex 'account'",
                                        "with others between", NULL};
    check_reported(invert_alike, WEIR_CHECK_ORDER, words);
}

/* A lock that is closed leaves nothing behind that a new one could invert. */
static int open_and_close(void *arg)
{
    int result;

    (void)arg;
    SCOPE(scope, &result)
    {
        for (int i = 0; i < 200; i++) {
            weir_mutex *one[2];
            for (int k = 0; k < 2; k++) CHECK_OK(weir_mutex_open(scope, "short", &one[k]));
            CHECK_OK(first_then_second(one[i % 2], one[1 - i % 2]));
            for (int k = 0; k < 2; k++) weir_mutex_close(one[k]);
        }
    }
    return result;
}

TEST(order_of_locks_that_are_gone_is_forgotten)
{
    CHECK_OK(run(open_and_close, false));
}

/* More classes and pairs than are kept: said once, and nothing is wrong. */
static char full_said[256];
static void keep_full(void *keep_arg, const weir_log_record *record)
{
    (void)keep_arg;
    if (strstr(record->message, "order of locks is not watched any further")) {
        CHECK_STR(full_said, "");
        (void)snprintf(full_said, sizeof full_said, "%s", record->message);
    }
}

static int open_many(void *arg)
{
    enum { MANY = 1100 };
    weir_mutex *outer;
    int result;

    (void)arg;
    SCOPE(scope, &result)
    {
        CHECK_OK(weir_mutex_open(scope, "outer", &outer));
        for (int i = 0; i < MANY; i++) {
            char name[16];
            weir_mutex *mutex;
            (void)snprintf(name, sizeof name, "m%d", i);
            CHECK_OK(weir_mutex_open(scope, name, &mutex));
            CHECK_OK(first_then_second(outer, mutex));
            weir_mutex_close(mutex);
        }
    }
    return result;
}

TEST(order_of_more_locks_than_are_kept_is_not_watched_and_that_is_said)
{
    weir_config config = {.workers = 1, .log = keep_full, .log_level = WEIR_LOG_WARNING};
    CHECK_OK(weir_run(&config, open_many, NULL));
    CHECK_CONTAINS(full_said, "1024");
}

static int alloc_scenario(void *arg)
{
    bool fault = true;
    weir_config config = {.workers = 1, .log_level = WEIR_LOG_OFF};
    (void)arg;
    return weir_run(&config, invert, &fault);
}

static int tolerant_invert(void *arg)
{
    struct pair pair = {.fault = true}, *pointer = &pair;
    int result, r = 0;

    (void)arg;
    SCOPE(scope, &result)
    {
        r = weir_mutex_open(scope, "a", &pair.a);
        if (r == 0) r = weir_mutex_open(scope, "b", &pair.b);
        if (r == 0) r = forwards(&pointer);
        if (r == 0) r = backwards(&pointer);
    }
    return r < 0 ? r : result;
}

static int alloc_tolerant(void *arg)
{
    weir_config config = {.workers = 1, .log_level = WEIR_LOG_OFF};
    (void)arg;
    return weir_run(&config, tolerant_invert, NULL);
}

TEST(order_inversion_survives_the_lack_of_memory)
{
    test_checks_expected();
    CHECK_OK(alloc_scenario(NULL));
    CHECK_INT(test_sweep_alloc(alloc_tolerant, NULL), >, 8);
}

/* ---- Recursion ---- */

static int take_twice(void *arg)
{
    bool fault = *(bool *)arg;
    weir_mutex *mutex;
    int result;

    SCOPE(scope, &result)
    {
        CHECK_OK(weir_mutex_open(scope, "m", &mutex));
        CHECK_OK(take_ledger(mutex));
        if (fault) CHECK_INT(weir_mutex_lock(mutex), ==, WEIR_EREFUSED);
        weir_mutex_unlock(mutex);
    }
    return result;
}

TEST(mutex_that_is_taken_twice_is_refused_and_reported)
{
    static const char *const words[] = {"lock taken twice: task 'main' #",
                                        "has mutex 'm' (taken at take_ledger", "which is refused",
                                        "at take_twice+", NULL};
    check_reported(take_twice, WEIR_CHECK_RECURSION, words);
}

static int write_while_reading(void *arg)
{
    bool fault = *(bool *)arg;
    weir_rwlock *lock;
    int result;

    SCOPE(scope, &result)
    {
        CHECK_OK(weir_rwlock_open(scope, "l", &lock));
        CHECK_OK(weir_rwlock_read(lock));
        if (fault) {
            CHECK_INT(weir_rwlock_write(lock), ==, WEIR_EREFUSED);
            CHECK_CONTAINS(weir_why(), "for reading already");
        }
        weir_rwlock_unlock(lock);
        CHECK_OK(weir_rwlock_write(lock));
        weir_rwlock_unlock(lock);
    }
    return result;
}

TEST(reader_that_wants_to_write_is_refused_instead_of_waiting_for_itself)
{
    static const char *const words[] = {"has read-write lock 'l' (taken at write_while_reading",
                                        "which is refused", NULL};
    check_reported(write_while_reading, WEIR_CHECK_RECURSION, words);
}

static int read_twice(void *arg)
{
    bool fault = *(bool *)arg;
    weir_rwlock *lock;
    int result;

    SCOPE(scope, &result)
    {
        CHECK_OK(weir_rwlock_open(scope, "l", &lock));
        CHECK_OK(weir_rwlock_read(lock));
        if (fault) {
            CHECK_OK(weir_rwlock_read(lock));
            weir_rwlock_unlock(lock);
        }
        weir_rwlock_unlock(lock);
        CHECK_OK(weir_rwlock_write(lock));
        weir_rwlock_unlock(lock);
    }
    return result;
}

TEST(reader_that_reads_twice_is_reported)
{
    static const char *const words[] = {"blocks as soon as a writer waits between", NULL};
    check_reported(read_twice, WEIR_CHECK_RECURSION, words);
}

/* ---- Ends ---- */

static int end_with_it(void *arg)
{
    struct pair *pair = *(struct pair **)arg;
    int r = weir_mutex_lock(pair->a);
    if (r == 0 && !pair->fault) weir_mutex_unlock(pair->a);
    return r;
}

static int end_holding(void *arg)
{
    struct pair pair = {.fault = *(bool *)arg}, *pointer = &pair;
    int result;

    SCOPE(scope, &result)
    {
        CHECK_OK(weir_mutex_open(scope, "m", &pair.a));
        CHECK_OK(join(scope, end_with_it, "forgets", pointer));
        if (pair.fault) {
            /* The mutex ends with its scope, which aborts: so look before that. */
            CHECK_INT(test_checks(WEIR_CHECK_LEAK), ==, 1);
            CHECK_CONTAINS(test_check_text(WEIR_CHECK_LEAK), "task 'forgets' #");
            CHECK_CONTAINS(test_check_text(WEIR_CHECK_LEAK),
                           "has ended with mutex 'm' (taken at end_with_it");
            printf("reported\n");
            fflush(stdout);
        }
    }
    return result;
}

static void end_holding_child(void *arg)
{
    (void)arg;
    test_checks_expected();
    (void)run(end_holding, true);
}

TEST(task_that_ends_with_a_lock_is_reported)
{
    CHECK_OK(run(end_holding, false));
    CHECK_INT(test_checks(0), ==, 0);
    CHECK_ABORTS(end_holding_child, NULL, "reported");
    CHECK_ABORTS(end_holding_child, NULL, "mutex 'm' ends while task");
}
