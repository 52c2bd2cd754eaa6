/* actor.h - actors: state that one task owns, behind a bounded mailbox.
 *
 * Others send messages; the actor's task takes them one by one and calls a function with
 * its state. Nobody else touches the state, so it needs no lock. A message is cast (nobody
 * waits for it) or called: the caller waits for a reply, under its own deadline.
 *
 *     r = weir_actor_open(scope, &(weir_actor_spec){.name = "account", .mailbox_max = 64,
 *                         .overflow = WEIR_WAIT, .on_restart = WEIR_RESTART_RESET,
 *                         .restart = {.max_restarts = 3, .window_ms = 10000, .backoff_ms = 10},
 *                         .on_message = account_handle, .message_bytes = sizeof(struct order),
 *                         .reply_bytes = sizeof(struct receipt),
 *                         .state_bytes = sizeof(struct account)}, &account);
 *     r = weir_actor_call(account, &order, &receipt);
 *
 * When on_message (or init) fails, the actor is started again: after a time that doubles,
 * with the state as it was or a new one, as said; what is in the mailbox stays there. The
 * message at which it failed is not tried again. Beyond the restart intensity the actor
 * ends, and its failure is one of its scope's tasks'.
 *
 * Owner: a scope, of which the actor's task is one. Lifetime: until it is stopped or closed,
 * or the scope ends: the close of a scope lets actors finish what they have when all other
 * tasks have ended, the newest first. Backpressure: `mailbox_max` messages and the named
 * overflow. Failure: as above; on_undelivered gets every message that was accepted and is
 * handled by nobody.
 *
 * Invariants: a message that was accepted is handled once, or was at hand when the actor
 * failed, or its caller is told that it was not handled, or it goes to on_undelivered.
 * Messages of one sender are handled in order. The actor handles one message at a time.
 * Threads: tasks of the runtime, on any worker.
 */
#ifndef WEIR_ACTOR_H
#define WEIR_ACTOR_H

#include <weir/chan.h>
#include <weir/defs.h>
#include <weir/error.h>
#include <weir/scope.h>

WEIR_BEGIN

typedef struct weir_actor weir_actor;

#define WEIR_MAILBOX_MAX 1048576

/* What a failure leaves of an actor. */
enum weir_on_restart {
    WEIR_ON_RESTART_UNSET = 0,
    WEIR_RESTART_KEEP,  /* it goes on with the state as the failure left it */
    WEIR_RESTART_RESET, /* deinit, then zeros and init */
    WEIR_RESTART_NEVER, /* the first failure ends it; `restart` is not said */
};

/* What handles a message, in the actor's task. 0 or more: handled, and what a caller gets
 * from weir_actor_call; an answer that says no is one as well, in `reply`. Negative: the
 * actor has failed. `reply` is zeroed, and NULL if nobody waits for it; `message` is valid
 * for the call. It may suspend; meanwhile messages wait. */
typedef int (*weir_actor_fn)(void *state, const void *message, void *reply, void *keep_arg);

/* Makes the state from zeros, in the actor's task: 0 or more, or the actor has failed. */
typedef int (*weir_actor_init_fn)(void *state, void *keep_arg);

/* Gives back what the state holds; it must not suspend. */
typedef void (*weir_actor_deinit_fn)(void *state, void *keep_arg);

/* Called once for each cast message that was accepted and is handled by nobody: `why` is
 * WEIR_EOVERLOAD (dropped by the overflow) or WEIR_ECLOSED (the actor has ended). In the
 * task of whoever made it so; it must not suspend. */
typedef void (*weir_undelivered_fn)(void *message, int why, void *keep_arg);

/* name, mailbox_max, overflow, on_restart, on_message and message_bytes must be said, and
 * restart unless it is WEIR_RESTART_NEVER. */
typedef struct weir_actor_spec {
    const char *name;   /* copied, at most 31 bytes */
    size_t mailbox_max; /* messages that wait, at most WEIR_MAILBOX_MAX */
    /* WEIR_DROP_*: of calls that are dropped the caller gets WEIR_EOVERLOAD. */
    enum weir_overflow overflow;
    enum weir_on_restart on_restart;
    weir_restart restart; /* intensity and backoff, as of a scope */
    weir_actor_fn on_message;
    size_t message_bytes; /* at most WEIR_ITEM_BYTES_MAX */
    size_t reply_bytes;   /* at most WEIR_ITEM_BYTES_MAX; 0: replies are empty */
    size_t state_bytes;
    weir_actor_init_fn init;            /* default: the state begins as zeros */
    weir_actor_deinit_fn deinit;        /* default: it holds nothing */
    weir_undelivered_fn on_undelivered; /* default: messages are plain bytes, and counted */
    void *keep_arg;                     /* of all of these */
    size_t mailbox_limit;  /* weir_actor_resize may go up to this; default: mailbox_max */
    int64_t latency_ms;    /* how long a message should wait at most; shown beside what is
                             measured; 0: not said */
    enum weir_place place; /* of its task; default: the scope's */
    size_t stack_bytes;    /* of its task; default: the scope's */
} weir_actor_spec;

/* weir_actor_spec_init - set every member to "not said". */
static inline void weir_actor_spec_init(weir_actor_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* weir_actor_open(scope, &spec, &actor) - an actor, and its task. Suspends only while the
 * scope is full and its overflow is WEIR_WAIT. Cancel: nothing moved (there is no actor).
 * Errors: WEIR_EREFUSED (weir_why), WEIR_EOVERLOAD (no room for a task), WEIR_ECANCELED,
 * WEIR_ENOTASK, -ENOMEM, -ENFILE. */
WEIR_SUSPENDS int weir_actor_open_sized(weir_scope *scope, size_t spec_bytes,
                                        const weir_actor_spec *spec, weir_actor **ret_actor);
#define weir_actor_open(scope, ...) \
    weir_actor_open_sized((scope), sizeof(weir_actor_spec), __VA_ARGS__)

/* weir_actor_call - send a message, copied, and wait until it has been handled; the reply is
 * copied to `ret_reply` (NULL if reply_bytes is 0). Returns what on_message did, 0 or more.
 * Cancel: nothing moved while the message waits: it is removed; outcome unknown while it is
 * being handled: the reply is thrown away. Errors: WEIR_EOVERLOAD (full), WEIR_ECLOSED (the
 * actor ends or has ended, and the message was not handled), WEIR_ECRASHED (the actor failed,
 * or was ended, while it handled the message), WEIR_EREFUSED (an actor that calls itself),
 * WEIR_ECANCELED, WEIR_ETIMEDOUT, WEIR_ENOTASK. */
WEIR_SUSPENDS int weir_actor_call(weir_actor *actor, const void *message, void *ret_reply);

/* weir_actor_cast - send a message, copied, for which nobody waits. Suspends while the
 * mailbox is full and its overflow is WEIR_WAIT (the actor itself gets WEIR_EOVERLOAD).
 * Cancel: nothing moved. Errors: WEIR_EOVERLOAD, WEIR_ECLOSED, WEIR_ECANCELED,
 * WEIR_ETIMEDOUT, WEIR_ENOTASK. */
WEIR_SUSPENDS int weir_actor_cast(weir_actor *actor, const void *message);

/* weir_actor_stop - no more messages are accepted. WEIR_DRAIN: the actor handles what it has
 * and ends. WEIR_DISCARD: it is cancelled at what it is doing. Never suspends. Stopping again
 * changes nothing, but for WEIR_DISCARD after WEIR_DRAIN. Threads: a worker. */
WEIR_API void weir_actor_stop(weir_actor *actor, enum weir_on_close how);

/* weir_actor_wait - wait until the actor has ended. Cancel: nothing moved. Returns 0, or the
 * failure with which it has (WEIR_ECANCELED: it was cancelled, or discarded its messages).
 * Errors of its own: WEIR_ECLOSED (it was closed before this could wait), WEIR_ETIMEDOUT,
 * WEIR_ECANCELED, WEIR_ENOTASK. */
WEIR_SUSPENDS int weir_actor_wait(weir_actor *actor);

/* weir_actor_close - give the handle up: as weir_actor_stop with WEIR_DISCARD; its memory is
 * freed when it has ended, before its scope is. Takes NULL. Never suspends. */
WEIR_API void weir_actor_close(weir_actor *take_actor);

/* weir_actor_resize - another mailbox_max, from 1 to mailbox_limit. What is in it stays.
 * Errors: WEIR_EREFUSED. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_actor_resize(weir_actor *actor, size_t mailbox_max);

/* What an actor has seen: accepted = depth + at_hand + handled + crashed + removed +
 * undelivered. */
typedef struct weir_actor_figures {
    size_t depth, depth_max, mailbox_max;
    size_t senders_waiting;
    bool at_hand; /* a message is being handled */
    bool ended;   /* it accepts none any more, and its task has ended */
    uint64_t accepted, handled, rejected;
    uint64_t crashed;     /* messages at which it failed */
    uint64_t removed;     /* their callers were cancelled while they waited */
    uint64_t abandoned;   /* their callers were cancelled while they were being handled */
    uint64_t undelivered; /* dropped, or left when it ended; calls included */
    uint64_t restarts;
} weir_actor_figures;

/* weir_actor_figures_of - the figures now. Never suspends. */
WEIR_API void weir_actor_figures_of(weir_actor *actor, weir_actor_figures *ret_figures);

WEIR_END

#endif
