/* sandbox_test.c - what a process cannot do any more once it is in the sandbox. */
#include "server/sandbox.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/test.h"

enum { WELL = 0, NO_SECCOMP = 77, NUMBERS = 1024 };

/* In a process of its own, which does not come back out: its status. */
static int in_sandbox(const struct sandbox_spec *spec, int (*body)(void))
{
    pid_t pid = fork();
    int status;

    CHECK(pid >= 0);
    if (pid == 0) {
        struct sandbox_report report;

        sandbox_enter(spec, &report);
        _exit(report.seccomp > 0 ? body() : NO_SECCOMP);
    }
    CHECK_INT(waitpid(pid, &status, 0), ==, pid);
    CHECK(WIFEXITED(status));
    if (WEXITSTATUS(status) == NO_SECCOMP) TEST_SKIP("this kernel has no seccomp");
    return WEXITSTATUS(status);
}

static int fail(const char *what, long number)
{
    (void)dprintf(STDERR_FILENO, "sandbox: %s %ld: errno %d\n", what, number, errno);
    return 1;
}

/* Whoever adds one of these to the list has to take it out here, and say why. */
static const int never[] = {
    SYS_execve,
    SYS_execveat,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_kill,
    SYS_pidfd_getfd,
    SYS_perf_event_open,
    SYS_bpf,
    SYS_userfaultfd,
    SYS_setuid,
    SYS_setgid,
    SYS_setresuid,
    SYS_setresgid,
    SYS_setgroups,
    SYS_capset,
    SYS_personality,
    SYS_keyctl,
    SYS_add_key,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_setns,
    SYS_unshare,
    SYS_open_tree,
    SYS_move_mount,
    SYS_fsopen,
    SYS_open_by_handle_at,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
    SYS_reboot,
    SYS_swapon,
    SYS_acct,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_adjtimex,
    SYS_sethostname,
    SYS_syslog,
    SYS_clone3,
    SYS_ioctl,
    SYS_seccomp,
    SYS_fchownat,
    SYS_mknodat,
    SYS_symlinkat,
    SYS_wait4,
    SYS_process_vm_writev,
    SYS_pidfd_send_signal,
    SYS_rt_sigqueueinfo,
};

/* Two that newer kernels keep from seccomp: they are for code that the kernel itself has put into a
 * process, and end it when anything else calls them. */
static bool is_of_the_kernel(int number)
{
#if defined(__x86_64__)
    return number == 335 || number == 336; /* uretprobe, uprobe */
#else
    (void)number;
    return false;
#endif
}

static int make_all_calls(void)
{
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (sandbox_needs(never[i])) return fail("is let through:", never[i]);
    /* All that is not needed, whatever it is called: it is not there. */
    for (int number = 0; number < NUMBERS; number++) {
        if (sandbox_needs(number) || is_of_the_kernel(number)) continue;
        errno = 0;
        if (syscall(number, 0, 0, 0, 0, 0, 0) != -1 || errno != ENOSYS)
            return fail("was made:", number);
    }
    return WELL;
}

TEST(the_process_makes_no_call_that_it_does_not_need)
{
    CHECK_INT(in_sandbox(&(struct sandbox_spec){.read_count = 0}, make_all_calls), ==, WELL);
}

static int try_arguments(void)
{
    static const int others[] = {AF_PACKET, AF_VSOCK, AF_ALG, AF_BLUETOOTH};
    char *page;

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (socket(others[i], SOCK_RAW, 0) != -1 || errno != EAFNOSUPPORT)
            return fail("socket of family", others[i]);
    if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) != -1 || errno != EPERM)
        return fail("a process", 0);
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED || errno != EPERM) return fail("mmap", 0);
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return fail("plain mmap", 0);
    if (mprotect(page, 4096, PROT_WRITE | PROT_EXEC) != -1 || errno != EPERM)
        return fail("mprotect", 0);
    if (mprotect(page, 4096, PROT_READ) != 0) return fail("plain mprotect", 0);
    if (socket(AF_INET, SOCK_STREAM, 0) < 0) return fail("socket of family", AF_INET);
    return WELL;
}

TEST(of_calls_that_the_process_needs_it_makes_only_what_it_needs)
{
    CHECK_INT(in_sandbox(&(struct sandbox_spec){.read_count = 0}, try_arguments), ==, WELL);
}
