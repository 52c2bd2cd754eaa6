/* bell_test.c - threads that wait for one another, through the seam. */
#include "rt/bell.h"

#include "base/atomic.h"
#include "harness/test.h"

enum { THREADS = 3 };
#define MS INT64_C(1000000)
#define LONG_MS 20000 /* it is not waited for */

struct room {
    struct lock lock;
    struct bell bell;
    /* Under the lock; atomic because that orders nothing for a sanitizer. */
    ATOM(int) tokens;  /* who takes one may leave */
    ATOM(int) waiting; /* threads inside */
    ATOM(int) left;
    ATOM(int) timed_out;
};

static void room_init(struct room *room, const struct kernel *kernel)
{
    *room = (struct room){0};
    lock_init(&room->lock);
    bell_init(&room->bell, kernel);
}

static void room_deinit(struct room *room)
{
    bell_deinit(&room->bell);
    lock_deinit(&room->lock);
}

static void *wait_for_token(void *arg)
{
    struct room *room = arg;
    int64_t until_ns = bell_after_ms(&room->bell, LONG_MS);
    int r = 0;

    lock_acquire(&room->lock);
    room->waiting++;
    while (room->tokens == 0 && r == 0) r = bell_wait(&room->bell, &room->lock, until_ns);
    if (room->tokens == 0) room->timed_out++;
    room->tokens--;
    room->left++;
    lock_release(&room->lock);
    return NULL;
}

/* Until `count` threads are as far as `figure` says. */
static void await(struct room *room, const ATOM(int) * figure, int count)
{
    const struct kernel *kernel = room->bell.kernel;
    int now;

    do {
        kernel->thread_yield(kernel);
        lock_acquire(&room->lock);
        now = *figure;
        lock_release(&room->lock);
    } while (now < count);
}

static void give(struct room *room, int tokens)
{
    lock_acquire(&room->lock);
    room->tokens += tokens;
    lock_release(&room->lock);
}

static void ring_threads(const struct kernel *kernel)
{
    pthread_t threads[THREADS];
    struct room room;

    room_init(&room, kernel);
    for (int i = 0; i < THREADS; i++) {
        CHECK_OK(kernel->thread_start(kernel, &threads[i], wait_for_token, &room));
    }
    await(&room, &room.waiting, THREADS);
    give(&room, 1);
    bell_ring(&room.bell);
    await(&room, &room.left, 1);
    CHECK_INT(room.left, ==, 1);
    give(&room, THREADS - 1);
    bell_ring_all(&room.bell);
    for (int i = 0; i < THREADS; i++) CHECK_OK(kernel->thread_join(kernel, threads[i]));
    CHECK_INT(room.left, ==, THREADS);
    CHECK_INT(room.timed_out, ==, 0);
    room_deinit(&room);
}

TEST(a_bell_is_rung_for_one_or_for_all)
{
    ring_threads(&kernel_epoll);
    if (kernel_select(NULL)) ring_threads(kernel_select(NULL));
}

/* Not for the analysis, which knows better. */
static bool is_free(struct lock *lock) LOCK_UNCHECKED;
static bool is_free(struct lock *lock)
{
    bool free = lock_try(lock);

    if (free) lock_release(lock);
    return free;
}

TEST(waiting_for_a_bell_ends_at_its_time)
{
    const struct kernel *kernel = &kernel_epoll;
    struct room room;
    int64_t began_ns, until_ns;
    int r = 0;

    room_init(&room, kernel);
    began_ns = kernel->thread_now_ns(kernel);
    until_ns = bell_after_ns(&room.bell, 5 * MS);
    lock_acquire(&room.lock);
    while (r == 0) r = bell_wait(&room.bell, &room.lock, until_ns);
    CHECK_INT(r, ==, -ETIMEDOUT);
    CHECK(kernel->thread_now_ns(kernel) - began_ns >= 5 * MS);
    /* That time has passed: it waits no more. */
    CHECK_INT(bell_wait(&room.bell, &room.lock, until_ns), ==, -ETIMEDOUT);
    /* The lock is held again. */
    CHECK(!is_free(&room.lock));
    lock_release(&room.lock);
    CHECK(is_free(&room.lock));
    room_deinit(&room);
}

TEST(times_for_a_bell_end_with_time)
{
    struct room room;

    room_init(&room, &kernel_epoll);
    CHECK(bell_after_ns(&room.bell, INT64_MAX) == BELL_FOR_EVER);
    CHECK(bell_after_ms(&room.bell, INT64_MAX) == BELL_FOR_EVER);
    CHECK(bell_after_ms(&room.bell, 1000) > kernel_epoll.thread_now_ns(&kernel_epoll));
    room_deinit(&room);
}

TEST(threads_wait_in_real_time_though_the_clock_stands_still)
{
    const struct kernel *kernel;
    struct room room;
    int r = 0;

    test_clock_manual();
    kernel = kernel_current();
    room_init(&room, kernel);
    lock_acquire(&room.lock);
    while (r == 0) r = bell_wait(&room.bell, &room.lock, bell_after_ns(&room.bell, 2 * MS));
    lock_release(&room.lock);
    CHECK_INT(r, ==, -ETIMEDOUT);
    room_deinit(&room);
}

/* The seam's own calls, without a bell. */
TEST(kernels_thread_wait_says_that_its_time_is_over)
{
    const struct kernel *kernel = &kernel_epoll;
    struct room room;
    int r = 0;

    room_init(&room, kernel);
    lock_acquire(&room.lock);
    for (int i = 0; i < 1000 && r == 0; i++) {
        r = kernel->thread_wait(kernel, &room.bell.bell, &room.lock.mutex, i > 0 ? MS : 0);
    }
    lock_release(&room.lock);
    CHECK_INT(r, ==, -ETIMEDOUT);
    kernel->thread_notify(kernel, &room.bell.bell, false); /* nobody waits: nothing */
    kernel->thread_notify(kernel, &room.bell.bell, true);
    room_deinit(&room);
}
