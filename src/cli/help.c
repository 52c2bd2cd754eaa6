/* help.c - the table for people: help on the terminal, and the man page weir(1). */
#include "cli/command.h"

#include <string.h>

enum { WIDTH = 78, INDENT = 26 };

/* Text that is wrapped, with every line but the first indented. */
static void wrap(FILE *out, const char *text, unsigned column, unsigned indent)
{
    while (*text) {
        size_t count = strcspn(text, " \n");

        if (column + count > WIDTH && column > indent) {
            (void)fprintf(out, "\n%*s", (int)indent, "");
            column = indent;
        }
        (void)fwrite(text, 1, count, out);
        column += (unsigned)count;
        text += count;
        if (*text == '\n') {
            (void)fprintf(out, "\n%*s", (int)indent, "");
            column = indent;
            text++;
        } else if (*text == ' ') {
            text++;
            if (column + 1 + strcspn(text, " \n") <= WIDTH) {
                (void)fputc(' ', out);
                column++;
            } else {
                (void)fprintf(out, "\n%*s", (int)indent, "");
                column = indent;
            }
        }
    }
    (void)fputc('\n', out);
}

static void put_usage(FILE *out, const struct cli_command *command)
{
    (void)fprintf(out, "weir %s [OPTION]...", command->words);
    for (const struct cli_argument *at = command->arguments; at && at->name; at++)
        (void)fprintf(out, at->optional ? " [%s%s]" : " %s%s", at->name, at->many ? "..." : "");
    if (command->rest) (void)fprintf(out, " -- %s", command->rest);
}

static void help_option(const struct cli_option *option, FILE *out)
{
    char text[64];
    int width;

    (void)snprintf(text, sizeof text, option->letter ? "-%c, " : "    ", option->letter);
    width = fprintf(out, "  %s--%s%s%s", text, option->name, option->value ? " " : "",
                    option->value ? option->value : "");
    if (width < INDENT - 1)
        (void)fprintf(out, "%*s", INDENT - width, "");
    else
        (void)fprintf(out, "\n%*s", INDENT, "");
    wrap(out, option->help, INDENT, INDENT);
    if (option->choices) {
        (void)fprintf(out, "%*sone of:", INDENT, "");
        for (const char *const *choice = option->choices; *choice; choice++)
            (void)fprintf(out, " %s", *choice);
        (void)fputc('\n', out);
    }
    if (option->env) (void)fprintf(out, "%*salso by %s\n", INDENT, "", option->env);
    if (option->initial && option->kind != CLI_FLAG)
        (void)fprintf(out, "%*sdefault: %s\n", INDENT, "", option->initial);
}

static void help_command(const struct cli_command *command, FILE *out)
{
    const struct cli_option *options[CLI_OPTIONS_MAX];
    unsigned count = cli_options_of(command, options);

    (void)fputs("usage: ", out);
    put_usage(out, command);
    (void)fputs("\n\n", out);
    wrap(out, command->summary, 0, 0);
    if (command->about) {
        (void)fputc('\n', out);
        wrap(out, command->about, 0, 0);
    }
    if (command->arguments && command->arguments->name) (void)fputc('\n', out);
    for (const struct cli_argument *at = command->arguments; at && at->name; at++) {
        int width = fprintf(out, "  %s", at->name);

        (void)fprintf(out, "%*s", width < INDENT ? INDENT - width : 1, "");
        wrap(out, at->help, INDENT, INDENT);
    }
    (void)fputs("\noptions:\n", out);
    for (unsigned i = 0; i < count; i++) help_option(options[i], out);
    if (command->examples) (void)fputs("\nexamples:\n", out);
    for (const struct cli_example *at = command->examples; at && at->line; at++)
        (void)fprintf(out, "  %s\n      %s\n", at->line, at->says);
}

void cli_help(const struct cli_command *commands, const struct cli_command *command, FILE *out)
{
    if (command) {
        help_command(command, out);
        return;
    }
    (void)fputs("usage: weir COMMAND [OPTION]... [ARGUMENT]...\n\n"
                "Durable background jobs: a server, and all that one does with it.\n\n",
                out);
    for (const struct cli_command *at = commands; at->words; at++) {
        if (at->hidden) continue;
        (void)fprintf(out, "  %-18s", at->words);
        wrap(out, at->summary, 20, 20);
    }
    (void)fputs("\n'weir help COMMAND' tells its options. Data goes to standard output, messages\n"
                "to standard error. NO_COLOR switches colours off.\n\n"
                "exit status: 0 ok, 1 failure, 2 wrong usage, 3 not found, 4 conflict,\n"
                "5 not allowed, 6 the server cannot be reached, 7 timeout\n",
                out);
}

static void help_group(const struct cli_command *commands, const char *group, FILE *out)
{
    size_t count = strlen(group);

    (void)fprintf(out, "usage: weir %s COMMAND [OPTION]... [ARGUMENT]...\n\n", group);
    for (const struct cli_command *at = commands; at->words; at++) {
        if (at->hidden || strncmp(at->words, group, count) != 0 || at->words[count] != ' ')
            continue;
        (void)fprintf(out, "  %-18s", at->words);
        wrap(out, at->summary, 20, 20);
    }
    (void)fprintf(out, "\n'weir help %s COMMAND' tells its options.\n", group);
}

void cli_help_asked(const struct cli_command *commands, const struct cli_call *call, FILE *out)
{
    if (call->group)
        help_group(commands, call->group, out);
    else
        cli_help(commands, call->command, out);
}

/* ---- weir(1) ---- */

static void put_roff(const char *text, FILE *out)
{
    bool begin = true;

    for (; *text; text++) {
        if (begin && (*text == '.' || *text == '\'')) (void)fputs("\\&", out);
        if (*text == '\n' && text[1] == '\n') {
            (void)fputs("\n.PP", out);
            text++;
        }
        if (*text == '\\')
            (void)fputs("\\e", out);
        else if (*text == '-')
            (void)fputs("\\-", out);
        else
            (void)fputc(*text, out);
        begin = *text == '\n';
    }
}

static void man_option(const struct cli_option *option, FILE *out)
{
    (void)fputs(".TP\n", out);
    if (option->letter) (void)fprintf(out, "\\fB\\-%c\\fR, ", option->letter);
    (void)fputs("\\fB\\-\\-", out);
    put_roff(option->name, out);
    (void)fputs("\\fR", out);
    if (option->value) (void)fprintf(out, " \\fI%s\\fR", option->value);
    (void)fputc('\n', out);
    put_roff(option->help, out);
    (void)fputs(".\n", out);
    if (option->choices) {
        (void)fputs("One of", out);
        for (const char *const *choice = option->choices; *choice; choice++)
            (void)fprintf(out, "%s \\fB%s\\fR", choice == option->choices ? "" : ",", *choice);
        (void)fputs(".\n", out);
    }
    if (option->initial && option->kind != CLI_FLAG) {
        (void)fputs("Default: ", out);
        put_roff(option->initial, out);
        (void)fputs(".\n", out);
    }
    if (option->env) (void)fprintf(out, "Also by the environment: %s.\n", option->env);
}

static void man_command(const struct cli_command *command, FILE *out)
{
    (void)fputs(".SS weir ", out);
    put_roff(command->words, out);
    (void)fputs("\n.B weir ", out);
    put_roff(command->words, out);
    (void)fputs("\n[\\fIOPTION\\fR]...", out);
    for (const struct cli_argument *at = command->arguments; at && at->name; at++)
        (void)fprintf(out, at->optional ? " [\\fI%s\\fR%s]" : " \\fI%s\\fR%s", at->name,
                      at->many ? "..." : "");
    if (command->rest) (void)fprintf(out, " \\-\\- \\fI%s\\fR", command->rest);
    (void)fputs("\n.PP\n", out);
    put_roff(command->summary, out);
    (void)fputs(".\n", out);
    if (command->about) {
        (void)fputs(".PP\n", out);
        put_roff(command->about, out);
        (void)fputc('\n', out);
    }
    for (const struct cli_argument *at = command->arguments; at && at->name; at++) {
        (void)fprintf(out, ".TP\n.I %s\n", at->name);
        put_roff(at->help, out);
        (void)fputs(".\n", out);
    }
    for (const struct cli_option *at = command->options; at && at->name; at++) man_option(at, out);
    for (const struct cli_example *at = command->examples; at && at->line; at++) {
        (void)fputs(".PP\nExample, ", out);
        put_roff(at->says, out);
        (void)fputs(":\n.PP\n.nf\n.RS\n", out);
        put_roff(at->line, out);
        (void)fputs("\n.RE\n.fi\n", out);
    }
}

/* The options of groups are told once, below all commands. */
static void man_groups(const struct cli_command *commands, FILE *out)
{
    const struct cli_option *options[CLI_OPTIONS_MAX];

    for (; commands->words; commands++) {
        unsigned own = 0, count = cli_options_of(commands, options);

        if ((commands->groups & CLI_GROUP_CLIENT) == 0) continue;
        if ((commands->groups & CLI_GROUP_OUTPUT) == 0) continue;
        while (commands->options && commands->options[own].name) own++;
        for (unsigned i = own; i < count; i++) man_option(options[i], out);
        return;
    }
}

void cli_man(const struct cli_command *commands, FILE *out)
{
    (void)fputs(".TH WEIR 1 2026-11-17 \"weir " WEIR_VERSION "\" \"User Commands\"\n"
                ".SH NAME\nweir \\- durable background jobs: server and command line\n"
                ".SH SYNOPSIS\n.B weir\n.I COMMAND\n[\\fIOPTION\\fR]... [\\fIARGUMENT\\fR]...\n"
                ".SH DESCRIPTION\n"
                ".B weir serve\nkeeps jobs in a folder and serves them over HTTP; all other "
                "commands talk to such a server, but for those that say that they look at a "
                "folder.\nData goes to standard output, messages to standard error.\n"
                ".SH COMMANDS\n",
                out);
    for (const struct cli_command *at = commands; at->words; at++)
        if (!at->hidden) man_command(at, out);
    (void)fputs(".SH \"COMMON OPTIONS\"\nOf commands that ask a server:\n", out);
    man_groups(commands, out);
    (void)fputs(".SH \"EXIT STATUS\"\n"
                ".TP\n.B 0\nAll is well.\n.TP\n.B 1\nA failure.\n.TP\n.B 2\nWrong usage.\n"
                ".TP\n.B 3\nNot found.\n.TP\n.B 4\nConflict: it is in another state, in use, or "
                "the count differs.\n.TP\n.B 5\nNot allowed: no token, or one without that right.\n"
                ".TP\n.B 6\nThe server cannot be reached.\n.TP\n.B 7\nTimeout.\n"
                ".SH ENVIRONMENT\n"
                ".TP\n.B WEIR_SERVER\nThe server's address.\n"
                ".TP\n.BR WEIR_TOKEN \", \" WEIR_TOKEN_FILE\nThe token, or a file that has it.\n"
                ".TP\n.B NO_COLOR\nIf it is set and not empty, nothing is coloured.\n"
                ".TP\n.B WEIR_SECTION_KEY\nA setting of\n.BR \"weir serve\" :\nsee\n"
                ".BR weir.conf (5).\n"
                ".SH SIGNALS\nOf\n.BR \"weir serve\" :\n"
                "TERM and INT drain it within server.drain, and a second one ends it now; HUP "
                "reads settings, tokens and certificates again; USR1 writes all tasks to standard "
                "error.\n.SH SEE ALSO\n.BR weir.conf (5)\n",
                out);
}
