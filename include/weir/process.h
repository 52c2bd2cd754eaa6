/* process.h - other programs, each owned by a scope.
 *
 * Owner: a scope. Lifetime: until it ends by itself, weir_process_close, or the end of its
 * scope, whichever is first; a process never outlives its scope, nor does what is left of
 * its process group outlive the process. Backpressure: `processes_max` of the runtime, more
 * are rejected with WEIR_EOVERLOAD. Failure: `on_exit` says what another end than exit
 * code 0 means.
 *
 * When the scope is cancelled or closed, and at weir_process_close, a process that still
 * runs gets SIGTERM (and SIGCONT), after grace_ms SIGKILL, and is reaped: there are no
 * zombies. Close waits for that.
 *
 * The child has the default action for every signal and none blocked, and no descriptor but
 * those that its spec names. It is made without a copy of the memory (vfork) on the threads
 * of an executor that serves nothing else, so that a slow file system holds up neither the
 * workers nor file calls. Only the process's own id is ever waited for: other children of
 * the program stay its own.
 *
 * Needs Linux 5.4 (pidfd); before that start answers -ENOSYS with a sentence.
 * Threads: any task of the runtime, on any worker.
 */
#ifndef WEIR_PROCESS_H
#define WEIR_PROCESS_H

#include <sys/types.h>
#include <weir/defs.h>
#include <weir/error.h>
#include <weir/net.h>

WEIR_BEGIN

#define WEIR_PROCESSES_DEFAULT 1024
#define WEIR_PROCESS_FDS_MAX 8
#define WEIR_KILL_AT_ONCE (-1)     /* for grace_ms: no SIGTERM first */
#define WEIR_LIMIT_ZERO UINT64_MAX /* for a limit: 0 means "not said" */

typedef struct weir_process weir_process;

/* What one of the three standard descriptors of the child is. */
enum weir_stdio_kind {
    WEIR_STDIO_UNSET = 0, /* WEIR_STDIO_NULL */
    WEIR_STDIO_NULL,      /* /dev/null */
    WEIR_STDIO_INHERIT,   /* the parent's */
    WEIR_STDIO_PIPE,      /* a pipe, whose other end goes to ret_conn */
    WEIR_STDIO_FD,        /* a copy of `fd`, which stays the caller's */
    WEIR_STDIO_OUT,       /* for err: the same as out */
};
typedef struct weir_stdio {
    enum weir_stdio_kind kind;
    int fd;
    weir_conn **ret_conn; /* the caller's to read (in: to write) and to close */
} weir_stdio;

enum weir_environment {
    WEIR_ENVIRONMENT_UNSET = 0, /* WEIR_ENVIRONMENT_INHERIT */
    WEIR_ENVIRONMENT_INHERIT,   /* the parent's; must not be changed meanwhile (setenv) */
    WEIR_ENVIRONMENT_ADD,       /* the parent's, and `variables`, which win */
    WEIR_ENVIRONMENT_REPLACE,   /* `variables` and nothing else */
};

enum weir_process_group {
    WEIR_GROUP_UNSET = 0, /* WEIR_GROUP_OWN */
    WEIR_GROUP_OWN,       /* signals reach its children, too; and what is left of the group
                             when the process has ended is killed */
    WEIR_GROUP_SAME,      /* the parent's: a terminal's keys reach it, our signals only itself */
};

/* What it means when the process ends otherwise than with exit code 0. */
enum weir_exit_policy {
    WEIR_EXIT_UNSET = 0,
    WEIR_EXIT_ANY,  /* nothing: the status says how it ended */
    WEIR_EXIT_ZERO, /* a failure: wait and close return WEIR_EEXIT, unless it was ended by
                       close or by the end of its scope */
};

/* Limits of the child (setrlimit, hard and soft). 0: the parent's; WEIR_LIMIT_ZERO: none. */
typedef struct weir_process_limits {
    uint64_t memory_bytes; /* RLIMIT_AS: address space */
    uint64_t cpu_seconds;  /* RLIMIT_CPU */
    uint64_t files;        /* RLIMIT_NOFILE */
    uint64_t core_bytes;   /* RLIMIT_CORE */
    uint64_t file_bytes;   /* RLIMIT_FSIZE */
} weir_process_limits;

typedef struct weir_process_spec {
    const char *name;              /* must be said; copied, at most 31 bytes */
    const char *program;           /* must be said; without a slash: looked for in PATH of the
                                      parent; a relative path counts from `directory` */
    const char *const *arguments;  /* after argv[0], which is `program`; NULL ends them */
    int64_t grace_ms;              /* must be said: from SIGTERM to SIGKILL; WEIR_KILL_AT_ONCE */
    enum weir_exit_policy on_exit; /* must be said */
    enum weir_environment environment;
    const char *const *variables; /* "NAME=value"; NULL ends them */
    const char *directory;        /* default: the parent's */
    weir_stdio in, out, err;
    const int *fds; /* copies of them become 3, 4, ... in the child */
    int fd_count;   /* at most WEIR_PROCESS_FDS_MAX */
    weir_process_limits limits;
    enum weir_process_group group;
    /* A signal that the kernel sends it when this program dies without having ended it, or
     * 0. (The kernel means the thread that made it: those of our executor live as long as
     * the runtime, and the runtime ends after its processes.) */
    int parent_death_signal;
} weir_process_spec;

/* weir_process_spec_init - set every member to "not said". */
static inline void weir_process_spec_init(weir_process_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

typedef struct weir_process_status {
    int exit_code;    /* 0 to 255, or -1: a signal ended it */
    int signal;       /* that signal, or 0 */
    bool core_dumped; /* by that signal */
    bool ended_by_us; /* close or the end of its scope ended it */
    int64_t user_us;  /* time on a processor, its reaped children included */
    int64_t system_us;
    int64_t rss_bytes_max; /* the most memory it has had at a time */
} weir_process_status;

/* weir_process_start(scope, &spec, &process) - make a process that belongs to `scope`.
 * Returns when it has become its program. Suspends; needs a deadline.
 * Cancel: outcome unknown: the program may have begun to run; it is killed and reaped, and
 * nothing is left.
 * Errors: the kernel's (-ENOENT, -EACCES, -EAGAIN, -EMFILE), with a sentence that says what
 * they are about; WEIR_EOVERLOAD (processes_max), WEIR_EREFUSED, WEIR_ECANCELED (also if
 * the scope is), -ENOSYS, -ENOMEM. */
WEIR_SUSPENDS int weir_process_start_sized(weir_scope *scope, size_t spec_bytes,
                                           const weir_process_spec *spec,
                                           weir_process **ret_process);
#define weir_process_start(scope, ...) \
    weir_process_start_sized((scope), sizeof(weir_process_spec), __VA_ARGS__)

/* weir_process_wait - until it has ended; `ret_status` may be NULL. Any number of tasks may
 * wait, and again after its end. Suspends; needs a deadline. Cancel: nothing moved, the
 * process runs on.
 * Errors: WEIR_EEXIT (on_exit; the status is written), -ECHILD: it has ended, but somebody
 * else took its status: the program ignores SIGCHLD, or waits for any child. */
WEIR_SUSPENDS int weir_process_wait(weir_process *process, weir_process_status *ret_status);

/* weir_process_signal - send `signo` to the process, or to its group if it has its own.
 * Returns 0 or the kernel's error; -ESRCH: it has ended. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_process_signal(weir_process *process, int signo);

/* weir_process_pid - its id; nobody else can have it as long as the process has not ended.
 * Never suspends. */
WEIR_API pid_t weir_process_pid(const weir_process *process);

/* weir_process_close - end it (SIGTERM, grace_ms, SIGKILL) if it still runs, wait until it
 * has, and free the handle. Takes NULL. Suspends; needs no deadline. Cancel: not cut short.
 * Returns what wait would. */
WEIR_SUSPENDS int weir_process_close(weir_process *take_process);

WEIR_END

#endif
