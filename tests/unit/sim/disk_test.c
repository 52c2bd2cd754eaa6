/* disk_test.c - a log on a simulated disk: hosts are killed and find what they were promised. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <weir/error.h>
#include <weir/file.h>
#include <weir/scope.h>
#include <weir/sim.h>
#include <weir/task.h>

#include "harness/test.h"

enum { RECORDS = 6, RECORD_BYTES = 300, LIVES_MAX = 40 };

/* How the log is written: right, and in the ways that lose something. */
enum care {
    CAREFUL,
    NEVER_SYNCS,
    SYNCS_NO_DIRECTORY,
    PROMISES_FIRST,  /* and syncs then */
    TRIES_AGAIN,     /* a sync that failed, and believes the next one */
    TRUSTS_THE_SIZE, /* and looks at no sums when it recovers */
};

/* What outlives the host: what it has promised to others. */
static int promised;
static int lives;
static bool wants_power_cut;

struct record {
    uint32_t number;
    uint32_t sum;
    unsigned char data[RECORD_BYTES - 8];
};

static void record_make(struct record *record, uint32_t number)
{
    record->number = number;
    record->sum = number * 2654435761u + 1;
    for (size_t i = 0; i < sizeof record->data; i++) {
        record->data[i] = (unsigned char)(number * 7 + i);
        record->sum = record->sum * 31 + record->data[i];
    }
}

/* A log that is there, with a name that is durable. */
static int log_open(enum care care, weir_file **ret_file)
{
    weir_file *directory;
    int r = weir_file_open("/log", O_RDWR | O_CREAT, 0644, ret_file);

    if (r < 0 || care == SYNCS_NO_DIRECTORY || care == NEVER_SYNCS) return r;
    r = weir_file_open("/", O_RDONLY | O_DIRECTORY, 0, &directory);
    if (r == 0) {
        int closed;

        r = weir_file_sync(directory, false);
        if (r == -EIO) wants_power_cut = true;
        closed = weir_file_close(directory);
        if (r == 0) r = closed;
    }
    if (r < 0 && weir_file_close(*ret_file) < 0) weir_sim_fail("a close has failed");
    return r;
}

/* How many whole records there are. */
static int log_recover(weir_file *file, enum care care)
{
    int count = 0;

    for (;;) {
        struct record record, expected;
        ssize_t n = weir_file_read(file, &record, sizeof record, (int64_t)count * RECORD_BYTES);

        if (n == -EIO) continue; /* a read can be tried again */
        if (n < 0) return (int)n;
        if (n < RECORD_BYTES) return count;
        record_make(&expected, (uint32_t)count);
        if (memcmp(&record, &expected, sizeof record) != 0) {
            if (care != TRUSTS_THE_SIZE) return count;
            weir_sim_fail("record %d is not what was written", count);
        }
        count++;
    }
}

static int log_append(weir_file *file, int number, enum care care)
{
    struct record record;
    ssize_t n;
    int r = 0;

    record_make(&record, (uint32_t)number);
    n = weir_file_write(file, &record, sizeof record, (int64_t)number * RECORD_BYTES);
    if (n < 0) return (int)n;
    if (n < RECORD_BYTES) return -ENOSPC;
    if (care == PROMISES_FIRST) promised = number + 1;
    if (care != NEVER_SYNCS) r = weir_file_sync(file, true);
    if (r == -EIO && care == TRIES_AGAIN) r = weir_file_sync(file, true);
    if (r == -EIO) wants_power_cut = true;
    if (r == 0 && promised <= number) promised = number + 1;
    return r;
}

static int keep_log(enum care care)
{
    weir_file *file;
    int r = log_open(care, &file);
    int count;

    if (r < 0) return r;
    count = log_recover(file, care);
    if (count >= 0 && count < promised) {
        weir_sim_fail("%d records were promised and %d are there", promised, count);
    }
    r = count < 0 ? count : 0;
    while (r == 0 && count < RECORDS) {
        r = log_append(file, count, care);
        if (r == 0) count++;
        if (r == 0) r = weir_sleep(1);
    }
    if (weir_file_close(file) < 0) weir_sim_fail("a close has failed");
    return r;
}

/* The program of the host that has the log; from the start again after each kill. */
static int store(void *arg)
{
    const enum care *care = arg;
    int r = 0;

    WEIR_DEADLINE(60000) {
        r = keep_log(*care);
        /* After a sync that failed nothing that can be read is to be trusted: only a power cut
         * shows what is there. */
        while (wants_power_cut && r == -EIO) {
            if (weir_sleep(1) < 0) break;
        }
    }
    return r;
}

static int drive(void *arg)
{
    const weir_config config = {.workers = test_workers()};
    weir_sim_host *host;
    int r = weir_sim_host_start(&(weir_sim_host_spec){.name = "store",
                                                      .fn = store,
                                                      .arg = arg,
                                                      .arg_bytes = sizeof(enum care),
                                                      .config = &config},
                                &host);

    while (r == 0 && lives < LIVES_MAX) {
        r = weir_sleep(2);
        if (wants_power_cut && weir_sim_host_running(host)) {
            wants_power_cut = false;
            weir_sim_host_kill(host);
        }
        if (weir_sim_host_running(host)) continue;
        if (weir_sim_host_result(host) == 0) return r;
        /* After a kill by a fault it is started by itself, if nobody does so earlier. */
        lives++;
        if (r == 0) r = weir_sim_host_restart(host);
    }
    if (r == 0) weir_sim_fail("the log is not done after %d lives", lives);
    return r;
}

static void put_back(void *arg)
{
    (void)arg;
    promised = 0;
    lives = 0;
    wants_power_cut = false;
}

static int explore_log(enum care care, uint64_t runs, weir_sim_faults faults,
                       weir_sim_result *ret_result)
{
    test_skip_without_sim();
    faults.late_ms_max = 3;
    return weir_sim_run(
        &(weir_sim_spec){
            .name = "log",
            .runs_max = runs,
            .seed = 1,
            .begin = put_back,
            .faults = faults,
            .quiet = true,
            .ret_result = ret_result,
        },
        drive, &care);
}

TEST_WITH(disk_a_log_that_syncs_keeps_what_it_has_promised, .timeout_ms = 60000)
{
    uint64_t runs = TEST_SLOW ? 200 : 3000;
    weir_sim_result result;
    int r = explore_log(CAREFUL, runs, (weir_sim_faults){.kill = 15}, &result);

    if (r != 0) TEST_FAIL("%s; WEIR_SIM=%s", result.failure, result.replay);
    CHECK_INT(result.runs, ==, runs);
    r = explore_log(
        CAREFUL, runs,
        (weir_sim_faults){
            .kill = 30, .disk_error = 20, .disk_full = 20, .sync_error = 10, .faults_max = 12},
        &result);
    if (r != 0) TEST_FAIL("%s; WEIR_SIM=%s", result.failure, result.replay);
}

/* The same with one thing left out must lose something, or the test above says nothing. */
static void check_loses(enum care care, weir_sim_faults faults, uint64_t runs, const char *words)
{
    weir_sim_result result;

    CHECK_INT(explore_log(care, runs, faults, &result), ==, WEIR_EFOUND);
    CHECK_CONTAINS(result.failure, words);
}

TEST_WITH(disk_a_log_that_never_syncs_loses_what_it_has_promised, .timeout_ms = 60000)
{
    check_loses(NEVER_SYNCS, (weir_sim_faults){.kill = 15}, 20, "were promised");
}

TEST_WITH(disk_a_log_whose_directory_is_not_synced_is_lost, .timeout_ms = 60000)
{
    check_loses(SYNCS_NO_DIRECTORY, (weir_sim_faults){.kill = 15}, 20, "were promised");
}

TEST_WITH(disk_a_log_that_promises_before_it_syncs_breaks_its_word, .timeout_ms = 60000)
{
    check_loses(PROMISES_FIRST, (weir_sim_faults){.kill = 15}, 200, "were promised");
}

TEST_WITH(disk_a_log_that_syncs_again_after_an_error_loses_data, .timeout_ms = 60000)
{
    check_loses(TRIES_AGAIN, (weir_sim_faults){.kill = 15, .sync_error = 5}, 200, "were promised");
}

TEST_WITH(disk_a_log_that_trusts_its_size_finds_torn_records, .timeout_ms = 60000)
{
    check_loses(TRUSTS_THE_SIZE, (weir_sim_faults){.kill = 15}, 500, "not what was written");
}

/* ---- The calls in a run ---- */

static void call_all(void)
{
    struct stat first, second;
    weir_listing *listing;
    weir_file *file;
    char data[8];

    if (weir_path_mkdir("/d", 0755) != 0) weir_sim_fail("mkdir");
    if (weir_file_open("/d/f", O_RDWR | O_CREAT, 0644, &file) != 0) weir_sim_fail("open");
    if (weir_file_write(file, "hello", 5, 0) != 5) weir_sim_fail("write");
    if (weir_file_read(file, data, sizeof data, 1) != 4) weir_sim_fail("read");
    if (memcmp(data, "ello", 4) != 0) weir_sim_fail("what was read");
    if (weir_file_read(file, data, 1, -1) != -EINVAL) weir_sim_fail("negative offset");
    if (weir_path_rename("/d/f", "/d/g") != 0) weir_sim_fail("rename");
    if (weir_file_stat(file, &first) != 0) weir_sim_fail("stat of the file");
    if (weir_path_stat("/d/g", &second) != 0) weir_sim_fail("stat of the path");
    if (first.st_ino != second.st_ino || first.st_dev != second.st_dev || first.st_size != 5)
        weir_sim_fail("identity");
    if (weir_path_list("/d", 8, &listing) != 0) weir_sim_fail("list");
    if (weir_listing_count(listing) != 1 || strcmp(weir_listing_name(listing, 0), "g") != 0)
        weir_sim_fail("what was listed");
    weir_listing_free(listing);
    if (weir_path_unlink("/d/g") != 0) weir_sim_fail("unlink");
    if (weir_path_unlink("/d/g") != -ENOENT) weir_sim_fail("unlink again");
    if (weir_file_read(file, data, sizeof data, 0) != 5) weir_sim_fail("read of what is unlinked");
    if (weir_file_close(file) != 0) weir_sim_fail("close");
}

static int use_calls(void *arg)
{
    (void)arg;
    WEIR_DEADLINE(1000) { call_all(); }
    return 0;
}

TEST(disk_calls_of_a_program_go_to_its_simulated_disk)
{
    weir_sim_result result;
    int r;

    test_skip_without_sim();
    r = weir_sim_run(
        &(weir_sim_spec){.name = "calls", .runs_max = 200, .quiet = true, .ret_result = &result},
        use_calls, NULL);

    if (r != 0) TEST_FAIL("%s; WEIR_SIM=%s", result.failure, result.replay);
}
