/* log_faults_test.c - {no space, errors, short writes, failed syncs, flipped bits, truncation, no
 * memory} x {append, roll, copy, compact, recover}: whatever fails, nothing that was acknowledged
 * is lost, and damage is told. And every call, allocation and suspension point failing in turn. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit/store/log_test.h"

enum fault { NO_SPACE, IO_ERROR, SHORT_WRITE, SYNC_FAILS, BIT_FLIP, TRUNCATION, NO_MEMORY };
enum operation { APPEND, ROLL, COPY, COMPACT, RECOVER };

static enum fault fault;
static unsigned acknowledged;
static char copy_path[128];

static void inject(struct stand *stand)
{
    switch (fault) {
    case NO_SPACE: test_fault("pwrite", -ENOSPC, 2); break;
    case IO_ERROR:
        test_fault("pwrite", -EIO, 1);
        test_fault("pread_cached", -EIO, 1);
        test_fault("pread", -EIO, 1);
        break;
    case SHORT_WRITE: break; /* from the begin on */
    case SYNC_FAILS: test_fault("fsync", -EIO, 1); break;
    case BIT_FLIP:
        stand_flip(stand, "0000000000000001.log",
                   LOG_HEADER_BYTES + stand->places[2].position - LOG_POSITION_FIRST +
                       LOG_FRAME_BYTES + 5);
        break;
    case TRUNCATION: stand_cut(stand, "0000000000000001.log", 2000); break;
    case NO_MEMORY: test_fail_alloc_at(1); break;
    }
}

static void mend(void)
{
    test_fault("pwrite", -EIO, 0);
    test_fault("pread", -EIO, 0);
    test_fault("pread_cached", -EIO, 0);
    test_fault("fsync", -EIO, 0);
    test_fail_alloc_at(0);
}

/* Append one and wait for it. */
static int put(struct stand *stand, struct log *log)
{
    int r = stand_append_one(stand, log, LOG_FOR_NEW);

    if (r == 0) r = log_wait(log, stand->places[stand->appended - 1].end, LOG_SYNCED);
    if (r == 0) acknowledged = stand->appended;
    return r;
}

static int move_all(void *arg, const struct log_record *record)
{
    struct log_place place;
    struct iovec part = {(void *)(uintptr_t)record->data, record->bytes};

    /* Under another tag, which nobody counts as a record of the test. */
    return log_append(arg, &part, 1, &(struct log_options){.use = LOG_FOR_COMPACTION}, &place);
}

static int operate(struct stand *stand, struct log *log, enum operation operation)
{
    struct log_mover mover = {move_all, log};
    struct log_figures before, now;
    int r = 0;

    log_figures(log, &before);
    switch (operation) {
    case APPEND: return put(stand, log);
    case ROLL:
        for (now = before; r == 0 && now.segment_count == before.segment_count;) {
            r = put(stand, log);
            log_figures(log, &now);
        }
        return r;
    case COPY: return log_copy(log, copy_path);
    case COMPACT:
        log_live(log, &(struct log_live){before.first, 100}, 1);
        return log_compact(log, &mover);
    case RECOVER: break;
    }
    return 0;
}

static bool is_damage(void)
{
    return fault == BIT_FLIP || fault == TRUNCATION;
}

/* What an operation may say to a fault. */
static void check_result(int r)
{
    static const int errors[][3] = {
        [NO_SPACE] = {-ENOSPC, 0, 0},  [IO_ERROR] = {-EIO, 0, 0},
        [SHORT_WRITE] = {0, 0, 0},     [SYNC_FAILS] = {-EIO, 0, 0},
        [BIT_FLIP] = {-EBADMSG, 0, 0}, [TRUNCATION] = {-EBADMSG, -EIO, 0},
        [NO_MEMORY] = {-ENOMEM, 0, 0},
    };

    if (r >= 0) return;
    for (int i = 0; i < 3; i++)
        if (errors[fault][i] == r) return;
    TEST_FAIL("fault %d gave %s (%s)", fault, weir_strerror(r), weir_why());
}

static int try_open(struct stand *stand, struct log **ret_log)
{
    int r = stand_try(stand, ret_log);

    if (r == 0) CHECK_INT(stand->replayed, >=, acknowledged);
    return r;
}

static enum operation operation_now;

/* Segments of a copy that was not finished. */
static unsigned files_of_copy(void)
{
    static struct stand copy;

    (void)snprintf(copy.path, sizeof copy.path, "%.50s.partial", copy_path);
    return stand_has(&copy, ".") ? stand_files(&copy, ".log") : 0;
}

static int cell(struct stand *stand)
{
    struct log *log = stand_open(stand);
    int r;

    acknowledged = 0;
    for (int i = 0; i < 60; i++) CHECK_OK(put(stand, log)); /* more than one segment */
    (void)snprintf(copy_path, sizeof copy_path, "%s-copy", stand->path);
    if (operation_now == RECOVER) {
        stand_close(log);
        inject(stand);
        r = try_open(stand, &log);
        check_result(r);
        mend();
        if (r == 0) stand_close(log);
    } else {
        inject(stand);
        r = operate(stand, log, operation_now);
        check_result(r);
        mend();
        /* A copy that fails takes no space. */
        if (operation_now == COPY && r < 0) CHECK_INT(files_of_copy(), ==, 0);
        check_result(log_close(log));
    }
    if (is_damage()) {
        /* It is told, with file and offset, and told again. */
        for (int i = 0; i < 2; i++) {
            CHECK_INT(try_open(stand, &log), ==, -EBADMSG);
            CHECK_CONTAINS(weir_why(), ".log, offset");
        }
    } else if (operation_now != COMPACT) {
        CHECK_OK(try_open(stand, &log));
        CHECK(!stand->is_wrong);
        CHECK_OK(put(stand, log));
        stand_close(log);
    } else {
        CHECK_OK(stand_try(stand, &log)); /* records were moved: their order is another */
        stand_close(log);
    }
    folder_remove_all(copy_path);
    return 0;
}

static void run_cell(enum fault fault_, enum operation operation)
{
    static struct stand stand;
    char partial[160];

    fault = fault_;
    operation_now = operation;
    (void)weir_test_calls("pwrite"); /* the table is there before the runtime */
    stand_make(&stand);
    if (fault_ == SHORT_WRITE) test_short_io(700);
    CHECK_OK(stand_run(&stand, cell));
    (void)snprintf(partial, sizeof partial, "%s.partial", copy_path);
    folder_remove_all(partial);
    stand_remove(&stand);
}

#define CELL(name_, fault_, operation_) \
    TEST(name_)                         \
    {                                   \
        run_cell(fault_, operation_);   \
    }

CELL(log_fault_no_space_at_append, NO_SPACE, APPEND)
CELL(log_fault_no_space_at_roll, NO_SPACE, ROLL)
CELL(log_fault_no_space_at_copy, NO_SPACE, COPY)
CELL(log_fault_no_space_at_compact, NO_SPACE, COMPACT)
CELL(log_fault_no_space_at_recover, NO_SPACE, RECOVER)
CELL(log_fault_io_error_at_append, IO_ERROR, APPEND)
CELL(log_fault_io_error_at_roll, IO_ERROR, ROLL)
CELL(log_fault_io_error_at_copy, IO_ERROR, COPY)
CELL(log_fault_io_error_at_compact, IO_ERROR, COMPACT)
CELL(log_fault_io_error_at_recover, IO_ERROR, RECOVER)
CELL(log_fault_short_write_at_append, SHORT_WRITE, APPEND)
CELL(log_fault_short_write_at_roll, SHORT_WRITE, ROLL)
CELL(log_fault_short_write_at_copy, SHORT_WRITE, COPY)
CELL(log_fault_short_write_at_compact, SHORT_WRITE, COMPACT)
CELL(log_fault_short_write_at_recover, SHORT_WRITE, RECOVER)
CELL(log_fault_sync_fails_at_append, SYNC_FAILS, APPEND)
CELL(log_fault_sync_fails_at_roll, SYNC_FAILS, ROLL)
CELL(log_fault_sync_fails_at_copy, SYNC_FAILS, COPY)
CELL(log_fault_sync_fails_at_compact, SYNC_FAILS, COMPACT)
CELL(log_fault_sync_fails_at_recover, SYNC_FAILS, RECOVER)
CELL(log_fault_bit_flip_at_append, BIT_FLIP, APPEND)
CELL(log_fault_bit_flip_at_roll, BIT_FLIP, ROLL)
CELL(log_fault_bit_flip_at_copy, BIT_FLIP, COPY)
CELL(log_fault_bit_flip_at_compact, BIT_FLIP, COMPACT)
CELL(log_fault_bit_flip_at_recover, BIT_FLIP, RECOVER)
CELL(log_fault_truncation_at_append, TRUNCATION, APPEND)
CELL(log_fault_truncation_at_roll, TRUNCATION, ROLL)
CELL(log_fault_truncation_at_copy, TRUNCATION, COPY)
CELL(log_fault_truncation_at_compact, TRUNCATION, COMPACT)
CELL(log_fault_truncation_at_recover, TRUNCATION, RECOVER)
CELL(log_fault_no_memory_at_append, NO_MEMORY, APPEND)
CELL(log_fault_no_memory_at_roll, NO_MEMORY, ROLL)
CELL(log_fault_no_memory_at_copy, NO_MEMORY, COPY)
CELL(log_fault_no_memory_at_compact, NO_MEMORY, COMPACT)
CELL(log_fault_no_memory_at_recover, NO_MEMORY, RECOVER)

/* ---- Particular ones ---- */

static int sync_fails(struct stand *stand)
{
    struct log *log = stand_open(stand);
    struct log_figures figures;
    struct log_why why;
    int r = 0;

    for (int i = 0; i < 3; i++) CHECK_OK(put(stand, log));
    do { /* all spares are there: the next sync is that of an append */
        CHECK_OK(weir_checkpoint());
        log_figures(log, &figures);
    } while (figures.spare_count < 2);
    test_fault("fsync", -EIO, 1);
    r = put(stand, log);
    CHECK_INT(r, ==, -EIO);
    CHECK_INT(put(stand, log), ==, -EIO); /* for good, although syncs would succeed again */
    log_why(log, &why);
    CHECK_CONTAINS(why.text, "sync of 0000000000000001.log");
    {
        unsigned char data[STAND_RECORD_BYTES_MAX];
        struct log_record record;

        CHECK_OK(log_read(log, stand->places[1].position, data, sizeof data, &record));
    }
    CHECK_INT(log_close(log), ==, -EIO);
    CHECK_OK(try_open(stand, &log));
    stand_close(log);
    return 0;
}

TEST(log_whose_sync_fails_stops_and_reads_on)
{
    static struct stand stand;

    acknowledged = 0;
    (void)weir_test_calls("fsync");
    stand_make(&stand);
    CHECK_OK(stand_run(&stand, sync_fails));
    stand_remove(&stand);
}

static int disk_is_full(struct stand *stand)
{
    struct log *log = stand_open(stand);
    struct log_figures figures;
    unsigned existing = 0;
    int r = 0;

    CHECK_OK(put(stand, log));
    do {
        CHECK_OK(weir_checkpoint());
        log_figures(log, &figures);
    } while (figures.spare_count < 2);
    /* No new file can be made from now on; what is there can be written. */
    test_fault("open", -ENOSPC, 1000000);
    while (r == 0) r = put(stand, log);
    CHECK_INT(r, ==, -ENOSPC);
    log_figures(log, &figures);
    CHECK_INT(figures.room_error, ==, -ENOSPC);
    CHECK_INT(figures.error, ==, 0);
    /* Work that there is goes on: a segment's worth at least. */
    for (r = 0; r == 0; existing++) r = stand_append_one(stand, log, LOG_FOR_EXISTING);
    CHECK_INT(r, ==, -ENOSPC);
    CHECK_INT(existing, >, 20);
    log_figures(log, &figures);
    test_note("existing %u, spares %d, segments %d, end %llu", existing, (int)figures.spare_count,
              (int)figures.segment_count, (unsigned long long)figures.end);
    /* And what makes room has a reserve behind that. */
    CHECK_OK(stand_append_one(stand, log, LOG_FOR_COMPACTION));
    CHECK_OK(log_wait(log, stand->places[stand->appended - 1].end, LOG_SYNCED));
    acknowledged = stand->appended;
    test_fault("open", -ENOSPC, 0);
    do { /* each refusal makes the keeper look */
        r = put(stand, log);
        CHECK_OK(weir_checkpoint());
    } while (r == -ENOSPC);
    CHECK_OK(r);
    stand_close(log);
    CHECK_OK(try_open(stand, &log));
    stand_close(log);
    return 0;
}

TEST(log_on_a_full_disk_refuses_new_work_first_and_recovers)
{
    static struct stand stand;

    acknowledged = 0;
    (void)weir_test_calls("open");
    stand_make(&stand);
    CHECK_OK(stand_run(&stand, disk_is_full));
    stand_remove(&stand);
}

/* Wait for the keeper, by what it has done. */
static void await_room_error(struct log *log, int error)
{
    struct log_figures figures;

    do {
        CHECK_OK(weir_checkpoint());
        log_figures(log, &figures);
    } while (figures.room_error != error);
}

static void await_segments(struct log *log, unsigned count)
{
    struct log_figures figures;

    do {
        CHECK_OK(weir_checkpoint());
        log_figures(log, &figures);
    } while (figures.segment_count != count || figures.spare_count < 2);
}

static int full_disk_is_trimmed(struct stand *stand)
{
    struct log *log = stand_open(stand);
    struct log_figures figures;
    unsigned existing = 0;
    uint64_t begin = 0;
    int r = 0;

    do { /* three segments that are full, and most of another one */
        CHECK_OK(put(stand, log));
        log_figures(log, &figures);
        if (figures.segment_count < 4) begin = figures.end;
    } while (figures.end - begin < figures.segment_bytes * 3 / 4);
    stand_close(log);
    stand_remove_files(stand, ".spare");
    test_fault("rename", -ENOSPC, 1000000);
    CHECK_OK(try_open(stand, &log));
    await_room_error(log, -ENOSPC);
    CHECK_INT(put(stand, log), ==, -ENOSPC);
    /* From now on there is only what is let go. */
    test_fault("open", -ENOSPC, 1000000);
    test_fault("rename", -ENOSPC, 0);
    log_trim(log, stand->places[stand->appended - 1].position);
    await_segments(log, 1);
    while (r == 0) r = put(stand, log);
    CHECK_INT(r, ==, -ENOSPC);
    log_figures(log, &figures);
    CHECK_INT(figures.spare_count, >=, 2);
    for (r = 0; r == 0; existing++) r = stand_append_one(stand, log, LOG_FOR_EXISTING);
    CHECK_INT(r, ==, -ENOSPC);
    CHECK_INT(existing, >, 20);
    CHECK_OK(stand_append_one(stand, log, LOG_FOR_COMPACTION));
    test_fault("open", -ENOSPC, 0);
    stand_close(log);
    return 0;
}

TEST(log_on_a_full_disk_keeps_what_is_let_go_for_existing_work)
{
    static struct stand stand;

    acknowledged = 0;
    (void)weir_test_calls("open");
    stand_make(&stand);
    CHECK_OK(stand_run(&stand, full_disk_is_trimmed));
    stand_remove(&stand);
}

/* ---- Every point in turn ---- */

static int first_life(struct stand *stand)
{
    struct log *log;
    int r = try_open(stand, &log), closed;

    if (r < 0) return r;
    for (int i = 0; i < 4 && r == 0; i++) r = put(stand, log);
    closed = log_close(log);
    return r < 0 ? r : closed;
}

static int second_life(struct stand *stand)
{
    struct log *log;
    int r = try_open(stand, &log);

    if (r < 0) return r;
    if (stand->is_wrong) TEST_FAIL("a record is not as it was appended");
    return log_close(log);
}

static int two_lives(void *arg)
{
    struct stand *stand = arg;
    int first, second;

    stand_make(stand);
    stand->spec.segment_bytes = LOG_SEGMENT_BYTES_MIN;
    stand->spec.buffer_bytes = 2048;
    acknowledged = 0;
    first = stand_run(stand, first_life);
    second = stand_run(stand, second_life);
    /* One thing goes wrong: so the next try is undisturbed. */
    if (second < 0) CHECK_OK(stand_run(stand, second_life));
    stand_remove(stand);
    return first < 0 ? first : second;
}

TEST_WITH(log_survives_every_allocation_that_fails, .timeout_ms = 60000)
{
    static struct stand stand;

    CHECK_INT(test_sweep_alloc(two_lives, &stand), >, 10);
}

TEST_WITH(log_survives_every_system_call_that_fails, .timeout_ms = 120000)
{
    static struct stand stand;

    CHECK_INT(test_sweep_calls(two_lives, &stand, -EIO), >, 50);
}

TEST_WITH(log_survives_a_cancel_at_every_point, .timeout_ms = 60000)
{
    static struct stand stand;

    CHECK_INT(test_sweep_cancel(two_lives, &stand), >, 5);
}
