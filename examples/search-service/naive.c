/* naive.c - the names of the mistakes; and the third of them: retries without a budget.
 *
 * A failure is tried again at once, as long as there is time: it costs nothing, as long as failures
 * are rare. When the upstream stands still, everything is asked several times over, and an upstream
 * that comes back finds a queue of questions whose askers have long given up and asked again.
 */
#include "naive.h"

#include <string.h>

static const char *const names[NAIVES] = {
    [NAIVE_NOT] = "no",
    [NAIVE_UNBOUNDED_QUEUE] = "unbounded-queue",
    [NAIVE_THREAD_PER_REQUEST] = "thread-per-request",
    [NAIVE_RETRY_WITHOUT_BUDGET] = "retry-without-budget",
};

enum naive naive_named(const char *name)
{
    int naive = 0;

    while (naive < NAIVES && strcmp(name, names[naive]) != 0) naive++;
    return (enum naive)naive;
}

const char *naive_name(enum naive naive)
{
    return names[naive];
}

int naive_fetch(struct upstream *upstream, struct search *search, int attempt_ms)
{
    int r = WEIR_ECANCELED;

    do {
        WEIR_DEADLINE(attempt_ms) r = upstream_fetch(upstream, search);
        if (r < 0 && weir_checkpoint() < 0) return r; /* the stage's time is up */
    } while (r < 0 && r != WEIR_ECANCELED);
    return r;
}
