/* cores.c - reads affinity and cgroup limits. See cgroups(7), and in the kernel's
 * documentation admin-guide/cgroup-v2 and scheduler/sched-bwc for the files. */
#include "rt/cores.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    /* The kernel's own maximum of NR_CPUS; a smaller mask than the kernel's is refused by it. */
    PROCESSOR_COUNT_MAX = 8192,
    CGROUP_FILE_BYTES_MAX = 8192,
    LIMIT_FILE_BYTES_MAX = 128,
    CGROUP_LINES_MAX = 128,
};

/* cgroup v1 writes "no limit" as the largest number of pages; nobody has this much. */
#define MEMORY_UNLIMITED_BYTES (INT64_C(1) << 60)

const struct cores_source cores_system = {
    .proc_cgroup = "/proc/self/cgroup",
    .cgroup_root = "/sys/fs/cgroup",
};

static const struct cores_source *overridden;

const struct cores_source *cores_current(void)
{
    return overridden ? overridden : &cores_system;
}

void cores_override(const struct cores_source *keep_source)
{
    overridden = keep_source;
}

/* The smallest limits seen so far; zero period and negative bytes mean none. */
struct limits {
    int64_t quota_us;
    int64_t period_us;
    int64_t memory_bytes;
};

/* Reads the file's start as a string. Negative when it cannot be read or is longer
 * than size - 1; *ret_text holds what fits in the latter case too. */
static int file_read(const char *path, char *ret_text, size_t size)
{
    size_t length = 0;
    int r = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);

    ret_text[0] = '\0';
    if (fd < 0) return -errno;
    while (length < size - 1) {
        ssize_t n = read(fd, ret_text + length, size - 1 - length);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) r = -errno;
        if (n <= 0) break;
        length += (size_t)n;
    }
    if (length == size - 1) r = -EFBIG;
    close(fd);
    ret_text[length] = '\0';
    /* A text file with a NUL inside is none, and would be read as a shorter one. */
    return strlen(ret_text) == length ? r : -EINVAL;
}

/* A non-negative decimal number at *text, which moves behind it. */
static bool number_parse(const char **text, int64_t *ret_number)
{
    const char *at = *text;
    int64_t number = 0;

    if (*at < '0' || *at > '9') return false;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, *at - '0', &number))
            return false;
    }
    *text = at;
    *ret_number = number;
    return true;
}

static bool text_ends(const char *text)
{
    return text[0] == '\0' || (text[0] == '\n' && text[1] == '\0');
}

/* Concatenates and reads; false when the path is too long or the file unusable. */
static bool limit_read(const char *directory, size_t directory_length, const char *name,
                       char *ret_text)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%.*s/%s", (int)directory_length, directory, name);

    if (length < 0 || (size_t)length >= sizeof path) return false;
    return file_read(path, ret_text, LIMIT_FILE_BYTES_MAX) == 0;
}

/* A file that holds one number and nothing else. */
static bool limit_read_number(const char *directory, size_t length, const char *name,
                              int64_t *ret_number)
{
    char text[LIMIT_FILE_BYTES_MAX];
    const char *at = text;

    return limit_read(directory, length, name, text) && number_parse(&at, ret_number) &&
           text_ends(at);
}

static void limits_add_quota(struct limits *limits, int64_t quota_us, int64_t period_us)
{
    if (quota_us <= 0 || period_us <= 0) return;
    /* Compared as fractions: rounding first could pick the larger one. */
    if (limits->period_us == 0 ||
        (__int128)quota_us * limits->period_us < (__int128)limits->quota_us * period_us) {
        limits->quota_us = quota_us;
        limits->period_us = period_us;
    }
}

static void limits_add_memory(struct limits *limits, int64_t bytes)
{
    if (bytes >= MEMORY_UNLIMITED_BYTES) return;
    if (limits->memory_bytes < 0 || bytes < limits->memory_bytes) limits->memory_bytes = bytes;
}

/* "max 100000" or "150000 100000". */
static void v2_read_cpu(struct limits *limits, const char *directory, size_t length)
{
    char text[LIMIT_FILE_BYTES_MAX];
    const char *at = text;
    int64_t quota_us;
    int64_t period_us;

    if (!limit_read(directory, length, "cpu.max", text) || !number_parse(&at, &quota_us) ||
        *at++ != ' ')
        return;
    if (number_parse(&at, &period_us) && text_ends(at))
        limits_add_quota(limits, quota_us, period_us);
}

/* "max" or a number. */
static void v2_read_memory(struct limits *limits, const char *directory, size_t length)
{
    int64_t bytes;

    if (limit_read_number(directory, length, "memory.max", &bytes))
        limits_add_memory(limits, bytes);
}

/* The quota is -1 when there is none, which is not a number here. */
static void v1_read_cpu(struct limits *limits, const char *directory, size_t length)
{
    int64_t quota_us;
    int64_t period_us;

    if (limit_read_number(directory, length, "cpu.cfs_quota_us", &quota_us) &&
        limit_read_number(directory, length, "cpu.cfs_period_us", &period_us))
        limits_add_quota(limits, quota_us, period_us);
}

static void v1_read_memory(struct limits *limits, const char *directory, size_t length)
{
    int64_t bytes;

    if (limit_read_number(directory, length, "memory.limit_in_bytes", &bytes))
        limits_add_memory(limits, bytes);
}

typedef void (*group_reader)(struct limits *limits, const char *directory, size_t length);

/* Whether a component of the path is "..", as a process sees that was moved out
 * of its cgroup namespace: such a path leads out of the mount. */
static bool path_goes_up(const char *path)
{
    for (const char *at = path; (at = strstr(at, "/..")) != NULL; at += 3) {
        if (at[3] == '/' || at[3] == '\0') return true;
    }
    return false;
}

/* Calls the reader for the group and each of its ancestors up to the mount. */
static void group_walk(struct limits *limits, const char *root, const char *mount,
                       const char *group, group_reader read_limits)
{
    char path[PATH_MAX];
    int root_length =
        snprintf(path, sizeof path, "%s%s%s", root, mount[0] != '\0' ? "/" : "", mount);
    int group_length;
    size_t length;

    if (root_length < 0 || (size_t)root_length >= sizeof path) return;
    length = (size_t)root_length;
    if (!path_goes_up(group)) {
        group_length = snprintf(path + length, sizeof path - length, "%s", group);
        if (group_length > 0 && (size_t)group_length < sizeof path - length)
            length += (size_t)group_length;
    }
    for (;;) {
        while (length > (size_t)root_length && path[length - 1] == '/') length--;
        read_limits(limits, path, length);
        if (length == (size_t)root_length) return;
        while (length > (size_t)root_length && path[length - 1] != '/') length--;
    }
}

/* Whether the comma-separated list of controllers names this one. */
static bool controllers_have(const char *list, const char *name)
{
    size_t name_length = strlen(name);

    for (;;) {
        size_t length = strcspn(list, ",");
        if (length == name_length && memcmp(list, name, length) == 0) return true;
        if (list[length] == '\0') return false;
        list += length + 1;
    }
}

/* A v1 controller is mounted under the name of its list ("cpu,cpuacct"), mostly
 * with a link for each of its own. */
static void v1_walk(struct limits *limits, const char *root, const char *list, const char *name,
                    const char *group, group_reader read_limits)
{
    if (!controllers_have(list, name) || strchr(list, '/') != NULL) return;
    group_walk(limits, root, list, group, read_limits);
    if (strcmp(list, name) != 0) group_walk(limits, root, name, group, read_limits);
}

/* One line of /proc/self/cgroup, "hierarchy:controllers:group"; it is cut up. */
static void line_apply(struct limits *limits, const char *root, char *line)
{
    char *list = strchr(line, ':');
    char *group = list != NULL ? strchr(list + 1, ':') : NULL;

    if (group == NULL || group[1] != '/') return;
    *list++ = '\0';
    *group++ = '\0';
    if (strcmp(line, "0") == 0 && list[0] == '\0') {
        /* Beside v1 hierarchies, v2 is mounted one level deeper. */
        group_walk(limits, root, "", group, v2_read_cpu);
        group_walk(limits, root, "", group, v2_read_memory);
        group_walk(limits, root, "unified", group, v2_read_cpu);
        group_walk(limits, root, "unified", group, v2_read_memory);
        return;
    }
    v1_walk(limits, root, list, "cpu", group, v1_read_cpu);
    v1_walk(limits, root, list, "memory", group, v1_read_memory);
}

static __attribute__((noinline)) struct limits limits_read_file(const struct cores_source *source)
{
    struct limits limits = {.memory_bytes = -1};
    char text[CGROUP_FILE_BYTES_MAX];
    char *line = text;
    int r = file_read(source->proc_cgroup, text, sizeof text);

    if (r < 0 && r != -EFBIG) return limits;
    /* Only whole lines: the last one of a file that is too long may be cut. The
     * bound keeps a hostile file from causing thousands of look-ups. */
    for (int i = 0; i < CGROUP_LINES_MAX; i++) {
        char *end = strchr(line, '\n');
        if (end == NULL) break;
        *end = '\0';
        line_apply(&limits, source->cgroup_root, line);
        line = end + 1;
    }
    return limits;
}

/* Where there is no file the room for it is not touched: a simulated run begins with this. */
static struct limits limits_read(const struct cores_source *source)
{
    if (!source->proc_cgroup) return (struct limits){.memory_bytes = -1};
    return limits_read_file(source);
}

static int affinity_count(const struct cores_source *source)
{
    cpu_set_t mask[PROCESSOR_COUNT_MAX / CPU_SETSIZE];
    int count = source->affinity_count;

    if (count > 0) return count;
    memset(mask, 0, sizeof mask);
    if (sched_getaffinity(0, sizeof mask, mask) == 0) count = CPU_COUNT_S(sizeof mask, mask);
    if (count <= 0) count = (int)sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? count : 1;
}

int cores_usable(const struct cores_source *source)
{
    struct limits limits = limits_read(source);
    int count = affinity_count(source);
    int64_t granted;

    if (limits.period_us == 0) return count;
    granted = limits.quota_us / limits.period_us + (limits.quota_us % limits.period_us != 0);
    return granted < count ? (int)granted : count;
}

int64_t cores_quota_milli(const struct cores_source *source)
{
    struct limits limits = limits_read(source);
    __int128 milli;

    if (limits.period_us == 0) return -1;
    milli = (__int128)limits.quota_us * 1000 / limits.period_us;
    if (milli > INT64_MAX) return INT64_MAX;
    return milli > 0 ? (int64_t)milli : 1;
}

int64_t cores_memory_max_bytes(const struct cores_source *source)
{
    return limits_read(source).memory_bytes;
}
