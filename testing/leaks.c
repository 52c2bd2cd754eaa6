/* leaks.c - what a test has left behind. */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rt/runtime.h"
#include "testing/harness.h"

enum {
    THREAD_EXIT_WAIT_MS = 4000, /* for the kernel to end a joined thread */
    LEAKED_FDS_SHOWN = 16,
    /* Flags of /proc/PID/task/TID/stat: PF_EXITING and PF_IO_WORKER of the kernel. */
    THREAD_ENDS = 0x4,
    THREAD_OF_RING = 0x10,
    FIELDS_BEFORE_FLAGS = 7, /* blanks between a thread's name and these */
};

static DIR *open_proc(const char *path)
{
    DIR *directory = opendir(path);

    if (directory == NULL) weir_test_fail(__FILE__, __LINE__, "cannot list %s", path);
    return directory;
}

static int list_fds(int *fds, int fds_max)
{
    DIR *directory = open_proc("/proc/self/fd");
    const struct dirent *entry;
    int count = 0;

    while ((entry = readdir(directory)) != NULL) {
        int fd = (int)strtol(entry->d_name, NULL, 10);

        if (entry->d_name[0] == '.' || fd == dirfd(directory)) continue;
        if (count == fds_max) break;
        fds[count++] = fd;
    }
    closedir(directory);
    return count;
}

/* Whether a thread is one of the test's that runs. Not the kernel's own, which makes the calls of
 * a ring and is listed among the threads of whoever opened it: it ends after the ring, when the
 * kernel comes to it, and a ring that was not closed is a descriptor. Nor one that has ended,
 * which stays listed for a moment after it was joined. By its flags and not by its name, which
 * the kernel sets a moment after it lists the thread. */
static bool is_running(const char *id)
{
    /* Not on the stack, where ThreadSanitizer remembers what other tasks have read of a test's. */
    static char path[300], line[512];
    const char *at;
    FILE *file;

    snprintf(path, sizeof path, "/proc/self/task/%s/stat", id);
    file = fopen(path, "re");
    if (file == NULL) return false;
    line[0] = '\0';
    (void)!fgets(line, sizeof line, file);
    (void)fclose(file);
    at = strrchr(line, ')'); /* the end of its name, which can hold anything */
    for (int i = 0; at != NULL && i < FIELDS_BEFORE_FLAGS; i++) at = strchr(at + 1, ' ');
    return at != NULL && (strtoul(at, NULL, 10) & (THREAD_ENDS | THREAD_OF_RING)) == 0;
}

static int count_threads(void)
{
    DIR *directory = open_proc("/proc/self/task");
    const struct dirent *entry;
    int count = 0;

    while ((entry = readdir(directory)) != NULL)
        count += entry->d_name[0] != '.' && is_running(entry->d_name);
    closedir(directory);
    return count;
}

static bool contains(const int *fds, int count, int fd)
{
    for (int i = 0; i < count; i++)
        if (fds[i] == fd) return true;
    return false;
}

static bool check_fds(const struct leak_mark *mark)
{
    int fds[LEAK_FDS_MAX + LEAKED_FDS_SHOWN];
    int count = list_fds(fds, LEAK_FDS_MAX + LEAKED_FDS_SHOWN);
    int shown = 0;
    bool clean = true;

    for (int i = 0; i < count; i++) {
        char path[64], target[256];
        ssize_t length;

        if (contains(mark->fds, mark->fd_count, fds[i])) continue;
        clean = false;
        if (++shown > LEAKED_FDS_SHOWN) continue;
        snprintf(path, sizeof path, "/proc/self/fd/%d", fds[i]);
        length = readlink(path, target, sizeof target);
        fprintf(stderr, "leak: descriptor %d is open: %.*s\n", fds[i], length > 0 ? (int)length : 1,
                length > 0 ? target : "?");
    }
    for (int i = 0; i < mark->fd_count; i++) {
        if (contains(fds, count, mark->fds[i])) continue;
        clean = false;
        fprintf(stderr, "leak: descriptor %d was open before, and somebody closed it\n",
                mark->fds[i]);
    }
    return clean;
}

static bool check_closes(const struct leak_mark *mark)
{
    int last_fd;
    int count = closes_bad(&last_fd) - mark->bad_closes;

    if (count == 0) return true;
    fprintf(stderr, "closed twice: %d closes of descriptors that were not open, the last of %d\n",
            count, last_fd);
    return false;
}

/* Under valgrind and an emulator a thread is joined before the kernel ends it. */
static bool check_threads(const struct leak_mark *mark)
{
    int64_t until_ms = process_now_ms() + THREAD_EXIT_WAIT_MS;
    int count = count_threads();

    while (count > mark->threads && process_now_ms() < until_ms) {
        (void)poll(NULL, 0, 1);
        count = count_threads();
    }
    if (count == mark->threads) return true;
    fprintf(stderr, "leak: %d threads, and there were %d\n", count, mark->threads);
    return false;
}

void leaks_mark(struct leak_mark *ret_mark)
{
    int last_fd;

    memory_mark(&ret_mark->memory);
    ret_mark->mapped_bytes = decorate_mapped_bytes();
    ret_mark->runtimes = runtime_live_count();
    ret_mark->threads = count_threads();
    ret_mark->bad_closes = closes_bad(&last_fd);
    ret_mark->fd_count = list_fds(ret_mark->fds, LEAK_FDS_MAX);
    if (ret_mark->fd_count == LEAK_FDS_MAX)
        weir_test_fail(__FILE__, __LINE__, "more than %d descriptors are open at the start",
                       LEAK_FDS_MAX - 1);
}

bool leaks_check(const struct leak_mark *mark)
{
    int64_t mapped_bytes = decorate_mapped_bytes();
    int runtimes = runtime_live_count();
    bool clean = true;

    if (runtimes != mark->runtimes) {
        fprintf(stderr, "leak: %d runtimes are open, and there were %d\n", runtimes,
                mark->runtimes);
        clean = false;
    }
    if (!check_threads(mark)) clean = false;
    if (!check_closes(mark)) clean = false;
    if (!check_fds(mark)) clean = false;
    if (mapped_bytes != mark->mapped_bytes) {
        fprintf(stderr, "leak: %lld bytes of stacks are mapped, and there were %lld\n",
                (long long)mapped_bytes, (long long)mark->mapped_bytes);
        clean = false;
    }
    if (!memory_check(&mark->memory)) clean = false;
    return clean;
}
