/* formats.h - strict readers of what metrics and map write: JSON (RFC 8259) and the
 * Prometheus text format, version 0.0.4.
 *
 * They accept less than other readers would: no byte that the formats do not need.
 */
#ifndef WEIR_TESTS_WATCH_FORMATS_H
#define WEIR_TESTS_WATCH_FORMATS_H

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "harness/test.h"

/* ---- JSON ---- */

static const char *json_value(const char *at);

static inline const char *json_blank(const char *at)
{
    while (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r') at++;
    return at;
}

static inline const char *json_literal(const char *at, const char *word)
{
    if (strncmp(at, word, strlen(word)) != 0) TEST_FAIL("no JSON value at '%.40s'", at);
    return at + strlen(word);
}

static inline const char *json_string(const char *at)
{
    if (*at++ != '"') TEST_FAIL("no JSON string at '%.40s'", at - 1);
    for (; *at != '"'; at++) {
        if ((unsigned char)*at < 0x20) TEST_FAIL("a control character in a JSON string");
        if (*at != '\\') continue;
        at++;
        if (*at == 'u') {
            for (int i = 1; i <= 4; i++) CHECK(isxdigit((unsigned char)at[i]));
            at += 4;
        } else if (!strchr("\"\\/bfnrt", *at)) {
            TEST_FAIL("a wrong escape in a JSON string: \\%c", *at);
        }
    }
    return at + 1;
}

static inline const char *json_digits(const char *at)
{
    CHECK(isdigit((unsigned char)*at));
    while (isdigit((unsigned char)*at)) at++;
    return at;
}

static inline const char *json_number(const char *at)
{
    if (*at == '-') at++;
    at = *at == '0' ? at + 1 : json_digits(at);
    if (*at == '.') at = json_digits(at + 1);
    return at;
}

/* Members of an object, or values of an array. */
static inline const char *json_list(const char *at, char end)
{
    at = json_blank(at + 1);
    if (*at == end) return at + 1;
    for (;;) {
        if (end == '}') {
            at = json_blank(json_string(json_blank(at)));
            if (*at++ != ':') TEST_FAIL("no ':' in a JSON object at '%.40s'", at - 1);
        }
        at = json_blank(json_value(json_blank(at)));
        if (*at == end) return at + 1;
        if (*at++ != ',') TEST_FAIL("no ',' in JSON at '%.40s'", at - 1);
    }
}

static const char *json_value(const char *at)
{
    switch (*at) {
    case '{': return json_list(at, '}');
    case '[': return json_list(at, ']');
    case '"': return json_string(at);
    case 't': return json_literal(at, "true");
    case 'f': return json_literal(at, "false");
    case 'n': return json_literal(at, "null");
    default: return json_number(at);
    }
}

static __attribute__((unused)) void check_json(const char *text)
{
    const char *end = json_blank(json_value(json_blank(text)));
    if (*end) TEST_FAIL("more than one JSON value: '%.40s'", end);
}

/* ---- Prometheus ---- */

struct prometheus {
    char family[128], type[16];
    char seen[256][128]; /* families, each of which may come once */
    int seen_count;
    char series[128 * 1024]; /* "name{labels}" of all samples, each once, newline before it */
    size_t series_bytes;
    double bucket; /* of the histogram that is being read: the last le, and its count */
    unsigned long long bucket_count;
    bool in_buckets;
};
static __attribute__((unused)) struct prometheus prometheus;

static inline const char *metric_name(const char *at, char *name, size_t bytes)
{
    size_t n = 0;
    if (!isalpha((unsigned char)*at) && *at != '_') TEST_FAIL("no name at '%.60s'", at);
    while (isalnum((unsigned char)*at) || *at == '_' || *at == ':') {
        CHECK(n + 1 < bytes);
        name[n++] = *at++;
    }
    name[n] = '\0';
    return at;
}

/* name="value" pairs; le's value is left in `le`. */
static inline const char *metric_labels(const char *at, char *le, size_t bytes)
{
    char name[64];

    for (at++;; at++) {
        const char *value;
        at = metric_name(at, name, sizeof name);
        if (*at != '=' || at[1] != '"') TEST_FAIL("no label value at '%.60s'", at);
        value = at += 2;
        for (; *at != '"'; at++) {
            if (*at == '\n' || !*at) TEST_FAIL("a label value does not end: '%.60s'", value);
            if (*at == '\\' && !strchr("\\\"n", *++at)) TEST_FAIL("a wrong escape in a label");
        }
        if (strcmp(name, "le") == 0) {
            CHECK((size_t)(at - value) < bytes);
            memcpy(le, value, (size_t)(at - value));
            le[at - value] = '\0';
        }
        if (*++at == '}') return at + 1;
        if (*at != ',') TEST_FAIL("no ',' between labels at '%.60s'", at);
    }
}

static inline const char *comment_line(struct prometheus *p, const char *at)
{
    char name[128];

    if (strncmp(at, "# HELP ", 7) == 0) {
        at = metric_name(at + 7, name, sizeof name);
        CHECK(*at == ' ');
        for (int i = 0; i < p->seen_count; i++) {
            if (strcmp(p->seen[i], name) == 0) TEST_FAIL("%s comes twice", name);
        }
        CHECK_INT(p->seen_count, <, 256);
        memcpy(p->seen[p->seen_count++], name, sizeof name);
        memcpy(p->family, name, sizeof name);
        p->type[0] = '\0';
    } else {
        size_t n = 0;
        at = metric_name(json_literal(at, "# TYPE "), name, sizeof name);
        CHECK_STR(name, p->family);
        for (at++; *at != '\n' && n + 1 < sizeof p->type; at++) p->type[n++] = *at;
        p->type[n] = '\0';
        CHECK(strcmp(p->type, "counter") == 0 || strcmp(p->type, "gauge") == 0 ||
              strcmp(p->type, "histogram") == 0);
        /* What promtool says of names. */
        n = strlen(name);
        CHECK((strcmp(p->type, "counter") == 0) == (n > 6 && strcmp(name + n - 6, "_total") == 0));
        if (strcmp(p->type, "histogram") == 0) CHECK(strstr(name, "_seconds"));
    }
    at = strchr(at, '\n');
    CHECK(at != NULL);
    return at + 1;
}

static inline void note_series(struct prometheus *p, const char *begin, const char *end)
{
    size_t bytes = (size_t)(end - begin);
    char one[512];

    CHECK(bytes + 3 < sizeof one);
    one[0] = '\n';
    memcpy(one + 1, begin, bytes);
    memcpy(one + 1 + bytes, "\n", 2);
    if (strstr(p->series, one)) TEST_FAIL("a series comes twice: %s", one + 1);
    CHECK(p->series_bytes + bytes + 3 < sizeof p->series);
    if (p->series_bytes == 0) p->series[p->series_bytes++] = '\n';
    memcpy(p->series + p->series_bytes, one + 1, bytes + 2);
    p->series_bytes += bytes + 1;
}

static inline void check_bucket(struct prometheus *p, const char *le, unsigned long long count)
{
    double bound = strcmp(le, "+Inf") == 0 ? 1e300 : atof(le);

    if (p->in_buckets) {
        CHECK(bound > p->bucket);
        CHECK(count >= p->bucket_count);
    }
    p->in_buckets = bound < 1e300;
    p->bucket = bound;
    p->bucket_count = count;
}

static inline const char *sample_line(struct prometheus *p, const char *begin)
{
    char name[128], le[32] = "";
    const char *at = metric_name(begin, name, sizeof name);
    size_t family_bytes = strlen(p->family);
    const char *number;

    if (strncmp(name, p->family, family_bytes) != 0) TEST_FAIL("%s is not in its family", name);
    if (*at == '{') at = metric_labels(at, le, sizeof le);
    note_series(p, begin, at);
    if (*at++ != ' ') TEST_FAIL("no blank before the value of %s", name);
    number = at;
    at = json_number(at);
    if (*at != '\n') TEST_FAIL("no end of line after the value of %s", name);
    if (strcmp(p->type, "histogram") != 0) {
        CHECK_STR(name, p->family);
    } else if (strcmp(name + family_bytes, "_bucket") == 0) {
        check_bucket(p, le, strtoull(number, NULL, 10));
    } else if (strcmp(name + family_bytes, "_count") == 0) {
        CHECK(strtoull(number, NULL, 10) == p->bucket_count); /* of +Inf */
    } else {
        CHECK_STR(name + family_bytes, "_sum");
    }
    return at + 1;
}

static __attribute__((unused)) void check_prometheus(const char *text)
{
    memset(&prometheus, 0, sizeof prometheus);
    CHECK(*text && text[strlen(text) - 1] == '\n');
    while (*text) {
        text = *text == '#' ? comment_line(&prometheus, text) : sample_line(&prometheus, text);
    }
}

#endif
