/* work.h - weir work: jobs of a server, a program for each.
 *
 *     LEASING ──a job──▶ RUNNING ──its program has ended──▶ SETTLING ──▶ LEASING
 *        └── drain, count reached, told to be quiet ──▶ ended
 *
 * Owner: each slot is a task of the scope of the command; a program belongs to the scope of its
 * job, and never outlives it. Lifetime: until TERM and the drain, or the server says so.
 * Backpressure: so many slots; a slot asks for one job when it has none. Failure: a server that
 * cannot be reached is tried again with pauses that grow, with jitter (with --once, only once);
 * what a program does is told to the server, and nothing of it ends the worker.
 */
#ifndef WEIR_CLI_WORK_H
#define WEIR_CLI_WORK_H

#include <weir/weir.h>

#include "cli/client.h"
#include "cli/command.h"

enum { WORK_CODES_MAX = 16, WORK_TEXT_BYTES = 256, WORK_ID_BYTES = 24, WORK_ERROR_BYTES = 512 };

struct work_codes {
    unsigned char at[WORK_CODES_MAX];
    unsigned count;
};

struct work {
    const struct cli_call *call;
    const char *queue;
    const char *kinds; /* NULL: all */
    char worker[WORK_TEXT_BYTES];
    int64_t lease_ms, timeout_ms, grace_ms, drain_ms, snooze_ms;
    size_t result_bytes_max;
    struct work_codes retry, dead, snooze;
    bool expose_token, once;
    int64_t count_max; /* 0: no bound */
    const char *const *command;

    bool quiet;    /* no more jobs; those that run have all their time */
    bool draining; /* no more jobs, and what is left of --drain for those that run */
    int64_t begun; /* jobs */
    unsigned done, failed, given_back;
    unsigned unsettled; /* the server does not know of it, or has not said so */
    unsigned running;
    int status; /* CLI_OK, or why a slot has ended that trying again does not help */
};

struct work_job {
    char id[WORK_ID_BYTES], token[WORK_ID_BYTES];
    char queue[WORK_TEXT_BYTES], kind[WORK_TEXT_BYTES], trace[64];
    int64_t attempt, attempts_max, timeout_ms;
    int64_t leased_ns; /* when the lease came: it is counted from there */
    char *payload;     /* the allocator's */
    size_t payload_bytes;
};

/* ---- What the server is asked, work_ask.c. 0, a positive status of HTTP that is no success, or an
 * error of client_ask(). ---- */

/* 0 with ret_found; the payload is the caller's then. WEIR_EPROTOCOL: the answer is not understood;
 * a job that has an id and a token was leased all the same. */
WEIR_SUSPENDS int work_lease(struct work *work, struct client *client, int64_t wait_ms,
                             struct work_job *ret_job, bool *ret_found);
enum work_order { WORK_GO_ON = 0, WORK_CANCELLED = 1, WORK_QUIET = 2, WORK_END = 4 };
WEIR_SUSPENDS int work_renew(struct work *work, struct client *client, const struct work_job *job,
                             unsigned *ret_orders);

enum work_verdict { WORK_ACK, WORK_FAIL, WORK_DEAD, WORK_RELEASE };
struct work_outcome {
    enum work_verdict verdict;
    struct bytes result; /* with WORK_ACK */
    char class[64];      /* with WORK_FAIL and WORK_DEAD */
    char message[WORK_ERROR_BYTES];
    int64_t delay_ms; /* with WORK_RELEASE */
    bool known; /* the server says the same by itself: that the lease is over is no surprise */
};
/* 413: the result is too large. 503: not settled now, maybe later. 504: maybe it was settled. */
WEIR_SUSPENDS int work_settle(struct work *work, struct client *client, const struct work_job *job,
                              const struct work_outcome *outcome);

/* ---- One job, work_run.c ---- */

/* Runs the program and says what has become of it; suspends. `result` is where its output goes. A
 * job whose lease is over by now is given back, and nothing is run. */
void work_run(struct work *work, struct client *client, const struct work_job *job,
              struct buffer *result, struct work_outcome *ret_outcome);
/* What an end of the program means. */
void work_judge(const struct work *work, const weir_process_status *status,
                struct work_outcome *ret_outcome);
/* "75,69": 0, or -1. */
int work_codes_parse(const char *text, struct work_codes *ret_codes);

#endif
