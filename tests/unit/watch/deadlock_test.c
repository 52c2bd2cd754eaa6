/* deadlock_test.c - tasks that wait for each other, and for what nobody will do. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weir/weir.h>

#include "harness/test.h"
#include "rt/runtime.h"
#include "unit/flow/flow_test.h"

/* Calls that the reports must name: not inlined, and no tail calls. */
#define NAMED __attribute__((noinline))
#define KEEP_FRAME() __asm__ volatile("" ::: "memory")

/* Time jumps while nothing can run, so nothing here really waits: these are only bounds. */
enum { STEP_MS = 500, STEPS_MAX = 20000, QUIET_STEPS = 12 };

/* What the tasks of a test share; each waits at `meet` until all are there, so that the fault
 * always comes about. */
struct shared {
    bool fault;
    int parties;
    ATOM(int) there;
    weir_event *met, *broken;
    weir_mutex *a, *b;
    weir_rwlock *lock;
    weir_semaphore *s, *t;
    weir_actor *actor;
    weir_once once;
    weir_task tasks[3];
    int_tx tx[2];
    int_rx rx[2];
};

static void arrive(struct shared *shared)
{
    if (atom_add(&shared->there, 1) + 1 == shared->parties) weir_event_set(shared->met);
}

static int meet(struct shared *shared)
{
    arrive(shared);
    return weir_event_wait(shared->met);
}

NAMED static int lock_both(struct shared *shared, weir_mutex *first, weir_mutex *second)
{
    int r = weir_mutex_lock(first);
    if (r < 0) return r;
    r = shared->fault ? meet(shared) : 0;
    if (r == 0) r = weir_mutex_lock(second);
    if (r == 0) weir_mutex_unlock(second);
    weir_mutex_unlock(first);
    KEEP_FRAME();
    return r;
}

/* ---- A runtime in which others go on ---- */

typedef int (*party_fn)(struct shared *shared);

struct plan {
    party_fn parties[4]; /* the last is NULL */
    int (*prepare)(struct shared *shared, weir_scope *scope);
    bool expected; /* with the fault; else wait for the inversion that leads to it */
};

struct party {
    struct shared *shared;
    party_fn fn;
};

static int attend(void *arg)
{
    struct party *party = arg;
    int r = party->fn(party->shared);
    /* Who is cancelled in the end has done what it could. */
    return r == WEIR_ECANCELED ? 0 : r;
}

static int prepare(struct shared *shared, weir_scope *scope, const struct plan *plan)
{
    CHECK_OK(weir_event_open(scope, "met", &shared->met));
    CHECK_OK(weir_mutex_open(scope, "a", &shared->a));
    CHECK_OK(weir_mutex_open(scope, "b", &shared->b));
    CHECK_OK(weir_rwlock_open(scope, "l", &shared->lock));
    weir_mutex_may_suspend(shared->a, "it is what the test is about");
    weir_mutex_may_suspend(shared->b, "it is what the test is about");
    weir_rwlock_may_suspend(shared->lock, "it is what the test is about");
    return plan->prepare ? plan->prepare(shared, scope) : 0;
}

static void spawn_parties(struct shared *shared, weir_scope *scope, const struct plan *plan)
{
    static const char *const names[] = {"one", "two", "three"};

    /* The one who knows who they are is one of them. */
    for (shared->parties = 1; plan->parties[shared->parties - 1]; shared->parties++) {}
    for (int i = 0; i < shared->parties - 1; i++) {
        struct party party = {shared, plan->parties[i]};
        weir_task task;
        CHECK_OK(weir_task_spawn(scope,
                                 &(weir_task_spec){.fn = attend,
                                                   .arg = &party,
                                                   .arg_bytes = sizeof party,
                                                   .name = names[i],
                                                   .place = WEIR_PLACE_WORKER,
                                                   .worker = i % weir_worker_count()},
                                 &task));
        shared->tasks[i] = task;
    }
    arrive(shared);
}

static int deadlocks(void)
{
    return test_checks(WEIR_CHECK_DEADLOCK) + test_checks(WEIR_CHECK_LEAK);
}

static int watch_plan(void *arg)
{
    const struct plan *plan = ((void **)arg)[0];
    struct shared shared = {.fault = *(bool *)((void **)arg)[1]};
    int before = deadlocks(), steps = 0, result;

    WEIR_SCOPE(scope, &result, .name = "parties", .on_failure = WEIR_FAIL_FAST, .max_tasks = 16,
               .overflow = WEIR_REJECT) {
        CHECK_OK(prepare(&shared, scope, plan));
        spawn_parties(&shared, scope, plan);
        while (shared.fault && !plan->expected && test_checks(WEIR_CHECK_ORDER) == 0) {
            CHECK_OK(weir_yield());
        }
        while (deadlocks() == before &&
               steps++ < (shared.fault && plan->expected ? STEPS_MAX : QUIET_STEPS)) {
            CHECK_OK(weir_sleep(STEP_MS));
        }
        /* It is said once. */
        for (int i = 0; i < 4; i++) CHECK_OK(weir_sleep(STEP_MS));
        weir_scope_cancel(scope, 0, "the test is over");
    }
    return result;
}

static void run_plan(const struct plan *plan, bool fault)
{
    weir_config config = {.workers = test_workers(), .log_level = WEIR_LOG_OFF};
    const void *arg[2] = {plan, &fault};
    int r = weir_run(&config, watch_plan, arg);

    if (r != WEIR_ECANCELED) CHECK_OK(r);
}

/* With the fault it is reported once, with these words; without it not. */
static void check_found(const struct plan *plan, int kind, const char *const *words)
{
    test_clock_auto();
    test_checks_expected();
    run_plan(plan, false);
    CHECK_INT(deadlocks(), ==, 0);
    run_plan(plan, true);
    test_note("%s", test_check_text(kind));
    CHECK_INT(test_checks(kind), ==, 1);
    CHECK_INT(deadlocks(), ==, 1);
    for (; *words; words++) CHECK_CONTAINS(test_check_text(kind), *words);
}

/* ---- Locks ---- */

static int a_then_b(struct shared *shared)
{
    return lock_both(shared, shared->a, shared->b);
}

static int b_then_a(struct shared *shared)
{
    return lock_both(shared, shared->fault ? shared->b : shared->a,
                     shared->fault ? shared->a : shared->b);
}

TEST(two_tasks_that_take_two_locks_crosswise_are_a_deadlock)
{
    static const struct plan plan = {.parties = {a_then_b, b_then_a}, .expected = true};
    static const char *const words[] = {
        "deadlock: task 'one' #", "waits for mutex 'b', held by task 'two' #",
        "at lock_both",           "(taken at lock_both",
        "task 'two' #",           "waits for mutex 'a', held by task 'one' #",
        "the first again",        NULL};
    check_found(&plan, WEIR_CHECK_DEADLOCK, words);
}

/* One with a deadline gives up some time: nobody waits for ever. */
static int b_then_a_for_a_while(struct shared *shared)
{
    int r = WEIR_EREFUSED;
    WEIR_DEADLINE(INT64_C(1000000000000)) { r = b_then_a(shared); }
    return r == WEIR_ETIMEDOUT ? 0 : r;
}

TEST(cycle_with_a_deadline_in_it_is_not_a_deadlock)
{
    static const struct plan plan = {.parties = {a_then_b, b_then_a_for_a_while}};

    test_clock_auto();
    test_checks_expected();
    run_plan(&plan, true);
    CHECK_INT(deadlocks(), ==, 0);
    CHECK_INT(test_checks(WEIR_CHECK_ORDER), ==, 1); /* which it is all the same */
}

static int read_then_b(struct shared *shared)
{
    int r = weir_rwlock_read(shared->lock);
    if (r < 0) return r;
    if (shared->fault) r = meet(shared);
    if (r == 0) r = weir_mutex_lock(shared->b);
    if (r == 0) weir_mutex_unlock(shared->b);
    weir_rwlock_unlock(shared->lock);
    return r;
}

static int b_then_write(struct shared *shared)
{
    int r = shared->fault ? weir_mutex_lock(shared->b) : 0;
    if (r < 0) return r;
    if (shared->fault) r = meet(shared);
    if (r == 0) r = weir_rwlock_write(shared->lock);
    if (r == 0) weir_rwlock_unlock(shared->lock);
    if (shared->fault) weir_mutex_unlock(shared->b);
    return r;
}

TEST(reader_and_writer_that_wait_for_each_other_are_a_deadlock)
{
    static const struct plan plan = {.parties = {read_then_b, b_then_write}, .expected = true};
    static const char *const words[] = {"waits for mutex 'b', held by task 'two' #",
                                        "waits for read-write lock 'l', held by task 'one' #",
                                        NULL};
    check_found(&plan, WEIR_CHECK_DEADLOCK, words);
}

/* ---- Permits ---- */

static int open_permits(struct shared *shared, weir_scope *scope)
{
    weir_semaphore_spec spec = {
        .name = "s", .permits = 2, .overflow = WEIR_WAIT, .waiters_max = 4, .taker_releases = true};
    int r = weir_semaphore_open(scope, &spec, &shared->s);
    spec.name = "t";
    return r < 0 ? r : weir_semaphore_open(scope, &spec, &shared->t);
}

static int take_permits(struct shared *shared, weir_semaphore *first, weir_semaphore *second)
{
    int r = weir_semaphore_acquire(first, 2);
    if (r < 0) return r;
    r = shared->fault ? meet(shared) : 0;
    if (r == 0) r = weir_semaphore_acquire(second, 1);
    if (r == 0) weir_semaphore_release(second, 1);
    weir_semaphore_release(first, 2);
    return r;
}

static int s_then_t(struct shared *shared)
{
    return take_permits(shared, shared->s, shared->t);
}

static int t_then_s(struct shared *shared)
{
    return take_permits(shared, shared->fault ? shared->t : shared->s,
                        shared->fault ? shared->s : shared->t);
}

TEST(two_tasks_that_take_permits_crosswise_are_a_deadlock)
{
    static const struct plan plan = {
        .parties = {s_then_t, t_then_s}, .prepare = open_permits, .expected = true};
    static const char *const words[] = {"waits for a permit of semaphore 't', held by task 'two' #",
                                        "waits for a permit of semaphore 's', held by task 'one' #",
                                        "(taken at ", NULL};
    check_found(&plan, WEIR_CHECK_DEADLOCK, words);
}

/* Whoever does not keep its promise is not watched any more, and nothing wrong is said: here
 * the first one gives back what the second has, who takes that and then waits for itself. Before
 * the promise is broken it would rightly be said. */
static int open_permits_and_broken(struct shared *shared, weir_scope *scope)
{
    int r = open_permits(shared, scope);
    return r < 0 ? r : weir_event_open(scope, "broken", &shared->broken);
}

static int wait_for_itself(struct shared *shared)
{
    int r = weir_semaphore_acquire(shared->s, 2);
    if (r == 0) r = meet(shared);
    if (r == 0) r = weir_event_wait(shared->broken);
    if (r == 0) r = weir_semaphore_acquire(shared->s, 2);
    if (r == 0) weir_semaphore_release(shared->s, 2);
    return r;
}

static int give_back_for_it(struct shared *shared)
{
    int r = meet(shared);
    if (r == 0) weir_semaphore_release(shared->s, 1); /* which breaks the promise */
    if (r == 0) weir_event_set(shared->broken);
    if (r == 0) r = weir_sleep(INT64_C(5000));
    if (r == 0) weir_semaphore_release(shared->s, 1);
    return r;
}

TEST(permits_that_others_give_back_are_not_watched)
{
    static const struct plan plan = {.parties = {wait_for_itself, give_back_for_it},
                                     .prepare = open_permits_and_broken};

    test_clock_auto();
    run_plan(&plan, false);
    CHECK_INT(deadlocks(), ==, 0);
}

/* ---- Joins and closes ---- */

static int join_the_second(struct shared *shared)
{
    int r = meet(shared);
    return r < 0 ? r : weir_task_join(shared->tasks[1], NULL);
}

static int join_the_first(struct shared *shared)
{
    int r = meet(shared);
    return r < 0 || !shared->fault ? r : weir_task_join(shared->tasks[0], NULL);
}

TEST(two_tasks_that_join_each_other_are_a_deadlock)
{
    static const struct plan plan = {.parties = {join_the_second, join_the_first},
                                     .expected = true};
    static const char *const words[] = {"task 'one' #", "waits for the end of task 'two' #",
                                        "waits for the end of task 'one' #", NULL};
    check_found(&plan, WEIR_CHECK_DEADLOCK, words);
}

static int select_the_first(struct shared *shared)
{
    weir_case cases[1];
    int r = meet(shared);
    if (r < 0 || !shared->fault) return r;
    cases[0] = WEIR_CASE_JOIN(shared->tasks[0]);
    r = weir_select(cases, 1, WEIR_FAIR);
    return r < 0 ? r : 0;
}

TEST(select_of_nothing_but_a_join_can_be_part_of_a_deadlock)
{
    static const struct plan plan = {.parties = {join_the_second, select_the_first},
                                     .expected = true};
    static const char *const words[] = {"waits for the end of task 'two' #",
                                        "waits for one of 1 cases", NULL};
    check_found(&plan, WEIR_CHECK_DEADLOCK, words);
}

static int want_a(void *arg)
{
    struct shared *shared = *(struct shared **)arg;
    int r = weir_mutex_lock(shared->a);
    if (r == 0) weir_mutex_unlock(shared->a);
    return r;
}

static int close_with_a(struct shared *shared)
{
    int result = 0, r = weir_mutex_lock(shared->a);

    if (r < 0) return r;
    if (!shared->fault) weir_mutex_unlock(shared->a);
    WEIR_SCOPE(inner, &result, .name = "inner", .on_failure = WEIR_FAIL_FAST, .max_tasks = 4,
               .overflow = WEIR_REJECT) {
        r = weir_spawn(inner, want_a, &shared, sizeof(shared));
    }
    if (shared->fault) weir_mutex_unlock(shared->a);
    return r < 0 ? r : result;
}

TEST(scope_that_is_closed_with_a_lock_its_task_wants_is_a_deadlock)
{
    static const struct plan plan = {.parties = {close_with_a}, .expected = true};
    static const char *const words[] = {"waits for the end of 1 task of scope 'inner'",
                                        "task 'want_a' #", "held by task 'one' #", NULL};
    check_found(&plan, WEIR_CHECK_DEADLOCK, words);
}

/* ---- Actors, and once ---- */

static int on_message(void *state, const void *message, void *reply, void *keep_arg)
{
    struct shared *shared = *(struct shared *const *)message;
    int r = weir_mutex_lock(shared->a);
    (void)state, (void)reply, (void)keep_arg;
    if (r == 0) weir_mutex_unlock(shared->a);
    return r;
}

static int open_actor(struct shared *shared, weir_scope *scope)
{
    return weir_actor_open(scope,
                           &(weir_actor_spec){.name = "clerk",
                                              .message_bytes = sizeof(struct shared *),
                                              .mailbox_max = 4,
                                              .overflow = WEIR_WAIT,
                                              .on_restart = WEIR_RESTART_NEVER,
                                              .on_message = on_message},
                           &shared->actor);
}

static int call_with_a(struct shared *shared)
{
    int r = shared->fault ? weir_mutex_lock(shared->a) : 0;
    if (r == 0) r = weir_actor_call(shared->actor, &shared, NULL);
    if (shared->fault) weir_mutex_unlock(shared->a);
    return r;
}

TEST(call_of_an_actor_that_wants_the_callers_lock_is_a_deadlock)
{
    static const struct plan plan = {
        .parties = {call_with_a}, .prepare = open_actor, .expected = true};
    static const char *const words[] = {"waits for an answer of actor 'clerk'",
                                        "waits for mutex 'a', held by task 'one' #", NULL};
    check_found(&plan, WEIR_CHECK_DEADLOCK, words);
}

static int once_with_a(void *arg)
{
    struct shared *shared = arg;
    int r = shared->fault ? meet(shared) : 0;
    if (r == 0) r = weir_mutex_lock(shared->a);
    if (r == 0) weir_mutex_unlock(shared->a);
    return r;
}

static int run_once(struct shared *shared)
{
    return weir_once_run(&shared->once, once_with_a, shared);
}

static int run_once_with_a(struct shared *shared)
{
    int r = shared->fault ? weir_mutex_lock(shared->a) : 0;
    if (r < 0) return r;
    if (shared->fault) r = meet(shared);
    if (r == 0) r = weir_once_run(&shared->once, once_with_a, shared);
    if (shared->fault) weir_mutex_unlock(shared->a);
    return r;
}

TEST(once_whose_first_caller_waits_for_another_caller_is_a_deadlock)
{
    static const struct plan plan = {.parties = {run_once, run_once_with_a}, .expected = true};
    static const char *const words[] = {"waits for once, by task 'one' #", "waits for mutex 'a'",
                                        NULL};
    check_found(&plan, WEIR_CHECK_DEADLOCK, words);
}

/* ---- A runtime in which nothing goes on: it ends when that is said ---- */

enum { FOUND = 42 };

static void say_and_end(void *keep_arg, const weir_check_report *report)
{
    if (report->kind != WEIR_CHECK_DEADLOCK && report->kind != WEIR_CHECK_LEAK) return;
    if (keep_arg && !strstr(report->text, keep_arg)) return;
    (void)printf("%s: %s\n", weir_check_name(report->kind), report->text);
    (void)fflush(stdout);
    _exit(FOUND);
}

struct standstill {
    weir_task_fn fn;
    bool fault;
    const char *until; /* in a report: the one that is waited for */
};

static void stand(void *arg)
{
    struct standstill *still = arg;
    weir_config config = {.workers = test_workers(),
                          .log_level = WEIR_LOG_OFF,
                          .on_check = say_and_end,
                          .check_arg = (void *)(uintptr_t)still->until};

    test_clock_auto();
    test_checks_expected();
    _exit(weir_run(&config, still->fn, &still->fault) < 0 ? 1 : 0);
}

static void check_stands(weir_task_fn fn, const char *const *words, const char *until)
{
    static char output[8192];
    struct standstill still = {fn, false, NULL};
    int status = test_child(stand, &still, output, sizeof output);

    test_note("%s", output);
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), ==, 0);
    still.fault = true;
    still.until = until;
    status = test_child(stand, &still, output, sizeof output);
    test_note("%s", output);
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), ==, FOUND);
    for (; *words; words++) CHECK_CONTAINS(output, *words);
}

#define PARTIES(scope_, ret_)                                                                  \
    WEIR_SCOPE(scope_, ret_, .name = "parties", .on_failure = WEIR_FAIL_FAST, .max_tasks = 16, \
               .overflow = WEIR_REJECT)

/* Each sends to the other more than fits before it receives. */
struct talker {
    int_tx tx;
    int_rx rx;
    int count;
};

static int talk(void *arg)
{
    struct talker *talker = arg;
    int item = 0, r = 0;

    for (int i = 0; i < talker->count && r == 0; i++) r = weir_send(talker->tx, &item);
    weir_tx_drop(talker->tx.end);
    while (r == 0) r = weir_recv(talker->rx, &item);
    return r == WEIR_ECLOSED ? 0 : r;
}

static int talk_past_each_other(void *arg)
{
    static const char *const names[] = {"to left", "to right"};
    int count = *(bool *)arg ? 5 : 2, result;
    struct talker talkers[2] = {{.count = count}, {.count = count}};

    PARTIES(scope, &result)
    {
        for (int i = 0; i < 2; i++) {
            weir_chan_spec spec = {
                .name = names[i], .capacity = 2, .overflow = WEIR_WAIT, .on_close = WEIR_DRAIN};
            CHECK_OK(weir_chan_open(scope, &spec, &talkers[i].tx, &talkers[1 - i].rx));
        }
        for (int i = 0; i < 2; i++) {
            CHECK_OK(weir_spawn(scope, talk, &talkers[i], sizeof talkers[i]));
        }
    }
    return result;
}

TEST(two_tasks_that_fill_each_others_channels_are_a_deadlock)
{
    static const char *const words[] = {
        "deadlock, nothing in this runtime can go on: task 'talk' #",
        "waits for room in channel 'to left'", "and task 'talk' #",
        "waits for room in channel 'to right'", NULL};
    check_stands(talk_past_each_other, words, NULL);
}

static int wait_for_event(void *arg)
{
    return weir_event_wait(*(weir_event **)arg);
}

static int forget_event(void *arg)
{
    bool fault = *(bool *)arg;
    weir_event *event;
    int result;

    PARTIES(scope, &result)
    {
        CHECK_OK(weir_event_open(scope, "begun", &event));
        for (int i = 0; i < 2; i++) {
            CHECK_OK(weir_spawn(scope, wait_for_event, &event, sizeof(event)));
        }
        if (!fault) weir_event_set(event);
    }
    return result;
}

TEST(tasks_that_wait_for_an_event_nobody_is_left_to_set_are_a_leak)
{
    static const char *const words[] = {"leak: leak: task 'wait_for_event' #",
                                        "waits for event 'begun'",
                                        "nobody is left who could do that", NULL};
    check_stands(forget_event, words, NULL);
}

static int take_permit(void *arg)
{
    weir_semaphore *semaphore = *(weir_semaphore **)arg;
    return weir_semaphore_acquire(semaphore, 1);
}

static int forget_permits(void *arg)
{
    bool fault = *(bool *)arg;
    weir_semaphore *semaphore;
    int result;

    PARTIES(scope, &result)
    {
        CHECK_OK(weir_semaphore_open(
            scope,
            &(weir_semaphore_spec){
                .name = "slots", .permits = fault ? 1 : 2, .overflow = WEIR_WAIT, .waiters_max = 4},
            &semaphore));
        for (int i = 0; i < 2; i++) {
            CHECK_OK(weir_spawn(scope, take_permit, &semaphore, sizeof(semaphore)));
        }
    }
    return result;
}

TEST(permit_that_nobody_gives_back_is_a_leak)
{
    static const char *const words[] = {"leak: leak: task 'take_permit' #",
                                        "waits for a permit of semaphore 'slots'", NULL};
    check_stands(forget_permits, words, NULL);
}

/* A lock whose holder has ended, while others go on. */
static int end_with_it(void *arg)
{
    return weir_mutex_lock(*(weir_mutex **)arg);
}

static int take_and_give(void *arg)
{
    int r = weir_mutex_lock(*(weir_mutex **)arg);
    if (r == 0) weir_mutex_unlock(*(weir_mutex **)arg);
    return r;
}

static int forget_lock(void *arg)
{
    bool fault = *(bool *)arg;
    weir_mutex *mutex;
    weir_task first;
    int result;

    PARTIES(scope, &result)
    {
        CHECK_OK(weir_mutex_open(scope, "m", &mutex));
        CHECK_OK(weir_task_spawn(scope,
                                 &(weir_task_spec){.fn = fault ? end_with_it : take_and_give,
                                                   .arg = &mutex,
                                                   .arg_bytes = sizeof(mutex)},
                                 &first));
        CHECK_OK(weir_task_join(first, NULL));
        CHECK_OK(weir_spawn(scope, take_and_give, &mutex, sizeof(mutex)));
        for (int i = 0; i < (fault ? STEPS_MAX : 10); i++) CHECK_OK(weir_sleep(STEP_MS));
    }
    return result;
}

TEST(wait_for_a_lock_whose_holder_has_ended_is_a_leak)
{
    static const char *const words[] = {"leak: leak: task 'take_and_give' #", "waits for mutex 'm'",
                                        "who holds it has ended", NULL};
    check_stands(forget_lock, words, "waits for");
}

/* ---- What looks like one, and is not ---- */

/* A timer of the program will act. */
static void set_event(weir_timer *timer, void *keep_arg)
{
    (void)timer;
    weir_event_set(keep_arg);
}

static int wait_for_timer(void *arg)
{
    weir_event *event;
    weir_timer *timer;
    int result;

    (void)arg;
    PARTIES(scope, &result)
    {
        CHECK_OK(weir_event_open(scope, "due", &event));
        CHECK_OK(weir_timer_open(
            scope, &(weir_timer_spec){.name = "t", .on_fire = set_event, .keep_arg = event},
            &timer));
        weir_timer_start(timer, 60000);
        CHECK_OK(weir_event_wait(event));
    }
    return result;
}

TEST(wait_that_a_timer_will_end_is_not_reported)
{
    test_clock_auto();
    CHECK_OK(weir_run(&(weir_config){.workers = test_workers()}, wait_for_timer, NULL));
}

/* No task can act, but a thread that is not the runtime's has an end: it sends when many
 * seconds of the runtime's clock have passed. */
static void *send_late(void *arg)
{
    int item = 1;

    while (test_clock_now_ns() < TEST_CLOCK_START_NS + INT64_C(20000000000)) (void)sched_yield();
    CHECK_OK(weir_tx_try_send(arg, &item));
    weir_tx_drop(arg);
    return NULL;
}

static int wait_for_thread(void *arg)
{
    weir_chan_spec spec = {.name = "late",
                           .capacity = 1,
                           .overflow = WEIR_REJECT,
                           .on_close = WEIR_DRAIN,
                           .any_thread = true};
    pthread_t thread;
    int result, item = 0;

    (void)arg;
    PARTIES(scope, &result)
    {
        int_tx tx;
        int_rx rx;
        CHECK_OK(weir_chan_open(scope, &spec, &tx, &rx));
        CHECK_INT(pthread_create(&thread, NULL, send_late, tx.end), ==, 0);
        CHECK_OK(weir_recv(rx, &item));
        CHECK_INT(pthread_join(thread, NULL), ==, 0);
        weir_rx_drop(rx.end);
    }
    CHECK_INT(item, ==, 1);
    return result;
}

TEST(wait_that_a_foreign_thread_will_end_is_not_reported)
{
    test_clock_auto();
    CHECK_OK(weir_run(&(weir_config){.workers = test_workers()}, wait_for_thread, NULL));
}

/* An actor that has nothing to do waits for ever, and so does who sleeps until it is cancelled. */
static int sleep_for_ever(void *arg)
{
    int r = WEIR_EREFUSED;
    (void)arg;
    WEIR_NO_DEADLINE("the test cancels it") { r = weir_sleep(WEIR_FOREVER); }
    return r == WEIR_ECANCELED ? 0 : r;
}

static int be_idle(void *arg)
{
    struct shared shared = {.fault = false};
    int result;

    (void)arg;
    PARTIES(scope, &result)
    {
        CHECK_OK(open_actor(&shared, scope));
        CHECK_OK(weir_spawn(scope, sleep_for_ever, NULL, 0));
        for (int i = 0; i < QUIET_STEPS; i++) CHECK_OK(weir_sleep(STEP_MS));
        weir_scope_cancel(scope, 0, "the test is over");
    }
    return result == WEIR_ECANCELED ? 0 : result;
}

TEST(tasks_that_have_nothing_to_do_are_not_reported)
{
    test_clock_auto();
    CHECK_OK(weir_run(&(weir_config){.workers = test_workers(), .log_level = WEIR_LOG_OFF}, be_idle,
                      NULL));
}
