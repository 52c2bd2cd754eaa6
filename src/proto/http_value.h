/* http_value.h - what single header fields say: media types, encodings, tokens of a bearer.
 *
 * Threads: any. No state.
 */
#ifndef WEIR_PROTO_HTTP_VALUE_H
#define WEIR_PROTO_HTTP_VALUE_H

#include "proto/http.h"

/* Content-Type: whether it is `type` ("application/json"), with whatever parameters but a charset
 * other than UTF-8. */
bool http_media_is(struct bytes value, struct bytes type);

/* Accept and Accept-Encoding: how much `wanted` is wanted, in thousandths; 0: not at all. No such
 * field: all is wanted. What cannot be read counts as not wanted. The closest entry decides: of
 * "text / *;q=0.5, text/html" (without blanks) the second, for text/html. */
unsigned http_accepts_media(struct http_fields fields, struct bytes wanted);
/* `identity` is wanted if it is not refused by name, or by an asterisk. */
unsigned http_accepts_encoding(struct http_fields fields, struct bytes wanted);

/* Authorization: the token of a bearer (RFC 6750). 0; -ENOENT: there is no such field;
 * WEIR_EREFUSED: there are two, or it is something else. */
int http_bearer(struct http_fields fields, struct bytes *ret_token);

#endif
