/* mail_test.c - mail reaches its worker: once per posting, in order, from anywhere. */
#include "rt/mail.h"

#include <pthread.h>

#include "rt/runtime.h"
#include "unit/rt/support.h"

enum { LETTERS = 64 };

struct letter {
    struct mail mail;
    struct mailbag *bag;
    int id;
    int delivered;
};

struct mailbag {
    struct letter letters[LETTERS];
    int order[4 * LETTERS];
    int count;
    struct worker *worker;
    ATOM(int) posted;
};

static void note_delivery(struct worker *worker, struct mail *mail)
{
    struct letter *letter = container_of(mail, struct letter, mail);

    callback_begin(worker); /* runs on the worker's own stack, as a program's callback does */
    CHECK(worker == letter->bag->worker);
    CHECK(worker == worker_self());
    letter->delivered++;
    letter->bag->order[letter->bag->count++] = letter->id;
    sanitize_release(&worker->events);
}

static void bag_init(struct mailbag *bag)
{
    *bag = (struct mailbag){.worker = worker_self()};
    for (int i = 0; i < LETTERS; i++) {
        bag->letters[i].mail.deliver = note_delivery;
        bag->letters[i].bag = bag;
        bag->letters[i].id = i;
    }
}

static int post_to_self(void *arg)
{
    static struct mailbag bag;

    (void)arg;
    bag_init(&bag);
    for (int i = 0; i < LETTERS; i++) mail_post(bag.worker, &bag.letters[i].mail);
    CHECK_INT(bag.count, ==, 0);
    CHECK_OK(weir_sleep(0));
    CHECK_INT(bag.count, ==, LETTERS);
    for (int i = 0; i < LETTERS; i++) CHECK_INT(bag.order[i], ==, i);

    bag.count = 0;
    for (int i = 0; i < LETTERS; i++) mail_post_local(bag.worker, &bag.letters[i].mail);
    CHECK_INT(bag.count, ==, 0);
    mail_deliver_local(bag.worker);
    CHECK_INT(bag.count, ==, LETTERS);
    for (int i = 0; i < LETTERS; i++) CHECK_INT(bag.order[i], ==, i);
    return 0;
}

TEST(mail_is_delivered_in_the_order_it_was_posted)
{
    CHECK_OK(run_on(1, post_to_self, NULL));
}

/* A delivery that posts again, and one that asks for a delivery: no recursion. */
static struct mailbag chain_bag;
static int chain_depth, chain_left;

static void deliver_and_post(struct worker *worker, struct mail *mail)
{
    CHECK_INT(chain_depth++, ==, 0);
    if (--chain_left > 0) {
        mail_post_local(worker, mail);
        mail_deliver_local(worker);
    }
    chain_depth--;
}

static int post_chain(void *arg)
{
    (void)arg;
    bag_init(&chain_bag);
    chain_left = 100000;
    chain_bag.letters[0].mail.deliver = deliver_and_post;
    mail_post_local(worker_self(), &chain_bag.letters[0].mail);
    mail_deliver_local(worker_self());
    CHECK_INT(chain_left, ==, 0);
    return 0;
}

TEST(delivery_that_posts_does_not_recurse)
{
    CHECK_OK(run_on(1, post_chain, NULL));
}

/* Callbacks run in no task, wherever the mail happens to be delivered. */
static void expect_no_task(struct worker *worker, struct mail *mail)
{
    struct letter *letter = container_of(mail, struct letter, mail);

    (void)worker;
    CHECK(weir_task_self().ref == NULL);
    CHECK_INT(weir_yield(), ==, WEIR_ENOTASK);
    letter->delivered++;
}

static int deliver_inside_a_task(void *arg)
{
    weir_task self = weir_task_self();

    (void)arg;
    bag_init(&chain_bag);
    chain_bag.letters[0].mail.deliver = expect_no_task;
    mail_post_local(worker_self(), &chain_bag.letters[0].mail);
    mail_deliver_local(worker_self());
    CHECK_INT(chain_bag.letters[0].delivered, ==, 1);
    CHECK_INT(weir_task_self().id, ==, self.id);
    CHECK_OK(weir_yield());
    return 0;
}

TEST(mail_delivered_while_a_task_runs_does_not_run_as_that_task)
{
    CHECK_OK(run_on(1, deliver_inside_a_task, NULL));
}

/* Foreign threads post to a worker that goes to sleep again and again. */
static void *post_rounds(void *arg)
{
    struct mailbag *bag = arg;

    for (int i = 0; i < LETTERS; i++) {
        mail_post(bag->worker, &bag->letters[i].mail);
        if (i % 8 == 0) sched_yield();
    }
    (void)atom_add(&bag->posted, 1);
    return NULL;
}

static int receive(void *arg)
{
    int rounds = *(int *)arg;
    static struct mailbag bags[2];

    for (int round = 0; round < rounds && (round == 0 || !test_late()); round++) {
        pthread_t threads[2];

        for (int i = 0; i < 2; i++) {
            bag_init(&bags[i]);
            CHECK_INT(pthread_create(&threads[i], NULL, post_rounds, &bags[i]), ==, 0);
        }
        /* Asleep in between: a wake-up that is lost shows as a long wait. */
        while (bags[0].count + bags[1].count < 2 * LETTERS) CHECK_OK(weir_sleep(1));
        for (int i = 0; i < 2; i++) {
            CHECK_INT(pthread_join(threads[i], NULL), ==, 0);
            for (int j = 0; j < LETTERS; j++) CHECK_INT(bags[i].order[j], ==, j);
        }
    }
    return 0;
}

TEST(mail_of_foreign_threads_arrives_complete_and_in_each_threads_order)
{
    int rounds = TEST_SLOW ? 20 : 100;

    CHECK_OK(run_on(1, receive, &rounds));
    CHECK_OK(run_on(2, receive, &rounds));
}

/* Ping-pong between two workers that have nothing else to do: no wake-up is lost. */

struct player {
    weir_scope *scope;
    int rounds;
};

static int pong(void *arg)
{
    return *(int *)arg;
}

static int ping(void *arg)
{
    struct player *player = arg;
    int other = 1 - weir_worker_index();

    for (int i = 0; i < player->rounds && (i == 0 || !test_late()); i++) {
        int result = 0;
        weir_task task = spawn_at(player->scope, other, "pong", pong, &i, sizeof i);

        CHECK_OK(weir_task_join(task, &result));
        CHECK_INT(result, ==, i);
    }
    return 0;
}

static int play(void *arg)
{
    weir_scope *scope = open_scope("game", WEIR_FAIL_FAST);
    struct player player = {scope, *(int *)arg};

    spawn_at(scope, 0, "left", ping, &player, sizeof player);
    spawn_at(scope, 1, "right", ping, &player, sizeof player);
    return weir_scope_close(scope);
}

TEST_WITH(workers_that_only_wait_for_each_other_lose_no_wake_up, .timeout_ms = 60000)
{
    int rounds = TEST_SLOW ? 1000 : 20000;

    CHECK_OK(run_on(2, play, &rounds));
}
