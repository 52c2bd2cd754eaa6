/* capture.c - the handler, and asking. */
#include "watch/capture.h"

#include <errno.h>
#include <string.h>
#include <ucontext.h>

#include "rt/sanitize.h"
#include "watch/watchdog.h"

/* Below the stack pointer a function may keep something, and has just left what it took from
 * the stack before it returns: unwind tables still point there. */
enum { RED_ZONE_BYTES = 128 };

/* Of handlers that run at this moment, on any thread. */
static ATOM(int) handlers;

SANITIZE_HANDLER struct work work_of(struct worker *worker)
{
    /* Each changes by itself: together they are the same only if nothing was run meanwhile. */
    return (struct work){
        .task = atom_load_acquire(&worker->current),
        .head = atom_load(&worker->ready.head),
        .started = atom_load(&worker->tasks_started),
        .turns = atom_load(&worker->turns),
    };
}

SANITIZE_HANDLER bool work_same(const struct work *a, const struct work *b)
{
    return a->task == b->task && a->head == b->head && a->started == b->started &&
           a->turns == b->turns;
}

/* ---- The handler ---- */

SANITIZE_HANDLER static void take_registers(struct unwind_start *start, const ucontext_t *context)
{
#if defined(__x86_64__)
    static const int order[] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI,
                                REG_RBP, REG_RSP, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};

    _Static_assert(sizeof order / sizeof order[0] == UNWIND_REGISTERS, "one for each");
    for (int i = 0; i < UNWIND_REGISTERS; i++) {
        start->registers[i] = (uintptr_t)context->uc_mcontext.gregs[order[i]];
    }
    start->pc = (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
#else
    for (int i = 0; i <= 30; i++) start->registers[i] = (uintptr_t)context->uc_mcontext.regs[i];
    start->registers[UNWIND_SP] = (uintptr_t)context->uc_mcontext.sp;
    for (int i = UNWIND_SP + 1; i < UNWIND_REGISTERS; i++) start->registers[i] = 0;
    start->pc = (uintptr_t)context->uc_mcontext.pc;
#endif
}

/* Word by word and unseen by the sanitizers: between the variables of a frame there are
 * places that a program must not touch. */
SANITIZE_HANDLER __attribute__((no_sanitize("address", "undefined"))) static size_t take_stack(
    uintptr_t *copy, uintptr_t from, uintptr_t top)
{
    const volatile uintptr_t *word = (const volatile uintptr_t *)from; // NOLINT
    size_t count = (top - from) / sizeof *word;

    if (count > CAPTURE_BYTES / sizeof *copy) count = CAPTURE_BYTES / sizeof *copy;
    for (size_t i = 0; i < count; i++) copy[i] = word[i];
    return count * sizeof *copy;
}

SANITIZE_HANDLER __attribute__((no_sanitize("address"))) static void take(struct capture *capture,
                                                                          struct worker *worker,
                                                                          const ucontext_t *context)
{
    struct unwind_start *start = &capture->start;
    const struct work work = work_of(worker);
    const struct stack *stack;
    uintptr_t from;

    capture->gone = !work_same(&work, &capture->work);
    if (capture->gone) return;
    take_registers(start, context);
    start->bytes = 0;
    stack = work.task->stack;
    from = start->registers[UNWIND_SP] & ~(uintptr_t)(sizeof(uintptr_t) - 1);
    capture->elsewhere = !stack || from < (uintptr_t)stack->low || from >= (uintptr_t)stack->top;
    if (capture->elsewhere) return;
    from -= RED_ZONE_BYTES;
    if (from < (uintptr_t)stack->low) from = (uintptr_t)stack->low;
    start->low = from;
    start->bytes = take_stack(capture->copy, from, (uintptr_t)stack->top);
}

SANITIZE_HANDLER static void on_question(int signal, siginfo_t *info, void *context)
{
    struct worker *worker = worker_current;
    struct capture *capture;
    int saved_errno = errno;
    int asked = CAPTURE_ASKED;

    (void)signal, (void)info;
    (void)atom_add(&handlers, 1);
    capture = worker ? watchdog_capture(worker->runtime) : NULL;
    /* Whoever sends this signal besides us asks for nothing. */
    if (capture && capture->worker == worker->index &&
        atom_cas(&capture->state, &asked, CAPTURE_TAKING)) {
        take(capture, worker, context);
        atom_store_release(&capture->state, CAPTURE_TAKEN);
    }
    (void)atom_sub(&handlers, 1);
    errno = saved_errno;
}

int capture_install(int signal, struct sigaction *ret_old)
{
    struct sigaction action = {.sa_sigaction = on_question,
                               .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};

    (void)sigemptyset(&action.sa_mask);
    return sanitize_sigaction(signal, &action, ret_old) < 0 ? -errno : 0;
}

void capture_remove(int signal, const struct sigaction *old)
{
    const struct kernel *kernel = kernel_current();
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct sigaction now;

    if (sanitize_sigaction(signal, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) &&
        now.sa_sigaction == on_question) {
        /* To ignore it for a moment drops what is on its way to a thread that has blocked
         * it: many a default action ends the process. */
        (void)sigemptyset(&ignore.sa_mask);
        (void)sanitize_sigaction(signal, &ignore, NULL);
        (void)sanitize_sigaction(signal, old, NULL);
    }
    while (atom_load_total(&handlers) > 0) kernel->thread_yield(kernel);
}

void capture_forget_in_child(void)
{
    atom_store(&handlers, 0);
}

/* ---- Asking ---- */

int capture_ask(struct capture *capture, struct worker *worker, const struct work *work, int signal)
{
    int r;

    if (atom_load_acquire(&capture->state) != CAPTURE_FREE) return -EBUSY;
    capture->worker = worker->index;
    capture->work = *work;
    capture->start.copy = (const unsigned char *)capture->copy;
    atom_store_total(&capture->state, CAPTURE_ASKED);
    r = worker->kernel->thread_signal(worker->kernel, atom_load(&worker->thread_id), signal);
    if (r < 0) (void)capture_done(capture);
    return r;
}

bool capture_done(struct capture *capture)
{
    int asked = CAPTURE_ASKED;
    int taken = CAPTURE_TAKEN;

    return atom_cas(&capture->state, &asked, CAPTURE_FREE) ||
           atom_cas(&capture->state, &taken, CAPTURE_FREE);
}
