/* switch_aarch64.S - the task switch for aarch64 (AAPCS64).
 *
 * Layout of a parked stack, from its saved stack pointer upwards:
 *   0 x19 x20   16 x21 x22   32 x23 x24   48 x25 x26   64 x27 x28
 *   80 x29 x30   96 d8 d9   112 d10 d11   128 d12 d13   144 d14 d15
 * switch.c and gdb's script know it too.
 */
        .text

/* void switch_to(void **ret_context, void *context) */
        .globl  switch_to
        .hidden switch_to
        .type   switch_to, %function
        .p2align 4
switch_to:
        .cfi_startproc
        hint    #34 /* bti c */
        sub     sp, sp, #160
        .cfi_adjust_cfa_offset 160
        stp     x19, x20, [sp, #0]
        .cfi_rel_offset x19, 0
        .cfi_rel_offset x20, 8
        stp     x21, x22, [sp, #16]
        .cfi_rel_offset x21, 16
        .cfi_rel_offset x22, 24
        stp     x23, x24, [sp, #32]
        .cfi_rel_offset x23, 32
        .cfi_rel_offset x24, 40
        stp     x25, x26, [sp, #48]
        .cfi_rel_offset x25, 48
        .cfi_rel_offset x26, 56
        stp     x27, x28, [sp, #64]
        .cfi_rel_offset x27, 64
        .cfi_rel_offset x28, 72
        stp     x29, x30, [sp, #80]
        .cfi_rel_offset x29, 80
        .cfi_rel_offset x30, 88
        stp     d8, d9, [sp, #96]
        stp     d10, d11, [sp, #112]
        stp     d12, d13, [sp, #128]
        stp     d14, d15, [sp, #144]
        mov     x9, sp
        str     x9, [x0]
        mov     sp, x1
        ldp     x19, x20, [sp, #0]
        ldp     x21, x22, [sp, #16]
        ldp     x23, x24, [sp, #32]
        ldp     x25, x26, [sp, #48]
        ldp     x27, x28, [sp, #64]
        ldp     x29, x30, [sp, #80]
        ldp     d8, d9, [sp, #96]
        ldp     d10, d11, [sp, #112]
        ldp     d12, d13, [sp, #128]
        ldp     d14, d15, [sp, #144]
        add     sp, sp, #160
        .cfi_adjust_cfa_offset -160
        .cfi_restore x19
        .cfi_restore x20
        .cfi_restore x21
        .cfi_restore x22
        .cfi_restore x23
        .cfi_restore x24
        .cfi_restore x25
        .cfi_restore x26
        .cfi_restore x27
        .cfi_restore x28
        .cfi_restore x29
        .cfi_restore x30
        ret
        .cfi_endproc
        .size   switch_to, .-switch_to

/* Where a new stack begins: x19 is the entry function, x20 its argument. There is
 * no caller: the return address is undefined, and a backtrace ends here. */
        .globl  switch_entry
        .hidden switch_entry
        .type   switch_entry, %function
        .p2align 4
switch_entry:
        .cfi_startproc
        .cfi_undefined x30
        hint    #36 /* bti j */
        mov     x29, xzr
        mov     x0, x20
        blr     x19
        brk     #0
        .cfi_endproc
        .size   switch_entry, .-switch_entry

/* void switch_call_as_if_from(void *context, void (*fn)(void *), void *arg)
 * While fn runs, x19 holds the parked stack pointer and the frame is described
 * as the parked one: its registers and return address are found there. */
        .globl  switch_call_as_if_from
        .hidden switch_call_as_if_from
        .type   switch_call_as_if_from, %function
        .p2align 4
switch_call_as_if_from:
        .cfi_startproc
        hint    #34 /* bti c */
        stp     x19, x30, [sp, #-16]!
        .cfi_adjust_cfa_offset 16
        .cfi_rel_offset x19, 0
        .cfi_rel_offset x30, 8
        mov     x19, x0
        mov     x0, x2
        .cfi_remember_state
        .cfi_def_cfa x19, 160
        .cfi_offset x19, -160
        .cfi_offset x20, -152
        .cfi_offset x21, -144
        .cfi_offset x22, -136
        .cfi_offset x23, -128
        .cfi_offset x24, -120
        .cfi_offset x25, -112
        .cfi_offset x26, -104
        .cfi_offset x27, -96
        .cfi_offset x28, -88
        .cfi_offset x29, -80
        .cfi_offset x30, -72
        blr     x1
        .cfi_restore_state
        ldp     x19, x30, [sp], #16
        .cfi_adjust_cfa_offset -16
        .cfi_restore x19
        .cfi_restore x30
        ret
        .cfi_endproc
        .size   switch_call_as_if_from, .-switch_call_as_if_from

        .section .note.GNU-stack, "", %progbits
