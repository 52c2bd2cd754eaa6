/* chan_sides.c - a channel that several workers use has two sides, each with its own lock.
 *
 * If senders and receivers took one lock and wrote one count, every item would move
 * the lines of both from one processor to the other. So the common send takes the lock
 * of the sending side alone and writes what lies in `tx`, the common receive likewise
 * `rx`. Each looks at how many items the other has moved only when what it saw last is
 * used up: once for a whole ring, if the other is far enough away. All else (somebody
 * waits or must, an item is measured, a close, figures) holds the object's
 * lock and those of both sides, and finds `head`, `tail`, `count` and `received` as if
 * there were no sides.
 *
 *     all locks ──chan_sides_part──▶ apart: what lies in `tx` and `rx` is valid;
 *         ▲                             │   head, tail, count, received are not
 *         └──────chan_sides_join────────┘
 *
 * Invariants, apart:
 * 1. Stored are count + tx.moved - rx.moved, never more than there is room for: the
 *    sending side stays below capacity - count + rx.moved, the receiving side below
 *    count + tx.moved, and what a side sees of the other only grows until all locks are
 *    held again.
 * 2. An item is written before tx.moved says so (release) and read after that was seen
 *    (acquire); a slot is free once rx.moved has said so, likewise.
 * 3. While somebody waits both sides are shut (most == 0).
 *
 * No lost wake-up: who begins to wait holds all locks, so nobody is between a look and
 * a move; whoever comes next finds its side shut, takes all locks, and serves those who
 * wait first. A waiter that is interrupted leaves under the object's lock alone: then
 * the sides stay shut until all locks are held the next time, which is the next call.
 *
 * A call may come late, when its end names the channel no more: it looks at that under the
 * lock that it has taken first, and touches nothing else. So that this lock is one, the
 * memory of a channel with sides is only ever another's with sides, whose locks are as they
 * were (stable_alloc_kept).
 *
 * Lock order: the object's, then `tx`, then `rx`. Those of the sides are only spun for: they
 * are held for a few instructions, without a call of anything. If a holder lost
 * its processor meanwhile, others come to the object's lock, where they sleep but for one.
 */
#include "flow/chan.h"
#include <assert.h>

#include "base/planted.h"

enum {
    PAUSES_MAX = 64,  /* between two tries at the lock of a side: then a call takes all locks */
    LOOKS = 4,        /* at the other side, before a call gives up and parks ... */
    LOOK_PAUSES = 64, /* ... with so many pauses before each: it moves a batch meanwhile */
    VAIN_MAX = 4,     /* after so many times in vain it is tried ... */
    VAIN_EVERY = 16,  /* ... only now and then */
};

/* ---- The lock of a side ---- */

/* A worker that finds it busy stays away for longer each time, so that the other does many
 * items instead of one before the line goes over. */
static inline bool side_try(struct chan_side *side)
{
    for (int pauses = 1; pauses <= PAUSES_MAX; pauses *= 2) {
        if (!atom_load(&side->busy) && !atom_exchange(&side->busy, true)) return true;
        for (int i = 0; i < pauses; i++) atom_pause();
    }
    return false;
}

static void side_take(struct chan_side *side)
{
    const struct kernel *kernel = kernel_current();

    while (!side_try(side)) kernel->thread_yield(kernel);
}

static inline void side_let_go(struct chan_side *side)
{
    atom_store_release(&side->busy, false);
}

/* ---- Together and apart ---- */

/* Not its lock: a late call for the channel whose memory this was may hold it. */
static void side_init(struct chan_side *side, unsigned char *at)
{
    side->at = at;
    side->deepest = 0;
    atom_store(&side->moved, 0);
    atom_store(&side->vain, 0);
    atom_store(&side->worker, NULL);
}

void chan_sides_init(struct chan *chan)
{
    side_init(&chan->tx, chan->items);
    side_init(&chan->rx, chan->items);
}

/* The marks of the ring are where the next item is measured, and where it wraps. */
static void aim_marks(struct chan *chan)
{
    chan_aim_tail(chan);
    if (chan_accepted(chan) + 1 >= chan->sample_at) {
        chan->tail_mark = chan->tail + chan->item_bytes;
    }
    chan_aim_head(chan);
}

void chan_sides_join(struct chan *chan)
{
    struct chan_side *tx = &chan->tx, *rx = &chan->rx;

    side_take(tx);
    if (!PLANTED(SIDES_JOIN_HALF)) side_take(rx);
    chan->count += atom_load(&tx->moved) - atom_load(&rx->moved);
    chan->received += atom_load(&rx->moved);
    chan->tail = tx->at;
    chan->head = rx->at;
    assert(chan->count <= chan->slots);
    if (rx->deepest > chan->depth_max) chan->depth_max = rx->deepest;
    if (chan->count > chan->depth_max) chan->depth_max = chan->count;
    atom_store(&tx->moved, 0);
    atom_store(&rx->moved, 0);
    aim_marks(chan);
}

/* How many items are before the one that is measured. */
static uint32_t before_sampled(const struct chan *chan)
{
    ptrdiff_t bytes = chan->sampled - chan->head;
    if (bytes < 0) bytes += chan->end - chan->items;
    return (uint32_t)((size_t)bytes / chan->item_bytes);
}

static inline uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static void side_set(struct chan_side *side, unsigned char *at, uint32_t base, uint32_t most)
{
    side->at = at;
    side->base = base;
    side->most = most;
    side->limit = smaller(base, most);
    side->deepest = 0;
}

void chan_sides_part(struct chan *chan)
{
    bool plain = list_empty(&chan->receivers) && list_empty(&chan->senders);
    uint64_t next = chan_accepted(chan) + 1;
    uint32_t sends = 0, receives = 0;

    if (plain && !chan->closed && chan->rx_count > 0 && chan->overflow < WEIR_DROP_NEWEST &&
        chan->count < chan->capacity && next < chan->sample_at) {
        sends = (uint32_t)(chan->sample_at - next);
    }
    if (plain) receives = chan->sampled ? before_sampled(chan) : UINT32_MAX;
    side_set(&chan->tx, chan->tail, sends > 0 ? chan->capacity - chan->count : 0, sends);
    side_set(&chan->rx, chan->head, chan->count, receives);
    side_let_go(&chan->rx);
    side_let_go(&chan->tx);
}

/* Whether a side may move an item: not with its lock alone; not yet; yes. */
enum move { MOVE_SHUT, MOVE_LATER, MOVE_NOW };

/* The side's lock is held. */
static inline enum move may_move(struct chan_side *side, const struct chan_side *other)
{
    uint32_t moved = atom_load(&side->moved);
    uint32_t limit;

    if (__builtin_expect(moved < side->limit, 1)) return MOVE_NOW;
    if (moved == side->most) return MOVE_SHUT;
    limit = side->base + atom_load_acquire(&other->moved);
    if (limit - moved > side->deepest) side->deepest = limit - moved;
    side->limit = smaller(limit, side->most);
    return moved < limit ? MOVE_NOW : MOVE_LATER;
}

static inline void has_moved(struct chan *chan, struct chan_side *side, struct worker *worker)
{
    side->at += chan->item_bytes;
    if (__builtin_expect(side->at == chan->end, 0)) side->at = chan->items;
    atom_store(&side->worker, worker);
    atom_store_release(&side->moved, atom_load(&side->moved) + 1);
}

/* ---- Waiting for the other side, while it is at work elsewhere ---- */

/* Nothing else is to be done here, and somebody of the other side runs on another worker. */
static bool may_linger(struct worker *worker, struct chan_side *side, const struct chan_side *other)
{
    struct worker *there = atom_load(&other->worker);
    unsigned vain;

    if (!worker->runtime->spin || worker->kernel->choose || worker_has_work(worker)) return false;
    if (!there || there == worker || !atom_load(&there->current)) return false;
    vain = atom_load(&side->vain);
    if (vain < VAIN_MAX) return true;
    atom_store(&side->vain, vain + 1);
    return vain % VAIN_EVERY == 0;
}

/* To park and to be woken costs both workers more than a moment here, and in that moment
 * the other moves many items instead of one. Without a lock: what is seen is a hint. */
static __attribute__((noinline)) bool linger(struct worker *worker, struct chan_side *side,
                                             const struct chan_side *other)
{
    uint32_t before, seen;

    if (!may_linger(worker, side, other)) return false;
    before = seen = atom_load(&other->moved);
    for (int i = 0; i < LOOKS && seen == before; i++) {
        for (int k = 0; k < LOOK_PAUSES; k++) atom_pause();
        seen = atom_load(&other->moved);
    }
    atom_store(&side->vain, seen != before ? 0 : atom_load(&side->vain) + 1);
    return seen != before;
}

/* ---- Moving ---- */

static inline enum move send_apart(struct worker *worker, struct chan *chan, const weir_tx *tx,
                                   const void *item)
{
    enum move may = MOVE_SHUT;

    if (!side_try(&chan->tx)) return MOVE_SHUT;
    if (flow_names(tx, HANDLE_TX, chan)) may = may_move(&chan->tx, &chan->rx);
    if (__builtin_expect(may == MOVE_NOW, 1)) {
        chan_copy_item(chan, chan->tx.at, item);
        has_moved(chan, &chan->tx, worker);
    }
    side_let_go(&chan->tx);
    return may;
}

bool chan_send_apart(struct worker *worker, struct chan *chan, const weir_tx *tx, const void *item)
{
    enum move may = send_apart(worker, chan, tx, item);

    if (__builtin_expect(may == MOVE_NOW, 1)) return true;
    return may == MOVE_LATER && chan->overflow == WEIR_WAIT &&
           linger(worker, &chan->tx, &chan->rx) && send_apart(worker, chan, tx, item) == MOVE_NOW;
}

static inline enum move recv_apart(struct worker *worker, struct chan *chan, const weir_rx *rx,
                                   void *item)
{
    enum move may = MOVE_SHUT;

    if (!side_try(&chan->rx)) return MOVE_SHUT;
    if (flow_names(rx, HANDLE_RX, chan)) may = may_move(&chan->rx, &chan->tx);
    if (__builtin_expect(may == MOVE_NOW, 1)) {
        chan_copy_item(chan, item, chan->rx.at);
        has_moved(chan, &chan->rx, worker);
    }
    side_let_go(&chan->rx);
    return may;
}

bool chan_recv_apart(struct worker *worker, struct chan *chan, const weir_rx *rx, void *item)
{
    enum move may = recv_apart(worker, chan, rx, item);

    if (__builtin_expect(may == MOVE_NOW, 1)) return true;
    return may == MOVE_LATER && linger(worker, &chan->rx, &chan->tx) &&
           recv_apart(worker, chan, rx, item) == MOVE_NOW;
}
