/* boundary.h - what a boundary says about itself: a row of the map (watch/map.c).
 *
 * Filled by the kind's `boundary` function (struct belonging_kind), while the belonging's
 * worker stands still. Strings are constants, or are written into `text`.
 */
#ifndef WEIR_RT_BOUNDARY_H
#define WEIR_RT_BOUNDARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BOUNDARY_NAME_BYTES = 64, BOUNDARY_TEXT_BYTES = 96, BOUNDARY_FIGURES_MAX = 12 };

struct lock;
struct meter;

struct boundary {
    const char *kind; /* set by the map: the kind's name; may be replaced */
    char name[BOUNDARY_NAME_BYTES];
    const char *where; /* in the source, or NULL */
    const char *lifetime;
    char bound[BOUNDARY_TEXT_BYTES];
    const char *overflow;
    char failure[BOUNDARY_TEXT_BYTES];
    int64_t latency_target_ms;         /* 0: not said */
    struct meter *meter;               /* what was measured, or NULL; its histograms ... */
    int wait_histogram, run_histogram; /* ... of waits and runs, or -1 */
    unsigned figure_count;
    struct {
        const char *name;
        uint64_t value;
    } figures[BOUNDARY_FIGURES_MAX];
};

/* A bound of `count` things: "64 items". */
void boundary_bound(struct boundary *boundary, uint64_t count, const char *things);
void boundary_figure(struct boundary *boundary, const char *name, uint64_t value);
/* The lock of an object, from inside a `boundary` function: a scope's lock is held there,
 * which others take inside an object's, so it is only tried. `shared`: the lock is used at
 * all. False: somebody holds it; then only what never changes may be read. */
bool boundary_hold(struct lock *lock, bool shared);
void boundary_let_go(struct lock *lock, bool shared);
/* enum weir_overflow in words. */
const char *boundary_overflow(int overflow);

#endif
