/* atomic.h - the only place where atomics are spelled.
 *
 * C11 inside. Everything that two threads may touch at once goes through these
 * names, so that a sanitizer build and the simulator see every one of them.
 * Plain names are relaxed: they need a comment that says what orders them.
 *
 * In a library that is built for simulation at worker level (WEIR_SIM_WORKERS,
 * docs/decisions/0023) each operation is a point at which another simulated thread may go on: its
 * operands are computed, then comes the point, then the operation.
 */
#ifndef WEIR_BASE_ATOMIC_H
#define WEIR_BASE_ATOMIC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#ifndef WEIR_SIM_WORKERS
#define WEIR_SIM_WORKERS 0
#endif

#define ATOM(type) _Atomic(type)

/* ---- Points ---- */

/* What a simulator does at points. Its own operations come here, too: it knows when that is so. */
struct atom_hooks {
    void (*point)(const volatile void *address); /* another thread may go on first */
    bool (*stuck)(void); /* another one must, or nothing will change; false: not in a run */
};
/* For a run; NULL: none any more, and points are nothing. False: this library has no points. */
bool atom_hooks_set(const struct atom_hooks *hooks);

#if WEIR_SIM_WORKERS

extern struct atom_hooks atom_hooks;

static inline void atom_point(const volatile void *address)
{
    if (atom_hooks.point) atom_hooks.point(address);
}

static inline bool atom_stuck(void)
{
    return atom_hooks.stuck && atom_hooks.stuck();
}

static inline void *atom_pointed(const volatile void *address)
{
    atom_point(address);
    return (void *)(uintptr_t)address;
}

/* The names have a number, since operands may be operations themselves. */
#define ATOM_AT(p) ((__typeof__(&*(p)))atom_pointed(p))
#define ATOM_CALL(call, p, v, order) ATOM_CALL_COUNTED(__COUNTER__, call, p, v, order)
#define ATOM_CALL_COUNTED(n, call, p, v, order) ATOM_CALL_NUMBERED(n, call, p, v, order)
#define ATOM_CALL_NUMBERED(n, call, p, v, order) \
    ({                                           \
        __auto_type atom_value_##n = (v);        \
        call(ATOM_AT(p), atom_value_##n, order); \
    })
#define ATOM_CAS(p, expected, v, order) ATOM_CAS_COUNTED(__COUNTER__, p, expected, v, order)
#define ATOM_CAS_COUNTED(n, p, expected, v, order) ATOM_CAS_NUMBERED(n, p, expected, v, order)
#define ATOM_CAS_NUMBERED(n, p, expected, v, order)                                            \
    ({                                                                                         \
        __auto_type atom_expected_##n = (expected);                                            \
        __auto_type atom_value_##n = (v);                                                      \
        atomic_compare_exchange_strong_explicit(ATOM_AT(p), atom_expected_##n, atom_value_##n, \
                                                order, order);                                 \
    })

#else

static inline void atom_point(const volatile void *address)
{
    (void)address;
}

static inline bool atom_stuck(void)
{
    return false;
}

#define ATOM_AT(p) (p)
#define ATOM_CALL(call, p, v, order) call((p), (v), order)
#define ATOM_CAS(p, expected, v, order) \
    atomic_compare_exchange_strong_explicit((p), (expected), (v), order, order)

#endif

/* ---- Operations ---- */

#define atom_load(p) atomic_load_explicit(ATOM_AT(p), memory_order_relaxed)
#define atom_load_acquire(p) atomic_load_explicit(ATOM_AT(p), memory_order_acquire)
#define atom_load_total(p) atomic_load_explicit(ATOM_AT(p), memory_order_seq_cst)
#define atom_store(p, v) ATOM_CALL(atomic_store_explicit, p, v, memory_order_relaxed)
#define atom_store_release(p, v) ATOM_CALL(atomic_store_explicit, p, v, memory_order_release)
#define atom_store_total(p, v) ATOM_CALL(atomic_store_explicit, p, v, memory_order_seq_cst)

/* Read-modify-write calls are sequentially consistent: they return the old value. */
#define atom_add(p, v) ATOM_CALL(atomic_fetch_add_explicit, p, v, memory_order_seq_cst)
#define atom_sub(p, v) ATOM_CALL(atomic_fetch_sub_explicit, p, v, memory_order_seq_cst)
#define atom_or(p, v) ATOM_CALL(atomic_fetch_or_explicit, p, v, memory_order_seq_cst)
#define atom_and(p, v) ATOM_CALL(atomic_fetch_and_explicit, p, v, memory_order_seq_cst)
#define atom_exchange(p, v) ATOM_CALL(atomic_exchange_explicit, p, v, memory_order_seq_cst)

/* True if *p was *expected and is now `v`; else *expected is what it was. */
#define atom_cas(p, expected, v) ATOM_CAS(p, expected, v, memory_order_seq_cst)

/* Tell the processor that this is a spin loop. */
static inline void atom_pause(void)
{
    if (atom_stuck()) return;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield" ::: "memory");
#endif
}

#endif
