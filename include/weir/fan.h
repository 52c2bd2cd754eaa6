/* fan.h - bounded fan-out and fan-in: many inputs, at most so many at a time.
 *
 * weir_fan_out calls a function for each of `count` inputs, in tasks of a scope of its own,
 * at most `in_flight_max` at one time, and returns when all that was begun has ended. Results
 * are gathered in order (an array) or as they are there (a callback in the caller's task).
 *
 *     int errors[3];
 *     weir_fan_tally tally;
 *     r = weir_fan_out(&(weir_fan_spec){.name = "fetch", .in_flight_max = 8,
 *                      .policy = WEIR_FAN_COLLECT, .fn = fetch, .count = 3, .inputs = urls,
 *                      .input_bytes = sizeof urls[0], .results = pages,
 *                      .result_bytes = sizeof pages[0], .errors = errors}, &tally);
 *
 * Owner: the calling task. Lifetime: the call. Backpressure: `in_flight_max`, and with
 * `on_done` the caller's callback: who is done with an input begins no other one before
 * there is room for what it has. Failure: the named policy.
 *
 * Invariants: every input has finished, has failed, or has not been started: the tally's
 * three counts add up to `count`; inputs are begun in order; the deadline in force is in
 * force for every call.
 * Cancel: progress returned: the tally, `errors` and `results` say what has happened.
 * Threads: a task of the runtime.
 */
#ifndef WEIR_FAN_H
#define WEIR_FAN_H

#include <weir/defs.h>
#include <weir/error.h>
#include <weir/scope.h>

WEIR_BEGIN

#define WEIR_FAN_IN_FLIGHT_MAX 65536

/* What the outcome of one input means for the others. */
enum weir_fan_policy {
    WEIR_FAN_UNSET = 0,
    WEIR_FAN_FAIL_FAST,     /* the first failure cancels the rest */
    WEIR_FAN_COLLECT,       /* all are done, every error is kept: `errors` must be said */
    WEIR_FAN_FIRST_SUCCESS, /* the first success cancels the rest; failures count only if all
                               fail */
};

/* What is called for each input, in a task: 0 or more is success. `input` is NULL without
 * inputs, `result` without results (each has a place of its own). It may suspend. */
typedef int (*weir_fan_fn)(size_t index, const void *input, void *result, void *keep_arg);

/* What is called in the caller's task for each input that was started, once, in the order
 * in which they end; `error` is 0 or the failure. It may suspend. A negative result cancels
 * the rest, is what weir_fan_out returns, and ends these calls. */
typedef int (*weir_fan_done_fn)(size_t index, int error, void *result, void *keep_arg);

/* In `errors`: the input was never started. */
#define WEIR_FAN_NOT_STARTED 1

/* As `winner`: none. */
#define WEIR_FAN_NOBODY SIZE_MAX

/* name, in_flight_max, policy and fn must be said. */
typedef struct weir_fan_spec {
    const char *name;     /* of the scope; copied, at most 63 bytes */
    size_t in_flight_max; /* at most WEIR_FAN_IN_FLIGHT_MAX */
    enum weir_fan_policy policy;
    weir_fan_fn fn;
    void *keep_arg;     /* of fn and on_done */
    size_t count;       /* inputs; 0: there is nothing to do */
    const void *inputs; /* `count` of them, or NULL: fn goes by the index */
    size_t input_bytes; /* of one; with inputs */
    void *results;      /* `count` of them, or NULL */
    size_t result_bytes;
    int *errors; /* `count` of them: 0, the error, or WEIR_FAN_NOT_STARTED; may be NULL */
    weir_fan_done_fn on_done; /* may be NULL */
    enum weir_place place;    /* of the tasks; default WEIR_ANYWHERE */
    size_t stack_bytes;       /* of the tasks; default: the runtime's */
} weir_fan_spec;

/* weir_fan_spec_init - set every member to "not said". */
static inline void weir_fan_spec_init(weir_fan_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* What has become of the inputs. */
typedef struct weir_fan_tally {
    size_t finished, failed, not_started;
    size_t winner;       /* the first that finished, or WEIR_FAN_NOBODY */
    size_t first_failed; /* or WEIR_FAN_NOBODY */
    size_t in_flight;    /* how many there were at one time at most: less than in_flight_max
                            if there were fewer inputs, or no memory for more tasks */
} weir_fan_tally;

/* weir_fan_out(&spec, &tally) - as above; `ret_tally` (may be NULL) is written whatever
 * happens. Suspends. Returns 0 if every input has finished (WEIR_FAN_FIRST_SUCCESS: if one
 * has), else the first failure. Errors of its own: WEIR_EREFUSED (weir_why), WEIR_ECANCELED,
 * WEIR_ETIMEDOUT (the block's own deadline), WEIR_EOVERLOAD and -ENOMEM (no task at all
 * could be had), WEIR_ENOTASK. */
WEIR_SUSPENDS int weir_fan_out_sized(size_t spec_bytes, const weir_fan_spec *spec,
                                     weir_fan_tally *ret_tally);
#define weir_fan_out(...) weir_fan_out_sized(sizeof(weir_fan_spec), __VA_ARGS__)

WEIR_END

#endif
