/* options.h - the command lines of the examples: --name N, with a range and a default, or
 * --name TEXT. */
#ifndef WEIR_EXAMPLES_OPTIONS_H
#define WEIR_EXAMPLES_OPTIONS_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct option_number {
    const char *name; /* "--port"; NULL ends the table */
    int *value;
    int value_default;
    int min;
    int max; /* 0: the option takes no value and sets 1 */
    const char *about;
    const char **text; /* of an option that takes a text; its default is what is there */
};

static inline void options_help(FILE *stream, const char *usage, const struct option_number *table)
{
    fprintf(stream, "usage: %s\n", usage);
    for (; table->name; table++) {
        if (table->text) {
            fprintf(stream, "  %-11s TEXT %s\n", table->name, table->about);
        } else if (table->max == 0) {
            fprintf(stream, "  %-16s %s\n", table->name, table->about);
        } else {
            fprintf(stream, "  %-14s N %s (%d to %d, default %d)\n", table->name, table->about,
                    table->min, table->max, table->value_default);
        }
    }
}

/* Read the options and return the index of the first argument that is none. Ends the program with
 * status 0 after --help, and with status 2 and a sentence after a mistake. */
static inline int options_read(int argc, char **argv, const char *usage,
                               const struct option_number *table)
{
    int i = 1;

    for (const struct option_number *row = table; row->name; row++)
        if (row->value) *row->value = row->value_default;
    for (; i < argc && strncmp(argv[i], "--", 2) == 0; i++) {
        const struct option_number *row = table;
        char *end = argv[i];
        long value;

        if (strcmp(argv[i], "--help") == 0) {
            options_help(stdout, usage, table);
            exit(0);
        }
        while (row->name && strcmp(row->name, argv[i]) != 0) row++;
        if (!row->name) {
            fprintf(stderr, "%s: there is no option '%s'\n", argv[0], argv[i]);
            options_help(stderr, usage, table);
            exit(2);
        }
        if (row->text) {
            if (i + 1 == argc) {
                fprintf(stderr, "%s: %s needs a text\n", argv[0], row->name);
                exit(2);
            }
            *row->text = argv[++i];
            continue;
        }
        if (row->max == 0) {
            *row->value = 1;
            continue;
        }
        errno = 0;
        value = i + 1 < argc ? strtol(argv[i + 1], &end, 10) : 0;
        if (errno != 0 || *end || end == argv[i + 1] || value < row->min || value > row->max) {
            fprintf(stderr, "%s: %s needs a number from %d to %d%s%s\n", argv[0], row->name,
                    row->min, row->max, i + 1 < argc ? ", not " : "",
                    i + 1 < argc ? argv[i + 1] : "");
            exit(2);
        }
        *row->value = (int)value;
        i++;
    }
    return i;
}

#endif
