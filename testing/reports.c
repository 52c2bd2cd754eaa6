/* reports.c - what the library's checks of locks and waits say about a test. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "rt/checks.h"
#include "testing/harness.h"

enum { TEXT_BYTES = 4096 };

/* Workers report at the same time. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static bool expected;
static int counts[WEIR_CHECK_KINDS];
static char texts[WEIR_CHECK_KINDS][TEXT_BYTES]; /* 0: of the last of any kind */
static char unexpected[TEXT_BYTES];

static void observe(void *keep_arg, const weir_check_report *report)
{
    (void)keep_arg;
    pthread_mutex_lock(&mutex);
    counts[0]++;
    counts[report->kind]++;
    snprintf(texts[0], TEXT_BYTES, "%s", report->text);
    snprintf(texts[report->kind], TEXT_BYTES, "%s", report->text);
    if (!expected) {
        if (unexpected[0] == '\0') {
            snprintf(unexpected, sizeof unexpected, "unexpected report: %s", report->text);
        }
        fprintf(stderr, "unexpected report of the checks: %s\n", report->text);
    }
    pthread_mutex_unlock(&mutex);
}

void reports_install(void)
{
    const char *patience = getenv("WEIR_TEST_PATIENCE_US");

    if (patience != NULL) {
        atom_store(&checks_patience_ns, (int64_t)strtol(patience, NULL, 10) * 1000);
    }
    atom_store(&checks_default, true);
    atom_store_release(&checks_observer, observe);
}

const char *reports_unexpected(void)
{
    return unexpected[0] != '\0' ? unexpected : NULL;
}

void weir_test_checks_expected(void)
{
    pthread_mutex_lock(&mutex);
    expected = true;
    pthread_mutex_unlock(&mutex);
}

int weir_test_checks(int kind)
{
    int count;

    pthread_mutex_lock(&mutex);
    count = counts[kind];
    pthread_mutex_unlock(&mutex);
    return count;
}

const char *weir_test_check_text(int kind)
{
    return texts[kind];
}
