/* shed.c - shedding by how long things have waited (policy/codel.h). */
#include <stdio.h>

#include "flow/limit.h"
#include "flow/meters.h"

#define NS_IN_MS INT64_C(1000000)

enum { NS_DIGITS = 9 };

/* ---- What it shows ---- */

static void collect_shed(struct metered *object, uint64_t *values)
{
    weir_shed *shed = container_of(object, struct weir_shed, metered);

    sync_lock(&shed->sync);
    values[SHED_ADMITTED] = shed->admitted;
    values[SHED_SHED] = shed->shed;
    values[SHED_TOO_LATE] = shed->too_late;
    values[SHED_SHEDDING] = shed->codel.state == CODEL_SHEDDING;
    values[SHED_TARGET] = (uint64_t)shed->codel.rules.target_ns;
    sync_unlock(&shed->sync);
}

static const struct meter_value shed_values[SHED_VALUES] = {
    [SHED_ADMITTED] = {"weir_shed_admitted_total", "What was let through.", METER_COUNTER},
    [SHED_SHED] = {"weir_shed_shed_total", "What was shed: it had waited too long.", METER_COUNTER},
    [SHED_TOO_LATE] = {"weir_shed_too_late_total", "Of those: what had waited longer than allowed.",
                       METER_COUNTER},
    [SHED_SHEDDING] = {"weir_shed_shedding", "Those that shed now, as waits do not get shorter.",
                       METER_GAUGE},
    [SHED_TARGET] = {"weir_shed_target_seconds", "How long things may wait for good.",
                     METER_GAUGE_MAX, NS_DIGITS, true},
};

const struct meter_kind shed_meter_kind = {
    .labels = {"shed"},
    .values = shed_values,
    .value_count = SHED_VALUES,
    .collect = collect_shed,
};

static bool shed_boundary(struct belonging *belonging, unsigned row, struct boundary *ret_boundary)
{
    weir_shed *shed = container_of(belonging, struct weir_shed, sync.object.belonging);
    const struct codel_rules *rules = &shed->codel.rules;

    if (row > 0) return false;
    (void)snprintf(ret_boundary->bound, sizeof ret_boundary->bound,
                   "waits of %lld ms, more for %lld ms, never more than %lld ms",
                   (long long)(rules->target_ns / NS_IN_MS),
                   (long long)(rules->interval_ns / NS_IN_MS),
                   (long long)(rules->wait_max_ns / NS_IN_MS));
    ret_boundary->overflow = "reject";
    ret_boundary->latency_target_ms = rules->target_ns / NS_IN_MS;
    if (sync_boundary(&shed->sync, ret_boundary)) {
        boundary_figure(ret_boundary, "admitted", shed->admitted);
        boundary_figure(ret_boundary, "shed", shed->shed);
        boundary_figure(ret_boundary, "too_late", shed->too_late);
        boundary_figure(ret_boundary, "shedding", shed->codel.state == CODEL_SHEDDING);
        sync_boundary_end(&shed->sync);
    }
    return true;
}

/* ---- Its life ---- */

static void shed_release(struct worker *worker, struct belonging *belonging)
{
    weir_shed *shed = container_of(belonging, struct weir_shed, sync.object.belonging);

    meter_leave(&shed->metered);
    (void)sync_let_go(worker, &shed->sync);
}

static const struct sync_kind shed_kind = {
    .belonging = {.name = "shed",
                  .signalled = sync_signalled,
                  .release = shed_release,
                  .describe = sync_describe,
                  .boundary = shed_boundary},
    .handle = HANDLE_SHED,
    .what = "shed",
};

static int check_time(const char *name, const char *member, int64_t ms)
{
    if (ms == 0) return refuse("shed '%s': %s is not set", name, member);
    if (ms < 0) return refuse("shed '%s': %s must not be negative", name, member);
    if (ms > INT64_MAX / NS_IN_MS) return refuse("shed '%s': %s is too long", name, member);
    return 0;
}

static int check_spec(const weir_shed_spec *spec)
{
    int r = flow_check_name("shed", spec->name);

    if (r == 0) r = check_time(spec->name, "target_ms", spec->target_ms);
    if (r == 0) r = check_time(spec->name, "interval_ms", spec->interval_ms);
    if (r == 0 && spec->wait_max_ms) r = check_time(spec->name, "wait_max_ms", spec->wait_max_ms);
    if (r < 0) return r;
    if (spec->interval_ms < spec->target_ms) {
        return refuse("shed '%s': interval_ms is less than target_ms", spec->name);
    }
    if (spec->wait_max_ms && spec->wait_max_ms < spec->target_ms) {
        return refuse("shed '%s': wait_max_ms is less than target_ms", spec->name);
    }
    return 0;
}

int weir_shed_open_sized(weir_scope *scope, size_t spec_bytes, const weir_shed_spec *given,
                         weir_shed **ret_shed)
{
    weir_shed_spec spec;
    struct codel_rules rules;
    struct sync *sync;
    weir_shed *shed;
    int r;

    if (!worker_self()) return refuse_no_task("weir_shed_open");
    spec_copy(&spec, sizeof spec, given, spec_bytes);
    r = check_spec(&spec);
    if (r < 0) return r;
    r = sync_open(scope, &shed_kind, sizeof *shed, spec.name, "weir_shed_open", &sync);
    if (r < 0) return r;
    shed = container_of(sync, struct weir_shed, sync);
    rules.target_ns = spec.target_ms * NS_IN_MS;
    rules.interval_ns = spec.interval_ms * NS_IN_MS;
    rules.wait_max_ns = (spec.wait_max_ms ? spec.wait_max_ms : spec.interval_ms) * NS_IN_MS;
    codel_init(&shed->codel, &rules);
    meter_enter(&shed->metered, meter_get(&shed_meter_kind, shed->sync.object.name, NULL));
    *ret_shed = sync->handle;
    return 0;
}

void weir_shed_close(weir_shed *take_shed)
{
    if (take_shed) sync_close(take_shed, &shed_kind, "weir_shed_close");
}

/* ---- Using it ---- */

static weir_shed *look_up(const weir_shed *handle, const char *call)
{
    weir_shed *shed = flow_look_up(handle, HANDLE_SHED, "shed", call);
    flow_check_worker(call);
    return shed;
}

int shed_enter(weir_shed *handle, int64_t waited_ns, int64_t now_ns)
{
    weir_shed *shed = look_up(handle, "weir_shed_enter");
    const struct kernel *kernel = worker_self()->kernel;
    bool within = codel_is_within(&shed->codel, waited_ns);
    bool sheds = false;

    if (!within && now_ns == 0) now_ns = kernel->now_ns(kernel);
    sync_lock(&shed->sync);
    if (!flow_names(handle, HANDLE_SHED, shed)) {
        sync_unlock(&shed->sync);
        return WEIR_ECLOSED;
    }
    if (within) {
        codel_pass(&shed->codel);
    } else {
        sheds = codel_sheds(&shed->codel, waited_ns, now_ns);
    }
    if (!sheds) {
        shed->admitted++;
    } else {
        shed->shed++;
        if (shed->codel.state != CODEL_SHEDDING) shed->too_late++;
    }
    sync_unlock(&shed->sync);
    return sheds ? WEIR_EOVERLOAD : 0;
}

int weir_shed_enter(weir_shed *shed, int64_t waited_ns)
{
    return shed_enter(shed, waited_ns, 0);
}

bool weir_shed_is_shedding(weir_shed *handle)
{
    weir_shed *shed = look_up(handle, "weir_shed_is_shedding");
    bool shedding;

    sync_lock(&shed->sync);
    shedding = flow_names(handle, HANDLE_SHED, shed) && shed->codel.state == CODEL_SHEDDING;
    sync_unlock(&shed->sync);
    return shedding;
}

void weir_shed_figures_of(weir_shed *handle, weir_shed_figures *ret_figures)
{
    weir_shed *shed = look_up(handle, "weir_shed_figures_of");

    *ret_figures = (weir_shed_figures){.admitted = 0};
    sync_lock(&shed->sync);
    if (flow_names(handle, HANDLE_SHED, shed)) {
        *ret_figures = (weir_shed_figures){.admitted = shed->admitted,
                                           .shed = shed->shed,
                                           .too_late = shed->too_late,
                                           .shedding = shed->codel.state == CODEL_SHEDDING};
    }
    sync_unlock(&shed->sync);
}
