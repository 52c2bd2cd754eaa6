/* store_test.h - a store in a folder of the test's own, in a scope, with a deadline.
 *
 *     STORE_TEST(jobs_come_back)
 *     {
 *         weir_store *store = store_stand_open(stand);
 *         uint64_t id = stand_enqueue(store, "mail", "hello");
 *         ...
 *         CHECK_OK(weir_store_close(store));
 *     }
 */
#ifndef WEIR_TESTS_UNIT_STORE_STORE_TEST_H
#define WEIR_TESTS_UNIT_STORE_STORE_TEST_H

#include <weir/weir.h>

#include "harness/test.h"
#include "store/store.h"

/* For calls that insist on a deadline. It is no test's timeout: that one says who hangs. */
#define STORE_STAND_DEADLINE_MS INT64_C(3600000)

struct store_stand {
    char path[64];
    weir_scope *scope;
    weir_store_spec spec;
    struct store_sizes sizes;
    int workers; /* of the runtime; 0: what the run says */
};

void store_stand_make(struct store_stand *stand);
void store_stand_remove(struct store_stand *stand);
int store_stand_run(struct store_stand *stand, int (*fn)(struct store_stand *stand));

int store_stand_try(struct store_stand *stand, weir_store **ret_store);
weir_store *store_stand_open(struct store_stand *stand);
/* Until the log has its spares: a sync that fails while they are made stops nothing. */
void stand_await_spares(weir_store *store);

/* A job that may be tried three times; its kind is "work". */
weir_job_spec stand_job(const char *queue, const char *payload);
uint64_t stand_enqueue(weir_store *store, const char *queue, const char *payload);
/* One lease of a minute, at once: 1, or 0. */
int stand_lease(weir_store *store, const char *queue, weir_job *ret_job);
/* Lease, which must give something, and acknowledge. Returns its id. */
uint64_t stand_work(weir_store *store, const char *queue);
enum weir_job_state stand_state(weir_store *store, uint64_t id);

#define STORE_TEST_WITH(name_, ...)                            \
    static void store_body_##name_(struct store_stand *stand); \
    static int store_main_##name_(struct store_stand *stand)   \
    {                                                          \
        store_body_##name_(stand);                             \
        return 0;                                              \
    }                                                          \
    TEST_WITH(name_, __VA_ARGS__)                              \
    {                                                          \
        static struct store_stand stand;                       \
        store_stand_make(&stand);                              \
        CHECK_OK(store_stand_run(&stand, store_main_##name_)); \
        store_stand_remove(&stand);                            \
    }                                                          \
    static void store_body_##name_(struct store_stand *stand)

#define STORE_TEST(name_) STORE_TEST_WITH(name_, .timeout_ms = TEST_TIMEOUT_MS_DEFAULT)

#endif
