/* breaker.c - the moves of a circuit breaker, and its rolling window. */
#include "policy/breaker.h"

#include <assert.h>
#include <string.h>

#include "base/planted.h"
/* Row r, bit s: a breaker may go from state r to state s. */
static const uint8_t breaker_moves[BREAKER_STATES] = {
    [BREAKER_CLOSED] = 1u << BREAKER_OPEN,
    [BREAKER_OPEN] = 1u << BREAKER_HALF_OPEN | 1u << BREAKER_CLOSED,
    [BREAKER_HALF_OPEN] = 1u << BREAKER_OPEN | 1u << BREAKER_CLOSED,
};

/* What was counted belongs to the state that is left. */
static void forget(struct breaker *breaker)
{
    breaker->epoch++;
    memset(&breaker->sums, 0, sizeof breaker->sums);
    memset(&breaker->window, 0, sizeof breaker->window);
    breaker->probes = 0;
    breaker->probes_ok = 0;
}

static void breaker_set_state(struct breaker *breaker, enum breaker_state state, int64_t now_ns)
{
    assert(breaker_moves[breaker->state] & (1u << state));
    breaker->state = state;
    breaker->since_ns = now_ns;
    forget(breaker);
}

void breaker_init(struct breaker *breaker, const struct breaker_rules *rules)
{
    assert((rules->window_calls > 0) != (rules->window_ns > 0));
    assert(rules->window_calls <= BREAKER_CALLS_MAX);
    assert(rules->probes_max > 0);
    memset(breaker, 0, sizeof *breaker);
    breaker->rules = *rules;
    breaker->state = BREAKER_CLOSED;
}

/* ---- The window ---- */

static void sums_add(struct breaker_sums *sums, bool failed, bool slow)
{
    sums->calls++;
    sums->failed += failed;
    sums->slow += slow;
}

static void sums_take(struct breaker_sums *sums, const struct breaker_sums *less)
{
    sums->calls -= less->calls;
    sums->failed -= less->failed;
    sums->slow -= less->slow;
}

static bool swap_bit(uint64_t *bits, uint32_t at, bool value)
{
    uint64_t *word = &bits[at / 64];
    uint64_t mask = UINT64_C(1) << (at % 64);
    bool before = *word & mask;

    *word = value ? *word | mask : *word & ~mask;
    return before;
}

static void add_by_count(struct breaker *breaker, bool failed, bool slow)
{
    uint32_t at = breaker->window.calls.next;
    struct breaker_sums oldest = {0};

    oldest.failed = swap_bit(breaker->window.calls.failed, at, failed);
    oldest.slow = swap_bit(breaker->window.calls.slow, at, slow);
    oldest.calls = breaker->sums.calls == breaker->rules.window_calls;
    sums_take(&breaker->sums, &oldest);
    sums_add(&breaker->sums, failed, slow);
    breaker->window.calls.next = at + 1 == breaker->rules.window_calls ? 0 : at + 1;
}

/* The slice of this time is the newest, and what is too old for it has fallen out. */
static void slide(struct breaker *breaker, int64_t number)
{
    int64_t newest = breaker->window.slices.newest;

    if (number <= newest) return;
    if (number - newest >= BREAKER_SLICES) newest = number - BREAKER_SLICES;
    while (newest < number) {
        struct breaker_sums *slice = &breaker->window.slices.sums[++newest % BREAKER_SLICES];
        sums_take(&breaker->sums, slice);
        memset(slice, 0, sizeof *slice);
    }
    breaker->window.slices.newest = newest;
}

static void add_by_time(struct breaker *breaker, bool failed, bool slow, int64_t now_ns)
{
    slide(breaker, now_ns / (breaker->rules.window_ns / BREAKER_SLICES));
    /* A time that lies a little behind counts as now. */
    sums_add(&breaker->window.slices.sums[breaker->window.slices.newest % BREAKER_SLICES], failed,
             slow);
    sums_add(&breaker->sums, failed, slow);
}

/* ---- Letting in, and hearing ---- */

static bool reaches(uint32_t part, uint32_t all, uint32_t percent)
{
    return percent > 0 && (uint64_t)part * 100 >= (uint64_t)all * percent;
}

static bool is_too_bad(const struct breaker *breaker)
{
    const struct breaker_rules *rules = &breaker->rules;
    const struct breaker_sums *sums = &breaker->sums;

    if (sums->calls < rules->calls_min) return false;
    return reaches(sums->failed, sums->calls, rules->failure_percent) ||
           reaches(sums->slow, sums->calls, rules->slow_percent);
}

static bool enter_half_open(struct breaker *breaker, int64_t now_ns)
{
    if (breaker->probes >= breaker->rules.probes_max) {
        if (now_ns - breaker->probe_ns < breaker->rules.lost_ns) return false;
        breaker->epoch++; /* they do not report: what they say later is not counted */
        breaker->probes = 0;
    }
    breaker->probes++;
    breaker->probe_ns = now_ns;
    return true;
}

bool breaker_enter(struct breaker *breaker, int64_t now_ns, struct breaker_pass *ret_pass)
{
    if (breaker->state == BREAKER_OPEN) {
        if (now_ns - breaker->since_ns < breaker->rules.open_ns) return false;
        breaker_set_state(breaker, BREAKER_HALF_OPEN, now_ns);
    }
    if (breaker->state == BREAKER_HALF_OPEN && !enter_half_open(breaker, now_ns)) return false;
    ret_pass->epoch = breaker->epoch;
    return true;
}

static void hear_probe(struct breaker *breaker, enum breaker_report report, bool slow,
                       int64_t now_ns)
{
    if (PLANTED(BREAKER_PROBE_LEAK) && report == BREAKER_SAYS_NOTHING) return;
    breaker->probes--;
    if (report == BREAKER_SAYS_NOTHING) return;
    if (report == BREAKER_HAS_FAILED || slow) {
        breaker_set_state(breaker, BREAKER_OPEN, now_ns);
    } else if (++breaker->probes_ok >= breaker->rules.probes_needed) {
        breaker_set_state(breaker, BREAKER_CLOSED, now_ns);
    }
}

void breaker_leave(struct breaker *breaker, const struct breaker_pass *pass,
                   enum breaker_report report, int64_t run_ns, int64_t now_ns)
{
    bool slow = breaker->rules.slow_percent > 0 && run_ns >= breaker->rules.slow_ns;

    if (pass->epoch != breaker->epoch) return;
    if (breaker->state == BREAKER_HALF_OPEN) {
        hear_probe(breaker, report, slow, now_ns);
        return;
    }
    if (report == BREAKER_SAYS_NOTHING) return;
    if (breaker->rules.window_calls > 0) {
        add_by_count(breaker, report == BREAKER_HAS_FAILED, slow);
    } else {
        add_by_time(breaker, report == BREAKER_HAS_FAILED, slow, now_ns);
    }
    if (is_too_bad(breaker)) breaker_set_state(breaker, BREAKER_OPEN, now_ns);
}

/* ---- By hand ---- */

void breaker_trip(struct breaker *breaker, int64_t now_ns)
{
    if (breaker->state != BREAKER_OPEN) {
        breaker_set_state(breaker, BREAKER_OPEN, now_ns);
    } else {
        breaker->since_ns = now_ns; /* it stays open for another open_ns */
    }
}

void breaker_reset(struct breaker *breaker, int64_t now_ns)
{
    if (breaker->state != BREAKER_CLOSED) breaker_set_state(breaker, BREAKER_CLOSED, now_ns);
}
