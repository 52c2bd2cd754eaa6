/* retry.h - whether and when what has failed is tried again.
 *
 *                       failed, and may be tried again
 *     READY ──begin──▶ RUNNING ──────────────────────▶ WAITING
 *                       │  ▲                             │  │
 *                       │  └────────── begin ────────────┘  │ given up
 *                       ▼                                   ▼
 *                      DONE ◀───────────────────────────────┘
 *           went well, or failed for good
 *
 * retry_set_state() is the only setter and checks every move against a table.
 *
 * The wait before attempt n + 1 is exponential with full jitter: a random time from 0 to
 * min(backoff_ns * 2^(n - 1), backoff_ns_max), so that callers that failed together do not
 * come back together. A wait that would end after the deadline is not begun: the caller has
 * the error now instead of a timeout later. WEIR_ECANCELED is never tried again: that would
 * eat the caller's own deadline, or its cancellation.
 *
 * Invariants: at most attempts_max attempts; no clock, no randomness of its own, no lock.
 */
#ifndef WEIR_POLICY_RETRY_H
#define WEIR_POLICY_RETRY_H

#include <stdbool.h>
#include <stdint.h>

enum retry_state { RETRY_READY, RETRY_RUNNING, RETRY_WAITING, RETRY_DONE, RETRY_STATES };

/* Why it is done. */
enum retry_end {
    RETRY_NOT_ENDED,
    RETRY_WENT_WELL,
    RETRY_FATAL,       /* an error that is not named as one to try again */
    RETRY_ATTEMPTS,    /* all of them have failed */
    RETRY_NO_BUDGET,   /* the shared budget is spent */
    RETRY_NO_TIME,     /* the next wait would end after the deadline */
    RETRY_BREAKER,     /* the breaker has opened meanwhile */
    RETRY_INTERRUPTED, /* the caller was cancelled, or gave up */
    RETRY_ENDS,
};

enum { RETRY_ERRORS_MAX = 16, RETRY_ATTEMPTS_MAX = 16 };

/* attempts_max is 1 (then nothing else matters) to RETRY_ATTEMPTS_MAX. */
struct retry_rules {
    uint32_t attempts_max; /* the first one included */
    uint32_t error_count;
    int64_t backoff_ns, backoff_ns_max;
    int errors[RETRY_ERRORS_MAX]; /* that are tried again */
};

struct retry {
    const struct retry_rules *rules;
    enum retry_state state;
    enum retry_end end;
    uint32_t attempts; /* begun so far */
};

void retry_init(struct retry *retry, const struct retry_rules *keep_rules);

/* An attempt begins: the first, or after a wait. */
void retry_begin(struct retry *retry);

/* The attempt has ended. True: it is a matter for retry_wait; false: it is done. */
bool retry_heard(struct retry *retry, int result);

/* How long to wait before the next attempt, or -1: it is done, there is no time for that.
 * `random`: any number, all as likely. */
int64_t retry_wait(struct retry *retry, uint64_t random, int64_t now_ns, int64_t deadline_ns);

/* Instead of the wait (the budget is spent), or of what would come after it. */
void retry_give_up(struct retry *retry, enum retry_end end);

/* The longest wait after this attempt (1: the first). */
int64_t retry_backoff_ns(const struct retry_rules *rules, uint32_t attempt);

/* The longest that all waits together can take. */
int64_t retry_backoff_total_ns(const struct retry_rules *rules);

#endif
