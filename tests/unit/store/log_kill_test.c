/* log_kill_test.c - a process that appends is killed, again and again, on a real file system. That
 * says nothing about power cuts (log_crash_test.c does), but all about what a process leaves. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit/store/log_test.h"

enum { KEEP_RECORDS = 200 };

static struct log *store;
static uint64_t number_next;
static uint64_t positions[KEEP_RECORDS]; /* of the last ones, by number */

/* Append the next record. */
static int append_next(uint64_t *ret_number, uint64_t *ret_end)
{
    unsigned char data[STAND_RECORD_BYTES_MAX];
    struct log_place place;
    struct iovec part = {data, stand_record(number_next, data)};
    struct log_options options = {.use = LOG_FOR_NEW, .tag = (uint16_t)number_next};
    int r = log_append(store, &part, 1, &options, &place);

    if (r < 0) return r;
    *ret_number = number_next;
    *ret_end = place.end;
    positions[number_next % KEEP_RECORDS] = place.position;
    number_next++;
    /* What is older than the last few is not needed any more. */
    if (number_next % KEEP_RECORDS == 0) log_trim(store, positions[KEEP_RECORDS / 2]);
    return 0;
}

/* One to four records at a time, which are acknowledged together. */
static int append_for_ever(void)
{
    int r = 0;

    while (r == 0) {
        uint64_t number = 0, end = 0;
        char line[32];
        int bytes;

        for (uint64_t left = 1 + number_next % 4; left > 0 && r == 0; left--)
            r = append_next(&number, &end);
        if (r == 0) r = log_wait(store, end, LOG_SYNCED);
        if (r < 0) break;
        bytes = snprintf(line, sizeof line, "%" PRIu64 "\n", number);
        if (write(STDOUT_FILENO, line, (size_t)bytes) != bytes) r = -EPIPE;
    }
    return r;
}

static int writer_main(struct stand *stand)
{
    int r = stand_try(stand, &store), closed;

    if (r < 0 || stand->is_wrong) {
        fprintf(stderr, "open: %s, %s\n", weir_strerror(r), weir_why());
        return r < 0 ? r : -EBADMSG;
    }
    number_next = stand->replayed > 0 ? stand->next : 0;
    r = append_for_ever();
    closed = log_close(store);
    return r < 0 ? r : closed;
}

static void stand_at(struct stand *stand, const char *path)
{
    stand_make(stand);
    stand_remove(stand);
    stand->spec.path = path;
    stand->spec.segment_bytes = 16384;
}

TEST_PROGRAM(store_writer)
{
    static struct stand stand;

    if (argc < 3) return 2;
    stand_at(&stand, argv[2]);
    return stand_run(&stand, writer_main) < 0 ? 1 : 0;
}

/* Start the program, read so many acknowledgements, kill it; the highest number that it told. */
static uint64_t run_and_kill(const char *path, unsigned lines, uint64_t before)
{
    const char *argv[] = {TEST_PROGRAM_PATH, "store_writer", path, NULL};
    uint64_t last = before, number = 0;
    int fds[2], status;
    unsigned seen = 0;
    bool killed = false;
    pid_t child;
    char text[4096];
    ssize_t n;

    CHECK_INT(pipe2(fds, O_CLOEXEC), ==, 0);
    child = fork();
    CHECK_INT(child, >=, 0);
    if (child == 0) {
        (void)dup2(fds[1], STDOUT_FILENO);
        test_become(argv);
        _exit(127);
    }
    CHECK_INT(close(fds[1]), ==, 0);
    while ((n = read(fds[0], text, sizeof text)) > 0) {
        for (ssize_t i = 0; i < n; i++) {
            if (text[i] != '\n') {
                number = number * 10 + (uint64_t)(text[i] - '0');
                continue;
            }
            if (number + 1 > last) last = number + 1;
            number = 0;
            seen++;
        }
        if (seen >= lines && !killed) {
            CHECK_INT(kill(child, SIGKILL), ==, 0);
            killed = true;
        }
    }
    CHECK_INT(close(fds[0]), ==, 0);
    CHECK_INT(waitpid(child, &status, 0), ==, child);
    if (!killed) TEST_FAIL("the writer ended by itself with status %d", status);
    return last;
}

static int look(struct stand *stand)
{
    struct log *log;

    CHECK_OK(stand_try(stand, &log));
    CHECK(!stand->is_wrong);
    return log_close(log);
}

static void kill_cycles(unsigned cycles)
{
    static struct stand stand;
    char path[] = "/tmp/weir-test-XXXXXX";
    uint64_t acknowledged = 0;

    CHECK(mkdtemp(path) != NULL);
    for (unsigned i = 0; i < cycles; i++) {
        test_note("cycle %u", i);
        acknowledged = run_and_kill(path, i * 7 % 40, acknowledged);
        stand_at(&stand, path);
        CHECK_OK(stand_run(&stand, look));
        CHECK_INT(stand.replayed > 0 ? stand.next : 0, >=, acknowledged);
    }
    folder_remove_all(path);
}

TEST_WITH(log_of_a_process_that_is_killed_loses_nothing, .timeout_ms = 60000)
{
    TEST_SKIP_ON_VALGRIND("it does not follow a program that runs itself anew");
    kill_cycles(TEST_SLOW ? 4 : 12);
}

TEST_WITH(log_of_a_process_that_is_killed_2000_times_loses_nothing, .long_only = true,
          .timeout_ms = 1800000)
{
    TEST_SKIP_ON_VALGRIND("it does not follow a program that runs itself anew");
    kill_cycles(TEST_SLOW ? 40 : 2000);
}
