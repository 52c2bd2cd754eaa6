/* wheel.c - the rare half of the timing wheel: advancing, and what comes next. */
#include "base/wheel.h"

/* A list of timers linked by next only and ended by NULL; last keeps appending O(1). */
struct chain {
    struct wheel_link *first;
    struct wheel_link *last;
};

static struct wheel_timer *timer_of(struct wheel_link *link)
{
    static_assert(offsetof(struct wheel_timer, link) == 0, "the link is the timer's first member");
    return (struct wheel_timer *)(void *)link;
}

static void chain_append(struct chain *chain, struct wheel_link *link)
{
    link->next = NULL;
    if (chain->first == NULL)
        chain->first = link;
    else
        chain->last->next = link;
    chain->last = link;
}

/* Empties a slot into a chain and gives back the chain's first link. */
static struct wheel_link *slot_take(struct wheel *wheel, unsigned slot)
{
    struct wheel_link *head = &wheel->slots[slot];
    struct wheel_link *first = head->next;

    assert(first != head);
    head->prev->next = NULL;
    head->next = head->prev = head;
    wheel->occupied[slot / WHEEL_LEVEL_SLOTS] &= ~(UINT64_C(1) << (slot % WHEEL_LEVEL_SLOTS));
    return first;
}

/* Merges two sorted lists; on equal times those of early come first. */
static struct wheel_link *merge(struct wheel_link *early, struct wheel_link *late)
{
    struct wheel_link *merged;
    struct wheel_link **end = &merged;

    while (early != NULL && late != NULL) {
        struct wheel_link **from = timer_of(late)->at_ns < timer_of(early)->at_ns ? &late : &early;
        *end = *from;
        end = &(*from)->next;
        *from = *end;
    }
    *end = early != NULL ? early : late;
    return merged;
}

/* A stable merge sort: runs[i] is empty or holds 2^i timers, older than those of
 * every lower run. */
static struct wheel_link *sort(struct wheel_link *first)
{
    struct wheel_link *runs[64] = {0};
    struct wheel_link *sorted = NULL;
    unsigned used = 0;

    while (first != NULL) {
        struct wheel_link *run = first;
        unsigned i = 0;
        first = first->next;
        run->next = NULL;
        for (; runs[i] != NULL; i++) {
            run = merge(runs[i], run);
            runs[i] = NULL;
        }
        runs[i] = run;
        if (i >= used) used = i + 1;
    }
    for (unsigned i = 0; i < used; i++) sorted = merge(runs[i], sorted);
    return sorted;
}

static void due_append(struct wheel *wheel, struct wheel_link *first)
{
    struct wheel_link *last = wheel->due.prev;

    for (struct wheel_link *link = first; link != NULL; link = link->next) {
        link->prev = last;
        last->next = link;
        last = link;
    }
    last->next = &wheel->due;
    wheel->due.prev = last;
}

/* Moves what is due of one tick to the due list, in order of time, and leaves
 * the rest with an exact min_ns. */
static void tick_collect(struct wheel *wheel, unsigned slot, int64_t now_ns)
{
    struct chain due = {0};
    struct wheel_link *link;
    bool sorted = true;

    if (wheel->min_ns[slot] > now_ns) return;
    link = slot_take(wheel, slot);
    while (link != NULL) {
        struct wheel_link *next = link->next;
        struct wheel_timer *timer = timer_of(link);
        if (timer->at_ns > now_ns) {
            wheel_place(wheel, timer);
        } else {
            timer->place = WHEEL_PLACE_DUE;
            if (due.first != NULL && timer->at_ns < timer_of(due.last)->at_ns) sorted = false;
            chain_append(&due, link);
        }
        link = next;
    }
    due_append(wheel, sorted ? due.first : sort(due.first));
}

/* Spreads a slot of a higher level over the levels below it. */
static void slot_cascade(struct wheel *wheel, unsigned slot)
{
    struct wheel_link *link = slot_take(wheel, slot);

    while (link != NULL) {
        struct wheel_link *next = link->next;
        wheel_place(wheel, timer_of(link));
        link = next;
    }
}

/* The earliest slot that holds a timer, or WHEEL_SLOTS. */
static unsigned slot_first(const struct wheel *wheel)
{
    for (unsigned level = 0; level < WHEEL_LEVELS; level++) {
        if (wheel->occupied[level] != 0)
            return level * WHEEL_LEVEL_SLOTS + (unsigned)__builtin_ctzll(wheel->occupied[level]);
    }
    return WHEEL_SLOTS;
}

void wheel_init(struct wheel *wheel, int64_t now_ns)
{
    *wheel = (struct wheel){.cursor = wheel_tick(now_ns), .now_ns = now_ns};
    wheel->due.next = wheel->due.prev = &wheel->due;
    for (unsigned i = 0; i < WHEEL_SLOTS; i++)
        wheel->slots[i].next = wheel->slots[i].prev = &wheel->slots[i];
}

void wheel_advance(struct wheel *wheel, int64_t now_ns)
{
    uint64_t target;
    unsigned slot;

    if (now_ns < wheel->now_ns) now_ns = wheel->now_ns;
    target = wheel_tick(now_ns);
    wheel->now_ns = now_ns;

    /* The cursor goes from one occupied slot to the next. When it stands on a
     * slot of a higher level all levels below are empty, so that a cascade puts
     * each timer where the invariant wants it. */
    while ((slot = slot_first(wheel)) < WHEEL_SLOTS) {
        uint64_t start = wheel_slot_start(wheel->cursor, slot);
        if (start > target) break;
        wheel->cursor = start;
        if (slot >= WHEEL_LEVEL_SLOTS) {
            slot_cascade(wheel, slot);
            continue;
        }
        tick_collect(wheel, slot, now_ns);
        /* What is left in the tick that contains now_ns lies in the future. */
        if (start == target) break;
    }
    wheel->cursor = target;
}

struct wheel_timer *wheel_pop_due(struct wheel *wheel)
{
    struct wheel_timer *timer;

    if (wheel->due.next == &wheel->due) return NULL;
    timer = timer_of(wheel->due.next);
    wheel_remove(wheel, timer);
    return timer;
}

int64_t wheel_next_ns(const struct wheel *wheel)
{
    unsigned slot;

    if (wheel->due.next != &wheel->due) return timer_of(wheel->due.next)->at_ns;
    slot = slot_first(wheel);
    return slot < WHEEL_SLOTS ? wheel->min_ns[slot] : INT64_MAX;
}
