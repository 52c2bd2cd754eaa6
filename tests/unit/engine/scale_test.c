/* scale_test.c - what a job costs: bytes of memory, steps of a claim, and that no failed allocation
 * loses or doubles anything. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "unit/engine/helper.h"

static int scale(int count)
{
    return test_slower() > 1 ? count / 50 : count;
}

/* The harness looks at who allocates, which takes longer than the rest. */
static void *plain_resize(void *arg, void *block, size_t bytes_before, size_t bytes)
{
    (void)arg;
    (void)bytes_before;
    if (bytes > 0) return realloc(block, bytes);
    free(block);
    return NULL;
}

static struct engine *open_plain(void)
{
    struct engine_config config = helper_config;
    struct engine *engine = NULL;
    config.resize = plain_resize;
    CHECK_OK(engine_open(&config, &engine));
    return engine;
}

static size_t bytes_a_job(bool unique)
{
    struct engine *engine = open_plain();
    struct engine_job_spec spec = job_spec("q");
    int count = scale(1000000);
    char key[32];
    size_t before, used;

    put(engine, T0, &spec);
    before = engine_memory_used(engine);
    for (int i = 0; i < count; i++) {
        if (unique) {
            snprintf(key, sizeof key, "customer-%07d", i);
            spec.unique_key = slice(key);
        }
        spec.run_at_ms = i % 2 ? T0 + i : 0;
        put(engine, T0, &spec);
        engine_logged(engine, 1);
    }
    used = engine_memory_used(engine) - before;
    CHECK_INT(take(engine, T0, "q").id, ==, 1);
    engine_close(engine);
    return used / (size_t)count;
}

TEST_WITH(a_job_costs_at_most_160_bytes, .timeout_ms = 60000)
{
    size_t bytes = bytes_a_job(false);
    test_note("%zu bytes a job", bytes);
    CHECK_INT(bytes, <=, 160);
}

TEST_WITH(a_job_with_a_unique_key_costs_at_most_160_bytes, .timeout_ms = 60000)
{
    size_t bytes = bytes_a_job(true);
    test_note("%zu bytes a job", bytes);
    CHECK_INT(bytes, <=, 160);
}

/* Steps of a claim and what follows, with `count` jobs of which all but one in `open_every` have a
 * key that is taken. */
static uint64_t steps_a_claim(int count, int open_every)
{
    struct engine *engine = open_plain();
    struct engine_key_spec key = {.name = slice("shared"), .concurrency = 1};
    char tenant[32];
    int claims = 200;
    uint64_t before;

    CHECK_OK(engine_key_set(engine, T0, &key));
    for (int i = 0; i < count; i++) {
        struct engine_job_spec spec = job_spec("q");
        snprintf(tenant, sizeof tenant, "tenant-%d", i);
        spec.fairness_key = slice(tenant);
        if (i % open_every != 0) {
            spec.limit_keys[0] = slice("shared");
            spec.limit_key_count = 1;
        }
        put(engine, T0, &spec);
        engine_logged(engine, 1);
    }
    before = engine_steps(engine);
    for (int i = 0; i < claims; i++) {
        struct engine_claimed claimed = take(engine, T0, "q");
        CHECK(claimed.id > 0);
        CHECK_OK(ack(engine, T0, &claimed));
        engine_logged(engine, 1);
    }
    before = engine_steps(engine) - before;
    check_engine(engine);
    engine_close(engine);
    return before / (uint64_t)claims;
}

TEST_WITH(claiming_past_blocked_tenants_takes_no_more_than_twice_the_steps, .timeout_ms = 60000)
{
    int count = scale(100000);
    uint64_t open = steps_a_claim(count, 1);
    uint64_t blocked = steps_a_claim(count, 100);

    test_note("%llu steps open, %llu blocked", (unsigned long long)open,
              (unsigned long long)blocked);
    CHECK_INT(blocked, <=, 2 * open);
    CHECK_INT(open, <=, 400);
}

/* ---- Memory that runs out ---- */

/* Does it again when there was no memory: then it is as if it had been done once. */
#define INSIST(call_)             \
    do {                          \
        r = (call_);              \
        if (r == -ENOMEM) {       \
            failures++;           \
            check_engine(engine); \
            r = (call_);          \
        }                         \
        if (r < 0) goto out;      \
    } while (0)

static uint64_t sum_without_failures;

static int sum_rows(struct engine *engine, uint64_t *ret_sum)
{
    struct helper_sum sum = {0};
    int r = engine_rows(engine, helper_add_row, &sum);
    *ret_sum = sum.sum;
    return r;
}

static int live_through(void *arg)
{
    struct engine *engine = NULL;
    struct engine *other = NULL;
    struct engine_key_spec key = {.name = slice("k"), .concurrency = 1, .weight = 2};
    struct engine_queue_spec queue = {.name = slice("q"), .overflow = ENGINE_REJECT};
    struct engine_claim_spec claim = {.queue = slice("q"), .count = 2, .lease_ms = 10};
    struct engine_failure failure = {.class = slice("net"), .message = slice("no"), .delay_ms = 0};
    struct engine_slice edited = slice("edited");
    struct engine_claimed claimed[2];
    struct engine_enqueued enqueued;
    const void *bytes;
    size_t count;
    uint64_t sum = 0;
    uint64_t other_sum = 0;
    int failures = 0;
    int r;

    (void)arg;
    r = engine_open(&helper_config, &engine);
    if (r < 0) return r;
    INSIST(engine_key_set(engine, T0, &key));
    INSIST(engine_queue_set(engine, T0, &queue));
    for (int i = 0; i < 3; i++) {
        struct engine_job_spec spec = job_spec("q");
        spec.idempotent = true;
        spec.retry.attempts_max = 2;
        spec.limit_keys[0] = slice("k");
        spec.limit_key_count = 1;
        spec.fairness_key = slice(i % 2 ? "a" : "b");
        spec.order_key = slice("o");
        spec.unique_key = slice(i % 2 ? "u" : "v");
        spec.idempotency_key = slice(i % 2 ? "x" : "y");
        spec.idempotency_ms = 1;
        INSIST(engine_enqueue(engine, T0, &spec, &enqueued));
    }
    for (int i = 0; i < 4; i++) {
        INSIST(engine_claim(engine, T0, &claim, claimed));
        if (r == 0) break;
        INSIST(engine_fail(engine, T0, claimed[0].id, claimed[0].token, &failure));
    }
    INSIST(engine_dead_replay(engine, T0, 1, &edited, slice("")));
    INSIST(engine_tick(engine, T0 + 20, SIZE_MAX));
    engine_record(engine, &bytes, &count);
    r = engine_open(&helper_config, &other);
    if (r < 0) goto out;
    r = engine_apply(other, bytes, count, 1);
    if (r < 0) goto out; /* an engine that could not follow is closed */
    engine_logged(engine, 1);
    r = sum_rows(engine, &sum);
    if (r == 0) r = sum_rows(other, &other_sum);
    if (r < 0) goto out;
    if (failures == 0) sum_without_failures = sum;
    CHECK(sum == other_sum);
    CHECK(sum == sum_without_failures);
out:
    engine_close(engine);
    engine_close(other);
    return r;
}

TEST_WITH(memory_that_runs_out_loses_and_doubles_nothing, .timeout_ms = 60000)
{
    CHECK_INT(live_through(NULL), ==, 0);
    CHECK_INT(test_sweep_alloc(live_through, NULL), >, 20);
}

static int halfway_count;

/* Candidates of one queue whose key was taken by another: a claim puts them aside, one after the
 * other, and memory may run out at each of them. The record has so many bytes before that. */
static int put_many_aside(void *arg)
{
    enum { MANY = ENGINE_SKIP_MAX };
    static struct engine_claimed claimed[MANY];
    static char filler[64 << 10];
    struct engine_job_spec first = job_spec("other");
    struct engine_key_spec key = {.name = slice("k"), .concurrency = MANY};
    struct engine_claim_spec claim = {.queue = slice("r"), .count = MANY, .lease_ms = 10};
    struct engine *engine = NULL;
    struct engine_enqueued enqueued;
    struct engine_slice woken;
    char tenant[32];
    size_t before;
    int r;

    r = engine_open(&helper_config, &engine);
    if (r == 0) r = engine_key_set(engine, T0, &key);
    for (int i = 0; i < 2 * MANY && r == 0; i++) {
        struct engine_job_spec spec = job_spec(i % 2 ? "q" : "r");
        (void)snprintf(tenant, sizeof tenant, "tenant-%d", i);
        spec.fairness_key = slice(tenant);
        spec.limit_keys[0] = slice("k");
        spec.limit_key_count = 1;
        r = engine_enqueue(engine, T0, &spec, &enqueued);
        engine_logged(engine, 1); /* so that the record is a small one yet */
    }
    if (r == 0) r = engine_claim(engine, T0, &claim, claimed);
    if (r < 0) goto out;
    engine_logged(engine, 1);
    first.payload = (struct engine_slice){filler, *(size_t *)arg};
    r = engine_enqueue(engine, T0, &first, &enqueued);
    if (r < 0) goto out;
    while (engine_next_wake(engine, &woken)) {}
    claim.queue = slice("q");
    before = engine_record_bytes(engine);
    r = engine_claim(engine, T0, &claim, claimed);
    if (r < 0) CHECK_INT(engine_record_bytes(engine), ==, before);
    /* Who waits is served when the rest is put aside. */
    if (r == 0 && engine_ready(engine, slice("q")) > 0) {
        CHECK(engine_next_wake(engine, &woken));
        halfway_count += test_alloc_failed();
    }
    check_engine(engine);
out:
    engine_close(engine);
    return r;
}

TEST_WITH(a_claim_that_fails_for_want_of_memory_has_decided_nothing, .timeout_ms = 60000)
{
    for (size_t bytes = 4 << 10; bytes < (24 << 10); bytes += 2 << 10) {
        test_note("%zu bytes before", bytes);
        CHECK_INT(test_sweep_alloc(put_many_aside, &bytes), >, 20);
    }
    CHECK_INT(halfway_count, >, 0);
}

/* ---- Speed: shown, not checked ---- */

TEST_WITH(a_life_with_limits_and_keys_takes_little_time, .timeout_ms = 60000)
{
    struct engine *engine = open_plain();
    struct engine_key_spec limit = {.name = slice("api"), .concurrency = 50};
    int count = scale(300000);
    struct timespec begin, end;
    char key[32], tenant[32];
    size_t bytes = 0;

    CHECK_OK(engine_key_set(engine, T0, &limit));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
    for (int i = 0; i < count; i++) {
        struct engine_job_spec spec = job_spec("q");
        struct engine_claimed claimed;
        snprintf(key, sizeof key, "u%d", i);
        snprintf(tenant, sizeof tenant, "t%d", i % 50);
        spec.unique_key = slice(key);
        spec.fairness_key = slice(tenant);
        spec.limit_keys[0] = slice("api");
        spec.limit_key_count = 1;
        put(engine, T0, &spec);
        bytes += pass_on(engine, NULL, 1);
        claimed = take(engine, T0, "q");
        bytes += pass_on(engine, NULL, 2);
        CHECK_OK(ack(engine, T0, &claimed));
        bytes += pass_on(engine, NULL, 3);
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    printf("%.0f ns a life, %zu bytes of records\n",
           ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) /
               count,
           bytes / (size_t)count);
    engine_close(engine);
}
