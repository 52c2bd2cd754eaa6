/* hedge_test.c - which of two attempts counts: all orders of events. */
#include "policy/hedge.h"

#include <errno.h>

#include "harness/test.h"

/* 'd': due; 'a' and 'A': the first fails, succeeds; 'b' and 'B': the second does. */
struct row {
    const char *events;
    int winner, result;
    int decided_by; /* index of the event after which it stands */
};

static const struct row rows[] = {
    {"A", 0, 1, 0},   {"a", 0, -EIO, 0}, {"dAb", 0, 1, 1}, {"dAB", 0, 1, 1},    {"dBa", 1, 2, 1},
    {"dBA", 1, 2, 1}, {"daB", 1, 2, 2},  {"dbA", 0, 1, 2}, {"dab", 0, -EIO, 2}, {"dba", 0, -EIO, 2},
};

static bool happen(struct hedge *hedge, char event)
{
    switch (event) {
    case 'd': CHECK(hedge_due(hedge)); return false;
    case 'A': return hedge_heard(hedge, 0, 1);
    case 'a': return hedge_heard(hedge, 0, -EIO);
    case 'B': return hedge_heard(hedge, 1, 2);
    default: return hedge_heard(hedge, 1, -EPIPE);
    }
}

TEST(hedge_first_success_wins_in_every_order)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct hedge hedge;
        test_note("row %zu: %s", i, rows[i].events);
        hedge_init(&hedge);
        for (int k = 0; rows[i].events[k]; k++) {
            CHECK_INT(happen(&hedge, rows[i].events[k]), ==, k == rows[i].decided_by);
            CHECK_INT(hedge.state == HEDGE_DONE, ==, k >= rows[i].decided_by);
        }
        CHECK_INT(hedge.winner, ==, rows[i].winner);
        CHECK_INT(hedge.result, ==, rows[i].result);
    }
}

TEST(hedge_is_made_once_and_not_when_it_is_over)
{
    struct hedge hedge;

    hedge_init(&hedge);
    CHECK(hedge_due(&hedge));
    CHECK(!hedge_due(&hedge));
    hedge_undo(&hedge);
    CHECK(hedge_heard(&hedge, 0, -EIO)); /* there was no second one */
    CHECK(!hedge_due(&hedge));
}
