/* log_files.c - see log_files.h. */
#include "store/log_files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <weir/error.h>

#include "base/planted.h"
#include "rt/mem.h"

enum {
    FOLDER_MODE = 0755,
    FILE_MODE = 0600,
    LOCK_TEXT_BYTES = 128,
    ZEROES_SYNCED_BYTES = 1 << 20, /* so much is synced at a time, or commits would wait for it */
};

int log_fail(struct log_why *why, int error, const char *format, ...)
{
    va_list arguments;

    if (!why) return error;
    va_start(arguments, format);
    (void)vsnprintf(why->text, sizeof why->text, format, arguments);
    va_end(arguments);
    return error;
}

/* ---- Files ---- */

ssize_t log_file_read(const struct kernel *kernel, int fd, void *data, size_t bytes,
                      uint64_t offset)
{
    size_t done = 0;

    while (done < bytes) {
        ssize_t n =
            kernel->pread(kernel, fd, (char *)data + done, bytes - done, (int64_t)(offset + done));

        if (n == -EINTR) continue;
        if (n < 0) return n;
        if (n == 0) break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

int log_file_write(const struct kernel *kernel, int fd, const void *data, size_t bytes,
                   uint64_t offset)
{
    size_t done = 0;

    while (done < bytes) {
        ssize_t n = kernel->pwrite(kernel, fd, (const char *)data + done, bytes - done,
                                   (int64_t)(offset + done));

        if (n == -EINTR) continue;
        if (n < 0) return (int)n;
        if (n == 0) return -EIO; /* a disk that takes nothing and does not say why */
        done += (size_t)n;
    }
    return 0;
}

int log_file_sync(const struct kernel *kernel, int fd)
{
    int r;

    /* An interrupted sync has not failed: nothing was given up. */
    do r = kernel->fsync(kernel, fd, true);
    while (r == -EINTR);
    return r;
}

int log_file_zero(const struct kernel *kernel, int fd, uint64_t from, uint64_t to)
{
    char *zeroes = mem_alloc_zeroed(LOG_ZERO_BYTES);
    int r = zeroes ? 0 : -ENOMEM;

    while (r == 0 && from < to) {
        size_t bytes = to - from < LOG_ZERO_BYTES ? (size_t)(to - from) : LOG_ZERO_BYTES;

        r = log_file_write(kernel, fd, zeroes, bytes, from);
        from += bytes;
    }
    mem_free(zeroes);
    return r;
}

/* ---- The folder ---- */

static int path_of(const struct log_folder *folder, const char *name, char path[LOG_PATH_BYTES])
{
    int n = snprintf(path, LOG_PATH_BYTES, "%s/%s", folder->path, name);

    return n < 0 || n >= LOG_PATH_BYTES ? -ENAMETOOLONG : 0;
}

int log_folder_file(const struct log_folder *folder, const char *name, int flags,
                    struct log_why *why)
{
    char path[LOG_PATH_BYTES];
    int r = path_of(folder, name, path);

    if (r < 0) return log_fail(why, r, "store '%s': the path is too long", folder->path);
    do r = folder->kernel->open(folder->kernel, path, flags | O_CLOEXEC, FILE_MODE);
    while (r == -EINTR);
    if (r < 0)
        return log_fail(why, r, "store '%s': open %s: %s", folder->path, name, weir_strerror(r));
    return r;
}

int log_folder_open(struct log_folder *folder, const struct kernel *kernel, const char *path,
                    bool create, struct log_why *why)
{
    size_t bytes = strlen(path);
    int r;

    *folder = (struct log_folder){.kernel = kernel, .fd = -1, .lock_fd = -1, .meta_fd = -1};
    if (bytes == 0 || bytes >= LOG_PATH_BYTES - LOG_NAME_BYTES)
        return log_fail(why, -ENAMETOOLONG, "store: the path is empty or too long");
    memcpy(folder->path, path, bytes + 1);
    if (create) {
        r = kernel->mkdir(kernel, path, FOLDER_MODE);
        if (r < 0 && r != -EEXIST)
            return log_fail(why, r, "store '%s': mkdir: %s", path, weir_strerror(r));
    }
    do folder->fd = kernel->open(kernel, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    while (folder->fd == -EINTR);
    if (folder->fd < 0)
        return log_fail(why, folder->fd, "store '%s': open: %s", path, weir_strerror(folder->fd));
    return 0;
}

void log_folder_close(struct log_folder *folder)
{
    if (folder->fd >= 0) (void)folder->kernel->close(folder->kernel, folder->fd);
    if (folder->lock_fd >= 0) (void)folder->kernel->close(folder->kernel, folder->lock_fd);
    if (folder->meta_fd >= 0) (void)folder->kernel->close(folder->kernel, folder->meta_fd);
    folder->fd = folder->lock_fd = folder->meta_fd = -1;
}

/* Who has it, as it has written it. */
static int say_busy(struct log_folder *folder, struct log_why *why)
{
    char text[LOCK_TEXT_BYTES] = "";
    ssize_t n = log_file_read(folder->kernel, folder->lock_fd, text, sizeof text - 1, 0);

    if (n < 0) n = 0;
    text[n] = '\0';
    text[strcspn(text, "\n")] = '\0';
    for (char *at = text; *at; at++)
        if (*at < ' ' || *at > '~') *at = '?';
    return log_fail(why, -EBUSY, "store '%s' is in use by %s", folder->path,
                    text[0] ? text : "another process");
}

int log_folder_lock(struct log_folder *folder, struct log_why *why)
{
    const struct kernel *kernel = folder->kernel;
    char text[LOCK_TEXT_BYTES] = "";
    struct utsname host;
    int r;

    folder->lock_fd = log_folder_file(folder, "LOCK", O_RDWR | O_CREAT, why);
    if (folder->lock_fd < 0) return folder->lock_fd;
    r = kernel->lock_file(kernel, folder->lock_fd, true);
    if (r == -EAGAIN) {
        r = say_busy(folder, why);
    } else if (r == 0) {
        /* Who had it before and died is written over: the lock went with it. */
        if (uname(&host) < 0) host.nodename[0] = '\0';
        (void)snprintf(text, sizeof text, "process %ld on host %.64s\n", (long)getpid(),
                       host.nodename);
        r = log_file_write(kernel, folder->lock_fd, text, sizeof text, 0);
        /* It only tells others who it is: that there is no room for it stops nobody. */
        if (r == -ENOSPC || r == -EDQUOT) r = 0;
    }
    if (r < 0) {
        if (r != -EBUSY) log_fail(why, r, "store '%s': LOCK: %s", folder->path, weir_strerror(r));
        (void)kernel->close(kernel, folder->lock_fd);
        folder->lock_fd = -1;
    }
    return r;
}

int log_folder_sync(const struct log_folder *folder, struct log_why *why)
{
    int r;

    do r = folder->kernel->fsync(folder->kernel, folder->fd, false);
    while (r == -EINTR);
    if (r < 0)
        return log_fail(why, r, "store '%s': sync of the folder: %s", folder->path,
                        weir_strerror(r));
    return 0;
}

/* A folder whose sync has failed once keeps back what it could not save until something in it
 * changes: so something does. */
static int sync_changed(const struct log_folder *folder, const char *parent, const char *path)
{
    const struct kernel *kernel = folder->kernel;
    int fd = kernel->open(kernel, path, O_WRONLY | O_CREAT | O_CLOEXEC, FILE_MODE);
    int r;

    if (fd < 0) return fd;
    (void)kernel->close(kernel, fd);
    r = kernel->unlink(kernel, path);
    if (r < 0) return r;
    fd = kernel->open(kernel, parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0) return fd;
    do r = kernel->fsync(kernel, fd, false);
    while (r == -EINTR);
    (void)kernel->close(kernel, fd);
    return r;
}

int log_folder_sync_name(const struct log_folder *folder, struct log_why *why)
{
    char parent[LOG_PATH_BYTES], path[LOG_PATH_BYTES + 8];
    size_t bytes = strlen(folder->path);
    char *slash;
    int r;

    while (bytes > 1 && folder->path[bytes - 1] == '/') bytes--;
    memcpy(parent, folder->path, bytes);
    parent[bytes] = '\0';
    (void)snprintf(path, sizeof path, "%s.new", parent);
    slash = strrchr(parent, '/');
    if (!slash) {
        (void)snprintf(parent, sizeof parent, ".");
    } else {
        slash[slash == parent ? 1 : 0] = '\0';
    }
    r = sync_changed(folder, parent, path);
    if (r < 0)
        return log_fail(why, r, "store '%s': sync of the folder that it is in: %s", folder->path,
                        weir_strerror(r));
    return 0;
}

int log_folder_rename(const struct log_folder *folder, const char *from, const char *to,
                      struct log_why *why)
{
    char from_path[LOG_PATH_BYTES], to_path[LOG_PATH_BYTES];
    int r = path_of(folder, from, from_path);

    if (r == 0) r = path_of(folder, to, to_path);
    if (r == 0) r = folder->kernel->rename(folder->kernel, from_path, to_path);
    if (r < 0)
        return log_fail(why, r, "store '%s': rename %s to %s: %s", folder->path, from, to,
                        weir_strerror(r));
    return 0;
}

int log_folder_unlink(const struct log_folder *folder, const char *name, struct log_why *why)
{
    char path[LOG_PATH_BYTES];
    int r = path_of(folder, name, path);

    if (r == 0) r = folder->kernel->unlink(folder->kernel, path);
    if (r < 0)
        return log_fail(why, r, "store '%s': remove %s: %s", folder->path, name, weir_strerror(r));
    return 0;
}

int log_folder_size(const struct log_folder *folder, const char *name, uint64_t *ret_bytes,
                    struct log_why *why)
{
    char path[LOG_PATH_BYTES];
    struct stat stat;
    int r = path_of(folder, name, path);

    if (r == 0) r = folder->kernel->stat(folder->kernel, path, &stat);
    if (r < 0)
        return log_fail(why, r, "store '%s': stat %s: %s", folder->path, name, weir_strerror(r));
    *ret_bytes = (uint64_t)stat.st_size;
    return 0;
}

/* ---- Names ---- */

static const char *const suffixes[LOG_SUFFIXES] = {
    [LOG_SEGMENT] = ".log", [LOG_SPARE] = ".spare", [LOG_NEW] = ".new"};

enum { NUMBER_DIGITS = 16 };

void log_name(char name[LOG_NAME_BYTES], uint64_t number, enum log_suffix suffix)
{
    (void)snprintf(name, LOG_NAME_BYTES, "%016" PRIx64 "%s", number, suffixes[suffix]);
}

static int listing_add(struct log_listing *listing, enum log_suffix suffix, uint64_t number)
{
    size_t *room = &listing->room[suffix];

    if (listing->count[suffix] == *room) {
        size_t more = *room > 0 ? 2 * *room : 16;
        uint64_t *numbers =
            mem_resize(listing->numbers[suffix], more * sizeof *listing->numbers[suffix]);

        if (!numbers) return -ENOMEM;
        listing->numbers[suffix] = numbers;
        *room = more;
    }
    listing->numbers[suffix][listing->count[suffix]++] = number;
    return 0;
}

/* Names that are not ours are left alone. */
static int listing_entry(void *arg, const char *name)
{
    struct log_listing *listing = arg;
    uint64_t number = 0;

    if (strcmp(name, "META") == 0) listing->has_meta = true;
    if (strcmp(name, "META.new") == 0) listing->has_meta_new = true;
    for (int i = 0; i < NUMBER_DIGITS; i++) {
        const char digits[] = "0123456789abcdef";
        const char *digit = name[i] ? strchr(digits, name[i]) : NULL;

        if (!digit) return 0;
        number = number << 4 | (uint64_t)(digit - digits);
    }
    for (int suffix = 0; suffix < LOG_SUFFIXES; suffix++)
        if (strcmp(name + NUMBER_DIGITS, suffixes[suffix]) == 0)
            listing->error = listing_add(listing, (enum log_suffix)suffix, number);
    return listing->error;
}

static int compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    return (left > right) - (left < right);
}

int log_listing_fill(struct log_listing *ret_listing, const struct log_folder *folder,
                     struct log_why *why)
{
    int r;

    *ret_listing = (struct log_listing){0};
    r = folder->kernel->list_directory(folder->kernel, folder->path, listing_entry, ret_listing);
    if (r == 0) r = ret_listing->error;
    if (r < 0) {
        log_listing_free(ret_listing);
        return log_fail(why, r, "store '%s': list: %s", folder->path, weir_strerror(r));
    }
    for (int i = 0; i < LOG_SUFFIXES; i++)
        if (ret_listing->count[i] > 1)
            qsort(ret_listing->numbers[i], ret_listing->count[i], sizeof(uint64_t), compare);
    return 0;
}

void log_listing_free(struct log_listing *listing)
{
    for (int i = 0; i < LOG_SUFFIXES; i++) mem_free(listing->numbers[i]);
    *listing = (struct log_listing){0};
}

/* ---- META ---- */

static uint64_t slot_offset(uint64_t generation)
{
    return generation % LOG_META_SLOTS * LOG_META_SLOT_DISTANCE;
}

int log_meta_read(const struct log_folder *folder, struct log_meta *ret_meta, struct log_why *why)
{
    unsigned char data[LOG_META_BYTES] = {0};
    const char *wrong = NULL;
    bool found = false, newer = false;
    int fd = log_folder_file(folder, "META", O_RDONLY, why);
    ssize_t n;

    if (fd < 0) return fd;
    n = log_file_read(folder->kernel, fd, data, sizeof data, 0);
    (void)folder->kernel->close(folder->kernel, fd);
    if (n < 0)
        return log_fail(why, (int)n, "store '%s': read META: %s", folder->path,
                        weir_strerror((int)n));
    for (int slot = 0; slot < LOG_META_SLOTS; slot++) {
        struct log_meta meta;
        bool slot_newer;
        const char *slot_wrong =
            log_meta_decode(data + slot * LOG_META_SLOT_DISTANCE, &meta, &slot_newer);

        newer |= slot_newer;
        if (slot_wrong && (!wrong || slot_newer)) wrong = slot_wrong;
        if (slot_wrong || (found && meta.generation < ret_meta->generation)) continue;
        found = true;
        *ret_meta = meta;
    }
    /* A newer program may have moved on from what an old slot says. */
    if (newer) return log_fail(why, -ENOTSUP, "store '%s': META %s", folder->path, wrong);
    if (!found)
        return log_fail(why, -EBADMSG, "store '%s': META is damaged: offset 0 %s", folder->path,
                        wrong);
    return 0;
}

int log_folder_keep_meta(struct log_folder *folder, struct log_why *why)
{
    int fd = log_folder_file(folder, "META", O_WRONLY, why);

    if (fd < 0) return fd;
    folder->meta_fd = fd;
    return 0;
}

int log_meta_write(const struct log_folder *folder, const struct log_meta *meta,
                   struct log_why *why)
{
    unsigned char slot[LOG_META_SLOT_BYTES];
    int fd = folder->meta_fd;
    int r;

    if (fd < 0) fd = log_folder_file(folder, "META", O_WRONLY, why);
    if (fd < 0) return fd;
    log_meta_encode(meta, slot);
    r = log_file_write(folder->kernel, fd, slot, sizeof slot, slot_offset(meta->generation));
    if (r == 0) {
        r = log_file_sync(folder->kernel, fd);
        if (r == -ENOSPC || r == -EDQUOT) r = -EIO; /* unlike a write's, it is not tried again */
    }
    if (fd != folder->meta_fd) (void)folder->kernel->close(folder->kernel, fd);
    if (r < 0)
        return log_fail(why, r, "store '%s': write META: %s", folder->path, weir_strerror(r));
    return 0;
}

int log_meta_create(const struct log_folder *folder, const struct log_meta *meta,
                    struct log_why *why)
{
    unsigned char data[LOG_META_BYTES] = {0};
    int fd = log_folder_file(folder, "META.new", O_WRONLY | O_CREAT | O_TRUNC, why);
    int r;

    if (fd < 0) return fd;
    log_meta_encode(meta, data + slot_offset(meta->generation));
    r = log_file_write(folder->kernel, fd, data, sizeof data, 0);
    if (r == 0) r = log_file_sync(folder->kernel, fd);
    (void)folder->kernel->close(folder->kernel, fd);
    if (r < 0)
        return log_fail(why, r, "store '%s': write META.new: %s", folder->path, weir_strerror(r));
    return log_folder_rename(folder, "META.new", "META", why);
}

/* ---- Segments and spares ---- */

static int fill_with_zeroes(const struct kernel *kernel, int fd, uint64_t bytes,
                            const ATOM(bool) * stop)
{
    uint64_t done = 0;
    int r = 0;

    while (r == 0 && done < bytes) {
        uint64_t part = bytes - done < ZEROES_SYNCED_BYTES ? bytes - done : ZEROES_SYNCED_BYTES;

        if (stop && atom_load(stop)) return -EINTR;
        r = log_file_zero(kernel, fd, done, done + part);
        if (r == 0) r = log_file_sync(kernel, fd);
        done += part;
    }
    return r;
}

int log_spare_make(const struct log_folder *folder, uint64_t number, uint64_t segment_bytes,
                   const ATOM(bool) * stop, struct log_why *why)
{
    const struct kernel *kernel = folder->kernel;
    char new_name[LOG_NAME_BYTES], spare_name[LOG_NAME_BYTES];
    int fd, r;

    log_name(new_name, number, LOG_NEW);
    log_name(spare_name, number, LOG_SPARE);
    fd = log_folder_file(folder, new_name, O_RDWR | O_CREAT | O_TRUNC, why);
    if (fd < 0) return fd;
    r = fill_with_zeroes(kernel, fd, segment_bytes, stop);
    if (r < 0)
        log_fail(why, r, "store '%s': write %s: %s", folder->path, new_name, weir_strerror(r));
    if (r == 0) r = log_folder_rename(folder, new_name, spare_name, why);
    if (r == 0) return fd;
    (void)kernel->close(kernel, fd);
    (void)log_folder_unlink(folder, new_name, NULL);
    return r;
}

int log_segment_make(const struct log_folder *folder, const struct log_spare *spare,
                     const struct log_header *header, struct log_why *why)
{
    const struct kernel *kernel = folder->kernel;
    unsigned char block[LOG_HEADER_BYTES];
    char spare_name[LOG_NAME_BYTES], name[LOG_NAME_BYTES];
    int r = 0;

    log_name(spare_name, spare->number, LOG_SPARE);
    log_name(name, header->sequence, LOG_SEGMENT);
    log_header_encode(header, block);
    if (!PLANTED(LOG_SEGMENT_NOT_HEADED)) {
        r = log_file_write(kernel, spare->fd, block, sizeof block, 0);
        if (r == 0) r = log_file_sync(kernel, spare->fd);
    }
    if (r < 0)
        return log_fail(why, r, "store '%s': write the header of %s: %s", folder->path, spare_name,
                        weir_strerror(r));
    r = log_folder_rename(folder, spare_name, name, why);
    if (r == 0 && !PLANTED(LOG_FOLDER_NOT_SYNCED)) {
        r = log_folder_sync(folder, why);
        /* It has its name already: that cannot be tried again as if nothing had been. */
        if (r == -ENOSPC || r == -EDQUOT || r == -ENOMEM) r = -EIO;
    }
    return r;
}
