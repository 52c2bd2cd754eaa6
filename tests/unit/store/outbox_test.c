/* outbox_test.c - relays: one job for each row, whatever fails between two steps. */
#include <errno.h>
#include <string.h>

#include "unit/store/outbox_test.h"
#include "unit/store/store_test.h"

/* ---- Relaying ---- */

OUTBOX_TEST(outbox_makes_one_job_of_each_row_and_marks_it)
{
    weir_outbox *outbox;

    table_add(&bench->table, 100, "mail", FINE);
    outbox = bench_open(bench);
    CHECK_OK(weir_outbox_drain(outbox));
    CHECK_INT(bench->table.count, ==, 0);
    CHECK_INT(jobs_in(bench), ==, 100);
    CHECK_INT(bench->table.dones, ==, 7); /* in batches of 16 */
    table_add(&bench->table, 3, "mail", FINE);
    CHECK_OK(weir_outbox_drain(outbox));
    CHECK_INT(bench->table.count, ==, 0);
    CHECK_INT(figures_of(outbox).relayed, ==, 103);
    CHECK_INT(figures_of(outbox).duplicates, ==, 0);
    CHECK_INT(figures_of(outbox).failures, ==, 0);
    CHECK_OK(weir_outbox_close(outbox));
    CHECK_INT(jobs_in(bench), ==, 103);
    CHECK(bench->table.on_worker);
    return 0;
}

OUTBOX_TEST(outbox_row_that_was_not_marked_becomes_no_second_job)
{
    weir_outbox *outbox;

    table_add(&bench->table, 5, "mail", FINE);
    bench->table.done_failures = 2;
    outbox = bench_open(bench);
    CHECK_OK(weir_outbox_drain(outbox));
    CHECK_INT(bench->table.dones, ==, 3);
    CHECK_INT(jobs_in(bench), ==, 5);
    CHECK_INT(figures_of(outbox).relayed, ==, 5);
    CHECK_INT(figures_of(outbox).duplicates, ==, 10);
    CHECK_INT(figures_of(outbox).failures, ==, 2);
    CHECK_INT(figures_of(outbox).last_error, ==, -EIO);
    return weir_outbox_close(outbox);
}

OUTBOX_TEST(outbox_that_is_opened_again_knows_the_rows_of_the_one_before)
{
    weir_outbox *outbox;
    weir_event *peeked;

    CHECK_OK(weir_event_open(bench->scope, "peeked", &peeked));
    table_add(&bench->table, 20, "mail", FINE);
    bench->table.done_failures = 1000;
    bench->table.peeked = peeked;
    outbox = bench_open(bench);
    CHECK_OK(weir_event_wait(peeked));
    CHECK_OK(weir_outbox_close(outbox)); /* the look is not cut short */
    CHECK_INT(bench->table.count, ==, 20);
    CHECK_INT(jobs_in(bench), >=, 16);
    bench->table.done_failures = 0;
    outbox = bench_open(bench);
    CHECK_OK(weir_outbox_drain(outbox));
    CHECK_INT(figures_of(outbox).duplicates + figures_of(outbox).relayed, ==, 20);
    CHECK_INT(figures_of(outbox).duplicates, >=, 16);
    CHECK_INT(jobs_in(bench), ==, 20);
    CHECK_OK(weir_outbox_close(outbox));
    /* Another outbox has rows of its own with the same keys. */
    bench->spec.name = "returns";
    bench->table.next = 0;
    table_add(&bench->table, 20, "mail", FINE);
    outbox = bench_open(bench);
    CHECK_OK(weir_outbox_drain(outbox));
    CHECK_INT(figures_of(outbox).relayed, ==, 20);
    return weir_outbox_close(outbox);
}

OUTBOX_TEST(outbox_that_marks_nothing_does_not_spin)
{
    weir_outbox *outbox;
    int r = 0;

    table_add(&bench->table, 4, "mail", FINE);
    bench->table.done_forgets_nothing = true;
    outbox = bench_open(bench);
    WEIR_DEADLINE(200) r = weir_outbox_drain(outbox);
    CHECK_INT(r, ==, WEIR_ETIMEDOUT);
    CHECK_OK(weir_outbox_close(outbox));
    CHECK_INT(bench->table.peeks, <=, 4);
    CHECK_INT(jobs_in(bench), <=, 4);
    return 0;
}

/* ---- Rows that are refused ---- */

OUTBOX_TEST(outbox_refused_rows_keep_no_others_and_are_given_up)
{
    static const struct {
        enum fault fault;
        int error;
        const char *why;
    } cases[] = {
        {NO_KEY, -EINVAL, "key is empty"},
        {OWN_KEY, -EINVAL, "idempotency_key is set"},
        {NO_QUEUE, WEIR_EREFUSED, "queue is not set"},
        {TOO_LARGE, -EMSGSIZE, "1025"},
    };
    weir_outbox *outbox;
    int refused = 0, relayed = 0;

    bench->table.gives_up = true;
    outbox = bench_open(bench);
    CHECK_OK(weir_outbox_drain(outbox)); /* it looks when it is drained, and at no other time */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        test_note("case %zu", i);
        table_add(&bench->table, 5, "mail", FINE);
        table_add(&bench->table, 1, "mail", cases[i].fault);
        table_add(&bench->table, 5, "other", FINE);
        CHECK_OK(weir_outbox_drain(outbox));
        CHECK_INT(bench->table.count, ==, 0);
        CHECK_INT(bench->table.refusals, ==, ++refused);
        CHECK_INT(bench->table.refused_error, ==, cases[i].error);
        CHECK_CONTAINS(bench->table.why, cases[i].why);
        CHECK(bench->table.why[0] != '\0');
        if (cases[i].fault != NO_KEY) CHECK_INT(bench->table.last_refused, ==, (int)i * 11 + 5);
        relayed += 10;
        CHECK_INT(figures_of(outbox).relayed, ==, relayed);
        CHECK_INT(figures_of(outbox).refused, ==, refused);
        CHECK_INT(jobs_in(bench), ==, relayed);
    }
    CHECK_INT(figures_of(outbox).failures, ==, 0);
    return weir_outbox_close(outbox);
}

OUTBOX_TEST(outbox_refused_row_that_is_kept_is_tried_at_each_look)
{
    weir_outbox *outbox;

    table_add(&bench->table, 1, "mail", NO_QUEUE);
    table_add(&bench->table, 30, "mail", FINE);
    outbox = bench_open(bench);
    CHECK_OK(weir_outbox_drain(outbox)); /* the row that is kept does not hold it up */
    CHECK_INT(bench->table.count, ==, 1);
    CHECK_INT(jobs_in(bench), ==, 30);
    CHECK_INT(bench->table.refusals, >=, 2);
    bench->table.rows[0].fault = FINE; /* it was mended */
    CHECK_OK(weir_outbox_drain(outbox));
    CHECK_INT(bench->table.count, ==, 0);
    CHECK_INT(jobs_in(bench), ==, 31);
    return weir_outbox_close(outbox);
}

/* ---- No room ---- */

OUTBOX_TEST(outbox_leaves_rows_of_a_full_queue_in_order_and_goes_on_with_others)
{
    weir_outbox *outbox;

    set_depth(bench->store, "small", 5); /* less than a batch: all or none would never get in */
    for (int i = 0; i < 8; i++) {
        table_add(&bench->table, 1, "small", FINE);
        table_add(&bench->table, 1, "mail", FINE);
    }
    outbox = bench_open(bench);
    while (figures_of(outbox).full < 2) CHECK_OK(weir_yield()); /* nothing more at the second */
    CHECK_INT(figures_of(outbox).relayed, ==, 13);
    CHECK_INT(figures_of(outbox).full, >=, 2);
    CHECK_INT(figures_of(outbox).failures, ==, 0);
    CHECK_INT(figures_of(outbox).last_error, ==, WEIR_EOVERLOAD);
    CHECK_INT(jobs_in(bench), ==, 13);
    set_depth(bench->store, "small", 50);
    CHECK_OK(weir_outbox_drain(outbox)); /* by itself, after its pause */
    CHECK_INT(jobs_in(bench), ==, 16);
    CHECK_INT(figures_of(outbox).duplicates, ==, 0);
    return weir_outbox_close(outbox);
}

OUTBOX_TEST(outbox_rows_of_a_queue_do_not_pass_each_other)
{
    weir_outbox *outbox;

    set_depth(bench->store, "small", 1);
    table_add(&bench->table, 2, "small", FINE);
    table_add(&bench->table, 1, "small", TOO_LARGE); /* behind the second one: not even tried */
    table_add(&bench->table, 1, "mail", TOO_LARGE);  /* makes room for the others, */
    table_add(&bench->table, 1, "small", FINE);      /* ... of which the last must not be first */
    bench->table.makes_room = bench->store;
    bench->table.gives_up = true;
    outbox = bench_open(bench);
    CHECK_OK(weir_outbox_drain(outbox));
    CHECK_INT(bench->table.peek_counts[0], ==, 5);
    CHECK_INT(bench->table.peek_counts[1], ==, 3);
    CHECK_INT(bench->table.peek_counts[2], ==, 0);
    CHECK_INT(bench->table.refusals, ==, 2);
    CHECK_INT(jobs_in(bench), ==, 3);
    return weir_outbox_close(outbox);
}

/* ---- Failures ---- */

/* A write or a sync that fails stops the store for good. */
static int relay_into_a_store_that_stops(struct bench *bench)
{
    weir_outbox *outbox;
    weir_failure failure;
    int result = 0, drained = 0;

    table_add(&bench->table, 3, "mail", FINE);
    WEIR_SCOPE(scope, &result, .name = "inner", .on_failure = WEIR_COLLECT, .max_tasks = 8,
               .overflow = WEIR_REJECT) {
        stand_await_spares(bench->store);
        test_fault("fsync", -EIO, 1000);
        CHECK_OK(weir_outbox_open(scope, &bench->spec, &outbox));
        drained = weir_outbox_drain(outbox);
        CHECK_INT(figures_of(outbox).failures, ==, 1);
        CHECK(figures_of(outbox).ended);
        /* Its task ends after it has told those who wait. */
        while (weir_scope_failures(scope, &failure, 1) == 0) CHECK_OK(weir_yield());
        CHECK_INT(failure.error, ==, -EIO);
        CHECK_STR(failure.task, "orders");
        CHECK_INT(weir_outbox_drain(outbox), ==, -EIO);
        CHECK_INT(weir_outbox_close(outbox), ==, -EIO);
    }
    CHECK_INT(drained, ==, -EIO);
    CHECK_INT(result, ==, -EIO);
    CHECK_INT(bench->table.count, ==, 3); /* none of them was marked */
    CHECK_INT(bench->table.dones, ==, 0);
    return 0;
}

TEST(outbox_fails_with_a_store_that_has_stopped_and_marks_nothing)
{
    static struct bench bench = {.body = relay_into_a_store_that_stops};
    (void)test_calls("fsync"); /* the runtime is to go through the harness */
    CHECK_INT(bench_run_once(&bench), ==, -EIO);
}

OUTBOX_TEST(outbox_waits_longer_after_each_failure_whoever_rings)
{
    static const int64_t pauses_ms[] = {50, 100, 100, 100};
    weir_outbox *outbox;

    table_add(&bench->table, 1, "mail", FINE);
    bench->table.peek_failures = 4;
    outbox = bench_open(bench);
    while (figures_of(outbox).failures == 0) CHECK_OK(weir_yield());
    for (int i = 0; i < 10; i++) weir_outbox_ring(outbox);
    CHECK_OK(weir_outbox_drain(outbox));
    CHECK_INT(figures_of(outbox).failures, ==, 4);
    CHECK_INT(jobs_in(bench), ==, 1);
    for (int i = 0; i < 4; i++) {
        int64_t ns = bench->table.peek_ns[i + 1] - bench->table.peek_ns[i];
        CHECK_INT(ns, >=, pauses_ms[i] * 1000000);
    }
    return weir_outbox_close(outbox);
}

OUTBOX_TEST(outbox_takes_no_more_rows_than_it_has_asked_for)
{
    weir_outbox *outbox;

    bench->table.says_too_many = 17;
    outbox = bench_open(bench);
    while (figures_of(outbox).failures == 0) CHECK_OK(weir_yield());
    CHECK_INT(figures_of(outbox).last_error, ==, WEIR_EREFUSED);
    CHECK_INT(jobs_in(bench), ==, 0);
    return weir_outbox_close(outbox);
}

/* ---- Ringing ---- */

OUTBOX_TEST(outbox_looks_when_it_is_rung_also_during_a_look)
{
    weir_event *gate, *peeked;
    weir_outbox *outbox;

    CHECK_OK(weir_event_open(bench->scope, "gate", &gate));
    CHECK_OK(weir_event_open(bench->scope, "peeked", &peeked));
    bench->table.gate = gate;
    bench->table.peeked = peeked;
    outbox = bench_open(bench);
    CHECK_OK(weir_event_wait(peeked));
    weir_event_reset(peeked);
    weir_outbox_ring(outbox); /* during its first look */
    weir_event_set(gate);
    CHECK_OK(weir_event_wait(peeked));
    weir_event_reset(peeked);
    weir_outbox_ring(outbox);
    CHECK_OK(weir_event_wait(peeked));
    return weir_outbox_close(outbox);
}
