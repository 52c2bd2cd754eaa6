/* cursor.h - where a listing goes on, as a text that means something only to us.
 *
 * cursor = base64url( version:1 listing:1 position:n crc32c:4 )
 *
 * A cursor that was cut, changed or made for another listing is refused; it is no secret, and
 * nothing is allowed by it.
 *
 * Threads: any. No state.
 */
#ifndef WEIR_PROTO_CURSOR_H
#define WEIR_PROTO_CURSOR_H

#include "proto/bytes.h"

enum { CURSOR_POSITION_MAX = 64, CURSOR_TEXT_BYTES = 96 }; /* the text with its terminator */

/* `listing` says of what kind of listing it is a position. How many bytes the text has. */
size_t cursor_format(uint8_t listing, struct bytes position, char ret_text[CURSOR_TEXT_BYTES]);
/* 0, or WEIR_EREFUSED. */
int cursor_parse(uint8_t listing, struct bytes text, char ret_position[CURSOR_POSITION_MAX],
                 size_t *ret_count);

#endif
