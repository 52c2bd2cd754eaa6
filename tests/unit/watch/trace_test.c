/* trace_test.c - spans: how they nest, how they end, and who inherits their context. */
#include "unit/watch/trace_test.h"

#include "base/atomic.h"

/* ---- Nesting ---- */

static void check_nesting(void)
{
    const struct seen *outer = seen_named("outer"), *inner = seen_named("inner");

    CHECK_INT(test_sink.count, ==, 4);
    check_child("inner", "outer");
    check_child("second", "outer");
    CHECK(has_no_parent(outer));
    CHECK(has_no_parent(seen_named("other")));
    CHECK(!same_trace(outer, seen_named("other")));
    CHECK(inner->end_ns <= outer->end_ns);
    CHECK_INT(inner->kind, ==, WEIR_SPAN_INTERNAL);
    CHECK_STR(inner->attributes, "rows=7;ok=true;who=me;");
    CHECK_STR(inner->events, "seen=;read=the first;");
    CHECK_INT(inner->status, ==, WEIR_SPAN_UNSET);
    CHECK_STR(outer->attributes, "after=1;");
}

static int leave_by_return(void)
{
    WEIR_SPAN("second") { return 5; }
    return 0;
}

TRACE_TEST(spans_nest_and_are_left_by_return_and_break, check_nesting)
{
    weir_trace_context context;

    CHECK(!weir_trace_current(&context));
    WEIR_SPAN("outer") {
        WEIR_SPAN("inner") {
            weir_span_int("rows", 3);
            weir_span_bool("ok", true);
            weir_span_string("who", "you");
            weir_span_event("seen", NULL);
            weir_span_int("rows", 7);
            weir_span_bool("ok", true);
            weir_span_string("who", "me");
            weir_span_event("read", "the first");
            break;
        }
        CHECK_INT(leave_by_return(), ==, 5);
        weir_span_int("after", 1);
        CHECK(weir_trace_current(&context));
    }
    CHECK(!weir_trace_current(&context));
    WEIR_SPAN("other") {}
    weir_span_int("nowhere", 1);
    return 0;
}

/* Keys that are the same once they are cut, or well formed, are one. */
static void check_keys(void)
{
    CHECK_STR(seen_named("keys")->attributes,
              "12345678901234567890123456789012345678901234567890123456789012=2;a?b=4;");
}

TRACE_TEST(a_key_that_is_cut_or_mended_replaces_what_was_said, check_keys)
{
    /* Of the last character one byte would fit. */
    static const char key[] =
        "12345678901234567890123456789012345678901234567890123456789012\xc3\xa4";

    WEIR_SPAN("keys") {
        weir_span_int(key, 1);
        weir_span_int(key, 2);
        weir_span_int("a\xff"
                      "b",
                      3);
        weir_span_int("a\xff"
                      "b",
                      4);
    }
    return 0;
}

/* ---- How they end ---- */

static void check_ends(void)
{
    CHECK_INT(seen_named("well")->status, ==, WEIR_SPAN_OK);
    CHECK_INT(seen_named("badly")->status, ==, WEIR_SPAN_ERROR);
    CHECK_STR(seen_named("badly")->attributes, "error.type=WEIR_EOVERLOAD;");
    CHECK_STR(seen_named("badly")->message, weir_strerror(WEIR_EOVERLOAD));
    CHECK_INT(seen_named("recovered")->status, ==, WEIR_SPAN_OK);
    CHECK_STR(seen_named("recovered")->attributes, "");
    CHECK_INT(seen_named("cut short")->status, ==, WEIR_SPAN_ERROR);
    CHECK_STR(seen_named("cut short")->attributes, "error.type=WEIR_ETIMEDOUT;");
    CHECK_INT(seen_named("in time")->status, ==, WEIR_SPAN_UNSET);
    CHECK_STR(seen_named("cancelled")->attributes, "error.type=WEIR_ECANCELED;");
    CHECK_STR(seen_named("cancelled")->message, "enough");
    CHECK_INT(seen_named("said")->status, ==, WEIR_SPAN_OK);
}

static int wait_for_ever(void *arg)
{
    (void)arg;
    WEIR_SPAN("cancelled") { return weir_sleep(WEIR_FOREVER); }
    return 0;
}

static int wait_and_say(void *arg)
{
    (void)arg;
    WEIR_SPAN("said") {
        int r = weir_sleep(WEIR_FOREVER);
        weir_span_result(0); /* that is how it was meant */
        return r;
    }
    return 0;
}

TRACE_TEST(a_span_ends_with_what_was_said_or_with_the_interruption_that_ended_it, check_ends)
{
    weir_scope *scope;

    WEIR_SPAN("well") weir_span_result(3);
    WEIR_SPAN("badly") weir_span_result(WEIR_EOVERLOAD);
    WEIR_SPAN("recovered") {
        weir_span_result(WEIR_EOVERLOAD);
        weir_span_result(0);
    }
    WEIR_SPAN("in time") {
        WEIR_DEADLINE(1) {
            WEIR_SPAN("cut short") CHECK_INT(weir_sleep(60000), ==, WEIR_ETIMEDOUT);
        }
    }
    CHECK_OK(weir_scope_open(&(weir_scope_spec){.name = "cut",
                                                .on_failure = WEIR_COLLECT,
                                                .max_tasks = 4,
                                                .overflow = WEIR_REJECT,
                                                .place = WEIR_PLACE_HERE},
                             &scope));
    CHECK_OK(weir_spawn(scope, wait_for_ever, NULL, 0));
    CHECK_OK(weir_spawn(scope, wait_and_say, NULL, 0));
    CHECK_OK(weir_yield());
    weir_scope_cancel(scope, 0, "enough");
    CHECK_OK(weir_scope_close(scope));
    return 0;
}

/* ---- Bounds ---- */

static void check_bounds(void)
{
    const struct seen *full = seen_named("full");

    CHECK_INT(full->attributes_dropped, ==, 3);
    CHECK_INT(full->events_dropped, ==, 2);
    CHECK_INT(full->links_dropped, ==, 1);
    CHECK_INT(full->links, ==, WEIR_SPAN_LINKS_MAX);
    CHECK_CONTAINS(full->attributes, "k00=100;");
    CHECK(seen_named("a name that is longer than sixty-three bytes is cut to fit into") != NULL);
}

TRACE_TEST(what_is_said_of_a_span_is_bounded_and_the_rest_is_counted, check_bounds)
{
    static const weir_trace_context none;
    weir_trace_context other = {.trace_id = {1}, .span_id = {2}, .flags = 1};
    char key[16];

    WEIR_SPAN("full") {
        for (int i = 0; i < WEIR_SPAN_ATTRIBUTES_MAX + 3; i++) {
            (void)snprintf(key, sizeof key, "k%02d", i);
            weir_span_int(key, 100 + i);
        }
        for (int i = 0; i < WEIR_SPAN_EVENTS_MAX + 2; i++) weir_span_event("e", NULL);
        for (int i = 0; i < WEIR_SPAN_LINKS_MAX + 1; i++) weir_span_add_link(&other);
        weir_span_add_link(&none);
    }
    WEIR_SPAN("a name that is longer than sixty-three bytes is cut to fit into it") {}
    return 0;
}

/* ---- Inheriting ---- */

static void check_inherited(void)
{
    check_child("child", "request");
    check_child("grandchild", "child");
    CHECK(has_no_parent(seen_named("stranger")));
    CHECK_INT(seen_named("request")->attributes_dropped, ==, 0);
    CHECK_STR(seen_named("request")->attributes, "");
}

static int child(void *arg)
{
    weir_scope *scope = *(weir_scope **)arg;
    weir_trace_context context;
    char text[WEIR_TRACEPARENT_BYTES];

    CHECK(weir_trace_current(&context));
    weir_trace_format(&context, text);
    CHECK_CONTAINS(text, "-01");
    weir_span_string("of", "my parent's"); /* which is not ours to say */
    CHECK_OK(weir_yield());
    if (!scope) {
        WEIR_SPAN("grandchild") CHECK_OK(weir_yield());
        return 0;
    }
    WEIR_SPAN("child") {
        weir_scope *none = NULL;
        CHECK_OK(weir_spawn(scope, child, &none, sizeof none));
        CHECK_OK(weir_yield());
    }
    return 0;
}

static int stranger(void *arg)
{
    weir_trace_context context;
    (void)arg;
    CHECK(!weir_trace_current(&context));
    WEIR_SPAN("stranger") CHECK_OK(weir_yield());
    return 0;
}

TRACE_TEST(a_task_inherits_the_context_in_which_it_was_spawned, check_inherited)
{
    int r = 0;

    WEIR_SCOPE(scope, &r, .name = "test", .on_failure = WEIR_FAIL_FAST, .max_tasks = 8,
               .overflow = WEIR_REJECT) {
        weir_scope *self = scope;
        WEIR_SPAN("request") CHECK_OK(weir_spawn(scope, child, &self, sizeof self));
        CHECK_OK(weir_spawn(scope, stranger, NULL, 0));
    }
    return r;
}

/* ---- From outside ---- */

#define OUTSIDE "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0"

static void check_outside(void)
{
    const struct seen *served = seen_named("served"), *linked = seen_named("linked");

    CHECK_INT(test_sink.count, ==, 5);
    CHECK_INT(served->trace_id[0], ==, 0x4b);
    CHECK_INT(served->parent_id[7], ==, 0xb7);
    CHECK(served->remote);
    CHECK_INT(served->kind, ==, WEIR_SPAN_SERVER);
    CHECK_STR(served->state, "rojo=1");
    check_child("below", "served");
    CHECK(!seen_named("below")->remote);
    CHECK_STR(seen_named("below")->state, "rojo=1");
    CHECK(has_no_parent(linked));
    CHECK_INT(linked->links, ==, 1);
    CHECK_INT(linked->link_span_id[7], ==, 0xb7);
    CHECK(has_no_parent(seen_named("anew")));
}

TRACE_TEST(a_context_from_outside_is_a_parent_or_a_link_and_decides_what_is_recorded, check_outside)
{
    static const weir_trace_context none;
    weir_trace_context context, here;
    weir_span_spec spec;

    CHECK_OK(weir_trace_parse(OUTSIDE "1", "rojo=1", &context));
    weir_span_spec_init(&spec);
    spec.name = "served";
    spec.kind = WEIR_SPAN_SERVER;
    spec.parent = &context;
    WEIR_SPAN_SPEC(&spec) {
        CHECK(weir_trace_current(&here));
        CHECK(memcmp(here.trace_id, context.trace_id, 16) == 0);
        CHECK(memcmp(here.span_id, context.span_id, 8) != 0);
        CHECK_STR(here.state, "rojo=1");
        WEIR_SPAN("below") {}
    }
    WEIR_SPAN_SPEC(&((weir_span_spec){.name = "linked", .link = &context})) {}
    WEIR_SPAN("none") {
        /* Not recorded, since its trace is not; but it goes on. */
        CHECK_OK(weir_trace_parse(OUTSIDE "0", NULL, &context));
        WEIR_SPAN_SPEC(&((weir_span_spec){.name = "unsampled", .parent = &context})) {
            CHECK(weir_trace_current(&here));
            CHECK_INT(here.flags, ==, 0);
            CHECK(memcmp(here.trace_id, context.trace_id, 16) == 0);
            WEIR_SPAN("unsampled too") {}
        }
        WEIR_SPAN_SPEC(&((weir_span_spec){.name = "anew", .parent = &none})) {}
    }
    return 0;
}

/* ---- Sampling ---- */

static int many_traces(void *arg)
{
    (void)arg;
    for (int i = 0; i < 400; i++) {
        WEIR_SPAN("root") {
            WEIR_SPAN("leaf") {}
        }
    }
    return 0;
}

TEST(a_ratio_of_the_traces_is_recorded_each_of_them_whole)
{
    CHECK_OK(
        trace_test_run(many_traces, WEIR_TRACE(.service = "test", .sampling = WEIR_TRACE_RATIO,
                                               .sample_ratio = 0.25, .overflow = WEIR_DROP_NEWEST,
                                               .keep_exporter = &test_exporter)));
    CHECK_INT(test_sink.count, >, 2 * 40);
    CHECK_INT(test_sink.count, <, 2 * 200);
    CHECK_INT(test_sink.count % 2, ==, 0);
    for (size_t i = 0; i < test_sink.count; i += 2) {
        CHECK_STR(test_sink.spans[i].name, "leaf");
        CHECK(same_trace(&test_sink.spans[i], &test_sink.spans[i + 1]));
        /* As others decide: by the last 56 bits. */
        CHECK_INT(test_sink.spans[i].trace_id[9], <, 64);
    }
}

TEST(with_no_sampling_only_traces_of_others_are_recorded)
{
    CHECK_OK(trace_test_run(many_traces, WEIR_TRACE(.service = "test", .sampling = WEIR_TRACE_NONE,
                                                    .overflow = WEIR_DROP_NEWEST,
                                                    .keep_exporter = &test_exporter)));
    CHECK_INT(test_sink.count, ==, 0);
    CHECK(test_sink.ended);
}

/* ---- Off ---- */

static int traced_in_vain(void *arg)
{
    weir_trace_context context;
    uint64_t allocations = test_alloc_count();

    (void)arg;
    WEIR_SPAN("nothing") {
        weir_span_int("a", 1);
        weir_span_event("b", NULL);
        weir_span_result(WEIR_EOVERLOAD);
        CHECK(!weir_trace_current(&context));
        CHECK(!weir_trace_received(&context));
    }
    CHECK_INT(test_alloc_count(), ==, allocations);
    return 0;
}

TEST(without_trace_in_the_configuration_nothing_happens)
{
    weir_trace_context context;

    CHECK_OK(trace_test_run(traced_in_vain, NULL));
    WEIR_SPAN("outside a task") CHECK(!weir_trace_current(&context));
    weir_span_string("a", "b");
}

/* ---- Refusals ---- */

static int nothing(void *arg)
{
    (void)arg;
    return 0;
}

TEST(a_trace_spec_that_does_not_say_all_is_refused)
{
    const weir_trace_exporter nowhere = {.name = "x"};
    weir_trace_spec base = *TRACE_SINK();
#define REFUSED(sentence, ...)                                        \
    do {                                                              \
        weir_trace_spec spec = base;                                  \
        __VA_ARGS__;                                                  \
        CHECK_INT(trace_test_run(nothing, &spec), ==, WEIR_EREFUSED); \
        CHECK_CONTAINS(weir_why(), sentence);                         \
    } while (0)
    REFUSED("spec_bytes is not set", spec.spec_bytes = 0);
    REFUSED("service is not set", spec.service = NULL);
    REFUSED("sampling is not set", spec.sampling = 0);
    REFUSED("sample_ratio is not", spec.sampling = WEIR_TRACE_RATIO);
    REFUSED("sample_ratio is set", spec.sample_ratio = 0.5);
    REFUSED("overflow is not WEIR_DROP_NEWEST", spec.overflow = 0);
    REFUSED("overflow is not WEIR_DROP_NEWEST", spec.overflow = WEIR_WAIT);
    REFUSED("buffer_max is", spec.buffer_max = WEIR_TRACE_BUFFER_MAX + 1);
    REFUSED("is negative", spec.flush_ms = -1);
    REFUSED("not one of file_path and keep_exporter", spec.keep_exporter = NULL);
    REFUSED("not one of file_path and keep_exporter", spec.file_path = "x");
    REFUSED("has no write", spec.keep_exporter = &nowhere);
    REFUSED("file_path is not", spec.files = 2);
    base.keep_exporter = NULL;
    REFUSED("file_path is empty", spec.file_path = "");
    REFUSED("file_bytes_max is 1", spec.file_path = "x"; spec.file_bytes_max = 1);
    REFUSED("files is 101", spec.file_path = "x"; spec.files = 101);
#undef REFUSED
    base.file_path = "/nowhere/at/all";
    CHECK_INT(trace_test_run(nothing, &base), ==, -2);
    CHECK_CONTAINS(weir_why(), "trace: file '/nowhere/at/all'");
}

/* ---- Misuse ---- */

static int leave_in_the_wrong_order(void *arg)
{
    weir_span outer, inner;
    (void)arg;
    (void)weir_span_enter(&outer, "outer", "here");
    (void)weir_span_enter(&inner, "inner", "there");
    weir_span_leave(&outer);
    return 0;
}

static void run_wrong_order(void *arg)
{
    (void)arg;
    (void)trace_test_run(leave_in_the_wrong_order, TRACE_SINK());
}

TEST(spans_that_are_left_in_the_wrong_order_abort)
{
    CHECK_ABORTS(run_wrong_order, NULL, "the span at here is left while another is open in it");
}

/* ---- Everything that can go wrong ---- */

static int a_bit_of_all(void *arg)
{
    int r = 0;

    (void)arg;
    WEIR_SPAN("all") {
        weir_trace_context context = {.trace_id = {1}, .span_id = {2}, .flags = 1, .state = "a=1"};
        weir_span_string("key", "value");
        weir_span_event("event", "detail");
        weir_span_add_link(&context);
        WEIR_SPAN_SPEC(&((weir_span_spec){.name = "other", .parent = &context})) {
            weir_span_result(-5);
        }
        r = weir_sleep(0);
    }
    return r;
}

static int sweep_scenario(void *arg)
{
    weir_task_fn body = a_bit_of_all;
    (void)arg;
    test_sink.ended = false;
    return weir_run(&(weir_config){.workers = 1, .log_level = WEIR_LOG_OFF, .trace = TRACE_SINK()},
                    trace_test_task, &body);
}

TEST(each_allocation_of_a_traced_run_may_fail)
{
    CHECK_INT(test_sweep_alloc(sweep_scenario, NULL), >, 12);
}

TEST(a_traced_run_may_be_cancelled_at_each_suspension)
{
    CHECK_INT(test_sweep_cancel(sweep_scenario, NULL), >, 0);
}

/* ---- Chance comes from the kernel ---- */

static uint8_t ids[2][16];

static int one_span(void *arg)
{
    weir_trace_context context;
    (void)arg;
    WEIR_SPAN("one") {
        CHECK(weir_trace_current(&context));
        memcpy(ids[1], ids[0], 16);
        memcpy(ids[0], context.trace_id, 16);
    }
    return 0;
}

TEST(two_runs_do_not_have_the_same_ids)
{
    CHECK_OK(trace_test_run(one_span, TRACE_SINK()));
    CHECK_OK(trace_test_run(one_span, TRACE_SINK()));
    CHECK(memcmp(ids[0], ids[1], 16) != 0);
}
