/* client_tls.c - TLS of the command line: OpenSSL on memory, the connection around it. */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>

#include "cli/client.h"
#include "rt/mem.h"

enum { RECORD_BYTES = 17 * 1024, WHY_BYTES = 256 };

struct client_tls {
    weir_conn *conn;
    SSL_CTX *context;
    SSL *ssl;
    BIO *from, *to; /* the server; they belong to `ssl` */
    char record[RECORD_BYTES];
};

static char why[WHY_BYTES]; /* of the one client that a command has */

const char *client_tls_why(void)
{
    return why;
}

/* What OpenSSL wants to send. */
static int flush(struct client_tls *tls)
{
    int n;

    while ((n = BIO_read(tls->to, tls->record, RECORD_BYTES)) > 0) {
        int r = weir_conn_send_all(tls->conn, tls->record, (size_t)n, NULL);

        if (r < 0) return r;
    }
    return 0;
}

/* 1: more of it came; 0: the end. */
static int feed(struct client_tls *tls)
{
    ssize_t n = weir_conn_read(tls->conn, tls->record, RECORD_BYTES);

    if (n <= 0) return (int)n;
    return BIO_write(tls->from, tls->record, (int)n) == (int)n ? 1 : -ENOMEM;
}

/* After a call that was not done: what it needs. 0: call it again. */
static int go_on(struct client_tls *tls, int result)
{
    int error = SSL_get_error(tls->ssl, result), r = flush(tls);

    if (r < 0) return r;
    switch (error) {
    case SSL_ERROR_WANT_WRITE: return 0;
    case SSL_ERROR_WANT_READ: r = feed(tls); return r > 0 ? 0 : r == 0 ? WEIR_ECLOSED : r;
    case SSL_ERROR_ZERO_RETURN: return WEIR_ECLOSED;
    default: return WEIR_EPROTOCOL;
    }
}

static void note_why(const struct client_tls *tls)
{
    long verified = tls->ssl ? SSL_get_verify_result(tls->ssl) : X509_V_OK;
    const char *reason = verified != X509_V_OK ? X509_verify_cert_error_string(verified)
                                               : ERR_reason_error_string(ERR_peek_last_error());

    (void)snprintf(why, sizeof why, "%s", reason ? reason : "the handshake has failed");
    ERR_clear_error();
}

static int prepare(struct client_tls *tls, const struct client *client)
{
    tls->context = SSL_CTX_new(TLS_client_method());
    if (!tls->context) return -ENOMEM;
    (void)SSL_CTX_set_min_proto_version(tls->context, TLS1_2_VERSION);
    SSL_CTX_set_verify(tls->context, SSL_VERIFY_PEER, NULL);
    if ((client->spec.ca_file ? SSL_CTX_load_verify_file(tls->context, client->spec.ca_file)
                              : SSL_CTX_set_default_verify_paths(tls->context)) != 1)
        return WEIR_EPROTOCOL;
    tls->ssl = SSL_new(tls->context);
    tls->from = BIO_new(BIO_s_mem());
    tls->to = BIO_new(BIO_s_mem());
    if (!tls->ssl || !tls->from || !tls->to) {
        BIO_free(tls->from);
        BIO_free(tls->to);
        return -ENOMEM;
    }
    SSL_set_bio(tls->ssl, tls->from, tls->to);
    SSL_set_connect_state(tls->ssl);
    /* An address in numbers is another kind of name, and is told to nobody. */
    if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls->ssl), client->name) == 1) return 0;
    ERR_clear_error();
    if (SSL_set1_host(tls->ssl, client->name) != 1 ||
        SSL_ctrl(tls->ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                 (void *)(uintptr_t)client->name) != 1)
        return WEIR_EPROTOCOL;
    return 0;
}

int client_tls_open(const struct client *client, weir_conn *conn, struct client_tls **ret_tls)
{
    struct client_tls *tls = mem_alloc_zeroed(sizeof *tls);
    int r;

    if (!tls) return -ENOMEM;
    tls->conn = conn;
    why[0] = '\0';
    r = prepare(tls, client);
    while (r == 0) {
        int done = SSL_do_handshake(tls->ssl);

        if (done == 1) break;
        r = go_on(tls, done);
    }
    if (r == 0) r = flush(tls);
    if (r < 0) {
        note_why(tls);
        client_tls_close(tls);
        return r;
    }
    *ret_tls = tls;
    return 0;
}

void client_tls_close(struct client_tls *tls)
{
    if (!tls) return;
    SSL_free(tls->ssl);
    SSL_CTX_free(tls->context);
    mem_free(tls);
}

int client_tls_send(struct client_tls *tls, struct bytes bytes)
{
    while (bytes.count > 0) {
        size_t part = bytes.count < 16384 ? bytes.count : 16384;
        int n = SSL_write(tls->ssl, bytes.at, (int)part), r;

        if (n > 0) {
            bytes = bytes_after(bytes, (size_t)n);
            r = flush(tls);
        } else {
            r = go_on(tls, n);
        }
        if (r < 0) return r;
    }
    return 0;
}

ssize_t client_tls_read(struct client_tls *tls, void *data, size_t bytes)
{
    for (;;) {
        int n = SSL_read(tls->ssl, data, bytes < INT32_MAX ? (int)bytes : INT32_MAX), r;

        if (n > 0) return n;
        r = go_on(tls, n);
        if (r == WEIR_ECLOSED) return 0;
        if (r < 0) return r;
    }
}
