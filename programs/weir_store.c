/* weir_store.c - the program weir-store: look at a store, and repair it into a copy.
 *
 * Data goes to standard output, messages to standard error. Exit: 0 all is well; 1 damage or an
 * error; 2 wrong usage; 3 there is no store; 4 it is in use. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/jobs.h>

#include "engine/codec.h"
#include "store/log_tool.h"
#include "store/store.h"

enum { EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_NOT_FOUND, EXIT_BUSY };
enum { PREVIEW_BYTES = 24 };

static const char usage[] =
    "usage: weir-store verify FOLDER         whether it can be opened, and figures\n"
    "       weir-store jobs FOLDER           how many jobs of each queue are in which state\n"
    "       weir-store dump FOLDER           every record in words, and all damage\n"
    "       weir-store repair FOLDER COPY    what is whole, into a new store COPY\n"
    "       weir-store --help | --version\n"
    "\n"
    "A store that is in use is left alone.\n"
    "exit status: 0 all is well, 1 damage or an error, 2 wrong usage, 3 there is no\n"
    "store, 4 it is in use. `repair` ends with 0 if the copy was made; it tells what was lost.\n";

static int status_of(int error)
{
    return error == -ENOENT ? EXIT_NOT_FOUND : error == -EBUSY ? EXIT_BUSY : EXIT_FAILED;
}

static int complain(int error, const struct log_why *why)
{
    fprintf(stderr, "weir-store: %s\n", why->text);
    return status_of(error);
}

static int verify(const char *path)
{
    struct log_summary summary;
    struct log_why why = {""};
    int r = log_verify(kernel_current(), path, &summary, &why);

    if (r < 0) return complain(r, &why);
    printf("version %d\nstore ", LOG_VERSION);
    for (int i = 0; i < LOG_ID_BYTES; i++) printf("%02x", summary.meta.id.bytes[i]);
    printf("\nsegments %" PRIu64 " of %" PRIu64 " bytes\n", summary.segment_count,
           summary.meta.segment_bytes);
    printf("positions %" PRIu64 " to %" PRIu64 "\nrecords %" PRIu64 "\n", summary.first,
           summary.end, summary.record_count);
    if (summary.gap_count > 0)
        printf("gaps %" PRIu64 " (damage that was repaired)\n", summary.gap_count);
    if (summary.torn_bytes > 0)
        printf("torn %" PRIu64 " bytes at the end, never acknowledged\n", summary.torn_bytes);
    return EXIT_OK;
}

static void print_preview(const unsigned char *data, uint32_t bytes)
{
    uint32_t shown = bytes < PREVIEW_BYTES ? bytes : PREVIEW_BYTES;

    printf(" ");
    for (uint32_t i = 0; i < shown; i++) printf("%02x", data[i]);
    printf("%s |", shown < bytes ? ".." : "");
    for (uint32_t i = 0; i < shown; i++)
        printf("%c", data[i] >= ' ' && data[i] <= '~' ? data[i] : '.');
    printf("|\n");
}

/* ---- What a record of the engine says ---- */

/* Names are bytes, which anybody may have chosen: what a terminal would take for a command is not
 * printed. */
static void print_text(const char *label, struct engine_slice text)
{
    const unsigned char *at = text.at;

    if (text.count == 0) return;
    printf(" %s=", label);
    for (size_t i = 0; i < text.count; i++)
        if (at[i] > ' ' && at[i] <= '~')
            printf("%c", at[i]);
        else
            printf("\\x%02x", at[i]);
}

static const char *state_name(uint8_t state)
{
    return weir_job_state_name((enum weir_job_state)state);
}

/* The parts of a set that mean something in its state. */
static void print_set(const struct op_set *set)
{
    if (set->runs > 0) printf(" run=%u attempt=%u", set->runs, set->attempts);
    if (set->state == ENGINE_LEASED) printf(" token=%" PRIu64, set->mark);
    if (set->when_ms > 0) printf(" when=%" PRId64, set->when_ms);
    if (set->has_result) printf(" result_bytes=%zu", set->result.count);
}

static void print_job(const struct op_job *job)
{
    printf("job %" PRIu64 " %s", job->set.id, state_name(job->set.state));
    print_text("queue", job->queue);
    print_text("kind", job->kind);
    printf(" version=%" PRIu32 " priority=%u", job->version, job->priority);
    print_text("unique_key", job->unique_key);
    print_text("idempotency_key", job->idempotency_key);
    print_text("fairness_key", job->fairness_key);
    print_text("order_key", job->order_key);
    for (uint32_t i = 0; i < job->limit_key_count; i++) print_text("limit_key", job->limit_keys[i]);
    if (job->batch) printf(" batch=%" PRIu64, job->batch);
    if (job->has_payload)
        printf(" payload_bytes=%zu", job->payload.count);
    else
        printf(" payload_at=%" PRIu64, job->position);
    print_set(&job->set);
}

static void print_queue(const struct op_queue *queue)
{
    printf("queue");
    print_text("name", queue->name);
    printf(" depth_max=%" PRIu32 " overflow=%s", queue->depth_max,
           queue->waits ? "wait" : "reject");
    if (queue->concurrency) printf(" concurrency=%" PRIu32, queue->concurrency);
    if (queue->rate.count)
        printf(" rate=%" PRIu32 "/%" PRIu32 "ms", queue->rate.count, queue->rate.period_ms);
    printf("%s%s", queue->paused ? " paused" : "", queue->draining ? " draining" : "");
}

static void print_key(const struct op_key *key)
{
    printf("key");
    print_text("name", key->name);
    if (key->concurrency) printf(" concurrency=%" PRIu32, key->concurrency);
    if (key->weight) printf(" weight=%" PRIu32, key->weight);
    if (key->rate.count)
        printf(" rate=%" PRIu32 "/%" PRIu32 "ms", key->rate.count, key->rate.period_ms);
}

static void print_schedule(const struct op *op)
{
    const struct op_schedule *schedule = &op->schedule;

    printf("schedule%s", op->type == OP_UNSCHEDULE ? " dropped" : "");
    print_text("name", schedule->name);
    print_text("cron", schedule->text);
    print_text("zone", schedule->zone);
    if (op->type != OP_UNSCHEDULE)
        printf(" next=%" PRId64 " last_job=%" PRIu64, schedule->next_ms, schedule->last_id);
}

static void print_bulk(const struct op *op)
{
    static const char *const actions[] = {"none", "replay", "purge", "cancel"};
    const struct op_bulk *bulk = &op->bulk;

    printf("set %" PRIu64, bulk->id);
    if (op->type == OP_BULK_DROP)
        printf(" dropped");
    else if (op->type == OP_BULK_AT)
        printf(" at=%" PRIu32 " failed=%" PRIu32, bulk->next, bulk->failed);
    else
        printf(" %s jobs=%" PRIu32, bulk->action < 4 ? actions[bulk->action] : "?", bulk->count);
}

static void print_op(const struct op *op)
{
    printf("    ");
    switch (op->type) {
    case OP_JOB: print_job(&op->job); break;
    case OP_SET:
        printf("job %" PRIu64 " %s", op->set.id, state_name(op->set.state));
        print_set(&op->set);
        break;
    case OP_FORGET: printf("job %" PRIu64 " forgotten", op->forget); break;
    case OP_ERROR:
        printf("job %" PRIu64 " error run=%u", op->error.id, op->error.run);
        print_text("class", op->error.class);
        print_text("message", op->error.message);
        break;
    case OP_QUEUE: print_queue(&op->queue); break;
    case OP_KEY: print_key(&op->key); break;
    case OP_SCHEDULE:
    case OP_SCHEDULED:
    case OP_UNSCHEDULE: print_schedule(op); break;
    case OP_BULK:
    case OP_BULK_AT:
    case OP_BULK_DROP: print_bulk(op); break;
    case OP_TYPES: break;
    }
    printf("\n");
}

static bool is_engines(uint16_t tag)
{
    return tag >= STORE_TAG_ENGINE && tag <= STORE_TAG_NAMES_ALL;
}

static void print_ops(const struct log_piece *piece)
{
    struct reader reader = {piece->data, piece->data + piece->frame.bytes, false};
    struct record_head head;
    struct op op;

    if (piece->frame.tag == STORE_TAG_CLOSED) printf("    the store was closed\n");
    if (!is_engines(piece->frame.tag)) return;
    if (!head_read(&reader, &head)) {
        printf("    (not in words: this is no record of jobs)\n");
        return;
    }
    printf("    time=%" PRId64 " last_job=%" PRIu64 " last_token=%" PRIu64 "\n", head.now_ms,
           head.last_id, head.last_token);
    while (op_read(&reader, &op)) {
        if (reader.bad) break;
        print_op(&op);
    }
    if (reader.bad) printf("    (the rest is not in words: this is no record of jobs)\n");
}

static void print_frame(const struct log_piece *piece)
{
    const struct log_frame *frame = &piece->frame;

    printf("  %" PRIu64 " ", piece->position);
    switch ((enum log_kind)frame->kind) {
    case LOG_KIND_MARK: printf("mark synced=%" PRIu64 "\n", log_mark_synced(piece->data)); break;
    case LOG_KIND_GAP: printf("gap bytes=%" PRIu32 "\n", frame->bytes); break;
    case LOG_KIND_RECORD:
        printf("record tag=%u bytes=%" PRIu32 " crc=%08" PRIx32, frame->tag, frame->bytes,
               frame->data_crc);
        print_preview(piece->data, frame->bytes);
        print_ops(piece);
        break;
    case LOG_KIND_NONE:
    case LOG_KINDS: break;
    }
}

static int print_piece(void *arg, const struct log_piece *piece)
{
    (void)arg;
    switch (piece->kind) {
    case LOG_PIECE_SEGMENT:
        printf("%016" PRIx64 ".log position=%" PRIu64 "\n", piece->sequence, piece->position);
        break;
    case LOG_PIECE_MISSING:
        printf("%016" PRIx64 ".log MISSING, or its header is lost\n", piece->sequence);
        break;
    case LOG_PIECE_FRAME: print_frame(piece); break;
    case LOG_PIECE_DAMAGE:
        printf("  %" PRIu64 " DAMAGED %016" PRIx64 ".log offset=%" PRIu64 " bytes=%" PRIu64 "\n",
               piece->position, piece->sequence, piece->offset, piece->bytes);
        break;
    case LOG_PIECE_TAIL:
        printf("  %" PRIu64 " end%s\n", piece->position,
               piece->bytes > 0 ? ", torn behind it" : "");
        break;
    }
    return 0;
}

static int dump(const char *path)
{
    struct log_why why = {""};
    int r = log_dump(kernel_current(), path, print_piece, NULL, &why);

    if (r < 0) return complain(r, &why);
    if (r == 0) return EXIT_OK;
    fprintf(stderr, "weir-store: %d damaged places\n", r);
    return EXIT_FAILED;
}

/* ---- Jobs by queue and state ---- */

static void *resize(void *arg, void *block, size_t bytes_before, size_t bytes)
{
    (void)arg, (void)bytes_before;
    if (bytes > 0) return realloc(block, bytes);
    free(block);
    return NULL;
}

struct replay {
    struct engine *engine;
    uint64_t position; /* of what could not be applied */
};

static int replay_piece(void *arg, const struct log_piece *piece)
{
    struct replay *replay = arg;
    int r;

    if (piece->kind != LOG_PIECE_FRAME || piece->frame.kind != LOG_KIND_RECORD) return 0;
    if (!is_engines(piece->frame.tag)) return 0;
    r = engine_apply(replay->engine, piece->data, piece->frame.bytes, piece->position);
    if (r < 0) replay->position = piece->position;
    return r;
}

static void print_queues(struct engine *engine)
{
    struct engine_queue_info info;
    uint32_t cursor = 0;

    while (engine_queue_next(engine, &cursor, &info) == 1) {
        struct engine_figures figures;

        if (engine_figures(engine, info.spec.name, &figures) < 0) continue;
        printf("queue");
        print_text("name", info.spec.name);
        for (int state = ENGINE_SCHEDULED; state < ENGINE_STATES; state++)
            if (figures.by_state[state] > 0)
                printf(" %s=%" PRIu64, state_name((uint8_t)state), figures.by_state[state]);
        printf("%s%s\n", info.spec.paused ? " paused" : "", info.spec.draining ? " draining" : "");
    }
    printf("jobs %" PRIu64 "\n", engine_job_count(engine));
}

static int jobs(const char *path)
{
    const struct engine_config config = {
        .resize = resize,
        .memory_bytes_max = SIZE_MAX / 2,
        .payload_bytes_max = WEIR_STORE_PAYLOAD_BYTES_MAX,
        .result_bytes_max = WEIR_STORE_PAYLOAD_BYTES_MAX,
        .message_bytes_max = STORE_MESSAGE_BYTES_MAX,
        .depth_max = UINT32_MAX,
        .history_ms = WEIR_STORE_HISTORY_MS_DEFAULT,
        .dead_ms = WEIR_STORE_DEAD_MS_DEFAULT,
        .history_count_max = WEIR_STORE_HISTORY_COUNT_DEFAULT,
    };
    struct replay replay = {0};
    struct log_why why = {""};
    int r = engine_open(&config, &replay.engine);

    if (r < 0) return EXIT_FAILED;
    r = log_dump(kernel_current(), path, replay_piece, &replay, &why);
    if (replay.position > 0) {
        fprintf(stderr, "weir-store: position %" PRIu64 ": %s\n", replay.position,
                engine_why(replay.engine));
    } else if (r < 0) {
        (void)complain(r, &why);
    } else {
        print_queues(replay.engine);
        if (r > 0)
            fprintf(stderr,
                    "weir-store: %d damaged places: jobs may be missing, or be shown as "
                    "they were before\n",
                    r);
    }
    engine_close(replay.engine);
    return r == 0 ? EXIT_OK : status_of(r);
}

static int repair(const char *from, const char *to)
{
    struct log_why why = {""};
    int r = log_repair(kernel_current(), from, to, print_piece, NULL, &why);

    if (r < 0) return complain(r, &why);
    fprintf(stderr, "weir-store: '%s' was made; %d damaged places were covered\n", to, r);
    return EXIT_OK;
}

static int run(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "";

    if (strcmp(command, "--help") == 0) return fputs(usage, stdout) < 0 ? EXIT_FAILED : EXIT_OK;
    if (strcmp(command, "--version") == 0) {
        printf("weir-store, format %d\n", LOG_VERSION);
        return EXIT_OK;
    }
    if (strcmp(command, "verify") == 0 && argc == 3) return verify(argv[2]);
    if (strcmp(command, "jobs") == 0 && argc == 3) return jobs(argv[2]);
    if (strcmp(command, "dump") == 0 && argc == 3) return dump(argv[2]);
    if (strcmp(command, "repair") == 0 && argc == 4) return repair(argv[2], argv[3]);
    fputs(usage, stderr);
    return EXIT_USAGE;
}

int main(int argc, char **argv)
{
    int status = run(argc, argv);

    if (fflush(stdout) != 0 && status == EXIT_OK) status = EXIT_FAILED;
    return status;
}
