/* tls.h - TLS for connections that a service has accepted (OpenSSL 3, TLS 1.2 and 1.3).
 *
 *     r = tls_open(&(struct tls_spec){.certificate_path = ..., .key_path = ...}, &tls);
 *     r = tls_reload(tls);         the files have changed: what comes from now on gets the new ones
 *
 * Certificate and key are one value that is exchanged as a whole: a connection keeps what it began
 * with, and a reload that fails changes nothing.
 *
 * Owner: who opened it, which closes it after the services that use it. Lifetime: until tls_close;
 * connections that are there hold what they use themselves. Backpressure: handshakes are counted by
 * the service (a semaphore). Failure: a sentence that names the file and the reason (weir_why).
 *
 * Invariants: no call into OpenSSL suspends: bytes go through memory, and are read and written by
 * the task. Renegotiation, compression, early data and sessions in memory are off.
 * Threads: any task; a stream belongs to its session's task.
 */
#ifndef WEIR_SERVER_TLS_H
#define WEIR_SERVER_TLS_H

#include <weir/weir.h>

struct session;
struct tls;
struct tls_stream;

enum {
    TLS_FILE_BYTES_MAX = 256 * 1024,
    TLS_STACK_BYTES = 128 * 1024, /* OpenSSL needs more than most handlers */
};

/* Both have to be said: PEM files, of which the certificate's has its chain behind it. */
struct tls_spec {
    const char *certificate_path;
    const char *key_path;
};

/* Reads the files; needs a deadline. Errors: WEIR_EREFUSED (weir_why), -ENOMEM. */
WEIR_SUSPENDS int tls_open(const struct tls_spec *spec, struct tls **ret_tls);
/* Reads them again. Errors as tls_open; then the old ones stay. */
WEIR_SUSPENDS int tls_reload(struct tls *tls);
/* When the certificate is no longer valid, in Unix time. */
int64_t tls_expires_s(struct tls *tls);
/* Takes NULL. */
void tls_close(struct tls *take_tls);

/* ---- tls_stream.c: one connection ---- */

int tls_stream_new(struct tls *tls, struct tls_stream **ret_stream);
/* Takes NULL. */
void tls_stream_free(struct tls_stream *take_stream);

/* In the caller's deadline. -EPROTO: it is no TLS that we take; weir_why() has no sentence, for the
 * other side learns nothing. */
WEIR_SUSPENDS int tls_handshake(struct session *session);
/* As weir_conn_read; 0 also if the other side has said that there is no more. */
WEIR_SUSPENDS ssize_t tls_read(struct session *session, void *data, size_t bytes);
/* All of it. */
WEIR_SUSPENDS int tls_write(struct session *session, struct iovec *parts, int count);
/* Says that there is no more, if that can be said at once. */
void tls_say_end(struct session *session);
/* Something was read from the connection, and not from here. */
bool tls_has_input(const struct tls_stream *stream);

#endif
