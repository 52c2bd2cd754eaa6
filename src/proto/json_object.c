/* json_object.c - objects with known members into structs. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <weir/error.h>

#include "proto/duration.h"
#include "proto/json_read.h"

enum { MEMBERS_MAX = 64, NAME_SHOWN = 40 };

static const char *const wanted[] = {
    [JSON_TYPE_TEXT] = "a string",
    [JSON_TYPE_INT] = "a whole number",
    [JSON_TYPE_BOOL] = "true or false",
    [JSON_TYPE_DOUBLE] = "a number",
    [JSON_TYPE_DURATION] = "a duration like \"1h30m\"",
    [JSON_TYPE_RAW] = "a value",
    [JSON_TYPE_OBJECT] = "an object",
    [JSON_TYPE_BY] = "a value",
};

int json_take_text(struct json_reader *reader, struct json_texts *texts,
                   const struct json_token *token, struct bytes *ret_text)
{
    char *at = texts->at + texts->used;
    size_t count;

    if (token->text.count >= texts->room - texts->used) {
        return json_refuse(reader, token, "the strings are too long");
    }
    count = json_text(token, at);
    if (count > 0 && memchr(at, '\0', count)) {
        return json_refuse(reader, token, "a string has a NUL");
    }
    at[count] = '\0';
    texts->used += count + 1;
    *ret_text = (struct bytes){at, count};
    return 0;
}

static int read_text(struct json_reader *reader, struct json_texts *texts,
                     const struct json_member *member, const struct json_token *token, void *at)
{
    struct bytes text = {NULL, 0};
    int r = json_take_text(reader, texts, token, &text);

    if (r < 0) return r;
    if (member->max > 0 && text.count > (uint64_t)member->max) {
        return json_refuse(reader, token, "'%s' is longer than %lld bytes", member->name,
                           (long long)member->max);
    }
    *(struct bytes *)at = text;
    return 0;
}

static int read_int(struct json_reader *reader, const struct json_member *member,
                    const struct json_token *token, void *at)
{
    if (json_int(token, member->min, member->max, at) == 0) return 0;
    return json_refuse(reader, token, "'%s' is not a whole number from %lld to %lld", member->name,
                       (long long)member->min, (long long)member->max);
}

static int read_duration(struct json_reader *reader, const struct json_member *member,
                         const struct json_token *token, void *at)
{
    char memory[DURATION_BYTES] = "";
    struct bytes text = {memory, 0};
    int64_t ns, ms;

    /* One that is longer stays empty, which is no duration. */
    if (token->text.count <= sizeof memory) text.count = json_text(token, memory);
    if (duration_parse(text, &ns) < 0) {
        return json_refuse(reader, token, "'%s' is not %s", member->name,
                           wanted[JSON_TYPE_DURATION]);
    }
    ms = ns / DURATION_MS;
    if (ns % DURATION_MS != 0 || ms < member->min || ms > member->max) {
        return json_refuse(reader, token, "'%s' is not from %lld ms to %lld ms", member->name,
                           (long long)member->min, (long long)member->max);
    }
    *(int64_t *)at = ms;
    return 0;
}

static enum json_kind kind_of(enum json_type type)
{
    switch (type) {
    case JSON_TYPE_TEXT:
    case JSON_TYPE_DURATION: return JSON_STRING;
    case JSON_TYPE_INT:
    case JSON_TYPE_DOUBLE: return JSON_NUMBER;
    case JSON_TYPE_BOOL: return JSON_BOOL;
    case JSON_TYPE_OBJECT: return JSON_OBJECT;
    case JSON_TYPE_RAW:
    case JSON_TYPE_BY:
    case JSON_TYPE_NONE: break;
    }
    return JSON_FAILED; /* any */
}

static int read_member(struct json_reader *reader, struct json_texts *texts,
                       const struct json_member *member, void *into)
{
    struct json_token token = json_next(reader);
    void *at = (char *)into + member->offset;

    assert(member->type != JSON_TYPE_NONE);
    if (token.kind == JSON_FAILED) return WEIR_EREFUSED;
    if (kind_of(member->type) != JSON_FAILED && token.kind != kind_of(member->type)) {
        return json_refuse(reader, &token, "'%s' is not %s", member->name, wanted[member->type]);
    }
    switch (member->type) {
    case JSON_TYPE_TEXT: return read_text(reader, texts, member, &token, at);
    case JSON_TYPE_INT: return read_int(reader, member, &token, at);
    case JSON_TYPE_DURATION: return read_duration(reader, member, &token, at);
    case JSON_TYPE_OBJECT: return json_object(reader, texts, member->members, at);
    case JSON_TYPE_BY: return member->read(reader, texts, token, at);
    case JSON_TYPE_BOOL: *(bool *)at = token.truth; return 0;
    case JSON_TYPE_DOUBLE:
        if (json_double(&token, at) == 0) return 0;
        return json_refuse(reader, &token, "'%s' is too large", member->name);
    case JSON_TYPE_RAW:
        *(struct bytes *)at = json_skip(reader, token);
        return ((struct bytes *)at)->at ? 0 : WEIR_EREFUSED;
    case JSON_TYPE_NONE: break;
    }
    return WEIR_EREFUSED;
}

static int refuse_unknown(struct json_reader *reader, const struct json_token *key)
{
    char name[NAME_SHOWN];
    size_t count = 0;

    for (; count < key->text.count && count + 1 < sizeof name; count++) {
        name[count] = is_visible(key->text.at[count]) ? key->text.at[count] : '?';
    }
    name[count] = '\0';
    return json_refuse(reader, key, "the member '%s' is not known", name);
}

static int check_required(struct json_reader *reader, const struct json_member *members,
                          uint64_t seen, const struct json_token *end)
{
    for (unsigned i = 0; members[i].name; i++) {
        if (members[i].required && !(seen >> i & 1)) {
            return json_refuse(reader, end, "the member '%s' is missing", members[i].name);
        }
    }
    return 0;
}

/* Most names differ in their first byte. */
static bool is_name(const struct json_token *key, const char *name)
{
    if (!key->escaped && (key->text.count == 0 || key->text.at[0] != name[0])) return false;
    return json_text_is(key, bytes_of(name));
}

int json_object(struct json_reader *reader, struct json_texts *texts,
                const struct json_member *members, void *into)
{
    struct json_token key = json_next(reader);
    uint64_t seen = 0;
    int r;

    for (; key.kind == JSON_KEY; key = json_next(reader)) {
        unsigned i = 0;

        while (members[i].name && !is_name(&key, members[i].name)) i++;
        assert(i < MEMBERS_MAX);
        if (!members[i].name) return refuse_unknown(reader, &key);
        if (seen >> i & 1) {
            return json_refuse(reader, &key, "the member '%s' comes twice", members[i].name);
        }
        seen |= UINT64_C(1) << i;
        r = read_member(reader, texts, &members[i], into);
        if (r < 0) return r;
        if (members[i].present_offset > 0)
            *(bool *)((char *)into + members[i].present_offset) = true;
    }
    if (key.kind != JSON_OBJECT_END) return WEIR_EREFUSED;
    return check_required(reader, members, seen, &key);
}

int json_document(struct json_reader *reader, struct json_texts *texts,
                  const struct json_member *members, void *into)
{
    struct json_token token = json_next(reader);
    int r;

    if (token.kind == JSON_FAILED) return WEIR_EREFUSED;
    if (token.kind != JSON_OBJECT) return json_refuse(reader, &token, "an object is expected");
    r = json_object(reader, texts, members, into);
    if (r < 0) return r;
    return json_next(reader).kind == JSON_END ? 0 : WEIR_EREFUSED;
}
