/* helper.h - engines for tests: memory of the harness, short specs, states compared. */
#ifndef WEIR_TESTS_ENGINE_HELPER_H
#define WEIR_TESTS_ENGINE_HELPER_H

#include <errno.h>

#include "engine/engine.h"
#include "harness/test.h"
#include "rt/mem.h"

#define T0 INT64_C(1000000) /* when tests begin, in milliseconds */

static inline void *helper_resize(void *arg, void *block, size_t bytes_before, size_t bytes)
{
    (void)arg;
    (void)bytes_before;
    if (bytes > 0) return block ? mem_resize(block, bytes) : mem_alloc(bytes);
    mem_free(block);
    return NULL;
}

static const struct engine_config helper_config = {
    .resize = helper_resize,
    .memory_bytes_max = (size_t)1 << 30,
    .seed = 7,
    .payload_bytes_max = 1 << 16,
    .result_bytes_max = 1 << 10,
    .message_bytes_max = 64,
    .depth_max = 10000000,
    .history_ms = 10000,
    .dead_ms = 100000,
    .history_count_max = 1000,
};

static inline struct engine *helper_open(void)
{
    struct engine *engine = NULL;
    CHECK_OK(engine_open(&helper_config, &engine));
    return engine;
}

static inline struct engine_slice slice(const char *text)
{
    return (struct engine_slice){text, text ? strlen(text) : 0};
}

static inline struct engine_job_spec job_spec(const char *queue)
{
    return (struct engine_job_spec){
        .queue = slice(queue), .kind = slice("mail"), .version = 1, .payload = slice("hello")};
}

/* Enqueues what must not be refused; its id. */
static inline uint64_t put(struct engine *engine, int64_t now_ms,
                           const struct engine_job_spec *spec)
{
    struct engine_enqueued enqueued = {0};
    int r = engine_enqueue(engine, now_ms, spec, &enqueued);
    if (r < 0) TEST_FAIL("enqueue: %d: %s", r, engine_why(engine));
    return enqueued.id;
}

/* Claims one job of any kind for 100 ms; its id is 0 if there is none. */
static inline struct engine_claimed take(struct engine *engine, int64_t now_ms, const char *queue)
{
    struct engine_claim_spec spec = {.queue = slice(queue), .count = 1, .lease_ms = 100};
    struct engine_claimed claimed = {0};
    CHECK_OK(engine_claim(engine, now_ms, &spec, &claimed));
    return claimed;
}

static inline int state_of(const struct engine *engine, uint64_t id)
{
    struct engine_job job;
    return engine_job_get(engine, id, &job) < 0 ? ENGINE_NO_JOB : (int)job.state;
}

static inline int ack(struct engine *engine, int64_t now_ms, const struct engine_claimed *claimed)
{
    return engine_ack(engine, now_ms, claimed->id, claimed->token, (struct engine_slice){0});
}

static inline int fail(struct engine *engine, int64_t now_ms, const struct engine_claimed *claimed,
                       const char *class)
{
    struct engine_failure failure = {.class = slice(class), .delay_ms = -1};
    return engine_fail(engine, now_ms, claimed->id, claimed->token, &failure);
}

struct helper_sum {
    uint64_t sum;
    uint64_t count;
};

static inline void helper_add_row(void *arg, const void *bytes, size_t count)
{
    struct helper_sum *sum = arg;
    sum->sum += hash_bytes(1, bytes, count);
    sum->count++;
}

/* Equal for equal states. */
static inline uint64_t state_sum(struct engine *engine)
{
    struct helper_sum sum = {0};
    CHECK_OK(engine_rows(engine, helper_add_row, &sum));
    return sum.sum + hash_number(sum.count);
}

static inline void check_engine(const struct engine *engine)
{
    const char *wrong = engine_check(engine);
    if (wrong) TEST_FAIL("%s", wrong);
}

/* What was decided goes into the other engine as well; 0: nothing was. */
static inline size_t pass_on(struct engine *engine, struct engine *other, uint64_t position)
{
    const void *bytes;
    size_t count;
    engine_record(engine, &bytes, &count);
    if (count > 0 && other) CHECK_OK(engine_apply(other, bytes, count, position));
    engine_logged(engine, position);
    return count;
}

#endif
