/* guard.c - opening a guard, what it refuses, its figures, its scope. */
#include "flow/guard.h"

#include <stdio.h>
#include <weir/runtime.h>

_Static_assert(WEIR_ATTEMPTS_MAX == RETRY_ATTEMPTS_MAX, "the bound programs see");
_Static_assert(WEIR_RETRY_ERRORS_MAX == RETRY_ERRORS_MAX, "the bound programs see");
_Static_assert(WEIR_LETTER_ATTEMPTS_MAX == 2 * WEIR_ATTEMPTS_MAX, "each may have a hedge");

#define MS_NS INT64_C(1000000)
#define GUARD_MS_MAX (INT64_MAX / MS_NS / 64) /* all attempts together do not overflow */

/* ---- Figures ---- */

enum {
    GUARD_METER_OK,
    GUARD_METER_PARTIAL,
    GUARD_METER_FAILED,
    GUARD_METER_REFUSED,
    GUARD_METER_CANCELED,
    GUARD_METER_REASONS, /* shed, rate, limit, breaker */
    GUARD_METER_RETRIES = GUARD_METER_REASONS + 4,
    GUARD_METER_EXHAUSTED, /* attempts, budget, time */
    GUARD_METER_HEDGES = GUARD_METER_EXHAUSTED + 3,
    GUARD_METER_HEDGES_WON,
    GUARD_METER_DEAD_LETTERS,
    GUARD_METER_LATENCY_TARGET,
    GUARD_METER_VALUES,
};

static void show(const struct guard_figures *figures, uint64_t *values)
{
    values[GUARD_METER_OK] = figures->went_well;
    values[GUARD_METER_PARTIAL] = figures->partial;
    values[GUARD_METER_FAILED] = figures->failed;
    values[GUARD_METER_CANCELED] = figures->canceled;
    for (unsigned i = 0; i < 4; i++) {
        values[GUARD_METER_REFUSED] += figures->refused[i];
        values[GUARD_METER_REASONS + i] = figures->refused[i];
    }
    values[GUARD_METER_REFUSED] -= figures->made_good;
    values[GUARD_METER_RETRIES] = figures->retries;
    for (unsigned i = 0; i < 3; i++) { values[GUARD_METER_EXHAUSTED + i] = figures->exhausted[i]; }
    values[GUARD_METER_HEDGES] = figures->hedges;
    values[GUARD_METER_HEDGES_WON] = figures->hedges_won;
    values[GUARD_METER_DEAD_LETTERS] = figures->dead_letters;
}

static void collect(struct metered *object, uint64_t *values)
{
    weir_guard *guard = container_of(object, weir_guard, metered);

    sync_lock(&guard->sync);
    show(&guard->figures, values);
    values[GUARD_METER_LATENCY_TARGET] = (uint64_t)guard->spec.latency_ms;
    sync_unlock(&guard->sync);
}

#define CALLS(value_, label_)                                                      \
    [value_] = {"weir_guard_calls_total", "Calls that have ended.", METER_COUNTER, \
                .label = "outcome", .label_value = (label_)}
#define REFUSED(index_, label_)                                                        \
    [GUARD_METER_REASONS + (index_)] = {"weir_guard_refused_total",                    \
                                        "Calls that were refused before any attempt.", \
                                        METER_COUNTER, .label = "reason", .label_value = (label_)}
#define EXHAUSTED(index_, label_)                                                                 \
    [GUARD_METER_EXHAUSTED +                                                                      \
        (index_)] = {"weir_retry_exhausted_total", "Calls that failed and were not tried again.", \
                     METER_COUNTER, .label = "reason", .label_value = (label_)}

static const struct meter_value guard_values[GUARD_METER_VALUES] = {
    CALLS(GUARD_METER_OK, "ok"),
    CALLS(GUARD_METER_PARTIAL, "partial"),
    CALLS(GUARD_METER_FAILED, "failed"),
    CALLS(GUARD_METER_REFUSED, "refused"),
    CALLS(GUARD_METER_CANCELED, "canceled"),
    REFUSED(0, "shed"),
    REFUSED(1, "rate"),
    REFUSED(2, "limit"),
    REFUSED(3, "breaker"),
    [GUARD_METER_RETRIES] = {"weir_retry_attempts_total", "Attempts beyond the first of a call.",
                             METER_COUNTER},
    EXHAUSTED(0, "attempts"),
    EXHAUSTED(1, "budget"),
    EXHAUSTED(2, "time"),
    [GUARD_METER_HEDGES] = {"weir_guard_hedges_total", "Second attempts beside a slow one.",
                            METER_COUNTER},
    [GUARD_METER_HEDGES_WON] = {"weir_guard_hedges_won_total", "Calls whose hedge was the first.",
                                METER_COUNTER},
    [GUARD_METER_DEAD_LETTERS] = {"weir_guard_dead_letters_total",
                                  "Calls that were handed over to a sink.", METER_COUNTER},
    [GUARD_METER_LATENCY_TARGET] = {"weir_guard_latency_target_seconds",
                                    "How long a call should take at most.", METER_GAUGE_MAX, 3,
                                    true},
};

static const struct meter_histogram guard_histograms[] = {
    [GUARD_WAIT] = {"weir_guard_wait_seconds", "How long calls wait for rate and limit."},
    [GUARD_RUN] = {"weir_guard_call_seconds", "How long calls take, waits and retries included."},
};

static const struct meter_kind guard_meter_kind = {
    .labels = {"guard"},
    .values = guard_values,
    .value_count = GUARD_METER_VALUES,
    .histograms = guard_histograms,
    .histogram_count = 2,
    .collect = collect,
};

static bool is_refusal(const struct guarded *guarded)
{
    return guarded->retry.attempts == 0 && guarded->end >= WEIR_GUARD_SHED &&
           guarded->end <= WEIR_GUARD_BREAKER;
}

static void count(struct guard_figures *figures, const struct guarded *guarded, int result,
                  bool is_dead_letter)
{
    uint32_t attempts = guarded->retry.attempts;

    if (is_refusal(guarded)) figures->refused[guarded->end - WEIR_GUARD_SHED]++;
    if (result == WEIR_PARTIAL) {
        figures->partial++;
        figures->made_good += is_refusal(guarded);
    } else if (result >= 0) {
        figures->went_well++;
    } else if (guarded->end == WEIR_GUARD_CANCELED) {
        figures->canceled++;
    } else if (!is_refusal(guarded)) {
        figures->failed++;
    }
    if (attempts > 0) figures->firsts++;
    if (__builtin_expect(attempts > 1, 0)) figures->retries += attempts - 1;
    if (__builtin_expect(guarded->end >= WEIR_GUARD_ATTEMPTS && guarded->end <= WEIR_GUARD_TIME,
                         0)) {
        figures->exhausted[guarded->end - WEIR_GUARD_ATTEMPTS]++;
    }
    figures->hedges += guarded->hedges;
    figures->hedges_won += guarded->hedge_won;
    figures->dead_letters += is_dead_letter;
}

/* ---- Holding ---- */

int guard_hold(const weir_guard *handle, weir_guard *guard)
{
    int r = WEIR_ECLOSED;

    sync_lock(&guard->sync);
    if (flow_names(handle, HANDLE_GUARD, guard)) {
        guard->holders++;
        r = 0;
    }
    sync_unlock(&guard->sync);
    return r;
}

/* Its figures are gone already: what this call has to say goes to the meter itself. */
static __attribute__((noinline)) void count_late(struct meter *meter, const struct guarded *guarded,
                                                 int result, bool is_dead_letter)
{
    struct guard_figures figures = {0};
    uint64_t values[GUARD_METER_VALUES] = {0};

    count(&figures, guarded, result, is_dead_letter);
    show(&figures, values);
    for (unsigned i = 0; i < GUARD_METER_VALUES; i++) {
        if (values[i] > 0) meter_count(meter, i, values[i]);
    }
}

void guard_let_go(weir_guard *guard, const struct guarded *guarded, int result, bool is_dead_letter)
{
    struct meter *meter = guard->metered.meter;
    bool gone, last;

    meter_observe(meter, GUARD_RUN, guarded->now_ns - guarded->began_ns);
    if (guard->spec.keep_rate || guard->spec.keep_limit) {
        meter_observe(meter, GUARD_WAIT, guarded->entered_ns - guarded->began_ns);
    }
    sync_lock(&guard->sync);
    gone = guard->gone;
    if (!gone) count(&guard->figures, guarded, result, is_dead_letter);
    last = --guard->holders == 0 && gone;
    sync_unlock(&guard->sync);
    if (__builtin_expect(gone, 0)) count_late(meter, guarded, result, is_dead_letter);
    if (last) flow_free(&guard->sync.object);
}

static void guard_release(struct worker *worker, struct belonging *belonging)
{
    weir_guard *guard = container_of(belonging, weir_guard, sync.object.belonging);
    bool last;

    (void)worker;
    if (!sync_forget(&guard->sync)) return;
    /* From `gone` on calls count for themselves, and the last one frees it: not before its figures
     * are with the meter, so that until then we are a holder too. */
    sync_lock(&guard->sync);
    guard->holders++;
    guard->gone = true;
    sync_unlock(&guard->sync);
    meter_leave(&guard->metered);
    sync_lock(&guard->sync);
    last = --guard->holders == 0;
    sync_unlock(&guard->sync);
    if (last) flow_free(&guard->sync.object);
}

/* ---- On the map ---- */

static void describe_failure(const weir_guard *guard, char *text, size_t bytes)
{
    const weir_guard_spec *spec = &guard->spec;

    (void)snprintf(text, bytes, "%d attempt%s%s%s%s%s", (int)guard->rules.attempts_max,
                   guard->rules.attempts_max > 1 ? "s" : "", spec->keep_breaker ? ", breaker" : "",
                   spec->hedge_after_ms > 0 ? ", hedge" : "",
                   spec->retry.on_exhausted == WEIR_EXHAUSTED_DEAD_LETTER ? ", dead letter" : "",
                   spec->fallback ? ", fallback: partial" : ", the error to the caller");
}

static bool guard_boundary(struct belonging *belonging, unsigned row, struct boundary *ret)
{
    weir_guard *guard = container_of(belonging, weir_guard, sync.object.belonging);
    const weir_guard_spec *spec = &guard->spec;
    struct lock *lock = &guard->sync.object.stable.lock;
    bool shared = guard->sync.object.stable.shared;
    uint64_t values[GUARD_METER_VALUES] = {0};

    if (row > 0) return false;
    (void)snprintf(ret->name, sizeof ret->name, "%s", guard->sync.object.name);
    ret->lifetime = "until closed, or the scope ends";
    (void)snprintf(ret->bound, sizeof ret->bound, "%lld ms a call%s%s%s",
                   (long long)spec->timeout_ms, spec->keep_rate ? ", rate" : "",
                   spec->keep_limit ? ", limit" : "", spec->keep_shed ? ", shed" : "");
    ret->overflow = spec->keep_rate || spec->keep_limit || spec->keep_shed
                        ? "that of its parts"
                        : "none: its callers are the bound";
    describe_failure(guard, ret->failure, sizeof ret->failure);
    ret->latency_target_ms = spec->latency_ms;
    ret->meter = guard->metered.meter;
    ret->wait_histogram = GUARD_WAIT;
    ret->run_histogram = GUARD_RUN;
    if (!boundary_hold(lock, shared)) return true;
    show(&guard->figures, values);
    boundary_figure(ret, "running", guard->holders);
    boundary_figure(ret, "finished", values[GUARD_METER_OK] + values[GUARD_METER_PARTIAL]);
    boundary_figure(ret, "partial", values[GUARD_METER_PARTIAL]);
    boundary_figure(ret, "failed", values[GUARD_METER_FAILED]);
    boundary_figure(ret, "rejected", values[GUARD_METER_REFUSED]);
    boundary_figure(ret, "retries", values[GUARD_METER_RETRIES]);
    boundary_figure(ret, "hedges", values[GUARD_METER_HEDGES]);
    boundary_figure(ret, "dead_letters", values[GUARD_METER_DEAD_LETTERS]);
    boundary_let_go(lock, shared);
    return true;
}

static const struct sync_kind guard_kind = {
    .belonging = {.name = "guard",
                  .signalled = sync_signalled,
                  .release = guard_release,
                  .describe = sync_describe,
                  .boundary = guard_boundary},
    .handle = HANDLE_GUARD,
    .what = "guard",
};

/* ---- Checking ---- */

static bool retry_is_said(const weir_retry_spec *retry)
{
    return retry->attempts != 0 || retry->backoff_ms != 0 || retry->backoff_ms_max != 0 ||
           retry->errors[0] != 0 || retry->on_exhausted != WEIR_EXHAUSTED_UNSET ||
           retry->keep_dead_letters;
}

static unsigned count_errors(const weir_retry_spec *retry)
{
    unsigned count = 0;
    while (count < WEIR_RETRY_ERRORS_MAX && retry->errors[count] != 0) count++;
    return count;
}

static int check_errors(const char *name, const weir_retry_spec *retry)
{
    unsigned count = count_errors(retry);

    if (count == 0) {
        return refuse("guard '%s': retry.errors is not set: name those that are tried again", name);
    }
    for (unsigned i = 0; i < count; i++) {
        if (retry->errors[i] == WEIR_ECANCELED) {
            return refuse("guard '%s': retry.errors has WEIR_ECANCELED, which is never tried again",
                          name);
        }
        if (retry->errors[i] > 0) {
            return refuse("guard '%s': retry.errors has %d: errors are negative", name,
                          retry->errors[i]);
        }
    }
    return 0;
}

static int check_terminal(const char *name, const weir_retry_spec *retry)
{
    if (retry->on_exhausted == WEIR_EXHAUSTED_UNSET ||
        retry->on_exhausted > WEIR_EXHAUSTED_DEAD_LETTER) {
        return refuse("guard '%s': retry.on_exhausted is not set", name);
    }
    if ((retry->on_exhausted == WEIR_EXHAUSTED_DEAD_LETTER) != (retry->keep_dead_letters != NULL)) {
        return refuse("guard '%s': retry.keep_dead_letters is set if and only if on_exhausted is "
                      "WEIR_EXHAUSTED_DEAD_LETTER",
                      name);
    }
    return 0;
}

static bool is_idempotent(const weir_guard_spec *spec)
{
    return spec->idempotent || (spec->idempotency_key && *spec->idempotency_key);
}

static int check_retry(const weir_guard_spec *spec)
{
    const weir_retry_spec *retry = &spec->retry;
    const char *name = spec->name;
    int r;

    if (!retry_is_said(retry)) return 0;
    if (retry->attempts < 1 || retry->attempts > WEIR_ATTEMPTS_MAX) {
        return refuse("guard '%s': retry.attempts is %d, must be 1 to %d", name, retry->attempts,
                      WEIR_ATTEMPTS_MAX);
    }
    r = check_terminal(name, retry);
    if (r < 0 || retry->attempts == 1) return r;
    if (!is_idempotent(spec)) {
        return refuse("guard '%s': neither idempotent nor idempotency_key is set, so it cannot be "
                      "tried %d times",
                      name, retry->attempts);
    }
    if (retry->backoff_ms <= 0) return refuse("guard '%s': retry.backoff_ms is not set", name);
    if (retry->backoff_ms_max < retry->backoff_ms || retry->backoff_ms_max > GUARD_MS_MAX) {
        return refuse("guard '%s': retry.backoff_ms_max is %lld, the cap of backoff_ms, %lld", name,
                      (long long)retry->backoff_ms_max, (long long)retry->backoff_ms);
    }
    return check_errors(name, retry);
}

static int check_hedge(const weir_guard_spec *spec)
{
    const char *name = spec->name;
    int64_t attempt_ms = spec->attempt_timeout_ms ? spec->attempt_timeout_ms : spec->timeout_ms;

    if (spec->hedge_after_ms == 0) return 0;
    if (spec->hedge_after_ms < 0 || spec->hedge_after_ms >= attempt_ms) {
        return refuse("guard '%s': hedge_after_ms is %lld, and an attempt has %lld ms", name,
                      (long long)spec->hedge_after_ms, (long long)attempt_ms);
    }
    if (!is_idempotent(spec)) {
        return refuse("guard '%s': neither idempotent nor idempotency_key is set, so it cannot be "
                      "hedged",
                      name);
    }
    if (!spec->retry.keep_budget) {
        return refuse("guard '%s': hedge_after_ms needs retry.keep_budget, whose tokens it takes",
                      name);
    }
    return 0;
}

/* What it can take at worst fits what a call may take. */
static int check_budget(const weir_guard_spec *spec, const struct retry_rules *rules)
{
    int64_t waits_ms = (retry_backoff_total_ns(rules) + MS_NS - 1) / MS_NS;
    int64_t worst_ms = rules->attempts_max * spec->attempt_timeout_ms + waits_ms;

    if (rules->attempts_max > 1 && spec->attempt_timeout_ms == 0) {
        return refuse("guard '%s': attempt_timeout_ms is not set, and there are %u attempts",
                      spec->name, rules->attempts_max);
    }
    if (worst_ms <= spec->timeout_ms) return 0;
    return refuse("guard '%s': %u attempts of %lld ms and %lld ms between them take %lld ms at "
                  "worst, more than timeout_ms, %lld",
                  spec->name, rules->attempts_max, (long long)spec->attempt_timeout_ms,
                  (long long)waits_ms, (long long)worst_ms, (long long)spec->timeout_ms);
}

static int check_spec(const weir_guard_spec *spec)
{
    const char *name = spec->name;
    int r = flow_check_name("guard", name);

    if (r < 0) return r;
    if (spec->timeout_ms <= 0) return refuse("guard '%s': timeout_ms is not set", name);
    if (spec->timeout_ms > GUARD_MS_MAX || spec->attempt_timeout_ms > GUARD_MS_MAX) {
        return refuse("guard '%s': timeout_ms or attempt_timeout_ms is too long", name);
    }
    if (spec->attempt_timeout_ms < 0) {
        return refuse("guard '%s': attempt_timeout_ms is negative", name);
    }
    if (spec->latency_ms < 0) return refuse("guard '%s': latency_ms is negative", name);
    r = check_retry(spec);
    return r < 0 ? r : check_hedge(spec);
}

/* A handle that names no such part aborts, as everywhere. */
static void check_parts(const weir_guard_spec *spec)
{
    static const char call[] = "weir_guard_open";

    if (spec->keep_shed) (void)flow_look_up(spec->keep_shed, HANDLE_SHED, "shed", call);
    if (spec->keep_rate) (void)flow_look_up(spec->keep_rate, HANDLE_RATE, "rate", call);
    if (spec->keep_limit) (void)flow_look_up(spec->keep_limit, HANDLE_LIMIT, "limit", call);
    if (spec->keep_breaker) {
        (void)flow_look_up(spec->keep_breaker, HANDLE_BREAKER, "breaker", call);
    }
    if (spec->retry.keep_budget) {
        (void)flow_look_up(spec->retry.keep_budget, HANDLE_RETRY_BUDGET, "retry budget", call);
    }
    if (spec->retry.keep_dead_letters) {
        (void)flow_look_up(spec->retry.keep_dead_letters, HANDLE_DEAD_LETTERS,
                           "sink of dead letters", call);
    }
}

/* ---- Opening ---- */

static void rules_of(const weir_retry_spec *retry, struct retry_rules *ret_rules)
{
    *ret_rules = (struct retry_rules){
        .attempts_max = retry->attempts > 0 ? (uint32_t)retry->attempts : 1,
        .error_count = count_errors(retry),
    };
    if (retry->attempts > 1) { /* else there are no waits, and they were not checked */
        ret_rules->backoff_ns = retry->backoff_ms * MS_NS;
        ret_rules->backoff_ns_max = retry->backoff_ms_max * MS_NS;
    }
    memcpy(ret_rules->errors, retry->errors, sizeof ret_rules->errors);
}

int weir_guard_open_sized(weir_scope *scope, size_t spec_bytes, const weir_guard_spec *given,
                          weir_guard **ret_guard)
{
    struct retry_rules rules;
    weir_guard_spec spec;
    weir_guard *guard;
    struct sync *sync;
    int r;

    if (!worker_self()) return refuse_no_task("weir_guard_open");
    spec_copy(&spec, sizeof spec, given, spec_bytes);
    r = check_spec(&spec);
    if (r < 0) return r;
    rules_of(&spec.retry, &rules);
    r = check_budget(&spec, &rules);
    if (r < 0) return r;
    check_parts(&spec);
    r = sync_open(scope, &guard_kind, sizeof *guard, spec.name, "weir_guard_open", &sync);
    if (r < 0) return r;
    guard = container_of(sync, weir_guard, sync);
    guard->spec = spec;
    guard->rules = rules;
    if (spec.idempotency_key) flow_name(guard->idempotency_key, spec.idempotency_key);
    guard_stage_init(guard);
    meter_enter(&guard->metered, meter_get(&guard_meter_kind, guard->sync.object.name, NULL));
    *ret_guard = sync->handle;
    return 0;
}

void weir_guard_close(weir_guard *take_guard)
{
    if (take_guard) sync_close(take_guard, &guard_kind, "weir_guard_close");
}

void weir_guard_figures_of(weir_guard *handle, weir_guard_figures *ret_figures)
{
    weir_guard *guard = flow_look_up(handle, HANDLE_GUARD, "guard", "weir_guard_figures_of");
    const struct guard_figures *figures = &guard->figures;

    flow_check_worker("weir_guard_figures_of");
    sync_lock(&guard->sync);
    *ret_figures = (weir_guard_figures){
        .went_well = figures->went_well,
        .partial = figures->partial,
        .failed = figures->failed,
        .refused =
            figures->refused[0] + figures->refused[1] + figures->refused[2] + figures->refused[3],
        .canceled = figures->canceled,
        .attempts = figures->firsts + figures->retries,
        .hedges = figures->hedges,
        .hedges_won = figures->hedges_won,
        .dead_letters = figures->dead_letters,
    };
    sync_unlock(&guard->sync);
}
