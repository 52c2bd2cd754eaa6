/* atomic.h - the only place where atomics are spelled.
 *
 * C11 inside. Everything that two threads may touch at once goes through these
 * names, so that a sanitizer build and the simulator see every one of them.
 * Plain names are relaxed: they need a comment that says what orders them.
 */
#ifndef WEIR_BASE_ATOMIC_H
#define WEIR_BASE_ATOMIC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define ATOM(type) _Atomic(type)

#define atom_load(p) atomic_load_explicit((p), memory_order_relaxed)
#define atom_load_acquire(p) atomic_load_explicit((p), memory_order_acquire)
#define atom_load_total(p) atomic_load_explicit((p), memory_order_seq_cst)
#define atom_store(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)
#define atom_store_release(p, v) atomic_store_explicit((p), (v), memory_order_release)
#define atom_store_total(p, v) atomic_store_explicit((p), (v), memory_order_seq_cst)

/* Read-modify-write calls are sequentially consistent: they return the old value. */
#define atom_add(p, v) atomic_fetch_add_explicit((p), (v), memory_order_seq_cst)
#define atom_sub(p, v) atomic_fetch_sub_explicit((p), (v), memory_order_seq_cst)
#define atom_or(p, v) atomic_fetch_or_explicit((p), (v), memory_order_seq_cst)
#define atom_and(p, v) atomic_fetch_and_explicit((p), (v), memory_order_seq_cst)
#define atom_exchange(p, v) atomic_exchange_explicit((p), (v), memory_order_seq_cst)

/* True if *p was *expected and is now `v`; else *expected is what it was. */
#define atom_cas(p, expected, v)                                                        \
    atomic_compare_exchange_strong_explicit((p), (expected), (v), memory_order_seq_cst, \
                                            memory_order_seq_cst)

/* Tell the processor that this is a spin loop. */
static inline void atom_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield" ::: "memory");
#endif
}

#endif
