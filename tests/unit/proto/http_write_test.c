/* http_write_test.c - answers and requests as bytes. That they are read back by the parser:
 * http_parse_written_test.c. */
#include "proto/http_write.h"

#include <errno.h>
#include <weir/error.h>

#include "harness/test.h"

static char memory[1024];

/* The answer with one field and a body of two pieces, or none. */
static const char *answer(unsigned status, enum http_method method, unsigned minor, bool keep,
                          bool chunked, bool body)
{
    struct http_writer writer;
    struct buffer out;

    buffer_init_fixed(&out, memory, sizeof memory - 1);
    http_write_answer(&writer, &out, status, method, minor, keep);
    http_write_field(&writer, BYTES("x-a"), BYTES("b"));
    if (chunked) {
        http_write_chunked(&writer);
    } else {
        http_write_length(&writer, body ? 13 : 0);
    }
    if (body) {
        http_write_body(&writer, BYTES("hello"));
        http_write_body(&writer, BYTES(""));
        http_write_body(&writer, BYTES(", world"));
        http_write_body(&writer, BYTES("\n"));
    }
    CHECK_INT(http_write_end(&writer), ==, 0);
    memory[out.used] = '\0';
    return memory;
}

TEST(http_answers_are_framed_as_they_say)
{
    CHECK_STR(answer(200, METHOD_GET, 1, true, false, true),
              "HTTP/1.1 200 OK\r\nx-a: b\r\ncontent-length: 13\r\n\r\nhello, world\n");
    CHECK_STR(answer(404, METHOD_GET, 1, false, false, true),
              "HTTP/1.1 404 Not Found\r\nx-a: b\r\ncontent-length: 13\r\nconnection: close\r\n\r\n"
              "hello, world\n");
    CHECK_STR(answer(200, METHOD_GET, 1, true, true, true),
              "HTTP/1.1 200 OK\r\nx-a: b\r\ntransfer-encoding: chunked\r\n\r\n"
              "5\r\nhello\r\n7\r\n, world\r\n1\r\n\n\r\n0\r\n\r\n");
    CHECK_STR(answer(299, METHOD_GET, 1, true, true, false),
              "HTTP/1.1 299 Unknown\r\nx-a: b\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n");
    CHECK_STR(answer(200, METHOD_GET, 1, true, false, false),
              "HTTP/1.1 200 OK\r\nx-a: b\r\ncontent-length: 0\r\n\r\n");
}

TEST(http_answers_to_head_and_without_a_body_have_none)
{
    CHECK_STR(answer(200, METHOD_HEAD, 1, true, false, true),
              "HTTP/1.1 200 OK\r\nx-a: b\r\ncontent-length: 13\r\n\r\n");
    CHECK_STR(answer(200, METHOD_HEAD, 1, true, true, true),
              "HTTP/1.1 200 OK\r\nx-a: b\r\ntransfer-encoding: chunked\r\n\r\n");
    CHECK_STR(answer(204, METHOD_GET, 1, true, false, true),
              "HTTP/1.1 204 No Content\r\nx-a: b\r\n\r\n");
    CHECK_STR(answer(304, METHOD_GET, 1, false, true, true),
              "HTTP/1.1 304 Not Modified\r\nx-a: b\r\nconnection: close\r\n\r\n");
    CHECK_STR(answer(100, METHOD_GET, 1, false, true, false),
              "HTTP/1.1 100 Continue\r\nx-a: b\r\n\r\n");
    CHECK_STR(answer(101, METHOD_GET, 1, true, false, false),
              "HTTP/1.1 101 Switching Protocols\r\nx-a: b\r\nconnection: upgrade\r\n\r\n");
}

TEST(http_answers_to_an_old_client_are_understood_by_it)
{
    CHECK_STR(answer(200, METHOD_GET, 0, true, false, true),
              "HTTP/1.1 200 OK\r\nx-a: b\r\ncontent-length: 13\r\nconnection: keep-alive\r\n\r\n"
              "hello, world\n");
    /* It knows no chunks: the close ends the body. */
    CHECK_STR(answer(200, METHOD_GET, 0, true, true, true),
              "HTTP/1.1 200 OK\r\nx-a: b\r\n\r\nhello, world\n");
    CHECK_STR(answer(200, METHOD_GET, 0, false, false, false),
              "HTTP/1.1 200 OK\r\nx-a: b\r\ncontent-length: 0\r\n\r\n");
}

TEST(http_fields_that_would_break_their_line_are_refused)
{
    static const struct {
        struct bytes name, value;
    } refused[] = {
        {{"a", 1}, {"b\r\nc: d", 7}},
        {{"a", 1}, {"b\nc", 3}},
        {{"a", 1}, {"b\rc", 3}},
        {{"a", 1}, {"b\0c", 3}},
        {{"a", 1}, {"\x7f", 1}},
        {{"a\r\nb", 4}, {"c", 1}},
        {{"a b", 3}, {"c", 1}},
        {{"a:", 2}, {"c", 1}},
        {{"", 0}, {"c", 1}},
        {{"Content-Length", 14}, {"1", 1}},
        {{"transfer-encoding", 17}, {"chunked", 7}},
        {{"Connection", 10}, {"close", 5}},
    };

    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct http_writer writer;
        struct buffer out;

        buffer_init_fixed(&out, memory, sizeof memory);
        http_write_answer(&writer, &out, 200, METHOD_GET, 1, true);
        http_write_field(&writer, refused[i].name, refused[i].value);
        http_write_field(&writer, BYTES("x"), BYTES("y"));
        http_write_length(&writer, 1);
        http_write_body(&writer, BYTES("z"));
        test_note("%zu", i);
        CHECK_INT(http_write_end(&writer), ==, WEIR_EREFUSED);
        CHECK(!memchr(memory, 'z', out.used));
    }
}

TEST(http_body_that_is_not_as_long_as_was_said_is_refused)
{
    static const char *const bodies[] = {"", "12", "1234"};

    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        struct http_writer writer;
        struct buffer out;

        buffer_init_fixed(&out, memory, sizeof memory);
        http_write_answer(&writer, &out, 200, METHOD_GET, 1, true);
        http_write_length(&writer, 3);
        http_write_body(&writer, bytes_of(bodies[i]));
        CHECK_INT(http_write_end(&writer), ==, WEIR_EREFUSED);
    }
}

TEST(http_answer_beyond_its_buffer_is_an_error)
{
    struct http_writer writer;
    struct buffer out;

    buffer_init_fixed(&out, memory, 40);
    http_write_answer(&writer, &out, 200, METHOD_GET, 1, true);
    http_write_length(&writer, 3);
    http_write_body(&writer, BYTES("abc"));
    CHECK_INT(http_write_end(&writer), ==, -EMSGSIZE);
}

TEST(http_requests_are_written_with_their_host)
{
    struct http_writer writer;
    struct buffer out;

    buffer_init_fixed(&out, memory, sizeof memory - 1);
    http_write_request(&writer, &out, METHOD_GET, BYTES("/a?b"), BYTES("h:1"), true);
    http_write_field(&writer, BYTES("accept"), BYTES("*/*"));
    http_write_no_body(&writer);
    CHECK_INT(http_write_end(&writer), ==, 0);
    http_write_request(&writer, &out, METHOD_POST, BYTES("/"), BYTES("h"), false);
    http_write_length(&writer, 2);
    http_write_body(&writer, BYTES("hi"));
    CHECK_INT(http_write_end(&writer), ==, 0);
    memory[out.used] = '\0';
    CHECK_STR(memory,
              "GET /a?b HTTP/1.1\r\nhost: h:1\r\naccept: */*\r\n\r\n"
              "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi");
    http_write_request(&writer, &out, METHOD_GET, BYTES("/a b"), BYTES("h"), true);
    CHECK_INT(http_write_end(&writer), ==, WEIR_EREFUSED);
    http_write_request(&writer, &out, METHOD_GET, BYTES("/"), BYTES("h\r\nx: y"), true);
    CHECK_INT(http_write_end(&writer), ==, WEIR_EREFUSED);
}
