/* volume_kernel.h - the calls of files of rt/kernel.h on a file system in memory (sim/volume.h),
 * for tests that look at very many stores, and at what power cuts leave of them.
 *
 * All in this header: it is for the test program and for fuzz targets, which are a file each.
 * Threads: any; one table at a time in a process. */
#ifndef WEIR_TESTS_UNIT_STORE_VOLUME_KERNEL_H
#define WEIR_TESTS_UNIT_STORE_VOLUME_KERNEL_H

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "rt/kernel.h"
#include "sim/volume.h"

enum { VOLUME_FDS = 64, VOLUME_FD_FIRST = 1 << 20 };

struct volume_kernel {
    struct kernel kernel;
    struct volume volume;
    struct volume_open opens[VOLUME_FDS];
    /* Who decides what a power cut keeps, and where it says so; NULL: nothing is kept. */
    unsigned (*choose)(void *arg, unsigned n);
    void *choose_arg;
    /* Told of what has happened, under the mutex; NULL: nobody is. */
    void (*wrote)(int file, const void *data, size_t bytes, int64_t offset);
    void (*synced)(int file);
    void (*opened)(int file, const char *path, int flags);
    void (*closed)(int file);
    void (*named)(const char *from, const char *to); /* renamed, or removed: to is NULL */
    void (*made)(const char *path);                  /* a folder */
    pthread_mutex_t mutex;
};

/* The one there is. */
static struct volume_kernel volume_kernel = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static inline void *volume_kernel_alloc(void *arg, size_t bytes)
{
    (void)arg;
    return calloc(1, bytes);
}

static inline void volume_kernel_free(void *arg, void *memory)
{
    (void)arg;
    free(memory);
}

static inline unsigned volume_kernel_choose(void *arg, unsigned n, const char *about)
{
    (void)arg, (void)about;
    return volume_kernel.choose ? volume_kernel.choose(volume_kernel.choose_arg, n) : 0;
}

static inline struct volume_open *volume_kernel_file(int fd)
{
    int index = fd - VOLUME_FD_FIRST;

    if (index < 0 || index >= VOLUME_FDS || !volume_kernel.opens[index].node) return NULL;
    return &volume_kernel.opens[index];
}

#define VOLUME_CALL(type, name, parameters, body)        \
    static inline type volume_kernel_##name parameters   \
    {                                                    \
        type r;                                          \
        (void)kernel;                                    \
        pthread_mutex_lock(&volume_kernel.mutex);        \
        body pthread_mutex_unlock(&volume_kernel.mutex); \
        return r;                                        \
    }
#define TELL(hook, ...) \
    if (r >= 0 && volume_kernel.hook) volume_kernel.hook(__VA_ARGS__)
#define KERNEL_ARG const struct kernel *kernel

VOLUME_CALL(int, open, (KERNEL_ARG, const char *path, int flags, mode_t mode), {
    int index = 0;
    while (index < VOLUME_FDS && volume_kernel.opens[index].node) index++;
    r = index == VOLUME_FDS
            ? -EMFILE
            : volume_open(&volume_kernel.volume, path, flags, mode, &volume_kernel.opens[index]);
    if (r >= 0) r = VOLUME_FD_FIRST + index;
    TELL(opened, index, path, flags);
})

VOLUME_CALL(int, close, (KERNEL_ARG, int fd), {
    struct volume_open *open = volume_kernel_file(fd);
    if (open) {
        volume_close(open);
        open->node = NULL;
        r = 0;
        TELL(closed, fd - VOLUME_FD_FIRST);
    } else { /* the runtime's own */
        r = kernel_epoll.close(&kernel_epoll, fd);
    }
})

VOLUME_CALL(ssize_t, pread, (KERNEL_ARG, int fd, void *data, size_t bytes, int64_t offset), {
    struct volume_open *open = volume_kernel_file(fd);
    r = open ? volume_read(open, data, bytes, offset) : -EBADF;
})

VOLUME_CALL(ssize_t, pwrite, (KERNEL_ARG, int fd, const void *data, size_t bytes, int64_t offset), {
    struct volume_open *open = volume_kernel_file(fd);
    r = open ? volume_write(open, data, bytes, offset) : -EBADF;
    TELL(wrote, fd - VOLUME_FD_FIRST, data, (size_t)r, offset);
})

VOLUME_CALL(int, fsync, (KERNEL_ARG, int fd, bool data_only), {
    struct volume_open *open = volume_kernel_file(fd);
    (void)data_only;
    r = open ? volume_sync(open, false) : -EBADF;
    TELL(synced, fd - VOLUME_FD_FIRST);
})

VOLUME_CALL(int, lock_file, (KERNEL_ARG, int fd, bool lock), {
    struct volume_open *open = volume_kernel_file(fd);
    r = open ? volume_lock(open, lock) : -EBADF;
})

VOLUME_CALL(int, stat, (KERNEL_ARG, const char *path, struct stat *ret_stat),
            { r = volume_stat(&volume_kernel.volume, path, ret_stat); })

VOLUME_CALL(int, rename, (KERNEL_ARG, const char *from, const char *to), {
    r = volume_rename(&volume_kernel.volume, from, to);
    TELL(named, from, to);
})

VOLUME_CALL(int, unlink, (KERNEL_ARG, const char *path), {
    r = volume_unlink(&volume_kernel.volume, path);
    TELL(named, path, NULL);
})

VOLUME_CALL(int, mkdir, (KERNEL_ARG, const char *path, mode_t mode), {
    r = volume_mkdir(&volume_kernel.volume, path, mode);
    TELL(made, path);
})

VOLUME_CALL(int, list_directory,
            (KERNEL_ARG, const char *path, int (*entry)(void *arg, const char *name), void *arg),
            { r = volume_list(&volume_kernel.volume, path, entry, arg); })

#undef VOLUME_CALL
#undef TELL
#undef KERNEL_ARG

/* An empty disk of so many bytes, and the table for it. */
static inline const struct kernel *volume_kernel_begin(uint64_t bytes_max)
{
    const struct volume_means means = {NULL, volume_kernel_alloc, volume_kernel_free,
                                       volume_kernel_choose};
    struct kernel *kernel = &volume_kernel.kernel;

    memset(volume_kernel.opens, 0, sizeof volume_kernel.opens);
    volume_init(&volume_kernel.volume, &means, bytes_max);
    *kernel = kernel_epoll;
    kernel->name = "volume";
    kernel->queue_submit = NULL;
    kernel->pread_cached = NULL;
    kernel->open = volume_kernel_open;
    kernel->close = volume_kernel_close;
    kernel->pread = volume_kernel_pread;
    kernel->pwrite = volume_kernel_pwrite;
    kernel->fsync = volume_kernel_fsync;
    kernel->lock_file = volume_kernel_lock_file;
    kernel->stat = volume_kernel_stat;
    kernel->rename = volume_kernel_rename;
    kernel->unlink = volume_kernel_unlink;
    kernel->mkdir = volume_kernel_mkdir;
    kernel->list_directory = volume_kernel_list_directory;
    return kernel;
}

static inline void volume_kernel_close_all(void)
{
    for (int i = 0; i < VOLUME_FDS; i++) {
        if (!volume_kernel.opens[i].node) continue;
        volume_close(&volume_kernel.opens[i]);
        volume_kernel.opens[i].node = NULL;
    }
}

static inline void volume_kernel_end(void)
{
    volume_kernel_close_all();
    volume_deinit(&volume_kernel.volume);
}

/* The power is cut: files that were open are closed, and of what was not synced only what is chosen
 * is left. */
static inline void volume_kernel_crash(void)
{
    volume_crash(&volume_kernel.volume);
    volume_kernel_close_all();
}

#endif
