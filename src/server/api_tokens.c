/* api_tokens.c - tokens over the API: list, add, rotate, drop. */
#include <errno.h>
#include <openssl/crypto.h>
#include <string.h>

#include "rt/mem.h"
#include "server/api_handlers.h"
#include "server/api_in.h"
#include "server/api_out.h"

static int begin(struct exchange *x)
{
    int r = api_allow(x, VERB_ADMIN, NULL);

    if (r < 0) return r;
    if (api_of(x)->tokens) return 0;
    return exchange_problem(x, PROBLEM_NOT_SUPPORTED, "this server is not configured for tokens");
}

static void put_token(struct json_writer *json, const struct token *token)
{
    json_open_object(json);
    out_text(json, "id", token->id);
    out_text(json, "name", token->name);
    json_key(json, "scopes");
    json_open_array(json);
    for (unsigned i = 0; i < token->scope_count; i++) {
        char text[TOKEN_QUEUE_BYTES + 16];

        (void)token_scope_format(&token->scopes[i], text, sizeof text);
        json_put_string(json, text);
    }
    json_close(json);
    out_int(json, "created_ms", token->created_ms);
    out_int_if(json, "expires_ms", atom_load(&token->expires_ms));
    json_close(json);
}

int tokens_show(struct exchange *x)
{
    const struct token **found;
    struct json_writer *json;
    size_t count;
    int r = begin(x);

    if (r < 0) return r;
    found = mem_alloc(TOKENS_MAX * sizeof(struct token *));
    if (!found) return api_fail(x, -ENOMEM, "tokens");
    count = tokens_list(api_of(x)->tokens, found, TOKENS_MAX);
    json = exchange_json(x, 200);
    json_open_object(json);
    json_key(json, "tokens");
    json_open_array(json);
    for (size_t i = 0; i < count; i++) put_token(json, found[i]);
    json_close(json);
    json_close(json);
    mem_free((void *)found);
    return 0;
}

/* The file of tokens was synced, whatever the store's durability is. */
static int answer_text(struct exchange *x, unsigned status, char text[TOKEN_TEXT_BYTES])
{
    struct json_writer *json = exchange_json(x, status);
    char id[TOKEN_ID_BYTES + 1] = {0};

    memcpy(id, text + 5, TOKEN_ID_BYTES);
    exchange_set(x, "cache-control", "no-store");
    json_open_object(json);
    out_text(json, "id", id);
    out_text(json, "token", text);
    out_text(json, "durability", api_durability_name(WEIR_SYNCED));
    json_close(json);
    OPENSSL_cleanse(text, TOKEN_TEXT_BYTES);
    return 0;
}

static int fail(struct exchange *x, int error)
{
    if (error == -EEXIST)
        return exchange_problem(x, PROBLEM_CONFLICT, "there is a token of this name");
    if (error == -ENOSPC)
        return exchange_problem(x, PROBLEM_NO_ROOM, "there are %d tokens already, or no disk",
                                TOKENS_MAX);
    if (error == -EINVAL)
        return exchange_problem(x, PROBLEM_INVALID,
                                "name has 1 to %d bytes, scopes 1 to %d, expires_ms is to come",
                                TOKEN_NAME_BYTES, TOKEN_SCOPES_MAX);
    return api_fail(x, error, "token");
}

struct in_token {
    bool none;
    struct bytes name;
    struct in_names scopes;
    int64_t expires_ms, overlap_ms;
};

static const struct json_member token_members[] = {
    {.name = "name",
     .type = JSON_TYPE_TEXT,
     .offset = offsetof(struct in_token, name),
     .required = true,
     .max = TOKEN_NAME_BYTES},
    {.name = "scopes",
     .type = JSON_TYPE_BY,
     .offset = offsetof(struct in_token, scopes),
     .required = true,
     .read = in_read_names},
    {.name = "expires_ms",
     .type = JSON_TYPE_INT,
     .offset = offsetof(struct in_token, expires_ms),
     .max = INT64_C(8000000000000)},
    {0},
};

static const struct json_member rotate_members[] = {
    {.name = "overlap_ms",
     .type = JSON_TYPE_INT,
     .offset = offsetof(struct in_token, overlap_ms),
     .max = INT64_C(30) * 24 * 3600 * 1000},
    {0},
};

/* Whoever has it can make the others. */
static bool may_make_tokens(const struct token_scope *scopes, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (scopes[i].queue[0] == '\0' && !scopes[i].prefix &&
            (scopes[i].verb == VERB_UNSET || scopes[i].verb == VERB_ADMIN))
            return true;
    return false;
}

static int add(struct exchange *x, const struct in_token *in)
{
    struct token_scope scopes[TOKEN_SCOPES_MAX];
    struct token_spec spec = {.name = in->name.at,
                              .scopes = scopes,
                              .scope_count = in->scopes.count,
                              .expires_ms = in->expires_ms,
                              .first_only = !x->who};
    char text[TOKEN_TEXT_BYTES];
    int r;

    for (unsigned i = 0; i < in->scopes.count; i++) {
        const char *why;

        if (token_scope_parse(in->scopes.at[i], &scopes[i], &why) < 0)
            return exchange_problem(x, PROBLEM_INVALID, "%s", why);
    }
    if (spec.first_only && !may_make_tokens(scopes, spec.scope_count))
        return exchange_problem(x, PROBLEM_INVALID,
                                "from the first token on everybody needs one: it has to have the "
                                "scope all or admin, so that it can make the others");
    r = tokens_add(api_of(x)->tokens, &spec, api_now_ms(), text);
    /* Another was faster, while this one waited for its turn to change. */
    if (r == -EPERM && spec.first_only && api_needs_token(api_of(x)))
        return exchange_problem(x, PROBLEM_UNAUTHORIZED,
                                "there is a first token by now: Authorization: Bearer weir_...");
    return r < 0 ? fail(x, r) : answer_text(x, 201, text);
}

int token_add(struct exchange *x)
{
    struct in_token in = {0};
    struct body body = {0};
    int r = begin(x);

    if (r == 0) r = api_no_key(x);
    if (r == 0) r = body_open(x, &body);
    if (r == 0) r = body_read(&body, token_members, &in);
    if (r == 0) r = add(x, &in);
    body_close(&body);
    return r;
}

int token_rotate(struct exchange *x)
{
    struct in_token in = {0};
    struct body body = {0};
    char text[TOKEN_TEXT_BYTES];
    int r = begin(x);

    if (r == 0) r = api_no_key(x);
    if (r == 0) r = body_open(x, &body);
    if (r == 0) r = body_read(&body, rotate_members, &in);
    if (r == 0) {
        r = tokens_rotate(api_of(x)->tokens, exchange_parameter(x, 0), in.overlap_ms, api_now_ms(),
                          text);
        r = r < 0 ? fail(x, r) : answer_text(x, 200, text);
    }
    body_close(&body);
    return r;
}

int token_drop(struct exchange *x)
{
    struct json_writer *json;
    int r = begin(x);

    if (r < 0) return r;
    r = tokens_drop(api_of(x)->tokens, exchange_parameter(x, 0), api_now_ms());
    if (r < 0) return fail(x, r);
    json = exchange_json(x, 200);
    json_open_object(json);
    out_text(json, "durability", api_durability_name(WEIR_SYNCED));
    json_close(json);
    return 0;
}
