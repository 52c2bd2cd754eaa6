/* http.c - names of methods and statuses, and looking at header fields. */
#include "proto/http.h"

static const char *const methods[METHOD_COUNT] = {
    [METHOD_NONE] = "",         [METHOD_GET] = "GET",         [METHOD_HEAD] = "HEAD",
    [METHOD_POST] = "POST",     [METHOD_PUT] = "PUT",         [METHOD_PATCH] = "PATCH",
    [METHOD_DELETE] = "DELETE", [METHOD_OPTIONS] = "OPTIONS",
};

enum http_method http_method_of(struct bytes name)
{
    for (enum http_method method = METHOD_GET; method < METHOD_COUNT; method++) {
        if (bytes_are(name, bytes_of(methods[method]))) return method;
    }
    return METHOD_NONE;
}

const char *http_method_name(enum http_method method)
{
    return methods[method];
}

static const struct {
    unsigned status;
    const char *name;
} statuses[] = {
    {100, "Continue"},
    {101, "Switching Protocols"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {206, "Partial Content"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {303, "See Other"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {410, "Gone"},
    {411, "Length Required"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {416, "Range Not Satisfiable"},
    {417, "Expectation Failed"},
    {421, "Misdirected Request"},
    {422, "Unprocessable Content"},
    {426, "Upgrade Required"},
    {428, "Precondition Required"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
    {507, "Insufficient Storage"},
};

const char *http_status_name(unsigned status)
{
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        if (statuses[i].status == status) return statuses[i].name;
    }
    return "Unknown";
}

const struct http_field *http_field_first(struct http_fields fields, struct bytes name)
{
    const struct http_field *at = fields.at;

    for (unsigned i = 0; i < fields.count; i++) {
        if (bytes_are(at[i].name, name)) return at + i;
    }
    return NULL;
}

unsigned http_field_count(struct http_fields fields, struct bytes name)
{
    unsigned count = 0;

    for (unsigned i = 0; i < fields.count; i++) count += bytes_are(fields.at[i].name, name);
    return count;
}

bool http_field_lists(struct http_fields fields, struct bytes name, struct bytes token)
{
    for (unsigned i = 0; i < fields.count; i++) {
        struct bytes rest = fields.at[i].value, part;

        if (!bytes_are(fields.at[i].name, name)) continue;
        while (bytes_split(&rest, ',', &part)) {
            if (bytes_are_like(bytes_trim(part), token)) return true;
        }
    }
    return false;
}

/* is_token() and is_field_value() of each character: every byte of every head is looked at. */
enum { CLASS_TOKEN = 1, CLASS_VALUE = 2, CLASS_BOTH = 3 };
static const unsigned char classes[256] = {
    ['\t'] = CLASS_VALUE,        [' '] = CLASS_VALUE,
    ['!'] = CLASS_BOTH,          ['"'] = CLASS_VALUE,
    ['#' ... '\''] = CLASS_BOTH, ['(' ... ')'] = CLASS_VALUE,
    ['*' ... '+'] = CLASS_BOTH,  [','] = CLASS_VALUE,
    ['-' ... '.'] = CLASS_BOTH,  ['/'] = CLASS_VALUE,
    ['0' ... '9'] = CLASS_BOTH,  [':' ... '@'] = CLASS_VALUE,
    ['A' ... 'Z'] = CLASS_BOTH,  ['[' ... ']'] = CLASS_VALUE,
    ['^' ... 'z'] = CLASS_BOTH,  ['{'] = CLASS_VALUE,
    ['|'] = CLASS_BOTH,          ['}'] = CLASS_VALUE,
    ['~'] = CLASS_BOTH,          [0x80 ... 0xff] = CLASS_VALUE,
};

static bool all_are(struct bytes bytes, unsigned char class)
{
    for (size_t i = 0; i < bytes.count; i++) {
        if (!(classes[(unsigned char)bytes.at[i]] & class)) return false;
    }
    return true;
}

bool http_name_valid(struct bytes name)
{
    return name.count > 0 && all_are(name, CLASS_TOKEN);
}

/* Of eight bytes: true if each is a visible character, a blank or beyond ASCII. A tab is left to
 * the table. */
static bool eight_are_values(const char at[8])
{
    const uint64_t ones = UINT64_C(0x0101010101010101), highs = ones * 0x80;
    uint64_t word, deletes;

    memcpy(&word, at, sizeof word);
    deletes = word ^ ones * 0x7f;
    return ((((word - ones * ' ') & ~word) | ((deletes - ones) & ~deletes)) & highs) == 0;
}

bool http_value_valid(struct bytes value)
{
    while (value.count >= 8 && eight_are_values(value.at)) value = bytes_after(value, 8);
    return all_are(value, CLASS_VALUE);
}

/* What stands between the brackets of an IPv6 address; whether it is one is not asked here. */
static bool literal_valid(struct bytes literal)
{
    for (size_t i = 0; i < literal.count; i++) {
        if (hex_value(literal.at[i]) < 0 && literal.at[i] != ':' && literal.at[i] != '.') {
            return false;
        }
    }
    return literal.count > 0;
}

static bool host_valid(struct bytes host)
{
    for (size_t i = 0; i < host.count; i++) {
        char c = host.at[i];

        if (!is_digit(c) && !is_letter(c) && c != '-' && c != '.' && c != '_' && c != '~') {
            return false;
        }
    }
    return host.count > 0;
}

static bool port_valid(struct bytes port)
{
    unsigned number = 0;

    for (size_t i = 0; i < port.count; i++) {
        if (!is_digit(port.at[i]) || number > 65535) return false;
        number = number * 10 + (unsigned)(port.at[i] - '0');
    }
    return port.count > 0 && number <= 65535;
}

bool http_authority_valid(struct bytes authority)
{
    struct bytes rest = authority, host;
    bool bracketed = authority.count > 0 && authority.at[0] == '[';

    if (bracketed) {
        rest = bytes_after(rest, 1);
        if (!memchr(rest.at, ']', rest.count)) return false;
        (void)bytes_split(&rest, ']', &host);
        if (!literal_valid(host)) return false;
        if (rest.count == 0) return true;
        return rest.at[0] == ':' && port_valid(bytes_after(rest, 1));
    }
    if (!bytes_split(&rest, ':', &host) || !host_valid(host)) return false;
    return !rest.at || port_valid(rest);
}
