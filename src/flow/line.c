/* line.c - waiting in a line, and being served from its front. */
#include "flow/line.h"

#include "base/planted.h"

int line_check_spec(const char *what, const char *name, enum weir_overflow overflow,
                    size_t waiters_max)
{
    switch (overflow) {
    case WEIR_WAIT:
        if (waiters_max == 0) return refuse("%s '%s': waiters_max is not set", what, name);
        return 0;
    case WEIR_REJECT:
        if (waiters_max > 0) {
            return refuse("%s '%s': with WEIR_REJECT nobody waits, waiters_max must be 0", what,
                          name);
        }
        return 0;
    case WEIR_OVERFLOW_UNSET: return refuse("%s '%s': overflow is not set", what, name);
    default: return refuse("%s '%s': overflow must be WEIR_WAIT or WEIR_REJECT", what, name);
    }
}

void line_grant(struct line *line)
{
    const struct line_kind *kind = line_kind_of(line);
    struct list *node;

    while ((node = list_first(&line->sync.waiters))) {
        struct waiter *waiter = container_of(node, struct waiter, node);
        size_t count = container_of(waiter, struct line_waiter, waiter)->count;
        if (!kind->take(line, count)) {
            if (kind->first_waits) kind->first_waits(line, count);
            return;
        }
        list_remove(node);
        line->waiting--;
        waiter_wake(waiter, 0);
    }
}

void line_refuse_more_than(struct line *line, size_t count)
{
    struct list kept;
    struct list *node;

    list_init(&kept);
    while ((node = list_pop(&line->sync.waiters))) {
        struct waiter *waiter = container_of(node, struct waiter, node);
        if (container_of(waiter, struct line_waiter, waiter)->count <= count) {
            list_add_tail(&kept, node);
        } else {
            line->waiting--;
            line->rejected++;
            waiter_wake(waiter, WEIR_EOVERLOAD);
        }
    }
    while ((node = list_pop(&kept))) list_add_tail(&line->sync.waiters, node);
}

/* One that waits has been interrupted: it may have been in the way of others. */
bool line_abort(struct task *task, void *object)
{
    struct line_waiter *waiter = object;
    struct line *line = waiter->line;
    bool waiting;

    (void)task;
    sync_lock(&line->sync);
    waiting = !list_empty(&waiter->waiter.node);
    if (waiting) {
        list_remove(&waiter->waiter.node);
        line->waiting--;
        if (!PLANTED(LINE_NOT_SERVED)) line_grant(line);
    }
    sync_unlock(&line->sync);
    return waiting;
}

int line_wait(struct line *line, struct task *self, size_t count,
              const struct wait_kind *kind) LOCK_UNCHECKED
{
    struct line_waiter waiter = {.line = line, .count = count};

    if (line->waiting >= line->waiters_max) {
        line->rejected++;
        sync_unlock(&line->sync);
        return WEIR_EOVERLOAD;
    }
    line->waiting++;
    line->waited++;
    return sync_wait(&line->sync, self, &waiter.waiter, kind);
}
