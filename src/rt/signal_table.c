/* signal_table.c - signals of the process: reserved, watched, counted. */
#include "rt/signal_table.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>

#include "base/atomic.h"
#include "rt/lock.h"
#include "rt/runtime.h"
#include "rt/sanitize.h"

typedef void (*handler_fn)(int signal);
typedef void (*info_handler_fn)(int signal, siginfo_t *info, void *context);

/* A row for each signal, by its number. The handler touches the atomics only: it may come
 * on another thread at any time, also when the last watcher is gone already. */
struct row {
    ATOM(uint64_t) count;
    ATOM(pid_t) sender;
    ATOM(handler_fn) call; /* what was there before and goes on being called, or NULL */
    ATOM(info_handler_fn) call_with_info; /* the same */
    const char *reserved;                 /* by what, or NULL */
    unsigned watchers;
    enum weir_signal_previous previous;
    struct sigaction old;
};

static struct lock table_lock = {PTHREAD_MUTEX_INITIALIZER};
static struct row table[SIGNALS_MAX + 1];

uint64_t signal_count(int signal)
{
    return atom_load_total(&table[signal].count);
}

pid_t signal_sender(int signal)
{
    return atom_load(&table[signal].sender);
}

void signal_name(int signal, char name[SIGNAL_NAME_BYTES])
{
    static const char *const names[] = {
        [SIGHUP] = "HUP",   [SIGINT] = "INT",       [SIGQUIT] = "QUIT", [SIGILL] = "ILL",
        [SIGTRAP] = "TRAP", [SIGABRT] = "ABRT",     [SIGBUS] = "BUS",   [SIGFPE] = "FPE",
        [SIGKILL] = "KILL", [SIGUSR1] = "USR1",     [SIGSEGV] = "SEGV", [SIGUSR2] = "USR2",
        [SIGPIPE] = "PIPE", [SIGALRM] = "ALRM",     [SIGTERM] = "TERM", [SIGCHLD] = "CHLD",
        [SIGCONT] = "CONT", [SIGSTOP] = "STOP",     [SIGTSTP] = "TSTP", [SIGTTIN] = "TTIN",
        [SIGTTOU] = "TTOU", [SIGURG] = "URG",       [SIGXCPU] = "XCPU", [SIGXFSZ] = "XFSZ",
        [SIGPROF] = "PROF", [SIGVTALRM] = "VTALRM", [SIGIO] = "IO",     [SIGWINCH] = "WINCH",
        [SIGPWR] = "PWR",   [SIGSYS] = "SYS",
    };
    bool known = signal > 0 && (size_t)signal < sizeof names / sizeof names[0] && names[signal];

    if (known) {
        (void)snprintf(name, SIGNAL_NAME_BYTES, "SIG%s", names[signal]);
    } else {
        (void)snprintf(name, SIGNAL_NAME_BYTES, "signal %d", signal);
    }
}

/* ---- The handler ---- */

static bool is_function(const struct sigaction *action)
{
    return (action->sa_flags & SA_SIGINFO) ||
           (action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN);
}

/* Only these name a process; in others the same bytes mean something else. */
SANITIZE_HANDLER static pid_t sender_of(int signal, const siginfo_t *info)
{
    bool from_process = info->si_code == SI_USER || info->si_code == SI_QUEUE ||
                        info->si_code == SI_TKILL || (signal == SIGCHLD && info->si_code > 0);
    return from_process ? info->si_pid : 0;
}

SANITIZE_HANDLER static void on_signal(int signal, siginfo_t *info, void *context)
{
    struct row *row = &table[signal];
    handler_fn call = atom_load_total(&row->call);
    info_handler_fn call_with_info = atom_load_total(&row->call_with_info);
    int saved_errno = errno;

    atom_store(&row->sender, sender_of(signal, info));
    (void)atom_add(&row->count, 1);
    runtime_signal_arrived();
    errno = saved_errno;
    if (call) call(signal);
    if (call_with_info) call_with_info(signal, info, context);
}

/* The row is complete before the handler is there. */
static void install(int signal, struct row *row)
{
    struct sigaction action = {.sa_sigaction = on_signal,
                               .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    bool goes_on = row->previous == WEIR_PREVIOUS_CALL && is_function(&row->old);
    bool with_info = row->old.sa_flags & SA_SIGINFO;

    atom_store_total(&row->call, goes_on && !with_info ? row->old.sa_handler : NULL);
    atom_store_total(&row->call_with_info, goes_on && with_info ? row->old.sa_sigaction : NULL);
    /* What becomes of children is not a matter of who is told about them. */
    if (signal == SIGCHLD) {
        action.sa_flags |= row->old.sa_flags & (SA_NOCLDSTOP | SA_NOCLDWAIT);
        if (!is_function(&row->old) && row->old.sa_handler == SIG_IGN) {
            action.sa_flags |= SA_NOCLDWAIT;
        }
    }
    (void)sigemptyset(&action.sa_mask);
    if (goes_on) action.sa_mask = row->old.sa_mask;
    (void)sanitize_sigaction(signal, &action, NULL);
}

static void restore(int signal, const struct row *row)
{
    struct sigaction now;

    if (sanitize_sigaction(signal, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) &&
        now.sa_sigaction == on_signal) {
        (void)sanitize_sigaction(signal, &row->old, NULL);
    }
}

/* ---- Reserving ---- */

/* A fault comes again when its handler returns, and a program that aborts must end. */
static bool is_fault(int signal)
{
    switch (signal) {
    case SIGSEGV:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGTRAP:
    case SIGSYS:
    case SIGABRT: return true;
    default: return false;
    }
}

/* In words for a sentence, or NULL. The lock is held. */
static const char *taken(const struct row *row)
{
    if (row->watchers > 0) return "watched by weir_signal_open";
    return row->reserved ? "taken by another member or runtime" : NULL;
}

int signal_reserve(int signal, const char *keep_what, const char *who)
{
    struct row *row = &table[signal];
    char name[SIGNAL_NAME_BYTES];
    const char *taken_by;

    lock_acquire(&table_lock);
    taken_by = taken(row);
    if (!taken_by) row->reserved = keep_what;
    lock_release(&table_lock);
    if (!taken_by) return 0;
    signal_name(signal, name);
    return refuse("runtime '%s': signals has %s, but %s is %s", who, keep_what, name, taken_by);
}

static bool cannot_be_caught(int signal)
{
    struct sigaction now;
    return signal == SIGKILL || signal == SIGSTOP || sanitize_sigaction(signal, NULL, &now) < 0;
}

int signal_reserve_free(int signal, const char *keep_what, const char *who)
{
    char name[SIGNAL_NAME_BYTES];
    struct row *row = &table[signal > 0 && signal <= SIGNALS_MAX ? signal : 0];
    const char *why = NULL;
    struct sigaction now;

    signal_name(signal, name);
    if (signal < 1 || signal > SIGNALS_MAX) {
        why = "which is no signal";
    } else if (is_fault(signal)) {
        why = "a fault, which ends the program";
    } else if (cannot_be_caught(signal)) {
        why = "which cannot be caught";
    }
    if (why) return refuse("runtime '%s': %s is %s, %s", who, keep_what, name, why);

    lock_acquire(&table_lock);
    why = taken(row);
    (void)sanitize_sigaction(signal, NULL, &now);
    if (!why && is_function(&now)) why = "handled by the program already";
    if (!why) row->reserved = keep_what;
    lock_release(&table_lock);
    return why ? refuse("runtime '%s': %s is %s, which is %s", who, keep_what, name, why) : 0;
}

void signal_release(int signal, const char *what)
{
    lock_acquire(&table_lock);
    if (table[signal].reserved == what) table[signal].reserved = NULL;
    lock_release(&table_lock);
}

/* ---- Watching ---- */

static int check_watchable(int signal, const char *who)
{
    char name[SIGNAL_NAME_BYTES];

    if (signal < 1 || signal > SIGNALS_MAX) {
        return refuse("signal watch '%s': signals has %d, which is no signal", who, signal);
    }
    signal_name(signal, name);
    if (is_fault(signal)) {
        return refuse("signal watch '%s': signals has %s, a fault, which cannot wait for a task",
                      who, name);
    }
    if (cannot_be_caught(signal)) {
        return refuse("signal watch '%s': signals has %s, which cannot be caught", who, name);
    }
    return 0;
}

/* The first watcher. The lock is held. */
static int take(int signal, struct row *row, enum weir_signal_previous previous, const char *who)
{
    char name[SIGNAL_NAME_BYTES];

    (void)sanitize_sigaction(signal, NULL, &row->old);
    if (previous == WEIR_PREVIOUS_UNSET && is_function(&row->old)) {
        signal_name(signal, name);
        return refuse("signal watch '%s': %s has a handler already and previous is not set", who,
                      name);
    }
    row->previous = previous;
    install(signal, row);
    return 0;
}

/* Another one: what becomes of the handler that was there was said by the first. */
static int join(int signal, const struct row *row, enum weir_signal_previous previous,
                const char *who)
{
    char name[SIGNAL_NAME_BYTES];

    if (!is_function(&row->old) || previous == row->previous) return 0;
    signal_name(signal, name);
    return refuse("signal watch '%s': previous is not what another watch of %s has said", who,
                  name);
}

int signal_watch(int signal, enum weir_signal_previous previous, const char *who,
                 uint64_t *ret_count)
{
    struct row *row;
    char name[SIGNAL_NAME_BYTES];
    int r = check_watchable(signal, who);

    if (r < 0) return r;
    row = &table[signal];
    lock_acquire(&table_lock);
    /* Before the handler is there: one that comes at once is counted after it. */
    *ret_count = signal_count(signal);
    if (row->reserved) {
        signal_name(signal, name);
        r = refuse("signal watch '%s': %s is taken by %s of a runtime of this process", who, name,
                   row->reserved);
    } else if (row->watchers == 0) {
        r = take(signal, row, previous, who);
    } else {
        r = join(signal, row, previous, who);
    }
    if (r == 0) row->watchers++;
    lock_release(&table_lock);
    return r;
}

void signal_unwatch(int signal)
{
    struct row *row = &table[signal];

    lock_acquire(&table_lock);
    if (--row->watchers == 0) restore(signal, row);
    lock_release(&table_lock);
}

void signal_table_forget_in_child(void)
{
    lock_init(&table_lock);
    for (int signal = 1; signal <= SIGNALS_MAX; signal++) {
        struct row *row = &table[signal];

        if (row->watchers > 0) restore(signal, row);
        row->watchers = 0;
        row->reserved = NULL;
    }
}
