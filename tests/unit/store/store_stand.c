/* store_stand.c - see store_test.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "unit/store/log_test.h"
#include "unit/store/store_test.h"

void store_stand_make(struct store_stand *stand)
{
    /* In memory, if there is such a folder: what syncs cost is not what is tested here. */
    char path[] = "/dev/shm/weir-test-XXXXXX";

    memset(stand, 0, sizeof *stand);
    if (access("/dev/shm", W_OK) != 0) strcpy(path, "/tmp/weir-test-XXXXXX");
    CHECK(mkdtemp(path) != NULL);
    (void)snprintf(stand->path, sizeof stand->path, "%s", path);
    stand->spec = (weir_store_spec){
        .name = "work",
        .path = stand->path,
        .create = true,
        .durability = WEIR_SYNCED,
        .memory_bytes_max = 64 << 20,
        .queue_depth_max = 1000000,
        .queue_overflow = WEIR_REJECT,
        .payload_bytes_max = 32 * 1024,
        .result_bytes_max = 32 * 1024,
    };
    stand->sizes = (struct store_sizes){
        .segment_bytes = 1 << 20,
        .buffer_bytes = 640 * 1024,
        .record_bytes_max = 320 * 1024,
    };
}

void store_stand_remove(struct store_stand *stand)
{
    folder_remove_all(stand->path);
}

struct run {
    struct store_stand *stand;
    int (*fn)(struct store_stand *stand);
};

static int run_main(void *arg)
{
    struct run *run = arg;
    int r = 0, closed = 0;

    WEIR_DEADLINE(STORE_STAND_DEADLINE_MS) {
        WEIR_SCOPE(scope, &closed, .name = "stores", .on_failure = WEIR_FAIL_FAST, .max_tasks = 64,
                   .overflow = WEIR_REJECT) {
            run->stand->scope = scope;
            r = run->fn(run->stand);
        }
    }
    return r < 0 ? r : closed;
}

int store_stand_run(struct store_stand *stand, int (*fn)(struct store_stand *stand))
{
    struct run run = {stand, fn};

    return weir_run(&(weir_config){.workers = stand->workers ? stand->workers : test_workers()},
                    run_main, &run);
}

int store_stand_try(struct store_stand *stand, weir_store **ret_store)
{
    return store_open(stand->scope, &stand->spec, &stand->sizes, ret_store);
}

weir_store *store_stand_open(struct store_stand *stand)
{
    weir_store *store = NULL;

    CHECK_OK(store_stand_try(stand, &store));
    return store;
}

void stand_await_spares(weir_store *store)
{
    uint64_t segment_bytes = store_look_up(store, "test")->segment_bytes;
    weir_store_figures figures;

    do {
        CHECK_OK(weir_yield());
        weir_store_figures_of(store, &figures);
    } while (figures.disk_bytes < 3 * segment_bytes); /* the first segment, and two */
}

weir_job_spec stand_job(const char *queue, const char *payload)
{
    return (weir_job_spec){
        .queue = queue,
        .kind = "work",
        .version = 1,
        .payload = payload,
        .payload_bytes = strlen(payload),
        .idempotent = WEIR_YES,
        .retry = {.attempts_max = 3,
                  .backoff_ms = 1000,
                  .backoff_ms_max = 10000,
                  .no_jitter = true},
    };
}

uint64_t stand_enqueue(weir_store *store, const char *queue, const char *payload)
{
    weir_job_spec spec = stand_job(queue, payload);
    weir_enqueued enqueued;

    CHECK_OK(weir_job_enqueue(store, &spec, &enqueued));
    return enqueued.id;
}

int stand_lease(weir_store *store, const char *queue, weir_job *ret_job)
{
    int r = weir_job_lease(
        store,
        &(weir_lease_spec){
            .queue = queue, .worker = "w", .count = 1, .lease_ms = 60000, .at_once = true},
        ret_job);

    CHECK_OK(r);
    return r;
}

uint64_t stand_work(weir_store *store, const char *queue)
{
    weir_job job;
    uint64_t id;

    CHECK_INT(stand_lease(store, queue, &job), ==, 1);
    id = job.id;
    CHECK_OK(weir_job_ack(store, job.id, job.token, "fine", 4));
    weir_job_free(&job);
    return id;
}

enum weir_job_state stand_state(weir_store *store, uint64_t id)
{
    weir_job_info info;
    enum weir_job_state state;

    CHECK_OK(weir_job_get(store, id, &info));
    state = info.state;
    weir_job_info_free(&info);
    return state;
}
