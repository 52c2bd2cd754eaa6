/* retry.c - attempts, errors, waits. */
#include "policy/retry.h"

#include <assert.h>
#include <weir/error.h>

/* Row r, bit s: a call may go from state r to state s. */
static const uint8_t retry_moves[RETRY_STATES] = {
    [RETRY_READY] = 1u << RETRY_RUNNING | 1u << RETRY_DONE,
    [RETRY_RUNNING] = 1u << RETRY_WAITING | 1u << RETRY_DONE,
    [RETRY_WAITING] = 1u << RETRY_RUNNING | 1u << RETRY_DONE,
};

static void retry_set_state(struct retry *retry, enum retry_state state)
{
    assert(retry_moves[retry->state] & (1u << state));
    retry->state = state;
}

static void finish(struct retry *retry, enum retry_end end)
{
    retry_set_state(retry, RETRY_DONE);
    retry->end = end;
}

void retry_init(struct retry *retry, const struct retry_rules *keep_rules)
{
    assert(keep_rules->attempts_max > 0);
    assert(keep_rules->attempts_max <= RETRY_ATTEMPTS_MAX);
    *retry = (struct retry){.rules = keep_rules, .state = RETRY_READY, .end = RETRY_NOT_ENDED};
}

void retry_begin(struct retry *retry)
{
    assert(retry->attempts < retry->rules->attempts_max);
    retry_set_state(retry, RETRY_RUNNING);
    retry->attempts++;
}

static bool is_named(const struct retry_rules *rules, int error)
{
    if (error == WEIR_ECANCELED) return false;
    for (uint32_t i = 0; i < rules->error_count; i++) {
        if (rules->errors[i] == error) return true;
    }
    return false;
}

bool retry_heard(struct retry *retry, int result)
{
    enum retry_end end;

    if (result >= 0) {
        end = RETRY_WENT_WELL;
    } else if (result == WEIR_ECANCELED) {
        end = RETRY_INTERRUPTED;
    } else if (!is_named(retry->rules, result)) {
        end = RETRY_FATAL;
    } else if (retry->attempts >= retry->rules->attempts_max) {
        end = RETRY_ATTEMPTS;
    } else {
        retry_set_state(retry, RETRY_WAITING);
        return true;
    }
    finish(retry, end);
    return false;
}

int64_t retry_backoff_ns(const struct retry_rules *rules, uint32_t attempt)
{
    int64_t ns = rules->backoff_ns;

    assert(attempt > 0);
    for (uint32_t i = 1; i < attempt && ns < rules->backoff_ns_max; i++) {
        ns = ns > rules->backoff_ns_max / 2 ? rules->backoff_ns_max : ns * 2;
    }
    return ns < rules->backoff_ns_max ? ns : rules->backoff_ns_max;
}

int64_t retry_backoff_total_ns(const struct retry_rules *rules)
{
    int64_t total = 0;

    for (uint32_t i = 1; i < rules->attempts_max; i++) {
        int64_t ns = retry_backoff_ns(rules, i);
        total = ns > INT64_MAX - total ? INT64_MAX : total + ns;
    }
    return total;
}

int64_t retry_wait(struct retry *retry, uint64_t random, int64_t now_ns, int64_t deadline_ns)
{
    int64_t most = retry_backoff_ns(retry->rules, retry->attempts);
    int64_t wait = (int64_t)(random % ((uint64_t)most + 1));

    assert(retry->state == RETRY_WAITING);
    if (wait < deadline_ns - now_ns) return wait;
    finish(retry, RETRY_NO_TIME);
    return -1;
}

void retry_give_up(struct retry *retry, enum retry_end end)
{
    assert(end > RETRY_WENT_WELL);
    finish(retry, end);
}
