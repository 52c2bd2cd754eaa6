/* api_stand.c - see api_test.h. */
#include <inttypes.h>
#include <stdlib.h>

#include "unit/server/api_test.h"

struct api_stand *api_stand_of(struct store_stand *base)
{
    static struct api_stand stand;

    stand = (struct api_stand){
        .base = *base, .answer = server_answer_room(), .limits = SERVICE_LIMITS_DEFAULT};
    stand.base.spec.path = stand.base.path;
    return &stand;
}

static void path_of(const struct api_stand *stand, const char *name, char path[128])
{
    (void)snprintf(path, 128, "%s/%s", stand->base.path, name);
}

static void open_service(struct api_stand *stand, bool with_tokens)
{
    char path[128];

    stand->api = (struct api){.store = store_stand_open(&stand->base),
                              .durability = stand->base.spec.durability,
                              .name = "test",
                              .config = "listen = tcp:127.0.0.1:0\n",
                              .started_ms = api_now_ms()};
    path_of(stand, "tokens.json", path);
    if (with_tokens) CHECK_OK(tokens_open(stand->base.scope, path, &stand->api.tokens));
    path_of(stand, "audit.log", path);
    CHECK_OK(audit_open(stand->base.scope, path, &stand->api.audit));
    server_open(&stand->server, stand->base.scope,
                &(struct service_spec){.routes = api_routes(),
                                       .limits = stand->limits,
                                       .keep_deps = &stand->api,
                                       .admit = api_admit,
                                       .done = api_done});
    stand->api.service = stand->server.service;
}

void api_stand_open(struct api_stand *stand, bool with_tokens)
{
    open_service(stand, with_tokens);
}

void api_stand_close(struct api_stand *stand)
{
    api_hang_up(stand);
    CHECK_OK(service_close(stand->server.service));
    CHECK_OK(audit_close(stand->api.audit));
    tokens_close(stand->api.tokens);
    CHECK_INT(weir_store_close(stand->api.store), ==, stand->store_ends_with);
}

void api_stand_reopen(struct api_stand *stand)
{
    bool with_tokens = stand->api.tokens != NULL;

    api_stand_close(stand);
    open_service(stand, with_tokens);
}

void api_send(struct api_stand *stand, const char *method, const char *target, const void *body,
              size_t bytes)
{
    char head[4096];
    int used;

    if (!stand->client) stand->client = server_connect(&stand->server);
    used =
        snprintf(head, sizeof head, "%s %s HTTP/1.1\r\nHost: x\r\n%s%s%s%s", method, target,
                 stand->bearer ? "Authorization: Bearer " : "", stand->bearer ? stand->bearer : "",
                 stand->bearer ? "\r\n" : "", stand->fields ? stand->fields : "");
    if (body)
        used += snprintf(head + used, sizeof head - (size_t)used,
                         "Content-Type: %s\r\nContent-Length: %zu\r\n",
                         stand->type ? stand->type : "application/json", bytes);
    used += snprintf(head + used, sizeof head - (size_t)used, "\r\n");
    CHECK(used < (int)sizeof head);
    server_send_bytes(stand->client, head, (size_t)used);
    if (body && bytes > 0) server_send_bytes(stand->client, body, bytes);
}

unsigned api_read(struct api_stand *stand)
{
    server_read(stand->client, false, stand->answer);
    if (stand->answer->closed || !stand->answer->keep_alive) api_hang_up(stand);
    return stand->answer->status;
}

void api_hang_up(struct api_stand *stand)
{
    if (stand->client) server_disconnect(stand->client);
    stand->client = NULL;
}

unsigned api_ask_bytes(struct api_stand *stand, const char *method, const char *target,
                       const void *body, size_t bytes)
{
    api_send(stand, method, target, body, bytes);
    return api_read(stand);
}

unsigned api_ask(struct api_stand *stand, const char *method, const char *target, const char *body)
{
    return api_ask_bytes(stand, method, target, body, body ? strlen(body) : 0);
}

const char *api_body(const struct api_stand *stand)
{
    return stand->answer->body;
}

const char *api_member(const struct api_stand *stand, const char *name, char text[128])
{
    char wanted[64];
    const char *at;
    size_t count;

    (void)snprintf(wanted, sizeof wanted, "\"%s\":", name);
    at = strstr(stand->answer->body, wanted);
    text[0] = '\0';
    if (!at) return text;
    at += strlen(wanted);
    at += *at == '"';
    count = strcspn(at, "\",}]");
    (void)snprintf(text, 128, "%.*s", (int)count, at);
    return text;
}

int64_t api_number(const struct api_stand *stand, const char *name)
{
    char text[128];

    return strtoll(api_member(stand, name, text), NULL, 10);
}

uint64_t api_enqueue(struct api_stand *stand, const char *queue, const char *kind,
                     const char *payload)
{
    char body[1024];

    (void)snprintf(body, sizeof body,
                   "{\"queue\":\"%s\",\"kind\":\"%s\",\"idempotent\":true,\"payload\":%s}", queue,
                   kind, payload);
    CHECK_INT(api_ask(stand, "POST", "/v1/jobs", body), ==, 201);
    return (uint64_t)api_number(stand, "id");
}

uint64_t api_lease(struct api_stand *stand, const char *queue, uint64_t *ret_token)
{
    char target[256];

    (void)snprintf(target, sizeof target, "/v1/queues/%s/lease", queue);
    CHECK_INT(api_ask(stand, "POST", target, "{\"worker\":\"w\"}"), ==, 200);
    if (ret_token) *ret_token = (uint64_t)api_number(stand, "token");
    return (uint64_t)api_number(stand, "id");
}

uint64_t api_dead(struct api_stand *stand, const char *queue, const char *kind, const char *payload)
{
    uint64_t id = api_enqueue(stand, queue, kind, payload), token, leased;
    char target[256], body[256];

    leased = api_lease(stand, queue, &token);
    CHECK(leased == id);
    (void)snprintf(target, sizeof target, "/v1/jobs/%" PRIu64 "/fail", id);
    (void)snprintf(body, sizeof body,
                   "{\"token\":\"%" PRIu64 "\",\"error_class\":\"net\",\"error_message\":\"m\"}",
                   token);
    CHECK_INT(api_ask(stand, "POST", target, body), ==, 200);
    CHECK_CONTAINS(api_body(stand), "\"state\":\"dead\"");
    return id;
}

const char *api_token(struct api_stand *stand, const char *name, const char *scopes,
                      char text[TOKEN_TEXT_BYTES])
{
    struct token_scope rows[TOKEN_SCOPES_MAX];
    struct token_spec spec = {.name = name, .scopes = rows};
    struct bytes rest = bytes_of(scopes), part;

    while (bytes_split(&rest, ' ', &part)) {
        const char *why;

        CHECK_OK(token_scope_parse(part, &rows[spec.scope_count++], &why));
    }
    CHECK_OK(tokens_add(stand->api.tokens, &spec, api_now_ms(), text));
    return text;
}
