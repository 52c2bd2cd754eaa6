/* jobs_starve.c - bulk work does not starve user-facing work, however it is shared out. What is
 * counted are turns: how many other jobs are begun before the one that a user waits for. */
#include "unit/store/jobs_test.h"

enum { BULK = 500 };

static void enqueue_bulk(weir_store *store, weir_job_spec spec)
{
    for (int i = 0; i < BULK; i++) (void)jobs_sure(store, "q", spec);
}

/* Jobs that are begun, with `slots` at work at a time, until this one is. */
static int turns_until(weir_store *store, uint64_t id)
{
    int turns = 0;

    for (;;) {
        uint64_t next = jobs_work(store, "q");

        CHECK(next != 0);
        if (next == id) return turns;
        turns++;
    }
}

JOBS_TEST(bulk_jobs_do_not_starve_jobs_of_a_higher_priority)
{
    weir_store *store = stand->store;

    enqueue_bulk(store, (weir_job_spec){.priority = 1});
    for (int i = 0; i < 5; i++)
        CHECK_INT(turns_until(store, jobs_enqueue(store, "q", .priority = 9)), ==, 0);
}

JOBS_TEST(bulk_jobs_of_one_tenant_do_not_starve_another)
{
    weir_store *store = stand->store;

    enqueue_bulk(store, (weir_job_spec){.fairness_key = "importer"});
    for (int i = 0; i < 5; i++)
        CHECK_INT(turns_until(store, jobs_enqueue(store, "q", .fairness_key = "user")), <=, 1);
    /* Ten tenants with much to do: a turn each. */
    for (int i = 0; i < 10; i++) {
        char name[32];

        (void)snprintf(name, sizeof name, "tenant %d", i);
        for (int n = 0; n < 20; n++) (void)jobs_enqueue(store, "q", .fairness_key = name);
    }
    CHECK_INT(turns_until(store, jobs_enqueue(store, "q", .fairness_key = "user")), <=, 11);
}

/* With a limit on bulk work a slot is always free for a user, whatever the bulk jobs do. */
JOBS_TEST(bulk_jobs_behind_a_limit_leave_slots_to_others)
{
    enum { SLOTS = 4, BULK_SLOTS = 2 };
    weir_store *store = stand->store;
    uint64_t user;
    int bulk = 0;

    CHECK_OK(weir_key_set(store, &(weir_key_spec){.name = "bulk", .concurrency = BULK_SLOTS}));
    enqueue_bulk(store, (weir_job_spec){.limit_keys = {"bulk"}});
    while (jobs_lease(store, "q", NULL) != 0) bulk++;
    CHECK_INT(bulk, ==, BULK_SLOTS);
    for (int i = 0; i < SLOTS - BULK_SLOTS; i++) {
        user = jobs_enqueue(store, "q");
        CHECK_INT(jobs_lease(store, "q", NULL), ==, user);
    }
}

JOBS_TEST(bulk_jobs_in_a_queue_of_their_own_do_not_reach_the_others)
{
    weir_store *store = stand->store;

    CHECK_OK(weir_queue_set(
        store, &(weir_queue_spec){
                   .name = "bulk", .depth_max = BULK, .overflow = WEIR_REJECT, .concurrency = 1}));
    for (int i = 0; i < BULK; i++) (void)jobs_enqueue(store, "bulk");
    CHECK_INT(jobs_try(store, "bulk", (weir_job_spec){0}), ==, WEIR_EOVERLOAD);
    CHECK_INT(turns_until(store, jobs_enqueue(store, "q")), ==, 0);
    CHECK(jobs_lease(store, "bulk", NULL) != 0);
    CHECK_INT(jobs_lease(store, "bulk", NULL), ==, 0);
    CHECK_INT(turns_until(store, jobs_enqueue(store, "q")), ==, 0);
}
