/* pipe.c - pipes of a simulated run: one buffer, two ends. */
#include <errno.h>
#include <limits.h>

#include "sim/net.h"

enum { PIPE_BYTES_MAX = 64 * 1024 };

struct pipe;

struct pipe_end {
    struct sim_file file; /* first */
    struct pipe *pipe;
};

struct pipe {
    struct pipe_end reader, writer;
    bool reader_open, writer_open;
    struct ring ring;
};

static struct pipe *pipe_of(const struct sim_file *file)
{
    return ((const struct pipe_end *)(const void *)file)->pipe;
}

/* Like the kernel's: room is what takes a write of PIPE_BUF bytes, which is never split. */
static bool has_room(const struct pipe *pipe)
{
    return PIPE_BYTES_MAX - pipe->ring.count >= PIPE_BUF;
}

static unsigned reader_ready(struct sim *sim, const struct sim_file *file)
{
    const struct pipe *pipe = pipe_of(file);

    (void)sim;
    if (!pipe->writer_open) return READY_IN | READY_OUT | READY_BEYOND;
    return pipe->ring.count > 0 ? READY_IN : 0;
}

static unsigned writer_ready(struct sim *sim, const struct sim_file *file)
{
    const struct pipe *pipe = pipe_of(file);

    (void)sim;
    if (!pipe->reader_open) return READY_IN | READY_OUT | READY_BEYOND;
    return has_room(pipe) ? READY_OUT : 0;
}

static ssize_t pipe_read(struct sim *sim, struct sim_file *file, const struct iovec *parts,
                         int count, struct msghdr *message, int flags)
{
    struct pipe *pipe = pipe_of(file);
    size_t bytes = parts_bytes(parts, count);
    bool had_room = has_room(pipe);

    (void)message;
    (void)flags;
    if (bytes == 0) return 0;
    if (pipe->ring.count == 0) return pipe->writer_open ? -EAGAIN : 0;
    if (bytes > pipe->ring.count) bytes = pipe->ring.count;
    bytes = net_moved(sim, bytes, "read of a pipe");
    ring_look(&pipe->ring, parts, count, bytes);
    ring_drop(&pipe->ring, bytes);
    if (!had_room && has_room(pipe)) sim_file_ready(sim, &pipe->writer.file, READY_OUT);
    return (ssize_t)bytes;
}

static ssize_t pipe_write(struct sim *sim, struct sim_file *file, const struct iovec *parts,
                          int count, const struct msghdr *message, int flags)
{
    struct pipe *pipe = pipe_of(file);
    size_t bytes = parts_bytes(parts, count);
    size_t room = PIPE_BYTES_MAX - pipe->ring.count;
    bool is_whole = bytes <= PIPE_BUF;
    int r;

    (void)message;
    (void)flags;
    if (bytes == 0) return 0;
    if (!pipe->reader_open) return -EPIPE;
    if (room == 0 || (is_whole && room < bytes)) return -EAGAIN;
    if (bytes > room) bytes = room;
    if (!is_whole) bytes = net_moved(sim, bytes, "write to a pipe");
    r = ring_reserve(sim, &pipe->ring, bytes);
    if (r < 0) return r;
    ring_put(&pipe->ring, parts, count, bytes);
    sim_file_ready(sim, &pipe->reader.file, READY_IN);
    return (ssize_t)bytes;
}

static void pipe_free(struct sim *sim, struct pipe *take_pipe)
{
    ring_deinit(sim, &take_pipe->ring);
    sim_free(sim, take_pipe);
}

static void reader_release(struct sim *sim, struct sim_file *take_file)
{
    struct pipe *pipe = pipe_of(take_file);

    pipe->reader_open = false;
    if (pipe->writer_open) {
        sim_file_ready(sim, &pipe->writer.file, READY_OUT | READY_BEYOND);
    } else {
        pipe_free(sim, pipe);
    }
}

static void writer_release(struct sim *sim, struct sim_file *take_file)
{
    struct pipe *pipe = pipe_of(take_file);

    pipe->writer_open = false;
    if (pipe->reader_open) {
        sim_file_ready(sim, &pipe->reader.file, READY_IN | READY_BEYOND);
    } else {
        pipe_free(sim, pipe);
    }
}

static ssize_t no_read(struct sim *sim, struct sim_file *file, const struct iovec *parts, int count,
                       struct msghdr *message, int flags)
{
    (void)sim, (void)file, (void)parts, (void)count, (void)message, (void)flags;
    return -EBADF;
}

static ssize_t no_write(struct sim *sim, struct sim_file *file, const struct iovec *parts,
                        int count, const struct msghdr *message, int flags)
{
    (void)sim, (void)file, (void)parts, (void)count, (void)message, (void)flags;
    return -EBADF;
}

static const struct sim_file_kind reader_kind = {
    .name = "pipe",
    .ready = reader_ready,
    .read = pipe_read,
    .write = no_write,
    .release = reader_release,
    .watchable = true,
};

static const struct sim_file_kind writer_kind = {
    .name = "pipe",
    .ready = writer_ready,
    .read = no_read,
    .write = pipe_write,
    .release = writer_release,
    .watchable = true,
};

int pipe_open(struct sim *sim, int ret_fds[2])
{
    struct sim_host *host = sim_host_running(sim);
    struct pipe *pipe = sim_alloc(sim, sizeof *pipe);
    const struct kernel *kernel = kernel_current();
    int reader, writer;

    if (pipe == NULL) return -ENOMEM;
    sim_file_init(&pipe->reader.file, &reader_kind, host);
    sim_file_init(&pipe->writer.file, &writer_kind, host);
    pipe->reader.pipe = pipe;
    pipe->writer.pipe = pipe;
    pipe->reader_open = true;
    reader = sim_fd_install(sim, &pipe->reader.file);
    if (reader < 0) {
        pipe_free(sim, pipe);
        return reader;
    }
    writer = sim_fd_install(sim, &pipe->writer.file);
    if (writer < 0) {
        (void)kernel->close(kernel, reader); /* and the pipe with it */
        return writer;
    }
    pipe->writer_open = true;
    ret_fds[0] = reader;
    ret_fds[1] = writer;
    return 0;
}
