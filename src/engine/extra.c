/* extra.c - what few jobs have: keys, tags, a chain, a batch, errors. One block a job, as small as
 * it can be. */
#include <errno.h>

#include "engine/state.h"

static size_t text_bytes(const struct extra *extra)
{
    return (size_t)extra->unique_bytes + extra->idempotency_bytes + extra->tag_bytes;
}

static size_t extra_bytes(const struct extra *extra)
{
    return sizeof *extra + extra_word_count(extra) * sizeof(uint32_t) + text_bytes(extra);
}

static uint32_t batch_word(const struct extra *extra)
{
    return extra->limit_count + (extra->has & EXTRA_CHAIN ? 1u : 0u);
}

/* The word of the errors: the last. */
static uint32_t *failures_word(struct extra *extra)
{
    return &extra->words[extra_word_count(extra) - 1];
}

uint64_t job_batch_of(const struct job *job)
{
    const struct extra *extra = job->extra;
    uint32_t at = batch_word(extra);
    return (uint64_t)extra->words[at + 1] << 32 | extra->words[at];
}

uint32_t job_failures(const struct job *job)
{
    return job->extra && job->extra->has & EXTRA_ERRORS ? *failures_word(job->extra) : 0;
}

static char *append(char *text, struct engine_slice slice)
{
    if (slice.count > 0) memcpy(text, slice.at, slice.count);
    return text + slice.count;
}

int extra_new(struct engine *engine, const struct op_job *op, const uint32_t *limits,
              uint32_t chain, struct extra **ret_extra)
{
    struct extra head = {.limit_count = (uint8_t)op->limit_key_count,
                         .unique_bytes = (uint8_t)op->unique_key.count,
                         .idempotency_bytes = (uint8_t)op->idempotency_key.count,
                         .tag_bytes = (uint8_t)op->tags.count};
    struct extra *extra;
    char *text;

    if (chain) head.has |= EXTRA_CHAIN;
    if (op->batch) head.has |= EXTRA_BATCH;
    *ret_extra = NULL;
    if (extra_bytes(&head) == sizeof head) return 0;
    extra = memory_resize(&engine->memory, NULL, 0, extra_bytes(&head));
    if (!extra) return -ENOMEM;
    *extra = head;
    for (uint32_t i = 0; i < op->limit_key_count; i++) extra->words[i] = limits[i];
    if (chain) extra->words[extra->limit_count] = chain;
    if (op->batch) {
        extra->words[batch_word(extra)] = (uint32_t)op->batch;
        extra->words[batch_word(extra) + 1] = (uint32_t)(op->batch >> 32);
    }
    text = append(extra_text(extra), op->unique_key);
    text = append(text, op->idempotency_key);
    append(text, op->tags);
    *ret_extra = extra;
    return 0;
}

static void failure_free(struct engine *engine, uint32_t number)
{
    struct failure *failure = failure_at(engine, number);
    size_t bytes = failure->class_bytes + failure->message_bytes;
    if (failure->text) memory_resize(&engine->memory, failure->text, bytes, 0);
    slab_give(&engine->failures, number);
}

void extra_free(struct engine *engine, struct extra *extra)
{
    uint32_t next;
    if (!extra) return;
    if (extra->has & EXTRA_ERRORS) {
        for (uint32_t at = *failures_word(extra); at; at = next) {
            next = failure_at(engine, at)->next;
            failure_free(engine, at);
        }
    }
    memory_resize(&engine->memory, extra, extra_bytes(extra), 0);
}

void failures_join_payload(struct engine *engine, const struct job *job)
{
    for (uint32_t at = job_failures(job); at; at = failure_at(engine, at)->next) {
        failure_at(engine, at)->beside_payload = true;
    }
}

/* A word for the errors, between the other words and the text. */
static int extra_add_failures(struct engine *engine, struct job *job)
{
    struct extra *old = job->extra;
    struct extra none = {0};
    size_t before = old ? extra_bytes(old) : 0;
    size_t words = extra_word_count(old ? old : &none) * sizeof(uint32_t);
    struct extra *extra;

    if (old && old->has & EXTRA_ERRORS) return 0;
    extra =
        memory_resize(&engine->memory, NULL, 0, (old ? before : sizeof none) + sizeof(uint32_t));
    if (!extra) return -ENOMEM;
    *extra = none;
    if (old) {
        memcpy(extra, old, sizeof *old + words);
        memcpy((char *)extra->words + words + sizeof(uint32_t), extra_text(old), text_bytes(old));
        memory_resize(&engine->memory, old, before, 0);
    }
    extra->has |= EXTRA_ERRORS;
    *failures_word(extra) = 0;
    job->extra = extra;
    return 0;
}

static char *text_new(struct engine *engine, size_t bytes)
{
    for (uint32_t i = 0; i < engine->kept_text_count; i++) {
        struct kept_text *kept = &engine->kept_texts[i];
        char *text = kept->text;
        if (!text || kept->bytes != bytes) continue;
        kept->text = NULL;
        return text;
    }
    return memory_resize(&engine->memory, NULL, 0, bytes);
}

int failure_keep(struct engine *engine, const struct engine_settle *settle)
{
    struct kept_text *kept = &engine->kept_texts[engine->kept_text_count];
    struct job *job = job_at(engine, job_find(engine, settle->id));
    size_t bytes = settle->message.count;

    if (bytes > engine->config.message_bytes_max) bytes = engine->config.message_bytes_max;
    *kept = (struct kept_text){.bytes = bytes + settle->class.count};
    /* One row for each of them, the texts' and those without. */
    if (slab_ensure(&engine->failures, &engine->memory, ENGINE_SETTLE_MAX) < 0) return -ENOMEM;
    if (extra_add_failures(engine, job) < 0) return -ENOMEM;
    if (kept->bytes == 0) return 0;
    kept->text = memory_resize(&engine->memory, NULL, 0, kept->bytes);
    if (!kept->text) return -ENOMEM;
    engine->kept_text_count++;
    return 0;
}

/* The first one that `at` leads to. */
static void failure_drop(struct engine *engine, const struct job *job, uint32_t *at)
{
    uint32_t number = *at;

    live_failure(engine, job, failure_at(engine, number), -1);
    *at = failure_at(engine, number)->next;
    failure_free(engine, number);
}

int failure_set(struct engine *engine, struct job *job, const struct op_error *op,
                uint64_t position)
{
    size_t bytes = op->class.count + op->message.count;
    char *text = NULL;
    struct failure *failure;
    uint32_t *at;
    uint32_t number, count = 0;

    if (slab_ensure(&engine->failures, &engine->memory, 1) < 0) return -ENOMEM;
    if (bytes > 0 && !(text = text_new(engine, bytes))) return -ENOMEM;
    if (extra_add_failures(engine, job) < 0) {
        if (text) memory_resize(&engine->memory, text, bytes, 0);
        return -ENOMEM;
    }
    /* Rising by run; the same run again takes the place of what was said of it. */
    at = failures_word(job->extra);
    while (*at && failure_at(engine, *at)->run < op->run) at = &failure_at(engine, *at)->next;
    if (*at && failure_at(engine, *at)->run == op->run) failure_drop(engine, job, at);
    number = slab_take(&engine->failures);
    failure = failure_at(engine, number);
    failure->next = *at;
    failure->run = op->run;
    failure->at_ms = op->at_ms;
    failure->beside_payload = position == job->position;
    failure->class_bytes = (uint16_t)op->class.count;
    failure->message_bytes = (uint32_t)op->message.count;
    failure->text = text;
    if (text) append(append(text, op->class), op->message);
    *at = number;
    live_failure(engine, job, failure, 1);
    for (number = *failures_word(job->extra); number; number = failure_at(engine, number)->next) {
        count++;
    }
    if (count > ENGINE_ERRORS_KEPT) failure_drop(engine, job, failures_word(job->extra));
    return 0;
}

int engine_job_errors(const struct engine *engine, uint64_t id,
                      struct engine_error ret_errors[ENGINE_ERRORS_KEPT])
{
    uint32_t job = job_find(engine, id);
    int count = 0;

    if (!job) return -ENOENT;
    for (uint32_t at = job_failures(job_at(engine, job)); at; at = failure_at(engine, at)->next) {
        const struct failure *failure = failure_at(engine, at);
        const char *text = failure->text ? failure->text : "";
        ret_errors[count++] = (struct engine_error){
            .run = failure->run,
            .at_ms = failure->at_ms,
            .class = {text, failure->class_bytes},
            .message = {text + failure->class_bytes, failure->message_bytes},
        };
    }
    return count;
}
