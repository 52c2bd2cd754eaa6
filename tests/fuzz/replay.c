/* replay.c - run a fuzz target over the files of a folder, without a fuzzer.
 *
 * usage: corpus-NAME FOLDER      every file in it; closes with `N passed, N failed`
 *        corpus-NAME FILE        this one, in this process, ready for a debugger
 *
 * Each file of a folder gets a process of its own, so that one that crashes or
 * hangs is one failure and the others still run.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fuzz/fuzz.h"

enum { SECONDS_MAX = 10, INPUT_BYTES_MAX = 1 << 20, EXIT_USAGE = 2 };

/* 0, or a negative errno when the file cannot be read. */
static int run_file(const char *path)
{
    struct stat status;
    uint8_t *data = NULL;
    size_t size;
    FILE *file = fopen(path, "rbe");
    int r = 0;

    if (file == NULL) return -errno;
    if (fstat(fileno(file), &status) < 0) {
        r = -errno;
        goto close;
    }
    if (status.st_size > INPUT_BYTES_MAX) {
        r = -EFBIG;
        goto close;
    }
    size = (size_t)status.st_size;
    /* Of the file's very size, so that the sanitizers see a byte too far. */
    data = malloc(size > 0 ? size : 1);
    if (data == NULL) {
        r = -ENOMEM;
        goto close;
    }
    if (fread(data, 1, size, file) == size)
        (void)LLVMFuzzerTestOneInput(data, size);
    else
        r = -EIO;
    free(data);
close:
    (void)fclose(file);
    return r;
}

static int run_here(const char *path)
{
    int r = run_file(path);

    if (r == 0) return 0;
    fprintf(stderr, "%s: %s\n", path, strerror(-r));
    return 1;
}

/* True when it came through. */
static bool run_forked(const char *path)
{
    int status = 0;
    pid_t pid;

    (void)fflush(NULL);
    pid = fork();
    if (pid == 0) {
        (void)alarm(SECONDS_MAX);
        exit(run_here(path)); /* not _exit(): the leak check runs on the way out */
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        fprintf(stderr, "%s: no process for it: %s\n", path, strerror(errno));
        return false;
    }
    if (WIFSIGNALED(status)) printf("%s: ended by signal %d\n", path, WTERMSIG(status));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int run_folder(const char *folder)
{
    struct dirent **entries = NULL;
    unsigned passed = 0;
    unsigned failed = 0;
    int count = scandir(folder, &entries, NULL, alphasort);

    if (count < 0) {
        fprintf(stderr, "%s: %s\n", folder, strerror(errno));
        return EXIT_USAGE;
    }
    for (int i = 0; i < count; i++) {
        char path[PATH_MAX];
        int length = snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        bool hidden = entries[i]->d_name[0] == '.';
        free(entries[i]);
        if (hidden) continue;
        if (length < (int)sizeof path && run_forked(path)) {
            passed++;
            continue;
        }
        printf("failed: %s\n", path);
        failed++;
    }
    free(entries);
    printf("%u passed, %u failed\n", passed, failed);
    return failed > 0 || passed == 0 ? 1 : 0;
}

int main(int argc, char **argv)
{
    struct stat status;

    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER|FILE\n", argv[0]);
        return EXIT_USAGE;
    }
    if (stat(argv[1], &status) < 0) {
        fprintf(stderr, "%s: %s\n", argv[1], strerror(errno));
        return EXIT_USAGE;
    }
    return S_ISDIR(status.st_mode) ? run_folder(argv[1]) : run_here(argv[1]);
}
