/* atom.c - rows with names: queues, stages, keys, chains, policies. Each is there while somebody
 * refers to it. */
#include "engine/state.h"

static const size_t atom_row_bytes[ATOM_TYPES] = {
    [ATOM_QUEUE] = sizeof(struct queue),   [ATOM_STAGE] = sizeof(struct stage),
    [ATOM_KEY] = sizeof(struct key),       [ATOM_CHAIN] = sizeof(struct chain),
    [ATOM_POLICY] = sizeof(struct policy), [ATOM_SCHEDULE] = sizeof(struct schedule),
};

size_t atom_bytes(enum atom_type type)
{
    return atom_row_bytes[type];
}

bool atom_before(const struct atom *a, const struct atom *b)
{
    uint32_t common = a->bytes < b->bytes ? a->bytes : b->bytes;
    int order = memcmp(a->text, b->text, common);
    return order != 0 ? order < 0 : a->bytes < b->bytes;
}

static uint64_t hash_of(uint64_t seed, uint32_t scope, uint32_t number, struct engine_slice text)
{
    return hash_bytes(seed ^ hash_number((uint64_t)scope << 32 | number), text.at, text.count);
}

/* For a table to grow: which one it is, and whose. */
struct atoms_of {
    const struct engine *engine;
    enum atom_type type;
};

static uint64_t atom_hash(const void *arg, uint32_t number)
{
    const struct atoms_of *of = arg;
    const struct atom *atom = atom_at(of->engine, of->type, number);
    return hash_of(of->engine->config.seed, atom->scope, atom->number, atom_text(atom));
}

static bool is_named(const struct atom *atom, uint32_t scope, uint32_t number,
                     struct engine_slice text)
{
    return atom->scope == scope && atom->number == number && atom->bytes == text.count &&
           memcmp(atom->text, text.at, text.count) == 0;
}

/* Who was found last is mostly who is looked for next. */
static void see(const struct engine *engine, enum atom_type type, uint32_t number)
{
    ((struct engine *)(uintptr_t)engine)->seen_atoms[type] = number;
}

uint32_t atom_find(const struct engine *engine, enum atom_type type, uint32_t scope,
                   uint32_t number, struct engine_slice text)
{
    const struct table *table = &engine->atom_tables[type];
    uint32_t found = engine->seen_atoms[type];
    uint32_t at = TABLE_BEGIN;
    uint64_t hash;

    if (found && is_named(atom_at(engine, type, found), scope, number, text)) return found;
    hash = hash_of(engine->config.seed, scope, number, text);
    while ((found = table_next(table, hash, &at)) != 0) {
        if (!is_named(atom_at(engine, type, found), scope, number, text)) continue;
        see(engine, type, found);
        return found;
    }
    return 0;
}

static void stage_join(struct engine *engine, uint32_t number)
{
    struct stage *stage = stage_at(engine, number);
    struct queue *queue = queue_at(engine, stage->atom.scope);
    stage->next = queue->stages;
    queue->stages = number;
}

static void stage_leave(struct engine *engine, uint32_t number)
{
    struct stage *stage = stage_at(engine, number);
    uint32_t *at = &queue_at(engine, stage->atom.scope)->stages;
    while (*at != number) at = &stage_at(engine, *at)->next;
    *at = stage->next;
}

uint32_t atom_get(struct engine *engine, enum atom_type type, uint32_t scope, uint32_t number,
                  struct engine_slice text)
{
    struct atoms_of of = {engine, type};
    uint32_t found = atom_find(engine, type, scope, number, text);
    struct atom *atom;
    char *copy;

    if (found) {
        atom_at(engine, type, found)->refs++;
        return found;
    }
    if (slab_ensure(&engine->atoms[type], &engine->memory, 1) < 0) return 0;
    if (table_ensure(&engine->atom_tables[type], &engine->memory, 1, atom_hash, &of) < 0) return 0;
    copy = memory_resize(&engine->memory, NULL, 0, text.count);
    if (!copy) return 0;
    memcpy(copy, text.at, text.count);
    found = slab_take(&engine->atoms[type]);
    atom = atom_at(engine, type, found);
    *atom = (struct atom){copy, (uint32_t)text.count, scope, number, 1};
    table_insert(&engine->atom_tables[type], hash_of(engine->config.seed, scope, number, text),
                 found);
    if (scope) atom_ref(engine, ATOM_QUEUE, scope);
    if (type == ATOM_STAGE) stage_join(engine, found);
    if (type == ATOM_POLICY) policy_read(atom_text(atom), &policy_at(engine, found)->says);
    return found;
}

/* Nobody refers to it any more. */
void atom_drop(struct engine *engine, enum atom_type type, uint32_t number)
{
    struct atoms_of of = {engine, type};
    struct atom *atom = atom_at(engine, type, number);
    uint32_t scope = atom->scope;

    if (type == ATOM_STAGE) stage_leave(engine, number);
    if (engine->seen_atoms[type] == number) see(engine, type, 0);
    table_remove(&engine->atom_tables[type], atom_hash(&of, number), number, atom_hash, &of);
    memory_resize(&engine->memory, atom->text, atom->bytes, 0);
    slab_give(&engine->atoms[type], number);
    if (scope) atom_unref(engine, ATOM_QUEUE, scope);
}

void atoms_deinit(struct engine *engine)
{
    for (int type = 0; type < ATOM_TYPES; type++) {
        struct table *table = &engine->atom_tables[type];
        for (uint32_t i = 0; i < table->room; i++) {
            struct atom *atom;
            if (!table->slots[i]) continue;
            atom = atom_at(engine, (enum atom_type)type, table->slots[i]);
            memory_resize(&engine->memory, atom->text, atom->bytes, 0);
        }
        table_deinit(table, &engine->memory);
        slab_deinit(&engine->atoms[type], &engine->memory);
    }
}
