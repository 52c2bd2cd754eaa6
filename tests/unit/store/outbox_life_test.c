/* outbox_life_test.c - relays: how they end, pools, what is refused and shown, and everything going
 * wrong in turn. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "unit/store/log_test.h"
#include "unit/store/outbox_test.h"

/* ---- Ends ---- */

OUTBOX_TEST(outbox_close_leaves_rows_and_is_refused_to_its_own_task)
{
    weir_event *gate, *peeked;
    weir_outbox *outbox;

    CHECK_OK(weir_event_open(bench->scope, "gate", &gate));
    CHECK_OK(weir_event_open(bench->scope, "peeked", &peeked));
    CHECK_OK(weir_outbox_close(NULL));
    bench->table.gate = gate;
    bench->table.peeked = peeked;
    bench->table.peek_failures = 1;
    table_add(&bench->table, 40, "mail", FINE);
    outbox = bench_open(bench);
    CHECK_OK(weir_event_wait(peeked));
    bench->table.closes_itself = outbox;
    weir_event_set(gate);
    while (figures_of(outbox).failures == 0) CHECK_OK(weir_yield());
    bench->table.closes_itself = NULL;
    CHECK_OK(weir_outbox_close(outbox)); /* in its pause */
    CHECK_INT(bench->table.count, ==, 40);
    CHECK_INT(jobs_in(bench), ==, 0);
    return 0;
}

struct ending {
    struct bench *bench;
    weir_outbox *outbox;
    int drained;
};

/* Its close waits for the look that is held up: others call meanwhile. */
static int call_a_closing_outbox(void *arg)
{
    const struct ending *ending = *(struct ending **)arg;
    weir_outbox *outbox = ending->outbox;
    struct outbox *inside = handle_object(outbox, HANDLE_OUTBOX);
    bool is_closing = false;

    while (!is_closing) {
        CHECK_OK(weir_yield());
        outbox_lock(inside);
        is_closing = inside->given_up;
        outbox_unlock(inside);
    }
    CHECK_INT(weir_outbox_drain(outbox), ==, WEIR_ECLOSED);
    weir_outbox_ring(outbox);
    CHECK(!figures_of(outbox).ended);
    CHECK_INT(weir_outbox_close(outbox), ==, WEIR_ECLOSED);
    weir_event_set(ending->bench->table.gate);
    return 0;
}

OUTBOX_TEST(who_calls_while_an_outbox_is_being_closed_is_told_so)
{
    struct ending ending = {.bench = bench}, *at = &ending;

    CHECK_OK(weir_event_open(bench->scope, "gate", &bench->table.gate));
    CHECK_OK(weir_event_open(bench->scope, "peeked", &bench->table.peeked));
    ending.outbox = bench_open(bench);
    CHECK_OK(weir_event_wait(bench->table.peeked));
    CHECK_OK(weir_spawn(bench->scope, call_a_closing_outbox, &at, sizeof at));
    CHECK_OK(weir_outbox_close(ending.outbox));
    return 0;
}

static int drain_until_it_ends(void *arg)
{
    struct ending *ending = *(struct ending **)arg;
    ending->drained = weir_outbox_drain(ending->outbox);
    return 0;
}

static bool somebody_drains(weir_outbox *handle)
{
    struct outbox *outbox = handle_object(handle, HANDLE_OUTBOX);
    bool is_empty;

    outbox_lock(outbox);
    is_empty = list_empty(&outbox->drainers);
    outbox_unlock(outbox);
    return !is_empty;
}

enum end { END_CLOSES, END_CANCELS, END_STOPS };

/* A relay in a scope of its own that ends, while rows keep it busy or it pauses. */
static void check_end(struct bench *bench, enum end end, int failures)
{
    struct ending ending = {.bench = bench}, *at = &ending;
    int result = 0;

    bench->table.peek_failures = failures;
    WEIR_SCOPE(scope, &result, .name = "inner", .on_failure = WEIR_FAIL_FAST, .max_tasks = 8,
               .overflow = WEIR_REJECT) {
        CHECK_OK(weir_outbox_open(scope, &bench->spec, &ending.outbox));
        if (failures > 0) {
            CHECK_OK(weir_spawn(bench->scope, drain_until_it_ends, &at, sizeof at));
            while (figures_of(ending.outbox).failures == 0 || !somebody_drains(ending.outbox))
                CHECK_OK(weir_yield());
        } else {
            CHECK_OK(weir_outbox_drain(ending.outbox));
        }
        if (end == END_CANCELS) weir_scope_cancel(scope, 0, "the test says so");
        if (end == END_STOPS) weir_scope_stop(scope, HOUR_MS);
        /* A stop ends the task; the relay stays, as one that has ended. */
        if (end == END_STOPS) {
            while (!figures_of(ending.outbox).ended) CHECK_OK(weir_yield());
            CHECK_INT(weir_outbox_drain(ending.outbox), ==, WEIR_ECLOSED);
            CHECK_OK(weir_outbox_close(ending.outbox));
        }
    }
    CHECK_INT(result, ==, 0);
    CHECK_OK(weir_scope_join(bench->scope));
    /* The end of a cancelled scope dismisses it, too: whichever it sees first. */
    if (failures > 0 && !(end == END_CANCELS && ending.drained == WEIR_ECANCELED))
        CHECK_INT(ending.drained, ==, WEIR_ECLOSED);
}

OUTBOX_TEST(outbox_ends_with_its_scope_however_that_ends)
{
    for (enum end end = END_CLOSES; end <= END_STOPS; end++) {
        check_end(bench, end, 0);
        check_end(bench, end, 1000);
    }
    return 0;
}

/* ---- On a pool ---- */

OUTBOX_TEST(outbox_with_a_pool_calls_nothing_on_a_worker)
{
    weir_outbox *outbox;
    weir_pool *pool;

    CHECK_OK(weir_pool_open(
        bench->scope,
        &(weir_pool_spec){.name = "database",
                          .threads_max = 1,
                          .overflow = WEIR_WAIT,
                          .on_close = WEIR_DRAIN,
                          .classes = &(weir_pool_class){.name = "any", .weight = 1, .queue_max = 4},
                          .class_count = 1},
        &pool));
    bench->spec.pool = pool;
    bench->spec.batch_max = WEIR_OUTBOX_BATCH_MAX;
    bench->spec.pool_class = 1;
    CHECK_INT(weir_outbox_open(bench->scope, &bench->spec, &outbox), ==, WEIR_EREFUSED);
    bench->spec.pool_class = 0;
    bench->table.gives_up = true;
    bench->table.done_failures = 1;
    table_add(&bench->table, 300, "mail", FINE);
    table_add(&bench->table, 1, "mail", NO_QUEUE);
    outbox = bench_open(bench);
    CHECK_OK(weir_outbox_drain(outbox));
    CHECK_INT(jobs_in(bench), ==, 300);
    CHECK_INT(bench->table.refusals, ==, 1);
    CHECK_INT(bench->table.count, ==, 0);
    CHECK(!bench->table.on_worker);
    return weir_outbox_close(outbox);
}

/* ---- What is refused, shown and measured ---- */

OUTBOX_TEST(outbox_spec_that_leaves_something_out_is_refused_with_a_sentence)
{
#define WITHOUT(member_, value_, sentence_)                                                  \
    {                                                                                        \
        offsetof(weir_outbox_spec, member_), sizeof((weir_outbox_spec *)0)->member_, value_, \
            sentence_                                                                        \
    }
    static const struct {
        size_t at, bytes;
        uint64_t value;
        const char *why;
    } cases[] = {
        WITHOUT(name, 0, "outbox: name is not set"),
        WITHOUT(name, (uintptr_t) "a/b", "name has a '/'"),
        WITHOUT(name, (uintptr_t) "12345678901234567890123456789012", "more than 31 bytes"),
        WITHOUT(store, 0, "outbox 'orders': store is not set"),
        WITHOUT(peek, 0, "outbox 'orders': peek is not set"),
        WITHOUT(done, 0, "outbox 'orders': done is not set"),
        WITHOUT(on_refused, 0, "outbox 'orders': on_refused is not set"),
        WITHOUT(pool_class, 1, "pool_class without a pool"),
        WITHOUT(batch_max, 0, "batch_max is 0, must be 1 to 128"),
        WITHOUT(batch_max, WEIR_OUTBOX_BATCH_MAX + 1, "batch_max is 129"),
        WITHOUT(poll_ms, 0, "poll_ms is not set"),
        WITHOUT(retry_ms_max, 49, "retry_ms_max is 49, at least 50"),
        WITHOUT(window_ms, HOUR_MS - 1, "window_ms is 3599999, at least 3600000"),
    };
#undef WITHOUT
    weir_outbox *outbox = NULL;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weir_outbox_spec spec = bench->spec;
        memcpy((char *)&spec + cases[i].at, &cases[i].value, cases[i].bytes);
        test_note("case %zu: %s", i, cases[i].why);
        CHECK_INT(weir_outbox_open(bench->scope, &spec, &outbox), ==, WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), cases[i].why);
        CHECK(!outbox);
    }
    return 0;
}

static int find_text(const char *text, size_t bytes, void *keep_arg)
{
    (void)bytes;
    CHECK_CONTAINS(text, keep_arg);
    return 0;
}

static void check_map(const char *part)
{
    static char text[64 * 1024];
    FILE *file = tmpfile();
    size_t bytes;

    CHECK(file != NULL);
    CHECK_OK(weir_map(fileno(file), WEIR_MAP_TEXT));
    rewind(file);
    bytes = fread(text, 1, sizeof text - 1, file);
    text[bytes] = '\0';
    (void)fclose(file);
    CHECK_CONTAINS(text, part);
}

OUTBOX_TEST(outbox_is_on_the_map_and_measured)
{
    weir_outbox *outbox;

    table_add(&bench->table, 7, "mail", FINE);
    bench->table.done_failures = 1;
    outbox = bench_open(bench);
    CHECK_OK(weir_outbox_drain(outbox));
    check_map("outbox 'orders' of ");
    check_map("16 rows at a time");
    check_map("tried again within 100 ms; refused rows go to on_refused");
    check_map("rows stay in the outbox");
    CHECK_OK(
        weir_metrics_read(WEIR_METRICS_PROMETHEUS, find_text,
                          (void *)(uintptr_t) "weir_outbox_relayed_total{outbox=\"orders\"} 7\n"));
    CHECK_OK(weir_metrics_read(
        WEIR_METRICS_PROMETHEUS, find_text,
        (void *)(uintptr_t) "weir_outbox_duplicates_total{outbox=\"orders\"} 7\n"));
    CHECK_OK(weir_outbox_close(outbox));
    /* What it has counted stays. */
    CHECK_OK(
        weir_metrics_read(WEIR_METRICS_PROMETHEUS, find_text,
                          (void *)(uintptr_t) "weir_outbox_failures_total{outbox=\"orders\"} 1\n"));
    return 0;
}

/* ---- Everything goes wrong in turn ---- */

static int relay_some(struct bench *bench)
{
    weir_outbox *outbox;
    int r, closed;

    r = weir_outbox_open(bench->scope, &bench->spec, &outbox);
    if (r < 0) return r;
    r = weir_outbox_drain(outbox);
    closed = weir_outbox_close(outbox);
    return r < 0 ? r : closed;
}

/* Whatever has happened: what was marked is a job on disk, and nothing is one twice. */
static int count_jobs(struct bench *bench)
{
    weir_store_figures figures;

    weir_store_figures_of(bench->store, &figures);
    if (figures.error < 0) return figures.error; /* a store whose scope is cancelled has none */
    CHECK_INT(figures.jobs, >=, 20 - bench->table.count);
    CHECK_INT(figures.jobs, <=, 20);
    return 0;
}

/* If something goes wrong, rows stay for the next relay. */
static int relay_and_count(void *arg)
{
    struct bench *bench = arg;
    int r, counted;

    bench_make(bench);
    table_add(&bench->table, 20, "mail", FINE);
    bench->body = relay_some;
    r = bench_run(bench);
    if (r >= 0) CHECK_INT(bench->table.count, ==, 0);
    bench->body = count_jobs;
    counted = bench_run(bench);
    folder_remove_all(bench->path);
    return r < 0 ? r : counted;
}

/* Without opening the store again, in which most allocations are. */
static int relay_alone(void *arg)
{
    struct bench *bench = arg;
    int r;

    bench_make(bench);
    table_add(&bench->table, 20, "mail", FINE);
    bench->body = relay_some;
    r = bench_run(bench);
    if (r >= 0) CHECK_INT(bench->table.count, ==, 0);
    folder_remove_all(bench->path);
    return r;
}

TEST_WITH(outbox_survives_every_failed_allocation, .timeout_ms = 120000)
{
    static struct bench bench;
    CHECK_INT(test_sweep_alloc(relay_alone, &bench), >, 5);
}

TEST_WITH(outbox_survives_a_cancel_at_every_point, .timeout_ms = 120000)
{
    static struct bench bench;
    CHECK_INT(test_sweep_cancel(relay_and_count, &bench), >, 5);
}
