/* log_sink_test.c - lines of the log, in both formats. */
#include <fcntl.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/test.h"
#include "proto/json_read.h"
#include "server/log_sink.h"

static const int64_t then_ns = INT64_C(1767323045678) * 1000000;

TEST(logfmt_quotes_what_needs_it_and_nothing_can_forge_a_line)
{
    struct log_field fields[] = {LOG_TEXT("plain", "tcp:127.0.0.1:1"), LOG_TEXT("name", "a b"),
                                 LOG_TEXT("evil", "x\nlevel=error \"\x1b[31m"), LOG_INT("n", -3),
                                 LOG_TEXT("empty", "")};
    char line[LOG_LINE_BYTES];
    size_t bytes = log_format(line, false, then_ns, WEIR_LOG_INFO, "it is", fields, 5);

    line[bytes] = '\0';
    CHECK_STR(line, "time=2026-01-02T03:04:05.678Z level=info msg=\"it is\" plain=tcp:127.0.0.1:1 "
                    "name=\"a b\" evil=\"x\\x0alevel=error \\\"\\x1b[31m\" n=-3 empty=\"\"\n");
}

TEST(json_lines_are_json)
{
    struct log_field fields[] = {LOG_TEXT("evil", "\"\n\x01\xff"), LOG_INT("n", 7)};
    char line[LOG_LINE_BYTES], why[JSON_WHY_BYTES];
    struct json_key keys[8];
    size_t at, bytes = log_format(line, true, then_ns, WEIR_LOG_ERROR, "bad", fields, 2);

    CHECK_INT(line[bytes - 1], ==, '\n');
    CHECK_INT(json_check((struct bytes){line, bytes - 1},
                         &(struct json_limits){.depth_max = 1, .keys = keys, .key_room = 8}, &at,
                         why),
              ==, 0);
    CHECK(memmem(line, bytes, "\"n\":7", 5));
    CHECK(!memchr(line, '\n', bytes - 1));
}

TEST(what_does_not_fit_is_left_out_and_the_line_is_whole)
{
    static char much[LOG_LINE_BYTES * 2];
    struct log_field fields[] = {LOG_TEXT("much", much), LOG_TEXT("after", "it")};
    char line[LOG_LINE_BYTES];

    memset(much, 'x', sizeof much - 1);
    for (int json = 0; json < 2; json++) {
        size_t bytes = log_format(line, json, then_ns, WEIR_LOG_INFO, "m", fields, 2);

        CHECK_INT(line[bytes - 1], ==, '\n');
        CHECK(memmem(line, bytes, "after", 5) && !memmem(line, bytes, "much", 4));
        CHECK(!json || line[bytes - 2] == '}');
    }
}

/* Reads what there is; the pipe is empty then. */
static size_t read_all(int fd, char *text, size_t room)
{
    size_t used = 0;
    ssize_t n;

    while (used < room && (n = read(fd, text + used, room - used)) > 0) used += (size_t)n;
    return used;
}

TEST(a_log_that_nobody_reads_holds_nobody_up_and_says_what_is_missing)
{
    enum { LINES = 5000, ROOM = 1 << 17 };
    char *text = malloc(ROOM);
    struct log_sink sink;
    size_t used, written = 0;
    char missing[64];
    int ends[2];

    CHECK(text != NULL);
    CHECK_INT(pipe2(ends, O_CLOEXEC), ==, 0); /* the end that is written blocks, as a shell's */
    CHECK_INT(fcntl(ends[0], F_SETFL, O_NONBLOCK), ==, 0);
    log_sink_init(&sink, ends[1], WEIR_LOG_INFO, false);
    for (int i = 0; i < LINES; i++) log_say(&sink, WEIR_LOG_INFO, "line", LOG_INT("n", i));
    used = read_all(ends[0], text, ROOM);
    for (size_t i = 0; i < used; i++) written += text[i] == '\n';
    CHECK_INT(written, >, 0);
    CHECK_INT(written, <, LINES);
    CHECK_INT(text[used - 1], ==, '\n');

    log_say(&sink, WEIR_LOG_INFO, "after", LOG_INT("n", 0));
    used = read_all(ends[0], text, ROOM - 1);
    text[used] = '\0';
    (void)snprintf(missing, sizeof missing, "lines=%zu\n", LINES - written);
    CHECK_CONTAINS(text, missing);
    CHECK_CONTAINS(text, "msg=after n=0\n");
    log_sink_deinit(&sink);
    CHECK_INT(close(ends[0]), ==, 0);
    CHECK_INT(close(ends[1]), ==, 0);
    free(text);
}

/* It has room for less than a line before it has none. */
TEST(a_terminal_that_nobody_reads_holds_nobody_up)
{
    struct log_sink sink;
    int master, terminal;

    CHECK_INT(openpty(&master, &terminal, NULL, NULL, NULL), ==, 0);
    log_sink_init(&sink, terminal, WEIR_LOG_INFO, false);
    for (int i = 0; i < 5000; i++) log_say(&sink, WEIR_LOG_INFO, "line", LOG_INT("n", i));
    CHECK_INT(atom_load(&sink.lost), >, 0);
    log_sink_deinit(&sink);
    CHECK_INT(close(terminal), ==, 0);
    CHECK_INT(close(master), ==, 0);
}
