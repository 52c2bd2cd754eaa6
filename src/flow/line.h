/* line.h - tasks that wait for so many of something, first come first served: a semaphore's
 * permits, the places of a limit, the tokens of a rate.
 *
 * At most waiters_max wait. One who wants many is not passed by: nobody gets anything while
 * another one waits. What there is to be had is the kind's business (`take`).
 *
 *     take now ──▶ had                               the kind's own call, under the lock
 *        │ not there, or others wait
 *        ├──waiters_max wait already──▶ WEIR_EOVERLOAD
 *        └──line_wait──▶ in the line ──line_grant──▶ had
 *                           ├──interrupted──▶ nothing moved, and who was behind may go
 *                           └──the object ends──▶ WEIR_ECLOSED
 *
 * Invariant: `waiting` is the length of sync.waiters, until the object has ended.
 */
#ifndef WEIR_FLOW_LINE_H
#define WEIR_FLOW_LINE_H

#include "flow/sync.h"

struct line;

struct line_kind {
    struct sync_kind sync; /* the first member */
    /* Take `count`, if they are there. The lock is held. */
    bool (*take)(struct line *line, size_t count);
    /* The first in the line may be another one, and waits for `count`; may be NULL. The lock is
     * held. */
    void (*first_waits)(struct line *line, size_t count);
};

struct line {
    struct sync sync; /* the first member; its kind is that of a struct line_kind */
    size_t waiters_max;
    size_t waiting;
    uint64_t waited;   /* that have ever */
    uint64_t rejected; /* as waiters_max did already */
};

struct line_waiter {
    struct waiter waiter; /* the first member */
    struct line *line;
    size_t count;
};

static inline const struct line_kind *line_kind_of(const struct line *line)
{
    return (const struct line_kind *)(const void *)line->sync.kind;
}

enum { LINE_WAITED = 1 };

/* As every suspending call begins, for one whose caller may have handed on the time: LINE_WAITED,
 * it is old now, as the task's budget was used up and it has yielded. */
static inline int line_enter(struct task *self)
{
    int budget = self->budget;
    int r = task_enter(self, ENTER_PLAIN);

    return r < 0 ? r : self->budget >= budget ? LINE_WAITED : 0;
}

/* What a spec says about waiting: 0, or refused. */
int line_check_spec(const char *what, const char *name, enum weir_overflow overflow,
                    size_t waiters_max);

/* Something came back, or there is more: to those who wait, in order. The lock is held. */
void line_grant(struct line *line);

/* Those who wait for more than `count` get WEIR_EOVERLOAD: it will never come. The lock is
 * held; line_grant comes next. */
void line_refuse_more_than(struct line *line, size_t count);

/* Wait for `count`. The lock is held, and let go. */
int line_wait(struct line *line, struct task *self, size_t count, const struct wait_kind *kind)
    LOCK_RELEASES(line->sync.object.stable.lock, weir_no_park);

/* How many wait, as the map says it. */
static inline const char *line_overflow(const struct line *line)
{
    return line->waiters_max > 0 ? "wait, then reject" : "reject";
}

/* For struct wait_kind. */
bool line_abort(struct task *task, void *object);

#endif
