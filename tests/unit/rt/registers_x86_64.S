/* registers_x86_64.S - a call whose caller keeps a value in every register that calls
 * must preserve (System V: rbx, rbp, r12 to r15). See registers.h.
 */
#if defined(__CET__)
#include <cet.h>
#else
#define _CET_ENDBR
#endif

        .text
        .globl  registers_across
        .type   registers_across, @function
        .p2align 4
registers_across:
        .cfi_startproc
        _CET_ENDBR
        .irp    r, rbx, rbp, r12, r13, r14, r15
        pushq   %\r
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %\r, 0
        .endr
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        movq    %rdi, %rax
        movq    %rsi, %rdi
        leaq    1(%rdx), %rbx
        leaq    2(%rdx), %rbp
        leaq    3(%rdx), %r12
        leaq    4(%rdx), %r13
        leaq    5(%rdx), %r14
        leaq    6(%rdx), %r15
        call    *%rax
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        xorl    %eax, %eax
        .irp    r, rbx, rbp, r12, r13, r14, r15
        addq    $1, %rdx
        xorl    %ecx, %ecx
        cmpq    %\r, %rdx
        setne   %cl
        leaq    (%rcx, %rax, 2), %rax
        .endr
        .irp    r, r15, r14, r13, r12, rbp, rbx
        popq    %\r
        .cfi_adjust_cfa_offset -8
        .cfi_restore %\r
        .endr
        ret
        .cfi_endproc
        .size   registers_across, .-registers_across

        .section .note.GNU-stack, "", @progbits
