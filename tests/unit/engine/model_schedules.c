/* model_schedules.c - schedules of the model: every so many seconds, and looked for one by one. */
#include <errno.h>
#include <string.h>

#include "unit/engine/model_rules.h"

static struct model_schedule *find(struct model *model, const struct model_name *name)
{
    for (int i = 0; i < MODEL_SCHEDULES; i++) {
        struct model_schedule *schedule = &model->schedules[i];
        if (schedule->period_ms && model_same(&schedule->name, name)) return schedule;
    }
    return NULL;
}

static int64_t next_after(const struct model_schedule *schedule, int64_t after_ms)
{
    return (after_ms / schedule->period_ms + 1) * schedule->period_ms;
}

int model_schedule_set(struct model *model, int64_t now_ms, const struct engine_schedule_spec *spec,
                       int64_t period_ms)
{
    struct model_name name = model_name_of(spec->name);
    struct model_schedule *schedule = find(model, &name);

    model_begin(model, now_ms);
    for (int i = 0; i < MODEL_SCHEDULES && !schedule; i++) {
        if (model->schedules[i].period_ms) continue;
        schedule = &model->schedules[i];
        memset(schedule, 0, sizeof *schedule);
    }
    schedule->name = name;
    schedule->spec = *spec;
    schedule->period_ms = period_ms;
    schedule->next_ms = next_after(schedule, model->now_ms);
    return 0;
}

int model_schedule_drop(struct model *model, int64_t now_ms, struct engine_slice name)
{
    struct model_name wanted = model_name_of(name);
    struct model_schedule *schedule = find(model, &wanted);

    model_begin(model, now_ms);
    if (!schedule) return -ENOENT;
    schedule->period_ms = 0;
    return 0;
}

const struct model_schedule *model_schedule_get(struct model *model, struct engine_slice name)
{
    struct model_name wanted = model_name_of(name);
    return find(model, &wanted);
}

struct model_schedule *model_first_schedule(struct model *model)
{
    struct model_schedule *first = NULL;

    for (int i = 0; i < MODEL_SCHEDULES; i++) {
        struct model_schedule *schedule = &model->schedules[i];
        if (!schedule->period_ms || schedule->spec.paused) continue;
        if (!first || schedule->next_ms < first->next_ms ||
            (schedule->next_ms == first->next_ms &&
             strcmp(schedule->name.text, first->name.text) < 0))
            first = schedule;
    }
    return first;
}

static bool is_left_out(struct model *model, const struct model_schedule *schedule)
{
    const struct model_job *last = model_find(model, schedule->last_id);

    if (schedule->spec.catch_up == ENGINE_CATCH_UP_NONE &&
        model->now_ms > schedule->next_ms + ENGINE_LATE_MS)
        return true;
    return schedule->spec.overlap == ENGINE_OVERLAP_SKIP && last && last->state < ENGINE_DONE;
}

void model_schedule_fire(struct model *model, struct model_schedule *schedule)
{
    struct engine_enqueued enqueued = {.id = schedule->last_id};

    if (is_left_out(model, schedule) ||
        model_enqueue(model, 0, &schedule->spec.job, &enqueued) < 0) {
        schedule->skipped++;
    }
    schedule->last_id = enqueued.id;
    schedule->next_ms =
        next_after(schedule, schedule->spec.catch_up == ENGINE_CATCH_UP_ALL ? schedule->next_ms
                                                                            : model->now_ms);
}
