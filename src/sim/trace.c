/* trace.c - the hash, the path and the last decisions of a run. */
#include "sim/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "sim/choice.h"

/* Odd, and its bits look like chance: what a multiplication spreads by. */
#define HASH_FACTOR UINT64_C(0xd6e8feb86659fd93)

void trace_clear(struct trace *trace)
{
    /* Not the arrays: they are long, and what the counts do not cover is not looked at. */
    trace->hash = HASH_FACTOR;
    trace->choices = 0;
    trace->faults = 0;
    trace->departures = 0;
}

static void copy_cut(char *to, size_t bytes, const char *from)
{
    size_t length = from ? strnlen(from, bytes - 1) : 0;

    if (length > 0) memcpy(to, from, length);
    to[length] = '\0';
}

static void add_departure(struct trace *trace, unsigned kind, unsigned answer)
{
    if (choice_row(kind)->class == CLASS_FAULT) trace->faults++;
    if (trace->departures < TRACE_DEPARTURES_MAX) {
        trace->path[trace->departures] = (struct departure){trace->choices, kind, answer};
    }
    trace->departures++;
}

void trace_add(struct trace *trace, int64_t at_ns, unsigned kind, unsigned n, unsigned answer,
               const char *host, const char *task, const char *about)
{
    uint64_t word = (uint64_t)kind << 58 ^ (uint64_t)n << 32 ^ answer;
    uint64_t mixed = (trace->hash ^ word) * HASH_FACTOR;

    trace->hash = mixed ^ mixed >> 29;
    if (answer != 0) add_departure(trace, kind, answer);
    if (__builtin_expect(trace->detailed, 0)) {
        struct decision *decision = &trace->last[trace->choices % TRACE_LAST];

        *decision = (struct decision){
            .at_ns = at_ns, .number = trace->choices, .kind = kind, .n = n, .answer = answer};
        copy_cut(decision->host, sizeof decision->host, host);
        copy_cut(decision->task, sizeof decision->task, task);
        copy_cut(decision->about, sizeof decision->about, about);
    }
    trace->choices++;
}

unsigned trace_last_count(const struct trace *trace)
{
    if (!trace->detailed) return 0;
    return trace->choices < TRACE_LAST ? (unsigned)trace->choices : TRACE_LAST;
}

static const char *ordinal_end(unsigned number)
{
    if (number % 100 >= 11 && number % 100 <= 13) return "th";
    switch (number % 10) {
    case 1: return "st";
    case 2: return "nd";
    case 3: return "rd";
    default: return "th";
    }
}

/* "at 12.5 ms, host main, task 'writer'" */
static void say_where(const struct decision *decision, char *words, size_t bytes)
{
    int64_t us = decision->at_ns / 1000;
    char fraction[32] = "", host[32] = "", task[48] = "";

    if (us % 1000 != 0) {
        (void)snprintf(fraction, sizeof fraction, ".%03" PRId64, us % 1000);
        for (size_t end = strlen(fraction); fraction[end - 1] == '0'; end--)
            fraction[end - 1] = '\0';
    }
    if (decision->host[0]) (void)snprintf(host, sizeof host, ", host %s", decision->host);
    if (decision->task[0]) (void)snprintf(task, sizeof task, ", task '%s'", decision->task);
    (void)snprintf(words, bytes, "at %" PRId64 "%s ms%s%s", us / 1000, fraction, host, task);
}

void trace_words(const struct trace *trace, unsigned i, char *words, size_t bytes)
{
    uint64_t first = trace->choices - trace_last_count(trace);
    const struct decision *decision = &trace->last[(first + i) % TRACE_LAST];
    const struct choice_row *row = choice_row(decision->kind);
    char where[192], about[TRACE_ABOUT_BYTES + 8] = "";

    say_where(decision, where, sizeof where);
    if (decision->about[0]) (void)snprintf(about, sizeof about, " ('%s')", decision->about);
    if (row->yes) {
        (void)snprintf(words, bytes, "%s: %s%s", where, decision->answer ? row->yes : row->no,
                       about);
    } else if (row->class == CLASS_AMOUNT) {
        (void)snprintf(words, bytes, "%s: %s%u%s%s: %u", where, row->before, decision->n,
                       row->after, about, decision->answer);
    } else {
        (void)snprintf(words, bytes, "%s: %s%u%s: the %u%s%s", where, row->before, decision->n,
                       row->after, decision->answer + 1, ordinal_end(decision->answer + 1), about);
    }
}
