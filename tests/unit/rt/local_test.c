/* local_test.c - task locals: inherited, isolated, replaced without growing. */
#include <errno.h>

#include "unit/rt/support.h"

static const weir_local_key user_key = {"user"};
static const weir_local_key trace_key = {"trace"};

static int get_int(const weir_local_key *key)
{
    const int *value = weir_local_get(key);

    return value ? *value : -1;
}

static void set_int(const weir_local_key *key, int value)
{
    CHECK_OK(weir_local_set(key, &value, sizeof value));
}

static int expect_user(void *arg)
{
    CHECK_INT(get_int(&user_key), ==, *(int *)arg);
    CHECK_OK(weir_yield());
    CHECK_INT(get_int(&user_key), ==, *(int *)arg);
    set_int(&user_key, 1000); /* ours alone */
    CHECK_INT(get_int(&user_key), ==, 1000);
    CHECK_OK(weir_local_set(&trace_key, NULL, 0));
    CHECK(weir_local_get(&trace_key) == NULL);
    return 0;
}

static int inherit(void *arg)
{
    weir_scope *scope = open_scope("locals", WEIR_FAIL_FAST);

    (void)arg;
    CHECK(weir_local_get(&user_key) == NULL);
    CHECK_OK(weir_spawn(scope, expect_user, &(int){-1}, sizeof(int)));
    set_int(&trace_key, 5);
    for (int i = 1; i < 20; i++) {
        set_int(&user_key, i);
        CHECK_OK(weir_spawn(scope, expect_user, &i, sizeof i));
    }
    CHECK_OK(weir_local_set(&user_key, NULL, 0));
    CHECK(weir_local_get(&user_key) == NULL);
    CHECK_OK(weir_spawn(scope, expect_user, &(int){-1}, sizeof(int)));
    CHECK_OK(weir_scope_close(scope));
    CHECK_INT(get_int(&trace_key), ==, 5);
    return 0;
}

TEST(children_inherit_the_value_as_it_was_when_they_were_spawned)
{
    CHECK_OK(run_on(1, inherit, NULL));
    CHECK_OK(run_on(2, inherit, NULL));
}

static int refuse_large(void *arg)
{
    static const char data[WEIR_LOCAL_BYTES_MAX + 1] = "x";
    const char *value;

    (void)arg;
    CHECK_INT(weir_local_set(&user_key, data, sizeof data), ==, WEIR_EREFUSED);
    CHECK_STR(weir_why(), "task local 'user': 257 bytes, at most 256");
    CHECK_OK(weir_local_set(&user_key, data, WEIR_LOCAL_BYTES_MAX));
    value = weir_local_get(&user_key);
    CHECK_INT(value[0], ==, 'x');
    CHECK_INT((uintptr_t)value % 16, ==, 0);
    return 0;
}

TEST(local_of_more_than_256_bytes_is_refused)
{
    CHECK_INT(weir_local_set(&user_key, "x", 1), ==, WEIR_ENOTASK);
    CHECK(weir_local_get(&user_key) == NULL);
    CHECK_OK(run_on(1, refuse_large, NULL));
}

static int replace_often(void *arg)
{
    size_t blocks;

    (void)arg;
    set_int(&user_key, 0);
    set_int(&trace_key, 0);
    blocks = test_live_blocks();
    for (int i = 0; i < 1000; i++) set_int(&user_key, i);
    CHECK_INT(test_live_blocks(), <=, blocks);
    for (int i = 0; i < 1000; i++) {
        set_int(&user_key, i);
        set_int(&trace_key, -i);
    }
    CHECK_INT(test_live_blocks(), <=, blocks);
    CHECK_INT(get_int(&user_key), ==, 999);
    CHECK_INT(get_int(&trace_key), ==, -999);
    for (int i = 0; i < 1000; i++) {
        CHECK_OK(weir_local_set(&user_key, NULL, 0));
        set_int(&trace_key, i);
    }
    CHECK_INT(test_live_blocks(), <=, blocks);
    CHECK(weir_local_get(&user_key) == NULL);
    return 0;
}

TEST(setting_locals_in_a_loop_does_not_grow_memory)
{
    CHECK_OK(run_on(1, replace_often, NULL));
}

static int fail_to_set(void *arg)
{
    (void)arg;
    set_int(&user_key, 1);
    set_int(&trace_key, 2);
    for (int n = 1; n <= 5; n++) {
        int value = 3;

        test_fail_alloc_at((uint64_t)n);
        if (weir_local_set(&user_key, &value, sizeof value) == 0) break;
        CHECK(test_alloc_failed());
        CHECK_INT(get_int(&user_key), ==, 1);
        CHECK_INT(get_int(&trace_key), ==, 2);
    }
    test_fail_alloc_at(0);
    CHECK_INT(get_int(&user_key), ==, 3);
    return 0;
}

TEST(set_without_memory_changes_nothing)
{
    CHECK_OK(run_on(1, fail_to_set, NULL));
}

static int set_another(void *arg)
{
    const int *user;

    (void)arg;
    set_int(&trace_key, 1);
    set_int(&user_key, 2);
    user = weir_local_get(&user_key);
    set_int(&trace_key, 3);
    CHECK(weir_local_get(&user_key) == user);
    CHECK_INT(*user, ==, 2);
    return 0;
}

TEST(value_stays_where_it_is_while_other_locals_are_set)
{
    CHECK_OK(run_on(1, set_another, NULL));
}

/* Many tasks on two workers share and replace what they inherited. */
static int churn(void *arg)
{
    int depth = *(int *)arg - 1;
    weir_scope *scope = open_scope("churn", WEIR_FAIL_FAST);
    int user = get_int(&user_key);

    for (int i = 0; depth > 0 && i < 4; i++) {
        set_int(i % 2 ? &user_key : &trace_key, user + i);
        CHECK_OK(weir_spawn(scope, churn, &depth, sizeof depth));
    }
    CHECK_OK(weir_yield());
    return weir_scope_close(scope);
}

TEST(locals_are_shared_between_workers_without_harm)
{
    int depth = TEST_SLOW ? 4 : 6;

    CHECK_OK(run_on(2, churn, &depth));
}
