/* retry_budget.c - a retry budget (policy/retry_budget.h) that tasks share. */
#include "flow/retry_budget.h"

#include <stdio.h>
#include <weir/runtime.h>

#include "base/planted.h"
#include "flow/meters.h"
#include "flow/sync.h"
#include "policy/retry_budget.h"

_Static_assert(WEIR_RETRY_RATIO_PERCENT_MAX == RETRY_BUDGET_RATIO_MAX, "the bound programs see");
_Static_assert(WEIR_RETRY_PER_SECOND_MAX == RETRY_BUDGET_RATE_MAX, "the bound programs see");
_Static_assert(WEIR_RETRY_BURST_MAX == RETRY_BUDGET_BURST_MAX, "the bound programs see");

struct weir_retry_budget {
    struct sync sync;
    struct metered metered;
    struct retry_budget machine;
    uint64_t calls, taken, returned, refused;
};

/* ---- Figures ---- */

enum {
    BUDGET_METER_TOKENS,
    BUDGET_METER_BURST,
    BUDGET_METER_CALLS,
    BUDGET_METER_TAKEN,
    BUDGET_METER_RETURNED,
    BUDGET_METER_REFUSED,
    BUDGET_METER_VALUES,
};

static void collect(struct metered *object, uint64_t *values)
{
    weir_retry_budget *budget = container_of(object, weir_retry_budget, metered);

    sync_lock(&budget->sync);
    values[BUDGET_METER_TOKENS] = retry_budget_tokens(&budget->machine, weir_now_ns());
    values[BUDGET_METER_BURST] = budget->machine.rules.burst;
    values[BUDGET_METER_CALLS] = budget->calls;
    values[BUDGET_METER_TAKEN] = budget->taken;
    values[BUDGET_METER_RETURNED] = budget->returned;
    values[BUDGET_METER_REFUSED] = budget->refused;
    sync_unlock(&budget->sync);
}

static const struct meter_value budget_values[BUDGET_METER_VALUES] = {
    [BUDGET_METER_TOKENS] = {"weir_retry_budget_tokens", "Retries that may be made now.",
                             METER_GAUGE},
    [BUDGET_METER_BURST] = {"weir_retry_budget_burst", "Retries that are kept at most.",
                            METER_GAUGE},
    [BUDGET_METER_CALLS] = {"weir_retry_budget_calls_total", "Calls that brought their share.",
                            METER_COUNTER},
    [BUDGET_METER_TAKEN] = {"weir_retry_budget_taken_total", "Retries and hedges it allowed.",
                            METER_COUNTER},
    [BUDGET_METER_RETURNED] = {"weir_retry_budget_returned_total",
                               "Of those: that were not made after all.", METER_COUNTER},
    [BUDGET_METER_REFUSED] = {"weir_retry_budget_refused_total",
                              "Retries and hedges that were not made: it was spent.",
                              METER_COUNTER},
};

static const struct meter_kind budget_meter_kind = {
    .labels = {"budget"},
    .values = budget_values,
    .value_count = BUDGET_METER_VALUES,
    .collect = collect,
};

/* ---- Belonging to a scope ---- */

static void budget_release(struct worker *worker, struct belonging *belonging)
{
    weir_retry_budget *budget = container_of(belonging, weir_retry_budget, sync.object.belonging);

    meter_leave(&budget->metered);
    (void)sync_let_go(worker, &budget->sync);
}

static bool budget_boundary(struct belonging *belonging, unsigned row, struct boundary *ret)
{
    weir_retry_budget *budget = container_of(belonging, weir_retry_budget, sync.object.belonging);
    const struct retry_budget_rules *rules = &budget->machine.rules;
    struct lock *lock = &budget->sync.object.stable.lock;
    bool shared = budget->sync.object.stable.shared;

    if (row > 0) return false;
    (void)snprintf(ret->name, sizeof ret->name, "%s", budget->sync.object.name);
    ret->lifetime = "until closed, or the scope ends";
    (void)snprintf(ret->bound, sizeof ret->bound, "%u %% of calls, %u a second, %u at once",
                   rules->ratio_percent, rules->per_second, rules->burst);
    ret->overflow = "reject";
    (void)snprintf(ret->failure, sizeof ret->failure, "spent: the call ends with its last error");
    if (!boundary_hold(lock, shared)) return true;
    boundary_figure(
        ret, "tokens",
        (uint64_t)(budget->machine.parts / RETRY_BUDGET_TOKEN)); /* as of its last use */
    boundary_figure(ret, "calls", budget->calls);
    boundary_figure(ret, "taken", budget->taken);
    boundary_figure(ret, "returned", budget->returned);
    boundary_figure(ret, "rejected", budget->refused);
    boundary_let_go(lock, shared);
    return true;
}

static const struct sync_kind budget_kind = {
    .belonging = {.name = "retry budget",
                  .signalled = sync_signalled,
                  .release = budget_release,
                  .describe = sync_describe,
                  .boundary = budget_boundary},
    .handle = HANDLE_RETRY_BUDGET,
    .what = "retry budget",
};

/* ---- Opening ---- */

static int check_spec(const weir_retry_budget_spec *spec)
{
    const char *name = spec->name;
    int r = flow_check_name("retry budget", name);

    if (r < 0) return r;
    if (spec->ratio_percent == 0 && spec->per_second == 0) {
        return refuse("retry budget '%s': neither ratio_percent nor per_second is set", name);
    }
    if (spec->ratio_percent > WEIR_RETRY_RATIO_PERCENT_MAX) {
        return refuse("retry budget '%s': ratio_percent is %u, at most %d", name,
                      spec->ratio_percent, WEIR_RETRY_RATIO_PERCENT_MAX);
    }
    if (spec->per_second > WEIR_RETRY_PER_SECOND_MAX || spec->burst > WEIR_RETRY_BURST_MAX) {
        return refuse("retry budget '%s': per_second or burst is more than %d", name,
                      WEIR_RETRY_BURST_MAX);
    }
    return 0;
}

int weir_retry_budget_open_sized(weir_scope *scope, size_t spec_bytes,
                                 const weir_retry_budget_spec *given,
                                 weir_retry_budget **ret_budget)
{
    weir_retry_budget_spec spec;
    weir_retry_budget *budget;
    struct sync *sync;
    int r;

    if (!worker_self()) return refuse_no_task("weir_retry_budget_open");
    spec_copy(&spec, sizeof spec, given, spec_bytes);
    r = check_spec(&spec);
    if (r < 0) return r;
    r = sync_open(scope, &budget_kind, sizeof *budget, spec.name, "weir_retry_budget_open", &sync);
    if (r < 0) return r;
    budget = container_of(sync, weir_retry_budget, sync);
    retry_budget_init(
        &budget->machine,
        &(struct retry_budget_rules){.ratio_percent = spec.ratio_percent,
                                     .per_second = spec.per_second,
                                     .burst = spec.burst ? spec.burst : WEIR_RETRY_BURST_DEFAULT},
        weir_now_ns());
    meter_enter(&budget->metered, meter_get(&budget_meter_kind, budget->sync.object.name, NULL));
    *ret_budget = sync->handle;
    return 0;
}

void weir_retry_budget_close(weir_retry_budget *take_budget)
{
    if (take_budget) sync_close(take_budget, &budget_kind, "weir_retry_budget_close");
}

/* ---- Putting in, taking out ---- */

static bool is_open(const weir_retry_budget *handle, const weir_retry_budget *budget)
{
    return flow_names(handle, HANDLE_RETRY_BUDGET, budget);
}

void budget_deposit(const weir_retry_budget *handle, int64_t now_ns)
{
    weir_retry_budget *budget = handle_object(handle, HANDLE_RETRY_BUDGET);

    if (!budget) return;
    sync_lock(&budget->sync);
    if (is_open(handle, budget)) {
        budget->calls++;
        retry_budget_call(&budget->machine, now_ns);
    }
    sync_unlock(&budget->sync);
}

/* Of a planted bug: whether there is a token, and the lock is let go for a moment. */
static bool let_others_in(weir_retry_budget *budget) LOCK_UNCHECKED
{
    bool found = budget->machine.parts >= RETRY_BUDGET_TOKEN;

    sync_unlock(&budget->sync);
    sync_lock(&budget->sync);
    return found;
}

int budget_withdraw(const weir_retry_budget *handle, int64_t now_ns)
{
    weir_retry_budget *budget = handle_object(handle, HANDLE_RETRY_BUDGET);
    int r = WEIR_ECLOSED;

    if (!budget) return r;
    sync_lock(&budget->sync);
    if (is_open(handle, budget)) {
        bool found = PLANTED(BUDGET_CHECKED_THEN_TAKEN) && let_others_in(budget);
        bool taken = retry_budget_take(&budget->machine, now_ns) || found;
        budget->taken += taken;
        budget->refused += !taken;
        r = taken ? 0 : WEIR_EOVERLOAD;
    }
    sync_unlock(&budget->sync);
    return r;
}

void budget_give_back(const weir_retry_budget *handle)
{
    weir_retry_budget *budget = handle_object(handle, HANDLE_RETRY_BUDGET);

    if (!budget) return;
    sync_lock(&budget->sync);
    if (is_open(handle, budget)) {
        budget->returned++;
        retry_budget_give_back(&budget->machine);
    }
    sync_unlock(&budget->sync);
}

/* ---- Calls of programs ---- */

static weir_retry_budget *look_up(const weir_retry_budget *handle, const char *call)
{
    weir_retry_budget *budget = flow_look_up(handle, HANDLE_RETRY_BUDGET, "retry budget", call);
    flow_check_worker(call);
    return budget;
}

void weir_retry_budget_call(weir_retry_budget *handle)
{
    (void)look_up(handle, "weir_retry_budget_call");
    budget_deposit(handle, weir_now_ns());
}

int weir_retry_budget_take(weir_retry_budget *handle)
{
    (void)look_up(handle, "weir_retry_budget_take");
    return budget_withdraw(handle, weir_now_ns());
}

void weir_retry_budget_figures_of(weir_retry_budget *handle, weir_retry_budget_figures *ret_figures)
{
    weir_retry_budget *budget = look_up(handle, "weir_retry_budget_figures_of");

    sync_lock(&budget->sync);
    *ret_figures = (weir_retry_budget_figures){
        .tokens = retry_budget_tokens(&budget->machine, weir_now_ns()),
        .burst = budget->machine.rules.burst,
        .calls = budget->calls,
        .taken = budget->taken,
        .returned = budget->returned,
        .refused = budget->refused,
    };
    sync_unlock(&budget->sync);
}
