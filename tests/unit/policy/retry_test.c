/* retry_test.c - whether and when something is tried again: tables, and the spread of the waits. */
#include "policy/retry.h"

#include <errno.h>
#include <weir/error.h>

#include "unit/policy/chance.h"

static const struct retry_rules rules = {.attempts_max = 4,
                                         .error_count = 3,
                                         .backoff_ns = 100,
                                         .backoff_ns_max = 350,
                                         .errors = {-ECONNRESET, WEIR_ETIMEDOUT, WEIR_ECANCELED}};

struct row {
    int result;
    uint32_t attempt; /* that ends with it */
    bool again;
    enum retry_end end;
};

TEST(retry_is_for_named_errors_and_so_many_attempts)
{
    static const struct row rows[] = {
        {0, 1, false, RETRY_WENT_WELL},
        {7, 4, false, RETRY_WENT_WELL},
        {-ECONNRESET, 1, true, RETRY_NOT_ENDED},
        {WEIR_ETIMEDOUT, 3, true, RETRY_NOT_ENDED},
        {-ECONNRESET, 4, false, RETRY_ATTEMPTS},
        {-ECONNREFUSED, 1, false, RETRY_FATAL},
        {-ETIMEDOUT, 1, false, RETRY_FATAL},           /* the kernel's is another one */
        {WEIR_ECANCELED, 1, false, RETRY_INTERRUPTED}, /* never, whatever is named */
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct retry retry;
        test_note("row %zu", i);
        retry_init(&retry, &rules);
        for (uint32_t k = 1; k < rows[i].attempt; k++) {
            retry_begin(&retry);
            CHECK(retry_heard(&retry, -ECONNRESET));
            CHECK_INT(retry_wait(&retry, k, 0, INT64_MAX), ==, k);
        }
        retry_begin(&retry);
        CHECK_INT(retry_heard(&retry, rows[i].result), ==, rows[i].again);
        CHECK_INT(retry.end, ==, rows[i].end);
        CHECK_INT(retry.state, ==, rows[i].again ? RETRY_WAITING : RETRY_DONE);
        CHECK_INT(retry.attempts, ==, rows[i].attempt);
    }
}

TEST(retry_waits_double_up_to_the_cap)
{
    struct retry_rules far = {
        .attempts_max = 16, .backoff_ns = INT64_MAX / 4, .backoff_ns_max = INT64_MAX / 2};

    CHECK_INT(retry_backoff_ns(&rules, 1), ==, 100);
    CHECK_INT(retry_backoff_ns(&rules, 2), ==, 200);
    CHECK_INT(retry_backoff_ns(&rules, 3), ==, 350);
    CHECK_INT(retry_backoff_ns(&rules, 15), ==, 350);
    CHECK_INT(retry_backoff_total_ns(&rules), ==, 650);
    CHECK_INT(retry_backoff_ns(&far, 15), ==, INT64_MAX / 2);
    CHECK_INT(retry_backoff_total_ns(&far), ==, INT64_MAX);
}

TEST(retry_wait_that_ends_after_the_deadline_is_not_begun)
{
    struct retry retry;

    retry_init(&retry, &rules);
    retry_begin(&retry);
    CHECK(retry_heard(&retry, -ECONNRESET));
    CHECK_INT(retry_wait(&retry, 60, 1000, 1061), ==, 60);
    CHECK_INT(retry_wait(&retry, 60, 1000, 1060), ==, -1);
    CHECK_INT(retry.end, ==, RETRY_NO_TIME);
    CHECK_INT(retry.state, ==, RETRY_DONE);
}

static void begin_too_often(void *arg)
{
    struct retry_rules once = {.attempts_max = 1};
    struct retry retry;

    (void)arg;
    retry_init(&retry, &once);
    retry_begin(&retry);
    (void)retry_heard(&retry, -EIO);
    retry_begin(&retry);
}

TEST(retry_that_is_done_cannot_begin_again)
{
    CHECK_ABORTS(begin_too_often, NULL, "retry_begin");
}

/* Full jitter: each tenth of the range gets its tenth, from 0 to the bound and never beyond. */
TEST(retry_waits_are_spread_over_the_whole_range)
{
    enum { WAITS = 20000, TENTHS = 10 };
    uint64_t chance = chance_seed();
    struct retry_rules wide = rules;
    int tenths[TENTHS] = {0};
    bool first = false, last = false;

    wide.backoff_ns = wide.backoff_ns_max = 999;
    for (int i = 0; i < WAITS; i++) {
        struct retry retry;
        int64_t wait;
        retry_init(&retry, &wide);
        retry_begin(&retry);
        CHECK(retry_heard(&retry, -ECONNRESET));
        wait = retry_wait(&retry, chance_next(&chance), 0, INT64_MAX);
        CHECK(wait >= 0 && wait <= 999);
        tenths[wait / 100]++;
        first |= wait == 0;
        last |= wait == 999;
    }
    CHECK(first && last);
    for (int i = 0; i < TENTHS; i++) {
        test_note("tenth %d has %d", i, tenths[i]);
        CHECK(tenths[i] > WAITS / TENTHS * 8 / 10 && tenths[i] < WAITS / TENTHS * 12 / 10);
    }
}
