/* echo.c - the load generator of `bench echo`: one for all servers.
 *
 *     bench-echo-load WORKLOAD N PEER SERVER [ARGUMENT...]
 *
 * Starts SERVER on a core of its own, reads the line "port PORT" from its standard output, and
 * drives it from another core. Every connection has one request of 64 bytes in flight; every byte
 * that comes back is compared. The processor time of the server is that of its whole process
 * (clock_getcpuclockid), read between the end of the warm-up and the last request measured, while
 * the load goes on.
 *
 *     echo_64, echo_1000      N requests over 64 (1000) connections
 *     calls_64, calls_1000    the same, with the system calls counted by perf: not to be timed
 *     idle                    N connections, each used once and then left alone
 *
 * Exit status: 0 all metrics were printed, 1 a failure, 2 wrong usage, 77 it cannot be measured
 * here (the server says that it lacks something, one core only, no perf). */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

enum {
    REQUEST_BYTES = 64,
    REQUEST_WORDS = REQUEST_BYTES / sizeof(uint64_t),
    CONNECTIONS_MAX = 19000,
    DESCRIPTORS_MIN = 4096,
    DESCRIPTORS_SPARE = 64,
    EVENTS_MAX = 1024,
    WARM_UP_PERCENT = 20,
    SILENCE_MS_MAX = 10000, /* of the server, before the run is given up */
    SETTLE_MS = 200,        /* idle: time for the server to finish what it does after a request */
    STATUS_NOT_HERE = 77,
    /* Latencies are counted in buckets: 64 to each power of two, 1.6 % wide. */
    BUCKET_BITS = 6,
    BUCKETS = 64 << BUCKET_BITS,
};

struct connection {
    int fd;
    uint32_t index;
    uint32_t got; /* bytes of the answer so far */
    uint64_t sequence;
    int64_t sent_ns;
    uint64_t request[REQUEST_WORDS];
};

struct load {
    struct bench bench;
    pid_t server;
    clockid_t server_clock;
    uint16_t port;
    int epoll_fd;
    struct connection *connections;
    size_t connections_count;
    size_t answered;
    bool recording;
    bool pausing; /* answers are taken, but nothing more is asked */
    uint64_t latency[BUCKETS];
};

static struct load load = {.bench = {.program = "bench-echo-load"}, .server = -1};

/* Leaves no server behind. */
_Noreturn static void leave(int status)
{
    if (load.server > 0) {
        (void)kill(load.server, SIGKILL);
        (void)waitpid(load.server, NULL, 0);
    }
    exit(status);
}

__attribute__((format(printf, 2, 3))) _Noreturn static void stop(int status, const char *format,
                                                                 ...)
{
    va_list arguments;

    fprintf(stderr, "bench-echo-load: ");
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
    leave(status);
}

_Noreturn static void stop_errno(const char *call)
{
    stop(1, "%s: %s", call, strerror(errno));
}

/* ---- The server ---- */

/* The first core for the load, the last one for the server. */
static void choose_cores(cpu_set_t *ret_ours, cpu_set_t *ret_server)
{
    cpu_set_t mask;
    int first = -1, last = -1;

    if (sched_getaffinity(0, sizeof mask, &mask) < 0) stop_errno("sched_getaffinity");
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, &mask)) continue;
        if (first < 0) first = i;
        last = i;
    }
    if (first == last) stop(STATUS_NOT_HERE, "needs two cores, one for the server");
    CPU_ZERO(ret_ours);
    CPU_SET(first, ret_ours);
    CPU_ZERO(ret_server);
    CPU_SET(last, ret_server);
}

static void raise_descriptor_limit(size_t connections)
{
    struct rlimit limit;
    rlim_t needed = connections + DESCRIPTORS_SPARE;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) stop_errno("getrlimit");
    if (limit.rlim_cur >= needed) return;
    limit.rlim_cur = needed;
    if (limit.rlim_max < needed) limit.rlim_max = needed;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        stop(STATUS_NOT_HERE, "%zu descriptors are not allowed: %s", (size_t)needed,
             strerror(errno));
}

/* "port 12345\n", or the reason why there is none. */
static uint16_t read_port(int fd)
{
    struct timeval bound = {.tv_sec = SILENCE_MS_MAX / 1000};
    char line[64];
    size_t length = 0;
    unsigned port = 0;
    fd_set wanted;

    while (length < sizeof line - 1 && !memchr(line, '\n', length)) {
        ssize_t n;

        FD_ZERO(&wanted);
        FD_SET(fd, &wanted);
        if (select(fd + 1, &wanted, NULL, NULL, &bound) <= 0)
            stop(1, "the server has not said its port within %d ms", SILENCE_MS_MAX);
        n = read(fd, line + length, sizeof line - 1 - length);
        if (n < 0) stop_errno("read");
        if (n == 0) {
            int status = 0;
            (void)waitpid(load.server, &status, 0);
            load.server = -1;
            if (WIFEXITED(status) && WEXITSTATUS(status) == STATUS_NOT_HERE) leave(STATUS_NOT_HERE);
            stop(1, "the server has ended before it said its port");
        }
        length += (size_t)n;
    }
    line[length] = '\0';
    if (sscanf(line, "port %u", &port) != 1 || port == 0 || port > UINT16_MAX)
        stop(1, "the server said '%s', not its port", line);
    return (uint16_t)port;
}

static void start_server(char **command)
{
    cpu_set_t ours, servers;
    int fds[2];

    choose_cores(&ours, &servers);
    if (pipe2(fds, O_CLOEXEC) < 0) stop_errno("pipe2");
    load.server = fork();
    if (load.server < 0) stop_errno("fork");
    if (load.server == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (sched_setaffinity(0, sizeof servers, &servers) < 0 || dup2(fds[1], 1) < 0) _exit(1);
        execv(command[0], command);
        fprintf(stderr, "%s: %s\n", command[0], strerror(errno));
        _exit(1);
    }
    close(fds[1]);
    if (sched_setaffinity(0, sizeof ours, &ours) < 0) stop_errno("sched_setaffinity");
    load.port = read_port(fds[0]);
    if (clock_getcpuclockid(load.server, &load.server_clock) != 0)
        stop(1, "the server's clock cannot be read");
}

static int64_t server_cpu_ns(void)
{
    return bench_clock_ns(load.server_clock);
}

/* ---- Connections ---- */

static void connect_all(size_t count)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(load.port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    load.connections = calloc(count, sizeof *load.connections);
    if (!load.connections) stop_errno("calloc");
    load.connections_count = count;
    load.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (load.epoll_fd < 0) stop_errno("epoll_create1");
    for (size_t i = 0; i < count; i++) {
        struct connection *connection = &load.connections[i];
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = connection};
        /* No TIME_WAIT, which would use the ports up over many repetitions. */
        struct linger at_once = {.l_onoff = 1};
        int one = 1;

        connection->index = (uint32_t)i;
        connection->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connection->fd < 0) stop_errno("socket");
        if (setsockopt(connection->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) < 0 ||
            setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) < 0)
            stop_errno("setsockopt");
        if (connect(connection->fd, (struct sockaddr *)&address, sizeof address) < 0)
            stop_errno("connect");
        if (epoll_ctl(load.epoll_fd, EPOLL_CTL_ADD, connection->fd, &event) < 0)
            stop_errno("epoll_ctl");
    }
}

static void send_next(struct connection *connection, int64_t now_ns)
{
    uint64_t seed = (++connection->sequence << 32) | connection->index;
    ssize_t n;

    for (size_t i = 0; i < REQUEST_WORDS; i++)
        connection->request[i] = (seed + i) * UINT64_C(0x9e3779b97f4a7c15);
    connection->got = 0;
    connection->sent_ns = now_ns;
    n = send(connection->fd, connection->request, REQUEST_BYTES, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) stop_errno("send");
    if (n != REQUEST_BYTES) stop(1, "send took %zd of %d bytes", n, REQUEST_BYTES);
}

/* 64 buckets to each power of two; exact below 64. */
static size_t bucket_of(uint64_t ns)
{
    int shift = ns >> BUCKET_BITS ? 64 - BUCKET_BITS - 1 - __builtin_clzll(ns) : 0;

    return ((size_t)shift << BUCKET_BITS) + (size_t)(ns >> shift);
}

static double bucket_us(size_t bucket)
{
    size_t octave = bucket >> BUCKET_BITS;
    uint64_t low;

    if (octave <= 1) return (double)bucket / 1000;
    low = (uint64_t)(bucket - ((octave - 1) << BUCKET_BITS)) << (octave - 1);
    return (double)low / 1000;
}

/* True: the answer is complete, and right. */
static bool receive(struct connection *connection)
{
    char data[2 * REQUEST_BYTES]; /* room to see more than was asked for */
    ssize_t n = recv(connection->fd, data, sizeof data, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n < 0) stop_errno("recv");
    if (n == 0) stop(1, "the server has closed connection %u", connection->index);
    if (connection->got + (size_t)n > REQUEST_BYTES)
        stop(1, "connection %u: more bytes came back than were sent", connection->index);
    if (memcmp((char *)connection->request + connection->got, data, (size_t)n) != 0)
        stop(1, "connection %u, request %llu: other bytes came back than were sent",
             connection->index, (unsigned long long)connection->sequence);
    connection->got += (uint32_t)n;
    return connection->got == REQUEST_BYTES;
}

/* ---- The closed loop ---- */

static void handle(struct connection *connection)
{
    int64_t now_ns;

    if (!receive(connection)) return;
    now_ns = bench_now_ns();
    load.answered++;
    if (load.recording) load.latency[bucket_of((uint64_t)(now_ns - connection->sent_ns))]++;
    if (!load.pausing) send_next(connection, now_ns);
}

/* Until `count` more answers have come; unless it pauses, all connections stay busy. */
static void run_for(size_t count)
{
    size_t until = load.answered + count;
    static struct epoll_event events[EVENTS_MAX];

    while (load.answered < until) {
        int n = epoll_wait(load.epoll_fd, events, EVENTS_MAX, SILENCE_MS_MAX);

        if (n < 0 && errno == EINTR) continue;
        if (n < 0) stop_errno("epoll_wait");
        if (n == 0) stop(1, "no answer from the server within %d ms", SILENCE_MS_MAX);
        for (int i = 0; i < n; i++) handle(events[i].data.ptr);
    }
}

static void send_all(void)
{
    load.pausing = false;
    for (size_t i = 0; i < load.connections_count; i++)
        send_next(&load.connections[i], bench_now_ns());
}

/* Take the answer that each connection still waits for. */
static void pause_all(void)
{
    load.pausing = true;
    run_for(load.connections_count);
}

static void begin(size_t connections)
{
    connect_all(connections);
    send_all();
    /* Everybody has been answered before the warm-up counts. */
    run_for(connections + load.bench.n * WARM_UP_PERCENT / 100);
}

static double percentile_us(double part)
{
    uint64_t all = 0, seen = 0;

    for (size_t i = 0; i < BUCKETS; i++) all += load.latency[i];
    for (size_t i = 0; i < BUCKETS; i++) {
        seen += load.latency[i];
        if ((double)seen >= part * (double)all) return bucket_us(i);
    }
    return 0;
}

static void print_figure(const char *metric, const char *unit, double figure)
{
    printf("{\"workload\":\"%s_%s\",\"peer\":\"%s\",\"n\":%zu,\"%s\":%.4f}\n", load.bench.workload,
           metric, load.bench.peer, load.bench.n, unit, figure);
}

static void measure_echo(size_t connections)
{
    int64_t begin_ns, begin_cpu_ns, elapsed_ns, cpu_ns;
    size_t first, count;

    begin(connections);
    load.recording = true;
    first = load.answered;
    begin_cpu_ns = server_cpu_ns();
    begin_ns = bench_now_ns();
    run_for(load.bench.n);
    cpu_ns = server_cpu_ns() - begin_cpu_ns;
    elapsed_ns = bench_now_ns() - begin_ns;
    count = load.answered - first;
    print_figure("cpu", "us_per_request", (double)cpu_ns / 1000 / (double)count);
    print_figure("rate", "requests_per_s", (double)count * 1e9 / (double)elapsed_ns);
    print_figure("p50", "us", percentile_us(0.5));
    print_figure("p99", "us", percentile_us(0.99));
}

static void measure_echo_64(const struct bench *bench)
{
    (void)bench;
    measure_echo(64);
}

static void measure_echo_1000(const struct bench *bench)
{
    (void)bench;
    measure_echo(1000);
}

/* ---- System calls ----
 *
 * perf counts in the kernel, so the server keeps its speed and its batches; strace would slow it
 * down until every wait finds all connections ready. */

static const struct call {
    const char *event;
    enum { CALL_ALL, CALL_WAIT, CALL_MOVE, CALL_KINDS } kind;
} calls[] = {
    {"raw_syscalls:sys_enter", CALL_ALL},
    {"syscalls:sys_enter_epoll_wait", CALL_WAIT},
    {"syscalls:sys_enter_epoll_pwait", CALL_WAIT},
    {"syscalls:sys_enter_epoll_pwait2", CALL_WAIT},
    {"syscalls:sys_enter_io_uring_enter", CALL_WAIT},
    {"syscalls:sys_enter_read", CALL_MOVE},
    {"syscalls:sys_enter_readv", CALL_MOVE},
    {"syscalls:sys_enter_recvfrom", CALL_MOVE},
    {"syscalls:sys_enter_recvmsg", CALL_MOVE},
    {"syscalls:sys_enter_write", CALL_MOVE},
    {"syscalls:sys_enter_writev", CALL_MOVE},
    {"syscalls:sys_enter_sendto", CALL_MOVE},
    {"syscalls:sys_enter_sendmsg", CALL_MOVE},
};

enum { CALLS_COUNT = sizeof calls / sizeof *calls };

/* Counting from when it has opened its events, which it says by enabling them on our word. */
static pid_t perf_start(int *ret_control, int *ret_acknowledge, FILE *output)
{
    char events[1024] = "", pid[16], control[32], out[32];
    int control_fds[2], acknowledge_fds[2];
    pid_t perf;

    for (size_t i = 0; i < CALLS_COUNT; i++) {
        if (i > 0) strcat(events, ",");
        strcat(events, calls[i].event);
    }
    if (pipe(control_fds) < 0 || pipe(acknowledge_fds) < 0) stop_errno("pipe");
    snprintf(pid, sizeof pid, "%d", load.server);
    snprintf(control, sizeof control, "fd:%d,%d", control_fds[0], acknowledge_fds[1]);
    snprintf(out, sizeof out, "%d", fileno(output));
    perf = fork();
    if (perf < 0) stop_errno("fork");
    if (perf == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)dup2(fileno(output), 2);
        execlp("perf", "perf", "stat", "-x", ";", "--log-fd", out, "-D", "-1", "--control", control,
               "-e", events, "-p", pid, (char *)NULL);
        _exit(STATUS_NOT_HERE);
    }
    close(control_fds[0]);
    close(acknowledge_fds[1]);
    *ret_control = control_fds[1];
    *ret_acknowledge = acknowledge_fds[0];
    return perf;
}

static void perf_tell(int control, int acknowledge, const char *word)
{
    char answer[16];

    (void)signal(SIGPIPE, SIG_IGN);
    if (write(control, word, strlen(word)) < 0 || read(acknowledge, answer, sizeof answer) <= 0)
        stop(STATUS_NOT_HERE, "perf cannot count system calls here (Debian: linux-perf; needs "
                              "tracefs and permission)");
}

static void perf_read(FILE *output, double *ret_counts)
{
    char line[256];

    rewind(output);
    while (fgets(line, sizeof line, output)) {
        for (size_t i = 0; i < CALLS_COUNT; i++) {
            char *name = strstr(line, calls[i].event);
            size_t length = strlen(calls[i].event);

            if (name && name[length] == ';') ret_counts[calls[i].kind] += strtod(line, NULL);
        }
    }
}

static void measure_calls(size_t connections)
{
    double counts[CALL_KINDS] = {0};
    FILE *output = tmpfile();
    int control, acknowledge, status = 0;
    size_t first, count;
    pid_t perf;

    if (!output) stop_errno("tmpfile");
    begin(connections);
    pause_all(); /* the server is idle while the counters are switched on one by one */
    perf = perf_start(&control, &acknowledge, output);
    perf_tell(control, acknowledge, "enable\n");
    first = load.answered;
    send_all();
    run_for(load.bench.n);
    pause_all();
    count = load.answered - first;
    perf_tell(control, acknowledge, "disable\n");
    (void)kill(perf, SIGINT);
    (void)waitpid(perf, &status, 0);
    perf_read(output, counts);
    if (counts[CALL_ALL] == 0) stop(STATUS_NOT_HERE, "perf has counted nothing");
    print_figure("all", "calls_per_request", counts[CALL_ALL] / (double)count);
    print_figure("wait", "calls_per_request", counts[CALL_WAIT] / (double)count);
    print_figure("move", "calls_per_request", counts[CALL_MOVE] / (double)count);
    print_figure("other", "calls_per_request",
                 (counts[CALL_ALL] - counts[CALL_WAIT] - counts[CALL_MOVE]) / (double)count);
}

static void measure_calls_64(const struct bench *bench)
{
    (void)bench;
    measure_calls(64);
}

static void measure_calls_1000(const struct bench *bench)
{
    (void)bench;
    measure_calls(1000);
}

/* ---- Idle connections ---- */

static int64_t server_bytes(void)
{
    char path[32];

    snprintf(path, sizeof path, "/proc/%d/status", load.server);
    return bench_resident_bytes_of(&load.bench, path);
}

static void settle(void)
{
    struct timespec while_ns = {.tv_nsec = SETTLE_MS * 1000000L};

    (void)nanosleep(&while_ns, NULL);
}

/* One request on each, one after the other, so that a server that needs more memory while it
 * works than while it waits is not charged for all of them working at once. */
static void measure_idle(const struct bench *bench)
{
    int64_t before;

    if (bench->n > CONNECTIONS_MAX) stop(2, "N is at most %d here", CONNECTIONS_MAX);
    settle();
    before = server_bytes();
    connect_all(bench->n);
    for (size_t i = 0; i < bench->n; i++) {
        send_next(&load.connections[i], bench_now_ns());
        while (!receive(&load.connections[i])) {
            struct epoll_event event;
            if (epoll_wait(load.epoll_fd, &event, 1, SILENCE_MS_MAX) <= 0)
                stop(1, "no answer from the server within %d ms", SILENCE_MS_MAX);
        }
    }
    settle();
    print_figure("bytes", "bytes_per_connection",
                 (double)(server_bytes() - before) / (double)bench->n);
}

/* ---- main ---- */

static const struct bench_workload workloads[] = {
    {"echo_64", 300000, measure_echo_64},   {"echo_1000", 300000, measure_echo_1000},
    {"calls_64", 100000, measure_calls_64}, {"calls_1000", 100000, measure_calls_1000},
    {"idle", 10000, measure_idle},          {0},
};

int main(int argc, char **argv)
{
    const struct bench_workload *workload;

    if (argc < 5) {
        fprintf(stderr, "usage: bench-echo-load WORKLOAD N PEER SERVER [ARGUMENT...]\n");
        return 2;
    }
    workload = bench_parse(3, argv, workloads, &load.bench);
    if (!workload) return 2;
    load.bench.peer = argv[3];
    raise_descriptor_limit(workload->run == measure_idle ? load.bench.n : DESCRIPTORS_MIN);
    start_server(argv + 4);
    workload->run(&load.bench);
    fflush(stdout);
    leave(0);
}
