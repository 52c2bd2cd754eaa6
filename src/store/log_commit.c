/* log_commit.c - the committer: it writes what was appended, syncs it, and tells who waits.
 *
 * It writes as soon as somebody waits, and what comes in meanwhile is the next batch: so a batch is
 * as large as the disk is slow, and who is alone waits for nobody. But those who were told of the
 * last commit mostly come back within moments, one after the other. Begun before, with those who
 * came while it was under way, a batch would leave them to a second sync, and there would be two
 * crowds that wait for each other's syncs for ever. So it waits until as many have come as were
 * told, for at most a part of what the last sync took. Where they do not come back that is in vain:
 * then the next batches are begun at once, twice as many each time. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <weir/error.h>

#include "base/planted.h"
#include "store/log_live.h"

/* Nothing was acknowledged, and it can be tried again as it is. */
static bool is_passing(int error)
{
    return error == -ENOSPC || error == -EDQUOT || error == -ENOMEM;
}

static int fail_write(struct log *log, int error, const struct log_segment *segment,
                      const char *what, struct log_why *why)
{
    char name[LOG_NAME_BYTES];

    log_name(name, segment->sequence, LOG_SEGMENT);
    return log_fail(why, error, "store '%s': %s of %s: %s", log->folder.path, what, name,
                    weir_strerror(error));
}

enum {
    GATHER_PART = 2,
    GATHER_NS_MAX = 200 * 1000,
    GATHER_VAIN_PART = 2, /* fewer than that part of them have come: it was in vain */
    GATHER_SKIP_MAX = 63,
};

/* ---- Without the lock ---- */

static int make_segment(struct log *log, const struct log_buffer *batch, struct log_why *why)
{
    const struct log_segment *before = log->newest;
    struct log_header header = {
        .id = log->meta.id,
        .sequence = before->sequence + 1,
        .position = batch->position,
        .segment_bytes = log->meta.segment_bytes,
    };
    struct log_segment *segment =
        log_segment_new(header.sequence, header.position, header.position, -1);
    int r;

    if (!segment) return log_fail(why, -ENOMEM, "store '%s': no memory", log->folder.path);
    log_lock(log);
    r = log_segment_add(log, NULL); /* room for it, so that nothing fails later */
    log_unlock(log);
    if (r < 0) log_fail(why, r, "store '%s': no memory", log->folder.path);
    if (r == 0) r = log_segment_make(&log->folder, &batch->spare, &header, why);
    if (r < 0) {
        log_segment_give_back(log->kernel, segment); /* the descriptor stays the spare's */
        return r;
    }
    segment->fd = batch->spare.fd;
    log_lock(log);
    segment->live_bytes = log->next_live_bytes;
    log->next_position = 0;
    log->newest = segment;
    r = log_segment_add(log, segment);
    assert(r == 0);
    bell_ring(&log->keep); /* META is to know of it */
    log_unlock(log);
    return 0;
}

static int write_once(struct log *log, struct log_buffer *batch, struct log_why *why)
{
    struct log_segment *segment;
    int r;

    if (batch->begins_segment) {
        r = make_segment(log, batch, why);
        if (r < 0) return r;
        batch->begins_segment = false;
    }
    segment = log->newest;
    r = log_file_write(log->kernel, segment->fd, batch->data, batch->bytes,
                       LOG_HEADER_BYTES + (batch->position - segment->position));
    return r < 0 ? fail_write(log, r, segment, "write", why) : 0;
}

/* Write the batch, again and again while there is no space for it; the lock is not held. */
static int write_batch(struct log *log, struct log_buffer *batch, uint64_t synced,
                       struct log_why *why)
{
    bool goes_on = true, last = false;
    int r;

    log_mark_encode(log->seed, batch->position, synced, batch->data);
    do {
        struct log_told told = {0};

        r = write_once(log, batch, why);
        log_lock(log);
        log->no_space = r < 0;
        if (r < 0) atom_store(&log->room_sure, 0);
        if (r < 0) {
            log_told_all(&told, &log->starved, 0);
            log_told_all(&told, &log->held, 0); /* nothing is let go meanwhile */
            /* Who closes it has a try of their own: this one may have begun before. */
            goes_on = is_passing(r) && !last;
            last = log->state != LOG_OPEN;
            if (goes_on && !last)
                (void)log_bell_wait(log, &log->work, bell_after_ms(&log->work, LOG_RETRY_MS));
        }
        log_unlock(log);
        log_told_post(&told);
    } while (r < 0 && goes_on);
    return r;
}

/* ---- With the lock, which is let go of meanwhile ---- */

static void commit_failed(struct log *log, int error, const struct log_why *why,
                          struct log_told *told)
{
    log_stop(log, error, why, told);
}

static int step_sync(struct log *log) LOCK_UNCHECKED;
static int step_sync(struct log *log)
{
    struct log_told told = {0};
    struct list taken;
    struct log_why why;
    struct log_segment *segment = log->newest;
    uint64_t target = log->written;
    int64_t began_ns, took_ns;
    int r;

    assert(target == log->batch_end);
    list_init(&taken);
    if (PLANTED(LOG_ACKNOWLEDGED_UNSYNCED)) {
        log->synced = target;
        log_take_due(log, LOG_WAIT_SYNCED, &taken);
    }
    log_unlock(log);
    log_tell_taken(&taken);
    began_ns = log->kernel->thread_now_ns(log->kernel);
    r = log_file_sync(log->kernel, segment->fd);
    took_ns = log->kernel->thread_now_ns(log->kernel) - began_ns;
    if (log->spec.synced) log->spec.synced(log->spec.arg, took_ns);
    if (r < 0 && PLANTED(LOG_SYNC_ERROR_FORGOTTEN)) r = log_file_sync(log->kernel, segment->fd);
    if (r < 0) fail_write(log, r, segment, "sync", &why);
    log_lock(log);
    if (r < 0) {
        commit_failed(log, r, &why, &told);
    } else {
        log->synced = target;
        log->commits++;
        log->sync_ns = took_ns;
        log->told_count = 0;
        log->came_count = 0; /* who came meanwhile is here anyhow */
        log_take_due(log, LOG_WAIT_SYNCED, &taken);
        if (log->trim_to > 0) bell_ring(&log->keep);
    }
    log_unlock(log);
    log_told_post(&told);
    log_tell_taken(&taken);
    log_lock(log);
    return r;
}

static int step_write(struct log *log) LOCK_UNCHECKED;
static int step_write(struct log *log)
{
    struct log_told told = {0};
    struct list taken;
    struct log_why why;
    struct log_buffer *batch = log->filling;
    uint64_t synced = log->synced;
    bool begins_segment = batch->begins_segment;
    int r;

    log->writing = batch;
    log->filling = batch == &log->buffers[0] ? &log->buffers[1] : &log->buffers[0];
    log->write_wanted = false;
    log->write_later = false;
    log->told_count = 0;
    log->came_count = 0;
    if (log->gather_skip > 0) log->gather_skip--;
    list_init(&taken);
    log_take_batch(log);
    log_told_all(&told, &log->starved, 0);
    log_unlock(log);
    log_told_post(&told);
    r = write_batch(log, batch, synced, &why);
    log_lock(log);
    if (r < 0) {
        /* What was not written stays readable where it is: nobody fills these buffers again. */
        commit_failed(log, r, &why, &told);
    } else {
        log->written = batch->position + batch->bytes;
        log->newest->end = log->written;
        log->mark_due = batch->bytes > LOG_MARK_SIZE;
        batch->bytes = 0;
        log->writing = NULL;
        /* Who found a segment that was no file yet looks again. */
        if (begins_segment) log_told_all(&told, &log->starved, 0);
        log_take_due(log, LOG_WAIT_WRITTEN, &taken);
    }
    log_unlock(log);
    log_told_post(&told);
    log_tell_taken(&taken);
    log_lock(log);
    return r;
}

/* At the end: a mark that tells of everything. Damage to what is before it is then no torn tail. */
static bool put_last_mark(struct log *log)
{
    struct log_buffer *buffer = log->filling;

    if (!log->mark_due || log->segment_left < LOG_MARK_SIZE) return false;
    buffer->position = log->end;
    buffer->bytes = LOG_MARK_SIZE;
    log->end += LOG_MARK_SIZE;
    log->segment_left -= LOG_MARK_SIZE;
    return true;
}

/* A new segment is begun only when all before it is on disk. */
static bool sync_is_wanted(const struct log *log)
{
    if (log->written == log->synced) return false;
    return log->sync_wanted > log->synced || log->state == LOG_CLOSING ||
           (log->filling->begins_segment && log->write_wanted);
}

static bool write_is_wanted(const struct log *log)
{
    return log->filling->bytes > 0 &&
           (log->write_wanted || log->sync_wanted > log->written || log->state == LOG_CLOSING);
}

/* Whether some of those who were told of the last commit are still to come. */
static bool gather_is_due(const struct log *log)
{
    return log->state == LOG_OPEN && log->came_count < log->told_count && log->gather_skip == 0 &&
           log->filling->bytes < log->spec.buffer_bytes / 2;
}

/* Until they have come, or somebody rings for another reason; not twice for one batch. */
static void gather(struct log *log)
{
    int64_t ns = log->sync_ns / GATHER_PART;

    log->gathering = log->committer_waits = true;
    (void)log_bell_wait(log, &log->work,
                        bell_after_ns(&log->work, ns < GATHER_NS_MAX ? ns : GATHER_NS_MAX));
    log->gathering = log->committer_waits = false;
    if (log->came_count * GATHER_VAIN_PART >= log->told_count) {
        log->gather_vain = 0;
    } else {
        if (log->gather_vain < GATHER_SKIP_MAX) log->gather_vain = 2 * log->gather_vain + 1;
        log->gather_skip = log->gather_vain + 1; /* this batch counts as one */
    }
    log->told_count = 0;
}

/* Nobody waits for what there is: more may come, but it is written soon. */
static void wait_for_more(struct log *log)
{
    log->committer_waits = true;
    (void)log_bell_wait(log, &log->work, bell_after_ms(&log->work, LOG_LATER_MS));
    log->committer_waits = false;
    if (log->write_later) log->write_wanted = true;
}

void *log_committer_main(void *arg)
{
    struct log *log = arg;
    struct log_told told = {0};
    int r = 0;

    log_lock(log);
    while (r == 0 && log->error == 0) {
        if (sync_is_wanted(log)) {
            r = step_sync(log);
        } else if (write_is_wanted(log)) {
            if (gather_is_due(log))
                gather(log);
            else
                r = step_write(log);
        } else if (log->state == LOG_CLOSING) {
            if (!put_last_mark(log)) break;
        } else if (log->write_later) {
            wait_for_more(log);
        } else {
            log->committer_waits = true;
            (void)log_bell_wait(log, &log->work, BELL_FOR_EVER);
            log->committer_waits = false;
        }
    }
    log->committer_runs = false;
    log_told_all(&told, &log->ending, 0);
    log_unlock(log);
    log_told_post(&told);
    return NULL;
}
