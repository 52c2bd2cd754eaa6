/* service_inside.h - what a service is inside.
 *
 *     OPEN ──told: close, dismissed──▶ TOLD ──its task has left──▶ ENDED
 *       └── cancelled, its scope stops ──────────────────────────────▲
 *
 * Its task is an attendant of the scope that owns it, and has a scope of its own in which the
 * tasks are that accept, and those of the sessions. Each worker has a ward: the sessions that are
 * on it, works that are free, and what is counted there.
 *
 * Invariants: sessions end before the service does, since they are tasks and idle waits of its
 * inner scope. The object's lock covers connections, addresses, state; a ward's lock its list of
 * sessions and of free works. Neither is held while the other is taken, and no meter is told under
 * them.
 */
#ifndef WEIR_SERVER_SERVICE_INSIDE_H
#define WEIR_SERVER_SERVICE_INSIDE_H

#include "flow/wait.h"
#include "proto/http_date.h"
#include "server/addresses.h"
#include "server/pack.h"
#include "server/service.h"
#include "server/session.h"
#include "watch/metrics.h"

enum { WORKS_KEPT_MAX = 64, NUMBERS_AT_A_TIME = 1024 };

enum service_state { SERVICE_OPEN, SERVICE_TOLD, SERVICE_ENDED };

/* Of one worker; written there only, and read by others. */
enum figure {
    FIGURE_SERVED,
    FIGURE_SHED,
    FIGURE_FAILED,
    FIGURE_TIMED_OUT,
    FIGURES,
};

struct ward {
    struct lock lock;
    bool shared;
    struct service *service;
    struct list sessions;
    struct work *free_works;
    unsigned free_work_count;
    unsigned warm; /* sessions that wait with a task: of this worker alone */
    ATOM(unsigned) requests;
    ATOM(uint64_t) figures[FIGURES];
    uint64_t number, number_end; /* of requests: a share of the process's */
    int64_t date_at_ns;
    char date[HTTP_DATE_BYTES];
    struct packer *packer; /* pack.h */
} __attribute__((aligned(64)));

struct service_socket {
    weir_listener *listener; /* NULL: nobody accepts any more */
    ATOM(unsigned) acceptors;
    weir_address bound;
    struct service_listener spec;
    char address[WEIR_ADDRESS_TEXT_MAX]; /* a copy, for the spec */
    bool per_worker;
    struct metered metered;
    struct service *service;
    ATOM(uint64_t) accepted, refused_total, refused_address, refused_other;
};

struct service {
    struct flow_object object;
    struct service_spec spec;
    weir_scope *inner;
    weir_limit *limit;
    weir_shed *shed;
    weir_semaphore *handshakes;     /* NULL: no listener has TLS */
    struct service_socket *sockets; /* one for each listener */
    struct ward *wards;             /* in ward_memory */
    void *ward_memory;
    unsigned ward_count;
    struct route_index routes; /* of spec.routes */
    struct metered metered;
    struct meter **route_meters; /* one for each route, and one for what has none */
    int64_t grace_ms;
    ATOM(uint64_t) bodies_bytes; /* that are held, of bodies_bytes_max */

    /* ---- covered by the object's lock ---- */
    enum service_state state;
    bool given_up;
    int result;
    weir_task task;
    struct list told;      /* its task waits here */
    struct list finishers; /* wait for its end */
    unsigned connections;
    uint64_t next_id;
    struct addresses addresses;
};

static inline void service_lock(struct service *service)
    LOCK_ACQUIRES(service->object.stable.lock, weir_no_park) LOCK_UNCHECKED
{
    flow_lock(&service->object);
    sanitize_acquire(service);
}

static inline void service_unlock(struct service *service)
    LOCK_RELEASES(service->object.stable.lock, weir_no_park) LOCK_UNCHECKED
{
    sanitize_release(service);
    flow_unlock(&service->object);
}

static inline void ward_lock(struct ward *ward)
    LOCK_ACQUIRES(ward->lock, weir_no_park) LOCK_UNCHECKED
{
    lock_acquire_if(&ward->lock, ward->shared);
}

static inline void ward_unlock(struct ward *ward)
    LOCK_RELEASES(ward->lock, weir_no_park) LOCK_UNCHECKED
{
    lock_release_if(&ward->lock, ward->shared);
}

/* Of the calling worker. */
static inline struct ward *ward_here(struct service *service)
{
    return &service->wards[worker_self()->index];
}

static inline void ward_count(struct ward *ward, enum figure figure)
{
    atom_store(&ward->figures[figure], atom_load(&ward->figures[figure]) + 1);
}

/* ---- accept.c ---- */

struct accept_arg {
    struct service *service;
    unsigned listener;
};
/* The task that accepts. */
int accept_main(void *arg);
/* A connection that was counted is gone. */
void accept_leave(struct service *service, uint64_t address, bool address_counted);

#endif
