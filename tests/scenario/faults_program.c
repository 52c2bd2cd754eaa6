/* faults_program.c - a whole program, with everything the kernel and memory can refuse
 * refused in turn: it ends, says why, and leaves nothing behind.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "rt/runtime.h"
#include "unit/rt/support.h"

/* ---- No thread for a worker ---- */

static int must_not_run(void *arg)
{
    (void)arg;
    TEST_FAIL("the program ran although a worker is missing");
}

TEST(worker_whose_thread_cannot_be_made_fails_the_run)
{
    static const int errors[] = {-EAGAIN, -ENOMEM, -EPERM};

    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        test_fault("thread_start", errors[i], 1);
        CHECK_INT(run_on(2, must_not_run, NULL), ==, errors[i]);
        CHECK_INT(runtime_live_count(), ==, 0);
    }
}

/* The ones that had started are brought back. */
TEST(last_of_four_workers_without_a_thread_takes_the_others_down)
{
    test_kernel_install();
    for (uint64_t n = 1;; n++) {
        uint64_t threads = test_calls("thread_start");
        int r;

        test_fail_call_at(n, -EAGAIN);
        r = run_on(4, return_argument, &(int){3});
        test_fail_call_at(0, 0);
        if (r == 3) break; /* beyond the last call */
        CHECK_INT(runtime_live_count(), ==, 0);
        if (test_calls("thread_start") - threads == 3) CHECK_INT(r, ==, -EAGAIN);
        CHECK_INT(n, <, 1000);
    }
}

static int use_executor(void *arg)
{
    weir_listing *listing;

    (void)arg;
    WEIR_DEADLINE(60000) {
        /* The first call finds no thread and is told; the second does. Listing is done by
         * a thread on every backend. */
        CHECK_INT(weir_path_list("/", 1000, &listing), ==, -EAGAIN);
        CHECK_OK(weir_path_list("/", 1000, &listing));
        CHECK_INT(weir_listing_count(listing), >, 0);
        weir_listing_free(listing);
    }
    return 0;
}

static int fail_first_executor_thread(void *arg)
{
    test_fault("thread_start", -EAGAIN, 1);
    return use_executor(arg);
}

TEST(executor_without_a_thread_says_so_and_tries_again_the_next_time)
{
    test_kernel_install();
    CHECK_OK(run_on(1, fail_first_executor_thread, NULL));
}

/* ---- Everything at once, on two workers ---- */

static int echo(void *arg)
{
    weir_conn *conn = *(weir_conn **)arg;
    char data[64];
    ssize_t n = 0;
    int r = 0;

    while (r == 0 && (n = weir_conn_read(conn, data, sizeof data)) > 0)
        r = weir_conn_send_all(conn, data, (size_t)n, NULL);
    weir_conn_close(conn);
    return n < 0 ? (int)n : r;
}

/* One connection; what cannot be given to a task is closed here. */
static int serve_one(void *arg)
{
    weir_listener *listener = *(weir_listener **)arg;
    weir_conn *conn;
    int r = weir_accept(listener, &conn);

    if (r < 0) return r;
    WEIR_SCOPE(scope, &r, .name = "request", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
               .overflow = WEIR_REJECT) {
        int spawned = weir_spawn(scope, echo, &conn, sizeof conn);

        if (spawned == 0) conn = NULL;
        if (spawned < 0) weir_scope_cancel(scope, spawned, "no task for the request");
    }
    weir_conn_close(conn); /* also if there was no scope */
    return r;
}

static int ask(const char *address)
{
    weir_conn *conn;
    char data[5];
    int r = weir_connect(address, &conn);

    if (r < 0) return r;
    r = weir_conn_send_all(conn, "hello", 5, NULL);
    if (r == 0) r = weir_conn_read_exact(conn, data, 5, NULL);
    if (r == 0) CHECK(memcmp(data, "hello", 5) == 0);
    weir_conn_close(conn);
    return r;
}

static int talk(void *arg)
{
    char address[WEIR_ADDRESS_TEXT_MAX];
    weir_listener *listener;
    weir_address bound;
    int r, asked = 0;

    (void)arg;
    r = weir_listen(&(weir_listen_spec){.address = "tcp:127.0.0.1:0"}, &listener);
    if (r < 0) return r;
    r = weir_listener_address(listener, &bound);
    if (r == 0) {
        weir_address_format(&bound, address, sizeof address);
        WEIR_SCOPE(scope, &r, .name = "talk", .on_failure = WEIR_FAIL_FAST, .max_tasks = 2,
                   .overflow = WEIR_REJECT) {
            asked = weir_task_spawn(scope,
                                    &(weir_task_spec){.fn = serve_one,
                                                      .arg = &listener,
                                                      .arg_bytes = sizeof listener,
                                                      .name = "server",
                                                      .place = WEIR_PLACE_WORKER,
                                                      .worker = 1},
                                    NULL);
            if (asked == 0) asked = ask(address);
            if (asked < 0) weir_scope_cancel(scope, asked, "could not ask");
        }
    }
    weir_listener_close(listener);
    return r < 0 ? r : asked;
}

static int keep_a_file(void *arg)
{
    const char *path = *(char **)arg;
    weir_file *file;
    char data[3];
    ssize_t n;
    int r, closed;

    r = weir_file_open(path, O_RDWR, 0, &file);
    if (r < 0) return r;
    n = weir_file_write(file, "abc", 3, 0);
    if (n >= 0) r = weir_file_sync(file, false);
    if (n >= 0 && r == 0) n = weir_file_read(file, data, 3, 0);
    closed = weir_file_close(file);
    if (n < 0) return (int)n;
    return r < 0 ? r : closed;
}

static int run_post(void *arg)
{
    (void)atom_add(*(ATOM(int) **)arg, 1);
    return 0;
}

static int post(weir_scope *scope, ATOM(int) * ran)
{
    weir_postbox *box;
    int r = weir_postbox_open(
        scope, &(weir_postbox_spec){.name = "b", .capacity = 1, .overflow = WEIR_REJECT}, &box);

    if (r < 0) return r;
    r = weir_post(box, run_post, &ran, sizeof ran);
    weir_postbox_unref(box);
    return r;
}

struct program {
    char *path;
    int64_t ms; /* that a run has */
    int posted;
    ATOM(int) ran;
};

static int do_everything(void *arg)
{
    struct program *program = arg;
    int r = 0, part = 0;

    program->posted = 0;
    atom_store(&program->ran, 0);
    /* An event that is faked to be missing ends in the deadline. */
    WEIR_DEADLINE(program->ms) {
        WEIR_SCOPE(scope, &r, .name = "program", .on_failure = WEIR_FAIL_FAST, .max_tasks = 9,
                   .overflow = WEIR_REJECT) {
            part = weir_spawn(scope, talk, NULL, 0);
            if (part == 0)
                part = weir_spawn(scope, keep_a_file, &program->path, sizeof program->path);
            if (part == 0) part = post(scope, &program->ran);
            program->posted = part == 0;
            if (part < 0) weir_scope_cancel(scope, part, "could not begin");
        }
    }
    return r;
}

static int run_program(void *arg)
{
    struct program *program = arg;
    int r = weir_run(&(weir_config){.workers = 2, .log = ignore_record}, do_everything, program);

    /* What was accepted was done, whatever else went wrong. */
    CHECK_INT(atom_load(&program->ran), ==, program->posted);
    return r;
}

struct sweep {
    struct program program;
    int error;
};

/* On a busy machine a run may take longer than it has although nothing went wrong: once more, and
 * it has more. */
static int run_in_time(struct program *program)
{
    int r;

    program->ms = 300;
    do {
        r = run_program(program);
        if (r >= 0 || test_call_failed() || test_alloc_failed()) break;
        program->ms *= 4;
    } while (program->ms < 20000 * test_slower());
    return r;
}

static int sweep_one(void *arg)
{
    struct sweep *sweep = arg;
    int r = run_in_time(&sweep->program);

    if (r >= 0 || r == sweep->error) return r;
    switch (r) {
    case WEIR_ETIMEDOUT:
    case WEIR_ECANCELED:
    case WEIR_ECLOSED: /* the other side was cut off */
    case -ECONNRESET:
    case -EPIPE:
    case -ENOMEM: return r;
    default:
        TEST_FAIL("%s gave %s, and the program %s", test_call_failed_name(),
                  weir_error_name(sweep->error), weir_error_name(r));
    }
}

static void with_a_file(int (*sweep)(struct sweep *sweep), int error)
{
    char path[] = "/tmp/weir-faults-XXXXXX";
    struct sweep state = {.program = {.path = path}, .error = error};
    int fd = mkstemp(path);

    CHECK_INT(fd, >=, 0);
    CHECK_INT(close(fd), ==, 0);
    CHECK_INT(sweep(&state), >=, 20);
    CHECK_INT(unlink(path), ==, 0);
}

static int sweep_calls(struct sweep *sweep)
{
    return test_sweep_calls(sweep_one, sweep, sweep->error);
}

static int sweep_allocations(struct sweep *sweep)
{
    return test_sweep_alloc(sweep_one, sweep);
}

TEST_WITH(program_survives_every_call_that_finds_no_memory, .timeout_ms = 60000)
{
    with_a_file(sweep_calls, -ENOMEM);
}

TEST_WITH(program_survives_every_call_that_finds_no_descriptor, .timeout_ms = 60000)
{
    with_a_file(sweep_calls, -EMFILE);
}

TEST_WITH(program_survives_every_call_that_is_told_to_come_again, .timeout_ms = 60000)
{
    with_a_file(sweep_calls, -EAGAIN);
}

TEST_WITH(program_survives_every_failing_allocation, .timeout_ms = 60000)
{
    with_a_file(sweep_allocations, -ENOMEM);
}
