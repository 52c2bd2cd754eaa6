/* log_golden_test.c - a store of version 1 as it was once written (tests/golden/store/v1): it is
 * read as it was, and today's code writes the same bytes. A new version gets a folder of its own,
 * and this one stays. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "unit/store/log_test.h"

#define GOLDEN TEST_GOLDEN "/store/v1"

enum { RECORDS = 30, SEGMENT = 4096, FILE_BYTES_MAX = 8192 };

static const struct log_id id = {{0xf0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};
static const char *const segments[] = {"0000000000000001.log", "0000000000000002.log"};

static size_t read_file(const char *folder, const char *name, unsigned char data[FILE_BYTES_MAX])
{
    char path[512];
    ssize_t n;
    int fd;

    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) TEST_FAIL("%s cannot be read", path);
    n = read(fd, data, FILE_BYTES_MAX);
    CHECK_INT(n, >, 0);
    CHECK_INT(close(fd), ==, 0);
    return (size_t)n;
}

/* Each record is a batch of its own, so the bytes do not depend on who was faster. */
static void write_store(struct stand *stand)
{
    struct log *log;

    stand->spec.id = &id;
    stand->spec.segment_bytes = SEGMENT;
    stand->spec.buffer_bytes = 2048;
    log = stand_open(stand);
    for (int i = 0; i < RECORDS; i++) stand_append(stand, log, 1);
    stand_close(log);
}

LOG_TEST(golden_store_of_version_1_is_read_byte_for_byte)
{
    struct log *log;

    folder_copy_all(GOLDEN, stand->path);
    stand->spec.create = false;
    log = stand_open(stand);
    stand_check(stand, RECORDS);
    CHECK_INT(stand->first, ==, 0);
    stand_close(log);
    for (int i = 0; i < 2; i++) { /* and nothing was changed by that */
        static unsigned char golden[FILE_BYTES_MAX], now[FILE_BYTES_MAX];

        CHECK_INT(read_file(GOLDEN, segments[i], golden), ==, SEGMENT);
        CHECK_INT(read_file(stand->path, segments[i], now), ==, SEGMENT);
        CHECK(memcmp(golden, now, SEGMENT) == 0);
    }
}

LOG_TEST(golden_store_of_version_1_is_written_byte_for_byte)
{
    static unsigned char golden[FILE_BYTES_MAX], now[FILE_BYTES_MAX];
    struct log_meta meta;
    bool newer;

    write_store(stand);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(read_file(GOLDEN, segments[i], golden), ==, SEGMENT);
        CHECK_INT(read_file(stand->path, segments[i], now), ==, SEGMENT);
        for (int at = 0; at < SEGMENT; at++) {
            if (golden[at] != now[at]) TEST_FAIL("%s differs at offset %d", segments[i], at);
        }
    }
    /* How often META was written depends on the moment: its first slot, then, by itself. */
    CHECK_INT(read_file(GOLDEN, "META", golden), ==, LOG_META_BYTES);
    CHECK(log_meta_decode(golden + LOG_META_SLOT_DISTANCE, &meta, &newer) == NULL);
    CHECK_INT(meta.generation, ==, 1);
    CHECK(memcmp(&meta.id, &id, sizeof id) == 0);
    log_meta_encode(&meta, now);
    CHECK(memcmp(golden + LOG_META_SLOT_DISTANCE, now, LOG_META_SLOT_BYTES) == 0);
}

/* How it was made, but for META, which is as it was when the store was new. */
static int make_golden(struct stand *stand)
{
    char from[128], to[512];
    struct log *log;

    stand->spec.id = &id;
    stand->spec.segment_bytes = SEGMENT;
    stand->spec.buffer_bytes = 2048;
    log = stand_open(stand);
    stand_file(stand, "META", from);
    (void)snprintf(to, sizeof to, "%s/META", getenv("WEIR_GOLDEN"));
    file_copy(from, to);
    stand_close(log);
    write_store(stand);
    for (int i = 0; i < 2; i++) {
        stand_file(stand, segments[i], from);
        (void)snprintf(to, sizeof to, "%s/%s", getenv("WEIR_GOLDEN"), segments[i]);
        file_copy(from, to);
    }
    return 0;
}

TEST_WITH(golden_store_is_made_in_the_folder_of_the_environment, .hidden = true)
{
    static struct stand stand;

    if (!getenv("WEIR_GOLDEN")) TEST_SKIP("WEIR_GOLDEN is not set");
    stand_make(&stand);
    CHECK_OK(stand_run(&stand, make_golden));
    stand_remove(&stand);
}
