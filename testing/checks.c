/* checks.c - how a check fails. */
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <weir/error.h>

#include "testing/harness.h"

/* Tasks have small stacks: the text is put together here, by the first to fail;
 * others wait until the process has ended. A simulated run has one thread, and its process may
 * go on after it. */
static pthread_mutex_t failing = PTHREAD_MUTEX_INITIALIZER;
static char text[4096];

void weir_test_fail(const char *file, int line, const char *format, ...)
{
    va_list arguments;
    int length;

    pthread_mutex_lock(&failing);
    length = snprintf(text, sizeof text, "%s:%d: ", file, line);
    va_start(arguments, format);
    vsnprintf(text + length, sizeof text - (size_t)length, format, arguments);
    va_end(arguments);
    if (weir_sim_running()) {
        pthread_mutex_unlock(&failing);
        weir_sim_fail("%s", text);
    }
    process_end(TEST_FAILED, text);
}

/* " (WEIR_ECANCELED)" for what looks like an error. */
static void describe(intmax_t value, char *words, size_t words_bytes)
{
    const char *name = value < 0 && value > -10000 ? weir_error_name((int)value) : NULL;

    words[0] = '\0';
    if (name != NULL) snprintf(words, words_bytes, " (%s)", name);
}

void weir_test_fail_int(const char *file, int line, const char *expression, intmax_t actual,
                        intmax_t expected)
{
    char actual_words[48], expected_words[48];

    describe(actual, actual_words, sizeof actual_words);
    describe(expected, expected_words, sizeof expected_words);
    weir_test_fail(file, line,
                   "CHECK_INT(%s) does not hold\n    actual   %jd%s\n    expected %jd%s",
                   expression, actual, actual_words, expected, expected_words);
}

void weir_test_check_string(const char *file, int line, const char *expression, const char *actual,
                            const char *expected)
{
    if (actual == expected) return;
    if (actual != NULL && expected != NULL && strcmp(actual, expected) == 0) return;
    weir_test_fail(file, line,
                   "CHECK_STR(%s) does not hold\n    actual   %s%s%s\n    expected %s%s%s",
                   expression, actual ? "\"" : "", actual ? actual : "NULL", actual ? "\"" : "",
                   expected ? "\"" : "", expected ? expected : "NULL", expected ? "\"" : "");
}

void weir_test_check_contains(const char *file, int line, const char *expression, const char *whole,
                              const char *part)
{
    if (whole != NULL && part != NULL && strstr(whole, part) != NULL) return;
    weir_test_fail(file, line,
                   "CHECK_CONTAINS(%s) does not hold\n    the part \"%s\" is not in\n%s",
                   expression, part ? part : "NULL", whole ? whole : "NULL");
}

void weir_test_check_ok(const char *file, int line, const char *expression, intmax_t result)
{
    const char *why;
    char words[48];

    if (result >= 0) return;
    describe(result, words, sizeof words);
    why = weir_why();
    weir_test_fail(file, line, "CHECK_OK(%s) does not hold\n    result   %jd%s%s%s", expression,
                   result, words, why[0] ? "\n    because  " : "", why);
}

void weir_test_skip(const char *reason)
{
    if (weir_sim_running()) weir_sim_fail("a run cannot be skipped (%s): skip before it", reason);
    process_end(TEST_SKIPPED, reason);
}
