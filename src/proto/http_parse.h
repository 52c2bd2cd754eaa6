/* http_parse.h - requests and answers from the bytes of a connection, in whatever pieces they come.
 *
 *     LINE ──► FIELDS ──► HEAD ──► LENGTH ─────────────────────────► END
 *                          │  ├──► UNTIL_CLOSE (answers) ────────────► │
 *                          │  └──► CHUNK_LINE ──► TRAILER ───────────► │
 *                          │          ▲   └► CHUNK ► CHUNK_END         │
 *                          │          └─────────────────┘              │
 *                          └───────────── no body ───────────────────► ┘      any ──► FAILED
 *
 * Two parsers look at each message, and it is refused if either refuses it: llhttp, in strict
 * mode, says what the bytes mean; before it a guard of our own (http_guard.h) cuts them into lines
 * and checks what llhttp lets pass. llhttp gets a head only when it is whole, from one block, so
 * that a name is never in two pieces. docs/decisions/0029 says why.
 *
 * The caller pulls:
 *
 *     event = http_parse(&parser, bytes, count, &used, &body);
 *     PARSE_MORE    all of them are used: read more
 *     PARSE_HEAD    parser.message is there; answer "100 Continue" now if it expects that
 *     PARSE_BODY    `body` is the next piece of it, inside `bytes`
 *     PARSE_END     trailers are there; what follows `used` belongs to the next message, for which
 *                   http_parser_next() is called
 *     PARSE_FAILED  parser.status and parser.why: answer that, and close
 *
 * Except after PARSE_MORE it is called again with what is left, which may be nothing.
 *
 * Invariants: bytes in other pieces give the same events, but for where a body is cut. The message
 * is valid until http_parser_next(), and so is what it points to: the block that the parser was
 * given. No memory is asked for.
 * Threads: one at a time.
 */
#ifndef WEIR_PROTO_HTTP_PARSE_H
#define WEIR_PROTO_HTTP_PARSE_H

#include "proto/http.h"

enum http_event { PARSE_FAILED, PARSE_MORE, PARSE_HEAD, PARSE_BODY, PARSE_END };

enum http_kind { HTTP_KIND_NONE, HTTP_KIND_REQUEST, HTTP_KIND_ANSWER };

/* All have to be said. */
struct http_limits {
    size_t line_bytes_max;    /* the first line; else 414 */
    size_t head_bytes_max;    /* the first line and the fields, with the ends of lines; else 431 */
    unsigned field_count_max; /* of the head, and once more of the trailers; else 431 */
    uint64_t body_bytes_max;  /* else 413, before any of what is too much is read */
    size_t chunk_line_bytes_max;
    size_t trailer_bytes_max; /* all of them; else 431 */
};

/* The bytes a parser needs for its texts. */
static inline size_t http_limits_block(const struct http_limits *limits)
{
    size_t behind = limits->trailer_bytes_max > limits->chunk_line_bytes_max
                        ? limits->trailer_bytes_max
                        : limits->chunk_line_bytes_max;

    return limits->head_bytes_max + behind;
}

/* The fields a parser needs: those of a head, and of its trailers. */
static inline unsigned http_limits_fields(const struct http_limits *limits)
{
    return limits->field_count_max * 2;
}

struct http_message {
    enum http_method method;   /* of a request */
    struct bytes target;       /* of a request, as it came: http_target.h takes it apart */
    struct bytes authority;    /* of a request: who is asked, by its target or by Host; or empty */
    unsigned status;           /* of an answer */
    unsigned minor;            /* HTTP/1.`minor`: 0 or 1 */
    struct http_fields fields; /* in the order in which they came */
    struct http_fields trailers;
    struct bytes upgrade;     /* the field Upgrade, if the connection is to be upgraded; or empty */
    bool keep_alive;          /* another message may follow */
    bool expects_continue;    /* it waits for "100 Continue" before it sends its body */
    bool has_length, chunked; /* how its body is framed; neither: none, or until the close */
    uint64_t length;          /* of its body, if has_length */
};

enum http_state {
    HTTP_STATE_LINE,
    HTTP_STATE_FIELDS,
    HTTP_STATE_HEAD, /* told, and the caller has not come back yet */
    HTTP_STATE_LENGTH,
    HTTP_STATE_UNTIL_CLOSE,
    HTTP_STATE_CHUNK_LINE,
    HTTP_STATE_CHUNK,
    HTTP_STATE_CHUNK_END,
    HTTP_STATE_TRAILER,
    HTTP_STATE_END,
    HTTP_STATE_FAILED,
    HTTP_STATES,
};

struct http_parser {
    /* What the caller reads. */
    struct http_message message;
    unsigned status; /* after PARSE_FAILED: how a server answers */
    const char *why; /* and a sentence for people */

    /* The parser's own. */
    struct http_limits limits;
    enum http_kind kind;
    enum http_state state;
    char *block;         /* the head, and behind it the trailers or the line of a chunk */
    size_t used;         /* of the block */
    size_t line_at;      /* where the line begins that is being read */
    size_t head_bytes;   /* of the block, once the head is whole */
    bool blank_skipped;  /* one empty line before a request is overlooked */
    bool without_body;   /* the answer to a HEAD */
    bool told_complete;  /* llhttp has seen the end of the message */
    uint64_t left;       /* of the body, or of the chunk */
    uint64_t body_bytes; /* so far */
    struct http_field *room;
    unsigned room_count, field_count;
    struct bytes body;                      /* what llhttp has shown of it in this step */
    _Alignas(8) unsigned char machine[128]; /* llhttp's, which this header does not show */
};

/* `keep_block` has http_limits_block() bytes and `keep_fields` http_limits_fields() rows. */
void http_parser_init(struct http_parser *parser, enum http_kind kind,
                      const struct http_limits *limits, char *keep_block,
                      struct http_field *keep_fields);

/* The next message of the same connection. Not after a failure. */
void http_parser_next(struct http_parser *parser);

/* Before an answer is read: it is that to a HEAD, and has no body whatever it says. */
void http_parser_answers_head(struct http_parser *parser);

enum http_event http_parse(struct http_parser *parser, const char *bytes, size_t count,
                           size_t *ret_used, struct bytes *ret_body);

/* No bytes will follow. PARSE_MORE: none of another message had come, all is well; PARSE_END: a
 * body that lasts until the close is whole; PARSE_FAILED: cut off. */
enum http_event http_parse_close(struct http_parser *parser);

#endif
