/* weir_session.h - what weir's benchmark programs share: a workload as the first task. */
#ifndef WEIR_BENCH_WEIR_SESSION_H
#define WEIR_BENCH_WEIR_SESSION_H

#include <stdio.h>
#include <stdlib.h>
#include <weir/weir.h>

#include "bench.h"

struct session {
    const struct bench *bench;
    const struct bench_workload *workload;
};

static inline int session_task(void *arg)
{
    const struct session *session = arg;

    session->workload->run(session->bench);
    return 0;
}

/* How many workers BENCH_WORKERS asks for; 0 and a sentence if it is not a count. */
static inline int session_workers(const struct bench *bench)
{
    const char *text = getenv("BENCH_WORKERS");
    int workers = text ? (int)bench_parse_count(text, WEIR_WORKERS_MAX) : 1;

    if (workers == 0) {
        fprintf(stderr, "%s: BENCH_WORKERS is '%s', not a count from 1 to %d\n", bench->program,
                text, WEIR_WORKERS_MAX);
    }
    return workers;
}

#endif
