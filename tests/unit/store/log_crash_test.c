/* log_crash_test.c - every state that a power cut can leave of a log, opened (crash_states.h): all
 * that was acknowledged is there, in order, and nothing else but what was appended; after a second
 * power cut recovery finds the same. */
#include <stdio.h>
#include <string.h>

#include "unit/store/crash_states.h"
#include "unit/store/log_test.h"

enum { RECORDS = 40, DISK_BYTES = 1 << 20, SEGMENT = 4096, BUFFER = 2048 };
enum mark { ACKNOWLEDGED, TRIMMED };

static unsigned sync_every; /* records */

/* ---- The run that is recorded ---- */

static int record_run(struct stand *stand)
{
    struct log *log;
    int r = 0;

    for (int life = 0; life < 2; life++) {
        CHECK_OK(stand_try(stand, &log));
        for (unsigned i = 0; i < RECORDS / 2 && r == 0; i++) {
            CHECK_OK(stand_append_one(stand, log, LOG_FOR_NEW));
            /* Batches of one or two, each written, and some of them synced together. */
            if (i % 2 == 1)
                CHECK_OK(log_wait(log, stand->places[stand->appended - 1].end, LOG_WRITTEN));
            if (i % sync_every != 0) continue;
            CHECK_OK(log_wait(log, stand->places[stand->appended - 1].end, LOG_SYNCED));
            crash_mark(ACKNOWLEDGED, stand->appended);
            if (i / sync_every == 12 / sync_every) {
                crash_mark(TRIMMED, stand->appended - 5);
                log_trim(log, stand->places[stand->appended - 5].position);
            }
        }
        CHECK_OK(log_close(log));
        crash_mark(ACKNOWLEDGED, stand->appended);
    }
    return 0;
}

static void record(struct stand *stand)
{
    memset(stand, 0, sizeof *stand);
    stand_make(stand);
    stand_remove(stand); /* it is on the disk in memory */
    stand->spec.path = "/store";
    stand->spec.segment_bytes = SEGMENT;
    stand->spec.buffer_bytes = BUFFER;
    crash_record_begin(DISK_BYTES);
    CHECK_OK(stand_run(stand, record_run));
    crash_record_end();
}

/* ---- Opening ---- */

static int recover(struct stand *stand)
{
    const struct log_recover_spec spec = {.create = true,
                                          .segment_bytes = SEGMENT,
                                          .spares_max = 4,
                                          .record = stand->spec.replay,
                                          .arg = stand};
    struct log_recovered found;
    struct log_folder folder;
    struct log_why why = {""};
    int r;

    stand->replayed = 0;
    stand->position_last = 0;
    stand->is_wrong = false;
    r = log_folder_open(&folder, crash_kernel(), "/store", true, &why);
    if (r == 0) r = log_folder_lock(&folder, &why);
    if (r == 0) r = log_recover(&folder, &spec, &found, &why);
    if (r < 0) TEST_FAIL("it cannot be opened: %s", why.text);
    log_recovered_free(&folder, &found);
    log_folder_close(&folder);
    return r;
}

static void check_state(void *arg, const unsigned marks[CRASH_MARKS])
{
    struct stand *stand = arg;
    unsigned replayed;
    uint64_t next;

    recover(stand);
    CHECK(!stand->is_wrong);
    next = stand->replayed > 0 ? stand->next : marks[TRIMMED];
    CHECK_INT(next, >=, marks[ACKNOWLEDGED]);
    CHECK_INT(next, <=, RECORDS);
    if (stand->replayed > 0) CHECK_INT(stand->first, <=, marks[TRIMMED]);
    replayed = stand->replayed;
    crash_again(); /* it has lost nothing that was found */
    recover(stand);
    CHECK(!stand->is_wrong);
    CHECK_INT(stand->replayed, ==, replayed);
}

static unsigned enumerate(struct stand *stand, unsigned states_per_prefix)
{
    return crash_enumerate(
        &(struct crash_look){.look = check_state, .arg = stand, .disk_bytes = DISK_BYTES},
        states_per_prefix);
}

TEST_WITH(log_recovers_from_thousands_of_crash_states, .timeout_ms = 60000)
{
    static struct stand stand;
    unsigned states = 0;

    for (sync_every = 1; sync_every <= 6; sync_every += 5) {
        record(&stand);
        states += enumerate(&stand, TEST_SLOW ? 4 : 40);
    }
    CHECK_INT(states, >, TEST_SLOW ? 200 : 2000);
}

TEST_WITH(log_recovers_from_a_hundred_thousand_crash_states, .long_only = true,
          .timeout_ms = 900000)
{
    static struct stand stand;
    const unsigned wanted = TEST_SLOW ? 10000 : 100000;
    unsigned states = 0;

    for (sync_every = 1; states < wanted; sync_every = sync_every % 12 + 1) {
        record(&stand);
        states += enumerate(&stand, 600);
    }
    printf("crash states opened: %u\n", states);
}
