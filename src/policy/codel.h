/* codel.h - sheds what has waited too long, once that has been so for too long.
 *
 * For each thing that leaves a queue it is told how long that has waited, and says whether to
 * shed it. Waits over the target are the business of a burst for as long as an interval: a
 * queue that gets back under its target within that was only busy. One that does not is
 * overloaded, and then things are shed at a growing rate: the n-th one interval / √n after the
 * one before. That is controlled delay as RFC 8289 describes it, with one rule besides, for
 * callers do not slow down as TCP does: whatever has waited longer than wait_max is shed,
 * in any state. A burst that is served within wait_max loses nothing.
 *
 *              over target                  over target, an interval later
 *     CALM ───────────────────▶ ABOVE ──────────────────────────────────▶ SHEDDING
 *       ▲                         │ under target                             │
 *       ├─────────────────────────┘                                          │ under target
 *       └────────────────────────────────────────────────────────────────────┘
 *
 * How fast it sheds is remembered for a while, so that overload that comes back soon is met at
 * once with what has helped.
 *
 * While it is SHEDDING the owner of the queue does well to serve the newest first: who came
 * last can still be served in time, and those at the front are lost to the rule above.
 */
#ifndef WEIR_POLICY_CODEL_H
#define WEIR_POLICY_CODEL_H

#include <stdbool.h>
#include <stdint.h>

enum codel_state { CODEL_CALM, CODEL_ABOVE, CODEL_SHEDDING, CODEL_STATES };

/* Row r, bit s: it may go from state r to state s. */
extern const uint8_t codel_moves[CODEL_STATES];

/* 0 < target_ns <= wait_max_ns; 0 < interval_ns. */
struct codel_rules {
    int64_t target_ns;   /* how long things may wait for good */
    int64_t interval_ns; /* for how long it may be more */
    int64_t wait_max_ns; /* longer than this never */
};

struct codel {
    struct codel_rules rules;
    enum codel_state state;
    int64_t above_until_ns; /* ABOVE: when shedding begins */
    int64_t next_ns;        /* SHEDDING: when the next is shed; it stays when that is over */
    uint64_t shed;          /* how far the law is: the n of √n */
    uint64_t shed_before;   /* what it began with then */
};

void codel_init(struct codel *codel, const struct codel_rules *rules);

/* Something leaves the queue after `waited_ns`: true, to be shed. */
bool codel_sheds(struct codel *codel, int64_t waited_ns, int64_t now_ns);

/* The same without looking at the time, which is not needed for what is within the target. */
static inline bool codel_is_within(const struct codel *codel, int64_t waited_ns)
{
    return waited_ns < codel->rules.target_ns;
}
void codel_calms(struct codel *codel);
static inline void codel_pass(struct codel *codel)
{
    if (__builtin_expect(codel->state != CODEL_CALM, 0)) codel_calms(codel);
}

#endif
