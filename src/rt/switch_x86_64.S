/* switch_x86_64.S - the task switch for x86-64 (System V).
 *
 * Layout of a parked stack, from its saved stack pointer upwards:
 *   0 r15   8 r14   16 r13   24 r12   32 rbx   40 rbp   48 return address
 * switch.c and gdb's script know it too.
 */
#if defined(__CET__)
#include <cet.h>
#else
#define _CET_ENDBR
#endif

        .text

/* void switch_to(void **ret_context, void *context) */
        .globl  switch_to
        .hidden switch_to
        .type   switch_to, @function
        .p2align 4
switch_to:
        .cfi_startproc
        _CET_ENDBR
        pushq   %rbp
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %rbp, 0
        pushq   %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %rbx, 0
        pushq   %r12
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %r12, 0
        pushq   %r13
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %r13, 0
        pushq   %r14
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %r14, 0
        pushq   %r15
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %r15, 0
        movq    %rsp, (%rdi)
        movq    %rsi, %rsp
        popq    %r15
        .cfi_adjust_cfa_offset -8
        .cfi_restore %r15
        popq    %r14
        .cfi_adjust_cfa_offset -8
        .cfi_restore %r14
        popq    %r13
        .cfi_adjust_cfa_offset -8
        .cfi_restore %r13
        popq    %r12
        .cfi_adjust_cfa_offset -8
        .cfi_restore %r12
        popq    %rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbx
        popq    %rbp
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbp
        /* Not `ret`: the processor would predict a return to whoever called last on
         * the stack that was left, and be wrong each time (7 against 2 ns). */
        popq    %rcx
        .cfi_adjust_cfa_offset -8
        .cfi_register %rip, %rcx
        notrack jmp *%rcx
        .cfi_endproc
        .size   switch_to, .-switch_to

/* Where a new stack begins: r12 is the entry function, r13 its argument. There is
 * no caller: the return address is undefined, and a backtrace ends here. */
        .globl  switch_entry
        .hidden switch_entry
        .type   switch_entry, @function
        .p2align 4
switch_entry:
        .cfi_startproc
        .cfi_undefined %rip
        _CET_ENDBR
        xorl    %ebp, %ebp
        movq    %r13, %rdi
        call    *%r12
        ud2
        .cfi_endproc
        .size   switch_entry, .-switch_entry

/* void switch_call_as_if_from(void *context, void (*fn)(void *), void *arg)
 * While fn runs, rbx holds the parked stack pointer and the frame is described
 * as the parked one: its registers and return address are found there. */
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
        movq    %rdi, %rbx
        movq    %rdx, %rdi
        .cfi_remember_state
        .cfi_def_cfa %rbx, 56
        .cfi_offset %rip, -8
        .cfi_offset %rbp, -16
        .cfi_offset %rbx, -24
        .cfi_offset %r12, -32
        .cfi_offset %r13, -40
        .cfi_offset %r14, -48
        .cfi_offset %r15, -56
        call    *%rsi
        .cfi_restore_state
        popq    %rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbx
        ret
        .cfi_endproc
        .size   switch_call_as_if_from, .-switch_call_as_if_from

        .section .note.GNU-stack, "", @progbits
