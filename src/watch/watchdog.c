/* watchdog.c - the watchdog's thread: looking at workers, resting while they sleep. */
#include "watch/watchdog.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <weir/error.h>

#include "rt/mem.h"
#include "rt/sanitize.h"
#include "rt/scope.h"
#include "rt/signal_table.h"

#define NS_PER_MS INT64_C(1000000)
#define TICK_NS_MIN NS_PER_MS
#define TICK_NS_MAX (100 * NS_PER_MS)
/* Nothing depends on it: whoever runs a task wakes the watchdog first. */
#define REST_NS_MAX (60000 * NS_PER_MS)

static const char member[] = "watchdog_signal";

/* The one that has the handler of a signal is found by a forked child. */
static ATOM(struct watchdog *) installed[SIGNALS_MAX + 1];

SANITIZE_HANDLER struct capture *watchdog_capture(weir_runtime *runtime)
{
    struct watchdog *watchdog = atom_load_total(&runtime->watchdog);
    return watchdog ? &watchdog->capture : NULL;
}

/* ---- Looking at one worker ---- */

static void begin_slice(struct watchdog *watchdog, struct slice *slice, const struct work *work,
                        int64_t now_ns, int64_t cpu_ns)
{
    *slice = (struct slice){
        .work = *work,
        .seen = true,
        .seen_ns = now_ns,
        .seen_cpu_ns = cpu_ns,
        .report_ns = watchdog->threshold_ns,
    };
}

/* How long was it blocked? Known at looks that find it so. */
static void look_at_thread(struct watchdog *watchdog, struct worker *worker, struct slice *slice,
                           int64_t now_ns, int64_t cpu_ns)
{
    const struct kernel *kernel = watchdog->runtime->kernel;
    struct kernel_thread look;
    bool was_blocked = slice->blocked;

    slice->blocked = false;
    if (kernel->thread_look(kernel, atom_load(&worker->thread_id), &look) < 0) return;
    slice->blocked = look.blocked;
    if (!slice->looked) {
        slice->looked = true;
        slice->base_ns = now_ns;
        slice->base_cpu_ns = cpu_ns;
        slice->base_waited_ns = look.waited_ns;
    } else if (look.blocked && look.waited_ns >= 0 && slice->base_waited_ns >= 0) {
        int64_t blocked_ns = (now_ns - slice->base_ns) - (cpu_ns - slice->base_cpu_ns) -
                             (look.waited_ns - slice->base_waited_ns);
        if (blocked_ns > slice->blocked_ns) slice->blocked_ns = blocked_ns;
    } else if (look.blocked && was_blocked) {
        /* A kernel that does not say: blocked at both ends counts as all the time. */
        int64_t blocked_ns = (now_ns - slice->look_ns) - (cpu_ns - slice->look_cpu_ns);
        if (blocked_ns > 0) slice->blocked_ns += blocked_ns;
    }
    slice->look_ns = now_ns;
    slice->look_cpu_ns = cpu_ns;
}

static void look_at_worker(struct watchdog *watchdog, struct worker *worker)
{
    struct slice *slice = &watchdog->slices[worker->index];
    const struct kernel *kernel = watchdog->runtime->kernel;
    struct work work = work_of(worker);
    int64_t now_ns, cpu_ns, held_ns;

    if (!work.task || atom_load_acquire(&worker->thread_id) == 0) {
        slice->seen = false;
        return;
    }
    now_ns = kernel->now_ns(kernel);
    cpu_ns = kernel->thread_cpu_ns(kernel, worker->thread_clock);
    if (cpu_ns < 0) {
        slice->seen = false;
        return;
    }
    if (!slice->seen || !work_same(&slice->work, &work)) {
        begin_slice(watchdog, slice, &work, now_ns, cpu_ns);
        return;
    }
    if (!slice->named) slice->named = watchdog_name(watchdog, worker, slice);
    if (watchdog->clock == WEIR_WATCHDOG_WALL) {
        look_at_thread(watchdog, worker, slice, now_ns, cpu_ns);
    }
    held_ns = cpu_ns - slice->seen_cpu_ns + slice->blocked_ns;
    if (held_ns < slice->report_ns) return;
    watchdog_report(watchdog, worker, slice, held_ns, cpu_ns - slice->seen_cpu_ns);
}

/* ---- The thread ---- */

bool watchdog_pause(struct watchdog *watchdog, int64_t ns)
{
    int64_t until_ns = bell_after_ns(&watchdog->changed, ns);
    bool go_on;

    lock_acquire(&watchdog->lock);
    while (!watchdog->closing && !watchdog->woken) {
        if (bell_wait(&watchdog->changed, &watchdog->lock, until_ns) < 0) break;
    }
    watchdog->woken = false;
    go_on = !watchdog->closing;
    lock_release(&watchdog->lock);
    return go_on;
}

void watchdog_wake(weir_runtime *runtime)
{
    struct watchdog *watchdog = atom_load_total(&runtime->watchdog);

    if (!watchdog || !atom_exchange(&runtime->watchdog_rests, false)) return;
    lock_acquire(&watchdog->lock);
    watchdog->woken = true;
    bell_ring(&watchdog->changed);
    lock_release(&watchdog->lock);
}

static bool all_sleep(weir_runtime *runtime)
{
    for (unsigned i = 0; i < runtime->worker_count; i++) {
        if (atom_load_total(&runtime->workers[i].rest) != WORKER_SLEEPING) return false;
    }
    return true;
}

/* Turns of all workers: the same at two looks if none did anything between them. */
static uint64_t turns_of(weir_runtime *runtime)
{
    uint64_t turns = 0;
    for (unsigned i = 0; i < runtime->worker_count; i++) {
        turns += atom_load(&runtime->workers[i].turns);
    }
    return turns;
}

static void rest(struct watchdog *watchdog)
{
    weir_runtime *runtime = watchdog->runtime;

    /* Said first, looked at after that: see run() in rt/sched.c. */
    atom_store_total(&runtime->watchdog_rests, true);
    if (all_sleep(runtime)) (void)watchdog_pause(watchdog, REST_NS_MAX);
    atom_store_total(&runtime->watchdog_rests, false);
}

static void *watchdog_main(void *arg)
{
    struct watchdog *watchdog = arg;
    weir_runtime *runtime = watchdog->runtime;
    uint64_t turns = 0;

    do {
        uint64_t turns_before = turns;

        (void)atom_add(&watchdog->looks, 1);
        for (unsigned i = 0; i < runtime->worker_count; i++) {
            look_at_worker(watchdog, &runtime->workers[i]);
        }
        turns = turns_of(runtime);
        if (turns == turns_before && all_sleep(runtime)) rest(watchdog);
    } while (watchdog_pause(watchdog, watchdog->tick_ns));
    return NULL;
}

/* ---- Opening and closing ---- */

static int check(const weir_config *config, const char *who)
{
    if (config->watchdog_signal == 0) {
        const char *said = config->watchdog_ms      ? "watchdog_ms"
                           : config->watchdog_clock ? "watchdog_clock"
                           : config->on_watchdog    ? "on_watchdog"
                                                    : NULL;
        if (!said) return 0;
        return refuse("runtime '%s': %s is set but watchdog_signal is not: SIGURG would do", who,
                      said);
    }
    if (config->watchdog_ms < 0 || config->watchdog_ms > WEIR_WATCHDOG_MS_MAX) {
        return refuse("runtime '%s': watchdog_ms is %lld, must be 1 to %d, or 0 for %d", who,
                      (long long)config->watchdog_ms, WEIR_WATCHDOG_MS_MAX,
                      WEIR_WATCHDOG_MS_DEFAULT);
    }
    if ((unsigned)config->watchdog_clock > WEIR_WATCHDOG_CPU) {
        return refuse("runtime '%s': watchdog_clock is not one of enum weir_watchdog_clock", who);
    }
    return 0;
}

/* Workers' threads inherit the caller's mask. */
static int check_mask(int signal, const char *who)
{
    char name[SIGNAL_NAME_BYTES];
    sigset_t mask;

    if (pthread_sigmask(SIG_SETMASK, NULL, &mask) != 0 || sigismember(&mask, signal) != 1) return 0;
    signal_name(signal, name);
    return refuse("runtime '%s': %s is %s, which the calling thread has blocked", who, member,
                  name);
}

static struct watchdog *watchdog_new(weir_runtime *runtime, const weir_config *config)
{
    size_t bytes = sizeof(struct watchdog) + runtime->worker_count * sizeof(struct slice);
    struct watchdog *watchdog = mem_alloc_zeroed(bytes);

    if (!watchdog) return NULL;
    watchdog->runtime = runtime;
    watchdog->threshold_ns =
        (config->watchdog_ms ? config->watchdog_ms : WEIR_WATCHDOG_MS_DEFAULT) * NS_PER_MS;
    watchdog->tick_ns = watchdog->threshold_ns / 4;
    if (watchdog->tick_ns < TICK_NS_MIN) watchdog->tick_ns = TICK_NS_MIN;
    if (watchdog->tick_ns > TICK_NS_MAX) watchdog->tick_ns = TICK_NS_MAX;
    watchdog->clock = config->watchdog_clock ? config->watchdog_clock : WEIR_WATCHDOG_WALL;
    watchdog->report = config->on_watchdog;
    watchdog->report_arg = config->on_watchdog_arg;
    watchdog->signal = config->watchdog_signal;
    lock_init(&watchdog->lock);
    bell_init(&watchdog->changed, runtime->kernel);
    return watchdog;
}

static void watchdog_free(struct watchdog *watchdog)
{
    bell_deinit(&watchdog->changed);
    lock_deinit(&watchdog->lock);
    mem_free(watchdog);
}

int watchdog_open(weir_runtime *runtime, const weir_config *config)
{
    const char *who = runtime->root->name;
    const struct kernel *kernel = runtime->kernel;
    struct watchdog *watchdog;
    int64_t cpu_ns;
    int r = check(config, who);

    if (r < 0 || config->watchdog_signal == 0) return r;
    /* A run on another clock, or one that is steered, has no watchdog. */
    cpu_ns = kernel->thread_cpu_ns(kernel, CLOCK_THREAD_CPUTIME_ID);
    if (cpu_ns == -ENOSYS || kernel->choose) return 0;
    if (cpu_ns < 0) {
        return refuse("runtime '%s': there is no clock for threads (%s), so no watchdog", who,
                      weir_strerror((int)cpu_ns));
    }
    r = signal_reserve_free(config->watchdog_signal, member, who);
    if (r < 0) return r;
    r = check_mask(config->watchdog_signal, who);
    if (r < 0) goto fail_release;
    r = -ENOMEM;
    watchdog = watchdog_new(runtime, config);
    if (!watchdog) goto fail_release;
    r = capture_install(watchdog->signal, &watchdog->old_action);
    if (r < 0) goto fail_free;
    atom_store(&installed[watchdog->signal], watchdog);
    atom_store_total(&runtime->watchdog, watchdog);
    return 0;

fail_free:
    watchdog_free(watchdog);
fail_release:
    signal_release(config->watchdog_signal, member);
    return r;
}

int watchdog_start(weir_runtime *runtime)
{
    const struct kernel *kernel = runtime->kernel;
    struct watchdog *watchdog = atom_load(&runtime->watchdog);
    int r;

    if (!watchdog) return 0;
    r = kernel->thread_start(kernel, &watchdog->thread, watchdog_main, watchdog);
    watchdog->thread_started = r == 0;
    return r;
}

void watchdog_close(weir_runtime *runtime)
{
    struct watchdog *watchdog = atom_load(&runtime->watchdog);

    if (!watchdog) return;
    if (watchdog->thread_started) {
        lock_acquire(&watchdog->lock);
        watchdog->closing = true;
        bell_ring(&watchdog->changed);
        lock_release(&watchdog->lock);
        (void)runtime->kernel->thread_join(runtime->kernel, watchdog->thread);
    }
    /* No handler finds it any more; those that have found it are waited for. */
    atom_store_total(&runtime->watchdog, NULL);
    atom_store(&installed[watchdog->signal], NULL);
    capture_remove(watchdog->signal, &watchdog->old_action);
    signal_release(watchdog->signal, member);
    watchdog_free(watchdog);
}

void watchdog_forget_in_child(void)
{
    capture_forget_in_child();
    for (int signal = 1; signal <= SIGNALS_MAX; signal++) {
        struct watchdog *watchdog = atom_load(&installed[signal]);

        if (!watchdog) continue;
        atom_store(&installed[signal], NULL);
        capture_remove(signal, &watchdog->old_action);
    }
}
