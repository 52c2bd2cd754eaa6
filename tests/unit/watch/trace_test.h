/* trace_test.h - an exporter that keeps what it gets, and a reader of files in OTLP JSON. */
#ifndef WEIR_TESTS_WATCH_TRACE_TEST_H
#define WEIR_TESTS_WATCH_TRACE_TEST_H

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/weir.h>

#include "harness/test.h"

enum { SEEN_MAX = 512 };

struct seen {
    char name[64];
    enum weir_span_kind kind;
    uint8_t trace_id[16], span_id[8], parent_id[8];
    bool remote;
    char state[64];
    int64_t start_ns, end_ns;
    enum weir_span_status status;
    char message[128];
    char attributes[512]; /* "key=value;" for each */
    char events[256];
    unsigned attributes_dropped, events_dropped, links_dropped, links;
    uint8_t link_span_id[8];
};

/* What was exported; the thread that does so is gone when weir_run has returned. */
struct sink {
    pthread_mutex_t mutex;
    size_t count, batches;
    bool ended;
    int result; /* of each write */
    struct seen spans[SEEN_MAX];
};

static inline void sink_say(char *text, size_t bytes, const char *key, const char *value)
{
    size_t used = strlen(text);
    (void)snprintf(text + used, bytes - used, "%s=%s;", key, value);
}

static inline void sink_copy(struct seen *seen, const weir_span_data *span)
{
    char number[32];

    *seen = (struct seen){.kind = span->kind,
                          .remote = span->parent_is_remote,
                          .start_ns = span->start_ns,
                          .end_ns = span->end_ns,
                          .status = span->status,
                          .attributes_dropped = span->attributes_dropped,
                          .events_dropped = span->events_dropped,
                          .links_dropped = span->links_dropped};
    memcpy(seen->trace_id, span->trace_id, 16);
    memcpy(seen->span_id, span->span_id, 8);
    memcpy(seen->parent_id, span->parent_id, 8);
    (void)snprintf(seen->name, sizeof seen->name, "%s", span->name);
    (void)snprintf(seen->state, sizeof seen->state, "%s", span->state);
    (void)snprintf(seen->message, sizeof seen->message, "%s", span->message);
    for (const weir_span_attribute *a = span->attributes; a; a = a->next) {
        (void)snprintf(number, sizeof number, "%lld", (long long)a->number);
        sink_say(seen->attributes, sizeof seen->attributes, a->key,
                 a->type == WEIR_SPAN_STRING ? a->text
                 : a->type == WEIR_SPAN_INT  ? number
                 : a->number                 ? "true"
                                             : "false");
    }
    for (const weir_span_event_data *e = span->events; e; e = e->next) {
        CHECK(e->time_ns >= span->start_ns && e->time_ns <= span->end_ns);
        sink_say(seen->events, sizeof seen->events, e->name, e->detail ? e->detail : "");
    }
    for (const weir_span_link_data *l = span->links; l; l = l->next) {
        memcpy(seen->link_span_id, l->span_id, 8);
        seen->links++;
    }
}

static inline int sink_write(void *keep_state, const weir_trace_batch *batch)
{
    struct sink *sink = keep_state;
    int r;

    (void)pthread_mutex_lock(&sink->mutex);
    CHECK(!sink->ended);
    CHECK(batch->count > 0 && batch->count <= WEIR_TRACE_BATCH_MAX);
    r = sink->result;
    for (size_t i = 0; r == 0 && i < batch->count; i++) {
        if (sink->count < SEEN_MAX) sink_copy(&sink->spans[sink->count++], batch->spans[i]);
    }
    sink->batches++;
    (void)pthread_mutex_unlock(&sink->mutex);
    return r;
}

static inline void sink_end(void *keep_state)
{
    struct sink *sink = keep_state;
    (void)pthread_mutex_lock(&sink->mutex);
    sink->ended = true;
    (void)pthread_mutex_unlock(&sink->mutex);
}

/* Each test has a process of its own, and one sink. */
static struct sink test_sink = {.mutex = PTHREAD_MUTEX_INITIALIZER};
static const weir_trace_exporter test_exporter = {
    .name = "sink", .write = sink_write, .end = sink_end, .keep_state = &test_sink};

static inline int trace_test_task(void *arg)
{
    weir_task_fn *body = arg;
    WEIR_DEADLINE((int64_t)20000 * test_slower()) { return (*body)(NULL); }
    return WEIR_EREFUSED;
}

static inline int trace_test_run(weir_task_fn body, const weir_trace_spec *trace)
{
    test_sink.ended = false;
    return weir_run(
        &(weir_config){.workers = test_workers(), .log_level = WEIR_LOG_OFF, .trace = trace},
        trace_test_task, &body);
}

#define TRACE_SINK(...)                                                                     \
    WEIR_TRACE(.service = "test", .sampling = WEIR_TRACE_ALL, .overflow = WEIR_DROP_NEWEST, \
               .keep_exporter = &test_exporter, __VA_ARGS__)

/* The body is the first task; what it has traced is in test_sink afterwards, and `check` is
 * called. */
#define TRACE_TEST(name_, check_)                                   \
    static int trace_body_##name_(void *arg);                       \
    TEST(name_)                                                     \
    {                                                               \
        CHECK_OK(trace_test_run(trace_body_##name_, TRACE_SINK())); \
        CHECK(test_sink.ended);                                     \
        check_();                                                   \
    }                                                               \
    static int trace_body_##name_(__attribute__((unused)) void *arg)

static inline const struct seen *seen_named(const char *name)
{
    const struct seen *found = NULL;
    for (size_t i = 0; i < test_sink.count; i++) {
        if (strcmp(test_sink.spans[i].name, name) != 0) continue;
        if (found) TEST_FAIL("there are two spans '%s'", name);
        found = &test_sink.spans[i];
    }
    if (!found) TEST_FAIL("there is no span '%s'", name);
    return found;
}

static inline bool same_trace(const struct seen *a, const struct seen *b)
{
    return memcmp(a->trace_id, b->trace_id, 16) == 0;
}

static inline bool has_no_parent(const struct seen *span)
{
    static const uint8_t none[8];
    return memcmp(span->parent_id, none, 8) == 0;
}

/* `child` is in the same trace, and its parent is `parent`. */
static inline void check_child(const char *child_name, const char *parent_name)
{
    const struct seen *child = seen_named(child_name), *parent = seen_named(parent_name);
    test_note("'%s' is to be a child of '%s'", child_name, parent_name);
    CHECK(same_trace(child, parent));
    CHECK(memcmp(child->parent_id, parent->span_id, 8) == 0);
    CHECK(child->start_ns >= parent->start_ns);
}

/* ---- Files ---- */

static inline const char *trace_test_path(const char *name)
{
    static char folder[32], path[128];
    if (!*folder) {
        (void)snprintf(folder, sizeof folder, "/tmp/weir-test-XXXXXX");
        CHECK(mkdtemp(folder) != NULL);
    }
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static inline void trace_test_clean(void)
{
    char folder[128], command[512];
    (void)snprintf(folder, sizeof folder, "%s", trace_test_path(""));
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    CHECK(system(command) == 0);
}

/* Reads every line, strictly, and prints "NAME<PARENT: STATUS attributes" for each span, sorted;
 * checks ids, times and that parents of the file have them inside (as far as the child is of
 * the same task: one that a task has handed on may end later). */
static const char trace_test_reader[] =
    "import json,sys,re\n"
    "def pairs(p):\n"
    "    d=dict(p)\n"
    "    assert len(d)==len(p),'a key twice'\n"
    "    return d\n"
    "def value(v):\n"
    "    assert len(v)==1\n"
    "    k,x=list(v.items())[0]\n"
    "    if k=='intValue': assert re.fullmatch(r'-?[0-9]+',x); return int(x)\n"
    "    if k=='boolValue': assert x is True or x is False; return x\n"
    "    assert k=='stringValue' and isinstance(x,str); return x\n"
    "def attributes(l):\n"
    "    keys=[a['key'] for a in l]\n"
    "    assert len(keys)==len(set(keys))\n"
    "    for a in l: assert set(a)=={'key','value'}\n"
    "    return {a['key']:value(a['value']) for a in l}\n"
    "known={'traceId','spanId','traceState','parentSpanId','flags','name','kind',"
    "'startTimeUnixNano','endTimeUnixNano','attributes','droppedAttributesCount','events',"
    "'droppedEventsCount','links',"
    "'droppedLinksCount','status'}\n"
    "spans={}\n"
    "for path in sys.argv[1:]:\n"
    "  for line in open(path,encoding='utf-8'):\n"
    "    assert line.endswith('\\n')\n"
    "    r=json.loads(line,object_pairs_hook=pairs)\n"
    "    assert set(r)=={'resourceSpans'}\n"
    "    for rs in r['resourceSpans']:\n"
    "      assert set(rs)=={'resource','scopeSpans'}\n"
    "      assert attributes(rs['resource']['attributes'])['service.name']\n"
    "      for ss in rs['scopeSpans']:\n"
    "        assert ss['scope']['name']=='weir'\n"
    "        for s in ss['spans']:\n"
    "          assert set(s)<=known, set(s)-known\n"
    "          assert re.fullmatch('[0-9a-f]{32}',s['traceId']) and int(s['traceId'],16)\n"
    "          assert re.fullmatch('[0-9a-f]{16}',s['spanId']) and int(s['spanId'],16)\n"
    "          if 'parentSpanId' in s: assert re.fullmatch('[0-9a-f]{16}',s['parentSpanId'])\n"
    "          assert s['kind'] in (1,2,3,4,5) and isinstance(s['flags'],int)\n"
    "          b,e=s['startTimeUnixNano'],s['endTimeUnixNano']\n"
    "          assert isinstance(b,str) and isinstance(e,str) and int(b)<=int(e)\n"
    "          assert int(b)>1600000000*10**9\n"
    "          assert set(s['status'])<={'code','message'}\n"
    "          for v in s.get('events',[]): assert int(b)<=int(v['timeUnixNano'])<=int(e)\n"
    "          for l in s.get('links',[]): assert re.fullmatch('[0-9a-f]{16}',l['spanId'])\n"
    "          assert s['spanId'] not in spans\n"
    "          spans[s['spanId']]=s\n"
    "out=[]\n"
    "for s in spans.values():\n"
    "    p=spans.get(s.get('parentSpanId'))\n"
    "    if p:\n"
    "        assert p['traceId']==s['traceId']\n"
    "        assert int(p['startTimeUnixNano'])<=int(s['startTimeUnixNano'])\n"
    "        if s['name']!='handed on':\n"
    "            assert int(s['endTimeUnixNano'])<=int(p['endTimeUnixNano'])\n"
    "    a=attributes(s.get('attributes',[]))\n"
    "    a={k:v for k,v in a.items() if not k.endswith('_ns')}\n"
    "    out.append('%s<%s: %s%s'%(s['name'],p['name'] if p else '-',s['status'].get('code',0),"
    "''.join(' %s=%s'%(k,a[k]) for k in sorted(a))))\n"
    "print('%d traces'%len({s['traceId'] for s in spans.values()}))\n"
    "print('\\n'.join(sorted(out)))\n";

/* What the reader prints about the file. */
static inline void trace_test_read(const char *path, char *output, size_t output_bytes)
{
    const char *const argv[] = {"/usr/bin/env", "python3", "-c", trace_test_reader, path, NULL};
    int status = test_exec(argv, output, output_bytes);

    if (status != 0) TEST_FAIL("the reader of '%s' says: %s", path, output);
}

#endif
