/* switch_aarch64.S - the first frame of a stack, and a call with a borrowed caller;
 * aarch64 (AAPCS64). The switch itself is inline, in switch.h.
 */
        .text

/* Where a new stack begins, with the entry function and its argument on it (see
 * switch.c). There is no caller: the return address is undefined, and a backtrace
 * ends here. */
        .globl  switch_entry
        .hidden switch_entry
        .type   switch_entry, %function
        .p2align 4
        .cfi_startproc
        .cfi_undefined x30
        nop /* an unwinder looks one byte before a return address: that is here too */
switch_entry:
        hint    #36 /* bti j */
        mov     x29, xzr
        mov     x30, xzr
        ldp     x1, x0, [sp]
        blr     x1
        brk     #0
        .cfi_endproc
        .size   switch_entry, .-switch_entry

/* void switch_call_as_if_from(const struct switch_context *, void (*fn)(void *), void *arg)
 * While fn runs, x19, x20 and x21 hold the parked stack pointer, return address and
 * frame pointer, and the frame is described as called from there. */
        .globl  switch_call_as_if_from
        .hidden switch_call_as_if_from
        .type   switch_call_as_if_from, %function
        .p2align 4
switch_call_as_if_from:
        .cfi_startproc
        hint    #34 /* bti c */
        stp     x19, x20, [sp, #-32]!
        .cfi_adjust_cfa_offset 32
        .cfi_rel_offset x19, 0
        .cfi_rel_offset x20, 8
        stp     x21, x30, [sp, #16]
        .cfi_rel_offset x21, 16
        .cfi_rel_offset x30, 24
        ldp     x19, x21, [x0]
        ldr     x20, [x0, #16]
        mov     x0, x2
        .cfi_remember_state
        .cfi_def_cfa x19, 0
        .cfi_register x30, x20
        .cfi_register x29, x21
        .cfi_undefined x19
        .cfi_undefined x20
        .cfi_undefined x21
        blr     x1
        .cfi_restore_state
        ldp     x21, x30, [sp, #16]
        .cfi_restore x21
        .cfi_restore x30
        ldp     x19, x20, [sp], #32
        .cfi_adjust_cfa_offset -32
        .cfi_restore x19
        .cfi_restore x20
        ret
        .cfi_endproc
        .size   switch_call_as_if_from, .-switch_call_as_if_from

        .section .note.GNU-stack, "", %progbits

/* Every indirect jump here ends at a landing pad. One object that does not say so
 * takes the protection away from the whole program. (gABI note of AArch64:
 * GNU_PROPERTY_AARCH64_FEATURE_1_AND, bit 0.) */
#if defined(__ARM_FEATURE_BTI_DEFAULT)
        .section .note.gnu.property, "a", %note
        .p2align 3
        .word   4          /* bytes of the name */
        .word   16         /* bytes of the properties */
        .word   5          /* NT_GNU_PROPERTY_TYPE_0 */
        .asciz  "GNU"
        .word   0xc0000000 /* GNU_PROPERTY_AARCH64_FEATURE_1_AND */
        .word   4
        .word   1          /* BTI */
        .word   0
#endif
