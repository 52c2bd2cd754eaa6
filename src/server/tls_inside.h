/* tls_inside.h - what of TLS only tls.c and tls_stream.c see: OpenSSL. */
#ifndef WEIR_SERVER_TLS_INSIDE_H
#define WEIR_SERVER_TLS_INSIDE_H

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "rt/lock.h"
#include "server/tls.h"

struct tls {
    struct lock lock; /* covers what follows */
    SSL_CTX *context;
    int64_t expires_s;
    char *certificate_path; /* both in one block, of which this is the beginning */
    char *key_path;
};

/* Around calls into OpenSSL. It keeps memory for each thread, which is made by one task and used by
 * others of that worker: right, and without an edge that a sanitizer in strict mode could see. */
static inline void openssl_begin(void)
{
    sanitize_unseen_begin();
    ERR_clear_error();
}

static inline void openssl_end(void)
{
    sanitize_unseen_end();
}

/* A share of the context of now, for the caller to free. */
SSL_CTX *tls_context(struct tls *tls);

#endif
