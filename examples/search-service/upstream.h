/* upstream.h - the client of the upstream: kept connections, one question at a time on each.
 *
 * Who asks brings its own deadline. A connection whose answer did not come, or was no answer, is
 * closed: what arrives on it later must not be taken for the answer to the next question. At most
 * UPSTREAM_IDLE_MAX connections are kept; how many there are at a time is up to whoever limits the
 * callers.
 */
#ifndef SEARCH_UPSTREAM_H
#define SEARCH_UPSTREAM_H

#include <pthread.h>
#include <stdatomic.h>
#include <weir/weir.h>

#include "search.h"

enum { UPSTREAM_IDLE_MAX = 64 };

struct upstream {
    const char *address;
    atomic_ulong asked, connected, failed;
    pthread_mutex_t lock; /* of what follows; never held while something is waited for */
    int idle_count;
    weir_conn *idle[UPSTREAM_IDLE_MAX];
};

/* upstream_init, upstream_deinit - the second one in a task of the runtime, when nobody asks any
 * more: it closes the connections that were kept. */
void upstream_init(struct upstream *upstream, const char *keep_address);
void upstream_deinit(struct upstream *upstream);

/* upstream_fetch - the documents for the words of a search. Errors: those of connecting, sending
 * and reading; WEIR_ECLOSED (hung up), -EREMOTEIO (it says that it has failed), WEIR_EPROTOCOL
 * (what it says is no answer). */
WEIR_MUST_USE int upstream_fetch(struct upstream *upstream, struct search *search);

/* upstream_titles - titles for the hits that are shown. Errors as upstream_fetch. */
WEIR_MUST_USE int upstream_titles(struct upstream *upstream, struct search *search);

/* search_read_documents, search_read_titles - the two answers, into a search; false: it is none. */
bool search_read_documents(char *line, struct search *search);
bool search_read_titles(char *line, struct search *search);

/* search_ask_titles - the question for them, its end included. */
void search_ask_titles(const struct search *search, char *line, size_t bytes);

#endif
