/* actor.h - what an actor is inside.
 *
 * Its mailbox is a list of letters. There are mailbox_limit + 1 of them: one is at hand.
 * A post is what a sender has on its stack: of a call until it is answered, of a cast only
 * while there is no room.
 *
 *     of a post:  WAITING ──room──▶ QUEUED ──taken──▶ AT_HAND ──answered──▶ DONE
 *                    └── cancelled: removed ──┘          └── cancelled: its letter goes on
 *
 *     of an actor:  OPEN ──stop──▶ CLOSED ──its task has left──▶ ENDED
 *
 * Invariants, under the lock: a letter is in `mailbox`, or in `free_letters`, or at hand; a
 * letter's post is one whose caller waits for it; who waits for room does so only while the
 * mailbox is full; nobody waits in an actor that has ended.
 */
#ifndef WEIR_FLOW_ACTOR_H
#define WEIR_FLOW_ACTOR_H

#include <weir/actor.h>
#include <weir/task.h>

#include "flow/meters.h"
#include "flow/wait.h"

enum post_state { POST_WAITING, POST_QUEUED, POST_AT_HAND, POST_DONE };
/* The clock costs more than a message: it is asked for one in so many. */
enum { ACTOR_SAMPLE_EVERY = 64 };
enum actor_state { ACTOR_OPEN, ACTOR_CLOSED, ACTOR_ENDED };

struct letter;

struct post {
    struct waiter waiter; /* in `senders` while WAITING; its item is the message */
    enum post_state state;
    bool is_call;
    void *reply;
    struct letter *letter;
    struct meter *meter; /* the actor may be gone when its sender goes on; its meter is not */
};

struct letter {
    struct list node;
    struct post *post; /* whose caller waits, or NULL */
    bool is_call;
    int64_t since_ns; /* in the mailbox, then at hand; 0: it is not measured */
    unsigned char *message;
    unsigned char *reply;
    struct trace_node *trace; /* in which it was sent; its own */
};

struct actor {
    struct flow_object object;
    void *handle; /* NULL once it was given up */
    weir_actor_spec spec;
    weir_task task; /* its own, once it runs */
    enum actor_state state;
    bool discards;         /* it was told to drop what it has */
    bool given_up;         /* weir_actor_close: free it when its task has ended */
    bool has_state;        /* init has succeeded */
    int result;            /* with which it has ended */
    unsigned char *memory; /* of letters, state and restart_times */
    unsigned char *user_state;
    int64_t *restart_times; /* ring of restart.max_restarts */
    unsigned restart_head, restart_count;
    int backoff_count;
    struct list mailbox;
    struct list free_letters;
    struct list senders;   /* wait for room */
    struct list servers;   /* its task, waiting for a message */
    struct list pauses;    /* its task, before it starts again */
    struct list finishers; /* wait for its end */
    struct letter *at_hand;
    size_t depth, depth_max, mailbox_max;
    uint64_t accepted, handled, rejected, crashed, removed, abandoned, undelivered, restarts;
    struct metered metered;
};

/* ---- actor.c: the mailbox ---- */

/* The next message. 1: there is none and will be none. Suspends. */
int actor_next(struct actor *actor, struct task *self, struct letter **ret_letter);
/* It has been handled, with what result. */
void actor_handled(struct actor *actor, struct letter *letter, int result);
/* The actor has ended: everybody who waits is told, and what is left goes to the hook. True:
 * it was given up, and the caller frees it; else it may be gone at once. */
bool actor_end(struct actor *actor, int result);
void actor_stop(struct actor *actor, enum weir_on_close how);

/* ---- actor_life.c ---- */

/* The actor's task; its argument is a pointer to the actor. */
int actor_main(void *arg);

#endif
