/* outbox_crash.c - the outbox example, killed at every step and started again: each order that was
 * committed has one job and one mail, and no other has any.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/program.h"

enum { ORDERS = 7, FOLDER_BYTES = 64, OUTPUT_BYTES = 4096 };

struct counts {
    int orders, rows, jobs, mails;
};

static char output[OUTPUT_BYTES];

static const char *outbox_program(void)
{
#ifndef WEIR_HAVE_SQLITE
    TEST_SKIP("SQLite was not found when this was built (libsqlite3-dev): no outbox example");
#endif
    return example("outbox");
}

/* In memory, if there is such a folder: processes are killed here, not machines. */
static void folder_make(char folder[FOLDER_BYTES])
{
    (void)snprintf(folder, FOLDER_BYTES, "%s/weir-outbox-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    CHECK(mkdtemp(folder) != NULL);
}

static void folder_remove(const char *folder)
{
    char text[256];
    CHECK_EXIT(test_exec((const char *const[]){"/bin/rm", "-rf", folder, NULL}, text, sizeof text),
               0, text);
}

static int run(const char *folder, int orders, const char *step, int after)
{
    char orders_text[16], after_text[16];

    (void)snprintf(orders_text, sizeof orders_text, "%d", orders);
    (void)snprintf(after_text, sizeof after_text, "%d", after);
    return test_exec((const char *const[]){outbox_program(), "--folder", folder, "--orders",
                                           orders_text, "--crash-at", step, "--crash-after",
                                           after_text, NULL},
                     output, sizeof output);
}

static void run_killed(const char *folder, int orders, const char *step, int after)
{
    int status = run(folder, orders, step, after);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        TEST_FAIL("status %#x instead of a kill at '%s'; it said\n%s", status, step, output);
}

/* To the end: what the program itself checks, and once more here. */
static struct counts run_to_end(const char *folder, int orders)
{
    struct counts counts;

    CHECK_EXIT(run(folder, orders, "never", 1), 0, output);
    if (sscanf(output, "%d orders, %d rows left, %d jobs done, %d mails", &counts.orders,
               &counts.rows, &counts.jobs, &counts.mails) != 4)
        TEST_FAIL("it said\n%s", output);
    CHECK_INT(counts.rows, ==, 0);
    CHECK_INT(counts.jobs, ==, counts.orders);
    CHECK_INT(counts.mails, ==, counts.orders);
    return counts;
}

/* Killed when it comes to `step` for the `after`-th time, and started again. `committed`: how many
 * orders there must be, or -1: as many as the program came to. */
static void check_step(const char *step, int after, int committed)
{
    char folder[FOLDER_BYTES];
    struct counts counts;

    test_note("at '%s', time %d", step, after);
    folder_make(folder);
    run_killed(folder, ORDERS, step, after);
    counts = run_to_end(folder, 0);
    if (committed >= 0) CHECK_INT(counts.orders, ==, committed);
    CHECK_INT(counts.orders, <=, ORDERS);
    /* And it goes on as if nothing had been. */
    CHECK_INT(run_to_end(folder, 2).orders, ==, counts.orders + 2);
    folder_remove(folder);
}

TEST_WITH(outbox_killed_in_the_transaction_makes_no_job_of_what_was_not_committed,
          .timeout_ms = 60000)
{
    check_step("order-written", 1, 0);
    check_step("order-written", 5, 4);
    check_step("row-written", 1, 0);
    check_step("row-written", 5, 4);
    check_step("committed", 1, 1);
    check_step("committed", 5, 5);
}

TEST_WITH(outbox_killed_while_relaying_makes_one_job_of_each_row, .timeout_ms = 60000)
{
    static const char *const steps[] = {"peeked", "enqueued", "marking", "marked"};

    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        check_step(steps[i], 1, -1);
        check_step(steps[i], 2, -1);
    }
}

TEST_WITH(outbox_killed_while_working_sends_one_mail_for_each_job, .timeout_ms = 60000)
{
    static const char *const steps[] = {"leased", "mailing", "mailed", "acked"};

    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        check_step(steps[i], 1 + (int)i, -1);
}

/* The same folder again and again, killed at another step each time. */
TEST_WITH(outbox_killed_at_every_step_in_turn_loses_and_doubles_nothing, .timeout_ms = 60000)
{
    static const char *const steps[] = {"committed", "enqueued", "row-written", "marking", "peeked",
                                        "mailed",    "enqueued", "marked",      "leased"};
    char folder[FOLDER_BYTES];

    folder_make(folder);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        test_note("kill %zu, at '%s'", i, steps[i]);
        run_killed(folder, 3, steps[i], 1);
    }
    CHECK_INT(run_to_end(folder, 1).orders, >=, (int)(sizeof steps / sizeof steps[0]) / 2);
    folder_remove(folder);
}

TEST(outbox_example_explains_itself_and_refuses_what_it_does_not_know)
{
    static char text[OUTPUT_BYTES];

    CHECK_EXIT(
        test_exec((const char *const[]){outbox_program(), "--help", NULL}, text, sizeof text), 0,
        text);
    CHECK_CONTAINS(text, "order-written row-written committed peeked enqueued");
    CHECK_EXIT(test_exec((const char *const[]){outbox_program(), "--crash-at", "lunch", NULL}, text,
                         sizeof text),
               2, text);
    CHECK_CONTAINS(text, "there is no step 'lunch'");
}
