/* cores_test.c - processors and memory, from faked cgroup trees. */
#include "rt/cores.h"

#include <sched.h>

#include "unit/rt/fake_cgroup.h"

static void check_limits(const struct fake *fake, int usable, int64_t quota_milli,
                         int64_t memory_bytes)
{
    CHECK_INT(cores_usable(&fake->source), ==, usable);
    CHECK_INT(cores_quota_milli(&fake->source), ==, quota_milli);
    CHECK_INT(cores_memory_max_bytes(&fake->source), ==, memory_bytes);
}

TEST(cores_of_this_machine_are_within_its_affinity)
{
    cpu_set_t mask;

    CHECK_INT(cores_usable(&cores_system), >=, 1);
    if (sched_getaffinity(0, sizeof mask, &mask) == 0)
        CHECK_INT(cores_usable(&cores_system), <=, CPU_COUNT(&mask));
}

TEST(cores_follow_the_affinity_mask)
{
    const struct cores_source nowhere = {.proc_cgroup = "/nonexistent",
                                         .cgroup_root = "/nonexistent"};
    cpu_set_t before;
    cpu_set_t one;

    if (sched_getaffinity(0, sizeof before, &before) != 0)
        return; /* a machine with more processors than the C library's mask holds */
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++) {
        if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
    }
    CHECK_INT(cores_usable(&nowhere), ==, CPU_COUNT(&before));
    CHECK_INT(sched_setaffinity(0, sizeof one, &one), ==, 0);
    CHECK_INT(cores_usable(&nowhere), ==, 1);
    CHECK_INT(sched_setaffinity(0, sizeof before, &before), ==, 0);
    CHECK_INT(cores_quota_milli(&nowhere), ==, -1);
    CHECK_INT(cores_memory_max_bytes(&nowhere), ==, -1);
}

TEST(cores_v2_quota_is_rounded_up_and_bounded_by_affinity)
{
    static const struct {
        const char *cpu_max;
        int usable;
        int64_t quota_milli;
    } rows[] = {
        {"max 100000\n", 8, -1},
        {"50000 100000\n", 1, 500},
        {"100000 100000\n", 1, 1000},
        {"100001 100000\n", 2, 1000},
        {"150000 100000\n", 2, 1500},
        {"99999 100000\n", 1, 999},
        {"1 1000000\n", 1, 1},
        {"1000 1000000\n", 1, 1},
        {"6400000 100000\n", 8, 64000},
        {"800000 100000", 8, 8000},
        {"9223372036854775807 1\n", 8, INT64_MAX},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fake fake;
        fake_init(&fake, 8, "0::/a\n");
        fake_file(&fake, "sys/a/cpu.max", rows[i].cpu_max);
        check_limits(&fake, rows[i].usable, rows[i].quota_milli, -1);
        fake_deinit(&fake);
    }
}

/* One tree: its files, as pairs of name and text up to NULL, and what follows from them. */
static void check_tree(const char *proc_cgroup, const char *const *files, int usable,
                       int64_t quota_milli, int64_t memory_bytes)
{
    struct fake fake;

    fake_init(&fake, 16, proc_cgroup);
    for (; *files; files += 2) fake_file(&fake, files[0], files[1]);
    check_limits(&fake, usable, quota_milli, memory_bytes);
    fake_deinit(&fake);
}

TEST(cores_v2_smallest_limit_of_all_ancestors_wins)
{
    static const char *const files[] = {
        "sys/outer/cpu.max",
        "400000 100000\n",
        "sys/outer/memory.max",
        "1000000\n",
        "sys/outer/middle/cpu.max",
        "150000 50000\n",
        "sys/outer/middle/memory.max",
        "max\n",
        "sys/outer/middle/inner/cpu.max",
        "max 100000\n",
        "sys/outer/middle/inner/memory.max",
        "2000000\n",
        "sys/outer/sibling/cpu.max",
        "100000 100000\n",
        NULL,
    };
    check_tree("0::/outer/middle/inner\n", files, 3, 3000, 1000000);
}

/* A container without a cgroup namespace sees the host's path, but its own mount. */
TEST(cores_path_outside_of_the_mount_falls_back_to_its_root)
{
    static const char *const lines[] = {"0::/docker/0123abcd\n", "0::/../../other\n", "0::/..\n",
                                        "0::/\n", "0::/gone (deleted)\n"};

    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct fake fake;
        fake_init(&fake, 4, lines[i]);
        fake_file(&fake, "sys/cpu.max", "200000 100000\n");
        fake_file(&fake, "sys/memory.max", "4096\n");
        fake_file(&fake, "cpu.max", "100000 100000\n");
        fake_file(&fake, "other/cpu.max", "100000 100000\n");
        check_limits(&fake, 2, 2000, 4096);
        fake_deinit(&fake);
    }
}

TEST(cores_v1_controllers_are_read_from_their_own_hierarchies)
{
    static const char *const files[] = {
        "sys/cpu,cpuacct/a/cpu.cfs_quota_us",
        "250000\n",
        "sys/cpu,cpuacct/a/cpu.cfs_period_us",
        "100000\n",
        "sys/cpu,cpuacct/a/b/cpu.cfs_quota_us",
        "-1\n",
        "sys/cpu,cpuacct/a/b/cpu.cfs_period_us",
        "100000\n",
        "sys/cpuset/c/cpu.cfs_quota_us",
        "100000\n",
        "sys/cpuset/c/cpu.cfs_period_us",
        "100000\n",
        "sys/memory/memory.limit_in_bytes",
        "9223372036854771712\n",
        "sys/memory/m/memory.limit_in_bytes",
        "500000000\n",
        "sys/memory/m/n/memory.limit_in_bytes",
        "600000000\n",
        NULL,
    };
    check_tree("9:memory:/m/n\n4:cpu,cpuacct:/a/b\n3:cpuset:/c\n1:name=systemd:/\n", files, 3, 2500,
               500000000);
}

TEST(cores_v1_is_also_found_under_the_controllers_own_name)
{
    static const char *const files[] = {"sys/cpu/a/cpu.cfs_quota_us", "100000\n",
                                        "sys/cpu/a/cpu.cfs_period_us", "100000\n", NULL};
    check_tree("4:cpuacct,cpu:/a\n", files, 1, 1000, -1);
}

TEST(cores_v2_beside_v1_is_found_in_unified)
{
    static const char *const files[] = {"sys/memory/memory.limit_in_bytes", "9223372036854771712\n",
                                        "sys/unified/a/cpu.max", "200000 100000\n", NULL};
    check_tree("4:memory:/\n0::/a\n", files, 2, 2000, -1);
}

TEST(cores_garbage_limits_are_ignored)
{
    static const char *const garbage[] = {
        "",
        "\n",
        "100000",
        "100000 ",
        "100000 0\n",
        "0 100000\n",
        "-5 100000\n",
        "5 -100000\n",
        "abc def\n",
        "100000 100000x\n",
        "100000  100000\n",
        " 100000 100000\n",
        "99999999999999999999 100000\n",
        "100000 99999999999999999999\n",
        "100000\t100000\n",
        "max\n",
        "0x10 100000\n",
        "100000 100000\n\n",
        "1e5 100000\n",
    };
    char many[4096];

    for (size_t i = 0; i < sizeof garbage / sizeof *garbage; i++) {
        struct fake fake;
        fake_init(&fake, 5, "0::/a\n");
        fake_file(&fake, "sys/a/cpu.max", garbage[i]);
        CHECK_INT(cores_usable(&fake.source), ==, 5);
        CHECK_INT(cores_quota_milli(&fake.source), ==, -1);
        fake_deinit(&fake);
    }
    memset(many, '1', sizeof many);
    for (size_t length = 1; length <= sizeof many; length *= 64) {
        struct fake fake;
        fake_init(&fake, 5, "0::/a\n");
        fake_write(&fake, "sys/a/cpu.max", many, length);
        fake_write(&fake, "sys/a/memory.max", "12\0", 3);
        check_limits(&fake, 5, -1, -1);
        fake_deinit(&fake);
    }
}

TEST(cores_garbage_cgroup_files_are_ignored)
{
    static const char *const garbage[] = {
        "",
        "\n\n\n",
        ":",
        "::\n",
        ":::\n",
        "0:\n",
        "0::\n",
        "0::a\n",
        "0:cpu\n",
        "no colons\n",
        "0::/a",
        "7::/a\n",
        "0:/:/a\n",
        "3:../cpu,cpu:/a\n",
        "3:cpux,xcpu:/a\n",
        "\xff\xfe:\x01:\x02\n",
    };

    for (size_t i = 0; i < sizeof garbage / sizeof *garbage; i++) {
        struct fake fake;
        fake_init(&fake, 5, garbage[i]);
        fake_file(&fake, "sys/a/cpu.max", "100000 100000\n");
        fake_file(&fake, "sys/a/cpu.cfs_quota_us", "100000\n");
        fake_file(&fake, "sys/a/cpu.cfs_period_us", "100000\n");
        check_limits(&fake, 5, -1, -1);
        fake_deinit(&fake);
    }
}

TEST(cores_overlong_cgroup_file_counts_as_far_as_it_was_read)
{
    struct fake fake;
    size_t size = 100000;
    char *text = malloc(size);

    CHECK(text != NULL);
    fake_init(&fake, 5, "");
    fake_file(&fake, "sys/a/cpu.max", "100000 100000\n");
    memset(text, 'x', size);
    memcpy(text, "0::/a\n3:cpu:/", 13);
    fake_write(&fake, "proc", text, size);
    check_limits(&fake, 1, 1000, -1);
    /* A path that fills the buffer and leads nowhere. */
    memcpy(text, "0::/aaaaaaaaa", 13);
    text[8000] = '\n';
    fake_write(&fake, "proc", text, size);
    check_limits(&fake, 5, -1, -1);
    fake_deinit(&fake);
    free(text);
}

TEST_WITH(cores_random_bytes_never_crash, .timeout_ms = 60000)
{
    static const char alphabet[] = "0:/\n,.cpumemory 19a-x";
    uint64_t state = 42;
    struct fake fake;
    char text[512];

    fake_init(&fake, 3, "");
    fake_file(&fake, "sys/a/cpu.max", "100000 100000\n");
    for (int i = 0; i < 1000; i++) {
        size_t length = (size_t)i % sizeof text;
        for (size_t j = 0; j < length; j++) {
            state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
            text[j] = alphabet[(state >> 33) % (sizeof alphabet - 1)];
        }
        fake_write(&fake, i % 2 != 0 ? "proc" : "sys/a/cpu.max", text, length);
        if (i % 2 == 0) fake_file(&fake, "proc", "0::/a\n");
        CHECK_INT(cores_usable(&fake.source), >=, 1);
        CHECK_INT(cores_usable(&fake.source), <=, 3);
    }
    fake_deinit(&fake);
}
