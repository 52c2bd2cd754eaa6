/* store_clock_test.c - the store's time through whatever the wall clock does. */
#include "harness/test.h"
#include "store/store_clock.h"

#define MS INT64_C(1000000)

/* As the store reads it: the steady clock only if it has to. A worker looks at it now and then. */
static int64_t read_clock(struct store_clock *clock, int64_t wall_ns, int64_t steady_ns,
                          unsigned *steady_reads)
{
    int64_t ms;

    if (store_clock_by_wall(clock, wall_ns, steady_ns - steady_ns % (MS / 2), &ms)) return ms;
    (*steady_reads)++;
    return store_clock_ms(clock, wall_ns, steady_ns);
}

TEST(store_time_is_the_walls_and_rarely_reads_the_other_clock)
{
    struct store_clock clock;
    unsigned steady_reads = 0;

    store_clock_begin(&clock, 0, 5000 * MS, 100 * MS);
    for (int64_t i = 1; i <= 1000; i++) {
        int64_t at = i * MS / 100; /* ten milliseconds in all */
        CHECK_INT(read_clock(&clock, 5000 * MS + at, 100 * MS + at, &steady_reads), ==,
                  (5000 * MS + at) / MS);
        CHECK_INT(clock.ahead_ns, ==, 0);
    }
    CHECK_INT(steady_reads, ==, 10);
}

/* Set back while it is read all the time, or after an hour without a call: it goes on, a tenth
 * slower, until the wall is there again. */
TEST(store_time_goes_on_when_the_wall_is_set_back)
{
    const int64_t idle_ms[] = {0, 3600 * 1000};

    for (size_t k = 0; k < 2; k++) {
        struct store_clock clock;
        unsigned steady_reads = 0;
        int64_t idle_ns = idle_ms[k] * MS, began = 1000000 + idle_ms[k] - idle_ms[k] / 10;
        int64_t last = 0;

        store_clock_begin(&clock, 0, 1000000 * MS, 0);
        for (int64_t at = 0; at <= 2000; at++) { /* milliseconds since it was set back a second */
            int64_t ms = read_clock(&clock, (999000 + at) * MS + idle_ns - idle_ns / 2,
                                    at * MS + idle_ns, &steady_reads);
            CHECK_INT(ms, >=, last);
            CHECK_INT(ms, >=, began + at - at / 10 - 1);
            CHECK_INT(ms, <=, began + at + 1);
            if (at > 100) CHECK_INT(ms, >, began); /* it never stands for long */
            last = ms;
        }
    }
}

TEST(store_time_begins_where_the_store_was_closed)
{
    struct store_clock clock;
    unsigned steady_reads = 0;

    store_clock_begin(&clock, 7000, 5000 * MS, 50 * MS);
    CHECK_INT(clock.ahead_ns, ==, 2000 * MS);
    CHECK_INT(read_clock(&clock, 5010 * MS, 60 * MS, &steady_reads), ==, 7009);
    CHECK_INT(read_clock(&clock, 9000 * MS, 70 * MS, &steady_reads), ==, 9000);
    CHECK_INT(clock.ahead_ns, ==, 0);
    CHECK_INT(steady_reads, ==, 2);
}

/* Set back by as much as has passed since the last call: the wall seems to stand. */
TEST(store_time_goes_on_when_the_wall_seems_to_stand)
{
    struct store_clock clock;
    unsigned steady_reads = 0;

    store_clock_begin(&clock, 0, 5000 * MS, 100 * MS);
    CHECK_INT(read_clock(&clock, 5000 * MS + 1, 100 * MS + 1, &steady_reads), ==, 5000);
    CHECK_INT(steady_reads, ==, 0);
    CHECK_INT(read_clock(&clock, 5000 * MS + 2, 1100 * MS, &steady_reads), ==, 5900);
    CHECK_INT(steady_reads, ==, 1);
}
