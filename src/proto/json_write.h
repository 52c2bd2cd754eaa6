/* json_write.h - JSON into a buffer, with its commas and escapes.
 *
 *     json_open_object(&json);
 *     json_key(&json, "id");
 *     json_put_uint(&json, job->id);
 *     json_close(&json);
 *
 * Invariants: what was written is JSON once each object and array is closed and the buffer has no
 * error: wrong order (a value without a key, a close too many) is our own mistake and is asserted.
 * Text that is no UTF-8 gets U+FFFD in place of each byte that is none.
 * Threads: one at a time.
 */
#ifndef WEIR_PROTO_JSON_WRITE_H
#define WEIR_PROTO_JSON_WRITE_H

#include "proto/buffer.h"
#include "proto/json_read.h"

struct json_writer {
    struct buffer *out;
    unsigned depth;
    uint64_t objects; /* by depth, a bit: it is an object */
    bool comma;       /* before the next value or key */
    bool keyed;       /* a key was written, and its value comes next */
};

void json_writer_init(struct json_writer *json, struct buffer *keep_out);
/* All that was opened is closed, and there is a value. */
bool json_writer_done(const struct json_writer *json);

void json_open_object(struct json_writer *json);
void json_open_array(struct json_writer *json);
void json_close(struct json_writer *json);
void json_key(struct json_writer *json, const char *key);

void json_put_null(struct json_writer *json);
void json_put_bool(struct json_writer *json, bool truth);
void json_put_int(struct json_writer *json, int64_t value);
void json_put_uint(struct json_writer *json, uint64_t value);
/* Six digits behind the point at most; what is no number becomes null. */
void json_put_double(struct json_writer *json, double value);
void json_put_text(struct json_writer *json, struct bytes text);
void json_put_string(struct json_writer *json, const char *string);
/* Bytes that are JSON already: one value, checked by whoever took it in. */
void json_put_raw(struct json_writer *json, struct bytes value);
/* Any bytes, as a string of base64. */
void json_put_base64(struct json_writer *json, struct bytes value);

#endif
