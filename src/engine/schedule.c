/* schedule.c - jobs that come again at times. A schedule is a row with its text, the name of its
 * zone and the job as it will be enqueued; when it comes next is a decision, and logged: so a
 * restart needs no zone to know it. */
#include <errno.h>

#include "engine/state.h"

/* ---- Rows ---- */

static struct tree_links *timer_links(const void *engine, uint32_t schedule)
{
    step(engine);
    return &schedule_at(engine, schedule)->timer;
}

static bool comes_before(const void *engine, uint32_t a, uint32_t b)
{
    const struct schedule *one = schedule_at(engine, a);
    const struct schedule *two = schedule_at(engine, b);
    return one->next_ms != two->next_ms ? one->next_ms < two->next_ms
                                        : atom_before(&one->atom, &two->atom);
}

uint32_t schedule_first_timer(const struct engine *engine)
{
    return tree_first(engine->schedule_timers, timer_links, engine);
}

static bool has_timer(const struct schedule *schedule)
{
    return schedule->next_ms > 0 && !schedule->paused;
}

static void timer_remove(struct engine *engine, uint32_t number)
{
    if (!has_timer(schedule_at(engine, number))) return;
    tree_remove(&engine->schedule_timers, number, timer_links, comes_before, engine);
}

static void timer_add(struct engine *engine, uint32_t number)
{
    if (!has_timer(schedule_at(engine, number))) return;
    tree_add(&engine->schedule_timers, number, timer_links, comes_before, engine);
}

static size_t bytes_of(const struct schedule *schedule)
{
    return (size_t)schedule->text_bytes + schedule->zone_bytes + schedule->job_bytes;
}

static struct engine_slice text_of(const struct schedule *schedule)
{
    return (struct engine_slice){schedule->bytes, schedule->text_bytes};
}

static struct engine_slice zone_of(const struct schedule *schedule)
{
    return (struct engine_slice){schedule->bytes + schedule->text_bytes, schedule->zone_bytes};
}

static struct engine_slice job_of(const struct schedule *schedule)
{
    return (struct engine_slice){schedule->bytes + schedule->text_bytes + schedule->zone_bytes,
                                 schedule->job_bytes};
}

struct op_schedule schedule_says(const struct schedule *schedule)
{
    return (struct op_schedule){
        .name = atom_text(&schedule->atom),
        .text = text_of(schedule),
        .zone = zone_of(schedule),
        .overlap = schedule->overlap,
        .catch_up = schedule->catch_up,
        .paused = schedule->paused,
        .next_ms = schedule->next_ms,
        .last_id = schedule->last_id,
        .job = job_of(schedule),
    };
}

int apply_schedule(struct engine *engine, const struct op_schedule *op)
{
    size_t count = op->text.count + op->zone.count + op->job.count;
    char *bytes = memory_resize(&engine->memory, NULL, 0, count);
    uint32_t number = bytes ? atom_get(engine, ATOM_SCHEDULE, 0, 0, op->name) : 0;
    struct schedule *schedule;

    if (!number) {
        if (bytes) memory_resize(&engine->memory, bytes, count, 0);
        return -ENOMEM;
    }
    schedule = schedule_at(engine, number);
    if (schedule->bytes) {
        timer_remove(engine, number);
        memory_resize(&engine->memory, schedule->bytes, bytes_of(schedule), 0);
        schedule->atom.refs--; /* it has its own reference already */
    }
    memcpy(bytes, op->text.at, op->text.count);
    if (op->zone.count) memcpy(bytes + op->text.count, op->zone.at, op->zone.count);
    memcpy(bytes + op->text.count + op->zone.count, op->job.at, op->job.count);
    schedule->bytes = bytes;
    schedule->text_bytes = (uint32_t)op->text.count;
    schedule->zone_bytes = (uint32_t)op->zone.count;
    schedule->job_bytes = (uint32_t)op->job.count;
    schedule->overlap = op->overlap;
    schedule->catch_up = op->catch_up;
    schedule->paused = op->paused;
    schedule->next_ms = op->next_ms;
    schedule->last_id = op->last_id;
    timer_add(engine, number);
    return 0;
}

void apply_scheduled(struct engine *engine, const struct op_schedule *op)
{
    uint32_t number = atom_find(engine, ATOM_SCHEDULE, 0, 0, op->name);
    if (!number) return;
    timer_remove(engine, number);
    schedule_at(engine, number)->next_ms = op->next_ms;
    schedule_at(engine, number)->last_id = op->last_id;
    timer_add(engine, number);
}

void apply_unschedule(struct engine *engine, struct engine_slice name)
{
    uint32_t number = atom_find(engine, ATOM_SCHEDULE, 0, 0, name);
    struct schedule *schedule;

    if (!number) return;
    schedule = schedule_at(engine, number);
    timer_remove(engine, number);
    memory_resize(&engine->memory, schedule->bytes, bytes_of(schedule), 0);
    schedule->bytes = NULL;
    atom_unref(engine, ATOM_SCHEDULE, number);
}

/* ---- Zones ---- */

static bool is_named(const struct named_zone *zone, struct engine_slice name)
{
    return zone->name_bytes == name.count && memcmp(zone->name, name.at, name.count) == 0;
}

static void zone_drop(struct engine *engine, struct engine_slice name)
{
    for (struct named_zone **at = &engine->zones; *at; at = &(*at)->next) {
        struct named_zone *zone = *at;
        if (!is_named(zone, name)) continue;
        *at = zone->next;
        memory_resize(&engine->memory, zone, zone->bytes, 0);
        return;
    }
}

static int refuse_zone(struct engine *engine, struct engine_slice name, const char *why)
{
    return engine_refuse(engine, -EINVAL, "zone '%.*s': %s", (int)name.count, (const char *)name.at,
                         why);
}

int engine_zone_set(struct engine *engine, struct engine_slice name, struct engine_slice tzif)
{
    struct named_zone *zone;
    char why[ZONE_WHY_BYTES];
    size_t value_bytes, bytes;

    if (name.count == 0 || name.count > ENGINE_NAME_BYTES_MAX) {
        return engine_refuse(engine, -EINVAL, "zone: name is not set or too long");
    }
    if (zone_measure(tzif.at, tzif.count, &value_bytes, why, sizeof why) < 0) {
        return refuse_zone(engine, name, why);
    }
    bytes = offsetof(struct named_zone, zone) + value_bytes;
    zone = memory_resize(&engine->memory, NULL, 0, bytes);
    if (!zone) return engine_refuse(engine, -ENOMEM, "there is no memory for the zone");
    if (zone_parse(tzif.at, tzif.count, &zone->zone, value_bytes, why, sizeof why) < 0) {
        memory_resize(&engine->memory, zone, bytes, 0);
        return refuse_zone(engine, name, why);
    }
    zone->bytes = bytes;
    zone->name_bytes = name.count;
    memcpy(zone->name, name.at, name.count);
    zone_drop(engine, name);
    zone->next = engine->zones;
    engine->zones = zone;
    engine->zones_changed = true;
    engine->zones_at = 0;
    return 0;
}

/* NULL: it is not there. */
static const struct zone *find_zone(const struct engine *engine, struct engine_slice name)
{
    if (name.count == 0 || (name.count == 3 && memcmp(name.at, "UTC", 3) == 0)) return zone_utc();
    for (const struct named_zone *at = engine->zones; at; at = at->next) {
        if (is_named(at, name)) return &at->zone;
    }
    return NULL;
}

void schedules_deinit(struct engine *engine)
{
    const struct table *table = &engine->atom_tables[ATOM_SCHEDULE];

    for (uint32_t i = 0; i < table->room; i++) {
        struct schedule *schedule;
        if (!table->slots[i]) continue;
        schedule = schedule_at(engine, table->slots[i]);
        memory_resize(&engine->memory, schedule->bytes, bytes_of(schedule), 0);
    }
    while (engine->zones) {
        struct named_zone *zone = engine->zones;
        engine->zones = zone->next;
        memory_resize(&engine->memory, zone, zone->bytes, 0);
    }
}

/* ---- Decisions ---- */

/* When it comes after a time; 0: never, or its zone is not there. */
static int64_t next_after(const struct engine *engine, struct engine_slice text,
                          struct engine_slice zone_name, int64_t after_ms)
{
    const struct zone *zone = find_zone(engine, zone_name);
    struct cron cron;
    int64_t next_ms;

    if (!zone || cron_parse(text.at, text.count, &cron, NULL, 0) < 0) return 0;
    if (cron_next(&cron, zone, after_ms, &next_ms) < 0) return 0;
    return next_ms <= ENGINE_TIME_MS_MAX ? next_ms : 0;
}

static int check_schedule(struct engine *engine, const struct engine_schedule_spec *spec)
{
    const struct engine_job_spec *job = &spec->job;
    char why[CRON_WHY_BYTES];
    struct cron cron;

    if (spec->name.count == 0 || spec->name.count > ENGINE_NAME_BYTES_MAX ||
        spec->zone.count > ENGINE_NAME_BYTES_MAX || spec->cron.count > ENGINE_NAME_BYTES_MAX) {
        return engine_refuse(engine, -EINVAL,
                             "schedule: name, zone or cron is not set or too long");
    }
    if (!spec->overlap || spec->overlap > ENGINE_OVERLAP_SKIP || !spec->catch_up ||
        spec->catch_up > ENGINE_CATCH_UP_ALL) {
        return engine_refuse(engine, -EINVAL, "schedule '%.*s': overlap or catch_up is not set",
                             (int)spec->name.count, (const char *)spec->name.at);
    }
    if (cron_parse(spec->cron.at, spec->cron.count, &cron, why, sizeof why) < 0) {
        return engine_refuse(engine, -EINVAL, "schedule '%.*s': %s", (int)spec->name.count,
                             (const char *)spec->name.at, why);
    }
    if (job->run_at_ms || job->expires_ms || job->idempotency_key.count || job->batch ||
        job->gathers) {
        return engine_refuse(engine, -EINVAL,
                             "schedule '%.*s': its job has a time, an idempotency key or a batch",
                             (int)spec->name.count, (const char *)spec->name.at);
    }
    return check_spec(engine, job);
}

static int write_schedule(struct engine *engine, const struct engine_schedule_spec *spec,
                          struct writer *writer)
{
    unsigned char policy_bytes[POLICY_BYTES_MAX];
    struct writer policy = {policy_bytes, 0, sizeof policy_bytes};
    uint32_t number = atom_find(engine, ATOM_SCHEDULE, 0, 0, spec->name);
    struct op op = {.type = OP_JOB};
    int r;

    fill_policy(&spec->job, &policy);
    fill_job(engine, &spec->job, &op.job);
    op.job.created_ms = 0;
    op.job.policy = (struct engine_slice){policy_bytes, policy.count};
    op.job.set = (struct op_set){.id = 1, .state = ENGINE_HELD};
    r = writer_reserve(engine, writer, op_bytes_max(&op));
    if (r < 0) return engine_refuse(engine, r, "there is no memory for the schedule");
    job_write(writer, &op.job);
    op = (struct op){.type = OP_SCHEDULE};
    op.schedule = (struct op_schedule){
        .name = spec->name,
        .text = spec->cron,
        .zone = spec->zone,
        .overlap = (uint8_t)spec->overlap,
        .catch_up = (uint8_t)spec->catch_up,
        .paused = spec->paused,
        .next_ms = next_after(engine, spec->cron, spec->zone, engine->now_ms),
        .last_id = number ? schedule_at(engine, number)->last_id : 0,
        .job = {writer->bytes, writer->count},
    };
    r = command_begin(engine, 0, op_bytes_max(&op));
    return r < 0 ? r : command_op(engine, &op);
}

int engine_schedule_set(struct engine *engine, int64_t now_ms,
                        const struct engine_schedule_spec *spec)
{
    struct writer writer = {0};
    int r = command_begin(engine, now_ms, 0);

    if (r == 0) r = check_schedule(engine, spec);
    if (r == 0) r = write_schedule(engine, spec, &writer);
    if (writer.bytes) memory_resize(&engine->memory, writer.bytes, writer.room, 0);
    return r;
}

int engine_schedule_drop(struct engine *engine, int64_t now_ms, struct engine_slice name)
{
    struct op op = {.type = OP_UNSCHEDULE, .schedule = {.name = name}};
    int r = command_begin(engine, now_ms, 300);

    if (r < 0) return r;
    if (!atom_find(engine, ATOM_SCHEDULE, 0, 0, name)) {
        return engine_refuse(engine, -ENOENT, "schedule: there is none of this name");
    }
    return command_op(engine, &op);
}

int engine_schedule_get(const struct engine *engine, struct engine_slice name,
                        struct engine_schedule *ret_schedule)
{
    uint32_t number = atom_find(engine, ATOM_SCHEDULE, 0, 0, name);
    const struct schedule *schedule;

    if (!number) return -ENOENT;
    schedule = schedule_at(engine, number);
    *ret_schedule = (struct engine_schedule){
        .next_ms = schedule->next_ms,
        .last_id = schedule->last_id,
        .paused = schedule->paused,
        .zone_missing = !find_zone(engine, zone_of(schedule)),
        .skipped = schedule->skipped,
    };
    return 0;
}

static void decide_scheduled(struct engine *engine, uint32_t number, int64_t next_ms,
                             uint64_t last_id)
{
    struct op op = {.type = OP_SCHEDULED};
    op.schedule.name = atom_text(&schedule_at(engine, number)->atom);
    op.schedule.next_ms = next_ms;
    op.schedule.last_id = last_id;
    command_op(engine, &op);
}

static void spec_of(const struct op_job *job, struct engine_job_spec *spec)
{
    struct policy_text policy = {0};

    policy_read(job->policy, &policy);
    *spec = (struct engine_job_spec){
        .queue = job->queue,
        .kind = job->kind,
        .version = job->version,
        .payload = job->payload,
        .trace = job->trace,
        .tags = job->tags,
        .priority = job->priority,
        .timeout_ms = policy.timeout_ms,
        .retry = {.attempts_max = (uint16_t)policy.attempts_max,
                  .backoff_ms = policy.backoff_ms,
                  .backoff_ms_max = policy.backoff_ms_max,
                  .jitter = policy.jitter,
                  .never_count = policy.never_count},
        .idempotent = policy.idempotent,
        .unique_key = job->unique_key,
        .unique_ms = policy.unique_ms,
        .unique_states = policy.unique_states,
        .limit_key_count = job->limit_key_count,
        .fairness_key = job->fairness_key,
        .order_key = job->order_key,
    };
    memcpy(spec->retry.never, policy.never, sizeof policy.never);
    memcpy(spec->limit_keys, job->limit_keys, sizeof job->limit_keys);
}

static bool is_skipped(const struct engine *engine, const struct schedule *schedule)
{
    uint32_t last = schedule->last_id ? job_find(engine, schedule->last_id) : 0;

    if (schedule->catch_up == ENGINE_CATCH_UP_NONE &&
        engine->now_ms - schedule->next_ms > ENGINE_LATE_MS)
        return true;
    return schedule->overlap == ENGINE_OVERLAP_SKIP && last &&
           job_at(engine, last)->state < ENGINE_DONE;
}

int schedule_fire(struct engine *engine, uint32_t number)
{
    struct schedule *schedule = schedule_at(engine, number);
    struct engine_enqueued enqueued = {.id = schedule->last_id};
    bool each = schedule->catch_up == ENGINE_CATCH_UP_ALL;
    int64_t after_ms = each ? schedule->next_ms : engine->now_ms;
    struct engine_job_spec spec;
    struct op_job job;
    int r = command_begin(engine, 0, schedule->job_bytes + 1000);

    if (r < 0) return r;
    if (is_skipped(engine, schedule)) {
        schedule->skipped++;
    } else {
        job_read(job_of(schedule), &job);
        spec_of(&job, &spec);
        r = engine_enqueue(engine, 0, &spec, &enqueued);
        if (r == -ENOMEM) return r;
        if (r < 0) schedule->skipped++; /* its queue is full, or drained */
    }
    decide_scheduled(engine, number,
                     next_after(engine, text_of(schedule), zone_of(schedule), after_ms),
                     enqueued.id);
    return 0;
}

int schedules_look_again(struct engine *engine)
{
    while (engine->zones_at < engine->atoms[ATOM_SCHEDULE].last) {
        uint32_t number = engine->zones_at + 1;
        const struct schedule *schedule = schedule_at(engine, number);
        int64_t next_ms = 0;
        int r;

        if (schedule->atom.refs > 0 && schedule->next_ms == 0) {
            next_ms = next_after(engine, text_of(schedule), zone_of(schedule), engine->now_ms);
        }
        if (next_ms) {
            r = command_begin(engine, 0, 300);
            if (r < 0) return r;
            decide_scheduled(engine, number, next_ms, schedule->last_id);
        }
        engine->zones_at = number;
        if (next_ms) return 0;
    }
    engine->zones_changed = false;
    return 0;
}
