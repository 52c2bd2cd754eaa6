/* chan.h - what a channel is inside.
 *
 * Invariants, under the locks: receivers wait only while nothing is stored and no sender
 * waits (a foreign thread may have stored something a moment ago: then mail to the home
 * worker is under way, which hands it over); senders wait only while the channel is full;
 * nobody waits in a channel that is over.
 *
 *     OPEN ──close, or last sender gone──▶ CLOSED ──empty──▶ OVER
 *        └──last receiver gone, or the scope ends───────────▶ OVER
 */
#ifndef WEIR_FLOW_CHAN_H
#define WEIR_FLOW_CHAN_H

#include <weir/chan.h>

#include "flow/wait.h"
#include "watch/metrics.h"

struct chan;

enum { CHAN_PLAIN = 0x5a };

/* An end has a handle of its own, which names the channel: one step less for each call. */
struct chan_end {
    struct list node; /* in chan->ends */
    void *handle;
    bool sends;
};

/* What the sends, or the receives, of a channel that several workers use touch: see
 * chan_sides.c. The lines around it are touched by nobody. */
struct chan_side {
    unsigned char lines_before[64];
    ATOM(bool) busy;              /* its lock: held for a few instructions */
    unsigned char *at;            /* where the next item goes, or is */
    uint32_t limit;               /* so many may be moved without a look at the other side, ... */
    uint32_t base;                /* ... so many if the other had moved none, ... */
    uint32_t most;                /* ... and so many without all locks, whatever the other does */
    ATOM(uint32_t) moved;         /* since all locks were held; the other side looks at it */
    uint32_t deepest;             /* so many were seen to be stored since then */
    ATOM(unsigned) vain;          /* times in a row that it was no use to wait for the other */
    ATOM(struct worker *) worker; /* that has moved the last one */
    unsigned char lines_after[64];
};

struct chan {
    struct flow_object object;
    /* What every send and receive touches. */
    unsigned char *head;      /* the oldest item */
    unsigned char *tail;      /* where the next one goes */
    unsigned char *head_mark; /* where the head wraps, or has passed the item that is measured */
    unsigned char *tail_mark; /* where the tail wraps, or an item may be measured */
    uint32_t item_bytes;
    uint32_t capacity;   /* 0: a rendezvous */
    uint32_t wait_from;  /* a send waits if so many are there: the capacity, unless it is refused */
    uint32_t send_limit; /* a word is stored at once while fewer are there: chan_set_limits */
    uint32_t recv_limit; /* a word is taken at once while fewer are left after it */
    uint32_t count;
    uint32_t depth_max;
    uint8_t send_plain; /* CHAN_PLAIN: one of the common kind, which send and receive do at once: */
    uint8_t recv_plain; /* chan_set_plain */
    bool over_or_work;  /* a receive that finds nothing does not just wait */
    uint8_t overflow;   /* enum weir_overflow */
    struct list senders;
    struct list receivers;
    uint64_t received;
    /* The rest. */
    unsigned char *items; /* `slots` of them; NULL for a rendezvous */
    unsigned char *end;   /* of the slots */
    uint32_t slots;       /* capacity_max */
    bool discards;        /* on_close is WEIR_DISCARD */
    bool takes_work;
    bool counts_done;
    bool any_thread;
    bool closed;        /* no more sends */
    bool scope_is_gone; /* any_thread: only its ends keep it alive */
    bool mail_under_way;
    unsigned holders;      /* calls that still use it, although their end is gone, or the scope */
    struct list finishers; /* wait until unfinished is 0 */
    unsigned tx_count;
    unsigned rx_count;
    struct list ends;
    uint64_t unfinished;
    uint64_t taken; /* received and not marked as done */
    struct mail mail;
    weir_drop_fn on_drop;
    void *drop_arg;
    int64_t latency_ms;
    uint64_t rejected;
    uint64_t dropped;
    unsigned char *sampled; /* the stored item whose wait is measured, or NULL */
    int64_t sampled_ns;     /* when its send began */
    uint64_t sample_at;     /* so many accepted items are not measured */
    struct metered metered;
    struct trace_node **notes; /* of each slot, in which context it was sent; NULL: not traced */
    bool traced;               /* contexts go with items */
    /* Not there at all if it has no sides. */
    struct chan_side tx;
    struct chan_side rx;
};

/* One wait at a time is measured, of every so many items: the clock costs more than a send,
 * and the locks of both sides still more. */
enum { CHAN_SAMPLE_EVERY = 64, CHAN_SAMPLE_EVERY_APART = 512 };

/* ---- Locks (chan_sides.c): the object's, and one of each side ---- */

/* Of a new channel. */
void chan_sides_init(struct chan *chan);
/* Take the locks of both sides, and account for what they have moved; and let go. */
void chan_sides_join(struct chan *chan);
void chan_sides_part(struct chan *chan);

/* All but chan_send_apart and chan_recv_apart need all of them; only who takes out a waiter
 * (waiter_abort) is content with the object's. */
static inline void chan_lock(struct chan *chan)
    LOCK_ACQUIRES(chan->object.stable.lock, weir_no_park) LOCK_UNCHECKED
{
    flow_lock(&chan->object);
    if (chan->object.has_sides) chan_sides_join(chan);
}

static inline void chan_unlock(struct chan *chan)
    LOCK_RELEASES(chan->object.stable.lock, weir_no_park) LOCK_UNCHECKED
{
    if (chan->object.has_sides) chan_sides_part(chan);
    flow_unlock(&chan->object);
}

/* The same for a call of an end that may have yielded, or whose channel another worker may end:
 * its memory may be another's then. False, and nothing is locked: the end names it no more. */
static inline bool chan_lock_named(struct chan *chan, const void *end, enum handle_kind kind)
    LOCK_ACQUIRES_IF_TRUE(chan->object.stable.lock, weir_no_park) LOCK_UNCHECKED
{
    flow_lock(&chan->object);
    if (!flow_names(end, kind, chan)) {
        flow_unlock(&chan->object);
        return false;
    }
    if (chan->object.has_sides) chan_sides_join(chan);
    return true;
}

/* A send or a receive with the lock of its side alone, no lock being held: false if that
 * is not possible just now, or the end names the channel no more. */
bool chan_send_apart(struct worker *worker, struct chan *chan, const weir_tx *tx, const void *item);
bool chan_recv_apart(struct worker *worker, struct chan *chan, const weir_rx *rx, void *item);

/* What was accepted was received, or dropped, or is stored. The locks are held. */
static inline uint64_t chan_accepted(const struct chan *chan)
{
    return chan->received + chan->dropped + chan->count;
}

/* The tail is at a mark, or new. */
static inline void chan_aim_tail(struct chan *chan)
{
    size_t step = (size_t)CHAN_SAMPLE_EVERY * chan->item_bytes;
    size_t left = (size_t)(chan->end - chan->tail);
    chan->tail_mark = chan->tail + (left < step ? left : step);
}

/* The head has moved, or what is measured has changed. */
static inline void chan_aim_head(struct chan *chan)
{
    bool ahead = chan->sampled && chan->sampled >= chan->head;
    chan->head_mark = ahead ? chan->sampled + chan->item_bytes : chan->end;
}

/* Copy one. */
static inline void chan_copy_item(const struct chan *chan, void *to, const void *from)
{
    /* A number, a pointer or two are the usual items: no call for those. */
    if (chan->item_bytes == sizeof(uint64_t)) {
        memcpy(to, from, sizeof(uint64_t));
    } else if (chan->item_bytes == sizeof(uint32_t)) {
        memcpy(to, from, sizeof(uint32_t));
    } else if (chan->item_bytes == 2 * sizeof(uint64_t)) {
        memcpy(to, from, 2 * sizeof(uint64_t));
    } else {
        sanitize_unseen_begin(); /* edges are those of the calls, not of the copies */
        memcpy(to, from, chan->item_bytes);
        sanitize_unseen_end();
    }
}

/* Results of the attempts below, beyond 0 and errors. */
enum { CHAN_MUST_WAIT = 1, CHAN_DROPPED_THIS = 2, CHAN_DROPPED_OLDEST = 3 };

/* Give an item to the channel, with its lock held: 0 it is done; CHAN_MUST_WAIT (also if
 * the policy is to reject: chan_refuse then counts it); an error; or what was dropped, to
 * be handed to the hook once the lock was let go (the oldest was copied to `displaced`). */
int chan_offer(struct chan *chan, const void *item, void *displaced);
/* Take an item, with the lock held: 0, CHAN_MUST_WAIT, WEIR_ECLOSED. */
int chan_take(struct chan *chan, void *item);

/* The same where nothing is special (send_plain, recv_plain), on the only worker: true if
 * it was done, false if it must wait or the channel is over. */
bool chan_send_at_once(struct worker *worker, struct chan *chan, const void *item);
bool chan_recv_at_once(struct worker *worker, struct chan *chan, void *item);

/* The head is at its mark: wrap, and measure. Returns 0, so that a call may end with it. */
int chan_head_at_mark(struct chan *chan, bool received);

/* There, and if recv_limit allows it: take a word, after which `left` are stored. Returns 0. */
static inline int chan_take_word(struct chan *chan, void *item, uint32_t left)
{
    unsigned char *head = chan->head;

    memcpy(item, head, sizeof(uint64_t));
    head += sizeof(uint64_t);
    chan->head = head;
    chan->count = left;
    chan->received++;
    if (__builtin_expect(head != chan->head_mark, 1)) return 0;
    return chan_head_at_mark(chan, true);
}

/* An item that was not stored has been received; 0: its wait is not measured. Returns 0. */
int chan_sample_passed(struct chan *chan, int64_t since_ns);

/* Whether the first of a queue waits for this alone, and items are words. */
static inline bool chan_waits_alone(const struct chan *chan, const struct list *queue)
{
    const struct waiter *first = container_of(queue->next, struct waiter, node);
    return queue->next != queue && chan->item_bytes == sizeof(uint64_t) && !first->group;
}

/* Take that one out. It need not point at itself, since nobody takes it out again: it is woken
 * at once. */
static inline struct waiter *chan_pop_alone(struct list *queue)
{
    struct list *node = queue->next;

    queue->next = node->next;
    node->next->prev = queue;
    return container_of(node, struct waiter, node);
}

/* There, if nothing is stored and waits_alone says so: take the word of who waits. Returns 0. */
static inline int chan_fetch_word(struct chan *chan, struct worker *worker, void *item)
{
    struct waiter *sender = chan_pop_alone(&chan->senders);
    int64_t since_ns = sender->since_ns; /* its memory is its own again once it is woken */

    memcpy(item, sender->item, sizeof(uint64_t));
    task_wake_here(worker, sender->task);
    chan->received++;
    if (__builtin_expect(since_ns == 0, 1)) return 0;
    return chan_sample_passed(chan, since_ns);
}

/* Parts of the above. The lock is held; on a worker. */
void chan_unstore(struct chan *chan, void *item); /* the oldest item, which is dropped */
void chan_settle(struct chan *chan);              /* stored items to receivers that wait */
void chan_refill(struct chan *chan);              /* items of senders that wait are stored */
/* The lock is held; any thread. */
void chan_finish(struct chan *chan, uint64_t count); /* items are finished, or dropped */
void chan_ask_home(struct chan *chan);               /* to wake whom a foreign thread cannot */
/* Not under the lock. */
void chan_call_hook(const struct chan *chan, void *item, enum weir_drop why);

/* Of kinds of wait for a channel. */
void chan_facts(const void *object, struct waiting *ret_waiting);

/* Begin a call of an end. If that yields, another may drop the end, and the channel be over. */
static inline int chan_enter(struct task *self, const struct chan *chan, const void *end,
                             enum handle_kind kind)
{
    int r;

    if (task_enter_at_once(self)) return 0;
    r = task_enter_slow(self, ENTER_PLAIN);
    if (r < 0) return r;
    return flow_names(end, kind, chan) ? 0 : WEIR_ECLOSED;
}

/* So that a send, or a receive, of a single word sees by one number that there is room (an item)
 * and nobody waits for it. 0 says: look closer; so it is while somebody waits, and may be
 * after that until the next who has looked closer sets it anew. */
static inline void chan_set_limits(struct chan *chan)
{
    bool words = chan->item_bytes == sizeof(uint64_t);
    /* Not more than there have been: so that is not looked at by each of them. */
    uint32_t room = chan->depth_max < chan->capacity ? chan->depth_max : chan->capacity;

    chan->send_limit = words && list_empty(&chan->receivers) ? room : 0;
    chan->recv_limit = words && list_empty(&chan->senders) ? UINT32_MAX : 0;
}

/* The lock is held: whether sends and receives are plain moves in memory has changed. They never
 * are if others may be at it: then this is read without the lock, maybe by a call that comes
 * late, and finds zeros or something else's memory. */
static inline void chan_set_plain(struct chan *chan)
{
    bool sends = !chan->counts_done && !chan->traced && !chan->closed && chan->rx_count > 0 &&
                 chan->overflow < WEIR_DROP_NEWEST;

    if (chan->object.stable.shared) return;
    chan->recv_plain = chan->counts_done || chan->traced ? 0 : CHAN_PLAIN;
    chan->over_or_work = chan->takes_work || chan->closed || chan->tx_count == 0;
    chan->wait_from = chan->overflow == WEIR_WAIT ? chan->capacity : UINT32_MAX;
    chan->send_plain = sends ? CHAN_PLAIN : 0;
    chan_set_limits(chan);
}

/* Somebody waits, with the lock held. */
static inline void chan_add_sender(struct chan *chan, struct waiter *waiter)
{
    list_add_tail(&chan->senders, &waiter->node);
    if (chan->recv_limit) chan->recv_limit = 0; /* mostly it is: a store is the dearer one */
}

static inline void chan_add_receiver(struct chan *chan, struct waiter *waiter)
{
    list_add_tail(&chan->receivers, &waiter->node);
    if (chan->send_limit) chan->send_limit = 0;
}

/* Abort if the calling thread may not use the channel. */
void chan_check_thread(const struct chan *chan, const char *call);

/* The channel behind an end of a program. */
static inline struct chan *chan_of_tx(const weir_tx *tx, const char *call)
{
    return flow_look_up(tx, HANDLE_TX, "sending end", call);
}

static inline struct chan *chan_of_rx(const weir_rx *rx, const char *call)
{
    return flow_look_up(rx, HANDLE_RX, "receiving end", call);
}

#endif
