/* tracer.c - from a span's end to the exporter: shards, and the thread that empties them.
 *
 * A span that ends is put into the list of its worker. The first one arms the worker's timer;
 * when that fires, or the list is half full, the thread is asked to export. So a program that
 * has no spans to export is not woken for them, and time is the kernel seam's.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rt/mem.h"
#include "watch/trace.h"

/* Beyond that the wall clock has been set, or the machine has slept. */
#define OFFSET_SLACK_NS INT64_C(1000000000)

/* ---- Chance: xoshiro256** (Blackman, Vigna), seeded from the kernel ---- */

static uint64_t rotate(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

static uint64_t random_next(uint64_t s[4])
{
    uint64_t result = rotate(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return result;
}

void tracer_random(struct trace_shard *shard, uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        uint64_t word;
        do word = random_next(shard->random);
        while (word == 0);
        memcpy(data + i, &word, bytes - i < sizeof word ? bytes - i : sizeof word);
    }
}

/* By the last 56 bits of the trace id, which the W3C asks to be random: others decide alike. */
bool tracer_samples(const struct tracer *tracer, const uint8_t *trace_id)
{
    uint64_t value = 0;

    if (tracer->spec.sampling != WEIR_TRACE_RATIO) return tracer->spec.sampling == WEIR_TRACE_ALL;
    for (size_t i = WEIR_TRACE_ID_BYTES - 7; i < WEIR_TRACE_ID_BYTES; i++) {
        value = value << 8 | trace_id[i];
    }
    return value < tracer->sample_below;
}

/* ---- Shards ---- */

static void ask(struct tracer *tracer)
{
    lock_acquire(&tracer->lock);
    tracer->asked = true;
    bell_ring(&tracer->work);
    lock_release(&tracer->lock);
}

static void flush_time(struct worker *worker, struct timer *timer)
{
    struct trace_shard *shard = container_of(timer, struct trace_shard, timer);

    (void)worker;
    shard->armed = false;
    ask(shard->tracer);
}

void tracer_take(struct trace_shard *shard, struct span_record *take_record)
{
    struct tracer *tracer = shard->tracer;
    bool full, half;

    take_record->next = NULL;
    sanitize_release(take_record); /* the exporter reads it on another thread */
    (void)atom_add(&shard->ended, 1);
    lock_acquire(&shard->lock);
    full = shard->count >= tracer->spec.buffer_max;
    if (!full) {
        *shard->end = take_record;
        shard->end = &take_record->next;
        shard->count++;
    }
    half = shard->count == (tracer->spec.buffer_max + 1) / 2;
    lock_release(&shard->lock);
    if (full) {
        (void)atom_add(&shard->dropped_full, 1);
        span_record_free(take_record);
        return;
    }
    if (!shard->armed) {
        shard->armed = true;
        timer_arm(shard->worker, &shard->timer,
                  time_after_ms(take_record->data.end_ns, tracer->spec.flush_ms));
    }
    if (half) ask(tracer);
}

/* ---- The thread ---- */

static void set_offset(struct tracer *tracer)
{
    const struct kernel *kernel = tracer->kernel;
    int64_t offset_ns = kernel->wall_ns(kernel) - kernel->now_ns(kernel);
    int64_t moved_ns = offset_ns - tracer->unix_offset_ns;

    if (moved_ns > OFFSET_SLACK_NS || moved_ns < -OFFSET_SLACK_NS) {
        tracer->unix_offset_ns = offset_ns;
    }
}

/* The runtime does not end while its log is written to. False: it has ended. */
static bool log_begin(struct tracer *tracer)
{
    lock_acquire(&tracer->lock);
    tracer->logs = !tracer->abandoned;
    lock_release(&tracer->lock);
    return tracer->logs;
}

static void log_end(struct tracer *tracer)
{
    lock_acquire(&tracer->lock);
    tracer->logs = false;
    bell_ring(&tracer->ended);
    lock_release(&tracer->lock);
}

/* Said when it begins and when it is over, not for each batch. */
static void note_result(struct tracer *tracer, int result, size_t count)
{
    if (result < 0) {
        (void)atom_add(&tracer->failures, 1);
        (void)atom_add(&tracer->lost, count);
    } else {
        (void)atom_add(&tracer->exported, count);
    }
    if (tracer->failing == (result < 0)) return;
    tracer->failing = result < 0;
    if (!log_begin(tracer)) return;
    if (result < 0) {
        log_write(tracer->runtime, WEIR_LOG_WARNING, NULL,
                  "trace: exporter '%s' fails, spans are lost: %s", tracer->exporter.name,
                  weir_strerror(result));
    } else {
        log_write(tracer->runtime, WEIR_LOG_WARNING, NULL,
                  "trace: exporter '%s' works again; %llu spans were lost", tracer->exporter.name,
                  (unsigned long long)atom_load(&tracer->lost));
    }
    log_end(tracer);
}

/* The records from `record` on, a batch of them; returns what is left. */
static struct span_record *export_batch(struct tracer *tracer, struct trace_shard *shard,
                                        struct span_record *record)
{
    weir_trace_batch batch = {.service = tracer->service,
                              .unix_offset_ns = tracer->unix_offset_ns,
                              .spans = tracer->batch};

    while (record && batch.count < WEIR_TRACE_BATCH_MAX) {
        sanitize_acquire(record);
        tracer->batch[batch.count++] = &record->data;
        record = record->next;
    }
    note_result(tracer, tracer->exporter.write(tracer->exporter.keep_state, &batch), batch.count);
    for (size_t i = 0; i < batch.count; i++) {
        span_record_free((struct span_record *)(uintptr_t)tracer->batch[i]);
    }
    lock_acquire(&shard->lock);
    shard->count -= batch.count;
    lock_release(&shard->lock);
    return record;
}

static void export_shard(struct tracer *tracer, struct trace_shard *shard)
{
    struct span_record *record;

    lock_acquire(&shard->lock);
    record = shard->first;
    shard->first = NULL;
    shard->end = &shard->first;
    lock_release(&shard->lock);
    while (record) record = export_batch(tracer, shard, record);
}

static void *tracer_main(void *arg)
{
    struct tracer *tracer = arg;
    bool closing;

    do {
        lock_acquire(&tracer->lock);
        while (!tracer->asked && !tracer->closing) {
            (void)bell_wait(&tracer->work, &tracer->lock, BELL_FOR_EVER);
        }
        tracer->asked = false;
        closing = tracer->closing;
        lock_release(&tracer->lock);
        set_offset(tracer);
        for (unsigned i = 0; i < tracer->runtime->worker_count; i++) {
            export_shard(tracer, &tracer->shards[i]);
        }
    } while (!closing);
    if (tracer->exporter.end) tracer->exporter.end(tracer->exporter.keep_state);
    lock_acquire(&tracer->lock);
    tracer->over = true;
    bell_ring(&tracer->ended);
    lock_release(&tracer->lock);
    return NULL;
}

/* ---- Opening ---- */

static int check_sampling(const weir_trace_spec *spec)
{
    if (spec->sampling == WEIR_TRACE_SAMPLING_UNSET || spec->sampling > WEIR_TRACE_RATIO) {
        return refuse("trace: sampling is not set");
    }
    if (spec->sampling == WEIR_TRACE_RATIO) {
        if (spec->sample_ratio > 0 && spec->sample_ratio < 1) return 0;
        return refuse("trace: sample_ratio is not more than 0 and less than 1");
    }
    if (spec->sample_ratio != 0) {
        return refuse("trace: sample_ratio is set but sampling is not WEIR_TRACE_RATIO");
    }
    return 0;
}

/* The program's spec, of which it may know fewer or more members. */
static void read_spec(const weir_config *config, weir_trace_spec *ret_spec)
{
    spec_copy(ret_spec, sizeof *ret_spec, config->trace, config->trace->spec_bytes);
}

int tracer_check(const weir_config *config)
{
    weir_trace_spec spec;
    int r;

    if (!config->trace) return 0;
    if (config->trace->spec_bytes == 0) {
        return refuse("trace: spec_bytes is not set (use WEIR_TRACE, or weir_trace_spec_init)");
    }
    read_spec(config, &spec);
    if (!spec.service || !*spec.service) return refuse("trace: service is not set");
    r = check_sampling(&spec);
    if (r < 0) return r;
    if (spec.overflow != WEIR_DROP_NEWEST) {
        return refuse("trace: overflow is not WEIR_DROP_NEWEST, which is all there is: spans make "
                      "nobody wait");
    }
    if (spec.buffer_max > WEIR_TRACE_BUFFER_MAX) {
        return refuse("trace: buffer_max is %zu, at most %d", spec.buffer_max,
                      WEIR_TRACE_BUFFER_MAX);
    }
    if (spec.flush_ms < 0 || spec.close_ms < 0) {
        return refuse("trace: flush_ms or close_ms is negative");
    }
    if (!spec.file_path == !spec.keep_exporter) {
        return refuse("trace: not one of file_path and keep_exporter is set");
    }
    if (spec.keep_exporter && (!spec.keep_exporter->write || !spec.keep_exporter->name)) {
        return refuse("trace: keep_exporter has no write, or no name");
    }
    return trace_file_check(&spec);
}

static void set_defaults(weir_trace_spec *spec)
{
    if (spec->buffer_max == 0) spec->buffer_max = WEIR_TRACE_BUFFER_DEFAULT;
    if (spec->flush_ms == 0) spec->flush_ms = WEIR_TRACE_FLUSH_MS_DEFAULT;
    if (spec->close_ms == 0) spec->close_ms = WEIR_TRACE_CLOSE_MS_DEFAULT;
}

static bool shards_new(struct tracer *tracer)
{
    weir_runtime *runtime = tracer->runtime;
    size_t bytes = runtime->worker_count * sizeof *tracer->shards;
    uintptr_t address;

    tracer->shard_memory = mem_alloc_zeroed(bytes + _Alignof(struct trace_shard));
    if (!tracer->shard_memory) return false;
    address = (uintptr_t)tracer->shard_memory + _Alignof(struct trace_shard) - 1;
    tracer->shards = (struct trace_shard *)(address & ~(_Alignof(struct trace_shard) - 1));
    for (unsigned i = 0; i < runtime->worker_count; i++) {
        struct trace_shard *shard = &tracer->shards[i];
        shard->tracer = tracer;
        shard->worker = &runtime->workers[i];
        shard->end = &shard->first;
        timer_init(&shard->timer, flush_time);
        lock_init(&shard->lock);
        tracer->kernel->random(tracer->kernel, shard->random, sizeof shard->random);
        shard->random[0] |= 1; /* all zero would stay so */
    }
    return true;
}

static void shards_free(struct tracer *tracer)
{
    for (unsigned i = 0; i < tracer->runtime->worker_count; i++) {
        lock_deinit(&tracer->shards[i].lock);
    }
    mem_free(tracer->shard_memory);
}

static int open_exporter(struct tracer *tracer)
{
    weir_trace_spec *spec = &tracer->spec;

    if (spec->keep_exporter) {
        tracer->exporter = *spec->keep_exporter;
        return 0;
    }
    int r = trace_file_open(tracer->kernel, spec, &tracer->file);
    tracer->exporter = (weir_trace_exporter){
        .name = "file", .write = trace_file_write, .keep_state = tracer->file};
    return r;
}

static void init_thread(struct tracer *tracer)
{
    lock_init(&tracer->lock);
    bell_init(&tracer->work, tracer->kernel);
    bell_init(&tracer->ended, tracer->kernel);
}

static void tracer_free(struct tracer *tracer)
{
    bell_deinit(&tracer->work);
    bell_deinit(&tracer->ended);
    lock_deinit(&tracer->lock);
    trace_file_close(tracer->file);
    shards_free(tracer);
    mem_free(tracer);
}

int tracer_open(weir_runtime *runtime, const weir_config *config)
{
    struct tracer *tracer;
    int r;

    if (!config->trace) return 0;
    tracer = mem_alloc_zeroed(sizeof *tracer);
    if (!tracer) return -ENOMEM;
    tracer->runtime = runtime;
    tracer->kernel = runtime->kernel;
    read_spec(config, &tracer->spec);
    set_defaults(&tracer->spec);
    (void)snprintf(tracer->service, sizeof tracer->service, "%s", tracer->spec.service);
    tracer->spec.service = tracer->service;
    tracer->sample_below = (uint64_t)(tracer->spec.sample_ratio * (double)(UINT64_C(1) << 56));
    set_offset(tracer);
    if (!shards_new(tracer)) {
        mem_free(tracer);
        return -ENOMEM;
    }
    init_thread(tracer);
    r = open_exporter(tracer);
    if (r == 0) {
        r = tracer->kernel->thread_start(tracer->kernel, &tracer->thread, tracer_main, tracer);
    }
    if (r < 0) {
        tracer_free(tracer);
        return r;
    }
    runtime->tracer = tracer;
    return 0;
}

/* ---- Closing ---- */

int tracer_close(weir_runtime *runtime)
{
    struct tracer *tracer = runtime->tracer;
    int64_t until_ns;

    if (!tracer) return 0;
    /* The workers' threads are gone. */
    for (unsigned i = 0; i < runtime->worker_count; i++) {
        timer_disarm(&runtime->workers[i], &tracer->shards[i].timer);
    }
    until_ns = bell_after_ms(&tracer->ended, tracer->spec.close_ms);
    lock_acquire(&tracer->lock);
    tracer->closing = true;
    bell_ring(&tracer->work);
    while (!tracer->over) {
        if (bell_wait(&tracer->ended, &tracer->lock, until_ns) == -ETIMEDOUT) break;
    }
    while (tracer->logs) (void)bell_wait(&tracer->ended, &tracer->lock, BELL_FOR_EVER);
    tracer->abandoned = !tracer->over;
    lock_release(&tracer->lock);
    if (tracer->abandoned) {
        log_write(runtime, WEIR_LOG_ERROR, NULL,
                  "trace: exporter '%s' does not return within %lld ms; spans may be lost, and its "
                  "thread and the runtime's memory are left behind",
                  tracer->exporter.name, (long long)tracer->spec.close_ms);
        return 1;
    }
    (void)tracer->kernel->thread_join(tracer->kernel, tracer->thread);
    runtime->tracer = NULL;
    tracer_free(tracer);
    return 0;
}

/* ---- Looking ---- */

void tracer_figures(struct tracer *tracer, struct tracer_figures *ret_figures)
{
    struct tracer_figures figures = {.buffer_max = tracer->spec.buffer_max,
                                     .exported = atom_load(&tracer->exported),
                                     .lost = atom_load(&tracer->lost),
                                     .failures = atom_load(&tracer->failures)};

    for (unsigned i = 0; i < tracer->runtime->worker_count; i++) {
        struct trace_shard *shard = &tracer->shards[i];
        figures.ended += atom_load(&shard->ended);
        figures.dropped_full += atom_load(&shard->dropped_full);
        figures.dropped_memory += atom_load(&shard->dropped_memory);
        lock_acquire(&shard->lock);
        figures.buffered += shard->count;
        lock_release(&shard->lock);
    }
    *ret_figures = figures;
}
