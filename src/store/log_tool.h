/* log_tool.h - looking at a store from outside: verify, dump, and repair into a copy.
 *
 * None of them changes the store that it looks at (but LOCK, by which it is kept from being opened
 * meanwhile). They block, and need no runtime.
 *
 * A repair copies every segment as it is. Where something is damaged, a gap is put in its place
 * that reaches to the next thing that is whole, so all that is whole keeps its position.
 *
 * Errors: with a sentence. Threads: one.
 */
#ifndef WEIR_STORE_LOG_TOOL_H
#define WEIR_STORE_LOG_TOOL_H

#include "store/log_recover.h"

/* What is at a place. */
enum log_piece_kind {
    LOG_PIECE_SEGMENT, /* a segment begins */
    LOG_PIECE_FRAME,   /* a frame that is whole */
    LOG_PIECE_DAMAGE,  /* neither a frame nor the end */
    LOG_PIECE_TAIL,    /* the end of the log: zeroes, or what a crash has left */
    LOG_PIECE_MISSING, /* a segment is not there, or its header is lost */
};

struct log_piece {
    enum log_piece_kind kind;
    uint64_t sequence;
    uint64_t offset;
    uint64_t position;
    uint64_t bytes; /* of damage and tail; of a tail only what looks like frames */
    struct log_frame frame;
    const unsigned char *data; /* of a frame; for the call */
};

/* Below 0 ends it. */
typedef int (*log_piece_fn)(void *arg, const struct log_piece *piece);

struct log_summary {
    struct log_meta meta;
    uint64_t first, end; /* positions */
    uint64_t segment_count;
    uint64_t record_count;
    uint64_t gap_count;
    uint64_t torn_bytes;
};

/* Everything that opening it would look at. 0: it can be opened. */
int log_verify(const struct kernel *kernel, const char *path, struct log_summary *ret_summary,
               struct log_why *why);
/* Each piece in turn, also of a store that is damaged. Returns how many are damage or missing. */
int log_dump(const struct kernel *kernel, const char *path, log_piece_fn piece, void *arg,
             struct log_why *why);
/* Make `to`, which does not exist, from what is whole in `from`. `piece` is told of all damage.
 * Returns how many pieces of damage there were. */
int log_repair(const struct kernel *kernel, const char *from, const char *to, log_piece_fn piece,
               void *arg, struct log_why *why);

#endif
