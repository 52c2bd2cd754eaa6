/* review_outbox_test.c - a relay whose store is closed before it. */
#include "unit/store/outbox_test.h"

OUTBOX_TEST(a_relay_ends_when_its_store_was_closed_before)
{
    weir_outbox *outbox = NULL;
    int closed;

    WEIR_SCOPE(inner, &closed, .name = "inner", .on_failure = WEIR_COLLECT, .max_tasks = 8,
               .overflow = WEIR_REJECT) {
        bench->scope = inner;
        outbox = bench_open(bench);
        CHECK_OK(weir_outbox_drain(outbox));
        CHECK_OK(weir_store_close(bench->store));
        bench->store = NULL;
        table_add(&bench->table, 1, "mail", FINE);
        CHECK_INT(weir_outbox_drain(outbox), ==, WEIR_ECLOSED);
        CHECK_INT(weir_outbox_close(outbox), ==, WEIR_ECLOSED);
    }
    CHECK_INT(closed, ==, WEIR_ECLOSED);
    CHECK_INT(bench->table.count, ==, 1);
    return 0;
}

OUTBOX_TEST(a_window_that_the_store_would_refuse_is_refused)
{
    weir_outbox *outbox;

    bench->spec.window_ms = INT64_MAX;
    CHECK_INT(weir_outbox_open(bench->scope, &bench->spec, &outbox), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "window_ms");
    return 0;
}
