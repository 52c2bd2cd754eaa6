/* fd.c - descriptors of a simulated run: numbers for open files, and the calls on them. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "sim/net.h"

enum { FDS_CAPACITY_FIRST = 8 };

void sim_file_init(struct sim_file *file, const struct sim_file_kind *kind, struct sim_host *host)
{
    file->kind = kind;
    file->host = host;
    file->holders = 0;
    list_init(&file->watches);
}

/* ---- The table of a host ---- */

static int fds_grow(struct sim *sim, struct sim_fds *fds)
{
    unsigned capacity = fds->capacity == 0 ? FDS_CAPACITY_FIRST : 2 * fds->capacity;
    struct sim_file **files;

    if (capacity > SIM_FDS_MAX) capacity = SIM_FDS_MAX;
    if (capacity == fds->capacity) return -EMFILE;
    files = sim_alloc(sim, capacity * sizeof files[0]);
    if (files == NULL) return -ENOMEM;
    if (fds->capacity > 0) memcpy(files, fds->files, fds->capacity * sizeof files[0]);
    sim_free(sim, fds->files);
    fds->files = files;
    fds->capacity = capacity;
    return 0;
}

int sim_fd_install(struct sim *sim, struct sim_file *take_file)
{
    struct sim_fds *fds = &sim_host_net(sim_host_running(sim))->fds;
    unsigned index = fds->lowest;

    while (index < fds->capacity && fds->files[index] != NULL) index++;
    if (index == fds->capacity) {
        int r = fds_grow(sim, fds);
        if (r < 0) return r;
    }
    fds->files[index] = take_file;
    fds->lowest = index + 1;
    fds->open++;
    take_file->holders++;
    return SIM_FD_FIRST + (int)index;
}

struct sim_file *sim_fd_file(struct sim *sim, int fd)
{
    const struct sim_fds *fds = &sim_host_net(sim_host_running(sim))->fds;
    unsigned index = (unsigned)(fd - SIM_FD_FIRST);

    if (fd < SIM_FD_FIRST || index >= fds->capacity) return NULL;
    return fds->files[index];
}

static void fds_remove(struct sim *sim, struct sim_fds *fds, unsigned index)
{
    struct sim_file *file = fds->files[index];

    queue_forget(sim, file, SIM_FD_FIRST + (int)index);
    fds->files[index] = NULL;
    fds->open--;
    if (index < fds->lowest) fds->lowest = index;
    assert(file->holders > 0);
    if (--file->holders == 0) file->kind->release(sim, file);
}

unsigned sim_fds_close_all(struct sim *sim, struct sim_host *host)
{
    struct sim_fds *fds = &sim_host_net(host)->fds;
    unsigned count = fds->open;

    for (unsigned i = 0; i < fds->capacity && fds->open > 0; i++) {
        if (fds->files[i] != NULL) fds_remove(sim, fds, i);
    }
    return count;
}

/* ---- The calls ----
 *
 * Descriptors below SIM_FD_FIRST are the process's own. What is written to them goes out; reading
 * them would make the run depend on something else than its choices. */

static int fd_close(const struct kernel *kernel, int fd)
{
    struct sim *sim = sim_now_running();

    (void)kernel;
    if (fd >= 0 && fd < SIM_FD_FIRST) return kernel_epoll.close(&kernel_epoll, fd);
    if (sim_fd_file(sim, fd) == NULL) return -EBADF;
    fds_remove(sim, &sim_host_net(sim_host_running(sim))->fds, (unsigned)(fd - SIM_FD_FIRST));
    return 0;
}

static int fd_duplicate(const struct kernel *kernel, int fd)
{
    struct sim *sim = sim_now_running();
    struct sim_file *file = sim_fd_file(sim, fd);

    (void)kernel;
    return file != NULL ? sim_fd_install(sim, file) : -EBADF;
}

static int fd_set_nonblocking(const struct kernel *kernel, int fd)
{
    (void)kernel;
    return sim_fd_file(sim_now_running(), fd) != NULL ? 0 : -EBADF;
}

static int fd_readable(const struct kernel *kernel, int fd)
{
    struct sim *sim = sim_now_running();
    const struct sim_file *file = sim_fd_file(sim, fd);

    (void)kernel;
    if (file == NULL) return -EBADF;
    if (file->kind->ready == NULL) return 1; /* a file on a disk */
    return file->kind->ready(sim, file) & READY_IN ? 1 : 0;
}

static int fd_ended(const struct kernel *kernel, int fd)
{
    struct sim *sim = sim_now_running();
    const struct sim_file *file = sim_fd_file(sim, fd);

    (void)kernel;
    if (file == NULL) return -EBADF;
    if (file->kind->ready == NULL) return 0; /* a file on a disk */
    return file->kind->ready(sim, file) & READY_BEYOND ? 1 : 0;
}

static ssize_t fd_readv(const struct kernel *kernel, int fd, const struct iovec *parts, int count)
{
    struct sim *sim = sim_now_running();
    struct sim_file *file = sim_fd_file(sim, fd);

    (void)kernel;
    if (file == NULL) return -EBADF;
    if (file->kind->read == NULL) return -EINVAL;
    return file->kind->read(sim, file, parts, count, NULL, 0);
}

static ssize_t fd_read(const struct kernel *kernel, int fd, void *data, size_t bytes)
{
    const struct iovec part = {data, bytes};
    return fd_readv(kernel, fd, &part, 1);
}

static ssize_t fd_writev(const struct kernel *kernel, int fd, const struct iovec *parts, int count)
{
    struct sim *sim = sim_now_running();
    struct sim_file *file;

    (void)kernel;
    if (fd >= 0 && fd < SIM_FD_FIRST) return kernel_epoll.writev(&kernel_epoll, fd, parts, count);
    file = sim_fd_file(sim, fd);
    if (file == NULL) return -EBADF;
    if (file->kind->write == NULL) return -EINVAL;
    return file->kind->write(sim, file, parts, count, NULL, 0);
}

static ssize_t fd_write(const struct kernel *kernel, int fd, const void *data, size_t bytes)
{
    const struct iovec part = {(void *)(uintptr_t)data, bytes};
    return fd_writev(kernel, fd, &part, 1);
}

static int fd_pipe(const struct kernel *kernel, int ret_fds[2])
{
    (void)kernel;
    return pipe_open(sim_now_running(), ret_fds);
}

void sim_fd_fill_table(struct kernel *table)
{
    queue_fill_table(table);
    table->pipe = fd_pipe;
    table->close = fd_close;
    table->duplicate = fd_duplicate;
    table->set_nonblocking = fd_set_nonblocking;
    table->readable = fd_readable;
    table->ended = fd_ended;
    table->read = fd_read;
    table->readv = fd_readv;
    table->write = fd_write;
    table->writev = fd_writev;
}
