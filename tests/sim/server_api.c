/* server_api.c - the API on one host, its clients on another: see server_api.h. */
#include "sim/server_api.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "server/api.h"
#include "sim/server_api_planted.h"
#include "store/store.h"

enum {
    PRODUCERS = 2,
    WORKERS = 2,
    JOBS_EACH = 3,
    LEASE_MS_SHORT = 40,
    LEASE_MS_LONG = 2000,
    KILLS_MAX = 4, /* by the program itself; so many runs have none */
    CUTS_MAX = 3,
    TRIES_MAX = 400,
    LOOKS_MAX = 4000,
    LEARN_EVERY = 8,
    CALM_AFTER = 60, /* steps of a worker, after which it only acknowledges */
    LIMIT_MS = 3000 * 1000,
};

static struct {
    unsigned producing; /* producers that have not ended */
    bool over;          /* clients may leave */
    bool ill;           /* the store has stopped: the host is to be started again */
} state;

void server_api_begin(void *arg)
{
    (void)arg;
    told_begin();
    memset(&state, 0, sizeof state);
}

/* ---- The server ---- */

static int write_tokens(const char *path)
{
    weir_file *file;
    ssize_t n;
    int r = weir_file_open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600, &file), closed;

    if (r < 0) return r;
    n = weir_file_write(file, wire_token_file, strlen(wire_token_file), 0);
    if (n >= 0 && (size_t)n < strlen(wire_token_file)) n = -EIO;
    closed = weir_file_close(file);
    return n < 0 ? (int)n : closed;
}

static int open_store(weir_scope *scope, weir_store **ret_store)
{
    const weir_store_spec spec = {.name = "work",
                                  .path = "/store",
                                  .create = true,
                                  .durability = WEIR_SYNCED,
                                  .memory_bytes_max = 16 << 20,
                                  .queue_depth_max = 100,
                                  .queue_overflow = WEIR_REJECT,
                                  .payload_bytes_max = 1024,
                                  .result_bytes_max = 1024,
                                  .history_ms = INT64_C(86400000),
                                  .history_count_max = 1000};
    const struct store_sizes sizes = {
        .segment_bytes = 384 * 1024, .buffer_bytes = 448 * 1024, .record_bytes_max = 216 * 1024};
    int r = store_open(scope, &spec, &sizes, ret_store);

    if (r == -EBADMSG || r == -EBUSY || r == WEIR_EREFUSED)
        weir_sim_fail("the store cannot be opened: %s", weir_why());
    return r;
}

static int serve(weir_scope *scope, struct api *api)
{
    const struct service_listener listener = {.address = "tcp:0.0.0.0:7000"};
    struct service_limits limits = SERVICE_LIMITS_DEFAULT;
    int r, closed;

    limits.connections_max = 16;
    limits.requests_max = 16;
    r = service_open(scope,
                     &(struct service_spec){.name = "sim",
                                            .routes = server_api_planted_routes(),
                                            .listeners = &listener,
                                            .listener_count = 1,
                                            .limits = limits,
                                            .keep_deps = api,
                                            .admit = api_admit,
                                            .done = api_done},
                     &api->service);
    if (r < 0) return r;
    r = weir_sleep(LIMIT_MS);
    closed = service_close(api->service);
    return r < 0 ? r : closed;
}

static int live(weir_scope *scope)
{
    struct api api = {.durability = WEIR_SYNCED};
    int r = write_tokens("/tokens.json"), closed;

    if (r == 0) r = open_store(scope, &api.store);
    if (r < 0) return r;
    r = tokens_open(scope, "/tokens.json", &api.tokens);
    if (r == 0) {
        r = serve(scope, &api);
        tokens_close(api.tokens);
    }
    closed = weir_store_close(api.store);
    return r < 0 ? r : closed;
}

static int server_main(void *arg)
{
    int r = 0, closed = 0;

    (void)arg;
    WEIR_DEADLINE(LIMIT_MS) {
        WEIR_SCOPE(scope, &closed, .name = "server", .on_failure = WEIR_COLLECT, .max_tasks = 16,
                   .overflow = WEIR_REJECT) {
            r = live(scope);
        }
    }
    return r < 0 ? r : closed;
}

/* ---- Producers ---- */

static int ask(struct wire *wire, const char *path, const char *fields, const char *body)
{
    int r = wire_ask(wire, "POST", path, fields, body);

    if (r == -EAGAIN && wire_says(wire, "store has stopped")) state.ill = true;
    return r;
}

static int spec_of(int key, char *text, size_t bytes)
{
    return snprintf(text, bytes,
                    "{\"queue\":\"q\",\"kind\":\"k\",\"idempotent\":true,\"payload\":{\"n\":%d},"
                    "\"retry\":{\"attempts_max\":1000,\"backoff_ms\":1,\"backoff_ms_max\":1}",
                    key);
}

/* One job; with its key in the head. */
static int enqueue_one(struct wire *wire, int key)
{
    char body[256], fields[64];
    int used = spec_of(key, body, sizeof body), r;

    (void)snprintf(body + used, sizeof body - (size_t)used, "}");
    (void)snprintf(fields, sizeof fields, "idempotency-key: key-%d\r\n", key);
    r = ask(wire, "/v1/jobs", fields, body);
    if (r < 0) return r;
    CHECK(wire->status == 200 || wire->status == 201);
    told_enqueued(key, wire_number(wire->body, "id"), wire_says(wire, "\"durability\":\"synced\""));
    return 0;
}

static int produce(void *arg)
{
    struct wire wire = {.conn = NULL};
    int r = 0;

    (void)arg;
    for (int i = 0; i < JOBS_EACH && r == 0; i++) {
        int key = told_want(), tries = 0;

        if (key < 0) break;
        /* With a key it is asked until it is told; and again, by choice. */
        while (r == 0 && (enqueue_one(&wire, key) < 0 || weir_sim_choose(4) == 1)) {
            if (++tries == TRIES_MAX) weir_sim_fail("key %d is not taken", key);
            r = weir_sleep(5 + weir_sim_choose(20));
        }
    }
    wire_close(&wire);
    state.producing--;
    return r;
}

/* ---- Workers ---- */

struct lease {
    int key;
    uint64_t id, token;
};

static int take(struct wire *wire, struct lease *ret_lease)
{
    int64_t lease_ms = weir_sim_choose(2) ? LEASE_MS_SHORT : LEASE_MS_LONG;
    unsigned asked = told_ask();
    const char *payload;
    char body[128];
    int r;

    (void)snprintf(body, sizeof body, "{\"worker\":\"w\",\"lease_ms\":%" PRId64 ",\"wait_ms\":%u}",
                   lease_ms, 30 * weir_sim_choose(3));
    wire->shut = weir_sim_choose(6) == 1;
    r = ask(wire, "/v1/queues/q/lease", "", body);
    if (r < 0) return r;
    CHECK_INT(wire->status, ==, 200);
    payload = strstr(wire->body, "\"payload\":");
    if (!payload) return 0;
    ret_lease->key = (int)wire_number(payload, "n");
    ret_lease->id = wire_number(wire->body, "id");
    ret_lease->token = wire_number(wire->body, "token");
    told_leased(ret_lease->key, ret_lease->id, ret_lease->token,
                (int64_t)wire_number(wire->body, "lease_until_ms"), lease_ms, asked);
    return 1;
}

static int extend(struct wire *wire, const struct lease *lease)
{
    unsigned asked = told_ask();
    char path[64], body[64];
    int r;

    (void)snprintf(path, sizeof path, "/v1/jobs/%" PRIu64 "/extend", lease->id);
    (void)snprintf(body, sizeof body, "{\"token\":\"%" PRIu64 "\",\"lease_ms\":%d}", lease->token,
                   LEASE_MS_LONG);
    r = ask(wire, path, "", body);
    if (r == 0 && wire->status == 200)
        told_extended(lease->key, lease->token, (int64_t)wire_number(wire->body, "lease_until_ms"),
                      asked);
    return r;
}

static int settle(struct wire *wire, const struct lease *lease, const char *how)
{
    bool ends = strcmp(how, "ack") == 0;
    unsigned asked = told_ask();
    char path[64], body[128], result[48] = "";
    int r;

    if (ends) (void)snprintf(result, sizeof result, ",\"result\":\"%" PRIu64 "\"", lease->token);
    (void)snprintf(path, sizeof path, "/v1/jobs/%" PRIu64 "/%s", lease->id, how);
    (void)snprintf(body, sizeof body, "{\"token\":\"%" PRIu64 "\"%s}", lease->token, result);
    told_settle_asked(lease->key, lease->token, ends);
    r = ask(wire, path, "", body);
    if (r < 0) return r;
    if (wire->status == 200)
        told_settled(lease->key, lease->token, ends, asked);
    else
        told_refused(lease->key, lease->token, ends);
    return 0;
}

/* The end of a job and a new one, together. */
static int commit(struct wire *wire, const struct lease *lease)
{
    unsigned asked = told_ask();
    int key = told_want(), used, r;
    char body[512], spec[256];
    struct told_job *new_job;

    if (key < 0) return settle(wire, lease, "ack");
    new_job = &told.jobs[key];
    used = spec_of(key, spec, sizeof spec);
    (void)snprintf(spec + used, sizeof spec - (size_t)used, ",\"idempotency_key\":\"key-%d\"}",
                   key);
    (void)snprintf(body, sizeof body,
                   "{\"enqueue\":[%s],\"settle\":[{\"id\":\"%" PRIu64 "\",\"token\":\"%" PRIu64
                   "\",\"how\":\"ack\",\"result\":\"%" PRIu64 "\"}]}",
                   spec, lease->id, lease->token, lease->token);
    new_job->source = lease->key;
    new_job->source_token = lease->token;
    new_job->in_doubt = true;
    told_settle_asked(lease->key, lease->token, true);
    r = ask(wire, "/v1/commit", "", body);
    if (r < 0) return r;
    if (wire->status == 200) {
        told_settled(lease->key, lease->token, true, asked);
        told_enqueued(key, wire_number(wire->body, "id"),
                      wire_says(wire, "\"durability\":\"synced\""));
    } else {
        told_refused(lease->key, lease->token, true);
        new_job->unwelcome = true;
        new_job->in_doubt = false;
    }
    return 0;
}

/* Without a token that is known nobody is served. */
static int try_the_door(void)
{
    struct wire other = {.conn = NULL};
    int r = wire_ask_as(&other, wire_wrong_token, "/v1/queues/q/lease", "{\"worker\":\"w\"}");

    if (r == 0 && other.status != 401 && other.status != 429 && other.status < 500)
        weir_sim_fail("a wrong token got %u", other.status);
    wire_close(&other);
    return 0;
}

static int work_on(struct wire *wire, const struct lease *lease, bool calm)
{
    int r = 0;

    switch (calm ? 0 : weir_sim_choose(8)) {
    case 1: return settle(wire, lease, "fail");
    case 2: return settle(wire, lease, "release");
    case 3: return commit(wire, lease);
    case 4: r = extend(wire, lease); return r < 0 ? r : settle(wire, lease, "ack");
    case 5: /* too late, perhaps */
        r = weir_sleep(LEASE_MS_SHORT + 5);
        if (r == 0 && weir_sim_choose(2) == 1) return commit(wire, lease);
        return r < 0 ? r : settle(wire, lease, weir_sim_choose(2) ? "ack" : "release");
    case 6: return try_the_door();
    case 7: return 0; /* without a word */
    default: return settle(wire, lease, "ack");
    }
}

static int work(void *arg)
{
    struct wire wire = {.conn = NULL};
    int r = 0;

    (void)arg;
    for (int step = 0; r == 0 && !state.over; step++) {
        struct lease lease;

        r = take(&wire, &lease);
        if (r > 0) r = work_on(&wire, &lease, step >= CALM_AFTER);
        /* Somebody is gone, for now. */
        r = weir_sleep(r < 0 ? 10 : 1);
    }
    wire_close(&wire);
    return r;
}

/* ---- The last look ---- */

static void look_at_rows(const struct wire *wire)
{
    const char *row = wire->body;

    told_look_begin();
    while ((row = strstr(row, "{\"id\":")) != NULL) {
        const char *key = strstr(row, "\"idempotency_key\":\"key-");
        bool is_done;

        if (!key) weir_sim_fail("a job has no key");
        is_done = strncmp(strstr(row, "\"state\":"), "\"state\":\"done\"", 14) == 0;
        told_found((int)strtol(key + strlen("\"idempotency_key\":\"key-"), NULL, 10),
                   wire_number(row, "id"), is_done);
        row = key;
    }
    told_look_end();
}

static int look_at_results(struct wire *wire)
{
    int r = 0;

    for (unsigned i = 0; i < told.job_count && r == 0; i++) {
        char path[64];

        if (!told.jobs[i].ended || !told.jobs[i].kept) continue;
        (void)snprintf(path, sizeof path, "/v1/jobs/%" PRIu64 "/result", told.jobs[i].id);
        r = wire_ask(wire, "GET", path, "", "");
        if (r == 0 && wire->status != 200) weir_sim_fail("the result of key %u is lost", i);
        if (r == 0) told_result((int)i, wire->body);
    }
    return r;
}

static void start_again(weir_sim_host *host)
{
    if (!weir_sim_host_running(host)) CHECK_OK(weir_sim_host_restart(host));
}

static int look(weir_sim_host *host)
{
    struct wire wire = {.conn = NULL};
    int r = -EAGAIN;

    for (int tries = 0; r < 0; tries++) {
        if (tries == TRIES_MAX) weir_sim_fail("the server does not come back");
        start_again(host);
        r = wire_ask(&wire, "GET", "/v1/jobs?filter=state:any&limit=100", "", "");
        if (r == 0) {
            CHECK_INT(wire.status, ==, 200);
            look_at_rows(&wire);
            r = look_at_results(&wire);
        }
        if (r < 0 && weir_sleep(20) < 0) break;
    }
    wire_close(&wire);
    return r;
}

/* ---- The run ---- */

/* Who was not told of an end that it has asked for looks whether it has come. */
static void learn(struct wire *wire)
{
    int r = 0;

    for (unsigned i = 0; i < told.job_count && r == 0; i++) {
        struct told_job *job = &told.jobs[i];
        char path[64];

        if (!job->kept || job->ended || job->seen_done || job->end_asks == 0) continue;
        (void)snprintf(path, sizeof path, "/v1/jobs/%" PRIu64, job->id);
        r = wire_ask(wire, "GET", path, "", "");
        if (r == 0 && wire->status != 200) weir_sim_fail("the job of key %u is lost", i);
        if (r == 0 && wire_says(wire, "\"state\":\"done\"")) job->seen_done = true;
    }
}

static void disturb(weir_sim_host *host, unsigned *kills, unsigned *cuts, bool *is_cut)
{
    if (*is_cut && weir_sim_choose(4) == 1) {
        weir_sim_heal(host, weir_sim_host_self());
        *is_cut = false;
    } else if (!*is_cut && *cuts > 0 && weir_sim_choose(12) == 1) {
        weir_sim_partition(host, weir_sim_host_self());
        *is_cut = true;
        (*cuts)--;
    }
    if (*kills > 0 && weir_sim_choose(12) == 1) {
        weir_sim_host_kill(host);
        (*kills)--;
    }
}

/* Until all jobs have come to their end. */
static int watch(weir_sim_host *host)
{
    unsigned kills = weir_sim_choose(KILLS_MAX), cuts = weir_sim_choose(CUTS_MAX);
    struct wire wire = {.conn = NULL};
    bool is_cut = false;
    int r = 0, looks = 0;

    while (r == 0 && (state.producing > 0 || !told_all_ended()) && ++looks < LOOKS_MAX) {
        r = weir_sleep(11);
        disturb(host, &kills, &cuts, &is_cut);
        if (state.ill) weir_sim_host_kill(host);
        state.ill = false;
        start_again(host);
        if (looks % LEARN_EVERY == 0 && state.producing == 0 && !is_cut) learn(&wire);
    }
    wire_close(&wire);
    if (is_cut) weir_sim_heal(host, weir_sim_host_self());
    state.over = true;
    weir_sim_host_kill(host); /* the last power cut, then a look at what is there */
    if (r == 0) r = look(host);
    if (r == 0 && looks == LOOKS_MAX) weir_sim_fail("a job does not end");
    return r;
}

int server_api_program(void *arg)
{
    int r = 0, closed = 0;

    (void)arg;
    state.producing = PRODUCERS;
    WEIR_DEADLINE(LIMIT_MS) {
        WEIR_SCOPE(scope, &closed, .name = "clients", .on_failure = WEIR_FAIL_FAST,
                   .max_tasks = PRODUCERS + WORKERS, .overflow = WEIR_REJECT) {
            weir_sim_host *host = host_start("server", server_main);

            r = crowd_of(PRODUCERS, produce, scope, NULL);
            if (r == 0) r = crowd_of(WORKERS, work, scope, NULL);
            if (r == 0) r = watch(host);
            state.over = true;
        }
    }
    return r < 0 ? r : closed;
}

/* ---- The tests ---- */

#define SERVER_API_TEST(name_, ...)                                                             \
    TEST_WITH(name_, .timeout_ms = 300000)                                                      \
    {                                                                                           \
        weir_test_sim(&(weir_sim_spec){.name = #name_, .begin = server_api_begin, __VA_ARGS__}, \
                      server_api_program, NULL);                                                \
    }

SERVER_API_TEST(sim_the_api_keeps_its_word_through_kills, .runs_max = 80)
SERVER_API_TEST(
    sim_the_api_keeps_its_word_when_connections_break, .runs_max = 80,
    .faults = {
        .short_io = 10, .late = 8, .late_ms_max = 60, .reset = 60, .refuse = 8, .faults_max = 60})
SERVER_API_TEST(sim_the_api_keeps_its_word_through_power_cuts, .runs_max = 80,
                .faults = {.late = 8, .late_ms_max = 60, .kill = 300, .faults_max = 20})
SERVER_API_TEST(
    sim_the_api_keeps_its_word_when_disks_fail, .runs_max = 80,
    .faults = {
        .disk_error = 150, .disk_full = 100, .sync_error = 80, .reset = 100, .faults_max = 12})
