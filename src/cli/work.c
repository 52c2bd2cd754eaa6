/* work.c - weir work: slots, signals, drain. */
#include "cli/work.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/output.h"
#include "rt/kernel.h"
#include "rt/mem.h"

enum {
    POLL_MS = 2000, /* short: a drain waits for it, so that no lease is lost on its way */
    PAUSE_MS = 200,
    PAUSE_MS_MAX = 15000,
    SETTLE_SHIELD_MS = 10000,
    ASK_MS_MAX = 30000,
    SLOTS_MAX = 1024,
};

struct slot {
    struct work *work;
    struct client client;
    weir_task task;
    bool open; /* `client` is */
    bool pausing, ended;
};

/* A pause that doubles, from half of it to all of it at random. */
static int pause_a_while(unsigned failures)
{
    const struct kernel *kernel = kernel_current();
    int64_t ms = PAUSE_MS << (failures < 8 ? failures : 8);
    uint32_t random;

    if (ms > PAUSE_MS_MAX) ms = PAUSE_MS_MAX;
    kernel->random(kernel, &random, sizeof random);
    return weir_sleep(ms / 2 + (int64_t)(random % (uint64_t)(ms / 2 + 1)));
}

static void say_failure(const struct work *work, const struct client *client, int r,
                        unsigned failures)
{
    if (failures > 0) return; /* once is enough until it works again */
    if (r > 0)
        say("%s: queue '%s': the server says %d %s; trying again", client->spec.server, work->queue,
            r, http_status_name((unsigned)r));
    else
        say("%s cannot be reached: %s; trying again", client->spec.server, weir_strerror(r));
}

/* Whether trying again can help. */
static bool is_final(int r)
{
    return r == 400 || r == 401 || r == 403 || r == 404 || r == 422 || r == 421;
}

/* What has become of a job is told as long as its lease lasts. `unsure`: one try may have come,
 * without an answer. 0, or as work_settle(). */
static int settle(struct work *work, struct client *client, const struct work_job *job,
                  const struct work_outcome *outcome, bool unsure)
{
    int64_t until_ns = weir_now_ns() + work->lease_ms * 1000000;
    int r = 0;

    for (unsigned failures = 0;; failures++) {
        int paused;

        r = work_settle(work, client, job, outcome);
        if (r == 0 || r == 409 || r == 413 || is_final(r) || r == WEIR_ECANCELED) break;
        if (r == 504 || (r < 0 && r != -ECONNREFUSED && r != -ENOENT)) unsure = true;
        if (weir_now_ns() > until_ns) break;
        paused = pause_a_while(failures);
        if (paused == WEIR_ECANCELED) r = paused;
        if (paused < 0) break;
    }
    if ((r == 404 || r == 409) && outcome->known) r = 0;
    /* Also of a server that has gone since one try. */
    return r != 0 && unsure && !is_final(r) && r != 413 && r != WEIR_ECANCELED ? WEIR_ETIMEDOUT : r;
}

/* A result that the server does not take is none: the job would run again and again for it. */
static int settle_or_fail(struct work *work, struct client *client, const struct work_job *job,
                          struct work_outcome *outcome, bool unsure)
{
    int r = settle(work, client, job, outcome, unsure);

    if (outcome->verdict != WORK_ACK || outcome->result.count == 0 || r != 413) return r;
    outcome->verdict = WORK_FAIL;
    (void)snprintf(outcome->class, sizeof outcome->class, "result-too-large");
    (void)snprintf(outcome->message, sizeof outcome->message,
                   "the server does not take a result of %zu bytes", outcome->result.count);
    return settle(work, client, job, outcome, unsure);
}

/* Whoever is cancelled has a little time for it, and no more. */
static int settle_at_last(struct work *work, struct client *client, const struct work_job *job,
                          struct work_outcome *outcome)
{
    bool begun = weir_checkpoint() == 0; /* nothing is sent, and no connection lost, for a cancel */
    int r = begun ? settle_or_fail(work, client, job, outcome, false) : WEIR_ECANCELED;

    if (r != WEIR_ECANCELED) return r;
    r = WEIR_ETIMEDOUT;
    WEIR_SHIELD(SETTLE_SHIELD_MS) r = settle_or_fail(work, client, job, outcome, begun);
    return r;
}

static void say_unsettled(const struct work_job *job, int r)
{
    if (r == 404 || r == 409)
        say("job %s: the lease was lost: what was done is not counted", job->id);
    else if (r == WEIR_ETIMEDOUT)
        say("job %s: whether it was settled is not known: 'weir job %s' tells", job->id, job->id);
    else
        say("job %s: could not be settled (%s): its lease will run out", job->id,
            r > 0 ? http_status_name((unsigned)r) : weir_strerror(r));
}

/* Only what the server knows of counts. */
static void count_outcome(struct work *work, const struct work_job *job,
                          const struct work_outcome *outcome, int settled)
{
    if (outcome->verdict == WORK_FAIL || outcome->verdict == WORK_DEAD)
        say("job %s (%s, attempt %lld): %s%s%s%s", job->id, job->kind, (long long)job->attempt,
            outcome->class, outcome->verdict == WORK_DEAD ? ", dead" : "",
            outcome->message[0] ? ": " : "", outcome->message);
    if (settled != 0) {
        say_unsettled(job, settled);
        work->unsettled++;
        return;
    }
    switch (outcome->verdict) {
    case WORK_ACK: work->done++; break;
    case WORK_RELEASE: work->given_back++; break;
    case WORK_FAIL:
    case WORK_DEAD: work->failed++; break;
    }
}

static void do_job(struct slot *slot, struct client *client, struct work_job *job)
{
    struct work *work = slot->work;
    struct work_outcome outcome;
    struct buffer result;
    int r;

    buffer_init(&result, work->result_bytes_max + 1, client_resize, NULL);
    work->running++;
    work_run(work, client, job, &result, &outcome);
    r = settle_at_last(work, client, job, &outcome);
    work->running--;
    count_outcome(work, job, &outcome, r);
    buffer_deinit(&result);
    mem_free(job->payload);
}

/* A job that came while nothing more is to be begun. */
static void give_back(struct work *work, struct client *client, struct work_job *job)
{
    struct work_outcome outcome = {.verdict = WORK_RELEASE};

    count_outcome(work, job, &outcome, settle_at_last(work, client, job, &outcome));
    mem_free(job->payload);
}

/* A job that came, and that cannot be read: it is others' until this one has another version. */
static void give_back_unread(struct work *work, struct client *client, const struct work_job *job)
{
    struct work_outcome outcome = {.verdict = WORK_RELEASE, .delay_ms = work->lease_ms};

    if (!job->id[0] || !job->token[0]) return;
    say("job %s: it cannot be read, and is given back", job->id);
    count_outcome(work, job, &outcome, settle_at_last(work, client, job, &outcome));
}

static bool is_ending(const struct work *work)
{
    return work->quiet || work->draining;
}

static bool may_begin(const struct work *work)
{
    return !is_ending(work) && (work->count_max == 0 || work->begun < work->count_max);
}

/* What came instead of an answer, or in one that is no success: whether to go on, after a pause. */
static bool go_on(struct slot *slot, int r, unsigned failures, int *ret_status)
{
    const struct work *work = slot->work;
    const struct client *client = &slot->client;
    /* With --once a connection that was closed is made anew, and no more than that. */
    bool last = (r > 0 && is_final(r)) || (work->once && failures > 0);

    if (!last) {
        say_failure(work, client, r, failures);
        slot->pausing = true;
        r = pause_a_while(failures);
        slot->pausing = false;
        return r == 0;
    }
    *ret_status = r < 0 ? fail_reach(client, r)
                        : fail(exit_of_status((unsigned)r), "%s: queue '%s': the server says %d %s",
                               client->spec.server, work->queue, r, http_status_name((unsigned)r));
    return false;
}

/* CLI_OK, or why the worker has to end. */
static int slot_loop(struct slot *slot, struct client *client)
{
    struct work *work = slot->work;
    int status = CLI_OK;
    unsigned failures = 0;

    while (may_begin(work)) {
        struct work_job job = {.payload = NULL};
        bool found = false;
        int r;

        work->begun++; /* taken back below: others must not go beyond the count meanwhile */
        r = work_lease(work, client, work->once ? 0 : POLL_MS, &job, &found);
        if (r == 0 && found) {
            failures = 0;
            if (is_ending(work))
                give_back(work, client, &job);
            else
                do_job(slot, client, &job);
            continue;
        }
        work->begun--;
        if (r == WEIR_ECANCELED) return CLI_OK;
        if (r == WEIR_EPROTOCOL) give_back_unread(work, client, &job);
        if (r == 0) {
            failures = 0;
            if (work->once) return CLI_OK;
            continue;
        }
        if (r == 503 && is_ending(work)) return CLI_OK;
        if (!go_on(slot, r, failures++, &status)) return status;
    }
    return status;
}

static int slot_task(void *arg)
{
    struct slot *slot = *(struct slot **)arg;
    int status = slot_loop(slot, &slot->client);

    client_deinit(&slot->client);
    slot->open = false;
    slot->ended = true;
    if (status != CLI_OK) {
        slot->work->status = status;
        slot->work->draining = true;
    }
    return 0;
}

/* ---- Signals ---- */

static void cancel_slots(struct slot *slots, size_t count, bool all)
{
    for (size_t i = 0; i < count; i++)
        if (!slots[i].ended && (all || slots[i].pausing))
            (void)weir_task_cancel(slots[i].task, all ? "drained for too long" : "draining");
}

static bool all_ended(const struct slot *slots, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!slots[i].ended) return false;
    return true;
}

/* The first signal drains, the second and the end of the drain's time end it. Who is only quiet has
 * no such time. */
static void watch_signals(struct work *work, weir_signal_watch *watch, struct slot *slots,
                          size_t count)
{
    int64_t drain_until_ns = 0;
    bool signalled = false, woken = false;

    while (!all_ended(slots, count)) {
        weir_signal_event event;
        int r = WEIR_ETIMEDOUT;

        /* Slots end without telling; so the wait is short. */
        WEIR_DEADLINE(100) r = weir_signal_wait(watch, &event);
        if (r == 0 && signalled) {
            cancel_slots(slots, count, true);
            return;
        }
        if (r == 0) {
            signalled = work->draining = true;
            say("draining: %u running, at most %lld ms; once more ends it now", work->running,
                (long long)work->drain_ms);
        }
        if (work->draining && drain_until_ns == 0)
            drain_until_ns = weir_now_ns() + work->drain_ms * 1000000;
        if (is_ending(work) && !woken) {
            cancel_slots(slots, count, false);
            woken = true;
        }
        if (drain_until_ns && weir_now_ns() > drain_until_ns) {
            cancel_slots(slots, count, true);
            return;
        }
        if (r < 0 && r != WEIR_ETIMEDOUT) return;
    }
}

static int run_slots(struct work *work, struct slot *slots, size_t count)
{
    static const int signals[] = {SIGTERM, SIGINT};
    weir_signal_watch *watch;
    size_t spawned = 0;
    int r = 0, result;

    WEIR_SCOPE(scope, &result, .name = "work", .on_failure = WEIR_COLLECT,
               .max_tasks = SLOTS_MAX + 1, .overflow = WEIR_REJECT) {
        r = weir_signal_open(
            scope, &(weir_signal_spec){.name = "end", .signals = signals, .signals_count = 2},
            &watch);
        while (r == 0 && spawned < count) {
            struct slot *slot = &slots[spawned];

            slot->work = work;
            r = weir_task_spawn(
                scope,
                &(weir_task_spec){
                    .name = "slot", .fn = slot_task, .arg = &slot, .arg_bytes = sizeof slot},
                &slot->task);
            if (r == 0) spawned++;
        }
        if (r == 0) {
            watch_signals(work, watch, slots, count);
        } else {
            /* Those that there are would go on, and the scope does not end before them. */
            work->draining = true;
            cancel_slots(slots, spawned, true);
        }
    }
    return r < 0 ? r : result;
}

/* Its place as well: what a process was started with is there for its programs to read. */
static void forget_variable(const char *name)
{
    char *value = getenv(name);

    if (value) explicit_bzero(value, strlen(value));
    (void)unsetenv(name);
}

/* All of them before the first asks: what is wrong with an option ends the command. */
static int open_clients(const struct work *work, struct slot *slots, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct client *client = &slots[i].client;
        int status = client_for(work->call, client);

        if (status != CLI_OK) return status;
        if (client->spec.timeout_ms > ASK_MS_MAX) client->spec.timeout_ms = ASK_MS_MAX;
        slots[i].open = true;
    }
    /* Programs work on what others have sent: what the worker may do is not for them. */
    if (!work->expose_token) {
        forget_variable("WEIR_TOKEN");
        forget_variable("WEIR_TOKEN_FILE");
    }
    return CLI_OK;
}

/* Those whose slot was never begun. */
static void close_clients(struct slot *slots, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (slots[i].open) client_deinit(&slots[i].client);
}

static int fill(struct work *work, const struct cli_call *call)
{
    char host[64] = "localhost";
    const char *name = cli_text(call, "name");

    work->call = call;
    work->queue = cli_argument_at(call, 0);
    work->kinds = cli_text(call, "kinds");
    work->lease_ms = cli_number(call, "lease");
    work->timeout_ms = cli_number(call, "timeout");
    work->grace_ms = cli_number(call, "grace");
    work->drain_ms = cli_number(call, "drain");
    work->snooze_ms = cli_number(call, "snooze");
    work->result_bytes_max = (size_t)cli_number(call, "result-max");
    work->expose_token = cli_has(call, "expose-token");
    work->once = cli_has(call, "once");
    work->count_max = cli_number(call, "count");
    work->command = (const char *const *)call->rest;
    (void)gethostname(host, sizeof host - 1);
    if (name)
        (void)snprintf(work->worker, sizeof work->worker, "%.200s", name);
    else
        (void)snprintf(work->worker, sizeof work->worker, "%s-%d", host, (int)getpid());
    if (work_codes_parse(cli_text(call, "retry-exit"), &work->retry) < 0 ||
        work_codes_parse(cli_text(call, "dead-exit"), &work->dead) < 0 ||
        work_codes_parse(cli_text(call, "snooze-exit"), &work->snooze) < 0)
        return fail(CLI_USAGE, "exit codes are numbers from 0 to 255, with commas: 75,69");
    /* While a program is being ended, nobody renews its lease. */
    if (work->grace_ms > work->lease_ms / 2)
        return fail(CLI_USAGE, "--grace must be at most half of --lease");
    return CLI_OK;
}

static int run_work(struct cli_call *call)
{
    size_t count = (size_t)cli_number(call, "concurrency");
    struct work work = {.draining = false};
    struct slot *slots;
    int r = fill(&work, call);

    if (r != CLI_OK) return r;
    slots = mem_alloc_zeroed(count * sizeof *slots);
    if (!slots) return fail(CLI_FAILED, "no memory");
    work.status = open_clients(&work, slots, count);
    if (work.status == CLI_OK) {
        r = run_slots(&work, slots, count);
        say("%u done, %u failed, %u given back, %u not settled", work.done, work.failed,
            work.given_back, work.unsettled);
        if (r < 0 && work.status == CLI_OK) work.status = fail(CLI_FAILED, "%s", weir_strerror(r));
    }
    close_clients(slots, count);
    mem_free(slots);
    return work.status;
}

int command_work(struct cli_call *call)
{
    return with_runtime(call, run_work);
}
