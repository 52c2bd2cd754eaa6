/* store_jobs_clients.c - what producers do, and a worker of weir/worker.h: see store_jobs.h. */
#include <errno.h>
#include <string.h>

#include "sim/store_jobs.h"
#include "store/store.h"

enum { MEMBERS = 2, SOME = 2 };

enum weir_durability clients_durability(void)
{
    static const enum weir_durability durabilities[] = {WEIR_SYNCED, WEIR_MEMORY, WEIR_WRITTEN,
                                                        WEIR_SYNCED};

    return durabilities[weir_sim_choose(4)];
}

int64_t clients_now_ms(weir_store *store)
{
    struct store *inside = store_look_up(store, "clients_now_ms");
    int64_t ms;

    store_lock(inside);
    ms = inside->clock.now_ns / 1000000;
    store_unlock(inside);
    return ms;
}

/* ---- Producers ---- */

int clients_enqueue(weir_store *store, struct wanted *wanted)
{
    unsigned char payload[PAYLOAD_BYTES_MAX];
    weir_enqueued told;
    weir_job_spec spec;
    int r = 0;

    world_spec(wanted, payload, &spec);
    spec.durability = clients_durability();
    if (weir_sim_choose(6) == 1) spec.delay_ms = 30;
    WEIR_DEADLINE(weir_sim_choose(6) == 1 ? 3 : CLIENTS_PATIENCE_MS)
        r = weir_job_enqueue(store, &spec, &told);
    if (r < 0) return r;
    world_enqueued(wanted, &told);
    return told.duplicate || told.durability != WEIR_SYNCED
               ? 0
               : look_at_unique(store, world_job(told.id));
}

int clients_enqueue_some(weir_store *store)
{
    unsigned char payloads[SOME][PAYLOAD_BYTES_MAX];
    struct wanted *wanted[SOME];
    weir_enqueued told[SOME];
    weir_job_spec specs[SOME];
    int r;

    for (int i = 0; i < SOME; i++) {
        wanted[i] = world_want();
        if (!wanted[i]) return 0;
        world_spec(wanted[i], payloads[i], &specs[i]);
    }
    specs[0].durability = clients_durability();
    r = weir_job_enqueue_all(store, specs, SOME, told);
    for (int i = 0; i < SOME && r == 0; i++) world_enqueued(wanted[i], &told[i]);
    return r;
}

static int enqueue_members(weir_store *store, const struct wanted *gatherer)
{
    int r = 0;

    for (int i = 0; i < MEMBERS && r == 0; i++) {
        struct wanted *member = world_want();

        if (!member) break;
        member->batch = world_number(gatherer);
        r = clients_enqueue(store, member);
    }
    return r;
}

int clients_enqueue_batch(weir_store *store)
{
    struct wanted *gatherer = world_want_in(GATHERING);
    int r, members;

    if (!gatherer) return 0;
    gatherer->gathers = weir_sim_choose(2) == 1 ? WEIR_WHEN_DONE : WEIR_WHEN_ENDED;
    r = clients_enqueue(store, gatherer);
    if (r < 0) return r;
    members = enqueue_members(store, gatherer);
    r = weir_batch_seal(store, gatherer->id);
    if (r < 0 && r != -ENOENT) return r;
    return members == -ENOENT ? 0 : members; /* it was cancelled meanwhile: nobody gathers */
}

/* ---- A worker ---- */

struct handling {
    weir_store *store;
    const bool *draining;
    bool calm;
};
static struct handling handling;
enum { NO_JUDGE = -1 }; /* instead of a number of jumps */

/* Its heartbeats keep the lease, unless a jump of the clock has ended it. */
static int take_long(const struct job *job, const weir_job *leased, int jumps)
{
    int r = weir_sleep(3 * (int64_t)LEASE_MS_MAX);
    const struct wanted *wanted = world_wanted(job);

    if (!handling.calm || world.jumps != jumps || (wanted && wanted->timeout_ms != 0)) return r;
    if (job->token != leased->token && !job->changed)
        weir_sim_fail("job %llu was given to another although its lease was renewed",
                      (unsigned long long)job->id);
    return r;
}

static int handle(void *keep_deps, weir_job leased, weir_job_outcome *outcome)
{
    int64_t now_ms = clients_now_ms(handling.store);
    /* The clock may have jumped on the way from the store. */
    int jumps = leased.lease_until_ms > now_ms ? world.jumps : NO_JUDGE, r;
    unsigned what;
    struct job *job = world_leased(&leased, LEASE_MS_MAX, true, now_ms);

    (void)keep_deps;
    world.handled++;
    r = look_at_batch(handling.store, job);
    what = *handling.draining ? 0 : weir_sim_choose(6);
    if (r == 0 && what == 1) r = -EDOM;
    if (r == 0 && what == 2) r = take_long(job, &leased, jumps);
    if (r == 0 && what == 3) {
        outcome->as = WEIR_CLASS_SNOOZE;
        outcome->delay_ms = 20;
        world_release_asked(job, leased.token);
    }
    (void)world_settle_asked(job, leased.token);
    return r;
}

int clients_open_worker(weir_store *store, weir_scope *scope, bool calm, const bool *keep_draining)
{
    static const weir_handler handlers[] = {{"work", 0, 1, handle}};
    weir_worker *worker;

    handling = (struct handling){store, keep_draining, calm};
    return weir_worker_open(scope,
                            &(weir_worker_spec){.name = "worker",
                                                .store = store,
                                                .queue = queue_names[0],
                                                .handlers = handlers,
                                                .handler_count = 1,
                                                .concurrency = 2,
                                                .executor = WEIR_ON_TASKS,
                                                .lease_ms = LEASE_MS_MAX,
                                                .drain_ms = 1000},
                            &worker);
}
