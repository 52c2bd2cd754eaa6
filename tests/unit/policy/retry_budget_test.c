/* retry_budget_test.c - tokens on injected time, and against a naive model in exact fractions. */
#include "policy/retry_budget.h"

#include "unit/policy/chance.h"

enum { SECOND = 1000000000 };

static int take_all(struct retry_budget *budget, int64_t now_ns)
{
    int count = 0;
    while (retry_budget_take(budget, now_ns)) count++;
    return count;
}

TEST(retry_budget_gives_the_burst_then_the_ratio_and_the_rate)
{
    struct retry_budget budget;

    retry_budget_init(
        &budget, &(struct retry_budget_rules){.ratio_percent = 20, .per_second = 3, .burst = 10},
        0);
    CHECK_INT(take_all(&budget, 0), ==, 10);
    CHECK_INT(budget.state, ==, RETRY_BUDGET_SPENT);
    for (int i = 0; i < 14; i++) retry_budget_call(&budget, 0);
    CHECK_INT(budget.state, ==, RETRY_BUDGET_SOME);
    CHECK_INT(take_all(&budget, 0), ==, 2); /* 14 calls bring 2.8 tokens */
    retry_budget_call(&budget, 0);
    CHECK_INT(take_all(&budget, 0), ==, 1); /* and 0.8 + 0.2 is one */
    CHECK_INT(take_all(&budget, SECOND - 1), ==, 2);
    CHECK_INT(take_all(&budget, SECOND), ==, 1);
    CHECK_INT(take_all(&budget, (int64_t)1000 * SECOND), ==,
              10);                                              /* no more than the burst is kept */
    CHECK_INT(retry_budget_tokens(&budget, INT64_MAX), ==, 10); /* and nothing overflows */
}

TEST(retry_budget_counts_no_time_twice)
{
    struct retry_budget budget;

    retry_budget_init(&budget, &(struct retry_budget_rules){.per_second = 10, .burst = 5},
                      (int64_t)100 * SECOND);
    CHECK_INT(take_all(&budget, (int64_t)100 * SECOND), ==, 5);
    CHECK_INT(take_all(&budget, (int64_t)100 * SECOND + SECOND / 10), ==, 1);
    CHECK_INT(take_all(&budget, (int64_t)100 * SECOND), ==, 0); /* another worker's clock, behind */
    CHECK_INT(take_all(&budget, (int64_t)100 * SECOND + SECOND / 10), ==, 0);
    CHECK_INT(take_all(&budget, (int64_t)100 * SECOND + SECOND / 5), ==, 1);
}

/* Fractions of a token in units of 1 / (100 * SECOND), nanosecond by event. */
TEST(retry_budget_does_what_a_naive_model_does)
{
    uint64_t chance = chance_seed();

    for (int round = 0; round < 100; round++) {
        struct retry_budget_rules rules = {.ratio_percent = (uint32_t)chance_below(&chance, 1001),
                                           .per_second = (uint32_t)chance_below(&chance, 1000),
                                           .burst = (uint32_t)chance_below(&chance, 50) + 1};
        __int128 token = (__int128)100 * SECOND, have = token * rules.burst;
        int64_t now_ns = (int64_t)chance_below(&chance, 1000000), before_ns = now_ns,
                began = now_ns;
        uint64_t calls = 0, taken = 0;
        struct retry_budget budget;

        retry_budget_init(&budget, &rules, now_ns);
        for (int i = 0; i < 1000; i++) {
            bool is_call = chance_below(&chance, 3) > 0, gave;
            now_ns += (int64_t)chance_below(&chance, chance_below(&chance, 20) ? 1000000 : SECOND);
            have += (__int128)(now_ns - before_ns) * rules.per_second * 100;
            before_ns = now_ns;
            if (have > token * rules.burst) have = token * rules.burst;
            if (is_call) {
                retry_budget_call(&budget, now_ns);
                have += (__int128)rules.ratio_percent * SECOND;
                if (have > token * rules.burst) have = token * rules.burst;
                calls++;
                continue;
            }
            gave = retry_budget_take(&budget, now_ns);
            CHECK_INT(gave, ==, have >= token);
            if (gave) have -= token;
            if (gave && chance_below(&chance, 4) == 0) {
                retry_budget_give_back(&budget); /* it is not used after all */
                have += token;
                gave = false;
            }
            taken += gave;
            CHECK_INT(retry_budget_tokens(&budget, now_ns), ==, (int64_t)(have / token));
            /* What the header promises, over the whole time. */
            CHECK((__int128)taken * token <=
                  token * rules.burst + (__int128)(now_ns - began) * rules.per_second * 100 +
                      (__int128)calls * rules.ratio_percent * SECOND);
        }
    }
}
