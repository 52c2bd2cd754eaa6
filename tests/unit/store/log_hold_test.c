/* log_hold_test.c - who fills segments faster than compaction lets them go waits for it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "unit/store/log_test.h"

/* A task that appends until it has appended enough, or is told to stop. */
struct writer {
    struct log *log;
    enum log_use use;
    unsigned count;
    int64_t deadline_ms; /* of each record; 0: that of the test */
    ATOM(unsigned) done;
    ATOM(int) result;
};

static int append_one(struct log *log, enum log_use use)
{
    static const unsigned char data[500];
    struct iovec part = {(void *)(uintptr_t)data, sizeof data};
    struct log_place place;

    return log_append(log, &part, 1, &(struct log_options){.use = use}, &place);
}

static int write_all(void *arg)
{
    struct writer *writer = *(struct writer **)arg;
    int r = 0;

    for (unsigned i = 0; i < writer->count && r == 0; i++) {
        if (writer->deadline_ms > 0) {
            WEIR_DEADLINE(writer->deadline_ms) r = append_one(writer->log, writer->use);
        } else {
            r = append_one(writer->log, writer->use);
        }
        if (r == 0) (void)atom_add(&writer->done, 1);
    }
    atom_store(&writer->result, r);
    return 0;
}

static void start(weir_scope *scope, struct writer *writer)
{
    CHECK_OK(weir_spawn(scope, write_all, &writer, sizeof writer));
}

/* With the last one, which may be no file yet. */
static uint64_t segments(struct log *log)
{
    struct log_figures figures;

    log_figures(log, &figures);
    CHECK_OK(log_wait(log, figures.end, LOG_WRITTEN));
    log_figures(log, &figures);
    return figures.segment_count;
}

/* Until so many waits for compaction have begun; the test's deadline bounds it. */
static void await_held(struct log *log, uint64_t count)
{
    struct log_figures figures;

    do {
        CHECK_OK(weir_yield());
        log_figures(log, &figures);
    } while (figures.held_back < count && figures.error == 0);
    CHECK_OK(figures.error);
}

/* The oldest segments are not needed; until the keeper has let them go. */
static void let_go(struct log *log, unsigned count)
{
    struct log_figures figures;
    uint64_t end = 0;

    for (unsigned i = 0; i < count; i++) {
        end = log_oldest_end(log);
        log_trim(log, end);
    }
    do {
        CHECK_OK(weir_yield());
        log_figures(log, &figures);
    } while (figures.first < end);
}

#define HELD_SCOPE(name_, result_)                                                              \
    WEIR_SCOPE(name_, result_, .name = "writers", .on_failure = WEIR_FAIL_FAST, .max_tasks = 4, \
               .overflow = WEIR_REJECT)

enum { MANY = 200 }; /* records: more than a dozen segments */

LOG_TEST(log_holds_new_work_back_while_compaction_is_behind)
{
    struct log *log = stand_open(stand);
    struct writer writer = {.log = log, .use = LOG_FOR_NEW, .count = MANY};
    int r = 0;

    HELD_SCOPE(scope, &r)
    {
        log_hold_back(log, LOG_HOLDS_WHILE_COMPACTED);
        start(scope, &writer);
        await_held(log, 1);
        CHECK_INT(segments(log), ==, 1 + LOG_HELD_SEGMENTS); /* nothing is needed */
        /* Who compacts waits for nobody. */
        CHECK_OK(append_one(log, LOG_FOR_EXISTING));
        CHECK_OK(append_one(log, LOG_FOR_COMPACTION));
        let_go(log, 2);
        await_held(log, 2);
        CHECK_INT(segments(log), <=, 1 + LOG_HELD_SEGMENTS);
        CHECK_INT(atom_load(&writer.done), <, MANY);
        log_hold_back(log, LOG_HOLDS_NOBODY);
    }
    CHECK_OK(r);
    CHECK_OK(atom_load(&writer.result));
    CHECK_INT(atom_load(&writer.done), ==, MANY);
    CHECK_INT(segments(log), >, 1 + LOG_HELD_SEGMENTS);
    CHECK_OK(log_close(log));
}

/* Who compacts has not come to it yet, be it for want of a processor. */
LOG_TEST(log_holds_new_work_back_once_compaction_is_due_again)
{
    struct log *log = stand_open(stand);
    struct writer writer = {.log = log, .use = LOG_FOR_NEW, .count = MANY};
    int r = 0;

    HELD_SCOPE(scope, &r)
    {
        log_hold_back(log, LOG_HOLDS_WHILE_LET_GO);
        start(scope, &writer);
        await_held(log, 1);
        CHECK_INT(segments(log), ==, 1 + LOG_HELD_SEGMENTS);
        CHECK_OK(append_one(log, LOG_FOR_EXISTING));
        let_go(log, 2); /* then it is not due any more, and whoever compacts says that it rests */
        log_hold_back(log, LOG_HOLDS_WHILE_LET_GO);
        await_held(log, 2);
        log_hold_back(log, LOG_HOLDS_NOBODY);
    }
    CHECK_OK(r);
    CHECK_OK(atom_load(&writer.result));
    CHECK_INT(atom_load(&writer.done), ==, MANY);
    CHECK_OK(log_close(log));
}

/* A lease that could not be renewed meanwhile would be lost. */
LOG_TEST(log_never_holds_existing_work_back)
{
    struct log *log = stand_open(stand);
    struct writer new = {.log = log, .use = LOG_FOR_NEW, .count = MANY};
    struct writer existing = {.log = log, .use = LOG_FOR_EXISTING, .count = MANY};
    int r = 0;

    HELD_SCOPE(scope, &r)
    {
        log_hold_back(log, LOG_HOLDS_WHILE_COMPACTED);
        start(scope, &new);
        await_held(log, 1);
        start(scope, &existing);
        while (atom_load(&existing.done) < MANY) CHECK_OK(weir_yield());
        CHECK_INT(atom_load(&new.done), <, MANY);
        log_hold_back(log, LOG_HOLDS_NOBODY);
    }
    CHECK_OK(r);
    CHECK_INT(atom_load(&new.done), ==, MANY);
    CHECK_OK(log_close(log));
}

LOG_TEST(log_counts_what_is_needed_before_it_holds_anybody_back)
{
    struct log *log = stand_open(stand);
    struct writer writer = {.log = log, .use = LOG_FOR_NEW, .count = MANY};
    struct log_figures figures;
    int r = 0;

    HELD_SCOPE(scope, &r)
    {
        CHECK_OK(append_one(log, LOG_FOR_NEW));
        log_figures(log, &figures);
        log_live(log, &(struct log_live){figures.first, 2 * (int64_t)figures.segment_bytes},
                 1); /* as if it were so long */
        log_hold_back(log, LOG_HOLDS_WHILE_COMPACTED);
        start(scope, &writer);
        await_held(log, 1);
        CHECK_INT(segments(log), ==, 2 * 2 + 1 + LOG_HELD_SEGMENTS);
        log_hold_back(log, LOG_HOLDS_NOBODY);
    }
    CHECK_OK(r);
    CHECK_OK(log_close(log));
}

/* Half of what is let go is for others, until what was there too much has gone. */
LOG_TEST(log_does_not_hold_anybody_back_for_what_was_there_before)
{
    struct log *log = stand_open(stand);
    struct writer writer = {.log = log, .use = LOG_FOR_NEW, .count = MANY};
    uint64_t before;
    int r = 0;

    for (int i = 0; i < MANY; i++) CHECK_OK(append_one(log, LOG_FOR_NEW));
    HELD_SCOPE(scope, &r)
    {
        log_hold_back(log, LOG_HOLDS_WHILE_COMPACTED);
        start(scope, &writer);
        await_held(log, 1);
        before = segments(log);
        CHECK_INT(before, >, 10);
        let_go(log, 1); /* of which it has a half, which is none */
        await_held(log, 2);
        CHECK_INT(segments(log), ==, before - 1);
        let_go(log, 1); /* now it has one */
        await_held(log, 3);
        CHECK_INT(segments(log), ==, before - 1);
        log_hold_back(log, LOG_HOLDS_NOBODY);
    }
    CHECK_OK(r);
    CHECK_OK(atom_load(&writer.result));
    CHECK_OK(log_close(log));
}

LOG_TEST(log_tells_who_is_held_back_when_it_is_closed)
{
    struct log *log = stand_open(stand);
    struct writer writer = {.log = log, .use = LOG_FOR_NEW, .count = MANY};
    int r = 0;

    HELD_SCOPE(scope, &r)
    {
        log_hold_back(log, LOG_HOLDS_WHILE_COMPACTED);
        start(scope, &writer);
        await_held(log, 1);
        log_shut(log);
    }
    CHECK_OK(r);
    CHECK_INT(atom_load(&writer.result), ==, WEIR_ECLOSED);
    CHECK_OK(log_close(log));
}

LOG_TEST(log_holds_nobody_back_beyond_a_deadline)
{
    struct log *log = stand_open(stand);
    struct writer writer = {.log = log, .use = LOG_FOR_NEW, .count = MANY, .deadline_ms = 100};
    int r = 0;

    HELD_SCOPE(scope, &r)
    {
        log_hold_back(log, LOG_HOLDS_WHILE_COMPACTED);
        start(scope, &writer);
    }
    CHECK_OK(r);
    CHECK_INT(atom_load(&writer.result), ==, WEIR_ETIMEDOUT);
    CHECK_INT(segments(log), <=, 1 + LOG_HELD_SEGMENTS);
    CHECK_OK(log_close(log));
}

/* Nothing is let go while it is made: so who waits looks again, and goes on if it comes in time. */
LOG_TEST(log_wakes_who_is_held_back_when_a_copy_is_made)
{
    struct log *log = stand_open(stand);
    struct writer writer = {.log = log, .use = LOG_FOR_NEW, .count = MANY};
    char folder[128];
    int r = 0;

    stand_file(stand, "copy", folder);
    HELD_SCOPE(scope, &r)
    {
        struct log_figures figures;

        log_hold_back(log, LOG_HOLDS_WHILE_COMPACTED);
        start(scope, &writer);
        await_held(log, 1);
        CHECK_OK(log_copy(log, folder));
        do {
            CHECK_OK(weir_yield());
            log_figures(log, &figures);
        } while (figures.held_back < 2 && atom_load(&writer.done) < MANY);
        log_hold_back(log, LOG_HOLDS_NOBODY);
    }
    CHECK_OK(r);
    CHECK_OK(log_close(log));
    folder_remove_all(folder);
}

/* Compaction stands as well then: whoever waited for it is refused, as who comes later is. */
static int no_space_while_held(struct stand *stand)
{
    struct log *log = stand_open(stand);
    struct writer writer = {.log = log, .use = LOG_FOR_NEW, .count = MANY};
    struct log_figures figures;
    int r = 0;

    HELD_SCOPE(scope, &r)
    {
        log_hold_back(log, LOG_HOLDS_WHILE_COMPACTED);
        start(scope, &writer);
        await_held(log, 1);
        log_figures(log, &figures);
        CHECK_OK(log_wait(log, figures.end, LOG_SYNCED));
        test_fault("pwrite", -ENOSPC, 1000000);
        CHECK_OK(append_one(log, LOG_FOR_COMPACTION));
        WEIR_DEADLINE(20) {
            log_figures(log, &figures);
            CHECK_INT(log_wait(log, figures.end, LOG_WRITTEN), ==, WEIR_ETIMEDOUT);
        }
        while (atom_load(&writer.result) == 0) CHECK_OK(weir_yield());
        CHECK_INT(atom_load(&writer.result), ==, -ENOSPC);
        CHECK_INT(append_one(log, LOG_FOR_NEW), ==, -ENOSPC);
        test_fault("pwrite", -ENOSPC, 0);
    }
    CHECK_OK(r);
    return log_close(log);
}

TEST(log_refuses_who_was_held_back_when_the_disk_has_no_space)
{
    static struct stand stand;

    (void)weir_test_calls("pwrite"); /* before the log: it can fail then */
    stand_make(&stand);
    CHECK_OK(stand_run(&stand, no_space_while_held));
    stand_remove(&stand);
}
