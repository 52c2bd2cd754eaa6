/* snapshot.c - versions of a value that are read without a lock, and when each is freed.
 *
 * A version is held by the snapshot while it is the latest, and by each reader. Its memory is
 * its own, as it may be given back after the snapshot, the scope and the runtime are gone;
 * what it needs then is in the book, which all versions of a snapshot share.
 */
#include <weir/snapshot.h>

#include <errno.h>
#include <stdalign.h>
#include <stdio.h>
#include <string.h>

#include "base/planted.h"
#include "flow/sync.h"
#include "rt/mem.h"

struct book {
    ATOM(size_t) holders; /* the snapshot, and each version */
    ATOM(size_t) alive;   /* versions */
    size_t value_bytes;
    weir_snapshot_free_fn on_free;
    void *keep_arg;
};

#define VERSION_MARK UINT64_C(0x77656972736e6170)

struct version {
    uint64_t mark; /* VERSION_MARK while it is alive */
    ATOM(size_t) holders;
    struct book *book;
    alignas(max_align_t) unsigned char value[];
};

struct weir_snapshot {
    struct sync sync; /* nobody waits in it */
    struct book *book;
    struct version *latest;
    uint64_t number;
    size_t versions_max;
    uint64_t rejected;
};

/* ---- Books and versions: any thread ---- */

static void book_let_go(struct book *book)
{
    if (atom_sub(&book->holders, 1) > 1) return;
    mem_free(book);
    mem_unhold();
}

/* A copy of `value`, held once, which the book counts already; NULL if there is no memory. */
static struct version *version_new(struct book *book, const void *value)
{
    struct version *version = mem_alloc(sizeof *version + book->value_bytes);

    if (!version) return NULL;
    version->mark = VERSION_MARK;
    version->book = book;
    atom_store(&version->holders, 1);
    (void)atom_add(&book->holders, 1);
    memcpy(version->value, value, book->value_bytes);
    sanitize_release(version);
    return version;
}

/* Its memory goes, without the hook. */
static void version_free(struct version *version)
{
    struct book *book = version->book;

    version->mark = 0;
    mem_free(version);
    (void)atom_sub(&book->alive, 1);
    book_let_go(book);
}

static void version_let_go(struct version *version)
{
    struct book *book = version->book;

    sanitize_release(version); /* whoever reads it comes before who frees it */
    if (atom_sub(&version->holders, 1) > 1) return;
    sanitize_acquire(version);
    if (book->on_free) book->on_free(version->value, book->keep_arg);
    version_free(version);
}

static struct version *version_of(const void *value)
{
    return container_of((unsigned char *)(uintptr_t)value, struct version, value);
}

static bool is_version(const void *value)
{
    return (uintptr_t)value % alignof(max_align_t) == 0 && version_of(value)->mark == VERSION_MARK;
}

void weir_snapshot_give_back(const void *take_value)
{
    if (!take_value) return;
    if (!is_version(take_value)) {
        misuse("weir_snapshot_give_back: %p is no version that somebody has taken", take_value);
    }
    version_let_go(version_of(take_value));
    if (worker_self()) worker_touched(worker_self());
}

/* ---- The snapshot ---- */

static void snapshot_release(struct worker *worker, struct belonging *belonging)
{
    weir_snapshot *snapshot = container_of(belonging, struct weir_snapshot, sync.object.belonging);
    struct version *latest = snapshot->latest;
    struct book *book = snapshot->book;

    if (!sync_let_go(worker, &snapshot->sync)) return;
    version_let_go(latest);
    book_let_go(book);
}

static bool snapshot_boundary(struct belonging *belonging, unsigned row,
                              struct boundary *ret_boundary)
{
    weir_snapshot *snapshot = container_of(belonging, struct weir_snapshot, sync.object.belonging);

    if (row > 0) return false;
    (void)snprintf(ret_boundary->bound, sizeof ret_boundary->bound, "%zu versions",
                   snapshot->versions_max);
    ret_boundary->overflow = boundary_overflow(WEIR_REJECT);
    if (sync_boundary(&snapshot->sync, ret_boundary)) {
        boundary_figure(ret_boundary, "version", snapshot->number);
        boundary_figure(ret_boundary, "alive", atom_load(&snapshot->book->alive));
        boundary_figure(ret_boundary, "rejected", snapshot->rejected);
        sync_boundary_end(&snapshot->sync);
    }
    return true;
}

static const struct sync_kind snapshot_kind = {
    .belonging = {.name = "snapshot",
                  .signalled = sync_signalled,
                  .release = snapshot_release,
                  .describe = sync_describe,
                  .boundary = snapshot_boundary,
                  .is_passive = belonging_is_passive},
    .handle = HANDLE_SNAPSHOT,
    .what = "snapshot",
};

static weir_snapshot *look_up(const weir_snapshot *handle, const char *call)
{
    weir_snapshot *snapshot = flow_look_up(handle, HANDLE_SNAPSHOT, "snapshot", call);
    flow_check_worker(call);
    return snapshot;
}

const void *weir_snapshot_take(weir_snapshot *handle)
{
    weir_snapshot *snapshot = look_up(handle, "weir_snapshot_take");
    struct version *latest;

    sync_lock(&snapshot->sync); /* it is not freed between the look and the hold */
    latest = snapshot->latest;
    (void)atom_add(&latest->holders, 1);
    sync_unlock(&snapshot->sync);
    sanitize_acquire(latest);
    return latest->value;
}

/* A copy of `value` that may become the latest; NULL and the error. */
static struct version *next_version(weir_snapshot *snapshot, const void *value, int *ret_error)
{
    struct book *book = snapshot->book;
    struct version *next;
    bool full;

    sync_lock(&snapshot->sync); /* writers count one after the other */
    full = atom_load(&book->alive) >= snapshot->versions_max;
    if (full) {
        snapshot->rejected++;
    } else {
        (void)atom_add(&book->alive, 1);
    }
    sync_unlock(&snapshot->sync);
    if (full) {
        *ret_error =
            refuse_as(WEIR_EOVERLOAD, "snapshot '%s': %zu versions are being read (versions_max)",
                      snapshot->sync.object.name, snapshot->versions_max);
        return NULL;
    }
    next = version_new(book, value);
    if (next) return next;
    (void)atom_sub(&book->alive, 1);
    *ret_error = -ENOMEM;
    return NULL;
}

/* Put `next` in the place of the latest one, if that is still `from` (NULL: whichever it is).
 * Returns the one before, or NULL if another writer was first. */
static struct version *put(weir_snapshot *snapshot, const struct version *from,
                           struct version *next)
{
    struct version *before;

    sanitize_release(next);
    sync_lock(&snapshot->sync);
    before = snapshot->latest;
    if (from && before != from && !PLANTED(UPDATE_LOST)) {
        before = NULL;
    } else {
        snapshot->latest = next;
        snapshot->number++;
    }
    sync_unlock(&snapshot->sync);
    return before;
}

int weir_snapshot_publish(weir_snapshot *handle, const void *value)
{
    weir_snapshot *snapshot = look_up(handle, "weir_snapshot_publish");
    int error = 0;
    struct version *next = next_version(snapshot, value, &error);

    if (!next) return error;
    version_let_go(put(snapshot, NULL, next));
    worker_touched(worker_self());
    return 0;
}

/* One try: 1 it is published, 0 another writer was first, or an error. */
static int update_once(weir_snapshot *snapshot, struct version *from, weir_snapshot_update_fn fn,
                       void *arg)
{
    int r = 0;
    struct version *next = next_version(snapshot, from->value, &r);
    struct version *before = NULL;

    if (!next) return r;
    r = fn(next->value, arg);
    if (r >= 0) before = put(snapshot, from, next);
    if (before) {
        version_let_go(before);
    } else {
        version_free(next); /* what the function has made for it is the function's */
    }
    return r < 0 ? r : before != NULL;
}

int weir_snapshot_update(weir_snapshot *handle, weir_snapshot_update_fn fn, void *arg)
{
    weir_snapshot *snapshot = look_up(handle, "weir_snapshot_update");
    int r;

    do { /* each time round another writer has got on */
        struct version *from = version_of(weir_snapshot_take(handle));
        r = update_once(snapshot, from, fn, arg);
        version_let_go(from);
    } while (r == 0);
    worker_touched(worker_self());
    return r < 0 ? r : 0;
}

/* ---- Opening, figures, closing ---- */

static int check_spec(const weir_snapshot_spec *spec, const void *value)
{
    const char *name = spec->name;
    int r = flow_check_name("snapshot", name);

    if (r < 0) return r;
    if (spec->value_bytes == 0 || spec->value_bytes > WEIR_SNAPSHOT_BYTES_MAX) {
        return refuse("snapshot '%s': value_bytes is %zu, must be 1 to %d (or a pointer)", name,
                      spec->value_bytes, WEIR_SNAPSHOT_BYTES_MAX);
    }
    if (spec->versions_max < 2 || spec->versions_max > WEIR_SNAPSHOT_VERSIONS_MAX) {
        return refuse("snapshot '%s': versions_max is %zu, must be 2 to %d", name,
                      spec->versions_max, WEIR_SNAPSHOT_VERSIONS_MAX);
    }
    if (!value) return refuse("snapshot '%s': there is no first value", name);
    return 0;
}

static struct book *book_new(const weir_snapshot_spec *spec)
{
    struct book *book = mem_alloc_zeroed(sizeof *book);

    if (!book) return NULL;
    atom_store(&book->holders, 1);
    atom_store(&book->alive, 1); /* the first version */
    book->value_bytes = spec->value_bytes;
    book->on_free = spec->on_free;
    book->keep_arg = spec->keep_arg;
    mem_hold();
    return book;
}

int weir_snapshot_open_sized(weir_scope *scope, size_t spec_bytes, const weir_snapshot_spec *given,
                             const void *value, weir_snapshot **ret_snapshot)
{
    weir_snapshot_spec spec;
    weir_snapshot *snapshot;
    struct version *first;
    struct book *book;
    struct sync *sync;
    int r;

    if (!worker_self()) return refuse_no_task("weir_snapshot_open");
    spec_copy(&spec, sizeof spec, given, spec_bytes);
    r = check_spec(&spec, value);
    if (r < 0) return r;
    book = book_new(&spec);
    if (!book) return -ENOMEM;
    r = -ENOMEM;
    first = version_new(book, value);
    if (!first) goto fail_book;
    r = sync_open(scope, &snapshot_kind, sizeof *snapshot, spec.name, "weir_snapshot_open", &sync);
    if (r < 0) goto fail_version;
    snapshot = container_of(sync, struct weir_snapshot, sync);
    snapshot->book = book;
    snapshot->latest = first;
    snapshot->number = 1;
    snapshot->versions_max = spec.versions_max;
    *ret_snapshot = sync->handle;
    return 0;

fail_version:
    version_free(first);
fail_book:
    book_let_go(book);
    return r;
}

void weir_snapshot_figures_of(weir_snapshot *handle, weir_snapshot_figures *ret_figures)
{
    weir_snapshot *snapshot = look_up(handle, "weir_snapshot_figures_of");

    sync_lock(&snapshot->sync);
    *ret_figures = (weir_snapshot_figures){
        .version = snapshot->number,
        .versions_alive = atom_load(&snapshot->book->alive),
        .rejected = snapshot->rejected,
    };
    sync_unlock(&snapshot->sync);
}

void weir_snapshot_close(weir_snapshot *take_snapshot)
{
    if (take_snapshot) sync_close(take_snapshot, &snapshot_kind, "weir_snapshot_close");
}
