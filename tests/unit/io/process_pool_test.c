/* process_pool_test.c - jobs in helper processes, and helpers that do everything wrong. */
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "io/job_frame.h"
#include "unit/io/process_pool_test.h"

/* ---- What the helpers do ---- */

static void die_by(int signo)
{
    const struct rlimit none = {0, 0};

    (void)setrlimit(RLIMIT_CORE, &none);
    (void)signal(signo, SIG_DFL);
    (void)raise(signo);
}

/* A pipe with a name: until somebody opens it for writing. */
static int await_pipe(const char *name, size_t bytes)
{
    char path[PATH_MAX] = "";
    int fd;

    memcpy(path, name, bytes);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : close(fd);
}

/* The first byte says what to do, the rest is what to do it with. */
static int do_job(void *arg, const void *in, size_t in_bytes, void *out, size_t out_bytes_max,
                  size_t *ret_out_bytes)
{
    const char *text = in;
    int pid = (int)getpid();

    (void)arg;
    switch (in_bytes > 0 ? text[0] : 'e') {
    case 'e': /* echo */
        *ret_out_bytes = in_bytes < out_bytes_max ? in_bytes : out_bytes_max;
        if (in_bytes > 0) memcpy(out, in, *ret_out_bytes);
        return (int)in_bytes;
    case 'p':
        memcpy(out, &pid, sizeof pid);
        *ret_out_bytes = sizeof pid;
        return 0;
    case 'n': return -EDOM;
    case 's': die_by(SIGSEGV); break;
    case 'k': die_by(SIGKILL); break;
    case 'x': _exit(3);
    case 'h': (void)pause(); break;
    case 'i': (void)signal(SIGTERM, SIG_IGN); return await_pipe(text + 1, in_bytes - 1);
    case 'f': return await_pipe(text + 1, in_bytes - 1);
    case 'm': {                                    /* more than it may have */
        char *volatile memory = malloc(512 << 20); /* volatile: or a compiler leaves it all out */
        if (memory) memset(memory, 1, 512 << 20);
        if (!memory) abort();
        free(memory);
        return 1;
    }
    default: break;
    }
    return 0;
}

TEST_PROGRAM_NAMED(pool_helper, WEIR_PROCESS_POOL_HELPER)
{
    weir_process_pool_helper(argc, argv, do_job, NULL);
    return 99;
}

static int pid_of_helper(weir_process_pool *pool)
{
    weir_job_result result;
    int pid = 0;

    CHECK_OK(weir_process_pool_run(pool, "p", 1, &pid, sizeof pid, &result));
    CHECK_INT(result.out_bytes, ==, sizeof pid);
    return pid;
}

/* ---- Jobs ---- */

POOL_TEST(a_job_is_bytes_in_and_out_of_another_process)
{
    static char in[JOB_BYTES], out[JOB_BYTES];
    weir_process_pool_spec spec = pool_spec();
    int result;

    for (int i = 0; i < JOB_BYTES; i++) in[i] = (char)(i % 251);
    in[0] = 'e';
    IO_SCOPE(scope, &result)
    {
        weir_process_pool *pool;
        weir_job_result answer;

        CHECK_OK(weir_process_pool_open(scope, &spec, &pool));
        CHECK_INT(stats_of(pool).helpers, ==, 0);
        CHECK_INT(pid_of_helper(pool), !=, getpid());
        CHECK_INT(pid_of_helper(pool), ==, pid_of_helper(pool)); /* it stays */
        for (size_t bytes = 1; bytes <= JOB_BYTES; bytes = bytes * 3 + 1) {
            memset(out, 0, sizeof out);
            CHECK_OK(weir_process_pool_run(pool, in, bytes, out, sizeof out, &answer));
            CHECK_INT(answer.out_bytes, ==, bytes);
            CHECK_INT(answer.value, ==, bytes);
            CHECK_INT(memcmp(in, out, bytes), ==, 0);
        }
        /* No more than there is room for. */
        CHECK_OK(weir_process_pool_run(pool, in, 100, out, 7, &answer));
        CHECK_INT(answer.out_bytes, ==, 7);
        CHECK_OK(weir_process_pool_run(pool, NULL, 0, NULL, 0, NULL));
        CHECK_INT(run_text(pool, "n"), ==, -EDOM); /* the job's own failure */
        CHECK_INT(weir_process_pool_run(pool, in, JOB_BYTES + 1, out, 1, NULL), ==, WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), "in_bytes_max is 100000");
        CHECK_INT(stats_of(pool).helpers_started, ==, 1);
        CHECK_INT(stats_of(pool).jobs_failed, ==, 0);
        CHECK_OK(weir_process_pool_close(pool));
        check_no_children();
    }
    return result;
}

POOL_TEST(a_helper_that_ends_is_one_failed_job_and_is_replaced)
{
    static const struct {
        const char *job;
        int error;
        const char *why;
    } rows[] = {
        {"s", WEIR_EEXIT, "signal 11 (SIGSEGV)"},
        {"k", WEIR_EEXIT, "signal 9 (SIGKILL)"},
        {"x", WEIR_EEXIT, "exit code 3"},
        {"h", WEIR_EOVERTIME, "was running a job for more than 50 ms: killed"},
    };
    weir_process_pool_spec spec = pool_spec();
    int result;

    IO_SCOPE(scope, &result)
    {
        weir_process_pool *pool;

        spec.job_ms = 50;
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            test_note("%s", rows[i].why);
            if (rows[i].job[0] != 'h') spec.job_ms = 10000;
            if (rows[i].job[0] == 'h') spec.job_ms = 50;
            CHECK_OK(weir_process_pool_open(scope, &spec, &pool));
            if (spec.job_ms > 50) CHECK_OK(pid_of_helper(pool));
            CHECK_INT(run_text(pool, rows[i].job), ==, rows[i].error);
            CHECK_CONTAINS(weir_why(), "process pool 'test': helper (pid ");
            CHECK_CONTAINS(weir_why(), rows[i].why);
            if (spec.job_ms > 50) CHECK_INT(run_text(pool, "ehello"), ==, 6);
            CHECK_INT(stats_of(pool).jobs_failed, ==, 1);
            CHECK_INT(stats_of(pool).helpers_crashed, ==, rows[i].error == WEIR_EEXIT);
            CHECK_INT(stats_of(pool).helpers_overtime, ==, rows[i].error == WEIR_EOVERTIME);
            CHECK_OK(weir_process_pool_close(pool));
        }
    }
    return result;
}

POOL_TEST(a_helper_has_no_more_memory_than_allowed)
{
    weir_process_pool_spec spec = pool_spec();
    int result;

    if (TEST_SANITIZED) TEST_SKIP("a sanitizer needs all of the address space");
    IO_SCOPE(scope, &result)
    {
        weir_process_pool *pool;

        spec.memory_bytes = 256 << 20;
        CHECK_OK(weir_process_pool_open(scope, &spec, &pool));
        CHECK_INT(run_text(pool, "e"), ==, 1);
        CHECK_INT(run_text(pool, "m"), ==, WEIR_EEXIT);
        CHECK_CONTAINS(weir_why(), "SIGABRT");
        CHECK_INT(run_text(pool, "e"), ==, 1);
    }
    return result;
}

POOL_TEST(a_helper_is_replaced_after_its_share_of_jobs)
{
    weir_process_pool_spec spec = pool_spec();
    int result;

    IO_SCOPE(scope, &result)
    {
        weir_process_pool *pool;
        int first, second;

        spec.jobs_per_helper = 2;
        CHECK_OK(weir_process_pool_open(scope, &spec, &pool));
        first = pid_of_helper(pool);
        CHECK_INT(pid_of_helper(pool), ==, first);
        second = pid_of_helper(pool);
        CHECK_INT(second, !=, first);
        CHECK_INT(stats_of(pool).helpers_retired, ==, 1);
        CHECK_INT(stats_of(pool).helpers_crashed, ==, 0);
    }
    return result;
}

/* ---- Many callers ---- */

static void spawn_caller(weir_scope *scope, weir_process_pool *pool, const char *job, int expected,
                         int worker, weir_task *ret_task)
{
    struct caller caller = {pool, job, expected};

    CHECK_OK(weir_task_spawn(scope,
                             &(weir_task_spec){.fn = call_pool,
                                               .arg = &caller,
                                               .arg_bytes = sizeof caller,
                                               .place = WEIR_PLACE_WORKER,
                                               .worker = worker % weir_worker_count()},
                             ret_task));
}

POOL_TEST(callers_on_all_workers_share_the_helpers)
{
    weir_process_pool_spec spec = pool_spec();
    int result;

    IO_SCOPE(scope, &result)
    {
        weir_process_pool *pool;
        int inner;

        spec.helpers_max = 3;
        CHECK_OK(weir_process_pool_open(scope, &spec, &pool));
        IO_SCOPE(callers, &inner)
        {
            for (int i = 0; i < 60; i++) {
                bool bad = i % 7 == 3;
                spawn_caller(callers, pool, bad ? "x" : "ehello", bad ? WEIR_EEXIT : 6, i, NULL);
            }
        }
        CHECK_OK(inner);
        CHECK_INT(stats_of(pool).jobs_done, ==, 60 - 9);
        CHECK_INT(stats_of(pool).jobs_failed, ==, 9);
        CHECK_INT(stats_of(pool).helpers, <=, 3);
        CHECK_INT(stats_of(pool).queued, ==, 0);
    }
    return result;
}

POOL_TEST(jobs_beyond_the_queue_are_rejected_and_a_cancelled_one_leaves_it)
{
    weir_process_pool_spec spec = pool_spec();
    int result;

    IO_SCOPE(scope, &result)
    {
        weir_process_pool *pool;
        weir_task running, waiting;
        int r;

        spec.helpers_max = 1;
        spec.overflow = WEIR_REJECT;
        spec.queue_max = 1;
        CHECK_OK(weir_process_pool_open(scope, &spec, &pool));
        CHECK_INT(run_text(pool, "e"), ==, 1); /* the helper is there */
        spawn_caller(scope, pool, "h", WEIR_ECANCELED, 0, &running);
        await_queue(pool, 1, 0);
        spawn_caller(scope, pool, "ehello", WEIR_ECANCELED, 1, &waiting);
        await_queue(pool, 1, 1);
        CHECK_INT(run_text(pool, "e"), ==, WEIR_EOVERLOAD);
        CHECK_CONTAINS(weir_why(), "1 helpers are busy and 1 jobs wait (queue_max)");
        CHECK_OK(weir_task_cancel(waiting, "not needed"));
        CHECK_OK(weir_task_join(waiting, &r));
        CHECK_INT(r, ==, 0);
        CHECK_INT(stats_of(pool).queued, ==, 0);
        /* Of the one that runs the helper is killed; the next job gets another. */
        CHECK_OK(weir_task_cancel(running, "not needed either"));
        CHECK_INT(run_text(pool, "e"), ==, 1);
        CHECK_OK(weir_task_join(running, &r));
        CHECK_INT(r, ==, 0);
        CHECK_INT(stats_of(pool).jobs_cancelled, ==, 2);
        CHECK_INT(stats_of(pool).jobs_rejected, ==, 1);
        CHECK_INT(stats_of(pool).helpers_started, ==, 2);
        CHECK_INT(stats_of(pool).helpers_crashed, ==, 0);
        WEIR_DEADLINE(20) { CHECK_INT(run_text(pool, "h"), ==, WEIR_ETIMEDOUT); }
        CHECK_INT(stats_of(pool).helpers_overtime, ==, 0); /* the caller's own deadline */
    }
    return result;
}

POOL_TEST(too_many_failures_are_the_end_of_the_pool)
{
    weir_process_pool_spec spec = pool_spec();
    int result;

    IO_SCOPE(scope, &result)
    {
        weir_process_pool *pool;
        char said[64];
        weir_task waiting;
        int r;

        spec.helpers_max = 1;
        spec.max_restarts = 2;
        spec.job_ms = HANG_MS;
        CHECK_OK(weir_process_pool_open(scope, &spec, &pool));
        CHECK_INT(run_text(pool, "x"), ==, WEIR_EEXIT);
        CHECK_INT(run_text(pool, "x"), ==, WEIR_EEXIT);
        CHECK_INT(run_text(pool, "e"), ==, 1);
        spawn_caller(scope, pool, "h", WEIR_EOVERTIME, 0, NULL);
        await_queue(pool, 1, 0);
        spawn_caller(scope, pool, "e", WEIR_ECLOSED, 1, &waiting);
        CHECK_OK(weir_task_join(waiting, &r));
        CHECK_INT(run_text(pool, "e"), ==, WEIR_ECLOSED);
        CHECK_CONTAINS(weir_why(), "process pool 'test' has failed: 3 helpers failed within 60000 "
                                   "ms; the last: helper (pid ");
        (void)snprintf(said, sizeof said, "was running a job for more than %d ms", (int)HANG_MS);
        CHECK_CONTAINS(weir_why(), said);
        CHECK(stats_of(pool).failed);
        CHECK_OK(weir_process_pool_close(pool));
        check_no_children();
    }
    return result;
}

POOL_TEST(failures_that_are_long_ago_do_not_count)
{
    weir_process_pool_spec spec = pool_spec();
    int result;

    IO_SCOPE(scope, &result)
    {
        weir_process_pool *pool;

        spec.max_restarts = 1;
        spec.window_ms = 1;
        CHECK_OK(weir_process_pool_open(scope, &spec, &pool));
        for (int i = 0; i < 4; i++) {
            CHECK_INT(run_text(pool, "x"), ==, WEIR_EEXIT);
            CHECK_OK(weir_sleep(3));
        }
        CHECK_INT(run_text(pool, "e"), ==, 1);
    }
    return result;
}

/* ---- Closing ---- */

static int close_pool(void *arg)
{
    return weir_process_pool_close(*(weir_process_pool **)arg);
}

POOL_TEST(close_drains_or_discards)
{
    for (int drain = 0; drain < 2; drain++) {
        weir_process_pool_spec spec = pool_spec();
        int result;

        test_note("drain %d", drain);
        spec.helpers_max = 1;
        spec.job_ms = drain ? HANG_MS : 10000;
        spec.on_close = drain ? WEIR_DRAIN : WEIR_DISCARD;
        IO_SCOPE(scope, &result)
        {
            weir_process_pool *pool;
            weir_task closer;

            CHECK_OK(weir_process_pool_open(scope, &spec, &pool));
            spawn_caller(scope, pool, "h", drain ? WEIR_EOVERTIME : WEIR_ECLOSED, 0, NULL);
            await_queue(pool, 1, 0);
            spawn_caller(scope, pool, "e", drain ? 1 : WEIR_ECLOSED, 1, NULL);
            await_queue(pool, 1, 1);
            CHECK_OK(weir_task_spawn(
                scope, &(weir_task_spec){.fn = close_pool, .arg = &pool, .arg_bytes = sizeof pool},
                &closer));
            CHECK_OK(weir_task_join(closer, NULL));
            check_no_children();
        }
        CHECK_OK(result);
    }
    return 0;
}

POOL_TEST(a_closer_that_is_cancelled_does_not_wait_for_jobs)
{
    weir_process_pool_spec spec = pool_spec();
    int result;

    IO_SCOPE(scope, &result)
    {
        weir_process_pool *pool;
        weir_task closer;

        CHECK_OK(weir_process_pool_open(scope, &spec, &pool));
        spawn_caller(scope, pool, "h", WEIR_ECLOSED, 1, NULL);
        await_queue(pool, 1, 0);
        CHECK_OK(weir_task_spawn(
            scope, &(weir_task_spec){.fn = close_pool, .arg = &pool, .arg_bytes = sizeof pool},
            &closer));
        CHECK_OK(weir_yield());
        CHECK_OK(weir_task_cancel(closer, "enough"));
        CHECK_OK(weir_task_join(closer, NULL));
        check_no_children();
    }
    return result;
}

POOL_TEST(the_scope_ends_its_pool)
{
    weir_process_pool_spec spec = pool_spec();

    for (int cancel = 0; cancel < 2; cancel++) {
        int result;

        IO_SCOPE(scope, &result)
        {
            weir_process_pool *pool;

            spec.helpers_min = 2;
            CHECK_OK(weir_process_pool_open(scope, &spec, &pool));
            spawn_caller(scope, pool, "h", WEIR_ECANCELED, 1, NULL);
            await_queue(pool, 1, 0);
            weir_scope_cancel(scope, 0, "enough");
            if (cancel) CHECK_OK(weir_process_pool_close(pool));
        }
        CHECK_OK(result);
        check_no_children();
    }
    return 0;
}

POOL_TEST(a_pool_spec_that_leaves_something_out_is_refused)
{
    static const struct {
        size_t at;
        size_t bytes;
        const char *why;
    } rows[] = {
#define WITHOUT(member, why) \
    {offsetof(weir_process_pool_spec, member), sizeof((weir_process_pool_spec *)0)->member, why}
        WITHOUT(name, "name is not set"),           WITHOUT(helpers_max, "helpers_max is 0"),
        WITHOUT(in_bytes_max, "in_bytes_max is 0"), WITHOUT(out_bytes_max, "out_bytes_max is 0"),
        WITHOUT(overflow, "overflow must be"),      WITHOUT(job_ms, "job_ms is not set"),
        WITHOUT(max_restarts, "max_restarts is 0"), WITHOUT(window_ms, "window_ms is not set"),
        WITHOUT(on_close, "on_close must be"),
#undef WITHOUT
    };
    int result;

    IO_SCOPE(scope, &result)
    {
        weir_process_pool *pool;
        weir_process_pool_spec spec;

        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            spec = pool_spec();
            memset((char *)&spec + rows[i].at, 0, rows[i].bytes);
            CHECK_INT(weir_process_pool_open(scope, &spec, &pool), ==, WEIR_EREFUSED);
            CHECK_CONTAINS(weir_why(), rows[i].why);
        }
        spec = pool_spec();
        spec.queue_max = 3;
        CHECK_INT(weir_process_pool_open(scope, &spec, &pool), ==, WEIR_EREFUSED);
        spec = pool_spec();
        spec.helpers_min = 3;
        CHECK_INT(weir_process_pool_open(scope, &spec, &pool), ==, WEIR_EREFUSED);
        spec = pool_spec();
        spec.helpers_min = 1;
        spec.program = "/no/such/program";
        CHECK_INT(weir_process_pool_open(scope, &spec, &pool), ==, -ENOENT);
        CHECK_CONTAINS(weir_why(), "program '/no/such/program'");
    }
    return result;
}

/* ---- Hostile helpers ---- */

static void say(const void *data, size_t bytes)
{
    if (send(WEIR_PROCESS_POOL_HELPER_FD, data, bytes, MSG_NOSIGNAL) != (ssize_t)bytes) _exit(9);
}

static void say_frame(enum job_frame_kind kind, uint64_t id, uint32_t bytes)
{
    const struct job_frame frame = {.kind = kind, .id = id, .bytes = bytes};
    unsigned char header[JOB_FRAME_BYTES];

    job_frame_encode(&frame, header);
    say(header, sizeof header);
}

static unsigned char heard; /* the first byte of the last payload */

/* A frame of any kind with its payload: its id, or exit at the end. */
static uint64_t hear(void)
{
    unsigned char bytes[4096] = {0};
    ssize_t n = recv(WEIR_PROCESS_POOL_HELPER_FD, bytes, sizeof bytes, 0);
    uint64_t id = 0;

    if (n < JOB_FRAME_BYTES) _exit(n == 0 ? 0 : 8);
    heard = bytes[JOB_FRAME_BYTES];
    for (int i = 0; i < 8; i++) id |= (uint64_t)bytes[8 + i] << (8 * i);
    return id;
}

/* In the file of that name, at the place that the job has named: it is done. */
static void note_done(const char *path)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd < 0 || pwrite(fd, "!", 1, heard) != 1) _exit(7);
    (void)close(fd);
}

static void live_on(void)
{
    (void)signal(SIGTERM, SIG_IGN);
    while (pause() < 0) {}
}

/* Its behaviour, by name. */
TEST_PROGRAM(pool_hostile)
{
    const char *mode = argc > 2 ? argv[2] : "";
    unsigned char nonsense[64] = "these are no frames, whatever you may think of them";
    uint64_t id;

    (void)hear();
    if (strcmp(mode, "silent") == 0) live_on();
    if (strcmp(mode, "bad hello") == 0) say(nonsense, sizeof nonsense);
    if (strcmp(mode, "leaves") == 0) return 7;
    if (strcmp(mode, "long hello") == 0) say_frame(JOB_FRAME_HELLO, 0, 5);
    say_frame(JOB_FRAME_HELLO, 0, 0);
    if (strcmp(mode, "impatient") == 0) say_frame(JOB_FRAME_ANSWER, 77, 0);
    if (strcmp(mode, "deaf") == 0) live_on();
    id = hear();
    if (strcmp(mode, "bad magic") == 0) say(nonsense, sizeof nonsense);
    if (strcmp(mode, "oversize") == 0) say_frame(JOB_FRAME_ANSWER, id, 65);
    if (strcmp(mode, "huge") == 0) say_frame(JOB_FRAME_ANSWER, id, UINT32_MAX);
    if (strcmp(mode, "wrong id") == 0) say_frame(JOB_FRAME_ANSWER, id + 1, 0);
    if (strcmp(mode, "wrong kind") == 0) say_frame(JOB_FRAME_JOB, id, 0);
    if (strcmp(mode, "short") == 0) {
        say_frame(JOB_FRAME_ANSWER, id, 10);
        say(nonsense, 5);
        return 0;
    }
    if (strcmp(mode, "half a header") == 0) {
        say(nonsense, 3);
        return 0;
    }
    if (strcmp(mode, "stingy") == 0) say_frame(JOB_FRAME_ANSWER, id, 10); /* and no payload */
    if (strcmp(mode, "hangs up") == 0) (void)close(WEIR_PROCESS_POOL_HELPER_FD);
    if (strcmp(mode, "extra") == 0) {
        unsigned char both[JOB_FRAME_BYTES + 1] = {0};
        const struct job_frame frame = {.kind = JOB_FRAME_ANSWER, .id = id};
        job_frame_encode(&frame, both);
        say(both, sizeof both);
    }
    if (strcmp(mode, "chatty") == 0) { /* a good answer, and then something nobody asked for */
        say_frame(JOB_FRAME_ANSWER, id, 0);
        say(nonsense, 1);
        note_done(argc > 3 ? argv[3] : "");
    }
    live_on();
    return 0;
}

static const struct hostility {
    const char *mode;
    int error;
    const char *why;
} hostilities[] = {
    {"silent", WEIR_EOVERTIME, "was starting for more than"},
    {"bad hello", WEIR_EPROTOCOL, "talked nonsense when starting: it is no frame"},
    {"leaves", WEIR_EEXIT, "ended when starting, with exit code 7"},
    {"long hello", WEIR_EPROTOCOL, "it is larger than allowed"},
    {"impatient", WEIR_EPROTOCOL, "talked nonsense"}, /* when starting or after it */
    {"deaf", WEIR_EOVERTIME, "was running a job for more than"},
    {"bad magic", WEIR_EPROTOCOL, "talked nonsense when running a job: it is no frame"},
    {"oversize", WEIR_EPROTOCOL, "it is larger than allowed"},
    {"huge", WEIR_EPROTOCOL, "it is larger than allowed"},
    {"wrong id", WEIR_EPROTOCOL, "it answers another job"},
    {"wrong kind", WEIR_EPROTOCOL, "it is of another kind"},
    {"short", WEIR_EEXIT, "ended when running a job, with exit code 0"},
    {"half a header", WEIR_EEXIT, "exit code 0"},
    {"stingy", WEIR_EOVERTIME, "was running a job"},
    {"hangs up", WEIR_EEXIT, "closed its connection when running a job"},
    {"extra", WEIR_EPROTOCOL, "there are bytes after it"},
};

POOL_TEST(whatever_a_hostile_helper_does_is_one_failed_job)
{
    static char in[JOB_BYTES];
    int result;

    IO_SCOPE(scope, &result)
    {
        for (size_t i = 0; i < sizeof hostilities / sizeof hostilities[0]; i++) {
            const struct hostility *row = &hostilities[i];
            bool deaf = strcmp(row->mode, "deaf") == 0;
            weir_process_pool_spec spec = pool_spec();
            weir_process_pool *pool;
            char out[64];
            int r;

            test_note("%s", row->mode);
            spec.program = TEST_PROGRAM_PATH;
            spec.arguments = (const char *const[]){"pool_hostile", row->mode, NULL};
            spec.job_ms = row->error == WEIR_EOVERTIME ? 30 : 10000;
            spec.start_ms = strcmp(row->mode, "silent") == 0 ? 30 : 10000;
            CHECK_OK(weir_process_pool_open(scope, &spec, &pool));
            r = weir_process_pool_run(pool, in, deaf ? sizeof in : 1, out, sizeof out, NULL);
            CHECK_INT(r, ==, row->error);
            CHECK_CONTAINS(weir_why(), row->why);
            CHECK_INT(stats_of(pool).jobs_failed, ==, 1);
            CHECK_OK(weir_process_pool_close(pool));
            check_no_children();
        }
    }
    return result;
}

POOL_TEST(a_helper_that_speaks_when_idle_is_replaced_before_the_next_job)
{
    weir_process_pool_spec spec = pool_spec();
    int result;

    IO_SCOPE(scope, &result)
    {
        char path[] = "/tmp/weir-pool-XXXXXX";
        weir_process_pool *pool;
        int fd = mkstemp(path);
        char out[8];

        CHECK_INT(fd, >=, 0);
        spec.program = TEST_PROGRAM_PATH;
        spec.arguments = (const char *const[]){"pool_hostile", "chatty", path, NULL};
        CHECK_OK(weir_process_pool_open(scope, &spec, &pool));
        for (char i = 0; i < 3; i++) {
            int r = weir_process_pool_run(pool, &i, 1, out, sizeof out, NULL);
            char done = 0;
            /* The byte may come with the answer. */
            CHECK(r == 0 || r == WEIR_EPROTOCOL);
            while (r == 0 && done != '!') {
                CHECK_OK(weir_sleep(1));
                CHECK_INT(pread(fd, &done, 1, i), >=, 0);
            }
        }
        CHECK_INT(stats_of(pool).helpers_started, ==, 3);
        CHECK_INT(stats_of(pool).helpers_crashed + stats_of(pool).helpers_nonsense, >=, 2);
        CHECK_INT(close(fd), ==, 0);
        CHECK_INT(unlink(path), ==, 0);
    }
    return result;
}

POOL_TEST(a_helper_that_dies_when_idle_fails_no_job)
{
    weir_process_pool_spec spec = pool_spec();
    int result;

    IO_SCOPE(scope, &result)
    {
        weir_process_pool *pool;

        CHECK_OK(weir_process_pool_open(scope, &spec, &pool));
        CHECK_INT(kill(pid_of_helper(pool), SIGKILL), ==, 0);
        CHECK_INT(run_text(pool, "e"), >=, WEIR_EEXIT); /* killed in time, or not quite */
        while (stats_of(pool).helpers_crashed == 0) CHECK_OK(weir_sleep(1));
        CHECK_INT(run_text(pool, "e"), ==, 1);
    }
    return result;
}

POOL_TEST(the_dump_shows_the_pool)
{
    weir_process_pool_spec spec = pool_spec();
    int result;

    IO_SCOPE(scope, &result)
    {
        static char text[65536];
        FILE *file = tmpfile();
        weir_process_pool *pool;
        size_t n;

        CHECK(file != NULL);
        CHECK_OK(weir_process_pool_open(scope, &spec, &pool));
        CHECK_INT(run_text(pool, "e"), ==, 1);
        CHECK_OK(weir_dump(fileno(file)));
        rewind(file);
        n = fread(text, 1, sizeof text - 1, file);
        text[n] = '\0';
        (void)fclose(file);
        CHECK_CONTAINS(text, "process pool 'test': 1 of 2 helpers, 0 queued; jobs: 1 done");
        CHECK_CONTAINS(text, "process 'test', pid ");
    }
    return result;
}
