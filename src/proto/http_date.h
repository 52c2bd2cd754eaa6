/* http_date.h - times in header fields: "Sun, 06 Nov 1994 08:49:37 GMT".
 *
 * Only this form is read: the two older ones are not sent by anybody who is still there.
 *
 * Threads: any. No state.
 */
#ifndef WEIR_PROTO_HTTP_DATE_H
#define WEIR_PROTO_HTTP_DATE_H

#include "proto/bytes.h"

enum { HTTP_DATE_BYTES = 30 }; /* with its terminator */

/* Seconds since 1970, from then to the end of 9999. */
void http_date_format(int64_t time_s, char ret_text[HTTP_DATE_BYTES]);
/* 0, or WEIR_EREFUSED: another form, no such day, or another weekday than that day is. */
int http_date_parse(struct bytes text, int64_t *ret_time_s);

#endif
