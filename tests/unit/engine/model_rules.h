/* model_rules.h - the rules that the model's commands share; model.c. */
#ifndef WEIR_TESTS_ENGINE_MODEL_RULES_H
#define WEIR_TESTS_ENGINE_MODEL_RULES_H

#include "unit/engine/model.h"

struct model_name model_name_of(struct engine_slice slice);
bool model_same(const struct model_name *a, const struct model_name *b);
bool model_empty(const struct model_name *name);
struct model_limit *model_limit_of(struct model_limit *limits, const struct model_name *name);
struct model_limit *model_queue_of(struct model *model, const struct model_job *job);
struct model_limit *model_key_of(struct model *model, const struct model_job *job, unsigned i);
uint32_t model_count(const struct model *model, const struct model_name *queue, unsigned states);
uint32_t model_tokens(const struct engine_rate *rate, int64_t tat, int64_t now_ms);
uint32_t model_room(const struct model *model, const struct model_limit *key);
void model_set_timer(struct model *model, struct model_limit *key);
void model_set_timers(struct model *model, const struct model_job *job);
struct model_group *model_group_of(struct model *model, const struct model_job *job,
                                   enum engine_state state, unsigned blocked_on);
void model_give(struct model *model, struct model_group *group);
void model_move(struct model *model, struct model_job *job, struct model_job to);
void model_place(struct model *model, struct model_job *to);
void model_onward(struct model *model, struct model_job *to, int64_t run_at_ms);
bool model_sooner(struct model *model, const struct model_job *a, const struct model_job *b);
void model_topup(struct model *model, const struct model_name *name);
void model_topups(struct model *model, const struct model_job *job);
struct model_job *model_unique_holder(struct model *model, const struct model_name *queue,
                                      const struct model_name *key);
struct model_job *model_idempotent_twin(struct model *model, const struct model_name *queue,
                                        const struct model_name *key);
bool model_order_is_taken(const struct model *model, const struct model_job *like, bool held_too);
void model_end(struct model *model, struct model_job *job, enum engine_state state,
               size_t result_bytes);
void model_begin(struct model *model, int64_t now_ms);
void model_forget(struct model *model, struct model_job *job);
struct model_schedule *model_first_schedule(struct model *model);
void model_schedule_fire(struct model *model, struct model_schedule *schedule);
void model_bulk_go_on(struct model *model); /* one job of the first set that is not done */
void model_gathered(struct model *model, struct model_job *job);

#endif
