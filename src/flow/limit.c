/* limit.c - at most so many at a time, fixed or learnt (policy/bulkhead.h, adaptive.h). */
#include "flow/limit.h"

#include <errno.h>
#include <stdio.h>

#include "base/planted.h"
#include "flow/meters.h"

#define NS_IN_MS INT64_C(1000000)
#define MS_MAX (INT64_MAX / NS_IN_MS / 2)

enum { MS_DIGITS = 3, TOLERANCE_PCT_MAX = 1000 };

/* ---- What it shows ---- */

static void collect_limit(struct metered *object, uint64_t *values)
{
    weir_limit *limit = container_of(object, struct weir_limit, metered);

    sync_lock(&limit->line.sync);
    values[LIMIT_LIMIT] = limit->bulkhead.limit;
    values[LIMIT_IN_FLIGHT] = limit->bulkhead.inside;
    values[LIMIT_IN_FLIGHT_MAX] = limit->in_flight_max;
    values[LIMIT_WAITING] = limit->line.waiting;
    values[LIMIT_ADMITTED] = limit->admitted;
    values[LIMIT_WAITED] = limit->line.waited;
    values[LIMIT_REJECTED] = limit->line.rejected;
    values[LIMIT_LATENCY_TARGET] = (uint64_t)limit->latency_ms;
    sync_unlock(&limit->line.sync);
}

static const struct meter_value limit_values[LIMIT_VALUES] = {
    [LIMIT_LIMIT] = {"weir_limit_limit", "How many may be inside at a time, now.", METER_GAUGE},
    [LIMIT_IN_FLIGHT] = {"weir_limit_in_flight", "How many are inside now.", METER_GAUGE},
    [LIMIT_IN_FLIGHT_MAX] = {"weir_limit_in_flight_max", "The most that were inside at once.",
                             METER_GAUGE_MAX},
    [LIMIT_WAITING] = {"weir_limit_waiting", "Tasks that wait to get in now.", METER_GAUGE},
    [LIMIT_ADMITTED] = {"weir_limit_admitted_total", "Calls that got in.", METER_COUNTER},
    [LIMIT_WAITED] = {"weir_limit_waited_total", "Calls that have waited.", METER_COUNTER},
    [LIMIT_REJECTED] = {"weir_limit_rejected_total", "Calls that were refused: it was full.",
                        METER_COUNTER},
    [LIMIT_TIMEOUTS] = {"weir_limit_timeouts_total", "Waits that a deadline has ended.",
                        METER_COUNTER},
    [LIMIT_LATENCY_TARGET] = {"weir_limit_latency_target_seconds",
                              "How long a wait should take at most.", METER_GAUGE_MAX, MS_DIGITS,
                              true},
};

static const struct meter_histogram limit_histograms[] = {
    [LIMIT_WAIT] = {"weir_limit_wait_seconds", "How long those who wait do, until they are in."},
};

const struct meter_kind limit_meter_kind = {
    .labels = {"limit"},
    .values = limit_values,
    .value_count = LIMIT_VALUES,
    .histograms = limit_histograms,
    .histogram_count = 1,
    .collect = collect_limit,
};

static bool limit_boundary(struct belonging *belonging, unsigned row, struct boundary *ret_boundary)
{
    weir_limit *limit = container_of(belonging, struct weir_limit, line.sync.object.belonging);

    if (row > 0) return false;
    (void)snprintf(ret_boundary->bound, sizeof ret_boundary->bound, "%zu to %zu at a time (%s)",
                   limit->min, limit->max, limit->adapts ? "adaptive" : "fixed");
    ret_boundary->overflow = line_overflow(&limit->line);
    ret_boundary->latency_target_ms = limit->latency_ms;
    ret_boundary->meter = limit->metered.meter;
    ret_boundary->wait_histogram = LIMIT_WAIT;
    ret_boundary->run_histogram = -1;
    if (sync_boundary(&limit->line.sync, ret_boundary)) {
        (void)snprintf(ret_boundary->bound, sizeof ret_boundary->bound,
                       "%zu at a time (%s, %zu to %zu), %zu may wait", limit->bulkhead.limit,
                       limit->adapts ? "adaptive" : "fixed", limit->min, limit->max,
                       limit->line.waiters_max);
        boundary_figure(ret_boundary, "limit", limit->bulkhead.limit);
        boundary_figure(ret_boundary, "in_flight", limit->bulkhead.inside);
        boundary_figure(ret_boundary, "in_flight_max", limit->in_flight_max);
        boundary_figure(ret_boundary, "admitted", limit->admitted);
        boundary_figure(ret_boundary, "waited", limit->line.waited);
        boundary_figure(ret_boundary, "rejected", limit->line.rejected);
        sync_boundary_end(&limit->line.sync);
    }
    return true;
}

/* ---- Its life ---- */

/* The lock is held. */
static inline bool get_in(weir_limit *limit)
{
    if (!bulkhead_enter(&limit->bulkhead, 1)) return false;
    if (limit->bulkhead.inside > limit->in_flight_max) {
        limit->in_flight_max = limit->bulkhead.inside;
    }
    limit->admitted++;
    return true;
}

static bool limit_take(struct line *line, size_t count)
{
    weir_limit *limit = container_of(line, struct weir_limit, line);

    (void)count; /* everybody wants one */
    if (!get_in(limit)) return false;
    /* It looks at the clock when it runs, so it is timed anyway. */
    if (limit->adapts) adaptive_peak(&limit->adaptive, limit->bulkhead.inside);
    return true;
}

static void limit_release(struct worker *worker, struct belonging *belonging)
{
    weir_limit *limit = container_of(belonging, struct weir_limit, line.sync.object.belonging);

    meter_leave(&limit->metered);
    (void)sync_let_go(worker, &limit->line.sync);
}

static const struct line_kind limit_kind = {
    .sync = {.belonging = {.name = "limit",
                           .signalled = sync_signalled,
                           .release = limit_release,
                           .describe = sync_describe,
                           .boundary = limit_boundary},
             .handle = HANDLE_LIMIT,
             .what = "limit"},
    .take = limit_take,
};

static const struct wait_kind wait_limit = {
    .name = "limit",
    .abort = line_abort,
    .describe = waiter_describe,
    .what = WAIT_FOR_PERMIT,
    .facts = waiter_facts,
};

static int check_adaptive(const weir_limit_spec *spec)
{
    const char *name = spec->name;

    if (spec->kind == WEIR_LIMIT_FIXED) {
        if (spec->concurrency_min || spec->window_ms || spec->probe_ms || spec->tolerance_pct) {
            return refuse("limit '%s': concurrency_min, window_ms, probe_ms and tolerance_pct are "
                          "for WEIR_LIMIT_ADAPTIVE",
                          name);
        }
        return 0;
    }
    if (spec->concurrency_max == 0) return refuse("limit '%s': concurrency_max is not set", name);
    if (spec->concurrency_min > spec->concurrency) {
        return refuse("limit '%s': concurrency_min is more than concurrency", name);
    }
    if (spec->window_ms < 0 || spec->window_ms > MS_MAX) {
        return refuse("limit '%s': window_ms is out of range", name);
    }
    if (spec->probe_ms < 0 || spec->probe_ms > MS_MAX) {
        return refuse("limit '%s': probe_ms is out of range", name);
    }
    if (spec->tolerance_pct > TOLERANCE_PCT_MAX) {
        return refuse("limit '%s': tolerance_pct is more than %d", name, TOLERANCE_PCT_MAX);
    }
    return 0;
}

static int check_spec(const weir_limit_spec *spec)
{
    const char *name = spec->name;
    int r = flow_check_name("limit", name);

    if (r < 0) return r;
    if (spec->kind == WEIR_LIMIT_UNSET) return refuse("limit '%s': kind is not set", name);
    if (spec->kind != WEIR_LIMIT_FIXED && spec->kind != WEIR_LIMIT_ADAPTIVE) {
        return refuse("limit '%s': kind must be WEIR_LIMIT_FIXED or WEIR_LIMIT_ADAPTIVE", name);
    }
    if (spec->concurrency == 0) return refuse("limit '%s': concurrency is not set", name);
    if (spec->concurrency > WEIR_LIMIT_CONCURRENCY_MAX ||
        spec->concurrency_max > WEIR_LIMIT_CONCURRENCY_MAX) {
        return refuse("limit '%s': concurrency is more than %d", name, WEIR_LIMIT_CONCURRENCY_MAX);
    }
    if (spec->concurrency_max && spec->concurrency_max < spec->concurrency) {
        return refuse("limit '%s': concurrency_max is less than concurrency", name);
    }
    if (spec->latency_ms < 0) return refuse("limit '%s': latency_ms is negative", name);
    r = check_adaptive(spec);
    if (r < 0) return r;
    return line_check_spec("limit", name, spec->overflow, spec->waiters_max);
}

static void begin(weir_limit *limit, const weir_limit_spec *spec)
{
    size_t first = spec->concurrency;

    limit->line.waiters_max = spec->waiters_max;
    limit->min = spec->concurrency_min ? spec->concurrency_min : 1;
    limit->max = spec->concurrency_max ? spec->concurrency_max : spec->concurrency;
    limit->latency_ms = spec->latency_ms;
    limit->adapts = spec->kind == WEIR_LIMIT_ADAPTIVE;
    if (limit->adapts) {
        struct adaptive_rules rules = {.limit = first, .limit_min = limit->min};
        rules.limit_max = limit->max;
        rules.window_ns = spec->window_ms ? spec->window_ms : WEIR_LIMIT_WINDOW_MS_DEFAULT;
        rules.window_ns *= NS_IN_MS;
        rules.probe_ns = spec->probe_ms ? spec->probe_ms : WEIR_LIMIT_PROBE_MS_DEFAULT;
        rules.probe_ns *= NS_IN_MS;
        rules.tolerance_pct =
            spec->tolerance_pct ? spec->tolerance_pct : WEIR_LIMIT_TOLERANCE_PCT_DEFAULT;
        adaptive_init(&limit->adaptive, &rules);
        first = limit->adaptive.limit;
    }
    bulkhead_init(&limit->bulkhead, &(struct bulkhead_rules){.limit = first});
}

int weir_limit_open_sized(weir_scope *scope, size_t spec_bytes, const weir_limit_spec *given,
                          weir_limit **ret_limit)
{
    weir_limit_spec spec;
    struct sync *sync;
    weir_limit *limit;
    int r;

    if (!worker_self()) return refuse_no_task("weir_limit_open");
    spec_copy(&spec, sizeof spec, given, spec_bytes);
    r = check_spec(&spec);
    if (r < 0) return r;
    r = sync_open(scope, &limit_kind.sync, sizeof *limit, spec.name, "weir_limit_open", &sync);
    if (r < 0) return r;
    limit = container_of(sync, struct weir_limit, line.sync);
    begin(limit, &spec);
    meter_enter(&limit->metered, meter_get(&limit_meter_kind, sync->object.name, NULL));
    *ret_limit = sync->handle;
    return 0;
}

void weir_limit_close(weir_limit *take_limit)
{
    if (take_limit) sync_close(take_limit, &limit_kind.sync, "weir_limit_close");
}

/* ---- Getting in ---- */

/* The lock is held, and let go. */
static __attribute__((noinline)) int wait_to_get_in(weir_limit *limit, struct task *self,
                                                    weir_limit_pass *ret_pass)
    LOCK_RELEASES(limit->line.sync.object.stable.lock, weir_no_park) LOCK_UNCHECKED
{
    struct meter *meter = limit->metered.meter;
    const struct kernel *kernel = worker_self()->kernel;
    int64_t since_ns = kernel->now_ns(kernel);
    int r = line_wait(&limit->line, self, 1, &wait_limit);

    if (r == WEIR_EOVERLOAD) return r;
    if (PLANTED(LIMIT_PERMIT_LEAK) && r == 0) r = task_interruption(self, false);
    if (r < 0) return meter_interrupted(meter, LIMIT_TIMEOUTS, r);
    /* Here, and not when it was let in: how long it was ready to run is no time of the call. */
    ret_pass->began_ns = kernel->now_ns(kernel);
    meter_observe(meter, LIMIT_WAIT, ret_pass->began_ns - since_ns);
    return LINE_WAITED;
}

int limit_enter(weir_limit *handle, weir_limit_pass *ret_pass, int64_t now_ns)
{
    weir_limit *limit = flow_look_up(handle, HANDLE_LIMIT, "limit", "weir_limit_enter");
    struct worker *worker = worker_self();
    struct task *self = task_self();
    bool timed = false;
    int r;

    if (!self) return refuse_no_task("weir_limit_enter");
    r = line_enter(self);
    if (r < 0) return r;
    if (r == LINE_WAITED) now_ns = 0;
    sync_lock(&limit->line.sync);
    if (!flow_names(handle, HANDLE_LIMIT, limit)) {
        sync_unlock(&limit->line.sync);
        return WEIR_ECLOSED;
    }
    if (limit->line.waiting == 0 && get_in(limit)) {
        if (limit->adapts) {
            timed = adaptive_entered(&limit->adaptive, limit->bulkhead.inside, worker->now_ns);
        }
        sync_unlock(&limit->line.sync);
        ret_pass->began_ns = 0;
        if (timed) ret_pass->began_ns = now_ns ? now_ns : worker->kernel->now_ns(worker->kernel);
    } else {
        r = wait_to_get_in(limit, self, ret_pass);
        if (r < 0) return r;
    }
    ret_pass->limit = handle;
    sanitize_acquire(limit);
    return r;
}

int weir_limit_enter(weir_limit *limit, weir_limit_pass *ret_pass)
{
    int r = limit_enter(limit, ret_pass, 0);
    return r < 0 ? r : 0;
}

/* ---- Leaving ---- */

static enum adaptive_outcome outcome_of(int result)
{
    if (result >= 0) return ADAPTIVE_DONE;
    if (result == WEIR_ETIMEDOUT || result == WEIR_EOVERLOAD || result == -ETIMEDOUT) {
        return ADAPTIVE_OVERLOADED;
    }
    return ADAPTIVE_FAILED;
}

/* The lock is held. */
static void learn(weir_limit *limit, struct worker *worker, const weir_limit_pass *pass, int result,
                  int64_t now_ns)
{
    struct adaptive *adaptive = &limit->adaptive;
    size_t inside = limit->bulkhead.inside;

    if (pass->began_ns == 0 && !adaptive_wants_time(adaptive, inside)) {
        adaptive_ended(adaptive, outcome_of(result));
        return;
    }
    if (now_ns == 0) now_ns = worker->kernel->now_ns(worker->kernel);
    adaptive_ended_at(adaptive, outcome_of(result), pass->began_ns, now_ns, inside);
    bulkhead_resize(&limit->bulkhead, adaptive->limit);
}

void limit_leave(weir_limit *handle, weir_limit_pass *pass, int result, int64_t now_ns)
{
    struct worker *worker = worker_self();
    weir_limit *limit;
    bool nobody_waits;

    flow_check_worker("weir_limit_leave");
    if (!pass->limit) return;
    if (__builtin_expect(pass->limit != handle, 0)) {
        misuse("weir_limit_leave: the pass is of another limit");
    }
    pass->limit = NULL;
    limit = handle_object(handle, HANDLE_LIMIT);
    if (!limit) return; /* it was closed meanwhile */
    sanitize_release(limit);
    if (now_ns == 0 && pass->began_ns) now_ns = worker->kernel->now_ns(worker->kernel);
    nobody_waits = PLANTED(LIMIT_LOOKS_TOO_EARLY) && limit->line.waiting == 0;
    sync_lock(&limit->line.sync);
    if (flow_names(handle, HANDLE_LIMIT, limit)) {
        if (limit->adapts) learn(limit, worker, pass, result, now_ns);
        (void)bulkhead_leave(&limit->bulkhead, 1);
        if (__builtin_expect(limit->line.waiting > 0, 0) && !nobody_waits) line_grant(&limit->line);
    }
    sync_unlock(&limit->line.sync);
    worker_touched(worker);
}

void weir_limit_leave(weir_limit *limit, weir_limit_pass *pass, int result)
{
    limit_leave(limit, pass, result, 0);
}

/* ---- Changing it, and looking at it ---- */

static weir_limit *look_up(const weir_limit *handle, const char *call)
{
    weir_limit *limit = flow_look_up(handle, HANDLE_LIMIT, "limit", call);
    flow_check_worker(call);
    return limit;
}

int weir_limit_resize(weir_limit *handle, size_t concurrency)
{
    weir_limit *limit = look_up(handle, "weir_limit_resize");

    if (concurrency < limit->min || concurrency > limit->max) {
        return refuse("limit '%s': concurrency %zu is not within %zu and %zu",
                      limit->line.sync.object.name, concurrency, limit->min, limit->max);
    }
    sync_lock(&limit->line.sync);
    if (!flow_names(handle, HANDLE_LIMIT, limit)) {
        sync_unlock(&limit->line.sync);
        return WEIR_ECLOSED;
    }
    if (limit->adapts) {
        adaptive_resize(&limit->adaptive, concurrency);
        concurrency = limit->adaptive.limit;
    }
    bulkhead_resize(&limit->bulkhead, concurrency);
    line_grant(&limit->line);
    sync_unlock(&limit->line.sync);
    worker_touched(worker_self());
    return 0;
}

void weir_limit_figures_of(weir_limit *handle, weir_limit_figures *ret_figures)
{
    weir_limit *limit = look_up(handle, "weir_limit_figures_of");

    *ret_figures = (weir_limit_figures){.limit = 0};
    sync_lock(&limit->line.sync);
    if (flow_names(handle, HANDLE_LIMIT, limit)) {
        *ret_figures = (weir_limit_figures){.limit = limit->bulkhead.limit,
                                            .in_flight = limit->bulkhead.inside,
                                            .in_flight_max = limit->in_flight_max,
                                            .waiting = limit->line.waiting,
                                            .admitted = limit->admitted,
                                            .waited = limit->line.waited,
                                            .rejected = limit->line.rejected};
    }
    sync_unlock(&limit->line.sync);
}
