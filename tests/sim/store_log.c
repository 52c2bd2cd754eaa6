/* store_log.c - the log of the store, with crashes and every fault of a disk: see store_log.h. */
#include "sim/store_log.h"

#include <errno.h>
#include <string.h>

#include "harness/test.h"
#include "store/log.h"

enum {
    WRITERS = 3,
    VERSIONS = 12, /* that each is to get acknowledged */
    SEGMENT_BYTES = 4096,
    BUFFER_BYTES = 2048,
    VALUE_BYTES_MAX = 900,
    GONE_MAX = 1000,
    STARTS_MAX = 60, /* a run with more would tell nothing new */
};

struct value {
    uint32_t key;
    uint32_t version;
    unsigned char filler[VALUE_BYTES_MAX];
};

/* What happened, whichever start of the host it was. */
static uint32_t appended[WRITERS];
static uint32_t acknowledged[WRITERS];
/* A start of the host has not found it: so it is gone, and none may find it again. */
static bool is_gone[WRITERS][GONE_MAX];
static bool is_done, looks_only, is_over;
static int starts;

/* Of the running program. */
static struct log *store;
static uint32_t newest[WRITERS];
static uint64_t newest_position[WRITERS];
static size_t newest_bytes[WRITERS];
static const char *wrong;
static uint64_t replay_last;
static weir_config config;

void store_log_begin(void *arg)
{
    (void)arg;
    memset(appended, 0, sizeof appended);
    memset(acknowledged, 0, sizeof acknowledged);
    memset(is_gone, 0, sizeof is_gone);
    is_done = looks_only = is_over = false;
    starts = 0;
    store = NULL;
    wrong = NULL;
    config = (weir_config){.workers = 1};
}

static void begin_wide(void *arg)
{
    store_log_begin(arg);
    config.workers = 2;
}

static size_t value_make(struct value *value, uint32_t key, uint32_t version)
{
    /* All frames and marks are multiples of 24 bytes: so frames often end where others, of before a
     * crash, have begun. */
    size_t filler = version % 3 == 0 ? 720 : (key * 7 + version * 5) % 8 * 24;

    value->key = key;
    value->version = version;
    memset(value->filler, (int)(key * 31 + version), filler);
    return offsetof(struct value, filler) + filler;
}

/* Whether a record is a value that was once appended. */
static bool value_is_right(const struct log_record *record)
{
    static struct value expected;
    uint32_t head[2];

    if (record->bytes < sizeof head) return false;
    memcpy(head, record->data, sizeof head);
    if (head[0] >= WRITERS || head[1] == 0 || head[1] > appended[head[0]]) return false;
    return value_make(&expected, head[0], head[1]) == record->bytes &&
           memcmp(&expected, record->data, record->bytes) == 0 && record->tag == head[0];
}

/* The newest version of a key is the one that counts. */
static void note(uint32_t key, uint32_t version, uint64_t position, size_t bytes)
{
    if (version < newest[key]) return;
    if (store && newest_bytes[key] > 0)
        log_live(store, &(struct log_live){newest_position[key], -(int64_t)newest_bytes[key]}, 1);
    newest[key] = version;
    newest_position[key] = position;
    newest_bytes[key] = bytes;
    if (store) log_live(store, &(struct log_live){position, (int64_t)bytes}, 1);
}

static int replay(void *arg, const struct log_record *record)
{
    uint32_t head[2];

    (void)arg;
    if (record->position <= replay_last) wrong = "positions do not rise";
    replay_last = record->position;
    if (!value_is_right(record)) {
        wrong = "a record that was never appended";
        return 0;
    }
    memcpy(head, record->data, sizeof head);
    if (head[1] < GONE_MAX && is_gone[head[0]][head[1]]) wrong = "a record that was gone is back";
    note(head[0], head[1], record->position, record->bytes);
    return 0;
}

static int put(uint32_t key, uint32_t version, enum log_use use, struct log_place *place)
{
    static struct value values[WRITERS + 1];
    struct value *value = &values[use == LOG_FOR_COMPACTION ? WRITERS : key];
    struct iovec part = {value, value_make(value, key, version)};
    struct log_options options = {.use = use, .tag = (uint16_t)key};
    int r = log_append(store, &part, 1, &options, place);

    if (r == 0) note(key, version, place->position, part.iov_len);
    return r;
}

static int write_values(void *arg)
{
    uint32_t key = *(uint32_t *)arg;
    int r = 0;

    while (r == 0 && acknowledged[key] < VERSIONS) {
        uint32_t version = appended[key] + 1;
        struct log_place place;

        appended[key] = version; /* before: it may be on disk although we never hear of it */
        r = put(key, version, weir_sim_choose(2) ? LOG_FOR_EXISTING : LOG_FOR_NEW, &place);
        if (r == -ENOSPC) {
            r = weir_sleep(10);
            continue;
        }
        if (r == 0 && weir_sim_choose(4) == 1) r = log_wait(store, place.end, LOG_WRITTEN);
        if (r == 0) r = log_wait(store, place.end, LOG_SYNCED);
        if (r == 0) acknowledged[key] = version;
    }
    return r;
}

static int move(void *arg, const struct log_record *record)
{
    struct log_place place;
    uint32_t head[2];
    int r;

    (void)arg;
    if (!value_is_right(record)) weir_sim_fail("a record that was never appended was read");
    memcpy(head, record->data, sizeof head);
    if (newest_position[head[0]] != record->position) return 0;
    r = put(head[0], head[1], LOG_FOR_COMPACTION, &place);
    return r;
}

static int compact(void *arg)
{
    const struct log_mover mover = {move, NULL};
    int r = 0;

    (void)arg;
    while (r >= 0 && !is_done) {
        if (log_compaction_is_due(store)) r = log_compact(store, &mover);
        if (r == -ENOSPC) r = 0;
        if (r >= 0) r = weir_sleep(5);
    }
    return r;
}

static void check_recovered(void)
{
    if (wrong) weir_sim_fail("%s", wrong);
    for (int key = 0; key < WRITERS; key++) {
        if (newest[key] < acknowledged[key])
            weir_sim_fail("lost: version %u of key %d was acknowledged, and %u was found",
                          acknowledged[key], key, newest[key]);
        for (uint32_t version = newest[key] + 1; version <= appended[key]; version++)
            if (version < GONE_MAX) is_gone[key][version] = true;
    }
}

static int open_store(void)
{
    const struct log_spec spec = {.path = "/store",
                                  .create = true,
                                  .segment_bytes = SEGMENT_BYTES,
                                  .buffer_bytes = BUFFER_BYTES,
                                  .record_bytes_max = 1000,
                                  .replay = replay};
    struct log *log;
    int r;

    store = NULL;
    wrong = NULL;
    replay_last = 0;
    memset(newest, 0, sizeof newest);
    memset(newest_bytes, 0, sizeof newest_bytes);
    r = log_open(&spec, &log);
    if (r == -EBADMSG || r == -ENOTSUP || r == -EBUSY)
        weir_sim_fail("the store cannot be opened: %s", weir_why());
    if (r < 0) return r;
    check_recovered();
    store = log;
    for (int key = 0; key < WRITERS; key++)
        if (newest_bytes[key] > 0)
            log_live(store, &(struct log_live){newest_position[key], (int64_t)newest_bytes[key]},
                     1);
    return 0;
}

/* What was found once is found again: recovery has made sure of it. */
static int open_twice(void)
{
    uint32_t found[WRITERS];
    int r = open_store();

    if (r < 0) return r;
    memcpy(found, newest, sizeof found);
    r = log_close(store);
    if (r == 0) r = open_store();
    if (r < 0) return r;
    if (memcmp(found, newest, sizeof found) != 0)
        weir_sim_fail("the second recovery found something else than the first");
    return 0;
}

static int work(void)
{
    int r = 0, closed;

    WEIR_SCOPE(scope, &r, .name = "writers", .on_failure = WEIR_FAIL_FAST, .max_tasks = WRITERS + 1,
               .overflow = WEIR_REJECT) {
        weir_task_spec compactor = {.fn = compact};

        r = weir_task_spawn(scope, &compactor, NULL);
        WEIR_SCOPE(writers, &r, .name = "values", .on_failure = WEIR_FAIL_FAST,
                   .max_tasks = WRITERS, .overflow = WEIR_REJECT) {
            for (uint32_t key = 0; r == 0 && key < WRITERS; key++)
                r = weir_spawn(writers, write_values, &key, sizeof key);
        }
        is_done = r == 0;
    }
    closed = log_close(store);
    store = NULL;
    return r < 0 ? r : closed;
}

/* The host's program, at each of its starts. */
static int host_main(void *arg)
{
    int r = 0;

    (void)arg;
    if (++starts > STARTS_MAX) looks_only = true;
    WEIR_DEADLINE(600000) {
        r = looks_only ? open_twice() : open_store();
        if (r == 0 && !looks_only) {
            r = work();
        } else if (r == 0) {
            r = log_close(store);
            if (r == 0) is_over = true;
        }
    }
    return r;
}

int store_log_program(void *arg)
{
    weir_sim_host *host = NULL;
    int r = weir_sim_host_start(
        &(weir_sim_host_spec){.name = "store", .fn = host_main, .config = &config}, &host);

    (void)arg;
    for (int tries = 0; r == 0 && !is_over && tries < 4000; tries++) {
        WEIR_DEADLINE(1000000) r = weir_sleep(7);
        if (r < 0) break;
        if (weir_sim_choose(16) == 1) weir_sim_host_kill(host);
        if (is_done && !looks_only) {
            weir_sim_host_kill(host); /* the last power cut, then a look at what is there */
            looks_only = true;
        }
        if (!weir_sim_host_running(host) && !is_over) r = weir_sim_host_restart(host);
        if (r == -ENOMEM) r = 0; /* at the next try */
    }
    return r;
}

SIM_TEST(store_log_keeps_what_it_acknowledged_through_power_cuts, .runs_max = 400,
         .begin = store_log_begin, .faults = {.kill = 300})
{
    return store_log_program(arg);
}

SIM_TEST(store_log_keeps_what_it_acknowledged_when_disks_fail, .runs_max = 400,
         .begin = store_log_begin,
         .faults = {.disk_error = 150, .disk_full = 60, .sync_error = 80, .faults_max = 12})
{
    return store_log_program(arg);
}

SIM_TEST(store_log_keeps_what_it_acknowledged_when_all_goes_wrong, .runs_max = 400,
         .begin = store_log_begin, .any_result = true,
         .faults = {.kill = 400,
                    .disk_error = 200,
                    .disk_full = 100,
                    .sync_error = 100,
                    .no_memory = 300,
                    .faults_max = 16})
{
    return store_log_program(arg);
}

SIM_TEST(store_log_on_two_workers_keeps_what_it_acknowledged, .runs_max = 100, .begin = begin_wide,
         .faults = {.kill = 300, .sync_error = 200, .faults_max = 8})
{
    return store_log_program(arg);
}

/* ---- Cancel, on one host ---- */

static int write_until_cancelled(void)
{
    int r = 0;

    WEIR_SCOPE(scope, &r, .name = "values", .on_failure = WEIR_FAIL_FAST, .max_tasks = WRITERS,
               .overflow = WEIR_REJECT) {
        weir_sim_cancel_target(scope);
        for (uint32_t key = 0; r == 0 && key < WRITERS; key++)
            r = weir_spawn(scope, write_values, &key, sizeof key);
    }
    return r;
}

/* Writers are cancelled wherever they are; the log goes on, and is opened again. */
static int cancelled_rounds(void)
{
    int r = 0;

    for (int round = 0; round < 4 && r == 0; round++) {
        int written;

        r = open_store();
        if (r < 0) break;
        written = write_until_cancelled();
        if (written < 0 && written != WEIR_ECANCELED)
            weir_sim_fail("writers ended with %s", weir_strerror(written));
        r = log_close(store);
        store = NULL;
    }
    if (r == 0) r = open_twice();
    if (r == 0) r = log_close(store);
    return r;
}

SIM_TEST(store_log_goes_on_when_those_who_wait_are_cancelled, .runs_max = 400,
         .begin = store_log_begin, .faults = {.cancel = 40}, .any_result = true)
{
    int r = 0;

    WEIR_DEADLINE(600000) r = cancelled_rounds();
    if (r < 0 && r != WEIR_ECANCELED) weir_sim_fail("a round ended with %s", weir_strerror(r));
    return r == WEIR_ECANCELED ? 0 : r; /* before there was a target it is the root */
}
