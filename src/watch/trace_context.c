/* trace_context.c - the headers traceparent and tracestate (W3C Trace Context, level 1). */
#include <stdbool.h>
#include <string.h>
#include <weir/trace.h>

#include "rt/runtime.h"

/* ---- traceparent = version "-" trace-id "-" parent-id "-" trace-flags ---- */

enum {
    VERSION_AT = 0,
    TRACE_AT = 3,
    SPAN_AT = 36,
    FLAGS_AT = 53,
    PARENT_LENGTH = 55, /* of version 00; a later one may go on behind a '-' */
    VERSION_REFUSED = 0xff,
};
_Static_assert(WEIR_TRACEPARENT_BYTES == PARENT_LENGTH + 1, "and a terminator");

/* Lower case only. */
static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_hex(const char *text, uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        data[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static void write_hex(char *text, const uint8_t *data, size_t bytes)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < bytes; i++) {
        text[2 * i] = digits[data[i] >> 4];
        text[2 * i + 1] = digits[data[i] & 15];
    }
}

static bool is_zero(const uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] != 0) return false;
    }
    return true;
}

static int parse_parent(const char *text, weir_trace_context *context)
{
    size_t length = strnlen(text, PARENT_LENGTH + 1);
    uint8_t version, flags;

    if (length < PARENT_LENGTH) return refuse("traceparent: is shorter than %d", PARENT_LENGTH);
    if (!read_hex(text + VERSION_AT, &version, 1) || version == VERSION_REFUSED) {
        return refuse("traceparent: the version is not one of 00 to fe");
    }
    if (length > PARENT_LENGTH && (version == 0 || text[PARENT_LENGTH] != '-')) {
        return refuse("traceparent: something follows the flags");
    }
    if (text[TRACE_AT - 1] != '-' || text[SPAN_AT - 1] != '-' || text[FLAGS_AT - 1] != '-') {
        return refuse("traceparent: its parts are not joined by '-'");
    }
    if (!read_hex(text + TRACE_AT, context->trace_id, WEIR_TRACE_ID_BYTES) ||
        is_zero(context->trace_id, WEIR_TRACE_ID_BYTES)) {
        return refuse("traceparent: the trace id is not 32 digits of lower-case hex, not all 0");
    }
    if (!read_hex(text + SPAN_AT, context->span_id, WEIR_SPAN_ID_BYTES) ||
        is_zero(context->span_id, WEIR_SPAN_ID_BYTES)) {
        return refuse("traceparent: the parent id is not 16 digits of lower-case hex, not all 0");
    }
    if (!read_hex(text + FLAGS_AT, &flags, 1)) {
        return refuse("traceparent: the flags are not 2 digits of lower-case hex");
    }
    context->flags = flags & WEIR_TRACE_SAMPLED; /* others have no meaning that we know */
    return 0;
}

void weir_trace_format(const weir_trace_context *context, char ret_text[WEIR_TRACEPARENT_BYTES])
{
    uint8_t version = 0, flags = context->flags & WEIR_TRACE_SAMPLED;

    memset(ret_text, '-', PARENT_LENGTH);
    write_hex(ret_text + VERSION_AT, &version, 1);
    write_hex(ret_text + TRACE_AT, context->trace_id, WEIR_TRACE_ID_BYTES);
    write_hex(ret_text + SPAN_AT, context->span_id, WEIR_SPAN_ID_BYTES);
    write_hex(ret_text + FLAGS_AT, &flags, 1);
    ret_text[PARENT_LENGTH] = '\0';
}

/* ---- tracestate = list-member *31( OWS "," OWS list-member ), members may be empty ---- */

enum {
    KEY_MAX = 256,
    TENANT_MAX = 241,
    SYSTEM_MAX = 14,
    VALUE_MAX = 256,
    MEMBER_LARGE = 128, /* those that are larger go first */
    STATE_READ_MAX = 32 * (KEY_MAX + 1 + VALUE_MAX + 16),
};

struct member {
    const char *text;
    size_t length, key_length;
};

static bool is_lower(char c)
{
    return c >= 'a' && c <= 'z';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_key_rest(char c)
{
    return is_lower(c) || is_digit(c) || c == '_' || c == '-' || c == '*' || c == '/';
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* lcalpha *255( lcalpha / DIGIT / "_" / "-" / "*" / "/" ), or the same with other lengths as
 * tenant "@" system, of which the tenant may begin with a digit. */
static bool is_key(const char *key, size_t length)
{
    const char *at = memchr(key, '@', length);
    size_t tenant = at ? (size_t)(at - key) : 0;
    size_t from = at ? tenant + 1 : 0;

    if (length == 0 || length > KEY_MAX) return false;
    if (at && (tenant == 0 || tenant > TENANT_MAX || length - from > SYSTEM_MAX)) return false;
    if (from == length || !is_lower(key[from])) return false;
    if (at && !is_lower(key[0]) && !is_digit(key[0])) return false;
    for (size_t i = 0; i < length; i++) {
        if (!(at && i == tenant) && !is_key_rest(key[i])) return false;
    }
    return true;
}

/* *255( chr ) nblk-chr, of which `length` has no blanks at its end any more. */
static bool is_value(const char *value, size_t length)
{
    if (length == 0 || length > VALUE_MAX) return false;
    for (size_t i = 0; i < length; i++) {
        if (value[i] < 0x20 || value[i] > 0x7e || value[i] == ',' || value[i] == '=') return false;
    }
    return true;
}

/* 0: it is empty; 1: it is one; -1: it is neither. */
static int read_member(const char *text, size_t length, struct member *ret_member)
{
    const char *equals;
    size_t key_length;

    while (length > 0 && is_blank(text[0])) text++, length--;
    while (length > 0 && is_blank(text[length - 1])) length--;
    if (length == 0) return 0;
    equals = memchr(text, '=', length);
    if (!equals) return -1;
    key_length = (size_t)(equals - text);
    if (!is_key(text, key_length) || !is_value(equals + 1, length - key_length - 1)) return -1;
    *ret_member = (struct member){text, length, key_length};
    return 1;
}

static bool has_key(const struct member *members, size_t count, const struct member *member)
{
    for (size_t i = 0; i < count; i++) {
        if (members[i].key_length == member->key_length &&
            memcmp(members[i].text, member->text, member->key_length) == 0) {
            return true;
        }
    }
    return false;
}

/* How many, or -1: it is not well formed. */
static int read_members(const char *text, struct member *members)
{
    size_t count = 0;

    for (;;) {
        const char *comma = strchr(text, ',');
        size_t length = comma ? (size_t)(comma - text) : strlen(text);
        struct member member;
        int r = read_member(text, length, &member);

        if (r < 0) return -1;
        if (r > 0) {
            if (count == WEIR_TRACE_STATE_MEMBERS || has_key(members, count, &member)) return -1;
            members[count++] = member;
        }
        if (!comma) return (int)count;
        text = comma + 1;
    }
}

static size_t joined_length(const struct member *members, size_t count)
{
    size_t length = 0;
    for (size_t i = 0; i < count; i++) length += members[i].length + (i > 0);
    return length;
}

/* Of more than fits, large ones go first, then those that are oldest, at the end. */
static size_t cut_members(struct member *members, size_t count)
{
    for (size_t i = count; i-- > 0 && joined_length(members, count) > WEIR_TRACE_STATE_MAX;) {
        if (members[i].length <= MEMBER_LARGE) continue;
        memmove(&members[i], &members[i + 1], (count - i - 1) * sizeof members[0]);
        count--;
    }
    while (joined_length(members, count) > WEIR_TRACE_STATE_MAX) count--;
    return count;
}

static bool parse_state(const char *text, char *state)
{
    struct member members[WEIR_TRACE_STATE_MEMBERS];
    size_t count, used = 0;
    int r;

    if (strnlen(text, STATE_READ_MAX + 1) > STATE_READ_MAX) return false;
    r = read_members(text, members);
    if (r < 0) return false;
    count = cut_members(members, (size_t)r);
    for (size_t i = 0; i < count; i++) {
        if (i > 0) state[used++] = ',';
        memcpy(state + used, members[i].text, members[i].length);
        used += members[i].length;
    }
    state[used] = '\0';
    return true;
}

int weir_trace_parse(const char *traceparent, const char *tracestate,
                     weir_trace_context *ret_context)
{
    weir_trace_context context = {0};
    bool kept = true;
    int r;

    if (!traceparent) return refuse("traceparent: there is none");
    r = parse_parent(traceparent, &context);
    if (r < 0) return r;
    if (tracestate) kept = parse_state(tracestate, context.state);
    *ret_context = context;
    return kept ? 0 : 1;
}
