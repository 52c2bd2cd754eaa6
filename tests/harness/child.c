/* child.c - processes that a test starts. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/test.h"
#include "testing/harness.h"

enum { EMULATOR_BYTES = 1024, EMULATOR_ARGUMENTS_MAX = 64 };

/* Fork with standard output and error going to a memory file. */
static pid_t start(int *ret_output_fd)
{
    int fd = memfd_create("test-output", MFD_CLOEXEC);
    pid_t pid;

    if (fd < 0) TEST_FAIL("memfd_create: %s", strerror(errno));
    fflush(NULL);
    pid = fork();
    if (pid < 0) TEST_FAIL("fork: %s", strerror(errno));
    if (pid > 0) {
        *ret_output_fd = fd;
        return pid;
    }
    process_is_judged();
    /* The hard timeout kills the test: what it started must not survive it. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    close(fd);
    return 0;
}

static int finish(pid_t pid, int output_fd, char *output, size_t output_bytes)
{
    ssize_t length;
    int status;

    while (waitpid(pid, &status, 0) != pid)
        if (errno != EINTR) TEST_FAIL("waitpid: %s", strerror(errno));
    length = output_bytes > 0 ? pread(output_fd, output, output_bytes - 1, 0) : -1;
    if (output_bytes > 0) output[length > 0 ? length : 0] = '\0';
    close(output_fd);
    return status;
}

int test_child(void (*fn)(void *arg), void *arg, char *output, size_t output_bytes)
{
    int output_fd;
    pid_t pid = start(&output_fd);

    if (pid == 0) {
        fn(arg);
        fflush(NULL);
        _exit(0);
    }
    return finish(pid, output_fd, output, output_bytes);
}

bool test_emulated(void)
{
    const char *emulator = getenv("WEIR_TEST_EMULATOR");

    return emulator != NULL && emulator[0] != '\0';
}

/* Programs of the build are beside the test program; all others are the machine's. */
static bool built_with_this_one(const char *path)
{
    char own[PATH_MAX], other[PATH_MAX];
    char *slash;

    if (strcmp(path, "/proc/self/exe") == 0) return true;
    if (realpath("/proc/self/exe", own) == NULL || realpath(path, other) == NULL) return false;
    for (int i = 0; i < 2; i++) {
        slash = strrchr(own, '/');
        if (slash == NULL) return false;
        *slash = '\0';
    }
    return strncmp(own, other, strlen(own)) == 0 && other[strlen(own)] == '/';
}

/* Become the emulator, with the program's own path: /proc/self/exe would be its. */
static void become_emulated(const char *const argv[])
{
    char words[EMULATOR_BYTES], path[PATH_MAX];
    const char *all[EMULATOR_ARGUMENTS_MAX];
    char *rest = words;
    int count = 0;

    snprintf(words, sizeof words, "%s", getenv("WEIR_TEST_EMULATOR"));
    if (realpath(argv[0], path) == NULL) return;
    for (char *word = strtok_r(rest, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        if (count == EMULATOR_ARGUMENTS_MAX / 2) break;
        all[count++] = word;
    }
    all[count++] = path;
    for (int i = 1; argv[i] != NULL && count < EMULATOR_ARGUMENTS_MAX - 1; i++)
        all[count++] = argv[i];
    all[count] = NULL;
    execv(all[0], (char *const *)(uintptr_t)all);
}

void test_become(const char *const argv[])
{
    /* execv takes no const for historical reasons only. */
    if (!test_emulated() || !built_with_this_one(argv[0]))
        execv(argv[0], (char *const *)(uintptr_t)argv);
    else
        become_emulated(argv);
}

int test_exec(const char *const argv[], char *output, size_t output_bytes)
{
    int output_fd;
    pid_t pid = start(&output_fd);

    if (pid == 0) {
        test_become(argv);
        fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
        _exit(127);
    }
    return finish(pid, output_fd, output, output_bytes);
}

void test_check_aborts(const char *file, int line, const char *name, void (*fn)(void *arg),
                       void *arg, const char *sentence)
{
    char output[16384];
    int status = test_child(fn, arg, output, sizeof output);

    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT)
        weir_test_fail(file, line, "%s was to abort, and ended with %s %d; it printed\n%s", name,
                       WIFSIGNALED(status) ? "signal" : "status",
                       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), output);
    weir_test_check_contains(file, line, "what it printed", output, sentence);
}
