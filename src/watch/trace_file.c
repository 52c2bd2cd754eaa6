/* trace_file.c - spans as lines of OTLP JSON in a file that is bounded and rotated.
 *
 * A line is one ExportTraceServiceRequest by the JSON encoding of OTLP 1.x (opentelemetry.io,
 * "OTLP/HTTP", "JSON Protobuf Encoding"; opentelemetry/proto/trace/v1/trace.proto): names in
 * lowerCamelCase, ids in hex, 64-bit numbers as strings, enumerations as numbers.
 *
 * Invariant: the file ends with a whole line whenever a write has returned: what a failed one
 * has left is cut off, at the latest before the next.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "rt/mem.h"
#include "watch/text.h"
#include "watch/trace.h"

enum { PATH_BYTES_MAX = 4096, SUFFIX_BYTES = 8 };

struct trace_file {
    const struct kernel *kernel;
    int fd;        /* -1: it could not be opened again */
    int64_t bytes; /* whole lines */
    bool torn;     /* something behind them could not be cut off */
    int64_t bytes_max;
    int files;
    struct text line;
    char path[];
};

/* ---- One request ---- */

static void say_id(struct text *text, const char *name, const uint8_t *id, size_t bytes)
{
    text_say(text, "\"%s\":\"", name);
    for (size_t i = 0; i < bytes; i++) text_say(text, "%02x", id[i]);
    text_say(text, "\"");
}

static void say_string(struct text *text, const char *name, const char *string)
{
    text_say(text, ",\"%s\":", name);
    text_json(text, string);
}

static void say_time(struct text *text, const char *name, int64_t ns)
{
    text_say(text, ",\"%s\":\"%lld\"", name, (long long)ns);
}

static void say_key(struct text *text, const char *key)
{
    text_say(text, "{\"key\":");
    text_json(text, key);
    text_say(text, ",\"value\":{");
}

static void say_text_attribute(struct text *text, const char *key, const char *value)
{
    say_key(text, key);
    text_say(text, "\"stringValue\":");
    text_json(text, value);
    text_say(text, "}}");
}

static void say_attribute(struct text *text, const weir_span_attribute *attribute)
{
    switch (attribute->type) {
    case WEIR_SPAN_STRING: say_text_attribute(text, attribute->key, attribute->text); return;
    case WEIR_SPAN_INT:
        say_key(text, attribute->key);
        text_say(text, "\"intValue\":\"%lld\"}}", (long long)attribute->number);
        return;
    case WEIR_SPAN_BOOL:
        say_key(text, attribute->key);
        text_say(text, "\"boolValue\":%s}}", attribute->number ? "true" : "false");
        return;
    }
}

static void say_attributes(struct text *text, const weir_span_data *span)
{
    if (span->attributes) {
        text_say(text, ",\"attributes\":[");
        for (const weir_span_attribute *a = span->attributes; a; a = a->next) {
            say_attribute(text, a);
            if (a->next) text_say(text, ",");
        }
        text_say(text, "]");
    }
    if (span->attributes_dropped) {
        text_say(text, ",\"droppedAttributesCount\":%u", span->attributes_dropped);
    }
}

static void say_events(struct text *text, const weir_span_data *span, int64_t offset_ns)
{
    if (span->events) {
        text_say(text, ",\"events\":[");
        for (const weir_span_event_data *e = span->events; e; e = e->next) {
            int64_t time_ns = e->time_ns + offset_ns;
            text_say(text, "{\"timeUnixNano\":\"%lld\"", (long long)time_ns);
            say_string(text, "name", e->name);
            if (e->detail) {
                text_say(text, ",\"attributes\":[");
                say_text_attribute(text, "detail", e->detail);
                text_say(text, "]");
            }
            text_say(text, e->next ? "}," : "}");
        }
        text_say(text, "]");
    }
    if (span->events_dropped) text_say(text, ",\"droppedEventsCount\":%u", span->events_dropped);
}

static void say_links(struct text *text, const weir_span_data *span)
{
    if (span->links) {
        text_say(text, ",\"links\":[");
        for (const weir_span_link_data *l = span->links; l; l = l->next) {
            text_say(text, "{");
            say_id(text, "traceId", l->trace_id, sizeof l->trace_id);
            text_say(text, ",");
            say_id(text, "spanId", l->span_id, sizeof l->span_id);
            if (*l->state) say_string(text, "traceState", l->state);
            text_say(text, ",\"flags\":%u}%s", l->flags, l->next ? "," : "");
        }
        text_say(text, "]");
    }
    if (span->links_dropped) text_say(text, ",\"droppedLinksCount\":%u", span->links_dropped);
}

static bool has_parent(const weir_span_data *span)
{
    static const uint8_t none[WEIR_SPAN_ID_BYTES];
    return memcmp(span->parent_id, none, sizeof none) != 0;
}

/* Bits 8 and 9 of the flags: it is known whether the parent is remote, and it is. */
static unsigned span_flags(const weir_span_data *span)
{
    return span->flags | 0x100u | (span->parent_is_remote ? 0x200u : 0);
}

static void say_span(struct text *text, const weir_span_data *span, int64_t offset_ns)
{
    text_say(text, "{");
    say_id(text, "traceId", span->trace_id, sizeof span->trace_id);
    text_say(text, ",");
    say_id(text, "spanId", span->span_id, sizeof span->span_id);
    if (*span->state) say_string(text, "traceState", span->state);
    if (has_parent(span)) {
        text_say(text, ",");
        say_id(text, "parentSpanId", span->parent_id, sizeof span->parent_id);
    }
    text_say(text, ",\"flags\":%u", span_flags(span));
    say_string(text, "name", span->name);
    text_say(text, ",\"kind\":%d", (int)span->kind);
    say_time(text, "startTimeUnixNano", span->start_ns + offset_ns);
    say_time(text, "endTimeUnixNano", span->end_ns + offset_ns);
    say_attributes(text, span);
    say_events(text, span, offset_ns);
    say_links(text, span);
    text_say(text, ",\"status\":{");
    if (span->status != WEIR_SPAN_UNSET) text_say(text, "\"code\":%d", (int)span->status);
    if (*span->message) say_string(text, "message", span->message);
    text_say(text, "}}");
}

void trace_request_json(struct text *text, const weir_trace_batch *batch)
{
    text_say(text, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[");
    say_text_attribute(text, "service.name", batch->service);
    text_say(text,
             "]},\"scopeSpans\":[{\"scope\":{\"name\":\"weir\",\"version\":\"%d.%d.%d\"},"
             "\"spans\":[",
             WEIR_VERSION_MAJOR, WEIR_VERSION_MINOR, WEIR_VERSION_PATCH);
    for (size_t i = 0; i < batch->count; i++) {
        if (i > 0) text_say(text, ",");
        say_span(text, batch->spans[i], batch->unix_offset_ns);
    }
    text_say(text, "]}]}]}\n");
}

/* ---- The file ---- */

static int open_again(struct trace_file *file)
{
    const struct kernel *kernel = file->kernel;
    struct stat status = {0};
    int fd, r;

    do fd = kernel->open(kernel, file->path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    while (fd == -EINTR);
    if (fd < 0) return fd;
    do r = kernel->lock_file(kernel, fd, true);
    while (r == -EINTR);
    if (r == 0) r = kernel->fstat(kernel, fd, &status);
    if (r < 0) {
        (void)kernel->close(kernel, fd);
        return r;
    }
    file->fd = fd;
    file->bytes = status.st_size;
    file->torn = false;
    return 0;
}

/* What a process that was killed has left of its last line gets an end, so that it is one. */
static int end_last_line(struct trace_file *file)
{
    const struct kernel *kernel = file->kernel;
    char last = '\n';
    ssize_t n;

    if (file->bytes == 0) return 0;
    do n = kernel->pread(kernel, file->fd, &last, 1, file->bytes - 1);
    while (n == -EINTR);
    if (n < 0) return (int)n;
    if (last == '\n') return 0;
    do n = kernel->pwrite(kernel, file->fd, "\n", 1, file->bytes);
    while (n == -EINTR);
    if (n < 0) return (int)n;
    file->bytes++;
    return 0;
}

static void close_file(struct trace_file *file)
{
    if (file->fd >= 0) (void)file->kernel->close(file->kernel, file->fd);
    file->fd = -1;
}

/* PATH.1 becomes PATH.2 and so on, and PATH becomes PATH.1; the oldest is overwritten. */
static int rotate(struct trace_file *file)
{
    const struct kernel *kernel = file->kernel;
    char from[PATH_BYTES_MAX + SUFFIX_BYTES], to[PATH_BYTES_MAX + SUFFIX_BYTES];
    int r = 0;

    if (file->files == 1) {
        r = kernel->truncate(kernel, file->fd, 0);
        if (r == 0) file->bytes = 0;
        return r;
    }
    for (int i = file->files - 1; i > 0; i--) {
        (void)snprintf(to, sizeof to, "%s.%d", file->path, i);
        if (i > 1) {
            (void)snprintf(from, sizeof from, "%s.%d", file->path, i - 1);
        } else {
            (void)snprintf(from, sizeof from, "%s", file->path);
        }
        r = kernel->rename(kernel, from, to);
        if (r < 0 && r != -ENOENT) return r; /* lines are lost until that works again */
    }
    close_file(file);
    return open_again(file);
}

static int cut(struct trace_file *file)
{
    int r = file->kernel->truncate(file->kernel, file->fd, file->bytes);
    file->torn = r < 0;
    return r;
}

static int append(struct trace_file *file, const char *data, size_t bytes)
{
    const struct kernel *kernel = file->kernel;
    size_t done = 0;

    while (done < bytes) {
        ssize_t n = kernel->pwrite(kernel, file->fd, data + done, bytes - done,
                                   file->bytes + (int64_t)done);
        if (n == -EINTR) continue;
        if (n <= 0) {
            if (done > 0) (void)cut(file);
            return n < 0 ? (int)n : -ENOSPC;
        }
        done += (size_t)n;
    }
    file->bytes += (int64_t)bytes;
    return 0;
}

/* A file that can be written to, and is not too large for so many bytes more. */
static int make_ready(struct trace_file *file, size_t bytes)
{
    int r = 0;

    if (file->fd < 0) r = open_again(file);
    if (r == 0 && file->torn) r = cut(file);
    if (r == 0 && file->bytes > 0 && (int64_t)bytes > file->bytes_max - file->bytes) {
        r = rotate(file);
    }
    return r;
}

int trace_file_write(void *state, const weir_trace_batch *batch)
{
    struct trace_file *file = state;
    int r;

    file->line.used = 0;
    trace_request_json(&file->line, batch);
    r = file->line.error;
    if (r == 0) r = make_ready(file, file->line.used);
    if (r == 0) r = append(file, file->line.data, file->line.used);
    if (file->line.error) text_deinit(&file->line); /* the next one begins anew */
    return r;
}

/* ---- Opening and closing ---- */

int trace_file_check(const weir_trace_spec *spec)
{
    if (!spec->file_path) {
        if (!spec->file_bytes_max && !spec->files) return 0;
        return refuse("trace: file_bytes_max or files is set, and file_path is not");
    }
    if (!*spec->file_path || strlen(spec->file_path) >= PATH_BYTES_MAX) {
        return refuse("trace: file_path is empty, or longer than a path can be");
    }
    if (spec->file_bytes_max && spec->file_bytes_max < WEIR_TRACE_FILE_BYTES_MIN) {
        return refuse("trace: file_bytes_max is %zu, at least %d", spec->file_bytes_max,
                      WEIR_TRACE_FILE_BYTES_MIN);
    }
    if (spec->files < 0 || spec->files > WEIR_TRACE_FILES_MAX) {
        return refuse("trace: files is %d, must be 1 to %d, or 0 for %d", spec->files,
                      WEIR_TRACE_FILES_MAX, WEIR_TRACE_FILES_DEFAULT);
    }
    return 0;
}

int trace_file_open(const struct kernel *kernel, const weir_trace_spec *spec,
                    struct trace_file **ret_file)
{
    size_t path_bytes = strlen(spec->file_path) + 1;
    struct trace_file *file = mem_alloc_zeroed(sizeof *file + path_bytes);
    int r;

    if (!file) return -ENOMEM;
    memcpy(file->path, spec->file_path, path_bytes);
    file->kernel = kernel;
    file->bytes_max = WEIR_TRACE_FILE_BYTES_DEFAULT;
    if (spec->file_bytes_max > INT64_MAX) {
        file->bytes_max = INT64_MAX;
    } else if (spec->file_bytes_max > 0) {
        file->bytes_max = (int64_t)spec->file_bytes_max;
    }
    file->files = spec->files ? spec->files : WEIR_TRACE_FILES_DEFAULT;
    file->fd = -1;
    text_init(&file->line);
    r = open_again(file);
    if (r == 0) r = end_last_line(file);
    if (r == 0) {
        *ret_file = file;
        return 0;
    }
    if (r == -EAGAIN) {
        r = refuse("trace: file '%s' is being written to by another runtime", spec->file_path);
    } else if (r != -ENOMEM) {
        r = refuse_as(r, "trace: file '%s': %s", spec->file_path, weir_strerror(r));
    }
    trace_file_close(file);
    return r;
}

void trace_file_close(struct trace_file *file)
{
    if (!file) return;
    close_file(file);
    text_deinit(&file->line);
    mem_free(file);
}
