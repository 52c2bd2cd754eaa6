/* service.c - the service: what it is made of, opened and closed in order. */
#include "service.h"

#include <stdio.h>

enum { SERVICE_TASKS_MAX = 128 };

size_t service_queued(struct service *service)
{
    size_t queued = naive_queue_length(&service->queue) + (size_t)service->threads.threads;

    for (unsigned i = 0; service->path.pipeline && i < PATH_STAGES; i++) {
        weir_stage_figures figures;
        if (weir_pipeline_stage_figures(service->path.pipeline, i, &figures) == 0)
            queued += figures.depth;
    }
    return queued;
}

static int listen_on(const char *host, int port, weir_listener **ret_listener, char *text)
{
    weir_address bound;
    int r;

    (void)snprintf(text, WEIR_ADDRESS_TEXT_MAX, "tcp:%s:%d", host, port);
    r = weir_listen(&(weir_listen_spec){.address = text}, ret_listener);
    if (r < 0) fprintf(stderr, "search-service: %s: %s\n", text, weir_strerror(r));
    if (r < 0) return r;
    if (weir_listener_address(*ret_listener, &bound) == 0)
        (void)weir_address_format(&bound, text, WEIR_ADDRESS_TEXT_MAX);
    return 0;
}

static int open_way(weir_scope *scope, struct service *service)
{
    struct clients *clients = &service->clients;

    clients->requests_max = REQUESTS_OF_CLIENT_MAX;
    if (service->naive == NAIVE_UNBOUNDED_QUEUE) {
        clients->requests_max = 1000000;
        clients->search = naive_queue_search;
        clients->keep_arg = &service->queue;
        return naive_queue_open(scope, &service->deps, &service->queue);
    }
    if (service->naive == NAIVE_THREAD_PER_REQUEST) return 0;
    clients->search = path_search;
    clients->keep_arg = &service->path;
    return path_open(scope, &service->deps, &service->path);
}

static int start_threads(struct service *service)
{
    int port = 0;
    int r;

    service->threads.upstream_address = service->upstream_address;
    service->threads.rank_us = service->deps.rank_us;
    service->threads.time_us = service->deps.time_us;
    service->threads.figures = &service->figures;
    service->threads.asked = &service->index.asked;
    r = naive_threads_start(&service->threads, service->port, &port);
    (void)snprintf(service->address, sizeof service->address, "tcp:127.0.0.1:%d", port);
    return r;
}

static int open_all(weir_scope *scope, struct service *service)
{
    int r = listen_on(service->listen_host, service->admin_port, &service->admin_listener,
                      service->admin_address);

    if (r == 0)
        r = service->naive == NAIVE_THREAD_PER_REQUEST
                ? start_threads(service)
                : listen_on(service->listen_host, service->port, &service->clients.listener,
                            service->address);
    if (r == 0) r = open_way(scope, service);
    if (r == 0) r = weir_spawn(scope, admin_serve, &service, sizeof service);
    if (r == 0 && service->watch_open) r = service->watch_open(scope, service);
    return r;
}

/* The scope of the pipeline is around the one of the clients: when it ends, nobody is in it. */
int service_run(struct service *service)
{
    int result;

    service->clients.figures = &service->figures;
    service->clients.line_ms = service->line_ms;
    service->clients.idle_ms = service->idle_ms;
    upstream_init(&service->index, service->upstream_address);
    upstream_init(&service->titles, service->upstream_address);
    service->deps.index = &service->index;
    service->deps.titles = service->no_titles ? NULL : &service->titles;
    service->deps.retry_without_budget = service->naive == NAIVE_RETRY_WITHOUT_BUDGET;
    WEIR_SCOPE(scope, &result, .name = "service", .on_failure = WEIR_FAIL_FAST,
               .max_tasks = SERVICE_TASKS_MAX, .overflow = WEIR_REJECT) {
        int r = open_all(scope, service);
        if (r == 0 && service->on_open) service->on_open(service);
        if (r == 0 && service->clients.listener) r = clients_serve(&service->clients);
        if (r < 0) weir_scope_cancel(scope, r, "the service could not go on");
    }
    if (service->naive == NAIVE_THREAD_PER_REQUEST && service->threads.acceptor)
        naive_threads_stop(&service->threads);
    weir_listener_close(service->clients.listener);
    weir_listener_close(service->admin_listener);
    upstream_deinit(&service->index);
    upstream_deinit(&service->titles);
    return result;
}
