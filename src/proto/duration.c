/* duration.c - units, from the longest to the shortest. */
#include "proto/duration.h"

#include <assert.h>
#include <weir/error.h>

#include "proto/buffer.h"

static const struct {
    const char *name;
    int64_t ns;
} units[] = {
    {"d", 86400 * DURATION_S},
    {"h", 3600 * DURATION_S},
    {"m", 60 * DURATION_S},
    {"s", DURATION_S},
    {"ms", DURATION_MS},
    {"us", 1000},
    {"ns", 1},
};

enum { UNITS = sizeof units / sizeof units[0] };

static bool take_number(struct bytes *rest, int64_t *ret_number)
{
    int64_t number = 0;
    size_t count = 0;

    for (; count < rest->count && is_digit(rest->at[count]); count++) {
        if (__builtin_mul_overflow(number, 10, &number)) return false;
        if (__builtin_add_overflow(number, rest->at[count] - '0', &number)) return false;
    }
    *rest = bytes_after(*rest, count);
    *ret_number = number;
    return count > 0;
}

/* The unit at the front, which is one from `from` on; UNITS: none. */
static unsigned take_unit(struct bytes *rest, unsigned from)
{
    size_t count = 0;

    while (count < rest->count && is_letter(rest->at[count])) count++;
    for (unsigned i = from; i < UNITS; i++) {
        if (!bytes_are((struct bytes){rest->at, count}, bytes_of(units[i].name))) continue;
        *rest = bytes_after(*rest, count);
        return i;
    }
    return UNITS;
}

int duration_parse(struct bytes text, int64_t *ret_ns)
{
    struct bytes rest = text;
    int64_t all = 0, number;
    unsigned unit = 0;

    if (text.count == 0) return WEIR_EREFUSED;
    if (bytes_are(text, BYTES("0"))) {
        *ret_ns = 0;
        return 0;
    }
    while (rest.count > 0) {
        if (!take_number(&rest, &number)) return WEIR_EREFUSED;
        unit = take_unit(&rest, unit);
        if (unit == UNITS) return WEIR_EREFUSED;
        if (__builtin_mul_overflow(number, units[unit].ns, &number)) return WEIR_EREFUSED;
        if (__builtin_add_overflow(all, number, &all)) return WEIR_EREFUSED;
        unit++;
    }
    *ret_ns = all;
    return 0;
}

size_t duration_format(int64_t ns, char ret_text[DURATION_BYTES])
{
    struct buffer text;

    assert(ns >= 0);
    buffer_init_fixed(&text, ret_text, DURATION_BYTES - 1);
    if (ns == 0) buffer_put_string(&text, "0s");
    for (unsigned i = 0; i < UNITS; i++) {
        if (ns < units[i].ns) continue;
        buffer_put_uint(&text, (uint64_t)(ns / units[i].ns));
        buffer_put_string(&text, units[i].name);
        ns %= units[i].ns;
    }
    ret_text[text.used] = '\0';
    return text.used;
}
