/* actor.c - the mailbox of an actor: calling, casting, taking, answering. */
#include "flow/actor.h"

#include <assert.h>
#include <stdio.h>

#include "base/planted.h"
#include "watch/trace.h"

static struct actor *look_up(const weir_actor *handle, const char *call)
{
    return flow_look_up(handle, HANDLE_ACTOR, "actor", call);
}

/* Not under the lock. */
static void call_hook(const struct actor *actor, void *message, int why)
{
    const weir_actor_spec *spec = &actor->spec;
    if (spec->on_undelivered) spec->on_undelivered(message, why, spec->keep_arg);
}

/* ---- With the lock held ---- */

static struct letter *letter_of(struct list *node)
{
    return node ? container_of(node, struct letter, node) : NULL;
}

static void letter_free(struct actor *actor, struct letter *letter)
{
    letter->post = NULL;
    if (__builtin_expect(letter->trace != NULL, 0)) {
        trace_unref(letter->trace);
        letter->trace = NULL;
    }
    list_add_head(&actor->free_letters, &letter->node);
}

/* There is a letter for it: the mailbox is not full. */
static void put(struct actor *actor, struct post *post)
{
    struct letter *letter = letter_of(list_pop(&actor->free_letters));

    assert(letter);
    assert(post);
    flow_copy(letter->message, post->waiter.item, actor->spec.message_bytes);
    letter->is_call = post->is_call;
    letter->post = post->is_call ? post : NULL;
    letter->since_ns =
        actor->metered.meter && actor->accepted % ACTOR_SAMPLE_EVERY == 0 ? weir_now_ns() : 0;
    letter->trace = trace_ref(trace_of(post->waiter.task));
    post->letter = letter;
    post->state = post->is_call ? POST_QUEUED : POST_DONE;
    list_add_tail(&actor->mailbox, &letter->node);
    actor->accepted++;
    if (++actor->depth > actor->depth_max) actor->depth_max = actor->depth;
}

static void wake_server(struct actor *actor)
{
    struct waiter *server = waiter_pop(&actor->servers);
    if (server) waiter_wake(server, 0);
}

/* There may be room: senders that wait go first. */
static void refill(struct actor *actor)
{
    while (actor->depth < actor->mailbox_max && !list_empty(&actor->senders)) {
        struct waiter *waiter = waiter_pop(&actor->senders);
        struct post *post = container_of(waiter, struct post, waiter);
        put(actor, post);
        if (!post->is_call) waiter_wake(waiter, 0);
        wake_server(actor);
    }
}

static struct letter *take_oldest(struct actor *actor)
{
    struct letter *letter = letter_of(list_pop(&actor->mailbox));
    if (letter) actor->depth--;
    return letter;
}

/* The caller, if it still waits, goes on with `result`. */
static void answer(struct letter *letter, int result)
{
    struct post *post = letter->post;
    if (!post) return;
    letter->post = NULL;
    post->state = POST_DONE;
    waiter_wake(&post->waiter, result);
}

/* Nobody handles it: its caller is told, or its message is copied for the hook. True: that. */
static bool undeliver(struct actor *actor, struct letter *letter, int why, void *ret_message)
{
    bool for_hook = !letter->is_call;

    actor->undelivered++;
    if (for_hook) {
        assert(ret_message);
        flow_copy(ret_message, letter->message, actor->spec.message_bytes);
    }
    answer(letter, why);
    letter_free(actor, letter);
    return for_hook;
}

/* ---- Sending ---- */

enum { MUST_WAIT = 1, DROPPED = 2 };

/* The lock is held. */
static bool is_own(const struct actor *actor, const struct task *self)
{
    return actor->task.ref == self && actor->task.id == atom_load(&self->id);
}

/* The mailbox is full. The lock is held. */
static int overflow(struct actor *actor, struct post *post, void *dropped)
{
    switch (actor->spec.overflow) {
    case WEIR_DROP_NEWEST:
        if (post->is_call) break;
        actor->accepted++;
        actor->undelivered++;
        assert(dropped);
        flow_copy(dropped, post->waiter.item, actor->spec.message_bytes);
        return DROPPED;
    case WEIR_DROP_OLDEST: {
        bool for_hook = undeliver(actor, take_oldest(actor), WEIR_EOVERLOAD, dropped);
        put(actor, post);
        return for_hook ? DROPPED : 0;
    }
    case WEIR_WAIT:
        if (is_own(actor, post->waiter.task)) break; /* it would wait for itself */
        post->state = POST_WAITING;
        list_add_tail(&actor->senders, &post->waiter.node);
        return MUST_WAIT;
    default: break;
    }
    actor->rejected++;
    return WEIR_EOVERLOAD;
}

/* The lock is held. */
static int offer(const weir_actor *handle, struct actor *actor, struct post *post, void *dropped)
{
    if (!flow_names(handle, HANDLE_ACTOR, actor)) return WEIR_ECLOSED;
    if (post->is_call && is_own(actor, post->waiter.task)) return WEIR_EREFUSED;
    if (actor->state != ACTOR_OPEN) return WEIR_ECLOSED;
    post->meter = actor->metered.meter;
    if (actor->depth >= actor->mailbox_max || !list_empty(&actor->senders)) {
        return overflow(actor, post, dropped);
    }
    put(actor, post);
    wake_server(actor);
    return 0;
}

/* A buffer for a message that is dropped lies only on the stack of who may need one. */
static __attribute__((noinline)) int offer_dropping(const weir_actor *handle, struct actor *actor,
                                                    struct post *post)
{
    unsigned char dropped[WEIR_ITEM_BYTES_MAX] __attribute__((aligned(16)));
    int r;

    flow_lock(&actor->object);
    r = offer(handle, actor, post, dropped);
    flow_unlock(&actor->object);
    if (r != DROPPED) return r;
    sanitize_acquire(actor);
    call_hook(actor, dropped, WEIR_EOVERLOAD);
    return 0;
}

static int submit(const weir_actor *handle, struct actor *actor, struct post *post)
{
    int r;

    sanitize_release(actor);
    if (actor->spec.overflow >= WEIR_DROP_NEWEST) return offer_dropping(handle, actor, post);
    flow_lock(&actor->object);
    r = offer(handle, actor, post, NULL);
    flow_unlock(&actor->object);
    return r;
}

/* A sender is interrupted. */
static bool post_abort(struct task *task, void *object)
{
    struct post *post = object;
    struct actor *actor = container_of(post->waiter.object, struct actor, object);
    bool leaves = true;

    (void)task;
    flow_lock(&actor->object); /* type-stable: there is a lock also if it has ended */
    switch (post->state) {
    case POST_WAITING: list_remove(&post->waiter.node); break;
    case POST_QUEUED:
        list_remove(&post->letter->node);
        actor->depth--;
        actor->removed++;
        letter_free(actor, post->letter);
        if (!PLANTED(ACTOR_ROOM_UNTOLD)) refill(actor);
        break;
    case POST_AT_HAND:
        if (!PLANTED(ACTOR_ANSWERS_WHO_LEFT)) post->letter->post = NULL;
        actor->abandoned++;
        break;
    case POST_DONE: leaves = false; break;
    }
    flow_unlock(&actor->object);
    return leaves;
}

static void post_describe(const void *object, char *text, size_t bytes)
{
    const struct post *post = object;
    (void)snprintf(text, bytes, "'%s'%s", post->waiter.object->name,
                   post->state == POST_WAITING   ? ", for room"
                   : post->state == POST_AT_HAND ? ", which is at it"
                                                 : "");
}

/* A call is answered by the actor's task; it makes room for others as well. */
static void post_facts(const void *object, struct waiting *ret_waiting)
{
    const struct post *post = object;
    const struct actor *actor = container_of(post->waiter.object, struct actor, object);
    const struct task *server = actor->task.ref;

    waiter_facts_of(post->waiter.object, ret_waiting);
    if (post->state == POST_WAITING) ret_waiting->what = WAIT_FOR_ROOM;
    if (post->state != POST_DONE && server && atom_load(&server->id) == actor->task.id) {
        waiting_by(ret_waiting, server, 0);
    } else {
        ret_waiting->ends = ENDS_OUTSIDE; /* it starts, or ends, or is done */
    }
}

static const struct wait_kind wait_call = {
    .name = "actor",
    .abort = post_abort,
    .describe = post_describe,
    .what = WAIT_FOR_ANSWER,
    .ends = ENDS_WITH_ALL,
    .facts = post_facts,
};

int weir_actor_call(weir_actor *handle, const void *message, void *ret_reply)
{
    struct actor *actor = look_up(handle, "weir_actor_call");
    struct task *self = task_self();
    struct post post = {
        .waiter = {.task = self, .object = &actor->object, .item = (void *)(uintptr_t)message},
        .is_call = true,
        .reply = ret_reply};
    int r;

    if (!self) return refuse_no_task("weir_actor_call");
    if (actor->spec.reply_bytes > 0 && !ret_reply) {
        return refuse("actor '%s': ret_reply is NULL, and replies have %zu bytes",
                      actor->object.name, actor->spec.reply_bytes);
    }
    r = task_enter(self, ENTER_PLAIN);
    if (r < 0) return r;
    r = submit(handle, actor, &post);
    if (r == WEIR_EREFUSED) {
        return refuse("actor '%s': calls itself, and would wait for itself", actor->object.name);
    }
    if (r < 0) return r;
    r = task_park(self, &wait_call, &post);
    return r < 0 ? meter_interrupted(post.meter, ACTOR_TIMEOUTS, r) : r;
}

int weir_actor_cast(weir_actor *handle, const void *message)
{
    struct actor *actor = look_up(handle, "weir_actor_cast");
    struct task *self = task_self();
    struct post post = {
        .waiter = {.task = self, .object = &actor->object, .item = (void *)(uintptr_t)message}};
    int r;

    if (!self) return refuse_no_task("weir_actor_cast");
    r = task_enter(self, ENTER_PLAIN);
    if (r < 0) return r;
    r = submit(handle, actor, &post);
    if (r != MUST_WAIT) return r;
    r = task_park(self, &wait_call, &post);
    return r < 0 ? meter_interrupted(post.meter, ACTOR_TIMEOUTS, r) : r;
}

/* ---- Taking, in the actor's task ---- */

/* So long it was in the mailbox, or at hand. */
static void measure(struct actor *actor, struct letter *letter, unsigned histogram)
{
    int64_t now_ns;

    if (!letter->since_ns) return;
    now_ns = weir_now_ns();
    meter_observe(actor->metered.meter, histogram, now_ns - letter->since_ns);
    letter->since_ns = now_ns;
}

static const struct wait_kind wait_message = {
    .name = "message",
    .abort = waiter_abort,
    .describe = waiter_describe,
    .what = WAIT_FOR_WORK,
    .ends = ENDS_AT_CLOSE,
    .facts = waiter_facts,
};

int actor_next(struct actor *actor, struct task *self, struct letter **ret_letter)
{
    for (;;) {
        struct waiter server = {.task = self, .object = &actor->object};
        int r = task_enter(self, ENTER_PLAIN);

        if (r < 0) return r;
        flow_lock(&actor->object);
        *ret_letter = take_oldest(actor);
        if (*ret_letter) {
            actor->at_hand = *ret_letter;
            if ((*ret_letter)->post) (*ret_letter)->post->state = POST_AT_HAND;
            refill(actor);
            flow_unlock(&actor->object);
            sanitize_acquire(actor);
            measure(actor, *ret_letter, ACTOR_WAIT);
            return 0;
        }
        if (actor->state != ACTOR_OPEN) {
            flow_unlock(&actor->object);
            return 1;
        }
        list_add_tail(&actor->servers, &server.node);
        flow_unlock(&actor->object);
        r = waiter_park(self, &server, &wait_message);
        if (r < 0) return r;
    }
}

void actor_handled(struct actor *actor, struct letter *letter, int result)
{
    measure(actor, letter, ACTOR_RUN);
    flow_lock(&actor->object);
    actor->at_hand = NULL;
    if (result < 0) {
        actor->crashed++;
        result = WEIR_ECRASHED;
    } else {
        actor->handled++;
        if (letter->post && actor->spec.reply_bytes > 0) {
            flow_copy(letter->post->reply, letter->reply, actor->spec.reply_bytes);
        }
    }
    answer(letter, result);
    letter_free(actor, letter);
    flow_unlock(&actor->object);
}

/* ---- The end ---- */

static __attribute__((noinline)) void empty_mailbox(struct actor *actor)
{
    unsigned char message[WEIR_ITEM_BYTES_MAX] __attribute__((aligned(16)));

    for (;;) {
        struct letter *letter;
        bool for_hook = false;
        flow_lock(&actor->object);
        letter = take_oldest(actor);
        if (letter) for_hook = undeliver(actor, letter, WEIR_ECLOSED, message);
        flow_unlock(&actor->object);
        if (!letter) return;
        sanitize_acquire(actor);
        if (for_hook) call_hook(actor, message, WEIR_ECLOSED);
    }
}

/* The lock is held. */
static void turn_senders_away(struct actor *actor)
{
    struct waiter *waiter;
    while ((waiter = waiter_pop(&actor->senders))) {
        container_of(waiter, struct post, waiter)->state = POST_DONE;
        waiter_wake(waiter, WEIR_ECLOSED);
    }
}

bool actor_end(struct actor *actor, int result)
{
    bool given_up;

    flow_lock(&actor->object);
    if (actor->state == ACTOR_OPEN) actor->state = ACTOR_CLOSED;
    turn_senders_away(actor);
    flow_unlock(&actor->object);
    empty_mailbox(actor);
    sanitize_release(&actor->finishers);
    flow_lock(&actor->object);
    actor->state = ACTOR_ENDED;
    actor->result = result;
    waiter_tell_all(&actor->finishers, result);
    given_up = actor->given_up;
    flow_unlock(&actor->object);
    return given_up;
}

void actor_stop(struct actor *actor, enum weir_on_close how)
{
    weir_task task = {NULL, 0};

    flow_lock(&actor->object);
    if (actor->state == ACTOR_OPEN) {
        actor->state = ACTOR_CLOSED;
        turn_senders_away(actor);
        wake_server(actor);
        waiter_wake_all(&actor->pauses, 0); /* nobody comes any more that it could spare */
    }
    if (how == WEIR_DISCARD && actor->state == ACTOR_CLOSED) {
        actor->discards = true; /* if its task has not begun, it finds this */
        task = actor->task;
    }
    flow_unlock(&actor->object);
    if (task.ref) (void)weir_task_cancel(task, "the actor was stopped");
}

void weir_actor_stop(weir_actor *handle, enum weir_on_close how)
{
    struct actor *actor = look_up(handle, "weir_actor_stop");
    struct worker *worker = worker_self();

    if (!worker) misuse("weir_actor_stop: called on a thread that is not the runtime's");
    if (how != WEIR_DRAIN && how != WEIR_DISCARD) {
        misuse("weir_actor_stop: actor '%s': neither WEIR_DRAIN nor WEIR_DISCARD",
               actor->object.name);
    }
    actor_stop(actor, how);
    worker_touched(worker);
}

static const struct wait_kind wait_end = {
    .name = "actor's end",
    .abort = waiter_abort,
    .describe = waiter_describe,
    .what = WAIT_FOR_END,
    .ends = ENDS_WITH_TASKS,
    .facts = waiter_facts,
};

int weir_actor_wait(weir_actor *handle)
{
    struct actor *actor = look_up(handle, "weir_actor_wait");
    struct task *self = task_self();
    int r, result = 0; /* written by who wakes us: the actor may be gone then */
    struct waiter waiter = {.task = self, .object = &actor->object, .item = &result};

    if (!self) return refuse_no_task("weir_actor_wait");
    r = task_enter(self, ENTER_PLAIN);
    if (r < 0) return r;
    flow_lock(&actor->object);
    if (!flow_names(handle, HANDLE_ACTOR, actor)) {
        flow_unlock(&actor->object);
        return WEIR_ECLOSED;
    }
    if (is_own(actor, self)) {
        flow_unlock(&actor->object);
        return refuse("actor '%s': waits for its own end", actor->object.name);
    }
    if (actor->state != ACTOR_ENDED) {
        list_add_tail(&actor->finishers, &waiter.node);
        flow_unlock(&actor->object);
        r = waiter_park(self, &waiter, &wait_end);
        if (r < 0) return r;
    } else {
        result = actor->result;
        flow_unlock(&actor->object);
    }
    sanitize_acquire(&actor->finishers);
    return result;
}

/* ---- Changing and looking ---- */

int weir_actor_resize(weir_actor *handle, size_t mailbox_max)
{
    struct actor *actor = look_up(handle, "weir_actor_resize");

    if (!worker_self()) return refuse_no_task("weir_actor_resize");
    if (mailbox_max == 0 || mailbox_max > actor->spec.mailbox_limit) {
        return refuse("actor '%s': mailbox_max %zu is not within 1 and mailbox_limit, %zu",
                      actor->object.name, mailbox_max, actor->spec.mailbox_limit);
    }
    flow_lock(&actor->object);
    actor->mailbox_max = mailbox_max;
    refill(actor);
    flow_unlock(&actor->object);
    return 0;
}

void weir_actor_figures_of(weir_actor *handle, weir_actor_figures *ret_figures)
{
    struct actor *actor = look_up(handle, "weir_actor_figures_of");
    size_t waiting = 0;

    flow_check_worker("weir_actor_figures_of");
    flow_lock(&actor->object);
    list_for_each(node, &actor->senders) waiting++;
    *ret_figures = (weir_actor_figures){
        .depth = actor->depth,
        .depth_max = actor->depth_max,
        .mailbox_max = actor->mailbox_max,
        .senders_waiting = waiting,
        .at_hand = actor->at_hand != NULL,
        .ended = actor->state == ACTOR_ENDED,
        .accepted = actor->accepted,
        .handled = actor->handled,
        .rejected = actor->rejected,
        .crashed = actor->crashed,
        .removed = actor->removed,
        .abandoned = actor->abandoned,
        .undelivered = actor->undelivered,
        .restarts = actor->restarts,
    };
    flow_unlock(&actor->object);
}
