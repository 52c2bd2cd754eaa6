/* crash.c - ending without a warning. */
#include "crash.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static const char *const names[CRASH_STEPS] = {
    [CRASH_NEVER] = "never",
    [CRASH_ORDER_WRITTEN] = "order-written",
    [CRASH_ROW_WRITTEN] = "row-written",
    [CRASH_COMMITTED] = "committed",
    [CRASH_PEEKED] = "peeked",
    [CRASH_ENQUEUED] = "enqueued",
    [CRASH_MARKING] = "marking",
    [CRASH_MARKED] = "marked",
    [CRASH_LEASED] = "leased",
    [CRASH_MAILING] = "mailing",
    [CRASH_MAILED] = "mailed",
    [CRASH_ACKED] = "acked",
};

bool crash_step_from(const char *name, enum crash_step *ret_step)
{
    for (int i = 0; i < CRASH_STEPS; i++) {
        if (strcmp(name, names[i]) == 0) {
            *ret_step = (enum crash_step)i;
            return true;
        }
    }
    return false;
}

const char *crash_step_names(void)
{
    return "order-written row-written committed peeked enqueued marking marked leased mailing "
           "mailed acked";
}

void crash_at(struct crash *crash, enum crash_step step)
{
    if (crash->step != step) return;
    if (atomic_fetch_add(&crash->passed, 1) + 1 == crash->after) (void)kill(getpid(), SIGKILL);
}
