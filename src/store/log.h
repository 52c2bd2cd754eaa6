/* log.h - the commit log of a store: records in, positions out, and back again after a crash.
 *
 *     r = log_open(&(struct log_spec){.path = "/srv/store", .create = true,
 *                                     .replay = apply, .arg = engine}, &log);
 *     r = log_append(log, parts, 2, &(struct log_options){.use = LOG_FOR_NEW}, &place);
 *     r = log_wait(log, place.end, LOG_SYNCED);
 *
 * A record is some bytes and a tag, both its owner's. It is there as a whole or not at all. Its
 * position is its byte offset in the log, which rises for ever. Records are given back in their
 * order by log_open.
 *
 * Owner: the task that opened it, which closes it. Lifetime: open to close; it has two threads.
 * Backpressure: appends wait in buffers of buffer_bytes; when those are full, log_append waits and
 * log_append_now is rejected (WEIR_EOVERLOAD). Space for the next segment is there before it is
 * needed; when the disk is full, new work is refused first (-ENOSPC), what ends existing work and
 * what makes room goes on from a reserve, and all goes on when there is space again.
 * Failure: a write or sync that fails stops the log for good: who waits and who appends gets the
 * error, log_why says which file; reading goes on. Nothing was acknowledged that is not on disk.
 * Cancel: log_append: nothing was appended. log_wait: the record stays, its outcome is not known.
 * log_read: nothing moved. log_open: ends as soon as the call of the disk under way does. log_close
 * is not interrupted: it waits for what the disk is doing.
 * Threads: any task of the runtime that opened it, several at once, but for open and close.
 */
#ifndef WEIR_STORE_LOG_H
#define WEIR_STORE_LOG_H

#include <sys/uio.h>
#include <weir/defs.h>

#include "rt/lock.h"
#include "store/log_recover.h"

#define LOG_SEGMENT_BYTES_DEFAULT (UINT64_C(64) << 20)
#define LOG_BUFFER_BYTES_DEFAULT (size_t)(2 << 20)
#define LOG_RECORD_BYTES_DEFAULT (size_t)(1 << 20)

/* As WEIR_SUSPENDS, of calls that no program sees. */
#define LOG_SUSPENDS WEIR_MUST_USE WEIR_NO_PARK_EXCLUDED

struct log;

struct log_spec {
    const char *path;        /* mandatory: the folder */
    bool create;             /* make a store if there is none */
    uint64_t segment_bytes;  /* of a new store; a multiple of 512; LOG_SEGMENT_BYTES_DEFAULT */
    size_t buffer_bytes;     /* of each of two; LOG_BUFFER_BYTES_DEFAULT */
    size_t record_bytes_max; /* a longer one is refused; LOG_RECORD_BYTES_DEFAULT */
    log_record_fn replay;    /* mandatory: called for each record, on a thread of the log's own,
                                while log_open waits; it does not suspend */
    void *arg;
    const struct log_id *id; /* of a new store; NULL: by chance */
};

/* What a record is for: who gets the last of the space. */
enum log_use {
    LOG_USE_UNSET = 0,  /* refused */
    LOG_FOR_NEW,        /* new work: refused first */
    LOG_FOR_EXISTING,   /* ends or carries on work that there is */
    LOG_FOR_COMPACTION, /* lets a segment go: refused last */
};

struct log_options {
    enum log_use use;
    uint16_t tag;
};

struct log_place {
    uint64_t position;
    uint64_t end; /* what log_wait wants */
};

/* How safe a record is. */
enum log_durability {
    LOG_DURABILITY_UNSET = 0, /* refused */
    LOG_MEMORY,               /* of this process: it will be written soon */
    LOG_WRITTEN,              /* given to the system: survives the process */
    LOG_SYNCED,               /* on disk: survives a power cut */
};

/* Errors: of recovery (log_recover.h; weir_why has the sentence), -EBUSY (in use), WEIR_EREFUSED (a
 * wrong spec), -ENOMEM, -EAGAIN (no thread). On failure nothing but LOCK has changed that the next
 * open would not do again. */
LOG_SUSPENDS int log_open(const struct log_spec *spec, struct log **ret_log) LOCK_UNCHECKED;

/* Write and sync what is there, and end. Returns the error that the log has stopped with, if any;
 * it is closed all the same. Takes NULL. Nobody else uses it any more, but reads that are under way
 * in other tasks are waited for. */
LOG_SUSPENDS int log_close(struct log *take_log) LOCK_UNCHECKED;

/* Append, if that needs no waiting. Errors: WEIR_EOVERLOAD (buffers are full, or the next segment
 * is being made), -ENOSPC or another error of making room for this use, -EMSGSIZE, what the log has
 * stopped with, WEIR_ECLOSED, WEIR_EREFUSED (options). Never suspends. */
int log_append_now(struct log *log, const struct iovec *parts, int count,
                   const struct log_options *options, struct log_place *ret_place);
/* The same, and wait where that would be rejected with WEIR_EOVERLOAD. */
LOG_SUSPENDS int log_append(struct log *log, const struct iovec *parts, int count,
                            const struct log_options *options,
                            struct log_place *ret_place) LOCK_UNCHECKED;
/* Until everything before `end` is as safe as that. Errors: what the log has stopped with. */
LOG_SUSPENDS int log_wait(struct log *log, uint64_t end,
                          enum log_durability durability) LOCK_UNCHECKED;

/* Read the record at `position`: its bytes, tag and end; `record->data` is `data`. Errors: -ENOENT
 * (no record begins there, or not any more), -EMSGSIZE (longer than bytes_max; record->bytes says
 * how long), -EBADMSG (damaged; weir_why says where), errors of reading. */
LOG_SUSPENDS int log_read(struct log *log, uint64_t position, void *data, size_t bytes_max,
                          struct log_record *ret_record);

/* ---- Letting go of the old ---- */

/* The record at `position` has so many more bytes that are needed (below 0: fewer). */
void log_live(struct log *log, uint64_t position, int64_t bytes);
/* Nothing before `position` is needed: once all that was appended until now is synced, segments
 * that end before it are used again. Never suspends. */
void log_trim(struct log *log, uint64_t position);

/* What is still needed of a record is appended again (LOG_FOR_COMPACTION), by the owner; below 0
 * ends the compaction. In the calling task; may suspend. */
struct log_mover {
    int (*move)(void *arg, const struct log_record *record);
    void *arg;
};

/* Whether the segments take more than twice what is needed of them, and one segment. */
bool log_compaction_is_due(struct log *log);
/* Move what is needed out of the oldest segment and trim it. In steps, each of which waits for its
 * sync: so it never has more than a small part of a commit, and who waits for one hardly waits
 * longer. 1: done; 0: there is only the newest segment. */
LOG_SUSPENDS int log_compact(struct log *log, const struct log_mover *mover);

/* ---- Copies ---- */

/* A copy of what is synced by now, in a folder that does not exist yet: made as `folder`.partial,
 * renamed at its end. On failure an empty `folder`.partial is left, which the next copy uses. */
LOG_SUSPENDS int log_copy(struct log *log, const char *folder);

/* ---- Figures ---- */

struct log_figures {
    uint64_t first;   /* the position that the log begins with */
    uint64_t end;     /* ... and ends with, so far */
    uint64_t written; /* up to here, */
    uint64_t synced;  /* ... and here */
    uint64_t segment_count;
    uint64_t spare_count;
    uint64_t segment_bytes;
    int64_t live_bytes;
    uint64_t records_replayed;
    uint64_t torn_bytes; /* that were cut at open */
    uint64_t commits;    /* syncs of the log since then */
    uint64_t compacted_bytes;
    int room_error; /* why there is no room for new work; 0: there is */
    int error;      /* what it has stopped with; 0: it has not */
};

void log_figures(struct log *log, struct log_figures *ret_figures);
/* Why it has stopped, or has no room; "": it has not. Copied. */
void log_why(struct log *log, struct log_why *ret_why);

#endif
