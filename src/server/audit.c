/* audit.c - the ring of entries, and the task that writes them into the file. */
#include "server/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "rt/lock.h"
#include "rt/mem.h"
#include "rt/runtime.h"
#include "server/memory.h"

enum {
    WRITE_MS = 10000,       /* a file that takes longer counts as failed */
    PIECE_BYTES = 64 << 10, /* that are written at once */
    ENTRY_BYTES = 2048,     /* of one as JSON, at most */
};

struct audit {
    struct lock lock;
    struct audit_entry ring[AUDIT_KEPT]; /* entry n at n % AUDIT_KEPT */
    uint64_t last;                       /* its number; 0: none */
    uint64_t written, lost;
    bool closing;

    weir_task task;
    weir_event *news; /* NULL: there is no file */
    weir_file *file;  /* the task's, as the rest */
    int64_t file_bytes;
    uint64_t next; /* to be written */
    bool failed;   /* the last time: said once */
    char path[4096];
};

/* ---- In memory ---- */

void audit_note(struct audit *audit, const struct audit_entry *entry)
{
    struct audit_entry *row;

    lock_acquire(&audit->lock);
    row = &audit->ring[++audit->last % AUDIT_KEPT];
    *row = *entry;
    row->number = audit->last;
    lock_release(&audit->lock);
    if (audit->news) weir_event_set(audit->news);
}

/* The lowest number that is still there. */
static uint64_t first_kept(const struct audit *audit)
{
    return audit->last > AUDIT_KEPT ? audit->last - AUDIT_KEPT + 1 : 1;
}

size_t audit_read(struct audit *audit, uint64_t before, struct audit_entry *ret_entries, size_t max)
{
    size_t count = 0;
    uint64_t number;

    lock_acquire(&audit->lock);
    number = before == 0 || before > audit->last ? audit->last : before - 1;
    for (; number >= first_kept(audit) && count < max; number--)
        ret_entries[count++] = audit->ring[number % AUDIT_KEPT];
    lock_release(&audit->lock);
    return count;
}

void audit_counts(struct audit *audit, uint64_t *ret_written, uint64_t *ret_lost)
{
    lock_acquire(&audit->lock);
    *ret_written = audit->written;
    *ret_lost = audit->lost;
    lock_release(&audit->lock);
}

void audit_put(struct json_writer *json, const struct audit_entry *entry)
{
    json_open_object(json);
    json_key(json, "number");
    json_put_uint(json, entry->number);
    json_key(json, "at_ms");
    json_put_int(json, entry->at_ms);
    json_key(json, "who");
    json_put_string(json, entry->who);
    json_key(json, "token");
    json_put_string(json, entry->token);
    json_key(json, "peer");
    json_put_string(json, entry->peer);
    json_key(json, "method");
    json_put_string(json, entry->method);
    json_key(json, "route");
    json_put_string(json, entry->route ? entry->route : "");
    json_key(json, "target");
    json_put_string(json, entry->target);
    json_key(json, "status");
    json_put_uint(json, entry->status);
    json_key(json, "request");
    json_put_uint(json, entry->request);
    if (entry->unnoted > 0) {
        json_key(json, "unnoted");
        json_put_uint(json, entry->unnoted);
    }
    json_close(json);
}

/* ---- The file ---- */

/* What is to be written next, as lines; how many entries. */
static unsigned gather(struct audit *audit, struct buffer *out)
{
    struct audit_entry entry;
    struct json_writer json;
    unsigned count = 0;

    for (;;) {
        bool more;

        lock_acquire(&audit->lock);
        if (audit->next < first_kept(audit)) {
            audit->lost += first_kept(audit) - audit->next;
            audit->next = first_kept(audit);
        }
        more = audit->next <= audit->last && out->used + ENTRY_BYTES <= PIECE_BYTES;
        if (more) entry = audit->ring[audit->next % AUDIT_KEPT];
        lock_release(&audit->lock);
        if (!more) return count;
        json_writer_init(&json, out);
        audit_put(&json, &entry);
        buffer_put_char(out, '\n');
        audit->next++;
        count++;
    }
}

static int open_file(struct audit *audit)
{
    struct stat stat;
    int r = weir_file_open(audit->path, O_WRONLY | O_CREAT | O_NOFOLLOW, 0600, &audit->file);

    if (r < 0) return r;
    r = weir_file_stat(audit->file, &stat);
    audit->file_bytes = r == 0 ? stat.st_size : 0;
    return r;
}

static int close_file(struct audit *audit)
{
    int r = audit->file ? weir_file_close(audit->file) : 0;

    audit->file = NULL;
    return r;
}

static int write_piece(struct audit *audit, struct bytes piece)
{
    char older[4096 + 8];
    int r = 0;

    if (audit->file && audit->file_bytes + (int64_t)piece.count > AUDIT_FILE_BYTES_MAX) {
        r = close_file(audit);
        (void)snprintf(older, sizeof older, "%s.1", audit->path);
        if (r == 0) r = weir_path_rename(audit->path, older);
    }
    if (r == 0 && !audit->file) r = open_file(audit);
    while (r == 0 && piece.count > 0) {
        ssize_t n = weir_file_write(audit->file, piece.at, piece.count, audit->file_bytes);

        if (n < 0) {
            r = (int)n;
        } else {
            audit->file_bytes += n;
            piece = bytes_after(piece, (size_t)n);
        }
    }
    if (r == 0) r = weir_file_sync(audit->file, true);
    if (r < 0) (void)close_file(audit);
    return r;
}

static void count_piece(struct audit *audit, unsigned count, int r)
{
    lock_acquire(&audit->lock);
    if (r < 0)
        audit->lost += count;
    else
        audit->written += count;
    lock_release(&audit->lock);
    if (r < 0 && !audit->failed)
        log_write(worker_self()->runtime, WEIR_LOG_ERROR, task_self(),
                  "audit log '%s' cannot be written: %s", audit->path, weir_strerror(r));
    audit->failed = r < 0;
}

/* All that there is. Not cut short by a cancel, but by its own deadline. */
static void write_all(struct audit *audit, struct buffer *out)
{
    unsigned count;
    int r = 0;

    buffer_clear(out);
    while ((count = gather(audit, out)) > 0) {
        WEIR_SHIELD(WRITE_MS) { r = write_piece(audit, buffer_bytes(out)); }
        count_piece(audit, count, r);
        buffer_clear(out);
    }
}

static int audit_main(void *arg)
{
    struct audit *audit = *(struct audit **)arg;
    struct buffer out;
    int r = 0;

    buffer_init(&out, PIECE_BYTES, memory_resize_hook, NULL);
    while (r == 0) {
        bool closing;

        WEIR_NO_DEADLINE("entries come when somebody changes something") {
            r = weir_event_wait(audit->news);
        }
        weir_event_reset(audit->news);
        write_all(audit, &out);
        lock_acquire(&audit->lock);
        closing = audit->closing;
        lock_release(&audit->lock);
        if (closing) break;
    }
    WEIR_SHIELD(WRITE_MS) { (void)close_file(audit); }
    buffer_deinit(&out);
    return 0;
}

/* ---- As an object ---- */

int audit_open(weir_scope *scope, const char *path, struct audit **ret_audit)
{
    struct audit *audit = mem_alloc_zeroed(sizeof *audit);
    int r = 0;

    if (!audit) return -ENOMEM;
    audit->next = 1;
    lock_init(&audit->lock);
    if (path && strlen(path) >= sizeof audit->path) r = -ENAMETOOLONG;
    if (r == 0 && path) {
        (void)snprintf(audit->path, sizeof audit->path, "%s", path);
        r = weir_event_open(scope, "audit", &audit->news);
        if (r == 0)
            r = weir_task_spawn(
                scope,
                &(weir_task_spec){
                    .name = "audit", .fn = audit_main, .arg = &audit, .arg_bytes = sizeof audit},
                &audit->task);
    }
    if (r < 0) {
        weir_event_close(audit->news);
        lock_deinit(&audit->lock);
        mem_free(audit);
        return r;
    }
    *ret_audit = audit;
    return 0;
}

int audit_close(struct audit *audit)
{
    int r = 0;

    if (!audit) return 0;
    if (audit->news) {
        lock_acquire(&audit->lock);
        audit->closing = true;
        lock_release(&audit->lock);
        weir_event_set(audit->news);
        /* It ends within its own bounds. */
        WEIR_SHIELD(3 * WRITE_MS) { r = weir_task_join(audit->task, NULL); }
        if (r == WEIR_ECLOSED) r = 0;
        if (r < 0) return r; /* it still uses the memory */
        weir_event_close(audit->news);
    }
    lock_deinit(&audit->lock);
    mem_free(audit);
    return 0;
}
