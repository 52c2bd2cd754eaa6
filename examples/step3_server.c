/* step3_server.c - the tutorial's third program: a server that counts the words of each line.
 *
 *     step3_server [ADDRESS]        (tcp:127.0.0.1:7778)
 *
 * A task for each connection, a deadline for each line, a bound on both, and a graceful end on
 * TERM and INT.
 */
#include <errno.h>
#include <stdio.h>
#include <weir/weir.h>

#include "words.h"

enum { CONNECTIONS_MAX = 1000, LINE_MS = 10000 };

/* 1: there may be more. 0: the client has ended. Else it has failed, or time is over. */
static int answer_line(weir_conn *conn, struct line *buffer)
{
    char line[LINE_BYTES_MAX] = "", reply[32] = "too long\n";
    int more = 0, r = 0;

    WEIR_DEADLINE(LINE_MS) { /* to send a line, and to take the answer */
        more = read_line(conn, buffer, line);
        if (more == 1) (void)snprintf(reply, sizeof reply, "%d\n", count_words(line));
        if (more != 1 && more != -EMSGSIZE) return more; /* a block may be left like this */
        r = weir_conn_send_all(conn, reply, strlen(reply), NULL);
    }
    return r < 0 ? r : more;
}

static int serve_client(void *arg) /* a task: one connection, from its first line to its last */
{
    weir_conn *conn = *(weir_conn **)arg;
    struct line buffer = {.bytes = 0};
    int r;

    do r = answer_line(conn, &buffer);
    while (r > 0 && !weir_stopping());
    weir_conn_close(conn);
    return r == WEIR_ECANCELED ? r : 0; /* what a client does wrong is no failure of ours */
}

static int accept_clients(weir_scope *clients, weir_listener *listener)
{
    for (;;) {
        weir_conn *conn;
        int r = weir_accept(listener, &conn);
        if (r == -EMFILE || r == -ENFILE || r == -ENOBUFS || r == -ENOMEM) {
            r = weir_sleep(10); /* the client waits in the backlog; so do we */
            if (r < 0) return r;
            continue;
        }
        if (r < 0) return r;
        r = weir_spawn(clients, serve_client, &conn, sizeof conn);
        if (r < 0) weir_conn_close(conn); /* full: the client is turned away at once */
    }
}

static int serve(void *arg)
{
    const char *address = arg;
    weir_listener *listener;
    int result = weir_listen(&(weir_listen_spec){.address = address}, &listener);

    if (result < 0) return result;
    printf("listening on %s; try: printf 'one two\\n' | nc -N 127.0.0.1 7778\n", address);
    (void)fflush(stdout);
    WEIR_SCOPE(clients, &result, .name = "clients", .on_failure = WEIR_COLLECT,
               .max_tasks = CONNECTIONS_MAX, .overflow = WEIR_REJECT) {
        WEIR_NO_DEADLINE("a server waits for its next client as long as it runs") {
            int r = accept_clients(clients, listener);
            if (r != WEIR_ESTOPPING) weir_scope_cancel(clients, r, "cannot accept");
        }
    }
    weir_listener_close(listener);
    return result;
}

int main(int argc, char **argv)
{
    weir_config config = {.name = "words", .signals = WEIR_SIGNAL_DRAIN, .drain_ms = 2000};
    static char address[] = "tcp:127.0.0.1:7778";
    int r = weir_run(&config, serve, argc > 1 ? argv[1] : address);

    if (r < 0) fprintf(stderr, "step3_server: %s\n", weir_strerror(r));
    return r < 0;
}
