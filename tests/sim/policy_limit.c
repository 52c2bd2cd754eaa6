/* policy_limit.c - rates and limits that callers share: never more in any time, never more at a
 * time, and nothing is lost by callers that are cancelled. */
#include "sim/policy.h"

enum { CALLERS = 5, TAKES = 4 };

/* ---- Rate ---- */

enum { RATE = 100, BURST = 3, TAKEN_MAX = CALLERS * TAKES };

static weir_rate *rate;

static struct {
    int64_t at_ns[TAKEN_MAX];
    unsigned tokens[TAKEN_MAX];
    unsigned count, sum, ready;
} taken;

static void forget_taken(void *arg)
{
    (void)arg;
    memset(&taken, 0, sizeof taken);
}

/* Over any time no more than burst + rate * time: from each one taken to each later one. */
static void look_at_windows(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < taken.count; i++) {
        unsigned sum = 0;

        for (unsigned k = i; k < taken.count; k++) {
            int64_t passed_ns = taken.at_ns[k] - taken.at_ns[i];

            CHECK_INT(passed_ns, >=, 0);
            sum += taken.tokens[k];
            CHECK_INT(sum * 1000 * MS_NS, <=, BURST * 1000 * MS_NS + RATE * passed_ns);
        }
    }
}

static int take_some(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < TAKES; i++) {
        unsigned tokens = 1 + weir_sim_choose(BURST);
        int r = weir_rate_take(rate, tokens);

        if (r == WEIR_ECANCELED) return r;
        if (r == 0) {
            taken.at_ns[taken.count] = weir_now_ns();
            taken.tokens[taken.count++] = tokens;
            taken.sum += tokens;
        } else {
            CHECK_INT(r, ==, WEIR_EOVERLOAD);
        }
        if (weir_sim_choose(2)) {
            r = weir_sleep(weir_sim_choose(40));
            if (r < 0) return r;
        }
    }
    return 0;
}

/* With `waiters` 0 nobody waits. */
static int share_rate(unsigned waiters, bool with_cancel)
{
    weir_rate_figures figures;
    int r = 0;

    SCOPE_OF(scope, &r, 1)
    {
        CHECK_OK(weir_rate_open(scope,
                                &(weir_rate_spec){.name = "shared",
                                                  .rate = RATE,
                                                  .burst = BURST,
                                                  .overflow = waiters ? WEIR_WAIT : WEIR_REJECT,
                                                  .waiters_max = waiters},
                                &rate));
        SCOPE_OF(inner, &r, CALLERS)
        {
            weir_task tasks[CALLERS];

            CHECK_OK(crowd_of(CALLERS, take_some, inner, tasks));
            for (unsigned i = 0; with_cancel && i < 2; i++) {
                CHECK_OK(weir_sleep(weir_sim_choose(30)));
                (void)weir_task_cancel(tasks[i], "the test cancels it");
            }
        }
        weir_rate_figures_of(rate, &figures);
        CHECK_INT(figures.taken, ==, taken.sum);
        CHECK_INT(figures.admitted, ==, taken.count);
        CHECK_INT(figures.waiting, ==, 0);
        if (waiters >= CALLERS) CHECK_INT(figures.rejected, ==, 0);
    }
    return r;
}

SIM_TEST(sim_rate_gives_no_more_than_burst_and_rate_in_any_time, .runs_max = 4000,
         .begin = forget_taken, .end = look_at_windows)
{
    return share_rate(CALLERS, false);
}

SIM_TEST(sim_rate_with_callers_that_are_cancelled_on_two_workers, .runs_max = 3000,
         .begin = forget_taken, .end = look_at_windows, .config = &policy_two_workers)
{
    return share_rate(2, true);
}

SIM_TEST(sim_rate_without_a_line_rejects_at_once, .runs_max = 3000, .begin = forget_taken,
         .end = look_at_windows)
{
    return share_rate(0, true);
}

/* What was promised comes, too: whoever waits has its tokens when they have come. */
static int64_t due_ns;

static int take_on_time(void *arg)
{
    (void)arg;
    CHECK_OK(weir_rate_take(rate, 1));
    taken.ready++;
    CHECK_INT(weir_now_ns(), <=, due_ns + MS_NS);
    return 0;
}

SIM_TEST(sim_rate_gives_what_it_promised_in_time, .runs_max = 3000, .begin = forget_taken,
         .config = &policy_two_workers)
{
    int r = 0;

    SCOPE_OF(scope, &r, 1)
    {
        CHECK_OK(weir_rate_open(scope,
                                &(weir_rate_spec){.name = "in time",
                                                  .rate = RATE,
                                                  .burst = 1,
                                                  .overflow = WEIR_WAIT,
                                                  .waiters_max = CALLERS},
                                &rate));
        due_ns = weir_now_ns() + (CALLERS - 1) * 10 * MS_NS;
        CHECK_OK(crowd(CALLERS, take_on_time));
        CHECK_INT(taken.ready, ==, CALLERS);
    }
    return r;
}

/* ---- Limit ---- */

enum { INSIDE_MAX = 2 };

static weir_limit *limit;
static struct {
    unsigned now, most, entered, left, bound;
} inside;

static void forget_inside(void *arg)
{
    (void)arg;
    memset(&inside, 0, sizeof inside);
    inside.bound = INSIDE_MAX;
}

static bool is_within_limit(void *arg)
{
    (void)arg;
    return inside.now <= inside.bound;
}

static int go_in_and_out(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < TAKES; i++) {
        weir_limit_pass pass = {0};
        int r = weir_limit_enter(limit, &pass);

        if (r == WEIR_ECANCELED) return r;
        if (r == WEIR_EOVERLOAD) {
            r = weir_sleep(1 + weir_sim_choose(5));
            if (r < 0) return r;
            continue;
        }
        CHECK_OK(r);
        inside.entered++;
        if (++inside.now > inside.most) inside.most = inside.now;
        r = weir_sim_choose(2) ? weir_yield() : weir_sleep(weir_sim_choose(10));
        inside.now--;
        inside.left++;
        weir_limit_leave(limit, &pass, r);
        if (r < 0) return r;
    }
    return 0;
}

static int share_limit(size_t waiters)
{
    weir_limit_figures figures;
    int r = 0;

    SCOPE_OF(scope, &r, 1)
    {
        CHECK_OK(weir_limit_open(scope,
                                 &(weir_limit_spec){.name = "shared",
                                                    .kind = WEIR_LIMIT_FIXED,
                                                    .concurrency = INSIDE_MAX,
                                                    .overflow = WEIR_WAIT,
                                                    .waiters_max = waiters},
                                 &limit));
        SCOPE_OF(inner, &r, CALLERS)
        {
            weir_task tasks[CALLERS];

            CHECK_OK(crowd_of(CALLERS, go_in_and_out, inner, tasks));
            for (unsigned i = 0; i < 3; i++) {
                CHECK_OK(weir_sleep(weir_sim_choose(12)));
                (void)weir_task_cancel(tasks[i], "the test cancels it");
            }
        }
        weir_limit_figures_of(limit, &figures);
        CHECK_INT(figures.in_flight, ==, 0);
        CHECK_INT(figures.waiting, ==, 0);
        CHECK_INT(figures.admitted, ==, inside.entered);
        CHECK_INT(figures.in_flight_max, <=, INSIDE_MAX);
        CHECK_INT(inside.entered, ==, inside.left);
    }
    return r;
}

SIM_TEST(sim_limit_lets_no_more_in_and_keeps_its_permits, .runs_max = 6000, .begin = forget_inside,
         .invariants = {{.name = "no more are inside than the limit", .holds = is_within_limit}})
{
    return share_limit(CALLERS);
}

SIM_TEST(sim_limit_on_two_workers_with_a_short_line, .runs_max = 4000, .begin = forget_inside,
         .config = &policy_two_workers,
         .invariants = {{.name = "no more are inside than the limit", .holds = is_within_limit}})
{
    return share_limit(1);
}

/* ---- An adaptive limit ---- */

enum { LEAST = 2, MOST = 6, MANY = 12 };

static int load(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < 30; i++) {
        weir_limit_pass pass = {0};
        weir_limit_figures figures;

        CHECK_OK(weir_limit_enter(limit, &pass));
        inside.now++;
        weir_limit_figures_of(limit, &figures);
        CHECK_INT(figures.limit, >=, LEAST);
        CHECK_INT(figures.limit, <=, MOST);
        /* The more at a time, the longer it takes; and now and then it fails. */
        CHECK_OK(weir_sleep(1 + (int64_t)inside.now * weir_sim_choose(3)));
        inside.now--;
        weir_limit_leave(limit, &pass, weir_sim_choose(8) == 7 ? WEIR_ETIMEDOUT : 0);
    }
    return 0;
}

static void forget_adaptive(void *arg)
{
    forget_inside(arg);
    inside.bound = MOST;
}

SIM_TEST(sim_adaptive_limit_stays_in_its_range, .runs_max = 300, .begin = forget_adaptive,
         .invariants = {{.name = "no more are inside than the limit", .holds = is_within_limit}})
{
    weir_limit_figures figures;
    int r = 0;

    SCOPE_OF(scope, &r, 1)
    {
        CHECK_OK(weir_limit_open(scope,
                                 &(weir_limit_spec){.name = "adaptive",
                                                    .kind = WEIR_LIMIT_ADAPTIVE,
                                                    .concurrency = 4,
                                                    .concurrency_min = LEAST,
                                                    .concurrency_max = MOST,
                                                    .window_ms = 10,
                                                    .probe_ms = 100,
                                                    .overflow = WEIR_WAIT,
                                                    .waiters_max = MANY},
                                 &limit));
        CHECK_OK(crowd(MANY, load));
        weir_limit_figures_of(limit, &figures);
        CHECK_INT(figures.in_flight, ==, 0);
        CHECK_INT(figures.admitted, ==, MANY * 30);
    }
    return r;
}
