/* main.c - from the command line to an exit status. */
#include "cli/main.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "cli/output.h"

static const char *from_environment(const char *name)
{
    return getenv(name);
}

static int run(int argc, char **argv)
{
    struct cli_call call;
    char why[CLI_WHY_BYTES];
    int r = cli_parse(cli_commands, argc - 1, argv + 1, from_environment, &call, why);

    if (r != 0) return fail((enum cli_exit)r, "%s", why);
    if (call.help) {
        cli_help_asked(cli_commands, &call, stdout);
        return CLI_OK;
    }
    return call.command->run(&call);
}

int cli_main(int argc, char **argv)
{
    int status;

    /* A reader that goes away (head, less) is an error of write, not the end of a server. */
    (void)signal(SIGPIPE, SIG_IGN);
    status = run(argc, argv);
    progress_end();
    if (fflush(stdout) != 0 && status == CLI_OK) status = CLI_FAILED;
    return status;
}
