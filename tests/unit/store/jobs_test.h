/* jobs_test.h - what the tests of jobs.h share: a store, and a clock that stands until it is moved.
 *
 *     JOBS_TEST(a_delayed_job_comes_in_time)
 *     {
 *         uint64_t id = jobs_enqueue(stand->store, "mail", .delay_ms = 5000);
 *         jobs_pass_ms(5000);
 *         CHECK_INT(jobs_leased(stand->store, "mail"), ==, id);
 *     }
 *
 * The wall clock and the steady one move together, from JOBS_START_MS on, so the store's time is
 * known to the millisecond. Nothing here waits for real time.
 */
#ifndef WEIR_TESTS_UNIT_STORE_JOBS_TEST_H
#define WEIR_TESTS_UNIT_STORE_JOBS_TEST_H

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

#include "unit/store/store_test.h"

/* 2025-03-29 12:00 UTC: the day before clocks go forward in Berlin. */
#define JOBS_START_MS INT64_C(1743249600000)

struct jobs_stand {
    struct store_stand base;
    weir_store *store; /* open when the body begins, closed after it */
};

/* `prepare` may be NULL; it changes the spec before the store is opened. */
void jobs_stand_run(int (*fn)(struct jobs_stand *stand), void (*prepare)(struct jobs_stand *stand));
/* Close the store and open it again. */
void jobs_reopen(struct jobs_stand *stand);

void jobs_pass_ms(int64_t ms);
int64_t jobs_now_ms(void);

/* A job with members of weir_job_spec, that may be tried three times. Returns its id, or the
 * error. */
int64_t jobs_try(weir_store *store, const char *queue, weir_job_spec spec);
#define jobs_enqueue(store_, queue_, ...) \
    jobs_sure((store_), (queue_), (weir_job_spec){__VA_ARGS__})
uint64_t jobs_sure(weir_store *store, const char *queue, weir_job_spec spec);

/* Lease one for a minute, at once: its id, or 0. Its token goes to *ret_token if that is not
 * NULL. */
uint64_t jobs_lease(weir_store *store, const char *queue, uint64_t *ret_token);
/* The same, and acknowledged. */
uint64_t jobs_work(weir_store *store, const char *queue);
/* A lease is taken, fails with this class, and is a dead letter. Returns the id. */
uint64_t jobs_kill(weir_store *store, const char *queue, const char *error_class);
weir_queue_figures jobs_queue(weir_store *store, const char *queue);

/* Let others run until it holds. The test's timeout ends what never does. */
#define JOBS_UNTIL(condition_)                        \
    do {                                              \
        while (!(condition_)) CHECK_OK(weir_yield()); \
    } while (0)

#define JOBS_TEST_WITH(name_, prepare_, ...)                                           \
    static void jobs_body_##name_(struct jobs_stand *stand);                           \
    static int jobs_main_##name_(struct jobs_stand *stand)                             \
    {                                                                                  \
        jobs_body_##name_(stand);                                                      \
        return 0;                                                                      \
    }                                                                                  \
    TEST_WITH(name_, .workers = 1, .timeout_ms = TEST_TIMEOUT_MS_DEFAULT, __VA_ARGS__) \
    {                                                                                  \
        jobs_stand_run(jobs_main_##name_, prepare_);                                   \
    }                                                                                  \
    static void jobs_body_##name_(struct jobs_stand *stand)

#define JOBS_TEST(name_) JOBS_TEST_WITH(name_, NULL, .hidden = false)

#endif
