/* notify.h - what systemd is told (sd_notify), and the sockets that it hands over.
 *
 * The protocol is datagrams of lines "NAME=value" to the unix socket of NOTIFY_SOCKET; without that
 * variable all calls do nothing. The socket is connected once, before the sandbox closes.
 *
 * Threads: notify_say: any; the others: before the runtime.
 */
#ifndef WEIR_SERVER_NOTIFY_H
#define WEIR_SERVER_NOTIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct notify {
    int fd;              /* -1: nobody is to be told */
    int64_t watchdog_ms; /* tell it within so long that all is well; 0: not wanted */
};

/* Takes NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID out of the environment. 0, or an error: the
 * socket is there and cannot be used. */
int notify_open(struct notify *notify);
void notify_close(struct notify *notify);

/* "READY=1", "STATUS=...", "STOPPING=1", "WATCHDOG=1". A datagram that is not taken is dropped. */
__attribute__((format(printf, 2, 3))) void notify_say(const struct notify *notify,
                                                      const char *format, ...);

enum { ACTIVATION_SOCKETS_MAX = 8, ACTIVATION_NAME_BYTES = 64 };

struct activation {
    int fds[ACTIVATION_SOCKETS_MAX];
    char names[ACTIVATION_SOCKETS_MAX][ACTIVATION_NAME_BYTES];
    size_t count; /* 0: none were handed over */
};

/* LISTEN_FDS, if they are for this process. 0, or an error: more than there is room for, or one is
 * no listening socket. */
int activation_take(struct activation *ret_activation);

#endif
