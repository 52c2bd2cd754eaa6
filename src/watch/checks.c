/* checks.c - reports: to the log, to the program, and counted. */
#include "watch/checks.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "rt/mem.h"

enum { LINE_BYTES = 512 };

static const char *const names[WEIR_CHECK_KINDS] = {
    [0] = "?",
    [WEIR_CHECK_ACROSS] = "across",
    [WEIR_CHECK_ORDER] = "order",
    [WEIR_CHECK_RECURSION] = "recursion",
    [WEIR_CHECK_DEADLOCK] = "deadlock",
    [WEIR_CHECK_LEAK] = "leak",
};
_Static_assert(WEIR_CHECK_LEAK == WEIR_CHECK_KINDS - 1, "WEIR_CHECK_KINDS is behind the last");

const char *weir_check_name(enum weir_check_kind kind)
{
    return (unsigned)kind < WEIR_CHECK_KINDS ? names[kind] : names[0];
}

uint64_t weir_check_count(enum weir_check_kind kind)
{
    struct worker *worker = worker_self();
    if (!worker || !worker->runtime->checks || (unsigned)kind >= WEIR_CHECK_KINDS) return 0;
    return atom_load(&worker->runtime->checks->counts[kind]);
}

int checks_open(weir_runtime *runtime, weir_check_fn fn, void *keep_arg)
{
    struct checks *checks;

    if (!runtime->lock_checks && !runtime->deadlock_checks) return 0;
    checks = mem_alloc_zeroed(sizeof *checks);
    if (!checks) return -ENOMEM;
    checks->runtime = runtime;
    checks->fn = fn;
    checks->arg = keep_arg;
    lock_init(&checks->lock);
    atom_store(&checks->search_at_ns,
               runtime->kernel->now_ns(runtime->kernel) + atom_load(&checks_patience_ns));
    runtime->checks = checks;
    return 0;
}

void checks_free(weir_runtime *runtime)
{
    struct checks *checks = runtime->checks;

    if (!checks) return;
    order_deinit(&checks->order);
    lock_deinit(&checks->lock);
    mem_free(checks);
    runtime->checks = NULL;
}

/* ---- What was said already ---- */

uint64_t checks_mix(uint64_t key, uint64_t part)
{
    key = (key ^ part) * UINT64_C(0x9e3779b97f4a7c15);
    return key ^ (key >> 29);
}

/* The lock is held. */
static bool is_seen(const struct checks *checks, uint64_t key)
{
    for (unsigned i = 0; i < checks->seen_count; i++) {
        if (checks->seen[i] == key) return true;
    }
    return false;
}

bool checks_said(struct checks *checks, uint64_t key)
{
    bool said;

    lock_acquire(&checks->lock);
    said = is_seen(checks, key) || checks->full_said;
    lock_release(&checks->lock);
    return said;
}

bool checks_first(struct checks *checks, uint64_t key)
{
    bool first;
    bool full = false;

    lock_acquire(&checks->lock);
    first = !is_seen(checks, key);
    if (first && checks->seen_count == CHECKS_SEEN_MAX) {
        first = false;
        full = !checks->full_said;
        checks->full_said = true;
    } else if (first) {
        checks->seen[checks->seen_count++] = key;
    }
    lock_release(&checks->lock);
    if (full) {
        log_write(checks->runtime, WEIR_LOG_WARNING, NULL,
                  "checks: %d different faults were reported, others are not", CHECKS_SEEN_MAX);
    }
    return first;
}

/* ---- Reports ---- */

void report_begin(struct report *report, struct checks *checks)
{
    report->checks = checks;
    text_init(&report->text);
    report->symbols = mem_alloc(sizeof *report->symbols);
    if (report->symbols) symbol_table_init(report->symbols);
}

void report_say(struct report *report, const char *format, ...)
{
    char line[LINE_BYTES];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    text_add(&report->text, line, strlen(line));
}

void report_place(struct report *report, uintptr_t place)
{
    char name[160];

    if (!place) {
        (void)snprintf(name, sizeof name, "an unknown place");
    } else if (report->symbols) {
        (void)symbol_format(report->symbols, place, name, sizeof name);
    } else {
        (void)snprintf(name, sizeof name, "0x%llx", (unsigned long long)place);
    }
    text_add(&report->text, name, strlen(name));
}

void report_backtrace(struct report *report, const struct backtrace *backtrace, uintptr_t place)
{
    unsigned first = 0;

    while (first < backtrace->count && backtrace->frames[first] != place) first++;
    if (first == backtrace->count) {
        first = report->symbols ? backtrace_first(backtrace, report->symbols) : 0;
    }
    for (unsigned i = first; i < backtrace->count; i++) {
        report_say(report, "\n  at ");
        report_place(report, backtrace->frames[i]);
    }
}

/* A line each: a sink shows no control characters. */
static void log_lines(weir_runtime *runtime, char *text)
{
    while (text) {
        char *end = strchr(text, '\n');
        if (end) *end = '\0';
        log_write(runtime, WEIR_LOG_WARNING, NULL, "%s", text);
        if (end) *end = '\n';
        text = end ? end + 1 : NULL;
    }
}

void report_drop(struct report *report)
{
    if (report->symbols) symbol_table_deinit(report->symbols);
    mem_free(report->symbols);
    text_deinit(&report->text);
}

void report_end(struct report *report, enum weir_check_kind kind)
{
    struct checks *checks = report->checks;
    weir_runtime *runtime = checks->runtime;
    weir_check_fn observer = atom_load_acquire(&checks_observer);
    weir_check_report told = {.kind = kind, .time_ns = runtime->kernel->now_ns(runtime->kernel)};
    char spare[64];

    (void)atom_add(&checks->counts[kind], 1);
    text_add(&report->text, "", 1);
    (void)snprintf(spare, sizeof spare, "%s: no memory to say more", names[kind]);
    told.text = report->text.error ? spare : report->text.data;
    if (log_wanted(runtime, WEIR_LOG_WARNING)) {
        log_lines(runtime, report->text.error ? spare : report->text.data);
    }
    if (observer) observer(NULL, &told);
    if (checks->fn) checks->fn(checks->arg, &told);
    report_drop(report);
}
