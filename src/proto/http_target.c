/* http_target.c - cut, then decode. */
#include "proto/http_target.h"

#include <errno.h>
#include <weir/error.h>

#include "proto/http_guard.h"
#include "proto/utf8.h"

struct decoder {
    char *block;
    size_t used;
    const char *why;
};

static bool refuse(struct decoder *decoder, const char *why)
{
    decoder->why = why;
    return false;
}

static bool decode(struct decoder *decoder, struct bytes text, bool query, struct bytes *ret_text)
{
    char *out = decoder->block + decoder->used;
    size_t count = 0;

    for (size_t i = 0; i < text.count; i++) {
        char c = text.at[i];

        if (c == '%') {
            int high = i + 2 < text.count ? hex_value(text.at[i + 1]) : -1;
            int low = i + 2 < text.count ? hex_value(text.at[i + 2]) : -1;

            if (high < 0 || low < 0)
                return refuse(decoder, "the target has an escape that is none");
            c = (char)(high << 4 | low);
            i += 2;
        } else if (c == '+' && query) {
            c = ' ';
        }
        if (c == '\0') return refuse(decoder, "the target has a NUL");
        if (!query && (c == 0x7f || (unsigned char)c < ' ')) {
            return refuse(decoder, "the path has a control character");
        }
        out[count++] = c;
    }
    *ret_text = (struct bytes){out, count};
    if (!utf8_valid(*ret_text)) return refuse(decoder, "the target is not UTF-8");
    decoder->used += count;
    return true;
}

static bool parse_path(struct decoder *decoder, struct bytes path, struct http_target *target)
{
    struct bytes rest = bytes_after(path, 1), part, segment;

    while (bytes_split(&rest, '/', &part)) {
        if (part.count == 0 && !rest.at) {
            target->ends_in_slash = target->segment_count > 0;
            return true;
        }
        if (part.count == 0) return refuse(decoder, "the path has an empty segment");
        if (target->segment_count == HTTP_SEGMENTS_MAX) {
            return refuse(decoder, "the path has too many segments");
        }
        if (!decode(decoder, part, false, &segment)) return false;
        if (bytes_are(segment, BYTES(".")) || bytes_are(segment, BYTES(".."))) {
            return refuse(decoder, "the path has the segment '.' or '..'");
        }
        target->segments[target->segment_count++] = segment;
    }
    return true;
}

static bool parse_query(struct decoder *decoder, struct bytes query, struct http_target *target)
{
    struct bytes part, name;

    while (bytes_split(&query, '&', &part)) {
        struct http_pair *pair = &target->pairs[target->pair_count];

        if (part.count == 0) continue;
        if (target->pair_count == HTTP_PAIRS_MAX) {
            return refuse(decoder, "the query has too many pairs");
        }
        (void)bytes_split(&part, '=', &name);
        if (!part.at) part = (struct bytes){"", 0};
        if (!decode(decoder, name, true, &pair->name)) return false;
        if (!decode(decoder, part, true, &pair->value)) return false;
        target->pair_count++;
    }
    return true;
}

int http_target_parse(struct bytes target, char *keep_block, struct http_target *ret_target,
                      const char **ret_why)
{
    struct decoder decoder = {.block = keep_block, .why = "the target is not a path"};
    struct bytes authority = guard_target_authority(target), path;
    bool valid;

    ret_target->segment_count = ret_target->pair_count = 0;
    ret_target->ends_in_slash = ret_target->asterisk = false;
    if (bytes_are(target, BYTES("*"))) {
        ret_target->asterisk = true;
        return 0;
    }
    if (authority.at) {
        target = bytes_after(target, (size_t)(authority.at - target.at) + authority.count);
    }
    (void)bytes_split(&target, '?', &path);
    if (path.count == 0 && authority.at) path = BYTES("/");
    valid = path.count > 0 && path.at[0] == '/';
    valid = valid && parse_path(&decoder, path, ret_target);
    if (valid && target.at) valid = parse_query(&decoder, target, ret_target);
    if (valid) return 0;
    *ret_why = decoder.why;
    return WEIR_EREFUSED;
}

int http_target_query(const struct http_target *target, struct bytes name, struct bytes *ret_value)
{
    const struct http_pair *found = NULL;

    for (unsigned i = 0; i < target->pair_count; i++) {
        if (!bytes_are(target->pairs[i].name, name)) continue;
        if (found) return WEIR_EREFUSED;
        found = &target->pairs[i];
    }
    if (!found) return -ENOENT;
    *ret_value = found->value;
    return 0;
}

size_t http_target_escape(struct bytes text, char *out)
{
    static const char hex[] = "0123456789ABCDEF";
    size_t count = 0;

    for (size_t i = 0; i < text.count; i++) {
        unsigned char c = (unsigned char)text.at[i];

        if (is_letter(text.at[i]) || is_digit(text.at[i]) || (c != '\0' && strchr("-._~", c))) {
            out[count++] = text.at[i];
        } else {
            out[count++] = '%';
            out[count++] = hex[c >> 4];
            out[count++] = hex[c & 15];
        }
    }
    return count;
}
