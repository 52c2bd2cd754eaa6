/* http_parse_answer_test.c - answers, as the command line and tests read them. */
#include "unit/proto/transcript.h"

struct answer {
    const char *bytes, *transcript;
};

static void check_answers(const struct answer *answers, size_t count, bool to_head)
{
    static struct transcript script;

    script.answers_head = to_head;
    for (size_t i = 0; i < count; i++) {
        CHECK_STR(transcript_of(&script, HTTP_KIND_ANSWER, bytes_of(answers[i].bytes)),
                  answers[i].transcript);
    }
}

TEST(http_answers_are_the_same_in_any_pieces)
{
    static const struct answer answers[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
         "200 1.1 content-length=2 keep | hi | END | CLOSED"},
        {"HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n",
         "200 1.1 content-length=0 keep | END | CLOSED"},
        {"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n",
         "404 1.1 transfer-encoding=chunked keep | no | END | CLOSED"},
        /* Until the close. */
        {"HTTP/1.1 200 OK\r\n\r\nall of it\r\n", "200 1.1 close | all of it\r\n | END | CLOSED"},
        {"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\nx",
         "200 1.0 connection=keep-alive close | x | END | CLOSED"},
        {"HTTP/1.1 200 OK\r\n\r\n", "200 1.1 close | END | CLOSED"},
        /* Without a body, whatever they say. */
        {"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n",
         "204 1.1 keep | END | 304 1.1 content-length=7 keep | END | CLOSED"},
        {"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
         "204 1.1 transfer-encoding=chunked keep | END | CLOSED"},
        {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\n!",
         "100 1.1 keep | END | 201 1.1 content-length=1 keep | ! | END | CLOSED"},
        {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
         "101 1.1 upgrade=websocket connection=upgrade upgrade keep | END | CLOSED"},
    };

    check_answers(answers, sizeof answers / sizeof answers[0], false);
}

TEST(http_answers_to_head_have_no_body)
{
    static const struct answer answers[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
         "200 1.1 content-length=5 keep | END | 200 1.1 keep | END | CLOSED"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
         "200 1.1 transfer-encoding=chunked keep | END | CLOSED"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n",
         "200 1.1 content-length=18446744073709551615 keep | END | CLOSED"},
    };

    check_answers(answers, sizeof answers / sizeof answers[0], true);
}

#define TEN "0123456789"
#define FIFTY TEN TEN TEN TEN TEN

TEST(http_answers_that_are_none_are_refused)
{
    static const char *const refused[] = {
        "HTTP/1.1\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 600 Odd\r\n\r\n",
        "HTTP/1.1 099 Odd\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\n\r\n",
        "HTTP/1.1 200 O\x01K\r\n\r\n",
        "\r\nHTTP/1.1 200 OK\r\n\r\n",
        "ICY 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n" FIFTY FIFTY "0",
    };
    static struct transcript script;

    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        const char *text = transcript_of(&script, HTTP_KIND_ANSWER, bytes_of(refused[i]));

        test_note("%s -> %s", refused[i], text);
        CHECK(strstr(text, "400 ") || strstr(text, "413 ") || strstr(text, "505 "));
        CHECK(!strstr(text, "CLOSED"));
    }
}
