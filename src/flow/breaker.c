/* breaker.c - a circuit breaker (policy/breaker.h) that tasks share. */
#include "flow/breaker.h"

#include <stdio.h>
#include <weir/runtime.h>

#include "flow/meters.h"
#include "flow/sync.h"

_Static_assert(WEIR_BREAKER_CALLS_MAX == BREAKER_CALLS_MAX, "the bound that programs see");
_Static_assert(WEIR_BREAKER_SLICES == BREAKER_SLICES, "the slices that programs see");
_Static_assert((int)WEIR_BREAKER_CLOSED == (int)BREAKER_CLOSED, "states have the same numbers");
_Static_assert((int)WEIR_BREAKER_OPEN == (int)BREAKER_OPEN, "states have the same numbers");
_Static_assert((int)WEIR_BREAKER_HALF_OPEN == (int)BREAKER_HALF_OPEN,
               "states have the same numbers");

#define MS_NS INT64_C(1000000)
#define BREAKER_MS_MAX (INT64_MAX / MS_NS / 4)

struct weir_breaker {
    struct sync sync;
    struct metered metered;
    struct breaker machine;
    uint64_t let_in, refused, went_well, failed, silent, slow;
    uint64_t changes[BREAKER_STATES]; /* to each state */
    weir_failure_fn is_failure;
    weir_breaker_fn on_change;
    void *keep_arg;
};

/* ---- Figures ---- */

enum {
    BREAKER_METER_STATE, /* one for each */
    BREAKER_METER_CHANGES = BREAKER_METER_STATE + BREAKER_STATES,
    BREAKER_METER_REFUSED = BREAKER_METER_CHANGES + BREAKER_STATES,
    BREAKER_METER_WENT_WELL,
    BREAKER_METER_FAILED,
    BREAKER_METER_SILENT,
    BREAKER_METER_SLOW,
    BREAKER_METER_VALUES,
};

static void collect(struct metered *object, uint64_t *values)
{
    weir_breaker *breaker = container_of(object, weir_breaker, metered);

    sync_lock(&breaker->sync);
    values[BREAKER_METER_STATE + breaker->machine.state] = 1;
    for (unsigned i = 0; i < BREAKER_STATES; i++) {
        values[BREAKER_METER_CHANGES + i] = breaker->changes[i];
    }
    values[BREAKER_METER_REFUSED] = breaker->refused;
    values[BREAKER_METER_WENT_WELL] = breaker->went_well;
    values[BREAKER_METER_FAILED] = breaker->failed;
    values[BREAKER_METER_SILENT] = breaker->silent;
    values[BREAKER_METER_SLOW] = breaker->slow;
    sync_unlock(&breaker->sync);
}

#define STATE(state_, label_)                                                           \
    [BREAKER_METER_STATE + (state_)] = {"weir_breaker_state",                           \
                                        "Breakers with this name that are in a state.", \
                                        METER_GAUGE, .label = "state", .label_value = (label_)}
#define CHANGES(state_, label_)                                                                \
    [BREAKER_METER_CHANGES + (state_)] = {"weir_breaker_changes_total", "Changes to a state.", \
                                          METER_COUNTER, .label = "to", .label_value = (label_)}
#define CALLS(value_, label_)                                                         \
    [value_] = {"weir_breaker_calls_total", "Calls that were let in and have ended.", \
                METER_COUNTER, .label = "outcome", .label_value = (label_)}

static const struct meter_value breaker_values[BREAKER_METER_VALUES] = {
    STATE(BREAKER_CLOSED, "closed"),
    STATE(BREAKER_OPEN, "open"),
    STATE(BREAKER_HALF_OPEN, "half_open"),
    CHANGES(BREAKER_CLOSED, "closed"),
    CHANGES(BREAKER_OPEN, "open"),
    CHANGES(BREAKER_HALF_OPEN, "half_open"),
    [BREAKER_METER_REFUSED] = {"weir_breaker_refused_total", "Calls that were not let in.",
                               METER_COUNTER},
    CALLS(BREAKER_METER_WENT_WELL, "ok"),
    CALLS(BREAKER_METER_FAILED, "failed"),
    CALLS(BREAKER_METER_SILENT, "canceled"),
    [BREAKER_METER_SLOW] = {"weir_breaker_slow_total", "Calls that took slow_ms or longer.",
                            METER_COUNTER},
};

static const struct meter_kind breaker_meter_kind = {
    .labels = {"breaker"},
    .values = breaker_values,
    .value_count = BREAKER_METER_VALUES,
    .collect = collect,
};

/* ---- Belonging to a scope ---- */

static void breaker_release(struct worker *worker, struct belonging *belonging)
{
    weir_breaker *breaker = container_of(belonging, weir_breaker, sync.object.belonging);

    meter_leave(&breaker->metered);
    (void)sync_let_go(worker, &breaker->sync);
}

static bool breaker_boundary(struct belonging *belonging, unsigned row, struct boundary *ret)
{
    static const char *const states[] = {"closed", "open", "half open"};
    weir_breaker *breaker = container_of(belonging, weir_breaker, sync.object.belonging);
    const struct breaker_rules *rules = &breaker->machine.rules;
    struct lock *lock = &breaker->sync.object.stable.lock;
    bool shared = breaker->sync.object.stable.shared;

    if (row > 0) return false;
    (void)snprintf(ret->name, sizeof ret->name, "%s", breaker->sync.object.name);
    ret->lifetime = "until closed, or the scope ends";
    (void)snprintf(ret->failure, sizeof ret->failure,
                   "WEIR_EBREAKER for %lld ms when %u %% of %u or more failed",
                   (long long)(rules->open_ns / MS_NS), rules->failure_percent, rules->calls_min);
    ret->overflow = "reject while open";
    if (!boundary_hold(lock, shared)) {
        (void)snprintf(ret->bound, sizeof ret->bound, "%u probes", rules->probes_max);
        return true;
    }
    (void)snprintf(ret->bound, sizeof ret->bound, "%u probes; it is %s", rules->probes_max,
                   states[breaker->machine.state]);
    boundary_figure(ret, "window", breaker->machine.sums.calls);
    boundary_figure(ret, "window_failed", breaker->machine.sums.failed);
    boundary_figure(ret, "probes", breaker->machine.probes);
    boundary_figure(ret, "let_in", breaker->let_in);
    boundary_figure(ret, "rejected", breaker->refused);
    boundary_figure(ret, "failed", breaker->failed);
    boundary_figure(ret, "opened", breaker->changes[BREAKER_OPEN]);
    boundary_let_go(lock, shared);
    return true;
}

static const struct sync_kind breaker_kind = {
    .belonging = {.name = "breaker",
                  .signalled = sync_signalled,
                  .release = breaker_release,
                  .describe = sync_describe,
                  .boundary = breaker_boundary},
    .handle = HANDLE_BREAKER,
    .what = "breaker",
};

/* ---- Opening ---- */

static int check_window(const weir_breaker_spec *spec)
{
    const char *name = spec->name;

    if ((spec->window_calls > 0) == (spec->window_ms != 0)) {
        return refuse("breaker '%s': exactly one of window_calls and window_ms must be set", name);
    }
    if (spec->window_calls > WEIR_BREAKER_CALLS_MAX) {
        return refuse("breaker '%s': window_calls is %u, at most %d", name, spec->window_calls,
                      WEIR_BREAKER_CALLS_MAX);
    }
    if (spec->window_ms != 0 &&
        (spec->window_ms < BREAKER_SLICES || spec->window_ms > BREAKER_MS_MAX)) {
        return refuse("breaker '%s': window_ms is %lld, at least %d", name,
                      (long long)spec->window_ms, BREAKER_SLICES);
    }
    if (spec->calls_min == 0) return refuse("breaker '%s': calls_min is not set", name);
    if (spec->window_calls > 0 && spec->calls_min > spec->window_calls) {
        return refuse("breaker '%s': calls_min, %u, is more than window_calls, %u: it would never "
                      "open",
                      name, spec->calls_min, spec->window_calls);
    }
    return 0;
}

static int check_ratios(const weir_breaker_spec *spec)
{
    const char *name = spec->name;

    if (spec->failure_percent < 1 || spec->failure_percent > 100) {
        return refuse("breaker '%s': failure_percent is %u, must be 1 to 100", name,
                      spec->failure_percent);
    }
    if (spec->slow_percent > 100) {
        return refuse("breaker '%s': slow_percent is %u, must be 1 to 100, or 0 for never", name,
                      spec->slow_percent);
    }
    if ((spec->slow_percent > 0) != (spec->slow_ms > 0) || spec->slow_ms < 0) {
        return refuse("breaker '%s': slow_percent and slow_ms belong together", name);
    }
    return 0;
}

static int check_spec(const weir_breaker_spec *spec)
{
    const char *name = spec->name;
    int r = flow_check_name("breaker", name);

    if (r == 0) r = check_window(spec);
    if (r == 0) r = check_ratios(spec);
    if (r < 0) return r;
    if (spec->open_ms <= 0) return refuse("breaker '%s': open_ms is not set", name);
    if (spec->open_ms > BREAKER_MS_MAX || spec->slow_ms > BREAKER_MS_MAX) {
        return refuse("breaker '%s': open_ms or slow_ms is too long", name);
    }
    if (spec->probes_max == 0) return refuse("breaker '%s': probes_max is not set", name);
    if (spec->probe_lost_ms < 0 || spec->probe_lost_ms > BREAKER_MS_MAX) {
        return refuse("breaker '%s': probe_lost_ms is %lld", name, (long long)spec->probe_lost_ms);
    }
    return 0;
}

static void rules_of(const weir_breaker_spec *spec, struct breaker_rules *ret_rules)
{
    *ret_rules = (struct breaker_rules){
        .window_calls = spec->window_calls,
        .window_ns = spec->window_ms * MS_NS,
        .calls_min = spec->calls_min,
        .failure_percent = spec->failure_percent,
        .slow_percent = spec->slow_percent,
        .slow_ns = spec->slow_ms * MS_NS,
        .open_ns = spec->open_ms * MS_NS,
        .probes_max = spec->probes_max,
        .probes_needed = spec->probes_needed > 0 ? spec->probes_needed : spec->probes_max,
        .lost_ns = (spec->probe_lost_ms > 0 ? spec->probe_lost_ms : spec->open_ms) * MS_NS,
    };
}

int weir_breaker_open_sized(weir_scope *scope, size_t spec_bytes, const weir_breaker_spec *given,
                            weir_breaker **ret_breaker)
{
    struct breaker_rules rules;
    weir_breaker_spec spec;
    weir_breaker *breaker;
    struct sync *sync;
    int r;

    if (!worker_self()) return refuse_no_task("weir_breaker_open");
    spec_copy(&spec, sizeof spec, given, spec_bytes);
    r = check_spec(&spec);
    if (r < 0) return r;
    r = sync_open(scope, &breaker_kind, sizeof *breaker, spec.name, "weir_breaker_open", &sync);
    if (r < 0) return r;
    breaker = container_of(sync, weir_breaker, sync);
    rules_of(&spec, &rules);
    breaker_init(&breaker->machine, &rules);
    breaker->is_failure = spec.is_failure;
    breaker->on_change = spec.on_change;
    breaker->keep_arg = spec.keep_arg;
    meter_enter(&breaker->metered, meter_get(&breaker_meter_kind, breaker->sync.object.name, NULL));
    *ret_breaker = sync->handle;
    return 0;
}

void weir_breaker_close(weir_breaker *take_breaker)
{
    if (take_breaker) sync_close(take_breaker, &breaker_kind, "weir_breaker_close");
}

/* ---- Asking, telling ---- */

/* What is told when the lock was let go. */
struct news {
    weir_breaker_fn on_change; /* NULL: nothing has changed, or nobody wants to know */
    void *keep_arg;
    weir_breaker_change change;
    char name[FLOW_NAME_BYTES];
};

/* The machine may have gone from `from` to another state. The lock is held. */
static inline void note(weir_breaker *breaker, enum breaker_state from, int64_t now_ns,
                        struct news *news)
{
    enum breaker_state to = breaker->machine.state;
    uint64_t number = 0;

    if (__builtin_expect(from == to, 1)) return;
    breaker->changes[to]++;
    if (!breaker->on_change) return;
    for (unsigned i = 0; i < BREAKER_STATES; i++) number += breaker->changes[i];
    flow_name(news->name, breaker->sync.object.name);
    news->on_change = breaker->on_change;
    news->keep_arg = breaker->keep_arg;
    news->change = (weir_breaker_change){.breaker = news->name,
                                         .from = (enum weir_breaker_state)from,
                                         .to = (enum weir_breaker_state)to,
                                         .number = number,
                                         .at_ns = now_ns};
}

static inline void tell_news(const struct news *news)
{
    if (__builtin_expect(news->on_change != NULL, 0)) {
        news->on_change(&news->change, news->keep_arg);
    }
}

static bool is_open(const weir_breaker *handle, const weir_breaker *breaker)
{
    return flow_names(handle, HANDLE_BREAKER, breaker);
}

/* The clock takes longer than all the rest: it is looked at only if it has to be, and if the
 * caller has not (0). Then `*now_ns` is what it says. */
static int ask(const weir_breaker *handle, weir_breaker *breaker, int64_t *now_ns,
               struct breaker_pass *ret_pass)
{
    struct news news;
    int r = WEIR_ECLOSED;

    news.on_change = NULL;
    sync_lock(&breaker->sync);
    if (is_open(handle, breaker)) {
        enum breaker_state from = breaker->machine.state;
        bool let_in;
        if (*now_ns == 0 && breaker_enter_wants_time(&breaker->machine)) *now_ns = weir_now_ns();
        sanitize_unseen_begin(); /* the lock orders it, see rt/sanitize.h */
        let_in = breaker_enter(&breaker->machine, *now_ns, ret_pass);
        sanitize_unseen_end();
        breaker->let_in += let_in;
        breaker->refused += !let_in;
        note(breaker, from, *now_ns, &news);
        r = let_in ? 0 : WEIR_EBREAKER;
    }
    sync_unlock(&breaker->sync);
    tell_news(&news);
    return r;
}

int breaker_ask(const weir_breaker *handle, int64_t now_ns, struct breaker_pass *ret_pass)
{
    weir_breaker *breaker = handle_object(handle, HANDLE_BREAKER);
    return breaker ? ask(handle, breaker, &now_ns, ret_pass) : WEIR_ECLOSED;
}

/* The lock is held. */
static void count(weir_breaker *breaker, enum breaker_report report, int64_t run_ns)
{
    const struct breaker_rules *rules = &breaker->machine.rules;

    switch (report) {
    case BREAKER_WENT_WELL: breaker->went_well++; break;
    case BREAKER_HAS_FAILED: breaker->failed++; break;
    case BREAKER_SAYS_NOTHING: breaker->silent++; return;
    }
    if (rules->slow_percent > 0 && run_ns >= rules->slow_ns) breaker->slow++;
}

/* What the result means. The lock is held, and let go while the program is asked: false, the
 * breaker was closed meanwhile. */
static bool judge(const weir_breaker *handle, weir_breaker *breaker, int result,
                  enum breaker_report *ret_report) LOCK_UNCHECKED
{
    weir_failure_fn is_failure = breaker->is_failure;
    void *keep_arg = breaker->keep_arg;
    bool failed = result < 0;

    *ret_report = BREAKER_SAYS_NOTHING;
    if (result == WEIR_ECANCELED) return true;
    if (__builtin_expect(is_failure != NULL, 0)) {
        sync_unlock(&breaker->sync);
        failed = is_failure(result, keep_arg);
        sync_lock(&breaker->sync);
    }
    *ret_report = failed ? BREAKER_HAS_FAILED : BREAKER_WENT_WELL;
    return is_open(handle, breaker);
}

/* The clock is looked at as in `ask`. */
static void tell(const weir_breaker *handle, weir_breaker *breaker, const struct breaker_pass *pass,
                 int result, int64_t began_ns, int64_t now_ns)
{
    enum breaker_report report;
    struct news news;

    news.on_change = NULL;
    sync_lock(&breaker->sync);
    if (is_open(handle, breaker) && judge(handle, breaker, result, &report)) {
        enum breaker_state from = breaker->machine.state;
        if (now_ns == 0 && breaker_leave_wants_time(&breaker->machine, report)) {
            now_ns = weir_now_ns();
        }
        count(breaker, report, now_ns - began_ns);
        sanitize_unseen_begin();
        breaker_leave(&breaker->machine, pass, report, now_ns - began_ns, now_ns);
        sanitize_unseen_end();
        note(breaker, from, now_ns, &news);
    }
    sync_unlock(&breaker->sync);
    tell_news(&news);
}

void breaker_tell(const weir_breaker *handle, const struct breaker_pass *pass, int result,
                  int64_t run_ns, int64_t now_ns)
{
    weir_breaker *breaker = handle_object(handle, HANDLE_BREAKER);
    if (breaker) tell(handle, breaker, pass, result, now_ns - run_ns, now_ns);
}

bool breaker_holds(const weir_breaker *handle, const struct breaker_pass *pass)
{
    weir_breaker *breaker = handle_object(handle, HANDLE_BREAKER);
    bool holds;

    if (!breaker) return false;
    sync_lock(&breaker->sync);
    holds = is_open(handle, breaker) && breaker_still(&breaker->machine, pass);
    sync_unlock(&breaker->sync);
    return holds;
}

/* ---- Calls of programs ---- */

static weir_breaker *look_up(const weir_breaker *handle, const char *call)
{
    weir_breaker *breaker = flow_look_up(handle, HANDLE_BREAKER, "breaker", call);
    flow_check_worker(call);
    return breaker;
}

int weir_breaker_enter(weir_breaker *handle, weir_breaker_pass *ret_pass)
{
    weir_breaker *breaker = look_up(handle, "weir_breaker_enter");
    int64_t now_ns = 0;
    struct breaker_pass pass;
    int r = ask(handle, breaker, &now_ns, &pass);

    if (r == 0) *ret_pass = (weir_breaker_pass){.began_ns = now_ns, .epoch = pass.epoch};
    return r;
}

void weir_breaker_leave(weir_breaker *handle, const weir_breaker_pass *pass, int result)
{
    weir_breaker *breaker = look_up(handle, "weir_breaker_leave");
    struct breaker_pass inner = {.epoch = pass->epoch};

    tell(handle, breaker, &inner, result, pass->began_ns, 0);
}

static void by_hand(const weir_breaker *handle, weir_breaker *breaker,
                    void (*move)(struct breaker *, int64_t))
{
    int64_t now_ns = weir_now_ns();
    struct news news;

    news.on_change = NULL;
    sync_lock(&breaker->sync);
    if (is_open(handle, breaker)) {
        enum breaker_state from = breaker->machine.state;
        sanitize_unseen_begin();
        move(&breaker->machine, now_ns);
        sanitize_unseen_end();
        note(breaker, from, now_ns, &news);
    }
    sync_unlock(&breaker->sync);
    tell_news(&news);
}

void weir_breaker_trip(weir_breaker *handle)
{
    by_hand(handle, look_up(handle, "weir_breaker_trip"), breaker_trip);
}

void weir_breaker_reset(weir_breaker *handle)
{
    by_hand(handle, look_up(handle, "weir_breaker_reset"), breaker_reset);
}

void weir_breaker_figures_of(weir_breaker *handle, weir_breaker_figures *ret_figures)
{
    weir_breaker *breaker = look_up(handle, "weir_breaker_figures_of");

    sync_lock(&breaker->sync);
    *ret_figures = (weir_breaker_figures){
        .state = (enum weir_breaker_state)breaker->machine.state,
        .let_in = breaker->let_in,
        .refused = breaker->refused,
        .went_well = breaker->went_well,
        .failed = breaker->failed,
        .silent = breaker->silent,
        .slow = breaker->slow,
        .opened = breaker->changes[BREAKER_OPEN],
        .half_opened = breaker->changes[BREAKER_HALF_OPEN],
        .closed = breaker->changes[BREAKER_CLOSED],
        .window_calls = breaker->machine.sums.calls,
        .window_failed = breaker->machine.sums.failed,
        .window_slow = breaker->machine.sums.slow,
    };
    sync_unlock(&breaker->sync);
}
