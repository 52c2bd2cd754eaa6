/* runner.c - one process per test, a hard timeout for each, and the report.
 *
 *     RUNNING --deadline--> ASKED (for the dump) --1 s--> ASKED_AGAIN (if silent)
 *        |                    |                              |
 *        +------- ends -------+---------- ends --------------+--1 s--> killed
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "testing/harness.h"

enum {
    LINES_SHOWN = 200,
    ASK_MS = 1000,      /* for the dump, and again for the backtrace; more where all is slow */
    PROGRESS_MS = 5000, /* between lines of progress, when nobody watches */
    LINE_BYTES = 4096,
};

enum phase { PHASE_FREE, PHASE_RUNNING, PHASE_ASKED, PHASE_ASKED_AGAIN, PHASE_KILLED };

/* A test that is running. */
struct job {
    enum phase phase;
    const weir_test_case *test;
    struct test_report *report;
    pid_t pid;
    int output_fd;
    off_t output_bytes; /* when it was asked for the dump */
    int64_t began_ms;
    int64_t next_ms; /* when the phase ends */
};

struct run {
    const struct run_plan *plan;
    struct job *jobs;
    int started;
    int passed, failed, skipped;
    int64_t progress_ms;
    bool terminal;
    const weir_test_case **failures;
};

static _Noreturn void give_up(const char *what)
{
    fprintf(stderr, "cannot run tests: %s: %s\n", what, strerror(errno));
    exit(EXIT_USAGE);
}

static void test_path(const weir_test_case *test, char *path, size_t path_bytes)
{
    char group[256];

    registry_group(test, group, sizeof group);
    snprintf(path, path_bytes, "%s/%s", group, test->name);
}

/* ---- Starting ---- */

static _Noreturn void become_test(const struct job *job, pid_t runner)
{
    sigset_t none;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != runner) _exit(EXIT_FAILED);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    dup2(job->output_fd, STDOUT_FILENO);
    dup2(job->output_fd, STDERR_FILENO);
    process_run(job->test, job->report);
}

static void job_start(struct run *run, struct job *job, const weir_test_case *test)
{
    pid_t runner = getpid();

    *job = (struct job){.phase = PHASE_RUNNING, .test = test};
    job->report =
        mmap(NULL, sizeof *job->report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (job->report == MAP_FAILED) give_up("mmap");
    job->output_fd = memfd_create("test-output", MFD_CLOEXEC);
    if (job->output_fd < 0) give_up("memfd_create");
    job->began_ms = process_now_ms();
    job->next_ms = job->began_ms + process_timeout_ms(test);
    fflush(NULL);
    job->pid = fork();
    if (job->pid < 0) give_up("fork");
    if (job->pid == 0) become_test(job, runner);
    setpgid(job->pid, job->pid); /* whoever comes first */
    run->started++;
}

/* ---- Hanging ---- */

static off_t output_bytes(const struct job *job)
{
    struct stat status;

    return fstat(job->output_fd, &status) == 0 ? status.st_size : 0;
}

static void job_hurry(struct job *job)
{
    switch (job->phase) {
    case PHASE_RUNNING:
        job->output_bytes = output_bytes(job);
        job->phase = PHASE_ASKED;
        job->next_ms += (int64_t)ASK_MS * weir_test_slower();
        kill(job->pid, SIGUSR1);
        return;
    case PHASE_ASKED:
        job->phase = PHASE_ASKED_AGAIN;
        job->next_ms += (int64_t)ASK_MS * weir_test_slower();
        if (output_bytes(job) == job->output_bytes) kill(job->pid, SIGUSR1);
        return;
    case PHASE_ASKED_AGAIN:
    case PHASE_KILLED:
    case PHASE_FREE:
        job->phase = PHASE_KILLED;
        job->next_ms = INT64_MAX;
        kill(-job->pid, SIGKILL);
        kill(job->pid, SIGKILL);
        return;
    }
}

/* ---- Ending ---- */

/* The last lines of what the test printed, indented. */
static void show_output(const struct job *job)
{
    off_t bytes = output_bytes(job);
    char *text = bytes > 0 ? mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, job->output_fd, 0)
                           : MAP_FAILED;
    size_t from = (size_t)bytes;
    int lines = 0;

    if (text == MAP_FAILED) return;
    while (from > 0) {
        if (from < (size_t)bytes && text[from - 1] == '\n' && ++lines == LINES_SHOWN) break;
        from--;
    }
    if (from > 0) printf("    (%zu bytes before this are left out)\n", from);
    while (from < (size_t)bytes) {
        const char *end = memchr(text + from, '\n', (size_t)bytes - from);
        size_t length = end != NULL ? (size_t)(end - text) - from : (size_t)bytes - from;

        printf("    %.*s\n", (int)(length < LINE_BYTES ? length : LINE_BYTES), text + from);
        from += length + 1;
    }
    munmap(text, (size_t)bytes);
}

static void clear_status_line(const struct run *run)
{
    if (run->terminal) fputs("\r\033[K", stdout);
}

/* Why a test that has ended counts as failed, in words; false if it does not. */
static bool job_verdict(const struct job *job, int status, char *reason, size_t reason_bytes)
{
    if (job->phase != PHASE_RUNNING) {
        snprintf(reason, reason_bytes, "timeout after %" PRId64 " ms",
                 process_timeout_ms(job->test));
    } else if (WIFSIGNALED(status)) {
        snprintf(reason, reason_bytes, "killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    } else if (WEXITSTATUS(status) == EXIT_PASSED && job->report->state != TEST_PASSED) {
        snprintf(reason, reason_bytes, "the process ended before the test did");
    } else if (job->report->state == TEST_PASSED && job->report->forked[0] != '\0') {
        snprintf(reason, reason_bytes, "a check failed in a process that the test has forked");
    } else if (WEXITSTATUS(status) == EXIT_PASSED ||
               (WEXITSTATUS(status) == EXIT_SKIPPED && job->report->state == TEST_SKIPPED)) {
        return false;
    } else if (job->report->state == TEST_FAILED) {
        snprintf(reason, reason_bytes, "failed");
    } else {
        snprintf(reason, reason_bytes, "exit status %d, process %d", WEXITSTATUS(status),
                 (int)job->pid);
    }
    return true;
}

static void job_end(struct run *run, struct job *job, int status)
{
    int64_t took_ms = process_now_ms() - job->began_ms;
    char path[512], reason[128];

    test_path(job->test, path, sizeof path);
    if (job_verdict(job, status, reason, sizeof reason)) {
        clear_status_line(run);
        printf("FAILED %s: %s (%" PRId64 " ms)\n", path, reason, took_ms);
        show_output(job);
        run->failures[run->failed++] = job->test;
    } else if (job->report->state == TEST_SKIPPED) {
        clear_status_line(run);
        printf("skipped %s: %s\n", path, job->report->message);
        run->skipped++;
    } else {
        if (run->plan->verbose) {
            clear_status_line(run);
            printf("passed %s (%" PRId64 " ms)\n", path, took_ms);
        }
        run->passed++;
    }
    close(job->output_fd);
    munmap(job->report, sizeof *job->report);
    job->phase = PHASE_FREE;
}

/* Take one process that has ended; false if there is none. */
static bool reap(struct run *run)
{
    siginfo_t ended = {0};
    int status;

    if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) < 0 || ended.si_pid == 0)
        return false;
    /* What it has started ends with it. Its number is not free for others yet. */
    kill(-ended.si_pid, SIGKILL);
    if (waitpid(ended.si_pid, &status, 0) != ended.si_pid) return false;
    for (int i = 0; i < run->plan->jobs; i++)
        if (run->jobs[i].phase != PHASE_FREE && run->jobs[i].pid == ended.si_pid)
            job_end(run, &run->jobs[i], status);
    return true;
}

/* ---- The loop ---- */

static void show_progress(struct run *run, int total)
{
    int done = run->passed + run->failed + run->skipped;
    int64_t now = process_now_ms();

    if (run->terminal) {
        printf("\r\033[K[%d/%d] %d failed", done, total, run->failed);
    } else if (now >= run->progress_ms) {
        printf("[%d/%d] %d failed\n", done, total, run->failed);
        run->progress_ms = now + PROGRESS_MS;
    }
    fflush(stdout);
}

/* Until a child ends, a deadline passes or a line of progress is due. */
static void wait_for_news(const struct run *run)
{
    int64_t until_ms = run->terminal ? INT64_MAX : run->progress_ms;
    int64_t now = process_now_ms();
    struct timespec timeout = {0, 0};
    sigset_t set;
    int signal;

    for (int i = 0; i < run->plan->jobs; i++)
        if (run->jobs[i].phase != PHASE_FREE && run->jobs[i].next_ms < until_ms)
            until_ms = run->jobs[i].next_ms;
    if (until_ms > now + 60000) until_ms = now + 60000;
    if (until_ms > now) {
        timeout.tv_sec = (until_ms - now) / 1000;
        timeout.tv_nsec = (until_ms - now) % 1000 * 1000000;
    }
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    signal = sigtimedwait(&set, NULL, &timeout);
    if (signal != SIGINT && signal != SIGTERM) return;
    for (int i = 0; i < run->plan->jobs; i++)
        if (run->jobs[i].phase != PHASE_FREE) kill(-run->jobs[i].pid, SIGKILL);
    clear_status_line(run);
    printf("stopped by %s\n", strsignal(signal));
    exit(128 + signal);
}

static void run_all(struct run *run, int total)
{
    while (run->passed + run->failed + run->skipped < total) {
        int64_t now;

        for (int i = 0; i < run->plan->jobs && run->started < total; i++)
            if (run->jobs[i].phase == PHASE_FREE)
                job_start(run, &run->jobs[i], run->plan->tests[run->started % run->plan->count]);
        show_progress(run, total);
        wait_for_news(run);
        while (reap(run))
            ;
        now = process_now_ms();
        for (int i = 0; i < run->plan->jobs; i++)
            if (run->jobs[i].phase != PHASE_FREE && now >= run->jobs[i].next_ms)
                job_hurry(&run->jobs[i]);
    }
}

int runner_run(const struct run_plan *plan)
{
    int total = plan->count * plan->repeat;
    /* Static: a test's process ends with exit, and what this one points to is no leak there. */
    static struct run run;
    sigset_t set;

    run = (struct run){.plan = plan, .terminal = isatty(STDOUT_FILENO) == 1};
    run.jobs = calloc((size_t)plan->jobs, sizeof *run.jobs);
    run.failures = calloc((size_t)total, sizeof *run.failures);
    if (run.jobs == NULL || run.failures == NULL) give_up("memory");
    run.progress_ms = process_now_ms() + PROGRESS_MS;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    run_all(&run, total);
    clear_status_line(&run);
    for (int i = 0; i < run.failed; i++) {
        char path[512];

        test_path(run.failures[i], path, sizeof path);
        printf("failed: %s\n", path);
    }
    printf("%d passed, %d failed", run.passed, run.failed);
    if (run.skipped > 0) printf(", %d skipped", run.skipped);
    printf("\n");
    free(run.jobs);
    free(run.failures);
    return run.failed > 0 ? EXIT_FAILED : EXIT_PASSED;
}
