/* process_test.h - what the tests of processes share. */
#ifndef WEIR_TESTS_PROCESS_TEST_H
#define WEIR_TESTS_PROCESS_TEST_H

#include <sys/wait.h>

#include "unit/io/io_test.h"

/* Nobody is left: neither running nor a zombie. */
static inline void check_no_children(void)
{
    CHECK_INT(waitpid(-1, NULL, WNOHANG), ==, -1);
    CHECK_INT(errno, ==, ECHILD);
}

#define PROCESS_TEST(name_)                     \
    static int io_body_##name_(void *arg);      \
    TEST(name_)                                 \
    {                                           \
        io_test_needs_processes();              \
        test_kernel_install();                  \
        CHECK_OK(io_test_run(io_body_##name_)); \
        check_no_children();                    \
    }                                           \
    static int io_body_##name_(__attribute__((unused)) void *arg)

#define ARGUMENTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static inline weir_process_spec shell(const char *const *arguments)
{
    return (weir_process_spec){.name = "shell",
                               .program = "/bin/sh",
                               .arguments = arguments,
                               .grace_ms = 5000,
                               .on_exit = WEIR_EXIT_ZERO};
}

static inline weir_process_spec own(const char *const *arguments)
{
    weir_process_spec spec = shell(arguments);

    TEST_SKIP_ON_VALGRIND("it does not follow a program that runs itself anew");
    spec.name = "own";
    spec.program = TEST_PROGRAM_PATH;
    return spec;
}

#endif
