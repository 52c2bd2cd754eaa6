/* session_test.c - requests on a connection: one after the other, many at once, with and without
 * bodies. */
#include <stdlib.h>

#include "unit/server/server_test.h"

#define GET(path) "GET " path " HTTP/1.1\r\nhost: x\r\n\r\n"

SERVER_TEST(requests_on_one_connection_are_answered_one_after_the_other, {0})
{
    struct server_answer *answer = server_answer_room();
    struct server_client *client = server_connect(server);

    for (int i = 0; i < 3; i++) {
        server_ask(client, GET("/hello"), answer);
        CHECK_INT(answer->status, ==, 200);
        CHECK_STR(answer->body, "{\"hello\":\"world\"}");
        CHECK(answer->keep_alive);
    }
    server_disconnect(client);
}

SERVER_TEST(what_follows_a_request_is_answered_after_it, {0})
{
    struct server_answer *answer = server_answer_room();
    struct server_client *client = server_connect(server);

    server_send(client, GET("/items/1/of/a"));
    server_send(client, "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc"
                        "GET /items/2/of/b?q=z HTTP/1.1\r\nhost: x\r\n\r\n"
                        "POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
                        "2\r\nde\r\n1\r\nf\r\n0\r\n\r\n"
                        "GET /items/3/of/c HTTP/1.1\r\nhost: x\r\n\r\n");
    server_read(client, false, answer);
    CHECK_STR(answer->body, "1|a|");
    server_read(client, false, answer);
    CHECK_STR(answer->body, "abc");
    server_read(client, false, answer);
    CHECK_STR(answer->body, "2|b|z");
    server_read(client, false, answer);
    CHECK_STR(answer->body, "def");
    server_read(client, false, answer);
    CHECK_STR(answer->body, "3|c|");
    server_disconnect(client);
}

/* Whatever the pieces are in which it comes. */
SERVER_TEST(a_body_is_the_same_however_it_is_cut, {0})
{
    enum { BYTES_MAX = 100 * 1000 };
    static char body[BYTES_MAX + 1], text[BYTES_MAX + 200];
    struct server_answer *answer = server_answer_room();
    struct server_client *client = server_connect(server);
    const size_t cuts[] = {1, 7, 1000, 16 * 1024, BYTES_MAX + 200};

    for (size_t i = 0; i < BYTES_MAX; i++) body[i] = (char)('a' + i * i % 23);
    for (size_t c = 0; c < sizeof cuts / sizeof cuts[0]; c++) {
        size_t bytes = cuts[c] == 1 ? 300 : BYTES_MAX;
        size_t head = (size_t)snprintf(text, 200,
                                       "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: %zu"
                                       "\r\n\r\n",
                                       bytes);

        memcpy(text + head, body, bytes);
        for (size_t at = 0; at < head + bytes; at += cuts[c]) {
            size_t left = head + bytes - at;
            server_send_bytes(client, text + at, left < cuts[c] ? left : cuts[c]);
        }
        server_read(client, false, answer);
        CHECK_INT(answer->status, ==, 200);
        CHECK_INT(answer->body_bytes, ==, bytes);
        CHECK(memcmp(answer->body, body, bytes) == 0);
    }
    server_disconnect(client);
}

SERVER_TEST(lines_of_a_body_are_read_as_they_come, {0})
{
    struct server_answer *answer = server_answer_room();
    struct server_client *client = server_connect(server);

    server_ask(client,
               "POST /lines HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
               "4\r\na\nbb\r\n3\r\nb\r\n\r\n3\r\nccc\r\n0\r\n\r\n",
               answer);
    CHECK_INT(answer->status, ==, 200);
    CHECK_STR(answer->body, "a;bbb;ccc;");
    CHECK(answer->keep_alive);
    server_ask(client, GET("/hello"), answer);
    CHECK_INT(answer->status, ==, 200);
    server_disconnect(client);
}

SERVER_TEST(a_client_that_expects_it_is_told_to_go_on, {0})
{
    struct server_answer *answer = server_answer_room();
    struct server_client *client = server_connect(server);

    server_ask(
        client,
        "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\nexpect: 100-continue\r\n\r\n",
        answer);
    CHECK_INT(answer->status, ==, 100);
    server_ask(client, "abc", answer);
    CHECK_INT(answer->status, ==, 200);
    CHECK_STR(answer->body, "abc");
    /* It is not told so if its body is not wanted. */
    server_ask(
        client,
        "PUT /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 30\r\nexpect: 100-continue\r\n\r\n",
        answer);
    CHECK_INT(answer->status, ==, 413);
    CHECK(!answer->keep_alive);
    CHECK(server_is_closed(client));
    server_disconnect(client);
}

SERVER_TEST(an_answer_can_come_while_the_body_is_read, {0})
{
    struct server_answer *answer = server_answer_room();
    struct server_client *client = server_connect(server);

    server_ask(client,
               "POST /both HTTP/1.1\r\nhost: x\r\ncontent-length: 6\r\nexpect: 100-continue"
               "\r\n\r\n",
               answer);
    CHECK_INT(answer->status, ==, 100);
    server_ask(client, "a\nbb\nc", answer);
    CHECK_INT(answer->status, ==, 200);
    CHECK_STR(answer->body, "a;bb;c;");
    CHECK(server_is_closed(client));
    server_disconnect(client);
}

SERVER_TEST(an_answer_can_be_sent_in_pieces, {0})
{
    struct server_answer *answer = server_answer_room();
    struct server_client *client = server_connect(server);
    char text[64];

    server_ask(client, GET("/stream"), answer);
    CHECK_INT(answer->status, ==, 200);
    CHECK_STR(server_field(answer, "transfer-encoding", text, sizeof text), "chunked");
    CHECK_STR(answer->body, "one,two");
    server_ask(client, "GET /stream HTTP/1.0\r\n\r\n", answer);
    CHECK_STR(answer->body, "one,two");
    CHECK(server_is_closed(client));
    server_disconnect(client);
    /* One that fails in the middle has no end. */
    client = server_connect(server);
    server_ask(client, GET("/broken"), answer);
    CHECK(answer->closed);
    CHECK_INT(answer->status, ==, 0);
    server_disconnect(client);
}

SERVER_TEST(head_has_the_fields_of_get_and_no_body, {0})
{
    struct server_answer *answer = server_answer_room();
    struct server_client *client = server_connect(server);
    char text[64];

    server_ask(client, "HEAD /hello HTTP/1.1\r\nhost: x\r\n\r\n", answer);
    CHECK_INT(answer->status, ==, 200);
    CHECK_STR(server_field(answer, "content-length", text, sizeof text), "17");
    CHECK_INT(answer->body_bytes, ==, 0);
    server_ask(client, "HEAD /stream HTTP/1.1\r\nhost: x\r\n\r\n", answer);
    CHECK_INT(answer->status, ==, 200);
    server_ask(client, GET("/hello"), answer);
    CHECK_STR(answer->body, "{\"hello\":\"world\"}");
    server_disconnect(client);
}

SERVER_TEST(a_path_with_other_methods_says_which, {0})
{
    struct server_answer *answer = server_answer_room();
    struct server_client *client = server_connect(server);
    char text[64];

    server_ask(client, "DELETE /echo HTTP/1.1\r\nhost: x\r\n\r\n", answer);
    CHECK_INT(answer->status, ==, 405);
    CHECK_STR(server_field(answer, "allow", text, sizeof text), "OPTIONS, POST, PUT");
    CHECK_CONTAINS(answer->body, "\"code\":\"wrong-method\"");
    server_ask(client, "OPTIONS /hello HTTP/1.1\r\nhost: x\r\n\r\n", answer);
    CHECK_INT(answer->status, ==, 204);
    CHECK_STR(server_field(answer, "allow", text, sizeof text), "OPTIONS, GET, HEAD");
    server_ask(client, "OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n", answer);
    CHECK_INT(answer->status, ==, 204);
    server_ask(client, GET("/none"), answer);
    CHECK_INT(answer->status, ==, 404);
    CHECK_CONTAINS(answer->body, "\"type\":\"urn:weir:problem:not-found\"");
    server_ask(client, GET("/fail/2"), answer);
    CHECK_INT(answer->status, ==, 404);
    CHECK_CONTAINS(answer->body, "\"code\":\"no-such\"");
    /* Cut off (WEIR_ECANCELED): a read is asked for again, a write may have been done. */
    server_ask(client, GET("/fail/4097"), answer);
    CHECK_CONTAINS(answer->body, "\"code\":\"draining\"");
    server_ask(client, "POST /fail/4097 HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n", answer);
    CHECK_INT(answer->status, ==, 504);
    CHECK_CONTAINS(answer->body, "\"code\":\"outcome-unknown\"");
    CHECK_STR(server_field(answer, "retry-after", text, sizeof text), "");
    server_ask(client, GET("/nothing"), answer);
    CHECK_INT(answer->status, ==, 500);
    CHECK(answer->keep_alive);
    server_disconnect(client);
}
