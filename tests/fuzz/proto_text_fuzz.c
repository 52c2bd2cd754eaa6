/* proto_text_fuzz.c - any bytes as the small texts of a server: what is read is written the same.
 *
 * input = a letter that says what it is, and the text
 */
#include <string.h>

#include "fuzz/fuzz.h"
#include "proto/base64.h"
#include "proto/cursor.h"
#include "proto/duration.h"
#include "proto/http_date.h"
#include "proto/http_target.h"
#include "proto/http_value.h"
#include "proto/lines.h"

static void check_base64(struct bytes text, bool url)
{
    char *bytes = malloc(base64_bytes_max(text.count)), *again;
    size_t count, length;

    if (!bytes) abort();
    if ((url ? base64url_decode : base64_decode)(text, bytes, &count) == 0) {
        MUST(count <= base64_bytes_max(text.count));
        length = url ? base64url_length(count) : base64_length(count);
        again = malloc(length + 1);
        if (!again) abort();
        MUST((url ? base64url_encode : base64_encode)((struct bytes){bytes, count}, again) ==
             length);
        MUST(bytes_are((struct bytes){again, length}, text));
        free(again);
    }
    free(bytes);
}

static void check_cursor(struct bytes text)
{
    char position[CURSOR_POSITION_MAX], again[CURSOR_TEXT_BYTES];
    size_t count;

    if (cursor_parse(1, text, position, &count) < 0) return;
    MUST(cursor_format(1, (struct bytes){position, count}, again) == text.count);
    MUST(memcmp(again, text.at, text.count) == 0);
}

static void check_duration(struct bytes text)
{
    char again[DURATION_BYTES];
    int64_t ns, same;

    if (duration_parse(text, &ns) < 0) return;
    MUST(ns >= 0);
    MUST(duration_parse((struct bytes){again, duration_format(ns, again)}, &same) == 0);
    MUST(same == ns);
}

static void check_date(struct bytes text)
{
    char again[HTTP_DATE_BYTES];
    int64_t time_s;

    if (http_date_parse(text, &time_s) < 0) return;
    http_date_format(time_s, again);
    MUST(bytes_are(bytes_of(again), text));
}

static void check_target(struct bytes text)
{
    char *block = malloc(text.count > 0 ? text.count : 1);
    struct http_target target;
    const char *why = NULL;

    if (!block) abort();
    if (http_target_parse(text, block, &target, &why) < 0) {
        MUST(why);
    } else {
        for (unsigned i = 0; i < target.segment_count; i++) {
            MUST(target.segments[i].count > 0);
            MUST(!memchr(target.segments[i].at, '\0', target.segments[i].count));
        }
    }
    free(block);
}

static void check_values(struct bytes text)
{
    struct http_field fields[] = {
        {BYTES("accept"), text}, {BYTES("accept-encoding"), text}, {BYTES("authorization"), text}};
    struct http_fields all = {fields, 3};
    struct bytes token;

    MUST(http_accepts_media(all, BYTES("text/html")) <= 1000);
    MUST(http_accepts_encoding(all, BYTES("gzip")) <= 1000);
    (void)http_media_is(text, BYTES("text/html"));
    if (http_bearer(all, &token) == 0) MUST(token.count > 0);
    (void)http_authority_valid(text);
}

/* All lines, put together again, are the text without its empty lines and ends. */
static void check_lines(struct bytes text)
{
    size_t room = text.count + 1, shown[2] = {0, 0};

    for (size_t step = 1; step <= 2; step++) {
        char *block = malloc(room);
        struct bytes rest = text, line;
        struct lines lines;

        if (!block) abort();
        lines_init(&lines, block, room);
        while (rest.count > 0) {
            size_t count = step == 1 ? 1 : rest.count;
            struct bytes piece = {rest.at, count};

            while (lines_next(&lines, &piece, &line) > 0) shown[step - 1] += line.count + 1;
            MUST(piece.count == 0);
            rest = bytes_after(rest, count);
        }
        if (lines_end(&lines, &line)) shown[step - 1] += line.count + 1;
        free(block);
    }
    MUST(shown[0] == shown[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes text = {(const char *)data + 1, size - 1};

    if (size == 0) return 0;
    switch (data[0]) {
    case 'b': check_base64(text, false); break;
    case 'u': check_base64(text, true); break;
    case 'c': check_cursor(text); break;
    case 'd': check_duration(text); break;
    case 'h': check_date(text); break;
    case 't': check_target(text); break;
    case 'v': check_values(text); break;
    case 'l': check_lines(text); break;
    default: break;
    }
    return 0;
}
