/* checks.h - what the checks of a runtime share: what they have said, and how they say it.
 *
 * Parts: locks.h (who holds which lock, and across what), order.h (which lock after which),
 * deadlock.c (who waits for whom).
 *
 * Invariants: nothing is said twice; what is remembered is bounded, and when it is full that is
 * said once; a report needs memory, and without it is counted and logged in a few words.
 * Threads: on workers. A report is made with no lock held: the sink may be slow.
 */
#ifndef WEIR_WATCH_CHECKS_H
#define WEIR_WATCH_CHECKS_H

#include "rt/checks.h"
#include "rt/lock.h"
#include "rt/runtime.h"
#include "watch/backtrace.h"
#include "watch/order.h"
#include "watch/symbol.h"
#include "watch/text.h"

enum { CHECKS_SEEN_MAX = 512 };

struct checks {
    weir_runtime *runtime;
    weir_check_fn fn;
    void *arg;
    ATOM(uint64_t) counts[WEIR_CHECK_KINDS];

    struct lock lock; /* covers the rest */
    uint64_t seen[CHECKS_SEEN_MAX];
    unsigned seen_count;
    bool full_said;
    struct order order;

    /* Of the search for deadlocks; by who has won `search_at_ns`. */
    ATOM(int64_t) search_at_ns;      /* not before */
    ATOM(uint64_t) searched_batches; /* sum over the workers, when it was looked for last ... */
    ATOM(bool) searched_all;         /* ... and nothing was left open then */
};

/* Whether something with this key is seen for the first time. */
bool checks_first(struct checks *checks, uint64_t key);
/* Whether that would be no. */
bool checks_said(struct checks *checks, uint64_t key);
/* One more part of a key. */
uint64_t checks_mix(uint64_t key, uint64_t part);

/* A report that is being written. */
struct report {
    struct checks *checks;
    struct text text;
    struct symbol_table *symbols; /* NULL: no memory, addresses only */
};

void report_begin(struct report *report, struct checks *checks);
void report_say(struct report *report, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* "worker+0x1c (server)". */
void report_place(struct report *report, uintptr_t place);
/* Lines of "  at function+0x1c (server)", from `place` on if that is among them, else from the
 * public call on. */
void report_backtrace(struct report *report, const struct backtrace *backtrace, uintptr_t place);
/* Leave it at that: nobody is told. */
void report_drop(struct report *report);
/* Tell everybody. */
void report_end(struct report *report, enum weir_check_kind kind);

#endif
