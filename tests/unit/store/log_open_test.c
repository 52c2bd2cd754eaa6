/* log_open_test.c - a log is made, filled, closed and opened again. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "unit/store/log_test.h"

LOG_TEST(log_that_is_new_is_empty_and_stays_so)
{
    struct log_figures figures;
    struct log *log = stand_open(stand);

    CHECK_INT(stand->replayed, ==, 0);
    log_figures(log, &figures);
    CHECK_INT(figures.first, ==, LOG_POSITION_FIRST);
    CHECK_INT(figures.end, ==, LOG_POSITION_FIRST);
    stand_close(log);
    log = stand_open(stand);
    CHECK_INT(stand->replayed, ==, 0);
    log_figures(log, &figures);
    CHECK_INT(figures.end, ==, LOG_POSITION_FIRST);
    stand_close(log);
}

LOG_TEST(log_gives_back_what_was_appended_in_order)
{
    struct log *log = stand_open(stand);

    stand_append(stand, log, 10);
    stand_close(log);
    log = stand_open(stand);
    stand_check(stand, 10);
    stand_append(stand, log, 5);
    stand_close(log);
    log = stand_open(stand);
    stand_check(stand, 15);
    stand_close(log);
}

LOG_TEST(log_goes_on_over_many_segments)
{
    struct log_figures figures;
    struct log *log = stand_open(stand);

    for (int i = 0; i < 30; i++) stand_append(stand, log, 10);
    log_figures(log, &figures);
    CHECK_INT(figures.segment_count, >, 5);
    stand_close(log);
    log = stand_open(stand);
    stand_check(stand, 300);
    stand_close(log);
}

LOG_TEST(log_without_waiting_writes_everything_at_its_close)
{
    struct log *log = stand_open(stand);

    for (int i = 0; i < 200; i++) CHECK_OK(stand_append_one(stand, log, LOG_FOR_NEW));
    stand_close(log);
    log = stand_open(stand);
    stand_check(stand, 200);
    stand_close(log);
}

LOG_TEST(log_is_opened_once_at_a_time_and_says_by_whom)
{
    struct log *log = stand_open(stand), *other;

    CHECK_INT(stand_try(stand, &other), ==, -EBUSY);
    CHECK_CONTAINS(weir_why(), "is in use by process");
    CHECK_CONTAINS(weir_why(), stand->path);
    stand_close(log);
    stand_close(stand_open(stand));
}

LOG_TEST(log_that_is_not_there_is_not_made_unless_asked_for)
{
    struct log *log;

    stand->spec.create = false;
    CHECK_INT(stand_try(stand, &log), ==, -ENOENT);
    CHECK_CONTAINS(weir_why(), "no store");
    stand->spec.path = "/tmp/weir-test-is-not-there";
    CHECK_INT(stand_try(stand, &log), ==, -ENOENT);
}

LOG_TEST(log_open_refuses_a_spec_that_cannot_be)
{
    struct log_spec good = stand->spec;
    struct log *log;

    stand->spec.path = NULL;
    CHECK_INT(stand_try(stand, &log), ==, WEIR_EREFUSED);
    stand->spec = good;
    stand->spec.replay = NULL;
    CHECK_INT(stand_try(stand, &log), ==, WEIR_EREFUSED);
    stand->spec = good;
    stand->spec.segment_bytes = 5000;
    CHECK_INT(stand_try(stand, &log), ==, WEIR_EREFUSED);
    stand->spec = good;
    stand->spec.record_bytes_max = stand->spec.buffer_bytes;
    CHECK_INT(stand_try(stand, &log), ==, WEIR_EREFUSED);
    stand->spec = good;
    stand->spec.buffer_bytes = 1 << 20;
    stand->spec.record_bytes_max = STAND_SEGMENT_BYTES;
    CHECK_INT(stand_try(stand, &log), ==, -EMSGSIZE);
    CHECK_CONTAINS(weir_why(), "record_bytes_max");
}

LOG_TEST(log_replay_that_says_no_ends_open_and_changes_nothing)
{
    struct log *log = stand_open(stand);

    stand_append(stand, log, 10);
    stand_close(log);
    stand->refuse_at = 4;
    CHECK_INT(stand_try(stand, &log), ==, -EDOM);
    CHECK_INT(stand->replayed, ==, 4);
    stand->refuse_at = 0;
    log = stand_open(stand);
    stand_check(stand, 10);
    stand_close(log);
}
