/* job_frame.c - frames of docs/formats/process-pool.md: little-endian, field by field. */
#include "io/job_frame.h"

enum { MAGIC = 0x626f6a77 }; /* "wjob" */

enum { AT_MAGIC = 0, AT_VERSION = 4, AT_KIND = 6, AT_ID = 8, AT_BYTES = 16, AT_VALUE = 20 };

static void put(unsigned char *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) at[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t get(const unsigned char *at, int bytes)
{
    uint64_t value = 0;

    for (int i = 0; i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

void job_frame_encode(const struct job_frame *frame, unsigned char bytes[JOB_FRAME_BYTES])
{
    put(bytes + AT_MAGIC, MAGIC, 4);
    put(bytes + AT_VERSION, JOB_FRAME_VERSION, 2);
    put(bytes + AT_KIND, frame->kind, 2);
    put(bytes + AT_ID, frame->id, 8);
    put(bytes + AT_BYTES, frame->bytes, 4);
    put(bytes + AT_VALUE, frame->value, 4);
}

const char *job_frame_decode(const unsigned char bytes[JOB_FRAME_BYTES], enum job_frame_kind kind,
                             uint64_t id, size_t bytes_max, struct job_frame *ret_frame)
{
    struct job_frame frame = {
        .kind = kind,
        .id = get(bytes + AT_ID, 8),
        .bytes = (uint32_t)get(bytes + AT_BYTES, 4),
        .value = (uint32_t)get(bytes + AT_VALUE, 4),
    };

    if (get(bytes + AT_MAGIC, 4) != MAGIC) return "it is no frame";
    if (get(bytes + AT_VERSION, 2) != JOB_FRAME_VERSION) return "it is of another version";
    if (get(bytes + AT_KIND, 2) != (uint64_t)kind) return "it is of another kind";
    if (kind != JOB_FRAME_JOB && frame.id != id) return "it answers another job";
    if (frame.bytes > bytes_max) return "it is larger than allowed";
    *ret_frame = frame;
    return NULL;
}

void job_hello_encode(uint64_t in_bytes_max, uint64_t out_bytes_max,
                      unsigned char bytes[JOB_HELLO_BYTES])
{
    put(bytes, in_bytes_max, 8);
    put(bytes + 8, out_bytes_max, 8);
}

void job_hello_decode(const unsigned char bytes[JOB_HELLO_BYTES], uint64_t *ret_in_bytes_max,
                      uint64_t *ret_out_bytes_max)
{
    *ret_in_bytes_max = get(bytes, 8);
    *ret_out_bytes_max = get(bytes + 8, 8);
}
