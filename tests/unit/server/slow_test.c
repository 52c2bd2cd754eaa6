/* slow_test.c - clients that are slow, at each place: they are told so and end, and others do not
 * notice. The clock is moved by hand. */
#include <stdlib.h>

#include "server/service_inside.h"
#include "unit/server/server_test.h"

#define GET(path) "GET " path " HTTP/1.1\r\nhost: x\r\n\r\n"

static struct service_limits limits_of_slow_tests(void)
{
    struct service_limits limits = server_test_limits();

    limits.head_ms = 2000;
    limits.body_ms = 2000;
    limits.idle_ms = 5000;
    limits.write_ms = 2000;
    limits.body_bytes_per_s_min = 100;
    return limits;
}

/* With one worker, and a clock that jumps when nobody has anything to do. */
static server_body slow_body;

static int slow_task(void *arg)
{
    (void)arg;
    WEIR_DEADLINE(3600 * 1000) {
        return server_test_run(&(struct service_spec){.limits = limits_of_slow_tests()}, slow_body);
    }
    return WEIR_EREFUSED;
}

#define SLOW_TEST(name_)                                                                         \
    static void slow_body_##name_(struct server *server, weir_scope *scope);                     \
    TEST_WITH(name_, .workers = 1)                                                               \
    {                                                                                            \
        test_clock_auto();                                                                       \
        slow_body = slow_body_##name_;                                                           \
        CHECK_OK(                                                                                \
            weir_run(&(weir_config){.workers = 1, .log_level = WEIR_LOG_OFF}, slow_task, NULL)); \
    }                                                                                            \
    static void slow_body_##name_(__attribute__((unused)) struct server *server,                 \
                                  __attribute__((unused)) weir_scope *scope)

static int64_t seconds_since(int64_t began_ns)
{
    return (weir_now_ns() - began_ns + 500000000) / 1000000000;
}

static unsigned timed_out(struct server *server)
{
    struct service_figures figures;

    service_figures_of(server->service, &figures);
    return (unsigned)figures.timed_out;
}

SLOW_TEST(a_head_that_comes_too_slowly_is_refused)
{
    struct server_answer *answer = server_answer_room();
    struct server_client *client = server_connect(server);
    int64_t began_ns = weir_now_ns();

    /* A byte a second does not help. */
    server_send(client, "GET /hel");
    CHECK_OK(weir_sleep(1000));
    server_send(client, "l");
    server_read(client, false, answer);
    CHECK_INT(seconds_since(began_ns), ==, 2);
    CHECK_INT(answer->status, ==, 408);
    CHECK(server_is_closed(client));
    CHECK_INT(timed_out(server), ==, 1);
    server_disconnect(client);
}

/* Slower than what a request may wait for its turn: that it has not done. */
SLOW_TEST(a_head_that_is_slow_but_in_time_is_not_shed)
{
    struct server_answer *answer = server_answer_room();
    struct server_client *client = server_connect(server);
    struct service_figures figures;

    server_send(client, "GET /hel");
    CHECK_OK(weir_sleep(1500));
    server_send(client, "lo HTTP/1.1\r\nhost: x\r\n\r\n");
    server_read(client, false, answer);
    CHECK_INT(answer->status, ==, 200);
    service_figures_of(server->service, &figures);
    CHECK_INT(figures.shed, ==, 0);
    server_disconnect(client);
}

SLOW_TEST(a_body_that_pauses_is_refused)
{
    struct server_answer *answer = server_answer_room();
    struct server_client *client = server_connect(server);
    int64_t began_ns = weir_now_ns();

    server_send(client, "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nab");
    CHECK_OK(weir_sleep(1000));
    server_send(client, "c");
    server_read(client, false, answer);
    CHECK_INT(seconds_since(began_ns), ==, 3);
    CHECK_INT(answer->status, ==, 408);
    CHECK(server_is_closed(client));
    CHECK_INT(timed_out(server), ==, 1);
    server_disconnect(client);
}

SLOW_TEST(a_body_that_trickles_is_refused)
{
    struct server_answer *answer = server_answer_room();
    struct server_client *client = server_connect(server);
    int64_t began_ns = weir_now_ns();
    int r = 0;

    server_send(client, "POST /lines HTTP/1.1\r\nhost: x\r\ncontent-length: 9000\r\n\r\n");
    while (r == 0 && seconds_since(began_ns) < 60) {
        r = weir_conn_send_all(client->conn, "a\n", 2, NULL);
        CHECK_OK(weir_sleep(1000));
        if (timed_out(server) > 0) break;
    }
    CHECK_INT(seconds_since(began_ns), <=, 7);
    server_read(client, false, answer);
    CHECK_INT(answer->status, ==, 408);
    server_disconnect(client);
}

/* As fast as is asked for, however long it takes. */
SLOW_TEST(a_body_that_is_slow_but_fast_enough_is_taken)
{
    struct server_answer *answer = server_answer_room();
    struct server_client *client = server_connect(server);
    char piece[200];

    memset(piece, 'a', sizeof piece);
    server_send(client, "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 3000\r\n\r\n");
    for (int i = 0; i < 15; i++) {
        server_send_bytes(client, piece, sizeof piece);
        CHECK_OK(weir_sleep(1000));
    }
    server_read(client, false, answer);
    CHECK_INT(answer->status, ==, 200);
    CHECK_INT(answer->body_bytes, ==, 3000);
    server_disconnect(client);
}

/* After a moment it has no task, and nothing but its struct; then it is closed. */
SLOW_TEST(a_connection_that_is_idle_has_no_task_and_ends)
{
    enum { CLIENTS = 50 };
    struct server_answer *answer = server_answer_room();
    struct server_client *clients[CLIENTS];
    struct service_figures figures;
    int64_t began_ns;

    for (int i = 0; i < CLIENTS; i++) clients[i] = server_connect(server);
    for (int i = 0; i < CLIENTS; i++) server_ask(clients[i], GET("/hello"), answer);
    began_ns = weir_now_ns();
    CHECK_OK(weir_sleep(WARM_MS + 100));
    service_figures_of(server->service, &figures);
    CHECK_INT(figures.connections_idle, ==, CLIENTS);
    CHECK_INT(weir_scope_task_count(server->service->inner), ==, 1); /* who accepts */
    CHECK_INT(server->service->wards[0].free_work_count, <=, WORKS_KEPT_MAX);
    CHECK_INT(sizeof(struct session), <=, 512);
    /* It still answers. */
    server_ask(clients[0], GET("/hello"), answer);
    CHECK_INT(answer->status, ==, 200);
    for (int i = 1; i < CLIENTS; i++) CHECK(server_is_closed(clients[i]));
    CHECK_INT(seconds_since(began_ns), ==, 5);
    for (int i = 0; i < CLIENTS; i++) server_disconnect(clients[i]);
}

/* So many that some of them have to rest before they have asked. Who has something to read is not
 * to wait until others have rested. */
SLOW_TEST(more_connections_than_may_wait_with_a_task_are_served_at_once)
{
    enum { CLIENTS = WARM_MAX + 100 };
    static struct server_client *clients[CLIENTS];
    struct server_answer *answer = server_answer_room();
    int64_t began_ns = weir_now_ns();

    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < CLIENTS; i++) {
            if (round == 0) clients[i] = server_connect(server);
            server_send(clients[i], GET("/hello"));
        }
        for (int i = 0; i < CLIENTS; i++) {
            server_read(clients[i], false, answer);
            CHECK_INT(answer->status, ==, 200);
        }
    }
    CHECK_INT(seconds_since(began_ns), ==, 0);
    for (int i = 0; i < CLIENTS; i++) server_disconnect(clients[i]);
}

SLOW_TEST(a_client_that_does_not_read_its_answer_is_let_go)
{
    struct server_client *client = server_connect(server);
    int64_t began_ns = weir_now_ns();
    int asked = 0;

    /* Until the system takes no more of the answers. */
    while (timed_out(server) == 0 && seconds_since(began_ns) < 60) {
        if (asked++ < 200) {
            int r = weir_conn_send_all(client->conn, GET("/big/400000"),
                                       sizeof GET("/big/400000") - 1, NULL);
            CHECK(r == 0 || r == -ECONNRESET || r == -EPIPE);
        }
        CHECK_OK(weir_sleep(100));
    }
    CHECK_INT(timed_out(server), ==, 1);
    server_disconnect(client);
}

/* The deadline of a route: what may have happened is told as such. */
SLOW_TEST(a_handler_that_is_too_slow_is_cut_off)
{
    struct server_answer *answer = server_answer_room();
    struct server_client *client = server_connect(server);
    int64_t began_ns = weir_now_ns();

    server_ask(client, "POST /hold HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n", answer);
    CHECK_INT(answer->status, ==, 504);
    CHECK_CONTAINS(answer->body, "\"code\":\"outcome-unknown\"");
    CHECK_INT(seconds_since(began_ns), ==, 1);
    CHECK(answer->keep_alive);
    server_ask(client, GET("/hold"), answer);
    CHECK_INT(answer->status, ==, 503);
    CHECK_INT(seconds_since(began_ns), ==, 61);
    server_disconnect(client);
}

/* ---- The end ---- */

static int close_service(void *arg)
{
    struct service *service = *(struct service **)arg;
    return service_close(service);
}

/* By its owner, or with its scope. */
static bool by_scope;

static int stop_task(void *arg)
{
    struct server_answer *answer = server_answer_room();
    int r = 0;

    (void)arg;
    WEIR_DEADLINE(IO_TEST_MS) {
        WEIR_SCOPE(scope, &r, .name = "test", .on_failure = WEIR_COLLECT, .max_tasks = 64,
                   .overflow = WEIR_REJECT) {
            struct server_client *busy, *idle;
            struct server server;
            weir_conn *late;

            server_open(&server, scope, &(struct service_spec){0});
            busy = server_connect(&server);
            idle = server_connect(&server);
            server_ask(idle, GET("/hello"), answer);
            server_send(busy, GET("/hold"));
            server_test_held(1);
            if (by_scope) {
                weir_scope_stop(scope, 10 * 1000);
            } else {
                CHECK_OK(weir_spawn(scope, close_service, &server.service, sizeof server.service));
            }
            /* What is idle ends at once, nobody is accepted any more, what is under way goes on. */
            CHECK(server_is_closed(idle));
            while (weir_connect(server.address, &late) == 0) {
                char byte;
                CHECK_INT(weir_conn_read(late, &byte, 1), <=, 0);
                weir_conn_close(late);
            }
            server_test_let_go();
            server_read(busy, false, answer);
            CHECK_INT(answer->status, ==, 200);
            CHECK(!answer->keep_alive);
            CHECK(server_is_closed(busy));
            server_disconnect(busy);
            server_disconnect(idle);
        }
    }
    return r;
}

TEST(a_service_that_is_closed_finishes_what_it_has)
{
    CHECK_OK(io_test_run(stop_task));
}

TEST(a_service_whose_scope_stops_finishes_what_it_has)
{
    by_scope = true;
    CHECK_OK(io_test_run(stop_task));
}
