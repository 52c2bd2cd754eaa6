/* tokens.h - who may do what: bearer tokens with scopes, of which only hashes are kept.
 *
 *     weir_IIIIIIII_SSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSS
 *          id       secret: 32 random bytes, base64url; an id has small letters and digits only
 *
 * The id finds the row and is no secret; the SHA-256 of the whole text is compared in constant
 * time. A scope is a verb, for all queues or for those that begin so: "read", "work:mail",
 * "enqueue:mail*", "all". Rotation gives the same name a new token, and lets the old one live for
 * a time that is said.
 *
 * The file is JSON, mode 0600, and is replaced whole: written beside, synced, renamed, synced.
 *
 * Invariants: what a caller has found stays valid until tokens_close, also if it is dropped: rows
 * are set aside, not freed. At most TOKENS_MAX rows live; TOKENS_MADE_MAX are made in one run.
 * Owner: a scope. Threads: tasks of the runtime, on any worker; one change at a time.
 */
#ifndef WEIR_SERVER_TOKENS_H
#define WEIR_SERVER_TOKENS_H

#include <weir/weir.h>

#include "base/atomic.h"
#include "policy/bucket.h"
#include "proto/bytes.h"
#include "server/route.h"

struct tokens;

enum {
    TOKENS_MAX = 1024,
    TOKENS_MADE_MAX = 65536,
    TOKEN_SCOPES_MAX = 16,
    TOKEN_NAME_BYTES = 64,
    TOKEN_ID_BYTES = 8,
    TOKEN_TEXT_BYTES = 5 + TOKEN_ID_BYTES + 1 + 43 + 1, /* with its terminator */
    TOKEN_QUEUE_BYTES = WEIR_JOB_NAME_BYTES_MAX + 1,
};

struct token_scope {
    enum verb verb; /* VERB_UNSET: every one */
    bool prefix;    /* queues that begin so; else the one, or all if it is empty */
    char queue[TOKEN_QUEUE_BYTES];
};

struct token {
    char id[TOKEN_ID_BYTES + 1];
    char name[TOKEN_NAME_BYTES + 1];
    unsigned char hash[32];
    struct token_scope scopes[TOKEN_SCOPES_MAX];
    unsigned scope_count;
    int64_t created_ms;
    ATOM(int64_t) expires_ms; /* 0: never */
    ATOM(bool) dropped;
    struct bucket refusals; /* that are noted; under the tokens' lock, as the next */
    uint64_t unnoted;       /* since the last one that was */
    struct token *next;     /* of all that were made */
};

/* "enqueue", ...; and back: VERB_PUBLIC and VERBS are no answer. */
const char *verb_name(enum verb verb);
/* 0, or WEIR_EREFUSED and a sentence. */
int token_scope_parse(struct bytes text, struct token_scope *ret_scope, const char **ret_why);
/* How many bytes it has; as snprintf. */
int token_scope_format(const struct token_scope *scope, char *text, size_t text_bytes);
/* May it do this to the queue? NULL: to all. `prefix`: to all that begin so. */
bool token_allows(const struct token *token, enum verb verb, const char *queue, bool prefix);
/* Has it a scope with the verb, for whatever queue? */
bool token_has(const struct token *token, enum verb verb);

/* `path` NULL: only in memory. Reads what is there; a file that others may read is refused.
 * Errors: -EBADMSG (it is damaged: weir_why), -EPERM (its mode), errors of the disk. */
WEIR_SUSPENDS int tokens_open(weir_scope *scope, const char *path, struct tokens **ret_tokens);
/* The file has changed: those that are new in it come, those that are gone are dropped, all at
 * once. How many there are; errors as tokens_open, and -ENOENT (there was a file, and it is gone:
 * weir_why): then nothing has changed. */
WEIR_SUSPENDS int tokens_reload(struct tokens *tokens);
/* Nobody uses what was found any more. Takes NULL. */
void tokens_close(struct tokens *take_tokens);

/* Whose it is, now; NULL: nobody's. Never suspends. */
const struct token *tokens_find(struct tokens *tokens, struct bytes text, int64_t now_ms);
/* A peer has come with a wrong one. False: too often of late. Never suspends. */
bool tokens_may_fail(struct tokens *tokens, const char *peer);

/* The token does not allow what was asked. False: that was so often of late that it is counted, and
 * noted no more. True: how many were counted before it. Never suspends. */
bool tokens_note_refusal(struct tokens *tokens, const char *id, uint64_t *ret_unnoted);

/* A new one; its text is shown once. Errors: -EEXIST (the name), -ENOSPC (TOKENS_MAX), -EINVAL,
 * -EPERM (first_only, and tokens are kept), errors of the disk: then there is none. */
struct token_spec {
    const char *name;
    const struct token_scope *scopes;
    unsigned scope_count;
    int64_t expires_ms; /* since 1970; 0: never */
    bool first_only;    /* who asks has no token, and may make the first one */
};
WEIR_SUSPENDS int tokens_add(struct tokens *tokens, const struct token_spec *spec, int64_t now_ms,
                             char ret_text[TOKEN_TEXT_BYTES]);
/* Another text for the token with this id; the old one lives for overlap_ms. -ENOENT. */
WEIR_SUSPENDS int tokens_rotate(struct tokens *tokens, const char *id, int64_t overlap_ms,
                                int64_t now_ms, char ret_text[TOKEN_TEXT_BYTES]);
WEIR_SUSPENDS int tokens_drop(struct tokens *tokens, const char *id, int64_t now_ms);
/* Whether there is one, or was, or a file for them is there: then everybody needs one, also when
 * all have been dropped or have expired since. Never suspends. */
bool tokens_are_kept(struct tokens *tokens);
/* Those that live, oldest first: how many. */
size_t tokens_list(struct tokens *tokens, const struct token **ret_tokens, size_t max);

#endif
