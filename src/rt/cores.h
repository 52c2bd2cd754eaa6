/* cores.h - what this process may really use: processors and memory.
 *
 * The affinity mask says where the process may run, the cgroup quota for how
 * long: both bound the useful number of workers. cgroup v2 and v1 are read, also
 * side by side; limits of all ancestors up to the mount count, the smallest
 * wins. In a container the path in /proc/self/cgroup may lie outside of what is
 * mounted; the mount's root, which is then the container's own group, is always
 * looked at.
 *
 * Invariants: a missing, unreadable or malformed file means "no limit here",
 * never an error; nothing is cached, nothing is allocated.
 * Threads: any, at any time. About 17 KiB of stack: not for small task stacks.
 */
#ifndef WEIR_RT_CORES_H
#define WEIR_RT_CORES_H

#include <stdint.h>

struct cores_source {
    const char *proc_cgroup; /* a file like /proc/self/cgroup; NULL: there are no limits */
    const char *cgroup_root; /* a directory like /sys/fs/cgroup */
    int affinity_count;      /* processors in the mask; 0 asks the kernel */
};

/* The machine this process runs on. */
extern const struct cores_source cores_system;

/* What runtimes that are opened from now on look at: the machine, or what a test has
 * put in its place (NULL: the machine again). Not while a runtime is being opened. */
const struct cores_source *cores_current(void);
void cores_override(const struct cores_source *keep_source);

/* How many processors can be kept busy: the affinity mask's count, or the quota
 * rounded up where that is smaller; at least 1. */
int cores_usable(const struct cores_source *source);

/* The quota in thousandths of a processor, rounded down but at least 1: below
 * 1000 exactly when less than one whole processor is granted. -1 when there is
 * none. */
int64_t cores_quota_milli(const struct cores_source *source);

/* The memory limit in bytes; -1 when there is none. */
int64_t cores_memory_max_bytes(const struct cores_source *source);

#endif
