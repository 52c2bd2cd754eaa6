/* error.h - error codes and the reasons behind a refusal.
 *
 * Calls return 0 or a count on success and a negative value on failure: the
 * kernel's errno as it is (-ECONNRESET), or one of the codes below. Ours lie
 * under -4096, so that neither can be mistaken for the other. They are never
 * folded into one another: each asks for a different reaction.
 */
#ifndef WEIR_ERROR_H
#define WEIR_ERROR_H

#include <weir/defs.h>

WEIR_BEGIN

enum weir_error {
    WEIR_ECANCELED = -4097,   /* the scope is cancelled: clean up and return (weir_cause) */
    WEIR_ETIMEDOUT = -4098,   /* this block's own deadline has passed */
    WEIR_ECLOSED = -4099,     /* the other side, or the object itself, is closed */
    WEIR_EOVERLOAD = -4100,   /* a bound is reached and its policy is to reject */
    WEIR_ESTOPPING = -4101,   /* the scope is stopping: finish what you have, take on no more */
    WEIR_EREFUSED = -4102,    /* a spec leaves something out or contradicts itself: weir_why() */
    WEIR_ENODEADLINE = -4103, /* a wait on I/O with no deadline in force: weir_why() */
    WEIR_ENOTASK = -4104,     /* called outside a task, or in a forked child: weir_why() */
    WEIR_EINUSE = -4105,      /* another task is doing the same to this object right now */
    WEIR_ENONAME = -4106,     /* the name does not exist: weir_why() */
    WEIR_ENAMESERVER = -4107, /* the name could not be looked up now: weir_why() */
    WEIR_EEXIT = -4108,       /* a process ended, and not as it should have: weir_why() */
    WEIR_EOVERTIME = -4109,   /* a job took longer than its pool allows: weir_why() */
    WEIR_EPROTOCOL = -4110,   /* the other side does not keep to the protocol: weir_why() */
    WEIR_ECRASHED = -4111,    /* who was at it failed in the middle: it may have happened or not */
    WEIR_EBREAKER = -4112,    /* a breaker is open: it was not tried */
    WEIR_EFOUND = -4113,      /* a simulated run failed: weir_sim_result says which and why */
};

/* weir_strerror - a sentence for a code of ours or of the kernel's.
 * Never suspends, never NULL; the string is valid for the whole run. Any thread. */
WEIR_API const char *weir_strerror(int error);

/* weir_error_name - the code's own name ("WEIR_ECANCELED", "ECONNRESET").
 * Never suspends, never NULL. Any thread. */
WEIR_API const char *weir_error_name(int error);

/* weir_why - the sentence of the calling task's last refusal, which names the
 * boundary and the member ("scope 'fetch': overflow is not set"), or "" if there
 * was none. Outside a task: of the calling thread. The string is valid until the
 * next refusal of the same task. Never suspends. Any thread. */
WEIR_API const char *weir_why(void);

WEIR_END

#endif
