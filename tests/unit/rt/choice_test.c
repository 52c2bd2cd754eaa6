/* choice_test.c - what the scheduler asks the kernel table to choose. */
#include "base/atomic.h"
#include "rt/kernel.h"
#include "unit/rt/support.h"

static unsigned choose_last(void *arg, int kind, unsigned n)
{
    (void)arg;
    return kind == CHOOSE_CANCEL || kind == CHOOSE_YIELD ? 0 : n - 1;
}

static int note_order(void *arg)
{
    struct {
        int *order;
        ATOM(int) * count;
        int id;
    } *given = arg;

    given->order[(*given->count)++] = given->id;
    return 0;
}

static int in_chosen_order(void *arg)
{
    bool last = *(bool *)arg;
    int order[8];
    ATOM(int) count = 0;
    weir_scope *scope = open_scope("chosen", WEIR_FAIL_FAST);

    for (int i = 0; i < 8; i++) {
        struct {
            int *order;
            ATOM(int) * count;
            int id;
        } given = {order, &count, i};

        CHECK_OK(weir_spawn(scope, note_order, &given, sizeof given));
    }
    CHECK_OK(weir_scope_close(scope));
    for (int i = 0; i < 8; i++) CHECK_INT(order[i], ==, last ? 7 - i : i);
    return 0;
}

TEST(kernels_choice_decides_which_task_is_next)
{
    bool last = false;

    CHECK_OK(run_on(1, in_chosen_order, &last));
    last = true;
    test_choose(choose_last, NULL);
    CHECK_OK(run_on(1, in_chosen_order, &last));
}

static unsigned choose_to_yield(void *arg, int kind, unsigned n)
{
    int *asked = arg;

    if (kind != CHOOSE_YIELD) return 0;
    CHECK_INT(n, ==, 2);
    ++*asked;
    return 1;
}

struct turns {
    ATOM(int) count;
    int order[2];
};

static int go_second(void *arg)
{
    struct turns *turns = *(struct turns **)arg;

    turns->order[atom_add(&turns->count, 1)] = 2;
    return 0;
}

/* The other one is ready: at its next suspending call the first lets it go, if that is chosen. */
static int in_turns(void *arg)
{
    bool yields = *(bool *)arg;
    struct turns turns = {0};
    struct turns *pointer = &turns;
    weir_scope *scope = open_scope("turns", WEIR_FAIL_FAST);

    CHECK_OK(weir_checkpoint()); /* nobody else is there: nothing to choose */
    CHECK_OK(weir_spawn(scope, go_second, &pointer, sizeof pointer));
    CHECK_OK(weir_checkpoint());
    turns.order[atom_add(&turns.count, 1)] = 1;
    CHECK_OK(weir_scope_close(scope));
    CHECK_INT(turns.order[0], ==, yields ? 2 : 1);
    CHECK_INT(turns.order[1], ==, yields ? 1 : 2);
    return 0;
}

TEST(kernels_choice_lets_another_task_go_first)
{
    bool yields = false;
    int asked = 0;

    CHECK_OK(run_on(1, in_turns, &yields));
    yields = true;
    test_choose(choose_to_yield, &asked);
    CHECK_OK(run_on(1, in_turns, &yields));
    CHECK_INT(asked, ==, 1);
}
