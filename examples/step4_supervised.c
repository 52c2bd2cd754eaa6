/* step4_supervised.c - the tutorial's last program: the server of step 3, supervised.
 *
 *     step4_supervised [--port N] [--seconds N] [--bad-disk N]
 *
 * Two tasks stand side by side: one accepts clients, one writes the totals to a journal ten times
 * a second. The journal's disk fails in the first N attempts (--bad-disk); then the task ends with
 * an error, and its scope starts it again after a pause. Too many failures in too short a time are
 * the server's. Exit status: 0 a graceful end, 1 given up, 2 wrong usage.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <weir/weir.h>

#include "options.h"
#include "words.h"

enum { CONNECTIONS_MAX = 1000, LINE_MS = 10000, JOURNAL_MS = 100, DISK_MS = 2000 };

struct server {
    int port, seconds, bad_disk;
    char journal_path[64];
    weir_listener *listener;
    atomic_long lines, words; /* clients are served by all workers */
    int journal_starts;
};

struct client {
    struct server *server;
    weir_conn *conn;
};

static int answer_line(struct client *client, struct line *buffer)
{
    char line[LINE_BYTES_MAX] = "", reply[32] = "too long\n";
    int more = 0, r = 0;

    WEIR_DEADLINE(LINE_MS) {
        more = read_line(client->conn, buffer, line);
        if (more == 1) {
            int words = count_words(line);
            client->server->lines++;
            client->server->words += words;
            (void)snprintf(reply, sizeof reply, "%d\n", words);
        }
        if (more != 1 && more != -EMSGSIZE) return more;
        r = weir_conn_send_all(client->conn, reply, strlen(reply), NULL);
    }
    return r < 0 ? r : more;
}

static int serve_client(void *arg)
{
    struct client *client = arg;
    struct line buffer = {.bytes = 0};
    int r;

    do r = answer_line(client, &buffer);
    while (r > 0 && !weir_stopping());
    weir_conn_close(client->conn);
    return r == WEIR_ECANCELED ? r : 0;
}

static int accept_clients(void *arg) /* a task: may be started again; the listener stays */
{
    struct server *server = *(struct server **)arg;
    int result;

    WEIR_SCOPE(clients, &result, .name = "clients", .on_failure = WEIR_COLLECT,
               .max_tasks = CONNECTIONS_MAX, .overflow = WEIR_REJECT) {
        WEIR_NO_DEADLINE("a server waits for its next client as long as it runs") {
            int r = 0;
            while (r == 0) {
                struct client client = {.server = server};
                r = weir_accept(server->listener, &client.conn);
                if (r < 0) break;
                if (weir_spawn(clients, serve_client, &client, sizeof client) < 0)
                    weir_conn_close(client.conn); /* full: turned away at once */
            }
            if (r != WEIR_ESTOPPING) weir_scope_cancel(clients, r, "cannot accept");
        }
    }
    return result; /* -EMFILE, say: the supervisor waits, and starts us again */
}

static int write_journal(struct server *server, weir_file *file)
{
    char text[64];
    int bytes = snprintf(text, sizeof text, "%ld lines, %ld words\n", (long)server->lines,
                         (long)server->words);
    ssize_t n = weir_file_write(file, text, (size_t)bytes, 0);

    if (n < 0) return (int)n;
    return n == bytes ? weir_file_sync(file, true) : -ENOSPC;
}

static int keep_journal(void *arg) /* a task: the totals, on disk, ten times a second */
{
    struct server *server = *(struct server **)arg;
    weir_file *file = NULL;
    int r = 0;

    if (server->journal_starts++ < server->bad_disk) return -EIO;
    while (r == 0 && !weir_stopping()) {
        WEIR_DEADLINE(DISK_MS) { /* a disk that hangs does not hang us */
            if (!file) r = weir_file_open(server->journal_path, O_CREAT | O_WRONLY, 0600, &file);
            if (r == 0) r = write_journal(server, file);
        }
        if (r == 0) r = weir_sleep(JOURNAL_MS);
    }
    WEIR_SHIELD(DISK_MS) { /* also if we are cancelled: the last totals */
        int last = file && r == WEIR_ECANCELED ? write_journal(server, file) : 0;
        int closed = file ? weir_file_close(file) : 0;
        if (r == 0) r = last < 0 ? last : closed;
    }
    return r;
}

static void time_is_over(weir_timer *timer, void *arg)
{
    (void)timer;
    (void)arg;
    (void)weir_stop(1000); /* as TERM would */
}

static int start(weir_scope *scope, struct server *server)
{
    weir_timer_spec spec = {.name = "end", .on_fire = time_is_over};
    weir_timer *timer;
    int r = weir_spawn(scope, accept_clients, &server, sizeof server);

    if (r == 0) r = weir_spawn(scope, keep_journal, &server, sizeof server);
    if (r == 0 && server->seconds > 0) {
        r = weir_timer_open(scope, &spec, &timer);
        if (r == 0) weir_timer_start(timer, server->seconds * 1000L);
    }
    return r;
}

static int serve(void *arg)
{
    struct server *server = arg;
    char text[WEIR_ADDRESS_TEXT_MAX];
    weir_address bound;
    int result;

    (void)snprintf(text, sizeof text, "tcp:127.0.0.1:%d", server->port);
    result = weir_listen(&(weir_listen_spec){.address = text}, &server->listener);
    if (result < 0) return result;
    if (weir_listener_address(server->listener, &bound) == 0)
        (void)weir_address_format(&bound, text, sizeof text);
    printf("listening on %s; kill -USR1 %d shows the tasks\n", text, (int)getpid());
    (void)fflush(stdout);
    WEIR_SCOPE(scope, &result, .name = "server", .on_failure = WEIR_SUPERVISE,
               .restart = {.max_restarts = 5, .window_ms = 10000, .backoff_ms = 20}, .max_tasks = 2,
               .overflow = WEIR_REJECT) {
        int r = start(scope, server);
        if (r < 0) weir_scope_cancel(scope, r, "the server could not be started");
    }
    weir_listener_close(server->listener);
    fprintf(stderr, "%ld lines, %ld words; the journal was started %d times\n", (long)server->lines,
            (long)server->words, server->journal_starts);
    return result;
}

int main(int argc, char **argv)
{
    static struct server server;
    weir_config config = {.name = "words",
                          .signals = WEIR_SIGNAL_DRAIN | WEIR_SIGNAL_DUMP | WEIR_SIGNAL_OVERFLOW,
                          .drain_ms = 2000};
    const struct option_number options[] = {
        {"--port", &server.port, 7778, 0, 65535, "where to listen; 0: any port that is free"},
        {"--seconds", &server.seconds, 0, 0, 86400, "stop after that; 0: when told to"},
        {"--bad-disk", &server.bad_disk, 0, 0, 100, "how often the journal's disk fails"},
        {0},
    };
    int r = options_read(argc, argv, "step4_supervised [OPTION]...", options);

    if (r < argc) return fprintf(stderr, "step4_supervised: unexpected '%s'\n", argv[r]), 2;
    (void)snprintf(server.journal_path, sizeof server.journal_path, "words-%d.journal",
                   (int)getpid());
    r = weir_run(&config, serve, &server);
    (void)unlink(server.journal_path);
    if (r < 0) fprintf(stderr, "step4_supervised: %s\n", weir_strerror(r));
    return r < 0;
}
