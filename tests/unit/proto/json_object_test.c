/* json_object_test.c - objects with known members into structs. */
#include <stddef.h>
#include <weir/error.h>

#include "harness/test.h"
#include "proto/json_read.h"

struct retry {
    int64_t attempts;
    double factor;
};

struct job {
    bool has_retry;
    struct bytes queue, payload;
    int64_t priority, timeout_ms;
    bool urgent;
    struct retry retry;
    int64_t tags;
};

/* Counts the strings of an array. */
static int read_tags(struct json_reader *reader, struct json_texts *texts, struct json_token first,
                     void *into)
{
    int64_t *count = into;
    struct bytes text;

    if (first.kind != JSON_ARRAY) return json_refuse(reader, &first, "'tags' is not an array");
    for (first = json_next(reader); first.kind == JSON_STRING; first = json_next(reader)) {
        int r = json_take_text(reader, texts, &first, &text);

        if (r < 0) return r;
        (*count)++;
    }
    if (first.kind == JSON_ARRAY_END) return 0;
    return json_refuse(reader, &first, "a tag is not a string");
}

static const struct json_member retry_members[] = {
    {.name = "attempts",
     .type = JSON_TYPE_INT,
     .offset = offsetof(struct retry, attempts),
     .required = true,
     .min = 1,
     .max = 25},
    {.name = "factor", .type = JSON_TYPE_DOUBLE, .offset = offsetof(struct retry, factor)},
    {.name = NULL},
};

static const struct json_member job_members[] = {
    {.name = "queue",
     .type = JSON_TYPE_TEXT,
     .offset = offsetof(struct job, queue),
     .required = true,
     .max = 8},
    {.name = "payload", .type = JSON_TYPE_RAW, .offset = offsetof(struct job, payload)},
    {.name = "priority",
     .type = JSON_TYPE_INT,
     .offset = offsetof(struct job, priority),
     .min = -5,
     .max = 5},
    {.name = "timeout",
     .type = JSON_TYPE_DURATION,
     .offset = offsetof(struct job, timeout_ms),
     .min = 1,
     .max = 3600000},
    {.name = "urgent", .type = JSON_TYPE_BOOL, .offset = offsetof(struct job, urgent)},
    {.name = "retry",
     .type = JSON_TYPE_OBJECT,
     .offset = offsetof(struct job, retry),
     .present_offset = offsetof(struct job, has_retry),
     .members = retry_members},
    {.name = "tags", .type = JSON_TYPE_BY, .offset = offsetof(struct job, tags), .read = read_tags},
    {.name = NULL},
};

static struct json_key keys[32];
static const struct json_limits limits = {.depth_max = 8, .keys = keys, .key_room = 32};
static char memory[256];

static int read_job(struct json_reader *reader, struct bytes text, struct job *job)
{
    struct json_texts texts = {.at = memory, .room = sizeof memory};

    *job = (struct job){0};
    json_reader_init(reader, text, &limits);
    return json_document(reader, &texts, job_members, job);
}

TEST(json_object_goes_into_a_struct)
{
    struct json_reader reader;
    struct job job;

    CHECK_INT(read_job(&reader,
                       BYTES("{\"payload\": {\"a\" : [1]} , \"qu\\u0065ue\":\"m\\u00e4il\","
                             "\"priority\":-5,\"timeout\":\"1m500ms\",\"urgent\":true,"
                             "\"retry\":{\"factor\":1.5,\"attempts\":25},\"tags\":[\"x\",\"y\"]}"),
                       &job),
              ==, 0);
    CHECK_STR(job.queue.at, "m\xc3\xa4il");
    CHECK_INT(job.queue.count, ==, 5);
    CHECK(bytes_are(job.payload, BYTES("{\"a\" : [1]}")));
    CHECK_INT(job.priority, ==, -5);
    CHECK_INT(job.timeout_ms, ==, 60500);
    CHECK(job.urgent);
    CHECK_INT(job.retry.attempts, ==, 25);
    CHECK(job.retry.factor == 1.5);
    CHECK_INT(job.tags, ==, 2);

    CHECK_INT(read_job(&reader, BYTES("{\"queue\":\"a\"}"), &job), ==, 0);
    CHECK(!job.payload.at);
}

TEST(json_object_refuses_what_it_does_not_know_and_says_where)
{
    static const struct {
        const char *text, *why;
        size_t at;
    } refused[] = {
        {"[]", "an object is expected", 0},
        {"{}", "'queue' is missing", 1},
        {"{\"queue\":\"a\",\"prioritty\":1}", "'prioritty' is not known", 14},
        {"{\"queue\":\"a\",\"\x01\":1}", "control", 14},
        {"{\"queue\":\"a\",\"\\u0001 \xc3\xa4\":1}", "member '\\u0001?", 14},
        {"{\"queue\":\"a\",\"queue\":\"b\"}", "'queue' comes twice", 14},
        {"{\"queue\":\"a\",\"queue\":1}", "'queue' comes twice", 14},
        {"{\"queue\":1}", "'queue' is not a string", 9},
        {"{\"queue\":null}", "'queue' is not a string", 9},
        {"{\"queue\":\"123456789\"}", "'queue' is longer than 8 bytes", 10},
        {"{\"queue\":\"a\\u0000\"}", "NUL", 10},
        {"{\"queue\":\"a\",\"priority\":6}", "'priority' is not a whole number from -5 to 5", 24},
        {"{\"queue\":\"a\",\"priority\":1.5}", "'priority' is not a whole number", 24},
        {"{\"queue\":\"a\",\"priority\":\"1\"}", "'priority' is not a whole number", 25},
        {"{\"queue\":\"a\",\"timeout\":\"1x\"}", "'timeout' is not a duration", 24},
        {"{\"queue\":\"a\",\"timeout\":\"2h\"}", "'timeout' is not from 1 ms to 3600000 ms", 24},
        {"{\"queue\":\"a\",\"timeout\":\"1us\"}", "'timeout' is not from", 24},
        {"{\"queue\":\"a\",\"urgent\":1}", "'urgent' is not true or false", 22},
        {"{\"queue\":\"a\",\"retry\":[]}", "'retry' is not an object", 21},
        {"{\"queue\":\"a\",\"retry\":{}}", "'attempts' is missing", 22},
        {"{\"queue\":\"a\",\"retry\":{\"attempts\":1,\"factor\":1e999}}", "'factor' is too large",
         44},
        {"{\"queue\":\"a\",\"tags\":[1]}", "a tag is not a string", 21},
        {"{\"queue\":\"a\",\"tags\":1}", "'tags' is not an array", 20},
        {"{\"queue\":\"a\",\"payload\":{\"x\":1,\"x\":2}}", "'x' comes twice", 31},
        {"{\"queue\":\"a\"} x", "follows", 14},
        {"{\"queue\":\"a\"", "',' or '}'", 12},
    };
    struct json_reader reader;
    struct job job;

    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        test_note("%s", refused[i].text);
        CHECK_INT(read_job(&reader, bytes_of(refused[i].text), &job), ==, WEIR_EREFUSED);
        CHECK_CONTAINS(reader.why, refused[i].why);
        CHECK_INT(reader.failed_at, ==, refused[i].at);
    }
}

TEST(json_object_says_which_members_were_there)
{
    static const struct json_member members[] = {
        {.name = "n",
         .type = JSON_TYPE_INT,
         .offset = 0,
         .present_offset = sizeof(int64_t),
         .max = 9},
        {.name = NULL},
    };
    struct {
        int64_t n;
        bool has_n;
    } into = {7, false};
    struct json_texts texts = {.at = memory, .room = sizeof memory};
    struct json_reader reader;

    json_reader_init(&reader, BYTES("{}"), &limits);
    CHECK_INT(json_document(&reader, &texts, members, &into), ==, 0);
    CHECK(!into.has_n);
    CHECK_INT(into.n, ==, 7);
    json_reader_init(&reader, BYTES("{\"n\":0}"), &limits);
    CHECK_INT(json_document(&reader, &texts, members, &into), ==, 0);
    CHECK(into.has_n);
    CHECK_INT(into.n, ==, 0);
}

TEST(json_object_stays_within_its_texts)
{
    struct json_texts texts = {.at = memory, .room = 6};
    struct json_reader reader;
    struct job job = {0};

    json_reader_init(&reader, BYTES("{\"queue\":\"12345\"}"), &limits);
    CHECK_INT(json_document(&reader, &texts, job_members, &job), ==, 0);
    CHECK_INT(texts.used, ==, 6);
    texts.used = 1;
    json_reader_init(&reader, BYTES("{\"queue\":\"12345\"}"), &limits);
    CHECK_INT(json_document(&reader, &texts, job_members, &job), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(reader.why, "too long");
    CHECK_INT(texts.used, ==, 1);
}
