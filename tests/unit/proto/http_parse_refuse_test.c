/* http_parse_refuse_test.c - requests that are refused: what could mean one thing here and another
 * to who stands before us, and what is too much. */
#include "unit/proto/transcript.h"

#define HEAD "POST / HTTP/1.1\r\nHost: a\r\n"
#define CHUNKED HEAD "Transfer-Encoding: chunked\r\n\r\n"

struct refused {
    struct bytes bytes;
    const char *status, *why;
};

static void check_refused(const struct refused *cases, size_t count)
{
    static struct transcript script;

    for (size_t i = 0; i < count; i++) {
        const char *text = transcript_of(&script, HTTP_KIND_REQUEST, cases[i].bytes);
        const char *last = strstr(text, cases[i].status);

        test_note("%.*s\n -> %s", (int)cases[i].bytes.count, cases[i].bytes.at, text);
        CHECK(last);
        CHECK_CONTAINS(last, cases[i].why);
    }
}

#define CHECK_REFUSED(cases) check_refused(cases, sizeof cases / sizeof cases[0])

TEST(http_requests_that_smuggle_are_refused)
{
    const struct refused cases[] = {
        /* Two lengths. */
        {BYTES(HEAD "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), "400", ""},
        {BYTES(HEAD "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"), "400", ""},
        {BYTES(HEAD "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"), "400", ""},
        {BYTES(HEAD "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"), "400", ""},
        {BYTES(HEAD "Content-Length: 5, 5\r\n\r\nhello"), "400", ""},
        /* A length that is none. */
        {BYTES(HEAD "Content-Length: +5\r\n\r\nhello"), "400", ""},
        {BYTES(HEAD "Content-Length: -5\r\n\r\nhello"), "400", ""},
        {BYTES(HEAD "Content-Length: 0x5\r\n\r\nhello"), "400", ""},
        {BYTES(HEAD "Content-Length: 5 5\r\n\r\nhello"), "400", ""},
        {BYTES(HEAD "Content-Length:\r\n\r\n"), "400", ""},
        {BYTES(HEAD "Content-Length: 18446744073709551616\r\n\r\n"), "400", ""},
        {BYTES(HEAD "Content-Length: 18446744073709551621\r\n\r\nhello"), "400", ""},
        /* Encodings that are not exactly one. */
        {BYTES(HEAD "Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n"), "400", ""},
        {BYTES(HEAD "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), "400", ""},
        {BYTES(HEAD "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"), "400", ""},
        {BYTES(HEAD "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"), "400", ""},
        {BYTES(HEAD "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
         "400", ""},
        {BYTES(HEAD "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n"), "400",
         ""},
        {BYTES(HEAD "Transfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), "400",
         ""},
        {BYTES(HEAD "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"), "400", ""},
        {BYTES(HEAD "Transfer-Encoding: identity\r\n\r\n"), "400", ""},
        {BYTES(HEAD "Transfer-Encoding:\r\n\r\n"), "400", ""},
        {BYTES(HEAD "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n"), "400", ""},
        {BYTES(HEAD "Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n"), "400", ""},
        {BYTES("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), "400",
         ""},
        /* Names that others read as another. */
        {BYTES(HEAD "Content-Length : 5\r\n\r\nhello"), "400", "name"},
        {BYTES(HEAD "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"), "400", "name"},
        {BYTES(HEAD "Transfer\tEncoding: chunked\r\n\r\n0\r\n\r\n"), "400", "name"},
        {BYTES(HEAD ": x\r\n\r\n"), "400", "name"},
        {BYTES(HEAD "Content-Length\x00: 5\r\n\r\nhello"), "400", "name"},
        {BYTES(HEAD "X\xc3\xa4: 5\r\n\r\n"), "400", "name"},
        {BYTES(HEAD "no colon\r\n\r\n"), "400", "':'"},
        /* Folded lines. */
        {BYTES(HEAD "X: a\r\n b\r\n\r\n"), "400", "goes on"},
        {BYTES(HEAD "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"), "400", "goes on"},
        {BYTES(HEAD "X: a\r\n\tContent-Length: 5\r\n\r\nhello"), "400", "goes on"},
        {BYTES("POST / HTTP/1.1\r\n Host: a\r\n\r\n"), "400", "goes on"},
        {BYTES(HEAD " \r\n\r\n"), "400", "goes on"},
        /* Lines that do not end as lines do. */
        {BYTES("GET / HTTP/1.1\nHost: a\r\n\r\n"), "400", "CR LF"},
        {BYTES("GET / HTTP/1.1\r\nHost: a\n\r\n"), "400", "CR LF"},
        {BYTES("GET / HTTP/1.1\r\nHost: a\r\n\n"), "400", "CR LF"},
        {BYTES("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), "400", "CR LF"},
        {BYTES("GET / HTTP/1.1\r\nHost: a\r\rX: y\r\n\r\n"), "400", "CR"},
        {BYTES(HEAD "X: a\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), "400", "CR"},
        {BYTES(HEAD "X: a\r\r\n\r\n"), "400", "CR"},
        {BYTES(HEAD "\r\rContent-Length: 5\r\n\r\nhello"), "400", "CR"},
        {BYTES(HEAD "X: a\x00Content-Length: 5\r\n\r\nhello"), "400", "control"},
        {BYTES(HEAD "X: a\x0b\r\n\r\n"), "400", "control"},
        {BYTES(HEAD "X: a\x7f\r\n\r\n"), "400", "control"},
        {BYTES("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), "400", "first line"},
    };

    CHECK_REFUSED(cases);
}

TEST(http_chunks_that_smuggle_are_refused)
{
    const struct refused cases[] = {
        {BYTES(CHUNKED "\r\n"), "400", "size"},
        {BYTES(CHUNKED "g\r\n"), "400", "size"},
        {BYTES(CHUNKED "0x3\r\nabc\r\n"), "400", "size"},
        {BYTES(CHUNKED "+3\r\nabc\r\n"), "400", "size"},
        {BYTES(CHUNKED "-3\r\nabc\r\n"), "400", "size"},
        {BYTES(CHUNKED " 3\r\nabc\r\n"), "400", "size"},
        {BYTES(CHUNKED "3 \r\nabc\r\n"), "400", "size"},
        {BYTES(CHUNKED "3,\r\nabc\r\n"), "400", "size"},
        {BYTES(CHUNKED "3\nabc\r\n"), "400", "CR LF"},
        {BYTES(CHUNKED "3;x\nabc\r\n"), "400", "CR LF"},
        {BYTES(CHUNKED "3;a\rb\r\nabc\r\n"), "400", "CR"},
        {BYTES(CHUNKED "3;a\x00\r\nabc\r\n"), "400", "extension"},
        {BYTES(CHUNKED "3\r\nabcd\r\n"), "400", "longer"},
        {BYTES(CHUNKED "3\r\nabc\n0\r\n\r\n"), "400", "longer"},
        {BYTES(CHUNKED "3\r\nabc\rx0\r\n\r\n"), "400", "longer"},
        {BYTES(CHUNKED "3\r\nab\r\n0\r\n\r\n"), "400", "longer"},
        {BYTES(CHUNKED "00000000000000003\r\nabc\r\n"), "400", "size"},
        {BYTES(CHUNKED "10000000000000003\r\nabc\r\n"), "400", "size"},
        {BYTES(CHUNKED "ffffffffffffffff\r\nabc\r\n"), "413", "too large"},
        {BYTES(CHUNKED "3;0123456789012345678901234567890123456789\r\nabc\r\n"), "400", "too long"},
        {BYTES(CHUNKED "0\r\nContent-Length: 5\r\n\r\n"), "400", "before the body"},
        {BYTES(CHUNKED "0\r\ntransfer-encoding: chunked\r\n\r\n"), "400", "before the body"},
        {BYTES(CHUNKED "0\r\nHost: b\r\n\r\n"), "400", "before the body"},
        {BYTES(CHUNKED "0\r\nX: a\r\n b\r\n\r\n"), "400", "goes on"},
        {BYTES(CHUNKED "0\r\nX: a\nY: b\r\n\r\n"), "400", "CR LF"},
        {BYTES(CHUNKED "0\r\n\n"), "400", "CR LF"},
        {BYTES(CHUNKED "0\r\n: a\r\n\r\n"), "400", "name"},
    };

    CHECK_REFUSED(cases);
}

TEST(http_first_lines_that_are_none_are_refused)
{
    const struct refused cases[] = {
        {BYTES("GET\r\n"), "400", "first line"},
        {BYTES("GET /\r\n"), "400", "first line"},
        {BYTES("GET  / HTTP/1.1\r\n"), "400", ""},
        {BYTES("GET / HTTP/1.1 \r\n"), "400", ""},
        {BYTES("GET /  HTTP/1.1\r\n"), "400", ""},
        {BYTES(" GET / HTTP/1.1\r\n"), "400", ""},
        {BYTES("GET\t/\tHTTP/1.1\r\n"), "400", ""},
        {BYTES("GET / a HTTP/1.1\r\n"), "400", "version"},
        {BYTES("GET / http/1.1\r\n"), "400", "version"},
        {BYTES("GET / HTTP/1\r\n"), "400", "version"},
        {BYTES("GET / HTTP/1.10\r\n"), "400", "version"},
        {BYTES("GET / HTTP/1.2\r\n"), "505", "version"},
        {BYTES("GET / HTTP/0.9\r\n"), "505", "version"},
        {BYTES("GET / HTTP/2.0\r\n"), "505", "version"},
        {BYTES("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "505", "version"},
        {BYTES("get / HTTP/1.1\r\n"), "501", "method"},
        {BYTES("CONNECT a:1 HTTP/1.1\r\n"), "501", "method"},
        {BYTES("TRACE / HTTP/1.1\r\n"), "501", "method"},
        {BYTES("G@T / HTTP/1.1\r\n"), "400", "first line"},
        {BYTES("GET x HTTP/1.1\r\n"), "400", "target"},
        {BYTES("GET * HTTP/1.1\r\n"), "400", "target"},
        {BYTES("GET /a#b HTTP/1.1\r\n"), "400", "target"},
        {BYTES("GET /\xc3\xa4 HTTP/1.1\r\n"), "400", "target"},
        {BYTES("GET /\x00 HTTP/1.1\r\n"), "400", "target"},
        {BYTES("GET http://u@a/ HTTP/1.1\r\n"), "400", "host"},
        {BYTES("GET http:///x HTTP/1.1\r\n"), "400", "host"},
        {BYTES("GET ftp://a/ HTTP/1.1\r\n"), "400", "target"},
        {BYTES("\x16\x03\x01\x02\x00\x01\x00\x01\r\n"), "400", "first line"},
    };

    CHECK_REFUSED(cases);
}

TEST(http_requests_without_one_valid_host_are_refused)
{
    const struct refused cases[] = {
        {BYTES("GET / HTTP/1.1\r\n\r\n"), "400", "no Host"},
        {BYTES("GET http://a/ HTTP/1.1\r\n\r\n"), "400", "no Host"},
        {BYTES("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"), "400", "more than one Host"},
        {BYTES("GET / HTTP/1.0\r\nHost: a\r\nhost: b\r\n\r\n"), "400", "more than one Host"},
        {BYTES("GET / HTTP/1.1\r\nHost:\r\n\r\n"), "400", "Host"},
        {BYTES("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n"), "400", "Host"},
        {BYTES("GET / HTTP/1.1\r\nHost: a b\r\n\r\n"), "400", "Host"},
        {BYTES("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n"), "400", "Host"},
        {BYTES("GET / HTTP/1.1\r\nHost: a/\r\n\r\n"), "400", "Host"},
        {BYTES("GET / HTTP/1.1\r\nHost: a:\r\n\r\n"), "400", "Host"},
        {BYTES("GET / HTTP/1.1\r\nHost: a:65536\r\n\r\n"), "400", "Host"},
        {BYTES("GET / HTTP/1.1\r\nHost: a:1:2\r\n\r\n"), "400", "Host"},
        {BYTES("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n"), "400", "Host"},
        {BYTES("GET / HTTP/1.1\r\nHost: [::1]x\r\n\r\n"), "400", "Host"},
        {BYTES("GET / HTTP/1.1\r\nHost: []\r\n\r\n"), "400", "Host"},
        {BYTES("GET / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n"), "417", "expected"},
    };

    CHECK_REFUSED(cases);
}

#define TEN "0123456789"
#define FIFTY TEN TEN TEN TEN TEN

TEST(http_requests_that_are_too_large_are_refused_before_they_are_read)
{
    const struct refused cases[] = {
        /* The first line has 101 bytes with its end, and no end at all. */
        {BYTES("GET /" FIFTY TEN TEN TEN "01234 HTTP/1.1\r\n"), "414", "too long"},
        {BYTES("GET /" FIFTY FIFTY), "414", "too long"},
        {BYTES(FIFTY FIFTY "0"), "414", "too long"},
        {BYTES(HEAD "X: " FIFTY FIFTY FIFTY FIFTY FIFTY FIFTY FIFTY FIFTY), "431", "too large"},
        {BYTES(HEAD "X: " FIFTY FIFTY FIFTY "\r\nY: " FIFTY FIFTY FIFTY FIFTY TEN TEN "\r\n\r\n"),
         "431", "too large"},
        {BYTES(HEAD "B:\r\nC:\r\nD:\r\nE:\r\nF:\r\nG:\r\nH:\r\nI:\r\n"), "431", "too many"},
        /* Not a byte of the body has come. */
        {BYTES(HEAD "Content-Length: 101\r\n\r\n"), "413", "too large"},
        {BYTES(HEAD "Content-Length: 18446744073709551615\r\n\r\n"), "413", "too large"},
        {BYTES(CHUNKED "65\r\n"), "413", "too large"},
        {BYTES(CHUNKED "32\r\n" FIFTY "\r\n32\r\n" FIFTY "\r\n1\r\n"), "413", "too large"},
        {BYTES(CHUNKED "0\r\nX: " FIFTY FIFTY FIFTY), "431", "too large"},
        {BYTES(CHUNKED "0\r\nA:\r\nB:\r\nC:\r\nD:\r\nE:\r\nF:\r\nG:\r\nH:\r\nI:\r\n"), "431",
         "too many"},
    };

    CHECK_REFUSED(cases);
}
