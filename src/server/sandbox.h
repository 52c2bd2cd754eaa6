/* sandbox.h - the process gives up what it does not need: files by Landlock, calls by seccomp.
 *
 * Landlock says which folders can be read, and which be written, from now on; it holds for io_uring
 * as well, which seccomp does not see. seccomp lets through the calls that a server of jobs needs,
 * by a list; others do not exist for it (ENOSYS): other programs, other identities, mounts,
 * modules, debugging, whatever a later kernel brings. Of those it needs it refuses processes
 * (clone), memory that is written and run at the same time (mmap, mprotect) and sockets of other
 * families.
 * Both hold for the calling thread and all that it starts: call it before there is another.
 *
 * Failure: a kernel that lacks one goes without it, which is told; nothing is half applied.
 * Threads: the only one.
 */
#ifndef WEIR_SERVER_SANDBOX_H
#define WEIR_SERVER_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>

enum { SANDBOX_PATHS_MAX = 32 };

struct sandbox_spec {
    const char *read[SANDBOX_PATHS_MAX]; /* files and folders; those that are not there are left */
    size_t read_count;
    const char *write[SANDBOX_PATHS_MAX];
    size_t write_count;
    const char *bind[SANDBOX_PATHS_MAX]; /* folders of sockets, and of files beside them that lock
                                           their names; no folders can be made in them */
    size_t bind_count;
};

struct sandbox_report {
    int landlock; /* the ABI that is in force, or why not (negative) */
    int seccomp;  /* 1, or why not */
};

void sandbox_read(struct sandbox_spec *spec, const char *path);
void sandbox_write(struct sandbox_spec *spec, const char *path);
void sandbox_bind(struct sandbox_spec *spec, const char *path);
void sandbox_enter(const struct sandbox_spec *spec, struct sandbox_report *ret_report);
/* Whether a system call is among those that are let through, if need be by its arguments. */
bool sandbox_needs(int number);

#endif
