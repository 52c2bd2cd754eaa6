/* table_parts.h - options and arguments of the table that are in a file of their own. */
#ifndef WEIR_CLI_TABLE_PARTS_H
#define WEIR_CLI_TABLE_PARTS_H

#include "cli/command.h"

extern const struct cli_argument queue_arguments[];
extern const struct cli_option queue_set_options[];
extern const struct cli_option cron_set_options[];
extern const struct cli_argument cron_set_arguments[];
extern const struct cli_argument cron_arguments[];
extern const struct cli_example cron_examples[];
extern const struct cli_option map_options[];
extern const struct cli_option bench_options[];
extern const struct cli_argument verify_arguments[];
extern const struct cli_argument backup_arguments[];
extern const struct cli_argument restore_arguments[];
extern const struct cli_option token_create_options[];
extern const struct cli_argument token_create_arguments[];
extern const struct cli_argument token_arguments[];
extern const struct cli_option token_data_options[];
extern const struct cli_option token_rotate_options[];
extern const struct cli_example token_examples[];
extern const struct cli_argument completion_arguments[];
extern const struct cli_option help_options[];
extern const struct cli_argument help_arguments[];

#endif
