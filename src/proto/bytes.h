/* bytes.h - a run of bytes that somebody else holds, and the classes of its characters.
 *
 * Invariants: `at` may be NULL only with `count` 0. Nothing here reads past `count`, and nothing
 * depends on the locale.
 * Threads: any. No state.
 */
#ifndef WEIR_PROTO_BYTES_H
#define WEIR_PROTO_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct bytes {
    const char *at;
    size_t count;
};

/* Of a string literal. */
#define BYTES(literal) ((struct bytes){"" literal, sizeof(literal) - 1})

static inline struct bytes bytes_of(const char *string)
{
    return (struct bytes){string, strlen(string)};
}

static inline bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static inline bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static inline char to_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* 0 to 15, or -1. */
static inline int hex_value(char c)
{
    if (is_digit(c)) return c - '0';
    c = to_lower(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* What names of methods and header fields are made of (RFC 9110, token). */
static inline bool is_token(char c)
{
    return is_digit(c) || is_letter(c) || (c != '\0' && strchr("!#$%&'*+-.^_`|~", c));
}

/* One that can be seen: no blank, no control character, nothing beyond ASCII. */
static inline bool is_visible(char c)
{
    return c > ' ' && c < 0x7f;
}

/* What the value of a header field may hold: blanks, visible characters, and bytes beyond ASCII. */
static inline bool is_field_value(char c)
{
    return c == '\t' || ((unsigned char)c >= ' ' && c != 0x7f);
}

static inline bool bytes_are(struct bytes bytes, struct bytes other)
{
    return bytes.count == other.count &&
           (bytes.count == 0 || memcmp(bytes.at, other.at, bytes.count) == 0);
}

/* Upper and lower case of ASCII are the same. */
static inline bool bytes_are_like(struct bytes bytes, struct bytes other)
{
    if (bytes.count != other.count) return false;
    for (size_t i = 0; i < bytes.count; i++) {
        if (to_lower(bytes.at[i]) != to_lower(other.at[i])) return false;
    }
    return true;
}

static inline bool bytes_begin(struct bytes bytes, struct bytes with)
{
    return bytes.count >= with.count &&
           (with.count == 0 || memcmp(bytes.at, with.at, with.count) == 0);
}

static inline struct bytes bytes_after(struct bytes bytes, size_t count)
{
    return (struct bytes){bytes.at + count, bytes.count - count};
}

/* Without blanks and tabs at its ends. */
static inline struct bytes bytes_trim(struct bytes bytes)
{
    while (bytes.count > 0 && (bytes.at[0] == ' ' || bytes.at[0] == '\t')) {
        bytes = bytes_after(bytes, 1);
    }
    while (bytes.count > 0 &&
           (bytes.at[bytes.count - 1] == ' ' || bytes.at[bytes.count - 1] == '\t')) {
        bytes.count--;
    }
    return bytes;
}

/* What comes before the first `mark`, or all; `rest` goes behind it. False: there was nothing
 * left, not even an empty part. */
static inline bool bytes_split(struct bytes *rest, char mark, struct bytes *ret_part)
{
    const char *found;

    *ret_part = (struct bytes){NULL, 0};
    if (!rest->at) return false;
    found = rest->count > 0 ? memchr(rest->at, mark, rest->count) : NULL;
    if (!found) {
        *ret_part = *rest;
        *rest = (struct bytes){NULL, 0};
        return true;
    }
    *ret_part = (struct bytes){rest->at, (size_t)(found - rest->at)};
    *rest = bytes_after(*rest, ret_part->count + 1);
    return true;
}

#endif
