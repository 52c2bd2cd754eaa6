/* process_plan.c - what a process is made of: its spec checked, and copied into one block
 * that the executor's thread can use whatever becomes of the caller. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "io/process.h"
#include "rt/mem.h"

#define PATH_DEFAULT "/usr/local/bin:/usr/bin:/bin" /* when the parent has no PATH */

/* ---- Checking ---- */

static int check_stdio(const char *name, const char *member, const weir_stdio *stdio, bool is_err)
{
    switch (stdio->kind) {
    case WEIR_STDIO_UNSET:
    case WEIR_STDIO_NULL:
    case WEIR_STDIO_INHERIT: return 0;
    case WEIR_STDIO_PIPE:
        if (stdio->ret_conn) return 0;
        return refuse("process '%s': %s.kind is WEIR_STDIO_PIPE but ret_conn is NULL", name,
                      member);
    case WEIR_STDIO_FD:
        if (stdio->fd >= 0) return 0;
        return refuse("process '%s': %s.kind is WEIR_STDIO_FD but fd is %d", name, member,
                      stdio->fd);
    case WEIR_STDIO_OUT:
        if (is_err) return 0;
        return refuse("process '%s': %s.kind is WEIR_STDIO_OUT, which is for err only", name,
                      member);
    }
    return refuse("process '%s': %s.kind is none of enum weir_stdio_kind", name, member);
}

static int check_environment(const weir_process_spec *spec)
{
    bool wants_variables =
        spec->environment == WEIR_ENVIRONMENT_ADD || spec->environment == WEIR_ENVIRONMENT_REPLACE;

    if ((unsigned)spec->environment > WEIR_ENVIRONMENT_REPLACE) {
        return refuse("process '%s': environment is none of enum weir_environment", spec->name);
    }
    if (wants_variables != (spec->variables != NULL)) {
        return refuse("process '%s': variables is %s but environment is%s WEIR_ENVIRONMENT_ADD or "
                      "WEIR_ENVIRONMENT_REPLACE",
                      spec->name, spec->variables ? "set" : "NULL", wants_variables ? "" : " not");
    }
    for (size_t i = 0; spec->variables && spec->variables[i]; i++) {
        if (spec->variables[i][0] == '=' || !strchr(spec->variables[i], '=')) {
            return refuse("process '%s': variables[%zu] is not of the form NAME=value", spec->name,
                          i);
        }
    }
    return 0;
}

static int check_descriptors(const weir_process_spec *spec)
{
    int r = check_stdio(spec->name, "in", &spec->in, false);

    if (r == 0) r = check_stdio(spec->name, "out", &spec->out, false);
    if (r == 0) r = check_stdio(spec->name, "err", &spec->err, true);
    if (r < 0) return r;
    if (spec->fd_count < 0 || spec->fd_count > WEIR_PROCESS_FDS_MAX) {
        return refuse("process '%s': fd_count is %d, must be 0 to %d", spec->name, spec->fd_count,
                      WEIR_PROCESS_FDS_MAX);
    }
    if (spec->fd_count > 0 && !spec->fds) return refuse("process '%s': fds is NULL", spec->name);
    for (int i = 0; i < spec->fd_count; i++) {
        if (spec->fds[i] < 0) {
            return refuse("process '%s': fds[%d] is %d, which is no descriptor", spec->name, i,
                          spec->fds[i]);
        }
    }
    return 0;
}

int process_check_spec(const weir_process_spec *spec)
{
    const char *name = spec->name;
    int r;

    if (!name || !*name) return refuse("process: name is not set");
    if (!spec->program || !*spec->program) {
        return refuse("process '%s': program is not set", name);
    }
    if (spec->grace_ms == 0) return refuse("process '%s': grace_ms is not set", name);
    if (spec->grace_ms < 0 && spec->grace_ms != WEIR_KILL_AT_ONCE) {
        return refuse("process '%s': grace_ms is negative", name);
    }
    if (spec->on_exit == WEIR_EXIT_UNSET) return refuse("process '%s': on_exit is not set", name);
    if ((unsigned)spec->on_exit > WEIR_EXIT_ZERO) {
        return refuse("process '%s': on_exit is none of enum weir_exit_policy", name);
    }
    if ((unsigned)spec->group > WEIR_GROUP_SAME) {
        return refuse("process '%s': group is none of enum weir_process_group", name);
    }
    if (spec->parent_death_signal < 0 || spec->parent_death_signal > SIGRTMAX) {
        return refuse("process '%s': parent_death_signal is %d, which is no signal", name,
                      spec->parent_death_signal);
    }
    r = check_environment(spec);
    return r < 0 ? r : check_descriptors(spec);
}

/* ---- Copying: the same walk twice, first to count, then to copy ---- */

struct packer {
    char *memory; /* NULL: only count */
    size_t used;
    size_t bytes;
};

static void *pack(struct packer *packer, size_t bytes, size_t alignment)
{
    size_t begin = (packer->used + alignment - 1) & ~(alignment - 1);

    packer->used = begin + bytes;
    /* The environment may have grown since it was counted. */
    return packer->memory && packer->used <= packer->bytes ? packer->memory + begin : NULL;
}

static const char *pack_text(struct packer *packer, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = pack(packer, bytes, 1);

    if (copy) memcpy(copy, text, bytes);
    return copy;
}

static const char **pack_pointers(struct packer *packer, size_t count)
{
    const char **pointers = pack(packer, (count + 1) * sizeof *pointers, _Alignof(char *));

    if (pointers) memset(pointers, 0, (count + 1) * sizeof *pointers);
    return pointers;
}

static void set(const char **pointers, size_t index, const char *text)
{
    if (pointers) pointers[index] = text;
}

static const char *const *pack_arguments(struct packer *packer, const weir_process_spec *spec)
{
    const char **arguments;
    size_t count = 0;

    while (spec->arguments && spec->arguments[count]) count++;
    arguments = pack_pointers(packer, count + 1);
    set(arguments, 0, pack_text(packer, spec->program));
    for (size_t i = 0; i < count; i++) {
        set(arguments, i + 1, pack_text(packer, spec->arguments[i]));
    }
    return arguments;
}

static bool same_name(const char *a, const char *b)
{
    size_t length = strcspn(a, "=");
    return strncmp(a, b, length) == 0 && b[length] == '=';
}

static bool overridden(const weir_process_spec *spec, const char *variable)
{
    for (size_t i = 0; spec->variables && spec->variables[i]; i++) {
        if (same_name(spec->variables[i], variable)) return true;
    }
    return false;
}

static const char *const *pack_environment(struct packer *packer, const weir_process_spec *spec)
{
    bool inherits = spec->environment != WEIR_ENVIRONMENT_REPLACE && environ;
    const char **environment;
    size_t inherited = 0;
    size_t count = 0;
    size_t at = 0;

    while (inherits && environ[inherited]) inherited++;
    while (spec->variables && spec->variables[count]) count++;
    environment = pack_pointers(packer, inherited + count);
    for (size_t i = 0; i < inherited && environ[i]; i++) {
        if (overridden(spec, environ[i])) continue;
        set(environment, at++, pack_text(packer, environ[i]));
    }
    for (size_t i = 0; i < count; i++) {
        set(environment, at++, pack_text(packer, spec->variables[i]));
    }
    return environment;
}

/* "/usr/bin" and "true": "/usr/bin/true"; an empty folder is the current one. */
static const char *pack_path(struct packer *packer, const char *folder, size_t length,
                             const char *program)
{
    size_t program_bytes = strlen(program) + 1;
    char *path = pack(packer, length + 1 + program_bytes, 1);

    if (!path) return NULL;
    if (length == 0) {
        memcpy(path, program, program_bytes);
        return path;
    }
    memcpy(path, folder, length);
    path[length] = '/';
    memcpy(path + length + 1, program, program_bytes);
    return path;
}

static const char *const *pack_paths(struct packer *packer, const char *program)
{
    const char *folders = getenv("PATH");
    const char **paths;
    size_t count = 1;

    if (strchr(program, '/')) folders = "";
    if (!folders) folders = PATH_DEFAULT;
    for (const char *at = folders; *at; at++) count += *at == ':';
    paths = pack_pointers(packer, count);
    for (size_t i = 0; i < count; i++) {
        size_t length = strcspn(folders, ":");
        set(paths, i, pack_path(packer, folders, length, program));
        folders += length + (folders[length] == ':');
    }
    return paths;
}

static void pack_plan(struct packer *packer, const weir_process_spec *spec,
                      struct process_plan *plan)
{
    plan->paths = pack_paths(packer, spec->program);
    plan->arguments = pack_arguments(packer, spec);
    plan->environment = pack_environment(packer, spec);
    plan->directory = spec->directory ? pack_text(packer, spec->directory) : NULL;
}

static void plan_limit(struct process_plan *plan, int which, uint64_t value)
{
    if (value == 0) return;
    plan->limits[plan->limit_count++] =
        (struct process_limit){which, value == WEIR_LIMIT_ZERO ? 0 : value};
}

int start_call_new(const weir_process_spec *spec, struct start_call **ret_call)
{
    struct process_plan plan = {0};
    struct packer packer = {0};
    struct start_call *call;

    pack_plan(&packer, spec, &plan);
    call = mem_alloc(sizeof *call + packer.used);
    if (!call) return -ENOMEM;
    memset(call, 0, sizeof *call);
    packer = (struct packer){.memory = call->memory, .bytes = packer.used};
    pack_plan(&packer, spec, &call->plan);
    if (packer.used > packer.bytes) {
        mem_free(call);
        return refuse_as(-EAGAIN, "process '%s': the environment is being changed", spec->name);
    }
    call->plan.own_group = spec->group != WEIR_GROUP_SAME;
    call->plan.parent_death_signal = spec->parent_death_signal;
    plan_limit(&call->plan, RLIMIT_AS, spec->limits.memory_bytes);
    plan_limit(&call->plan, RLIMIT_CPU, spec->limits.cpu_seconds);
    plan_limit(&call->plan, RLIMIT_NOFILE, spec->limits.files);
    plan_limit(&call->plan, RLIMIT_CORE, spec->limits.core_bytes);
    plan_limit(&call->plan, RLIMIT_FSIZE, spec->limits.file_bytes);
    *ret_call = call;
    return 0;
}
