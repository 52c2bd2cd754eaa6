/* admin.c - figures over HTTP, for whoever scrapes or looks: GET /metrics, /map, /health.
 *
 * HTTP/1.0: one request for each connection, the end of the stream ends the answer.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lines.h"
#include "service.h"

enum { VISITORS_MAX = 16, REQUEST_MS = 1000, ANSWER_MS = 3000, HEADERS_MAX = 64 };

struct visit {
    struct service *service;
    weir_conn *conn;
};

static int say_head(weir_conn *conn, const char *status, const char *type)
{
    return line_say(conn, "HTTP/1.0 %s\r\nContent-Type: %s\r\nConnection: close\r\n\r\n", status,
                    type);
}

/* ---- /metrics ---- */

static int send_text(const char *text, size_t bytes, void *keep_arg)
{
    return weir_conn_send_all(keep_arg, text, bytes, NULL);
}

static size_t print_answers(struct service *service, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes,
                                   "# HELP search_answers_total Requests that were answered.\n"
                                   "# TYPE search_answers_total counter\n");

    for (int code = 0; code < SEARCH_CODES; code++)
        used +=
            (size_t)snprintf(text + used, bytes - used, "search_answers_total{code=\"%s\"} %lu\n",
                             search_code_name((enum search_code)code),
                             (unsigned long)service->figures.answered[code]);
    return used;
}

/* What the library cannot know of this service. */
static void print_own(struct service *service, char *text, size_t bytes)
{
    static const char format[] =
        "# HELP search_accepted_total Requests that were read.\n"
        "# TYPE search_accepted_total counter\n"
        "search_accepted_total %lu\n"
        "# HELP search_unanswered_total Answers that their clients did not take.\n"
        "# TYPE search_unanswered_total counter\n"
        "search_unanswered_total %lu\n"
        "# HELP search_connections Clients that are connected.\n"
        "# TYPE search_connections gauge\n"
        "search_connections %lu\n"
        "# HELP search_queued Requests that wait to be worked on.\n"
        "# TYPE search_queued gauge\n"
        "search_queued %zu\n"
        "# HELP search_slowest_seconds The longest time that a request has taken.\n"
        "# TYPE search_slowest_seconds gauge\n"
        "search_slowest_seconds %.6f\n"
        "# HELP search_upstream_requests_total Questions to the upstream, repeated ones included.\n"
        "# TYPE search_upstream_requests_total counter\n"
        "search_upstream_requests_total{kind=\"index\"} %lu\n"
        "search_upstream_requests_total{kind=\"titles\"} %lu\n";
    size_t used = print_answers(service, text, bytes);

    (void)snprintf(text + used, bytes - used, format, (unsigned long)service->figures.accepted,
                   (unsigned long)service->figures.unanswered, (unsigned long)service->figures.open,
                   service_queued(service), (double)service->figures.slowest_ns / 1e9,
                   (unsigned long)service->index.asked, (unsigned long)service->titles.asked);
}

static int send_metrics(struct service *service, weir_conn *conn)
{
    char own[4096];
    int r = say_head(conn, "200 OK", "text/plain; version=0.0.4");

    if (r < 0) return r;
    print_own(service, own, sizeof own);
    r = weir_conn_send_all(conn, own, strlen(own), NULL);
    return r < 0 ? r : weir_metrics_read(WEIR_METRICS_PROMETHEUS, send_text, conn);
}

/* ---- /map ---- */

/* By way of memory: a reader that is slow must not hold up the worker that makes the map. */
static int send_map(weir_conn *conn)
{
    char part[4096];
    ssize_t n = 0;
    off_t at = 0;
    int fd = memfd_create("map", MFD_CLOEXEC);
    int r = fd < 0 ? -errno : weir_map(fd, WEIR_MAP_TEXT);

    if (r == 0) r = say_head(conn, "200 OK", "text/plain; charset=utf-8");
    while (r == 0 && (n = pread(fd, part, sizeof part, at)) > 0) {
        r = weir_conn_send_all(conn, part, (size_t)n, NULL);
        at += n;
    }
    if (fd >= 0) (void)close(fd);
    return r;
}

/* ---- Requests ---- */

static int answer(struct service *service, weir_conn *conn, const char *path)
{
    int r;

    if (strcmp(path, "/metrics") == 0) return send_metrics(service, conn);
    if (strcmp(path, "/map") == 0) return send_map(conn);
    if (strcmp(path, "/health") == 0) {
        r = say_head(conn, "200 OK", "text/plain");
        return r < 0 ? r : line_say(conn, "serving\n");
    }
    r = say_head(conn, "404 Not Found", "text/plain");
    return r < 0 ? r : line_say(conn, "there are /metrics, /map and /health\n");
}

/* The path of the request line; headers are read and mean nothing here. */
static int read_request(weir_conn *conn, char *path, size_t bytes)
{
    struct line_reader reader;
    char *line;
    int r;

    line_reader_init(&reader, conn);
    r = line_next(&reader, &line);
    if (r < 0) return r;
    if (strncmp(line, "GET ", 4) != 0) return -EBADMSG;
    (void)snprintf(path, bytes, "%.*s", (int)strcspn(line + 4, " ?"), line + 4);
    for (int i = 0; i < HEADERS_MAX; i++) {
        r = line_next(&reader, &line);
        if (r < 0 || *line == '\0') return r;
    }
    return -EMSGSIZE;
}

static int serve_visit(void *arg)
{
    struct visit *visit = arg;
    char path[64];
    int r = WEIR_ECANCELED;

    WEIR_DEADLINE(REQUEST_MS) r = read_request(visit->conn, path, sizeof path);
    WEIR_DEADLINE(ANSWER_MS) {
        if (r == 0) r = answer(visit->service, visit->conn, path);
        if (r == -EBADMSG || r == -EMSGSIZE)
            r = say_head(visit->conn, "400 Bad Request", "text/plain");
    }
    weir_conn_close(visit->conn);
    return r == WEIR_ECANCELED ? r : 0;
}

int admin_serve(void *arg)
{
    struct visit visit = {.service = *(struct service **)arg};
    int result;

    WEIR_SCOPE(scope, &result, .name = "admin", .on_failure = WEIR_COLLECT,
               .max_tasks = VISITORS_MAX, .overflow = WEIR_REJECT) {
        int r = 0;
        while (r != WEIR_ESTOPPING && r != WEIR_ECANCELED) {
            WEIR_NO_DEADLINE("somebody looks when somebody looks")
                r = weir_accept(visit.service->admin_listener, &visit.conn);
            if (r == 0) {
                r = weir_spawn(scope, serve_visit, &visit, sizeof visit);
                if (r < 0) weir_conn_close(visit.conn);
            } else if (r != WEIR_ESTOPPING && r != WEIR_ECANCELED) {
                r = weir_sleep(10);
            }
        }
    }
    return result;
}
