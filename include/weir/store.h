/* store.h - durable work in a folder: what was acknowledged is there after a power cut.
 *
 * A store keeps jobs (jobs.h) in a log of its own. It belongs to one process at a time.
 *
 *     r = weir_store_open(scope, &(weir_store_spec){.name = "work", .path = "/srv/work",
 *                         .create = true, .durability = WEIR_SYNCED,
 *                         .memory_bytes_max = 256 << 20, .queue_depth_max = 1000000,
 *                         .queue_overflow = WEIR_REJECT}, &store);
 *
 * Owner: a scope. Lifetime: until weir_store_close or the end of its scope, which waits until
 * all is on disk. Backpressure: queues have a depth; beyond memory_bytes_max and disk_bytes_max
 * (or when the disk is full) new work is refused with -ENOBUFS and -ENOSPC, existing work goes on
 * to its end; new work waits where it would outrun compaction, which keeps the disk that is used
 * near twice what is needed. Failure: a write or a sync that fails stops the store for
 * good: all calls get that error, and nothing was acknowledged that is not on disk. Damage is an
 * error with file and offset; the tool weir-store shows it and repairs into a copy.
 *
 * The reply gate: memory runs ahead of the disk. A reply (a lease, a duplicate, a figure, too)
 * waits until all that it has seen is as safe as the call's durability asks for.
 *
 * Time is the wall clock's, but never goes back: where that is set back, the store's runs on at
 * nine tenths of its pace until the other has caught up (weir_store_figures: clock_ahead_ms).
 *
 * Threads: tasks of the runtime, on any worker.
 */
#ifndef WEIR_STORE_H
#define WEIR_STORE_H

#include <weir/defs.h>
#include <weir/error.h>

WEIR_BEGIN

typedef struct weir_store weir_store;

/* How safe something is when its call returns. What is less than synced is so within
 * WEIR_STORE_SYNC_MS. */
enum weir_durability {
    WEIR_DURABILITY_UNSET = 0,
    WEIR_MEMORY,  /* it is decided; lost if the process dies at once */
    WEIR_WRITTEN, /* given to the system: survives the process, not a power cut */
    WEIR_SYNCED,  /* on disk */
};

#define WEIR_STORE_SYNC_MS 1000
#define WEIR_STORE_PAYLOAD_BYTES_MAX (512 * 1024)
#define WEIR_STORE_PAYLOAD_BYTES_DEFAULT (64 * 1024)
#define WEIR_STORE_HISTORY_MS_DEFAULT (24 * 3600 * 1000LL)
#define WEIR_STORE_HISTORY_COUNT_DEFAULT 10000
#define WEIR_STORE_DEAD_MS_DEFAULT (30 * 24 * 3600 * 1000LL)
#define WEIR_STORE_SEGMENT_BYTES_MIN (4 * 1024 * 1024)
#define WEIR_STORE_ZONES_DEFAULT "/usr/share/zoneinfo"

/* name, path, durability, memory_bytes_max, queue_depth_max and queue_overflow must be said. */
typedef struct weir_store_spec {
    const char *name;                  /* copied, at most 31 bytes */
    const char *path;                  /* the folder; copied */
    bool create;                       /* make one if there is none */
    enum weir_durability durability;   /* of calls that say nothing */
    size_t memory_bytes_max;           /* of the index; from here on no new work */
    uint64_t disk_bytes_max;           /* of the folder; default: what the disk has */
    uint32_t queue_depth_max;          /* of a queue that says nothing itself (weir_queue_set) */
    enum weir_overflow queue_overflow; /* likewise: WEIR_REJECT or WEIR_WAIT */
    uint32_t payload_bytes_max;        /* WEIR_STORE_PAYLOAD_BYTES_DEFAULT */
    uint32_t result_bytes_max;         /* likewise */
    int64_t history_ms;         /* jobs that have ended are kept so long; ..HISTORY_MS_DEFAULT */
    uint32_t history_count_max; /* ... and so many of a queue; ..HISTORY_COUNT_DEFAULT */
    int64_t dead_ms;            /* dead letters; ..DEAD_MS_DEFAULT */
    uint64_t segment_bytes;     /* of a new store's files; default 64 MiB */
    const char *zones;          /* folder of TZif files; WEIR_STORE_ZONES_DEFAULT */
} weir_store_spec;

/* weir_store_spec_init - set every member to "not said". */
static inline void weir_store_spec_init(weir_store_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* weir_store_open(scope, &spec, &store) - open the folder, replay what is in it. Suspends and
 * needs a deadline. Cancel: nothing is left open. Errors: WEIR_EREFUSED (weir_why), -EBUSY (another
 * process has it, which is named), -ENOENT (there is none), -EBADMSG (damaged: weir_why names file
 * and offset), -ENOMEM, -ENFILE, -EAGAIN (no thread), errors of the disk. More than
 * memory_bytes_max may be in it: then it takes no new work. */
WEIR_SUSPENDS int weir_store_open_sized(weir_scope *scope, size_t spec_bytes,
                                        const weir_store_spec *spec, weir_store **ret_store);
#define weir_store_open(scope, ...) \
    weir_store_open_sized((scope), sizeof(weir_store_spec), __VA_ARGS__)

/* weir_store_close - take no more calls (who waits gets WEIR_ECLOSED, as who calls meanwhile), put
 * all on disk, end. Returns what the store has stopped with, if anything; WEIR_ECLOSED: another is
 * closing it. Suspends. Cancel: not cut short. Takes NULL. */
WEIR_SUSPENDS int weir_store_close(weir_store *take_store);

/* weir_store_sync - until all that was decided by now is on disk. Suspends and needs a deadline.
 * Cancel: nothing moved. Errors: what the store has stopped with, WEIR_ECLOSED. */
WEIR_SUSPENDS int weir_store_sync(weir_store *store);

/* weir_store_copy - a copy of what is synced by now in a folder that does not exist yet, while
 * work goes on. Suspends and needs a deadline. Cancel: an empty FOLDER.partial is left, as
 * at a failure. Errors: -EEXIST, errors of the disk, WEIR_ECLOSED. */
WEIR_SUSPENDS int weir_store_copy(weir_store *store, const char *folder);

typedef struct weir_store_figures {
    uint64_t jobs;         /* all rows, the ended ones included */
    uint64_t memory_bytes; /* of the index */
    uint64_t memory_bytes_max;
    uint64_t disk_bytes;       /* of segments in use and of spares */
    uint64_t live_bytes;       /* of these are needed */
    uint64_t appended_bytes;   /* since it was opened, compaction included, */
    uint64_t compacted_bytes;  /* ... of which were copies */
    uint64_t held_back;        /* waits of calls for compaction, which was behind */
    uint64_t commits;          /* syncs */
    uint64_t records;          /* since it was opened */
    uint64_t records_replayed; /* at open */
    uint64_t torn_bytes;       /* cut at open: never acknowledged */
    int64_t open_ms;           /* how long that took */
    int64_t clock_ahead_ms;    /* of the wall clock */
    uint64_t waiting;          /* tasks that wait for a job, */
    uint64_t waiting_room;     /* ... for room in a queue */
    int room_error;            /* why there is no room for new work; 0: there is */
    int error;                 /* what it has stopped with; 0: it has not */
} weir_store_figures;

/* weir_store_figures_of - figures of now; they do not wait for the gate. Never suspends. */
WEIR_API void weir_store_figures_of(weir_store *store, weir_store_figures *ret_figures);

WEIR_END

#endif
