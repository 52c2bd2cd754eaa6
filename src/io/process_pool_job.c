/* process_pool_job.c - a caller and its helper: hello, job, answer, and what it means when
 * one of them does not come. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "io/job_frame.h"
#include "io/process_pool.h"
#include "rt/mem.h"

enum {
    SMALL_JOB_BYTES = 2048, /* sent with its frame in one piece */
    END_WAIT_MS = 500,      /* for a process whose connection has ended to end itself */
};

/* ---- Frames over the connection ---- */

static int send_frame(struct helper *helper, const struct job_frame *frame, const void *payload)
{
    unsigned char bytes[JOB_FRAME_BYTES + SMALL_JOB_BYTES];
    int r;

    job_frame_encode(frame, bytes);
    if (frame->bytes <= SMALL_JOB_BYTES) {
        if (frame->bytes > 0) memcpy(bytes + JOB_FRAME_BYTES, payload, frame->bytes);
        return weir_conn_send_all(helper->conn, bytes, JOB_FRAME_BYTES + frame->bytes, NULL);
    }
    r = weir_conn_send_all(helper->conn, bytes, JOB_FRAME_BYTES, NULL);
    return r < 0 ? r : weir_conn_send_all(helper->conn, payload, frame->bytes, NULL);
}

/* Where the next bytes go: what is left of the header, of the room, and one more, so that
 * bytes beyond the answer are found. */
static int parts_after(struct iovec parts[3], unsigned char *header, void *out, size_t room,
                       char *beyond, size_t have)
{
    size_t in_payload = have > JOB_FRAME_BYTES ? have - JOB_FRAME_BYTES : 0;
    int count = 0;

    if (have < JOB_FRAME_BYTES) {
        parts[count++] = (struct iovec){header + have, JOB_FRAME_BYTES - have};
    }
    if (in_payload < room) {
        parts[count++] = (struct iovec){(char *)out + in_payload, room - in_payload};
    }
    parts[count++] = (struct iovec){beyond, 1};
    return count;
}

/* One frame and nothing after it. WEIR_EPROTOCOL and why; WEIR_ECLOSED: it has gone. */
static int receive_frame(struct helper *helper, enum job_frame_kind kind, uint64_t id, void *out,
                         size_t room, struct job_frame *ret_frame, const char **ret_why)
{
    unsigned char header[JOB_FRAME_BYTES];
    char beyond;
    size_t have = 0;
    size_t want = JOB_FRAME_BYTES;

    while (have < want) {
        struct iovec parts[3];
        int count = parts_after(parts, header, out, room, &beyond, have);
        ssize_t n = weir_conn_readv(helper->conn, parts, count);

        if (n < 0) return (int)n;
        if (n == 0) return WEIR_ECLOSED;
        have += (size_t)n;
        if (have < JOB_FRAME_BYTES || want > JOB_FRAME_BYTES) continue;
        *ret_why = job_frame_decode(header, kind, id, room, ret_frame);
        if (*ret_why) return WEIR_EPROTOCOL;
        want += ret_frame->bytes;
    }
    if (have == want) return 0;
    *ret_why = "there are bytes after it";
    return WEIR_EPROTOCOL;
}

/* ---- Judging ---- */

static bool has_gone(int error)
{
    return error == WEIR_ECLOSED || error == -EPIPE || error == -ECONNRESET;
}

/* What a caller is told about a helper that has failed it. The helper is doomed; `why` is
 * what was wrong with its frame. */
static int judge(struct helper *helper, struct task *self, int error, int64_t limit_ms,
                 const char *doing, const char *why)
{
    weir_process_pool *pool = helper->pool;
    int pid = (int)helper->pid;
    char how[96];
    char what[160];

    if (error == WEIR_EOVERTIME) {
        (void)snprintf(what, sizeof what, "helper (pid %d) was %s for more than %lld ms: killed",
                       pid, doing, (long long)limit_ms);
        pool_blame(pool, FAULT_OVERTIME, what);
    } else if (error == WEIR_EPROTOCOL) {
        (void)snprintf(what, sizeof what, "helper (pid %d) talked nonsense when %s: %s", pid, doing,
                       why);
        pool_blame(pool, FAULT_NONSENSE, what);
    } else {
        int r = pool_await_end(helper, self);
        if (r < 0) return r;
        process_describe_end(&helper->result, how, sizeof how);
        if (helper->result.status.ended_by_us) {
            (void)snprintf(what, sizeof what, "helper (pid %d) closed its connection when %s", pid,
                           doing);
        } else {
            (void)snprintf(what, sizeof what, "helper (pid %d) ended when %s, with %s", pid, doing,
                           how);
        }
        pool_blame(pool, FAULT_CRASH, what);
        error = WEIR_EEXIT;
    }
    return refuse_as(error, "process pool '%s': %s", pool->name, what);
}

/* A talk with the helper has failed: doom it, and say what the caller is told. */
static int fail(struct helper *helper, struct task *self, int error, int64_t limit_ms,
                const char *doing, const char *why)
{
    weir_process_pool *pool = helper->pool;
    bool discarded;
    int r = 0;

    if (has_gone(error)) {
        /* It closes its descriptors before its end can be seen. A kill in between would be
         * taken for that end. */
        WEIR_DEADLINE(END_WAIT_MS) { r = pool_await_end(helper, self); }
        if (r == WEIR_ECANCELED) error = r;
    }
    pool_doom(helper, true);
    pool_lock(pool);
    discarded = pool->state == POOL_DISCARDING;
    pool_unlock(pool);
    if (error == WEIR_ECANCELED || discarded) {
        /* In the block of the limit any signal from outside is a cancel. And a caller that
         * is cancelled itself is told so, also if it met the closed pool first: its mail
         * may still be under way. */
        task_refresh_self();
        r = task_interruption(self, false);
        if (r < 0) return r;
        if (error == WEIR_ECANCELED) return error;
    }
    if (discarded) {
        return refuse_as(WEIR_ECLOSED, "process pool '%s': closed when %s", pool->name, doing);
    }
    if (error == WEIR_ETIMEDOUT) error = WEIR_EOVERTIME; /* of the block, so ours */
    if (error == WEIR_EOVERTIME || error == WEIR_EPROTOCOL || has_gone(error)) {
        return judge(helper, self, error, limit_ms, doing, why);
    }
    return error; /* no memory, for instance: not the helper's fault */
}

/* ---- Hello ---- */

static int say_hello(struct helper *helper, const char **ret_why)
{
    const weir_process_pool_spec *spec = &helper->pool->spec;
    struct job_frame frame = {.kind = JOB_FRAME_HELLO, .bytes = JOB_HELLO_BYTES};
    unsigned char payload[JOB_HELLO_BYTES];
    int r;

    job_hello_encode(spec->in_bytes_max, spec->out_bytes_max, payload);
    r = send_frame(helper, &frame, payload);
    if (r < 0) return r;
    return receive_frame(helper, JOB_FRAME_HELLO, 0, NULL, 0, &frame, ret_why);
}

static int helper_launch(struct helper *helper, int fd)
{
    weir_process_pool *pool = helper->pool;
    const weir_process_pool_spec *spec = &pool->spec;
    const struct process_hook hook = {pool_helper_ended, helper, 1};
    weir_process *process;
    int r = process_start(pool->scope,
                          &(weir_process_spec){
                              .name = pool->name,
                              .program = spec->program,
                              .arguments = spec->arguments,
                              .grace_ms = spec->grace_ms,
                              .on_exit = WEIR_EXIT_ANY,
                              .err = {.kind = WEIR_STDIO_INHERIT},
                              .fds = &fd,
                              .fd_count = 1,
                              .limits = {.memory_bytes = spec->memory_bytes},
                              .parent_death_signal = SIGKILL,
                          },
                          &hook, &process);
    if (r < 0) return r;
    pool_lock(pool);
    helper->process = process;
    helper->pid = process->result.pid;
    pool->stats.helpers_started++;
    /* The pool was closed meanwhile, and found nothing that it could end. */
    if (helper->state == HELPER_DOOMED) process_dismiss(process, true);
    pool_unlock(pool);
    return 0;
}

/* The process, with our end of the socket in helper->conn. */
static int helper_connect(struct helper *helper)
{
    const struct kernel *kernel = worker_self()->kernel;
    weir_conn *conn;
    int fds[2];
    int r = conn_prepare(&conn);

    if (r < 0) return r;
    r = kernel->socketpair(kernel, AF_UNIX, SOCK_STREAM, fds);
    if (r < 0) {
        conn_abandon(conn);
        return r;
    }
    conn_adopt(conn, fds[0], true, WEIR_UNIX);
    helper->conn_object = conn;
    helper->conn = conn->head.handle;
    r = helper_launch(helper, fds[1]);
    (void)kernel->close(kernel, fds[1]);
    return r;
}

/* Something is scarce just now: no reason to give the pool up. */
static bool is_shortage(int error)
{
    return error == WEIR_EOVERLOAD || error == -ENOMEM || error == -EAGAIN || error == -EMFILE ||
           error == -ENFILE;
}

/* There is no process. What the caller is told. */
static int start_failed(struct helper *helper, struct task *self, int error)
{
    weir_process_pool *pool = helper->pool;
    char what[128];

    pool_doom(helper, true);
    if (error == WEIR_ETIMEDOUT || is_shortage(error)) return error;
    if (error == WEIR_ECANCELED) {
        int r = task_interruption(self, false);
        if (r < 0) return r;
        return refuse_as(WEIR_ECLOSED, "process pool '%s' is closed: its scope was cancelled",
                         pool->name);
    }
    (void)snprintf(what, sizeof what, "helper could not be started: %s", weir_strerror(error));
    pool_blame(pool, FAULT_START, what);
    return error;
}

int helper_start(struct helper *helper, struct task *self)
{
    int64_t start_ms = helper->pool->spec.start_ms;
    const char *why = "";
    int r = helper_connect(helper);

    if (r < 0) return start_failed(helper, self, r);
    WEIR_DEADLINE(start_ms) { r = say_hello(helper, &why); }
    return r < 0 ? fail(helper, self, r, start_ms, "starting", why) : 0;
}

/* ---- Jobs ---- */

static int exchange(struct helper *helper, struct job *job, const char **ret_why)
{
    weir_process_pool *pool = helper->pool;
    struct job_frame frame = {.kind = JOB_FRAME_JOB, .bytes = (uint32_t)job->in_bytes};
    size_t room = job->out_bytes;
    int r;

    if (room > pool->spec.out_bytes_max) room = pool->spec.out_bytes_max;
    frame.value = (uint32_t)room;
    pool_lock(pool);
    frame.id = ++pool->next_id;
    pool_unlock(pool);
    r = send_frame(helper, &frame, job->in);
    if (r < 0) return r;
    r = receive_frame(helper, JOB_FRAME_ANSWER, frame.id, job->out, room, &frame, ret_why);
    if (r < 0) return r;
    job->result = (weir_job_result){.value = (int32_t)frame.value, .out_bytes = frame.bytes};
    return 0;
}

int helper_run(struct helper *helper, struct task *self, struct job *job)
{
    int64_t job_ms = helper->pool->spec.job_ms;
    const char *why = "";
    int r = WEIR_ECANCELED;

    WEIR_DEADLINE(job_ms) { r = exchange(helper, job, &why); }
    if (r == 0) {
        helper->jobs++;
        return 0;
    }
    return fail(helper, self, r, job_ms, "running a job", why);
}

int weir_process_pool_run(weir_process_pool *handle, const void *in, size_t in_bytes, void *out,
                          size_t out_bytes, weir_job_result *ret_result)
{
    bool begun;

    return process_pool_run(handle, in, in_bytes, out, out_bytes, ret_result, &begun);
}
