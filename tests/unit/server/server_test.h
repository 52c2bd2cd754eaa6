/* server_test.h - a service with routes of its own, and a client that speaks bytes.
 *
 *     SERVER_TEST(a_get_is_answered, {.limits = ...})
 *     {
 *         struct server_client *client = server_connect(server);
 *         server_ask(client, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n", answer);
 *         CHECK_INT(answer->status, ==, 200);
 *     }
 *
 * What is said are members of a struct service_spec; what is not are those of tests.
 */
#ifndef WEIR_TESTS_SERVER_TEST_H
#define WEIR_TESTS_SERVER_TEST_H

#include <string.h>

#include "server/exchange.h"
#include "server/service.h"
#include "unit/io/io_test.h"

enum { ANSWER_BYTES = 512 * 1024, ANSWER_FIELDS = 64 };

/* An answer that was read; its body without chunks. */
struct server_answer {
    unsigned status;
    bool closed; /* the connection has ended behind it, or instead of it */
    bool keep_alive;
    char head[8192];
    char body[ANSWER_BYTES];
    size_t body_bytes;
};

/* What is left of what was read from a connection, for the next answer. */
struct server_client {
    weir_conn *conn;
    struct http_parser parser;
    char block[32 * 1024];
    struct http_field fields[ANSWER_FIELDS * 2];
    char in[8192];
    size_t at, used;
};

struct server {
    struct service *service;
    char address[WEIR_ADDRESS_TEXT_MAX];
};

extern const struct routes server_test_routes;

/* Of the default ones, short where a test would wait. */
struct service_limits server_test_limits(void);

void server_open(struct server *server, weir_scope *scope, const struct service_spec *spec);

struct server_client *server_connect(const struct server *server);
struct server_client *server_connect_to(const char *address);
void server_disconnect(struct server_client *take_client);
void server_send(struct server_client *client, const char *text);
void server_send_bytes(struct server_client *client, const void *bytes, size_t count);
/* The next answer; `head` says that it is one to a HEAD. */
void server_read(struct server_client *client, bool head, struct server_answer *ret_answer);
void server_ask(struct server_client *client, const char *text, struct server_answer *ret_answer);
/* Nothing but the end comes. */
bool server_is_closed(struct server_client *client);
/* The value of a field of the answer, or "". */
const char *server_field(const struct server_answer *answer, const char *name, char *text,
                         size_t bytes);
struct server_answer *server_answer_room(void);
/* Its body, which is gzip, in place. */
void server_unpack(struct server_answer *answer);

/* A test whose body runs beside a service, which is closed afterwards. */
typedef void (*server_body)(struct server *server, weir_scope *scope);
int server_test_run(const struct service_spec *spec, server_body body);

#define SERVER_TEST(name_, ...)                                                         \
    static void server_body_##name_(struct server *server, weir_scope *scope);          \
    IO_TEST(name_)                                                                      \
    {                                                                                   \
        return server_test_run(&(struct service_spec)__VA_ARGS__, server_body_##name_); \
    }                                                                                   \
    static void server_body_##name_(__attribute__((unused)) struct server *server,      \
                                    __attribute__((unused)) weir_scope *scope)

/* How often the handlers of the routes were called. */
unsigned server_test_calls(void);
/* The path of the last one; "": none was. */
const char *server_test_last(void);
/* What the route /hold waits for: it is entered (which is waited for), and let go. */
void server_test_held(unsigned count);
void server_test_let_go(void);
/* For others: wait until it was let go, and hold again. */
void server_test_wait(void);
void server_test_reset(weir_scope *scope);

#endif
