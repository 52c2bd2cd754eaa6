/* log_sink.h - the server's log: lines of key=value (logfmt) or of JSON, on one descriptor.
 *
 *     log_say(sink, WEIR_LOG_INFO, "listening", LOG_TEXT("address", text), LOG_INT("pid", pid));
 *     time=2026-01-02T03:04:05.678Z level=info msg=listening address=tcp:127.0.0.1:7411 pid=7
 *
 * It is the sink of the library too (weir_config.log). Control characters and quotes are escaped:
 * nobody who chooses a name can forge a line. A line has at most LOG_LINE_BYTES; what does not fit
 * is left out, whole fields at a time.
 *
 * Who does not read it, or slowly, holds nobody up for long: a line waits LOG_WAIT_MS for room,
 * those after it not at all, until LOG_PATIENT_AGAIN_NS later and there is room again. Lines that
 * find none are lost, and counted: the next one that is written comes after a line that says how
 * many.
 *
 * Invariants: one write for each line, of no more than PIPE_BUF, so that lines of several threads
 * are whole and a pipe that is ready takes them at once.
 * Threads: any.
 */
#ifndef WEIR_SERVER_LOG_SINK_H
#define WEIR_SERVER_LOG_SINK_H

#include <weir/log.h>

#include "base/atomic.h"

enum { LOG_LINE_BYTES = 4096, LOG_WAIT_MS = 100 };
#define LOG_PATIENT_AGAIN_NS INT64_C(5000000000)

struct log_sink {
    int fd;
    int own_fd; /* the same, or negative */
    bool is_socket;
    ATOM(int) level;          /* enum weir_log_level */
    ATOM(int) json;           /* else logfmt */
    ATOM(int) stuck;          /* there was no room for the last line */
    ATOM(int) torn;           /* the last line was written in part */
    ATOM(int64_t) patient_ns; /* until then nobody waits for room */
    ATOM(uint64_t) lost;
};

struct log_field {
    const char *key;
    const char *text; /* NULL: the number */
    int64_t number;
};
#define LOG_TEXT(key_, text_) ((struct log_field){.key = (key_), .text = (text_)})
#define LOG_INT(key_, number_) ((struct log_field){.key = (key_), .number = (int64_t)(number_)})

void log_sink_init(struct log_sink *sink, int fd, enum weir_log_level level, bool json);
/* Nobody says anything any more. */
void log_sink_deinit(struct log_sink *sink);
void log_sink_set(struct log_sink *sink, enum weir_log_level level, bool json);
enum weir_log_level log_level_named(const char *name); /* "info"; WEIR_LOG_UNSET: none */

/* A weir_log_fn. */
void log_sink_record(void *keep_sink, const weir_log_record *record);

void log_say_fields(struct log_sink *sink, enum weir_log_level level, const char *message,
                    const struct log_field *fields, size_t count);
#define log_say(sink, level, message, ...)                                        \
    log_say_fields((sink), (level), (message), (struct log_field[]){__VA_ARGS__}, \
                   sizeof((struct log_field[]){__VA_ARGS__}) / sizeof(struct log_field))

/* For tests: the line as it is written, with this Unix time. How many bytes. */
size_t log_format(char line[LOG_LINE_BYTES], bool json, int64_t unix_ns, enum weir_log_level level,
                  const char *message, const struct log_field *fields, size_t count);

#endif
