/* codel.c - the law by which things are shed. */
#include "policy/codel.h"

#include <assert.h>

enum {
    REMEMBERED_INTERVALS = 16, /* for how long a rate is remembered that has helped */
    ROOT_BITS = 8,             /* of the fraction of a square root */
};

#define TO(state) (1u << (state))
const uint8_t codel_moves[CODEL_STATES] = {
    [CODEL_CALM] = TO(CODEL_ABOVE),
    [CODEL_ABOVE] = TO(CODEL_CALM) | TO(CODEL_SHEDDING),
    [CODEL_SHEDDING] = TO(CODEL_CALM),
};

static void codel_set_state(struct codel *codel, enum codel_state state)
{
    assert(codel_moves[codel->state] & TO(state));
    codel->state = state;
}

void codel_init(struct codel *codel, const struct codel_rules *rules)
{
    *codel = (struct codel){.rules = *rules, .state = CODEL_CALM};
}

void codel_calms(struct codel *codel)
{
    codel_set_state(codel, CODEL_CALM);
}

static uint64_t square_root(uint64_t value)
{
    uint64_t root = 0;
    for (uint64_t bit = UINT64_C(1) << 31; bit > 0; bit >>= 1) {
        if ((root | bit) * (root | bit) <= value) root |= bit;
    }
    return root;
}

static int64_t later(int64_t at_ns, int64_t by_ns)
{
    int64_t sum_ns;
    return __builtin_add_overflow(at_ns, by_ns, &sum_ns) ? INT64_MAX : sum_ns;
}

/* interval / √n; 48 bits of n are more than there will ever be. */
static int64_t step_ns(const struct codel *codel)
{
    uint64_t root = square_root(codel->shed << (2 * ROOT_BITS));
    uint64_t whole = (uint64_t)codel->rules.interval_ns / root;
    uint64_t rest = (uint64_t)codel->rules.interval_ns % root;
    return (int64_t)((whole << ROOT_BITS) + ((rest << ROOT_BITS) / root));
}

static void begin_shedding(struct codel *codel, int64_t now_ns)
{
    uint64_t grown = codel->shed - codel->shed_before;
    int64_t since_ns;
    bool lately = grown > 1 && !__builtin_sub_overflow(now_ns, codel->next_ns, &since_ns) &&
                  since_ns / REMEMBERED_INTERVALS < codel->rules.interval_ns;

    codel_set_state(codel, CODEL_SHEDDING);
    codel->shed = lately ? grown : 1;
    codel->shed_before = codel->shed;
    codel->next_ns = later(now_ns, step_ns(codel));
}

bool codel_sheds(struct codel *codel, int64_t waited_ns, int64_t now_ns)
{
    bool too_long = waited_ns > codel->rules.wait_max_ns;

    if (codel_is_within(codel, waited_ns)) {
        codel_pass(codel);
        return false;
    }
    switch (codel->state) {
    case CODEL_CALM:
        codel_set_state(codel, CODEL_ABOVE);
        codel->above_until_ns = later(now_ns, codel->rules.interval_ns);
        return too_long;
    case CODEL_ABOVE:
        if (now_ns < codel->above_until_ns) return too_long;
        begin_shedding(codel, now_ns);
        return true;
    case CODEL_SHEDDING:
        if (now_ns < codel->next_ns) return too_long;
        codel->shed++;
        /* From when it was due, so that the rate is kept by those who come late; but not for
         * a time in which nobody came at all. */
        if (later(codel->next_ns, codel->rules.interval_ns) < now_ns) codel->next_ns = now_ns;
        codel->next_ns = later(codel->next_ns, step_ns(codel));
        return true;
    case CODEL_STATES: break;
    }
    return too_long;
}
