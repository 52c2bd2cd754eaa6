/* text.c - growing text, and strings made safe for what reads them. */
#include "watch/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "rt/mem.h"

enum { TEXT_BYTES_FIRST = 4096 };

void text_init(struct text *text)
{
    *text = (struct text){0};
}

void text_deinit(struct text *text)
{
    mem_free(text->data);
    text_init(text);
}

/* Room for `bytes` more and a terminator. */
static bool make_room(struct text *text, size_t bytes)
{
    size_t want = text->bytes ? text->bytes : (size_t)TEXT_BYTES_FIRST;
    char *data;

    if (text->error) return false;
    if (text->bytes - text->used > bytes) return true;
    while (want - text->used <= bytes) want *= 2;
    if (want > TEXT_BYTES_MAX) {
        text->error = -E2BIG;
        return false;
    }
    data = mem_resize(text->data, want);
    if (!data) {
        text->error = -ENOMEM;
        return false;
    }
    text->data = data;
    text->bytes = want;
    return true;
}

void text_add(struct text *text, const char *data, size_t bytes)
{
    if (!make_room(text, bytes)) return;
    memcpy(text->data + text->used, data, bytes);
    text->used += bytes;
    text->data[text->used] = '\0';
}

void text_say(struct text *text, const char *format, ...)
{
    va_list arguments;
    int n;

    if (!make_room(text, 255)) return;
    for (int attempt = 0; attempt < 2; attempt++) {
        size_t room = text->bytes - text->used;
        va_start(arguments, format);
        n = vsnprintf(text->data + text->used, room, format, arguments);
        va_end(arguments);
        if (n < 0) return;
        if ((size_t)n < room) {
            text->used += (size_t)n;
            return;
        }
        if (!make_room(text, (size_t)n)) return;
    }
}

/* How many bytes the UTF-8 character at `at` has, or 0 if it is none (RFC 3629: no
 * overlong forms, no surrogates, nothing above U+10FFFF). A terminator ends it early. */
static unsigned character_bytes(const unsigned char *at)
{
    unsigned bytes = at[0] < 0x80 ? 1 : at[0] < 0xc2 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;

    if (at[0] > 0xf4) return 0;
    for (unsigned i = 1; i < bytes; i++) {
        if ((at[i] & 0xc0) != 0x80) return 0;
    }
    if (at[0] == 0xe0 && at[1] < 0xa0) return 0;
    if (at[0] == 0xed && at[1] > 0x9f) return 0;
    if (at[0] == 0xf0 && at[1] < 0x90) return 0;
    if (at[0] == 0xf4 && at[1] > 0x8f) return 0;
    return bytes;
}

/* What a reader does not take as it is; true if it was written. */
typedef bool (*escape_fn)(struct text *text, unsigned char c);

static void add_escaped(struct text *text, const char *string, escape_fn escape, const char *broken)
{
    const unsigned char *at = (const unsigned char *)string;

    while (*at) {
        unsigned bytes = character_bytes(at);
        if (bytes == 0) {
            text_add(text, broken, strlen(broken));
            at++;
            continue;
        }
        if (bytes > 1 || !escape(text, *at)) text_add(text, (const char *)at, bytes);
        at += bytes;
    }
}

static bool escape_json(struct text *text, unsigned char c)
{
    if (c == '"' || c == '\\') {
        text_say(text, "\\%c", c);
    } else if (c < 0x20 || c == 0x7f) {
        text_say(text, "\\u%04x", c);
    } else {
        return false;
    }
    return true;
}

static bool escape_label(struct text *text, unsigned char c)
{
    if (c == '"' || c == '\\') {
        text_say(text, "\\%c", c);
    } else if (c == '\n') {
        text_say(text, "\\n");
    } else {
        return false;
    }
    return true;
}

static bool escape_plain(struct text *text, unsigned char c)
{
    if (c >= 0x20 && c != 0x7f) return false;
    text_say(text, "?");
    return true;
}

static bool escape_dot(struct text *text, unsigned char c)
{
    if (c != '"' && c != '\\') return escape_plain(text, c);
    text_say(text, "\\%c", c);
    return true;
}

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

void text_json(struct text *text, const char *string)
{
    text_say(text, "\"");
    add_escaped(text, string, escape_json, replacement);
    text_say(text, "\"");
}

void text_label(struct text *text, const char *string)
{
    text_say(text, "\"");
    add_escaped(text, string, escape_label, replacement);
    text_say(text, "\"");
}

void text_dot(struct text *text, const char *string)
{
    add_escaped(text, string, escape_dot, replacement);
}

void text_plain(struct text *text, const char *string)
{
    add_escaped(text, string, escape_plain, "?");
}

void text_copy_name(char *to, size_t bytes, const char *string)
{
    const unsigned char *at = (const unsigned char *)string;
    size_t used = 0;

    while (*at) {
        unsigned count = character_bytes(at);
        if (used + (count ? count : 1) >= bytes) break;
        if (count == 0) {
            to[used++] = '?';
            at++;
        }
        for (; count > 0; count--) to[used++] = (char)*at++;
    }
    to[used] = '\0';
}

void text_decimal(struct text *text, uint64_t value, unsigned digits)
{
    uint64_t unit = 1;
    char part[24];
    int used;

    for (unsigned i = 0; i < digits; i++) unit *= 10;
    text_say(text, "%llu", (unsigned long long)(value / unit));
    if (value % unit == 0) return;
    used = snprintf(part, sizeof part, "%0*llu", (int)digits, (unsigned long long)(value % unit));
    while (used > 0 && part[used - 1] == '0') used--;
    text_say(text, ".%.*s", used, part);
}
