/* base64.c - three bytes as four characters, and back. */
#include "proto/base64.h"

#include <weir/error.h>

static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char url[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static size_t encode(struct bytes bytes, const char *alphabet, bool padded, char *out)
{
    size_t written = 0;

    for (size_t at = 0; at < bytes.count; at += 3) {
        size_t left = bytes.count - at;
        uint32_t bits = (uint32_t)(unsigned char)bytes.at[at] << 16;

        if (left > 1) bits |= (uint32_t)(unsigned char)bytes.at[at + 1] << 8;
        if (left > 2) bits |= (unsigned char)bytes.at[at + 2];
        out[written++] = alphabet[bits >> 18];
        out[written++] = alphabet[bits >> 12 & 63];
        if (left > 1) out[written++] = alphabet[bits >> 6 & 63];
        if (left > 2) out[written++] = alphabet[bits & 63];
        for (; padded && left < 3; left++) out[written++] = '=';
    }
    return written;
}

size_t base64_encode(struct bytes bytes, char *out)
{
    return encode(bytes, plain, true, out);
}

size_t base64url_encode(struct bytes bytes, char *out)
{
    return encode(bytes, url, false, out);
}

static int value_of(char c, const char *alphabet)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (is_digit(c)) return c - '0' + 52;
    if (c == alphabet[62]) return 62;
    return c == alphabet[63] ? 63 : -1;
}

/* `text` has no padding any more. */
static int decode(struct bytes text, const char *alphabet, unsigned char *out, size_t *ret_count)
{
    uint32_t bits = 0;
    unsigned held = 0;
    size_t count = 0;

    if (text.count % 4 == 1) return WEIR_EREFUSED;
    for (size_t i = 0; i < text.count; i++) {
        int value = value_of(text.at[i], alphabet);

        if (value < 0) return WEIR_EREFUSED;
        bits = bits << 6 | (uint32_t)value;
        held += 6;
        if (held >= 8) {
            held -= 8;
            out[count++] = (unsigned char)(bits >> held);
            bits &= (1u << held) - 1;
        }
    }
    if (bits != 0) return WEIR_EREFUSED;
    *ret_count = count;
    return 0;
}

int base64_decode(struct bytes text, void *out, size_t *ret_count)
{
    if (text.count % 4 != 0) return WEIR_EREFUSED;
    for (int i = 0; i < 2 && text.count > 0 && text.at[text.count - 1] == '='; i++) text.count--;
    return decode(text, plain, out, ret_count);
}

int base64url_decode(struct bytes text, void *out, size_t *ret_count)
{
    return decode(text, url, out, ret_count);
}
