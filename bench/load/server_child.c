/* server_child.c - the server that is measured: starting, asking, its processor time, its end. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "load/server.h"

enum {
    ARGUMENTS_MAX = 32,
    CONFIG_BYTES_MAX = 4096,
    CHILDREN_MAX = 8, /* of the server: nginx has its worker as one */
    NAP_MS = 5,
};

void nap(void)
{
    struct timespec while_ns = {.tv_nsec = NAP_MS * 1000000L};

    (void)nanosleep(&while_ns, NULL);
}

/* ---- Cores ---- */

/* The first core for the load, the last one for the server. */
static void pin(bool first)
{
    cpu_set_t mask, one;
    int chosen = -1, cores = 0;

    if (sched_getaffinity(0, sizeof mask, &mask) < 0) stop_errno("sched_getaffinity");
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, &mask)) continue;
        if (!first || cores == 0) chosen = i;
        cores++;
    }
    if (cores < 2) stop(STATUS_NOT_HERE, "needs two cores, one for the server");
    CPU_ZERO(&one);
    CPU_SET(chosen, &one);
    if (sched_setaffinity(0, sizeof one, &one) < 0) stop_errno("sched_setaffinity");
}

void client_pin(void)
{
    if (load.apart) pin(true);
}

/* ---- Processes ---- */

/* The server and what it has started. */
static size_t processes(pid_t *ret_pids)
{
    char path[64];
    size_t count = 0;
    FILE *list;

    ret_pids[count++] = load.server;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", load.server, load.server);
    list = fopen(path, "re");
    if (!list) return count;
    while (count < CHILDREN_MAX + 1 && fscanf(list, "%d", &ret_pids[count]) == 1) count++;
    fclose(list);
    return count;
}

void server_kill(void)
{
    pid_t pids[CHILDREN_MAX + 1];

    if (load.server <= 0) return;
    for (size_t i = processes(pids); i > 0; i--) (void)kill(pids[i - 1], SIGKILL);
    (void)waitpid(load.server, NULL, 0);
    load.server = -1;
}

int64_t server_cpu_ns(void)
{
    pid_t pids[CHILDREN_MAX + 1];
    size_t count = processes(pids);
    int64_t cpu_ns = 0;

    for (size_t i = 0; i < count; i++) {
        clockid_t clock;

        if (clock_getcpuclockid(pids[i], &clock) != 0) stop(1, "the server's clock is not there");
        cpu_ns += bench_clock_ns(clock);
    }
    return cpu_ns;
}

/* ---- Asking ---- */

int connect_once(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(load.port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0) stop_errno("socket");
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
    close(fd);
    return -1;
}

bool exchange(const char *request, size_t bytes, char *ret_answer, size_t answer_bytes_max)
{
    struct timeval bound = {.tv_sec = SILENCE_MS_MAX / 1000};
    size_t got = 0;
    int fd = connect_once();

    if (fd < 0) return false;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof bound) < 0) stop_errno("setsockopt");
    if (send(fd, request, bytes, MSG_NOSIGNAL) == (ssize_t)bytes) {
        while (got < answer_bytes_max - 1 && load.protocol->whole(ret_answer, got) == 0) {
            ssize_t n = recv(fd, ret_answer + got, answer_bytes_max - 1 - got, 0);
            if (n <= 0) break;
            got += (size_t)n;
        }
    }
    close(fd);
    ret_answer[got] = '\0';
    return load.protocol->whole(ret_answer, got) > 0;
}

/* ---- Starting ---- */

/* A port that is free now. Another process could take it before the server does: then the server
 * says so, and the run fails. */
static uint16_t free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&address, bytes) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &bytes) < 0)
        stop_errno("a port for the server");
    close(fd);
    return ntohs(address.sin_port);
}

/* The text with {port}, {data} and {config} filled in, on the heap. */
static char *fill(const char *text)
{
    size_t bytes = 0, bytes_max = strlen(text) + 8 * PATH_MAX;
    char *filled = malloc(bytes_max);

    if (!filled) stop_errno("malloc");
    while (*text && bytes < bytes_max - PATH_MAX) {
        if (strncmp(text, "{port}", 6) == 0) {
            bytes += (size_t)sprintf(filled + bytes, "%u", load.port);
            text += 6;
        } else if (strncmp(text, "{data}", 6) == 0) {
            bytes += (size_t)sprintf(filled + bytes, "%s", load.data);
            text += 6;
        } else if (strncmp(text, "{config}", 8) == 0) {
            bytes += (size_t)sprintf(filled + bytes, "%s/config", load.data);
            text += 8;
        } else {
            filled[bytes++] = *text++;
        }
    }
    filled[bytes] = '\0';
    return filled;
}

static void write_config(const char *path)
{
    char text[CONFIG_BYTES_MAX] = "", *filled;
    FILE *from = fopen(path, "re"), *to = fopen("config", "we");

    if (!from || !to) stop_errno(path);
    if (fread(text, 1, sizeof text - 1, from) == sizeof text - 1) stop(1, "%s is too long", path);
    filled = fill(text);
    if (fputs(filled, to) < 0 || fclose(to) != 0) stop_errno("config");
    free(filled);
    fclose(from);
}

_Noreturn static void run_server(char *const *arguments)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int log = open("server.log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (load.apart) pin(false);
    (void)signal(SIGPIPE, SIG_DFL);
    if (null < 0 || log < 0 || dup2(null, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0) _exit(1);
    execv(arguments[0], arguments);
    fprintf(stderr, "%s: %s\n", arguments[0], strerror(errno));
    _exit(1);
}

/* What the server has said last. */
_Noreturn static void stop_with_log(const char *what)
{
    char text[1024] = "";
    int log = open("server.log", O_RDONLY | O_CLOEXEC);
    ssize_t bytes = 0;

    if (log >= 0) {
        off_t end = lseek(log, 0, SEEK_END);
        off_t from = end > (off_t)sizeof text ? end - (off_t)sizeof text + 1 : 0;
        bytes = pread(log, text, sizeof text - 1, from);
        close(log);
    }
    stop(1, "%s; it said: %.*s", what, bytes > 0 ? (int)bytes : 7, bytes > 0 ? text : "nothing");
}

void server_start(char **command)
{
    char *arguments[ARGUMENTS_MAX + 1] = {0};
    const char *config = getenv("BENCH_CONFIG");
    int64_t begin_ns;

    load.port = free_port();
    if (config) write_config(config);
    for (size_t i = 0; command[i]; i++) {
        if (i == ARGUMENTS_MAX) stop(2, "more than %d arguments", ARGUMENTS_MAX);
        arguments[i] = fill(command[i]);
    }
    load.server = fork();
    if (load.server < 0) stop_errno("fork");
    if (load.server == 0) run_server(arguments);
    for (size_t i = 0; arguments[i]; i++) free(arguments[i]);
    begin_ns = bench_now_ns();
    while (!load.protocol->ready()) {
        int status = 0;

        if (waitpid(load.server, &status, WNOHANG) != 0) {
            load.server = -1;
            if (WIFEXITED(status) && WEXITSTATUS(status) == STATUS_NOT_HERE) leave(STATUS_NOT_HERE);
            stop_with_log("the server has ended before it was ready");
        }
        if (bench_now_ns() - begin_ns > SILENCE_MS_MAX * INT64_C(1000000))
            stop_with_log("the server was not ready in time");
        nap();
    }
}
