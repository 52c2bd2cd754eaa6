/* load.c - the phases of a load, one after the other, on all connections. */
#include "load.h"

#include <errno.h>
#include <string.h>

#include "lines.h"

enum { CONTROL_MS = 2000 };

static int control(struct load *load, const char *line)
{
    char answer[LINE_BYTES_MAX];
    int r = WEIR_ECANCELED;

    WEIR_DEADLINE(CONTROL_MS) r = line_ask(load->control, line, answer, sizeof answer);
    if (r == 0 && strcmp(answer, "ok") != 0) return -EBADMSG;
    return r;
}

/* A task: at the end of each interval, what the service says of itself. One that says nothing in
 * time has no sample there. */
static int sample_all(void *arg)
{
    struct load *load = *(struct load **)arg;
    const struct phase *phase;
    int r = 0;

    while (r == 0 && load->interval_count < load->intervals_max) {
        int index = load->interval_count;
        int64_t end_ns = load->begin_ns + (index + 1) * (INTERVAL_MS * 1000000LL);
        int64_t wait_ms = (end_ns - weir_now_ns()) / 1000000;
        if (wait_ms > 0) r = weir_sleep(wait_ms);
        if (r < 0) break;
        phase = load_phase(load);
        load->interval_phases[index] = phase ? phase->name : "";
        load->interval_rates[index] = phase ? phase->rate : 0;
        load->interval_count++;
        if (load_sample(load, &load->samples[index]) == WEIR_ECANCELED) break;
    }
    return 0;
}

static void begin_phase(struct load *load, struct phase *phase)
{
    (void)pthread_mutex_lock(&load->lock);
    load->phase = phase;
    (void)pthread_mutex_unlock(&load->lock);
}

static double seconds_now(const struct load *load)
{
    return (double)(weir_now_ns() - load->begin_ns) / 1e9;
}

static int run_phases(struct load *load)
{
    int r = 0;

    for (int i = 0; i < load->phase_count && r == 0; i++) {
        struct phase *phase = &load->phases[i];
        if (phase->outage) r = control(load, "outage on");
        if (r < 0) break;
        phase->begin_s = seconds_now(load);
        begin_phase(load, phase);
        if (load->on_phase) load->on_phase(phase);
        r = weir_sleep((int64_t)(phase->seconds * 1000));
        phase->end_s = seconds_now(load);
        if (phase->outage) {
            int off = control(load, "outage off");
            if (r == 0) r = off;
        }
    }
    begin_phase(load, NULL);
    return r;
}

int load_run(struct load *load)
{
    int result, sent;

    load->begin_ns = weir_now_ns();
    WEIR_SCOPE(scope, &result, .name = "load", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
               .overflow = WEIR_REJECT) {
        int r = load->admin ? weir_spawn(scope, sample_all, &load, sizeof load) : 0;
        load->phase = &load->phases[0]; /* so that nobody finds that it is over already */
        WEIR_SCOPE(connections, &sent, .name = "connections", .on_failure = WEIR_COLLECT,
                   .max_tasks = CONNECTIONS_MAX, .overflow = WEIR_REJECT) {
            for (int i = 0; i < load->connections && r == 0; i++) {
                struct load_connection connection = {.load = load, .index = i};
                r = weir_spawn(connections, load_connection, &connection, sizeof connection);
            }
            if (r == 0) r = run_phases(load);
            if (r < 0) weir_scope_cancel(connections, r, "the load could not be made");
        }
        weir_scope_cancel(scope, sent, "all is sent");
    }
    return result;
}
