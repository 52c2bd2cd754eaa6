/* log_append_test.c - appends, waits, reads, and what makes room. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "unit/store/log_test.h"

LOG_TEST(log_append_gives_positions_that_rise_and_touch)
{
    struct log *log = stand_open(stand);

    stand_append(stand, log, 50);
    for (unsigned i = 1; i < 50; i++) {
        CHECK_INT(stand->places[i].position, >=, stand->places[i - 1].end);
        CHECK_INT(stand->places[i].end, >, stand->places[i].position);
        CHECK_INT(stand->places[i].position % LOG_ALIGN, ==, 0);
    }
    stand_close(log);
}

LOG_TEST(log_append_refuses_what_is_too_long_or_has_no_use)
{
    struct log *log = stand_open(stand);
    static unsigned char data[STAND_RECORD_BYTES_MAX + 1];
    struct iovec part = {data, sizeof data};
    struct log_place place;

    CHECK_INT(log_append(log, &part, 1, &(struct log_options){.use = LOG_FOR_NEW}, &place), ==,
              -EMSGSIZE);
    part.iov_len = 10;
    CHECK_INT(log_append(log, &part, 1, &(struct log_options){0}, &place), ==, WEIR_EREFUSED);
    part.iov_len = 0;
    CHECK_OK(log_append(log, &part, 1, &(struct log_options){.use = LOG_FOR_NEW}, &place));
    CHECK_OK(log_wait(log, place.end, LOG_SYNCED));
    CHECK_INT(log_wait(log, place.end + 8, LOG_SYNCED), ==, WEIR_EREFUSED);
    CHECK_INT(log_wait(log, place.end, LOG_DURABILITY_UNSET), ==, WEIR_EREFUSED);
    CHECK_OK(log_close(log));
}

LOG_TEST(log_wait_gives_each_durability_and_syncs_only_when_asked)
{
    struct log *log = stand_open(stand);
    struct log_figures figures;

    CHECK_OK(stand_append_one(stand, log, LOG_FOR_NEW));
    CHECK_OK(log_wait(log, stand->places[0].end, LOG_MEMORY));
    CHECK_OK(log_wait(log, stand->places[0].end, LOG_WRITTEN));
    log_figures(log, &figures);
    CHECK_INT(figures.written, >=, stand->places[0].end);
    CHECK_INT(figures.commits, ==, 0);
    CHECK_INT(figures.synced, ==, LOG_POSITION_FIRST);
    CHECK_OK(log_wait(log, stand->places[0].end, LOG_SYNCED));
    log_figures(log, &figures);
    CHECK_INT(figures.commits, ==, 1);
    CHECK_INT(figures.synced, >=, stand->places[0].end);
    stand_close(log);
}

static void await_written(struct log *log, uint64_t end)
{
    struct log_figures figures;

    do {
        CHECK_OK(weir_yield());
        log_figures(log, &figures);
    } while (figures.written < end);
}

LOG_TEST(log_writes_what_nobody_waits_for_by_itself_again_and_again)
{
    struct log *log = stand_open(stand);
    struct log_figures figures;

    for (int i = 0; i < 3; i++) {
        CHECK_OK(stand_append_one(stand, log, LOG_FOR_NEW));
        CHECK_OK(log_wait(log, stand->places[i].end, LOG_MEMORY));
        await_written(log, stand->places[i].end);
        /* What is written already wakes nobody, and does not keep the next one from it. */
        CHECK_OK(log_wait(log, stand->places[i].end, LOG_MEMORY));
    }
    log_figures(log, &figures);
    CHECK_INT(figures.commits, ==, 0);
    stand_close(log);
}

LOG_TEST(log_that_is_asked_commits_before_anybody_waits)
{
    struct log *log = stand_open(stand);
    struct log_figures figures;

    for (int i = 0; i < 3; i++) {
        CHECK_OK(stand_append_one(stand, log, LOG_FOR_NEW));
        log_ask(log, stand->places[i].end, LOG_SYNCED);
        do {
            CHECK_OK(weir_yield());
            log_figures(log, &figures);
        } while (figures.synced < stand->places[i].end);
        CHECK_INT(figures.commits, ==, i + 1);
        CHECK_OK(log_wait(log, stand->places[i].end, LOG_SYNCED));
        log_figures(log, &figures);
        CHECK_INT(figures.commits, ==, i + 1);
    }
    stand_close(log);
}

struct one {
    struct log *log;
    uint64_t end;
};

static int wait_for_one(void *arg)
{
    struct one *one = arg;

    return log_wait(one->log, one->end, LOG_SYNCED);
}

LOG_TEST(log_syncs_once_for_many_that_wait)
{
    struct log *log;
    struct log_figures figures;
    int r = 0;

    stand->spec.segment_bytes = stand->spec.buffer_bytes = 1 << 20; /* none waits for room */
    log = stand_open(stand);
    for (int i = 0; i < 100; i++) CHECK_OK(stand_append_one(stand, log, LOG_FOR_NEW));
    WEIR_SCOPE(scope, &r, .name = "many", .on_failure = WEIR_FAIL_FAST, .max_tasks = 100,
               .overflow = WEIR_REJECT) {
        for (int i = 0; i < 100; i++) {
            struct one one = {log, stand->places[i].end};
            CHECK_OK(weir_spawn(scope, wait_for_one, &one, sizeof one));
        }
    }
    CHECK_OK(r);
    log_figures(log, &figures);
    CHECK_INT(figures.commits, ==, 1);
    stand_close(log);
    log = stand_open(stand);
    stand_check(stand, 100);
    stand_close(log);
}

LOG_TEST(log_append_now_is_rejected_when_buffers_are_full)
{
    struct log *log = stand_open(stand);
    static unsigned char data[STAND_RECORD_BYTES_MAX];
    struct iovec part = {data, sizeof data};
    struct log_place place = {0};
    int r = 0;

    for (int i = 0; i < 1000 && r == 0; i++)
        r = log_append_now(log, &part, 1, &(struct log_options){.use = LOG_FOR_NEW}, &place);
    CHECK_INT(r, ==, WEIR_EOVERLOAD);
    CHECK_OK(log_append(log, &part, 1, &(struct log_options){.use = LOG_FOR_NEW}, &place));
    CHECK_OK(log_wait(log, place.end, LOG_SYNCED));
    CHECK_OK(log_close(log));
}

/* ---- Reading ---- */

static void check_read(struct stand *stand, struct log *log, unsigned number)
{
    unsigned char data[STAND_RECORD_BYTES_MAX], expected[STAND_RECORD_BYTES_MAX];
    size_t bytes = stand_record(number, expected);
    struct log_record record;

    CHECK_OK(log_read(log, stand->places[number].position, data, sizeof data, &record));
    CHECK_INT(record.bytes, ==, bytes);
    CHECK_INT(record.tag, ==, (uint16_t)number);
    CHECK_INT(record.end, ==, stand->places[number].end);
    CHECK(memcmp(data, expected, bytes) == 0);
}

LOG_TEST(log_read_finds_records_in_buffers_and_in_files)
{
    struct log *log = stand_open(stand);

    stand_append(stand, log, 100);
    for (int i = 0; i < 3; i++) CHECK_OK(stand_append_one(stand, log, LOG_FOR_NEW));
    for (unsigned i = 0; i < 103; i++) check_read(stand, log, i);
    stand_close(log);
    log = stand_open(stand);
    for (unsigned i = 0; i < 103; i++) check_read(stand, log, i);
    stand_close(log);
}

LOG_TEST(log_read_by_a_thread_finds_the_same)
{
    struct log *log = stand_open(stand);

    stand_append(stand, log, 100);
    for (unsigned i = 0; i < 100; i++) {
        test_fault("pread_cached", -EAGAIN, 10);
        check_read(stand, log, i);
    }
    stand_close(log);
}

LOG_TEST(log_read_of_what_is_no_record_says_so)
{
    struct log *log = stand_open(stand);
    unsigned char data[STAND_RECORD_BYTES_MAX];
    struct log_record record;
    uint64_t position;

    stand_append(stand, log, 5);
    position = stand->places[3].position;
    CHECK_INT(log_read(log, 0, data, sizeof data, &record), ==, -ENOENT);
    CHECK_INT(log_read(log, LOG_POSITION_FIRST, data, sizeof data, &record), ==, -ENOENT);
    CHECK_INT(log_read(log, stand->places[4].end + 4096, data, sizeof data, &record), ==, -ENOENT);
    CHECK_INT(log_read(log, UINT64_MAX, data, sizeof data, &record), ==, -ENOENT);
    CHECK_INT(log_read(log, position + 8, data, sizeof data, &record), ==, -EBADMSG);
    CHECK_INT(log_read(log, position, data, 1, &record), ==, -EMSGSIZE);
    CHECK_INT(record.bytes, >, 1);
    stand_close(log);
}

LOG_TEST(log_read_of_a_damaged_record_names_file_and_offset)
{
    struct log *log = stand_open(stand);
    unsigned char data[STAND_RECORD_BYTES_MAX];
    struct log_record record;

    stand_append(stand, log, 5);
    stand_flip(stand, "0000000000000001.log",
               LOG_HEADER_BYTES + stand->places[2].position - LOG_POSITION_FIRST + LOG_FRAME_BYTES);
    CHECK_INT(log_read(log, stand->places[2].position, data, sizeof data, &record), ==, -EBADMSG);
    CHECK_CONTAINS(weir_why(), "0000000000000001.log, offset");
    check_read(stand, log, 3);
    stand_close(log);
}

/* ---- Letting go, and compaction ---- */

struct move_state {
    struct stand *stand;
    struct log *log;
    unsigned moved;
};

/* Every tenth record is needed for ever. */
static int move_tenth(void *arg, const struct log_record *record)
{
    struct move_state *state = arg;
    struct iovec part = {(void *)(uintptr_t)record->data, record->bytes};
    struct log_options options = {.use = LOG_FOR_COMPACTION, .tag = record->tag};
    struct log_place place;
    uint64_t number;
    int r;

    memcpy(&number, record->data, 8);
    if (number % 10 != 0) return 0;
    r = log_append(state->log, &part, 1, &options, &place);
    if (r < 0) return r;
    log_live(state->log,
             &(struct log_live){record->position, -(int64_t)log_frame_size(record->bytes)}, 1);
    log_live(state->log, &(struct log_live){place.position, (int64_t)log_frame_size(record->bytes)},
             1);
    state->moved++;
    return 0;
}

LOG_TEST(log_compaction_keeps_disk_use_within_twice_what_is_needed)
{
    struct log *log = stand_open(stand);
    struct move_state state = {stand, log, 0};
    const struct log_mover mover = {move_tenth, &state};
    struct log_figures figures;
    uint64_t used;

    for (int i = 0; i < 100; i++) {
        for (int j = 0; j < 10; j++) CHECK_OK(stand_append_one(stand, log, LOG_FOR_NEW));
        log_live(log,
                 &(struct log_live){
                     stand->places[10 * i].position,
                     (int64_t)(stand->places[10 * i].end - stand->places[10 * i].position)},
                 1);
        while (log_compaction_is_due(log)) {
            int r = log_compact(log, &mover);
            CHECK_OK(r);
            if (r == 0) break;
            /* The keeper lets it go by itself: wait for it by its effect. */
            do {
                CHECK_OK(weir_checkpoint());
                log_figures(log, &figures);
            } while (figures.first < stand->places[0].position + 1 && figures.error == 0 &&
                     figures.segment_count > 100);
        }
    }
    CHECK_INT(state.moved, >, 0);
    do { /* the last ones that were trimmed */
        CHECK_OK(weir_checkpoint());
        log_figures(log, &figures);
        used = figures.segment_count * figures.segment_bytes;
    } while (used > 2 * (uint64_t)figures.live_bytes + 2 * figures.segment_bytes);
    CHECK_INT(figures.spare_count, <=, 4);
    CHECK_INT(figures.compacted_bytes, >, 0);
    stand_close(log);
}

/* The owner finds out that it needs nothing of all that. */
static int trim_meanwhile(void *arg, const struct log_record *record)
{
    struct move_state *state = arg;
    struct log_figures figures;

    log_trim(state->log, state->stand->places[state->stand->appended - 1].position);
    do {
        CHECK_OK(weir_checkpoint());
        log_figures(state->log, &figures);
    } while (figures.first <= record->position);
    state->moved++;
    return 0;
}

LOG_TEST(log_compaction_ends_when_its_segment_is_trimmed_meanwhile)
{
    struct log *log = stand_open(stand);
    struct move_state state = {stand, log, 0};
    const struct log_mover mover = {trim_meanwhile, &state};

    stand_append(stand, log, 200);
    log_live(log, &(struct log_live){stand->places[0].position, 100}, 1);
    CHECK_INT(log_compact(log, &mover), ==, 1);
    CHECK_INT(state.moved, ==, 1);
    stand_append(stand, log, 1);
    stand_close(log);
}

LOG_TEST(log_trim_uses_segments_again)
{
    struct log *log = stand_open(stand);
    struct log_figures figures;

    for (int i = 0; i < 100; i++) {
        stand_append(stand, log, 10);
        log_trim(log, stand->places[stand->appended - 1].end);
    }
    do {
        CHECK_OK(weir_checkpoint());
        log_figures(log, &figures);
    } while (figures.segment_count > 1);
    stand_close(log);
    CHECK_INT(stand_files(stand, ".log"), ==, 1);
    CHECK_INT(stand_files(stand, ".spare"), <=, 4);
    log = stand_open(stand);
    CHECK_INT(stand->next, ==, 1000);
    CHECK_INT(stand->replayed, <, 100);
    stand_append(stand, log, 1);
    stand_close(log);
}

/* ---- Copies ---- */

LOG_TEST(log_copy_of_a_log_in_use_opens_and_has_everything)
{
    struct log *log = stand_open(stand);
    char copy[128], partial[160];

    stand_append(stand, log, 200);
    (void)snprintf(copy, sizeof copy, "%s-copy", stand->path);
    (void)snprintf(partial, sizeof partial, "%s.partial", copy);
    CHECK_OK(log_copy(log, copy));
    CHECK_INT(access(partial, F_OK), !=, 0);
    CHECK_INT(log_copy(log, copy), ==, -EEXIST);
    stand_append(stand, log, 10);
    stand_close(log);
    stand->spec.path = copy;
    stand->spec.create = false;
    log = stand_open(stand);
    stand_check(stand, 200);
    stand_close(log);
    folder_remove_all(copy);
}
