/* http_guard.c - what lines of HTTP/1.1 may look like (RFC 9112), and what their fields may say
 * together. */
#include "proto/http_guard.h"

enum { CHUNK_DIGITS_MAX = 16, STATUS_DIGITS = 3 };

static const struct refusal well = {0, NULL};

static struct refusal refuse(unsigned status, const char *why)
{
    return (struct refusal){status, why};
}

bool guard_line_end(struct bytes line)
{
    return line.count >= 2 && memchr(line.at, '\r', line.count) == line.at + line.count - 2;
}

static struct refusal check_version(struct bytes version)
{
    if (version.count != 8 || !bytes_begin(version, BYTES("HTTP/")) || !is_digit(version.at[5]) ||
        version.at[6] != '.' || !is_digit(version.at[7])) {
        return refuse(400, "the first line does not name a version of HTTP");
    }
    if (version.at[5] != '1' || version.at[7] > '1') {
        return refuse(505, "the version is neither HTTP/1.0 nor HTTP/1.1");
    }
    return well;
}

struct bytes guard_target_authority(struct bytes target)
{
    struct bytes rest;
    size_t count = 0;

    if (bytes_begin(target, BYTES("http://"))) {
        rest = bytes_after(target, 7);
    } else if (bytes_begin(target, BYTES("https://"))) {
        rest = bytes_after(target, 8);
    } else {
        return (struct bytes){NULL, 0};
    }
    while (count < rest.count && rest.at[count] != '/' && rest.at[count] != '?') count++;
    return (struct bytes){rest.at, count};
}

static struct refusal check_target(struct bytes target, enum http_method method)
{
    struct bytes authority = guard_target_authority(target);

    for (size_t i = 0; i < target.count; i++) {
        if (!is_visible(target.at[i]) || target.at[i] == '#') {
            return refuse(400, "the target has a character that is not allowed there");
        }
    }
    if (target.count == 0) return refuse(400, "the request has no target");
    if (target.at[0] == '/') return well;
    if (authority.at) {
        if (http_authority_valid(authority)) return well;
        return refuse(400, "the target names no valid host");
    }
    if (bytes_are(target, BYTES("*")) && method == METHOD_OPTIONS) return well;
    return refuse(400, "the target is neither a path nor an http address");
}

struct refusal guard_request_line(struct bytes line, enum http_method *ret_method)
{
    struct bytes rest = line, method, target;
    struct refusal refusal;

    if (!bytes_split(&rest, ' ', &method) || !http_name_valid(method) || !rest.at) {
        return refuse(400, "the first line is not 'method target version'");
    }
    (void)bytes_split(&rest, ' ', &target);
    if (!rest.at) return refuse(400, "the first line is not 'method target version'");
    refusal = check_version(rest);
    if (refusal.status) return refusal;
    *ret_method = http_method_of(method);
    if (*ret_method == METHOD_NONE) return refuse(501, "the method is not known");
    return check_target(target, *ret_method);
}

struct refusal guard_status_line(struct bytes line)
{
    struct bytes rest = line, version, status;
    struct refusal refusal;

    (void)bytes_split(&rest, ' ', &version);
    refusal = check_version(version);
    if (refusal.status) return refusal;
    if (!bytes_split(&rest, ' ', &status) || status.count != STATUS_DIGITS || status.at[0] < '1' ||
        status.at[0] > '5' || !is_digit(status.at[1]) || !is_digit(status.at[2])) {
        return refuse(400, "the status is not one of 100 to 599");
    }
    if (!http_value_valid(rest)) return refuse(400, "the first line has a control character");
    return well;
}

/* What decides over a message before its body cannot come after it. */
static const char *const never_trailers[] = {
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "cookie",
    "expect",
    "host",
    "idempotency-key",
    "keep-alive",
    "set-cookie",
    "te",
    "transfer-encoding",
    "trailer",
    "upgrade",
};

struct refusal guard_field_line(struct bytes line, bool trailer)
{
    struct bytes rest = line, name;

    if (line.at[0] == ' ' || line.at[0] == '\t') {
        return refuse(400, "a header field goes on in the next line");
    }
    (void)bytes_split(&rest, ':', &name);
    if (!rest.at) return refuse(400, "a header field has no ':'");
    if (!http_name_valid(name)) return refuse(400, "the name of a header field is not valid");
    if (!http_value_valid(rest)) return refuse(400, "a header field has a control character");
    if (!trailer) return well;
    for (size_t i = 0; i < sizeof never_trailers / sizeof never_trailers[0]; i++) {
        if (bytes_are_like(name, bytes_of(never_trailers[i]))) {
            return refuse(400, "a trailer field is of those that belong before the body");
        }
    }
    return well;
}

struct refusal guard_chunk_line(struct bytes line)
{
    size_t digits = 0;

    while (digits < line.count && hex_value(line.at[digits]) >= 0) digits++;
    if (digits == 0 || digits > CHUNK_DIGITS_MAX) {
        return refuse(400, "the size of a chunk is not valid");
    }
    if (digits < line.count && line.at[digits] != ';') {
        return refuse(400, "the size of a chunk is not valid");
    }
    for (size_t i = digits; i < line.count; i++) {
        if (!is_visible(line.at[i]) && line.at[i] != ' ' && line.at[i] != '\t') {
            return refuse(400, "the extension of a chunk is not valid");
        }
    }
    return well;
}

struct refusal guard_request(const struct http_message *message)
{
    unsigned hosts = http_field_count(message->fields, BYTES("host"));
    const struct http_field *host = http_field_first(message->fields, BYTES("host"));
    const struct http_field *expect = http_field_first(message->fields, BYTES("expect"));

    if (hosts > 1) return refuse(400, "there is more than one Host");
    if (hosts == 0 && message->minor > 0) return refuse(400, "there is no Host");
    if (host && !http_authority_valid(host->value)) return refuse(400, "Host is not valid");
    if (expect && message->minor > 0 &&
        (http_field_count(message->fields, BYTES("expect")) > 1 ||
         !bytes_are_like(expect->value, BYTES("100-continue")))) {
        return refuse(417, "something else is expected than 100-continue");
    }
    return well;
}

static bool digits_only(struct bytes text)
{
    for (size_t i = 0; i < text.count; i++) {
        if (!is_digit(text.at[i])) return false;
    }
    return text.count > 0;
}

struct refusal guard_framing(const struct http_message *message)
{
    const struct bytes length_name = BYTES("content-length");
    const struct bytes encoding_name = BYTES("transfer-encoding");
    const struct http_field *length = http_field_first(message->fields, length_name);
    const struct http_field *encoding = http_field_first(message->fields, encoding_name);

    if (http_field_count(message->fields, length_name) > 1) {
        return refuse(400, "there is more than one Content-Length");
    }
    if (length && !digits_only(length->value)) {
        return refuse(400, "Content-Length is not a number");
    }
    if (!encoding) return well;
    if (length) return refuse(400, "there are both Content-Length and Transfer-Encoding");
    if (message->minor == 0) return refuse(400, "HTTP/1.0 has no Transfer-Encoding");
    if (http_field_count(message->fields, encoding_name) > 1 ||
        !bytes_are_like(encoding->value, BYTES("chunked"))) {
        return refuse(400, "Transfer-Encoding is something else than 'chunked'");
    }
    return well;
}
