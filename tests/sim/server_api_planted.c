/* server_api_planted.c - bugs that are planted in the API are found: see server/planted.h. */
#define WEIR_SERVER_WITH_BUGS 1
#include "sim/server_api_planted.h"

#include "server/api_handlers.h"
#include "server/planted.h"
#include "sim/server_api.h"

enum { ROUTES_MAX = 128 };

enum server_planted server_planted_now;

int planted_job_enqueue(struct exchange *x);
int planted_job_enqueue_many(struct exchange *x);
int planted_queue_lease(struct exchange *x);
int planted_job_extend(struct exchange *x);
int planted_job_ack(struct exchange *x);
int planted_job_fail(struct exchange *x);
int planted_job_release(struct exchange *x);
int planted_jobs_commit(struct exchange *x);

static const struct {
    int (*right)(struct exchange *x);
    int (*wrong)(struct exchange *x);
} twins[] = {
    {job_enqueue, planted_job_enqueue}, {job_enqueue_many, planted_job_enqueue_many},
    {queue_lease, planted_queue_lease}, {job_extend, planted_job_extend},
    {job_ack, planted_job_ack},         {job_fail, planted_job_fail},
    {job_release, planted_job_release}, {jobs_commit, planted_jobs_commit},
};

struct routes server_api_planted_routes(void)
{
    static struct route rows[ROUTES_MAX];
    struct routes right = api_routes();

    if (server_planted_now == SERVER_PLANTED_NONE) return right;
    CHECK(right.count <= ROUTES_MAX);
    for (size_t i = 0; i < right.count; i++) {
        rows[i] = right.at[i];
        for (size_t k = 0; k < sizeof twins / sizeof *twins; k++)
            if (rows[i].serve == twins[k].right) rows[i].serve = twins[k].wrong;
    }
    return (struct routes){rows, right.count};
}

/* ---- Each is found, and the words are those of what it breaks ---- */

/* Each of these words tells of what the bug breaks; which comes first is the schedule's. */
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static bool says_one_of(const char *failure, const char *const *words)
{
    for (; *words; words++)
        if (strstr(failure, *words)) return true;
    return false;
}

static void expect_found(enum server_planted bug, const weir_sim_spec *spec,
                         const char *const *words)
{
    weir_sim_spec quiet = *spec;
    weir_sim_result result;
    int r;

    quiet.ret_result = &result;
    quiet.quiet = true;
    quiet.begin = server_api_begin;
    server_planted_now = bug;
    r = weir_sim_run(&quiet, server_api_program, NULL);
    server_planted_now = SERVER_PLANTED_NONE;
    test_note("%s: %llu runs: %s", spec->name, (unsigned long long)result.runs, result.failure);
    CHECK_INT(r, ==, WEIR_EFOUND);
    CHECK(says_one_of(result.failure, words));
}

#define API_BUG(bug_, words_, ...)                                                                 \
    TEST_WITH(planted_api_##bug_##_is_found, .timeout_ms = 300000)                                 \
    {                                                                                              \
        expect_found(SERVER_PLANTED_##bug_, &(weir_sim_spec){.name = #bug_, __VA_ARGS__}, words_); \
    }

API_BUG(KEY_IGNORED, WORDS("has no key", "gives jobs"), .runs_max = 300)
API_BUG(ANSWERED_EARLY, WORDS("is lost", "gives jobs"), .runs_max = 2000, .faults = {.kill = 200})
API_BUG(REFUSAL_UNSEEN, WORDS("old token", "has ended twice", "has ended, and is leased"),
        .runs_max = 1000)
API_BUG(GIVEN_BACK_TOLD, WORDS("two valid leases", "old token"), .runs_max = 1000)
API_BUG(COMMIT_IN_PARTS, WORDS("of a commit that was refused", "its commit acknowledges"),
        .runs_max = 2000, .faults = {.kill = 200})
