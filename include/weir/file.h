/* file.h - files, through the bounded file executor.
 *
 * File calls block in the kernel, so they run on a small set of threads with a
 * bounded queue; when it is full they are rejected with WEIR_EOVERLOAD. On io_uring
 * the kernel itself takes the part of the threads for most calls; the results, the
 * bound (threads + queue) and everything below are the same. The data
 * in flight is the runtime's own memory: when a caller is cancelled while its
 * call is running, the caller goes on at once and the call becomes an orphan,
 * which the dump shows and shutdown reports. A call that was still queued is
 * removed and never happens.
 *
 * Cancel: reads and stat: nothing moved. Writes, syncs, renames, opens: outcome
 * unknown, if the call was running (an orphaned open closes its descriptor).
 * Errors of every call: the kernel's, WEIR_EOVERLOAD (the queue is full), WEIR_ECANCELED,
 * WEIR_ETIMEDOUT, WEIR_ENODEADLINE, WEIR_EREFUSED (weir_why), -ENOMEM.
 * Threads: any task of the runtime; close also outside a task, on its workers. Every
 * call but close is refused without a deadline in force. A call on a file that is closed,
 * or another runtime's, aborts with a sentence.
 */
#ifndef WEIR_FILE_H
#define WEIR_FILE_H

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <weir/defs.h>
#include <weir/error.h>

WEIR_BEGIN

#define WEIR_FILE_IO_BYTES_MAX (1024 * 1024)

typedef struct weir_file weir_file;

/* weir_file_open - `flags` and `mode` as open(2); O_CLOEXEC is added.
 * Errors: the kernel's (-ENOENT, -EMFILE), WEIR_EOVERLOAD. */
WEIR_SUSPENDS int weir_file_open(const char *path, int flags, mode_t mode, weir_file **ret_file);

/* weir_file_close - closes in the executor, so that a slow close does not hold the
 * worker (but on the worker itself, if no thread of the executor is free at once).
 * Takes NULL. Needs no deadline, and the descriptor is always closed, also by a task
 * that is cancelled. Returns close's error (-EIO, -ENOSPC), which is the last word
 * about written data, or -EINPROGRESS if a call on the file is still running (an
 * orphan): then the descriptor is closed when that has ended.
 * Cancel: a cancel or deadline that comes while the close is running is returned, and
 * the close goes on as an orphan that owns the descriptor; its outcome is unknown. */
WEIR_SUSPENDS int weir_file_close(weir_file *take_file);

/* weir_file_read - up to `bytes` (at most WEIR_FILE_IO_BYTES_MAX a call) at
 * `offset`; 0 at the end. weir_file_write - likewise; short writes are possible
 * and returned. */
WEIR_SUSPENDS ssize_t weir_file_read(weir_file *file, void *data, size_t bytes, int64_t offset);
WEIR_SUSPENDS ssize_t weir_file_write(weir_file *file, const void *data, size_t bytes,
                                      int64_t offset);

/* weir_file_sync - fsync, or fdatasync if `data_only`. */
WEIR_SUSPENDS int weir_file_sync(weir_file *file, bool data_only);

/* weir_file_stat / weir_path_stat - as fstat(2), stat(2). */
WEIR_SUSPENDS int weir_file_stat(weir_file *file, struct stat *ret_stat);
WEIR_SUSPENDS int weir_path_stat(const char *path, struct stat *ret_stat);

/* weir_path_rename, weir_path_unlink, weir_path_mkdir - as rename(2), unlink(2), mkdir(2). */
WEIR_SUSPENDS int weir_path_rename(const char *from, const char *to);
WEIR_SUSPENDS int weir_path_unlink(const char *path);
WEIR_SUSPENDS int weir_path_mkdir(const char *path, mode_t mode);

/* A directory listing: entries sorted by name, without "." and "..". */
typedef struct weir_listing weir_listing;

/* weir_path_list - list a directory, at most `entries_max` entries (must be said):
 * more is -EOVERFLOW. Free the listing with weir_listing_free. Cancel: nothing moved. */
WEIR_SUSPENDS int weir_path_list(const char *path, size_t entries_max, weir_listing **ret_listing);

/* weir_listing_count / weir_listing_name - what was found; NULL beyond the end. */
WEIR_API size_t weir_listing_count(const weir_listing *listing);
WEIR_API const char *weir_listing_name(const weir_listing *listing, size_t index);
/* weir_listing_free - takes NULL. */
WEIR_API void weir_listing_free(weir_listing *listing);

WEIR_END

#endif
