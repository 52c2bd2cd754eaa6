/* examples_test.c - the example programs, run as a user would run them; what they and the guide
 * show is compared with the sources (harness/program.h).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/program.h"
#include "harness/test.h"
#include "unit/store/log_test.h"

/* ---- The echo server and its clients ---- */

static int echo_start(struct program *program)
{
    char workers[16];
    const char *port;

    (void)snprintf(workers, sizeof workers, "%d", test_workers());
    program_start(
        program, (const char *const[]){example("echo"), "--port", "0", "--workers", workers, NULL});
    program_expect(program, "graceful end");
    port = strstr(program->text, "tcp:127.0.0.1:");
    CHECK(port);
    return (int)strtol(port + strlen("tcp:127.0.0.1:"), NULL, 10);
}

static void client_say(int fd, const char *text)
{
    char answer[64];

    CHECK_INT(send(fd, text, strlen(text), MSG_NOSIGNAL), ==, strlen(text));
    CHECK_INT(client_read(fd, answer, strlen(text), PROGRAM_WAIT_MS), ==, strlen(text));
    CHECK(memcmp(answer, text, strlen(text)) == 0);
}

/* Write without reading until neither side can go on: a request that does not end. That a
 * busy server has not read for a while is not enough; its tasks tell. */
static void client_stall(struct program *echo, int fd)
{
    static char much[64 * 1024];
    struct pollfd can_write = {.fd = fd, .events = POLLOUT};
    struct pollfd can_read = {.fd = echo->out, .events = POLLIN};
    size_t told = echo->length;

    while (!strstr(echo->text + told, "in write: descriptor")) {
        while (poll(&can_write, 1, 100) == 1)
            if (send(fd, much, sizeof much, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
                CHECK_INT(errno, ==, EAGAIN);
        told = echo->length;
        CHECK_INT(kill(echo->pid, SIGUSR1), ==, 0);
        do {
            CHECK(program_read(echo, "to show its tasks"));
        } while (poll(&can_read, 1, 100) == 1);
    }
}

TEST(example_echo_answers_and_drains_at_sigterm)
{
    static struct program echo;
    int port = echo_start(&echo);
    int fds[3];
    char byte;

    for (int i = 0; i < 3; i++) fds[i] = client_connect(port, 0);
    for (int i = 0; i < 3; i++) client_say(fds[i], "hello\n");
    client_say(fds[1], "and again\n");
    CHECK_INT(kill(echo.pid, SIGTERM), ==, 0);
    /* Idle connections are closed at once, not when the drain's budget is used up. */
    for (int i = 0; i < 3; i++) CHECK_INT(client_read(fds[i], &byte, 1, PROGRAM_WAIT_MS), ==, 0);
    for (int i = 0; i < 3; i++) close(fds[i]);
    CHECK_EXIT(program_end(&echo), 0, echo.text);
    CHECK_CONTAINS(echo.text, "4 requests answered, 0 rejected, 0 cut off");
}

TEST(example_echo_shows_its_tasks_at_sigusr1)
{
    static struct program echo;
    int fd = client_connect(echo_start(&echo), 0);

    client_say(fd, "hello\n");
    CHECK_INT(kill(echo.pid, SIGUSR1), ==, 0);
    program_expect(&echo, "a server waits for its next client as long as it runs");
    CHECK_CONTAINS(echo.text, "'acceptor'");
    close(fd);
    CHECK_INT(kill(echo.pid, SIGINT), ==, 0);
    CHECK_EXIT(program_end(&echo), 0, echo.text);
}

TEST(example_echo_cuts_off_a_request_that_does_not_end)
{
    static struct program echo;
    int port = echo_start(&echo);
    int idle = client_connect(port, 0);
    int stuck = client_connect(port, 8192);

    client_say(idle, "hello\n");
    client_stall(&echo, stuck);
    CHECK_INT(kill(echo.pid, SIGTERM), ==, 0);
    CHECK_EXIT(program_end(&echo), 1, echo.text);
    CHECK_CONTAINS(echo.text, "1 cut off");
    close(idle);
    close(stuck);
}

TEST(example_echo_ends_at_once_at_the_second_signal)
{
    static struct program echo;
    int stuck = client_connect(echo_start(&echo), 8192);

    client_stall(&echo, stuck);
    CHECK_INT(kill(echo.pid, SIGTERM), ==, 0);
    program_expect(&echo, "stopping");
    CHECK_INT(kill(echo.pid, SIGTERM), ==, 0);
    CHECK_EXIT(program_end(&echo), 128 + SIGTERM, echo.text);
    close(stuck);
}

TEST(example_hello_greets_all_or_fails)
{
    static struct program echo;
    char address[32];
    char expected[128];
    char output[4096];

    (void)snprintf(address, sizeof address, "tcp:127.0.0.1:%d", echo_start(&echo));
    CHECK_EXIT(test_exec((const char *const[]){example("hello"), address, address, NULL}, output,
                         sizeof output),
               0, output);
    (void)snprintf(expected, sizeof expected, "%s says hello\n%s says hello\n", address, address);
    CHECK_STR(output, expected);
    CHECK_INT(kill(echo.pid, SIGTERM), ==, 0);
    CHECK_EXIT(program_end(&echo), 0, echo.text);
    /* Nobody listens there any more. */
    CHECK_EXIT(
        test_exec((const char *const[]){example("hello"), address, NULL}, output, sizeof output), 1,
        output);
    CHECK_CONTAINS(output, "task 'greet' (root/greetings) failed: Connection refused");
}

/* ---- The others ---- */

struct run {
    const char *name;
    const char *arguments[4];
    int status;
    const char *says;
    const char *never_says; /* may be NULL */
};

static void check_runs(const struct run *runs, size_t count)
{
    static char output[PROGRAM_OUTPUT_BYTES];

    for (size_t i = 0; i < count; i++) {
        const struct run *run = &runs[i];
        const char *argv[] = {example(run->name), run->arguments[0], run->arguments[1],
                              run->arguments[2],  run->arguments[3], NULL};
        test_note("run %zu: %s %s", i, run->name, argv[1] ? argv[1] : "");
        CHECK_EXIT(test_exec(argv, output, sizeof output), run->status, output);
        CHECK_CONTAINS(output, run->says);
        if (run->never_says && strstr(output, run->never_says))
            TEST_FAIL("'%s' must not be in\n%s", run->never_says, output);
    }
}

#define CHECK_RUNS(runs) check_runs(runs, sizeof(runs) / sizeof(runs)[0])

TEST(examples_explain_themselves_and_refuse_what_they_do_not_know)
{
    static const struct run runs[] = {
        {"echo", {"--help"}, 0, "usage: echo"},
        {"fetch", {"--help"}, 0, "usage: fetch"},
        {"supervised", {"--help"}, 0, "usage: supervised"},
        {"shutdown", {"--help"}, 0, "usage: shutdown"},
        {"embed", {"--help"}, 0, "usage: embed"},
        {"tour", {"--help"}, 0, "usage: tour"},
        {"process_pool", {"--help"}, 0, "usage: process_pool"},
        {"fetch", {NULL}, 2, "addresses are needed"},
        {"echo", {"--port", "65536"}, 2, "--port needs a number from 0 to 65535, not 65536"},
        {"echo", {"--port", "80x"}, 2, "not 80x"},
        {"echo", {"--port"}, 2, "--port needs a number"},
        {"echo", {"--prot", "1"}, 2, "there is no option '--prot'"},
        {"shutdown", {"now"}, 2, "unexpected argument 'now'"},
    };
    CHECK_RUNS(runs);
}

TEST(example_fetch_keeps_its_deadline_and_its_failure_policy)
{
    static const struct run runs[] = {
        {"fetch", {"--demo", "--deadline", "9000"}, 0, "an answer after 200 ms"},
        {"fetch", {"--demo", "--deadline", "20", "--collect"}, 1, "deadline passed", "200 ms"},
        {"fetch", {"--demo", "tcp:127.0.0.1:1"}, 1, "Connection refused", "an answer after"},
        {"fetch", {"--demo", "--collect", "tcp:127.0.0.1:1"}, 1, "an answer after 200 ms"},
        {"fetch", {"nonsense"}, 1, "address 'nonsense'"},
    };
    CHECK_RUNS(runs);
}

TEST(example_supervised_restarts_and_gives_up)
{
    static const struct run runs[] = {
        {"supervised", {NULL}, 0, "200 of 200 steps done by 4 workers"},
        {"supervised", {"--crash", "0"}, 0, "in 4 starts"},
        {"supervised", {"--crash", "100", "--restarts", "2"}, 1, "given up: task 'work'"},
    };
    CHECK_RUNS(runs);
}

TEST(example_orders_goes_on_without_an_optional_dependency)
{
    static const struct run runs[] = {
        {"orders", {NULL}, 0, "1000 orders, 0 of them without a price, total 13500"},
        {"orders", {"--no-prices"}, 0, "1000 orders, 1000 of them without a price, total 0"},
        {"orders", {"--map"}, 0, "pool class 'pricing/orders' of orders/main/shop"},
        {"orders", {"--metrics"}, 0, "weir_channel_accepted_total{channel=\"orders\"} 1000"},
    };
    CHECK_RUNS(runs);
}

TEST_WITH(example_bank_has_a_race_that_only_simulation_finds, .timeout_ms = 60000)
{
    static const struct run runs[] = {
        {"bank_test", {"nobody_is_overdrawn_on_a_thousand_days"}, 0, "1 passed, 0 failed"},
        {"bank_test",
         {"hasty_transfers_overdraw_nobody"},
         1,
         "invariant 'nobody is overdrawn' does not hold"},
        {"bank_test", {"transfers_overdraw_nobody"}, 0, "1 passed, 0 failed"},
        {"bank_test", {"*vault*"}, 0, "2 passed, 0 failed"},
    };
    test_skip_without_sim();
    CHECK_RUNS(runs);
}

/* Every job that was taken was finished, or cut off and saved. */
static void check_jobs(const char *output, int *ret_cut_off)
{
    const char *line = strstr(output, "stopping");
    int taken;
    int finished;

    CHECK(line);
    line = strstr(line, "takes on no more work");
    CHECK(line);
    while (line && sscanf(line, "%d jobs taken, %d finished, %d cut off", &taken, &finished,
                          ret_cut_off) != 3) {
        line = strchr(line, '\n');
        if (line) line++;
    }
    CHECK(line);
    CHECK_INT(taken, >, 0);
    CHECK_INT(finished + *ret_cut_off, ==, taken);
}

TEST(example_shutdown_drains_and_reports_what_it_cut_off)
{
    static char output[PROGRAM_OUTPUT_BYTES];
    char after[16];
    int cut_off;

    /* Long enough for some jobs to come, also where everything is slow. */
    (void)snprintf(after, sizeof after, "%d", 500 * test_slower());
    CHECK_EXIT(test_exec((const char *const[]){example("shutdown"), "--after", after, "--drain",
                                               "20", NULL},
                         output, sizeof output),
               0, output);
    check_jobs(output, &cut_off);
    CHECK_INT(cut_off, >, 0);
    CHECK_CONTAINS(output, "was cut off after");
    CHECK_EXIT(test_exec((const char *const[]){example("shutdown"), "--after", after, "--drain",
                                               "600000", NULL},
                         output, sizeof output),
               0, output);
    check_jobs(output, &cut_off);
    CHECK_INT(cut_off, ==, 0);
}

TEST(example_shutdown_drains_at_sigterm)
{
    static struct program shutdown_program;

    program_start(&shutdown_program, (const char *const[]){example("shutdown"), "--after", "0",
                                                           "--drain", "15000", NULL});
    program_expect(&shutdown_program, "taking jobs");
    CHECK_INT(kill(shutdown_program.pid, SIGTERM), ==, 0);
    CHECK_EXIT(program_end(&shutdown_program), 0, shutdown_program.text);
    CHECK_CONTAINS(shutdown_program.text, "0 cut off and saved");
}

TEST(example_embed_serves_both_loops)
{
    static struct program embed;

    program_start(&embed, (const char *const[]){example("embed"), "--ticks", "20", NULL});
    CHECK_INT(write(embed.in, "hello\n", 6), ==, 6);
    program_expect(&embed, "weir: HELLO");
    program_expect(&embed, "host: tick");
    CHECK_EXIT(program_end(&embed), 0, embed.text);
    CHECK_CONTAINS(embed.text, "1 lines");
}

TEST(example_process_pool_loses_one_picture_and_goes_on)
{
    if (test_emulated()) TEST_SKIP("the emulator makes no process with a pidfd");
    static const struct run runs[] = {
        {"process_pool", {NULL}, 0, "12 pictures, 1 failed"},
        {"process_pool", {"--helpers", "1", NULL}, 0, "ended when running a job, with signal 11"},
        {"process_pool", {"--pictures", "3", NULL}, 0, "3 pictures, 0 failed"},
    };
    CHECK_RUNS(runs);
}

TEST(example_tour_finds_what_the_guide_promises)
{
    static const struct run runs[] = {{"tour", {NULL}, 0, "first_bytes"}};
    CHECK_RUNS(runs);
}

/* Once for all that it says: its timeouts are those of a service, 50 ms and more. */
TEST_WITH(example_resilience_degrades_and_recovers, .timeout_ms = 60000)
{
    static const char *const says[] = {
        "breaker 'prices': closed -> open",
        "breaker 'prices': half open -> closed",
        ", kept as a letter",
        "away 0+40",
    };
    static char output[PROGRAM_OUTPUT_BYTES];

    CHECK_EXIT(test_exec((const char *const[]){example("resilience"), NULL}, output, sizeof output),
               0, output);
    for (size_t i = 0; i < sizeof says / sizeof says[0]; i++) CHECK_CONTAINS(output, says[i]);
}

/* Twice: what the first run has left is there. */
TEST_WITH(example_jobs_works_off_its_jobs_and_finds_them_again, .timeout_ms = 60000)
{
    static const char *const says[] = {"twice asked for, one job", "welcome, ada@example.org",
                                       "charge died after 3 attempts: [ECONNREFUSED: the bank",
                                       "job ended: dead\n"};
    static char output[PROGRAM_OUTPUT_BYTES];
    char folder[] = "/tmp/weir-test-XXXXXX";
    char backup[64];

    CHECK(mkdtemp(folder) != NULL);
    (void)snprintf(backup, sizeof backup, "%s-backup", folder);
    for (int round = 0; round < 2; round++) {
        CHECK_EXIT(
            test_exec((const char *const[]){example("jobs"), folder, NULL}, output, sizeof output),
            0, output);
        for (size_t i = 0; i < sizeof says / sizeof says[0]; i++) CHECK_CONTAINS(output, says[i]);
    }
    CHECK_EXIT(test_exec((const char *const[]){example("jobs"), NULL}, output, sizeof output), 2,
               output);
    folder_remove_all(folder);
    folder_remove_all(backup);
}

/* ---- What the documents show is what is compiled ---- */

/* The next ```c block of a document; NULL at the end. `ret_length` without the fences. */
static const char *next_block(const char **at, size_t *ret_length)
{
    const char *begin = strstr(*at, "\n```c\n");
    const char *end;

    if (!begin) return NULL;
    begin += strlen("\n```c\n");
    end = strstr(begin, "\n```");
    CHECK(end);
    *at = end + 1;
    *ret_length = (size_t)(end + 1 - begin);
    return begin;
}

TEST(readme_shows_examples_hello)
{
    const char *readme = source("README.md");
    const char *program = strstr(source("examples/hello.c"), "#include");
    size_t length;
    const char *block = next_block(&readme, &length);

    CHECK(block);
    CHECK(program);
    if (strlen(program) != length || memcmp(block, program, length) != 0)
        TEST_FAIL("the first C block of README.md is not examples/hello.c, but\n%.*s", (int)length,
                  block);
}

TEST(guide_shows_examples_tour)
{
    const char *guide = source("docs/guide/concepts.md");
    const char *tour = source("examples/tour.c");
    const char *block;
    size_t length;
    int count = 0;

    while ((block = next_block(&guide, &length))) {
        if (!memmem(tour, strlen(tour), block, length))
            TEST_FAIL("this block of docs/guide/concepts.md is not in examples/tour.c:\n%.*s",
                      (int)length, block);
        count++;
    }
    CHECK_INT(count, >=, 8);
}

TEST(guide_shows_examples_resilience)
{
    const char *guide = source("docs/guide/resilience.md");
    const char *program = source("examples/resilience.c");
    const char *block;
    size_t length;
    int count = 0;

    while ((block = next_block(&guide, &length))) {
        if (!memmem(program, strlen(program), block, length))
            TEST_FAIL(
                "this block of docs/guide/resilience.md is not in examples/resilience.c:\n%.*s",
                (int)length, block);
        count++;
    }
    CHECK_INT(count, >=, 6);
}

TEST(guide_shows_examples_jobs)
{
    const char *guide = source("docs/guide/jobs.md");
    const char *program = source("examples/jobs.c");
    const char *block;
    size_t length;
    int count = 0;

    while ((block = next_block(&guide, &length))) {
        if (!memmem(program, strlen(program), block, length))
            TEST_FAIL("this block of docs/guide/jobs.md is not in examples/jobs.c:\n%.*s",
                      (int)length, block);
        count++;
    }
    CHECK_INT(count, >=, 12);
}
