/* frames.c - backtraces in words.
 *
 * Functions of the tests and the library are static or hidden, so their names are
 * in the debug information only: addr2line reads it. Where it is missing, names
 * and offsets are printed.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unwind.h>

#include "testing/harness.h"
#include "watch/symbol.h"

enum { FRAMES_PRINTED_MAX = 32, LINE_BYTES_MAX = 256 };

struct taking {
    void **frames;
    int count;
    int frames_max;
    bool begun; /* the first frame is frames_take() */
};

static _Unwind_Reason_Code take_frame(struct _Unwind_Context *context, void *arg)
{
    struct taking *taking = arg;

    if (taking->begun && taking->count < taking->frames_max)
        taking->frames[taking->count++] = (void *)(uintptr_t)_Unwind_GetIP(context);
    taking->begun = true;
    return taking->count < taking->frames_max ? _URC_NO_REASON : _URC_END_OF_STACK;
}

__attribute__((noinline)) int frames_take(void **frames, int frames_max)
{
    struct taking taking = {.frames = frames, .frames_max = frames_max};

    (void)_Unwind_Backtrace(take_frame, &taking);
    return taking.count;
}

void frames_prepare(void)
{
    void *frames[2];

    (void)frames_take(frames, 2);
}

void frames_print_plain(void *const *frames, int count)
{
    static struct symbol_table symbols; /* too large for the stack of a task */
    char line[LINE_BYTES_MAX];

    symbol_table_init(&symbols);
    for (int i = 0; i < count; i++) {
        size_t length;

        (void)symbol_format(&symbols, (uintptr_t)frames[i] - 1, line, sizeof line - 1);
        length = strlen(line);
        line[length] = '\n';
        if (write(STDERR_FILENO, line, length + 1) < 0) break;
    }
    symbol_table_deinit(&symbols);
}

/* The address in the program's file, or 0 if the frame is in another file. */
static uintptr_t offset_in_program(struct symbol_table *symbols, const void *frame)
{
    struct symbol program;
    struct symbol found;

    if (symbol_find(symbols, (uintptr_t)frames_prepare, &program) < 0) return 0;
    /* A frame is a return address: the call is before it. */
    if (symbol_find(symbols, (uintptr_t)frame - 1, &found) < 0) return 0;
    return found.module == program.module ? found.module_offset : 0;
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
    static struct symbol_table symbols;
    char program[4096];
    char addresses[FRAMES_PRINTED_MAX][24];
    char options[] = "-Cfspie";
    char name[] = "addr2line";
    char *argv[FRAMES_PRINTED_MAX + 4] = {name, options, program};
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    int argc = 3;
    int status = -1;
    pid_t pid;

    symbol_table_init(&symbols);
    for (int i = 0; i < count && i < FRAMES_PRINTED_MAX; i++) {
        uintptr_t offset = offset_in_program(&symbols, frames[i]);

        if (offset == 0) continue;
        snprintf(addresses[i], sizeof addresses[i], "%#llx", (unsigned long long)offset);
        argv[argc++] = addresses[i];
    }
    symbol_table_deinit(&symbols);
    if (length > 0 && argc > 3) {
        program[length] = '\0';
        pid = fork();
        if (pid == 0) run_addr2line(argv);
        if (pid < 0 || waitpid(pid, &status, 0) != pid) status = -1;
    }
    if (status != 0) frames_print_plain(frames, count);
}
