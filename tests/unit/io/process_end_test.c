/* process_end_test.c - child processes: how they are ended, awaited and bounded, and that
 * nothing is left of them. */
#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

#include "io/process.h"
#include "unit/io/process_test.h"

/* ---- How it is ended ---- */

/* Says that it is ready, and lives on. */
TEST_PROGRAM(process_ignores_term)
{
    (void)signal(SIGTERM, SIG_IGN);
    (void)!write(1, "!", 1);
    while (pause() < 0) {}
    return 0;
}

static void start_stubborn(weir_scope *scope, int64_t grace_ms, weir_process **ret_process)
{
    weir_process_spec spec = own(ARGUMENTS("process_ignores_term"));
    weir_conn *out;
    char byte;

    spec.grace_ms = grace_ms;
    spec.out = (weir_stdio){.kind = WEIR_STDIO_PIPE, .ret_conn = &out};
    CHECK_OK(weir_process_start(scope, &spec, ret_process));
    CHECK_INT(weir_conn_read(out, &byte, 1), ==, 1);
    weir_conn_close(out);
}

/* Ends when it is told to: who waits for its grace does not end before the test is taken for
 * hung. */
static void start_sleeper(weir_scope *scope, weir_process **ret_process)
{
    weir_process_spec spec = shell(ARGUMENTS("-c", "exec sleep 1000"));
    spec.grace_ms = 600000;
    CHECK_OK(weir_process_start(scope, &spec, ret_process));
}

PROCESS_TEST(close_ends_it_with_term_and_after_the_grace_with_kill)
{
    int result;

    IO_SCOPE(scope, &result)
    {
        weir_process *process;
        int64_t began_ns;

        start_sleeper(scope, &process);
        CHECK_OK(weir_process_signal(process, 0));
        CHECK_OK(weir_process_close(process));

        began_ns = weir_now_ns();
        start_stubborn(scope, 30, &process);
        CHECK_OK(weir_process_close(process));
        CHECK_INT(weir_now_ns() - began_ns, >=, 30 * 1000000);

        start_stubborn(scope, WEIR_KILL_AT_ONCE, &process);
        CHECK_OK(weir_process_close(process));
        check_no_children();
    }
    return result;
}

PROCESS_TEST(a_stopped_process_is_ended_too)
{
    int result;

    IO_SCOPE(scope, &result)
    {
        weir_process *process;

        start_sleeper(scope, &process);
        CHECK_OK(weir_process_signal(process, SIGSTOP));
        CHECK_OK(weir_process_close(process));
    }
    return result;
}

PROCESS_TEST(the_end_of_its_scope_ends_a_process)
{
    int result;

    for (int i = 0; i < 3; i++) {
        IO_SCOPE(scope, &result)
        {
            weir_process *process;
            start_sleeper(scope, &process);
            start_stubborn(scope, i == 1 ? WEIR_KILL_AT_ONCE : 20, &process);
            if (i == 2) weir_scope_cancel(scope, 0, "enough");
        }
        CHECK_INT(result, ==, 0);
        check_no_children();
    }
    return result;
}

static int fails_at_once(void *arg)
{
    (void)arg;
    return -EIO;
}

PROCESS_TEST(a_sibling_that_fails_ends_the_process_and_its_status_says_so)
{
    int result;

    IO_SCOPE(scope, &result)
    {
        weir_process_status status;
        weir_process *process;

        start_sleeper(scope, &process);
        CHECK_OK(weir_spawn(scope, fails_at_once, NULL, 0));
        WEIR_SHIELD(IO_TEST_MS) { CHECK_OK(weir_process_wait(process, &status)); }
        CHECK_INT(status.signal, ==, SIGTERM);
        CHECK(status.ended_by_us);
    }
    CHECK_INT(result, ==, -EIO);
    return 0;
}

PROCESS_TEST(what_is_left_of_the_group_ends_with_the_process)
{
    static const char *const scripts[] = {
        "sleep 1000 & echo $!; wait",                            /* ended with it */
        "sleep 1000 & echo $!",                                  /* left behind */
        "trap '' TERM; sleep 1000 & trap - TERM; echo $!; wait", /* does not hear TERM */
    };
    char text[32];

    for (int i = 0; i < 3; i++) {
        int result;

        test_note("%s", scripts[i]);
        IO_SCOPE(scope, &result)
        {
            weir_process_spec spec = shell(ARGUMENTS("-c", scripts[i]));
            weir_process *process;
            weir_conn *out;

            spec.out = (weir_stdio){.kind = WEIR_STDIO_PIPE, .ret_conn = &out};
            CHECK_OK(weir_process_start(scope, &spec, &process));
            CHECK_INT(weir_conn_read(out, text, sizeof text), >, 0);
            CHECK_OK(weir_process_close(process));
            /* Nobody holds the other end any more. */
            CHECK_INT(weir_conn_read(out, text, sizeof text), ==, 0);
            weir_conn_close(out);
        }
        CHECK_INT(result, ==, 0);
    }
    return 0;
}

/* ---- Waiting ---- */

static int wait_for_it(void *arg)
{
    weir_process_status status;
    int r;

    WEIR_DEADLINE(IO_TEST_MS) {
        r = weir_process_wait(*(weir_process **)arg, &status);
        return r < 0 ? r : status.signal;
    }
    return WEIR_EREFUSED;
}

PROCESS_TEST(any_number_of_tasks_wait_on_any_worker)
{
    int result;

    IO_SCOPE(scope, &result)
    {
        weir_process_spec spec = shell(ARGUMENTS("-c", "exec sleep 1000"));
        weir_task tasks[8];
        weir_process *process;

        spec.on_exit = WEIR_EXIT_ANY;
        CHECK_OK(weir_process_start(scope, &spec, &process));
        WEIR_DEADLINE(5) { CHECK_INT(weir_process_wait(process, NULL), ==, WEIR_ETIMEDOUT); }
        for (int i = 0; i < 8; i++) {
            CHECK_OK(weir_task_spawn(scope,
                                     &(weir_task_spec){.fn = wait_for_it,
                                                       .arg = &process,
                                                       .arg_bytes = sizeof process,
                                                       .place = WEIR_PLACE_WORKER,
                                                       .worker = i % weir_worker_count()},
                                     &tasks[i]));
        }
        CHECK_OK(weir_yield());
        CHECK_OK(weir_task_cancel(tasks[0], "not this one"));
        CHECK_OK(weir_process_signal(process, SIGINT));
        for (int i = 0; i < 8; i++) {
            int r;
            CHECK_OK(weir_task_join(tasks[i], &r));
            if (i > 0) CHECK_INT(r, ==, SIGINT);
            if (i == 0) CHECK(r == WEIR_ECANCELED || r == SIGINT);
        }
    }
    return result;
}

PROCESS_TEST(a_status_that_somebody_else_took_is_said_so)
{
    int result;

    TEST_SKIP_ON_VALGRIND("it copies the memory that the child shares, and with it the reason");
    CHECK(signal(SIGCHLD, SIG_IGN) != SIG_ERR);
    IO_SCOPE(scope, &result)
    {
        weir_process_spec spec = shell(ARGUMENTS("-c", "exit 0"));
        weir_process *process;

        CHECK_OK(weir_process_start(scope, &spec, &process));
        CHECK_INT(weir_process_wait(process, NULL), ==, -ECHILD);
        CHECK_CONTAINS(weir_why(), "ignores SIGCHLD");
        start_sleeper(scope, &process);
        CHECK_INT(weir_process_close(process), ==, -ECHILD);
        spec.program = "/no/such/program";
        CHECK_INT(weir_process_start(scope, &spec, &process), ==, -ENOENT);
    }
    CHECK(signal(SIGCHLD, SIG_DFL) != SIG_ERR);
    return result;
}

PROCESS_TEST(other_children_of_the_program_stay_its_own)
{
    pid_t mine = fork();
    int status;
    int result;

    if (mine == 0) _exit(7);
    IO_SCOPE(scope, &result)
    {
        for (int i = 0; i < 5; i++) {
            weir_process *process;
            start_sleeper(scope, &process);
            CHECK_OK(weir_process_close(process));
        }
    }
    CHECK_INT(waitpid(mine, &status, 0), ==, mine);
    CHECK_INT(WEXITSTATUS(status), ==, 7);
    return result;
}

/* ---- Bounds ---- */

static int beyond_the_bound(void *arg)
{
    weir_process *process;
    int result;

    (void)arg;
    WEIR_DEADLINE(IO_TEST_MS) {
        IO_SCOPE(scope, &result)
        {
            weir_process_spec spec = shell(ARGUMENTS("-c", "exit 0"));
            weir_process *first;

            start_sleeper(scope, &first);
            start_sleeper(scope, &process);
            CHECK_INT(weir_process_start(scope, &spec, &process), ==, WEIR_EOVERLOAD);
            CHECK_CONTAINS(weir_why(), "2 processes already (processes_max)");
            CHECK_OK(weir_process_close(first));
            CHECK_OK(weir_process_start(scope, &spec, &process));
        }
    }
    return result;
}

TEST(processes_beyond_the_bound_are_rejected)
{
    io_test_needs_processes();
    CHECK_OK(weir_run(&(weir_config){.workers = test_workers(), .processes_max = 2},
                      beyond_the_bound, NULL));
    check_no_children();
    CHECK_INT(weir_run(&(weir_config){.processes_max = -1}, beyond_the_bound, NULL), ==,
              WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "processes_max");
}

enum { MANY = TEST_SANITIZED ? 100 : 1000 };

struct many {
    int fd;
    weir_scope *scope;
    ATOM(int) * alive;
};

static int one_of_many(void *arg)
{
    struct many *many = arg;
    weir_process_spec spec = {.name = "one of many",
                              .program = "/bin/cat",
                              .grace_ms = 5000,
                              .on_exit = WEIR_EXIT_ZERO,
                              .in = {.kind = WEIR_STDIO_FD, .fd = many->fd}};
    weir_process *process;
    int r;

    WEIR_DEADLINE(60000) {
        r = weir_process_start(many->scope, &spec, &process);
        if (r < 0) return r;
        (void)atom_add(many->alive, 1);
        r = weir_process_wait(process, NULL);
        return r < 0 ? r : weir_process_close(process);
    }
    return WEIR_EREFUSED;
}

static int many_at_a_time(void *arg)
{
    ATOM(int) alive = 0;
    int fds[2];
    int result;

    (void)arg;
    CHECK_INT(pipe2(fds, O_CLOEXEC), ==, 0);
    WEIR_DEADLINE(60000) {
        WEIR_SCOPE(scope, &result, .name = "many", .on_failure = WEIR_FAIL_FAST, .max_tasks = MANY,
                   .overflow = WEIR_REJECT) {
            struct many many = {fds[0], scope, &alive};
            for (int i = 0; i < MANY; i++) {
                CHECK_OK(weir_spawn(scope, one_of_many, &many, sizeof many));
            }
            while (atom_load(&alive) < MANY) CHECK_OK(weir_sleep(1));
            CHECK_INT(atom_load(&worker_self()->runtime->process_count), ==, MANY);
            CHECK_INT(close(fds[1]), ==, 0); /* now they all end */
        }
    }
    CHECK_INT(close(fds[0]), ==, 0);
    return result;
}

TEST_WITH(a_thousand_processes_at_a_time, .timeout_ms = 60000)
{
    io_test_needs_processes();
    TEST_SKIP_ON_VALGRIND("each is a copy of all its memory");
    struct rlimit limit;

    CHECK_INT(getrlimit(RLIMIT_NOFILE, &limit), ==, 0);
    if (limit.rlim_cur < 4096) {
        limit.rlim_cur = 4096;
        if (limit.rlim_max < 4096) TEST_SKIP("not enough descriptors (ulimit -n)");
        CHECK_INT(setrlimit(RLIMIT_NOFILE, &limit), ==, 0);
    }
    CHECK_OK(weir_run(&(weir_config){.workers = test_workers()}, many_at_a_time, NULL));
    check_no_children();
}

/* ---- When something goes wrong ---- */

PROCESS_TEST(an_end_that_cannot_be_waited_for_is_found_all_the_same)
{
    static const struct {
        const char *call;
        int error;
    } rows[] = {{"queue_watch", -ENOMEM}, {"process_reap", -EIO}, {"process_signal", -EPERM}};
    int result;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        test_note("%s", rows[i].call);
        IO_SCOPE(scope, &result)
        {
            weir_process_spec spec = shell(ARGUMENTS("-c", "exec sleep 1000"));
            uint64_t calls = test_calls(rows[i].call);
            weir_process *process;

            spec.grace_ms = 30;
            test_fault(rows[i].call, rows[i].error, 1);
            CHECK_OK(weir_process_start(scope, &spec, &process));
            CHECK_OK(weir_process_close(process));
            CHECK_INT(test_calls(rows[i].call), >, calls);
        }
        CHECK_INT(result, ==, 0);
    }
    return 0;
}

/* A start that takes long: the child is there, and its parent does not know yet. */
static ATOM(int) slow_pid;
static sem_t slow_goes_on;

static int slow_start(const struct kernel *kernel, const struct process_plan *plan,
                      struct process_made *ret_made)
{
    int r = kernel_epoll.process_start(kernel, plan, ret_made);

    atom_store_release(&slow_pid, r < 0 ? r : ret_made->pid);
    while (sem_wait(&slow_goes_on) < 0) {}
    return r;
}

static int start_slowly(void *arg)
{
    weir_process_spec spec = shell(ARGUMENTS("-c", "exec sleep 1000"));
    weir_process *process;

    WEIR_DEADLINE(IO_TEST_MS) { return weir_process_start(*(weir_scope **)arg, &spec, &process); }
    return WEIR_EREFUSED;
}

static int cancel_a_start(void *arg)
{
    int result;

    (void)arg;
    IO_SCOPE(scope, &result)
    {
        weir_runtime *runtime = worker_self()->runtime;
        weir_task starter;
        int r;

        CHECK_OK(weir_task_spawn(
            scope, &(weir_task_spec){.fn = start_slowly, .arg = &scope, .arg_bytes = sizeof scope},
            &starter));
        while (atom_load_acquire(&slow_pid) == 0) CHECK_OK(weir_sleep(1));
        CHECK_OK(weir_task_cancel(starter, "it takes too long"));
        CHECK_OK(weir_task_join(starter, &r));
        CHECK_INT(r, ==, WEIR_ECANCELED);
        CHECK_INT(blocking_orphan_count(&runtime->spawns), ==, 1);
        CHECK_INT(atom_load(&runtime->process_count), ==, 1); /* it still counts */
        CHECK_INT(kill(atom_load(&slow_pid), 0), ==, 0);
        CHECK_INT(sem_post(&slow_goes_on), ==, 0);
        while (atom_load(&runtime->process_count) > 0) CHECK_OK(weir_sleep(1));
    }
    return result;
}

TEST(a_start_that_is_cancelled_kills_and_reaps_its_child)
{
    io_test_needs_processes();
    struct kernel slow = kernel_epoll;

    CHECK_INT(sem_init(&slow_goes_on, 0, 0), ==, 0);
    slow.process_start = slow_start;
    kernel_override(&slow);
    CHECK_OK(weir_run(&(weir_config){.workers = test_workers()}, cancel_a_start, NULL));
    CHECK_INT(atom_load(&slow_pid), >, 0);
    check_no_children();
    CHECK_INT(kill(atom_load(&slow_pid), 0), ==, -1);
    kernel_override(NULL);
}

static int embedded_start(void *arg)
{
    weir_process *process;
    WEIR_DEADLINE(IO_TEST_MS) { start_sleeper(*(weir_scope **)arg, &process); }
    return 0;
}

TEST(an_embedded_runtime_ends_its_processes_when_it_is_closed)
{
    io_test_needs_processes();
    weir_runtime *runtime;
    weir_scope *root;

    CHECK_OK(weir_runtime_open(NULL, &runtime));
    root = weir_runtime_scope(runtime);
    CHECK_OK(weir_spawn(root, embedded_start, &root, sizeof root));
    while (weir_turn(runtime) > 0) {
        struct pollfd ready = {.fd = weir_runtime_fd(runtime), .events = POLLIN};
        CHECK_INT(poll(&ready, 1, IO_TEST_MS), ==, 1);
    }
    CHECK_INT(waitpid(-1, NULL, WNOHANG), ==, 0); /* it is there */
    CHECK_OK(weir_runtime_close(runtime));
    check_no_children();
}

static int close_twice(void *arg)
{
    int result;

    (void)arg;
    WEIR_DEADLINE(IO_TEST_MS) {
        IO_SCOPE(scope, &result)
        {
            weir_process *process;
            start_sleeper(scope, &process);
            WEIR_SHIELD(60000) { CHECK_OK(weir_process_close(process)); }
            (void)weir_process_pid(process);
        }
    }
    return result;
}

static void run_close_twice(void *arg)
{
    (void)arg;
    CHECK_OK(weir_run(&(weir_config){.workers = 1}, close_twice, NULL));
}

static int wait_for(void *process)
{
    return weir_process_wait(process, NULL);
}

static int end_process(void *process)
{
    return weir_process_close(process);
}

static int wait_late(void *arg)
{
    int result;

    (void)arg;
    IO_SCOPE(scope, &result)
    {
        weir_process *process;
        start_sleeper(scope, &process);
        (void)io_test_close_before_it_begins(process, wait_for, end_process);
    }
    return result;
}

static void run_wait_late(void *arg)
{
    (void)arg;
    (void)io_test_run(wait_late);
}

TEST(a_call_on_a_closed_process_ends_the_program_with_a_sentence)
{
    io_test_needs_processes();
    CHECK_ABORTS(run_close_twice, NULL, "weir_process_pid: the process is closed");
    CHECK_ABORTS(run_wait_late, NULL, "weir_process_wait: the process is closed");
}

/* ---- The parent dies ---- */

static int leave_a_child(void *arg)
{
    int result;

    (void)arg;
    WEIR_DEADLINE(IO_TEST_MS) {
        IO_SCOPE(scope, &result)
        {
            weir_process_spec spec = shell(ARGUMENTS("-c", "exec sleep 1000"));
            weir_process *process;

            spec.parent_death_signal = SIGKILL;
            spec.out.kind = WEIR_STDIO_INHERIT;
            CHECK_OK(weir_process_start(scope, &spec, &process));
            (void)!write(1, "!", 1);
            CHECK_OK(weir_sleep(IO_TEST_MS / 2));
        }
    }
    return result;
}

TEST_PROGRAM(process_leaves_a_child)
{
    return weir_run(&(weir_config){.workers = 2}, leave_a_child, NULL) < 0;
}

PROCESS_TEST(a_process_can_be_made_to_die_with_the_program)
{
    int result;

    IO_SCOPE(scope, &result)
    {
        weir_process_spec spec = own(ARGUMENTS("process_leaves_a_child"));
        weir_process *process;
        weir_conn *out;
        char byte;

        spec.group = WEIR_GROUP_SAME; /* so that the signal reaches the program only */
        spec.on_exit = WEIR_EXIT_ANY;
        spec.out = (weir_stdio){.kind = WEIR_STDIO_PIPE, .ret_conn = &out};
        CHECK_OK(weir_process_start(scope, &spec, &process));
        CHECK_INT(weir_conn_read(out, &byte, 1), ==, 1);
        CHECK_OK(weir_process_signal(process, SIGKILL));
        WEIR_DEADLINE(60000) {
            CHECK_INT(weir_conn_read(out, &byte, 1), ==, 0); /* its child held it, too */
        }
        weir_conn_close(out);
        CHECK_OK(weir_process_close(process));
    }
    return result;
}

/* ---- The dump ---- */

PROCESS_TEST(the_dump_shows_processes_and_who_waits_for_them)
{
    int result;

    IO_SCOPE(scope, &result)
    {
        FILE *file = tmpfile();
        static char text[65536];
        char line[64];
        weir_process *process;
        weir_task waiter;
        size_t n;

        CHECK(file != NULL);
        start_sleeper(scope, &process);
        CHECK_OK(weir_task_spawn(
            scope,
            &(weir_task_spec){.fn = wait_for_it, .arg = &process, .arg_bytes = sizeof process},
            &waiter));
        CHECK_OK(weir_yield());
        CHECK_OK(weir_dump(fileno(file)));
        rewind(file);
        n = fread(text, 1, sizeof text - 1, file);
        text[n] = '\0';
        (void)fclose(file);
        (void)snprintf(line, sizeof line, "process 'shell', pid %d, running for ",
                       (int)weir_process_pid(process));
        CHECK_CONTAINS(text, line);
        CHECK_CONTAINS(text, "process exit");
        CHECK_OK(weir_task_cancel(waiter, "seen"));
    }
    return result;
}
