/* job_look.c - jobs as others see them: one, its bytes, its end, many. */
#include <errno.h>
#include <string.h>

#include "rt/mem.h"
#include "store/bounded.h"
#include "store/store.h"

_Static_assert((int)WEIR_JOB_SCHEDULED == (int)ENGINE_SCHEDULED, "states have one number");
_Static_assert((int)WEIR_JOB_EXPIRED == (int)ENGINE_EXPIRED, "states have one number");

const char *weir_job_state_name(enum weir_job_state state)
{
    static const char *const names[] = {"none",   "scheduled", "held", "ready",     "blocked",
                                        "leased", "done",      "dead", "cancelled", "expired"};

    return (unsigned)state < sizeof names / sizeof *names ? names[state] : "unknown";
}

/* ---- One ---- */

/* Texts of a job, copied one behind the other into memory of their own. */
struct texts {
    char *at;
    size_t bytes; /* that are needed, when `at` is NULL */
};

static const char *text(struct texts *texts, struct engine_slice slice)
{
    char *begin = texts->at;

    texts->bytes += slice.count + 1;
    if (!begin) return NULL;
    if (slice.count > 0) memcpy(begin, slice.at, slice.count);
    begin[slice.count] = '\0';
    texts->at = begin + slice.count + 1;
    return begin;
}

static void put_texts(struct texts *texts, const struct engine_job *job,
                      const struct engine_error *errors, weir_job_error *ret_errors,
                      weir_job_info *info)
{
    info->queue = text(texts, job->queue);
    info->kind = text(texts, job->kind);
    info->tags = text(texts, job->tags);
    info->unique_key = text(texts, job->unique_key);
    info->idempotency_key = text(texts, job->idempotency_key);
    info->fairness_key = text(texts, job->fairness_key);
    info->order_key = text(texts, job->order_key);
    info->blocked_on = text(texts, job->blocked_on);
    for (uint32_t i = 0; i < WEIR_JOB_LIMIT_KEYS_MAX; i++)
        info->limit_keys[i] =
            text(texts, i < job->limit_key_count ? job->limit_keys[i] : (struct engine_slice){0});
    for (size_t i = 0; i < info->error_count; i++) {
        weir_job_error error = {
            .run = errors[i].run,
            .at_ms = errors[i].at_ms,
            .error_class = text(texts, errors[i].class),
            .message = text(texts, errors[i].message),
        };
        if (ret_errors) ret_errors[i] = error;
    }
    info->errors = ret_errors;
}

static int fill_info(struct store *store, uint64_t id, weir_job_info *ret_info)
{
    struct engine_error errors[ENGINE_ERRORS_KEPT] WEIR_UNINITIALIZED_;
    struct texts texts = {0};
    struct engine_job job;
    int r = engine_job_get(store->engine, id, &job);
    int error_count;

    if (r < 0) return r;
    error_count = engine_job_errors(store->engine, id, errors);
    *ret_info = (weir_job_info){
        .id = id,
        .state = (enum weir_job_state)job.state,
        .version = job.version,
        .priority = job.priority,
        .run = job.run,
        .attempt = job.attempt,
        .attempts_max = job.attempts_max,
        .payload_bytes = job.payload_bytes,
        .result_bytes = job.result_bytes,
        .progress = job.progress,
        .created_ms = job.created_ms,
        .started_ms = job.started_ms,
        .when_ms = job.when_ms,
        .expires_ms = job.expires_ms,
        .cancel_asked = job.cancel_asked,
        .batch = job.batch,
        .members = job.members,
        .members_left = job.members_left,
        .members_not_done = job.members_not_done,
        .error_count = error_count > 0 ? (size_t)error_count : 0,
    };
    put_texts(&texts, &job, errors, NULL, ret_info);
    /* The errors first, as they are aligned; then all texts. */
    ret_info->memory_ = mem_alloc(ret_info->error_count * sizeof(weir_job_error) + texts.bytes);
    if (!ret_info->memory_) return -ENOMEM;
    texts.at = (char *)ret_info->memory_ + ret_info->error_count * sizeof(weir_job_error);
    put_texts(&texts, &job, errors, ret_info->memory_, ret_info);
    return 0;
}

int weir_job_get(weir_store *handle, uint64_t id, weir_job_info *ret_info)
{
    const struct store_intent intent = {.call = "weir_job_get"};
    weir_job_info info = {0};
    struct store *store;
    int r = store_enter(handle, &intent, &store);

    if (r < 0) return r;
    r = fill_info(store, id, &info);
    if (r == -ENOENT)
        r = refuse_as(r, "store '%s': there is no job %llu", store->object.name,
                      (unsigned long long)id);
    r = store_leave(store, WEIR_DURABILITY_UNSET, r);
    if (r < 0)
        mem_free(info.memory_);
    else
        *ret_info = info;
    return r;
}

void weir_job_info_free(weir_job_info *info)
{
    if (!info) return;
    mem_free(info->memory_);
    *info = (weir_job_info){0};
}

static int wait_for_job(weir_store *handle, uint64_t id, const struct store_intent *intent)
{
    struct store *store;
    int r = store_enter(handle, intent, &store);

    if (r < 0) return r;
    for (;;) {
        struct engine_job job;

        r = engine_job_get(store->engine, id, &job);
        if (r < 0) {
            r = refuse_as(r, "store '%s': there is no job %llu", store->object.name,
                          (unsigned long long)id);
            break;
        }
        r = (int)job.state;
        if (job.state >= ENGINE_DONE) break;
        r = store_wait_end(store, id, intent->entry == ENTER_TAKE_WORK);
        if (r == 0) r = store_enter_again(store, intent);
        if (r < 0) {
            store_exit(store);
            return r;
        }
    }
    return store_leave(store, WEIR_DURABILITY_UNSET, r);
}

int weir_job_wait(weir_store *handle, uint64_t id)
{
    return wait_for_job(handle, id, &(struct store_intent){.call = "weir_job_wait"});
}

int job_wait_until_stop(weir_store *handle, uint64_t id)
{
    return wait_for_job(handle, id,
                        &(struct store_intent){.call = "weir_job_wait", .entry = ENTER_TAKE_WORK});
}

/* ---- Its bytes ---- */

static int read_bytes(weir_store *handle, const char *call, uint64_t id, bool result, void *bytes,
                      size_t bytes_max)
{
    const struct store_intent intent = {.call = call};
    struct store_bytes record = {0};
    struct engine_found found = {0};
    struct engine_job job;
    struct engine_slice slice;
    struct store *store;
    uint64_t seen;
    int r = store_enter(handle, &intent, &store);

    if (r < 0) return r;
    r = engine_job_get(store->engine, id, &job);
    store_unlock_entered(store);
    if (r < 0) {
        r = refuse_as(r, "store '%s': there is no job %llu", store->object.name,
                      (unsigned long long)id);
    } else if (!result || job.result_bytes > 0) {
        r = store_read_job(store, id, result ? job.result_position : job.position, result, &record,
                           &found);
    }
    if (r == 0) {
        store_lock(store); /* what was read may be an edit that came meanwhile */
        seen = store->end;
        store_unlock(store);
        r = store_gate(store, seen, store->spec.durability);
    }
    if (r == 0) {
        slice = result ? found.result : found.payload;
        if (slice.count > 0 && bytes_max > 0)
            memcpy(bytes, slice.at, slice.count < bytes_max ? slice.count : bytes_max);
        r = (int)slice.count;
    }
    mem_free(record.memory);
    store_exit(store);
    return r;
}

int weir_job_payload(weir_store *handle, uint64_t id, void *bytes, size_t bytes_max)
{
    return read_bytes(handle, "weir_job_payload", id, false, bytes, bytes_max);
}

int weir_job_result_read(weir_store *handle, uint64_t id, void *bytes, size_t bytes_max)
{
    return read_bytes(handle, "weir_job_result_read", id, true, bytes, bytes_max);
}

/* ---- Many ---- */

static int check_filter(const weir_job_filter *filter)
{
    if (filter->states == 0) return refuse("filter: states is not set");
    return 0;
}

static struct engine_filter filter_of(const weir_job_filter *filter)
{
    return (struct engine_filter){
        .queue = slice_of(filter->queue),
        .states = filter->states,
        .kind = slice_of(filter->kind),
        .tags = slice_of(filter->tags),
        .error_class = slice_of(filter->error_class),
        .queue_prefix = filter->queue && filter->queue_prefix,
        .kind_prefix = filter->kind_prefix,
        .tag = slice_of(filter->tag),
        .key = slice_of(filter->key),
        .id = filter->id,
        .batch = filter->batch,
        .created_from_ms = filter->created_from_ms,
        .created_before_ms = filter->created_before_ms,
        .priority_min = filter->priority_min,
        .priority_below = filter->priority_below,
        .attempts_min = filter->attempts_min,
        .attempts_below = filter->attempts_below,
    };
}

int64_t weir_job_count(weir_store *handle, const weir_job_filter *filter)
{
    const struct store_intent intent = {.call = "weir_job_count"};
    struct engine_filter wanted = filter_of(filter);
    struct store *store;
    int64_t count;
    int r = check_filter(filter);

    if (r < 0) return r;
    r = store_enter(handle, &intent, &store);
    if (r < 0) return r;
    count = engine_filter_count(store->engine, &wanted);
    r = store_leave(store, WEIR_DURABILITY_UNSET, 0);
    return r < 0 ? r : count;
}

int weir_job_list(weir_store *handle, const weir_job_filter *filter, uint32_t *cursor,
                  uint32_t scan_max, uint64_t *ret_ids, size_t ids_max, uint32_t *ret_scanned)
{
    const struct store_intent intent = {.call = "weir_job_list"};
    struct engine_filter wanted = filter_of(filter);
    struct store *store;
    int r = check_filter(filter);

    if (r < 0) return r;
    r = store_enter(handle, &intent, &store);
    if (r < 0) return r;
    r = engine_list(store->engine, &wanted, cursor, scan_max, ret_ids,
                    ids_max < INT32_MAX ? (int)ids_max : INT32_MAX, ret_scanned);
    return store_leave(store, WEIR_DURABILITY_UNSET, r);
}

int weir_dead_list(weir_store *handle, const char *queue, uint64_t after, uint64_t *ret_ids,
                   size_t ids_max)
{
    const struct store_intent intent = {.call = "weir_dead_list"};
    struct store *store;
    int r;

    if (!queue || !queue[0]) return refuse("weir_dead_list: queue is not set");
    r = store_enter(handle, &intent, &store);
    if (r < 0) return r;
    r = engine_dead_list(store->engine, slice_of(queue), after, ret_ids,
                         ids_max < INT32_MAX ? (int)ids_max : INT32_MAX);
    return store_leave(store, WEIR_DURABILITY_UNSET, r);
}

_Static_assert(WEIR_BULKS_DONE_MAX == ENGINE_BULKS_DONE_MAX, "as jobs.h says");

/* What was begun, if it has all of them: a smaller set would leave the rest, and who has asked for
 * all would not know. The lock is held. */
static int whole_set(struct store *store, int frozen, int64_t count, uint64_t id)
{
    if (frozen < 0) return store_refuse(store, frozen);
    if (frozen == count || engine_bulk_drop(store->engine, store_now_ms(store), id) < 0)
        return frozen;
    return refuse_as(-E2BIG,
                     "store '%s': of %lld jobs %d fit into one set: their ids are far apart",
                     store->object.name, (long long)count, frozen);
}

int weir_bulk_begin(weir_store *handle, const weir_job_filter *filter, enum weir_bulk_action action,
                    uint64_t expected, uint64_t *ret_id)
{
    const struct store_intent intent = {.call = "weir_bulk_begin", .use = LOG_FOR_EXISTING};
    struct engine_filter wanted = filter_of(filter);
    struct store *store;
    uint64_t id = 0;
    int64_t count;
    int r = check_filter(filter);

    if (r == 0 && (action == WEIR_BULK_UNSET || action > WEIR_BULK_CANCEL))
        r = refuse("weir_bulk_begin: action is not set");
    if (r < 0) return r;
    r = store_enter(handle, &intent, &store);
    if (r < 0) return r;
    count = engine_filter_count(store->engine, &wanted);
    if (count < 0) {
        r = store_refuse(store, (int)count);
    } else if (expected != WEIR_BULK_ANY && (uint64_t)count != expected) {
        r = refuse_as(-EEXIST, "store '%s': %lld jobs are found, and %llu were expected",
                      store->object.name, (long long)count, (unsigned long long)expected);
    } else if (count > WEIR_BULK_MAX) {
        r = refuse_as(-E2BIG, "store '%s': %lld jobs are found, at most %d go at once",
                      store->object.name, (long long)count, WEIR_BULK_MAX);
    } else {
        r = engine_bulk_begin(store->engine, store_now_ms(store), &wanted,
                              (enum engine_action)action, &id);
        r = whole_set(store, r, count, id);
    }
    store_commit(store, LOG_FOR_EXISTING);
    r = store_leave(store, WEIR_DURABILITY_UNSET, r);
    if (r >= 0) *ret_id = id;
    return r;
}

int weir_bulk_begin_ids(weir_store *handle, const uint64_t *ids, size_t count,
                        enum weir_bulk_action action, uint64_t *ret_id)
{
    const struct store_intent intent = {.call = "weir_bulk_begin_ids", .use = LOG_FOR_EXISTING};
    struct store *store;
    uint64_t id = 0;
    int r;

    if (count > WEIR_BULK_MAX)
        return refuse_as(-E2BIG, "weir_bulk_begin_ids: %zu ids, at most %d", count, WEIR_BULK_MAX);
    r = store_enter(handle, &intent, &store);
    if (r < 0) return r;
    r = engine_bulk_begin_ids(store->engine, store_now_ms(store), ids, (uint32_t)count,
                              (enum engine_action)action, &id);
    r = whole_set(store, r, (int64_t)count, id);
    store_commit(store, LOG_FOR_EXISTING);
    r = store_leave(store, WEIR_DURABILITY_UNSET, r);
    if (r >= 0) *ret_id = id;
    return r;
}

int weir_bulk_list(weir_store *handle, weir_bulk_info *ret_bulks, size_t bulks_max)
{
    const struct store_intent intent = {.call = "weir_bulk_list"};
    struct engine_bulk bulks[64];
    struct store *store;
    int r = store_enter(handle, &intent, &store);

    if (r < 0) return r;
    r = engine_bulk_list(store->engine, bulks, bulks_max < 64 ? (int)bulks_max : 64);
    for (int i = 0; i < r; i++)
        ret_bulks[i] = (weir_bulk_info){
            .id = bulks[i].id,
            .action = (enum weir_bulk_action)bulks[i].action,
            .count = bulks[i].count,
            .done = bulks[i].done,
            .failed = bulks[i].failed,
        };
    return store_leave(store, WEIR_DURABILITY_UNSET, r);
}

int weir_bulk_drop(weir_store *handle, uint64_t id)
{
    const struct store_intent intent = {.call = "weir_bulk_drop", .use = LOG_FOR_EXISTING};
    struct store *store;
    int r = store_enter(handle, &intent, &store);

    if (r < 0) return r;
    r = engine_bulk_drop(store->engine, store_now_ms(store), id);
    if (r < 0)
        r = store_refuse(store, r);
    else
        store_commit(store, LOG_FOR_EXISTING);
    return store_leave(store, WEIR_DURABILITY_UNSET, r);
}
