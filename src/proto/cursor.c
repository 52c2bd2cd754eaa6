/* cursor.c - a version, a kind, a position and a checksum, as base64url. */
#include "proto/cursor.h"

#include <assert.h>
#include <weir/error.h>

#include "base/crc32c.h"
#include "proto/base64.h"

enum { VERSION = 1, HEAD = 2, SUM = 4, RAW_MAX = HEAD + CURSOR_POSITION_MAX + SUM };

_Static_assert((RAW_MAX * 4 + 2) / 3 < CURSOR_TEXT_BYTES, "the longest has room");

static void put_sum(char *at, uint32_t sum)
{
    for (int i = 0; i < SUM; i++) at[i] = (char)(sum >> (8 * i));
}

size_t cursor_format(uint8_t listing, struct bytes position, char ret_text[CURSOR_TEXT_BYTES])
{
    char raw[RAW_MAX] = {VERSION, (char)listing};
    size_t count = HEAD + position.count;

    assert(position.count <= CURSOR_POSITION_MAX);
    if (position.count > 0) memcpy(raw + HEAD, position.at, position.count);
    put_sum(raw + count, crc32c(0, raw, count));
    count = base64url_encode((struct bytes){raw, count + SUM}, ret_text);
    ret_text[count] = '\0';
    return count;
}

int cursor_parse(uint8_t listing, struct bytes text, char ret_position[CURSOR_POSITION_MAX],
                 size_t *ret_count)
{
    char raw[CURSOR_TEXT_BYTES], sum[SUM];
    size_t count;

    if (text.count >= CURSOR_TEXT_BYTES) return WEIR_EREFUSED;
    if (base64url_decode(text, raw, &count) < 0) return WEIR_EREFUSED;
    if (count < HEAD + SUM || count > RAW_MAX) return WEIR_EREFUSED;
    count -= SUM;
    put_sum(sum, crc32c(0, raw, count));
    if (memcmp(sum, raw + count, SUM) != 0) return WEIR_EREFUSED;
    if (raw[0] != VERSION || (uint8_t)raw[1] != listing) return WEIR_EREFUSED;
    if (count > HEAD) memcpy(ret_position, raw + HEAD, count - HEAD);
    *ret_count = count - HEAD;
    return 0;
}
