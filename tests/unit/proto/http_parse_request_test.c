/* http_parse_request_test.c - requests: what they say, in any pieces, and where each ends. What is
 * refused: http_parse_refuse_test.c. */
#include <stdio.h>

#include "unit/proto/transcript.h"

static const struct {
    const char *bytes, *transcript;
} requests[] = {
    {"", "CLOSED"},
    {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / 1.1 host=a keep | END | CLOSED"},
    {"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / 1.1 host=a keep | END | CLOSED"},
    {"GET /a/b?c=d%20e HTTP/1.1\r\nHOST:a:80\r\n\r\n",
     "GET /a/b?c=d%20e 1.1 host=a:80 keep | END | CLOSED"},
    {"GET / HTTP/1.0\r\n\r\n", "GET / 1.0 close | END | CLOSED"},
    {"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
     "GET / 1.0 connection=keep-alive keep | END | CLOSED"},
    {"GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n",
     "GET / 1.0 connection=keep-alive, close close | END | CLOSED"},
    {"GET / HTTP/1.1\r\nHost: a\r\nConnection: x, CLOSE\r\n\r\n",
     "GET / 1.1 host=a connection=x, CLOSE close | END | CLOSED"},
    {"GET / HTTP/1.1\r\nHost: [::1]:7\r\nX-Empty:\r\nX-Blank:  \t \r\nX-In:  a  b\t \r\n\r\n",
     "GET / 1.1 host=[::1]:7 x-empty= x-blank= x-in=a  b keep | END | CLOSED"},
    {"GET / HTTP/1.1\r\nHost: a\r\nX: \xc3\xa4\xff\r\n\r\n",
     "GET / 1.1 host=a x=\xc3\xa4\xff keep | END | CLOSED"},
    {"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS * 1.1 host=a keep | END | CLOSED"},
    {"GET http://b:8/x HTTP/1.1\r\nHost: a\r\n\r\n",
     "GET http://b:8/x 1.1 host=a keep | END | CLOSED"},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
     "POST / 1.1 host=a content-length=5 keep | hello | END | CLOSED"},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
     "POST / 1.1 host=a content-length=0 keep | END | CLOSED"},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0100\r\nExpect: 100-Continue\r\n\r\n"
     "01234567890123456789012345678901234567890123456789"
     "01234567890123456789012345678901234567890123456789",
     "POST / 1.1 host=a content-length=0100 expect=100-Continue continue keep | "
     "01234567890123456789012345678901234567890123456789"
     "01234567890123456789012345678901234567890123456789 | END | CLOSED"},
    {"GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n",
     "GET / 1.1 host=a expect=100-continue keep | END | CLOSED"},
    {"PUT /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n"
     "3\r\nabc\r\nA;x=\"y\"\r\n0123456789\r\n0\r\n\r\n",
     "PUT /x 1.1 host=a transfer-encoding=Chunked keep | abc0123456789 | END | CLOSED"},
    {"PUT /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
     "PUT /x 1.1 host=a transfer-encoding=chunked keep | END | CLOSED"},
    {"PUT /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
     "001\r\n\n\r\n000\r\nX-Sum: 1 \r\nY:\r\n\r\n",
     "PUT /x 1.1 host=a transfer-encoding=chunked keep | \n | END x-sum=1 y= | CLOSED"},
    /* One after the other: the body of the first looks like a request. */
    {"POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 18\r\n\r\nGET / HTTP/1.1\r\n\r\n"
     "GET /2 HTTP/1.1\r\nHost: a\r\n\r\nDELETE /3 HTTP/1.1\r\nHost: a\r\n\r\n",
     "POST /1 1.1 host=a content-length=18 keep | GET / HTTP/1.1\r\n\r\n | END | "
     "GET /2 1.1 host=a keep | END | DELETE /3 1.1 host=a keep | END | CLOSED"},
    {"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
     "GET / 1.1 host=a upgrade=websocket connection=Upgrade upgrade keep | END | CLOSED"},
    {"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n",
     "GET / 1.1 host=a upgrade=websocket keep | END | CLOSED"},
    {"POST / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n"
     "Content-Length: 2\r\n\r\nhiGET / HTTP/1.1\r\nHost: a\r\n\r\n",
     "POST / 1.1 host=a upgrade=h2c connection=Upgrade content-length=2 upgrade keep | hi | END | "
     "GET / 1.1 host=a keep | END | CLOSED"},
    {"POST / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n"
     "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
     "POST / 1.1 host=a upgrade=h2c connection=Upgrade transfer-encoding=chunked upgrade keep | hi "
     "| END | GET / 1.1 host=a keep | END | CLOSED"},
    /* As much as is allowed: 100 bytes of the first line, 8 fields. */
    {"GET /012345678901234567890123456789012345678901234567890123456789012345678901234567890123 "
     "HTTP/1.1\r\nHost: a\r\nB: 1\r\nC: 1\r\nD: 1\r\nE: 1\r\nF: 1\r\nG: 1\r\nH: 1\r\n\r\n",
     "GET /012345678901234567890123456789012345678901234567890123456789012345678901234567890123 "
     "1.1 host=a b=1 c=1 d=1 e=1 f=1 g=1 h=1 keep | END | CLOSED"},
};

TEST(http_requests_are_the_same_in_any_pieces)
{
    static struct transcript script;

    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        CHECK_STR(transcript_of(&script, HTTP_KIND_REQUEST, bytes_of(requests[i].bytes)),
                  requests[i].transcript);
    }
}

TEST(http_request_that_is_cut_off_is_a_failure)
{
    static struct transcript script;
    struct bytes whole = BYTES("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                               "2\r\nhi\r\n0\r\nX: y\r\n\r\n");

    for (size_t count = 1; count < whole.count; count++) {
        const char *text =
            transcript_cut(&script, HTTP_KIND_REQUEST, (struct bytes){whole.at, count}, 0, 0);

        test_note("the first %zu bytes: %s", count, text);
        CHECK_CONTAINS(text, "400 the connection was closed within a message");
    }
}

TEST(http_request_says_who_is_asked)
{
    static const struct {
        const char *bytes, *authority;
    } cases[] = {
        {"GET / HTTP/1.1\r\nHost: a:1\r\n\r\n", "a:1"},
        {"GET http://b:2/ HTTP/1.1\r\nHost: a:1\r\n\r\n", "b:2"},
        {"GET https://b?x HTTP/1.1\r\nHost: a:1\r\n\r\n", "b"},
        {"GET / HTTP/1.0\r\n\r\n", ""},
    };
    static struct transcript script;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes body;
        size_t used;

        transcript_open(&script, HTTP_KIND_REQUEST);
        CHECK_INT(http_parse(&script.parser, cases[i].bytes, strlen(cases[i].bytes), &used, &body),
                  ==, PARSE_HEAD);
        test_note("%s", cases[i].bytes);
        CHECK(bytes_are(script.parser.message.authority, bytes_of(cases[i].authority)));
        (void)transcript_close(&script, false);
    }
}

TEST(http_body_is_shown_where_it_lies_and_the_next_request_is_left)
{
    static struct transcript script;
    static const char bytes[] = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhiGET /";
    size_t used, at;
    struct bytes body;

    transcript_open(&script, HTTP_KIND_REQUEST);
    CHECK_INT(http_parse(&script.parser, bytes, sizeof bytes - 1, &used, &body), ==, PARSE_HEAD);
    CHECK_INT(script.parser.message.length, ==, 2);
    at = used;
    CHECK_INT(http_parse(&script.parser, bytes + at, sizeof bytes - 1 - at, &used, &body), ==,
              PARSE_BODY);
    CHECK(body.at == bytes + at);
    CHECK_INT(body.count, ==, 2);
    at += used;
    CHECK_INT(http_parse(&script.parser, bytes + at, sizeof bytes - 1 - at, &used, &body), ==,
              PARSE_END);
    CHECK_INT(used, ==, 0);
    CHECK_STR(bytes + at, "GET /");
    (void)transcript_close(&script, false);
}

/* Every character that a name may have, at every place of names of any length. */
TEST(http_names_of_fields_are_lowered_whatever_their_length)
{
    static const char characters[] = "@AZ[`az{!#$%&'*+-.^_|~09MQ";
    static struct transcript script;

    for (size_t count = 1; count <= 20; count++) {
        for (size_t at = 0; at < count; at++) {
            for (const char *c = characters; *c; c++) {
                char name[21] = "", lowered[21] = "", bytes[128], transcript[128];

                if (!is_token(*c)) continue;
                memset(name, 'X', count);
                name[at] = *c;
                for (size_t i = 0; i < count; i++) lowered[i] = to_lower(name[i]);
                (void)snprintf(bytes, sizeof bytes, "GET / HTTP/1.1\r\nHost: a\r\n%s: b\r\n\r\n",
                               name);
                (void)snprintf(transcript, sizeof transcript,
                               "GET / 1.1 host=a %s=b keep | END | CLOSED", lowered);
                CHECK_STR(transcript_cut(&script, HTTP_KIND_REQUEST, bytes_of(bytes), 0, 0),
                          transcript);
            }
        }
    }
}
