/* log.h - the default sink and level; log_write is declared in rt/runtime.h. */
#ifndef WEIR_RT_LOG_H
#define WEIR_RT_LOG_H

#include <weir/log.h>

/* What the environment's WEIR_LOG says, or WEIR_LOG_LEVEL_DEFAULT. */
enum weir_log_level log_level_from_environment(void);

/* One line per record to standard error. */
void log_to_stderr(void *keep_arg, const weir_log_record *record);

#endif
