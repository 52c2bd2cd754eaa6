/* log_live.h - a log that is open, from the inside.
 *
 * Two threads. The committer takes the buffer that was filled, writes it, syncs it and tells who
 * waits, while the other buffer fills. The keeper makes spares before they are needed, lets old
 * segments go, and keeps META; at the begin it recovers, at the end nobody needs it.
 *
 *     OPENING ──recovered──▶ OPEN ──log_close──▶ CLOSING ──all is synced──▶ ENDED
 *        │                    │ a write or sync fails   │
 *        └──error──▶ ENDED    └─────▶ STOPPED ◀─────────┘
 *
 * Invariants, under the lock:
 * 1. synced <= written <= end. Positions below `written` are in files, the others in buffers.
 * 2. A batch (what is written at once) begins with a mark and never spans two segments. It is
 *    synced before a later segment is begun, and its mark says what was synced before it was
 * written. 3. Segments are in the order of their positions, without gaps; the last one is written
 * to. 4. A segment is let go only after META says so on disk, and META says so only after
 * everything    that was appended before log_trim is on disk.
 * 5. After a failed write or sync nothing is acknowledged any more (STOPPED).
 * 6. Who waits for a position below batch_end is among `due`, who waits for one behind it among
 *    `later`. So all who are due are told as soon as the batch is where they want it, and without
 *    the lock: who waits for a position that was reached is nobody's but the committer's.
 * A segment's descriptor is closed when its last share is given back, so a read that goes on
 * without its caller never meets another file.
 */
#ifndef WEIR_STORE_LOG_LIVE_H
#define WEIR_STORE_LOG_LIVE_H

#include "base/list.h"
#include "rt/bell.h"
#include "rt/lock.h"
#include "rt/mail.h"
#include "rt/runtime.h"
#include "rt/task.h"
#include "store/log.h"

enum {
    LOG_SPARES_MAX = 4,     /* more are removed */
    LOG_SPARES_RESERVE = 2, /* for existing work, and for compaction */
    LOG_RETRY_MS = 100,     /* a write that found no space is tried again */
    LOG_LATER_MS = 5,       /* what nobody waits for is written so much later, at most */
};

enum log_state { LOG_OPENING, LOG_OPEN, LOG_CLOSING, LOG_STOPPED, LOG_ENDED };

struct log_segment {
    uint64_t sequence;
    uint64_t position;
    uint64_t end; /* of what was written */
    int64_t live_bytes;
    int fd;
    ATOM(unsigned) shares; /* the table's, and one for each read; taken under the lock */
};

struct log_buffer {
    unsigned char *data;
    size_t bytes;      /* 0: empty; else it begins with room for a mark */
    uint64_t position; /* of its first byte */
    bool begins_segment;
    struct log_spare spare; /* then: which becomes that segment */
};

/* A task that waits. On its stack. */
struct log_waiter {
    struct list node; /* in one of the log's lists; in none once it is decided */
    struct log *log;
    struct task *task;
    struct worker *worker;
    uint64_t end;
    enum log_durability durability;
    int result;
    struct log_waiter *next; /* of those that are told at once, of one worker */
    struct mail mail;
};

enum log_wait_for { LOG_WAIT_WRITTEN, LOG_WAIT_SYNCED };

struct log {
    const struct kernel *kernel;
    weir_runtime *runtime;
    struct log_spec spec;
    struct log_folder folder;
    struct log_meta meta; /* the keeper's */
    uint32_t seed;
    uint64_t capacity; /* of a segment: bytes of frames */

    struct lock lock;
    struct bell work; /* for the committer */
    struct bell keep; /* for the keeper */
    enum log_state state;
    int error;
    struct log_why why;
    ATOM(bool) stop; /* what takes long should end: open is cancelled, or it closes */

    struct log_segment **segments;
    size_t segment_count;
    size_t segment_room;
    struct log_segment
        *newest; /* the committer's: it alone changes it, and needs no lock to look */
    int64_t live_bytes;
    unsigned pins; /* copies under way: nothing is let go */
    /* See log_hold_back. */
    enum log_holding holding;
    bool meta_waits;        /* there is no space for META, so nothing is let go */
    struct task *compactor; /* is held back by nobody */
    uint64_t use_max;       /* new work does not make the segments take more than that */
    uint64_t held_back;
    /* The segment that a buffer begins, while it is no file yet: one at a time. */
    uint64_t next_position; /* 0: there is none */
    int64_t next_live_bytes;

    struct log_buffer buffers[2];
    struct log_buffer *filling;
    struct log_buffer *writing; /* NULL: none */
    /* The log's last bytes once more, each at its position modulo spec.recent_bytes; a record that
     * would wrap is left out. */
    unsigned char *recent;
    uint64_t segment_left; /* room in the segment that the filling buffer goes to */
    /* A record of so many bytes has room, whatever it is for: who alone appends need not take the
     * lock to know it. Changed under the lock; 0: look yourself. */
    ATOM(uint64_t) room_sure;
    uint64_t end, written, synced;
    uint64_t sync_wanted; /* somebody waits for this */
    bool write_wanted;
    bool write_later; /* the filling buffer has something that nobody waits for */
    /* Whoever was told of the last commit mostly comes back at once: see log_commit.c. */
    unsigned told_count;  /* by the last commit */
    unsigned came_count;  /* to wait, since then or since the last batch was taken */
    unsigned gather_vain; /* so many batches were passed by after the last that gathered in vain */
    unsigned gather_skip; /* ... and so many still are */
    int64_t sync_ns;      /* how long the last sync took */
    bool gathering;       /* the committer waits for who is still to come */
    bool committer_waits;
    bool no_space; /* a write found none, and is tried again */
    bool mark_due; /* the last mark does not tell of all that was written */

    struct log_spare spares[LOG_SPARES_MAX + 1];
    size_t spare_count;
    uint64_t number_next;
    int room_error; /* of the last try to make a spare */
    struct log_why room_why;
    uint64_t room_when_full; /* the most there was since then */
    bool spare_wanted; /* somebody needs the next segment: try, although the last try failed */
    uint64_t trim_to;
    uint64_t trim_after;

    /* Who waits for positions, to be written or to be synced (enum log_wait_for). */
    struct log_queue {
        struct list list;
        unsigned count;
    } due[2], later[2];
    uint64_t batch_end;  /* of the last batch that was taken to be written */
    struct list starved; /* for room in the buffers, or for a segment */
    struct list held;    /* for compaction, which is behind */
    struct list readers; /* log_close, for reads to end */
    unsigned read_count;
    struct list ending; /* log_open and log_close, for threads */

    pthread_t committer_thread, keeper_thread;
    bool committer_runs, keeper_runs; /* they were started, and have not left */
    int open_result;

    uint64_t records_replayed, torn_bytes, commits, compacted_bytes;
};

/* ---- log_wait.c ---- */

/* Those who are to be told, by worker: collected under the lock, told without it. */
enum { LOG_TOLD_WORKERS = 16 };
struct log_told {
    struct log_waiter *first[LOG_TOLD_WORKERS];
};

void log_told_add(struct log_told *told, struct log_waiter *waiter, int result);
void log_told_all(struct log_told *told, struct list *waiters, int result);
void log_told_post(struct log_told *told);
/* Park in `list`; the lock is held, and let go of. */
int log_park(struct log *log, struct list *list, struct log_waiter *waiter,
             const struct wait_kind *kind) LOCK_UNCHECKED;
extern const struct wait_kind log_wait_commit, log_wait_room, log_wait_end, log_wait_open;

/* It is over: nothing is acknowledged any more. Under the lock; `why` was made without it. */
void log_stop(struct log *log, int error, const struct log_why *why, struct log_told *told);
/* All who are due for this, as it was reached: out of the log's lists, to *ret_told. Under the
 * lock. */
void log_take_due(struct log *log, enum log_wait_for what, struct list *ret_told);
/* They are told. Without the lock. */
void log_tell_taken(struct list *told);
/* A batch is taken to be written: who has waited for what is in it is due. Under the lock. */
void log_take_batch(struct log *log);
/* Under the lock. */
void log_wake_committer(struct log *log);

/* ---- Threads ----
 *
 * The lock of the two threads: a lock orders nothing for a sanitizer in strict mode, but what they
 * hand to each other, and to who opens the log, is ordered by it. */

static inline void log_lock(struct log *log) LOCK_ACQUIRES(log->lock, weir_no_park) LOCK_UNCHECKED
{
    lock_acquire(&log->lock);
    sanitize_acquire(log);
}

static inline void log_unlock(struct log *log) LOCK_RELEASES(log->lock, weir_no_park) LOCK_UNCHECKED
{
    sanitize_release(log);
    lock_release(&log->lock);
}

static inline int log_bell_wait(struct log *log, struct bell *bell, int64_t until_ns)
{
    int r;

    sanitize_release(log);
    r = bell_wait(bell, &log->lock, until_ns);
    sanitize_acquire(log);
    return r;
}

void *log_committer_main(void *arg) LOCK_UNCHECKED; /* log_commit.c */
void *log_keeper_main(void *arg) LOCK_UNCHECKED;    /* log_keep.c */

/* log_compact.c. Under the lock. */
void log_live_locked(struct log *log, const struct log_live *live, size_t count);

/* ---- Segments: log_segments.c ---- */

struct log_segment *log_segment_new(uint64_t sequence, uint64_t position, uint64_t end, int fd);
/* Under the lock. -ENOMEM: it is not added. NULL: only make room for one. */
int log_segment_add(struct log *log, struct log_segment *take_segment);
/* The one that a position is in, or NULL. Under the lock. */
struct log_segment *log_segment_find(struct log *log, uint64_t position);
void log_segment_give_back(const struct kernel *kernel, struct log_segment *segment);

/* Read of a segment that the caller has a share of: what is in memory at once, else by the file
 * executor. All of it: fewer bytes are -EIO. */
LOG_SUSPENDS int log_segment_read(struct log *log, struct log_segment *segment, void *data,
                                  size_t bytes, uint64_t offset);

/* ---- Compaction: log_compact.c, log_read.c ---- */

/* Segments that are trimmed, and that the keeper is about to let go. Under the lock. */
size_t log_leaving_count(const struct log *log);
/* Whether a record of so many bytes waits for compaction. Under the lock. */
bool log_is_held_back(struct log *log, enum log_use use, uint64_t size);
/* Who was rejected with WEIR_EOVERLOAD waits in this one. Under the lock. */
struct list *log_room_list(struct log *log, enum log_use use, uint64_t size);
/* So many segments were let go: who was held back looks again. Under the lock. */
void log_compaction_got_on(struct log *log, size_t count, struct log_told *told);

/* The log's bytes from `position` on, as they are in its segment: as many as there are, but not
 * more than bytes_max. Errors: -ENOENT (it has none, or not any more), errors of reading. */
LOG_SUSPENDS int log_read_part(struct log *log, uint64_t position, void *data, size_t bytes_max,
                               size_t *ret_bytes);

#endif
