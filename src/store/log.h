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
 * log_append_now is rejected (WEIR_EOVERLOAD); so it is for who would fill segments faster than
 * compaction lets them go (log_hold_back). Space for the next segment is there before it is needed;
 * when the disk is full, new work is refused first (-ENOSPC), what ends existing work and what
 * makes room goes on from a reserve, and all goes on when there is space again.
 * Failure: a write or sync that fails stops the log for good: who waits and who appends gets the
 * error (-EIO for a sync that found no space: others try again at -ENOSPC), log_why says which
 * file; reading goes on. Nothing was acknowledged that is not on disk.
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
    size_t recent_bytes;     /* of the end of the log are kept in memory for log_read; a power of
                                two, or 0 */
    size_t record_bytes_max; /* a longer one is refused; LOG_RECORD_BYTES_DEFAULT */
    int held_segments;       /* see log_hold_back; LOG_HELD_SEGMENTS; below 0: none */
    log_record_fn replay;    /* mandatory: called for each record, on a thread of the log's own,
                                while log_open waits; it does not suspend */
    void (*synced)(void *arg, int64_t ns); /* how long a sync took, on the committer's thread */
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

/* The record at `position` has so many more bytes that are needed (below 0: fewer). */
struct log_live {
    uint64_t position;
    int64_t bytes;
};

struct log_options {
    enum log_use use;
    uint16_t tag;
    bool room_is_kept;           /* by log_room_now, for so many bytes at least */
    const struct log_live *live; /* log_append_now: told on the way, in whatever it ends */
    size_t live_count;
};

struct log_place {
    uint64_t position;
    uint64_t end; /* what log_wait wants */
};

/* How safe a record is. */
enum log_durability {
    LOG_DURABILITY_UNSET = 0, /* refused */
    LOG_MEMORY,               /* of this process: it is written within some milliseconds */
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

/* The begin of that: nothing is appended any more, what there is is written and synced, and who
 * waits for it is told, also if there is no space for it. Never suspends. */
void log_shut(struct log *log);

/* Append, if that needs no waiting. Errors: WEIR_EOVERLOAD (buffers are full, the next segment is
 * being made, or compaction is behind), -ENOSPC or another error of making room for this use,
 * -EMSGSIZE, what the log has stopped with, WEIR_ECLOSED, WEIR_EREFUSED (options). Never
 * suspends. */
int log_append_now(struct log *log, const struct iovec *parts, int count,
                   const struct log_options *options, struct log_place *ret_place);
/* The same, and wait where that would be rejected with WEIR_EOVERLOAD. */
LOG_SUSPENDS int log_append(struct log *log, const struct iovec *parts, int count,
                            const struct log_options *options,
                            struct log_place *ret_place) LOCK_UNCHECKED;
/* For an owner who decides first and appends then, and lets nobody append in between: keeps room
 * for one record of at most so many bytes. Until the next append it is there, and that one
 * (room_is_kept) is refused only if the log has stopped. Errors: as log_append_now. */
int log_room_now(struct log *log, size_t bytes, enum log_use use);
/* Until log_room_now would not be rejected with WEIR_EOVERLOAD: then it is worth another try. */
LOG_SUSPENDS int log_room(struct log *log, size_t bytes, enum log_use use) LOCK_UNCHECKED;
/* Who will wait for that soon, and has something to do first: its commit begins now. */
void log_ask(struct log *log, uint64_t end, enum log_durability durability);
/* Until everything before `end` is as safe as that. Errors: what the log has stopped with, also for
 * an `end` that it has never given out; WEIR_EREFUSED for one while it has not. */
LOG_SUSPENDS int log_wait(struct log *log, uint64_t end,
                          enum log_durability durability) LOCK_UNCHECKED;

/* Read the record at `position`: its bytes, tag and end; `record->data` is `data`. Errors: -ENOENT
 * (no record begins there, or not any more), -EMSGSIZE (longer than bytes_max; record->bytes says
 * how long), -EBADMSG (damaged; weir_why says where), errors of reading. */
LOG_SUSPENDS int log_read(struct log *log, uint64_t position, void *data, size_t bytes_max,
                          struct log_record *ret_record);

/* ---- Letting go of the old ---- */

/* Which bytes of the log are needed. Before the next append, or with it, is early enough: a segment
 * of which nothing is needed is let go without a look, but never the newest. */
void log_live(struct log *log, const struct log_live *live, size_t count);
/* Nothing before `position` is needed: once all that was appended until now is synced, segments
 * that end before it are used again. Never suspends. */
void log_trim(struct log *log, uint64_t position);

/* What is still needed of a record is appended again (LOG_FOR_COMPACTION), by the owner; below 0
 * ends the compaction. In the calling task; may suspend. */
struct log_mover {
    int (*move)(void *arg, const struct log_record *record);
    void *arg;
};

/* Where the oldest segment ends; 0: it is the newest. Never suspends. */
uint64_t log_oldest_end(struct log *log);
/* Whether the segments take more than twice what is needed of them, and one segment. */
bool log_compaction_is_due(struct log *log);
/* Move what is needed out of the oldest segment and trim it. In steps, each of which waits for its
 * sync: so it never has more than a small part of a commit, and who waits for one hardly waits
 * longer. 1: done; 0: there is only the newest segment. */
LOG_SUSPENDS int log_compact(struct log *log, const struct log_mover *mover);
/* Who fills segments faster than compaction lets them go waits for it: when the log would take
 * held_segments more than what makes compaction due, new work does. What carries on or ends
 * existing work never does. What was there too much before is no reason to wait: of that half a
 * segment is taken off for each one that is let go. Nobody waits while a copy is made, or while
 * nothing can be written, since nothing is let go then. */
enum { LOG_HELD_SEGMENTS = 2 };
enum log_holding {
    LOG_HOLDS_NOBODY = 0,
    LOG_HOLDS_WHILE_COMPACTED, /* the calling task compacts, and is never held back itself */
    LOG_HOLDS_WHILE_LET_GO,    /* it has done enough: until what it has trimmed has gone; and once
                                  compaction is due again, since it is going to look */
};
/* Which of them it is from now on, by the task that compacts. Never suspends. */
void log_hold_back(struct log *log, enum log_holding holding);

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
    uint64_t leaving_count; /* of them: trimmed, and about to be let go */
    uint64_t spare_count;
    uint64_t segment_bytes;
    int64_t live_bytes;
    uint64_t records_replayed;
    uint64_t torn_bytes;      /* that were cut at open */
    uint64_t commits;         /* syncs of the log since then */
    uint64_t compacted_bytes; /* appended for compaction */
    uint64_t held_back;       /* waits of others for it */
    int room_error;           /* why there is no room for new work; 0: there is */
    int error;                /* what it has stopped with; 0: it has not */
};

void log_figures(struct log *log, struct log_figures *ret_figures);
/* Why it has stopped, or has no room; "": it has not. Copied. */
void log_why(struct log *log, struct log_why *ret_why);

#endif
