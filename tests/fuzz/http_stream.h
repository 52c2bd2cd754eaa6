/* http_stream.h - a stream of HTTP through the parser, in pieces: what it says as one checksum.
 *
 * Invariants: the checksum does not depend on the pieces, or the target fails.
 */
#ifndef FUZZ_HTTP_STREAM_H
#define FUZZ_HTTP_STREAM_H

#include <string.h>

#include "base/crc32c.h"
#include "fuzz/fuzz.h"
#include "proto/http_parse.h"

enum { STREAM_FIELDS = 6 };

static const struct http_limits stream_limits = {
    .line_bytes_max = 120,
    .head_bytes_max = 300,
    .field_count_max = STREAM_FIELDS,
    .body_bytes_max = 400,
    .chunk_line_bytes_max = 30,
    .trailer_bytes_max = 80,
};

struct stream {
    struct http_parser parser;
    uint32_t sum;
    uint64_t body_bytes;
    bool answers_head;
};

static inline void stream_note(struct stream *stream, struct bytes bytes)
{
    stream->sum = crc32c(stream->sum, &bytes.count, sizeof bytes.count);
    if (bytes.count > 0) stream->sum = crc32c(stream->sum, bytes.at, bytes.count);
}

static inline void stream_fields(struct stream *stream, struct http_fields fields)
{
    MUST(fields.count <= STREAM_FIELDS);
    for (unsigned i = 0; i < fields.count; i++) {
        MUST(http_name_valid(fields.at[i].name) && http_value_valid(fields.at[i].value));
        for (size_t k = 0; k < fields.at[i].name.count; k++) {
            MUST(to_lower(fields.at[i].name.at[k]) == fields.at[i].name.at[k]);
        }
        MUST(bytes_are(fields.at[i].value, bytes_trim(fields.at[i].value)));
        stream_note(stream, fields.at[i].name);
        stream_note(stream, fields.at[i].value);
    }
}

static inline void stream_head(struct stream *stream)
{
    const struct http_message *message = &stream->parser.message;
    bool request = stream->parser.kind == HTTP_KIND_REQUEST;
    unsigned hosts = http_field_count(message->fields, BYTES("host"));

    MUST(message->minor <= 1);
    MUST(!(message->chunked && message->has_length));
    if (request) MUST(hosts <= 1 && (hosts == 1 || message->minor == 0));
    if (request) MUST(message->length <= stream_limits.body_bytes_max);
    MUST(http_field_count(message->fields, BYTES("content-length")) == message->has_length);
    MUST(http_field_count(message->fields, BYTES("transfer-encoding")) == message->chunked);
    stream->sum = crc32c(stream->sum, &message->method, sizeof message->method);
    stream->sum = crc32c(stream->sum, &message->status, sizeof message->status);
    stream->sum = crc32c(stream->sum, &message->keep_alive, sizeof message->keep_alive);
    stream_note(stream, message->target);
    stream_note(stream, message->authority);
    stream_note(stream, message->upgrade);
    stream_fields(stream, message->fields);
    stream->body_bytes = 0;
}

/* False: it is over. A body is noted byte by byte, so that its pieces do not count. */
static inline bool stream_event(struct stream *stream, enum http_event event, struct bytes body)
{
    switch (event) {
    case PARSE_FAILED:
        stream_note(stream, bytes_of(stream->parser.why));
        MUST(stream->parser.status >= 400 && stream->parser.why[0]);
        return false;
    case PARSE_MORE: return true;
    case PARSE_HEAD: stream_head(stream); return true;
    case PARSE_BODY:
        MUST(body.count > 0);
        stream->body_bytes += body.count;
        MUST(stream->body_bytes <= stream_limits.body_bytes_max);
        stream->sum = crc32c(stream->sum, body.at, body.count);
        return true;
    case PARSE_END:
        if (stream->parser.message.has_length && stream->body_bytes > 0) {
            MUST(stream->body_bytes == stream->parser.message.length);
        }
        stream_fields(stream, stream->parser.message.trailers);
        http_parser_next(&stream->parser);
        if (stream->answers_head) http_parser_answers_head(&stream->parser);
        return true;
    }
    return false;
}

static inline bool stream_piece(struct stream *stream, struct bytes piece)
{
    enum http_event event;
    struct bytes body;
    size_t used;
    bool on;

    do {
        event = http_parse(&stream->parser, piece.at, piece.count, &used, &body);
        MUST(used <= piece.count);
        MUST(event != PARSE_MORE || used == piece.count);
        MUST(event != PARSE_BODY || body.at + body.count == piece.at + used);
        piece = bytes_after(piece, used);
        on = stream_event(stream, event, body);
    } while (on && event != PARSE_MORE);
    return on;
}

/* In pieces of `step` bytes, the first of `first`. */
static inline uint32_t stream_run(enum http_kind kind, bool answers_head, struct bytes bytes,
                                  size_t first, size_t step)
{
    struct stream stream = {.answers_head = answers_head};
    char *block = malloc(http_limits_block(&stream_limits));
    struct http_field *fields = calloc(http_limits_fields(&stream_limits), sizeof *fields);
    size_t count = first;
    bool on = true;

    if (!block || !fields) abort();
    http_parser_init(&stream.parser, kind, &stream_limits, block, fields);
    if (answers_head) http_parser_answers_head(&stream.parser);
    for (; on && bytes.count > 0; count = step) {
        if (count > bytes.count) count = bytes.count;
        on = stream_piece(&stream, (struct bytes){bytes.at, count});
        bytes = bytes_after(bytes, count);
    }
    if (on) {
        enum http_event event = http_parse_close(&stream.parser);

        (void)stream_event(&stream, event, (struct bytes){NULL, 0});
        stream.sum = crc32c(stream.sum, &event, sizeof event);
    }
    free(block);
    free(fields);
    return stream.sum;
}

static inline void stream_check(enum http_kind kind, bool answers_head, struct bytes bytes)
{
    uint32_t sum = stream_run(kind, answers_head, bytes, bytes.count, bytes.count);

    MUST(stream_run(kind, answers_head, bytes, 1, 1) == sum);
    MUST(stream_run(kind, answers_head, bytes, bytes.count / 2, bytes.count) == sum);
    MUST(stream_run(kind, answers_head, bytes, bytes.count / 3, 7) == sum);
}

#endif
