/* select.c - one of several things, whichever can be done first.
 *
 * With the locks of all channels and events held (in the order of their addresses, so
 * that two selects cannot block each other) the cases are tried in the chosen order. If
 * none can be done, a waiter is put into every queue, the locks are let go, and the task
 * parks. Whoever can do one of the cases claims the group (wait.h); the others are taken
 * out again by the task itself when it goes on.
 *
 * Lock order: a channel's or event's lock, then a scope's or a descriptor's.
 */
#include <stdio.h>
#include <weir/select.h>

#include "base/planted.h"
#include "flow/chan.h"
#include "flow/event.h"
#include "flow/wait.h"
#include "rt/pollable.h"
#include "rt/timer.h"

struct selection;

/* What a case needs while it waits. */
struct case_wait {
    struct waiter waiter;
    struct selection *selection;
    union {
        struct join_wait join;
        struct timer timer;
        struct pollable *pollable;
    };
    bool enlisted;
};

struct selection {
    struct wait_group group;
    struct task *task;
    weir_case *cases;
    size_t count;
    struct flow_object **locks; /* sorted, each once; those that are taken at all */
    size_t lock_count;
    struct case_wait *waits; /* as many as there are cases; each has its object */
};

enum { SELECT_FEW = 8 }; /* most have no more: their frame is small */

/* The order in which the cases are tried: a shuffle that is made as far as it is needed, since
 * mostly the first is ready. (Going round from a random first would favour the case behind
 * those that are not ready.) */
struct trial {
    size_t made;                    /* positions that are decided */
    uint8_t order[WEIR_SELECT_MAX]; /* filled with the second */
};

/* ---- Locks ---- */

static struct flow_object *object_of(const weir_case *c)
{
    switch (c->kind) {
    case WEIR_CASE_SEND_: return &chan_of_tx(c->object, "weir_select")->object;
    case WEIR_CASE_RECV_: return &chan_of_rx(c->object, "weir_select")->object;
    case WEIR_CASE_EVENT_: {
        weir_event *event = flow_look_up(c->object, HANDLE_EVENT, "event", "weir_select");
        return &event->sync.object;
    }
    default: return NULL;
    }
}

static struct chan *chan_of_wait(const struct case_wait *wait)
{
    return container_of(wait->waiter.object, struct chan, object);
}

/* One order of locks for all. Not by address alone: a simulated run would not be the same when it
 * is repeated. */
static bool comes_after(const struct flow_object *one, const struct flow_object *other)
{
    if (one->stable.number != other->stable.number) {
        return one->stable.number > other->stable.number;
    }
    return one > other; /* of different runtimes */
}

/* By insertion: there are few. */
static void note_lock(struct selection *selection, struct flow_object *object)
{
    size_t at = selection->lock_count;
    while (at > 0 && comes_after(selection->locks[at - 1], object) &&
           !PLANTED(SELECT_LOCKS_UNSORTED)) {
        at--;
    }
    if (at > 0 && selection->locks[at - 1] == object) return;
    for (size_t i = selection->lock_count; i > at; i--) {
        selection->locks[i] = selection->locks[i - 1];
    }
    selection->locks[at] = object;
    selection->lock_count++;
}

/* Whether the case's handle names nothing any more: it has been closed since it was looked up. */
static bool has_ended(const weir_case *c)
{
    switch (c->kind) {
    case WEIR_CASE_SEND_: return !handle_object(c->object, HANDLE_TX);
    case WEIR_CASE_RECV_: return !handle_object(c->object, HANDLE_RX);
    case WEIR_CASE_EVENT_: return !handle_object(c->object, HANDLE_EVENT);
    default: return false;
    }
}

/* The first such case, which is done with that; `count`: none. */
static size_t find_ended(weir_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!has_ended(&cases[i])) continue;
        cases[i].result = WEIR_ECLOSED;
        return i;
    }
    return count;
}

/* What was looked up before may have ended since, and its memory be another's: then nothing
 * is locked, and the result is the index of its case; else `count`. */
static size_t lock_all(struct selection *selection) LOCK_UNCHECKED;
static size_t lock_all(struct selection *selection)
{
    size_t ended;

    for (size_t i = 0; i < selection->lock_count; i++) flow_lock(selection->locks[i]);
    ended = find_ended(selection->cases, selection->count);
    for (size_t i = 0; i < selection->lock_count; i++) {
        struct flow_object *object = selection->locks[i];
        if (ended < selection->count) {
            flow_unlock(object);
        } else if (object->has_sides) {
            chan_sides_join(container_of(object, struct chan, object));
        }
    }
    return ended;
}

static void unlock_all(struct selection *selection) LOCK_UNCHECKED;
static void unlock_all(struct selection *selection)
{
    for (size_t i = selection->lock_count; i-- > 0;) {
        struct flow_object *object = selection->locks[i];
        if (object->has_sides) chan_sides_part(container_of(object, struct chan, object));
        flow_unlock(object);
    }
}

/* ---- Trying: 1 it was done, 0 it must wait, or an error ---- */

static int try_send(weir_case *c, struct chan *chan)
{
    int r;
    /* One that drops never waits; its hook is called without locks, so not from here. */
    sanitize_release(chan);
    r = chan_offer(chan, c->item, NULL);
    if (r == CHAN_MUST_WAIT) {
        if (chan->overflow == WEIR_WAIT) return 0;
        chan->rejected++;
        r = WEIR_EOVERLOAD;
    }
    c->result = r;
    return 1;
}

static int try_recv(weir_case *c, struct chan *chan)
{
    int r = chan_take(chan, c->item);
    if (r == CHAN_MUST_WAIT) return 0;
    sanitize_acquire(chan);
    c->result = r;
    return 1;
}

static int try_join(weir_case *c, struct case_wait *wait, struct task *self)
{
    int r;

    wait->join = (struct join_wait){.waiter = self};
    r = task_join_begin(c->task, &wait->join, JOIN_TAKES);
    if (r < 0 && r != WEIR_ECLOSED) return r;
    if (r == 0) return 0;
    c->result = r < 0 ? r : 0;
    c->task_result = wait->join.result;
    return 1;
}

static int try_readable(weir_case *c, struct case_wait *wait)
{
    bool now;

    wait->pollable = pollable_of_conn(c->object, "weir_select", &now);
    if (!wait->pollable) return WEIR_EINUSE;
    if (!now) return 0;
    pollable_of_conn_done(c->object);
    wait->pollable = NULL;
    c->result = 0;
    return 1;
}

static int try_case(struct selection *selection, size_t index)
{
    weir_case *c = &selection->cases[index];
    struct case_wait *wait = &selection->waits[index];

    switch (c->kind) {
    case WEIR_CASE_SEND_: return try_send(c, chan_of_wait(wait));
    case WEIR_CASE_RECV_: return try_recv(c, chan_of_wait(wait));
    case WEIR_CASE_EVENT_: {
        weir_event *event = container_of(wait->waiter.object, struct weir_event, sync.object);
        if (!event->is_set) return 0;
        sanitize_acquire(event);
        break;
    }
    case WEIR_CASE_TIMER_:
        if (c->ms > 0) return 0;
        break;
    case WEIR_CASE_JOIN_: return try_join(c, wait, selection->task);
    case WEIR_CASE_READABLE_: return try_readable(c, wait);
    case WEIR_CASE_UNSET_: return 0;
    }
    c->result = 0;
    return 1;
}

/* ---- Waiting ---- */

/* A case that is not in a queue of this layer has come true. */
static bool case_done(struct case_wait *wait, int result)
{
    if (!group_claim(&wait->selection->group, wait->waiter.index)) return false;
    waiter_wake(&wait->waiter, result);
    return true;
}

static bool task_ended(struct join_wait *join)
{
    return case_done(container_of(join, struct case_wait, join), 0);
}

static void time_over(struct worker *worker, struct timer *timer)
{
    (void)worker;
    (void)case_done(container_of(timer, struct case_wait, timer), 0);
}

static void became_readable(struct worker *worker, void *arg)
{
    struct case_wait *wait = arg;
    const weir_case *c = &wait->selection->cases[wait->waiter.index];
    int r = 0;

    callback_begin(worker);
    if (!pollable_of_conn_readable(c->object)) {
        r = pollable_call_when_readable(wait->pollable, became_readable, wait);
        if (r == 0) return;
    }
    (void)case_done(wait, r);
}

/* Put a waiter of the case where it will be found; the locks are held. */
static int enlist(struct selection *selection, size_t index, struct worker *worker)
{
    weir_case *c = &selection->cases[index];
    struct case_wait *wait = &selection->waits[index];
    struct flow_object *object = wait->waiter.object;
    int r = 0;

    wait->selection = selection;
    waiter_init(&wait->waiter, selection->task, object, c->item, 0);
    wait->waiter.group = &selection->group;
    wait->waiter.index = (int)index;
    switch (c->kind) {
    case WEIR_CASE_SEND_:
        chan_add_sender(container_of(object, struct chan, object), &wait->waiter);
        break;
    case WEIR_CASE_RECV_:
        chan_add_receiver(container_of(object, struct chan, object), &wait->waiter);
        break;
    case WEIR_CASE_EVENT_:
        list_add_tail(&container_of(object, struct sync, object)->waiters, &wait->waiter.node);
        break;
    case WEIR_CASE_TIMER_:
        timer_init(&wait->timer, time_over);
        timer_arm(worker, &wait->timer,
                  time_after_ms(worker->kernel->now_ns(worker->kernel), c->ms));
        break;
    case WEIR_CASE_JOIN_:
        wait->join = (struct join_wait){.waiter = selection->task, .ended = task_ended};
        r = task_join_begin(c->task, &wait->join, JOIN_WAITS);
        if (r == WEIR_ECLOSED) r = 1; /* joined by another meanwhile: the next look says it */
        break;
    case WEIR_CASE_READABLE_:
        r = pollable_call_when_readable(wait->pollable, became_readable, wait);
        break;
    case WEIR_CASE_UNSET_: break;
    }
    wait->enlisted = r == 0;
    return r;
}

/* Take what is left of the case out again; no lock is held. */
static void delist(struct selection *selection, size_t index, struct worker *worker)
{
    weir_case *c = &selection->cases[index];
    struct case_wait *wait = &selection->waits[index];

    if (wait->enlisted && !(PLANTED(SELECT_LEAVES_WAITER) && c->kind == WEIR_CASE_EVENT_)) {
        switch (c->kind) {
        case WEIR_CASE_SEND_:
        case WEIR_CASE_RECV_:
        case WEIR_CASE_EVENT_: (void)waiter_abort(selection->task, &wait->waiter); break;
        case WEIR_CASE_TIMER_: timer_disarm(worker, &wait->timer); break;
        case WEIR_CASE_JOIN_: (void)task_join_cancel(&wait->join); break;
        case WEIR_CASE_READABLE_: (void)pollable_call_off(wait->pollable); break;
        case WEIR_CASE_UNSET_: break;
        }
    }
    if (c->kind == WEIR_CASE_READABLE_ && wait->pollable) pollable_of_conn_done(c->object);
}

static bool select_abort(struct task *task, void *object)
{
    struct selection *selection = object;
    (void)task;
    return group_claim(&selection->group, GROUP_INTERRUPTED);
}

static void select_describe(const void *object, char *text, size_t bytes)
{
    const struct selection *selection = object;
    (void)snprintf(text, bytes, "one of %zu", selection->count);
}

/* What one case could be ended by, for all of them together. */
static void case_facts(const struct selection *selection, size_t index, struct waiting *ret_waiting)
{
    const struct case_wait *wait = &selection->waits[index];

    switch (selection->cases[index].kind) {
    case WEIR_CASE_SEND_:
    case WEIR_CASE_RECV_:
        if (chan_of_wait(wait)->any_thread) ret_waiting->ends = ENDS_OUTSIDE;
        if (ret_waiting->ends == ENDS_WITH_ANY) ret_waiting->ends = ENDS_WITH_TASKS;
        break;
    case WEIR_CASE_EVENT_:
        if (ret_waiting->ends == ENDS_WITH_ANY) ret_waiting->ends = ENDS_WITH_TASKS;
        break;
    case WEIR_CASE_JOIN_:
        if (!wait->join.target) ret_waiting->ends = ENDS_OUTSIDE; /* it has just ended */
        waiting_by(ret_waiting, wait->join.target, 0);
        break;
    default: ret_waiting->ends = ENDS_OUTSIDE; break;
    }
}

static void select_facts(const void *object, struct waiting *ret_waiting)
{
    const struct selection *selection = object;

    (void)snprintf(ret_waiting->name, sizeof ret_waiting->name, "%zu cases", selection->count);
    if (selection->count == 1 && selection->waits[0].waiter.object) {
        waiter_facts_of(selection->waits[0].waiter.object, ret_waiting);
    }
    for (size_t i = 0; i < selection->count; i++) case_facts(selection, i, ret_waiting);
}

/* Of one that waits for nothing but channels of the only worker: `locks` has the first. */
static void select_here_facts(const void *object, struct waiting *ret_waiting)
{
    const struct selection *selection = object;

    (void)snprintf(ret_waiting->name, sizeof ret_waiting->name, "%zu cases", selection->count);
    if (selection->count == 1) waiter_facts_of(selection->locks[0], ret_waiting);
}

static const struct wait_kind wait_select = {
    .name = "select",
    .abort = select_abort,
    .describe = select_describe,
    .what = WAIT_FOR_ONE_OF,
    .ends = ENDS_WITH_ANY,
    .facts = select_facts,
};
static const struct wait_kind wait_select_work = {
    .name = "select",
    .takes_work = true,
    .abort = select_abort,
    .describe = select_describe,
    .what = WAIT_FOR_ONE_OF,
    .ends = ENDS_WITH_ANY,
    .facts = select_facts,
};

static const struct wait_kind wait_select_here = {
    .name = "select",
    .abort = select_abort,
    .describe = select_describe,
    .what = WAIT_FOR_ONE_OF,
    .ends = ENDS_WITH_TASKS,
    .facts = select_here_facts,
};

/* ---- The call ---- */

static inline int check_cases(const weir_case *cases, size_t count, enum weir_select_order order)
{
    if (count == 0 || count > WEIR_SELECT_MAX) {
        return refuse("select: %zu cases, must be 1 to %d", count, WEIR_SELECT_MAX);
    }
    if (order != WEIR_FAIR && order != WEIR_IN_ORDER) return refuse("select: order is not set");
    for (size_t i = 0; i < count; i++) {
        if (cases[i].kind == WEIR_CASE_UNSET_) return refuse("select: case %zu is not set", i);
        if (cases[i].kind == WEIR_CASE_SEND_ &&
            chan_of_tx(cases[i].object, "weir_select")->overflow >= WEIR_DROP_NEWEST) {
            return refuse("select: case %zu sends to a channel that drops, which never waits: "
                          "send to it instead",
                          i);
        }
    }
    return 0;
}

/* One of `n`: over time each alike often. */
static inline size_t one_of(struct worker *worker, size_t n, enum weir_select_order order)
{
    if (order == WEIR_IN_ORDER || n == 1) return 0;
    if (worker->kernel->choose) return kernel_choose(worker->kernel, CHOOSE_CASE, (unsigned)n);
    worker->select_turn = worker->select_turn * 1664525u + 1013904223u;
    return (size_t)(((uint64_t)worker->select_turn * n) >> 32);
}

/* The case that is tried in place `i`; places are asked for in order, the first is `first`. */
static inline size_t trial_at(struct trial *trial, size_t i, size_t first, size_t count,
                              struct worker *worker, enum weir_select_order order)
{
    size_t with;
    uint8_t held;

    if (i == 0) return first;
    if (i < trial->made) return trial->order[i];
    if (i == 1) {
        for (size_t k = 0; k < count; k++) trial->order[k] = (uint8_t)k;
        trial->order[first] = 0;
        trial->order[0] = (uint8_t)first;
    }
    with = i + one_of(worker, count - i, order);
    held = trial->order[with];
    trial->order[with] = trial->order[i];
    trial->order[i] = held;
    trial->made = i + 1;
    return held;
}

/* The index of a case that was done at once, `count` if none could be, or an error. */
static int try_all(struct selection *selection, struct trial *trial, size_t first,
                   struct worker *worker, enum weir_select_order order)
{
    for (size_t i = 0; i < selection->count; i++) {
        size_t index = trial_at(trial, i, first, selection->count, worker, order);
        int r = try_case(selection, index);
        if (r < 0) return r;
        if (r > 0) return (int)index;
    }
    return (int)selection->count;
}

static void delist_all(struct selection *selection, struct worker *worker)
{
    for (size_t i = 0; i < selection->count; i++) delist(selection, i, worker);
}

static bool takes_work(const struct selection *selection)
{
    for (size_t i = 0; i < selection->count; i++) {
        const weir_case *c = &selection->cases[i];
        if (c->kind == WEIR_CASE_RECV_ && chan_of_wait(&selection->waits[i])->takes_work) {
            return true;
        }
    }
    return false;
}

/* The locks are held, and let go. */
static int wait_for_one(struct selection *selection, struct worker *worker)
{
    bool work = takes_work(selection);
    int r = work ? task_interruption(selection->task, true) : 0;
    int winner;

    for (size_t i = 0; i < selection->count && r == 0; i++) r = enlist(selection, i, worker);
    unlock_all(selection);
    /* A join that has ended meanwhile is found by the next look. */
    if (r != 0 && !group_claim(&selection->group, GROUP_INTERRUPTED)) r = 0;
    if (r == 0) r = task_park(selection->task, work ? &wait_select_work : &wait_select, selection);
    winner = atom_load(&selection->group.winner);
    delist_all(selection, worker);
    if (r < 0) return r;
    if (winner < 0) {
        r = task_interruption(selection->task, work);
        return r < 0 ? r : (int)selection->count; /* look again */
    }
    {
        weir_case *c = &selection->cases[winner];
        struct case_wait *wait = &selection->waits[winner];
        struct flow_object *object = wait->waiter.object;
        c->result = wait->waiter.result;
        if (c->kind == WEIR_CASE_JOIN_) c->task_result = wait->join.result;
        if (object) sanitize_acquire(object);
    }
    return winner;
}

static int select_once(struct selection *selection, struct worker *worker, struct trial *trial,
                       size_t first, enum weir_select_order order)
{
    size_t ended = lock_all(selection);
    int r;

    if (ended < selection->count) return (int)ended;
    r = try_all(selection, trial, first, worker, order);
    if (r != (int)selection->count) {
        unlock_all(selection);
        /* Connections that were claimed for a look are given back. */
        delist_all(selection, worker);
        return r;
    }
    return wait_for_one(selection, worker);
}

/* None could be done at once, or that takes more than a look. */
static int select_slowly(struct selection *selection, struct worker *worker, struct trial *trial,
                         size_t first, enum weir_select_order order)
{
    size_t count = selection->count;
    int r;

    selection->group.shared = worker->shared;
    selection->lock_count = 0;
    for (size_t i = 0; i < count; i++) {
        struct flow_object *object = object_of(&selection->cases[i]);
        selection->waits[i].waiter.object = object;
        if (object && object->stable.shared) note_lock(selection, object);
    }
    for (;;) {
        for (size_t i = 0; i < count; i++) {
            selection->waits[i].enlisted = false;
            selection->waits[i].pollable = NULL;
        }
        atom_store(&selection->group.winner, GROUP_UNDECIDED);
        r = select_once(selection, worker, trial, first, order);
        if (r != (int)count) return r;
        first = one_of(worker, count, order);
        trial->made = 0;
    }
}

static __attribute__((noinline)) int select_few(weir_case *cases, size_t count, struct task *self,
                                                struct trial *trial, size_t first,
                                                enum weir_select_order order)
{
    struct flow_object *locks[SELECT_FEW] WEIR_UNINITIALIZED_;
    struct case_wait waits[SELECT_FEW] WEIR_UNINITIALIZED_;
    struct selection selection = {
        .task = self, .cases = cases, .count = count, .locks = locks, .waits = waits};

    return select_slowly(&selection, worker_self(), trial, first, order);
}

static __attribute__((noinline)) int select_many(weir_case *cases, size_t count, struct task *self,
                                                 struct trial *trial, size_t first,
                                                 enum weir_select_order order)
{
    struct flow_object *locks[WEIR_SELECT_MAX] WEIR_UNINITIALIZED_;
    struct case_wait waits[WEIR_SELECT_MAX] WEIR_UNINITIALIZED_;
    struct selection selection = {
        .task = self, .cases = cases, .count = count, .locks = locks, .waits = waits};

    return select_slowly(&selection, worker_self(), trial, first, order);
}

/* ---- The only worker, and channels that are plain memory ---- */

/* 1 it was done, 0 it must wait, -1 it takes more. */
static inline int try_at_once(struct worker *worker, weir_case *c, struct chan **ret_chan)
{
    struct chan *chan;

    if (c->kind == WEIR_CASE_RECV_) {
        *ret_chan = chan = chan_of_rx(c->object, "weir_select");
        if (chan->recv_plain != CHAN_PLAIN) return -1;
        if (chan->count == 0 && list_empty(&chan->senders)) return chan->over_or_work ? -1 : 0;
        if (!chan_recv_at_once(worker, chan, c->item)) return -1;
        sanitize_acquire(chan);
    } else if (c->kind == WEIR_CASE_SEND_) {
        *ret_chan = chan = chan_of_tx(c->object, "weir_select");
        if (chan->send_plain != CHAN_PLAIN) return -1;
        sanitize_release(chan);
        if (!chan_send_at_once(worker, chan, c->item)) {
            return chan->overflow == WEIR_WAIT ? 0 : -1;
        }
    } else {
        return -1;
    }
    c->result = 0;
    return 1;
}

/* All were tried so and must wait: nothing has happened since, so that they are not tried again,
 * and there is nothing to lock. `chans` has what each names. */
static __attribute__((noinline)) int wait_here(weir_case *cases, size_t count, struct task *self,
                                               struct chan *const *chans)
{
    struct waiter waiters[SELECT_FEW] WEIR_UNINITIALIZED_;
    struct selection selection WEIR_UNINITIALIZED_; /* what wait_select_here needs of it */
    int r, winner;

    selection.count = count;
    selection.locks = &waiters[0].object;
    selection.group.shared = false;
    atom_store(&selection.group.winner, GROUP_UNDECIDED);
    for (size_t i = 0; i < count; i++) {
        struct waiter *waiter = &waiters[i];
        waiter_init(waiter, self, &chans[i]->object, cases[i].item, 0);
        waiter->group = &selection.group;
        waiter->index = (int)i;
        if (cases[i].kind == WEIR_CASE_RECV_) {
            chan_add_receiver(chans[i], waiter);
        } else {
            chan_add_sender(chans[i], waiter);
        }
    }
    r = task_park(self, &wait_select_here, &selection);
    winner = atom_load(&selection.group.winner);
    for (size_t i = 0; i < count; i++) {
        if (!list_empty(&waiters[i].node)) list_remove(&waiters[i].node);
    }
    if (r < 0) return r;
    cases[winner].result = waiters[winner].result;
    sanitize_acquire(waiters[winner].object);
    return winner;
}

/* It yields, maybe: what the cases name now may have ended then. The index of such a case, or
 * `count`, or an error. */
static __attribute__((noinline)) int enter_slowly(weir_case *cases, size_t count, struct task *self)
{
    int r;

    for (size_t i = 0; i < count; i++) (void)object_of(&cases[i]);
    r = task_enter_slow(self, ENTER_PLAIN);
    return r < 0 ? r : (int)find_ended(cases, count);
}

int weir_select(weir_case *cases, size_t count, enum weir_select_order order)
{
    struct task *self = task_self();
    struct chan *chans[WEIR_SELECT_MAX] WEIR_UNINITIALIZED_;
    struct trial trial WEIR_UNINITIALIZED_;
    struct worker *worker;
    size_t first, tried;
    int r;

    if (!self) return refuse_no_task("weir_select");
    r = check_cases(cases, count, order);
    if (r < 0) return r;
    if (!task_enter_at_once(self)) {
        r = enter_slowly(cases, count, self);
        if (r != (int)count) return r;
    }
    worker = atom_load(&self->home);
    first = one_of(worker, count, order);
    trial.made = 0;
    for (tried = 0; tried < count; tried++) {
        size_t index = trial_at(&trial, tried, first, count, worker, order);
        r = try_at_once(worker, &cases[index], &chans[index]);
        if (__builtin_expect(r > 0, 1)) return (int)index;
        if (r < 0) break;
    }
    if (tried == count && count <= SELECT_FEW) return wait_here(cases, count, self, chans);
    return count <= SELECT_FEW ? select_few(cases, count, self, &trial, first, order)
                               : select_many(cases, count, self, &trial, first, order);
}
