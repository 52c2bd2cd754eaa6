/* raw_calls_aarch64.c - this processor's kernel hands no calls to the program. */
#include <errno.h>

#include "sim/raw_calls.h"

volatile char raw_calls_selector;

int raw_calls_enable(void (*caught)(const char *call, const char *places))
{
    (void)caught;
    return -ENOTSUP;
}

void raw_calls_disable(void)
{
}

bool raw_calls_possible(void)
{
    return false;
}
