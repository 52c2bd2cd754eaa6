/* upstream_server.h - what the search service depends on: slow, and at times failing.
 *
 * It works on `slots` requests at a time; the others wait for their turn, also those whose client
 * has gone away meanwhile: it cannot know. So it has a capacity (slots / latency), and a client
 * that gives up and asks again makes work for it twice. That is what retries without a budget run
 * into.
 *
 *     FETCH words...      DOCS d12 d7 ...         (or ERR sentence)
 *     TITLES d12 d7 ...   TITLES A_b C_d ...
 *
 * Its behaviour is changed by lines to the control port, each answered by one line:
 *     latency MS | jitter MS | fail PERCENT | mode ok|hang|reset|garbage | details ok|fail|hang
 *     outage on|off (hang, until off) | figures
 */
#ifndef SEARCH_UPSTREAM_SERVER_H
#define SEARCH_UPSTREAM_SERVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <weir/weir.h>

struct upstream_server {
    /* What it is told: by its command line, or by a test. */
    int port, control_port, slots_count, latency_ms_first, jitter_ms_first;
    const char *listen_host;
    void (*on_listen)(const char *what, const char *address); /* "control", "listening"; or NULL */

    atomic_int mode, latency_ms, jitter_ms, fail_percent; /* now */
    atomic_bool details_fail;
    weir_listener *listener, *control_listener;
    weir_semaphore *slots;
    weir_event *awake;   /* not set: whoever has a slot hangs */
    weir_event *titling; /* likewise, for titles */
    atomic_ulong visits, asked, answered, failed, waiting;
};

/* upstream_server_run - answer until the scope of the calling task is stopped. 0, or why it could
 * not begin. For one that is all zero but for what it is told. */
WEIR_MUST_USE int upstream_server_run(struct upstream_server *upstream);

#endif
