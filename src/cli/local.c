/* local.c - commands that ask no server: settings, help, completion, version. */
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/settings.h"

enum { WORD_BYTES = 64 };

/* ---- Settings ---- */

static void set_from(struct config *config, const struct cli_call *call)
{
    for (unsigned i = 0; i < call->many_count; i++) {
        const char *equals = strchr(call->many[i], '=');
        char name[CONFIG_ORIGIN_BYTES], origin[CONFIG_ORIGIN_BYTES];

        (void)snprintf(name, sizeof name, "%.*s",
                       (int)(equals ? (size_t)(equals - call->many[i]) : strlen(call->many[i])),
                       call->many[i]);
        (void)snprintf(origin, sizeof origin, "--set %.200s", name);
        config_set(config, CONFIG_FLAG, name, bytes_of(equals ? equals + 1 : ""), origin);
    }
    for (unsigned i = 0; i < call->value_count; i++) {
        const struct cli_value *value = &call->values[i];
        char origin[CONFIG_ORIGIN_BYTES];

        if (!value->option->setting || !value->said) continue;
        (void)snprintf(origin, sizeof origin, "--%s", value->option->name);
        config_set(config, CONFIG_FLAG, value->option->setting, bytes_of(value->text), origin);
    }
}

struct config *settings_of(const struct cli_call *call, const char *file)
{
    struct config *config = config_new();

    if (!config) return NULL;
    if (file) (void)config_read_file(config, file);
    config_read_environment(config, environ);
    set_from(config, call);
    config_check(config);
    return config;
}

int command_config_check(struct cli_call *call)
{
    const char *file =
        cli_argument_at(call, 0) ? cli_argument_at(call, 0) : cli_text(call, "config");
    struct config *config = settings_of(call, file);
    unsigned count;

    if (!config) return fail(CLI_FAILED, "no memory");
    count = config->problem_count;
    config_print_problems(config, stderr);
    config_free(config);
    if (count > 0)
        return fail(CLI_FAILED, "%u problem%s in the settings", count, count == 1 ? "" : "s");
    say("%s: no problems", file ? file : "the settings");
    return CLI_OK;
}

int command_config_show(struct cli_call *call)
{
    struct config *config = settings_of(call, cli_text(call, "config"));
    unsigned count;

    if (!config) return fail(CLI_FAILED, "no memory");
    if (cli_has(call, "json"))
        config_print_json(config, stdout);
    else
        config_print(config, cli_has(call, "origin"), cli_has(call, "changed"), stdout);
    count = config->problem_count;
    config_print_problems(config, stderr);
    config_free(config);
    return count > 0 ? CLI_FAILED : CLI_OK;
}

/* ---- What is made of the table ---- */

int command_completion(struct cli_call *call)
{
    const char *shell = cli_argument_at(call, 0);

    if (cli_completion(cli_commands, shell, stdout) == CLI_OK) return CLI_OK;
    return fail(CLI_USAGE, "no completion for '%s': there is one for bash, zsh and fish", shell);
}

int command_version(struct cli_call *call)
{
    if (cli_has(call, "json"))
        (void)puts("{\"name\": \"weir\", \"version\": \"" WEIR_VERSION "\"}");
    else
        (void)puts("weir " WEIR_VERSION);
    return CLI_OK;
}

int command_help(struct cli_call *call)
{
    static char flag[] = "--help";
    char words[CLI_ARGUMENTS_MAX][WORD_BYTES], why[CLI_WHY_BYTES];
    char *argv[CLI_ARGUMENTS_MAX + 2];
    struct cli_call found;
    int argc = 0;

    if (cli_has(call, "man")) {
        cli_man(cli_commands, stdout);
        return CLI_OK;
    }
    if (cli_has(call, "man-config")) {
        config_man(stdout);
        return CLI_OK;
    }
    if (call->argument_count == 0) {
        cli_help(cli_commands, NULL, stdout);
        return CLI_OK;
    }
    for (unsigned i = 0; i < call->argument_count; i++) {
        (void)snprintf(words[i], WORD_BYTES, "%s", call->arguments[i]);
        argv[argc++] = words[i];
    }
    argv[argc++] = flag;
    argv[argc] = NULL;
    if (cli_parse(cli_commands, argc, argv, NULL, &found, why) != 0)
        return fail(CLI_USAGE, "%s", why);
    cli_help_asked(cli_commands, &found, stdout);
    return CLI_OK;
}
