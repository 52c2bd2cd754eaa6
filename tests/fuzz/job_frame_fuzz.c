/* job_frame_fuzz.c - frames of a process pool from any bytes: what decodes is within its
 * rule, and encodes to the same bytes.
 *
 * input = kind (1 byte, modulo 3), id (8), bytes_max (4), header (24), hello (16); what is
 * missing is zero
 */
#include <string.h>

#include "fuzz/fuzz.h"
#include "io/job_frame.h"

struct input {
    unsigned char kind;
    unsigned char id[8];
    unsigned char bytes_max[4];
    unsigned char header[JOB_FRAME_BYTES];
    unsigned char hello[JOB_HELLO_BYTES];
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {0};
    unsigned char again[JOB_FRAME_BYTES];
    unsigned char hello[JOB_HELLO_BYTES];
    struct job_frame frame = {0};
    enum job_frame_kind kind;
    const char *why;
    uint64_t id, in_bytes_max, out_bytes_max;
    uint32_t bytes_max;

    if (size > 0) memcpy(&input, data, size < sizeof input ? size : sizeof input);
    kind = (enum job_frame_kind)(input.kind % 3 + 1);
    memcpy(&id, input.id, sizeof id);
    memcpy(&bytes_max, input.bytes_max, sizeof bytes_max);
    why = job_frame_decode(input.header, kind, id, bytes_max, &frame);
    if (why) {
        MUST(why[0] != '\0');
        MUST(frame.kind == 0 && frame.bytes == 0); /* nothing was given */
    } else {
        MUST(frame.kind == kind);
        MUST(frame.bytes <= bytes_max);
        MUST(kind == JOB_FRAME_JOB || frame.id == id);
        job_frame_encode(&frame, again);
        MUST(memcmp(again, input.header, sizeof again) == 0);
    }
    job_hello_decode(input.hello, &in_bytes_max, &out_bytes_max);
    job_hello_encode(in_bytes_max, out_bytes_max, hello);
    MUST(memcmp(hello, input.hello, sizeof hello) == 0);
    return 0;
}
