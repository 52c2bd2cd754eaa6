/* flow_program.h - what the simulated programs of the flow layer have in common.
 *
 * Programs are small: a scope, a few tasks on two workers, and counts of what they saw, which lie
 * on the stack of the first task, so that every run begins with zeros. A task that is cancelled
 * ends; what it leaves behind has to add up all the same.
 */
#ifndef WEIR_TESTS_SIM_FLOW_PROGRAM_H
#define WEIR_TESTS_SIM_FLOW_PROGRAM_H

#include <weir/sim.h>
#include <weir/weir.h>

#include "harness/test.h"

/* The host on which they run: two workers, in both levels of simulation. */
#define FLOW_HOST        \
    &(const weir_config) \
    {                    \
        .workers = 2     \
    }

/* A scope in which a failing task fails nobody else; NULL: the program is cancelled already. */
weir_scope *flow_scope_open(void);
/* Its tasks have ended well, or were cancelled. */
void flow_scope_close(weir_scope *scope);

/* A task on one of the two workers; false: the program is cancelled. */
bool flow_spawn(weir_scope *scope, int worker, weir_task_fn fn, const void *arg, size_t arg_bytes,
                weir_task *ret_task);

/* Whether this is how a task learns that it is to end. */
bool flow_is_end(int r);

/* Let others go on, with what the caller holds; also of one that is cancelled. */
void flow_linger(void);

/* At any moment, everything is cancelled; then the program itself may return that. */
#define FLOW_CANCELS_ONCE .any_result = true, .faults = {.cancel = 25, .faults_max = 1}

/* ---- Items through a channel: flow_move.c ---- */

enum {
    FLOW_SENDERS_MAX = 3,
    FLOW_RECEIVERS_MAX = 3,
    FLOW_ITEMS_MAX = 6, /* of one sender */
};

enum flow_moves { FLOW_ONE_BY_ONE, FLOW_BATCHES, FLOW_TRIES, FLOW_SELECTS };

/* Who does what. */
struct flow_plan {
    size_t capacity;
    enum weir_overflow overflow;
    enum weir_on_close on_close;
    int senders, receivers;
    int items;             /* of each sender */
    enum flow_moves moves; /* by which calls */
    bool wide;             /* items of 24 bytes, not of 8 */
    bool counts_done;      /* and one task waits until all is done */
    bool cancels_one;      /* one task cancels the first receiver at some time */
    bool closes;           /* one task closes the sending side at some time */
    bool resizes;          /* one task changes the capacity, 1 to 3, at some time */
    bool receivers_leave;  /* after two items each */
};

/* The program: checks that every item which was accepted was received or dropped exactly once,
 * every other one not at all, that those of one sender arrive in order, and that the
 * channel's own figures say the same. */
int flow_move(const struct flow_plan *plan);

/* ---- What tasks share: flow_sync.c ----
 * Each returns how many of its tasks came to their end, uncancelled: of 3, 4, 4, 3 and 3. With
 * `cancels` one of them is cancelled at some time. */
int flow_contend(bool cancels);
int flow_read_and_write(bool cancels);
int flow_take_permits(bool cancels);
/* While a permit is held all along; 1: who wanted the others has got them. */
int flow_give_way(void);
int flow_wait_and_set(void);
int flow_run_once(void);

/* ---- Select: flow_select.c ---- */

/* Two tasks, each of which sends to the other or receives from it, whichever comes first. */
int flow_exchange(bool cancels);
/* Two producers, a channel each; two consumers select from both. */
int flow_merge(void);
/* One task does what comes first until everything was done: each thing once. */
int flow_do_all(void);

/* ---- One value to many: flow_broadcast.c ---- */

int flow_publish(enum weir_lag first, enum weir_lag second);
/* A subscriber that publishers wait for leaves after its first value. */
int flow_publish_and_leave(void);
int flow_watch(void);
int flow_update_snapshot(void);

/* ---- Work elsewhere: flow_actor.c, flow_pool.c, flow_fan.c, flow_pipeline.c ---- */

/* Three callers, two calls each, and two casts; one caller may be cancelled at some time. */
int flow_call_actor(bool cancels);
/* Four callers, two jobs each; `cancel_ms` is the pool's. */
int flow_use_pool(bool cancels, int64_t cancel_ms);
int flow_fan_collect(bool as_completed);
int flow_call_pipeline(bool cancels);
/* Two senders of three items each, two receivers. */
int flow_stream(bool cancels);

#endif
