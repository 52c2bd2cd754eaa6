/* volume_test.h - a volume on plain memory, and somebody who decides what a crash leaves. */
#ifndef WEIR_TESTS_VOLUME_TEST_H
#define WEIR_TESTS_VOLUME_TEST_H

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "harness/test.h"
#include "sim/volume.h"
#include "unit/policy/chance.h"

/* What a crash does: lose all, keep all, or any of it. */
enum crash { LOSE, KEEP, ANY };

struct bench {
    struct volume volume;
    enum crash crash;
    uint64_t chance;
    unsigned choices; /* at the last crash: about sectors, */
    unsigned names;   /* ... and about names */
    long live;        /* allocations that were not freed */
    long fail_at;     /* this one of the next ones fails; 0: none */
};

static inline void *bench_alloc(void *arg, size_t bytes)
{
    struct bench *bench = arg;
    void *memory;

    if (bench->fail_at > 0 && --bench->fail_at == 0) return NULL;
    memory = calloc(1, bytes);
    CHECK(memory);
    bench->live++;
    return memory;
}

static inline void bench_free(void *arg, void *memory)
{
    struct bench *bench = arg;

    bench->live--;
    free(memory);
}

static inline unsigned bench_choose(void *arg, unsigned n, const char *about)
{
    struct bench *bench = arg;
    bool is_names = strcmp(about, "names") == 0;

    CHECK_INT(n, >=, 2);
    if (is_names)
        bench->names++;
    else if (strcmp(about, "sector") == 0)
        bench->choices++;
    if (bench->crash == LOSE) return 0;
    if (bench->crash == KEEP) return is_names ? n - 1 : 1;
    return (unsigned)chance_below(&bench->chance, n);
}

static inline void bench_init(struct bench *bench, uint64_t bytes_max)
{
    const struct volume_means means = {bench, bench_alloc, bench_free, bench_choose};

    memset(bench, 0, sizeof *bench);
    volume_init(&bench->volume, &means, bytes_max);
    CHECK_INT(bench->live, ==, 0);
}

static inline void bench_deinit(struct bench *bench)
{
    volume_deinit(&bench->volume);
    CHECK_INT(bench->live, ==, 0);
    CHECK_INT(bench->volume.bytes_used, ==, 0);
}

static inline void bench_crash(struct bench *bench, enum crash crash)
{
    bench->crash = crash;
    bench->choices = 0;
    bench->names = 0;
    volume_crash(&bench->volume);
}

/* ---- One call each, with a file that is opened for it ---- */

static inline void sync_path(struct bench *bench, const char *path)
{
    struct volume_open file;

    CHECK_OK(volume_open(&bench->volume, path, O_RDONLY, 0, &file));
    CHECK_OK(volume_sync(&file, false));
    volume_close(&file);
}

static inline void write_path(struct bench *bench, const char *path, const char *text,
                              int64_t offset)
{
    struct volume_open file;
    size_t bytes = strlen(text);

    CHECK_OK(volume_open(&bench->volume, path, O_WRONLY | O_CREAT, 0644, &file));
    CHECK_INT(volume_write(&file, text, bytes, offset), ==, bytes);
    volume_close(&file);
}

/* What is in it, terminated, in a buffer that is used again; NULL: there is no such file. */
static inline const char *text_of(struct bench *bench, const char *path)
{
    static char text[4096];
    struct volume_open file;
    ssize_t n;
    int r = volume_open(&bench->volume, path, O_RDONLY, 0, &file);

    if (r == -ENOENT) return NULL;
    CHECK_OK(r);
    n = volume_read(&file, text, sizeof text - 1, 0);
    CHECK_OK(n);
    text[n] = '\0';
    volume_close(&file);
    return text;
}

#endif
