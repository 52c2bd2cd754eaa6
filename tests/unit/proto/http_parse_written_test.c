/* http_parse_written_test.c - what the writer writes is what the parser reads. */
#include "proto/http_write.h"
#include "unit/policy/chance.h"
#include "unit/proto/transcript.h"

static const unsigned statuses[] = {200, 201, 204, 304, 404, 503};

/* Writes an answer and what a parser should say of it. */
static void write_one(uint64_t *chance, struct buffer *out, struct buffer *wanted, bool head)
{
    unsigned status = statuses[chance_below(chance, 6)];
    bool chunked = chance_below(chance, 2), bodyless = head || !http_status_has_body(status);
    size_t pieces = chance_below(chance, 4), all = 0;
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz";
    struct http_writer writer;

    for (size_t i = 1; i <= pieces; i++) all += i * 5;
    http_write_answer(&writer, out, status, head ? METHOD_HEAD : METHOD_GET, 1, true);
    buffer_put_uint(wanted, status);
    buffer_put_string(wanted, " 1.1");
    if (chunked) {
        http_write_chunked(&writer);
        if (http_status_has_body(status)) buffer_put_string(wanted, " transfer-encoding=chunked");
    } else {
        http_write_length(&writer, all);
        if (http_status_has_body(status)) {
            buffer_put_string(wanted, " content-length=");
            buffer_put_uint(wanted, all);
        }
    }
    buffer_put_string(wanted, " keep | ");
    for (size_t i = 1; i <= pieces; i++) {
        http_write_body(&writer, (struct bytes){letters, i * 5});
        if (!bodyless) buffer_put(wanted, letters, i * 5);
    }
    if (!bodyless && all > 0) buffer_put_string(wanted, " | ");
    buffer_put_string(wanted, "END | ");
    CHECK_INT(http_write_end(&writer), ==, 0);
}

TEST(http_answers_that_were_written_are_read_back)
{
    static struct transcript script;
    static char bytes[4096], text[4096];
    uint64_t chance = chance_seed();

    for (int round = 0; round < 200; round++) {
        struct buffer out, wanted;
        bool head = round % 4 == 0;

        buffer_init_fixed(&out, bytes, sizeof bytes);
        buffer_init_fixed(&wanted, text, sizeof text - 1);
        for (int i = 0; i < 3; i++) write_one(&chance, &out, &wanted, head);
        buffer_put_string(&wanted, "CLOSED");
        text[wanted.used] = '\0';
        script.answers_head = head;
        CHECK_STR(transcript_of(&script, HTTP_KIND_ANSWER, buffer_bytes(&out)), text);
    }
}
