/* log_open.c - open and close of a log; figures. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <weir/error.h>

#include "rt/mem.h"
#include "store/log_live.h"

static int check_spec(struct log_spec *spec)
{
    if (!spec->path || !spec->path[0]) return refuse("log_open: path is not set");
    if (!spec->replay) return refuse("log_open: replay is not set");
    if (spec->segment_bytes == 0) spec->segment_bytes = LOG_SEGMENT_BYTES_DEFAULT;
    if (spec->buffer_bytes == 0) spec->buffer_bytes = LOG_BUFFER_BYTES_DEFAULT;
    if (spec->record_bytes_max == 0) spec->record_bytes_max = LOG_RECORD_BYTES_DEFAULT;
    if (spec->held_segments == 0) spec->held_segments = LOG_HELD_SEGMENTS;
    if (spec->held_segments < 0) spec->held_segments = 0;
    if (spec->segment_bytes < LOG_SEGMENT_BYTES_MIN ||
        spec->segment_bytes > LOG_SEGMENT_BYTES_MAX || spec->segment_bytes % LOG_HEADER_BYTES != 0)
        return refuse("log_open: segment_bytes is %" PRIu64 ": it is a multiple of %d, from %d on",
                      spec->segment_bytes, LOG_HEADER_BYTES, LOG_SEGMENT_BYTES_MIN);
    if (spec->recent_bytes & (spec->recent_bytes - 1))
        return refuse("log_open: recent_bytes is %zu, no power of two", spec->recent_bytes);
    if (spec->record_bytes_max > LOG_RECORD_BYTES_LIMIT)
        return refuse("log_open: record_bytes_max is %zu, more than %" PRIu32,
                      spec->record_bytes_max, LOG_RECORD_BYTES_LIMIT);
    if (log_frame_size(spec->record_bytes_max) + LOG_MARK_SIZE > spec->buffer_bytes)
        return refuse("log_open: record_bytes_max is %zu, which does not fit into buffer_bytes",
                      spec->record_bytes_max);
    return 0;
}

/* No thread of it runs, nobody waits. */
static void log_free(struct log *log)
{
    for (size_t i = 0; i < log->segment_count; i++)
        log_segment_give_back(log->kernel, log->segments[i]);
    mem_free(log->segments);
    for (size_t i = 0; i < log->spare_count; i++)
        (void)log->kernel->close(log->kernel, log->spares[i].fd);
    for (int i = 0; i < 2; i++) {
        /* What was to begin a segment and was never written. */
        if (log->buffers[i].begins_segment)
            (void)log->kernel->close(log->kernel, log->buffers[i].spare.fd);
        mem_free(log->buffers[i].data);
    }
    mem_free(log->recent);
    log_folder_close(&log->folder);
    bell_deinit(&log->work);
    bell_deinit(&log->keep);
    lock_deinit(&log->lock);
    mem_free(log);
}

static struct log *log_new(const struct log_spec *spec)
{
    struct log *log = mem_alloc_zeroed(sizeof *log);

    if (!log) return NULL;
    log->runtime = worker_self()->runtime;
    log->kernel = log->runtime->kernel;
    log->spec = *spec;
    log->folder =
        (struct log_folder){.kernel = log->kernel, .fd = -1, .lock_fd = -1, .meta_fd = -1};
    lock_init(&log->lock);
    bell_init(&log->work, log->kernel);
    bell_init(&log->keep, log->kernel);
    for (int what = LOG_WAIT_WRITTEN; what <= LOG_WAIT_SYNCED; what++) {
        list_init(&log->due[what].list);
        list_init(&log->later[what].list);
    }
    list_init(&log->starved);
    list_init(&log->held);
    list_init(&log->readers);
    list_init(&log->ending);
    log->filling = &log->buffers[0];
    if (spec->recent_bytes > 0) log->recent = mem_alloc_zeroed(spec->recent_bytes);
    if (spec->recent_bytes > 0 && !log->recent) {
        log_free(log);
        return NULL;
    }
    for (int i = 0; i < 2; i++) {
        log->buffers[i].data = mem_alloc(spec->buffer_bytes);
        if (!log->buffers[i].data) {
            log_free(log);
            return NULL;
        }
    }
    return log;
}

/* Wait until the log's threads have left, which cannot be interrupted. */
static void await_end(struct log *log, bool committer) LOCK_UNCHECKED;
static void await_end(struct log *log, bool committer)
{
    struct log_waiter waiter = {0};

    lock_acquire(&log->lock);
    while (log->keeper_runs || log->committer_runs) {
        (void)log_park(log, &log->ending, &waiter, &log_wait_end);
        lock_acquire(&log->lock);
    }
    lock_release(&log->lock);
    (void)log->kernel->thread_join(log->kernel, log->keeper_thread);
    if (committer) (void)log->kernel->thread_join(log->kernel, log->committer_thread);
    sanitize_acquire(log);
}

int log_open(const struct log_spec *given, struct log **ret_log)
{
    struct task *self = task_self();
    struct log_spec spec = *given;
    struct log_waiter waiter = {0};
    struct log *log;
    int r;

    if (!self) return refuse_no_task("log_open");
    r = check_spec(&spec);
    if (r == 0) r = task_enter(self, ENTER_IO);
    if (r < 0) return r;
    log = log_new(&spec);
    if (!log) return -ENOMEM;
    log->keeper_runs = true;
    sanitize_release(log);
    r = log->kernel->thread_start(log->kernel, &log->keeper_thread, log_keeper_main, log);
    if (r < 0) {
        log_free(log);
        return r;
    }
    lock_acquire(&log->lock);
    while (log->state == LOG_OPENING && log->keeper_runs) {
        (void)log_park(log, &log->ending, &waiter, &log_wait_open);
        lock_acquire(&log->lock);
    }
    r = log->open_result;
    lock_release(&log->lock);
    sanitize_acquire(log);
    if (r == 0) {
        *ret_log = log;
        log->spec.path = log->folder.path;
        return 0;
    }
    await_end(log, false);
    if (r != WEIR_ECANCELED && log->why.text[0]) (void)refuse_as(r, "%s", log->why.text);
    log_free(log);
    if (r == WEIR_ECANCELED && task_interruption(self, false) < 0)
        r = task_interruption(self, false);
    return r;
}

void log_shut(struct log *log)
{
    struct log_told told = {0};

    lock_acquire(&log->lock);
    if (log->state == LOG_OPEN) log->state = LOG_CLOSING;
    atom_store(&log->room_sure, 0);
    atom_store(&log->stop, true);
    log_told_all(&told, &log->starved, 0);
    log_told_all(&told, &log->held, 0);
    bell_ring_all(&log->work);
    bell_ring_all(&log->keep);
    lock_release(&log->lock);
    log_told_post(&told);
}

int log_close(struct log *take_log)
{
    struct log *log = take_log;
    struct log_waiter waiter = {0};
    int r;

    if (!log) return 0;
    log_shut(log);
    await_end(log, true);
    lock_acquire(&log->lock);
    while (log->read_count > 0) {
        (void)log_park(log, &log->readers, &waiter, &log_wait_end);
        lock_acquire(&log->lock);
    }
    r = log->error;
    lock_release(&log->lock);
    if (r < 0) (void)refuse_as(r, "%s", log->why.text);
    log_free(log);
    return r;
}

void log_figures(struct log *log, struct log_figures *ret_figures)
{
    lock_acquire(&log->lock);
    *ret_figures = (struct log_figures){
        .first = log->segments[0]->position,
        .end = log->end,
        .written = log->written,
        .synced = log->synced,
        .segment_count = log->segment_count,
        .leaving_count = log_leaving_count(log),
        .spare_count = log->spare_count,
        .segment_bytes = log->capacity + LOG_HEADER_BYTES,
        .live_bytes = log->live_bytes,
        .records_replayed = log->records_replayed,
        .torn_bytes = log->torn_bytes,
        .commits = log->commits,
        .compacted_bytes = log->compacted_bytes,
        .held_back = log->held_back,
        .room_error = log->room_error,
        .error = log->error,
    };
    lock_release(&log->lock);
}

void log_why(struct log *log, struct log_why *ret_why)
{
    lock_acquire(&log->lock);
    *ret_why = log->error < 0        ? log->why
               : log->room_error < 0 ? log->room_why
                                     : (struct log_why){0};
    lock_release(&log->lock);
}
