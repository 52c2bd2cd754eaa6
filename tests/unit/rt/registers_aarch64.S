/* registers_aarch64.S - a call whose caller keeps a value in every register that calls
 * must preserve (AAPCS64: x19 to x29, d8 to d15). See registers.h.
 */
        .text
        .globl  registers_across
        .type   registers_across, %function
        .p2align 4
registers_across:
        .cfi_startproc
        hint    #34 /* bti c */
        stp     x29, x30, [sp, #-192]!
        .cfi_def_cfa_offset 192
        .cfi_offset x29, -192
        .cfi_offset x30, -184
        stp     x19, x20, [sp, #16]
        stp     x21, x22, [sp, #32]
        stp     x23, x24, [sp, #48]
        stp     x25, x26, [sp, #64]
        stp     x27, x28, [sp, #80]
        stp     d8, d9, [sp, #96]
        stp     d10, d11, [sp, #112]
        stp     d12, d13, [sp, #128]
        stp     d14, d15, [sp, #144]
        str     x2, [sp, #160]
        mov     x9, x0
        mov     x0, x1
        add     x19, x2, #19
        add     x20, x2, #20
        add     x21, x2, #21
        add     x22, x2, #22
        add     x23, x2, #23
        add     x24, x2, #24
        add     x25, x2, #25
        add     x26, x2, #26
        add     x27, x2, #27
        add     x28, x2, #28
        add     x29, x2, #29
        .irp    n, 8, 9, 10, 11, 12, 13, 14, 15
        add     x10, x2, #\n
        fmov    d\n, x10
        .endr
        blr     x9
        ldr     x2, [sp, #160]
        mov     x0, xzr
        .irp    n, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29
        add     x10, x2, #\n
        cmp     x10, x\n
        cset    x11, ne
        orr     x0, x0, x11, lsl #\n
        .endr
        .irp    n, 8, 9, 10, 11, 12, 13, 14, 15
        fmov    x12, d\n
        add     x10, x2, #\n
        cmp     x10, x12
        cset    x11, ne
        orr     x0, x0, x11, lsl #\n
        .endr
        ldp     d14, d15, [sp, #144]
        ldp     d12, d13, [sp, #128]
        ldp     d10, d11, [sp, #112]
        ldp     d8, d9, [sp, #96]
        ldp     x27, x28, [sp, #80]
        ldp     x25, x26, [sp, #64]
        ldp     x23, x24, [sp, #48]
        ldp     x21, x22, [sp, #32]
        ldp     x19, x20, [sp, #16]
        ldp     x29, x30, [sp], #192
        .cfi_restore x29
        .cfi_restore x30
        .cfi_def_cfa_offset 0
        ret
        .cfi_endproc
        .size   registers_across, .-registers_across

        .section .note.GNU-stack, "", %progbits
