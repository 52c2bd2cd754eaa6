/* transcript.h - what a parser of HTTP says of some bytes, as a text that can be compared.
 *
 *     GET /a 1.1 host=x keep | body | END | GET ...          a request and the next one
 *     200 1.1 content-length=2 keep | hi | END | CLOSED      an answer, and the connection's end
 *     ... | 400 a sentence                                   a failure, after which nothing comes
 *
 * Invariants: a body is one part of the text however it was cut.
 */
#ifndef UNIT_PROTO_TRANSCRIPT_H
#define UNIT_PROTO_TRANSCRIPT_H

#include <stdlib.h>

#include "harness/test.h"
#include "proto/buffer.h"
#include "proto/http_parse.h"

enum { TRANSCRIPT_BYTES = 16384, TRANSCRIPT_FIELDS = 8 };

/* Small ones, so that tests reach them. */
static const struct http_limits transcript_limits = {
    .line_bytes_max = 100,
    .head_bytes_max = 400,
    .field_count_max = TRANSCRIPT_FIELDS,
    .body_bytes_max = 100,
    .chunk_line_bytes_max = 40,
    .trailer_bytes_max = 120,
};

struct transcript {
    struct http_parser parser;
    struct buffer text;
    bool in_body;
    bool answers_head; /* answers are those to HEAD */
    char *block;       /* of the very size, so that a byte too far is found */
    struct http_field *fields;
    char bytes[TRANSCRIPT_BYTES];
};

static inline void transcript_fields(struct transcript *script, struct http_fields fields)
{
    for (unsigned i = 0; i < fields.count; i++) {
        buffer_put_char(&script->text, ' ');
        buffer_put_bytes(&script->text, fields.at[i].name);
        buffer_put_char(&script->text, '=');
        buffer_put_bytes(&script->text, fields.at[i].value);
    }
}

static inline void transcript_head(struct transcript *script)
{
    const struct http_message *message = &script->parser.message;
    struct buffer *text = &script->text;

    if (message->status > 0) {
        buffer_put_uint(text, message->status);
    } else {
        buffer_put_string(text, http_method_name(message->method));
        buffer_put_char(text, ' ');
        buffer_put_bytes(text, message->target);
    }
    buffer_put_string(text, " 1.");
    buffer_put_uint(text, message->minor);
    transcript_fields(script, message->fields);
    if (message->upgrade.count > 0) buffer_put_string(text, " upgrade");
    if (message->expects_continue) buffer_put_string(text, " continue");
    buffer_put_string(text, message->keep_alive ? " keep" : " close");
}

static inline void transcript_failure(struct transcript *script)
{
    if (script->in_body) buffer_put_string(&script->text, " | ");
    script->in_body = false;
    buffer_put_uint(&script->text, script->parser.status);
    buffer_put_char(&script->text, ' ');
    buffer_put_string(&script->text, script->parser.why);
}

/* False: it is over. */
static inline bool transcript_event(struct transcript *script, enum http_event event,
                                    struct bytes body)
{
    switch (event) {
    case PARSE_FAILED: transcript_failure(script); return false;
    case PARSE_MORE: return true;
    case PARSE_HEAD:
        transcript_head(script);
        buffer_put_string(&script->text, " | ");
        return true;
    case PARSE_BODY:
        CHECK(body.count > 0);
        buffer_put_bytes(&script->text, body);
        script->in_body = true;
        return true;
    case PARSE_END:
        if (script->in_body) buffer_put_string(&script->text, " | ");
        script->in_body = false;
        buffer_put_string(&script->text, "END");
        transcript_fields(script, script->parser.message.trailers);
        buffer_put_string(&script->text, " | ");
        http_parser_next(&script->parser);
        if (script->answers_head) http_parser_answers_head(&script->parser);
        return true;
    }
    return false;
}

/* Each piece is parsed from memory of its own, which is gone afterwards. */
static inline bool transcript_piece(struct transcript *script, struct bytes piece)
{
    char *copy = malloc(piece.count > 0 ? piece.count : 1);
    size_t used = 0, at = 0;
    enum http_event event;
    struct bytes body;
    bool on = true;

    CHECK(copy);
    if (piece.count > 0) memcpy(copy, piece.at, piece.count);
    do {
        event = http_parse(&script->parser, copy + at, piece.count - at, &used, &body);
        CHECK(used <= piece.count - at);
        at += used;
        if (event == PARSE_MORE) CHECK_INT(at, ==, piece.count);
        on = transcript_event(script, event, body);
    } while (on && event != PARSE_MORE);
    free(copy);
    return on;
}

static inline void transcript_open(struct transcript *script, enum http_kind kind)
{
    script->block = malloc(http_limits_block(&transcript_limits));
    script->fields = calloc(http_limits_fields(&transcript_limits), sizeof *script->fields);
    CHECK(script->block && script->fields);
    http_parser_init(&script->parser, kind, &transcript_limits, script->block, script->fields);
    if (script->answers_head) http_parser_answers_head(&script->parser);
    buffer_init_fixed(&script->text, script->bytes, sizeof script->bytes - 1);
    script->in_body = false;
}

static inline const char *transcript_close(struct transcript *script, bool on)
{
    if (on) {
        enum http_event event = http_parse_close(&script->parser);

        if (event != PARSE_MORE) (void)transcript_event(script, event, (struct bytes){NULL, 0});
        if (event != PARSE_FAILED) buffer_put_string(&script->text, "CLOSED");
    }
    CHECK_INT(buffer_error(&script->text), ==, 0);
    script->bytes[script->text.used] = '\0';
    free(script->block);
    free(script->fields);
    return script->bytes;
}

/* In pieces of `step` bytes, the first of `first`; 0: all at once. */
static inline const char *transcript_cut(struct transcript *script, enum http_kind kind,
                                         struct bytes bytes, size_t first, size_t step)
{
    bool on = true;

    transcript_open(script, kind);
    for (size_t at = 0; on && at < bytes.count;) {
        size_t count = at == 0 && first > 0 ? first : step > 0 ? step : bytes.count;

        if (count > bytes.count - at) count = bytes.count - at;
        on = transcript_piece(script, (struct bytes){bytes.at + at, count});
        at += count;
    }
    return transcript_close(script, on);
}

/* The transcript of bytes in one piece, which is the same in any pieces: that is checked here. */
static inline const char *transcript_of(struct transcript *script, enum http_kind kind,
                                        struct bytes bytes)
{
    static struct transcript other;

    other.answers_head = script->answers_head;
    (void)transcript_cut(script, kind, bytes, 0, 0);
    for (size_t first = 1; first < bytes.count; first++) {
        test_note("cut after %zu: %.*s", first, (int)bytes.count, bytes.at);
        CHECK_STR(transcript_cut(&other, kind, bytes, first, 0), script->bytes);
    }
    for (size_t step = 1; step < 4; step++) {
        test_note("in pieces of %zu: %.*s", step, (int)bytes.count, bytes.at);
        CHECK_STR(transcript_cut(&other, kind, bytes, 0, step), script->bytes);
    }
    test_note("%.*s", (int)bytes.count, bytes.at);
    return script->bytes;
}

#endif
