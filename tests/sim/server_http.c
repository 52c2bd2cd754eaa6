/* server_http.c - requests over a network that loses, delays and cuts: each is served at most once,
 * its answer is the one to it and comes in its turn, or the connection fails; a stop finishes what
 * is under way. */
#include <stdio.h>

#include "proto/http_parse.h"
#include "server/exchange.h"
#include "server/service.h"
#include "sim/policy.h"

enum { CLIENTS = 2, REQUESTS = 4, LIMIT_MS = 120 * 1000, ANSWER_BLOCK = 2048, ANSWER_FIELDS = 32 };

static struct {
    unsigned served[CLIENTS * REQUESTS], answered[CLIENTS * REQUESTS];
    unsigned whole, broken;
    bool stops; /* the server stops in the middle */
} seen;

static void forget(void *arg)
{
    (void)arg;
    memset(&seen, 0, sizeof seen);
}

/* ---- The server ---- */

static int serve_number(struct exchange *x)
{
    unsigned number = 0;
    struct bytes body;
    int r = exchange_body(x, &body);

    if (r < 0) return r;
    for (const char *at = exchange_parameter(x, 0); *at; at++) number = number * 10 + *at - '0';
    CHECK(number < CLIENTS * REQUESTS);
    seen.served[number]++;
    CHECK_INT(body.count, ==, 40);
    if (weir_sim_choose(2)) {
        r = weir_sleep(weir_sim_choose(30));
        if (r < 0) return r;
    }
    return exchange_bytes(x, 200, "text/plain", bytes_of(exchange_parameter(x, 0)));
}

static const struct route routes[] = {
    {.method = METHOD_POST,
     .path = "/{number}",
     .verb = VERB_READ,
     .serve = serve_number,
     .deadline_ms = 10 * 1000,
     .body_bytes_max = 100},
};

static int server_main(void *arg)
{
    const struct service_listener listener = {.address = "tcp:0.0.0.0:7000"};
    struct service_limits limits = SERVICE_LIMITS_DEFAULT;
    int r = 0;

    (void)arg;
    limits.connections_max = 16;
    limits.idle_ms = 5000;
    WEIR_DEADLINE(LIMIT_MS) {
        SCOPE_OF(scope, &r, 8)
        {
            struct service_figures figures;
            struct service *service;

            CHECK_OK(service_open(scope,
                                  &(struct service_spec){.name = "sim",
                                                         .routes = {routes, 1},
                                                         .listeners = &listener,
                                                         .listener_count = 1,
                                                         .limits = limits},
                                  &service));
            r = weir_sleep(seen.stops ? 1 + weir_sim_choose(60) : 60 * 1000);
            if (r == 0 && !seen.stops) {
                /* All clients have gone, and what is idle was let go. */
                service_figures_of(service, &figures);
                CHECK_INT(figures.connections, ==, 0);
                CHECK_INT(figures.requests, ==, 0);
            }
            CHECK_OK(service_close(service));
        }
    }
    return r;
}

/* ---- Clients ---- */

struct reader {
    struct http_parser parser;
    char block[ANSWER_BLOCK];
    struct http_field fields[ANSWER_FIELDS * 2];
    char in[512];
    size_t at, used;
};

static bool is_broken(ssize_t r)
{
    return r == -ECONNRESET || r == -EPIPE || r == -ENOTCONN || r == WEIR_ECLOSED ||
           r == -ECONNREFUSED || r == WEIR_ETIMEDOUT;
}

/* 1: an answer, whose body is a number, or a refusal (`ret_status`); else why there is none. */
static int read_answer(weir_conn *conn, struct reader *reader, unsigned *ret_status,
                       unsigned *ret_number)
{
    *ret_number = 0;
    for (;;) {
        struct bytes body;
        size_t used;
        ssize_t n;
        enum http_event event = http_parse(&reader->parser, reader->in + reader->at,
                                           reader->used - reader->at, &used, &body);

        reader->at += used;
        CHECK(event != PARSE_FAILED);
        if (event == PARSE_HEAD) *ret_status = reader->parser.message.status;
        if (event == PARSE_BODY && *ret_status == 200) {
            for (size_t i = 0; i < body.count; i++) {
                *ret_number = *ret_number * 10 + (unsigned)(body.at[i] - '0');
            }
        }
        if (event == PARSE_END) {
            http_parser_next(&reader->parser);
            return 1;
        }
        if (event != PARSE_MORE) continue;
        n = weir_conn_read(conn, reader->in, sizeof reader->in);
        if (n <= 0) return n == 0 ? WEIR_ECLOSED : (int)n;
        reader->at = 0;
        reader->used = (size_t)n;
    }
}

static int send_requests(weir_conn *conn, unsigned first)
{
    int r = 0;

    for (unsigned i = 0; i < REQUESTS && r == 0; i++) {
        char text[256];
        int bytes = snprintf(text, sizeof text,
                             "POST /%u HTTP/1.1\r\nhost: server\r\ncontent-length: 40\r\n\r\n"
                             "0123456789012345678901234567890123456789",
                             first + i);

        r = weir_conn_send_all(conn, text, (size_t)bytes, NULL);
    }
    return r;
}

static int talk(weir_conn *conn, unsigned first)
{
    static const struct http_limits limits = {.line_bytes_max = 256,
                                              .head_bytes_max = 1024,
                                              .field_count_max = ANSWER_FIELDS,
                                              .body_bytes_max = 1024,
                                              .chunk_line_bytes_max = 64,
                                              .trailer_bytes_max = 64};
    struct reader reader = {.at = 0};
    int r = send_requests(conn, first);

    http_parser_init(&reader.parser, HTTP_KIND_ANSWER, &limits, reader.block, reader.fields);
    for (unsigned i = 0; i < REQUESTS && r >= 0; i++) {
        unsigned status = 0, number;

        r = read_answer(conn, &reader, &status, &number);
        if (r < 0) break;
        /* A server that was told so refuses, or cuts off: it never answers another one. */
        CHECK(status == 200 || status == 503 || status == 504 || status == 408);
        if (status != 200) continue;
        CHECK_INT(number, ==, first + i);
        CHECK_INT(seen.served[number], ==, 1);
        seen.answered[number]++;
    }
    return r < 0 ? r : 0;
}

static int client_main(void *arg)
{
    unsigned index = *(unsigned *)arg;
    weir_address address;
    weir_conn *conn;
    int r = 0;

    WEIR_DEADLINE(30 * 1000) {
        CHECK_INT(weir_resolve("server", 7000, WEIR_TCP, &address, 1), ==, 1);
        for (int i = 0; i < 20; i++) {
            r = weir_connect_to(&address, &conn);
            if (r != -ECONNREFUSED || weir_sleep(1) < 0) break;
        }
        CHECK(r == 0 || is_broken(r));
        if (r < 0) break;
        r = talk(conn, index * REQUESTS);
        CHECK(r == 0 || is_broken(r));
        seen.whole += r == 0;
        seen.broken += r != 0;
        weir_conn_close(conn);
    }
    return 0;
}

static int all(void)
{
    (void)host_start("server", server_main);
    CHECK_OK(crowd(CLIENTS, client_main));
    for (unsigned i = 0; i < CLIENTS * REQUESTS; i++) {
        CHECK_INT(seen.served[i], <=, 1);
        CHECK_INT(seen.answered[i], <=, seen.served[i]);
    }
    return weir_sleep(90 * 1000); /* the server looks whether anything is left */
}

SIM_TEST(sim_requests_in_pieces_are_answered_in_their_order, .runs_max = 200, .begin = forget,
         .faults = {.short_io = 3, .late = 8, .late_ms_max = 50})
{
    CHECK_OK(all());
    CHECK_INT(seen.whole, ==, CLIENTS);
    for (unsigned i = 0; i < CLIENTS * REQUESTS; i++) CHECK_INT(seen.answered[i], ==, 1);
    return 0;
}

SIM_TEST(sim_requests_on_connections_that_break_are_served_once_at_most, .runs_max = 300,
         .begin = forget,
         .faults = {.short_io = 3, .late = 8, .reset = 40, .refuse = 4, .faults_max = 40})
{
    return all();
}

SIM_TEST(sim_a_server_that_stops_finishes_what_it_has, .runs_max = 300, .begin = forget,
         .faults = {.short_io = 3, .late = 8, .late_ms_max = 20})
{
    seen.stops = true;
    CHECK_OK(all());
    /* What was served was answered: nothing breaks but what was not begun. */
    for (unsigned i = 0; i < CLIENTS * REQUESTS; i++) {
        CHECK_INT(seen.answered[i], ==, seen.served[i]);
    }
    return 0;
}
