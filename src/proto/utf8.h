/* utf8.h - UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing past U+10FFFF.
 *
 * Threads: any. No state.
 */
#ifndef WEIR_PROTO_UTF8_H
#define WEIR_PROTO_UTF8_H

#include "proto/bytes.h"

/* How many bytes the character at the front has, or 0: it is none. */
static inline size_t utf8_length(struct bytes bytes)
{
    const unsigned char *at = (const unsigned char *)bytes.at;
    unsigned first = at[0], lowest = 0x80, highest = 0xbf;
    size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;

    if (first < 0x80) return 1;
    if (first < 0xc2 || first > 0xf4 || bytes.count < length) return 0;
    if (first == 0xe0) lowest = 0xa0;  /* shorter forms exist */
    if (first == 0xed) highest = 0x9f; /* surrogates */
    if (first == 0xf0) lowest = 0x90;
    if (first == 0xf4) highest = 0x8f; /* past the last character */
    if (at[1] < lowest || at[1] > highest) return 0;
    for (size_t i = 2; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80) return 0;
    }
    return length;
}

static inline bool utf8_valid(struct bytes bytes)
{
    while (bytes.count > 0) {
        size_t length = utf8_length(bytes);

        if (length == 0) return false;
        bytes = bytes_after(bytes, length);
    }
    return true;
}

/* Writes a character that is no surrogate, and returns how many bytes it has. */
static inline size_t utf8_encode(uint32_t code, char ret_bytes[4])
{
    if (code < 0x80) {
        ret_bytes[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        ret_bytes[0] = (char)(0xc0 | code >> 6);
        ret_bytes[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        ret_bytes[0] = (char)(0xe0 | code >> 12);
        ret_bytes[1] = (char)(0x80 | (code >> 6 & 0x3f));
        ret_bytes[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    ret_bytes[0] = (char)(0xf0 | code >> 18);
    ret_bytes[1] = (char)(0x80 | (code >> 12 & 0x3f));
    ret_bytes[2] = (char)(0x80 | (code >> 6 & 0x3f));
    ret_bytes[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

#endif
