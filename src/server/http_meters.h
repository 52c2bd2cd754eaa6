/* http_meters.h - what a service measures (watch/metrics.h).
 *
 * By route: requests by class of status, and how long they took; the name is the route's pattern,
 * never a path, so that clients cannot make series. By listener: connections by what they do,
 * accepted and refused. By service: what was shed and what was too slow.
 *
 * Threads: opened and closed on the service's worker; counted on any.
 */
#ifndef WEIR_SERVER_HTTP_METERS_H
#define WEIR_SERVER_HTTP_METERS_H

#include "server/service_inside.h"

/* Failure is not one: what has no memory is not measured. */
void http_meters_open(struct service *service);
void http_meters_close(struct service *service);

/* A request was answered with this status, `ns` after its first byte. NULL: it has no route. */
void http_meters_answered(struct service *service, const struct route *route, unsigned status,
                          int64_t ns);

#endif
