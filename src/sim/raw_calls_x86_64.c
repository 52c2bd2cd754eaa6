/* raw_calls_x86_64.c - system calls of the program come here first.
 *
 * The kernel raises SIGSYS at the call instead of making it. The handler lowers the
 * selector, makes the call with the same registers, puts the result where the call would have,
 * and raises the selector again. What is left is to return from the handler, a system call
 * itself: it is made by raw_calls_restore below, the one place that is always let through. The
 * documentation of the kernel, "Syscall User Dispatch", has the rules.
 *
 * The handler interrupts a system call only, never other code, hence it may do what
 * the place of the call may do.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "rt/sanitize.h"
#include "sim/places.h"
#include "sim/raw_calls.h"
#include "watch/backtrace.h"

/* Not in the kernel headers of every system that this compiles on. */
enum {
    SET_SYSCALL_USER_DISPATCH = 59,
    DISPATCH_OFF = 0,
    DISPATCH_ON = 1,
    RESTORER_FLAG = 0x04000000, /* SA_RESTORER */
    RESTORER_BYTES = 9,
    FRAMES_OF_THE_HANDLER = 3, /* look, on_call, and the one that the kernel makes for it */
    PLACES_BYTES = 160,
    /* Of futex(2): what it is asked to do, without how; and what of that waits. */
    FUTEX_OPERATION = 127,
    FUTEX_OP_WAIT = 0,
    FUTEX_OP_LOCK_PI = 6,
    FUTEX_OP_WAIT_BITSET = 9,
    FUTEX_OP_WAIT_REQUEUE_PI = 11,
    FUTEX_OP_LOCK_PI2 = 13,
};

volatile char raw_calls_selector;

static void (*on_caught)(const char *call, const char *places);
static pid_t enabled_in; /* 0: nowhere; a forked child is another one */

/* What libgcc's unwinder knows a signal's frame by is these very bytes, and that no unwind
 * table covers them or the byte before. */
void raw_calls_restore(void);
__asm__(".text\n"
        ".p2align 4\n"
        "nop; nop; nop; nop; nop; nop; nop; nop\n"
        ".globl raw_calls_restore\n"
        ".hidden raw_calls_restore\n"
        ".type raw_calls_restore, @function\n"
        "raw_calls_restore:\n"
        ".byte 0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00\n" /* mov $15, %rax */
        ".byte 0x0f, 0x05\n"                               /* syscall */
        ".size raw_calls_restore, . - raw_calls_restore\n");

/* As the kernel has it, not as libc has it. */
struct kernel_sigaction {
    void (*handler)(int, siginfo_t *, void *);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

static long make_call(long number, const long arguments[6])
{
    register long r10 __asm__("r10");
    register long r8 __asm__("r8");
    register long r9 __asm__("r9");
    long result;

    r10 = arguments[3];
    r8 = arguments[4];
    r9 = arguments[5];
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(arguments[0]), "S"(arguments[1]), "d"(arguments[2]),
                       "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

/* ---- Which calls ---- */

enum call_rule {
    CALL_HARMLESS, /* whatever is not in the table */
    CALL_BLOCKS,
    CALL_READS,   /* harmless for regular files */
    CALL_FUTEX,   /* harmless unless it waits */
    CALL_CONTROL, /* fcntl: harmless unless it waits for a lock */
    CALL_POLLS,   /* harmless if it is for writing only, as printing is: so the dump of a misuse */
};

struct call_row {
    const char *name;
    enum call_rule rule;
};

#define ROW(name_, rule_) [SYS_##name_] = {#name_, rule_}

static const struct call_row calls[] = {
    ROW(read, CALL_READS),
    ROW(readv, CALL_READS),
    ROW(pread64, CALL_READS),
    ROW(preadv, CALL_READS),
    ROW(preadv2, CALL_READS),
    ROW(futex, CALL_FUTEX),
    ROW(fcntl, CALL_CONTROL),
    ROW(nanosleep, CALL_BLOCKS),
    ROW(clock_nanosleep, CALL_BLOCKS),
    ROW(pause, CALL_BLOCKS),
    ROW(poll, CALL_POLLS),
    ROW(ppoll, CALL_BLOCKS),
    ROW(select, CALL_BLOCKS),
    ROW(pselect6, CALL_BLOCKS),
    ROW(epoll_wait, CALL_BLOCKS),
    ROW(epoll_pwait, CALL_BLOCKS),
    [441] = {"epoll_pwait2", CALL_BLOCKS},
    [426] = {"io_uring_enter", CALL_BLOCKS},
    [449] = {"futex_waitv", CALL_BLOCKS},
    ROW(recvfrom, CALL_BLOCKS),
    ROW(recvmsg, CALL_BLOCKS),
    ROW(recvmmsg, CALL_BLOCKS),
    ROW(accept, CALL_BLOCKS),
    ROW(accept4, CALL_BLOCKS),
    ROW(connect, CALL_BLOCKS),
    ROW(sendfile, CALL_BLOCKS),
    ROW(splice, CALL_BLOCKS),
    ROW(wait4, CALL_BLOCKS),
    ROW(waitid, CALL_BLOCKS),
    ROW(rt_sigtimedwait, CALL_BLOCKS),
    ROW(rt_sigsuspend, CALL_BLOCKS),
    ROW(flock, CALL_BLOCKS),
    ROW(fsync, CALL_BLOCKS),
    ROW(fdatasync, CALL_BLOCKS),
    ROW(sync, CALL_BLOCKS),
    ROW(syncfs, CALL_BLOCKS),
    ROW(msync, CALL_BLOCKS),
    ROW(msgrcv, CALL_BLOCKS),
    ROW(msgsnd, CALL_BLOCKS),
    ROW(semop, CALL_BLOCKS),
    ROW(semtimedop, CALL_BLOCKS),
    ROW(mq_timedreceive, CALL_BLOCKS),
    ROW(mq_timedsend, CALL_BLOCKS),
    ROW(clone, CALL_BLOCKS),
    [435] = {"clone3", CALL_BLOCKS},
    ROW(fork, CALL_BLOCKS),
    ROW(vfork, CALL_BLOCKS),
    ROW(execve, CALL_BLOCKS),
    ROW(execveat, CALL_BLOCKS),
    ROW(getrandom, CALL_BLOCKS),
};

static bool is_regular_file(long fd)
{
    struct stat status;

    return fstat((int)fd, &status) == 0 && S_ISREG(status.st_mode);
}

static bool futex_waits(long operation)
{
    switch (operation & FUTEX_OPERATION) {
    case FUTEX_OP_WAIT:
    case FUTEX_OP_WAIT_BITSET:
    case FUTEX_OP_WAIT_REQUEUE_PI:
    case FUTEX_OP_LOCK_PI:
    case FUTEX_OP_LOCK_PI2: return true;
    default: return false;
    }
}

static bool polls_for_writing(const struct pollfd *wanted, long count)
{
    for (long i = 0; i < count; i++)
        if (wanted[i].events != POLLOUT) return false;
    return count > 0;
}

/* The name of a call that is not harmless; NULL: it is. */
static const char *name_of_harm(long number, const long arguments[6])
{
    const struct call_row *row;

    if (number < 0 || (size_t)number >= sizeof calls / sizeof calls[0]) return NULL;
    row = &calls[number];
    switch (row->rule) {
    case CALL_BLOCKS: return row->name;
    case CALL_READS: return is_regular_file(arguments[0]) ? NULL : row->name;
    case CALL_FUTEX: return futex_waits(arguments[1]) ? row->name : NULL;
    case CALL_CONTROL:
        return arguments[1] == F_SETLKW || arguments[1] == F_OFD_SETLKW ? row->name : NULL;
    case CALL_POLLS:
        return polls_for_writing((const struct pollfd *)arguments[0], arguments[1]) ? NULL
                                                                                    : row->name;
    case CALL_HARMLESS: return NULL;
    }
    return NULL;
}

/* ---- The handler ---- */

/* Its frames are counted: FRAMES_OF_THE_HANDLER. */
static __attribute__((noinline)) void look(const char *call)
{
    static char places[PLACES_BYTES];
    struct backtrace backtrace;

    backtrace_here(&backtrace);
    places_write(&backtrace, FRAMES_OF_THE_HANDLER, places, sizeof places);
    on_caught(call, places);
    __asm__ volatile("" ::: "memory"); /* not the last thing here: else the frame would be gone */
}

/* What returning from the handler would put back as it was before the call. */
static void keep_what_it_set(long number, ucontext_t *context)
{
    if (number == SYS_rt_sigprocmask) {
        (void)make_call(
            SYS_rt_sigprocmask,
            (const long[6]){SIG_BLOCK, 0, (long)&context->uc_sigmask, sizeof(uint64_t)});
        /* A call while it is blocked, as libc's when it starts a thread, would be the end of the
         * process, and nobody would know which call it was. */
        (void)sigdelset(&context->uc_sigmask, SIGSYS);
    } else if (number == SYS_sigaltstack) {
        (void)make_call(SYS_sigaltstack, (const long[6]){0, (long)&context->uc_stack});
    }
}

static __attribute__((noinline)) void on_call(int signo, siginfo_t *info, void *argument)
{
    ucontext_t *context = argument;
    greg_t *registers = context->uc_mcontext.gregs;
    long number = info->si_syscall;
    const long arguments[6] = {(long)registers[REG_RDI], (long)registers[REG_RSI],
                               (long)registers[REG_RDX], (long)registers[REG_R10],
                               (long)registers[REG_R8],  (long)registers[REG_R9]};
    const char *harm;

    (void)signo;
    raw_calls_selector = 0;
    if (number == SYS_rt_sigreturn) {
        /* Another signal's handler returns: it takes our way out, which is let through. */
        registers[REG_RIP] = (greg_t)(uintptr_t)raw_calls_restore;
    } else {
        harm = name_of_harm(number, arguments);
        if (harm) look(harm);
        registers[REG_RAX] = make_call(number, arguments);
        keep_what_it_set(number, context);
    }
    raw_calls_selector = 1;
}

/* ---- On and off ---- */

static int dispatch(unsigned long on)
{
    /* Past libc's prctl: the sanitizers' libraries put their own before it. */
    return (int)make_call(SYS_prctl,
                          (const long[6]){SET_SYSCALL_USER_DISPATCH, (long)on,
                                          on ? (long)(uintptr_t)raw_calls_restore : 0,
                                          on ? RESTORER_BYTES + 1 : 0,
                                          on ? (long)(uintptr_t)&raw_calls_selector : 0});
}

bool raw_calls_possible(void)
{
    /* Valgrind makes the calls itself, from its own code. */
    return !WEIR_TSAN && !sanitize_on_valgrind() &&
           (enabled_in == getpid() || dispatch(DISPATCH_OFF) == 0);
}

int raw_calls_enable(void (*caught)(const char *call, const char *places))
{
    /* It is left for another place when a call is caught: the signal is not held back. */
    struct kernel_sigaction action = {
        .handler = on_call,
        .flags = SA_SIGINFO | SA_NODEFER | RESTORER_FLAG,
        .restorer = raw_calls_restore,
    };
    pid_t pid = getpid();

    on_caught = caught;
    if (enabled_in == pid) return 0;
    raw_calls_selector = 0;
    if (WEIR_TSAN || sanitize_on_valgrind()) return -ENOTSUP;
    if (make_call(SYS_rt_sigaction,
                  (const long[6]){SIGSYS, (long)&action, 0, sizeof action.mask}) != 0) {
        return -ENOTSUP;
    }
    if (dispatch(DISPATCH_ON) != 0) return -ENOTSUP;
    enabled_in = pid;
    return 0;
}

void raw_calls_disable(void)
{
    raw_calls_selector = 0;
    if (enabled_in != getpid()) return;
    (void)dispatch(DISPATCH_OFF);
    (void)signal(SIGSYS, SIG_DFL);
    enabled_in = 0;
}
