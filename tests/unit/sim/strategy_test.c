/* strategy_test.c - how choices are made, on small models that can be counted through. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <weir/error.h>

#include "harness/test.h"
#include "sim/choice.h"
#include "sim/strategy_kind.h"

/* ---- The model: threads that take so many steps each, one at a time ---- */

enum { THREADS_MAX = 4, STEPS_MAX = 32 };

struct model {
    int threads;
    int left[THREADS_MAX];
    int order[STEPS_MAX]; /* who took each step */
    int taken;
};

static unsigned candidates(const struct model *model, uint64_t *ids)
{
    unsigned n = 0;

    for (int i = 0; i < model->threads; i++)
        if (model->left[i] > 0) ids[n++] = (uint64_t)i + 100;
    return n;
}

static void step(struct model *model, uint64_t id)
{
    model->left[id - 100]--;
    model->order[model->taken++] = (int)id - 100;
}

static void run_model(struct model *model, struct strategy *strategy)
{
    uint64_t ids[THREADS_MAX];
    unsigned n;

    while ((n = candidates(model, ids)) > 0) {
        unsigned answer = 0;

        if (n > 1) {
            answer = strategy_answer(
                strategy,
                &(struct question){
                    .kind = CHOOSE_TASK, .class = CLASS_ORDER, .n = n, .ids = ids, .id_count = n});
            CHECK_INT(answer, <, n);
        }
        step(model, ids[answer]);
    }
}

/* The schedules of a model with at most so many departures, counted by recursion. */
static uint64_t count_schedules(struct model model, int departures_max)
{
    uint64_t ids[THREADS_MAX], count = 0;
    unsigned n = candidates(&model, ids);

    if (n == 0) return 1;
    for (unsigned i = 0; i < n; i++) {
        struct model next = model;

        if (i > 0 && departures_max == 0) continue;
        step(&next, ids[i]);
        count += count_schedules(next, departures_max - (i > 0));
    }
    return count;
}

static struct strategy *parsed(const char *words)
{
    struct strategy *strategy = NULL;

    CHECK_OK(strategy_parse(words, &strategy));
    CHECK(strategy_begin(strategy));
    return strategy;
}

static struct strategy *made(unsigned strategies, int departures_max)
{
    struct strategy *strategy = NULL;
    weir_sim_spec spec = {
        .strategies = strategies, .depth = 3, .departures_max = departures_max, .seed = 7};

    CHECK_OK(strategy_new(&spec, &strategy));
    return strategy;
}

static unsigned ask(struct strategy *strategy, unsigned kind, unsigned n, unsigned one_in)
{
    unsigned answer = strategy_answer(
        strategy, &(struct question){
                      .kind = kind, .class = choice_row(kind)->class, .n = n, .one_in = one_in});

    CHECK_INT(answer, <, n);
    return answer;
}

/* A run of questions of all kinds, hashed. */
static uint64_t mixed_run(struct strategy *strategy)
{
    static const uint64_t ids[] = {3, 4, 5};
    uint64_t hash = 1;

    for (unsigned i = 0; i < 500; i++) {
        unsigned kind = i % SIM_KINDS;
        bool two = choice_row(kind)->yes != NULL;
        unsigned answer =
            strategy_answer(strategy, &(struct question){.kind = kind,
                                                         .class = choice_row(kind)->class,
                                                         .n = two ? 2 : 3,
                                                         .one_in = 10,
                                                         .ids = ids,
                                                         .id_count = 3,
                                                         .running = 6});

        CHECK_INT(answer, <, two ? 2 : 3);
        hash = hash * 31 + answer;
    }
    return hash;
}

/* ---- All of them ---- */

TEST(same_words_make_the_same_answers)
{
    static const char *const all[] = {"random:7", "pct:3:7:90", "path:7:3=1,20=2,499=1"};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct strategy *a = parsed(all[i]), *b = parsed(all[i]);
        char words[64];
        uint64_t hash = mixed_run(a);

        CHECK(hash == mixed_run(b));
        strategy_again(a);
        CHECK(hash == mixed_run(a));
        CHECK_INT(strategy_words(a, words, sizeof words), ==, strlen(all[i]));
        CHECK_STR(words, all[i]);
        CHECK_INT(strategy_seed(a), ==, 7);
        strategy_free(a);
        strategy_free(b);
    }
}

TEST(runs_of_a_search_replay_from_their_words)
{
    struct strategy *strategy = made(WEIR_SIM_RANDOM | WEIR_SIM_PCT, 0);
    uint64_t before = 0;

    for (uint64_t i = 0; i < 20; i++) {
        char words[64];
        struct strategy *replay;
        uint64_t hash;

        CHECK(strategy_begin(strategy));
        CHECK_INT(strategy_seed(strategy), ==, 7 + i);
        CHECK_STR(strategy_name(strategy), i % 2 ? "pct" : "random");
        hash = mixed_run(strategy);
        CHECK(hash != before);
        before = hash;
        strategy_words(strategy, words, sizeof words);
        strategy_end(strategy);
        replay = parsed(words);
        CHECK(mixed_run(replay) == hash);
        strategy_free(replay);
    }
    strategy_free(strategy);
}

TEST(words_that_name_no_run_are_refused)
{
    static const char *const bad[][2] = {
        {"", "none of random:, pct:, path:"},
        {"random", "none of random:, pct:, path:"},
        {"random:", "random:SEED"},
        {"random:7x", "random:SEED"},
        {"random:99999999999999999999", "random:SEED"},
        {"random:7:8", "random:SEED"},
        {"pct:3", "pct:DEPTH:SEED:STEPS"},
        {"pct:1:7", "a depth is 2 to 8"},
        {"pct:9:7", "a depth is 2 to 8"},
        {"pct:3:7:0", "pct:DEPTH:SEED:STEPS"},
        {"path:7:3", "path:SEED:NUMBER=ANSWER"},
        {"path:7:3=0", "path:SEED:NUMBER=ANSWER"},
        {"path:7:3=1,", "path:SEED:NUMBER=ANSWER"},
        {"path:7:3=1;4=1", "path:SEED:NUMBER=ANSWER"},
        {"path:7:3=1,3=1", "the numbers of a path go up, and 3 does not"},
        {"path:x", "path:SEED:NUMBER=ANSWER"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct strategy *strategy = NULL;

        test_note("'%s'", bad[i][0]);
        CHECK_INT(strategy_parse(bad[i][0], &strategy), ==, WEIR_EREFUSED);
        CHECK(strategy == NULL);
        CHECK_CONTAINS(weir_why(), bad[i][1]);
    }
}

TEST(failed_allocation_makes_no_strategy)
{
    static const char *const words[] = {"random:7", "pct:3:7:90", "path:7:3=1"};

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        for (uint64_t n = 1;; n++) {
            struct strategy *strategy = NULL;
            int r;

            test_fail_alloc_at(n);
            r = strategy_parse(words[i], &strategy);
            test_fail_alloc_at(0);
            strategy_free(strategy);
            if (r == 0) break;
            CHECK_INT(r, ==, -ENOMEM);
        }
    }
}

/* ---- Random ---- */

TEST(random_walk_keeps_to_its_lots)
{
    unsigned thirds[3] = {0}, faults = 0, switches_least = 1000, switches_most = 0;

    for (int seed = 0; seed < 100; seed++) {
        char words[32];
        struct strategy *strategy;
        unsigned switches = 0;

        snprintf(words, sizeof words, "random:%d", seed);
        strategy = parsed(words);
        for (int i = 0; i < 1000; i++) {
            thirds[ask(strategy, CHOOSE_TASK, 3, 0)]++;
            faults += ask(strategy, SIM_FAULT, 2, 20);
            CHECK_INT(ask(strategy, SIM_FAULT, 2, 0), ==, 0);
            switches += ask(strategy, CHOOSE_YIELD, 2, 0);
            CHECK_INT(ask(strategy, CHOOSE_TASK, 1, 0), ==, 0);
        }
        if (switches < switches_least) switches_least = switches;
        if (switches > switches_most) switches_most = switches;
        strategy_free(strategy);
    }
    for (int i = 0; i < 3; i++) CHECK(thirds[i] > 32500 && thirds[i] < 34200);
    CHECK(faults > 4600 && faults < 5400);
    CHECK(switches_least < 100);
    CHECK(switches_most > 420);
}

/* ---- PCT ---- */

/* Three orderings: the 2nd step of thread 0, then that of 1, then the 3rd of 0, then that of 1. */
static bool depth_three_bug(const struct model *model)
{
    int at[2][8], seen[2] = {0};

    for (int i = 0; i < model->taken; i++) at[model->order[i]][seen[model->order[i]]++] = i;
    return at[0][1] < at[1][1] && at[1][1] < at[0][2] && at[0][2] < at[1][2];
}

/* What PCT is by its paper, for two threads: who is first, and after which steps that changes. */
static bool reference_run(int first, const int changes[2])
{
    struct model model = {.threads = 2, .left = {4, 4}};
    int high = first;

    for (int asked = 0; model.left[0] + model.left[1] > 0;) {
        if (model.left[0] > 0 && model.left[1] > 0) {
            if (changes[0] == asked || changes[1] == asked) high = !high;
            asked++;
        }
        step(&model, (uint64_t)(model.left[high] > 0 ? high : !high) + 100);
    }
    return depth_three_bug(&model);
}

TEST(pct_finds_a_bug_of_depth_three_as_often_as_predicted)
{
    enum { STEPS = 7, RUNS = 20000 };
    int cases = 0, found = 0;
    double exact, rate;

    for (int first = 0; first < 2; first++)
        for (int a = 0; a < STEPS; a++)
            for (int b = 0; b < STEPS; b++) cases += reference_run(first, (const int[]){a, b});
    exact = cases / (2.0 * STEPS * STEPS);
    CHECK(exact >= 1.0 / (2 * STEPS * STEPS)); /* the paper's bound */
    for (int seed = 0; seed < RUNS; seed++) {
        struct model model = {.threads = 2, .left = {4, 4}};
        char words[48];
        struct strategy *strategy;

        snprintf(words, sizeof words, "pct:3:%d:%d", seed, STEPS);
        strategy = parsed(words);
        run_model(&model, strategy);
        found += depth_three_bug(&model);
        strategy_free(strategy);
    }
    rate = (double)found / RUNS;
    test_note("%d of %d runs, expected %.4f", found, RUNS, exact);
    CHECK(rate > exact * 0.95 && rate < exact * 1.05);
}

TEST(pct_interrupts_for_who_has_a_higher_priority_only)
{
    static const uint64_t other = 1;
    int interrupted = 0;

    for (int seed = 0; seed < 1000; seed++) {
        char words[48];
        struct strategy *strategy;
        struct question question = {.kind = CHOOSE_YIELD,
                                    .class = CLASS_ORDER,
                                    .n = 2,
                                    .ids = &other,
                                    .running = 2,
                                    .id_count = 1};
        unsigned first;

        snprintf(words, sizeof words, "pct:2:%d:1000000000", seed); /* no change comes */
        strategy = parsed(words);
        first = strategy_answer(strategy, &question);
        interrupted += (int)first;
        for (int i = 0; i < 10; i++) CHECK_INT(strategy_answer(strategy, &question), ==, first);
        strategy_free(strategy);
    }
    CHECK(interrupted > 400 && interrupted < 600);
}

TEST(pct_lets_nobody_go_on_for_ever)
{
    static const uint64_t ids[] = {1, 2};
    struct strategy *strategy = parsed("pct:2:7:1000000000");
    struct question question = {
        .kind = CHOOSE_TASK, .class = CLASS_ORDER, .n = 2, .ids = ids, .id_count = 2};
    unsigned first = strategy_answer(strategy, &question);
    int row = 1;

    while (strategy_answer(strategy, &question) == first) {
        row++;
        CHECK_INT(row, <=, PCT_ROW_TASKS_MAX);
    }
    CHECK_INT(row, ==, PCT_ROW_TASKS_MAX);
    strategy_free(strategy);
}

TEST(pct_survives_more_tasks_than_it_has_priorities_for)
{
    struct strategy *strategy = parsed("pct:3:7:100");
    uint64_t ids[2];

    for (uint64_t i = 0; i < 2 * PCT_IDS_MAX; i++) {
        ids[0] = 2 * i;
        ids[1] = 2 * i + 1;
        CHECK_INT(strategy_answer(strategy, &(struct question){.kind = CHOOSE_TASK,
                                                               .class = CLASS_ORDER,
                                                               .n = 2,
                                                               .ids = ids,
                                                               .id_count = 2}),
                  <, 2);
    }
    strategy_free(strategy);
}

/* ---- Exhaustive ---- */

static uint64_t explore_all(const struct model *model, int departures_max)
{
    struct strategy *strategy = made(WEIR_SIM_EXHAUSTIVE, departures_max);
    uint64_t count = 0, before = 0;

    while (strategy_begin(strategy)) {
        struct model run = *model;
        uint64_t order = 1;
        int departures = 0;

        run_model(&run, strategy);
        for (int i = 0; i < run.taken; i++) order = order * THREADS_MAX + (uint64_t)run.order[i];
        CHECK(order > before); /* depth first, by answers going up: all are different */
        before = order;
        if (departures_max > 0) {
            char words[256], *rest = words;

            CHECK(strategy_words(strategy, words, sizeof words) < sizeof words);
            while ((rest = strchr(rest, '=')) != NULL) rest++, departures++;
            CHECK_INT(departures, <=, departures_max);
        }
        CHECK(strategy_trouble(strategy) == NULL);
        strategy_end(strategy);
        count++;
        CHECK_INT(count, <=, 100000);
    }
    CHECK(!strategy_begin(strategy));
    strategy_free(strategy);
    return count;
}

TEST(exhaustive_search_makes_each_schedule_once)
{
    CHECK_INT(explore_all(&(struct model){.threads = 2, .left = {1, 1}}, 0), ==, 2);
    CHECK_INT(explore_all(&(struct model){.threads = 2, .left = {5, 5}}, 0), ==, 252);
    CHECK_INT(explore_all(&(struct model){.threads = 3, .left = {2, 2, 2}}, 0), ==, 90);
    CHECK_INT(explore_all(&(struct model){.threads = 4, .left = {1, 2, 1, 3}}, 0), ==, 420);
    CHECK_INT(explore_all(&(struct model){.threads = 1, .left = {3}}, 0), ==, 1);
}

TEST(exhaustive_search_keeps_to_its_bound)
{
    struct model model = {.threads = 3, .left = {3, 2, 3}};

    for (int bound = 1; bound <= 6; bound++) {
        test_note("at most %d departures", bound);
        CHECK_INT(explore_all(&model, bound), ==, count_schedules(model, bound));
    }
    CHECK_INT(explore_all(&model, 100), ==, 560); /* 8! / (3! 2! 3!) */
}

TEST(exhaustive_search_leaves_faults_and_amounts_alone)
{
    struct strategy *strategy = made(WEIR_SIM_EXHAUSTIVE, 0);
    unsigned users = 0;
    int runs = 0;

    while (strategy_begin(strategy)) {
        CHECK_INT(ask(strategy, SIM_FAULT, 2, 1), ==, 0);
        CHECK_INT(ask(strategy, SIM_AMOUNT, 100, 0), ==, 0);
        users |= 1u << ask(strategy, SIM_USER, 3, 0);
        strategy_again(strategy); /* the same once more */
        CHECK_INT(ask(strategy, SIM_FAULT, 2, 1), ==, 0);
        CHECK_INT(ask(strategy, SIM_AMOUNT, 100, 0), ==, 0);
        CHECK_INT(ask(strategy, SIM_USER, 3, 0), ==, runs);
        strategy_end(strategy);
        runs++;
    }
    CHECK_INT(runs, ==, 3);
    CHECK_INT(users, ==, 7);
    strategy_free(strategy);
}

TEST(exhaustive_search_says_what_it_cannot_do)
{
    struct strategy *strategy = made(WEIR_SIM_EXHAUSTIVE, 0);

    CHECK(strategy_begin(strategy));
    for (int i = 0; i < SEARCH_CHOICES_MAX; i++) CHECK_INT(ask(strategy, CHOOSE_TASK, 2, 0), ==, 0);
    CHECK(strategy_trouble(strategy) == NULL);
    CHECK_INT(ask(strategy, CHOOSE_TASK, 2, 0), ==, 0);
    CHECK_CONTAINS(strategy_trouble(strategy), "more than 65536 choices");
    strategy_free(strategy);

    strategy = made(WEIR_SIM_EXHAUSTIVE, 0);
    CHECK(strategy_begin(strategy));
    CHECK_INT(ask(strategy, CHOOSE_TASK, 2, 0), ==, 0);
    CHECK_INT(ask(strategy, CHOOSE_TASK, 3, 0), ==, 0);
    strategy_end(strategy);
    CHECK(strategy_begin(strategy));
    CHECK_INT(ask(strategy, CHOOSE_TASK, 3, 0), ==, 0);
    CHECK_CONTAINS(strategy_trouble(strategy), "another way");
    strategy_free(strategy);
}

/* ---- Paths ---- */

TEST(path_answers_at_its_numbers_and_below_n)
{
    struct strategy *strategy = parsed("path:7:1=1,3=5");

    CHECK_INT(ask(strategy, CHOOSE_TASK, 3, 0), ==, 0);
    CHECK_INT(ask(strategy, SIM_FAULT, 2, 0), ==, 1);   /* by its number, whatever its lot */
    CHECK_INT(ask(strategy, CHOOSE_TASK, 1, 0), ==, 0); /* not counted */
    CHECK_INT(ask(strategy, CHOOSE_TASK, 3, 0), ==, 0);
    CHECK_INT(ask(strategy, CHOOSE_TASK, 3, 0), ==, 2); /* 5 modulo 3 */
    CHECK_INT(ask(strategy, CHOOSE_TASK, 3, 0), ==, 0);
    strategy_free(strategy);
}

TEST(path_is_cut_when_there_is_no_room)
{
    static const struct departure path[] = {{12, CHOOSE_TASK, 1}, {400000, CHOOSE_TASK, 22}};
    struct strategy *strategy = NULL;
    char words[32], small[10];

    CHECK_OK(strategy_new_path(9, path, 2, &strategy));
    CHECK(strategy_begin(strategy));
    CHECK_INT(strategy_words(strategy, words, sizeof words), ==, 21);
    CHECK_STR(words, "path:9:12=1,400000=22");
    CHECK_INT(strategy_words(strategy, small, sizeof small), ==, 21);
    CHECK_STR(small, "path:9:12");
    strategy_free(strategy);
}
