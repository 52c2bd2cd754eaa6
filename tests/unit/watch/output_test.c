/* output_test.c - writing that does not hang on a reader. */
#include "watch/output.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "harness/test.h"

TEST(output_to_a_full_blocking_pipe_ends_at_its_bound)
{
    static char data[256 * 1024]; /* more than a pipe holds */
    int fds[2];

    CHECK_INT(pipe2(fds, O_CLOEXEC), ==, 0); /* blocking on purpose */
    CHECK_INT(output_write(fds[1], data, sizeof data, 50), ==, -EAGAIN);
    CHECK_INT(close(fds[0]), ==, 0);
    CHECK_INT(close(fds[1]), ==, 0);
}

TEST(output_writes_all_to_a_reader_and_names_errors)
{
    char got[16] = "";
    int fds[2];

    CHECK_INT(pipe2(fds, O_CLOEXEC), ==, 0);
    CHECK_INT(output_write(fds[1], "all of it", 9, 1000), ==, 0);
    CHECK_INT(read(fds[0], got, sizeof got - 1), ==, 9);
    CHECK_STR(got, "all of it");
    CHECK_INT(close(fds[0]), ==, 0);
    CHECK_INT(output_write(fds[1], "x", 1, 1000), ==, -EPIPE);
    CHECK_INT(close(fds[1]), ==, 0);
    CHECK_INT(output_write(-1, "x", 1, 1000), ==, -EBADF);
}
