/* process.h - the figures of the process itself, from /proc.
 *
 * What cannot be read is left out. On a worker; reads a few small files.
 */
#ifndef WEIR_WATCH_PROCESS_H
#define WEIR_WATCH_PROCESS_H

#include "rt/kernel.h"
#include "watch/expose.h"

void process_expose(struct exposition *out, const struct kernel *kernel);

#endif
