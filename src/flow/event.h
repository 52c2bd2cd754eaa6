/* event.h - what an event is inside. */
#ifndef WEIR_FLOW_EVENT_H
#define WEIR_FLOW_EVENT_H

#include <weir/sync.h>

#include "flow/sync.h"

struct weir_event {
    struct sync sync;
    bool is_set;
};

#endif
