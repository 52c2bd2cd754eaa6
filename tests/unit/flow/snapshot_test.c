/* snapshot_test.c - versions that are read as they are, replaced, and freed once. */
#include <errno.h>
#include <pthread.h>
#include <stdalign.h>
#include <string.h>
#include <weir/snapshot.h>

#include "base/atomic.h"
#include "unit/flow/flow_test.h"

struct table {
    int64_t version;
    int64_t squares[30]; /* each is version times version: a torn one is seen */
};

static ATOM(int) freed;

static void table_freed(void *value, void *keep_arg)
{
    const struct table *table = value;
    CHECK(keep_arg == &freed);
    CHECK_INT(table->squares[29], ==, table->version * table->version);
    (void)atom_add(&freed, 1);
}

static struct table table_of(int64_t version)
{
    struct table table = {.version = version};
    for (int i = 0; i < 30; i++) table.squares[i] = version * version;
    return table;
}

static weir_snapshot_spec spec_of(size_t versions_max)
{
    atom_store(&freed, 0);
    return (weir_snapshot_spec){.name = "table",
                                .value_bytes = sizeof(struct table),
                                .versions_max = versions_max,
                                .on_free = table_freed,
                                .keep_arg = &freed};
}

static int next_table(void *value, void *arg)
{
    struct table *table = value;
    (void)arg;
    *table = table_of(table->version + 1);
    return 0;
}

FLOW_TEST(snapshot_that_is_taken_stays_as_it_is)
{
    weir_snapshot_spec spec = spec_of(8);
    struct table first = table_of(1), second = table_of(2);
    int result;

    FLOW_SCOPE(scope, &result)
    {
        const struct table *old, *now;
        weir_snapshot *snapshot;
        weir_snapshot_figures figures;

        CHECK_OK(weir_snapshot_open(scope, &spec, &first, &snapshot));
        old = weir_snapshot_take(snapshot);
        CHECK_OK(weir_snapshot_publish(snapshot, &second));
        now = weir_snapshot_take(snapshot);
        CHECK_INT(old->version, ==, 1);
        CHECK_INT(now->version, ==, 2);
        weir_snapshot_figures_of(snapshot, &figures);
        CHECK_INT(figures.version, ==, 2);
        CHECK_INT(figures.versions_alive, ==, 2);
        CHECK_INT(atom_load(&freed), ==, 0);
        weir_snapshot_give_back(old);
        CHECK_INT(atom_load(&freed), ==, 1);
        weir_snapshot_give_back(now); /* the snapshot still holds it */
        CHECK_INT(atom_load(&freed), ==, 1);
        now = weir_snapshot_take(snapshot);
        weir_snapshot_close(snapshot);
        CHECK_INT(now->version, ==, 2);
        weir_snapshot_give_back(now);
        CHECK_INT(atom_load(&freed), ==, 2);
        weir_snapshot_give_back(NULL);
        weir_snapshot_close(NULL);
    }
    return result;
}

FLOW_TEST(snapshot_has_no_more_versions_than_said)
{
    weir_snapshot_spec spec = spec_of(3);
    struct table table = table_of(1);
    int result;

    FLOW_SCOPE(scope, &result)
    {
        const void *taken[3];
        weir_snapshot *snapshot;
        weir_snapshot_figures figures;

        CHECK_OK(weir_snapshot_open(scope, &spec, &table, &snapshot));
        for (int i = 0; i < 2; i++) {
            taken[i] = weir_snapshot_take(snapshot);
            CHECK_OK(weir_snapshot_update(snapshot, next_table, NULL));
        }
        taken[2] = weir_snapshot_take(snapshot);
        CHECK_INT(weir_snapshot_publish(snapshot, &table), ==, WEIR_EOVERLOAD);
        CHECK_CONTAINS(weir_why(), "snapshot 'table': 3 versions are being read (versions_max)");
        CHECK_INT(weir_snapshot_update(snapshot, next_table, NULL), ==, WEIR_EOVERLOAD);
        weir_snapshot_figures_of(snapshot, &figures);
        CHECK_INT(figures.rejected, ==, 2);
        CHECK_INT(figures.version, ==, 3);
        weir_snapshot_give_back(taken[0]);
        CHECK_OK(weir_snapshot_publish(snapshot, &table));
        weir_snapshot_give_back(taken[1]);
        weir_snapshot_give_back(taken[2]);
    }
    CHECK_INT(atom_load(&freed), ==, 4);
    return result;
}

static int refuse_change(void *value, void *arg)
{
    memset(value, 0, sizeof(struct table));
    return *(int *)arg;
}

FLOW_TEST(snapshot_update_that_fails_publishes_nothing)
{
    weir_snapshot_spec spec = spec_of(2);
    struct table table = table_of(7);
    int result, error = -EINVAL;

    FLOW_SCOPE(scope, &result)
    {
        const struct table *now;
        weir_snapshot *snapshot;

        CHECK_OK(weir_snapshot_open(scope, &spec, &table, &snapshot));
        CHECK_INT(weir_snapshot_update(snapshot, refuse_change, &error), ==, -EINVAL);
        now = weir_snapshot_take(snapshot);
        CHECK_INT(now->version, ==, 7);
        weir_snapshot_give_back(now);
        CHECK_INT(atom_load(&freed), ==, 0);
        CHECK_OK(weir_snapshot_update(snapshot, next_table, NULL)); /* there is room for it */
    }
    CHECK_INT(atom_load(&freed), ==, 2);
    return result;
}

FLOW_TEST(snapshot_spec_that_leaves_something_out_is_refused)
{
    static const struct {
        weir_snapshot_spec spec;
        const char *why;
    } rows[] = {
        {{.value_bytes = 8, .versions_max = 2}, "snapshot: name is not set"},
        {{.name = "s", .versions_max = 2}, "snapshot 's': value_bytes is 0"},
        {{.name = "s", .value_bytes = SIZE_MAX, .versions_max = 2}, "must be 1 to 67108864"},
        {{.name = "s", .value_bytes = 8}, "snapshot 's': versions_max is 0, must be 2"},
        {{.name = "s", .value_bytes = 8, .versions_max = 1}, "versions_max is 1, must be 2"},
    };
    weir_snapshot *snapshot;
    int64_t value = 1;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        weir_snapshot_spec spec = {.name = "s", .value_bytes = 8, .versions_max = 2};
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            CHECK_INT(weir_snapshot_open(scope, &rows[i].spec, &value, &snapshot), ==,
                      WEIR_EREFUSED);
            CHECK_CONTAINS(weir_why(), rows[i].why);
        }
        CHECK_INT(weir_snapshot_open(scope, &spec, NULL, &snapshot), ==, WEIR_EREFUSED);
        CHECK_CONTAINS(weir_why(), "there is no first value");
    }
    return result;
}

/* ---- Many readers and writers ---- */

enum { READERS = 100, WRITERS = 10, ROUNDS = 100 };

static int read_tables(void *arg)
{
    weir_snapshot *snapshot = *(weir_snapshot **)arg;
    int64_t last = 0;

    for (int i = 0; i < ROUNDS; i++) {
        const struct table *table = weir_snapshot_take(snapshot);
        CHECK_INT(table->version, >=, last); /* never back */
        last = table->version;
        if (i % 8 == 0) CHECK_OK(weir_yield());
        for (int k = 0; k < 30; k++) CHECK_INT(table->squares[k], ==, last * last);
        weir_snapshot_give_back(table);
    }
    return 0;
}

static int write_tables(void *arg)
{
    weir_snapshot *snapshot = *(weir_snapshot **)arg;

    for (int i = 0; i < ROUNDS; i++) {
        CHECK_OK(weir_snapshot_update(snapshot, next_table, NULL));
        CHECK_OK(weir_yield());
    }
    return 0;
}

FLOW_TEST(snapshot_loses_no_update_and_frees_each_version_once)
{
    weir_snapshot_spec spec = spec_of(READERS + 2 * WRITERS + 1);
    struct table table = table_of(1);
    int result;

    FLOW_SCOPE_ANYWHERE(scope, &result)
    {
        const struct table *last;
        weir_snapshot *snapshot;

        CHECK_OK(weir_snapshot_open(scope, &spec, &table, &snapshot));
        for (int i = 0; i < READERS; i++) {
            CHECK_OK(weir_spawn(scope, read_tables, &snapshot, sizeof snapshot));
            if (i % (READERS / WRITERS) > 0) continue;
            CHECK_OK(weir_spawn(scope, write_tables, &snapshot, sizeof snapshot));
        }
        CHECK_OK(weir_scope_join(scope));
        last = weir_snapshot_take(snapshot);
        CHECK_INT(last->version, ==, 1 + WRITERS * ROUNDS);
        weir_snapshot_give_back(last);
        CHECK_INT(atom_load(&freed), ==, WRITERS * ROUNDS);
    }
    CHECK_INT(atom_load(&freed), ==, 1 + WRITERS * ROUNDS);
    return result;
}

/* ---- After the scope, and after the runtime ---- */

static int take_one(void *arg)
{
    weir_snapshot_spec spec = spec_of(4);
    struct table table = table_of(5);
    int result;

    FLOW_SCOPE(scope, &result)
    {
        weir_snapshot *snapshot;
        CHECK_OK(weir_snapshot_open(scope, &spec, &table, &snapshot));
        *(const void **)arg = weir_snapshot_take(snapshot);
    }
    return result;
}

static void *give_back(void *value)
{
    weir_snapshot_give_back(value);
    return NULL;
}

TEST(snapshot_is_given_back_by_any_thread_also_after_the_runtime)
{
    const struct table *taken = NULL;
    pthread_t thread;

    CHECK_OK(weir_run(&(weir_config){.log_level = WEIR_LOG_OFF}, take_one, &taken));
    CHECK_INT(taken->version, ==, 5);
    CHECK_INT(atom_load(&freed), ==, 0);
    CHECK_OK(pthread_create(&thread, NULL, give_back, (void *)(uintptr_t)taken));
    CHECK_OK(pthread_join(thread, NULL));
    CHECK_INT(atom_load(&freed), ==, 1);
}

static void give_back_nonsense(void *arg)
{
    alignas(max_align_t) unsigned char bytes[256] = {0};
    weir_snapshot_give_back(bytes + *(size_t *)arg);
}

TEST(snapshot_that_nobody_took_is_not_given_back)
{
    size_t aligned = 128, odd = 129;

    CHECK_ABORTS(give_back_nonsense, &aligned, "is no version that somebody has taken");
    CHECK_ABORTS(give_back_nonsense, &odd, "is no version that somebody has taken");
}

static int open_and_change(void *arg)
{
    weir_snapshot_spec spec = spec_of(2);
    struct table table = table_of(1);
    int versions = 0, result, r = 0;

    (void)arg;
    FLOW_SCOPE(scope, &result)
    {
        weir_snapshot *snapshot;

        r = weir_snapshot_open(scope, &spec, &table, &snapshot);
        if (r == 0) {
            versions = 1;
            r = weir_snapshot_publish(snapshot, &table);
            versions += r == 0;
        }
        if (r == 0) {
            r = weir_snapshot_update(snapshot, next_table, NULL);
            versions += r == 0;
        }
    }
    CHECK_INT(atom_load(&freed), ==, versions);
    return r < 0 ? r : result;
}

static int swept_scenario(void *arg)
{
    return weir_run(&(weir_config){.workers = 1, .log_level = WEIR_LOG_OFF}, open_and_change, arg);
}

TEST(snapshot_frees_what_it_has_whatever_allocation_fails)
{
    CHECK_INT(test_sweep_alloc(swept_scenario, NULL), >, 4);
}
