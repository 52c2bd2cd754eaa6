/* test_program - a program of tests as a user writes it, in strict C17, for what `meson install` is
 * checked with: one test that passes, and hidden ones that fail in their ways. */
#include <unistd.h>
#include <weir/test.h>
#include <weir/weir.h>

static int add(void *arg)
{
    int *total = arg;
    int r = weir_sleep(1);
    if (r < 0) return r;
    *total += 21;
    return 0;
}

WEIR_TEST(passes)
{
    int total = 21;

    weir_test_note("adding to %d", total);
    WEIR_CHECK_OK(weir_run(NULL, add, &total));
    WEIR_CHECK(total == 42);
    WEIR_CHECK_INT(total, ==, 42);
    WEIR_CHECK_STR(weir_error_name(WEIR_ETIMEDOUT), "WEIR_ETIMEDOUT");
    WEIR_CHECK_CONTAINS("forty-two", "two");
}

WEIR_TEST_WITH(fails, .hidden = true)
{
    int total = 20;

    WEIR_CHECK_OK(weir_run(NULL, add, &total));
    WEIR_CHECK_INT(total, ==, 42);
}

WEIR_TEST_WITH(skips, .hidden = true)
{
    WEIR_TEST_SKIP("not today");
}

static int hang(void *arg)
{
    (void)arg;
    return weir_sleep(3600000);
}

WEIR_TEST_WITH(hangs, .hidden = true, .timeout_ms = 200)
{
    WEIR_CHECK_OK(weir_run(NULL, hang, NULL));
}

static int leak(void *arg)
{
    (void)arg;
    return dup(STDIN_FILENO) < 0;
}

WEIR_TEST_WITH(leaks, .hidden = true)
{
    WEIR_CHECK_OK(weir_run(NULL, leak, NULL));
}
