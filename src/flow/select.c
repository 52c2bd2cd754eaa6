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
#include "flow/select_order.h"
#include "flow/wait.h"
#include "rt/park.h"
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

static int check_cases(const weir_case *cases, size_t count, enum weir_select_order order)
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

_Static_assert(WEIR_CASE_UNSET_ < WEIR_CASE_RECV_ && WEIR_CASE_SEND_ < WEIR_CASE_RECV_,
               "there is nothing to check of the other kinds");

/* Whether check_cases has nothing to say, at a glance. */
static inline bool only_takes(const weir_case *cases, size_t count, enum weir_select_order order)
{
    int kinds = 0; /* negative: one of them comes before the others */

    if (count - 1 >= WEIR_SELECT_MAX || (order != WEIR_FAIR && order != WEIR_IN_ORDER))
        return false;
    for (size_t i = 0; i < count; i++) kinds |= (int)cases[i].kind - (int)WEIR_CASE_RECV_;
    return kinds >= 0;
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

/* Tried one after the other, in the order of the trial. */
static __attribute__((noinline)) int select_tried(weir_case *cases, size_t count, struct task *self,
                                                  size_t first, enum weir_select_order order)
{
    struct trial trial WEIR_UNINITIALIZED_;

    trial.made = 0;
    return count <= SELECT_FEW ? select_few(cases, count, self, &trial, first, order)
                               : select_many(cases, count, self, &trial, first, order);
}

/* ---- The only worker, and channels that are plain memory ---- */

/* What the case names, if that is such a channel; else NULL. */
static inline struct chan *plain_chan(const weir_case *c)
{
    struct chan *chan = NULL;

    if (c->kind == WEIR_CASE_RECV_) {
        chan = handle_object_near(c->object, HANDLE_RX);
        if (chan && chan->recv_plain != CHAN_PLAIN) return NULL;
    } else if (c->kind == WEIR_CASE_SEND_) {
        chan = handle_object_near(c->object, HANDLE_TX);
        if (chan && chan->send_plain != CHAN_PLAIN) return NULL;
    }
    return chan;
}

/* Without it there is nothing to try. */
static inline bool may_be_done(const weir_case *c, const struct chan *chan)
{
    if (c->kind == WEIR_CASE_RECV_) return chan->count > 0 || !list_empty(&chan->senders);
    return chan->count < chan->capacity || !list_empty(&chan->receivers);
}

/* Whether the case waits if it cannot be done, or takes more than that. */
static inline bool may_wait(const weir_case *c, const struct chan *chan)
{
    return c->kind == WEIR_CASE_RECV_ ? !chan->over_or_work : chan->overflow == WEIR_WAIT;
}

/* False: it cannot be done after all, since who seemed to wait has found something else. */
static inline bool done_at_once(struct worker *worker, weir_case *c, struct chan *chan)
{
    if (c->kind == WEIR_CASE_RECV_) {
        if (!chan_recv_at_once(worker, chan, c->item)) return false;
        sanitize_acquire(chan);
    } else {
        sanitize_release(chan);
        if (!chan_send_at_once(worker, chan, c->item)) return false;
    }
    c->result = 0;
    return true;
}

_Static_assert(WEIR_SELECT_MAX <= 64, "a set of cases is a word, one bit for each");

/* One of the set, as the order has it. */
static inline size_t one_of_set(struct worker *worker, uint64_t set, enum weir_select_order order)
{
    size_t skipped = 0;

    /* Mostly it is one; to count them is a call. */
    if (set & (set - 1)) skipped = one_of(worker, (size_t)__builtin_popcountll(set), order);

    while (skipped-- > 0) set &= set - 1;
    return (size_t)__builtin_ctzll(set);
}

/* The index of a case that was done, `count` if all must wait, -1 if some take more. All are looked
 * at before one is tried: which of them can be done is not to be foreseen, and a branch for each
 * would be taken wrongly half of the time. `chans` gets what they name. */
static inline int try_at_once(weir_case *cases, size_t count, struct chan **chans,
                              struct worker *worker, enum weir_select_order order)
{
    uint64_t set = 0;

    for (size_t i = 0; i < count; i++) {
        struct chan *chan = chans[i] = plain_chan(&cases[i]);
        bool may;
        if (__builtin_expect(!chan, 0)) return -1;
        may = may_be_done(&cases[i], chan);
        if (__builtin_expect(!may_wait(&cases[i], chan), 0) && !may) return -1;
        set |= (uint64_t)may << i;
    }
    while (set != 0) {
        size_t i = one_of_set(worker, set, order);
        if (done_at_once(worker, &cases[i], chans[i])) return (int)i;
        if (!may_wait(&cases[i], chans[i])) return -1;
        set &= ~(UINT64_C(1) << i);
    }
    return (int)count;
}

/* Put a waiter into the queue of each case. Nothing has happened since they were tried, so that
 * they are not tried again, and there is nothing to lock. */
static inline void enlist_here(struct selection *selection, struct waiter *waiters,
                               const weir_case *cases, size_t count, struct chan *const *chans)
{
    selection->count = count;
    selection->locks = &waiters[0].object;
    selection->group.shared = false;
    selection->group.mate_count = (unsigned)count;
    selection->group.mates = waiters;
    atom_store(&selection->group.winner, GROUP_UNDECIDED);
    for (size_t i = 0; i < count; i++) {
        waiter_init(&waiters[i], selection->task, &chans[i]->object, cases[i].item, 0);
        waiters[i].group = &selection->group;
        waiters[i].index = (int)i;
        if (cases[i].kind == WEIR_CASE_RECV_) {
            chan_add_receiver(chans[i], &waiters[i]);
        } else {
            chan_add_sender(chans[i], &waiters[i]);
        }
    }
}

/* The first that was chosen cannot be done just now. */
static SWITCH_RETURNS int select_here(weir_case *cases, size_t count, struct task *self,
                                      enum weir_select_order order)
{
    struct chan *chans[WEIR_SELECT_MAX] WEIR_UNINITIALIZED_;
    struct waiter waiters[SELECT_FEW] WEIR_UNINITIALIZED_;
    struct selection selection WEIR_UNINITIALIZED_; /* what wait_select_here needs of it */
    struct worker *worker = atom_load(&self->home);
    int r = try_at_once(cases, count, chans, worker, order);
    int winner;

    if (__builtin_expect(r >= 0 && r < (int)count, 1)) return r;
    if (r < 0 || count > SELECT_FEW) {
        return select_tried(cases, count, self, one_of(worker, count, order), order);
    }
    selection.task = self;
    enlist_here(&selection, waiters, cases, count, chans);
    r = task_park_here(worker, self, &wait_select_here, &selection);
    winner = atom_load(&selection.group.winner); /* who has claimed it has taken the others out */
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

/* The call has begun, and the first that was chosen cannot be done as weir_select does it. */
static inline int select_from(weir_case *cases, size_t count, struct task *self, size_t first,
                              enum weir_select_order order)
{
    struct chan *chan = plain_chan(&cases[first]);

    if (__builtin_expect(!chan, 0)) return select_tried(cases, count, self, first, order);
    if (may_be_done(&cases[first], chan) &&
        done_at_once(atom_load(&self->home), &cases[first], chan)) {
        return (int)first;
    }
    return select_here(cases, count, self, order);
}

static __attribute__((noinline)) int select_begun(weir_case *cases, size_t count, struct task *self,
                                                  size_t first, enum weir_select_order order)
{
    return select_from(cases, count, self, first, order);
}

static __attribute__((noinline)) int select_checked(weir_case *cases, size_t count,
                                                    enum weir_select_order order)
{
    struct task *self = task_self();
    int r;

    if (!self) return refuse_no_task("weir_select");
    r = check_cases(cases, count, order);
    if (r < 0) return r;
    if (!task_enter_at_once(self)) {
        r = enter_slowly(cases, count, self);
        if (r != (int)count) return r;
    }
    return select_from(cases, count, self, one_of(atom_load(&self->home), count, order), order);
}

/* The common one: the only worker, no case sends, and the case that is chosen finds a word. What is
 * rarer is a call at its end, so that this one has no frame. */
int weir_select(weir_case *cases, size_t count, enum weir_select_order order)
{
    struct task *self = task_self();
    struct chan *chan;
    uint32_t left;
    size_t first;
    weir_case *c;

    if (__builtin_expect(!self || !atom_load(&self->home)->plain, 0) ||
        __builtin_expect(!only_takes(cases, count, order), 0) || !task_enter_at_once(self)) {
        return select_checked(cases, count, order);
    }
    first = one_of_plain(atom_load(&self->home), count, order);
    c = &cases[first];
    if (__builtin_expect(c->kind != WEIR_CASE_RECV_, 0)) goto begun;
    chan = handle_object_near(c->object, HANDLE_RX);
    if (__builtin_expect(!chan || chan->recv_plain != CHAN_PLAIN, 0)) goto begun;
    left = chan->count - 1;
    if (left < chan->recv_limit) {
        sanitize_acquire(chan);
        c->result = 0;
        (void)chan_take_word(chan, c->item, left);
        return (int)first;
    }
    if (chan->count == 0 && chan_waits_alone(chan, &chan->senders)) {
        sanitize_acquire(chan);
        c->result = 0;
        (void)chan_fetch_word(chan, atom_load(&self->home), c->item);
        return (int)first;
    }
    if (chan->count == 0 && list_empty(&chan->senders)) {
        return select_here(cases, count, self, order);
    }
begun:
    return select_begun(cases, count, self, first, order);
}
