/* server_jobs.c - the closed loop over jobs: enqueue, lease, acknowledge. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "load/server.h"

enum {
    WARM_UP_PART = 4, /* a quarter of the measured time */
    /* Latencies are counted in buckets: 64 to each power of two, 1.6 % wide. */
    BUCKET_BITS = 6,
    BUCKETS = 64 << BUCKET_BITS,
};

static struct jobs {
    struct connection connections[CONNECTIONS_MAX];
    size_t connection_count;
    int epoll_fd;
    enum step last; /* after which a connection begins anew */
    size_t done;    /* jobs that came to their last step */
    size_t under_way;
    bool recording;
    bool pausing; /* jobs under way are finished, and no other is begun */
    uint64_t enqueued, enqueued_sum, leased, leased_sum;
    uint64_t latency[BUCKETS];
} jobs;

/* ---- Payloads ---- */

static const char filler[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"
                             "abcdefghijklmnopqrstuvwxyz";

void payload_write(uint64_t number, char *ret_payload)
{
    static const char digits[] = "0123456789abcdef";

    for (int i = PAYLOAD_NUMBER_BYTES - 1; i >= 0; i--, number >>= 4)
        ret_payload[i] = digits[number & 15];
    memcpy(ret_payload + PAYLOAD_NUMBER_BYTES, filler, PAYLOAD_BYTES - PAYLOAD_NUMBER_BYTES);
}

void payload_take(const char *payload, size_t bytes)
{
    char number[PAYLOAD_NUMBER_BYTES + 1] = "", *end;
    uint64_t value;

    if (bytes != PAYLOAD_BYTES ||
        memcmp(payload + PAYLOAD_NUMBER_BYTES, filler, PAYLOAD_BYTES - PAYLOAD_NUMBER_BYTES) != 0)
        stop(1, "a job has other bytes than were sent: '%.*s'", (int)bytes, payload);
    memcpy(number, payload, PAYLOAD_NUMBER_BYTES);
    value = strtoull(number, &end, 16);
    if (*end != '\0') stop(1, "a job has other bytes than were sent: '%.*s'", (int)bytes, payload);
    jobs.leased++;
    jobs.leased_sum += value * value; /* two for one would leave a plain sum as it is */
}

/* ---- Latency ---- */

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

static double percentile_us(double part)
{
    uint64_t all = 0, seen = 0;

    for (size_t i = 0; i < BUCKETS; i++) all += jobs.latency[i];
    for (size_t i = 0; i < BUCKETS; i++) {
        seen += jobs.latency[i];
        if ((double)seen >= part * (double)all) return bucket_us(i);
    }
    return 0;
}

/* ---- The closed loop ---- */

static void connect_all(size_t count)
{
    jobs.connection_count = count;
    jobs.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (jobs.epoll_fd < 0) stop_errno("epoll_create1");
    for (size_t i = 0; i < count; i++) {
        struct connection *connection = &jobs.connections[i];
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = connection};
        int one = 1;

        connection->index = (uint32_t)i;
        connection->number = (uint64_t)(i + 1) << 40; /* no two connections have one in common */
        connection->fd = connect_once();
        if (connection->fd < 0) stop_errno("connect");
        if (setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) < 0)
            stop_errno("setsockopt");
        if (epoll_ctl(jobs.epoll_fd, EPOLL_CTL_ADD, connection->fd, &event) < 0)
            stop_errno("epoll_ctl");
    }
}

static void send_step(struct connection *connection, enum step step)
{
    char request[REQUEST_BYTES_MAX];
    size_t bytes;
    ssize_t n;

    connection->step = step;
    connection->got_bytes = 0;
    connection->awaited = load.protocol->answers[step];
    bytes = load.protocol->ask(connection, request);
    n = send(connection->fd, request, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) stop_errno("send");
    if ((size_t)n != bytes) stop(1, "send took %zd of %zu bytes", n, bytes);
}

static void begin_job(struct connection *connection, int64_t now_ns)
{
    connection->number++;
    connection->begun_ns = now_ns;
    jobs.under_way++;
    send_step(connection, STEP_ENQUEUE);
}

/* The answer to a step is complete. */
static void finish_step(struct connection *connection)
{
    int64_t now_ns;

    if (connection->step == STEP_ENQUEUE) {
        jobs.enqueued++;
        jobs.enqueued_sum += connection->number * connection->number;
    }
    if (connection->step != jobs.last) {
        send_step(connection, connection->step + 1);
        return;
    }
    now_ns = bench_now_ns();
    jobs.done++;
    jobs.under_way--;
    if (jobs.recording) jobs.latency[bucket_of((uint64_t)(now_ns - connection->begun_ns))]++;
    if (!jobs.pausing) begin_job(connection, now_ns);
}

static void handle(struct connection *connection)
{
    size_t space = sizeof connection->answer - connection->got_bytes;
    ssize_t n =
        recv(connection->fd, connection->answer + connection->got_bytes, space, MSG_DONTWAIT);
    size_t from = 0, bytes;

    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n < 0) stop_errno("recv");
    if (n == 0) stop(1, "the server has closed connection %u", connection->index);
    connection->got_bytes += (size_t)n;
    while (connection->awaited > 0) {
        bytes = load.protocol->whole(connection->answer + from, connection->got_bytes - from);
        if (bytes == 0) break;
        load.protocol->take(connection, connection->answer + from, bytes);
        connection->awaited--;
        from += bytes;
    }
    if (connection->awaited == 0) {
        if (from != connection->got_bytes) stop(1, "more came than was asked for");
        finish_step(connection);
        return;
    }
    connection->got_bytes -= from;
    memmove(connection->answer, connection->answer + from, connection->got_bytes);
    if (connection->got_bytes == sizeof connection->answer) stop(1, "an answer is too long");
}

static void turn(void)
{
    struct epoll_event events[CONNECTIONS_MAX];
    int n = epoll_wait(jobs.epoll_fd, events, CONNECTIONS_MAX, SILENCE_MS_MAX);

    if (n < 0 && errno == EINTR) return;
    if (n < 0) stop_errno("epoll_wait");
    if (n == 0) stop(1, "no answer from the server within %d ms", SILENCE_MS_MAX);
    for (int i = 0; i < n; i++) handle(events[i].data.ptr);
}

static void run_for_ms(size_t ms)
{
    int64_t until_ns = bench_now_ns() + (int64_t)ms * 1000000;

    while (bench_now_ns() < until_ns) turn();
}

static void finish_all(void)
{
    jobs.pausing = true;
    while (jobs.under_way > 0) turn();
}

/* The server has what was not acknowledged, and nothing else. */
static void check_counts(bool lifecycle)
{
    struct counts counts = load.protocol->count();
    uint64_t ready = lifecycle ? 0 : jobs.enqueued;

    if (counts.ready != ready || counts.leased != 0)
        stop(1, "%llu jobs are ready and %llu leased, not %llu and none",
             (unsigned long long)counts.ready, (unsigned long long)counts.leased,
             (unsigned long long)ready);
    if (lifecycle && (jobs.leased != jobs.enqueued || jobs.leased_sum != jobs.enqueued_sum))
        stop(1, "other jobs were leased than enqueued");
}

void measure_jobs(size_t connections, bool lifecycle)
{
    int64_t begin_ns, begin_cpu_ns, elapsed_ns, cpu_ns;
    size_t first, count;

    client_pin();
    jobs.last = lifecycle ? STEP_ACK : STEP_ENQUEUE;
    load.protocol->prepare();
    connect_all(connections);
    for (size_t i = 0; i < connections; i++) begin_job(&jobs.connections[i], bench_now_ns());
    run_for_ms(load.bench.n / WARM_UP_PART + 1);
    jobs.recording = true;
    first = jobs.done;
    begin_cpu_ns = server_cpu_ns();
    begin_ns = bench_now_ns();
    run_for_ms(load.bench.n);
    cpu_ns = server_cpu_ns() - begin_cpu_ns;
    elapsed_ns = bench_now_ns() - begin_ns;
    count = jobs.done - first;
    jobs.recording = false;
    finish_all();
    check_counts(lifecycle);
    print_figure("rate", lifecycle ? "lifecycles_per_s" : "jobs_per_s",
                 (double)count * 1e9 / (double)elapsed_ns);
    print_figure("cpu", lifecycle ? "us_per_lifecycle" : "us_per_job",
                 (double)cpu_ns / 1000 / (double)count);
    print_figure("p50", "us", percentile_us(0.5));
    print_figure("p99", "us", percentile_us(0.99));
}
