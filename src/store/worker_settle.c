/* worker_settle.c - what becomes of a job after its handler, and telling the store.
 *
 * One task settles for all: what has ended while it waited for the disk goes with the next call,
 * so many jobs that end at once cost one commit, and one that ends alone waits for nobody.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"
#include "store/worker.h"

/* ---- Judging ---- */

static void say_error(struct verdict *verdict, const char *class, const char *message)
{
    (void)snprintf(verdict->error_class, sizeof verdict->error_class, "%s", class);
    (void)snprintf(verdict->error_message, sizeof verdict->error_message, "%s", message);
}

/* In the handler's words, where it has said some. */
static void say_failure(struct verdict *verdict, struct job_call *call)
{
    weir_job_outcome *outcome = &call->outcome;
    const char *class = call->returned < 0 ? weir_error_name(call->returned) : "failed";
    const char *message = call->returned < 0 ? weir_strerror(call->returned) : "";

    outcome->error_class[sizeof outcome->error_class - 1] = '\0';
    outcome->error_message[sizeof outcome->error_message - 1] = '\0';
    if (call->returned == WEIR_EREFUSED && *weir_why()) message = weir_why();
    say_error(verdict, *outcome->error_class ? outcome->error_class : class,
              *outcome->error_message ? outcome->error_message : message);
}

static enum weir_job_class class_of(const struct job_call *call)
{
    if (call->outcome.as != WEIR_CLASS_BY_RETURN) return call->outcome.as;
    return call->returned < 0 ? WEIR_CLASS_RETRY : WEIR_CLASS_OK;
}

/* What the handler has asked for makes no sense: that is a failure of its attempt. */
static bool is_nonsense(const struct job_call *call, struct verdict *verdict)
{
    const weir_job_outcome *outcome = &call->outcome;

    if (outcome->as > WEIR_CLASS_SNOOZE) {
        say_error(verdict, "EINVAL", "the handler's outcome.as is no weir_job_class");
    } else if (outcome->result_bytes > call->result_bytes_max) {
        say_error(verdict, "EMSGSIZE", "the handler's result is larger than result_bytes_max");
    } else if (outcome->delay_ms < 0 || outcome->delay_ms > ENGINE_SPAN_MS_MAX) {
        say_error(verdict, "EINVAL",
                  "the handler's outcome.delay_ms is negative, or more than three years");
    } else {
        return false;
    }
    verdict->how = WEIR_SETTLE_FAIL;
    verdict->delay_ms = -1;
    return true;
}

void worker_judge(struct job_slot *slot, bool interrupted)
{
    struct job_call *call = slot->call;
    struct verdict *verdict = &slot->verdict;
    enum weir_job_class class = class_of(call);

    *verdict = (struct verdict){.delay_ms = -1};
    if (is_nonsense(call, verdict)) return;
    /* Whatever it has made of a call that was interrupted: it was not its failure. But one that
     * may not be begun twice has been begun. */
    if (interrupted && call->job.idempotent &&
        (class == WEIR_CLASS_RETRY || class == WEIR_CLASS_RETRY_AT)) {
        verdict->how = WEIR_SETTLE_RELEASE;
        verdict->delay_ms = 0;
        return;
    }
    switch (class) {
    case WEIR_CLASS_OK:
        verdict->how = WEIR_SETTLE_ACK;
        verdict->has_result = true;
        return;
    case WEIR_CLASS_SNOOZE:
        verdict->how = WEIR_SETTLE_RELEASE;
        verdict->delay_ms = call->outcome.delay_ms;
        verdict->snoozes = true;
        return;
    case WEIR_CLASS_RETRY_AT: verdict->delay_ms = call->outcome.delay_ms; break;
    default: break;
    }
    verdict->how = class == WEIR_CLASS_DEAD ? WEIR_SETTLE_DEAD : WEIR_SETTLE_FAIL;
    say_failure(verdict, call);
}

/* ---- Slots that come and go ---- */

/* The lock is held; the call is clear. */
static void slot_free(struct job_slot *slot)
{
    struct job_worker *worker = slot->worker;

    slot->state = SLOT_FREE;
    slot->token = 0;
    list_add_tail(&worker->free_slots, &slot->node);
    worker->free_count++;
    waiter_wake_all(&worker->leasers, 0);
}

void worker_hand_in(struct job_slot *slot)
{
    struct job_worker *worker = slot->worker;
    bool lost;

    worker_lock(worker);
    lost = slot->told & TOLD_LOST || slot->verdict.how == WEIR_SETTLE_UNSET;
    worker_unlock(worker);
    if (lost && slot->call) call_clear(slot->call);
    worker_lock(worker);
    worker->figures.running--;
    list_remove(&slot->renewal);
    slot->task = (weir_task){NULL, 0};
    if (lost) {
        worker->figures.lost++;
        slot_free(slot);
    } else {
        slot->state = SLOT_ENDED;
        slot->settle_at_ns = 0;
        slot->settle_pause_ms = WORKER_PAUSE_MS;
        list_add_tail(&worker->ended, &slot->node);
        waiter_wake_all(&worker->settlers, 0);
    }
    worker_unlock(worker);
}

/* It is not settled, and will not be. Not under the lock. */
static void lose(struct job_slot *slot, int error)
{
    struct job_worker *worker = slot->worker;

    log_write(worker->object.stable.runtime, WEIR_LOG_WARNING, NULL,
              "worker '%s': job %" PRIu64 " has ended and could not be settled: %s",
              worker->object.name, slot->id, weir_error_name(error));
    if (slot->call) call_clear(slot->call);
    worker_lock(worker);
    worker->figures.lost++;
    worker->figures.settle_failures++;
    slot_free(slot);
    worker_unlock(worker);
}

static void again_later(struct job_slot *slot, int error)
{
    struct job_worker *worker = slot->worker;
    int64_t now_ns = weir_now_ns();

    if (now_ns >= slot->lease_until_ns) {
        lose(slot, error);
        return;
    }
    slot->settle_at_ns = time_after_ms(now_ns, slot->settle_pause_ms);
    slot->settle_pause_ms *= 2;
    if (slot->settle_pause_ms > WORKER_PAUSE_MS_MAX) slot->settle_pause_ms = WORKER_PAUSE_MS_MAX;
    worker_lock(worker);
    list_add_tail(&worker->ended, &slot->node);
    worker_unlock(worker);
}

/* The lock is held. */
static void count(weir_worker_figures *figures, const struct verdict *verdict,
                  enum weir_job_state state)
{
    if (state == WEIR_JOB_CANCELLED) {
        figures->cancelled++;
    } else if (verdict->how == WEIR_SETTLE_ACK) {
        figures->ok++;
    } else if (verdict->how == WEIR_SETTLE_DEAD || state == WEIR_JOB_DEAD) {
        figures->dead++;
    } else if (verdict->how == WEIR_SETTLE_FAIL) {
        figures->retried++;
    } else if (verdict->snoozes) {
        figures->snoozed++;
    } else {
        figures->released++;
    }
}

static void settled(struct job_slot *slot, enum weir_job_state state)
{
    struct job_worker *worker = slot->worker;

    if (slot->call) call_clear(slot->call);
    worker_lock(worker);
    count(&worker->figures, &slot->verdict, state);
    slot_free(slot);
    worker_unlock(worker);
}

/* The store will never take that: the attempt has failed with it, and is settled like that. */
static void refused(struct job_slot *slot, int error, const char *why)
{
    struct verdict *verdict = &slot->verdict;
    char message[WEIR_OUTCOME_TEXT_BYTES];

    if (verdict->how != WEIR_SETTLE_ACK) {
        lose(slot, error);
        return;
    }
    (void)snprintf(message, sizeof message, "its result, or a job that follows, was refused: %s",
                   *why ? why : weir_strerror(error));
    *verdict = (struct verdict){.how = WEIR_SETTLE_FAIL, .delay_ms = -1};
    say_error(verdict, weir_error_name(error), message);
    again_later(slot, error);
}

/* It may go well the next time; after an interruption perhaps it has gone well. */
static bool is_passing(int error)
{
    return worker_may_retry(error) || error == WEIR_ETIMEDOUT || error == WEIR_ECANCELED;
}

static void look_at(struct job_slot *slot, const weir_settlement *settlement)
{
    int error = settlement->ret_error;

    if (error == 0) {
        settled(slot, settlement->ret_state);
    } else if (error == -ESTALE || error == -ENOENT) {
        lose(slot, error);
    } else if (is_passing(error)) {
        again_later(slot, error); /* the store never came to it */
    } else {
        refused(slot, error, "");
    }
}

/* ---- Settling ---- */

/* A call that fails on its way, or is interrupted while it waits for the disk, may have settled
 * some: those are not asked for again, since their tokens are used up. */
enum { NOT_LOOKED_AT = 1 };

static weir_settlement settlement_of(const struct job_slot *slot)
{
    const struct verdict *verdict = &slot->verdict;
    weir_settlement settlement = {
        .id = slot->id, .token = slot->token, .how = verdict->how, .delay_ms = verdict->delay_ms};

    settlement.ret_error = NOT_LOOKED_AT;

    if (verdict->has_result) {
        settlement.result = slot->call->result;
        settlement.result_bytes = slot->call->outcome.result_bytes;
        settlement.then = slot->call->outcome.then;
        settlement.then_count = slot->call->outcome.then_count;
    }
    if (verdict->how == WEIR_SETTLE_FAIL || verdict->how == WEIR_SETTLE_DEAD) {
        settlement.error_class = verdict->error_class;
        settlement.error_message = verdict->error_message;
    }
    return settlement;
}

/* A cancel in the middle would leave it unknown what was settled: it is shut out for a while. */
static int tell_store(struct job_worker *worker, size_t count)
{
    int r = WEIR_ECLOSED;

    if (!worker_has_store(worker)) return r;
    WEIR_SHIELD(WEIR_WORKER_RELEASE_MS) {
        r = weir_job_settle(worker->spec.store, worker->settlements, count);
    }
    return r;
}

/* True: the call as a whole has failed in a way that one of them alone may be guilty of. */
static bool is_of_one(int error)
{
    return error == -EINVAL || error == WEIR_EREFUSED || error == -EMSGSIZE;
}

static void settle_one(struct job_worker *worker, struct job_slot *slot)
{
    int r;

    worker->settlements[0] = settlement_of(slot);
    r = tell_store(worker, 1);
    if (r >= 0 || (is_passing(r) && worker->settlements[0].ret_error != NOT_LOOKED_AT)) {
        look_at(slot, &worker->settlements[0]);
    } else if (is_of_one(r)) {
        refused(slot, r, weir_why());
    } else if (is_passing(r)) {
        again_later(slot, r);
    } else {
        lose(slot, r);
        worker_stop(worker, r);
    }
}

static void settle(struct job_worker *worker, struct job_slot **slots, size_t count)
{
    int r;

    assert(count <= WORKER_AT_ONCE_MAX);
    for (size_t i = 0; i < count; i++) {
        assert(slots[i]);
        worker->settlements[i] = settlement_of(slots[i]);
    }
    r = tell_store(worker, count);
    if (r < 0 && is_of_one(r)) {
        for (size_t i = 0; i < count; i++) settle_one(worker, slots[i]);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (r >= 0 || (is_passing(r) && worker->settlements[i].ret_error != NOT_LOOKED_AT)) {
            look_at(slots[i], &worker->settlements[i]);
        } else if (is_passing(r)) {
            again_later(slots[i], r);
        } else {
            lose(slots[i], r);
        }
    }
    if (r < 0 && !is_passing(r)) worker_stop(worker, r);
}

/* ---- The settler ---- */

/* Those whose time has come; and when that of the next one is. The lock is held. */
static size_t take_due(struct job_worker *worker, struct job_slot **slots, int64_t *ret_next_ns)
{
    int64_t now_ns = weir_now_ns();
    struct list *node = worker->ended.next, *next;
    size_t count = 0;

    *ret_next_ns = INT64_MAX;
    for (; node != &worker->ended && count < WORKER_AT_ONCE_MAX; node = next) {
        struct job_slot *slot = container_of(node, struct job_slot, node);
        next = node->next;
        if (slot->settle_at_ns > now_ns) {
            if (slot->settle_at_ns < *ret_next_ns) *ret_next_ns = slot->settle_at_ns;
            continue;
        }
        list_remove(&slot->node);
        slots[count++] = slot;
    }
    return count;
}

/* How many are to be settled, 0: look again, or NO_MORE. */
enum { NO_MORE = WORKER_AT_ONCE_MAX + 1 };
static int await_ended(struct job_worker *worker, struct job_slot **slots)
{
    int64_t next_ns;
    size_t count;
    int r = worker_enter(&worker_wait_service);

    if (r < 0) return r;
    worker_lock(worker);
    count = take_due(worker, slots, &next_ns);
    if (count > 0 || (worker->services_end && list_empty(&worker->ended))) {
        worker_unlock(worker);
        return count > 0 ? (int)count : NO_MORE;
    }
    return worker_park(worker, &worker->settlers, &worker_wait_service,
                       next_ns == INT64_MAX ? WEIR_FOREVER : worker_ms_until(next_ns));
}

/* 0: all is settled, or lost; else it was interrupted. */
static int settle_all(struct job_worker *worker)
{
    struct job_slot *slots[WORKER_AT_ONCE_MAX] = {NULL};
    int r;

    for (;;) {
        r = await_ended(worker, slots);
        if (r == NO_MORE) return 0;
        if (r < 0) return r;
        if (r > 0) settle(worker, slots, (size_t)r);
    }
}

int worker_settler(void *arg)
{
    struct job_worker *worker = *(struct job_worker **)arg;
    int r = settle_all(worker);

    if (r < 0) {
        /* Handlers have been cancelled too: what they leave is given back, within bounds. */
        WEIR_SHIELD(WEIR_WORKER_RELEASE_MS) r = settle_all(worker);
    }
    (void)r; /* what is left is counted as lost: worker_lose_rest */
    return 0;
}

void worker_lose_rest(struct job_worker *worker)
{
    for (;;) {
        struct list *node;
        worker_lock(worker);
        node = list_pop(&worker->ended);
        worker_unlock(worker);
        if (!node) return;
        lose(container_of(node, struct job_slot, node), WEIR_ECANCELED);
    }
}
