/* http.h - what requests and answers of HTTP/1.1 are made of: methods, header fields, statuses.
 *
 * Invariants: names of fields are in lower case, once they were read. Values have no blanks at
 * their ends.
 * Threads: any. No state.
 */
#ifndef WEIR_PROTO_HTTP_H
#define WEIR_PROTO_HTTP_H

#include "proto/bytes.h"

enum http_method {
    METHOD_NONE, /* none that is served */
    METHOD_GET,
    METHOD_HEAD,
    METHOD_POST,
    METHOD_PUT,
    METHOD_PATCH,
    METHOD_DELETE,
    METHOD_OPTIONS,
    METHOD_COUNT,
};

/* Methods are told apart by case: `get` is none. */
enum http_method http_method_of(struct bytes name);
const char *http_method_name(enum http_method method);

/* "Not Found"; "Unknown" for a status that has no name here. */
const char *http_status_name(unsigned status);

/* Answers with 1xx, 204 and 304 have no body, whatever their fields say. */
static inline bool http_status_has_body(unsigned status)
{
    return status >= 200 && status != 204 && status != 304;
}

struct http_field {
    struct bytes name, value;
};

struct http_fields {
    struct http_field *at;
    unsigned count;
};

/* The first with this name (in lower case); NULL: none. */
const struct http_field *http_field_first(struct http_fields fields, struct bytes name);
/* How many have it. */
unsigned http_field_count(struct http_fields fields, struct bytes name);
/* Whether a list with commas, in any field of this name, has a part that is like `token`. */
bool http_field_lists(struct http_fields fields, struct bytes name, struct bytes token);

bool http_name_valid(struct bytes name);
bool http_value_valid(struct bytes value);
/* A host with or without a port, as in the field Host: no user, no blank, no list. */
bool http_authority_valid(struct bytes authority);

#endif
