/* c_program - every macro of the public headers, expanded in strict C17: blocks,
 * a scope block, spawn with and without a spec. Also what `meson install` is
 * checked with. */
#include <weir/weir.h>

#include <stdio.h>

static int add(void *arg)
{
    int *const *total = arg;
    int r = weir_sleep(1);
    if (r < 0) return r;
    **total += 21;
    return 0;
}

struct pair {
    int first, second;
};
typedef WEIR_TX(struct pair) pair_tx;
typedef WEIR_RX(struct pair) pair_rx;

static void forget(void *item, enum weir_drop why, void *keep_arg)
{
    (void)item, (void)why, (void)keep_arg;
}

/* Specs and items are written where they are used, with all their commas. */
static int move_pairs(weir_scope *scope, int *ret_sum)
{
    weir_chan_spec few = {
        .name = "few", .capacity = 1, .overflow = WEIR_WAIT, .on_close = WEIR_DRAIN};
    struct pair pair = {0, 0};
    pair_tx tx, few_tx;
    pair_rx rx, few_rx;
    int r = weir_chan_open(scope, &few, &few_tx, &few_rx);

    if (r < 0) return r;
    r = weir_chan_open(scope,
                       &(weir_chan_spec){.name = "pairs",
                                         .capacity = 4,
                                         .overflow = WEIR_WAIT,
                                         .on_close = WEIR_DRAIN,
                                         .item_bytes = sizeof(struct pair),
                                         .capacity_max = 8,
                                         .any_thread = false,
                                         .takes_work = false,
                                         .counts_done = false,
                                         .on_drop = forget,
                                         .keep_arg = NULL,
                                         .latency_ms = 10},
                       &tx, &rx);
    if (r < 0) return r;
    r = weir_send(tx, &(struct pair){.first = 1, .second = 2});
    if (r == 0) r = weir_try_send(tx, &(const struct pair){.first = 3, .second = 4});
    if (r == 0) {
        weir_case cases[] = {WEIR_CASE_SEND(tx, &(struct pair){5, 6}), WEIR_CASE_TIMER(1000)};
        r = weir_select(cases, 2, WEIR_IN_ORDER);
    }
    for (int i = 0; i < 3 && r == 0; i++) {
        r = weir_recv(rx, &pair);
        *ret_sum += pair.first + pair.second;
    }
    return r;
}

static int first_task(void *arg)
{
    int *total = arg;
    int result = 0;

    WEIR_SCOPE(scope, &result, .name = "sum", .on_failure = WEIR_FAIL_FAST, .max_tasks = 4,
               .overflow = WEIR_WAIT, .deadline_ms = 10000) {
        int r = weir_spawn(scope, add, &total, sizeof total);
        if (r < 0) return r;
        weir_task task;
        r = weir_task_spawn(scope,
                            &(weir_task_spec){.fn = add,
                                              .arg = &total,
                                              .arg_bytes = sizeof total,
                                              .name = "second",
                                              .place = WEIR_PLACE_HERE},
                            &task);
        if (r < 0) return r;
        WEIR_DEADLINE(5000) {
            r = weir_task_join(task, NULL);
            if (r < 0) return r;
        }
        WEIR_SHIELD(1000) {
            r = weir_yield();
            if (r < 0) return r;
        }
        r = move_pairs(scope, total);
        if (r < 0) return r;
        WEIR_NO_DEADLINE("the block is only compiled and left again") { break; }
    }
    return result;
}

int main(void)
{
    int total = 0;
    weir_config config = {.name = "c", .workers = 1};
    int r = weir_run(&config, first_task, &total);
    if (r < 0) {
        fprintf(stderr, "weir_run: %s: %s\n", weir_strerror(r), weir_why());
        return 1;
    }
    if (total != 63) {
        fprintf(stderr, "the tasks added up to %d instead of 63\n", total);
        return 1;
    }
    return 0;
}
