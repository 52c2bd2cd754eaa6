/* store_kill_test.c - a process that enqueues, leases and settles is killed, again and again, on a
 * real file system. Who looks from outside holds the store to what the process has told.
 *
 * Each line that it writes is one reply: a letter and a number. Jobs have their number in the
 * payload, and in an idempotency key. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "rt/kernel.h"
#include "unit/store/log_test.h"
#include "unit/store/store_test.h"

enum { NUMBERS_MAX = 200000, LINE_BYTES = 64, LEASES = 4, PRODUCERS = 3, TASKS = 5 };

/* ---- The process that is killed ---- */

static weir_store *store;
static ATOM(uint64_t) number_next;

static int tell(char what, uint64_t number, uint64_t id, uint64_t token)
{
    char line[LINE_BYTES];
    int bytes = snprintf(line, sizeof line, "%c %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", what,
                         number, id, token);

    return write(STDOUT_FILENO, line, (size_t)bytes) == bytes ? 0 : -EPIPE;
}

static int produce(void *arg)
{
    int r = 0;

    (void)arg;
    while (r == 0) {
        uint64_t number = atom_add(&number_next, 1);
        weir_enqueued enqueued;
        weir_job_spec spec;
        char payload[LINE_BYTES], key[LINE_BYTES];

        (void)snprintf(payload, sizeof payload, "%" PRIu64, number);
        (void)snprintf(key, sizeof key, "key %" PRIu64, number);
        spec = stand_job("mail", payload);
        spec.idempotency_key = key;
        spec.idempotency_ms = 24 * 3600 * 1000;
        while ((r = weir_job_enqueue(store, &spec, &enqueued)) == WEIR_EOVERLOAD) {
            r = weir_sleep(1);
            if (r < 0) return r;
        }
        if (r == 0) r = tell('e', number, enqueued.id, 0);
    }
    return r;
}

static int work(void *arg)
{
    int r = 0;

    (void)arg;
    while (r == 0) {
        weir_job jobs[LEASES];
        int count = weir_job_lease(
            store,
            &(weir_lease_spec){.queue = "mail", .worker = "w", .count = LEASES, .lease_ms = 60000},
            jobs);

        if (count < 0) return count;
        for (int i = 0; i < count; i++) {
            uint64_t number = strtoull(jobs[i].payload, NULL, 10);

            if (r == 0) r = tell('l', number, jobs[i].id, jobs[i].token);
            if (r == 0 && number % 7 == 3) {
                r = weir_job_release(store, jobs[i].id, jobs[i].token, 0);
                if (r == 0) r = tell('r', number, jobs[i].id, jobs[i].token);
            } else if (r == 0) {
                r = weir_job_ack(store, jobs[i].id, jobs[i].token, "fine", 4);
                if (r == 0) r = tell('a', number, jobs[i].id, jobs[i].token);
            }
            weir_job_free(&jobs[i]);
        }
    }
    return r;
}

static void stand_at(struct store_stand *stand, const char *path)
{
    store_stand_make(stand);
    store_stand_remove(stand);
    stand->spec.path = path;
    stand->spec.queue_depth_max = 50;
    stand->spec.history_count_max = 1000000;
    stand->workers = 1; /* what the tasks share is shared by turns */
}

static int writer_main(struct store_stand *stand)
{
    int r = store_stand_try(stand, &store), done = 0;

    if (r < 0) {
        fprintf(stderr, "open: %s, %s\n", weir_strerror(r), weir_why());
        return r;
    }
    WEIR_SCOPE(scope, &done, .name = "work", .on_failure = WEIR_FAIL_FAST, .max_tasks = TASKS,
               .overflow = WEIR_REJECT) {
        for (int i = 0; i < TASKS && r == 0; i++)
            r = weir_spawn(scope, i < PRODUCERS ? produce : work, NULL, 0);
    }
    return r < 0 ? r : done;
}

/* For a control: who does not sync loses, or a power cut is none. */
static int sync_nothing(const struct kernel *kernel, int fd, bool data_only)
{
    (void)kernel, (void)fd, (void)data_only;
    return 0;
}

TEST_PROGRAM(store_job_writer)
{
    static struct store_stand stand;
    static struct kernel careless;

    if (argc < 4) return 2;
    if (getenv("WEIR_TEST_NO_SYNC")) {
        careless = kernel_epoll;
        careless.fsync = sync_nothing;
        kernel_override(&careless);
    }
    stand_at(&stand, argv[2]);
    atom_store(&number_next, strtoull(argv[3], NULL, 10));
    return store_stand_run(&stand, writer_main) < 0 ? 1 : 0;
}

/* ---- The one who looks ---- */

struct told {
    uint64_t id;
    uint64_t token;
    bool done;
};
static struct told told[NUMBERS_MAX];
static uint64_t number_end; /* behind all that were told */
static uint64_t told_until; /* up to here all have been looked at, and have ended */

static void note(const char *line)
{
    uint64_t number, id, token;
    char what;
    struct told *one;

    CHECK_INT(sscanf(line, "%c %" SCNu64 " %" SCNu64 " %" SCNu64, &what, &number, &id, &token), ==,
              4);
    CHECK_INT(number, <, NUMBERS_MAX);
    one = &told[number];
    CHECK(one->id == 0 || one->id == id); /* one key, one job */
    one->id = id;
    if (number >= number_end) number_end = number + 1;
    if (what == 'l') {
        CHECK(!one->done); /* what has ended is not begun again */
        CHECK_INT(token, >, one->token);
        one->token = token;
    }
    if (what == 'a') {
        CHECK_INT(token, ==, one->token);
        one->done = true;
    }
}

static pid_t start(const char *path, int *ret_fd)
{
    char first[32];
    const char *argv[] = {TEST_PROGRAM_PATH, "store_job_writer", path, first, NULL};
    int fds[2];
    pid_t child;

    (void)snprintf(first, sizeof first, "%" PRIu64, number_end + 8);
    CHECK_INT(pipe2(fds, O_CLOEXEC), ==, 0);
    child = fork();
    CHECK_INT(child, >=, 0);
    if (child == 0) {
        (void)dup2(fds[1], STDOUT_FILENO);
        test_become(argv);
        _exit(127);
    }
    CHECK_INT(close(fds[1]), ==, 0);
    *ret_fd = fds[0];
    return child;
}

/* Start the program, read so many replies, kill it, and read what it has told until then. They are
 * also written to `copy`, if that is not NULL. */
static void run_and_kill(const char *path, unsigned lines, FILE *copy)
{
    int fd, status;
    pid_t child = start(path, &fd);
    FILE *replies = fdopen(fd, "r");
    char line[LINE_BYTES];
    unsigned seen = 0;

    CHECK(replies != NULL);
    while (fgets(line, sizeof line, replies)) {
        if (strchr(line, '\n') == NULL) break;
        note(line);
        if (copy) (void)fputs(line, copy);
        if (seen++ == lines) CHECK_INT(kill(child, SIGKILL), ==, 0);
    }
    CHECK_INT(fclose(replies), ==, 0);
    CHECK_INT(waitpid(child, &status, 0), ==, child);
    if (!WIFSIGNALED(status)) TEST_FAIL("the writer ended by itself with status %d", status);
}

/* All that was told is there. Those that have ended are looked at once, by and by. */
static int look(struct store_stand *stand)
{
    weir_store *opened = store_stand_open(stand);
    bool all_before = true;

    for (uint64_t number = told_until; number < number_end; number++) {
        const struct told *one = &told[number];
        enum weir_job_state state;

        if (one->id == 0) continue;
        state = stand_state(opened, one->id);
        if (one->done) CHECK_INT(state, ==, WEIR_JOB_DONE);
        if (!one->done) all_before = false;
        if (all_before) told_until = number + 1;
    }
    return weir_store_close(opened);
}

/* Jobs whose lease has died with a process are begun again, in time: not here. */
static void kill_cycles(unsigned cycles)
{
    static struct store_stand stand;
    char path[] = "/tmp/weir-test-XXXXXX";

    CHECK(mkdtemp(path) != NULL);
    for (unsigned i = 0; i < cycles; i++) {
        test_note("cycle %u", i);
        run_and_kill(path, i * 13 % 70, NULL);
        stand_at(&stand, path);
        CHECK_OK(store_stand_run(&stand, look));
    }
    CHECK_INT(number_end, >, cycles / 2);
    folder_remove_all(path);
}

TEST_WITH(store_of_a_process_that_is_killed_loses_nothing, .timeout_ms = 120000)
{
    TEST_SKIP_ON_VALGRIND("it does not follow a program that runs itself anew");
    kill_cycles(TEST_SLOW ? 4 : 20);
}

TEST_WITH(store_of_a_process_that_is_killed_2000_times_loses_nothing, .long_only = true,
          .timeout_ms = 1800000)
{
    TEST_SKIP_ON_VALGRIND("it does not follow a program that runs itself anew");
    kill_cycles(TEST_SLOW ? 40 : 2000);
}

/* ---- For tests/crash/run: power cuts ---- */

static void load_replies(const char *path)
{
    FILE *replies = fopen(path, "r");
    char line[LINE_BYTES];

    if (!replies) return; /* the first cycle */
    while (fgets(line, sizeof line, replies)) note(line);
    CHECK_INT(fclose(replies), ==, 0);
}

/* The file system stops where it is, without writing what it has in memory. */
static int cut_power(const char *mount)
{
    uint32_t without_flush = 2;
    int fd = open(mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = fd < 0 ? -errno : 0;

    if (r == 0 && ioctl(fd, _IOR('X', 125, uint32_t), &without_flush) < 0) r = -errno;
    if (fd >= 0) (void)close(fd);
    if (r < 0) fprintf(stderr, "no power cut on %s: %s\n", mount, strerror(-r));
    return r;
}

/* MOUNT REPLIES LINES: work on MOUNT/store until so many replies were told, die, and lose power. */
TEST_PROGRAM(store_power_cycle)
{
    char path[256];
    FILE *copy;

    if (argc < 5) return 2;
    (void)snprintf(path, sizeof path, "%s/store", argv[2]);
    load_replies(argv[3]);
    copy = fopen(argv[3], "a");
    if (!copy) return 2;
    run_and_kill(path, (unsigned)atoi(argv[4]), copy);
    CHECK_INT(fclose(copy), ==, 0);
    return cut_power(argv[2]) < 0 ? 3 : 0;
}

/* MOUNT REPLIES: all that was told is there. */
TEST_PROGRAM(store_power_check)
{
    static struct store_stand stand;
    static char path[256];

    if (argc < 4) return 2;
    (void)snprintf(path, sizeof path, "%s/store", argv[2]);
    load_replies(argv[3]);
    stand_at(&stand, path);
    stand.spec.create = number_end == 0;
    return store_stand_run(&stand, look) < 0 ? 1 : 0;
}
