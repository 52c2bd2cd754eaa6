/* frames.c - backtraces in words.
 *
 * Functions of the tests and the library are static or hidden, so their names are
 * in the debug information only: addr2line reads it. Where it is missing, the
 * plain addresses are printed.
 */
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"

enum { FRAMES_PRINTED_MAX = 32 };

void frames_prepare(void)
{
    void *frames[2];

    (void)backtrace(frames, 2);
}

/* The address in the program's file, or 0 if the frame is in another file. */
static uintptr_t offset_in_program(void *frame)
{
    Dl_info program;
    Dl_info found;

    if (dladdr((void *)(uintptr_t)frames_prepare, &program) == 0) return 0;
    if (dladdr(frame, &found) == 0 || found.dli_fbase != program.dli_fbase) return 0;
    /* A frame is a return address: the call is before it. */
    return (uintptr_t)frame - (uintptr_t)found.dli_fbase - 1;
}

static _Noreturn void run_addr2line(char *const argv[])
{
    int null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

    dup2(STDERR_FILENO, STDOUT_FILENO);
    if (null_fd >= 0) dup2(null_fd, STDERR_FILENO);
    execvp(argv[0], argv);
    _exit(127);
}

void frames_print(void *const *frames, int count)
{
    char program[4096];
    char addresses[FRAMES_PRINTED_MAX][24];
    char options[] = "-Cfspie";
    char name[] = "addr2line";
    char *argv[FRAMES_PRINTED_MAX + 4] = {name, options, program};
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    int argc = 3;
    int status = -1;
    pid_t pid;

    for (int i = 0; i < count && i < FRAMES_PRINTED_MAX; i++) {
        uintptr_t offset = offset_in_program(frames[i]);

        if (offset == 0) continue;
        snprintf(addresses[i], sizeof addresses[i], "%#llx", (unsigned long long)offset);
        argv[argc++] = addresses[i];
    }
    if (length > 0 && argc > 3) {
        program[length] = '\0';
        pid = fork();
        if (pid == 0) run_addr2line(argv);
        if (pid < 0 || waitpid(pid, &status, 0) != pid) status = -1;
    }
    if (status != 0) backtrace_symbols_fd(frames, count, STDERR_FILENO);
}
