/* run_self.h - the test program run by one of its own tests: the harness looks at itself. */
#ifndef WEIR_TESTS_UNIT_HARNESS_RUN_SELF_H
#define WEIR_TESTS_UNIT_HARNESS_RUN_SELF_H

#include <stdlib.h>
#include <sys/wait.h>

#include "harness/test.h"

/* What it printed last. */
static char output[256 * 1024];

/* Run the test program with these arguments; returns its exit status. */
#define RUN(...) run((const char *const[]){"/proc/self/exe", __VA_ARGS__, NULL})

static int run(const char *const argv[])
{
    int status;

    TEST_SKIP_ON_VALGRIND("it does not follow a program that runs itself anew");
    unsetenv("WEIR_TEST_MASK");
    unsetenv("WEIR_TEST_WORKERS");
    status = test_exec(argv, output, sizeof output);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

#endif
