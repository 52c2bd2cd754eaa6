/* output.h - what commands say: tables on standard output, sentences on standard error.
 *
 * Colours and progress are for terminals only, and colours only without NO_COLOR.
 * Threads: one at a time.
 */
#ifndef WEIR_CLI_OUTPUT_H
#define WEIR_CLI_OUTPUT_H

#include "cli/client.h"
#include "cli/command.h"

enum { TABLE_COLUMNS_MAX = 12, TABLE_CELL_BYTES = 96 };

/* Rows are kept until the end, so that columns are as wide as they have to be. */
struct table {
    const char *titles[TABLE_COLUMNS_MAX];
    bool right[TABLE_COLUMNS_MAX]; /* numbers */
    unsigned columns;
    char (*rows)[TABLE_COLUMNS_MAX][TABLE_CELL_BYTES];
    size_t row_count, row_room;
    unsigned at; /* the next cell's column */
};

/* Titles parted by blanks; one that ends in '>' has numbers. */
void table_init(struct table *table, const char *titles);
__attribute__((format(printf, 2, 3))) void table_cell(struct table *table, const char *format, ...);
/* Prints what there is, and forgets it. `none` is said on standard error if there is nothing. */
void table_end(struct table *table, const char *none);

/* "weir: SENTENCE". */
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);
/* The same, and the status. */
__attribute__((format(printf, 2, 3))) int fail(enum cli_exit status, const char *format, ...);

/* An error of client_ask, in words that help. */
int fail_reach(const struct client *client, int error);
/* What the server has refused. `what` is what was asked for. */
int fail_answer(const struct client_answer *answer, const char *what);
enum cli_exit exit_of_status(unsigned status);

/* One line on standard error that is written over, if that is a terminal; NULL takes it away. */
__attribute__((format(printf, 1, 2))) void progress(const char *format, ...);
void progress_end(void);

bool out_is_terminal(void);
/* "\x1b[31m" or "". */
const char *color_of_state(const char *state);
const char *color_end(void);

/* "3m", "2h15m": how long ago or until; from now on Unix time. */
void format_ago(int64_t unix_ms, char *ret_text, size_t bytes);
/* "2026-01-02T03:04:05Z". */
void format_time_ms(int64_t unix_ms, char *ret_text, size_t bytes);
int64_t unix_now_ms(void);

/* Asks on the terminal: true if the answer is yes. */
bool confirm(const char *question);

#endif
