/* store_wait.c - who waits for a job, for room in a queue, for the end of a job; and orders.
 *
 * A job that comes is claimed for the first who waits for it, by whoever made it come: nobody is
 * woken in vain, and the lease is in the same commit as what made the job ready. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/planted.h"
#include "rt/mem.h"
#include "store/store.h"

/* ---- Tables by name ---- */

static unsigned bucket_of(const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    uint32_t hash = 2166136261u;

    for (size_t i = 0; i < count; i++) hash = (hash ^ at[i]) * 16777619u;
    return (hash ^ hash >> 16) % STORE_BUCKETS;
}

static bool is_same(struct engine_slice a, const char *name, size_t bytes)
{
    return a.count == bytes && memcmp(a.at, name, bytes) == 0;
}

static struct queue_waits *waits_find(struct store *store, struct engine_slice queue)
{
    list_for_each(node, &store->tables->waits[bucket_of(queue.at, queue.count)]) {
        struct queue_waits *waits = container_of(node, struct queue_waits, node);
        if (is_same(queue, waits->name, waits->name_bytes)) return waits;
    }
    return NULL;
}

static struct queue_waits *waits_get(struct store *store, struct engine_slice queue)
{
    struct queue_waits *waits = waits_find(store, queue);

    if (waits) return waits;
    waits = mem_alloc(sizeof *waits + queue.count);
    if (!waits) return NULL;
    list_init(&waits->leasers);
    list_init(&waits->rooms);
    list_init(&waits->full);
    waits->name_bytes = queue.count;
    memcpy(waits->name, queue.at, queue.count);
    list_add_tail(&store->tables->waits[bucket_of(queue.at, queue.count)], &waits->node);
    return waits;
}

/* Nobody waits there any more. */
static void waits_tidy(struct queue_waits *waits)
{
    if (list_empty(&waits->rooms)) list_remove(&waits->full);
    if (!list_empty(&waits->leasers) || !list_empty(&waits->rooms)) return;
    list_remove(&waits->node);
    list_remove(&waits->full);
    mem_free(waits);
}

void store_waits_deinit(struct store *store)
{
    for (unsigned i = 0; i < STORE_BUCKETS; i++) {
        struct list *node;

        assert(list_empty(&store->tables->waits[i]) && list_empty(&store->tables->enders[i]));
        while ((node = list_pop(&store->tables->orders[i])))
            mem_free(container_of(node, struct worker_orders, node));
    }
}

/* ---- Waiting for a job ---- */

static bool lease_abort(struct task *task, void *object)
{
    struct lease_wait *wait = object;
    struct store *store = container_of(wait->waiter.object, struct store, object);
    bool leaves;

    (void)task;
    store_lock(store);
    leaves = !list_empty(&wait->waiter.node);
    if (leaves) {
        list_remove(&wait->waiter.node);
        store->leaser_count--;
        waits_tidy(waits_find(store, wait->claim->queue));
    }
    store_unlock(store);
    return leaves;
}

static void lease_describe(const void *object, char *text, size_t bytes)
{
    const struct lease_wait *wait = object;

    (void)snprintf(text, bytes, "store '%s', queue '%.*s'", wait->waiter.object->name,
                   (int)wait->claim->queue.count, (const char *)wait->claim->queue.at);
}

static const struct wait_kind wait_for_job = {
    .name = "job",
    .takes_work = true,
    .abort = lease_abort,
    .describe = lease_describe,
    .what = WAIT_FOR_WORK,
    .ends = ENDS_OUTSIDE,
};

/* A wait may be the second one of a call. What has come since the first was ended is seen by nobody
 * but who looks: a cancel or a stop interrupts only those who are parked. */
LOCK_UNCHECKED static int look_before(struct store *store, const struct wait_kind *kind)
{
    int r = task_interruption(task_self(), kind->takes_work);

    if (r < 0) store_unlock(store);
    return r;
}

int store_wait_job(struct store *store, struct lease_wait *wait)
{
    int r = look_before(store, &wait_for_job);
    struct queue_waits *waits = r == 0 ? waits_get(store, wait->claim->queue) : NULL;
    struct task *self = task_self();

    if (r < 0) return r;
    if (!waits) {
        store_unlock(store);
        return -ENOMEM;
    }
    wait->waiter = (struct waiter){.task = self, .object = &store->object};
    list_add_tail(&waits->leasers, &wait->waiter.node);
    store->leaser_count++;
    store_unlock(store);
    return task_park(self, &wait_for_job, wait);
}

/* ---- Serving ---- */

int store_claim(struct store *store, struct lease_wait *wait)
{
    struct engine_claimed claimed[ENGINE_CLAIM_MAX] WEIR_UNINITIALIZED_;
    struct claimed_job *jobs = wait->jobs + wait->count;
    struct engine_claim_spec claim = *wait->claim;
    int count;

    claim.count -= (uint32_t)wait->count;
    if (claim.count > ENGINE_CLAIM_MAX) claim.count = ENGINE_CLAIM_MAX;
    count = engine_claim(store->engine, store_now_ms(store), &claim, claimed);
    if (count < 0) return count;
    for (int i = 0; i < count; i++) {
        size_t bytes = claimed[i].kind.count;

        jobs[i].job = claimed[i];
        memcpy(jobs[i].kind, claimed[i].kind.at, bytes);
        jobs[i].kind[bytes] = '\0';
    }
    wait->count += count;
    return count;
}

static bool same_kinds(const struct engine_claim_spec *a, const struct engine_claim_spec *b)
{
    if (a->kind_count != b->kind_count) return false;
    if (a->kinds == b->kinds) return true;
    for (uint32_t i = 0; i < a->kind_count; i++) {
        const struct engine_kind *one = &a->kinds[i], *two = &b->kinds[i];

        if (one->version_min != two->version_min || one->version_max != two->version_max ||
            !is_same(one->name, two->name.at, two->name.count))
            return false;
    }
    return true;
}

/* Those who know the same get the same: nothing. */
enum { FRUITLESS_MAX = 8 };
struct fruitless {
    const struct engine_claim_spec *claims[FRUITLESS_MAX];
    unsigned count;
};

static bool is_fruitless(const struct fruitless *fruitless, const struct engine_claim_spec *claim)
{
    for (unsigned i = 0; i < fruitless->count; i++)
        if (same_kinds(fruitless->claims[i], claim)) return true;
    return false;
}

static void append_claim(struct store *store)
{
    const void *bytes;
    size_t count;

    engine_record(store->engine, &bytes, &count);
    if (count > 0) store_append(store, LOG_FOR_EXISTING, STORE_TAG_ENGINE, bytes, count);
}

/* False: the log has no room for a lease. */
static bool serve_queue(struct store *store, struct queue_waits *waits)
{
    struct fruitless fruitless = {.count = 0};
    struct list *node = waits->leasers.next;
    bool room = true;

    while (node != &waits->leasers) {
        struct lease_wait *wait = container_of(node, struct lease_wait, waiter.node);
        struct engine_slice queue = {waits->name, waits->name_bytes};
        int r;

        node = node->next;
        if (engine_ready(store->engine, queue) == 0) break;
        if (is_fruitless(&fruitless, wait->claim)) continue;
        room = log_room_now(store->log, ENGINE_COMMAND_BYTES_MAX, LOG_FOR_EXISTING) == 0;
        if (!room) break;
        r = store_claim(store, wait);
        append_claim(store);
        if (r == 0) {
            if (fruitless.count < FRUITLESS_MAX) fruitless.claims[fruitless.count++] = wait->claim;
            continue;
        }
        if (r < 0) (void)store_refuse(store, r);
        wait->seen = PLANTED(STORE_SERVED_UNGATED) ? 0 : store->end;
        list_remove(&wait->waiter.node);
        store->leaser_count--;
        sanitize_release(wait);
        task_wake(wait->waiter.task, r < 0 ? r : 0);
    }
    waits_tidy(waits);
    return room;
}

/* Each first who waits for room in a queue that has some. */
static void serve_rooms(struct store *store)
{
    struct list *node = store->full.next;

    while (node != &store->full) {
        struct queue_waits *waits = container_of(node, struct queue_waits, full);
        struct engine_slice queue = {waits->name, waits->name_bytes};
        struct waiter *waiter;

        node = node->next;
        if (!engine_has_room(store->engine, queue)) continue;
        waiter = waiter_pop(&waits->rooms);
        store->room_count--;
        waiter_wake(waiter, 0);
        waits_tidy(waits);
    }
}

void store_serve(struct store *store)
{
    struct engine_slice queue;

    while (engine_next_wake(store->engine, &queue)) {
        struct queue_waits *waits = store->leaser_count > 0 ? waits_find(store, queue) : NULL;

        if (waits && !serve_queue(store, waits)) {
            store->serve_again = true;
            store_ring(store);
        }
    }
    if (store->room_count > 0 && !PLANTED(STORE_ROOM_UNTOLD)) serve_rooms(store);
}

void store_pass_room(struct store *store)
{
    store_lock(store);
    if (store->room_count > 0) serve_rooms(store);
    store_unlock(store);
}

void store_serve_all(struct store *store)
{
    store->serve_again = false;
    for (unsigned i = 0; i < STORE_BUCKETS; i++) {
        struct list *node = store->tables->waits[i].next;

        while (node != &store->tables->waits[i]) {
            struct queue_waits *waits = container_of(node, struct queue_waits, node);

            node = node->next;
            if (!serve_queue(store, waits)) store->serve_again = true;
        }
    }
    /* A claim that puts jobs aside lets others go on, in other queues too. */
    store_serve(store);
}

/* ---- Waiting for room ---- */

struct room_wait {
    struct waiter waiter; /* the first member */
    struct engine_slice queue;
};

static bool room_abort(struct task *task, void *object)
{
    struct room_wait *wait = object;
    struct store *store = container_of(wait->waiter.object, struct store, object);
    bool leaves;

    (void)task;
    store_lock(store);
    leaves = !list_empty(&wait->waiter.node);
    if (leaves) {
        list_remove(&wait->waiter.node);
        store->room_count--;
        waits_tidy(waits_find(store, wait->queue));
    }
    store_unlock(store);
    return leaves;
}

static void room_describe(const void *object, char *text, size_t bytes)
{
    const struct room_wait *wait = object;

    (void)snprintf(text, bytes, "store '%s', room in queue '%.*s'", wait->waiter.object->name,
                   (int)wait->queue.count, (const char *)wait->queue.at);
}

static const struct wait_kind wait_for_room = {
    .name = "room in a queue",
    .abort = room_abort,
    .describe = room_describe,
    .what = WAIT_FOR_ROOM,
    .ends = ENDS_OUTSIDE,
};

bool store_room_is_awaited(struct store *store, struct engine_slice queue)
{
    const struct queue_waits *waits = store->room_count > 0 ? waits_find(store, queue) : NULL;

    return waits && !list_empty(&waits->rooms);
}

int store_wait_room(struct store *store, struct engine_slice queue, bool first)
{
    int r = look_before(store, &wait_for_room);
    struct queue_waits *waits = r == 0 ? waits_get(store, queue) : NULL;
    struct task *self = task_self();
    struct room_wait wait = {.waiter = {.task = self, .object = &store->object}, .queue = queue};

    if (r < 0) return r;
    if (!waits) {
        store_unlock(store);
        return -ENOMEM;
    }
    if (first)
        list_add_head(&waits->rooms, &wait.waiter.node);
    else
        list_add_tail(&waits->rooms, &wait.waiter.node);
    if (list_empty(&waits->full)) list_add_tail(&store->full, &waits->full);
    store->room_count++;
    store_unlock(store);
    return task_park(self, &wait_for_room, &wait);
}

/* ---- Waiting for an end ---- */

struct end_wait {
    struct waiter waiter; /* the first member */
    uint64_t id;
};

static bool end_abort(struct task *task, void *object)
{
    struct end_wait *wait = object;
    struct store *store = container_of(wait->waiter.object, struct store, object);
    bool leaves;

    (void)task;
    store_lock(store);
    leaves = !list_empty(&wait->waiter.node);
    if (leaves) {
        list_remove(&wait->waiter.node);
        store->ender_count--;
    }
    store_unlock(store);
    return leaves;
}

static void end_describe(const void *object, char *text, size_t bytes)
{
    const struct end_wait *wait = object;

    (void)snprintf(text, bytes, "store '%s', end of job %llu", wait->waiter.object->name,
                   (unsigned long long)wait->id);
}

static const struct wait_kind wait_for_end = {
    .name = "end of a job",
    .abort = end_abort,
    .describe = end_describe,
    .what = WAIT_FOR_ANSWER,
    .ends = ENDS_OUTSIDE,
};

static const struct wait_kind wait_for_end_or_stop = {
    .name = "end of a job",
    .takes_work = true,
    .abort = end_abort,
    .describe = end_describe,
    .what = WAIT_FOR_ANSWER,
    .ends = ENDS_OUTSIDE,
};

int store_wait_end(struct store *store, uint64_t id, bool until_stop)
{
    const struct wait_kind *kind = until_stop ? &wait_for_end_or_stop : &wait_for_end;
    struct task *self = task_self();
    struct end_wait wait = {.waiter = {.task = self, .object = &store->object}, .id = id};
    int r = look_before(store, kind);

    if (r < 0) return r;
    list_add_tail(&store->tables->enders[id % STORE_BUCKETS], &wait.waiter.node);
    store->ender_count++;
    store_unlock(store);
    return task_park(self, kind, &wait);
}

void store_job_ended(void *arg, uint64_t id, enum engine_state state)
{
    struct store *store = arg;
    struct list *bucket = &store->tables->enders[id % STORE_BUCKETS];
    struct list *node = bucket->next;

    (void)state; /* who waits looks itself: it may be a job again by then */
    if (store->ender_count == 0) return;
    while (node != bucket) {
        struct end_wait *wait = container_of(node, struct end_wait, waiter.node);

        node = node->next;
        if (wait->id != id) continue;
        list_remove(&wait->waiter.node);
        store->ender_count--;
        waiter_wake(&wait->waiter, 0);
    }
}

/* ---- The end of all waiting ---- */

static void wake_list(struct list *list, size_t *count, int result)
{
    struct list *node;

    while ((node = list_pop(list))) {
        (*count)--;
        task_wake(container_of(node, struct waiter, node)->task, result);
    }
}

void store_wake_all(struct store *store, int result)
{
    for (unsigned i = 0; i < STORE_BUCKETS; i++) {
        struct list *node;

        while ((node = list_first(&store->tables->waits[i]))) {
            struct queue_waits *waits = container_of(node, struct queue_waits, node);

            wake_list(&waits->leasers, &store->leaser_count, result);
            wake_list(&waits->rooms, &store->room_count, result);
            waits_tidy(waits);
        }
        wake_list(&store->tables->enders[i], &store->ender_count, result);
    }
}

/* ---- Orders ---- */

static struct worker_orders *orders_find(struct store *store, struct engine_slice worker)
{
    list_for_each(node, &store->tables->orders[bucket_of(worker.at, worker.count)]) {
        struct worker_orders *orders = container_of(node, struct worker_orders, node);
        if (is_same(worker, orders->name, orders->name_bytes)) return orders;
    }
    return NULL;
}

unsigned store_orders_of(struct store *store, struct engine_slice worker)
{
    const struct worker_orders *orders;

    if (store->order_count == 0 || worker.count == 0) return 0;
    orders = orders_find(store, worker);
    return orders ? orders->orders : 0;
}

/* Who waits for a job and is to take on none is told. */
static void send_home(struct store *store, struct engine_slice worker)
{
    for (unsigned i = 0; i < STORE_BUCKETS; i++) {
        struct list *at = store->tables->waits[i].next;

        while (at != &store->tables->waits[i]) {
            struct queue_waits *waits = container_of(at, struct queue_waits, node);
            struct list *node = waits->leasers.next;

            at = at->next;
            while (node != &waits->leasers) {
                struct lease_wait *wait = container_of(node, struct lease_wait, waiter.node);

                node = node->next;
                if (!is_same(worker, wait->worker, wait->worker_bytes)) continue;
                list_remove(&wait->waiter.node);
                store->leaser_count--;
                task_wake(wait->waiter.task, WEIR_ESTOPPING);
            }
            waits_tidy(waits);
        }
    }
}

int store_order(struct store *store, struct engine_slice worker, unsigned orders)
{
    struct worker_orders *found = orders_find(store, worker);

    if (!found && orders == 0) return 0;
    if (!found && store->order_count == STORE_ORDERS_MAX)
        return refuse_as(WEIR_EOVERLOAD, "store '%s': %d workers have orders already",
                         store->object.name, STORE_ORDERS_MAX);
    if (!found) {
        found = mem_alloc(sizeof *found + worker.count);
        if (!found) return -ENOMEM;
        found->name_bytes = worker.count;
        memcpy(found->name, worker.at, worker.count);
        list_add_tail(&store->tables->orders[bucket_of(worker.at, worker.count)], &found->node);
        store->order_count++;
    }
    found->orders = orders;
    if (orders == 0) {
        list_remove(&found->node);
        store->order_count--;
        mem_free(found);
        return 0;
    }
    send_home(store, worker);
    return 0;
}
