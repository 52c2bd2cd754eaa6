/* sanitize.h - tell the sanitizers and valgrind about our own stacks.
 *
 * AddressSanitizer: each switch is announced and confirmed, and a stack is clean
 * before it is used again. ThreadSanitizer: one fiber per task life; in ordered
 * mode a switch orders everything that ran on the worker, in strict mode
 * (WEIR_TSAN_STRICT=1) only the edges announced here do, so that races between
 * tasks of one worker are found too. Valgrind: told of each stack when it is mapped. In
 * other builds all of this is empty.
 *
 * In strict mode the library is not instrumented, but ThreadSanitizer still sees
 * its calls of libc: locks, which would order tasks that have nothing to do with
 * each other, and copies into memory that is used by one task after the other.
 * Hence sanitize_forget, sanitize_unseen_* and the clean stacks below.
 */
#ifndef WEIR_RT_SANITIZE_H
#define WEIR_RT_SANITIZE_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define WEIR_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WEIR_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define WEIR_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WEIR_TSAN 1
#endif
#endif
#ifndef WEIR_ASAN
#define WEIR_ASAN 0
#endif
#ifndef WEIR_TSAN
#define WEIR_TSAN 0
#endif
#ifndef WEIR_TSAN_STRICT
#define WEIR_TSAN_STRICT 0
#endif
#ifndef WEIR_VALGRIND
#define WEIR_VALGRIND 0 /* 1: its header is there, see meson.build */
#endif

#if WEIR_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/lsan_interface.h>
#endif
#if WEIR_TSAN
#include <sanitizer/tsan_interface.h>
#include <sys/mman.h>
/* Entry points of the sanitizer's run-time library that have no header. */
void AnnotateIgnoreSyncBegin(const char *file, int line);
void AnnotateIgnoreSyncEnd(const char *file, int line);
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
/* sigaction of libc under the name that ThreadSanitizer does not take. */
int __sigaction(int signal, const struct sigaction *action, struct sigaction *ret_old); // NOLINT
#endif

#if WEIR_VALGRIND
#include <valgrind/valgrind.h>
#endif

/* Always inline: ThreadSanitizer keeps a stack of calls per fiber, and a call that
 * began on one fiber must not return on another. */
#define SANITIZE_INLINE static inline __attribute__((always_inline))

/* How long a worker sleeps at the most. A signal of the program's that comes just before a
 * thread begins to wait is held back by ThreadSanitizer until that thread's next call. */
#define SANITIZE_SLEEP_NS_MAX (WEIR_TSAN ? INT64_C(1000000000) : 3600 * INT64_C(1000000000))

/* For what a signal handler of ours calls. ThreadSanitizer holds signals back until the next
 * call of libc by the fiber that they came upon, which may be parked by then, or gone: so it is
 * not told of our handlers (sanitize_sigaction), which interrupt it anywhere and must not call
 * it. Whatever carries this mark makes no call of libc that it knows. */
#if WEIR_TSAN && defined(__clang__)
#define SANITIZE_HANDLER __attribute__((disable_sanitizer_instrumentation))
#elif WEIR_TSAN
#define SANITIZE_HANDLER __attribute__((no_sanitize("thread")))
#else
#define SANITIZE_HANDLER
#endif

/* sigaction, for handlers that carry the mark and for what was there before them. */
SANITIZE_INLINE int sanitize_sigaction(int signal, const struct sigaction *action,
                                       struct sigaction *ret_old)
{
#if WEIR_TSAN
    return __sigaction(signal, action, ret_old);
#else
    return sigaction(signal, action, ret_old);
#endif
}

/* write, in what carries the mark. */
SANITIZE_HANDLER SANITIZE_INLINE ssize_t sanitize_handler_write(int fd, const void *data,
                                                                size_t bytes)
{
#if WEIR_TSAN
    return syscall(SYS_write, fd, data, bytes);
#else
    return write(fd, data, bytes);
#endif
}

/* _exit, likewise. */
SANITIZE_HANDLER SANITIZE_INLINE void sanitize_handler_exit(int status)
{
#if WEIR_TSAN
    (void)syscall(SYS_exit_group, status);
#else
    _exit(status);
#endif
}

/* What a context (a task, or a worker's loop) carries for the sanitizers. */
struct sanitize_context {
#if WEIR_ASAN
    void *fake_stack;
    const void *bottom;
    size_t bytes;
#endif
#if WEIR_TSAN
    void *fiber;
#endif
    char unused;
};

/* What is mapped there goes away, and something else may come to the same place. A fresh
 * mapping is the one thing that makes ThreadSanitizer forget; if there is none, a false
 * report is the worst that can come of it. */
SANITIZE_INLINE void sanitize_memory_gone(void *low, size_t bytes)
{
#if WEIR_TSAN
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    (void)mmap(low, bytes, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
    (void)low, (void)bytes;
}

/* Strict mode: what the library does in between is no access to memory, so that it
 * cannot be in a race, nor reported as one. Edges count. */
SANITIZE_INLINE void sanitize_unseen_begin(void)
{
#if WEIR_TSAN && WEIR_TSAN_STRICT
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
#endif
}

SANITIZE_INLINE void sanitize_unseen_end(void)
{
#if WEIR_TSAN && WEIR_TSAN_STRICT
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
}

/* The same, and what happens in between orders nothing: for the library's locks. */
SANITIZE_INLINE void sanitize_unordered_begin(void)
{
    sanitize_unseen_begin();
#if WEIR_TSAN && WEIR_TSAN_STRICT
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
#endif
}

SANITIZE_INLINE void sanitize_unordered_end(void)
{
#if WEIR_TSAN && WEIR_TSAN_STRICT
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
#endif
    sanitize_unseen_end();
}

/* Valgrind tells a switch from a large frame by the stack that the pointer lies in, so
 * it has to know each one: when it is mapped, not when it is used. */
SANITIZE_INLINE unsigned sanitize_stack_known(const void *low, const void *top)
{
#if WEIR_VALGRIND
    return (unsigned)VALGRIND_STACK_REGISTER(low, top);
#else
    (void)low, (void)top;
    return 0;
#endif
}

SANITIZE_INLINE void sanitize_stack_forgotten(unsigned known_as)
{
#if WEIR_VALGRIND
    VALGRIND_STACK_DEREGISTER(known_as);
#else
    (void)known_as;
#endif
}

/* Whether valgrind runs this program. */
SANITIZE_INLINE bool sanitize_on_valgrind(void)
{
#if WEIR_VALGRIND
    return RUNNING_ON_VALGRIND != 0;
#else
    return false;
#endif
}

/* Stacks were mapped, or are about to be unmapped. */
SANITIZE_INLINE void sanitize_stack_mapped(void *low, size_t bytes)
{
#if WEIR_ASAN
    __lsan_register_root_region(low, bytes);
#else
    (void)low, (void)bytes;
#endif
}

SANITIZE_INLINE void sanitize_stack_unmapped(void *low, size_t bytes)
{
#if WEIR_ASAN
    __lsan_unregister_root_region(low, bytes);
    __asan_unpoison_memory_region(low, bytes);
#else
    (void)low, (void)bytes;
#endif
}

/* A task begins its life on the stack [low, low+bytes), before anything is on it. */
SANITIZE_INLINE void sanitize_task_begin(struct sanitize_context *context, void *low, size_t bytes)
{
#if WEIR_ASAN
    __asan_unpoison_memory_region(low, bytes);
    context->fake_stack = NULL;
    context->bottom = low;
    context->bytes = bytes;
#endif
#if WEIR_TSAN && WEIR_TSAN_STRICT
    /* What tasks did on this stack before is not in a race with this one. A fresh
     * mapping is the one thing that makes ThreadSanitizer forget; if there is none,
     * a false report is the worst that can come of it. */
    sanitize_unseen_begin();
    (void)mmap(low, bytes, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    sanitize_unseen_end();
#endif
#if WEIR_TSAN
    /* Made by whoever ran last here, after which it does not come for that. */
    sanitize_unordered_begin();
    context->fiber = __tsan_create_fiber(0);
    sanitize_unordered_end();
#endif
    (void)context, (void)low, (void)bytes;
}

/* The task has ended and its stack was left; or there was none. */
SANITIZE_INLINE void sanitize_task_end(struct sanitize_context *context)
{
#if WEIR_TSAN
    if (context->fiber) __tsan_destroy_fiber(context->fiber);
    context->fiber = NULL;
#endif
    (void)context;
}

/* The calling thread's own stack is a context too: a worker's loop. */
SANITIZE_INLINE void sanitize_loop_begin(struct sanitize_context *context)
{
#if WEIR_TSAN
    context->fiber = __tsan_get_current_fiber();
#endif
    (void)context;
}

/* Directly before a switch; `last` if `from` is never resumed. */
SANITIZE_INLINE void sanitize_switch(struct sanitize_context *from, struct sanitize_context *to,
                                     int last)
{
#if WEIR_ASAN
    __sanitizer_start_switch_fiber(last ? NULL : &from->fake_stack, to->bottom, to->bytes);
#endif
#if WEIR_TSAN
    __tsan_switch_to_fiber(to->fiber, WEIR_TSAN_STRICT ? __tsan_switch_to_fiber_no_sync : 0);
#endif
    (void)from, (void)to, (void)last;
}

/* Directly after a switch arrived in `to`; `loop` is the worker's loop, whose
 * stack bounds are learnt at the first switch away from it. */
SANITIZE_INLINE void sanitize_arrived(struct sanitize_context *to, struct sanitize_context *loop)
{
#if WEIR_ASAN
    const void *bottom = NULL;
    size_t bytes = 0;
    __sanitizer_finish_switch_fiber(to->fake_stack, &bottom, &bytes);
    if (!loop->bottom) {
        loop->bottom = bottom;
        loop->bytes = bytes;
    }
#endif
    (void)to, (void)loop;
}

/* The simulator's threads (sim/thread.c) are left anywhere, also in the middle of a task. Directly
 * before sanitize_switch; and directly after the switch that arrived in `to`, with the one
 * that was left, whose stack's bounds are known only then. */
SANITIZE_INLINE void sanitize_thread_leaves(struct sanitize_context *from)
{
#if WEIR_TSAN
    from->fiber = __tsan_get_current_fiber();
#endif
    (void)from;
}

SANITIZE_INLINE void sanitize_thread_arrived(struct sanitize_context *to,
                                             struct sanitize_context *left)
{
#if WEIR_ASAN
    __sanitizer_finish_switch_fiber(to->fake_stack, &left->bottom, &left->bytes);
#endif
    (void)to, (void)left;
}

/* Edges of strict mode: what happened before a release on `address` is seen after
 * an acquire of it. */
SANITIZE_INLINE void sanitize_release(void *address)
{
#if WEIR_TSAN
    __tsan_release(address);
#endif
    (void)address;
}

SANITIZE_INLINE void sanitize_acquire(void *address)
{
#if WEIR_TSAN
    __tsan_acquire(address);
#endif
    (void)address;
}

/* The memory at `address` begins another life: releases of the former one do not
 * count any more. */
SANITIZE_INLINE void sanitize_forget(void *address)
{
#if WEIR_TSAN && WEIR_TSAN_STRICT
    sanitize_unseen_begin();
    __tsan_mutex_destroy(address, 0);
    sanitize_unseen_end();
#endif
    (void)address;
}

/* Memory that the kernel works on by itself: a touch of it is reported until it is back. */
SANITIZE_INLINE void sanitize_lend(void *memory, size_t bytes)
{
#if WEIR_ASAN
    __asan_poison_memory_region(memory, bytes);
#endif
    (void)memory, (void)bytes;
}

SANITIZE_INLINE void sanitize_return(void *memory, size_t bytes)
{
#if WEIR_ASAN
    __asan_unpoison_memory_region(memory, bytes);
#endif
    (void)memory, (void)bytes;
}

#endif
