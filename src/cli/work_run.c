/* work_run.c - a program for one job: payload in, result out, heartbeat meanwhile. */
#include "cli/work.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/output.h"

enum { PIECE_BYTES = 4096, LINE_BYTES = 1024, START_MS = 10000, VARIABLES = 7, READ_MS = 1000 };
enum { BEAT_MS_MAX = 5000, BEAT_AGAIN_MS = 500 }; /* so long until a cancel is heard of */

/* Three tasks and the one that waits look at it, on one worker. */
struct run {
    struct work *work;
    const struct work_job *job;
    weir_conn *in, *out, *err;
    struct buffer *result;
    bool too_long;
    char last_line[WORK_ERROR_BYTES]; /* of standard error: the reason, most of the time */
};

int work_codes_parse(const char *text, struct work_codes *ret_codes)
{
    ret_codes->count = 0;
    while (*text) {
        char *end;
        long code = strtol(text, &end, 10);

        if (end == text || code < 0 || code > 255 || ret_codes->count == WORK_CODES_MAX) return -1;
        ret_codes->at[ret_codes->count++] = (unsigned char)code;
        if (*end == ',')
            end++;
        else if (*end)
            return -1;
        text = end;
    }
    return 0;
}

static bool has_code(const struct work_codes *codes, int code)
{
    for (unsigned i = 0; i < codes->count; i++)
        if (codes->at[i] == code) return true;
    return false;
}

void work_judge(const struct work *work, const weir_process_status *status,
                struct work_outcome *ret_outcome)
{
    int code = status->exit_code;

    ret_outcome->class[0] = '\0';
    ret_outcome->delay_ms = 0;
    if (code < 0) {
        ret_outcome->verdict = WORK_FAIL;
        (void)snprintf(ret_outcome->class, sizeof ret_outcome->class, "signal-%d", status->signal);
        return;
    }
    (void)snprintf(ret_outcome->class, sizeof ret_outcome->class, "exit-%d", code);
    if (code == 0) {
        ret_outcome->verdict = WORK_ACK;
    } else if (has_code(&work->dead, code)) {
        ret_outcome->verdict = WORK_DEAD;
    } else if (has_code(&work->snooze, code)) {
        ret_outcome->verdict = WORK_RELEASE;
        ret_outcome->delay_ms = work->snooze_ms;
    } else {
        ret_outcome->verdict = WORK_FAIL;
    }
}

/* ---- Its three streams ---- */

/* A program that does not read its input is not thereby wrong. */
static int feed(void *arg)
{
    struct run *run = *(struct run **)arg;

    int r = 0;

    WEIR_NO_DEADLINE("the program takes its input when it likes; its timeout ends it")
        r = weir_conn_send_all(run->in, run->job->payload, run->job->payload_bytes, NULL);
    weir_conn_close(run->in);
    return r == WEIR_ECANCELED ? r : 0;
}

static int gather(void *arg)
{
    struct run *run = *(struct run **)arg;
    char piece[PIECE_BYTES];

    WEIR_NO_DEADLINE("the program writes when it likes; its timeout ends it")
        for (;;) {
            ssize_t n = weir_conn_read(run->out, piece, sizeof piece);

            if (n <= 0) break;
            if (run->result->used + (size_t)n > run->work->result_bytes_max)
                run->too_long = true; /* it is read to its end, so that the program does not wait */
            else
                buffer_put(run->result, piece, (size_t)n);
        }
    weir_conn_close(run->out);
    return 0;
}

static void pass_line(struct run *run, const char *line, size_t count)
{
    (void)fprintf(stderr, "[%s] %.*s\n", run->job->id, (int)count, line);
    if (count > 0)
        (void)snprintf(run->last_line, sizeof run->last_line, "%.*s",
                       (int)(count < WORK_ERROR_BYTES ? count : WORK_ERROR_BYTES - 1), line);
}

static int pass_on(void *arg)
{
    struct run *run = *(struct run **)arg;
    char line[LINE_BYTES];
    size_t used = 0;

    WEIR_NO_DEADLINE("the program writes when it likes; its timeout ends it")
        for (;;) {
            ssize_t n = weir_conn_read(run->err, line + used, sizeof line - used);
            char *end;

            if (n <= 0) break;
            used += (size_t)n;
            while ((end = memchr(line, '\n', used)) != NULL) {
                pass_line(run, line, (size_t)(end - line));
                used -= (size_t)(end - line) + 1;
                memmove(line, end + 1, used);
            }
            if (used < sizeof line) continue;
            pass_line(run, line, used);
            used = 0;
        }
    if (used > 0) pass_line(run, line, used);
    weir_conn_close(run->err);
    return 0;
}

/* ---- The program ---- */

struct environment {
    char texts[VARIABLES][WORK_TEXT_BYTES + 32];
    const char *at[VARIABLES + 1];
    unsigned count;
};

static void put_variable(struct environment *environment, const char *name, const char *value)
{
    char *text = environment->texts[environment->count];

    (void)snprintf(text, sizeof environment->texts[0], "%s=%s", name, value);
    environment->at[environment->count++] = text;
}

static void put_said(struct environment *environment, const char *name, const char *value)
{
    if (value[0]) put_variable(environment, name, value);
}

static void fill_environment(struct environment *environment, const struct work *work,
                             const struct work_job *job)
{
    char number[24];

    *environment = (struct environment){.count = 0};
    put_said(environment, "WEIR_JOB_ID", job->id);
    put_said(environment, "WEIR_JOB_QUEUE", job->queue);
    put_said(environment, "WEIR_JOB_KIND", job->kind);
    (void)snprintf(number, sizeof number, "%lld", (long long)job->attempt);
    put_said(environment, "WEIR_JOB_ATTEMPT", number);
    put_said(environment, "TRACEPARENT", job->trace);
    if (work->expose_token) put_said(environment, "WEIR_JOB_TOKEN", job->token);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* From TERM to KILL. The lease ends with the job's timeout, and the program before it. */
static int64_t grace_of(const struct run *run)
{
    int64_t jobs_ms = run->job->timeout_ms;

    return jobs_ms > 0 ? least(run->work->grace_ms, jobs_ms / 2) : run->work->grace_ms;
}

static int start(struct run *run, weir_scope *scope, weir_process **ret_process)
{
    struct environment environment;
    int r = WEIR_ETIMEDOUT;

    fill_environment(&environment, run->work, run->job);
    WEIR_DEADLINE(START_MS)
        r = weir_process_start(
            scope,
            &(weir_process_spec){
                .name = "job",
                .program = run->work->command[0],
                .arguments = run->work->command + 1,
                .grace_ms = grace_of(run) > 0 ? grace_of(run) : WEIR_KILL_AT_ONCE,
                .on_exit = WEIR_EXIT_ANY,
                .environment = WEIR_ENVIRONMENT_ADD,
                .variables = environment.at,
                .in = {.kind = WEIR_STDIO_PIPE, .ret_conn = &run->in},
                .out = {.kind = WEIR_STDIO_PIPE, .ret_conn = &run->out},
                .err = {.kind = WEIR_STDIO_PIPE, .ret_conn = &run->err},
                .parent_death_signal = SIGKILL,
            },
            ret_process);
    return r;
}

static void close_ends(struct run *run)
{
    weir_conn_close(run->in);
    weir_conn_close(run->out);
    weir_conn_close(run->err);
}

static int spawn_streams(struct run *run, weir_scope *scope)
{
    int r = weir_spawn(scope, feed, &run, sizeof run);

    if (r < 0) {
        close_ends(run);
        return r;
    }
    r = weir_spawn(scope, gather, &run, sizeof run);
    if (r < 0) {
        weir_conn_close(run->out);
        weir_conn_close(run->err);
        return r;
    }
    r = weir_spawn(scope, pass_on, &run, sizeof run);
    if (r < 0) weir_conn_close(run->err);
    return r;
}

enum why_ended { BY_ITSELF, TIMED_OUT, JOB_CANCELLED, LEASE_LOST, TOLD_TO_END, WE_END };

/* When the program has to be told to end, for the job's own timeout. 0: none. */
static int64_t jobs_timeout(const struct run *run)
{
    return run->job->timeout_ms > 0 ? run->job->timeout_ms - grace_of(run) : 0;
}

/* The job's own is the server's to keep, whatever was said here. 0: none. */
static int64_t timeout_of(const struct run *run)
{
    int64_t ours_ms = run->work->timeout_ms, jobs_ms = jobs_timeout(run);

    return ours_ms > 0 && jobs_ms > 0 ? least(ours_ms, jobs_ms) : ours_ms + jobs_ms;
}

/* Since the lease came. */
static int64_t age_ms(const struct run *run)
{
    return (weir_now_ns() - run->job->leased_ns) / 1000000;
}

/* So long it may run with one lease, or until it is renewed. */
static int64_t ours_of(const struct run *run)
{
    return run->work->lease_ms - grace_of(run);
}

/* Until it has ended, or has to be. When the lease is over others may have the job: whoever has not
 * renewed it ends the program so early that it is gone by then, its grace period included. */
static enum why_ended watch(struct run *run, struct client *client, weir_process *process)
{
    struct work *work = run->work;
    int64_t timeout_ms = timeout_of(run) > 0 ? timeout_of(run) : INT64_MAX;
    int64_t beat_ms = least(work->lease_ms / 3, BEAT_MS_MAX), next_ms = beat_ms;
    int64_t over_ms = ours_of(run);

    for (;;) {
        int64_t now_ms = age_ms(run), end_ms = least(timeout_ms, over_ms);
        int64_t until_ms = least(next_ms, end_ms);
        unsigned orders = 0;
        int r = WEIR_ETIMEDOUT;

        if (now_ms >= timeout_ms) return TIMED_OUT;
        if (now_ms >= over_ms) return LEASE_LOST;
        if (until_ms > now_ms) {
            WEIR_DEADLINE(until_ms - now_ms) r = weir_process_wait(process, NULL);
            if (r == 0 || r == WEIR_EEXIT || r == -ECHILD) return BY_ITSELF;
            if (r != WEIR_ETIMEDOUT) return WE_END;
        }
        now_ms = age_ms(run);
        if (now_ms < next_ms || now_ms >= end_ms) continue;
        r = WEIR_ETIMEDOUT;
        WEIR_DEADLINE(end_ms - now_ms) r = work_renew(work, client, run->job, &orders);
        if (r == WEIR_ECANCELED) return WE_END;
        if (r == 404 || r == 409) return LEASE_LOST;
        if (orders & WORK_CANCELLED) return JOB_CANCELLED;
        if (orders & WORK_QUIET) work->quiet = true;
        if (orders & WORK_END) {
            work->draining = true;
            return TOLD_TO_END;
        }
        if (r == 0) over_ms = now_ms + ours_of(run);
        next_ms = r == 0 ? now_ms + beat_ms : age_ms(run) + least(beat_ms, BEAT_AGAIN_MS);
    }
}

static void judge_end(struct run *run, enum why_ended why, const weir_process_status *status,
                      struct work_outcome *outcome)
{
    work_judge(run->work, status, outcome);
    (void)snprintf(outcome->message, sizeof outcome->message, "%s", run->last_line);
    switch (why) {
    case BY_ITSELF:
        if (outcome->verdict == WORK_ACK && (run->too_long || buffer_error(run->result))) {
            outcome->verdict = WORK_FAIL;
            (void)snprintf(outcome->class, sizeof outcome->class, "result-too-large");
            (void)snprintf(outcome->message, sizeof outcome->message,
                           "standard output is more than --result-max (%zu bytes)",
                           run->work->result_bytes_max);
        }
        break;
    case TIMED_OUT:
    case JOB_CANCELLED:
        outcome->verdict = WORK_FAIL;
        (void)snprintf(outcome->class, sizeof outcome->class,
                       why == TIMED_OUT ? "timeout" : "cancelled");
        outcome->known =
            why == TIMED_OUT && run->job->timeout_ms > 0 && timeout_of(run) == jobs_timeout(run);
        break;
    case LEASE_LOST:
        say("job %s: its lease could not be renewed: the program was ended", run->job->id);
        outcome->verdict = WORK_RELEASE;
        outcome->delay_ms = 0;
        break;
    case TOLD_TO_END:
    case WE_END:
        outcome->verdict = WORK_RELEASE;
        outcome->delay_ms = 0;
        break;
    }
    outcome->result = buffer_bytes(run->result);
}

/* It is told to end, and after its grace period it is ended. Whatever came of that, its status is
 * known when it is closed. */
static void end_program(struct run *run, weir_process *process, enum why_ended why,
                        weir_process_status *status)
{
    int64_t grace_ms = grace_of(run) > 0 ? grace_of(run) : 1;
    int r = why == BY_ITSELF ? 0 : weir_process_signal(process, SIGTERM);

    WEIR_SHIELD(grace_ms + READ_MS) {
        if (why != BY_ITSELF && r == 0) {
            WEIR_DEADLINE(grace_ms) r = weir_process_wait(process, status);
            if (r == WEIR_ETIMEDOUT) r = weir_process_signal(process, SIGKILL);
        }
        WEIR_DEADLINE(READ_MS) r = weir_process_wait(process, status);
    }
    r = weir_process_close(process);
    (void)r;
}

static int run_program(struct run *run, struct client *client, weir_scope *scope,
                       struct work_outcome *outcome)
{
    weir_process_status status = {.exit_code = -1};
    weir_process *process = NULL;
    enum why_ended why;
    int r = start(run, scope, &process);

    if (r == WEIR_ECANCELED) return 0; /* we end: that is not the job's fault */
    if (r < 0) {
        outcome->verdict = WORK_FAIL;
        (void)snprintf(outcome->class, sizeof outcome->class, "not-started");
        (void)snprintf(outcome->message, sizeof outcome->message, "%.200s: %.250s",
                       run->work->command[0], r == WEIR_EREFUSED ? weir_why() : weir_strerror(r));
        return 0;
    }
    r = spawn_streams(run, scope);
    why = r < 0 ? WE_END : watch(run, client, process);
    end_program(run, process, why, &status);
    /* What it has written may still be on its way. */
    WEIR_SHIELD(READ_MS) r = weir_scope_join(scope);
    judge_end(run, why, &status, outcome);
    return r == WEIR_ETIMEDOUT ? r : 0;
}

/* Whether others may have the job before a program that is begun now has ended. Without its time
 * it has failed: to give it back would not count, and might go on for ever. */
static bool is_late(const struct run *run, struct work_outcome *outcome)
{
    int64_t now_ms = age_ms(run);

    if (run->job->timeout_ms > 0 && now_ms >= jobs_timeout(run)) {
        outcome->verdict = WORK_FAIL;
        (void)snprintf(outcome->class, sizeof outcome->class, "timeout");
        outcome->known = true;
        return true;
    }
    if (now_ms < ours_of(run)) return false;
    say("job %s: its lease was over before its program could begin", run->job->id);
    return true;
}

void work_run(struct work *work, struct client *client, const struct work_job *job,
              struct buffer *result, struct work_outcome *ret_outcome)
{
    struct run run = {.work = work, .job = job, .result = result};
    int r = 0;

    *ret_outcome = (struct work_outcome){.verdict = WORK_RELEASE}; /* unless it was tried */
    buffer_clear(result);
    if (is_late(&run, ret_outcome)) return;
    WEIR_SCOPE(scope, &r, .name = "job", .on_failure = WEIR_COLLECT, .max_tasks = 4,
               .overflow = WEIR_REJECT) {
        if (run_program(&run, client, scope, ret_outcome) < 0)
            weir_scope_cancel(scope, WEIR_ECANCELED, "the program has ended");
    }
}
