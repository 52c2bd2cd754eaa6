/* openapi.c - the OpenAPI 3.1 document, from the table of routes and the schemas below. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "proto/json_write.h"
#include "server/api.h"
#include "server/api_handlers.h"

/* ---- Schemas ---- */

/* Members with blanks between: name:type, and name!:type for one that has to be there. Types are
 * s (text), i (whole number), b, any, object, id (digits of 64 bits), state, durability, order,
 * a|b (one of these texts), @Name (another schema), and []type. */
struct schema {
    const char *name;
    bool closed; /* a body: it has these members, and no others */
    const char *members;
};

static const struct schema schemas[] = {
    {"Problem", false,
     "type!:s title!:s status!:i code!:s detail:s instance:s offset:i actual_count:i line:i "
     "accepted:i duplicates:i ids:[]id scanned:i retry_after:i durability:durability"},
    {"Retries", true, "attempts_max:i backoff_ms:i backoff_ms_max:i jitter:b never:[]s"},
    {"JobSpec", true,
     "queue:s kind!:s version:i payload:any payload_base64:s idempotent!:b retry:@Retries "
     "priority:i run_at_ms:i delay_ms:i delay:s expires_ms:i timeout_ms:i unique_key:s "
     "unique_ms:i unique_states:[]state idempotency_key:s idempotency_ms:i limit_keys:[]s "
     "fairness_key:s order_key:s tags:[]s trace:s batch:id gathers:ended|done "
     "durability:durability"},
    {"Enqueued", false, "id!:id duplicate!:b durability!:durability"},
    {"ManyEnqueued", false, "accepted!:i duplicates!:i ids!:[]id durability!:durability"},
    {"Gathers", false, "members!:i left!:i not_done!:i"},
    {"JobError", false, "run!:i at_ms!:i class!:s message!:s"},
    {"Job", false,
     "id!:id state!:state queue!:s kind!:s version!:i priority!:i run!:i attempt!:i "
     "attempts_max!:i payload_bytes!:i result_bytes!:i progress:i created_ms!:i started_ms:i "
     "run_at_ms:i lease_until_ms:i kept_until_ms:i expires_ms:i cancel_asked:b batch:id "
     "gathers:@Gathers tags:[]s unique_key:s idempotency_key:s fairness_key:s order_key:s "
     "limit_keys:[]s blocked_on:s errors:[]@JobError"},
    {"JobPage", false, "jobs!:[]@Job matched!:i scanned!:i payloads_read:i next:s"},
    {"JobPatch", true, "priority:i run_at_ms:i delay_ms:i expires_ms:i durability:durability"},
    {"JobState", false, "id!:id state!:state durability!:durability"},
    {"Written", false, "durability!:durability"},
    {"Retry", true, "payload:any payload_base64:s durability:durability"},
    {"BulkSpec", true,
     "filter!:s action!:retry|cancel|discard expected_count:i dry_run:b durability:durability"},
    {"BulkBegun", false, "id!:id action!:s count!:i durability!:durability"},
    {"Backup", false, "name!:s folder!:s ms!:i durability!:durability"},
    {"Bulk", false, "id!:id action!:s count!:i done!:i failed!:i finished!:b"},
    {"LeaseKind", true, "name!:s version_min:i version_max:i"},
    {"LeaseSpec", true,
     "worker!:s kinds:[]@LeaseKind count:i lease_ms:i wait_ms:i durability:durability"},
    {"LeasedJob", false,
     "id!:id token!:id queue!:s kind!:s version!:i run!:i attempt!:i attempts_max!:i priority!:i "
     "idempotent!:b created_ms!:i lease_until_ms!:i timeout_ms:i traceparent:s payload:any "
     "payload_base64:s"},
    {"Leased", false, "jobs!:[]@LeasedJob orders!:[]order durability!:durability"},
    {"Lease", true, "id!:id token!:id"},
    {"ExtendSpec", true, "worker:s lease_ms:i leases!:[]@Lease durability:durability"},
    {"ExtendedLease", false, "id!:id lease_until_ms:i orders:[]order error:s"},
    {"Extended", false, "leases!:[]@ExtendedLease orders!:[]order durability!:durability"},
    {"ExtendOneSpec", true, "token!:id worker:s lease_ms:i durability:durability"},
    {"ExtendedOne", false, "lease_until_ms!:i orders!:[]order durability!:durability"},
    {"ProgressSpec", true, "token!:id progress!:i durability:durability"},
    {"SettleSpec", true,
     "id:id token!:id how:ack|fail|dead|release result:any result_base64:s error_class:s "
     "error_message:s delay_ms:i durability:durability"},
    {"SettleAllSpec", true, "settle:[]@SettleSpec durability:durability"},
    {"SettledOne", false, "id!:id state:state error:s"},
    {"Settled", false, "settled!:[]@SettledOne durability!:durability"},
    {"CommitSpec", true, "enqueue:[]@JobSpec settle:[]@SettleSpec durability:durability"},
    {"CommittedJob", false, "id!:id duplicate!:b"},
    {"Committed", false, "enqueued!:[]@CommittedJob settled!:[]@SettledOne durability!:durability"},
    {"Worker", false, "worker!:s orders!:[]order"},
    {"WorkerOrdered", false, "worker!:s orders!:[]order durability!:durability"},
    {"OrderSpec", true, "order!:quiet|end|go-on"},
    {"Rate", true, "count:i period_ms:i burst:i"},
    {"Queue", false,
     "name!:s depth_max!:i overflow!:s concurrency!:i rate!:@Rate latency_target_ms!:i paused!:b "
     "draining!:b jobs!:object unknown_kind!:i oldest_ms!:i since_open!:object"},
    {"QueueSpec", true,
     "depth_max!:i overflow!:reject|wait concurrency:i rate:@Rate latency_target_ms:i paused:b "
     "draining:b durability:durability"},
    {"QueuePatch", true,
     "depth_max:i overflow:reject|wait concurrency:i rate:@Rate latency_target_ms:i paused:b "
     "draining:b durability:durability"},
    {"KeySpec", true, "concurrency:i rate:@Rate weight:i durability:durability"},
    {"Schedule", false,
     "name!:s cron!:s zone!:s queue!:s kind!:s overlap!:s catch_up!:s paused!:b next_ms:i "
     "last_id:id zone_missing:b skipped!:i"},
    {"ScheduleSpec", true,
     "cron!:s zone:s overlap!:allow|skip catch_up!:none|one|all paused:b job!:@JobSpec "
     "durability:durability"},
    {"Batch", false, "id!:id state!:state queue!:s members!:i left!:i not_done!:i"},
    {"Token", false, "id!:s name!:s scopes!:[]s created_ms!:i expires_ms:i"},
    {"TokenSpec", true, "name!:s scopes!:[]s expires_ms:i"},
    {"TokenText", false, "id!:s token!:s durability!:durability"},
    {"RotateSpec", true, "overlap_ms:i"},
};

static void text(struct json_writer *json, const char *key, const char *value)
{
    json_key(json, key);
    json_put_string(json, value);
}

static void raw(struct json_writer *json, const char *key, const char *value)
{
    json_key(json, key);
    json_put_raw(json, bytes_of(value));
}

static void put_one_of(struct json_writer *json, struct bytes names)
{
    struct bytes name;

    json_open_object(json);
    text(json, "type", "string");
    json_key(json, "enum");
    json_open_array(json);
    while (bytes_split(&names, '|', &name)) json_put_text(json, name);
    json_close(json);
    json_close(json);
}

/* Types that have a name of one word. */
static const struct {
    const char *name, *schema, *names;
} words[] = {
    {"s", "{\"type\":\"string\"}", NULL},
    {"i", "{\"type\":\"integer\"}", NULL},
    {"b", "{\"type\":\"boolean\"}", NULL},
    {"any", "{}", NULL},
    {"object", "{\"type\":\"object\"}", NULL},
    {"id", "{\"type\":\"string\",\"pattern\":\"^[0-9]+$\"}", NULL},
    {"durability", NULL, "synced|written|memory"},
    {"order", NULL, "quiet|end|cancelled"},
    {"state", NULL, "scheduled|held|ready|blocked|leased|done|dead|cancelled|expired"},
};

static void put_type(struct json_writer *json, struct bytes type)
{
    bool array = bytes_begin(type, BYTES("[]"));
    bool put = false;

    if (array) {
        type = bytes_after(type, 2);
        json_open_object(json);
        text(json, "type", "array");
        json_key(json, "items");
    }
    for (size_t i = 0; !put && i < sizeof words / sizeof *words; i++) {
        put = bytes_are(type, bytes_of(words[i].name));
        if (put && words[i].schema) json_put_raw(json, bytes_of(words[i].schema));
        if (put && !words[i].schema) put_one_of(json, bytes_of(words[i].names));
    }
    if (!put && type.at[0] == '@') {
        char ref[96];

        (void)snprintf(ref, sizeof ref, "#/components/schemas/%.*s", (int)type.count - 1,
                       type.at + 1);
        json_open_object(json);
        text(json, "$ref", ref);
        json_close(json);
    } else if (!put) {
        put_one_of(json, type);
    }
    if (array) json_close(json);
}

static void put_required(struct json_writer *json, struct bytes members)
{
    struct bytes member, name;

    json_key(json, "required");
    json_open_array(json);
    while (bytes_split(&members, ' ', &member)) {
        (void)bytes_split(&member, ':', &name);
        if (name.at[name.count - 1] == '!')
            json_put_text(json, (struct bytes){name.at, name.count - 1});
    }
    json_close(json);
}

static void put_schema(struct json_writer *json, const struct schema *schema)
{
    struct bytes members = bytes_of(schema->members), member, name;

    json_key(json, schema->name);
    json_open_object(json);
    text(json, "type", "object");
    put_required(json, members);
    json_key(json, "properties");
    json_open_object(json);
    while (bytes_split(&members, ' ', &member)) {
        char key[64];

        (void)bytes_split(&member, ':', &name);
        if (name.at[name.count - 1] == '!') name.count--;
        (void)snprintf(key, sizeof key, "%.*s", (int)name.count, name.at);
        json_key(json, key);
        put_type(json, member);
    }
    json_close(json);
    if (schema->closed) {
        json_key(json, "additionalProperties");
        json_put_bool(json, false);
    }
    json_close(json);
}

/* ---- Paths ---- */

/* "post_v1_jobs_id_ack" */
static void put_operation_id(struct json_writer *json, const struct route *route)
{
    char id[128];
    size_t used = 0;

    for (const char *at = http_method_name(route->method); *at; at++)
        id[used++] = (char)tolower((unsigned char)*at);
    for (const char *at = route->path; *at && used < sizeof id - 1; at++)
        if (*at != '{' && *at != '}') id[used++] = isalnum((unsigned char)*at) ? *at : '_';
    id[used] = '\0';
    text(json, "operationId", id);
}

/* Those of the path, which are texts, and those of the query. */
static void put_parameters(struct json_writer *json, const struct route *route)
{
    struct bytes rest = bytes_of(route->path), part;

    json_key(json, "parameters");
    json_open_array(json);
    while (bytes_split(&rest, '/', &part)) {
        if (part.count < 3 || part.at[0] != '{') continue;
        json_open_object(json);
        json_key(json, "name");
        json_put_text(json, (struct bytes){part.at + 1, part.count - 2});
        text(json, "in", "path");
        json_key(json, "required");
        json_put_bool(json, true);
        raw(json, "schema", "{\"type\":\"string\"}");
        json_close(json);
    }
    if (route->doc->query) {
        /* An array of their own: without its brackets. */
        struct bytes query = bytes_of(route->doc->query);

        json_put_raw(json, (struct bytes){query.at + 1, query.count - 2});
    }
    json_close(json);
}

static void put_content(struct json_writer *json, const char *type, const char *schema)
{
    json_key(json, "content");
    json_open_object(json);
    json_key(json, type);
    json_open_object(json);
    if (schema) raw(json, "schema", schema);
    json_close(json);
    json_close(json);
}

static void put_responses(struct json_writer *json, const struct route *route)
{
    char status[4] = {(char)('0' + route->doc->status / 100),
                      (char)('0' + route->doc->status / 10 % 10),
                      (char)('0' + route->doc->status % 10), '\0'};

    json_key(json, "responses");
    json_open_object(json);
    json_key(json, status);
    json_open_object(json);
    text(json, "description", http_status_name(route->doc->status));
    put_content(json, route->doc->answer ? "application/json" : "*/*", route->doc->answer);
    json_close(json);
    json_key(json, "default");
    json_open_object(json);
    text(json, "description", "A problem");
    put_content(json, "application/problem+json", "{\"$ref\":\"#/components/schemas/Problem\"}");
    json_close(json);
    json_close(json);
}

static void put_operation(struct json_writer *json, const struct route *route)
{
    char method[8];
    size_t i = 0;

    for (const char *at = http_method_name(route->method); *at && i < sizeof method - 1; at++)
        method[i++] = (char)tolower((unsigned char)*at);
    method[i] = '\0';
    json_key(json, method);
    json_open_object(json);
    text(json, "summary", route->summary);
    put_operation_id(json, route);
    text(json, "x-weir-scope", verb_name(route->verb));
    if (route->verb == VERB_PUBLIC) raw(json, "security", "[]");
    put_parameters(json, route);
    if (route->doc->body) {
        json_key(json, "requestBody");
        json_open_object(json);
        put_content(json, route->body_streams ? "application/x-ndjson" : "application/json",
                    route->doc->body);
        json_close(json);
    }
    put_responses(json, route);
    json_close(json);
}

/* Methods of one path are together, where the path comes first. */
static void put_paths(struct json_writer *json, struct routes routes)
{
    json_key(json, "paths");
    json_open_object(json);
    for (size_t i = 0; i < routes.count; i++) {
        bool before = false;

        for (size_t k = 0; k < i; k++)
            before = before || strcmp(routes.at[k].path, routes.at[i].path) == 0;
        if (before) continue;
        json_key(json, routes.at[i].path);
        json_open_object(json);
        for (size_t k = i; k < routes.count; k++)
            if (strcmp(routes.at[k].path, routes.at[i].path) == 0)
                put_operation(json, &routes.at[k]);
        json_close(json);
    }
    json_close(json);
}

static void put_components(struct json_writer *json)
{
    json_key(json, "components");
    json_open_object(json);
    raw(json, "securitySchemes", "{\"bearer\":{\"type\":\"http\",\"scheme\":\"bearer\"}}");
    json_key(json, "parameters");
    json_open_object(json);
    json_key(json, "durability");
    json_open_object(json);
    text(json, "name", "durability");
    text(json, "in", "query");
    text(json, "description", "At least this; the answer says what it was");
    json_key(json, "schema");
    put_type(json, BYTES("durability"));
    json_close(json);
    json_close(json);
    json_key(json, "schemas");
    json_open_object(json);
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) put_schema(json, &schemas[i]);
    json_close(json);
    json_close(json);
}

void openapi_write(struct routes routes, const char *version, struct buffer *out)
{
    struct json_writer json;

    json_writer_init(&json, out);
    json_open_object(&json);
    text(&json, "openapi", "3.1.0");
    json_key(&json, "info");
    json_open_object(&json);
    text(&json, "title", "weir");
    text(&json, "version", version);
    text(&json, "summary", "Durable jobs");
    json_close(&json);
    raw(&json, "security", "[{\"bearer\":[]}]");
    put_paths(&json, routes);
    put_components(&json);
    json_close(&json);
}
