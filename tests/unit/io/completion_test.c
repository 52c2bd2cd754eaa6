/* completion_test.c - files on a queue that makes their calls by completion: the same
 * results, bounds and orphans as with threads (file_test.c). */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rt/kernel_real.h"
#include "rt/runtime.h"
#include "unit/io/io_test.h"

static struct blocking *executor(void)
{
    return &worker_self()->runtime->files;
}

/* Folder, fifo in it, and a name that is free. */
struct place {
    char folder[32];
    char fifo[64];
    char other[64];
};

static void place_make(struct place *place)
{
    strcpy(place->folder, "/tmp/weir-test-XXXXXX");
    CHECK(mkdtemp(place->folder) != NULL);
    (void)snprintf(place->fifo, sizeof place->fifo, "%s/fifo", place->folder);
    (void)snprintf(place->other, sizeof place->other, "%s/other", place->folder);
    CHECK_INT(mkfifo(place->fifo, 0600), ==, 0);
}

static void place_remove(const struct place *place)
{
    (void)unlink(place->fifo);
    (void)unlink(place->other);
    CHECK_INT(rmdir(place->folder), ==, 0);
}

/* Run on io_uring, with room for `threads` + `queue` calls. */
static int run_with(weir_task_fn body, int threads, size_t queue, int64_t drain_ms)
{
    struct kernel_queue *probe;

    TEST_SKIP_ON_VALGRIND("it does not see what the kernel writes into a ring");
    if (!kernel_uring || kernel_uring->queue_open(kernel_uring, &probe) < 0) {
        TEST_SKIP("io_uring does not work here");
    }
    kernel_uring->queue_close(probe);
    kernel_override(kernel_uring);
    return weir_run(&(weir_config){.workers = test_workers(),
                                   .log_level = WEIR_LOG_OFF,
                                   .drain_ms = drain_ms,
                                   .blocking_threads_max = threads,
                                   .blocking_queue_max = queue},
                    io_test_task, &body);
}

static int need_no_thread(void *arg)
{
    struct place place;
    struct stat found;
    weir_file *file;
    char data[8] = "";

    (void)arg;
    place_make(&place);
    CHECK_OK(weir_path_unlink(place.fifo));
    CHECK_OK(weir_file_open(place.fifo, O_RDWR | O_CREAT, 0600, &file));
    CHECK_INT(weir_file_write(file, "hello", 5, 0), ==, 5);
    CHECK_INT(weir_file_read(file, data, sizeof data, 0), ==, 5);
    CHECK_STR(data, "hello");
    CHECK_OK(weir_file_sync(file, true));
    CHECK_OK(weir_file_stat(file, &found));
    CHECK_INT(found.st_size, ==, 5);
    CHECK_OK(weir_path_rename(place.fifo, place.other));
    CHECK_OK(weir_path_stat(place.other, &found));
    CHECK_OK(weir_path_mkdir(place.fifo, 0700));
    CHECK_INT(executor()->thread_count, ==, 0);
    CHECK_INT(executor()->completion_count, ==, 0);
    CHECK_OK(weir_file_close(file)); /* by a thread: closed means closed */
    CHECK_INT(executor()->thread_count, ==, 1);
    CHECK_INT(rmdir(place.fifo), ==, 0);
    place_remove(&place);
    return 0;
}

TEST(file_calls_by_completion_need_no_thread)
{
    CHECK_OK(run_with(need_no_thread, 2, 4, 0));
}

static int need_a_thread(void *arg)
{
    struct stat found;
    weir_file *file;
    char byte;

    (void)arg;
    CHECK_OK(weir_file_open("/proc/self/exe", O_RDONLY, 0, &file));
    CHECK_INT(weir_file_read(file, &byte, 1, 0), ==, 1);
    CHECK_OK(weir_path_stat("/", &found));
    CHECK_INT(executor()->thread_count, >=, 1);
    CHECK_OK(weir_file_close(file));
    return 0;
}

TEST(file_calls_go_to_threads_where_opcodes_are_missing)
{
    kernel_uring_limit(&(struct kernel_uring_limits){.ops_missing = ~0u});
    CHECK_OK(run_with(need_a_thread, 2, 4, 0));
}

static int make_do(void *arg)
{
    struct place place;
    struct stat found;
    weir_file *file;
    char data[8] = "";

    (void)arg;
    place_make(&place);
    CHECK_OK(weir_file_open(place.other, O_RDWR | O_CREAT | O_EXCL, 0600, &file));
    CHECK_INT(weir_file_write(file, "hello", 5, 0), ==, 5);
    CHECK_OK(weir_file_sync(file, true));
    CHECK_INT(weir_file_read(file, data, sizeof data, 0), ==, 5);
    CHECK_STR(data, "hello");
    CHECK_OK(weir_path_stat(place.other, &found));
    CHECK_INT(found.st_size, ==, 5);
    CHECK_INT(weir_path_mkdir(place.other, 0700), ==, -EEXIST);
    CHECK_OK(weir_file_close(file));
    CHECK_INT(executor()->thread_count, >=, 1);
    CHECK_INT(executor()->completion_count, ==, 0);
    place_remove(&place);
    return 0;
}

TEST(file_calls_that_the_kernel_could_not_begin_go_to_threads)
{
    kernel_uring_limit(&(struct kernel_uring_limits){.threads_missing = true});
    CHECK_OK(run_with(make_do, 2, 4, 0));
}

/* What has no offsets is read by the system call, which says so. */
static int without_offsets(void *arg)
{
    struct place place;
    weir_file *file;
    char byte;

    (void)arg;
    place_make(&place);
    CHECK_OK(weir_file_open(place.fifo, O_RDWR, 0, &file));
    CHECK_INT(weir_file_read(file, &byte, 1, 0), ==, -ESPIPE);
    CHECK_INT(weir_file_write(file, &byte, 1, 0), ==, -ESPIPE);
    CHECK_OK(weir_file_close(file));
    CHECK_OK(weir_file_open("/tmp", O_RDONLY | O_NONBLOCK, 0, &file));
    CHECK_INT(weir_file_read(file, &byte, 1, 0), ==, -EISDIR);
    CHECK_INT(weir_file_read(file, &byte, 1, -1), ==, -EINVAL);
    CHECK_OK(weir_file_close(file));
    place_remove(&place);
    return 0;
}

TEST(file_without_offsets_is_told_as_by_the_system_call)
{
    CHECK_OK(run_with(without_offsets, 2, 4, 0));
}

/* ---- Embedded: the descriptor tells of completions, too ---- */

static int read_a_file(void *arg)
{
    weir_file *file;
    char byte;

    (void)arg;
    WEIR_DEADLINE(IO_TEST_MS) {
        for (int i = 0; i < 20; i++) {
            CHECK_OK(weir_file_open("/proc/self/exe", O_RDONLY, 0, &file));
            CHECK_INT(weir_file_read(file, &byte, 1, 0), ==, 1);
            CHECK_INT(byte, ==, 0x7f);
            CHECK_OK(weir_file_close(file));
        }
    }
    return 0;
}

TEST(embedded_runtime_becomes_readable_by_completions)
{
    weir_runtime *runtime;
    int alive;

    if (!kernel_uring) TEST_SKIP("the library was built without io_uring");
    CHECK_OK(weir_runtime_open(&(weir_config){.log_level = WEIR_LOG_OFF}, &runtime));
    CHECK_OK(weir_spawn(weir_runtime_scope(runtime), read_a_file, NULL, 0));
    while ((alive = weir_turn(runtime)) > 0) {
        struct pollfd poller = {.fd = weir_runtime_fd(runtime), .events = POLLIN};

        CHECK_INT(poll(&poller, 1, IO_TEST_MS), ==, 1);
    }
    CHECK_INT(alive, ==, 0);
    CHECK_OK(weir_runtime_close(runtime));
}

/* ---- Bounds and orphans: opening a fifo that nobody writes ---- */

static int open_fifo(void *arg)
{
    weir_file *file = NULL;
    int r = weir_file_open(arg, O_RDONLY, 0, &file);

    return r < 0 ? r : weir_file_close(file);
}

/* Let whoever opens the fifo for reading go on. */
static int unblock(const char *path)
{
    int fd;

    while ((fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC)) < 0) {
        CHECK_INT(errno, ==, ENXIO); /* the kernel has not come to it yet */
        CHECK_OK(weir_sleep(1));
    }
    return fd;
}

static size_t under_way(void)
{
    struct blocking *files = executor();
    size_t count;

    lock_acquire(&files->lock);
    count = files->completion_count;
    lock_release(&files->lock);
    return count;
}

static size_t with_threads(void)
{
    struct blocking *files = executor();
    size_t count;

    lock_acquire(&files->lock);
    count = (size_t)files->busy_count + files->queue_count;
    lock_release(&files->lock);
    return count;
}

/* Two calls hang, which is all there is room for as `taken` counts it; `file` may be NULL. */
static void fill_and_free(const struct place *place, size_t (*taken)(void), weir_file *file)
{
    struct stat found;
    int fd = -1, r;

    IO_SCOPE(scope, &r)
    {
        for (int i = 0; i < 2; i++) {
            CHECK_OK(weir_spawn(scope, open_fifo, place->fifo, sizeof place->fifo));
        }
        while (taken() < 2) CHECK_OK(weir_sleep(1));
        CHECK_INT(weir_path_stat(place->folder, &found), ==, WEIR_EOVERLOAD);
        if (file) {
            CHECK_INT(weir_file_stat(file, &found), ==, WEIR_EOVERLOAD);
            CHECK_INT(weir_file_close(file), ==, 0); /* never turned away */
        }
        fd = unblock(place->fifo);
    }
    CHECK_OK(r);
    CHECK_INT(close(fd), ==, 0);
    CHECK_INT(under_way(), ==, 0);
    CHECK_OK(weir_path_stat(place->folder, &found));
}

static int bounded(void *arg)
{
    struct place place;
    weir_file *file;

    (void)arg;
    place_make(&place);
    CHECK_OK(weir_file_open(place.folder, O_RDONLY, 0, &file));
    fill_and_free(&place, under_way, file);
    place_remove(&place);
    return 0;
}

TEST(file_calls_by_completion_are_bounded)
{
    CHECK_OK(run_with(bounded, 1, 1, 0));
}

static int find_no_thread(void *arg)
{
    struct place place;

    (void)arg;
    place_make(&place);
    fill_and_free(&place, with_threads, NULL);
    place_remove(&place);
    return 0;
}

TEST(file_calls_that_the_kernel_could_not_begin_find_the_threads_bounded)
{
    kernel_uring_limit(&(struct kernel_uring_limits){.threads_missing = true});
    CHECK_OK(run_with(find_no_thread, 1, 1, 0));
}

static int orphaned(void *arg)
{
    struct place place;
    int fd, r;

    (void)arg;
    place_make(&place);
    IO_SCOPE(scope, &r)
    {
        CHECK_OK(weir_spawn(scope, open_fifo, place.fifo, sizeof place.fifo));
        while (under_way() == 0) CHECK_OK(weir_sleep(1));
        CHECK_OK(weir_sleep(1)); /* the worker has waited since: the kernel has seen it */
        weir_scope_cancel(scope, 0, "enough");
    }
    CHECK_OK(r);
    CHECK_INT(blocking_orphan_count(executor()), ==, 1);
    CHECK_INT(under_way(), ==, 1);
    CHECK_STR(container_of(list_first(&executor()->orphans), struct blocking_call, node)->detail,
              place.fifo);
    fd = unblock(place.fifo);
    while (blocking_orphan_count(executor()) > 0) CHECK_OK(weir_sleep(1));
    CHECK_INT(under_way(), ==, 0);
    /* It closes what it opened: nobody reads any more. */
    CHECK_INT(write(fd, "x", 1), ==, -1);
    CHECK_INT(errno, ==, EPIPE);
    CHECK_INT(close(fd), ==, 0);
    place_remove(&place);
    return 0;
}

TEST(file_call_of_a_cancelled_caller_goes_on_as_an_orphan)
{
    CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    CHECK_OK(run_with(orphaned, 1, 1, 0));
}

static struct place left_place;

static int leave_an_orphan(void *arg)
{
    weir_file *file = NULL;
    int r = 0;

    (void)arg;
    for (int i = 0; i < 3; i++) {
        WEIR_DEADLINE(20) { r = weir_file_open(left_place.fifo, O_RDONLY, 0, &file); }
        CHECK_INT(r, ==, WEIR_ETIMEDOUT);
    }
    return 0;
}

static int leave_orphans_everywhere(void *arg)
{
    int r;

    (void)arg;
    IO_SCOPE(scope, &r)
    {
        for (int i = 0; i < weir_worker_count(); i++) {
            CHECK_OK(weir_task_spawn(
                scope,
                &(weir_task_spec){.fn = leave_an_orphan, .place = WEIR_PLACE_WORKER, .worker = i},
                NULL));
        }
    }
    return r;
}

TEST(shutdown_cancels_orphans_that_do_not_end)
{
    place_make(&left_place);
    CHECK_OK(run_with(leave_orphans_everywhere, 8, 8, 30));
    place_remove(&left_place);
}

/* ---- A disk that hangs: calls that not even a cancel ends ---- */

static struct kernel hanging_kernel;

static int hanging_submit(struct kernel_queue *queue, struct kernel_file_op *op)
{
    (void)queue, (void)op;
    return 0;
}

static bool hanging_withdraw(struct kernel_queue *queue, struct kernel_file_op *op)
{
    (void)queue, (void)op;
    return false;
}

static void hanging_cancel_all(struct kernel_queue *queue)
{
    (void)queue;
}

static int stat_hangs(void *arg)
{
    struct stat found;
    int r = 0;

    (void)arg;
    WEIR_DEADLINE(5) { r = weir_path_stat("/", &found); }
    CHECK_INT(r, ==, WEIR_ETIMEDOUT);
    return 0;
}

static int hang_everywhere(void *arg)
{
    int r;

    (void)arg;
    IO_SCOPE(scope, &r)
    {
        for (int i = 0; i < weir_worker_count(); i++) {
            CHECK_OK(weir_task_spawn(
                scope, &(weir_task_spec){.fn = stat_hangs, .place = WEIR_PLACE_WORKER, .worker = i},
                NULL));
        }
    }
    return r;
}

static void run_and_hang(void *arg)
{
    weir_task_fn body = hang_everywhere;

    (void)arg;
    hanging_kernel = kernel_epoll;
    hanging_kernel.queue_submit = hanging_submit;
    hanging_kernel.queue_withdraw = hanging_withdraw;
    hanging_kernel.queue_cancel_all = hanging_cancel_all;
    kernel_override(&hanging_kernel);
    CHECK_OK(weir_run(&(weir_config){.workers = 2, .log_level = WEIR_LOG_ERROR, .drain_ms = 10},
                      io_test_task, &body));
    printf("went on\n");
    (void)fflush(stdout);
    _exit(0); /* what hangs is left behind */
}

TEST(shutdown_leaves_behind_what_not_even_a_cancel_ends)
{
    char output[1024];

    CHECK_INT(test_child(run_and_hang, NULL, output, sizeof output), ==, 0);
    CHECK_CONTAINS(output, "2 file calls did not end within 10 ms, nor when they were cancelled");
    CHECK_CONTAINS(output, "went on");
}
