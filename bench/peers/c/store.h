/* store.h - what a peer of `bench store` has to be able to do; store.c drives it.
 *
 * A group of jobs is: begin, one call for each job, commit. What was committed is on the disk. A
 * job is ready, then leased with a token that rises, then gone; a claim takes the one of the lowest
 * priority number that is due longest. Ids rise from 1.
 */
#ifndef BENCH_PEER_STORE_H
#define BENCH_PEER_STORE_H

#include "bench_store.h"

enum store_state { STORE_READY, STORE_LEASED };

struct store_plan {
    const struct bench *bench;
    struct store_shape shape;
    size_t jobs_max; /* that are there at the same time */
};

/* What a worker has in hand for a job. */
struct store_lease {
    uint64_t id;
    uint64_t token;
};

struct store_engine {
    const char *program;
    const char *peer;
    void *(*open)(const struct store_plan *plan);
    void (*begin)(void *store);
    void (*insert)(void *store, const struct store_job *job);
    /* Returns the sum of the payload; ends the program when no job is due. */
    uint64_t (*claim)(void *store, int64_t now_us, uint64_t token, struct store_lease *ret_lease);
    void (*acknowledge)(void *store, const struct store_lease *lease);
    void (*commit)(void *store);
    size_t (*count)(void *store); /* of jobs that are there */
    void (*close)(void *store);
};

extern const struct store_engine store_engine; /* of the peer that is linked in */

#endif
