/* agenda.c - the rare half of the agenda: chunks, sweeping, handing over. */
#include "base/agenda.h"

static_assert(sizeof(struct agenda_chunk) == 1024, "a chunk fills its kibibyte");
static_assert((uint64_t)AGENDA_CHUNK_FIRST << AGENDA_BLOCKS <=
                  (UINT64_C(1) << 32) / AGENDA_CHUNK_POSITIONS,
              "every position fits into a cell");

/* ---- Chunks ---- */

size_t agenda_block_bytes(const struct agenda *agenda)
{
    if (agenda->block_count == AGENDA_BLOCKS) return 0;
    return ((size_t)AGENDA_CHUNK_FIRST << agenda->block_count) * sizeof(struct agenda_chunk);
}

void agenda_give_block(struct agenda *agenda, void *memory)
{
    assert(agenda->block_count < AGENDA_BLOCKS);
    assert(agenda->fresh_count == 0);
    agenda->fresh = agenda->blocks[agenda->block_count] = memory;
    agenda->fresh_count = (uint32_t)AGENDA_CHUNK_FIRST << agenda->block_count;
    agenda->block_count++;
}

static struct agenda_chunk *chunk_get(struct agenda *agenda)
{
    struct agenda_chunk *chunk = agenda->free;

    if (chunk != NULL) {
        agenda->free = chunk->next;
        return chunk;
    }
    if (agenda->fresh_count == 0) return NULL;
    /* The numbers of a block end where those of the next one begin. */
    chunk = agenda->fresh++;
    chunk->number = ((uint32_t)AGENDA_CHUNK_FIRST << agenda->block_count) - agenda->fresh_count--;
    return chunk;
}

static void chunk_put(struct agenda *agenda, struct agenda_chunk *chunk)
{
    agenda->chunk_count--;
    chunk->next = agenda->free;
    agenda->free = chunk;
}

static uint32_t position_of(const struct agenda_chunk *chunk, uint32_t index)
{
    return chunk->number * AGENDA_CHUNK_POSITIONS + index;
}

static bool entry_live(const struct agenda_chunk *chunk, uint32_t index)
{
    return *chunk->entries[index].cell == position_of(chunk, index);
}

static void entry_move(struct agenda_chunk *to, const struct agenda_entry *entry)
{
    to->entries[to->used] = *entry;
    *entry->cell = position_of(to, to->used);
    to->used++;
}

/* ---- Slots ---- */

static void slot_mark(struct agenda *agenda, unsigned slot, bool occupied)
{
    uint64_t bit = UINT64_C(1) << (slot % WHEEL_LEVEL_SLOTS);

    if (occupied)
        agenda->occupied[slot / WHEEL_LEVEL_SLOTS] |= bit;
    else
        agenda->occupied[slot / WHEEL_LEVEL_SLOTS] &= ~bit;
}

/* The first slot from `from` on that holds a chunk, or WHEEL_SLOTS. */
static unsigned slot_first(const struct agenda *agenda, unsigned from)
{
    for (unsigned level = from / WHEEL_LEVEL_SLOTS; level < WHEEL_LEVELS; level++) {
        uint64_t occupied = agenda->occupied[level];
        if (level == from / WHEEL_LEVEL_SLOTS) occupied &= ~UINT64_C(0) << from % WHEEL_LEVEL_SLOTS;
        if (occupied != 0) return level * WHEEL_LEVEL_SLOTS + (unsigned)__builtin_ctzll(occupied);
    }
    return WHEEL_SLOTS;
}

/* Empties a slot; its chunks, each of which knows how many entries it holds. */
static struct agenda_chunk *slot_take(struct agenda *agenda, unsigned slot)
{
    struct agenda_slot *from = &agenda->slots[slot - AGENDA_SLOT_MIN];
    struct agenda_chunk *first = from->first;

    assert(first != NULL);
    from->last->used = (uint32_t)(from->next - from->last->entries);
    *from = (struct agenda_slot){0};
    slot_mark(agenda, slot, false);
    if (agenda->sweep_slot == slot) agenda->sweep_after = NULL;
    return first;
}

/* ---- Sweeping ---- */

/* Moves the live entries of a chunk together, first into the room that the chunk before
 * it has; that keeps their order. */
static void chunk_sweep(struct agenda *agenda, struct agenda_slot *slot,
                        struct agenda_chunk *before, struct agenda_chunk *chunk)
{
    uint32_t used = chunk->used;

    chunk->used = 0;
    for (uint32_t i = 0; i < used; i++) {
        struct agenda_entry entry = chunk->entries[i];
        if (!entry_live(chunk, i)) continue;
        if (before != NULL && before->used < AGENDA_CHUNK_ENTRIES)
            entry_move(before, &entry);
        else
            entry_move(chunk, &entry);
    }
    if (chunk->used > 0) {
        agenda->sweep_after = chunk;
        return;
    }
    if (before != NULL)
        before->next = chunk->next;
    else
        slot->first = chunk->next;
    agenda->full_count--;
    chunk_put(agenda, chunk);
}

/* One chunk, or one slot further. The last chunk of a slot is left alone: it is being
 * filled. */
static void sweep_step(struct agenda *agenda)
{
    struct agenda_slot *slot = NULL;
    struct agenda_chunk *chunk = NULL;

    if (agenda->sweep_slot >= AGENDA_SLOT_MIN && agenda->sweep_slot < WHEEL_SLOTS) {
        slot = &agenda->slots[agenda->sweep_slot - AGENDA_SLOT_MIN];
        chunk = agenda->sweep_after != NULL ? agenda->sweep_after->next : slot->first;
    }
    if (chunk != NULL && chunk != slot->last) {
        chunk_sweep(agenda, slot, agenda->sweep_after, chunk);
        return;
    }
    agenda->sweep_after = NULL;
    agenda->sweep_slot = slot_first(agenda, agenda->sweep_slot + 1);
    if (agenda->sweep_slot == WHEEL_SLOTS) agenda->sweep_slot = slot_first(agenda, 0);
}

static bool sweep_is_due(const struct agenda *agenda)
{
    return agenda->full_count > 2 * agenda->live / AGENDA_CHUNK_ENTRIES + AGENDA_SWEEP_SLACK;
}

/* ---- The interface ---- */

bool agenda_extend(struct agenda *agenda, unsigned slot)
{
    struct agenda_slot *into = &agenda->slots[slot - AGENDA_SLOT_MIN];
    struct agenda_chunk *chunk;

    for (int i = 0; i < AGENDA_SWEEP_CHUNKS && sweep_is_due(agenda); i++) sweep_step(agenda);
    chunk = chunk_get(agenda);
    if (chunk == NULL) return false;
    chunk->next = NULL;
    agenda->chunk_count++;
    if (into->last != NULL) {
        agenda->full_count++;
        into->last->used = AGENDA_CHUNK_ENTRIES;
        into->last->next = chunk;
    } else {
        into->first = chunk;
        into->min_ns = INT64_MAX;
        slot_mark(agenda, slot, true);
    }
    into->last = chunk;
    into->next = chunk->entries;
    into->end = chunk->entries + AGENDA_CHUNK_ENTRIES;
    into->position = position_of(chunk, 0);
    return true;
}

/* Spreads a slot over the levels below it and the wheel. */
static void slot_spread(struct agenda *agenda, unsigned slot, agenda_hand_over_fn hand_over,
                        void *arg)
{
    struct agenda_chunk *chunk = slot_take(agenda, slot);

    while (chunk != NULL) {
        struct agenda_chunk *next = chunk->next;
        for (uint32_t i = 0; i < chunk->used; i++) {
            struct agenda_entry entry = chunk->entries[i];
            if (!entry_live(chunk, i)) continue;
            agenda->live--;
            if (!agenda_add(agenda, entry.cell, entry.at_ns))
                hand_over(arg, entry.cell, entry.at_ns);
        }
        if (next != NULL) agenda->full_count--;
        chunk_put(agenda, chunk);
        chunk = next;
    }
}

/* Nothing is live: no need to wait until the stale entries' times come. */
static void forget_all(struct agenda *agenda)
{
    unsigned slot;

    while ((slot = slot_first(agenda, 0)) < WHEEL_SLOTS) {
        struct agenda_chunk *last = agenda->slots[slot - AGENDA_SLOT_MIN].last;
        struct agenda_chunk *first = slot_take(agenda, slot);
        last->next = agenda->free;
        agenda->free = first;
    }
    agenda->chunk_count = agenda->full_count = 0;
}

void agenda_advance_far(struct agenda *agenda, int64_t now_ns, agenda_hand_over_fn hand_over,
                        void *arg)
{
    uint64_t target = wheel_tick(now_ns);
    unsigned slot;

    if (target < agenda->cursor) return;
    if (agenda->live == 0) forget_all(agenda);
    /* As in the wheel: the cursor goes from one occupied slot to the next, and all levels
     * below a slot that it stands on are empty. */
    while ((slot = slot_first(agenda, 0)) < WHEEL_SLOTS) {
        uint64_t start = wheel_slot_start(agenda->cursor, slot);
        if (start > target) break;
        agenda->cursor = start;
        slot_spread(agenda, slot, hand_over, arg);
    }
    agenda->cursor = target;
}

int64_t agenda_next_ns(const struct agenda *agenda)
{
    unsigned slot = agenda->live > 0 ? slot_first(agenda, 0) : WHEEL_SLOTS;

    return slot < WHEEL_SLOTS ? agenda->slots[slot - AGENDA_SLOT_MIN].min_ns : INT64_MAX;
}

int64_t agenda_at_ns(const struct agenda *agenda, const uint32_t *cell)
{
    uint32_t number = *cell / AGENDA_CHUNK_POSITIONS;
    unsigned block;

    assert(*cell >= AGENDA_POSITION_MIN);
    block = (unsigned)(__builtin_clz(AGENDA_CHUNK_FIRST) - __builtin_clz(number));
    assert(block < agenda->block_count);
    return agenda->blocks[block][number - ((uint32_t)AGENDA_CHUNK_FIRST << block)]
        .entries[*cell % AGENDA_CHUNK_POSITIONS]
        .at_ns;
}
