/* runtime.c - opening, running and closing runtimes. */
#include "rt/runtime.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/error.h>
#include <weir/process.h>

#include "rt/checks.h"
#include "rt/cores.h"
#include "rt/handle.h"
#include "rt/log.h"
#include "rt/mem.h"
#include "rt/scope.h"
#include "rt/signal_table.h"
#include "rt/signals.h"

int refuse_no_task(const char *call)
{
    if (runtime_fork_generation() > 0) {
        return refuse_as(WEIR_ENOTASK,
                         "%s: this process was forked from one that runs weir; the runtime and its "
                         "tasks stayed in the parent",
                         call);
    }
    return refuse_as(WEIR_ENOTASK, "%s: called outside a task", call);
}

/* ---- Safe points ---- */

/* How often a simulated worker looks whether the others stand still: time does not pass. */
enum { LOOKS_SIMULATED_MAX = 64 };

static void stand_still(struct worker *worker)
{
    /* Whoever saw us standing still may rely on it until the pause it belongs to ends:
     * a new pause that began while we were about to leave is found here. */
    do {
        atom_store_total(&worker->standing_still, true);
        while (atom_load_total(&worker->runtime->pause))
            worker->kernel->thread_yield(worker->kernel);
        atom_store_total(&worker->standing_still, false);
    } while (atom_load_total(&worker->runtime->pause));
}

void worker_safe_point(struct worker *worker)
{
    weir_runtime *runtime = worker->runtime;

    if (__builtin_expect(atom_load(&runtime->pause), 0)) stand_still(worker);
    if (__builtin_expect(atom_load(&runtime->dump_fd) >= 0, 0)) {
        int fd = atom_exchange(&runtime->dump_fd, -1);
        if (fd >= 0) (void)dump_runtime(runtime, fd);
    }
    signals_safe_point(worker);
}

bool worker_stands_still(const struct worker *worker)
{
    return worker == worker_self() || atom_load_total(&worker->standing_still);
}

static unsigned still_count(weir_runtime *runtime)
{
    unsigned still = 0;

    for (unsigned i = 0; i < runtime->worker_count; i++) {
        struct worker *worker = &runtime->workers[i];
        if (worker != worker_self() && worker_stands_still(worker)) still++;
    }
    return still;
}

unsigned runtime_pause(weir_runtime *runtime, int64_t wait_ns)
{
    const struct kernel *kernel = runtime->kernel;
    struct worker *self = worker_self();
    int nobody = 0;
    unsigned still;
    int64_t until_ns;

    if (!runtime->shared) return 0;
    until_ns = kernel->thread_now_ns(kernel) + wait_ns;
    while (!atom_cas(&runtime->pause, &nobody, (int)self->index + 1)) {
        if (nobody == (int)self->index + 1) { /* a dump while we take one: by misuse */
            runtime->pause_depth++;
            return runtime->worker_count - 1;
        }
        stand_still(self); /* somebody else takes a dump */
        nobody = 0;
    }
    runtime_wake_all(runtime);
    for (int looks = 0;; looks++) {
        still = still_count(runtime);
        if (still == runtime->worker_count - 1) break;
        if (kernel->simulated ? looks >= LOOKS_SIMULATED_MAX
                              : kernel->thread_now_ns(kernel) >= until_ns) {
            break;
        }
        kernel->thread_yield(kernel);
    }
    return still;
}

void runtime_resume(weir_runtime *runtime)
{
    if (!runtime->shared) return;
    if (runtime->pause_depth > 0) {
        runtime->pause_depth--;
    } else {
        atom_store_total(&runtime->pause, 0);
    }
}

/* ---- Opening ---- */

static int check_config(const weir_config *config)
{
    if (config->workers < 0 || config->workers > WEIR_WORKERS_MAX) {
        return refuse("runtime: workers is %d, must be 1 to %d, or 0 for the cores that are usable",
                      config->workers, WEIR_WORKERS_MAX);
    }
    if (config->stack_bytes > WEIR_STACK_BYTES_MAX) {
        return refuse("runtime: stack_bytes is %zu, at most %d", config->stack_bytes,
                      WEIR_STACK_BYTES_MAX);
    }
    if (config->drain_ms < 0) return refuse("runtime: drain_ms is negative");
    if (config->signals &
        ~(unsigned)(WEIR_SIGNAL_DRAIN | WEIR_SIGNAL_DUMP | WEIR_SIGNAL_OVERFLOW)) {
        return refuse("runtime: signals has bits that are not of enum weir_signals");
    }
    if (config->blocking_threads_max < 0 || config->blocking_threads_max > BLOCKING_THREADS_LIMIT) {
        return refuse("runtime: blocking_threads_max is %d, must be 1 to %d, or 0 for %d",
                      config->blocking_threads_max, BLOCKING_THREADS_LIMIT,
                      WEIR_BLOCKING_THREADS_DEFAULT);
    }
    if (config->processes_max < 0) {
        return refuse("runtime: processes_max is %d, must be 1 or more, or 0 for %d",
                      config->processes_max, WEIR_PROCESSES_DEFAULT);
    }
    if ((unsigned)config->lock_checks > WEIR_CHECKS_OFF ||
        (unsigned)config->deadlock_checks > WEIR_CHECKS_OFF) {
        return refuse("runtime: lock_checks or deadlock_checks is not one of enum weir_checks");
    }
    if (!kernel_select(config->backend)) {
        return refuse("runtime: there is no backend '%s'", config->backend);
    }
    return tracer_check(config);
}

static void worker_init(struct worker *worker, weir_runtime *runtime, unsigned index)
{
    worker->runtime = runtime;
    worker->kernel = runtime->kernel;
    worker->shared = runtime->shared;
    worker->plain = !runtime->shared && !runtime->kernel->choose;
    worker->index = index;
    worker->next_id = index + 1;
    worker->look_tasks = WORKER_LOOK_TASKS;
    /* What a worker keeps for itself others cannot have: only where it does not matter. */
    worker->task_cache_max = TASK_CACHE_MAX;
    if (runtime->stacks.count_max < (size_t)WEIR_TASKS_EXACT_MAX * runtime->worker_count) {
        worker->task_cache_max = 0;
    }
    worker->task_move_count = worker->task_cache_max / 4 + 1;
    lock_init_spinning(&worker->fresh_lock, runtime->spin);
    worker->now_ns = runtime->kernel->now_ns(runtime->kernel);
    wheel_init(&worker->wheel, worker->now_ns);
}

static void worker_deinit(struct worker *worker)
{
    stack_cache_flush(&worker->runtime->stacks, &worker->stacks);
    worker_timers_free(worker);
    lock_deinit(&worker->fresh_lock);
}

static bool alloc_workers(weir_runtime *runtime)
{
    size_t alignment = _Alignof(struct worker);
    size_t bytes = runtime->worker_count * sizeof *runtime->workers;
    uintptr_t address;

    runtime->worker_memory = mem_alloc_zeroed(bytes + alignment - 1);
    if (!runtime->worker_memory) return false;
    address = (uintptr_t)runtime->worker_memory + alignment - 1;
    runtime->workers = (struct worker *)(address & ~(uintptr_t)(alignment - 1));
    return true;
}

static void close_queues(weir_runtime *runtime)
{
    for (unsigned i = 0; i < runtime->worker_count; i++) {
        struct worker *worker = &runtime->workers[i];
        if (worker->queue) runtime->kernel->queue_close(worker->queue);
        worker->queue = NULL;
    }
}

static int try_queues(weir_runtime *runtime)
{
    int r = 0;

    for (unsigned i = 0; i < runtime->worker_count && r == 0; i++) {
        r = runtime->kernel->queue_open(runtime->kernel, &runtime->workers[i].queue);
    }
    if (r < 0) close_queues(runtime);
    return r;
}

static void say_fallback(weir_runtime *runtime, const struct kernel *instead, int error)
{
    static ATOM(bool) said;

    if (atom_exchange(&said, true)) return;
    log_write(runtime, WEIR_LOG_INFO, NULL, "backend '%s' instead of '%s': %s (%s)", instead->name,
              runtime->kernel->name, kernel_why(runtime->kernel, error), weir_strerror(error));
}

/* The queues of all workers, by the best backend that works; or by the one that the
 * program has named, or not at all. */
static int open_queues(weir_runtime *runtime, const char *backend)
{
    const struct kernel *instead;
    int r;

    runtime->kernel = kernel_select(backend);
    r = try_queues(runtime);
    if (r == 0) return 0;
    instead = kernel_instead(runtime->kernel, r);
    if (!instead) return r;
    if (backend) {
        return refuse("runtime: backend '%s' does not work here: %s (%s)", backend,
                      kernel_why(runtime->kernel, r), weir_strerror(r));
    }
    say_fallback(runtime, instead, r);
    runtime->kernel = instead;
    return try_queues(runtime);
}

static void runtime_free(weir_runtime *runtime)
{
    close_queues(runtime);
    for (unsigned i = 0; i < runtime->worker_count; i++) worker_deinit(&runtime->workers[i]);
    metrics_free(runtime);
    checks_free(runtime);
    task_slabs_free(runtime);
    scope_slabs_free(runtime);
    pollable_slabs_free(runtime);
    stable_free_all(runtime);
    handles_end();
    stack_pool_deinit(&runtime->stacks);
    bell_deinit(&runtime->worker_ended);
    lock_deinit(&runtime->ended_lock);
    lock_deinit(&runtime->process_lock);
    lock_deinit(&runtime->memory_lock);
    lock_deinit(&runtime->signal_lock);
    mem_free(runtime->worker_memory);
    mem_free(runtime);
}

static void configure(weir_runtime *runtime, const weir_config *config)
{
    runtime->processes_max = config->processes_max ? config->processes_max : WEIR_PROCESSES_DEFAULT;
    runtime->drain_ms = config->drain_ms ? config->drain_ms : WEIR_DRAIN_MS_DEFAULT;
    runtime->signals = config->signals;
    runtime->metrics_off = config->metrics_off;
    runtime->lock_checks = checks_wanted(config->lock_checks);
    runtime->deadlock_checks = checks_wanted(config->deadlock_checks);
    runtime->log_level = config->log_level ? config->log_level : log_level_from_environment();
    runtime->log = config->log ? config->log : log_to_stderr;
    runtime->log_arg = config->log ? config->log_arg : NULL;
    runtime->default_class = (unsigned)stack_class_for(
        config->stack_bytes ? config->stack_bytes : (size_t)WEIR_STACK_BYTES_DEFAULT);
}

/* What the container grants. */
static void read_limits(weir_runtime *runtime)
{
    const struct cores_source *source = cores_current();

    runtime->cores = cores_usable(source);
    runtime->quota_milli = cores_quota_milli(source);
    runtime->memory_max_bytes = cores_memory_max_bytes(source);
}

/* Unless the program has said how many tasks there may be, a memory limit does: spawn
 * fails before the kernel kills. */
static void set_stack_budget(weir_runtime *runtime, const weir_config *config)
{
    int64_t limit_bytes = runtime->memory_max_bytes;

    if (config->max_tasks != 0 || limit_bytes < 0) return;
    stack_pool_set_budget(&runtime->stacks, (size_t)limit_bytes / WEIR_STACK_BUDGET_PART,
                          runtime->default_class);
}

static void init_executors(weir_runtime *runtime, const weir_config *config)
{
    int threads =
        config->blocking_threads_max ? config->blocking_threads_max : WEIR_BLOCKING_THREADS_DEFAULT;
    size_t queue = config->blocking_queue_max ? config->blocking_queue_max
                                              : (size_t)WEIR_BLOCKING_QUEUE_DEFAULT;
    blocking_init(&runtime->files, "files", runtime->kernel, threads, queue);
    blocking_init(&runtime->names, "names", runtime->kernel, threads, queue);
    /* Its queue needs no bound of its own: what waits in it counts as a process. */
    blocking_init(&runtime->spawns, "processes", runtime->kernel, threads,
                  (size_t)runtime->processes_max);
}

static int open_root(weir_runtime *runtime, const weir_config *config)
{
    weir_scope_spec spec = {
        .name = config->name && *config->name ? config->name : "root",
        .on_failure = WEIR_FAIL_FAST,
        .max_tasks = SIZE_MAX,
        .overflow = WEIR_WAIT,
    };
    int r = scope_open(&runtime->workers[0], NULL, "weir_run", &spec, &runtime->root);
    runtime->cancel_target = runtime->root;
    return r;
}

static int runtime_new(const weir_config *config, bool embedded, weir_runtime **ret_runtime)
{
    weir_runtime *runtime = mem_alloc_zeroed(sizeof *runtime);
    int r;

    if (!runtime) return -ENOMEM;
    runtime_watch_forks();
    handles_begin();
    runtime->embedded = embedded;
    read_limits(runtime);
    runtime->worker_count = (unsigned)(config->workers ? config->workers : runtime->cores);
    if (embedded) runtime->worker_count = 1;
    runtime->shared = runtime->worker_count > 1;
    /* What spins in vain is taken off a quota, and missing when there is work. */
    runtime->spin = runtime->worker_count <= (unsigned)runtime->cores &&
                    (runtime->quota_milli < 0 || runtime->quota_milli >= 1000);
    atom_store(&runtime->dump_fd, -1);
    lock_init_spinning(&runtime->memory_lock, runtime->spin);
    lock_init(&runtime->process_lock);
    lock_init(&runtime->signal_lock);
    list_init(&runtime->signal_watchers);
    configure(runtime, config);
    r = -ENOMEM;
    if (!alloc_workers(runtime)) goto fail_memory;
    r = open_queues(runtime, config->backend);
    if (r < 0) goto fail_memory;
    /* A run that is steered is the same on every machine, and is there to see such things. */
    if (runtime->kernel->choose) runtime->spin = true;
    r = stack_pool_init(&runtime->stacks, runtime->kernel, config->max_tasks,
                        runtime->worker_count);
    if (r < 0) goto fail_queues;
    set_stack_budget(runtime, config);
    lock_init(&runtime->ended_lock);
    bell_init(&runtime->worker_ended, runtime->kernel);
    for (unsigned i = 0; i < runtime->worker_count; i++) {
        worker_init(&runtime->workers[i], runtime, i);
    }
    init_executors(runtime, config);
    r = checks_open(runtime, config->on_check, config->check_arg);
    if (r < 0) goto fail_workers;
    r = open_root(runtime, config);
    if (r < 0) goto fail_workers;
    r = signals_install(runtime);
    if (r < 0) goto fail_workers;
    r = watchdog_open(runtime, config);
    if (r < 0) goto fail_signals;
    r = runtime_register(runtime);
    if (r < 0) goto fail_watchdog;
    r = tracer_open(runtime, config);
    if (r < 0) goto fail_registered;
    *ret_runtime = runtime;
    return 0;

fail_registered:
    runtime_unregister(runtime);
fail_watchdog:
    watchdog_close(runtime);
fail_signals:
    signals_remove(runtime);
fail_workers:
    if (runtime->root) scope_release(&runtime->workers[0], runtime->root);
    runtime_free(runtime);
    return r;
fail_queues:
    close_queues(runtime);
fail_memory:
    lock_deinit(&runtime->process_lock);
    handles_end();
    lock_deinit(&runtime->memory_lock);
    lock_deinit(&runtime->signal_lock);
    mem_free(runtime->worker_memory);
    mem_free(runtime);
    return r;
}

/* ---- Closing ---- */

static void report_orphans(weir_runtime *runtime, const struct blocking *executor, int stuck)
{
    log_write(runtime, WEIR_LOG_ERROR, NULL,
              "%d calls of the executor '%s' did not return within %lld ms; their threads and the "
              "runtime's memory are left behind",
              stuck, executor->name, (long long)runtime->drain_ms);
}

static void report_stuck_completions(weir_runtime *runtime, size_t stuck)
{
    log_write(runtime, WEIR_LOG_ERROR, NULL,
              "%zu file calls did not end within %lld ms, nor when they were cancelled; the "
              "runtime's memory is left behind",
              stuck, (long long)runtime->drain_ms);
}

/* What is under way in a worker's queue can only be waited for by its own thread. */
static void drain_completions(struct worker *worker)
{
    weir_runtime *runtime = worker->runtime;

    if (worker->completions > 0 && worker->index > 0) {
        log_write(runtime, WEIR_LOG_WARNING, NULL, "%zu orphaned calls are still running",
                  worker->completions);
    }
    worker->stuck_completions = blocking_drain(worker, runtime->drain_ms);
    /* What others have unwatched here is let go of before the runtime is gone: its
     * addresses can be bound again. */
    (void)worker->kernel->queue_wait(worker->queue, 0, worker->events, WORKER_EVENTS);
}

/* A worker leaves its loop without a last look at its inbox; what lies there may own
 * memory. Its thread is gone, so this one delivers in its place. */
static void deliver_last_mail(weir_runtime *runtime)
{
    struct worker *self = worker_current;
    for (unsigned i = 0; i < runtime->worker_count; i++) {
        sanitize_acquire(&runtime->workers[i]);
        worker_current = &runtime->workers[i];
        (void)mail_deliver_inbox(worker_current);
    }
    worker_current = self;
}

/* All tasks have ended and the other workers' threads are gone. */
static int runtime_end(weir_runtime *runtime)
{
    struct worker *worker = &runtime->workers[0];
    struct blocking *executors[] = {&runtime->files, &runtime->names, &runtime->spawns};
    size_t orphans = 0;
    int result = scope_result(runtime->root);
    size_t stuck_completions = 0;
    int stuck_total = 0;

    deliver_last_mail(runtime);
    for (size_t i = 0; i < sizeof executors / sizeof executors[0]; i++) {
        orphans += blocking_orphan_count(executors[i]);
    }
    if (orphans > 0) {
        log_write(runtime, WEIR_LOG_WARNING, NULL, "%zu orphaned calls are still running", orphans);
    }
    drain_completions(worker);
    for (unsigned i = 0; i < runtime->worker_count; i++) {
        stuck_completions += runtime->workers[i].stuck_completions;
    }
    for (size_t i = 0; i < sizeof executors / sizeof executors[0]; i++) {
        int stuck = blocking_deinit(executors[i], runtime->drain_ms);
        if (stuck > 0) report_orphans(runtime, executors[i], stuck);
        stuck_total += stuck;
    }
    if (stuck_completions > 0) report_stuck_completions(runtime, stuck_completions);
    stuck_total += tracer_close(runtime);
    scope_release(worker, runtime->root);
    signals_remove(runtime);
    signals_worker_end(worker);
    runtime_unregister(runtime);
    worker_current = NULL;
    /* A stuck thread still uses its executor, which lies in the runtime; the kernel still
     * uses the memory of a stuck call. */
    if (stuck_total == 0 && stuck_completions == 0) {
        runtime_free(runtime);
    } else {
        handles_end();
        mem_hold();
    }
    return result;
}

void runtime_root_settled(weir_runtime *runtime)
{
    if (runtime->embedded) return;
    atom_store_total(&runtime->ending, 1);
    for (unsigned i = 0; i < runtime->worker_count; i++) worker_wake(&runtime->workers[i]);
}

/* ---- weir_run ---- */

struct main_call {
    weir_runtime *runtime;
    weir_task_fn fn;
    void *arg;
};

static int run_main(void *arg)
{
    struct main_call *call = arg;
    int result = call->fn(call->arg);
    call->runtime->main_result = result;
    return result;
}

/* The runtime's memory stays until the thread is joined, or for good. */
static void say_ended(struct worker *worker)
{
    weir_runtime *runtime = worker->runtime;

    lock_acquire(&runtime->ended_lock);
    worker->ended = true;
    bell_ring(&runtime->worker_ended);
    lock_release(&runtime->ended_lock);
}

static void *worker_thread(void *arg)
{
    struct worker *worker = arg;
    int r;

    worker_current = worker;
    r = signals_worker_begin(worker);
    if (r < 0) {
        log_write(worker->runtime, WEIR_LOG_ERROR, NULL,
                  "worker %u has no stack or no clock for signals (%s): an overflow of a task's "
                  "stack may be a fault without its name, and the watchdog does not watch it",
                  worker->index, weir_strerror(r));
    }
    worker_loop(worker);
    drain_completions(worker);
    signals_worker_end(worker);
    worker_current = NULL;
    say_ended(worker);
    /* The kernel would not let a thread go whose calls do not end. */
    while (worker->stuck_completions > 0) (void)pause();
    return NULL;
}

static int start_workers(weir_runtime *runtime)
{
    for (unsigned i = 1; i < runtime->worker_count; i++) {
        struct worker *worker = &runtime->workers[i];
        int r = signals_worker_prepare(worker);

        if (r < 0) return r;
        r = runtime->kernel->thread_start(runtime->kernel, &worker->thread, worker_thread, worker);
        if (r < 0) {
            signals_worker_unprepare(worker);
            return r;
        }
        worker->thread_started = true;
    }
    return 0;
}

static void join_workers(weir_runtime *runtime)
{
    for (unsigned i = 1; i < runtime->worker_count; i++) {
        struct worker *worker = &runtime->workers[i];
        if (!worker->thread_started) continue;
        lock_acquire(&runtime->ended_lock);
        while (!worker->ended) {
            (void)bell_wait(&runtime->worker_ended, &runtime->ended_lock, BELL_FOR_EVER);
        }
        lock_release(&runtime->ended_lock);
        if (worker->stuck_completions == 0) {
            (void)runtime->kernel->thread_join(runtime->kernel, worker->thread);
        }
    }
}

int weir_run_sized(size_t config_bytes, const weir_config *given, weir_task_fn fn, void *keep_arg)
{
    weir_config config;
    weir_runtime *runtime;
    struct main_call call = {.fn = fn, .arg = keep_arg};
    int result;
    int r;

    spec_copy(&config, sizeof config, given, config_bytes);
    if (worker_self()) return refuse("weir_run: this thread already runs a weir runtime");
    if (!fn) return refuse("weir_run: fn is NULL");
    r = check_config(&config);
    if (r < 0) return r;
    r = runtime_new(&config, false, &runtime);
    if (r < 0) return r;
    call.runtime = runtime;
    worker_current = &runtime->workers[0];
    r = signals_worker_prepare(worker_current);
    if (r == 0) r = signals_worker_begin(worker_current);
    if (r < 0) goto fail;
    r = start_workers(runtime);
    if (r < 0) goto fail;
    r = watchdog_start(runtime);
    if (r < 0) goto fail;
    r = weir_task_spawn(runtime->root,
                        &(weir_task_spec){.fn = run_main,
                                          .arg = &call,
                                          .arg_bytes = sizeof call,
                                          .name = "main",
                                          .place = WEIR_PLACE_HERE},
                        NULL);
    if (r < 0) goto fail;
    worker_loop(&runtime->workers[0]);
    join_workers(runtime);
    watchdog_close(runtime);
    result = runtime->main_result;
    r = runtime_end(runtime);
    return r < 0 ? r : result;

fail:
    runtime_root_settled(runtime);
    join_workers(runtime);
    watchdog_close(runtime);
    (void)runtime_end(runtime);
    return r;
}

/* ---- Embedding ---- */

int weir_runtime_open_sized(size_t config_bytes, const weir_config *given,
                            weir_runtime **ret_runtime)
{
    weir_config config;
    weir_runtime *runtime;
    int r;

    spec_copy(&config, sizeof config, given, config_bytes);
    if (worker_self()) return refuse("weir_runtime_open: this thread already has a runtime");
    if (config.workers > 1) {
        return refuse("weir_runtime_open: workers is %d, an embedded runtime has one",
                      config.workers);
    }
    r = check_config(&config);
    if (r < 0) return r;
    r = runtime_new(&config, true, &runtime);
    if (r < 0) return r;
    worker_current = &runtime->workers[0];
    r = signals_worker_prepare(worker_current);
    if (r == 0) r = signals_worker_begin(worker_current);
    atom_store(&worker_current->rest, WORKER_SLEEPING);
    if (r == 0) r = watchdog_start(runtime);
    if (r < 0) {
        watchdog_close(runtime);
        (void)runtime_end(runtime);
        return r;
    }
    sanitize_loop_begin(&worker_current->sanitize);
    *ret_runtime = runtime;
    return 0;
}

int weir_runtime_fd(const weir_runtime *runtime)
{
    return runtime->kernel->queue_fd(runtime->workers[0].queue);
}

weir_scope *weir_runtime_scope(weir_runtime *runtime)
{
    return runtime->root;
}

static void check_embedder(const weir_runtime *runtime, const char *call)
{
    if (!runtime->embedded) misuse("%s: this runtime belongs to weir_run", call);
    if (worker_self() != &runtime->workers[0]) {
        misuse("%s: called on another thread than the one that opened the runtime", call);
    }
    if (atom_load(&worker_self()->current)) misuse("%s: called from inside a task", call);
    if (runtime->in_turn) misuse("%s: called from a callback of the same runtime", call);
}

int weir_turn(weir_runtime *runtime)
{
    struct worker *worker = &runtime->workers[0];
    int64_t at_ns;
    int r;

    check_embedder(runtime, "weir_turn");
    /* What the embedder does between turns is ordered like a callback. */
    sanitize_release(&worker->events);
    atom_store_total(&worker->rest, WORKER_AWAKE);
    runtime->in_turn = true;
    worker_turn(worker, false);
    runtime->in_turn = false;
    /* From here on a poster makes the descriptor readable; what came before that we
     * see ourselves. */
    atom_store_total(&worker->rest, WORKER_SLEEPING);
    at_ns = worker_has_work(worker) ? INT64_MIN : worker_timers_next_ns(worker);
    r = runtime->kernel->queue_arm(worker->queue, at_ns);
    if (r < 0) return r;
    sanitize_acquire(worker);
    return runtime->root->live > INT32_MAX ? INT32_MAX : (int)runtime->root->live;
}

int weir_runtime_close(weir_runtime *runtime)
{
    struct worker *worker;

    if (!runtime) return 0;
    check_embedder(runtime, "weir_runtime_close");
    worker = &runtime->workers[0];
    sanitize_release(&worker->events);
    atom_store_total(&worker->rest, WORKER_AWAKE);
    weir_scope_cancel(runtime->root, 0, "the runtime is being closed");
    scope_release_belongings(runtime->root);
    runtime->in_turn = true;
    while (runtime->root->live > 0 || !list_empty(&runtime->root->belongings)) {
        worker_turn(worker, true);
        scope_release_belongings(runtime->root);
    }
    watchdog_close(runtime);
    return runtime_end(runtime);
}

/* ---- Small calls ---- */

int weir_stop(int64_t grace_ms)
{
    struct worker *worker = worker_self();
    if (!worker) return refuse_no_task("weir_stop");
    weir_scope_stop(worker->runtime->root, grace_ms);
    return 0;
}

int weir_worker_index(void)
{
    struct worker *worker = worker_self();
    return worker ? (int)worker->index : -1;
}

int weir_worker_count(void)
{
    struct worker *worker = worker_self();
    return worker ? (int)worker->runtime->worker_count : 0;
}

int64_t weir_now_ns(void)
{
    struct worker *worker = worker_self();
    const struct kernel *kernel = worker ? worker->kernel : kernel_current();
    return kernel->now_ns(kernel);
}

void runtime_cancel_target(weir_scope *scope)
{
    worker_self()->runtime->cancel_target = scope;
}

#if defined(__clang__)
struct weir_role weir_no_park;
#endif
