/* trace_test.c - the hash, the path and the words of a run's choices. */
#include <string.h>

#include "harness/test.h"
#include "sim/choice.h"
#include "sim/trace.h"

static struct trace trace, other;

static void add(struct trace *to, unsigned kind, unsigned n, unsigned answer)
{
    trace_add(to, 12500000, kind, n, answer, "main", "writer", "reader");
}

TEST(every_kind_of_choice_has_words)
{
    for (unsigned kind = 0; kind < SIM_KINDS; kind++) {
        const struct choice_row *row = choice_row(kind);

        test_note("kind %u", kind);
        CHECK(row->name != NULL && row->name[0] != '\0');
        CHECK((row->yes != NULL) == (row->no != NULL));
        CHECK((row->yes != NULL) != (row->before != NULL));
        CHECK((row->before != NULL) == (row->after != NULL));
        for (unsigned before = 0; before < kind; before++) {
            CHECK(strcmp(row->name, choice_row(before)->name) != 0);
        }
    }
    CHECK_STR(choice_row(SIM_KINDS)->name, "unknown");
    CHECK_INT(choice_row(CHOOSE_TASK)->class, ==, CLASS_ORDER);
    CHECK_INT(choice_row(CHOOSE_YIELD)->class, ==, CLASS_ORDER);
    CHECK_INT(choice_row(CHOOSE_CANCEL)->class, ==, CLASS_FAULT);
    CHECK_INT(choice_row(SIM_FAULT)->class, ==, CLASS_FAULT);
    CHECK_INT(choice_row(SIM_AMOUNT)->class, ==, CLASS_AMOUNT);
}

TEST(hash_is_of_kinds_numbers_and_answers_in_their_order)
{
    static const unsigned choices[][3] = {
        {CHOOSE_TASK, 3, 0}, {CHOOSE_TASK, 3, 1}, {CHOOSE_TASK, 4, 0}, {CHOOSE_CASE, 3, 0}};
    uint64_t seen[17];
    int count = 0;

    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 4; k++) {
            trace_clear(&trace);
            add(&trace, choices[i][0], choices[i][1], choices[i][2]);
            add(&trace, choices[k][0], choices[k][1], choices[k][2]);
            for (int s = 0; s < count; s++) CHECK(seen[s] != trace.hash);
            seen[count++] = trace.hash;
        }
    }
    trace_clear(&trace);
    trace_clear(&other);
    other.detailed = true; /* what is written beside does not matter */
    for (unsigned i = 0; i < 1000; i++) {
        add(&trace, CHOOSE_TASK, 3, i % 3);
        trace_add(&other, i, CHOOSE_TASK, 3, i % 3, "another", "one", NULL);
    }
    CHECK(trace.hash == other.hash);
    CHECK_INT(trace.choices, ==, 1000);
}

TEST(path_has_the_departures_up_to_its_bound)
{
    trace_clear(&trace);
    add(&trace, CHOOSE_TASK, 3, 0);
    add(&trace, CHOOSE_TASK, 3, 2);
    add(&trace, SIM_FAULT, 2, 0);
    add(&trace, SIM_FAULT, 2, 1);
    CHECK_INT(trace.departures, ==, 2);
    CHECK_INT(trace.faults, ==, 1);
    CHECK_INT(trace.path[0].number, ==, 1);
    CHECK_INT(trace.path[0].answer, ==, 2);
    CHECK_INT(trace.path[1].number, ==, 3);
    CHECK_INT(trace.path[1].kind, ==, SIM_FAULT);
    for (int i = 0; i < TRACE_DEPARTURES_MAX; i++) add(&trace, CHOOSE_TASK, 3, 1);
    CHECK_INT(trace.departures, ==, TRACE_DEPARTURES_MAX + 2);
    CHECK_INT(trace.path[TRACE_DEPARTURES_MAX - 1].number, ==, TRACE_DEPARTURES_MAX + 1);
    trace_clear(&trace);
    CHECK_INT(trace.departures, ==, 0);
    CHECK_INT(trace.choices, ==, 0);
}

TEST(last_decisions_are_said_in_words)
{
    char words[256], small[24];

    trace.detailed = true;
    trace_clear(&trace);
    CHECK_INT(trace_last_count(&trace), ==, 0);
    add(&trace, CHOOSE_TASK, 3, 1);
    trace_add(&trace, 0, CHOOSE_YIELD, 2, 1, "main", "a-task-with-a-name-that-is-too-long", NULL);
    trace_add(&trace, 1000000, SIM_FAULT, 2, 1, "main", NULL, "reset");
    trace_add(&trace, 1000, SIM_USER, 12, 11, NULL, NULL, NULL);
    trace_add(&trace, 1000, CHOOSE_CASE, 12, 10, NULL, NULL, NULL);
    CHECK_INT(trace_last_count(&trace), ==, 5);
    trace_words(&trace, 0, words, sizeof words);
    CHECK_STR(words, "at 12.5 ms, host main, task 'writer': which of 3 ready tasks runs next: "
                     "the 2nd ('reader')");
    trace_words(&trace, 1, words, sizeof words);
    CHECK_STR(words,
              "at 0 ms, host main, task 'a-task-with-a-name-that': lets another task go first");
    trace_words(&trace, 2, words, sizeof words);
    CHECK_STR(words, "at 1 ms, host main: a fault ('reset')");
    trace_words(&trace, 3, words, sizeof words);
    CHECK_STR(words, "at 0.001 ms: the program's own choice, of 12: 11");
    trace_words(&trace, 4, words, sizeof words);
    CHECK_STR(words, "at 0.001 ms: which of 12 ready cases is taken: the 11th");
    trace_words(&trace, 0, small, sizeof small);
    CHECK_INT(strlen(small), ==, sizeof small - 1);
}

TEST(only_the_last_decisions_are_kept)
{
    char words[256];

    trace.detailed = true;
    trace_clear(&trace);
    for (unsigned i = 0; i < TRACE_LAST + 10; i++) {
        trace_add(&trace, i * INT64_C(1000000), CHOOSE_TASK, 2, 0, NULL, NULL, NULL);
    }
    CHECK_INT(trace_last_count(&trace), ==, TRACE_LAST);
    trace_words(&trace, 0, words, sizeof words);
    CHECK_CONTAINS(words, "at 10 ms: ");
    trace_words(&trace, TRACE_LAST - 1, words, sizeof words);
    CHECK_CONTAINS(words, "at 73 ms: ");
    trace.detailed = false;
    CHECK_INT(trace_last_count(&trace), ==, 0);
}
