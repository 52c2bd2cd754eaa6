/* waits.h - why a parked task does not run: for what it waits, since when, and who could end
 * the wait. For the dump, the map's edges, and the search for deadlocks.
 *
 * Invariants: nothing is locked and nothing allocated; whoever is in `by` is alive, and stays
 * so until the workers go on.
 * Threads: on a worker, during a pause in which all workers stand still (`all_still`). With
 * one that does not, only what the task itself says is told: nobody is named.
 */
#ifndef WEIR_WATCH_WAITS_H
#define WEIR_WATCH_WAITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rt/waiting.h"

struct symbol_table;

struct waits {
    struct waiting waiting;
    const char *call; /* as the dump says it: "receive" */
    int64_t since_ns;
    int64_t deadline_ns; /* in force for the wait; INT64_MAX: none */
};

/* Of a task whose worker stands still. False: it is not parked, or a wake-up is on its way. */
bool waits_of(const struct task *task, bool all_still, struct waits *ret_waits);

/* In words: "mutex 'x', held by task 'b' #4", "an item of channel 'orders'", "the end of 3
 * tasks of scope 'serve'". `symbols` (or NULL) names the place where a lock was taken. Cut to
 * fit. */
void waits_sentence(const struct waits *waits, struct symbol_table *symbols, char *text,
                    size_t bytes);

/* Every task that could end the wait, those of its scope included: `next` is 0 at first and is
 * moved on; NULL: there are no more. Bounded by the scope's tasks. */
struct waits_cursor {
    unsigned index;
    const void *node;
};
const struct task *waits_next_by(const struct waits *waits, struct waits_cursor *cursor);

#endif
