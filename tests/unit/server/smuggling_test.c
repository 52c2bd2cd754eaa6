/* smuggling_test.c - requests that others might cut otherwise than we do: each is refused, and
 * nothing that lies behind it is served. */
#include "unit/server/server_test.h"

#define HIDDEN "GET /hello HTTP/1.1\r\nhost: x\r\n\r\n"
#define POST "POST /echo HTTP/1.1\r\nhost: x\r\n"

static const struct {
    const char *what, *request;
    size_t bytes; /* 0: to its end */
} rows[] = {
    {"both framings", POST "content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"},
    {"both, the other way round",
     POST "transfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n0\r\n\r\n"},
    {"two lengths", POST "content-length: 4\r\ncontent-length: 5\r\n\r\nabcde"},
    {"the same length twice", POST "content-length: 4\r\ncontent-length: 4\r\n\r\nabcd"},
    {"a list of lengths", POST "content-length: 4, 4\r\n\r\nabcd"},
    {"a length with a sign", POST "content-length: +4\r\n\r\nabcd"},
    {"a negative length", POST "content-length: -4\r\n\r\nabcd"},
    {"a length in hex", POST "content-length: 0x4\r\n\r\nabcd"},
    {"a length with a blank", POST "content-length: 4 4\r\n\r\nabcd"},
    {"an empty length", POST "content-length:\r\n\r\nabcd"},
    {"a length beyond all numbers", POST "content-length: 18446744073709551620\r\n\r\nabcd"},
    {"chunked is not the last", POST "transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n"},
    {"chunked is not the only one", POST "transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n"},
    {"chunked twice", POST "transfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n"},
    {"chunked in two fields",
     POST "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"},
    {"chunked and identity",
     POST "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\n"},
    {"xchunked", POST "transfer-encoding: xchunked\r\n\r\n0\r\n\r\n"},
    {"chunked with quotes", POST "transfer-encoding: \"chunked\"\r\n\r\n0\r\n\r\n"},
    {"chunked with a parameter", POST "transfer-encoding: chunked;q=1\r\n\r\n0\r\n\r\n"},
    {"a blank before the colon", POST "transfer-encoding : chunked\r\n\r\n0\r\n\r\n"},
    {"a blank before the name", POST " transfer-encoding: chunked\r\n\r\n0\r\n\r\n"},
    {"a tab before the colon", POST "content-length\t: 4\r\n\r\nabcd"},
    {"a vertical tab", POST "transfer-encoding: \x0b"
                            "chunked\r\n\r\n0\r\n\r\n"},
    {"a folded field", POST "transfer-encoding:\r\n chunked\r\n\r\n0\r\n\r\n"},
    {"a folded field, first", "POST /echo HTTP/1.1\r\n folded: x\r\nhost: x\r\n\r\n"},
    {"a bare LF after the first line", "GET /hello HTTP/1.1\nhost: x\r\n\r\n"},
    {"a bare LF after a field", "GET /hello HTTP/1.1\r\nhost: x\nf: 1\r\n\r\n"},
    {"a bare LF at the end", "GET /hello HTTP/1.1\r\nhost: x\r\n\n"},
    {"a bare CR within a field", "GET /hello HTTP/1.1\r\nhost: x\rf: 1\r\n\r\n"},
    {"a NUL in a value", "GET /hello HTTP/1.1\r\nhost: x\r\nf: a\0b\r\n\r\n", 40},
    {"a NUL in a name", "GET /hello HTTP/1.1\r\nhost: x\r\nf\0: a\r\n\r\n", 39},
    {"a name that is none", "GET /hello HTTP/1.1\r\nhost: x\r\nf(): a\r\n\r\n"},
    {"no name", "GET /hello HTTP/1.1\r\nhost: x\r\n: a\r\n\r\n"},
    {"no Host", "GET /hello HTTP/1.1\r\n\r\n"},
    {"two Hosts", "GET /hello HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n"},
    {"a list of Hosts", "GET /hello HTTP/1.1\r\nhost: x, y\r\n\r\n"},
    {"a user in Host", "GET /hello HTTP/1.1\r\nhost: a@x\r\n\r\n"},
    {"an address of another Host", "GET http://y/hello HTTP/1.1\r\nhost: x\r\n\r\n"},
    {"a path without a slash", "GET hello HTTP/1.1\r\nhost: x\r\n\r\n"},
    {"two blanks", "GET  /hello HTTP/1.1\r\nhost: x\r\n\r\n"},
    {"a blank in the target", "GET /hel lo HTTP/1.1\r\nhost: x\r\n\r\n"},
    {"a tab for a blank", "GET\t/hello\tHTTP/1.1\r\nhost: x\r\n\r\n"},
    {"a fragment", "GET /hello#a HTTP/1.1\r\nhost: x\r\n\r\n"},
    {"a chunk that is no number", POST "transfer-encoding: chunked\r\n\r\nx\r\n\r\n"},
    {"a chunk with a sign", POST "transfer-encoding: chunked\r\n\r\n+1\r\na\r\n0\r\n\r\n"},
    {"a chunk in 0x", POST "transfer-encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n"},
    {"a blank before the size", POST "transfer-encoding: chunked\r\n\r\n 1\r\na\r\n0\r\n\r\n"},
    {"a chunk beyond all numbers",
     POST "transfer-encoding: chunked\r\n\r\n10000000000000001\r\na\r\n0\r\n\r\n"},
    {"a chunk that ends in LF", POST "transfer-encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n"},
    {"a chunk that is longer than it says",
     POST "transfer-encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n"},
    {"a chunk without its end", POST "transfer-encoding: chunked\r\n\r\n1\r\na0\r\n\r\n"},
    {"an extension with LF", POST "transfer-encoding: chunked\r\n\r\n1;a\nb\r\na\r\n0\r\n\r\n"},
    {"a length among trailers",
     POST "transfer-encoding: chunked\r\n\r\n0\r\ncontent-length: 4\r\n\r\n"},
    {"HTTP/1.0 in chunks",
     "POST /echo HTTP/1.0\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"},
    {"chunked among trailers",
     POST "transfer-encoding: chunked\r\n\r\n0\r\ntransfer-encoding: chunked\r\n\r\n"},
    {"a Host among trailers", POST "transfer-encoding: chunked\r\n\r\n0\r\nhost: y\r\n\r\n"},
    {"a token among trailers",
     POST "transfer-encoding: chunked\r\n\r\n0\r\nauthorization: Bearer x\r\n\r\n"},
    {"a blank behind the size", POST "transfer-encoding: chunked\r\n\r\n1 \r\na\r\n0\r\n\r\n"},
    {"an empty size", POST "transfer-encoding: chunked\r\n\r\n\r\na\r\n0\r\n\r\n"},
    {"a negative size", POST "transfer-encoding: chunked\r\n\r\n-1\r\na\r\n0\r\n\r\n"},
    {"a size that ends in CR", POST "transfer-encoding: chunked\r\n\r\n1\ra\r\n0\r\n\r\n"},
    {"an extension with CR", POST "transfer-encoding: chunked\r\n\r\n1;a\rb\r\na\r\n0\r\n\r\n"},
    {"a chunk that ends in LF alone", POST "transfer-encoding: chunked\r\n\r\n1\r\na\n0\r\n\r\n"},
    {"identity for chunked", POST "transfer-encoding: identity\r\ncontent-length: 4\r\n\r\nabcd"},
    {"an empty coding", POST "transfer-encoding:\r\ncontent-length: 4\r\n\r\nabcd"},
    {"a comma before chunked", POST "transfer-encoding: , chunked\r\n\r\n0\r\n\r\n"},
    {"two lengths in other letters", POST "Content-Length: 4\r\ncontent-LENGTH: 5\r\n\r\nabcde"},
    {"a length with a comma behind", POST "content-length: 4,\r\n\r\nabcd"},
    {"a length with a point", POST "content-length: 4.0\r\n\r\nabcd"},
    {"a length in other digits", POST "content-length: \xd9\xa4\r\n\r\nabcd"},
    {"a folded length", POST "content-length: 4\r\n 4\r\n\r\nabcd"},
    {"CR CR LF behind a field", "GET /hello HTTP/1.1\r\nhost: x\r\r\n\r\n"},
    {"a user in the target", "GET http://a@x/hello HTTP/1.1\r\nhost: x\r\n\r\n"},
    {"a target with CR", "GET /hello\rx HTTP/1.1\r\nhost: x\r\n\r\n"},
    {"a blank behind the version", "GET /hello HTTP/1.1 \r\nhost: x\r\n\r\n"},
    {"a version with more digits", "GET /hello HTTP/1.10\r\nhost: x\r\n\r\n"},
    {"HTTP/0.9", "GET /hello\r\n"},
    {"a small version", "GET /hello http/1.1\r\nhost: x\r\n\r\n"},
};

SERVER_TEST(requests_that_others_may_read_otherwise_are_refused, {0})
{
    struct server_answer *answer = server_answer_room();

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct server_client *client = server_connect(server);
        size_t bytes = rows[i].bytes > 0 ? rows[i].bytes : strlen(rows[i].request);

        test_note("%s", rows[i].what);
        server_send_bytes(client, rows[i].request, bytes);
        /* It may have been refused and closed by now. */
        (void)!weir_conn_send_all(client->conn, HIDDEN, sizeof HIDDEN - 1, NULL);
        server_read(client, false, answer);
        CHECK_INT(answer->status, ==, 400);
        CHECK(!answer->keep_alive);
        CHECK(server_is_closed(client));
        server_disconnect(client);
        /* The handler of a body that is refused in its middle was called, that of what is hidden
         * never. */
        CHECK_STR(server_test_last(), server_test_calls() > 0 ? "/echo" : "");
    }
}

/* The body of a request that was refused is no request. */
SERVER_TEST(a_body_that_was_not_read_is_not_taken_for_a_request, {0})
{
    static const char *const requests[] = {
        "PUT /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 32\r\n\r\n" HIDDEN,
        "DELETE /none HTTP/1.1\r\nhost: x\r\ncontent-length: 32\r\n\r\n" HIDDEN,
        "GET /hello HTTP/1.1\r\nhost: x\r\ncontent-length: 32\r\n\r\n" HIDDEN,
    };
    struct server_answer *answer = server_answer_room();

    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        struct server_client *client = server_connect(server);

        server_ask(client, requests[i], answer);
        CHECK_INT(answer->status, >=, 404);
        server_ask(client, "GET /items/1/of/2 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
                   answer);
        CHECK_STR(answer->body, "1|2|");
        CHECK(server_is_closed(client));
        server_disconnect(client);
    }
}
