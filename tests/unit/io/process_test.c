/* process_test.c - child processes: what they get, and how their end is told. */
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "io/process.h"
#include "unit/io/process_test.h"

/* All that it writes, terminated. */
static void read_all(weir_conn *conn, char *text, size_t bytes)
{
    size_t used = 0;
    ssize_t n = 1;

    while (n > 0 && used + 1 < bytes) {
        n = weir_conn_read(conn, text + used, bytes - 1 - used);
        CHECK_OK(n);
        used += (size_t)n;
    }
    text[used] = '\0';
}

/* Run it to its end; what it wrote to `out`. */
static int output_of(weir_process_spec spec, char *text, size_t bytes)
{
    weir_conn *out = NULL;
    int result = 0;

    spec.out = (weir_stdio){.kind = WEIR_STDIO_PIPE, .ret_conn = &out};
    IO_SCOPE(scope, &result)
    {
        weir_process *process;
        int r = weir_process_start(scope, &spec, &process);

        if (r < 0) {
            weir_scope_cancel(scope, r, "start");
        } else {
            read_all(out, text, bytes);
            weir_conn_close(out);
            r = weir_process_wait(process, NULL);
            if (r < 0) weir_scope_cancel(scope, r, "wait");
        }
    }
    return result;
}

/* ---- How it ends ---- */

PROCESS_TEST(the_status_says_how_a_process_ended)
{
    int result;

    IO_SCOPE(scope, &result)
    {
        weir_process_spec spec = shell(ARGUMENTS("-c", "exit 0"));
        weir_process_status status;
        weir_process *process;

        CHECK_OK(weir_process_start(scope, &spec, &process));
        CHECK_INT(weir_process_pid(process), >, 0);
        CHECK_OK(weir_process_wait(process, &status));
        CHECK_INT(status.exit_code, ==, 0);
        CHECK_INT(status.signal, ==, 0);
        CHECK(!status.ended_by_us);
        CHECK_INT(status.rss_bytes_max, >, 0);
        CHECK_OK(weir_process_wait(process, &status)); /* again */
        CHECK_INT(weir_process_signal(process, SIGTERM), ==, -ESRCH);
        CHECK_OK(weir_process_close(process));

        spec = shell(ARGUMENTS("-c", "exit 3"));
        CHECK_OK(weir_process_start(scope, &spec, &process));
        CHECK_INT(weir_process_wait(process, &status), ==, WEIR_EEXIT);
        CHECK_CONTAINS(weir_why(), "process 'shell' (pid ");
        CHECK_CONTAINS(weir_why(), "ended with exit code 3");
        CHECK_INT(status.exit_code, ==, 3);
        CHECK_INT(weir_process_close(process), ==, WEIR_EEXIT);

        spec = shell(ARGUMENTS("-c", "kill -9 $$"));
        CHECK_OK(weir_process_start(scope, &spec, &process));
        CHECK_INT(weir_process_wait(process, &status), ==, WEIR_EEXIT);
        CHECK_CONTAINS(weir_why(), "signal 9 (SIGKILL)");
        CHECK_INT(status.exit_code, ==, -1);
        CHECK_INT(status.signal, ==, SIGKILL);
        CHECK(!status.ended_by_us);

        spec.on_exit = WEIR_EXIT_ANY;
        CHECK_OK(weir_process_start(scope, &spec, &process));
        CHECK_OK(weir_process_wait(process, &status));
        CHECK_INT(status.signal, ==, SIGKILL);
        CHECK_OK(weir_process_close(process));
    }
    return result;
}

PROCESS_TEST(a_program_that_cannot_be_run_is_an_error_of_start)
{
    int result;

    TEST_SKIP_ON_VALGRIND("it copies the memory that the child shares, and with it the reason");
    IO_SCOPE(scope, &result)
    {
        weir_process_spec spec = shell(NULL);
        weir_process *process = NULL;

        spec.program = "/no/such/program";
        CHECK_INT(weir_process_start(scope, &spec, &process), ==, -ENOENT);
        CHECK_CONTAINS(weir_why(), "process 'shell': program '/no/such/program': No such file");
        spec.program = "weir-no-such-program";
        CHECK_INT(weir_process_start(scope, &spec, &process), ==, -ENOENT);
        spec.program = "/dev/null";
        CHECK_INT(weir_process_start(scope, &spec, &process), ==, -EACCES);
        spec.program = "/bin/sh";
        spec.directory = "/no/such/directory";
        CHECK_INT(weir_process_start(scope, &spec, &process), ==, -ENOENT);
        CHECK_CONTAINS(weir_why(), "directory '/no/such/directory'");
        spec.directory = NULL;
        spec.fds = (const int[]){99999};
        spec.fd_count = 1;
        CHECK_INT(weir_process_start(scope, &spec, &process), ==, -EBADF);
        CHECK_CONTAINS(weir_why(), "descriptor 99999");
        CHECK(process == NULL);
        check_no_children();
        CHECK_INT(atom_load(&worker_self()->runtime->process_count), ==, 0);
    }
    return result;
}

PROCESS_TEST(a_spec_that_leaves_something_out_is_refused)
{
    static const int no_fd = -1;
    static const struct {
        weir_process_spec spec;
        const char *why;
    } rows[] = {
        {{.program = "x", .grace_ms = 1, .on_exit = WEIR_EXIT_ANY}, "name is not set"},
        {{.name = "n", .grace_ms = 1, .on_exit = WEIR_EXIT_ANY}, "program is not set"},
        {{.name = "n", .program = "x", .on_exit = WEIR_EXIT_ANY}, "grace_ms is not set"},
        {{.name = "n", .program = "x", .grace_ms = -2, .on_exit = WEIR_EXIT_ANY}, "negative"},
        {{.name = "n", .program = "x", .grace_ms = 1}, "on_exit is not set"},
        {{.name = "n",
          .program = "x",
          .grace_ms = 1,
          .on_exit = WEIR_EXIT_ANY,
          .in = {.kind = WEIR_STDIO_PIPE}},
         "in.kind is WEIR_STDIO_PIPE but ret_conn is NULL"},
        {{.name = "n",
          .program = "x",
          .grace_ms = 1,
          .on_exit = WEIR_EXIT_ANY,
          .out = {.kind = WEIR_STDIO_OUT}},
         "for err only"},
        {{.name = "n",
          .program = "x",
          .grace_ms = 1,
          .on_exit = WEIR_EXIT_ANY,
          .environment = WEIR_ENVIRONMENT_ADD},
         "variables is NULL"},
        {{.name = "n", .program = "x", .grace_ms = 1, .on_exit = WEIR_EXIT_ANY, .fd_count = 9},
         "fd_count is 9"},
        {{.name = "n",
          .program = "x",
          .grace_ms = 1,
          .on_exit = WEIR_EXIT_ANY,
          .fds = &no_fd,
          .fd_count = 1},
         "fds[0] is -1, which is no descriptor"},
    };
    int result;

    IO_SCOPE(scope, &result)
    {
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            weir_process *process;
            CHECK_INT(weir_process_start(scope, &rows[i].spec, &process), ==, WEIR_EREFUSED);
            CHECK_CONTAINS(weir_why(), rows[i].why);
        }
    }
    return result;
}

static int start_without_deadline(void *arg)
{
    weir_process_spec spec = shell(ARGUMENTS("-c", "exit 0"));
    weir_process *process;
    int result;

    (void)arg;
    IO_SCOPE(scope, &result)
    {
        CHECK_INT(weir_process_start(scope, &spec, &process), ==, WEIR_ENODEADLINE);
        WEIR_DEADLINE(IO_TEST_MS) { CHECK_OK(weir_process_start(scope, &spec, &process)); }
        CHECK_INT(weir_process_wait(process, NULL), ==, WEIR_ENODEADLINE);
    }
    return result;
}

TEST(processes_are_not_waited_for_without_a_deadline)
{
    io_test_needs_processes();
    CHECK_OK(weir_run(&(weir_config){.workers = test_workers()}, start_without_deadline, NULL));
    check_no_children();
}

/* ---- What it gets ---- */

PROCESS_TEST(bytes_go_in_and_out_through_pipes)
{
    static char sent[100000];
    static char text[sizeof sent + 1];
    int result;

    memset(sent, 'x', sizeof sent);
    IO_SCOPE(scope, &result)
    {
        weir_conn *in, *out, *err;
        weir_process *process;
        weir_process_spec spec = shell(ARGUMENTS("-c", "cat; echo done >&2"));

        spec.in = (weir_stdio){.kind = WEIR_STDIO_PIPE, .ret_conn = &in};
        spec.out = (weir_stdio){.kind = WEIR_STDIO_PIPE, .ret_conn = &out};
        spec.err = (weir_stdio){.kind = WEIR_STDIO_PIPE, .ret_conn = &err};
        CHECK_OK(weir_process_start(scope, &spec, &process));
        CHECK_OK(weir_conn_send_all(in, sent, 10000, NULL));
        weir_conn_close(in);
        read_all(out, text, sizeof text);
        CHECK_INT(strlen(text), ==, 10000);
        read_all(err, text, sizeof text);
        CHECK_STR(text, "done\n");
        weir_conn_close(out);
        weir_conn_close(err);
        CHECK_OK(weir_process_close(process));
    }
    return result;
}

PROCESS_TEST(standard_error_can_be_the_same_as_standard_output)
{
    weir_process_spec spec = shell(ARGUMENTS("-c", "echo out; echo err >&2"));
    char text[64];

    spec.err.kind = WEIR_STDIO_OUT;
    CHECK_OK(output_of(spec, text, sizeof text));
    CHECK_STR(text, "out\nerr\n");
    return 0;
}

PROCESS_TEST(the_environment_is_inherited_added_to_or_replaced)
{
    weir_process_spec spec = shell(ARGUMENTS("-c", "echo $WEIR_A-$WEIR_B-$WEIR_C"));
    char text[64];

    CHECK_INT(setenv("WEIR_A", "1", 1), ==, 0);
    CHECK_INT(setenv("WEIR_B", "2", 1), ==, 0);
    CHECK_OK(output_of(spec, text, sizeof text));
    CHECK_STR(text, "1-2-\n");
    spec.environment = WEIR_ENVIRONMENT_ADD;
    spec.variables = ARGUMENTS("WEIR_B=two", "WEIR_C=three");
    CHECK_OK(output_of(spec, text, sizeof text));
    CHECK_STR(text, "1-two-three\n");
    spec.environment = WEIR_ENVIRONMENT_REPLACE;
    CHECK_OK(output_of(spec, text, sizeof text));
    CHECK_STR(text, "-two-three\n");
    return 0;
}

PROCESS_TEST(a_program_is_looked_for_in_path_and_a_directory_is_changed_to)
{
    weir_process_spec spec = shell(ARGUMENTS("-c", "pwd"));
    char text[64];

    CHECK_INT(setenv("PATH", "/no/such/folder:/etc/hostname:/bin:/usr/bin", 1), ==, 0);
    spec.program = "sh";
    spec.directory = "/usr/lib";
    CHECK_OK(output_of(spec, text, sizeof text));
    CHECK_STR(text, "/usr/lib\n");
    return 0;
}

PROCESS_TEST(limits_hold_in_the_child)
{
    TEST_SKIP_ON_VALGRIND("they hold for what it needs itself, too");
    weir_process_spec spec = shell(ARGUMENTS("-c", "ulimit -n; ulimit -c; ulimit -t; ulimit -v"));
    char text[64];

    spec.limits = (weir_process_limits){
        .files = 33, .core_bytes = WEIR_LIMIT_ZERO, .cpu_seconds = 44, .memory_bytes = 1 << 30};
    CHECK_OK(output_of(spec, text, sizeof text));
    CHECK_STR(text, "33\n0\n44\n1048576\n");
    spec = shell(ARGUMENTS("-c", "ulimit -f"));
    spec.limits.file_bytes = 512 * 7;
    CHECK_OK(output_of(spec, text, sizeof text));
    CHECK_STR(text, "7\n");
    return 0;
}

/* Sorted, without the one that lists them. */
TEST_PROGRAM(process_lists_descriptors)
{
    for (int fd = 0; fd < 256; fd++)
        if (fcntl(fd, F_GETFD) >= 0) printf("%d ", fd);
    return 0;
}

PROCESS_TEST(the_child_has_the_descriptors_of_its_spec_and_no_others)
{
    weir_process_spec spec = own(ARGUMENTS("process_lists_descriptors"));
    int leaky = open("/dev/null", O_RDONLY); /* on purpose without O_CLOEXEC */
    int higher = dup2(leaky, 77);
    char text[128];

    CHECK(leaky >= 0 && higher == 77);
    CHECK_OK(output_of(spec, text, sizeof text));
    CHECK_STR(text, "0 1 2 ");
    spec.fds = (const int[]){leaky, 1, 77};
    spec.fd_count = 3;
    spec.in.kind = WEIR_STDIO_INHERIT;
    spec.err = (weir_stdio){.kind = WEIR_STDIO_FD, .fd = 77};
    CHECK_OK(output_of(spec, text, sizeof text));
    CHECK_STR(text, "0 1 2 3 4 5 ");
    CHECK_INT(close(leaky), ==, 0);
    CHECK_INT(close(77), ==, 0);
    return 0;
}

/* In a process of its own, whose numbers are ours to use. */
static void change_places(void *arg)
{
    const char *const arguments[] = {"sh", "-c", "echo three >&3; echo four >&4; cat <&5", NULL};
    struct process_plan plan = {
        .paths = ARGUMENTS("/bin/sh"),
        .arguments = arguments,
        .environment = arguments + 3,
        .fds = {PROCESS_FD_NULL, 1, 2, 4, 3, PROCESS_FD_NULL},
        .fd_count = 6,
    };
    struct process_made made;
    struct process_end end;
    int three[2], four[2];
    char text[32];

    (void)arg;
    (void)close(0); /* so that /dev/null is opened under a number that is copied to */
    CHECK_INT(pipe(three), ==, 0);
    CHECK_INT(pipe(four), ==, 0);
    CHECK_INT(dup2(three[0], 100) + dup2(four[0], 101), ==, 201);
    CHECK_INT(dup2(three[1], 102) + dup2(four[1], 103), ==, 205);
    CHECK_INT(dup2(103, 3) + dup2(102, 4), ==, 7);
    CHECK_OK(kernel_epoll.process_start(&kernel_epoll, &plan, &made));
    CHECK_INT(kernel_epoll.process_reap(&kernel_epoll, made.pidfd, 0, true, &end), ==, 1);
    CHECK_INT(end.status, ==, 0);
    CHECK_INT(read(100, text, sizeof text), ==, 6);
    CHECK_INT(read(101, text, sizeof text), ==, 5);
    _exit(0);
}

TEST(descriptors_may_change_places)
{
    io_test_needs_helpers();
    char output[512];
    CHECK_INT(test_child(change_places, NULL, output, sizeof output), ==, 0);
}

/* As before Linux 5.9. */
static bool forbid_close_range(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 436, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static int list_descriptors(void *arg)
{
    char text[128];

    (void)arg;
    WEIR_DEADLINE(IO_TEST_MS) {
        CHECK_OK(output_of(own(ARGUMENTS("process_lists_descriptors")), text, sizeof text));
    }
    CHECK_STR(text, "0 1 2 ");
    return 0;
}

static void start_without_close_range(void *arg)
{
    (void)arg;
    if (!forbid_close_range()) {
        printf("no filter\n");
        return;
    }
    CHECK_INT(dup2(0, 99), ==, 99);
    CHECK_OK(weir_run(&(weir_config){.workers = 1}, list_descriptors, NULL));
    printf("all closed\n");
}

TEST(descriptors_are_closed_on_an_older_kernel_too)
{
    io_test_needs_helpers();
    char output[512];

    (void)test_child(start_without_close_range, NULL, output, sizeof output);
    if (strcmp(output, "no filter\n") == 0) TEST_SKIP("seccomp filters cannot be used here");
    CHECK_STR(output, "all closed\n");
}

PROCESS_TEST(a_kernel_without_pidfd_is_named_as_the_reason)
{
    int result;

    test_fault("process_start", -ENOSYS, 1);
    IO_SCOPE(scope, &result)
    {
        weir_process_spec spec = shell(ARGUMENTS("-c", "exit 0"));
        weir_process *process;
        CHECK_INT(weir_process_start(scope, &spec, &process), ==, -ENOSYS);
        CHECK_CONTAINS(weir_why(), "pidfd, of Linux 5.4, is needed");
    }
    return result;
}

PROCESS_TEST(signals_are_as_a_new_program_expects_them)
{
    weir_process_spec spec = shell(ARGUMENTS("-c", "grep -E '^Sig(Blk|Ign)' /proc/self/status"));
    sigset_t set;
    char text[256];

    CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    CHECK(signal(SIGUSR2, SIG_IGN) != SIG_ERR);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK_INT(pthread_sigmask(SIG_BLOCK, &set, NULL), ==, 0);
    CHECK_OK(output_of(spec, text, sizeof text));
    CHECK_STR(text, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
    return 0;
}
