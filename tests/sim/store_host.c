/* store_host.c - power cuts and restarts: see store_host.h. */
#include "sim/store_host.h"

#include <errno.h>

#include "harness/test.h"

enum {
    STARTS_MAX = 40,
    KILLS_MAX = 4, /* by choice; so many runs have none, and must come to an end */
    LOOKS_MAX = 20000,
};
#define PATIENCE_MS INT64_C(600000)

void host_begins(struct host_life *life)
{
    if (++life->starts > STARTS_MAX) life->looks_only = true;
}

int host_live(struct host_life *life, weir_task_fn program, const weir_config *config)
{
    weir_sim_host *host = NULL;
    unsigned kills = weir_sim_choose(KILLS_MAX);
    int r = weir_sim_host_start(
        &(weir_sim_host_spec){.name = "store", .fn = program, .config = config}, &host);

    for (int tries = 0; r == 0 && !life->is_over; tries++) {
        if (tries == LOOKS_MAX) weir_sim_fail("there is no end");
        WEIR_DEADLINE(PATIENCE_MS) r = weir_sleep(11);
        if (r < 0) break;
        if (kills > 0 && weir_sim_choose(20) == 1) {
            weir_sim_host_kill(host);
            kills--;
        }
        if (life->is_done && !life->looks_only) {
            weir_sim_host_kill(host); /* the last power cut, then a look at what is there */
            life->looks_only = true;
        }
        if (!weir_sim_host_running(host) && !life->is_over) r = weir_sim_host_restart(host);
        if (r == -ENOMEM) r = 0; /* at the next try */
    }
    return r;
}
