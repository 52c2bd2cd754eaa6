/* json_read.h - JSON (RFC 8259), strictly, from a whole buffer: token by token, or an object with
 * known members into a struct.
 *
 *     token = json_next(&reader)       JSON_OBJECT, JSON_KEY, a value, ..., JSON_OBJECT_END, ...,
 *                                      JSON_END or JSON_FAILED
 *
 * Refused beside what is no JSON: bytes that are no UTF-8, surrogates that are no pair, a name
 * twice in one object, what is nested too deep, and anything behind the value. Numbers are kept as
 * text; what a caller asks them to be has to hold them exactly.
 *
 * Invariants: no memory is asked for. Names of objects that are open are noted in `keys`, the
 * caller's, and are compared when their object ends: in n log n, so that who sends many gains
 * nothing. A failure stays, with its sentence and the offset of the byte that it is about.
 * Threads: one at a time.
 */
#ifndef WEIR_PROTO_JSON_READ_H
#define WEIR_PROTO_JSON_READ_H

#include "proto/bytes.h"

enum json_kind {
    JSON_FAILED,
    JSON_END, /* the value is whole, and nothing follows it */
    JSON_NULL,
    JSON_BOOL,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_ARRAY_END,
    JSON_OBJECT,
    JSON_OBJECT_END,
    JSON_KEY,
};

enum { JSON_DEPTH_MAX = 64, JSON_WHY_BYTES = 128 };

/* The text of a token as it stands: of strings and keys what is between the quotes. */
struct json_token {
    enum json_kind kind;
    bool escaped; /* a string or key with a backslash: json_text() undoes them */
    bool truth;   /* of JSON_BOOL */
    struct bytes text;
};

/* A name of an object that is open. */
struct json_key {
    uint32_t at, count; /* of the buffer */
    bool escaped;
};

struct json_limits {
    unsigned depth_max;    /* up to JSON_DEPTH_MAX; 1 is an array or object without others in it */
    struct json_key *keys; /* the caller's, which has to outlive the reader */
    unsigned key_room;     /* how many names objects may have that are open at the same time */
};

struct json_reader {
    struct bytes all;
    size_t at;
    unsigned depth;
    uint64_t objects;      /* by depth, a bit: it is an object */
    unsigned char awaited; /* json_read.c */
    struct json_limits limits;
    unsigned key_count;
    unsigned keys_below[JSON_DEPTH_MAX]; /* by depth: how many keys there were before */

    size_t failed_at; /* the offset, after a failure */
    char why[JSON_WHY_BYTES];
};

/* `all` has to outlive it, and is at most 4 GB. */
void json_reader_init(struct json_reader *reader, struct bytes all,
                      const struct json_limits *limits);
struct json_token json_next(struct json_reader *reader);

/* Goes behind the value that begins with `first`, which may be an array or object: all of it is
 * checked. Its text, as it stands, or one with `at` NULL after a failure. */
struct bytes json_skip(struct json_reader *reader, struct json_token first);

/* 0, or WEIR_EREFUSED: it is no JSON in the sense of this file. Names of more than `key_room` at a
 * time are refused as well. */
int json_check(struct bytes all, const struct json_limits *limits, size_t *ret_failed_at,
               char ret_why[JSON_WHY_BYTES]);

/* Says that what the token holds is not what was wanted; WEIR_EREFUSED. */
__attribute__((format(printf, 3, 4))) int json_refuse(struct json_reader *reader,
                                                      const struct json_token *token,
                                                      const char *format, ...);

/* ---- What tokens hold ---- */

/* The text of a string or key without escapes, into `out`, which has room for token->text.count
 * bytes: it never gets longer. How many bytes it has. */
size_t json_text(const struct json_token *token, char *out);
/* The same as `text`, which has no escapes. */
bool json_text_is(const struct json_token *token, struct bytes text);

/* 0, or -ERANGE: it is not a whole number within these bounds. 1.0 and 1e3 are none here. */
int json_int(const struct json_token *token, int64_t min, int64_t max, int64_t *ret_value);
int json_uint(const struct json_token *token, uint64_t max, uint64_t *ret_value);
/* 0, or -ERANGE: beyond what a double can hold. The nearest double; of a text of 1 KiB and more,
 * that of its first 19 digits. */
int json_double(const struct json_token *token, double *ret_value);

/* ---- An object into a struct ---- */

enum json_type {
    JSON_TYPE_NONE,
    JSON_TYPE_TEXT,     /* struct bytes: in the texts, without escapes, ended by a NUL; has none */
    JSON_TYPE_INT,      /* int64_t, within min and max */
    JSON_TYPE_BOOL,     /* bool */
    JSON_TYPE_DOUBLE,   /* double */
    JSON_TYPE_DURATION, /* int64_t in ms, within min and max: a text as in duration.h */
    JSON_TYPE_RAW,      /* struct bytes: any value, checked, as it stands */
    JSON_TYPE_OBJECT,   /* a struct with `members` of its own */
    JSON_TYPE_BY,       /* whatever `read` makes of it */
};

struct json_texts {
    char *at;
    size_t used, room; /* the size of the JSON is enough */
};

struct json_member {
    const char *name;
    enum json_type type;
    size_t offset; /* of what it goes into */
    bool required;
    int64_t min, max;      /* JSON_TYPE_INT, JSON_TYPE_DURATION; TEXT: max bytes (0: no bound) */
    size_t present_offset; /* a bool that is set if it is there; 0: none, so it is not the first */
    const struct json_member *members; /* JSON_TYPE_OBJECT; ended by one without a name */
    /* JSON_TYPE_BY: `first` begins the value, and all of it is to be read. 0 or json_refuse(). */
    int (*read)(struct json_reader *reader, struct json_texts *texts, struct json_token first,
                void *into);
};

/* Reads an object whose `{` was read; `members` end with one that has no name, and are 64 at most.
 * 0, or WEIR_EREFUSED with reader->why and failed_at: a member that is not known, comes twice, is
 * missing, or is not what it has to be. What was read until then is in `into` already. */
int json_object(struct json_reader *reader, struct json_texts *texts,
                const struct json_member *members, void *into);
/* The same for a whole buffer, behind which nothing follows. */
int json_document(struct json_reader *reader, struct json_texts *texts,
                  const struct json_member *members, void *into);
/* Makes a C string of a token in the texts. 0 or json_refuse(). */
int json_take_text(struct json_reader *reader, struct json_texts *texts,
                   const struct json_token *token, struct bytes *ret_text);

#endif
