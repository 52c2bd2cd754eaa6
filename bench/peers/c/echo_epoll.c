/* echo_epoll.c - `bench echo`: the least that an echo server on epoll does.
 *
 * Edge-triggered; a read that stops short has taken all there was, so nobody asks a second time;
 * one buffer for all. No names, deadlines or cancellation: what weir's are measured against. */
#include <stdbool.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "bench_socket.h"

enum { EVENTS_MAX = 512, BUFFER_BYTES = 4096 };

static const struct bench bench = {.program = "echo-epoll"};

static void add(int epoll_fd, int fd)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.fd = fd};

    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
        bench_fail(&bench, "epoll_ctl", strerror(errno));
}

static void accept_all(int epoll_fd, int listener)
{
    int fd;

    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        bench_set_nodelay(&bench, fd);
        add(epoll_fd, fd);
    }
    if (errno != EAGAIN) bench_fail(&bench, "accept4", strerror(errno));
}

static void echo(int fd, bool peer_is_done)
{
    static char buffer[BUFFER_BYTES];
    ssize_t n;

    do {
        n = recv(fd, buffer, sizeof buffer, 0);
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) {
            close(fd);
            return;
        }
        /* With one small request in flight the socket's buffer always has room. */
        if (send(fd, buffer, (size_t)n, MSG_NOSIGNAL) != n)
            bench_fail(&bench, "send", "was not taken whole");
    } while (n == sizeof buffer || peer_is_done);
}

int main(void)
{
    static struct epoll_event events[EVENTS_MAX];
    int listener = bench_listen(&bench, SOCK_NONBLOCK);
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);

    if (epoll_fd < 0) bench_fail(&bench, "epoll_create1", strerror(errno));
    add(epoll_fd, listener);
    for (;;) {
        int n = epoll_wait(epoll_fd, events, EVENTS_MAX, -1);

        if (n < 0 && errno != EINTR) bench_fail(&bench, "epoll_wait", strerror(errno));
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd == listener) {
                accept_all(epoll_fd, listener);
            } else {
                echo(events[i].data.fd, (events[i].events & ~(uint32_t)EPOLLIN) != 0);
            }
        }
    }
}
