/* notify.c - datagrams to systemd, and its sockets. */
#include "server/notify.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { MESSAGE_BYTES = 1024, FIRST_FD = 3 };

static int connect_to(int fd, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t count = strlen(path);

    if (count >= sizeof address.sun_path) return -ENAMETOOLONG;
    memcpy(address.sun_path, path, count);
    if (path[0] == '@') address.sun_path[0] = '\0';
    if (connect(fd, (struct sockaddr *)&address,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + count)) < 0)
        return -errno;
    return 0;
}

/* For this process, or for whoever reads it. */
static bool is_for_us(const char *variable)
{
    const char *text = getenv(variable);

    return !text || strtoll(text, NULL, 10) == (long long)getpid();
}

static void read_watchdog(struct notify *notify)
{
    const char *text = getenv("WATCHDOG_USEC");
    long long us = text ? strtoll(text, NULL, 10) : 0;

    if (us > 0 && is_for_us("WATCHDOG_PID")) notify->watchdog_ms = us / 1000 > 0 ? us / 1000 : 1;
    (void)unsetenv("WATCHDOG_USEC");
    (void)unsetenv("WATCHDOG_PID");
}

int notify_open(struct notify *notify)
{
    const char *path = getenv("NOTIFY_SOCKET");
    int r = 0;

    *notify = (struct notify){.fd = -1};
    if (!path || !*path) return 0;
    notify->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (notify->fd < 0) return -errno;
    r = path[0] == '/' || path[0] == '@' ? connect_to(notify->fd, path) : -EINVAL;
    if (r < 0)
        notify_close(notify);
    else
        read_watchdog(notify);
    (void)unsetenv("NOTIFY_SOCKET");
    return r;
}

void notify_close(struct notify *notify)
{
    if (notify->fd >= 0) (void)close(notify->fd);
    notify->fd = -1;
}

void notify_say(const struct notify *notify, const char *format, ...)
{
    char message[MESSAGE_BYTES];
    va_list args;
    int count;

    if (notify->fd < 0) return;
    va_start(args, format);
    count = vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (count < 0) return;
    if ((size_t)count >= sizeof message) count = (int)sizeof message - 1;
    (void)send(notify->fd, message, (size_t)count, MSG_NOSIGNAL);
}

/* ---- Socket activation ---- */

static void take_names(struct activation *activation)
{
    const char *names = getenv("LISTEN_FDNAMES");

    for (size_t i = 0; i < activation->count && names && *names; i++) {
        size_t count = strcspn(names, ":");

        (void)snprintf(activation->names[i], ACTIVATION_NAME_BYTES, "%.*s", (int)count, names);
        names += count;
        if (*names == ':') names++;
    }
}

static int check_socket(int fd)
{
    int listens = 0;
    socklen_t bytes = sizeof listens;

    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) < 0) return -errno;
    if (!listens) return -EINVAL;
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) return -errno;
    return 0;
}

int activation_take(struct activation *ret_activation)
{
    const char *text = getenv("LISTEN_FDS");
    long long count = text ? strtoll(text, NULL, 10) : 0;
    int r = 0;

    memset(ret_activation, 0, sizeof *ret_activation);
    if (!getenv("LISTEN_PID") || !is_for_us("LISTEN_PID") || count <= 0) return 0;
    if (count > ACTIVATION_SOCKETS_MAX) return -E2BIG;
    for (int i = 0; i < (int)count && r == 0; i++) {
        ret_activation->fds[i] = FIRST_FD + i;
        r = check_socket(FIRST_FD + i);
    }
    ret_activation->count = (size_t)count;
    take_names(ret_activation);
    (void)unsetenv("LISTEN_FDS");
    (void)unsetenv("LISTEN_PID");
    (void)unsetenv("LISTEN_FDNAMES");
    return r;
}
