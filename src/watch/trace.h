/* trace.h - contexts of traces and how they are carried; spans; what they are exported by.
 *
 *     node   a context: ids, flags, tracestate. Never changes, counted. A task has one
 *            (task->trace), and hands it on; so do jobs, items, passages and letters.
 *     record what a span will be exported as; its task's alone while the span is open, then
 *            in the worker's shard, then the exporter's.
 *
 *     of a record:  OPEN ──its block is left──▶ shard ──timer, or half full──▶ thread ──▶ freed
 *                                               └── no room: dropped, counted
 *
 * trace_context.c reads and writes the W3C's headers; trace.c is nodes and spans; tracer.c the
 * shards and the thread; trace_file.c the file in OTLP JSON.
 *
 * Invariants: a node's `record` is read and written by its owner only (`owner`, a task's id);
 * a shard has at most buffer_max records, those that the thread has taken and not exported
 * yet included; only the thread calls the exporter.
 * Locks: a shard's, alone, for a few lines; the tracer's mutex, alone.
 */
#ifndef WEIR_WATCH_TRACE_H
#define WEIR_WATCH_TRACE_H

#include <pthread.h>
#include <weir/trace.h>

#include "base/atomic.h"
#include "rt/bell.h"
#include "rt/lock.h"
#include "rt/runtime.h"
#include "rt/timer.h"

struct trace_state {
    ATOM(unsigned) holders;
    char text[];
};

struct trace_node {
    ATOM(unsigned) holders;
    uint8_t flags;
    bool remote; /* came from another process */
    uint8_t trace_id[WEIR_TRACE_ID_BYTES];
    uint8_t span_id[WEIR_SPAN_ID_BYTES]; /* all zero: the trace has begun, and no span yet */
    struct trace_state *state;           /* or NULL */
    uint64_t owner;                      /* the task whose span it is; 0: none */
    struct span_record *record;          /* its span, while that is open and recorded */
};

struct span_record {
    weir_span_data data; /* what the exporter sees; first, so that it leads back here */
    struct span_record *next;
    struct trace_node *node; /* has its tracestate */
    const weir_span_attribute **attribute_end;
    const weir_span_event_data **event_end;
    const weir_span_link_data **link_end;
    unsigned attribute_count, event_count, link_count;
    bool result_said;
    char name[WEIR_SPAN_NAME_MAX + 1];
    char message[WEIR_SPAN_TEXT_MAX + 1];
};

/* What a worker has of it. */
struct trace_shard {
    struct tracer *tracer;
    struct worker *worker;
    struct timer timer; /* the worker's: the oldest has waited for flush_ms */
    bool armed;
    uint64_t random[4]; /* the worker's */

    struct lock lock; /* covers the rest, but for the counters, which are only ever added to */
    struct span_record *first;
    struct span_record **end;
    size_t count; /* in the list, or taken and not exported yet */
    ATOM(uint64_t) ended, dropped_full, dropped_memory;
} __attribute__((aligned(64)));

struct text;
struct trace_file;

/* A batch as one line of OTLP JSON: for the file, and for whoever sends it elsewhere. */
void trace_request_json(struct text *text, const weir_trace_batch *batch);

struct tracer {
    weir_runtime *runtime;
    const struct kernel *kernel;
    weir_trace_spec spec; /* its strings are `service` and the file's */
    char service[128];
    uint64_t sample_below; /* of the trace id's last 56 bits */
    weir_trace_exporter exporter;
    struct trace_file *file; /* or NULL */
    int64_t unix_offset_ns;  /* the thread's */
    const weir_span_data *batch[WEIR_TRACE_BATCH_MAX];
    ATOM(uint64_t) exported, lost, failures;
    bool failing; /* the thread's: that was said in the log */

    pthread_t thread;
    struct lock lock; /* covers the rest */
    struct bell work, ended;
    bool asked, closing, over;
    bool logs;      /* the thread does, by the program's function */
    bool abandoned; /* the runtime has not waited for it: nothing of the program's is used */

    void *shard_memory;
    struct trace_shard *shards; /* in it, one for each worker */
};

/* ---- trace.c: contexts ---- */

/* In which context the calling task, or job of a pool, works; its own, or NULL. */
struct trace_node *trace_here(void);
/* The same of a task that does not run, or of the calling one. */
static inline struct trace_node *trace_of(const struct task *task)
{
    return __builtin_expect(task->has_extras, 0) ? task->trace : NULL;
}
/* A trace begins, with the decision whether it is recorded, and without a span. NULL: no
 * memory. On a worker whose runtime traces. */
struct trace_node *trace_begin(void);
/* The calling task works in another context; returns the one before, which is the caller's. */
struct trace_node *trace_swap(struct task *self, struct trace_node *take_node);
/* An item that was sent in this context goes to the task, which is the calling one or parked
 * until the caller wakes it. */
void trace_receive(struct task *task, struct trace_node *take_node);
/* A thread that is no worker runs something in this context, or nothing (NULL) any more. */
void trace_thread(struct trace_node *keep_node);
/* The same; returns what it was. For a simulator, whose threads are one to the system. */
struct trace_node *trace_thread_swap(struct trace_node *node);

/* ---- trace.c: spans of the library's own, called "KIND NAME" ---- */

static inline bool trace_is_on(void)
{
    const struct worker *worker = worker_self();
    return worker && __builtin_expect(worker->runtime->tracer != NULL, 0);
}
/* In a task. Ended by weir_span_leave. */
void span_begin(weir_span *span, const char *kind, const char *name, enum weir_span_kind what);
void span_record_free(struct span_record *record);

/* ---- tracer.c ---- */

/* Random bytes, not all zero, by the worker's own generator. */
void tracer_random(struct trace_shard *shard, uint8_t *data, size_t bytes);
/* Whether a trace that begins here is recorded. */
bool tracer_samples(const struct tracer *tracer, const uint8_t *trace_id);
/* A span has ended, on the shard's worker. */
void tracer_take(struct trace_shard *shard, struct span_record *take_record);

struct tracer_figures {
    uint64_t buffered, buffer_max, ended, exported, dropped_full, dropped_memory, lost, failures;
};
void tracer_figures(struct tracer *tracer, struct tracer_figures *ret_figures);

/* ---- trace_file.c ---- */

int trace_file_check(const weir_trace_spec *spec);
int trace_file_open(const struct kernel *kernel, const weir_trace_spec *spec,
                    struct trace_file **ret_file);
void trace_file_close(struct trace_file *file);
int trace_file_write(void *file, const weir_trace_batch *batch);

#endif
