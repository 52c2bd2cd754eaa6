/* closes.c - every close of the test program, the library's included.
 *
 * The linker sends each call of close() here (--wrap in tests/meson.build): a descriptor
 * that is closed twice shows nowhere else, and the second close may have been of what
 * somebody else got with the same number.
 */
#include <errno.h>
#include <unistd.h>

#include "base/atomic.h"
#include "testing/harness.h"

int __real_close(int fd);
int __wrap_close(int fd);

static ATOM(int) bad_count;
static ATOM(int) bad_last = -1;
static ATOM(int) interruptions; /* left to come */

static bool is_interrupted(void)
{
    int left = atom_load(&interruptions);

    while (left > 0)
        if (atom_cas(&interruptions, &left, left - 1)) return true;
    return false;
}

/* Only what goes wrong is counted: an atomic in each close would order threads, and hide
 * their races from ThreadSanitizer. */
int __wrap_close(int fd)
{
    int r = __real_close(fd);

    if (r < 0 && errno == EBADF && fd >= 0) {
        atom_store(&bad_last, fd);
        (void)atom_add(&bad_count, 1);
        errno = EBADF;
    }
    if (atom_load(&interruptions) > 0 && r == 0 && is_interrupted()) {
        errno = EINTR; /* Linux has closed it all the same */
        return -1;
    }
    return r;
}

int closes_bad(int *ret_last_fd)
{
    *ret_last_fd = atom_load(&bad_last);
    return atom_load(&bad_count);
}

void test_interrupt_close(int times)
{
    atom_store(&interruptions, times);
}
