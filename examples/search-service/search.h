/* search.h - one search on its way: what was asked, what was found, what is answered.
 *
 *     SEARCH id words...        ok id document=score:title ...
 *                               partial id enrich document=score:title ...
 *                               error id code sentence
 *
 * An id is what the client calls the request: up to 31 printable characters without a space.
 * Answers come as they are ready, so ids tell them apart. Nothing here waits or has a lock.
 */
#ifndef SEARCH_SEARCH_H
#define SEARCH_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SEARCH_ID_BYTES = 32,
    SEARCH_WORDS_BYTES = 200,
    SEARCH_WORDS_MAX = 8,
    SEARCH_HITS_MAX = 8,
    SEARCH_SHOWN = 3, /* hits that an answer has */
    SEARCH_TITLE_BYTES = 32,
};

/* What is answered; names and sentences in search.c. */
enum search_code {
    SEARCH_OK,
    SEARCH_PARTIAL,
    SEARCH_BAD_REQUEST,
    SEARCH_TOO_LONG,
    SEARCH_OVERLOAD,    /* a queue is full */
    SEARCH_SHED,        /* the queue has been too slow for too long */
    SEARCH_UNAVAILABLE, /* the breaker is open: the upstream was not even asked */
    SEARCH_UPSTREAM,    /* the upstream has failed, as often as it was asked */
    SEARCH_TIMEOUT,     /* the budget is used up, or a stage's timeout */
    SEARCH_STOPPING,
    SEARCH_INTERNAL,
    SEARCH_CODES,
};

struct search_hit {
    int document, score;
    char title[SEARCH_TITLE_BYTES];
};

/* An item of the pipeline: plain bytes, copied from stage to stage. */
struct search {
    char id[SEARCH_ID_BYTES];
    char words[SEARCH_WORDS_BYTES]; /* lower case, one space between two */
    int hit_count;
    struct search_hit hits[SEARCH_HITS_MAX];
};

/* search_code_name - "ok", "overload", ... */
const char *search_code_name(enum search_code code);

/* search_was_accepted - whether the request was let in: it was worked on, well or not. */
bool search_was_accepted(enum search_code code);

/* search_read - the id and the words of a line. Returns false if it is no request; then the id may
 * be there, or is "-". */
bool search_read(const char *line, struct search *ret_search);

/* search_normalize - words as the index has them. Returns 0, or -EBADMSG if none is left. */
int search_normalize(struct search *search);

/* search_rank - score the hits, best first, which costs `cost_us` of a processor: this stands for a
 * model. `time_us` says how much of it was used. Gives up early when `told` says that nobody wants
 * it any more. */
void search_rank(struct search *search, int cost_us, int64_t (*time_us)(void), bool (*told)(void));

/* search_thread_time_us - how long the calling thread has computed. */
int64_t search_thread_time_us(void);

/* search_title_all - a title for each hit that an answer shows: what is known without asking. */
void search_title_all(struct search *search);

/* search_answer - the line that answers, its end included. Returns its length. */
size_t search_answer(const struct search *search, enum search_code code, char *line, size_t bytes);

#endif
