/* stream.c - bytes in and out of a connection, plain or by TLS. */
#include <errno.h>

#include "server/service_inside.h"
#include "server/tls.h"

ssize_t stream_read(struct session *session, void *data, size_t bytes)
{
    if (session->tls) return tls_read(session, data, bytes);
    return weir_conn_read(session->conn, data, bytes);
}

/* The first `moved` bytes are gone: which part is the next? */
static int advance(struct iovec **parts, int count, size_t moved)
{
    while (count > 0 && moved >= (*parts)->iov_len) {
        moved -= (*parts)->iov_len;
        (*parts)++;
        count--;
    }
    if (count > 0) {
        (*parts)->iov_base = (char *)(*parts)->iov_base + moved;
        (*parts)->iov_len -= moved;
    }
    return count;
}

/* Nearly always the system takes all of it at once: then no deadline is needed, and a cancel of
 * what is over already does not cut the answer off. */
static ssize_t try_at_once(const struct session *session, struct iovec *parts, int count)
{
    const struct kernel *kernel = worker_self()->kernel;
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};

    if (count == 1) {
        return kernel->send(kernel, session->fd, parts->iov_base, parts->iov_len, MSG_DONTWAIT);
    }
    return kernel->sendmsg(kernel, session->fd, &message, MSG_DONTWAIT);
}

int stream_write_plain(struct session *session, struct iovec *parts, int count)
{
    ssize_t n = try_at_once(session, parts, count);

    for (;;) {
        if (n >= 0) {
            session->work->sent_bytes += (size_t)n;
            count = advance(&parts, count, (size_t)n);
        } else if (n != -EAGAIN && n != -EINTR) {
            return (int)n;
        }
        if (count == 0) return 0;
        WEIR_DEADLINE(session->service->spec.limits.write_ms) {
            n = weir_conn_writev(session->conn, parts, count);
        }
        if (n == WEIR_ETIMEDOUT) ward_count(session->ward, FIGURE_TIMED_OUT);
    }
}

int stream_write(struct session *session, struct iovec *parts, int count)
{
    count = advance(&parts, count, 0); /* an empty one at the front is none */
    if (count == 0) return 0;
    if (session->tls) return tls_write(session, parts, count);
    return stream_write_plain(session, parts, count);
}

void stream_linger(struct session *session)
{
    struct work *work = session->work;
    size_t dropped = 0;

    if (session->tls && session->handshake_done) tls_say_end(session);
    if (weir_conn_shutdown(session->conn, SHUT_WR) < 0) return;
    WEIR_DEADLINE(LINGER_MS) {
        while (dropped < LINGER_BYTES_MAX) {
            ssize_t n = weir_conn_read(session->conn, work->in, sizeof work->in);
            if (n <= 0) break;
            dropped += (size_t)n;
        }
    }
}
