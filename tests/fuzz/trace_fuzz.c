/* trace_fuzz.c - headers of a trace from any text: what parses is within its rules, and is
 * written as text that parses to the same context.
 *
 * input = traceparent [newline tracestate [newline]], so that the corpus can be edited as text
 */
#include <stdlib.h>
#include <string.h>
#include <weir/trace.h>

#include "fuzz/fuzz.h"

static void check_state(const char *state)
{
    size_t members = *state ? 1 : 0;

    MUST(strlen(state) <= WEIR_TRACE_STATE_MAX);
    for (const char *at = state; *at; at++) {
        MUST(*at >= 0x20 && *at <= 0x7e);
        members += *at == ',';
    }
    MUST(members <= WEIR_TRACE_STATE_MEMBERS);
}

static void check_round_trip(const weir_trace_context *context)
{
    char text[WEIR_TRACEPARENT_BYTES];
    weir_trace_context again;

    weir_trace_format(context, text);
    MUST(strlen(text) == WEIR_TRACEPARENT_BYTES - 1);
    MUST(weir_trace_parse(text, context->state, &again) == 0);
    MUST(memcmp(&again, context, sizeof again) == 0);
}

/* A text of this very size, so that a byte too far is found. */
static char *copy(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text) abort();
    if (size > 0) memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *line = size > 0 ? memchr(data, '\n', size) : NULL;
    size_t parent_bytes = line ? (size_t)(line - data) : size;
    size_t state_bytes = line ? size - parent_bytes - 1 : 0;
    char *parent = copy(data, parent_bytes), *state = NULL;
    weir_trace_context context;
    int r;

    if (line) {
        if (state_bytes > 0 && line[state_bytes] == '\n') state_bytes--;
        state = copy(line + 1, state_bytes);
    }
    r = weir_trace_parse(parent, state, &context);
    if (r < 0) {
        MUST(r == WEIR_EREFUSED);
        MUST(weir_why()[0] != '\0');
    } else {
        MUST(r <= 1);
        if (r == 1) MUST(context.state[0] == '\0');
        check_state(context.state);
        check_round_trip(&context);
    }
    free(parent);
    free(state);
    return 0;
}
