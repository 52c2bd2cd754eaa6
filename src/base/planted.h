/* planted.h - bugs that are there on purpose, in a build that is made to find them.
 *
 * A planted bug is one line at the place where the mistake would be made:
 *
 *     if (PLANTED(LOST_WAKE)) return;
 *
 * In a build with -Dsim_workers=true one of them at a time is switched on by its test
 * (tests/sim/planted*.c), which asserts in how many simulated runs it is found. In every other
 * build PLANTED is 0 and the line is gone.
 */
#ifndef WEIR_BASE_PLANTED_H
#define WEIR_BASE_PLANTED_H

#include "base/atomic.h"

#if WEIR_SIM_WORKERS

/* The runtime's: its name, and the mistake in words. */
#define PLANTED_IN_RT(BUG)                                                                     \
    BUG(NONE, "nothing is wrong")                                                              \
    BUG(LOOKS_BEFORE_SLEEPING, "lost wake-up: a worker looks for work, then says it sleeps")   \
    BUG(WAKE_DECIDED_BEFORE_POST, "lost wake-up: whether the target sleeps is read too early") \
    BUG(MAIL_BITS_LOST, "bits that come in while mail is delivered are cleared with it")       \
    BUG(JOINER_WOKEN_TWICE, "double wake: a join is given up although its wake-up is coming")  \
    BUG(WOKEN_BEFORE_RESULT, "a joiner is woken before the result is stored")                  \
    BUG(STEALS_UNLOCKED, "unstarted tasks are stolen without the lock of their queue")         \
    BUG(NEW_TASKS_STARVE, "starvation: new tasks and old ones do not take turns")              \
    BUG(HOME_AFTER_SIGNALS, "missed cancel: a task reads the signals before it can be told")   \
    BUG(SIGNALS_AFTER_WALK, "missed cancel: tasks that start during the walk are not told")    \
    BUG(OPENER_NOT_TOLD, "the opener that is parked in its scope is not told of a cancel")     \
    BUG(BELONGINGS_NOT_AWAITED, "use after close: what a scope owns is not awaited")           \
    BUG(SLOT_LEAKED, "permit leak: room granted in the moment of a cancel is not given back")  \
    BUG(ROOM_WANTED_TOO_LATE, "a spawner that has just begun to wait for room is not woken")   \
    BUG(CREDIT_LEAKED, "credits for stacks are kept when there is no memory for tasks")        \
    BUG(SLEEP_NOT_DISARMED, "timer after free: that of a sleep that was cancelled")            \
    BUG(DUE_TIMER_FIRES, "a timer that is due is not stopped any more")                        \
    BUG(INNER_DEADLINE_LATER, "a deadline inside another one may be later than that")          \
    BUG(RESTARTS_WHILE_STOPPING, "a supervised task is started again in a scope that stops")   \
    BUG(BELL_MISSED, "a thread of the executor is not woken: it lets go before it waits")      \
    BUG(HOLDERS_TORN, "two who take a value at once are counted as one")

/* Of what moves values and does work elsewhere. */
#define PLANTED_IN_FLOW(BUG)                                                                    \
    BUG(RECV_CANCEL_LOSES, "a receiver that is cancelled while it is handed an item loses it")  \
    BUG(SENDER_WOKEN_TWICE, "a sender that waits for room is woken twice")                      \
    BUG(DROP_OLDEST_UNTOLD, "the hook is not told of the oldest item, which was dropped")       \
    BUG(SIDES_JOIN_HALF, "both sides of a channel are joined with the lock of one")             \
    BUG(MUTEX_UNLOCK_TORN, "an unlock looks and stores, and misses who begins to wait between") \
    BUG(MUTEX_FORGETS, "a mutex that is handed over forgets that others wait")                  \
    BUG(MUTEX_TO_CANCELLED, "a waiter that is handed a mutex says that it was cancelled")       \
    BUG(RWLOCK_BESIDE, "a writer is let in beside a reader")                                    \
    BUG(EVENT_SET_BETWEEN, "an event that is set between the look and the wait is missed")      \
    BUG(ONCE_TWICE, "two tasks find that a once has not begun")                                 \
    BUG(PERMIT_LEAK, "permits that a cancelled task was given are lost")                        \
    BUG(LINE_NOT_SERVED, "a waiter that leaves the line does not let the next one go")          \
    BUG(SELECT_LOCKS_UNSORTED, "two selects lock the same channels in different orders")        \
    BUG(SELECT_LEAVES_WAITER, "a select that is done leaves its waiter at an event")            \
    BUG(BROADCAST_SKIP_TORN, "who falls behind just as the history wraps around does not skip") \
    BUG(LAGGARD_LEAVES_UNTOLD, "publishers are not told when who held them back leaves")        \
    BUG(WATCH_LAST_MISSED, "a change between the look and the wait is missed")                  \
    BUG(UPDATE_LOST, "an update of a snapshot does not look whether another was first")         \
    BUG(ACTOR_ANSWERS_WHO_LEFT, "an actor answers a caller that has left")                      \
    BUG(ACTOR_ROOM_UNTOLD, "a caller that leaves the mailbox lets nobody else in")              \
    BUG(POOL_SLEEPERS_COUNTED, "threads that sleep are counted as if they came for a job")      \
    BUG(POOL_LEAVES_DONE, "a caller is cancelled although its job is done and on its way back") \
    BUG(FAN_INPUT_TWICE, "two tasks of a fan-out take the same input")                          \
    BUG(FAN_LAST_TORN, "two tasks of a fan-out leave at once, and neither is the last one")     \
    BUG(RESULT_NOT_PASSED_ON, "who is cancelled when woken for a result does not pass it on")   \
    BUG(PIPELINE_ANSWERS_WHO_LEFT, "an item of a caller that has left is given back to it")

/* Of policies, and of input and output. */
#define PLANTED_IN_POLICY(BUG)                                                              \
    BUG(BREAKER_PROBE_LEAK, "a probe that is cancelled keeps its place")                    \
    BUG(BUDGET_CHECKED_THEN_TAKEN, "a token of the retry budget is looked for, then taken") \
    BUG(BUDGET_TOKEN_KEPT, "a retry that is cancelled before it is made keeps its token")   \
    BUG(HEDGE_RUNS_ON, "a hedge that has lost is not cancelled")                            \
    BUG(HEDGE_TOKEN_KEPT, "a hedge that never ran keeps its token")                         \
    BUG(LIMIT_PERMIT_LEAK, "who gets in and is cancelled in one moment keeps the permit")   \
    BUG(LIMIT_LOOKS_TOO_EARLY, "who leaves looks for waiters before it has the lock")       \
    BUG(RATE_ELSEWHERE_FORGOTTEN, "no timer for who waits on another worker")               \
    BUG(RATE_REFILLED_TWICE, "tokens that have come are counted again")                     \
    BUG(SHED_CLOCK_STALE, "shedding is told when the call began, not what time it is")      \
    BUG(LETTER_TAKEN_TWICE, "a dead letter is copied, then taken")                          \
    BUG(READ_FORGETS_READINESS, "a read that was cut short waits for the next edge")        \
    BUG(ACCEPT_ONE_PER_EDGE, "one connection is accepted for each edge")

/* Of the store's log. */
#define PLANTED_IN_LOG(BUG)                                                                  \
    BUG(LOG_ACKNOWLEDGED_UNSYNCED, "who waits is told that it is synced when it is written") \
    BUG(LOG_TAIL_NOT_CUT, "what is torn at the end of the log is left where it is")          \
    BUG(LOG_TAIL_CUT_EARLY, "the last record that is whole is cut with what is torn")        \
    BUG(LOG_SEGMENT_NOT_HEADED, "a spare that becomes a segment keeps its old header")       \
    BUG(LOG_FOLDER_NOT_SYNCED, "the name of a new segment is not synced")                    \
    BUG(LOG_RECYCLED_TOO_EARLY, "a segment is given away before its copies are synced")      \
    BUG(LOG_RECOVERED_UNSYNCED, "what recovery has found is not synced before it goes on")   \
    BUG(LOG_SYNC_ERROR_FORGOTTEN, "a sync that failed is tried again, and that counts")

/* Of the store of jobs above it. */
#define PLANTED_IN_STORE(BUG)                                                               \
    BUG(STORE_REPLY_UNGATED, "a reply does not wait until what it has seen is on disk")     \
    BUG(STORE_DUPLICATE_UNGATED, "a duplicate is told before the first one is on disk")     \
    BUG(STORE_SERVED_UNGATED, "who waited for a job gets it before its lease is on disk")   \
    BUG(STORE_WAITER_FORGOTTEN, "a job that comes between the look and the wait is missed") \
    BUG(STORE_ROOM_UNTOLD, "nobody is told that there is room in a queue again")            \
    BUG(STORE_NAMES_DROPPED, "segments are let go without logging the names in them again") \
    BUG(STORE_MOVES_ONE, "of a record with several jobs only the first one is moved")       \
    BUG(STORE_IDS_AGAIN, "ids that a crash has lost are given again")                       \
    BUG(STORE_OPEN_UNNOTED, "ids are told before it is on disk that the store is open")     \
    BUG(OUTBOX_KEY_FORGOTTEN, "a row becomes a job without its key")                        \
    BUG(OUTBOX_DONE_TOO_EARLY, "a row is marked before its job is on disk")                 \
    BUG(OUTBOX_FULL_IS_DONE, "a row that found its queue full is marked with the others")

#define PLANTED_ENUMERATOR(name_, words_) PLANTED_##name_,
enum planted {
    PLANTED_IN_RT(PLANTED_ENUMERATOR) PLANTED_IN_FLOW(PLANTED_ENUMERATOR)
        PLANTED_IN_POLICY(PLANTED_ENUMERATOR) PLANTED_IN_LOG(PLANTED_ENUMERATOR)
            PLANTED_IN_STORE(PLANTED_ENUMERATOR) PLANTED_COUNT
};
#undef PLANTED_ENUMERATOR

/* The one that is on. */
extern enum planted planted_now;
/* Its mistake in words. */
const char *planted_words(enum planted bug);

#define PLANTED(name_) __builtin_expect(planted_now == PLANTED_##name_, 0)

#else

#define PLANTED(name_) 0

#endif

#endif
