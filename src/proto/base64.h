/* base64.h - bytes as text (RFC 4648): with padding, or for addresses, without.
 *
 * Decoding takes one text for each run of bytes and no other: no blanks, no missing or needless
 * padding, no bits set that stand for nothing. So what decodes can be compared as text.
 *
 * Threads: any. No state.
 */
#ifndef WEIR_PROTO_BASE64_H
#define WEIR_PROTO_BASE64_H

#include "proto/bytes.h"

static inline size_t base64_length(size_t count)
{
    return (count + 2) / 3 * 4;
}

static inline size_t base64url_length(size_t count)
{
    return (count * 4 + 2) / 3;
}

/* At most so many bytes come out of a text of this length. */
static inline size_t base64_bytes_max(size_t count)
{
    return count / 4 * 3 + 2;
}

/* Both write what base64_length() or base64url_length() says, and return it. No NUL follows. */
size_t base64_encode(struct bytes bytes, char *out);
size_t base64url_encode(struct bytes bytes, char *out);

/* Into `out`, which has base64_bytes_max() bytes. 0, or WEIR_EREFUSED. */
int base64_decode(struct bytes text, void *out, size_t *ret_count);
int base64url_decode(struct bytes text, void *out, size_t *ret_count);

#endif
