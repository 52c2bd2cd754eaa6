/* jobs_tool_test.c - weir-store on a store with jobs: dump says in words what was decided, jobs
 * counts them by queue and state. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit/store/jobs_test.h"

static int run_tool(const char *command, const char *path, char *output, size_t bytes)
{
    char program[512];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 64);
    const char *argv[] = {program, command, path, NULL};
    int status;

    CHECK_INT(n, >, 0);
    program[n] = '\0';
    for (int i = 0; i < 2; i++) *strrchr(program, '/') = '\0';
    strcat(program, "/programs/weir-store");
    if (access(program, X_OK) != 0) TEST_SKIP("weir-store was not built");
    status = test_exec(argv, output, bytes);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* A little of everything that records can say. */
static void fill(struct jobs_stand *stand)
{
    weir_store *store = stand->store;
    weir_job_filter dead = {.queue = "mail", .states = WEIR_JOB_STATE_BIT(WEIR_JOB_DEAD)};
    uint64_t token, bulk;

    CHECK_OK(weir_queue_set(
        store, &(weir_queue_spec){.name = "mail", .depth_max = 77, .overflow = WEIR_WAIT}));
    CHECK_OK(weir_key_set(store, &(weir_key_spec){.name = "api", .concurrency = 3, .weight = 2}));
    CHECK_INT(jobs_enqueue(store, "mail", .kind = "welcome", .version = 4, .payload = "abc",
                           .payload_bytes = 3, .unique_key = "a\033b", .limit_keys = {"api"}),
              ==, 1);
    CHECK_INT(jobs_lease(store, "mail", &token), ==, 1);
    CHECK_INT(weir_job_fail(store, 1, token, "EDOM", "it failed", 5000), ==, WEIR_JOB_SCHEDULED);
    (void)jobs_enqueue(store, "mail");
    (void)jobs_kill(store, "mail", "bad");
    (void)jobs_enqueue(store, "mail");
    (void)jobs_enqueue(store, "other");
    CHECK(jobs_work(store, "other") != 0);
    CHECK_OK(weir_schedule_set(store, &(weir_schedule_spec){.name = "nightly",
                                                            .cron = "0 3 * * *",
                                                            .overlap = WEIR_OVERLAP_SKIP,
                                                            .catch_up = WEIR_CATCH_UP_ONE,
                                                            .job = stand_job("other", "x")}));
    CHECK_INT(weir_bulk_begin(store, &dead, WEIR_BULK_PURGE, 1, &bulk), ==, 1);
    CHECK_OK(weir_queue_pause(store, "other"));
}

JOBS_TEST(weir_store_dumps_in_words_and_counts_jobs)
{
    static const char *const says[] = {
        "queue name=mail depth_max=77 overflow=wait",
        "key name=api concurrency=3 weight=2",
        "job 1 ready queue=mail kind=welcome version=4 priority=0 unique_key=a\\x1bb limit_key=api",
        "payload_bytes=3",
        "job 1 leased run=1 attempt=1 token=1",
        "job 1 error run=1 class=EDOM message=it\\x20failed",
        "job 1 scheduled run=1",
        "job 2 dead",
        "schedule name=nightly cron=0\\x203",
        "purge jobs=1",
        "the store was closed",
    };
    static char output[1 << 17];

    fill(stand);
    CHECK_INT(run_tool("jobs", stand->base.path, output, sizeof output), ==, 4); /* in use */
    CHECK_OK(weir_store_close(stand->store));
    stand->store = NULL;
    CHECK_INT(run_tool("dump", stand->base.path, output, sizeof output), ==, 0);
    for (size_t i = 0; i < sizeof says / sizeof *says; i++) CHECK_CONTAINS(output, says[i]);
    CHECK_INT(run_tool("jobs", stand->base.path, output, sizeof output), ==, 0);
    CHECK_CONTAINS(output, "queue name=mail scheduled=1 ready=1");
    CHECK_CONTAINS(output, "queue name=other done=1 paused\n");
    CHECK_CONTAINS(output, "jobs ");
    CHECK_INT(run_tool("jobs", "/tmp/weir-test-is-not-there", output, sizeof output), ==, 3);
    stand->store = store_stand_open(&stand->base); /* as it was */
    CHECK_INT(stand_state(stand->store, 1), ==, WEIR_JOB_SCHEDULED);
}
