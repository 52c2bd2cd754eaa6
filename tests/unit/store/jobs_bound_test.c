/* jobs_bound_test.c - bounds of memory and disk, durability, a wall clock that is set, copies. */
#include "unit/store/jobs_test.h"
#include "unit/store/log_test.h"

static void with_little_memory(struct jobs_stand *stand)
{
    stand->base.spec.memory_bytes_max = 1 << 20;
}

JOBS_TEST_WITH(at_the_memory_bound_new_work_is_refused_and_existing_work_goes_on,
               with_little_memory, .hidden = false)
{
    weir_store *store = stand->store;
    weir_store_figures figures;
    int64_t r;
    int jobs = 0;

    while ((r = jobs_try(store, "q", (weir_job_spec){.durability = WEIR_MEMORY})) > 0) jobs++;
    CHECK_INT(r, ==, -ENOBUFS);
    CHECK_CONTAINS(weir_why(), "bytes of memory, of 1048576");
    CHECK_INT(jobs, >, 1000);
    weir_store_figures_of(store, &figures);
    CHECK_INT(figures.memory_bytes, <=, (1 << 20) + (64 << 10)); /* the last slab */
    CHECK_INT(figures.error, ==, 0);
    /* What is there goes on, to its end and back from the dead. */
    for (int i = 0; i < jobs / 2; i++) CHECK(jobs_work(store, "q") != 0);
    (void)jobs_kill(store, "q", "bad");
    CHECK_OK(weir_store_sync(store));
    jobs_reopen(stand);
    CHECK_INT(jobs_queue(stand->store, "q").by_state[WEIR_JOB_READY], ==,
              (uint64_t)(jobs - jobs / 2 - 1));
    while (jobs_work(stand->store, "q") != 0) {}
    CHECK_INT(jobs_queue(stand->store, "q").by_state[WEIR_JOB_LEASED], ==, 0);
}

/* Errors are existing work: they are kept beyond the bound, and the store opens all the same. */
JOBS_TEST_WITH(a_store_that_is_beyond_its_memory_bound_opens_and_takes_no_new_work,
               with_little_memory, .hidden = false)
{
    char message[1024];
    weir_store_figures figures;

    memset(message, 'm', sizeof message - 1);
    message[sizeof message - 1] = '\0';
    for (int i = 0; i < 20; i++) {
        uint64_t id = jobs_enqueue(stand->store, "q", .retry = {.attempts_max = 64});
        for (int attempt = 0; attempt < 64; attempt++) {
            uint64_t token;
            JOBS_UNTIL(stand_state(stand->store, id) == WEIR_JOB_READY);
            CHECK_INT(jobs_lease(stand->store, "q", &token), ==, id);
            CHECK_INT(weir_job_fail(stand->store, id, token, "EDOM", message, 0), >=, 0);
        }
        weir_store_figures_of(stand->store, &figures);
        if (figures.memory_bytes >= 1 << 20) break;
    }
    CHECK_INT(figures.memory_bytes, >=, 1 << 20);
    jobs_reopen(stand);
    CHECK_INT(jobs_try(stand->store, "q", (weir_job_spec){0}), ==, -ENOBUFS);
    CHECK_INT(weir_job_purge(stand->store, 1), ==, 0);
    CHECK_INT(jobs_queue(stand->store, "q").by_state[WEIR_JOB_DEAD], >=, 10);
}

static void with_little_disk(struct jobs_stand *stand)
{
    stand->base.spec.disk_bytes_max = 8 * stand->base.sizes.segment_bytes;
    stand->base.spec.history_count_max = 1;
}

JOBS_TEST_WITH(at_the_disk_bound_new_work_is_refused_and_acknowledgements_go_on, with_little_disk,
               .hidden = false)
{
    static char payload[16000];
    weir_store *store = stand->store;
    weir_job_spec spec = {.payload = payload, .payload_bytes = sizeof payload};
    weir_store_figures figures;
    int64_t r;
    int jobs = 0, worked = 0;

    while ((r = jobs_try(store, "q", spec)) > 0) CHECK_INT(++jobs, <, 10000);
    CHECK_INT(r, ==, -ENOSPC);
    CHECK_CONTAINS(weir_why(), "disk_bytes_max of 8388608 bytes is used up");
    CHECK_INT(jobs, >, 50);
    weir_store_figures_of(store, &figures);
    CHECK_INT(figures.room_error, ==, -ENOSPC);
    CHECK_INT(figures.error, ==, 0);
    while (jobs_work(store, "q") != 0) worked++;
    CHECK_INT(worked, ==, jobs);
    /* What is done is let go, and there is room again. */
    while (jobs_try(store, "q", spec) < 0) {
        jobs_pass_ms(WEIR_STORE_SYNC_MS); /* upkeep looks */
        CHECK_OK(weir_yield());
    }
}

JOBS_TEST(a_reply_names_the_durability_it_has_got)
{
    static const enum weir_durability rows[] = {WEIR_MEMORY, WEIR_WRITTEN, WEIR_SYNCED};
    uint64_t ids[3];

    for (int i = 0; i < 3; i++) {
        weir_job_spec spec = stand_job("q", "x");
        weir_enqueued enqueued;

        spec.durability = rows[i];
        CHECK_OK(weir_job_enqueue(stand->store, &spec, &enqueued));
        CHECK_INT(enqueued.durability, ==, rows[i]);
        ids[i] = enqueued.id;
    }
    CHECK_INT(jobs_try(stand->store, "q", (weir_job_spec){.durability = WEIR_SYNCED + 1}), ==,
              WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "durability is none");
    jobs_reopen(stand); /* closing puts all on disk */
    for (int i = 0; i < 3; i++) CHECK_INT(stand_state(stand->store, ids[i]), ==, WEIR_JOB_READY);
}

/* How safe all that was decided is. The clock stands, so upkeep syncs nothing by itself. */
static bool is_safe(weir_store *handle, enum weir_durability durability)
{
    struct store *store = store_look_up(handle, "test");
    struct log_figures figures;
    uint64_t end;

    store_lock(store);
    end = store->end;
    store_unlock(store);
    log_figures(store->log, &figures);
    return (durability == WEIR_SYNCED ? figures.synced : figures.written) >= end;
}

static weir_settlement leased_for(weir_store *store, enum weir_settle how,
                                  enum weir_durability durability)
{
    weir_settlement one = {.how = how, .durability = durability};

    (void)jobs_enqueue(store, "q");
    one.id = jobs_lease(store, "q", &one.token);
    CHECK(one.id != 0);
    CHECK_OK(weir_store_sync(store));
    return one;
}

static void check_settlements(weir_store *store, enum weir_durability stores_own)
{
    static const enum weir_settle ways[] = {WEIR_SETTLE_ACK, WEIR_SETTLE_FAIL, WEIR_SETTLE_DEAD,
                                            WEIR_SETTLE_RELEASE};

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        for (int asked = WEIR_DURABILITY_UNSET; asked <= WEIR_SYNCED; asked++) {
            int got = asked == WEIR_DURABILITY_UNSET ? (int)stores_own : asked;
            weir_settlement one = leased_for(store, ways[i], (enum weir_durability)asked);

            one.delay_ms = ways[i] == WEIR_SETTLE_ACK ? 0 : 3600000;
            CHECK_INT(weir_job_settle(store, &one, 1), ==, 1);
            CHECK_OK(one.ret_error);
            CHECK_INT(is_safe(store, WEIR_SYNCED), ==, got == WEIR_SYNCED);
            if (got >= WEIR_WRITTEN) CHECK(is_safe(store, WEIR_WRITTEN));
        }
    }
}

JOBS_TEST(a_settlement_is_as_safe_as_it_asks_for)
{
    check_settlements(stand->store, WEIR_SYNCED);
}

static void with_memory_only(struct jobs_stand *stand)
{
    stand->base.spec.durability = WEIR_MEMORY;
}

JOBS_TEST_WITH(a_settlement_is_safer_than_its_store_if_it_asks_for_that, with_memory_only,
               .hidden = false)
{
    check_settlements(stand->store, WEIR_MEMORY);
}

JOBS_TEST(settlements_that_wait_once_wait_as_the_safest_of_them_asks_for)
{
    weir_store *store = stand->store;
    weir_settlement ones[3];

    for (int safest = WEIR_MEMORY; safest <= WEIR_SYNCED; safest++) {
        for (int i = 0; i < 3; i++) ones[i] = leased_for(store, WEIR_SETTLE_ACK, WEIR_MEMORY);
        ones[1].durability = (enum weir_durability)safest;
        CHECK_INT(weir_job_settle(store, ones, 3), ==, 3);
        CHECK_INT(is_safe(store, WEIR_SYNCED), ==, safest == WEIR_SYNCED);
        if (safest >= WEIR_WRITTEN) CHECK(is_safe(store, WEIR_WRITTEN));
    }
    /* A refusal tells of what others have decided, and is as safe. */
    (void)jobs_enqueue(store, "q", .durability = WEIR_MEMORY);
    ones[0].durability = WEIR_MEMORY;
    CHECK_INT(weir_job_settle(store, ones, 1), ==, 0);
    CHECK_INT(ones[0].ret_error, ==, -ESTALE);
    CHECK(!is_safe(store, WEIR_SYNCED));
    ones[0].durability = WEIR_DURABILITY_UNSET;
    CHECK_INT(weir_job_settle(store, ones, 1), ==, 0);
    CHECK(is_safe(store, WEIR_SYNCED));
}

JOBS_TEST(a_durability_that_is_none_is_refused_and_a_commit_has_its_own)
{
    weir_store *store = stand->store;
    weir_settlement one = leased_for(store, WEIR_SETTLE_ACK, WEIR_SYNCED + 1);
    weir_commit_spec commit = {.settlements = &one, .settlement_count = 1};

    CHECK_INT(weir_job_settle(store, &one, 1), ==, 0);
    CHECK_INT(one.ret_error, ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "durability is none");
    one.durability = WEIR_SYNCED;
    CHECK_INT(weir_commit(store, &commit), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "has a durability of its own");
    CHECK_INT(stand_state(store, one.id), ==, WEIR_JOB_LEASED);
    one.durability = WEIR_DURABILITY_UNSET;
    commit.durability = WEIR_MEMORY;
    CHECK_OK(weir_commit(store, &commit));
    CHECK(!is_safe(store, WEIR_SYNCED));
    CHECK_INT(one.ret_state, ==, WEIR_JOB_DONE);
}

static uint64_t commits(weir_store *store)
{
    weir_store_figures figures;

    weir_store_figures_of(store, &figures);
    return figures.commits;
}

JOBS_TEST(what_is_less_than_synced_is_synced_within_a_second)
{
    weir_store *store = stand->store;
    uint64_t before;

    CHECK_OK(weir_store_sync(store));
    before = commits(store);
    (void)jobs_enqueue(store, "q", .durability = WEIR_MEMORY);
    for (int i = 0; i < 50; i++) CHECK_OK(weir_yield());
    CHECK_INT(commits(store), ==, before);
    jobs_pass_ms(WEIR_STORE_SYNC_MS);
    JOBS_UNTIL(commits(store) > before);
}

JOBS_TEST(a_wall_clock_that_is_set_back_stops_nothing)
{
    weir_store *store = stand->store;
    uint64_t id = jobs_enqueue(store, "q", .delay_ms = 9000);
    weir_store_figures figures;
    weir_job_info info;

    test_wall((JOBS_START_MS - 3600000) * 1000000);
    jobs_pass_ms(9000);
    CHECK_INT(jobs_lease(store, "q", NULL), ==, 0); /* a tenth slower */
    weir_store_figures_of(store, &figures);
    CHECK_INT(figures.clock_ahead_ms, >=, 3599000);
    jobs_pass_ms(1000);
    JOBS_UNTIL(stand_state(store, id) == WEIR_JOB_READY);
    /* Also when it is set back while the store is closed. */
    CHECK_OK(weir_store_close(store));
    test_wall((JOBS_START_MS - 7200000) * 1000000);
    stand->store = store_stand_open(&stand->base);
    id = jobs_enqueue(stand->store, "q");
    CHECK_OK(weir_job_get(stand->store, id, &info));
    CHECK_INT(info.created_ms, >=, JOBS_START_MS + 9000);
    weir_job_info_free(&info);
    /* The wall catches up, and time is its again. */
    test_wall((JOBS_START_MS + 3600000) * 1000000);
    (void)jobs_enqueue(stand->store, "q");
    weir_store_figures_of(stand->store, &figures);
    CHECK_INT(figures.clock_ahead_ms, ==, 0);
}

JOBS_TEST(a_wall_clock_that_jumps_ahead_ends_leases_and_starts_what_is_due)
{
    weir_store *store = stand->store;
    uint64_t id = jobs_enqueue(store, "q"), later = jobs_enqueue(store, "q", .delay_ms = 3600000);

    CHECK_INT(jobs_lease(store, "q", NULL), ==, id);
    test_wall((JOBS_START_MS + 7200000) * 1000000);
    jobs_pass_ms(60000); /* in which upkeep looks at the wall */
    JOBS_UNTIL(stand_state(store, id) != WEIR_JOB_LEASED);
    JOBS_UNTIL(stand_state(store, later) == WEIR_JOB_READY);
    CHECK_INT(jobs_queue(store, "q").lost, ==, 1);
}

JOBS_TEST(a_copy_is_a_store_of_its_own_made_while_work_goes_on)
{
    weir_store *store = stand->store, *copy;
    uint64_t id = jobs_enqueue(store, "q", .payload = "abc", .payload_bytes = 3), late;
    weir_store_spec spec = stand->base.spec;
    char folder[96], bytes[4];

    (void)snprintf(folder, sizeof folder, "%s-copy", stand->base.path);
    CHECK_INT(weir_store_copy(store, NULL), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "folder is not set");
    CHECK_OK(weir_store_copy(store, folder));
    CHECK_INT(weir_store_copy(store, folder), ==, -EEXIST);
    late = jobs_enqueue(store, "q");
    spec.path = folder;
    spec.create = false;
    CHECK_OK(store_open(stand->base.scope, &spec, &stand->base.sizes, &copy));
    CHECK_INT(weir_job_payload(copy, id, bytes, 4), ==, 3);
    CHECK_INT(jobs_work(copy, "q"), ==, id);
    CHECK_OK(weir_store_close(copy));
    CHECK_INT(jobs_work(store, "q"), ==, id);
    CHECK_INT(jobs_work(store, "q"), ==, late);
    folder_remove_all(folder);
}

JOBS_TEST(a_folder_that_is_in_use_is_refused_by_name)
{
    weir_store *second;

    CHECK_INT(store_stand_try(&stand->base, &second), ==, -EBUSY);
    CHECK_CONTAINS(weir_why(), "in use by process");
    CHECK_OK(weir_store_close(NULL));
}

static void with_usual_sizes(struct jobs_stand *stand)
{
    stand->base.sizes = (struct store_sizes){.segment_bytes = 4 << 20,
                                             .buffer_bytes = STORE_BUFFER_BYTES,
                                             .record_bytes_max = STORE_RECORD_BYTES_MAX};
}

JOBS_TEST_WITH(many_jobs_of_a_kilobyte_and_with_long_names_fit_into_one_call, with_usual_sizes,
               .hidden = false)
{
    enum { COUNT = 512 };
    static weir_job_spec specs[COUNT];
    static weir_enqueued enqueued[COUNT];
    static char payload[1024], name[WEIR_JOB_NAME_BYTES_MAX + 1];

    memset(payload, 'p', sizeof payload);
    memset(name, 'n', sizeof name - 1);
    for (int i = 0; i < COUNT; i++) {
        specs[i] = stand_job(name, "");
        specs[i].payload = payload;
        specs[i].payload_bytes = sizeof payload;
        specs[i].kind = specs[i].tags = specs[i].fairness_key = specs[i].order_key = name;
        specs[i].limit_keys[0] = name;
    }
    CHECK_OK(weir_job_enqueue_all(stand->store, specs, COUNT, enqueued));
    jobs_reopen(stand);
    CHECK_INT(stand_state(stand->store, enqueued[COUNT - 1].id), ==, WEIR_JOB_HELD);
    specs[COUNT - 1].priority = 99; /* and all are taken back when the last one is refused */
    CHECK_INT(weir_job_enqueue_all(stand->store, specs, COUNT, enqueued), ==, -EINVAL);
    CHECK_INT(jobs_queue(stand->store, name).by_state[WEIR_JOB_HELD], ==, COUNT - 1);
}

/* ---- Calls of as many as there can be ---- */

enum { MOST = WEIR_JOB_ENQUEUE_MAX };
/* What one call enqueues another one leases, and a third one settles. */
#if WEIR_JOB_LEASE_MAX != WEIR_JOB_ENQUEUE_MAX || WEIR_JOB_SETTLE_MAX != WEIR_JOB_ENQUEUE_MAX
#error "calls take as many of each other"
#endif

/* Each with its number and `rest` bytes behind it. */
static void put_most(struct jobs_stand *stand, size_t rest, int expected)
{
    static weir_job_spec specs[MOST + 1];
    static weir_enqueued enqueued[MOST + 1];
    static char payloads[MOST + 1][2048];

    for (int i = 0; i <= MOST; i++) {
        memcpy(payloads[i], &i, sizeof i);
        specs[i] = stand_job("q", "");
        specs[i].payload = payloads[i];
        specs[i].payload_bytes = sizeof i + rest;
        specs[i].limit_keys[0] = "key";
        specs[i].priority = (uint8_t)(i % 3);
    }
    CHECK_INT(weir_job_enqueue_all(stand->store, specs, MOST + 1, enqueued), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "1025 jobs, at most 1024");
    CHECK_INT(weir_job_enqueue_all(stand->store, specs, MOST, enqueued), ==, expected);
}

JOBS_TEST_WITH(the_most_jobs_of_a_kilobyte_are_enqueued_leased_and_settled_by_one_call_each,
               with_usual_sizes, .hidden = false)
{
    static weir_job jobs[MOST];
    static weir_settlement settlements[MOST + 1];
    static bool seen[MOST];
    weir_lease_spec lease = {.queue = "q", .worker = "w", .count = MOST, .lease_ms = 60000};

    memset(seen, 0, sizeof seen);
    put_most(stand, 1020, 0);
    jobs_reopen(stand);
    CHECK_INT(weir_job_lease(stand->store, &lease, jobs), ==, MOST);
    for (int i = 0; i < MOST; i++) {
        int number;

        memcpy(&number, jobs[i].payload, sizeof number);
        CHECK_INT(jobs[i].payload_bytes, ==, 1024);
        CHECK(!seen[number]);
        seen[number] = true;
        if (i > 0) CHECK_INT(jobs[i].priority, <=, jobs[i - 1].priority);
        CHECK_INT(jobs[i].priority, ==, number % 3); /* each has its own payload */
        settlements[i] = (weir_settlement){
            .id = jobs[i].id, .token = jobs[i].token + (i == 500), .how = WEIR_SETTLE_ACK};
    }
    CHECK_INT(weir_job_settle(stand->store, settlements, MOST + 1), ==, WEIR_EREFUSED);
    /* One of them is not ours; the others are settled all the same. */
    CHECK_INT(weir_job_settle(stand->store, settlements, MOST), ==, MOST - 1);
    for (int i = 0; i < MOST; i++) {
        CHECK_INT(settlements[i].ret_error, ==, i == 500 ? -ESTALE : 0);
        if (i != 500) CHECK_INT(settlements[i].ret_state, ==, WEIR_JOB_DONE);
        weir_job_free(&jobs[i]);
    }
    jobs_reopen(stand);
    CHECK_INT(jobs_queue(stand->store, "q").by_state[WEIR_JOB_DONE], ==, MOST - 1);
    CHECK_INT(jobs_queue(stand->store, "q").by_state[WEIR_JOB_LEASED], ==, 1);
}

JOBS_TEST_WITH(jobs_that_are_longer_than_a_record_together_are_refused_all_of_them,
               with_usual_sizes, .hidden = false)
{
    weir_store_figures figures;

    put_most(stand, 2000, -EMSGSIZE);
    weir_store_figures_of(stand->store, &figures);
    CHECK_INT(figures.jobs, ==, 0);
}

/* ---- Commits of as many as there can be ---- */

enum { SETTLED = WEIR_COMMIT_SETTLE_MAX };

static void lease_for_commit(weir_store *store, weir_settlement settlements[SETTLED])
{
    for (int i = 0; i < SETTLED; i++) {
        (void)jobs_enqueue(store, "first");
        settlements[i] = (weir_settlement){.how = i % 2 ? WEIR_SETTLE_ACK : WEIR_SETTLE_RELEASE};
        settlements[i].id = jobs_lease(store, "first", &settlements[i].token);
        CHECK(settlements[i].id != 0);
    }
}

static int commit_most(weir_store *store, size_t payload_bytes, weir_settlement *settlements,
                       size_t settlement_count)
{
    static weir_job_spec specs[MOST];
    static char payload[2048];

    for (int i = 0; i < MOST; i++) {
        specs[i] = stand_job("next", "");
        specs[i].payload = payload;
        specs[i].payload_bytes = payload_bytes;
    }
    return weir_commit(store, &(weir_commit_spec){.jobs = specs,
                                                  .job_count = MOST,
                                                  .settlements = settlements,
                                                  .settlement_count = settlement_count});
}

JOBS_TEST_WITH(a_commit_has_the_most_small_jobs_and_settlements_there_can_be, with_usual_sizes,
               .hidden = false)
{
    static weir_settlement settlements[SETTLED];

    lease_for_commit(stand->store, settlements);
    CHECK_OK(commit_most(stand->store, 100, settlements, SETTLED));
    jobs_reopen(stand);
    CHECK_INT(jobs_queue(stand->store, "next").by_state[WEIR_JOB_READY], ==, MOST);
    CHECK_INT(jobs_queue(stand->store, "first").by_state[WEIR_JOB_DONE], ==, SETTLED / 2);
    CHECK_INT(jobs_queue(stand->store, "first").by_state[WEIR_JOB_READY], ==, SETTLED / 2);
}

JOBS_TEST_WITH(a_commit_is_as_long_as_a_record_can_be_and_no_longer, with_usual_sizes,
               .hidden = false)
{
    static weir_settlement settlements[SETTLED];
    weir_store_figures figures;

    CHECK_OK(commit_most(stand->store, 1024, NULL, 0));
    lease_for_commit(stand->store, settlements);
    CHECK_INT(commit_most(stand->store, 2048, settlements, SETTLED), ==, -EMSGSIZE);
    CHECK_CONTAINS(weir_why(), "more bytes than one record holds");
    weir_store_figures_of(stand->store, &figures);
    CHECK_INT(figures.jobs, ==, MOST + SETTLED);
    for (int i = 0; i < SETTLED; i++)
        CHECK_INT(stand_state(stand->store, settlements[i].id), ==, WEIR_JOB_LEASED);
}

/* What is counted for a job is enough for the longest that it can say, also when all of them are
 * taken back: their records would be refused by the log, and that stops the program. */
JOBS_TEST_WITH(a_commit_of_jobs_that_say_all_they_can_fits_or_is_refused, with_usual_sizes,
               .hidden = false)
{
    static char names[16][WEIR_JOB_NAME_BYTES_MAX + 1];
    static weir_job_spec specs[MOST];
    weir_commit_spec commit = {.jobs = specs};
    int r = 0;

    for (int i = 0; i < 16; i++) memset(names[i], 'a' + i, WEIR_JOB_NAME_BYTES_MAX);
    for (int i = 0; i < MOST; i++) {
        specs[i] = stand_job(names[0], "");
        specs[i].kind = names[1];
        specs[i].tags = names[2];
        specs[i].fairness_key = names[3];
        specs[i].order_key = i % 2 ? names[4] : NULL;
        specs[i].expires_ms = JOBS_START_MS * 2;
        specs[i].timeout_ms = UINT32_MAX;
        specs[i].version = UINT32_MAX;
        specs[i].run_at_ms = i % 4 == 3 ? JOBS_START_MS * 2 : 0;
        for (int k = 0; k < WEIR_JOB_LIMIT_KEYS_MAX; k++) specs[i].limit_keys[k] = names[5 + k];
        for (int k = 0; k < WEIR_JOB_NEVER_MAX; k++) specs[i].retry.never[k] = names[10 + k];
    }
    for (int k = 0; k < WEIR_JOB_LIMIT_KEYS_MAX; k++)
        CHECK_OK(
            weir_key_set(stand->store, &(weir_key_spec){.name = names[5 + k], .concurrency = 1}));
    for (commit.job_count = MOST; commit.job_count > 0; commit.job_count--) {
        specs[commit.job_count - 1].priority = 99; /* refused in the end, and all taken back */
        r = weir_commit(stand->store, &commit);
        specs[commit.job_count - 1].priority = 0;
        if (r != -EMSGSIZE) break;
    }
    CHECK_INT(r, ==, -EINVAL);
    CHECK_INT(commit.job_count, >, 400);
    CHECK_OK(weir_commit(stand->store, &commit));
}

/* Those of a long lease are in several records, and so are those of a long settlement; each waits
 * for the disk once. */
JOBS_TEST_WITH(a_long_call_waits_for_the_disk_once, with_usual_sizes, .hidden = false)
{
    static weir_job jobs[MOST];
    static weir_settlement settlements[MOST];
    weir_lease_spec lease = {.queue = "q", .worker = "w", .count = MOST, .lease_ms = 60000};
    weir_store_figures before, leased, settled;

    put_most(stand, 0, 0);
    weir_store_figures_of(stand->store, &before);
    CHECK_INT(weir_job_lease(stand->store, &lease, jobs), ==, MOST);
    weir_store_figures_of(stand->store, &leased);
    for (int i = 0; i < MOST; i++) {
        settlements[i] =
            (weir_settlement){.id = jobs[i].id, .token = jobs[i].token, .how = WEIR_SETTLE_RELEASE};
        weir_job_free(&jobs[i]);
    }
    CHECK_INT(weir_job_settle(stand->store, settlements, MOST), ==, MOST);
    weir_store_figures_of(stand->store, &settled);
    CHECK_INT(leased.commits - before.commits, <=, 2); /* upkeep may have one of its own */
    CHECK_INT(settled.commits - leased.commits, <=, 2);
}
