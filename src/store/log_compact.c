/* log_compact.c - letting go of the old while writers go on.
 *
 * The oldest segment is read from its begin to its end, and its owner appends again what is still
 * needed. After each step the step is waited for: so a commit holds at most one step of copies, and
 * the copying goes as fast as commits do. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <weir/error.h>

#include "base/planted.h"
#include "rt/mem.h"
#include "store/log_live.h"

enum { STEP_BYTES = 64 * 1024 };

void log_live(struct log *log, uint64_t position, int64_t bytes)
{
    struct log_segment *segment;

    lock_acquire(&log->lock);
    if (log->next_position != 0 && position >= log->next_position) {
        log->next_live_bytes += bytes;
        log->live_bytes += bytes;
    } else if ((segment = log_segment_find(log, position))) {
        segment->live_bytes += bytes;
        log->live_bytes += bytes;
    }
    lock_release(&log->lock);
}

void log_trim(struct log *log, uint64_t position)
{
    lock_acquire(&log->lock);
    if (position > log->trim_to) {
        log->trim_to = position;
        log->trim_after = log->end;
        if (log->end > log->sync_wanted) log->sync_wanted = log->end;
        log_wake_committer(log);
        bell_ring(&log->keep);
    }
    lock_release(&log->lock);
}

bool log_compaction_is_due(struct log *log)
{
    uint64_t segment_bytes, used, live;

    lock_acquire(&log->lock);
    segment_bytes = log->capacity + LOG_HEADER_BYTES;
    used = log->segment_count * segment_bytes;
    live = log->live_bytes > 0 ? (uint64_t)log->live_bytes : 0;
    lock_release(&log->lock);
    return used > 2 * live + segment_bytes;
}

/* ---- Moving ---- */

struct moving {
    struct log *log;
    const struct log_mover *mover;
    unsigned char *data;
    size_t data_room;
    uint64_t position;
    uint64_t begin;    /* of the segment, */
    uint64_t end;      /* ... and where it ends */
    uint64_t appended; /* the log's end when the last step was waited for */
};

/* Somebody has trimmed what was being moved. */
static bool is_given_up(const struct moving *moving)
{
    struct log *log = moving->log;
    bool given_up;

    lock_acquire(&log->lock);
    given_up = log->trim_to >= moving->end;
    lock_release(&log->lock);
    return given_up;
}

/* The record at the moving position: 0; or 1: there is nothing to move. */
static int read_next(struct moving *moving, struct log_record *ret_record)
{
    int r;

    /* Where there is no record, it is told what ends there: a mark, or a gap. */
    ret_record->end = 0;
    r = log_read(moving->log, moving->position, moving->data, moving->data_room, ret_record);

    if (r == -EMSGSIZE) {
        unsigned char *more = mem_alloc(ret_record->bytes);

        if (!more) return -ENOMEM;
        mem_free(moving->data);
        moving->data = more;
        moving->data_room = ret_record->bytes;
        r = log_read(moving->log, moving->position, moving->data, moving->data_room, ret_record);
    }
    if (r != -ENOENT) return r;
    if (ret_record->end > moving->position) return 1;
    ret_record->end = moving->end;
    return is_given_up(moving) ? 1 : -EBADMSG;
}

/* So much was appended since the last step that it is time to wait for it. */
static int pace(struct moving *moving, bool always)
{
    struct log *log = moving->log;
    uint64_t end;

    lock_acquire(&log->lock);
    end = log->end;
    lock_release(&log->lock);
    if (!always && end - moving->appended < STEP_BYTES) return 0;
    moving->appended = end;
    return log_wait(log, end, LOG_SYNCED);
}

static int move_all(struct moving *moving)
{
    int r = 0;

    while (r == 0 && moving->position < moving->end) {
        struct log_record record;

        r = read_next(moving, &record);
        if (r == 0) r = moving->mover->move(moving->mover->arg, &record);
        if (r < 0) return r;
        moving->position = record.end;
        r = pace(moving, false);
    }
    if (PLANTED(LOG_RECYCLED_TOO_EARLY)) return r < 0 ? r : 0;
    return r < 0 ? r : pace(moving, true);
}

int log_compact(struct log *log, const struct log_mover *mover)
{
    struct moving moving = {.log = log, .mover = mover};
    bool needed = true;
    int r = 0;

    lock_acquire(&log->lock);
    /* The oldest that was not given up before. */
    for (size_t i = 0; i + 1 < log->segment_count && moving.end == 0; i++) {
        if (log->segments[i]->end <= log->trim_to) continue;
        moving.begin = moving.position = log->segments[i]->position;
        moving.end = log->segments[i]->end;
        needed = log->segments[i]->live_bytes > 0;
    }
    moving.appended = log->end;
    lock_release(&log->lock);
    if (moving.end == 0) return 0;
    if (needed) {
        moving.data = mem_alloc(STEP_BYTES);
        moving.data_room = STEP_BYTES;
        r = moving.data ? move_all(&moving) : -ENOMEM;
        mem_free(moving.data);
    }
    if (r < 0) return r;
    lock_acquire(&log->lock);
    log->compacted_bytes += moving.end - moving.begin;
    lock_release(&log->lock);
    log_trim(log, moving.end);
    return 1;
}
