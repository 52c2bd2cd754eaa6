/* http_answer_fuzz.c - any bytes as answers of one connection, to GET and to HEAD. */
#include "fuzz/http_stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes bytes = {(const char *)data, size};

    stream_check(HTTP_KIND_ANSWER, false, bytes);
    stream_check(HTTP_KIND_ANSWER, true, bytes);
    return 0;
}
