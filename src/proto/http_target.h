/* http_target.h - the target of a request as segments of a path and pairs of a query.
 *
 * Segments and pairs are cut first and decoded then, so that %2F is a slash within a segment and
 * %26 an ampersand within a value. Refused: escapes that are none, NUL, what is no UTF-8; and in a
 * path control characters, empty segments, `.` and `..`, however they are written.
 *
 * Invariants: what is decoded lies in the caller's block, which has as many bytes as the target.
 * Threads: any. No state.
 */
#ifndef WEIR_PROTO_HTTP_TARGET_H
#define WEIR_PROTO_HTTP_TARGET_H

#include "proto/bytes.h"

enum { HTTP_SEGMENTS_MAX = 16, HTTP_PAIRS_MAX = 32 };

struct http_pair {
    struct bytes name, value;
};

struct http_target {
    struct bytes segments[HTTP_SEGMENTS_MAX]; /* of "/" none */
    unsigned segment_count;
    bool ends_in_slash; /* "/a/", which has one segment */
    bool asterisk;      /* OPTIONS * */
    struct http_pair pairs[HTTP_PAIRS_MAX];
    unsigned pair_count;
};

/* 0, or WEIR_EREFUSED and a sentence. */
int http_target_parse(struct bytes target, char *keep_block, struct http_target *ret_target,
                      const char **ret_why);

/* 0; -ENOENT: the query has no such name; WEIR_EREFUSED: it has it more than once. */
int http_target_query(const struct http_target *target, struct bytes name, struct bytes *ret_value);

/* Writes `text` so that it is one segment or value: all but letters, digits and -._~ as escapes.
 * `out` has three bytes for each. How many it took. */
size_t http_target_escape(struct bytes text, char *out);

#endif
