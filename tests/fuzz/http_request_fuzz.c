/* http_request_fuzz.c - any bytes as requests of one connection: the same in any pieces, within
 * all limits, and framed in one way only. */
#include "fuzz/http_stream.h"
#include "proto/http_target.h"
#include "proto/http_value.h"

/* The target and the fields of the first request, through what a server does with them. */
static void look_inside(struct bytes bytes)
{
    char *block = malloc(http_limits_block(&stream_limits));
    struct http_field *fields = calloc(http_limits_fields(&stream_limits), sizeof *fields);
    struct http_parser parser;
    struct http_target target;
    struct bytes body, token;
    const char *why = NULL;
    size_t used;

    if (!block || !fields) abort();
    http_parser_init(&parser, HTTP_KIND_REQUEST, &stream_limits, block, fields);
    if (http_parse(&parser, bytes.at, bytes.count, &used, &body) == PARSE_HEAD) {
        char *texts = malloc(parser.message.target.count);

        if (!texts) abort();
        if (http_target_parse(parser.message.target, texts, &target, &why) < 0) MUST(why);
        free(texts);
        (void)http_bearer(parser.message.fields, &token);
        MUST(http_accepts_encoding(parser.message.fields, BYTES("gzip")) <= 1000);
        MUST(http_accepts_media(parser.message.fields, BYTES("text/html")) <= 1000);
    }
    free(block);
    free(fields);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes bytes = {(const char *)data, size};

    stream_check(HTTP_KIND_REQUEST, false, bytes);
    look_inside(bytes);
    return 0;
}
