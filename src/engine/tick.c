/* tick.c - what happens because time passes: jobs become due, leases and jobs expire, what has
 * ended is forgotten, keys open. */
#include <errno.h>

#include "engine/state.h"

static const struct engine_slice no_result;

/* A lease that nobody renewed: the worker died, or the attempt took longer than it may. */
static int lose_lease(struct engine *engine, uint32_t number)
{
    const struct job *job = job_at(engine, number);
    const struct policy_text *says = &policy_at(engine, job->policy)->says;
    uint32_t queue = stage_at(engine, job->stage)->atom.scope;
    bool overtime = says->timeout_ms && job->when_ms >= job->started_ms + says->timeout_ms;
    struct engine_failure failure = {
        .class = overtime ? (struct engine_slice){"timeout", 7} : (struct engine_slice){"lost", 4},
        .delay_ms = -1,
        /* Nobody knows how far it got. */
        .dead = !says->idempotent,
    };
    int r;

    /* The queue goes with its last job. */
    atom_ref(engine, ATOM_QUEUE, queue);
    r = decide_failure(engine, number, &failure);
    if (r >= 0) queue_at(engine, queue)->counted.lost++;
    atom_unref(engine, ATOM_QUEUE, queue);
    return r;
}

static int forget(struct engine *engine, const struct job *job)
{
    struct op op = {.type = OP_FORGET, .forget = job->id};
    return command_op(engine, &op);
}

static int ring(struct engine *engine, uint32_t number)
{
    const struct job *job = job_at(engine, number);
    struct op_set set;

    if (job->state == ENGINE_LEASED) return lose_lease(engine, number);
    if (job->state >= ENGINE_DONE) return forget(engine, job);
    if (job->expires_ms && job->expires_ms <= engine->now_ms) {
        queue_of(engine, job)->counted.expired++;
        decide_end(engine, number, ENGINE_EXPIRED, no_result);
        return 0;
    }
    set_from(job, &set);
    fill_onward(engine, job, set.when_ms, &set);
    decide_set(engine, number, &set);
    return 0;
}

static bool job_due(const struct engine *engine, uint32_t *ret_job)
{
    *ret_job = job_first_timer(engine);
    return *ret_job && job_timer_ms(job_at(engine, *ret_job)) <= engine->now_ms;
}

static bool key_due(const struct engine *engine, uint32_t *ret_key)
{
    *ret_key = key_first_timer(engine);
    return *ret_key && key_at(engine, *ret_key)->opens_ms <= engine->now_ms;
}

static void open_key(struct engine *engine, uint32_t key)
{
    /* A key is there as long as jobs are blocked by it. */
    atom_ref(engine, ATOM_KEY, key);
    key_set_timer_at(engine, key, 0);
    decide_topup(engine, key);
    key_set_timer(engine, key);
    atom_unref(engine, ATOM_KEY, key);
}

static bool queue_due(const struct engine *engine, uint32_t *ret_queue)
{
    *ret_queue = queue_first_timer(engine);
    return *ret_queue && queue_at(engine, *ret_queue)->opens_ms <= engine->now_ms;
}

static bool schedule_due(const struct engine *engine, uint32_t *ret_schedule)
{
    *ret_schedule = schedule_first_timer(engine);
    return *ret_schedule && schedule_at(engine, *ret_schedule)->next_ms <= engine->now_ms;
}

struct pace {
    int steps_left;
    size_t bytes_max;
};

static bool at_its_end(const struct engine *engine, struct pace *pace)
{
    if (engine->record.count - RECORD_HEAD_BYTES_MAX >= pace->bytes_max) return true;
    return pace->steps_left-- == 0;
}

/* What jobs, keys and queues are due for. 1: more of it. */
static int tick_jobs(struct engine *engine, struct pace *pace)
{
    uint32_t number;
    int r = 0;

    while (r >= 0 && job_due(engine, &number)) {
        if (at_its_end(engine, pace)) return 1;
        r = command_begin(engine, 0, 100);
        if (r == 0) r = ring(engine, number);
    }
    while (r >= 0 && key_due(engine, &number)) {
        if (at_its_end(engine, pace)) return 1;
        r = command_begin(engine, 0, 100);
        if (r == 0) open_key(engine, number);
    }
    while (r >= 0 && queue_due(engine, &number)) {
        if (at_its_end(engine, pace)) return 1;
        queue_set_timer_at(engine, number, 0);
        wake_queue(engine, number);
    }
    return r < 0 ? r : 0;
}

int engine_tick(struct engine *engine, int64_t now_ms, size_t bytes_max)
{
    struct pace pace = {ENGINE_TICK_STEPS, bytes_max};
    uint32_t number;
    int r = command_begin(engine, now_ms, 100);

    if (r == 0) r = tick_jobs(engine, &pace);
    if (r != 0) return r;
    while (r >= 0 && engine->zones_changed) {
        if (at_its_end(engine, &pace)) return 1;
        r = schedules_look_again(engine);
    }
    while (r >= 0 && schedule_due(engine, &number)) {
        if (at_its_end(engine, &pace)) return 1;
        r = schedule_fire(engine, number);
    }
    for (int i = 0; r >= 0 && i < ENGINE_BULK_CHUNK && bulk_is_due(engine); i++) {
        if (at_its_end(engine, &pace)) return 1;
        r = bulk_go_on(engine);
    }
    if (r < 0) return r;
    return bulk_is_due(engine) ? 1 : 0;
}

int64_t engine_next_ms(const struct engine *engine)
{
    uint32_t job = job_first_timer(engine);
    uint32_t key = key_first_timer(engine);
    uint32_t queue = queue_first_timer(engine);
    uint32_t schedule = schedule_first_timer(engine);
    int64_t next_ms = job ? job_timer_ms(job_at(engine, job)) : INT64_MAX;
    if (key && key_at(engine, key)->opens_ms < next_ms) next_ms = key_at(engine, key)->opens_ms;
    if (queue && queue_at(engine, queue)->opens_ms < next_ms) {
        next_ms = queue_at(engine, queue)->opens_ms;
    }
    if (schedule && schedule_at(engine, schedule)->next_ms < next_ms) {
        next_ms = schedule_at(engine, schedule)->next_ms;
    }
    return engine->zones_changed || bulk_is_due(engine) ? 0 : next_ms;
}
