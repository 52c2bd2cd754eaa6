/* commands.h - the functions of the table: each runs one command and returns its exit status. */
#ifndef WEIR_CLI_COMMANDS_H
#define WEIR_CLI_COMMANDS_H

#include "cli/client.h"
#include "cli/command.h"

int command_serve(struct cli_call *call);
int command_status(struct cli_call *call);
int command_enqueue(struct cli_call *call);
int command_job(struct cli_call *call);
int command_jobs(struct cli_call *call);
int command_jobs_change(struct cli_call *call); /* jobs retry, cancel, discard */
int command_work(struct cli_call *call);
int command_queue_list(struct cli_call *call);
int command_queue_show(struct cli_call *call);
int command_queue_set(struct cli_call *call);
int command_queue_state(struct cli_call *call); /* queue pause, resume, drain */
int command_cron_list(struct cli_call *call);
int command_cron_set(struct cli_call *call);
int command_cron_drop(struct cli_call *call);
int command_tasks(struct cli_call *call);
int command_map(struct cli_call *call);
int command_bench(struct cli_call *call);
int command_store_verify(struct cli_call *call);
int command_store_backup(struct cli_call *call);
int command_store_restore(struct cli_call *call);
int command_token_create(struct cli_call *call);
int command_token_list(struct cli_call *call);
int command_token_revoke(struct cli_call *call);
int command_token_rotate(struct cli_call *call);
int command_config_check(struct cli_call *call);
int command_config_show(struct cli_call *call);
int command_completion(struct cli_call *call);
int command_version(struct cli_call *call);
int command_help(struct cli_call *call);

/* Runs `ask` as a task with a client for the server that the call names; `ask` returns an exit
 * status. Commands that ask a server are made with it. */
typedef int (*ask_fn)(struct cli_call *call, struct client *client);
int with_client(struct cli_call *call, ask_fn ask);
/* Runs `run` as a task, without a client. */
int with_runtime(struct cli_call *call, int (*run)(struct cli_call *call));

/* A client as the options say. CLI_OK, or another status, having said why. */
int client_for(const struct cli_call *call, struct client *client);

/* Asks, and says what is wrong if it is; the answer is one of success. CLI_OK or another. */
WEIR_SUSPENDS int ask_server(struct client *client, const struct client_request *request,
                             const char *what, struct client_answer *ret_answer);
/* GET of a target. */
WEIR_SUSPENDS int ask_get(struct client *client, const char *target, const char *what,
                          struct client_answer *ret_answer);
/* For --json: the body as it came, with a newline. */
void print_body(const struct client_answer *answer);

/* A part of a path or query, percent-encoded, into the buffer. */
void put_encoded(struct buffer *out, const char *text);
/* "path?" and then "&name=value" for a value that is not NULL. */
void put_query(struct buffer *out, const char *name, const char *value);

/* --backoff-max, which is no less than --backoff. */
static inline int64_t cli_backoff_max(const struct cli_call *call)
{
    int64_t least = cli_number(call, "backoff"), most = cli_number(call, "backoff-max");

    return most > least ? most : least;
}

/* The text after "@": of a file, of standard input ("@-"), or the argument itself. Memory of the
 * allocator. 0, or an error. */
int read_argument(const char *argument, size_t bytes_max, char **ret_text, size_t *ret_count);

#endif
