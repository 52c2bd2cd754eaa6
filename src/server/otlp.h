/* otlp.h - spans to a collector: OTLP in JSON, by HTTP/1.1 POST.
 *
 * Owner: whoever opens it, for longer than the runtime. Lifetime: until otlp_close. Backpressure:
 * the library keeps so many spans (weir/trace.h: buffer_max) and drops more; one batch is under way
 * at a time. Failure: a batch that is not taken within its timeout is lost and counted by the
 * library, which goes on; the connection is made anew for the next.
 *
 * It blocks the thread of the library's that exports, and nobody else.
 * Threads: opened and closed by one, used by the library's.
 */
#ifndef WEIR_SERVER_OTLP_H
#define WEIR_SERVER_OTLP_H

#include <weir/net.h>
#include <weir/trace.h>

#include "base/atomic.h"

enum { OTLP_TEXT_BYTES = 256 };

struct otlp {
    weir_trace_exporter exporter;
    weir_address address;
    char host[OTLP_TEXT_BYTES], path[OTLP_TEXT_BYTES];
    int64_t timeout_ms;
    int fd; /* -1: not connected */
    ATOM(uint64_t) sent, lost;
};

/* "http://127.0.0.1:4318/v1/traces". 0, or WEIR_EREFUSED with a sentence in `ret_why`. */
int otlp_init(struct otlp *otlp, const char *url, int64_t timeout_ms, char *ret_why, size_t bytes);
void otlp_deinit(struct otlp *otlp);

#endif
