/* signals.c - drain on TERM/INT, dump on USR1, name the task that overflowed. */
#include "rt/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <weir/scope.h>

#include "rt/mem.h"
#include "rt/runtime.h"
#include "rt/sanitize.h"
#include "rt/scope.h"
#include "rt/signal_table.h"

enum { SIGNAL_STACK_BYTES = 64 * 1024 };

/* The one runtime that takes signals; a handler has no other way to find it. */
static ATOM(weir_runtime *) owner;
static ATOM(int) drain_count;
static ATOM(int) drain_handlers; /* that run at this moment, on any thread */

SANITIZE_HANDLER static void write_text(const char *text)
{
    size_t length = 0;

    while (text[length]) length++;
    if (sanitize_handler_write(STDERR_FILENO, text, length) < 0) return;
}

static void write_number(size_t number)
{
    char digits[24];
    size_t at = sizeof digits;
    digits[--at] = '\0';
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    write_text(&digits[at]);
}

SANITIZE_HANDLER static void on_drain(int signal)
{
    int saved_errno = errno;
    weir_runtime *runtime;

    if (atom_add(&drain_count, 1) > 0) {
        write_text("weir: second signal: ending at once\n");
        sanitize_handler_exit(128 + signal);
    }
    (void)atom_add(&drain_handlers, 1);
    runtime = atom_load_total(&owner);
    if (runtime) {
        atom_store(&runtime->drain, signal);
        runtime_wake_all(runtime);
    }
    (void)atom_sub(&drain_handlers, 1);
    errno = saved_errno;
}

SANITIZE_HANDLER static void on_dump(int signal)
{
    int saved_errno = errno;
    (void)signal;
    runtime_request_dump(STDERR_FILENO);
    errno = saved_errno;
}

static const int fault_signals[] = {SIGSEGV, SIGBUS};
static const int drain_signals[] = {SIGTERM, SIGINT};
static struct sigaction old_drain[2];
static struct sigaction old_dump;
static struct sigaction old_fault[2];

/* On the thread's signal stack. Prints without allocating, then lets the signal do
 * what it did before. */
static void on_fault(int signal, siginfo_t *info, void *context)
{
    struct worker *worker = worker_self();
    struct task *task = worker ? atom_load(&worker->current) : NULL;

    (void)context;
    if (task && task->stack &&
        stack_guard_contains(&worker->runtime->stacks, task->stack, info->si_addr)) {
        write_text("weir: task '");
        write_text(task->name);
        write_text("' in scope '");
        write_text(task->scope->name);
        write_text("' overflowed its stack of ");
        write_number(stack_class_bytes(&worker->runtime->stacks, task->size_class));
        write_text(" bytes (set stack_bytes in its spec or its scope's)\n");
    }
    (void)sigaction(signal, &old_fault[signal == SIGBUS ? 1 : 0], NULL);
    /* A fault happens again when we return; a signal that somebody sent does not. */
    if (info->si_code <= 0) (void)raise(signal);
}

static void take(int signal, void (*handler)(int), struct sigaction *ret_old)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART | SA_ONSTACK};
    (void)sigemptyset(&action.sa_mask);
    (void)sanitize_sigaction(signal, &action, ret_old);
}

/* Which signals each bit of enum weir_signals takes. */
static const struct {
    unsigned bit;
    const char *name;
    int signals[2];
} takes[] = {
    {WEIR_SIGNAL_DRAIN, "WEIR_SIGNAL_DRAIN", {SIGTERM, SIGINT}},
    {WEIR_SIGNAL_DUMP, "WEIR_SIGNAL_DUMP", {SIGUSR1}},
    {WEIR_SIGNAL_OVERFLOW, "WEIR_SIGNAL_OVERFLOW", {SIGSEGV, SIGBUS}},
};

static void release(unsigned signals)
{
    for (size_t i = 0; i < sizeof takes / sizeof takes[0]; i++) {
        for (int k = 0; k < 2 && (signals & takes[i].bit); k++) {
            if (takes[i].signals[k]) signal_release(takes[i].signals[k], takes[i].name);
        }
    }
}

static int reserve(unsigned signals, const char *who)
{
    int r = 0;

    for (size_t i = 0; i < sizeof takes / sizeof takes[0]; i++) {
        for (int k = 0; k < 2 && r == 0 && (signals & takes[i].bit); k++) {
            if (takes[i].signals[k]) r = signal_reserve(takes[i].signals[k], takes[i].name, who);
        }
    }
    if (r < 0) release(signals);
    return r;
}

int signals_install(weir_runtime *runtime)
{
    weir_runtime *nobody = NULL;
    int r;

    if (runtime->signals == 0) return 0;
    if (!atom_cas(&owner, &nobody, runtime)) {
        return refuse("runtime '%s': signals are taken by another runtime of this process",
                      runtime->root->name);
    }
    r = reserve(runtime->signals, runtime->root->name);
    if (r < 0) {
        atom_store_total(&owner, NULL);
        return r;
    }
    atom_store(&drain_count, 0);
    if (runtime->signals & WEIR_SIGNAL_DRAIN) {
        for (int i = 0; i < 2; i++) take(drain_signals[i], on_drain, &old_drain[i]);
    }
    if (runtime->signals & WEIR_SIGNAL_DUMP) take(SIGUSR1, on_dump, &old_dump);
    if (runtime->signals & WEIR_SIGNAL_OVERFLOW) {
        struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
        (void)sigemptyset(&action.sa_mask);
        for (int i = 0; i < 2; i++) (void)sigaction(fault_signals[i], &action, &old_fault[i]);
    }
    return 0;
}

static void restore(unsigned signals)
{
    if (signals & WEIR_SIGNAL_DRAIN) {
        for (int i = 0; i < 2; i++) (void)sanitize_sigaction(drain_signals[i], &old_drain[i], NULL);
    }
    if (signals & WEIR_SIGNAL_DUMP) (void)sanitize_sigaction(SIGUSR1, &old_dump, NULL);
    if (signals & WEIR_SIGNAL_OVERFLOW) {
        for (int i = 0; i < 2; i++) (void)sigaction(fault_signals[i], &old_fault[i], NULL);
    }
}

void signals_remove(weir_runtime *runtime)
{
    if (runtime->signals == 0 || atom_load(&owner) != runtime) return;
    restore(runtime->signals);
    release(runtime->signals);
    atom_store_total(&owner, NULL);
    /* A handler on another thread may have found it just before. */
    while (atom_load_total(&drain_handlers) > 0) runtime->kernel->thread_yield(runtime->kernel);
}

void signals_forget_in_child(void)
{
    weir_runtime *runtime = atom_load(&owner);

    atom_store(&drain_handlers, 0);
    if (!runtime) return;
    restore(runtime->signals);
    atom_store(&owner, NULL);
}

int signals_worker_prepare(struct worker *worker)
{
    bool watched = atom_load(&worker->runtime->watchdog) != NULL;

    if (!(worker->runtime->signals & WEIR_SIGNAL_OVERFLOW) && !watched) return 0;
    worker->signal_stack = mem_alloc(SIGNAL_STACK_BYTES);
    return worker->signal_stack ? 0 : -ENOMEM;
}

void signals_worker_unprepare(struct worker *worker)
{
    mem_free(worker->signal_stack);
    worker->signal_stack = NULL;
}

int signals_worker_begin(struct worker *worker)
{
    stack_t stack = {.ss_sp = worker->signal_stack, .ss_size = SIGNAL_STACK_BYTES};
    int r;

    if (!worker->signal_stack) return 0;
    if (sigaltstack(&stack, &worker->old_signal_stack) < 0) {
        r = -errno;
        signals_worker_unprepare(worker);
        return r;
    }
    if (!atom_load(&worker->runtime->watchdog)) return 0;
    /* Only with a stack of its own for the handler: a task's may be too small for it. */
    r = pthread_getcpuclockid(pthread_self(), &worker->thread_clock);
    if (r != 0) return -r;
    atom_store_release(&worker->thread_id, (int)gettid());
    return 0;
}

void signals_worker_end(struct worker *worker)
{
    atom_store_release(&worker->thread_id, 0);
    if (!worker->signal_stack) return;
    (void)sigaltstack(&worker->old_signal_stack, NULL);
    signals_worker_unprepare(worker);
}

/* The flag first: a signal that comes while they are looked at sets it again. */
static void look_at_watchers(weir_runtime *runtime)
{
    if (!atom_exchange(&runtime->signal_arrived, false)) return;
    lock_acquire(&runtime->signal_lock);
    list_for_each(node, &runtime->signal_watchers) {
        struct signal_watcher *watcher = container_of(node, struct signal_watcher, node);
        watcher->look(watcher);
    }
    lock_release(&runtime->signal_lock);
}

void signals_safe_point(struct worker *worker)
{
    weir_runtime *runtime = worker->runtime;
    int signal;

    if (__builtin_expect(atom_load(&runtime->signal_arrived), 0)) look_at_watchers(runtime);
    if (!atom_load(&runtime->drain)) return;
    signal = atom_exchange(&runtime->drain, 0);
    if (signal == 0) return;
    log_write(runtime, WEIR_LOG_INFO, NULL, "signal %d: stopping, %lld ms to drain", signal,
              (long long)runtime->drain_ms);
    weir_scope_stop(runtime->root, runtime->drain_ms);
}
