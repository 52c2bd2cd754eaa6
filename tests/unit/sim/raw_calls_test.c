/* raw_calls_test.c - calls behind weir's back are caught and named, others are made. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness/test.h"
#include "sim/raw_calls.h"

static jmp_buf way_out;
static char caught_call[32], caught_places[256];

static void caught(const char *call, const char *places)
{
    snprintf(caught_call, sizeof caught_call, "%s", call);
    snprintf(caught_places, sizeof caught_places, "%s", places);
    longjmp(way_out, 1);
}

/* The name of what was caught in fn(), or "". */
static const char *call_of(void (*fn)(void))
{
    caught_call[0] = caught_places[0] = '\0';
    CHECK_OK(raw_calls_enable(caught));
    if (setjmp(way_out) == 0) {
        raw_calls_on();
        fn();
    }
    raw_calls_off();
    return caught_call;
}

static void skip_where_there_is_none(void)
{
    if (!raw_calls_possible()) TEST_SKIP("the kernel hands no calls to the program here");
}

/* ---- Calls that block ---- */

static __attribute__((noinline)) void rest(void)
{
    struct timespec shortly = {.tv_nsec = 1};

    (void)syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &shortly, NULL);
}

static __attribute__((noinline)) void have_a_rest(void)
{
    rest();
    caught_call[0] = '\0'; /* it has come back */
}

static void wait_for_input(void)
{
    struct pollfd pollfd = {.fd = 0, .events = POLLIN};

    (void)poll(&pollfd, 1, 1);
}

static int pipe_fds[2] = {-1, -1};

static void read_from_a_pipe(void)
{
    char data;

    (void)!read(pipe_fds[0], &data, 1);
}

static void wait_for_a_child(void)
{
    (void)waitpid(-1, NULL, WNOHANG);
}

static void lock_twice(void)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

    (void)pthread_mutex_lock(&mutex);
    (void)pthread_mutex_lock(&mutex);
}

static void ask_for_chance(void)
{
    char data[8];

    (void)!getrandom(data, sizeof data, 0);
}

static void fork_a_process(void)
{
#if defined(SYS_fork) /* not on aarch64, where no call is caught */
    (void)syscall(SYS_fork);
#endif
}

TEST(calls_that_block_are_caught_by_name)
{
    skip_where_there_is_none();
    CHECK_STR(call_of(have_a_rest), "clock_nanosleep");
    CHECK_STR(call_of(wait_for_input), "poll");
    CHECK_INT(pipe2(pipe_fds, O_CLOEXEC), ==, 0);
    CHECK_STR(call_of(read_from_a_pipe), "read");
    CHECK_INT(close(pipe_fds[0]), ==, 0);
    CHECK_INT(close(pipe_fds[1]), ==, 0);
    CHECK_STR(call_of(wait_for_a_child), "wait4");
    CHECK_STR(call_of(lock_twice), "futex");
    CHECK_STR(call_of(ask_for_chance), "getrandom");
    CHECK_STR(call_of(fork_a_process), "fork");
    raw_calls_disable();
}

TEST(place_of_a_caught_call_is_named)
{
    skip_where_there_is_none();
    CHECK_STR(call_of(have_a_rest), "clock_nanosleep");
    test_note("%s", caught_places);
#if defined(__GLIBC__)
    CHECK_CONTAINS(caught_places, "rest <- have_a_rest <- call_of");
#else
    CHECK_CONTAINS(caught_places, "syscall"); /* beyond it musl has no unwind tables */
#endif
    raw_calls_disable();
}

static void let_it(const char *call, const char *places)
{
    (void)places;
    snprintf(caught_call, sizeof caught_call, "%s", call);
}

TEST(caught_call_is_made_when_it_may)
{
    skip_where_there_is_none();
    CHECK_OK(raw_calls_enable(let_it));
    raw_calls_on();
    rest();
    raw_calls_off();
    CHECK_STR(caught_call, "clock_nanosleep");
    raw_calls_disable();
}

/* ---- Calls that do not ---- */

static volatile sig_atomic_t signals;

static void on_signal(int signo)
{
    (void)signo;
    signals++;
}

static void do_harmless_things(void)
{
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    char *memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char data[16];
    sigset_t set, before;
    void *block = malloc(1 << 20);

    CHECK(fd >= 0);
    CHECK_INT(read(fd, data, sizeof data), ==, sizeof data);
    CHECK_INT(poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, 0), ==, 1);
    CHECK_INT(close(fd), ==, 0);
    CHECK(memory != MAP_FAILED);
    memory[4096] = 1;
    CHECK_INT(munmap(memory, 8192), ==, 0);
    CHECK(block != NULL);
    free(block);
    CHECK_INT(syscall(SYS_getpid), ==, getpid());
    CHECK_INT(close(-1), ==, -1); /* errors come through, too */
    CHECK_INT(errno, ==, EBADF);
    CHECK_INT(sigemptyset(&set), ==, 0);
    CHECK_INT(sigaddset(&set, SIGUSR2), ==, 0);
    CHECK_INT(sigprocmask(SIG_BLOCK, &set, NULL), ==, 0);
    CHECK_INT(sigprocmask(SIG_BLOCK, NULL, &before), ==, 0);
    CHECK_INT(sigismember(&before, SIGUSR2), ==, 1); /* it has stayed */
    CHECK_INT(sigprocmask(SIG_UNBLOCK, &set, NULL), ==, 0);
    CHECK(signal(SIGUSR2, on_signal) != SIG_ERR);
    CHECK_INT(raise(SIGUSR2), ==, 0);
    CHECK_INT(signals, ==, 1); /* and has come back from its handler */
}

TEST(harmless_calls_are_made)
{
    skip_where_there_is_none();
    CHECK_STR(call_of(do_harmless_things), "");
    CHECK_STR(call_of(have_a_rest), "clock_nanosleep");
    raw_calls_off();
    rest(); /* nobody looks */
    raw_calls_disable();
    CHECK(raw_calls_possible());
}

TEST(forked_process_is_not_watched_until_it_asks)
{
    pid_t pid;
    int status;

    skip_where_there_is_none();
    CHECK_OK(raw_calls_enable(caught));
    fflush(NULL);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        raw_calls_on();
        rest();
        raw_calls_off();
        _exit(strcmp(call_of(have_a_rest), "clock_nanosleep") != 0);
    }
    CHECK_INT(waitpid(pid, &status, 0), ==, pid);
    CHECK_INT(status, ==, 0);
    raw_calls_disable();
}
