/* job_frame_test.c - frames of docs/formats/process-pool.md, byte by byte. */
#include "io/job_frame.h"

#include <string.h>

#include "harness/test.h"

static const struct job_frame answer = {
    .kind = JOB_FRAME_ANSWER, .id = 0x0102030405060708, .bytes = 0x11121314, .value = 0xfffffffe};

TEST(a_frame_has_the_layout_of_its_document)
{
    static const unsigned char expected[JOB_FRAME_BYTES] = {
        'w', 'j', 'o', 'b', 1,    0,    3,    0,    8,    7,    6,    5,
        4,   3,   2,   1,   0x14, 0x13, 0x12, 0x11, 0xfe, 0xff, 0xff, 0xff};
    unsigned char bytes[JOB_FRAME_BYTES];
    struct job_frame again;

    job_frame_encode(&answer, bytes);
    CHECK_INT(memcmp(bytes, expected, sizeof bytes), ==, 0);
    CHECK_STR(job_frame_decode(bytes, JOB_FRAME_ANSWER, answer.id, answer.bytes, &again), NULL);
    CHECK_INT(again.kind, ==, answer.kind);
    CHECK_INT(again.id, ==, answer.id);
    CHECK_INT(again.bytes, ==, answer.bytes);
    CHECK_INT((int32_t)again.value, ==, -2);
}

TEST(a_frame_that_is_wrong_in_any_way_is_refused)
{
    static const struct {
        size_t at;
        const char *why;
    } rows[] = {
        {0, "it is no frame"},
        {3, "it is no frame"},
        {4, "it is of another version"},
        {5, "it is of another version"},
        {6, "it is of another kind"},
        {7, "it is of another kind"},
        {8, "it answers another job"},
        {15, "it answers another job"},
        {19, "it is larger than allowed"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        unsigned char bytes[JOB_FRAME_BYTES];
        struct job_frame frame;

        job_frame_encode(&answer, bytes);
        bytes[rows[i].at] ^= 0x40;
        CHECK_STR(job_frame_decode(bytes, JOB_FRAME_ANSWER, answer.id, answer.bytes, &frame),
                  rows[i].why);
    }
}

TEST(a_hello_says_both_bounds)
{
    unsigned char bytes[JOB_HELLO_BYTES];
    uint64_t in_bytes_max, out_bytes_max;

    job_hello_encode(100000, UINT64_MAX - 1, bytes);
    job_hello_decode(bytes, &in_bytes_max, &out_bytes_max);
    CHECK_INT(in_bytes_max, ==, 100000);
    CHECK(out_bytes_max == UINT64_MAX - 1);
}
