/* volume.h - a file system in memory that can lose power.
 *
 * The heart of a simulated disk (disk.c): names, content, and what of both would be left after a
 * power cut. It knows nothing of runs, hosts, descriptors and time.
 *
 * What is durable is the least that POSIX promises, so that a program that survives here
 * survives on any file system:
 * - Content becomes durable when its file is synced. Before that each sector of 512 bytes is kept
 *   or lost on its own (a large write is torn), and what is kept may be an earlier content that
 *   the sector had since the last sync. A sector that is lost has what was synced, or zeroes.
 * - The size becomes durable with the same sync, also if that is for data only: without it the
 *   data could not be found. Before that it may be any that the file had.
 * - A name becomes durable when its directory is synced; that the file was synced is not enough.
 *   Of the changes of a directory since then a crash keeps the first few, or none, or all. A
 *   rename is one change, also across directories: the file is never nowhere.
 * - A sync that fails saves nothing, and what it did not save counts as saved: later syncs
 *   succeed without it. Reads still find it, until a crash.
 *
 * Invariants: nothing waits. bytes_used counts the sectors of all files that have a name or are
 * open. Names become durable without a sync in three cases: that of a directory, when something
 * moves into it from another one (it would be lost with it); all that there are, when a directory
 * moves into another one (directories could form a ring); and the oldest changes of a
 * directory after VOLUME_CHANGES_MAX further ones, as they do with time.
 * Threads: one at a time.
 */
#ifndef WEIR_SIM_VOLUME_H
#define WEIR_SIM_VOLUME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/list.h"

enum {
    VOLUME_SECTOR_BYTES = 512,
    VOLUME_CHANGES_MAX = 64, /* unsaved ones of a directory */
    VOLUME_RANGES_MAX = 64,  /* choices about the content of one file at a crash */
    VOLUME_BETWEEN_MAX = 2,  /* contents of a sector between the synced one and the last */
    VOLUME_SIZES_MAX = 4,    /* unsaved sizes of a file */
};

/* What it needs: memory (zeroed; NULL: there is none), and who decides at a crash: one of
 * 0 ... n - 1, where 0 loses. */
struct volume_means {
    void *arg;
    void *(*alloc)(void *arg, size_t bytes);
    void (*free)(void *arg, void *memory);
    unsigned (*choose)(void *arg, unsigned n, const char *about);
};

/* ---- Content: volume_data.c ---- */

struct volume_sector {
    uint64_t index; /* in its file */
    /* How many contents were not saved: `now` and the ones in between. 0: `now` is saved. */
    unsigned unsaved_count;
    unsigned cut_bytes;   /* how much of its end was truncated since `saved` */
    bool is_hole;         /* all of it, and it is only here for `saved` */
    bool is_abandoned;    /* by a sync that failed: later ones leave it alone */
    unsigned char *saved; /* if unsaved_count > 0; NULL: zeroes */
    unsigned char *between[VOLUME_BETWEEN_MAX]; /* newest first */
    unsigned char now[VOLUME_SECTOR_BYTES];
};

/* A size that was not saved. */
struct volume_size {
    uint64_t bytes;
    uint64_t bytes_min; /* the least that it was truncated to by then; UINT64_MAX: never */
};

struct volume_content {
    uint64_t bytes;
    uint64_t saved_bytes;
    struct volume_size sizes[VOLUME_SIZES_MAX]; /* oldest first; the last is `bytes` */
    unsigned size_count;
    bool size_is_abandoned;
    struct volume_sector **sectors; /* by index */
    size_t sector_count;
    size_t sector_room;
    uint64_t bytes_used; /* by sectors that are no holes */
};

/* ---- Names: volume_tree.c ---- */

struct volume_node;

struct volume_entry {
    struct list node; /* in its directory; in none while it is only in a change */
    struct volume_node *target;
    char name[]; /* terminated */
};

/* What happened to a directory in one step. Undone: `added` goes, `removed` come back. */
struct volume_change {
    struct list node; /* in its directory's changes */
    struct volume_node *directory;
    uint64_t number;            /* from 1, over all directories; of both halves of a rename */
    struct volume_change *twin; /* the other directory's half of a rename */
    struct volume_entry *added;
    struct volume_entry *removed[2];
    bool is_kept; /* at a crash */
};

struct volume_directory {
    struct volume_node *parent;
    struct list entries;
    struct list changes; /* since it was synced, oldest first */
    unsigned change_count;
    unsigned abandoned_count; /* of them, by a sync that failed */
};

/* ---- Both ---- */

struct volume_open;

struct volume_node {
    struct list node; /* in the volume's nodes, by number */
    struct volume_node *dead_next;
    uint64_t number;
    mode_t mode;    /* S_IFREG, S_IFDIR, S_IFSOCK; and permissions, which nobody looks at */
    unsigned refs;  /* entries, also those in changes, and open files */
    unsigned links; /* entries that are in a directory */
    unsigned opens;
    bool is_counted; /* in the volume's bytes_used */
    unsigned errors; /* syncs that failed: each open file is told once */
    int64_t changed_ns;
    const struct volume_open *locked_by;
    union {
        struct volume_content content;
        struct volume_directory directory;
    };
};

struct volume {
    struct volume_means means;
    uint64_t bytes_max;
    uint64_t bytes_used;
    uint64_t number_last;
    uint64_t change_last;
    unsigned open_count;
    int64_t now_ns; /* of changes: whoever calls keeps it true */
    struct list nodes;
    struct volume_node *dead; /* nobody refers to them; still among the nodes */
    struct volume_node root;
};

/* An open file: in the caller's storage, which does not move. */
struct volume_open {
    struct volume *volume;
    struct volume_node *node; /* NULL: closed */
    int flags;
    uint64_t position;
    unsigned errors_told;
};

/* Allocates nothing. */
void volume_init(struct volume *volume, const struct volume_means *means, uint64_t bytes_max);
/* No file is open any more. */
void volume_deinit(struct volume *volume);

/* As the system calls of these names. Paths start at the root, whether with a slash or not. */
int volume_open(struct volume *volume, const char *path, int flags, mode_t mode,
                struct volume_open *ret_open);
void volume_close(struct volume_open *open);
/* At an offset, or at the position with VOLUME_AT_POSITION, which moves. */
#define VOLUME_AT_POSITION INT64_C(-1)
ssize_t volume_read(struct volume_open *open, void *data, size_t bytes, int64_t offset);
/* Writes less than asked for when there is room for less; then -ENOSPC. */
ssize_t volume_write(struct volume_open *open, const void *data, size_t bytes, int64_t offset);
/* `fail`: it saves nothing; -EIO. */
int volume_sync(struct volume_open *open, bool fail);
int volume_truncate(struct volume_open *open, int64_t bytes);
int volume_lock(struct volume_open *open, bool lock); /* -EAGAIN: somebody else has it */
void volume_stat_node(const struct volume_node *node, struct stat *ret_stat);

int volume_stat(struct volume *volume, const char *path, struct stat *ret_stat);
int volume_rename(struct volume *volume, const char *from, const char *to);
int volume_unlink(struct volume *volume, const char *path);
int volume_mkdir(struct volume *volume, const char *path, mode_t mode);
int volume_list(struct volume *volume, const char *path, int (*entry)(void *arg, const char *name),
                void *arg);

/* The file of a unix socket: make one, or find it. Its number; -EADDRINUSE: the name is taken;
 * -ECONNREFUSED: it is something else. */
int64_t volume_make_socket(struct volume *volume, const char *path);
int64_t volume_find_socket(struct volume *volume, const char *path);

/* The power is cut. Files that are open stay so, but nobody should write to them. */
void volume_crash(struct volume *volume);

/* ---- Between the files of the volume ---- */

void *volume_alloc(struct volume *volume, size_t bytes);
void volume_free(struct volume *volume, void *memory);
void node_unref(struct volume *volume, struct volume_node *node);
/* Free the dead: at the end of each call that may have made some. */
void volume_reap(struct volume *volume);
/* After links, opens or the content's use have changed. */
void node_count_use(struct volume *volume, struct volume_node *node);

int content_write(struct volume *volume, struct volume_node *node, const unsigned char *data,
                  size_t bytes, uint64_t offset, size_t *ret_written);
void content_read(const struct volume_content *content, unsigned char *data, size_t bytes,
                  uint64_t offset);
int content_truncate(struct volume *volume, struct volume_node *node, uint64_t bytes);
void content_save(struct volume *volume, struct volume_node *node);
void content_abandon(struct volume_content *content);
void content_crash(struct volume *volume, struct volume_node *node);
void content_drop(struct volume *volume, struct volume_content *content);

/* Open `path`'s node, or make it (O_CREAT). */
int tree_open(struct volume *volume, const char *path, int flags, mode_t mode,
              struct volume_node **ret_node);
void directory_init(struct volume_node *node, struct volume_node *parent);
void directory_save(struct volume *volume, struct volume_node *node);
void directory_abandon(struct volume_directory *directory);
void directory_drop(struct volume *volume, struct volume_directory *directory);
void tree_crash(struct volume *volume);

#endif
