/* store_hold_test.c - calls wait for compaction when they would outrun it: the disk that a store
 * takes has a bound, and nothing is lost. */
#include <stdio.h>
#include <string.h>

#include "unit/store/store_test.h"

enum {
    PARKED = 100,
    PAYLOAD_BYTES = 4000,
    WRITERS = 8,
    ROUNDS = 600, /* of each: about forty segments in all */
};

struct crowd {
    weir_store *store;
    struct store *inside;
    ATOM(uint64_t) over_max; /* bytes of segments beyond twice what is needed, at most */
};

static void note_use(struct crowd *crowd)
{
    struct log_figures figures;
    int64_t over;

    log_figures(crowd->inside->log, &figures);
    over = (int64_t)(figures.segment_count * figures.segment_bytes) - 2 * figures.live_bytes;
    if (over > (int64_t)atom_load(&crowd->over_max)) atom_store(&crowd->over_max, (uint64_t)over);
}

/* Nobody waits for a disk: as fast as a store can be. */
static int come_and_go(void *arg)
{
    struct crowd *crowd = *(struct crowd **)arg;
    char payload[PAYLOAD_BYTES];
    weir_job_spec spec;
    int r = 0;

    memset(payload, 'w', sizeof payload);
    payload[sizeof payload - 1] = '\0';
    spec = stand_job("busy", payload);
    spec.durability = WEIR_MEMORY;
    for (int i = 0; i < ROUNDS && r >= 0; i++) {
        weir_enqueued enqueued;
        weir_job job;

        r = weir_job_enqueue(crowd->store, &spec, &enqueued);
        if (r < 0) break;
        note_use(crowd);
        r = weir_job_lease(crowd->store,
                           &(weir_lease_spec){.queue = "busy",
                                              .worker = "w",
                                              .count = 1,
                                              .lease_ms = 60000,
                                              .durability = WEIR_MEMORY},
                           &job);
        if (r != 1) break;
        note_use(crowd);
        r = weir_job_ack(crowd->store, job.id, job.token, NULL, 0);
        weir_job_free(&job);
        note_use(crowd);
    }
    return r < 0 ? r : 0;
}

static void check_parked(weir_store *store, const uint64_t *ids)
{
    char bytes[PAYLOAD_BYTES];

    for (int i = 0; i < PARKED; i++) {
        CHECK_INT(weir_job_payload(store, ids[i], bytes, sizeof bytes), ==, PAYLOAD_BYTES - 1);
        CHECK_INT(bytes[0], ==, (char)('a' + i % 26));
        CHECK_INT(stand_state(store, ids[i]), ==, WEIR_JOB_READY);
    }
}

STORE_TEST_WITH(writers_that_outrun_compaction_are_held_back_within_its_bound,
                .timeout_ms = 4 * TEST_TIMEOUT_MS_DEFAULT)
{
    static uint64_t parked[PARKED];
    struct crowd crowd = {0}, *shared = &crowd;
    char payload[PAYLOAD_BYTES];
    weir_store_figures figures;
    int r = 0;

    stand->spec.history_count_max = 1;
    stand->sizes.segment_bytes = 512 * 1024;
    crowd.store = store_stand_open(stand);
    crowd.inside = store_look_up(crowd.store, "test");
    memset(payload, 'p', sizeof payload);
    payload[sizeof payload - 1] = '\0';
    for (int i = 0; i < PARKED; i++) {
        payload[0] = (char)('a' + i % 26);
        parked[i] = stand_enqueue(crowd.store, "parked", payload);
    }
    WEIR_SCOPE(scope, &r, .name = "crowd", .on_failure = WEIR_FAIL_FAST, .max_tasks = WRITERS,
               .overflow = WEIR_REJECT) {
        for (int i = 0; i < WRITERS; i++)
            CHECK_OK(weir_spawn(scope, come_and_go, &shared, sizeof shared));
    }
    CHECK_OK(r);
    weir_store_figures_of(crowd.store, &figures);
    CHECK(figures.compacted_bytes > 0);
    /* Of the bound one, two until new work waits, one for what exists then, one for compaction. */
    CHECK_INT(atom_load(&crowd.over_max), <=, (3 + LOG_HELD_SEGMENTS) * stand->sizes.segment_bytes);
    check_parked(crowd.store, parked);
    CHECK_OK(weir_store_close(crowd.store));
    crowd.store = store_stand_open(stand);
    check_parked(crowd.store, parked);
    CHECK_OK(weir_store_close(crowd.store));
}
