/* hedge.h - a second attempt beside one that takes long; the first success wins.
 *
 *     FIRST ──due: there is a second──▶ BOTH ──one failed──▶ ALONE
 *       │                                │                     │ it ended
 *       │ it ended                       │ one went well       ▼
 *       └────────────────────────────────┴─────────────────▶ DONE
 *
 * BOTH goes back to FIRST when the second could not be started after all.
 * hedge_set_state() is the only setter and checks every move against a table. What ends
 * after DONE is not looked at: it has lost, and was cancelled.
 *
 * Invariants: at most two attempts; the result is that of the first success, or if there is
 * none, of the first attempt. No clock, no lock.
 */
#ifndef WEIR_POLICY_HEDGE_H
#define WEIR_POLICY_HEDGE_H

#include <stdbool.h>
#include <stdint.h>

enum hedge_state { HEDGE_FIRST, HEDGE_BOTH, HEDGE_ALONE, HEDGE_DONE, HEDGE_STATES };

struct hedge {
    enum hedge_state state;
    int winner; /* 0: the first attempt, 1: the second; when DONE */
    int result; /* when DONE */
    int first_result;
    bool ended[2];
};

void hedge_init(struct hedge *hedge);

/* It has been long enough: may a second attempt be started? Then it is. */
bool hedge_due(struct hedge *hedge);

/* It could not be started after all. */
void hedge_undo(struct hedge *hedge);

/* Attempt `which` has ended. True: the result stands, and the other one, if it runs, has lost. */
bool hedge_heard(struct hedge *hedge, int which, int result);

#endif
