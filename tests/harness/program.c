/* program.c - example programs that run beside a test. */
#include "harness/program.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PATH_BYTES = 1024 };

/* ---- Finding programs and sources ---- */

/* The folder of this program, `levels` folders up. */
static void above_program(int levels, char *path)
{
    ssize_t length = readlink("/proc/self/exe", path, PATH_BYTES - 1);
    if (length <= 0) TEST_FAIL("readlink: %s", strerror(errno));
    path[length] = '\0';
    for (int i = 0; i <= levels; i++) {
        char *slash = strrchr(path, '/');
        if (slash) *slash = '\0';
    }
}

const char *example(const char *name)
{
    static char paths[2][PATH_BYTES * 2];
    static int turn;
    char *path = paths[turn++ % 2];
    char folder[PATH_BYTES];

    above_program(1, folder);
    (void)snprintf(path, sizeof paths[0], "%s/examples/%s", folder, name);
    if (access(path, X_OK) != 0) TEST_SKIP("the examples are not built beside the tests");
    return path;
}

const char *source(const char *name)
{
    static char texts[2][PROGRAM_OUTPUT_BYTES];
    static int turn;
    char *text = texts[turn++ % 2];
    char folder[PATH_BYTES];
    char path[PATH_BYTES * 2];
    size_t length;
    FILE *file = fopen(name, "re");

    if (!file) {
        above_program(3, folder);
        (void)snprintf(path, sizeof path, "%s/%s", folder, name);
        file = fopen(path, "re");
    }
    if (!file) TEST_SKIP("the sources are neither here nor above the build folder");
    length = fread(text, 1, PROGRAM_OUTPUT_BYTES - 1, file);
    (void)fclose(file);
    CHECK_INT(length, <, PROGRAM_OUTPUT_BYTES - 1);
    text[length] = '\0';
    return text;
}

/* ---- Programs that run beside the test ---- */

void program_start(struct program *program, const char *const argv[])
{
    int out[2];
    int in[2];

    memset(program, 0, sizeof *program);
    CHECK_INT(pipe2(out, O_CLOEXEC), ==, 0);
    CHECK_INT(pipe2(in, O_CLOEXEC), ==, 0);
    program->pid = fork();
    CHECK_INT(program->pid, >=, 0);
    if (program->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* it must not survive a test that fails */
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        dup2(out[1], STDERR_FILENO);
        test_become(argv);
        _exit(127);
    }
    close(out[1]);
    close(in[0]);
    program->out = out[0];
    program->in = in[1];
}

bool program_read(struct program *program, const char *what)
{
    struct pollfd wait_for = {.fd = program->out, .events = POLLIN};
    ssize_t n;

    test_note("waiting for the program: %s", what);
    if (poll(&wait_for, 1, PROGRAM_WAIT_MS) != 1)
        TEST_FAIL("the program did not go on (%s); it said\n%s", what, program->text);
    n = read(program->out, program->text + program->length,
             PROGRAM_OUTPUT_BYTES - 1 - program->length);
    CHECK_INT(n, >=, 0);
    program->length += (size_t)n;
    program->text[program->length] = '\0';
    return n > 0;
}

void program_expect(struct program *program, const char *part)
{
    while (!strstr(program->text, part))
        if (!program_read(program, part))
            TEST_FAIL("the program ended without saying '%s'; it said\n%s", part, program->text);
}

int program_end(struct program *program)
{
    int status;

    close(program->in);
    while (program_read(program, "to end")) continue;
    close(program->out);
    CHECK_INT(waitpid(program->pid, &status, 0), ==, program->pid);
    return status;
}

/* ---- Clients ---- */

int client_connect(int port, int buffer_bytes)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK_INT(fd, >=, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (buffer_bytes > 0) {
        CHECK_INT(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes), ==, 0);
        CHECK_INT(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes), ==, 0);
    }
    CHECK_INT(connect(fd, (struct sockaddr *)&address, sizeof address), ==, 0);
    return fd;
}

size_t client_read(int fd, char *data, size_t bytes, int wait_ms)
{
    struct pollfd wait_for = {.fd = fd, .events = POLLIN};
    size_t count = 0;

    while (count < bytes) {
        ssize_t n;
        if (poll(&wait_for, 1, wait_ms) != 1) break;
        n = recv(fd, data + count, bytes - count, 0);
        if (n <= 0) break;
        count += (size_t)n;
    }
    return count;
}
