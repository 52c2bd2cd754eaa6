/* handle_test.c - handles are looked up, never followed. */
#include "rt/handle.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "harness/test.h"

TEST(a_handle_names_its_object_until_it_is_closed)
{
    int objects[2];
    void *a, *b;

    handles_begin();
    CHECK_OK(handle_open(HANDLE_CONN, &objects[0], &a));
    CHECK_OK(handle_open(HANDLE_FILE, &objects[1], &b));
    CHECK(handle_object(a, HANDLE_CONN) == &objects[0]);
    CHECK(handle_object(b, HANDLE_FILE) == &objects[1]);
    CHECK(handle_object(a, HANDLE_FILE) == NULL);
    CHECK(handle_object(NULL, HANDLE_CONN) == NULL);
    CHECK(handle_object(objects, HANDLE_CONN) == NULL);
    handle_close(a);
    CHECK(handle_object(a, HANDLE_CONN) == NULL);
    CHECK(handle_object(b, HANDLE_FILE) == &objects[1]);
    handle_close(b);
    handles_end();
}

/* The same slot again and again, and in tables that were freed in between. */
TEST(a_handle_is_never_given_twice)
{
    enum { ROUNDS = 3, TIMES = 1000 };
    static void *closed[ROUNDS * TIMES];
    int object;
    size_t count = 0;

    for (int round = 0; round < ROUNDS; round++) {
        handles_begin();
        for (int i = 0; i < TIMES; i++) {
            CHECK_OK(handle_open(HANDLE_CONN, &object, &closed[count]));
            for (size_t k = 0; k < count; k += 7) {
                CHECK(handle_object(closed[k], HANDLE_CONN) == NULL);
            }
            CHECK(handle_object(closed[count], HANDLE_CONN) == &object);
            handle_close(closed[count++]);
        }
        handles_end();
        CHECK(handle_object(closed[0], HANDLE_CONN) == NULL);
    }
}

TEST(the_table_has_room_for_four_million_and_says_when_it_is_full)
{
    void **handles = malloc(HANDLES_MAX * sizeof *handles);
    void *another;
    int object;

    CHECK(handles != NULL);
    handles_begin();
    for (size_t i = 0; i < HANDLES_MAX; i++) {
        CHECK_OK(handle_open(HANDLE_UDP, (char *)&object + i % sizeof object, &handles[i]));
    }
    CHECK_INT(handle_open(HANDLE_UDP, &object, &another), ==, -ENFILE);
    for (size_t i = 0; i < HANDLES_MAX; i++) {
        CHECK(handle_object(handles[i], HANDLE_UDP) == (char *)&object + i % sizeof object);
    }
    handle_close(handles[7]);
    CHECK_OK(handle_open(HANDLE_UDP, &object, &another));
    CHECK(another != handles[7]);
    handles_end();
    free(handles);
}

static int looked_at, another_object;
static ATOM(void *) shown;
static ATOM(bool) shown_enough;

static void *look_at_shown(void *arg)
{
    size_t *wrong = arg;

    while (!atom_load_acquire(&shown_enough)) {
        void *object = handle_object(atom_load_acquire(&shown), HANDLE_CONN);
        *wrong += object && object != &looked_at;
    }
    return NULL;
}

/* Its slot goes to a handle of another kind at once. */
TEST(a_handle_that_is_closed_while_it_is_looked_up_names_its_object_or_nothing)
{
    enum { TIMES = 100000 };
    pthread_t thread;
    size_t wrong = 0;

    handles_begin();
    atom_store(&shown, NULL);
    atom_store(&shown_enough, false);
    CHECK_INT(pthread_create(&thread, NULL, look_at_shown, &wrong), ==, 0);
    for (int i = 0; i < TIMES; i++) {
        void *handle, *next;
        CHECK_OK(handle_open(HANDLE_CONN, &looked_at, &handle));
        atom_store_release(&shown, handle);
        handle_close(handle);
        CHECK_OK(handle_open(HANDLE_FILE, &another_object, &next));
        handle_close(next);
    }
    atom_store_release(&shown_enough, true);
    CHECK_INT(pthread_join(thread, NULL), ==, 0);
    CHECK_INT(wrong, ==, 0);
    handles_end();
}

/* The first lie in an array, which needs none. */
TEST(without_memory_for_the_table_no_handle_is_opened)
{
    void *handle, *last;
    int object;

    handles_begin();
    for (int i = 1; i < HANDLES_NEAR; i++) CHECK_OK(handle_open(HANDLE_CONN, &object, &last));
    test_fail_alloc_at(1);
    CHECK_INT(handle_open(HANDLE_CONN, &object, &handle), ==, -ENOMEM);
    CHECK_OK(handle_open(HANDLE_CONN, &object, &handle));
    CHECK(handle_object_near(last, HANDLE_CONN) == &object);
    CHECK(handle_object_near(handle, HANDLE_CONN) == NULL);
    CHECK(handle_object(handle, HANDLE_CONN) == &object);
    CHECK(handle_object(handle, HANDLE_FILE) == NULL);
    handle_close(handle);
    CHECK(handle_object(handle, HANDLE_CONN) == NULL);
    handles_end();
    CHECK(handle_object(last, HANDLE_CONN) == NULL);
}

/* Whatever is not a handle has bits of one: those of a slot, of a kind, or of nothing. */
TEST(a_word_that_was_never_given_names_nothing)
{
    void *handle;
    int object;

    handles_begin();
    CHECK_OK(handle_open(HANDLE_CONN, &object, &handle));
    for (uint64_t kind = 0; kind < 1 << HANDLE_KIND_BITS; kind++) {
        for (uint64_t slot = 0; slot < 4 * HANDLES_NEAR; slot += HANDLES_NEAR / 2 - 1) {
            uint64_t word = kind << HANDLE_KIND_SHIFT | slot << HANDLE_SLOT_SHIFT;
            for (enum handle_kind as = HANDLE_CONN; as < HANDLE_KINDS; as++) {
                CHECK(handle_object((void *)(uintptr_t)word, as) == NULL);
                CHECK(handle_object((void *)(uintptr_t)(word - 1), as) == NULL);
                CHECK(handle_object((void *)(uintptr_t)~word, as) == NULL);
            }
        }
    }
    handle_close(handle);
    handles_end();
}
