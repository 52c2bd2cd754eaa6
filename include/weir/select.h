/* select.h - wait for whichever of several things can be done first, and do that one.
 *
 *     weir_case cases[] = {
 *         WEIR_CASE_RECV(orders, &order),
 *         WEIR_CASE_SEND(results, &result),
 *         WEIR_CASE_EVENT(shutdown),
 *         WEIR_CASE_TIMER(1000),
 *     };
 *     switch (weir_select(cases, 4, WEIR_FAIR)) {
 *     case 0: ... an order was received, if cases[0].result is 0
 *
 * Exactly one case is done. Cancellation and the deadline in force are always among the
 * cases, without being written down.
 *
 * Cancel: nothing moved.
 * Threads: tasks of the runtime.
 */
#ifndef WEIR_SELECT_H
#define WEIR_SELECT_H

#include <weir/chan.h>
#include <weir/defs.h>
#include <weir/net.h>
#include <weir/sync.h>
#include <weir/task.h>

WEIR_BEGIN

#define WEIR_SELECT_MAX 64

/* What a case waits for. */
enum weir_case_kind {
    WEIR_CASE_UNSET_ = 0,
    WEIR_CASE_SEND_,
    WEIR_CASE_RECV_,
    WEIR_CASE_JOIN_,
    WEIR_CASE_TIMER_,
    WEIR_CASE_EVENT_,
    WEIR_CASE_READABLE_,
};

/* One thing to wait for; made by the macros below, or by weir_case_* in C++. */
typedef struct weir_case {
    enum weir_case_kind kind;
    int result;      /* of the case that was done: 0; WEIR_ECLOSED of a channel that is over;
                        an error of the watched connection; of a join 0 or WEIR_ECLOSED */
    void *object;    /* of the kind */
    void *item;      /* where a value goes or comes from */
    int64_t ms;      /* of a timer */
    weir_task task;  /* of a join */
    int task_result; /* of a join: what the task returned */
} weir_case;

/* In which order cases that are ready are preferred. */
enum weir_select_order {
    WEIR_SELECT_ORDER_UNSET = 0,
    WEIR_FAIR,     /* none: over time each of several ready ones is taken alike often */
    WEIR_IN_ORDER, /* as they are written: the first that is ready; later ones may starve */
};

/* weir_select - do the first of `cases` that can be done, waiting if none can. Returns its
 * index. Errors (no case was done): WEIR_ECANCELED, WEIR_ETIMEDOUT, WEIR_EREFUSED (no case,
 * more than WEIR_SELECT_MAX, order not said, a case that contradicts itself), WEIR_EINUSE (a
 * connection or task that somebody else waits for), WEIR_ESTOPPING (a case receives from a
 * channel that takes work, and nothing can be done at once), WEIR_ENOTASK. */
WEIR_SUSPENDS int weir_select(weir_case *cases, size_t count, enum weir_select_order order);

/* weir_case_send, weir_case_recv, weir_case_event, weir_case_timer, weir_case_join,
 * weir_case_readable - one case; untyped, for C++ and for cases that are made at run time.
 * A connection is only watched: read it when its case was done. Never suspend. Any thread. */
static inline weir_case weir_case_send(weir_tx *tx, const void *item)
{
    weir_case c;
    memset(&c, 0, sizeof c);
    c.kind = WEIR_CASE_SEND_;
    c.object = tx;
    c.item = (void *)(uintptr_t)item;
    return c;
}
static inline weir_case weir_case_recv(weir_rx *rx, void *ret_item)
{
    weir_case c;
    memset(&c, 0, sizeof c);
    c.kind = WEIR_CASE_RECV_;
    c.object = rx;
    c.item = ret_item;
    return c;
}
static inline weir_case weir_case_event(weir_event *event)
{
    weir_case c;
    memset(&c, 0, sizeof c);
    c.kind = WEIR_CASE_EVENT_;
    c.object = event;
    return c;
}
static inline weir_case weir_case_timer(int64_t ms)
{
    weir_case c;
    memset(&c, 0, sizeof c);
    c.kind = WEIR_CASE_TIMER_;
    c.ms = ms;
    return c;
}
static inline weir_case weir_case_join(weir_task task)
{
    weir_case c;
    memset(&c, 0, sizeof c);
    c.kind = WEIR_CASE_JOIN_;
    c.task = task;
    return c;
}
static inline weir_case weir_case_readable(weir_conn *conn)
{
    weir_case c;
    memset(&c, 0, sizeof c);
    c.kind = WEIR_CASE_READABLE_;
    c.object = conn;
    return c;
}

/* WEIR_CASE_SEND(tx, &item), WEIR_CASE_RECV(rx, &item) - cases of typed ends.
 * WEIR_CASE_EVENT(event), WEIR_CASE_TIMER(ms), WEIR_CASE_JOIN(task),
 * WEIR_CASE_READABLE(conn) - the others. */
#ifndef __cplusplus
#define WEIR_CASE_SEND(tx, ...) weir_case_send((tx).end, WEIR_ITEM_((tx), (__VA_ARGS__)))
#define WEIR_CASE_RECV(rx, ret_item) weir_case_recv((rx).end, WEIR_ITEM_OUT_((rx), (ret_item)))
#endif
#define WEIR_CASE_EVENT(event) weir_case_event(event)
#define WEIR_CASE_TIMER(ms) weir_case_timer(ms)
#define WEIR_CASE_JOIN(task) weir_case_join(task)
#define WEIR_CASE_READABLE(conn) weir_case_readable(conn)

WEIR_END

#endif
