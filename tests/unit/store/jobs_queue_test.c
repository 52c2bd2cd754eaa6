/* jobs_queue_test.c - queues: depth and what happens beyond it, pause, drain, limits, priority. */
#include "store/bounded.h"
#include "unit/store/jobs_test.h"

static void set_queue(weir_store *store, weir_queue_spec spec)
{
    if (spec.depth_max == 0) spec.depth_max = 1000;
    if (spec.overflow == 0) spec.overflow = WEIR_REJECT;
    CHECK_OK(weir_queue_set(store, &spec));
}

JOBS_TEST(a_full_queue_rejects_and_counts_it)
{
    weir_store *store = stand->store;

    set_queue(store, (weir_queue_spec){.name = "q", .depth_max = 2});
    (void)jobs_enqueue(store, "q");
    (void)jobs_enqueue(store, "q");
    CHECK_INT(jobs_try(store, "q", (weir_job_spec){0}), ==, WEIR_EOVERLOAD);
    CHECK_CONTAINS(weir_why(), "queue 'q': 2 jobs wait, its depth_max");
    CHECK_INT(jobs_queue(store, "q").rejected, ==, 1);
    CHECK_INT(jobs_queue(store, "q").enqueued, ==, 2);
    /* What runs does not wait: there is room again. */
    CHECK(jobs_lease(store, "q", NULL) != 0);
    (void)jobs_enqueue(store, "q");
    CHECK_INT(jobs_try(store, "q", (weir_job_spec){0}), ==, WEIR_EOVERLOAD);
}

/* What nobody has said of a queue is the store's, also when something else is said of it. */
STORE_TEST(a_queue_that_is_changed_before_it_is_there_has_the_stores_bounds)
{
    const unsigned all = QUEUE_KEEPS_PAUSED | QUEUE_KEEPS_DRAINING | QUEUE_KEEPS_DEPTH |
                         QUEUE_KEEPS_OVERFLOW | QUEUE_KEEPS_CONCURRENCY | QUEUE_KEEPS_RATE_COUNT |
                         QUEUE_KEEPS_RATE_PERIOD | QUEUE_KEEPS_RATE_BURST | QUEUE_KEEPS_LATENCY;
    weir_queue_figures figures;
    weir_store *store;

    stand->spec.queue_overflow = WEIR_WAIT;
    stand->spec.queue_depth_max = 17;
    store = store_stand_open(stand);
    CHECK_OK(queue_set_keeping(store, &(weir_queue_spec){.name = "new", .concurrency = 3},
                               all & ~(unsigned)QUEUE_KEEPS_CONCURRENCY));
    CHECK_OK(weir_queue_get(store, "new", &figures));
    CHECK_INT(figures.spec.overflow, ==, WEIR_WAIT);
    CHECK_INT(figures.spec.depth_max, ==, 17);
    CHECK_INT(figures.spec.concurrency, ==, 3);
    CHECK_OK(weir_store_close(store));
}

struct producer {
    weir_store *store;
    int number;
    ATOM(int) * order;
    ATOM(int) * order_count;
};

static int produce(void *arg)
{
    struct producer *producer = arg;
    int64_t r = jobs_try(producer->store, "q", (weir_job_spec){.tags = "waited"});

    if (r < 0) return (int)r;
    atom_store(&producer->order[atom_load(producer->order_count)], producer->number);
    (void)atom_add(producer->order_count, 1);
    return 0;
}

static uint64_t waiting_for_room(weir_store *store)
{
    weir_store_figures figures;

    weir_store_figures_of(store, &figures);
    return figures.waiting_room;
}

JOBS_TEST(a_full_queue_that_waits_lets_producers_in_by_turns)
{
    weir_store *store = stand->store;
    ATOM(int) order[3], order_count = 0;
    int closed, r = 0;

    set_queue(store, (weir_queue_spec){.name = "q", .depth_max = 1, .overflow = WEIR_WAIT});
    (void)jobs_enqueue(store, "q");
    WEIR_SCOPE(inner, &closed, .name = "producers", .on_failure = WEIR_FAIL_FAST, .max_tasks = 8,
               .overflow = WEIR_REJECT) {
        for (int i = 0; i < 3; i++) {
            struct producer producer = {store, i, order, &order_count};

            CHECK_OK(weir_spawn(inner, produce, &producer, sizeof producer));
            JOBS_UNTIL(waiting_for_room(store) == (uint64_t)i + 1);
        }
        for (int i = 0; i < 3; i++) {
            CHECK_INT(atom_load(&order_count), ==, i);
            CHECK(jobs_work(store, "q") != 0);
            JOBS_UNTIL(atom_load(&order_count) == i + 1);
        }
        r = weir_scope_join(inner);
    }
    CHECK_OK(r);
    CHECK_OK(closed);
    for (int i = 0; i < 3; i++) CHECK_INT(atom_load(&order[i]), ==, i);
    CHECK_INT(waiting_for_room(store), ==, 0);
    CHECK_INT(jobs_queue(store, "q").by_state[WEIR_JOB_READY], ==, 1);
}

JOBS_TEST(a_producer_that_is_cancelled_while_it_waits_for_room_has_enqueued_nothing)
{
    weir_store *store = stand->store;
    ATOM(int) order[1], order_count = 0;
    int closed;

    set_queue(store, (weir_queue_spec){.name = "q", .depth_max = 1, .overflow = WEIR_WAIT});
    (void)jobs_enqueue(store, "q");
    WEIR_SCOPE(inner, &closed, .name = "producers", .on_failure = WEIR_COLLECT, .max_tasks = 8,
               .overflow = WEIR_REJECT) {
        struct producer producer = {store, 0, order, &order_count};

        CHECK_OK(weir_spawn(inner, produce, &producer, sizeof producer));
        JOBS_UNTIL(waiting_for_room(store) == 1);
        weir_scope_cancel(inner, WEIR_ECANCELED, "the test");
        JOBS_UNTIL(waiting_for_room(store) == 0);
    }
    CHECK_INT(atom_load(&order_count), ==, 0);
    CHECK_INT(jobs_queue(store, "q").enqueued, ==, 1);
    CHECK(jobs_work(store, "q") != 0);
    CHECK_INT(jobs_work(store, "q"), ==, 0);
}

static int produce_once(void *arg)
{
    return (int)jobs_try(*(weir_store **)arg, "q", (weir_job_spec){0});
}

/* Between its being woken and its running: the room goes to another, and it is cancelled. */
JOBS_TEST(a_producer_that_is_cancelled_before_it_waits_again_does_not_wait)
{
    weir_store *store = stand->store;
    weir_lease_spec lease = {.queue = "q",
                             .worker = "w",
                             .count = 1,
                             .lease_ms = 60000,
                             .at_once = true,
                             .durability = WEIR_MEMORY};
    weir_job_spec other = stand_job("q", "x");
    weir_enqueued enqueued;
    weir_job job;
    int closed;

    other.durability = WEIR_MEMORY;
    set_queue(store, (weir_queue_spec){.name = "q", .depth_max = 1, .overflow = WEIR_WAIT});
    (void)jobs_enqueue(store, "q");
    WEIR_SCOPE(inner, &closed, .name = "producers", .on_failure = WEIR_COLLECT, .max_tasks = 8,
               .overflow = WEIR_REJECT) {
        CHECK_OK(weir_spawn(inner, produce_once, &store, sizeof store));
        JOBS_UNTIL(waiting_for_room(store) == 1);
        CHECK_INT(weir_job_lease(store, &lease, &job), ==, 1);
        CHECK_OK(weir_job_enqueue_all(store, &other, 1, &enqueued)); /* nothing ran meanwhile */
        weir_scope_cancel(inner, 0, "the test");
    } /* which waits for it */
    weir_job_free(&job);
    CHECK_INT(jobs_queue(store, "q").enqueued, ==, 2);
}

JOBS_TEST(a_producer_that_does_not_wait_for_room_is_told_that_there_is_none)
{
    weir_job_spec spec = stand_job("q", "x");
    weir_enqueued enqueued;

    set_queue(stand->store, (weir_queue_spec){.name = "q", .depth_max = 1, .overflow = WEIR_WAIT});
    CHECK_OK(job_enqueue_within(stand->store, &spec, -1, &enqueued));
    CHECK_INT(job_enqueue_within(stand->store, &spec, -1, &enqueued), ==, -EAGAIN);
    CHECK_INT(waiting_for_room(stand->store), ==, 0);
    CHECK_INT(jobs_queue(stand->store, "q").enqueued, ==, 1);
    CHECK(jobs_work(stand->store, "q") != 0);
    CHECK_OK(job_enqueue_within(stand->store, &spec, -1, &enqueued));
    /* In one that rejects nobody waits, so that is not what is said. */
    set_queue(stand->store,
              (weir_queue_spec){.name = "q", .depth_max = 1, .overflow = WEIR_REJECT});
    CHECK_INT(job_enqueue_within(stand->store, &spec, -1, &enqueued), ==, WEIR_EOVERLOAD);
    CHECK_CONTAINS(weir_why(), "its depth_max");
    CHECK_INT(jobs_queue(stand->store, "q").rejected, ==, 1);
}

JOBS_TEST(many_jobs_do_not_wait_for_room)
{
    weir_job_spec specs[3];
    weir_enqueued enqueued[3];

    set_queue(stand->store, (weir_queue_spec){.name = "q", .depth_max = 2, .overflow = WEIR_WAIT});
    for (int i = 0; i < 3; i++) specs[i] = stand_job("q", "x");
    CHECK_INT(weir_job_enqueue_all(stand->store, specs, 3, enqueued), ==, WEIR_EOVERLOAD);
    CHECK_INT(jobs_queue(stand->store, "q").by_state[WEIR_JOB_READY], ==, 0);
    CHECK_OK(weir_job_enqueue_all(stand->store, specs, 2, enqueued));
}

JOBS_TEST(a_paused_queue_takes_jobs_and_gives_none_until_it_is_resumed)
{
    uint64_t id;

    CHECK_INT(weir_queue_pause(stand->store, "q"), ==, -ENOENT);
    id = jobs_enqueue(stand->store, "q");
    CHECK_OK(weir_queue_pause(stand->store, "q"));
    (void)jobs_enqueue(stand->store, "q");
    CHECK_INT(jobs_lease(stand->store, "q", NULL), ==, 0);
    jobs_reopen(stand);
    CHECK(jobs_queue(stand->store, "q").spec.paused);
    CHECK_INT(jobs_lease(stand->store, "q", NULL), ==, 0);
    CHECK_OK(weir_queue_resume(stand->store, "q"));
    CHECK_INT(jobs_work(stand->store, "q"), ==, id);
}

/* Who changes something else does not have to know, nor to undo what others do meanwhile. */
JOBS_TEST(a_queue_that_is_set_stays_paused_and_drained_unless_that_is_said)
{
    weir_queue_spec spec = {.name = "q", .depth_max = 7, .overflow = WEIR_REJECT};
    const unsigned both = QUEUE_KEEPS_PAUSED | QUEUE_KEEPS_DRAINING;

    spec.paused = spec.draining = true;
    CHECK_OK(queue_set_keeping(stand->store, &spec, both));
    CHECK(!jobs_queue(stand->store, "q").spec.paused);
    CHECK(!jobs_queue(stand->store, "q").spec.draining);
    CHECK_OK(weir_queue_pause(stand->store, "q"));
    CHECK_OK(weir_queue_drain(stand->store, "q"));
    spec.paused = spec.draining = false;
    spec.depth_max = 9;
    CHECK_OK(queue_set_keeping(stand->store, &spec, both));
    CHECK_INT(jobs_queue(stand->store, "q").spec.depth_max, ==, 9);
    CHECK(jobs_queue(stand->store, "q").spec.paused);
    CHECK_OK(queue_set_keeping(stand->store, &spec, QUEUE_KEEPS_DRAINING));
    CHECK(!jobs_queue(stand->store, "q").spec.paused);
    CHECK(jobs_queue(stand->store, "q").spec.draining);
    CHECK_OK(weir_queue_set(stand->store, &spec));
    CHECK(!jobs_queue(stand->store, "q").spec.draining);
}

struct leaser {
    weir_store *store;
    uint64_t *id;
};

static int lease_one(void *arg)
{
    struct leaser *leaser = arg;
    weir_job job;
    int r = weir_job_lease(
        leaser->store,
        &(weir_lease_spec){.queue = "q", .worker = "w", .count = 1, .lease_ms = 60000}, &job);

    if (r < 0) return r;
    *leaser->id = job.id;
    weir_job_free(&job);
    return 0;
}

static uint64_t waiting(weir_store *store)
{
    weir_store_figures figures;

    weir_store_figures_of(store, &figures);
    return figures.waiting;
}

JOBS_TEST(a_resumed_queue_serves_who_waits)
{
    weir_store *store = stand->store;
    uint64_t id = jobs_enqueue(store, "q"), leased = 0;
    struct leaser leaser = {store, &leased};
    int closed;

    CHECK_OK(weir_queue_pause(store, "q"));
    WEIR_SCOPE(inner, &closed, .name = "leasers", .on_failure = WEIR_FAIL_FAST, .max_tasks = 8,
               .overflow = WEIR_REJECT) {
        CHECK_OK(weir_spawn(inner, lease_one, &leaser, sizeof leaser));
        JOBS_UNTIL(waiting(store) == 1);
        CHECK_OK(weir_queue_resume(store, "q"));
    }
    CHECK_OK(closed);
    CHECK_INT(leased, ==, id);
}

JOBS_TEST(a_lease_whose_deadline_passes_has_taken_nothing)
{
    weir_store *store = stand->store;
    uint64_t id, leased = 0;
    struct leaser leaser = {store, &leased};
    int r = 0;

    WEIR_DEADLINE(100) {
        jobs_pass_ms(150);
        r = lease_one(&leaser);
    }
    CHECK_INT(r, ==, WEIR_ETIMEDOUT);
    CHECK_INT(waiting(store), ==, 0);
    id = jobs_enqueue(store, "q");
    CHECK_INT(jobs_work(store, "q"), ==, id);
}

JOBS_TEST(a_drained_queue_takes_nothing_and_is_worked_off)
{
    weir_store *store = stand->store;
    weir_renewed renewed;
    uint64_t first = jobs_enqueue(store, "q"), token;

    (void)jobs_enqueue(store, "q");
    CHECK_INT(jobs_lease(store, "q", &token), ==, first);
    CHECK_OK(weir_queue_drain(store, "q"));
    CHECK_INT(jobs_try(store, "q", (weir_job_spec){0}), ==, WEIR_ESTOPPING);
    CHECK_CONTAINS(weir_why(), "queue 'q': is draining");
    CHECK_OK(weir_job_renew(store, first, token, "w", 60000, &renewed));
    CHECK_INT(renewed.orders, ==, WEIR_GO_ON);
    CHECK(jobs_work(store, "q") != 0);
    CHECK_OK(weir_queue_resume(store, "q"));
    (void)jobs_enqueue(store, "q");
    CHECK_OK(weir_job_renew(store, first, token, "w", 60000, &renewed));
    CHECK_INT(renewed.orders, ==, WEIR_GO_ON);
}

JOBS_TEST(a_queue_runs_no_more_at_once_than_its_concurrency)
{
    weir_store *store = stand->store;
    uint64_t token, id;

    set_queue(store, (weir_queue_spec){.name = "q", .concurrency = 2});
    for (int i = 0; i < 4; i++) (void)jobs_enqueue(store, "q");
    id = jobs_lease(store, "q", &token);
    CHECK(jobs_lease(store, "q", NULL) != 0);
    CHECK_INT(jobs_lease(store, "q", NULL), ==, 0);
    CHECK_OK(weir_job_ack(store, id, token, NULL, 0));
    CHECK(jobs_lease(store, "q", NULL) != 0);
    CHECK_INT(jobs_lease(store, "q", NULL), ==, 0);
}

JOBS_TEST(a_queue_begins_jobs_at_its_rate)
{
    weir_store *store = stand->store;

    set_queue(store,
              (weir_queue_spec){.name = "q", .rate = {.count = 2, .period_ms = 1000, .burst = 2}});
    for (int i = 0; i < 6; i++) (void)jobs_enqueue(store, "q");
    CHECK(jobs_work(store, "q") != 0);
    CHECK(jobs_work(store, "q") != 0);
    CHECK_INT(jobs_work(store, "q"), ==, 0);
    jobs_pass_ms(499);
    CHECK_INT(jobs_work(store, "q"), ==, 0);
    jobs_pass_ms(1);
    JOBS_UNTIL(jobs_work(store, "q") != 0);
    CHECK_INT(jobs_work(store, "q"), ==, 0);
    jobs_pass_ms(10000); /* no more than a burst is saved up */
    JOBS_UNTIL(jobs_work(store, "q") != 0);
    CHECK(jobs_work(store, "q") != 0);
    CHECK_INT(jobs_work(store, "q"), ==, 0);
}

JOBS_TEST(higher_priority_is_sooner_and_equals_come_in_order)
{
    weir_store *store = stand->store;
    uint64_t low = jobs_enqueue(store, "q", .priority = 1);
    uint64_t first = jobs_enqueue(store, "q", .priority = 9);
    uint64_t second = jobs_enqueue(store, "q", .priority = 9);
    uint64_t top = jobs_enqueue(store, "q", .priority = WEIR_JOB_PRIORITY_MAX);

    CHECK_INT(jobs_try(store, "q", (weir_job_spec){.priority = WEIR_JOB_PRIORITY_MAX + 1}), ==,
              -EINVAL);
    CHECK_CONTAINS(weir_why(), "priority is 32");
    CHECK_INT(jobs_work(store, "q"), ==, top);
    CHECK_INT(jobs_work(store, "q"), ==, first);
    CHECK_INT(jobs_work(store, "q"), ==, second);
    CHECK_INT(jobs_work(store, "q"), ==, low);
}

JOBS_TEST(queues_are_listed_with_their_settings_and_figures)
{
    weir_store *store = stand->store;
    weir_queue_figures figures;
    uint32_t cursor = 0;
    int queues = 0;

    set_queue(store, (weir_queue_spec){.name = "a", .depth_max = 7, .latency_target_ms = 250});
    (void)jobs_enqueue(store, "b");
    (void)jobs_enqueue(store, "b", .delay_ms = 1000);
    jobs_pass_ms(400);
    while (weir_queue_next(store, &cursor, &figures) == 1) {
        queues++;
        if (strcmp(figures.name, "a") == 0) {
            CHECK_INT(figures.spec.depth_max, ==, 7);
            CHECK_INT(figures.spec.latency_target_ms, ==, 250);
            CHECK_INT(figures.oldest_ms, ==, 0);
        } else {
            CHECK_STR(figures.name, "b");
            CHECK_STR(figures.spec.name, "b");
            CHECK_INT(figures.by_state[WEIR_JOB_READY], ==, 1);
            CHECK_INT(figures.by_state[WEIR_JOB_SCHEDULED], ==, 1);
            CHECK_INT(figures.oldest_ms, ==, 400);
            CHECK_INT(figures.enqueued, ==, 2);
        }
    }
    CHECK_INT(queues, ==, 2);
    CHECK_INT(weir_queue_get(store, "c", &figures), ==, -ENOENT);
    CHECK_CONTAINS(weir_why(), "there is no queue 'c'");
}

JOBS_TEST(a_queue_that_says_too_little_is_refused)
{
    weir_store *store = stand->store;
    char name[WEIR_JOB_NAME_BYTES_MAX + 2];

    CHECK_INT(weir_queue_set(store, &(weir_queue_spec){.name = "q", .overflow = WEIR_WAIT}), ==,
              WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "depth_max is not set");
    CHECK_INT(weir_queue_set(store, &(weir_queue_spec){.name = "q", .depth_max = 1}), ==,
              WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "overflow must be WEIR_REJECT or WEIR_WAIT");
    CHECK_INT(weir_queue_set(store, &(weir_queue_spec){.depth_max = 1, .overflow = WEIR_WAIT}), ==,
              WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "name is not set");
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    CHECK_INT(weir_queue_pause(store, name), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "more than 200 bytes");
    CHECK_INT(weir_queue_set(store, &(weir_queue_spec){.name = "q",
                                                       .depth_max = 1,
                                                       .overflow = WEIR_WAIT,
                                                       .rate = {.count = 1}}),
              ==, -EINVAL);
    CHECK_CONTAINS(weir_why(), "queue 'q': rate is out of range");
}
