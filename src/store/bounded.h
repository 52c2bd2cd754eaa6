/* bounded.h - calls of weir/jobs.h for who cannot wait as long as it takes, nor look before it
 * changes something.
 *
 * Threads, Cancel: as those. */
#ifndef WEIR_STORE_BOUNDED_H
#define WEIR_STORE_BOUNDED_H

#include <weir/jobs.h>

/* As weir_job_enqueue, but in a queue whose overflow is WEIR_WAIT it waits for room for `room_ms`
 * at most; 0: as long as it may; negative: not at all. When they are over it is WEIR_EOVERLOAD, and
 * nothing moved; with a negative one -EAGAIN: a wait would help, unlike in a queue that rejects. */
WEIR_MUST_USE WEIR_NO_PARK_EXCLUDED int job_enqueue_within(weir_store *store,
                                                           const weir_job_spec *spec,
                                                           int64_t room_ms,
                                                           weir_enqueued *ret_enqueued);
/* As weir_queue_set, but what is kept stays as it is, whoever changes it meanwhile, and need not be
 * said; of a queue that is not there yet it is the store's, or nothing. */
enum {
    QUEUE_KEEPS_PAUSED = 1 << 0,
    QUEUE_KEEPS_DRAINING = 1 << 1,
    QUEUE_KEEPS_DEPTH = 1 << 2,
    QUEUE_KEEPS_OVERFLOW = 1 << 3,
    QUEUE_KEEPS_CONCURRENCY = 1 << 4,
    QUEUE_KEEPS_RATE_COUNT = 1 << 5,
    QUEUE_KEEPS_RATE_PERIOD = 1 << 6,
    QUEUE_KEEPS_RATE_BURST = 1 << 7,
    QUEUE_KEEPS_LATENCY = 1 << 8,
};
WEIR_MUST_USE WEIR_NO_PARK_EXCLUDED int queue_set_keeping(weir_store *store,
                                                          const weir_queue_spec *spec,
                                                          unsigned kept);
/* As weir_job_wait, but WEIR_ESTOPPING once the caller's scope is stopping. */
WEIR_MUST_USE WEIR_NO_PARK_EXCLUDED int job_wait_until_stop(weir_store *store, uint64_t id);

#endif
