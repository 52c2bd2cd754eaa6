/* stage_test.c - stages: failures, timeouts, pools, policies; every item accounted for whatever
 * goes wrong.
 */
#include "unit/flow/pipeline_test.h"

static int replace(void *data, void *keep_arg)
{
    struct item *item = data;
    (void)keep_arg;
    item->trail = item->trail * 10 + 9;
    return item->error == -ENOENT ? -ENODATA : 0;
}

/* ---- Failures ---- */

struct failure_row {
    enum weir_stage_failure on_failure;
    int error;    /* of the second stage; 0: it waits too long */
    int expected; /* result of the call */
    int trail;
    int skip_error;
};

FLOW_TEST(pipeline_stage_failure_means_what_its_spec_says)
{
    static const struct failure_row rows[] = {
        {WEIR_STAGE_FAIL, -EIO, -EIO, 1, 0},
        {WEIR_STAGE_SKIP, -EIO, WEIR_PARTIAL, 13, -EIO},
        {WEIR_STAGE_FALLBACK, -EIO, WEIR_PARTIAL, 193, -EIO},
        {WEIR_STAGE_FALLBACK, -ENOENT, -ENODATA, 1, 0}, /* the fallback fails too */
        {WEIR_STAGE_FAIL, 0, WEIR_ETIMEDOUT, 1, 0},
        {WEIR_STAGE_SKIP, 0, WEIR_PARTIAL, 13, WEIR_ETIMEDOUT},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct failure_row *row = &rows[i];
        weir_stage_spec stages[3];
        weir_pipeline_spec spec = three(stages);
        weir_pipeline_figures f;
        weir_stage_figures s;
        weir_pipeline *pipeline;
        weir_outcome outcome;
        int result;

        reset();
        test_note("row %zu", i);
        stages[1].on_failure = row->on_failure;
        if (row->on_failure == WEIR_STAGE_FALLBACK) stages[1].fallback = replace;
        if (row->error == 0) stages[1].timeout_ms = 5;
        FLOW_SCOPE(scope, &result)
        {
            struct item item = {.fail_stage = row->error ? 2 : 0,
                                .error = row->error,
                                .wait_stage = row->error ? 0 : 2};
            bool fails = row->expected < 0;
            CHECK_OK(weir_event_open(scope, "gate", &places[1].gate));
            CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
            CHECK_INT(weir_pipeline_call(pipeline, &item, &outcome), ==, row->expected);
            CHECK_INT(item.trail, ==, row->trail);
            CHECK_INT(outcome.skipped, ==, fails ? 0 : 1 << 1);
            CHECK_INT(outcome.skip_error, ==, row->skip_error);
            if (fails) CHECK_INT(outcome.failed_stage, ==, 1);
            CHECK_OK(weir_pipeline_stage_figures(pipeline, 1, &s));
            CHECK_INT(s.skipped, ==, !fails);
            CHECK_INT(s.failed, ==, fails);
            CHECK_INT(s.timeouts, ==, row->error == 0);
            weir_pipeline_figures_of(pipeline, &f);
            CHECK_INT(f.partial, ==, !fails);
            CHECK_INT(f.lost, ==, fails);
            CHECK_INT(atom_load(&lost_count), ==, 0); /* the caller has it */
            item = (struct item){
                .fail_stage = item.fail_stage, .error = item.error, .wait_stage = item.wait_stage};
            CHECK_OK(weir_pipeline_send(pipeline, &item));
            weir_pipeline_stop(pipeline, WEIR_DRAIN);
            CHECK_OK(weir_pipeline_wait(pipeline));
            CHECK_INT(atom_load(&lost_count), ==, fails);
            if (fails) {
                CHECK_INT(atom_load(&lost_error), ==, row->expected);
                CHECK_INT(atom_load(&lost_trail), ==, 1);
                CHECK_INT(atom_load(&lost_stage), ==, 1);
            }
            check_conserved(pipeline, 3);
        }
        CHECK_OK(result);
    }
    return 0;
}

/* ---- The caller's time ---- */

static int call_cancelled(void *arg)
{
    struct stream *stream = arg;
    struct item item = {.wait_stage = stream->count};
    int r = weir_pipeline_call(stream->pipeline, &item, NULL);
    CHECK_INT(r, ==, WEIR_ECANCELED);
    CHECK_INT(item.trail, ==, 0);
    return r;
}

/* A call that is cancelled when its item has come as far as it can. */
static void cancel_call(weir_scope *scope, weir_pipeline *pipeline, int wait_stage)
{
    struct stream stream = {pipeline, wait_stage};
    weir_task task;
    CHECK_OK(weir_task_spawn(
        scope, &(weir_task_spec){.fn = call_cancelled, .arg = &stream, .arg_bytes = sizeof stream},
        &task));
    settle();
    CHECK_OK(weir_task_cancel(task, "enough"));
    CHECK_OK(weir_task_join(task, NULL));
}

FLOW_TEST(pipeline_call_that_is_cancelled_is_removed_or_lost)
{
    weir_stage_spec stages[3];
    weir_pipeline_spec spec = three(stages);
    weir_pipeline_figures f;
    weir_pipeline *pipeline;
    int result;

    reset();
    FLOW_SCOPE(scope, &result)
    {
        struct stream stream = {.count = 1};
        CHECK_OK(weir_event_open(scope, "gate", &places[0].gate));
        CHECK_OK(weir_event_open(scope, "gate", &places[1].gate));
        CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
        stream.pipeline = pipeline;
        /* In work, and in a later queue: the stage goes on, and they are lost after it. */
        cancel_call(scope, pipeline, 2);
        cancel_call(scope, pipeline, 2);
        weir_pipeline_figures_of(pipeline, &f);
        CHECK_INT(f.inside, ==, 2);
        CHECK_INT(atom_load(&lost_count), ==, 0);
        weir_event_set(places[1].gate);
        settle();
        weir_pipeline_figures_of(pipeline, &f);
        CHECK_INT(f.lost, ==, 2);
        CHECK_INT(f.inside, ==, 0);
        CHECK_INT(atom_load(&lost_count), ==, 2);
        CHECK_INT(atom_load(&lost_error), ==, WEIR_ECANCELED);
        CHECK_INT(atom_load(&places[1].entered), ==, 1); /* no work for nobody */
        /* In the first queue: it never happens. */
        CHECK_OK(weir_spawn(scope, call_item, &stream, sizeof stream));
        settle();
        cancel_call(scope, pipeline, 0);
        weir_pipeline_figures_of(pipeline, &f);
        CHECK_INT(f.removed, ==, 1);
        CHECK_INT(f.inside, ==, 1);
        weir_event_set(places[0].gate);
        CHECK_OK(weir_scope_join(scope));
        CHECK_INT(atom_load(&places[0].entered), ==, 3);
        check_conserved(pipeline, 3);
    }
    return result;
}

FLOW_TEST(pipeline_room_that_a_cancelled_call_leaves_goes_to_who_waits)
{
    weir_stage_spec stages[3];
    weir_pipeline_spec spec = three(stages);
    weir_pipeline_figures f;
    weir_pipeline *pipeline;
    int result;

    reset();
    stages[0].queue_max = 1;
    FLOW_SCOPE(scope, &result)
    {
        struct stream stream = {.count = 1};
        weir_task task;
        CHECK_OK(weir_event_open(scope, "gate", &places[0].gate));
        CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
        stream.pipeline = pipeline;
        CHECK_OK(weir_pipeline_send(pipeline, &(struct item){.wait_stage = 1}));
        settle();
        CHECK_OK(weir_task_spawn(
            scope,
            &(weir_task_spec){.fn = call_cancelled, .arg = &stream, .arg_bytes = sizeof stream},
            &task));
        settle();
        CHECK_OK(weir_spawn(scope, call_item, &stream, sizeof stream));
        settle();
        CHECK_OK(weir_task_cancel(task, "enough"));
        settle();
        weir_pipeline_figures_of(pipeline, &f);
        CHECK_INT(f.removed, ==, 1);
        CHECK_INT(f.accepted, ==, 3);
        CHECK_INT(f.inside, ==, 2);
        weir_event_set(places[0].gate);
    }
    return result;
}

FLOW_TEST(pipeline_call_ends_with_the_deadline_of_its_caller_or_the_budget)
{
    weir_stage_spec stages[3];
    weir_pipeline_spec spec = three(stages);
    weir_pipeline *pipeline, *quick;
    int result, r = 0;

    reset();
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_event_open(scope, "gate", &places[0].gate));
        CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
        WEIR_DEADLINE(5) {
            r = weir_pipeline_call(pipeline, &(struct item){.wait_stage = 1}, NULL);
        }
        CHECK_INT(r, ==, WEIR_ETIMEDOUT);
        for (int i = 0; i < 3; i++) stages[i].timeout_ms = 5;
        spec.budget_ms = 15;
        stages[0].concurrency = 1;
        CHECK_OK(weir_pipeline_open(scope, &spec, &quick));
        for (int i = 0; i < 3; i++) {
            CHECK_INT(weir_pipeline_call(quick, &(struct item){.wait_stage = 1}, NULL), ==,
                      WEIR_ETIMEDOUT);
        }
        weir_event_set(places[0].gate);
    }
    return result;
}

static int send_late(void *arg)
{
    weir_stage_spec stages[3];
    weir_pipeline_spec spec = three(stages);
    weir_stage_figures s;
    weir_pipeline *pipeline;
    int result;

    (void)arg;
    reset();
    for (int i = 0; i < 3; i++) stages[i].timeout_ms = 9;
    spec.budget_ms = 30;
    stages[0].queue_max = 6;
    stages[0].on_failure = WEIR_STAGE_SKIP; /* not even then */
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_event_open(scope, "gate", &places[0].gate));
        CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
        /* Each holds the first stage for 9 ms: the fourth is cut short, the rest is late. */
        for (int i = 0; i < 6; i++) {
            CHECK_OK(weir_pipeline_send(pipeline, &(struct item){.wait_stage = 1}));
        }
        weir_pipeline_stop(pipeline, WEIR_DRAIN);
        CHECK_OK(weir_pipeline_wait(pipeline));
        CHECK_INT(atom_load(&lost_count), ==, 3);
        CHECK_INT(atom_load(&lost_error), ==, WEIR_ETIMEDOUT);
        CHECK_INT(atom_load(&places[0].entered), ==, 4);
        CHECK_INT(atom_load(&places[2].left), ==, 3);
        CHECK_OK(weir_pipeline_stage_figures(pipeline, 0, &s));
        CHECK_INT(s.timeouts, ==, 6);
        check_conserved(pipeline, 3);
    }
    return result;
}

TEST_WITH(pipeline_works_on_nothing_whose_budget_is_used_up, .workers = 1)
{
    test_clock_auto();
    CHECK_OK(flow_test_run(send_late));
}

/* ---- Pools ---- */

static const weir_pool_class one_class[] = {{.name = "work", .weight = 1, .queue_max = 64}};
static const weir_pool_spec small_pool = {.name = "pool",
                                          .threads_max = 2,
                                          .overflow = WEIR_WAIT,
                                          .on_close = WEIR_DRAIN,
                                          .classes = one_class,
                                          .class_count = 1};

static ATOM(bool) pool_gate;

static int step_in_pool(void *data, void *keep_arg)
{
    struct item *item = data;
    struct place *place = keep_arg;

    CHECK_INT(weir_worker_index(), ==, -1);
    (void)atom_add(&place->entered, 1);
    while (item->wait_stage == place->digit && !atom_load_acquire(&pool_gate)) {
        if (weir_pool_told()) break;
    }
    item->trail = item->trail * 10 + place->digit;
    return item->fail_stage == place->digit ? item->error : 0;
}

FLOW_TEST(pipeline_stage_runs_in_a_pool_and_a_late_job_touches_nothing)
{
    weir_stage_spec stages[3];
    weir_pipeline_spec spec = three(stages);
    weir_pipeline *pipeline;
    weir_pool *pool;
    int result;

    reset();
    atom_store(&pool_gate, false);
    stages[1].fn = step_in_pool;
    stages[1].timeout_ms = 1000 * test_slower();
    stages[1].on_failure = WEIR_STAGE_SKIP;
    spec.budget_ms = 15000 + 1000 * test_slower();
    FLOW_SCOPE(scope, &result)
    {
        struct item item = {0};
        CHECK_OK(weir_pool_open(scope, &small_pool, &pool));
        stages[1].pool = pool;
        CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
        CHECK_INT(weir_pipeline_call(pipeline, &item, NULL), ==, 0);
        CHECK_INT(item.trail, ==, 123);
        item = (struct item){.fail_stage = 2, .error = -EDOM};
        CHECK_INT(weir_pipeline_call(pipeline, &item, NULL), ==, WEIR_PARTIAL);
        CHECK_INT(item.trail, ==, 13);
        item = (struct item){.wait_stage = 2};
        CHECK_INT(weir_pipeline_call(pipeline, &item, NULL), ==, WEIR_PARTIAL);
        CHECK_INT(item.trail, ==, 13);
        atom_store_release(&pool_gate, true);
        check_conserved(pipeline, 3);
    }
    return result;
}

/* ---- Figures ---- */

static int measure(void *arg)
{
    weir_stage_spec stages[3];
    weir_pipeline_spec spec = three(stages);
    weir_pipeline_figures f;
    weir_stage_figures s;
    weir_pipeline *pipeline;
    int result;

    (void)arg;
    reset();
    stages[0].timeout_ms = 10;
    stages[0].on_failure = WEIR_STAGE_SKIP;
    stages[0].latency_ms = 4;
    spec.latency_ms = 7;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_event_open(scope, "gate", &places[0].gate));
        CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
        /* The second waits while the first is in work, for 10 ms of time that jumps. */
        CHECK_OK(weir_pipeline_send(pipeline, &(struct item){.wait_stage = 1}));
        CHECK_OK(weir_pipeline_send(pipeline, &(struct item){.wait_stage = 1}));
        weir_pipeline_stop(pipeline, WEIR_DRAIN);
        CHECK_OK(weir_pipeline_wait(pipeline));
        CHECK_OK(weir_pipeline_stage_figures(pipeline, 0, &s));
        CHECK_INT(s.latency_ms, ==, 4);
        CHECK_INT(s.waited.count, ==, 2);
        CHECK_INT(s.waited.max_ns / 1000000, ==, 10);
        CHECK_INT(s.waited.total_ns / 1000000, ==, 10);
        CHECK_INT(s.ran.count, ==, 2);
        CHECK_INT(s.ran.total_ns / 1000000, ==, 20);
        CHECK_INT(s.timeouts, ==, 2);
        weir_pipeline_figures_of(pipeline, &f);
        CHECK_INT(f.latency_ms, ==, 7);
        CHECK_INT(f.end_to_end.count, ==, 2);
        CHECK_INT(f.end_to_end.max_ns / 1000000, ==, 20);
        CHECK_INT(f.partial, ==, 2);
    }
    return result;
}

TEST_WITH(pipeline_figures_have_the_target_beside_what_is_measured, .workers = 1)
{
    test_clock_auto();
    CHECK_OK(flow_test_run(measure));
}

/* ---- The policy slot ---- */

struct fake_policy {
    int refuse_from; /* attempts from this number on are refused */
    int before, after, ended;
    int ended_with;
    int results[8];
    int64_t again_ms;
};

/* What it keeps of an item stays until it has ended, and the item is as it came. */
static void fake_ended(void *keep_state, const weir_stage_attempt *attempt, int result)
{
    struct fake_policy *fake = keep_state;
    const struct item *item = attempt->item;
    CHECK_INT(attempt->number, ==, fake->before);
    CHECK_INT(attempt->item_bytes, ==, sizeof *item);
    CHECK_INT(item->trail, ==, 1);
    CHECK_INT(*(int *)attempt->keep, ==, 4711);
    fake->ended++;
    fake->ended_with = result;
}

static int fake_before(void *keep_state, const weir_stage_attempt *attempt)
{
    struct fake_policy *fake = keep_state;
    CHECK_STR(attempt->pipeline, "pipe");
    CHECK_STR(attempt->stage, "two");
    CHECK_INT(attempt->number, ==, ++fake->before);
    CHECK_INT(attempt->deadline_ns, >, weir_now_ns());
    if (attempt->number == 1) memset(attempt->keep, 0x5a, WEIR_STAGE_KEEP_BYTES);
    *(int *)attempt->keep = 4711;
    if (fake->refuse_from && attempt->number >= fake->refuse_from) return WEIR_EOVERLOAD;
    return weir_yield();
}

static int64_t fake_after(void *keep_state, const weir_stage_attempt *attempt, int result,
                          int64_t run_ns)
{
    struct fake_policy *fake = keep_state;
    CHECK_INT(attempt->number, ==, fake->after + 1);
    CHECK_INT(run_ns, >=, 0);
    fake->results[fake->after++] = result;
    return result < 0 ? fake->again_ms : WEIR_STAGE_DONE;
}

/* Fails until it was called for the third time; every time it finds the item as it was. */
static int third_time(void *data, void *keep_arg)
{
    struct item *item = data;
    struct place *place = keep_arg;
    CHECK_INT(item->trail, ==, 1);
    item->trail = 77;
    if (atom_add(&place->entered, 1) + 1 < 3) return -EAGAIN;
    item->trail = 12;
    return 0;
}

struct policy_row {
    int attempts_max, refuse_from;
    int64_t again_ms;
    int expected, before, after;
};

FLOW_TEST(pipeline_policy_slot_decides_before_and_after_each_attempt)
{
    static const struct policy_row rows[] = {
        {5, 0, 1, 0, 3, 3},                     /* tried again until it succeeds */
        {2, 0, 1, -EAGAIN, 2, 2},               /* at most attempts_max times */
        {5, 0, WEIR_STAGE_DONE, -EAGAIN, 1, 1}, /* the policy wants no more */
        {5, 1, 1, WEIR_EOVERLOAD, 1, 0},        /* refused at once */
        {5, 2, 1, WEIR_EOVERLOAD, 2, 1},        /* refused later */
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct policy_row *row = &rows[i];
        struct fake_policy fake = {.refuse_from = row->refuse_from, .again_ms = row->again_ms};
        const weir_stage_policy policy = {.before = fake_before,
                                          .after = fake_after,
                                          .ended = fake_ended,
                                          .worst_case_ms = thrice,
                                          .attempts_max = row->attempts_max,
                                          .keep_state = &fake};
        weir_stage_spec stages[3];
        weir_pipeline_spec spec = three(stages);
        weir_stage_figures s;
        weir_pipeline *pipeline;
        int result;

        reset();
        test_note("row %zu", i);
        stages[1].fn = third_time;
        stages[1].keep_policy = &policy;
        stages[1].idempotent = true;
        stages[1].timeout_ms = 2500;
        FLOW_SCOPE(scope, &result)
        {
            struct item item = {0};
            CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
            CHECK_INT(weir_pipeline_call(pipeline, &item, NULL), ==, row->expected);
            CHECK_INT(item.trail, ==, row->expected ? 1 : 123);
            CHECK_INT(fake.before, ==, row->before);
            CHECK_INT(fake.after, ==, row->after);
            CHECK_INT(fake.ended, ==, 1);
            CHECK_INT(fake.ended_with, ==, row->expected);
            for (int k = 0; k < fake.after; k++) {
                CHECK_INT(fake.results[k], ==, k < 2 ? -EAGAIN : 0);
            }
            CHECK_OK(weir_pipeline_stage_figures(pipeline, 1, &s));
            CHECK_INT(s.rejected, ==, row->refuse_from != 0);
            CHECK_INT(s.ran.count, ==, (uint64_t)row->after);
            check_conserved(pipeline, 3);
        }
        CHECK_OK(result);
    }
    return 0;
}

/* ---- With something going wrong everywhere ---- */

struct swept {
    ATOM(int) out;
    int in;
};

static int receive_all(void *arg)
{
    struct swept *swept = *(struct swept **)arg;
    weir_pipeline *pipeline = ((weir_pipeline **)arg)[1];
    struct item item;
    int r;

    while ((r = weir_pipeline_recv(pipeline, &item, NULL)) >= 0) (void)atom_add(&swept->out, 1);
    return r == WEIR_ECLOSED ? 0 : r;
}

static int swept_task(void *arg)
{
    struct swept swept = {.in = 0};
    weir_stage_spec stages[3];
    weir_pipeline_spec spec = three(stages);
    weir_pipeline *pipeline = NULL;
    int result, r, called = 0;

    (void)arg;
    reset();
    stages[0].queue_max = 1;
    stages[1].on_failure = WEIR_STAGE_SKIP;
    spec.results_max = 1;
    WEIR_SCOPE(scope, &result, .name = "swept", .on_failure = WEIR_FAIL_FAST, .max_tasks = 8,
               .overflow = WEIR_REJECT) {
        r = weir_pipeline_open(scope, &spec, &pipeline);
        if (r == 0) {
            void *both[2] = {&swept, pipeline};
            r = weir_spawn(scope, receive_all, both, sizeof both);
        }
        for (int i = 0; r == 0 && i < 4; i++) {
            struct item item = {.fail_stage = i == 1 ? 2 : i == 2 ? 3 : 0, .error = -EIO};
            r = weir_pipeline_send(pipeline, &item);
            if (r == 0) swept.in++;
        }
        if (r == 0) {
            r = weir_pipeline_call(pipeline, &(struct item){0}, NULL);
            if (r == 0) called++;
        }
        if (r == 0) {
            weir_pipeline_stop(pipeline, WEIR_DRAIN);
            r = weir_pipeline_wait(pipeline);
        }
        if (r < 0) weir_scope_cancel(scope, r, "swept");
        result = r;
    }
    /* A call that was cut short may have left its item to the hook. */
    CHECK_INT(atom_load(&swept.out) + atom_load(&lost_count), >=, swept.in);
    CHECK_INT(atom_load(&swept.out) + atom_load(&lost_count), <=, swept.in + 1 - called);
    return result;
}

static int swept_scenario(void *arg)
{
    return weir_run(&(weir_config){.workers = test_workers(), .log_level = WEIR_LOG_OFF},
                    swept_task, arg);
}

TEST(pipeline_cancelled_anywhere_loses_no_item_silently)
{
    CHECK_INT(test_sweep_cancel(swept_scenario, NULL), >, 10);
}

TEST(pipeline_without_memory_loses_no_item_silently)
{
    CHECK_INT(test_sweep_alloc(swept_scenario, NULL), >, 4);
}

/* ---- Many at once ---- */

struct load {
    weir_pipeline *pipeline;
    ATOM(int) * finished;
    bool calls;
    bool short_of_time;
};

static int load_pipeline(void *arg)
{
    struct load *load = arg;
    for (int i = 0; i < 100; i++) {
        struct item item = {.id = i, .fail_stage = i % 10 == 9 ? 3 : 0, .error = -EIO};
        int r = 0;
        if (!load->calls) {
            r = weir_pipeline_send(load->pipeline, &item);
        } else if (load->short_of_time && i % 8 == 0) {
            WEIR_DEADLINE(1) { r = weir_pipeline_call(load->pipeline, &item, NULL); }
            if (r == WEIR_ETIMEDOUT) r = 0;
        } else {
            r = weir_pipeline_call(load->pipeline, &item, NULL);
            if (r == 0) {
                CHECK_INT(item.trail, ==, 123);
                CHECK_INT(item.id, ==, i);
                (void)atom_add(load->finished, 1);
            }
        }
        if (r < 0 && r != -EIO) return r;
    }
    return 0;
}

FLOW_TEST(pipeline_accounts_for_every_item_of_many_callers_and_senders)
{
    static ATOM(int) finished;
    int callers = TEST_SLOW ? 60 : 200;
    weir_stage_spec stages[3];
    weir_pipeline_spec spec = three(stages);
    weir_pipeline_figures f;
    weir_pipeline *pipeline;
    int result;

    reset();
    atom_store(&finished, 0);
    for (int i = 0; i < 3; i++) stages[i].concurrency = i + 1;
    FLOW_SCOPE_ANYWHERE(scope, &result)
    {
        CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
        for (int i = 0; i < callers; i++) {
            struct load load = {pipeline, &finished, i % 2 == 0, i % 4 == 0};
            CHECK_OK(weir_spawn(scope, load_pipeline, &load, sizeof load));
        }
        CHECK_OK(weir_scope_join(scope));
        weir_pipeline_stop(pipeline, WEIR_DRAIN);
        CHECK_OK(weir_pipeline_wait(pipeline));
        weir_pipeline_figures_of(pipeline, &f);
        CHECK_INT(f.inside, ==, 0);
        CHECK_INT(f.accepted, ==, f.finished + f.lost + f.removed);
        CHECK_INT(f.finished, >=, atom_load(&finished));
        CHECK_INT(atom_load(&lost_count), <=, f.lost);
        check_conserved(pipeline, 3);
    }
    return result;
}

static ATOM(int) producing;

static int run_producer(void *arg)
{
    const struct stream *stream = arg;
    (void)atom_add(&producing, 1);
    for (;;) {
        int r = weir_pipeline_send(stream->pipeline, &(struct item){0});
        if (r < 0) return r == WEIR_ECLOSED ? 0 : r;
    }
}

static int slow_step(void *data, void *keep_arg)
{
    (void)data;
    (void)atom_add(&((struct place *)keep_arg)->left, 1);
    return weir_sleep(1);
}

static void outrun(int for_ms)
{
    weir_stage_spec stages[3];
    weir_pipeline_spec spec = three(stages);
    weir_pipeline *pipeline;
    size_t bytes = 0;
    int result;

    reset();
    atom_store(&producing, 0);
    stages[2].fn = slow_step;
    FLOW_SCOPE_ANYWHERE(scope, &result)
    {
        CHECK_OK(weir_pipeline_open(scope, &spec, &pipeline));
        for (int i = 0; i < 20; i++) {
            struct stream stream = {.pipeline = pipeline};
            CHECK_OK(weir_spawn(scope, run_producer, &stream, sizeof stream));
        }
        for (int64_t until = weir_now_ns() + for_ms * INT64_C(1000000); weir_now_ns() < until;) {
            while (atom_load(&places[2].left) < 20 || atom_load(&producing) < 20)
                CHECK_OK(weir_sleep(1));
            CHECK_OK(weir_sleep(10));
            if (!bytes) bytes = test_live_bytes();
            CHECK_INT(test_live_bytes(), <=,
                      bytes + FLOW_TEST_FIGURES_BYTES(7)); /* a pipeline, 3 stages */
            check_conserved(pipeline, 3);
        }
        weir_pipeline_stop(pipeline, WEIR_DRAIN);
    }
    CHECK_OK(result);
    CHECK_INT(atom_load(&lost_count), ==, 0);
}

FLOW_TEST(pipeline_stays_at_its_bounds_while_producers_outrun_it)
{
    outrun(100);
    return 0;
}

static int outrun_for_long(void *arg)
{
    (void)arg;
    outrun(10000);
    return 0;
}

TEST_WITH(pipeline_stays_at_its_bounds_for_ten_seconds, .long_only = true, .timeout_ms = 60000)
{
    CHECK_OK(flow_test_run(outrun_for_long));
}

/* ---- Blast radius ---- */

FLOW_TEST(pipeline_that_is_stuck_saturated_and_failing_leaves_its_neighbour_alone)
{
    weir_stage_spec bad_stages[3], good_stages[3];
    weir_pipeline_spec bad_spec = three(bad_stages), good_spec = three(good_stages);
    weir_pipeline *bad, *good;
    weir_pool *bad_pool, *good_pool;
    weir_pool_figures f;
    int result, inner, rejected = 0;

    reset();
    atom_store(&pool_gate, false);
    bad_stages[0].overflow = WEIR_REJECT;
    bad_stages[1].fn = step_in_pool;
    bad_stages[1].concurrency = 4;
    bad_stages[2].concurrency = 4;
    good_stages[1].fn = step_in_pool;
    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_pool_open(scope, &small_pool, &good_pool));
        good_stages[1].pool = good_pool;
        CHECK_OK(weir_pipeline_open(scope, &good_spec, &good));
        WEIR_SCOPE(owner, &inner, .name = "bad", .on_failure = WEIR_COLLECT, .max_tasks = 16,
                   .overflow = WEIR_REJECT, .place = WEIR_PLACE_HERE) {
            CHECK_OK(weir_pool_open(owner, &small_pool, &bad_pool));
            bad_stages[1].pool = bad_pool;
            CHECK_OK(weir_pipeline_open(owner, &bad_spec, &bad));
            /* Its pool's threads are stuck, and its queues are full, all the while. */
            for (int i = 0; i < 100; i++) {
                struct item item = {.wait_stage = 2, .fail_stage = 3, .error = -EIO};
                struct item well = {0};
                int r = weir_pipeline_send(bad, &item);
                CHECK(r == 0 || r == WEIR_EOVERLOAD);
                rejected += r == WEIR_EOVERLOAD;
                CHECK_INT(weir_pipeline_call(good, &well, NULL), ==, 0);
                CHECK_INT(well.trail, ==, 123);
            }
            CHECK_INT(rejected, >, 80);
            CHECK_OK(weir_pool_figures_of(good_pool, 0, &f));
            CHECK_INT(f.finished, ==, 100);
            check_conserved(bad, 3);
            check_conserved(good, 3);
            atom_store_release(&pool_gate, true);
        }
        CHECK_OK(inner);
        CHECK_INT(atom_load(&lost_count), ==, 100 - rejected); /* each has failed, by itself */
        CHECK_INT(weir_pipeline_call(good, &(struct item){0}, NULL), ==, 0);
    }
    return result;
}
