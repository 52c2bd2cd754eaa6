/* http_write.h - requests and answers into a buffer, framed as their fields say.
 *
 *     START ──► FIELDS ──► BODY ──► DONE         any ──► FAILED
 *
 *     http_write_answer(&writer, &out, 200, method, minor, keep_alive);
 *     http_write_field(&writer, BYTES("content-type"), BYTES("application/json"));
 *     http_write_length(&writer, json.count);     or http_write_chunked, http_write_no_body
 *     http_write_body(&writer, json);
 *     r = http_write_end(&writer);
 *
 * Content-Length, Transfer-Encoding and Connection are the writer's: they cannot contradict what
 * it does. A name or value that would end its line early fails the message, as do a body that is
 * not as long as was said, and a bound of the buffer: http_write_end() tells.
 *
 * Invariants: after a failure the buffer ends in the middle of a message. Whoever has sent a part
 * of it already has to close the connection.
 * Threads: one at a time.
 */
#ifndef WEIR_PROTO_HTTP_WRITE_H
#define WEIR_PROTO_HTTP_WRITE_H

#include "proto/buffer.h"
#include "proto/http.h"

enum http_writing {
    HTTP_WRITING_START,
    HTTP_WRITING_FIELDS,
    HTTP_WRITING_BODY,
    HTTP_WRITING_DONE,
    HTTP_WRITING_FAILED,
    HTTP_WRITINGS,
};

struct http_writer {
    struct buffer *out;
    enum http_writing state;
    bool answer;     /* not a request */
    bool silent;     /* the answer to a HEAD: its body is dropped */
    bool bodyless;   /* by its status, or a request that has none */
    bool interim;    /* 1xx: another answer follows */
    bool switches;   /* 101: the connection goes on with another protocol */
    bool keep_alive; /* what was told; false: close after it */
    bool chunked;
    bool until_close; /* of unknown length, to somebody who does not know chunks */
    unsigned minor;   /* HTTP/1.`minor` of the request that is answered */
    uint64_t left;    /* of the length that was said */
    int error;
};

/* Begins an answer to a request of this method and version. A status of 1xx is one of its own:
 * http_write_no_body() and http_write_end(), and then the other answer. With 101 the caller says
 * Upgrade, and the writer Connection. */
void http_write_answer(struct http_writer *writer, struct buffer *keep_out, unsigned status,
                       enum http_method method, unsigned minor, bool keep_alive);
/* Begins a request, with its Host. */
void http_write_request(struct http_writer *writer, struct buffer *keep_out,
                        enum http_method method, struct bytes target, struct bytes host,
                        bool keep_alive);

void http_write_field(struct http_writer *writer, struct bytes name, struct bytes value);

/* One of these ends the fields. A status without a body takes all of them, and has none. */
void http_write_length(struct http_writer *writer, uint64_t length);
void http_write_chunked(struct http_writer *writer);
void http_write_no_body(struct http_writer *writer);

void http_write_body(struct http_writer *writer, struct bytes piece);
/* 0; WEIR_EREFUSED: a field or the length; or the buffer's -EMSGSIZE and -ENOMEM. */
int http_write_end(struct http_writer *writer);

#endif
