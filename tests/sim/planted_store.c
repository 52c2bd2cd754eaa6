/* planted_store.c - bugs that are planted in the store's log, found by the program of store_log.h.
 * */
#include "sim/planted.h"
#include "sim/store_log.h"
#include "store/log.h"

PLANTED_CASE(LOG_ACKNOWLEDGED_UNSYNCED, store_log_program, .runs_max = 200,
             .begin = store_log_begin, .faults = {.kill = 100})
PLANTED_CASE(LOG_TAIL_CUT_EARLY, store_log_program, .runs_max = 200, .begin = store_log_begin,
             .faults = {.kill = 100})
PLANTED_CASE(LOG_SEGMENT_NOT_HEADED, store_log_program, .runs_max = 200, .begin = store_log_begin,
             .faults = {.kill = 100})
PLANTED_CASE(LOG_FOLDER_NOT_SYNCED, store_log_program, .runs_max = 500, .begin = store_log_begin,
             .faults = {.kill = 100})
PLANTED_CASE(LOG_RECOVERED_UNSYNCED, store_log_program, .runs_max = 3000, .begin = store_log_begin,
             .faults = {.kill = 100, .sync_error = 40})
PLANTED_CASE(LOG_SYNC_ERROR_FORGOTTEN, store_log_program, .runs_max = 1000,
             .begin = store_log_begin, .faults = {.kill = 100, .sync_error = 30})

/* ---- A torn end that is as long as what is written next ---- */

enum { FIRST_TAG = 1, SECOND_TAG, THIRD_TAG, FIRST_BYTES = 728, SECOND_BYTES = 8 };

static int life;
static bool saw_second, is_written;

static int look(void *arg, const struct log_record *record)
{
    if (record->tag == SECOND_TAG) *(bool *)arg = true;
    return 0;
}

static int put(struct log *log, uint16_t tag, size_t bytes, enum log_durability durability)
{
    static unsigned char data[FIRST_BYTES];
    struct iovec part = {data, bytes};
    struct log_options options = {.use = LOG_FOR_NEW, .tag = tag};
    struct log_place place;
    int r = log_append_now(log, &part, 1, &options, &place);

    return r < 0 || durability == LOG_MEMORY ? r : log_wait(log, place.end, durability);
}

static int torn_host(void *arg)
{
    bool found = false;
    const struct log_spec spec = {.path = "/store",
                                  .create = true,
                                  .segment_bytes = 4096,
                                  .buffer_bytes = 2048,
                                  .record_bytes_max = 1000,
                                  .replay = look,
                                  .arg = &found};
    struct log *log = NULL;

    (void)arg;
    WEIR_DEADLINE(100000) {
        CHECK_OK(log_open(&spec, &log));
        if (life == 0) {
            CHECK_OK(put(log, FIRST_TAG, FIRST_BYTES, LOG_MEMORY));
            CHECK_OK(put(log, SECOND_TAG, SECOND_BYTES, LOG_WRITTEN));
        } else if (life == 1) {
            saw_second = found;
            CHECK_OK(put(log, THIRD_TAG, FIRST_BYTES, LOG_SYNCED));
        } else if (found && !saw_second) {
            weir_sim_fail("a record that was gone is back");
        }
        is_written = true;
        CHECK_INT(weir_sleep(50000), ==, 0);
    }
    return log_close(log);
}

static int torn_end(void *arg)
{
    weir_sim_host *host;

    (void)arg;
    saw_second = is_written = false;
    life = 0;
    CHECK_OK(weir_sim_host_start(&(weir_sim_host_spec){.name = "store", .fn = torn_host}, &host));
    for (life = 0; life < 3; life++) {
        if (life > 0) CHECK_OK(weir_sim_host_restart(host));
        while (!is_written) CHECK_OK(weir_sleep(1));
        is_written = false;
        weir_sim_host_kill(host);
    }
    return 0;
}
PLANTED_CASE(LOG_TAIL_NOT_CUT, torn_end, .runs_max = 200)

/* ---- A segment that is let go: what is needed of it is on disk elsewhere ---- */

enum { KEPT_TAG = 4, OTHER_TAG, KEPT_BYTES = 600, KEPT_FILL = 14, KEPT_LOOKS = 30 };

static bool is_kept, is_looked_at;

static int look_for_kept(void *arg, const struct log_record *record)
{
    if (record->tag == KEPT_TAG) *(bool *)arg = true;
    return 0;
}

static int keep(void *arg, const struct log_record *record)
{
    struct log_options options = {.use = LOG_FOR_COMPACTION, .tag = KEPT_TAG};
    struct iovec part = {(void *)(uintptr_t)record->data, record->bytes};
    struct log_place place;
    int r;

    if (record->tag != KEPT_TAG) return 0;
    r = log_append(arg, &part, 1, &options, &place);
    if (r == 0) log_live(arg, &(struct log_live){place.position, KEPT_BYTES}, 1);
    return r;
}

/* One record that is needed, others that are not; then the first segment is let go. */
static int keep_one(struct log *log)
{
    const struct log_mover mover = {keep, log};
    struct log_figures figures;
    int r;

    log_figures(log, &figures);
    log_live(log, &(struct log_live){figures.first, KEPT_BYTES}, 1); /* in the first segment */
    r = put(log, KEPT_TAG, KEPT_BYTES, LOG_SYNCED);
    is_kept = r == 0;
    for (int i = 0; r == 0 && i < KEPT_FILL; i++) {
        r = put(log, OTHER_TAG, KEPT_BYTES, LOG_SYNCED);
        if (r == WEIR_EOVERLOAD) r = weir_sleep(1);
    }
    if (r == 0) r = log_compact(log, &mover);
    for (int i = 0; r >= 0 && i < KEPT_LOOKS; i++) r = weir_yield(); /* and the power is cut */
    return r;
}

static int recycled_host(void *arg)
{
    bool found = false;
    const struct log_spec spec = {.path = "/store",
                                  .create = true,
                                  .segment_bytes = 4096,
                                  .buffer_bytes = 2048,
                                  .record_bytes_max = 1000,
                                  .replay = look_for_kept,
                                  .arg = &found};
    struct log *log = NULL;
    int r = 0;

    (void)arg;
    WEIR_DEADLINE(100000) {
        r = log_open(&spec, &log);
        if (r < 0) return r;
        if (is_kept && !found) weir_sim_fail("a record that is needed is gone");
        if (is_kept)
            is_looked_at = true;
        else
            r = keep_one(log);
    }
    return r < 0 ? r : log_close(log);
}

static int recycled_early(void *arg)
{
    weir_sim_host *host;

    (void)arg;
    is_kept = is_looked_at = false;
    CHECK_OK(
        weir_sim_host_start(&(weir_sim_host_spec){.name = "store", .fn = recycled_host}, &host));
    for (int tries = 0; !is_looked_at && tries < 1000; tries++) {
        CHECK_OK(weir_sleep(1));
        if (!weir_sim_host_running(host)) CHECK_OK(weir_sim_host_restart(host));
    }
    return 0;
}
PLANTED_CASE(LOG_RECYCLED_TOO_EARLY, recycled_early, .runs_max = 1000, .faults = {.kill = 300})
