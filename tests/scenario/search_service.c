/* search_service.c - failures through the whole reference service, examples/search-service.
 *
 * The real programs, over real sockets: an upstream that fails in every way it can, clients that do
 * what clients must not do, a stop in the middle of it all. Nothing here depends on how fast the
 * machine is: the service's own times are stretched (--patience), and what has to happen is waited
 * for.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness/program.h"
#include "harness/test.h"

enum { LINE_BYTES = 1024, TRIES_MAX = 10000 };

/* ---- The two programs ---- */

struct stand {
    struct program upstream, service;
    int port, admin, control;
};

static struct stand stand;

static int port_after(const char *text, const char *words)
{
    const char *at = strstr(text, words);

    if (!at) TEST_FAIL("no '%s' in\n%s", words, text);
    return (int)strtol(at + strlen(words), NULL, 10);
}

/* Texts of a number, and of an address; good for as long as a command line takes. */
static char texts[8][64];
static int texts_turn;

static const char *number_text(int value)
{
    char *text = texts[texts_turn++ % 8];

    (void)snprintf(text, sizeof texts[0], "%d", value);
    return text;
}

/* Longer than this process takes from one step to the next, also on a busy machine. */
static const char *idle_text(void)
{
    return number_text(1500 * test_slower());
}

static const char *address_text(int port)
{
    char *text = texts[texts_turn++ % 8];

    (void)snprintf(text, sizeof texts[0], "tcp:127.0.0.1:%d", port);
    return text;
}

/* `options` of the service end with NULL. */
static void stand_up_with(const char *const options[])
{
    const char *argv[32] = {NULL};
    int count = 0;

    program_start(&stand.upstream,
                  (const char *const[]){example("search-upstream"), "--port", "0", "--control-port",
                                        "0", "--latency", "0", "--jitter", "0", NULL});
    program_expect(&stand.upstream, "listening on tcp:127.0.0.1:");
    program_expect(&stand.upstream, "\n");
    stand.control = port_after(stand.upstream.text, "control on tcp:127.0.0.1:");
    argv[count++] = example("search-service");
    argv[count++] = "--quiet";
    argv[count++] = "--port";
    argv[count++] = "0";
    argv[count++] = "--admin-port";
    argv[count++] = "0";
    argv[count++] = "--upstream";
    argv[count++] = address_text(port_after(stand.upstream.text, "listening on tcp:127.0.0.1:"));
    argv[count++] = "--workers";
    argv[count++] = number_text(test_workers());
    while (*options) argv[count++] = *options++;
    program_start(&stand.service, argv);
    program_expect(&stand.service, "/metrics\n");
    stand.port = port_after(stand.service.text, "listening on tcp:127.0.0.1:");
    stand.admin = port_after(stand.service.text, "http://127.0.0.1:");
}

/* As usual: ranking costs nothing, and nothing takes too long on a busy machine. */
static void stand_up(void)
{
    stand_up_with((const char *const[]){"--rank-us", "0", "--patience",
                                        number_text(10 * test_slower()), NULL});
}

/* For what hangs: then its timeouts are what the test waits for. */
static void stand_up_impatient(void)
{
    stand_up_with((const char *const[]){"--rank-us", "0", "--patience",
                                        number_text(2 * test_slower()), NULL});
}

/* It ends by itself, and all is accounted for. */
static void stand_down(void)
{
    unsigned long accepted, answered, not_taken;
    const char *end;

    CHECK_INT(kill(stand.service.pid, SIGTERM), ==, 0);
    CHECK_EXIT(program_end(&stand.service), 0, stand.service.text);
    end = strstr(stand.service.text, "stopped: ");
    CHECK(end);
    CHECK_INT(sscanf(end, "stopped: %lu accepted, %lu answered, %lu not taken", &accepted,
                     &answered, &not_taken),
              ==, 3);
    /* Lines that are too long are answered, too, and are no request. */
    CHECK_INT(answered + not_taken, >=, accepted);
    CHECK_INT(kill(stand.upstream.pid, SIGTERM), ==, 0);
    CHECK_EXIT(program_end(&stand.upstream), 0, stand.upstream.text);
}

/* ---- Clients ---- */

static void say(int fd, const char *text)
{
    CHECK_INT(send(fd, text, strlen(text), MSG_NOSIGNAL), ==, strlen(text));
}

/* One line, its end included; "" at the end of the stream or after a reset. */
static void read_line(int fd, char *line)
{
    size_t length = 0;

    while (length + 1 < LINE_BYTES && client_read(fd, line + length, 1, PROGRAM_WAIT_MS) == 1)
        if (line[length++] == '\n') break;
    line[length] = '\0';
}

static const char *ask(int fd, const char *question)
{
    static char line[LINE_BYTES];

    test_note("asking: %s", question);
    say(fd, question);
    read_line(fd, line);
    test_note("asked: %s answered: %s", question, line);
    return line;
}

static void control(const char *line)
{
    int fd = client_connect(stand.control, 0);
    char question[128];

    (void)snprintf(question, sizeof question, "%s\n", line);
    CHECK_STR(ask(fd, question), "ok\n");
    close(fd);
}

/* How often the upstream was asked for documents. */
static unsigned long asked(void)
{
    int fd = client_connect(stand.control, 0);
    const char *figures = strstr(ask(fd, "figures\n"), "asked ");

    CHECK(figures);
    close(fd);
    return strtoul(figures + 6, NULL, 10);
}

/* Ask until the answer begins like this; the test's timeout bounds it. */
static void ask_until(int fd, const char *beginning)
{
    for (int i = 0; i < TRIES_MAX; i++)
        if (strncmp(ask(fd, "SEARCH u old mill\n"), beginning, strlen(beginning)) == 0) return;
    TEST_FAIL("after %d questions none was answered '%s'", TRIES_MAX, beginning);
}

/* An answer over HTTP, all of it. */
static const char *get(const char *request)
{
    static char text[512 * 1024];
    int fd = client_connect(stand.admin, 0);
    size_t length;

    say(fd, request);
    length = client_read(fd, text, sizeof text - 1, PROGRAM_WAIT_MS);
    text[length] = '\0';
    close(fd);
    return text;
}

static double metric(const char *series)
{
    const char *text = get("GET /metrics HTTP/1.0\r\n\r\n");
    char line[256];
    const char *at;

    (void)snprintf(line, sizeof line, "\n%s ", series);
    at = strstr(text, line);
    if (!at) TEST_FAIL("there is no %s in\n%s", series, text);
    return strtod(at + strlen(line), NULL);
}

/* ---- An upstream that fails ---- */

TEST(search_service_says_when_an_answer_is_partial)
{
    int fd;

    stand_up();
    fd = client_connect(stand.port, 0);
    CHECK_CONTAINS(ask(fd, "SEARCH 1 Old, MILL!\n"), "ok 1 d");
    control("details fail");
    CHECK_CONTAINS(ask(fd, "SEARCH 2 old mill\n"), "partial 2 enrich d");
    CHECK_CONTAINS(ask(fd, "SEARCH 3 old mill\n"), ":Document_");
    control("details hang");
    CHECK_CONTAINS(ask(fd, "SEARCH 4 old mill\n"), "partial 4 enrich d");
    control("details ok");
    ask_until(fd, "ok ");
    close(fd);
    stand_down();
}

TEST(search_service_without_titles_answers_in_part)
{
    int fd;

    stand_up_with((const char *const[]){"--rank-us", "0", "--patience", "50", "--no-titles", NULL});
    fd = client_connect(stand.port, 0);
    CHECK_CONTAINS(ask(fd, "SEARCH 1 old mill\n"), "partial 1 enrich d");
    close(fd);
    stand_down();
}

TEST(search_service_survives_whatever_its_upstream_does)
{
    static const char *const modes[] = {"mode reset", "mode garbage", "mode hang", "fail 100"};
    int fd;

    stand_up_impatient();
    fd = client_connect(stand.port, 0);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        control(modes[i]);
        for (int n = 0; n < 3; n++) CHECK_CONTAINS(ask(fd, "SEARCH 7 old mill\n"), "error 7 ");
        control("mode ok");
        control("fail 0");
        ask_until(fd, "ok ");
    }
    close(fd);
    stand_down();
}

TEST(search_service_leaves_an_upstream_alone_that_is_out)
{
    unsigned long before;
    int64_t began_ns;
    int fd;

    stand_up_impatient();
    fd = client_connect(stand.port, 0);
    ask_until(fd, "ok ");
    CHECK_INT((long)metric("weir_breaker_state{breaker=\"upstream\",state=\"closed\"}"), ==, 1);
    control("outage on");
    ask_until(fd, "error u unavailable ");
    CHECK_INT((long)metric("weir_breaker_changes_total{breaker=\"upstream\",to=\"open\"}"), >, 0);
    before = asked();
    began_ns = weir_now_ns();
    for (int i = 0; i < 200; i++) CHECK_CONTAINS(ask(fd, "SEARCH 1 old mill\n"), "error 1 ");
    /* Probes, and not what was asked: three each half a second, and those of its beginning. */
    CHECK_INT(asked() - before, <=, 3 * (2 + (weir_now_ns() - began_ns) / 500000000));
    control("outage off");
    do { /* it closes when enough of its probes went well */
        ask_until(fd, "ok ");
    } while (metric("weir_breaker_state{breaker=\"upstream\",state=\"closed\"}") < 1);
    close(fd);
    stand_down();
}

TEST(search_service_survives_an_upstream_that_is_not_there)
{
    int fd;

    stand_up();
    fd = client_connect(stand.port, 0);
    CHECK_CONTAINS(ask(fd, "SEARCH 1 old mill\n"), "ok 1 ");
    CHECK_INT(kill(stand.upstream.pid, SIGKILL), ==, 0);
    (void)program_end(&stand.upstream);
    CHECK_CONTAINS(ask(fd, "SEARCH 2 old mill\n"), "error 2 ");
    close(fd);
    CHECK_INT(kill(stand.service.pid, SIGTERM), ==, 0);
    CHECK_EXIT(program_end(&stand.service), 0, stand.service.text);
}

TEST(search_service_turns_away_what_its_queue_has_no_room_for)
{
    enum { REQUESTS = 400 };
    static char lines[REQUESTS * 32];
    static char seen[REQUESTS];
    size_t length = 0;
    int fd, overload = 0, fine = 0;

    stand_up_with((const char *const[]){"--rank-us", "3000", "--patience", "100", NULL});
    fd = client_connect(stand.port, 0);
    for (int i = 0; i < REQUESTS; i++)
        length += (size_t)sprintf(lines + length, "SEARCH %d old mill\n", i);
    say(fd, lines);
    for (int i = 0; i < REQUESTS; i++) {
        char line[LINE_BYTES];
        int id = -1;
        read_line(fd, line);
        CHECK_INT(sscanf(line, "%*s %d", &id), ==, 1);
        CHECK(id >= 0 && id < REQUESTS);
        CHECK_INT(seen[id]++, ==, 0); /* exactly one answer each */
        overload += strstr(line, " overload ") != NULL;
        fine += strncmp(line, "ok ", 3) == 0;
    }
    CHECK_INT(overload, >, 0);
    CHECK_INT(fine, >, 0);
    CHECK_INT((long)metric("weir_stage_depth_max{stage=\"parse\"}"), <=, 24);
    CHECK_INT((long)metric("search_unanswered_total"), ==, 0);
    close(fd);
    stand_down();
}

/* ---- Clients that do what they must not ---- */

static void expect_end(int fd)
{
    char byte;

    CHECK_INT(client_read(fd, &byte, 1, PROGRAM_WAIT_MS), ==, 0);
    close(fd);
}

TEST(search_service_refuses_lines_that_are_none)
{
    char line[LINE_BYTES];
    int fd;

    stand_up();
    fd = client_connect(stand.port, 0);
    CHECK_CONTAINS(ask(fd, "\n"), "error - bad-request");
    CHECK_CONTAINS(ask(fd, "FIND 1 x\r\n"), "error - bad-request");
    CHECK_CONTAINS(ask(fd, "SEARCH 1\n"), "error ");
    CHECK_CONTAINS(ask(fd, "SEARCH 1 ...\n"), "error 1 bad-request");
    CHECK_CONTAINS(ask(fd, "SEARCH \001 x\n"), "error - bad-request");
    CHECK_CONTAINS(ask(fd, "SEARCH 0123456789012345678901234567890123 x\n"), "error - bad-request");
    CHECK_CONTAINS(ask(fd, "SEARCH 2 old mill\r\n"), "ok 2 ");
    for (int i = 0; i < 100; i++) say(fd, "0123456789"); /* a line without an end */
    read_line(fd, line);
    CHECK_CONTAINS(line, "error - too-long");
    expect_end(fd);
    stand_down();
}

TEST(search_service_is_not_held_up_by_clients_that_are_slow)
{
    int loris, idle, deaf, good;

    stand_up_with((const char *const[]){"--rank-us", "0", "--patience", "50", "--line-ms", "300",
                                        "--idle-ms", idle_text(), NULL});
    loris = client_connect(stand.port, 0);
    idle = client_connect(stand.port, 0);
    deaf = client_connect(stand.port, 2048);
    say(loris, "SEARCH 1 ol");            /* and never the rest */
    for (int i = 0; i < TRIES_MAX; i++) { /* asks, and never reads: until it is cut off */
        static const char lines[] = "SEARCH 1 old mill\nSEARCH 2 old mill\nSEARCH 3 old mill\n";
        struct pollfd can_write = {.fd = deaf, .events = POLLOUT};
        if (poll(&can_write, 1, PROGRAM_WAIT_MS) != 1) TEST_FAIL("the deaf client is still there");
        if (send(deaf, lines, sizeof lines - 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN)
            break;
    }
    good = client_connect(stand.port, 0);
    ask_until(good, "ok "); /* once what the deaf one has asked is through */
    close(good);
    {
        char line[LINE_BYTES];
        read_line(loris, line);
        CHECK_CONTAINS(line, "error - timeout");
    }
    expect_end(loris);
    expect_end(idle);
    close(deaf);
    stand_down();
}

/* The client's machine asks every second whether the other one still knows the connection; what
 * comes back is no answer to the client. */
static void ask_for_life(int fd)
{
    static const struct {
        int level, name, value;
    } options[] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
                   {IPPROTO_TCP, TCP_KEEPIDLE, 1},
                   {IPPROTO_TCP, TCP_KEEPINTVL, 1},
                   {IPPROTO_TCP, TCP_KEEPCNT, 127}};

    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        CHECK_INT(setsockopt(fd, options[i].level, options[i].name, &options[i].value,
                             sizeof options[i].value),
                  ==, 0);
}

/* Its answers are more than its machine takes, and less than the service's own keeps: nobody in the
 * service waits for it. The system would go on offering them for minutes after the close. */
TEST(search_service_keeps_no_answers_for_a_client_that_takes_none)
{
    struct pollfd until_gone = {.fd = -1, .events = 0};
    char lines[100 * 20] = "";
    int deaf;

    stand_up_with((const char *const[]){"--rank-us", "0", "--patience", "50", "--line-ms", "300",
                                        "--idle-ms", idle_text(), NULL});
    deaf = client_connect(stand.port, 2048);
    ask_for_life(deaf);
    for (int i = 0; i < 100; i++) (void)strcat(lines, "SEARCH 1 old mill\n");
    say(deaf, lines);
    until_gone.fd = deaf;
    if (poll(&until_gone, 1, PROGRAM_WAIT_MS) != 1)
        TEST_FAIL("the system still has answers for a client that takes none");
    CHECK(until_gone.revents & POLLHUP);
    close(deaf);
    stand_down();
}

TEST(search_service_answers_a_client_that_has_said_its_last)
{
    char line[LINE_BYTES];
    int fd;

    stand_up();
    fd = client_connect(stand.port, 0);
    say(fd, "SEARCH 1 old mill\nSEARCH 2 new mill\n");
    CHECK_INT(shutdown(fd, SHUT_WR), ==, 0);
    read_line(fd, line);
    CHECK_CONTAINS(line, "ok ");
    read_line(fd, line);
    CHECK_CONTAINS(line, "ok ");
    expect_end(fd);
    stand_down();
}

/* A client whose machine is gone: no end of the stream, no reset, nothing. */
static void vanish(int fd)
{
    int on = 1;

    if (setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &on, sizeof on) != 0) {
        (void)kill(stand.service.pid, SIGKILL);
        TEST_SKIP("only root can make a connection that ends without a word");
    }
    close(fd);
}

TEST(search_service_lets_go_of_connections_that_are_half_open)
{
    int fd, silent;

    stand_up_with((const char *const[]){"--rank-us", "0", "--patience", "50", "--line-ms", "300",
                                        "--idle-ms", idle_text(), NULL});
    silent = client_connect(stand.port, 0);
    CHECK_CONTAINS(ask(silent, "SEARCH 1 old mill\n"), "ok 1 ");
    fd = client_connect(stand.port, 0);
    CHECK_CONTAINS(ask(fd, "SEARCH 1 old mill\n"), "ok 1 ");
    say(fd, "SEARCH 1 old mill\nSEARCH 2 old mill\n");
    vanish(fd);
    vanish(silent);
    while (metric("search_connections") > 0 && !test_late()) (void)poll(NULL, 0, 10);
    CHECK_INT((long)metric("search_connections"), ==, 0);
    fd = client_connect(stand.port, 0);
    CHECK_CONTAINS(ask(fd, "SEARCH 3 old mill\n"), "ok 3 ");
    close(fd);
    stand_down();
}

/* ---- Figures ---- */

TEST(search_service_shows_its_figures_over_http)
{
    int fd;
    const char *text;

    stand_up();
    fd = client_connect(stand.port, 0);
    CHECK_CONTAINS(ask(fd, "SEARCH 1 old mill\n"), "ok 1 ");
    text = get("GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
    CHECK(strncmp(text, "HTTP/1.0 200 OK\r\n", 17) == 0);
    CHECK_CONTAINS(text, "Content-Type: text/plain; version=0.0.4\r\n");
    CHECK_CONTAINS(text, "\nsearch_answers_total{code=\"ok\"} 1\n");
    CHECK_CONTAINS(text, "\nsearch_upstream_requests_total{kind=\"index\"} 1\n");
    CHECK_CONTAINS(text, "\nweir_stage_finished_total{stage=\"rank\"} 1\n");
    CHECK_CONTAINS(text, "\nprocess_resident_memory_bytes ");
    text = get("GET /map HTTP/1.0\r\n\r\n");
    CHECK_CONTAINS(text, "pipeline 'search' of search-service/main/service");
    CHECK_CONTAINS(text, "stage 'search/fetch'");
    CHECK_CONTAINS(get("GET /health HTTP/1.0\r\n\r\n"), "serving\n");
    CHECK_CONTAINS(get("GET /nothing HTTP/1.0\r\n\r\n"), "HTTP/1.0 404 ");
    CHECK_CONTAINS(get("POST /metrics HTTP/1.0\r\n\r\n"), "HTTP/1.0 400 ");
    CHECK_STR(get("GET /met"), ""); /* and never the rest: it is closed */
    close(fd);
    stand_down();
}

/* ---- Stopping ---- */

/* Requests are accepted in order: what has no answer is what was not accepted any more. */
static int count_answers(int fd, int sent)
{
    static char seen[4096];
    char line[LINE_BYTES];
    int count = 0, last = -1;

    memset(seen, 0, sizeof seen);
    for (read_line(fd, line); *line; read_line(fd, line), count++) {
        int id = -1;
        CHECK_INT(sscanf(line, "%*s %d", &id), ==, 1);
        CHECK(id >= 0 && id < sent);
        CHECK_INT(seen[id]++, ==, 0);
        if (id > last) last = id;
    }
    CHECK_INT(last + 1, ==, count); /* no hole: none that was accepted is lost */
    return count;
}

enum { DRAIN_BATCH = 10 };

/* Some more requests, as far as they are taken; returns how many were sent whole. */
static int send_some(int fd, int first)
{
    char lines[DRAIN_BATCH * 32];
    size_t length = 0;
    ssize_t sent;
    int count = 0;

    for (int n = 0; n < DRAIN_BATCH; n++)
        length += (size_t)sprintf(lines + length, "SEARCH %d old mill\n", first + n);
    sent = send(fd, lines, length, MSG_NOSIGNAL | MSG_DONTWAIT);
    for (ssize_t at = 0; at < sent; at++) count += lines[at] == '\n';
    return count;
}

/* Answers that a client does not read at once stay with the service: a close that throws them away
 * would be seen. */
static int client_with_little_room(void)
{
    int fd = client_connect(stand.port, 0), bytes = 16 * 1024;

    CHECK_INT(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes), ==, 0);
    return fd;
}

TEST(search_service_drains_under_load_and_loses_nothing_it_has_accepted)
{
    enum { CLIENTS = 8, ROUNDS = 40 };
    unsigned long accepted = 0, answered = 0;
    int fds[CLIENTS], sent[CLIENTS] = {0}, count = 0;
    struct pollfd answered_some = {.events = POLLIN};
    const char *end;

    stand_up_with((const char *const[]){"--rank-us", "1000", "--patience", "20", "--line-ms",
                                        "60000", NULL}); /* the last client reads long after */
    for (int i = 0; i < CLIENTS; i++) fds[i] = client_with_little_room();
    answered_some.fd = fds[0];
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < CLIENTS; i++) {
            if (sent[i] % DRAIN_BATCH != 0) continue; /* it took only a part */
            sent[i] += send_some(fds[i], sent[i]);
        }
        if (round != ROUNDS / 2) continue;
        CHECK_INT(poll(&answered_some, 1, PROGRAM_WAIT_MS), ==, 1); /* it is in the middle of it */
        CHECK_INT(kill(stand.service.pid, SIGTERM), ==, 0);
    }
    for (int i = 0; i < CLIENTS; i++) {
        count += count_answers(fds[i], sent[i]);
        close(fds[i]);
    }
    CHECK_EXIT(program_end(&stand.service), 0, stand.service.text);
    end = strstr(stand.service.text, "stopped: ");
    CHECK(end);
    CHECK_INT(sscanf(end, "stopped: %lu accepted, %lu answered", &accepted, &answered), ==, 2);
    CHECK_INT(accepted, ==, answered);
    CHECK_INT(count, ==, answered);
    CHECK_INT(count, >, 0);
    CHECK_INT(kill(stand.upstream.pid, SIGTERM), ==, 0);
    CHECK_EXIT(program_end(&stand.upstream), 0, stand.upstream.text);
}

TEST(search_service_stops_at_once_when_nobody_asks)
{
    int fd;

    stand_up();
    fd = client_connect(stand.port, 0);
    CHECK_CONTAINS(ask(fd, "SEARCH 1 old mill\n"), "ok 1 ");
    CHECK_INT(kill(stand.service.pid, SIGTERM), ==, 0);
    expect_end(fd);
    CHECK_EXIT(program_end(&stand.service), 0, stand.service.text);
    CHECK_INT(kill(stand.upstream.pid, SIGTERM), ==, 0);
    CHECK_EXIT(program_end(&stand.upstream), 0, stand.upstream.text);
}

TEST(search_service_brings_its_upstream_and_ends_it)
{
    static struct program demo;
    int fd;

    if (test_emulated()) TEST_SKIP("the emulator makes no process with a pidfd");
    program_start(&demo, (const char *const[]){example("search-service"), "--demo", "--port", "0",
                                               "--admin-port", "0", "--patience", "20", NULL});
    program_expect(&demo, "Ctrl-C");
    fd = client_connect(port_after(demo.text, "listening on tcp:127.0.0.1:"), 0);
    CHECK_CONTAINS(ask(fd, "SEARCH 1 old mill\n"), "ok 1 ");
    close(fd);
    stand.control = port_after(demo.text, "'outage on' >/dev/tcp/127.0.0.1/");
    control("details fail");
    program_expect(&demo, "search: "); /* the live figures */
    CHECK_INT(kill(demo.pid, SIGINT), ==, 0);
    CHECK_EXIT(program_end(&demo), 0, demo.text);
    CHECK_CONTAINS(demo.text, "stopped: 1 accepted, 1 answered, 0 not taken");
}

/* ---- Load ---- */

static const char *run_load(const char *const options[])
{
    static char output[PROGRAM_OUTPUT_BYTES];
    const char *argv[24] = {
        example("search-load"),    "--service", address_text(stand.port),   "--admin",
        address_text(stand.admin), "--control", address_text(stand.control)};

    for (int i = 7; *options; i++) argv[i] = *options++;
    CHECK_EXIT(test_exec(argv, output, sizeof output), 0, output);
    return output;
}

TEST(search_load_finds_an_answer_to_every_request)
{
    const char *output;

    stand_up_with((const char *const[]){"--rank-us", "3000", NULL});
    output = run_load(
        (const char *const[]){"--rate", "1500", "--seconds", "1", "--max-missed", "0", NULL});
    CHECK_CONTAINS(output, "held  : every request that was sent has exactly one answer");
    CHECK_INT((long)metric("weir_stage_depth_max{stage=\"parse\"}"), <=, 24);
    CHECK_INT((long)metric("weir_stage_depth_max{stage=\"fetch\"}"), <=, 8);
    stand_down();
}

/* What does not depend on speed: every request has one answer, no queue exceeds its bound. */
TEST_WITH(search_service_goes_through_the_whole_story, .long_only = true, .timeout_ms = 60000)
{
    const char *output;

    stand_up_with((const char *const[]){"--rank-us", "3000", NULL});
    output = run_load((const char *const[]){"--story", "2", "--capacity-seconds", "2", NULL});
    CHECK_CONTAINS(output, "held  : every request that was sent has exactly one answer");
    CHECK_INT((long)metric("weir_stage_depth_max{stage=\"parse\"}"), <=, 24);
    CHECK_INT((long)metric("search_unanswered_total"), ==, 0);
    stand_down();
}

TEST(search_service_makes_each_mistake_when_it_is_told_to)
{
    static const char *const mistakes[] = {"unbounded-queue", "thread-per-request",
                                           "retry-without-budget"};

    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        int fd;
        memset(&stand, 0, sizeof stand);
        stand_up_with((const char *const[]){"--rank-us", "0", "--patience", "50", "--naive",
                                            mistakes[i], NULL});
        fd = client_connect(stand.port, 0);
        CHECK_CONTAINS(ask(fd, "SEARCH 1 old mill\n"), "ok 1 ");
        CHECK_CONTAINS(ask(fd, "SEARCH 2\n"), "error ");
        control("details fail");
        CHECK_CONTAINS(ask(fd, "SEARCH 3 old mill\n"), "partial 3 ");
        CHECK_INT((long)metric("search_answers_total{code=\"ok\"}"), ==, 1);
        close(fd);
        stand_down();
    }
}
