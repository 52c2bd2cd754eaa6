/* tokens_inside.h - tokens as their own files see them: rows, who failed, the file.
 *
 * Threads: `lock` guards live, count and peers; `changing` lets one at a time change rows or the
 * file.
 */
#ifndef WEIR_SERVER_TOKENS_INSIDE_H
#define WEIR_SERVER_TOKENS_INSIDE_H

#include "rt/lock.h"
#include "server/tokens.h"

enum {
    TOKENS_PEERS = 1024,  /* rows of those who failed: several peers may share one */
    TOKENS_FAILURES = 10, /* at once; then one a second */
    TOKENS_REFUSALS = 16, /* of a token that are noted at once; then one a minute */
    TOKENS_FILE_BYTES_MAX = 8 << 20,
};

struct token_peer {
    uint64_t hash;
    struct bucket bucket;
};

struct tokens {
    struct lock lock;
    struct token *live[TOKENS_MAX];
    unsigned count;
    struct token *all; /* that were made, for the end */
    unsigned made;
    struct token_peer peers[TOKENS_PEERS];
    weir_semaphore *changing;
    char path[4096]; /* "": only in memory */
    ATOM(bool) kept; /* there is one, or a file for them */
};

/* A row, zeroed and in nobody's sight yet; NULL: no memory, or too many. */
struct token *token_new(struct tokens *tokens);
void token_enlist(struct tokens *tokens, struct token *token);

/* The file, from the rows and into them. It is the caller's turn. What was read sets `kept`. */
WEIR_SUSPENDS int tokens_save(struct tokens *tokens);
WEIR_SUSPENDS int tokens_load(struct tokens *tokens);

#endif
