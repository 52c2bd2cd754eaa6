/* local.c - task locals: immutable values that children inherit.
 *
 * A task's values are a list, newest first; a child starts with its parent's list
 * and adds in front of it. Nodes never change, so tasks on other workers may share
 * them; each node counts who points at it.
 */
#include <errno.h>
#include <string.h>
#include <weir/task.h>

#include "rt/mem.h"
#include "rt/runtime.h"
#include "rt/task.h"

struct local {
    ATOM(unsigned) holders;
    struct local *next;
    const weir_local_key *key;
    size_t bytes; /* 0: unset here, whatever stands behind */
    unsigned char value[] __attribute__((aligned(16)));
};

struct local *local_ref(struct local *local)
{
    if (local) (void)atom_add(&local->holders, 1);
    return local;
}

void local_unref(struct local *local)
{
    while (local && atom_sub(&local->holders, 1) == 1) {
        struct local *next = local->next;
        mem_free(local);
        local = next;
    }
}

int weir_local_set(const weir_local_key *keep_key, const void *value, size_t bytes)
{
    struct task *self = task_self();
    struct local *local;

    if (!self) return refuse_no_task("weir_local_set");
    if (bytes > WEIR_LOCAL_BYTES_MAX) {
        return refuse("task local '%s': %zu bytes, at most %d", keep_key->name, bytes,
                      WEIR_LOCAL_BYTES_MAX);
    }
    local = mem_alloc(sizeof *local + bytes);
    if (!local) return -ENOMEM;
    atom_store(&local->holders, 1);
    local->key = keep_key;
    local->bytes = bytes;
    if (bytes > 0) memcpy(local->value, value, bytes);
    /* Setting the same key in a loop must not grow the list. */
    if (self->locals && self->locals->key == keep_key) {
        local->next = local_ref(self->locals->next);
        local_unref(self->locals);
    } else {
        local->next = self->locals;
    }
    self->locals = local;
    self->has_extras = true;
    return 0;
}

const void *weir_local_get(const weir_local_key *key)
{
    struct task *self = task_self();
    if (!self) return NULL;
    for (struct local *local = self->locals; local; local = local->next) {
        if (local->key == key) return local->bytes > 0 ? local->value : NULL;
    }
    return NULL;
}
