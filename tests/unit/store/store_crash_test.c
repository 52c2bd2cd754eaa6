/* store_crash_test.c - every state that a power cut can leave of a store of jobs, opened
 * (crash_states.h).
 *
 * The run that is recorded is a row of calls, each of which has decided one thing. What there is
 * after each of them is written down; so a store that is opened after a power cut must be as it
 * was after one of them, and not before the last one that was acknowledged. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "unit/store/crash_states.h"
#include "unit/store/store_test.h"

enum {
    DISK_BYTES = 16 << 20,
    JOBS = 20,
    PAYLOAD = 11000,
    STEPS_MAX = 256,
    FIRST_LIFE = 12, /* jobs that are enqueued before the store is closed and opened */
};
enum mark { ACKNOWLEDGED };

/* The states of all jobs, and the settings of the queue, after each step. */
struct picture {
    unsigned char states[JOBS];
    unsigned setting;
};
static struct picture pictures[STEPS_MAX];
static unsigned steps;
static uint64_t ids[JOBS];
static unsigned first_of_mode; /* every so many steps is synced */

/* ---- The run that is recorded ---- */

static void take_picture(weir_store *store, struct picture *ret)
{
    weir_queue_figures figures;

    memset(ret, 0, sizeof *ret);
    for (unsigned i = 0; i < JOBS; i++) {
        weir_job_info info;
        int r = ids[i] == 0 ? -ENOENT : weir_job_get(store, ids[i], &info);

        if (r == -ENOENT) continue;
        CHECK_OK(r);
        ret->states[i] = (unsigned char)info.state;
        weir_job_info_free(&info);
    }
    if (weir_queue_get(store, "mail", &figures) == 0) ret->setting = figures.spec.latency_target_ms;
}

/* A step was decided. `synced`: and its reply says that it is on disk. The picture itself is not
 * looked at through the gate of a synced store: what it would sync must stay unsynced. */
static void step(weir_store *store, bool synced)
{
    CHECK_INT(steps, <, STEPS_MAX);
    take_picture(store, &pictures[steps]);
    steps++;
    if (synced) crash_mark(ACKNOWLEDGED, steps);
}

static bool is_synced(unsigned number)
{
    return number % first_of_mode == 0;
}

static void enqueue(weir_store *store, unsigned number)
{
    static char payload[PAYLOAD + 1];
    weir_job_spec spec;
    weir_enqueued enqueued;

    memset(payload, 'a' + (int)number, PAYLOAD);
    payload[PAYLOAD] = '\0';
    spec = stand_job("mail", payload);
    spec.durability = is_synced(number) ? WEIR_SYNCED : WEIR_MEMORY;
    CHECK_OK(weir_job_enqueue(store, &spec, &enqueued));
    ids[number] = enqueued.id;
    step(store, is_synced(number));
}

static void set_queue(weir_store *store, unsigned setting)
{
    CHECK_OK(weir_queue_set(store, &(weir_queue_spec){.name = "mail",
                                                      .depth_max = 1000,
                                                      .overflow = WEIR_REJECT,
                                                      .latency_target_ms = setting}));
    step(store, false);
}

/* Lease, acknowledge, forget. */
static void work(weir_store *store, bool forget)
{
    /* However slow the machine is, it does not run out. */
    const weir_lease_spec lease = {.queue = "mail",
                                   .worker = "w",
                                   .count = 1,
                                   .lease_ms = WEIR_JOB_LEASE_MS_MAX,
                                   .at_once = true};
    weir_job job;

    CHECK_INT(weir_job_lease(store, &lease, &job), ==, 1);
    step(store, false);
    CHECK_OK(weir_job_ack(store, job.id, job.token, "fine", 4));
    step(store, false);
    if (forget) {
        CHECK_OK(weir_job_purge(store, job.id));
        step(store, false);
    }
    weir_job_free(&job);
}

/* Upkeep looks at everything now, and rests again. */
static void await_upkeep(weir_store *store)
{
    struct store *inside = store_look_up(store, "test");
    bool rests = false;

    store_lock(inside);
    store_ring(inside);
    store_unlock(inside);
    while (!rests) {
        CHECK_OK(weir_sleep(1));
        store_lock(inside);
        rests = !list_empty(&inside->upkeeper);
        store_unlock(inside);
    }
}

static void sync_all(weir_store *store)
{
    CHECK_OK(weir_store_sync(store));
    crash_mark(ACKNOWLEDGED, steps);
}

static int record_run(struct store_stand *stand)
{
    weir_store *store = store_stand_open(stand);

    set_queue(store, 1);
    for (unsigned i = 0; i < FIRST_LIFE; i++) enqueue(store, i);
    for (unsigned i = 0; i < 6; i++) work(store, true);
    CHECK_OK(weir_store_close(store));
    crash_mark(ACKNOWLEDGED, steps);
    store = store_stand_open(stand);
    set_queue(store, 2);
    for (unsigned i = FIRST_LIFE; i < JOBS; i++) enqueue(store, i);
    for (unsigned i = 0; i < 8; i++) work(store, true);
    sync_all(store);
    await_upkeep(store); /* what is left moves */
    work(store, false);
    sync_all(store);
    CHECK_OK(weir_store_close(store));
    return 0;
}

static void record(struct store_stand *stand)
{
    store_stand_make(stand);
    store_stand_remove(stand); /* it is on the disk in memory */
    stand->spec.path = "/store";
    /* Pictures are taken, and most steps decided, without a sync: those are asked for. */
    stand->spec.durability = WEIR_MEMORY;
    stand->sizes = (struct store_sizes){
        .segment_bytes = 384 * 1024, .buffer_bytes = 448 * 1024, .record_bytes_max = 216 * 1024};
    stand->workers = 1;
    steps = 0;
    memset(ids, 0, sizeof ids);
    crash_record_begin(DISK_BYTES);
    CHECK_OK(store_stand_run(stand, record_run));
    crash_record_end();
}

/* ---- Opening ---- */

static struct picture found;

static int look(struct store_stand *stand)
{
    static char bytes[PAYLOAD];
    weir_store *store = store_stand_open(stand);

    take_picture(store, &found);
    for (unsigned i = 0; i < JOBS; i++) {
        if (found.states[i] == 0) continue;
        CHECK_INT(weir_job_payload(store, ids[i], bytes, sizeof bytes), ==, PAYLOAD);
        CHECK_INT(bytes[0], ==, 'a' + (int)i);
        CHECK_INT(bytes[PAYLOAD - 1], ==, 'a' + (int)i);
    }
    return weir_store_close(store);
}

static bool is_same(const struct picture *a, const struct picture *b)
{
    return memcmp(a->states, b->states, sizeof a->states) == 0 && a->setting == b->setting;
}

static void check_state(void *arg, const unsigned marks[CRASH_MARKS])
{
    static const struct picture nothing;
    struct picture first;
    unsigned acknowledged = marks[ACKNOWLEDGED], at;

    kernel_override(crash_kernel());
    CHECK_OK(store_stand_run(arg, look));
    first = found;
    for (at = acknowledged; at <= steps; at++)
        if (is_same(&found, at == 0 ? &nothing : &pictures[at - 1])) break;
    if (at > steps)
        TEST_FAIL("it is as it was after none of the steps %u to %u", acknowledged, steps);
    crash_again();
    CHECK_OK(store_stand_run(arg, look));
    CHECK(is_same(&first, &found));
    kernel_override(NULL);
}

static unsigned enumerate(struct store_stand *stand, unsigned states_per_prefix)
{
    record(stand);
    return crash_enumerate(
        &(struct crash_look){.look = check_state, .arg = stand, .disk_bytes = DISK_BYTES},
        states_per_prefix);
}

TEST_WITH(store_recovers_from_many_crash_states, .timeout_ms = 120000)
{
    static struct store_stand stand;
    unsigned states;

    first_of_mode = 3;
    states = enumerate(&stand, TEST_SLOW ? 1 : 8);
    printf("crash states of a store opened: %u\n", states);
    CHECK_INT(states, >, 50);
}

TEST_WITH(store_recovers_from_thousands_of_crash_states, .long_only = true, .timeout_ms = 1800000)
{
    static struct store_stand stand;
    const unsigned per_prefix = TEST_SLOW ? 2 : 24;
    unsigned states = 0;

    for (first_of_mode = 1; first_of_mode <= 5; first_of_mode++) {
        unsigned synced = (JOBS + first_of_mode - 1) / first_of_mode;
        unsigned of_mode = enumerate(&stand, per_prefix);

        /* Each sync that is asked for comes behind a write of its own, of whose sectors more ways
         * to keep some can be chosen than are looked at. */
        CHECK_INT(of_mode, >=, synced * per_prefix);
        states += of_mode;
    }
    printf("crash states of a store opened: %u\n", states);
    CHECK_INT(states, >, TEST_SLOW ? 200 : 2000);
}
