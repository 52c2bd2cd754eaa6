/* trace_request.c - one request through task, channel, pool and pipeline is one trace, in a file
 * that others read. */
#include "unit/flow/flow_test.h"
#include "unit/watch/trace_test.h"

struct request {
    char traceparent[WEIR_TRACEPARENT_BYTES];
    int number;
};

typedef WEIR_TX(struct request) request_tx;
typedef WEIR_RX(struct request) request_rx;

static const weir_pool_class classes[] = {{.name = "all", .weight = 1, .queue_max = 8}};
static weir_pipeline *pipeline;
static weir_pool *pool;

static int rank(void *data)
{
    weir_trace_context context;
    if (!weir_trace_current(&context)) return WEIR_ECLOSED;
    ((struct request *)data)->number *= 2;
    return 0;
}

static int enrich(void *item, void *arg)
{
    (void)arg;
    WEIR_SPAN("look up") {
        weir_span_int("number", ((struct request *)item)->number);
        return weir_yield();
    }
    return 0;
}

static int compute(void *item, void *arg)
{
    (void)arg;
    return rank(item);
}

static void lost(void *item, const weir_lost *why, void *arg)
{
    (void)item, (void)why, (void)arg;
    CHECK(false);
}

static void open_all(weir_scope *scope, request_tx *tx, request_rx *rx)
{
    CHECK_OK(weir_chan_open(scope,
                            &(weir_chan_spec){.name = "requests",
                                              .capacity = 4,
                                              .overflow = WEIR_WAIT,
                                              .on_close = WEIR_DRAIN,
                                              .trace = true},
                            tx, rx));
    CHECK_OK(weir_pool_open(scope,
                            &(weir_pool_spec){.name = "ranking",
                                              .threads_max = 2,
                                              .overflow = WEIR_WAIT,
                                              .on_close = WEIR_DRAIN,
                                              .classes = classes,
                                              .class_count = 1},
                            &pool));
    const weir_stage_spec stages[] = {
        {.name = "enrich",
         .fn = enrich,
         .concurrency = 2,
         .queue_max = 4,
         .overflow = WEIR_WAIT,
         .timeout_ms = 5000,
         .on_failure = WEIR_STAGE_FAIL},
        {.name = "compute",
         .fn = compute,
         .concurrency = 2,
         .queue_max = 4,
         .overflow = WEIR_WAIT,
         .timeout_ms = 5000,
         .on_failure = WEIR_STAGE_FAIL,
         .pool = pool},
    };
    CHECK_OK(weir_pipeline_open(scope,
                                &(weir_pipeline_spec){.name = "answers",
                                                      .item_bytes = sizeof(struct request),
                                                      .budget_ms = 15000,
                                                      .stages = stages,
                                                      .stage_count = 2,
                                                      .on_lost = lost},
                                &pipeline));
}

/* Takes requests from the channel; each is a span in the trace in which it was sent. */
static int handle(void *arg)
{
    request_rx rx = *(request_rx *)arg;
    struct request request;
    int r;

    while ((r = weir_recv(rx, &request)) == 0) {
        weir_trace_context sent;
        CHECK(weir_trace_received(&sent));
        WEIR_SPAN_SPEC(
            &((weir_span_spec){.name = "handed on", .kind = WEIR_SPAN_CONSUMER, .parent = &sent})) {
            CHECK_OK(weir_pool_run(pool, 0, rank, &request, sizeof request));
            CHECK_OK(weir_pipeline_call(pipeline, &request, NULL));
            CHECK_INT(request.number % 4, ==, 0);
        }
    }
    return r == WEIR_ECLOSED ? 0 : r;
}

struct front {
    request_tx tx;
    struct request request;
};

/* What a server does with the headers of a request. */
static int serve(void *arg)
{
    struct front *front = arg;
    weir_trace_context outside;
    int r = 0;

    CHECK_OK(weir_trace_parse(front->request.traceparent, NULL, &outside));
    WEIR_SPAN_SPEC(
        &((weir_span_spec){.name = "serve", .kind = WEIR_SPAN_SERVER, .parent = &outside})) {
        r = weir_send(front->tx, &front->request);
        weir_span_result(r);
    }
    weir_tx_drop(front->tx.end);
    return r;
}

enum { REQUESTS = 5 };

static int requests(void *arg)
{
    int r = 0;

    (void)arg;
    FLOW_SCOPE_ANYWHERE(scope, &r)
    {
        request_tx tx;
        request_rx rx;

        open_all(scope, &tx, &rx);
        CHECK_OK(weir_spawn(scope, handle, &rx, sizeof rx));
        CHECK_OK(weir_spawn(scope, handle, &rx, sizeof rx));
        for (int i = 0; i < REQUESTS; i++) {
            struct front front = {.request = {.number = i}};
            (void)snprintf(front.request.traceparent, sizeof front.request.traceparent,
                           "00-4bf92f3577b34da6a3ce929d0e0e473%u-00f067aa0ba902b7-01", i % 10U);
            CHECK_OK(weir_tx_copy(tx.end, &front.tx.end));
            CHECK_OK(weir_spawn(scope, serve, &front, sizeof front));
        }
        weir_tx_drop(tx.end);
    }
    return r;
}

static void check_file(const char *path)
{
    static const char *const spans[] = {
        "serve<-: 1",
        "handed on<serve: 0",
        "pool ranking<handed on: 0",
        "pipeline answers<handed on: 0",
        "stage enrich<pipeline answers: 0 weir.attempts=1 weir.pipeline=answers",
        "look up<stage enrich: 0 number=",
        "stage compute<pipeline answers: 0 weir.attempts=1 weir.pipeline=answers",
        "pool ranking<stage compute: 0",
    };
    static char output[65536];
    size_t lines = 0;

    trace_test_read(path, output, sizeof output);
    CHECK_CONTAINS(output, "5 traces\n");
    for (size_t i = 0; i < sizeof spans / sizeof spans[0]; i++) {
        size_t count = 0;
        for (const char *at = output; (at = strstr(at, spans[i])); at++) count++;
        test_note("'%s' in:\n%s", spans[i], output);
        CHECK_INT(count, ==, REQUESTS);
    }
    for (const char *at = output; (at = strchr(at, '\n')); at++) lines++;
    CHECK_INT(lines, ==, 1 + REQUESTS * sizeof spans / sizeof spans[0]);
}

TEST(a_request_through_task_channel_pool_and_pipeline_is_one_trace)
{
    const char *path = trace_test_path("trace.json");

    CHECK_OK(trace_test_run(requests, WEIR_TRACE(.service = "search", .sampling = WEIR_TRACE_ALL,
                                                 .overflow = WEIR_DROP_NEWEST, .file_path = path)));
    check_file(path);
    trace_test_clean();
}
