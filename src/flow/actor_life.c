/* actor_life.c - opening an actor, its task, starting it again, and how it is freed. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "flow/actor.h"
#include "rt/mem.h"
#include "watch/trace.h"

/* ---- Its task ---- */

static void drop_state(struct actor *actor)
{
    const weir_actor_spec *spec = &actor->spec;
    if (actor->has_state && spec->deinit) spec->deinit(actor->user_state, spec->keep_arg);
    actor->has_state = false;
}

static int make_state(struct actor *actor)
{
    const weir_actor_spec *spec = &actor->spec;
    int r = 0;

    if (spec->state_bytes > 0) memset(actor->user_state, 0, spec->state_bytes);
    if (spec->init) r = spec->init(actor->user_state, spec->keep_arg);
    actor->has_state = r >= 0;
    return r;
}

/* A span of its own, in the context of who has sent the message. */
static __attribute__((noinline)) int handle_traced(struct actor *actor, struct letter *letter,
                                                   void *reply, struct task *self)
{
    const weir_actor_spec *spec = &actor->spec;
    weir_span span;
    int r;

    trace_unref(trace_swap(self, letter->trace));
    letter->trace = NULL;
    span_begin(&span, "actor", actor->object.name, WEIR_SPAN_INTERNAL);
    r = spec->on_message(actor->user_state, letter->message, reply, spec->keep_arg);
    if (r < 0) weir_span_result(r);
    weir_span_leave(&span);
    trace_unref(trace_swap(self, NULL));
    return r;
}

/* Handle messages until there will be no more (0), or something fails. */
static int serve(struct actor *actor, struct task *self)
{
    const weir_actor_spec *spec = &actor->spec;
    struct letter *letter;
    int r;

    while ((r = actor_next(actor, self, &letter)) == 0) {
        void *reply = letter->is_call ? letter->reply : NULL;
        if (reply && spec->reply_bytes > 0) memset(reply, 0, spec->reply_bytes);
        if (trace_is_on()) {
            r = handle_traced(actor, letter, reply, self);
        } else {
            r = spec->on_message(actor->user_state, letter->message, reply, spec->keep_arg);
        }
        sanitize_release(actor);
        actor_handled(actor, letter, r);
        if (r < 0) return r;
    }
    return r < 0 ? r : 0;
}

/* Whether one more restart stays within the intensity; if so it is counted. */
static bool restart_allowed(struct actor *actor, int64_t now_ns)
{
    const weir_restart *restart = &actor->spec.restart;
    unsigned max = (unsigned)restart->max_restarts;
    int64_t since_ns = time_after_ms(now_ns, -restart->window_ms);

    if (actor->spec.on_restart == WEIR_RESTART_NEVER) return false;
    while (actor->restart_count > 0 && actor->restart_times[actor->restart_head] <= since_ns) {
        actor->restart_head = (actor->restart_head + 1) % max;
        actor->restart_count--;
    }
    if (actor->restart_count == 0) actor->backoff_count = 0; /* it went well for a window */
    if (actor->restart_count == max) return false;
    actor->restart_times[(actor->restart_head + actor->restart_count) % max] = now_ns;
    actor->restart_count++;
    return true;
}

static int64_t backoff_ms(struct actor *actor)
{
    const weir_restart *restart = &actor->spec.restart;
    int64_t max_ms = restart->backoff_ms_max ? restart->backoff_ms_max : restart->backoff_ms;
    int64_t ms = restart->backoff_ms;

    for (int i = 0; i < actor->backoff_count && ms < max_ms; i++) {
        ms = ms > max_ms / 2 ? max_ms : ms * 2;
    }
    actor->backoff_count++;
    return ms;
}

/* Whether it was told to drop what it has. */
static bool is_told(struct actor *actor)
{
    bool told;
    flow_lock(&actor->object);
    told = actor->discards;
    flow_unlock(&actor->object);
    return told;
}

static const struct wait_kind wait_pause = {
    .name = "restart",
    .abort = waiter_abort,
    .describe = waiter_describe,
    .what = WAIT_FOR_TIME,
    .ends = ENDS_OUTSIDE,
    .facts = waiter_facts,
};

/* Until the time is over, or it is told to stop: then what it has is handled at once. */
static int pause_before_restart(struct actor *actor, struct task *self, int64_t ms)
{
    struct waiter waiter = {.task = self, .object = &actor->object};
    int r = task_enter(self, ENTER_PLAIN);

    if (r < 0 || ms == 0) return r;
    WEIR_DEADLINE(ms) {
        flow_lock(&actor->object);
        if (actor->state == ACTOR_OPEN) {
            list_add_tail(&actor->pauses, &waiter.node);
            flow_unlock(&actor->object);
            r = waiter_park(self, &waiter, &wait_pause);
        } else {
            flow_unlock(&actor->object);
        }
    }
    return r == WEIR_ETIMEDOUT ? 0 : r;
}

/* It has failed with `error`: 0, it starts again; or the error with which it ends. */
static int recover(struct actor *actor, struct task *self, int error)
{
    struct worker *worker = worker_self();
    int64_t ms;

    if (is_told(actor)) return WEIR_ECANCELED; /* by the stop, whatever on_message made of it */
    if (task_interruption(self, true) < 0) return error; /* cancelled, or stopping */
    if (!restart_allowed(actor, weir_now_ns())) {
        log_write(worker->runtime, WEIR_LOG_ERROR, self,
                  "actor '%s' has failed with %s and is not started again", actor->object.name,
                  weir_error_name(error));
        return error;
    }
    ms = backoff_ms(actor);
    log_write(worker->runtime, WEIR_LOG_WARNING, self,
              "actor '%s' has failed with %s and is started again in %lld ms", actor->object.name,
              weir_error_name(error), (long long)ms);
    flow_lock(&actor->object);
    actor->restarts++;
    flow_unlock(&actor->object);
    if (actor->spec.on_restart == WEIR_RESTART_RESET) drop_state(actor);
    return pause_before_restart(actor, self, ms);
}

static int live(struct actor *actor, struct task *self)
{
    int r;

    do {
        r = actor->has_state ? 0 : make_state(actor);
        if (r >= 0) r = serve(actor, self);
        if (r < 0)
            r = recover(actor, self, r);
        else
            return 0;
    } while (r == 0);
    return r;
}

/* From here on others may cancel it. False: it was told to end before it has begun. */
static bool begin(struct actor *actor)
{
    bool wanted;
    flow_lock(&actor->object);
    actor->task = weir_task_self();
    wanted = !actor->discards && actor->state != ACTOR_ENDED;
    flow_unlock(&actor->object);
    return wanted;
}

int actor_main(void *arg)
{
    struct actor *actor = *(struct actor **)arg;
    struct belonging *belonging = &actor->object.belonging;
    weir_scope *scope = belonging->scope;
    struct task *self = task_self();
    bool quiet;
    int r;

    if (actor->state == ACTOR_ENDED) return actor->result; /* its scope supervises, in vain */
    scope_attend(belonging);
    r = begin(actor) ? live(actor, self) : WEIR_ECANCELED;
    drop_state(actor);
    quiet = is_told(actor) && task_interruption(self, false) == 0;
    scope_attend_end(belonging);
    if (actor_end(actor, r)) {
        r = r < 0 ? WEIR_ECANCELED : 0; /* nobody starts it again */
        scope_lock(scope);
        belonging_mail(belonging, BELONGING_RELEASE);
        scope_unlock(scope);
    }
    /* Who told it to drop what it has cancels its task after that, perhaps too late. */
    return r == WEIR_ECANCELED && quiet ? 0 : r;
}

/* ---- Belonging to a scope ---- */

/* Its task has ended, or never was. On its worker. */
static void let_go(struct actor *actor)
{
    /* The bit keeps others from posting mail; if some is under way, it comes back here. */
    if (atom_or(&actor->object.belonging.mail_bits, BELONGING_RELEASE) != 0) return;
    meter_leave(&actor->metered);
    (void)scope_forget(&actor->object.belonging);
    mem_free(actor->memory);
    flow_free(&actor->object);
}

static void actor_release(struct worker *worker, struct belonging *belonging)
{
    struct actor *actor = container_of(belonging, struct actor, object.belonging);

    (void)worker;
    if (actor->handle) handle_close(actor->handle);
    actor->handle = NULL;
    let_go(actor);
}

static void actor_signalled(struct worker *worker, struct belonging *belonging, uint8_t signals)
{
    (void)worker, (void)belonging, (void)signals; /* its task is told by its scope */
}

static void actor_dismissed(struct worker *worker, struct belonging *belonging)
{
    (void)worker;
    actor_stop(container_of(belonging, struct actor, object.belonging), WEIR_DRAIN);
}

static void actor_describe(const struct belonging *belonging, char *text, size_t bytes)
{
    const struct actor *actor =
        (const struct actor *)(const void *)((const char *)belonging -
                                             offsetof(struct actor, object.belonging));
    (void)snprintf(text, bytes, "'%s', %zu of %zu messages%s", actor->object.name, actor->depth,
                   actor->mailbox_max,
                   actor->state == ACTOR_ENDED ? ", ended"
                   : actor->at_hand            ? ", at work"
                                               : "");
}

static bool actor_boundary(struct belonging *belonging, unsigned row, struct boundary *ret_boundary)
{
    struct actor *actor = container_of(belonging, struct actor, object.belonging);
    struct lock *lock = &actor->object.stable.lock;

    if (row > 0) return false;
    (void)snprintf(ret_boundary->name, sizeof ret_boundary->name, "%s", actor->object.name);
    ret_boundary->lifetime = "until closed, or the scope ends";
    boundary_bound(ret_boundary, actor->mailbox_max, "messages");
    ret_boundary->overflow = boundary_overflow((int)actor->spec.overflow);
    (void)snprintf(ret_boundary->failure, sizeof ret_boundary->failure,
                   "supervised: at most %d restarts in %lld ms", actor->spec.restart.max_restarts,
                   (long long)actor->spec.restart.window_ms);
    ret_boundary->latency_target_ms = actor->spec.latency_ms;
    ret_boundary->meter = actor->metered.meter;
    ret_boundary->wait_histogram = ACTOR_WAIT;
    ret_boundary->run_histogram = ACTOR_RUN;
    if (!boundary_hold(lock, actor->object.stable.shared)) return true;
    boundary_figure(ret_boundary, "depth", actor->depth);
    boundary_figure(ret_boundary, "depth_max", actor->depth_max);
    boundary_figure(ret_boundary, "accepted", actor->accepted);
    boundary_figure(ret_boundary, "handled", actor->handled);
    boundary_figure(ret_boundary, "rejected", actor->rejected);
    boundary_figure(ret_boundary, "crashed", actor->crashed);
    boundary_figure(ret_boundary, "restarts", actor->restarts);
    boundary_let_go(lock, actor->object.stable.shared);
    return true;
}

static const struct belonging_kind actor_kind = {
    .name = "actor",
    .signalled = actor_signalled,
    .release = actor_release,
    .describe = actor_describe,
    .boundary = actor_boundary,
    .is_passive = belonging_is_passive,
    .dismissed = actor_dismissed,
};

void weir_actor_close(weir_actor *take_actor)
{
    struct actor *actor;
    weir_scope *scope;
    bool ended;

    if (!take_actor) return;
    actor = flow_look_up(take_actor, HANDLE_ACTOR, "actor", "weir_actor_close");
    if (!worker_self()) misuse("weir_actor_close: called on a thread that is not the runtime's");
    scope = actor->object.belonging.scope;
    handle_close(take_actor);
    actor->handle = NULL;
    actor_stop(actor, WEIR_DISCARD);
    flow_lock(&actor->object);
    actor->given_up = true;
    ended = actor->state == ACTOR_ENDED;
    /* A scope that supervises may be about to start its task again. */
    if (actor->result < 0 && scope->on_failure == WEIR_SUPERVISE) ended = false;
    flow_unlock(&actor->object);
    if (!ended) return;
    scope_lock(scope);
    belonging_mail(&actor->object.belonging, BELONGING_RELEASE);
    scope_unlock(scope);
}

/* ---- Opening ---- */

static int check_restart(const weir_actor_spec *spec)
{
    const weir_restart *restart = &spec->restart;
    const char *name = spec->name;
    bool said = restart->max_restarts || restart->window_ms || restart->backoff_ms ||
                restart->backoff_ms_max;

    if (spec->on_restart == WEIR_ON_RESTART_UNSET || spec->on_restart > WEIR_RESTART_NEVER) {
        return refuse("actor '%s': on_restart is not set", name);
    }
    if (spec->on_restart == WEIR_RESTART_NEVER) {
        if (!said) return 0;
        return refuse("actor '%s': restart is set but on_restart is WEIR_RESTART_NEVER", name);
    }
    if (restart->max_restarts < 1 || restart->max_restarts > SCOPE_RESTARTS_MAX) {
        return refuse("actor '%s': restart.max_restarts is %d, must be 1 to %d", name,
                      restart->max_restarts, SCOPE_RESTARTS_MAX);
    }
    if (restart->window_ms <= 0) {
        return refuse("actor '%s': restart.window_ms is not set", name);
    }
    if (restart->backoff_ms < 0 || restart->backoff_ms_max < 0) {
        return refuse("actor '%s': restart.backoff_ms is negative", name);
    }
    if (restart->backoff_ms_max > 0 && restart->backoff_ms_max < restart->backoff_ms) {
        return refuse("actor '%s': restart.backoff_ms_max is smaller than backoff_ms", name);
    }
    return 0;
}

static int check_spec(const weir_actor_spec *spec)
{
    const char *name = spec->name;
    int r = flow_check_name("actor", name);

    if (r < 0) return r;
    if (spec->mailbox_max == 0) return refuse("actor '%s': mailbox_max is not set", name);
    if (spec->mailbox_max > WEIR_MAILBOX_MAX || spec->mailbox_limit > WEIR_MAILBOX_MAX) {
        return refuse("actor '%s': mailbox_max is more than %d", name, WEIR_MAILBOX_MAX);
    }
    if (spec->mailbox_limit && spec->mailbox_limit < spec->mailbox_max) {
        return refuse("actor '%s': mailbox_limit is less than mailbox_max", name);
    }
    if (spec->overflow == WEIR_OVERFLOW_UNSET || spec->overflow > WEIR_DROP_OLDEST) {
        return refuse("actor '%s': overflow is not set", name);
    }
    if (!spec->on_message) return refuse("actor '%s': on_message is not set", name);
    if (spec->message_bytes == 0 || spec->message_bytes > WEIR_ITEM_BYTES_MAX) {
        return refuse("actor '%s': message_bytes is %zu, must be 1 to %d (send a pointer instead)",
                      name, spec->message_bytes, WEIR_ITEM_BYTES_MAX);
    }
    if (spec->reply_bytes > WEIR_ITEM_BYTES_MAX) {
        return refuse("actor '%s': reply_bytes is %zu, at most %d", name, spec->reply_bytes,
                      WEIR_ITEM_BYTES_MAX);
    }
    if (spec->state_bytes > PTRDIFF_MAX / 2) {
        return refuse("actor '%s': state_bytes is %zu, more than there can be", name,
                      spec->state_bytes);
    }
    if (spec->latency_ms < 0) return refuse("actor '%s': latency_ms is negative", name);
    return check_restart(spec);
}

static size_t rounded(size_t bytes)
{
    return (bytes + 15) & ~(size_t)15;
}

/* One allocation: restart times, state, then letters, each with its message and reply. */
static int lay_out(struct actor *actor)
{
    const weir_actor_spec *spec = &actor->spec;
    size_t times = rounded((size_t)spec->restart.max_restarts * sizeof(int64_t));
    size_t state = rounded(spec->state_bytes);
    size_t message = rounded(spec->message_bytes), reply = rounded(spec->reply_bytes);
    size_t each = rounded(sizeof(struct letter)) + message + reply;
    size_t count = spec->mailbox_limit + 1; /* one is at hand */
    unsigned char *at;

    actor->memory = mem_alloc(times + state + count * each);
    if (!actor->memory) return -ENOMEM;
    actor->restart_times = (void *)actor->memory;
    actor->user_state = actor->memory + times;
    at = actor->memory + times + state;
    for (size_t i = 0; i < count; i++, at += each) {
        struct letter *letter = (void *)at;
        letter->post = NULL;
        letter->trace = NULL;
        letter->message = at + rounded(sizeof *letter);
        letter->reply = letter->message + message;
        list_add_tail(&actor->free_letters, &letter->node);
    }
    return 0;
}

static int actor_new(const weir_actor_spec *spec, struct actor **ret_actor)
{
    struct actor *actor = flow_alloc(sizeof *actor, spec->name);
    int r;

    if (!actor) return -ENOMEM;
    actor->spec = *spec;
    actor->spec.name = actor->object.name;
    if (actor->spec.mailbox_limit == 0) actor->spec.mailbox_limit = spec->mailbox_max;
    actor->mailbox_max = spec->mailbox_max;
    list_init(&actor->mailbox);
    list_init(&actor->free_letters);
    list_init(&actor->senders);
    list_init(&actor->servers);
    list_init(&actor->pauses);
    list_init(&actor->finishers);
    r = lay_out(actor);
    if (r < 0) {
        flow_free(&actor->object);
        return r;
    }
    *ret_actor = actor;
    return 0;
}

int weir_actor_open_sized(weir_scope *scope, size_t spec_bytes, const weir_actor_spec *given,
                          weir_actor **ret_actor)
{
    struct worker *worker = worker_self();
    weir_actor_spec spec;
    weir_task_spec task;
    struct actor *actor;
    void *handle;
    int r;

    if (!task_self()) return refuse_no_task("weir_actor_open");
    scope_check(scope, "weir_actor_open");
    spec_copy(&spec, sizeof spec, given, spec_bytes);
    r = check_spec(&spec);
    if (r < 0) return r;
    r = actor_new(&spec, &actor);
    if (r < 0) return r;
    r = handle_open(HANDLE_ACTOR, actor, &actor->handle);
    if (r < 0) goto fail_free;
    r = scope_own(scope, worker, &actor->object.belonging, &actor_kind);
    if (r < 0) goto fail_handle;
    meter_enter(&actor->metered, meter_get(&actor_meter_kind, actor->object.name, NULL));
    handle = actor->handle;
    task = (weir_task_spec){.fn = actor_main,
                            .arg = &actor,
                            .arg_bytes = sizeof actor,
                            .name = actor->object.name,
                            .place = spec.place,
                            .stack_bytes = spec.stack_bytes};
    r = weir_task_spawn(scope, &task, NULL);
    if (r < 0) {
        actor_release(worker, &actor->object.belonging);
    } else {
        *ret_actor = handle;
    }
    return r;

fail_handle:
    handle_close(actor->handle);
fail_free:
    mem_free(actor->memory);
    flow_free(&actor->object);
    return r;
}
