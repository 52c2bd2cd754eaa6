/* dead_letter.c - a bounded sink of letters: all memory when it is opened, the oldest first.
 *
 * Invariants, under the lock: a slot is in `letters` (by rising id), or in `free_slots`, or in the
 * hands of a call that has it for a hook, without the lock: such calls are `holders`, and the last
 * one frees the sink if it has ended meanwhile.
 */
#include "flow/dead_letter.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/planted.h"
#include "flow/meters.h"
#include "flow/sync.h"
#include "rt/mem.h"

struct slot {
    struct list node;
    weir_letter letter;
    unsigned char item[] __attribute__((aligned(16)));
};

struct weir_dead_letters {
    struct sync sync;
    struct metered metered;
    weir_dead_letters_spec spec;
    void *memory;
    struct list letters, free_slots;
    size_t depth, depth_max;
    unsigned holders;
    bool gone; /* its scope has let it go */
    uint64_t next_id;
    uint64_t put, taken, purged, lost, rejected;
};

/* ---- Figures ---- */

enum {
    LETTERS_METER_DEPTH,
    LETTERS_METER_DEPTH_MAX,
    LETTERS_METER_CAPACITY,
    LETTERS_METER_PUT,
    LETTERS_METER_TAKEN,
    LETTERS_METER_PURGED,
    LETTERS_METER_LOST,
    LETTERS_METER_REJECTED,
    LETTERS_METER_VALUES,
};

static void collect(struct metered *object, uint64_t *values)
{
    weir_dead_letters *sink = container_of(object, weir_dead_letters, metered);

    sync_lock(&sink->sync);
    values[LETTERS_METER_DEPTH] = sink->depth;
    values[LETTERS_METER_DEPTH_MAX] = sink->depth_max;
    values[LETTERS_METER_CAPACITY] = sink->spec.capacity;
    values[LETTERS_METER_PUT] = sink->put;
    values[LETTERS_METER_TAKEN] = sink->taken;
    values[LETTERS_METER_PURGED] = sink->purged;
    values[LETTERS_METER_LOST] = sink->lost;
    values[LETTERS_METER_REJECTED] = sink->rejected;
    sync_unlock(&sink->sync);
}

static const struct meter_value letters_values[LETTERS_METER_VALUES] = {
    [LETTERS_METER_DEPTH] = {"weir_dead_letters", "Letters that are kept now.", METER_GAUGE},
    [LETTERS_METER_DEPTH_MAX] = {"weir_dead_letters_max", "The most that were kept at once.",
                                 METER_GAUGE_MAX},
    [LETTERS_METER_CAPACITY] = {"weir_dead_letters_capacity", "Letters that can be kept.",
                                METER_GAUGE},
    [LETTERS_METER_PUT] = {"weir_dead_letters_put_total", "Letters that were handed over.",
                           METER_COUNTER},
    [LETTERS_METER_TAKEN] = {"weir_dead_letters_taken_total", "Letters that were taken out.",
                             METER_COUNTER},
    [LETTERS_METER_PURGED] = {"weir_dead_letters_purged_total", "Letters that were thrown away.",
                              METER_COUNTER},
    [LETTERS_METER_LOST] = {"weir_dead_letters_lost_total",
                            "Letters that were dropped, or left at the end.", METER_COUNTER},
    [LETTERS_METER_REJECTED] = {"weir_dead_letters_rejected_total",
                                "Letters that were refused: it was full.", METER_COUNTER},
};

static const struct meter_kind letters_meter_kind = {
    .labels = {"sink"},
    .values = letters_values,
    .value_count = LETTERS_METER_VALUES,
    .collect = collect,
};

/* ---- Slots. The lock is held. ---- */

static struct slot *slot_pop(weir_dead_letters *sink)
{
    struct list *node = list_pop(&sink->letters);

    if (!node) return NULL;
    sink->depth--;
    return container_of(node, struct slot, node);
}

static void slot_free(weir_dead_letters *sink, struct slot *slot)
{
    list_add_head(&sink->free_slots, &slot->node);
}

static void slot_fill(weir_dead_letters *sink, struct slot *slot, const weir_letter *letter,
                      const void *item, size_t item_bytes)
{
    size_t max = sink->spec.item_bytes_max;

    flow_copy(&slot->letter, letter, sizeof slot->letter);
    slot->letter.id = ++sink->next_id;
    slot->letter.source[sizeof slot->letter.source - 1] = '\0';
    slot->letter.item_bytes = item_bytes;
    slot->letter.kept_bytes = item_bytes < max ? item_bytes : max;
    if (slot->letter.kept_bytes > 0) flow_copy(slot->item, item, slot->letter.kept_bytes);
}

static void slot_keep(weir_dead_letters *sink, struct slot *slot)
{
    list_add_tail(&sink->letters, &slot->node);
    if (++sink->depth > sink->depth_max) sink->depth_max = sink->depth;
}

/* ---- The end ---- */

static void call_hook(weir_dead_letters *sink, weir_letter_fn hook, const struct slot *slot)
{
    sanitize_acquire(sink);
    hook(&slot->letter, slot->item, sink->spec.keep_arg);
}

/* The lock is held. True: free it. */
static bool let_go(weir_dead_letters *sink)
{
    return --sink->holders == 0 && sink->gone;
}

static void letters_free(weir_dead_letters *sink)
{
    void *memory = sink->memory;

    flow_free(&sink->sync.object);
    mem_free(memory);
}

static void lose_all(weir_dead_letters *sink)
{
    for (;;) {
        struct slot *slot;
        sync_lock(&sink->sync);
        slot = slot_pop(sink);
        if (slot) sink->lost++;
        sync_unlock(&sink->sync);
        if (!slot) return;
        call_hook(sink, sink->spec.on_lost, slot);
    }
}

static void letters_release(struct worker *worker, struct belonging *belonging)
{
    weir_dead_letters *sink = container_of(belonging, weir_dead_letters, sync.object.belonging);
    bool last;

    /* Nobody puts anything in any more: whoever would has to look at the handle, under the lock.
     * The hook comes before the scope forgets the sink: its close waits for that. */
    sync_end(&sink->sync);
    callback_begin(worker);
    lose_all(sink);
    callback_end(worker, belonging->scope);
    if (!sync_forget(&sink->sync)) return;
    meter_leave(&sink->metered);
    sync_lock(&sink->sync);
    sink->gone = true;
    last = sink->holders == 0;
    sync_unlock(&sink->sync);
    if (last) letters_free(sink);
}

static bool letters_boundary(struct belonging *belonging, unsigned row, struct boundary *ret)
{
    weir_dead_letters *sink = container_of(belonging, weir_dead_letters, sync.object.belonging);
    struct lock *lock = &sink->sync.object.stable.lock;
    bool shared = sink->sync.object.stable.shared;

    if (row > 0) return false;
    (void)snprintf(ret->name, sizeof ret->name, "%s", sink->sync.object.name);
    ret->lifetime = "until closed, or the scope ends";
    (void)snprintf(ret->bound, sizeof ret->bound, "%zu letters of %zu bytes", sink->spec.capacity,
                   sink->spec.item_bytes_max);
    ret->overflow = boundary_overflow((int)sink->spec.overflow);
    (void)snprintf(ret->failure, sizeof ret->failure, "what is left at its end goes to on_lost");
    if (!boundary_hold(lock, shared)) return true;
    boundary_figure(ret, "depth", sink->depth);
    boundary_figure(ret, "depth_max", sink->depth_max);
    boundary_figure(ret, "put", sink->put);
    boundary_figure(ret, "taken", sink->taken);
    boundary_figure(ret, "purged", sink->purged);
    boundary_figure(ret, "lost", sink->lost);
    boundary_figure(ret, "rejected", sink->rejected);
    boundary_let_go(lock, shared);
    return true;
}

static const struct sync_kind letters_kind = {
    .belonging = {.name = "dead letters",
                  .signalled = sync_signalled,
                  .release = letters_release,
                  .describe = sync_describe,
                  .boundary = letters_boundary},
    .handle = HANDLE_DEAD_LETTERS,
    .what = "sink of dead letters",
};

/* ---- Opening ---- */

static int check_spec(const weir_dead_letters_spec *spec)
{
    const char *name = spec->name;
    int r = flow_check_name("dead letters", name);

    if (r < 0) return r;
    if (spec->capacity == 0 || spec->capacity > WEIR_LETTERS_MAX) {
        return refuse("dead letters '%s': capacity is %zu, must be 1 to %d", name, spec->capacity,
                      WEIR_LETTERS_MAX);
    }
    if (spec->item_bytes_max == 0 || spec->item_bytes_max > WEIR_LETTER_ITEM_BYTES_MAX) {
        return refuse("dead letters '%s': item_bytes_max is %zu, must be 1 to %d", name,
                      spec->item_bytes_max, WEIR_LETTER_ITEM_BYTES_MAX);
    }
    switch (spec->overflow) {
    case WEIR_REJECT:
    case WEIR_DROP_OLDEST:
    case WEIR_DROP_NEWEST: break;
    case WEIR_WAIT:
        return refuse("dead letters '%s': nobody waits for a sink: overflow must be WEIR_REJECT, "
                      "WEIR_DROP_OLDEST or WEIR_DROP_NEWEST",
                      name);
    default: return refuse("dead letters '%s': overflow is not set", name);
    }
    if (!spec->on_lost) return refuse("dead letters '%s': on_lost is not set", name);
    return 0;
}

static size_t slot_bytes(const weir_dead_letters_spec *spec)
{
    return (sizeof(struct slot) + spec->item_bytes_max + 15) & ~(size_t)15;
}

static void make_slots(weir_dead_letters *sink)
{
    size_t bytes = slot_bytes(&sink->spec);

    list_init(&sink->letters);
    list_init(&sink->free_slots);
    for (size_t i = 0; i < sink->spec.capacity; i++) {
        struct slot *slot = (struct slot *)(void *)((char *)sink->memory + i * bytes);
        list_add_tail(&sink->free_slots, &slot->node);
    }
}

int weir_dead_letters_open_sized(weir_scope *scope, size_t spec_bytes,
                                 const weir_dead_letters_spec *given, weir_dead_letters **ret_sink)
{
    weir_dead_letters_spec spec;
    weir_dead_letters *sink;
    struct sync *sync;
    void *memory;
    int r;

    if (!worker_self()) return refuse_no_task("weir_dead_letters_open");
    spec_copy(&spec, sizeof spec, given, spec_bytes);
    r = check_spec(&spec);
    if (r < 0) return r;
    memory = mem_alloc(spec.capacity * slot_bytes(&spec));
    if (!memory) return -ENOMEM;
    r = sync_open(scope, &letters_kind, sizeof *sink, spec.name, "weir_dead_letters_open", &sync);
    if (r < 0) {
        mem_free(memory);
        return r;
    }
    sink = container_of(sync, weir_dead_letters, sync);
    sink->spec = spec;
    sink->spec.name = sink->sync.object.name;
    sink->memory = memory;
    make_slots(sink);
    meter_enter(&sink->metered, meter_get(&letters_meter_kind, sink->sync.object.name, NULL));
    *ret_sink = sync->handle;
    return 0;
}

void weir_dead_letters_close(weir_dead_letters *take_sink)
{
    if (take_sink) sync_close(take_sink, &letters_kind, "weir_dead_letters_close");
}

/* ---- Calls of programs ---- */

static weir_dead_letters *look_up(const weir_dead_letters *handle, const char *call)
{
    weir_dead_letters *sink =
        flow_look_up(handle, HANDLE_DEAD_LETTERS, "sink of dead letters", call);
    flow_check_worker(call);
    return sink;
}

static bool is_open(const weir_dead_letters *handle, const weir_dead_letters *sink)
{
    return flow_names(handle, HANDLE_DEAD_LETTERS, sink);
}

/* ---- Putting ---- */

static int check_letter(const weir_dead_letters *sink, const weir_letter *letter)
{
    const char *name = sink->sync.object.name;

    if (!letter->source[0])
        return refuse("dead letters '%s': source of the letter is not set", name);
    if (letter->reason == WEIR_LETTER_UNSET || letter->reason > WEIR_LETTER_PROGRAM) {
        return refuse("dead letters '%s': reason of the letter is not set", name);
    }
    if (letter->attempt_count > WEIR_LETTER_ATTEMPTS_MAX) {
        return refuse("dead letters '%s': a letter with %u attempts, at most %d", name,
                      letter->attempt_count, WEIR_LETTER_ATTEMPTS_MAX);
    }
    return 0;
}

/* What a call of put has in its hands. */
struct putting {
    weir_dead_letters *sink;
    struct slot *slot;
    const weir_letter *letter;
    const void *item;
    size_t item_bytes;
    uint64_t id; /* that was given to it */
};

/* A slot, or the error. One that is not `*ret_free` has a letter that goes to the hook first. The
 * lock is held. */
static int find_slot(struct putting *putting, bool *ret_free)
{
    weir_dead_letters *sink = putting->sink;
    struct list *node;

    *ret_free = false;
    if (sink->sync.object.ended) return WEIR_ECLOSED; /* after its end no hook is called */
    node = list_pop(&sink->free_slots);
    *ret_free = node != NULL;
    if (node) {
        putting->slot = container_of(node, struct slot, node);
        return 0;
    }
    if (sink->spec.overflow == WEIR_DROP_OLDEST) {
        putting->slot = slot_pop(sink);
        /* With all of them in the hands of others there is none: then the new one is the oldest. */
        if (putting->slot) {
            sink->lost++;
            return 0;
        }
    }
    if (sink->spec.overflow == WEIR_REJECT) {
        sink->rejected++;
        return WEIR_EOVERLOAD;
    }
    sink->put++;
    sink->lost++;
    putting->id = ++sink->next_id;
    return 0;
}

static __attribute__((noinline)) void tell(const struct putting *putting, weir_letter_fn hook)
{
    const weir_dead_letters *sink = putting->sink;
    size_t max = sink->spec.item_bytes_max;
    weir_letter letter;

    flow_copy(&letter, putting->letter, sizeof letter);
    letter.id = putting->id;
    letter.source[sizeof letter.source - 1] = '\0';
    letter.item_bytes = putting->item_bytes;
    letter.kept_bytes = putting->item_bytes < max ? putting->item_bytes : max;
    hook(&letter, putting->item, sink->spec.keep_arg);
}

/* The lock is held. */
static int put_into_slot(struct putting *putting)
{
    weir_dead_letters *sink = putting->sink;

    if (sink->sync.object.ended) {
        slot_free(sink, putting->slot);
        return WEIR_ECLOSED;
    }
    slot_fill(sink, putting->slot, putting->letter, putting->item, putting->item_bytes);
    putting->id = putting->slot->letter.id;
    slot_keep(sink, putting->slot);
    sink->put++;
    return 0;
}

/* The call is a holder, until this has let go. */
static int put_held(struct putting *putting)
{
    weir_dead_letters *sink = putting->sink;
    bool is_free, done, last;
    int r;

    sync_lock(&sink->sync);
    r = find_slot(putting, &is_free);
    if (r == 0 && putting->slot && is_free) r = put_into_slot(putting);
    done = r < 0 || (putting->slot && is_free);
    sync_unlock(&sink->sync);
    if (!done) {
        if (putting->slot) {
            call_hook(sink, sink->spec.on_lost, putting->slot);
            sync_lock(&sink->sync);
            r = put_into_slot(putting);
            sync_unlock(&sink->sync);
        } else {
            tell(putting, sink->spec.on_lost);
        }
    }
    if (r == 0 && putting->slot && sink->spec.on_letter) tell(putting, sink->spec.on_letter);
    sync_lock(&sink->sync);
    last = let_go(sink);
    sync_unlock(&sink->sync);
    if (last) letters_free(sink);
    return r;
}

int letters_put(const weir_dead_letters *handle, const weir_letter *letter, const void *item,
                size_t item_bytes)
{
    weir_dead_letters *sink = handle_object(handle, HANDLE_DEAD_LETTERS);
    struct putting putting = {
        .sink = sink, .letter = letter, .item = item, .item_bytes = item_bytes};
    bool held;

    if (!sink) return WEIR_ECLOSED;
    sanitize_release(sink);
    sync_lock(&sink->sync);
    held = is_open(handle, sink);
    sink->holders += held;
    sync_unlock(&sink->sync);
    return held ? put_held(&putting) : WEIR_ECLOSED;
}

int weir_dead_letters_put(weir_dead_letters *handle, const weir_letter *letter, const void *item,
                          size_t item_bytes)
{
    int r = check_letter(look_up(handle, "weir_dead_letters_put"), letter);
    return r < 0 ? r : letters_put(handle, letter, item, item_bytes);
}

/* ---- Looking, taking ---- */

static struct slot *find(weir_dead_letters *sink, uint64_t id, bool next)
{
    list_for_each(node, &sink->letters) {
        struct slot *slot = container_of(node, struct slot, node);
        if (next ? slot->letter.id > id : slot->letter.id == id || id == 0) return slot;
    }
    return NULL;
}

static void copy_out(const struct slot *slot, weir_letter *ret_letter, void *item,
                     size_t item_bytes_max)
{
    size_t bytes = slot->letter.kept_bytes;

    flow_copy(ret_letter, &slot->letter, sizeof *ret_letter);
    if (bytes > item_bytes_max) bytes = item_bytes_max;
    if (bytes > 0) flow_copy(item, slot->item, bytes);
}

int weir_dead_letters_next(weir_dead_letters *handle, uint64_t after_id, weir_letter *ret_letter,
                           void *item, size_t item_bytes_max)
{
    weir_dead_letters *sink = look_up(handle, "weir_dead_letters_next");
    struct slot *slot;

    sync_lock(&sink->sync);
    slot = find(sink, after_id, true);
    if (slot) copy_out(slot, ret_letter, item, item_bytes_max);
    sync_unlock(&sink->sync);
    sanitize_acquire(sink);
    return slot != NULL;
}

/* Of a planted bug: the lock is let go for a moment. */
static struct slot *find_again(weir_dead_letters *sink, uint64_t id) LOCK_UNCHECKED
{
    sync_unlock(&sink->sync);
    sync_lock(&sink->sync);
    return find(sink, id, false);
}

int weir_dead_letters_take(weir_dead_letters *handle, uint64_t id, weir_letter *ret_letter,
                           void *item, size_t item_bytes_max)
{
    weir_dead_letters *sink = look_up(handle, "weir_dead_letters_take");
    struct slot *slot;
    bool found;

    sync_lock(&sink->sync);
    slot = find(sink, id, false);
    found = slot != NULL;
    if (found) copy_out(slot, ret_letter, item, item_bytes_max);
    if (PLANTED(LETTER_TAKEN_TWICE) && found) slot = find_again(sink, ret_letter->id);
    if (slot) {
        list_remove(&slot->node);
        slot_free(sink, slot);
        sink->depth--;
        sink->taken++;
    }
    sync_unlock(&sink->sync);
    sanitize_acquire(sink);
    return found;
}

size_t weir_dead_letters_purge(weir_dead_letters *handle)
{
    weir_dead_letters *sink = look_up(handle, "weir_dead_letters_purge");
    struct slot *slot;
    size_t count = 0;

    sync_lock(&sink->sync);
    while ((slot = slot_pop(sink))) {
        slot_free(sink, slot);
        count++;
    }
    sink->purged += count;
    sync_unlock(&sink->sync);
    return count;
}

size_t weir_dead_letters_count(weir_dead_letters *handle)
{
    weir_dead_letters *sink = look_up(handle, "weir_dead_letters_count");
    size_t depth;

    sync_lock(&sink->sync);
    depth = sink->depth;
    sync_unlock(&sink->sync);
    return depth;
}

void weir_dead_letters_figures_of(weir_dead_letters *handle, weir_dead_letters_figures *ret_figures)
{
    weir_dead_letters *sink = look_up(handle, "weir_dead_letters_figures_of");

    sync_lock(&sink->sync);
    *ret_figures = (weir_dead_letters_figures){
        .depth = sink->depth,
        .depth_max = sink->depth_max,
        .capacity = sink->spec.capacity,
        .put = sink->put,
        .taken = sink->taken,
        .purged = sink->purged,
        .lost = sink->lost,
        .rejected = sink->rejected,
    };
    sync_unlock(&sink->sync);
}
