/* flow_outrun.c - producers that outrun an actor, and a slow subscriber of a broadcast: what waits
 * stays at its bound, memory stays flat, and everything is accounted for.
 *
 * Channels are in flow_bound.c, pipelines in unit/flow/stage_test.c.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "unit/flow/flow_test.h"

enum { PRODUCERS = 8, BOUND = 16 };

/* What this process has in memory. Sanitizers keep what was freed, so they are not asked. */
static long resident_kib(void)
{
    long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    CHECK(file != NULL);
    CHECK_INT(fscanf(file, "%ld %ld", &size, &resident), ==, 2);
    CHECK_INT(fclose(file), ==, 0);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static ATOM(int) begun; /* producers */
static ATOM(bool) over;

static void watch_memory(int64_t ms, size_t *most, long *resident_most)
{
    for (int i = 0; i < 15; i++) {
        CHECK_OK(weir_sleep(ms / 20));
        if (test_live_bytes() > *most) *most = test_live_bytes();
        if (resident_kib() > *resident_most) *resident_most = resident_kib();
    }
}

/* Let `fn(shared)` run in many tasks until it is full (by then stacks and caches have been
 * made), then for that long, and look at memory meanwhile. */
static void outrun(weir_task_fn fn, void *shared, bool (*is_full)(void *), int64_t ms)
{
    size_t before = 0, most = 0;
    long resident = 0, resident_most = 0;
    int result;

    atom_store(&begun, 0);
    atom_store(&over, false);
    FLOW_SCOPE_ANYWHERE(producers, &result)
    {
        for (int i = 0; i < PRODUCERS; i++) {
            CHECK_OK(weir_spawn(producers, fn, &shared, sizeof shared));
        }
        do {
            CHECK_OK(weir_sleep(ms / 4));
        } while (atom_load(&begun) < PRODUCERS || !is_full(shared));
        before = test_live_bytes();
        /* An emulator keeps what it has translated: by then it has seen everything once. */
        if (test_emulated()) watch_memory(ms, &most, &resident_most);
        resident_most = 0;
        resident = resident_kib();
        watch_memory(ms, &most, &resident_most);
        atom_store(&over, true);
    }
    CHECK_OK(result);
    CHECK_INT(most, <=, before + FLOW_TEST_FIGURES_BYTES(1));
    if (!TEST_SLOW) CHECK_INT(resident_most, <=, resident + 1024);
}

/* ---- Actor ---- */

struct mail {
    weir_actor *actor;
    ATOM(long) accepted, rejected, undelivered;
    long handled;
};

static int handle_slowly(void *state, const void *message, void *reply, void *keep_arg)
{
    struct mail *mail = keep_arg;
    (void)state, (void)message, (void)reply;
    mail->handled++;
    return weir_yield();
}

static void count_undelivered(void *message, int why, void *keep_arg)
{
    struct mail *mail = keep_arg;
    (void)message;
    CHECK(why == WEIR_EOVERLOAD || why == WEIR_ECLOSED);
    (void)atom_add(&mail->undelivered, 1);
}

static int cast_on(void *arg)
{
    struct mail *mail = *(struct mail **)arg;
    int message = 1, r = 0;

    (void)atom_add(&begun, 1);
    while (r == 0 && !atom_load(&over)) {
        r = weir_actor_cast(mail->actor, &message);
        if (r == WEIR_EOVERLOAD) {
            (void)atom_add(&mail->rejected, 1);
            r = weir_yield();
        } else if (r == 0) {
            (void)atom_add(&mail->accepted, 1);
        }
    }
    return r;
}

static bool actor_is_full(void *arg)
{
    const struct mail *mail = arg;
    weir_actor_figures figures;

    weir_actor_figures_of(mail->actor, &figures);
    return figures.depth_max == BOUND;
}

static void outrun_actor(enum weir_overflow overflow, int64_t ms)
{
    struct mail mail = {.handled = 0};
    weir_actor_figures figures;
    int result;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_actor_open(scope,
                                 &(weir_actor_spec){.name = "slow",
                                                    .mailbox_max = BOUND,
                                                    .overflow = overflow,
                                                    .on_restart = WEIR_RESTART_NEVER,
                                                    .on_message = handle_slowly,
                                                    .message_bytes = sizeof(int),
                                                    .on_undelivered = count_undelivered,
                                                    .keep_arg = &mail},
                                 &mail.actor));
        outrun(cast_on, &mail, actor_is_full, ms);
        weir_actor_figures_of(mail.actor, &figures);
        CHECK_INT(figures.depth_max, ==, BOUND);
        CHECK_INT(figures.depth, <=, BOUND);
        weir_actor_stop(mail.actor, WEIR_DRAIN);
        CHECK_OK(weir_actor_wait(mail.actor));
        weir_actor_figures_of(mail.actor, &figures);
        CHECK_INT(figures.accepted, ==, mail.handled + mail.undelivered);
        CHECK_INT(figures.accepted, ==, mail.accepted);
        CHECK_INT(mail.handled, >, 0);
    }
    CHECK_OK(result);
}

/* ---- Broadcast: one subscriber is told what it missed, for the other one publishers wait ---- */

struct news {
    weir_broadcast *broadcast;
    weir_subscriber *subscribers[2];
    ATOM(long) published, missed;
    long seen[2];
    ATOM(int) next;
};

static int publish_on(void *arg)
{
    struct news *news = *(struct news **)arg;
    int value = 1, r = 0;

    (void)atom_add(&begun, 1);
    while (r == 0 && !atom_load(&over)) {
        r = weir_broadcast_publish(news->broadcast, &value);
        if (r == 0) (void)atom_add(&news->published, 1);
    }
    return r;
}

static int read_slowly(void *arg)
{
    struct news *news = *(struct news **)arg;
    int me = atom_add(&news->next, 1), value, r;

    while ((r = weir_subscriber_next(news->subscribers[me], &value)) >= 0) {
        news->seen[me]++;
        if (me == 0) (void)atom_add(&news->missed, r);
        for (int i = 0; i <= 2 * !me && r >= 0; i++) r = weir_yield();
        if (r < 0) return r;
    }
    return r == WEIR_ECLOSED ? 0 : r;
}

static bool news_are_missed(void *arg)
{
    struct news *news = arg;
    return atom_load(&news->published) > BOUND && atom_load(&news->missed) > 0;
}

static void outrun_subscribers(int64_t ms)
{
    struct news news = {.missed = 0}, *shared = &news;
    int result, inner;

    FLOW_SCOPE(scope, &result)
    {
        CHECK_OK(weir_broadcast_open(
            scope,
            &(weir_broadcast_spec){
                .name = "news", .value_bytes = sizeof(int), .history = BOUND, .subscribers_max = 2},
            &news.broadcast));
        CHECK_OK(
            weir_broadcast_subscribe(news.broadcast, WEIR_LAG_SKIP, false, &news.subscribers[0]));
        CHECK_OK(
            weir_broadcast_subscribe(news.broadcast, WEIR_LAG_WAIT, false, &news.subscribers[1]));
        FLOW_SCOPE(readers, &inner)
        {
            CHECK_OK(weir_spawn(readers, read_slowly, &shared, sizeof shared));
            CHECK_OK(weir_spawn(readers, read_slowly, &shared, sizeof shared));
            outrun(publish_on, &news, news_are_missed, ms);
            weir_broadcast_close(news.broadcast);
        }
        CHECK_OK(inner);
        CHECK_INT(news.seen[0] + news.missed, ==, news.published);
        CHECK_INT(news.seen[1], ==, news.published);
        CHECK_INT(news.published, >, BOUND);
        CHECK_INT(news.missed, >, 0);
    }
    CHECK_OK(result);
}

/* ---- Shortly, and for ten seconds ---- */

static int shortly(void *arg)
{
    (void)arg;
    for (int overflow = WEIR_WAIT; overflow <= WEIR_DROP_OLDEST; overflow++) {
        test_note("overflow %d", overflow);
        outrun_actor((enum weir_overflow)overflow, 60);
    }
    outrun_subscribers(100);
    return 0;
}

static int for_long(void *arg)
{
    (void)arg;
    outrun_actor(WEIR_WAIT, 10000);
    outrun_subscribers(10000);
    return 0;
}

static int without_deadline(weir_task_fn body)
{
    return weir_run(&(weir_config){.workers = test_workers(), .log_level = WEIR_LOG_OFF}, body,
                    NULL);
}

TEST(actors_and_broadcasts_that_are_outrun_meet_their_bounds)
{
    CHECK_OK(without_deadline(shortly));
}

TEST_WITH(actors_and_broadcasts_are_outrun_for_ten_seconds, .long_only = true, .timeout_ms = 60000)
{
    CHECK_OK(without_deadline(for_long));
}
