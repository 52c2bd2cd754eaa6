/* log_keep.c - the keeper: it recovers, makes spares before they are needed, and lets segments go.
 * */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <weir/error.h>

#include "base/planted.h"
#include "rt/mem.h"
#include "store/log_live.h"

/* ---- Recovery ---- */

static int replay_record(void *arg, const struct log_record *record)
{
    struct log *log = arg;

    if (atom_load(&log->stop)) return WEIR_ECANCELED;
    return log->spec.replay(log->spec.arg, record);
}

/* What was found becomes what is there; nobody else is at it yet. */
static int take_over(struct log *log, struct log_recovered *found)
{
    const struct log_recovered_segment *last = &found->segments[found->segment_count - 1];

    for (size_t i = 0; i < found->segment_count; i++) {
        struct log_recovered_segment *one = &found->segments[i];
        struct log_segment *segment =
            log_segment_new(one->sequence, one->position, one->end, one->fd);
        int r = segment ? log_segment_add(log, segment) : -ENOMEM;

        if (r < 0) {
            mem_free(segment);
            return log_fail(&log->why, r, "store '%s': no memory", log->folder.path);
        }
        one->fd = -1;
        log->newest = segment;
    }
    log->meta = found->meta;
    log->seed = log_id_seed(&found->meta.id);
    log->capacity = found->meta.segment_bytes - LOG_HEADER_BYTES;
    log->end = log->written = log->synced = log->batch_end = last->end;
    log->segment_left = log->capacity - (last->end - last->position);
    log->mark_due = found->marked_end != last->end && last->end != LOG_POSITION_FIRST;
    log->number_next = found->number_next;
    for (size_t i = 0; i < found->spare_count; i++) {
        log->spares[i] = found->spares[i];
        found->spares[i].fd = -1;
    }
    log->spare_count = found->spare_count;
    log->records_replayed = found->record_count;
    log->torn_bytes = found->torn_bytes;
    if (log_frame_size(log->spec.record_bytes_max) + LOG_MARK_SIZE > log->capacity)
        return log_fail(&log->why, -EMSGSIZE,
                        "store '%s': record_bytes_max is %zu, more than fits into a segment",
                        log->folder.path, log->spec.record_bytes_max);
    return 0;
}

static int recover(struct log *log)
{
    const struct log_recover_spec spec = {
        .create = log->spec.create,
        .segment_bytes = log->spec.segment_bytes,
        .id = log->spec.id,
        .spares_max = LOG_SPARES_MAX,
        .record = replay_record,
        .arg = log,
    };
    struct log_recovered found;
    int r = log_folder_open(&log->folder, log->kernel, log->spec.path, log->spec.create, &log->why);

    if (r == 0) r = log_folder_lock(&log->folder, &log->why);
    if (r == 0) r = log_recover(&log->folder, &spec, &found, &log->why);
    if (r != 0) return r;
    r = log_folder_keep_meta(&log->folder, &log->why);
    if (r == 0) r = take_over(log, &found);
    log_recovered_free(&log->folder, &found);
    return r;
}

/* ---- Letting go ---- */

/* How many of the oldest segments are not needed. Under the lock. */
static size_t dead_count(const struct log *log)
{
    size_t count = 0;

    if (log->pins > 0) return 0;
    if (log->synced < log->trim_after && !PLANTED(LOG_RECYCLED_TOO_EARLY)) return 0;
    while (count + 1 < log->segment_count && log->segments[count]->end <= log->trim_to) count++;
    return count;
}

static bool meta_is_behind(const struct log *log)
{
    return log->segments[log->segment_count - 1]->sequence > log->meta.sequence_last;
}

/* META as it should be, on disk. The lock is held, and let go of meanwhile. */
static int update_meta(struct log *log, uint64_t sequence) LOCK_UNCHECKED;
static int update_meta(struct log *log, uint64_t sequence)
{
    struct log_told told = {0};
    struct log_why why;
    struct log_meta meta = log->meta;
    int r;

    meta.generation++;
    meta.sequence = sequence;
    meta.sequence_last = log->segments[log->segment_count - 1]->sequence;
    for (;;) {
        log_unlock(log);
        r = log_meta_write(&log->folder, &meta, &why);
        log_lock(log);
        /* Where writing over takes space, a full disk holds this up, and nothing is let go. */
        if ((r != -ENOSPC && r != -EDQUOT) || log->state != LOG_OPEN) break;
        log->meta_waits = true;
        log_told_all(&told, &log->held, 0); /* nobody waits for that */
        log_unlock(log);
        log_told_post(&told);
        log_lock(log);
        (void)log_bell_wait(log, &log->keep, bell_after_ms(&log->keep, LOG_RETRY_MS));
    }
    log->meta_waits = false;
    if (r < 0) {
        log_stop(log, r, &why, &told);
    } else {
        log->meta.generation = meta.generation;
        log->meta.sequence = meta.sequence;
        log->meta.sequence_last = meta.sequence_last;
    }
    log_unlock(log);
    log_told_post(&told);
    log_lock(log);
    return r;
}

static uint64_t room_left(const struct log *log)
{
    return log->segment_left + log->spare_count * log->capacity;
}

/* On a full disk: new work does not get all of what was let go, and the disk may have more. Told
 * with each spare, or who appends meanwhile would take those that are there already. */
static void count_what_was_let_go(struct log *log)
{
    if (log->room_error == 0) return;
    if (room_left(log) > log->room_when_full) log->room_when_full = room_left(log);
    log->spare_wanted = true;
}

/* The segment is in the table no more: its file becomes a spare, or goes. Someone who still reads
 * from it would see it written over: then it goes, too. */
static void recycle(struct log *log, struct log_segment *segment, bool wanted) LOCK_UNCHECKED;
static void recycle(struct log *log, struct log_segment *segment, bool wanted)
{
    char name[LOG_NAME_BYTES], spare_name[LOG_NAME_BYTES];
    uint64_t number = log->number_next++;
    int r = -EBUSY, fd;

    log_unlock(log);
    log_name(name, segment->sequence, LOG_SEGMENT);
    log_name(spare_name, number, LOG_SPARE);
    if (wanted) r = log_folder_rename(&log->folder, name, spare_name, NULL);
    /* What cannot be removed now is removed when the store is opened. */
    if (r < 0) (void)log_folder_unlink(&log->folder, name, NULL);
    fd = segment->fd;
    if (r == 0) segment->fd = -1; /* the spare's from now on; nobody else has a share */
    log_segment_give_back(log->kernel, segment);
    log_lock(log);
    if (r == 0) log->spares[log->spare_count++] = (struct log_spare){.number = number, .fd = fd};
    count_what_was_let_go(log);
}

static void let_go(struct log *log, size_t count) LOCK_UNCHECKED;
static void let_go(struct log *log, size_t count)
{
    struct log_told told = {0};
    size_t all = count;

    if (update_meta(log, log->segments[count]->sequence) < 0) return;
    for (; count > 0; count--) {
        struct log_segment *segment = log->segments[0];
        bool wanted = atom_load(&segment->shares) == 1 && log->spare_count < LOG_SPARES_MAX;

        sanitize_acquire(segment); /* who has read from it has given its share back */
        log->segment_count--;
        memmove(log->segments, log->segments + 1, log->segment_count * sizeof *log->segments);
        log->live_bytes -= segment->live_bytes;
        recycle(log, segment, wanted);
    }
    /* Who waits for a segment has one now. */
    log_told_all(&told, &log->starved, 0);
    log_compaction_got_on(log, all, &told);
    log_unlock(log);
    log_told_post(&told);
    log_lock(log);
}

/* ---- Spares ---- */

static bool spare_is_due(const struct log *log)
{
    bool next = log->spare_wanted || log->segment_left < log->capacity / 2;

    if (log->spare_count >= LOG_SPARES_RESERVE + (next ? 1 : 0)) return false;
    return log->room_error == 0 || log->spare_wanted;
}

static void make_spare(struct log *log) LOCK_UNCHECKED;
static void make_spare(struct log *log)
{
    struct log_told told = {0};
    struct log_why why;
    uint64_t number = log->number_next++;
    int r;

    log->spare_wanted = false;
    log_unlock(log);
    r = log_spare_make(&log->folder, number, log->meta.segment_bytes, &log->stop, &why);
    log_lock(log);
    if (r >= 0) {
        log->spares[log->spare_count++] = (struct log_spare){.number = number, .fd = r};
        log->room_error = 0;
    } else if (!atom_load(&log->stop)) {
        if (log->room_error == 0) log->room_when_full = room_left(log);
        log->room_error = r;
        log->room_why = why;
        atom_store(&log->room_sure, 0);
    }
    log_told_all(&told, &log->starved, 0);
    log_unlock(log);
    log_told_post(&told);
    log_lock(log);
}

/* ---- The thread ---- */

static void keep(struct log *log) LOCK_UNCHECKED;
static void keep(struct log *log)
{
    while (log->state == LOG_OPEN) {
        size_t dead = dead_count(log);

        if (dead > 0) {
            let_go(log, dead);
        } else if (spare_is_due(log) && log->spare_count < LOG_SPARES_MAX) {
            make_spare(log);
        } else if (meta_is_behind(log)) {
            (void)update_meta(log, log->meta.sequence);
        } else {
            (void)log_bell_wait(log, &log->keep, BELL_FOR_EVER);
        }
    }
}

void *log_keeper_main(void *arg)
{
    struct log *log = arg;
    struct log_told told = {0};
    int r = recover(log);

    if (r == 0 && atom_load(&log->stop)) r = WEIR_ECANCELED;
    if (r == 0)
        r = log->kernel->thread_start(log->kernel, &log->committer_thread, log_committer_main, log);
    log_lock(log);
    log->open_result = r;
    if (r == 0) {
        log->committer_runs = true;
        log->state = LOG_OPEN;
        atom_store(&log->stop, false); /* a cancel that came now came too late */
        log_told_all(&told, &log->ending, 0);
        log_unlock(log);
        log_told_post(&told);
        log_lock(log);
        keep(log);
    }
    log->keeper_runs = false;
    log_told_all(&told, &log->ending, 0);
    log_unlock(log);
    log_told_post(&told);
    return NULL;
}
