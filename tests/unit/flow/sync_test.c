/* sync_test.c - event, semaphore, mutex, read-write lock, once. */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/atomic.h"
#include "unit/flow/flow_test.h"

struct shared {
    weir_mutex *mutex;
    weir_semaphore *semaphore;
    weir_rwlock *lock;
    weir_event *event;
    int inside, total, order[8], arrived;
    ATOM(int) together, together_max; /* of those who may be inside together */
};

static void come_in(struct shared *shared)
{
    int now = atom_add(&shared->together, 1) + 1;
    if (now > atom_load(&shared->together_max)) atom_store(&shared->together_max, now);
}

/* ---- Mutex ---- */

static int count_inside(void *arg)
{
    struct shared *shared = *(struct shared **)arg;
    for (int i = 0; i < 50; i++) {
        int r = weir_mutex_lock(shared->mutex);
        if (r < 0) return r;
        CHECK_INT(++shared->inside, ==, 1);
        shared->total++;
        r = weir_yield();
        shared->inside--;
        weir_mutex_unlock(shared->mutex);
        if (r < 0) return r;
    }
    return 0;
}

FLOW_TEST_LOCKS(mutex_lets_one_task_in_at_a_time)
{
    struct shared shared = {.total = 0}, *pointer = &shared;
    int result;

    FLOW_SCOPE_ANYWHERE(scope, &result)
    {
        CHECK_OK(weir_mutex_open(scope, "m", &shared.mutex));
        weir_mutex_may_suspend(shared.mutex, "others must come while it is held");
        for (int i = 0; i < 20; i++)
            CHECK_OK(weir_spawn(scope, count_inside, &pointer, sizeof pointer));
    }
    CHECK_OK(result);
    CHECK_INT(shared.total, ==, 1000);
    return 0;
}

static int refuse_and_forget(void *arg)
{
    struct shared shared = {.total = 0}, *pointer = &shared;
    int result, r = 0;

    (void)arg;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_mutex_open(scope, "m", &shared.mutex));
        CHECK_OK(weir_mutex_lock(shared.mutex));
        CHECK_INT(weir_mutex_lock(shared.mutex), ==, WEIR_EREFUSED);
        CHECK(strstr(weir_why(), "already") != NULL);
        WEIR_SCOPE(inner, &r, .name = "inner", .on_failure = WEIR_COLLECT, .max_tasks = 1,
                   .overflow = WEIR_REJECT, .deadline_ms = 1) {
            CHECK_OK(weir_spawn(inner, count_inside, &pointer, sizeof pointer));
        }
        CHECK_INT(r, ==, WEIR_ETIMEDOUT);
        weir_mutex_unlock(shared.mutex);
        CHECK_OK(weir_mutex_lock(shared.mutex));
        weir_mutex_unlock(shared.mutex);
        weir_mutex_close(shared.mutex);
    }
    return result;
}

TEST_WITH(mutex_refuses_its_holder_and_forgets_who_gave_up, .workers = 1)
{
    test_clock_auto();
    test_checks_expected();
    flow_test_both(refuse_and_forget);
    CHECK_INT(test_checks(WEIR_CHECK_RECURSION), ==, 1);
    CHECK_INT(test_checks(WEIR_CHECK_ACROSS), >=, 1);
}

/* ---- Semaphore ---- */

static int use_permit(void *arg)
{
    struct shared *shared = *(struct shared **)arg;
    for (int i = 0; i < 20; i++) {
        int r = weir_semaphore_acquire(shared->semaphore, 1);
        if (r < 0) return r;
        come_in(shared);
        r = weir_yield();
        (void)atom_sub(&shared->together, 1);
        weir_semaphore_release(shared->semaphore, 1);
        if (r < 0) return r;
    }
    return 0;
}

FLOW_TEST(semaphore_never_lets_more_in_than_it_has_permits)
{
    struct shared shared = {.total = 0}, *pointer = &shared;
    weir_semaphore_spec spec = {
        .name = "s", .permits = 3, .waiters_max = 100, .overflow = WEIR_WAIT};
    int result;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_semaphore_open(scope, &spec, &shared.semaphore));
        for (int i = 0; i < 10; i++)
            CHECK_OK(weir_spawn(scope, use_permit, &pointer, sizeof pointer));
    }
    CHECK_OK(result);
    CHECK_INT(shared.together_max, ==, 3);
    return 0;
}

FLOW_TEST(semaphore_bounds_its_waiters_and_its_permits)
{
    weir_semaphore_spec spec = {
        .name = "s", .permits = 2, .overflow = WEIR_REJECT, .permits_max = 4};
    weir_semaphore *semaphore;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_semaphore_open(scope, &spec, &semaphore));
        CHECK_OK(weir_semaphore_acquire(semaphore, 2));
        CHECK_INT(weir_semaphore_acquire(semaphore, 1), ==, WEIR_EOVERLOAD);
        CHECK_INT(weir_semaphore_try_acquire(semaphore, 1), ==, WEIR_EOVERLOAD);
        CHECK_INT(weir_semaphore_acquire(semaphore, 5), ==, WEIR_EREFUSED);
        CHECK_OK(weir_semaphore_resize(semaphore, 3));
        CHECK_OK(weir_semaphore_acquire(semaphore, 1));
        CHECK_OK(weir_semaphore_resize(semaphore, 1));
        weir_semaphore_release(semaphore, 2);
        CHECK_INT(weir_semaphore_try_acquire(semaphore, 1), ==, WEIR_EOVERLOAD);
        weir_semaphore_release(semaphore, 1);
        CHECK_OK(weir_semaphore_try_acquire(semaphore, 1));
        CHECK_INT(weir_semaphore_resize(semaphore, 5), ==, WEIR_EREFUSED);
    }
    return result;
}

FLOW_TEST(semaphore_spec_names_what_is_missing)
{
    static const struct {
        weir_semaphore_spec spec;
        const char *why;
    } rows[] = {
        {{.permits = 1, .waiters_max = 1, .overflow = WEIR_WAIT}, "name"},
        {{.name = "s", .waiters_max = 1, .overflow = WEIR_WAIT}, "permits is not set"},
        {{.name = "s", .permits = 1, .overflow = WEIR_WAIT}, "waiters_max"},
        {{.name = "s", .permits = 1, .waiters_max = 1}, "overflow"},
        {{.name = "s", .permits = 1, .waiters_max = 1, .overflow = WEIR_REJECT}, "nobody waits"},
        {{.name = "s", .permits = 1, .waiters_max = 1, .overflow = WEIR_DROP_OLDEST}, "must be"},
    };
    int result;

    FLOW_SCOPE(scope, &result)
    {
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            weir_semaphore *semaphore;
            test_note("row %zu", i);
            CHECK_INT(weir_semaphore_open(scope, &rows[i].spec, &semaphore), ==, WEIR_EREFUSED);
            CHECK(strstr(weir_why(), rows[i].why) != NULL);
        }
    }
    return result;
}

/* ---- Read-write lock ---- */

struct visitor {
    struct shared *shared;
    bool writes;
    int number;
};

static int visit(void *arg)
{
    struct visitor *visitor = arg;
    struct shared *shared = visitor->shared;
    int r = visitor->writes ? weir_rwlock_write(shared->lock) : weir_rwlock_read(shared->lock);
    if (r < 0) return r;
    shared->order[shared->arrived++] = visitor->number;
    weir_rwlock_unlock(shared->lock);
    return 0;
}

FLOW_TEST_LOCKS(rwlock_goes_in_order_of_arrival)
{
    struct shared shared = {.total = 0};
    int result;

    FLOW_SCOPE(scope, &result)
    {
        static const bool writes[5] = {false, true, false, true, false};
        CHECK_OK(weir_rwlock_open(scope, "l", &shared.lock));
        weir_rwlock_may_suspend(shared.lock, "others must come while it is held");
        CHECK_OK(weir_rwlock_write(shared.lock));
        for (int i = 0; i < 5; i++) {
            struct visitor visitor = {&shared, writes[i], i};
            CHECK_OK(weir_spawn(scope, visit, &visitor, sizeof visitor));
        }
        CHECK_OK(weir_yield());
        CHECK_INT(shared.arrived, ==, 0);
        weir_rwlock_unlock(shared.lock);
    }
    CHECK_OK(result);
    for (int i = 0; i < 5; i++) CHECK_INT(shared.order[i], ==, i);
    return 0;
}

static int read_together(void *arg)
{
    struct shared *shared = *(struct shared **)arg;
    int r = weir_rwlock_read(shared->lock);
    if (r < 0) return r;
    come_in(shared);
    r = weir_yield();
    (void)atom_sub(&shared->together, 1);
    weir_rwlock_unlock(shared->lock);
    return r;
}

static int write_and_give_up(void *arg)
{
    struct shared *shared = *(struct shared **)arg;
    int r = 0;
    WEIR_DEADLINE(1) { r = weir_rwlock_write(shared->lock); }
    CHECK_INT(r, ==, WEIR_ETIMEDOUT);
    return 0;
}

FLOW_TEST_LOCKS(rwlock_lets_readers_in_together_and_a_writer_that_gives_up_out_of_the_way)
{
    struct shared shared = {.total = 0}, *pointer = &shared;
    int result, r = 0;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_rwlock_open(scope, "l", &shared.lock));
        weir_rwlock_may_suspend(shared.lock, "others must come while it is held");
        CHECK_OK(weir_rwlock_read(shared.lock));
        FLOW_SCOPE(inner, &r)
        {
            CHECK_OK(weir_spawn(inner, write_and_give_up, &pointer, sizeof pointer));
        }
        CHECK_OK(r);
        for (int i = 0; i < 4; i++)
            CHECK_OK(weir_spawn(scope, read_together, &pointer, sizeof pointer));
        CHECK_OK(weir_yield());
        weir_rwlock_unlock(shared.lock);
    }
    CHECK_OK(result);
    CHECK_INT(shared.together_max, ==, 4);
    return 0;
}

/* ---- Event ---- */

static int wait_for_event(void *arg)
{
    struct shared *shared = *(struct shared **)arg;
    int r = weir_event_wait(shared->event);
    if (r == 0) (void)atom_add(&shared->together, 1);
    return r == WEIR_ECLOSED ? 0 : r;
}

FLOW_TEST(event_lets_everybody_go_and_closing_it_tells_who_waits)
{
    struct shared shared = {.total = 0}, *pointer = &shared;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_event_open(scope, "e", &shared.event));
        for (int i = 0; i < 3; i++)
            CHECK_OK(weir_spawn(scope, wait_for_event, &pointer, sizeof pointer));
        CHECK_OK(weir_yield());
        CHECK_INT(shared.together, ==, 0);
        weir_event_set(shared.event);
        CHECK(weir_event_is_set(shared.event));
        CHECK_OK(weir_event_wait(shared.event));
        CHECK_OK(weir_yield());
        CHECK_INT(shared.together, ==, 3);
        weir_event_reset(shared.event);
        CHECK_OK(weir_spawn(scope, wait_for_event, &pointer, sizeof pointer));
        CHECK_OK(weir_yield());
        weir_event_close(shared.event);
    }
    CHECK_INT(shared.together, ==, 3);
    return result;
}

/* ---- Once ---- */

static weir_once once;
static int once_calls;

static int fail_twice(void *arg)
{
    (void)arg;
    int r = weir_yield();
    return r < 0 ? r : ++once_calls < 3 ? -EIO : 0;
}

static int run_once(void *arg)
{
    ATOM(int) *failures = *(ATOM(int) **)arg;
    int r = weir_once_run(&once, fail_twice, NULL);
    if (r == -EIO) (void)atom_add(failures, 1);
    return r == -EIO ? 0 : r;
}

FLOW_TEST(once_is_tried_again_by_who_waits_until_it_succeeds)
{
    ATOM(int) failures = 0;
    ATOM(int) *pointer = &failures;
    int result;

    memset(&once, 0, sizeof once);
    once_calls = 0;
    FLOW_SCOPE(scope, &result)
    {
        for (int i = 0; i < 8; i++) CHECK_OK(weir_spawn(scope, run_once, &pointer, sizeof pointer));
    }
    CHECK_OK(result);
    CHECK_INT(once_calls, ==, 3);
    CHECK_INT(failures, ==, 2);
    return 0;
}

/* ---- Misuse ---- */

static void unlock_not_held(weir_scope *scope)
{
    weir_mutex *mutex;
    CHECK_OK(weir_mutex_open(scope, "m", &mutex));
    weir_mutex_unlock(mutex);
}

static void mutex_held_at_the_end(weir_scope *scope)
{
    weir_mutex *mutex;
    CHECK_OK(weir_mutex_open(scope, "m", &mutex));
    CHECK_OK(weir_mutex_lock(mutex));
}

static void mutex_used_when_closed(weir_scope *scope)
{
    weir_mutex *mutex;
    CHECK_OK(weir_mutex_open(scope, "m", &mutex));
    weir_mutex_close(mutex);
    CHECK_OK(weir_mutex_lock(mutex));
}

static void rwlock_held_at_the_end(weir_scope *scope)
{
    weir_rwlock *lock;
    CHECK_OK(weir_rwlock_open(scope, "l", &lock));
    CHECK_OK(weir_rwlock_read(lock));
}

static void rwlock_not_held(weir_scope *scope)
{
    weir_rwlock *lock;
    CHECK_OK(weir_rwlock_open(scope, "l", &lock));
    weir_rwlock_unlock(lock);
}

static void release_too_much(weir_scope *scope)
{
    weir_semaphore_spec spec = {.name = "s", .permits = 3, .waiters_max = 1, .overflow = WEIR_WAIT};
    weir_semaphore *semaphore;
    CHECK_OK(weir_semaphore_open(scope, &spec, &semaphore));
    CHECK_OK(weir_semaphore_acquire(semaphore, 1));
    weir_semaphore_release(semaphore, 2);
}

static void *set_event(void *event)
{
    weir_event_set(event);
    return NULL;
}

static void event_set_on_a_thread(weir_scope *scope)
{
    weir_event *event;
    pthread_t thread;
    CHECK_OK(weir_event_open(scope, "e", &event));
    CHECK_INT(pthread_create(&thread, NULL, set_event, event), ==, 0);
    CHECK_INT(pthread_join(thread, NULL), ==, 0);
}

static const struct sync_misuse {
    void (*fn)(weir_scope *scope);
    const char *sentence;
} sync_misuses[] = {
    {unlock_not_held, "weir_mutex_unlock: mutex 'm' is held by nobody, not by the caller"},
    {mutex_held_at_the_end, "mutex 'm' ends while task"},
    {mutex_used_when_closed, "weir_mutex_lock: the mutex is closed"},
    {rwlock_held_at_the_end, "read-write lock 'l' ends while 1 tasks read"},
    {rwlock_not_held, "weir_rwlock_unlock: read-write lock 'l' is not held by the caller"},
    {release_too_much, "semaphore 's': 2 permits are given back, 1 were taken"},
    {event_set_on_a_thread, "weir_event_set: called on a thread that is not the runtime's"},
};

static const struct sync_misuse *misused;

static int misuse_body(void *arg)
{
    int result;

    (void)arg;
    FLOW_SCOPE(scope, &result)
    {
        misused->fn(scope);
    }
    return result;
}

static void misuse_child(void *arg)
{
    misused = arg;
    (void)flow_test_run(misuse_body);
}

TEST(sync_misuse_aborts_with_a_sentence)
{
    for (size_t i = 0; i < sizeof sync_misuses / sizeof *sync_misuses; i++) {
        CHECK_ABORTS(misuse_child, (void *)(uintptr_t)&sync_misuses[i], sync_misuses[i].sentence);
    }
}
