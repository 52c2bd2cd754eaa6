/* log_stand.c - see log_test.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit/store/log_test.h"

size_t stand_record(uint64_t number, unsigned char data[STAND_RECORD_BYTES_MAX])
{
    uint64_t state = number * UINT64_C(0x9e3779b97f4a7c15) + 1;
    size_t bytes = 8 + (size_t)(state >> 33) % 300;

    memcpy(data, &number, 8);
    for (size_t i = 8; i < bytes; i++) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
        data[i] = (unsigned char)(state >> 56);
    }
    return bytes;
}

/* On a thread of the log's: what is wrong is looked at later. */
static int replay(void *arg, const struct log_record *record)
{
    struct stand *stand = arg;
    unsigned char data[STAND_RECORD_BYTES_MAX];
    uint64_t number;
    size_t bytes;

    if (record->bytes < 8 || record->position <= stand->position_last) {
        stand->is_wrong = true;
        return 0;
    }
    memcpy(&number, record->data, 8);
    bytes = stand_record(number, data);
    if (stand->replayed == 0) stand->first = stand->next = number;
    if (number != stand->next || bytes != record->bytes || memcmp(data, record->data, bytes) != 0 ||
        record->tag != (uint16_t)number)
        stand->is_wrong = true;
    stand->next = number + 1;
    stand->replayed++;
    stand->position_last = record->position;
    if (stand->refuse_at > 0 && stand->replayed == (unsigned)stand->refuse_at) return -EDOM;
    return 0;
}

void stand_make(struct stand *stand)
{
    /* In memory, if there is such a folder: what syncs cost is not what is tested here. */
    char path[] = "/dev/shm/weir-test-XXXXXX";

    memset(stand, 0, sizeof *stand);
    if (access("/dev/shm", W_OK) != 0) strcpy(path, "/tmp/weir-test-XXXXXX");
    CHECK(mkdtemp(path) != NULL);
    (void)snprintf(stand->path, sizeof stand->path, "%s", path);
    stand->spec = (struct log_spec){
        .path = stand->path,
        .create = true,
        .segment_bytes = STAND_SEGMENT_BYTES,
        .buffer_bytes = STAND_BUFFER_BYTES,
        .record_bytes_max = STAND_RECORD_BYTES_MAX,
        .replay = replay,
        .arg = stand,
    };
}

void folder_remove_all(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    char name[512];

    if (!folder) return;
    while ((entry = readdir(folder))) {
        if (entry->d_name[0] == '.') continue;
        (void)snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        (void)unlink(name);
    }
    (void)closedir(folder);
    (void)rmdir(path);
}

void file_copy(const char *from, const char *to)
{
    static char data[65536];
    FILE *in = fopen(from, "rbe"), *out;
    size_t n;

    /* Of a store that is open: a spare that was just renamed. */
    if (!in && errno == ENOENT) return;
    CHECK(in != NULL);
    out = fopen(to, "wbe");
    CHECK(out != NULL);
    while ((n = fread(data, 1, sizeof data, in)) > 0) CHECK_INT(fwrite(data, 1, n, out), ==, n);
    CHECK_INT(fclose(in), ==, 0);
    CHECK_INT(fclose(out), ==, 0);
}

void folder_copy_all(const char *from, const char *to)
{
    DIR *folder = opendir(from);
    struct dirent *entry;
    char source[512], target[512];

    CHECK(folder != NULL);
    CHECK(mkdir(to, 0755) == 0 || errno == EEXIST);
    while ((entry = readdir(folder))) {
        if (entry->d_name[0] == '.') continue;
        (void)snprintf(source, sizeof source, "%s/%s", from, entry->d_name);
        (void)snprintf(target, sizeof target, "%s/%s", to, entry->d_name);
        file_copy(source, target);
    }
    (void)closedir(folder);
}

void stand_remove(struct stand *stand)
{
    folder_remove_all(stand->path);
}

int stand_try(struct stand *stand, struct log **ret_log)
{
    stand->replayed = 0;
    stand->position_last = 0;
    stand->is_wrong = false;
    return log_open(&stand->spec, ret_log);
}

struct log *stand_open(struct stand *stand)
{
    struct log *log = NULL;

    CHECK_OK(stand_try(stand, &log));
    CHECK(!stand->is_wrong);
    return log;
}

void stand_close(struct log *log)
{
    CHECK_OK(log_close(log));
}

int stand_append_one(struct stand *stand, struct log *log, enum log_use use)
{
    unsigned char data[STAND_RECORD_BYTES_MAX];
    size_t bytes = stand_record(stand->appended, data);
    /* In two parts, as an owner has them. */
    struct iovec parts[2] = {{data, 5}, {data + 5, bytes - 5}};
    struct log_options options = {.use = use, .tag = (uint16_t)stand->appended};
    int r;

    CHECK_INT(stand->appended, <, STAND_RECORDS_MAX);
    r = log_append(log, parts, 2, &options, &stand->places[stand->appended]);
    if (r == 0) stand->appended++;
    return r;
}

void stand_append(struct stand *stand, struct log *log, unsigned count)
{
    for (; count > 0; count--) CHECK_OK(stand_append_one(stand, log, LOG_FOR_NEW));
    if (stand->appended > 0)
        CHECK_OK(log_wait(log, stand->places[stand->appended - 1].end, LOG_SYNCED));
}

void stand_check(const struct stand *stand, unsigned count)
{
    CHECK(!stand->is_wrong);
    CHECK_INT(stand->replayed, ==, count);
}

void stand_file(const struct stand *stand, const char *name, char path[128])
{
    (void)snprintf(path, 128, "%s/%s", stand->path, name);
}

bool stand_has(const struct stand *stand, const char *name)
{
    char path[128];

    stand_file(stand, name, path);
    return access(path, F_OK) == 0;
}

static bool ends_with(const char *name, const char *suffix)
{
    size_t bytes = strlen(name), suffix_bytes = strlen(suffix);

    return bytes > suffix_bytes && strcmp(name + bytes - suffix_bytes, suffix) == 0;
}

unsigned stand_files(const struct stand *stand, const char *suffix)
{
    DIR *folder = opendir(stand->path);
    struct dirent *entry;
    unsigned count = 0;

    CHECK(folder != NULL);
    while ((entry = readdir(folder)))
        if (ends_with(entry->d_name, suffix)) count++;
    (void)closedir(folder);
    return count;
}

void stand_remove_files(const struct stand *stand, const char *suffix)
{
    DIR *folder = opendir(stand->path);
    struct dirent *entry;
    char path[128 + sizeof entry->d_name];

    CHECK(folder != NULL);
    while ((entry = readdir(folder))) {
        if (!ends_with(entry->d_name, suffix)) continue;
        (void)snprintf(path, sizeof path, "%s/%s", stand->path, entry->d_name);
        CHECK_INT(unlink(path), ==, 0);
    }
    (void)closedir(folder);
}

void stand_flip(const struct stand *stand, const char *name, uint64_t offset)
{
    char path[128];
    unsigned char byte;
    int fd;

    stand_file(stand, name, path);
    fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK_INT(fd, >=, 0);
    CHECK_INT(pread(fd, &byte, 1, (off_t)offset), ==, 1);
    byte ^= 0x10;
    CHECK_INT(pwrite(fd, &byte, 1, (off_t)offset), ==, 1);
    CHECK_INT(close(fd), ==, 0);
}

void stand_cut(const struct stand *stand, const char *name, uint64_t bytes)
{
    char path[128];

    stand_file(stand, name, path);
    CHECK_INT(truncate(path, (off_t)bytes), ==, 0);
}

struct stand_main {
    struct stand *stand;
    int (*fn)(struct stand *stand);
};

static int main_task(void *arg)
{
    struct stand_main *main = arg;
    int r = 0;

    /* For calls that insist on one; the test's own timeout says who hangs. */
    WEIR_DEADLINE(STAND_DEADLINE_MS) r = main->fn(main->stand);
    return r;
}

int stand_run(struct stand *stand, int (*fn)(struct stand *stand))
{
    struct stand_main main = {stand, fn};

    return weir_run(&(weir_config){.workers = weir_test_workers()}, main_task, &main);
}
