/* outbox.c - one look at an outbox: peek, enqueue, mark done. */
#include "store/outbox.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/planted.h"

/* ---- Calls of the program's functions ---- */

static int call_peek(void *data)
{
    struct outbox_call *call = data;
    call->result = call->peek(call->keep_arg, (weir_outbox_row *)(void *)call->rows, call->count);
    return 0;
}

static int call_done(void *data)
{
    struct outbox_call *call = data;
    const void *rows = call->rows;
    call->result = call->done(call->keep_arg, rows, call->count);
    return 0;
}

static int call_on_refused(void *data)
{
    struct outbox_refusal *refusal = data;
    const void *row = refusal->row;
    refusal->gives_up = refusal->on_refused(refusal->keep_arg, row, refusal->error, refusal->why);
    return 0;
}

/* On the pool, or here. An error is the pool's: the function has not run, or not to its end. */
static int call_out(struct outbox *outbox, weir_pool_fn fn, void *data, size_t bytes)
{
    const weir_outbox_spec *spec = &outbox->spec;
    int r;

    if (!spec->pool) return fn(data);
    r = weir_pool_run(spec->pool, spec->pool_class, fn, data, bytes);
    if (r == WEIR_ECLOSED) outbox->is_over = true; /* its handle names nothing any more */
    return r;
}

static void *row_at(struct outbox *outbox, size_t index)
{
    return outbox->call->rows + index * outbox->row_bytes;
}

/* How many rows there are, or an error. */
static int peek(struct outbox *outbox)
{
    struct outbox_call *call = outbox->call;
    size_t max = outbox->spec.batch_max;
    int r;

    memset(call->rows, 0, max * outbox->row_bytes);
    call->count = max;
    r = call_out(outbox, call_peek, call, outbox->call_bytes);
    if (r < 0) return r;
    if (call->result > 0 && (size_t)call->result > max) {
        return refuse("outbox '%s': peek says %d rows, more than the %zu it was asked for",
                      outbox->object.name, call->result, max);
    }
    return call->result;
}

static int mark_done(struct outbox *outbox, size_t count)
{
    struct outbox_call *call = outbox->call;
    int r;

    call->count = count;
    r = call_out(outbox, call_done, call, sizeof *call + count * outbox->row_bytes);
    return r < 0 ? r : call->result < 0 ? call->result : 0;
}

/* ---- What an error means ---- */

/* It is this row's: it will be refused each time. */
static bool is_refusal(int error)
{
    return error == -EINVAL || error == -EMSGSIZE || error == -ENOENT || error == WEIR_EREFUSED;
}

/* Its queue takes nothing now; others may. */
static bool is_queue_full(int error)
{
    return error == WEIR_EOVERLOAD || error == WEIR_ESTOPPING;
}

static bool is_full(int error)
{
    return is_queue_full(error) || error == -ENOSPC || error == -ENOBUFS;
}

/* ---- Enqueueing ---- */

/* The job of a row, with its key: 0, or refused with a sentence. */
static int prepare(struct outbox *outbox, size_t index)
{
    const weir_outbox_row *row = row_at(outbox, index);
    weir_job_spec *job = &outbox->jobs[index];
    char *id = outbox->ids[index];

    spec_copy(job, sizeof *job, &row->job, outbox->row_bytes - offsetof(weir_outbox_row, job));
    if (row->key[0] == '\0') return refuse_as(-EINVAL, "row: key is empty");
    if (!memchr(row->key, '\0', sizeof row->key)) {
        return refuse_as(-EINVAL, "row: key has more than %d bytes", WEIR_OUTBOX_KEY_BYTES_MAX);
    }
    if (job->idempotency_key || job->idempotency_ms) {
        return refuse_as(-EINVAL, "row '%s': job.idempotency_key is set, the relay sets its own",
                         row->key);
    }
    (void)snprintf(id, OUTBOX_ID_BYTES, "%s/%s", outbox->object.name, row->key);
    job->idempotency_key = id;
    job->idempotency_ms = outbox->spec.window_ms;
    job->durability = WEIR_SYNCED;
    if (PLANTED(OUTBOX_KEY_FORGOTTEN)) job->idempotency_key = NULL, job->idempotency_ms = 0;
    if (PLANTED(OUTBOX_DONE_TOO_EARLY)) job->durability = WEIR_MEMORY;
    return 0;
}

/* These rows, all or none of them. */
static int enqueue(struct outbox *outbox, size_t first, size_t count)
{
    int r = WEIR_ECANCELED;

    /* A program may have closed it before its relay. */
    if (!handle_object(outbox->spec.store, HANDLE_STORE)) return WEIR_ECLOSED;
    WEIR_DEADLINE(WEIR_OUTBOX_ENQUEUE_MS_MAX) {
        r = weir_job_enqueue_all(outbox->spec.store, outbox->jobs + first, count,
                                 outbox->enqueued + first);
    }
    if (r < 0) return r;
    for (size_t i = first; i < first + count; i++) {
        outbox->fates[i] = outbox->enqueued[i].duplicate ? ROW_DUPLICATE : ROW_RELAYED;
    }
    return 0;
}

/* The row is refused: the program says what becomes of it. */
static int refused(struct outbox *outbox, size_t index, int error)
{
    struct outbox_refusal *refusal = outbox->refusal;
    const weir_outbox_row *row = row_at(outbox, index);
    const char *why = weir_why();
    enum weir_log_level level;
    int r;

    refusal->error = error;
    refusal->gives_up = false;
    (void)snprintf(refusal->why, sizeof refusal->why, "%s", *why ? why : weir_strerror(error));
    memcpy(refusal->row, row, outbox->row_bytes);
    r = call_out(outbox, call_on_refused, refusal, sizeof *refusal + outbox->row_bytes);
    if (r < 0) return r;
    outbox_lock(outbox);
    outbox->figures.refused++;
    outbox_unlock(outbox);
    if (refusal->gives_up) outbox->fates[index] = ROW_GIVEN_UP;
    level = refusal->gives_up ? WEIR_LOG_WARNING : WEIR_LOG_INFO; /* it comes again */
    log_write(worker_self()->runtime, level, task_self(),
              "outbox '%s': row '%.*s' is refused%s: %s", outbox->object.name,
              WEIR_OUTBOX_KEY_BYTES_MAX, row->key, refusal->gives_up ? " and given up" : "",
              refusal->why);
    return 0;
}

/* Whether an earlier row of the same queue found no room: this one may not pass it. */
static bool is_behind(const struct outbox *outbox, size_t index)
{
    const char *queue = outbox->jobs[index].queue;

    if (!queue) return false; /* the store will say so */
    for (size_t i = 0; i < index; i++) {
        if (outbox->fates[i] == ROW_FULL && strcmp(outbox->jobs[i].queue, queue) == 0) return true;
    }
    return false;
}

/* One by one, so that what is wrong with one row keeps no other. */
static int enqueue_singly(struct outbox *outbox, size_t count)
{
    int full = 0;

    for (size_t i = 0; i < count; i++) {
        int r = prepare(outbox, i);
        if (r == 0 && is_behind(outbox, i)) {
            outbox->fates[i] = ROW_FULL;
            continue;
        }
        if (r == 0) r = enqueue(outbox, i, 1);
        if (r < 0 && is_queue_full(r)) {
            outbox->fates[i] = ROW_FULL;
            full = r;
        } else if (r < 0) {
            if (is_refusal(r)) r = refused(outbox, i, r);
            if (r < 0) return r;
        }
    }
    return full;
}

static int enqueue_batch(struct outbox *outbox, size_t count)
{
    int r = 0;

    for (size_t i = 0; i < count; i++) outbox->fates[i] = ROW_LEFT;
    for (size_t i = 0; i < count && r == 0; i++) r = prepare(outbox, i);
    if (r == 0) r = enqueue(outbox, 0, count);
    /* A batch that finds no room may have more rows than its queue will ever take at once. */
    if (r < 0 && (is_refusal(r) || is_queue_full(r))) r = enqueue_singly(outbox, count);
    return r;
}

/* ---- A look ---- */

/* Count, and move the rows that are to be marked to the front: how many. */
static size_t gather(struct outbox *outbox, size_t count, bool *ret_is_stale)
{
    size_t settled = 0, relayed = 0, duplicates = 0;

    for (size_t i = 0; i < count; i++) {
        enum row_fate fate = outbox->fates[i];
        if (PLANTED(OUTBOX_FULL_IS_DONE) && fate == ROW_FULL) fate = ROW_RELAYED;
        if (fate == ROW_LEFT || fate == ROW_FULL) continue;
        relayed += fate == ROW_RELAYED;
        duplicates += fate == ROW_DUPLICATE;
        if (settled < i) memcpy(row_at(outbox, settled), row_at(outbox, i), outbox->row_bytes);
        settled++;
    }
    outbox_lock(outbox);
    outbox->figures.relayed += relayed;
    outbox->figures.duplicates += duplicates;
    outbox_unlock(outbox);
    *ret_is_stale = duplicates == settled;
    return settled;
}

/* It went wrong: count it, and say so. */
static void failed(struct outbox *outbox, const char *what, int error)
{
    bool full = is_full(error);

    outbox_lock(outbox);
    if (full)
        outbox->figures.full++;
    else
        outbox->figures.failures++;
    outbox->figures.last_error = error;
    outbox_unlock(outbox);
    log_write(worker_self()->runtime, full ? WEIR_LOG_INFO : WEIR_LOG_WARNING, task_self(),
              "outbox '%s': %s: %s (%s); rows stay and are tried again", outbox->object.name, what,
              weir_strerror(error), weir_error_name(error));
}

/* After a failure of the store: whether it will not come back. */
static bool is_store_over(struct outbox *outbox, int error)
{
    weir_store_figures figures;

    if (error == WEIR_ECLOSED || !handle_object(outbox->spec.store, HANDLE_STORE)) return true;
    weir_store_figures_of(outbox->spec.store, &figures);
    return figures.error != 0;
}

/* An interruption is no failure. */
static bool is_interrupted(void)
{
    return task_interruption(task_self(), false) < 0;
}

/* Jobs for the rows that are in the call. */
static int relay(struct outbox *outbox, size_t count)
{
    int r = enqueue_batch(outbox, count);

    if (r == 0 || is_interrupted()) return r;
    failed(outbox, is_full(r) ? "no room for its jobs" : "enqueueing has failed", r);
    if (!outbox->is_over) outbox->is_over = is_store_over(outbox, r);
    return r;
}

int outbox_look(struct outbox *outbox)
{
    size_t settled;
    bool is_stale;
    int r, error;

    r = peek(outbox);
    if (r < 0 && !is_interrupted()) failed(outbox, "peek has failed", r);
    if (r <= 0) return r < 0 ? r : LOOK_IS_IDLE;
    error = relay(outbox, (size_t)r);
    settled = gather(outbox, (size_t)r, &is_stale);
    if (settled == 0) return error < 0 ? error : LOOK_IS_IDLE;
    r = mark_done(outbox, settled);
    if (r < 0 && !is_interrupted()) failed(outbox, "done has failed", r);
    if (error < 0 || r < 0) return error < 0 ? error : r;
    /* What was a job before is marked late once, after a crash. If that goes on, `done` forgets
     * nothing: no reason to look without a pause. */
    outbox->stale_looks = is_stale ? outbox->stale_looks + 1 : 0;
    return outbox->stale_looks < 2 ? LOOK_AGAIN : LOOK_LATER;
}
