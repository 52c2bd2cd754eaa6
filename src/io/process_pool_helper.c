/* process_pool_helper.c - the helper's side of docs/formats/process-pool.md: plain blocking
 * code without a runtime. It trusts its pool no more than its pool trusts it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/process_pool.h>

#include "io/job_frame.h"
#include "rt/kernel.h"
#include "rt/mem.h"

/* Exit codes, as docs/formats/process-pool.md lists them. */
enum { HELPER_DONE = 0, HELPER_NONSENSE = 65, HELPER_NO_MEMORY = 71, HELPER_IO = 74 };

struct helper_side {
    const struct kernel *kernel;
    uint64_t in_bytes_max;
    uint64_t out_bytes_max;
    char *in;
    size_t in_room;
    char *out;
    size_t out_room;
};

static _Noreturn void leave(int code, const char *why)
{
    if (why) (void)dprintf(STDERR_FILENO, "weir: process pool helper: %s\n", why);
    _exit(code);
}

/* Exactly so many bytes. The end is fine between two frames only. */
static void receive(const struct helper_side *side, void *data, size_t bytes, bool may_end)
{
    size_t have = 0;

    while (have < bytes) {
        ssize_t n = side->kernel->recv(side->kernel, WEIR_PROCESS_POOL_HELPER_FD,
                                       (char *)data + have, bytes - have, 0);
        if (n == -EINTR) continue;
        /* Also a pool that was killed in the middle of a job. */
        if (n == -ECONNRESET || (n == 0 && may_end && have == 0)) leave(HELPER_DONE, NULL);
        if (n < 0) leave(HELPER_IO, weir_strerror((int)n));
        if (n == 0) leave(HELPER_NONSENSE, "the pool has gone in the middle of a job");
        have += (size_t)n;
    }
}

static void transmit(const struct helper_side *side, const void *data, size_t bytes)
{
    size_t sent = 0;

    while (sent < bytes) {
        ssize_t n = side->kernel->send(side->kernel, WEIR_PROCESS_POOL_HELPER_FD,
                                       (const char *)data + sent, bytes - sent, 0);
        if (n == -EINTR) continue;
        if (n == -EPIPE || n == -ECONNRESET) leave(HELPER_DONE, NULL);
        if (n < 0) leave(HELPER_IO, weir_strerror((int)n));
        sent += (size_t)n;
    }
}

static struct job_frame receive_frame(const struct helper_side *side, enum job_frame_kind kind,
                                      size_t bytes_max)
{
    unsigned char bytes[JOB_FRAME_BYTES];
    struct job_frame frame;
    const char *why;

    receive(side, bytes, sizeof bytes, true);
    why = job_frame_decode(bytes, kind, 0, bytes_max, &frame);
    if (why) leave(HELPER_NONSENSE, why);
    return frame;
}

static void hello(struct helper_side *side)
{
    struct job_frame frame = receive_frame(side, JOB_FRAME_HELLO, JOB_HELLO_BYTES);
    unsigned char bytes[JOB_FRAME_BYTES];
    unsigned char payload[JOB_HELLO_BYTES];

    if (frame.bytes != JOB_HELLO_BYTES) leave(HELPER_NONSENSE, "the hello is too short");
    receive(side, payload, sizeof payload, false);
    job_hello_decode(payload, &side->in_bytes_max, &side->out_bytes_max);
    frame.bytes = 0;
    job_frame_encode(&frame, bytes);
    transmit(side, bytes, sizeof bytes);
}

static void make_room(char **memory, size_t *room, size_t bytes)
{
    char *larger;

    if (*room >= bytes) return;
    larger = mem_resize(*memory, bytes);
    if (!larger) leave(HELPER_NO_MEMORY, "no memory for a job");
    *memory = larger;
    *room = bytes;
}

static void serve_one(struct helper_side *side, weir_job_fn fn, void *arg)
{
    struct job_frame frame = receive_frame(side, JOB_FRAME_JOB, side->in_bytes_max);
    size_t out_bytes_max = frame.value;
    size_t out_bytes = 0;
    int result;

    if (out_bytes_max > side->out_bytes_max) leave(HELPER_NONSENSE, "more room than agreed on");
    make_room(&side->in, &side->in_room, frame.bytes);
    /* The header of the answer lies before it: one call sends both. */
    make_room(&side->out, &side->out_room, JOB_FRAME_BYTES + out_bytes_max);
    receive(side, side->in, frame.bytes, false);
    result = fn(arg, side->in, frame.bytes, side->out + JOB_FRAME_BYTES, out_bytes_max, &out_bytes);
    if (out_bytes > out_bytes_max) leave(HELPER_NONSENSE, "the job's answer is too large");
    frame = (struct job_frame){JOB_FRAME_ANSWER, frame.id, (uint32_t)out_bytes, (uint32_t)result};
    job_frame_encode(&frame, (unsigned char *)side->out);
    transmit(side, side->out, JOB_FRAME_BYTES + out_bytes);
}

void weir_process_pool_helper(int argc, char **argv, weir_job_fn fn, void *arg)
{
    struct helper_side side = {.kernel = kernel_current()};

    if (argc < 2 || strcmp(argv[1], WEIR_PROCESS_POOL_HELPER) != 0) return;
    hello(&side);
    while (fn) serve_one(&side, fn, arg);
    leave(HELPER_NONSENSE, "there is no function for jobs");
}
