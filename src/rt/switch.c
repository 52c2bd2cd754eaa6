/* switch.c - lay out a new stack. */
#include "rt/switch.h"

#include <stddef.h>
#include <stdint.h>

void switch_entry(void); /* switch_*.S; not called from C */

void switch_prepare(struct switch_context *ret_context, void *top, void (*entry)(void *arg),
                    void *arg)
{
    /* switch_entry finds both at its stack pointer, which stays 16-byte aligned. */
    uintptr_t *words = (uintptr_t *)top - 2;
    words[0] = (uintptr_t)entry;
    words[1] = (uintptr_t)arg;
    ret_context->sp = words;
    ret_context->fp = NULL;
    ret_context->pc = (void *)(uintptr_t)switch_entry;
}
