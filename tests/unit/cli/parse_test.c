/* parse_test.c - the table of commands, and what the parser makes of a command line. */
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "cli/work.h"
#include "harness/test.h"

static const char *fake_env(const char *name)
{
    if (strcmp(name, "WEIR_SERVER") == 0) return "unix:/there";
    if (strcmp(name, "WEIR_WORK_DEAD_EXIT") == 0) return "1,2";
    return NULL;
}

static int parse(struct cli_call *call, char why[CLI_WHY_BYTES], char *line)
{
    static char *argv[32]; /* what is left over of a call points into it */
    int argc = 0;

    for (char *word = strtok(line, " "); word && argc < 31; word = strtok(NULL, " "))
        argv[argc++] = word;
    argv[argc] = NULL;
    return cli_parse(cli_commands, argc, argv, fake_env, call, why);
}

/* The words live as long as the call that points to them. */
#define PARSE(call, why, text)     \
    static char words_##call[256]; \
    strcpy(words_##call, text);    \
    CHECK_INT(parse(&call, why, words_##call), ==, 0)

TEST(options_are_said_in_every_usual_way)
{
    char why[CLI_WHY_BYTES];
    struct cli_call a, b, c;

    PARSE(a, why, "enqueue mail --kind=welcome --priority 7 hello");
    CHECK_STR(cli_text(&a, "kind"), "welcome");
    CHECK_INT(cli_number(&a, "priority"), ==, 7);
    CHECK_STR(cli_argument_at(&a, 0), "mail");
    CHECK_STR(cli_argument_at(&a, 1), "hello");
    PARSE(b, why, "enqueue -kx -p3 -jw q");
    CHECK_STR(cli_text(&b, "kind"), "x");
    CHECK_INT(cli_number(&b, "priority"), ==, 3);
    CHECK(cli_has(&b, "json") && cli_has(&b, "wait"));
    PARSE(c, why, "work q -n 4 -- sh -c --help");
    CHECK_INT(cli_number(&c, "concurrency"), ==, 4);
    CHECK_STR(c.rest[0], "sh");
    CHECK_STR(c.rest[2], "--help");
    CHECK(!c.help);
}

TEST(the_longest_command_is_meant)
{
    char why[CLI_WHY_BYTES];
    struct cli_call a, b;

    PARSE(a, why, "jobs retry state:dead");
    CHECK_STR(a.command->words, "jobs retry");
    PARSE(b, why, "jobs state:dead");
    CHECK_STR(b.command->words, "jobs");
}

TEST(the_command_line_wins_over_the_environment_and_that_over_defaults)
{
    char why[CLI_WHY_BYTES];
    struct cli_call a, b;

    PARSE(a, why, "status");
    CHECK_STR(cli_text(&a, "server"), "unix:/there");
    CHECK_INT(cli_number(&a, "request-timeout"), ==, 30000);
    PARSE(b, why, "work q --server http://h:1 -- x");
    CHECK_STR(cli_text(&b, "server"), "http://h:1");
    CHECK_STR(cli_text(&b, "dead-exit"), "1,2");
}

TEST(what_is_wrong_is_said_with_what_to_do)
{
    static const struct {
        const char *line, *says;
    } cases[] = {
        {"", "weir help"},
        {"stauts", "do you mean 'weir status'"},
        {"queue", "needs one of: list, show"},
        {"queue lst", "do you mean 'weir queue list'"},
        {"enqueue q --knid x", "do you mean '--kind'"},
        {"enqueue q --zzzzzzzzzz", "weir help enqueue"},
        {"enqueue", "needs QUEUE"},
        {"enqueue q a b", "no further argument 'b'"},
        {"enqueue q --priority 99", "between 0 and 31"},
        {"enqueue q --priority x", "no whole number"},
        {"enqueue q --delay soon", "no duration"},
        {"enqueue q --durability most", "none of memory written synced"},
        {"enqueue q --kind", "needs a value"},
        {"enqueue q --wait=1", "takes no value"},
        {"work q", "needs '--'"},
        {"work q --result-max 1X -- x", "no size"},
        {"status -- x", "takes nothing after '--'"},
        {"status -x", "has no option '-x'"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[256], why[CLI_WHY_BYTES];
        struct cli_call call;

        strcpy(line, cases[i].line);
        CHECK_INT(parse(&call, why, line), ==, CLI_USAGE);
        CHECK(strstr(why, cases[i].says) != NULL);
    }
}

/* ---- The table ---- */

TEST(every_command_can_be_parsed_and_helped_and_options_are_unlike)
{
    for (const struct cli_command *at = cli_commands; at->words; at++) {
        const struct cli_option *options[CLI_OPTIONS_MAX];
        unsigned count = cli_options_of(at, options);
        char line[256], why[CLI_WHY_BYTES];
        struct cli_call call;

        CHECK(at->run && at->summary);
        (void)snprintf(line, sizeof line, "%s --help", at->words);
        CHECK_INT(parse(&call, why, line), ==, 0);
        CHECK(call.help && call.command == at);
        for (unsigned i = 0; i < count; i++) {
            CHECK(options[i]->help && options[i]->kind != CLI_KIND_NONE);
            CHECK((options[i]->kind == CLI_CHOICE) == (options[i]->choices != NULL));
            for (unsigned j = 0; j < i; j++) {
                CHECK(strcmp(options[i]->name, options[j]->name) != 0);
                CHECK(!options[i]->letter || options[i]->letter != options[j]->letter);
            }
        }
    }
}

/* A word that is no command, and that some begin with, has help of its own. */
TEST(a_group_of_commands_is_helped)
{
    static const char *const groups[] = {"queue", "cron", "store", "token", "config"};
    char why[CLI_WHY_BYTES];
    struct cli_call call, jobs;

    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        char line[64], *text = NULL;
        size_t count;
        FILE *out = open_memstream(&text, &count);

        (void)snprintf(line, sizeof line, "%s --help", groups[i]);
        CHECK_INT(parse(&call, why, line), ==, 0);
        CHECK(call.help && !call.command);
        CHECK_STR(call.group, groups[i]);
        cli_help_asked(cli_commands, &call, out);
        (void)fclose(out);
        for (const struct cli_command *at = cli_commands; at->words; at++) {
            size_t bytes = strlen(groups[i]);
            bool of_it = strncmp(at->words, groups[i], bytes) == 0 && at->words[bytes] == ' ';

            if (strchr(at->words, ' ')) CHECK_INT(strstr(text, at->words) != NULL, ==, of_it);
        }
        free(text);
    }
    PARSE(jobs, why, "jobs --help"); /* a command itself, though others begin with it */
    CHECK(jobs.help && !jobs.group);
    CHECK_STR(jobs.command->words, "jobs");
}

/* Each of the words of `text` in turn, whatever blanks are between them. */
static void check_words(const char *at, const char *text)
{
    const char *begin = strstr(at, "\n\n");

    CHECK(begin);
    for (const char *word = text; *(word += strspn(word, " \n")); word += strcspn(word, " \n")) {
        size_t count = strcspn(word, " \n");

        begin += strspn(begin, " \n");
        CHECK(strncmp(begin, word, count) == 0);
        begin += count;
        CHECK(*begin == ' ' || *begin == '\n'); /* two words are not one */
    }
}

TEST(help_has_every_word_of_a_command_apart)
{
    for (const struct cli_command *at = cli_commands; at->words; at++) {
        char *text = NULL;
        size_t count;
        FILE *out = open_memstream(&text, &count);

        cli_help(cli_commands, at, out);
        (void)fclose(out);
        check_words(text, at->summary);
        if (at->about) check_words(strstr(text, "\n\n") + 2, at->about);
        free(text);
    }
}

static char *written(void (*write)(FILE *out), size_t *ret_count)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, ret_count);

    write(out);
    (void)fclose(out);
    return text;
}

static void write_man(FILE *out)
{
    cli_man(cli_commands, out);
}

static void write_bash(FILE *out)
{
    CHECK_INT(cli_completion(cli_commands, "bash", out), ==, CLI_OK);
    CHECK_INT(cli_completion(cli_commands, "csh", out), ==, CLI_USAGE);
}

TEST(man_page_and_completion_know_every_command_and_option)
{
    size_t bytes;
    char *man = written(write_man, &bytes), *bash = written(write_bash, &bytes);

    for (const struct cli_command *at = cli_commands; at->words; at++) {
        char words[128];

        if (at->hidden) continue;
        (void)snprintf(words, sizeof words, ".SS weir %s\n", at->words);
        CHECK(strstr(man, words));
        (void)snprintf(words, sizeof words, "\"%s\")", at->words);
        CHECK(strstr(bash, words));
        for (const struct cli_option *option = at->options; option && option->name; option++) {
            (void)snprintf(words, sizeof words, "--%s", option->name);
            CHECK(strstr(bash, words));
        }
    }
    free(man);
    free(bash);
}

/* ---- What exit codes mean ---- */

TEST(exit_codes_of_programs_are_judged_by_the_lists)
{
    struct work work = {.snooze_ms = 5000};
    struct work_outcome outcome;
    static const struct {
        int code, signal;
        enum work_verdict verdict;
        const char *class;
    } cases[] = {
        {0, 0, WORK_ACK, "exit-0"},       {75, 0, WORK_FAIL, "exit-75"},
        {65, 0, WORK_DEAD, "exit-65"},    {66, 0, WORK_DEAD, "exit-66"},
        {69, 0, WORK_RELEASE, "exit-69"}, {1, 0, WORK_FAIL, "exit-1"},
        {-1, 9, WORK_FAIL, "signal-9"},
    };

    CHECK_INT(work_codes_parse("75", &work.retry), ==, 0);
    CHECK_INT(work_codes_parse("65,66", &work.dead), ==, 0);
    CHECK_INT(work_codes_parse("69", &work.snooze), ==, 0);
    CHECK_INT(work_codes_parse("256", &work.retry), ==, -1);
    CHECK_INT(work_codes_parse("x", &work.retry), ==, -1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weir_process_status status = {.exit_code = cases[i].code, .signal = cases[i].signal};

        work_judge(&work, &status, &outcome);
        CHECK_INT(outcome.verdict, ==, cases[i].verdict);
        CHECK_STR(outcome.class, cases[i].class);
        CHECK_INT(outcome.delay_ms, ==, cases[i].verdict == WORK_RELEASE ? 5000 : 0);
    }
}
