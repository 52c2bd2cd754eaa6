/* naive_threads.c - a mistake: a thread for each request, which blocks.
 *
 * What a thread costs is only seen when there are many: memory for their stacks, and a processor
 * that is shared by all of them, so that each gets slower as more come. There is no queue to look
 * at, and no bound but the one that the system has.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "lines.h"
#include "naive.h"

enum { CALL_MS = 2000, STOP_MS = 2000 };

/* One client; its requests' threads and its reader hold it. */
struct thread_client {
    struct naive_threads *threads;
    int fd;
    atomic_int holders;
    pthread_mutex_t writing;
};

struct thread_request {
    struct thread_client *client;
    struct search search;
};

static void client_unref(struct thread_client *client)
{
    if (--client->holders > 0) return;
    (void)close(client->fd);
    (void)pthread_mutex_destroy(&client->writing);
    free(client);
}

/* A thread that nobody joins: as such code does. */
static int start_thread(struct naive_threads *threads, void *(*fn)(void *), void *arg)
{
    pthread_t thread;
    int r;

    threads->threads++;
    r = pthread_create(&thread, NULL, fn, arg);
    if (r == 0) (void)pthread_detach(thread);
    if (r != 0) threads->threads--;
    return -r;
}

/* ---- The upstream, blocking ---- */

static int upstream_connect(const char *text)
{
    struct timeval timeout = {.tv_sec = CALL_MS / 1000};
    weir_address address;
    int fd = -1;

    if (weir_address_parse(text, &address) < 0) return -1;
    fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    if (connect(fd, (struct sockaddr *)&address.storage, address.bytes) == 0) return fd;
    (void)close(fd);
    return -1;
}

static bool upstream_ask(int fd, const char *question, char *answer)
{
    size_t used = 0;

    if (send(fd, question, strlen(question), MSG_NOSIGNAL) < 0) return false;
    while (used + 1 < LINE_BYTES_MAX) {
        ssize_t n = recv(fd, answer + used, LINE_BYTES_MAX - 1 - used, 0);
        char *end;
        if (n <= 0) return false;
        used += (size_t)n;
        answer[used] = '\0';
        end = strchr(answer, '\n');
        if (end) return *end = '\0', true;
    }
    return false;
}

static enum search_code work(struct naive_threads *threads, struct search *search)
{
    char line[LINE_BYTES_MAX];
    enum search_code code = SEARCH_UPSTREAM;
    int fd;

    if (search_normalize(search) < 0) return SEARCH_BAD_REQUEST;
    ++*threads->asked;
    fd = upstream_connect(threads->upstream_address);
    if (fd < 0) return SEARCH_UPSTREAM;
    (void)snprintf(line, sizeof line, "FETCH %s\n", search->words);
    if (upstream_ask(fd, line, line) && search_read_documents(line, search)) {
        search_rank(search, threads->rank_us, threads->time_us, NULL);
        search_ask_titles(search, line, sizeof line);
        code = SEARCH_OK;
        if (!upstream_ask(fd, line, line) || !search_read_titles(line, search)) {
            search_title_all(search);
            code = SEARCH_PARTIAL;
        }
    }
    (void)close(fd);
    return code;
}

/* ---- Requests and clients ---- */

static void say(struct thread_client *client, const struct search *search, enum search_code code)
{
    char line[LINE_BYTES_MAX];
    size_t length = search_answer(search, code, line, sizeof line);

    (void)pthread_mutex_lock(&client->writing);
    if (send(client->fd, line, length, MSG_NOSIGNAL) == (ssize_t)length)
        client->threads->figures->answered[code]++;
    else
        client->threads->figures->unanswered++;
    (void)pthread_mutex_unlock(&client->writing);
}

static void *request_thread(void *arg)
{
    struct thread_request *request = arg;
    struct naive_threads *threads = request->client->threads;

    say(request->client, &request->search, work(threads, &request->search));
    client_unref(request->client);
    free(request);
    threads->threads--;
    return NULL;
}

static void take_line(struct thread_client *client, const char *line)
{
    struct thread_request *request = malloc(sizeof *request);

    client->threads->figures->accepted++;
    if (!request) return;
    request->client = client;
    if (!search_read(line, &request->search)) {
        say(client, &request->search, SEARCH_BAD_REQUEST);
        free(request);
        return;
    }
    client->holders++;
    if (start_thread(client->threads, request_thread, request) == 0) return;
    say(client, &request->search, SEARCH_INTERNAL); /* the system has no more threads */
    client->holders--;                              /* not the last: we read it */
    free(request);
}

static void *client_thread(void *arg)
{
    struct thread_client *client = arg;
    struct naive_threads *threads = client->threads;
    char *line = NULL;
    size_t bytes = 0;
    int fd = dup(client->fd);
    FILE *lines = fd < 0 ? NULL : fdopen(fd, "r");

    while (lines && getline(&line, &bytes, lines) > 0) {
        line[strcspn(line, "\r\n")] = '\0';
        take_line(client, line);
    }
    free(line);
    if (lines) (void)fclose(lines);
    threads->figures->open--;
    client_unref(client);
    threads->threads--;
    return NULL;
}

static void admit(struct naive_threads *threads, int fd)
{
    struct thread_client *client = calloc(1, sizeof *client);
    int one = 1;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (!client) {
        (void)close(fd);
        return;
    }
    client->threads = threads;
    client->fd = fd;
    client->holders = 1;
    (void)pthread_mutex_init(&client->writing, NULL);
    threads->figures->open++;
    if (start_thread(threads, client_thread, client) == 0) return;
    threads->figures->open--;
    client_unref(client);
}

static void *accept_thread(void *arg)
{
    struct naive_threads *threads = arg;
    struct pollfd ready = {.fd = threads->listen_fd, .events = POLLIN};

    while (!threads->stop) {
        int fd;
        if (poll(&ready, 1, 100) <= 0) continue;
        fd = accept4(threads->listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0) admit(threads, fd);
    }
    return NULL;
}

static int listen_on(int port, int *ret_fd, int *ret_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t bytes = sizeof address;
    int one = 1, r;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0) return -errno;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        bind(fd, (struct sockaddr *)&address, bytes) != 0 || listen(fd, 1024) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &bytes) != 0) {
        r = -errno;
        (void)close(fd);
        return r;
    }
    *ret_fd = fd;
    *ret_port = ntohs(address.sin_port);
    return 0;
}

int naive_threads_start(struct naive_threads *threads, int port, int *ret_port)
{
    int r = listen_on(port, &threads->listen_fd, ret_port);

    if (r < 0) return r;
    r = -pthread_create(&threads->acceptor, NULL, accept_thread, threads);
    if (r < 0) (void)close(threads->listen_fd);
    return r;
}

void naive_threads_stop(struct naive_threads *threads)
{
    struct timespec pause = {.tv_nsec = 10000000};

    threads->stop = true;
    (void)pthread_join(threads->acceptor, NULL);
    for (int ms = 0; threads->threads > 0 && ms < STOP_MS; ms += 10) (void)nanosleep(&pause, NULL);
    (void)close(threads->listen_fd);
}
