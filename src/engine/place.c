/* place.c - where jobs wait to be claimed: lanes of stages and gates, groups that take turns.
 *
 * A claim takes the first job of the first lane of a stage: lanes are ordered by priority, then by
 * their group's turn. A group gives as many jobs as its weight, then its turn is the last: deficit
 * round robin with jobs of cost 1. A group without jobs is forgotten, and with it its deficit. */
#include <errno.h>

#include "engine/state.h"

enum { RESERVE_OWN = 16 }; /* of a job that ends: itself, its batch, those that come after them */

/* ---- Trees ---- */

static struct tree_links *lane_links(const void *engine, uint32_t lane)
{
    step(engine);
    return &lane_at(engine, lane)->links;
}

bool lane_before(const void *engine, uint32_t a, uint32_t b)
{
    const struct group *one = group_at(engine, lane_at(engine, a)->group);
    const struct group *two = group_at(engine, lane_at(engine, b)->group);
    if (one->priority != two->priority) return one->priority > two->priority;
    return one->turn != two->turn ? one->turn < two->turn : a < b;
}

static struct tree_links *place_links(const void *engine, uint32_t job)
{
    step(engine);
    return &job_at(engine, job)->place;
}

static bool came_before(const void *engine, uint32_t a, uint32_t b)
{
    const struct job *one = job_at(engine, a);
    const struct job *two = job_at(engine, b);
    return one->mark != two->mark ? one->mark < two->mark : one->id < two->id;
}

static uint32_t *lane_parent(const void *engine, uint32_t lane)
{
    return &lane_at(engine, lane)->parent;
}

uint32_t stage_first_lane(const struct stage *stage)
{
    if (!stage->priorities) return 0;
    return stage->lanes[31 - __builtin_clz(stage->priorities)].first;
}

uint32_t job_first_of_lane(const struct engine *engine, uint32_t lane)
{
    return tree_first(lane_at(engine, lane)->jobs, place_links, engine);
}

/* ---- Groups ---- */

static uint64_t group_hash_of(uint32_t queue, uint32_t gate, uint32_t fair, uint8_t priority)
{
    return hash_number(hash_number((uint64_t)queue << 32 | gate) ^
                       ((uint64_t)fair << 8 | priority));
}

static uint64_t group_hash(const void *engine, uint32_t number)
{
    const struct group *group = group_at(engine, number);
    return group_hash_of(group->queue, group->gate, group->fair, group->priority);
}

static bool is_group(const struct group *group, uint32_t queue, uint32_t gate, uint32_t fair,
                     uint8_t priority)
{
    return group->fair == fair && group->priority == priority && group->queue == queue &&
           group->gate == gate;
}

/* Who was found last is mostly who is looked for next. */
static void see_group(const struct engine *engine, uint32_t group)
{
    ((struct engine *)(uintptr_t)engine)->seen_group = group;
}

static uint32_t group_find(const struct engine *engine, uint32_t queue, uint32_t gate,
                           uint32_t fair, uint8_t priority)
{
    uint32_t found = engine->seen_group;
    uint32_t at = TABLE_BEGIN;
    uint64_t hash;

    if (found && is_group(group_at(engine, found), queue, gate, fair, priority)) return found;
    hash = group_hash_of(queue, gate, fair, priority);
    while ((found = table_next(&engine->group_table, hash, &at)) != 0) {
        step(engine);
        if (!is_group(group_at(engine, found), queue, gate, fair, priority)) continue;
        see_group(engine, found);
        return found;
    }
    return 0;
}

static struct tree_ends *lane_ends(const struct engine *engine, const struct lane *lane)
{
    if (!lane->stage) return &gate_at(engine, lane->gate)->lanes;
    return &stage_at(engine, lane->stage)->lanes[group_at(engine, lane->group)->priority];
}

static void lane_join(struct engine *engine, uint32_t number)
{
    const struct lane *lane = lane_at(engine, number);

    tree_ends_add(lane_ends(engine, lane), number, lane_links, lane_parent, lane_before, engine);
    if (lane->stage) {
        stage_at(engine, lane->stage)->priorities |= 1u << group_at(engine, lane->group)->priority;
    }
}

static void lane_leave(struct engine *engine, uint32_t number)
{
    const struct lane *lane = lane_at(engine, number);
    struct tree_ends *ends = lane_ends(engine, lane);

    tree_ends_remove(ends, number, lane_links, lane_parent, engine);
    if (lane->stage && !ends->root) {
        stage_at(engine, lane->stage)->priorities &=
            ~(1u << group_at(engine, lane->group)->priority);
    }
}

void group_set_turn(struct engine *engine, uint32_t number, const struct op_turn *turn)
{
    struct group *group = group_at(engine, number);
    uint32_t deficit = turn->deficit ? turn->deficit : 1;

    /* Turns rise, and in a turn the deficit falls. What says otherwise is older: it comes from the
     * log behind a snapshot, in which the job of a newer one may be gone. */
    if (turn->turn < group->turn || turn->turn == 0) return;
    if (turn->turn == group->turn) {
        if (deficit < group->deficit) group->deficit = deficit;
        return;
    }
    group->deficit = deficit;
    for (uint32_t at = group->lanes; at; at = lane_at(engine, at)->group_next) {
        lane_leave(engine, at);
    }
    group->turn = turn->turn;
    for (uint32_t at = group->lanes; at; at = lane_at(engine, at)->group_next) {
        lane_join(engine, at);
    }
}

bool place_is(const struct job *job, uint8_t from_gate)
{
    if (!job->lane) return false;
    return job->state == ENGINE_READY ? from_gate == 0 : from_gate == job->blocked_on + 1;
}

void place_set_turn_left(struct engine *engine, const struct job *job, const struct op_turn *turn)
{
    const struct lane *lane = lane_at(engine, job->lane);
    const struct tree_links *links = &job_at(engine, lane->jobs)->place;
    bool is_alone = !links->left && !links->right && !lane->group_next &&
                    group_at(engine, lane->group)->lanes == job->lane;

    if (!is_alone) group_set_turn(engine, lane->group, turn);
}

static uint32_t weight_of(const struct engine *engine, uint32_t fair)
{
    uint32_t weight = fair ? key_at(engine, fair)->weight : 1;
    return weight ? weight : 1;
}

struct op_turn turn_after_give(struct engine *engine, uint32_t number)
{
    const struct group *group = group_at(engine, number);
    if (group->deficit > 1) return (struct op_turn){group->turn, group->deficit - 1};
    return (struct op_turn){++engine->last_turn, weight_of(engine, group->fair)};
}

uint32_t place_group(const struct engine *engine, const struct job *job, enum engine_state state,
                     uint32_t blocked_on)
{
    uint32_t gate;
    if (state == ENGINE_READY) {
        return group_find(engine, stage_at(engine, job->stage)->atom.scope, 0, job->fair,
                          job->priority);
    }
    gate = gate_find(engine, job_limit(job, blocked_on), job->stage);
    return gate ? group_find(engine, 0, gate, job->fair, job->priority) : 0;
}

struct op_turn turn_after_take(struct engine *engine, const struct job *job,
                               enum engine_state state, uint32_t blocked_on)
{
    uint32_t number = place_group(engine, job, state, blocked_on);
    const struct group *group;
    if (!number) return (struct op_turn){++engine->last_turn, weight_of(engine, job->fair)};
    group = group_at(engine, number);
    return (struct op_turn){group->turn, group->deficit};
}

static uint32_t group_get(struct engine *engine, uint32_t queue, uint32_t gate, uint32_t fair,
                          uint8_t priority)
{
    uint32_t number = group_find(engine, queue, gate, fair, priority);
    if (number) return number;
    number = slab_take(&engine->groups);
    *group_at(engine, number) = (struct group){
        .queue = queue, .gate = gate, .fair = fair, .priority = priority, .deficit = 1};
    table_insert(&engine->group_table, group_hash(engine, number), number);
    return number;
}

/* ---- Lanes ---- */

static uint32_t lane_get(struct engine *engine, uint32_t group, uint32_t stage, uint32_t gate,
                         const struct op_turn *turn)
{
    struct lane *lane;
    uint32_t number;

    for (number = group_at(engine, group)->lanes; number; number = lane->group_next) {
        step(engine);
        lane = lane_at(engine, number);
        if (lane->stage == stage && lane->gate == gate) break;
    }
    if (number) {
        group_set_turn(engine, group, turn);
        return number;
    }
    group_set_turn(engine, group, turn);
    number = slab_take(&engine->lanes);
    lane = lane_at(engine, number);
    lane->stage = stage;
    lane->gate = gate;
    lane->group = group;
    lane->group_next = group_at(engine, group)->lanes;
    group_at(engine, group)->lanes = number;
    lane_join(engine, number);
    return number;
}

static void lane_drop(struct engine *engine, uint32_t number)
{
    struct lane *lane = lane_at(engine, number);
    uint32_t group = lane->group;
    uint32_t *at = &group_at(engine, group)->lanes;

    lane_leave(engine, number);
    while (*at != number) at = &lane_at(engine, *at)->group_next;
    *at = lane->group_next;
    slab_give(&engine->lanes, number);
    if (group_at(engine, group)->lanes) return;
    table_remove(&engine->group_table, group_hash(engine, group), group, group_hash, engine);
    if (engine->seen_group == group) see_group(engine, 0);
    slab_give(&engine->groups, group);
}

/* ---- Gates ---- */

static uint64_t gate_hash_of(uint32_t key, uint32_t stage)
{
    return hash_number((uint64_t)key << 32 | stage);
}

static uint64_t gate_hash(const void *engine, uint32_t number)
{
    const struct gate *gate = gate_at(engine, number);
    return gate_hash_of(gate->key, gate->stage);
}

uint32_t gate_find(const struct engine *engine, uint32_t key, uint32_t stage)
{
    uint32_t at = TABLE_BEGIN;
    uint32_t found = key_at(engine, key)->gates;
    uint64_t hash;

    /* Most keys have jobs of one stage. */
    if (!found || gate_at(engine, found)->stage == stage) return found;
    hash = gate_hash_of(key, stage);
    while ((found = table_next(&engine->gate_table, hash, &at)) != 0) {
        const struct gate *gate = gate_at(engine, found);
        step(engine);
        if (gate->key == key && gate->stage == stage) return found;
    }
    return 0;
}

static uint32_t gate_get(struct engine *engine, uint32_t key, uint32_t stage)
{
    uint32_t number = gate_find(engine, key, stage);
    if (number) return number;
    number = slab_take(&engine->gates);
    *gate_at(engine, number) =
        (struct gate){.key = key, .stage = stage, .next = key_at(engine, key)->gates};
    key_at(engine, key)->gates = number;
    table_insert(&engine->gate_table, gate_hash(engine, number), number);
    return number;
}

static void gate_put(struct engine *engine, uint32_t number)
{
    struct gate *gate = gate_at(engine, number);
    uint32_t *at = &key_at(engine, gate->key)->gates;

    if (gate->ready > 0 || gate->blocked > 0) return;
    while (*at != number) at = &gate_at(engine, *at)->next;
    *at = gate->next;
    table_remove(&engine->gate_table, gate_hash(engine, number), number, gate_hash, engine);
    slab_give(&engine->gates, number);
}

/* ---- Jobs ---- */

/* Nearly all come behind the last one. */
static void lane_add_job(struct engine *engine, struct lane *lane, uint32_t number)
{
    uint32_t last = lane->last;

    if (last && came_before(engine, number, last)) {
        tree_add(&lane->jobs, number, place_links, came_before, engine);
        return;
    }
    tree_append(&lane->jobs, last, number, place_links, engine);
    lane->last = number;
}

static void lane_remove_job(struct engine *engine, struct lane *lane, uint32_t number)
{
    tree_remove(&lane->jobs, number, place_links, came_before, engine);
    if (lane->last == number) lane->last = tree_last(lane->jobs, place_links, engine);
}

int place_reserve(struct engine *engine, uint32_t jobs)
{
    struct memory *memory = &engine->memory;
    uint32_t moves = ENGINE_MOVES_MAX + jobs * RESERVE_OWN;
    uint32_t gates = moves * ENGINE_LIMIT_KEYS_MAX;

    if (slab_ensure(&engine->lanes, memory, moves) < 0) return -ENOMEM;
    if (slab_ensure(&engine->groups, memory, moves) < 0) return -ENOMEM;
    if (slab_ensure(&engine->gates, memory, gates) < 0) return -ENOMEM;
    if (table_ensure(&engine->group_table, memory, moves, group_hash, engine) < 0) {
        return -ENOMEM;
    }
    return table_ensure(&engine->gate_table, memory, gates, gate_hash, engine);
}

void place_link(struct engine *engine, uint32_t number, const struct op_turn *turn)
{
    struct job *job = job_at(engine, number);
    struct stage *stage = stage_at(engine, job->stage);
    uint32_t gate = 0;
    uint32_t group;

    if (job->state == ENGINE_READY) {
        for (uint32_t i = 0; i < job_limit_count(job); i++) {
            gate_at(engine, gate_get(engine, job_limit(job, i), job->stage))->ready++;
        }
        stage->ready++;
        group = group_get(engine, stage->atom.scope, 0, job->fair, job->priority);
        job->lane = lane_get(engine, group, job->stage, 0, turn);
    } else {
        uint32_t key = job_limit(job, job->blocked_on);
        gate = gate_get(engine, key, job->stage);
        gate_at(engine, gate)->blocked++;
        key_at(engine, key)->blocked++;
        group = group_get(engine, 0, gate, job->fair, job->priority);
        job->lane = lane_get(engine, group, 0, gate, turn);
    }
    lane_add_job(engine, lane_at(engine, job->lane), number);
}

void place_unlink(struct engine *engine, uint32_t number)
{
    struct job *job = job_at(engine, number);

    lane_remove_job(engine, lane_at(engine, job->lane), number);
    if (!lane_at(engine, job->lane)->jobs) lane_drop(engine, job->lane);
    job->lane = 0;
    if (job->state == ENGINE_READY) {
        for (uint32_t i = 0; i < job_limit_count(job); i++) {
            uint32_t gate = gate_find(engine, job_limit(job, i), job->stage);
            gate_at(engine, gate)->ready--;
            gate_put(engine, gate);
        }
        stage_at(engine, job->stage)->ready--;
    } else {
        uint32_t key = job_limit(job, job->blocked_on);
        uint32_t gate = gate_find(engine, key, job->stage);
        gate_at(engine, gate)->blocked--;
        key_at(engine, key)->blocked--;
        gate_put(engine, gate);
    }
}
