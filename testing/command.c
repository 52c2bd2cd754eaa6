/* command.c - the command line of a test program. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "rt/cores.h"
#include "testing/harness.h"

static const char usage[] =
    " [OPTION]... [PATTERN]...\n"
    "  PATTERN          a test's name, unit/rt/..., a folder, or either with * and ?\n"
    "  -j N             run N tests at a time (default: the cores there are)\n"
    "  --list           print the tests and where they are\n"
    "  --run NAME       run one test in this process, for a debugger\n"
    "  --long           run the long tests too; --only-long runs nothing else\n"
    "  --skip PATTERN   leave these out, unless one is named in full; may come several times\n"
    "  --repeat N       run each test N times\n"
    "  --workers N      workers of the tests' runtimes (or WEIR_TEST_WORKERS; default 2)\n"
    "  --verbose        print the tests that pass, and how long they took\n"
    "Exit status: 0 all passed, 1 some failed, 2 wrong usage or no such test.\n";

struct options {
    int jobs;
    int repeat;
    bool list;
    bool long_too;
    bool long_only;
    bool verbose;
    const char *run;
    const char **patterns;
    int pattern_count;
    const char **skips;
    int skip_count;
};

static void show_usage(FILE *file)
{
    fprintf(file, "usage: %s%s", program_invocation_short_name, usage);
}

static _Noreturn void refuse_usage(const char *sentence, const char *argument)
{
    fprintf(stderr, "%s: %s '%s'\n", program_invocation_short_name, sentence, argument);
    show_usage(stderr);
    exit(EXIT_USAGE);
}

static int number(const char *text, int max)
{
    char *end;
    long value;

    errno = 0;
    value = strtol(text, &end, 10);
    if (errno != 0 || *end != '\0' || end == text || value < 1 || value > max)
        refuse_usage("a number from 1 on is expected, not", text);
    return (int)value;
}

/* The value of an option that needs one. */
static const char *value_of(int argc, char **argv, int *at)
{
    if (*at + 1 >= argc) refuse_usage("a value is missing after", argv[*at]);
    return argv[++*at];
}

static void parse(int argc, char **argv, struct options *options)
{
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];

        if (strcmp(argument, "--list") == 0) {
            options->list = true;
        } else if (strcmp(argument, "--long") == 0) {
            options->long_too = true;
        } else if (strcmp(argument, "--only-long") == 0) {
            options->long_only = true;
        } else if (strcmp(argument, "--verbose") == 0) {
            options->verbose = true;
        } else if (strcmp(argument, "--run") == 0) {
            options->run = value_of(argc, argv, &i);
        } else if (strcmp(argument, "--skip") == 0) {
            options->skips[options->skip_count++] = value_of(argc, argv, &i);
        } else if (strcmp(argument, "--repeat") == 0) {
            options->repeat = number(value_of(argc, argv, &i), 1000000);
        } else if (strcmp(argument, "--workers") == 0) {
            process_workers_default = number(value_of(argc, argv, &i), 256);
        } else if (strcmp(argument, "-j") == 0) {
            options->jobs = number(value_of(argc, argv, &i), 1024);
        } else if (strncmp(argument, "-j", 2) == 0) {
            options->jobs = number(argument + 2, 1024);
        } else if (strcmp(argument, "--help") == 0) {
            show_usage(stdout);
            exit(EXIT_PASSED);
        } else if (argument[0] == '-' || argument[0] == '\0') {
            refuse_usage("unknown argument", argument);
        } else {
            options->patterns[options->pattern_count++] = argv[i];
        }
    }
}

static bool wanted(const weir_test_case *test, const struct options *options)
{
    bool named = false;

    if (options->pattern_count == 0 && test->options.hidden) return false;
    for (int i = 0; i < options->pattern_count; i++) {
        /* Who names a test in full means it, long or not. */
        if (strcmp(options->patterns[i], test->name) == 0) return true;
        named = named || registry_matches(test, options->patterns[i]);
    }
    if (options->pattern_count > 0 && !named) return false;
    for (int i = 0; i < options->skip_count; i++) {
        if (registry_matches(test, options->skips[i])) return false;
    }
    if (options->long_only) return test->options.long_only;
    return options->long_too || options->list || !test->options.long_only;
}

static void list_one(const weir_test_case *test)
{
    char group[256];

    registry_group(test, group, sizeof group);
    printf("%s/%s%s\n", group, test->name, test->options.long_only ? " (long)" : "");
}

static _Noreturn void run_here(const weir_test_case *first, const char *name)
{
    static struct test_report report;

    for (const weir_test_case *test = first; test != NULL; test = test->next) {
        char full[512], group[256];
        registry_group(test, group, sizeof group);
        (void)snprintf(full, sizeof full, "%s/%s", group, test->name);
        if (strcmp(test->name, name) == 0 || strcmp(full, name) == 0) process_run(test, &report);
    }
    refuse_usage("there is no test", name);
}

int weir_test_main(int argc, char **argv)
{
    struct options options = {.repeat = 1};
    struct run_plan plan = {0};
    weir_test_case *first = registry_sorted();
    const char *workers = getenv("WEIR_TEST_WORKERS");
    const char *replay = getenv("WEIR_SIM");
    size_t count = 0;
    int status;

    options.patterns = calloc((size_t)argc, sizeof *options.patterns);
    options.skips = calloc((size_t)argc, sizeof *options.skips);
    for (const weir_test_case *test = first; test != NULL; test = test->next) count++;
    plan.tests = calloc(count + 1, sizeof *plan.tests);
    if (options.patterns == NULL || options.skips == NULL || plan.tests == NULL) {
        fprintf(stderr, "%s: no memory\n", program_invocation_short_name);
        exit(EXIT_USAGE);
    }
    if (workers != NULL && workers[0] != '\0') process_workers_default = number(workers, 256);
    parse(argc, argv, &options);
    if (options.run != NULL) run_here(first, options.run);

    for (weir_test_case *test = first; test != NULL; test = test->next)
        if (wanted(test, &options)) plan.tests[plan.count++] = test;
    if (plan.count == 0) {
        fprintf(stderr, "%s: no test matches (--list shows them)\n", program_invocation_short_name);
        status = EXIT_USAGE;
    } else if (options.list) {
        for (int i = 0; i < plan.count; i++) list_one(plan.tests[i]);
        status = EXIT_PASSED;
    } else if (plan.count > 1 && replay != NULL && replay[0] != '\0') {
        refuse_usage("name the one test (or --run it) of the run WEIR_SIM is", replay);
    } else {
        plan.jobs = options.jobs > 0 ? options.jobs : cores_usable(&cores_system);
        plan.repeat = options.repeat;
        plan.verbose = options.verbose;
        status = runner_run(&plan);
    }
    free(plan.tests);
    free(options.skips);
    free(options.patterns);
    return status;
}
