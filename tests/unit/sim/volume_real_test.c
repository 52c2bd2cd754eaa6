/* volume_real_test.c - a volume and a real file system give the same answers to the same calls. */
#include <ftw.h>
#include <stdio.h>
#include <unistd.h>

#include "rt/kernel.h"
#include "unit/sim/volume_test.h"

enum { OPEN_FILES = 4 };

static const char *const paths[] = {
    "a",   "b",        "d",      "e",   "d/a",  "d/b", "d/e",  "d/e/a",
    "a/",  "d/",       "b/x",    "./a", "d//a", "d/.", "d/..", "d/../b",
    "a/.", "d/e/../a", "none/a", ".",   "e/d",  "e/a", "e/d/", "d/e/b/",
};

static const int flag_sets[] = {
    O_RDONLY,
    O_RDWR,
    O_WRONLY | O_CREAT,
    O_RDWR | O_CREAT,
    O_RDWR | O_CREAT | O_EXCL,
    O_RDWR | O_CREAT | O_TRUNC,
    O_WRONLY | O_TRUNC,
    O_RDWR | O_APPEND,
    O_RDWR | O_CREAT | O_APPEND,
    O_RDONLY | O_DIRECTORY,
    O_RDWR | O_DIRECTORY,
    O_RDONLY | O_CREAT,
    O_PATH,
    O_PATH | O_DIRECTORY,
};

struct both {
    struct bench bench;
    uint64_t chance;
    char folder[32];
    struct volume_open files[OPEN_FILES]; /* node is NULL: not open */
    int fds[OPEN_FILES];
};

static const struct kernel *const real = &kernel_epoll;

static const char *real_path(const struct both *both, const char *path, char text[96])
{
    (void)snprintf(text, 96, "%s/%s", both->folder, path);
    return text;
}

static const char *any_path(struct both *both)
{
    return paths[chance_below(&both->chance, sizeof paths / sizeof paths[0])];
}

static void step_open(struct both *both, int slot)
{
    const char *path = any_path(both);
    int flags = flag_sets[chance_below(&both->chance, sizeof flag_sets / sizeof flag_sets[0])];
    char text[96];
    int r;

    if (both->files[slot].node) {
        volume_close(&both->files[slot]);
        CHECK_OK(real->close(real, both->fds[slot]));
    }
    test_note("open %s, flags %o", path, (unsigned)flags);
    both->fds[slot] = real->open(real, real_path(both, path, text), flags, 0644);
    r = volume_open(&both->bench.volume, path, flags, 0644, &both->files[slot]);
    CHECK_INT(r, ==, both->fds[slot] < 0 ? both->fds[slot] : 0);
}

static void step_read_write(struct both *both, struct volume_open *file, int fd)
{
    static unsigned char data[2000], real_data[2000];
    bool moves = chance_below(&both->chance, 2) == 0;
    int64_t offset = moves ? VOLUME_AT_POSITION : (int64_t)chance_below(&both->chance, 3000);
    size_t bytes = (size_t)chance_below(&both->chance, sizeof data);

    if (chance_below(&both->chance, 2) == 0) {
        memset(data, (int)chance_below(&both->chance, 256), bytes);
        CHECK_INT(volume_write(file, data, bytes, offset), ==,
                  moves ? real->write(real, fd, data, bytes)
                        : real->pwrite(real, fd, data, bytes, offset));
    } else {
        ssize_t n = volume_read(file, data, bytes, offset);

        CHECK_INT(n, ==,
                  moves ? real->read(real, fd, real_data, bytes)
                        : real->pread(real, fd, real_data, bytes, offset));
        if (n > 0) CHECK_INT(memcmp(data, real_data, (size_t)n), ==, 0);
    }
}

static void check_stat(const struct stat *a, const struct stat *b)
{
    CHECK_INT(a->st_mode & S_IFMT, ==, b->st_mode & S_IFMT);
    if (S_ISDIR(a->st_mode)) return;
    CHECK_INT(a->st_size, ==, b->st_size);
    CHECK_INT(a->st_nlink, ==, b->st_nlink);
}

static void step_file(struct both *both, int slot)
{
    struct volume_open *file = &both->files[slot];
    int fd = both->fds[slot];
    struct stat found, real_found;
    int64_t bytes;
    bool lock;

    if (!file->node) return;
    test_note("a call on descriptor %d, flags %o", slot, (unsigned)file->flags);
    switch (chance_below(&both->chance, 6)) {
    case 0:
        bytes = (int64_t)chance_below(&both->chance, 4000);
        /* Without the right to write, both say so, but Linux looks at other things first. */
        if ((file->flags & O_PATH) != 0) return;
        CHECK_INT(volume_truncate(file, bytes), ==, real->truncate(real, fd, bytes));
        return;
    case 1:
        lock = chance_below(&both->chance, 2) == 0;
        CHECK_INT(volume_lock(file, lock), ==, real->lock_file(real, fd, lock));
        return;
    case 2:
        volume_stat_node(file->node, &found);
        CHECK_OK(real->fstat(real, fd, &real_found));
        check_stat(&found, &real_found);
        return;
    default: step_read_write(both, file, fd); return;
    }
}

static void step_path(struct both *both)
{
    const char *path = any_path(both);
    const char *to = any_path(both);
    char text[96], to_text[96];
    struct stat found, real_found;
    int r;

    (void)real_path(both, path, text);
    switch (chance_below(&both->chance, 5)) {
    case 0:
        test_note("mkdir %s", path);
        CHECK_INT(volume_mkdir(&both->bench.volume, path, 0755), ==, real->mkdir(real, text, 0755));
        return;
    case 1:
        test_note("unlink %s", path);
        CHECK_INT(volume_unlink(&both->bench.volume, path), ==, real->unlink(real, text));
        return;
    case 2:
        test_note("stat %s", path);
        r = volume_stat(&both->bench.volume, path, &found);
        CHECK_INT(r, ==, real->stat(real, text, &real_found));
        if (r == 0) check_stat(&found, &real_found);
        return;
    default:
        test_note("rename %s to %s", path, to);
        CHECK_INT(volume_rename(&both->bench.volume, path, to), ==,
                  real->rename(real, text, real_path(both, to, to_text)));
        return;
    }
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status, (void)kind, (void)walk;
    return remove(path);
}

static void compare(struct both *both, uint64_t seed)
{
    bench_init(&both->bench, 1 << 20);
    both->chance = seed;
    strcpy(both->folder, "/tmp/weir-test-XXXXXX");
    CHECK(mkdtemp(both->folder));
    for (int i = 0; i < 200; i++) {
        int slot = (int)chance_below(&both->chance, OPEN_FILES);
        uint64_t what = chance_below(&both->chance, 4);

        if (what == 0)
            step_open(both, slot);
        else if (what == 1)
            step_path(both);
        else
            step_file(both, slot);
    }
    for (int i = 0; i < OPEN_FILES; i++) {
        if (!both->files[i].node) continue;
        volume_close(&both->files[i]);
        CHECK_OK(real->close(real, both->fds[i]));
    }
    bench_deinit(&both->bench);
    CHECK_INT(nftw(both->folder, remove_one, 8, FTW_DEPTH | FTW_PHYS), ==, 0);
}

TEST(volume_answers_as_a_real_file_system_does)
{
    static struct both both;
    uint64_t seed = chance_seed();
    int histories = TEST_SLOW ? 30 : 200;

    for (int i = 0; i < histories; i++) compare(&both, seed + (uint64_t)i);
}
