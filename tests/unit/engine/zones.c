/* zones.c - tables of time zones, and a writer of TZif files. */
#include "unit/engine/zones.h"

#include <stdio.h>
#include <stdlib.h>

#include "engine/civil.h"
#include "harness/test.h"

#define HOUR_S 3600

/* True from 2010 on; most of the history before is left out. */
const struct zones_table zones[ZONES] = {
    [UTC_EMPTY] = {.name = "UTC", .footer = ""},
    [BERLIN] = {.name = "Europe/Berlin",
                .first_offset_s = 53 * 60 + 28,
                .count = 2,
                .rows = {{1893, 3, 31, 23, 6, 32, HOUR_S}, {1996, 10, 27, 1, 0, 0, HOUR_S}},
                .footer = "CET-1CEST,M3.5.0,M10.5.0/3"},
    [NEW_YORK] = {.name = "America/New_York",
                  .first_offset_s = -(4 * HOUR_S + 56 * 60 + 2),
                  .count = 1,
                  .rows = {{1883, 11, 18, 17, 0, 0, -5 * HOUR_S}},
                  .footer = "EST5EDT,M3.2.0,M11.1.0"},
    [LORD_HOWE] = {.name = "Australia/Lord_Howe",
                   .first_offset_s = 10 * HOUR_S + 36 * 60 + 20,
                   .count = 2,
                   .rows = {{1895, 1, 31, 13, 23, 40, 10 * HOUR_S},
                            {1981, 2, 28, 14, 0, 0, 10 * HOUR_S + 1800}},
                   .footer = "<+1030>-10:30<+11>-11,M10.1.0,M4.1.0"},
    [KOLKATA] = {.name = "Asia/Kolkata", .first_offset_s = 19800, .footer = "IST-5:30"},
    [APIA] = {.name = "Pacific/Apia",
              .first_offset_s = -11 * HOUR_S,
              .count = 7,
              .rows = {{2010, 9, 26, 11, 0, 0, -10 * HOUR_S},
                       {2011, 4, 2, 14, 0, 0, -11 * HOUR_S},
                       {2011, 9, 24, 14, 0, 0, -10 * HOUR_S},
                       {2011, 12, 30, 10, 0, 0, 14 * HOUR_S},
                       {2012, 3, 31, 14, 0, 0, 13 * HOUR_S},
                       {2012, 9, 29, 14, 0, 0, 14 * HOUR_S},
                       {2013, 4, 6, 14, 0, 0, 13 * HOUR_S}},
              .footer = "<+13>-13"},
    [SAO_PAULO] = {.name = "America/Sao_Paulo",
                   .first_offset_s = -3 * HOUR_S,
                   .count = 4,
                   .rows = {{2017, 10, 15, 3, 0, 0, -2 * HOUR_S},
                            {2018, 2, 18, 2, 0, 0, -3 * HOUR_S},
                            {2018, 11, 4, 3, 0, 0, -2 * HOUR_S},
                            {2019, 2, 17, 2, 0, 0, -3 * HOUR_S}},
                   .footer = "<-03>3"},
    [CASABLANCA] = {.name = "Africa/Casablanca",
                    .first_offset_s = HOUR_S,
                    .count = 7,
                    /* The first changes only what the offset is called. */
                    .rows = {{2018, 10, 28, 2, 0, 0, HOUR_S},
                             {2019, 5, 5, 2, 0, 0, 0},
                             {2019, 6, 9, 2, 0, 0, HOUR_S},
                             {2024, 3, 10, 2, 0, 0, 0},
                             {2024, 4, 14, 2, 0, 0, HOUR_S},
                             {2025, 2, 23, 2, 0, 0, 0},
                             {2025, 4, 6, 2, 0, 0, HOUR_S}},
                    .footer = "<+01>-1"},
    [DUBLIN] = {.name = "Europe/Dublin", .footer = "IST-1GMT0,M10.5.0,M3.5.0/1"},
    [SUMMER_ALWAYS] = {.name = "summer always", .footer = "XXX3EDT,0/0,J365/25"},
};

int64_t zones_row_s(const struct zones_row *row)
{
    return civil_to_days(row->year, row->month, row->day) * CIVIL_DAY_S + row->hour * HOUR_S +
           row->minute * 60 + row->second;
}

/* ---- The writer ---- */

struct writer {
    uint8_t *at;
};

static void write_number(struct writer *writer, int64_t number, int bytes)
{
    for (int i = bytes - 1; i >= 0; i--) *writer->at++ = (uint8_t)((uint64_t)number >> (8 * i));
}

static void write_bytes(struct writer *writer, const char *bytes, size_t count)
{
    if (count > 0) memcpy(writer->at, bytes, count);
    writer->at += count;
}

static void write_header(struct writer *writer, int version, int transitions, int types)
{
    write_bytes(writer, "TZif", 4);
    write_number(writer, version == 1 ? 0 : '0' + version, 1);
    memset(writer->at, 0, 15);
    writer->at += 15;
    write_number(writer, 0, 4); /* indicators, and leap seconds */
    write_number(writer, 0, 4);
    write_number(writer, 0, 4);
    write_number(writer, transitions, 4);
    write_number(writer, types, 4);
    write_number(writer, 4, 4); /* one name for all */
}

/* Each row has a type of its own, after the first one: the parser must not mind. */
static void write_block(struct writer *writer, const struct zones_table *table, int time_bytes)
{
    for (int i = 0; i < table->count; i++) {
        write_number(writer, zones_row_s(&table->rows[i]), time_bytes);
    }
    for (int i = 0; i < table->count; i++) write_number(writer, i + 1, 1);
    write_number(writer, table->first_offset_s, 4);
    write_number(writer, 0, 2);
    for (int i = 0; i < table->count; i++) {
        write_number(writer, table->rows[i].offset_s, 4);
        write_number(writer, i % 2, 1);
        write_number(writer, 0, 1);
    }
    write_bytes(writer, "ABC", 4);
}

size_t zones_write(const struct zones_table *table, int version, uint8_t *data)
{
    static const struct zones_table nothing = {.count = 0};
    struct writer writer = {data};

    if (version == 1) {
        write_header(&writer, version, table->count, table->count + 1);
        write_block(&writer, table, 4);
    } else {
        write_header(&writer, version, 0, 1);
        write_block(&writer, &nothing, 4);
        write_header(&writer, version, table->count, table->count + 1);
        write_block(&writer, table, 8);
        write_bytes(&writer, "\n", 1);
        write_bytes(&writer, table->footer, strlen(table->footer));
        write_bytes(&writer, "\n", 1);
    }
    return (size_t)(writer.at - data);
}

const struct zone *zones_get(enum zones_id id)
{
    enum { BYTES = sizeof(struct zone) + ZONES_ROWS * sizeof(struct zone_transition) };
    static union {
        struct zone zone;
        uint8_t bytes[BYTES];
    } made[ZONES];
    uint8_t data[ZONES_FILE_BYTES];
    char why[ZONE_WHY_BYTES] = "";
    size_t bytes = zones_write(&zones[id], 2, data);
    int r = zone_parse(data, bytes, &made[id].zone, BYTES, why, sizeof why);

    if (r < 0) TEST_FAIL("%s: %s", zones[id].name, why);
    return &made[id].zone;
}

/* ---- Times as text ---- */

int64_t zones_time(const char *text)
{
    struct zones_row row = {0};
    int count = sscanf(text, "%d-%d-%d %d:%d:%d", &row.year, &row.month, &row.day, &row.hour,
                       &row.minute, &row.second);

    if (count < 3) TEST_FAIL("'%s' is no time", text);
    return zones_row_s(&row);
}

const char *zones_show(const struct zone *zone, int64_t utc_s, char text[ZONES_TEXT_BYTES])
{
    int32_t offset_s = zone_offset(zone, utc_s);
    int64_t local_s = utc_s + offset_s;
    struct civil_date date = civil_from_days(civil_divide(local_s, CIVIL_DAY_S));
    int of_day = (int)civil_remainder(local_s, CIVIL_DAY_S);

    (void)snprintf(text, ZONES_TEXT_BYTES, "%04d-%02d-%02d %02d:%02d:%02d%c%02d:%02d",
                   (int)date.year % 10000, date.month, date.day, of_day / HOUR_S, of_day / 60 % 60,
                   of_day % 60, offset_s < 0 ? '-' : '+', abs(offset_s) / HOUR_S % 100,
                   abs(offset_s) / 60 % 60);
    return text;
}
