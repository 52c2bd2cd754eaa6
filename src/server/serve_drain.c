/* serve_drain.c - the end, within its budget, with a report; and the reload. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>

#include "server/serve_inside.h"

enum { LOOK_MS = 50, FAILED_DRAIN_MS = 2000, REPORT_MS = 5000, RELOAD_MS = 10000 };

/* ---- Drain ---- */

/* It is asked how far it is meanwhile, so it is closed when nobody does any more. */
static int stop_service(void *arg)
{
    struct serve *serve = *(struct serve **)arg;

    int r = service_stop(serve->api.service);

    atom_store(&serve->stopped, true);
    return r == WEIR_ECANCELED ? 0 : r;
}

/* Of a store that has stopped nothing good comes any more. */
static int64_t budget_ms(const struct serve *serve)
{
    int64_t ms = config_number(serve->config, SETTING_SERVER_DRAIN);

    return serve->failed && ms > FAILED_DRAIN_MS ? FAILED_DRAIN_MS : ms;
}

/* Until the service has ended, the budget is over, or a second signal has come. */
static enum serve_end await_end(struct serve *serve, weir_signal_watch *watch)
{
    int64_t until_ns = weir_now_ns() + budget_ms(serve) * 1000000;

    while (!atom_load(&serve->stopped)) {
        weir_signal_event event = {.signal = 0};
        int r = WEIR_ETIMEDOUT;

        if (weir_now_ns() >= until_ns) return SERVE_CUT_OFF;
        WEIR_DEADLINE(LOOK_MS) r = weir_signal_wait(watch, &event);
        if (r == 0 && event.signal != SIGHUP) return SERVE_ENDED_NOW;
        if (r < 0 && r != WEIR_ETIMEDOUT) return SERVE_ENDED_NOW;
    }
    return SERVE_DRAINED;
}

struct totals {
    uint64_t queues, leased, waiting, dead;
};

static void add_up(struct serve *serve, struct totals *totals)
{
    weir_queue_figures figures;
    uint32_t cursor = 0;

    *totals = (struct totals){0};
    WEIR_DEADLINE(REPORT_MS)
        while (weir_queue_next(serve->api.store, &cursor, &figures) == 1) {
            totals->queues++;
            totals->leased += figures.by_state[WEIR_JOB_LEASED];
            totals->dead += figures.by_state[WEIR_JOB_DEAD];
            for (int state = WEIR_JOB_SCHEDULED; state < WEIR_JOB_LEASED; state++)
                totals->waiting += figures.by_state[state];
        }
}

void serve_report(struct serve *serve)
{
    struct totals totals;

    add_up(serve, &totals);
    log_say(&serve->sink, serve->cut_off > 0 ? WEIR_LOG_WARNING : WEIR_LOG_INFO, "drained",
            LOG_TEXT("end", serve->end == SERVE_DRAINED   ? "complete"
                            : serve->end == SERVE_CUT_OFF ? "budget over"
                            : serve->end == SERVE_FAILED  ? "the store has stopped"
                                                          : "second signal"),
            LOG_INT("requests", serve->under_way), LOG_INT("requests_cut_off", serve->cut_off),
            LOG_INT("leases_outstanding", totals.leased), LOG_INT("jobs_waiting", totals.waiting),
            LOG_INT("jobs_dead", totals.dead), LOG_INT("queues", totals.queues),
            LOG_INT("ms", (weir_now_ns() - serve->drain_ns) / 1000000));
}

int serve_drain(struct serve *serve, weir_signal_watch *watch)
{
    struct service_figures before, after;
    enum serve_end end;
    int r = 0, result = 0;

    serve->drain_ns = weir_now_ns();
    service_figures_of(serve->api.service, &before);
    serve->under_way = before.requests;
    notify_say(&serve->notify, "STOPPING=1\nSTATUS=draining %u requests", before.requests);
    log_say(&serve->sink, WEIR_LOG_INFO, "draining", LOG_INT("requests", before.requests),
            LOG_INT("connections", before.connections), LOG_INT("budget_ms", budget_ms(serve)));
    serve->api.draining = true;
    WEIR_SCOPE(scope, &result, .name = "drain", .on_failure = WEIR_COLLECT, .max_tasks = 1,
               .overflow = WEIR_REJECT) {
        r = weir_spawn(scope, stop_service, &serve, sizeof serve);
        if (r < 0) return r;
        end = await_end(serve, watch);
        serve->end = serve->failed ? SERVE_FAILED : end;
        if (end != SERVE_DRAINED) {
            service_figures_of(serve->api.service, &after);
            serve->cut_off = after.requests;
            weir_scope_cancel(serve->service_scope, WEIR_ECANCELED, "the drain is over");
        }
    }
    r = service_close(serve->api.service);
    serve->api.service = NULL;
    if (result == 0) result = r;
    return result == WEIR_ECANCELED ? 0 : result;
}

/* ---- Reload ---- */

struct differences {
    struct serve *serve;
    unsigned taken;
};

static void tell(void *arg, const struct setting_row *row, bool taken)
{
    struct differences *differences = arg;
    char name[128];

    differences->taken += taken;
    (void)snprintf(name, sizeof name, "%s.%s", row->section, row->key);
    log_say(&differences->serve->sink, taken ? WEIR_LOG_INFO : WEIR_LOG_WARNING,
            taken ? "setting changed" : "setting changed: it needs a restart",
            LOG_TEXT("setting", name));
}

static void tell_problems(struct serve *serve, const struct config *config)
{
    unsigned count =
        config->problem_count < CONFIG_PROBLEMS_MAX ? config->problem_count : CONFIG_PROBLEMS_MAX;

    for (unsigned i = 0; i < count; i++)
        log_say(&serve->sink, WEIR_LOG_ERROR, config->problems[i].what,
                LOG_TEXT("where", config->problems[i].where));
    log_say(&serve->sink, WEIR_LOG_ERROR, "nothing was reloaded: the settings are not valid",
            LOG_INT("problems", config->problem_count));
}

/* A file that is not valid changes nothing: what was read before stays. */
static void tell_file(struct serve *serve, const char *what, int r)
{
    if (r < 0)
        log_say(&serve->sink, WEIR_LOG_ERROR, "not reloaded: nothing has changed",
                LOG_TEXT("what", what),
                LOG_TEXT("error", r == WEIR_EREFUSED || r == -EBADMSG || r == -EPERM
                                      ? weir_why()
                                      : weir_strerror(r)));
    else
        log_say(&serve->sink, WEIR_LOG_INFO, "reloaded file", LOG_TEXT("what", what));
}

static void reload_files(struct serve *serve)
{
    bool needed = api_needs_token(&serve->api);
    int r = WEIR_ETIMEDOUT;

    if (serve->tls) {
        WEIR_DEADLINE(RELOAD_MS) r = tls_reload(serve->tls);
        tell_file(serve, "certificate", r);
    }
    WEIR_DEADLINE(RELOAD_MS) r = tokens_reload(serve->tokens);
    tell_file(serve, "tokens", r);
    if (!needed && api_needs_token(&serve->api))
        log_say(&serve->sink, WEIR_LOG_WARNING,
                "there are tokens now: from here on every request needs one");
}

void serve_reload(struct serve *serve)
{
    struct differences differences = {.serve = serve};
    struct config *config = serve->spec->reread(serve->spec->reread_arg);
    unsigned left = 0;

    notify_say(&serve->notify, "RELOADING=1\nMONOTONIC_USEC=%" PRId64 "\nSTATUS=reloading",
               weir_now_ns() / 1000);
    if (config && config->problem_count > 0) {
        tell_problems(serve, config);
    } else if (config) {
        left = config_reload(serve->config, config, tell, &differences);
        serve_show_config(serve);
        log_sink_set(&serve->sink, log_level_named(config_text(config, SETTING_LOG_LEVEL)),
                     config_is(config, SETTING_LOG_FORMAT, "json"));
        atom_store(&serve->api.log_requests, config_is(config, SETTING_LOG_ACCESS, "on"));
    }
    config_free(config);
    reload_files(serve);
    log_say(&serve->sink, WEIR_LOG_INFO, "reloaded", LOG_INT("changed", differences.taken),
            LOG_INT("need_restart", left));
    notify_say(&serve->notify, "READY=1\nSTATUS=listening on %s", serve->addresses[0]);
}
