/* log_files.h - the folder of a store: names, the lock, META, segments and spares as files.
 *
 * All calls block: they are for threads of the log's own and for programs without a runtime. They
 * reach the system by the table of rt/kernel.h only, so every call can fail in a test, and a
 * simulated disk can lose power.
 *
 * Invariants: a name ending in .log has had a synced header of its own sequence before it got the
 * name. A name ending in .spare was written in full, and synced, before it got the name. Neither is
 * ever shorter or longer than the store's segments.
 * Errors: negative, with a sentence in `why` that names the file.
 * Threads: one at a time for one folder, but for log_file_read.
 */
#ifndef WEIR_STORE_LOG_FILES_H
#define WEIR_STORE_LOG_FILES_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/atomic.h"
#include "rt/kernel.h"
#include "store/log_format.h"

enum {
    LOG_PATH_BYTES = 1024,
    LOG_NAME_BYTES = 32,
    LOG_WHY_BYTES = 400,
    LOG_ZERO_BYTES = 256 * 1024, /* a write of zeroes */
};

/* Why something failed, in a sentence. */
struct log_why {
    char text[LOG_WHY_BYTES];
};

/* Returns `error`. `why` may be NULL. */
int log_fail(struct log_why *why, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

struct log_folder {
    const struct kernel *kernel;
    char path[LOG_PATH_BYTES];
    int fd;      /* of the folder itself, for syncs; -1: not open */
    int lock_fd; /* -1: not locked */
    int meta_fd; /* of META, for writing, once it was wanted (log_folder_keep_meta); else -1 */
};

/* ---- Files ---- */

/* All of it, over short transfers and interruptions: 0, or an error; a read returns how much there
 * was. */
ssize_t log_file_read(const struct kernel *kernel, int fd, void *data, size_t bytes,
                      uint64_t offset);
int log_file_write(const struct kernel *kernel, int fd, const void *data, size_t bytes,
                   uint64_t offset);
int log_file_sync(const struct kernel *kernel, int fd);

/* ---- The folder ---- */

/* `create`: make it if it is not there. -ENOENT: it is not. */
int log_folder_open(struct log_folder *folder, const struct kernel *kernel, const char *path,
                    bool create, struct log_why *why);
void log_folder_close(struct log_folder *folder);
/* -EBUSY: somebody has it, and `why` says who. */
int log_folder_lock(struct log_folder *folder, struct log_why *why);
int log_folder_sync(const struct log_folder *folder, struct log_why *why);
/* The folder's own name, in the folder that it is in. */
int log_folder_sync_name(const struct log_folder *folder, struct log_why *why);
/* Open a file of the folder; its descriptor. */
int log_folder_file(const struct log_folder *folder, const char *name, int flags,
                    struct log_why *why);
int log_folder_rename(const struct log_folder *folder, const char *from, const char *to,
                      struct log_why *why);
int log_folder_unlink(const struct log_folder *folder, const char *name, struct log_why *why);
/* 0, with its size; -ENOENT. */
int log_folder_size(const struct log_folder *folder, const char *name, uint64_t *ret_bytes,
                    struct log_why *why);

/* ---- Names ---- */

enum log_suffix { LOG_SEGMENT, LOG_SPARE, LOG_NEW, LOG_SUFFIXES };

void log_name(char name[LOG_NAME_BYTES], uint64_t number, enum log_suffix suffix);

/* What is in the folder: numbers by suffix, in rising order. */
struct log_listing {
    uint64_t *numbers[LOG_SUFFIXES];
    size_t count[LOG_SUFFIXES];
    size_t room[LOG_SUFFIXES];
    bool has_meta;
    bool has_meta_new;
    int error;
};

int log_listing_fill(struct log_listing *ret_listing, const struct log_folder *folder,
                     struct log_why *why);
void log_listing_free(struct log_listing *listing);

/* ---- META ---- */

/* -ENOENT: there is none. -EBADMSG: no slot is valid. -ENOTSUP: a newer version. */
int log_meta_read(const struct log_folder *folder, struct log_meta *ret_meta, struct log_why *why);
/* A new one, under its name when it is on disk (but the folder is not synced). */
int log_meta_create(const struct log_folder *folder, const struct log_meta *meta,
                    struct log_why *why);
/* Keep META open: writing it then needs no descriptor, whatever else is open. */
int log_folder_keep_meta(struct log_folder *folder, struct log_why *why);
/* Into the slot of its generation; synced. */
int log_meta_write(const struct log_folder *folder, const struct log_meta *meta,
                   struct log_why *why);

/* ---- Segments and spares ---- */

/* Write zeroes over [from, to). */
int log_file_zero(const struct kernel *kernel, int fd, uint64_t from, uint64_t to);

/* A spare. It is kept open: so what makes it a segment needs no descriptor of its own. */
struct log_spare {
    uint64_t number;
    int fd;
};

/* A spare: written with zeroes, synced, named; its descriptor. `stop` (may be NULL): give up when
 * it is true, with -EINTR. What is left of one that failed is removed. */
int log_spare_make(const struct log_folder *folder, uint64_t number, uint64_t segment_bytes,
                   const ATOM(bool) * stop, struct log_why *why);

/* Turn a spare into a segment, with the same descriptor: its header is written and synced, then it
 * is renamed, then the folder synced. */
int log_segment_make(const struct log_folder *folder, const struct log_spare *spare,
                     const struct log_header *header, struct log_why *why);

#endif
