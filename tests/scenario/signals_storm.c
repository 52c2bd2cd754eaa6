/* signals_storm.c - a signal every millisecond, that interrupts whatever it meets. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "unit/rt/support.h"

enum {
    ROUNDS = TEST_SANITIZED ? 20 : 200,
    PIECE = 4096,
    STORM_US = 1000,
};

static ATOM(int) interruptions;

static void on_alarm(int signal)
{
    (void)signal;
    (void)atom_add(&interruptions, 1);
}

/* Without SA_RESTART, so that calls really end with EINTR. */
static void storm_begin(void)
{
    struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval every = {{0, STORM_US}, {0, STORM_US}};

    sigemptyset(&action.sa_mask);
    CHECK_INT(sigaction(SIGALRM, &action, NULL), ==, 0);
    CHECK_INT(setitimer(ITIMER_REAL, &every, NULL), ==, 0);
}

static void storm_end(void)
{
    CHECK_INT(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL), ==, 0);
    CHECK_INT(signal(SIGALRM, SIG_DFL) == SIG_ERR, ==, 0);
}

static int send_pieces(void *arg)
{
    weir_conn *conn = *(weir_conn **)arg;
    char data[PIECE];

    for (int i = 0; i < ROUNDS; i++) {
        memset(data, i & 0x7f, sizeof data);
        CHECK_OK(weir_conn_send_all(conn, data, sizeof data, NULL));
    }
    return weir_conn_shutdown(conn, SHUT_WR);
}

static int receive_pieces(void *arg)
{
    weir_conn *conn = *(weir_conn **)arg;
    char data[PIECE];

    for (int i = 0; i < ROUNDS; i++) {
        CHECK_OK(weir_conn_read_exact(conn, data, sizeof data, NULL));
        for (size_t n = 0; n < sizeof data; n++) CHECK_INT(data[n], ==, i & 0x7f);
    }
    CHECK_INT(weir_conn_read(conn, data, 1), ==, 0);
    return 0;
}

static int use_files(void *arg)
{
    const char *path = *(char **)arg;
    char data[100], back[100];
    weir_file *file;

    CHECK_OK(weir_file_open(path, O_RDWR | O_CREAT, 0600, &file));
    for (int i = 0; i < ROUNDS / 10; i++) {
        memset(data, 'a' + i % 26, sizeof data);
        CHECK_INT(weir_file_write(file, data, sizeof data, 0), ==, sizeof data);
        CHECK_OK(weir_file_sync(file, true));
        CHECK_INT(weir_file_read(file, back, sizeof back, 0), ==, sizeof back);
        CHECK(memcmp(data, back, sizeof data) == 0);
    }
    CHECK_OK(weir_file_close(file));
    return weir_path_unlink(path);
}

/* A sleep is not cut short by a signal. */
static int sleep_exactly(void *arg)
{
    (void)arg;
    for (int i = 0; i < 10; i++) {
        int64_t start_ns = weir_now_ns();

        CHECK_OK(weir_sleep(5));
        CHECK_INT(weir_now_ns() - start_ns, >=, 5 * INT64_C(1000000));
    }
    return 0;
}

static int child_of_many(void *arg)
{
    int r = weir_sleep(*(int *)arg % 3);
    return r < 0 ? r : *(int *)arg;
}

static int spawn_and_join(void *arg)
{
    int r = 0;

    (void)arg;
    WEIR_SCOPE(scope, &r, .name = "many", .on_failure = WEIR_FAIL_FAST, .max_tasks = 50,
               .overflow = WEIR_WAIT) {
        for (int i = 0; i < ROUNDS; i++) {
            weir_task task = spawn_task(scope, "child", child_of_many, &i, sizeof i);
            int result;

            CHECK_OK(weir_task_join(task, &result));
            CHECK_INT(result, ==, i);
        }
    }
    return r;
}

static int weather_the_storm(void *arg)
{
    char path[] = "/tmp/weir-storm-XXXXXX";
    char *path_pointer = path;
    weir_conn *a, *b;
    int r = 0;
    int fd = mkstemp(path);

    (void)arg;
    CHECK_INT(fd, >=, 0);
    CHECK_INT(close(fd), ==, 0);
    WEIR_DEADLINE(60000) {
        CHECK_OK(weir_socketpair(&a, &b));
        WEIR_SCOPE(scope, &r, .name = "storm", .on_failure = WEIR_FAIL_FAST, .max_tasks = 9,
                   .overflow = WEIR_REJECT) {
            CHECK_OK(weir_spawn(scope, send_pieces, &a, sizeof a));
            CHECK_OK(weir_spawn(scope, receive_pieces, &b, sizeof b));
            CHECK_OK(weir_spawn(scope, use_files, &path_pointer, sizeof path_pointer));
            CHECK_OK(weir_spawn(scope, sleep_exactly, NULL, 0));
            CHECK_OK(weir_spawn(scope, spawn_and_join, NULL, 0));
        }
        weir_conn_close(a);
        weir_conn_close(b);
    }
    return r;
}

TEST_WITH(storm_of_signals_breaks_nothing, .timeout_ms = 60000)
{
    for (int workers = 1; workers <= 2; workers++) {
        storm_begin();
        CHECK_OK(run_on(workers, weather_the_storm, NULL));
        storm_end();
    }
    CHECK_INT(atom_load(&interruptions), >, 10);
}
