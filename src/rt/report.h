/* report.h - who is still there when a grace period is over. */
#ifndef WEIR_RT_REPORT_H
#define WEIR_RT_REPORT_H

#include <weir/defs.h>

struct worker;

/* Log `what` as a warning for each task below the scope, innermost scopes included,
 * up to a bound; the rest is counted. With several workers the others stand still
 * meanwhile; if one does not, the tasks are only counted. */
void report_alive(struct worker *worker, weir_scope *scope, const char *what);

#endif
