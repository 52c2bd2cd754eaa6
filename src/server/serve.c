/* serve.c - the life of a server. */
#include "server/serve.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "rt/kernel.h"
#include "rt/mem.h"
#include "server/serve_inside.h"

enum {
    STACK_BYTES = 128 * 1024,
    TURN_MS = 1000,
    SERVICE_TASKS_MAX = 1000000,
    CLOSE_MS = 60000,
};

static enum weir_log_level level_of(const struct config *config)
{
    return log_level_named(config_text(config, SETTING_LOG_LEVEL));
}

/* ---- While it runs ---- */

/* Until TERM or INT. A watchdog is told from here: this task runs as long as tasks run. */
static int run_until_told(struct serve *serve, weir_signal_watch *watch)
{
    int64_t turn_ms = serve->notify.watchdog_ms > 0 ? serve->notify.watchdog_ms / 2 : TURN_MS;

    for (;;) {
        weir_signal_event event = {.signal = 0};
        weir_store_figures figures;
        int r = WEIR_ETIMEDOUT;

        WEIR_DEADLINE(turn_ms > 0 ? turn_ms : 1) r = weir_signal_wait(watch, &event);
        if (r == 0 && event.signal != SIGHUP) return 0;
        if (r == 0) serve_reload(serve);
        if (r < 0 && r != WEIR_ETIMEDOUT) return r;
        weir_store_figures_of(serve->api.store, &figures);
        if (figures.error < 0) {
            log_say(&serve->sink, WEIR_LOG_ERROR, "the store has stopped",
                    LOG_TEXT("error", weir_strerror(figures.error)));
            return figures.error;
        }
        if (serve->notify.watchdog_ms > 0) notify_say(&serve->notify, "WATCHDOG=1");
    }
}

/* The service has a scope of its own, so that it can be stopped while the store goes on. */
static int run_service(struct serve *serve, weir_signal_watch *watch)
{
    int r = 0, result = 0;

    WEIR_SCOPE(scope, &result, .name = "service", .on_failure = WEIR_COLLECT,
               .max_tasks = SERVICE_TASKS_MAX, .overflow = WEIR_REJECT) {
        serve->service_scope = scope;
        r = serve_open_service(serve, scope);
        if (r < 0) return r;
        serve_announce(serve);
        if (serve->spec->demo) r = demo_start(scope, serve->api.store, &serve->sink);
        if (r == 0) r = run_until_told(serve, watch);
        serve->failed = r < 0;
        result = serve_drain(serve, watch);
        if (r == 0) r = result;
        weir_scope_cancel(scope, WEIR_ECANCELED, "the server ends");
    }
    if (serve->drain_ns) serve_report(serve);
    return r;
}

/* In the opposite order; the store is last, and all of it is on disk then. */
static int close_all(struct serve *serve)
{
    int r = audit_close(serve->api.audit), closed;

    tokens_close(serve->tokens);
    tls_close(serve->tls);
    closed = weir_store_close(serve->api.store);
    if (closed < 0)
        log_say(&serve->sink, WEIR_LOG_ERROR, "the store was not closed well",
                LOG_TEXT("error", weir_strerror(closed)));
    return closed < 0 ? closed : r;
}

static int run_server(struct serve *serve, weir_signal_watch *watch)
{
    int r = 0, result = 0;

    WEIR_SCOPE(scope, &result, .name = "server", .on_failure = WEIR_COLLECT, .max_tasks = 16,
               .overflow = WEIR_REJECT) {
        int closed;

        r = serve_open_store(serve, scope);
        if (r == 0 && !serve_may_listen(serve, api_needs_token(&serve->api)))
            serve->end = SERVE_REFUSED;
        else if (r == 0)
            r = run_service(serve, watch);
        closed = close_all(serve);
        if (r == 0) r = closed;
    }
    return r;
}

static int serve_task(void *arg)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
    struct serve *serve = arg;
    weir_signal_watch *watch;
    int r = 0, result = 0;

    WEIR_SCOPE(scope, &result, .name = "signals", .on_failure = WEIR_COLLECT, .max_tasks = 1,
               .overflow = WEIR_REJECT) {
        r = weir_signal_open(
            scope, &(weir_signal_spec){.name = "server", .signals = signals, .signals_count = 3},
            &watch);
        if (r == 0) r = run_server(serve, watch);
    }
    (void)weir_stop(CLOSE_MS);
    return r;
}

/* ---- Before and after ---- */

static void say_sandbox(struct serve *serve)
{
    const struct sandbox_report *report = &serve->sandbox;
    bool off = config_is(serve->config, SETTING_SECURITY_SANDBOX, "off");

    log_say(&serve->sink,
            off || (report->landlock > 0 && report->seccomp > 0) ? WEIR_LOG_INFO : WEIR_LOG_WARNING,
            "sandbox",
            LOG_TEXT("landlock", off                    ? "off"
                                 : report->landlock > 0 ? "on"
                                                        : weir_strerror(report->landlock)),
            LOG_TEXT("seccomp", off                   ? "off"
                                : report->seccomp > 0 ? "on"
                                                      : weir_strerror(report->seccomp)));
}

static bool sandbox_suffices(const struct serve *serve)
{
    return !config_is(serve->config, SETTING_SECURITY_SANDBOX, "on") ||
           (serve->sandbox.landlock > 0 && serve->sandbox.seccomp > 0);
}

static void fill_trace(struct serve *serve, weir_trace_spec *spec)
{
    int64_t millionths = config_number(serve->config, SETTING_TRACE_SAMPLE);

    weir_trace_spec_init(spec);
    spec->service = "weir";
    spec->overflow = WEIR_DROP_NEWEST;
    spec->sampling = millionths == 0         ? WEIR_TRACE_NONE
                     : millionths == 1000000 ? WEIR_TRACE_ALL
                                             : WEIR_TRACE_RATIO;
    if (spec->sampling == WEIR_TRACE_RATIO) spec->sample_ratio = (double)millionths / 1000000;
    if (config_is(serve->config, SETTING_TRACE_EXPORT, "http"))
        spec->keep_exporter = &serve->otlp.exporter;
    else
        spec->file_path = serve->trace_path;
}

/* NULL: the runtime's own choice. */
static const char *backend_of(const struct config *config)
{
    return config_is(config, SETTING_SERVER_BACKEND, "auto")
               ? NULL
               : config_text(config, SETTING_SERVER_BACKEND);
}

static int run_runtime(struct serve *serve)
{
    enum weir_log_level level = level_of(serve->config);
    weir_trace_spec trace;
    weir_config config = {
        .name = "weir",
        .workers = (int)config_number(serve->config, SETTING_SERVER_WORKERS),
        .backend = backend_of(serve->config),
        .signals = WEIR_SIGNAL_DUMP | WEIR_SIGNAL_OVERFLOW,
        .stack_bytes = STACK_BYTES,
        /* What is less than info is decided by the sink, so that a reload can change it. */
        .log_level = level == WEIR_LOG_DEBUG ? WEIR_LOG_DEBUG : WEIR_LOG_INFO,
        .log = log_sink_record,
        .log_arg = &serve->sink,
        .watchdog_signal = SIGURG,
    };

    if (!config_is(serve->config, SETTING_TRACE_EXPORT, "off")) {
        fill_trace(serve, &trace);
        config.trace = &trace;
    }
    return weir_run(&config, serve_task, serve);
}

enum serve_end serve(const struct serve_spec *spec)
{
    const struct kernel *kernel = kernel_current();
    struct serve *serve = mem_alloc_zeroed(sizeof *serve);
    enum serve_end end;
    int r;

    if (!serve) return SERVE_FAILED;
    serve->spec = spec;
    serve->config = spec->config;
    serve->notify.fd = -1;
    serve->end = SERVE_FAILED;
    serve->api.started_ms = kernel->wall_ns(kernel) / 1000000;
    serve->api.backups = serve->backups_path;
    log_sink_init(&serve->sink, STDERR_FILENO, level_of(spec->config),
                  config_is(spec->config, SETTING_LOG_FORMAT, "json"));
    serve->api.log = &serve->sink;
    atom_store(&serve->api.log_requests, config_is(spec->config, SETTING_LOG_ACCESS, "on"));
    end = serve_prepare(serve);
    if (end == SERVE_DRAINED) {
        serve_sandbox(serve);
        say_sandbox(serve);
        if (sandbox_suffices(serve)) {
            r = run_runtime(serve);
            if (r < 0 && serve->end == SERVE_DRAINED) serve->end = SERVE_FAILED;
        }
        end = serve->end;
    }
    notify_say(&serve->notify, "STATUS=ended");
    notify_close(&serve->notify);
    otlp_deinit(&serve->otlp);
    log_sink_deinit(&serve->sink);
    mem_free(serve);
    return end;
}
