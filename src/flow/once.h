/* once.h - those who wait for a weir_once, in queues of the process. */
#ifndef WEIR_FLOW_ONCE_H
#define WEIR_FLOW_ONCE_H

#include "rt/runtime.h"

/* The runtime is gone without an end, as by a power cut: its tasks wait for nothing. The queues
 * outlive it, their memory does not. */
void once_forget(const weir_runtime *runtime);

#endif
