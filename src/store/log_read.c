/* log_read.c - one record by its position, from the buffers or from its segment; and many at once,
 * for compaction. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <weir/error.h>

#include "rt/mem.h"
#include "store/log_live.h"

enum { FIRST_READ_BYTES = 512 }; /* head and data of most records */

static int damaged(const struct log *log, const struct log_segment *segment, uint64_t position)
{
    char name[LOG_NAME_BYTES];

    log_name(name, segment->sequence, LOG_SEGMENT);
    return refuse_as(-EBADMSG, "store '%s': %s, offset %" PRIu64 ": the record is damaged",
                     log->folder.path, name, LOG_HEADER_BYTES + (position - segment->position));
}

static void give(const struct log_frame *frame, uint64_t position, const void *data,
                 struct log_record *ret_record)
{
    *ret_record = (struct log_record){.position = position,
                                      .end = position + log_frame_size(frame->bytes),
                                      .tag = frame->tag,
                                      .data = data,
                                      .bytes = frame->bytes};
}

/* From a buffer that has the position; under the lock. */
static int read_buffer(const struct log *log, const struct log_buffer *buffer, uint64_t position,
                       void *data, size_t bytes_max, struct log_record *ret_record)
{
    const unsigned char *head = buffer->data + (position - buffer->position);
    struct log_frame frame;

    /* Its first bytes are a mark, or will be: the committer writes it without the lock. */
    if (position < buffer->position + LOG_MARK_SIZE ||
        !log_frame_decode(log->seed, position, head, &frame) || frame.kind != LOG_KIND_RECORD)
        return -ENOENT;
    give(&frame, position, data, ret_record);
    if (frame.bytes > bytes_max) return -EMSGSIZE;
    sanitize_unseen_begin();
    if (frame.bytes > 0) memcpy(data, head + LOG_FRAME_BYTES, frame.bytes);
    sanitize_unseen_end();
    return 0;
}

static bool has(const struct log_buffer *buffer, uint64_t position)
{
    return buffer && buffer->bytes > 0 && position >= buffer->position &&
           position - buffer->position + LOG_FRAME_BYTES <= buffer->bytes;
}

/* From what is kept of the log's end; under the lock. -ENOENT: it is not there. What lies there of
 * an earlier turn does not decode, since a head's checksum knows its position. */
static int read_recent(const struct log *log, uint64_t position, void *data, size_t bytes_max,
                       struct log_record *ret_record)
{
    uint64_t room = log->spec.recent_bytes;
    uint64_t at = room > 0 ? position & (room - 1) : 0;
    const unsigned char *head;
    struct log_frame frame;

    if (position >= log->end || log->end - position > room) return -ENOENT;
    if (room - at < LOG_FRAME_BYTES) return -ENOENT;
    head = log->recent + at;
    if (!log_frame_decode(log->seed, position, head, &frame)) return -ENOENT;
    give(&frame, position, data, ret_record);
    if (frame.bytes > bytes_max) return -EMSGSIZE;
    sanitize_unseen_begin();
    if (frame.bytes > 0) memcpy(data, head + LOG_FRAME_BYTES, frame.bytes);
    sanitize_unseen_end();
    return 0;
}

/* From a segment, of which the caller has a share. */
static int read_segment(struct log *log, struct log_segment *segment, uint64_t position,
                        uint64_t end, void *data, size_t bytes_max, struct log_record *ret_record)
{
    unsigned char first[FIRST_READ_BYTES];
    uint64_t left = end - position;
    size_t bytes = left < sizeof first ? (size_t)left : sizeof first;
    uint64_t offset = LOG_HEADER_BYTES + (position - segment->position);
    struct log_frame frame;
    size_t have;
    int r = log_segment_read(log, segment, first, bytes, offset);

    if (r < 0) return r;
    if (!log_frame_decode(log->seed, position, first, &frame))
        return damaged(log, segment, position);
    if (log_frame_size(frame.bytes) > left) return damaged(log, segment, position);
    give(&frame, position, data, ret_record);
    if (frame.kind != LOG_KIND_RECORD) return -ENOENT;
    if (frame.bytes > bytes_max) return -EMSGSIZE;
    have = frame.bytes < bytes - LOG_FRAME_BYTES ? frame.bytes : bytes - LOG_FRAME_BYTES;
    if (have > 0) memcpy(data, first + LOG_FRAME_BYTES, have);
    if (frame.bytes > have)
        r = log_segment_read(log, segment, (char *)data + have, frame.bytes - have,
                             offset + LOG_FRAME_BYTES + have);
    if (r < 0) return r;
    if (log_frame_data_crc(log->seed, position, data, frame.bytes) != frame.data_crc)
        return damaged(log, segment, position);
    return 0;
}

/* A read has ended; log_close may wait for it. */
static void leave(struct log *log)
{
    struct log_told told = {0};

    lock_acquire(&log->lock);
    if (--log->read_count == 0) log_told_all(&told, &log->readers, 0);
    lock_release(&log->lock);
    log_told_post(&told);
}

int log_read(struct log *log, uint64_t position, void *data, size_t bytes_max,
             struct log_record *ret_record)
{
    struct task *self = task_self();
    struct log_segment *segment = NULL;
    uint64_t end = 0;
    int r;

    if (!self) return refuse_no_task("log_read");
    r = task_enter(self, ENTER_IO);
    if (r < 0) return r;
    lock_acquire(&log->lock);
    r = read_recent(log, position, data, bytes_max, ret_record);
    if (r != -ENOENT) {
        lock_release(&log->lock);
        return r;
    }
    if (has(log->writing, position)) {
        r = read_buffer(log, log->writing, position, data, bytes_max, ret_record);
    } else if (has(log->filling, position)) {
        r = read_buffer(log, log->filling, position, data, bytes_max, ret_record);
    } else {
        segment = log_segment_find(log, position);
        end = segment ? segment->end : 0;
        if (!segment || end < LOG_FRAME_BYTES || position > end - LOG_FRAME_BYTES ||
            position % LOG_ALIGN != 0) {
            segment = NULL;
            r = -ENOENT;
        } else {
            (void)atom_add(&segment->shares, 1);
            log->read_count++;
        }
    }
    lock_release(&log->lock);
    if (!segment) return r;
    r = read_segment(log, segment, position, end, data, bytes_max, ret_record);
    log_segment_give_back(log->kernel, segment);
    leave(log);
    return r;
}

int log_read_part(struct log *log, uint64_t position, void *data, size_t bytes_max,
                  size_t *ret_bytes)
{
    struct task *self = task_self();
    struct log_segment *segment;
    uint64_t left = 0;
    size_t bytes;
    int r;

    if (!self) return refuse_no_task("log_read_part");
    r = task_enter(self, ENTER_IO);
    if (r < 0) return r;
    lock_acquire(&log->lock);
    segment = log_segment_find(log, position);
    if (segment && position < segment->end) {
        left = segment->end - position;
        (void)atom_add(&segment->shares, 1);
        log->read_count++;
    }
    lock_release(&log->lock);
    if (left == 0) return -ENOENT;
    bytes = left < bytes_max ? (size_t)left : bytes_max;
    r = log_segment_read(log, segment, data, bytes,
                         LOG_HEADER_BYTES + (position - segment->position));
    log_segment_give_back(log->kernel, segment);
    leave(log);
    if (r == 0) *ret_bytes = bytes;
    return r;
}
