/* http_guard.h - the form of each line of a message, checked before llhttp sees it.
 *
 * llhttp 8.1 in strict mode still takes: folded fields, a field without a name, a bare LF after the
 * first line and at the end of a head, any number of blanks and empty lines before a request, an
 * empty Transfer-Encoding or one with others before `chunked`, HTTP/0.9 and 2.0, fragments in
 * targets, Content-Length among trailers, extensions of chunks without end; and it does not look
 * at Host. All that is refused here, and what it refuses too is refused here with a better
 * sentence.
 *
 * Lines come without their end (CR LF), of which guard_line_end() has made sure.
 *
 * Invariants: no memory, no state. A sentence is for the sender of the message and ends nothing:
 * the parser decides what becomes of it.
 * Threads: any.
 */
#ifndef WEIR_PROTO_HTTP_GUARD_H
#define WEIR_PROTO_HTTP_GUARD_H

#include "proto/http_parse.h"

struct refusal {
    unsigned status; /* 0: it is well */
    const char *why;
};

/* The line with its LF: true if CR comes before it and nowhere else. */
bool guard_line_end(struct bytes line);

struct refusal guard_request_line(struct bytes line, enum http_method *ret_method);
struct refusal guard_status_line(struct bytes line);
struct refusal guard_field_line(struct bytes line, bool trailer);
struct refusal guard_chunk_line(struct bytes line);

/* Once all fields of a head are known: Host, what frames the body, Expect. */
struct refusal guard_request(const struct http_message *message);
struct refusal guard_framing(const struct http_message *message);

/* The authority of a target in absolute form (http://host/path); empty for others. */
struct bytes guard_target_authority(struct bytes target);

#endif
