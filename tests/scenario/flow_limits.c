/* flow_limits.c - rates, limits and shedders: a thousand callers at once, cancelled at every
 * suspension point, and without memory. What got in is counted, and everything that was taken
 * is given back.
 */
#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "rt/runtime.h"
#include "unit/flow/flow_test.h"

enum { CALLERS = 1000, EACH = TEST_SANITIZED ? 10 : 100 };

#define SHARED(type, arg) (*(type **)(arg))

/* ---- A thousand callers ---- */

struct crowded {
    weir_limit *limit;
    weir_rate *rate;
    weir_shed *shed;
    int allowed; /* inside at a time */
    ATOM(int) inside;
    ATOM(long) admitted, rejected, turn;
};

static void crowd(weir_task_fn fn, struct crowded *crowded)
{
    int result;

    FLOW_SCOPE_ANYWHERE(scope, &result)
    {
        for (int i = 0; i < CALLERS; i++) CHECK_OK(weir_spawn(scope, fn, &crowded, sizeof crowded));
    }
    CHECK_OK(result);
}

static int enter_and_leave(void *arg)
{
    struct crowded *crowded = SHARED(struct crowded, arg);
    int r = 0;

    for (int i = 0; i < EACH && r >= 0; i++) {
        weir_limit_pass pass;
        r = weir_limit_enter(crowded->limit, &pass);
        if (r == WEIR_EOVERLOAD) {
            (void)atom_add(&crowded->rejected, 1);
            r = weir_yield();
            continue;
        }
        if (r < 0) return r;
        (void)atom_add(&crowded->admitted, 1);
        CHECK_INT(atom_add(&crowded->inside, 1) + 1, <=, crowded->allowed);
        if (i % 4 == 0) r = weir_yield();
        (void)atom_sub(&crowded->inside, 1);
        weir_limit_leave(crowded->limit, &pass, i % 8 == 7 ? WEIR_ETIMEDOUT : r);
        weir_limit_leave(crowded->limit, &pass, r); /* once is enough */
    }
    return r;
}

static void check_limit(struct crowded *crowded, bool rejects)
{
    weir_limit_figures figures;

    weir_limit_figures_of(crowded->limit, &figures);
    CHECK_INT(figures.in_flight, ==, 0);
    CHECK_INT(figures.waiting, ==, 0);
    CHECK_INT(figures.in_flight_max, <=, crowded->allowed);
    CHECK_INT(figures.admitted, ==, atom_load(&crowded->admitted));
    CHECK_INT(figures.rejected, ==, atom_load(&crowded->rejected));
    CHECK_INT(figures.admitted + figures.rejected, ==, (long)CALLERS * EACH);
    if (!rejects) CHECK_INT(figures.rejected, ==, 0);
}

FLOW_TEST(thousand_callers_of_a_limit_are_all_accounted_for)
{
    static const size_t waiters[] = {CALLERS, 50, 0};
    int result;

    FLOW_SCOPE(scope, &result)
    {
        for (size_t i = 0; i < sizeof waiters / sizeof *waiters; i++) {
            for (int adaptive = 0; adaptive < 2; adaptive++) {
                static struct crowded crowded;
                weir_limit_spec spec = {.name = "limit",
                                        .kind = adaptive ? WEIR_LIMIT_ADAPTIVE : WEIR_LIMIT_FIXED,
                                        .concurrency = 8,
                                        .concurrency_max = adaptive ? 32 : 8,
                                        .overflow = waiters[i] ? WEIR_WAIT : WEIR_REJECT,
                                        .waiters_max = waiters[i]};
                memset(&crowded, 0, sizeof crowded);
                test_note("%zu may wait, %s", waiters[i], adaptive ? "adaptive" : "fixed");
                crowded.allowed = (int)spec.concurrency_max;
                CHECK_OK(weir_limit_open(scope, &spec, &crowded.limit));
                crowd(enter_and_leave, &crowded);
                check_limit(&crowded, waiters[i] < CALLERS);
                weir_limit_close(crowded.limit);
            }
        }
    }
    return result;
}

static int take_and_shed(void *arg)
{
    struct crowded *crowded = SHARED(struct crowded, arg);
    int r = 0;

    for (int i = 0; i < EACH && r >= 0; i++) {
        long turn = atom_add(&crowded->turn, 1);
        r = weir_shed_enter(crowded->shed, turn % 10 * INT64_C(1000000));
        if (r == 0) r = weir_rate_take(crowded->rate, 1 + (unsigned)turn % 3);
        if (r == 0) {
            (void)atom_add(&crowded->admitted, 1);
        } else if (r == WEIR_EOVERLOAD) {
            (void)atom_add(&crowded->rejected, 1);
            r = weir_yield();
        }
    }
    return r;
}

FLOW_TEST(thousand_callers_of_a_rate_and_a_shedder_are_all_accounted_for)
{
    static struct crowded crowded;
    weir_rate_figures rate;
    weir_shed_figures shed;
    int64_t began_ns = weir_now_ns(), passed_ns;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_rate_open(scope,
                                &(weir_rate_spec){.name = "rate",
                                                  .rate = 1000000,
                                                  .burst = 100,
                                                  .overflow = WEIR_WAIT,
                                                  .waiters_max = 100},
                                &crowded.rate));
        CHECK_OK(weir_shed_open(scope,
                                &(weir_shed_spec){.name = "shed", .target_ms = 5, .interval_ms = 8},
                                &crowded.shed));
        crowd(take_and_shed, &crowded);
        passed_ns = weir_now_ns() - began_ns;
        weir_rate_figures_of(crowded.rate, &rate);
        weir_shed_figures_of(crowded.shed, &shed);
        CHECK_INT(shed.admitted + shed.shed, ==, (long)CALLERS * EACH);
        CHECK_INT(rate.admitted + rate.rejected, ==, shed.admitted);
        CHECK_INT(rate.admitted, ==, atom_load(&crowded.admitted));
        CHECK_INT(rate.rejected + shed.shed, ==, atom_load(&crowded.rejected));
        CHECK_INT(rate.waiting, ==, 0);
        CHECK_INT(rate.taken, <=, 100 + passed_ns / 1000 + 1);
    }
    return result;
}

/* ---- Cancelled anywhere, without memory anywhere ---- */

struct scene {
    int workers;
    weir_limit *limit;
    weir_rate *rate;
    weir_shed *shed;
    ATOM(long) admitted, taken;
};

static int tolerated(int r)
{
    CHECK(r >= 0 || r == WEIR_ECANCELED || r == -ENOMEM);
    return r;
}

static int go_through(void *arg)
{
    struct scene *scene = SHARED(struct scene, arg);
    int r = 0;

    for (int i = 0; i < 3 && r == 0; i++) {
        weir_limit_pass pass = {0};
        r = weir_limit_enter(scene->limit, &pass);
        if (r == 0) {
            (void)atom_add(&scene->admitted, 1);
            r = weir_shed_enter(scene->shed, 0);
        }
        if (r == 0) r = weir_rate_take(scene->rate, 2);
        if (r == 0) (void)atom_add(&scene->taken, 2);
        if (r == 0) r = weir_yield();
        weir_limit_leave(scene->limit, &pass, r);
    }
    return tolerated(r);
}

static int open_scene(weir_scope *scope, struct scene *scene)
{
    int r = weir_limit_open(scope,
                            &(weir_limit_spec){.name = "limit",
                                               .kind = WEIR_LIMIT_ADAPTIVE,
                                               .concurrency = 4,
                                               .concurrency_max = 4,
                                               .overflow = WEIR_WAIT,
                                               .waiters_max = 4},
                            &scene->limit);
    if (r == 0) {
        r = weir_rate_open(
            scope,
            &(weir_rate_spec){
                .name = "rate", .rate = 2000, .burst = 2, .overflow = WEIR_WAIT, .waiters_max = 4},
            &scene->rate);
    }
    if (r == 0) {
        r = weir_shed_open(scope,
                           &(weir_shed_spec){.name = "shed", .target_ms = 1, .interval_ms = 10},
                           &scene->shed);
    }
    return r;
}

/* Nothing is taken any more, and nobody is in the way. */
static void check_scene(struct scene *scene)
{
    weir_limit_figures limit;
    weir_rate_figures rate;

    weir_limit_figures_of(scene->limit, &limit);
    CHECK_INT(limit.in_flight, ==, 0);
    CHECK_INT(limit.waiting, ==, 0);
    CHECK_INT(limit.admitted, ==, atom_load(&scene->admitted));
    weir_rate_figures_of(scene->rate, &rate);
    CHECK_INT(rate.waiting, ==, 0);
    CHECK_INT(rate.taken, ==, atom_load(&scene->taken));
}

static int run_scene(void *arg)
{
    struct scene *scene = SHARED(struct scene, arg);
    int result = 0, inner = 0, r = 0;

    WEIR_SCOPE(scope, &result, .name = "around", .on_failure = WEIR_COLLECT, .max_tasks = 1,
               .overflow = WEIR_REJECT) {
        r = open_scene(scope, scene);
        if (r == 0) {
            WEIR_SCOPE(target, &inner, .name = "target", .on_failure = WEIR_FAIL_FAST,
                       .max_tasks = 16, .overflow = WEIR_REJECT) {
                runtime_cancel_target(target);
                for (int i = 0; i < 4 && r == 0; i++) {
                    r = weir_spawn(target, go_through, &scene, sizeof scene);
                }
                if (r < 0) weir_scope_cancel(target, 0, "it did not come about");
            }
            check_scene(scene);
        }
    }
    if (r == 0) r = result < 0 ? result : inner;
    return tolerated(r);
}

static int scenario(void *arg)
{
    struct scene scene = {.workers = *(int *)arg}, *pointer = &scene;

    return weir_run(&(weir_config){.workers = scene.workers, .log_level = WEIR_LOG_OFF}, run_scene,
                    &pointer);
}

TEST_WITH(limits_cancelled_anywhere_have_given_everything_back, .timeout_ms = 60000)
{
    test_clock_auto();
    CHECK_INT(test_sweep_cancel(scenario, &(int){1}), >=, 20);
}

TEST_WITH(limits_cancelled_anywhere_on_two_workers_have_given_everything_back, .timeout_ms = 60000)
{
    CHECK_INT(test_sweep_cancel(scenario, &(int){2}), >=, 20);
}

TEST_WITH(limits_without_memory_have_given_everything_back, .timeout_ms = 60000)
{
    test_clock_auto();
    CHECK_INT(test_sweep_alloc(scenario, &(int){1}), >=, 5);
}

/* ---- Closed by another worker while tasks wait ---- */

static int wait_until_closed(void *arg)
{
    struct scene *scene = SHARED(struct scene, arg);
    int r = weir_rate_take(scene->rate, 1);

    return r == WEIR_ECLOSED ? 0 : r;
}

/* When all wait, and the rate's own worker has just been asked to look at its timer. */
static int close_rate(void *arg)
{
    struct scene *scene = SHARED(struct scene, arg);
    weir_rate_figures figures;

    do {
        CHECK_OK(weir_yield());
        weir_rate_figures_of(scene->rate, &figures);
    } while (figures.waiting + figures.admitted < 4);
    CHECK_OK(weir_rate_resize(scene->rate, 1 + (size_t)scene->workers % 2 * 999999, 0));
    weir_rate_close(scene->rate);
    return 0;
}

static int spawn_on(weir_scope *scope, weir_task_fn fn, int worker, struct scene *scene)
{
    weir_task_spec spec = {.fn = fn,
                           .arg = &scene,
                           .arg_bytes = sizeof scene,
                           .place = WEIR_PLACE_WORKER,
                           .worker = worker % test_workers()};
    return weir_task_spawn(scope, &spec, NULL);
}

FLOW_TEST(a_rate_that_is_closed_on_another_worker_lets_everybody_go)
{
    for (int round = 0; round < (TEST_SANITIZED ? 50 : 500) && !test_late(); round++) {
        struct scene scene = {.workers = round};
        int result, inner = 0;

        FLOW_SCOPE(scope, &result)
        {
            CHECK_OK(weir_rate_open(scope,
                                    &(weir_rate_spec){.name = "rate",
                                                      .rate = 1,
                                                      .rate_max = 1000000,
                                                      .burst = 1,
                                                      .overflow = WEIR_WAIT,
                                                      .waiters_max = 4},
                                    &scene.rate));
            CHECK_OK(weir_rate_take(scene.rate, 1));
            WEIR_SCOPE(users, &inner, .name = "users", .on_failure = WEIR_FAIL_FAST, .max_tasks = 8,
                       .overflow = WEIR_REJECT) {
                for (int i = 0; i < 3; i++) {
                    CHECK_OK(spawn_on(users, wait_until_closed, i, &scene));
                }
                CHECK_OK(spawn_on(users, close_rate, 1, &scene));
            }
            CHECK_OK(inner);
        }
        CHECK_OK(result);
    }
    return 0;
}
