/* places.c - a backtrace in one line. */
#include "sim/places.h"

#include <stdio.h>

#include "watch/backtrace.h"
#include "watch/symbol.h"

enum { PLACES_MAX = 8 };

void places_write(const struct backtrace *backtrace, unsigned skip, char *text, size_t bytes)
{
    static struct symbol_table symbols; /* too large for a task's stack */
    size_t length = 0;

    text[0] = '\0';
    symbol_table_init(&symbols);
    for (unsigned i = skip; i < backtrace->count && i < skip + PLACES_MAX; i++) {
        const char *arrow = i > skip ? " <- " : "";
        struct symbol symbol;
        int r;

        if (length >= bytes) break;
        if (symbol_find(&symbols, backtrace->frames[i], &symbol) == 0 && symbol.name) {
            r = snprintf(text + length, bytes - length, "%s%s", arrow, symbol.name);
        } else {
            r = snprintf(text + length, bytes - length, "%s?", arrow);
        }
        if (r > 0) length += (size_t)r;
    }
    symbol_table_deinit(&symbols);
}
