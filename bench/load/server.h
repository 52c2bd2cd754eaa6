/* server.h - the load generator of `bench server`: what its files share.
 *
 * Invariants: one server, one client thread, and one request in flight on each connection. Every
 * answer is looked at: what is not as it must be ends the program, so that a figure that was
 * printed was measured on work that was done. Every wait and the whole run have a bound.
 * Threads: none of this is shared; one thread measures.
 */
#ifndef BENCH_LOAD_SERVER_H
#define BENCH_LOAD_SERVER_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "bench.h"

enum {
    PAYLOAD_BYTES = 100,
    PAYLOAD_NUMBER_BYTES = 16, /* its first bytes: the job's number, in hexadecimal */
    CONNECTIONS_MAX = 64,
    REQUEST_BYTES_MAX = 1024,
    ANSWER_BYTES_MAX = 8192,
    SILENCE_MS_MAX = 10000, /* of the server, before the run is given up */
    RUN_SECONDS_MAX = 100,
    STATUS_NOT_HERE = 77,
};

/* What a connection asks for, in this order; an enqueue workload has the first alone. */
enum step { STEP_ENQUEUE, STEP_LEASE, STEP_ACK, STEPS };

struct connection {
    int fd;
    uint32_t index;
    enum step step;
    unsigned awaited; /* answers to the request under way */
    uint64_t number;  /* of the job that it has enqueued last */
    int64_t begun_ns; /* when it has sent the first step */
    size_t got_bytes;
    /* Of the job that it has leased, as the server wrote it. */
    char id[64];
    char token[128];
    char answer[ANSWER_BYTES_MAX];
};

/* Jobs that the server has at the end. */
struct counts {
    uint64_t ready;
    uint64_t leased;
};

/* One server's language. Requests are written whole, and answers are handed over whole. */
struct protocol {
    const char *name;
    unsigned answers[STEPS]; /* to the request of a step: an acknowledgement may be two commands */
    /* True: the server is ready to serve; it accepts connections already. */
    bool (*ready)(void);
    /* Once, before the load. */
    void (*prepare)(void);
    size_t (*ask)(struct connection *connection, char *ret_request);
    /* The bytes of the first whole answer; 0: some of it has not come yet. */
    size_t (*whole)(const char *data, size_t bytes);
    /* Looks at the answer to the step, and keeps what the next one needs. */
    void (*take)(struct connection *connection, const char *data, size_t bytes);
    struct counts (*count)(void);
};

extern const struct protocol protocol_redis, protocol_beanstalkd, protocol_http;

struct load {
    struct bench bench;
    const struct protocol *protocol;
    pid_t server;
    uint16_t port;
    bool apart; /* server and client each have a core of their own */
    char data[PATH_MAX];
};
extern struct load load;

/* ---- server.c ---- */

/* Leaves no server behind. */
_Noreturn void leave(int status);
__attribute__((format(printf, 2, 3))) _Noreturn void stop(int status, const char *format, ...);
_Noreturn void stop_errno(const char *call);
/* A figure of the workload. */
void print_figure(const char *metric, const char *unit, double figure);
/* Writes the payload of a job; `ret_payload` has PAYLOAD_BYTES, and no end. */
void payload_write(uint64_t number, char *ret_payload);
/* Counts a job that was leased; ends the run if its payload is not one that was sent. */
void payload_take(const char *payload, size_t bytes);

/* ---- server_child.c ---- */

/* Starts it with {port}, {data} and {config} of its arguments filled in, and waits until it
 * accepts connections. */
void server_start(char **command);
void server_kill(void);
int64_t server_cpu_ns(void);
/* Puts this process on the first core, if they are apart. */
void client_pin(void);
void nap(void);         /* a few milliseconds, between two looks at something */
int connect_once(void); /* a blocking socket, or -1 */
/* One request on its own connection; the answer ends with a NUL byte. False: there is none. */
bool exchange(const char *request, size_t bytes, char *ret_answer, size_t answer_bytes_max);

/* ---- server_jobs.c, server_get.c ---- */

void measure_jobs(size_t connections, bool lifecycle);
void measure_get(size_t connections);

#endif
