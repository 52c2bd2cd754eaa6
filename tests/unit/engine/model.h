/* model.h - the engine's rules once more, with lists and scans: slow, short, and without any of
 * the structures that make the engine fast. Every answer of the engine must be the model's.
 *
 * The same calls as in engine/engine.h; names have at most MODEL_NAME_MAX bytes.
 */
#ifndef WEIR_TESTS_ENGINE_MODEL_H
#define WEIR_TESTS_ENGINE_MODEL_H

#include "engine/engine.h"

enum {
    MODEL_NAME_MAX = 23,
    MODEL_JOBS = 200,
    MODEL_NAMES = 16,
    MODEL_GROUPS = 300,
    MODEL_SCHEDULES = 4,
    MODEL_BULKS = 32,
};

struct model_name {
    char text[MODEL_NAME_MAX + 1];
};

struct model_error {
    unsigned run;
    int64_t at_ms;
    struct model_name class, message;
};

struct model_job {
    enum engine_state state; /* ENGINE_NO_JOB: a free place */
    uint64_t id, mark;
    int64_t when_ms, started_ms, created_ms, expires_ms;
    uint32_t note, payload_bytes, version, timeout_ms;
    unsigned runs, attempts, blocked_on, priority;
    bool cancel, idempotent;
    uint64_t batch;
    bool gathers, batch_open, all_done, counted;
    uint32_t members, members_left, members_not_done;
    struct model_name queue, kind, unique, idempotency, fair, order, limits[ENGINE_LIMIT_KEYS_MAX];
    unsigned limit_count;
    int64_t unique_ms, idempotency_ms;
    uint32_t unique_states;
    unsigned attempts_max;
    uint32_t backoff_ms, backoff_ms_max;
    bool jitter;
    struct model_name never;
    struct model_error errors[ENGINE_ERRORS_KEPT + 1];
    int error_count;
};

struct model_limit { /* a key, or a queue */
    struct model_name name;
    uint32_t concurrency, weight;
    struct engine_rate rate;
    int64_t tat, opens_ms;
    uint32_t depth_max;
    bool paused, draining;
    bool waits; /* ENGINE_WAIT */
    struct engine_figures counted;
};

/* Who takes turns: at a queue, or at a key's gate of a stage. */
struct model_group {
    bool used;
    struct model_name queue, key, kind, fair;
    uint32_t version;
    unsigned priority;
    uint64_t turn;
    uint32_t deficit;
};

struct model_schedule {
    struct model_name name;
    struct engine_schedule_spec spec; /* its slices outlive the model */
    int64_t period_ms;                /* 0: a free place */
    int64_t next_ms;
    uint64_t last_id, skipped;
};

struct model_bulk {
    struct engine_bulk says;
    uint64_t ids[MODEL_JOBS];
};

struct model {
    struct engine_config config;
    int64_t now_ms;
    uint64_t last_id, last_token, last_mark, last_turn;
    unsigned moves_left;
    struct model_job jobs[MODEL_JOBS];
    struct model_limit queues[MODEL_NAMES], keys[MODEL_NAMES];
    struct model_group groups[MODEL_GROUPS];
    struct model_schedule schedules[MODEL_SCHEDULES];
    struct model_bulk bulks[MODEL_BULKS]; /* the oldest first */
    unsigned bulk_count;
};

int model_enqueue(struct model *model, int64_t now_ms, const struct engine_job_spec *spec,
                  struct engine_enqueued *ret_enqueued);
int model_claim(struct model *model, int64_t now_ms, const struct engine_claim_spec *spec,
                struct engine_claimed *ret_claimed);
int model_renew(struct model *model, int64_t now_ms, uint64_t id, uint64_t token, int64_t lease_ms,
                struct engine_renewed *ret_renewed);
int model_progress(struct model *model, int64_t now_ms, uint64_t id, uint64_t token,
                   uint32_t progress);
int model_ack(struct model *model, int64_t now_ms, uint64_t id, uint64_t token,
              struct engine_slice result);
int model_fail(struct model *model, int64_t now_ms, uint64_t id, uint64_t token,
               const struct engine_failure *failure);
int model_release(struct model *model, int64_t now_ms, uint64_t id, uint64_t token,
                  int64_t delay_ms);
int model_batch_seal(struct model *model, int64_t now_ms, uint64_t batch);
int model_cancel(struct model *model, int64_t now_ms, uint64_t id);
int model_queue_set(struct model *model, int64_t now_ms, const struct engine_queue_spec *spec);
int model_key_set(struct model *model, int64_t now_ms, const struct engine_key_spec *spec);
/* Every period_ms, whatever its cron says. */
int model_schedule_set(struct model *model, int64_t now_ms, const struct engine_schedule_spec *spec,
                       int64_t period_ms);
int model_schedule_drop(struct model *model, int64_t now_ms, struct engine_slice name);
/* NULL: there is none. */
const struct model_schedule *model_schedule_get(struct model *model, struct engine_slice name);
/* In as many steps as the engine takes: 1 if there are more. */
int model_tick(struct model *model, int64_t now_ms);
int model_dead_list(const struct model *model, struct engine_slice queue, uint64_t after,
                    uint64_t *ret_ids, int ids_max);
int model_dead_replay(struct model *model, int64_t now_ms, uint64_t id,
                      const struct engine_slice *payload);
int model_purge(struct model *model, int64_t now_ms, uint64_t id);
int64_t model_filter_count(const struct model *model, const struct engine_filter *filter);
int model_bulk_begin(struct model *model, int64_t now_ms, const struct engine_filter *filter,
                     enum engine_action action, uint64_t *ret_id);
int model_bulk_begin_ids(struct model *model, int64_t now_ms, const uint64_t *ids, uint32_t count,
                         enum engine_action action, uint64_t *ret_id);
int model_bulk_drop(struct model *model, int64_t now_ms, uint64_t id);
bool model_bulk_is_due(struct model *model);
struct model_job *model_find(struct model *model, uint64_t id);
void model_figures(struct model *model, struct engine_slice queue,
                   struct engine_figures *ret_figures);
int64_t model_next_ms(struct model *model);

#endif
