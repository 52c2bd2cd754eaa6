/* log_copy.c - a copy of a log that is in use. In the calling task, with the calls of files that
 * any task makes: it can be cancelled between any two of them. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <weir/error.h>
#include <weir/file.h>

#include "rt/mem.h"
#include "store/log_live.h"

enum {
    CHUNK_BYTES = 256 * 1024,
    FILE_MODE = 0600,
    FOLDER_MODE = 0755,
    ENTRIES_MAX = 1 << 20,
    CLEAN_UP_MS = 10000,
};

struct copying {
    struct log *log;
    char folder[LOG_PATH_BYTES]; /* .partial */
    unsigned char *chunk;
    struct log_segment **segments; /* shares of them */
    size_t segment_count;
    uint64_t end; /* the position that the copy ends with */
};

static int write_all(weir_file *file, const unsigned char *data, size_t bytes, uint64_t offset)
{
    while (bytes > 0) {
        ssize_t n = weir_file_write(file, data, bytes, (int64_t)offset);

        if (n < 0) return (int)n;
        if (n == 0) return -EIO;
        data += n;
        bytes -= (size_t)n;
        offset += (size_t)n;
    }
    return 0;
}

static int open_new(const struct copying *copying, const char *name, weir_file **ret_file)
{
    char path[LOG_PATH_BYTES + LOG_NAME_BYTES + 1];

    (void)snprintf(path, sizeof path, "%s/%s", copying->folder, name);
    return weir_file_open(path, O_WRONLY | O_CREAT | O_TRUNC, FILE_MODE, ret_file);
}

static int sync_and_close(weir_file *take_file, int r)
{
    int closed;

    if (r == 0) r = weir_file_sync(take_file, false);
    closed = weir_file_close(take_file);
    return r < 0 ? r : closed;
}

static int sync_folder(const char *path)
{
    weir_file *folder;
    int r = weir_file_open(path, O_RDONLY | O_DIRECTORY, 0, &folder);

    return r < 0 ? r : sync_and_close(folder, 0);
}

/* A segment up to the copy's end; what comes after that in its file is 0. */
static int copy_segment(struct copying *copying, struct log_segment *segment, uint64_t used)
{
    uint64_t segment_bytes = copying->log->capacity + LOG_HEADER_BYTES;
    char name[LOG_NAME_BYTES];
    weir_file *file;
    int r;

    log_name(name, segment->sequence, LOG_SEGMENT);
    r = open_new(copying, name, &file);
    if (r < 0) return r;
    for (uint64_t offset = 0; r == 0 && offset < segment_bytes; offset += CHUNK_BYTES) {
        uint64_t left = segment_bytes - offset;
        size_t bytes = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;
        size_t data = offset >= used ? 0 : used - offset < bytes ? (size_t)(used - offset) : bytes;

        memset(copying->chunk + data, 0, bytes - data);
        if (data > 0) r = log_segment_read(copying->log, segment, copying->chunk, data, offset);
        if (r == 0) r = write_all(file, copying->chunk, bytes, offset);
    }
    return sync_and_close(file, r);
}

static int copy_meta(struct copying *copying)
{
    unsigned char data[LOG_META_BYTES] = {0};
    struct log_meta meta = {
        .id = copying->log->meta.id,
        .generation = LOG_META_SLOTS, /* the first slot */
        .sequence = copying->segments[0]->sequence,
        .sequence_last = copying->segments[copying->segment_count - 1]->sequence,
        .segment_bytes = copying->log->meta.segment_bytes,
    };
    weir_file *file;
    int r = open_new(copying, "META", &file);

    if (r < 0) return r;
    log_meta_encode(&meta, data);
    return sync_and_close(file, write_all(file, data, sizeof data, 0));
}

static int remove_files(const struct copying *copying)
{
    weir_listing *listing;
    int r = weir_path_list(copying->folder, ENTRIES_MAX, &listing);

    if (r < 0) return r;
    for (size_t i = 0; r == 0 && i < weir_listing_count(listing); i++) {
        char path[LOG_PATH_BYTES + 256 + 1];

        (void)snprintf(path, sizeof path, "%s/%s", copying->folder, weir_listing_name(listing, i));
        r = weir_path_unlink(path);
    }
    weir_listing_free(listing);
    return r;
}

/* An empty folder, also if an earlier copy was cut short. */
static int make_folder(const struct copying *copying)
{
    int r = weir_path_mkdir(copying->folder, FOLDER_MODE);

    return r == -EEXIST ? remove_files(copying) : r;
}

/* What could not be finished would take the space that may have been short. What cannot be removed
 * either is removed by the next copy. */
static void clean_up(const struct copying *copying)
{
    WEIR_SHIELD(CLEAN_UP_MS) (void)remove_files(copying);
}

static int copy_all(struct copying *copying, const char *folder)
{
    char parent[LOG_PATH_BYTES];
    char *slash;
    int r = make_folder(copying);

    for (size_t i = 0; r == 0 && i < copying->segment_count; i++) {
        struct log_segment *segment = copying->segments[i];
        bool last = i + 1 == copying->segment_count;
        uint64_t end = last ? copying->end : copying->segments[i + 1]->position;

        r = copy_segment(copying, segment, LOG_HEADER_BYTES + (end - segment->position));
    }
    if (r == 0) r = copy_meta(copying);
    if (r == 0) r = sync_folder(copying->folder);
    if (r == 0) r = weir_path_rename(copying->folder, folder);
    if (r < 0) return r;
    (void)snprintf(parent, sizeof parent, "%s", folder);
    slash = strrchr(parent, '/');
    if (!slash) return sync_folder(".");
    slash[slash == parent ? 1 : 0] = '\0';
    return sync_folder(parent);
}

/* Shares of the segments that the copy is made of; under the lock. */
static int take_segments(struct copying *copying)
{
    struct log *log = copying->log;
    size_t count = 0;

    while (count < log->segment_count && log->segments[count]->position < copying->end) count++;
    if (count == 0) count = 1; /* a log without records has its first segment */
    copying->segments = mem_alloc(count * sizeof(*copying->segments));
    if (!copying->segments) return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        copying->segments[i] = log->segments[i];
        (void)atom_add(&log->segments[i]->shares, 1);
    }
    copying->segment_count = count;
    return 0;
}

static int check_target(const char *folder)
{
    struct stat found;
    int r;

    if (strlen(folder) + sizeof ".partial" > LOG_PATH_BYTES) return -ENAMETOOLONG;
    r = weir_path_stat(folder, &found);
    if (r == -ENOENT) return 0;
    return r < 0 ? r : refuse_as(-EEXIST, "log_copy: '%s' is there already", folder);
}

int log_copy(struct log *log, const char *folder)
{
    struct copying copying = {.log = log};
    struct log_told told = {0};
    int r = check_target(folder);

    if (r < 0) return r;
    (void)snprintf(copying.folder, sizeof copying.folder, "%s.partial", folder);
    copying.chunk = mem_alloc(CHUNK_BYTES);
    if (!copying.chunk) return -ENOMEM;
    lock_acquire(&log->lock);
    log->pins++;
    copying.end = log->end;
    log_told_all(&told, &log->held, 0); /* nothing is let go until it is made */
    lock_release(&log->lock);
    log_told_post(&told);
    r = log_wait(log, copying.end, LOG_SYNCED);
    if (r == 0) {
        lock_acquire(&log->lock);
        r = take_segments(&copying);
        lock_release(&log->lock);
    }
    if (r == 0) {
        r = copy_all(&copying, folder);
        if (r < 0) clean_up(&copying);
    }
    for (size_t i = 0; i < copying.segment_count; i++)
        log_segment_give_back(log->kernel, copying.segments[i]);
    mem_free(copying.segments);
    mem_free(copying.chunk);
    lock_acquire(&log->lock);
    log->pins--;
    bell_ring(&log->keep);
    lock_release(&log->lock);
    return r;
}
