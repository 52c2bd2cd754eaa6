/* service.c - a service: opened, stopped, closed; what it shows of itself. */
#include "server/service.h"

#include <errno.h>
#include <stdio.h>

#include "rt/mem.h"
#include "server/http_meters.h"
#include "server/service_inside.h"

/* Steps of handshakes in one round of a worker: more would keep all others waiting. */
enum { HANDSHAKES_PER_WORKER = 2 };

const struct service_limits SERVICE_LIMITS_DEFAULT = {
    .http = {.line_bytes_max = 8 * 1024,
             .head_bytes_max = 16 * 1024,
             .field_count_max = 100,
             .body_bytes_max = 64 << 20,
             .chunk_line_bytes_max = 256,
             .trailer_bytes_max = 4 * 1024},
    .connections_max = 4096,
    .connections_per_address_max = 1024,
    .requests_max = 1024,
    .requests_per_connection_max = 0,
    .head_ms = 10 * 1000,
    .body_ms = 10 * 1000,
    .body_bytes_per_s_min = 1024,
    .idle_ms = 75 * 1000,
    .write_ms = 10 * 1000,
    .tls_ms = 5 * 1000,
    .answer_bytes_max = 16 << 20,
    .bodies_bytes_max = 64 << 20,
    .shed_target_ms = 50,
    .shed_interval_ms = 500,
};

/* ---- Its task ---- */

static const struct wait_kind wait_told = {
    .name = "service",
    .takes_work = true,
    .abort = waiter_abort,
    .describe = waiter_describe,
    .what = WAIT_FOR_END,
    .ends = ENDS_OUTSIDE,
    .facts = waiter_facts,
};

/* Until it is to end: told so, or by its scope. */
static void wait_until_told(struct service *service, struct task *self)
{
    struct waiter waiter;

    WEIR_NO_DEADLINE("a service lasts as long as its owner wants it") {
        if (task_enter(self, ENTER_TAKE_WORK) < 0) break;
        waiter_init(&waiter, self, &service->object, NULL, 0);
        service_lock(service);
        if (service->state == SERVICE_OPEN) {
            list_add_tail(&service->told, &waiter.node);
            service_unlock(service);
            (void)waiter_park(self, &waiter, &wait_told);
        } else {
            service_unlock(service);
        }
    }
}

static int spawn_acceptors(struct service *service)
{
    unsigned workers = service->ward_count;
    int r = 0;

    for (unsigned i = 0; workers > 0 && i < service->spec.listener_count && r == 0; i++) {
        unsigned count = service->sockets[i].per_worker ? workers : 1;

        atom_store(&service->sockets[i].acceptors, count);
        for (unsigned worker = 0; worker < count && r == 0; worker++) {
            struct accept_arg arg = {service, i};
            const weir_task_spec spec = {.fn = accept_main,
                                         .arg = &arg,
                                         .arg_bytes = sizeof arg,
                                         .name = "accept",
                                         .place = WEIR_PLACE_WORKER,
                                         .worker = (int)(count > 1 ? worker : i % workers)};
            r = weir_task_spawn(service->inner, &spec, NULL);
        }
    }
    return r;
}

/* Those that wait for a request have nothing to finish. */
static void end_idle_sessions(struct service *service)
{
    for (unsigned i = 0; i < service->ward_count; i++) {
        struct ward *ward = &service->wards[i];
        struct list *node;

        ward_lock(ward);
        for (node = ward->sessions.next; node != &ward->sessions; node = node->next) {
            session_end_if_idle(container_of(node, struct session, node));
        }
        ward_unlock(ward);
    }
}

static int live(struct service *service, struct task *self)
{
    const struct service_limits *limits = &service->spec.limits;
    size_t acceptors = service->spec.listener_count * service->ward_count;
    int r = 0;

    WEIR_SCOPE(scope, &r, .name = service->object.name, .on_failure = WEIR_COLLECT,
               .max_tasks = limits->connections_max + acceptors, .overflow = WEIR_REJECT) {
        service->inner = scope;
        r = spawn_acceptors(service);
        if (r == 0) wait_until_told(service, self);
        weir_scope_stop(scope, service->grace_ms);
        end_idle_sessions(service);
    }
    return r;
}

static void close_flow(struct service *service)
{
    weir_shed_close(service->shed);
    weir_limit_close(service->limit);
    weir_semaphore_close(service->handshakes);
}

/* It has ended: everybody who waits is told. True: it was given up, and the caller frees it; else
 * it may be gone at once. */
static bool end(struct service *service, int result)
{
    bool given_up;

    service_lock(service);
    service->state = SERVICE_ENDED;
    service->result = result;
    given_up = service->given_up;
    waiter_tell_all(&service->finishers, result);
    service_unlock(service);
    return given_up;
}

static int service_main(void *arg)
{
    struct service *service = *(struct service **)arg;
    struct belonging *belonging = &service->object.belonging;
    weir_scope *scope = belonging->scope;
    struct task *self = task_self();
    bool ended;
    int r;

    service_lock(service); /* it may be told to close already, from another worker */
    ended = service->state == SERVICE_ENDED;
    service_unlock(service);
    if (ended) return service->result; /* its scope supervises, in vain */
    scope_attend(belonging);
    service_lock(service);
    service->task = weir_task_self();
    service_unlock(service);
    r = live(service, self);
    close_flow(service);
    if (r == WEIR_ECANCELED) r = 0; /* the end of the grace: sessions were cut off */
    scope_attend_end(belonging);
    if (end(service, r)) {
        scope_lock(scope);
        belonging_mail(belonging, BELONGING_RELEASE);
        scope_unlock(scope);
    }
    return r;
}

/* ---- Belonging to a scope ---- */

static void close_sockets(struct service *service)
{
    if (!service->sockets) return;
    for (unsigned i = 0; i < service->spec.listener_count; i++) {
        weir_listener_close(service->sockets[i].listener);
    }
    mem_free(service->sockets);
}

static void free_wards(struct service *service)
{
    for (unsigned i = 0; i < service->ward_count; i++) {
        struct ward *ward = &service->wards[i];

        while (ward->free_works) {
            struct work *work = ward->free_works;
            ward->free_works = work->next;
            work_free(work);
        }
        packer_free(ward->packer);
        lock_deinit(&ward->lock);
    }
    mem_free(service->ward_memory);
}

/* All that it has but its memory. */
static void service_let_go(struct service *service)
{
    close_sockets(service);
    free_wards(service);
    addresses_deinit(&service->addresses);
    route_index_deinit(&service->routes);
}

static void service_release(struct worker *worker, struct belonging *belonging)
{
    struct service *service = container_of(belonging, struct service, object.belonging);

    (void)worker;
    /* The bit keeps others from posting mail; if some is under way, it comes back here. */
    if (atom_or(&belonging->mail_bits, BELONGING_RELEASE) != 0) return;
    http_meters_close(service);
    service_let_go(service);
    (void)scope_forget(belonging);
    flow_free(&service->object);
}

static void service_signalled(struct worker *worker, struct belonging *belonging, uint8_t signals)
{
    (void)worker, (void)belonging, (void)signals; /* its task is told by its scope */
}

/* The lock is held. */
static void tell_locked(struct service *service)
{
    if (service->state == SERVICE_OPEN) service->state = SERVICE_TOLD;
    waiter_wake_all(&service->told, 0);
}

static void service_dismissed(struct worker *worker, struct belonging *belonging)
{
    struct service *service = container_of(belonging, struct service, object.belonging);

    (void)worker;
    service_lock(service);
    tell_locked(service);
    service_unlock(service);
}

static void service_describe(const struct belonging *belonging, char *text, size_t bytes)
{
    const struct service *service =
        (const struct service *)(const void *)((const char *)belonging -
                                               offsetof(struct service, object.belonging));
    (void)snprintf(text, bytes, "'%s', %u connections%s", service->object.name,
                   service->connections, service->state == SERVICE_ENDED ? ", ended" : "");
}

static bool service_boundary(struct belonging *belonging, unsigned row,
                             struct boundary *ret_boundary)
{
    struct service *service = container_of(belonging, struct service, object.belonging);
    const struct service_limits *limits = &service->spec.limits;
    struct lock *lock = &service->object.stable.lock;
    bool shared = service->object.stable.shared;

    if (row > 0) return false;
    (void)snprintf(ret_boundary->name, sizeof ret_boundary->name, "%s", service->object.name);
    ret_boundary->lifetime = "until closed, or the scope ends";
    (void)snprintf(ret_boundary->bound, sizeof ret_boundary->bound,
                   "%u connections, %u of an address, %u requests", limits->connections_max,
                   limits->connections_per_address_max, limits->requests_max);
    ret_boundary->overflow = "connections are refused, requests are shed (503)";
    (void)snprintf(ret_boundary->failure, sizeof ret_boundary->failure,
                   "a connection's failure is its own");
    ret_boundary->meter = service->metered.meter;
    ret_boundary->wait_histogram = -1;
    ret_boundary->run_histogram = -1;
    if (!boundary_hold(lock, shared)) return true;
    boundary_figure(ret_boundary, "connections", service->connections);
    boundary_let_go(lock, shared);
    return true;
}

static const struct belonging_kind service_kind = {
    .name = "service",
    .signalled = service_signalled,
    .release = service_release,
    .describe = service_describe,
    .boundary = service_boundary,
    .dismissed = service_dismissed,
};

/* ---- Opening ---- */

static int check_limits(const char *name, const struct service_limits *limits)
{
    const struct {
        const char *name;
        bool said;
    } rows[] = {
        {"http", limits->http.line_bytes_max > 0 && limits->http.head_bytes_max > 0 &&
                     limits->http.field_count_max > 0 && limits->http.body_bytes_max > 0 &&
                     limits->http.chunk_line_bytes_max > 0 && limits->http.trailer_bytes_max > 0},
        {"connections_max", limits->connections_max > 0},
        {"connections_per_address_max", limits->connections_per_address_max > 0},
        {"requests_max", limits->requests_max > 0},
        {"head_ms", limits->head_ms > 0},
        {"body_ms", limits->body_ms > 0},
        {"body_bytes_per_s_min", limits->body_bytes_per_s_min > 0},
        {"idle_ms", limits->idle_ms > 0},
        {"write_ms", limits->write_ms > 0},
        {"tls_ms", limits->tls_ms > 0},
        {"answer_bytes_max", limits->answer_bytes_max > 0},
        {"bodies_bytes_max", limits->bodies_bytes_max > 0},
        {"shed_target_ms", limits->shed_target_ms > 0},
        {"shed_interval_ms", limits->shed_interval_ms >= limits->shed_target_ms},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!rows[i].said) return refuse("service '%s': limits.%s is not set", name, rows[i].name);
    }
    return 0;
}

static int check_routes(const char *name, struct routes routes)
{
    if (routes.count == 0) return refuse("service '%s': routes are not set", name);
    for (size_t i = 0; i < routes.count; i++) {
        const struct route *route = &routes.at[i];

        if (route->path && route->path[0] == '/' && route->serve && route->method != METHOD_NONE &&
            route->verb != VERB_UNSET && route->deadline_ms > 0) {
            continue;
        }
        return refuse("service '%s': route %zu (%s) lacks method, path, verb, serve or deadline_ms",
                      name, i, route->path ? route->path : "");
    }
    return 0;
}

static int check_listeners(const struct service_spec *spec)
{
    if (spec->listener_count == 0) return refuse("service '%s': listeners are not set", spec->name);
    if (spec->listener_count > SERVICE_LISTENERS_MAX) {
        return refuse("service '%s': more than %d listeners", spec->name, SERVICE_LISTENERS_MAX);
    }
    for (size_t i = 0; i < spec->listener_count; i++) {
        const struct service_listener *listener = &spec->listeners[i];

        if (!listener->address == !(listener->fd > 0)) {
            return refuse("service '%s': listener %zu has to have an address or a descriptor",
                          spec->name, i);
        }
        if (listener->tls && !spec->keep_tls) {
            return refuse("service '%s': listener %zu needs keep_tls", spec->name, i);
        }
    }
    return 0;
}

static int check_spec(const struct service_spec *spec)
{
    int r = flow_check_name("service", spec->name);

    if (r == 0) r = check_listeners(spec);
    if (r == 0) r = check_routes(spec->name, spec->routes);
    if (r == 0) r = check_limits(spec->name, &spec->limits);
    return r;
}

static int open_wards(struct service *service, weir_runtime *runtime)
{
    size_t bytes = runtime->worker_count * sizeof service->wards[0] + 63;

    service->ward_memory = mem_alloc_zeroed(bytes);
    if (!service->ward_memory) return -ENOMEM;
    service->wards = (struct ward *)(((uintptr_t)service->ward_memory + 63) & ~(uintptr_t)63);
    service->ward_count = runtime->worker_count;
    for (unsigned i = 0; i < service->ward_count; i++) {
        struct ward *ward = &service->wards[i];

        lock_init(&ward->lock);
        ward->shared = runtime->shared;
        ward->service = service;
        list_init(&ward->sessions);
    }
    return 0;
}

static int open_socket(struct service *service, unsigned index)
{
    struct service_socket *socket = &service->sockets[index];
    weir_listen_spec spec = {.address = socket->spec.address};
    weir_address *bound = &socket->bound;
    int r;

    socket->service = service;
    if (socket->spec.fd > 0) {
        r = weir_listener_from_fd(socket->spec.fd, &socket->listener);
    } else {
        r = weir_address_parse(socket->spec.address, bound);
        if (r < 0) return r;
        socket->per_worker = bound->transport == WEIR_TCP;
        spec.per_worker = socket->per_worker;
        r = weir_listen(&spec, &socket->listener);
    }
    if (r < 0) return r;
    (void)weir_listener_address(socket->listener, bound);
    (void)weir_address_format(bound, socket->address, sizeof socket->address);
    socket->spec.address = socket->address;
    return 0;
}

static int open_sockets(struct service *service)
{
    int r = 0;

    service->sockets = mem_alloc_zeroed(service->spec.listener_count * sizeof service->sockets[0]);
    if (!service->sockets) return -ENOMEM;
    for (unsigned i = 0; i < service->spec.listener_count && r == 0; i++) {
        service->sockets[i].spec = service->spec.listeners[i];
        r = open_socket(service, i);
    }
    service->spec.listeners = NULL; /* the caller's */
    return r;
}

/* So many at a time; as many again may wait for their turn. */
static int open_flow(struct service *service, weir_scope *scope)
{
    const struct service_limits *limits = &service->spec.limits;
    const char *name = service->object.name;
    int r = weir_limit_open(scope,
                            &(weir_limit_spec){.name = name,
                                               .kind = WEIR_LIMIT_FIXED,
                                               .concurrency = limits->requests_max,
                                               .overflow = WEIR_WAIT,
                                               .waiters_max = limits->requests_max},
                            &service->limit);

    if (r < 0) return r;
    if (service->spec.keep_tls) {
        r = weir_semaphore_open(
            scope,
            &(weir_semaphore_spec){.name = name,
                                   .permits = HANDSHAKES_PER_WORKER * service->ward_count,
                                   .waiters_max = limits->connections_max,
                                   .overflow = WEIR_WAIT},
            &service->handshakes);
        if (r < 0) return r;
    }
    return weir_shed_open(scope,
                          &(weir_shed_spec){.name = name,
                                            .target_ms = limits->shed_target_ms,
                                            .interval_ms = limits->shed_interval_ms},
                          &service->shed);
}

/* How long what is under way may take, at most. */
static int64_t grace_of(const struct service_spec *spec)
{
    int64_t longest_ms = 0;

    for (size_t i = 0; i < spec->routes.count; i++) {
        int64_t ms = spec->routes.at[i].deadline_ms;
        if (ms > longest_ms) longest_ms = ms;
    }
    return longest_ms + spec->limits.head_ms + spec->limits.write_ms + LINGER_MS;
}

static int service_new(weir_scope *scope, const struct service_spec *spec,
                       struct service **ret_service)
{
    const struct kernel *kernel = worker_self()->kernel;
    struct service *service = flow_alloc(sizeof *service, spec->name);
    uint64_t seed = 0;
    int r;

    if (!service) return -ENOMEM;
    service->spec = *spec;
    service->spec.name = service->object.name;
    service->grace_ms = grace_of(spec);
    list_init(&service->told);
    list_init(&service->finishers);
    kernel->random(kernel, &seed, sizeof seed);
    r = addresses_init(&service->addresses, spec->limits.connections_max, seed);
    if (r == 0) r = route_index_init(&service->routes, spec->routes);
    if (r == 0) r = open_wards(service, worker_self()->runtime);
    if (r == 0) r = open_flow(service, scope);
    if (r == 0) r = open_sockets(service);
    if (r < 0) {
        close_flow(service);
        service_let_go(service);
        flow_free(&service->object);
        return r;
    }
    *ret_service = service;
    return 0;
}

int service_open(weir_scope *scope, const struct service_spec *spec, struct service **ret_service)
{
    struct worker *worker = worker_self();
    struct service *service = NULL;
    weir_task_spec task;
    int r;

    if (!task_self()) return refuse_no_task("service_open");
    scope_check(scope, "service_open");
    r = check_spec(spec);
    if (r == 0) r = service_new(scope, spec, &service);
    if (r < 0 || !service) return r;
    r = scope_own(scope, worker, &service->object.belonging, &service_kind);
    if (r < 0) {
        close_flow(service);
        service_let_go(service);
        flow_free(&service->object);
        return r;
    }
    http_meters_open(service);
    task = (weir_task_spec){.fn = service_main,
                            .arg = &service,
                            .arg_bytes = sizeof service,
                            .name = service->object.name};
    r = weir_task_spawn(scope, &task, NULL);
    if (r < 0) {
        close_flow(service);
        service_release(worker, &service->object.belonging);
    } else {
        *ret_service = service;
    }
    return r;
}

/* ---- Closing and asking ---- */

/* No interruption ends it: the service's memory is in use. */
static const struct wait_kind wait_end = {
    .name = "service's end",
    .describe = waiter_describe,
    .what = WAIT_FOR_END,
    .ends = ENDS_OUTSIDE,
    .facts = waiter_facts,
};

/* It is told to end, and has; if it was given up before that it is gone then. True: it had ended
 * already. */
static bool end_and_wait(struct service *service, bool give_up, int *ret_result)
{
    struct task *self = task_self();
    struct waiter waiter;

    service_lock(service);
    tell_locked(service);
    if (give_up) service->given_up = true;
    if (service->state == SERVICE_ENDED) {
        *ret_result = service->result;
        service_unlock(service);
        return true;
    }
    waiter_init(&waiter, self, &service->object, ret_result, 0);
    list_add_tail(&service->finishers, &waiter.node);
    service_unlock(service);
    (void)waiter_park(self, &waiter, &wait_end);
    return false;
}

int service_stop(struct service *service)
{
    int result = 0;

    if (!task_self()) return refuse_no_task("service_stop");
    (void)end_and_wait(service, false, &result);
    return result;
}

int service_close(struct service *take_service)
{
    struct service *service = take_service;
    weir_scope *scope;
    int result = 0;

    if (!service) return 0;
    if (!task_self()) return refuse_no_task("service_close");
    scope = service->object.belonging.scope;
    if (end_and_wait(service, true, &result)) {
        scope_lock(scope);
        belonging_mail(&service->object.belonging, BELONGING_RELEASE);
        scope_unlock(scope);
    }
    return result;
}

int service_address(struct service *service, size_t listener, weir_address *ret_address)
{
    if (listener >= service->spec.listener_count) return refuse("service: no such listener");
    *ret_address = service->sockets[listener].bound;
    return 0;
}

void service_figures_of(struct service *service, struct service_figures *ret_figures)
{
    struct service_figures figures = {0};

    service_lock(service);
    figures.connections = service->connections;
    service_unlock(service);
    for (unsigned i = 0; i < service->spec.listener_count; i++) {
        figures.accepted += atom_load(&service->sockets[i].accepted);
        figures.refused_total += atom_load(&service->sockets[i].refused_total);
        figures.refused_total += atom_load(&service->sockets[i].refused_other);
        figures.refused_address += atom_load(&service->sockets[i].refused_address);
    }
    for (unsigned i = 0; i < service->ward_count; i++) {
        struct ward *ward = &service->wards[i];
        struct list *node;

        figures.requests += atom_load(&ward->requests);
        figures.served += atom_load(&ward->figures[FIGURE_SERVED]);
        figures.shed += atom_load(&ward->figures[FIGURE_SHED]);
        figures.failed += atom_load(&ward->figures[FIGURE_FAILED]);
        figures.timed_out += atom_load(&ward->figures[FIGURE_TIMED_OUT]);
        ward_lock(ward);
        for (node = ward->sessions.next; node != &ward->sessions; node = node->next) {
            const struct session *session = container_of(node, struct session, node);
            if (atom_load(&session->state) <= SESSION_IDLE) figures.connections_idle++;
        }
        ward_unlock(ward);
    }
    *ret_figures = figures;
}

static void describe(const struct session *session, int64_t now_ns, struct service_connection *ret)
{
    const struct route *route = atom_load(&session->route);

    *ret = (struct service_connection){.id = session->id,
                                       .tls = session->tls != NULL,
                                       .since_ms = (now_ns - session->since_ns) / 1000000,
                                       .requests = atom_load(&session->requests),
                                       .doing = session_doing(session)};
    (void)snprintf(ret->peer, sizeof ret->peer, "%s", session->peer);
    if (route) {
        (void)snprintf(ret->route, sizeof ret->route, "%s %s", http_method_name(route->method),
                       route->path);
    }
}

/* Sorted by id; the largest gives way when there is no room. */
static size_t insert(struct service_connection *rows, size_t count, size_t max,
                     const struct service_connection *row)
{
    size_t at = count;

    while (at > 0 && rows[at - 1].id > row->id) at--;
    if (at == max) return count;
    if (count == max) count--;
    memmove(rows + at + 1, rows + at, (count - at) * sizeof rows[0]);
    rows[at] = *row;
    return count + 1;
}

size_t service_connections(struct service *service, uint64_t after,
                           struct service_connection *ret_connections, size_t max)
{
    int64_t now_ns = weir_now_ns();
    size_t count = 0;

    for (unsigned i = 0; i < service->ward_count && max > 0; i++) {
        struct ward *ward = &service->wards[i];
        struct list *node;

        ward_lock(ward);
        for (node = ward->sessions.next; node != &ward->sessions; node = node->next) {
            const struct session *session = container_of(node, struct session, node);
            struct service_connection row;

            if (session->id <= after) continue;
            if (count == max && session->id > ret_connections[max - 1].id) continue;
            describe(session, now_ns, &row);
            count = insert(ret_connections, count, max, &row);
        }
        ward_unlock(ward);
    }
    return count;
}
