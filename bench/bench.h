/* bench.h - what the benchmark programs written in C share.
 *
 * Every program takes "WORKLOAD [N]" and prints one line of JSON for each metric
 * (README.md, "What a program prints"). The constants and the generator are the
 * same in the Go and Rust programs: change them in all places or in none.
 *
 * Invariants: a helper that cannot go on ends the program with a sentence on
 * standard error, so that a figure that was printed was measured.
 * Threads: none of this is shared; one thread measures.
 */
#ifndef BENCH_H
#define BENCH_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BENCH_ALIVE 10000 /* tasks alive at a time in the spawn workloads */
#define BENCH_YIELDING_MANY 1000
#define BENCH_COUNT_MAX 1000000000
#define BENCH_RANDOM_SEED UINT64_C(88172645463325252)

/* Deadlines lie between these, so that no timer fires while it is measured. */
#define BENCH_DEADLINE_MS_MIN 60000
#define BENCH_DEADLINE_MS_SPREAD 540000

struct bench {
    const char *program;
    const char *peer;
    const char *workload;
    size_t n;
};

/* A named way to spend N operations; a table of them ends with a NULL name. */
struct bench_workload {
    const char *name;
    size_t n_default;
    void (*run)(const struct bench *bench);
};

_Noreturn static inline void bench_fail(const struct bench *bench, const char *what,
                                        const char *why)
{
    fprintf(stderr, "%s: %s: %s\n", bench->program, what, why);
    exit(1);
}

static inline int64_t bench_clock_ns(clockid_t clock)
{
    struct timespec now;

    if (clock_gettime(clock, &now) != 0) {
        perror("clock_gettime");
        exit(1);
    }
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline int64_t bench_now_ns(void)
{
    return bench_clock_ns(CLOCK_MONOTONIC);
}

static inline void bench_print_ns(const struct bench *bench, const char *workload,
                                  int64_t elapsed_ns, size_t op_count)
{
    printf("{\"workload\":\"%s\",\"peer\":\"%s\",\"n\":%zu,\"ns_per_op\":%.3f}\n", workload,
           bench->peer, op_count, (double)elapsed_ns / (double)op_count);
}

static inline void bench_print_bytes(const struct bench *bench, const char *workload, int64_t bytes,
                                     size_t task_count)
{
    printf("{\"workload\":\"%s\",\"peer\":\"%s\",\"n\":%zu,\"bytes_per_task\":%.1f}\n", workload,
           bench->peer, task_count, (double)bytes / (double)task_count);
}

/* xorshift64: cheap beside what is measured, and the same numbers for everyone. */
static inline uint64_t bench_random(uint64_t *state)
{
    uint64_t x = *state;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    *state = x;
    return x;
}

static inline int64_t bench_random_delay_ms(uint64_t *state)
{
    return BENCH_DEADLINE_MS_MIN + (int64_t)(bench_random(state) % BENCH_DEADLINE_MS_SPREAD);
}

/* Resident memory and page tables: the second is not part of the first, and a
 * million stacks need a lot of it. */
static inline int64_t bench_resident_bytes_of(const struct bench *bench, const char *path)
{
    char line[256];
    int64_t kilobytes = 0;
    int found = 0;
    FILE *status = fopen(path, "re");

    if (!status) bench_fail(bench, path, strerror(errno));
    while (fgets(line, sizeof line, status)) {
        if (strncmp(line, "VmRSS:", 6) == 0 || strncmp(line, "VmPTE:", 6) == 0) {
            kilobytes += strtoll(line + 6, NULL, 10);
            found++;
        }
    }
    fclose(status);
    if (found != 2) bench_fail(bench, path, "VmRSS or VmPTE is missing");
    return kilobytes * 1024;
}

static inline int64_t bench_resident_bytes(const struct bench *bench)
{
    return bench_resident_bytes_of(bench, "/proc/self/status");
}

static inline void bench_usage(const char *program, const struct bench_workload *workloads)
{
    fprintf(stderr, "usage: %s WORKLOAD [N]\nworkloads:", program);
    for (; workloads->name; workloads++) fprintf(stderr, " %s", workloads->name);
    fprintf(stderr, "\n");
}

/* A count between 1 and `max`; 0 if the text is not one. */
static inline size_t bench_parse_count(const char *text, size_t max)
{
    char *end;
    long long value;

    errno = 0;
    value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < 1 || (size_t)value > max) return 0;
    return (size_t)value;
}

/* Fills `ret_bench` from the arguments and returns the workload they name, or
 * NULL after a sentence on standard error: then the exit status is 2. */
static inline const struct bench_workload *bench_parse(int argc, char **argv,
                                                       const struct bench_workload *workloads,
                                                       struct bench *ret_bench)
{
    const struct bench_workload *workload = workloads;

    if (argc < 2 || argc > 3) {
        bench_usage(ret_bench->program, workloads);
        return NULL;
    }
    while (workload->name && strcmp(workload->name, argv[1]) != 0) workload++;
    if (!workload->name) {
        fprintf(stderr, "%s: no workload '%s'\n", ret_bench->program, argv[1]);
        bench_usage(ret_bench->program, workloads);
        return NULL;
    }
    ret_bench->workload = workload->name;
    ret_bench->n = argc == 3 ? bench_parse_count(argv[2], BENCH_COUNT_MAX) : workload->n_default;
    if (ret_bench->n == 0) {
        fprintf(stderr, "%s: N is '%s', not a count from 1 to %d\n", ret_bench->program, argv[2],
                BENCH_COUNT_MAX);
        return NULL;
    }
    return workload;
}

#endif
