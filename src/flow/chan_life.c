/* chan_life.c - opening a channel, its ends, how it is over, and what it shows. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>

#include "flow/chan.h"
#include "flow/meters.h"
#include "rt/mem.h"

/* ---- Ends ---- */

void chan_check_thread(const struct chan *chan, const char *call)
{
    if (!chan->any_thread && !worker_self()) {
        misuse("%s: called on a thread that is not the runtime's, and channel '%s' does not say "
               "any_thread",
               call, chan->object.name);
    }
}

static enum handle_kind end_kind(bool sends)
{
    return sends ? HANDLE_TX : HANDLE_RX;
}

static int end_new(struct chan *chan, bool sends, struct chan_end **ret_end)
{
    struct chan_end *end = mem_alloc(sizeof *end);
    int r;

    if (!end) return -ENOMEM;
    end->sends = sends;
    list_init(&end->node);
    r = handle_open(end_kind(sends), chan, &end->handle);
    if (r < 0) {
        mem_free(end);
        return r;
    }
    *ret_end = end;
    return 0;
}

/* Its handle names nothing from here on. */
static void end_free(struct chan_end *end)
{
    handle_close(end->handle);
    mem_free(end);
}

static void end_link(struct chan *chan, struct chan_end *end)
{
    list_add_tail(&chan->ends, &end->node);
    if (end->sends) {
        chan->tx_count++;
    } else {
        chan->rx_count++;
    }
    chan_set_plain(chan);
}

static int end_copy(struct chan *chan, const void *handle, bool sends, const char *call,
                    void **ret_handle)
{
    struct chan_end *end;
    bool gone = true;
    int r;

    chan_check_thread(chan, call);
    r = end_new(chan, sends, &end);
    if (r < 0) return r;
    if (chan_lock_named(chan, handle, end_kind(sends))) {
        gone = chan->scope_is_gone;
        if (!gone) end_link(chan, end);
        chan_unlock(chan);
    }
    if (gone) {
        end_free(end);
        return WEIR_ECLOSED;
    }
    *ret_handle = end->handle;
    return 0;
}

int weir_tx_copy(weir_tx *tx, weir_tx **ret_tx)
{
    return end_copy(chan_of_tx(tx, "weir_tx_copy"), tx, true, "weir_tx_copy", (void **)ret_tx);
}

int weir_rx_copy(weir_rx *rx, weir_rx **ret_rx)
{
    return end_copy(chan_of_rx(rx, "weir_rx_copy"), rx, false, "weir_rx_copy", (void **)ret_rx);
}

/* ---- The end of a channel ---- */

/* Hand everything that is stored to the hook, one by one: it is called without the lock. */
static __attribute__((noinline)) void discard(struct chan *chan, enum weir_drop why)
{
    unsigned char item[WEIR_ITEM_BYTES_MAX] __attribute__((aligned(16)));

    for (;;) {
        bool found;
        chan_lock(chan);
        found = chan->count > 0;
        if (found) {
            chan_unstore(chan, item);
            chan->dropped++;
            chan_finish(chan, 1);
        }
        chan_unlock(chan);
        if (!found) return;
        sanitize_acquire(chan); /* who sent it comes before the hook */
        chan_call_hook(chan, item, why);
    }
}

/* Nobody will send any more. The lock is held. */
static void close_sending(struct chan *chan)
{
    chan->closed = true;
    chan_set_plain(chan);
    if (!worker_self()) {
        chan_ask_home(chan);
        return;
    }
    waiter_wake_all(&chan->senders, WEIR_ECLOSED);
    if (chan->count == 0 || chan->discards) { waiter_wake_all(&chan->receivers, WEIR_ECLOSED); }
}

/* Nobody will receive any more. The lock is held. */
static void close_receiving(struct chan *chan)
{
    chan_set_plain(chan);
    if (!worker_self()) {
        chan_ask_home(chan);
        return;
    }
    waiter_wake_all(&chan->senders, WEIR_ECLOSED);
    /* What was taken and never marked is not finished by anybody now. */
    if (chan->unfinished > chan->count) waiter_wake_all(&chan->finishers, WEIR_ECLOSED);
}

static void chan_free(struct chan *chan)
{
    mem_free(chan->items);
    mem_free(chan->notes); /* nothing is stored any more */
    flow_free(&chan->object);
}

/* Can nobody reach it any more? The lock is held. */
static bool is_over(const struct chan *chan)
{
    return chan->scope_is_gone && list_empty(&chan->ends) && chan->holders == 0;
}

/* Free it if nobody can reach it any more. Not under the lock. */
static void free_if_over(struct chan *chan, bool over)
{
    if (!over) return;
    if (chan->any_thread) {
        mem_free(chan->items);
        mem_free(chan->notes);
        lock_deinit(&chan->object.stable.lock);
        mem_free(chan);
        mem_unhold();
        handles_end();
    } else {
        chan_free(chan);
    }
}

/* Work that a thread which is no worker could not do: wake tasks. */
void chan_ask_home(struct chan *chan)
{
    /* Once it has ended nobody waits, and its worker may be gone. */
    if (chan->mail_under_way || chan->object.ended) return;
    chan->mail_under_way = true;
    mail_post(chan->object.belonging.worker, &chan->mail);
}

/* The lock is held. From both sides: ends are mostly dropped in the order in which they were
 * made, or the other way round. */
static struct chan_end *end_find(const struct chan *chan, const void *handle)
{
    struct list *first = chan->ends.next, *last = chan->ends.prev;

    for (;; first = first->next, last = last->prev) {
        struct chan_end *end = container_of(first, struct chan_end, node);
        if (end->handle == handle) return end;
        end = container_of(last, struct chan_end, node);
        if (end->handle == handle) return end;
        assert(first != &chan->ends && last != &chan->ends);
    }
}

/* The caller, which was a holder, does not use it any more. */
static void hold_no_more(struct chan *chan)
{
    bool over;

    chan_lock(chan);
    chan->holders--;
    over = is_over(chan);
    chan_unlock(chan);
    free_if_over(chan, over);
}

static void end_drop(struct chan *chan, void *handle, bool sends, const char *call)
{
    bool discards = false;
    struct chan_end *end;

    chan_check_thread(chan, call);
    /* Under the lock, or its scope, which ends on another worker, closes it as well. */
    if (!chan_lock_named(chan, handle, end_kind(sends))) {
        flow_misused(handle, sends ? "sending end" : "receiving end", call);
    }
    handle_close(handle); /* from here on a second drop is told */
    end = end_find(chan, handle);
    list_remove(&end->node);
    chan->holders++; /* others may drop the last end, or end the scope, while we discard */
    if (!end->sends && --chan->rx_count == 0) {
        close_receiving(chan);
        discards = true;
    } else if (end->sends && --chan->tx_count == 0 && !chan->closed) {
        close_sending(chan);
        discards = chan->discards;
    }
    chan_unlock(chan);
    mem_free(end);
    if (discards) discard(chan, WEIR_DROPPED_CLOSE);
    hold_no_more(chan);
    if (worker_self()) worker_touched(worker_self());
}

void weir_tx_drop(weir_tx *take_tx)
{
    if (!take_tx) return;
    end_drop(chan_of_tx(take_tx, "weir_tx_drop"), take_tx, true, "weir_tx_drop");
}

void weir_rx_drop(weir_rx *take_rx)
{
    if (!take_rx) return;
    end_drop(chan_of_rx(take_rx, "weir_rx_drop"), take_rx, false, "weir_rx_drop");
}

void weir_tx_close(weir_tx *tx)
{
    struct chan *chan = chan_of_tx(tx, "weir_tx_close");
    bool discards;

    chan_check_thread(chan, "weir_tx_close");
    if (!chan_lock_named(chan, tx, HANDLE_TX)) { flow_misused(tx, "sending end", "weir_tx_close"); }
    discards = !chan->closed && chan->discards;
    if (!chan->closed) close_sending(chan);
    if (discards) chan->holders++; /* as above */
    chan_unlock(chan);
    if (discards) {
        discard(chan, WEIR_DROPPED_CLOSE);
        hold_no_more(chan);
    }
    if (worker_self()) worker_touched(worker_self());
}

/* ---- Belonging to a scope ---- */

static void deliver_chan_mail(struct worker *worker, struct mail *mail)
{
    struct chan *chan = container_of(mail, struct chan, mail);
    bool gone;

    (void)worker;
    chan_lock(chan);
    chan->mail_under_way = false;
    if (chan->rx_count == 0) {
        close_receiving(chan);
    } else {
        chan_settle(chan);
        chan_refill(chan);
    }
    if (chan->closed) close_sending(chan);
    if (chan->unfinished == 0) waiter_wake_all(&chan->finishers, 0);
    gone = chan->object.ended;
    chan_unlock(chan);
    if (gone) chan->object.belonging.kind->release(worker, &chan->object.belonging);
}

static void chan_signalled(struct worker *worker, struct belonging *belonging, uint8_t signals)
{
    (void)worker, (void)belonging, (void)signals; /* tasks that wait are told by their own scopes */
}

/* Ends that are still held: those of an any_thread channel stay until they are dropped. */
static void close_ends(struct chan *chan)
{
    struct list *node;
    if (chan->any_thread) return;
    while ((node = list_pop(&chan->ends))) end_free(container_of(node, struct chan_end, node));
    chan->tx_count = chan->rx_count = 0;
}

/* The scope ends: tell everybody, and let go once no mail is under way. */
static void chan_release(struct worker *worker, struct belonging *belonging)
{
    struct chan *chan = container_of(belonging, struct chan, object.belonging);
    bool mail;

    (void)worker;
    chan_lock(chan);
    /* From here on nothing is sent, and no more mail. */
    chan->object.ended = true;
    chan->closed = true;
    chan_set_plain(chan);
    mail = chan->mail_under_way;
    if (!mail) {
        waiter_wake_all(&chan->senders, WEIR_ECLOSED);
        waiter_wake_all(&chan->receivers, WEIR_ECLOSED);
        waiter_wake_all(&chan->finishers, WEIR_ECLOSED);
    }
    chan_unlock(chan);
    if (mail) return; /* its delivery comes back here */
    discard(chan, WEIR_DROPPED_SCOPE);
    /* The bit keeps others from posting mail; if some is under way, it comes back here. */
    if (atom_or(&belonging->mail_bits, BELONGING_RELEASE) != 0) return;
    meter_leave(&chan->metered);
    chan_lock(chan);
    chan->scope_is_gone = true; /* before its opener goes on */
    chan->holders++;
    close_ends(chan);
    chan_unlock(chan);
    (void)scope_forget(belonging);
    hold_no_more(chan);
}

static void chan_describe(const struct belonging *belonging, char *text, size_t bytes)
{
    const struct chan *chan =
        (const struct chan *)(const void *)((const char *)belonging -
                                            offsetof(struct chan, object.belonging));
    if (chan->capacity == 0) {
        (void)snprintf(text, bytes, "'%s', rendezvous", chan->object.name);
    } else {
        uint32_t stored = chan->count;
        if (chan->object.has_sides) {
            stored += atom_load(&chan->tx.moved) - atom_load(&chan->rx.moved);
        }
        (void)snprintf(text, bytes, "'%s', %u of %u items", chan->object.name, stored,
                       chan->capacity);
    }
}

static void chan_failure(const struct chan *chan, struct boundary *ret_boundary)
{
    (void)snprintf(ret_boundary->failure, sizeof ret_boundary->failure, "%s at close; %s",
                   chan->discards ? "discard" : "drain",
                   chan->on_drop ? "what nobody gets goes to on_drop"
                                 : "what nobody gets is forgotten");
}

static bool chan_boundary(struct belonging *belonging, unsigned row, struct boundary *ret_boundary)
{
    struct chan *chan = container_of(belonging, struct chan, object.belonging);
    struct lock *lock = &chan->object.stable.lock;

    if (row > 0) return false;
    (void)snprintf(ret_boundary->name, sizeof ret_boundary->name, "%s", chan->object.name);
    ret_boundary->lifetime = "until closed, or its last end is dropped, or the scope ends";
    if (chan->slots == 0) {
        (void)snprintf(ret_boundary->bound, sizeof ret_boundary->bound, "rendezvous");
    } else {
        (void)snprintf(ret_boundary->bound, sizeof ret_boundary->bound, "%u items (at most %u)",
                       chan->capacity, chan->slots);
    }
    ret_boundary->overflow = boundary_overflow(chan->overflow);
    chan_failure(chan, ret_boundary);
    ret_boundary->latency_target_ms = chan->latency_ms;
    ret_boundary->meter = chan->metered.meter;
    ret_boundary->wait_histogram = CHAN_WAIT;
    if (!boundary_hold(lock, chan->object.stable.shared)) return true;
    if (chan->object.has_sides) chan_sides_join(chan);
    boundary_figure(ret_boundary, "depth", chan->count);
    boundary_figure(ret_boundary, "depth_max", chan->depth_max);
    boundary_figure(ret_boundary, "accepted", chan_accepted(chan));
    boundary_figure(ret_boundary, "received", chan->received);
    boundary_figure(ret_boundary, "rejected", chan->rejected);
    boundary_figure(ret_boundary, "dropped", chan->dropped);
    boundary_figure(ret_boundary, "senders", chan->tx_count);
    boundary_figure(ret_boundary, "receivers", chan->rx_count);
    if (chan->object.has_sides) chan_sides_part(chan);
    boundary_let_go(lock, chan->object.stable.shared);
    return true;
}

static bool chan_is_passive(const struct belonging *belonging)
{
    const struct chan *chan =
        (const struct chan *)(const void *)((const char *)belonging -
                                            offsetof(struct chan, object.belonging));
    return !chan->any_thread;
}

static const struct belonging_kind chan_kind = {
    .name = "channel",
    .signalled = chan_signalled,
    .release = chan_release,
    .describe = chan_describe,
    .boundary = chan_boundary,
    .is_passive = chan_is_passive,
};

/* ---- Opening ---- */

static int check_capacity(const weir_chan_spec *spec)
{
    const char *name = spec->name;

    if (spec->capacity == 0) {
        return refuse("channel '%s': capacity is not set (WEIR_RENDEZVOUS: nothing is stored)",
                      name);
    }
    if (spec->capacity == WEIR_RENDEZVOUS) {
        if (spec->overflow == WEIR_DROP_OLDEST) {
            return refuse("channel '%s': a rendezvous stores nothing, so overflow cannot be "
                          "WEIR_DROP_OLDEST",
                          name);
        }
        if (spec->any_thread) {
            return refuse("channel '%s': any_thread needs a capacity: a foreign thread cannot wait",
                          name);
        }
        if (spec->capacity_max) {
            return refuse("channel '%s': a rendezvous has no capacity_max", name);
        }
        return 0;
    }
    if (spec->capacity > WEIR_CHAN_CAPACITY_MAX || spec->capacity_max > WEIR_CHAN_CAPACITY_MAX) {
        return refuse("channel '%s': capacity is more than %d", name, WEIR_CHAN_CAPACITY_MAX);
    }
    if (spec->capacity_max && spec->capacity_max < spec->capacity) {
        return refuse("channel '%s': capacity_max is less than capacity", name);
    }
    return 0;
}

static int check_spec(const weir_chan_spec *spec)
{
    int r = flow_check_name("channel", spec->name);
    if (r < 0) return r;
    r = check_capacity(spec);
    if (r < 0) return r;
    if (spec->overflow == WEIR_OVERFLOW_UNSET || spec->overflow > WEIR_DROP_OLDEST) {
        return refuse("channel '%s': overflow is not set", spec->name);
    }
    if (spec->on_close != WEIR_DRAIN && spec->on_close != WEIR_DISCARD) {
        return refuse("channel '%s': on_close is not set", spec->name);
    }
    if (spec->item_bytes == 0 || spec->item_bytes > WEIR_ITEM_BYTES_MAX) {
        return refuse("channel '%s': item_bytes is %zu, must be 1 to %d (send a pointer instead)",
                      spec->name, spec->item_bytes, WEIR_ITEM_BYTES_MAX);
    }
    if (spec->latency_ms < 0) return refuse("channel '%s': latency_ms is negative", spec->name);
    return 0;
}

/* Without a tracer there is nothing to carry. */
static bool is_traced(const weir_chan_spec *spec)
{
    return spec->trace && worker_self()->runtime->tracer;
}

/* Whether several workers may send and receive with nothing else to do: then there are sides,
 * whose locks are spun for: so only where that is worth it. */
static bool has_sides(const weir_chan_spec *spec)
{
    const weir_runtime *runtime = worker_self()->runtime;

    return runtime->shared && runtime->spin && !spec->any_thread && !spec->counts_done &&
           !is_traced(spec) && spec->capacity != WEIR_RENDEZVOUS;
}

/* An any_thread channel may outlive its runtime, so its memory is not the runtime's. */
static struct chan *chan_alloc(const weir_chan_spec *spec)
{
    size_t bytes = offsetof(struct chan, tx);
    struct chan *chan;

    if (has_sides(spec)) return flow_alloc_kept(sizeof(struct chan), bytes, spec->name);
    if (!spec->any_thread) return flow_alloc(bytes, spec->name);
    chan = mem_alloc_zeroed(bytes);
    if (!chan) return NULL;
    lock_init(&chan->object.stable.lock);
    chan->object.stable.shared = true;
    flow_name(chan->object.name, spec->name);
    mem_hold();
    handles_begin(); /* its ends are looked up until they are dropped */
    return chan;
}

static int chan_new(const weir_chan_spec *spec, struct chan **ret_chan)
{
    size_t slots = spec->capacity == WEIR_RENDEZVOUS ? 0 : spec->capacity;
    struct chan *chan = chan_alloc(spec);

    if (!chan) return -ENOMEM;
    if (spec->capacity_max) slots = spec->capacity_max;
    chan->any_thread = spec->any_thread;
    if (slots > 0) {
        chan->items = mem_alloc(slots * spec->item_bytes);
        if (is_traced(spec)) chan->notes = mem_alloc_zeroed(slots * sizeof(struct trace_node *));
        if (!chan->items || (is_traced(spec) && !chan->notes)) {
            free_if_over(chan, true);
            return -ENOMEM;
        }
    }
    chan->slots = (uint32_t)slots;
    chan->head = chan->tail = chan->items;
    chan->capacity = slots > 0 ? (uint32_t)spec->capacity : 0;
    chan->item_bytes = (uint32_t)spec->item_bytes;
    if (slots > 0) {
        chan->head_mark = chan->end = chan->items + slots * spec->item_bytes;
        chan_aim_tail(chan);
        chan->sample_at = CHAN_SAMPLE_EVERY;
    }
    chan->overflow = (uint8_t)spec->overflow;
    chan->discards = spec->on_close == WEIR_DISCARD;
    chan->takes_work = spec->takes_work;
    chan->counts_done = spec->counts_done;
    chan->traced = is_traced(spec);
    chan->on_drop = spec->on_drop;
    chan->drop_arg = spec->keep_arg;
    chan->latency_ms = spec->latency_ms;
    chan->mail.deliver = deliver_chan_mail;
    list_init(&chan->senders);
    list_init(&chan->receivers);
    list_init(&chan->finishers);
    list_init(&chan->ends);
    chan->object.has_sides = has_sides(spec);
    if (chan->object.has_sides) chan_sides_init(chan);
    *ret_chan = chan;
    return 0;
}

int weir_chan_open_sized(weir_scope *scope, size_t spec_bytes, const weir_chan_spec *given,
                         size_t item_bytes, weir_tx **ret_tx, weir_rx **ret_rx)
{
    struct worker *worker = worker_self();
    struct chan_end *tx, *rx;
    weir_chan_spec spec;
    struct chan *chan;
    int r;

    if (!worker) return refuse_no_task("weir_chan_open");
    scope_check(scope, "weir_chan_open");
    spec_copy(&spec, sizeof spec, given, spec_bytes);
    if (spec.item_bytes == 0) spec.item_bytes = item_bytes;
    r = check_spec(&spec);
    if (r < 0) return r;
    if (item_bytes && spec.item_bytes != item_bytes) {
        return refuse("channel '%s': item_bytes is %zu, and items of its ends' type have %zu",
                      spec.name, spec.item_bytes, item_bytes);
    }
    r = chan_new(&spec, &chan);
    if (r < 0) return r;
    r = end_new(chan, true, &tx);
    if (r < 0) goto fail_free;
    r = end_new(chan, false, &rx);
    if (r < 0) goto fail_tx;
    r = scope_own(scope, worker, &chan->object.belonging, &chan_kind);
    if (r < 0) goto fail_rx;
    chan_lock(chan);
    end_link(chan, tx);
    end_link(chan, rx);
    chan_unlock(chan);
    meter_enter(&chan->metered, meter_get(&chan_meter_kind, chan->object.name, NULL));
    *ret_tx = tx->handle;
    *ret_rx = rx->handle;
    return 0;

fail_rx:
    end_free(rx);
fail_tx:
    end_free(tx);
fail_free:
    free_if_over(chan, true);
    return r;
}

/* ---- Changing and looking ---- */

int weir_chan_resize(weir_tx *tx, size_t capacity)
{
    struct chan *chan = chan_of_tx(tx, "weir_chan_resize");

    flow_check_worker("weir_chan_resize");
    if (chan->slots == 0) {
        return refuse("channel '%s': a rendezvous has no capacity to change", chan->object.name);
    }
    if (capacity == 0 || capacity > chan->slots) {
        return refuse("channel '%s': capacity %zu is not within 1 and capacity_max, %u",
                      chan->object.name, capacity, chan->slots);
    }
    if (!chan_lock_named(chan, tx, HANDLE_TX)) return WEIR_ECLOSED;
    chan->capacity = (uint32_t)capacity;
    chan_set_plain(chan);
    chan_refill(chan);
    chan_unlock(chan);
    worker_touched(worker_self());
    return 0;
}

static size_t queue_length(const struct list *queue)
{
    size_t count = 0;
    list_for_each(node, queue) count++;
    return count;
}

static void figures(struct chan *chan, const void *end, enum handle_kind kind, const char *call,
                    weir_chan_figures *ret_figures)
{
    chan_check_thread(chan, call);
    if (!chan_lock_named(chan, end, kind)) flow_misused(end, "end", call);
    *ret_figures = (weir_chan_figures){
        .depth = chan->count,
        .depth_max = chan->depth_max,
        .capacity = chan->capacity,
        .senders_waiting = queue_length(&chan->senders),
        .receivers_waiting = queue_length(&chan->receivers),
        .accepted = chan_accepted(chan),
        .received = chan->received,
        .rejected = chan->rejected,
        .dropped = chan->dropped,
        .unfinished = chan->unfinished,
    };
    chan_unlock(chan);
}

void weir_tx_figures(weir_tx *tx, weir_chan_figures *ret_figures)
{
    figures(chan_of_tx(tx, "weir_tx_figures"), tx, HANDLE_TX, "weir_tx_figures", ret_figures);
}

void weir_rx_figures(weir_rx *rx, weir_chan_figures *ret_figures)
{
    figures(chan_of_rx(rx, "weir_rx_figures"), rx, HANDLE_RX, "weir_rx_figures", ret_figures);
}
