/* look.c - looks into JSON. */
#include "cli/look.h"

#include <stdio.h>
#include <string.h>

#include "rt/mem.h"

static const struct bytes none = {NULL, 0};

/* ---- Where values begin and end ---- */

static struct bytes skip_blanks(struct bytes text)
{
    size_t count = 0;

    while (count < text.count && memchr(" \t\r\n", text.at[count], 4)) count++;
    return bytes_after(text, count);
}

/* How many bytes the string has that the text begins with, with its quotes; 0: it has no end. */
static size_t string_bytes(struct bytes text)
{
    for (size_t i = 1; i < text.count; i++) {
        if (text.at[i] == '"') return i + 1;
        if (text.at[i] == '\\') i++;
    }
    return 0;
}

/* The value that the text begins with. */
static struct bytes first_value(struct bytes text)
{
    size_t depth = 0, at = 0;

    while (at < text.count) {
        char c = text.at[at];
        size_t count = 1;

        if (c == '"') count = string_bytes(bytes_after(text, at));
        if (count == 0) return none;
        if (depth == 0 && memchr(",:]} \t\r\n", c, 8)) break; /* behind a number or a word */
        if (c == '{' || c == '[') depth++;
        if (c == '}' || c == ']') depth--;
        at += count;
        if (depth == 0 && (c == '"' || c == '}' || c == ']')) break;
    }
    return depth == 0 && at > 0 ? (struct bytes){text.at, at} : none;
}

/* The next value, behind which the rest then begins. */
static struct bytes take_value(struct bytes *rest)
{
    struct bytes value = first_value(skip_blanks(*rest));

    if (value.at) *rest = bytes_after(*rest, (size_t)(value.at - rest->at) + value.count);
    return value;
}

static bool take_char(struct bytes *rest, char c)
{
    struct bytes text = skip_blanks(*rest);

    if (text.count == 0 || text.at[0] != c) return false;
    *rest = bytes_after(text, 1);
    return true;
}

/* The next member: its name as it stands between its quotes, and its value. */
static bool take_member(struct bytes *rest, struct bytes *ret_name, struct bytes *ret_value)
{
    struct bytes name;

    (void)take_char(rest, ',');
    name = take_value(rest);
    if (!name.at || name.at[0] != '"' || !take_char(rest, ':')) return false;
    *ret_name = (struct bytes){name.at + 1, name.count - 2};
    *ret_value = take_value(rest);
    return ret_value->at != NULL;
}

/* ---- Members ---- */

static struct bytes member(struct bytes json, struct bytes wanted)
{
    struct bytes name, value;

    if (!json.at || !take_char(&json, '{')) return none;
    while (take_member(&json, &name, &value))
        if (bytes_are(name, wanted)) return value;
    return none;
}

struct bytes look(struct bytes json, const char *path)
{
    struct bytes rest = bytes_of(path), part;

    if (*path == '\0') return json;
    while (json.at && bytes_split(&rest, '.', &part)) json = member(json, part);
    return json;
}

/* The value's only token. */
static struct json_token token_of(struct bytes json, const char *path)
{
    struct json_key keys[1];
    struct json_reader reader;
    struct bytes value = look(json, path);

    if (!value.at) return (struct json_token){.kind = JSON_FAILED};
    json_reader_init(&reader, value,
                     &(struct json_limits){.depth_max = 1, .keys = keys, .key_room = 1});
    return json_next(&reader);
}

bool look_is(struct bytes json, const char *path, const char *text)
{
    struct json_token token = token_of(json, path);

    return token.kind == JSON_STRING && json_text_is(&token, bytes_of(text));
}

/* A terminal would take it for one: control characters, those of U+0080 to U+009F too, which are
 * two bytes. */
static bool is_command(const char *text, size_t at)
{
    unsigned char c = (unsigned char)text[at];

    if (c == 0xc2) return (unsigned char)text[at + 1] < 0xa0;
    return c < ' ' || c == 0x7f || (c < 0xa0 && at > 0 && (unsigned char)text[at - 1] == 0xc2);
}

void look_text(struct bytes json, const char *path, char *ret_text, size_t bytes)
{
    struct json_token token = token_of(json, path);
    size_t count = 0;

    ret_text[0] = '\0';
    if (token.kind == JSON_NUMBER || token.kind == JSON_BOOL) {
        (void)snprintf(ret_text, bytes, "%.*s", (int)token.text.count, token.text.at);
    } else if (token.kind == JSON_STRING) {
        char *text = mem_alloc(token.text.count + 1);

        if (!text) return;
        count = json_text(&token, text);
        text[count] = '\0'; /* what is looked at behind the last one */
        if (count >= bytes) count = bytes - 1;
        for (size_t i = 0; i < count; i++) ret_text[i] = is_command(text, i) ? '?' : text[i];
        ret_text[count] = '\0';
        mem_free(text);
    }
}

char *look_copy(struct bytes json, const char *path, size_t *ret_count)
{
    struct json_token token = token_of(json, path);
    char *text;

    if (token.kind != JSON_STRING) return NULL;
    text = mem_alloc(token.text.count + 1);
    if (!text) return NULL;
    *ret_count = json_text(&token, text);
    text[*ret_count] = '\0';
    return text;
}

int64_t look_int(struct bytes json, const char *path, int64_t otherwise)
{
    struct json_token token = token_of(json, path);
    int64_t value;

    if (token.kind != JSON_NUMBER || json_int(&token, INT64_MIN, INT64_MAX, &value) < 0)
        return otherwise;
    return value;
}

bool look_bool(struct bytes json, const char *path)
{
    struct json_token token = token_of(json, path);

    return token.kind == JSON_BOOL && token.truth;
}

/* ---- One by one ---- */

void look_begin(struct look_items *items, struct bytes json)
{
    items->rest = json;
    items->open = json.at && (take_char(&items->rest, '[') || take_char(&items->rest, '{'));
}

bool look_next(struct look_items *items, struct bytes *ret_item)
{
    if (!items->open) return false;
    (void)take_char(&items->rest, ',');
    *ret_item = take_value(&items->rest);
    items->open = ret_item->at != NULL;
    return items->open;
}

bool look_next_member(struct look_items *items, char *ret_key, size_t bytes,
                      struct bytes *ret_value)
{
    struct bytes name;

    if (!items->open) return false;
    items->open = take_member(&items->rest, &name, ret_value);
    if (items->open) (void)snprintf(ret_key, bytes, "%.*s", (int)name.count, name.at);
    return items->open;
}
