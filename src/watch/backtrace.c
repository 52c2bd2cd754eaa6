/* backtrace.c - frames of tasks, by the unwinder of libgcc. */
#include "watch/backtrace.h"

#include <string.h>
#include <unwind.h>

#include "rt/switch.h"
#include "rt/task.h"
#include "watch/symbol.h"

/* The libgcc of a system with glibc finds unwind tables by a call of glibc 2.35. Linked
 * with musl, as musl-gcc does, it lacks that call: here it is, by dl_iterate_phdr(). It is in
 * this file because whoever needs the unwinder has this file. */
#ifdef WEIR_FIND_OBJECT
#include <link.h>

/* As glibc's manual describes it, "Dynamic Linker Introspection". */
struct dl_find_object {
    unsigned long long dlfo_flags;
    void *dlfo_map_start;
    void *dlfo_map_end;
    struct link_map *dlfo_link_map;
    void *dlfo_eh_frame;
    unsigned long long reserved[7];
};

struct finding {
    uintptr_t address;
    struct dl_find_object *result;
};

int _dl_find_object(void *address, struct dl_find_object *ret_object);

static int look_into_object(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct finding *finding = arg;
    const ElfW(Phdr) *inside = NULL, *tables = NULL;

    (void)size;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];

        if (header->p_type == PT_GNU_EH_FRAME) tables = header;
        if (header->p_type == PT_LOAD &&
            finding->address - info->dlpi_addr - header->p_vaddr < header->p_memsz) {
            inside = header;
        }
    }
    if (!inside || !tables) return 0;
    *finding->result = (struct dl_find_object){
        .dlfo_map_start = (void *)(info->dlpi_addr + inside->p_vaddr),
        .dlfo_map_end = (void *)(info->dlpi_addr + inside->p_vaddr + inside->p_memsz),
        .dlfo_eh_frame = (void *)(info->dlpi_addr + tables->p_vaddr),
    };
    return 1;
}

int _dl_find_object(void *address, struct dl_find_object *ret_object)
{
    struct finding finding = {(uintptr_t)address, ret_object};

    return dl_iterate_phdr(look_into_object, &finding) == 1 ? 0 : -1;
}
#endif

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
