/* codel_test.c - when things are shed: by a table, by a model, and in a queue that overflows. */
#include "policy/codel.h"

#include "unit/policy/chance.h"

#define MS INT64_C(1000000)

static const struct codel_rules rules = {
    .target_ns = 5 * MS, .interval_ns = 100 * MS, .wait_max_ns = 200 * MS};

TEST(codel_goes_only_from_state_to_state_as_drawn)
{
    static const bool drawn[CODEL_STATES][CODEL_STATES] = {
        [CODEL_CALM] = {[CODEL_ABOVE] = true},
        [CODEL_ABOVE] = {[CODEL_CALM] = true, [CODEL_SHEDDING] = true},
        [CODEL_SHEDDING] = {[CODEL_CALM] = true},
    };
    for (int from = 0; from < CODEL_STATES; from++) {
        for (int to = 0; to < CODEL_STATES; to++) {
            CHECK_INT((codel_moves[from] >> to) & 1, ==, drawn[from][to]);
        }
    }
}

TEST(codel_sheds_by_the_table)
{
    static const struct {
        int64_t at_ms, waited_ms;
        bool sheds;
        enum codel_state state;
    } rows[] = {
        {0, 4, false, CODEL_CALM},
        {1, 5, false, CODEL_ABOVE}, /* the target itself is too long */
        {100, 50, false, CODEL_ABOVE},
        {100, 4, false, CODEL_CALM}, /* a burst that was over in time */
        {110, 10, false, CODEL_ABOVE},
        {209, 10, false, CODEL_ABOVE},
        {210, 10, true, CODEL_SHEDDING},  /* an interval later */
        {309, 10, false, CODEL_SHEDDING}, /* the next one an interval after the first */
        {310, 10, true, CODEL_SHEDDING},
        {380, 10, false, CODEL_SHEDDING}, /* then an interval / √2: 70.7 ms */
        {381, 10, true, CODEL_SHEDDING},
        {438, 10, false, CODEL_SHEDDING}, /* from when it was due: 380.7 + 57.7 */
        {439, 10, true, CODEL_SHEDDING},
        {440, 201, true, CODEL_SHEDDING}, /* longer than ever allowed */
        {441, 200, false, CODEL_SHEDDING},
        {442, 4, false, CODEL_CALM},
        {443, 201, true, CODEL_ABOVE}, /* in any state */
        {543, 10, true,
         CODEL_SHEDDING}, /* again so soon: three were shed more than it began with */
        {600, 10, false, CODEL_SHEDDING},
        {601, 10, true, CODEL_SHEDDING}, /* so it goes on with √3 */
        {602, 0, false, CODEL_CALM},
        {9000, 10, false, CODEL_ABOVE},
        {9100, 10, true, CODEL_SHEDDING}, /* long after: from the beginning */
        {9199, 10, false, CODEL_SHEDDING},
        {9200, 10, true, CODEL_SHEDDING},
    };
    struct codel codel;

    codel_init(&codel, &rules);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        test_note("row %zu", i);
        CHECK_INT(codel_sheds(&codel, rows[i].waited_ms * MS, rows[i].at_ms * MS), ==,
                  rows[i].sheds);
        CHECK_INT(codel.state, ==, rows[i].state);
    }
}

/* ---- The model: the law in floating point, and the whole past ---- */

static double root(double value)
{
    double guess = value;
    for (int i = 0; i < 40; i++) guess = (guess + value / guess) / 2;
    return guess;
}

struct model {
    double above_since; /* < 0: not above */
    bool shedding;
    double next;
    long count, began_with;
};

static bool model_sheds(struct model *model, double waited, double now)
{
    bool too_long = waited > (double)rules.wait_max_ns, sheds = false;
    double interval = (double)rules.interval_ns;

    if (waited < (double)rules.target_ns) {
        model->above_since = -1;
        model->shedding = false;
        return false;
    }
    if (model->above_since < 0) {
        model->above_since = now;
    } else if (!model->shedding && now - model->above_since >= interval) {
        long grown = model->count - model->began_with;
        bool lately = now - model->next < 16 * interval && grown > 1;
        model->shedding = true;
        model->count = model->began_with = lately ? grown : 1;
        model->next = now + interval / root((double)model->count);
        sheds = true;
    } else if (model->shedding && now >= model->next) {
        model->count++;
        if (model->next < now - interval) model->next = now;
        model->next += interval / root((double)model->count);
        sheds = true;
    }
    return sheds || too_long;
}

TEST(codel_equals_its_model)
{
    uint64_t seed = chance_seed();
    long all = 0, shed = 0;

    for (int round = 0; round < 100; round++) {
        struct model model = {.above_since = -1};
        struct codel codel;
        int64_t now_ns = 0;

        codel_init(&codel, &rules);
        for (int step = 0; step < 2000; step++, all++) {
            bool calm = chance_below(&seed, 40) == 0;
            int64_t waited_ns = (int64_t)chance_below(&seed, calm ? 6 * MS : 210 * MS);
            bool sheds, expected;

            if (!calm && waited_ns < rules.target_ns) waited_ns += rules.target_ns;
            now_ns += (int64_t)chance_below(&seed, chance_below(&seed, 300) ? 20 * MS : 3000 * MS);
            sheds = codel_sheds(&codel, waited_ns, now_ns);
            expected = model_sheds(&model, (double)waited_ns, (double)now_ns);
            shed += sheds;
            CHECK_INT(sheds, ==, expected);
            CHECK_INT(codel.state == CODEL_SHEDDING, ==, model.shedding);
            CHECK_INT(codel.shed, ==, model.count);
            /* The root has 8 bits behind the point: from then on the same is used by both. */
            CHECK(model.next - (double)codel.next_ns < (double)rules.interval_ns / 200);
            CHECK((double)codel.next_ns - model.next < (double)rules.interval_ns / 200);
            model.next = (double)codel.next_ns;
        }
    }
    CHECK_INT(shed, >, all / 100);
}

/* ---- In front of a server: a queue from which one thing is served in a millisecond ---- */

struct line_of {
    long served, shed, late; /* late: served after more than 50 ms */
    int64_t waits_ns;
};

static struct line_of overload(struct codel *codel, int64_t from_ms, int64_t to_ms, int per_ms)
{
    static int64_t came[1000000];
    struct line_of line = {0};
    long head = 0, tail = 0;

    for (int64_t ms = from_ms; ms < to_ms; ms++) {
        int64_t now_ns = ms * MS;
        for (int i = 0; i < per_ms; i++) came[tail++] = now_ns;
        while (head < tail) {
            int64_t waited_ns = now_ns - came[head++];
            if (codel_sheds(codel, waited_ns, now_ns)) {
                line.shed++;
                continue;
            }
            line.served++;
            line.waits_ns += waited_ns;
            line.late += waited_ns > 50 * MS;
            break; /* it takes a millisecond */
        }
    }
    return line;
}

TEST(codel_keeps_the_wait_short_of_a_server_that_gets_five_times_too_much)
{
    struct codel_rules strict = {
        .target_ns = 5 * MS, .interval_ns = 50 * MS, .wait_max_ns = 50 * MS};
    struct codel codel;
    struct line_of line;

    codel_init(&codel, &strict);
    line = overload(&codel, 0, 10000, 5);
    CHECK_INT(line.served, ==, 10000); /* it never stands still */
    CHECK_INT(line.late, ==, 0);       /* and whoever is served is served in time */
    CHECK_INT(line.shed, >, 39000);
}

TEST(codel_sheds_nothing_of_a_burst)
{
    struct codel codel;
    struct line_of line;

    codel_init(&codel, &rules);
    /* 90 at once, of which the last waits for 89 ms: over before the interval is. */
    line = overload(&codel, 0, 1, 90);
    CHECK_INT(line.served, ==, 1);
    for (int64_t ms = 1; ms < 90; ms++) CHECK(!codel_sheds(&codel, ms * MS, ms * MS));
    CHECK(!codel_sheds(&codel, 1 * MS, 90 * MS));
    CHECK_INT(codel.state, ==, CODEL_CALM);
}

TEST(codel_survives_any_time)
{
    static const int64_t times[] = {INT64_MIN, -1, 0, 1, 5 * MS, 200 * MS, INT64_MAX};
    enum { TIMES = sizeof times / sizeof *times };
    struct codel codel;

    codel_init(&codel, &rules);
    for (int i = 0; i < TIMES * TIMES * TIMES; i++) {
        (void)codel_sheds(&codel, times[i % TIMES], times[i / TIMES % TIMES]);
        CHECK_INT(codel.state, <, CODEL_STATES);
    }
}
