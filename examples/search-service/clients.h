/* clients.h - the side of the service that clients see: connections, lines in, lines out.
 *
 * A connection is a scope of its own: a task that reads, a task that writes, and one for each
 * request that is being worked on, so answers come as they are ready. Everything has a bound: the
 * connections, the requests of one, the answers that wait to be written, the time in which a line
 * has to be complete and in which answers have to be taken.
 *
 * A request is accepted when its line has been read. Then it gets exactly one answer, whatever
 * happens to the service: when it is stopped, connections are read no further, what was accepted is
 * answered, and only then does a client see the end of the stream.
 */
#ifndef SEARCH_CLIENTS_H
#define SEARCH_CLIENTS_H

#include <stdatomic.h>
#include <weir/weir.h>

#include "path.h"
#include "search.h"

enum {
    CLIENTS_MAX = 512,            /* connections at a time */
    REQUESTS_OF_CLIENT_MAX = 128, /* more are not read before one is answered */
    ANSWERS_OF_CLIENT_MAX = 32,   /* that wait to be written, */
    CLIENT_BUFFER_BYTES = 65536,  /* or are the system's and not yet taken */
    CLIENTS_DRAIN_MS = 3000,
};

struct clients_figures {
    atomic_ulong open, refused, accepted, answered[SEARCH_CODES], unanswered;
    atomic_llong slowest_ns; /* from the line that was read to the answer, of all so far */
};

struct clients {
    weir_listener *listener;
    search_fn search;
    void *keep_arg; /* of search */
    size_t requests_max;
    int line_ms; /* for a line to be complete, and for answers to be taken */
    int idle_ms; /* between two requests */
    weir_event *closing;
    struct clients_figures *figures;
};

/* clients_serve - accept until the scope of the calling task is stopped, then answer what was
 * accepted, and return. 0, or WEIR_ECANCELED if some of it was cut off. */
WEIR_MUST_USE int clients_serve(struct clients *clients);

#endif
