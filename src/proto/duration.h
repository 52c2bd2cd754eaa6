/* duration.h - durations as text: 1h30m, 500ms, 2d.
 *
 * Units d h m s ms us ns: each once and in this order, whole numbers, no blanks. 0 needs none.
 *
 * Threads: any. No state.
 */
#ifndef WEIR_PROTO_DURATION_H
#define WEIR_PROTO_DURATION_H

#include "proto/bytes.h"

#define DURATION_MS INT64_C(1000000)
#define DURATION_S INT64_C(1000000000)

enum { DURATION_BYTES = 64 }; /* and a terminator, for the longest */

/* 0, or WEIR_EREFUSED: no duration, or beyond 292 years. */
int duration_parse(struct bytes text, int64_t *ret_ns);
/* The shortest text that is this one; `ns` is not negative. How many bytes it has. */
size_t duration_format(int64_t ns, char ret_text[DURATION_BYTES]);

#endif
