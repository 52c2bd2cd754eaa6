/* bench_store.h - what the programs of `bench store` share: folder, jobs, clock and figures.
 *
 * Every peer stores the same jobs, claims them by priority and time, and reads what it claims. A
 * workload's name says its shape: lifecycle_128_1k is groups of 128 jobs of 1 KiB, enqueue_64 is 64
 * producers of 100 bytes.
 *
 * Invariants: the data lies in a fresh folder below BENCH_DATA (default: here) that is gone when
 * the program ends. A file system in memory is refused, since it syncs nothing. Time and file size
 * have a bound.
 * Threads: none of this is shared; one thread measures.
 */
#ifndef BENCH_STORE_H
#define BENCH_STORE_H

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "bench.h"

#define STORE_STATUS_NOT_HERE 77
#define STORE_SECONDS_MAX 100
#define STORE_FILE_BYTES_MAX (INT64_C(4) << 30)
#define STORE_FREE_BYTES_MIN (INT64_C(8) << 30)
#define STORE_GROUP_MAX 65536
#define STORE_PRIORITIES 4
#define STORE_QUEUE 7
#define STORE_LEASE_US 30000000

#define STORE_PAGE_BYTES 4096
#define STORE_SYNC_SPACE (64 << 20)

struct store_shape {
    size_t group; /* jobs in a commit, as so many callers would form it */
    size_t payload_bytes;
};

struct store_job {
    uint64_t id; /* from 1, rising */
    uint8_t priority;
    int64_t run_at_us;
    const uint8_t *payload;
    size_t payload_bytes;
};

/* ---- The shape and the jobs ---- */

static inline struct store_shape store_shape_of(const struct bench *bench)
{
    const char *number = strchr(bench->workload, '_');
    struct store_shape shape = {.group = 1, .payload_bytes = 100};
    const char *group = getenv("BENCH_GROUP");

    if (number) shape.group = strtoull(number + 1, NULL, 10);
    if (strstr(bench->workload, "_1k")) shape.payload_bytes = 1024;
    if (group) shape.group = bench_parse_count(group, STORE_GROUP_MAX);
    if (shape.group == 0) bench_fail(bench, "BENCH_GROUP", "it is no count of jobs");
    return shape;
}

/* Random bytes that cost nothing while the clock runs: each job has its part of one table. */
static inline const uint8_t *store_payload(uint64_t id)
{
    enum { WORDS = 8192, STEPS = 7168 };
    static uint64_t table[WORDS];

    if (table[0] == 0) {
        uint64_t state = BENCH_RANDOM_SEED;
        for (size_t i = 0; i < WORDS; i++) table[i] = bench_random(&state);
    }
    return (const uint8_t *)&table[id % STEPS];
}

static inline struct store_job store_job_of(uint64_t id, const struct store_shape *shape,
                                            int64_t now_us)
{
    const uint8_t *payload = store_payload(id);

    return (struct store_job){
        .id = id,
        .priority = payload[0] % STORE_PRIORITIES,
        .run_at_us = now_us,
        .payload = payload,
        .payload_bytes = shape->payload_bytes,
    };
}

/* Of a payload that was claimed: who is asked for it has read all of it. */
static inline uint64_t store_payload_sum(const void *payload, size_t bytes)
{
    const uint8_t *from = payload;
    uint64_t sum = 0;

    for (; bytes >= sizeof sum; bytes -= sizeof sum, from += sizeof sum) {
        uint64_t word;
        memcpy(&word, from, sizeof word);
        sum += word;
    }
    for (; bytes > 0; bytes--, from++) sum += *from;
    return sum;
}

static inline int64_t store_now_us(void)
{
    return bench_clock_ns(CLOCK_REALTIME) / 1000;
}

/* ---- The folder ---- */

static char store_folder[PATH_MAX + 32]; /* of the file that has opened it */

static inline int store_remove_entry(const char *path, const struct stat *status, int type,
                                     struct FTW *where)
{
    (void)status, (void)type, (void)where;
    return remove(path);
}

static inline void store_folder_remove(void)
{
    nftw(store_folder, store_remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

_Noreturn static inline void store_not_here(const struct bench *bench, const char *where,
                                            const char *why)
{
    fprintf(stderr, "%s: %s: %s\n", bench->program, where, why);
    exit(STORE_STATUS_NOT_HERE);
}

/* Goes into a fresh folder on a disk, so that files need no more than a name; it is removed when
 * the program ends. */
static inline void store_folder_open(const struct bench *bench)
{
    const char *parent = getenv("BENCH_DATA");
    struct rlimit bound = {STORE_FILE_BYTES_MAX, STORE_FILE_BYTES_MAX};
    char absolute[PATH_MAX];
    struct statfs system;

    if (!parent) parent = ".";
    if (!realpath(parent, absolute)) bench_fail(bench, parent, strerror(errno));
    if (statfs(absolute, &system) != 0) bench_fail(bench, absolute, strerror(errno));
    if (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC) {
        store_not_here(bench, absolute, "a file system in memory, where a sync does nothing");
    }
    if ((int64_t)system.f_bavail * system.f_bsize < STORE_FREE_BYTES_MIN) {
        store_not_here(bench, absolute, "less than 8 GiB are free");
    }
    signal(SIGXFSZ, SIG_IGN); /* so that a file that grows too large is an error of its write */
    if (setrlimit(RLIMIT_FSIZE, &bound) != 0) bench_fail(bench, "RLIMIT_FSIZE", strerror(errno));
    snprintf(store_folder, sizeof store_folder, "%s/store-XXXXXX", absolute);
    if (!mkdtemp(store_folder)) bench_fail(bench, store_folder, strerror(errno));
    atexit(store_folder_remove);
    if (chdir(store_folder) != 0) bench_fail(bench, store_folder, strerror(errno));
}

/* A file whose space is there and was written before: a sync then writes nothing but the data.
 * Written page by page, as large writes leave large folios in the page cache: each sync then walks
 * a whole one, and the kernel counts all of it as written. */
static inline int store_file_written(const struct bench *bench, const char *path, int64_t bytes)
{
    static uint8_t zeros[STORE_PAGE_BYTES];
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (fd < 0) bench_fail(bench, path, strerror(errno));
    errno = posix_fallocate(fd, 0, bytes);
    if (errno != 0) bench_fail(bench, path, strerror(errno));
    for (int64_t at = 0; at < bytes;) {
        size_t part = bytes - at < (int64_t)sizeof zeros ? (size_t)(bytes - at) : sizeof zeros;
        ssize_t done = pwrite(fd, zeros, part, at);
        if (done <= 0) bench_fail(bench, path, strerror(errno));
        at += done;
    }
    if (fsync(fd) != 0) bench_fail(bench, path, strerror(errno));
    return fd;
}

static inline void store_write_synced(const struct bench *bench, int fd, const void *data,
                                      size_t bytes, int64_t at)
{
    if (pwrite(fd, data, bytes, at) != (ssize_t)bytes) {
        bench_fail(bench, "pwrite", "not all was written");
    }
    if (fdatasync(fd) != 0) bench_fail(bench, "fdatasync", strerror(errno));
}

/* ---- The clock ---- */

struct store_clock {
    int64_t wall_ns;
    int64_t cpu_ns;      /* user and system, of the whole process */
    int64_t disk_bytes;  /* what the kernel counts as to be written to a disk: whole folios */
    int64_t asked_bytes; /* what was given to write calls */
    int64_t writes;      /* how many of them there were */
};

static inline int64_t store_cpu_ns(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * INT64_C(1000000000) +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * INT64_C(1000);
}

static inline struct store_clock store_clock_now(const struct bench *bench)
{
    struct store_clock now = {.disk_bytes = -1, .asked_bytes = -1, .writes = -1};
    char line[128];
    FILE *io = fopen("/proc/self/io", "re");

    if (!io) bench_fail(bench, "/proc/self/io", strerror(errno));
    while (fgets(line, sizeof line, io)) {
        if (strncmp(line, "wchar:", 6) == 0) now.asked_bytes = strtoll(line + 6, NULL, 10);
        if (strncmp(line, "syscw:", 6) == 0) now.writes = strtoll(line + 6, NULL, 10);
        if (strncmp(line, "write_bytes:", 12) == 0) now.disk_bytes = strtoll(line + 12, NULL, 10);
    }
    fclose(io);
    if (now.disk_bytes < 0 || now.asked_bytes < 0 || now.writes < 0) {
        bench_fail(bench, "/proc/self/io", "wchar, syscw or write_bytes is missing");
    }
    now.cpu_ns = store_cpu_ns();
    now.wall_ns = bench_now_ns();
    return now;
}

/* Ends a run that takes too long: its figure would be none, and the others are waiting. */
static inline void store_clock_check(const struct bench *bench, const struct store_clock *begin)
{
    if (bench_now_ns() - begin->wall_ns > STORE_SECONDS_MAX * INT64_C(1000000000)) {
        bench_fail(bench, bench->workload, "not done in time");
    }
}

/* ---- Figures ---- */

static inline void store_print(const struct bench *bench, const char *what, const char *unit,
                               double figure)
{
    printf("{\"workload\":\"%s_%s\",\"peer\":\"%s\",\"n\":%zu,\"%s\":%.3f}\n", bench->workload,
           what, bench->peer, bench->n, unit, figure);
}

static inline void store_print_rate(const struct bench *bench, const struct store_clock *begin,
                                    const struct store_clock *end, size_t count, const char *unit)
{
    store_print(bench, "rate", unit, (double)count * 1e9 / (double)(end->wall_ns - begin->wall_ns));
}

/* What went to the disk. The kernel's count is too high where a small write dirties a large folio,
 * and nothing on some file systems. A write of b bytes at any place dirties b and, on average, one
 * page more: that is the bound, and the count where there is none. It knows write calls only: what
 * goes through io_uring or a mapping is in the kernel's count alone. */
static inline int64_t store_bytes_written(const struct store_clock *begin,
                                          const struct store_clock *end)
{
    int64_t counted = end->disk_bytes - begin->disk_bytes;
    int64_t bound =
        end->asked_bytes - begin->asked_bytes + (end->writes - begin->writes) * STORE_PAGE_BYTES;

    return counted > 0 && counted < bound ? counted : bound;
}

/* Processor time and bytes for each of `count` lifecycles. */
static inline void store_print_costs(const struct bench *bench, const struct store_clock *begin,
                                     const struct store_clock *end, size_t count)
{
    store_print(bench, "cpu", "us_per_lifecycle",
                (double)(end->cpu_ns - begin->cpu_ns) / 1e3 / (double)count);
    store_print(bench, "bytes", "bytes_per_lifecycle",
                (double)store_bytes_written(begin, end) / (double)count);
}

/* The runner compares it between the peers: they have claimed the same jobs. */
static inline void store_print_checksum(const struct bench *bench, size_t count, uint64_t sum)
{
    printf("{\"workload\":\"%s\",\"peer\":\"%s\",\"n\":%zu,\"checksum\":\"%016llx\"}\n",
           bench->workload, bench->peer, count, (unsigned long long)sum);
}

static inline int store_compare_times(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left;
    int64_t b = *(const int64_t *)right;

    return (a > b) - (a < b);
}

static inline void store_print_times(const struct bench *bench, int64_t *times_ns, size_t count)
{
    qsort(times_ns, count, sizeof *times_ns, store_compare_times);
    store_print(bench, "p50", "us", (double)times_ns[count / 2] / 1e3);
    store_print(bench, "p99", "us", (double)times_ns[count - 1 - count / 100] / 1e3);
}

static inline int64_t *store_times_new(const struct bench *bench, size_t count)
{
    int64_t *times_ns = calloc(count, sizeof *times_ns);

    if (!times_ns) bench_fail(bench, bench->workload, strerror(errno));
    return times_ns;
}

/* What a sync of the disk takes: appended pages, into space that was written before. */
static inline void store_measure_sync(const struct bench *bench, size_t count)
{
    static uint8_t page[STORE_PAGE_BYTES];
    int fd = store_file_written(bench, "sync", STORE_SYNC_SPACE);
    int64_t *times_ns = store_times_new(bench, count);
    struct store_clock begin = store_clock_now(bench);

    for (size_t i = 0; i < count; i++) {
        int64_t begin_ns = bench_now_ns();
        memset(page, (int)i, sizeof page);
        store_write_synced(bench, fd, page, sizeof page,
                           (int64_t)(i * sizeof page % STORE_SYNC_SPACE));
        times_ns[i] = bench_now_ns() - begin_ns;
        store_clock_check(bench, &begin);
    }
    store_print_times(bench, times_ns, count);
    free(times_ns);
    close(fd);
}

#endif
