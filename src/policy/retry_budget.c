/* retry_budget.c - tokens come with calls and with time, and go with retries. */
#include "policy/retry_budget.h"

#include <assert.h>

/* Row r, bit s: a budget may go from state r to state s. */
static const uint8_t retry_budget_moves[RETRY_BUDGET_STATES] = {
    [RETRY_BUDGET_SOME] = 1u << RETRY_BUDGET_SPENT,
    [RETRY_BUDGET_SPENT] = 1u << RETRY_BUDGET_SOME,
};

static void retry_budget_set_state(struct retry_budget *budget, enum retry_budget_state state)
{
    assert(retry_budget_moves[budget->state] & (1u << state));
    budget->state = state;
}

void retry_budget_init(struct retry_budget *budget, const struct retry_budget_rules *rules,
                       int64_t now_ns)
{
    assert(rules->burst > 0);
    *budget = (struct retry_budget){.rules = *rules,
                                    .state = RETRY_BUDGET_SOME,
                                    .parts = rules->burst * RETRY_BUDGET_TOKEN,
                                    .now_ns = now_ns};
}

static void put(struct retry_budget *budget, int64_t parts)
{
    int64_t room = budget->rules.burst * RETRY_BUDGET_TOKEN - budget->parts;

    budget->parts += parts < room ? parts : room;
    if (budget->state == RETRY_BUDGET_SPENT && budget->parts >= RETRY_BUDGET_TOKEN) {
        retry_budget_set_state(budget, RETRY_BUDGET_SOME);
    }
}

/* What the time has brought. One that lies behind brings nothing, and is not counted twice. */
static void pass_time(struct retry_budget *budget, int64_t now_ns)
{
    int64_t full = budget->rules.burst * RETRY_BUDGET_TOKEN, passed = now_ns - budget->now_ns;

    if (passed <= 0) return;
    budget->now_ns = now_ns;
    if (budget->rules.per_second == 0 || budget->parts == full) return;
    /* So long that it is full: without the product, which would be too large. */
    put(budget,
        passed > full / budget->rules.per_second ? full : passed * budget->rules.per_second);
}

void retry_budget_call(struct retry_budget *budget, int64_t now_ns)
{
    pass_time(budget, now_ns);
    put(budget, budget->rules.ratio_percent * (RETRY_BUDGET_TOKEN / 100));
}

bool retry_budget_take(struct retry_budget *budget, int64_t now_ns)
{
    pass_time(budget, now_ns);
    if (budget->state == RETRY_BUDGET_SPENT) return false;
    budget->parts -= RETRY_BUDGET_TOKEN;
    if (budget->parts < RETRY_BUDGET_TOKEN) retry_budget_set_state(budget, RETRY_BUDGET_SPENT);
    return true;
}

void retry_budget_give_back(struct retry_budget *budget)
{
    put(budget, RETRY_BUDGET_TOKEN);
}

uint32_t retry_budget_tokens(struct retry_budget *budget, int64_t now_ns)
{
    pass_time(budget, now_ns);
    return (uint32_t)(budget->parts / RETRY_BUDGET_TOKEN);
}
