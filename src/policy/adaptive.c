/* adaptive.c - measuring the time without a queue, and moving the limit by it. */
#include "policy/adaptive.h"

#include <assert.h>

#define CALL_NS_MAX INT64_C(1000000000000) /* a thousand seconds: no longer ones in the sums */

enum { GRADIENT_ONE = 1024, OVERLOADED_PARTS = 8 };

#define TO(state) (1u << (state))
const uint8_t adaptive_moves[ADAPTIVE_STATES] = {
    [ADAPTIVE_DRAIN] = TO(ADAPTIVE_PROBE),
    [ADAPTIVE_PROBE] = TO(ADAPTIVE_DRAIN) | TO(ADAPTIVE_STEADY),
    [ADAPTIVE_STEADY] = TO(ADAPTIVE_DRAIN),
};

static void adaptive_set_state(struct adaptive *adaptive, enum adaptive_state state)
{
    assert(adaptive_moves[adaptive->state] & TO(state));
    adaptive->state = state;
}

static size_t within(const struct adaptive *adaptive, uint64_t limit)
{
    if (limit < adaptive->rules.limit_min) return adaptive->rules.limit_min;
    if (limit > adaptive->rules.limit_max) return adaptive->rules.limit_max;
    return (size_t)limit;
}

static void begin_window(struct adaptive *adaptive, int64_t now_ns)
{
    adaptive->since_ns = now_ns;
    adaptive->sum_ns = 0;
    adaptive->timed = 0;
    adaptive->ended = 0;
    adaptive->overloaded = 0;
    adaptive->peak = 0;
}

static void halve(struct adaptive *adaptive)
{
    adaptive->limit = within(adaptive, adaptive->limit / 2);
}

void adaptive_init(struct adaptive *adaptive, const struct adaptive_rules *rules)
{
    *adaptive = (struct adaptive){
        .rules = *rules,
        .state = ADAPTIVE_DRAIN,
        .limit = rules->limit,
        .limit_kept = rules->limit,
        .next_timed_ns = INT64_MIN,
    };
    halve(adaptive);
}

void adaptive_resize(struct adaptive *adaptive, size_t limit)
{
    if (adaptive->state == ADAPTIVE_STEADY) {
        adaptive->limit = within(adaptive, limit);
    } else {
        adaptive->limit_kept = within(adaptive, limit);
        if (adaptive->limit > adaptive->limit_kept) adaptive->limit = adaptive->limit_kept;
    }
    adaptive->falls = 0;
}

/* ---- Measuring the base ---- */

static void probe(struct adaptive *adaptive)
{
    adaptive_set_state(adaptive, ADAPTIVE_DRAIN);
    adaptive->limit_kept = adaptive->limit;
    adaptive->before_ns = 0;
    adaptive->lowered = 0;
    adaptive->drained = false;
    halve(adaptive);
}

/* Measure with half of them again. */
static void probe_lower(struct adaptive *adaptive, int64_t before_ns)
{
    adaptive_set_state(adaptive, ADAPTIVE_DRAIN);
    adaptive->before_ns = before_ns;
    adaptive->lowered++;
    adaptive->drained = false;
    halve(adaptive);
}

/* A measurement that began before the server is as full as the limit lets it be would find it
 * faster than it is. */
static void drain_look(struct adaptive *adaptive, int64_t now_ns, size_t inside)
{
    if (!adaptive->drained) {
        if (inside > adaptive->limit) return;
        adaptive->drained = true;
        begin_window(adaptive, now_ns);
    } else if (adaptive->ended >= adaptive->limit ||
               now_ns - adaptive->since_ns >= ADAPTIVE_DRAIN_WINDOWS * adaptive->rules.window_ns) {
        adaptive_set_state(adaptive, ADAPTIVE_PROBE);
        begin_window(adaptive, now_ns);
    }
}

static void probe_ends(struct adaptive *adaptive, int64_t base_ns, int64_t now_ns)
{
    /* With four times as many there was a queue, or it would have ended before. */
    if (adaptive->lowered > 1 && adaptive->limit_kept > 4 * adaptive->limit + 3) {
        adaptive->limit_kept = within(adaptive, 4 * adaptive->limit + 3);
    }
    adaptive_set_state(adaptive, ADAPTIVE_STEADY);
    adaptive->base_ns = base_ns > 0 ? base_ns : 1;
    adaptive->limit = adaptive->limit_kept;
    adaptive->probed_ns = now_ns;
    adaptive->falls = 0;
    begin_window(adaptive, now_ns);
}

static void probe_look(struct adaptive *adaptive, int64_t now_ns)
{
    bool lowest = adaptive->limit <= adaptive->rules.limit_min;
    int64_t before_ns = adaptive->before_ns;
    int64_t mean_ns;

    if (adaptive->overloaded >= ADAPTIVE_PROBE_CALLS && adaptive->timed == 0) {
        /* Nothing gets through: with fewer, and that is where it goes on from. */
        if (!lowest) {
            probe_lower(adaptive, 0);
            adaptive->limit_kept = adaptive->limit;
        }
        adaptive->overloaded = 0;
        return;
    }
    if (adaptive->timed < ADAPTIVE_PROBE_CALLS) return;
    mean_ns = (int64_t)(adaptive->sum_ns / adaptive->timed);
    if (before_ns == 0 && !lowest) {
        probe_lower(adaptive, mean_ns);
    } else if (before_ns > 0 && mean_ns < before_ns / 4 * 3) {
        /* With twice as many there was a queue; so there may be one now. */
        if (lowest) {
            probe_ends(adaptive, mean_ns, now_ns);
        } else {
            probe_lower(adaptive, mean_ns);
        }
    } else {
        probe_ends(adaptive, before_ns > 0 ? (mean_ns + before_ns) / 2 : mean_ns, now_ns);
    }
}

/* ---- Moving the limit ---- */

static size_t square_root(size_t value)
{
    size_t root = 1;
    while ((root + 1) * (root + 1) <= value) root++;
    return root;
}

/* GRADIENT_ONE × base × (1 + tolerance) / mean, from a half to two. */
static uint64_t gradient(const struct adaptive *adaptive, uint64_t mean_ns)
{
    uint64_t tolerated_ns =
        (uint64_t)adaptive->base_ns * (100 + adaptive->rules.tolerance_pct) / 100;
    uint64_t value = mean_ns > 0 ? tolerated_ns * GRADIENT_ONE / mean_ns : 2 * GRADIENT_ONE;

    if (value < GRADIENT_ONE / 2) return GRADIENT_ONE / 2;
    if (value > 2 * GRADIENT_ONE) return 2 * GRADIENT_ONE;
    return value;
}

static void window_ends(struct adaptive *adaptive, int64_t now_ns)
{
    size_t limit = adaptive->limit;
    uint64_t next = limit;
    uint64_t factor = GRADIENT_ONE;
    bool falls;

    if (adaptive->timed > 0) {
        uint64_t mean_ns = adaptive->sum_ns / adaptive->timed;
        /* Faster than it ever was without a queue: so it is faster now. */
        if (mean_ns < (uint64_t)adaptive->base_ns / 4 * 3) adaptive->base_ns = (int64_t)mean_ns + 1;
        factor = gradient(adaptive, mean_ns);
        next = limit * factor / GRADIENT_ONE + square_root(limit);
    }
    /* Who does not use what there is learns nothing about more. */
    if (adaptive->peak < limit / 2 && next > limit) next = limit;
    if (adaptive->overloaded * OVERLOADED_PARTS > adaptive->ended && next > limit * 9 / 10) {
        next = limit * 9 / 10;
    }
    adaptive->limit = within(adaptive, next);
    /* From one capacity to another it takes two windows, or three. More says that calls take
     * longer for another reason, or that it is at its end. */
    falls =
        factor < GRADIENT_ONE && (next < limit - limit / 16 || next <= adaptive->rules.limit_min);
    adaptive->falls = falls ? adaptive->falls + 1 : 0;
    begin_window(adaptive, now_ns);
    if (adaptive->falls >= ADAPTIVE_FALLS_MAX ||
        now_ns - adaptive->probed_ns >= adaptive->rules.probe_ns) {
        probe(adaptive);
    }
}

static bool window_is_over(const struct adaptive *adaptive, int64_t now_ns)
{
    return adaptive->timed + adaptive->overloaded >= ADAPTIVE_WINDOW_CALLS &&
           now_ns - adaptive->since_ns >= adaptive->rules.window_ns;
}

void adaptive_ended_at(struct adaptive *adaptive, enum adaptive_outcome outcome, int64_t began_ns,
                       int64_t now_ns, size_t inside)
{
    int64_t took_ns = now_ns > began_ns ? now_ns - began_ns : 0;

    adaptive_ended(adaptive, outcome);
    if (adaptive->state == ADAPTIVE_DRAIN) {
        drain_look(adaptive, now_ns, inside);
        return;
    }
    if (outcome == ADAPTIVE_DONE && began_ns > 0 && began_ns >= adaptive->since_ns) {
        adaptive->sum_ns += (uint64_t)(took_ns < CALL_NS_MAX ? took_ns : CALL_NS_MAX);
        adaptive->timed++;
    }
    if (adaptive->state == ADAPTIVE_PROBE) {
        probe_look(adaptive, now_ns);
    } else if (window_is_over(adaptive, now_ns)) {
        window_ends(adaptive, now_ns);
    }
}
