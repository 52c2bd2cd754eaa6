/* adaptive_test.c - the limit finds the capacity of a simulated server, and follows it.
 *
 * The server has `slots`, each of which serves one call in about `service_ns`; what is more
 * waits in order. Callers come at random, `load` times as many as it can serve; who does not
 * get in goes away. Time is made up.
 */
#include "policy/adaptive.h"

#include <string.h>

#include "unit/policy/chance.h"

#define MS INT64_C(1000000)
#define SECOND (1000 * MS)

static const struct adaptive_rules rules = {.limit = 20,
                                            .limit_min = 1,
                                            .limit_max = 1000,
                                            .window_ns = 100 * MS,
                                            .probe_ns = 10 * SECOND,
                                            .tolerance_pct = 25};

TEST(adaptive_goes_only_from_state_to_state_as_drawn)
{
    static const bool drawn[ADAPTIVE_STATES][ADAPTIVE_STATES] = {
        [ADAPTIVE_DRAIN] = {[ADAPTIVE_PROBE] = true},
        [ADAPTIVE_PROBE] = {[ADAPTIVE_DRAIN] = true, [ADAPTIVE_STEADY] = true},
        [ADAPTIVE_STEADY] = {[ADAPTIVE_DRAIN] = true},
    };
    for (int from = 0; from < ADAPTIVE_STATES; from++) {
        for (int to = 0; to < ADAPTIVE_STATES; to++) {
            CHECK_INT((adaptive_moves[from] >> to) & 1, ==, drawn[from][to]);
        }
    }
}

/* ---- The server ---- */

enum { CALLS_MAX = 1024 };

struct call {
    int64_t came_ns, began_ns, ends_ns; /* ends_ns: 0 while it waits */
};

struct server {
    uint64_t seed;
    int64_t now_ns, next_ns; /* the next caller comes then */
    unsigned slots, busy;
    int64_t service_ns;
    bool varies;        /* service takes from nothing to many times service_ns */
    double load;        /* of what it can serve */
    int64_t timeout_ns; /* of callers; 0: none */
    struct call calls[CALLS_MAX];
    unsigned inside;
    struct adaptive adaptive;
    uint64_t served, timed_out;
    int64_t served_ns;
    uint64_t limits, looks; /* for the mean of the limit */
};

static struct server *make(uint64_t seed)
{
    static struct server server;

    memset(&server, 0, sizeof server);
    server.seed = seed;
    server.now_ns = server.next_ns = SECOND;
    server.slots = 20;
    server.service_ns = 10 * MS;
    server.load = 3;
    adaptive_init(&server.adaptive, &rules);
    return &server;
}

/* About as an exponential distribution: what is left after so many halvings. */
static int64_t about(uint64_t *seed, int64_t mean_ns)
{
    uint64_t bits = chance_next(seed);
    int halvings = __builtin_ctzll(bits | UINT64_C(1) << 40);
    int64_t part = (int64_t)(bits >> 44 & 1023);

    /* ln 2 × (halvings + a part of one): the mean is about 1. */
    return mean_ns * (halvings * 1024 + part) / 1536;
}

static void serve_next(struct server *server)
{
    while (server->busy < server->slots) {
        struct call *first = NULL;
        for (unsigned i = 0; i < server->inside; i++) {
            struct call *call = &server->calls[i];
            if (call->ends_ns == 0 && (!first || call->came_ns < first->came_ns)) first = call;
        }
        if (!first) return;
        server->busy++;
        first->ends_ns = server->now_ns + (server->varies ? about(&server->seed, server->service_ns)
                                                          : server->service_ns);
        if (first->ends_ns == 0) first->ends_ns = 1;
    }
}

static void call_comes(struct server *server)
{
    struct adaptive *adaptive = &server->adaptive;
    int64_t now_ns = server->now_ns;
    double apart_ns = (double)server->service_ns / server->slots / server->load;

    server->next_ns = now_ns + 1 + about(&server->seed, (int64_t)apart_ns);
    if (server->inside >= adaptive->limit) return;
    server->calls[server->inside++] =
        (struct call){.came_ns = now_ns,
                      .began_ns = adaptive_entered(adaptive, server->inside, now_ns) ? now_ns : 0};
    serve_next(server);
}

static void call_ends(struct server *server, unsigned index)
{
    struct adaptive *adaptive = &server->adaptive;
    struct call call = server->calls[index];
    int64_t took_ns = server->now_ns - call.came_ns;
    bool late = server->timeout_ns && took_ns > server->timeout_ns;
    enum adaptive_outcome outcome = late ? ADAPTIVE_OVERLOADED : ADAPTIVE_DONE;

    if (call.began_ns || adaptive_wants_time(adaptive, server->inside)) {
        adaptive_ended_at(adaptive, outcome, call.began_ns, server->now_ns, server->inside);
    } else {
        adaptive_ended(adaptive, outcome);
    }
    CHECK_INT(adaptive->limit, >=, adaptive->rules.limit_min);
    CHECK_INT(adaptive->limit, <=, adaptive->rules.limit_max);
    server->calls[index] = server->calls[--server->inside];
    server->busy--;
    server->served += !late;
    server->timed_out += late;
    server->served_ns += took_ns;
    server->limits += adaptive->limit;
    server->looks++;
    serve_next(server);
}

static void run(struct server *server, int64_t for_ns)
{
    int64_t until_ns = server->now_ns + for_ns;

    server->served = server->timed_out = 0;
    server->served_ns = 0;
    server->limits = server->looks = 0;
    while (server->now_ns < until_ns) {
        unsigned first = server->inside;
        for (unsigned i = 0; i < server->inside; i++) {
            if (server->calls[i].ends_ns == 0) continue;
            if (first == server->inside ||
                server->calls[i].ends_ns < server->calls[first].ends_ns) {
                first = i;
            }
        }
        if (first < server->inside && server->calls[first].ends_ns <= server->next_ns) {
            server->now_ns = server->calls[first].ends_ns;
            call_ends(server, first);
        } else {
            server->now_ns = server->next_ns;
            call_comes(server);
        }
    }
}

/* After a time to find out: it is full, and its callers wait no longer than has to be. */
static void check_well_used(struct server *server, const char *what)
{
    /* Where times vary, so does what is learnt from a hundred of them. */
    unsigned least_pct = server->varies ? 75 : 90, most_pct = server->varies ? 300 : 200;
    uint64_t could, limit;

    run(server, 5 * SECOND);
    run(server, 15 * SECOND);
    could = (uint64_t)(15 * SECOND / server->service_ns) * server->slots;
    limit = server->limits / server->looks;
    test_note("%s: limit %llu of %u slots, %llu served of %llu, in %lld us", what,
              (unsigned long long)limit, server->slots, (unsigned long long)server->served,
              (unsigned long long)could,
              (long long)(server->served_ns / 1000) / (long long)server->looks);
    CHECK_INT(server->served, >=, could * least_pct / 100);
    CHECK_INT(limit, >=, server->slots * least_pct / 100);
    CHECK_INT(limit, <=, server->slots * most_pct / 100 + 2);
    CHECK_INT(server->served_ns / (int64_t)server->looks, <=, server->service_ns * 3);
}

static void follow(struct server *server)
{
    check_well_used(server, "at the beginning");
    server->slots = 10;
    check_well_used(server, "half the capacity");
    server->slots = 40;
    check_well_used(server, "four times that");
    server->service_ns = 20 * MS;
    check_well_used(server, "half as fast");
    server->service_ns = 5 * MS;
    check_well_used(server, "four times as fast");
    server->slots = 2;
    check_well_used(server, "nearly nothing left");
}

TEST(adaptive_finds_the_capacity_and_follows_it)
{
    follow(make(chance_seed()));
}

/* The same runs each time: of a hundred seeds one is unlucky for a quarter of a minute. */
TEST_WITH(adaptive_finds_the_capacity_of_a_server_that_takes_now_long_and_now_short,
          .timeout_ms = 120000)
{
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct server *server = make(seed);
        server->varies = true;
        follow(server);
    }
}

TEST(adaptive_gets_away_from_a_first_limit_that_is_much_too_high_or_low)
{
    uint64_t seed = chance_seed();

    for (size_t first = 1; first <= 1000; first += 333) {
        struct server *server = make(seed);
        struct adaptive_rules other = rules;
        other.limit = first;
        adaptive_init(&server->adaptive, &other);
        check_well_used(server, "from there");
    }
}

TEST(adaptive_grows_only_with_what_is_used)
{
    struct server *server = make(chance_seed());

    server->load = 0.2; /* about 4 of 20 are busy */
    run(server, 60 * SECOND);
    CHECK_INT(server->adaptive.limit, <=, 3 * rules.limit);
}

TEST(adaptive_falls_when_callers_get_nothing_but_timeouts)
{
    struct server *server = make(chance_seed());

    check_well_used(server, "before");
    server->timeout_ns = 50 * MS;
    server->service_ns = 200 * MS; /* whatever it does is too late */
    run(server, SECOND);           /* those that are inside */
    run(server, 120 * SECOND);
    CHECK_INT(server->served, ==, 0);
    CHECK_INT(server->adaptive.limit, <=, 3);
    server->service_ns = 10 * MS;
    check_well_used(server, "and is there again afterwards");
}

TEST(adaptive_learns_nothing_from_failures)
{
    struct adaptive adaptive;
    int64_t now_ns = SECOND;
    size_t limit;

    adaptive_init(&adaptive, &rules);
    limit = adaptive.limit;
    for (int i = 0; i < 100000; i++, now_ns += MS) {
        int64_t began_ns = adaptive_entered(&adaptive, 1, now_ns) ? now_ns : 0;
        if (began_ns) {
            adaptive_ended_at(&adaptive, ADAPTIVE_FAILED, began_ns, now_ns + 1, 1);
        } else {
            adaptive_ended(&adaptive, ADAPTIVE_FAILED);
        }
    }
    CHECK_INT(adaptive.base_ns, ==, 0);
    CHECK_INT(adaptive.limit, ==, limit);
}

TEST(adaptive_survives_anything_it_is_told)
{
    uint64_t seed = chance_seed();

    for (int round = 0; round < 100; round++) {
        struct adaptive_rules any = rules;
        struct adaptive adaptive;
        int64_t now_ns = 1;

        any.limit_min = 1 + chance_below(&seed, 10);
        any.limit = any.limit_min + chance_below(&seed, 100);
        any.limit_max = any.limit + chance_below(&seed, 1 << 20);
        any.tolerance_pct = (unsigned)chance_below(&seed, 1000);
        adaptive_init(&adaptive, &any);
        for (int step = 0; step < 5000; step++) {
            size_t inside = 1 + chance_below(&seed, any.limit_max * 2);
            int64_t began_ns = (int64_t)chance_below(&seed, (uint64_t)now_ns + 1);
            now_ns +=
                (int64_t)chance_below(&seed, chance_below(&seed, 100) ? 10 * MS : 3600 * SECOND);
            (void)adaptive_entered(&adaptive, inside, now_ns);
            adaptive_ended_at(&adaptive, (enum adaptive_outcome)chance_below(&seed, 3), began_ns,
                              now_ns, inside % 50);
            if (step % 97 == 0) {
                adaptive_resize(&adaptive,
                                any.limit_min +
                                    chance_below(&seed, any.limit_max - any.limit_min + 1));
            }
            CHECK_INT(adaptive.limit, >=, any.limit_min);
            CHECK_INT(adaptive.limit, <=, any.limit_max);
        }
    }
}

TEST(adaptive_times_a_part_of_many_calls_and_all_of_few)
{
    struct adaptive adaptive;
    int64_t now_ns = SECOND;
    int timed = 0;

    adaptive_init(&adaptive, &rules);
    for (int i = 0; i < 1000000; i++, now_ns += 1000)
        timed += adaptive_entered(&adaptive, 1, now_ns);
    /* A second is 10 windows; and one in 65 in any case. */
    CHECK_INT(timed, >=, 1000000 / (ADAPTIVE_UNTIMED_MAX + 1));
    CHECK_INT(timed, <=, 10 * ADAPTIVE_TIMED_MAX + 1000000 / ADAPTIVE_UNTIMED_MAX);
    timed = 0;
    for (int i = 0; i < 100; i++, now_ns += 10 * MS)
        timed += adaptive_entered(&adaptive, 1, now_ns);
    CHECK_INT(timed, >=, 99);
}

/* ---- The model: all calls are kept, and everything is worked out from them each time ---- */

enum { KEPT_MAX = 200000 };

struct kept {
    int64_t began_ns, ended_ns;
    enum adaptive_outcome outcome;
};

struct model {
    enum adaptive_state state;
    bool drained;
    double base, before;
    long limit, come_back, lowered, falls;
    int64_t since_ns, probed_ns;
    size_t from, count; /* of the calls: what has ended since then */
    long peak;
};

static struct kept kept[KEPT_MAX];

static double model_mean(const struct model *model, long *ret_timed, long *ret_overloaded)
{
    double sum = 0;

    *ret_timed = *ret_overloaded = 0;
    for (size_t i = model->from; i < model->count; i++) {
        *ret_overloaded += kept[i].outcome == ADAPTIVE_OVERLOADED;
        if (kept[i].outcome != ADAPTIVE_DONE || kept[i].began_ns < model->since_ns) continue;
        sum += (double)(kept[i].ended_ns - kept[i].began_ns);
        ++*ret_timed;
    }
    /* Times are whole nanoseconds. */
    return *ret_timed ? (double)(int64_t)(sum / (double)*ret_timed) : 0;
}

static long model_within(double limit)
{
    long whole = (long)limit;
    if (whole < (long)rules.limit_min) return (long)rules.limit_min;
    return whole > (long)rules.limit_max ? (long)rules.limit_max : whole;
}

static void model_forget(struct model *model, int64_t now_ns)
{
    model->since_ns = now_ns;
    model->from = model->count;
    model->peak = 0;
}

/* The machine counts in whole numbers. */
static double whole(int64_t number)
{
    return (double)number;
}

static void model_lower(struct model *model, double before)
{
    model->state = ADAPTIVE_DRAIN;
    model->drained = false;
    model->before = before;
    model->limit = model_within(whole(model->limit / 2));
}

static void model_probed(struct model *model, int64_t now_ns)
{
    long timed, overloaded;
    double mean = model_mean(model, &timed, &overloaded);
    bool lowest = model->limit == (long)rules.limit_min;

    if (timed < ADAPTIVE_PROBE_CALLS) return;
    if ((model->before == 0 || mean < whole((int64_t)model->before / 4 * 3)) && !lowest) {
        model->lowered++;
        model_lower(model, mean);
        return;
    }
    model->base = mean;
    if (model->before > 0 && mean >= whole((int64_t)model->before / 4 * 3)) {
        model->base = whole((int64_t)(mean + model->before) / 2);
    }
    if (model->lowered > 1 && model->come_back > 4 * model->limit + 3) {
        model->come_back = model_within((double)(4 * model->limit + 3));
    }
    model->limit = model->come_back;
    model->state = ADAPTIVE_STEADY;
    model->probed_ns = now_ns;
    model->falls = 0;
    model_forget(model, now_ns);
}

static void model_steady(struct model *model, int64_t now_ns)
{
    long timed, overloaded, limit = model->limit;
    double mean = model_mean(model, &timed, &overloaded), factor = 1, next = (double)limit;
    long root = 1;

    if (timed + overloaded < ADAPTIVE_WINDOW_CALLS || now_ns - model->since_ns < rules.window_ns) {
        return;
    }
    while ((root + 1) * (root + 1) <= limit) root++;
    if (timed > 0) {
        if (mean < whole((int64_t)model->base / 4 * 3)) model->base = mean + 1;
        factor = mean > 0 ? whole((int64_t)model->base * 125 / 100) / mean : 2;
        factor = factor < 0.5 ? 0.5 : factor > 2 ? 2 : factor;
        factor = (double)(long)(factor * 1024) / 1024; /* as finely as that is counted */
        next = (double)(long)((double)limit * factor) + (double)root;
    }
    if (model->peak < limit / 2 && next > (double)limit) next = (double)limit;
    if (overloaded * 8 > (long)(model->count - model->from) && next > whole(limit * 9 / 10)) {
        next = whole(limit * 9 / 10);
    }
    model->limit = model_within(next);
    model->falls =
        factor < 1 && (next < whole(limit - limit / 16) || next <= (double)rules.limit_min)
            ? model->falls + 1
            : 0;
    model_forget(model, now_ns);
    if (model->falls < ADAPTIVE_FALLS_MAX && now_ns - model->probed_ns < rules.probe_ns) return;
    model->come_back = model->limit;
    model->lowered = 0;
    model_lower(model, 0);
}

static void model_ended(struct model *model, struct kept call, long inside)
{
    int64_t now_ns = call.ended_ns;

    kept[model->count++] = call;
    if (model->state == ADAPTIVE_PROBE) {
        model_probed(model, now_ns);
    } else if (model->state == ADAPTIVE_STEADY) {
        model_steady(model, now_ns);
    } else if (!model->drained) {
        if (inside > model->limit) return;
        model->drained = true;
        model_forget(model, now_ns);
    } else if ((long)(model->count - model->from) >= model->limit ||
               now_ns - model->since_ns >= 4 * rules.window_ns) {
        model->state = ADAPTIVE_PROBE;
        model_forget(model, now_ns);
    }
}

TEST(adaptive_equals_its_model)
{
    uint64_t seed = chance_seed();
    int seen[ADAPTIVE_STATES] = {0};

    for (int round = 0; round < 5; round++) {
        struct model model = {.limit = (long)rules.limit / 2, .come_back = (long)rules.limit};
        struct adaptive adaptive;
        int64_t now_ns = SECOND, usual_ns = 10 * MS;

        adaptive_init(&adaptive, &rules);
        for (int i = 0; i < 50000; i++) {
            long inside = 1 + (long)chance_below(&seed, (uint64_t)model.limit + 3);
            struct kept call = {.outcome = ADAPTIVE_DONE};

            now_ns += (int64_t)chance_below(&seed, 2 * MS);
            if (chance_below(&seed, 5000) == 0) {
                usual_ns = (1 + (int64_t)chance_below(&seed, 40)) * MS; /* another server */
            }
            call.ended_ns = now_ns;
            call.began_ns =
                now_ns - (int64_t)chance_below(&seed, (uint64_t)usual_ns) - usual_ns / 2;
            if (chance_below(&seed, 10) == 0) {
                call.outcome = (enum adaptive_outcome)chance_below(&seed, 3);
            }
            (void)adaptive_entered(&adaptive, (size_t)inside, now_ns);
            if (inside > model.peak) model.peak = inside;
            adaptive_ended_at(&adaptive, call.outcome, call.began_ns, now_ns, (size_t)inside);
            model_ended(&model, call, inside);
            seen[model.state]++;
            CHECK_INT(adaptive.state, ==, model.state);
            CHECK_INT(adaptive.limit, ==, model.limit);
        }
    }
    for (int i = 0; i < ADAPTIVE_STATES; i++) CHECK_INT(seen[i], >, 1000);
}
