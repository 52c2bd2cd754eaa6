/* kernel_uring_file.c - file calls by completion.
 *
 *     UNSUBMITTED ──flush──▶ RUNNING ──completion──▶ done (queue_wait)
 *          │ withdraw           │ interrupted by nobody of ours: again
 *          ▼                    ▼
 *       never happens      UNSUBMITTED
 *
 * A call that is cancelled by nobody of ours was never begun: the kernel could not make the
 * thread for it, under a storm of signals or at a limit of processes. It is done with -ENOSYS,
 * and one of our own threads makes it.
 *
 * The results are those of the system calls of the same name. Where the ring would do
 * something else, the call is made as if by a thread (IOSQE_ASYNC) or refused here and
 * made by one: an open that must not be tried without blocking first (a fifo would be
 * opened at once), a descriptor without offsets (the offset would be ignored).
 * Close stays with the threads: the ring tells before the file is really let go of.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "rt/kernel_uring.h"
#include "rt/sanitize.h"

/* A transfer that can be made at once is made by the worker itself, inside its own
 * call: longer ones would hold it for too long. */
enum { INLINE_BYTES_MAX = 64 * 1024 };

static void prep_open(struct io_uring_sqe *submission, const struct kernel_file_op *op)
{
    io_uring_prep_openat(submission, AT_FDCWD, op->path, op->flags | O_CLOEXEC, op->mode);
    submission->flags |= IOSQE_ASYNC;
}

static void prep_read(struct io_uring_sqe *submission, const struct kernel_file_op *op)
{
    io_uring_prep_read(submission, op->fd, op->data, (unsigned)op->bytes, (uint64_t)op->offset);
    if (op->bytes > INLINE_BYTES_MAX) submission->flags |= IOSQE_ASYNC;
}

static void prep_write(struct io_uring_sqe *submission, const struct kernel_file_op *op)
{
    io_uring_prep_write(submission, op->fd, op->data, (unsigned)op->bytes, (uint64_t)op->offset);
    if (op->bytes > INLINE_BYTES_MAX) submission->flags |= IOSQE_ASYNC;
}

static void prep_sync(struct io_uring_sqe *submission, const struct kernel_file_op *op)
{
    io_uring_prep_fsync(submission, op->fd, op->data_only ? IORING_FSYNC_DATASYNC : 0);
}

static void prep_statx(struct io_uring_sqe *submission, const struct kernel_file_op *op, int fd,
                       const char *path, int flags)
{
    io_uring_prep_statx(submission, fd, path, flags | AT_NO_AUTOMOUNT, STATX_BASIC_STATS,
                        (struct statx *)(uintptr_t)op->status);
}

static void prep_file_stat(struct io_uring_sqe *submission, const struct kernel_file_op *op)
{
    prep_statx(submission, op, op->fd, "", AT_EMPTY_PATH);
}

static void prep_path_stat(struct io_uring_sqe *submission, const struct kernel_file_op *op)
{
    prep_statx(submission, op, AT_FDCWD, op->path, 0);
}

static void prep_rename(struct io_uring_sqe *submission, const struct kernel_file_op *op)
{
    io_uring_prep_renameat(submission, AT_FDCWD, op->path, AT_FDCWD, op->to, 0);
}

static void prep_unlink(struct io_uring_sqe *submission, const struct kernel_file_op *op)
{
    io_uring_prep_unlinkat(submission, AT_FDCWD, op->path, 0);
}

static void prep_mkdir(struct io_uring_sqe *submission, const struct kernel_file_op *op)
{
    io_uring_prep_mkdirat(submission, AT_FDCWD, op->path, op->mode);
}

static const struct {
    int opcode;
    void (*prepare)(struct io_uring_sqe *submission, const struct kernel_file_op *op);
} rows[KERNEL_FILE_KINDS] = {
    [KERNEL_FILE_OPEN] = {IORING_OP_OPENAT, prep_open},
    [KERNEL_FILE_READ] = {IORING_OP_READ, prep_read},
    [KERNEL_FILE_WRITE] = {IORING_OP_WRITE, prep_write},
    [KERNEL_FILE_SYNC] = {IORING_OP_FSYNC, prep_sync},
    [KERNEL_FILE_STAT] = {IORING_OP_STATX, prep_file_stat},
    [KERNEL_PATH_STAT] = {IORING_OP_STATX, prep_path_stat},
    [KERNEL_PATH_RENAME] = {IORING_OP_RENAMEAT, prep_rename},
    [KERNEL_PATH_UNLINK] = {IORING_OP_UNLINKAT, prep_unlink},
    [KERNEL_PATH_MKDIR] = {IORING_OP_MKDIRAT, prep_mkdir},
};

unsigned uring_file_kinds(struct io_uring *ring)
{
    struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
    unsigned kinds = 0;

    if (probe == NULL) return 0; /* older than the probe: threads do it all */
    for (unsigned i = 0; i < KERNEL_FILE_KINDS; i++) {
        if (io_uring_opcode_supported(probe, rows[i].opcode)) kinds |= 1u << i;
    }
    io_uring_free_probe(probe);
    return kinds;
}

/* ---- The life of a call ---- */

static bool moves_data(const struct kernel_file_op *op)
{
    return op->kind == KERNEL_FILE_READ || op->kind == KERNEL_FILE_WRITE;
}

int uring_queue_submit(struct kernel_queue *queue, struct kernel_file_op *keep_op)
{
    if (!(queue->kinds & 1u << keep_op->kind)) return -ENOSYS;
    assert(!moves_data(keep_op) || keep_op->offset >= 0); /* it would mean "where it stands" */
    keep_op->submitted = false;
    keep_op->cancelled = false;
    list_add_tail(&queue->unsubmitted, &keep_op->node);
    if (moves_data(keep_op)) sanitize_lend(keep_op->data, keep_op->bytes);
    return 0;
}

bool uring_queue_withdraw(struct kernel_queue *queue, struct kernel_file_op *op)
{
    (void)queue;
    if (op->submitted) return false;
    list_remove(&op->node);
    if (moves_data(op)) sanitize_return(op->data, op->bytes);
    return true;
}

void uring_file_flush(struct kernel_queue *queue)
{
    while (!list_empty(&queue->unsubmitted) && uring_room(queue, 1)) {
        struct list *node = list_pop(&queue->unsubmitted);
        struct kernel_file_op *op = container_of(node, struct kernel_file_op, node);
        struct io_uring_sqe *submission = io_uring_get_sqe(&queue->ring);

        assert(node);       /* the list is not empty */
        assert(submission); /* there was room */
        if (queue->threads_missing) {
            io_uring_prep_nop(submission);
        } else {
            rows[op->kind].prepare(submission, op);
        }
        submission->user_data = (uint64_t)(uintptr_t)op | DATA_OP;
        op->submitted = true;
        list_add_tail(&queue->running, node);
    }
}

static struct timespec timespec_of(struct statx_timestamp time)
{
    return (struct timespec){.tv_sec = time.tv_sec, .tv_nsec = time.tv_nsec};
}

static void take_status(struct kernel_file_op *op)
{
    const struct statx *from = (const struct statx *)(const void *)op->status;

    op->stat = (struct stat){
        .st_dev = makedev(from->stx_dev_major, from->stx_dev_minor),
        .st_ino = from->stx_ino,
        .st_nlink = from->stx_nlink,
        .st_mode = from->stx_mode,
        .st_uid = from->stx_uid,
        .st_gid = from->stx_gid,
        .st_rdev = makedev(from->stx_rdev_major, from->stx_rdev_minor),
        .st_size = (off_t)from->stx_size,
        .st_blksize = (blksize_t)from->stx_blksize,
        .st_blocks = (blkcnt_t)from->stx_blocks,
        .st_atim = timespec_of(from->stx_atime),
        .st_mtim = timespec_of(from->stx_mtime),
        .st_ctim = timespec_of(from->stx_ctime),
    };
}

/* What a system call would turn into -EINTR, or begin again, on its way out: some calls
 * give it to the ring as it is. No header for programs names these. */
static bool is_restart(ssize_t result)
{
    enum { RESTART_SYS = 512, RESTART_NO_INTR, RESTART_NO_HANDLER, RESTART_BLOCK = 516 };

    return result == -RESTART_SYS || result == -RESTART_NO_INTR || result == -RESTART_NO_HANDLER ||
           result == -RESTART_BLOCK;
}

void uring_file_done(struct kernel_queue *queue, struct kernel_file_op *op)
{
    if (is_restart(op->result)) op->result = -EINTR;
    /* A thread of the kernel was made to look at something else. */
    if (op->result == -EINTR && !op->cancelled) {
        op->submitted = false;
        list_add_tail(&queue->unsubmitted, &op->node);
        return;
    }
    if (queue->threads_missing) op->result = -ECANCELED;
    if (op->result == -ECANCELED && !op->cancelled) op->result = -ENOSYS;
    if (moves_data(op)) sanitize_return(op->data, op->bytes);
    if (op->kind == KERNEL_FILE_OPEN && op->result >= 0) {
        op->positioned =
            !(op->flags & O_NONBLOCK) && lseek((int)op->result, 0, SEEK_CUR) != (off_t)-1;
    }
    if (op->result == 0 && (op->kind == KERNEL_FILE_STAT || op->kind == KERNEL_PATH_STAT)) {
        take_status(op);
    }
    op->done(op);
}

void uring_queue_cancel_all(struct kernel_queue *queue)
{
    uring_file_flush(queue);
    list_for_each(node, &queue->running) {
        struct kernel_file_op *op = container_of(node, struct kernel_file_op, node);
        struct io_uring_sqe *submission;

        if (!uring_room(queue, 1)) break;
        submission = io_uring_get_sqe(&queue->ring);
        io_uring_prep_cancel64(submission, (uint64_t)(uintptr_t)op | DATA_OP, 0);
        submission->user_data = DATA_NOTHING;
        op->cancelled = true;
    }
}
