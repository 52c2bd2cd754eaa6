/* search_stand.c - the search service, whole, in a simulated run: see search_stand.h. */
#include "sim/search_stand.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "examples/search-service/lines.h"
#include "harness/test.h"
#include "rt/bell.h"

enum {
    LOOK_MS = 10,    /* of the watch */
    KEEP_UP_MS = 20, /* until a program that has failed is started again */
    ASK_MS = 2000,   /* then the user gives up */
    ASK_EVERY_MS = 25,
    STARTING_MS = 5000,
    DRAIN_MS = CLIENTS_DRAIN_MS,
    ENDING_MS = 3 * DRAIN_MS,
    HEALING_MS = 3000, /* an open breaker, the probes, and what was late */
    QUEUED_MAX = PATH_QUEUE_MAX + 3 * 8,
    RETRY_BURST = 10,
    WORKERS = 2,
};

#define SERVICE_ADDRESS "tcp:10.0.0.2:7700"
#define UPSTREAM_ADDRESS "tcp:10.0.0.3:7801"

struct stand stand;
static struct tally intervals[STAND_INTERVALS];

void stand_begin(void *arg)
{
    (void)arg;
    memset(&stand, 0, sizeof stand);
    memset(intervals, 0, sizeof intervals);
}

/* ---- What must be so ---- */

bool stand_one_answer(void *arg)
{
    const struct load *load = &stand.load;

    (void)arg;
    return load->unknown == 0 && load->sent == load->answered + load->lost + load->open_requests;
}

bool stand_budget_holds(void *arg)
{
    (void)arg;
    return stand.server.figures.slowest_ns <= STAND_BUDGET_MS * 1000000LL &&
           stand.slowest_ns_before <= STAND_BUDGET_MS * 1000000LL;
}

bool stand_queues_bounded(void *arg)
{
    (void)arg;
    return !stand.stage_overfull && stand.queued_max <= QUEUED_MAX;
}

bool stand_retries_bounded(void *arg)
{
    (void)arg;
    return !stand.too_many_retries;
}

bool stand_breaker_opened(void *arg)
{
    (void)arg;
    return stand.breaker_opened;
}

bool stand_breaker_closed(void *arg)
{
    (void)arg;
    return stand.breaker_closed_again;
}

bool stand_goodput_is_back(void *arg)
{
    (void)arg;
    return stand.asker.served_since_healed;
}

void stand_healed(void)
{
    stand.healed = true;
}

/* ---- The service ---- */

/* A thread's time of computing, which passes when somebody looks. */
static int64_t time_us(void)
{
    const struct kernel *kernel = kernel_current();
    struct lock lock;
    struct bell nobody;

    lock_init(&lock);
    bell_init(&nobody, kernel);
    lock_acquire(&lock);
    (void)bell_wait(&nobody, &lock, bell_after_ms(&nobody, 1));
    lock_release(&lock);
    bell_deinit(&nobody);
    lock_deinit(&lock);
    return kernel->thread_now_ns(kernel) / 1000;
}

static void look_at_stages(struct service *service)
{
    for (unsigned i = 0; i < PATH_STAGES; i++) {
        weir_stage_figures figures;

        CHECK_OK(weir_pipeline_stage_figures(service->path.pipeline, i, &figures));
        if (figures.depth_max > figures.queue_max || figures.running_max > figures.concurrency)
            stand.stage_overfull = true;
        if (i == PATH_FETCH &&
            service->index.asked > figures.entered + figures.entered / 10 + RETRY_BURST)
            stand.too_many_retries = true;
    }
}

static void look_at_breaker(struct service *service)
{
    weir_breaker_figures figures;

    weir_breaker_figures_of(service->path.breaker, &figures);
    if (figures.opened > 0) stand.breaker_opened = true;
    if (figures.opened > 0 && figures.state == WEIR_BREAKER_CLOSED)
        stand.breaker_closed_again = true;
}

static void look(weir_timer *timer, void *keep_arg)
{
    struct service *service = keep_arg;
    size_t queued = service_queued(service);

    if (queued > stand.queued_max) stand.queued_max = queued;
    if (service->path.pipeline) {
        look_at_stages(service);
        look_at_breaker(service);
    }
    weir_timer_start(timer, LOOK_MS);
}

static int watch_open(weir_scope *scope, struct service *keep_service)
{
    weir_timer *timer;
    int r = weir_timer_open(
        scope, &(weir_timer_spec){.name = "watch", .on_fire = look, .keep_arg = keep_service},
        &timer);

    if (r == 0) weir_timer_start(timer, LOOK_MS);
    return r;
}

static unsigned long answered_now(void)
{
    unsigned long answered = 0;

    for (int code = 0; code < SEARCH_CODES; code++) answered += stand.server.figures.answered[code];
    return answered;
}

/* What the last life has counted; a new one counts from nothing. */
static void keep_books(void)
{
    const struct clients_figures *figures = &stand.server.figures;

    stand.accepted_before += figures->accepted;
    stand.answered_before += answered_now();
    stand.unanswered_before += figures->unanswered;
    if (figures->slowest_ns > stand.slowest_ns_before)
        stand.slowest_ns_before = figures->slowest_ns;
    memset(&stand.server, 0, sizeof stand.server);
}

static int service_program(void *arg)
{
    struct service *service = &stand.server;
    int r;

    (void)arg;
    keep_books();
    service->port = 7700;
    service->admin_port = 7701;
    service->listen_host = "10.0.0.2";
    service->line_ms = 2000;
    service->idle_ms = 60000;
    service->upstream_address = UPSTREAM_ADDRESS;
    service->naive = stand.scene->naive;
    service->deps.rank_threads = 1;
    service->deps.rank_us = stand.scene->rank_us;
    service->deps.patience = 1;
    service->deps.time_us = time_us;
    service->watch_open = watch_open;
    r = service_run(service);
    /* It has ended by itself, so all that it accepted has come to an end. */
    CHECK_INT(answered_now() + service->figures.unanswered, >=, service->figures.accepted);
    CHECK_INT(service->figures.open, ==, 0);
    return r;
}

static int upstream_program(void *arg)
{
    struct upstream_server *origin = &stand.origin;

    (void)arg;
    memset(origin, 0, sizeof *origin);
    origin->port = 7801;
    origin->control_port = 7802;
    origin->listen_host = "10.0.0.3";
    origin->slots_count = 16;
    origin->latency_ms_first = 15;
    origin->jitter_ms_first = 10;
    return upstream_server_run(origin);
}

/* ---- The user beside the load ---- */

/* What the answer says is what it is. */
static void take_answer(const char *line, unsigned long id)
{
    unsigned long answered = 0;
    char what[16] = "";

    if (sscanf(line, "%15s %lu", what, &answered) != 2 || answered != id)
        weir_sim_fail("asked %lu, answered '%s'", id, line);
    if (strcmp(what, "ok") == 0) {
        stand.asker.ok++;
        if (strstr(line, ":Document_")) weir_sim_fail("it lacks titles, says not so: '%s'", line);
    } else if (strcmp(what, "partial") == 0) {
        stand.asker.partial++;
        if (!strstr(line, " enrich d")) weir_sim_fail("it says not what it lacks: '%s'", line);
        if (!strstr(line, ":Document_")) weir_sim_fail("it says it is partial: '%s'", line);
    } else {
        stand.asker.refused++;
        return;
    }
    if (stand.healed) stand.asker.served_since_healed = true;
}

static int ask_once(weir_conn *conn, struct line_reader *reader)
{
    unsigned long id = ++stand.asker.sent;
    char nothing[1] = "", *line = nothing;
    int r = WEIR_ECANCELED;

    WEIR_DEADLINE(ASK_MS) {
        r = line_say(conn, "SEARCH %lu old mill %lu\n", id, id);
        if (r == 0) r = line_next(reader, &line);
    }
    if (r == 0) take_answer(line, id);
    if (r < 0) stand.asker.lost++;
    return r;
}

static bool asks_on(void)
{
    return !stand.over || (stand.healed && !stand.asker.served_since_healed);
}

static int ask_and_come_back(void *arg) /* a task */
{
    (void)arg;
    stand.asking = true;
    stand.asker.asks = true;
    while (asks_on()) {
        struct line_reader reader;
        weir_conn *conn = NULL;
        int r = WEIR_ECANCELED;

        WEIR_DEADLINE(ASK_MS) r = weir_connect(SERVICE_ADDRESS, &conn);
        line_reader_init(&reader, conn);
        while (r == 0 && asks_on()) {
            r = ask_once(conn, &reader);
            if (r == 0) r = weir_sleep(ASK_EVERY_MS);
        }
        weir_conn_close(conn);
        if (r == WEIR_ECANCELED || weir_sleep(ASK_EVERY_MS) < 0) break;
    }
    stand.asking = false;
    return 0;
}

/* ---- The hosts ---- */

/* What a supervisor does on a real machine: a program that could not go on is started again. */
static int keep_up(void *arg) /* a task */
{
    int r = 0;

    (void)arg;
    while (r == 0) {
        if (!stand.service_down && !weir_sim_host_running(stand.service))
            CHECK_OK(weir_sim_host_restart(stand.service));
        if (!stand.upstream_down && !weir_sim_host_running(stand.upstream))
            CHECK_OK(weir_sim_host_restart(stand.upstream));
        r = weir_sleep(KEEP_UP_MS);
    }
    return r;
}

static int start_hosts(void)
{
    static const weir_config narrow = {.workers = 1};
    static const weir_config wide = {.workers = WORKERS};
    const weir_config *config = weir_sim_worker_level() ? &wide : &narrow;
    int r;

    stand.client = weir_sim_host_self();
    r = weir_sim_host_start(
        &(weir_sim_host_spec){.name = "service", .fn = service_program, .config = config},
        &stand.service);
    if (r < 0) return r;
    return weir_sim_host_start(
        &(weir_sim_host_spec){.name = "upstream", .fn = upstream_program, .config = &narrow},
        &stand.upstream);
}

static int await_service(void)
{
    weir_conn *conn = NULL;
    int r = WEIR_ECANCELED;

    WEIR_DEADLINE(STARTING_MS) {
        do {
            r = weir_connect(SERVICE_ADDRESS, &conn);
            if (r < 0 && r != WEIR_ETIMEDOUT && weir_sleep(5) < 0) break;
        } while (r < 0 && r != WEIR_ETIMEDOUT && r != WEIR_ECANCELED);
    }
    if (r == 0) weir_conn_close(conn);
    return r;
}

/* As TERM does; and it ends by itself. */
static void stop(weir_sim_host *host, bool *down)
{
    *down = true;
    weir_sim_host_stop(host, DRAIN_MS);
    for (int ms = 0; weir_sim_host_running(host); ms += KEEP_UP_MS) {
        if (ms > ENDING_MS) weir_sim_fail("it was told to stop, and runs on");
        if (weir_sleep(KEEP_UP_MS) < 0) return;
    }
}

/* ---- A scene ---- */

static int make_load(const struct scene *scene)
{
    struct load *load = &stand.load;

    load->service = SERVICE_ADDRESS;
    load->connections = scene->connections;
    load->budget_ms = PATH_BUDGET_MS;
    load->intervals_max = STAND_INTERVALS;
    load->intervals = intervals;
    load->on_phase = scene->on_phase;
    CHECK_INT(pthread_mutex_init(&load->lock, NULL), ==, 0);
    while (load->phase_count < 4 && scene->phases[load->phase_count].rate > 0) {
        load->phases[load->phase_count] = scene->phases[load->phase_count];
        load->phase_count++;
    }
    return load_run(load);
}

/* The two sides have counted the same. */
static void compare_books(void)
{
    const struct load *load = &stand.load;
    const struct asker *asker = &stand.asker;
    unsigned long answered = stand.answered_before + answered_now();
    unsigned long accepted = stand.accepted_before + stand.server.figures.accepted;

    CHECK_INT(load->answered + asker->sent - asker->lost, <=, answered);
    CHECK_INT(accepted, <=, load->sent + asker->sent);
    if (stand.scene->drains) {
        CHECK_INT(answered, ==, accepted);
        CHECK_INT(load->answered + asker->sent - asker->lost, ==, answered);
        CHECK_INT(stand.unanswered_before + stand.server.figures.unanswered, ==, 0);
    }
    if (stand.scene->lossy) return;
    CHECK_INT(load->lost + load->open_requests + asker->lost, ==, 0);
    CHECK_INT(load->sent + asker->sent, ==, accepted);
    CHECK_INT(load->answered + asker->sent, ==, answered);
    CHECK_INT(stand.server.figures.unanswered, ==, 0);
}

int stand_play(const struct scene *scene)
{
    int result, r;

    stand.scene = scene;
    r = start_hosts();
    if (r < 0) return r;
    WEIR_SCOPE(scope, &result, .name = "stand", .on_failure = WEIR_COLLECT, .max_tasks = 2,
               .overflow = WEIR_REJECT) {
        r = weir_spawn(scope, keep_up, NULL, 0);
        if (r == 0) r = await_service();
        if (r == 0) r = weir_spawn(scope, ask_and_come_back, NULL, 0);
        if (r == 0) r = make_load(scene);
        stand.over = true;
        stand.upstream_down = false; /* also if the load ended before the last phase */
        stand_healed();
        for (int ms = 0; stand.asking && ms < HEALING_MS; ms += KEEP_UP_MS)
            if (weir_sleep(KEEP_UP_MS) < 0) break;
        if (stand.asker.asks && !stand.asker.served_since_healed)
            weir_sim_fail("all works again, and who asks is not served");
        stop(stand.service, &stand.service_down);
        stop(stand.upstream, &stand.upstream_down);
        weir_scope_cancel(scope, 0, "the scene is over");
    }
    if (r == 0 || scene->lossy) compare_books();
    return r;
}
