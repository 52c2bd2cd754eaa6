/* settings.h - the settings of a call: defaults, file, environment, flags, checked. */
#ifndef WEIR_CLI_SETTINGS_H
#define WEIR_CLI_SETTINGS_H

#include "cli/command.h"
#include "server/config.h"

/* The caller frees it, and looks at its problems. NULL: no memory. `file` NULL: none. */
struct config *settings_of(const struct cli_call *call, const char *file);

#endif
