/* explore_process.c - a child that makes runs, and a parent that watches it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rt/kernel.h"
#include "rt/sanitize.h"
#include "sim/explore.h"
#include "sim/places.h"
#include "sim/strategy.h"
#include "watch/backtrace.h"

enum {
    FRAMES_OF_THE_HANDLER = 2, /* its own, and the one that the kernel makes for it */
    LOOKS_AT_THE_END = 50,
};

/* Of gcc's coverage builds: _exit would leave out what it has counted. */
void __gcov_dump(void) __attribute__((weak));

int64_t explore_now_ns(void)
{
    return kernel_epoll.now_ns(&kernel_epoll);
}

/* ---- The child ---- */

static struct explore_shared *shared_of_handler;

static __attribute__((noinline)) void on_abort(int signo)
{
    struct explore_shared *shared = shared_of_handler;
    struct backtrace backtrace;

    (void)signo;
    if (!shared->hung) { /* the program's own abort: as if there was no handler */
        (void)signal(SIGABRT, SIG_DFL);
        (void)raise(SIGABRT);
        return;
    }
    backtrace_here(&backtrace);
    places_write(&backtrace, FRAMES_OF_THE_HANDLER, shared->places, sizeof shared->places);
    _exit(1);
}

static void become_child(struct explorer *explorer, const struct explore_process *process,
                         pid_t parent)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    /* A run that crashes is made again and again to be shortened. */
    (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    shared_of_handler = explorer->shared;
    (void)sigaction(SIGABRT, &(struct sigaction){.sa_handler = on_abort, .sa_flags = SA_ONSTACK},
                    NULL);
    if (process->silent) {
        int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

        (void)dup3(fd, STDOUT_FILENO, 0);
        (void)dup3(fd, STDERR_FILENO, 0);
    }
    process->body(explorer, process->arg);
    explorer->shared->done = true;
    (void)fflush(NULL);
    if (__gcov_dump) __gcov_dump();
    _exit(
        0); /* no handlers at exit: they are the parent's, and after a failed run memory is left */
}

/* ---- The parent ---- */

struct watch {
    struct explorer *explorer;
    pid_t pid;
    int ended_fd; /* hangs up when the child ends */
    int64_t no_step_ns;
    int64_t moved_ns; /* when it was last seen to have made a step */
    uint64_t steps;
    int64_t shown_ns;
};

/* The child writes it meanwhile. */
static uint64_t look_at(const uint64_t *number)
{
    return *(const volatile uint64_t *)number;
}

static uint64_t steps_of(const struct explore_shared *shared)
{
    return look_at(&shared->runs) + look_at(&shared->steps) + look_at(&shared->trace.choices) +
           look_at(&shared->again.choices);
}

/* Wait a moment. True: it has ended, with *ret_status (-1: somebody else has reaped it). */
static bool has_ended(const struct watch *watch, int *ret_status)
{
    struct pollfd pollfd = {.fd = watch->ended_fd, .events = POLLIN};
    pid_t r;

    r = waitpid(watch->pid, ret_status, WNOHANG);
    if (r == 0 && poll(&pollfd, 1, EXPLORE_LOOK_MS) > 0) {
        /* It is about to be gone; or the program has closed what it does not know. */
        for (int i = 0; i < LOOKS_AT_THE_END && r == 0; i++) {
            (void)sched_yield();
            r = waitpid(watch->pid, ret_status, WNOHANG);
        }
        if (r == 0) (void)poll(NULL, 0, 1);
    }
    if (r < 0 && errno == ECHILD) {
        *ret_status = -1;
        return true;
    }
    return r == watch->pid;
}

/* It is asked where it is, and ended. */
static void end_it(struct watch *watch, int *ret_status)
{
    int64_t until_ns = explore_now_ns() + EXPLORE_LAST_WORDS_MS * INT64_C(1000000);

    watch->explorer->shared->hung = true;
    (void)kill(watch->pid, SIGABRT);
    while (explore_now_ns() < until_ns)
        if (has_ended(watch, ret_status)) return;
    (void)kill(watch->pid, SIGKILL);
    while (!has_ended(watch, ret_status)) continue;
}

static void watch_until_end(struct watch *watch, int *ret_status)
{
    struct explore_shared *shared = watch->explorer->shared;

    watch->moved_ns = watch->shown_ns = explore_now_ns();
    while (!has_ended(watch, ret_status)) {
        int64_t now_ns = explore_now_ns();
        uint64_t steps = steps_of(shared);

        if (steps != watch->steps) {
            watch->steps = steps;
            watch->moved_ns = now_ns;
        }
        if (now_ns - watch->moved_ns >= watch->no_step_ns) {
            end_it(watch, ret_status);
            return;
        }
        if (now_ns - watch->shown_ns >= 1000000000) {
            watch->shown_ns = now_ns;
            explore_show_progress(watch->explorer, false);
        }
    }
}

static const char *signal_name(int signo, char text[32])
{
    static const struct {
        int signo;
        const char *name;
    } names[] = {
        {SIGSEGV, "SIGSEGV"}, {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},
        {SIGILL, "SIGILL"},   {SIGTRAP, "SIGTRAP"}, {SIGSYS, "SIGSYS"},   {SIGKILL, "SIGKILL"},
        {SIGTERM, "SIGTERM"}, {SIGPIPE, "SIGPIPE"}, {SIGINT, "SIGINT"},   {SIGHUP, "SIGHUP"},
        {SIGALRM, "SIGALRM"}, {SIGUSR1, "SIGUSR1"}, {SIGUSR2, "SIGUSR2"},
    };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].signo == signo) return names[i].name;
    (void)snprintf(text, 32, "signal %d", signo);
    return text;
}

static void judge(const struct watch *watch, int status, struct explore_end *ret_end)
{
    const struct explore_shared *shared = watch->explorer->shared;
    char text[32];

    *ret_end = (struct explore_end){.failed = true, .hung = shared->hung};
    if (shared->done && !shared->failed) {
        /* Also if it was about to end when it was asked where it is. */
        *ret_end = (struct explore_end){.failed = false};
    } else if (shared->hung) {
        (void)snprintf(ret_end->failure, sizeof ret_end->failure,
                       "no step for %d s: an endless loop or a call that blocks",
                       (int)(watch->no_step_ns / 1000000000));
    } else if (shared->failed) {
        memcpy(ret_end->failure, shared->failure, sizeof ret_end->failure);
    } else if (status != -1 && WIFSIGNALED(status)) {
        (void)snprintf(ret_end->failure, sizeof ret_end->failure, "crashed: %s",
                       signal_name(WTERMSIG(status), text));
    } else if (status != -1) {
        (void)snprintf(ret_end->failure, sizeof ret_end->failure, "exited with %d",
                       WEXITSTATUS(status));
    } else {
        (void)snprintf(ret_end->failure, sizeof ret_end->failure,
                       "ended in an unknown way: the program ignores SIGCHLD");
    }
}

static void close_fd(int fd)
{
    if (fd >= 0) (void)close(fd);
}

int explore_process(struct explorer *explorer, const struct explore_process *process,
                    struct explore_end *ret_end)
{
    struct explore_shared *shared = explorer->shared;
    int64_t slower = WEIR_ASAN || WEIR_TSAN || sanitize_on_valgrind() ? EXPLORE_SLOWER : 1;
    struct watch watch = {.explorer = explorer,
                          .no_step_ns = process->no_step_ms * slower * INT64_C(1000000)};
    pid_t parent = getpid();
    int fds[2], status = -1;

    shared->done = shared->hung = shared->failed = false;
    shared->failure[0] = shared->places[0] = '\0';
    trace_clear(&shared->trace);
    trace_clear(&shared->again);
    if (pipe2(fds, O_CLOEXEC) < 0) return -errno;
    (void)fflush(NULL); /* else the child would print it, too */
    watch.pid = fork();
    if (watch.pid < 0) {
        int r = -errno;

        close_fd(fds[0]);
        close_fd(fds[1]);
        return r;
    }
    if (watch.pid == 0) {
        close_fd(fds[0]);
        become_child(explorer, process, parent);
    }
    close_fd(fds[1]);
    watch.ended_fd = fds[0];
    watch_until_end(&watch, &status);
    close_fd(fds[0]);
    judge(&watch, status, ret_end);
    return 0;
}

/* ---- One run ---- */

struct attempt {
    struct strategy *strategy;
    int report_fd;
};

static void make_attempt(struct explorer *explorer, void *arg)
{
    const struct attempt *attempt = arg;
    struct explore_shared *shared = explorer->shared;
    struct run_outcome outcome = {.failed = false};

    (void)strategy_begin(attempt->strategy);
    explorer->run(explorer->setup, attempt->strategy, &shared->trace, attempt->report_fd, &outcome);
    if (!outcome.failed) return;
    (void)snprintf(shared->failure, sizeof shared->failure, "%s", outcome.failure);
    shared->failed = true;
}

int explore_attempt(struct explorer *explorer, struct strategy *strategy, bool detailed,
                    int report_fd, int64_t no_step_ms, struct explore_end *ret_end)
{
    struct attempt attempt = {strategy, report_fd};
    int r;

    explorer->shared->trace.detailed = detailed;
    r = explore_process(
        explorer,
        &(struct explore_process){
            .body = make_attempt, .arg = &attempt, .no_step_ms = no_step_ms, .silent = !detailed},
        ret_end);
    return r;
}
