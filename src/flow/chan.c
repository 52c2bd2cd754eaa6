/* chan.c - sending and receiving. */
#include "flow/chan.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/planted.h"
#include "flow/meters.h"
#include "rt/mem.h"
#include "rt/park.h"
#include "watch/trace.h"

/* ---- Items ---- */

static inline void count_stored(struct chan *chan)
{
    if (++chan->count > chan->depth_max) chan->depth_max = chan->count;
}

static inline void count_accepted(struct chan *chan)
{
    if (chan->counts_done) chan->unfinished++;
}

static inline void count_received(struct chan *chan)
{
    chan->received++;
    if (chan->counts_done) chan->taken++;
}

/* ---- Measuring, with the lock held: one item in so many, from its send to its receive ---- */

static int64_t clock_ns(const struct chan *chan)
{
    const struct kernel *kernel = chan->object.belonging.worker->kernel;
    return kernel->now_ns(kernel);
}

/* The next so many are not measured. */
static void sample_chosen(struct chan *chan)
{
    chan->sample_at = chan_accepted(chan) +
                      (chan->object.has_sides ? CHAN_SAMPLE_EVERY_APART : CHAN_SAMPLE_EVERY);
}

/* A sender parks: when it began, if its item is measured; else 0. */
static int64_t sample_parked(struct chan *chan)
{
    if (chan_accepted(chan) + 1 < chan->sample_at) return 0;
    sample_chosen(chan);
    return clock_ns(chan);
}

/* An item that was not stored has been received. Like what follows it returns 0, so that a call
 * which is done may end with it, and needs no frame for what is seldom. */
__attribute__((noinline)) int chan_sample_passed(struct chan *chan, int64_t since_ns)
{
    sample_chosen(chan);
    if (!chan->metered.meter) return 0;
    meter_observe(chan->metered.meter, CHAN_WAIT, since_ns ? clock_ns(chan) - since_ns : 0);
    return 0;
}

/* The item that was stored last is measured, unless another is. */
static __attribute__((noinline)) void sample_stored(struct chan *chan, int64_t since_ns)
{
    unsigned char *after = chan->tail == chan->items ? chan->end : chan->tail;

    sample_chosen(chan);
    if (!chan->metered.meter || chan->sampled) return;
    chan->sampled = after - chan->item_bytes;
    chan->sampled_ns = since_ns ? since_ns : clock_ns(chan);
    chan_aim_head(chan);
}

/* ---- The ring: what is seldom has its place at marks, which cost nothing to pass by ---- */

/* `waited`: the sender has, and only it knows whether that is measured. */
static __attribute__((noinline)) int tail_at_mark(struct chan *chan, bool waited)
{
    if (!waited && chan_accepted(chan) >= chan->sample_at) sample_stored(chan, 0);
    if (chan->tail == chan->end) chan->tail = chan->items;
    chan_aim_tail(chan);
    return 0;
}

__attribute__((noinline)) int chan_head_at_mark(struct chan *chan, bool received)
{
    if (chan->sampled && chan->head == chan->sampled + chan->item_bytes) {
        chan->sampled = NULL;
        if (received) {
            meter_observe(chan->metered.meter, CHAN_WAIT, clock_ns(chan) - chan->sampled_ns);
        }
    }
    if (chan->head == chan->end) chan->head = chan->items;
    chan_aim_head(chan);
    return 0;
}

static inline void store(struct chan *chan, const void *item, bool waited)
{
    chan_copy_item(chan, chan->tail, item);
    chan->tail += chan->item_bytes;
    count_stored(chan);
    if (__builtin_expect(chan->tail == chan->tail_mark, 0)) (void)tail_at_mark(chan, waited);
}

static inline void unstore(struct chan *chan, void *item, bool received)
{
    chan_copy_item(chan, item, chan->head);
    chan->head += chan->item_bytes;
    chan->count--;
    if (__builtin_expect(chan->head == chan->head_mark, 0)) (void)chan_head_at_mark(chan, received);
}

/* ---- Contexts of traces, beside the items of a channel that says so ---- */

static struct trace_node **note_of(const struct chan *chan, const unsigned char *slot)
{
    return &chan->notes[(size_t)(slot - chan->items) / chan->item_bytes];
}

/* The context of the oldest item, which is taken out; the caller's. */
static struct trace_node *note_take(struct chan *chan)
{
    struct trace_node **note = note_of(chan, chan->head);
    struct trace_node *node = *note;
    *note = NULL;
    return node;
}

/* `sender` is the task, or NULL for the calling one or thread. */
static inline void store_from(struct chan *chan, const void *item, const struct task *sender)
{
    if (__builtin_expect(chan->traced, 0)) {
        *note_of(chan, chan->tail) = trace_ref(sender ? trace_of(sender) : trace_here());
    }
    store(chan, item, sender != NULL);
}

/* An item goes from a task to another without being stored; NULL: the calling one. */
static inline void pass_context(const struct chan *chan, const struct task *sender,
                                struct task *receiver)
{
    if (__builtin_expect(!chan->traced, 1)) return;
    trace_receive(receiver ? receiver : task_self(),
                  trace_ref(sender ? trace_of(sender) : trace_here()));
}

void chan_unstore(struct chan *chan, void *item)
{
    if (__builtin_expect(chan->traced, 0)) trace_unref(note_take(chan));
    unstore(chan, item, false);
}

/* The oldest item is received; `receiver` is the task, or NULL for the calling one. */
static inline void receive_stored(struct chan *chan, void *item, struct task *receiver)
{
    if (__builtin_expect(chan->traced, 0)) {
        trace_receive(receiver ? receiver : task_self(), note_take(chan));
    }
    unstore(chan, item, true);
    count_received(chan);
}

/* Not under the lock. */
void chan_call_hook(const struct chan *chan, void *item, enum weir_drop why)
{
    if (chan->on_drop) chan->on_drop(item, why, chan->drop_arg);
}

/* ---- Attempts, with the lock held ---- */

/* What a foreign thread has stored goes to receivers that wait. On a worker. */
void chan_settle(struct chan *chan)
{
    while (chan->count > 0 && !list_empty(&chan->receivers)) {
        struct waiter *receiver = waiter_pop(&chan->receivers);
        if (!receiver) return;
        receive_stored(chan, receiver->item, receiver->task);
        waiter_wake(receiver, 0);
    }
}

/* There is room: senders that wait store their items. */
void chan_refill(struct chan *chan)
{
    while (chan->count < chan->capacity && !list_empty(&chan->senders)) {
        struct waiter *sender = waiter_pop(&chan->senders);
        if (!sender) return;
        store_from(chan, sender->item, sender->task);
        count_accepted(chan);
        if (__builtin_expect(sender->since_ns != 0, 0)) sample_stored(chan, sender->since_ns);
        waiter_wake(sender, 0);
        if (PLANTED(SENDER_WOKEN_TWICE)) waiter_wake(sender, 0);
    }
}

static bool hand_over(struct chan *chan, const void *item)
{
    struct waiter *receiver;

    /* What is stored goes first; a thread that is no worker wakes nobody. */
    if (list_empty(&chan->receivers) || chan->count > 0 || !worker_self()) return false;
    receiver = waiter_pop(&chan->receivers);
    if (!receiver) return false;
    chan_copy_item(chan, receiver->item, item);
    pass_context(chan, NULL, receiver->task);
    count_accepted(chan);
    count_received(chan);
    if (__builtin_expect(chan->received >= chan->sample_at, 0)) (void)chan_sample_passed(chan, 0);
    waiter_wake(receiver, 0);
    return true;
}

static int overflow(struct chan *chan, const void *item, void *displaced)
{
    switch (chan->overflow) {
    case WEIR_DROP_NEWEST: chan->dropped++; return CHAN_DROPPED_THIS;
    case WEIR_DROP_OLDEST:
        assert(displaced);
        chan_unstore(chan, displaced);
        chan->dropped++;
        store_from(chan, item, NULL);
        count_accepted(chan);
        chan_finish(chan, 1); /* after that, or all would seem to be finished for a moment */
        return CHAN_DROPPED_OLDEST;
    default: return CHAN_MUST_WAIT;
    }
}

int chan_offer(struct chan *chan, const void *item, void *displaced)
{
    if (__builtin_expect(chan->closed || chan->rx_count == 0, 0)) return WEIR_ECLOSED;
    if (hand_over(chan, item)) return 0;
    /* What a foreign thread has stored is on its way to those who wait, and makes room. */
    if (__builtin_expect(!list_empty(&chan->receivers), 0) && worker_self()) chan_settle(chan);
    /* Senders that wait go first, also if there is room just now. */
    if (chan->count < chan->capacity && list_empty(&chan->senders)) {
        store_from(chan, item, NULL);
        count_accepted(chan);
        if (__builtin_expect(!list_empty(&chan->receivers), 0) && worker_self()) chan_settle(chan);
        return 0;
    }
    return overflow(chan, item, displaced);
}

int chan_take(struct chan *chan, void *item)
{
    /* What a foreign thread has stored is for those who wait already. */
    if (__builtin_expect(!list_empty(&chan->receivers), 0)) chan_settle(chan);
    if (chan->count > 0) {
        receive_stored(chan, item, NULL);
        if (!list_empty(&chan->senders)) chan_refill(chan);
        return 0;
    }
    if (!list_empty(&chan->senders)) {
        struct waiter *sender = waiter_pop(&chan->senders);
        if (sender) {
            chan_copy_item(chan, item, sender->item);
            pass_context(chan, sender->task, NULL);
            count_accepted(chan);
            count_received(chan);
            if (__builtin_expect(sender->since_ns != 0, 0))
                (void)chan_sample_passed(chan, sender->since_ns);
            waiter_wake(sender, 0);
            return 0;
        }
    }
    return chan->closed || chan->tx_count == 0 ? WEIR_ECLOSED : CHAN_MUST_WAIT;
}

/* Who holds an end is not known: they are values, copied as programs like. */
void chan_facts(const void *object, struct waiting *ret_waiting)
{
    const struct waiter *waiter = object;
    waiter_facts_of(waiter->object, ret_waiting);
    if (container_of(waiter->object, struct chan, object)->any_thread) {
        ret_waiting->ends = ENDS_OUTSIDE;
    }
}

/* With how full it is, and who is at the other end. */
static void chan_describe(const void *object, char *text, size_t bytes)
{
    const struct waiter *waiter = object;
    struct chan *chan = container_of(waiter->object, struct chan, object);
    struct lock *lock = &chan->object.stable.lock;

    waiter_describe(object, text, bytes);
    if (!boundary_hold(lock, chan->object.stable.shared)) return;
    if (chan->object.has_sides) chan_sides_join(chan);
    (void)snprintf(text, bytes, "'%s', %u of %u items, %u sending and %u receiving end%s",
                   chan->object.name, chan->count, chan->capacity, chan->tx_count, chan->rx_count,
                   chan->rx_count == 1 ? "" : "s");
    if (chan->object.has_sides) chan_sides_part(chan);
    boundary_let_go(lock, chan->object.stable.shared);
}

/* ---- Sending ---- */

static const struct wait_kind wait_send = {
    .name = "send",
    .abort = waiter_abort,
    .describe = chan_describe,
    .what = WAIT_FOR_ROOM,
    .ends = ENDS_WITH_TASKS,
    .facts = chan_facts,
};

/* ---- The common moves: one worker, nothing to count ---- */

/* Moves of single words, each as send_limit, recv_limit or waits_alone allows it. They return 0. */

static inline int store_word(struct chan *chan, const void *item, uint32_t count)
{
    unsigned char *tail = chan->tail;

    memcpy(tail, item, sizeof(uint64_t));
    tail += sizeof(uint64_t);
    chan->tail = tail;
    chan->count = count + 1; /* there have been so many before: chan_set_limits */
    if (__builtin_expect(tail != chan->tail_mark, 1)) return 0;
    return tail_at_mark(chan, false);
}

static inline int give_word(struct chan *chan, struct worker *worker, const void *item)
{
    struct waiter *receiver = chan_pop_alone(&chan->receivers);

    memcpy(receiver->item, item, sizeof(uint64_t));
    task_wake_here(worker, receiver->task);
    if (__builtin_expect(++chan->received < chan->sample_at, 1)) return 0;
    return chan_sample_passed(chan, 0);
}

/* Receivers wait only while nothing is stored, senders only while there
 * is no room. */
bool chan_send_at_once(struct worker *worker, struct chan *chan, const void *item)
{
    struct waiter *receiver;
    bool stored = false;

    if (chan->count < chan->send_limit) return store_word(chan, item, chan->count) == 0;
    if (chan_waits_alone(chan, &chan->receivers)) return give_word(chan, worker, item) == 0;
    if (__builtin_expect(!list_empty(&chan->receivers), 0)) {
        receiver = waiter_pop(&chan->receivers);
        if (__builtin_expect(receiver != NULL, 1)) {
            chan_copy_item(chan, receiver->item, item);
            if (__builtin_expect(++chan->received >= chan->sample_at, 0)) {
                (void)chan_sample_passed(chan, 0);
            }
            waiter_wake_here(worker, receiver);
            return true;
        }
    }
    if (chan->count < chan->capacity) {
        store(chan, item, false);
        stored = true;
    }
    chan_set_limits(chan);
    return stored;
}

bool chan_recv_at_once(struct worker *worker, struct chan *chan, void *item)
{
    struct waiter *sender;

    if (chan->count - 1 < chan->recv_limit) return chan_take_word(chan, item, chan->count - 1) == 0;
    if (chan->count > 0) {
        unstore(chan, item, true);
        chan->received++;
        if (__builtin_expect(!list_empty(&chan->senders), 0)) chan_refill(chan);
        chan_set_limits(chan);
        return true;
    }
    if (chan_waits_alone(chan, &chan->senders)) return chan_fetch_word(chan, worker, item) == 0;
    if (list_empty(&chan->senders)) return false;
    sender = waiter_pop(&chan->senders);
    if (!sender) return false;
    chan_copy_item(chan, item, sender->item);
    chan->received++;
    if (__builtin_expect(sender->since_ns != 0, 0))
        (void)chan_sample_passed(chan, sender->since_ns);
    waiter_wake_here(worker, sender);
    return true;
}

/* The lock is held, and let go. */
static int send_wait(struct chan *chan, struct task *self, const void *item)
    LOCK_RELEASES(chan->object.stable.lock, weir_no_park) LOCK_UNCHECKED
{
    struct waiter waiter = {.task = self, .object = &chan->object, .item = (void *)(uintptr_t)item};
    struct meter *meter = chan->metered.meter;
    int r;

    waiter.since_ns = sample_parked(chan);
    chan_add_sender(chan, &waiter);
    chan_unlock(chan);
    r = waiter_park(self, &waiter, &wait_send);
    return __builtin_expect(r < 0, 0) ? meter_interrupted(meter, CHAN_TIMEOUTS, r) : r;
}

/* For a channel that drops: what it drops goes to the hook without the lock. */
static __attribute__((noinline)) int send_dropping(struct chan *chan, const weir_tx *tx,
                                                   const void *item)
{
    unsigned char dropped[WEIR_ITEM_BYTES_MAX] __attribute__((aligned(16)));
    weir_drop_fn on_drop;
    void *drop_arg;
    int r;

    if (!chan_lock_named(chan, tx, HANDLE_TX)) return WEIR_ECLOSED;
    r = chan_offer(chan, item, dropped);
    if (!worker_self() && r != WEIR_ECLOSED && !list_empty(&chan->receivers)) chan_ask_home(chan);
    if (r == CHAN_DROPPED_THIS) chan_copy_item(chan, dropped, item);
    on_drop = chan->on_drop; /* without the lock it may be another's */
    drop_arg = chan->drop_arg;
    chan_unlock(chan);
    sanitize_acquire(chan); /* who sent the oldest comes before the hook */
    if (PLANTED(DROP_OLDEST_UNTOLD) && r == CHAN_DROPPED_OLDEST) return 0;
    if (r > 0 && on_drop) on_drop(dropped, WEIR_DROPPED_OVERFLOW, drop_arg);
    return r > 0 ? 0 : r;
}

static bool drops(const struct chan *chan)
{
    return chan->overflow >= WEIR_DROP_NEWEST;
}

/* The lock is held. */
static int reject(struct chan *chan)
{
    chan->rejected++;
    return WEIR_EOVERLOAD;
}

/* `chan` is what the end names, or NULL: that was not looked up, or it names nothing. */
static __attribute__((noinline)) int send_slowly(struct chan *chan, weir_tx *tx, const void *item)
{
    struct task *self = task_self();
    int r;

    if (__builtin_expect(!chan, 0)) chan = chan_of_tx(tx, "weir_tx_send");
    if (__builtin_expect(!self, 0)) return refuse_no_task("weir_tx_send");
    r = chan_enter(self, chan, tx, HANDLE_TX);
    if (__builtin_expect(r < 0, 0)) return r;
    sanitize_release(chan);
    if (chan->object.has_sides && chan_send_apart(worker_self(), chan, tx, item)) return 0;
    if (__builtin_expect(drops(chan), 0)) return send_dropping(chan, tx, item);
    if (!chan_lock_named(chan, tx, HANDLE_TX)) return WEIR_ECLOSED;
    r = chan_offer(chan, item, NULL);
    if (r == CHAN_MUST_WAIT) {
        if (chan->overflow == WEIR_WAIT) return send_wait(chan, self, item);
        r = reject(chan);
    }
    chan_unlock(chan);
    return r;
}

static SWITCH_RETURNS SWITCH_UNGUARDED int send_wait_here(struct chan *chan, struct task *self,
                                                          const void *item)
{
    struct meter *meter = chan->metered.meter;
    struct waiter waiter WEIR_UNINITIALIZED_;
    int r;

    waiter_init(&waiter, self, &chan->object, (void *)(uintptr_t)item, sample_parked(chan));
    chan_add_sender(chan, &waiter);
    r = task_park_here(atom_load(&self->home), self, &wait_send, &waiter);
    return __builtin_expect(r < 0, 0) ? meter_interrupted(meter, CHAN_TIMEOUTS, r) : r;
}

/* The item is no single word, or it is one of select who waits, or must wait. */
static __attribute__((noinline)) int send_here(struct chan *chan, struct task *self,
                                               const void *item)
{
    if (chan_send_at_once(worker_self(), chan, item)) return 0;
    if (__builtin_expect(chan->overflow != WEIR_WAIT, 0)) return reject(chan);
    return send_wait_here(chan, self, item);
}

int weir_tx_send(weir_tx *tx, const void *item)
{
    struct task *self = task_self();
    struct chan *chan = handle_object_near(tx, HANDLE_TX);
    uint32_t count;

    if (__builtin_expect(!self || !chan || chan->send_plain != CHAN_PLAIN, 0) ||
        !task_enter_at_once(self)) {
        return send_slowly(chan, tx, item);
    }
    sanitize_release(chan);
    count = chan->count;
    if (__builtin_expect(count < chan->send_limit, 1)) return store_word(chan, item, count);
    if (chan_waits_alone(chan, &chan->receivers))
        return give_word(chan, atom_load(&self->home), item);
    if (count >= chan->wait_from && list_empty(&chan->receivers)) {
        return send_wait_here(chan, self, item);
    }
    return send_here(chan, self, item);
}

int weir_tx_try_send(weir_tx *tx, const void *item)
{
    struct chan *chan = chan_of_tx(tx, "weir_tx_try_send");
    struct worker *worker = worker_self();
    int r;

    if (!worker && !chan->any_thread) return refuse_no_task("weir_tx_try_send");
    sanitize_release(chan);
    if (drops(chan)) return send_dropping(chan, tx, item);
    if (!chan_lock_named(chan, tx, HANDLE_TX)) return WEIR_ECLOSED;
    r = chan_offer(chan, item, NULL);
    if (r == CHAN_MUST_WAIT) r = reject(chan);
    if (r == 0 && !worker && !list_empty(&chan->receivers)) chan_ask_home(chan);
    chan_unlock(chan);
    if (worker) worker_touched(worker);
    return r;
}

int weir_tx_send_many(weir_tx *tx, const void *items, size_t count, size_t *ret_sent)
{
    struct chan *chan = chan_of_tx(tx, "weir_tx_send_many");
    const unsigned char *item = items;
    struct task *self = task_self();
    size_t sent = 0, item_bytes = chan->item_bytes;
    int r;

    if (!self) {
        if (ret_sent) *ret_sent = 0;
        return refuse_no_task("weir_tx_send_many");
    }
    r = chan_enter(self, chan, tx, HANDLE_TX);
    while (r == 0 && sent < count) {
        sanitize_release(chan);
        if (flow_names(tx, HANDLE_TX, chan) && drops(chan)) {
            r = send_dropping(chan, tx, item);
        } else if (!chan_lock_named(chan, tx, HANDLE_TX)) {
            r = WEIR_ECLOSED; /* while it has waited */
        } else {
            /* What fits, under one lock; the last one is looked at below. */
            while ((r = chan_offer(chan, item, NULL)) == 0 && sent + 1 < count) {
                sent++;
                item += item_bytes;
            }
            if (r == CHAN_MUST_WAIT && chan->overflow == WEIR_WAIT) {
                r = task_interruption(self, false);
                if (r == 0) {
                    r = send_wait(chan, self, item);
                } else {
                    chan_unlock(chan);
                }
            } else {
                if (r == CHAN_MUST_WAIT) r = reject(chan);
                chan_unlock(chan);
            }
        }
        if (r == 0) {
            sent++;
            item += item_bytes;
        }
    }
    if (ret_sent) *ret_sent = sent;
    return r;
}

/* ---- Receiving ---- */

static const struct wait_kind wait_recv = {
    .name = "receive",
    .abort = waiter_abort,
    .describe = chan_describe,
    .what = WAIT_FOR_ITEM,
    .ends = ENDS_WITH_TASKS,
    .facts = chan_facts,
};

static const struct wait_kind wait_recv_work = {
    .name = "receive",
    .takes_work = true,
    .abort = waiter_abort,
    .describe = chan_describe,
    .what = WAIT_FOR_ITEM,
    .ends = ENDS_WITH_TASKS,
    .facts = chan_facts,
};

/* The lock is held, and let go. A stop ends the wait for new work, not what is there. */
static int recv_wait(struct chan *chan, struct task *self, void *item)
    LOCK_RELEASES(chan->object.stable.lock, weir_no_park) LOCK_UNCHECKED
{
    struct waiter waiter = {.task = self, .object = &chan->object, .item = item};
    const struct wait_kind *kind = chan->takes_work ? &wait_recv_work : &wait_recv;
    struct meter *meter = chan->metered.meter;
    int r;

    if (chan->takes_work && task_interruption(self, true) < 0) {
        chan_unlock(chan);
        return task_interruption(self, true);
    }
    chan_add_receiver(chan, &waiter);
    chan_unlock(chan);
    r = waiter_park(self, &waiter, kind);
    if (PLANTED(RECV_CANCEL_LOSES) && r == 0) r = task_interruption(self, false);
    return __builtin_expect(r < 0, 0) ? meter_interrupted(meter, CHAN_TIMEOUTS, r) : r;
}

/* `chan` is what the end names, or NULL: that was not looked up, or it names nothing. */
static __attribute__((noinline)) int recv_slowly(struct chan *chan, weir_rx *rx, void *ret_item)
{
    struct task *self = task_self();
    int r;

    if (__builtin_expect(!chan, 0)) chan = chan_of_rx(rx, "weir_rx_recv");
    if (__builtin_expect(!self, 0)) return refuse_no_task("weir_rx_recv");
    r = chan_enter(self, chan, rx, HANDLE_RX);
    if (__builtin_expect(r < 0, 0)) return r;
    if (chan->object.has_sides && chan_recv_apart(worker_self(), chan, rx, ret_item)) {
        sanitize_acquire(chan);
        return 0;
    }
    if (!chan_lock_named(chan, rx, HANDLE_RX)) return WEIR_ECLOSED;
    r = chan_take(chan, ret_item);
    if (r == CHAN_MUST_WAIT) {
        r = recv_wait(chan, self, ret_item);
    } else {
        chan_unlock(chan);
    }
    sanitize_acquire(chan);
    return r;
}

static SWITCH_RETURNS SWITCH_UNGUARDED int recv_wait_here(struct chan *chan, struct task *self,
                                                          void *ret_item)
{
    struct meter *meter = chan->metered.meter;
    struct waiter waiter WEIR_UNINITIALIZED_;
    int r;

    waiter_init(&waiter, self, &chan->object, ret_item, 0);
    chan_add_receiver(chan, &waiter);
    r = task_park_here(atom_load(&self->home), self, &wait_recv, &waiter);
    sanitize_acquire(chan);
    return __builtin_expect(r < 0, 0) ? meter_interrupted(meter, CHAN_TIMEOUTS, r) : r;
}

static __attribute__((noinline)) int recv_here(struct chan *chan, struct task *self, weir_rx *rx,
                                               void *ret_item)
{
    if (chan_recv_at_once(worker_self(), chan, ret_item)) return 0;
    if (__builtin_expect(chan->over_or_work, 0)) return recv_slowly(chan, rx, ret_item);
    return recv_wait_here(chan, self, ret_item);
}

int weir_rx_recv(weir_rx *rx, void *ret_item)
{
    struct task *self = task_self();
    struct chan *chan = handle_object_near(rx, HANDLE_RX);
    uint32_t left;

    if (__builtin_expect(!self || !chan || chan->recv_plain != CHAN_PLAIN, 0) ||
        !task_enter_at_once(self)) {
        return recv_slowly(chan, rx, ret_item);
    }
    sanitize_acquire(chan);
    left = chan->count - 1;
    if (__builtin_expect(left < chan->recv_limit, 1)) return chan_take_word(chan, ret_item, left);
    if (chan->count == 0 && chan_waits_alone(chan, &chan->senders)) {
        return chan_fetch_word(chan, atom_load(&self->home), ret_item);
    }
    return recv_here(chan, self, rx, ret_item);
}

int weir_rx_try_recv(weir_rx *rx, void *ret_item)
{
    struct chan *chan = chan_of_rx(rx, "weir_rx_try_recv");
    int r;

    if (!worker_self()) return refuse_no_task("weir_rx_try_recv");
    if (!chan_lock_named(chan, rx, HANDLE_RX)) return WEIR_ECLOSED;
    r = chan_take(chan, ret_item);
    chan_unlock(chan);
    sanitize_acquire(chan);
    worker_touched(worker_self());
    if (r == 0) return 1;
    return r == CHAN_MUST_WAIT ? 0 : r;
}

int weir_rx_recv_many(weir_rx *rx, void *ret_items, size_t count_max)
{
    struct chan *chan = chan_of_rx(rx, "weir_rx_recv_many");
    unsigned char *item = ret_items;
    struct task *self = task_self();
    size_t count = 0;
    int r;

    if (!self) return refuse_no_task("weir_rx_recv_many");
    if (count_max > INT32_MAX) count_max = INT32_MAX;
    r = chan_enter(self, chan, rx, HANDLE_RX);
    if (r < 0 || count_max == 0) return r;
    if (!chan_lock_named(chan, rx, HANDLE_RX)) return WEIR_ECLOSED;
    while (count < count_max && (r = chan_take(chan, item)) == 0) {
        count++;
        item += chan->item_bytes;
    }
    if (count == 0 && r == CHAN_MUST_WAIT) {
        r = recv_wait(chan, self, item);
        if (r == 0) count = 1;
    } else {
        chan_unlock(chan);
    }
    sanitize_acquire(chan);
    return count > 0 ? (int)count : r;
}
