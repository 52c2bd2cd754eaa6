/* echo_uring.c - `bench echo`: the least that an echo server on io_uring does.
 *
 * The mode that measured best: DEFER_TASKRUN, one multishot accept into registered descriptors,
 * one multishot receive for each connection into a ring of provided buffers, sends from those
 * buffers, one system call for a whole batch of sends and the next wait. A buffer goes back to the
 * ring when its send has completed. */
#include <liburing.h>

#include "bench_socket.h"

enum {
    ENTRIES = 4096,
    COMPLETIONS = 32768,
    CONNECTIONS_MAX = 4096,
    BUFFERS = 4096, /* a power of two */
    BUFFER_BYTES = 256,
    BUFFER_GROUP = 0,
};

/* What a completion is about: user_data = kind << 56 | buffer << 32 | connection. */
enum kind { KIND_ACCEPT, KIND_RECEIVE, KIND_SEND, KIND_CLOSE };

static const struct bench bench = {.program = "echo-uring"};
static struct io_uring ring;
static struct io_uring_buf_ring *buffer_ring;
static char buffers[BUFFERS][BUFFER_BYTES];

static uint64_t tag(enum kind kind, unsigned buffer, unsigned connection)
{
    return (uint64_t)kind << 56 | (uint64_t)buffer << 32 | connection;
}

static void check(const char *call, int result)
{
    if (result < 0) bench_fail(&bench, call, strerror(-result));
}

static struct io_uring_sqe *entry(void)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

    if (sqe) return sqe;
    check("io_uring_submit", io_uring_submit(&ring));
    sqe = io_uring_get_sqe(&ring);
    if (!sqe) bench_fail(&bench, "io_uring_get_sqe", "the ring stays full");
    return sqe;
}

static void give_buffer(unsigned buffer)
{
    io_uring_buf_ring_add(buffer_ring, buffers[buffer], BUFFER_BYTES, (unsigned short)buffer,
                          BUFFERS - 1, 0);
    io_uring_buf_ring_advance(buffer_ring, 1);
}

static void begin_accept(int listener)
{
    struct io_uring_sqe *sqe = entry();

    io_uring_prep_multishot_accept_direct(sqe, listener, NULL, NULL, 0);
    io_uring_sqe_set_data64(sqe, tag(KIND_ACCEPT, 0, 0));
}

static void begin_receive(unsigned connection)
{
    struct io_uring_sqe *sqe = entry();

    io_uring_prep_recv_multishot(sqe, (int)connection, NULL, 0, 0);
    sqe->flags |= IOSQE_FIXED_FILE | IOSQE_BUFFER_SELECT;
    sqe->buf_group = BUFFER_GROUP;
    io_uring_sqe_set_data64(sqe, tag(KIND_RECEIVE, 0, connection));
}

static void begin_send(unsigned connection, unsigned buffer, unsigned bytes)
{
    struct io_uring_sqe *sqe = entry();

    io_uring_prep_send(sqe, (int)connection, buffers[buffer], bytes, MSG_NOSIGNAL | MSG_WAITALL);
    sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data64(sqe, tag(KIND_SEND, buffer, connection));
}

static void begin_close(unsigned connection)
{
    struct io_uring_sqe *sqe = entry();

    io_uring_prep_close_direct(sqe, connection);
    io_uring_sqe_set_data64(sqe, tag(KIND_CLOSE, 0, connection));
}

static void received(const struct io_uring_cqe *cqe, unsigned connection)
{
    if (cqe->res > 0) {
        begin_send(connection, cqe->flags >> IORING_CQE_BUFFER_SHIFT, (unsigned)cqe->res);
        if (!(cqe->flags & IORING_CQE_F_MORE)) begin_receive(connection);
    } else if (cqe->res == -ENOBUFS) {
        begin_receive(connection);
    } else {
        begin_close(connection);
    }
}

static void handle(const struct io_uring_cqe *cqe, int listener)
{
    unsigned connection = (unsigned)cqe->user_data;

    switch ((enum kind)(cqe->user_data >> 56)) {
    case KIND_ACCEPT:
        check("accept", cqe->res);
        begin_receive((unsigned)cqe->res);
        if (!(cqe->flags & IORING_CQE_F_MORE)) begin_accept(listener);
        break;
    case KIND_RECEIVE: received(cqe, connection); break;
    case KIND_SEND: give_buffer((cqe->user_data >> 32) & 0xffff); break;
    case KIND_CLOSE: break;
    }
}

static void open_ring(void)
{
    struct io_uring_params params = {
        .flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE,
        .cq_entries = COMPLETIONS,
    };
    struct io_uring_buf_reg registration = {.ring_entries = BUFFERS, .bgid = BUFFER_GROUP};
    int r = io_uring_queue_init_params(ENTRIES, &ring, &params);

    if (r < 0) {
        fprintf(stderr, "echo-uring: io_uring is not to be had: %s\n", strerror(-r));
        exit(BENCH_NOT_HERE);
    }
    check("io_uring_register_files_sparse", io_uring_register_files_sparse(&ring, CONNECTIONS_MAX));
    check("io_uring_register_ring_fd", io_uring_register_ring_fd(&ring) < 0 ? -EINVAL : 0);
    if (posix_memalign((void **)&buffer_ring, 4096, BUFFERS * sizeof(struct io_uring_buf)) != 0)
        bench_fail(&bench, "posix_memalign", strerror(ENOMEM));
    registration.ring_addr = (uint64_t)(uintptr_t)buffer_ring;
    check("io_uring_register_buf_ring", io_uring_register_buf_ring(&ring, &registration, 0));
    io_uring_buf_ring_init(buffer_ring);
    for (unsigned i = 0; i < BUFFERS; i++) give_buffer(i);
}

int main(void)
{
    int listener;

    open_ring();
    listener = bench_listen(&bench, 0);
    /* Inherited by the accepted ones, which have no number to set it with. */
    bench_set_nodelay(&bench, listener);
    begin_accept(listener);
    for (;;) {
        struct io_uring_cqe *cqe;
        unsigned head, count = 0;
        int r = io_uring_submit_and_wait(&ring, 1);

        if (r < 0 && r != -EINTR) check("io_uring_submit_and_wait", r);
        io_uring_for_each_cqe(&ring, head, cqe)
        {
            handle(cqe, listener);
            count++;
        }
        io_uring_cq_advance(&ring, count);
    }
}
