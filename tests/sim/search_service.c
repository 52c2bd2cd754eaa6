/* search_service.c - the search service whole, in simulation: client, service and upstream as three
 * hosts, through overload, outage, partition and restart. search_stand.h says what must be so. */
#include <string.h>

#include "harness/test.h"
#include "sim/search_stand.h"

/* ---- What happens ---- */

static bool is(const struct phase *phase, const char *name)
{
    return strcmp(phase->name, name) == 0;
}

static void kill_upstream(const struct phase *phase)
{
    if (is(phase, "outage")) {
        stand.upstream_down = true;
        weir_sim_host_kill(stand.upstream);
    } else if (is(phase, "recovery")) {
        stand.upstream_down = false; /* it is started again */
        stand_healed();
    }
}

static void cut_off_upstream(const struct phase *phase)
{
    if (is(phase, "outage")) {
        weir_sim_partition(stand.service, stand.upstream);
    } else if (is(phase, "recovery")) {
        weir_sim_heal(stand.service, stand.upstream);
        stand_healed();
    }
}

static void cut_off_client(const struct phase *phase)
{
    if (is(phase, "outage")) {
        weir_sim_partition(stand.client, stand.service);
    } else if (is(phase, "recovery")) {
        weir_sim_heal(stand.client, stand.service);
        stand_healed();
    }
}

/* It answers what it has accepted, ends, and is started again. */
static void restart_service(const struct phase *phase)
{
    if (is(phase, "outage")) {
        weir_sim_host_stop(stand.service, CLIENTS_DRAIN_MS);
    } else if (is(phase, "recovery")) {
        stand_healed();
    }
}

static void kill_service(const struct phase *phase)
{
    if (is(phase, "outage")) {
        weir_sim_host_kill(stand.service);
    } else if (is(phase, "recovery")) {
        stand_healed();
    }
}

/* ---- Scenes ---- */

#define CALM(seconds_)                                    \
    {                                                     \
        .name = "calm", .rate = 60, .seconds = (seconds_) \
    }
#define OUTAGE(seconds_)                                    \
    {                                                       \
        .name = "outage", .rate = 80, .seconds = (seconds_) \
    }
#define RECOVERY(seconds_)                                    \
    {                                                         \
        .name = "recovery", .rate = 60, .seconds = (seconds_) \
    }

#define BREAKER_INVARIANTS                                                             \
    {.name = "the breaker opens", .holds = stand_breaker_opened, .within_ms = 1500},   \
    {                                                                                  \
        .name = "the breaker closes", .holds = stand_breaker_closed, .within_ms = 4000 \
    }

#define GOODPUT_INVARIANT                                                            \
    {                                                                                \
        .name = "goodput is back", .holds = stand_goodput_is_back, .within_ms = 6000 \
    }

SIM_TEST(search_service_answers_everything_when_all_is_quiet, .runs_max = 300, .begin = stand_begin,
         .invariants = {STAND_INVARIANTS, GOODPUT_INVARIANT})
{
    static const struct scene scene = {.phases = {CALM(0.5)}, .connections = 2, .rank_us = 4000};

    return stand_play(&scene);
}

SIM_TEST(search_service_turns_away_what_is_too_much, .runs_max = 100, .begin = stand_begin,
         .invariants = {STAND_INVARIANTS, GOODPUT_INVARIANT})
{
    static const struct scene scene = {
        .phases = {{.name = "5x", .rate = 500, .seconds = 0.4}, CALM(0.2)},
        .connections = 3,
        .rank_us = 10000};

    return stand_play(&scene);
}

SIM_TEST(search_service_survives_an_outage_of_its_upstream, .runs_max = 100, .begin = stand_begin,
         .invariants = {STAND_INVARIANTS, BREAKER_INVARIANTS, GOODPUT_INVARIANT})
{
    static const struct scene scene = {.phases = {CALM(0.2), OUTAGE(0.8), RECOVERY(0.8)},
                                       .connections = 2,
                                       .rank_us = 4000,
                                       .on_phase = kill_upstream};

    return stand_play(&scene);
}

SIM_TEST(search_service_survives_being_cut_off_from_its_upstream, .runs_max = 200,
         .begin = stand_begin,
         .invariants = {STAND_INVARIANTS, BREAKER_INVARIANTS, GOODPUT_INVARIANT})
{
    static const struct scene scene = {.phases = {CALM(0.2), OUTAGE(0.8), RECOVERY(0.8)},
                                       .connections = 2,
                                       .rank_us = 4000,
                                       .on_phase = cut_off_upstream};

    return stand_play(&scene);
}

SIM_TEST(search_service_answers_late_to_clients_that_were_cut_off, .runs_max = 250,
         .begin = stand_begin, .invariants = {STAND_INVARIANTS, GOODPUT_INVARIANT})
{
    static const struct scene scene = {.phases = {CALM(0.2), OUTAGE(0.4), RECOVERY(0.4)},
                                       .connections = 2,
                                       .rank_us = 4000,
                                       .on_phase = cut_off_client};

    return stand_play(&scene);
}

SIM_TEST(search_service_answers_what_it_accepted_before_a_restart, .runs_max = 600,
         .begin = stand_begin, .invariants = {STAND_INVARIANTS, GOODPUT_INVARIANT})
{
    static const struct scene scene = {.phases = {CALM(0.2), OUTAGE(0.3), RECOVERY(0.2)},
                                       .connections = 2,
                                       .rank_us = 4000,
                                       .on_phase = restart_service,
                                       .lossy = true,
                                       .drains = true};

    return stand_play(&scene);
}

SIM_TEST(search_service_comes_back_after_it_was_killed, .runs_max = 500, .begin = stand_begin,
         .invariants = {STAND_INVARIANTS, GOODPUT_INVARIANT})
{
    static const struct scene scene = {.phases = {CALM(0.2), OUTAGE(0.3), RECOVERY(0.2)},
                                       .connections = 2,
                                       .rank_us = 4000,
                                       .on_phase = kill_service,
                                       .lossy = true};

    return stand_play(&scene);
}

SIM_TEST(search_service_survives_an_outage_while_everything_fails_at_times, .runs_max = 100,
         .any_result = true, .begin = stand_begin, .invariants = {STAND_INVARIANTS},
         .faults = {.short_io = 20,
                    .late = 50,
                    .late_ms_max = 30,
                    .reset = 500,
                    .refuse = 100,
                    .no_memory = 5000})
{
    static const struct scene scene = {.phases = {CALM(0.2), OUTAGE(0.5), RECOVERY(0.5)},
                                       .connections = 2,
                                       .rank_us = 4000,
                                       .on_phase = kill_upstream,
                                       .lossy = true};

    return stand_play(&scene);
}
