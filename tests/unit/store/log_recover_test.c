/* log_recover_test.c - what a store that was damaged says, and what a torn end becomes. */
#include "store/log_recover.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "unit/store/log_test.h"

#define FIRST "0000000000000001.log"
#define SECOND "0000000000000002.log"

/* A store with `count` records, closed. */
static void fill(struct stand *stand, unsigned count)
{
    struct log *log = stand_open(stand);

    stand_append(stand, log, count);
    stand_close(log);
}

static void check_refused(struct stand *stand, int error, const char *sentence)
{
    struct log *log;
    unsigned files = stand_files(stand, ".log");

    for (int i = 0; i < 2; i++) { /* it changes nothing: the second try is the same */
        CHECK_INT(stand_try(stand, &log), ==, error);
        CHECK_CONTAINS(weir_why(), sentence);
        CHECK_CONTAINS(weir_why(), stand->path);
        CHECK_INT(stand_files(stand, ".log"), ==, files);
    }
}

static uint64_t offset_of(const struct stand *stand, unsigned number)
{
    return LOG_HEADER_BYTES + (stand->places[number].position - LOG_POSITION_FIRST);
}

LOG_TEST(log_with_a_bit_flipped_in_its_data_is_refused_with_file_and_offset)
{
    char expected[64];

    fill(stand, 20);
    (void)snprintf(expected, sizeof expected, FIRST ", offset %llu: damaged",
                   (unsigned long long)offset_of(stand, 7));
    stand_flip(stand, FIRST, offset_of(stand, 7) + LOG_FRAME_BYTES + 3);
    check_refused(stand, -EBADMSG, expected);
    stand_flip(stand, FIRST, offset_of(stand, 7) + LOG_FRAME_BYTES + 3);
    stand_close(stand_open(stand));
    stand_check(stand, 20);
}

LOG_TEST(log_with_any_bit_of_a_head_flipped_is_refused)
{
    fill(stand, 20);
    for (unsigned i = 0; i < LOG_FRAME_BYTES; i++) {
        stand_flip(stand, FIRST, offset_of(stand, 3) + i);
        check_refused(stand, -EBADMSG, "damaged");
        stand_flip(stand, FIRST, offset_of(stand, 3) + i);
    }
    stand_close(stand_open(stand));
    stand_check(stand, 20);
}

LOG_TEST(log_with_its_last_record_damaged_after_a_close_is_refused)
{
    fill(stand, 20);
    stand_flip(stand, FIRST, offset_of(stand, 19) + LOG_FRAME_BYTES);
    check_refused(stand, -EBADMSG, "damaged");
}

LOG_TEST(log_with_damage_in_an_old_segment_is_refused)
{
    fill(stand, 200);
    CHECK(stand_has(stand, SECOND));
    stand_flip(stand, FIRST, offset_of(stand, 2) + LOG_FRAME_BYTES);
    check_refused(stand, -EBADMSG, SECOND);
}

LOG_TEST(log_with_a_header_damaged_is_refused)
{
    fill(stand, 200);
    for (unsigned i = 0; i < LOG_HEADER_USED_BYTES; i++) {
        struct log *log;

        stand_flip(stand, SECOND, i);
        /* A version that is higher is another error. */
        CHECK_INT(stand_try(stand, &log), <, 0);
        CHECK_CONTAINS(weir_why(), SECOND ", offset 0");
        stand_flip(stand, SECOND, i);
    }
    stand_close(stand_open(stand));
}

LOG_TEST(log_with_a_segment_missing_is_refused)
{
    char path[128], away[128];
    const char *names[] = {FIRST, SECOND};

    fill(stand, 200);
    for (int i = 0; i < 2; i++) {
        stand_file(stand, names[i], path);
        stand_file(stand, "away", away);
        CHECK_INT(rename(path, away), ==, 0);
        check_refused(stand, -EBADMSG, "is missing");
        CHECK_INT(rename(away, path), ==, 0);
    }
    stand_close(stand_open(stand));
    stand_check(stand, 200);
}

LOG_TEST(log_with_its_newest_segment_missing_is_refused)
{
    struct log *log = stand_open(stand);
    struct log_figures figures;
    char name[LOG_NAME_BYTES], path[128];

    stand_append(stand, log, 200);
    /* META learns of it a moment later; an append that needs the next one waits for nothing. */
    do {
        stand_append(stand, log, 1);
        log_figures(log, &figures);
    } while (figures.segment_count < 4);
    stand_close(log);
    stand_close(stand_open(stand)); /* all that was to be written to META was */
    log_name(name, 2, LOG_SEGMENT);
    stand_file(stand, name, path);
    CHECK_INT(unlink(path), ==, 0);
    check_refused(stand, -EBADMSG, "is missing");
}

LOG_TEST(log_without_meta_but_with_records_is_refused)
{
    char path[128];

    fill(stand, 5);
    stand_file(stand, "META", path);
    CHECK_INT(unlink(path), ==, 0);
    check_refused(stand, -EBADMSG, "META is missing");
}

LOG_TEST(log_with_one_slot_of_meta_damaged_opens_and_with_both_is_refused)
{
    fill(stand, 5);
    /* The first generation is in the second slot; the first one was never written. */
    stand_flip(stand, "META", 3);
    stand_close(stand_open(stand));
    stand_check(stand, 5);
    stand_flip(stand, "META", LOG_META_SLOT_DISTANCE + 17);
    check_refused(stand, -EBADMSG, "META is damaged");
}

LOG_TEST(log_of_a_newer_version_is_refused_with_a_sentence)
{
    unsigned char version = LOG_VERSION + 1;
    char path[128];
    int fd;

    fill(stand, 200);
    stand_file(stand, SECOND, path);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    CHECK_INT(pwrite(fd, &version, 1, 8), ==, 1);
    CHECK_INT(close(fd), ==, 0);
    check_refused(stand, -ENOTSUP, "a newer version than this program knows");
    stand_file(stand, "META", path);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    CHECK_INT(pwrite(fd, &version, 1, LOG_META_SLOT_DISTANCE + 8), ==, 1);
    CHECK_INT(close(fd), ==, 0);
    check_refused(stand, -ENOTSUP, "META has a newer version");
}

LOG_TEST(log_of_the_other_byte_order_is_refused_with_a_sentence)
{
    const unsigned char swapped[4] = {0x0a, 0x0b, 0x0c, 0x0d};
    char path[128];
    int fd;

    fill(stand, 5);
    stand_file(stand, FIRST, path);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    CHECK_INT(pwrite(fd, swapped, 4, 12), ==, 4);
    CHECK_INT(close(fd), ==, 0);
    check_refused(stand, -EBADMSG, "the other byte order");
}

LOG_TEST(log_with_a_segment_truncated_is_refused)
{
    fill(stand, 200);
    stand_cut(stand, FIRST, 5000);
    check_refused(stand, -EBADMSG, "offset 5000: the file ends here: it was truncated");
}

LOG_TEST(log_with_the_segment_of_another_store_is_refused)
{
    static struct stand other;
    char from[128], to[128];

    fill(stand, 200);
    stand_make(&other);
    fill(&other, 200);
    stand_file(&other, SECOND, from);
    stand_file(stand, SECOND, to);
    file_copy(from, to);
    check_refused(stand, -EBADMSG, "it belongs to another store");
    stand_remove(&other);
}

/* ---- Torn ends ---- */

/* A copy of a store while it is open is what a crash of the process leaves. */
static void crash_into(struct stand *from, struct stand *to)
{
    to->spec.path = to->path;
    memcpy(to->places, from->places, sizeof to->places);
    to->appended = from->appended;
    folder_copy_all(from->path, to->path);
}

LOG_TEST(log_that_ends_in_a_torn_record_is_cut_there_and_goes_on)
{
    static struct stand torn;
    struct log *log = stand_open(stand);
    struct log_figures figures;

    stand_append(stand, log, 10);
    stand_append(stand, log, 1); /* a batch of its own, which is then torn */
    stand_make(&torn);
    crash_into(stand, &torn);
    stand_close(log);
    stand_flip(&torn, FIRST, offset_of(&torn, 10) + LOG_FRAME_BYTES + 1);
    torn.appended = 10;
    log = stand_open(&torn);
    stand_check(&torn, 10);
    log_figures(log, &figures);
    CHECK_INT(figures.torn_bytes, >, 0);
    stand_append(&torn, log, 10);
    stand_close(log);
    log = stand_open(&torn);
    stand_check(&torn, 20);
    log_figures(log, &figures);
    CHECK_INT(figures.torn_bytes, ==, 0);
    stand_close(log);
    stand_remove(&torn);
}

static int count_only(void *arg, const struct log_record *record)
{
    struct stand *stand = arg;

    (void)record;
    stand->replayed++;
    return 0;
}

LOG_TEST(log_records_behind_a_torn_one_never_come_back)
{
    static struct stand torn;
    static unsigned char zeroes[STAND_RECORD_BYTES_MAX];
    struct log *log = stand_open(stand);
    struct iovec part = {zeroes, 0};
    struct log_place place;

    stand_append(stand, log, 5);
    /* One batch of several, of which the first is torn and the others are whole. */
    for (int i = 0; i < 5; i++) CHECK_OK(stand_append_one(stand, log, LOG_FOR_NEW));
    CHECK_OK(log_wait(log, stand->places[9].end, LOG_SYNCED));
    stand_make(&torn);
    crash_into(stand, &torn);
    stand_close(log);
    stand_flip(&torn, FIRST, offset_of(&torn, 5) + LOG_FRAME_BYTES + 1);
    torn.spec.replay = count_only;
    log = stand_open(&torn);
    CHECK_INT(torn.replayed, ==, 5);
    /* One that ends, with its mark, exactly where record 6 began. */
    part.iov_len =
        stand->places[5].end - stand->places[5].position - LOG_MARK_SIZE - LOG_FRAME_BYTES;
    CHECK_OK(log_append(log, &part, 1, &(struct log_options){.use = LOG_FOR_NEW}, &place));
    CHECK_OK(log_wait(log, place.end, LOG_SYNCED));
    CHECK_INT(place.end, ==, stand->places[5].end);
    folder_remove_all(stand->path);
    crash_into(&torn, stand);
    stand_close(log);
    stand->spec.replay = count_only;
    log = stand_open(stand);
    CHECK_INT(stand->replayed, ==, 6);
    stand_close(log);
    stand_remove(&torn);
}

LOG_TEST(log_that_was_killed_is_recovered_without_loss)
{
    static struct stand killed;
    struct log *log = stand_open(stand);

    for (int i = 0; i < 20; i++) stand_append(stand, log, 7);
    stand_make(&killed);
    crash_into(stand, &killed);
    stand_close(log);
    log = stand_open(&killed);
    stand_check(&killed, 140);
    stand_close(log);
    stand_remove(&killed);
}

LOG_TEST(log_leaves_files_alone_that_are_not_its_own)
{
    char path[128];

    fill(stand, 5);
    stand_file(stand, "notes.txt", path);
    CHECK_INT(close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644)), ==, 0);
    stand_file(stand, "00000000000000ff.new", path);
    CHECK_INT(close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644)), ==, 0);
    stand_close(stand_open(stand));
    CHECK(stand_has(stand, "notes.txt"));
    CHECK(!stand_has(stand, "00000000000000ff.new"));
}
