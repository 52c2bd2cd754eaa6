/* two_workers.c - planted races that happen on two threads at the same time. */
#include <pthread.h>

#include "planted/planted.h"

/* Often: two accesses in the very same moment may both be overlooked. */
enum { MANY = 100 };

/* Two sides do the same thing to `value`, without anything that orders them. */
struct duel {
    struct meeting meeting;
    pthread_mutex_t mutex;
    ATOM(int) sides;
    volatile long value;
    void *volatile made;
    void (*act)(struct duel *duel);
};

static int fight(void *arg)
{
    struct duel *duel = PLANTED_ARG(struct duel, arg);
    int side = weir_worker_index();

    planted_meet(&duel->meeting, side);
    if (mended) (void)pthread_mutex_lock(&duel->mutex);
    duel->act(duel);
    if (mended) (void)pthread_mutex_unlock(&duel->mutex);
    return 0;
}

static int fight_on_both(void (*act)(struct duel *duel))
{
    struct duel duel = {.mutex = PTHREAD_MUTEX_INITIALIZER, .act = act};
    weir_scope *scope = planted_scope(WEIR_ANYWHERE);

    for (int i = 0; i < 2; i++) planted_spawn(scope, i, fight, &duel);
    return weir_scope_close(scope);
}

static void count(struct duel *duel)
{
    for (int i = 0; i < MANY; i++) duel->value++;
}

PLANTED(counter_on_two_workers, TWO_WORKERS)
{
    return fight_on_both(count);
}

static void make_once(struct duel *duel)
{
    for (int i = 0; i < MANY; i++) {
        if (!duel->made) duel->made = duel;
    }
}

PLANTED(made_at_first_use_on_two_workers, TWO_WORKERS)
{
    return fight_on_both(make_once);
}

static void format(struct duel *duel)
{
    static char text[64];
    for (int i = 0; i < MANY; i++) (void)snprintf(text, sizeof text, "%ld", duel->value);
}

PLANTED(one_buffer_on_two_workers, TWO_WORKERS)
{
    return fight_on_both(format);
}

/* ---- One writes, the other reads ---- */

struct pair {
    struct meeting meeting;
    volatile long text;
    volatile bool ready;
    ATOM(bool) announced;
};

static void write_often(struct pair *pair)
{
    for (int i = 0; i < MANY; i++) pair->text = 42;
}

static long read_often(struct pair *pair)
{
    long seen = 0;
    for (int i = 0; i < MANY; i++) seen |= pair->text;
    return seen;
}

static int tell(void *arg)
{
    struct pair *pair = PLANTED_ARG(struct pair, arg);

    if (mended) {
        pair->text = 42;
        atom_store_release(&pair->announced, true);
        return 0;
    }
    planted_meet(&pair->meeting, 0);
    write_often(pair);
    pair->ready = true;
    return 0;
}

static int hear(void *arg)
{
    struct pair *pair = PLANTED_ARG(struct pair, arg);

    if (mended) {
        while (!atom_load_acquire(&pair->announced)) MUST(weir_yield());
        if (pair->text != 42) abort();
        return 0;
    }
    planted_meet(&pair->meeting, 1);
    while (!pair->ready) MUST(weir_yield());
    return read_often(pair) < 0 ? -1 : 0;
}

PLANTED(plain_flag_between_workers, TWO_WORKERS)
{
    struct pair pair = {0};
    weir_scope *scope = planted_scope(WEIR_ANYWHERE);

    planted_spawn(scope, 0, tell, &pair);
    planted_spawn(scope, 1, hear, &pair);
    return weir_scope_close(scope);
}

static int read_given(void *arg)
{
    struct pair *pair = PLANTED_ARG(struct pair, arg);

    if (!mended) planted_meet(&pair->meeting, 1);
    return read_often(pair) < 0 ? -1 : 0;
}

PLANTED(write_after_spawn_on_another_worker, TWO_WORKERS)
{
    struct pair pair = {0};
    weir_scope *scope = planted_scope(WEIR_ANYWHERE);

    if (mended) pair.text = 1;
    planted_spawn(scope, 1, read_given, &pair);
    if (!mended) {
        planted_meet(&pair.meeting, 0);
        write_often(&pair);
    }
    return weir_scope_close(scope);
}

static int write_given(void *arg)
{
    struct pair *pair = PLANTED_ARG(struct pair, arg);

    if (!mended) planted_meet(&pair->meeting, 1);
    write_often(pair);
    return 0;
}

PLANTED(result_read_while_the_task_runs_elsewhere, TWO_WORKERS)
{
    struct pair pair = {0};
    weir_scope *scope = planted_scope(WEIR_ANYWHERE);
    weir_task task = planted_spawn(scope, 1, write_given, &pair);
    long seen;

    if (mended) {
        MUST(weir_task_join(task, NULL));
    } else {
        planted_meet(&pair.meeting, 0);
    }
    seen = read_often(&pair);
    MUST(weir_scope_close(scope));
    return seen < 0 ? -1 : 0;
}

/* ---- From outside ---- */

struct posting {
    struct pair pair;
    weir_postbox *box;
};

static void *post_then_write(void *arg)
{
    struct posting *posting = arg;
    struct pair *pair = &posting->pair;

    if (mended) pair->text = 1;
    MUST(weir_post(posting->box, read_given, &pair, sizeof pair));
    if (!mended) {
        planted_meet(&pair->meeting, 0);
        write_often(pair);
    }
    weir_postbox_unref(posting->box);
    return NULL;
}

PLANTED(write_after_post, TWO_WORKERS)
{
    struct posting posting = {0};
    weir_scope *scope = planted_scope(WEIR_ANYWHERE);
    pthread_t thread;

    MUST(weir_postbox_open(
        scope, &(weir_postbox_spec){.name = "planted", .capacity = 4, .overflow = WEIR_REJECT},
        &posting.box));
    MUST(-pthread_create(&thread, NULL, post_then_write, &posting));
    /* Not joined here: that would block the worker that the post comes to. */
    MUST(weir_sleep(1));
    while (weir_scope_task_count(scope) > 0) MUST(weir_sleep(1));
    (void)pthread_join(thread, NULL);
    return weir_scope_close(scope);
}

static void write_when_fired(weir_timer *timer, void *arg)
{
    struct pair *pair = arg;

    (void)timer;
    if (mended) {
        pair->text = 42;
        atom_store_release(&pair->announced, true);
    } else {
        planted_meet(&pair->meeting, 0);
        write_often(pair);
    }
}

static int read_while_fired(void *arg)
{
    struct pair *pair = PLANTED_ARG(struct pair, arg);

    if (!mended) planted_meet(&pair->meeting, 1);
    while (mended && !atom_load_acquire(&pair->announced)) MUST(weir_yield());
    return read_often(pair) < 0 ? -1 : 0;
}

/* A callback is ordered with the tasks of its own worker, not with others. */
PLANTED(callback_and_a_task_of_another_worker, TWO_WORKERS)
{
    struct pair pair = {0};
    weir_scope *scope = planted_scope(WEIR_ANYWHERE);
    weir_timer *timer = NULL;

    MUST(weir_timer_open(
        scope,
        &(weir_timer_spec){.name = "planted", .on_fire = write_when_fired, .keep_arg = &pair},
        &timer));
    planted_spawn(scope, 1, read_while_fired, &pair);
    weir_timer_start(timer, 0);
    MUST(weir_scope_join(scope));
    return weir_scope_close(scope);
}
