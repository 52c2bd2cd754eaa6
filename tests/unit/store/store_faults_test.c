/* store_faults_test.c - {no space, errors, short writes, failed syncs, flipped bits, truncation, no
 * memory} x {append, roll, names, compact, recover}, for a store of jobs: whatever fails, it is an
 * error that says so, or nothing at all; nothing that was acknowledged is lost, and the store that
 * is opened next has just that, and at most what was under way. Damage is told, and told again. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "unit/store/log_test.h"
#include "unit/store/store_test.h"

enum fault { NO_SPACE, IO_ERROR, SHORT_WRITE, SYNC_FAILS, BIT_FLIP, TRUNCATION, NO_MEMORY };
enum operation { APPEND, ROLL, NAMES, COMPACT, RECOVER };

enum {
    KEPT = 8,        /* jobs that stay, from the first segment on */
    PAYLOAD = 16000, /* bytes of each job */
    NAMED = 200,     /* queues that only have settings */
    LITTER_MAX = 400,
    SETTING = 77,
};

static enum fault fault;
static enum operation operation;
/* What was acknowledged, and what was asked for and was not. */
static uint64_t kept[KEPT];
static unsigned extra_told, extra_asked;
static unsigned named_told;

/* ---- Faults ---- */

/* The oldest file of the log: it has jobs that are kept. */
static void oldest_file(const struct store_stand *stand, char name[64])
{
    DIR *folder = opendir(stand->path);
    const struct dirent *entry;

    CHECK(folder != NULL);
    name[0] = '\0';
    while ((entry = readdir(folder))) {
        size_t bytes = strlen(entry->d_name);

        if (bytes < 5 || bytes > 60 || strcmp(entry->d_name + bytes - 4, ".log") != 0) continue;
        if (name[0] == '\0' || strcmp(entry->d_name, name) < 0) strcpy(name, entry->d_name);
    }
    CHECK_INT(closedir(folder), ==, 0);
    CHECK(name[0] != '\0');
}

static void damage(const struct store_stand *stand)
{
    static struct stand files;
    char name[64];

    (void)snprintf(files.path, sizeof files.path, "%s", stand->path);
    do {
        oldest_file(stand, name); /* one that was let go of may go at this moment */
    } while (!stand_has(&files, name));
    if (fault == BIT_FLIP)
        stand_flip(&files, name, LOG_HEADER_BYTES + 3 * PAYLOAD);
    else
        stand_cut(&files, name, LOG_HEADER_BYTES + 3 * PAYLOAD);
}

static void inject(const struct store_stand *stand)
{
    switch (fault) {
    case NO_SPACE:
        /* A new segment finds no space; or a write does. */
        if (operation == ROLL)
            test_fault("open", -ENOSPC, 1000000);
        else
            test_fault("pwrite", -ENOSPC, 2);
        break;
    case IO_ERROR:
        if (operation == ROLL) {
            test_fault("rename", -EIO, 1);
        } else {
            test_fault("pwrite", -EIO, 1);
            test_fault("pread_cached", -EIO, 1);
            test_fault("pread", -EIO, 1);
        }
        break;
    case SHORT_WRITE: break; /* from the begin on */
    case SYNC_FAILS: test_fault("fsync", -EIO, 1); break;
    case BIT_FLIP:
    case TRUNCATION: damage(stand); break;
    case NO_MEMORY: test_fail_alloc_at(1); break;
    }
}

static void mend(void)
{
    static const char *const calls[] = {"open",  "rename",       "pwrite",
                                        "pread", "pread_cached", "fsync"};

    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) test_fault(calls[i], -EIO, 0);
    test_fail_alloc_at(0);
}

static bool is_damage(void)
{
    return fault == BIT_FLIP || fault == TRUNCATION;
}

/* What a call may say to the fault. */
static int checked(int r)
{
    static const int errors[][2] = {
        [NO_SPACE] = {-ENOSPC, 0},  [IO_ERROR] = {-EIO, 0},     [SHORT_WRITE] = {0, 0},
        [SYNC_FAILS] = {-EIO, 0},   [BIT_FLIP] = {-EBADMSG, 0}, [TRUNCATION] = {-EBADMSG, -EIO},
        [NO_MEMORY] = {-ENOMEM, 0},
    };

    if (r < 0 && r != errors[fault][0] && r != errors[fault][1])
        TEST_FAIL("fault %d gave %s (%s)", fault, weir_strerror(r), weir_why());
    return r;
}

/* ---- What is done ---- */

static const char *payload_of(unsigned number)
{
    static char payload[PAYLOAD + 1];

    memset(payload, 'a' + (int)(number % 26), PAYLOAD);
    payload[PAYLOAD] = '\0';
    return payload;
}

/* One more that stays, maybe. */
static int put(weir_store *store)
{
    weir_job_spec spec = stand_job("extra", payload_of(25));
    weir_enqueued enqueued;
    int r;

    extra_asked++;
    r = weir_job_enqueue(store, &spec, &enqueued);
    if (r == 0) extra_told++;
    return r;
}

/* A job comes and goes: what is left of it is litter. */
static int litter(weir_store *store)
{
    weir_job_spec spec = stand_job("litter", payload_of(24));
    weir_enqueued enqueued;
    weir_job job;
    int r = weir_job_enqueue(store, &spec, &enqueued);

    if (r < 0) return r;
    r = weir_job_lease(
        store,
        &(weir_lease_spec){
            .queue = "litter", .worker = "w", .count = 1, .lease_ms = 60000, .at_once = true},
        &job);
    if (r <= 0) return r;
    r = weir_job_ack(store, job.id, job.token, NULL, 0);
    weir_job_free(&job);
    return r;
}

static uint64_t segments_used(weir_store *store)
{
    weir_store_figures figures;

    weir_store_figures_of(store, &figures);
    return figures.appended_bytes / (300 * 1024);
}

static uint64_t compacted(weir_store *store)
{
    weir_store_figures figures;

    weir_store_figures_of(store, &figures);
    return figures.compacted_bytes;
}

/* Until the log begins another segment. */
static int roll(weir_store *store)
{
    uint64_t before = segments_used(store);
    int r = 0;

    for (int i = 0; i < LITTER_MAX && r == 0 && segments_used(store) < before + 2; i++)
        r = litter(store);
    return r;
}

/* Upkeep looks at everything now, and rests again. */
static int await_upkeep(weir_store *store)
{
    struct store *inside = store_look_up(store, "test");
    bool rests = false;
    int r = 0;

    store_lock(inside);
    store_ring(inside);
    store_unlock(inside);
    while (r == 0 && !rests) {
        r = weir_sleep(1);
        store_lock(inside);
        rests = !list_empty(&inside->upkeeper);
        store_unlock(inside);
    }
    return r;
}

static void hold_compaction(struct store *inside, int64_t until_ns)
{
    store_lock(inside);
    inside->compact_after_ns = until_ns;
    store_unlock(inside);
}

/* Litter until segments are worth moving, and let them be moved. */
static int litter_and_compact(struct store_stand *stand, weir_store *store, bool with_fault)
{
    struct store *inside = store_look_up(store, "test");
    weir_store_figures figures;
    int r = 0;

    hold_compaction(inside, INT64_MAX); /* the fault comes before it */
    for (int i = 0; i < LITTER_MAX && r == 0 && !log_compaction_is_due(inside->log); i++)
        r = litter(store);
    CHECK(log_compaction_is_due(inside->log));
    if (with_fault) inject(stand);
    hold_compaction(inside, 0);
    if (r == 0) r = await_upkeep(store);
    weir_store_figures_of(store, &figures);
    return r < 0 ? r : figures.error;
}

static int name_many(weir_store *store)
{
    int r = 0;

    for (unsigned i = 0; i < NAMED && r == 0; i++) {
        char name[64];

        (void)snprintf(name, sizeof name, "queue number %u, of which little is known", i);
        r = weir_queue_set(
            store, &(weir_queue_spec){.name = name, .depth_max = 10 + i, .overflow = WEIR_REJECT});
        if (r == 0) named_told++;
    }
    return r;
}

static int operate(struct store_stand *stand, weir_store *store)
{
    if (operation == NAMES || operation == COMPACT) return litter_and_compact(stand, store, true);
    inject(stand);
    return operation == APPEND ? put(store) : roll(store);
}

/* ---- What must be there ---- */

static void check_names(weir_store *store)
{
    weir_queue_figures figures;

    CHECK_OK(weir_queue_get(store, "kept", &figures));
    CHECK_INT(figures.spec.latency_target_ms, ==, SETTING);
    CHECK_INT(figures.by_state[WEIR_JOB_READY], ==, KEPT);
    for (unsigned i = 0; i < named_told; i += 17) {
        char name[64];

        (void)snprintf(name, sizeof name, "queue number %u, of which little is known", i);
        CHECK_OK(weir_queue_get(store, name, &figures));
        CHECK_INT(figures.spec.depth_max, ==, 10 + i);
    }
}

static void check_store(weir_store *store)
{
    static char bytes[PAYLOAD];
    weir_queue_figures figures;
    int r;

    check_names(store);
    for (unsigned i = 0; i < KEPT; i++) {
        CHECK_INT(stand_state(store, kept[i]), ==, WEIR_JOB_READY);
        CHECK_INT(weir_job_payload(store, kept[i], bytes, sizeof bytes), ==, PAYLOAD);
        CHECK(memcmp(bytes, payload_of(i), PAYLOAD) == 0);
    }
    r = weir_queue_get(store, "extra", &figures);
    if (r == -ENOENT) figures.by_state[WEIR_JOB_READY] = 0;
    CHECK_INT(figures.by_state[WEIR_JOB_READY], >=, extra_told);
    CHECK_INT(figures.by_state[WEIR_JOB_READY], <=, extra_asked);
}

static void fill(weir_store *store)
{
    CHECK_OK(weir_queue_set(store, &(weir_queue_spec){.name = "kept",
                                                      .depth_max = 1000,
                                                      .overflow = WEIR_WAIT,
                                                      .latency_target_ms = SETTING}));
    for (unsigned i = 0; i < KEPT; i++) kept[i] = stand_enqueue(store, "kept", payload_of(i));
    if (operation == NAMES) CHECK_OK(name_many(store));
    CHECK_OK(roll(store)); /* what is kept is not in the newest segment */
    if (operation != COMPACT) return;
    CHECK_OK(litter_and_compact(NULL, store, false));
    CHECK(compacted(store) > 0);
}

static void check_damage_is_told(struct store_stand *stand)
{
    weir_store *store;

    for (int i = 0; i < 2; i++) {
        int r = store_stand_try(stand, &store);

        if (r == 0) { /* what was damaged had been moved, and is not needed any more */
            check_store(store);
            CHECK_OK(weir_store_close(store));
            return;
        }
        CHECK_INT(r, ==, -EBADMSG);
        CHECK_CONTAINS(weir_why(), ".log, offset");
    }
}

static int cell(struct store_stand *stand)
{
    weir_store *store = store_stand_open(stand);
    int r;

    fill(store);
    if (operation == RECOVER) {
        CHECK_OK(weir_store_close(store));
        inject(stand);
        r = checked(store_stand_try(stand, &store));
        mend();
        if (r == 0) CHECK_OK(weir_store_close(store));
    } else {
        (void)checked(operate(stand, store));
        mend();
        (void)checked(weir_store_close(store));
    }
    if (is_damage()) {
        check_damage_is_told(stand);
        return 0;
    }
    for (int i = 0; i < 2; i++) { /* and once more, with one job more */
        store = store_stand_open(stand);
        check_store(store);
        CHECK_OK(put(store));
        CHECK_OK(weir_store_close(store));
    }
    return 0;
}

static void run_cell(enum fault fault_, enum operation operation_)
{
    static struct store_stand stand;

    fault = fault_;
    operation = operation_;
    extra_told = extra_asked = named_told = 0;
    (void)weir_test_calls("pwrite"); /* the table is there before the runtime */
    store_stand_make(&stand);
    stand.sizes = (struct store_sizes){
        .segment_bytes = 768 * 1024, .buffer_bytes = 544 * 1024, .record_bytes_max = 256 * 1024};
    stand.spec.history_count_max = 1;
    if (fault_ == SHORT_WRITE) test_short_io(7000);
    CHECK_OK(store_stand_run(&stand, cell));
    store_stand_remove(&stand);
}

#define CELL(name_, fault_, operation_)                 \
    TEST_WITH(store_fault_##name_, .timeout_ms = 60000) \
    {                                                   \
        run_cell(fault_, operation_);                   \
    }
#define CELLS(name_, fault_)                  \
    CELL(name_##_at_append, fault_, APPEND)   \
    CELL(name_##_at_roll, fault_, ROLL)       \
    CELL(name_##_at_names, fault_, NAMES)     \
    CELL(name_##_at_compact, fault_, COMPACT) \
    CELL(name_##_at_recover, fault_, RECOVER)

CELLS(no_space, NO_SPACE)
CELLS(io_error, IO_ERROR)
CELLS(short_write, SHORT_WRITE)
CELLS(sync_fails, SYNC_FAILS)
CELLS(bit_flip, BIT_FLIP)
CELLS(truncation, TRUNCATION)
CELLS(no_memory, NO_MEMORY)

/* ---- Every reply waits for what it has seen, also one that says no ---- */

static int ask_enqueue(weir_store *store, uint64_t id)
{
    weir_job_spec spec = stand_job("q", "x");
    weir_enqueued enqueued;

    (void)id;
    spec.unique_key = "one";
    return weir_job_enqueue(store, &spec, &enqueued); /* a duplicate */
}

static int ask_get(weir_store *store, uint64_t id)
{
    weir_job_info info;
    int r = weir_job_get(store, id, &info);

    if (r == 0) weir_job_info_free(&info);
    return r;
}

static int ask_renew(weir_store *store, uint64_t id)
{
    weir_renewal renewal = {.id = id, .token = 1};

    return weir_job_renew_all(store, &renewal, 1, "w", 1000); /* it has no lease */
}

static int ask_ack(weir_store *store, uint64_t id)
{
    return weir_job_ack(store, id, 1, NULL, 0); /* likewise */
}

static int ask_replay(weir_store *store, uint64_t id)
{
    return weir_dead_replay(store, id, NULL, 0); /* it is not dead */
}

static int ask_purge(weir_store *store, uint64_t id)
{
    return weir_job_purge(store, id); /* it has not ended */
}

static int ask_seal(weir_store *store, uint64_t id)
{
    return weir_batch_seal(store, id); /* it gathers nothing */
}

static int (*const asks[])(weir_store *store, uint64_t id) = {
    ask_enqueue, ask_get, ask_renew, ask_ack, ask_replay, ask_purge, ask_seal};

static int ask_before_the_sync(struct store_stand *stand)
{
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
        weir_store *store = store_stand_open(stand);
        weir_job_spec spec = stand_job("q", "x");
        weir_enqueued enqueued;
        int r;

        spec.durability = WEIR_MEMORY;
        spec.unique_key = "one";
        stand_await_spares(store);
        test_fault("fsync", -EIO, 1000000);
        r = weir_job_enqueue(store, &spec, &enqueued);
        CHECK_INT(r < 0 ? r : asks[i](store, enqueued.id), ==, -EIO);
        test_fault("fsync", -EIO, 0);
        CHECK_INT(weir_store_close(store), ==, -EIO);
        folder_remove_all(stand->path);
    }
    return 0;
}

TEST(store_tells_nothing_that_is_not_on_disk_not_even_in_a_refusal)
{
    static struct store_stand stand;

    (void)weir_test_calls("fsync"); /* the table is there before the runtime */
    store_stand_make(&stand);
    CHECK_OK(store_stand_run(&stand, ask_before_the_sync));
    store_stand_remove(&stand);
}

/* ---- What was decided and could not be appended is told to nobody ---- */

static int decide_when_the_log_stops(struct store_stand *stand) LOCK_UNCHECKED;
static int decide_when_the_log_stops(struct store_stand *stand)
{
    const struct store_intent intent = {.call = "test", .use = LOG_FOR_EXISTING};
    const struct log_options options = {.use = LOG_FOR_EXISTING, .tag = STORE_TAG_OPENED};
    static const enum weir_durability rows[] = {WEIR_MEMORY, WEIR_WRITTEN, WEIR_SYNCED};

    for (int i = 0; i < 3; i++) {
        weir_store *handle = store_stand_open(stand);
        struct log_figures figures;
        struct log_place place;
        struct store *store;

        stand_await_spares(handle);
        CHECK_OK(weir_store_sync(handle));
        test_fault("fsync", -EIO, 1000000);
        CHECK_OK(store_enter(handle, &intent, &store));
        /* There is room; now the log stops. All that the store has appended is on disk. */
        store_unlock_entered(store);
        CHECK_OK(log_append_now(store->log, NULL, 0, &options, &place));
        log_ask(store->log, place.end, LOG_SYNCED);
        do {
            CHECK_OK(weir_yield());
            log_figures(store->log, &figures);
        } while (figures.error == 0);
        store_lock(store);
        CHECK_INT(store_append(store, LOG_FOR_EXISTING, STORE_TAG_OPENED, NULL, 0), ==, 0);
        CHECK_INT(store_leave(store, rows[i], 0), ==, -EIO);
        test_fault("fsync", -EIO, 0);
        CHECK_INT(weir_store_close(handle), ==, -EIO);
        folder_remove_all(stand->path);
    }
    return 0;
}

TEST(store_tells_nothing_that_was_decided_when_its_log_had_stopped)
{
    static struct store_stand stand;

    (void)weir_test_calls("fsync"); /* the table is there before the runtime */
    store_stand_make(&stand);
    CHECK_OK(store_stand_run(&stand, decide_when_the_log_stops));
    store_stand_remove(&stand);
}
