/* snapshot.c - the state as slices: names, then jobs, row by row of their slabs. Rows have numbers
 * that stay, so commands may come between slices; what they change is in the log. */
#include <errno.h>

#include "engine/state.h"

/* ---- Rows ---- */

static int write_job(struct engine *engine, struct writer *writer, const struct job *job)
{
    struct op op = {.type = OP_JOB};
    int r;

    job_says(engine, job, &op.job);
    r = write_op(engine, writer, &op);
    return r < 0 ? r : write_errors(engine, writer, job->id);
}

/* What the row says, if that has to be said. */
static int write_atom(struct engine *engine, struct writer *writer, enum atom_type type,
                      uint32_t number)
{
    struct op op = {0};

    if (atom_at(engine, type, number)->refs == 0) return 0;
    if (type == ATOM_QUEUE && queue_at(engine, number)->configured) {
        op = (struct op){.type = OP_QUEUE, .queue = queue_says(queue_at(engine, number))};
    } else if (type == ATOM_KEY && key_at(engine, number)->configured) {
        op = (struct op){.type = OP_KEY, .key = key_says(key_at(engine, number))};
    } else if (type == ATOM_SCHEDULE) {
        op = (struct op){.type = OP_SCHEDULE,
                         .schedule = schedule_says(schedule_at(engine, number))};
    }
    return op.type ? write_op(engine, writer, &op) : 0;
}

/* ---- Names ---- */

/* One slab each, then the sets. */
static const enum atom_type name_parts[] = {ATOM_QUEUE, ATOM_KEY, ATOM_SCHEDULE};
enum { NAME_PARTS = sizeof name_parts / sizeof *name_parts };

/* The next row, or the next part. False: that was all. */
static bool names_step(struct engine *engine, struct writer *writer,
                       struct engine_names_cursor *cursor, int *ret_error)
{
    int64_t r;

    if (cursor->part > NAME_PARTS) return false;
    if (cursor->part == NAME_PARTS) {
        r = bulk_write_next(engine, writer, cursor->after);
        if (r > 0) cursor->after = (uint64_t)r;
        if (r == 0) cursor->part++;
    } else if (cursor->after < engine->atoms[name_parts[cursor->part]].last) {
        r = write_atom(engine, writer, name_parts[cursor->part], (uint32_t)++cursor->after);
    } else {
        *cursor = (struct engine_names_cursor){.part = cursor->part + 1};
        r = 0;
    }
    if (r < 0) *ret_error = (int)r;
    return r >= 0;
}

/* Rows until there are bytes_max bytes, or an error. */
static int write_names(struct engine *engine, struct writer *writer,
                       struct engine_names_cursor *cursor, size_t bytes_max)
{
    int r = 0;
    while (writer->count - RECORD_HEAD_BYTES_MAX <= bytes_max) {
        if (!names_step(engine, writer, cursor, &r)) break;
    }
    return r;
}

static bool names_left(const struct engine_names_cursor *cursor)
{
    return cursor->part <= NAME_PARTS;
}

/* ---- Slices ---- */

static int slice_begin(struct engine *engine)
{
    if (engine->record.count != RECORD_HEAD_BYTES_MAX) {
        return engine_refuse(engine, -EBUSY,
                             "snapshot: decisions of this engine are not logged yet");
    }
    engine->slice.count = RECORD_HEAD_BYTES_MAX;
    /* Records before it may go, and with them those that said the counters. */
    writer_begin(engine, &engine->slice, true);
    return writer_reserve(engine, &engine->slice, 0);
}

static int slice_end(struct engine *engine, int r, const void **ret_bytes, size_t *ret_count)
{
    size_t begin;

    if (r == -EBUSY) return r;
    if (r < 0) return engine_refuse(engine, r, "snapshot: there is no memory for a slice");
    begin = put_head(engine, &engine->slice);
    *ret_bytes = engine->slice.bytes + begin;
    *ret_count = engine->slice.count - begin;
    return 0;
}

int engine_names(struct engine *engine, struct engine_names_cursor *cursor, size_t bytes_max,
                 const void **ret_bytes, size_t *ret_count)
{
    struct engine_names_cursor at = *cursor; /* a slice that fails is asked for again */
    int r = slice_begin(engine);

    if (r == 0) r = write_names(engine, &engine->slice, &at, bytes_max);
    r = slice_end(engine, r, ret_bytes, ret_count);
    if (r < 0) return r;
    *cursor = at;
    return names_left(&at);
}

int engine_snapshot(struct engine *engine, struct engine_cursor *cursor, size_t bytes_max,
                    const void **ret_bytes, size_t *ret_count)
{
    struct writer *slice = &engine->slice;
    struct engine_cursor at = *cursor;
    int r = slice_begin(engine);

    if (r == 0) r = write_names(engine, slice, &at.names, bytes_max);
    while (r == 0 && !names_left(&at.names) && at.after < engine->jobs.last &&
           slice->count - RECORD_HEAD_BYTES_MAX <= bytes_max) {
        const struct job *job = job_at(engine, ++at.after);
        if (job->state != ENGINE_NO_JOB) r = write_job(engine, slice, job);
    }
    r = slice_end(engine, r, ret_bytes, ret_count);
    if (r < 0) return r;
    *cursor = at;
    return names_left(&at.names) || at.after < engine->jobs.last;
}

/* ---- The whole state ---- */

struct rows {
    engine_row_fn row;
    void *arg;
};

static int give_rows(struct engine *engine, const struct rows *rows)
{
    struct writer *slice = &engine->slice;
    struct reader reader = {.at = slice->bytes + RECORD_HEAD_BYTES_MAX,
                            .end = slice->bytes + slice->count,
                            .checked = true,
                            .base = slice->base};
    const unsigned char *begin = reader.at;
    struct op op;

    while (op_read(&reader, &op)) {
        rows->row(rows->arg, begin, (size_t)(reader.at - begin));
        begin = reader.at;
    }
    assert(!reader.bad);
    slice->count = RECORD_HEAD_BYTES_MAX;
    return 0;
}

int engine_rows(struct engine *engine, engine_row_fn row, void *arg)
{
    struct rows rows = {row, arg};
    struct engine_names_cursor names = {0};
    int r;

    engine->slice.count = RECORD_HEAD_BYTES_MAX;
    /* Without a base: equal rows are equal bytes, whatever the time is. */
    engine->slice.base = (struct record_head){0};
    r = writer_reserve(engine, &engine->slice, 0);
    if (r == 0) r = write_names(engine, &engine->slice, &names, SIZE_MAX);
    if (r == 0) r = give_rows(engine, &rows);
    for (uint32_t at = 1; r == 0 && at <= engine->jobs.last; at++) {
        const struct job *job = job_at(engine, at);
        if (job->state == ENGINE_NO_JOB) continue;
        r = write_job(engine, &engine->slice, job);
        if (r == 0) r = give_rows(engine, &rows);
    }
    return r;
}
