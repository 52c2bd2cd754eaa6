/* tokens.c - tokens in memory: finding, allowing, adding, rotating. The file: tokens_file.c. */
#include <assert.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

#include "proto/base64.h"
#include "rt/mem.h"
#include "rt/runtime.h"
#include "server/tokens_inside.h"

/* ---- Scopes ---- */

static const char *const verb_names[VERBS] = {
    [VERB_UNSET] = "all",   [VERB_PUBLIC] = "public", [VERB_ENQUEUE] = "enqueue",
    [VERB_WORK] = "work",   [VERB_READ] = "read",     [VERB_MANAGE] = "manage",
    [VERB_ADMIN] = "admin",
};

const char *verb_name(enum verb verb)
{
    return (unsigned)verb < VERBS ? verb_names[verb] : "unknown";
}

int token_scope_parse(struct bytes text, struct token_scope *ret_scope, const char **ret_why)
{
    struct bytes rest = text, verb, queue = {NULL, 0};
    bool found = false;

    *ret_scope = (struct token_scope){0};
    *ret_why = "a scope is enqueue, work, read, manage, admin or all, and perhaps :queue or "
               ":prefix*";
    (void)bytes_split(&rest, ':', &verb);
    queue = rest;
    for (int i = 0; i < VERBS; i++) {
        if (i == VERB_PUBLIC || !bytes_are(verb, bytes_of(verb_names[i]))) continue;
        ret_scope->verb = (enum verb)i;
        found = true;
    }
    if (!found) return WEIR_EREFUSED;
    if (!queue.at) return 0;
    if (ret_scope->verb == VERB_ADMIN) {
        *ret_why = "admin is of no queue";
        return WEIR_EREFUSED;
    }
    if (queue.count > 0 && queue.at[queue.count - 1] == '*') {
        ret_scope->prefix = true;
        queue.count--;
    }
    *ret_why = "the queue of a scope is not empty, has at most 200 bytes, and an asterisk only at "
               "its end";
    if (queue.count >= TOKEN_QUEUE_BYTES || (queue.count == 0 && !ret_scope->prefix) ||
        (queue.count > 0 && memchr(queue.at, '*', queue.count)))
        return WEIR_EREFUSED;
    if (queue.count > 0) memcpy(ret_scope->queue, queue.at, queue.count);
    return 0;
}

int token_scope_format(const struct token_scope *scope, char *text, size_t text_bytes)
{
    bool limited = scope->prefix || scope->queue[0];

    return snprintf(text, text_bytes, "%s%s%s%s", verb_name(scope->verb), limited ? ":" : "",
                    scope->queue, scope->prefix ? "*" : "");
}

static bool scope_allows(const struct token_scope *scope, enum verb verb, const char *queue,
                         bool prefix)
{
    size_t bytes = strlen(scope->queue);

    if (scope->verb != VERB_UNSET && scope->verb != verb) return false;
    /* What is of no queue is for those who have a right to all of them. */
    if (bytes == 0) return true;
    if (!queue) return false;
    if (scope->prefix) return strncmp(queue, scope->queue, bytes) == 0;
    return !prefix && strcmp(queue, scope->queue) == 0;
}

bool token_allows(const struct token *token, enum verb verb, const char *queue, bool prefix)
{
    for (unsigned i = 0; i < token->scope_count; i++)
        if (scope_allows(&token->scopes[i], verb, queue, prefix)) return true;
    return false;
}

bool token_has(const struct token *token, enum verb verb)
{
    for (unsigned i = 0; i < token->scope_count; i++)
        if (token->scopes[i].verb == VERB_UNSET || token->scopes[i].verb == verb) return true;
    return false;
}

/* ---- Finding ---- */

static bool expired(const struct token *token, int64_t now_ms)
{
    int64_t expires_ms = atom_load(&token->expires_ms);

    return atom_load(&token->dropped) || (expires_ms != 0 && expires_ms <= now_ms);
}

static struct token *find_id(struct tokens *tokens, struct bytes id)
{
    struct token *found = NULL;

    lock_acquire(&tokens->lock);
    for (unsigned i = 0; i < tokens->count && !found; i++)
        if (bytes_are(bytes_of(tokens->live[i]->id), id)) found = tokens->live[i];
    lock_release(&tokens->lock);
    return found;
}

const struct token *tokens_find(struct tokens *tokens, struct bytes text, int64_t now_ms)
{
    static const struct bytes begin = BYTES("weir_");
    unsigned char hash[SHA256_DIGEST_LENGTH];
    const struct token *token;

    if (text.count != TOKEN_TEXT_BYTES - 1 || !bytes_begin(text, begin)) return NULL;
    token = find_id(tokens, (struct bytes){text.at + begin.count, TOKEN_ID_BYTES});
    /* It was listed when it was found, and another row stands for it since. */
    if (token && atom_load(&token->dropped))
        token = find_id(tokens, (struct bytes){text.at + begin.count, TOKEN_ID_BYTES});
    if (!token) return NULL;
    SHA256((const unsigned char *)text.at, text.count, hash);
    if (CRYPTO_memcmp(hash, token->hash, sizeof hash) != 0) return NULL;
    return expired(token, now_ms) ? NULL : token;
}

/* FNV-1a of an address without its port. */
static uint64_t peer_hash(const char *peer)
{
    const char *port = strrchr(peer, ':');
    uint64_t hash = UINT64_C(14695981039346656037);

    for (const char *at = peer; *at && at != port; at++)
        hash = (hash ^ (unsigned char)*at) * UINT64_C(1099511628211);
    return hash;
}

bool tokens_may_fail(struct tokens *tokens, const char *peer)
{
    static const struct bucket_rules rules = {
        .rate = 1, .period_ns = 1000000000, .burst = TOKENS_FAILURES};
    uint64_t hash = peer_hash(peer);
    struct token_peer *row = &tokens->peers[hash % TOKENS_PEERS];
    bool may;

    lock_acquire(&tokens->lock);
    /* Another peer in the row begins anew only when the one before has been quiet for long. */
    bucket_refill(&row->bucket, weir_now_ns());
    if (row->hash != hash && row->bucket.level == row->bucket.full) {
        bucket_init(&row->bucket, &rules);
        row->hash = hash;
    }
    may = bucket_take(&row->bucket, 1, weir_now_ns());
    lock_release(&tokens->lock);
    return may;
}

bool tokens_note_refusal(struct tokens *tokens, const char *id, uint64_t *ret_unnoted)
{
    struct token *token = find_id(tokens, bytes_of(id));
    bool noted = true;

    *ret_unnoted = 0;
    if (!token) return true; /* dropped since: its last ones */
    lock_acquire(&tokens->lock);
    noted = bucket_take(&token->refusals, 1, weir_now_ns());
    if (noted) *ret_unnoted = token->unnoted;
    token->unnoted = noted ? 0 : token->unnoted + 1;
    lock_release(&tokens->lock);
    return noted;
}

bool tokens_are_kept(struct tokens *tokens)
{
    return atom_load(&tokens->kept);
}

size_t tokens_list(struct tokens *tokens, const struct token **ret_tokens, size_t max)
{
    size_t count;

    lock_acquire(&tokens->lock);
    count = tokens->count < max ? tokens->count : max;
    for (size_t i = 0; i < count; i++) ret_tokens[i] = tokens->live[i];
    lock_release(&tokens->lock);
    return count;
}

/* ---- Changing: by one at a time ---- */

struct token *token_new(struct tokens *tokens)
{
    static const struct bucket_rules rules = {
        .rate = 1, .period_ns = INT64_C(60000000000), .burst = TOKENS_REFUSALS};
    struct token *token = tokens->made < TOKENS_MADE_MAX ? mem_alloc_zeroed(sizeof *token) : NULL;

    if (!token) return NULL;
    bucket_init(&token->refusals, &rules);
    token->next = tokens->all;
    tokens->all = token;
    tokens->made++;
    return token;
}

void token_enlist(struct tokens *tokens, struct token *token)
{
    lock_acquire(&tokens->lock);
    tokens->live[tokens->count++] = token;
    lock_release(&tokens->lock);
}

static void delist(struct tokens *tokens, const struct token *token)
{
    unsigned kept = 0;

    lock_acquire(&tokens->lock);
    for (unsigned i = 0; i < tokens->count; i++)
        if (tokens->live[i] != token) tokens->live[kept++] = tokens->live[i];
    tokens->count = kept;
    lock_release(&tokens->lock);
}

static void delist_expired(struct tokens *tokens, int64_t now_ms)
{
    for (unsigned i = tokens->count; i-- > 0;)
        if (expired(tokens->live[i], now_ms)) delist(tokens, tokens->live[i]);
}

/* Not the runtime's choices, which a test may foretell: a secret. */
static int fill_random(unsigned char *bytes, int count)
{
    return RAND_priv_bytes(bytes, count) == 1 ? 0 : -EAGAIN;
}

/* Letters and digits that are not taken for one another; never a '-', which the command line would
 * take for an option, nor the '_' that ends an id. */
static const char id_letters[] = "0123456789abcdefghjkmnpqrstvwxyz";
static_assert(sizeof id_letters - 1 == 32, "five bits each");

/* An id and a secret of its own. */
static int make_text(struct tokens *tokens, struct token *token, char text[TOKEN_TEXT_BYTES])
{
    unsigned char bytes[TOKEN_ID_BYTES + 32];
    int r;

    do {
        r = fill_random(bytes, sizeof bytes);
        if (r < 0) return r;
        memcpy(text, "weir_", 5);
        for (int i = 0; i < TOKEN_ID_BYTES; i++) text[5 + i] = id_letters[bytes[i] % 32];
        text[5 + TOKEN_ID_BYTES] = '_';
        base64url_encode((struct bytes){(char *)bytes + TOKEN_ID_BYTES, 32},
                         text + 5 + TOKEN_ID_BYTES + 1);
        text[TOKEN_TEXT_BYTES - 1] = '\0';
    } while (find_id(tokens, (struct bytes){text + 5, TOKEN_ID_BYTES}));
    OPENSSL_cleanse(bytes, sizeof bytes);
    memcpy(token->id, text + 5, TOKEN_ID_BYTES);
    SHA256((const unsigned char *)text, TOKEN_TEXT_BYTES - 1, token->hash);
    return 0;
}

/* A row that is in the file, or not there at all. It is the caller's turn to change. */
static int add(struct tokens *tokens, const struct token *from, int64_t now_ms,
               char ret_text[TOKEN_TEXT_BYTES])
{
    struct token *token;
    char text[TOKEN_TEXT_BYTES];
    int r;

    delist_expired(tokens, now_ms);
    if (tokens->count == TOKENS_MAX) return -ENOSPC;
    token = token_new(tokens);
    if (!token) return -ENOMEM;
    memcpy(token->name, from->name, sizeof token->name);
    memcpy(token->scopes, from->scopes, sizeof token->scopes);
    token->scope_count = from->scope_count;
    token->created_ms = now_ms;
    atom_store(&token->expires_ms, atom_load(&from->expires_ms));
    r = make_text(tokens, token, text);
    if (r < 0) return r;
    token_enlist(tokens, token);
    r = tokens_save(tokens);
    if (r < 0)
        delist(tokens, token);
    else
        memcpy(ret_text, text, sizeof text);
    OPENSSL_cleanse(text, sizeof text);
    return r;
}

static bool name_is_taken(struct tokens *tokens, const char *name, int64_t now_ms)
{
    for (unsigned i = 0; i < tokens->count; i++)
        if (!expired(tokens->live[i], now_ms) && strcmp(tokens->live[i]->name, name) == 0)
            return true;
    return false;
}

int tokens_add(struct tokens *tokens, const struct token_spec *spec, int64_t now_ms,
               char ret_text[TOKEN_TEXT_BYTES])
{
    struct token from = {.expires_ms = spec->expires_ms};
    int r;

    if (!spec->name || !spec->name[0] || strlen(spec->name) > TOKEN_NAME_BYTES ||
        spec->scope_count == 0 || spec->scope_count > TOKEN_SCOPES_MAX ||
        (spec->expires_ms != 0 && spec->expires_ms <= now_ms))
        return -EINVAL;
    (void)snprintf(from.name, sizeof from.name, "%s", spec->name);
    memcpy(from.scopes, spec->scopes, spec->scope_count * sizeof *spec->scopes);
    from.scope_count = spec->scope_count;
    r = weir_semaphore_acquire(tokens->changing, 1);
    if (r < 0) return r;
    if (spec->first_only && atom_load(&tokens->kept))
        r = -EPERM;
    else if (name_is_taken(tokens, from.name, now_ms))
        r = -EEXIST;
    else
        r = add(tokens, &from, now_ms, ret_text);
    if (r == 0) atom_store(&tokens->kept, true);
    weir_semaphore_release(tokens->changing, 1);
    return r;
}

int tokens_rotate(struct tokens *tokens, const char *id, int64_t overlap_ms, int64_t now_ms,
                  char ret_text[TOKEN_TEXT_BYTES])
{
    struct token *token;
    int64_t before_ms;
    int r = weir_semaphore_acquire(tokens->changing, 1);

    if (r < 0) return r;
    token = find_id(tokens, bytes_of(id));
    r = !token || expired(token, now_ms) ? -ENOENT : 0;
    if (r == 0) {
        struct token from = {.scope_count = token->scope_count};

        memcpy(from.name, token->name, sizeof from.name);
        memcpy(from.scopes, token->scopes, sizeof from.scopes);
        before_ms = atom_load(&token->expires_ms);
        atom_store(&from.expires_ms, before_ms);
        if (before_ms == 0 || before_ms > now_ms + overlap_ms)
            atom_store(&token->expires_ms, now_ms + overlap_ms);
        r = add(tokens, &from, now_ms - (overlap_ms == 0), ret_text);
        if (r < 0) atom_store(&token->expires_ms, before_ms);
    }
    weir_semaphore_release(tokens->changing, 1);
    return r;
}

int tokens_drop(struct tokens *tokens, const char *id, int64_t now_ms)
{
    struct token *token;
    int r = weir_semaphore_acquire(tokens->changing, 1);

    if (r < 0) return r;
    token = find_id(tokens, bytes_of(id));
    r = !token || expired(token, now_ms) ? -ENOENT : 0;
    if (r == 0) {
        atom_store(&token->dropped, true);
        delist(tokens, token);
        r = tokens_save(tokens);
        if (r < 0) {
            atom_store(&token->dropped, false);
            token_enlist(tokens, token);
        }
    }
    weir_semaphore_release(tokens->changing, 1);
    return r;
}

/* ---- As an object ---- */

int tokens_open(weir_scope *scope, const char *path, struct tokens **ret_tokens)
{
    static const struct bucket_rules rules = {
        .rate = 1, .period_ns = 1000000000, .burst = TOKENS_FAILURES};
    struct tokens *tokens = mem_alloc_zeroed(sizeof *tokens);
    int r;

    if (!tokens) return -ENOMEM;
    if (path && strlen(path) >= sizeof tokens->path - sizeof ".new") {
        mem_free(tokens);
        return -ENAMETOOLONG;
    }
    lock_init(&tokens->lock);
    for (unsigned i = 0; i < TOKENS_PEERS; i++) bucket_init(&tokens->peers[i].bucket, &rules);
    if (path) (void)snprintf(tokens->path, sizeof tokens->path, "%s", path);
    /* No mutex: who has it waits for the disk. */
    r = weir_semaphore_open(
        scope,
        &(weir_semaphore_spec){
            .name = "tokens", .permits = 1, .waiters_max = 64, .overflow = WEIR_WAIT},
        &tokens->changing);
    if (r == 0 && path) r = tokens_load(tokens);
    if (r < 0) {
        tokens_close(tokens);
        return r;
    }
    *ret_tokens = tokens;
    return 0;
}

static bool says_the_same(const struct token *token, const struct token *from)
{
    if (strcmp(token->name, from->name) != 0 || token->scope_count != from->scope_count)
        return false;
    for (unsigned i = 0; i < token->scope_count; i++) {
        const struct token_scope *one = &token->scopes[i], *other = &from->scopes[i];

        if (one->verb != other->verb || one->prefix != other->prefix ||
            strcmp(one->queue, other->queue) != 0)
            return false;
    }
    return true;
}

/* ---- Read again ---- */

/* What is listed before and after it: nobody sees anything between. */
struct lists {
    struct token *before[TOKENS_MAX], *after[TOKENS_MAX];
    unsigned before_count, after_count;
};

/* The row with what the file says; NULL: there is none. One that may something else by now, or is
 * called otherwise, is another: requests under way have the row. */
static struct token *find_same(const struct tokens *tokens, const struct token *from)
{
    for (unsigned i = 0; i < tokens->count; i++)
        if (memcmp(tokens->live[i]->hash, from->hash, sizeof from->hash) == 0 &&
            says_the_same(tokens->live[i], from))
            return tokens->live[i];
    return NULL;
}

static struct token *copy_of(struct tokens *tokens, const struct token *from)
{
    struct token *token = token_new(tokens);

    if (!token) return NULL;
    memcpy(token->id, from->id, sizeof token->id);
    memcpy(token->name, from->name, sizeof token->name);
    memcpy(token->hash, from->hash, sizeof token->hash);
    memcpy(token->scopes, from->scopes, sizeof token->scopes);
    token->scope_count = from->scope_count;
    token->created_ms = from->created_ms;
    atom_store(&token->expires_ms, atom_load(&from->expires_ms));
    return token;
}

static void exchange_lists(struct tokens *tokens, struct lists *lists)
{
    lock_acquire(&tokens->lock);
    lists->before_count = tokens->count;
    for (unsigned i = 0; i < tokens->count; i++) lists->before[i] = tokens->live[i];
    for (unsigned i = 0; i < lists->after_count; i++) tokens->live[i] = lists->after[i];
    tokens->count = lists->after_count;
    lock_release(&tokens->lock);
}

static bool is_after(const struct lists *lists, const struct token *token)
{
    for (unsigned i = 0; i < lists->after_count; i++)
        if (lists->after[i] == token) return true;
    return false;
}

/* Those that are not in the file any more go, those that are new come, and those that were rotated
 * there end when it says. All rows are made before anything is changed. */
static int adopt(struct tokens *tokens, const struct tokens *fresh, struct lists *lists)
{
    for (unsigned i = 0; i < fresh->count; i++) {
        struct token *token = find_same(tokens, fresh->live[i]);

        if (!token) token = copy_of(tokens, fresh->live[i]);
        if (!token) return -ENOMEM;
        lists->after[lists->after_count++] = token;
    }
    for (unsigned i = 0; i < fresh->count; i++)
        atom_store(&lists->after[i]->expires_ms, atom_load(&fresh->live[i]->expires_ms));
    exchange_lists(tokens, lists);
    for (unsigned i = 0; i < lists->before_count; i++)
        if (!is_after(lists, lists->before[i])) atom_store(&lists->before[i]->dropped, true);
    return (int)tokens->count;
}

/* It is the caller's turn to change. */
static int reload(struct tokens *tokens, struct tokens *fresh, struct lists *lists)
{
    int r = tokens_load(fresh);

    if (r < 0) return r;
    /* A file that somebody is about to replace, or has lost, says nothing about tokens. */
    if (!atom_load(&fresh->kept) && atom_load(&tokens->kept))
        return refuse_as(-ENOENT, "%s: is not there any more: nothing has changed", tokens->path);
    r = adopt(tokens, fresh, lists);
    if (r >= 0 && atom_load(&fresh->kept)) atom_store(&tokens->kept, true);
    return r;
}

int tokens_reload(struct tokens *tokens)
{
    struct tokens *fresh = mem_alloc_zeroed(sizeof *fresh);
    struct lists *lists = mem_alloc_zeroed(sizeof *lists);
    int r = fresh && lists ? 0 : -ENOMEM;

    if (fresh) lock_init(&fresh->lock);
    if (r == 0) {
        memcpy(fresh->path, tokens->path, sizeof fresh->path);
        r = weir_semaphore_acquire(tokens->changing, 1);
    }
    if (r == 0) {
        r = reload(tokens, fresh, lists);
        weir_semaphore_release(tokens->changing, 1);
    }
    tokens_close(fresh);
    mem_free(lists);
    return r;
}

void tokens_close(struct tokens *tokens)
{
    if (!tokens) return;
    while (tokens->all) {
        struct token *token = tokens->all;

        tokens->all = token->next;
        mem_free(token);
    }
    weir_semaphore_close(tokens->changing);
    lock_deinit(&tokens->lock);
    mem_free(tokens);
}
