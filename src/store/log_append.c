/* log_append.c - records into the buffer that is filled. No allocation, one copy. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <weir/error.h>

#include "store/log_live.h"

/* Room that is left for others, once the disk is known to be full. */
static uint64_t reserve_of(const struct log *log, enum log_use use)
{
    uint64_t whole = LOG_SPARES_RESERVE * log->capacity;
    uint64_t existing = log->capacity;

    if (whole > log->room_when_full) whole = log->room_when_full;
    if (existing > log->room_when_full / 2) existing = log->room_when_full / 2;
    return use == LOG_FOR_NEW ? whole : use == LOG_FOR_EXISTING ? existing : 0;
}

/* Later, when the keeper has made a spare; or why it cannot. It tries now in any case: there may be
 * space again. */
static int no_room(struct log *log)
{
    log->spare_wanted = true;
    bell_ring(&log->keep);
    return log->room_error < 0 ? log->room_error : WEIR_EOVERLOAD;
}

/* Whether a record would have to take from what is kept for others, while nobody knows yet whether
 * the disk has more: then it waits until the keeper knows. Otherwise appends that are faster than
 * the keeper would use the reserve up before the disk is known to be full. */
static bool is_too_early(const struct log *log, enum log_use use, bool begins_segment)
{
    size_t kept = use == LOG_FOR_NEW ? LOG_SPARES_RESERVE : use == LOG_FOR_EXISTING ? 1 : 0;

    if (log->room_error < 0) return false; /* it is known, and the reserve is counted in bytes */
    if (begins_segment) return log->spare_count <= kept;
    /* Without its reserve (a store that is new) half a segment is one. */
    return use == LOG_FOR_NEW && log->spare_count < kept && log->segment_left < log->capacity / 2;
}

/* 0, WEIR_EOVERLOAD (later), or why there is no room. */
static int admit(struct log *log, enum log_use use, uint64_t size)
{
    uint64_t need = log->filling->bytes == 0 ? size + LOG_MARK_SIZE : size;
    uint64_t room = log->spare_count * log->capacity;

    /* What it does not fit into is lost when the next segment is begun. */
    if (size + LOG_MARK_SIZE <= log->segment_left) room += log->segment_left;
    if (log->state != LOG_OPEN) return log->error < 0 ? log->error : WEIR_ECLOSED;
    if (log->no_space && use == LOG_FOR_NEW) return -ENOSPC;
    if (log->room_error < 0 && room < need + reserve_of(log, use)) return no_room(log);
    if (log_is_held_back(log, use, size)) return WEIR_EOVERLOAD;
    return is_too_early(log, use, false) ? no_room(log) : 0;
}

/* So much more of the segment is used. The next one should be there before it is needed: once half
 * of this one is used the keeper sees to it, also if it could not make a spare some time ago. */
static void use_up(struct log *log, uint64_t bytes)
{
    uint64_t half = log->capacity / 2;
    bool was_half_used = log->segment_left < half;

    log->segment_left -= bytes;
    if (was_half_used || log->segment_left >= half) return;
    log->spare_wanted = true;
    bell_ring(&log->keep);
}

/* The filling buffer is empty, and its first record does not fit into the segment: it begins the
 * next one. */
static int begin_segment(struct log *log, enum log_use use)
{
    if (log->next_position != 0) return WEIR_EOVERLOAD; /* the last one is not a file yet */
    if (log->spare_count == 0 || is_too_early(log, use, true)) return no_room(log);
    log->filling->begins_segment = true;
    log->filling->spare = log->spares[--log->spare_count];
    log->segment_left = log->capacity;
    log->next_position = log->end;
    log->next_live_bytes = 0;
    /* One spare less. Who fills segments needs the next one soon: it is made meanwhile. */
    log->spare_wanted = true;
    bell_ring(&log->keep);
    return 0;
}

/* Make the filling buffer take `size` bytes more, or say why not. */
static int make_way(struct log *log, enum log_use use, uint64_t size)
{
    struct log_buffer *buffer = log->filling;
    uint64_t need = buffer->bytes == 0 ? size + LOG_MARK_SIZE : size;
    int r = 0;

    if (buffer->bytes + need > log->spec.buffer_bytes || need > log->segment_left) {
        if (buffer->bytes > 0) {
            log->write_wanted = true; /* no more fits: it is written although nobody waits */
            log_wake_committer(log);
            return WEIR_EOVERLOAD;
        }
        r = begin_segment(log, use);
    }
    if (r < 0 || buffer->bytes > 0) return r;
    buffer->position = log->end;
    buffer->bytes = LOG_MARK_SIZE; /* filled in when it is written */
    log->end += LOG_MARK_SIZE;
    use_up(log, LOG_MARK_SIZE);
    return 0;
}

/* Who takes a job reads what was appended a moment ago: that costs no call of the system. */
static void keep_recent(struct log *log, const unsigned char *frame, size_t size)
{
    uint64_t room = log->spec.recent_bytes;
    uint64_t at = room > 0 ? log->end & (room - 1) : 0;

    if (size > room - at) return;
    sanitize_unseen_begin();
    memcpy(log->recent + at, frame, size);
    sanitize_unseen_end();
}

static void put(struct log *log, const struct iovec *parts, int count, size_t bytes, uint16_t tag)
{
    struct log_buffer *buffer = log->filling;
    unsigned char *head = buffer->data + buffer->bytes;
    unsigned char *data = head + LOG_FRAME_BYTES, *at = data;
    size_t size = (size_t)log_frame_size(bytes);
    struct log_frame frame = {.bytes = (uint32_t)bytes, .kind = LOG_KIND_RECORD, .tag = tag};

    sanitize_unseen_begin(); /* the edges are those of the calls, not of the copies */
    for (int i = 0; i < count; i++) {
        if (parts[i].iov_len == 0) continue;
        memcpy(at, parts[i].iov_base, parts[i].iov_len);
        at += parts[i].iov_len;
    }
    memset(at, 0, (size_t)(head + size - at));
    sanitize_unseen_end();
    frame.data_crc = log_frame_data_crc(log->seed, log->end, data, bytes);
    log_frame_encode(log->seed, log->end, &frame, head);
    keep_recent(log, head, size);
    buffer->bytes += size;
    log->end += size;
    use_up(log, size);
}

/* What is left stays at least until the next append: a buffer that is taken to be written leaves an
 * empty one. Nothing is sure if anything is short. */
static void note_room(struct log *log)
{
    const struct log_buffer *buffer = log->filling;
    uint64_t room = log->spec.buffer_bytes - buffer->bytes;

    if (room > log->segment_left) room = log->segment_left;
    if (log->state != LOG_OPEN || log->no_space || log->room_error < 0 ||
        log->spare_count < LOG_SPARES_RESERVE || log->holding == LOG_HOLDS_WHILE_COMPACTED ||
        room < LOG_MARK_SIZE)
        room = LOG_MARK_SIZE;
    atom_store(&log->room_sure, room - LOG_MARK_SIZE);
}

/* Room for a record and, since the buffer may be taken meanwhile, for a mark before it. */
static int keep_room(struct log *log, enum log_use use, uint64_t size)
{
    const struct log_buffer *buffer = log->filling;
    uint64_t need = size + LOG_MARK_SIZE;
    int r = admit(log, use, size);

    if (r < 0) return r;
    if (buffer->bytes + need <= log->spec.buffer_bytes && need <= log->segment_left) return 0;
    if (buffer->bytes == 0) return begin_segment(log, use);
    log->write_wanted = true;
    log_wake_committer(log);
    return WEIR_EOVERLOAD;
}

static int append_locked(struct log *log, const struct iovec *parts, int count, size_t bytes,
                         const struct log_options *options, struct log_place *ret_place)
{
    uint64_t size = log_frame_size(bytes);
    int r = options->room_is_kept ? 0 : admit(log, options->use, size);

    if (log->state != LOG_OPEN) return log->error < 0 ? log->error : WEIR_ECLOSED;

    if (r == 0) r = make_way(log, options->use, size);
    if (r < 0) return r;
    ret_place->position = log->end;
    put(log, parts, count, bytes, options->tag);
    ret_place->end = log->end;
    note_room(log);
    if (options->use == LOG_FOR_COMPACTION) log->compacted_bytes += size;
    if (log->filling->bytes >= log->spec.buffer_bytes / 2) {
        log->write_wanted = true;
        log_wake_committer(log);
    }
    return 0;
}

static int check(const struct log *log, const struct iovec *parts, int count,
                 const struct log_options *options, size_t *ret_bytes)
{
    size_t bytes = 0;

    if (options->use == LOG_USE_UNSET) return refuse("log_append: use is not set");
    for (int i = 0; i < count; i++)
        if (__builtin_add_overflow(bytes, parts[i].iov_len, &bytes)) return -EMSGSIZE;
    if (bytes > log->spec.record_bytes_max) return -EMSGSIZE;
    *ret_bytes = bytes;
    return 0;
}

int log_append_now(struct log *log, const struct iovec *parts, int count,
                   const struct log_options *options, struct log_place *ret_place)
{
    size_t bytes = 0;
    int r = check(log, parts, count, options, &bytes);

    if (r < 0) return r;
    lock_acquire(&log->lock);
    log_live_locked(log, options->live, options->live_count);
    r = append_locked(log, parts, count, bytes, options, ret_place);
    lock_release(&log->lock);
    return r;
}

int log_room_now(struct log *log, size_t bytes, enum log_use use)
{
    int r;

    if (bytes > log->spec.record_bytes_max) return -EMSGSIZE;
    if (log_frame_size(bytes) <= atom_load(&log->room_sure)) return 0;
    lock_acquire(&log->lock);
    r = keep_room(log, use, log_frame_size(bytes));
    lock_release(&log->lock);
    return r;
}

int log_room(struct log *log, size_t bytes, enum log_use use)
{
    struct task *self = task_self();
    struct log_waiter waiter = {0};
    int r;

    if (!self) return refuse_no_task("log_room");
    if (bytes > log->spec.record_bytes_max) return -EMSGSIZE;
    r = task_enter(self, ENTER_IO);
    if (r < 0) return r;
    lock_acquire(&log->lock);
    r = keep_room(log, use, log_frame_size(bytes));
    if (r != WEIR_EOVERLOAD) {
        lock_release(&log->lock);
        return r;
    }
    return log_park(log, log_room_list(log, use, log_frame_size(bytes)), &waiter, &log_wait_room);
}

int log_append(struct log *log, const struct iovec *parts, int count,
               const struct log_options *options, struct log_place *ret_place)
{
    struct task *self = task_self();
    struct log_waiter waiter = {0};
    size_t bytes = 0;
    int r;

    if (!self) return refuse_no_task("log_append");
    r = check(log, parts, count, options, &bytes);
    if (r < 0) return r;
    r = task_enter(self, ENTER_IO);
    while (r == 0) {
        lock_acquire(&log->lock);
        r = append_locked(log, parts, count, bytes, options, ret_place);
        if (r != WEIR_EOVERLOAD) {
            lock_release(&log->lock);
            break;
        }
        r = log_park(log, log_room_list(log, options->use, log_frame_size(bytes)), &waiter,
                     &log_wait_room);
        /* A cancel that came while it was on its way back has interrupted nothing. */
        if (r == 0) r = task_interrupted(self, false);
    }
    return r;
}
