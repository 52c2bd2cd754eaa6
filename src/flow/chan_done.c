/* chan_done.c - items that are finished, not only taken: marking them, waiting for all. */
#include <assert.h>

#include "flow/chan.h"

/* Items that nobody has to wait for any more. The lock is held. */
void chan_finish(struct chan *chan, uint64_t count)
{
    if (!chan->counts_done) return;
    assert(chan->unfinished >= count);
    chan->unfinished -= count;
    if (chan->unfinished > 0 || list_empty(&chan->finishers)) return;
    if (worker_self()) {
        waiter_wake_all(&chan->finishers, 0);
    } else {
        chan_ask_home(chan);
    }
}

static const struct wait_kind wait_done = {
    .name = "wait until done",
    .abort = waiter_abort,
    .describe = waiter_describe,
    .what = WAIT_FOR_END,
    .ends = ENDS_WITH_TASKS,
    .facts = chan_facts,
};

int weir_tx_wait_done(weir_tx *tx)
{
    struct chan *chan = chan_of_tx(tx, "weir_tx_wait_done");
    struct task *self = task_self();
    struct waiter waiter = {.task = self, .object = &chan->object};
    int r;

    if (!self) return refuse_no_task("weir_tx_wait_done");
    if (!chan->counts_done) {
        return refuse(
            "channel '%s': counts_done is not set, so nobody says when an item is finished",
            chan->object.name);
    }
    r = chan_enter(self, chan, tx, HANDLE_TX);
    if (r < 0) return r;
    if (!chan_lock_named(chan, tx, HANDLE_TX)) return WEIR_ECLOSED;
    if (chan->unfinished == 0) {
        chan_unlock(chan);
        sanitize_acquire(&chan->finishers);
        return 0;
    }
    if (chan->rx_count == 0) {
        chan_unlock(chan);
        return WEIR_ECLOSED;
    }
    list_add_tail(&chan->finishers, &waiter.node);
    chan_unlock(chan);
    r = waiter_park(self, &waiter, &wait_done);
    sanitize_acquire(&chan->finishers);
    return r;
}

void weir_rx_done(weir_rx *rx, size_t count)
{
    struct chan *chan = chan_of_rx(rx, "weir_rx_done");
    bool possible;

    flow_check_worker("weir_rx_done");
    sanitize_release(&chan->finishers);
    if (!chan_lock_named(chan, rx, HANDLE_RX)) flow_misused(rx, "receiving end", "weir_rx_done");
    possible = chan->counts_done && count <= chan->taken;
    if (possible) {
        chan->taken -= count;
        chan_finish(chan, count);
    }
    chan_unlock(chan);
    worker_touched(worker_self());
    if (!possible) {
        misuse(
            "weir_rx_done: channel '%s': %zu items, and only %llu were received and not marked%s",
            chan->object.name, count, (unsigned long long)chan->taken,
            chan->counts_done ? "" : " (counts_done is not set)");
    }
}
