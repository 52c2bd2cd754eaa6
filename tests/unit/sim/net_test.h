/* net_test.h - what the tests of the simulated network share.
 *
 * A run happens in a process of its own: what the test wants to know afterwards, runs count in
 * memory that both have (`struct seen`).
 */
#ifndef WEIR_TESTS_SIM_NET_TEST_H
#define WEIR_TESTS_SIM_NET_TEST_H

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <weir/sim.h>
#include <weir/weir.h>

#include "harness/test.h"

enum { NET_PORT = 7000 };
#define NET_SERVER "tcp:10.0.0.2:7000"

/* Counted over all runs. */
struct seen {
    unsigned long runs, whole, broken, refused, timed_out, lost, doubled, overtaken, dropped;
    unsigned long most;
    uint16_t port;
};

static inline struct seen *seen_open(void)
{
    struct seen *seen =
        mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(seen != MAP_FAILED);
    return seen;
}

static inline void seen_close(struct seen *seen)
{
    CHECK_OK(munmap(seen, sizeof *seen));
}

/* In a task: the run fails unless it is so. */
#define HOLDS(expression)                                                                   \
    do {                                                                                    \
        if (!(expression)) weir_sim_fail("%s:%d: not %s", __FILE__, __LINE__, #expression); \
    } while (0)
#define IS(actual, expected)                                                                   \
    do {                                                                                       \
        long long actual_ = (long long)(actual), expected_ = (long long)(expected);            \
        if (actual_ != expected_) {                                                            \
            weir_sim_fail("%s:%d: %s is %lld, not %lld", __FILE__, __LINE__, #actual, actual_, \
                          expected_);                                                          \
        }                                                                                      \
    } while (0)

static inline const weir_config *net_config(void)
{
    static weir_config config;

    weir_config_init(&config);
    config.workers = test_workers();
    return &config;
}

/* Runs of `fn(seen)` without a failure. */
#define NET_RUNS(name_, fn_, seen_, runs_, ...)                                             \
    do {                                                                                    \
        test_skip_without_sim();                                                            \
        CHECK_OK(weir_sim_run(                                                              \
            &(weir_sim_spec){                                                               \
                .name = (name_), .runs_max = (runs_), .config = net_config(), __VA_ARGS__}, \
            (fn_), (seen_)));                                                               \
    } while (0)

/* A second host, with the address of NET_SERVER. */
static inline weir_sim_host *net_server(weir_task_fn fn, struct seen *seen)
{
    weir_sim_host *host;

    IS(weir_sim_host_start(&(weir_sim_host_spec){.name = "server",
                                                 .fn = fn,
                                                 .arg = &seen,
                                                 .arg_bytes = sizeof seen,
                                                 .config = net_config()},
                           &host),
       0);
    return host;
}

/* Until somebody listens there. */
static inline int net_connect_soon(const char *address, weir_conn **ret_conn)
{
    int r;

    do {
        r = weir_connect(address, ret_conn);
        if (r == -ECONNREFUSED) IS(weir_sleep(1), 0);
    } while (r == -ECONNREFUSED);
    return r;
}

/* What byte `at` of a stream is. */
static inline char net_byte(size_t at)
{
    return (char)(at * 7 + (at >> 8) * 3 + (at >> 16));
}

static inline void net_fill(char *data, size_t at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) data[i] = net_byte(at + i);
}

static inline void net_check(const char *data, size_t at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] != net_byte(at + i)) weir_sim_fail("byte %zu is another one", at + i);
    }
}

#endif
