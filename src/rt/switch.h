/* switch.h - leave one stack, go on with another.
 *
 * A context is where a stack was left: stack pointer, frame pointer, and the
 * address to go on at. The switch is inline assembly that declares every other
 * register as lost, so the compiler keeps what is alive on the stack, and there is
 * no call whose return the processor would predict wrongly. The floating-point
 * control words are not part of a context: a task that changes them must put them
 * back before it suspends.
 *
 * The compiler's own unwind tables describe the place of the switch, so a debugger
 * and the unwinder see through it from (sp, fp, pc); a task's backtrace ends at
 * switch_entry, which has no caller.
 */
#ifndef WEIR_RT_SWITCH_H
#define WEIR_RT_SWITCH_H

struct switch_context {
    void *sp;
    void *fp;
    void *pc;
};

/* Lay out a new stack so that switching to the context calls entry(arg), which
 * must not return. `top` is 16-byte aligned. */
void switch_prepare(struct switch_context *ret_context, void *top, void (*entry)(void *arg),
                    void *arg);

/* Call fn(arg) on the calling stack, with an unwinder led to believe that it was
 * called from the parked `context`: a backtrace taken in `fn` continues there.
 * The context's stack is read, not touched. */
void switch_call_as_if_from(const struct switch_context *context, void (*fn)(void *arg), void *arg);

/* For a function that parks and then returns at once: by a jump, since the processor has the
 * address of another task's call at hand, and to find that out costs more than all the rest.
 * switch_x86_64.S has what it jumps to. */
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)
#define SWITCH_RETURNS __attribute__((noinline, function_return("thunk-extern")))
#else
#define SWITCH_RETURNS __attribute__((noinline))
#endif

/* For such a function whose only variable with an address is a struct that others link into their
 * queues: there is no array that could be written beyond its end, so nothing to guard. */
#define SWITCH_UNGUARDED __attribute__((no_stack_protector))

/* The stack pointer of the caller, as a switch from here saves it. */
static inline __attribute__((always_inline)) const void *switch_sp(void)
{
    const void *sp;
#if defined(__x86_64__)
    __asm__("movq %%rsp, %0" : "=r"(sp));
#else
    __asm__("mov %0, sp" : "=r"(sp));
#endif
    return sp;
}

/* Save the calling context to *from and go on with *to. Returns when somebody
 * switches to *from. */
static inline __attribute__((always_inline)) void switch_to(struct switch_context *from,
                                                            const struct switch_context *to)
{
#if defined(__x86_64__)
    __asm__ volatile("leaq    1f(%%rip), %%rcx\n\t"
                     "movq    %%rsp, 0(%%rax)\n\t"
                     "movq    %%rbp, 8(%%rax)\n\t"
                     "movq    %%rcx, 16(%%rax)\n\t"
                     "movq    0(%%rdx), %%rsp\n\t"
                     "movq    8(%%rdx), %%rbp\n\t"
                     "notrack jmp *16(%%rdx)\n"
                     "1:\n\t"
                     : "+a"(from), "+d"(to)
                     :
                     : "rbx", "rcx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
                       "r15", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
                       "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "st",
                       "st(1)", "st(2)", "st(3)", "st(4)", "st(5)", "st(6)", "st(7)", "mm0", "mm1",
                       "mm2", "mm3", "mm4", "mm5", "mm6", "mm7",
#if defined(__AVX512F__)
                       "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23",
                       "xmm24", "xmm25", "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31", "k1",
                       "k2", "k3", "k4", "k5", "k6", "k7",
#endif
                       "cc", "memory");
#elif defined(__aarch64__)
    register struct switch_context *x0 __asm__("x0") = from;
    register const struct switch_context *x1 __asm__("x1") = to;
    __asm__ volatile("adr     x2, 1f\n\t"
                     "mov     x3, sp\n\t"
                     "stp     x3, x29, [x0]\n\t"
                     "str     x2, [x0, #16]\n\t"
                     "ldp     x3, x29, [x1]\n\t"
                     "ldr     x16, [x1, #16]\n\t"
                     "mov     sp, x3\n\t"
                     "br      x16\n"
                     "1:\n\t"
                     "hint    #36\n\t" /* bti j */
                     : "+r"(x0), "+r"(x1)
                     :
                     : "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13",
                       "x14", "x15", "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24",
                       "x25", "x26", "x27", "x28", "x30", "v0", "v1", "v2", "v3", "v4", "v5", "v6",
                       "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17",
                       "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28",
                       "v29", "v30", "v31",
#if defined(__ARM_FEATURE_SVE)
                       "p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9", "p10", "p11",
                       "p12", "p13", "p14", "p15",
#if !defined(__clang__) /* clang has no name for it, and keeps nothing in it */
                       "ffr",
#endif
#endif
                       "cc", "memory");
#else
#error "weir has a task switch for x86-64 and aarch64 only"
#endif
}

#endif
