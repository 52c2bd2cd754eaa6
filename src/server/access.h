/* access.h - a request as one line of a log (log.access = on).
 *
 *     msg=request method=POST route=/v1/queues/{queue}/pause status=204 bytes=0 ms=3
 *     peer=tcp:127.0.0.1:40112 request=17 who="a name"
 *
 * The route, never the path: that is the client's to say, and may hold what is nobody's business.
 * Who it was is the name of a token, never its text.
 *
 * Invariants: the fields have no control characters, no quotes and nothing beyond ASCII, whatever a
 * client has sent: those are escaped as \xNN.
 * Threads: the task of the request; from the hook `done`.
 */
#ifndef WEIR_SERVER_ACCESS_H
#define WEIR_SERVER_ACCESS_H

#include "server/exchange.h"
#include "server/log_sink.h"

enum { ACCESS_FIELDS_MAX = 9, ACCESS_WHO_BYTES = 128 };

struct access {
    struct log_field fields[ACCESS_FIELDS_MAX];
    size_t count;
    char who[ACCESS_WHO_BYTES];
};

/* `who` may be NULL. Valid as long as the exchange is. */
void access_fields(const struct exchange *x, uint64_t sent_bytes, int error, const char *who,
                   struct access *ret_access);
/* Text of a client's, escaped and cut to fit; always terminated. */
size_t access_escape(struct bytes text, char *out, size_t out_bytes);

#endif
