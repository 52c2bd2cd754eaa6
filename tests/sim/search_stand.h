/* search_stand.h - the search service of examples/search-service, whole, in a simulated run.
 *
 *     client (10.0.0.1) ──▶ service (10.0.0.2) ──▶ upstream (10.0.0.3)
 *
 * Three hosts with the very code of the three programs: service_run, upstream_server_run and
 * load_run are what their mains call. Here they are told other addresses, and a clock of computing
 * that is the run's. Beside the load there is one user who asks, reads what is answered, and comes
 * back when the connection has ended.
 *
 * A scene says what the load is and what happens meanwhile; what must be so is STAND_INVARIANTS,
 * and in the end stand_play compares the books of the client with those of the service.
 */
#ifndef WEIR_TESTS_SIM_SEARCH_STAND_H
#define WEIR_TESTS_SIM_SEARCH_STAND_H

#include <weir/sim.h>
#include <weir/weir.h>

#include "examples/search-service/load.h"
#include "examples/search-service/service.h"
#include "examples/search-service/upstream_server.h"

enum {
    STAND_INTERVALS = 16,
    /* A job of ranking that is told to stop looks after at most a millisecond. */
    STAND_BUDGET_MS = PATH_BUDGET_MS + 1,
};

struct scene {
    struct phase phases[4]; /* of the load, one after the other; the last has rate 0 */
    int connections;
    int rank_us;
    enum naive naive;
    /* A phase begins: something happens to the hosts. May be NULL. */
    void (*on_phase)(const struct phase *phase);
    bool lossy;  /* connections end before they should, */
    bool drains; /* ... but not before all that was accepted is answered */
};

/* The user beside the load. */
struct asker {
    unsigned long sent, ok, partial, refused;
    unsigned long lost;       /* the connection has ended before the answer */
    bool asks;                /* it could begin */
    bool served_since_healed; /* an answer with documents, after stand_healed */
};

struct stand {
    const struct scene *scene;
    weir_sim_host *client, *service, *upstream;
    bool service_down, upstream_down; /* on purpose: nobody starts it again */
    bool over;                        /* the load has ended */
    bool asking;                      /* the user beside it goes on */
    bool healed;                      /* nothing is wrong any more */

    struct service server; /* of its present life, or the last one; and of earlier ones: */
    unsigned long accepted_before, answered_before, unanswered_before;
    long long slowest_ns_before;

    struct upstream_server origin;
    struct load load;
    struct asker asker;

    /* What the watch inside the service has seen. */
    size_t queued_max;
    bool stage_overfull, too_many_retries, breaker_opened, breaker_closed_again;
};

extern struct stand stand;

/* A `begin`: as if nothing had happened. */
void stand_begin(void *arg);

/* stand_play - the scene: start the hosts, make the load, stop the hosts, compare the books. What
 * is wrong fails the run. 0. */
int stand_play(const struct scene *scene);

/* stand_healed - from now on all works: whoever asks is to be served. */
void stand_healed(void);

/* Never suspend. */
bool stand_one_answer(void *arg);      /* each request of the load has one answer, or is reported */
bool stand_budget_holds(void *arg);    /* none has taken longer than STAND_BUDGET_MS */
bool stand_queues_bounded(void *arg);  /* as the specs of the service say */
bool stand_retries_bounded(void *arg); /* a tenth, and the burst */
bool stand_breaker_opened(void *arg);  /* in the outage */
bool stand_breaker_closed(void *arg);  /* after it was open */
bool stand_goodput_is_back(void *arg); /* since stand_healed */

#define STAND_INVARIANTS                                                        \
    {.name = "one answer for each request", .holds = stand_one_answer},         \
        {.name = "budgets hold", .holds = stand_budget_holds},                  \
        {.name = "queues keep to their bounds", .holds = stand_queues_bounded}, \
    {                                                                           \
        .name = "retries keep to their budget", .holds = stand_retries_bounded  \
    }

#endif
