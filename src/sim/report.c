/* report.c - progress, and what is printed about a failed run. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim/explore.h"
#include "sim/raw_calls.h"
#include "sim/strategy.h"

enum { LAST_SHOWN_MAX = 24, COPY_BYTES = 4096 };

const char *explore_number(uint64_t number, char text[32])
{
    char digits[24];
    int count = snprintf(digits, sizeof digits, "%" PRIu64, number);
    size_t length = 0;

    for (int i = 0; i < count; i++) {
        if (i > 0 && (count - i) % 3 == 0) text[length++] = ',';
        text[length++] = digits[i];
    }
    text[length] = '\0';
    return text;
}

static const char *strategies_in_words(unsigned strategies)
{
    if (strategies & WEIR_SIM_EXHAUSTIVE) return "exhaustive";
    if (strategies == (WEIR_SIM_RANDOM | WEIR_SIM_PCT)) return "random+pct";
    return strategies & WEIR_SIM_PCT ? "pct" : "random";
}

void explore_show_progress(struct explorer *explorer, bool last)
{
    const weir_sim_spec *spec = explorer->setup->spec;
    const struct explore_shared *shared = explorer->shared;
    bool terminal;
    char runs[32], rate[32], distinct[32];
    double seconds = (double)(explore_now_ns() - explorer->begun_ns) / 1e9;
    int r;

    if (!explorer->progress || (last && !explorer->progress_shown)) return;
    terminal = isatty(STDERR_FILENO);
    explorer->progress_shown = true;
    r = dprintf(STDERR_FILENO, "%s%s: %s runs, %s/s, %s%s distinct, %s%s%s", terminal ? "\r" : "",
                spec->name, explore_number(shared->runs, runs),
                explore_number((uint64_t)((double)shared->runs / (seconds + 1e-9)), rate),
                explore_number(shared->distinct, distinct), shared->distinct_full ? " or more" : "",
                strategies_in_words(spec->strategies), terminal ? "\033[K" : "",
                terminal && !last ? "" : "\n");
    (void)r;
}

/* ---- A failed run ---- */

static void print_last(const struct trace *trace)
{
    unsigned count = trace_last_count(trace);
    unsigned first = count > LAST_SHOWN_MAX ? count - LAST_SHOWN_MAX : 0;
    char words[256];
    int r = 0;

    if (count == 0) return;
    r += dprintf(STDERR_FILENO, "  the last decisions of %" PRIu64 ":\n", trace->choices);
    for (unsigned i = first; i < count; i++) {
        trace_words(trace, i, words, sizeof words);
        r += dprintf(STDERR_FILENO, "    %s\n", words);
    }
    (void)r;
}

static void print_dump(int fd)
{
    char data[COPY_BYTES];
    off_t at = 0;
    ssize_t bytes = pread(fd, data, sizeof data, at);
    int r = 0;

    if (bytes <= 0) return;
    r += dprintf(STDERR_FILENO, "  the dump:\n");
    for (; bytes > 0; bytes = pread(fd, data, sizeof data, at)) {
        r += dprintf(STDERR_FILENO, "%.*s", (int)bytes, data);
        at += bytes;
    }
    (void)r;
}

/* What is there without making it again. */
static void print_head(const struct explorer *explorer)
{
    const struct explore_found *found = explorer->found;
    char run[32];
    int r = 0;

    r += dprintf(STDERR_FILENO, "weir_sim: '%s': %s\n", explorer->setup->spec->name,
                 found->end.failure);
    if (found->places[0]) r += dprintf(STDERR_FILENO, "  it was in:  %s\n", found->places);
    if (found->end.hung && !raw_calls_possible()) {
        r += dprintf(STDERR_FILENO,
                     "  a call that blocks is not seen by its name here: that needs "
                     "x86-64, Linux 5.11, and neither ThreadSanitizer nor valgrind\n");
    }
    if (found->replay[0]) {
        r += dprintf(STDERR_FILENO, "  replay:  WEIR_SIM=%s  (", found->replay);
    } else {
        r += dprintf(STDERR_FILENO, "  replay:  its path is too long to be written down  (");
    }
    if (found->departures < found->departures_before) {
        r += dprintf(STDERR_FILENO, "shortened from %" PRIu64 " departures to %zu; ",
                     found->departures_before, found->departures);
    }
    r += dprintf(STDERR_FILENO, "found in run %s by %s)\n", explore_number(found->run, run),
                 found->strategy);
    (void)r;
}

static void print_not_again(const struct explore_found *found)
{
    int r = dprintf(STDERR_FILENO,
                    "  it failed once, and not when it was made again: then it %s%s\n"
                    "  does `begin` put back every variable that a run changes?\n",
                    found->then.failed ? "failed otherwise: " : "passed",
                    found->then.failed ? found->then.failure : "");
    (void)r;
}

void explore_report(struct explorer *explorer)
{
    struct explore_found *found = explorer->found;
    struct strategy *strategy = NULL;
    int64_t no_step_ms = found->end.hung ? EXPLORE_NO_STEP_AGAIN_MS : EXPLORE_NO_STEP_MS;
    struct explore_end end;
    int fd;

    print_head(explorer);
    if (found->not_again) return;
    if (!found->again) {
        print_not_again(found);
        return;
    }
    fd = memfd_create("weir-sim-dump", MFD_CLOEXEC);
    if (found->replay[0] && strategy_parse(found->replay, &strategy) == 0 &&
        explore_attempt(explorer, strategy, true, fd, no_step_ms, &end) == 0) {
        print_last(&explorer->shared->trace);
        if (fd >= 0) print_dump(fd);
    }
    strategy_free(strategy);
    if (fd >= 0) (void)close(fd);
}

void explore_report_here(const struct sim_setup *setup, const char *words, const char *failure,
                         const struct trace *trace)
{
    int r = dprintf(STDERR_FILENO, "weir_sim: '%s': %s\n  replay:  WEIR_SIM=%s\n",
                    setup->spec->name, failure, words);
    (void)r;
    print_last(trace);
}
