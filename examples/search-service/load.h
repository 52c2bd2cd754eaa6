/* load.h - what the load program measures, by interval and by phase.
 *
 * The load is open: requests are sent when they are due, whether or not earlier ones were answered,
 * as users do who know nothing of each other. Latency counts from when a request was due, not from
 * when it could be sent; otherwise a service that stands still would keep the clock from running.
 */
#ifndef SEARCH_LOAD_H
#define SEARCH_LOAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <weir/weir.h>

#include "search.h"

enum {
    INTERVAL_MS = 500,
    INTERVALS_MAX = 2400,
    PHASES_MAX = 8,
    LATENCY_BUCKETS = 1024, /* each 2 % wider than the one before, from 1 us on */
    CONNECTIONS_MAX = 256,
    OUTSTANDING_MAX = 16384, /* requests of one connection that have no answer yet */
};

/* How latencies are spread. */
struct latencies {
    uint64_t count;
    uint32_t buckets[LATENCY_BUCKETS];
};

void latencies_add(struct latencies *latencies, int64_t ns);
/* latencies_ms - what `part` of them (0.99) do not exceed, to 2 %; 0 if there are none. */
double latencies_ms(const struct latencies *latencies, double part);

/* What happened in an interval, or in a phase. */
struct tally {
    uint64_t offered; /* were due */
    uint64_t unsent;  /* of those: the connection was full of unanswered ones, or gone */
    uint64_t good;    /* answered, in time */
    uint64_t late;    /* answered, and too late to be of use */
    uint64_t answers[SEARCH_CODES]; /* by what they said */
    struct latencies accepted;      /* of all that were let in, well or not */
};

/* What the service said of itself, at the end of an interval. */
struct sample {
    bool valid;
    double depth[4], queued, resident_mb;
    double breaker;        /* 0: closed, 1: half open, 2: open */
    double upstream_calls; /* since it began */
};

struct phase {
    const char *name;
    double factor; /* of the capacity */
    double seconds;
    bool outage;
    double begin_s, end_s, rate; /* filled in when it runs */
    struct tally tally;
};

struct load {
    const char *service, *admin, *control, *csv;
    int connections, rate, seconds, budget_ms, capacity, story_seconds, capacity_seconds,
        max_missed;
    int intervals_max;                           /* that there is room for */
    void (*on_phase)(const struct phase *phase); /* one begins; or NULL */
    int64_t begin_ns;
    pthread_mutex_t lock; /* of what follows, and of the connections' books; short */
    struct phase *phase;  /* the one that runs; NULL: none */
    struct phase phases[PHASES_MAX];
    int phase_count;
    int interval_count; /* that have ended */
    struct tally *intervals;
    struct sample *samples;
    const char **interval_phases;
    double *interval_rates;
    uint64_t sent, answered, unknown; /* unknown: answers to nothing that was asked */
    uint64_t lost;                    /* were sent, and their connection ended */
    uint64_t open_requests;           /* have no answer yet */
};

/* load_run - send and receive, phase by phase, until all is answered or its connection has ended.
 * 0, or why it could not be made. */
WEIR_MUST_USE int load_run(struct load *load);

/* load_phase - the one that runs now; NULL: it is over. Takes the lock. */
struct phase *load_phase(struct load *load);

/* load_due, load_unsent, load_answer - a request was due; it could not be sent; it was answered.
 * The lock is held. */
void load_due(struct load *load, int64_t due_ns);
void load_unsent(struct load *load, int64_t due_ns);
void load_answer(struct load *load, enum search_code code, int64_t due_ns);

/* load_connection - a task: send and receive on one connection until the phases are over and all is
 * answered. The argument is a struct load_connection. */
struct load_connection {
    struct load *load;
    int index;
};
int load_connection(void *arg);

/* load_measure_capacity - answers in a second when there is always one more to be asked, and not
 * so many at a time that some are turned away. */
WEIR_MUST_USE int load_measure_capacity(struct load *load, double *ret_rate);

/* load_sample - ask the service for its figures. Errors: those of asking. */
WEIR_MUST_USE int load_sample(struct load *load, struct sample *ret_sample);

/* load_write_csv, load_report - the results. load_report returns how many claims do not hold. */
WEIR_MUST_USE int load_write_csv(const struct load *load);
int load_report(const struct load *load, double capacity);

#endif
