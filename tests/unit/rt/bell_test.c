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
    CHECK_INT(atom_load(&room.bell.bell.waiting), ==, 0); /* the next ring wakes nobody */
    room_deinit(&room);
}

TEST(a_bell_is_rung_for_one_or_for_all)
{
    ring_threads(&kernel_epoll);
    if (kernel_select(NULL)) ring_threads(kernel_select(NULL));
}

/* ---- No ring is lost ---- */

enum { PLAYERS = 3, TURNS = 6000 };

/* Threads that go on one after the other: whoever misses its ring keeps up all. */
struct game {
    struct lock lock;
    struct bell bells[PLAYERS];
    ATOM(int) turns; /* so many were taken; under the lock */
    ATOM(int) missed;
};

struct player {
    struct game *game;
    int index;
};

/* Between a look and the sleep there is no moment at which the ring comes too early: it comes
 * without the lock, at any moment after the change. */
static void *play(void *arg)
{
    const struct player *player = arg;
    struct game *game = player->game;
    struct bell *mine = &game->bells[player->index];
    struct bell *next = &game->bells[(player->index + 1) % PLAYERS];

    for (int turn = player->index; turn < TURNS; turn += PLAYERS) {
        int64_t until_ns = bell_after_ms(mine, LONG_MS);
        int r = 0;

        lock_acquire(&game->lock);
        while (atom_load(&game->turns) < turn && r == 0) {
            r = bell_wait(mine, &game->lock, until_ns);
        }
        if (atom_load(&game->turns) < turn) (void)atom_add(&game->missed, 1);
        atom_store(&game->turns, turn + 1);
        lock_release(&game->lock);
        bell_ring(next);
    }
    return NULL;
}

static void play_a_game(const struct kernel *kernel)
{
    struct game game = {0};
    struct player players[PLAYERS];
    pthread_t threads[PLAYERS];

    lock_init(&game.lock);
    for (int i = 0; i < PLAYERS; i++) {
        bell_init(&game.bells[i], kernel);
        players[i] = (struct player){&game, i};
    }
    for (int i = 0; i < PLAYERS; i++) {
        CHECK_OK(kernel->thread_start(kernel, &threads[i], play, &players[i]));
    }
    for (int i = 0; i < PLAYERS; i++) CHECK_OK(kernel->thread_join(kernel, threads[i]));
    CHECK_INT(atom_load(&game.missed), ==, 0);
    CHECK_INT(atom_load(&game.turns), ==, TURNS);
    for (int i = 0; i < PLAYERS; i++) bell_deinit(&game.bells[i]);
    lock_deinit(&game.lock);
}

TEST(no_ring_of_a_bell_is_lost_while_threads_take_turns)
{
    play_a_game(&kernel_epoll);
    if (kernel_select(NULL)) play_a_game(kernel_select(NULL));
}

/* One asks and waits, one answers as soon as it gets the lock, and one wants the lock all the time,
 * so that letting go of it takes the system's help, and so long that the answer's ring comes
 * before the asker sleeps. */
struct talk {
    struct lock lock;
    struct bell bell;
    ATOM(int) asked, answered; /* `answered` under the lock */
    ATOM(int) missed;
    ATOM(bool) over;
};

enum { QUESTIONS = 2000, TRIES = 2000 };
#define HELD_NS INT64_C(30000) /* until who wants the lock sleeps */

static void *want_the_lock(void *arg)
{
    struct talk *talk = arg;

    while (!atom_load(&talk->over)) {
        lock_acquire(&talk->lock);
        lock_release(&talk->lock);
    }
    return NULL;
}

/* Not for the analysis, which knows better. */
static void *answer(void *arg) LOCK_UNCHECKED;
static void *answer(void *arg)
{
    struct talk *talk = arg;
    const struct kernel *kernel = talk->bell.kernel;
    int tries = 0;

    while (!atom_load(&talk->over)) {
        if (++tries % TRIES == 0) kernel->thread_yield(kernel);
        if (atom_load(&talk->asked) == atom_load(&talk->answered)) continue;
        if (!lock_try(&talk->lock)) continue;
        atom_store(&talk->answered, atom_load(&talk->asked));
        lock_release(&talk->lock);
        bell_ring(&talk->bell);
    }
    return NULL;
}

static void ask(struct talk *talk, int question)
{
    int64_t until_ns = bell_after_ms(&talk->bell, LONG_MS), held_until_ns;
    int r = 0;

    lock_acquire(&talk->lock);
    held_until_ns = bell_after_ns(&talk->bell, HELD_NS);
    atom_store(&talk->asked, question);
    while (bell_after_ns(&talk->bell, 0) < held_until_ns) atom_pause();
    while (atom_load(&talk->answered) < question && r == 0) {
        r = bell_wait(&talk->bell, &talk->lock, until_ns);
    }
    if (r < 0) (void)atom_add(&talk->missed, 1);
    lock_release(&talk->lock);
}

TEST(ring_that_comes_while_the_lock_is_let_go_of_is_not_lost)
{
    const struct kernel *kernel = &kernel_epoll;
    struct talk talk = {0};
    pthread_t threads[2];

    lock_init(&talk.lock);
    bell_init(&talk.bell, kernel);
    CHECK_OK(kernel->thread_start(kernel, &threads[0], want_the_lock, &talk));
    CHECK_OK(kernel->thread_start(kernel, &threads[1], answer, &talk));
    for (int i = 1; i <= QUESTIONS && atom_load(&talk.missed) == 0; i++) ask(&talk, i);
    atom_store(&talk.over, true);
    for (int i = 0; i < 2; i++) CHECK_OK(kernel->thread_join(kernel, threads[i]));
    CHECK_INT(atom_load(&talk.missed), ==, 0);
    bell_deinit(&talk.bell);
    lock_deinit(&talk.lock);
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
