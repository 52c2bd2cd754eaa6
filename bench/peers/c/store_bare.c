/* store_bare.c - the least that there is: a log of checksummed records and an index in memory.
 *
 * Each group is one write and one fdatasync into space that was written before; the log begins anew
 * at its end, as recycled segments would. There is no recovery, no snapshot and no bound: nobody
 * could use it.
 *
 * With BENCH_HANDED=1 another thread writes and syncs, as it must where the caller's thread has
 * other tasks to run meanwhile: what that alone costs. */
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "base/crc32c.h"
#include "store.h"

#define BARE_LOG_BYTES_MIN (INT64_C(64) << 20)

enum bare_kind { BARE_INSERT = 1, BARE_CLAIM, BARE_ACKNOWLEDGE };

/* Checksummed from `payload_bytes` on. Each kind ends where its last member does; only an insert
 * has a payload behind it. */
struct bare_record {
    uint32_t crc;
    uint16_t payload_bytes;
    uint8_t kind;
    uint8_t priority;
    uint64_t sequence;
    uint64_t id;
    uint64_t token;
    int64_t when_us; /* it is due, or its lease ends */
    uint32_t queue;
};

#define BARE_BYTES_UP_TO(member) \
    (offsetof(struct bare_record, member) + sizeof((struct bare_record){0}.member))

static const size_t bare_bytes[] = {
    [BARE_INSERT] = BARE_BYTES_UP_TO(queue),
    [BARE_CLAIM] = BARE_BYTES_UP_TO(when_us),
    [BARE_ACKNOWLEDGE] = BARE_BYTES_UP_TO(token),
};

/* By its id: as ids rise one by one, a table is all that it takes. */
struct bare_job {
    uint64_t id;
    uint64_t token;
    int64_t payload_at;
    uint16_t payload_bytes;
    uint8_t state;
    uint8_t priority;
};

struct bare_ready {
    uint64_t rank; /* priority, then the time it is due */
    uint64_t id;
};

struct bare {
    const struct bench *bench;
    int fd;
    const uint8_t *log; /* the log's pages, to read payloads from */
    int64_t log_bytes;
    int64_t end; /* where the next group goes */
    uint64_t sequence;
    uint8_t *group;
    size_t group_used;
    size_t group_bytes;
    struct bare_job *jobs;
    uint64_t jobs_mask;
    size_t jobs_count;
    struct bare_ready *ready; /* a heap */
    size_t ready_count;
    /* Of the thread that commits, if there is one. Each word is written by one of both and waited
     * for by the other. */
    bool is_handed;
    pthread_t committer;
    _Atomic uint32_t asked; /* commits; the last is the end */
    _Atomic uint32_t done;
    bool ends;
};

static void *bare_allocate(const struct bench *bench, size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);

    if (!memory) bench_fail(bench, "memory", strerror(errno));
    return memory;
}

/* ---- A thread that commits ---- */

static void bare_tell(_Atomic uint32_t *word)
{
    atomic_fetch_add(word, 1);
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Until it is no longer what it was. */
static void bare_await(_Atomic uint32_t *word, uint32_t was)
{
    while (atomic_load(word) == was)
        (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, was, NULL, NULL, 0);
}

static void bare_write(struct bare *bare)
{
    store_write_synced(bare->bench, bare->fd, bare->group, bare->group_used, bare->end);
}

static void *bare_committer(void *arg)
{
    struct bare *bare = arg;

    for (uint32_t count = 0;; count++) {
        bare_await(&bare->asked, count);
        if (bare->ends) return NULL;
        bare_write(bare);
        bare_tell(&bare->done);
    }
}

static void bare_hand(struct bare *bare)
{
    uint32_t done = atomic_load(&bare->done);

    bare_tell(&bare->asked);
    bare_await(&bare->done, done);
}

/* ---- The store ---- */

static void *bare_open(const struct store_plan *plan)
{
    struct bare *bare = bare_allocate(plan->bench, 1, sizeof *bare);
    int64_t record_bytes = (int64_t)(sizeof(struct bare_record) + plan->shape.payload_bytes);
    uint64_t slots = 1;

    while (slots < plan->jobs_max) slots *= 2;
    bare->bench = plan->bench;
    bare->jobs = bare_allocate(plan->bench, slots, sizeof *bare->jobs);
    bare->jobs_mask = slots - 1;
    bare->ready = bare_allocate(plan->bench, slots, sizeof *bare->ready);
    bare->group_bytes = (size_t)record_bytes * plan->shape.group;
    bare->group = bare_allocate(plan->bench, 1, bare->group_bytes);
    /* What is there at the same time fits, so that the log never runs into its own jobs. */
    bare->log_bytes = record_bytes * (int64_t)plan->jobs_max + 4 * (int64_t)bare->group_bytes;
    if (bare->log_bytes < BARE_LOG_BYTES_MIN) bare->log_bytes = BARE_LOG_BYTES_MIN;
    bare->fd = store_file_written(plan->bench, "log", bare->log_bytes);
    bare->log =
        mmap(NULL, (size_t)bare->log_bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, bare->fd, 0);
    if (bare->log == MAP_FAILED) bench_fail(plan->bench, "mmap", strerror(errno));
    bare->is_handed = getenv("BENCH_HANDED") != NULL;
    if (bare->is_handed && pthread_create(&bare->committer, NULL, bare_committer, bare) != 0)
        bench_fail(plan->bench, "pthread_create", "no thread");
    return bare;
}

static void bare_begin(void *store)
{
    struct bare *bare = store;

    bare->group_used = 0;
    if (bare->end + (int64_t)bare->group_bytes > bare->log_bytes) bare->end = 0;
}

/* Completes the record and appends it; returns where its payload will lie in the log. */
static int64_t bare_append(struct bare *bare, struct bare_record *record, const void *payload)
{
    size_t from = sizeof record->crc;
    size_t bytes = bare_bytes[record->kind];
    uint8_t *to = bare->group + bare->group_used;

    record->sequence = ++bare->sequence;
    memcpy(to, record, bytes);
    if (payload) memcpy(to + bytes, payload, record->payload_bytes);
    record->crc = crc32c(0, to + from, bytes - from + record->payload_bytes);
    memcpy(to, &record->crc, sizeof record->crc);
    bare->group_used += bytes + record->payload_bytes;
    return bare->end + (int64_t)(bare->group_used - record->payload_bytes);
}

static bool bare_before(const struct bare_ready *left, const struct bare_ready *right)
{
    if (left->rank != right->rank) return left->rank < right->rank;
    return left->id < right->id;
}

static void bare_ready_push(struct bare *bare, struct bare_ready entry)
{
    size_t at = bare->ready_count++;

    while (at > 0 && bare_before(&entry, &bare->ready[(at - 1) / 2])) {
        bare->ready[at] = bare->ready[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    bare->ready[at] = entry;
}

static void bare_ready_pop(struct bare *bare)
{
    struct bare_ready last = bare->ready[--bare->ready_count];
    size_t at = 0;

    for (size_t child = 1; child < bare->ready_count; child = 2 * at + 1) {
        if (child + 1 < bare->ready_count &&
            bare_before(&bare->ready[child + 1], &bare->ready[child])) {
            child++;
        }
        if (!bare_before(&bare->ready[child], &last)) break;
        bare->ready[at] = bare->ready[child];
        at = child;
    }
    bare->ready[at] = last;
}

static void bare_insert(void *store, const struct store_job *job)
{
    struct bare *bare = store;
    struct bare_job *slot = &bare->jobs[job->id & bare->jobs_mask];
    struct bare_record record = {
        .payload_bytes = (uint16_t)job->payload_bytes,
        .id = job->id,
        .when_us = job->run_at_us,
        .queue = STORE_QUEUE,
        .kind = BARE_INSERT,
        .priority = job->priority,
    };

    if (slot->id != 0) bench_fail(bare->bench, "insert", "more jobs than planned");
    *slot = (struct bare_job){
        .id = job->id,
        .payload_at = bare_append(bare, &record, job->payload),
        .payload_bytes = record.payload_bytes,
        .state = STORE_READY,
        .priority = job->priority,
    };
    bare->jobs_count++;
    bare_ready_push(bare, (struct bare_ready){
                              .rank = (uint64_t)job->priority << 56 | (uint64_t)job->run_at_us,
                              .id = job->id,
                          });
}

static uint64_t bare_claim(void *store, int64_t now_us, uint64_t token,
                           struct store_lease *ret_lease)
{
    struct bare *bare = store;
    struct bare_job *slot;
    struct bare_record record = {
        .token = token,
        .when_us = now_us + STORE_LEASE_US,
        .kind = BARE_CLAIM,
    };

    if (bare->ready_count == 0) bench_fail(bare->bench, "claim", "no job is ready");
    record.id = bare->ready[0].id;
    bare_ready_pop(bare);
    slot = &bare->jobs[record.id & bare->jobs_mask];
    slot->state = STORE_LEASED;
    slot->token = token;
    bare_append(bare, &record, NULL);
    *ret_lease = (struct store_lease){.id = record.id, .token = token};
    return store_payload_sum(bare->log + slot->payload_at, slot->payload_bytes);
}

static void bare_acknowledge(void *store, const struct store_lease *lease)
{
    struct bare *bare = store;
    struct bare_job *slot = &bare->jobs[lease->id & bare->jobs_mask];
    struct bare_record record = {.id = lease->id, .token = lease->token, .kind = BARE_ACKNOWLEDGE};

    if (slot->id != lease->id || slot->state != STORE_LEASED || slot->token != lease->token) {
        bench_fail(bare->bench, "acknowledge", "the lease is not the job's");
    }
    bare_append(bare, &record, NULL);
    slot->id = 0;
    bare->jobs_count--;
}

static void bare_commit(void *store)
{
    struct bare *bare = store;

    if (bare->is_handed)
        bare_hand(bare);
    else
        bare_write(bare);
    bare->end += (int64_t)bare->group_used;
}

static size_t bare_count(void *store)
{
    return ((struct bare *)store)->jobs_count;
}

static void bare_close(void *store)
{
    struct bare *bare = store;

    if (bare->is_handed) {
        bare->ends = true;
        bare_tell(&bare->asked);
        pthread_join(bare->committer, NULL);
    }
    munmap((void *)bare->log, (size_t)bare->log_bytes);
    close(bare->fd);
    free(bare->group);
    free(bare->jobs);
    free(bare->ready);
    free(bare);
}

const struct store_engine store_engine = {
    .program = "bench-store-bare",
    .peer = "bare_log",
    .open = bare_open,
    .begin = bare_begin,
    .insert = bare_insert,
    .claim = bare_claim,
    .acknowledge = bare_acknowledge,
    .commit = bare_commit,
    .count = bare_count,
    .close = bare_close,
};
