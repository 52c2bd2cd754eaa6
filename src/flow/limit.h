/* limit.h - what rates, limits and shedders are inside, for what is built on them.
 *
 * A caller that has just looked at the clock hands the time on; 0 means that they look
 * themselves, if they need it at all. rate_take and limit_enter return LINE_WAITED if the
 * caller's time is old now. The rest is as <weir/limit.h> and <weir/shed.h> say.
 */
#ifndef WEIR_FLOW_LIMIT_H
#define WEIR_FLOW_LIMIT_H

#include <weir/limit.h>
#include <weir/shed.h>

#include "flow/line.h"
#include "policy/adaptive.h"
#include "policy/bucket.h"
#include "policy/bulkhead.h"
#include "policy/codel.h"
#include "watch/metrics.h"

/* ---- Rate ---- */

enum { RATE_WAIT }; /* histograms */
enum {
    RATE_RATE,
    RATE_BURST,
    RATE_WAITING,
    RATE_ADMITTED,
    RATE_TAKEN,
    RATE_RETURNED,
    RATE_WAITED,
    RATE_REJECTED,
    RATE_TIMEOUTS,
    RATE_LATENCY_TARGET,
    RATE_VALUES,
};
extern const struct meter_kind rate_meter_kind;

/* The first in the line waits for a time, and one timer on the object's own worker sees to it;
 * other workers ask that to look, by mail. */
struct weir_rate {
    struct line line;
    struct bucket bucket;
    uint64_t admitted, taken, returned;
    struct timer timer; /* touched on its own worker only */
    size_t rate, burst, rate_max, burst_max;
    int64_t per_ms, latency_ms;
    struct metered metered;
};

WEIR_MUST_USE __attribute__((noinline)) int rate_take(weir_rate *handle, unsigned tokens,
                                                      int64_t now_ns);
/* What they were taken for is not done after all: they are there for who comes next. Also when the
 * rate was closed meanwhile. Never suspends. */
void rate_give_back(const weir_rate *handle, unsigned tokens);

/* ---- Limit ---- */

enum { LIMIT_WAIT };
enum {
    LIMIT_LIMIT,
    LIMIT_IN_FLIGHT,
    LIMIT_IN_FLIGHT_MAX,
    LIMIT_WAITING,
    LIMIT_ADMITTED,
    LIMIT_WAITED,
    LIMIT_REJECTED,
    LIMIT_TIMEOUTS,
    LIMIT_LATENCY_TARGET,
    LIMIT_VALUES,
};
extern const struct meter_kind limit_meter_kind;

struct weir_limit {
    struct line line;
    struct bulkhead bulkhead;
    size_t in_flight_max;
    uint64_t admitted;
    bool adapts;
    struct adaptive adaptive;
    size_t min, max;
    int64_t latency_ms;
    struct metered metered;
};

WEIR_MUST_USE __attribute__((noinline)) int limit_enter(weir_limit *handle,
                                                        weir_limit_pass *ret_pass, int64_t now_ns);
void limit_leave(weir_limit *handle, weir_limit_pass *pass, int result, int64_t now_ns);

/* ---- Shed ---- */

enum {
    SHED_ADMITTED,
    SHED_SHED,
    SHED_TOO_LATE,
    SHED_SHEDDING,
    SHED_TARGET,
    SHED_VALUES,
};
extern const struct meter_kind shed_meter_kind;

struct weir_shed {
    struct sync sync;
    struct codel codel;
    uint64_t admitted, shed, too_late;
    struct metered metered;
};

WEIR_MUST_USE int shed_enter(weir_shed *handle, int64_t waited_ns, int64_t now_ns);

#endif
