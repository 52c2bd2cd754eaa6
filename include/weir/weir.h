/* weir.h - everything: async work for C, with every boundary named. */
#ifndef WEIR_WEIR_H
#define WEIR_WEIR_H

#include <weir/actor.h>
#include <weir/broadcast.h>
#include <weir/chan.h>
#include <weir/defs.h>
#include <weir/error.h>
#include <weir/fan.h>
#include <weir/file.h>
#include <weir/log.h>
#include <weir/map.h>
#include <weir/metrics.h>
#include <weir/net.h>
#include <weir/pipeline.h>
#include <weir/pool.h>
#include <weir/postbox.h>
#include <weir/process.h>
#include <weir/process_pool.h>
#include <weir/runtime.h>
#include <weir/scope.h>
#include <weir/select.h>
#include <weir/signal.h>
#include <weir/snapshot.h>
#include <weir/sync.h>
#include <weir/task.h>
#include <weir/timer.h>

#endif
