/* engine_record_fuzz.c - records from any bytes: what is no record changes nothing; whatever is one
 * is written again as the same bytes, and leaves an engine that goes on, and whose snapshot is the
 * same state again.
 *
 * input = records, each with its length before it (2 bytes, little-endian); the last may be shorter
 */
#include <errno.h>
#include <string.h>

#include "engine/codec.h"
#include "engine/engine.h"
#include "fuzz/fuzz.h"

static void *resize(void *arg, void *block, size_t bytes_before, size_t bytes)
{
    (void)arg;
    (void)bytes_before;
    if (bytes > 0) return realloc(block, bytes);
    free(block);
    return NULL;
}

static struct engine *open_engine(void)
{
    struct engine_config config = {.resize = resize,
                                   .memory_bytes_max = 1 << 28,
                                   .payload_bytes_max = 1 << 16,
                                   .depth_max = 100,
                                   .history_ms = 1000,
                                   .dead_ms = 1000,
                                   .history_count_max = 3};
    struct engine *engine = NULL;
    MUST(engine_open(&config, &engine) == 0);
    return engine;
}

static void add_row(void *arg, const void *bytes, size_t count)
{
    *(uint64_t *)arg += hash_bytes(1, bytes, count) | 1;
}

static uint64_t sum_of(struct engine *engine)
{
    uint64_t sum = 0;
    MUST(engine_rows(engine, add_row, &sum) == 0);
    return sum;
}

static void check_snapshot(struct engine *engine)
{
    struct engine *other = open_engine();
    struct engine_cursor cursor = {0};
    const void *bytes;
    size_t count;
    int more;

    do {
        more = engine_snapshot(engine, &cursor, 100, &bytes, &count);
        MUST(more >= 0);
        MUST(engine_apply(other, bytes, count, 9) == 0);
    } while (more);
    MUST(sum_of(other) == sum_of(engine));
    engine_close(other);
}

/* Commands on whatever state it is: none may end the program. */
static void go_on(struct engine *engine)
{
    int64_t now_ms = engine_now_ms(engine);
    struct engine_slice queue = {"q", 1};
    struct engine_claim_spec claim = {.queue = queue, .count = 4, .lease_ms = 10};
    struct engine_claimed claimed[4];
    struct engine_figures figures;

    for (int i = 0; i < 20; i++) {
        int count = engine_claim(engine, now_ms, &claim, claimed);
        MUST(count >= 0);
        if (count > 0)
            MUST(engine_ack(engine, now_ms, claimed[0].id, claimed[0].token, queue) != 0);
        if (count > 1) {
            MUST(engine_release(engine, now_ms, claimed[1].id, claimed[1].token, 0) == 0);
        }
        MUST(engine_tick(engine, now_ms, SIZE_MAX) >= 0);
        engine_figures(engine, queue, &figures);
        engine_logged(engine, 7);
        now_ms += 50;
    }
}

/* There is one way to write each operation. */
static void check_bytes(const void *bytes, size_t count)
{
    struct reader reader = {.at = bytes, .end = (const unsigned char *)bytes + count};
    struct record_head head;
    struct op op;

    MUST(head_read(&reader, &head));
    for (const unsigned char *begin = reader.at; op_read(&reader, &op); begin = reader.at) {
        size_t room = op_bytes_max(&op);
        struct writer writer = {malloc(room), 0, room};
        if (!writer.bytes) break;
        writer.base = reader.base;
        op_write(&writer, &op);
        MUST(writer.count == (size_t)(reader.at - begin) && writer.count <= room);
        MUST(memcmp(writer.bytes, begin, writer.count) == 0);
        free(writer.bytes);
    }
    MUST(!reader.bad);
}

/* Who needs a record that was applied: each of them is there. */
static void check_needed(struct engine *engine, const void *bytes, size_t count, uint64_t position)
{
    struct engine_needed_cursor cursor = {0};
    struct engine_needed needed;
    struct engine_job job;
    int r;

    while ((r = engine_record_needed(engine, bytes, count, position, &cursor, &needed)) == 1) {
        MUST(engine_job_get(engine, needed.id, &job) == 0);
        MUST(job.position == position || job.result_position == position);
    }
    MUST(r == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct engine *engine = open_engine();
    uint64_t position = 0;

    while (size > 2) {
        size_t count = data[0] | (size_t)data[1] << 8;
        uint64_t before = sum_of(engine);
        void *copy;
        int r;
        data += 2;
        size -= 2;
        if (count > size) count = size;
        copy = malloc(count + 1); /* its end is the end of the block, for the sanitizer */
        if (!copy) break;
        memcpy((char *)copy + 1, data, count);
        r = engine_apply(engine, (char *)copy + 1, count, ++position);
        MUST(r == 0 || r == -EBADMSG);
        if (r < 0) MUST(sum_of(engine) == before && engine_why(engine)[0] != '\0');
        if (r == 0) check_bytes((char *)copy + 1, count);
        if (r == 0) check_needed(engine, (char *)copy + 1, count, position);
        free(copy);
        data += count;
        size -= count;
    }
    check_snapshot(engine);
    go_on(engine);
    engine_close(engine);
    return 0;
}
