/* volume_test.c - a file system that loses power: its calls, and what is left. */
#include "unit/sim/volume_test.h"

#include <limits.h>

/* ---- Calls ---- */

TEST(volume_open_answers_as_linux_does)
{
    static const struct {
        const char *path;
        int flags;
        int result;
    } rows[] = {
        {"", O_RDONLY, -ENOENT},
        {"/", O_RDONLY, 0},
        {"/", O_RDWR, -EISDIR},
        {"/", O_RDONLY | O_DIRECTORY, 0},
        {"/none", O_RDONLY, -ENOENT},
        {"/none/file", O_RDWR | O_CREAT, -ENOENT},
        {"/file", O_RDONLY, 0},
        {"file", O_RDWR, 0},
        {"//./dir/..//file", O_RDWR, 0},
        {"/../file", O_RDWR, 0},
        {"/file/", O_RDONLY, -ENOTDIR},
        {"/file/x", O_RDWR | O_CREAT, -ENOTDIR},
        {"/file/.", O_RDONLY, -ENOTDIR},
        {"/file", O_RDONLY | O_DIRECTORY, -ENOTDIR},
        {"/file", O_RDWR | O_CREAT | O_EXCL, -EEXIST},
        {"/file", O_RDWR | O_CREAT, 0},
        {"/dir", O_RDWR | O_CREAT, -EISDIR},
        {"/dir", O_RDONLY | O_CREAT, -EISDIR},
        {"/dir", O_RDONLY | O_TRUNC, -EISDIR},
        {"/dir", O_RDONLY | O_CREAT | O_EXCL, -EEXIST},
        {"/dir/", O_RDONLY, 0},
        {"/new/", O_RDWR | O_CREAT, -EISDIR},
        {"/new", O_RDWR | O_CREAT | O_DIRECTORY, -EINVAL},
        {"/dir", O_RDWR | O_TMPFILE, -EOPNOTSUPP},
        {"/file", O_PATH | O_NOFOLLOW, 0},
        {"/dir/new", O_RDWR | O_CREAT | O_EXCL, 0},
    };
    struct bench bench;

    bench_init(&bench, 1 << 20);
    write_path(&bench, "file", "x", 0);
    CHECK_OK(volume_mkdir(&bench.volume, "dir", 0755));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct volume_open file;
        int r;

        test_note("%s, flags %o", rows[i].path, (unsigned)rows[i].flags);
        r = volume_open(&bench.volume, rows[i].path, rows[i].flags, 0600, &file);
        CHECK_INT(r, ==, rows[i].result);
        if (r == 0) volume_close(&file);
    }
    bench_deinit(&bench);
}

TEST(volume_names_and_paths_have_a_longest)
{
    static char path[PATH_MAX + 1];
    struct bench bench;
    struct stat found;

    bench_init(&bench, 1 << 20);
    memset(path, 'n', NAME_MAX + 1);
    CHECK_INT(volume_mkdir(&bench.volume, path, 0755), ==, -ENAMETOOLONG);
    path[NAME_MAX] = '\0';
    CHECK_OK(volume_mkdir(&bench.volume, path, 0755));
    CHECK_OK(volume_stat(&bench.volume, path, &found));
    memset(path, '/', PATH_MAX);
    CHECK_INT(volume_stat(&bench.volume, path, &found), ==, -ENAMETOOLONG);
    path[PATH_MAX - 1] = '\0';
    CHECK_OK(volume_stat(&bench.volume, path, &found));
    bench_deinit(&bench);
}

TEST(volume_files_are_used_as_they_were_opened)
{
    struct bench bench;
    struct volume_open reads, writes, path, root, append;
    char data[8];

    bench_init(&bench, 1 << 20);
    CHECK_OK(volume_open(&bench.volume, "f", O_WRONLY | O_CREAT, 0640, &writes));
    CHECK_OK(volume_open(&bench.volume, "f", O_RDONLY, 0, &reads));
    CHECK_OK(volume_open(&bench.volume, "f", O_PATH, 0, &path));
    CHECK_OK(volume_open(&bench.volume, "f", O_RDWR | O_APPEND, 0, &append));
    CHECK_OK(volume_open(&bench.volume, "/", O_RDONLY, 0, &root));

    CHECK_INT(volume_read(&writes, data, 1, 0), ==, -EBADF);
    CHECK_INT(volume_write(&reads, data, 1, 0), ==, -EBADF);
    CHECK_INT(volume_truncate(&reads, 0), ==, -EINVAL);
    CHECK_INT(volume_read(&path, data, 1, 0), ==, -EBADF);
    CHECK_INT(volume_sync(&path, false), ==, -EBADF);
    CHECK_INT(volume_lock(&path, true), ==, -EBADF);
    CHECK_INT(volume_read(&root, data, 1, 0), ==, -EISDIR);
    CHECK_INT(volume_write(&root, data, 1, 0), ==, -EBADF);
    CHECK_INT(volume_truncate(&writes, -1), ==, -EINVAL);
    CHECK_INT(volume_read(&reads, data, 1, INT64_MIN), ==, -EINVAL);
    CHECK_INT(volume_write(&writes, "ab", 2, INT64_MAX - 1), ==, -EFBIG);

    /* The position is the open file's own. */
    CHECK_INT(volume_write(&writes, "abc", 3, VOLUME_AT_POSITION), ==, 3);
    CHECK_INT(volume_write(&writes, "de", 2, VOLUME_AT_POSITION), ==, 2);
    CHECK_INT(volume_read(&reads, data, 4, VOLUME_AT_POSITION), ==, 4);
    CHECK_INT(volume_read(&reads, data, 4, VOLUME_AT_POSITION), ==, 1);
    CHECK_INT(data[0], ==, 'e');
    CHECK_INT(volume_read(&reads, data, 4, VOLUME_AT_POSITION), ==, 0);
    /* Wherever it is said to go, it goes to the end. */
    CHECK_INT(volume_write(&append, "f", 1, 0), ==, 1);
    CHECK_STR(text_of(&bench, "f"), "abcdef");

    volume_close(&reads);
    volume_close(&writes);
    volume_close(&path);
    volume_close(&root);
    volume_close(&append);
    bench_deinit(&bench);
}

TEST(volume_unlinked_files_live_until_they_are_closed)
{
    struct bench bench;
    struct volume_open file;
    struct stat found;
    char data[4];

    bench_init(&bench, 1 << 20);
    write_path(&bench, "f", "old", 0);
    CHECK_OK(volume_open(&bench.volume, "f", O_RDWR, 0, &file));
    CHECK_OK(volume_unlink(&bench.volume, "f"));
    CHECK_INT(volume_unlink(&bench.volume, "f"), ==, -ENOENT);
    CHECK(!text_of(&bench, "f"));
    volume_stat_node(file.node, &found);
    CHECK_INT(found.st_nlink, ==, 0);
    write_path(&bench, "f", "new", 0);
    CHECK_INT(volume_read(&file, data, sizeof data, 0), ==, 3);
    CHECK_INT(memcmp(data, "old", 3), ==, 0);
    CHECK_INT(bench.volume.bytes_used, ==, 1024);
    volume_close(&file);
    CHECK_INT(bench.volume.bytes_used, ==, 512); /* although a crash could bring it back */
    CHECK_STR(text_of(&bench, "f"), "new");
    bench_deinit(&bench);
}

static int count_name(void *arg, const char *name)
{
    int *count = arg;

    if (strcmp(name, "stop") == 0) return -EOVERFLOW;
    (*count)++;
    return 0;
}

TEST(volume_directories_list_and_rename_as_linux_does)
{
    struct bench bench;
    struct volume *volume = &bench.volume;
    int count = 0;

    bench_init(&bench, 1 << 20);
    CHECK_OK(volume_mkdir(volume, "a", 0755));
    CHECK_OK(volume_mkdir(volume, "a/b", 0755));
    CHECK_OK(volume_mkdir(volume, "e/", 0755));
    CHECK_INT(volume_mkdir(volume, "a", 0755), ==, -EEXIST);
    CHECK_INT(volume_mkdir(volume, "/", 0755), ==, -EEXIST);
    write_path(&bench, "f", "f", 0);
    CHECK_INT(volume_mkdir(volume, "f", 0755), ==, -EEXIST);
    CHECK_INT(volume_unlink(volume, "a"), ==, -EISDIR);

    CHECK_OK(volume_list(volume, "/", count_name, &count));
    CHECK_INT(count, ==, 3);
    CHECK_INT(volume_list(volume, "f", count_name, &count), ==, -ENOTDIR);
    CHECK_INT(volume_list(volume, "x", count_name, &count), ==, -ENOENT);

    CHECK_INT(volume_rename(volume, "x", "y"), ==, -ENOENT);
    CHECK_INT(volume_rename(volume, "f", "x/y"), ==, -ENOENT);
    CHECK_INT(volume_rename(volume, "f", "a"), ==, -EISDIR);
    CHECK_INT(volume_rename(volume, "f", "new/"), ==, -ENOTDIR);
    CHECK_INT(volume_rename(volume, "a", "f"), ==, -ENOTDIR);
    CHECK_INT(volume_rename(volume, "e", "a"), ==, -ENOTEMPTY);
    CHECK_INT(volume_rename(volume, "a", "a/b/c"), ==, -EINVAL);
    CHECK_INT(volume_rename(volume, "a", "a/b"), ==, -EINVAL);
    CHECK_INT(volume_rename(volume, "a/.", "g"), ==, -EBUSY);
    CHECK_OK(volume_rename(volume, "f", "f"));
    CHECK_STR(text_of(&bench, "f"), "f");
    CHECK_OK(volume_rename(volume, "a/b", "e"));
    CHECK_OK(volume_rename(volume, "f", "e/f"));
    CHECK_STR(text_of(&bench, "e/../e/f"), "f");
    CHECK(!text_of(&bench, "f"));
    write_path(&bench, "e/stop", "s", 0);
    CHECK_INT(volume_list(volume, "e", count_name, &count), ==, -EOVERFLOW);
    CHECK_INT(count, ==, 4);
    bench_deinit(&bench);
}

TEST(volume_a_lock_belongs_to_an_open_file)
{
    struct bench bench;
    struct volume_open one, two;

    bench_init(&bench, 1 << 20);
    write_path(&bench, "f", "", 0);
    CHECK_OK(volume_open(&bench.volume, "f", O_RDWR, 0, &one));
    CHECK_OK(volume_open(&bench.volume, "f", O_RDONLY, 0, &two));
    CHECK_OK(volume_lock(&one, true));
    CHECK_OK(volume_lock(&one, true));
    CHECK_INT(volume_lock(&two, true), ==, -EAGAIN);
    CHECK_OK(volume_lock(&two, false)); /* not its own: nothing happens */
    CHECK_INT(volume_lock(&two, true), ==, -EAGAIN);
    CHECK_OK(volume_lock(&one, false));
    CHECK_OK(volume_lock(&two, true));
    CHECK_INT(volume_lock(&one, true), ==, -EAGAIN);
    volume_close(&two);
    CHECK_OK(volume_lock(&one, true));
    volume_close(&one);
    bench_deinit(&bench);
}

TEST(volume_a_full_disk_takes_less_and_then_nothing)
{
    static char data[3000];
    struct bench bench;
    struct volume_open file;
    struct stat found;

    bench_init(&bench, 2048);
    memset(data, 'x', sizeof data);
    CHECK_OK(volume_open(&bench.volume, "f", O_RDWR | O_CREAT, 0644, &file));
    CHECK_INT(volume_write(&file, data, 3000, 100), ==, 1948);
    CHECK_INT(volume_write(&file, data, 3000, 2048), ==, -ENOSPC);
    CHECK_INT(volume_write(&file, data, 2048, 0), ==, 2048); /* what it has it can change */
    volume_stat_node(file.node, &found);
    CHECK_INT(found.st_size, ==, 2048);
    CHECK_INT(found.st_blocks, ==, 4);
    CHECK_OK(volume_truncate(&file, 512));
    CHECK_INT(volume_write(&file, data, 2000, 10240), ==, 1536); /* holes take nothing */
    CHECK_INT(volume_write(&file, data, 1, 512), ==, -ENOSPC);
    volume_close(&file);
    CHECK_OK(volume_unlink(&bench.volume, "f"));
    write_path(&bench, "g", "g", 1535);
    bench_crash(&bench, LOSE);
    bench_deinit(&bench);
}

TEST(volume_files_of_sockets_are_names_with_nothing_behind)
{
    struct bench bench;
    struct volume_open file;
    struct stat found;
    int64_t number;

    bench_init(&bench, 1 << 20);
    write_path(&bench, "f", "x", 0);
    number = volume_make_socket(&bench.volume, "s");
    CHECK_INT(number, >, 0);
    CHECK_INT(volume_make_socket(&bench.volume, "s"), ==, -EADDRINUSE);
    CHECK_INT(volume_make_socket(&bench.volume, "f"), ==, -EADDRINUSE);
    CHECK_INT(volume_make_socket(&bench.volume, "none/s"), ==, -ENOENT);
    CHECK_INT(volume_find_socket(&bench.volume, "./s"), ==, number);
    CHECK_INT(volume_find_socket(&bench.volume, "f"), ==, -ECONNREFUSED);
    CHECK_INT(volume_find_socket(&bench.volume, "/"), ==, -ECONNREFUSED);
    CHECK_INT(volume_find_socket(&bench.volume, "none"), ==, -ENOENT);
    CHECK_INT(volume_open(&bench.volume, "s", O_RDWR, 0, &file), ==, -ENXIO);
    CHECK_OK(volume_open(&bench.volume, "s", O_PATH, 0, &file));
    volume_close(&file);
    CHECK_OK(volume_stat(&bench.volume, "s", &found));
    CHECK(S_ISSOCK(found.st_mode));
    CHECK_INT(found.st_ino, ==, number);
    CHECK_OK(volume_unlink(&bench.volume, "s"));
    CHECK_INT(volume_find_socket(&bench.volume, "s"), ==, -ENOENT);
    bench_deinit(&bench);
}

/* ---- What is left ---- */

TEST(volume_what_was_synced_is_there_after_a_crash)
{
    struct bench bench;

    bench_init(&bench, 1 << 20);
    write_path(&bench, "f", "synced", 0);
    sync_path(&bench, "f");
    sync_path(&bench, "/");
    write_path(&bench, "f", "SYN", 0);
    write_path(&bench, "g", "not synced", 0);
    bench_crash(&bench, LOSE);
    CHECK_STR(text_of(&bench, "f"), "synced");
    CHECK(!text_of(&bench, "g"));
    write_path(&bench, "f", "SYN", 0);
    write_path(&bench, "g", "not synced", 0);
    bench_crash(&bench, KEEP);
    CHECK_STR(text_of(&bench, "f"), "SYNced");
    CHECK_STR(text_of(&bench, "g"), "not synced");
    /* What a crash has left is durable. */
    bench_crash(&bench, LOSE);
    CHECK_INT(bench.choices + bench.names, ==, 0);
    CHECK_STR(text_of(&bench, "f"), "SYNced");
    CHECK_STR(text_of(&bench, "g"), "not synced");
    bench_deinit(&bench);
}

TEST(volume_a_name_needs_a_sync_of_its_directory)
{
    struct bench bench;

    bench_init(&bench, 1 << 20);
    CHECK_OK(volume_mkdir(&bench.volume, "d", 0755));
    write_path(&bench, "f", "f", 0);
    write_path(&bench, "d/g", "g", 0);
    sync_path(&bench, "f");
    sync_path(&bench, "d/g");
    sync_path(&bench, "/");
    bench_crash(&bench, LOSE);
    CHECK_STR(text_of(&bench, "f"), "f");
    CHECK(!text_of(&bench, "d/g"));
    /* Without a sync of the content there is a name, and nothing behind it. */
    write_path(&bench, "d/g", "g", 0);
    sync_path(&bench, "d");
    bench_crash(&bench, LOSE);
    CHECK_STR(text_of(&bench, "d/g"), "");
    /* The directory of a synced file is itself a name. */
    CHECK_OK(volume_mkdir(&bench.volume, "e", 0755));
    write_path(&bench, "e/h", "h", 0);
    sync_path(&bench, "e/h");
    sync_path(&bench, "e");
    bench_crash(&bench, LOSE);
    CHECK(!text_of(&bench, "e/h"));
    bench_deinit(&bench);
}

TEST(volume_a_file_that_is_replaced_is_the_old_or_the_new_one)
{
    int olds = 0, news = 0;

    for (unsigned i = 0; i < 200; i++) {
        struct bench bench;
        const char *text;

        bench_init(&bench, 1 << 20);
        bench.chance = i;
        write_path(&bench, "f", "old", 0);
        sync_path(&bench, "f");
        sync_path(&bench, "/");
        write_path(&bench, "f.new", "new", 0);
        sync_path(&bench, "f.new");
        CHECK_OK(volume_rename(&bench.volume, "f.new", "f"));
        bench_crash(&bench, ANY);
        text = text_of(&bench, "f");
        CHECK(text);
        if (strcmp(text, "old") == 0)
            olds++;
        else if (strcmp(text, "new") == 0)
            news++;
        else
            TEST_FAIL("it is '%s'", text);
        /* The last change of the directory was the rename: with it, the other name is gone. */
        if (strcmp(text, "new") == 0) CHECK(!text_of(&bench, "f.new"));
        write_path(&bench, "f.new", "newer", 0);
        sync_path(&bench, "f.new");
        CHECK_OK(volume_rename(&bench.volume, "f.new", "f"));
        sync_path(&bench, "/");
        bench_crash(&bench, ANY);
        CHECK_STR(text_of(&bench, "f"), "newer");
        CHECK(!text_of(&bench, "f.new"));
        bench_deinit(&bench);
    }
    CHECK_INT(olds, >, 20);
    CHECK_INT(news, >, 20);
}

/* Without the sync of its content, the new file may be empty: the classic mistake. */
TEST(volume_a_replacement_that_was_not_synced_can_be_empty)
{
    int empties = 0;

    for (unsigned i = 0; i < 100; i++) {
        struct bench bench;

        bench_init(&bench, 1 << 20);
        bench.chance = i;
        write_path(&bench, "f", "old", 0);
        sync_path(&bench, "f");
        sync_path(&bench, "/");
        write_path(&bench, "f.new", "new", 0);
        CHECK_OK(volume_rename(&bench.volume, "f.new", "f"));
        bench_crash(&bench, ANY);
        if (strcmp(text_of(&bench, "f"), "") == 0) empties++;
        bench_deinit(&bench);
    }
    CHECK_INT(empties, >, 5);
}

TEST(volume_a_file_that_moves_is_never_nowhere_and_never_twice)
{
    for (unsigned i = 0; i < 500; i++) {
        struct bench bench;
        uint64_t chance = i;
        bool in_a, in_b, in_c;

        bench_init(&bench, 1 << 20);
        bench.chance = i;
        CHECK_OK(volume_mkdir(&bench.volume, "a", 0755));
        write_path(&bench, "a/f", "f", 0);
        sync_path(&bench, "a/f");
        sync_path(&bench, "a");
        sync_path(&bench, "/");
        CHECK_OK(volume_mkdir(&bench.volume, "b", 0755)); /* not synced itself */
        write_path(&bench, "a/other", "o", 0);
        CHECK_OK(volume_rename(&bench.volume, "a/f", "b/f"));
        write_path(&bench, "b/other", "o", 0);
        if (chance_below(&chance, 2) == 0) sync_path(&bench, "a");
        CHECK_OK(volume_mkdir(&bench.volume, "c", 0755));
        CHECK_OK(volume_rename(&bench.volume, "b/f", "c/f"));
        if (chance_below(&chance, 2) == 0) sync_path(&bench, "b");
        if (chance_below(&chance, 4) == 0) CHECK_OK(volume_rename(&bench.volume, "c", "a/c"));
        bench_crash(&bench, ANY);
        in_a = text_of(&bench, "a/f") != NULL;
        in_b = text_of(&bench, "b/f") != NULL;
        in_c = text_of(&bench, "c/f") != NULL || text_of(&bench, "a/c/f") != NULL;
        CHECK_INT(in_a + in_b + in_c, ==, 1);
        bench_deinit(&bench);
    }
}

TEST(volume_a_large_write_is_torn_between_sectors)
{
    static char data[16 * 512];
    static char left[sizeof data];
    int torn = 0;

    memset(data, 'n', sizeof data);
    for (unsigned i = 0; i < 50; i++) {
        struct bench bench;
        struct volume_open file;
        int kept = 0;

        bench_init(&bench, 1 << 20);
        bench.chance = i;
        CHECK_OK(volume_open(&bench.volume, "f", O_RDWR | O_CREAT, 0644, &file));
        CHECK_OK(volume_truncate(&file, sizeof data));
        CHECK_OK(volume_sync(&file, false));
        sync_path(&bench, "/");
        CHECK_INT(volume_write(&file, data, sizeof data, 0), ==, sizeof data);
        bench_crash(&bench, ANY);
        CHECK_INT(bench.choices, ==, 16);
        CHECK_INT(volume_read(&file, left, sizeof left, 0), ==, sizeof left);
        for (int sector = 0; sector < 16; sector++) {
            const char *at = left + (size_t)sector * 512;

            CHECK(at[0] == 'n' || at[0] == '\0');
            for (int j = 1; j < 512; j++) CHECK_INT(at[j], ==, at[0]);
            if (at[0] == 'n') kept++;
        }
        if (kept > 0 && kept < 16) torn++;
        volume_close(&file);
        bench_deinit(&bench);
    }
    CHECK_INT(torn, >, 40);
}

TEST(volume_choices_about_a_large_file_are_few)
{
    static char data[100 * 1000];
    struct bench bench;
    struct volume_open file;

    bench_init(&bench, 1 << 20);
    memset(data, 'x', sizeof data);
    CHECK_OK(volume_open(&bench.volume, "f", O_RDWR | O_CREAT, 0644, &file));
    sync_path(&bench, "/");
    CHECK_INT(volume_write(&file, data, sizeof data, 0), ==, sizeof data);
    bench_crash(&bench, KEEP);
    CHECK_INT(bench.choices, >, 32);
    CHECK_INT(bench.choices, <=, VOLUME_RANGES_MAX);
    CHECK_INT(file.node->content.bytes, ==, sizeof data);
    CHECK_INT(volume_write(&file, data, sizeof data, 0), ==, sizeof data);
    bench_crash(&bench, ANY);
    CHECK_INT(bench.choices, <=, VOLUME_RANGES_MAX);
    CHECK_INT(volume_write(&file, data, 64 * 512, 0), ==, 64 * 512);
    bench_crash(&bench, ANY);
    CHECK_INT(bench.choices, ==, 64);
    volume_close(&file);
    for (int i = 0; i < 1000; i++) {
        write_path(&bench, i % 2 == 0 ? "tmp" : "tmp2", "x", 0);
        CHECK_OK(volume_unlink(&bench.volume, i % 2 == 0 ? "tmp" : "tmp2"));
    }
    CHECK_INT(bench.volume.root.directory.change_count, <=, VOLUME_CHANGES_MAX);
    CHECK_INT(bench.live, <, 600);
    bench_crash(&bench, ANY);
    bench_deinit(&bench);
}

TEST(volume_an_emptied_file_is_old_empty_or_new_but_its_past_does_not_leak)
{
    int olds = 0, empties = 0, news = 0, zeroes = 0;

    for (unsigned i = 0; i < 400; i++) {
        struct bench bench;
        struct volume_open file;
        const char *text;
        struct stat found;

        bench_init(&bench, 1 << 20);
        bench.chance = i;
        write_path(&bench, "f", "the old one", 0);
        sync_path(&bench, "f");
        sync_path(&bench, "/");
        CHECK_OK(volume_open(&bench.volume, "f", O_RDWR | O_TRUNC, 0, &file));
        CHECK_INT(volume_write(&file, "a new one", 9, 0), ==, 9);
        volume_close(&file);
        bench_crash(&bench, ANY);
        text = text_of(&bench, "f");
        CHECK_OK(volume_stat(&bench.volume, "f", &found));
        if (strcmp(text, "the old one") == 0)
            olds++;
        else if (found.st_size == 0)
            empties++;
        else if (strcmp(text, "a new one") == 0)
            news++;
        else if (found.st_size == 9 && text[0] == '\0')
            zeroes++;
        else
            TEST_FAIL("'%s', %d bytes", text, (int)found.st_size);
        bench_deinit(&bench);
    }
    CHECK(olds > 0 && empties > 0 && news > 0 && zeroes > 0);
}

TEST(volume_a_file_that_shrank_and_grew_has_zeroes_where_it_was_cut)
{
    for (unsigned i = 0; i < 200; i++) {
        static char left[2048];
        struct bench bench;
        struct volume_open file;
        ssize_t n;

        bench_init(&bench, 1 << 20);
        bench.chance = i;
        memset(left, 'o', sizeof left);
        CHECK_OK(volume_open(&bench.volume, "f", O_RDWR | O_CREAT, 0644, &file));
        CHECK_INT(volume_write(&file, left, 2000, 0), ==, 2000);
        CHECK_OK(volume_sync(&file, false));
        sync_path(&bench, "/");
        memset(left, 'n', sizeof left);
        CHECK_INT(volume_write(&file, left, 2000, 0), ==, 2000);
        CHECK_OK(volume_truncate(&file, 600));
        CHECK_OK(volume_truncate(&file, 1900));
        CHECK_INT(volume_read(&file, left, sizeof left, 0), ==, 1900);
        for (int j = 0; j < 1900; j++) CHECK_INT(left[j], ==, j < 600 ? 'n' : '\0');
        bench_crash(&bench, ANY);
        n = volume_read(&file, left, sizeof left, 0);
        CHECK(n == 2000 || n == 600 || n == 1900);
        for (int j = 0; j < n && n < 2000; j++) CHECK_INT(left[j] == '\0', ==, j >= 600);
        CHECK_OK(volume_truncate(&file, 2048));
        CHECK_INT(volume_read(&file, left, sizeof left, 0), ==, 2048);
        CHECK_INT(left[2000], ==, 0);
        volume_close(&file);
        bench_deinit(&bench);
    }
}

TEST(volume_a_sync_that_failed_has_saved_nothing_and_the_next_one_does_not_either)
{
    struct bench bench;
    struct volume_open one, two, root;

    bench_init(&bench, 1 << 20);
    CHECK_OK(volume_open(&bench.volume, "f", O_RDWR | O_CREAT, 0644, &one));
    CHECK_INT(volume_write(&one, "one", 3, 0), ==, 3);
    CHECK_OK(volume_open(&bench.volume, "f", O_RDWR, 0644, &two));
    CHECK_OK(volume_sync(&one, false));
    CHECK_INT(volume_write(&one, "two four", 8, 0), ==, 8);
    CHECK_INT(volume_sync(&one, true), ==, -EIO);
    CHECK_OK(volume_sync(&one, false));
    CHECK_INT(volume_sync(&two, false), ==, -EIO); /* it was open then: it is told, too */
    CHECK_OK(volume_sync(&two, false));
    CHECK_STR(text_of(&bench, "f"), "two four"); /* until a crash */
    CHECK_OK(volume_open(&bench.volume, "/", O_RDONLY, 0, &root));
    CHECK_OK(volume_sync(&root, false));
    bench_crash(&bench, LOSE);
    CHECK_STR(text_of(&bench, "f"), "one");

    /* A new write of it is another matter. */
    CHECK_INT(volume_write(&one, "four", 4, 0), ==, 4);
    CHECK_INT(volume_sync(&one, true), ==, -EIO);
    CHECK_INT(volume_write(&one, "s", 1, 4), ==, 1);
    CHECK_OK(volume_sync(&one, false));
    bench_crash(&bench, LOSE);
    CHECK_STR(text_of(&bench, "f"), "fours");

    /* Names go the same way. */
    write_path(&bench, "g", "", 0);
    CHECK_INT(volume_sync(&root, true), ==, -EIO);
    CHECK_OK(volume_sync(&root, false));
    bench_crash(&bench, LOSE);
    CHECK(!text_of(&bench, "g"));
    write_path(&bench, "g", "", 0);
    CHECK_INT(volume_sync(&root, true), ==, -EIO);
    write_path(&bench, "h", "", 0);
    CHECK_OK(volume_sync(&root, false));
    bench_crash(&bench, LOSE);
    CHECK_STR(text_of(&bench, "g"), "");
    volume_close(&one);
    volume_close(&two);
    volume_close(&root);
    bench_deinit(&bench);
}

/* ---- Memory ---- */

static void use_all(struct bench *bench)
{
    static const char data[2000] = "x";
    struct volume_open file;

    (void)volume_mkdir(&bench->volume, "d", 0755);
    if (volume_open(&bench->volume, "f", O_RDWR | O_CREAT, 0644, &file) == 0) {
        for (int i = 0; i < 3; i++) (void)volume_write(&file, data, sizeof data, 100 * i);
        (void)volume_sync(&file, false);
        (void)volume_write(&file, data, sizeof data, 0);
        (void)volume_truncate(&file, 700);
        volume_close(&file);
    }
    (void)volume_rename(&bench->volume, "f", "d/f");
    (void)volume_rename(&bench->volume, "d/f", "g");
    (void)volume_unlink(&bench->volume, "g");
}

TEST(volume_survives_that_memory_is_missing)
{
    for (int i = 1; i < 80; i++) {
        struct bench bench;

        bench_init(&bench, 1 << 20);
        bench.fail_at = i;
        bench.chance = (uint64_t)i;
        use_all(&bench);
        bench_crash(&bench, ANY);
        use_all(&bench);
        bench_deinit(&bench);
    }
}
