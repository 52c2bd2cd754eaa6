/* http_meters.c - the tables of what is shown, and who is asked for it. */
#include "server/http_meters.h"

#include <stdio.h>

#include "rt/mem.h"

/* ---- Routes ---- */

enum { ROUTE_2XX, ROUTE_3XX, ROUTE_4XX, ROUTE_5XX, ROUTE_VALUES };
enum { ROUTE_SECONDS };

#define REQUESTS "weir_http_requests_total", "Requests that were answered.", METER_COUNTER, 0, false
static const struct meter_value route_values[ROUTE_VALUES] = {
    [ROUTE_2XX] = {REQUESTS, "status", "2xx"},
    [ROUTE_3XX] = {REQUESTS, "status", "3xx"},
    [ROUTE_4XX] = {REQUESTS, "status", "4xx"},
    [ROUTE_5XX] = {REQUESTS, "status", "5xx"},
};

static const struct meter_histogram route_histograms[] = {
    [ROUTE_SECONDS] = {"weir_http_request_seconds",
                       "From the first byte of a request to the last of its answer."},
};

static const struct meter_kind route_kind = {
    .labels = {"route"},
    .values = route_values,
    .value_count = ROUTE_VALUES,
    .histograms = route_histograms,
    .histogram_count = 1,
};

void http_meters_answered(struct service *service, const struct route *route, unsigned status,
                          int64_t ns)
{
    size_t index = route ? (size_t)(route - service->spec.routes.at) : service->spec.routes.count;
    unsigned value = status / 100 > 5 || status / 100 < 2 ? ROUTE_5XX : status / 100 - 2;

    if (!service->route_meters) return;
    meter_count(service->route_meters[index], value, 1);
    meter_observe(service->route_meters[index], ROUTE_SECONDS, ns);
}

static void open_routes(struct service *service)
{
    size_t count = service->spec.routes.count;

    service->route_meters = mem_alloc_zeroed((count + 1) * sizeof service->route_meters[0]);
    if (!service->route_meters) return;
    for (size_t i = 0; i < count; i++) {
        const struct route *route = &service->spec.routes.at[i];
        char name[METER_NAME_BYTES];

        (void)snprintf(name, sizeof name, "%s %s", http_method_name(route->method), route->path);
        service->route_meters[i] = meter_get(&route_kind, name, NULL);
    }
    service->route_meters[count] = meter_get(&route_kind, "none", NULL);
}

/* ---- Listeners ---- */

enum {
    LISTENER_IDLE,
    LISTENER_READING,
    LISTENER_SERVING,
    LISTENER_WRITING,
    LISTENER_ACCEPTED,
    LISTENER_REFUSED_TOTAL,
    LISTENER_REFUSED_ADDRESS,
    LISTENER_REFUSED_OTHER,
    LISTENER_VALUES,
};

static const unsigned value_of_state[SESSION_STATES] = {
    [SESSION_NEW] = LISTENER_IDLE,        [SESSION_IDLE] = LISTENER_IDLE,
    [SESSION_READING] = LISTENER_READING, [SESSION_SERVING] = LISTENER_SERVING,
    [SESSION_WRITING] = LISTENER_WRITING, [SESSION_CLOSED] = LISTENER_IDLE,
};

static void collect_listener(struct metered *object, uint64_t *values)
{
    struct service_socket *socket = container_of(object, struct service_socket, metered);
    struct service *service = socket->service;

    for (unsigned i = 0; i < service->ward_count; i++) {
        struct ward *ward = &service->wards[i];
        struct list *node;

        ward_lock(ward);
        for (node = ward->sessions.next; node != &ward->sessions; node = node->next) {
            const struct session *session = container_of(node, struct session, node);
            if (&service->sockets[session->listener] != socket) continue;
            values[value_of_state[atom_load(&session->state)]]++;
        }
        ward_unlock(ward);
    }
    values[LISTENER_ACCEPTED] = atom_load(&socket->accepted);
    values[LISTENER_REFUSED_TOTAL] = atom_load(&socket->refused_total);
    values[LISTENER_REFUSED_ADDRESS] = atom_load(&socket->refused_address);
    values[LISTENER_REFUSED_OTHER] = atom_load(&socket->refused_other);
}

#define CONNECTIONS \
    "weir_http_connections", "Connections by what they do.", METER_GAUGE, 0, false, "state"
#define REFUSED \
    "weir_http_refused_total", "Connections that were refused.", METER_COUNTER, 0, false, "reason"
static const struct meter_value listener_values[LISTENER_VALUES] = {
    [LISTENER_IDLE] = {CONNECTIONS, "idle"},
    [LISTENER_READING] = {CONNECTIONS, "reading"},
    [LISTENER_SERVING] = {CONNECTIONS, "serving"},
    [LISTENER_WRITING] = {CONNECTIONS, "writing"},
    [LISTENER_ACCEPTED] = {"weir_http_accepted_total", "Connections that have come.",
                           METER_COUNTER},
    [LISTENER_REFUSED_TOTAL] = {REFUSED, "total"},
    [LISTENER_REFUSED_ADDRESS] = {REFUSED, "address"},
    [LISTENER_REFUSED_OTHER] = {REFUSED, "resources"},
};

static const struct meter_kind listener_kind = {
    .labels = {"listener"},
    .values = listener_values,
    .value_count = LISTENER_VALUES,
    .collect = collect_listener,
};

/* ---- The service ---- */

enum { SERVICE_REQUESTS, SERVICE_SHED, SERVICE_TIMEOUTS, SERVICE_VALUES };

static void collect_service(struct metered *object, uint64_t *values)
{
    struct service *service = container_of(object, struct service, metered);

    for (unsigned i = 0; i < service->ward_count; i++) {
        struct ward *ward = &service->wards[i];

        values[SERVICE_REQUESTS] += atom_load(&ward->requests);
        values[SERVICE_SHED] += atom_load(&ward->figures[FIGURE_SHED]);
        values[SERVICE_TIMEOUTS] += atom_load(&ward->figures[FIGURE_TIMED_OUT]);
    }
}

static const struct meter_value service_values[SERVICE_VALUES] = {
    [SERVICE_REQUESTS] = {"weir_http_requests_under_way", "Requests that are being served.",
                          METER_GAUGE},
    [SERVICE_SHED] = {"weir_http_shed_total", "Requests that were shed.", METER_COUNTER},
    [SERVICE_TIMEOUTS] = {"weir_http_timeouts_total",
                          "Clients that were too slow: heads, bodies, answers, handshakes.",
                          METER_COUNTER},
};

static const struct meter_kind service_kind = {
    .labels = {"service"},
    .values = service_values,
    .value_count = SERVICE_VALUES,
    .collect = collect_service,
};

void http_meters_open(struct service *service)
{
    open_routes(service);
    for (unsigned i = 0; i < service->spec.listener_count; i++) {
        struct service_socket *socket = &service->sockets[i];
        meter_enter(&socket->metered, meter_get(&listener_kind, socket->address, NULL));
    }
    meter_enter(&service->metered, meter_get(&service_kind, service->object.name, NULL));
}

void http_meters_close(struct service *service)
{
    for (unsigned i = 0; i < service->spec.listener_count; i++) {
        meter_leave(&service->sockets[i].metered);
    }
    meter_leave(&service->metered);
    mem_free(service->route_meters);
}
