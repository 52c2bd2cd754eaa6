/* volume_model_test.c - a volume against a naive model of what may be left after a crash.
 *
 * The model remembers every content that each sector had since it was surely saved, every size of a
 * file, and every state of a directory. After a crash each of them must be one of those; if the
 * crash loses all, the saved one, and if it keeps all, the last one. */
#include <stdio.h>

#include "unit/sim/volume_test.h"

enum {
    SECTORS = 6,
    BYTES = SECTORS * 512,
    FILES = 128, /* that there ever were in one history */
    PAST = 64,   /* contents, sizes and states that are remembered */
    NAMES = 6,
    STEPS = 60,
};

struct model_sector {
    unsigned char past[PAST][512]; /* the first is saved, the last is now */
    int count;
    int cut;       /* how much of the saved one was truncated, from its end */
    bool is_dirty; /* the next sync saves it */
};

struct model_file {
    ino_t number;
    struct model_sector sectors[SECTORS];
    int sizes[PAST];
    int size_count;
    bool size_is_dirty;
    int cuts[PAST]; /* what it was truncated to */
    int cut_count;
};

/* Which file each name of a directory stands for; -1: none. */
struct model_names {
    int past[PAST * 8][NAMES];
    int count;
};

struct model {
    struct bench bench;
    uint64_t chance;
    struct model_file *files;
    int file_count;
    struct model_names directories[2];
    int lost, kept, between, torn; /* what was seen */
};

static const char *const prefixes[2] = {"/", "/dir/"};

static const char *path_of(int directory, int name, char path[16])
{
    (void)snprintf(path, 16, "%s%c", prefixes[directory], (char)('a' + name));
    return path;
}

static int *names_now(struct model *model, int directory)
{
    struct model_names *names = &model->directories[directory];
    return names->past[names->count - 1];
}

/* A further state of the directory, which starts as the last one. */
static int *names_next(struct model *model, int directory)
{
    struct model_names *names = &model->directories[directory];

    CHECK_INT(names->count, <, PAST * 8);
    memcpy(names->past[names->count], names->past[names->count - 1], sizeof names->past[0]);
    return names->past[names->count++];
}

/* A further content of the sector, which starts as the last one. */
static unsigned char *sector_next(struct model_sector *sector)
{
    CHECK_INT(sector->count, <, PAST);
    memcpy(sector->past[sector->count], sector->past[sector->count - 1], 512);
    sector->is_dirty = true;
    return sector->past[sector->count++];
}

static void size_next(struct model_file *file, int bytes)
{
    CHECK_INT(file->size_count, <, PAST);
    file->sizes[file->size_count++] = bytes;
    file->size_is_dirty = true;
}

static int size_now(const struct model_file *file)
{
    return file->sizes[file->size_count - 1];
}

/* ---- Steps ---- */

static void step_write(struct model *model, struct model_file *file, struct volume_open *open)
{
    static unsigned char data[BYTES];
    int start = (int)chance_below(&model->chance, BYTES - 1);
    int most = chance_below(&model->chance, 2) ? BYTES - start : 40;
    int bytes = 1 + (int)chance_below(&model->chance, (uint64_t)most);

    if (start + bytes > BYTES) bytes = BYTES - start;
    memset(data, 1 + (int)chance_below(&model->chance, 255), (size_t)bytes);
    CHECK_INT(volume_write(open, data, (size_t)bytes, start), ==, bytes);
    for (int i = start / 512; i <= (start + bytes - 1) / 512; i++) {
        int from = start > i * 512 ? start - i * 512 : 0;
        int to = start + bytes < (i + 1) * 512 ? start + bytes - i * 512 : 512;

        memset(sector_next(&file->sectors[i]) + from, data[0], (size_t)(to - from));
    }
    if (start + bytes > size_now(file)) size_next(file, start + bytes);
}

static void step_truncate(struct model *model, struct model_file *file, struct volume_open *open)
{
    int bytes = (int)chance_below(&model->chance, BYTES);

    CHECK_OK(volume_truncate(open, bytes));
    if (bytes == size_now(file)) return;
    if (bytes < size_now(file)) {
        file->cuts[file->cut_count++] = bytes;
        for (int i = bytes / 512; i < SECTORS; i++) {
            int from = bytes > i * 512 ? bytes - i * 512 : 0;

            memset(sector_next(&file->sectors[i]) + from, 0, (size_t)(512 - from));
            if (file->sectors[i].cut < 512 - from) file->sectors[i].cut = 512 - from;
        }
    }
    size_next(file, bytes);
}

static void model_sync(struct model_file *file, bool fail)
{
    for (int i = 0; i < SECTORS; i++) {
        struct model_sector *sector = &file->sectors[i];

        if (!fail && sector->is_dirty) {
            memcpy(sector->past[0], sector->past[sector->count - 1], 512);
            sector->count = 1;
            sector->cut = 0;
        }
        sector->is_dirty = false;
        /* What was truncated is gone with the size, whatever else was not saved. */
        if (!fail && file->size_is_dirty) {
            memset(sector->past[0] + 512 - sector->cut, 0, (size_t)sector->cut);
            sector->cut = 0;
        }
    }
    if (!fail && file->size_is_dirty) {
        file->sizes[0] = size_now(file);
        file->size_count = 1;
        file->cut_count = 0;
    }
    file->size_is_dirty = false;
}

static void step_content(struct model *model, int directory, int name)
{
    int index = names_now(model, directory)[name];
    struct model_file *file = &model->files[index];
    struct volume_open open;
    char path[16];
    uint64_t what = chance_below(&model->chance, 12);

    if (index < 0) return;
    CHECK_OK(volume_open(&model->bench.volume, path_of(directory, name, path), O_RDWR, 0, &open));
    CHECK_INT(open.node->number, ==, file->number);
    if (what < 7) {
        step_write(model, file, &open);
    } else if (what < 9) {
        step_truncate(model, file, &open);
    } else {
        bool fail = what == 11;

        CHECK_INT(volume_sync(&open, fail), ==, fail ? -EIO : 0);
        model_sync(file, fail);
    }
    volume_close(&open);
}

static void step_create(struct model *model, int directory, int name)
{
    struct volume_open open;
    char path[16];

    if (names_now(model, directory)[name] >= 0 || model->file_count == FILES) return;
    CHECK_OK(volume_open(&model->bench.volume, path_of(directory, name, path),
                         O_RDWR | O_CREAT | O_EXCL, 0644, &open));
    memset(&model->files[model->file_count], 0, sizeof model->files[0]);
    model->files[model->file_count].number = open.node->number;
    model->files[model->file_count].size_count = 1;
    for (int i = 0; i < SECTORS; i++) model->files[model->file_count].sectors[i].count = 1;
    names_next(model, directory)[name] = model->file_count++;
    volume_close(&open);
}

static void step_rename(struct model *model, int directory, int name)
{
    int to_directory = (int)chance_below(&model->chance, 2);
    int to_name = (int)chance_below(&model->chance, NAMES);
    int file = names_now(model, directory)[name];
    char from_path[16], to_path[16];
    int r = volume_rename(&model->bench.volume, path_of(directory, name, from_path),
                          path_of(to_directory, to_name, to_path));
    int *names;

    CHECK_INT(r, ==, file < 0 ? -ENOENT : 0);
    if (file < 0 || (to_directory == directory && to_name == name)) return;
    names = names_next(model, to_directory);
    names[to_name] = file;
    if (to_directory != directory) names = names_next(model, directory);
    names[name] = -1;
}

static void step_unlink(struct model *model, int directory, int name)
{
    char path[16];
    int file = names_now(model, directory)[name];
    int r = volume_unlink(&model->bench.volume, path_of(directory, name, path));

    CHECK_INT(r, ==, file < 0 ? -ENOENT : 0);
    if (file >= 0) names_next(model, directory)[name] = -1;
}

/* What was before may still be there by the other half of a rename: the model does not look so
 * closely, and only forgets what this directory itself has lost for good. */
static void step_sync_directory(struct model *model, int directory)
{
    struct model_names *names = &model->directories[directory];

    sync_path(&model->bench, prefixes[directory]);
    memcpy(names->past[0], names->past[names->count - 1], sizeof names->past[0]);
    names->count = 1;
}

static void step(struct model *model)
{
    int directory = (int)chance_below(&model->chance, 2);
    int name = (int)chance_below(&model->chance, NAMES);

    switch (chance_below(&model->chance, 10)) {
    case 0:
    case 1: step_create(model, directory, name); break;
    case 2: step_rename(model, directory, name); break;
    case 3:
        if (chance_below(&model->chance, 2)) step_unlink(model, directory, name);
        break;
    case 4:
        if (chance_below(&model->chance, 2)) step_sync_directory(model, directory);
        break;
    default: step_content(model, directory, name); break;
    }
}

/* ---- After a crash ---- */

static bool is_content(const unsigned char *left, const unsigned char *past, int cut, int bytes)
{
    int valid = cut < bytes ? cut : bytes;

    if (valid > 512) valid = 512;
    if (valid < 0) valid = 0;
    if (bytes > 512) bytes = 512;
    if (memcmp(left, past, (size_t)valid) != 0) return false;
    for (int i = valid; i < bytes; i++) {
        if (left[i] != 0) return false;
    }
    return true;
}

/* Which content of the past it is, however it was cut; -1: zeroes; fails if it is none. */
static int find_content(const struct model_file *file, int index, const unsigned char *left,
                        int bytes)
{
    const struct model_sector *sector = &file->sectors[index];

    for (int i = sector->count - 1; i >= 0; i--) {
        if (is_content(left, sector->past[i], BYTES, bytes)) return i;
        for (int j = 0; j < file->cut_count; j++) {
            if (is_content(left, sector->past[i], file->cuts[j] - index * 512, bytes)) return i;
        }
    }
    CHECK(file->cut_count > 0 && is_content(left, sector->past[0], 0, bytes));
    return -1;
}

static void check_content(struct model *model, struct model_file *file, const char *path)
{
    static unsigned char left[BYTES];
    enum crash crash = model->bench.crash;
    struct volume_open open;
    bool has_size = false;
    int losses = 0, keeps = 0;
    int bytes;

    CHECK_OK(volume_open(&model->bench.volume, path, O_RDONLY, 0, &open));
    CHECK_INT(open.node->number, ==, file->number);
    bytes = (int)volume_read(&open, left, sizeof left, 0);
    for (int i = 0; i < file->size_count; i++) {
        if (file->sizes[i] == bytes) has_size = true;
    }
    CHECK(has_size);
    if (crash == LOSE) CHECK_INT(bytes, ==, file->sizes[0]);
    if (crash == KEEP) CHECK_INT(bytes, ==, size_now(file));
    for (int i = 0; i * 512 < bytes; i++) {
        struct model_sector *sector = &file->sectors[i];
        const unsigned char *at = left + (size_t)i * 512;
        int which = find_content(file, i, at, bytes - i * 512);

        if (crash == LOSE) CHECK(is_content(at, sector->past[0], BYTES, bytes - i * 512));
        if (crash == KEEP) {
            CHECK(is_content(at, sector->past[sector->count - 1], BYTES, bytes - i * 512));
        }
        if (sector->count > 1 && which <= 0) losses++;
        if (sector->count > 1 && which == sector->count - 1) keeps++;
        if (which > 0 && which < sector->count - 1) model->between++;
    }
    model->lost += losses;
    model->kept += keeps;
    if (losses > 0 && keeps > 0) model->torn++;
    /* What is left is the new beginning. */
    for (int i = 0; i < SECTORS; i++) {
        struct model_sector *sector = &file->sectors[i];
        int valid = bytes - i * 512 < 0 ? 0 : bytes - i * 512 > 512 ? 512 : bytes - i * 512;

        memset(sector->past[0], 0, 512);
        memcpy(sector->past[0], left + (size_t)i * 512, (size_t)valid);
        sector->count = 1;
        sector->cut = 0;
        sector->is_dirty = false;
    }
    file->sizes[0] = bytes;
    file->size_count = 1;
    file->size_is_dirty = false;
    file->cut_count = 0;
    volume_close(&open);
}

/* The state of the directory as it is. */
static void look(struct model *model, int directory, int names[NAMES])
{
    for (int i = 0; i < NAMES; i++) {
        struct stat found;
        char path[16];
        int r = volume_stat(&model->bench.volume, path_of(directory, i, path), &found);

        names[i] = -1;
        if (r == -ENOENT) continue;
        CHECK_OK(r);
        for (int j = 0; j < model->file_count; j++) {
            if (model->files[j].number == found.st_ino) names[i] = j;
        }
        CHECK_INT(names[i], >=, 0);
        CHECK_INT(found.st_nlink, ==, 1);
    }
}

static void check_names(struct model *model, int directory)
{
    struct model_names *names = &model->directories[directory];
    enum crash crash = model->bench.crash;
    int left[NAMES];
    bool is_one = false;

    look(model, directory, left);
    for (int i = 0; i < names->count; i++) {
        if (memcmp(left, names->past[i], sizeof left) == 0) is_one = true;
    }
    CHECK(is_one);
    if (crash == KEEP) CHECK_INT(memcmp(left, names_now(model, directory), sizeof left), ==, 0);
    memcpy(names->past[0], left, sizeof left);
    names->count = 1;
}

static void crash(struct model *model, enum crash how)
{
    bench_crash(&model->bench, how);
    for (int directory = 0; directory < 2; directory++) {
        check_names(model, directory);
        for (int name = 0; name < NAMES; name++) {
            int file = names_now(model, directory)[name];
            char path[16];

            if (file >= 0) {
                check_content(model, &model->files[file], path_of(directory, name, path));
            }
        }
    }
}

static void live(struct model *model, uint64_t seed)
{
    bench_init(&model->bench, 1 << 20);
    model->chance = seed;
    model->bench.chance = ~seed;
    model->file_count = 0;
    CHECK_OK(volume_mkdir(&model->bench.volume, "dir", 0755));
    sync_path(&model->bench, "/");
    for (int directory = 0; directory < 2; directory++) {
        model->directories[directory].count = 1;
        for (int i = 0; i < NAMES; i++) model->directories[directory].past[0][i] = -1;
    }
    for (int life = 0; life < 3; life++) {
        int steps = 1 + (int)chance_below(&model->chance, STEPS);

        for (int i = 0; i < steps; i++) step(model);
        crash(model, (enum crash)chance_below(&model->chance, 3));
    }
    bench_deinit(&model->bench);
}

TEST(volume_leaves_after_a_crash_only_what_the_model_allows)
{
    uint64_t seed = chance_seed();
    int lives = TEST_SLOW ? 300 : 3000;
    struct model *model = calloc(1, sizeof *model);

    CHECK(model);
    model->files = calloc(FILES, sizeof model->files[0]);
    CHECK(model->files);
    for (int i = 0; i < lives; i++) {
        uint64_t seed_now = seed + (uint64_t)i;
        test_note("WEIR_TEST_SEED=%llu", (unsigned long long)seed_now);
        live(model, seed_now);
    }
    /* It was not for want of trying. */
    CHECK_INT(model->lost, >, lives / 10);
    CHECK_INT(model->kept, >, lives / 10);
    CHECK_INT(model->between, >, lives / 100);
    CHECK_INT(model->torn, >, lives / 100);
    free(model->files);
    free(model);
}
