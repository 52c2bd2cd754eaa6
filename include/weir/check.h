/* check.h - what the runtime finds wrong with a program's locks and waits.
 *
 * Lock checks: a lock that is held across a suspension; two locks that are taken in both
 * orders, on first sight; a lock that its holder takes again; a task that ends with one.
 * Deadlock checks: tasks that wait for each other, and tasks that wait for what nobody will
 * do. docs/debugging.md says what is found, and what is not; nothing is reported that is not so.
 *
 * Each is said once: to the log as warnings, a line each, to the function of the program that
 * weir_config names, and counted (weir_checks_total{kind}). Checks change nothing, but for one
 * thing: a task that reads and wants to write the same lock is refused, as it would wait for
 * itself.
 *
 * Owner: the runtime. Lifetime: its own. Threads: the function is called on the worker that has
 * found it, maybe on several at once, maybe while others stand still; it must not call weir.
 */
#ifndef WEIR_CHECK_H
#define WEIR_CHECK_H

#include <weir/defs.h>

WEIR_BEGIN

/* Whether checks are made. By default: in builds of the library for debugging and with
 * sanitizers, not in release builds. */
enum weir_checks {
    WEIR_CHECKS_DEFAULT = 0,
    WEIR_CHECKS_ON,
    WEIR_CHECKS_OFF,
};

enum weir_check_kind {
    WEIR_CHECK_ACROSS = 1, /* a lock is held across a suspension */
    WEIR_CHECK_ORDER,      /* locks are taken in both orders */
    WEIR_CHECK_RECURSION,  /* a lock is taken by the task that has it */
    WEIR_CHECK_DEADLOCK,   /* tasks wait for each other */
    WEIR_CHECK_LEAK,       /* a task waits for what nobody will do, or ended with a lock */
};
#define WEIR_CHECK_KINDS 6 /* one more than the last */

/* What was found. It is valid for the call only. */
typedef struct weir_check_report {
    enum weir_check_kind kind;
    const char *text; /* lines with newlines between them; the first is a whole sentence */
    int64_t time_ns;  /* by the runtime's clock */
} weir_check_report;

/* Told of each, once. */
typedef void (*weir_check_fn)(void *keep_arg, const weir_check_report *report);

/* weir_check_name - the kind in a word, as metrics have it: "order". Any thread. */
WEIR_API const char *weir_check_name(enum weir_check_kind kind);

/* weir_check_count - how many the calling task's runtime has found of a kind since it began;
 * 0 outside a runtime. Never suspends. */
WEIR_API uint64_t weir_check_count(enum weir_check_kind kind);

WEIR_END

#endif
