/* worker_call.c - calling a handler: in the task, on a thread of a pool; jobs that follow. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <weir/trace.h>

#include "flow/pool.h"
#include "rt/mem.h"
#include "store/worker.h"
#include "watch/trace.h"

/* ---- Jobs that follow ---- */

/* The text and bytes of one spec. */
struct then_text {
    struct then_text *next;
    unsigned char bytes[];
};

struct then_memory {
    struct then_text *texts;
    weir_job_spec specs[WORKER_THEN_MAX];
};

static void then_free(weir_job_outcome *outcome)
{
    struct then_memory *memory = outcome->memory_;

    if (!memory || outcome->memory_ == OUTCOME_OF_HELPER) return;
    while (memory->texts) {
        struct then_text *text = memory->texts;
        memory->texts = text->next;
        mem_free(text);
    }
    mem_free(memory);
    outcome->memory_ = NULL;
}

enum { SPEC_STRINGS = 8 + WEIR_JOB_NEVER_MAX + WEIR_JOB_LIMIT_KEYS_MAX };

/* All strings of a spec. */
static void strings_of(weir_job_spec *spec, const char **ret_strings[SPEC_STRINGS])
{
    size_t n = 0;

    ret_strings[n++] = &spec->queue;
    ret_strings[n++] = &spec->kind;
    ret_strings[n++] = &spec->unique_key;
    ret_strings[n++] = &spec->idempotency_key;
    ret_strings[n++] = &spec->fairness_key;
    ret_strings[n++] = &spec->order_key;
    ret_strings[n++] = &spec->tags;
    ret_strings[n++] = &spec->trace;
    for (size_t i = 0; i < WEIR_JOB_NEVER_MAX; i++) ret_strings[n++] = &spec->retry.never[i];
    for (size_t i = 0; i < WEIR_JOB_LIMIT_KEYS_MAX; i++) ret_strings[n++] = &spec->limit_keys[i];
}

/* Point all of them, and the payload, to a copy. */
static int copy_text(struct then_memory *memory, weir_job_spec *spec)
{
    const char **strings[SPEC_STRINGS];
    size_t bytes = spec->payload_bytes;
    struct then_text *text;
    unsigned char *at;

    strings_of(spec, strings);
    for (size_t i = 0; i < SPEC_STRINGS; i++) bytes += *strings[i] ? strlen(*strings[i]) + 1 : 0;
    text = mem_alloc(sizeof *text + bytes);
    if (!text) return -ENOMEM;
    text->next = memory->texts;
    memory->texts = text;
    at = text->bytes;
    if (spec->payload_bytes > 0) memcpy(at, spec->payload, spec->payload_bytes);
    spec->payload = at;
    at += spec->payload_bytes;
    for (size_t i = 0; i < SPEC_STRINGS; i++) {
        size_t count;
        if (!*strings[i]) continue;
        count = strlen(*strings[i]) + 1;
        memcpy(at, *strings[i], count);
        *strings[i] = (const char *)at;
        at += count;
    }
    return 0;
}

int weir_outcome_then_sized(weir_job_outcome *outcome, size_t spec_bytes,
                            const weir_job_spec *given)
{
    struct then_memory *memory = outcome->memory_;
    char traceparent[WEIR_TRACEPARENT_BYTES];
    weir_trace_context context;
    weir_job_spec spec;
    int r;

    if (outcome->memory_ == OUTCOME_OF_HELPER) {
        (void)snprintf(outcome->error_message, sizeof outcome->error_message,
                       "weir_outcome_then: not in a helper process");
        return WEIR_EREFUSED;
    }
    if (outcome->then_count == WORKER_THEN_MAX) return WEIR_EOVERLOAD;
    if (!memory) {
        memory = mem_alloc(sizeof *memory);
        if (!memory) return -ENOMEM;
        memory->texts = NULL;
        outcome->memory_ = memory;
        outcome->then = memory->specs;
    }
    spec_copy(&spec, sizeof spec, given, spec_bytes);
    /* It is enqueued by another task, but this one's work goes on in it. */
    if (!spec.trace && weir_trace_current(&context)) {
        weir_trace_format(&context, traceparent);
        spec.trace = traceparent;
    }
    r = copy_text(memory, &spec);
    if (r < 0) return r;
    memory->specs[outcome->then_count++] = spec;
    return 0;
}

/* ---- Calls ---- */

struct job_call *call_new(const weir_worker_spec *spec)
{
    struct job_call *call = mem_alloc(sizeof *call + spec->result_bytes_max);

    if (!call) return NULL;
    memset(call, 0, sizeof *call);
    sanitize_forget(call);
    atom_store(&call->holders, 1);
    call->deps = spec->keep_deps;
    call->result_bytes_max = spec->result_bytes_max;
    return call;
}

void call_clear(struct job_call *call)
{
    then_free(&call->outcome);
    if (call->job.memory_) weir_job_free(&call->job);
    memset(&call->job, 0, sizeof call->job);
    memset(&call->outcome, 0, sizeof call->outcome);
    call->returned = 0;
    call->has_run = false;
}

void call_free(struct job_call *take_call)
{
    if (!take_call) return;
    call_clear(take_call);
    mem_free(take_call);
}

static void run(struct job_call *call)
{
    call->outcome.result = call->result;
    call->returned = call->fn(call->deps, call->job, &call->outcome);
    call->has_run = true;
}

/* On a thread of a pool. Its caller may have gone: then the call is its to free. */
static int run_on_thread(void *data)
{
    struct job_call *call = *(struct job_call **)data;

    run(call);
    if (atom_sub(&call->holders, 1) == 1) call_free(call);
    return 0;
}

static int call_on_pool(struct job_slot *slot)
{
    const weir_worker_spec *spec = &slot->worker->spec;
    struct job_call *call = slot->call;
    bool orphan = false;
    int r;

    atom_store(&call->holders, 2);
    r = pool_run(spec->pool, spec->pool_class, run_on_thread, (void *)&call, sizeof(void *),
                 &orphan);
    if (!orphan) {
        atom_store(&call->holders, 1); /* it has run, or never will */
        return r;
    }
    if (atom_sub(&call->holders, 1) == 1) {
        atom_store(&call->holders, 1); /* the handler had returned by then */
        return 0;
    }
    /* It still runs, so the job cannot be given to another: its lease is left to end. */
    slot->call = NULL;
    slot->verdict = (struct verdict){.how = WEIR_SETTLE_UNSET};
    return r;
}

static int call_somewhere(struct job_slot *slot)
{
    switch (slot->worker->spec.executor) {
    case WEIR_ON_POOL: return call_on_pool(slot);
    case WEIR_ON_PROCESSES: return worker_call_process(slot);
    default: run(slot->call); return 0;
    }
}

/* In the context of who has enqueued the job. */
static __attribute__((noinline)) int call_traced(struct job_slot *slot)
{
    const weir_job *job = &slot->call->job;
    weir_trace_context parent;
    weir_span_spec spec = {.kind = WEIR_SPAN_CONSUMER};
    char name[WEIR_SPAN_NAME_MAX + 1];
    int r = 0;

    (void)snprintf(name, sizeof name, "job %s", job->kind);
    spec.name = name;
    if (job->trace && *job->trace && weir_trace_parse(job->trace, NULL, &parent) >= 0) {
        spec.parent = &parent;
    }
    WEIR_SPAN_SPEC(&spec) {
        r = call_somewhere(slot);
        if (r < 0) {
            weir_span_result(r);
        } else if (slot->call && slot->call->returned < 0) {
            weir_span_result(slot->call->returned);
        }
    }
    return r;
}

int worker_call(struct job_slot *slot)
{
    return trace_is_on() ? call_traced(slot) : call_somewhere(slot);
}
