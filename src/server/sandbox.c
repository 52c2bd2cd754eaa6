/* sandbox.c - Landlock and seccomp by their raw calls. */
#include "server/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of newer kernels than the headers that this may be built with. */
#ifndef LANDLOCK_ACCESS_FS_REFER
#define LANDLOCK_ACCESS_FS_REFER (1ULL << 13)
#endif
#ifndef LANDLOCK_ACCESS_FS_TRUNCATE
#define LANDLOCK_ACCESS_FS_TRUNCATE (1ULL << 14)
#endif

#if defined(__x86_64__)
#define SANDBOX_ARCH AUDIT_ARCH_X86_64
#else
#define SANDBOX_ARCH AUDIT_ARCH_AARCH64
#endif

static void add(const char **paths, size_t *count, const char *path)
{
    if (path && *path && *count < SANDBOX_PATHS_MAX) paths[(*count)++] = path;
}

void sandbox_read(struct sandbox_spec *spec, const char *path)
{
    add(spec->read, &spec->read_count, path);
}

void sandbox_write(struct sandbox_spec *spec, const char *path)
{
    add(spec->write, &spec->write_count, path);
}

void sandbox_bind(struct sandbox_spec *spec, const char *path)
{
    add(spec->bind, &spec->bind_count, path);
}

/* ---- Landlock ---- */

enum { LANDLOCK_BITS_ABI_1 = 13 };
#define READS (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
/* What can be asked for on something that is no folder. */
#define OF_FILES                                                                                 \
    (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | \
     LANDLOCK_ACCESS_FS_TRUNCATE)

static uint64_t handled_by(int abi)
{
    uint64_t bits = (1ULL << LANDLOCK_BITS_ABI_1) - 1;

    if (abi >= 2) bits |= LANDLOCK_ACCESS_FS_REFER;
    if (abi >= 3) bits |= LANDLOCK_ACCESS_FS_TRUNCATE;
    return bits;
}

static int allow(int ruleset, const char *path, uint64_t bits)
{
    struct landlock_path_beneath_attr rule = {.allowed_access = bits};
    struct stat status;
    int r = 0;

    rule.parent_fd = open(path, O_PATH | O_CLOEXEC);
    if (rule.parent_fd < 0) return errno == ENOENT ? 0 : -errno;
    if (fstat(rule.parent_fd, &status) == 0 && !S_ISDIR(status.st_mode))
        rule.allowed_access &= OF_FILES;
    if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
        r = -errno;
    (void)close(rule.parent_fd);
    return r;
}

static int enter_landlock(const struct sandbox_spec *spec)
{
    int abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    struct landlock_ruleset_attr attr;
    uint64_t all;
    int ruleset, r = 0;

    if (abi < 0) return -errno;
    all = handled_by(abi);
    attr = (struct landlock_ruleset_attr){.handled_access_fs = all};
    ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof attr, 0);
    if (ruleset < 0) return -errno;
    for (size_t i = 0; i < spec->read_count && r == 0; i++)
        r = allow(ruleset, spec->read[i], READS);
    for (size_t i = 0; i < spec->write_count && r == 0; i++)
        r = allow(ruleset, spec->write[i], all & ~(uint64_t)LANDLOCK_ACCESS_FS_EXECUTE);
    for (size_t i = 0; i < spec->bind_count && r == 0; i++)
        r = allow(ruleset, spec->bind[i],
                  LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_REMOVE_FILE |
                      LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_READ_FILE |
                      LANDLOCK_ACCESS_FS_WRITE_FILE);
    if (r == 0 && syscall(SYS_landlock_restrict_self, ruleset, 0) < 0) r = -errno;
    (void)close(ruleset);
    return r < 0 ? r : abi;
}

/* ---- seccomp ---- */

/* What the runtime, the C library and OpenSSL use in a server; all else is answered with ENOSYS, as
 * by a kernel that does not have it, so that a library that would like something newer takes what
 * it took before. What is not there on each processor or with each C library has its #ifdef. */
static const int needed[] = {
    /* Files, which Landlock has its say in. */
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_pread64,
    SYS_pwrite64,
    SYS_preadv,
    SYS_pwritev,
    SYS_preadv2,
    SYS_pwritev2,
    SYS_openat,
    SYS_close,
    SYS_close_range,
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_lseek,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_readlinkat,
    SYS_renameat,
    SYS_renameat2,
    SYS_unlinkat,
    SYS_mkdirat,
    SYS_linkat,
    SYS_fchmod,
    SYS_fchmodat,
    SYS_ftruncate,
    SYS_fallocate,
    SYS_fsync,
    SYS_fdatasync,
    SYS_sync_file_range,
    SYS_fadvise64,
    SYS_flock,
    SYS_fcntl,
    SYS_dup,
    SYS_dup3,
    SYS_getdents64,
    SYS_statfs,
    SYS_fstatfs,
    SYS_copy_file_range,
    SYS_getcwd,
    SYS_umask,
#ifdef SYS_open
    SYS_open,
#endif
#ifdef SYS_stat
    SYS_stat,
#endif
#ifdef SYS_lstat
    SYS_lstat,
#endif
#ifdef SYS_access
    SYS_access,
#endif
#ifdef SYS_readlink
    SYS_readlink,
#endif
#ifdef SYS_rename
    SYS_rename,
#endif
#ifdef SYS_unlink
    SYS_unlink,
#endif
#ifdef SYS_mkdir
    SYS_mkdir,
#endif
#ifdef SYS_rmdir
    SYS_rmdir,
#endif
#ifdef SYS_link
    SYS_link,
#endif
#ifdef SYS_chmod
    SYS_chmod,
#endif
#ifdef SYS_dup2
    SYS_dup2,
#endif
    /* Memory: mmap and mprotect are looked at below. */
    SYS_munmap,
    SYS_mremap,
    SYS_madvise,
    SYS_process_madvise,
    SYS_brk,
    SYS_mincore,
    SYS_msync,
    SYS_mlock,
    SYS_munlock,
    SYS_memfd_create,
    SYS_membarrier,
    /* Threads, time and signals to itself; clone is looked at below. */
    SYS_futex,
    SYS_set_robust_list,
    SYS_get_robust_list,
    SYS_rseq,
    SYS_set_tid_address,
    SYS_exit,
    SYS_exit_group,
    SYS_restart_syscall,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_sched_setaffinity,
    SYS_sched_getscheduler,
    SYS_sched_getparam,
    SYS_getcpu,
    SYS_getpid,
    SYS_getppid,
    SYS_gettid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_tgkill,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_rt_sigpending,
    SYS_rt_sigtimedwait,
    SYS_rt_sigsuspend,
    SYS_sigaltstack,
    SYS_signalfd4,
    SYS_nanosleep,
    SYS_clock_nanosleep,
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_gettimeofday,
    SYS_times,
    SYS_getrusage,
    SYS_sysinfo,
    SYS_uname,
    SYS_getrandom,
    SYS_prlimit64,
    SYS_prctl,
    SYS_pidfd_open,
#ifdef SYS_futex_waitv
    SYS_futex_waitv,
#endif
#ifdef SYS_time
    SYS_time,
#endif
#ifdef SYS_getrlimit
    SYS_getrlimit,
#endif
#ifdef SYS_arch_prctl
    SYS_arch_prctl,
#endif
    /* Connections; socket is looked at below. */
    SYS_bind,
    SYS_listen,
    SYS_accept,
    SYS_accept4,
    SYS_connect,
    SYS_getsockname,
    SYS_getpeername,
    SYS_setsockopt,
    SYS_getsockopt,
    SYS_sendto,
    SYS_recvfrom,
    SYS_sendmsg,
    SYS_recvmsg,
    SYS_sendmmsg,
    SYS_recvmmsg,
    SYS_shutdown,
    SYS_socketpair,
    /* Waiting. */
    SYS_ppoll,
    SYS_pselect6,
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_eventfd2,
    SYS_timerfd_create,
    SYS_timerfd_settime,
    SYS_timerfd_gettime,
    SYS_pipe2,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
#ifdef SYS_poll
    SYS_poll,
#endif
#ifdef SYS_select
    SYS_select,
#endif
#ifdef SYS_epoll_wait
    SYS_epoll_wait,
#endif
#ifdef SYS_epoll_pwait2
    SYS_epoll_pwait2,
#endif
#ifdef SYS_pipe
    SYS_pipe,
#endif
};
enum { NEEDED = sizeof needed / sizeof *needed, FILTER_MAX = NEEDED * 2 + 64 };

bool sandbox_needs(int number)
{
    for (int i = 0; i < NEEDED; i++)
        if (needed[i] == number) return true;
    return number == SYS_clone || number == SYS_socket || number == SYS_mmap ||
           number == SYS_mprotect;
}

struct filter {
    struct sock_filter code[FILTER_MAX];
    unsigned short count;
};

static void put(struct filter *filter, struct sock_filter instruction)
{
    filter->code[filter->count++] = instruction;
}

#define LOAD(member) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, member))
#define ANSWER(action) BPF_STMT(BPF_RET | BPF_K, (action))
#define REFUSE(error) ANSWER(SECCOMP_RET_ERRNO | (error))

/* If the call is `number`, the next `count` instructions; else what is behind them. */
static void put_case(struct filter *filter, int number, unsigned char count)
{
    put(filter,
        (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, count));
}

/* A thread, not a process: others could be anything. */
static void put_clone(struct filter *filter)
{
    put_case(filter, SYS_clone, 4);
    put(filter, (struct sock_filter)LOAD(args[0]));
    put(filter, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 0));
    put(filter, (struct sock_filter)REFUSE(EPERM));
    put(filter, (struct sock_filter)ANSWER(SECCOMP_RET_ALLOW));
    /* The flags of clone3 are in memory, which a filter cannot see: it is among those that are not
     * there, and the C library then takes clone. */
}

static void put_socket(struct filter *filter)
{
    static const int families[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK};
    enum { FAMILIES = sizeof families / sizeof *families };

    put_case(filter, SYS_socket, FAMILIES + 3);
    put(filter, (struct sock_filter)LOAD(args[0]));
    for (int i = 0; i < FAMILIES; i++)
        put(filter, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)families[i],
                                                 (unsigned char)(FAMILIES - i), 0));
    put(filter, (struct sock_filter)REFUSE(EAFNOSUPPORT));
    put(filter, (struct sock_filter)ANSWER(SECCOMP_RET_ALLOW));
}

/* Memory that is written and run at the same time. */
static void put_mapping(struct filter *filter, int number)
{
    put_case(filter, number, 5);
    put(filter, (struct sock_filter)LOAD(args[2]));
    put(filter, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, PROT_WRITE | PROT_EXEC));
    put(filter,
        (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PROT_WRITE | PROT_EXEC, 0, 1));
    put(filter, (struct sock_filter)REFUSE(EPERM));
    put(filter, (struct sock_filter)ANSWER(SECCOMP_RET_ALLOW));
}

static void build(struct filter *filter)
{
    put(filter, (struct sock_filter)LOAD(arch));
    put(filter, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SANDBOX_ARCH, 1, 0));
    put(filter, (struct sock_filter)REFUSE(ENOSYS));
    put(filter, (struct sock_filter)LOAD(nr));
#if defined(__x86_64__)
    /* The calls of x32 are the same once more, by other numbers. */
    put(filter, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1));
    put(filter, (struct sock_filter)REFUSE(ENOSYS));
#endif
    put_clone(filter);
    put_socket(filter);
    put_mapping(filter, SYS_mmap);
    put_mapping(filter, SYS_mprotect);
    for (int i = 0; i < NEEDED; i++) {
        put_case(filter, needed[i], 1);
        put(filter, (struct sock_filter)ANSWER(SECCOMP_RET_ALLOW));
    }
    put(filter, (struct sock_filter)REFUSE(ENOSYS));
}

static int enter_seccomp(void)
{
    struct filter filter = {.count = 0};
    struct sock_fprog program;

    build(&filter);
    program = (struct sock_fprog){.len = filter.count, .filter = filter.code};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0) return -errno;
    return 1;
}

void sandbox_enter(const struct sandbox_spec *spec, struct sandbox_report *ret_report)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) {
        ret_report->landlock = ret_report->seccomp = -errno;
        return;
    }
    ret_report->landlock = enter_landlock(spec);
    ret_report->seccomp = enter_seccomp();
}
