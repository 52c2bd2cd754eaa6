/* file_test.c - files: results; and through the executor's threads: bounds, orphans. What is
 * special to calls by completion is in completion_test.c. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rt/runtime.h"
#include "rt/sanitize.h"
#include "unit/io/io_test.h"

struct folder {
    char path[32];
    char names[4][64];
};

/* An empty folder, and paths of files that could be in it. */
static void folder_make(struct folder *folder)
{
    char path[] = "/tmp/weir-test-XXXXXX";

    CHECK(mkdtemp(path) != NULL);
    strcpy(folder->path, path);
    for (int i = 0; i < 4; i++) {
        (void)snprintf(folder->names[i], sizeof folder->names[i], "%s/%c", path, 'a' + i);
    }
}

static void folder_remove(struct folder *folder)
{
    for (int i = 0; i < 4; i++) {
        (void)unlink(folder->names[i]);
        (void)rmdir(folder->names[i]);
    }
    CHECK_INT(rmdir(folder->path), ==, 0);
}

IO_TEST(a_file_is_written_synced_read_renamed_and_removed)
{
    struct folder folder;
    weir_file *file;
    struct stat found;
    char data[16] = "";

    folder_make(&folder);
    CHECK_OK(weir_file_open(folder.names[0], O_RDWR | O_CREAT | O_EXCL, 0640, &file));
    CHECK_INT(weir_file_write(file, "hello", 5, 0), ==, 5);
    CHECK_INT(weir_file_write(file, "world", 5, 7), ==, 5);
    CHECK_INT(weir_file_write(file, NULL, 0, 0), ==, 0);
    CHECK_OK(weir_file_sync(file, true));
    CHECK_OK(weir_file_sync(file, false));
    CHECK_INT(weir_file_read(file, data, sizeof data, 0), ==, 12);
    CHECK(memcmp(data, "hello\0\0world", 12) == 0);
    CHECK_INT(weir_file_read(file, data, sizeof data, 12), ==, 0);
    CHECK_INT(weir_file_read(file, data, sizeof data, -1), ==, -EINVAL);
    CHECK_OK(weir_file_stat(file, &found));
    CHECK_INT(found.st_size, ==, 12);
    CHECK_INT(weir_file_close(file), ==, 0);
    CHECK_INT(weir_file_close(NULL), ==, 0);
    CHECK_OK(weir_path_rename(folder.names[0], folder.names[1]));
    CHECK_INT(weir_path_stat(folder.names[0], &found), ==, -ENOENT);
    CHECK_OK(weir_path_stat(folder.names[1], &found));
    CHECK_INT(found.st_size, ==, 12);
    CHECK_OK(weir_path_unlink(folder.names[1]));
    CHECK_INT(weir_path_unlink(folder.names[1]), ==, -ENOENT);
    folder_remove(&folder);
    return 0;
}

IO_TEST(errors_of_files_are_the_kernels)
{
    struct folder folder;
    weir_file *file = NULL;
    weir_listing *listing = NULL;
    char data[4];
    static char path[PATH_MAX + 10];

    folder_make(&folder);
    CHECK_INT(weir_file_open(folder.names[0], O_RDONLY, 0, &file), ==, -ENOENT);
    CHECK_INT(weir_file_open(folder.path, O_WRONLY, 0, &file), ==, -EISDIR);
    CHECK_OK(weir_path_mkdir(folder.names[0], 0700));
    CHECK_INT(weir_path_mkdir(folder.names[0], 0700), ==, -EEXIST);
    CHECK_OK(weir_file_open(folder.names[0], O_RDONLY, 0, &file));
    CHECK_INT(weir_file_read(file, data, sizeof data, 0), ==, -EISDIR);
    CHECK_INT(weir_file_write(file, data, sizeof data, 0), ==, -EBADF);
    CHECK_INT(weir_file_close(file), ==, 0);
    CHECK_INT(weir_path_list(folder.names[1], 10, &listing), ==, -ENOENT);
    CHECK_INT(weir_path_rename(folder.names[1], folder.names[2]), ==, -ENOENT);
    memset(path, 'p', sizeof path - 1);
    CHECK_INT(weir_file_open(path, O_RDONLY, 0, &file), ==, -ENAMETOOLONG);
    CHECK_INT(weir_path_rename("x", path), ==, -ENAMETOOLONG);
    CHECK_INT(weir_file_open(NULL, O_RDONLY, 0, &file), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "weir_file_open: path is NULL");
    CHECK_INT(weir_path_rename("x", NULL), ==, WEIR_EREFUSED);
    CHECK_INT(weir_path_list(folder.path, 0, &listing), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "entries_max");
    folder_remove(&folder);
    return 0;
}

IO_TEST(long_transfers_are_cut_at_the_bound)
{
    struct folder folder;
    weir_file *file;
    size_t bytes = WEIR_FILE_IO_BYTES_MAX + 4096;
    char *data = malloc(bytes);

    folder_make(&folder);
    memset(data, 'w', bytes);
    CHECK_OK(weir_file_open(folder.names[0], O_RDWR | O_CREAT, 0600, &file));
    CHECK_INT(weir_file_write(file, data, bytes, 0), ==, WEIR_FILE_IO_BYTES_MAX);
    CHECK_INT(weir_file_write(file, data, 4096, WEIR_FILE_IO_BYTES_MAX), ==, 4096);
    memset(data, 0, bytes);
    CHECK_INT(weir_file_read(file, data, bytes, 0), ==, WEIR_FILE_IO_BYTES_MAX);
    CHECK_INT(data[WEIR_FILE_IO_BYTES_MAX - 1], ==, 'w');
    CHECK_INT(data[WEIR_FILE_IO_BYTES_MAX], ==, 0);
    CHECK_INT(weir_file_close(file), ==, 0);
    free(data);
    folder_remove(&folder);
    return 0;
}

/* ---- Listings ---- */

IO_TEST(a_listing_is_sorted_and_bounded)
{
    enum { ENTRIES = 150 };
    struct folder folder;
    weir_listing *listing = NULL;
    char path[96];

    folder_make(&folder);
    CHECK_OK(weir_path_list(folder.path, 1, &listing));
    CHECK_INT(weir_listing_count(listing), ==, 0);
    CHECK(weir_listing_name(listing, 0) == NULL);
    weir_listing_free(listing);
    for (int i = 0; i < ENTRIES; i++) {
        (void)snprintf(path, sizeof path, "%s/entry-%03d", folder.path, (i * 37) % ENTRIES);
        int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        CHECK(fd >= 0);
        CHECK_INT(close(fd), ==, 0);
    }
    listing = NULL;
    CHECK_INT(weir_path_list(folder.path, ENTRIES - 1, &listing), ==, -EOVERFLOW);
    CHECK(listing == NULL);
    CHECK_OK(weir_path_list(folder.path, ENTRIES, &listing));
    CHECK_INT(weir_listing_count(listing), ==, ENTRIES);
    for (int i = 0; i < ENTRIES; i++) {
        (void)snprintf(path, sizeof path, "entry-%03d", i);
        CHECK_STR(weir_listing_name(listing, (size_t)i), path);
        (void)snprintf(path, sizeof path, "%s/entry-%03d", folder.path, i);
        CHECK_OK(weir_path_unlink(path));
    }
    weir_listing_free(listing);
    weir_listing_free(NULL);
    folder_remove(&folder);
    return 0;
}

/* ---- A thread that is stuck: opening a fifo that nobody writes ---- */

static struct blocking *executor(void)
{
    return &worker_self()->runtime->files;
}

static size_t orphan_count(void)
{
    struct blocking *files = executor();
    size_t count;

    lock_acquire(&files->lock);
    count = files->orphan_count;
    lock_release(&files->lock);
    return count;
}

static size_t running_count(void)
{
    struct blocking *files = executor();
    size_t count = 0;

    lock_acquire(&files->lock);
    sanitize_unseen_begin(); /* memory of the library's, under its lock, which orders no tasks */
    list_for_each(node, &files->running) count++;
    sanitize_unseen_end();
    lock_release(&files->lock);
    return count;
}

static int open_fifo(void *arg)
{
    weir_file *file = NULL;
    int r = weir_file_open(arg, O_RDONLY, 0, &file);

    if (r < 0) return r;
    return weir_file_close(file);
}

static int stat_path(void *arg)
{
    struct stat found;
    return weir_path_stat(arg, &found);
}

/* Let whoever opens the fifo for reading go on: a thread that may not have got to it yet. */
static void unblock(const char *path)
{
    int fd;
    while ((fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC)) < 0 && errno == ENXIO)
        CHECK_OK(weir_sleep(1));
    CHECK(fd >= 0);
    CHECK_INT(close(fd), ==, 0);
}

static void wait_until_running(size_t count)
{
    while (running_count() != count) CHECK_OK(weir_sleep(1));
}

static void wait_until_no_orphans(void)
{
    while (orphan_count() > 0) CHECK_OK(weir_sleep(1));
}

static int with_one_thread(weir_task_fn body)
{
    return weir_run(&(weir_config){.workers = test_workers(),
                                   .log_level = WEIR_LOG_OFF,
                                   .blocking_threads_max = 1,
                                   .blocking_queue_max = 1},
                    io_test_task, &body);
}

static int queue_is_bounded(void *arg)
{
    struct folder folder;
    struct stat found;
    weir_file *file;
    int r;

    (void)arg;
    folder_make(&folder);
    CHECK_INT(mkfifo(folder.names[0], 0600), ==, 0);
    CHECK_OK(weir_file_open(folder.path, O_RDONLY, 0, &file));
    IO_SCOPE(scope, &r)
    {
        CHECK_OK(weir_spawn(scope, open_fifo, folder.names[0], sizeof folder.names[0]));
        wait_until_running(1);
        CHECK_OK(weir_spawn(scope, stat_path, folder.path, sizeof folder.path));
        CHECK_OK(weir_yield());
        CHECK_INT(weir_path_stat(folder.path, &found), ==, WEIR_EOVERLOAD);
        CHECK_INT(weir_file_stat(file, &found), ==, WEIR_EOVERLOAD);
        /* A close is never turned away. */
        CHECK_INT(weir_file_close(file), ==, 0);
        unblock(folder.names[0]);
    }
    CHECK_OK(r);
    CHECK_OK(weir_path_stat(folder.path, &found));
    folder_remove(&folder);
    return 0;
}

TEST(a_full_executor_rejects_and_recovers)
{
    kernel_override(&kernel_epoll); /* where every file call needs a thread */
    CHECK_OK(with_one_thread(queue_is_bounded));
}

static int orphaned_open(void *arg)
{
    struct folder folder;
    weir_file *file = NULL;
    struct stat found;
    int r;

    (void)arg;
    folder_make(&folder);
    CHECK_INT(mkfifo(folder.names[0], 0600), ==, 0);
    IO_SCOPE(scope, &r)
    {
        CHECK_OK(weir_spawn(scope, open_fifo, folder.names[0], sizeof folder.names[0]));
        wait_until_running(1);
        weir_scope_cancel(scope, 0, "enough");
    }
    CHECK_OK(r);
    CHECK_INT(orphan_count(), ==, 1);
    CHECK_STR(container_of(list_first(&executor()->orphans), struct blocking_call, node)->name,
              "open");
    CHECK_STR(container_of(list_first(&executor()->orphans), struct blocking_call, node)->detail,
              folder.names[0]);
    /* A call that was only queued never happens. */
    WEIR_DEADLINE(5) { r = weir_path_mkdir(folder.names[1], 0700); }
    CHECK_INT(r, ==, WEIR_ETIMEDOUT);
    CHECK_INT(orphan_count(), ==, 1);
    unblock(folder.names[0]);
    wait_until_no_orphans();
    CHECK_INT(weir_path_stat(folder.names[1], &found), ==, -ENOENT);
    CHECK_INT(weir_file_open(folder.names[2], O_RDONLY, 0, &file), ==, -ENOENT);
    folder_remove(&folder);
    return 0;
}

TEST(a_cancelled_open_goes_on_as_an_orphan_and_closes_its_descriptor)
{
    kernel_override(&kernel_epoll); /* where every file call needs a thread */
    CHECK_OK(with_one_thread(orphaned_open));
}

/* ---- A file that is closed while an orphan still uses it ---- */

struct fifo_read {
    weir_file *file;
};

static int read_fifo(void *arg)
{
    struct fifo_read *use = arg;
    char byte;
    ssize_t n = weir_file_read(use->file, &byte, 1, 0);
    return n < 0 ? (int)n : 0;
}

/* The table's pread blocks on a pipe that the test holds, as a slow disk would. */
static struct kernel slow_kernel;
static int slow_gate[2];

static ssize_t slow_pread(const struct kernel *kernel, int fd, void *data, size_t bytes,
                          int64_t offset)
{
    char byte;
    CHECK_INT(read(slow_gate[0], &byte, 1), ==, 1);
    return kernel_epoll.pread(kernel, fd, data, bytes, offset);
}

static int orphaned_read(void *arg)
{
    struct folder folder;
    struct fifo_read use;
    struct stat before, after;
    int fd, r;

    (void)arg;
    folder_make(&folder);
    CHECK_OK(weir_file_open(folder.names[0], O_RDWR | O_CREAT, 0600, &use.file));
    CHECK_OK(weir_file_stat(use.file, &before));
    IO_SCOPE(scope, &r)
    {
        CHECK_OK(weir_spawn(scope, read_fifo, &use, sizeof use));
        wait_until_running(1);
        weir_scope_cancel(scope, 0, "enough");
    }
    CHECK_OK(r);
    CHECK_INT(orphan_count(), ==, 1);
    CHECK_INT(weir_file_close(use.file), ==, -EINPROGRESS);
    /* Its number is not free for others yet. */
    fd = open(folder.names[1], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    CHECK_INT(fstat(fd, &after), ==, 0);
    CHECK(before.st_ino != after.st_ino);
    CHECK_INT(write(slow_gate[1], "x", 1), ==, 1);
    wait_until_no_orphans();
    CHECK_INT(close(fd), ==, 0);
    folder_remove(&folder);
    return 0;
}

TEST(a_descriptor_stays_open_while_an_orphan_uses_it)
{
    slow_kernel = kernel_epoll;
    slow_kernel.pread = slow_pread;
    CHECK_INT(pipe2(slow_gate, O_CLOEXEC), ==, 0);
    kernel_override(&slow_kernel);
    CHECK_OK(io_test_run(orphaned_read));
    kernel_override(NULL);
    CHECK_INT(close(slow_gate[0]), ==, 0);
    CHECK_INT(close(slow_gate[1]), ==, 0);
}

/* ---- Closing ---- */

static int cancelled_close(void *arg)
{
    weir_file *file = *(weir_file **)arg;
    char byte;

    CHECK_INT(weir_yield(), ==, WEIR_ECANCELED);
    CHECK_INT(weir_file_read(file, &byte, 1, 0), ==, WEIR_ECANCELED);
    CHECK_INT(weir_file_close(file), ==, 0);
    return 0;
}

IO_TEST(a_cancelled_task_still_closes_its_file)
{
    weir_file *file;
    int fd, r;

    CHECK_OK(weir_file_open("/tmp", O_RDONLY, 0, &file));
    IO_SCOPE(scope, &r)
    {
        CHECK_OK(weir_spawn(scope, cancelled_close, &file, sizeof file));
        weir_scope_cancel(scope, 0, "enough");
    }
    CHECK_OK(r);
    fd = open("/tmp", O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK_INT(close(fd), ==, 0);
    return 0;
}

static int close_fails(void *arg)
{
    weir_file *file;

    (void)arg;
    CHECK_OK(weir_file_open("/tmp", O_RDONLY, 0, &file));
    test_fault("close", -EIO, 1);
    CHECK_INT(weir_file_close(file), ==, -EIO);
    CHECK_OK(weir_file_open("/tmp", O_RDONLY, 0, &file));
    test_fail_alloc_at(1);
    CHECK_INT(weir_file_close(file), ==, 0);
    return 0;
}

TEST(the_error_of_close_is_told_and_memory_is_no_excuse)
{
    test_kernel_install();
    CHECK_OK(io_test_run(close_fails));
}

/* ---- Closing when the executor is stuck, and a close that is slow ---- */

static int close_beside_a_stuck_thread(void *arg)
{
    struct folder folder;
    weir_file *file;
    int r = 0;

    (void)arg;
    folder_make(&folder);
    CHECK_INT(mkfifo(folder.names[0], 0600), ==, 0);
    CHECK_OK(weir_file_open(folder.path, O_RDONLY, 0, &file));
    IO_SCOPE(scope, &r)
    {
        CHECK_OK(weir_spawn(scope, open_fifo, folder.names[0], sizeof folder.names[0]));
        wait_until_running(1);
        weir_scope_cancel(scope, 0, "enough");
    }
    CHECK_OK(r);
    CHECK_INT(orphan_count(), ==, 1);
    WEIR_DEADLINE(60000) { r = weir_file_close(file); }
    CHECK_INT(r, ==, 0);
    unblock(folder.names[0]);
    wait_until_no_orphans();
    folder_remove(&folder);
    return 0;
}

TEST(a_close_does_not_stand_behind_threads_that_are_stuck)
{
    kernel_override(&kernel_epoll); /* where every file call needs a thread */
    CHECK_OK(with_one_thread(close_beside_a_stuck_thread));
}

static ATOM(int) slow_close_fd = -1;

static int slow_close(const struct kernel *kernel, int fd)
{
    char byte;
    if (fd == slow_close_fd) CHECK_INT(read(slow_gate[0], &byte, 1), ==, 1);
    return kernel_epoll.close(kernel, fd);
}

static int interrupted_close(void *arg)
{
    weir_file *file;
    int next, r = 0;

    (void)arg;
    /* The lowest number that is free is the one that the file gets. */
    next = dup(slow_gate[0]);
    CHECK_INT(close(next), ==, 0);
    CHECK_OK(weir_file_open("/tmp", O_RDONLY, 0, &file));
    slow_close_fd = next;
    WEIR_DEADLINE(20) { r = weir_file_close(file); }
    CHECK_INT(r, ==, WEIR_ETIMEDOUT);
    /* On a busy machine its thread may not have begun by then; it will. */
    while (orphan_count() != 1) CHECK_OK(weir_sleep(1));
    CHECK(fcntl(next, F_GETFD) >= 0); /* the orphan's */
    CHECK_INT(write(slow_gate[1], "x", 1), ==, 1);
    wait_until_no_orphans();
    CHECK_INT(fcntl(next, F_GETFD), ==, -1);
    slow_close_fd = -1;
    return 0;
}

TEST(a_slow_close_is_cut_short_and_still_closes)
{
    slow_kernel = kernel_epoll;
    slow_kernel.close = slow_close;
    CHECK_INT(pipe2(slow_gate, O_CLOEXEC), ==, 0);
    kernel_override(&slow_kernel);
    CHECK_OK(with_one_thread(interrupted_close));
    kernel_override(NULL);
    CHECK_INT(close(slow_gate[0]), ==, 0);
    CHECK_INT(close(slow_gate[1]), ==, 0);
}

/* What closes twice is caught by the harness. */
IO_TEST(closes_that_signals_interrupt_close_once)
{
    char address[WEIR_ADDRESS_TEXT_MAX];
    weir_listener *listener = io_test_listen(address);
    weir_file *file;
    weir_conn *a, *b;
    weir_udp *udp;

    CHECK_OK(weir_file_open("/dev/null", O_RDONLY, 0, &file));
    CHECK_OK(weir_socketpair(&a, &b));
    CHECK_OK(weir_udp_open("udp:127.0.0.1:0", &udp));
    test_interrupt_close(5);
    CHECK_INT(weir_file_close(file), ==, 0);
    weir_conn_close(a);
    weir_conn_close(b);
    weir_listener_close(listener);
    weir_udp_close(udp);
    return 0;
}
