/* planted.h - races that are there on purpose, to see that ThreadSanitizer finds them.
 *
 *     PLANTED(counter_of_siblings, ONE_WORKER)
 *     {
 *         ... the first task of a runtime: a race, or if `mended` what is right instead
 *     }
 *
 * Each is run twice, in a process of its own: as it was planted, when a report is
 * wanted, and mended, when none is. One that is for ONE_WORKER is a race between tasks
 * that run on one thread, which only the strict mode can see. One for TWO_WORKERS
 * happens on two threads, without anything of the library in between, and is to be
 * found in both modes.
 */
#ifndef WEIR_TESTS_PLANTED_H
#define WEIR_TESTS_PLANTED_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <weir/weir.h>

#include "base/atomic.h"

enum planted_where { ONE_WORKER = 1, TWO_WORKERS = 2 };

struct planted {
    const char *name;
    enum planted_where where;
    weir_task_fn fn;
    struct planted *next;
};

void planted_register(struct planted *keep_planted);

/* Whether this process runs the mended twin. */
extern bool mended;

#define PLANTED(name_, where_)                                              \
    static int planted_fn_##name_(void *arg);                               \
    static struct planted planted_##name_ = {                               \
        .name = #name_, .where = (where_), .fn = planted_fn_##name_};       \
    __attribute__((constructor)) static void planted_register_##name_(void) \
    {                                                                       \
        planted_register(&planted_##name_);                                 \
    }                                                                       \
    static int planted_fn_##name_(__attribute__((unused)) void *arg)

/* What must not fail. */
#define MUST(call)                                                        \
    do {                                                                  \
        int must_ = (call);                                               \
        if (must_ < 0) planted_give_up(__FILE__, __LINE__, #call, must_); \
    } while (0)
_Noreturn void planted_give_up(const char *file, int line, const char *call, int error);

static inline weir_scope *planted_scope(enum weir_place place)
{
    weir_scope *scope = NULL;
    MUST(weir_scope_open(&(weir_scope_spec){.name = "planted",
                                            .on_failure = WEIR_FAIL_FAST,
                                            .max_tasks = 100,
                                            .overflow = WEIR_REJECT,
                                            .place = place},
                         &scope));
    return scope;
}

/* A task with a pointer as its argument; on this worker, or on the given one. */
static inline weir_task planted_spawn(weir_scope *scope, int worker, weir_task_fn fn, void *pointer)
{
    weir_task task;
    MUST(weir_task_spawn(scope,
                         &(weir_task_spec){.fn = fn,
                                           .arg = &pointer,
                                           .arg_bytes = sizeof pointer,
                                           .name = "planted",
                                           .place = WEIR_PLACE_WORKER,
                                           .worker = worker},
                         &task));
    return task;
}

/* The pointer of planted_spawn, in the task. */
#define PLANTED_ARG(type, arg) (*(type **)(arg))

/* Wait until both sides are here, without ordering them: relaxed accesses only. */
struct meeting {
    ATOM(bool) here[2];
};
void planted_meet(struct meeting *meeting, int side);

#endif
