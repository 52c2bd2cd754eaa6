/* atomic_test.c - what the operations give, and the points that a simulator is told of. */
#include "base/atomic.h"

#include "harness/test.h"
#include "rt/lock.h"

/* ---- Operations ---- */

struct shared {
    ATOM(int) number;
    ATOM(struct shared *) next;
    ATOM(bool) flags[3];
};

TEST(atomic_operations_give_the_old_value)
{
    struct shared shared = {0};
    int expected = 7;

    CHECK_INT(atom_add(&shared.number, 5), ==, 0);
    CHECK_INT(atom_sub(&shared.number, 2), ==, 5);
    CHECK_INT(atom_or(&shared.number, 8), ==, 3);
    CHECK_INT(atom_and(&shared.number, ~1), ==, 11);
    CHECK_INT(atom_exchange(&shared.number, 6), ==, 10);
    CHECK(!atom_cas(&shared.number, &expected, 1));
    CHECK_INT(expected, ==, 6);
    CHECK(atom_cas(&shared.number, &expected, 1));
    CHECK_INT(atom_load_total(&shared.number), ==, 1);
    atom_store(&shared.next, NULL);
    atom_store_release(&shared.next, &shared);
    CHECK(atom_load_acquire(&shared.next) == &shared);
    atom_store_total(shared.flags + 1, true);
    CHECK(!atom_load(shared.flags) && atom_load(&shared.flags[1]));
}

TEST(operands_of_atomic_operations_are_evaluated_once)
{
    ATOM(int) numbers[4] = {1, 2, 3, 4};
    ATOM(int) *at = numbers;
    int expected[2] = {3, 3};
    int *wanted = expected;
    int value = 10;
    bool swapped;

    CHECK_INT(atom_load(at++), ==, 1);
    atom_store(at++, value++);
    CHECK_INT(value, ==, 11);
    swapped = atom_cas(at++, wanted++, value++);
    CHECK(swapped);
    CHECK_INT(value, ==, 12);
    CHECK(wanted == expected + 1);
    CHECK_INT(atom_add(at++, atom_add(numbers, 1)), ==, 4);
    CHECK(at == numbers + 4);
    CHECK_INT(atom_load(&numbers[0]), ==, 2);
    CHECK_INT(atom_load(&numbers[1]), ==, 10);
    CHECK_INT(atom_load(&numbers[2]), ==, 11);
    CHECK_INT(atom_load(&numbers[3]), ==, 5);
}

/* ---- Points ---- */

static ATOM(int) counter;
static struct lock lock;
static const volatile void *last;
static int points, stucks;
static bool inside, free_at_point;

/* What another thread would do is done here; its own operations are no points. */
static void count_up_elsewhere(const volatile void *address)
{
    if (inside) return;
    inside = true;
    last = address;
    points++;
    (void)atom_add(&counter, 100);
    inside = false;
}

static bool count_stuck(void)
{
    stucks++;
    return true;
}

static void hook(void (*point)(const volatile void *address), bool (*stuck)(void))
{
    if (!atom_hooks_set(&(struct atom_hooks){.point = point, .stuck = stuck})) {
        TEST_SKIP("this library has no points (./do build sim)");
    }
}

TEST(a_point_comes_before_each_atomic_operation)
{
    int seen, expected = 5;

    hook(count_up_elsewhere, NULL);
    seen = atom_load(&counter);
    CHECK_INT(seen, ==, 100);
    CHECK_INT(points, ==, 1);
    CHECK(last == &counter);
    atom_store(&counter, 5);
    CHECK_INT(points, ==, 2);
    CHECK(!atom_cas(&counter, &expected, 7));
    CHECK_INT(expected, ==, 105);
    CHECK_INT(atom_exchange(&counter, 0), ==, 205);
    CHECK_INT(points, ==, 4);
    /* What is not one operation can be interrupted: what others added is lost. */
    atom_store(&counter, atom_load(&counter) + 1);
    CHECK_INT(points, ==, 6);
    CHECK(atom_hooks_set(NULL));
    CHECK_INT(atom_load(&counter), ==, 101);
    CHECK_INT(points, ==, 6);
}

static void look_at_lock(const volatile void *address)
{
    points++;
    last = address;
    free_at_point = pthread_mutex_trylock(&lock.mutex) == 0;
    if (free_at_point) (void)pthread_mutex_unlock(&lock.mutex);
}

/* The thread that holds it lets go at the third time. */
static bool release_at_third(void)
{
    if (++stucks == 3) (void)pthread_mutex_unlock(&lock.mutex);
    return true;
}

/* Not for the analysis, which knows better. */
static void use_lock(void) LOCK_UNCHECKED;
static void use_lock(void)
{
    lock_acquire(&lock);
    CHECK_INT(points, ==, 1);
    CHECK(free_at_point && last == &lock);
    lock_release(&lock);
    CHECK_INT(points, ==, 2);
    CHECK(free_at_point);
    CHECK(lock_try(&lock));
    CHECK_INT(points, ==, 3);
    CHECK(!lock_try(&lock));
    CHECK_INT(stucks, ==, 0);
    lock_acquire(&lock);
    CHECK_INT(stucks, ==, 3);
    lock_release(&lock);
}

TEST(a_lock_is_free_at_its_points_and_a_held_one_lets_others_go_on)
{
    lock_init(&lock);
    hook(look_at_lock, release_at_third);
    use_lock();
    CHECK(atom_hooks_set(NULL));
    lock_deinit(&lock);
}

TEST(a_pause_lets_others_go_on)
{
    hook(NULL, count_stuck);
    atom_pause();
    CHECK_INT(stucks, ==, 1);
    CHECK(atom_hooks_set(NULL));
    atom_pause();
    CHECK_INT(stucks, ==, 1);
}
