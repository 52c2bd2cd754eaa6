/* program.h - example programs that run beside a test, and clients that talk to them.
 *
 * Programs are looked for beside this one: BUILD/tests/weir-tests, BUILD/examples/echo. Sources are
 * looked for from the working folder or three levels above this program (build/KIND/tests). What is
 * not there skips the test.
 */
#ifndef WEIR_HARNESS_PROGRAM_H
#define WEIR_HARNESS_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/wait.h>

#include "harness/test.h"

enum { PROGRAM_OUTPUT_BYTES = 64 * 1024 };

/* How long anything may take before the test fails. */
#define PROGRAM_WAIT_MS (10000 * test_slower())

/* The path of an example, and the text of a source file. Each has room for two results. */
const char *example(const char *name);
const char *source(const char *name);

/* A program that runs beside the test, and dies with it. */
struct program {
    pid_t pid;
    int out; /* what it prints */
    int in;  /* its standard input */
    size_t length;
    char text[PROGRAM_OUTPUT_BYTES];
};

void program_start(struct program *program, const char *const argv[]);
/* More of what it prints; `what` is what for. False at the end. */
bool program_read(struct program *program, const char *what);
/* Until it has said `part`. */
void program_expect(struct program *program, const char *part);
/* Read to the end, and return the status as waitpid gives it. */
int program_end(struct program *program);

#define CHECK_EXIT(status, code, text)                                                      \
    do {                                                                                    \
        int status_ = (status);                                                             \
        if (!WIFEXITED(status_) || WEXITSTATUS(status_) != (code))                          \
            TEST_FAIL("status %#x instead of exit %d; it said\n%s", status_, (code), text); \
    } while (0)

/* A connection to 127.0.0.1, with buffers of a size (0: the usual). */
int client_connect(int port, int buffer_bytes);
/* Up to `bytes`, until the end of the stream or `wait_ms` without any. */
size_t client_read(int fd, char *data, size_t bytes, int wait_ms);

#endif
