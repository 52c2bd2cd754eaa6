/* log_recover.h - open what is in a folder: look at all of it first, change it only then.
 *
 *     look ──▶ replay ──▶ settle
 *
 * Looking and replaying change nothing on disk, and any doubt ends there with an error: META or a
 * header that is damaged, a segment that is missing or has another size, frames that end before the
 * next segment begins, damage before a place that was on disk. A torn end of the newest segment is
 * no doubt: it was never acknowledged. Settling then makes sure of what was found:
 * - META's slot is written again as it is. What we read may be what an earlier process could not
 *   sync, and a sync that failed is not repeated by the next one unless it is written again.
 * - The end of the newest segment, from where nobody has said that it is on disk, likewise; what is
 *   torn behind it is written over with zeroes, or it could become a record again later.
 * - Files that are in nobody's way become spares or go.
 * All of it can be done again after a crash in the middle.
 *
 * Errors: with a sentence that names file and offset. Blocks, like log_files.h. One thread.
 */
#ifndef WEIR_STORE_LOG_RECOVER_H
#define WEIR_STORE_LOG_RECOVER_H

#include "store/log_files.h"

/* A record, as replay and reads give it. */
struct log_record {
    uint64_t position;
    uint64_t end; /* the position behind it */
    uint16_t tag;
    const void *data; /* for the call */
    size_t bytes;
};

/* Below 0: replay ends with that. */
typedef int (*log_record_fn)(void *arg, const struct log_record *record);

struct log_recovered_segment {
    uint64_t sequence;
    uint64_t position; /* where it begins */
    uint64_t end;      /* where its frames end */
    int fd;            /* for reading, and for writing unless all is only read */
};

struct log_recovered {
    struct log_meta meta;
    struct log_recovered_segment *segments;
    size_t segment_count;
    size_t segment_room;
    struct log_spare *spares;
    size_t spare_count;
    uint64_t number_next; /* of a new spare */
    uint64_t synced;      /* up to here a mark says so */
    uint64_t tail_offset; /* in the newest segment: where its frames end, */
    uint64_t tail_end;    /* ... and what looks like frames behind that */
    uint64_t record_count;
    uint64_t gap_count;  /* damage that was repaired */
    uint64_t torn_bytes; /* that were cut */
    uint64_t marked_end; /* behind the last mark that tells of all before it; 0: none */
};

struct log_recover_spec {
    bool read_only;          /* do not settle: for verify */
    bool create;             /* a new store, if there is none */
    uint64_t segment_bytes;  /* of a new store */
    const struct log_id *id; /* of a new store; NULL: by chance */
    size_t spares_max;       /* more are removed */
    log_record_fn record;    /* NULL: nobody looks */
    void *arg;
};

/* The folder is open, and locked unless it is only read. On failure nothing is left to free. */
int log_recover(const struct log_folder *folder, const struct log_recover_spec *spec,
                struct log_recovered *ret_recovered, struct log_why *why);
/* Close its descriptors, except those that were set to -1, and free it. */
void log_recovered_free(const struct log_folder *folder, struct log_recovered *recovered);

#endif
