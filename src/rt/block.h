/* block.h - the nested blocks of a task, and how cancellation reaches it.
 *
 *     task ── scope ── deadline ── shield ── scope ── (where the task is)
 *     outermost                                        innermost: task->top
 *
 * Each block has signals of its own (`own`, set by whoever cancels, never
 * cleared) and the signals that are in force in it (`effective`). The rule, from
 * the outside in:
 *
 *     outer in force          own signal    in force here
 *     cancelled or timed out  any           cancelled
 *     none                    cancelled     cancelled
 *     none                    expired       timed out   (its own deadline)
 *     stopping                any           stopping as well
 *
 * A shield sees none of what is in force outside, until its own bound expires.
 * A scope hands to its tasks what is in force in it; "timed out" becomes
 * "cancelled" on the way, for it is not the tasks' own deadline.
 *
 * Invariants: `effective` is written only on the task's worker (block_refresh);
 * task->attention mirrors the innermost one, so that a suspending call looks at
 * one byte; a block's deadline is never later than its outer one's, shields
 * excepted.
 */
#ifndef WEIR_RT_BLOCK_H
#define WEIR_RT_BLOCK_H

#include <weir/scope.h>

#include "base/atomic.h"
#include "rt/timer.h"

struct task;
struct worker;

enum block_kind {
    BLOCK_TASK, /* what the task inherits from its scope, and its own cancel */
    BLOCK_SCOPE,
    BLOCK_DEADLINE,
    BLOCK_SHIELD,
    BLOCK_NO_DEADLINE,
};

/* Signals. */
enum {
    SIGNAL_CANCELLED = 1 << 0,
    SIGNAL_EXPIRED = 1 << 1, /* own: its deadline passed; in force: "timed out" */
    SIGNAL_STOPPING = 1 << 2,
};
#define SIGNAL_INTERRUPTS (SIGNAL_CANCELLED | SIGNAL_EXPIRED)

struct block {
    struct block *outer; /* NULL for BLOCK_TASK */
    struct block *inner; /* meaningless for the innermost */
    int64_t deadline_ns; /* in force; INT64_MAX: none */
    uint8_t kind;
    uint8_t effective;
    bool no_deadline; /* I/O without a deadline is allowed here */
    ATOM(uint8_t) own;
};

/* What a public weir_block holds. */
struct timed_block {
    struct block block;
    struct timer timer;
    struct task *task;
    const char *where;
    const char *reason; /* of BLOCK_NO_DEADLINE */
};
_Static_assert(sizeof(struct timed_block) <= sizeof(weir_block), "weir_block is too small");

/* What signals that are in force outside a block mean inside it. */
uint8_t block_inherited(uint8_t outer);

/* The outermost block of a task; its scope's deadline is in force. */
static inline void block_init_task(struct block *block, int64_t deadline_ns)
{
    block->outer = NULL;
    block->inner = NULL;
    block->deadline_ns = deadline_ns;
    block->kind = BLOCK_TASK;
    block->effective = 0;
    block->no_deadline = false;
    atom_store(&block->own, 0);
}

/* The task starts: from now on signals reach it by mail; what came before is read
 * here. The caller has set task->home. */
void block_start_slow(struct task *task);

/* What WEIR_DEADLINE does, for one who has read the clock already; left by weir_block_leave. */
void block_enter_deadline(weir_block *block, struct task *self, int64_t now_ns, int64_t at_ns,
                          const char *where);

/* Enter and leave, on the task's worker, while it runs. */
void block_push(struct task *task, struct block *block);
void block_pop(struct task *task, struct block *block);

/* Recompute what is in force in the task's blocks, hand it on to the scopes it has
 * open, and interrupt its wait if that is now due. On the task's worker. */
void block_refresh(struct worker *worker, struct task *task);

/* The same, if the task is parked and has no scope open, so that nothing is handed
 * on: then it is safe in the middle of a walk over its siblings. False: not done. */
bool block_refresh_if_simple(struct worker *worker, struct task *task);

/* A word for a block in messages: "scope 'fetch' opened at main.c:12". */
void block_describe(const struct block *block, char *text, size_t bytes);

#endif
