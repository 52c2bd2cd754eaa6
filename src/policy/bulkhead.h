/* bulkhead.h - at most so many at a time.
 *
 * It has no states but two numbers. The limit may be changed to less than are inside: then
 * nobody gets in until enough have left.
 *
 * Invariant: `inside` grows only up to the limit of that moment.
 */
#ifndef WEIR_POLICY_BULKHEAD_H
#define WEIR_POLICY_BULKHEAD_H

#include <stdbool.h>
#include <stddef.h>

struct bulkhead_rules {
    size_t limit; /* 1 or more */
};

struct bulkhead {
    size_t limit;
    size_t inside;
};

static inline void bulkhead_init(struct bulkhead *bulkhead, const struct bulkhead_rules *rules)
{
    bulkhead->limit = rules->limit;
    bulkhead->inside = 0;
}

/* All `count` of them, or none. */
static inline bool bulkhead_enter(struct bulkhead *bulkhead, size_t count)
{
    if (bulkhead->inside > bulkhead->limit || count > bulkhead->limit - bulkhead->inside) {
        return false;
    }
    bulkhead->inside += count;
    return true;
}

/* False: so many are not inside, and nothing has changed. */
static inline bool bulkhead_leave(struct bulkhead *bulkhead, size_t count)
{
    if (count > bulkhead->inside) return false;
    bulkhead->inside -= count;
    return true;
}

static inline void bulkhead_resize(struct bulkhead *bulkhead, size_t limit)
{
    bulkhead->limit = limit;
}

#endif
