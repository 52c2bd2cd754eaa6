/* api.c - who may, and what handlers share: ids, durability, bytes. */
#include "server/api.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/http_value.h"
#include "rt/mem.h"
#include "rt/runtime.h"
#include "server/access.h"
#include "server/session.h"

int64_t api_now_ms(void)
{
    const struct kernel *kernel = worker_self()->kernel;

    return kernel->wall_ns(kernel) / 1000000;
}

bool api_gone(const struct exchange *x)
{
    const struct kernel *kernel = worker_self()->kernel;

    return kernel->ended(kernel, x->session->fd) > 0;
}

/* ---- Who may ---- */

static int unauthorized(struct exchange *x, const char *why)
{
    struct api *api = api_of(x);

    /* A line each, but no more of them than may fail: nobody fills the log from outside. */
    if (!tokens_may_fail(api->tokens, x->peer))
        return exchange_problem(x, PROBLEM_RATE_LIMITED, "too many requests without a valid token");
    log_write(worker_self()->runtime, WEIR_LOG_INFO, task_self(),
              "request %" PRIu64 " of %s: refused: %s", x->number, x->peer, why);
    return exchange_problem(x, PROBLEM_UNAUTHORIZED, "%s", why);
}

bool api_needs_token(const struct api *api)
{
    return api->tokens && (!api->tokens_later || tokens_are_kept(api->tokens));
}

int api_admit(struct exchange *x)
{
    struct api *api = api_of(x);
    const struct token *token;
    struct bytes text;
    int r;

    x->who = NULL;
    if (x->route->verb == VERB_PUBLIC || !api_needs_token(api)) return 0;
    r = http_bearer(x->message->fields, &text);
    if (r == -ENOENT) return unauthorized(x, "there is no token: Authorization: Bearer weir_...");
    if (r < 0) return unauthorized(x, "Authorization is no bearer's, or is there twice");
    token = tokens_find(api->tokens, text, api_now_ms());
    if (!token) return unauthorized(x, "the token is not known, or has expired");
    x->who = token;
    if (token_has(token, x->route->verb)) return 0;
    return exchange_problem(x, PROBLEM_FORBIDDEN, "token '%s' has no scope %s", token->name,
                            verb_name(x->route->verb));
}

static bool may(const struct exchange *x, enum verb verb, const char *queue, bool prefix)
{
    if (!x->who) return !api_needs_token(api_of(x));
    return token_allows(x->who, verb, queue, prefix);
}

bool api_may(const struct exchange *x, enum verb verb, const char *queue)
{
    return may(x, verb, queue, false);
}

static int forbidden(struct exchange *x, enum verb verb, const char *queue, const char *star)
{
    const struct token *token = x->who;

    return exchange_problem(x, PROBLEM_FORBIDDEN, "token '%s' has no scope %s for %s%s%s",
                            token ? token->name : "", verb_name(verb),
                            queue ? "queue " : "all queues", queue ? queue : "", star);
}

int api_allow(struct exchange *x, enum verb verb, const char *queue)
{
    return may(x, verb, queue, false) ? 0 : forbidden(x, verb, queue, "");
}

int api_allow_prefix(struct exchange *x, enum verb verb, const char *prefix)
{
    return may(x, verb, prefix, true) ? 0 : forbidden(x, verb, prefix, "*");
}

int api_allow_job(struct exchange *x, enum verb verb, uint64_t id)
{
    weir_job_info info;
    int r;

    if (may(x, verb, NULL, false)) return 0;
    r = weir_job_get(api_of(x)->store, id, &info);
    /* Whether there is such a job is not told to who may not see it. */
    if (r == -ENOENT) return forbidden(x, verb, NULL, "");
    if (r < 0) return api_fail(x, r, "job");
    r = api_allow(x, verb, info.queue);
    weir_job_info_free(&info);
    return r;
}

int api_may_job(struct exchange *x, enum verb verb, uint64_t id)
{
    weir_job_info info;
    int r;

    if (may(x, verb, NULL, false)) return 1;
    r = weir_job_get(api_of(x)->store, id, &info);
    if (r < 0) return r == -ENOENT ? 0 : r;
    r = may(x, verb, info.queue, false);
    weir_job_info_free(&info);
    return r;
}

/* ---- What was done ---- */

static bool is_audited(const struct route *route)
{
    return (route->verb == VERB_MANAGE || route->verb == VERB_ADMIN) &&
           route->method != METHOD_GET && route->method != METHOD_HEAD;
}

static void log_request(const struct exchange *x, uint64_t sent_bytes, int error)
{
    const struct token *token = x->who;
    struct access access;

    access_fields(x, sent_bytes, error, token ? token->name : NULL, &access);
    log_say_fields(api_of(x)->log, WEIR_LOG_INFO, "request", access.fields, access.count);
}

/* Who has no valid token has changed nothing, and does not push out what others have. */
static bool is_nobody(const struct exchange *x)
{
    return !x->who && (x->status == 401 || x->status == 429);
}

void api_done(struct exchange *x, uint64_t sent_bytes, int error)
{
    struct api *api = api_of(x);
    const struct token *token = x->who;
    struct audit_entry entry = {.at_ms = api_now_ms()};
    size_t bytes;

    if (api->log && atom_load(&api->log_requests)) log_request(x, sent_bytes, error);
    if (!api->audit || !x->route || !is_audited(x->route) || is_nobody(x)) return;
    if (token) {
        /* Who may not change a thing could push out who has. */
        if (x->status == 403 && !tokens_note_refusal(api->tokens, token->id, &entry.unnoted))
            return;
        memcpy(entry.who, token->name, sizeof entry.who);
        memcpy(entry.token, token->id, sizeof entry.token);
    }
    (void)snprintf(entry.peer, sizeof entry.peer, "%s", x->peer ? x->peer : "");
    (void)snprintf(entry.method, sizeof entry.method, "%s", http_method_name(x->route->method));
    entry.route = x->route->path;
    bytes = x->message->target.count;
    if (bytes > AUDIT_TARGET_BYTES) bytes = AUDIT_TARGET_BYTES;
    if (bytes > 0) memcpy(entry.target, x->message->target.at, bytes);
    entry.status = x->status;
    entry.request = x->number;
    audit_note(api->audit, &entry);
}

/* Errors for which the store has said why, in this very call. */
static bool is_explained(int error)
{
    static const int errors[] = {-EINVAL, -EBUSY,    -EEXIST,        -ESTALE,
                                 -E2BIG,  -EMSGSIZE, WEIR_EOVERLOAD, -ENOBUFS};

    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i] == error) return weir_why()[0] != '\0';
    return false;
}

static bool store_has_stopped(const struct exchange *x)
{
    weir_store_figures figures;

    weir_store_figures_of(api_of(x)->store, &figures);
    return figures.error != 0;
}

int api_fail(struct exchange *x, int error, const char *what)
{
    enum problem_code code = problem_of_error(error);

    /* It may be one record or another file that cannot be read or written. */
    if (code == PROBLEM_STORE_STOPPED && !store_has_stopped(x)) {
        return exchange_problem(x, PROBLEM_INTERNAL, "%s: %s", what, weir_strerror(error));
    }
    /* What a failed sync was to put on disk may be there. */
    if (code == PROBLEM_STORE_STOPPED && !exchange_is_read(x)) {
        return exchange_problem(x, PROBLEM_OUTCOME_UNKNOWN,
                                "%s: the store has stopped (%s), and it may be done", what,
                                weir_strerror(error));
    }
    if (error == -ENOBUFS) code = PROBLEM_NO_ROOM;
    if (error == -E2BIG) code = PROBLEM_INVALID;
    if (!is_explained(error)) return exchange_fail(x, error, what);
    return exchange_problem(x, code, "%s", weir_why());
}

int api_no_key(struct exchange *x)
{
    if (!exchange_field(x, "idempotency-key").at) return 0;
    return exchange_problem(x, PROBLEM_INVALID,
                            "Idempotency-Key is for one new job, and is not kept for this: to "
                            "repeat it would do it twice");
}

/* ---- Ids ---- */

bool api_id_of(struct bytes text, uint64_t *ret_id)
{
    uint64_t id = 0;

    if (text.count == 0 || text.count > 20 || (text.at[0] == '0' && text.count > 1)) return false;
    for (size_t i = 0; i < text.count; i++) {
        if (!is_digit(text.at[i]) || __builtin_mul_overflow(id, 10, &id) ||
            __builtin_add_overflow(id, (uint64_t)(text.at[i] - '0'), &id))
            return false;
    }
    *ret_id = id;
    return true;
}

int api_id(struct exchange *x, unsigned index, uint64_t *ret_id)
{
    if (api_id_of(x->parameters[index], ret_id) && *ret_id > 0) return 0;
    return exchange_problem(x, PROBLEM_INVALID, "an id is a whole number");
}

void api_put_id(struct json_writer *json, const char *key, uint64_t id)
{
    char text[24];
    struct buffer quoted;

    buffer_init_fixed(&quoted, text, sizeof text);
    buffer_put_char(&quoted, '"');
    buffer_put_uint(&quoted, id);
    buffer_put_char(&quoted, '"');
    json_key(json, key);
    json_put_raw(json, buffer_bytes(&quoted));
}

/* ---- Durability ---- */

static const char *const durability_names[] = {[WEIR_DURABILITY_UNSET] = "",
                                               [WEIR_MEMORY] = "memory",
                                               [WEIR_WRITTEN] = "written",
                                               [WEIR_SYNCED] = "synced"};

const char *api_durability_name(enum weir_durability durability)
{
    return (unsigned)durability <= WEIR_SYNCED ? durability_names[durability] : "";
}

int api_durability_of(struct exchange *x, struct bytes text, enum weir_durability *ret_durability)
{
    for (int i = WEIR_DURABILITY_UNSET; i <= WEIR_SYNCED; i++) {
        if (!bytes_are(text, bytes_of(durability_names[i]))) continue;
        *ret_durability = (enum weir_durability)i;
        return 0;
    }
    return exchange_problem(x, PROBLEM_INVALID, "durability is synced, written or memory");
}

int api_durability_asked(struct exchange *x, enum weir_durability *ret_durability)
{
    const char *text = "";
    int r = exchange_query(x, "durability", &text);

    return r < 0 ? r : api_durability_of(x, bytes_of(text), ret_durability);
}

int api_settle_durability(struct exchange *x, enum weir_durability asked,
                          enum weir_durability *ret_got)
{
    struct api *api = api_of(x);
    int r = 0;

    *ret_got = api->durability;
    if (asked <= api->durability) return 0;
    r = weir_store_sync(api->store);
    if (r < 0) return api_fail(x, r, "store");
    *ret_got = WEIR_SYNCED;
    return 0;
}

struct json_writer *api_wrote_as(struct exchange *x, unsigned status, enum weir_durability asked)
{
    enum weir_durability got = asked == WEIR_DURABILITY_UNSET ? api_of(x)->durability : asked;
    struct json_writer *json = exchange_json(x, status);

    json_open_object(json);
    json_key(json, "durability");
    json_put_string(json, api_durability_name(got));
    return json;
}

int api_wrote(struct exchange *x, unsigned status, enum weir_durability asked,
              struct json_writer **ret_json)
{
    enum weir_durability got;
    int r = api_settle_durability(x, asked, &got);

    if (r < 0) return r;
    *ret_json = api_wrote_as(x, status, got);
    return 0;
}

int api_wrote_only(struct exchange *x, enum weir_durability asked)
{
    struct json_writer *json;
    int r = api_wrote(x, 200, asked, &json);

    if (r == 0) json_close(json);
    return r;
}

/* ---- Bytes ---- */

enum { KEYS_ON_STACK = 64, KEYS_MAX = 65536 };

bool api_is_json(struct bytes bytes)
{
    struct json_key few[KEYS_ON_STACK], *keys = few;
    struct json_limits limits = {.depth_max = JSON_DEPTH_MAX, .key_room = KEYS_ON_STACK};
    char why[JSON_WHY_BYTES];
    size_t at;
    int r;

    if (bytes.count == 0) return false;
    if (bytes.count > (size_t)KEYS_ON_STACK * 4) {
        limits.key_room = (unsigned)(bytes.count / 4 < KEYS_MAX ? bytes.count / 4 : KEYS_MAX);
        keys = mem_alloc(limits.key_room * sizeof *keys);
        if (!keys) return false;
    }
    limits.keys = keys;
    r = json_check(bytes, &limits, &at, why);
    if (keys != few) mem_free(keys);
    return r == 0;
}

/* JSON with blanks around it does not survive in an answer as it came. */
static bool stands_alone(struct bytes bytes)
{
    const char *blanks = " \t\r\n";

    return bytes.count > 0 && !strchr(blanks, bytes.at[0]) &&
           !strchr(blanks, bytes.at[bytes.count - 1]) && api_is_json(bytes);
}

void api_put_bytes(struct json_writer *json, const char *key, const char *base64_key,
                   struct bytes bytes)
{
    if (stands_alone(bytes)) {
        json_key(json, key);
        json_put_raw(json, bytes);
    } else {
        json_key(json, base64_key);
        json_put_base64(json, bytes);
    }
}
