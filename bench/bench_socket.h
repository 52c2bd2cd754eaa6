/* bench_socket.h - what the echo servers written in C share: the listening socket.
 *
 * Every echo server binds to a free port of 127.0.0.1, prints "port PORT", and serves until it is
 * killed. It leaves with BENCH_NOT_HERE when something that it is about is missing here.
 */
#ifndef BENCH_SOCKET_H
#define BENCH_SOCKET_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "bench.h"

#define BENCH_BACKLOG 4096
#define BENCH_NOT_HERE 77 /* exit status */

static inline void bench_print_port(unsigned port)
{
    printf("port %u\n", port);
    fflush(stdout);
}

static inline int bench_listen(const struct bench *bench, int flags)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);

    if (fd < 0) bench_fail(bench, "socket", strerror(errno));
    if (bind(fd, (struct sockaddr *)&address, bytes) < 0 || listen(fd, BENCH_BACKLOG) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &bytes) < 0)
        bench_fail(bench, "listen", strerror(errno));
    bench_print_port(ntohs(address.sin_port));
    return fd;
}

static inline void bench_set_nodelay(const struct bench *bench, int fd)
{
    int one = 1;

    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) < 0)
        bench_fail(bench, "setsockopt", strerror(errno));
}

#endif
