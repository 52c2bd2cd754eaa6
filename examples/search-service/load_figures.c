/* load_figures.c - what the load program has measured: tallies, CSV, the report and its claims. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "load.h"

/* ---- Latencies ---- */

void latencies_add(struct latencies *latencies, int64_t ns)
{
    double us = ns > 1000 ? (double)ns / 1000 : 1;
    int bucket = (int)(log(us) / log(1.02));

    latencies->count++;
    latencies->buckets[bucket < LATENCY_BUCKETS ? bucket : LATENCY_BUCKETS - 1]++;
}

double latencies_ms(const struct latencies *latencies, double part)
{
    uint64_t wanted = (uint64_t)ceil((double)latencies->count * part), seen = 0;

    if (latencies->count == 0) return 0;
    for (int i = 0; i < LATENCY_BUCKETS; i++) {
        seen += latencies->buckets[i];
        if (seen >= wanted) return pow(1.02, i + 1) / 1000;
    }
    return 0;
}

/* ---- Tallies ---- */

struct phase *load_phase(struct load *load)
{
    struct phase *phase;

    (void)pthread_mutex_lock(&load->lock);
    phase = load->phase;
    (void)pthread_mutex_unlock(&load->lock);
    return phase;
}

/* The one that time is in. */
static struct tally *load_interval(struct load *load, int64_t now_ns)
{
    int64_t index = (now_ns - load->begin_ns) / (INTERVAL_MS * 1000000LL);

    return &load->intervals[index < load->intervals_max ? index : load->intervals_max - 1];
}

void load_due(struct load *load, int64_t due_ns)
{
    load_interval(load, due_ns)->offered++;
    if (load->phase) load->phase->tally.offered++;
}

void load_unsent(struct load *load, int64_t due_ns)
{
    load_interval(load, due_ns)->unsent++;
    if (load->phase) load->phase->tally.unsent++;
}

static void tally_answer(struct tally *tally, enum search_code code, int64_t latency_ns,
                         bool in_time)
{
    tally->answers[code]++;
    if (code <= SEARCH_PARTIAL && in_time) tally->good++;
    if (code <= SEARCH_PARTIAL && !in_time) tally->late++;
    if (search_was_accepted(code)) latencies_add(&tally->accepted, latency_ns);
}

void load_answer(struct load *load, enum search_code code, int64_t due_ns)
{
    int64_t now_ns = weir_now_ns();
    bool in_time = now_ns - due_ns <= load->budget_ms * 1000000LL;

    tally_answer(load_interval(load, now_ns), code, now_ns - due_ns, in_time);
    if (load->phase) tally_answer(&load->phase->tally, code, now_ns - due_ns, in_time);
}

static uint64_t turned_away(const struct tally *tally)
{
    uint64_t count = 0;

    for (int code = 0; code < SEARCH_CODES; code++)
        if (!search_was_accepted((enum search_code)code)) count += tally->answers[code];
    return count;
}

static uint64_t failed(const struct tally *tally)
{
    uint64_t count = 0;

    for (int code = SEARCH_PARTIAL + 1; code < SEARCH_CODES; code++)
        if (search_was_accepted((enum search_code)code)) count += tally->answers[code];
    return count;
}

/* ---- CSV: a row for each interval ---- */

int load_write_csv(const struct load *load)
{
    FILE *file = fopen(load->csv, "we");
    double per_second = 1000.0 / INTERVAL_MS, calls = load->samples[0].upstream_calls;
    int last = -1; /* interval with a sample */

    if (!file) return -errno;
    fprintf(file, "t_s,phase,rate,offered,goodput,late,partial,overload,shed,unavailable,upstream,"
                  "timeout,internal,unsent,p50_ms,p99_ms,parse,fetch,rank,enrich,queued,breaker,"
                  "resident_mb,upstream_calls,sampled\n");
    for (int i = 0; i < load->interval_count; i++) {
        const struct tally *tally = &load->intervals[i];
        const struct sample *sample = &load->samples[i];
        fprintf(
            file, "%.1f,%s,%.1f,%.1f,%.1f,%.1f,%.1f,%.1f,%.1f,%.1f,%.1f,%.1f,%.1f,%.1f,%.2f,%.2f,",
            (i + 1) / per_second, load->interval_phases[i], load->interval_rates[i],
            (double)tally->offered * per_second, (double)tally->good * per_second,
            (double)tally->late * per_second, (double)tally->answers[SEARCH_PARTIAL] * per_second,
            (double)tally->answers[SEARCH_OVERLOAD] * per_second,
            (double)tally->answers[SEARCH_SHED] * per_second,
            (double)tally->answers[SEARCH_UNAVAILABLE] * per_second,
            (double)tally->answers[SEARCH_UPSTREAM] * per_second,
            (double)tally->answers[SEARCH_TIMEOUT] * per_second,
            (double)tally->answers[SEARCH_INTERNAL] * per_second,
            (double)tally->unsent * per_second, latencies_ms(&tally->accepted, 0.5),
            latencies_ms(&tally->accepted, 0.99));
        fprintf(file, "%.0f,%.0f,%.0f,%.0f,%.0f,%.0f,%.2f,%.1f,%d\n", sample->depth[0],
                sample->depth[1], sample->depth[2], sample->depth[3], sample->queued,
                sample->breaker, sample->resident_mb,
                sample->valid ? (sample->upstream_calls - calls) * per_second / (i - last) : 0,
                sample->valid);
        if (sample->valid) {
            calls = sample->upstream_calls;
            last = i;
        }
    }
    return fclose(file) == 0 ? 0 : -errno;
}

/* ---- The report ---- */

static const struct phase *phase_named(const struct load *load, const char *name)
{
    for (int i = 0; i < load->phase_count; i++)
        if (strcmp(load->phases[i].name, name) == 0) return &load->phases[i];
    return NULL;
}

/* From the end of the outage to the first of two seconds in which nine of ten that are offered are
 * answered well; negative: never. */
static double recovery_s(const struct load *load, const struct phase *recovery)
{
    int steady = 0, first = (int)(recovery->begin_s * 1000 / INTERVAL_MS);

    for (int i = first; i < load->interval_count && i * INTERVAL_MS < recovery->end_s * 1000; i++) {
        const struct tally *tally = &load->intervals[i];
        steady = (double)tally->good >= 0.9 * (double)tally->offered ? steady + 1 : 0;
        if (steady == 4) return fmax(0, (double)(i - 3) * INTERVAL_MS / 1000 - recovery->begin_s);
    }
    return -1;
}

static double resident_mb(const struct load *load, double from_s, double to_s, bool max)
{
    double mb = 0;

    for (int i = 0; i < load->interval_count; i++) {
        double s = (double)(i + 1) * INTERVAL_MS / 1000;
        if (!load->samples[i].valid || s < from_s || s > to_s) continue;
        if (!max || load->samples[i].resident_mb > mb) mb = load->samples[i].resident_mb;
    }
    return mb;
}

static int claim(bool holds, const char *text)
{
    printf("%s: %s\n", holds ? "held  " : "MISSED", text);
    return !holds;
}

static void print_phases(const struct load *load)
{
    printf("%-10s %9s %9s %9s %9s %9s %9s %9s\n", "phase", "offered/s", "good/s", "late/s",
           "away/s", "failed/s", "P50 ms", "P99 ms");
    for (int i = 0; i < load->phase_count; i++) {
        const struct phase *phase = &load->phases[i];
        double s = phase->end_s - phase->begin_s;
        printf("%-10s %9.0f %9.0f %9.0f %9.0f %9.0f %9.1f %9.1f\n", phase->name,
               (double)phase->tally.offered / s, (double)phase->tally.good / s,
               (double)phase->tally.late / s, (double)turned_away(&phase->tally) / s,
               (double)failed(&phase->tally) / s, latencies_ms(&phase->tally.accepted, 0.5),
               latencies_ms(&phase->tally.accepted, 0.99));
    }
    printf("%llu sent, %llu answered, %llu lost with their connection, %llu without an answer, "
           "%llu answers to nothing\n",
           (unsigned long long)load->sent, (unsigned long long)load->answered,
           (unsigned long long)load->lost, (unsigned long long)load->open_requests,
           (unsigned long long)load->unknown);
}

static int claim_overload(const struct load *load, const struct phase *overload, double capacity)
{
    double goodput = (double)overload->tally.good / (overload->end_s - overload->begin_s);
    double p99 = 0;
    char text[256];
    int missed;

    (void)snprintf(
        text, sizeof text,
        "goodput at 5x overload is %.0f/s, %.0f %% of the peak of %.0f/s (at least 90 %%)", goodput,
        100 * goodput / capacity, capacity);
    missed = claim(goodput >= 0.9 * capacity, text);
    for (int i = 0; i < load->phase_count; i++)
        p99 = fmax(p99, latencies_ms(&load->phases[i].tally.accepted, 0.99));
    (void)snprintf(text, sizeof text,
                   "P99 of accepted requests is %.0f ms in the worst phase (budget %d ms)", p99,
                   load->budget_ms);
    return missed + claim(p99 <= load->budget_ms, text);
}

static int claim_memory(const struct load *load, const struct phase *full)
{
    double before = resident_mb(load, full->begin_s, full->end_s, true);
    double most = resident_mb(load, full->end_s, 1e9, true);
    char text[256];

    (void)snprintf(text, sizeof text,
                   "memory is flat: %.1f MB at full load, %.1f MB at most after that (1.2 times)",
                   before, most);
    return claim(before > 0 && most <= 1.2 * before, text);
}

static int claim_recovery(const struct load *load, const struct phase *recovery)
{
    double s = recovery_s(load, recovery);
    char text[256];

    if (s < 0)
        (void)snprintf(text, sizeof text, "recovery after the outage: not in this run (5 s)");
    else
        (void)snprintf(text, sizeof text, "recovery %.1f s after the outage ends (5 s)", s);
    return claim(s >= 0 && s <= 5, text);
}

int load_report(const struct load *load, double capacity)
{
    const struct phase *full = phase_named(load, "1x"), *overload = phase_named(load, "5x");
    const struct phase *recovery = phase_named(load, "recovery");
    int missed;

    print_phases(load);
    missed = claim(load->sent == load->answered && load->unknown == 0 && load->lost == 0,
                   "every request that was sent has exactly one answer");
    if (!full || !overload || !recovery) return missed; /* it was not the story */
    missed += claim_overload(load, overload, capacity);
    missed += claim_memory(load, full);
    return missed + claim_recovery(load, recovery);
}
