/* postbox_test.c - work from threads that are not workers. */
#include <errno.h>
#include <stdlib.h>

#include "unit/rt/support.h"

static weir_postbox *open_box(weir_scope *scope, size_t capacity)
{
    weir_postbox *box = NULL;

    CHECK_OK(weir_postbox_open(
        scope, &(weir_postbox_spec){.name = "box", .capacity = capacity, .overflow = WEIR_REJECT},
        &box));
    return box;
}

static int refuse_specs(void *arg)
{
    static const struct {
        weir_postbox_spec spec;
        const char *why;
    } rows[] = {
        {{.capacity = 1}, "postbox: name is not set"},
        {{.name = ""}, "postbox: name is not set"},
        {{.name = "b"}, "postbox 'b': capacity is not set"},
        {{.name = "b", .capacity = 1}, "postbox 'b': overflow is not set"},
        {{.name = "b", .capacity = 1, .overflow = WEIR_WAIT},
         "postbox 'b': overflow must be WEIR_REJECT, a foreign thread cannot wait"},
    };
    weir_scope *scope = open_scope("refused", WEIR_FAIL_FAST);
    weir_postbox *box = NULL;

    (void)arg;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CHECK_INT(weir_postbox_open(scope, &rows[i].spec, &box), ==, WEIR_EREFUSED);
        CHECK_STR(weir_why(), rows[i].why);
        CHECK(box == NULL);
    }
    box = open_box(scope, 1);
    CHECK_INT(weir_post(box, NULL, NULL, 0), ==, WEIR_EREFUSED);
    CHECK_INT(weir_post(box, return_argument, NULL, 4), ==, WEIR_EREFUSED);
    CHECK_INT(weir_post(box, return_argument, &box, WEIR_ARG_BYTES_MAX + 1), ==, WEIR_EREFUSED);
    weir_postbox_unref(box);
    weir_postbox_unref(NULL);
    return weir_scope_close(scope);
}

TEST(postbox_refuses_bad_specs_and_posts_with_a_sentence)
{
    CHECK_OK(run_on(1, refuse_specs, NULL));
}

/* ---- Foreign threads ---- */

enum { POSTERS = 4 };

struct load {
    weir_postbox *box;
    int posts; /* of each thread */
    ATOM(int64_t) sum;
    ATOM(int) ran;
    ATOM(int) rejected;
};

struct item {
    struct load *load;
    int value;
};

static int add_value(void *arg)
{
    struct item *item = arg;

    CHECK(weir_task_self().ref != NULL);
    (void)atom_add(&item->load->sum, item->value);
    (void)atom_add(&item->load->ran, 1);
    return 0;
}

static void *post_load(void *arg)
{
    struct load *load = arg;

    for (int i = 1; i <= load->posts; i++) {
        struct item item = {load, i};
        int r;

        while ((r = weir_post(load->box, add_value, &item, sizeof item)) == WEIR_EOVERLOAD) {
            (void)atom_add(&load->rejected, 1);
            sched_yield();
        }
        CHECK_OK(r);
    }
    weir_postbox_unref(load->box);
    return NULL;
}

static int take_load(void *arg)
{
    int posts = *(int *)arg;
    struct load load = {.posts = posts};
    pthread_t threads[POSTERS];
    weir_scope *scope = open_bounded("load", WEIR_FAIL_FAST, 8, WEIR_WAIT);

    load.box = open_box(scope, 64);
    for (int i = 0; i < POSTERS; i++) {
        weir_postbox_ref(load.box);
        CHECK_INT(pthread_create(&threads[i], NULL, post_load, &load), ==, 0);
    }
    while (atom_load(&load.ran) < POSTERS * posts) CHECK_OK(weir_sleep(1));
    for (int i = 0; i < POSTERS; i++) CHECK_INT(pthread_join(threads[i], NULL), ==, 0);
    CHECK_OK(weir_scope_close(scope));
    CHECK_INT(atom_load(&load.sum), ==, (int64_t)POSTERS * posts * (posts + 1) / 2);
    CHECK_INT(atom_load(&load.ran), ==, POSTERS * posts);
    weir_postbox_unref(load.box);
    return 0;
}

TEST_WITH(posts_of_four_threads_all_run_once, .timeout_ms = 60000)
{
    int posts = TEST_SLOW ? 1000 : 10000;

    CHECK_OK(run_on(1, take_load, &posts));
    CHECK_OK(run_on(2, take_load, &posts));
}

/* ---- Bounds ---- */

static int count_one(void *arg)
{
    ++**(ATOM(int) **)arg;
    return 0;
}

static int fill(void *arg)
{
    ATOM(int) ran = 0;
    ATOM(int) *pointer = &ran;
    weir_scope *scope = open_scope("full", WEIR_FAIL_FAST);
    weir_postbox *box = open_box(scope, 3);

    (void)arg;
    for (int round = 1; round <= 3; round++) {
        for (int i = 0; i < 3; i++) CHECK_OK(weir_post(box, count_one, &pointer, sizeof pointer));
        CHECK_INT(weir_post(box, count_one, &pointer, sizeof pointer), ==, WEIR_EOVERLOAD);
        while (ran < 3 * round) CHECK_OK(weir_sleep(0));
    }
    CHECK_OK(weir_scope_close(scope));
    CHECK_INT(weir_post(box, count_one, &pointer, sizeof pointer), ==, WEIR_ECLOSED);
    CHECK_INT(ran, ==, 9);
    weir_postbox_unref(weir_postbox_ref(box)); /* lives on until the last holder lets go */
    weir_postbox_unref(box);
    return 0;
}

TEST(full_postbox_rejects_and_a_closed_one_says_so)
{
    CHECK_OK(run_on(1, fill, NULL));
}

static int wait_for_go(void *arg)
{
    await_flag(*(ATOM(int) **)arg);
    return 0;
}

static int post_into_full_scope(void *arg)
{
    ATOM(int) ran = 0;
    ATOM(int) *pointer = &ran;
    ATOM(int) go = 0;
    ATOM(int) *go_pointer = &go;
    weir_scope *scope = open_bounded("full", WEIR_FAIL_FAST, 1, WEIR_REJECT);
    weir_postbox *box = open_box(scope, 100);

    (void)arg;
    CHECK_OK(weir_spawn(scope, wait_for_go, &go_pointer, sizeof go_pointer));
    for (int i = 0; i < 100; i++) CHECK_OK(weir_post(box, count_one, &pointer, sizeof pointer));
    for (int i = 0; i < 10; i++) CHECK_OK(weir_sleep(0));
    CHECK_INT(ran, ==, 0);
    CHECK_INT(weir_post(box, count_one, &pointer, sizeof pointer), ==, WEIR_EOVERLOAD);
    atom_store(&go, 1);
    CHECK_OK(weir_scope_close(scope)); /* also when it is closed while they wait */
    CHECK_INT(ran, ==, 100);
    weir_postbox_unref(box);
    return 0;
}

TEST(full_scope_delays_posts_and_loses_none)
{
    CHECK_OK(run_on(1, post_into_full_scope, NULL));
}

static int expect_cancelled(void *arg)
{
    CHECK_INT(weir_checkpoint(), ==, WEIR_ECANCELED);
    ++**(ATOM(int) **)arg;
    return WEIR_ECANCELED;
}

static int post_and_cancel(void *arg)
{
    ATOM(int) ran = 0;
    ATOM(int) *pointer = &ran;
    weir_scope *scope = open_bounded("cancelled", WEIR_FAIL_FAST, 2, WEIR_WAIT);
    weir_postbox *box = open_box(scope, 10);
    weir_postbox *refused = NULL;

    (void)arg;
    for (int i = 0; i < 10; i++)
        CHECK_OK(weir_post(box, expect_cancelled, &pointer, sizeof pointer));
    weir_scope_cancel(scope, 0, "with posts queued");
    CHECK_INT(weir_postbox_open(
                  scope,
                  &(weir_postbox_spec){.name = "late", .capacity = 1, .overflow = WEIR_REJECT},
                  &refused),
              ==, WEIR_ECANCELED);
    CHECK_OK(weir_scope_close(scope));
    CHECK_INT(ran, ==, 10);
    weir_postbox_unref(box);
    return 0;
}

TEST(queued_posts_run_although_the_scope_is_cancelled)
{
    CHECK_OK(run_on(1, post_and_cancel, NULL));
}

static int fail_posted(void *arg)
{
    (void)arg;
    return -EIO;
}

static int post_failure(void *arg)
{
    weir_failure failure;
    weir_scope *scope = open_scope("failing", WEIR_COLLECT);
    weir_postbox *box = open_box(scope, 10);

    (void)arg;
    CHECK_OK(weir_post(box, fail_posted, NULL, 0));
    CHECK_OK(weir_sleep(0));
    CHECK_INT(weir_scope_join(scope), ==, -EIO);
    CHECK_INT(weir_scope_failures(scope, &failure, 1), ==, 1);
    CHECK_STR(failure.task, "fail_posted");
    CHECK_INT(weir_scope_close(scope), ==, -EIO);
    weir_postbox_unref(box);
    return 0;
}

TEST(posted_function_fails_like_a_task_of_the_scope)
{
    CHECK_OK(run_on(1, post_failure, NULL));
}

/* A posted task is nobody's child: it sees no locals, however it came to be started. */
static const weir_local_key local_key = {"leaked"};

static int expect_no_local(void *arg)
{
    CHECK(weir_local_get(&local_key) == NULL);
    ++**(ATOM(int) **)arg;
    return 0;
}

static int post_with_locals(void *arg)
{
    ATOM(int) ran = 0;
    ATOM(int) *pointer = &ran;
    int value = 1;
    weir_scope *scope = open_scope("locals", WEIR_FAIL_FAST);
    weir_postbox *box = open_box(scope, 10);

    (void)arg;
    CHECK_OK(weir_local_set(&local_key, &value, sizeof value));
    CHECK_OK(weir_post(box, expect_no_local, &pointer, sizeof pointer));
    CHECK_OK(weir_sleep(0));
    CHECK_OK(weir_scope_join(scope));
    CHECK_OK(weir_post(box, expect_no_local, &pointer, sizeof pointer));
    CHECK_OK(weir_scope_close(scope)); /* starts the one that is still queued */
    CHECK_INT(ran, ==, 2);
    weir_postbox_unref(box);
    return 0;
}

TEST(posted_task_does_not_inherit_from_whoever_happens_to_run)
{
    CHECK_OK(run_on(1, post_with_locals, NULL));
}

/* Posted tasks leave nothing behind, though the tasks before them had handles. */
static int post_after_handles(void *arg)
{
    ATOM(int) ran = 0;
    ATOM(int) *pointer = &ran;
    weir_scope *scope = open_scope("after", WEIR_FAIL_FAST);
    weir_postbox *box = open_box(scope, 1);
    weir_task tasks[3];

    (void)arg;
    for (int i = 0; i < 3; i++)
        tasks[i] = spawn_task(scope, "handled", return_argument, &i, sizeof i);
    for (int i = 0; i < 3; i++) CHECK_OK(weir_task_join(tasks[i], NULL));
    for (int i = 1; i <= 100; i++) {
        CHECK_OK(weir_post(box, count_one, &pointer, sizeof pointer));
        while (ran < i) CHECK_OK(weir_sleep(0));
    }
    weir_postbox_unref(box);
    return weir_scope_close(scope);
}

TEST(posts_do_not_use_up_the_runtimes_tasks)
{
    CHECK_OK(weir_run(&(weir_config){.workers = 1, .max_tasks = 4}, post_after_handles, NULL));
}

/* Threads post while the scope ends: each post runs, or is refused as closed. */
struct ending {
    weir_postbox *box;
    ATOM(int) accepted;
    ATOM(int) ran;
    ATOM(int) started;
};

static int count_atomically(void *arg)
{
    (void)atom_add(*(ATOM(int) **)arg, 1);
    return 0;
}

static void *post_until_closed(void *arg)
{
    struct ending *ending = arg;
    ATOM(int) *pointer = &ending->ran;

    for (;;) {
        int r = weir_post(ending->box, count_atomically, &pointer, sizeof pointer);

        atom_store(&ending->started, 1);
        if (r == WEIR_ECLOSED) break;
        if (r == 0) (void)atom_add(&ending->accepted, 1);
        CHECK(r == 0 || r == WEIR_EOVERLOAD);
        if (r < 0) sched_yield();
    }
    weir_postbox_unref(ending->box);
    return NULL;
}

static int end_under_posts(void *arg)
{
    int rounds = *(int *)arg;

    for (int i = 0; i < rounds && (i == 0 || !test_late()); i++) {
        struct ending ending = {0};
        pthread_t threads[2];
        weir_scope *scope = open_scope("ending", WEIR_FAIL_FAST);

        ending.box = open_box(scope, 16);
        for (int t = 0; t < 2; t++) {
            weir_postbox_ref(ending.box);
            CHECK_INT(pthread_create(&threads[t], NULL, post_until_closed, &ending), ==, 0);
        }
        await_flag(&ending.started);
        if (i % 2) weir_scope_cancel(scope, 0, "every other time");
        CHECK_OK(weir_scope_close(scope));
        for (int t = 0; t < 2; t++) CHECK_INT(pthread_join(threads[t], NULL), ==, 0);
        CHECK_INT(atom_load(&ending.ran), ==, atom_load(&ending.accepted));
        weir_postbox_unref(ending.box);
    }
    return 0;
}

TEST(posts_during_the_end_of_the_scope_run_or_are_refused)
{
    int rounds = TEST_SLOW ? 10 : 100;

    CHECK_OK(run_on(1, end_under_posts, &rounds));
    CHECK_OK(run_on(2, end_under_posts, &rounds));
}

/* Without memory for the task the post waits and is tried again. */
static int post_without_memory(void *arg)
{
    ATOM(int) ran = 0;
    ATOM(int) *pointer = &ran;
    weir_scope *scope = open_scope("memory", WEIR_FAIL_FAST);
    weir_postbox *box = open_box(scope, 4);
    char large[1000] = "";

    (void)arg;
    memcpy(large, &pointer, sizeof pointer);
    for (int i = 0; i < 4; i++) CHECK_OK(weir_post(box, count_one, large, sizeof large));
    test_fail_alloc_at(1); /* of the first task's argument */
    CHECK_OK(weir_sleep(5));
    CHECK(test_alloc_failed());
    CHECK_INT(ran, ==, 0);
    CHECK_OK(weir_sleep(30));
    CHECK_INT(ran, ==, 4);
    test_fail_alloc_at(1);
    CHECK_INT(weir_post(box, count_one, large, sizeof large), ==, -ENOMEM);
    weir_postbox_unref(box);
    return weir_scope_close(scope);
}

TEST(post_waits_for_memory_and_is_not_lost)
{
    test_clock_auto();
    CHECK_OK(run_on(1, post_without_memory, NULL));
}
