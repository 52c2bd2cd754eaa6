/* log_segments.c - the segments of an open log, and reading them. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <weir/error.h>

#include "rt/blocking.h"
#include "rt/mem.h"
#include "store/log_live.h"

struct log_segment *log_segment_new(uint64_t sequence, uint64_t position, uint64_t end, int fd)
{
    struct log_segment *segment = mem_alloc_zeroed(sizeof *segment);

    if (!segment) return NULL;
    segment->sequence = sequence;
    segment->position = position;
    segment->end = end;
    segment->fd = fd;
    atom_store(&segment->shares, 1);
    return segment;
}

int log_segment_add(struct log *log, struct log_segment *take_segment)
{
    if (log->segment_count == log->segment_room) {
        size_t room = log->segment_room > 0 ? 2 * log->segment_room : 8;
        struct log_segment **segments = mem_resize(log->segments, room * sizeof(*segments));

        if (!segments) return -ENOMEM;
        log->segments = segments;
        log->segment_room = room;
    }
    if (take_segment) log->segments[log->segment_count++] = take_segment;
    return 0;
}

struct log_segment *log_segment_find(struct log *log, uint64_t position)
{
    size_t low = 0, high = log->segment_count;

    /* The last one that does not begin after it. */
    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (log->segments[middle]->position <= position) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low > 0 ? log->segments[low - 1] : NULL;
}

void log_segment_give_back(const struct kernel *kernel, struct log_segment *segment)
{
    sanitize_release(segment);
    if (atom_sub(&segment->shares, 1) > 1) return;
    sanitize_acquire(segment); /* others have read from it */
    if (segment->fd >= 0) (void)kernel->close(kernel, segment->fd);
    mem_free(segment);
}

/* ---- Reading ---- */

/* A read on a thread of the file executor. It owns all it touches, so its caller may leave. */
struct read_call {
    struct blocking_call call;
    struct log_segment *segment; /* a share */
    uint64_t offset;
    size_t bytes;
    ssize_t result;
    char memory[];
};

static void read_run(struct blocking_call *blocking)
{
    struct read_call *call = container_of(blocking, struct read_call, call);

    call->result =
        log_file_read(blocking->kernel, call->segment->fd, call->memory, call->bytes, call->offset);
}

static void read_discard(struct blocking_call *blocking)
{
    struct read_call *call = container_of(blocking, struct read_call, call);

    log_segment_give_back(blocking->kernel, call->segment);
    mem_free(call);
}

static int read_by_thread(struct log *log, struct log_segment *segment, char *data, size_t bytes,
                          uint64_t offset)
{
    struct read_call *call = mem_alloc(sizeof *call + bytes);
    int r;

    if (!call) return -ENOMEM;
    memset(call, 0, sizeof *call);
    (void)atom_add(&segment->shares, 1);
    call->segment = segment;
    call->offset = offset;
    call->bytes = bytes;
    call->call.name = "read of the log";
    call->call.run = read_run;
    call->call.discard = read_discard;
    (void)snprintf(call->call.detail, sizeof call->call.detail, "segment %016" PRIx64,
                   segment->sequence);
    r = blocking_run(&log->runtime->files, &call->call, false);
    if (r < 0) return r;
    r = call->result < 0 ? (int)call->result : (size_t)call->result < bytes ? -EIO : 0;
    if (r == 0) memcpy(data, call->memory, bytes);
    read_discard(&call->call);
    return r;
}

int log_segment_read(struct log *log, struct log_segment *segment, void *data, size_t bytes,
                     uint64_t offset)
{
    const struct kernel *kernel = log->kernel;
    size_t done = 0;

    /* Mostly it is in memory, and then a thread would cost more than the read. */
    if (kernel->pread_cached) {
        ssize_t n = kernel->pread_cached(kernel, segment->fd, data, bytes, (int64_t)offset);
        if (n > 0) done = (size_t)n;
    }
    if (done == bytes) return 0;
    return read_by_thread(log, segment, (char *)data + done, bytes - done, offset + done);
}
