/* rt_outside.c - what comes from outside the tasks, in simulation: posts of other threads, files by
 * the executor's threads, lack of memory; and looking at a program while it runs. */
#include <fcntl.h>

#include "sim/rt_programs.h"

static struct {
    weir_scope *scope;
    weir_postbox *box;
    weir_pool *pool;
    int posted, refused, ran;
    bool closed;
} posts;

static int run_post(void *arg)
{
    CHECK_INT(*(int *)arg, ==, 17);
    CHECK(!posts.closed);
    posts.ran++;
    return 0;
}

/* On a thread of the pool. */
static int post_two(void *data)
{
    int number = 17;

    (void)data;
    for (int i = 0; i < 2; i++) {
        int r = weir_post(posts.box, run_post, &number, sizeof number);

        if (r == 0)
            posts.posted++;
        else
            posts.refused++;
        CHECK(r == 0 || r == WEIR_ECLOSED || r == WEIR_EOVERLOAD);
    }
    return 0;
}

static int have_it_posted(void *arg)
{
    int data = 0;

    (void)arg;
    CHECK_OK(weir_pool_run(posts.pool, 0, post_two, &data, sizeof data));
    return 0;
}

static void open_posts(weir_scope *outer)
{
    static const weir_pool_class plain = {.name = "plain", .weight = 1, .queue_max = 4};

    CHECK_OK(weir_pool_open(outer,
                            &(weir_pool_spec){.name = "posters",
                                              .threads_max = 2,
                                              .overflow = WEIR_WAIT,
                                              .on_close = WEIR_DRAIN,
                                              .classes = &plain,
                                              .class_count = 1},
                            &posts.pool));
    CHECK_OK(weir_scope_open(
        &(weir_scope_spec){
            .name = "inner", .on_failure = WEIR_FAIL_FAST, .max_tasks = 2, .overflow = WEIR_REJECT},
        &posts.scope));
    CHECK_OK(weir_postbox_open(
        posts.scope, &(weir_postbox_spec){.name = "box", .capacity = 3, .overflow = WEIR_REJECT},
        &posts.box));
}

/* What was taken is run, before the scope is gone; what comes later is refused. */
SIM_TEST(rt_posts_are_run_or_refused, .runs_max = 10000, .config = &rt_two_workers)
{
    int r = 0;

    rt_begin();
    memset(&posts, 0, sizeof posts);
    WEIR_SCOPE(outer, &r, .name = "outer", .on_failure = WEIR_FAIL_FAST, .max_tasks = 4,
               .overflow = WEIR_REJECT) {
        open_posts(outer);
        for (int i = 0; i < 2; i++) CHECK_OK(weir_spawn(outer, have_it_posted, NULL, 0));
        for (unsigned n = weir_sim_choose(4); n > 0; n--) CHECK_OK(weir_yield());
        CHECK_OK(weir_scope_close(posts.scope));
        posts.closed = true;
        /* A poster that was interrupted on its way back has not counted its own yet. */
        CHECK_INT(posts.ran, >=, posts.posted);
    }
    weir_postbox_unref(posts.box);
    CHECK_INT(posts.posted + posts.refused, ==, 4);
    CHECK_INT(posts.ran, ==, posts.posted);
    return r;
}

/* ---- Files ---- */

static int write_and_read(void *arg)
{
    char path[] = "/file0", text[8] = "";
    weir_file *file = NULL;
    int r = 0, closed;

    path[5] = (char)('0' + *(int *)arg);
    WEIR_DEADLINE(1000) {
        r = weir_file_open(path, O_RDWR | O_CREAT, 0600, &file);
        if (r < 0) return r;
        r = (int)weir_file_write(file, path, sizeof path, 0);
        if (r >= 0) r = (int)weir_file_read(file, text, sizeof path, 0);
        if (r >= 0) CHECK_STR(text, path);
    }
    /* Also by a task that is cancelled. */
    closed = weir_file_close(file);
    CHECK(closed == 0 || closed == -EINPROGRESS || closed == WEIR_ECANCELED);
    CHECK(r >= 0 || r == WEIR_ECANCELED);
    return r < 0 ? r : 0;
}

int rt_program_files(void *arg)
{
    int r = 0;

    (void)arg;
    rt_begin();
    WEIR_SCOPE(scope, &r, .name = "files", .on_failure = WEIR_FAIL_FAST, .max_tasks = 4,
               .overflow = WEIR_WAIT) {
        for (int i = 0; i < 3; i++) {
            int s = weir_spawn(scope, write_and_read, &i, sizeof i);
            CHECK(s == 0 || s == WEIR_ECANCELED);
        }
    }
    CHECK_INT(rt_ms(), <, 1000);
    return r;
}

SIM_TEST(rt_files_by_threads_are_done_or_given_up, .runs_max = 5000,
         .config = &(weir_config){.workers = 2, .blocking_threads_max = 2}, .any_result = true,
         .faults = {.cancel = 30, .faults_max = 1})
{
    return rt_program_files(arg);
}

/* ---- No memory ---- */

SIM_TEST(rt_spawns_without_memory_take_nothing, .runs_max = 10000, .config = &rt_few_tasks,
         .any_result = true, .faults = {.no_memory = 5, .faults_max = 3})
{
    return rt_program_credit(arg);
}

/* ---- Looking at it while it runs ---- */

static struct {
    int looked;
    int ended;
} view;

static int yield_once(void *arg)
{
    (void)arg;
    return weir_yield();
}

/* Scopes, tasks and waits that come and go under the eyes of who looks. */
static int come_and_go(void *arg)
{
    (void)arg;
    for (int i = 0; i < 2; i++) {
        int r = 0;

        WEIR_SCOPE(inner, &r, .name = "inner", .on_failure = WEIR_FAIL_FAST, .max_tasks = 2,
                   .overflow = WEIR_REJECT) {
            CHECK_OK(weir_spawn(inner, yield_once, NULL, 0));
            CHECK_OK(weir_sleep(1));
        }
        CHECK_OK(r);
    }
    view.ended++;
    return 0;
}

static int take_metrics(const char *text, size_t bytes, void *arg)
{
    CHECK_INT(strlen(text), ==, bytes);
    CHECK_CONTAINS(text, "weir_tasks");
    (*(int *)arg)++;
    return 0;
}

static int look(void *arg)
{
    int fd = *(int *)arg;

    for (int i = 0; i < 2; i++) {
        CHECK_OK(weir_dump(fd));
        CHECK_OK(weir_map(fd, i ? WEIR_MAP_TEXT : WEIR_MAP_GRAPHVIZ));
        CHECK_OK(weir_metrics_read(WEIR_METRICS_PROMETHEUS, take_metrics, &view.looked));
        CHECK_OK(weir_sleep(1));
    }
    return 0;
}

SIM_TEST(rt_looking_at_a_program_disturbs_nothing, .runs_max = 1500, .config = &rt_two_workers)
{
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC); /* the real one: looking is not simulated */
    int r = 0;

    CHECK_INT(fd, >=, 0);
    rt_begin();
    memset(&view, 0, sizeof view);
    WEIR_SCOPE(outer, &r, .name = "outer", .on_failure = WEIR_FAIL_FAST, .max_tasks = 4,
               .overflow = WEIR_REJECT) {
        for (int i = 0; i < 2; i++) CHECK_OK(weir_spawn(outer, come_and_go, NULL, 0));
        CHECK_OK(weir_spawn(outer, look, &fd, sizeof fd));
    }
    CHECK_INT(close(fd), ==, 0);
    CHECK_INT(view.ended, ==, 2);
    CHECK_INT(view.looked, ==, 2);
    return r;
}
