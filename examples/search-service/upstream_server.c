/* upstream_server.c - what the search service depends on. */
#include "upstream_server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chance.h"
#include "lines.h"

enum {
    CONNECTIONS_MAX = 8192,
    CONTROLS_MAX = 16,
    DOCUMENTS = 8,
    DOCUMENT_NUMBERS = 1000,
    IDLE_MS = 300000,
    WORK_MS_MAX = 300000, /* one request, waiting for its turn included */
    ANSWER_MS = 5000,
};

enum mode { MODE_OK, MODE_HANG, MODE_RESET, MODE_GARBAGE };
static const char *const mode_names[] = {"ok", "hang", "reset", "garbage"};

struct visit {
    struct upstream_server *upstream;
    weir_conn *conn;
    uint64_t chance; /* its own, so that nobody has to share */
};

/* ---- What is asked ---- */

static uint32_t hash_of(const char *text)
{
    uint32_t hash = 2166136261u;

    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash;
}

static void answer_documents(const char *words, char *answer, size_t bytes)
{
    uint32_t hash = hash_of(words);
    size_t used = (size_t)snprintf(answer, bytes, "DOCS");

    for (int i = 0; i < DOCUMENTS; i++) {
        hash = hash * 1664525u + 1013904223u;
        used +=
            (size_t)snprintf(answer + used, bytes - used, " d%u", (hash >> 8) % DOCUMENT_NUMBERS);
    }
    (void)snprintf(answer + used, bytes - used, "\n");
}

static void answer_titles(char *documents, char *answer, size_t bytes)
{
    static const char *const first[] = {"Old", "New", "Broken", "Quiet", "Deep", "Green", "Long"};
    static const char *const second[] = {"weir", "lock", "mill", "river", "bridge", "sluice"};
    size_t used = (size_t)snprintf(answer, bytes, "TITLES");
    char *rest = NULL;

    for (char *word = strtok_r(documents, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        uint32_t hash = hash_of(word);
        if (used + 32 > bytes) break;
        used += (size_t)snprintf(answer + used, bytes - used, " %s_%s", first[hash % 7],
                                 second[hash / 7 % 6]);
    }
    (void)snprintf(answer + used, bytes - used, "\n");
}

/* ---- One request ---- */

/* With a slot: what takes time. */
static int toil(struct upstream_server *upstream, uint64_t *chance)
{
    int jitter = (int)(chance_next(chance) % (unsigned)(upstream->jitter_ms + 1));
    int r = weir_event_wait(upstream->awake);

    return r < 0 ? r : weir_sleep(upstream->latency_ms + jitter);
}

/* Closed so that the client gets a reset and not the end of the stream. */
static int reset(weir_conn *conn)
{
    struct linger linger = {.l_onoff = 1, .l_linger = 0};

    (void)setsockopt(weir_conn_fd(conn), SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    return WEIR_ECLOSED;
}

static int say_garbage(weir_conn *conn)
{
    char noise[2 * LINE_BYTES_MAX];

    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (char)(i * 7 % 251 == '\n' ? 0 : i * 7 % 251);
    return weir_conn_send_all(conn, noise, sizeof noise, NULL);
}

static int answer_fetch(struct visit *visit, const char *words)
{
    struct upstream_server *upstream = visit->upstream;
    weir_conn *conn = visit->conn;
    char answer[LINE_BYTES_MAX];
    int r;

    upstream->waiting++;
    r = weir_semaphore_acquire(upstream->slots, 1);
    upstream->waiting--;
    if (r == WEIR_EOVERLOAD) return line_say(conn, "ERR too many wait already\n");
    if (r < 0) return r;
    r = toil(upstream, &visit->chance);
    weir_semaphore_release(upstream->slots, 1);
    if (r < 0) return r;
    if (upstream->mode == MODE_RESET) return reset(conn);
    if (upstream->mode == MODE_GARBAGE) return say_garbage(conn);
    if (chance_part(&visit->chance) * 100 < upstream->fail_percent) {
        upstream->failed++;
        return line_say(conn, "ERR the index is being rebuilt\n");
    }
    answer_documents(words, answer, sizeof answer);
    upstream->answered++;
    return weir_conn_send_all(conn, answer, strlen(answer), NULL);
}

static int answer_details(struct upstream_server *upstream, weir_conn *conn, char *documents)
{
    char answer[LINE_BYTES_MAX];
    int r = weir_event_wait(upstream->titling);

    if (r == 0) r = weir_event_wait(upstream->awake);
    if (r < 0) return r;
    if (upstream->mode == MODE_RESET) return reset(conn);
    if (upstream->details_fail) return line_say(conn, "ERR no titles today\n");
    answer_titles(documents, answer, sizeof answer);
    return weir_conn_send_all(conn, answer, strlen(answer), NULL);
}

static int answer_line(struct visit *visit, char *line)
{
    if (strncmp(line, "FETCH ", 6) == 0) {
        visit->upstream->asked++;
        return answer_fetch(visit, line + 6);
    }
    if (strncmp(line, "TITLES ", 7) == 0)
        return answer_details(visit->upstream, visit->conn, line + 7);
    return line_say(visit->conn, "ERR FETCH words... or TITLES documents...\n");
}

/* ---- Control ---- */

static void set_event(weir_event *event, bool set)
{
    if (set) weir_event_set(event);
    if (!set) weir_event_reset(event);
}

static void set_mode(struct upstream_server *upstream, enum mode mode)
{
    upstream->mode = mode;
    set_event(upstream->awake, mode != MODE_HANG);
}

static bool set_number(const char *text, int max, atomic_int *ret_number)
{
    char *end;
    long number = strtol(text, &end, 10);

    if (end == text || *end || number < 0 || number > max) return false;
    *ret_number = (int)number;
    return true;
}

static bool set_details(struct upstream_server *upstream, const char *value)
{
    bool fail = strcmp(value, "fail") == 0, hang = strcmp(value, "hang") == 0;

    if (!fail && !hang && strcmp(value, "ok") != 0) return false;
    upstream->details_fail = fail;
    set_event(upstream->titling, !hang);
    return true;
}

static bool set_mode_named(struct upstream_server *upstream, const char *value)
{
    for (int i = 0; i < 4; i++) {
        if (strcmp(value, mode_names[i]) != 0) continue;
        set_mode(upstream, (enum mode)i);
        return true;
    }
    return false;
}

static bool control(struct upstream_server *upstream, const char *name, const char *value)
{
    if (strcmp(name, "latency") == 0) return set_number(value, 60000, &upstream->latency_ms);
    if (strcmp(name, "jitter") == 0) return set_number(value, 60000, &upstream->jitter_ms);
    if (strcmp(name, "fail") == 0) return set_number(value, 100, &upstream->fail_percent);
    if (strcmp(name, "mode") == 0) return set_mode_named(upstream, value);
    if (strcmp(name, "details") == 0) return set_details(upstream, value);
    if (strcmp(name, "outage") == 0 && strcmp(value, "on") == 0)
        return set_mode(upstream, MODE_HANG), true;
    if (strcmp(name, "outage") == 0 && strcmp(value, "off") == 0)
        return set_mode(upstream, MODE_OK), true;
    return false;
}

static int control_line(struct visit *visit, char *line)
{
    struct upstream_server *upstream = visit->upstream;
    weir_conn *conn = visit->conn;
    char *value = strchr(line, ' ');

    if (strcmp(line, "figures") == 0)
        return line_say(conn, "mode %s asked %lu answered %lu failed %lu waiting %lu\n",
                        mode_names[upstream->mode], (unsigned long)upstream->asked,
                        (unsigned long)upstream->answered, (unsigned long)upstream->failed,
                        (unsigned long)upstream->waiting);
    if (value) *value++ = '\0';
    if (value && control(upstream, line, value)) return line_say(conn, "ok\n");
    return line_say(conn, "error: latency MS, jitter MS, fail PERCENT, mode ok|hang|reset|garbage, "
                          "details ok|fail|hang, outage on|off, figures\n");
}

/* ---- Connections ---- */

static int converse(struct visit *visit, int (*answer)(struct visit *visit, char *line))
{
    struct line_reader reader;
    char nothing[1] = "", *line = nothing;
    int r = 0;

    line_reader_init(&reader, visit->conn);
    while (r == 0) {
        WEIR_DEADLINE(IDLE_MS) r = line_next(&reader, &line);
        if (r < 0) break;
        WEIR_DEADLINE(WORK_MS_MAX) r = answer(visit, line);
    }
    weir_conn_close(visit->conn);
    return r == WEIR_ECANCELED ? r : 0; /* what goes wrong with a client is no failure of ours */
}

static int serve_client(void *arg)
{
    return converse(arg, answer_line);
}

static int serve_control(void *arg)
{
    return converse(arg, control_line);
}

static int accept_all(weir_scope *scope, struct upstream_server *upstream, weir_listener *listener,
                      weir_task_fn serve)
{
    struct visit visit = {.upstream = upstream};
    int r = 0;

    while (r != WEIR_ESTOPPING && r != WEIR_ECANCELED) {
        WEIR_NO_DEADLINE("clients come when they come") r = weir_accept(listener, &visit.conn);
        if (r == 0) {
            visit.chance = 88172645463325252u + ++upstream->visits * 7919;
            r = weir_spawn(scope, serve, &visit, sizeof visit);
            if (r < 0) weir_conn_close(visit.conn); /* too many */
        } else if (r != WEIR_ESTOPPING && r != WEIR_ECANCELED) {
            r = weir_sleep(10); /* no descriptor is free, say: trying at once would spin */
        }
    }
    return 0;
}

static int accept_controls(void *arg)
{
    struct upstream_server *upstream = *(struct upstream_server **)arg;
    int result;

    WEIR_SCOPE(scope, &result, .name = "controls", .on_failure = WEIR_COLLECT,
               .max_tasks = CONTROLS_MAX, .overflow = WEIR_REJECT)
        result = accept_all(scope, upstream, upstream->control_listener, serve_control);
    return result == WEIR_ECANCELED ? 0 : result;
}

static int open_all(weir_scope *scope, struct upstream_server *upstream)
{
    int r = weir_event_open(scope, "awake", &upstream->awake);

    if (r == 0) r = weir_event_open(scope, "titling", &upstream->titling);
    if (r == 0)
        r = weir_semaphore_open(scope,
                                &(weir_semaphore_spec){.name = "slots",
                                                       .permits = (size_t)upstream->slots_count,
                                                       .waiters_max = CONNECTIONS_MAX,
                                                       .overflow = WEIR_WAIT},
                                &upstream->slots);
    if (r < 0) return r;
    weir_event_set(upstream->awake);
    weir_event_set(upstream->titling);
    return weir_spawn(scope, accept_controls, &upstream, sizeof upstream);
}

static int listen_on(const struct upstream_server *upstream, int port, const char *what,
                     weir_listener **ret_listener)
{
    char text[WEIR_ADDRESS_TEXT_MAX];
    weir_address bound;
    int r;

    (void)snprintf(text, sizeof text, "tcp:%s:%d", upstream->listen_host, port);
    r = weir_listen(&(weir_listen_spec){.address = text}, ret_listener);
    if (r < 0) return r;
    if (weir_listener_address(*ret_listener, &bound) == 0)
        (void)weir_address_format(&bound, text, sizeof text);
    if (upstream->on_listen) upstream->on_listen(what, text);
    return 0;
}

int upstream_server_run(struct upstream_server *upstream)
{
    int result =
        listen_on(upstream, upstream->control_port, "control", &upstream->control_listener);

    upstream->latency_ms = upstream->latency_ms_first;
    upstream->jitter_ms = upstream->jitter_ms_first;
    if (result == 0) result = listen_on(upstream, upstream->port, "listening", &upstream->listener);
    if (result < 0) goto close;
    WEIR_SCOPE(scope, &result, .name = "clients", .on_failure = WEIR_COLLECT,
               .max_tasks = CONNECTIONS_MAX, .overflow = WEIR_REJECT) {
        result = open_all(scope, upstream);
        if (result == 0) result = accept_all(scope, upstream, upstream->listener, serve_client);
    }
close:
    weir_listener_close(upstream->listener);
    weir_listener_close(upstream->control_listener);
    return result == WEIR_ECANCELED ? 0 : result; /* clients that were still there */
}
