/* serve.h - `weir serve`: from settings to a running server, and back to nothing.
 *
 *     settings ─▶ folders ─▶ sandbox ─▶ runtime ─▶ store ─▶ tokens, audit ─▶ listeners ─▶ READY
 *     TERM ─▶ STOPPING: no new connection, /readyz says no ─▶ requests end, or the budget does ─▶
 *     audit, store closed: all is on disk ─▶ report ─▶ exit status
 *
 * Owner: the process. Failure: what cannot be opened ends it, with a sentence and nothing half
 * open; a listener or connection that fails later is its own matter (service.h).
 * Threads: the only one, before the runtime starts.
 */
#ifndef WEIR_SERVER_SERVE_H
#define WEIR_SERVER_SERVE_H

#include "server/config.h"

enum serve_end {
    SERVE_DRAINED,   /* all that was under way has ended */
    SERVE_FAILED,    /* it could not start, or has failed */
    SERVE_CUT_OFF,   /* the drain's budget was over */
    SERVE_ENDED_NOW, /* a second signal */
    SERVE_REFUSED,   /* the settings do not go together */
};

struct serve_spec {
    struct config *config; /* changed by a reload */
    /* Reads all settings again, for HUP; NULL: no memory. The server frees it. */
    struct config *(*reread)(void *arg);
    void *reread_arg;
    bool demo;
};

enum serve_end serve(const struct serve_spec *spec);

#endif
