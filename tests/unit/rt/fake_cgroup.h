/* fake_cgroup.h - cgroup files in a folder of their own, for tests.
 *
 * `proc` stands for /proc/self/cgroup, `sys/` for /sys/fs/cgroup; each file is made by
 * fake_file, with the folders above it. Everything is static inline, so that a file may
 * use a part of it.
 */
#ifndef WEIR_TESTS_RT_FAKE_CGROUP_H
#define WEIR_TESTS_RT_FAKE_CGROUP_H

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/test.h"
#include "rt/cores.h"

struct fake {
    char root[64];
    char proc_cgroup[128];
    char cgroup_root[128];
    struct cores_source source;
};

static inline void fake_write(const struct fake *fake, const char *name, const char *text,
                              size_t length)
{
    char path[PATH_MAX];
    int fd;

    snprintf(path, sizeof path, "%s/%s", fake->root, name);
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        CHECK(mkdir(path, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK_INT(fd, >=, 0);
    CHECK_INT(write(fd, text, length), ==, length);
    close(fd);
}

static inline void fake_file(const struct fake *fake, const char *name, const char *text)
{
    fake_write(fake, name, text, strlen(text));
}

static inline void fake_init(struct fake *fake, int affinity_count, const char *proc_cgroup)
{
    strcpy(fake->root, "/tmp/weir-cores-XXXXXX");
    CHECK(mkdtemp(fake->root) != NULL);
    snprintf(fake->proc_cgroup, sizeof fake->proc_cgroup, "%s/proc", fake->root);
    snprintf(fake->cgroup_root, sizeof fake->cgroup_root, "%s/sys", fake->root);
    fake->source = (struct cores_source){
        .proc_cgroup = fake->proc_cgroup,
        .cgroup_root = fake->cgroup_root,
        .affinity_count = affinity_count,
    };
    fake_file(fake, "proc", proc_cgroup);
}

static inline int fake_remove_entry(const char *path, const struct stat *status, int kind,
                                    struct FTW *where)
{
    (void)status;
    (void)kind;
    (void)where;
    return remove(path);
}

static inline void fake_deinit(struct fake *fake)
{
    CHECK_INT(nftw(fake->root, fake_remove_entry, 8, FTW_DEPTH | FTW_PHYS), ==, 0);
}

#endif
