/* flow_broadcast.c - broadcast, watch and snapshot in simulation. */
#include "sim/flow_program.h"

/* ---- Broadcast ---- */

enum { PUBLISHERS = 2, VALUES = 3, ALL_VALUES = PUBLISHERS * VALUES };

struct value {
    int publisher, number;
};

struct airing {
    weir_broadcast *broadcast;
    int published, publishers_left, ended;
};

struct listener {
    struct airing *airing;
    weir_subscriber *subscriber;
    enum weir_lag lag;
    int values_max; /* leaves after so many */
};

static int publish_values(void *arg)
{
    const struct listener *self = arg; /* values_max: which publisher it is */
    struct airing *airing = self->airing;
    int r = 0;

    for (int i = 0; i < VALUES && r == 0; i++) {
        r = weir_broadcast_publish(airing->broadcast, &(struct value){self->values_max, i});
        CHECK(r == 0 || r == WEIR_ECANCELED);
        if (r == 0) airing->published++;
    }
    if (--airing->publishers_left == 0) weir_broadcast_close(airing->broadcast);
    return 0;
}

/* What a subscriber has seen of each publisher comes later than what it saw before. */
static void check_order(const struct value *value, int *last)
{
    CHECK(value->publisher >= 0 && value->publisher < PUBLISHERS);
    CHECK_INT(value->number, >, last[value->publisher]);
    last[value->publisher] = value->number;
}

static int listen_to_all(void *arg)
{
    const struct listener *self = arg;
    struct airing *airing = self->airing;
    int last[PUBLISHERS] = {-1, -1}, seen = 0, lost = 0, r = 0;

    while (seen < self->values_max) {
        struct value value = {-1, -1};
        r = weir_subscriber_next(self->subscriber, &value);
        if (r < 0) break;
        check_order(&value, last);
        seen++;
        lost += r;
    }
    if (r == WEIR_EOVERLOAD) {
        struct value value;
        CHECK_INT(self->lag, ==, WEIR_LAG_CLOSE);
        CHECK_INT(seen, <, ALL_VALUES);
        r = weir_subscriber_next(self->subscriber, &value);
        CHECK(flow_is_end(r));
    } else if (r == WEIR_ECLOSED) {
        CHECK_INT(seen + lost, ==, airing->published);
    } else {
        CHECK(r >= 0 || r == WEIR_ECANCELED);
    }
    if (self->lag != WEIR_LAG_SKIP) CHECK_INT(lost, ==, 0);
    weir_subscriber_close(self->subscriber);
    airing->ended += r != WEIR_ECANCELED;
    return 0;
}

static int air(enum weir_lag first, enum weir_lag second, int first_leaves_after)
{
    struct airing airing = {.publishers_left = PUBLISHERS};
    weir_scope *outer = flow_scope_open(), *scope = NULL;
    weir_broadcast_spec spec = {
        .name = "news", .value_bytes = sizeof(struct value), .history = 2, .subscribers_max = 2};

    if (!outer) return 0;
    if (weir_broadcast_open(outer, &spec, &airing.broadcast) == 0) scope = flow_scope_open();
    if (scope) {
        for (int i = 0; i < 2; i++) {
            struct listener listener = {.airing = &airing,
                                        .lag = i == 0 ? first : second,
                                        .values_max = i == 0 ? first_leaves_after : INT32_MAX};
            CHECK_OK(weir_broadcast_subscribe(airing.broadcast, listener.lag, false,
                                              &listener.subscriber));
            (void)flow_spawn(scope, i, listen_to_all, &listener, sizeof listener, NULL);
        }
        for (int i = 0; i < PUBLISHERS; i++) {
            struct listener publisher = {.airing = &airing, .values_max = i};
            (void)flow_spawn(scope, i, publish_values, &publisher, sizeof publisher, NULL);
        }
        flow_scope_close(scope);
    }
    flow_scope_close(outer);
    return airing.ended;
}

int flow_publish(enum weir_lag first, enum weir_lag second)
{
    return air(first, second, INT32_MAX);
}

int flow_publish_and_leave(void)
{
    return air(WEIR_LAG_WAIT, WEIR_LAG_SKIP, 1);
}

SIM_TEST(subscribers_that_are_waited_for_see_every_value, .runs_max = 8000, .config = FLOW_HOST)
{
    CHECK_INT(flow_publish(WEIR_LAG_WAIT, WEIR_LAG_WAIT), ==, 2);
    return 0;
}

SIM_TEST(subscribers_that_skip_are_told_how_many, .runs_max = 8000, .config = FLOW_HOST)
{
    CHECK_INT(flow_publish(WEIR_LAG_SKIP, WEIR_LAG_SKIP), ==, 2);
    return 0;
}

SIM_TEST(subscriber_that_is_too_slow_is_told_and_closed, .runs_max = 8000, .config = FLOW_HOST)
{
    CHECK_INT(flow_publish(WEIR_LAG_CLOSE, WEIR_LAG_SKIP), ==, 2);
    return 0;
}

SIM_TEST(publishers_go_on_when_who_held_them_back_leaves, .runs_max = 8000, .config = FLOW_HOST)
{
    CHECK_INT(flow_publish_and_leave(), ==, 2);
    return 0;
}

SIM_TEST(broadcast_survives_a_cancel_of_all, .runs_max = 8000, .config = FLOW_HOST,
         FLOW_CANCELS_ONCE)
{
    return flow_publish(WEIR_LAG_WAIT, WEIR_LAG_SKIP);
}

/* ---- Watch ---- */

enum { CHANGES = 3 };

struct watching {
    weir_watch *watch;
    int seen;
};

static int change_value(void *arg)
{
    struct watching *watching = *(struct watching **)arg;

    for (int i = 1; i <= CHANGES; i++) {
        weir_watch_set(watching->watch, &i);
        flow_linger();
    }
    return 0;
}

static int see_last(void *arg)
{
    struct watching *watching = *(struct watching **)arg;
    uint64_t version = 0;
    int value = -1;

    while (value < CHANGES) {
        uint64_t before = version;
        int r = weir_watch_changed(watching->watch, &version, &value);
        if (r != 0) {
            CHECK_INT(r, ==, WEIR_ECANCELED);
            return 0;
        }
        CHECK_INT(version, >, before);
        CHECK_INT((int)version, ==, value + 1);
    }
    watching->seen++;
    return 0;
}

int flow_watch(void)
{
    struct watching watching = {.seen = 0}, *keep = &watching;
    weir_scope *scope = flow_scope_open();

    if (!scope) return 0;
    if (weir_watch_open(scope, "setting", &(int){0}, sizeof(int), &watching.watch) == 0) {
        for (int i = 0; i < 2; i++) {
            (void)flow_spawn(scope, i, see_last, &keep, sizeof keep, NULL);
        }
        (void)flow_spawn(scope, 1, change_value, &keep, sizeof keep, NULL);
    }
    flow_scope_close(scope);
    return watching.seen;
}

SIM_TEST(last_change_of_a_watch_is_always_seen, .runs_max = 10000, .config = FLOW_HOST)
{
    CHECK_INT(flow_watch(), ==, 2);
    return 0;
}

SIM_TEST(watch_that_is_waited_for_can_be_cancelled, .runs_max = 10000, .config = FLOW_HOST,
         FLOW_CANCELS_ONCE)
{
    return flow_watch();
}

/* ---- Snapshot ---- */

enum { UPDATES = 2, VERSIONS_MAX = 4 };

/* Both halves are the same in every version that is published. */
struct pair {
    int left, right;
};

struct shelf {
    weir_snapshot *snapshot;
    int published, freed, rejected, freed_sum, published_sum;
};

static void note_free(void *value, void *arg)
{
    const struct pair *pair = value;
    struct shelf *shelf = arg;

    CHECK_INT(pair->left, ==, pair->right);
    shelf->freed++;
    shelf->freed_sum += pair->left;
}

static int add_one(void *value, void *arg)
{
    struct pair *pair = value;

    (void)arg;
    CHECK_INT(pair->left, ==, pair->right);
    pair->left++;
    pair->right++;
    return 0;
}

static int update_pair(void *arg)
{
    struct shelf *shelf = *(struct shelf **)arg;

    for (int i = 0; i < UPDATES; i++) {
        int r = weir_snapshot_update(shelf->snapshot, add_one, NULL);
        CHECK(r == 0 || r == WEIR_EOVERLOAD);
        if (r == 0) shelf->published_sum += ++shelf->published;
        flow_linger();
    }
    return 0;
}

static int read_pair(void *arg)
{
    struct shelf *shelf = *(struct shelf **)arg;
    int last = 0;

    for (int i = 0; i < 2; i++) {
        const struct pair *pair = weir_snapshot_take(shelf->snapshot);
        int seen = pair->left;
        CHECK_INT(seen, >=, last);
        flow_linger();
        CHECK_INT(pair->left, ==, seen);
        CHECK_INT(pair->right, ==, seen);
        weir_snapshot_give_back(pair);
        last = seen;
    }
    return 0;
}

int flow_update_snapshot(void)
{
    struct shelf shelf = {.published = 0}, *keep = &shelf;
    weir_scope *outer = flow_scope_open(), *scope = NULL;
    weir_snapshot_spec spec = {.name = "pair",
                               .value_bytes = sizeof(struct pair),
                               .versions_max = VERSIONS_MAX,
                               .on_free = note_free,
                               .keep_arg = &shelf};
    bool opened = false;

    if (!outer) return 0;
    if (weir_snapshot_open(outer, &spec, &(struct pair){0, 0}, &shelf.snapshot) == 0) {
        opened = true;
        scope = flow_scope_open();
    }
    if (scope) {
        const struct pair *latest;
        for (int i = 0; i < 2; i++) {
            (void)flow_spawn(scope, i, update_pair, &keep, sizeof keep, NULL);
            (void)flow_spawn(scope, i, read_pair, &keep, sizeof keep, NULL);
        }
        flow_scope_close(scope);
        latest = weir_snapshot_take(shelf.snapshot);
        CHECK_INT(latest->left, ==, shelf.published);
        weir_snapshot_give_back(latest);
    }
    flow_scope_close(outer);
    if (opened) CHECK_INT(shelf.freed, ==, shelf.published + 1);
    CHECK_INT(shelf.freed_sum, ==, shelf.published_sum);
    return 0;
}

SIM_TEST(snapshot_keeps_versions_whole_and_loses_no_update, .runs_max = 10000, .config = FLOW_HOST)
{
    return flow_update_snapshot();
}

SIM_TEST(snapshot_frees_each_version_once_after_a_cancel, .runs_max = 8000, .config = FLOW_HOST,
         FLOW_CANCELS_ONCE)
{
    return flow_update_snapshot();
}
