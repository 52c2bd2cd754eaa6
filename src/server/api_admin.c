/* api_admin.c - what the process is and does: info, configuration, connections, tasks, boundaries,
 * audit log. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rt/mem.h"
#include "server/api_handlers.h"
#include "server/api_in.h"
#include "server/api_out.h"

static int begin(struct exchange *x)
{
    static const char *const names[] = {NULL};
    int r = exchange_query_only(x, names);

    return r < 0 ? r : api_allow(x, VERB_ADMIN, NULL);
}

static void put_store(struct json_writer *json, weir_store *store)
{
    weir_store_figures figures;

    weir_store_figures_of(store, &figures);
    json_key(json, "store");
    json_open_object(json);
    out_int(json, "jobs", (int64_t)figures.jobs);
    out_int(json, "memory_bytes", (int64_t)figures.memory_bytes);
    out_int(json, "memory_bytes_max", (int64_t)figures.memory_bytes_max);
    out_int(json, "disk_bytes", (int64_t)figures.disk_bytes);
    out_int(json, "live_bytes", (int64_t)figures.live_bytes);
    out_int(json, "commits", (int64_t)figures.commits);
    out_int(json, "records", (int64_t)figures.records);
    out_int(json, "records_replayed", (int64_t)figures.records_replayed);
    out_int(json, "open_ms", figures.open_ms);
    out_int(json, "clock_ahead_ms", figures.clock_ahead_ms);
    out_int(json, "waiting", (int64_t)figures.waiting);
    out_int(json, "waiting_room", (int64_t)figures.waiting_room);
    out_text_if(json, "room_error", figures.room_error ? weir_error_name(figures.room_error) : "");
    out_text_if(json, "error", figures.error ? weir_error_name(figures.error) : "");
    json_close(json);
}

static void put_service(struct json_writer *json, struct service *service)
{
    struct service_figures figures;

    service_figures_of(service, &figures);
    json_key(json, "service");
    json_open_object(json);
    out_int(json, "connections", figures.connections);
    out_int(json, "connections_idle", figures.connections_idle);
    out_int(json, "requests", figures.requests);
    out_int(json, "accepted", (int64_t)figures.accepted);
    out_int(json, "served", (int64_t)figures.served);
    out_int(json, "shed", (int64_t)figures.shed);
    out_int(json, "failed", (int64_t)figures.failed);
    out_int(json, "timed_out", (int64_t)figures.timed_out);
    json_close(json);
}

int admin_info(struct exchange *x)
{
    const struct api *api = api_of(x);
    struct json_writer *json;
    int r = begin(x);

    if (r < 0) return r;
    json = exchange_json(x, 200);
    json_open_object(json);
    out_text(json, "name", api->name ? api->name : "weir");
    out_text(json, "version", WEIR_VERSION);
    out_int(json, "pid", getpid());
    out_int(json, "started_ms", api->started_ms);
    out_int(json, "now_ms", api_now_ms());
    out_text(json, "durability", api_durability_name(api->durability));
    out_bool(json, "tokens", api_needs_token(api));
    out_bool(json, "draining", atom_load(&api->draining));
    out_int(json, "workers", weir_worker_count());
    put_store(json, api->store);
    if (api->service) put_service(json, api->service);
    json_close(json);
    return 0;
}

int admin_config(struct exchange *x)
{
    const char *config = atom_load(&api_of(x)->config);
    int r = begin(x);

    if (r < 0) return r;
    if (!config) return exchange_problem(x, PROBLEM_NO_SUCH, "no configuration was given");
    return exchange_bytes(x, 200, "text/plain; charset=utf-8", bytes_of(config));
}

/* ---- Connections ---- */

enum { CONNECTIONS_AT_ONCE = 64, CONNECTIONS_DEFAULT = 100, CONNECTIONS_MAX = 1000 };

static void put_connection(struct json_writer *json, const struct service_connection *one)
{
    json_open_object(json);
    api_put_id(json, "id", one->id);
    out_text(json, "peer", one->peer);
    out_bool(json, "tls", one->tls);
    out_int(json, "since_ms", one->since_ms);
    out_int(json, "requests", (int64_t)one->requests);
    out_text(json, "doing", one->doing);
    out_text_if(json, "route", one->route);
    json_close(json);
}

int admin_connections(struct exchange *x)
{
    static const char *const names[] = {"after", "limit", NULL};
    struct service *service = api_of(x)->service;
    struct service_connection *found;
    int64_t after = 0, limit = CONNECTIONS_DEFAULT;
    struct json_writer *json;
    size_t count = CONNECTIONS_AT_ONCE;
    int r = exchange_query_only(x, names);

    if (r >= 0) r = exchange_query_int(x, "after", 0, INT64_MAX, &after);
    if (r >= 0) r = exchange_query_int(x, "limit", 1, CONNECTIONS_MAX, &limit);
    if (r >= 0) r = api_allow(x, VERB_ADMIN, NULL);
    if (r < 0) return r;
    found = mem_alloc(CONNECTIONS_AT_ONCE * sizeof *found);
    if (!found) return api_fail(x, -ENOMEM, "connections");
    json = exchange_json(x, 200);
    json_open_object(json);
    json_key(json, "connections");
    json_open_array(json);
    while (service && limit > 0 && count == CONNECTIONS_AT_ONCE) {
        size_t room = limit < CONNECTIONS_AT_ONCE ? (size_t)limit : CONNECTIONS_AT_ONCE;

        count = service_connections(service, (uint64_t)after, found, room);
        for (size_t i = 0; i < count; i++) put_connection(json, &found[i]);
        if (count > 0) after = (int64_t)found[count - 1].id;
        limit -= (int64_t)count;
    }
    json_close(json);
    if (service && limit == 0) api_put_id(json, "next", (uint64_t)after);
    json_close(json);
    mem_free(found);
    return 0;
}

/* ---- Tasks and boundaries: into a file in memory, and from there ---- */

enum { DUMP_BYTES_MAX = 8 << 20, CUT_LINE_BYTES = 128 };

/* Lines that are more than that are cut, and the last one says so; what would not be whole then is
 * refused. */
static int answer_file(struct exchange *x, int fd, const char *type, bool is_lines)
{
    off_t whole = lseek(fd, 0, SEEK_END);
    off_t max = (off_t)x->out.bytes_max - CUT_LINE_BYTES;
    off_t bytes, at = 0;
    struct buffer *out;
    char piece[4096];

    if (max > DUMP_BYTES_MAX) max = DUMP_BYTES_MAX;
    bytes = whole > max ? max : whole;
    if (bytes < whole && !is_lines)
        return exchange_problem(x, PROBLEM_NOT_ACCEPTABLE,
                                "in this form it has %lld bytes, more than the %lld of an answer; "
                                "as text it is cut",
                                (long long)whole, (long long)max);
    out = exchange_text(x, 200, type);
    while (at < bytes) {
        size_t room = (size_t)(bytes - at) < sizeof piece ? (size_t)(bytes - at) : sizeof piece;
        ssize_t n = pread(fd, piece, room, at);

        if (n <= 0) return api_fail(x, n < 0 ? -errno : -EIO, "dump");
        buffer_put(out, piece, (size_t)n);
        at += n;
    }
    if (bytes < whole) {
        (void)snprintf(piece, sizeof piece, "\n(cut here: %lld of %lld bytes are shown)\n",
                       (long long)bytes, (long long)whole);
        buffer_put_string(out, piece);
    }
    return 0;
}

int admin_tasks(struct exchange *x)
{
    int r = begin(x), fd;

    if (r < 0) return r;
    fd = memfd_create("weir-tasks", MFD_CLOEXEC);
    if (fd < 0) return api_fail(x, -errno, "dump");
    r = weir_dump(fd);
    r = r < 0 ? api_fail(x, r, "dump") : answer_file(x, fd, "text/plain; charset=utf-8", true);
    (void)close(fd);
    return r;
}

int admin_map(struct exchange *x)
{
    static const char *const names[] = {"format", NULL};
    static const struct {
        const char *name, *type;
        enum weir_map_format format;
    } formats[] = {{"json", "application/json", WEIR_MAP_JSON},
                   {"text", "text/plain; charset=utf-8", WEIR_MAP_TEXT},
                   {"graphviz", "text/vnd.graphviz", WEIR_MAP_GRAPHVIZ}};
    const char *name = "json";
    unsigned i = 0;
    int r = exchange_query_only(x, names), fd;

    if (r >= 0) r = exchange_query(x, "format", &name);
    if (r >= 0) r = api_allow(x, VERB_ADMIN, NULL);
    if (r < 0) return r;
    while (i < 3 && strcmp(formats[i].name, name) != 0) i++;
    if (i == 3) return exchange_problem(x, PROBLEM_BAD_QUERY, "format is json, text or graphviz");
    fd = memfd_create("weir-map", MFD_CLOEXEC);
    if (fd < 0) return api_fail(x, -errno, "map");
    r = weir_map(fd, formats[i].format);
    r = r < 0 ? api_fail(x, r, "map")
              : answer_file(x, fd, formats[i].type, formats[i].format == WEIR_MAP_TEXT);
    (void)close(fd);
    return r;
}

/* ---- Audit log ---- */

enum { AUDIT_DEFAULT = 100, AUDIT_MAX = 1000 };

static void put_entries(struct json_writer *json, struct audit *audit, uint64_t before,
                        struct audit_entry *entries, size_t max)
{
    size_t count = audit ? audit_read(audit, before, entries, max) : 0;
    uint64_t written = 0, lost = 0;

    if (audit) audit_counts(audit, &written, &lost);
    json_open_object(json);
    json_key(json, "entries");
    json_open_array(json);
    for (size_t i = 0; i < count; i++) audit_put(json, &entries[i]);
    json_close(json);
    out_int(json, "written", (int64_t)written);
    out_int(json, "lost", (int64_t)lost);
    if (count == max && entries[count - 1].number > 1)
        api_put_id(json, "next", entries[count - 1].number);
    json_close(json);
}

int admin_audit(struct exchange *x)
{
    static const char *const names[] = {"before", "limit", NULL};
    struct audit_entry *entries;
    int64_t before = 0, limit = AUDIT_DEFAULT;
    int r = exchange_query_only(x, names);

    if (r >= 0) r = exchange_query_int(x, "before", 1, INT64_MAX, &before);
    if (r >= 0) r = exchange_query_int(x, "limit", 1, AUDIT_MAX, &limit);
    if (r >= 0) r = api_allow(x, VERB_ADMIN, NULL);
    if (r < 0) return r;
    entries = mem_alloc((size_t)limit * sizeof *entries);
    if (!entries) return api_fail(x, -ENOMEM, "audit");
    put_entries(exchange_json(x, 200), api_of(x)->audit, (uint64_t)before, entries, (size_t)limit);
    mem_free(entries);
    return 0;
}
