/* trace_file_test.c - the file in OTLP JSON: readable, bounded, whole whatever fails. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "unit/watch/formats.h"
#include "unit/watch/trace_test.h"

#define TRACE_FILE(path_, ...)                                                                \
    WEIR_TRACE(.service = "té\"st", .sampling = WEIR_TRACE_ALL, .overflow = WEIR_DROP_NEWEST, \
               .file_path = (path_), __VA_ARGS__)

static int64_t file_bytes(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 ? status.st_size : -1;
}

static int a_few(void *arg)
{
    static const weir_trace_context outside = {
        .trace_id = {0xab}, .span_id = {0xcd}, .flags = 1, .state = "a=1,b=2"};

    (void)arg;
    WEIR_SPAN("root") {
        weir_span_string("text", "with \"quotes\", \\, \n, \x01 and \xff");
        weir_span_int("least", INT64_MIN);
        weir_span_bool("yes", true);
        weir_span_event("event", "detail");
        WEIR_SPAN_SPEC(
            &((weir_span_spec){.name = "leaf", .kind = WEIR_SPAN_CLIENT, .link = &outside})) {
            weir_span_result(-ENOENT);
        }
    }
    WEIR_SPAN_SPEC(&((weir_span_spec){.name = "remote", .parent = &outside})) {
        for (int i = 0; i < WEIR_SPAN_ATTRIBUTES_MAX + 1; i++) {
            char key[16];
            (void)snprintf(key, sizeof key, "k%d", i);
            weir_span_int(key, i);
        }
    }
    return 0;
}

TEST_WITH(a_file_is_read_by_others, .timeout_ms = 60000)
{
    const char *path = trace_test_path("trace.json");
    char output[8192];

    CHECK_OK(trace_test_run(a_few, TRACE_FILE(path)));
    trace_test_read(path, output, sizeof output);
    CHECK_CONTAINS(output, "2 traces\n");
    CHECK_CONTAINS(output, "leaf<root: 2 error.type=ENOENT\n");
    CHECK_CONTAINS(output, "root<-: 0 least=-9223372036854775808 text=with \"quotes\"");
    CHECK_CONTAINS(output, "yes=True\n");
    CHECK_CONTAINS(output, "remote<-: 0 k0=0");
    /* A second run goes on behind it. */
    CHECK_OK(trace_test_run(a_few, TRACE_FILE(path)));
    trace_test_read(path, output, sizeof output);
    CHECK_CONTAINS(output, "3 traces\n");
    trace_test_clean();
}

static int spans_in_lines(void *arg)
{
    (void)arg;
    for (int i = 0; i < 40 * WEIR_TRACE_BATCH_MAX; i++) {
        WEIR_SPAN("span") {}
    }
    return 0;
}

TEST_WITH(files_are_rotated_and_bounded, .workers = 1, .timeout_ms = 60000)
{
    const char *path = trace_test_path("trace.json");
    char other[160], output[1 << 20];
    int64_t total = 0;

    CHECK_OK(trace_test_run(spans_in_lines,
                            TRACE_FILE(path, .file_bytes_max = WEIR_TRACE_FILE_BYTES_MIN,
                                       .files = 3, .buffer_max = 40 * WEIR_TRACE_BATCH_MAX)));
    for (int i = 0; i < 3; i++) {
        (void)snprintf(other, sizeof other, i > 0 ? "%s.%d" : "%s", path, i);
        CHECK_INT(file_bytes(other), >, 0);
        CHECK_INT(file_bytes(other), <=, WEIR_TRACE_FILE_BYTES_MIN);
        total += file_bytes(other);
        trace_test_read(other, output, sizeof output);
        CHECK_CONTAINS(output, "span<-: 0");
    }
    CHECK_INT(total, >, 2 * WEIR_TRACE_FILE_BYTES_MIN);
    (void)snprintf(other, sizeof other, "%s.3", path);
    CHECK_INT(file_bytes(other), ==, -1);
    /* With one file the old lines go. */
    CHECK_OK(trace_test_run(spans_in_lines,
                            TRACE_FILE(path, .file_bytes_max = WEIR_TRACE_FILE_BYTES_MIN,
                                       .files = 1, .buffer_max = 40 * WEIR_TRACE_BATCH_MAX)));
    CHECK_INT(file_bytes(path), <=, WEIR_TRACE_FILE_BYTES_MIN);
    trace_test_read(path, output, sizeof output);
    trace_test_clean();
}

/* ---- Failing writes ---- */

static int count_spans(const char *output)
{
    int count = 0;
    for (const char *at = output; (at = strstr(at, "span<-")); at++) count++;
    return count;
}

TEST_WITH(a_disk_that_is_full_loses_lines_and_no_others, .workers = 1, .timeout_ms = 60000)
{
    const char *path = trace_test_path("trace.json");
    static char output[1 << 20];

    test_fault("pwrite", -ENOSPC, 3);
    CHECK_OK(
        trace_test_run(spans_in_lines, TRACE_FILE(path, .buffer_max = 40 * WEIR_TRACE_BATCH_MAX)));
    trace_test_read(path, output, sizeof output);
    CHECK_INT(count_spans(output), ==, 37 * WEIR_TRACE_BATCH_MAX);
    trace_test_clean();
}

/* The fault comes in the middle of a line: what was written of it is cut off. */
TEST_WITH(a_line_that_could_not_be_finished_is_cut_off, .workers = 1, .timeout_ms = 60000)
{
    const char *path = trace_test_path("trace.json");
    static char output[1 << 20];
    int cut = 0;

    test_short_io(1000);
    for (uint64_t n = 23; cut < 4 && n < 500; n += 7) {
        (void)unlink(path);
        test_fail_call_at(n, -ENOSPC);
        if (trace_test_run(spans_in_lines,
                           TRACE_FILE(path, .buffer_max = 40 * WEIR_TRACE_BATCH_MAX)) < 0) {
            continue; /* something else has failed than a write */
        }
        trace_test_read(path, output, sizeof output);
        if (strcmp(test_call_failed_name(), "pwrite") != 0) continue;
        CHECK_INT(count_spans(output), ==, 39 * WEIR_TRACE_BATCH_MAX);
        cut++;
    }
    test_fail_call_at(0, 0);
    CHECK_INT(cut, ==, 4);
    trace_test_clean();
}

/* The same without another process: fast enough for many runs. */
static void check_lines(const char *path)
{
    static char line[65536];
    FILE *file = fopen(path, "re");

    CHECK(file != NULL);
    while (fgets(line, sizeof line, file)) {
        CHECK(line[strlen(line) - 1] == '\n');
        CHECK(strncmp(line, "{\"resourceSpans\":[", 18) == 0);
        check_json(line);
    }
    CHECK_INT(fclose(file), ==, 0);
}

static int spans_of_one_line(void *arg)
{
    (void)arg;
    for (int i = 0; i < WEIR_TRACE_BATCH_MAX; i++) {
        WEIR_SPAN("span") {}
    }
    return 0;
}

/* The same with no line after it that would lie over what is left. */
TEST_WITH(the_last_line_is_cut_off_too, .workers = 1)
{
    const char *path = trace_test_path("trace.json");
    int cut = 0;

    test_short_io(1000);
    for (uint64_t n = 5; cut < 4 && n < 500; n++) {
        (void)unlink(path);
        test_fail_call_at(n, -ENOSPC);
        if (trace_test_run(spans_of_one_line, TRACE_FILE(path)) < 0) continue;
        if (strcmp(test_call_failed_name(), "pwrite") != 0) continue;
        CHECK_INT(file_bytes(path), ==, 0);
        cut++;
    }
    test_fail_call_at(0, 0);
    CHECK_INT(cut, ==, 4);
    trace_test_clean();
}

static int sweep_file(void *arg)
{
    const char *path = arg;
    int r;

    (void)unlink(path);
    r = trace_test_run(a_few, TRACE_FILE(path));
    if (r >= 0) check_lines(path);
    return r;
}

TEST_WITH(each_call_of_a_run_that_writes_a_file_may_fail, .workers = 1)
{
    CHECK_INT(test_sweep_calls(sweep_file, (void *)(uintptr_t)trace_test_path("trace.json"), -EIO),
              >, 8);
    trace_test_clean();
}

TEST_WITH(each_allocation_of_a_run_that_writes_a_file_may_fail, .workers = 1)
{
    CHECK_INT(test_sweep_alloc(sweep_file, (void *)(uintptr_t)trace_test_path("trace.json")), >, 8);
    trace_test_clean();
}

/* ---- Others' files ---- */

static int open_a_second(void *arg)
{
    (void)arg;
    return 0;
}

static void *run_second(void *arg)
{
    CHECK_INT(trace_test_run(open_a_second, TRACE_FILE((const char *)arg)), ==, WEIR_EREFUSED);
    CHECK_CONTAINS(weir_why(), "is being written to by another runtime");
    return NULL;
}

static int while_it_is_open(void *arg)
{
    pthread_t thread;
    const char *path = trace_test_path("trace.json");

    (void)arg;
    CHECK_INT(pthread_create(&thread, NULL, run_second, (void *)(uintptr_t)path), ==, 0);
    CHECK_INT(pthread_join(thread, NULL), ==, 0);
    return 0;
}

TEST(a_file_has_one_writer)
{
    CHECK_OK(trace_test_run(while_it_is_open, TRACE_FILE(trace_test_path("trace.json"))));
    trace_test_clean();
}

TEST(what_a_killed_process_has_left_of_a_line_is_a_line_of_its_own)
{
    const char *path = trace_test_path("trace.json");
    char text[64] = "";
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    CHECK(fd >= 0);
    CHECK_INT(write(fd, "{\"resou", 7), ==, 7);
    CHECK_OK(trace_test_run(a_few, TRACE_FILE(path)));
    CHECK_INT(pread(fd, text, sizeof text - 1, 0), >, 20);
    (void)close(fd);
    CHECK(strncmp(text, "{\"resou\n{\"resourceSpans\":[", 26) == 0);
    trace_test_clean();
}
