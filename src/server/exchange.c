/* exchange.c - a request as its handler reads it: parameters, query, body. */
#include "server/exchange.h"

#include <errno.h>
#include <stdio.h>

#include "proto/duration.h"
#include "server/service_inside.h"

/* ---- Beginning ---- */

/* Requests are numbered in the process: each ward takes some at a time. */
static uint64_t next_number(struct ward *ward)
{
    static ATOM(uint64_t) given;

    if (ward->number == ward->number_end) {
        ward->number = atom_add(&given, NUMBERS_AT_A_TIME);
        ward->number_end = ward->number + NUMBERS_AT_A_TIME;
    }
    return ++ward->number;
}

void exchange_begin(struct exchange *x, struct session *session)
{
    struct work *work = session->work;

    x->deps = session->service->spec.keep_deps;
    x->route = NULL;
    x->message = &work->parser.message;
    x->target = &work->target;
    memset(x->parameters, 0, sizeof x->parameters);
    x->who = NULL;
    x->peer = session->peer;
    x->secure = session->secure;
    x->scope = NULL;
    x->number = next_number(session->ward);
    x->session = session;
    x->status = 0;
    x->type = NULL;
    x->field_count = 0;
    x->turn = (weir_limit_pass){0};
    x->streams = x->close = false;
    buffer_clear(&x->body);
    buffer_clear(&x->out);
    buffer_clear(&x->texts);
    work->target.segment_count = work->target.pair_count = 0;
    work->lines_open = work->body_read = work->body_whole = false;
    work->piece = work->whole = (struct bytes){NULL, 0};
    work->continue_owed = x->message->expects_continue;
    work->body_bytes = work->sent_bytes = 0;
    work->body_began_ns = 0;
    work->send_error = 0;
}

/* A copy with its terminator, which lives as long as the exchange. */
static const char *text_of(struct exchange *x, struct bytes bytes)
{
    char *at = buffer_extend(&x->texts, bytes.count + 1);

    if (!at) return NULL;
    if (bytes.count > 0) memcpy(at, bytes.at, bytes.count);
    at[bytes.count] = '\0';
    return at;
}

int exchange_match(struct exchange *x, const struct route_match *match)
{
    x->route = match->route;
    for (unsigned i = 0; i < match->parameter_count; i++) {
        const char *text = text_of(x, match->parameters[i]);

        if (!text) return exchange_problem(x, PROBLEM_URI_TOO_LONG, "the path is too long");
        x->parameters[i] = (struct bytes){text, match->parameters[i].count};
    }
    return 1;
}

/* ---- Fields, parameters, query ---- */

const char *exchange_parameter(const struct exchange *x, unsigned index)
{
    const char *at = index < ROUTE_PARAMETERS_MAX ? x->parameters[index].at : NULL;
    return at ? at : "";
}

struct bytes exchange_field(const struct exchange *x, const char *name)
{
    const struct http_field *field = http_field_first(x->message->fields, bytes_of(name));
    return field ? field->value : (struct bytes){NULL, 0};
}

int exchange_query(struct exchange *x, const char *name, const char **ret_value)
{
    struct bytes value;
    const char *text;
    int r = http_target_query(x->target, bytes_of(name), &value);

    if (r == -ENOENT) return 0;
    if (r < 0) return exchange_problem(x, PROBLEM_BAD_QUERY, "'%s' is there more than once", name);
    text = text_of(x, value);
    if (!text) return exchange_problem(x, PROBLEM_URI_TOO_LONG, "the query is too long");
    *ret_value = text;
    return 1;
}

/* Digits only, and a sign if it may be negative. */
static bool parse_int(const char *text, int64_t *ret_value)
{
    bool negative = *text == '-';
    uint64_t value = 0;

    text += negative;
    if (!is_digit(*text)) return false;
    for (; is_digit(*text); text++) {
        if (value > (uint64_t)INT64_MAX / 10) return false;
        value = value * 10 + (uint64_t)(*text - '0');
        if (value > (uint64_t)INT64_MAX) return false;
    }
    *ret_value = negative ? -(int64_t)value : (int64_t)value;
    return *text == '\0';
}

int exchange_query_int(struct exchange *x, const char *name, int64_t min, int64_t max,
                       int64_t *ret_value)
{
    const char *text = "";
    int64_t value = 0;
    int r = exchange_query(x, name, &text);

    if (r <= 0) return r;
    if (!parse_int(text, &value) || value < min || value > max) {
        return exchange_problem(x, PROBLEM_BAD_QUERY, "'%s' must be a number from %lld to %lld",
                                name, (long long)min, (long long)max);
    }
    *ret_value = value;
    return 1;
}

int exchange_query_duration(struct exchange *x, const char *name, int64_t min_ms, int64_t max_ms,
                            int64_t *ret_ms)
{
    char shortest[DURATION_BYTES + 1], longest[DURATION_BYTES + 1];
    const char *text = "";
    int64_t ns = 0;
    int r = exchange_query(x, name, &text);

    if (r <= 0) return r;
    if (duration_parse(bytes_of(text), &ns) == 0 && ns / DURATION_MS >= min_ms &&
        ns / DURATION_MS <= max_ms) {
        *ret_ms = ns / DURATION_MS;
        return 1;
    }
    shortest[duration_format(min_ms * DURATION_MS, shortest)] = '\0';
    longest[duration_format(max_ms * DURATION_MS, longest)] = '\0';
    return exchange_problem(x, PROBLEM_BAD_QUERY, "'%s' must be a duration from %s to %s", name,
                            shortest, longest);
}

int exchange_query_only(struct exchange *x, const char *const *names)
{
    for (unsigned i = 0; i < x->target->pair_count; i++) {
        struct bytes name = x->target->pairs[i].name;
        const char *const *at = names;

        while (*at && !bytes_are(name, bytes_of(*at))) at++;
        if (*at) continue;
        return exchange_problem(x, PROBLEM_BAD_QUERY, "'%.*s' is not known here",
                                (int)(name.count < 64 ? name.count : 64), name.at);
    }
    return 0;
}

/* ---- The body ---- */

int exchange_continue(struct exchange *x)
{
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct iovec part = {(void *)(uintptr_t)text, sizeof text - 1};

    x->session->work->continue_owed = false;
    return stream_write(x->session, &part, 1);
}

/* Whether it comes at least as fast as is asked for, after a moment. */
static bool is_fast_enough(const struct exchange *x)
{
    const struct service_limits *limits = &x->session->service->spec.limits;
    const struct work *work = x->session->work;
    int64_t ms = (work->now_ns - work->body_began_ns) / 1000000;

    if (ms <= RATE_AFTER_MS) return true;
    return work->body_bytes >= limits->body_bytes_per_s_min * (uint64_t)ms / 1000;
}

/* The next bytes from the connection: how many, or why not (0: it is over, too early). */
static ssize_t read_input(struct exchange *x, char *to, size_t bytes)
{
    const struct service_limits *limits = &x->session->service->spec.limits;
    struct work *work = x->session->work;
    bool had_turn = x->turn.limit != NULL; /* with a body that streams */
    ssize_t n = WEIR_ETIMEDOUT;
    int r = 0;

    if (work->continue_owed) r = exchange_continue(x);
    if (r < 0) return r;
    if (work->body_began_ns == 0) work->body_began_ns = weir_now_ns();
    exchange_leave_turn(x);
    WEIR_DEADLINE(limits->body_ms) { n = stream_read(x->session, to, bytes); }
    work->now_ns = weir_now_ns();
    if (n <= 0) return n == 0 ? WEIR_ECLOSED : n;
    if (!is_fast_enough(x)) return WEIR_ETIMEDOUT;
    if (had_turn) r = exchange_resume_turn(x);
    return r < 0 ? r : n;
}

/* What the parser makes of some bytes: 1: a piece; 0: it needs more of them. */
enum { BODY_FAILED = -EBADMSG, BODY_HAS_NO_ROOM = -ENOBUFS };
static int body_parse(struct exchange *x, const char *at, size_t count, size_t *ret_used,
                      struct bytes *ret_piece)
{
    struct work *work = x->session->work;
    enum http_event event = http_parse(&work->parser, at, count, ret_used, ret_piece);

    if (event == PARSE_FAILED) return BODY_FAILED;
    if (event == PARSE_END) work->body_whole = true;
    if (event == PARSE_BODY) work->body_bytes += ret_piece->count;
    return event == PARSE_BODY;
}

/* The next piece of the body. 1; 0: there is no more; negative: it cannot be read. */
static int body_next(struct exchange *x, struct bytes *ret_piece)
{
    struct work *work = x->session->work;

    while (!work->body_whole) {
        size_t used;
        ssize_t n;
        int r =
            body_parse(x, work->in + work->in_at, work->in_used - work->in_at, &used, ret_piece);

        work->in_at += used;
        if (r != 0) {
            if (r == 1) work->continue_owed = false; /* it has not waited for it */
            return r;
        }
        if (work->body_whole) break;
        work->in_at = work->in_used = 0;
        n = read_input(x, work->in, sizeof work->in);
        if (n < 0) return (int)n;
        work->in_used = (size_t)n;
    }
    return 0;
}

/* Why the body could not be read, as an answer; no other request follows. */
static int body_problem(struct exchange *x, int error)
{
    struct work *work = x->session->work;

    x->close = true;
    if (error == BODY_FAILED) {
        return exchange_problem(x, problem_of_status(work->parser.status), "%s", work->parser.why);
    }
    if (error == WEIR_ETIMEDOUT ||
        (error == WEIR_ECANCELED && weir_cause(NULL) == WEIR_CAUSE_DEADLINE)) {
        ward_count(x->session->ward, FIGURE_TIMED_OUT);
        return exchange_problem(x, PROBLEM_TIMEOUT, "the body came too slowly");
    }
    if (error == WEIR_ECANCELED) {
        return exchange_problem(x, PROBLEM_DRAINING, "the server is stopping");
    }
    if (error == -EMSGSIZE) {
        return exchange_problem(x, PROBLEM_TOO_LARGE, "the body has more than %llu bytes",
                                (unsigned long long)x->route->body_bytes_max);
    }
    if (error == -ENOMEM) return exchange_problem(x, PROBLEM_NO_ROOM, "no memory for the body");
    if (error == BODY_HAS_NO_ROOM) {
        ward_count(x->session->ward, FIGURE_SHED);
        return exchange_problem(x, PROBLEM_OVERLOADED, "too many large bodies are on their way");
    }
    if (error == WEIR_EOVERLOAD) {
        return exchange_problem(x, PROBLEM_OVERLOADED, "too many requests wait for their turn");
    }
    return exchange_problem(x, PROBLEM_BAD_REQUEST, "the connection was closed within a message");
}

static bool is_too_long(const struct exchange *x)
{
    return x->session->work->body_bytes > x->route->body_bytes_max;
}

/* The rest of a body whose length is known goes from the connection to where it stays. The memory
 * grows with what has come, not with what was announced. */
static int read_rest(struct exchange *x)
{
    struct work *work = x->session->work;

    while (work->body_bytes < x->message->length) {
        uint64_t left = x->message->length - work->body_bytes;
        size_t step = x->body.used > INPUT_BYTES ? x->body.used : INPUT_BYTES, used;
        char *at = buffer_extend(&x->body, left < step ? (size_t)left : step);
        size_t asked = left < step ? (size_t)left : step;
        struct bytes piece;
        ssize_t n;
        int r;

        if (!at) return buffer_error(&x->body);
        if (!work_hold_body(x->session->service, work)) return BODY_HAS_NO_ROOM;
        n = read_input(x, at, asked);
        x->body.used -= asked - (n > 0 ? (size_t)n : 0);
        if (n < 0) return (int)n;
        r = body_parse(x, at, (size_t)n, &used, &piece);
        if (r < 0) return r;
    }
    return 0;
}

static int read_body(struct exchange *x)
{
    struct work *work = x->session->work;
    struct bytes piece;
    int r;

    while ((r = body_next(x, &piece)) == 1) {
        if (is_too_long(x)) return -EMSGSIZE;
        if (x->message->has_length && piece.count == x->message->length) {
            work->whole = piece; /* it lies where it was read */
            continue;
        }
        buffer_put_bytes(&x->body, piece);
        if (buffer_error(&x->body) < 0) return buffer_error(&x->body);
        if (!work_hold_body(x->session->service, work)) return BODY_HAS_NO_ROOM;
        if (x->message->has_length) r = read_rest(x);
        if (r < 0) return r;
    }
    if (r == 0 && !work->whole.at) work->whole = buffer_bytes(&x->body);
    return r;
}

int exchange_body(struct exchange *x, struct bytes *ret_body)
{
    struct work *work = x->session->work;
    int r;

    if (!work->body_read) {
        r = read_body(x);
        if (r < 0) return body_problem(x, r);
        work->body_read = true;
        if (!work->whole.at) work->whole.at = "";
    }
    *ret_body = work->whole;
    return 0;
}

static int line_room(struct exchange *x, size_t line_bytes_max)
{
    struct work *work = x->session->work;
    char *block;

    if (work->lines_open) return 0;
    block = buffer_extend(&x->body, line_bytes_max);
    if (!block) return buffer_error(&x->body);
    lines_init(&work->lines, block, line_bytes_max);
    work->lines_open = true;
    return 0;
}

int exchange_line(struct exchange *x, size_t line_bytes_max, struct bytes *ret_line)
{
    struct work *work = x->session->work;
    int r = line_room(x, line_bytes_max);

    while (r >= 0) {
        r = lines_next(&work->lines, &work->piece, ret_line);
        if (r == 1) return 1;
        if (r == -EMSGSIZE) {
            x->close = true;
            return exchange_problem(x, PROBLEM_TOO_LARGE, "line %llu has more than %zu bytes",
                                    (unsigned long long)work->lines.number + 1, line_bytes_max);
        }
        r = body_next(x, &work->piece);
        if (r == 0) return lines_end(&work->lines, ret_line);
        if (r == 1 && is_too_long(x)) r = -EMSGSIZE;
    }
    return body_problem(x, r);
}

bool exchange_drain(struct exchange *x, uint64_t bytes_max)
{
    struct work *work = x->session->work;
    uint64_t before = work->body_bytes;
    struct bytes piece;
    int r;

    while ((r = body_next(x, &piece)) == 1) {
        if (work->body_bytes - before > bytes_max) return false;
    }
    return r == 0;
}
