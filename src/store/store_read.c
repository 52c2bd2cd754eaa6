/* store_read.c - payloads, traces and results: they are in the log, not in memory. */
#include <errno.h>

#include "rt/mem.h"
#include "store/store.h"

int store_read_record(struct store *store, uint64_t position, size_t guess,
                      struct store_bytes *ret_bytes)
{
    struct log_record record = {0};
    unsigned char *memory = mem_alloc(guess);
    int r;

    if (!memory) return -ENOMEM;
    r = log_read(store->log, position, memory, guess, &record);
    if (r == -EMSGSIZE) {
        mem_free(memory);
        memory = mem_alloc(record.bytes);
        if (!memory) return -ENOMEM;
        r = log_read(store->log, position, memory, record.bytes, &record);
    }
    if (r < 0) {
        mem_free(memory);
        return r;
    }
    *ret_bytes = (struct store_bytes){memory, record.bytes};
    return 0;
}

/* Where the job's bytes are now. */
static int look_again(struct store *store, uint64_t id, bool result, uint64_t *ret_position,
                      size_t *ret_bytes)
{
    struct engine_job job;
    int r;

    store_lock(store);
    r = engine_job_get(store->engine, id, &job);
    store_unlock(store);
    if (r < 0) return r;
    *ret_position = result ? job.result_position : job.position;
    *ret_bytes = result ? job.result_bytes : job.payload_bytes;
    return 0;
}

int store_read_job(struct store *store, uint64_t id, uint64_t position, bool result,
                   struct store_bytes *ret_bytes, struct engine_found *ret_found)
{
    size_t bytes = 0;
    int r = 0;

    for (int tries = 0; tries < STORE_READ_TRIES; tries++) {
        if (tries > 0 || position == 0) r = look_again(store, id, result, &position, &bytes);
        if (r < 0) return r;
        r = store_read_record(store, position, bytes + STORE_GUESS_BYTES, ret_bytes);
        if (r == -ENOENT) continue; /* compaction has moved it */
        if (r < 0) return r;
        r = engine_record_find(ret_bytes->memory, ret_bytes->count, id, ret_found);
        if (r == 0) return 0;
        mem_free(ret_bytes->memory);
        *ret_bytes = (struct store_bytes){0}; /* callers free what they find there */
        if (r == -EBADMSG) break;
    }
    return refuse_as(-EBADMSG, "store '%s': job %llu: its bytes are not at position %llu",
                     store->object.name, (unsigned long long)id, (unsigned long long)position);
}
