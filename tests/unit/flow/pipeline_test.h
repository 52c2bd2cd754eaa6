/* pipeline_test.h - what the tests of pipelines share: items that tell where they have been, and
 * stages that wait, fail, or let them pass, as each item says.
 */
#ifndef WEIR_TESTS_PIPELINE_TEST_H
#define WEIR_TESTS_PIPELINE_TEST_H

#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "unit/flow/flow_test.h"

struct item {
    int id;
    int trail;      /* a digit for each stage it went through */
    int fail_stage; /* the stage that fails (its digit), or 0 */
    int error;
    int wait_stage; /* the stage that waits at the gate */
};

/* What is shared by the functions of a stage. */
struct place {
    int digit;
    weir_event *gate;
    ATOM(int) entered, left;
};

enum { PLACES = 4 };
static struct place places[PLACES];
static ATOM(int) lost_count, lost_error, lost_stage, lost_trail;

static inline void reset(void)
{
    memset(places, 0, sizeof places);
    for (int i = 0; i < PLACES; i++) places[i].digit = i + 1;
    atom_store(&lost_count, 0);
    atom_store(&lost_error, 0);
    atom_store(&lost_stage, -1);
    atom_store(&lost_trail, 0);
}

static inline int step(void *data, void *keep_arg)
{
    struct item *item = data;
    struct place *place = keep_arg;
    int r = 0;

    (void)atom_add(&place->entered, 1);
    item->trail = item->trail * 10 + place->digit;
    if (item->wait_stage == place->digit) r = weir_event_wait(place->gate);
    if (item->fail_stage == place->digit) r = item->error;
    (void)atom_add(&place->left, 1);
    return r;
}

static inline void note_lost(void *data, const weir_lost *lost, void *keep_arg)
{
    const struct item *item = data;
    (void)keep_arg;
    (void)atom_add(&lost_count, 1);
    atom_store(&lost_error, lost->error);
    atom_store(&lost_stage, (int)lost->stage_index);
    atom_store(&lost_trail, item->trail);
}

static inline weir_stage_spec stage(int number)
{
    static const char *const names[PLACES] = {"one", "two", "three", "four"};
    return (weir_stage_spec){.name = names[number],
                             .fn = step,
                             .keep_arg = &places[number],
                             .concurrency = 1,
                             .queue_max = 2,
                             .overflow = WEIR_WAIT,
                             .timeout_ms = 5000,
                             .on_failure = WEIR_STAGE_FAIL};
}

static inline weir_pipeline_spec three(weir_stage_spec stages[3])
{
    for (int i = 0; i < 3; i++) stages[i] = stage(i);
    return (weir_pipeline_spec){.name = "pipe",
                                .item_bytes = sizeof(struct item),
                                .budget_ms = 18000,
                                .stages = stages,
                                .stage_count = 3,
                                .on_lost = note_lost};
}

static inline void check_conserved(weir_pipeline *pipeline, unsigned stage_count)
{
    weir_pipeline_figures f;
    weir_pipeline_figures_of(pipeline, &f);
    CHECK_INT(f.accepted, ==, f.inside + f.finished + f.lost + f.removed);
    for (unsigned i = 0; i < stage_count; i++) {
        weir_stage_figures s;
        CHECK_OK(weir_pipeline_stage_figures(pipeline, i, &s));
        test_note("stage %u", i);
        CHECK_INT(s.depth_max, <=, s.queue_max);
        CHECK_INT(s.running_max, <=, s.concurrency);
        CHECK_INT(s.entered, >=, s.depth + s.finished + s.skipped + s.failed + s.removed);
        /* A task that has just handed an item on is counted as running for a moment. */
        CHECK_INT(s.entered, <=,
                  s.depth + s.running + s.finished + s.skipped + s.failed + s.removed);
        CHECK_INT(s.waited.count, <=, s.entered);
    }
}

/* The worst case of a policy with three attempts. */
static inline int64_t thrice(void *keep_state, int64_t timeout_ms)
{
    (void)keep_state;
    return 3 * timeout_ms + 30;
}

struct stream {
    weir_pipeline *pipeline;
    int count;
};

/* Let all tasks of this worker run until they wait. */
static inline void settle(void)
{
    for (int i = 0; i < 30; i++) CHECK_OK(weir_yield());
}

static inline int call_item(void *arg)
{
    struct stream *stream = arg;
    struct item item = {.wait_stage = stream->count};
    int r = weir_pipeline_call(stream->pipeline, &item, NULL);
    return r == WEIR_ECLOSED ? 0 : r;
}

#endif
