/* http_parse.c - the steps of a message: lines to the guard, whole heads to llhttp, bodies through.
 * Only here is llhttp seen; the file is left out of a build that has none (meson: http). */
#include "proto/http_parse.h"

#include <assert.h>
#include <llhttp/llhttp.h>

#include "proto/http_guard.h"

_Static_assert(LLHTTP_STRICT_MODE, "the strict machine is the one that is compiled in");
_Static_assert(sizeof(llhttp_t) <= sizeof(((struct http_parser *)0)->machine), "it has room");

#define BIT(state) (1u << (state))

/* By state: which may follow. FAILED may follow any. */
static const unsigned moves[HTTP_STATES] = {
    [HTTP_STATE_LINE] = BIT(HTTP_STATE_FIELDS),
    [HTTP_STATE_FIELDS] = BIT(HTTP_STATE_HEAD),
    [HTTP_STATE_HEAD] = BIT(HTTP_STATE_LENGTH) | BIT(HTTP_STATE_UNTIL_CLOSE) |
                        BIT(HTTP_STATE_CHUNK_LINE) | BIT(HTTP_STATE_END),
    [HTTP_STATE_LENGTH] = BIT(HTTP_STATE_END),
    [HTTP_STATE_UNTIL_CLOSE] = BIT(HTTP_STATE_END),
    [HTTP_STATE_CHUNK_LINE] = BIT(HTTP_STATE_CHUNK) | BIT(HTTP_STATE_TRAILER),
    [HTTP_STATE_CHUNK] = BIT(HTTP_STATE_CHUNK_END),
    [HTTP_STATE_CHUNK_END] = BIT(HTTP_STATE_CHUNK_LINE),
    [HTTP_STATE_TRAILER] = BIT(HTTP_STATE_END),
    [HTTP_STATE_END] = BIT(HTTP_STATE_LINE),
};

static void set_state(struct http_parser *parser, enum http_state state)
{
    assert(state == HTTP_STATE_FAILED || moves[parser->state] & BIT(state));
    parser->state = state;
}

static enum http_event fail(struct http_parser *parser, unsigned status, const char *why)
{
    set_state(parser, HTTP_STATE_FAILED);
    parser->status = status;
    parser->why = why;
    parser->message.keep_alive = false;
    return PARSE_FAILED;
}

/* ---- llhttp ---- */

static llhttp_t *machine_of(struct http_parser *parser)
{
    return (llhttp_t *)(void *)parser->machine;
}

static struct http_parser *parser_of(const llhttp_t *machine)
{
    return machine->data;
}

static int on_message_begin(llhttp_t *machine)
{
    struct http_parser *parser = parser_of(machine);

    /* A second one in what the guard took for one: they disagree. */
    return parser->field_count > 0 || parser->told_complete ? -1 : 0;
}

static int on_url(llhttp_t *machine, const char *at, size_t count)
{
    struct bytes *target = &parser_of(machine)->message.target;

    if (target->count > 0) return -1;
    *target = (struct bytes){at, count};
    return 0;
}

static int on_header_field(llhttp_t *machine, const char *at, size_t count)
{
    struct http_parser *parser = parser_of(machine);

    if (parser->field_count >= parser->room_count) return -1;
    parser->room[parser->field_count++] = (struct http_field){{at, count}, {at + count, 0}};
    return 0;
}

static int on_header_value(llhttp_t *machine, const char *at, size_t count)
{
    struct http_parser *parser = parser_of(machine);
    struct bytes *value;

    if (count == 0) return 0;
    if (parser->field_count == 0) return -1;
    value = &parser->room[parser->field_count - 1].value;
    if (value->count > 0) return -1;
    *value = (struct bytes){at, count};
    return 0;
}

static bool has_no_body(const struct http_parser *parser)
{
    const struct http_message *message = &parser->message;

    if (message->has_length && message->length == 0) return true;
    if (parser->kind == HTTP_KIND_ANSWER) {
        return parser->without_body || !http_status_has_body(message->status);
    }
    return !message->chunked && !message->has_length;
}

/* 1 tells llhttp that no body follows, which it does not know of all answers. */
static int on_headers_complete(llhttp_t *machine)
{
    struct http_parser *parser = parser_of(machine);
    struct http_message *message = &parser->message;

    message->status = machine->status_code;
    message->minor = machine->http_minor;
    message->chunked = machine->flags & F_CHUNKED;
    message->has_length = machine->flags & F_CONTENT_LENGTH;
    message->length = message->has_length ? machine->content_length : 0;
    if (parser->kind == HTTP_KIND_REQUEST &&
        strcmp(llhttp_method_name((llhttp_method_t)machine->method),
               http_method_name(message->method)) != 0) {
        return -1;
    }
    return has_no_body(parser) ? 1 : 0;
}

static int on_chunk_header(llhttp_t *machine)
{
    parser_of(machine)->left = machine->content_length;
    return 0;
}

static int on_body(llhttp_t *machine, const char *at, size_t count)
{
    parser_of(machine)->body = (struct bytes){at, count};
    return 0;
}

static int on_message_complete(llhttp_t *machine)
{
    parser_of(machine)->told_complete = true;
    return 0;
}

static const llhttp_settings_t settings = {
    .on_message_begin = on_message_begin,
    .on_url = on_url,
    .on_header_field = on_header_field,
    .on_header_value = on_header_value,
    .on_headers_complete = on_headers_complete,
    .on_chunk_header = on_chunk_header,
    .on_body = on_body,
    .on_message_complete = on_message_complete,
};

/* NULL, or what is wrong. All of the bytes were looked at, or it is something. */
static const char *tell(struct http_parser *parser, const char *bytes, size_t count)
{
    llhttp_t *machine = machine_of(parser);
    llhttp_errno_t error = llhttp_execute(machine, bytes, count);
    const char *why;

    if (error == HPE_OK) return NULL;
    if (error == HPE_PAUSED_UPGRADE && parser->told_complete &&
        llhttp_get_error_pos(machine) == bytes + count) {
        return NULL;
    }
    why = llhttp_get_error_reason(machine);
    return why && why[0] ? why : "the message is not valid";
}

/* ---- Lines ---- */

struct input {
    const char *at;
    size_t count;
};

enum line { LINE_FAILED, LINE_PART, LINE_WHOLE };

/* Moves bytes into the block up to the end of a line; the block is filled up to `end` at most. */
static enum line take_line(struct http_parser *parser, struct input *input, size_t end,
                           struct refusal too_long)
{
    const char *lf = input->count > 0 ? memchr(input->at, '\n', input->count) : NULL;
    size_t count = lf ? (size_t)(lf - input->at) + 1 : input->count;

    if (count > end - parser->used) {
        (void)fail(parser, too_long.status, too_long.why);
        return LINE_FAILED;
    }
    if (count > 0) memcpy(parser->block + parser->used, input->at, count);
    parser->used += count;
    input->at += count;
    input->count -= count;
    if (!lf) return LINE_PART;
    if (!guard_line_end(
            (struct bytes){parser->block + parser->line_at, parser->used - parser->line_at})) {
        (void)fail(parser, 400, "a line does not end in CR LF, or has a CR within");
        return LINE_FAILED;
    }
    return LINE_WHOLE;
}

/* The line that is whole, without its end; the next begins behind it. */
static struct bytes pass_line(struct http_parser *parser)
{
    struct bytes line = {parser->block + parser->line_at, parser->used - parser->line_at - 2};

    parser->line_at = parser->used;
    return line;
}

/* Eight at a time: where a byte plus so much reaches 0x80, it is 'A' or beyond, beyond 'Z'. */
static uint64_t lower_word(uint64_t word)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), highs = ones * 0x80;
    uint64_t low = word & ~highs;
    uint64_t upper = (low + ones * (0x80 - 'A')) & ~(low + ones * (0x7f - 'Z')) & ~word & highs;

    return word | upper >> 2; /* 0x20 */
}

static void lower_eight(char at[8])
{
    uint64_t word, lowered;

    memcpy(&word, at, sizeof word);
    lowered = lower_word(word);
    memcpy(at, &lowered, sizeof lowered);
}

static void to_lower_all(char *at, size_t count)
{
    size_t k = 0;

    for (; k + 8 <= count; k += 8) lower_eight(at + k);
    if (k == count) return;
    if (count >= 8) {
        lower_eight(at + count - 8); /* some of them again */
        return;
    }
    for (; k < count; k++) at[k] = to_lower(at[k]);
}

static void lower_names(struct http_parser *parser, unsigned from)
{
    for (unsigned i = from; i < parser->field_count; i++) {
        struct bytes *name = &parser->room[i].name;
        char *at = parser->block + (name->at - parser->block);

        to_lower_all(at, name->count);
        parser->room[i].value = bytes_trim(parser->room[i].value);
    }
}

/* ---- Steps: each makes an event, or says to go on ---- */

#define GO_ON ((enum http_event)(PARSE_END + 1))

typedef enum http_event (*step_fn)(struct http_parser *parser, struct input *input);

static enum http_event step_line(struct http_parser *parser, struct input *input)
{
    const struct http_limits *limits = &parser->limits;
    bool is_request = parser->kind == HTTP_KIND_REQUEST;
    bool by_line = limits->line_bytes_max <= limits->head_bytes_max;
    size_t end = by_line ? limits->line_bytes_max : limits->head_bytes_max;
    struct refusal too_long = {by_line ? 414 : 431, "the first line is too long"}, refusal;
    enum line line = take_line(parser, input, end, too_long);
    struct bytes text;

    if (line != LINE_WHOLE) return line == LINE_PART ? PARSE_MORE : PARSE_FAILED;
    text = pass_line(parser);
    if (text.count == 0 && is_request && !parser->blank_skipped) {
        parser->blank_skipped = true;
        parser->used = parser->line_at = 0;
        return GO_ON;
    }
    refusal =
        is_request ? guard_request_line(text, &parser->message.method) : guard_status_line(text);
    if (refusal.status) return fail(parser, refusal.status, refusal.why);
    set_state(parser, HTTP_STATE_FIELDS);
    return GO_ON;
}

/* From the fields: what the connection is to do after this message. */
static void set_connection(struct http_parser *parser)
{
    struct http_message *message = &parser->message;
    const struct bytes connection = BYTES("connection");
    const struct http_field *upgrade = http_field_first(message->fields, BYTES("upgrade"));
    bool close = http_field_lists(message->fields, connection, BYTES("close"));
    bool keep = http_field_lists(message->fields, connection, BYTES("keep-alive"));
    bool framed = has_no_body(parser) || message->chunked || message->has_length;

    message->keep_alive = framed && !close && (message->minor > 0 || keep);
    message->upgrade = (struct bytes){"", 0};
    if (upgrade && message->minor > 0 &&
        http_field_lists(message->fields, connection, BYTES("upgrade"))) {
        message->upgrade = upgrade->value;
    }
}

static void set_request(struct http_parser *parser)
{
    struct http_message *message = &parser->message;
    const struct http_field *host = http_field_first(message->fields, BYTES("host"));
    struct bytes authority = guard_target_authority(message->target);

    if (!authority.at) authority = host ? host->value : (struct bytes){"", 0};
    message->authority = authority;
    message->expects_continue = message->minor > 0 && !has_no_body(parser) &&
                                http_field_first(message->fields, BYTES("expect"));
}

/* All lines of the head are in the block, and each has passed the guard. */
static enum http_event finish_head(struct http_parser *parser)
{
    struct http_message *message = &parser->message;
    unsigned lines = parser->field_count;
    struct refusal refusal;
    const char *why;

    parser->head_bytes = parser->used;
    parser->field_count = 0;
    why = tell(parser, parser->block, parser->used);
    if (why) return fail(parser, 400, why);
    lower_names(parser, 0);
    message->fields = (struct http_fields){parser->room, parser->field_count};
    refusal = guard_framing(message);
    if (!refusal.status && parser->kind == HTTP_KIND_REQUEST) refusal = guard_request(message);
    if (refusal.status) return fail(parser, refusal.status, refusal.why);
    if (parser->field_count != lines || parser->told_complete != has_no_body(parser)) {
        return fail(parser, 400, "the fields of the message are not clear");
    }
    set_connection(parser);
    if (parser->kind == HTTP_KIND_REQUEST) set_request(parser);
    if (!has_no_body(parser) && message->length > parser->limits.body_bytes_max) {
        return fail(parser, 413, "the body is too large");
    }
    set_state(parser, HTTP_STATE_HEAD);
    return PARSE_HEAD;
}

static enum http_event step_fields(struct http_parser *parser, struct input *input)
{
    static const struct refusal too_long = {431, "the header fields are too large"};
    enum line line = take_line(parser, input, parser->limits.head_bytes_max, too_long);
    struct refusal refusal;
    struct bytes text;

    if (line != LINE_WHOLE) return line == LINE_PART ? PARSE_MORE : PARSE_FAILED;
    text = pass_line(parser);
    if (text.count == 0) return finish_head(parser);
    refusal = guard_field_line(text, false);
    if (refusal.status) return fail(parser, refusal.status, refusal.why);
    if (++parser->field_count > parser->limits.field_count_max) {
        return fail(parser, 431, "there are too many header fields");
    }
    return GO_ON;
}

/* Behind the head, where the lines of chunks and the trailers go. */
static void begin_line(struct http_parser *parser)
{
    parser->used = parser->line_at = parser->head_bytes;
}

static enum http_event step_head(struct http_parser *parser, struct input *input)
{
    const struct http_message *message = &parser->message;

    (void)input;
    if (has_no_body(parser)) {
        set_state(parser, HTTP_STATE_END);
    } else if (message->chunked) {
        begin_line(parser);
        set_state(parser, HTTP_STATE_CHUNK_LINE);
    } else if (message->has_length) {
        parser->left = message->length;
        set_state(parser, HTTP_STATE_LENGTH);
    } else {
        set_state(parser, HTTP_STATE_UNTIL_CLOSE);
    }
    return GO_ON;
}

/* Shows llhttp `count` bytes that have to be of the body, all of them. */
static enum http_event pass_body(struct http_parser *parser, struct input *input, size_t count)
{
    const char *at = input->at, *why;

    parser->body = (struct bytes){NULL, 0};
    why = tell(parser, at, count);
    if (why) return fail(parser, 400, why);
    if (parser->body.at != at || parser->body.count != count) {
        return fail(parser, 400, "the length of the body is not clear");
    }
    parser->body_bytes += count;
    input->at += count;
    input->count -= count;
    return PARSE_BODY;
}

static enum http_event step_length(struct http_parser *parser, struct input *input)
{
    size_t count = input->count < parser->left ? input->count : (size_t)parser->left;
    enum http_event event;

    if (count == 0) return PARSE_MORE;
    event = pass_body(parser, input, count);
    if (event == PARSE_FAILED) return event;
    parser->left -= count;
    if (parser->told_complete != (parser->left == 0)) {
        return fail(parser, 400, "the length of the body is not clear");
    }
    if (parser->left == 0) set_state(parser, HTTP_STATE_END);
    return event;
}

static enum http_event step_until_close(struct http_parser *parser, struct input *input)
{
    uint64_t room = parser->limits.body_bytes_max - parser->body_bytes;

    if (input->count == 0) return PARSE_MORE;
    if (room == 0) return fail(parser, 413, "the body is too large");
    return pass_body(parser, input, input->count < room ? input->count : (size_t)room);
}

static enum http_event step_chunk_line(struct http_parser *parser, struct input *input)
{
    static const struct refusal too_long = {400, "the first line of a chunk is too long"};
    size_t end = parser->head_bytes + parser->limits.chunk_line_bytes_max;
    enum line line = take_line(parser, input, end, too_long);
    struct refusal refusal;
    const char *why;

    if (line != LINE_WHOLE) return line == LINE_PART ? PARSE_MORE : PARSE_FAILED;
    refusal = guard_chunk_line(pass_line(parser));
    if (refusal.status) return fail(parser, refusal.status, refusal.why);
    parser->left = UINT64_MAX;
    why = tell(parser, parser->block + parser->head_bytes, parser->used - parser->head_bytes);
    if (why) return fail(parser, 400, why);
    begin_line(parser);
    if (parser->left > parser->limits.body_bytes_max - parser->body_bytes) {
        return fail(parser, 413, "the body is too large");
    }
    set_state(parser, parser->left > 0 ? HTTP_STATE_CHUNK : HTTP_STATE_TRAILER);
    return GO_ON;
}

static enum http_event step_chunk(struct http_parser *parser, struct input *input)
{
    size_t count = input->count < parser->left ? input->count : (size_t)parser->left;
    enum http_event event;

    if (count == 0) return PARSE_MORE;
    event = pass_body(parser, input, count);
    if (event == PARSE_FAILED) return event;
    parser->left -= count;
    if (parser->left == 0) {
        parser->left = 2; /* CR and LF */
        set_state(parser, HTTP_STATE_CHUNK_END);
    }
    return event;
}

static enum http_event step_chunk_end(struct http_parser *parser, struct input *input)
{
    const char *why;

    if (input->count == 0) return PARSE_MORE;
    if (input->at[0] != (parser->left == 2 ? '\r' : '\n')) {
        return fail(parser, 400, "a chunk is longer than its size");
    }
    why = tell(parser, input->at, 1);
    if (why) return fail(parser, 400, why);
    input->at++;
    input->count--;
    if (--parser->left == 0) set_state(parser, HTTP_STATE_CHUNK_LINE);
    return GO_ON;
}

static enum http_event step_trailer(struct http_parser *parser, struct input *input)
{
    static const struct refusal too_long = {431, "the trailer fields are too large"};
    size_t end = parser->head_bytes + parser->limits.trailer_bytes_max;
    enum line line = take_line(parser, input, end, too_long);
    unsigned before = parser->message.fields.count;
    struct refusal refusal;
    struct bytes text;
    const char *why;

    if (line != LINE_WHOLE) return line == LINE_PART ? PARSE_MORE : PARSE_FAILED;
    text = pass_line(parser);
    if (text.count > 0) {
        refusal = guard_field_line(text, true);
        if (refusal.status) return fail(parser, refusal.status, refusal.why);
        if (++parser->left > parser->limits.field_count_max) {
            return fail(parser, 431, "there are too many trailer fields");
        }
        return GO_ON;
    }
    why = tell(parser, parser->block + parser->head_bytes, parser->used - parser->head_bytes);
    if (why) return fail(parser, 400, why);
    if (!parser->told_complete || parser->field_count != before + parser->left) {
        return fail(parser, 400, "the trailer fields are not clear");
    }
    lower_names(parser, before);
    parser->message.trailers =
        (struct http_fields){parser->room + before, parser->field_count - before};
    set_state(parser, HTTP_STATE_END);
    return GO_ON;
}

static enum http_event step_end(struct http_parser *parser, struct input *input)
{
    (void)parser;
    (void)input;
    return PARSE_END;
}

static enum http_event step_failed(struct http_parser *parser, struct input *input)
{
    (void)parser;
    (void)input;
    return PARSE_FAILED;
}

static const step_fn steps[HTTP_STATES] = {
    [HTTP_STATE_LINE] = step_line,
    [HTTP_STATE_FIELDS] = step_fields,
    [HTTP_STATE_HEAD] = step_head,
    [HTTP_STATE_LENGTH] = step_length,
    [HTTP_STATE_UNTIL_CLOSE] = step_until_close,
    [HTTP_STATE_CHUNK_LINE] = step_chunk_line,
    [HTTP_STATE_CHUNK] = step_chunk,
    [HTTP_STATE_CHUNK_END] = step_chunk_end,
    [HTTP_STATE_TRAILER] = step_trailer,
    [HTTP_STATE_END] = step_end,
    [HTTP_STATE_FAILED] = step_failed,
};

enum http_event http_parse(struct http_parser *parser, const char *bytes, size_t count,
                           size_t *ret_used, struct bytes *ret_body)
{
    struct input input = {count > 0 ? bytes : "", count};
    enum http_event event;

    do {
        event = steps[parser->state](parser, &input);
    } while (event == GO_ON);
    *ret_used = count - input.count;
    *ret_body = event == PARSE_BODY ? parser->body : (struct bytes){NULL, 0};
    return event;
}

enum http_event http_parse_close(struct http_parser *parser)
{
    struct input none = {NULL, 0};

    while (parser->state == HTTP_STATE_HEAD) (void)step_head(parser, &none);
    if (parser->state == HTTP_STATE_FAILED) return PARSE_FAILED;
    if (parser->state == HTTP_STATE_END) return PARSE_END;
    if (parser->state == HTTP_STATE_LINE && parser->used == 0) return PARSE_MORE;
    if (parser->state == HTTP_STATE_UNTIL_CLOSE && llhttp_finish(machine_of(parser)) == HPE_OK &&
        parser->told_complete) {
        set_state(parser, HTTP_STATE_END);
        return PARSE_END;
    }
    return fail(parser, 400, "the connection was closed within a message");
}

/* ---- Life ---- */

static void begin_message(struct http_parser *parser)
{
    llhttp_t *machine = machine_of(parser);

    llhttp_init(machine, parser->kind == HTTP_KIND_REQUEST ? HTTP_REQUEST : HTTP_RESPONSE,
                &settings);
    machine->data = parser;
    parser->message = (struct http_message){.target = {"", 0}, .authority = {"", 0}};
    parser->used = parser->line_at = parser->head_bytes = 0;
    parser->field_count = 0;
    parser->left = parser->body_bytes = 0;
    parser->blank_skipped = parser->without_body = parser->told_complete = false;
}

void http_parser_init(struct http_parser *parser, enum http_kind kind,
                      const struct http_limits *limits, char *keep_block,
                      struct http_field *keep_fields)
{
    assert(kind == HTTP_KIND_REQUEST || kind == HTTP_KIND_ANSWER);
    assert(limits->line_bytes_max > 0 && limits->head_bytes_max > 0);
    assert(limits->chunk_line_bytes_max > 0 && limits->trailer_bytes_max > 0);
    *parser = (struct http_parser){
        .limits = *limits,
        .kind = kind,
        .state = HTTP_STATE_LINE,
        .block = keep_block,
        .room = keep_fields,
        .room_count = http_limits_fields(limits),
    };
    begin_message(parser);
}

void http_parser_next(struct http_parser *parser)
{
    set_state(parser, HTTP_STATE_LINE);
    begin_message(parser);
}

void http_parser_answers_head(struct http_parser *parser)
{
    assert(parser->kind == HTTP_KIND_ANSWER && parser->state == HTTP_STATE_LINE);
    parser->without_body = true;
}
