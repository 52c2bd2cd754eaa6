/* tls_test.c - TLS: handshakes, certificates that are exchanged, and who does not speak it. */
#include "server/tls.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <unistd.h>

#include "unit/server/server_test.h"

/* ---- Certificates ---- */

static char folder[64], certificate_path[96], key_path[96];

static void write_pem(const char *path, X509 *certificate, EVP_PKEY *key)
{
    FILE *file = fopen(path, "we");

    CHECK(file != NULL);
    if (certificate) CHECK_INT(PEM_write_X509(file, certificate), ==, 1);
    if (key) CHECK_INT(PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL), ==, 1);
    CHECK_INT(fclose(file), ==, 0);
}

/* One of its own, for `name`, with this number. */
static void make_certificate(const char *name, long number)
{
    X509 *certificate = X509_new();
    X509_NAME *subject;
    EVP_PKEY *key;

    sanitize_unseen_begin();
    key = EVP_EC_gen("P-256");
    CHECK(key && certificate);
    CHECK_INT(ASN1_INTEGER_set(X509_get_serialNumber(certificate), number), ==, 1);
    CHECK(X509_gmtime_adj(X509_getm_notBefore(certificate), -3600));
    CHECK(X509_gmtime_adj(X509_getm_notAfter(certificate), 3600 * 24));
    CHECK_INT(X509_set_pubkey(certificate, key), ==, 1);
    subject = X509_get_subject_name(certificate);
    CHECK_INT(X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name,
                                         -1, -1, 0),
              ==, 1);
    CHECK_INT(X509_set_issuer_name(certificate, subject), ==, 1);
    CHECK(X509_sign(certificate, key, EVP_sha256()) > 0);
    write_pem(certificate_path, certificate, NULL);
    write_pem(key_path, NULL, key);
    X509_free(certificate);
    EVP_PKEY_free(key);
    sanitize_unseen_end();
}

static void make_folder(void)
{
    (void)snprintf(folder, sizeof folder, "/tmp/weir-tls-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    (void)snprintf(certificate_path, sizeof certificate_path, "%s/c.pem", folder);
    (void)snprintf(key_path, sizeof key_path, "%s/k.pem", folder);
}

static void remove_folder(void)
{
    (void)unlink(certificate_path);
    (void)unlink(key_path);
    CHECK_INT(rmdir(folder), ==, 0);
}

/* ---- A client ---- */

struct tls_client {
    weir_conn *conn;
    SSL_CTX *context;
    SSL *ssl;
    BIO *in, *out;
};

static void push(struct tls_client *client)
{
    char *at;
    long bytes = BIO_get_mem_data(client->out, &at);

    if (bytes > 0) CHECK_OK(weir_conn_send_all(client->conn, at, (size_t)bytes, NULL));
    (void)BIO_reset(client->out);
}

/* 0: it has ended. */
static ssize_t pull(struct tls_client *client)
{
    char bytes[4096];
    ssize_t n;

    push(client);
    n = weir_conn_read(client->conn, bytes, sizeof bytes);
    if (n > 0) CHECK_INT(BIO_write(client->in, bytes, (int)n), ==, n);
    return n;
}

static struct tls_client *client_new(const struct server *server)
{
    struct tls_client *client = calloc(1, sizeof *client);

    CHECK(client);
    CHECK_OK(weir_connect(server->address, &client->conn));
    client->context = SSL_CTX_new(TLS_client_method());
    client->ssl = SSL_new(client->context);
    client->in = BIO_new(BIO_s_mem());
    client->out = BIO_new(BIO_s_mem());
    (void)BIO_set_mem_eof_return(client->in, -1);
    SSL_set_bio(client->ssl, client->in, client->out);
    SSL_set_connect_state(client->ssl);
    return client;
}

/* The number of the certificate; 0: there was none. */
static long client_shake_hands(struct tls_client *client)
{
    const X509 *certificate;
    int r;

    for (;;) {
        sanitize_unseen_begin(); /* OpenSSL keeps memory for each thread, for all its tasks */
        r = SSL_do_handshake(client->ssl);
        sanitize_unseen_end();
        if (r == 1) break;
        if (SSL_get_error(client->ssl, r) != SSL_ERROR_WANT_READ) return 0;
        if (pull(client) <= 0) return 0;
    }
    push(client);
    certificate = SSL_get0_peer_certificate(client->ssl);
    return certificate ? ASN1_INTEGER_get(X509_get0_serialNumber(certificate)) : 0;
}

static void client_ask(struct tls_client *client, const char *request, char *text, size_t bytes)
{
    size_t used = 0;
    int r;

    sanitize_unseen_begin();
    CHECK_INT(SSL_write(client->ssl, request, (int)strlen(request)), ==, strlen(request));
    sanitize_unseen_end();
    push(client);
    do {
        sanitize_unseen_begin();
        r = SSL_read(client->ssl, text + used, (int)(bytes - used - 1));
        sanitize_unseen_end();
        if (r > 0)
            used += (size_t)r;
        else if (pull(client) <= 0)
            break;
        text[used] = '\0';
    } while (!strstr(text, "world\"}"));
}

static void client_free(struct tls_client *take_client)
{
    SSL_free(take_client->ssl);
    SSL_CTX_free(take_client->context);
    weir_conn_close(take_client->conn);
    free(take_client);
}

/* ---- Tests ---- */

static int with_tls(int64_t tls_ms, void (*body)(struct server *server, struct tls *tls))
{
    const struct service_listener listener = {.address = "tcp:127.0.0.1:0", .tls = true};
    struct tls *tls = NULL;
    int r = 0;

    make_folder();
    make_certificate("one.example", 1);
    CHECK_OK(tls_open(&(struct tls_spec){certificate_path, key_path}, &tls));
    WEIR_SCOPE(scope, &r, .name = "test", .on_failure = WEIR_COLLECT, .max_tasks = 64,
               .overflow = WEIR_REJECT) {
        struct service_limits limits = server_test_limits();
        struct server server;

        limits.tls_ms = tls_ms;
        server_open(
            &server, scope,
            &(struct service_spec){
                .listeners = &listener, .listener_count = 1, .keep_tls = tls, .limits = limits});
        body(&server, tls);
        CHECK_OK(service_close(server.service));
    }
    tls_close(tls);
    remove_folder();
    return r;
}

#define TLS_TEST(name_)                                                         \
    static void tls_body_##name_(struct server *server, struct tls *tls);       \
    IO_TEST(name_)                                                              \
    {                                                                           \
        return with_tls(60 * 1000, tls_body_##name_);                           \
    }                                                                           \
    static void tls_body_##name_(__attribute__((unused)) struct server *server, \
                                 __attribute__((unused)) struct tls *tls)

#define HELLO "GET /hello HTTP/1.1\r\nhost: x\r\n\r\n"

TLS_TEST(requests_are_served_by_tls_and_certificates_exchanged_meanwhile)
{
    struct tls_client *first = client_new(server), *second;
    char text[4096];

    CHECK_INT(client_shake_hands(first), ==, 1);
    CHECK(strncmp(SSL_get_version(first->ssl), "TLSv1.", 6) == 0);
    client_ask(first, HELLO, text, sizeof text);
    CHECK_CONTAINS(text, "HTTP/1.1 200 OK");
    /* What is there goes on with what it has, what comes gets the new one. */
    make_certificate("two.example", 2);
    CHECK_OK(tls_reload(tls));
    client_ask(first, HELLO, text, sizeof text);
    CHECK_CONTAINS(text, "HTTP/1.1 200 OK");
    second = client_new(server);
    CHECK_INT(client_shake_hands(second), ==, 2);
    client_ask(second, HELLO, text, sizeof text);
    CHECK_CONTAINS(text, "HTTP/1.1 200 OK");
    CHECK_INT(tls_expires_s(tls), >, 0);
    client_free(first);
    client_free(second);
}

TLS_TEST(files_that_are_not_right_are_named_and_change_nothing)
{
    struct tls_client *client;
    struct tls *other;
    FILE *file;

    CHECK_INT(tls_open(&(struct tls_spec){"/nonexistent/c.pem", key_path}, &other), ==,
              WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "certificate '/nonexistent/c.pem' cannot be read");
    CHECK_INT(tls_open(&(struct tls_spec){key_path, key_path}, &other), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "certificate");
    CHECK_CONTAINS(weir_why(), key_path);
    CHECK_INT(tls_open(&(struct tls_spec){certificate_path, certificate_path}, &other), ==,
              WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "key '");
    CHECK_INT(tls_open(&(struct tls_spec){certificate_path, NULL}, &other), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "key_path is not set");
    file = fopen(certificate_path, "we");
    CHECK(file && fputs("rubbish", file) >= 0 && fclose(file) == 0);
    CHECK_INT(tls_reload(tls), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), certificate_path);
    /* A key of another one. */
    make_certificate("two.example", 2);
    CHECK_INT(rename(key_path, certificate_path), ==, 0);
    make_certificate("three.example", 3);
    client = client_new(server);
    CHECK_INT(client_shake_hands(client), ==, 1);
    client_free(client);
}

TLS_TEST(who_speaks_no_tls_is_told_so)
{
    struct server_answer *answer = server_answer_room();
    struct server_client *client = server_connect(server);

    server_ask(client, HELLO, answer);
    CHECK_INT(answer->status, ==, 400);
    CHECK_CONTAINS(answer->body, "HTTPS");
    CHECK(server_is_closed(client));
    server_disconnect(client);
    CHECK_INT(server_test_calls(), ==, 0);
}

TLS_TEST(who_asks_for_another_protocol_is_refused)
{
    struct tls_client *client = client_new(server);
    static const unsigned char h2[] = "\x02h2", both[] = "\x02h2\x08http/1.1";
    char text[4096];

    CHECK_INT(SSL_set_alpn_protos(client->ssl, h2, sizeof h2 - 1), ==, 0);
    CHECK_INT(client_shake_hands(client), ==, 0);
    client_free(client);
    client = client_new(server);
    CHECK_INT(SSL_set_alpn_protos(client->ssl, both, sizeof both - 1), ==, 0);
    CHECK_INT(client_shake_hands(client), ==, 1);
    client_ask(client, HELLO, text, sizeof text);
    CHECK_CONTAINS(text, "HTTP/1.1 200 OK");
    client_free(client);
}

static void stall(struct server *server, struct tls *tls)
{
    struct server_client *client = server_connect(server);
    struct service_figures figures;

    (void)tls;
    server_send_bytes(client, "\x16\x03\x01", 3);
    CHECK(server_is_closed(client));
    service_figures_of(server->service, &figures);
    CHECK_INT(figures.timed_out, ==, 1);
    server_disconnect(client);
}

IO_TEST(a_handshake_that_stalls_ends)
{
    return with_tls(50, stall);
}
