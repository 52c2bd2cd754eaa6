/* switch.c - lay out a new stack the way switch_*.S leaves a parked one. */
#include "rt/switch.h"

#include <stdint.h>
#include <string.h>

void switch_entry(void); /* switch_*.S; not called from C */

#if defined(__x86_64__)
/* The ninth word keeps the stack 16-byte aligned at the entry's call. */
enum { WORDS = 9, WORD_ENTRY = 3 /* r12 */, WORD_ARG = 2 /* r13 */, WORD_RETURN = 6 };
#elif defined(__aarch64__)
enum { WORDS = 20, WORD_ENTRY = 0 /* x19 */, WORD_ARG = 1 /* x20 */, WORD_RETURN = 11 /* x30 */ };
#else
#error "weir has a task switch for x86-64 and aarch64 only"
#endif

void *switch_prepare(void *top, void (*entry)(void *arg), void *arg)
{
    uintptr_t words[WORDS];
    char *context = (char *)top - sizeof words;
    memset(words, 0, sizeof words);
    words[WORD_ENTRY] = (uintptr_t)entry;
    words[WORD_ARG] = (uintptr_t)arg;
    words[WORD_RETURN] = (uintptr_t)switch_entry;
    memcpy(context, words, sizeof words);
    return context;
}
