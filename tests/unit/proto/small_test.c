/* small_test.c - base64, durations, lines, cursors, buffers. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <weir/error.h>

#include "harness/test.h"
#include "proto/base64.h"
#include "proto/buffer.h"
#include "proto/cursor.h"
#include "proto/duration.h"
#include "proto/lines.h"
#include "unit/policy/chance.h"

/* ---- base64 ---- */

TEST(base64_is_that_of_the_standard)
{
    static const struct {
        const char *bytes, *padded, *url;
    } cases[] = {
        {"", "", ""},
        {"f", "Zg==", "Zg"},
        {"fo", "Zm8=", "Zm8"},
        {"foo", "Zm9v", "Zm9v"},
        {"foob", "Zm9vYg==", "Zm9vYg"},
        {"fooba", "Zm9vYmE=", "Zm9vYmE"},
        {"foobar", "Zm9vYmFy", "Zm9vYmFy"},
        {"\xfb\xff\xbe", "+/++", "-_--"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes bytes = bytes_of(cases[i].bytes);
        char text[16], back[16];
        size_t count = base64_encode(bytes, text), back_count = 0;

        CHECK(bytes_are((struct bytes){text, count}, bytes_of(cases[i].padded)));
        CHECK_INT(count, ==, base64_length(bytes.count));
        CHECK_INT(base64_decode((struct bytes){text, count}, back, &back_count), ==, 0);
        CHECK(bytes_are((struct bytes){back, back_count}, bytes));
        count = base64url_encode(bytes, text);
        CHECK(bytes_are((struct bytes){text, count}, bytes_of(cases[i].url)));
        CHECK_INT(count, ==, base64url_length(bytes.count));
        CHECK_INT(base64url_decode((struct bytes){text, count}, back, &back_count), ==, 0);
        CHECK(bytes_are((struct bytes){back, back_count}, bytes));
    }
}

TEST(base64_takes_one_text_for_each_run_of_bytes)
{
    static const char *const refused[] = {"Z",     "Zg",   "Zg=",      "Zh==",  "Zm9=",
                                          "Zg===", "====", "Zm9v=",    "Zm 9",  "Zm9-",
                                          "=Zg=",  "Z===", "Zg==Zg==", "Zm9v\n"};
    static const char *const refused_url[] = {"Z", "Zg==", "Zh", "Zm9", "+A", "Zm9vY"};
    char back[16];
    size_t count;

    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        test_note("%s", refused[i]);
        CHECK_INT(base64_decode(bytes_of(refused[i]), back, &count), ==, WEIR_EREFUSED);
    }
    for (size_t i = 0; i < sizeof refused_url / sizeof refused_url[0]; i++) {
        test_note("%s", refused_url[i]);
        CHECK_INT(base64url_decode(bytes_of(refused_url[i]), back, &count), ==, WEIR_EREFUSED);
    }
}

/* ---- Durations ---- */

TEST(durations_are_read_and_written)
{
    static const struct {
        const char *text;
        int64_t ns;
        const char *again;
    } cases[] = {
        {"0", 0, "0s"},
        {"0s", 0, "0s"},
        {"1h30m", 5400 * DURATION_S, "1h30m"},
        {"500ms", 500 * DURATION_MS, "500ms"},
        {"90m", 5400 * DURATION_S, "1h30m"},
        {"2d", 172800 * DURATION_S, "2d"},
        {"1d1h1m1s1ms1us1ns", INT64_C(90061001001001), "1d1h1m1s1ms1us1ns"},
        {"9223372036854775807ns", INT64_MAX, "106751d23h47m16s854ms775us807ns"},
        {"007s", 7 * DURATION_S, "7s"},
    };
    static const char *const refused[] = {
        "",
        "1",
        "s",
        "1x",
        "1m1h",
        "1s1s",
        "-1s",
        "+1s",
        "1.5s",
        " 1s",
        "1s ",
        "1 s",
        "1S",
        "1hm",
        "1mss",
        "1min",
        "00",
        "1s0",
        "9223372036854775808ns",
        "106752d",
        "99999999999999999999d",
        "106751d24h",
    };
    char text[DURATION_BYTES];
    int64_t ns;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        test_note("%s", cases[i].text);
        CHECK_INT(duration_parse(bytes_of(cases[i].text), &ns), ==, 0);
        CHECK_INT(ns, ==, cases[i].ns);
        CHECK_INT(duration_format(ns, text), ==, strlen(cases[i].again));
        CHECK_STR(text, cases[i].again);
    }
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        test_note("%s", refused[i]);
        CHECK_INT(duration_parse(bytes_of(refused[i]), &ns), ==, WEIR_EREFUSED);
    }
}

/* ---- Lines ---- */

/* The lines of a text in pieces of `step`, each with its number, joined. */
static void join_lines(struct bytes text, size_t step, struct buffer *out)
{
    char block[8];
    struct lines lines;
    struct bytes line;
    int r = 0;

    lines_init(&lines, block, sizeof block);
    for (size_t at = 0; r >= 0 && at < text.count; at += step) {
        size_t count = step < text.count - at ? step : text.count - at;
        char *copy = malloc(count);
        struct bytes piece = {copy, count};

        CHECK(copy);
        memcpy(copy, text.at + at, count);
        while ((r = lines_next(&lines, &piece, &line)) > 0) {
            buffer_put_uint(out, lines.number);
            buffer_put_bytes(out, line);
            buffer_put_char(out, '|');
        }
        free(copy);
    }
    if (r < 0) {
        buffer_put_string(out, "long");
    } else if (lines_end(&lines, &line)) {
        buffer_put_uint(out, lines.number);
        buffer_put_bytes(out, line);
        buffer_put_string(out, "|end");
    }
}

TEST(lines_are_the_same_in_any_pieces)
{
    static const struct {
        const char *text, *lines;
    } cases[] = {
        {"", ""},
        {"a", "1a|end"},
        {"a\n", "1a|"},
        {"a\r\nb\r", "1a|2b|end"},
        {"\n\n a\n\r\nb\n\n", "3 a|5b|"},
        {"12345678\n1234567\r\n\n", "112345678|21234567|"},
        {"12345678\n123456789\n1", "112345678|long"},
        {"123456789", "long"},
        {"a\rb\n", "1a\rb|"},
    };
    char memory[64];
    struct buffer out;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (size_t step = 1; step < 24; step++) {
            buffer_init_fixed(&out, memory, sizeof memory - 1);
            join_lines(bytes_of(cases[i].text), step, &out);
            memory[out.used] = '\0';
            test_note("in pieces of %zu", step);
            CHECK_STR(memory, cases[i].lines);
        }
    }
}

/* ---- Cursors ---- */

TEST(cursor_comes_back_as_it_was_and_no_other_does)
{
    char text[CURSOR_TEXT_BYTES], position[CURSOR_POSITION_MAX], back[CURSOR_POSITION_MAX];
    size_t count, back_count;

    for (size_t bytes = 0; bytes <= CURSOR_POSITION_MAX; bytes++) {
        for (size_t i = 0; i < bytes; i++) position[i] = (char)(i * 37 + bytes);
        count = cursor_format(3, (struct bytes){position, bytes}, text);
        CHECK_INT(count, ==, strlen(text));
        CHECK_INT(cursor_parse(3, bytes_of(text), back, &back_count), ==, 0);
        CHECK(bytes_are((struct bytes){back, back_count}, (struct bytes){position, bytes}));
        CHECK_INT(cursor_parse(4, bytes_of(text), back, &back_count), ==, WEIR_EREFUSED);
        for (size_t i = 0; i < count; i++) {
            char was = text[i];

            CHECK_INT(cursor_parse(3, (struct bytes){text, i}, back, &back_count), ==,
                      WEIR_EREFUSED);
            text[i] = was == 'A' ? 'B' : 'A';
            CHECK_INT(cursor_parse(3, bytes_of(text), back, &back_count), ==, WEIR_EREFUSED);
            text[i] = was;
        }
    }
}

/* Made by another program from the form that cursor.h describes. */
TEST(cursor_is_of_the_form_that_is_described)
{
    char back[CURSOR_POSITION_MAX];
    size_t count;

    CHECK_INT(cursor_parse(1, BYTES("AQFqb2JzROA6Gg"), back, &count), ==, 0);
    CHECK(bytes_are((struct bytes){back, count}, BYTES("jobs")));
}

/* ---- Buffers ---- */

static int resizes_left;

static void *resize(void *arg, void *block, size_t bytes_before, size_t bytes)
{
    (void)arg;
    (void)bytes_before;
    if (bytes == 0) {
        free(block);
        return NULL;
    }
    return resizes_left-- > 0 ? realloc(block, bytes) : NULL;
}

/* Around each power of ten, where the number of digits changes. */
TEST(buffer_writes_numbers_as_printf_does)
{
    uint64_t power = 1;

    for (int digits = 1; digits <= 20; digits++, power *= 10) {
        for (int more = -11; more <= 11; more++) {
            uint64_t value = power + (uint64_t)(int64_t)more;
            char block[64], wanted[64];
            struct buffer buffer;

            buffer_init_fixed(&buffer, block, sizeof block);
            buffer_put_uint(&buffer, value);
            buffer_put_char(&buffer, ' ');
            buffer_put_int(&buffer, (int64_t)value);
            buffer_put_char(&buffer, '\0');
            CHECK_INT(buffer_error(&buffer), ==, 0);
            (void)snprintf(wanted, sizeof wanted, "%llu %lld", (unsigned long long)value,
                           (long long)(int64_t)value);
            CHECK_STR(block, wanted);
        }
    }
}

TEST(buffer_grows_up_to_its_bound)
{
    struct buffer buffer;

    resizes_left = 100;
    buffer_init(&buffer, 1000, resize, NULL);
    for (int i = 0; i < 100; i++) buffer_put(&buffer, "0123456789", 10);
    CHECK_INT(buffer_error(&buffer), ==, 0);
    CHECK_INT(buffer.used, ==, 1000);
    CHECK_INT(buffer.room, ==, 1000);
    buffer_put_char(&buffer, 'x');
    CHECK_INT(buffer_error(&buffer), ==, -EMSGSIZE);
    CHECK_INT(buffer.used, ==, 1000);
    buffer_drop(&buffer, 995);
    CHECK(bytes_are(buffer_bytes(&buffer), BYTES("56789")));
    /* It stays an error until the buffer is cleared. */
    buffer_put_char(&buffer, 'x');
    CHECK_INT(buffer.used, ==, 5);
    buffer_clear(&buffer);
    buffer_put_int(&buffer, INT64_MIN);
    CHECK(bytes_are(buffer_bytes(&buffer), BYTES("-9223372036854775808")));
    buffer_deinit(&buffer);
}

TEST(buffer_without_memory_is_an_error_and_keeps_what_it_has)
{
    struct buffer buffer;

    resizes_left = 1;
    buffer_init(&buffer, 10000, resize, NULL);
    buffer_put_string(&buffer, "first");
    for (int i = 0; i < 100; i++) buffer_put(&buffer, "0123456789", 10);
    CHECK_INT(buffer_error(&buffer), ==, -ENOMEM);
    CHECK(bytes_begin(buffer_bytes(&buffer), BYTES("first0123456789")));
    buffer_fail(&buffer, -EMSGSIZE);
    CHECK_INT(buffer_error(&buffer), ==, -ENOMEM);
    buffer_deinit(&buffer);
}
