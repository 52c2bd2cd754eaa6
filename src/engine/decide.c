/* decide.c - opening, and the parts that commands are made of. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "engine/state.h"

enum { COMMAND_BYTES = (ENGINE_MOVES_MAX + 16) * 200, PENDING_SPARE = 4 };

/* The longest commands, counted with operations of their greatest length:
 * - a claim: every job with its limit keys and its queue; every candidate that is put aside ends
 *   itself, its batch and two successors; all together move ENGINE_MOVES_MAX others;
 * - a set of jobs: its ids; - a job logged again: its names, policy and errors. */
enum {
    SET_BYTES = OP_SET_BYTES_MAX,
    ROW_BYTES = ENGINE_NAME_BYTES_MAX + 40, /* of a key or a queue */
    CLAIM_BYTES = ENGINE_CLAIM_MAX * (SET_BYTES + (ENGINE_LIMIT_KEYS_MAX + 1) * ROW_BYTES) +
                  (ENGINE_SKIP_MAX * 5 + ENGINE_MOVES_MAX) * SET_BYTES,
    BULK_BYTES = ENGINE_BULK_BYTES_MAX + 80,
    RELOG_BYTES = SET_BYTES + (7 + ENGINE_LIMIT_KEYS_MAX) * (ENGINE_NAME_BYTES_MAX + 2) +
                  POLICY_BYTES_MAX + 100 +
                  ENGINE_ERRORS_KEPT * (ENGINE_MESSAGE_BYTES_MAX + ENGINE_NAME_BYTES_MAX + 40),
    COMMAND_SLACK = 4096, /* of what was given: names and numbers around it; the head */
};
_Static_assert(CLAIM_BYTES + COMMAND_SLACK <= ENGINE_COMMAND_BYTES_MAX, "a claim is too long");
_Static_assert(BULK_BYTES + COMMAND_SLACK <= ENGINE_COMMAND_BYTES_MAX, "a set is too long");
_Static_assert(RELOG_BYTES + COMMAND_SLACK <= ENGINE_COMMAND_BYTES_MAX, "a job is too long");

/* ---- Opening ---- */

int engine_open(const struct engine_config *config, struct engine **ret_engine)
{
    struct memory memory = {.resize = config->resize, .arg = config->resize_arg};
    struct engine *engine;

    if (!config->resize || config->memory_bytes_max == 0 || config->depth_max == 0) return -EINVAL;
    if (config->history_ms < 0 || config->history_ms > ENGINE_SPAN_MS_MAX) return -EINVAL;
    if (config->dead_ms < 0 || config->dead_ms > ENGINE_SPAN_MS_MAX) return -EINVAL;
    engine = memory_resize(&memory, NULL, 0, sizeof *engine);
    if (!engine) return -ENOMEM;
    memset(engine, 0, sizeof *engine);
    engine->memory = memory;
    engine->config = *config;
    if (engine->config.message_bytes_max > ENGINE_MESSAGE_BYTES_MAX)
        engine->config.message_bytes_max = ENGINE_MESSAGE_BYTES_MAX;
    slab_init(&engine->jobs, sizeof(struct job));
    slab_init(&engine->lanes, sizeof(struct lane));
    slab_init(&engine->groups, sizeof(struct group));
    slab_init(&engine->gates, sizeof(struct gate));
    slab_init(&engine->failures, sizeof(struct failure));
    for (int type = 0; type < ATOM_TYPES; type++) {
        slab_init(&engine->atoms[type], atom_bytes((enum atom_type)type));
    }
    engine->job_table.neighbours = HASH_NEIGHBOURS_BITS;
    engine->record.count = RECORD_HEAD_BYTES_MAX;
    *ret_engine = engine;
    return 0;
}

void engine_close(struct engine *engine)
{
    struct memory memory;

    if (!engine) return;
    for (uint32_t i = 0; i < engine->job_table.room; i++) {
        uint32_t job = engine->job_table.slots[i];
        if (job) extra_free(engine, job_at(engine, job)->extra);
    }
    table_deinit(&engine->job_table, &engine->memory);
    table_deinit(&engine->group_table, &engine->memory);
    table_deinit(&engine->gate_table, &engine->memory);
    table_deinit(&engine->holders[HOLD_UNIQUE], &engine->memory);
    table_deinit(&engine->holders[HOLD_IDEMPOTENCY], &engine->memory);
    slab_deinit(&engine->jobs, &engine->memory);
    slab_deinit(&engine->lanes, &engine->memory);
    slab_deinit(&engine->groups, &engine->memory);
    slab_deinit(&engine->gates, &engine->memory);
    slab_deinit(&engine->failures, &engine->memory);
    schedules_deinit(engine);
    bulks_deinit(engine);
    atoms_deinit(engine);
    if (engine->record.bytes) {
        memory_resize(&engine->memory, engine->record.bytes, engine->record.room, 0);
    }
    if (engine->slice.bytes) {
        memory_resize(&engine->memory, engine->slice.bytes, engine->slice.room, 0);
    }
    if (engine->pending) {
        memory_resize(&engine->memory, engine->pending,
                      engine->pending_room * sizeof *engine->pending, 0);
    }
    memory = engine->memory;
    memory_resize(&memory, engine, sizeof *engine, 0);
    assert(memory.used == 0);
}

const char *engine_why(const struct engine *engine)
{
    return engine->why;
}

int64_t engine_now_ms(const struct engine *engine)
{
    return engine->now_ms;
}

size_t engine_memory_used(const struct engine *engine)
{
    return engine->memory.used;
}

uint64_t engine_steps(const struct engine *engine)
{
    return engine->steps;
}

int engine_refuse(struct engine *engine, int error, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(engine->why, sizeof engine->why, format, list);
    va_end(list);
    return error;
}

/* ---- Commands ---- */

int writer_reserve(struct engine *engine, struct writer *writer, size_t bytes)
{
    size_t room = writer->room ? writer->room : 4096;
    unsigned char *grown;

    if (writer->room - writer->count >= bytes && writer->bytes) return 0;
    while (room - writer->count < bytes) room *= 2;
    grown = memory_resize(&engine->memory, writer->bytes, writer->room, room);
    if (!grown) return -ENOMEM;
    writer->bytes = grown;
    writer->room = room;
    return 0;
}

static int pending_reserve(struct engine *engine, uint32_t jobs)
{
    uint32_t wanted = engine->pending_count + jobs * PENDING_SPARE;
    uint32_t room = engine->pending_room ? engine->pending_room : PENDING_POSITION_FIRST;
    uint32_t *grown;

    if (engine->pending_room >= wanted) return 0;
    while (room < wanted) room *= 2;
    grown = memory_resize(&engine->memory, engine->pending, engine->pending_room * sizeof *grown,
                          room * sizeof *grown);
    if (!grown) return -ENOMEM;
    engine->pending = grown;
    engine->pending_room = room;
    return 0;
}

/* For a command, beside what the record keeps for taking back what is in it. */
static int record_reserve(struct engine *engine, size_t bytes)
{
    return writer_reserve(engine, &engine->record, bytes + COMMAND_BYTES + engine->take_back_bytes);
}

int command_reserve(struct engine *engine, size_t bytes)
{
    if (record_reserve(engine, bytes) < 0 || pending_reserve(engine, 1) < 0 ||
        place_reserve(engine, 1) < 0)
        return engine_refuse(engine, -ENOMEM, "there is no memory to decide this in");
    return 0;
}

int command_begin(struct engine *engine, int64_t now_ms, size_t given_bytes)
{
    if (now_ms > ENGINE_TIME_MS_MAX) now_ms = ENGINE_TIME_MS_MAX;
    if (now_ms > engine->now_ms) engine->now_ms = now_ms;
    if (!engine->settling) engine->moves_left = ENGINE_MOVES_MAX;
    engine->command_at = engine->record.count;
    engine->command_given = given_bytes;
    if (engine->record.count == RECORD_HEAD_BYTES_MAX) writer_begin(engine, &engine->record, false);
    if (engine->follows) {
        engine->follows = false;
        keys_look_again(engine);
    }
    if (engine->settling) return 0; /* all of it is there */
    return command_reserve(engine, given_bytes);
}

/* ---- Several that end together ---- */

void engine_settle_end(struct engine *engine)
{
    for (uint32_t i = 0; i < engine->kept_text_count; i++) {
        struct kept_text *kept = &engine->kept_texts[i];
        if (kept->text) memory_resize(&engine->memory, kept->text, kept->bytes, 0);
    }
    engine->kept_text_count = 0;
    engine->settling = false;
}

int engine_settle_begin(struct engine *engine, const struct engine_settle *settles, uint32_t count)
{
    size_t bytes = 0;
    int r = 0;

    assert(!engine->settling && count <= ENGINE_SETTLE_MAX);
    for (uint32_t i = 0; i < count; i++) {
        bytes += settles[i].result_bytes + settles[i].class.count + settles[i].message.count + 100;
        bytes += COMMAND_BYTES;
    }
    r = record_reserve(engine, bytes);
    if (r == 0) r = pending_reserve(engine, count);
    if (r == 0) r = place_reserve(engine, count);
    for (uint32_t i = 0; r == 0 && i < count; i++) {
        if (settles[i].fails) r = failure_keep(engine, &settles[i]);
    }
    engine->settling = true;
    engine->moves_left = ENGINE_MOVES_MAX;
    if (r == 0) return 0;
    engine_settle_end(engine);
    return engine_refuse(engine, -ENOMEM, "there is no memory to decide this in");
}

int command_give(struct engine *engine, size_t given_bytes)
{
    engine->command_given = given_bytes;
    if (record_reserve(engine, given_bytes) == 0) return 0;
    return engine_refuse(engine, -ENOMEM, "there is no memory to decide this in");
}

void command_check(const struct engine *engine)
{
    assert(engine->record.count - engine->command_at <=
           ENGINE_COMMAND_BYTES_MAX - COMMAND_SLACK + engine->command_given);
}

static void wake(struct engine *engine, uint32_t number)
{
    struct queue *queue = queue_at(engine, number);

    if (queue->wake_next || queue->paused) return;
    atom_ref(engine, ATOM_QUEUE, number);
    queue->wake_next = number;
    if (engine->wake_last) {
        queue_at(engine, engine->wake_last)->wake_next = number;
    } else {
        engine->wake_first = number;
    }
    engine->wake_last = number;
}

void wake_queue(struct engine *engine, uint32_t queue)
{
    if (queue_at(engine, queue)->by_state[ENGINE_READY] > 0) wake(engine, queue);
}

bool engine_next_wake(struct engine *engine, struct engine_slice *ret_queue)
{
    uint32_t number = engine->wake_first;
    struct queue *queue;

    if (!number) return false;
    queue = queue_at(engine, number);
    engine->wake_first = queue->wake_next == number ? 0 : queue->wake_next;
    if (!engine->wake_first) engine->wake_last = 0;
    queue->wake_next = 0;
    memcpy(engine->woken, queue->atom.text, queue->atom.bytes);
    *ret_queue = (struct engine_slice){engine->woken, queue->atom.bytes};
    atom_unref(engine, ATOM_QUEUE, number);
    return true;
}

int command_op(struct engine *engine, const struct op *op)
{
    size_t before = engine->record.count;
    int r;

    assert(op->type != OP_SET); /* decide_set() */
    op_write(&engine->record, op);
    command_check(engine);
    r = apply_op(engine, op, POSITION_PENDING);
    if (r < 0) {
        engine->record.count = before;
        return engine_refuse(engine, r, "there is no memory for this");
    }
    return 0;
}

static uint64_t skipped(uint64_t last, uint64_t count)
{
    /* Far from the end, as records have to say it. */
    uint64_t last_max = UINT64_MAX / 4;
    if (last >= last_max) return last;
    return count < last_max - last ? last + count : last_max;
}

void engine_skip(struct engine *engine, uint64_t count)
{
    engine->last_id = skipped(engine->last_id, count);
    engine->last_token = skipped(engine->last_token, count);
}

/* ---- Jobs ---- */

void set_from(const struct job *job, struct op_set *ret_set)
{
    *ret_set = (struct op_set){
        .id = job->id,
        .state = job->state,
        .flags = job->flags,
        .blocked_on = job->blocked_on,
        .runs = job->runs,
        .attempts = job->attempts,
        .mark = job->mark,
        .when_ms = job->when_ms,
        .started_ms = job->started_ms,
        .note = job->note,
    };
}

void decide_set(struct engine *engine, uint32_t number, const struct op_set *set)
{
    const struct job *job = job_at(engine, number);

    assert(job->id == set->id);
    assert(state_may_become(job->state, set->state) || set->state == job->state);
    set_write(&engine->record, set);
    command_check(engine);
    apply_set(engine, number, set, POSITION_PENDING); /* nothing is allocated for it */
    if (set->state == ENGINE_READY) wake(engine, stage_at(engine, job->stage)->atom.scope);
}

static bool gate_has_room(const struct engine *engine, const struct job *job, uint32_t i)
{
    uint32_t key = job_limit(job, i);
    uint32_t gate = gate_find(engine, key, job->stage);
    uint32_t ready = gate ? gate_at(engine, gate)->ready : 0;
    return ready < key_free(engine, key_at(engine, key));
}

void fill_place(struct engine *engine, const struct job *job, struct op_set *set)
{
    set->state = ENGINE_READY;
    set->blocked_on = 0;
    for (uint32_t i = 0; i < job_limit_count(job); i++) {
        if (gate_has_room(engine, job, i)) continue;
        set->state = ENGINE_BLOCKED;
        set->blocked_on = (uint8_t)i;
        break;
    }
    set->to = turn_after_take(engine, job, set->state, set->blocked_on);
}

void fill_onward(struct engine *engine, const struct job *job, int64_t run_at_ms,
                 struct op_set *set)
{
    set->note = 0;
    set->when_ms = run_at_ms;
    set->mark = 0;
    set->blocked_on = 0;
    set->flags &= JOB_COUNTED;
    if (run_at_ms > engine->now_ms) {
        set->state = ENGINE_SCHEDULED;
        return;
    }
    set->mark = ++engine->last_mark;
    fill_place(engine, job, set);
}

/* Until when a job that ends now is kept. */
static int64_t keep_until(const struct engine *engine, const struct job *job,
                          enum engine_state state)
{
    const struct policy_text *says = &policy_at(engine, job->policy)->says;
    int64_t until_ms = engine->now_ms +
                       (state == ENGINE_DEAD ? engine->config.dead_ms : engine->config.history_ms);
    if (job_has_idempotency_key(job) && job->created_ms + says->idempotency_ms > until_ms) {
        until_ms = job->created_ms + says->idempotency_ms;
    }
    if (job_has_unique_key(job) && says->unique_states & ENGINE_STATE_BIT(state) &&
        job->created_ms + says->unique_ms > until_ms) {
        until_ms = job->created_ms + says->unique_ms;
    }
    return until_ms;
}

void decide_topup(struct engine *engine, uint32_t key)
{
    for (;;) {
        uint32_t best = 0;
        struct op_set set;
        const struct job *job;
        uint32_t room = key_free(engine, key_at(engine, key));

        for (uint32_t at = key_at(engine, key)->gates; at; at = gate_at(engine, at)->next) {
            const struct gate *gate = gate_at(engine, at);
            uint32_t first;
            step(engine);
            if (gate->blocked == 0 || gate->ready >= room) continue;
            first = job_first_of_lane(engine, gate->lanes.first);
            if (!best || job_at(engine, first)->mark < job_at(engine, best)->mark) best = first;
        }
        if (!best) break;
        if (engine->moves_left == 0) {
            key_todo(engine, key);
            break;
        }
        engine->moves_left--;
        job = job_at(engine, best);
        set_from(job, &set);
        set.from = turn_after_give(engine, lane_at(engine, job->lane)->group);
        set.from_gate = (uint8_t)(job->blocked_on + 1);
        fill_place(engine, job, &set);
        decide_set(engine, best, &set);
    }
}

void key_todo(struct engine *engine, uint32_t number)
{
    struct key *key = key_at(engine, number);
    if (key->opens_ms == KEY_AT_ONCE) return;
    key_set_timer_at(engine, number, KEY_AT_ONCE);
}

void decide_successor(struct engine *engine, uint32_t chain_number)
{
    const struct chain *chain = chain_number ? chain_at(engine, chain_number) : NULL;
    struct op_set set;
    uint32_t next;

    if (!chain || chain->active > 0 || !chain->held) return;
    next = chain_first_held(engine, chain);
    set_from(job_at(engine, next), &set);
    fill_onward(engine, job_at(engine, next), set.when_ms, &set);
    decide_set(engine, next, &set);
}

void decide_topups(struct engine *engine, const struct job *job)
{
    for (uint32_t i = 0; i < job_limit_count(job); i++) decide_topup(engine, job_limit(job, i));
}

static void trim_history(struct engine *engine, const struct queue *queue)
{
    while (queue->history.count > engine->config.history_count_max && engine->moves_left > 0) {
        struct op op WEIR_UNINITIALIZED_;

        op.type = OP_FORGET;
        op.forget = queue->history.first_id;
        job_see(engine, op.forget, queue->history.ends.first);
        engine->moves_left--;
        command_op(engine, &op);
    }
}

/* What it says now; the batch that it is to be counted out of, or 0. */
static uint64_t set_counted(const struct job *job, struct op_set *set)
{
    uint64_t batch = job->flags & JOB_COUNTED ? 0 : job_batch(job);

    set_from(job, set);
    set->flags = job_batch(job) ? JOB_COUNTED : 0;
    return batch;
}

void decide_end_kept(struct engine *engine, uint32_t number, enum engine_state state,
                     struct engine_slice result)
{
    const struct job *job = job_at(engine, number);
    struct op_set set;
    uint64_t batch;

    history_foresee(engine, queue_of(engine, job));
    batch = set_counted(job, &set);
    set.state = state;
    set.mark = 0;
    set.blocked_on = 0;
    set.when_ms = keep_until(engine, job, state);
    set.note = (uint32_t)result.count;
    set.has_result = result.count > 0;
    set.result = result;
    decide_set(engine, number, &set);
    tell_ended(engine, set.id, state);
    if (batch) batch_leave(engine, batch, state);
    decide_successor(engine, job_chain(job));
    decide_topups(engine, job);
}

void decide_end(struct engine *engine, uint32_t number, enum engine_state state,
                struct engine_slice result)
{
    uint32_t queue = stage_at(engine, job_at(engine, number)->stage)->atom.scope;

    decide_end_kept(engine, number, state, result);
    /* The queue goes with its last job. */
    atom_ref(engine, ATOM_QUEUE, queue);
    trim_history(engine, queue_at(engine, queue));
    atom_unref(engine, ATOM_QUEUE, queue);
}

uint32_t jitter_below(const struct engine *engine, const struct job *job, uint32_t bound)
{
    uint64_t random = hash_number(hash_number(engine->config.seed ^ job->id) + job->runs);
    return (uint32_t)((random >> 32) * bound >> 32);
}
