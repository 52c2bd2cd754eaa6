/* trace.c - one request as a trace: where its time went, in a file that collectors read.
 *
 *     trace FILE [TRACEPARENT]
 *
 * A request comes in, in somebody else's trace if it says so. It is priced in a task of its own,
 * and handed to a clerk through a channel; what goes on to the next service carries the trace
 * on. The spans are written to FILE as OTLP in JSON.
 * Exit status: 0 done, 1 a failure, 2 wrong usage.
 */
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

struct order {
    int number;
};

typedef WEIR_TX(struct order) order_tx;
typedef WEIR_RX(struct order) order_rx;

struct request {
    const char *file, *traceparent;
};

static int price(void *arg)
{
    const struct order *order = arg;
    int r = 0;

    WEIR_SPAN("price") {
        weir_span_int("order", order->number);
        r = weir_sleep(2); /* asks somebody */
        if (r < 0) return r;
        weir_span_event("priced", "from the list");
    }
    return r;
}

static void print_headers(void)
{
    weir_trace_context context;
    char traceparent[WEIR_TRACEPARENT_BYTES];

    if (!weir_trace_current(&context)) return;
    weir_trace_format(&context, traceparent);
    printf("POST /pay\ntraceparent: %s\n", traceparent);
    if (context.state[0]) printf("tracestate: %s\n", context.state);
}

static int clerk(void *arg)
{
    order_rx orders = *(order_rx *)arg;
    struct order order;
    int r;

    while ((r = weir_recv(orders, &order)) == 0) {
        weir_trace_context sent;
        weir_span_spec spec = {.name = "pay", .kind = WEIR_SPAN_CLIENT};
        if (weir_trace_received(&sent)) spec.parent = &sent;
        WEIR_SPAN_SPEC(&spec) print_headers();
    }
    return r == WEIR_ECLOSED ? 0 : r;
}

static int serve(const char *traceparent, order_tx orders)
{
    weir_trace_context outside;
    weir_span_spec spec = {.name = "POST /orders", .kind = WEIR_SPAN_SERVER};
    struct order order = {.number = 7};
    int r = 0;

    if (traceparent && weir_trace_parse(traceparent, NULL, &outside) >= 0) spec.parent = &outside;
    WEIR_SPAN_SPEC(&spec) {
        WEIR_SCOPE(scope, &r, .name = "order", .on_failure = WEIR_FAIL_FAST, .max_tasks = 4,
                   .overflow = WEIR_REJECT) {
            r = weir_spawn(scope, price, &order, sizeof order);
        }
        if (r >= 0) r = weir_send(orders, &order);
        weir_span_result(r);
    }
    weir_tx_drop(orders.end);
    return r;
}

static int shop(void *arg)
{
    const struct request *request = arg;
    int r = 0;

    WEIR_SCOPE(scope, &r, .name = "shop", .on_failure = WEIR_FAIL_FAST, .max_tasks = 8,
               .overflow = WEIR_REJECT, .deadline_ms = 5000) {
        order_tx tx;
        order_rx rx;

        r = weir_chan_open(scope,
                           &(weir_chan_spec){.name = "orders",
                                             .capacity = 8,
                                             .overflow = WEIR_WAIT,
                                             .on_close = WEIR_DRAIN,
                                             .trace = true},
                           &tx, &rx);
        if (r < 0) break;
        r = weir_spawn(scope, clerk, &rx, sizeof rx);
        if (r >= 0) r = serve(request->traceparent, tx);
    }
    return r;
}

static int run(struct request *request)
{
    weir_config config = {.trace =
                              WEIR_TRACE(.service = "shop", .sampling = WEIR_TRACE_ALL,
                                         .overflow = WEIR_DROP_NEWEST, .file_path = request->file)};
    return weir_run(&config, shop, request);
}

int main(int argc, char **argv)
{
    struct request request = {.file = argc > 1 ? argv[1] : NULL,
                              .traceparent = argc > 2 ? argv[2] : NULL};
    int r;

    if (argc < 2 || argc > 3) {
        (void)fprintf(stderr, "usage: trace FILE [TRACEPARENT]\n");
        return 2;
    }
    r = run(&request);
    if (r >= 0) return 0;
    (void)fprintf(stderr, "trace: %s: %s\n", weir_strerror(r), weir_why());
    return 1;
}
