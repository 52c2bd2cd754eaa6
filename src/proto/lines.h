/* lines.h - lines out of pieces of a stream, as in NDJSON: one value a line.
 *
 * A line ends in LF; a CR before it belongs to its end. Lines without anything are passed over, and
 * counted. A line that came in one piece is shown where it lies, others in the caller's block.
 *
 * Invariants: a line that was shown is valid until the next call. No line is longer than the block.
 * Threads: one at a time.
 */
#ifndef WEIR_PROTO_LINES_H
#define WEIR_PROTO_LINES_H

#include "proto/bytes.h"

struct lines {
    char *block;
    size_t room, used;
    uint64_t number; /* of the line that was shown last, from 1 */
    bool shown;      /* what is in the block was shown, and can go */
};

void lines_init(struct lines *lines, char *keep_block, size_t bytes);
/* 1: a line; 0: the piece is used up; -EMSGSIZE: it is longer than the block. `piece` moves on. */
int lines_next(struct lines *lines, struct bytes *piece, struct bytes *ret_line);
/* After the last piece: 1: a line that had no end; 0: none. */
int lines_end(struct lines *lines, struct bytes *ret_line);

#endif
