/* embed.c - weir inside a program that has a poll(2) loop of its own.
 *
 *     embed [--ticks N]
 *
 * The host's loop waits for its timer, for lines on standard input, and for weir's descriptor; the
 * last one is readable whenever weir has something to do. The host gives work to weir by spawning
 * into the root scope, and weir gives back by plain variables: tasks run on the host's own thread,
 * inside weir_turn, so nothing runs at the same time. Exit status: 0 well, 1 failed, 2 wrong usage.
 */
#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <weir/weir.h>

#include "options.h"

enum { TICK_MS = 50, LINE_BYTES = 256 };

struct host {
    int ticks_max;
    int ticks; /* of the host's own timer */
    int beats; /* of a task */
    int lines; /* given to weir and answered */
};

static int heartbeat(void *arg) /* a task like any other: it does not know that it is a guest */
{
    struct host *host = *(struct host **)arg;
    for (;;) {
        int r = weir_sleep(20);
        if (r < 0) return r;
        host->beats++;
    }
}

struct shout {
    struct host *host;
    char line[LINE_BYTES];
};

static int shout(void *arg)
{
    struct shout *shout = arg; /* its own copy: the host's buffer is long overwritten */
    int r = weir_sleep(10);
    if (r < 0) return r;
    for (char *at = shout->line; *at; at++) *at = (char)toupper((unsigned char)*at);
    printf("weir: %s", shout->line);
    shout->host->lines++;
    return 0;
}

static int on_tick(struct host *host, int timer_fd)
{
    uint64_t expired;
    if (read(timer_fd, &expired, sizeof expired) < 0) return errno == EAGAIN ? 0 : -errno;
    host->ticks += (int)expired;
    printf("host: tick %d; weir has beaten %d times\n", host->ticks, host->beats);
    return 0;
}

/* Returns 0 at the end of the input. */
static int on_input(struct host *host, weir_runtime *runtime)
{
    struct shout message = {.host = host};
    ssize_t n = read(STDIN_FILENO, message.line, sizeof message.line - 1);
    int r;
    if (n <= 0) return 0;
    r = weir_spawn(weir_runtime_scope(runtime), shout, &message, sizeof message);
    return r < 0 ? r : 1;
}

static int loop(struct host *host, weir_runtime *runtime, int timer_fd)
{
    struct pollfd wait_for[] = {
        {.fd = weir_runtime_fd(runtime), .events = POLLIN},
        {.fd = timer_fd, .events = POLLIN},
        {.fd = STDIN_FILENO, .events = POLLIN},
    };
    int r = weir_spawn(weir_runtime_scope(runtime), heartbeat, &host, sizeof host);

    if (r == 0) r = weir_turn(runtime); /* before the first poll: it arms the descriptor */
    while (r >= 0 && host->ticks < host->ticks_max) {
        if (poll(wait_for, 3, -1) < 0 && errno != EINTR) return -errno;
        if (wait_for[0].revents) r = weir_turn(runtime);
        if (r >= 0 && wait_for[1].revents) r = on_tick(host, timer_fd);
        if (r >= 0 && wait_for[2].revents) {
            r = on_input(host, runtime);
            if (r == 0) wait_for[2].fd = -1;
            if (r > 0) r = weir_turn(runtime);
        }
    }
    return r;
}

int main(int argc, char **argv)
{
    struct host host = {0};
    const struct option_number options[] = {
        {"--ticks", &host.ticks_max, 5, 1, 100000, "ticks of the host's timer until it ends"},
        {0},
    };
    int first = options_read(argc, argv, "embed [--ticks N] <LINES", options);
    struct itimerspec every = {.it_interval = {.tv_nsec = TICK_MS * 1000000},
                               .it_value = {.tv_nsec = TICK_MS * 1000000}};
    weir_config config = {.name = "guest"};
    weir_runtime *runtime;
    int timer_fd, closed, r;

    if (first < argc) return fprintf(stderr, "embed: unexpected argument '%s'\n", argv[first]), 2;
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    r = weir_runtime_open(&config, &runtime);
    if (r < 0) return fprintf(stderr, "embed: %s %s\n", weir_strerror(r), weir_why()), 1;
    timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    r = timer_fd >= 0 && timerfd_settime(timer_fd, 0, &every, NULL) == 0 ? 0 : -errno;
    if (r == 0) r = loop(&host, runtime, timer_fd);
    closed = weir_runtime_close(runtime); /* cancels the heartbeat and waits for it */
    if (timer_fd >= 0) (void)close(timer_fd);
    if (r >= 0) r = closed;
    printf("host: %d ticks, %d beats, %d lines\n", host.ticks, host.beats, host.lines);
    if (r < 0) fprintf(stderr, "embed: %s\n", weir_strerror(r));
    return r < 0;
}
