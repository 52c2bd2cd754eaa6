/* log_scan.h - the frames of a segment, one after the other; and what lies behind the last one.
 *
 * A scan reads a file through a window, so memory is bounded by the largest frame. It changes
 * nothing.
 *
 * What follows the last whole frame of the newest segment is either what a crash may leave (zeroes,
 * what the segment held in an earlier life, parts of frames that were not synced yet), or damage: a
 * mark further on that says this place was on disk. log_scan_tail tells which.
 *
 * Errors: -EIO and other errors of reading, -ENOMEM, -ENOTSUP (a newer kind of frame).
 * Threads: one.
 */
#ifndef WEIR_STORE_LOG_SCAN_H
#define WEIR_STORE_LOG_SCAN_H

#include "store/log_files.h"

struct log_scan {
    const struct kernel *kernel;
    int fd;
    uint32_t seed;
    uint64_t position;      /* of the first frame of the segment */
    uint64_t segment_bytes; /* where the file ends */

    /* The window. */
    unsigned char *window;
    size_t window_room;
    uint64_t window_offset;
    size_t window_bytes;
};

/* One frame. Its data is in the window: until the next call. */
struct log_found {
    uint64_t offset;   /* in the file */
    uint64_t position; /* in the log */
    struct log_frame frame;
    const unsigned char *data;
    uint64_t size; /* with head and padding */
};

struct log_tail {
    bool is_damage;       /* what was on disk for sure is not there any more */
    uint64_t marked;      /* then: up to where it was, */
    uint64_t mark_offset; /* ... as the mark there says */
    uint64_t end_offset;  /* behind the last thing that looks like a frame; the tail's begin if
                             there is none */
};

void log_scan_init(struct log_scan *scan, const struct kernel *kernel, int fd,
                   const struct log_header *header);
void log_scan_deinit(struct log_scan *scan);

/* The frame at `offset`: 1; 0: none that is whole is there. */
int log_scan_frame(struct log_scan *scan, uint64_t offset, struct log_found *ret_found);

/* What lies at `offset` and behind it, where log_scan_frame has found nothing. */
int log_scan_tail(struct log_scan *scan, uint64_t offset, struct log_tail *ret_tail);

#endif
