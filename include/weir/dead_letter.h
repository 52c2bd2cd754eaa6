/* dead_letter.h - where work goes that has failed for good, with all that was tried.
 *
 * A sink of dead letters is the terminal behaviour that a guard names (guard.h, retry.h). A
 * letter is a copy of what was worked on, who worked on it, why it ended, and each attempt.
 * A program looks at them, takes one out to do it again, or throws them away:
 *
 *     while (weir_dead_letters_take(sink, 0, &letter, &order, sizeof order) > 0) {
 *         r = weir_guard_call(billing, charge, &order, sizeof order, NULL);
 *         ...
 *     }
 *
 * Owner: a scope. Lifetime: until it is closed or the scope ends; what is in it then goes to
 * on_lost. Backpressure: capacity, and the named overflow: WEIR_REJECT (the new one is not
 * kept, and whoever brings it is told), WEIR_DROP_OLDEST or WEIR_DROP_NEWEST (that one goes to
 * on_lost). It never makes anybody wait. Memory: capacity * (item_bytes_max + 1 KiB), when it is
 * opened.
 * Failure: none of its own: letters are for somebody to act on.
 * Invariants: a letter that was accepted is taken once, or purged, or goes to on_lost once.
 * Threads: tasks and callbacks of the runtime, on any worker. No call suspends.
 */
#ifndef WEIR_DEAD_LETTER_H
#define WEIR_DEAD_LETTER_H

#include <weir/defs.h>
#include <weir/error.h>

WEIR_BEGIN

typedef struct weir_dead_letters weir_dead_letters;

#define WEIR_LETTERS_MAX 1048576
#define WEIR_LETTER_ITEM_BYTES_MAX 65536
#define WEIR_LETTER_ATTEMPTS_MAX 32 /* 16 attempts, each with a hedge */

/* Why it has failed for good. */
enum weir_letter_reason {
    WEIR_LETTER_UNSET = 0,
    WEIR_LETTER_ATTEMPTS, /* all of them have failed */
    WEIR_LETTER_FATAL,    /* an error that is not named as one to try again */
    WEIR_LETTER_BUDGET,   /* the shared retry budget is spent */
    WEIR_LETTER_TIME,     /* its time was up, or there was none left for another attempt */
    WEIR_LETTER_BREAKER,  /* the breaker opened between two attempts */
    WEIR_LETTER_PROGRAM,  /* the program itself says so */
};

/* One attempt. */
typedef struct weir_attempt {
    int64_t began_ns; /* on the clock of weir_now_ns */
    int64_t run_ns;
    int error;
    uint8_t number; /* 1: the first; a hedge has the number of the attempt it runs beside */
    bool is_hedge;
} weir_attempt;

typedef struct weir_letter {
    uint64_t id;     /* given by the sink, rising, never 0 */
    char source[64]; /* the guard, or pipeline/stage */
    int error;       /* the last one: what the caller has */
    enum weir_letter_reason reason;
    int64_t first_ns;  /* when the call was made, on the clock of weir_now_ns */
    int64_t last_ns;   /* when it had failed */
    size_t item_bytes; /* of what was worked on, as it was before the first attempt */
    size_t kept_bytes; /* of these, that are kept */
    unsigned attempt_count;
    weir_attempt attempts[WEIR_LETTER_ATTEMPTS_MAX]; /* in the order in which they ended */
} weir_letter;

/* A letter that nobody takes any more: dropped for another one, or left at the end. `item` has
 * letter->kept_bytes and is valid for the call. On the thread of whoever made it so; it must not
 * suspend, and must not call the sink. */
typedef void (*weir_letter_fn)(const weir_letter *letter, const void *item, void *keep_arg);

/* name, capacity, item_bytes_max, overflow and on_lost must be said. */
typedef struct weir_dead_letters_spec {
    const char *name;            /* copied, at most 31 bytes */
    size_t capacity;             /* letters, to WEIR_LETTERS_MAX */
    size_t item_bytes_max;       /* kept of each item, to WEIR_LETTER_ITEM_BYTES_MAX */
    enum weir_overflow overflow; /* WEIR_REJECT, WEIR_DROP_OLDEST or WEIR_DROP_NEWEST */
    weir_letter_fn on_lost;
    weir_letter_fn on_letter; /* called for each one that is kept, after it was; likewise */
    void *keep_arg;           /* of both */
} weir_dead_letters_spec;

/* weir_dead_letters_spec_init - set every member to "not said". */
static inline void weir_dead_letters_spec_init(weir_dead_letters_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* weir_dead_letters_open(scope, &spec, &sink) - an empty sink. Errors: WEIR_EREFUSED (weir_why),
 * WEIR_ECANCELED (the scope is), WEIR_ENOTASK, -ENOMEM, -ENFILE. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_dead_letters_open_sized(weir_scope *scope, size_t spec_bytes,
                                                        const weir_dead_letters_spec *spec,
                                                        weir_dead_letters **ret_sink);
#define weir_dead_letters_open(scope, ...) \
    weir_dead_letters_open_sized((scope), sizeof(weir_dead_letters_spec), __VA_ARGS__)

/* weir_dead_letters_put - hand over a letter of the program's own, copied, with `item_bytes` of
 * `item`, of which as many as fit are kept; the sink gives it its id. Guards do this themselves.
 * Returns 0 (it was kept, or with WEIR_DROP_NEWEST went to on_lost). Errors: WEIR_EOVERLOAD
 * (full, WEIR_REJECT), WEIR_EREFUSED (no source or reason, or too many attempts),
 * WEIR_ECLOSED. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_dead_letters_put(weir_dead_letters *sink, const weir_letter *letter,
                                                 const void *item, size_t item_bytes);

/* weir_dead_letters_count - how many there are. Never suspends. */
WEIR_API size_t weir_dead_letters_count(weir_dead_letters *sink);

/* weir_dead_letters_next - look at the oldest letter whose id is above `after_id` (0: the oldest
 * of all), which stays: a copy of it, and of its item as much as `item_bytes_max` allows (`item`
 * may be NULL with 0). Returns 1, or 0: there is none. With the last id again and again it is a
 * walk, beside which others may take and put. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_dead_letters_next(weir_dead_letters *sink, uint64_t after_id,
                                                  weir_letter *ret_letter, void *item,
                                                  size_t item_bytes_max);

/* weir_dead_letters_take - take the letter with this id out (0: the oldest), to do its work
 * again; likewise. Returns 1, or 0: it is not there, or none is. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_dead_letters_take(weir_dead_letters *sink, uint64_t id,
                                                  weir_letter *ret_letter, void *item,
                                                  size_t item_bytes_max);

/* weir_dead_letters_purge - throw all away that are there, without on_lost; returns how many.
 * Never suspends. */
WEIR_API size_t weir_dead_letters_purge(weir_dead_letters *sink);

/* What it has seen: put = depth + taken + purged + lost. */
typedef struct weir_dead_letters_figures {
    size_t depth, depth_max, capacity;
    uint64_t put, taken, purged;
    uint64_t lost;     /* dropped for another one */
    uint64_t rejected; /* not put: WEIR_REJECT */
} weir_dead_letters_figures;

/* weir_dead_letters_figures_of - the figures now. Never suspends. */
WEIR_API void weir_dead_letters_figures_of(weir_dead_letters *sink,
                                           weir_dead_letters_figures *ret_figures);

/* weir_dead_letters_close - free it; what is in it goes to on_lost. Takes NULL. Never suspends. */
WEIR_API void weir_dead_letters_close(weir_dead_letters *take_sink);

WEIR_END

#endif
