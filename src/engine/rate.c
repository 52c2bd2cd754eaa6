/* rate.c - rates of keys and queues: exact, in integers, one number of state.
 *
 * A bucket of `burst` tokens that fills with `count` in period_ms. Its state is the time at which
 * it would be full if nothing more were taken ("tat"), in parts of a millisecond: count of them
 * are one. A token is period_ms of those parts, so nothing is ever rounded. */
#include "engine/state.h"

bool rate_valid(const struct engine_rate *rate)
{
    if (rate->count == 0) return true;
    return rate->count <= ENGINE_RATE_MAX && rate->burst <= ENGINE_RATE_MAX &&
           rate->period_ms > 0 && rate->period_ms <= ENGINE_PERIOD_MS_MAX;
}

static int64_t parts_of(const struct engine_rate *rate, int64_t now_ms)
{
    return now_ms * (int64_t)rate->count;
}

uint32_t rate_free(const struct engine_rate *rate, int64_t tat, int64_t now_ms)
{
    int64_t full, missing;
    if (rate->count == 0) return UINT32_MAX;
    full = (int64_t)rate->burst * rate->period_ms;
    missing = tat - parts_of(rate, now_ms);
    if (missing <= 0) return rate->burst;
    return missing >= full ? 0 : (uint32_t)((full - missing) / rate->period_ms);
}

int64_t rate_after(const struct engine_rate *rate, int64_t tat, int64_t now_ms)
{
    int64_t now = parts_of(rate, now_ms);
    if (rate->count == 0) return tat;
    return (tat > now ? tat : now) + rate->period_ms;
}

int64_t rate_next_ms(const struct engine_rate *rate, int64_t tat, int64_t now_ms)
{
    uint32_t free_count = rate_free(rate, tat, now_ms);
    int64_t at;
    if (rate->count == 0 || free_count >= rate->burst) return INT64_MAX;
    /* The parts at which missing is small enough for one token more. */
    at = tat - ((int64_t)rate->burst - free_count - 1) * rate->period_ms;
    return at / rate->count + (at % rate->count != 0);
}

uint32_t key_free(const struct engine *engine, const struct key *key)
{
    uint32_t by_rate = rate_free(&key->rate, key->tat, engine->now_ms);
    uint32_t by_count = UINT32_MAX;
    if (key->concurrency) {
        by_count = key->running < key->concurrency ? key->concurrency - key->running : 0;
    }
    return by_rate < by_count ? by_rate : by_count;
}

/* ---- When a key opens by itself ---- */

static struct tree_links *timer_links(const void *engine, uint32_t key)
{
    return &key_at(engine, key)->timer;
}

static bool opens_before(const void *engine, uint32_t a, uint32_t b)
{
    const struct key *one = key_at(engine, a);
    const struct key *two = key_at(engine, b);
    return one->opens_ms != two->opens_ms ? one->opens_ms < two->opens_ms
                                          : atom_before(&one->atom, &two->atom);
}

void key_set_timer_at(struct engine *engine, uint32_t number, int64_t opens_ms)
{
    struct key *key = key_at(engine, number);

    if (key->opens_ms == opens_ms) return;
    if (key->opens_ms) {
        tree_remove(&engine->key_timers, number, timer_links, opens_before, engine);
    }
    key->opens_ms = opens_ms;
    if (opens_ms) tree_add(&engine->key_timers, number, timer_links, opens_before, engine);
}

void key_set_timer(struct engine *engine, uint32_t number)
{
    const struct key *key = key_at(engine, number);
    int64_t opens_ms = 0;

    /* What is due stays due until a tick has looked. */
    if (key->opens_ms && key->opens_ms <= engine->now_ms && key->blocked > 0) return;
    /* Only while the rate is what blocks: an end of a lease opens it otherwise. */
    if (key->blocked > 0 && key->rate.count > 0 &&
        (key->concurrency == 0 ||
         key->running + (uint64_t)rate_free(&key->rate, key->tat, engine->now_ms) <
             key->concurrency))
        opens_ms = rate_next_ms(&key->rate, key->tat, engine->now_ms);
    key_set_timer_at(engine, number, opens_ms == INT64_MAX ? 0 : opens_ms);
}

uint32_t key_first_timer(const struct engine *engine)
{
    return tree_first(engine->key_timers, timer_links, engine);
}

/* ---- When a queue opens by itself ---- */

static struct tree_links *queue_links(const void *engine, uint32_t queue)
{
    return &queue_at(engine, queue)->timer;
}

static bool queue_before(const void *engine, uint32_t a, uint32_t b)
{
    const struct queue *one = queue_at(engine, a);
    const struct queue *two = queue_at(engine, b);
    return one->opens_ms != two->opens_ms ? one->opens_ms < two->opens_ms
                                          : atom_before(&one->atom, &two->atom);
}

void queue_set_timer_at(struct engine *engine, uint32_t number, int64_t opens_ms)
{
    struct queue *queue = queue_at(engine, number);

    if (queue->opens_ms == opens_ms) return;
    if (queue->opens_ms) {
        tree_remove(&engine->queue_timers, number, queue_links, queue_before, engine);
    }
    queue->opens_ms = opens_ms;
    if (opens_ms) tree_add(&engine->queue_timers, number, queue_links, queue_before, engine);
}

uint32_t queue_first_timer(const struct engine *engine)
{
    return tree_first(engine->queue_timers, queue_links, engine);
}

void keys_look_again(struct engine *engine)
{
    const struct table *keys = &engine->atom_tables[ATOM_KEY];

    for (uint32_t i = 0; i < keys->room; i++) {
        if (keys->slots[i] && key_at(engine, keys->slots[i])->blocked > 0) {
            key_set_timer_at(engine, keys->slots[i], KEY_AT_ONCE);
        }
    }
}
