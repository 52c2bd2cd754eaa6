/* service.h - the parts of the service, made once and handed on by reference. */
#ifndef SEARCH_SERVICE_H
#define SEARCH_SERVICE_H

#include <stdbool.h>
#include <weir/weir.h>

#include "clients.h"
#include "naive.h"
#include "path.h"
#include "upstream.h"

struct service {
    /* What it is told: by its command line, or by a test. */
    int port, admin_port, line_ms, idle_ms, no_titles;
    const char *listen_host, *upstream_address;
    enum naive naive;
    /* Whoever wants to see its figures; in its scope, when all else is there. Or NULL. */
    int (*watch_open)(weir_scope *scope, struct service *keep_service);
    void (*on_open)(const struct service *service); /* it listens now; or NULL */

    struct clients clients;
    struct clients_figures figures;
    struct upstream index, titles;
    struct path_deps deps;
    struct path path;
    struct naive_queue queue;
    struct naive_threads threads;
    weir_listener *admin_listener;
    char address[WEIR_ADDRESS_TEXT_MAX], admin_address[WEIR_ADDRESS_TEXT_MAX];
};

/* service_run - serve clients until the scope of the calling task is stopped, answer what was
 * accepted, and close everything. 0, or why it could not go on, or WEIR_ECANCELED if something was
 * cut off. For a service that is all zero but for what it is told, and the numbers of `deps`. */
WEIR_MUST_USE int service_run(struct service *service);

/* service_queued - requests that wait to be worked on, whichever way they are. */
size_t service_queued(struct service *service);

/* admin_serve - a task: answer GET /metrics, /map and /health until the scope is stopped. The
 * argument is a pointer to a pointer to the service. */
int admin_serve(void *arg);

/* live_open - a watch_open: show figures once a second, in place on a terminal, else a line each.
 * Errors of weir_timer_open. */
WEIR_MUST_USE int live_open(weir_scope *scope, struct service *keep_service);

#endif
