/* switch_x86_64.S - the first frame of a stack, and a call with a borrowed caller;
 * x86-64 (System V). The switch itself is inline, in switch.h.
 */
#if defined(__CET__)
#include <cet.h>
#else
#define _CET_ENDBR
#endif

        .text

/* Where a new stack begins, with the entry function and its argument on it (see
 * switch.c). There is no caller: the return address is undefined, and a backtrace
 * ends here. */
        .globl  switch_entry
        .hidden switch_entry
        .type   switch_entry, @function
        .p2align 4
        .cfi_startproc
        .cfi_undefined %rip
        nop /* an unwinder looks one byte before a return address: that is here too */
switch_entry:
        _CET_ENDBR
        xorl    %ebp, %ebp
        movq    0(%rsp), %rax
        movq    8(%rsp), %rdi
        call    *%rax
        ud2
        .cfi_endproc
        .size   switch_entry, .-switch_entry

/* void switch_call_as_if_from(const struct switch_context *, void (*fn)(void *), void *arg)
 * While fn runs, rbx, r12 and r13 hold the parked stack pointer, return address and
 * frame pointer, and the frame is described as called from there. */
        .globl  switch_call_as_if_from
        .hidden switch_call_as_if_from
        .type   switch_call_as_if_from, @function
        .p2align 4
switch_call_as_if_from:
        .cfi_startproc
        _CET_ENDBR
        pushq   %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %rbx, 0
        pushq   %r12
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %r12, 0
        pushq   %r13
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %r13, 0
        movq    0(%rdi), %rbx
        movq    16(%rdi), %r12
        movq    8(%rdi), %r13
        movq    %rdx, %rdi
        .cfi_remember_state
        .cfi_def_cfa %rbx, 0
        .cfi_register %rip, %r12
        .cfi_register %rbp, %r13
        .cfi_undefined %rbx
        .cfi_undefined %r12
        .cfi_undefined %r13
        call    *%rsi
        .cfi_restore_state
        popq    %r13
        .cfi_adjust_cfa_offset -8
        .cfi_restore %r13
        popq    %r12
        .cfi_adjust_cfa_offset -8
        .cfi_restore %r12
        popq    %rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbx
        ret
        .cfi_endproc
        .size   switch_call_as_if_from, .-switch_call_as_if_from

# SWITCH_RETURNS of switch.h: return by a jump. The name is the compiler's.
        .globl  __x86_return_thunk
        .hidden __x86_return_thunk
        .type   __x86_return_thunk, @function
        .p2align 4
__x86_return_thunk:
        .cfi_startproc
        popq    %rcx
        .cfi_adjust_cfa_offset -8
        .cfi_register %rip, %rcx
        notrack jmp *%rcx
        .cfi_endproc
        .size   __x86_return_thunk, .-__x86_return_thunk

        .section .note.GNU-stack, "", @progbits
