/* kernel_uring_test.c - what is special to the io_uring queue: older and stricter kernels,
 * full rings, file calls by completion. What it has in common with the others is in
 * queue_test.c. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <weir/weir.h>

#include "harness/test.h"
#include "rt/kernel_real.h"
#include "rt/runtime.h"

#define SECOND INT64_C(1000000000)

static const struct kernel *k;

static int try_open(struct kernel_queue **ret_queue)
{
    k = kernel_uring;
    if (k == NULL) TEST_SKIP("the library was built without io_uring");
    return k->queue_open(k, ret_queue);
}

static struct kernel_queue *open_queue(void)
{
    struct kernel_queue *queue;
    int r = try_open(&queue);

    if (r < 0) TEST_SKIP(kernel_why(k, r));
    return queue;
}

/* ---- Older kernels ---- */

static void check_queue_works(struct kernel_queue *queue)
{
    struct kernel_event event;
    int fds[2];

    CHECK_INT(k->pipe(k, fds), ==, 0);
    CHECK_INT(k->queue_watch(queue, fds[0], 1), ==, 0);
    for (int i = 0; i < 10; i++) {
        CHECK_INT(k->queue_wait(queue, 0, &event, 1), ==, 0);
        CHECK_INT(k->write(k, fds[1], "a", 1), ==, 1);
        CHECK_INT(k->queue_wait(queue, 5 * SECOND, &event, 1), ==, 1);
        CHECK_INT(event.tag, ==, 1);
        CHECK_INT(event.ready, ==, READY_IN);
        k->queue_wake(queue);
        CHECK_INT(k->queue_wait(queue, 60 * SECOND, &event, 1), ==, 0);
    }
    k->queue_unwatch(queue, fds[0]);
    CHECK_INT(k->close(k, fds[0]), ==, 0);
    CHECK_INT(k->write(k, fds[1], "a", 1), ==, -EPIPE);
    CHECK_INT(k->close(k, fds[1]), ==, 0);
}

static void count_done(struct kernel_file_op *op)
{
    ++*(int *)op->arg;
}

TEST(ring_makes_do_with_the_flags_that_an_older_kernel_knows)
{
    const unsigned refused[] = {
        0,
        IORING_SETUP_DEFER_TASKRUN,
        IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_COOP_TASKRUN,
    };

    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct kernel_file_op op = {.kind = KERNEL_PATH_STAT, .path = "/", .done = count_done};
        struct kernel_queue *queue;

        test_note("with flags %x refused", refused[i]);
        kernel_uring_limit(&(struct kernel_uring_limits){.flags_refused = refused[i]});
        queue = open_queue();
        check_queue_works(queue);
        /* Without deferred completions, file calls are for threads. */
        CHECK_INT(k->queue_submit(queue, &op), ==, i == 0 ? 0 : -ENOSYS);
        if (i == 0) CHECK(k->queue_withdraw(queue, &op));
        k->queue_close(queue);
    }
}

TEST(ring_on_a_kernel_without_what_it_needs_is_refused)
{
    struct kernel_queue *queue;

    kernel_uring_limit(&(struct kernel_uring_limits){.multishot_missing = true});
    CHECK_INT(try_open(&queue), ==, -EINVAL);
    kernel_uring_limit(&(struct kernel_uring_limits){.flags_refused = ~0u, .setup_error = -EINVAL});
    CHECK_INT(try_open(&queue), ==, -EINVAL);
    CHECK_CONTAINS(kernel_why(k, -EINVAL), "too old");
}

/* ---- A full completion ring ---- */

TEST(polls_that_end_because_the_ring_is_full_are_made_again)
{
    enum { PIPES = 200, ROUNDS = 5 };
    static int fds[PIPES][2];
    struct kernel_queue *queue;
    struct kernel_event events[PIPES];

    kernel_uring_limit(&(struct kernel_uring_limits){.submissions_max = 2, .completions_max = 4});
    queue = open_queue();
    for (int i = 0; i < PIPES; i++) {
        CHECK_INT(k->pipe(k, fds[i]), ==, 0);
        CHECK_INT(k->queue_watch(queue, fds[i][0], (uint64_t)i + 1), ==, 0);
    }
    CHECK_INT(k->queue_wait(queue, 0, events, PIPES), ==, 0);
    for (int round = 0; round < ROUNDS; round++) {
        static bool seen[PIPES];
        int left = PIPES;

        test_note("round %d", round);
        memset(seen, 0, sizeof seen);
        for (int i = 0; i < PIPES; i++) CHECK_INT(k->write(k, fds[i][1], "a", 1), ==, 1);
        while (left > 0) {
            int n = k->queue_wait(queue, 10 * SECOND, events, PIPES);

            for (int i = 0; i < n; i++) {
                CHECK_INT(events[i].ready, ==, READY_IN);
                if (seen[events[i].tag - 1]) continue; /* made again: told again */
                seen[events[i].tag - 1] = true;
                left--;
            }
        }
        for (int i = 0; i < PIPES; i++) {
            char byte;

            CHECK_INT(k->read(k, fds[i][0], &byte, 1), ==, 1);
        }
        /* Late news of what was just read. */
        while (k->queue_wait(queue, 0, events, PIPES) > 0) continue;
    }
    for (int i = 0; i < PIPES; i++) {
        k->queue_unwatch(queue, fds[i][0]);
        CHECK_INT(k->close(k, fds[i][0]), ==, 0);
        CHECK_INT(k->write(k, fds[i][1], "a", 1), ==, -EPIPE);
        CHECK_INT(k->close(k, fds[i][1]), ==, 0);
    }
    k->queue_close(queue);
}

/* ---- File calls ---- */

static ssize_t complete(struct kernel_queue *queue, struct kernel_file_op *op)
{
    struct kernel_event event;
    int done = 0;

    op->done = count_done;
    op->arg = &done;
    CHECK_INT(k->queue_submit(queue, op), ==, 0);
    while (done == 0) CHECK_INT(k->queue_wait(queue, 10 * SECOND, &event, 1), ==, 0);
    CHECK_INT(done, ==, 1);
    CHECK(!k->queue_withdraw(queue, op));
    return op->result;
}
#define COMPLETE(...) complete(queue, &(struct kernel_file_op){__VA_ARGS__})

TEST(file_calls_complete_with_the_results_of_the_system_calls)
{
    struct kernel_queue *queue = open_queue();
    char directory[] = "/tmp/weir-uring-XXXXXX";
    char path[64], other[64], inner[64], data[8] = "", hello[] = "hello";
    struct kernel_file_op op;
    struct stat status;
    int fd;

    CHECK(mkdtemp(directory) != NULL);
    snprintf(path, sizeof path, "%s/a", directory);
    snprintf(other, sizeof other, "%s/b", directory);
    snprintf(inner, sizeof inner, "%s/c", directory);
    CHECK_INT(COMPLETE(.kind = KERNEL_FILE_OPEN, .path = path, .flags = O_RDWR), ==, -ENOENT);
    op = (struct kernel_file_op){
        .kind = KERNEL_FILE_OPEN, .path = path, .flags = O_RDWR | O_CREAT, .mode = 0640};
    fd = (int)complete(queue, &op);
    CHECK_INT(fcntl(fd, F_GETFD), ==, FD_CLOEXEC);
    CHECK(op.positioned);
    CHECK_INT(COMPLETE(.kind = KERNEL_FILE_WRITE, .fd = fd, .data = hello, .bytes = 5, .offset = 3),
              ==, 5);
    CHECK_INT(COMPLETE(.kind = KERNEL_FILE_READ, .fd = fd, .data = data, .bytes = 8, .offset = 3),
              ==, 5);
    CHECK_STR(data, "hello");
    CHECK_INT(COMPLETE(.kind = KERNEL_FILE_SYNC, .fd = fd, .data_only = true), ==, 0);
    CHECK_INT(COMPLETE(.kind = KERNEL_FILE_SYNC, .fd = fd), ==, 0);
    CHECK_INT(COMPLETE(.kind = KERNEL_FILE_SYNC, .fd = -1), ==, -EBADF);
    op = (struct kernel_file_op){.kind = KERNEL_FILE_STAT, .fd = fd};
    CHECK_INT(complete(queue, &op), ==, 0);
    memset(&status, 0, sizeof status);
    CHECK_INT(fstat(fd, &status), ==, 0);
    CHECK(memcmp(&status, &op.stat, sizeof status) == 0);
    CHECK_INT(k->close(k, fd), ==, 0);
    CHECK_INT(COMPLETE(.kind = KERNEL_PATH_RENAME, .path = path, .to = other), ==, 0);
    CHECK_INT(COMPLETE(.kind = KERNEL_PATH_STAT, .path = path), ==, -ENOENT);
    op = (struct kernel_file_op){.kind = KERNEL_PATH_STAT, .path = "/dev/null"};
    CHECK_INT(complete(queue, &op), ==, 0);
    CHECK_INT(stat("/dev/null", &status), ==, 0);
    CHECK_INT(op.stat.st_rdev, ==, status.st_rdev);
    CHECK_INT(COMPLETE(.kind = KERNEL_PATH_MKDIR, .path = inner, .mode = 0700), ==, 0);
    CHECK_INT(COMPLETE(.kind = KERNEL_PATH_MKDIR, .path = inner, .mode = 0700), ==, -EEXIST);
    CHECK_INT(COMPLETE(.kind = KERNEL_PATH_UNLINK, .path = inner), ==, -EISDIR);
    CHECK_INT(COMPLETE(.kind = KERNEL_PATH_UNLINK, .path = other), ==, 0);
    CHECK_INT(rmdir(inner), ==, 0);
    CHECK_INT(rmdir(directory), ==, 0);
    k->queue_close(queue);
}

TEST(file_calls_that_the_kernel_has_not_seen_can_be_taken_back)
{
    struct kernel_queue *queue = open_queue();
    struct kernel_event event;
    char path[] = "/tmp/weir-uring-XXXXXX";
    int done = 0;
    struct kernel_file_op op = {
        .kind = KERNEL_PATH_UNLINK, .path = path, .done = count_done, .arg = &done};
    int fd = mkstemp(path);

    CHECK_INT(close(fd), ==, 0);
    CHECK_INT(k->queue_submit(queue, &op), ==, 0);
    CHECK(k->queue_withdraw(queue, &op));
    CHECK_INT(k->queue_wait(queue, 1000000, &event, 1), ==, 0);
    CHECK_INT(access(path, F_OK), ==, 0);
    CHECK_INT(k->queue_submit(queue, &op), ==, 0);
    while (done == 0) CHECK_INT(k->queue_wait(queue, 10 * SECOND, &event, 1), ==, 0);
    CHECK_INT(op.result, ==, 0);
    CHECK_INT(access(path, F_OK), ==, -1);
    k->queue_close(queue);
}

TEST(file_calls_whose_opcode_is_missing_are_refused_one_by_one)
{
    for (int kind = 0; kind < KERNEL_FILE_KINDS; kind++) {
        struct kernel_file_op op = {.kind = (enum kernel_file_kind)kind, .path = "/", .to = "/"};
        struct kernel_queue *queue;

        kernel_uring_limit(&(struct kernel_uring_limits){.ops_missing = 1u << kind});
        queue = open_queue();
        CHECK_INT(k->queue_submit(queue, &op), ==, -ENOSYS);
        op.kind = (enum kernel_file_kind)((kind + 1) % KERNEL_FILE_KINDS);
        CHECK_INT(k->queue_submit(queue, &op), ==, 0);
        CHECK(k->queue_withdraw(queue, &op));
        k->queue_close(queue);
    }
}

/* The kernel opens a fifo at once when it is asked not to block; a thread would wait. */
TEST(file_open_blocks_like_the_system_call_and_can_be_cancelled)
{
    struct kernel_queue *queue = open_queue();
    struct kernel_event event;
    char directory[] = "/tmp/weir-uring-XXXXXX", path[64];
    int done = 0;
    struct kernel_file_op op = {.kind = KERNEL_FILE_OPEN,
                                .path = path,
                                .flags = O_RDONLY,
                                .done = count_done,
                                .arg = &done};
    int fd;

    CHECK(mkdtemp(directory) != NULL);
    snprintf(path, sizeof path, "%s/fifo", directory);
    CHECK_INT(mkfifo(path, 0600), ==, 0);
    CHECK_INT(access(path, R_OK), ==, 0); /* its name is in the kernel's cache now */
    CHECK_INT(k->queue_submit(queue, &op), ==, 0);
    CHECK_INT(k->queue_wait(queue, 20000000, &event, 1), ==, 0);
    CHECK_INT(done, ==, 0);
    do fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC); /* -ENXIO until it waits */
    while (fd < 0 && errno == ENXIO);
    while (done == 0) CHECK_INT(k->queue_wait(queue, 10 * SECOND, &event, 1), ==, 0);
    CHECK_INT(op.result, >=, 0);
    CHECK(!op.positioned);
    CHECK_INT(close((int)op.result), ==, 0);
    CHECK_INT(close(fd), ==, 0);

    done = 0;
    CHECK_INT(k->queue_submit(queue, &op), ==, 0);
    CHECK_INT(k->queue_wait(queue, 1000000, &event, 1), ==, 0);
    k->queue_cancel_all(queue);
    while (done == 0) CHECK_INT(k->queue_wait(queue, 10 * SECOND, &event, 1), ==, 0);
    CHECK(op.result == -ECANCELED || op.result == -EINTR);
    CHECK_INT(unlink(path), ==, 0);
    CHECK_INT(rmdir(directory), ==, 0);
    k->queue_close(queue);
}

static void touch_what_is_lent(void *arg)
{
    struct kernel_queue *queue = open_queue();
    /* From the heap: a touch of a variable whose bounds are known is not checked. */
    char *data = malloc(64);
    struct kernel_file_op op = {
        .kind = KERNEL_FILE_READ, .data = data, .bytes = 64, .done = count_done};

    (void)arg;
    CHECK_INT(k->queue_submit(queue, &op), ==, 0);
    *(volatile char *)&data[8] = 'x';
    printf("not noticed\n");
    free(data);
}

TEST(memory_in_flight_is_watched_by_the_address_sanitizer)
{
    char output[4096];

    struct kernel_queue *queue = open_queue();

    k->queue_close(queue);
    if (!WEIR_ASAN) TEST_SKIP("needs AddressSanitizer");
    CHECK_INT(test_child(touch_what_is_lent, NULL, output, sizeof output), !=, 0);
    CHECK_CONTAINS(output, "use-after-poison");
}

/* ---- Where it is forbidden ---- */

static bool forbid_setup(int error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void print_record(void *arg, const weir_log_record *record)
{
    (void)arg;
    printf("log: %s\n", record->message);
}

/* Sockets and files, and which backend they went by. */
static int use_everything(void *arg)
{
    weir_conn *conns[2];
    struct stat status;
    char data[4];

    (void)arg;
    WEIR_DEADLINE(60000) {
        CHECK_OK(weir_socketpair(&conns[0], &conns[1]));
        CHECK_INT(weir_conn_write(conns[0], "abc", 3), ==, 3);
        CHECK_INT(weir_conn_read(conns[1], data, sizeof data), ==, 3);
        weir_conn_close(conns[0]);
        weir_conn_close(conns[1]);
        CHECK_OK(weir_path_stat("/", &status));
        printf("ran on %s\n", worker_self()->kernel->name);
    }
    return 0;
}

static weir_config quiet(const char *backend)
{
    return (weir_config){
        .workers = 2, .backend = backend, .log = print_record, .log_level = WEIR_LOG_INFO};
}

static void run_where_it_fails(void *arg)
{
    int error = *(int *)arg;
    weir_config config = quiet(NULL);

    kernel_override(NULL);
    if (!forbid_setup(error)) {
        /* No filters here: the call is made to fail in the library. */
        kernel_uring_limit(&(struct kernel_uring_limits){.setup_error = -error});
    }
    CHECK_OK(weir_run(&config, use_everything, NULL));
    CHECK_OK(weir_run(&config, use_everything, NULL));
    config = quiet("epoll");
    CHECK_OK(weir_run(&config, use_everything, NULL));
    config = quiet("io_uring");
    CHECK_INT(weir_run(&config, use_everything, NULL), ==, WEIR_EREFUSED);
    printf("why: %s\n", weir_why());
}

static void check_fallback(int error, const char *why)
{
    char output[2048], expected[1024];
    int status;

    if (kernel_uring == NULL) TEST_SKIP("the library was built without io_uring");
    status = test_child(run_where_it_fails, &error, output, sizeof output);
    if (status != 0) TEST_FAIL("%s", output);
    snprintf(expected, sizeof expected,
             "log: backend 'epoll' instead of 'io_uring': %s (%s)\nran on epoll\nran on epoll\n"
             "ran on epoll\nwhy: runtime: backend 'io_uring' does not work here: %s (%s)\n",
             why, weir_strerror(-error), why, weir_strerror(-error));
    CHECK_STR(output, expected);
}

TEST(runtime_falls_back_where_a_sandbox_forbids_rings)
{
    check_fallback(EPERM, "a sandbox or kernel.io_uring_disabled forbids io_uring_setup");
}

TEST(runtime_falls_back_on_a_kernel_without_rings)
{
    check_fallback(ENOSYS, "this kernel has no io_uring");
}

TEST(runtime_falls_back_without_memory_for_rings)
{
    check_fallback(ENOMEM, "no memory for its rings (older kernels: see RLIMIT_MEMLOCK)");
}

TEST(runtime_falls_back_on_a_kernel_whose_rings_are_too_old)
{
    check_fallback(EINVAL, "this kernel's io_uring is too old (it needs Linux 5.13)");
}

static int dump_here(void *arg)
{
    (void)arg;
    return weir_dump(STDOUT_FILENO);
}

static void dump_by_name(void *arg)
{
    kernel_override(NULL);
    CHECK_OK(weir_run(&(weir_config){.workers = 1, .backend = arg}, dump_here, NULL));
}

TEST(dump_says_which_backend_runs)
{
    char output[4096];

    struct kernel_queue *queue = open_queue();

    k->queue_close(queue);
    CHECK_INT(test_child(dump_by_name, (char[]){"io_uring"}, output, sizeof output), ==, 0);
    CHECK_CONTAINS(output, "kernel io_uring");
    CHECK_INT(test_child(dump_by_name, (char[]){"epoll"}, output, sizeof output), ==, 0);
    CHECK_CONTAINS(output, "kernel epoll");
}
