/* chan.h - bounded channels: values move from tasks that send to tasks that receive.
 *
 * A channel has two sides. Each side is held by ends, which can be copied and dropped;
 * when the last end of one side is gone, the other side learns it (WEIR_ECLOSED). An item
 * is copied in and copied out: it moves, it is never shared. What an item points at
 * moves with it by agreement; the hook `on_drop` is where it is freed if nobody gets it.
 *
 * Owner: a scope. Lifetime: until the scope ends, which closes the channel and every end
 * of it. Backpressure: `capacity` items and the named overflow. Failure: none of its own;
 * at the close what is left is drained by the receivers or discarded, as `on_close` says,
 * and every item that nobody will receive goes to `on_drop`.
 *
 *     typedef WEIR_TX(struct order) order_tx;
 *     typedef WEIR_RX(struct order) order_rx;
 *     order_tx tx;
 *     order_rx rx;
 *     weir_chan_spec spec = {.name = "orders", .capacity = 64,
 *                            .overflow = WEIR_WAIT, .on_close = WEIR_DRAIN};
 *     r = weir_chan_open(scope, &spec, &tx, &rx);
 *     r = weir_send(tx, &order);        and elsewhere        r = weir_recv(rx, &order);
 *
 * Typed ends make a wrong item type an error of compilation. In C++ the untyped calls
 * (weir_tx_send, ...) are used.
 *
 * Invariants: an item that was accepted is received once, or handed to `on_drop` once;
 * items of one sender arrive in order; whoever waits longest goes first; a channel never
 * holds more than its capacity (when that is made smaller: once it has been drained).
 * Cancel: nothing moved: an item whose send failed is still the caller's.
 * Threads: tasks of the runtime, on any worker, and what is said at each call; an end
 * belongs to whoever made it, and is used by one task at a time.
 */
#ifndef WEIR_CHAN_H
#define WEIR_CHAN_H

#include <weir/defs.h>
#include <weir/error.h>

WEIR_BEGIN

typedef struct weir_tx weir_tx; /* an end of the sending side */
typedef struct weir_rx weir_rx; /* an end of the receiving side */

#define WEIR_ITEM_BYTES_MAX 4096
#define WEIR_CHAN_CAPACITY_MAX 1048576

/* As capacity: no item is ever stored; a sender waits until a receiver takes it. */
#define WEIR_RENDEZVOUS SIZE_MAX

/* Why nobody gets an item. */
enum weir_drop {
    WEIR_DROPPED_OVERFLOW = 1, /* WEIR_DROP_NEWEST, WEIR_DROP_OLDEST */
    WEIR_DROPPED_CLOSE,        /* WEIR_DISCARD, or the last receiver is gone */
    WEIR_DROPPED_SCOPE,        /* the scope has ended with items in the channel */
};

/* Called once for each item that was accepted and is received by nobody, on the thread of
 * whoever made it so. `item` is valid for the call. It must not suspend. */
typedef void (*weir_drop_fn)(void *item, enum weir_drop why, void *keep_arg);

/* name, capacity, overflow and on_close must be said. */
typedef struct weir_chan_spec {
    const char *name; /* copied, at most 31 bytes */
    size_t capacity;  /* items, or WEIR_RENDEZVOUS */
    enum weir_overflow overflow;
    enum weir_on_close on_close;
    size_t item_bytes;    /* default: of the ends' type; at most WEIR_ITEM_BYTES_MAX */
    size_t capacity_max;  /* weir_chan_resize may go up to this; default: capacity */
    bool any_thread;      /* threads that are not workers may use weir_tx_try_send; then
                                every end must be dropped, and may be used after the scope,
                                and after the runtime */
    bool takes_work;      /* a receive takes on new work: a stop of the scope ends it */
    bool counts_done;     /* receivers say when they have finished an item: weir_rx_done */
    weir_drop_fn on_drop; /* default: items are plain bytes and are forgotten */
    void *keep_arg;       /* of on_drop */
    int64_t latency_ms;   /* how long an item should wait at most; shown beside what is
                                measured; 0: not said */
    bool trace;           /* items bring the context in which they were sent
                                (weir_trace_received): a little slower, if the runtime traces */
} weir_chan_spec;

/* weir_chan_spec_init - set every member to "not said". */
static inline void weir_chan_spec_init(weir_chan_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* weir_chan_open(scope, &spec, &tx, &rx) - a channel with one end of each side. The spec may
 * be written there: &(weir_chan_spec){.name = "orders", .capacity = 64, ...}.
 * weir_chan_open_sized - the same with untyped ends.
 * Errors: WEIR_EREFUSED (weir_why), WEIR_ECANCELED (the scope is), WEIR_ENOTASK, -ENOMEM,
 * -ENFILE. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_chan_open_sized(weir_scope *scope, size_t spec_bytes,
                                                const weir_chan_spec *spec, size_t item_bytes,
                                                weir_tx **ret_tx, weir_rx **ret_rx);

/* weir_tx_send - an item, copied from `item`. Suspends while the channel is full and its
 * overflow is WEIR_WAIT. Errors: WEIR_ECLOSED (closed, or there is no receiver),
 * WEIR_EOVERLOAD (full, WEIR_REJECT), WEIR_ECANCELED, WEIR_ETIMEDOUT, WEIR_ENOTASK. */
WEIR_SUSPENDS int weir_tx_send(weir_tx *tx, const void *item);

/* weir_tx_send_many - `count` items in order. Cancel: progress returned: `ret_sent` (may be
 * NULL) is always written and says how many were accepted, also on error.
 * Returns 0 or an error as weir_tx_send. */
WEIR_SUSPENDS int weir_tx_send_many(weir_tx *tx, const void *items, size_t count, size_t *ret_sent);

/* weir_tx_try_send - never suspends: WEIR_EOVERLOAD if the channel is full (or, for a
 * rendezvous, if nobody waits to receive), unless its overflow drops. Other errors:
 * WEIR_ECLOSED. Tasks, callbacks on a worker; any thread if the channel says any_thread. */
WEIR_API WEIR_MUST_USE int weir_tx_try_send(weir_tx *tx, const void *item);

/* weir_tx_wait_done - wait until every item that was accepted has been finished: received
 * and marked with weir_rx_done, or dropped. Needs counts_done. Cancel: nothing moved.
 * Errors: WEIR_ECLOSED (items are unfinished and no receiver is left), WEIR_ECANCELED,
 * WEIR_ETIMEDOUT, WEIR_EREFUSED, WEIR_ENOTASK. */
WEIR_SUSPENDS int weir_tx_wait_done(weir_tx *tx);

/* weir_tx_close - no more items: every later send, of every end, gets WEIR_ECLOSED, and
 * so do senders that wait. The end stays, and is dropped as always. Closing again changes
 * nothing. Never suspends. Any thread if the channel says any_thread. */
WEIR_API void weir_tx_close(weir_tx *tx);

/* weir_tx_copy - one more end of the same side. Errors: -ENOMEM, -ENFILE, WEIR_ECLOSED (its
 * scope has ended). Never suspends. Any thread if the channel says any_thread. */
WEIR_API WEIR_MUST_USE int weir_tx_copy(weir_tx *tx, weir_tx **ret_tx);

/* weir_tx_drop - give an end up. The last one closes the channel. Takes NULL. Never
 * suspends. Any thread if the channel says any_thread. */
WEIR_API void weir_tx_drop(weir_tx *take_tx);

/* weir_rx_recv - the next item, copied to `ret_item`. Suspends while there is none.
 * Errors: WEIR_ECLOSED (nobody can send any more, and everything was received),
 * WEIR_ESTOPPING (only if the channel says takes_work), WEIR_ECANCELED, WEIR_ETIMEDOUT,
 * WEIR_ENOTASK. */
WEIR_SUSPENDS int weir_rx_recv(weir_rx *rx, void *ret_item);

/* weir_rx_recv_many - at least one item, at most `count_max`; suspends only while there is
 * none. Returns how many, or an error as weir_rx_recv. */
WEIR_SUSPENDS int weir_rx_recv_many(weir_rx *rx, void *ret_items, size_t count_max);

/* weir_rx_try_recv - never suspends: returns 1 if
 * there was an item, 0 if there is none now, or WEIR_ECLOSED. */
WEIR_API WEIR_MUST_USE int weir_rx_try_recv(weir_rx *rx, void *ret_item);

/* weir_rx_done - `count` items that were received are finished. More than were received
 * is misuse and aborts with a sentence. Needs counts_done. Never suspends. */
WEIR_API void weir_rx_done(weir_rx *rx, size_t count);

/* weir_rx_copy, weir_rx_drop - as of the sending side. When the last one is dropped, what
 * is stored goes to on_drop. Errors as weir_tx_copy. */
WEIR_API WEIR_MUST_USE int weir_rx_copy(weir_rx *rx, weir_rx **ret_rx);
WEIR_API void weir_rx_drop(weir_rx *take_rx);

/* weir_chan_resize - another capacity, between 1 and the spec's capacity_max; not of a
 * rendezvous. What is stored stays. Errors: WEIR_EREFUSED. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_chan_resize(weir_tx *tx, size_t capacity);

/* What a channel has seen; with several workers depth_max is the most that was looked at. */
typedef struct weir_chan_figures {
    size_t depth, depth_max, capacity;
    size_t senders_waiting, receivers_waiting;
    uint64_t accepted, received, rejected, dropped, unfinished;
} weir_chan_figures;

/* weir_tx_figures, weir_rx_figures - the channel's figures now. Never suspends. Any thread if
 * the channel says any_thread. */
WEIR_API void weir_tx_figures(weir_tx *tx, weir_chan_figures *ret_figures);
WEIR_API void weir_rx_figures(weir_rx *rx, weir_chan_figures *ret_figures);

/* ---- Typed ends ---- */

/* WEIR_TX(type), WEIR_RX(type) - the type of an end for items of `type`; for a typedef. */
#define WEIR_TX(type)     \
    union {               \
        weir_tx *end;     \
        type *item_type_; \
    }
#define WEIR_RX(type)     \
    union {               \
        weir_rx *end;     \
        type *item_type_; \
    }

#ifndef __cplusplus /* needs _Generic */

/* `pointer` as it is, if it points at the items of `end`; else it does not compile. The end
 * may be a member of a const struct: `&*` takes the qualifier off. */
#define WEIR_ITEM_(end, pointer) \
    _Generic((pointer), __typeof__(&*(end).item_type_): (pointer), \
             const __typeof__(*(end).item_type_) *: (pointer))
#define WEIR_ITEM_OUT_(end, pointer) _Generic((pointer), __typeof__(&*(end).item_type_) : (pointer))

#define weir_chan_open(scope, ...) \
    weir_chan_open_typed_((scope), WEIR_LAST_TWO_(WEIR_ITEM_BYTES_, __VA_ARGS__), __VA_ARGS__)

/* The size of the items, if both ends are for the same, and each is of its side. */
#define WEIR_ITEM_BYTES_(tx, rx) \
    _Generic(&(tx)->end, weir_tx **                                               \
             : _Generic(&(rx)->end, weir_rx **                                    \
                        : _Generic((rx)->item_type_, __typeof__((tx)->item_type_) \
                                   : sizeof *(tx)->item_type_)))

/* weir_chan_open_typed_ - of weir_chan_open, which has looked at the types. An end begins with
 * its pointer. */
static inline WEIR_MUST_USE int weir_chan_open_typed_(weir_scope *scope, size_t item_bytes,
                                                      const weir_chan_spec *spec, void *ret_tx,
                                                      void *ret_rx)
{
    return weir_chan_open_sized(scope, sizeof(weir_chan_spec), spec, item_bytes, (weir_tx **)ret_tx,
                                (weir_rx **)ret_rx);
}

/* macro(last but one, last) of 3 to 24 arguments: the commas of a spec that is written in the
 * call separate arguments of the macro. */
#define WEIR_LAST_TWO_(macro, ...)                                                               \
    WEIR_PICK_(__VA_ARGS__, WEIR_L24_, WEIR_L23_, WEIR_L22_, WEIR_L21_, WEIR_L20_, WEIR_L19_,    \
               WEIR_L18_, WEIR_L17_, WEIR_L16_, WEIR_L15_, WEIR_L14_, WEIR_L13_, WEIR_L12_,      \
               WEIR_L11_, WEIR_L10_, WEIR_L9_, WEIR_L8_, WEIR_L7_, WEIR_L6_, WEIR_L5_, WEIR_L4_, \
               WEIR_L3_, WEIR_L_, WEIR_L_, )                                                     \
    (macro, __VA_ARGS__)
#define WEIR_PICK_(a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, \
                   a18, a19, a20, a21, a22, a23, a24, pick, ...)                               \
    pick
#define WEIR_L3_(macro, a, tx, rx) macro(tx, rx)
#define WEIR_L4_(macro, a, ...) WEIR_L3_(macro, __VA_ARGS__)
#define WEIR_L5_(macro, a, ...) WEIR_L4_(macro, __VA_ARGS__)
#define WEIR_L6_(macro, a, ...) WEIR_L5_(macro, __VA_ARGS__)
#define WEIR_L7_(macro, a, ...) WEIR_L6_(macro, __VA_ARGS__)
#define WEIR_L8_(macro, a, ...) WEIR_L7_(macro, __VA_ARGS__)
#define WEIR_L9_(macro, a, ...) WEIR_L8_(macro, __VA_ARGS__)
#define WEIR_L10_(macro, a, ...) WEIR_L9_(macro, __VA_ARGS__)
#define WEIR_L11_(macro, a, ...) WEIR_L10_(macro, __VA_ARGS__)
#define WEIR_L12_(macro, a, ...) WEIR_L11_(macro, __VA_ARGS__)
#define WEIR_L13_(macro, a, ...) WEIR_L12_(macro, __VA_ARGS__)
#define WEIR_L14_(macro, a, ...) WEIR_L13_(macro, __VA_ARGS__)
#define WEIR_L15_(macro, a, ...) WEIR_L14_(macro, __VA_ARGS__)
#define WEIR_L16_(macro, a, ...) WEIR_L15_(macro, __VA_ARGS__)
#define WEIR_L17_(macro, a, ...) WEIR_L16_(macro, __VA_ARGS__)
#define WEIR_L18_(macro, a, ...) WEIR_L17_(macro, __VA_ARGS__)
#define WEIR_L19_(macro, a, ...) WEIR_L18_(macro, __VA_ARGS__)
#define WEIR_L20_(macro, a, ...) WEIR_L19_(macro, __VA_ARGS__)
#define WEIR_L21_(macro, a, ...) WEIR_L20_(macro, __VA_ARGS__)
#define WEIR_L22_(macro, a, ...) WEIR_L21_(macro, __VA_ARGS__)
#define WEIR_L23_(macro, a, ...) WEIR_L22_(macro, __VA_ARGS__)
#define WEIR_L24_(macro, a, ...) WEIR_L23_(macro, __VA_ARGS__)

/* weir_send(tx, &item), weir_try_send(tx, &item), weir_send_many(tx, items, count, &sent) -
 * as weir_tx_send, weir_tx_try_send, weir_tx_send_many, for typed ends. An item may be written
 * there: weir_send(tx, &(struct order){.id = 1, .amount = 20}). */
#define weir_send(tx, ...) weir_tx_send((tx).end, WEIR_ITEM_((tx), (__VA_ARGS__)))
#define weir_try_send(tx, ...) weir_tx_try_send((tx).end, WEIR_ITEM_((tx), (__VA_ARGS__)))
#define weir_send_many(tx, items, count, ret_sent) \
    weir_tx_send_many((tx).end, WEIR_ITEM_((tx), (items)), (count), (ret_sent))

/* weir_recv(rx, &item), weir_try_recv(rx, &item), weir_recv_many(rx, items, count_max) - as
 * weir_rx_recv, weir_rx_try_recv, weir_rx_recv_many, for typed ends. */
#define weir_recv(rx, ret_item) weir_rx_recv((rx).end, WEIR_ITEM_OUT_((rx), (ret_item)))
#define weir_try_recv(rx, ret_item) weir_rx_try_recv((rx).end, WEIR_ITEM_OUT_((rx), (ret_item)))
#define weir_recv_many(rx, ret_items, count_max) \
    weir_rx_recv_many((rx).end, WEIR_ITEM_OUT_((rx), (ret_items)), (count_max))

#endif

WEIR_END

#endif
