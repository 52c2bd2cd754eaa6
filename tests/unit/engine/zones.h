/* zones.h - time zones for tests, as tables of the instants at which their clocks change, and the
 * bytes of TZif files that are written from them. So tests need no files of the machine. */
#ifndef WEIR_TESTS_ZONES_H
#define WEIR_TESTS_ZONES_H

#include <stddef.h>
#include <stdint.h>

#include "engine/zone.h"

enum { ZONES_ROWS = 8, ZONES_FILE_BYTES = 1024, ZONES_TEXT_BYTES = 64 };

/* From this UTC time on the offset holds. */
struct zones_row {
    int year, month, day, hour, minute, second;
    int32_t offset_s;
};

struct zones_table {
    const char *name;
    int32_t first_offset_s;
    int count;
    struct zones_row rows[ZONES_ROWS];
    const char *footer; /* "": none */
};

enum zones_id {
    UTC_EMPTY, /* a file that says nothing but 0 */
    BERLIN,
    NEW_YORK,
    LORD_HOWE, /* half an hour of summer time */
    KOLKATA,
    APIA, /* has no 2011-12-30 */
    SAO_PAULO,
    CASABLANCA, /* winter time in Ramadan */
    DUBLIN,     /* winter time is written as summer time with an offset below */
    SUMMER_ALWAYS,
    ZONES,
};

extern const struct zones_table zones[ZONES];

/* A file of this version (1 to 4); returns its bytes, at most ZONES_FILE_BYTES. */
size_t zones_write(const struct zones_table *table, int version, uint8_t *data);

/* The zone, written and parsed, in memory that stays until the next call for the same id. */
const struct zone *zones_get(enum zones_id id);

int64_t zones_row_s(const struct zones_row *row);

/* "2025-03-30 03:00:00" as seconds, as if it were UTC; the time of the day may be left out. */
int64_t zones_time(const char *text);

/* What the wall shows, with its offset: "2025-03-30 03:00:00+02:00". */
const char *zones_show(const struct zone *zone, int64_t utc_s, char text[ZONES_TEXT_BYTES]);

#endif
