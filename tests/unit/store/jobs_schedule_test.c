/* jobs_schedule_test.c - schedules through a store: cron, zones of a folder of the test's own, the
 * change of clocks, overlap, catch-up. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit/engine/zones.h"
#include "unit/store/jobs_test.h"

#define HOUR_MS INT64_C(3600000)
#define DAY_MS (24 * HOUR_MS)

static void write_zone(const char *folder, const char *name, enum zones_id id)
{
    uint8_t data[ZONES_FILE_BYTES];
    size_t bytes = zones_write(&zones[id], 2, data);
    char path[256];
    int fd;

    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    CHECK(fd >= 0);
    CHECK_INT(write(fd, data, bytes), ==, (ssize_t)bytes);
    CHECK_INT(close(fd), ==, 0);
}

static char zones_folder[128];

static void with_zones(struct jobs_stand *stand)
{
    /* Beside the store's files, so that they go with it. */
    char area[160];

    (void)snprintf(zones_folder, sizeof zones_folder, "%s-zones", stand->base.path);
    (void)snprintf(area, sizeof area, "%s/Europe", zones_folder);
    CHECK_INT(mkdir(zones_folder, 0755), ==, 0);
    CHECK_INT(mkdir(area, 0755), ==, 0);
    write_zone(zones_folder, "Europe/Berlin", BERLIN);
    stand->base.spec.zones = zones_folder;
}

static void remove_zones(void)
{
    char path[256];

    (void)snprintf(path, sizeof path, "%s/Europe/Berlin", zones_folder);
    CHECK(unlink(path) == 0 || errno == ENOENT);
    (void)snprintf(path, sizeof path, "%s/Europe", zones_folder);
    CHECK_INT(rmdir(path), ==, 0);
    CHECK_INT(rmdir(zones_folder), ==, 0);
}

static weir_schedule_spec schedule(const char *cron)
{
    return (weir_schedule_spec){.name = "report",
                                .cron = cron,
                                .overlap = WEIR_OVERLAP_ALLOW,
                                .catch_up = WEIR_CATCH_UP_ONE,
                                .job = stand_job("q", "daily")};
}

static weir_schedule_info only_schedule(weir_store *store)
{
    weir_schedule_info info, none;
    uint32_t cursor = 0;

    CHECK_INT(weir_schedule_next(store, &cursor, &info), ==, 1);
    CHECK_INT(weir_schedule_next(store, &cursor, &none), ==, 0);
    return info;
}

static uint64_t made(weir_store *store)
{
    weir_queue_figures figures;

    return weir_queue_get(store, "q", &figures) < 0 ? 0 : figures.by_state[WEIR_JOB_READY];
}

JOBS_TEST(a_schedule_makes_a_job_each_time)
{
    weir_store *store = stand->store;
    weir_schedule_spec spec = schedule("*/15 * * * *");
    weir_schedule_info info;
    weir_job job;

    CHECK_OK(weir_schedule_set(store, &spec));
    info = only_schedule(store);
    CHECK_STR(info.name, "report");
    CHECK_STR(info.cron, "*/15 * * * *");
    CHECK_STR(info.zone, "");
    CHECK_INT(info.next_ms, ==, JOBS_START_MS + HOUR_MS / 4);
    jobs_pass_ms(HOUR_MS / 4 - 1);
    CHECK_INT(jobs_lease(store, "q", NULL), ==, 0);
    jobs_pass_ms(1);
    JOBS_UNTIL(made(store) == 1);
    jobs_pass_ms(HOUR_MS / 4);
    JOBS_UNTIL(made(store) == 2);
    CHECK_INT(stand_lease(store, "q", &job), ==, 1);
    CHECK_INT(job.payload_bytes, ==, 5);
    CHECK(memcmp(job.payload, "daily", 5) == 0);
    weir_job_free(&job);
    CHECK_OK(weir_schedule_drop(store, "report"));
    CHECK_INT(weir_schedule_drop(store, "report"), ==, -ENOENT);
    jobs_pass_ms(HOUR_MS);
    CHECK_INT(made(store), ==, 1);
}

/* Berlin goes from 02:00 to 03:00 on 2025-03-30, which is 01:00 UTC. */
JOBS_TEST_WITH(a_schedule_follows_the_clocks_of_its_zone, with_zones, .hidden = false)
{
    weir_store *store = stand->store;
    weir_schedule_spec spec = schedule("30 2 * * *");
    int64_t midnight_ms = JOBS_START_MS + 12 * HOUR_MS; /* of the 30th, UTC */

    spec.zone = "Europe/Berlin";
    CHECK_OK(weir_schedule_set(store, &spec));
    /* 02:30 is not shown that day: it runs when the gap has passed. */
    CHECK_INT(only_schedule(store).next_ms, ==, midnight_ms + HOUR_MS);
    CHECK_STR(only_schedule(store).zone, "Europe/Berlin");
    jobs_reopen(stand); /* the zone is read anew */
    store = stand->store;
    CHECK(!only_schedule(store).zone_missing);
    jobs_pass_ms(13 * HOUR_MS);
    JOBS_UNTIL(made(store) == 1);
    /* From now on summer time: 02:30 is 00:30 UTC. */
    CHECK_INT(only_schedule(store).next_ms, ==, midnight_ms + DAY_MS + HOUR_MS / 2);
    remove_zones();
}

JOBS_TEST_WITH(a_schedule_without_its_zone_is_refused_or_waits_for_it, with_zones, .hidden = false)
{
    weir_store *store = stand->store;
    weir_schedule_spec spec = schedule("30 2 * * *");
    char path[256];

    spec.zone = "Europe/Atlantis";
    CHECK_INT(weir_schedule_set(store, &spec), ==, -ENOENT);
    CHECK_CONTAINS(weir_why(), "zone 'Europe/Atlantis'");
    spec.zone = "../../etc/passwd";
    CHECK_INT(weir_schedule_set(store, &spec), ==, -ENOENT);
    CHECK_CONTAINS(weir_why(), "is no name of a zone");
    spec.zone = "Europe/Berlin";
    CHECK_OK(weir_schedule_set(store, &spec));
    (void)snprintf(path, sizeof path, "%s/Europe/Berlin", zones_folder);
    CHECK_INT(unlink(path), ==, 0);
    jobs_reopen(stand);
    CHECK(only_schedule(stand->store).zone_missing);
    /* The time that was decided comes; what comes behind it nobody knows. */
    jobs_pass_ms(2 * DAY_MS);
    JOBS_UNTIL(made(stand->store) == 1);
    CHECK_INT(only_schedule(stand->store).next_ms, ==, 0);
    jobs_pass_ms(2 * DAY_MS);
    CHECK_INT(made(stand->store), ==, 1);
    write_zone(zones_folder, "Europe/Berlin", BERLIN);
    jobs_reopen(stand);
    CHECK(!only_schedule(stand->store).zone_missing);
    JOBS_UNTIL(only_schedule(stand->store).next_ms > jobs_now_ms());
    remove_zones();
}

JOBS_TEST(a_schedule_that_was_missed_comes_as_it_says)
{
    static const struct {
        enum weir_catch_up catch_up;
        uint64_t jobs;
    } rows[] = {{WEIR_CATCH_UP_ALL, 5}, {WEIR_CATCH_UP_ONE, 1}, {WEIR_CATCH_UP_NONE, 0}};
    uint64_t before = 0;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weir_schedule_spec spec = schedule("0 * * * *");

        spec.catch_up = rows[i].catch_up;
        CHECK_OK(weir_schedule_set(stand->store, &spec));
        CHECK_OK(weir_store_close(stand->store));
        jobs_pass_ms(5 * HOUR_MS + HOUR_MS / 4);
        stand->store = store_stand_open(&stand->base);
        JOBS_UNTIL(only_schedule(stand->store).next_ms > jobs_now_ms());
        CHECK_INT(made(stand->store) - before, ==, rows[i].jobs);
        before = made(stand->store);
        jobs_pass_ms(HOUR_MS * 3 / 4 - 60000); /* close to the hour, and not there */
        CHECK_OK(weir_schedule_drop(stand->store, "report"));
        jobs_pass_ms(60000);
    }
}

JOBS_TEST(a_schedule_whose_job_still_waits_is_skipped_if_it_says_so)
{
    weir_store *store = stand->store;
    weir_schedule_spec spec = schedule("* * * * *");

    spec.overlap = WEIR_OVERLAP_SKIP;
    CHECK_OK(weir_schedule_set(store, &spec));
    jobs_pass_ms(60000);
    JOBS_UNTIL(made(store) == 1);
    jobs_pass_ms(60000);
    JOBS_UNTIL(only_schedule(store).skipped == 1);
    CHECK_INT(made(store), ==, 1);
    CHECK_INT(jobs_work(store, "q"), ==, only_schedule(store).last_id);
    jobs_pass_ms(60000);
    JOBS_UNTIL(made(store) == 1);
    spec.paused = true;
    CHECK_OK(weir_schedule_set(store, &spec));
    CHECK(only_schedule(store).paused);
}

JOBS_TEST(a_schedule_that_makes_no_sense_is_refused_by_name)
{
    weir_store *store = stand->store;
    weir_schedule_spec spec = schedule("61 * * * *");

    CHECK_INT(weir_schedule_set(store, &spec), ==, -EINVAL);
    CHECK_CONTAINS(weir_why(), "minute");
    spec = schedule("* * * * *");
    spec.overlap = WEIR_OVERLAP_UNSET;
    CHECK_INT(weir_schedule_set(store, &spec), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "overlap is not set");
    spec = schedule("* * * * *");
    spec.catch_up = WEIR_CATCH_UP_UNSET;
    CHECK_INT(weir_schedule_set(store, &spec), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "catch_up is not set");
    spec = schedule("");
    CHECK_INT(weir_schedule_set(store, &spec), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "cron is not set");
    spec = schedule("* * * * *");
    spec.job.delay_ms = 1;
    CHECK_INT(weir_schedule_set(store, &spec), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "a time of its own");
    spec = schedule("* * * * *");
    spec.job.idempotency_key = "k";
    spec.job.idempotency_ms = 1000;
    CHECK_INT(weir_schedule_set(store, &spec), ==, -EINVAL);
}
