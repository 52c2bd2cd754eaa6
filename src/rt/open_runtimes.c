/* open_runtimes.c - the runtimes of the process: found by signal handlers, forgotten by a child. */
#include <pthread.h>

#include "rt/handle.h"
#include "rt/report.h"
#include "rt/runtime.h"
#include "rt/sanitize.h"
#include "rt/signal_table.h"
#include "rt/signals.h"

enum { RUNTIMES_MAX = 64 };

/* The open runtimes of the process: for dumps asked for by a signal handler, which
 * may take no lock. */
static ATOM(weir_runtime *) runtimes[RUNTIMES_MAX];
static ATOM(int) runtime_count;
static ATOM(int) visits; /* of these, being made by handlers on any thread */
static ATOM(unsigned) fork_generation;

int runtime_live_count(void)
{
    return atom_load_acquire(&runtime_count);
}

int runtime_register(weir_runtime *runtime)
{
    for (int i = 0; i < RUNTIMES_MAX; i++) {
        weir_runtime *nobody = NULL;
        if (atom_cas(&runtimes[i], &nobody, runtime)) {
            (void)atom_add(&runtime_count, 1);
            return 0;
        }
    }
    return refuse("more than %d runtimes in one process", RUNTIMES_MAX);
}

void runtime_unregister(weir_runtime *runtime)
{
    for (int i = 0; i < RUNTIMES_MAX; i++) {
        if (atom_load(&runtimes[i]) == runtime) {
            atom_store_total(&runtimes[i], NULL);
            (void)atom_sub(&runtime_count, 1);
        }
    }
    /* A handler on another thread may have found it just before. */
    while (atom_load_total(&visits) > 0) runtime->kernel->thread_yield(runtime->kernel);
}

void runtimes_forget(void)
{
    for (int i = 0; i < RUNTIMES_MAX; i++) atom_store(&runtimes[i], NULL);
    atom_store(&runtime_count, 0);
}

bool runtime_is_open(const weir_runtime *runtime)
{
    for (int i = 0; i < RUNTIMES_MAX; i++) {
        if (atom_load(&runtimes[i]) == runtime) return true;
    }
    return false;
}

SANITIZE_HANDLER void runtime_wake_all(weir_runtime *runtime)
{
    for (unsigned i = 0; i < runtime->worker_count; i++) {
        struct worker *worker = &runtime->workers[i];
        worker->kernel->queue_wake(worker->queue);
    }
}

SANITIZE_HANDLER void runtime_request_dump(int fd)
{
    (void)atom_add(&visits, 1);
    for (int i = 0; i < RUNTIMES_MAX; i++) {
        weir_runtime *runtime = atom_load_total(&runtimes[i]);
        if (!runtime) continue;
        atom_store(&runtime->dump_fd, fd);
        runtime_wake_all(runtime);
    }
    (void)atom_sub(&visits, 1);
}

SANITIZE_HANDLER void runtime_signal_arrived(void)
{
    (void)atom_add(&visits, 1);
    for (int i = 0; i < RUNTIMES_MAX; i++) {
        weir_runtime *runtime = atom_load_total(&runtimes[i]);
        if (!runtime || atom_load_total(&runtime->signal_watches) == 0) continue;
        atom_store_total(&runtime->signal_arrived, true);
        runtime_wake_all(runtime);
    }
    (void)atom_sub(&visits, 1);
}

/* ---- After a fork: the child has none of the worker threads ---- */

static void forget_in_child(void)
{
    worker_current = NULL;
    task_current = NULL;
    atom_store(&fork_generation, atom_load(&fork_generation) + 1);
    atom_store(&visits, 0);
    signals_forget_in_child();
    watchdog_forget_in_child();
    signal_table_forget_in_child();
    handles_forget_in_child();
    for (int i = 0; i < RUNTIMES_MAX; i++) atom_store(&runtimes[i], NULL);
    atom_store(&runtime_count, 0);
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, forget_in_child);
}

void runtime_watch_forks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, watch_forks);
}

unsigned runtime_fork_generation(void)
{
    return atom_load(&fork_generation);
}
