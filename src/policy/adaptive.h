/* adaptive.h - how many at a time, learnt from how long they take.
 *
 * As long as a server is not full, calls take as long as they take; once it is, each one more
 * makes all of them wait. So the time without a queue (`base_ns`) is measured now and then with
 * half as many calls and fewer, and in between the limit is moved, once in a window:
 *
 *     limit ← limit × base × (1 + tolerance) / mean, at most doubled or halved, + √limit
 *
 * which rests where about √limit calls wait in a server that is full, and moves to another
 * capacity within a few windows. docs/decisions/0018 has what else was tried.
 *
 *            those who came before have left, and
 *       DRAIN ──as many again, or some time has passed──▶ PROBE: measure with this limit
 *        ▲ ▲                                               │   │ as long as before: the
 *        │ └─────── faster than with twice as many: ───────┘   │ limit of before, and its base
 *        │          a half of them again                       ▼
 *        └─── probe_ns later, or the limit keeps falling ── STEADY: a window after the other
 *
 * Calls are timed when they say so (adaptive_entered): at a high rate a part of them is enough.
 * What ends with an error says nothing by its time. What ends with too much load (a timeout, a
 * rejection) lowers the limit.
 *
 * Invariants: limit_min <= limit <= limit_max; a call that came before a measurement began is
 * no part of it.
 */
#ifndef WEIR_POLICY_ADAPTIVE_H
#define WEIR_POLICY_ADAPTIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum adaptive_state { ADAPTIVE_DRAIN, ADAPTIVE_PROBE, ADAPTIVE_STEADY, ADAPTIVE_STATES };

/* Row r, bit s: it may go from state r to state s. */
extern const uint8_t adaptive_moves[ADAPTIVE_STATES];

/* 1 <= limit_min <= limit <= limit_max. */
struct adaptive_rules {
    size_t limit; /* to begin with */
    size_t limit_min, limit_max;
    int64_t window_ns;      /* the limit is moved once in this time */
    int64_t probe_ns;       /* the base is measured again after this */
    unsigned tolerance_pct; /* how much longer than the base is still no queue */
};

enum adaptive_outcome {
    ADAPTIVE_DONE,       /* its time counts */
    ADAPTIVE_FAILED,     /* its time says nothing */
    ADAPTIVE_OVERLOADED, /* it took too long, or was rejected: too many */
};

enum {
    ADAPTIVE_WINDOW_CALLS = 32, /* timed ones that a window has at least */
    ADAPTIVE_PROBE_CALLS = 64,  /* and a measurement of the base */
    ADAPTIVE_TIMED_MAX = 64,    /* about so many are timed in a window */
    ADAPTIVE_UNTIMED_MAX = 64,  /* and one in so many at least */
    ADAPTIVE_DRAIN_WINDOWS = 4, /* after which it need not have been filled again */
    ADAPTIVE_FALLS_MAX = 3,     /* windows that lower the limit: then the base is measured again */
};

struct adaptive {
    struct adaptive_rules rules;
    enum adaptive_state state;
    size_t limit;
    int64_t since_ns; /* those who came before this do not count */

    uint64_t sum_ns; /* of those that were timed ... */
    uint64_t timed;
    uint64_t ended;      /* of all that have ended ... */
    uint64_t overloaded; /* and those of them that were too many */
    size_t peak;         /* the most that were inside */

    int64_t base_ns;   /* 0: not known yet */
    int64_t before_ns; /* PROBE: the mean with twice as many; 0: this is the first */
    size_t limit_kept; /* DRAIN, PROBE: what comes back */
    int64_t probed_ns; /* when the base was measured */
    bool drained;      /* DRAIN: those who came before have left, at since_ns */
    unsigned lowered;  /* PROBE: how often it has gone to half of them */
    unsigned falls;    /* windows in a row that have lowered the limit */

    int64_t next_timed_ns;
    unsigned untimed; /* since the last that was */
};

void adaptive_init(struct adaptive *adaptive, const struct adaptive_rules *rules);

/* Go on from another limit, within the rules. */
void adaptive_resize(struct adaptive *adaptive, size_t limit);

/* So many are inside, with one that has just got in. */
static inline void adaptive_peak(struct adaptive *adaptive, size_t inside)
{
    if (inside > adaptive->peak) adaptive->peak = inside;
}

/* A call gets in and is the `inside`-th. `about_ns` is a time that may be old. True: it is to
 * be timed. */
static inline bool adaptive_entered(struct adaptive *adaptive, size_t inside, int64_t about_ns)
{
    adaptive_peak(adaptive, inside);
    if (about_ns < adaptive->next_timed_ns && adaptive->untimed < ADAPTIVE_UNTIMED_MAX) {
        adaptive->untimed++;
        return false;
    }
    adaptive->untimed = 0;
    adaptive->next_timed_ns = about_ns + adaptive->rules.window_ns / ADAPTIVE_TIMED_MAX;
    return true;
}

/* Whether the end of a call that was not timed has to know the time. `inside`: with it. */
static inline bool adaptive_wants_time(const struct adaptive *adaptive, size_t inside)
{
    return adaptive->state == ADAPTIVE_DRAIN && inside <= adaptive->limit;
}

/* A call that was not timed has ended. */
static inline void adaptive_ended(struct adaptive *adaptive, enum adaptive_outcome outcome)
{
    adaptive->ended++;
    if (__builtin_expect(outcome == ADAPTIVE_OVERLOADED, 0)) adaptive->overloaded++;
}

/* One that was timed, or for which the time is wanted (`began_ns` is 0 then), has; it was one
 * of `inside`. */
void adaptive_ended_at(struct adaptive *adaptive, enum adaptive_outcome outcome, int64_t began_ns,
                       int64_t now_ns, size_t inside);

#endif
