/* backtrace.c - frames of tasks, by the unwinder of libgcc. */
#include "watch/backtrace.h"

#include <string.h>
#include <unwind.h>

#include "rt/switch.h"
#include "rt/task.h"
#include "watch/symbol.h"

/* Frames of the library above its public call. */
enum { PUBLIC_CALL_DEPTH_MAX = 8 };

struct collecting {
    struct backtrace *backtrace;
    uintptr_t begins_after; /* start of the last function that is our own */
    uintptr_t low;          /* of the stack; 0: not known */
    uintptr_t top;
    bool begun;
};

/* The frame of switch_entry, below task_main, has the end of the stack as its own
 * stack pointer, so `top` itself is still inside. */
static bool inside(const struct collecting *collecting, uintptr_t stack_pointer)
{
    if (collecting->low == 0) return true;
    return stack_pointer >= collecting->low && stack_pointer <= collecting->top;
}

static _Unwind_Reason_Code take_frame(struct _Unwind_Context *context, void *arg)
{
    struct collecting *collecting = arg;
    struct backtrace *backtrace = collecting->backtrace;
    uintptr_t function = (uintptr_t)_Unwind_GetRegionStart(context);
    int before_instruction = 0;
    uintptr_t address = (uintptr_t)_Unwind_GetIPInfo(context, &before_instruction);

    if (!collecting->begun) {
        collecting->begun = function == collecting->begins_after;
        return _URC_NO_REASON;
    }
    if (address == 0 || function == (uintptr_t)task_main) return _URC_END_OF_STACK;
    if (!inside(collecting, (uintptr_t)_Unwind_GetCFA(context))) return _URC_END_OF_STACK;
    if (backtrace->count == BACKTRACE_FRAMES_MAX) {
        backtrace->cut = true;
        return _URC_END_OF_STACK;
    }
    /* A frame that was interrupted by a signal is at its next instruction; all others
     * are behind a call. */
    backtrace->frames[backtrace->count++] = before_instruction ? address : address - 1;
    return _URC_NO_REASON;
}

static void collect(void *arg)
{
    (void)_Unwind_Backtrace(take_frame, arg);
}

void backtrace_parked(const struct switch_context *context, const void *low, const void *top,
                      struct backtrace *ret_backtrace)
{
    struct collecting collecting = {
        .backtrace = ret_backtrace,
        .begins_after = (uintptr_t)switch_call_as_if_from,
        .low = (uintptr_t)low,
        .top = (uintptr_t)top,
    };

    memset(ret_backtrace, 0, sizeof *ret_backtrace);
    switch_call_as_if_from(context, collect, &collecting);
}

__attribute__((noinline)) void backtrace_here(struct backtrace *ret_backtrace)
{
    struct collecting collecting = {
        .backtrace = ret_backtrace,
        .begins_after = (uintptr_t)backtrace_here,
    };

    memset(ret_backtrace, 0, sizeof *ret_backtrace);
    (void)_Unwind_Backtrace(take_frame, &collecting);
}

unsigned backtrace_first(const struct backtrace *backtrace, struct symbol_table *symbols)
{
    static const char prefix[] = "weir_";
    struct symbol symbol;

    for (unsigned i = 0; i < backtrace->count && i < PUBLIC_CALL_DEPTH_MAX; i++) {
        if (symbol_find(symbols, backtrace->frames[i], &symbol) == 0 && symbol.name &&
            strncmp(symbol.name, prefix, sizeof prefix - 1) == 0) {
            return i;
        }
    }
    return 0;
}
