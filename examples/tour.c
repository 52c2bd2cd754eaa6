/* tour.c - the pieces of code of docs/guide/concepts.md, as one program that runs them.
 *
 *     tour
 *
 * Each stop of the tour is a function; it says what happened, and the tour ends with status 1 if
 * that is not what the guide promises. A test checks that the guide shows this code.
 */
#include <errno.h>
#include <pthread.h>
#include <weir/weir.h>

#include "options.h"

/* ---- Scopes and tasks ---- */

struct square {
    int of;
    int *result; /* points into the frame that opened the scope: it outlives the task */
};

static int square(void *arg)
{
    struct square *job = arg; /* the task's own copy */
    *job->result = job->of * job->of;
    return 0;
}

static int sum_of_squares(int *ret_sum)
{
    int squares[4] = {0};
    int result;

    WEIR_SCOPE(scope, &result, .name = "squares", .on_failure = WEIR_FAIL_FAST, .max_tasks = 4,
               .overflow = WEIR_WAIT) {
        for (int i = 0; i < 4; i++) {
            struct square job = {.of = i, .result = &squares[i]};
            int r = weir_spawn(scope, square, &job, sizeof job);
            if (r < 0) weir_scope_cancel(scope, r, "a task could not be spawned");
        }
    } /* closed: all four have ended */
    *ret_sum = squares[0] + squares[1] + squares[2] + squares[3];
    return result;
}

static int refused(void)
{
    weir_scope *scope;
    int r = weir_scope_open(&(weir_scope_spec){.name = "orders", .max_tasks = 10}, &scope);
    if (r == WEIR_EREFUSED) printf("refused: %s\n", weir_why());
    return r;
}

/* ---- Cancellation ---- */

static int wait_for_ever(void *arg)
{
    int *turns = *(int **)arg;
    int r = 0;
    WEIR_NO_DEADLINE("the tour cancels it") {
        while (r == 0) r = weir_sleep(WEIR_FOREVER);
        *turns += weir_yield() == r; /* still cancelled: it does not wear off */
    }
    return r;
}

static int first_answer_is_enough(int *ret_turns)
{
    int result;
    WEIR_SCOPE(scope, &result, .name = "race", .on_failure = WEIR_FAIL_FAST, .max_tasks = 2,
               .overflow = WEIR_REJECT) {
        int r = weir_spawn(scope, wait_for_ever, &ret_turns, sizeof ret_turns);
        weir_scope_cancel(scope, r, "the answer is there"); /* r is 0: no failure */
    }
    return result;
}

static int progress_returned(size_t *ret_sent)
{
    static char much[1024 * 1024];
    weir_conn *writer, *reader;
    int r = weir_socketpair(&writer, &reader);
    if (r < 0) return r;
    WEIR_DEADLINE(20) { /* nobody reads: the socket's buffer fills up */
        r = weir_conn_send_all(writer, much, sizeof much, ret_sent);
    }
    weir_conn_close(writer);
    weir_conn_close(reader);
    return r;
}

/* ---- Stop is not cancel ---- */

static int serve_until_stopped(void *arg)
{
    weir_listener *listener = *(weir_listener **)arg;
    weir_conn *conn;
    int r = 0;
    WEIR_NO_DEADLINE("serves until it is stopped") { r = weir_accept(listener, &conn); }
    if (r != WEIR_ESTOPPING) return r < 0 ? r : -EPROTO;
    return weir_sleep(1); /* what is in progress goes on, until the grace period ends */
}

static int stop_a_server(void)
{
    weir_listener *listener;
    int result = weir_listen(&(weir_listen_spec){.address = "tcp:127.0.0.1:0"}, &listener);
    if (result < 0) return result;
    WEIR_SCOPE(scope, &result, .name = "server", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
               .overflow = WEIR_REJECT) {
        int r = weir_spawn(scope, serve_until_stopped, &listener, sizeof listener);
        if (r < 0) weir_scope_cancel(scope, r, "a task could not be spawned");
        weir_scope_stop(scope, 1000);
    }
    weir_listener_close(listener);
    return result;
}

/* ---- Deadlines ---- */

static int two_deadlines(int *ret_inner, enum weir_cause *ret_cause)
{
    int outer = 0;
    WEIR_DEADLINE(10) {
        WEIR_DEADLINE(5000) {
            *ret_inner = weir_sleep(1000); /* WEIR_ECANCELED: not this block's deadline */
            *ret_cause = weir_cause(NULL); /* WEIR_CAUSE_DEADLINE */
        }
        outer = weir_yield(); /* WEIR_ETIMEDOUT: this one's */
    }
    return outer;
}

static int refused_without_deadline(void)
{
    int r = weir_sleep(WEIR_FOREVER);
    if (r == WEIR_ENODEADLINE) printf("refused: %s\n", weir_why());
    return r;
}

/* ---- Shields ---- */

static int say_goodbye(void *arg)
{
    weir_conn *conn = *(weir_conn **)arg;
    int r = weir_sleep(10000);
    WEIR_SHIELD(100) { /* cancelled or not, the peer is told; for at most 100 ms */
        int sent = weir_conn_send_all(conn, "bye", 3, NULL);
        if (r == 0) r = sent;
    }
    return r;
}

static int cleanup_is_shielded(char *ret_text)
{
    weir_conn *mine, *theirs;
    int result = weir_socketpair(&mine, &theirs);
    if (result < 0) return result;
    WEIR_SCOPE(scope, &result, .name = "polite", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
               .overflow = WEIR_REJECT) {
        int r = weir_spawn(scope, say_goodbye, &theirs, sizeof theirs);
        weir_scope_cancel(scope, r, "no time left");
    }
    WEIR_DEADLINE(1000) {
        if (result == 0) result = weir_conn_read_exact(mine, ret_text, 3, NULL);
    }
    weir_conn_close(mine);
    weir_conn_close(theirs);
    return result;
}

/* ---- Backpressure ---- */

static int nap(void *arg)
{
    (void)arg;
    return weir_sleep(10000);
}

static int third_is_rejected(void)
{
    int result, third = 0;
    WEIR_SCOPE(scope, &result, .name = "two at a time", .on_failure = WEIR_FAIL_FAST,
               .max_tasks = 2, .overflow = WEIR_REJECT) {
        for (int i = 0; i < 3; i++) third = weir_spawn(scope, nap, NULL, 0);
        weir_scope_cancel(scope, 0, "enough was seen");
    }
    return result < 0 ? result : third; /* WEIR_EOVERLOAD */
}

/* ---- Workers and placement ---- */

static int where_am_i(void *arg)
{
    **(int **)arg = weir_worker_index();
    return 0;
}

static int on_the_last_worker(int *ret_index)
{
    int result;
    WEIR_SCOPE(scope, &result, .name = "placed", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
               .overflow = WEIR_REJECT) {
        weir_task_spec spec = {.fn = where_am_i,
                               .arg = &ret_index,
                               .arg_bytes = sizeof ret_index,
                               .place = WEIR_PLACE_WORKER,
                               .worker = weir_worker_count() - 1};
        int r = weir_task_spawn(scope, &spec, NULL);
        if (r < 0) weir_scope_cancel(scope, r, "a task could not be spawned");
    }
    return result;
}

/* ---- Other threads ---- */

static int add_one(void *arg)
{
    ++**(int **)arg; /* runs as a task of the scope, on a worker */
    return 0;
}

struct foreign {
    weir_postbox *box;
    int *total;
    int posted;
};

static void *foreign_thread(void *arg)
{
    struct foreign *foreign = arg;
    foreign->posted = weir_post(foreign->box, add_one, &foreign->total, sizeof foreign->total);
    return NULL;
}

static int post_from_a_thread(int *ret_total)
{
    struct foreign foreign = {.total = ret_total};
    pthread_t thread;
    int result;

    WEIR_SCOPE(scope, &result, .name = "posts", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
               .overflow = WEIR_WAIT) {
        weir_postbox_spec spec = {.name = "in", .capacity = 8, .overflow = WEIR_REJECT};
        int r = weir_postbox_open(scope, &spec, &foreign.box);
        if (r == 0 && pthread_create(&thread, NULL, foreign_thread, &foreign) != 0) r = -EAGAIN;
        if (r == 0) (void)pthread_join(thread, NULL); /* short: a worker must not block for long */
        if (r == 0) r = foreign.posted;
        if (r < 0) weir_scope_cancel(scope, r, "nothing could be posted");
    } /* what was posted is run before the scope ends; later posts get WEIR_ECLOSED */
    weir_postbox_unref(foreign.box);
    return result;
}

/* ---- Blocking calls ---- */

static int first_bytes(const char *path, char *ret_data, size_t bytes, ssize_t *ret_count)
{
    weir_file *file;
    int r = 0;
    WEIR_DEADLINE(1000) { /* a disk that hangs does not hang us */
        r = weir_file_open(path, O_RDONLY, 0, &file);
        if (r < 0) return r;
        *ret_count = weir_file_read(file, ret_data, bytes, 0);
        r = weir_file_close(file);
    }
    return *ret_count < 0 ? (int)*ret_count : r;
}

/* ---- The tour ---- */

static int wrong;

static void expect(const char *what, int64_t actual, int64_t expected)
{
    bool error = expected < 0;
    printf("%-32s %lld%s%s\n", what, (long long)actual, error ? " " : "",
           error ? weir_error_name((int)actual) : "");
    if (actual == expected) return;
    wrong++;
    printf("    expected %lld\n", (long long)expected);
}

static int tour(void *arg)
{
    enum weir_cause cause = WEIR_CAUSE_NONE;
    char text[4] = "";
    int sum = 0, turns = 0, inner = 0, index = -1, total = 0;
    size_t sent = 0;
    ssize_t count = 0;

    (void)arg;
    expect("sum_of_squares", sum_of_squares(&sum), 0);
    expect("    the sum", sum, 14);
    expect("refused", refused(), WEIR_EREFUSED);
    expect("first_answer_is_enough", first_answer_is_enough(&turns), 0);
    expect("    calls that failed again", turns, 1);
    expect("progress_returned", progress_returned(&sent), WEIR_ETIMEDOUT);
    expect("    some bytes were sent", sent > 0 && sent < (size_t)1024 * 1024, 1);
    expect("stop_a_server", stop_a_server(), 0);
    expect("two_deadlines: outer", two_deadlines(&inner, &cause), WEIR_ETIMEDOUT);
    expect("two_deadlines: inner", inner, WEIR_ECANCELED);
    expect("    its cause is a deadline", cause, WEIR_CAUSE_DEADLINE);
    expect("refused_without_deadline", refused_without_deadline(), WEIR_ENODEADLINE);
    expect("cleanup_is_shielded", cleanup_is_shielded(text), 0);
    expect("    'bye' has come", strcmp(text, "bye"), 0);
    expect("third_is_rejected", third_is_rejected(), WEIR_EOVERLOAD);
    expect("on_the_last_worker", on_the_last_worker(&index), 0);
    expect("    its index", index, weir_worker_count() - 1);
    expect("post_from_a_thread", post_from_a_thread(&total), 0);
    expect("    posts that ran", total, 1);
    expect("first_bytes", first_bytes("/proc/self/comm", text, 4, &count), 0);
    expect("    bytes", count, 4);
    return 0;
}

int main(int argc, char **argv)
{
    const struct option_number options[] = {{0}};
    int first = options_read(argc, argv, "tour", options);
    int r;

    if (first < argc) return fprintf(stderr, "tour: unexpected argument '%s'\n", argv[first]), 2;
    r = weir_run(&(weir_config){.name = "tour", .workers = 2}, tour, NULL);
    if (r < 0) fprintf(stderr, "tour: %s\n", weir_strerror(r));
    return r < 0 || wrong > 0;
}
