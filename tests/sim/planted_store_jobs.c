/* planted_store_jobs.c - bugs that are planted in the store, found by the program of store_jobs.h.
 */
#include "sim/planted.h"
#include "sim/store_jobs.h"
#include "store/store.h"

PLANTED_CASE(STORE_REPLY_UNGATED, store_jobs_program, .runs_max = 100, .begin = store_jobs_begin,
             .faults = {.kill = 200})
PLANTED_CASE(STORE_DUPLICATE_UNGATED, store_jobs_program, .runs_max = 1000,
             .begin = store_jobs_begin, .faults = {.kill = 200})
PLANTED_CASE(STORE_SERVED_UNGATED, store_jobs_program, .runs_max = 1000, .begin = store_jobs_begin,
             .faults = {.kill = 200})
PLANTED_CASE(STORE_ROOM_UNTOLD, store_jobs_program, .runs_max = 200, .begin = store_jobs_begin)
PLANTED_CASE(STORE_NAMES_DROPPED, store_jobs_program, .runs_max = 200,
             .begin = store_jobs_begin_large)
PLANTED_CASE(STORE_MOVES_ONE, store_jobs_program, .runs_max = 1000, .begin = store_jobs_begin_large)
PLANTED_CASE(STORE_IDS_AGAIN, store_jobs_program, .runs_max = 500, .begin = store_jobs_begin,
             .faults = {.kill = 200})
PLANTED_CASE(STORE_OPEN_UNNOTED, store_jobs_program, .runs_max = 600, .begin = store_jobs_begin,
             .faults = {.kill = 200})

/* ---- Who waits for a job gets the one that comes at that moment ---- */

static int take_one(void *arg)
{
    weir_store *store = *(weir_store **)arg;
    const weir_lease_spec spec = {.queue = "q", .worker = "w", .count = 1, .lease_ms = 60000};
    weir_job job;
    int r = weir_job_lease(store, &spec, &job);

    if (r == WEIR_ETIMEDOUT) weir_sim_fail("there was a job, and nobody was told");
    CHECK_INT(r, ==, 1);
    r = weir_job_ack(store, job.id, job.token, NULL, 0);
    weir_job_free(&job);
    return r;
}

static int take_while_one_comes(void *arg)
{
    const weir_store_spec spec = {.name = "work",
                                  .path = "/store",
                                  .create = true,
                                  .durability = WEIR_MEMORY,
                                  .memory_bytes_max = 16 << 20,
                                  .queue_depth_max = 100,
                                  .queue_overflow = WEIR_REJECT,
                                  .payload_bytes_max = 1024,
                                  .result_bytes_max = 1024};
    const struct store_sizes sizes = {
        .segment_bytes = 384 * 1024, .buffer_bytes = 448 * 1024, .record_bytes_max = 216 * 1024};
    const weir_job_spec job = {.queue = "q", .kind = "k", .idempotent = WEIR_NO};
    weir_enqueued enqueued;
    weir_store *store;
    int closed = 0;

    (void)arg;
    WEIR_DEADLINE(60000) {
        WEIR_SCOPE(scope, &closed, .name = "host", .on_failure = WEIR_FAIL_FAST, .max_tasks = 4,
                   .overflow = WEIR_REJECT) {
            CHECK_OK(store_open(scope, &spec, &sizes, &store));
            WEIR_SCOPE(takers, &closed, .name = "takers", .on_failure = WEIR_FAIL_FAST,
                       .max_tasks = 1, .overflow = WEIR_REJECT) {
                CHECK_OK(weir_spawn(takers, take_one, &store, sizeof store));
                CHECK_OK(weir_job_enqueue(store, &job, &enqueued));
            }
            CHECK_OK(weir_store_close(store));
        }
    }
    return closed;
}
PLANTED_CASE(STORE_WAITER_FORGOTTEN, take_while_one_comes, .runs_max = 400)
