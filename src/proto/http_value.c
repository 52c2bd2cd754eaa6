/* http_value.c - parameters, lists with weights, and the token of a bearer. */
#include "proto/http_value.h"

#include <errno.h>
#include <weir/error.h>

enum { WEIGHT_MAX = 1000 };

/* The part up to the next `mark` that is not within quotes. */
static bool next_part(struct bytes *rest, char mark, struct bytes *ret_part)
{
    bool quoted = false;
    size_t i = 0;

    *ret_part = (struct bytes){NULL, 0};
    if (!rest->at) return false;
    for (; i < rest->count && (quoted || rest->at[i] != mark); i++) {
        if (rest->at[i] == '"') quoted = !quoted;
        if (quoted && rest->at[i] == '\\') i++;
    }
    if (i >= rest->count) {
        *ret_part = bytes_trim(*rest);
        *rest = (struct bytes){NULL, 0};
        return true;
    }
    *ret_part = bytes_trim((struct bytes){rest->at, i});
    *rest = bytes_after(*rest, i + 1);
    return true;
}

bool http_media_is(struct bytes value, struct bytes type)
{
    struct bytes part, name;

    if (bytes_are(value, type)) return true; /* nearly always */
    if (!next_part(&value, ';', &part) || !bytes_are_like(part, type)) return false;
    while (next_part(&value, ';', &part)) {
        (void)bytes_split(&part, '=', &name);
        if (!bytes_are_like(name, BYTES("charset"))) continue;
        if (!part.at) return false;
        if (!bytes_are_like(part, BYTES("utf-8")) && !bytes_are_like(part, BYTES("\"utf-8\""))) {
            return false;
        }
    }
    return true;
}

/* 0, 0.5, 1.000 in thousandths; -1: it is no weight. */
static int weight_of(struct bytes text)
{
    int weight, scale = WEIGHT_MAX / 10;

    if (text.count < 1 || text.count > 5 || (text.at[0] != '0' && text.at[0] != '1')) return -1;
    weight = (text.at[0] - '0') * WEIGHT_MAX;
    if (text.count > 1 && text.at[1] != '.') return -1;
    for (size_t i = 2; i < text.count; i++, scale /= 10) {
        if (!is_digit(text.at[i])) return -1;
        weight += (text.at[i] - '0') * scale;
    }
    return weight <= WEIGHT_MAX ? weight : -1;
}

/* The weight of what comes behind the first `;`. Other parameters are passed over. */
static int entry_weight(struct bytes parameters)
{
    struct bytes part, name;
    int weight = WEIGHT_MAX;

    while (next_part(&parameters, ';', &part)) {
        (void)bytes_split(&part, '=', &name);
        if (!bytes_are_like(name, BYTES("q"))) continue;
        weight = part.at ? weight_of(part) : -1;
    }
    return weight;
}

/* How close an entry of the list comes to what is wanted; 0: not at all. */
typedef unsigned (*close_fn)(struct bytes entry, struct bytes wanted);

static unsigned encoding_close(struct bytes entry, struct bytes wanted)
{
    if (bytes_are_like(entry, wanted)) return 2;
    return bytes_are(entry, BYTES("*")) ? 1 : 0;
}

static unsigned media_close(struct bytes entry, struct bytes wanted)
{
    struct bytes kind;

    if (bytes_are_like(entry, wanted)) return 3;
    if (bytes_are(entry, BYTES("*/*"))) return 1;
    (void)bytes_split(&wanted, '/', &kind);
    if (entry.count == kind.count + 2 && entry.at[entry.count - 1] == '*' &&
        entry.at[entry.count - 2] == '/' &&
        bytes_are_like((struct bytes){entry.at, kind.count}, kind)) {
        return 2;
    }
    return 0;
}

/* The weight of the closest entry, or `otherwise` if none comes close. */
static unsigned weigh(struct http_fields fields, struct bytes name, struct bytes wanted,
                      close_fn close, unsigned otherwise)
{
    unsigned best = 0;
    int weight = (int)otherwise;

    for (unsigned i = 0; i < fields.count; i++) {
        struct bytes rest = fields.at[i].value, part, entry;

        if (!bytes_are(fields.at[i].name, name)) continue;
        while (next_part(&rest, ',', &part)) {
            unsigned closeness;

            (void)next_part(&part, ';', &entry);
            closeness = close(entry, wanted);
            if (closeness <= best) continue;
            best = closeness;
            weight = entry_weight(part);
        }
    }
    return weight > 0 ? (unsigned)weight : 0;
}

unsigned http_accepts_media(struct http_fields fields, struct bytes wanted)
{
    if (http_field_count(fields, BYTES("accept")) == 0) return WEIGHT_MAX;
    return weigh(fields, BYTES("accept"), wanted, media_close, 0);
}

unsigned http_accepts_encoding(struct http_fields fields, struct bytes wanted)
{
    bool identity = bytes_are_like(wanted, BYTES("identity"));

    if (http_field_count(fields, BYTES("accept-encoding")) == 0) return WEIGHT_MAX;
    return weigh(fields, BYTES("accept-encoding"), wanted, encoding_close,
                 identity ? WEIGHT_MAX : 0);
}

int http_bearer(struct http_fields fields, struct bytes *ret_token)
{
    const struct http_field *field = http_field_first(fields, BYTES("authorization"));
    struct bytes token, scheme;
    size_t count = 0;

    if (!field) return -ENOENT;
    if (http_field_count(fields, BYTES("authorization")) > 1) return WEIR_EREFUSED;
    token = field->value;
    (void)bytes_split(&token, ' ', &scheme);
    if (!bytes_are_like(scheme, BYTES("bearer")) || !token.at) return WEIR_EREFUSED;
    token = bytes_trim(token);
    while (count < token.count && (is_letter(token.at[count]) || is_digit(token.at[count]) ||
                                   strchr("-._~+/", token.at[count]))) {
        if (token.at[count] == '\0') return WEIR_EREFUSED;
        count++;
    }
    if (count == 0) return WEIR_EREFUSED;
    for (size_t i = count; i < token.count; i++) {
        if (token.at[i] != '=') return WEIR_EREFUSED;
    }
    *ret_token = token;
    return 0;
}
