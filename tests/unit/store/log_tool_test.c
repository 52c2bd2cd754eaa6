/* log_tool_test.c - verify, dump and repair; and the program weir-store, as a user runs it. */
#include "store/log_tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit/store/log_test.h"
#include "unit/store/volume_kernel.h"

#define FIRST "0000000000000001.log"
#define SECOND "0000000000000002.log"

static int fill_store(struct stand *stand)
{
    struct log *log = stand_open(stand);

    stand_append(stand, log, 150);
    stand_close(log);
    return 0;
}

static int open_store(struct stand *stand)
{
    struct log *log;
    int r = stand_try(stand, &log);

    return r < 0 ? r : log_close(log);
}

static uint64_t offset_of(const struct stand *stand, unsigned number)
{
    return LOG_HEADER_BYTES + (stand->places[number].position - LOG_POSITION_FIRST);
}

struct seen {
    unsigned pieces[LOG_PIECE_MISSING + 1];
    unsigned records;
    uint64_t damage_offset;
};

static int see(void *arg, const struct log_piece *piece)
{
    struct seen *seen = arg;

    seen->pieces[piece->kind]++;
    if (piece->kind == LOG_PIECE_FRAME && piece->frame.kind == LOG_KIND_RECORD) seen->records++;
    if (piece->kind == LOG_PIECE_DAMAGE) seen->damage_offset = piece->offset;
    return 0;
}

TEST(store_verify_and_dump_of_a_good_store_find_all_of_it)
{
    static struct stand stand;
    struct log_summary summary;
    struct log_why why;
    struct seen seen = {0};

    stand_make(&stand);
    CHECK_OK(stand_run(&stand, fill_store));
    CHECK_OK(log_verify(kernel_current(), stand.path, &summary, &why));
    CHECK_INT(summary.record_count, ==, 150);
    CHECK_INT(summary.first, ==, LOG_POSITION_FIRST);
    CHECK_INT(log_dump(kernel_current(), stand.path, see, &seen, &why), ==, 0);
    CHECK_INT(seen.records, ==, 150);
    CHECK_INT(seen.pieces[LOG_PIECE_SEGMENT], ==, summary.segment_count);
    CHECK_INT(seen.pieces[LOG_PIECE_TAIL], ==, 1);
    stand_remove(&stand);
}

static int count_all(void *arg, const struct log_record *record)
{
    struct stand *stand = arg;

    (void)record;
    stand->replayed++;
    return 0;
}

/* Damage `number`, repair, and open the copy: one record is gone, all others are where they were.
 * */
static void repair_one(struct stand *stand, struct stand *copy, unsigned number)
{
    struct seen seen = {0};
    struct log_why why = {""};
    struct log_summary summary;

    stand_flip(stand, FIRST, offset_of(stand, number) + LOG_FRAME_BYTES + 2);
    CHECK_INT(stand_run(stand, open_store), ==, -EBADMSG);
    CHECK_INT(log_dump(kernel_current(), stand->path, see, &seen, &why), ==, 1);
    CHECK_INT(seen.damage_offset, ==, offset_of(stand, number));
    stand_make(copy);
    stand_remove(copy); /* only its name is wanted */
    if (log_repair(kernel_current(), stand->path, copy->path, NULL, NULL, &why) != 1)
        TEST_FAIL("repair: %s", why.text);
    CHECK_OK(log_verify(kernel_current(), copy->path, &summary, &why));
    CHECK_INT(summary.record_count, ==, 149);
    CHECK_INT(summary.gap_count, ==, 1);
    copy->spec.replay = count_all;
    CHECK_OK(stand_run(copy, open_store));
    CHECK_INT(copy->replayed, ==, 149);
    CHECK_INT(log_repair(kernel_current(), stand->path, copy->path, NULL, NULL, &why), ==, -EEXIST);
    CHECK_INT(stand_run(stand, open_store), ==, -EBADMSG); /* as it was */
}

TEST(store_repair_makes_a_copy_without_what_is_damaged)
{
    static struct stand stand, copy;

    stand_make(&stand);
    CHECK_OK(stand_run(&stand, fill_store));
    repair_one(&stand, &copy, 7);
    stand_remove(&copy);
    stand_remove(&stand);
}

TEST(store_repair_covers_a_segment_that_is_missing)
{
    static struct stand stand, copy;
    struct log_summary summary;
    struct log_why why = {""};
    char path[128];

    stand_make(&stand);
    stand_make(&copy);
    stand_remove(&copy);
    CHECK_OK(stand_run(&stand, fill_store));
    stand_file(&stand, SECOND, path);
    CHECK_INT(unlink(path), ==, 0);
    if (log_repair(kernel_current(), stand.path, copy.path, NULL, NULL, &why) != 1)
        TEST_FAIL("repair: %s", why.text);
    CHECK_OK(log_verify(kernel_current(), copy.path, &summary, &why));
    CHECK_INT(summary.record_count, <, 150);
    CHECK_INT(summary.record_count, >, 50);
    CHECK_INT(summary.gap_count, >=, 1);
    stand_remove(&copy);
    stand_remove(&stand);
}

/* Nothing is left on this disk after a power cut but what was synced, the names included. */
TEST(store_repair_is_there_by_its_name_after_a_power_cut)
{
    static struct stand stand;
    const struct kernel *kernel = volume_kernel_begin(4 << 20);
    struct log_summary summary;
    struct log_why why = {""};
    struct stat found;

    stand_make(&stand);
    stand_remove(&stand); /* it is on the disk in memory */
    (void)snprintf(stand.path, sizeof stand.path, "/store");
    kernel_override(kernel);
    CHECK_OK(stand_run(&stand, fill_store));
    kernel_override(NULL);
    CHECK_OK(log_repair(kernel, "/store", "/copy", NULL, NULL, &why));
    volume_kernel_crash();
    CHECK_INT(kernel->stat(kernel, "/copy.partial", &found), ==, -ENOENT);
    if (log_verify(kernel, "/copy", &summary, &why) < 0) TEST_FAIL("verify: %s", why.text);
    CHECK_INT(summary.record_count, ==, 150);
    volume_kernel_end();
}

/* ---- The program ---- */

static int run_tool(const char *command, const char *path, const char *to, char *output,
                    size_t bytes)
{
    char program[512];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 64);
    const char *argv[] = {program, command, path, to, NULL};
    int status;

    CHECK_INT(n, >, 0);
    program[n] = '\0';
    for (int i = 0; i < 2; i++) *strrchr(program, '/') = '\0';
    strcat(program, "/programs/weir-store");
    if (access(program, X_OK) != 0) TEST_SKIP("weir-store was not built");
    status = test_exec(argv, output, bytes);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST(weir_store_verifies_dumps_and_repairs_and_says_how_it_went)
{
    static struct stand stand, copy;
    static char output[65536];

    stand_make(&stand);
    stand_make(&copy);
    stand_remove(&copy);
    CHECK_OK(stand_run(&stand, fill_store));
    CHECK_INT(run_tool("--help", NULL, NULL, output, sizeof output), ==, 0);
    CHECK_CONTAINS(output, "usage: weir-store verify");
    CHECK_INT(run_tool("verify", NULL, NULL, output, sizeof output), ==, 2);
    CHECK_INT(run_tool("verify", stand.path, NULL, output, sizeof output), ==, 0);
    CHECK_CONTAINS(output, "records 150");
    CHECK_INT(run_tool("verify", "/tmp/weir-test-is-not-there", NULL, output, sizeof output), ==,
              3);
    CHECK_INT(run_tool("dump", stand.path, NULL, output, sizeof output), ==, 0);
    CHECK_CONTAINS(output, "record tag=1 ");
    stand_flip(&stand, FIRST, offset_of(&stand, 5) + LOG_FRAME_BYTES);
    CHECK_INT(run_tool("verify", stand.path, NULL, output, sizeof output), ==, 1);
    CHECK_INT(run_tool("dump", stand.path, NULL, output, sizeof output), ==, 1);
    CHECK_CONTAINS(output, "DAMAGED " FIRST " offset=");
    CHECK_INT(run_tool("repair", stand.path, copy.path, output, sizeof output), ==, 0);
    CHECK_INT(run_tool("verify", copy.path, NULL, output, sizeof output), ==, 0);
    CHECK_CONTAINS(output, "gaps 1");
    stand_remove(&copy);
    stand_remove(&stand);
}

static int verify_while_open(struct stand *stand)
{
    static char output[4096];
    struct log *log = stand_open(stand);

    CHECK_INT(run_tool("verify", stand->path, NULL, output, sizeof output), ==, 4);
    CHECK_CONTAINS(output, "is in use by process");
    stand_close(log);
    return 0;
}

TEST(weir_store_leaves_a_store_alone_that_is_in_use)
{
    static struct stand stand;

    stand_make(&stand);
    CHECK_OK(stand_run(&stand, verify_while_open));
    stand_remove(&stand);
}
