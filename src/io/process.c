/* process.c - child processes: watched, ended, reaped. */
#include "io/process.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "rt/mem.h"
#include "rt/signal_table.h"

enum {
    LOOK_AGAIN_MS = 10,   /* when its end cannot be waited for, or could not be read */
    KILL_AGAIN_MS = 1000, /* when SIGKILL has not ended it */
};

/* A task that waits for the end; on its stack. */
struct process_wait {
    struct list node;
    struct task *task;
    bool waiting; /* it is in the list */
    struct process_result result;
};

/* Row r, bit s: a process may go from state r to state s. */
static const uint8_t process_moves[PROCESS_STATES] = {
    [PROCESS_STARTING] = 1 << PROCESS_RUNNING | 1 << PROCESS_ENDED,
    [PROCESS_RUNNING] = 1 << PROCESS_ENDING | 1 << PROCESS_KILLED | 1 << PROCESS_ENDED,
    [PROCESS_ENDING] = 1 << PROCESS_KILLED | 1 << PROCESS_ENDED,
    [PROCESS_KILLED] = 1 << PROCESS_KILLED | 1 << PROCESS_ENDED,
    [PROCESS_ENDED] = 0,
};

void process_set_state(weir_process *process, enum process_state state)
{
    assert(process_moves[process->state] & (1u << state));
    process->state = state;
    process->since_ns = process->belonging.worker->now_ns;
}

static bool is_alive(const weir_process *process)
{
    return process->state != PROCESS_STARTING && process->state != PROCESS_ENDED;
}

/* ---- How it ended, in words and as an error ---- */

void process_describe_end(const struct process_result *result, char *text, size_t bytes)
{
    const weir_process_status *status = &result->status;
    char name[SIGNAL_NAME_BYTES];

    if (result->lost) {
        (void)snprintf(text, bytes, "an end that somebody else was told of");
    } else if (status->signal) {
        signal_name(status->signal, name);
        (void)snprintf(text, bytes, "signal %d (%s)%s", status->signal, name,
                       status->core_dumped ? ", core dumped" : "");
    } else {
        (void)snprintf(text, bytes, "exit code %d", status->exit_code);
    }
}

/* What wait and close return. */
static int answer(const struct process_result *result, weir_process_status *ret_status)
{
    char how[96];

    if (result->lost) {
        return refuse_as(-ECHILD,
                         "process '%s' (pid %d): has ended, but its status was taken by somebody "
                         "else: the program ignores SIGCHLD, or waits for any child",
                         result->name, (int)result->pid);
    }
    if (ret_status) *ret_status = result->status;
    if (result->policy != WEIR_EXIT_ZERO || result->status.exit_code == 0) return 0;
    if (result->status.ended_by_us) return 0;
    process_describe_end(result, how, sizeof how);
    return refuse_as(WEIR_EEXIT, "process '%s' (pid %d): ended with %s", result->name,
                     (int)result->pid, how);
}

static void take_status(weir_process *process, const struct process_end *end)
{
    weir_process_status *status = &process->result.status;
    bool exited = WIFEXITED(end->status);

    status->exit_code = exited ? WEXITSTATUS(end->status) : -1;
    status->signal = exited ? 0 : WTERMSIG(end->status);
    status->core_dumped = !exited && WCOREDUMP(end->status);
    status->user_us = end->user_us;
    status->system_us = end->system_us;
    status->rss_bytes_max = end->rss_bytes_max;
}

/* ---- The end: on the process's worker ---- */

/* The bit says that mail is under way, so that from here on nobody posts any; if some is
 * under way already, its delivery comes back here. */
void process_let_go(weir_process *process)
{
    bool over;

    processes_lock(process->head.runtime);
    over = process->state == PROCESS_ENDED && process->dismissed;
    processes_unlock(process->head.runtime);
    if (!over || atom_load_total(&process->mail_posted)) return;
    if (atom_or(&process->belonging.mail_bits, BELONGING_RELEASE) != 0) return;
    (void)scope_forget(&process->belonging);
    if (process->head.handle) io_head_deinit(&process->head);
    mem_free(process);
}

/* The lock is held. */
static void wake_waiters(weir_process *process)
{
    struct list *node;

    while ((node = list_pop(&process->waiters))) {
        struct process_wait *wait = container_of(node, struct process_wait, node);
        wait->waiting = false;
        wait->result = process->result;
        task_wake(wait->task, 0);
    }
}

/* It is reaped: let go of all but the memory. */
static void process_gone(struct worker *worker, weir_process *process)
{
    const struct kernel *kernel = process->head.runtime->kernel;

    timer_disarm(worker, &process->kill_timer);
    timer_disarm(worker, &process->look_timer);
    (void)pollable_call_off(process->pollable);
    pollable_free(process->pollable, "");
    process->pollable = NULL;
    (void)kernel->close(kernel, process->pidfd);
    (void)atom_sub(&process->head.runtime->process_count, 1);
    if (process->hook.on_ended) {
        process->hook.on_ended(process, &process->result, process->hook.arg);
    }
    process_let_go(process);
}

/* Has it ended? 1: yes, and its memory may be gone; 0: no; negative: that could not be
 * found out. */
static int process_look(struct worker *worker, weir_process *process)
{
    const struct kernel *kernel = process->head.runtime->kernel;
    struct process_end end;
    bool gone;
    int r;

    processes_lock(process->head.runtime);
    r = kernel->process_reap(kernel, process->pidfd, process->group, false, &end);
    gone = r == 1 || r == -ECHILD;
    if (gone) {
        process->result.lost = r == -ECHILD;
        if (r == 1) take_status(process, &end);
        process_set_state(process, PROCESS_ENDED);
        wake_waiters(process);
    }
    processes_unlock(process->head.runtime);
    if (!gone) return r;
    process_gone(worker, process);
    return 1;
}

static void process_readable(struct worker *worker, void *arg);

void process_watch(struct worker *worker, weir_process *process, int r)
{
    int64_t now_ns = worker->kernel->now_ns(worker->kernel);

    if (r == 0) r = pollable_call_when_readable(process->pollable, process_readable, process);
    if (r < 0) timer_arm(worker, &process->look_timer, time_after_ms(now_ns, LOOK_AGAIN_MS));
}

static void process_readable(struct worker *worker, void *arg)
{
    weir_process *process = arg;
    int r = process_look(worker, process);
    if (r < 1) process_watch(worker, process, r);
}

void process_look_again(struct worker *worker, struct timer *timer)
{
    process_readable(worker, container_of(timer, weir_process, look_timer));
}

/* ---- Ending it: on the process's worker ---- */

/* The lock is held. The timer tries again, and says so if even that does not help. */
static void kill_now(struct worker *worker, weir_process *process)
{
    const struct kernel *kernel = process->head.runtime->kernel;
    int64_t now_ns = kernel->now_ns(kernel);

    if (process->state != PROCESS_KILLED) process_set_state(process, PROCESS_KILLED);
    (void)kernel->process_signal(kernel, process->pidfd, process->group, SIGKILL);
    timer_arm(worker, &process->kill_timer, time_after_ms(now_ns, KILL_AGAIN_MS));
}

static void ask_to_end(struct worker *worker, weir_process *process)
{
    const struct kernel *kernel = process->head.runtime->kernel;
    int64_t now_ns = kernel->now_ns(kernel);

    process_set_state(process, PROCESS_ENDING);
    (void)kernel->process_signal(kernel, process->pidfd, process->group, SIGTERM);
    /* One that is stopped would not hear it. */
    (void)kernel->process_signal(kernel, process->pidfd, process->group, SIGCONT);
    timer_arm(worker, &process->kill_timer, time_after_ms(now_ns, process->grace_ms));
}

void process_kill_due(struct worker *worker, struct timer *timer)
{
    weir_process *process = container_of(timer, weir_process, kill_timer);
    bool again = process->state == PROCESS_KILLED;

    processes_lock(process->head.runtime);
    kill_now(worker, process);
    processes_unlock(process->head.runtime);
    if (!again || process->reported) return;
    process->reported = true;
    log_write(process->head.runtime, WEIR_LOG_WARNING, NULL,
              "process '%s' (pid %d) was killed %d ms ago and has not ended", process->result.name,
              (int)process->result.pid, KILL_AGAIN_MS);
}

/* Its memory may be gone after it. */
static void process_end(struct worker *worker, weir_process *process, bool at_once)
{
    if (!is_alive(process)) return;
    /* What ended before we asked it to has ended by itself. */
    if (process->state == PROCESS_RUNNING && process_look(worker, process) == 1) return;
    processes_lock(process->head.runtime);
    process->result.status.ended_by_us = true;
    if (at_once || process->grace_ms == WEIR_KILL_AT_ONCE) {
        if (process->state != PROCESS_KILLED) kill_now(worker, process);
    } else if (process->state == PROCESS_RUNNING) {
        ask_to_end(worker, process);
    }
    processes_unlock(process->head.runtime);
}

void process_deliver(struct worker *worker, struct mail *mail)
{
    weir_process *process = container_of(mail, weir_process, mail);

    bool at_once;

    /* First: who dismisses it again from here on posts again. */
    atom_store_total(&process->mail_posted, false);
    processes_lock(process->head.runtime);
    at_once = process->at_once;
    processes_unlock(process->head.runtime);
    if (is_alive(process)) {
        process_end(worker, process, at_once);
    } else {
        process_let_go(process);
    }
}

/* The lock is held. */
static void dismiss_locked(weir_process *process, bool at_once)
{
    process->dismissed = true;
    if (at_once) process->at_once = true;
    if (!atom_exchange(&process->mail_posted, true)) {
        mail_post(process->belonging.worker, &process->mail);
    }
}

void process_dismiss(weir_process *process, bool at_once)
{
    weir_runtime *runtime = process->head.runtime;

    processes_lock(runtime);
    dismiss_locked(process, at_once);
    processes_unlock(runtime);
}

/* ---- As a belonging ---- */

static weir_process *process_of(const struct belonging *belonging)
{
    return (weir_process *)(uintptr_t)((const char *)belonging -
                                       offsetof(struct weir_process, belonging));
}

static void process_signalled(struct worker *worker, struct belonging *belonging, uint8_t signals)
{
    weir_process *process = process_of(belonging);

    if (!(signals & SIGNAL_CANCELLED)) return;
    process->cancelled = true;
    process_end(worker, process, false);
}

static void process_release(struct worker *worker, struct belonging *belonging)
{
    weir_process *process = process_of(belonging);

    /* One that is being started is looked at when that is done. */
    processes_lock(process->head.runtime);
    process->dismissed = true;
    processes_unlock(process->head.runtime);
    if (is_alive(process)) {
        process_end(worker, process, false);
    } else {
        process_let_go(process);
    }
}

static void process_describe(const struct belonging *belonging, char *text, size_t bytes)
{
    static const char *const names[PROCESS_STATES] = {
        [PROCESS_STARTING] = "being started",
        [PROCESS_RUNNING] = "running",
        [PROCESS_ENDING] = "asked to end",
        [PROCESS_KILLED] = "killed",
        [PROCESS_ENDED] = "ended",
    };
    const weir_process *process = process_of(belonging);
    int64_t ms = (weir_now_ns() - process->since_ns) / 1000000;
    char how[96] = "";

    if (process->state == PROCESS_STARTING) {
        (void)snprintf(text, bytes, "'%s', being started", process->result.name);
        return;
    }
    if (process->state == PROCESS_ENDED) process_describe_end(&process->result, how, sizeof how);
    (void)snprintf(text, bytes, "'%s', pid %d, %s%s%s for %lld ms", process->result.name,
                   (int)process->result.pid, names[process->state], *how ? " with " : "", how,
                   (long long)ms);
}

static bool process_boundary(struct belonging *belonging, unsigned row,
                             struct boundary *ret_boundary)
{
    weir_process *process = process_of(belonging);
    struct lock *lock = &process->head.runtime->process_lock;
    bool shared = process->head.runtime->shared;

    if (row > 0) return false;
    (void)snprintf(ret_boundary->name, sizeof ret_boundary->name, "%s", process->result.name);
    ret_boundary->lifetime = "until it ends, is closed, or the scope ends";
    (void)snprintf(ret_boundary->bound, sizeof ret_boundary->bound,
                   "1 of the %d processes of the runtime", process->head.runtime->processes_max);
    ret_boundary->overflow = boundary_overflow(WEIR_REJECT);
    (void)snprintf(ret_boundary->failure, sizeof ret_boundary->failure,
                   "%s; SIGTERM, then SIGKILL after %lld ms",
                   process->result.policy == WEIR_EXIT_ZERO ? "WEIR_EEXIT unless exit code 0"
                                                            : "any status",
                   (long long)process->grace_ms);
    if (!boundary_hold(lock, shared)) return true;
    boundary_figure(ret_boundary, "pid", (uint64_t)process->result.pid);
    boundary_figure(ret_boundary, "alive", is_alive(process));
    boundary_let_go(lock, shared);
    return true;
}

const struct belonging_kind process_kind = {
    .name = "process",
    .signalled = process_signalled,
    .release = process_release,
    .describe = process_describe,
    .boundary = process_boundary,
};

/* ---- Waiting ---- */

static bool exit_abort(struct task *task, void *object)
{
    struct process_wait *wait = object;
    weir_runtime *runtime = worker_self()->runtime;
    bool waiting;

    (void)task;
    processes_lock(runtime);
    waiting = wait->waiting;
    if (waiting) list_remove(&wait->node);
    processes_unlock(runtime);
    return waiting;
}

static void exit_describe(const void *object, char *text, size_t bytes)
{
    const struct process_wait *wait = object;

    (void)snprintf(text, bytes, "process '%s', pid %d", wait->result.name, (int)wait->result.pid);
}

static const struct wait_kind wait_exit = {
    .name = "process exit",
    .abort = exit_abort,
    .describe = exit_describe,
    .what = WAIT_FOR_PROCESS,
};
static const struct wait_kind wait_process_close = {
    .name = "process close",
    .describe = exit_describe,
    .what = WAIT_FOR_PROCESS,
};

/* Take the result, or be in the list of those who get it: false. The lock is held. */
/* Not inlined: gcc would see a pointer to the waiter's frame that stays, and not who takes
 * it out. */
static __attribute__((noinline)) bool result_or_wait(weir_process *process, struct task *self,
                                                     struct process_wait *wait)
{
    wait->result = process->result;
    if (process->state == PROCESS_ENDED) return true;
    wait->task = self;
    wait->waiting = true;
    list_add_tail(&process->waiters, &wait->node);
    return false;
}

int weir_process_wait(weir_process *handle, weir_process_status *ret_status)
{
    weir_process *process;
    struct task *self = task_self();
    struct process_wait wait;
    bool ended;
    int r;

    if (!self) return refuse_no_task("weir_process_wait");
    r = task_enter(self, ENTER_IO);
    if (r < 0) return r;
    process = io_check(handle, HANDLE_PROCESS, "weir_process_wait"); /* after the yield, see io.h */
    processes_lock(process->head.runtime);
    ended = result_or_wait(process, self, &wait);
    processes_unlock(process->head.runtime);
    if (!ended) r = task_park(self, &wait_exit, &wait);
    return r < 0 ? r : answer(&wait.result, ret_status);
}

int weir_process_close(weir_process *take_handle)
{
    weir_process *process;
    struct task *self = task_self();
    struct process_wait wait;
    weir_runtime *runtime;
    bool ended;

    if (!take_handle) return 0;
    if (!self) return refuse_no_task("weir_process_close");
    (void)task_enter(self, ENTER_PLAIN);
    process = io_check(take_handle, HANDLE_PROCESS, "weir_process_close");
    runtime = process->head.runtime;
    processes_lock(runtime);
    io_head_deinit(&process->head);
    process->head.handle = NULL;
    ended = result_or_wait(process, self, &wait);
    dismiss_locked(process, false);
    processes_unlock(runtime);
    if (!ended) (void)task_park(self, &wait_process_close, &wait);
    return answer(&wait.result, NULL);
}

/* ---- Small calls ---- */

int weir_process_signal(weir_process *handle, int signo)
{
    weir_process *process = io_check(handle, HANDLE_PROCESS, "weir_process_signal");
    const struct kernel *kernel;
    int r = -ESRCH;

    kernel = process->head.runtime->kernel;
    processes_lock(process->head.runtime);
    if (is_alive(process)) {
        r = kernel->process_signal(kernel, process->pidfd, process->group, signo);
    }
    processes_unlock(process->head.runtime);
    return r;
}

pid_t weir_process_pid(const weir_process *handle)
{
    const weir_process *process = io_check_open(handle, HANDLE_PROCESS, "weir_process_pid");

    return process->result.pid;
}
