/* tls_stream.c - one connection by TLS: OpenSSL works on memory, the task moves the bytes. */
#include <errno.h>
#include <limits.h>

#include "rt/mem.h"
#include "server/service_inside.h"
#include "server/tls_inside.h"

enum { RECORD_BYTES = 16 * 1024 };

struct tls_stream {
    SSL *ssl;
    BIO *in, *out; /* the SSL's own */
};

int tls_stream_new(struct tls *tls, struct tls_stream **ret_stream)
{
    struct tls_stream *stream = mem_alloc_zeroed(sizeof *stream);
    SSL_CTX *context;

    if (!stream) return -ENOMEM;
    context = tls_context(tls);
    openssl_begin();
    stream->ssl = SSL_new(context);
    SSL_CTX_free(context); /* the SSL has a share of its own */
    stream->in = BIO_new(BIO_s_mem());
    stream->out = BIO_new(BIO_s_mem());
    openssl_end();
    if (!stream->ssl || !stream->in || !stream->out) {
        BIO_free(stream->in);
        BIO_free(stream->out);
        SSL_free(stream->ssl);
        mem_free(stream);
        return -ENOMEM;
    }
    (void)BIO_set_mem_eof_return(stream->in, -1); /* empty is not the end */
    SSL_set_bio(stream->ssl, stream->in, stream->out);
    SSL_set_accept_state(stream->ssl);
    *ret_stream = stream;
    return 0;
}

void tls_stream_free(struct tls_stream *take_stream)
{
    if (!take_stream) return;
    openssl_begin();
    SSL_free(take_stream->ssl);
    openssl_end();
    mem_free(take_stream);
}

bool tls_has_input(const struct tls_stream *stream)
{
    return SSL_pending(stream->ssl) > 0 || BIO_ctrl_pending(stream->in) > 0;
}

/* What OpenSSL wants to send goes to the connection. */
static int flush(struct session *session)
{
    struct tls_stream *stream = session->tls;
    struct iovec part;
    char *at;
    long bytes = BIO_get_mem_data(stream->out, &at);
    int r;

    if (bytes <= 0) return 0;
    part = (struct iovec){at, (size_t)bytes};
    r = stream_write_plain(session, &part, 1);
    (void)BIO_reset(stream->out);
    return r;
}

/* What comes from the connection goes to OpenSSL. 0: it is over. */
static ssize_t fetch(struct session *session)
{
    char record[RECORD_BYTES];
    ssize_t n = weir_conn_read(session->conn, record, sizeof record);

    if (n <= 0) return n;
    return BIO_write(session->tls->in, record, (int)n) == (int)n ? n : -ENOMEM;
}

/* What an operation of OpenSSL that did not go through needs: 1: it was done, try again. */
static ssize_t satisfy(struct session *session, int result)
{
    int error = SSL_get_error(session->tls->ssl, result);
    int r;

    if (error == SSL_ERROR_ZERO_RETURN) return 0;
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
        r = flush(session); /* the alert, if it can be sent */
        return r < 0 ? r : -EPROTO;
    }
    r = flush(session);
    if (r < 0) return r;
    return error == SSL_ERROR_WANT_READ ? fetch(session) : 1;
}

/* Somebody speaks HTTP where TLS is spoken: a word in the clear. */
static void answer_plain(struct session *session)
{
    static const char text[] = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\n"
                               "content-type: text/plain\r\ncontent-length: 29\r\n\r\n"
                               "this port is for HTTPS only.\n";
    struct iovec part = {(void *)(uintptr_t)text, sizeof text - 1};

    (void)BIO_reset(session->tls->out);
    if (stream_write_plain(session, &part, 1) == 0) session->work->unread = true;
}

int tls_handshake(struct session *session)
{
    weir_semaphore *turns = session->service->handshakes;

    for (;;) {
        unsigned long reason;
        ssize_t n;
        int result;
        /* Each step is up to a millisecond of work: so many of them, and then the others. */
        int r = weir_semaphore_acquire(turns, 1);

        if (r < 0) return r;
        openssl_begin();
        result = SSL_do_handshake(session->tls->ssl);
        reason = ERR_peek_error();
        openssl_end();
        weir_semaphore_release(turns, 1);
        if (result == 1) return flush(session);
        if (ERR_GET_REASON(reason) == SSL_R_HTTP_REQUEST) {
            answer_plain(session);
            return -EPROTO;
        }
        n = satisfy(session, result);
        if (n <= 0) return n == 0 ? WEIR_ECLOSED : (int)n;
    }
}

ssize_t tls_read(struct session *session, void *data, size_t bytes)
{
    for (;;) {
        int result;
        ssize_t n;

        openssl_begin();
        result = SSL_read(session->tls->ssl, data, bytes > INT_MAX ? INT_MAX : (int)bytes);
        openssl_end();
        if (result > 0) return result;
        n = satisfy(session, result);
        if (n <= 0) return n;
    }
}

/* As much of the parts as a record takes, in one piece: small answers are one record. */
static size_t gather(struct iovec **parts, int *count, char record[RECORD_BYTES])
{
    size_t used = 0;

    while (*count > 0 && used < RECORD_BYTES) {
        struct iovec *part = *parts;
        size_t bytes = part->iov_len < RECORD_BYTES - used ? part->iov_len : RECORD_BYTES - used;

        if (bytes > 0) memcpy(record + used, part->iov_base, bytes);
        used += bytes;
        part->iov_base = (char *)part->iov_base + bytes;
        part->iov_len -= bytes;
        if (part->iov_len > 0) break;
        (*parts)++;
        (*count)--;
    }
    return used;
}

int tls_write(struct session *session, struct iovec *parts, int count)
{
    char record[RECORD_BYTES];
    size_t used;

    while ((used = gather(&parts, &count, record)) > 0) {
        int written, r;

        openssl_begin();
        written = SSL_write(session->tls->ssl, record, (int)used);
        openssl_end();
        if (written != (int)used) return -EPROTO;
        r = flush(session);
        if (r < 0) return r;
    }
    return 0;
}

void tls_say_end(struct session *session)
{
    const struct kernel *kernel = worker_self()->kernel;
    char *at;
    long bytes;

    openssl_begin();
    (void)SSL_shutdown(session->tls->ssl);
    openssl_end();
    bytes = BIO_get_mem_data(session->tls->out, &at);
    if (bytes <= 0) return;
    (void)kernel->send(kernel, session->fd, at, (size_t)bytes, MSG_DONTWAIT);
    (void)BIO_reset(session->tls->out);
}
