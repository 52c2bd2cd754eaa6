/* chan.h - what a channel is inside.
 *
 * Invariants, under the lock: receivers wait only while nothing is stored and no sender
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

/* An end has a handle of its own, which names the channel: one step less for each call. */
struct chan_end {
    struct list node; /* in chan->ends */
    void *handle;
    bool sends;
};

struct chan {
    struct flow_object object;
    /* What every send and receive touches. */
    unsigned char *head;      /* the oldest item */
    unsigned char *tail;      /* where the next one goes */
    unsigned char *head_mark; /* where the head wraps, or has passed the item that is measured */
    unsigned char *tail_mark; /* where the tail wraps, or an item may be measured */
    uint32_t item_bytes;
    uint32_t capacity;      /* 0: a rendezvous */
    uint32_t word_capacity; /* the same, if items are single words, else 0 */
    uint32_t count;
    uint32_t depth_max;
    bool send_special; /* not one of the common kind, which send and receive do at once: */
    bool recv_special; /* chan_set_special */
    bool over_or_work; /* a receive that finds nothing does not just wait */
    uint8_t overflow;  /* enum weir_overflow */
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
    uint32_t parked;        /* sends that had to wait so far */
    struct metered metered;
};

/* One wait at a time is measured, of every so many items: the clock costs more than a send. */
enum { CHAN_SAMPLE_EVERY = 64 };

/* What was accepted was received, or dropped, or is stored. The lock is held. */
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

/* Results of the attempts below, beyond 0 and errors. */
enum { CHAN_MUST_WAIT = 1, CHAN_DROPPED_THIS = 2, CHAN_DROPPED_OLDEST = 3 };

/* Give an item to the channel, with its lock held: 0 it is done; CHAN_MUST_WAIT (also if
 * the policy is to reject: chan_refuse then counts it); an error; or what was dropped, to
 * be handed to the hook once the lock was let go (the oldest was copied to `displaced`). */
int chan_offer(struct chan *chan, const void *item, void *displaced);
/* Take an item, with the lock held: 0, CHAN_MUST_WAIT, WEIR_ECLOSED. */
int chan_take(struct chan *chan, void *item);

/* The same where nothing is special (send_special, recv_special), on the only worker: true if
 * it was done, false if it must wait or the channel is over. */
bool chan_send_at_once(struct worker *worker, struct chan *chan, const void *item);
bool chan_recv_at_once(struct worker *worker, struct chan *chan, void *item);

/* Parts of the above. The lock is held; on a worker. */
void chan_unstore(struct chan *chan, void *item); /* the oldest item, which is dropped */
void chan_settle(struct chan *chan);              /* stored items to receivers that wait */
void chan_refill(struct chan *chan);              /* items of senders that wait are stored */
/* The lock is held; any thread. */
void chan_finish(struct chan *chan, uint64_t count); /* items are finished, or dropped */
void chan_ask_home(struct chan *chan);               /* to wake whom a foreign thread cannot */
/* Not under the lock. */
void chan_call_hook(const struct chan *chan, void *item, enum weir_drop why);

/* The lock is held: whether sends and receives are plain moves in memory has changed. */
static inline void chan_set_special(struct chan *chan)
{
    bool shared = chan->object.stable.shared;
    /* Calls look at these without the lock: where there is one they are written once. */
    if (shared && chan->send_special) return;
    chan->recv_special = shared || chan->counts_done;
    chan->over_or_work = chan->takes_work || chan->closed || chan->tx_count == 0;
    chan->send_special = shared || chan->counts_done || chan->closed || chan->rx_count == 0 ||
                         chan->overflow >= WEIR_DROP_NEWEST;
    chan->word_capacity = chan->item_bytes == sizeof(uint64_t) ? chan->capacity : 0;
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
