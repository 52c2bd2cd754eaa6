/* job_frame.h - the frames between a pool and its helpers: docs/formats/process-pool.md,
 * which also says how to change them. No I/O here: bytes in, a frame or a reason out.
 *
 * Threads: any.
 */
#ifndef WEIR_IO_JOB_FRAME_H
#define WEIR_IO_JOB_FRAME_H

#include <stddef.h>
#include <stdint.h>

enum {
    JOB_FRAME_BYTES = 24,
    JOB_FRAME_VERSION = 1,
    JOB_HELLO_BYTES = 16, /* payload of the pool's hello: in_bytes_max, out_bytes_max */
};

enum job_frame_kind { JOB_FRAME_HELLO = 1, JOB_FRAME_JOB = 2, JOB_FRAME_ANSWER = 3 };

struct job_frame {
    enum job_frame_kind kind;
    uint64_t id;
    uint32_t bytes; /* of the payload, which follows */
    uint32_t value; /* of a job: room for its answer; of an answer: the result */
};

void job_frame_encode(const struct job_frame *frame, unsigned char bytes[JOB_FRAME_BYTES]);

/* NULL and the frame, or what is wrong with it: it must be of this kind, with this id (of a
 * job: any), and bring at most bytes_max. */
const char *job_frame_decode(const unsigned char bytes[JOB_FRAME_BYTES], enum job_frame_kind kind,
                             uint64_t id, size_t bytes_max, struct job_frame *ret_frame);

/* The payload of a hello. */
void job_hello_encode(uint64_t in_bytes_max, uint64_t out_bytes_max,
                      unsigned char bytes[JOB_HELLO_BYTES]);
void job_hello_decode(const unsigned char bytes[JOB_HELLO_BYTES], uint64_t *ret_in_bytes_max,
                      uint64_t *ret_out_bytes_max);

#endif
