/* log_scan.c - see log_scan.h. */
#include "store/log_scan.h"

#include <errno.h>

#include "rt/mem.h"

enum { WINDOW_BYTES = 256 * 1024 };

void log_scan_init(struct log_scan *scan, const struct kernel *kernel, int fd,
                   const struct log_header *header)
{
    *scan = (struct log_scan){
        .kernel = kernel,
        .fd = fd,
        .seed = log_id_seed(&header->id),
        .position = header->position,
        .segment_bytes = header->segment_bytes,
    };
}

void log_scan_deinit(struct log_scan *scan)
{
    mem_free(scan->window);
    scan->window = NULL;
}

static int window_grow(struct log_scan *scan, size_t bytes)
{
    unsigned char *window;

    if (bytes < WINDOW_BYTES) bytes = WINDOW_BYTES;
    if (bytes > scan->segment_bytes) bytes = (size_t)scan->segment_bytes;
    if (bytes <= scan->window_room) return 0;
    window = mem_alloc(bytes);
    if (!window) return -ENOMEM;
    mem_free(scan->window);
    scan->window = window;
    scan->window_room = bytes;
    scan->window_bytes = 0;
    return 0;
}

/* Make [offset, offset + bytes) a part of the window; the range is inside the segment. */
static int window_show(struct log_scan *scan, uint64_t offset, size_t bytes,
                       const unsigned char **ret_data)
{
    uint64_t window_end = scan->window_offset + scan->window_bytes;
    ssize_t n;
    int r;

    if (offset < scan->window_offset || offset + bytes > window_end) {
        uint64_t left = scan->segment_bytes - offset;

        r = window_grow(scan, bytes);
        if (r < 0) return r;
        scan->window_bytes = 0;
        n = log_file_read(scan->kernel, scan->fd, scan->window,
                          left < scan->window_room ? (size_t)left : scan->window_room, offset);
        if (n < 0) return (int)n;
        if ((size_t)n < bytes) return -EIO; /* it has become shorter under us */
        scan->window_offset = offset;
        scan->window_bytes = (size_t)n;
    }
    *ret_data = scan->window + (offset - scan->window_offset);
    return 0;
}

static uint64_t position_of(const struct log_scan *scan, uint64_t offset)
{
    return scan->position + (offset - LOG_HEADER_BYTES);
}

/* The head of a frame that fits into the segment: 1, or 0. */
static int scan_head(struct log_scan *scan, uint64_t offset, struct log_found *ret_found)
{
    const unsigned char *head;
    uint64_t left = scan->segment_bytes - offset;
    int r;

    if (offset > scan->segment_bytes || left < LOG_FRAME_BYTES) return 0;
    r = window_show(scan, offset, LOG_FRAME_BYTES, &head);
    if (r < 0) return r;
    ret_found->offset = offset;
    ret_found->position = position_of(scan, offset);
    if (!log_frame_decode(scan->seed, ret_found->position, head, &ret_found->frame)) return 0;
    ret_found->size = log_frame_size(ret_found->frame.bytes);
    return ret_found->size <= left;
}

int log_scan_frame(struct log_scan *scan, uint64_t offset, struct log_found *ret_found)
{
    const struct log_frame *frame = &ret_found->frame;
    const unsigned char *data;
    int r = scan_head(scan, offset, ret_found);

    if (r <= 0) return r;
    r = window_show(scan, offset, (size_t)ret_found->size, &data);
    if (r < 0) return r;
    ret_found->data = data + LOG_FRAME_BYTES;
    if (log_frame_data_crc(scan->seed, ret_found->position, ret_found->data, frame->bytes) !=
        frame->data_crc)
        return 0;
    if (frame->kind >= LOG_KINDS) return -ENOTSUP;
    if (frame->kind == LOG_KIND_MARK && frame->bytes != LOG_MARK_BYTES) return -ENOTSUP;
    return 1;
}

int log_scan_tail(struct log_scan *scan, uint64_t offset, struct log_tail *ret_tail)
{
    uint64_t begin = position_of(scan, offset);

    *ret_tail = (struct log_tail){.end_offset = offset};
    for (; offset + LOG_FRAME_BYTES <= scan->segment_bytes; offset += LOG_ALIGN) {
        struct log_found found;
        uint64_t synced;
        int r = scan_head(scan, offset, &found);

        if (r < 0) return r;
        if (r == 0) continue;
        if (found.offset + found.size > ret_tail->end_offset)
            ret_tail->end_offset = found.offset + found.size;
        if (found.frame.kind != LOG_KIND_MARK) continue;
        r = log_scan_frame(scan, offset, &found);
        if (r == -ENOTSUP) continue;
        if (r < 0) return r;
        if (r == 0) continue;
        synced = log_mark_synced(found.data);
        if (synced <= begin || synced <= ret_tail->marked) continue;
        ret_tail->is_damage = true;
        ret_tail->marked = synced;
        ret_tail->mark_offset = offset;
    }
    return 0;
}
