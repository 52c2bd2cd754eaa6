/* file.c - files and paths, as calls of the bounded file executor, which makes them by
 * completion where the worker's queue can, and on its threads where not.
 *
 * A call owns everything it touches: copies of paths and data, and a share of the
 * open file. So a caller that is cancelled goes on at once, and what the call leaves
 * behind (a descriptor that was opened, a listing) is freed by `discard`.
 *
 * A file's descriptor is closed when its last share is given back. An orphaned write
 * therefore never lands in another file that got the same number.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <weir/file.h>

#include "io/io.h"
#include "io/listing.h"
#include "rt/blocking.h"
#include "rt/kernel.h"
#include "rt/mem.h"
#include "rt/runtime.h"
#include "rt/task.h"

struct weir_file {
    struct io_head head;
    int fd;
    bool positioned;       /* calls may go by completion: see struct kernel_file_op */
    ATOM(unsigned) shares; /* its user's, and one for each call */
};

struct file_call;

/* A row of the table: what the dump calls it, what a thread does, and which call by
 * completion is the same (KERNEL_FILE_KINDS: none is). */
struct file_operation {
    const char *name;
    ssize_t (*run)(const struct kernel *kernel, struct file_call *call);
    enum kernel_file_kind kind;
};

struct file_call {
    struct blocking_call call;
    const struct file_operation *operation;
    struct kernel_file_op op;
    ssize_t result;
    weir_file *file; /* a share, or NULL */
    int fd;          /* of close: the descriptor itself; of open: what it gave, or -1 */
    int flags;
    mode_t mode;
    bool data_only;
    int64_t offset;
    size_t bytes;
    size_t entries_max;
    struct stat stat;
    weir_listing *listing;
    const char *to; /* the second path, in memory[] */
    char memory[];  /* path, or two of them, or data */
};

static ssize_t run_open(const struct kernel *kernel, struct file_call *call)
{
    call->fd = kernel->open(kernel, call->memory, call->flags, call->mode);
    return call->fd < 0 ? call->fd : 0;
}

static ssize_t run_close(const struct kernel *kernel, struct file_call *call)
{
    return kernel->close(kernel, call->fd);
}

static ssize_t run_read(const struct kernel *kernel, struct file_call *call)
{
    return kernel->pread(kernel, call->file->fd, call->memory, call->bytes, call->offset);
}

static ssize_t run_write(const struct kernel *kernel, struct file_call *call)
{
    return kernel->pwrite(kernel, call->file->fd, call->memory, call->bytes, call->offset);
}

static ssize_t run_sync(const struct kernel *kernel, struct file_call *call)
{
    return kernel->fsync(kernel, call->file->fd, call->data_only);
}

static ssize_t run_file_stat(const struct kernel *kernel, struct file_call *call)
{
    return kernel->fstat(kernel, call->file->fd, &call->stat);
}

static ssize_t run_path_stat(const struct kernel *kernel, struct file_call *call)
{
    return kernel->stat(kernel, call->memory, &call->stat);
}

static ssize_t run_rename(const struct kernel *kernel, struct file_call *call)
{
    return kernel->rename(kernel, call->memory, call->to);
}

static ssize_t run_unlink(const struct kernel *kernel, struct file_call *call)
{
    return kernel->unlink(kernel, call->memory);
}

static ssize_t run_mkdir(const struct kernel *kernel, struct file_call *call)
{
    return kernel->mkdir(kernel, call->memory, call->mode);
}

static ssize_t run_list(const struct kernel *kernel, struct file_call *call)
{
    return listing_fill(kernel, call->memory, call->entries_max, &call->listing);
}

enum file_operations {
    FILE_OPEN,
    FILE_CLOSE,
    FILE_READ,
    FILE_WRITE,
    FILE_SYNC,
    FILE_STAT,
    PATH_STAT,
    PATH_RENAME,
    PATH_UNLINK,
    PATH_MKDIR,
    PATH_LIST,
    FILE_OPERATIONS,
};

static const struct file_operation operations[FILE_OPERATIONS] = {
    [FILE_OPEN] = {"open", run_open, KERNEL_FILE_OPEN},
    [FILE_CLOSE] = {"close", run_close, KERNEL_FILE_KINDS},
    [FILE_READ] = {"read", run_read, KERNEL_FILE_READ},
    [FILE_WRITE] = {"write", run_write, KERNEL_FILE_WRITE},
    [FILE_SYNC] = {"fsync", run_sync, KERNEL_FILE_SYNC},
    [FILE_STAT] = {"fstat", run_file_stat, KERNEL_FILE_STAT},
    [PATH_STAT] = {"stat", run_path_stat, KERNEL_PATH_STAT},
    [PATH_RENAME] = {"rename", run_rename, KERNEL_PATH_RENAME},
    [PATH_UNLINK] = {"unlink", run_unlink, KERNEL_PATH_UNLINK},
    [PATH_MKDIR] = {"mkdir", run_mkdir, KERNEL_PATH_MKDIR},
    [PATH_LIST] = {"list", run_list, KERNEL_FILE_KINDS},
};

/* ---- The life of a call ---- */

static struct file_call *call_of(struct blocking_call *call)
{
    return container_of(call, struct file_call, call);
}

static void call_run(struct blocking_call *blocking)
{
    struct file_call *call = call_of(blocking);

    do call->result = call->operation->run(blocking->kernel, call);
    while (call->result == -EINTR);
}

/* Its results, when it went by completion. */
static void call_take(struct blocking_call *blocking)
{
    struct file_call *call = call_of(blocking);
    bool open = call->op.kind == KERNEL_FILE_OPEN;

    call->result = open && call->op.result > 0 ? 0 : call->op.result;
    call->stat = call->op.stat;
    if (open) call->fd = (int)call->op.result;
}

/* Describe the call for the kernel, unless only a thread makes it the same. */
static void call_describe(struct file_call *call)
{
    const weir_file *file = call->file;

    if (call->operation->kind == KERNEL_FILE_KINDS) return;
    /* A negative offset or one that does not count is for the system call to judge. */
    if (file && (!file->positioned || call->offset < 0)) return;
    call->op.kind = call->operation->kind;
    call->op.data_only = call->data_only;
    call->op.fd = file ? file->fd : -1;
    call->op.flags = call->flags;
    call->op.mode = call->mode;
    call->op.path = call->memory;
    call->op.to = call->to;
    call->op.data = call->memory;
    call->op.bytes = call->bytes;
    call->op.offset = call->offset;
    call->call.take = call_take;
    call->call.op = &call->op;
}

static void file_give_back(const struct kernel *kernel, weir_file *file)
{
    if (atom_sub(&file->shares, 1) > 1) return;
    (void)kernel->close(kernel, file->fd);
    mem_free(file);
}

static void call_discard(struct blocking_call *blocking)
{
    struct file_call *call = call_of(blocking);
    const struct kernel *kernel = blocking->kernel;

    if (call->operation == &operations[FILE_OPEN] && call->fd >= 0) {
        (void)kernel->close(kernel, call->fd);
    }
    if (call->file) file_give_back(kernel, call->file);
    weir_listing_free(call->listing);
    mem_free(call);
}

static struct file_call *call_new(enum file_operations operation, size_t memory_bytes)
{
    struct file_call *call = mem_alloc(sizeof *call + memory_bytes);

    if (!call) return NULL;
    memset(call, 0, sizeof *call);
    call->operation = &operations[operation];
    call->call.name = call->operation->name;
    call->call.run = call_run;
    call->call.discard = call_discard;
    call->fd = -1;
    return call;
}

/* 0: it has run, `call` is the caller's to read and to discard. */
static int call_submit(struct file_call *take_call)
{
    call_describe(take_call);
    return blocking_run(&worker_self()->runtime->files, &take_call->call, false);
}

/* For calls whose only answer is their result. */
static ssize_t call_finish(struct file_call *take_call)
{
    int r = call_submit(take_call);
    ssize_t result;

    if (r < 0) return r;
    result = take_call->result;
    call_discard(&take_call->call);
    return result;
}

/* What every call begins with. */
static int begin(const char *name)
{
    struct task *self = task_self();
    if (!self) return refuse_no_task(name);
    return task_enter(self, ENTER_IO);
}

/* A call about a path, or about two; or NULL, and why. */
static struct file_call *begin_path(const char *name, enum file_operations operation,
                                    const char *path, const char *to, int *ret_error)
{
    size_t path_bytes = path ? strnlen(path, PATH_MAX) + 1 : 0;
    size_t to_bytes = to ? strnlen(to, PATH_MAX) + 1 : 0;
    struct file_call *call = NULL;
    int r = begin(name);

    if (r == 0 && !path) r = refuse("%s: path is NULL", name);
    if (r == 0 && (path_bytes > PATH_MAX || to_bytes > PATH_MAX)) r = -ENAMETOOLONG;
    if (r == 0) {
        call = call_new(operation, path_bytes + to_bytes);
        if (!call) r = -ENOMEM;
    }
    *ret_error = r;
    if (!call || !path) return NULL;
    memcpy(call->memory, path, path_bytes);
    if (to) {
        memcpy(call->memory + path_bytes, to, to_bytes);
        call->to = call->memory + path_bytes;
    }
    (void)snprintf(call->call.detail, sizeof call->call.detail, "%s", path);
    return call;
}

/* A call about an open file; or NULL, and why. */
static struct file_call *begin_file(const char *name, enum file_operations operation,
                                    weir_file *handle, size_t bytes, int64_t offset, int *ret_error)
{
    struct file_call *call = NULL;
    weir_file *file = NULL;
    int r = begin(name);

    if (bytes > WEIR_FILE_IO_BYTES_MAX) bytes = WEIR_FILE_IO_BYTES_MAX;
    if (r == 0) {
        file = io_check(handle, HANDLE_FILE, name); /* after the yield, see io.h */
        call = call_new(operation, bytes);
        if (!call) r = -ENOMEM;
    }
    *ret_error = r;
    if (!call) return NULL;
    (void)atom_add(&file->shares, 1);
    call->file = file;
    call->bytes = bytes;
    call->offset = offset;
    (void)snprintf(call->call.detail, sizeof call->call.detail, "descriptor %d", file->fd);
    return call;
}

/* ---- Files ---- */

int weir_file_open(const char *path, int flags, mode_t mode, weir_file **ret_file)
{
    int r;
    struct file_call *call = begin_path("weir_file_open", FILE_OPEN, path, NULL, &r);
    weir_file *file;

    if (!call) return r;
    file = mem_alloc(sizeof *file);
    r = file ? io_head_init(&file->head, HANDLE_FILE) : -ENOMEM;
    if (r < 0) {
        mem_free(file);
        mem_free(call);
        return r;
    }
    call->flags = flags;
    call->mode = mode;
    r = call_submit(call);
    if (r < 0) goto fail;
    r = (int)call->result;
    file->fd = call->fd;
    file->positioned = call->op.positioned;
    call->fd = -1;
    call_discard(&call->call);
    if (r < 0) goto fail;
    atom_store(&file->shares, 1);
    *ret_file = file->head.handle;
    return 0;

fail:
    io_head_deinit(&file->head);
    mem_free(file);
    return r;
}

/* Close on this thread: when the executor cannot be used. */
static int close_here(int fd)
{
    const struct kernel *kernel = worker_self()->kernel;
    return kernel->close(kernel, fd);
}

static int close_descriptor(struct task *self, int fd)
{
    struct file_call *call = call_new(FILE_CLOSE, 0);
    int r;

    if (!call) return close_here(fd);
    /* A task that is cancelled closes all the same; it only may not hog the worker. */
    (void)task_enter(self, ENTER_PLAIN);
    call->fd = fd;
    (void)snprintf(call->call.detail, sizeof call->call.detail, "descriptor %d", fd);
    r = blocking_run(&worker_self()->runtime->files, &call->call, true);
    /* Cut short: the call closes the descriptor, or has. Anything else: it never ran. */
    if (r == WEIR_ECANCELED || r == WEIR_ETIMEDOUT) return r;
    if (r < 0) return close_here(fd);
    r = (int)call->result;
    call_discard(&call->call);
    return r;
}

int weir_file_close(weir_file *take_handle)
{
    struct task *self = task_self();
    weir_file *file;
    int fd;

    if (!take_handle) return 0;
    file = io_check(take_handle, HANDLE_FILE, "weir_file_close");
    io_head_deinit(&file->head); /* also while an orphan keeps the memory */
    fd = file->fd;
    if (atom_sub(&file->shares, 1) > 1) return -EINPROGRESS;
    mem_free(file);
    return self ? close_descriptor(self, fd) : close_here(fd);
}

ssize_t weir_file_read(weir_file *file, void *data, size_t bytes, int64_t offset)
{
    int r;
    struct file_call *call = begin_file("weir_file_read", FILE_READ, file, bytes, offset, &r);
    ssize_t n;

    if (!call) return r;
    r = call_submit(call);
    if (r < 0) return r;
    n = call->result;
    if (n > 0) memcpy(data, call->memory, (size_t)n);
    call_discard(&call->call);
    return n;
}

ssize_t weir_file_write(weir_file *file, const void *data, size_t bytes, int64_t offset)
{
    int r;
    struct file_call *call = begin_file("weir_file_write", FILE_WRITE, file, bytes, offset, &r);

    if (!call) return r;
    if (call->bytes > 0) memcpy(call->memory, data, call->bytes);
    return call_finish(call);
}

int weir_file_sync(weir_file *file, bool data_only)
{
    int r;
    struct file_call *call = begin_file("weir_file_sync", FILE_SYNC, file, 0, 0, &r);

    if (!call) return r;
    call->data_only = data_only;
    return (int)call_finish(call);
}

static int finish_stat(struct file_call *take_call, struct stat *ret_stat)
{
    int r = call_submit(take_call);

    if (r < 0) return r;
    r = (int)take_call->result;
    if (r == 0) *ret_stat = take_call->stat;
    call_discard(&take_call->call);
    return r;
}

int weir_file_stat(weir_file *file, struct stat *ret_stat)
{
    int r;
    struct file_call *call = begin_file("weir_file_stat", FILE_STAT, file, 0, 0, &r);
    return call ? finish_stat(call, ret_stat) : r;
}

/* ---- Paths ---- */

int weir_path_stat(const char *path, struct stat *ret_stat)
{
    int r;
    struct file_call *call = begin_path("weir_path_stat", PATH_STAT, path, NULL, &r);
    return call ? finish_stat(call, ret_stat) : r;
}

int weir_path_rename(const char *from, const char *to)
{
    struct file_call *call;
    int r;

    if (!to) return refuse("weir_path_rename: to is NULL");
    call = begin_path("weir_path_rename", PATH_RENAME, from, to, &r);
    return call ? (int)call_finish(call) : r;
}

int weir_path_unlink(const char *path)
{
    int r;
    struct file_call *call = begin_path("weir_path_unlink", PATH_UNLINK, path, NULL, &r);
    return call ? (int)call_finish(call) : r;
}

int weir_path_mkdir(const char *path, mode_t mode)
{
    int r;
    struct file_call *call = begin_path("weir_path_mkdir", PATH_MKDIR, path, NULL, &r);

    if (!call) return r;
    call->mode = mode;
    return (int)call_finish(call);
}

int weir_path_list(const char *path, size_t entries_max, weir_listing **ret_listing)
{
    struct file_call *call;
    int r;

    if (entries_max == 0) return refuse("weir_path_list: entries_max is 0");
    call = begin_path("weir_path_list", PATH_LIST, path, NULL, &r);
    if (!call) return r;
    call->entries_max = entries_max;
    r = call_submit(call);
    if (r < 0) return r;
    r = (int)call->result;
    if (r == 0) {
        *ret_listing = call->listing;
        call->listing = NULL;
    }
    call_discard(&call->call);
    return r;
}
