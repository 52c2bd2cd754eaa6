/* bench.c - weir bench: load on a server, and how it takes it. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/histogram.h"
#include "cli/commands.h"
#include "cli/look.h"
#include "cli/output.h"
#include "cli/paths.h"
#include "proto/json_write.h"
#include "rt/mem.h"

enum { CLIENTS_MAX = 1024, BODY_BYTES_MAX = 64 << 20, BATCH_MAX = 64, DRAW_MS = 200 };

enum call_kind { CALL_ENQUEUE, CALL_LEASE, CALL_SETTLE, CALLS };
static const char *const call_names[CALLS] = {"enqueue", "lease", "settle"};

struct bench {
    const struct cli_call *call;
    bool lifecycle;
    int64_t count, batch;
    int64_t enqueued, done, failed; /* jobs; failed: requests */
    int64_t until_ns, began_ns, ended_ns;
    struct histogram calls[CALLS];
    char *payload;
    size_t payload_bytes;
    struct buffer body; /* of all enqueues: they are the same */
    char lease_path[512], lease_body[256];
    int running;
    int status;
};

static int ask(struct bench *bench, struct client *client, enum call_kind kind, const char *target,
               const char *type, struct bytes body, struct client_answer *answer)
{
    int64_t began_ns = weir_now_ns();
    int r = client_ask(client,
                       &(struct client_request){
                           .method = METHOD_POST, .target = target, .type = type, .body = body},
                       answer);

    if (r < 0) {
        if (bench->status == CLI_OK) bench->status = fail_reach(client, r);
        return -1;
    }
    histogram_add(&bench->calls[kind], (uint64_t)(weir_now_ns() - began_ns));
    if (answer->status < 300) return 0;
    bench->failed++;
    if (exit_of_status(answer->status) == CLI_FAILED) return 1; /* shed, or full: it goes on */
    if (bench->status == CLI_OK) bench->status = fail_answer(answer, call_names[kind]);
    return -1;
}

/* ---- What is sent ---- */

static void put_job(struct json_writer *json, const struct bench *bench)
{
    json_open_object(json);
    json_key(json, "queue");
    json_put_string(json, cli_text(bench->call, "queue"));
    json_key(json, "kind");
    json_put_string(json, "bench");
    json_key(json, "idempotent");
    json_put_bool(json, true);
    json_key(json, "payload");
    json_put_text(json, (struct bytes){bench->payload, bench->payload_bytes});
    json_close(json);
}

static int prepare(struct bench *bench)
{
    struct json_writer json;
    struct buffer path;

    buffer_init(&bench->body, BODY_BYTES_MAX, client_resize, NULL);
    for (int64_t i = 0; i < bench->batch; i++) {
        json_writer_init(&json, &bench->body);
        put_job(&json, bench);
        if (bench->batch > 1) buffer_put_char(&bench->body, '\n');
    }
    buffer_init_fixed(&path, bench->lease_path, sizeof bench->lease_path);
    buffer_put_string(&path, PATH_QUEUES "/");
    put_encoded(&path, cli_text(bench->call, "queue"));
    buffer_put_string(&path, "/lease");
    buffer_put_char(&path, '\0');
    (void)snprintf(bench->lease_body, sizeof bench->lease_body,
                   "{\"worker\":\"weir-bench\",\"count\":%lld,\"lease_ms\":60000,\"wait_ms\":0}",
                   (long long)bench->batch);
    return buffer_error(&bench->body);
}

/* Settles all that the lease has brought: how many, or -1. */
static int64_t settle(struct bench *bench, struct client *client, struct bytes leased)
{
    char space[BATCH_MAX * 96 + 64];
    struct client_answer answer;
    struct look_items items;
    struct json_writer json;
    struct buffer body;
    struct bytes job;
    int64_t count = 0;

    buffer_init_fixed(&body, space, sizeof space);
    json_writer_init(&json, &body);
    json_open_object(&json);
    json_key(&json, "settle");
    json_open_array(&json);
    look_begin(&items, look(leased, "jobs"));
    while (look_next(&items, &job)) {
        json_open_object(&json);
        json_key(&json, "id");
        json_put_raw(&json, look(job, "id"));
        json_key(&json, "token");
        json_put_raw(&json, look(job, "token"));
        json_key(&json, "how");
        json_put_string(&json, "ack");
        json_close(&json);
        count++;
    }
    json_close(&json);
    json_close(&json);
    if (count == 0) return 0;
    return ask(bench, client, CALL_SETTLE, PATH_SETTLE, NULL, buffer_bytes(&body), &answer) == 0
               ? count
               : -1;
}

/* ---- The load ---- */

static bool goes_on(const struct bench *bench)
{
    return bench->enqueued < bench->count && weir_now_ns() < bench->until_ns &&
           bench->status == CLI_OK;
}

static int turn(struct bench *bench, struct client *client, const char *enqueue_path)
{
    struct client_answer answer;
    int64_t settled;
    int r;

    bench->enqueued += bench->batch;
    r = ask(bench, client, CALL_ENQUEUE, enqueue_path,
            bench->batch > 1 ? "application/x-ndjson" : NULL, buffer_bytes(&bench->body), &answer);
    if (r != 0) return r;
    if (!bench->lifecycle) {
        bench->done += bench->batch;
        return 0;
    }
    r = ask(bench, client, CALL_LEASE, bench->lease_path, NULL, bytes_of(bench->lease_body),
            &answer);
    if (r != 0) return r;
    settled = settle(bench, client, answer.body);
    if (settled < 0) return -1;
    bench->done += settled;
    return 0;
}

static int client_task(void *arg)
{
    struct bench *bench = *(struct bench **)arg;
    const char *durability = cli_text(bench->call, "durability");
    struct client client;
    char path[128];
    int r = client_for(bench->call, &client);

    (void)snprintf(path, sizeof path, "%s%s%s", bench->batch > 1 ? PATH_JOBS_MANY : PATH_JOBS,
                   durability ? "?durability=" : "", durability ? durability : "");
    if (r == CLI_OK) {
        while (goes_on(bench) && turn(bench, &client, path) >= 0) continue;
        client_deinit(&client);
    } else {
        bench->status = r;
    }
    if (--bench->running == 0) bench->ended_ns = weir_now_ns();
    return 0;
}

static int draw(void *arg)
{
    const struct bench *bench = *(struct bench **)arg;

    while (bench->running > 0) {
        progress("%" PRId64 " of %" PRId64 " jobs", bench->done, bench->count);
        if (weir_sleep(DRAW_MS) < 0) break;
    }
    progress_end();
    return 0;
}

static double ms_at(const struct histogram *histogram, double part)
{
    return (double)histogram_quantile(histogram, part) / 1e6;
}

static void report(const struct bench *bench, bool json)
{
    double seconds = (double)(bench->ended_ns - bench->began_ns) / 1e9;
    double rate = seconds > 0 ? (double)bench->done / seconds : 0;
    struct table table;

    if (json) {
        (void)printf("{\"jobs\":%" PRId64 ",\"seconds\":%.3f,\"jobs_per_second\":%.1f,"
                     "\"failed_requests\":%" PRId64 ",\"calls\":{",
                     bench->done, seconds, rate, bench->failed);
        for (int i = 0; i < CALLS; i++)
            (void)printf("%s\"%s\":{\"count\":%" PRIu64 ",\"p50_ms\":%.3f,\"p99_ms\":%.3f}",
                         i ? "," : "", call_names[i], bench->calls[i].count,
                         ms_at(&bench->calls[i], 0.5), ms_at(&bench->calls[i], 0.99));
        (void)puts("}}");
        return;
    }
    (void)printf("%" PRId64 " jobs in %.2f s: %.0f jobs/s; %" PRId64 " requests refused\n",
                 bench->done, seconds, rate, bench->failed);
    table_init(&table, "call requests> p50> p99>");
    for (int i = 0; i < CALLS; i++) {
        if (bench->calls[i].count == 0) continue;
        table_cell(&table, "%s", call_names[i]);
        table_cell(&table, "%" PRIu64, bench->calls[i].count);
        table_cell(&table, "%.2fms", ms_at(&bench->calls[i], 0.5));
        table_cell(&table, "%.2fms", ms_at(&bench->calls[i], 0.99));
    }
    table_end(&table, NULL);
}

static int run_clients(struct bench *bench)
{
    int64_t clients = cli_number(bench->call, "clients");
    int r = 0, result = 0;

    bench->began_ns = weir_now_ns();
    bench->until_ns = bench->began_ns + cli_number(bench->call, "seconds") * 1000000000;
    WEIR_SCOPE(scope, &result, .name = "bench", .on_failure = WEIR_FAIL_FAST,
               .max_tasks = CLIENTS_MAX + 1, .overflow = WEIR_REJECT) {
        for (int64_t i = 0; i < clients && r == 0; i++) {
            r = weir_spawn(scope, client_task, &bench, sizeof bench);
            if (r == 0) bench->running++;
        }
        if (r == 0) r = weir_spawn(scope, draw, &bench, sizeof bench);
    }
    return r < 0 ? r : result;
}

static bool is_local(const char *server)
{
    return strncmp(server, "unix:", 5) == 0 || strstr(server, "//127.") ||
           strstr(server, "//localhost") || strstr(server, "//[::1]");
}

static int run_bench(struct cli_call *call)
{
    struct bench *bench = mem_alloc_zeroed(sizeof *bench);
    int r;

    if (!bench) return fail(CLI_FAILED, "no memory");
    for (int i = 0; i < CALLS; i++) histogram_init(&bench->calls[i]);
    bench->call = call;
    bench->lifecycle = strcmp(cli_text(call, "mode"), "lifecycle") == 0;
    bench->count = cli_number(call, "count");
    bench->batch = cli_number(call, "batch");
    bench->payload_bytes = (size_t)cli_number(call, "payload-bytes");
    bench->payload = mem_alloc(bench->payload_bytes + 1);
    if (bench->payload) memset(bench->payload, 'x', bench->payload_bytes);
    r = bench->payload ? prepare(bench) : -ENOMEM;
    if (r == 0) r = run_clients(bench);
    if (r < 0) bench->status = fail(CLI_FAILED, "%s", weir_strerror(r));
    if (bench->status == CLI_OK || bench->done > 0) report(bench, cli_has(call, "json"));
    r = bench->status;
    buffer_deinit(&bench->body);
    mem_free(bench->payload);
    mem_free(bench);
    return r;
}

int command_bench(struct cli_call *call)
{
    const char *server = cli_text(call, "server");

    if (!is_local(server) && !cli_has(call, "remote"))
        return fail(CLI_USAGE, "'%s' is not on this machine: say --remote if it is yours to burden",
                    server);
    return with_runtime(call, run_bench);
}
