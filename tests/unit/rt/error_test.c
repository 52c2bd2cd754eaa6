/* error_test.c - every error has a name and a sentence, whatever the C library knows. */
#include <errno.h>
#include <string.h>
#include <weir/error.h>

#include "harness/test.h"

TEST(every_error_of_the_kernel_has_a_name_and_a_sentence)
{
    /* 41 and 58 are the numbers of EWOULDBLOCK and EDEADLOCK elsewhere. */
    for (int number = EPERM; number <= EHWPOISON; number++) {
        bool exists = number != 41 && number != 58;

        test_note("error %d", number);
        CHECK_INT(strcmp(weir_error_name(-number), "unknown") != 0, ==, exists);
        CHECK_INT(strcmp(weir_strerror(-number), "unknown error") != 0, ==, exists);
        if (exists) CHECK(weir_error_name(-number)[0] == 'E');
    }
    CHECK_STR(weir_error_name(-EPERM), "EPERM");
    CHECK_STR(weir_error_name(-EAGAIN), "EAGAIN");
    CHECK_STR(weir_error_name(-ECONNREFUSED), "ECONNREFUSED");
    CHECK_STR(weir_error_name(-EHWPOISON), "EHWPOISON");
    CHECK_STR(weir_strerror(-ECONNREFUSED), "Connection refused");
}

TEST(number_that_is_no_error_is_said_to_be_unknown)
{
    const int numbers[] = {-EHWPOISON - 1, -4095, -4096, WEIR_ECANCELED - 1000, -2147483647 - 1};

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        CHECK_STR(weir_error_name(numbers[i]), "unknown");
        CHECK_STR(weir_strerror(numbers[i]), "unknown error");
    }
    CHECK_STR(weir_error_name(7), "0");
    CHECK_STR(weir_strerror(0), "success");
    CHECK_STR(weir_error_name(WEIR_ECANCELED), "WEIR_ECANCELED");
}

TEST(every_error_of_ours_has_a_name_and_a_sentence)
{
    for (int error = WEIR_EFOUND; error <= WEIR_ECANCELED; error++) {
        test_note("error %d", error);
        CHECK_CONTAINS(weir_error_name(error), "WEIR_E");
        CHECK(strcmp(weir_strerror(error), "unknown error") != 0);
    }
    CHECK_STR(weir_error_name(WEIR_EFOUND - 1), "unknown");
    CHECK_STR(weir_error_name(WEIR_EFOUND), "WEIR_EFOUND");
    CHECK_STR(weir_strerror(WEIR_EFOUND), "a simulated run failed");
}
