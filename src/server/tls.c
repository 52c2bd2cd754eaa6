/* tls.c - certificates and keys: read, checked, exchanged. */
#include "server/tls.h"

#include <errno.h>
#include <openssl/pem.h>
#include <string.h>
#include <time.h>

#include "rt/mem.h"
#include "rt/runtime.h"
#include "server/tls_inside.h"

/* ---- Files ---- */

/* The whole file in memory of ours; `ret_bytes` of it. */
static int read_all(weir_file *file, char **ret_text, size_t *ret_bytes)
{
    char *text = mem_alloc(TLS_FILE_BYTES_MAX);
    size_t used = 0;
    ssize_t n;

    if (!text) return -ENOMEM;
    do {
        n = weir_file_read(file, text + used, TLS_FILE_BYTES_MAX - used, (int64_t)used);
        if (n > 0) used += (size_t)n;
    } while (n > 0 && used < TLS_FILE_BYTES_MAX);
    if (n == 0) {
        *ret_text = text;
        *ret_bytes = used;
        return 0;
    }
    OPENSSL_cleanse(text, used);
    mem_free(text);
    return n < 0 ? (int)n : -EFBIG;
}

static int read_file(const char *what, const char *path, char **ret_text, size_t *ret_bytes)
{
    weir_file *file;
    int r = weir_file_open(path, O_RDONLY, 0, &file);

    if (r == 0) {
        int closed;

        r = read_all(file, ret_text, ret_bytes);
        closed = weir_file_close(file);
        (void)closed; /* nothing was written */
    }
    if (r == 0 || r == -ENOMEM || r == WEIR_ECANCELED || r == WEIR_ETIMEDOUT) return r;
    return refuse("tls: %s '%s' cannot be read: %s", what, path, weir_strerror(r));
}

static void forget(char *take_text, size_t bytes)
{
    if (take_text) OPENSSL_cleanse(take_text, bytes);
    mem_free(take_text);
}

/* What OpenSSL has said first, in its words. */
static int refuse_ssl(const char *what, const char *path)
{
    unsigned long error = ERR_peek_error();
    const char *reason = error ? ERR_reason_error_string(error) : NULL;
    int r = refuse("tls: %s '%s' is not valid: %s", what, path, reason ? reason : "no PEM in it");

    ERR_clear_error();
    return r;
}

/* A key that asks for a password is refused: nobody is there to say it. */
static int no_password(char *text, int bytes, int writing, void *arg)
{
    (void)text, (void)bytes, (void)writing, (void)arg;
    return -1;
}

/* ---- A context ---- */

static int choose_protocol(SSL *ssl, const unsigned char **ret_name, unsigned char *ret_bytes,
                           const unsigned char *offered, unsigned offered_bytes, void *arg)
{
    static const unsigned char ours[] = "\x08http/1.1";
    unsigned char *chosen;

    (void)ssl, (void)arg;
    if (SSL_select_next_proto(&chosen, ret_bytes, ours, sizeof ours - 1, offered, offered_bytes) !=
        OPENSSL_NPN_NEGOTIATED) {
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    }
    *ret_name = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static void set_options(SSL_CTX *context)
{
    (void)SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    (void)SSL_CTX_set_options(context, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
                                           SSL_OP_CIPHER_SERVER_PREFERENCE);
    /* Idle connections hold no buffers. */
    (void)SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    (void)SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    (void)SSL_CTX_set_num_tickets(context, 1);
    SSL_CTX_set_default_passwd_cb(context, no_password);
    SSL_CTX_set_alpn_select_cb(context, choose_protocol, NULL);
}

/* The first certificate is ours, the others lead to one that clients know. */
static int use_chain(SSL_CTX *context, BIO *bio)
{
    X509 *certificate = PEM_read_bio_X509_AUX(bio, NULL, no_password, NULL);
    int good = certificate ? SSL_CTX_use_certificate(context, certificate) : 0;

    X509_free(certificate);
    while (good == 1 && (certificate = PEM_read_bio_X509(bio, NULL, no_password, NULL))) {
        good = SSL_CTX_add0_chain_cert(context, certificate) == 1;
        if (!good) X509_free(certificate);
    }
    if (good != 1) return -EINVAL;
    ERR_clear_error(); /* the end of the file is told as one */
    return 0;
}

static int64_t expiry_of(SSL_CTX *context)
{
    const X509 *certificate = SSL_CTX_get0_certificate(context);
    struct tm at = {0};

    if (!certificate || ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &at) != 1) return 0;
    return (int64_t)timegm(&at);
}

static int fill_context(const struct tls *tls, SSL_CTX *context, struct iovec certificate,
                        struct iovec key)
{
    BIO *chain = BIO_new_mem_buf(certificate.iov_base, (int)certificate.iov_len);
    BIO *secret = BIO_new_mem_buf(key.iov_base, (int)key.iov_len);
    EVP_PKEY *private_key = NULL;
    int r = 0;

    if (!chain || !secret) {
        r = -ENOMEM;
        goto out;
    }
    if (use_chain(context, chain) < 0) {
        r = refuse_ssl("certificate", tls->certificate_path);
        goto out;
    }
    private_key = PEM_read_bio_PrivateKey(secret, NULL, no_password, NULL);
    if (!private_key) {
        r = refuse_ssl("key", tls->key_path);
        goto out;
    }
    if (SSL_CTX_use_PrivateKey(context, private_key) != 1 ||
        SSL_CTX_check_private_key(context) != 1) {
        ERR_clear_error();
        r = refuse("tls: key '%s' does not belong to certificate '%s'", tls->key_path,
                   tls->certificate_path);
    }
out:
    EVP_PKEY_free(private_key);
    BIO_free(secret);
    BIO_free(chain);
    return r;
}

static int make_context(const struct tls *tls, struct iovec certificate, struct iovec key,
                        SSL_CTX **ret_context)
{
    SSL_CTX *context;
    int r = -ENOMEM;

    openssl_begin();
    context = SSL_CTX_new(TLS_server_method());
    if (context) {
        set_options(context);
        r = fill_context(tls, context, certificate, key);
        if (r < 0) SSL_CTX_free(context);
    }
    openssl_end();
    if (r == 0) *ret_context = context;
    return r;
}

int tls_reload(struct tls *tls)
{
    struct iovec certificate = {0}, key = {0};
    SSL_CTX *context = NULL, *old;
    char *text = NULL;
    int r = read_file("certificate", tls->certificate_path, &text, &certificate.iov_len);

    certificate.iov_base = text;
    text = NULL;
    if (r == 0) r = read_file("key", tls->key_path, &text, &key.iov_len);
    key.iov_base = text;
    if (r == 0) r = make_context(tls, certificate, key, &context);
    forget(certificate.iov_base, certificate.iov_len);
    forget(key.iov_base, key.iov_len);
    if (r < 0) return r;
    lock_acquire(&tls->lock);
    old = tls->context;
    tls->context = context;
    tls->expires_s = expiry_of(context);
    lock_release(&tls->lock);
    SSL_CTX_free(old);
    return 0;
}

/* ---- Life ---- */

int tls_open(const struct tls_spec *spec, struct tls **ret_tls)
{
    size_t certificate_bytes, key_bytes;
    struct tls *tls;
    int r;

    if (!spec->certificate_path) return refuse("tls: certificate_path is not set");
    if (!spec->key_path) return refuse("tls: key_path is not set");
    certificate_bytes = strlen(spec->certificate_path) + 1;
    key_bytes = strlen(spec->key_path) + 1;
    tls = mem_alloc_zeroed(sizeof *tls + certificate_bytes + key_bytes);
    if (!tls) return -ENOMEM;
    lock_init(&tls->lock);
    tls->certificate_path = (char *)(tls + 1);
    tls->key_path = tls->certificate_path + certificate_bytes;
    memcpy(tls->certificate_path, spec->certificate_path, certificate_bytes);
    memcpy(tls->key_path, spec->key_path, key_bytes);
    r = tls_reload(tls);
    if (r < 0) {
        tls_close(tls);
        return r;
    }
    *ret_tls = tls;
    return 0;
}

void tls_close(struct tls *take_tls)
{
    if (!take_tls) return;
    SSL_CTX_free(take_tls->context);
    lock_deinit(&take_tls->lock);
    mem_free(take_tls);
}

int64_t tls_expires_s(struct tls *tls)
{
    int64_t expires_s;

    lock_acquire(&tls->lock);
    expires_s = tls->expires_s;
    lock_release(&tls->lock);
    return expires_s;
}

SSL_CTX *tls_context(struct tls *tls)
{
    SSL_CTX *context;

    lock_acquire(&tls->lock);
    context = tls->context;
    (void)SSL_CTX_up_ref(context);
    lock_release(&tls->lock);
    return context;
}
