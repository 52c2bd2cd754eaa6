/* process_start.c - a process from its spec to its program: descriptors, the call of the
 * executor, and what becomes of it. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>

#include "io/conn.h"
#include "io/process.h"
#include "rt/mem.h"

enum { TRIES_MAX = 100 }; /* of an orphan, at calls that cannot really fail */

/* ---- The call of the executor ---- */

static struct start_call *start_of(struct blocking_call *call)
{
    return container_of(call, struct start_call, call);
}

static void start_run(struct blocking_call *blocking)
{
    struct start_call *call = start_of(blocking);
    const struct kernel *kernel = blocking->kernel;

    do call->result = kernel->process_start(kernel, &call->plan, &call->made);
    while (call->result == -EINTR);
    call->started = call->result == 0;
}

/* A child that nobody wants any more. On the executor's thread, which may wait. */
static void kill_and_reap(const struct kernel *kernel, const struct start_call *call)
{
    pid_t group = call->plan.own_group ? call->made.pid : 0;
    struct process_end end;
    int r;

    for (int i = 0; i < TRIES_MAX; i++) {
        r = kernel->process_signal(kernel, call->made.pidfd, group, SIGKILL);
        if (r == 0 || r == -ESRCH) break;
    }
    for (int i = 0; i < TRIES_MAX; i++) {
        r = kernel->process_reap(kernel, call->made.pidfd, group, true, &end);
        if (r == 1 || r == -ECHILD) break;
    }
    (void)kernel->close(kernel, call->made.pidfd);
}

static void start_discard(struct blocking_call *blocking)
{
    struct start_call *call = start_of(blocking);
    const struct kernel *kernel = call->runtime->kernel;

    if (call->started) kill_and_reap(kernel, call);
    for (int i = 0; i < call->plan.fd_count; i++) {
        if (call->plan.fds[i] >= 0) (void)kernel->close(kernel, call->plan.fds[i]);
    }
    if (call->counted) (void)atom_sub(&call->runtime->process_count, 1);
    mem_free(call);
}

/* ---- Descriptors of the child ---- */

/* A pipe between us and the child's descriptor `index`. */
static int add_pipe(struct start_call *call, const struct kernel *kernel, int index,
                    weir_conn **ret_conn)
{
    weir_conn *conn;
    int fds[2];
    int r = conn_prepare(&conn);

    if (r < 0) return r;
    r = kernel->pipe(kernel, fds);
    if (r < 0) {
        conn_abandon(conn);
        return r;
    }
    call->plan.fds[index] = index == 0 ? fds[0] : fds[1];
    call->plan.blocking |= 1u << index;
    conn_adopt(conn, index == 0 ? fds[1] : fds[0], false, WEIR_TRANSPORT_NONE);
    *ret_conn = conn->head.handle;
    return 0;
}

static int add_copy(struct start_call *call, const struct kernel *kernel, int index, int fd)
{
    int r = fd >= 0 ? kernel->duplicate(kernel, fd) : fd;

    if (r < 0 && fd >= 0) {
        return refuse_as(r, "descriptor %d, to become %d in the child: %s", fd, index,
                         weir_strerror(r));
    }
    call->plan.fds[index] = r;
    return 0;
}

static int add_stdio(struct start_call *call, const struct kernel *kernel, int index,
                     const weir_stdio *stdio, weir_conn **ret_conn)
{
    switch (stdio->kind) {
    case WEIR_STDIO_UNSET:
    case WEIR_STDIO_NULL: call->plan.fds[index] = PROCESS_FD_NULL; return 0;
    case WEIR_STDIO_INHERIT: call->plan.fds[index] = PROCESS_FD_INHERIT; return 0;
    case WEIR_STDIO_PIPE: return add_pipe(call, kernel, index, ret_conn);
    case WEIR_STDIO_FD: return add_copy(call, kernel, index, stdio->fd);
    case WEIR_STDIO_OUT:
        /* "The parent's" would be that of the same number. */
        if (call->plan.fds[1] == PROCESS_FD_INHERIT) return add_copy(call, kernel, index, 1);
        return add_copy(call, kernel, index, call->plan.fds[1]);
    }
    return WEIR_EREFUSED;
}

static int add_descriptors(struct start_call *call, const struct kernel *kernel,
                           const weir_process_spec *spec, const struct process_hook *hook,
                           weir_conn *conns[3])
{
    const weir_stdio *stdio[3] = {&spec->in, &spec->out, &spec->err};
    int r = 0;

    for (int i = 0; i < 3 + spec->fd_count; i++) call->plan.fds[i] = PROCESS_FD_NULL;
    call->plan.fd_count = 3 + spec->fd_count;
    for (int i = 0; i < 3 && r == 0; i++) r = add_stdio(call, kernel, i, stdio[i], &conns[i]);
    for (int i = 0; i < spec->fd_count && r == 0; i++) {
        r = add_copy(call, kernel, 3 + i, spec->fds[i]);
    }
    if (hook) call->plan.blocking |= hook->fds_blocking << 3;
    return r;
}

static void close_conns(weir_conn *conns[3])
{
    for (int i = 0; i < 3; i++) weir_conn_close(conns[i]);
}

/* ---- Starting ---- */

/* One of the runtime's bound on children, or the refusal. */
static int take_count(struct start_call *call, const char *name)
{
    weir_runtime *runtime = call->runtime;

    if (atom_add(&runtime->process_count, 1) < runtime->processes_max) {
        call->counted = true;
        return 0;
    }
    (void)atom_sub(&runtime->process_count, 1);
    return refuse_as(WEIR_EOVERLOAD,
                     "process '%s': the runtime has %d processes already (processes_max)", name,
                     runtime->processes_max);
}

static int start_failed(const weir_process_spec *spec, const struct start_call *call)
{
    int error = call->result;
    const char *text = weir_strerror(error);

    if (error == -ENOSYS) {
        return refuse_as(error,
                         "process '%s': this kernel cannot do it: pidfd, of Linux 5.4, is "
                         "needed",
                         spec->name);
    }
    switch (call->made.step) {
    case STEP_NONE:
        return refuse_as(error, "process '%s': could not be made: %s", spec->name, text);
    case STEP_PARENT: return refuse_as(error, "process '%s': group: %s", spec->name, text);
    case STEP_DIRECTORY:
        return refuse_as(error, "process '%s': directory '%s': %s", spec->name, spec->directory,
                         text);
    case STEP_FD: return refuse_as(error, "process '%s': descriptors: %s", spec->name, text);
    case STEP_LIMIT: return refuse_as(error, "process '%s': limits: %s", spec->name, text);
    case STEP_PROGRAM: break;
    }
    return refuse_as(error, "process '%s': program '%s': %s", spec->name, spec->program, text);
}

static int process_new(struct worker *worker, weir_scope *scope, const weir_process_spec *spec,
                       const struct process_hook *hook, weir_process **ret_process)
{
    weir_process *process = mem_alloc_zeroed(sizeof *process);
    int r;

    if (!process) return -ENOMEM;
    r = pollable_new(-1, &process->pollable);
    if (r < 0) goto fail;
    process->pidfd = -1;
    process->grace_ms = spec->grace_ms;
    process->result.policy = spec->on_exit;
    (void)snprintf(process->result.name, sizeof process->result.name, "%s", spec->name);
    if (hook) process->hook = *hook;
    timer_init(&process->kill_timer, process_kill_due);
    timer_init(&process->look_timer, process_look_again);
    process->mail.deliver = process_deliver;
    list_init(&process->waiters);
    process->since_ns = worker->now_ns;
    r = io_head_init(&process->head, HANDLE_PROCESS);
    if (r < 0) goto fail_pollable;
    r = scope_own(scope, worker, &process->belonging, &process_kind);
    if (r < 0) goto fail_handle;
    *ret_process = process;
    return 0;

fail_handle:
    io_head_deinit(&process->head);
fail_pollable:
    pollable_free(process->pollable, "");
fail:
    mem_free(process);
    return r;
}

/* It was never started, or belongs to the orphan. */
static void process_abandon(weir_process *process)
{
    pollable_free(process->pollable, "");
    process->pollable = NULL;
    process->dismissed = true;
    process_set_state(process, PROCESS_ENDED);
    process_let_go(process);
}

static void process_adopt(struct worker *worker, weir_process *process, struct start_call *call)
{
    process->pidfd = call->made.pidfd;
    process->pollable->fd = process->pidfd; /* not registered yet: nobody else looks at it */
    process->result.pid = call->made.pid;
    process->group = call->plan.own_group ? call->made.pid : 0;
    call->started = false;
    call->counted = false;
    process_set_state(process, PROCESS_RUNNING);
    process_watch(worker, process, 0);
}

/* The call runs; what comes of it is adopted. */
static int process_launch(struct worker *worker, weir_process *process,
                          const weir_process_spec *spec, struct start_call *take_call)
{
    int r = blocking_run(&worker->runtime->spawns, &take_call->call, false);

    if (r < 0) {
        process_abandon(process);
        return r;
    }
    if (take_call->result < 0) {
        r = start_failed(spec, take_call);
        process_abandon(process);
    } else {
        process_adopt(worker, process, take_call);
        if (process->cancelled || process->dismissed) {
            /* The scope was cancelled or closed meanwhile. */
            process->hook.on_ended = NULL;
            process_dismiss(process, true);
            r = WEIR_ECANCELED;
        }
    }
    start_discard(&take_call->call);
    return r;
}

int process_start(weir_scope *scope, const weir_process_spec *spec, const struct process_hook *hook,
                  weir_process **ret_process)
{
    struct worker *worker = worker_self();
    const weir_stdio *stdio[3] = {&spec->in, &spec->out, &spec->err};
    weir_conn *conns[3] = {NULL, NULL, NULL};
    weir_process *process = NULL;
    struct start_call *call;
    int r = start_call_new(spec, &call);

    if (r < 0) return r;
    call->runtime = worker->runtime;
    call->call.name = "start";
    call->call.run = start_run;
    call->call.discard = start_discard;
    (void)snprintf(call->call.detail, sizeof call->call.detail, "%s", spec->program);
    r = take_count(call, spec->name);
    if (r == 0) r = add_descriptors(call, worker->kernel, spec, hook, conns);
    if (r == 0) r = process_new(worker, scope, spec, hook, &process);
    if (r != 0) {
        start_discard(&call->call);
        close_conns(conns);
        return r;
    }
    r = process_launch(worker, process, spec, call);
    if (r < 0) {
        close_conns(conns);
        return r;
    }
    for (int i = 0; i < 3; i++) {
        if (conns[i]) *stdio[i]->ret_conn = conns[i];
    }
    *ret_process = process;
    return 0;
}

int weir_process_start_sized(weir_scope *scope, size_t spec_bytes, const weir_process_spec *given,
                             weir_process **ret_process)
{
    struct task *self = task_self();
    weir_process_spec spec;
    weir_process *process = NULL;
    int r;

    if (!self) return refuse_no_task("weir_process_start");
    scope_check(scope, "weir_process_start");
    spec_copy(&spec, sizeof spec, given, spec_bytes);
    r = process_check_spec(&spec);
    if (r < 0) return r;
    r = task_enter(self, ENTER_IO);
    if (r < 0) return r;
    r = process_start(scope, &spec, NULL, &process);
    if (r == 0) *ret_process = process->head.handle;
    return r;
}
