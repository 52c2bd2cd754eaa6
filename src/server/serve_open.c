/* serve_open.c - store, tokens, audit log and listeners are opened. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "server/serve_inside.h"

enum { OPEN_STORE_MS = 3600 * 1000, OPEN_MS = 30000 };

static int say_failed(struct serve *serve, const char *what, const char *about, int r)
{
    log_say(&serve->sink, WEIR_LOG_ERROR, what, LOG_TEXT("about", about),
            LOG_TEXT("error", r == WEIR_EREFUSED || r == -EBADMSG || r == -EBUSY || r == -EPERM
                                  ? weir_why()
                                  : weir_strerror(r)));
    return r;
}

static enum weir_durability durability_of(const struct config *config)
{
    if (config_is(config, SETTING_STORE_DURABILITY, "memory")) return WEIR_MEMORY;
    return config_is(config, SETTING_STORE_DURABILITY, "written") ? WEIR_WRITTEN : WEIR_SYNCED;
}

static weir_store_spec store_spec(const struct serve *serve)
{
    const struct config *config = serve->config;

    return (weir_store_spec){
        .name = "jobs",
        .path = serve->store_path,
        .create = true,
        .durability = durability_of(config),
        .memory_bytes_max = (size_t)config_number(config, SETTING_STORE_MEMORY),
        .disk_bytes_max = (uint64_t)config_number(config, SETTING_STORE_DISK),
        .queue_depth_max = (uint32_t)config_number(config, SETTING_STORE_QUEUE_DEPTH),
        .queue_overflow =
            config_is(config, SETTING_STORE_QUEUE_OVERFLOW, "wait") ? WEIR_WAIT : WEIR_REJECT,
        .payload_bytes_max = (uint32_t)config_number(config, SETTING_STORE_PAYLOAD_BYTES),
        .result_bytes_max = (uint32_t)config_number(config, SETTING_STORE_RESULT_BYTES),
        .history_ms = config_number(config, SETTING_STORE_HISTORY),
        .history_count_max = (uint32_t)config_number(config, SETTING_STORE_HISTORY_COUNT),
        .dead_ms = config_number(config, SETTING_STORE_DEAD_HISTORY),
        .segment_bytes = (uint64_t)config_number(config, SETTING_STORE_SEGMENT_BYTES),
        .zones = config_text(config, SETTING_STORE_ZONES),
    };
}

int serve_open_store(struct serve *serve, weir_scope *scope)
{
    weir_store_spec spec = store_spec(serve);
    weir_store_figures figures;
    int r = WEIR_ETIMEDOUT;

    notify_say(&serve->notify, "STATUS=opening the store");
    WEIR_DEADLINE(OPEN_STORE_MS) r = weir_store_open(scope, &spec, &serve->api.store);
    if (r < 0) return say_failed(serve, "the store cannot be opened", serve->store_path, r);
    serve->api.durability = spec.durability;
    weir_store_figures_of(serve->api.store, &figures);
    log_say(&serve->sink, WEIR_LOG_INFO, "store open", LOG_TEXT("folder", serve->store_path),
            LOG_INT("jobs", figures.jobs), LOG_INT("records", figures.records_replayed),
            LOG_INT("torn_bytes", figures.torn_bytes), LOG_INT("ms", figures.open_ms));
    WEIR_DEADLINE(OPEN_MS) r = tokens_open(scope, serve->tokens_path, &serve->tokens);
    if (r < 0) return say_failed(serve, "the tokens cannot be read", serve->tokens_path, r);
    serve->api.tokens = serve->tokens;
    serve->api.tokens_later = true;
    WEIR_DEADLINE(OPEN_MS) r = audit_open(scope, serve->audit_path, &serve->api.audit);
    if (r < 0) return say_failed(serve, "the audit log cannot be opened", serve->audit_path, r);
    if (config_text(serve->config, SETTING_TLS_CERTIFICATE)[0] == '\0') return 0;
    WEIR_DEADLINE(OPEN_MS)
        r = tls_open(&(struct tls_spec){.certificate_path =
                                            config_text(serve->config, SETTING_TLS_CERTIFICATE),
                                        .key_path = config_text(serve->config, SETTING_TLS_KEY)},
                     &serve->tls);
    return r < 0 ? say_failed(serve, "the certificate cannot be used", "tls.certificate", r) : 0;
}

static struct service_limits limits_of(const struct config *config)
{
    struct service_limits limits = SERVICE_LIMITS_DEFAULT;

    limits.http.head_bytes_max = (size_t)config_number(config, SETTING_LIMITS_HEAD_BYTES);
    if (limits.http.line_bytes_max > limits.http.head_bytes_max)
        limits.http.line_bytes_max = limits.http.head_bytes_max;
    limits.http.body_bytes_max = (uint64_t)config_number(config, SETTING_LIMITS_BODY_BYTES);
    limits.bodies_bytes_max = (uint64_t)config_number(config, SETTING_LIMITS_BODIES_BYTES);
    limits.connections_max = (unsigned)config_number(config, SETTING_LIMITS_CONNECTIONS);
    limits.connections_per_address_max =
        (unsigned)config_number(config, SETTING_LIMITS_CONNECTIONS_PER_ADDRESS);
    limits.requests_max = (unsigned)config_number(config, SETTING_LIMITS_REQUESTS);
    limits.requests_per_connection_max =
        (unsigned)config_number(config, SETTING_LIMITS_REQUESTS_PER_CONNECTION);
    limits.head_ms = config_number(config, SETTING_LIMITS_HEAD_TIMEOUT);
    limits.body_ms = config_number(config, SETTING_LIMITS_BODY_TIMEOUT);
    limits.body_bytes_per_s_min = (uint64_t)config_number(config, SETTING_LIMITS_BODY_RATE_MIN);
    limits.idle_ms = config_number(config, SETTING_LIMITS_IDLE_TIMEOUT);
    limits.write_ms = config_number(config, SETTING_LIMITS_WRITE_TIMEOUT);
    limits.tls_ms = config_number(config, SETTING_LIMITS_TLS_TIMEOUT);
    limits.answer_bytes_max = (size_t)config_number(config, SETTING_LIMITS_ANSWER_BYTES);
    limits.shed_target_ms = config_number(config, SETTING_LIMITS_SHED_TARGET);
    limits.shed_interval_ms = config_number(config, SETTING_LIMITS_SHED_INTERVAL);
    return limits;
}

int serve_open_service(struct serve *serve, weir_scope *scope)
{
    int r = WEIR_ETIMEDOUT;

    WEIR_DEADLINE(OPEN_MS)
        r = service_open(scope,
                         &(struct service_spec){.name = "api",
                                                .routes = api_routes(),
                                                .listeners = serve->listeners,
                                                .listener_count = serve->listener_count,
                                                .limits = limits_of(serve->config),
                                                .keep_tls = serve->tls,
                                                .hosts = serve->hosts,
                                                .host_count = serve->host_count,
                                                .keep_deps = &serve->api,
                                                .admit = api_admit,
                                                .done = api_done},
                         &serve->api.service);
    return r < 0 ? say_failed(serve, "cannot listen", serve->addresses[0], r) : 0;
}

/* "http://127.0.0.1:7411", or "unix:PATH", as the command line takes it. */
static void server_text(const struct serve *serve, char *text, size_t bytes)
{
    const char *address = serve->addresses[0];
    bool tcp = strncmp(address, "tcp:", 4) == 0;

    (void)snprintf(text, bytes, "%s%s",
                   !tcp                      ? ""
                   : serve->listeners[0].tls ? "https://"
                                             : "http://",
                   tcp ? address + 4 : address);
}

static void print_welcome(const struct serve *serve)
{
    char server[WEIR_ADDRESS_TEXT_MAX + 16];

    server_text(serve, server, sizeof server);
    (void)printf(
        "weir: serving %s from %s, with jobs that come and go by themselves\n"
        "from another terminal (export WEIR_SERVER=%s):\n"
        "    weir status                               queues, store, connections\n"
        "    weir jobs state:dead                      what has failed for good, and why\n"
        "    weir jobs retry state:dead --yes          once more\n"
        "    weir enqueue thumbs '{\"file\": \"a.png\"}' --kind resize --wait\n"
        "    weir queue pause thumbs                   watch it fill; 'weir queue resume'\n"
        "    weir work mine -- tr a-z A-Z              a worker of your own for queue mine\n"
        "    weir map | less; weir tasks | less        every boundary, every task\n"
        "    curl -s %s/metrics\n"
        "Ctrl-C drains and ends it\n",
        server, config_text(serve->config, SETTING_SERVER_DATA), server, server);
    (void)fflush(stdout);
}

void serve_announce(struct serve *serve)
{
    for (size_t i = 0; i < serve->listener_count; i++) {
        weir_address address;

        if (service_address(serve->api.service, i, &address) == 0)
            (void)weir_address_format(&address, serve->addresses[i], WEIR_ADDRESS_TEXT_MAX);
        log_say(&serve->sink, WEIR_LOG_INFO, "listening", LOG_TEXT("address", serve->addresses[i]),
                LOG_TEXT("tls", serve->listeners[i].tls ? "yes" : "no"),
                LOG_TEXT("tokens", api_needs_token(&serve->api) ? "required" : "none"));
    }
    log_say(&serve->sink, WEIR_LOG_INFO, "ready");
    if (serve->spec->demo) print_welcome(serve);
    notify_say(&serve->notify, "READY=1\nSTATUS=listening on %s", serve->addresses[0]);
}
