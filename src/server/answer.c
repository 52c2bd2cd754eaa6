/* answer.c - an answer: what a handler makes it of, and how it is sent. */
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "proto/http_value.h"
#include "server/pack.h"
#include "server/service_inside.h"

enum { DETAIL_BYTES = 512, NUMBER_BYTES = 24, TYPE_BYTES = 64, SMALL_BODY_BYTES = 1024 };

/* ---- What a handler says ---- */

/* Whatever was prepared is dropped. False: a part was sent, so nothing can be answered any more. */
static bool begin(struct exchange *x, unsigned status, const char *type)
{
    if (x->streams) {
        struct work *work = x->session->work;

        x->close = true;
        if (work->send_error == 0) work->send_error = WEIR_EREFUSED; /* no end is sent */
        return false;
    }
    buffer_clear(&x->out);
    x->status = status;
    x->type = type;
    return true;
}

struct json_writer *exchange_json(struct exchange *x, unsigned status)
{
    (void)begin(x, status, "application/json");
    json_writer_init(&x->json, &x->out);
    return &x->json;
}

struct buffer *exchange_text(struct exchange *x, unsigned status, const char *type)
{
    (void)begin(x, status, type);
    return &x->out;
}

int exchange_bytes(struct exchange *x, unsigned status, const char *type, struct bytes body)
{
    buffer_put_bytes(exchange_text(x, status, type), body);
    return 0;
}

int exchange_empty(struct exchange *x, unsigned status)
{
    (void)begin(x, status, NULL);
    return 0;
}

void exchange_set(struct exchange *x, const char *name, const char *value)
{
    size_t count = strlen(value);
    char *at;

    if (x->streams) return;
    at = x->field_count < EXCHANGE_FIELDS_MAX ? buffer_extend(&x->texts, count) : NULL;
    if (!at) {
        buffer_fail(&x->texts, -EMSGSIZE); /* the answer says so */
        return;
    }
    memcpy(at, value, count);
    x->fields[x->field_count++] = (struct http_field){bytes_of(name), {at, count}};
}

/* ---- Problems ---- */

static void put_problem(struct exchange *x, const struct problem_kind *kind, const char *member,
                        int64_t value, const char *detail)
{
    char instance[NUMBER_BYTES], type[TYPE_BYTES];

    (void)snprintf(type, sizeof type, "urn:weir:problem:%s", kind->code);
    json_writer_init(&x->json, &x->out);
    json_open_object(&x->json);
    json_key(&x->json, "type");
    json_put_string(&x->json, type);
    json_key(&x->json, "title");
    json_put_string(&x->json, kind->title);
    json_key(&x->json, "status");
    json_put_uint(&x->json, kind->status);
    json_key(&x->json, "code");
    json_put_string(&x->json, kind->code);
    json_key(&x->json, "detail");
    json_put_string(&x->json, detail);
    json_key(&x->json, "instance");
    (void)snprintf(instance, sizeof instance, "%llu", (unsigned long long)x->number);
    json_put_string(&x->json, instance);
    if (member) {
        json_key(&x->json, member);
        json_put_int(&x->json, value);
    }
    if (kind->retry_after_s > 0) {
        json_key(&x->json, "retry_after");
        json_put_int(&x->json, kind->retry_after_s);
    }
    json_close(&x->json);
}

static int problem(struct exchange *x, enum problem_code code, const char *member, int64_t value,
                   const char *detail)
{
    const struct problem_kind *kind = problem_kind_of(code);
    char number[NUMBER_BYTES];

    if (!begin(x, kind->status, "application/problem+json")) return WEIR_EREFUSED;
    x->field_count = 0;
    put_problem(x, kind, member, value, detail);
    if (kind->retry_after_s > 0) {
        (void)snprintf(number, sizeof number, "%d", kind->retry_after_s);
        exchange_set(x, "retry-after", number);
    }
    if (code == PROBLEM_UNAUTHORIZED) exchange_set(x, "www-authenticate", "Bearer");
    return WEIR_EREFUSED;
}

int exchange_problem_with(struct exchange *x, enum problem_code code, const char *member,
                          int64_t value, const char *format, ...)
{
    char detail[DETAIL_BYTES];
    va_list list;

    va_start(list, format);
    (void)vsnprintf(detail, sizeof detail, format, list);
    va_end(list);
    return problem(x, code, member, value, detail);
}

int exchange_problem(struct exchange *x, enum problem_code code, const char *format, ...)
{
    char detail[DETAIL_BYTES];
    va_list list;

    va_start(list, format);
    (void)vsnprintf(detail, sizeof detail, format, list);
    va_end(list);
    return problem(x, code, NULL, 0, detail);
}

bool exchange_is_read(const struct exchange *x)
{
    return x->message->method == METHOD_GET || x->message->method == METHOD_HEAD;
}

/* The request's own deadline has passed: a read can be asked for again, a write may have
 * happened. */
static int problem_of_deadline(struct exchange *x)
{
    long long ms = x->route ? (long long)x->route->deadline_ms : 0;

    if (exchange_is_read(x)) {
        return exchange_problem(x, PROBLEM_OVERLOADED, "it was not done within %lld ms", ms);
    }
    return exchange_problem(x, PROBLEM_OUTCOME_UNKNOWN,
                            "it was not done within %lld ms, and may be done later", ms);
}

int exchange_fail(struct exchange *x, int error, const char *what)
{
    const char *why = weir_why();

    if (error == WEIR_ETIMEDOUT ||
        (error == WEIR_ECANCELED && weir_cause(NULL) == WEIR_CAUSE_DEADLINE)) {
        return problem_of_deadline(x);
    }
    /* A write may have been cut off behind its decision, while it waited for the disk. */
    if ((error == WEIR_ECANCELED || error == WEIR_ECLOSED) && !exchange_is_read(x)) {
        return exchange_problem(x, PROBLEM_OUTCOME_UNKNOWN,
                                "it was cut off as the server stops, and may be done");
    }
    if (error == WEIR_EREFUSED && *why) {
        return exchange_problem(x, problem_of_error(error), "%s", why);
    }
    return exchange_problem(x, problem_of_error(error), "%s: %s", what, weir_strerror(error));
}

void exchange_fail_silent(struct exchange *x, int error)
{
    (void)exchange_fail(x, error, "request");
}

/* ---- Sending ---- */

bool exchange_keeps(const struct exchange *x)
{
    const struct session *session = x->session;
    const struct service_limits *limits = &session->service->spec.limits;
    const struct work *work = session->work;
    unsigned max = limits->requests_per_connection_max;

    if (x->close || !x->message->keep_alive || work->continue_owed) return false;
    if (max > 0 && atom_load(&session->requests) >= max) return false;
    if (!work->body_whole && x->message->has_length &&
        x->message->length - work->body_bytes > DRAIN_BYTES_MAX) {
        return false;
    }
    return !weir_stopping();
}

/* "Sun, 06 Nov 1994 08:49:37 GMT", made anew when a second has passed. */
static struct bytes date(struct session *session)
{
    struct ward *ward = session->ward;
    int64_t now_ns = session->work->now_ns;

    sanitize_acquire(ward->date); /* from other tasks of this worker */
    if (ward->date_at_ns == 0 || now_ns - ward->date_at_ns >= 500000000) {
        const struct kernel *kernel = worker_self()->kernel;

        http_date_format(kernel->wall_ns(kernel) / 1000000000, ward->date);
        ward->date_at_ns = now_ns;
    }
    sanitize_release(ward->date);
    return (struct bytes){ward->date, HTTP_DATE_BYTES - 1};
}

static void begin_head(struct exchange *x, struct http_writer *writer, bool keeps, unsigned minor)
{
    struct work *work = x->session->work;

    buffer_clear(&work->head);
    http_write_answer(writer, &work->head, x->status, x->message->method, minor, keeps);
    http_write_field(writer, BYTES("date"), date(x->session));
    if (x->type) http_write_field(writer, BYTES("content-type"), bytes_of(x->type));
    for (unsigned i = 0; i < x->field_count; i++) {
        http_write_field(writer, x->fields[i].name, x->fields[i].value);
    }
}

static int end_head(const struct http_writer *writer)
{
    if (writer->state == HTTP_WRITING_FAILED) return writer->error;
    return buffer_error(writer->out);
}

/* What was prepared cannot be sent as it is. */
static void check_answer(struct exchange *x)
{
    if (x->status == 0) {
        (void)exchange_problem(x, PROBLEM_INTERNAL, "the handler has answered nothing");
        return;
    }
    if (buffer_error(&x->out) == -EMSGSIZE) {
        (void)exchange_problem(x, PROBLEM_INTERNAL, "the answer is too large: ask for less");
    } else if (buffer_error(&x->out) < 0 || buffer_error(&x->texts) < 0) {
        buffer_clear(&x->texts);
        (void)exchange_problem(x, PROBLEM_INTERNAL, "no memory for the answer");
    }
}

static bool is_json(const struct exchange *x)
{
    return x->type && (strcmp(x->type, "application/json") == 0 ||
                       strcmp(x->type, "application/problem+json") == 0);
}

/* The body as it is sent: compressed if that is worth it and wanted. */
static struct bytes body_of(struct exchange *x)
{
    struct session *session = x->session;
    struct bytes body = buffer_bytes(&x->out);

    if (body.count < PACK_BYTES_MIN || body.count > PACK_BYTES_MAX || !is_json(x)) return body;
    exchange_set(x, "vary", "accept-encoding");
    if (!http_field_first(x->message->fields, BYTES("accept-encoding")) ||
        http_accepts_encoding(x->message->fields, BYTES("gzip")) == 0) {
        return body;
    }
    if (!pack(&session->ward->packer, body, &session->work->packed)) return body;
    exchange_set(x, "content-encoding", "gzip");
    return buffer_bytes(&session->work->packed);
}

/* The end is said to clients of HTTP/1.0, too: of a head that was refused the version is not
 * known. */
static int make_head(struct exchange *x, struct http_writer *writer, size_t body_bytes)
{
    bool keeps = exchange_keeps(x);

    begin_head(x, writer, keeps, keeps ? x->message->minor : 1);
    http_write_length(writer, body_bytes);
    return end_head(writer);
}

static int send_whole(struct exchange *x)
{
    struct work *work = x->session->work;
    struct http_writer writer;
    struct bytes body;
    struct iovec parts[2];
    int r;

    check_answer(x);
    body = body_of(x);
    r = make_head(x, &writer, body.count);
    if (r < 0) {
        (void)exchange_problem(x, PROBLEM_INTERNAL, "a field of the answer is not valid");
        body = buffer_bytes(&x->out);
        r = make_head(x, &writer, body.count);
    }
    if (r < 0) return r;
    if (writer.silent || writer.bodyless) body.count = 0;
    if (body.count <= SMALL_BODY_BYTES) { /* to copy it costs less than a second part */
        buffer_put_bytes(&work->head, body);
        if (buffer_error(&work->head) < 0) return buffer_error(&work->head);
        body.count = 0;
    }
    parts[0] = (struct iovec){work->head.at, work->head.used};
    parts[1] = (struct iovec){(void *)(uintptr_t)body.at, body.count};
    return stream_write(x->session, parts, body.count > 0 ? 2 : 1);
}

int exchange_stream(struct exchange *x, unsigned status, const char *type)
{
    struct work *work = x->session->work;
    struct iovec part;
    int r;

    if (!begin(x, status, type)) return WEIR_EREFUSED;
    if (work->continue_owed && x->route->body_streams) {
        r = exchange_continue(x);
        if (r < 0) return r;
    }
    if (!work->body_whole && exchange_keeps(x)) {
        /* Of a body that was not read nothing may come between the pieces. */
        x->close = x->message->has_length ? x->message->length > 0 : x->message->chunked;
    }
    begin_head(x, &work->writer, exchange_keeps(x), x->message->minor);
    http_write_chunked(&work->writer);
    x->close = x->close || !work->writer.keep_alive;
    r = end_head(&work->writer);
    if (r < 0) return r;
    x->streams = true;
    part = (struct iovec){work->head.at, work->head.used};
    r = stream_write(x->session, &part, 1);
    if (r < 0) work->send_error = r;
    return r;
}

int exchange_stream_put(struct exchange *x, struct bytes piece)
{
    struct work *work = x->session->work;
    char line[NUMBER_BYTES];
    struct iovec parts[3];
    int count = 0;
    int r;

    assert(x->streams);
    if (work->send_error < 0) return work->send_error;
    if (work->writer.silent || work->writer.bodyless || piece.count == 0) return 0;
    if (work->writer.chunked) {
        int n = snprintf(line, sizeof line, "%zx\r\n", piece.count);
        parts[count++] = (struct iovec){line, (size_t)n};
    }
    parts[count++] = (struct iovec){(void *)(uintptr_t)piece.at, piece.count};
    if (work->writer.chunked) parts[count++] = (struct iovec){(void *)(uintptr_t) "\r\n", 2};
    r = stream_write(x->session, parts, count);
    if (r < 0) work->send_error = r;
    return r;
}

/* Without its end the other side knows that the answer is not whole. */
static int send_end(struct exchange *x)
{
    struct work *work = x->session->work;
    struct iovec part = {(void *)(uintptr_t) "0\r\n\r\n", 5};

    if (work->send_error < 0) return work->send_error;
    if (!work->writer.chunked || work->writer.silent) return 0;
    return stream_write(x->session, &part, 1);
}

/* One that was large gives its memory back: kept, each of the works would in time have been large
 * once, and memory would grow for hours. */
static void shrink(struct buffer *buffer)
{
    size_t bytes_max = buffer->bytes_max;

    if (buffer->room <= KEPT_BYTES) return;
    buffer_deinit(buffer);
    buffer_init(buffer, bytes_max, work_resize, NULL);
}

int exchange_send(struct exchange *x)
{
    struct work *work = x->session->work;
    int r;

    /* Before it is sent: who takes its answer slowly does not hold its body. */
    work->whole = (struct bytes){NULL, 0};
    work_drop_body(x->session->service, work);
    r = x->streams ? send_end(x) : send_whole(x);
    work->lines_open = false;
    shrink(&x->out);
    shrink(&x->body);
    shrink(&work->packed);
    return r;
}
