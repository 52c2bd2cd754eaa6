/* one_worker.c - planted races between tasks that run on one worker. */
#include <pthread.h>

#include "planted/planted.h"

/* ---- Counting ---- */

static int add_one(void *arg)
{
    if (mended) {
        (void)atom_add(PLANTED_ARG(ATOM(long), arg), 1);
    } else {
        ++*PLANTED_ARG(volatile long, arg);
    }
    return 0;
}

/* Short tasks, one after the other: memory and stack of the first serve the second. */
PLANTED(counter_of_siblings, ONE_WORKER)
{
    long count = 0;
    weir_scope *scope = planted_scope(WEIR_PLACE_HERE);

    planted_spawn(scope, 0, add_one, &count);
    planted_spawn(scope, 0, add_one, &count);
    return weir_scope_close(scope);
}

PLANTED(counter_of_tasks_without_handles, ONE_WORKER)
{
    long count = 0;
    long *pointer = &count;
    weir_scope *scope = planted_scope(WEIR_PLACE_HERE);

    for (int i = 0; i < 3; i++) {
        MUST(weir_spawn(scope, add_one, &pointer, sizeof pointer));
        MUST(weir_yield());
    }
    return weir_scope_close(scope);
}

static int check_then_act(void *arg)
{
    struct account {
        pthread_mutex_t mutex;
        long left;
    } *account = PLANTED_ARG(struct account, arg);

    if (mended) (void)pthread_mutex_lock(&account->mutex);
    if (account->left > 0) account->left--;
    if (mended) (void)pthread_mutex_unlock(&account->mutex);
    return weir_yield();
}

PLANTED(check_then_act, ONE_WORKER)
{
    struct {
        pthread_mutex_t mutex;
        long left;
    } account = {PTHREAD_MUTEX_INITIALIZER, 1};
    weir_scope *scope = planted_scope(WEIR_PLACE_HERE);

    for (int i = 0; i < 2; i++) planted_spawn(scope, 0, check_then_act, &account);
    return weir_scope_close(scope);
}

/* ---- Publishing ---- */

struct message {
    long text;
    volatile bool ready;
    ATOM(bool) announced;
};

static int publish(void *arg)
{
    struct message *message = PLANTED_ARG(struct message, arg);

    message->text = 42;
    if (mended) {
        atom_store_release(&message->announced, true);
    } else {
        message->ready = true;
    }
    return 0;
}

PLANTED(plain_flag_and_yield, ONE_WORKER)
{
    struct message message = {0};
    weir_scope *scope = planted_scope(WEIR_PLACE_HERE);

    planted_spawn(scope, 0, publish, &message);
    while (mended ? !atom_load_acquire(&message.announced) : !message.ready) MUST(weir_yield());
    if (message.text != 42) abort();
    return weir_scope_close(scope);
}

static int write_value(void *arg)
{
    *PLANTED_ARG(long, arg) = 42;
    return 0;
}

PLANTED(sleeping_is_no_synchronisation, ONE_WORKER)
{
    long value = 0;
    weir_scope *scope = planted_scope(WEIR_PLACE_HERE);

    planted_spawn(scope, 0, write_value, &value);
    MUST(weir_sleep(1));
    if (mended) MUST(weir_scope_join(scope));
    if (value != 42) abort();
    return weir_scope_close(scope);
}

/* ---- Results ---- */

PLANTED(result_read_before_the_task_is_joined, ONE_WORKER)
{
    long value = 0;
    weir_scope *scope = planted_scope(WEIR_PLACE_HERE);
    weir_task task = planted_spawn(scope, 0, write_value, &value);

    MUST(weir_yield());
    if (mended) MUST(weir_task_join(task, NULL));
    if (value != 42) abort();
    return weir_scope_close(scope);
}

PLANTED(joining_one_task_says_nothing_about_the_other, ONE_WORKER)
{
    static long values[2]; /* of a local one clang does not look at the last read */
    weir_scope *scope = planted_scope(WEIR_PLACE_HERE);
    weir_task tasks[2];

    for (int i = 0; i < 2; i++) tasks[i] = planted_spawn(scope, 0, write_value, &values[i]);
    MUST(weir_task_join(tasks[1], NULL));
    if (mended) MUST(weir_task_join(tasks[0], NULL));
    if (values[0] != 42) abort();
    return weir_scope_close(scope);
}

static int report_progress(void *arg)
{
    for (int i = 0; i < 3; i++) {
        (void)add_one(arg);
        MUST(weir_yield());
    }
    return 0;
}

PLANTED(progress_watched_while_it_is_made, ONE_WORKER)
{
    long progress = 0;
    weir_scope *scope = planted_scope(WEIR_PLACE_HERE);

    planted_spawn(scope, 0, report_progress, &progress);
    MUST(weir_yield());
    if (mended) {
        if (atom_load((ATOM(long) *)&progress) < 0) abort();
    } else {
        if (*(volatile long *)&progress < 0) abort();
    }
    return weir_scope_close(scope);
}

static int clean_up_and_say_so(void *arg)
{
    int r = weir_sleep(10000);
    *PLANTED_ARG(long, arg) = 42;
    return r;
}

PLANTED(cancel_does_not_wait_for_the_cleanup, ONE_WORKER)
{
    long cleaned = 0;
    weir_scope *scope = planted_scope(WEIR_PLACE_HERE);

    planted_spawn(scope, 0, clean_up_and_say_so, &cleaned);
    MUST(weir_yield());
    weir_scope_cancel(scope, 0, "enough");
    WEIR_SHIELD(1000) {
        MUST(weir_yield());
        if (mended) MUST(weir_scope_join(scope));
        if (cleaned != 42) abort();
    }
    return weir_scope_close(scope);
}

/* ---- Arguments ---- */

static int read_value(void *arg)
{
    if (*PLANTED_ARG(volatile long, arg) < 0) abort();
    return 0;
}

PLANTED(write_after_spawn, ONE_WORKER)
{
    long value = 1;
    weir_scope *scope = planted_scope(WEIR_PLACE_HERE);

    if (mended) value = 2;
    planted_spawn(scope, 0, read_value, &value);
    if (!mended) value = 2;
    return weir_scope_close(scope);
}

static int read_copied(void *arg)
{
    if (*(long *)arg < 0) abort();
    return 0;
}

PLANTED(loop_variable_by_pointer, ONE_WORKER)
{
    weir_scope *scope = planted_scope(WEIR_PLACE_HERE);

    for (volatile long i = 0; i < 2; i++) {
        if (mended) {
            long copy = i;
            MUST(weir_spawn(scope, read_copied, &copy, sizeof copy));
        } else {
            planted_spawn(scope, 0, read_value, (void *)(uintptr_t)&i);
        }
        MUST(weir_yield());
    }
    return weir_scope_close(scope);
}

static int format_into(void *arg)
{
    char own[32];
    char *text = mended ? own : PLANTED_ARG(char, arg);
    (void)snprintf(text, sizeof own, "task %p", arg);
    return 0;
}

PLANTED(one_buffer_for_two_tasks, ONE_WORKER)
{
    char text[32];
    weir_scope *scope = planted_scope(WEIR_PLACE_HERE);

    for (int i = 0; i < 2; i++) planted_spawn(scope, 0, format_into, text);
    return weir_scope_close(scope);
}

static const weir_local_key key = {"planted"};

static int change_inherited(void *arg)
{
    long *inherited = (long *)(uintptr_t)weir_local_get(&key);
    long own = *inherited + 1;

    (void)arg;
    if (mended) return weir_local_set(&key, &own, sizeof own);
    *inherited = own;
    return 0;
}

/* The value is shared by all who inherited it, and not theirs to change. */
PLANTED(inherited_local_changed_in_place, ONE_WORKER)
{
    long value = 1;
    weir_scope *scope = planted_scope(WEIR_PLACE_HERE);

    MUST(weir_local_set(&key, &value, sizeof value));
    for (int i = 0; i < 2; i++) planted_spawn(scope, 0, change_inherited, NULL);
    return weir_scope_close(scope);
}

/* ---- Waking ---- */

struct sleeper {
    weir_task task;
    long cause;
};

static int sleep_and_read_the_cause(void *arg)
{
    int r = weir_sleep(10000);
    if (PLANTED_ARG(struct sleeper, arg)->cause < 0) abort();
    return r;
}

static int wake_then_write(void *arg)
{
    struct sleeper *sleeper = PLANTED_ARG(struct sleeper, arg);

    if (mended) sleeper->cause = 7;
    MUST(weir_task_cancel(sleeper->task, "wake up"));
    if (!mended) sleeper->cause = 7;
    return 0;
}

PLANTED(write_after_wake, ONE_WORKER)
{
    struct sleeper sleeper = {0};
    weir_scope *scope = planted_scope(WEIR_PLACE_HERE);

    sleeper.task = planted_spawn(scope, 0, sleep_and_read_the_cause, &sleeper);
    MUST(weir_yield());
    planted_spawn(scope, 0, wake_then_write, &sleeper);
    return weir_scope_close(scope);
}

static int close_a_scope_of_ones_own(void *arg)
{
    weir_scope *scope = planted_scope(WEIR_PLACE_HERE);
    planted_spawn(scope, 0, write_value, PLANTED_ARG(long, arg));
    return weir_scope_close(scope);
}

/* Another task's scope is joined by that task, not by us. */
PLANTED(result_of_another_tasks_scope, ONE_WORKER)
{
    long value = 0;
    weir_scope *scope = planted_scope(WEIR_PLACE_HERE);
    weir_task task = planted_spawn(scope, 0, close_a_scope_of_ones_own, &value);

    for (int i = 0; i < 3; i++) MUST(weir_yield());
    if (mended) MUST(weir_task_join(task, NULL));
    if (value != 42) abort();
    return weir_scope_close(scope);
}
