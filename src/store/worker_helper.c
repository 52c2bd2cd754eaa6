/* worker_helper.c - jobs in helper processes: what the worker sends, what a helper answers.
 *
 * Both sides are programs of one machine, so numbers are its own; a head names the version. The
 * bytes are in docs/formats/process-pool.md.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "io/process_pool.h"
#include "rt/mem.h"
#include "store/worker.h"

enum { REQUEST_MAGIC = 0x4a575101, ANSWER_MAGIC = 0x4a574101, PAYLOAD_ALIGNMENT = 16 };
enum { IS_IDEMPOTENT = 1 << 8 };

struct request {
    uint32_t magic;
    uint32_t version;
    uint64_t id;
    int64_t created_ms;
    int64_t lease_until_ms;
    uint32_t run, attempt, attempts_max;
    uint32_t priority;                             /* and IS_IDEMPOTENT */
    uint32_t queue_bytes, kind_bytes, trace_bytes; /* with their terminators */
    uint32_t payload_bytes;                        /* behind them, aligned */
};

struct answer {
    uint32_t magic;
    int32_t returned;
    uint32_t as;
    uint32_t result_bytes; /* behind it */
    int64_t delay_ms;
    char error_class[64];
    char error_message[WEIR_OUTCOME_TEXT_BYTES];
};

_Static_assert(sizeof(struct answer) == WEIR_WORKER_ANSWER_BYTES, "as worker.h says");
_Static_assert(sizeof(struct request) + 2 * (WEIR_JOB_NAME_BYTES_MAX + 1) + 256 <=
                   WEIR_WORKER_REQUEST_BYTES,
               "as worker.h says: names, and a traceparent");

static size_t aligned(size_t bytes)
{
    return (bytes + PAYLOAD_ALIGNMENT - 1) & ~(size_t)(PAYLOAD_ALIGNMENT - 1);
}

/* ---- The worker's side ---- */

int worker_check_processes(const weir_worker_spec *spec)
{
    const weir_process_pool *pool =
        io_check(spec->processes, HANDLE_PROCESS_POOL, "weir_worker_open");
    size_t need = sizeof(struct answer) + spec->result_bytes_max;

    if (pool->spec.out_bytes_max >= need) return 0;
    return refuse("worker '%s': out_bytes_max of process pool '%s' is %zu, and an answer with "
                  "result_bytes_max has %zu",
                  spec->name, pool->name, pool->spec.out_bytes_max, need);
}

static struct request request_of(const weir_job *job)
{
    return (struct request){
        .magic = REQUEST_MAGIC,
        .version = job->version,
        .id = job->id,
        .created_ms = job->created_ms,
        .lease_until_ms = job->lease_until_ms,
        .run = job->run,
        .attempt = job->attempt,
        .attempts_max = job->attempts_max,
        .priority = job->priority | (job->idempotent ? IS_IDEMPOTENT : 0u),
        .queue_bytes = (uint32_t)strlen(job->queue) + 1,
        .kind_bytes = (uint32_t)strlen(job->kind) + 1,
        .trace_bytes = (uint32_t)strlen(job->trace) + 1,
        .payload_bytes = (uint32_t)job->payload_bytes,
    };
}

static size_t names_bytes(const struct request *request)
{
    return (size_t)request->queue_bytes + request->kind_bytes + request->trace_bytes;
}

static void encode(const struct request *request, const weir_job *job, unsigned char *at)
{
    unsigned char *payload = at + aligned(sizeof *request + names_bytes(request));

    memcpy(at, request, sizeof *request);
    at += sizeof *request;
    memcpy(at, job->queue, request->queue_bytes);
    at += request->queue_bytes;
    memcpy(at, job->kind, request->kind_bytes);
    at += request->kind_bytes;
    memcpy(at, job->trace, request->trace_bytes);
    at += request->trace_bytes;
    memset(at, 0, (size_t)(payload - at));
    if (job->payload_bytes > 0) memcpy(payload, job->payload, job->payload_bytes);
}

/* What the helper has said goes to the call. False: that is no answer. */
static bool take_answer(struct job_call *call, const unsigned char *out, size_t out_bytes)
{
    struct answer answer;

    if (out_bytes < sizeof answer) return false;
    memcpy(&answer, out, sizeof answer);
    if (answer.magic != ANSWER_MAGIC || answer.as > WEIR_CLASS_SNOOZE ||
        answer.result_bytes != out_bytes - sizeof answer ||
        answer.result_bytes > call->result_bytes_max) {
        return false;
    }
    call->returned = answer.returned;
    call->outcome.as = (enum weir_job_class)answer.as;
    call->outcome.delay_ms = answer.delay_ms;
    call->outcome.result_bytes = answer.result_bytes;
    memcpy(call->result, out + sizeof answer, answer.result_bytes);
    memcpy(call->outcome.error_class, answer.error_class, sizeof answer.error_class);
    memcpy(call->outcome.error_message, answer.error_message, sizeof answer.error_message);
    call->has_run = true;
    return true;
}

/* The attempt has failed by its helper, not by its handler. */
static int blame_helper(struct job_slot *slot, const char *class, int error, const char *sentence)
{
    struct verdict *verdict = &slot->verdict;

    *verdict = (struct verdict){.how = WEIR_SETTLE_FAIL, .delay_ms = -1};
    (void)snprintf(verdict->error_class, sizeof verdict->error_class, "%s", class);
    (void)snprintf(verdict->error_message, sizeof verdict->error_message, "%s",
                   sentence && *sentence ? sentence : weir_strerror(error));
    return error;
}

int worker_call_process(struct job_slot *slot)
{
    struct job_call *call = slot->call;
    struct request request = request_of(&call->job);
    size_t out_bytes_max = sizeof(struct answer) + call->result_bytes_max;
    size_t payload_at = aligned(sizeof request + names_bytes(&request));
    size_t in_bytes = payload_at + call->job.payload_bytes;
    unsigned char *in = mem_alloc(aligned(in_bytes) + out_bytes_max);
    unsigned char *out = in ? in + aligned(in_bytes) : NULL;
    weir_job_result result = {0};
    bool begun = false;
    int r = -ENOMEM;

    if (!in) return r;
    encode(&request, &call->job, in);
    WEIR_NO_DEADLINE("job_ms of the process pool ends it, and so does a lost lease") {
        r = process_pool_run(slot->worker->spec.processes, in, in_bytes, out, out_bytes_max,
                             &result, &begun);
    }
    if (r == WEIR_EEXIT) {
        r = blame_helper(slot, "crashed", r, weir_why());
    } else if (r == WEIR_EOVERTIME) {
        r = blame_helper(slot, "overtime", r, weir_why());
    } else if (r == WEIR_EPROTOCOL || r == WEIR_EREFUSED) {
        r = blame_helper(slot, weir_error_name(r), r, weir_why());
    } else if (r == 0 && result.value == -EMSGSIZE) {
        r = blame_helper(slot, weir_error_name(-EMSGSIZE), -EMSGSIZE,
                         "the handler's result is larger than result_bytes_max");
    } else if (r == 0 && !take_answer(call, out, result.out_bytes)) {
        r = blame_helper(slot, weir_error_name(WEIR_EPROTOCOL), WEIR_EPROTOCOL,
                         "the helper's answer is not one of weir_worker_helper");
    } else if (r < 0 && begun && !call->job.idempotent) {
        /* Given back it would be begun twice. */
        r = blame_helper(slot, "interrupted", r, "its helper was killed while it ran");
    }
    mem_free(in);
    return r;
}

/* ---- The helper's side ---- */

struct helper_program {
    const weir_handler *handlers;
    size_t handler_count;
    void *deps;
};

/* False: it is not what a worker sends. */
static bool decode(const unsigned char *in, size_t in_bytes, weir_job *ret_job)
{
    struct request request;
    const char *queue, *kind, *trace;
    size_t payload_at;

    if (in_bytes < sizeof request) return false;
    memcpy(&request, in, sizeof request);
    if (request.magic != REQUEST_MAGIC) return false;
    payload_at = aligned(sizeof request + names_bytes(&request));
    if (request.queue_bytes == 0 || request.kind_bytes == 0 || request.trace_bytes == 0 ||
        payload_at > in_bytes || in_bytes - payload_at != request.payload_bytes) {
        return false;
    }
    queue = (const char *)in + sizeof request;
    kind = queue + request.queue_bytes;
    trace = kind + request.kind_bytes;
    if (queue[request.queue_bytes - 1] || kind[request.kind_bytes - 1] ||
        trace[request.trace_bytes - 1]) {
        return false;
    }
    *ret_job = (weir_job){
        .id = request.id,
        .queue = queue,
        .kind = kind,
        .version = request.version,
        .payload = in + payload_at,
        .payload_bytes = request.payload_bytes,
        .trace = trace,
        .run = request.run,
        .attempt = request.attempt,
        .attempts_max = request.attempts_max,
        .priority = (uint8_t)request.priority,
        .idempotent = (request.priority & IS_IDEMPOTENT) != 0,
        .created_ms = request.created_ms,
        .lease_until_ms = request.lease_until_ms,
    };
    return true;
}

static weir_handler_fn find_handler(const struct helper_program *program, const weir_job *job)
{
    for (size_t i = 0; i < program->handler_count; i++) {
        const weir_handler *handler = &program->handlers[i];
        uint32_t version_max = handler->version_max ? handler->version_max : handler->version_min;
        if (strcmp(handler->kind, job->kind) == 0 && job->version >= handler->version_min &&
            job->version <= version_max) {
            return handler->fn;
        }
    }
    return NULL;
}

static int serve(void *arg, const void *in, size_t in_bytes, void *out, size_t out_bytes_max,
                 size_t *ret_out_bytes)
{
    const struct helper_program *program = arg;
    struct answer answer = {.magic = ANSWER_MAGIC};
    weir_job_outcome outcome = {0};
    weir_handler_fn fn;
    weir_job job;

    if (out_bytes_max < sizeof answer || !decode(in, in_bytes, &job)) return -EBADMSG;
    outcome.result = (unsigned char *)out + sizeof answer;
    outcome.memory_ = OUTCOME_OF_HELPER;
    fn = find_handler(program, &job);
    if (fn) {
        answer.returned = fn(program->deps, job, &outcome);
    } else {
        outcome.as = WEIR_CLASS_RETRY;
        (void)snprintf(outcome.error_class, sizeof outcome.error_class, "%s", "ENOSYS");
        (void)snprintf(outcome.error_message, sizeof outcome.error_message,
                       "the helper has no handler for kind '%.100s', version %u", job.kind,
                       job.version);
    }
    *ret_out_bytes = 0;
    if (outcome.result_bytes > out_bytes_max - sizeof answer) return -EMSGSIZE;
    answer.as = (uint32_t)outcome.as;
    answer.delay_ms = outcome.delay_ms;
    answer.result_bytes = (uint32_t)outcome.result_bytes;
    memcpy(answer.error_class, outcome.error_class, sizeof answer.error_class);
    memcpy(answer.error_message, outcome.error_message, sizeof answer.error_message);
    memcpy(out, &answer, sizeof answer);
    *ret_out_bytes = sizeof answer + outcome.result_bytes;
    return 0;
}

void weir_worker_helper(int argc, char **argv, const weir_handler *handlers, size_t handler_count,
                        void *keep_deps)
{
    struct helper_program program = {handlers, handler_count, keep_deps};
    weir_process_pool_helper(argc, argv, serve, &program);
}
