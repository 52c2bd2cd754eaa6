/* command.h - the commands of `weir`, as one table; and what was called, as the parser has found.
 *
 * The table (table.c) is the truth: the parser, `weir help`, the man page and the completion of
 * three shells are made from it, so that none of them can know what another does not.
 *
 *     weir WORDS... [--option VALUE | --option=VALUE | -o VALUE]... ARGUMENT... [-- REST...]
 *
 * Invariants: a command has at most CLI_OPTIONS_MAX options, those of its groups included; names of
 * options are found by whole name only (no abbreviations: scripts would break with a new one).
 * Threads: any; the table is constant.
 */
#ifndef WEIR_CLI_COMMAND_H
#define WEIR_CLI_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* What the program ends with: for scripts, and never changed. */
enum cli_exit {
    CLI_OK,
    CLI_FAILED,
    CLI_USAGE,
    CLI_NOT_FOUND,
    CLI_CONFLICT,
    CLI_AUTH,
    CLI_UNREACHABLE,
    CLI_TIMEOUT,
};

enum cli_kind {
    CLI_KIND_NONE,
    CLI_FLAG, /* takes no value */
    CLI_TEXT,
    CLI_INT,      /* within min and max */
    CLI_DURATION, /* "30s"; in ms within min and max */
    CLI_SIZE,     /* "256M"; in bytes within min and max */
    CLI_CHOICE,   /* one of `choices` */
    CLI_PATH,     /* of a file or folder: completed by the shell */
    CLI_MANY,     /* text, and may be said several times */
};

/* Options that many commands have. */
enum cli_group {
    CLI_GROUP_HELP = 1,   /* --help */
    CLI_GROUP_CLIENT = 2, /* --server, --token-file, --request-timeout */
    CLI_GROUP_OUTPUT = 4, /* --json */
};

struct cli_option {
    const char *name;
    char letter; /* 0: none */
    enum cli_kind kind;
    const char *value;          /* what its value is called: "DURATION" */
    const char *initial;        /* as text; NULL: none */
    const char *env;            /* a variable that says it, unless the command line does */
    const char *setting;        /* "server.listen": it says this setting, as config.h has it */
    const char *const *choices; /* ended by NULL */
    int64_t min, max;
    const char *help;
};

struct cli_argument {
    const char *name;
    bool optional, many;
    const char *help;
};

struct cli_example {
    const char *line, *says;
};

struct cli_call;

struct cli_command {
    const char *words; /* "store verify" */
    const char *summary;
    const char *about; /* paragraphs, parted by an empty line; or NULL */
    unsigned groups;
    const struct cli_option *options;     /* ended by one without a name; NULL: none */
    const struct cli_argument *arguments; /* likewise */
    const char *rest;                     /* what comes after `--`: "CMD..."; NULL: nothing may */
    const struct cli_example *examples;   /* ended by one without a line; or NULL */
    bool hidden;
    int (*run)(struct cli_call *call); /* a cli_exit */
};

/* Ended by one without words. */
extern const struct cli_command cli_commands[];

enum { CLI_OPTIONS_MAX = 48, CLI_ARGUMENTS_MAX = 16, CLI_WHY_BYTES = 512 };

struct cli_value {
    const struct cli_option *option;
    const char *text; /* NULL: not said, and no initial value */
    int64_t number;   /* of CLI_INT, CLI_DURATION (ms), CLI_SIZE; of CLI_FLAG: how often */
    bool said;        /* on the command line, or by the environment */
    bool from_env;
};

struct cli_call {
    const struct cli_command *command;
    struct cli_value values[CLI_OPTIONS_MAX];
    unsigned value_count;
    const char *many[CLI_ARGUMENTS_MAX]; /* values of its option of CLI_MANY */
    unsigned many_count;
    const char *arguments[CLI_ARGUMENTS_MAX];
    unsigned argument_count;
    char *const *rest; /* after `--`, ended by NULL; or NULL */
    bool help;
    const char *group; /* with help: the word that several commands begin with, as "queue" */
};

typedef const char *(*cli_env_fn)(const char *name);

/* 0, or CLI_USAGE with a sentence: what is wrong, and what to do. With --help only `help` and
 * `command` or `group` are set; neither: it is the whole program's. */
int cli_parse(const struct cli_command *commands, int argc, char *const *argv, cli_env_fn env,
              struct cli_call *ret_call, char ret_why[CLI_WHY_BYTES]);

/* What the option says; it has to be one of the command's. */
const struct cli_value *cli_value_of(const struct cli_call *call, const char *name);
const char *cli_text(const struct cli_call *call, const char *name);
int64_t cli_number(const struct cli_call *call, const char *name);
bool cli_has(const struct cli_call *call, const char *name); /* of a flag, or whether it was said */
const char *cli_argument_at(const struct cli_call *call, unsigned index); /* NULL: not there */

/* All options of a command, those of its groups included: how many. */
unsigned cli_options_of(const struct cli_command *command,
                        const struct cli_option *ret_options[CLI_OPTIONS_MAX]);
/* The one that is spelled most like `word`, if any is like it. */
const char *cli_nearest(const char *word, const char *const *names, unsigned count);

/* ---- What is made of the table ---- */

void cli_help(const struct cli_command *commands, const struct cli_command *command, FILE *out);
/* That of a command, of a group or of all, as was asked for. */
void cli_help_asked(const struct cli_command *commands, const struct cli_call *call, FILE *out);
void cli_man(const struct cli_command *commands, FILE *out);
int cli_completion(const struct cli_command *commands, const char *shell, FILE *out);

#endif
