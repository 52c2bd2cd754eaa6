/* volume.c - the life of a volume and its open files. */
#include "sim/volume.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* ---- Memory ---- */

void *volume_alloc(struct volume *volume, size_t bytes)
{
    return volume->means.alloc(volume->means.arg, bytes);
}

void volume_free(struct volume *volume, void *memory)
{
    if (memory) volume->means.free(volume->means.arg, memory);
}

/* ---- Life ---- */

void volume_init(struct volume *volume, const struct volume_means *means, uint64_t bytes_max)
{
    memset(volume, 0, sizeof *volume);
    volume->means = *means;
    volume->bytes_max = bytes_max;
    list_init(&volume->nodes);
    volume->root.number = ++volume->number_last;
    volume->root.mode = S_IFDIR | 0755;
    volume->root.refs = 1;
    volume->root.links = 1;
    directory_init(&volume->root, &volume->root);
    list_add_tail(&volume->nodes, &volume->root.node);
}

void volume_deinit(struct volume *volume)
{
    assert(volume->open_count == 0);
    directory_drop(volume, &volume->root.directory);
    volume_reap(volume);
    list_remove(&volume->root.node);
    assert(list_empty(&volume->nodes));
}

/* Not freed here: the caller may be about to go on from it, and a tree is deeper than a stack. */
void node_unref(struct volume *volume, struct volume_node *node)
{
    assert(node->refs > 0);
    node->refs--;
    if (node->refs > 0) return;
    node->dead_next = volume->dead;
    volume->dead = node;
}

void volume_reap(struct volume *volume)
{
    struct volume_node *node;

    while ((node = volume->dead) != NULL) {
        volume->dead = node->dead_next;
        list_remove(&node->node);
        if (S_ISDIR(node->mode))
            directory_drop(volume, &node->directory);
        else
            content_drop(volume, &node->content);
        volume_free(volume, node);
    }
}

void node_count_use(struct volume *volume, struct volume_node *node)
{
    bool is_used = node->links > 0 || node->opens > 0;

    if (S_ISDIR(node->mode) || is_used == node->is_counted) return;
    node->is_counted = is_used;
    if (is_used)
        volume->bytes_used += node->content.bytes_used;
    else
        volume->bytes_used -= node->content.bytes_used;
}

void volume_crash(struct volume *volume)
{
    tree_crash(volume);
    list_for_each(at, &volume->nodes) {
        struct volume_node *node = container_of(at, struct volume_node, node);
        if (!S_ISDIR(node->mode) && node->links > 0) content_crash(volume, node);
    }
}

/* ---- Open files ---- */

static bool may_read(const struct volume_open *open)
{
    return (open->flags & O_PATH) == 0 && (open->flags & O_ACCMODE) != O_WRONLY;
}

static bool may_write(const struct volume_open *open)
{
    return (open->flags & O_PATH) == 0 && (open->flags & O_ACCMODE) != O_RDONLY;
}

int volume_open(struct volume *volume, const char *path, int flags, mode_t mode,
                struct volume_open *ret_open)
{
    struct volume_node *node;
    int r = tree_open(volume, path, flags, mode, &node);

    if (r < 0) return r;
    if ((flags & O_TRUNC) != 0 && (flags & O_PATH) == 0) {
        r = content_truncate(volume, node, 0);
        if (r < 0) return r;
    }
    node->refs++;
    node->opens++;
    volume->open_count++;
    node_count_use(volume, node);
    *ret_open = (struct volume_open){
        .volume = volume, .node = node, .flags = flags, .errors_told = node->errors};
    return 0;
}

void volume_close(struct volume_open *open)
{
    struct volume_node *node = open->node;
    struct volume *volume = open->volume;

    if (!node) return;
    if (node->locked_by == open) node->locked_by = NULL;
    open->node = NULL;
    node->opens--;
    volume->open_count--;
    node_count_use(volume, node);
    node_unref(volume, node);
    volume_reap(volume);
}

ssize_t volume_read(struct volume_open *open, void *data, size_t bytes, int64_t offset)
{
    const struct volume_node *node = open->node;
    bool moves = offset == VOLUME_AT_POSITION;
    uint64_t at = moves ? open->position : (uint64_t)offset;
    uint64_t left;

    if (!may_read(open)) return -EBADF;
    if (S_ISDIR(node->mode)) return -EISDIR;
    if (at > INT64_MAX) return -EINVAL;
    left = at < node->content.bytes ? node->content.bytes - at : 0;
    if (bytes > left) bytes = (size_t)left;
    content_read(&node->content, data, bytes, at);
    if (moves) open->position += bytes;
    return (ssize_t)bytes;
}

ssize_t volume_write(struct volume_open *open, const void *data, size_t bytes, int64_t offset)
{
    struct volume_node *node = open->node;
    bool moves = offset == VOLUME_AT_POSITION;
    uint64_t at = moves ? open->position : (uint64_t)offset;
    size_t written = 0;
    int r;

    if (!may_write(open)) return -EBADF;
    if (at > INT64_MAX) return -EINVAL;
    /* Linux also does that for writes that say where. */
    if ((open->flags & O_APPEND) != 0) at = node->content.bytes;
    if (bytes > INT64_MAX - at) return -EFBIG;
    if (bytes == 0) return 0;
    r = content_write(open->volume, node, data, bytes, at, &written);
    if (written == 0) return r;
    node->changed_ns = open->volume->now_ns;
    if (moves) open->position = at + written;
    return (ssize_t)written;
}

/* An error is told once by each file that was open when it happened, and saving goes on. */
int volume_sync(struct volume_open *open, bool fail)
{
    struct volume_node *node = open->node;
    struct volume *volume = open->volume;

    if ((open->flags & O_PATH) != 0) return -EBADF;
    if (fail) {
        node->errors++;
        if (S_ISDIR(node->mode))
            directory_abandon(&node->directory);
        else
            content_abandon(&node->content);
    } else if (S_ISDIR(node->mode)) {
        directory_save(volume, node);
        volume_reap(volume);
    } else {
        content_save(volume, node);
    }
    if (open->errors_told == node->errors) return 0;
    open->errors_told = node->errors;
    return -EIO;
}

int volume_truncate(struct volume_open *open, int64_t bytes)
{
    if (!may_write(open) || bytes < 0) return -EINVAL;
    return content_truncate(open->volume, open->node, (uint64_t)bytes);
}

int volume_lock(struct volume_open *open, bool lock)
{
    struct volume_node *node = open->node;

    if ((open->flags & O_PATH) != 0) return -EBADF;
    if (lock) {
        if (node->locked_by && node->locked_by != open) return -EAGAIN;
        node->locked_by = open;
    } else if (node->locked_by == open) {
        node->locked_by = NULL;
    }
    return 0;
}

void volume_stat_node(const struct volume_node *node, struct stat *ret_stat)
{
    bool is_directory = S_ISDIR(node->mode);
    struct timespec changed = {.tv_sec = (time_t)(node->changed_ns / 1000000000),
                               .tv_nsec = (long)(node->changed_ns % 1000000000)};

    memset(ret_stat, 0, sizeof *ret_stat);
    ret_stat->st_ino = node->number;
    ret_stat->st_mode = node->mode;
    ret_stat->st_nlink = node->links;
    ret_stat->st_size = is_directory ? 0 : (off_t)node->content.bytes;
    ret_stat->st_blksize = 4096;
    ret_stat->st_blocks =
        is_directory ? 0 : (blkcnt_t)(node->content.bytes_used / VOLUME_SECTOR_BYTES);
    ret_stat->st_atim = changed;
    ret_stat->st_mtim = changed;
    ret_stat->st_ctim = changed;
}
