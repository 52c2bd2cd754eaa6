/* worker_test.h - what the tests of workers share: a store, a worker, handlers that do as they are
 * told by the payload, and a clock that stands.
 *
 * The workers' clock moves only when a test moves it. The store's moves with it, a tenth slower,
 * and with the wall's; leases last so long that the latter does not matter.
 */
#ifndef WEIR_TESTS_UNIT_STORE_WORKER_TEST_H
#define WEIR_TESTS_UNIT_STORE_WORKER_TEST_H

#include <weir/weir.h>

#include "base/atomic.h"
#include "unit/store/store_test.h"

#define WORKER_LEASE_MS INT64_C(600000)
#define WORKER_BEAT_MS (WORKER_LEASE_MS / 3 + 2)

struct worker_stand {
    struct store_stand store_stand;
    weir_store *store;
    weir_scope *scope; /* of the test */
    weir_event *go;    /* for handlers of "wait" */
    weir_event *all;   /* set when so many have ended; may be NULL */
    int all_count;
    ATOM(int) begun, ended, running, running_max, interrupted;
    ATOM(bool) may_end; /* for handlers on threads */
};

/* Does what the payload says: see worker_stand.c. */
int worker_stand_handle(void *keep_deps, weir_job job, weir_job_outcome *outcome);

void worker_stand_run(int (*fn)(struct worker_stand *stand), bool clock_stands);

/* A worker called "w" for queue "q", with one slot for each of `concurrency`. */
weir_worker_spec worker_stand_spec(struct worker_stand *stand, int concurrency);
weir_worker *worker_stand_open(struct worker_stand *stand, weir_scope *scope, int concurrency);
weir_worker_figures worker_stand_figures(weir_worker *worker);

/* A job of queue "q": one attempt, or so many; or one that is not idempotent. */
enum { WORKER_STAND_ONCE = 0 };
uint64_t worker_stand_enqueue(struct worker_stand *stand, const char *payload, int attempts_max);
enum weir_job_state worker_stand_state(struct worker_stand *stand, uint64_t id);
/* The class of its last error, "" if it has none. Valid until the next call. */
const char *worker_stand_error(struct worker_stand *stand, uint64_t id, const char **ret_message);

/* Let others run until it holds. The test's timeout ends what never does. */
#define UNTIL(condition_)                             \
    do {                                              \
        while (!(condition_)) CHECK_OK(weir_yield()); \
    } while (0)

#define WORKER_TEST_(name_, clock_stands_, ...)                 \
    static int worker_body_##name_(struct worker_stand *stand); \
    TEST_WITH(name_, __VA_ARGS__)                               \
    {                                                           \
        worker_stand_run(worker_body_##name_, clock_stands_);   \
    }                                                           \
    static int worker_body_##name_(struct worker_stand *stand)

/* On the real clock. */
#define WORKER_TEST(name_) WORKER_TEST_(name_, false, .timeout_ms = TEST_TIMEOUT_MS_DEFAULT)
/* On a clock that stands until it is moved. */
#define WORKER_TEST_CLOCK(name_) \
    WORKER_TEST_(name_, true, .timeout_ms = TEST_TIMEOUT_MS_DEFAULT, .workers = 1)

#define WORKER_SCOPE(scope_, ret_result)                                            \
    WEIR_SCOPE(scope_, ret_result, .name = "workers", .on_failure = WEIR_FAIL_FAST, \
               .max_tasks = 64, .overflow = WEIR_REJECT)

#endif
