/* disk.c - the disk of a simulated host: its calls, its faults, and what a power cut leaves.
 *
 * What is on it is a volume (volume.h). A call takes no time and never waits, but it is made on a
 * thread of the executor: others may go on before it happens. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "sim/sim.h"
#include "sim/volume.h"

struct sim_disk {
    struct sim *sim;
    struct sim_host *host;
    struct volume volume;
};

struct disk_file {
    struct sim_file file;
    struct volume_open open;
};

static const struct sim_file_kind disk_file_kind;

/* ---- Life ---- */

static void *disk_alloc(void *arg, size_t bytes)
{
    struct sim_disk *disk = arg;
    return sim_alloc(disk->sim, bytes);
}

static void disk_free(void *arg, void *memory)
{
    struct sim_disk *disk = arg;
    sim_free(disk->sim, memory);
}

static unsigned disk_choose(void *arg, unsigned n, const char *about)
{
    struct sim_disk *disk = arg;
    return sim_choose(disk->sim, SIM_AMOUNT, n, about);
}

int sim_disk_open(struct sim *sim, struct sim_host *host, size_t bytes_max,
                  struct sim_disk **ret_disk)
{
    struct sim_disk *disk = sim_alloc(sim, sizeof *disk);
    const struct volume_means means = {disk, disk_alloc, disk_free, disk_choose};

    if (!disk) return -ENOMEM;
    disk->sim = sim;
    disk->host = host;
    if (bytes_max == 0) bytes_max = WEIR_SIM_DISK_BYTES_DEFAULT;
    volume_init(&disk->volume, &means, bytes_max);
    *ret_disk = disk;
    return 0;
}

void sim_disk_close(struct sim *sim, struct sim_disk *take_disk)
{
    volume_deinit(&take_disk->volume);
    sim_free(sim, take_disk);
}

void sim_disk_crash(struct sim *sim, struct sim_disk *disk)
{
    assert(disk->sim == sim);
    volume_crash(&disk->volume);
}

/* ---- What every call begins with ---- */

static struct volume *volume_at_now(struct sim_disk *disk)
{
    const struct kernel *kernel = kernel_current();

    disk->volume.now_ns = kernel->wall_ns(kernel);
    return &disk->volume;
}

/* Of a call about a path. */
static struct volume *begin(struct sim *sim)
{
    sim_thread_yield(sim);
    return volume_at_now(sim_host_disk(sim_host_running(sim)));
}

/* Of a call about an open file: whoever went on before may have closed it. What is not on
 * a disk gives `other`. */
static int begin_file(struct sim *sim, int fd, int other, struct volume_open **ret_open)
{
    struct sim_file *file;

    sim_thread_yield(sim);
    file = sim_fd_file(sim, fd);
    if (!file) return -EBADF;
    if (file->kind != &disk_file_kind) return other;
    (void)volume_at_now(sim_host_disk(file->host));
    *ret_open = &container_of(file, struct disk_file, file)->open;
    return 0;
}

/* ---- Reading and writing ---- */

static ssize_t read_at(struct sim *sim, struct volume_open *open, void *data, size_t bytes,
                       int64_t offset)
{
    if (bytes > 0 && sim_fault(sim, SIM_FAULT_DISK_ERROR, "read")) return -EIO;
    return volume_read(open, data, bytes, offset);
}

static ssize_t write_at(struct sim *sim, struct volume_open *open, const void *data, size_t bytes,
                        int64_t offset)
{
    if (bytes > 0 && sim_fault(sim, SIM_FAULT_DISK_ERROR, "write")) return -EIO;
    if (bytes > 0 && sim_fault(sim, SIM_FAULT_DISK_FULL, "write")) return -ENOSPC;
    return volume_write(open, data, bytes, offset);
}

static ssize_t disk_pread(const struct kernel *kernel, int fd, void *data, size_t bytes,
                          int64_t offset)
{
    struct sim *sim = sim_now_running();
    struct volume_open *open;
    int r = begin_file(sim, fd, -ESPIPE, &open);

    (void)kernel;
    if (r < 0) return r;
    return offset < 0 ? -EINVAL : read_at(sim, open, data, bytes, offset);
}

static ssize_t disk_pwrite(const struct kernel *kernel, int fd, const void *data, size_t bytes,
                           int64_t offset)
{
    struct sim *sim = sim_now_running();
    struct volume_open *open;
    int r = begin_file(sim, fd, -ESPIPE, &open);

    (void)kernel;
    if (r < 0) return r;
    return offset < 0 ? -EINVAL : write_at(sim, open, data, bytes, offset);
}

/* read and write as of any descriptor, at the file's position. Nobody goes on in between: the file
 * was found already. */
static ssize_t file_read(struct sim *sim, struct sim_file *file, const struct iovec *parts,
                         int count, struct msghdr *message, int flags)
{
    struct volume_open *open = &container_of(file, struct disk_file, file)->open;
    ssize_t done = 0;

    (void)flags;
    if (message) return -ENOTSOCK;
    for (int i = 0; i < count; i++) {
        ssize_t n = read_at(sim, open, parts[i].iov_base, parts[i].iov_len, VOLUME_AT_POSITION);

        if (n < 0) return done > 0 ? done : n;
        done += n;
        if ((size_t)n < parts[i].iov_len) break;
    }
    return done;
}

static ssize_t file_write(struct sim *sim, struct sim_file *file, const struct iovec *parts,
                          int count, const struct msghdr *message, int flags)
{
    struct volume_open *open = &container_of(file, struct disk_file, file)->open;
    ssize_t done = 0;

    (void)flags;
    if (message) return -ENOTSOCK;
    (void)volume_at_now(sim_host_disk(file->host));
    for (int i = 0; i < count; i++) {
        ssize_t n = write_at(sim, open, parts[i].iov_base, parts[i].iov_len, VOLUME_AT_POSITION);

        if (n < 0) return done > 0 ? done : n;
        done += n;
        if ((size_t)n < parts[i].iov_len) break;
    }
    return done;
}

static void file_release(struct sim *sim, struct sim_file *take_file)
{
    struct disk_file *file = container_of(take_file, struct disk_file, file);

    volume_close(&file->open);
    sim_free(sim, file);
}

static const struct sim_file_kind disk_file_kind = {
    .name = "file",
    .read = file_read,
    .write = file_write,
    .release = file_release,
    .watchable = false,
};

/* ---- Open files ---- */

static int disk_open(const struct kernel *kernel, const char *path, int flags, mode_t mode)
{
    struct sim *sim = sim_now_running();
    struct volume *volume = begin(sim);
    struct disk_file *file = sim_alloc(sim, sizeof *file);
    int fd;

    (void)kernel;
    if (!file) return -ENOMEM;
    sim_file_init(&file->file, &disk_file_kind, sim_host_running(sim));
    fd = volume_open(volume, path, flags, mode, &file->open);
    if (fd < 0) goto fail_free;
    fd = sim_fd_install(sim, &file->file);
    if (fd < 0) goto fail_close;
    return fd;

fail_close:
    volume_close(&file->open);
fail_free:
    sim_free(sim, file);
    return fd;
}

/* For data only or not: the size is always of use to find the data, and nothing else is kept. */
static int disk_fsync(const struct kernel *kernel, int fd, bool data_only)
{
    struct sim *sim = sim_now_running();
    struct volume_open *open;
    int r = begin_file(sim, fd, -EINVAL, &open);

    (void)kernel, (void)data_only;
    return r < 0 ? r : volume_sync(open, sim_fault(sim, SIM_FAULT_SYNC_ERROR, "sync"));
}

static int disk_truncate(const struct kernel *kernel, int fd, int64_t bytes)
{
    struct volume_open *open;
    int r = begin_file(sim_now_running(), fd, -EINVAL, &open);

    (void)kernel;
    return r < 0 ? r : volume_truncate(open, bytes);
}

static int disk_lock_file(const struct kernel *kernel, int fd, bool lock)
{
    struct volume_open *open;
    int r = begin_file(sim_now_running(), fd, -EINVAL, &open);

    (void)kernel;
    return r < 0 ? r : volume_lock(open, lock);
}

/* A disk is a device of its own. */
static void set_device(struct sim *sim, struct stat *stat)
{
    stat->st_dev = sim_host_index(sim_host_running(sim)) + 1;
}

static int disk_fstat(const struct kernel *kernel, int fd, struct stat *ret_stat)
{
    enum { OTHER = 1 };
    struct sim *sim = sim_now_running();
    struct volume_open *open;
    int r = begin_file(sim, fd, OTHER, &open);

    (void)kernel;
    if (r < 0) return r;
    if (r == OTHER) {
        *ret_stat = (struct stat){.st_mode = S_IFSOCK | 0777, .st_nlink = 1};
        return 0;
    }
    volume_stat_node(open->node, ret_stat);
    set_device(sim, ret_stat);
    return 0;
}

/* ---- Paths ---- */

static int disk_stat(const struct kernel *kernel, const char *path, struct stat *ret_stat)
{
    struct sim *sim = sim_now_running();
    int r = volume_stat(begin(sim), path, ret_stat);

    (void)kernel;
    if (r == 0) set_device(sim, ret_stat);
    return r;
}

static int disk_rename(const struct kernel *kernel, const char *from, const char *to)
{
    (void)kernel;
    return volume_rename(begin(sim_now_running()), from, to);
}

static int disk_unlink(const struct kernel *kernel, const char *path)
{
    (void)kernel;
    return volume_unlink(begin(sim_now_running()), path);
}

static int disk_mkdir(const struct kernel *kernel, const char *path, mode_t mode)
{
    (void)kernel;
    return volume_mkdir(begin(sim_now_running()), path, mode);
}

static int disk_list_directory(const struct kernel *kernel, const char *path,
                               int (*entry)(void *arg, const char *name), void *arg)
{
    (void)kernel;
    return volume_list(begin(sim_now_running()), path, entry, arg);
}

/* No scheduling points: they are a part of bind and connect, which are none. */
int64_t sim_disk_socket_make(struct sim *sim, struct sim_disk *disk, const char *path)
{
    assert(disk->sim == sim);
    return volume_make_socket(volume_at_now(disk), path);
}

int64_t sim_disk_socket_find(struct sim *sim, struct sim_disk *disk, const char *path)
{
    assert(disk->sim == sim);
    return volume_find_socket(volume_at_now(disk), path);
}

void sim_disk_fill_table(struct kernel *table)
{
    table->open = disk_open;
    table->pread = disk_pread;
    table->pread_cached = NULL; /* of what is in memory nothing is known */
    table->pwrite = disk_pwrite;
    table->fsync = disk_fsync;
    table->truncate = disk_truncate;
    table->lock_file = disk_lock_file;
    table->fstat = disk_fstat;
    table->stat = disk_stat;
    table->rename = disk_rename;
    table->unlink = disk_unlink;
    table->mkdir = disk_mkdir;
    table->list_directory = disk_list_directory;
}
