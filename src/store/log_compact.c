/* log_compact.c - letting go of the old while writers go on.
 *
 * The oldest segment is read from its begin to its end, many records at once, and its owner appends
 * again what is still needed. After each step the step is waited for: so a commit holds at most one
 * step of copies, and the copying goes as fast as commits do. Who fills segments faster than that
 * is held back. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <weir/error.h>
#include <weir/task.h>

#include "base/planted.h"
#include "rt/mem.h"
#include "store/log_live.h"

enum {
    STEP_BYTES = 64 * 1024,       /* copied, then waited for; or as much as others have appended, */
    STEP_BYTES_MAX = 1024 * 1024, /* ... to here */
    CHUNK_BYTES = 256 * 1024,     /* read at once */
};

void log_live_locked(struct log *log, const struct log_live *live, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct log_segment *segment;

        if (log->next_position != 0 && live[i].position >= log->next_position) {
            log->next_live_bytes += live[i].bytes;
        } else if ((segment = log_segment_find(log, live[i].position))) {
            segment->live_bytes += live[i].bytes;
        } else {
            continue;
        }
        log->live_bytes += live[i].bytes;
    }
}

void log_live(struct log *log, const struct log_live *live, size_t count)
{
    lock_acquire(&log->lock);
    log_live_locked(log, live, count);
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

uint64_t log_oldest_end(struct log *log)
{
    uint64_t end = 0;

    lock_acquire(&log->lock);
    for (size_t i = 0; i + 1 < log->segment_count && end == 0; i++)
        if (log->segments[i]->end > log->trim_to) end = log->segments[i]->end;
    lock_release(&log->lock);
    return end;
}

static uint64_t segment_bytes(const struct log *log)
{
    return log->capacity + LOG_HEADER_BYTES;
}

/* What its segments take, with the one that is no file yet. */
static uint64_t use_of(const struct log *log)
{
    return (log->segment_count + (log->next_position != 0 ? 1 : 0)) * segment_bytes(log);
}

/* More than that makes compaction due. */
static uint64_t bound_of(const struct log *log)
{
    uint64_t live = log->live_bytes > 0 ? (uint64_t)log->live_bytes : 0;

    return 2 * live + segment_bytes(log);
}

size_t log_leaving_count(const struct log *log)
{
    size_t count = 0;

    while (count + 1 < log->segment_count && log->segments[count]->end <= log->trim_to) count++;
    return count;
}

/* What they take without those: to move more on their account would be in vain. */
static uint64_t use_later_of(const struct log *log)
{
    return use_of(log) - log_leaving_count(log) * segment_bytes(log);
}

bool log_compaction_is_due(struct log *log)
{
    bool due;

    lock_acquire(&log->lock);
    due = use_later_of(log) > bound_of(log);
    lock_release(&log->lock);
    return due;
}

/* ---- Holding others back ---- */

/* As much as is needed now allows; or more, if more was needed a moment ago: compaction has not had
 * the time yet. */
static uint64_t use_max_of(struct log *log)
{
    uint64_t max = bound_of(log) + (uint64_t)log->spec.held_segments * segment_bytes(log);

    if (log->use_max < max) log->use_max = max;
    return log->use_max;
}

/* Whether it gets better by waiting. */
static bool is_getting_on(const struct log *log)
{
    if (log->pins > 0 || log->meta_waits || log->no_space) return false;
    if (log->holding != LOG_HOLDS_WHILE_LET_GO) return log->holding == LOG_HOLDS_WHILE_COMPACTED;
    /* Who compacts may not have come to it yet: what others fill until then is too much as well. */
    return log_leaving_count(log) > 0 || use_later_of(log) > bound_of(log);
}

bool log_is_held_back(struct log *log, enum log_use use, uint64_t size)
{
    uint64_t max = use_max_of(log);
    uint64_t after = use_of(log);

    /* What is begun is filled; a record that begins the next one makes it more. */
    if (size + LOG_MARK_SIZE > log->segment_left) after += segment_bytes(log);
    /* Not who carries on or ends work: a lease that is not renewed meanwhile is lost. */
    if (after <= max || use != LOG_FOR_NEW || log->compactor == task_self()) return false;
    return is_getting_on(log);
}

struct list *log_room_list(struct log *log, enum log_use use, uint64_t size)
{
    if (!log_is_held_back(log, use, size)) return &log->starved;
    log->held_back++;
    return &log->held;
}

void log_compaction_got_on(struct log *log, size_t count, struct log_told *told)
{
    uint64_t less = count * segment_bytes(log) / 2;

    log->use_max -= less < log->use_max ? less : log->use_max;
    log_told_all(told, &log->held, 0);
}

void log_hold_back(struct log *log, enum log_holding holding)
{
    struct log_told told = {0};
    uint64_t use;

    lock_acquire(&log->lock);
    use = use_later_of(log);
    if (log->holding == LOG_HOLDS_NOBODY && log->use_max < use) log->use_max = use;
    if (holding != LOG_HOLDS_WHILE_COMPACTED && use <= bound_of(log))
        log->use_max = 0; /* no debt */
    log->holding = holding;
    log->compactor = holding == LOG_HOLDS_NOBODY ? NULL : task_self();
    atom_store(&log->room_sure, 0);
    if (!is_getting_on(log)) log_told_all(&told, &log->held, 0);
    lock_release(&log->lock);
    log_told_post(&told);
}

/* ---- Moving ---- */

struct moving {
    struct log *log;
    const struct log_mover *mover;
    uint64_t position;
    uint64_t end; /* of the segment */
    /* What was read of the segment at once. Its records are taken from there. */
    unsigned char *chunk;
    size_t chunk_room, chunk_bytes;
    uint64_t chunk_position;
    /* One that no chunk holds. */
    unsigned char *large;
    size_t large_room;
    uint64_t copied, appended; /* the log's compacted_bytes, and its end, after the last step */
};

/* Somebody has trimmed what was being moved. What is in a chunk by then is of no use any more: its
 * owner may have forgotten what it was. */
static bool is_given_up(const struct moving *moving)
{
    struct log *log = moving->log;
    bool given_up;

    lock_acquire(&log->lock);
    given_up = log->trim_to >= moving->end;
    lock_release(&log->lock);
    return given_up;
}

/* The frame at the moving position, if the chunk has it as a whole: 0; 1: it is no record; or
 * -ENOENT. */
static int take_from_chunk(const struct moving *moving, struct log_record *ret_record)
{
    uint64_t at = moving->position - moving->chunk_position;
    const unsigned char *head;
    struct log_frame frame;
    uint64_t size;

    if (at + LOG_FRAME_BYTES > moving->chunk_bytes) return -ENOENT;
    head = moving->chunk + at;
    if (!log_frame_decode(moving->log->seed, moving->position, head, &frame)) return -ENOENT;
    size = log_frame_size(frame.bytes);
    if (size > moving->end - moving->position) return -ENOENT;
    *ret_record = (struct log_record){.position = moving->position,
                                      .end = moving->position + size,
                                      .tag = frame.tag,
                                      .data = head + LOG_FRAME_BYTES,
                                      .bytes = frame.bytes};
    if (frame.kind != LOG_KIND_RECORD) return 1; /* a mark, or a gap */
    if (at + size > moving->chunk_bytes) return -ENOENT;
    if (log_frame_data_crc(moving->log->seed, moving->position, ret_record->data, frame.bytes) !=
        frame.data_crc)
        return -ENOENT;
    return 0;
}

/* Read on from the moving position. Others get their turn first: what is in memory is read without
 * a pause, and a segment is long. */
static int read_chunk(struct moving *moving)
{
    int r = weir_yield();

    moving->chunk_bytes = 0;
    moving->chunk_position = moving->position;
    if (r == 0)
        r = log_read_part(moving->log, moving->position, moving->chunk, moving->chunk_room,
                          &moving->chunk_bytes);
    return r;
}

/* One that is in no chunk: too large, or damaged, which is told by who reads it alone. */
static int read_alone(struct moving *moving, struct log_record *ret_record)
{
    int r;

    /* Where there is no record, it is told what ends there. */
    ret_record->end = 0;
    r = log_read(moving->log, moving->position, moving->large, moving->large_room, ret_record);
    if (r == -EMSGSIZE) {
        unsigned char *more = mem_alloc(ret_record->bytes);

        if (!more) return -ENOMEM;
        mem_free(moving->large);
        moving->large = more;
        moving->large_room = ret_record->bytes;
        r = log_read(moving->log, moving->position, moving->large, moving->large_room, ret_record);
    }
    return r == -ENOENT && ret_record->end > moving->position ? 1 : r;
}

/* The record at the moving position: 0; or 1: there is nothing to move. */
static int read_next(struct moving *moving, struct log_record *ret_record)
{
    int r = take_from_chunk(moving, ret_record);

    if (r == -ENOENT) {
        r = read_chunk(moving);
        if (r == 0) r = take_from_chunk(moving, ret_record);
        if (r == -ENOENT) r = read_alone(moving, ret_record);
    }
    if (!is_given_up(moving)) return r == -ENOENT ? -EBADMSG : r;
    ret_record->end = moving->end;
    return r < 0 && r != -ENOENT ? r : 1;
}

/* So much was copied since the last step that it is time to wait for it: as much as others have
 * appended meanwhile. So a commit is at most twice as large, and they do not outrun it, since of a
 * segment that is moved at most a half is needed, mostly. */
static int pace(struct moving *moving, bool always)
{
    struct log *log = moving->log;
    uint64_t end, copied, others;
    bool is_waited_for;

    lock_acquire(&log->lock);
    end = log->end;
    copied = log->compacted_bytes - moving->copied;
    is_waited_for = !list_empty(&log->held); /* then they append nothing */
    lock_release(&log->lock);
    others = end - moving->appended - copied;
    if (others < STEP_BYTES) others = STEP_BYTES;
    if (others > STEP_BYTES_MAX || is_waited_for) others = STEP_BYTES_MAX;
    if (!always && copied < others) return 0;
    moving->copied += copied;
    moving->appended = end;
    return log_wait(log, end, LOG_SYNCED);
}

static int move_all(struct moving *moving)
{
    int r = 0;

    while (r == 0 && moving->position < moving->end) {
        struct log_record record = {0};

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
        moving.position = log->segments[i]->position;
        moving.end = log->segments[i]->end;
        needed = log->segments[i]->live_bytes > 0;
    }
    moving.copied = log->compacted_bytes;
    moving.appended = log->end;
    lock_release(&log->lock);
    if (moving.end == 0) return 0;
    if (needed) {
        uint64_t bytes = moving.end - moving.position;

        moving.chunk_room = bytes < CHUNK_BYTES ? (size_t)bytes : CHUNK_BYTES;
        moving.chunk = mem_alloc(moving.chunk_room);
        moving.chunk_position = moving.position;
        r = moving.chunk ? move_all(&moving) : -ENOMEM;
        mem_free(moving.chunk);
        mem_free(moving.large);
    }
    if (r < 0) return r;
    log_trim(log, moving.end);
    return 1;
}
