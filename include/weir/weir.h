/* weir.h - everything: async work for C, with every boundary named.
 *
 * All of libweir, that is. <weir/test.h> is another library's (libweir-test), which programs of
 * tests are linked with, and which only they include. */
#ifndef WEIR_WEIR_H
#define WEIR_WEIR_H

#include <weir/actor.h>
#include <weir/breaker.h>
#include <weir/broadcast.h>
#include <weir/chan.h>
#include <weir/check.h>
#include <weir/dead_letter.h>
#include <weir/defs.h>
#include <weir/error.h>
#include <weir/fan.h>
#include <weir/file.h>
#include <weir/guard.h>
#include <weir/jobs.h>
#include <weir/limit.h>
#include <weir/log.h>
#include <weir/map.h>
#include <weir/metrics.h>
#include <weir/net.h>
#include <weir/outbox.h>
#include <weir/pipeline.h>
#include <weir/pool.h>
#include <weir/postbox.h>
#include <weir/process.h>
#include <weir/process_pool.h>
#include <weir/retry.h>
#include <weir/runtime.h>
#include <weir/scope.h>
#include <weir/select.h>
#include <weir/shed.h>
#include <weir/signal.h>
#include <weir/sim.h>
#include <weir/snapshot.h>
#include <weir/store.h>
#include <weir/sync.h>
#include <weir/task.h>
#include <weir/timer.h>
#include <weir/trace.h>
#include <weir/watchdog.h>
#include <weir/worker.h>

#endif
