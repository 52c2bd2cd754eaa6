/* retry_budget.h - how many retries all callers together may make.
 *
 *              a token is there again
 *        SPENT ──────────────────────▶ SOME
 *          ▲                             │
 *          └── the last one was taken ───┘
 *
 * A bucket of tokens: each call puts ratio_percent hundredths of one in, each second puts in
 * per_second, and a retry (or a hedge) takes one. So over any time
 *
 *     retries <= burst + per_second * seconds + calls * ratio_percent / 100
 *
 * and when everything fails, the load on what fails grows by the ratio, not by the number of
 * attempts. It begins full. retry_budget_set_state() is the only setter and checks every move
 * against a table.
 *
 * Invariants: 0 <= tokens <= burst; exact, in whole billionths of a token (of which the time
 * brings per_second for each nanosecond); no clock, no allocation, no lock.
 */
#ifndef WEIR_POLICY_RETRY_BUDGET_H
#define WEIR_POLICY_RETRY_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

enum retry_budget_state { RETRY_BUDGET_SOME, RETRY_BUDGET_SPENT, RETRY_BUDGET_STATES };

enum {
    RETRY_BUDGET_RATIO_MAX = 1000, /* percent */
    RETRY_BUDGET_RATE_MAX = 1000000,
    RETRY_BUDGET_BURST_MAX = 1000000,
};

/* Parts of a token. */
#define RETRY_BUDGET_TOKEN INT64_C(1000000000)

/* Within the bounds above; burst is at least 1. */
struct retry_budget_rules {
    uint32_t ratio_percent;
    uint32_t per_second;
    uint32_t burst;
};

struct retry_budget {
    struct retry_budget_rules rules;
    enum retry_budget_state state;
    int64_t parts;  /* of tokens that are there */
    int64_t now_ns; /* up to which time has brought its part */
};

void retry_budget_init(struct retry_budget *budget, const struct retry_budget_rules *rules,
                       int64_t now_ns);

/* A call is made: its share comes in. */
void retry_budget_call(struct retry_budget *budget, int64_t now_ns);

/* Take a token for one more attempt; false: there is none. */
bool retry_budget_take(struct retry_budget *budget, int64_t now_ns);

/* A token that was taken comes back: the attempt is not made after all. */
void retry_budget_give_back(struct retry_budget *budget);

/* Whole tokens that are there now. */
uint32_t retry_budget_tokens(struct retry_budget *budget, int64_t now_ns);

#endif
