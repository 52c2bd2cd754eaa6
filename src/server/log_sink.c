/* log_sink.c - one line for each thing that is said. */
#include "server/log_sink.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "proto/json_write.h"
#include "proto/utf8.h"
#include "rt/kernel.h"

static const char *const names[] = {
    [WEIR_LOG_OFF] = "off",   [WEIR_LOG_ERROR] = "error", [WEIR_LOG_WARNING] = "warning",
    [WEIR_LOG_INFO] = "info", [WEIR_LOG_DEBUG] = "debug",
};
enum { LEVELS = sizeof names / sizeof *names, TIME_BYTES = 40 };

enum weir_log_level log_level_named(const char *name)
{
    for (int i = WEIR_LOG_OFF; i < LEVELS; i++)
        if (strcmp(names[i], name) == 0) return (enum weir_log_level)i;
    return WEIR_LOG_UNSET;
}

/* A description of its own, by which no write waits: the flags of the one that it was given are
 * those of other programs, too. What cannot be opened again is written as it is. */
static int open_again(int fd, mode_t type)
{
    char path[32];

    if (type != S_IFIFO && type != S_IFCHR) return -1;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

void log_sink_init(struct log_sink *sink, int fd, enum weir_log_level level, bool json)
{
    struct stat about;
    mode_t type = fstat(fd, &about) == 0 ? about.st_mode & S_IFMT : 0;

    sink->own_fd = open_again(fd, type);
    sink->fd = sink->own_fd >= 0 ? sink->own_fd : fd;
    sink->is_socket = type == S_IFSOCK;
    atom_store(&sink->stuck, 0);
    atom_store(&sink->torn, 0);
    atom_store(&sink->lost, 0);
    atom_store(&sink->patient_ns, 0);
    log_sink_set(sink, level, json);
}

void log_sink_set(struct log_sink *sink, enum weir_log_level level, bool json)
{
    atom_store(&sink->level, (int)level);
    atom_store(&sink->json, json ? 1 : 0);
}

static void format_time(char text[TIME_BYTES], int64_t unix_ns)
{
    time_t seconds = (time_t)(unix_ns / 1000000000);
    struct tm tm;
    size_t used;

    (void)gmtime_r(&seconds, &tm);
    used = strftime(text, TIME_BYTES, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(text + used, TIME_BYTES - used, ".%03dZ", (int)(unix_ns / 1000000 % 1000));
}

/* ---- logfmt ---- */

static bool is_plain(const char *text)
{
    if (!*text) return false;
    for (; *text; text++)
        if (!is_visible(*text) || *text == '"' || *text == '=' || *text == '\\') return false;
    return true;
}

static void put_quoted(struct buffer *out, const char *text)
{
    buffer_put_char(out, '"');
    for (; *text; text++) {
        char hex[8];

        if (*text == '"' || *text == '\\') {
            buffer_put_char(out, '\\');
            buffer_put_char(out, *text);
        } else if ((unsigned char)*text < ' ' || *text == 0x7f) {
            (void)snprintf(hex, sizeof hex, "\\x%02x", (unsigned char)*text);
            buffer_put_string(out, hex);
        } else {
            buffer_put_char(out, *text);
        }
    }
    buffer_put_char(out, '"');
}

static void put_pair(struct buffer *out, const struct log_field *field)
{
    if (out->used > 0) buffer_put_char(out, ' ');
    buffer_put_string(out, field->key);
    buffer_put_char(out, '=');
    if (!field->text)
        buffer_put_int(out, field->number);
    else if (is_plain(field->text))
        buffer_put_string(out, field->text);
    else
        put_quoted(out, field->text);
}

/* A field that does not fit is taken back. */
static void put_field(struct buffer *out, struct json_writer *json, const struct log_field *field)
{
    struct json_writer json_before;
    size_t used = out->used;

    if (json) json_before = *json;
    if (!json) {
        put_pair(out, field);
    } else {
        json_key(json, field->key);
        if (field->text)
            json_put_string(json, field->text);
        else
            json_put_int(json, field->number);
    }
    if (buffer_error(out) == 0 && out->used + 2 <= out->room) return;
    out->used = used;
    out->error = 0;
    if (json) *json = json_before;
}

size_t log_format(char line[LOG_LINE_BYTES], bool json, int64_t unix_ns, enum weir_log_level level,
                  const char *message, const struct log_field *fields, size_t count)
{
    struct json_writer writer = {0}, *json_to = json ? &writer : NULL;
    struct buffer out;
    char time[TIME_BYTES];

    buffer_init_fixed(&out, line, LOG_LINE_BYTES);
    if (json) {
        json_writer_init(&writer, &out);
        json_open_object(&writer);
    }
    format_time(time, unix_ns);
    put_field(&out, json_to, &LOG_TEXT("time", time));
    put_field(&out, json_to, &LOG_TEXT("level", names[level]));
    put_field(&out, json_to, &LOG_TEXT("msg", message));
    for (size_t i = 0; i < count; i++) put_field(&out, json_to, &fields[i]);
    if (json) json_close(&writer);
    buffer_put_char(&out, '\n');
    return out.used;
}

/* ---- Writing ---- */

/* Whether there is room. An end that nobody will ever read is ready, too: the write says so. Who
 * reads slowly makes room again and again: so nobody waits for it more than once in a while. */
static bool wait_until_ready(struct log_sink *sink)
{
    const struct kernel *kernel = kernel_current();
    struct pollfd fd = {.fd = sink->fd, .events = POLLOUT};
    bool patient =
        !atom_load(&sink->stuck) && kernel->now_ns(kernel) >= atom_load(&sink->patient_ns);
    bool ready = poll(&fd, 1, 0) > 0;

    if (!ready && patient) {
        atom_store(&sink->patient_ns, kernel->now_ns(kernel) + LOG_PATIENT_AGAIN_NS);
        (void)poll(&fd, 1, LOG_WAIT_MS); /* or until a signal */
        ready = poll(&fd, 1, 0) > 0;
    }
    if (atom_load(&sink->stuck) != !ready) atom_store(&sink->stuck, !ready);
    return ready;
}

static ssize_t put(const struct log_sink *sink, const char *bytes, size_t count)
{
    ssize_t n;

    do
        n = sink->is_socket ? send(sink->fd, bytes, count, MSG_DONTWAIT | MSG_NOSIGNAL)
                            : write(sink->fd, bytes, count);
    while (n < 0 && errno == EINTR);
    return n;
}

/* A pipe takes a line whole or not at all; a terminal may take some of it: that one is lost, and
 * the next one begins on a line of its own. */
static bool write_line(struct log_sink *sink, const char *line, size_t bytes)
{
    ssize_t n;

    static_assert(LOG_LINE_BYTES <= PIPE_BUF, "a pipe takes a line whole");
    if (!wait_until_ready(sink)) return false;
    if (atom_load(&sink->torn) && put(sink, "\n", 1) == 1) atom_store(&sink->torn, 0);
    n = put(sink, line, bytes);
    if (n > 0 && (size_t)n < bytes) atom_store(&sink->torn, 1);
    return n < 0 ? errno != EAGAIN : (size_t)n == bytes;
}

/* What could not be said before: one of the threads says it. */
static void say_lost(struct log_sink *sink, int64_t unix_ns, bool json)
{
    char line[LOG_LINE_BYTES];
    uint64_t lost = atom_exchange(&sink->lost, 0);
    const struct log_field field = LOG_INT("lines", lost);
    size_t bytes;

    if (lost == 0) return;
    bytes = log_format(line, json, unix_ns, WEIR_LOG_WARNING,
                       "lines are missing here: nobody read the log", &field, 1);
    if (!write_line(sink, line, bytes)) (void)atom_add(&sink->lost, lost);
}

void log_say_fields(struct log_sink *sink, enum weir_log_level level, const char *message,
                    const struct log_field *fields, size_t count)
{
    const struct kernel *kernel = kernel_current();
    bool json = atom_load(&sink->json) != 0;
    char line[LOG_LINE_BYTES];
    int64_t unix_ns;
    size_t bytes;

    if ((int)level > atom_load(&sink->level)) return;
    unix_ns = kernel->wall_ns(kernel);
    bytes = log_format(line, json, unix_ns, level, message, fields, count);
    if (atom_load(&sink->lost) > 0 && wait_until_ready(sink)) say_lost(sink, unix_ns, json);
    if (!write_line(sink, line, bytes)) (void)atom_add(&sink->lost, 1);
}

void log_sink_deinit(struct log_sink *sink)
{
    const struct kernel *kernel = kernel_current();

    say_lost(sink, kernel->wall_ns(kernel), atom_load(&sink->json) != 0);
    if (sink->own_fd >= 0) (void)close(sink->own_fd);
}

void log_sink_record(void *keep_sink, const weir_log_record *record)
{
    struct log_field fields[3];
    size_t count = 0;

    if (record->task[0]) fields[count++] = LOG_TEXT("task", record->task);
    if (record->scope[0]) fields[count++] = LOG_TEXT("scope", record->scope);
    if (record->worker >= 0) fields[count++] = LOG_INT("worker", record->worker);
    log_say_fields(keep_sink, record->level, record->message, fields, count);
}
