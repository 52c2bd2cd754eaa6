/* defs.h - the words that every public header uses.
 *
 * WEIR_SUSPENDS marks a call that may park the calling task; every other call
 * returns without giving up the worker. A suspending call's result may not be
 * ignored: it is how cancellation arrives.
 */
#ifndef WEIR_DEFS_H
#define WEIR_DEFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#ifdef __cplusplus
#define WEIR_BEGIN extern "C" {
#define WEIR_END }
#else
#define WEIR_BEGIN
#define WEIR_END
#endif

#define WEIR_VERSION_MAJOR 0
#define WEIR_VERSION_MINOR 1
#define WEIR_VERSION_PATCH 0

#define WEIR_API __attribute__((visibility("default")))
#define WEIR_MUST_USE __attribute__((warn_unused_result))

/* A local that is filled before it is read, in code built with -ftrivial-auto-var-init. */
#if defined(__has_attribute)
#if __has_attribute(uninitialized)
#define WEIR_UNINITIALIZED_ __attribute__((uninitialized))
#endif
#endif
#ifndef WEIR_UNINITIALIZED_
#define WEIR_UNINITIALIZED_
#endif

/* Where a call was made, for messages that name both places of a misuse. */
#define WEIR_STRINGIZE_(x) #x
#define WEIR_STRINGIZE(x) WEIR_STRINGIZE_(x)
#define WEIR_HERE (__FILE__ ":" WEIR_STRINGIZE(__LINE__))

WEIR_BEGIN

/* With clang -Wthread-safety, code that holds a short lock also holds this
 * role, and every WEIR_SUSPENDS call excludes it: "cannot call 'weir_yield'
 * while role 'weir_no_park' is held". */
#if defined(__clang__)
struct __attribute__((capability("role"))) weir_role {
    char unused;
};
extern struct weir_role weir_no_park;
#define WEIR_NO_PARK_EXCLUDED __attribute__((locks_excluded(weir_no_park)))
#else
#define WEIR_NO_PARK_EXCLUDED
#endif

/* Never inlined: a backtrace of a parked task names the call it is parked in. */
#define WEIR_SUSPENDS WEIR_API WEIR_MUST_USE WEIR_NO_PARK_EXCLUDED __attribute__((noinline))

/* What a full boundary does with more. The zero value is "not said" and is
 * refused wherever a policy is asked for. */
enum weir_overflow {
    WEIR_OVERFLOW_UNSET = 0,
    WEIR_WAIT,        /* the caller is parked until there is room */
    WEIR_REJECT,      /* the caller gets WEIR_EOVERLOAD at once */
    WEIR_DROP_NEWEST, /* what comes now is dropped, and counted */
    WEIR_DROP_OLDEST, /* what has waited longest is dropped, and counted */
};

/* What becomes of what is still in a boundary when it is closed. */
enum weir_on_close {
    WEIR_ON_CLOSE_UNSET = 0,
    WEIR_DRAIN,   /* it is worked off first */
    WEIR_DISCARD, /* it is dropped, and whoever waits for it is told */
};

/* What a task runs. 0 or more is success; negative is a failure and goes to the
 * task's scope. `arg` is the task's own copy of what was given to spawn. */
typedef int (*weir_task_fn)(void *arg);

typedef struct weir_scope weir_scope;
typedef struct weir_runtime weir_runtime;

WEIR_END

#endif
