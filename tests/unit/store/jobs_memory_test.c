/* jobs_memory_test.c - calls of several jobs when memory ends in the midst of them, and does not
 * come back: they have done all of it, or nothing. */
#include "engine/state.h"
#include "rt/mem.h"
#include "unit/store/jobs_test.h"

/* BEFORE: so many lanes that the engine needs more memory for places within the call, and not only
 * for what is new: that is what taking back could need as well. */
enum { GROUP = 24, BEFORE = 165, ENDS = 4 };

/* ---- Memory that ends ---- */

static uint64_t allocations_left = UINT64_MAX;

static void *resize_until(void *arg, void *block, size_t bytes_before, size_t bytes)
{
    (void)arg;
    (void)bytes_before;
    if (bytes > 0 && allocations_left == 0) return NULL;
    if (bytes > 0) {
        allocations_left--;
        return mem_resize(block, bytes);
    }
    mem_free(block);
    return NULL;
}

/* From the n-th allocation of the store's engine on there is none. Only of the engine: what a call
 * allocates for itself it does before anything is decided. */
static void memory_ends_at(weir_store *handle, uint64_t n)
{
    struct store *store = store_look_up(handle, "test");

    store_lock(store);
    store->engine->memory.resize = resize_until;
    allocations_left = n;
    store_unlock(store);
}

/* ---- Calls ---- */

struct bunch {
    weir_job_spec jobs[GROUP];
    weir_enqueued enqueued[GROUP];
    weir_settlement settlements[ENDS]; /* of jobs that are leased */
    char names[GROUP][24];
};

typedef int (*call_fn)(weir_store *store, struct bunch *bunch);

static int enqueue_all(weir_store *store, struct bunch *bunch)
{
    return weir_job_enqueue_all(store, bunch->jobs, GROUP, bunch->enqueued);
}

static int settle_with_then(weir_store *store, struct bunch *bunch)
{
    int r;

    bunch->settlements[0].then = bunch->jobs;
    bunch->settlements[0].then_count = GROUP;
    r = weir_job_settle(store, bunch->settlements, 1);
    return r < 0 ? r : bunch->settlements[0].ret_error;
}

static int commit(weir_store *store, struct bunch *bunch)
{
    int r = weir_commit(store, &(weir_commit_spec){.jobs = bunch->jobs,
                                                   .job_count = GROUP,
                                                   .settlements = bunch->settlements,
                                                   .settlement_count = ENDS});

    for (int i = 0; r == 0 && i < ENDS; i++) CHECK_OK(bunch->settlements[i].ret_error);
    return r;
}

static void bunch_make(weir_store *store, struct bunch *bunch)
{
    memset(bunch, 0, sizeof *bunch);
    for (int i = 0; i < GROUP; i++) {
        (void)snprintf(bunch->names[i], sizeof bunch->names[i], "name %d", i);
        bunch->jobs[i] = stand_job(i % 2 ? "next" : "other", "x");
        bunch->jobs[i].kind = bunch->names[i];
        bunch->jobs[i].fairness_key = bunch->names[i / 2];
        bunch->jobs[i].order_key = i % 3 == 0 ? bunch->names[i / 6] : NULL;
        bunch->jobs[i].unique_key = bunch->names[i];
        bunch->jobs[i].limit_keys[0] = bunch->names[i / 4];
        bunch->jobs[i].limit_keys[1] = "one at a time";
    }
    for (int i = 0; i < ENDS; i++) {
        weir_settlement *one = &bunch->settlements[i];

        *one = (weir_settlement){.how = i == 1 ? WEIR_SETTLE_ACK : WEIR_SETTLE_FAIL,
                                 .error_class = "class",
                                 .error_message = bunch->names[i * 3]};
        if (i == 1) one->result = "result", one->result_bytes = 6;
        (void)jobs_enqueue(store, "first");
        one->id = jobs_lease(store, "first", &one->token);
        CHECK(one->id != 0);
    }
}

static void check_nothing(weir_store *store, const struct bunch *bunch, uint64_t jobs)
{
    struct store *inside = store_look_up(store, "test");
    weir_store_figures figures;
    const char *wrong;

    weir_store_figures_of(store, &figures);
    CHECK_INT(figures.jobs, ==, jobs);
    for (int i = 0; i < ENDS; i++)
        CHECK_INT(stand_state(store, bunch->settlements[i].id), ==, WEIR_JOB_LEASED);
    store_lock(inside);
    wrong = engine_check(inside->engine);
    store_unlock(inside);
    if (wrong) TEST_FAIL("%s", wrong);
}

/* Memory ends with each allocation in turn, until the call does not need that many. */
static void end_memory_in(struct jobs_stand *stand, call_fn call)
{
    weir_store *store = stand->store;
    struct bunch bunch;
    weir_store_figures figures;
    uint64_t jobs, n;
    int r = -ENOMEM;

    CHECK_OK(weir_key_set(store, &(weir_key_spec){.name = "one at a time", .concurrency = 1}));
    for (int i = 0; i < BEFORE; i++) {
        char name[24];

        (void)snprintf(name, sizeof name, "before %d", i);
        (void)jobs_enqueue(store, "before", .fairness_key = name, .durability = WEIR_MEMORY);
    }
    bunch_make(store, &bunch);
    weir_store_figures_of(store, &figures);
    jobs = figures.jobs;
    for (n = 0; r == -ENOMEM; n++) {
        memory_ends_at(store, n);
        r = call(store, &bunch);
        memory_ends_at(store, UINT64_MAX);
        if (r < 0) check_nothing(store, &bunch, jobs);
    }
    CHECK_OK(r);
    CHECK_INT(n, >, 2 * GROUP);
    CHECK_OK(weir_store_sync(store));
    jobs_reopen(stand); /* nor does the log say that there was more */
    weir_store_figures_of(stand->store, &figures);
    CHECK_INT(figures.jobs, ==, jobs + GROUP);
}

JOBS_TEST(jobs_enqueued_together_are_all_there_or_none_when_memory_ends)
{
    end_memory_in(stand, enqueue_all);
}

JOBS_TEST(a_settlement_and_its_jobs_are_all_there_or_none_when_memory_ends)
{
    end_memory_in(stand, settle_with_then);
}

JOBS_TEST(a_commit_is_there_or_not_when_memory_ends)
{
    end_memory_in(stand, commit);
}
