/* registry.c - the list of tests. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "testing/harness.h"

static weir_test_case *registered;

void weir_test_register(weir_test_case *keep_test)
{
    keep_test->next = registered;
    registered = keep_test;
}

void registry_group(const weir_test_case *test, char *group, size_t group_bytes)
{
    const char *begin = test->file;
    const char *found;
    size_t length;

    /* A path from the build's folder to a source beside it. */
    while (strncmp(begin, "../", 3) == 0) begin += 3;
    found = begin;
    /* The last one: the tree itself may lie below some other tests/. */
    while ((found = strstr(found, "tests/")) != NULL) {
        found += strlen("tests/");
        begin = found;
    }
    length = strlen(begin);
    if (length > 2 && strcmp(begin + length - 2, ".c") == 0) length -= 2;
    snprintf(group, group_bytes, "%.*s", (int)length, begin);
}

bool registry_matches(const weir_test_case *test, const char *pattern)
{
    char group[256];
    char path[512];
    size_t length = strlen(pattern);

    if (strcmp(pattern, test->name) == 0) return true;
    registry_group(test, group, sizeof group);
    snprintf(path, sizeof path, "%s/%s", group, test->name);
    if (strcmp(pattern, path) == 0) return true;
    if (test->options.hidden) return false;
    if (fnmatch(pattern, test->name, 0) == 0 || fnmatch(pattern, path, 0) == 0) return true;
    while (length > 0 && pattern[length - 1] == '/') length--;
    return length > 0 && strncmp(path, pattern, length) == 0 && path[length] == '/';
}

static int by_place(const void *a, const void *b)
{
    const weir_test_case *left = *(weir_test_case *const *)a;
    const weir_test_case *right = *(weir_test_case *const *)b;
    int order = strcmp(left->file, right->file);

    return order != 0 ? order : (left->line > right->line) - (left->line < right->line);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(weir_test_case *const *)a)->name, (*(weir_test_case *const *)b)->name);
}

static void refuse_twins(weir_test_case **tests, size_t count)
{
    qsort(tests, count, sizeof *tests, by_name);
    for (size_t i = 1; i < count; i++) {
        if (strcmp(tests[i - 1]->name, tests[i]->name) != 0) continue;
        fprintf(stderr, "%s:%d: the test '%s' is also in %s:%d: names must be unique\n",
                tests[i]->file, tests[i]->line, tests[i]->name, tests[i - 1]->file,
                tests[i - 1]->line);
        exit(EXIT_USAGE);
    }
}

weir_test_case *registry_sorted(void)
{
    weir_test_case **tests;
    size_t count = 0;

    for (const weir_test_case *test = registered; test != NULL; test = test->next) count++;
    if (count == 0) return NULL;
    tests = calloc(count, sizeof *tests);
    if (tests == NULL) {
        fputs("no memory for the list of tests\n", stderr);
        exit(EXIT_USAGE);
    }
    count = 0;
    for (weir_test_case *test = registered; test != NULL; test = test->next) tests[count++] = test;
    refuse_twins(tests, count);
    qsort(tests, count, sizeof *tests, by_place);
    for (size_t i = 0; i < count; i++) tests[i]->next = i + 1 < count ? tests[i + 1] : NULL;
    registered = tests[0];
    free(tests);
    return registered;
}
