/* log_sink.c - one line for each thing that is said. */
#include "server/log_sink.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
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

void log_sink_init(struct log_sink *sink, int fd, enum weir_log_level level, bool json)
{
    sink->fd = fd;
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

void log_say_fields(struct log_sink *sink, enum weir_log_level level, const char *message,
                    const struct log_field *fields, size_t count)
{
    const struct kernel *kernel = kernel_current();
    char line[LOG_LINE_BYTES];
    size_t bytes, sent = 0;

    if ((int)level > atom_load(&sink->level)) return;
    bytes = log_format(line, atom_load(&sink->json) != 0, kernel->wall_ns(kernel), level, message,
                       fields, count);
    while (sent < bytes) {
        ssize_t n = write(sink->fd, line + sent, bytes - sent);

        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return; /* nobody reads it: there is no place left to say so */
        sent += (size_t)n;
    }
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
