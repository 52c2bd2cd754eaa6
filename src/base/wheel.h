/* wheel.h - a hierarchical timing wheel: add and remove in constant time, exact firing.
 *
 * The wheel knows no clock. Its time is what the last wheel_advance() said; a
 * tick is 2^16 ns, a level has 64 slots, and 8 levels cover every int64_t.
 *
 *     wheel_advance(&wheel, now_ns);
 *     while ((timer = wheel_pop_due(&wheel)) != NULL)
 *         fire(timer);                     // may add and remove any timer
 *
 * Guarantees:
 * - Exact: a timer becomes due in the first advance with now_ns >= at_ns, never
 *   before and never rounded to a tick.
 * - Bounded: only wheel_advance() makes timers due. A timer added while the due
 *   ones are being popped, even one whose time has passed, waits for the next
 *   advance, so the loop above ends although every timer adds itself again.
 * - Ordered: the timers that one advance makes due are popped by at_ns, and for
 *   equal at_ns in the order they were added. Timers still due from an earlier
 *   advance come before them.
 * - Removable: a timer can be removed in O(1) until it is popped.
 * - An advance costs O(timers it moves), each timer being moved down at most 7
 *   times in its life, plus a sort of the timers that share a tick. It does not
 *   depend on the time that passed.
 *
 * Invariants:
 * - A pending timer lies in the level of the highest base-64 digit in which its
 *   tick differs from the cursor, in the slot of its own digit there. So every
 *   slot of a level comes before every slot of the next one, and two timers
 *   with one at_ns always share a slot, whenever they were added: appending
 *   keeps them in order. Timers whose time has passed lie in the cursor's slot.
 * - min_ns of an occupied slot is not later than any timer in it.
 * - A wheel must not be moved after wheel_init(), nor a timer while it is armed.
 * - A zeroed timer is a valid unarmed one.
 * Threads: none; the owner serialises all calls.
 */
#ifndef WEIR_BASE_WHEEL_H
#define WEIR_BASE_WHEEL_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WHEEL_TICK_BITS = 16,
    WHEEL_LEVEL_BITS = 6,
    WHEEL_LEVELS = 8,
    WHEEL_LEVEL_SLOTS = 1 << WHEEL_LEVEL_BITS,
    WHEEL_SLOTS = WHEEL_LEVELS * WHEEL_LEVEL_SLOTS,
};

/* The time of a timer that is armed but never becomes due. */
#define WHEEL_NEVER_NS INT64_MAX

struct wheel_link {
    struct wheel_link *next;
    struct wheel_link *prev;
};

/* Where a timer is: unarmed, in slot (place - WHEEL_PLACE_SLOT), or on no slot at all. */
enum {
    WHEEL_PLACE_UNARMED = 0,
    WHEEL_PLACE_SLOT = 1,
    WHEEL_PLACE_DUE = WHEEL_PLACE_SLOT + WHEEL_SLOTS,
    WHEEL_PLACE_NEVER,
};

struct wheel_timer {
    struct wheel_link link; /* first: the lists of the wheel are lists of these */
    int64_t at_ns;
    uint16_t place;
};

struct wheel {
    uint64_t cursor; /* the tick that contains now_ns; inside an advance, how far it got */
    int64_t now_ns;
    size_t count;
    uint64_t occupied[WHEEL_LEVELS]; /* a bit per slot that holds a timer */
    struct wheel_link due;
    struct wheel_link slots[WHEEL_SLOTS];
    int64_t min_ns[WHEEL_SLOTS];
};

void wheel_init(struct wheel *wheel, int64_t now_ns);

/* Makes every timer with at_ns <= now_ns due. Time never goes back: an earlier
 * now_ns than that of the last advance counts as that one. */
void wheel_advance(struct wheel *wheel, int64_t now_ns);

/* Disarms and returns the next due timer; NULL when there is none. */
struct wheel_timer *wheel_pop_due(struct wheel *wheel);

/* A time not later than the earliest armed timer's: sleep until then, advance,
 * ask again. It is exact unless that timer's slot lost its earliest timer to
 * wheel_remove(); the advance at the time given then makes it exact, so such a
 * slot costs one early wake-up. It is later than the last advance unless a timer
 * was added with a time that had passed. While timers are due it is some time
 * that has passed. INT64_MAX when nothing will ever become due. */
int64_t wheel_next_ns(const struct wheel *wheel);

/* The armed timers: pending, due and never. */
static inline size_t wheel_count(const struct wheel *wheel)
{
    return wheel->count;
}

static inline void wheel_timer_init(struct wheel_timer *timer)
{
    *timer = (struct wheel_timer){0};
}

static inline bool wheel_timer_armed(const struct wheel_timer *timer)
{
    return timer->place != WHEEL_PLACE_UNARMED;
}

/* Flipping the sign bit makes unsigned order the order of time. */
static inline uint64_t wheel_tick(int64_t ns)
{
    return ((uint64_t)ns ^ (UINT64_C(1) << 63)) >> WHEEL_TICK_BITS;
}

/* The slot for a time as seen from a cursor. */
static inline unsigned wheel_slot_from(uint64_t cursor, int64_t at_ns)
{
    uint64_t tick = wheel_tick(at_ns);
    uint64_t differing;
    unsigned level;

    if (tick < cursor) tick = cursor;
    /* The low bits set mean level 0 and keep clz away from zero. */
    differing = (tick ^ cursor) | (WHEEL_LEVEL_SLOTS - 1);
    level = (63u - (unsigned)__builtin_clzll(differing)) / WHEEL_LEVEL_BITS;
    return level * WHEEL_LEVEL_SLOTS +
           (unsigned)(tick >> (level * WHEEL_LEVEL_BITS)) % WHEEL_LEVEL_SLOTS;
}

/* The first tick of an occupied slot: it shares the higher digits with the cursor. */
static inline uint64_t wheel_slot_start(uint64_t cursor, unsigned slot)
{
    unsigned shift = slot / WHEEL_LEVEL_SLOTS * WHEEL_LEVEL_BITS;
    uint64_t above = cursor >> (shift + WHEEL_LEVEL_BITS) << (shift + WHEEL_LEVEL_BITS);

    return above | (uint64_t)(slot % WHEEL_LEVEL_SLOTS) << shift;
}

/* Appends to the slot; the count is the caller's business. */
static inline void wheel_place(struct wheel *wheel, struct wheel_timer *timer)
{
    unsigned slot = wheel_slot_from(wheel->cursor, timer->at_ns);
    struct wheel_link *head = &wheel->slots[slot];
    struct wheel_link *last = head->prev;

    if (last == head || timer->at_ns < wheel->min_ns[slot]) wheel->min_ns[slot] = timer->at_ns;
    wheel->occupied[slot / WHEEL_LEVEL_SLOTS] |= UINT64_C(1) << (slot % WHEEL_LEVEL_SLOTS);
    timer->place = (uint16_t)(WHEEL_PLACE_SLOT + slot);
    timer->link.next = head;
    timer->link.prev = last;
    last->next = &timer->link;
    head->prev = &timer->link;
}

/* Arms an unarmed timer. A time that has passed is fine (see Bounded, above). */
static inline void wheel_add(struct wheel *wheel, struct wheel_timer *timer, int64_t at_ns)
{
    assert(timer->place == WHEEL_PLACE_UNARMED);
    timer->at_ns = at_ns;
    wheel->count++;
    if (at_ns == WHEEL_NEVER_NS) {
        timer->place = WHEEL_PLACE_NEVER;
        return;
    }
    wheel_place(wheel, timer);
}

/* Disarms a timer, wherever it is; an unarmed one is left alone. */
static inline void wheel_remove(struct wheel *wheel, struct wheel_timer *timer)
{
    unsigned place = timer->place;
    struct wheel_link *next = timer->link.next;
    struct wheel_link *prev = timer->link.prev;

    if (place == WHEEL_PLACE_UNARMED) return;
    wheel->count--;
    timer->place = WHEEL_PLACE_UNARMED;
    if (place == WHEEL_PLACE_NEVER) return;
    next->prev = prev;
    prev->next = next;
    /* Both neighbours are the list's head: it was the last one. */
    if (next == prev && place != WHEEL_PLACE_DUE) {
        unsigned slot = place - WHEEL_PLACE_SLOT;
        wheel->occupied[slot / WHEEL_LEVEL_SLOTS] &= ~(UINT64_C(1) << (slot % WHEEL_LEVEL_SLOTS));
    }
}

#endif
