/* clients.c - connections, lines in, lines out. */
#include "clients.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "lines.h"

enum { WRITE_BATCH = 16, SPARE_MS = 100 };

struct answer {
    size_t length;
    char line[LINE_BYTES_MAX];
};

typedef WEIR_TX(struct answer) answer_tx;
typedef WEIR_RX(struct answer) answer_rx;

struct client {
    struct clients *clients;
    weir_conn *conn;
    answer_tx answers;
    answer_rx written;
    struct line_reader reader;
    int64_t line_began_ns;
    atomic_bool gone; /* it takes no answers: what else it has asked is not looked at */
};

struct request {
    struct clients *clients;
    answer_tx answers; /* its own end */
    int64_t accepted_ns;
    struct search search;
};

/* ---- Lines out ---- */

static int write_answers(void *arg) /* a task: one for each client */
{
    struct client *client = *(struct client **)arg;
    struct answer answers[WRITE_BATCH];
    char lines[sizeof answers];
    int count = 0, r = 0;

    while (r == 0) {
        size_t length = 0;
        WEIR_NO_DEADLINE("requests have deadlines, and each ends with an answer")
            count = weir_recv_many(client->written, answers, WRITE_BATCH);
        if (count < 0) break;
        for (int i = 0; i < count; i++) {
            memcpy(lines + length, answers[i].line, answers[i].length);
            length += answers[i].length;
        }
        WEIR_DEADLINE(client->clients->line_ms)
            r = weir_conn_send_all(client->conn, lines, length, NULL);
        if (r < 0) client->clients->figures->unanswered += (unsigned long)count;
    }
    weir_rx_drop(client->written.end); /* who still has an answer is told that nobody takes it */
    if (r < 0) {
        atomic_store(&client->gone, true);
        (void)weir_conn_shutdown(client->conn, SHUT_RDWR); /* and the reader, that it ends */
    }
    return 0;
}

static int say(struct clients *clients, answer_tx answers, const struct search *search,
               enum search_code code)
{
    struct answer answer;
    int r = WEIR_ECANCELED;

    answer.length = search_answer(search, code, answer.line, sizeof answer.line);
    WEIR_DEADLINE(clients->line_ms) r = weir_send(answers, &answer);
    if (r < 0) clients->figures->unanswered++;
    if (r == 0) clients->figures->answered[code]++;
    return r;
}

/* ---- One request ---- */

static void note_time(struct clients_figures *figures, int64_t ns)
{
    long long slowest = figures->slowest_ns;

    while (slowest < ns)
        if (atomic_compare_exchange_weak(&figures->slowest_ns, &slowest, ns)) break;
}

static int answer_request(void *arg)
{
    struct request *request = arg;
    struct clients *clients = request->clients;
    enum search_code code = clients->search(clients->keep_arg, &request->search);
    int r = WEIR_ECANCELED;

    note_time(clients->figures, weir_now_ns() - request->accepted_ns);
    /* Also if the drain's time is up: who waits is told so. Longer than what it may take, so that a
     * client that takes no answers is seen as such. */
    WEIR_SHIELD(clients->line_ms + SPARE_MS)
        r = say(clients, request->answers, &request->search, code);
    weir_tx_drop(request->answers.end);
    return r == WEIR_ECANCELED ? r : 0; /* a client that has gone is no failure of ours */
}

/* From here on it is accepted: it is answered once. */
static int take_line(weir_scope *requests, struct client *client, const char *line)
{
    struct request request = {.clients = client->clients, .accepted_ns = weir_now_ns()};
    int r;

    client->clients->figures->accepted++;
    if (!search_read(line, &request.search))
        return say(client->clients, client->answers, &request.search, SEARCH_BAD_REQUEST);
    r = weir_tx_copy(client->answers.end, &request.answers.end);
    if (r == 0) {
        r = weir_spawn(requests, answer_request, &request, sizeof request);
        if (r < 0) weir_tx_drop(request.answers.end);
    }
    if (r == 0) return 0;
    r = r == WEIR_ECANCELED ? SEARCH_STOPPING : SEARCH_OVERLOAD;
    return say(client->clients, client->answers, &request.search, (enum search_code)r);
}

/* ---- Lines in ---- */

/* How long the client has for what it does now: a line that has begun must end, however slowly
 * its bytes drip in. */
static int64_t patience_ms(struct client *client)
{
    int64_t now_ns = weir_now_ns();

    if (!line_begun(&client->reader)) {
        client->line_began_ns = 0;
        return client->clients->idle_ms;
    }
    if (client->line_began_ns == 0) client->line_began_ns = now_ns;
    return client->clients->line_ms - (now_ns - client->line_began_ns) / 1000000;
}

/* 0: more has come. WEIR_ESTOPPING: the service is stopping. */
static int read_more(struct client *client)
{
    int64_t ms = patience_ms(client);
    weir_case cases[] = {WEIR_CASE_EVENT(client->clients->closing),
                         WEIR_CASE_READABLE(client->conn)};
    int r = WEIR_ECANCELED;

    if (ms <= 0) return WEIR_ETIMEDOUT;
    WEIR_DEADLINE(ms) {
        r = weir_select(cases, 2, WEIR_IN_ORDER);
        if (r == 0) return WEIR_ESTOPPING;
        if (r == 1) r = cases[1].result < 0 ? cases[1].result : line_more(&client->reader);
    }
    return r;
}

static int take_requests(weir_scope *requests, struct client *client)
{
    char *line;
    int r = 0;

    while (r == 0) {
        while (r == 0 && (line = line_take(&client->reader))) {
            client->line_began_ns = 0;
            r = atomic_load(&client->gone) ? WEIR_ECLOSED : take_line(requests, client, line);
        }
        if (r == 0) r = read_more(client);
    }
    return r;
}

/* What is wrong with what it sends, if that is why it is read no further. */
static void say_why(struct client *client, int why)
{
    struct search search = {.id = "-"};

    if (why == -EMSGSIZE) (void)say(client->clients, client->answers, &search, SEARCH_TOO_LONG);
    if (why == WEIR_ETIMEDOUT && line_begun(&client->reader))
        (void)say(client->clients, client->answers, &search, SEARCH_TIMEOUT);
}

/* ---- One client ---- */

/* A close with bytes left unread would be a reset, and answers that are still on their way would be
 * lost. So the client is told the end first, and what it goes on to send is thrown away. */
static void say_goodbye(struct client *client)
{
    char lines[LINE_BYTES_MAX];
    ssize_t n = 1;

    if (weir_conn_shutdown(client->conn, SHUT_WR) < 0) return;
    WEIR_SHIELD(client->clients->line_ms)
        while (n > 0) n = weir_conn_read(client->conn, lines, sizeof lines);
}

static int converse(weir_scope *scope, struct client *client)
{
    static const weir_chan_spec spec = {.name = "answers",
                                        .capacity = ANSWERS_OF_CLIENT_MAX,
                                        .overflow = WEIR_WAIT,
                                        .on_close = WEIR_DRAIN};
    int result, why = 0;
    int r = weir_chan_open(scope, &spec, &client->answers, &client->written);

    if (r == 0) r = weir_spawn(scope, write_answers, &client, sizeof client);
    if (r < 0) return r;
    WEIR_SCOPE(requests, &result, .name = "requests", .on_failure = WEIR_COLLECT,
               .max_tasks = client->clients->requests_max, .overflow = WEIR_WAIT)
        why = take_requests(requests, client);
    say_why(client, why);
    weir_tx_drop(client->answers.end); /* the last one: the writer ends when all is written */
    return result < 0 ? result : why == WEIR_ECANCELED ? why : 0;
}

static int serve_client(void *arg)
{
    struct client *client = arg;
    int result;

    line_reader_init(&client->reader, client->conn);
    WEIR_SCOPE(scope, &result, .name = "client", .on_failure = WEIR_COLLECT, .max_tasks = 1,
               .overflow = WEIR_REJECT)
        result = converse(scope, client);
    say_goodbye(client);
    weir_conn_close(client->conn);
    client->clients->figures->open--;
    return result == WEIR_ECANCELED ? result : 0;
}

/* ---- All of them ---- */

/* Answers that were written are the system's, and so are their bounds. Without one in time the
 * system would go on offering them, also after the close, for as long as the client's machine is
 * there and takes none: minutes, in which that one may not even hear that it was cut off. */
static void bound_answers(const struct clients *clients, int fd)
{
    int bytes = CLIENT_BUFFER_BYTES;

    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &clients->line_ms, sizeof clients->line_ms);
}

static int admit(weir_scope *scope, struct clients *clients, weir_conn *conn)
{
    struct client client = {.clients = clients, .conn = conn};
    int r;

    bound_answers(clients, weir_conn_fd(conn));
    clients->figures->open++;
    r = weir_spawn(scope, serve_client, &client, sizeof client);
    if (r < 0) {
        clients->figures->open--;
        clients->figures->refused++;
        weir_conn_close(conn);
    }
    return r == WEIR_ECANCELED ? r : 0;
}

static int accept_clients(weir_scope *scope, struct clients *clients)
{
    weir_conn *conn = NULL;
    int r = 0;

    while (r != WEIR_ESTOPPING && r != WEIR_ECANCELED) {
        WEIR_NO_DEADLINE("a server waits for its next client as long as it runs")
            r = weir_accept(clients->listener, &conn);
        if (r == 0) {
            r = admit(scope, clients, conn);
        } else if (r != WEIR_ESTOPPING && r != WEIR_ECANCELED) {
            r = weir_sleep(10); /* no descriptor is free, say: trying at once would spin */
        }
    }
    weir_event_set(clients->closing);
    return r == WEIR_ESTOPPING ? 0 : r;
}

int clients_serve(struct clients *clients)
{
    int result;

    WEIR_SCOPE(scope, &result, .name = "clients", .on_failure = WEIR_COLLECT,
               .max_tasks = CLIENTS_MAX, .overflow = WEIR_REJECT) {
        result = weir_event_open(scope, "closing", &clients->closing);
        if (result == 0) result = accept_clients(scope, clients);
    }
    return result;
}
