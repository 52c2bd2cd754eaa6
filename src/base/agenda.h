/* agenda.h - times that are still far away, kept so that setting one anew costs no cache miss.
 *
 * A wheel links its timers: to move one is to touch it and two neighbours, and of a
 * million timers none is in a cache. Most of them never fire; they are set anew, again and
 * again. An agenda takes them while their time is far: it writes down (time, whose) in the
 * chunk that the slot is filling, and remembers in the owner's cell, a word of 4 bytes,
 * where. Stopping a timer writes the cell only; what was written down becomes stale and is
 * thrown away when somebody comes along. When a time comes near it is handed over, to be
 * put into a wheel, which does the exact part.
 *
 *     if (!agenda_add(&agenda, &cell, at_ns))          // near, or no chunk is left
 *         wheel_add(&wheel, timer, at_ns);
 *     ...
 *     agenda_advance(&agenda, now_ns, hand_over, arg); // hand_over() adds to the wheel
 *     wheel_advance(&wheel, now_ns);
 *
 * Guarantees:
 * - A time is handed over in the first advance with now_ns >= its start of slot, so before
 *   it is due; near is what shares the two lowest levels of a wheel with the last advance,
 *   less than 2^28 ns (0.27 s). Equal times are handed over in the order they were added,
 *   and before a time that agenda_add() turns away as near could equal them.
 * - agenda_add() and agenda_drop() take constant time, amortised: an entry is moved down at
 *   most 5 times in its life; when the full chunks hold more than twice what is live (and
 *   16 chunks), every new chunk pays for sweeping 4 old ones. So chunks stay below three
 *   times what the live entries need, and two for each slot.
 * - No step of a sweep is longer than 4 chunks, 252 entries.
 *
 * Invariants:
 * - An entry is live while its owner's cell holds the entry's position; a position holds one
 *   entry at a time, so a stale entry never looks live. Cells are read long after a drop:
 *   their memory must stay as long as the agenda. What the owner writes into a cell by itself
 *   is less than AGENDA_POSITION_MIN.
 * - Slots are those of the wheel, and its invariant holds here too: every slot of a level
 *   comes before every slot of the next one.
 * - min_ns of an occupied slot is not later than any entry in it.
 * - Every chunk but the last of a slot says itself how many entries it holds.
 * - A zeroed agenda is a valid empty one whose last advance was at the beginning of time.
 * Threads: none; the owner serialises all calls.
 */
#ifndef WEIR_BASE_AGENDA_H
#define WEIR_BASE_AGENDA_H

#include "base/wheel.h"

enum {
    AGENDA_LEVEL_MIN = 2, /* what is nearer belongs into a wheel */
    AGENDA_SLOT_MIN = AGENDA_LEVEL_MIN * WHEEL_LEVEL_SLOTS,
    AGENDA_SLOTS = WHEEL_SLOTS - AGENDA_SLOT_MIN,
    AGENDA_CHUNK_ENTRIES = 63,   /* with its head 1 KiB */
    AGENDA_CHUNK_POSITIONS = 64, /* position = number of the chunk * this + index */
    AGENDA_CHUNK_FIRST = 16,     /* the lowest number: block 0 has this many, each next one twice */
    AGENDA_BLOCKS = 22,          /* so that positions fit into a cell */
    AGENDA_POSITION_MIN = AGENDA_CHUNK_FIRST * AGENDA_CHUNK_POSITIONS,
    AGENDA_SWEEP_SLACK = 16,
    AGENDA_SWEEP_CHUNKS = 4,
};

struct agenda_entry {
    int64_t at_ns;
    uint32_t *cell;
};

struct agenda_chunk {
    struct agenda_chunk *next;
    uint32_t number;
    uint32_t used; /* not kept for the last chunk of a slot */
    struct agenda_entry entries[AGENDA_CHUNK_ENTRIES];
};

struct agenda_slot {
    struct agenda_entry *next; /* where the next entry goes, in the last chunk, and ... */
    struct agenda_entry *end;
    int64_t min_ns;
    uint32_t position; /* ... its position */
    struct agenda_chunk *first;
    struct agenda_chunk *last;
} __attribute__((aligned(64)));

struct agenda {
    uint64_t cursor;    /* the tick of the last advance; inside an advance, how far it got */
    size_t live;        /* the only count that adding and dropping write */
    size_t chunk_count; /* in slots */
    size_t full_count;  /* of these, those that are not the last of a slot */
    uint64_t occupied[WHEEL_LEVELS]; /* a bit per slot that holds a chunk */
    struct agenda_chunk *free;
    struct agenda_chunk *fresh; /* of the last block, never used yet, and ... */
    uint32_t fresh_count;       /* ... how many */
    unsigned block_count;
    struct agenda_chunk *blocks[AGENDA_BLOCKS];
    unsigned sweep_slot;
    struct agenda_chunk *sweep_after; /* the chunk swept last, still in that slot; or NULL */
    struct agenda_slot slots[AGENDA_SLOTS];
};

/* The memory is the caller's: chunks are given in blocks, for good, each twice as big as
 * the one before. The bytes that the next block must have; 0: there can be no more. */
size_t agenda_block_bytes(const struct agenda *agenda);
void agenda_give_block(struct agenda *agenda, void *memory);

/* Hands over what has come near, disposes of what is stale there. The owner of `cell`
 * must write something else into it. */
typedef void (*agenda_hand_over_fn)(void *arg, uint32_t *cell, int64_t at_ns);
void agenda_advance_far(struct agenda *agenda, int64_t now_ns, agenda_hand_over_fn hand_over,
                        void *arg);
static inline void agenda_advance(struct agenda *agenda, int64_t now_ns,
                                  agenda_hand_over_fn hand_over, void *arg)
{
    if (agenda->chunk_count > 0) {
        agenda_advance_far(agenda, now_ns, hand_over, arg);
    } else if (wheel_tick(now_ns) > agenda->cursor) {
        agenda->cursor = wheel_tick(now_ns);
    }
}

/* A time not later than the earliest live one, and later than the last advance: exact
 * unless the first slot's earliest entry is stale. INT64_MAX when there is none. */
int64_t agenda_next_ns(const struct agenda *agenda);

/* The time of a live entry. */
int64_t agenda_at_ns(const struct agenda *agenda, const uint32_t *cell);

static inline size_t agenda_count(const struct agenda *agenda)
{
    return agenda->live;
}

static inline bool agenda_is_near(const struct agenda *agenda, int64_t at_ns)
{
    return wheel_slot_from(agenda->cursor, at_ns) < AGENDA_SLOT_MIN;
}

/* A new last chunk for the slot; false: none is left. */
bool agenda_extend(struct agenda *agenda, unsigned slot);

/* Writes a time down and its position into the cell, which must hold none. False: the time
 * is near or no chunk is left. */
static inline bool agenda_add(struct agenda *agenda, uint32_t *cell, int64_t at_ns)
{
    unsigned slot = wheel_slot_from(agenda->cursor, at_ns);
    struct agenda_slot *into;
    struct agenda_entry *entry;

    if (slot < AGENDA_SLOT_MIN) return false;
    into = &agenda->slots[slot - AGENDA_SLOT_MIN];
    if (into->next == into->end && !agenda_extend(agenda, slot)) return false;
    entry = into->next++;
    entry->at_ns = at_ns;
    entry->cell = cell;
    if (at_ns < into->min_ns) into->min_ns = at_ns;
    *cell = into->position++;
    agenda->live++;
    return true;
}

/* Forgets the live entry of a cell. That is not read: it may be in no cache. */
static inline void agenda_drop(struct agenda *agenda, uint32_t *cell)
{
    assert(agenda->live > 0);
    agenda->live--;
    *cell = 0;
}

#endif
