/* demo.c - a modest workload in the server's own process, so that there is something to look at.
 *
 * Three queues: mail (often retried, some dead letters), thumbs (quick, many) and reports (slow,
 * one at a time, by a schedule too). About five jobs a second in all.
 *
 * Owner: the server's scope, which ends these tasks. Backpressure: the queues' depth, which is
 * small here: what is too much is left out. Failure: a call that fails is tried again in the next
 * turn; the store's end is theirs.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rt/kernel.h"
#include "server/serve_inside.h"

enum {
    PRODUCE_MS = 200,
    CALL_MS = 5000,
    LEASE_MS = 10000,
    WAIT_MS = 1000,
    DEPTH_MAX = 1000,
    QUEUES = 3,
};

struct demo_queue {
    const char *name;
    const char *const kinds[3];
    unsigned each;    /* a job in so many turns */
    unsigned fails;   /* of a hundred attempts */
    unsigned work_ms; /* at most */
    unsigned workers, attempts_max;
};

static const struct demo_queue queues[QUEUES] = {
    {"mail", {"welcome", "invoice", "reminder"}, 2, 30, 400, 2, 3},
    {"thumbs", {"resize", "crop", "resize"}, 1, 5, 60, 2, 5},
    {"reports", {"daily", "export", "export"}, 10, 15, 3000, 1, 2},
};

struct demo {
    weir_store *store;
    const struct demo_queue *queue;
};

static unsigned chance(unsigned bound)
{
    const struct kernel *kernel = kernel_current();
    uint32_t random;

    kernel->random(kernel, &random, sizeof random);
    return random % bound;
}

static int enqueue(weir_store *store, const struct demo_queue *queue, unsigned number)
{
    char payload[128];
    weir_enqueued enqueued;
    int r = WEIR_ETIMEDOUT;
    int bytes = snprintf(payload, sizeof payload, "{\"number\": %u, \"user\": {\"id\": %u}}",
                         number, chance(50));

    WEIR_DEADLINE(CALL_MS)
        r = weir_job_enqueue(
            store,
            &(weir_job_spec){.queue = queue->name,
                             .kind = queue->kinds[chance(3)],
                             .payload = payload,
                             .payload_bytes = (size_t)bytes,
                             .idempotent = WEIR_YES,
                             .priority = (uint8_t)chance(3),
                             .delay_ms = chance(8) == 0 ? 5000 : 0,
                             .tags = chance(2) ? "eu" : "us",
                             .retry = {.attempts_max = (uint16_t)queue->attempts_max,
                                       .backoff_ms = 2000,
                                       .backoff_ms_max = 30000}},
            &enqueued);
    return r;
}

/* The server stops, or the store does: then all calls fail. */
static bool is_over(int r)
{
    return r == WEIR_ECANCELED || r == WEIR_ECLOSED || r == WEIR_ESTOPPING;
}

static int produce(void *arg)
{
    struct demo *demo = arg;

    for (unsigned turn = 1;; turn++) {
        int r = weir_sleep(PRODUCE_MS / 2 + chance(PRODUCE_MS));

        for (int i = 0; i < QUEUES && !is_over(r); i++)
            if (turn % (queues[i].each * 2) == 0) r = enqueue(demo->store, &queues[i], turn);
        if (is_over(r)) return 0;
    }
}

static void settle(weir_store *store, const struct demo_queue *queue, const weir_job *job)
{
    static const char *const classes[] = {"timeout", "refused", "bad-address"};
    unsigned which = chance(3);
    int r = 0;

    WEIR_DEADLINE(CALL_MS) {
        if (chance(100) >= queue->fails)
            r = weir_job_ack(store, job->id, job->token, "\"fine\"", 6);
        else
            r = weir_job_fail(store, job->id, job->token, classes[which],
                              "the demo lets some of them fail", -1);
    }
    (void)r; /* a lease that was lost is given to another */
}

static int work(void *arg)
{
    struct demo *demo = arg;

    for (;;) {
        weir_job job;
        int r = WEIR_ETIMEDOUT;

        WEIR_DEADLINE(WAIT_MS)
            r = weir_job_lease(
                demo->store,
                &(weir_lease_spec){
                    .queue = demo->queue->name, .worker = "demo", .count = 1, .lease_ms = LEASE_MS},
                &job);
        if (is_over(r)) return 0;
        /* There is no such queue yet, or no memory, or the store has stopped. */
        if (r < 0 && r != WEIR_ETIMEDOUT) r = weir_sleep(WAIT_MS);
        if (is_over(r)) return 0;
        if (r <= 0) continue;
        r = weir_sleep(1 + chance(demo->queue->work_ms));
        if (r == 0) settle(demo->store, demo->queue, &job);
        weir_job_free(&job);
        if (is_over(r)) return 0;
    }
}

static int set_up(weir_store *store)
{
    int r = 0;

    WEIR_DEADLINE(CALL_MS) {
        for (int i = 0; i < QUEUES && r == 0; i++)
            r = weir_queue_set(store, &(weir_queue_spec){.name = queues[i].name,
                                                         .depth_max = DEPTH_MAX,
                                                         .overflow = WEIR_REJECT,
                                                         .latency_target_ms = 1000});
        if (r == 0)
            r = weir_schedule_set(
                store, &(weir_schedule_spec){
                           .name = "every-minute",
                           .cron = "* * * * *",
                           .overlap = WEIR_OVERLAP_SKIP,
                           .catch_up = WEIR_CATCH_UP_NONE,
                           .job = {.queue = "reports", .kind = "daily", .idempotent = WEIR_YES}});
    }
    return r;
}

int demo_start(weir_scope *scope, weir_store *store, struct log_sink *sink)
{
    struct demo demo = {.store = store};
    int r = set_up(store);

    if (r == 0) r = weir_spawn_named(scope, "demo-producer", produce, &demo, sizeof demo);
    for (int i = 0; i < QUEUES; i++) {
        demo.queue = &queues[i];
        for (unsigned j = 0; j < queues[i].workers && r == 0; j++)
            r = weir_spawn_named(scope, "demo-worker", work, &demo, sizeof demo);
    }
    if (r < 0)
        log_say(sink, WEIR_LOG_ERROR, "the demo cannot start", LOG_TEXT("error", weir_strerror(r)));
    return r;
}
