/* idle.c - waiting for a connection to become readable, without a task.
 *
 *     WAITING ──readable, time, signal, scope ends──▶ DUE ──▶ CALLING ──▶ CALLED ──▶ freed
 *
 * The wait is a belonging of its scope and lives on the worker it was made on: its
 * timer, its descriptor's callback and the scope's mail all come there, so no two of
 * them meet. DUE lasts only while a task is running there (it cancels or closes the
 * scope): the callback is then called from the worker's own stack a moment later.
 *
 * Invariants: the callback is called exactly once, after the wait has let go of the
 * connection and before it lets go of the scope, so that the callback may close the
 * one and spawn into the other.
 */
#include <errno.h>
#include <stdio.h>
#include <weir/task.h>

#include "io/conn.h"
#include "rt/mem.h"
#include "rt/scope.h"

enum idle_state { IDLE_WAITING, IDLE_DUE, IDLE_CALLING, IDLE_CALLED };

struct idle {
    struct belonging belonging;
    struct timer timer;
    struct mail mail; /* to be called from the worker's own stack */
    enum idle_state state;
    int status;
    weir_conn *conn;
    weir_idle_fn on_ready;
    void *arg;
};

/* Leave the scope and free. The bit says that mail is under way, so that from here on
 * nobody posts any; if some is under way already, its delivery (idle_release) comes
 * back here, and until then the scope stays open: memory that waits for mail must not
 * outlive the worker. */
static void idle_let_go(struct idle *idle)
{
    if (atom_or(&idle->belonging.mail_bits, BELONGING_RELEASE) != 0) return;
    (void)scope_forget(&idle->belonging);
    mem_free(idle);
}

static void idle_call(struct idle *idle)
{
    weir_conn *conn = idle->conn;
    struct worker *worker = idle->belonging.worker;

    idle->state = IDLE_CALLING;
    conn->drained = false; /* the edge that ended the wait is used up */
    io_claim_give_back(&conn->reader);
    callback_begin(worker);
    idle->on_ready(conn->head.handle, idle->status, idle->arg);
    callback_end(worker, idle->belonging.scope);
    idle->state = IDLE_CALLED;
    idle_let_go(idle);
}

static void idle_deliver(struct worker *worker, struct mail *mail)
{
    (void)worker;
    idle_call(container_of(mail, struct idle, mail));
}

static void idle_end(struct worker *worker, struct idle *idle, int status)
{
    if (idle->state != IDLE_WAITING) return;
    idle->state = IDLE_DUE;
    idle->status = status;
    timer_disarm(worker, &idle->timer);
    (void)pollable_call_off(idle->conn->pollable);
    if (worker->current) {
        mail_post(worker, &idle->mail);
    } else {
        idle_call(idle);
    }
}

/* What the kernel reported may be gone: then it is waited for again. */
static void idle_readable(struct worker *worker, void *arg)
{
    struct idle *idle = arg;
    int r = 0;

    callback_begin(worker); /* the descriptor is the program's, too */
    if (!conn_readable_now(idle->conn)) {
        r = pollable_call_when_readable(idle->conn->pollable, idle_readable, idle);
        if (r == 0) return;
    }
    idle_end(worker, idle, r);
}

static void idle_timed_out(struct worker *worker, struct timer *timer)
{
    idle_end(worker, container_of(timer, struct idle, timer), WEIR_ETIMEDOUT);
}

/* ---- As a belonging ---- */

static void idle_signalled(struct worker *worker, struct belonging *belonging, uint8_t signals)
{
    struct idle *idle = container_of(belonging, struct idle, belonging);

    if (signals & SIGNAL_CANCELLED) {
        idle_end(worker, idle, WEIR_ECANCELED);
    } else if (signals & SIGNAL_STOPPING) {
        idle_end(worker, idle, WEIR_ESTOPPING);
    }
}

static void idle_release(struct worker *worker, struct belonging *belonging)
{
    struct idle *idle = container_of(belonging, struct idle, belonging);

    switch (idle->state) {
    case IDLE_WAITING: idle_end(worker, idle, WEIR_ECANCELED); break;
    case IDLE_DUE:
    case IDLE_CALLING: break; /* lets go by itself */
    case IDLE_CALLED: idle_let_go(idle); break;
    }
}

static void idle_describe(const struct belonging *belonging, char *text, size_t bytes)
{
    const struct idle *idle = (const struct idle *)(const void *)((const char *)belonging -
                                                                  offsetof(struct idle, belonging));

    if (wheel_timer_armed(&idle->timer.wheel)) {
        int64_t left_ns = idle->timer.wheel.at_ns - weir_now_ns();
        (void)snprintf(text, bytes, "descriptor %d, %lld ms left", idle->conn->fd,
                       (long long)(left_ns / 1000000));
    } else if (idle->state == IDLE_WAITING) {
        (void)snprintf(text, bytes, "descriptor %d, for ever", idle->conn->fd);
    } else {
        (void)snprintf(text, bytes, "over: %s", weir_error_name(idle->status));
    }
}

static bool idle_boundary(struct belonging *belonging, unsigned row, struct boundary *ret_boundary)
{
    const struct idle *idle = container_of(belonging, struct idle, belonging);

    if (row > 0) return false;
    if (idle->state == IDLE_WAITING) {
        (void)snprintf(ret_boundary->name, sizeof ret_boundary->name, "descriptor %d",
                       idle->conn->fd);
    } else {
        (void)snprintf(ret_boundary->name, sizeof ret_boundary->name, "over");
    }
    ret_boundary->lifetime = "until readable, its time is up, or the scope stops or ends";
    (void)snprintf(ret_boundary->bound, sizeof ret_boundary->bound, "1 callback");
    ret_boundary->overflow = "a second wait on the connection is refused";
    (void)snprintf(ret_boundary->failure, sizeof ret_boundary->failure,
                   "the callback gets the error");
    return true;
}

static const struct belonging_kind idle_kind = {
    .name = "idle wait",
    .signalled = idle_signalled,
    .release = idle_release,
    .describe = idle_describe,
    .boundary = idle_boundary,
};

/* ---- Beginning ---- */

static int check_spec(const weir_scope *scope, const weir_idle_spec *spec)
{
    if (!spec->on_ready) return refuse("idle wait in scope '%s': on_ready is not set", scope->name);
    if (spec->idle_ms == 0) {
        return refuse("idle wait in scope '%s': idle_ms is not set", scope->name);
    }
    if (spec->idle_ms < 0) {
        return refuse("idle wait in scope '%s': idle_ms is negative", scope->name);
    }
    if (spec->idle_ms == WEIR_FOREVER && (!spec->no_deadline || !*spec->no_deadline)) {
        return refuse("idle wait in scope '%s': idle_ms is WEIR_FOREVER but no_deadline does not "
                      "say why",
                      scope->name);
    }
    if (spec->idle_ms != WEIR_FOREVER && spec->no_deadline) {
        return refuse("idle wait in scope '%s': no_deadline is set but idle_ms is not WEIR_FOREVER",
                      scope->name);
    }
    return 0;
}

static int interruption(const weir_scope *scope)
{
    uint8_t signals = atom_load_total(&scope->children_signals);
    if (signals & SIGNAL_CANCELLED) return WEIR_ECANCELED;
    return signals & SIGNAL_STOPPING ? WEIR_ESTOPPING : 0;
}

/* Register with scope, descriptor and timer. On failure it has let go of all. */
static int idle_begin(struct worker *worker, weir_scope *scope, struct idle *idle, int64_t idle_ms)
{
    int r = scope_own(scope, worker, &idle->belonging, &idle_kind);

    if (r < 0) {
        mem_free(idle);
        return r;
    }
    /* After scope_own: a stop that came before it sends no mail any more. */
    r = interruption(scope);
    if (r == 0) r = pollable_call_when_readable(idle->conn->pollable, idle_readable, idle);
    if (r < 0) {
        idle->state = IDLE_CALLED;
        idle_let_go(idle);
        return r;
    }
    if (idle_ms != WEIR_FOREVER) {
        int64_t now_ns = worker->kernel->now_ns(worker->kernel);
        timer_arm(worker, &idle->timer, time_after_ms(now_ns, idle_ms));
    }
    return 0;
}

int weir_conn_idle_sized(weir_scope *scope, weir_conn *handle, size_t spec_bytes,
                         const weir_idle_spec *given)
{
    struct worker *worker = worker_self();
    weir_idle_spec spec;
    struct idle *idle;
    weir_conn *conn;
    int r;

    if (!worker) return refuse_no_task("weir_conn_idle");
    scope_check(scope, "weir_conn_idle");
    conn = io_check(handle, HANDLE_CONN, "weir_conn_idle");
    spec_copy(&spec, sizeof spec, given, spec_bytes);
    r = check_spec(scope, &spec);
    if (r < 0) return r;
    idle = mem_alloc_zeroed(sizeof *idle);
    if (!idle) return -ENOMEM;
    idle->conn = conn;
    idle->on_ready = spec.on_ready;
    idle->arg = spec.keep_arg;
    idle->mail.deliver = idle_deliver;
    timer_init(&idle->timer, idle_timed_out);
    if (!io_claim_take(&conn->reader, worker->shared, conn_idle_reader)) {
        mem_free(idle);
        return WEIR_EINUSE;
    }
    r = idle_begin(worker, scope, idle, spec.idle_ms);
    if (r < 0) io_claim_give_back(&conn->reader);
    return r;
}

/* ---- For a select, which waits for other things as well ---- */

const char conn_select_reader[] = "a select";

struct pollable *pollable_of_conn(const void *handle, const char *call, bool *ret_now)
{
    weir_conn *conn = io_check(handle, HANDLE_CONN, call);

    if (!io_claim_take(&conn->reader, conn->pollable->runtime->shared, conn_select_reader)) {
        return NULL;
    }
    *ret_now = conn->pending_error != 0 || conn_readable_now(conn);
    return conn->pollable;
}

bool pollable_of_conn_readable(const void *handle)
{
    weir_conn *conn = handle_object(handle, HANDLE_CONN);
    return conn_readable_now(conn);
}

void pollable_of_conn_done(const void *handle)
{
    weir_conn *conn = handle_object(handle, HANDLE_CONN);
    if (!conn) return;
    conn->drained = false; /* the edge that ended the wait is used up */
    io_claim_give_back(&conn->reader);
}
