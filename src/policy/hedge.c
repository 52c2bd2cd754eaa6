/* hedge.c - which of two attempts counts. */
#include "policy/hedge.h"

#include <assert.h>

/* Row r, bit s: from state r to state s. BOTH goes back if no second attempt could be made. */
static const uint8_t hedge_moves[HEDGE_STATES] = {
    [HEDGE_FIRST] = 1u << HEDGE_BOTH | 1u << HEDGE_DONE,
    [HEDGE_BOTH] = 1u << HEDGE_ALONE | 1u << HEDGE_DONE | 1u << HEDGE_FIRST,
    [HEDGE_ALONE] = 1u << HEDGE_DONE,
};

static void hedge_set_state(struct hedge *hedge, enum hedge_state state)
{
    assert(hedge_moves[hedge->state] & (1u << state));
    hedge->state = state;
}

void hedge_init(struct hedge *hedge)
{
    *hedge = (struct hedge){.state = HEDGE_FIRST};
}

bool hedge_due(struct hedge *hedge)
{
    if (hedge->state != HEDGE_FIRST) return false;
    hedge_set_state(hedge, HEDGE_BOTH);
    return true;
}

void hedge_undo(struct hedge *hedge)
{
    hedge_set_state(hedge, HEDGE_FIRST);
}

static bool decide(struct hedge *hedge, int winner, int result)
{
    hedge_set_state(hedge, HEDGE_DONE);
    hedge->winner = winner;
    hedge->result = result;
    return true;
}

bool hedge_heard(struct hedge *hedge, int which, int result)
{
    assert(!hedge->ended[which]);
    hedge->ended[which] = true;
    if (hedge->state == HEDGE_DONE) return false;
    if (which == 0) hedge->first_result = result;
    if (result >= 0) return decide(hedge, which, result);
    if (hedge->state == HEDGE_BOTH) {
        hedge_set_state(hedge, HEDGE_ALONE);
        return false;
    }
    return decide(hedge, 0, hedge->first_result);
}
