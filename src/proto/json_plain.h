/* json_plain.h - how much of a text is plain ASCII that JSON has as it is: most of most texts.
 *
 * Threads: any. No state.
 */
#ifndef WEIR_PROTO_JSON_PLAIN_H
#define WEIR_PROTO_JSON_PLAIN_H

#include <endian.h>

#include "proto/bytes.h"

static inline bool json_is_plain(char c)
{
    return (unsigned char)c >= ' ' && (unsigned char)c < 0x80 && c != '"' && c != '\\';
}

/* Of eight bytes: the high bit of each that is not plain, the first of them lowest; 0: all are. A
 * byte that borrows from the next one is not plain itself: so bits behind the lowest may be wrong,
 * and the lowest is right. */
static inline uint64_t json_not_plain(const char at[8])
{
    const uint64_t ones = UINT64_C(0x0101010101010101), highs = ones * 0x80;
    uint64_t word, quote, slash;

    memcpy(&word, at, sizeof word);
    word = le64toh(word);
    quote = word ^ ones * '"';
    slash = word ^ ones * '\\';
    return (word | (word - ones * ' ') | (quote - ones) | (slash - ones)) & highs;
}

/* How many bytes from the front are plain. */
static inline size_t json_plain_bytes(struct bytes text)
{
    size_t count = 0;

    for (; count + 8 <= text.count; count += 8) {
        uint64_t others = json_not_plain(text.at + count);

        if (others) return count + (size_t)__builtin_ctzll(others) / 8;
    }
    while (count < text.count && json_is_plain(text.at[count])) count++;
    return count;
}

#endif
