/* compactor.c - see compactor.h. */
#include "unit/engine/compactor.h"

#include <stdlib.h>

#include "engine/codec.h"
#include "unit/engine/helper.h"

enum { RECORDS_BEFORE = 150, JOBS_A_STEP = 4, RECORDS_A_STEP = 10 };

void compactor_init(struct compactor *compactor)
{
    memset(compactor, 0, sizeof *compactor);
    compactor->live = calloc(COMPACTOR_POSITIONS, sizeof *compactor->live);
    CHECK(compactor->live != NULL);
}

void compactor_deinit(struct compactor *compactor)
{
    for (size_t i = 0; i < compactor->count; i++) free(compactor->records[i].bytes);
    free(compactor->records);
    free(compactor->live);
}

void compactor_live(void *arg, uint64_t position, int64_t bytes)
{
    struct compactor *compactor = arg;
    CHECK_INT(position, <, COMPACTOR_POSITIONS);
    compactor->live[position] += bytes;
    CHECK_INT(compactor->live[position], >=, 0);
}

void compactor_keep(struct compactor *compactor, const void *bytes, size_t count, uint64_t position)
{
    struct compactor_record *record;

    if (compactor->count == compactor->room) {
        size_t room = compactor->room ? compactor->room * 2 : 256;
        record = realloc(compactor->records, room * sizeof *record);
        CHECK(record != NULL);
        compactor->records = record;
        compactor->room = room;
    }
    record = &compactor->records[compactor->count++];
    *record = (struct compactor_record){malloc(count), count, position};
    CHECK(record->bytes != NULL);
    memcpy(record->bytes, bytes, count);
}

static struct engine_found read_job(const struct compactor *compactor, uint64_t position,
                                    uint64_t id)
{
    struct engine_found found;

    for (size_t i = 0; i < compactor->count; i++) {
        const struct compactor_record *record = &compactor->records[i];
        if (record->position != position) continue;
        CHECK_OK(engine_record_find(record->bytes, record->count, id, &found));
        return found;
    }
    TEST_FAIL("job %llu needs a record that was dropped", (unsigned long long)id);
}

static void relog(struct compactor *compactor, struct engine *engine, int64_t now_ms,
                  const struct engine_needed *needed)
{
    struct engine_slice result = {0};

    CHECK(needed->payload.at != NULL); /* from the oldest record on, it comes before the result */
    if (needed->result_bytes > 0) {
        result = read_job(compactor, needed->result_position, needed->id).result;
    }
    if (engine_relog(engine, now_ms, needed->id, needed->payload, needed->trace, result) < 0) {
        TEST_FAIL("relog: %s", engine_why(engine));
    }
    compactor->relogged++;
}

void compactor_step(struct compactor *compactor, struct engine *engine, int64_t now_ms)
{
    unsigned jobs = 0, records = 0;

    if (!compactor->running) {
        if (compactor->count < RECORDS_BEFORE) return;
        compactor->running = true;
        compactor->point = compactor->count;
        compactor->at = 0;
        compactor->names_done = false;
        memset(&compactor->needed, 0, sizeof compactor->needed);
        memset(&compactor->names, 0, sizeof compactor->names);
    }
    while (compactor->at < compactor->point && jobs < JOBS_A_STEP && records < RECORDS_A_STEP) {
        const struct compactor_record *record = &compactor->records[compactor->at];
        struct engine_needed needed;
        int r = engine_record_needed(engine, record->bytes, record->count, record->position,
                                     &compactor->needed, &needed);
        CHECK_OK(r);
        if (r == 1) {
            relog(compactor, engine, now_ms, &needed);
            jobs++;
            continue;
        }
        compactor->at++;
        records++;
        memset(&compactor->needed, 0, sizeof compactor->needed);
    }
}

bool compactor_say_names(struct compactor *compactor, struct engine *engine, size_t bytes_max,
                         uint64_t position, const void **ret_bytes, size_t *ret_count)
{
    int more;

    if (!compactor->running || compactor->names_done) return false;
    more = engine_names(engine, &compactor->names, bytes_max, ret_bytes, ret_count);
    CHECK_OK(more);
    compactor->names_done = more == 0;
    compactor_keep(compactor, *ret_bytes, *ret_count, position);
    return true;
}

bool compactor_may_end(const struct compactor *compactor)
{
    return compactor->running && compactor->names_done && compactor->at == compactor->point;
}

/* A decision that a job left its group says nothing before that job is logged again: the group's
 * turn can be an older one (README.md). All else is equal. */
static void add_row_without_turn(void *arg, const void *bytes, size_t count)
{
    struct reader reader = {.at = bytes, .end = (const unsigned char *)bytes + count};
    unsigned char room[4096];
    struct writer writer = {room, 0, sizeof room};
    struct op op;

    CHECK(op_read(&reader, &op));
    if (op.type == OP_JOB) op.job.set.to = (struct op_turn){0};
    CHECK_INT(op_bytes_max(&op), <, sizeof room);
    op_write(&writer, &op);
    helper_add_row(arg, room, writer.count);
}

static uint64_t sum_without_turns(struct engine *engine)
{
    struct helper_sum sum = {0};
    CHECK_OK(engine_rows(engine, add_row_without_turn, &sum));
    return sum.sum + hash_number(sum.count);
}

void compactor_end(struct compactor *compactor, struct engine *engine, struct engine *other)
{
    size_t point = compactor->point;

    for (size_t i = 0; i < point; i++) {
        CHECK_INT(compactor->live[compactor->records[i].position], ==, 0);
        free(compactor->records[i].bytes);
    }
    compactor->count -= point;
    memmove(compactor->records, compactor->records + point,
            compactor->count * sizeof *compactor->records);
    for (size_t i = 0; i < compactor->count; i++) {
        const struct compactor_record *record = &compactor->records[i];
        CHECK_OK(engine_apply(other, record->bytes, record->count, record->position));
    }
    CHECK(sum_without_turns(other) == sum_without_turns(engine));
    check_engine(other);
    compactor->running = false;
    compactor->ended++;
}
