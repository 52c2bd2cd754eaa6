/* explore.c - a simulation from its spec to its result. */
#include "sim/explore.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <weir/error.h>

#include "rt/mem.h"
#include "rt/runtime.h"
#include "sim/sim.h"
#include "sim/strategy.h"

/* ---- The spec ---- */

static bool any_fault(const weir_sim_faults *faults)
{
    return faults->short_io || faults->late || faults->reset || faults->refuse ||
           faults->datagram_loss || faults->datagram_twice || faults->datagram_order ||
           faults->disk_error || faults->disk_full || faults->sync_error || faults->no_memory ||
           faults->cancel || faults->kill;
}

static int check_strategies(const weir_sim_spec *spec)
{
    unsigned all = WEIR_SIM_RANDOM | WEIR_SIM_PCT | WEIR_SIM_EXHAUSTIVE;

    if (spec->strategies & ~all) {
        return refuse("simulation '%s': strategies has unknown bits", spec->name);
    }
    if ((spec->strategies & WEIR_SIM_EXHAUSTIVE) && spec->strategies != WEIR_SIM_EXHAUSTIVE) {
        return refuse("simulation '%s': exhaustive search goes with no other strategy", spec->name);
    }
    if (spec->depth != 0 && (spec->depth < 2 || spec->depth > WEIR_SIM_DEPTH_MAX)) {
        return refuse("simulation '%s': depth is 2 to %d, not %d", spec->name, WEIR_SIM_DEPTH_MAX,
                      spec->depth);
    }
    if (spec->departures_max < 0) {
        return refuse("simulation '%s': departures_max is negative", spec->name);
    }
    if (!(spec->strategies & WEIR_SIM_EXHAUSTIVE)) {
        if (spec->departures_max == 0) return 0;
        return refuse("simulation '%s': departures_max is for exhaustive search", spec->name);
    }
    if (any_fault(&spec->faults)) {
        return refuse("simulation '%s': exhaustive search makes no faults", spec->name);
    }
    return 0;
}

/* They are counted in ns; there is room to add some. */
static bool too_long(int64_t ms)
{
    return ms > INT64_MAX / 1000000 / 4;
}

static int check_invariants(const weir_sim_spec *spec)
{
    for (int i = 0; i < WEIR_SIM_INVARIANTS_MAX && spec->invariants[i].name; i++) {
        const weir_sim_invariant *invariant = &spec->invariants[i];

        if (!invariant->holds) {
            return refuse("simulation '%s': invariant '%s' has no function", spec->name,
                          invariant->name);
        }
        if (invariant->within_ms < 0 || too_long(invariant->within_ms)) {
            return refuse("simulation '%s': within_ms of invariant '%s' is %s", spec->name,
                          invariant->name, invariant->within_ms < 0 ? "negative" : "too large");
        }
    }
    return 0;
}

/* A run takes the process's kernel and memory from whoever else has them. */
static int check_process(const weir_sim_spec *spec)
{
    if (sim_now_running()) {
        return refuse("simulation '%s': it begins inside of a simulated run", spec->name);
    }
    if (worker_self()) {
        return refuse("simulation '%s': it begins outside of a runtime", spec->name);
    }
    if (runtime_live_count() > 0) {
        return refuse("simulation '%s': this process has a runtime that is open", spec->name);
    }
    if (sim_process_spoilt()) {
        return refuse("simulation '%s': a run that was made in this process has failed, and "
                      "has left its memory behind",
                      spec->name);
    }
    return 0;
}

static int check_spec(const weir_sim_spec *spec, weir_task_fn fn)
{
    int r;

    if (!spec->name || !spec->name[0]) return refuse("simulation: name is not set");
    if (!fn) return refuse("simulation '%s': there is no program", spec->name);
    if (spec->runs_max == 0 && spec->seconds_max == 0) {
        return refuse("simulation '%s': neither runs_max nor seconds_max is set", spec->name);
    }
    if (spec->seconds_max < 0 || spec->run_ms_max < 0 || spec->faults.late_ms_max < 0) {
        return refuse("simulation '%s': %s is negative", spec->name,
                      spec->seconds_max < 0  ? "seconds_max"
                      : spec->run_ms_max < 0 ? "run_ms_max"
                                             : "faults.late_ms_max");
    }
    if (too_long(spec->run_ms_max) || too_long(spec->faults.late_ms_max)) {
        return refuse("simulation '%s': %s is too large", spec->name,
                      too_long(spec->run_ms_max) ? "run_ms_max" : "faults.late_ms_max");
    }
    r = check_invariants(spec);
    if (r == 0) r = check_process(spec);
    if (r == 0) r = check_strategies(spec);
    return r;
}

static void fill_in(weir_sim_spec *spec)
{
    if (spec->strategies == 0) spec->strategies = WEIR_SIM_RANDOM | WEIR_SIM_PCT;
    if (spec->depth == 0) spec->depth = WEIR_SIM_DEPTH_DEFAULT;
    if (spec->run_ms_max == 0) spec->run_ms_max = WEIR_SIM_RUN_MS_DEFAULT;
    if (spec->steps_max == 0) spec->steps_max = WEIR_SIM_STEPS_DEFAULT;
    if (spec->faults.late_ms_max == 0) spec->faults.late_ms_max = 100;
}

/* ---- The result ---- */

/* "no step ..., in spin <- main" */
static void say_failure(const struct explore_found *found, char failure[256])
{
    const char *sentence = found->end.failure;

    if (!found->not_again && !found->again) {
        (void)snprintf(failure, 256, "failed once, and not when it was made again: %.200s",
                       sentence);
    } else if (found->places[0]) {
        (void)snprintf(failure, 256, "%.120s, in %.120s", sentence, found->places);
    } else {
        (void)snprintf(failure, 256, "%s", sentence);
    }
}

static void fill_result(const struct explorer *explorer, weir_sim_result *ret_result)
{
    const struct explore_found *found = explorer->found;
    const struct explore_shared *counts = explorer->shared; /* of the exploring child */

    memset(ret_result, 0, sizeof *ret_result);
    ret_result->runs = counts->runs + (found->end.failed ? 1 : 0);
    ret_result->distinct = counts->distinct;
    ret_result->repeated = counts->repeated;
    ret_result->steps = counts->steps;
    ret_result->seconds = (double)(explore_now_ns() - explorer->begun_ns) / 1e9;
    ret_result->complete = counts->complete;
    if (!found->end.failed) return;
    say_failure(found, ret_result->failure);
    memcpy(ret_result->replay, found->replay, sizeof ret_result->replay);
    ret_result->shortened_from = found->departures_before;
    ret_result->shortened_to = found->departures;
}

/* ---- Exploring ---- */

/* What names the failed run, before the shared memory is used for others. */
static void take_found(struct explorer *explorer)
{
    const struct explore_shared *shared = explorer->shared;
    struct explore_found *found = explorer->found;
    uint64_t departures = shared->trace.departures;

    found->run = shared->runs + 1;
    found->strategy = shared->strategy;
    found->seed = shared->seed;
    memcpy(found->words, shared->words, sizeof found->words);
    memcpy(found->places, shared->places, sizeof found->places);
    found->not_again = shared->not_again;
    found->departures_before = departures;
    found->path_whole = departures <= TRACE_DEPARTURES_MAX;
    found->departures = found->path_whole ? (size_t)departures : TRACE_DEPARTURES_MAX;
    memcpy(found->path, shared->trace.path, found->departures * sizeof found->path[0]);
}

/* Runs until one fails; then that one, shorter. 0, WEIR_EFOUND, -errno. */
static int explore_and_shorten(struct explorer *explorer)
{
    const weir_sim_spec *spec = explorer->setup->spec;
    struct explore_found *found = explorer->found;
    int r;

    r = explore_process(
        explorer,
        &(struct explore_process){.body = explore_child, .no_step_ms = EXPLORE_NO_STEP_MS},
        &found->end);
    if (r < 0) return r;
    explore_show_progress(explorer, true);
    if (!found->end.failed) {
        if (spec->ret_result) fill_result(explorer, spec->ret_result);
        return 0;
    }
    take_found(explorer);
    explorer->shared->steps += explorer->shared->trace.choices;
    explorer->progress = false;
    r = explore_shorten(explorer);
    if (r < 0) return r;
    if (!spec->quiet) explore_report(explorer);
    if (spec->ret_result) fill_result(explorer, spec->ret_result);
    return WEIR_EFOUND;
}

static int explore_forked(const struct sim_setup *setup, explore_run run)
{
    const weir_sim_spec *spec = setup->spec;
    struct explorer explorer = {.setup = setup, .run = run, .begun_ns = explore_now_ns()};
    int r;

    explorer.progress = !spec->quiet && (isatty(STDERR_FILENO) || getenv("WEIR_SIM_PROGRESS"));
    explorer.found = mem_alloc_zeroed(sizeof *explorer.found);
    if (!explorer.found) return -ENOMEM;
    explorer.shared = mmap(NULL, sizeof *explorer.shared, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (explorer.shared == MAP_FAILED) {
        r = -ENOMEM;
        goto free_found;
    }
    r = strategy_new(spec, &explorer.strategy);
    if (r < 0) goto unmap;
    r = explore_and_shorten(&explorer);

    strategy_free(explorer.strategy);
unmap:
    (void)munmap(explorer.shared, sizeof *explorer.shared);
free_found:
    mem_free(explorer.found);
    return r;
}

/* ---- One run, in this process ---- */

enum { WORDS_BYTES_MAX = 65536 };

/* The words of WEIR_SIM if they are for the simulation of that name: a copy; or NULL with 0 in
 * *ret_error: there are none. */
static char *replay_words(const char *name, int *ret_error)
{
    const char *environment = getenv("WEIR_SIM");
    const char *at = environment ? strchr(environment, '@') : NULL;
    size_t length;
    char *words;

    *ret_error = 0;
    if (!environment || !environment[0]) return NULL;
    if (at && strcmp(at + 1, name) != 0) return NULL;
    length = at ? (size_t)(at - environment) : strlen(environment);
    if (length > WORDS_BYTES_MAX) {
        *ret_error = refuse("WEIR_SIM is longer than %d bytes", WORDS_BYTES_MAX);
        return NULL;
    }
    words = mem_alloc(length + 1);
    if (!words) {
        *ret_error = -ENOMEM;
        return NULL;
    }
    memcpy(words, environment, length);
    words[length] = '\0';
    return words;
}

static int replay_here(const struct sim_setup *setup, explore_run run, const char *words)
{
    weir_sim_result *result = setup->spec->ret_result;
    struct run_outcome outcome = {.failed = false};
    int64_t begun_ns = explore_now_ns();
    struct strategy *strategy = NULL;
    struct trace *trace = mem_alloc_zeroed(sizeof *trace);
    int r;

    if (!trace) return -ENOMEM;
    r = strategy_parse(words, &strategy);
    if (r < 0) goto free_trace;
    trace->detailed = true;
    trace_clear(trace);
    (void)strategy_begin(strategy);
    run(setup, strategy, trace, STDERR_FILENO, &outcome);
    if (outcome.failed) explore_report_here(setup, words, outcome.failure, trace);
    if (result) {
        memset(result, 0, sizeof *result);
        result->runs = result->distinct = 1;
        result->steps = trace->choices;
        result->seconds = (double)(explore_now_ns() - begun_ns) / 1e9;
        if (outcome.failed) {
            memcpy(result->failure, outcome.failure, sizeof result->failure);
            (void)snprintf(result->replay, sizeof result->replay, "%s", words);
            result->shortened_from = result->shortened_to = trace->departures;
        }
    }
    r = outcome.failed ? WEIR_EFOUND : 0;
    strategy_free(strategy);
free_trace:
    mem_free(trace);
    return r;
}

int explore(size_t spec_bytes, const weir_sim_spec *spec, weir_task_fn fn, void *keep_arg,
            explore_run run)
{
    weir_sim_spec complete;
    struct sim_setup setup = {.spec = &complete, .fn = fn, .arg = keep_arg};
    char *words;
    int r;

    spec_copy(&complete, sizeof complete, spec, spec_bytes);
    r = check_spec(&complete, fn);
    if (r < 0) return r;
    fill_in(&complete);
    words = replay_words(complete.name, &r);
    if (r < 0) return r;
    r = words ? replay_here(&setup, run, words) : explore_forked(&setup, run);
    mem_free(words);
    return r;
}

int weir_sim_run_sized(size_t spec_bytes, const weir_sim_spec *spec, weir_task_fn fn,
                       void *keep_arg)
{
    return explore(spec_bytes, spec, fn, keep_arg, sim_run_once);
}
