/* child.c - processes that a test starts. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"

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

int test_exec(const char *const argv[], char *output, size_t output_bytes)
{
    int output_fd;
    pid_t pid = start(&output_fd);

    if (pid == 0) {
        /* execv takes no const for historical reasons only. */
        execv(argv[0], (char *const *)(uintptr_t)argv);
        fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
        _exit(127);
    }
    return finish(pid, output_fd, output, output_bytes);
}
