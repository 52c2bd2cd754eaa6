/* resilience.c - `bench resilience`: what a call through each policy costs beyond the call.
 *
 * The call is of an empty function that is not inlined. A slice of such calls is timed through the
 * policy and without it, in turn, and the difference of the shortest slices is what is
 * printed: the rest is what neighbours on the machine have taken. On one worker that is
 * processor time; on several (BENCH_WORKERS) each calls through the same object, and it is
 * the time that passes until all have done their part, for a call of one of them. */
#include <stdbool.h>
#include <weir/weir.h>

#include "weir_session.h"

enum { SLICES = 32 };

static int workers = 1;

static struct {
    weir_shed *shed;
    weir_rate *rate;
    weir_limit *limit;
    weir_breaker *breaker;
    weir_retry_budget *budget;
    weir_guard *guard;
} shared;

static void check(const struct bench *bench, const char *call, int result)
{
    if (result >= 0) return;
    bench_fail(bench, call, *weir_why() ? weir_why() : weir_strerror(result));
}

static __attribute__((noinline)) int empty(void *arg)
{
    __asm__ volatile("" : : "r"(arg) : "memory");
    return 0;
}

/* ---- The policies: each opens what it needs, and makes so many calls through it ---- */

static int call_plain(size_t calls)
{
    int r = 0;
    for (size_t i = 0; i < calls && r >= 0; i++) r = empty(&shared);
    return r;
}

static int open_shed(weir_scope *scope)
{
    return weir_shed_open(
        scope, &(weir_shed_spec){.name = "shed", .target_ms = 5, .interval_ms = 100}, &shared.shed);
}

static int call_shed(size_t calls)
{
    int r = 0;
    for (size_t i = 0; i < calls && r >= 0; i++) {
        r = weir_shed_enter(shared.shed, 1000000);
        if (r == 0) r = empty(&shared);
    }
    return r;
}

/* Everything has waited longer than the target, so that the time is looked at. */
static int call_shed_late(size_t calls)
{
    int r = 0;
    for (size_t i = 0; i < calls && r >= 0; i++) {
        r = weir_shed_enter(shared.shed, 6000000);
        if (r == 0) r = empty(&shared);
        if (r == WEIR_EOVERLOAD) r = 0;
    }
    return r;
}

static int open_rate(weir_scope *scope)
{
    return weir_rate_open(scope,
                          &(weir_rate_spec){.name = "rate",
                                            .rate = 4000000000,
                                            .burst = 1000000,
                                            .overflow = WEIR_WAIT,
                                            .waiters_max = 16},
                          &shared.rate);
}

static int call_rate(size_t calls)
{
    int r = 0;
    for (size_t i = 0; i < calls && r >= 0; i++) {
        r = weir_rate_take(shared.rate, 1);
        if (r == 0) r = empty(&shared);
    }
    return r;
}

static int open_limit(weir_scope *scope)
{
    return weir_limit_open(scope,
                           &(weir_limit_spec){.name = "limit",
                                              .kind = WEIR_LIMIT_FIXED,
                                              .concurrency = 16,
                                              .overflow = WEIR_WAIT,
                                              .waiters_max = 16},
                           &shared.limit);
}

static int open_adaptive(weir_scope *scope)
{
    return weir_limit_open(scope,
                           &(weir_limit_spec){.name = "limit",
                                              .kind = WEIR_LIMIT_ADAPTIVE,
                                              .concurrency = 16,
                                              .concurrency_min = 4,
                                              .concurrency_max = 64,
                                              .overflow = WEIR_WAIT,
                                              .waiters_max = 16},
                           &shared.limit);
}

static int call_limit(size_t calls)
{
    int r = 0;
    for (size_t i = 0; i < calls && r >= 0; i++) {
        weir_limit_pass pass;
        r = weir_limit_enter(shared.limit, &pass);
        if (r < 0) return r;
        r = empty(&shared);
        weir_limit_leave(shared.limit, &pass, r);
    }
    return r;
}

static int open_breaker(weir_scope *scope)
{
    return weir_breaker_open(scope,
                             &(weir_breaker_spec){.name = "breaker",
                                                  .window_calls = 100,
                                                  .calls_min = 20,
                                                  .failure_percent = 50,
                                                  .open_ms = 1000,
                                                  .probes_max = 3},
                             &shared.breaker);
}

static int open_breaker_by_time(weir_scope *scope)
{
    return weir_breaker_open(scope,
                             &(weir_breaker_spec){.name = "breaker",
                                                  .window_ms = 10000,
                                                  .calls_min = 20,
                                                  .failure_percent = 50,
                                                  .open_ms = 1000,
                                                  .probes_max = 3},
                             &shared.breaker);
}

static int call_breaker(size_t calls)
{
    int r = 0;
    for (size_t i = 0; i < calls && r >= 0; i++) {
        weir_breaker_pass pass;
        r = weir_breaker_enter(shared.breaker, &pass);
        if (r < 0) return r;
        r = empty(&shared);
        weir_breaker_leave(shared.breaker, &pass, r);
    }
    return r;
}

static int open_budget(weir_scope *scope)
{
    return weir_retry_budget_open(
        scope, &(weir_retry_budget_spec){.name = "budget", .ratio_percent = 10, .per_second = 10},
        &shared.budget);
}

static int call_budget(size_t calls)
{
    int r = 0;
    for (size_t i = 0; i < calls && r >= 0; i++) {
        weir_retry_budget_call(shared.budget);
        r = empty(&shared);
    }
    return r;
}

/* A guard with nothing but its timeout, and what each part adds to it. */
static weir_guard_spec guard_spec(void)
{
    return (weir_guard_spec){.name = "guard", .timeout_ms = 1000};
}

static weir_retry_spec retry_spec(void)
{
    return (weir_retry_spec){.attempts = 3,
                             .backoff_ms = 10,
                             .backoff_ms_max = 20,
                             .errors = {WEIR_ETIMEDOUT},
                             .on_exhausted = WEIR_EXHAUSTED_FAIL,
                             .keep_budget = shared.budget};
}

static int open_guard(weir_scope *scope)
{
    weir_guard_spec spec = guard_spec();
    return weir_guard_open(scope, &spec, &shared.guard);
}

static int open_guard_breaker(weir_scope *scope)
{
    weir_guard_spec spec = guard_spec();
    int r = open_breaker(scope);

    spec.keep_breaker = shared.breaker;
    return r < 0 ? r : weir_guard_open(scope, &spec, &shared.guard);
}

static int open_guard_retry(weir_scope *scope)
{
    weir_guard_spec spec = guard_spec();
    int r = open_budget(scope);

    spec.idempotent = true;
    spec.attempt_timeout_ms = 100;
    spec.retry = retry_spec();
    return r < 0 ? r : weir_guard_open(scope, &spec, &shared.guard);
}

static int open_guard_hedge(weir_scope *scope)
{
    weir_guard_spec spec = guard_spec();
    int r = open_budget(scope);

    spec.idempotent = true;
    spec.hedge_after_ms = 50;
    spec.retry.keep_budget = shared.budget;
    return r < 0 ? r : weir_guard_open(scope, &spec, &shared.guard);
}

static int open_guard_all(weir_scope *scope)
{
    weir_guard_spec spec = guard_spec();
    int r = open_budget(scope);

    if (r == 0) r = open_breaker(scope);
    if (r == 0) r = open_shed(scope);
    if (r == 0) r = open_rate(scope);
    if (r == 0) r = open_limit(scope);
    spec.idempotent = true;
    spec.attempt_timeout_ms = 100;
    spec.retry = retry_spec();
    spec.keep_shed = shared.shed;
    spec.keep_rate = shared.rate;
    spec.keep_limit = shared.limit;
    spec.keep_breaker = shared.breaker;
    return r < 0 ? r : weir_guard_open(scope, &spec, &shared.guard);
}

static int call_guard(size_t calls)
{
    int r = 0;
    for (size_t i = 0; i < calls && r >= 0; i++) {
        void *arg = &shared;
        r = weir_guard_call(shared.guard, empty, &arg, sizeof arg, NULL);
    }
    return r;
}

static const struct policy {
    const char *name;
    int (*open)(weir_scope *scope);
    int (*call)(size_t calls);
} policies[] = {
    {"shed", open_shed, call_shed},
    {"shed_late", open_shed, call_shed_late},
    {"rate", open_rate, call_rate},
    {"limit", open_limit, call_limit},
    {"limit_adaptive", open_adaptive, call_limit},
    {"breaker", open_breaker, call_breaker},
    {"breaker_by_time", open_breaker_by_time, call_breaker},
    {"retry_budget", open_budget, call_budget},
    {"guard", open_guard, call_guard},
    {"guard_breaker", open_guard_breaker, call_guard},
    {"guard_retry", open_guard_retry, call_guard},
    {"guard_hedge", open_guard_hedge, call_guard},
    {"guard_all", open_guard_all, call_guard},
};

/* ---- Measuring ---- */

struct part {
    int (*call)(size_t calls);
    size_t calls;
};

static int do_part(void *arg)
{
    struct part *part = arg;
    return part->call(part->calls);
}

/* So many calls on each worker, until all are done. */
static int64_t slice_ns(const struct bench *bench, int (*call)(size_t calls), size_t calls)
{
    clockid_t clock = workers > 1 ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID;
    struct part part = {call, calls};
    int64_t begin_ns;
    int result = 0;

    begin_ns = bench_clock_ns(clock);
    if (workers == 1) {
        check(bench, "a call", call(calls));
        return bench_clock_ns(clock) - begin_ns;
    }
    WEIR_SCOPE(scope, &result, .name = "parts", .on_failure = WEIR_FAIL_FAST,
               .max_tasks = (size_t)workers, .overflow = WEIR_WAIT) {
        for (int i = 0; i < workers; i++) {
            weir_task_spec spec = {.fn = do_part,
                                   .arg = &part,
                                   .arg_bytes = sizeof part,
                                   .place = WEIR_PLACE_WORKER,
                                   .worker = i};
            check(bench, "weir_task_spawn", weir_task_spawn(scope, &spec, NULL));
        }
    }
    check(bench, "the calls", result);
    return bench_clock_ns(clock) - begin_ns;
}

static void measure(const struct bench *bench)
{
    const struct policy *policy = policies;
    int64_t with_ns = INT64_MAX, without_ns = INT64_MAX;
    size_t calls = bench->n / SLICES / (size_t)workers;
    int result = 0;

    if (calls == 0) calls = 1;
    while (strcmp(policy->name, bench->workload) != 0) policy++;
    WEIR_SCOPE(scope, &result, .name = "measured", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
               .overflow = WEIR_REJECT) {
        check(bench, "open", policy->open(scope));
        for (int i = 0; i < SLICES; i++) {
            int64_t ns = slice_ns(bench, policy->call, calls);
            if (ns < with_ns) with_ns = ns;
            ns = slice_ns(bench, call_plain, calls);
            if (ns < without_ns) without_ns = ns;
        }
    }
    check(bench, "measured", result);
    bench_print_ns(bench, bench->workload, with_ns - without_ns, calls);
}

static const struct bench_workload workloads[] = {
    {"shed", 20000000, measure},
    {"shed_late", 20000000, measure},
    {"rate", 20000000, measure},
    {"limit", 20000000, measure},
    {"limit_adaptive", 20000000, measure},
    {"breaker", 20000000, measure},
    {"breaker_by_time", 20000000, measure},
    {"retry_budget", 20000000, measure},
    {"guard", 10000000, measure},
    {"guard_breaker", 10000000, measure},
    {"guard_retry", 10000000, measure},
    {"guard_hedge", 10000000, measure},
    {"guard_all", 10000000, measure},
    {0},
};

int main(int argc, char **argv)
{
    char peer[16] = "weir";
    struct bench bench = {.program = "bench-resilience", .peer = peer};
    struct session session = {.bench = &bench};
    weir_config config = {.name = "bench"};

    session.workload = bench_parse(argc, argv, workloads, &bench);
    if (!session.workload) return 2;
    workers = session_workers(&bench);
    if (workers == 0) return 2;
    if (workers > 1) snprintf(peer, sizeof peer, "weir%d", workers);
    config.workers = workers;
    check(&bench, "weir_run", weir_run(&config, session_task, &session));
    return 0;
}
