/* trace.h - what a request has gone through: spans, and the context that joins them.
 *
 *     r = weir_run(&(weir_config){.trace = WEIR_TRACE(.service = "shop",
 *             .sampling = WEIR_TRACE_ALL, .overflow = WEIR_DROP_NEWEST,
 *             .file_path = "trace.json")}, serve, NULL);
 *
 *     WEIR_SPAN("look up") {
 *         weir_span_int("order", order->number);
 *         r = look_up(order);
 *         weir_span_result(r);
 *     }
 *
 * A span is a piece of work with a begin and an end, in one task; it is left however its block
 * is left. One that begins inside another is its child. Its context (trace id, span id,
 * whether the trace is sampled, tracestate) is a task local that the library carries: to
 * tasks that are spawned inside the span, to jobs of a pool, through the stages of a
 * pipeline, with messages to an actor, and with the items of a channel that says .trace.
 * Between processes it is the W3C Trace Context: weir_trace_parse and weir_trace_format.
 * weir_pool_run, weir_pipeline_call, the stages of a pipeline and an actor's messages are
 * spans by themselves.
 *
 * Owner: the runtime. Lifetime: the runtime's; what has ended by then is exported before it
 * returns, within close_ms. Backpressure: so many spans that have ended (buffer_max, for each
 * worker) wait to be exported; one more is dropped (WEIR_DROP_NEWEST), and counted. Failure:
 * what cannot be exported is lost, counted and said once in the log; nothing that a program
 * does fails, or waits, for the sake of a span.
 *
 * Invariants: a span belongs to the task that began it; contexts never change, so that they
 * can be read anywhere; with no .trace in weir_config a span costs a look at the runtime, and
 * nothing is carried.
 * Threads: spans are for tasks; elsewhere, and without .trace, all calls do nothing. A job
 * of a pool can read its context (weir_trace_current).
 */
#ifndef WEIR_TRACE_H
#define WEIR_TRACE_H

#include <weir/defs.h>
#include <weir/error.h>

WEIR_BEGIN

/* ---- The context, as the W3C has it ---- */

#define WEIR_TRACE_ID_BYTES 16
#define WEIR_SPAN_ID_BYTES 8
#define WEIR_TRACE_SAMPLED 1      /* of flags: the trace is recorded */
#define WEIR_TRACE_STATE_MAX 512  /* of tracestate; more is cut, whole members at a time */
#define WEIR_TRACEPARENT_BYTES 56 /* "00-…-…-01" and its terminator */
#define WEIR_TRACE_STATE_MEMBERS 32

typedef struct weir_trace_context {
    uint8_t trace_id[WEIR_TRACE_ID_BYTES]; /* all zero: none */
    uint8_t span_id[WEIR_SPAN_ID_BYTES];
    uint8_t flags;                        /* WEIR_TRACE_SAMPLED, or 0 */
    char state[WEIR_TRACE_STATE_MAX + 1]; /* tracestate as it came, terminated; "": none */
} weir_trace_context;

/* weir_trace_parse - read the headers `traceparent` and `tracestate` (NULL: there was none)
 * of a request. 0; 1: tracestate was not well formed and was left out, which the W3C
 * wants; WEIR_EREFUSED (weir_why): traceparent is none, so that there is no context. Later
 * versions of traceparent are read as far as this one knows them. Never suspends. Any
 * thread. */
WEIR_API WEIR_MUST_USE int weir_trace_parse(const char *traceparent, const char *tracestate,
                                            weir_trace_context *ret_context);

/* weir_trace_format - write `context` as the header traceparent (version 00), for a request
 * to somebody else; tracestate is context->state. Never suspends. Any thread. */
WEIR_API void weir_trace_format(const weir_trace_context *context,
                                char ret_text[WEIR_TRACEPARENT_BYTES]);

/* weir_trace_current - the context in which the calling task, or job of a pool, works: that of
 * its innermost span, or the one it has inherited. False: there is none, and *ret_context is
 * all zero. Never suspends. */
WEIR_API bool weir_trace_current(weir_trace_context *ret_context);

/* weir_trace_received - the context in which the item was sent that the calling task has
 * received last from a channel that says .trace (of several at once, the last). False: there
 * is none. It is not made the current one: the receiver begins a span with it as its parent,
 * or as a link. Never suspends. */
WEIR_API bool weir_trace_received(weir_trace_context *ret_context);

/* ---- Spans ---- */

#define WEIR_SPAN_NAME_MAX 63 /* longer names, keys and texts are cut */
#define WEIR_SPAN_TEXT_MAX 255
#define WEIR_SPAN_ATTRIBUTES_MAX 32 /* more of a span are dropped, and counted in it */
#define WEIR_SPAN_EVENTS_MAX 32
#define WEIR_SPAN_LINKS_MAX 8

/* Which side of a call it is; the numbers are OTLP's. */
enum weir_span_kind {
    WEIR_SPAN_KIND_UNSET = 0, /* WEIR_SPAN_INTERNAL */
    WEIR_SPAN_INTERNAL = 1,
    WEIR_SPAN_SERVER = 2,   /* a request from outside is answered */
    WEIR_SPAN_CLIENT = 3,   /* a request is made */
    WEIR_SPAN_PRODUCER = 4, /* something is handed over, and not waited for */
    WEIR_SPAN_CONSUMER = 5,
};

/* name must be said. */
typedef struct weir_span_spec {
    const char *name; /* copied */
    enum weir_span_kind kind;
    const weir_trace_context *parent; /* another than the current one, from outside; a context
                                         without ids is none: the span begins a trace */
    const weir_trace_context *link;   /* belongs to this one too */
} weir_span_spec;

/* weir_span_spec_init - set every member to "not said". */
static inline void weir_span_spec_init(weir_span_spec *spec)
{
    memset(spec, 0, sizeof *spec);
}

/* What a span keeps on the stack of its task; private to the library. */
typedef struct weir_span {
    void *opaque[6];
} weir_span;

/* weir_span_enter - what WEIR_SPAN calls. */
WEIR_API weir_span *weir_span_enter(weir_span *span, const char *name, const char *where);

/* weir_span_enter_sized - what WEIR_SPAN_SPEC calls. */
WEIR_API weir_span *weir_span_enter_sized(weir_span *span, size_t spec_bytes,
                                          const weir_span_spec *spec, const char *where);

/* weir_span_leave - what leaving such a block calls. */
WEIR_API void weir_span_leave(weir_span *span);

#define WEIR_SPAN_(enter, ...) WEIR_SPAN_N_(enter, __COUNTER__, __VA_ARGS__)
#define WEIR_SPAN_N_(enter, n, ...) WEIR_SPAN_NAMED_(enter, n, __VA_ARGS__)
#define WEIR_SPAN_NAMED_(enter, n, ...)                                                         \
    for (weir_span weir_span_##n __attribute__((cleanup(weir_span_leave))) WEIR_UNINITIALIZED_, \
         *weir_once_##n = enter(&weir_span_##n, __VA_ARGS__, WEIR_HERE);                        \
         weir_once_##n; weir_once_##n = NULL)

/* WEIR_SPAN("name") { … } - the block is a span of the calling task, a child of the current
 * context, or the begin of a trace. It may be left by return, break or goto out of it. If
 * the task is being cancelled, or out of time, when it is left, and nothing else was said by
 * weir_span_result, it ends with that error. Never suspends. */
#define WEIR_SPAN(name) WEIR_SPAN_(weir_span_enter, (name))

/* WEIR_SPAN_SPEC(&spec) { … } - the same with a kind, or a parent or a link from outside. */
#define WEIR_SPAN_SPEC(spec) WEIR_SPAN_(weir_span_enter_sized, sizeof(weir_span_spec), (spec))

/* weir_span_string, weir_span_int, weir_span_bool - say something about the innermost span of
 * the calling task; the same key again replaces what was said. Keys and values are copied.
 * Without a span of its own that is recorded, nothing happens. Never suspend. */
WEIR_API void weir_span_string(const char *key, const char *value);
WEIR_API void weir_span_int(const char *key, int64_t value);
WEIR_API void weir_span_bool(const char *key, bool value);

/* weir_span_event - something has happened in the innermost span, now; `detail` may be NULL. */
WEIR_API void weir_span_event(const char *name, const char *detail);

/* weir_span_add_link - the innermost span belongs to this context too. */
WEIR_API void weir_span_add_link(const weir_trace_context *context);

/* weir_span_result - how the innermost span has gone: 0 or more is well, an error is kept
 * with its name and its sentence. The last call counts. */
WEIR_API void weir_span_result(int result);

/* ---- Exporting ---- */

/* How a span has gone. The numbers are OTLP's. */
enum weir_span_status { WEIR_SPAN_UNSET = 0, WEIR_SPAN_OK = 1, WEIR_SPAN_ERROR = 2 };

/* What a value of an attribute is. */
enum weir_span_value { WEIR_SPAN_STRING, WEIR_SPAN_INT, WEIR_SPAN_BOOL };

/* What was said of it by weir_span_string and the others. */
typedef struct weir_span_attribute {
    const struct weir_span_attribute *next;
    enum weir_span_value type;
    int64_t number; /* of WEIR_SPAN_INT and WEIR_SPAN_BOOL */
    const char *key;
    const char *text; /* of WEIR_SPAN_STRING */
} weir_span_attribute;

/* By weir_span_event. */
typedef struct weir_span_event_data {
    const struct weir_span_event_data *next;
    int64_t time_ns; /* as start_ns */
    const char *name;
    const char *detail; /* or NULL */
} weir_span_event_data;

/* By weir_span_add_link, or `link` of its spec. */
typedef struct weir_span_link_data {
    const struct weir_span_link_data *next;
    uint8_t trace_id[WEIR_TRACE_ID_BYTES];
    uint8_t span_id[WEIR_SPAN_ID_BYTES];
    uint8_t flags;
    const char *state;
} weir_span_link_data;

/* A span that has ended. */
typedef struct weir_span_data {
    const char *name;
    enum weir_span_kind kind;
    uint8_t trace_id[WEIR_TRACE_ID_BYTES];
    uint8_t span_id[WEIR_SPAN_ID_BYTES];
    uint8_t parent_id[WEIR_SPAN_ID_BYTES]; /* all zero: none */
    bool parent_is_remote;                 /* it came from another process */
    uint8_t flags;
    const char *state;        /* tracestate */
    int64_t start_ns, end_ns; /* on the clock of weir_now_ns; see weir_trace_batch */
    enum weir_span_status status;
    const char *message; /* of WEIR_SPAN_ERROR */
    const weir_span_attribute *attributes;
    const weir_span_event_data *events;
    const weir_span_link_data *links;
    unsigned attributes_dropped, events_dropped, links_dropped;
} weir_span_data;

/* Spans that are exported together. */
typedef struct weir_trace_batch {
    const char *service;
    int64_t unix_offset_ns; /* a time of the runtime's clock plus this is Unix time */
    size_t count;           /* 1 to WEIR_TRACE_BATCH_MAX */
    const weir_span_data *const *spans;
} weir_trace_batch;

/* Where spans go. Both calls are made by one thread of the library's own, one after the other:
 * they may block, and must not call back into weir. Must outlive the runtime; if the log
 * says at its end that the exporter does not return, the process. */
typedef struct weir_trace_exporter {
    const char *name; /* for messages */
    /* 0, or an error: then the batch is lost. It is the exporter's until it returns. */
    int (*write)(void *keep_state, const weir_trace_batch *batch);
    void (*end)(void *keep_state); /* the last call; may be NULL */
    void *keep_state;
} weir_trace_exporter;

/* Which traces that begin here are recorded. One that came from outside, or from another span,
 * is recorded if its context says so. */
enum weir_trace_sampling {
    WEIR_TRACE_SAMPLING_UNSET = 0,
    WEIR_TRACE_ALL,
    WEIR_TRACE_NONE,  /* only those that others have begun */
    WEIR_TRACE_RATIO, /* sample_ratio of them, decided by the trace id, as others do */
};

#define WEIR_TRACE_BUFFER_DEFAULT 2048
#define WEIR_TRACE_BUFFER_MAX 1048576
#define WEIR_TRACE_BATCH_MAX 64
#define WEIR_TRACE_FLUSH_MS_DEFAULT 1000
#define WEIR_TRACE_CLOSE_MS_DEFAULT 5000
#define WEIR_TRACE_FILE_BYTES_DEFAULT (64 * 1024 * 1024)
#define WEIR_TRACE_FILE_BYTES_MIN (64 * 1024)
#define WEIR_TRACE_FILES_DEFAULT 4
#define WEIR_TRACE_FILES_MAX 100

/* service, sampling, overflow and one of file_path and keep_exporter must be said. Made by
 * WEIR_TRACE or weir_trace_spec_init, which set spec_bytes. */
typedef struct weir_trace_spec {
    size_t spec_bytes;
    const char *service; /* who this is: service.name; copied */
    enum weir_trace_sampling sampling;
    double sample_ratio;         /* with WEIR_TRACE_RATIO: more than 0, less than 1 */
    size_t buffer_max;           /* spans of a worker that wait; WEIR_TRACE_BUFFER_DEFAULT */
    enum weir_overflow overflow; /* WEIR_DROP_NEWEST: what a span does that finds no room */
    int64_t flush_ms;            /* no span waits longer; WEIR_TRACE_FLUSH_MS_DEFAULT */
    int64_t close_ms;            /* for what is left at the end; WEIR_TRACE_CLOSE_MS_DEFAULT */
    const weir_trace_exporter *keep_exporter;
    /* OTLP in JSON, a request (ExportTraceServiceRequest) in each line, as collectors read it. A
     * file that would be larger than file_bytes_max becomes PATH.1, that PATH.2, and so on; of
     * more than `files` the oldest goes. */
    const char *file_path;
    size_t file_bytes_max; /* WEIR_TRACE_FILE_BYTES_DEFAULT */
    int files;             /* with the one being written; WEIR_TRACE_FILES_DEFAULT */
} weir_trace_spec;

/* weir_trace_spec_init - set every member to "not said", but for spec_bytes. */
static inline void weir_trace_spec_init(weir_trace_spec *spec)
{
    memset(spec, 0, sizeof *spec);
    spec->spec_bytes = sizeof *spec;
}

/* WEIR_TRACE(.service = …, …) - a spec in place, for .trace of weir_config. */
#ifndef __cplusplus /* needs compound literals */
#define WEIR_TRACE(...) (&(weir_trace_spec){.spec_bytes = sizeof(weir_trace_spec), __VA_ARGS__})
#endif

WEIR_END

#endif
