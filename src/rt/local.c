/* local.c - task locals: immutable values that children inherit.
 *
 * A task's values are a list with at most one node per key, newest first; a child
 * starts with its parent's list. Nodes and values never change, so tasks on other
 * workers may share them; each counts who points at it. A value is apart from its
 * node, so that it stays where it is when the list before another key is made anew.
 */
#include <errno.h>
#include <string.h>
#include <weir/task.h>

#include "base/planted.h"
#include "rt/mem.h"
#include "rt/runtime.h"
#include "rt/task.h"

struct local_value {
    ATOM(unsigned) holders;
    unsigned char data[] __attribute__((aligned(16)));
};

struct local {
    ATOM(unsigned) holders;
    struct local *next;
    const weir_local_key *key;
    struct local_value *value;
};

/* One holder less. True: it was the last one, and what the others did is over. */
static bool drop(ATOM(unsigned) * holders)
{
    sanitize_release(holders);
    if (atom_sub(holders, 1) != 1) return false;
    sanitize_acquire(holders);
    return true;
}

static void value_unref(struct local_value *value)
{
    if (value && drop(&value->holders)) mem_free(value);
}

struct local *local_ref(struct local *local)
{
    if (local && PLANTED(HOLDERS_TORN)) {
        atom_store(&local->holders, atom_load(&local->holders) + 1);
    } else if (local) {
        (void)atom_add(&local->holders, 1);
    }
    return local;
}

void local_unref(struct local *local)
{
    while (local && drop(&local->holders)) {
        struct local *next = local->next;
        value_unref(local->value);
        mem_free(local);
        local = next;
    }
}

static struct local_value *value_new(const void *data, size_t bytes)
{
    struct local_value *value = mem_alloc(sizeof *value + bytes);
    if (!value) return NULL;
    atom_store(&value->holders, 1);
    memcpy(value->data, data, bytes);
    return value;
}

/* A node for the front of `take_next`; takes the caller's holds on both. */
static struct local *node_new(const weir_local_key *key, struct local_value *take_value,
                              struct local *take_next)
{
    struct local *local = mem_alloc(sizeof *local);
    if (!local) return NULL;
    atom_store(&local->holders, 1);
    local->key = key;
    local->value = take_value;
    local->next = take_next;
    return local;
}

static struct local *find(struct local *list, const weir_local_key *key)
{
    while (list && list->key != key) list = list->next;
    return list;
}

/* The list without `found`, held once more: what stands behind it is shared, what
 * stands before it is made anew. */
static int without(struct local *list, const struct local *found, struct local **ret_list)
{
    struct local *copy = NULL;
    struct local **end = &copy;

    for (; list && list != found; list = list->next) {
        struct local *node = node_new(list->key, list->value, NULL);
        if (!node) {
            local_unref(copy);
            return -ENOMEM;
        }
        (void)atom_add(&list->value->holders, 1);
        *end = node;
        end = &node->next;
    }
    if (found) *end = local_ref(found->next);
    *ret_list = copy;
    return 0;
}

int weir_local_set(const weir_local_key *keep_key, const void *value, size_t bytes)
{
    struct task *self = task_self();
    struct local *found;
    struct local *list;
    int r;

    if (!self) return refuse_no_task("weir_local_set");
    if (bytes > WEIR_LOCAL_BYTES_MAX) {
        return refuse("task local '%s': %zu bytes, at most %d", keep_key->name, bytes,
                      WEIR_LOCAL_BYTES_MAX);
    }
    found = find(self->locals, keep_key);
    if (!found) {
        list = local_ref(self->locals);
    } else {
        r = without(self->locals, found, &list);
        if (r < 0) return r;
    }
    if (bytes > 0) {
        struct local_value *copy = value_new(value, bytes);
        struct local *node = copy ? node_new(keep_key, copy, list) : NULL;
        if (!node) {
            value_unref(copy);
            local_unref(list);
            return -ENOMEM;
        }
        list = node;
    }
    local_unref(self->locals);
    self->locals = list;
    self->has_extras = true;
    return 0;
}

const void *weir_local_get(const weir_local_key *key)
{
    struct task *self = task_self();
    struct local *found = self ? find(self->locals, key) : NULL;
    return found ? found->value->data : NULL;
}
