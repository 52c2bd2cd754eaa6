/* config_test.c - settings: what is read, what is refused and where, what wins. */
#include <stdlib.h>
#include <string.h>

#include "harness/test.h"
#include "server/config.h"

static bool has_problem(const struct config *config, const char *where, const char *what)
{
    for (unsigned i = 0; i < config->problem_count && i < CONFIG_PROBLEMS_MAX; i++)
        if (strstr(config->problems[i].where, where) && strstr(config->problems[i].what, what))
            return true;
    return false;
}

TEST(defaults_are_valid_and_say_so)
{
    struct config *config = config_new();

    config_check(config);
    CHECK_INT(config->problem_count, ==, 0);
    for (enum setting i = 0; i < SETTINGS; i++) {
        CHECK_STR(config->values[i].origin, "default");
        CHECK(setting_rows[i].help && setting_rows[i].section);
    }
    CHECK_INT(config_number(config, SETTING_STORE_MEMORY), ==, 256 << 20);
    CHECK_INT(config_number(config, SETTING_SERVER_DRAIN), ==, 10000);
    config_free(config);
}

TEST(flags_win_over_the_environment_and_that_over_the_file_in_any_order)
{
    char *environment[] = {(char[]){"WEIR_SERVER_DRAIN=2s"}, (char[]){"WEIR_STORE_MEMORY=1G"},
                           (char[]){"WEIR_SERVER=http://other"}, NULL};
    struct config *config = config_new();

    config_set(config, CONFIG_FLAG, "server.drain", BYTES("3s"), "--set");
    config_read_environment(config, environment);
    config_read_text(config, "f", BYTES("[server]\ndrain=1s\nworkers=4\n[store]\nmemory=2M\n"));
    CHECK_INT(config->problem_count, ==, 0);
    CHECK_INT(config_number(config, SETTING_SERVER_DRAIN), ==, 3000);
    CHECK_STR(config->values[SETTING_SERVER_DRAIN].origin, "--set");
    CHECK_INT(config_number(config, SETTING_STORE_MEMORY), ==, 1 << 30);
    CHECK_STR(config->values[SETTING_STORE_MEMORY].origin, "WEIR_STORE_MEMORY");
    CHECK_STR(config->values[SETTING_SERVER_WORKERS].origin, "f:3");
    config_free(config);
}

TEST(all_problems_are_told_each_with_its_place)
{
    char *environment[] = {(char[]){"WEIR_LOG_LEVEL=loud"}, (char[]){"WEIR_LOG_COLOUR=x"}, NULL};
    struct config *config = config_new();

    config_read_text(config, "f",
                     BYTES("stray = 1\n[server]\n; fine\nworkers = many\nworkers = 2\n"
                           "drain = 1000h\nlisten tcp\n[sever]\nx = 1\n[trace]\nsample = 1.5\n"));
    config_read_environment(config, environment);
    CHECK(has_problem(config, "f:1", "in no section"));
    CHECK(has_problem(config, "f:4", "not a whole number"));
    CHECK(has_problem(config, "f:5", "was said in line 4"));
    CHECK(has_problem(config, "f:6", "not between"));
    CHECK(has_problem(config, "f:7", "neither [section] nor key"));
    CHECK(has_problem(config, "f:9", "no section [sever]"));
    CHECK(has_problem(config, "f:11", "0 to 1"));
    CHECK(has_problem(config, "WEIR_LOG_LEVEL", "none of"));
    CHECK(has_problem(config, "WEIR_LOG_COLOUR", "has no 'colour'"));
    CHECK_INT(config->problem_count, ==, 9);
    CHECK_STR(config->values[SETTING_SERVER_WORKERS].origin, "default");
    config_free(config);
}

TEST(settings_that_contradict_each_other_are_found)
{
    struct config *config = config_new();

    config_read_text(config, "f",
                     BYTES("[server]\nlisten = tls:0.0.0.0:1, http:x\n[tls]\ncertificate = a\n"
                           "[security]\ninsecure_listen = yes\n"));
    config_check(config);
    CHECK(has_problem(config, "f:4", "go together"));
    CHECK(has_problem(config, "f:2", "none of tcp"));
    CHECK(has_problem(config, "f:6", CONFIG_INSECURE_SENTENCE));
    config_set(config, CONFIG_FLAG, "security.insecure_listen", BYTES(CONFIG_INSECURE_SENTENCE),
               "-");
    config->problem_count = 0;
    config_check(config);
    CHECK(!has_problem(config, "", "exactly"));
    config_free(config);
}

TEST(quotes_comments_blanks_and_line_ends_are_as_expected)
{
    struct config *config = config_new();

    config_read_text(config, "f",
                     BYTES("[server]\r\n  data = \"a b\" \r\n\tdrain : 5s ; soon\r\n# x\r\n"));
    CHECK_INT(config->problem_count, ==, 0);
    CHECK_STR(config_text(config, SETTING_SERVER_DATA), "a b");
    CHECK_INT(config_number(config, SETTING_SERVER_DRAIN), ==, 5000);
    config_free(config);
}

TEST(what_is_printed_is_read_again_as_the_same)
{
    struct config *config = config_new(), *again = config_new();
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    config_set(config, CONFIG_FLAG, "server.data", BYTES("/x;y"), "-");
    config_set(config, CONFIG_FLAG, "log.format", BYTES("json"), "-");
    config_print(config, true, false, out);
    (void)fclose(out);
    config_read_text(again, "f", (struct bytes){text, bytes});
    CHECK_INT(again->problem_count, ==, 0);
    for (enum setting i = 0; i < SETTINGS; i++)
        CHECK_STR(again->values[i].text, config->values[i].text);
    free(text);
    config_free(config);
    config_free(again);
}

static void count_taken(void *arg, const struct setting_row *row, bool taken)
{
    int *counts = arg;

    (void)row;
    counts[taken]++;
}

TEST(a_reload_takes_what_may_change_and_tells_the_rest)
{
    struct config *config = config_new(), *from = config_new();
    int counts[2] = {0, 0};

    config_read_text(from, "f", BYTES("[server]\ndrain=1s\nworkers=3\n[log]\nlevel=debug\n"));
    CHECK_INT(config_reload(config, from, count_taken, counts), ==, 1);
    CHECK_INT(counts[0], ==, 1);
    CHECK_INT(counts[1], ==, 2);
    CHECK_INT(config_number(config, SETTING_SERVER_DRAIN), ==, 1000);
    CHECK_INT(config_number(config, SETTING_SERVER_WORKERS), ==, 0);
    config_free(config);
    config_free(from);
}

/* What they name is read again; that it is another file now is not, and is said. */
TEST(files_of_tokens_and_certificates_are_those_of_the_start)
{
    struct config *config = config_new(), *from = config_new();
    int counts[2] = {0, 0};

    config_read_text(from, "f",
                     BYTES("[tls]\ncertificate=a\nkey=b\n[security]\ntokens=other.json\n"));
    CHECK_INT(config_reload(config, from, count_taken, counts), ==, 3);
    CHECK_INT(counts[1], ==, 0);
    CHECK_STR(config_text(config, SETTING_SECURITY_TOKENS), "");
    config_free(config);
    config_free(from);
}

/* No name would be taken for any name, and those beyond the last one for none of ours. */
TEST(hosts_are_some_and_not_too_many)
{
    static const char many[] = "a b c d e f g h i j k l m n o p q r s t u v w x y z 1 2 3 4 5 6 7";
    struct config *config = config_new();

    config_read_text(config, "f", BYTES("[server]\nhosts =\n"));
    config_check(config);
    CHECK(has_problem(config, "f:2", "one to 32 names, or * for any"));
    config_set(config, CONFIG_FLAG, "server.hosts", bytes_of(many), "-");
    config_check(config);
    CHECK(has_problem(config, "-", "one to 32 names"));
    config->problem_count = 0;
    config_set(config, CONFIG_FLAG, "server.hosts", (struct bytes){many, sizeof many - sizeof " 7"},
               "-");
    config_check(config);
    config_set(config, CONFIG_FLAG, "server.hosts", BYTES("*"), "-");
    config_check(config);
    CHECK_INT(config->problem_count, ==, 0);
    config_free(config);
}

TEST(an_answer_has_room_for_the_longest_payload)
{
    struct config *config = config_new();

    config_read_text(config, "f", BYTES("[limits]\nanswer_bytes=512K\n"));
    config_check(config);
    CHECK(has_problem(config, "f:2", "has to fit in"));
    config_set(config, CONFIG_FLAG, "store.payload_bytes", BYTES("1"), "-");
    config->problem_count = 0;
    config_check(config);
    CHECK_INT(config->problem_count, ==, 0);
    config_free(config);
}

TEST(sizes_have_units_and_bounds)
{
    static const struct {
        const char *text;
        int64_t bytes; /* -1: refused */
    } cases[] = {{"0", 0},   {"4096", 4096},   {"64K", 65536}, {"2G", 2LL << 30},
                 {"", -1},   {"K", -1},        {"1k", -1},     {"1KB", -1},
                 {"-1", -1}, {"9999999T", -1}, {"1.5M", -1},   {"99999999999999999999", -1}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t bytes = -1;

        if (config_size_parse(bytes_of(cases[i].text), &bytes) < 0) bytes = -1;
        CHECK_INT(bytes, ==, cases[i].bytes);
    }
}
