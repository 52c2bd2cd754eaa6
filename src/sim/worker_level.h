/* worker_level.h - atomics and locks of the library as points at which another thread may go on.
 *
 * In a library that was built for it (-Dsim_workers=true): base/atomic.h and rt/lock.h call hooks,
 * which are set while a run is going on. In others these calls do nothing.
 */
#ifndef WEIR_SIM_WORKER_LEVEL_H
#define WEIR_SIM_WORKER_LEVEL_H

void worker_level_on(void);
void worker_level_off(void);

#endif
