/* problem_test.c - the table of problems. */
#include "server/problem.h"

#include <errno.h>
#include <string.h>
#include <weir/error.h>

#include "harness/test.h"
#include "proto/http.h"

TEST(every_problem_has_a_code_of_its_own_a_title_and_a_status)
{
    for (enum problem_code code = PROBLEM_NONE + 1; code < PROBLEMS; code++) {
        const struct problem_kind *kind = problem_kind_of(code);

        test_note("%d", code);
        CHECK(kind->code && kind->title && strlen(kind->title) > 0);
        CHECK_INT(strspn(kind->code, "abcdefghijklmnopqrstuvwxyz-"), ==, strlen(kind->code));
        CHECK(kind->status >= 400 && kind->status < 600);
        CHECK(strcmp(http_status_name(kind->status), "Unknown") != 0);
        /* Who is to come again is told when. */
        if (kind->status == 429 || kind->status == 503) CHECK_INT(kind->retry_after_s, >, 0);
        for (enum problem_code other = code + 1; other < PROBLEMS; other++) {
            CHECK(strcmp(kind->code, problem_kind_of(other)->code) != 0);
        }
    }
}

TEST(errors_of_the_library_are_problems)
{
    static const struct {
        int error;
        const char *code;
    } rows[] = {
        {-ENOENT, "no-such"},         {WEIR_EREFUSED, "invalid"},
        {-ESTALE, "stale-lease"},     {WEIR_EOVERLOAD, "queue-full"},
        {WEIR_ESTOPPING, "draining"}, {-ENOSPC, "no-room"},
        {-EIO, "store-stopped"},      {WEIR_ETIMEDOUT, "outcome-unknown"},
        {-EXDEV, "internal"},         {WEIR_ECANCELED, "draining"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CHECK_STR(problem_kind_of(problem_of_error(rows[i].error))->code, rows[i].code);
    }
    CHECK_STR(problem_kind_of(problem_of_status(417))->code, "expectation");
    CHECK_STR(problem_kind_of(problem_of_status(400))->code, "bad-request");
}
