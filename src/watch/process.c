/* process.c - /proc/self/stat, /proc/self/fd, /proc/self/limits, /proc/stat: see proc(5). */
#include "watch/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rt/mem.h"

enum {
    FILE_BYTES = 4096,
    SYSTEM_BYTES_MAX = 1024 * 1024, /* of /proc/stat: a line of interrupts grows with the cores */
    STAT_FIELDS = 24,
    /* Of /proc/self/stat, counted from 1 as proc(5) does. */
    STAT_UTIME = 14,
    STAT_STIME = 15,
    STAT_THREADS = 20,
    STAT_STARTTIME = 22,
    STAT_VSIZE = 23,
    STAT_RSS = 24,
};

/* Up to bytes - 1 of it, terminated: how many, or an error. */
static ssize_t read_file(const struct kernel *kernel, const char *path, char *data, size_t bytes)
{
    int fd = kernel->open(kernel, path, O_RDONLY | O_CLOEXEC, 0);
    size_t used = 0;
    ssize_t n;

    if (fd < 0) return fd;
    do {
        n = kernel->read(kernel, fd, data + used, bytes - 1 - used);
        if (n > 0) used += (size_t)n;
    } while ((n > 0 && used + 1 < bytes) || n == -EINTR);
    (void)kernel->close(kernel, fd);
    if (n < 0) return n;
    data[used] = '\0';
    return (ssize_t)used;
}

/* The fields of /proc/self/stat by their numbers. The second one, the name in parentheses,
 * may contain anything, so the rest is looked for from the end. */
static bool read_stat(const struct kernel *kernel, char *data, uint64_t *fields)
{
    const char *at;

    if (read_file(kernel, "/proc/self/stat", data, FILE_BYTES) <= 0) return false;
    at = strrchr(data, ')');
    if (!at) return false;
    for (unsigned i = 3; i <= STAT_FIELDS; i++) {
        at = strchr(at, ' ');
        if (!at) return false;
        fields[i] = strtoull(++at, NULL, 10);
    }
    return true;
}

static void expose_one(struct exposition *out, const char *name, const char *type, const char *help,
                       uint64_t value, unsigned digits)
{
    expose_family(out, name, type, help);
    expose_value(out, value, digits);
}

static uint64_t to_hundredths(uint64_t ticks)
{
    long per_second = sysconf(_SC_CLK_TCK);
    return per_second > 0 ? ticks * 100 / (uint64_t)per_second : ticks;
}

/* When the system was booted, in seconds of wall time; 0: not known. Tasks' stacks are
 * small and this file may not be, so it is read into memory of its own. */
static uint64_t boot_seconds(const struct kernel *kernel)
{
    uint64_t seconds = 0;
    char *data = mem_alloc(SYSTEM_BYTES_MAX);
    const char *at;

    if (!data) return 0;
    if (read_file(kernel, "/proc/stat", data, SYSTEM_BYTES_MAX) > 0) {
        at = strstr(data, "\nbtime ");
        if (at) seconds = strtoull(at + strlen("\nbtime "), NULL, 10);
    }
    mem_free(data);
    return seconds;
}

static void expose_stat(struct exposition *out, const struct kernel *kernel, char *data)
{
    uint64_t fields[STAT_FIELDS + 1];
    uint64_t booted;

    if (!read_stat(kernel, data, fields)) return;
    expose_one(out, "process_cpu_seconds_total", "counter",
               "Processor time of the process, user and system.",
               to_hundredths(fields[STAT_UTIME] + fields[STAT_STIME]), 2);
    expose_one(out, "process_threads", "gauge", "Threads of the process.", fields[STAT_THREADS], 0);
    expose_one(out, "process_virtual_memory_bytes", "gauge", "Address space of the process.",
               fields[STAT_VSIZE], 0);
    expose_one(out, "process_resident_memory_bytes", "gauge", "Memory of the process.",
               fields[STAT_RSS] * (uint64_t)sysconf(_SC_PAGESIZE), 0);
    booted = boot_seconds(kernel);
    if (booted == 0) return;
    expose_one(out, "process_start_time_seconds", "gauge",
               "When the process began, in seconds since 1970.",
               booted * 100 + to_hundredths(fields[STAT_STARTTIME]), 2);
}

static int count_entry(void *arg, const char *name)
{
    (void)name;
    (*(uint64_t *)arg)++;
    return 0;
}

static void expose_descriptors(struct exposition *out, const struct kernel *kernel, char *data)
{
    static const char limit[] = "\nMax open files";
    const char *at;
    uint64_t count = 0;

    /* One of them is the folder itself while it is being read. */
    if (kernel->list_directory(kernel, "/proc/self/fd", count_entry, &count) == 0 && count > 0) {
        expose_one(out, "process_open_fds", "gauge", "Open descriptors.", count - 1, 0);
    }
    if (read_file(kernel, "/proc/self/limits", data, FILE_BYTES) <= 0) return;
    at = strstr(data, limit);
    if (!at) return;
    count = strtoull(at + sizeof limit - 1, NULL, 10);
    if (count == 0) return; /* "unlimited" */
    expose_one(out, "process_max_fds", "gauge", "The most descriptors it may open.", count, 0);
}

void process_expose(struct exposition *out, const struct kernel *kernel)
{
    char *data = mem_alloc(FILE_BYTES);

    if (!data) return;
    expose_stat(out, kernel, data);
    expose_descriptors(out, kernel, data);
    mem_free(data);
}
