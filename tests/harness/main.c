/* main.c - the test program: the harness's command line, or a program of a test's own. */
#include <stdlib.h>
#include <string.h>

#include "harness/test.h"

static struct test_program *programs;

void test_program_register(struct test_program *keep_program)
{
    keep_program->next = programs;
    programs = keep_program;
}

int main(int argc, char **argv)
{
    for (const struct test_program *program = programs; program != NULL; program = program->next)
        if (argc > 1 && strcmp(argv[1], program->name) == 0) return program->fn(argc, argv);
    return weir_test_main(argc, argv);
}
