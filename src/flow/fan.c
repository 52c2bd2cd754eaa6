/* fan.c - many inputs, at most so many at a time.
 *
 * There are as many tasks as may be in flight. Each takes the next input, until there is
 * none. With `on_done` they report over a channel to the caller, which receives inside the
 * tasks' scope; what they could not report since the scope was cancelled lies in `unsent`,
 * at most one for each, and is reported when the scope is closed. So the channel belongs to
 * a scope around that one.
 */
#include <errno.h>
#include <weir/chan.h>
#include <weir/fan.h>
#include <weir/task.h>

#include "base/atomic.h"
#include "base/planted.h"
#include "rt/mem.h"
#include "rt/runtime.h"

struct report {
    size_t index;
    int error;
};

struct fan {
    weir_fan_spec spec;
    weir_scope *scope;
    ATOM(size_t) next; /* input that is begun next */
    ATOM(size_t) finished;
    ATOM(size_t) failed;
    ATOM(size_t) winner;
    ATOM(size_t) first_failed;
    int first_error; /* written by the first that failed */
    size_t task_count;
    ATOM(size_t) at_work; /* tasks that have not left; the last one closes the channel */
    weir_tx *tx;
    weir_rx *rx;
    struct report *unsent; /* for each task; an index of WEIR_FAN_NOBODY: none */
};

struct fan_task {
    struct fan *fan;
    size_t number;
};

/* ---- The tasks ---- */

static bool is_first(ATOM(size_t) * first, size_t index)
{
    size_t nobody = WEIR_FAN_NOBODY;
    return atom_cas(first, &nobody, index);
}

static int call(struct fan *fan, size_t index)
{
    const weir_fan_spec *spec = &fan->spec;
    const void *input =
        spec->inputs ? (const unsigned char *)spec->inputs + index * spec->input_bytes : NULL;
    void *result =
        spec->results ? (unsigned char *)spec->results + index * spec->result_bytes : NULL;
    return spec->fn(index, input, result, spec->keep_arg);
}

/* Account for an input; returns what ends this task, or 0. */
static int settle(struct fan *fan, const struct fan_task *task, struct report done)
{
    bool failed = done.error < 0;
    bool first = is_first(failed ? &fan->first_failed : &fan->winner, done.index);

    if (fan->spec.errors) fan->spec.errors[done.index] = done.error;
    (void)atom_add(failed ? &fan->failed : &fan->finished, 1);
    if (failed && first) fan->first_error = done.error;
    /* Reported before the rest is cancelled, so that it is not kept from it by that. */
    if (fan->tx && weir_tx_send(fan->tx, &done) < 0) fan->unsent[task->number] = done;
    if (failed && fan->spec.policy == WEIR_FAN_FAIL_FAST) return done.error;
    if (!failed && first && fan->spec.policy == WEIR_FAN_FIRST_SUCCESS) {
        weir_scope_cancel(fan->scope, 0, "another input has succeeded");
    }
    return 0;
}

static size_t next_input(struct fan *fan)
{
    size_t next;

    if (!PLANTED(FAN_INPUT_TWICE)) return atom_add(&fan->next, 1);
    next = atom_load(&fan->next);
    atom_store(&fan->next, next + 1);
    return next;
}

static int take_inputs(struct fan *fan, const struct fan_task *task)
{
    for (;;) {
        struct report done;
        int r = weir_checkpoint();
        if (r < 0) return r;
        done.index = next_input(fan);
        if (done.index >= fan->spec.count) return 0;
        r = call(fan, done.index);
        done.error = r < 0 ? r : 0;
        r = settle(fan, task, done);
        if (r < 0) return r;
    }
}

/* Whether that was the last one. */
static bool leave(struct fan *fan)
{
    size_t left;

    if (!PLANTED(FAN_LAST_TORN)) return atom_sub(&fan->at_work, 1) == 1;
    left = atom_load(&fan->at_work) - 1;
    atom_store(&fan->at_work, left);
    return left == 0;
}

static int fan_task(void *arg)
{
    struct fan_task *task = arg;
    struct fan *fan = task->fan;
    int r = take_inputs(fan, task);

    if (leave(fan) && fan->tx) weir_tx_close(fan->tx);
    return r;
}

/* ---- The caller ---- */

static int check_spec(const weir_fan_spec *spec)
{
    const char *name = spec->name;

    if (!name || !*name) return refuse("fan-out: name is not set");
    if (spec->in_flight_max == 0) return refuse("fan-out '%s': in_flight_max is not set", name);
    if (spec->in_flight_max > WEIR_FAN_IN_FLIGHT_MAX) {
        return refuse("fan-out '%s': in_flight_max is %zu, at most %d", name, spec->in_flight_max,
                      WEIR_FAN_IN_FLIGHT_MAX);
    }
    if (spec->policy == WEIR_FAN_UNSET || spec->policy > WEIR_FAN_FIRST_SUCCESS) {
        return refuse("fan-out '%s': policy is not set", name);
    }
    if (!spec->fn) return refuse("fan-out '%s': fn is not set", name);
    if (spec->policy == WEIR_FAN_COLLECT && !spec->errors) {
        return refuse("fan-out '%s': errors is not set: WEIR_FAN_COLLECT keeps every error", name);
    }
    if (!spec->inputs != !spec->input_bytes) {
        return refuse("fan-out '%s': inputs and input_bytes are set together", name);
    }
    if (!spec->results != !spec->result_bytes) {
        return refuse("fan-out '%s': results and result_bytes are set together", name);
    }
    return 0;
}

static int report_one(const struct fan *fan, struct report done)
{
    const weir_fan_spec *spec = &fan->spec;
    void *result =
        spec->results ? (unsigned char *)spec->results + done.index * spec->result_bytes : NULL;
    return spec->on_done(done.index, done.error, result, spec->keep_arg);
}

/* Until all tasks have left, or the scope is cancelled. Returns what on_done has returned if
 * that ends it. */
static int report_while_at_work(struct fan *fan)
{
    struct report done;

    while (weir_rx_recv(fan->rx, &done) == 0) {
        int r = report_one(fan, done);
        if (r < 0) {
            weir_scope_cancel(fan->scope, 0, "on_done has returned an error");
            return r;
        }
    }
    return 0;
}

/* All tasks have ended. */
static int report_rest(struct fan *fan)
{
    struct report done;

    while (weir_rx_try_recv(fan->rx, &done) == 1) {
        int r = report_one(fan, done);
        if (r < 0) return r;
    }
    for (size_t i = 0; i < fan->task_count; i++) {
        int r = fan->unsent[i].index == WEIR_FAN_NOBODY ? 0 : report_one(fan, fan->unsent[i]);
        if (r < 0) return r;
    }
    return 0;
}

/* With one task at least the work gets done, if with fewer at a time. */
static int spawn_tasks(struct fan *fan, size_t wanted)
{
    int r = 0;

    atom_store(&fan->at_work, wanted);
    for (size_t i = 0; i < wanted; i++) {
        struct fan_task task = {fan, i};
        r = weir_spawn_named(fan->scope, fan->spec.name, fan_task, &task, sizeof task);
        if (r < 0) break;
        fan->task_count++;
    }
    /* Those that were not to be had have left. */
    if (fan->task_count < wanted &&
        atom_sub(&fan->at_work, wanted - fan->task_count) == wanted - fan->task_count && fan->tx) {
        weir_tx_close(fan->tx);
    }
    return fan->task_count > 0 ? 0 : r;
}

/* Returns what the tasks' scope has returned; `ret_told` is what on_done has. */
static int run_tasks(struct fan *fan, size_t wanted, int *ret_told)
{
    weir_scope_spec scope_spec = {
        .name = fan->spec.name,
        .on_failure = fan->spec.policy == WEIR_FAN_FAIL_FAST ? WEIR_FAIL_FAST : WEIR_COLLECT,
        .max_tasks = wanted,
        .overflow = WEIR_REJECT,
        .place = fan->spec.place,
        .stack_bytes = fan->spec.stack_bytes,
    };
    int r = weir_scope_open(&scope_spec, &fan->scope);
    int closed;

    if (r < 0) return r;
    r = spawn_tasks(fan, wanted);
    if (r == 0 && fan->tx) *ret_told = report_while_at_work(fan);
    closed = weir_scope_close(fan->scope);
    return r < 0 ? r : closed;
}

/* With a channel around the tasks' scope. */
static int run_reporting(struct fan *fan, size_t wanted, int *ret_told)
{
    weir_chan_spec chan_spec = {.name = "fan-out",
                                .capacity = wanted,
                                .overflow = WEIR_WAIT,
                                .on_close = WEIR_DRAIN,
                                .item_bytes = sizeof(struct report)};
    weir_scope_spec scope_spec = {
        .name = "fan-out", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1, .overflow = WEIR_REJECT};
    weir_scope *scope;
    int r, closed;

    fan->unsent = mem_alloc(wanted * sizeof *fan->unsent);
    if (!fan->unsent) return -ENOMEM;
    for (size_t i = 0; i < wanted; i++) fan->unsent[i].index = WEIR_FAN_NOBODY;
    r = weir_scope_open(&scope_spec, &scope);
    if (r < 0) goto fail_free;
    r = weir_chan_open_sized(scope, sizeof chan_spec, &chan_spec, 0, &fan->tx, &fan->rx);
    if (r == 0) {
        r = run_tasks(fan, wanted, ret_told);
        if (*ret_told == 0) *ret_told = report_rest(fan);
    }
    closed = weir_scope_close(scope);
    if (r == 0) r = closed;
fail_free:
    mem_free(fan->unsent);
    return r;
}

static int run(struct fan *fan)
{
    size_t wanted =
        fan->spec.count < fan->spec.in_flight_max ? fan->spec.count : fan->spec.in_flight_max;
    bool won;
    int told = 0, r;

    r = fan->spec.on_done ? run_reporting(fan, wanted, &told) : run_tasks(fan, wanted, &told);
    if (told < 0) return told;
    won = fan->spec.policy == WEIR_FAN_FIRST_SUCCESS && atom_load(&fan->winner) != WEIR_FAN_NOBODY;
    if (won) return 0;
    if (atom_load(&fan->finished) == fan->spec.count) return 0;
    return r < 0 ? r : fan->first_error;
}

int weir_fan_out_sized(size_t spec_bytes, const weir_fan_spec *given, weir_fan_tally *ret_tally)
{
    struct fan fan = {.tx = NULL};
    struct task *self = task_self();
    int r;

    spec_copy(&fan.spec, sizeof fan.spec, given, spec_bytes);
    atom_store(&fan.winner, WEIR_FAN_NOBODY);
    atom_store(&fan.first_failed, WEIR_FAN_NOBODY);
    if (fan.spec.errors) {
        for (size_t i = 0; i < fan.spec.count; i++) fan.spec.errors[i] = WEIR_FAN_NOT_STARTED;
    }
    r = self ? check_spec(&fan.spec) : refuse_no_task("weir_fan_out");
    if (r == 0 && self) r = task_enter(self, ENTER_PLAIN);
    if (r == 0 && fan.spec.count > 0) r = run(&fan);
    if (ret_tally) {
        size_t finished = atom_load(&fan.finished), failed = atom_load(&fan.failed);
        *ret_tally = (weir_fan_tally){
            .finished = finished,
            .failed = failed,
            .not_started = fan.spec.count - finished - failed,
            .winner = atom_load(&fan.winner),
            .first_failed = atom_load(&fan.first_failed),
            .in_flight = fan.task_count,
        };
    }
    return r;
}
