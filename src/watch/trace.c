/* trace.c - contexts and who has them; spans, from their begin to their end. */
#include "watch/trace.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "rt/mem.h"
#include "watch/text.h"

/* What a span has on its task's stack; all zero: it is none. */
struct span_block {
    struct trace_node *node;
    struct trace_node *outer; /* what its task worked in before; ours */
    struct span_record *record;
    struct task *task;
    const char *where;
};
_Static_assert(sizeof(struct span_block) <= sizeof(weir_span), "weir_span is too small");

/* What a job of a pool works in: its thread is no worker. */
static _Thread_local struct trace_node *thread_node;

/* ---- Nodes ---- */

/* One holder less. True: it was the last one. */
static bool drop(ATOM(unsigned) * holders)
{
    sanitize_release(holders);
    if (atom_sub(holders, 1) != 1) return false;
    sanitize_acquire(holders);
    return true;
}

static void state_unref(struct trace_state *state)
{
    if (state && drop(&state->holders)) mem_free(state);
}

struct trace_node *trace_ref(struct trace_node *node)
{
    if (node) (void)atom_add(&node->holders, 1);
    return node;
}

void trace_unref(struct trace_node *node)
{
    if (!node || !drop(&node->holders)) return;
    state_unref(node->state);
    mem_free(node);
}

static struct trace_node *node_new(void)
{
    struct trace_node *node = mem_alloc_zeroed(sizeof *node);
    if (node) atom_store(&node->holders, 1);
    return node;
}

static struct trace_shard *shard_here(void)
{
    struct worker *worker = worker_self();
    return &worker->runtime->tracer->shards[worker->index];
}

static void node_begin_trace(struct trace_node *node, struct trace_shard *shard)
{
    tracer_random(shard, node->trace_id, sizeof node->trace_id);
    if (tracer_samples(shard->tracer, node->trace_id)) node->flags = WEIR_TRACE_SAMPLED;
}

static bool is_said(const uint8_t *id, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (id[i] != 0) return true;
    }
    return false;
}

/* Ids, flags and tracestate as a program has them. False: no memory. */
static bool node_copy_context(struct trace_node *node, const weir_trace_context *context)
{
    size_t bytes = strnlen(context->state, WEIR_TRACE_STATE_MAX);

    memcpy(node->trace_id, context->trace_id, sizeof node->trace_id);
    node->flags = context->flags & WEIR_TRACE_SAMPLED;
    if (bytes == 0) return true;
    node->state = mem_alloc(sizeof *node->state + bytes + 1);
    if (!node->state) return false;
    atom_store(&node->state->holders, 1);
    memcpy(node->state->text, context->state, bytes);
    node->state->text[bytes] = '\0';
    return true;
}

static const char *node_state(const struct trace_node *node)
{
    return node->state ? node->state->text : "";
}

static void node_show(const struct trace_node *node, weir_trace_context *ret_context)
{
    memcpy(ret_context->trace_id, node->trace_id, sizeof node->trace_id);
    memcpy(ret_context->span_id, node->span_id, sizeof node->span_id);
    ret_context->flags = node->flags;
    (void)snprintf(ret_context->state, sizeof ret_context->state, "%s", node_state(node));
}

/* ---- Who works in which ---- */

struct trace_node *trace_here(void)
{
    const struct task *self = task_self();
    return self ? trace_of(self) : thread_node;
}

struct trace_node *trace_begin(void)
{
    struct trace_shard *shard = shard_here();
    struct trace_node *node = node_new();

    if (node) {
        node_begin_trace(node, shard);
    } else {
        (void)atom_add(&shard->dropped_memory, 1);
    }
    return node;
}

struct trace_node *trace_swap(struct task *self, struct trace_node *take_node)
{
    struct trace_node *before = self->trace;
    self->trace = take_node;
    self->has_extras = true;
    return before;
}

void trace_receive(struct task *task, struct trace_node *take_node)
{
    if (!task) {
        trace_unref(take_node);
        return;
    }
    trace_unref(task->received);
    task->received = take_node;
    task->has_extras = true;
}

void trace_thread(struct trace_node *keep_node)
{
    thread_node = keep_node;
}

struct trace_node *trace_thread_swap(struct trace_node *node)
{
    struct trace_node *before = thread_node;

    thread_node = node;
    return before;
}

static bool show(const struct trace_node *node, weir_trace_context *ret_context)
{
    memset(ret_context, 0, sizeof *ret_context);
    if (!node || !is_said(node->span_id, sizeof node->span_id)) return false;
    node_show(node, ret_context);
    return true;
}

bool weir_trace_current(weir_trace_context *ret_context)
{
    return show(trace_here(), ret_context);
}

bool weir_trace_received(weir_trace_context *ret_context)
{
    const struct task *self = task_self();
    return show(self ? self->received : NULL, ret_context);
}

/* ---- Records ---- */

static struct span_record *record_new(struct trace_node *node, const char *name,
                                      enum weir_span_kind kind)
{
    struct span_record *record = mem_alloc_zeroed(sizeof *record);
    weir_span_data *data;

    if (!record) return NULL;
    data = &record->data;
    record->node = trace_ref(node);
    record->attribute_end = &data->attributes;
    record->event_end = &data->events;
    record->link_end = &data->links;
    text_copy_name(record->name, sizeof record->name, name);
    data->name = record->name;
    data->message = record->message;
    data->kind = kind == WEIR_SPAN_KIND_UNSET ? WEIR_SPAN_INTERNAL : kind;
    memcpy(data->trace_id, node->trace_id, sizeof data->trace_id);
    memcpy(data->span_id, node->span_id, sizeof data->span_id);
    data->flags = node->flags;
    data->state = node_state(node);
    return record;
}

void span_record_free(struct span_record *record)
{
    weir_span_data *data = &record->data;

    while (data->attributes) {
        const weir_span_attribute *attribute = data->attributes;
        data->attributes = attribute->next;
        mem_free((void *)(uintptr_t)attribute);
    }
    while (data->events) {
        const weir_span_event_data *event = data->events;
        data->events = event->next;
        mem_free((void *)(uintptr_t)event);
    }
    while (data->links) {
        const weir_span_link_data *link = data->links;
        data->links = link->next;
        mem_free((void *)(uintptr_t)link);
    }
    trace_unref(record->node);
    mem_free(record);
}

/* Memory for one thing that is said of a span, and for copies of its two strings (of at most
 * so many bytes), to which the pointers go. */
static void *note_new(size_t bytes, const char *first, size_t first_max, const char **ret_first,
                      const char *second, const char **ret_second)
{
    size_t first_bytes = strnlen(first, first_max) + 1;
    size_t second_bytes = second ? strnlen(second, WEIR_SPAN_TEXT_MAX) + 1 : 0;
    char *memory = mem_alloc_zeroed(bytes + first_bytes + second_bytes);

    if (!memory) return NULL;
    text_copy_name(memory + bytes, first_bytes, first);
    *ret_first = memory + bytes;
    *ret_second = NULL;
    if (second) {
        text_copy_name(memory + bytes + first_bytes, second_bytes, second);
        *ret_second = memory + bytes + first_bytes;
    }
    return memory;
}

/* ---- Attributes, events, links ---- */

/* A key, as it is kept, that was said before: what it had is forgotten. */
static void forget_attribute(struct span_record *record, const char *key)
{
    const weir_span_attribute **at = &record->data.attributes;

    while (*at && strcmp((*at)->key, key) != 0) {
        at = (const weir_span_attribute **)(uintptr_t) & (*at)->next;
    }
    if (!*at) return;
    const weir_span_attribute *found = *at;
    *at = found->next;
    if (record->attribute_end == &found->next) record->attribute_end = at;
    record->attribute_count--;
    mem_free((void *)(uintptr_t)found);
}

static void add_attribute(struct span_record *record, const char *key, enum weir_span_value type,
                          int64_t number, const char *value)
{
    const char *key_copy, *value_copy;
    weir_span_attribute *attribute = NULL;
    char name[WEIR_SPAN_NAME_MAX + 1]; /* the key as it is kept: cut, and well formed */

    text_copy_name(name, sizeof name, key);
    forget_attribute(record, name);
    if (record->attribute_count < WEIR_SPAN_ATTRIBUTES_MAX) {
        attribute =
            note_new(sizeof *attribute, name, WEIR_SPAN_NAME_MAX, &key_copy, value, &value_copy);
    }
    if (!attribute) {
        record->data.attributes_dropped++;
        return;
    }
    *attribute =
        (weir_span_attribute){.type = type, .number = number, .key = key_copy, .text = value_copy};
    *record->attribute_end = attribute;
    record->attribute_end = (const weir_span_attribute **)(uintptr_t)&attribute->next;
    record->attribute_count++;
}

static void add_event(struct span_record *record, const char *name, const char *detail)
{
    const char *name_copy, *detail_copy;
    weir_span_event_data *event = NULL;

    if (record->event_count < WEIR_SPAN_EVENTS_MAX) {
        event = note_new(sizeof *event, name, WEIR_SPAN_NAME_MAX, &name_copy, detail, &detail_copy);
    }
    if (!event) {
        record->data.events_dropped++;
        return;
    }
    *event =
        (weir_span_event_data){.time_ns = weir_now_ns(), .name = name_copy, .detail = detail_copy};
    *record->event_end = event;
    record->event_end = (const weir_span_event_data **)(uintptr_t)&event->next;
    record->event_count++;
}

static void add_link(struct span_record *record, const weir_trace_context *context)
{
    const char *state, *nothing;
    weir_span_link_data *link = NULL;

    if (!is_said(context->trace_id, sizeof context->trace_id)) return;
    if (record->link_count < WEIR_SPAN_LINKS_MAX) {
        link = note_new(sizeof *link, context->state, WEIR_TRACE_STATE_MAX, &state, NULL, &nothing);
    }
    if (!link) {
        record->data.links_dropped++;
        return;
    }
    *link = (weir_span_link_data){.flags = context->flags, .state = state};
    memcpy(link->trace_id, context->trace_id, sizeof link->trace_id);
    memcpy(link->span_id, context->span_id, sizeof link->span_id);
    *record->link_end = link;
    record->link_end = (const weir_span_link_data **)(uintptr_t)&link->next;
    record->link_count++;
}

static void set_error(struct span_record *record, int error, const char *sentence)
{
    record->data.status = WEIR_SPAN_ERROR;
    (void)snprintf(record->message, sizeof record->message, "%s", sentence);
    add_attribute(record, "error.type", WEIR_SPAN_STRING, 0, weir_error_name(error));
}

/* The innermost span of the calling task that is recorded, or NULL. */
static struct span_record *own_record(void)
{
    const struct task *self = task_self();
    const struct trace_node *node = self ? trace_of(self) : NULL;

    if (!node || node->owner != atom_load(&self->id)) return NULL;
    return node->record;
}

void weir_span_string(const char *key, const char *value)
{
    struct span_record *record = own_record();
    if (record && key) add_attribute(record, key, WEIR_SPAN_STRING, 0, value ? value : "");
}

void weir_span_int(const char *key, int64_t value)
{
    struct span_record *record = own_record();
    if (record && key) add_attribute(record, key, WEIR_SPAN_INT, value, NULL);
}

void weir_span_bool(const char *key, bool value)
{
    struct span_record *record = own_record();
    if (record && key) add_attribute(record, key, WEIR_SPAN_BOOL, value, NULL);
}

void weir_span_event(const char *name, const char *detail)
{
    struct span_record *record = own_record();
    if (record && name) add_event(record, name, detail);
}

void weir_span_add_link(const weir_trace_context *context)
{
    struct span_record *record = own_record();
    if (record && context) add_link(record, context);
}

void weir_span_result(int result)
{
    struct span_record *record = own_record();

    if (!record) return;
    record->result_said = true;
    if (result < 0) {
        set_error(record, result, weir_strerror(result));
    } else {
        record->data.status = WEIR_SPAN_OK;
        record->message[0] = '\0';
        forget_attribute(record, "error.type");
    }
}

/* ---- Begin and end ---- */

/* A context for a span whose parent is `node`, or `context` from outside, or nothing. */
static struct trace_node *child_of(const struct trace_node *node, const weir_trace_context *context,
                                   struct trace_shard *shard)
{
    struct trace_node *child = node_new();

    if (!child) return NULL;
    if (context) {
        if (!is_said(context->trace_id, sizeof context->trace_id) ||
            !is_said(context->span_id, sizeof context->span_id)) {
            node_begin_trace(child, shard);
        } else if (!node_copy_context(child, context)) {
            trace_unref(child);
            return NULL;
        }
    } else if (node) {
        memcpy(child->trace_id, node->trace_id, sizeof child->trace_id);
        child->flags = node->flags;
        child->state = node->state;
        if (child->state) (void)atom_add(&child->state->holders, 1);
    } else {
        node_begin_trace(child, shard);
    }
    tracer_random(shard, child->span_id, sizeof child->span_id);
    return child;
}

static void set_parent(weir_span_data *data, const struct trace_node *node,
                       const weir_trace_context *context)
{
    if (context) {
        if (!is_said(context->trace_id, sizeof context->trace_id)) return;
        memcpy(data->parent_id, context->span_id, sizeof data->parent_id);
        data->parent_is_remote = is_said(data->parent_id, sizeof data->parent_id);
    } else if (node) {
        memcpy(data->parent_id, node->span_id, sizeof data->parent_id);
    }
}

static void enter(struct span_block *block, const weir_span_spec *spec, const char *where)
{
    struct worker *worker = worker_self();
    struct task *self = task_self();
    struct trace_shard *shard;
    struct trace_node *node;

    *block = (struct span_block){0};
    if (!self || !worker->runtime->tracer) return;
    shard = shard_here();
    node = child_of(trace_of(self), spec->parent, shard);
    if (!node) {
        (void)atom_add(&shard->dropped_memory, 1);
        return;
    }
    if (node->flags & WEIR_TRACE_SAMPLED) {
        block->record = record_new(node, spec->name ? spec->name : "span", spec->kind);
        if (block->record) {
            set_parent(&block->record->data, trace_of(self), spec->parent);
            if (spec->link) add_link(block->record, spec->link);
            block->record->data.start_ns = worker->kernel->now_ns(worker->kernel);
        } else {
            (void)atom_add(&shard->dropped_memory, 1);
        }
    }
    node->owner = atom_load(&self->id);
    node->record = block->record;
    block->node = node;
    block->task = self;
    block->where = where;
    block->outer = trace_swap(self, node);
}

weir_span *weir_span_enter(weir_span *span, const char *name, const char *where)
{
    enter((struct span_block *)(void *)span, &(weir_span_spec){.name = name}, where);
    return span;
}

weir_span *weir_span_enter_sized(weir_span *span, size_t spec_bytes, const weir_span_spec *given,
                                 const char *where)
{
    weir_span_spec spec;

    spec_copy(&spec, sizeof spec, given, spec_bytes);
    if (!spec.name || !*spec.name) misuse("WEIR_SPAN_SPEC at %s: name is not set", where);
    if ((unsigned)spec.kind > WEIR_SPAN_CONSUMER) {
        misuse("WEIR_SPAN_SPEC at %s: kind is not one of enum weir_span_kind", where);
    }
    enter((struct span_block *)(void *)span, &spec, where);
    return span;
}

/* Apart, for its room on the stack. */
static __attribute__((noinline)) void begin_named(weir_span *span, const char *kind,
                                                  const char *name, enum weir_span_kind what)
{
    char text[WEIR_SPAN_NAME_MAX + 1];

    (void)snprintf(text, sizeof text, "%s %s", kind, name);
    enter((struct span_block *)(void *)span, &(weir_span_spec){.name = text, .kind = what}, name);
}

void span_begin(weir_span *span, const char *kind, const char *name, enum weir_span_kind what)
{
    begin_named(span, kind, name, what);
}

/* Nobody has said how it went, and its task is being interrupted: it was that. */
static void end_interrupted(struct span_record *record, struct task *self)
{
    int error = task_interruption(self, false);
    weir_cause_info cause;

    if (error == 0) return;
    (void)weir_cause(&cause);
    set_error(record, error, cause.why && *cause.why ? cause.why : weir_strerror(error));
}

void weir_span_leave(weir_span *span)
{
    struct span_block *block = (struct span_block *)(void *)span;
    struct worker *worker = worker_self();
    struct task *self = block->task;
    struct trace_node *node = block->node;

    if (!node || !worker) return; /* no worker: a forked child, the span stayed in the parent */
    if (task_self() != self) misuse("the span at %s is left by another task", block->where);
    if (self->trace != node) {
        misuse("the span at %s is left while another is open in it", block->where);
    }
    node->record = NULL;
    if (block->record) {
        struct span_record *record = block->record;
        if (!record->result_said && (self->attention & SIGNAL_INTERRUPTS)) {
            end_interrupted(record, self);
        }
        record->data.end_ns = worker->kernel->now_ns(worker->kernel);
        tracer_take(shard_here(), record);
    }
    trace_unref(trace_swap(self, block->outer));
}
