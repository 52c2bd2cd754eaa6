/* rate.c - so many in a time (policy/bucket.h), and the timer for those who wait. */
#include <stdio.h>

#include "base/planted.h"
#include "flow/limit.h"
#include "flow/meters.h"

#define NS_IN_MS INT64_C(1000000)

enum { MS_DIGITS = 3 };

/* ---- What it shows ---- */

static void collect_rate(struct metered *object, uint64_t *values)
{
    weir_rate *rate = container_of(object, struct weir_rate, metered);

    sync_lock(&rate->line.sync);
    values[RATE_RATE] = rate->rate * 1000 * 1000 / (uint64_t)rate->per_ms;
    values[RATE_BURST] = rate->burst;
    values[RATE_WAITING] = rate->line.waiting;
    values[RATE_ADMITTED] = rate->admitted;
    values[RATE_TAKEN] = rate->taken;
    values[RATE_RETURNED] = rate->returned;
    values[RATE_WAITED] = rate->line.waited;
    values[RATE_REJECTED] = rate->line.rejected;
    values[RATE_LATENCY_TARGET] = (uint64_t)rate->latency_ms;
    sync_unlock(&rate->line.sync);
}

static const struct meter_value rate_values[RATE_VALUES] = {
    [RATE_RATE] = {"weir_rate_tokens_per_second", "Tokens that come in a second.", METER_GAUGE,
                   MS_DIGITS},
    [RATE_BURST] = {"weir_rate_burst", "Tokens that are kept at most.", METER_GAUGE},
    [RATE_WAITING] = {"weir_rate_waiting", "Tasks that wait for tokens now.", METER_GAUGE},
    [RATE_ADMITTED] = {"weir_rate_admitted_total", "Calls that got their tokens.", METER_COUNTER},
    [RATE_TAKEN] = {"weir_rate_taken_total", "Tokens that were taken.", METER_COUNTER},
    [RATE_RETURNED] = {"weir_rate_returned_total", "Of those: that came back unused.",
                       METER_COUNTER},
    [RATE_WAITED] = {"weir_rate_waited_total", "Calls that have waited.", METER_COUNTER},
    [RATE_REJECTED] = {"weir_rate_rejected_total", "Calls that were refused: too many.",
                       METER_COUNTER},
    [RATE_TIMEOUTS] = {"weir_rate_timeouts_total", "Waits that a deadline has ended.",
                       METER_COUNTER},
    [RATE_LATENCY_TARGET] = {"weir_rate_latency_target_seconds",
                             "How long a wait should take at most.", METER_GAUGE_MAX, MS_DIGITS,
                             true},
};

static const struct meter_histogram rate_histograms[] = {
    [RATE_WAIT] = {"weir_rate_wait_seconds", "How long those who wait do, until they have theirs."},
};

const struct meter_kind rate_meter_kind = {
    .labels = {"rate"},
    .values = rate_values,
    .value_count = RATE_VALUES,
    .histograms = rate_histograms,
    .histogram_count = 1,
    .collect = collect_rate,
};

static bool rate_boundary(struct belonging *belonging, unsigned row, struct boundary *ret_boundary)
{
    weir_rate *rate = container_of(belonging, struct weir_rate, line.sync.object.belonging);

    if (row > 0) return false;
    (void)snprintf(ret_boundary->bound, sizeof ret_boundary->bound,
                   "at most %zu in %lld ms, burst at most %zu", rate->rate_max,
                   (long long)rate->per_ms, rate->burst_max);
    ret_boundary->overflow = line_overflow(&rate->line);
    ret_boundary->latency_target_ms = rate->latency_ms;
    ret_boundary->meter = rate->metered.meter;
    ret_boundary->wait_histogram = RATE_WAIT;
    ret_boundary->run_histogram = -1;
    if (sync_boundary(&rate->line.sync, ret_boundary)) {
        (void)snprintf(ret_boundary->bound, sizeof ret_boundary->bound,
                       "%zu in %lld ms (at most %zu), burst %zu (at most %zu), %zu may wait",
                       rate->rate, (long long)rate->per_ms, rate->rate_max, rate->burst,
                       rate->burst_max, rate->line.waiters_max);
        boundary_figure(ret_boundary, "tokens", bucket_tokens(&rate->bucket));
        boundary_figure(ret_boundary, "admitted", rate->admitted);
        boundary_figure(ret_boundary, "taken", rate->taken);
        boundary_figure(ret_boundary, "returned", rate->returned);
        boundary_figure(ret_boundary, "waited", rate->line.waited);
        boundary_figure(ret_boundary, "rejected", rate->line.rejected);
        sync_boundary_end(&rate->line.sync);
    }
    return true;
}

/* ---- The line, and its timer ---- */

static int64_t now(void)
{
    const struct kernel *kernel = worker_self()->kernel;
    return kernel->now_ns(kernel);
}

/* The lock is held. */
static inline bool take_at(weir_rate *rate, size_t tokens, int64_t now_ns)
{
    if (!bucket_take(&rate->bucket, tokens, now_ns)) return false;
    rate->admitted++;
    rate->taken += tokens;
    return true;
}

static bool rate_line_take(struct line *line, size_t count)
{
    return take_at(container_of(line, struct weir_rate, line), count, now());
}

/* Somebody waits for `tokens`, and nobody before: see to it that the timer is right. Only the
 * object's own worker touches it. The lock is held, so that its scope has not let it go. */
static void see_to(weir_rate *rate, size_t tokens)
{
    struct belonging *belonging = &rate->line.sync.object.belonging;
    struct worker *worker = worker_self();

    if (belonging->worker == worker) {
        timer_arm(worker, &rate->timer, bucket_ready_ns(&rate->bucket, tokens, now()));
        return;
    }
    if (PLANTED(RATE_ELSEWHERE_FORGOTTEN)) return;
    scope_lock(belonging->scope);
    belonging_mail(belonging, BELONGING_SIGNALLED);
    scope_unlock(belonging->scope);
}

static void rate_first_waits(struct line *line, size_t count)
{
    see_to(container_of(line, struct weir_rate, line), count);
}

/* On its own worker: give what there is, and wait for the rest. */
static void look(weir_rate *rate)
{
    sync_lock(&rate->line.sync);
    line_grant(&rate->line);
    sync_unlock(&rate->line.sync);
}

static void rate_timer_fires(struct worker *worker, struct timer *timer)
{
    (void)worker;
    look(container_of(timer, struct weir_rate, timer));
}

static void rate_signalled(struct worker *worker, struct belonging *belonging, uint8_t signals)
{
    (void)worker, (void)signals; /* who waits is told by its own scope */
    look(container_of(belonging, struct weir_rate, line.sync.object.belonging));
}

/* ---- Its life ---- */

static void rate_release(struct worker *worker, struct belonging *belonging)
{
    weir_rate *rate = container_of(belonging, struct weir_rate, line.sync.object.belonging);

    timer_disarm(worker, &rate->timer);
    meter_leave(&rate->metered);
    (void)sync_let_go(worker, &rate->line.sync);
}

static const struct line_kind rate_kind = {
    .sync = {.belonging = {.name = "rate",
                           .signalled = rate_signalled,
                           .release = rate_release,
                           .describe = sync_describe,
                           .boundary = rate_boundary},
             .handle = HANDLE_RATE,
             .what = "rate"},
    .take = rate_line_take,
    .first_waits = rate_first_waits,
};

static const struct wait_kind wait_rate = {
    .name = "rate",
    .abort = line_abort,
    .describe = waiter_describe,
    .what = WAIT_FOR_PERMIT,
    .facts = waiter_facts,
};

static int check_spec(const weir_rate_spec *spec)
{
    const char *name = spec->name;
    int64_t per_ms = spec->per_ms ? spec->per_ms : WEIR_RATE_PER_MS_DEFAULT;
    struct bucket_rules most = {.rate = spec->rate_max ? spec->rate_max : spec->rate,
                                .burst = spec->burst_max ? spec->burst_max : spec->burst};
    int r = flow_check_name("rate", name);

    if (r < 0) return r;
    if (spec->rate == 0) return refuse("rate '%s': rate is not set", name);
    if (spec->burst == 0) return refuse("rate '%s': burst is not set", name);
    if (per_ms < 0) return refuse("rate '%s': per_ms is negative", name);
    if (most.rate < spec->rate) return refuse("rate '%s': rate_max is less than rate", name);
    if (most.burst < spec->burst) return refuse("rate '%s': burst_max is less than burst", name);
    if (spec->latency_ms < 0) return refuse("rate '%s': latency_ms is negative", name);
    if (most.rate > UINT32_MAX || __builtin_mul_overflow(per_ms, NS_IN_MS, &most.period_ns) ||
        !bucket_fits(&most)) {
        return refuse("rate '%s': a burst of %llu in %lld ms is more than can be counted", name,
                      (unsigned long long)most.burst, (long long)per_ms);
    }
    return line_check_spec("rate", name, spec->overflow, spec->waiters_max);
}

static void begin(weir_rate *rate, const weir_rate_spec *spec)
{
    struct bucket_rules rules = {.rate = spec->rate, .burst = spec->burst};

    rate->line.waiters_max = spec->waiters_max;
    rate->rate = spec->rate;
    rate->burst = spec->burst;
    rate->rate_max = spec->rate_max ? spec->rate_max : spec->rate;
    rate->burst_max = spec->burst_max ? spec->burst_max : spec->burst;
    rate->per_ms = spec->per_ms ? spec->per_ms : WEIR_RATE_PER_MS_DEFAULT;
    rate->latency_ms = spec->latency_ms;
    rules.period_ns = rate->per_ms * NS_IN_MS;
    bucket_init(&rate->bucket, &rules);
    timer_init(&rate->timer, rate_timer_fires);
}

int weir_rate_open_sized(weir_scope *scope, size_t spec_bytes, const weir_rate_spec *given,
                         weir_rate **ret_rate)
{
    weir_rate_spec spec;
    struct sync *sync;
    weir_rate *rate;
    int r;

    if (!worker_self()) return refuse_no_task("weir_rate_open");
    spec_copy(&spec, sizeof spec, given, spec_bytes);
    r = check_spec(&spec);
    if (r < 0) return r;
    r = sync_open(scope, &rate_kind.sync, sizeof *rate, spec.name, "weir_rate_open", &sync);
    if (r < 0) return r;
    rate = container_of(sync, struct weir_rate, line.sync);
    begin(rate, &spec);
    meter_enter(&rate->metered, meter_get(&rate_meter_kind, sync->object.name, NULL));
    *ret_rate = sync->handle;
    return 0;
}

void weir_rate_close(weir_rate *take_rate)
{
    if (take_rate) sync_close(take_rate, &rate_kind.sync, "weir_rate_close");
}

/* ---- Taking ---- */

/* The lock is held, and let go. */
static int refuse_tokens(weir_rate *rate, unsigned tokens)
    LOCK_RELEASES(rate->line.sync.object.stable.lock, weir_no_park)
{
    size_t burst = rate->burst;
    sync_unlock(&rate->line.sync);
    return refuse("rate '%s': %u tokens can never be had, there are 1 to %zu",
                  rate->line.sync.object.name, tokens, burst);
}

/* The lock is held, and let go. */
static __attribute__((noinline)) int wait_for(weir_rate *rate, struct task *self, unsigned tokens,
                                              int64_t since_ns)
    LOCK_RELEASES(rate->line.sync.object.stable.lock, weir_no_park) LOCK_UNCHECKED
{
    struct meter *meter = rate->metered.meter;
    int r;

    if (rate->line.waiting == 0 && rate->line.waiters_max > 0) see_to(rate, tokens);
    r = line_wait(&rate->line, self, tokens, &wait_rate);
    if (r == WEIR_EOVERLOAD) return r;
    if (r < 0) return meter_interrupted(meter, RATE_TIMEOUTS, r);
    meter_observe(meter, RATE_WAIT, now() - since_ns);
    return LINE_WAITED;
}

int rate_take(weir_rate *handle, unsigned tokens, int64_t now_ns)
{
    weir_rate *rate = flow_look_up(handle, HANDLE_RATE, "rate", "weir_rate_take");
    struct worker *worker = worker_self();
    struct task *self = task_self();
    int r;

    if (!self) return refuse_no_task("weir_rate_take");
    r = line_enter(self);
    if (r < 0) return r;
    if (r == LINE_WAITED) now_ns = 0;
    if (now_ns == 0) now_ns = worker->kernel->now_ns(worker->kernel);
    sync_lock(&rate->line.sync);
    if (!flow_names(handle, HANDLE_RATE, rate)) {
        sync_unlock(&rate->line.sync);
        r = WEIR_ECLOSED;
    } else if (__builtin_expect(tokens == 0 || tokens > rate->burst, 0)) {
        return refuse_tokens(rate, tokens);
    } else if (rate->line.waiting == 0 && take_at(rate, tokens, now_ns)) {
        sync_unlock(&rate->line.sync);
    } else {
        r = wait_for(rate, self, tokens, now_ns);
    }
    return r;
}

int weir_rate_take(weir_rate *rate, unsigned tokens)
{
    int r = rate_take(rate, tokens, 0);
    return r < 0 ? r : 0;
}

void rate_give_back(const weir_rate *handle, unsigned tokens)
{
    weir_rate *rate = handle_object(handle, HANDLE_RATE);

    if (!rate) return;
    sync_lock(&rate->line.sync);
    if (flow_names(handle, HANDLE_RATE, rate)) {
        bucket_give_back(&rate->bucket, tokens);
        rate->returned += tokens;
        if (rate->line.waiting > 0) line_grant(&rate->line);
    }
    sync_unlock(&rate->line.sync);
    worker_touched(worker_self());
}

/* ---- Changing it, and looking at it ---- */

static weir_rate *look_up(const weir_rate *handle, const char *call)
{
    weir_rate *rate = flow_look_up(handle, HANDLE_RATE, "rate", call);
    flow_check_worker(call);
    return rate;
}

int weir_rate_resize(weir_rate *handle, size_t tokens, size_t burst)
{
    weir_rate *rate = look_up(handle, "weir_rate_resize");

    if (tokens > rate->rate_max) {
        return refuse("rate '%s': rate %zu is more than rate_max, %zu", rate->line.sync.object.name,
                      tokens, rate->rate_max);
    }
    if (burst > rate->burst_max) {
        return refuse("rate '%s': burst %zu is more than burst_max, %zu",
                      rate->line.sync.object.name, burst, rate->burst_max);
    }
    sync_lock(&rate->line.sync);
    if (!flow_names(handle, HANDLE_RATE, rate)) {
        sync_unlock(&rate->line.sync);
        return WEIR_ECLOSED;
    }
    if (tokens) rate->rate = tokens;
    if (burst) rate->burst = burst;
    bucket_resize(&rate->bucket, rate->rate, rate->burst, now());
    line_refuse_more_than(&rate->line, rate->burst);
    line_grant(&rate->line);
    sync_unlock(&rate->line.sync);
    worker_touched(worker_self());
    return 0;
}

void weir_rate_figures_of(weir_rate *handle, weir_rate_figures *ret_figures)
{
    weir_rate *rate = look_up(handle, "weir_rate_figures_of");

    *ret_figures = (weir_rate_figures){.rate = 0};
    sync_lock(&rate->line.sync);
    if (flow_names(handle, HANDLE_RATE, rate)) {
        bucket_refill(&rate->bucket, now());
        *ret_figures = (weir_rate_figures){.rate = rate->rate,
                                           .burst = rate->burst,
                                           .tokens = (size_t)bucket_tokens(&rate->bucket),
                                           .waiting = rate->line.waiting,
                                           .admitted = rate->admitted,
                                           .taken = rate->taken,
                                           .returned = rate->returned,
                                           .waited = rate->line.waited,
                                           .rejected = rate->line.rejected};
    }
    sync_unlock(&rate->line.sync);
}
