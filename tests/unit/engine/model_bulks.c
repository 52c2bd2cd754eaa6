/* model_bulks.c - sets of jobs of the model: a list of ids, and one action after the other. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "unit/engine/model_rules.h"

/* ---- Filters ---- */

static bool named(const struct model_name *name, struct engine_slice wanted, bool prefix)
{
    if (wanted.count == 0) return true;
    if (strncmp(name->text, wanted.at, wanted.count) != 0) return false;
    return prefix || strlen(name->text) == wanted.count;
}

static bool has_key(const struct model_job *job, struct engine_slice wanted)
{
    bool found = wanted.count == 0;

    found = found || named(&job->unique, wanted, false);
    found = found || named(&job->idempotency, wanted, false);
    found = found || named(&job->fair, wanted, false) || named(&job->order, wanted, false);
    for (unsigned i = 0; i < job->limit_count; i++) {
        found = found || named(&job->limits[i], wanted, false);
    }
    return found;
}

static bool failed_with(const struct model_job *job, struct engine_slice wanted)
{
    if (wanted.count == 0) return true;
    return job->error_count > 0 && named(&job->errors[job->error_count - 1].class, wanted, false);
}

/* Without tags, which no job of the model has. */
static bool passes(const struct model_job *job, const struct engine_filter *filter)
{
    if (!job->state || !(filter->states >> job->state & 1)) return false;
    if (filter->id && job->id != filter->id) return false;
    if (filter->batch && job->batch != filter->batch) return false;
    if (filter->created_from_ms && job->created_ms < filter->created_from_ms) return false;
    if (filter->created_before_ms && job->created_ms >= filter->created_before_ms) return false;
    if (job->priority < filter->priority_min || job->attempts < filter->attempts_min) return false;
    if (filter->priority_below && job->priority >= filter->priority_below) return false;
    if (filter->attempts_below && job->attempts >= filter->attempts_below) return false;
    return named(&job->queue, filter->queue, filter->queue_prefix) &&
           named(&job->kind, filter->kind, filter->kind_prefix) && has_key(job, filter->key) &&
           failed_with(job, filter->error_class);
}

int64_t model_filter_count(const struct model *model, const struct engine_filter *filter)
{
    int64_t found = 0;

    for (int i = 0; i < MODEL_JOBS; i++) found += passes(&model->jobs[i], filter);
    return found;
}

/* ---- Sets: the newest is the last ---- */

static void drop_at(struct model *model, unsigned at)
{
    model->bulk_count--;
    memmove(&model->bulks[at], &model->bulks[at + 1],
            (model->bulk_count - at) * sizeof *model->bulks);
}

static void drop_oldest(struct model *model)
{
    unsigned done = 0, oldest = 0;

    for (unsigned i = model->bulk_count; i > 0; i--) {
        const struct engine_bulk *says = &model->bulks[i - 1].says;
        if (says->done < says->count) continue;
        done++;
        oldest = i - 1;
    }
    if (done > ENGINE_BULKS_DONE_MAX) drop_at(model, oldest);
}

static struct model_bulk *bulk_new(struct model *model, enum engine_action action)
{
    struct model_bulk *bulk = &model->bulks[model->bulk_count++];

    if (model->bulk_count > MODEL_BULKS) abort();
    memset(bulk, 0, sizeof *bulk);
    bulk->says = (struct engine_bulk){.id = ++model->last_id, .action = action};
    return bulk;
}

int model_bulk_begin(struct model *model, int64_t now_ms, const struct engine_filter *filter,
                     enum engine_action action, uint64_t *ret_id)
{
    struct model_bulk *bulk;
    uint32_t count;

    model_begin(model, now_ms);
    if (filter->states == 0 || action == ENGINE_ACTION_UNSET) return -EINVAL;
    bulk = bulk_new(model, action);
    /* Always the lowest of those that are higher than the last. */
    for (uint64_t last = 0;; last = bulk->ids[bulk->says.count++]) {
        const struct model_job *next = NULL;
        for (int i = 0; i < MODEL_JOBS; i++) {
            const struct model_job *job = &model->jobs[i];
            if (!passes(job, filter) || job->id <= last) continue;
            if (!next || job->id < next->id) next = job;
        }
        if (!next) break;
        bulk->ids[bulk->says.count] = next->id;
    }
    *ret_id = bulk->says.id;
    count = bulk->says.count;
    drop_oldest(model); /* one of no jobs is done */
    return (int)count;
}

int model_bulk_begin_ids(struct model *model, int64_t now_ms, const uint64_t *ids, uint32_t count,
                         enum engine_action action, uint64_t *ret_id)
{
    struct model_bulk *bulk;

    model_begin(model, now_ms);
    if (action == ENGINE_ACTION_UNSET) return -EINVAL;
    for (uint32_t i = 0; i < count; i++) {
        if (ids[i] == 0 || (i > 0 && ids[i] <= ids[i - 1])) return -EINVAL;
    }
    if (count > MODEL_JOBS) abort();
    bulk = bulk_new(model, action);
    memcpy(bulk->ids, ids, count * sizeof *ids);
    bulk->says.count = count;
    *ret_id = bulk->says.id;
    drop_oldest(model);
    return (int)count;
}

int model_bulk_drop(struct model *model, int64_t now_ms, uint64_t id)
{
    model_begin(model, now_ms);
    for (unsigned i = 0; i < model->bulk_count; i++) {
        if (model->bulks[i].says.id != id) continue;
        drop_at(model, i);
        return 0;
    }
    return -ENOENT;
}

/* ---- Working them off, the oldest first ---- */

static struct model_bulk *first_due(struct model *model)
{
    for (unsigned i = 0; i < model->bulk_count; i++) {
        if (model->bulks[i].says.done < model->bulks[i].says.count) return &model->bulks[i];
    }
    return NULL;
}

bool model_bulk_is_due(struct model *model)
{
    return first_due(model) != NULL;
}

void model_bulk_go_on(struct model *model)
{
    struct model_bulk *bulk = first_due(model);
    uint64_t id = bulk->ids[bulk->says.done];
    int r;

    switch (bulk->says.action) {
    case ENGINE_ACTION_REPLAY: r = model_dead_replay(model, 0, id, NULL); break;
    case ENGINE_ACTION_PURGE: r = model_purge(model, 0, id); break;
    default: r = model_cancel(model, 0, id); break;
    }
    bulk->says.done++;
    bulk->says.failed += r < 0;
    if (bulk->says.done == bulk->says.count) drop_oldest(model);
}
