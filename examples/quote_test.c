/* quote_test.c - the tests of docs/guide/testing.md, as a program that runs them.
 *
 *     quote_test [--help]
 *
 * What is tested is at the top, as if it were a file of its own. A test checks that the guide shows
 * this code.
 */
#include <errno.h>
#include <weir/test.h>
#include <weir/weir.h>

/* ---- What is tested: a price, from a source that may be slow ---- */

struct shop {
    int64_t source_takes_ms;
    int last_price; /* what the source said last */
    int price;      /* the answer */
};

static int ask_source(void *arg)
{
    struct shop *shop = *(struct shop **)arg;
    int r = weir_sleep(shop->source_takes_ms);

    if (r == 0) shop->last_price = 42;
    return r;
}

/* The source's price, or the last one if it does not answer within 200 ms. */
static int quote(void *arg)
{
    struct shop *shop = arg;
    int result;

    WEIR_SCOPE(scope, &result, .name = "quote", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
               .overflow = WEIR_REJECT, .deadline_ms = 200)
        result = weir_spawn(scope, ask_source, &shop, sizeof shop);
    if (result == WEIR_ETIMEDOUT) result = 0;
    if (result == 0) shop->price = shop->last_price;
    return result;
}

/* ---- The tests ---- */

static int run_quote(void *arg)
{
    return weir_run(&(weir_config){.workers = weir_test_workers()}, quote, arg);
}

WEIR_TEST(the_price_is_what_the_source_says)
{
    struct shop shop = {.last_price = 40};

    WEIR_CHECK_OK(run_quote(&shop));
    WEIR_CHECK_INT(shop.price, ==, 42);
}

WEIR_TEST_WITH(a_source_that_hangs_costs_200_ms, .workers = 1, .timeout_ms = 5000)
{
    struct shop shop = {.last_price = 40, .source_takes_ms = 3600000};
    int64_t began_ns;

    weir_test_clock_auto();
    began_ns = weir_test_clock_now_ns();
    WEIR_CHECK_OK(run_quote(&shop));
    WEIR_CHECK_INT(shop.price, ==, 40);
    WEIR_CHECK_INT((weir_test_clock_now_ns() - began_ns) / 1000000, ==, 200);
}

WEIR_TEST(without_memory_a_quote_fails_and_leaves_nothing)
{
    struct shop shop = {.last_price = 40};

    WEIR_CHECK_INT(weir_test_sweep_alloc(run_quote, &shop), >, 0);
}

WEIR_TEST(a_quote_survives_every_system_call_that_fails)
{
    struct shop shop = {.last_price = 40};

    WEIR_CHECK_INT(weir_test_sweep_calls(run_quote, &shop, -EMFILE), >, 0);
}

static int quote_and_check(void *arg)
{
    struct shop *shop = arg;
    int r;

    *shop = (struct shop){.last_price = 40};
    r = run_quote(shop);
    /* A cancel is no timeout: it may come too late, but it never gives the old price. */
    WEIR_CHECK_INT(shop->price, !=, 40);
    return r;
}

WEIR_TEST(a_cancelled_quote_is_not_the_old_price)
{
    struct shop shop;

    WEIR_CHECK_INT(weir_test_sweep_cancel(quote_and_check, &shop), >, 0);
}

static int last_prices_are_there(void *arg)
{
    const char *path = arg;
    struct stat status;
    int r = 0;

    WEIR_DEADLINE(1000) r = weir_path_stat(path, &status);
    return r;
}

WEIR_TEST(a_disk_that_fails_is_not_a_missing_file)
{
    char path[] = "/nonexistent/prices";

    WEIR_CHECK_INT(weir_run(NULL, last_prices_are_there, path), ==, -ENOENT);
    weir_test_fault("stat", -EIO, 1);
    WEIR_CHECK_INT(weir_run(NULL, last_prices_are_there, path), ==, -EIO);
}
