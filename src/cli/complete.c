/* complete.c - scripts for bash, zsh and fish that complete commands and options. */
#include "cli/command.h"

#include <string.h>

/* The words that may follow those of `before` ("" or "queue"), each once. */
static void put_next_words(const struct cli_command *commands, const char *before, FILE *out)
{
    size_t count = strlen(before);
    const char *last = "";
    size_t last_count = 0;

    for (; commands->words; commands++) {
        const char *word = commands->words;
        size_t word_count;

        if (commands->hidden) continue;
        if (count > 0) {
            if (strncmp(word, before, count) != 0 || word[count] != ' ') continue;
            word += count + 1;
        }
        word_count = strcspn(word, " ");
        if (word_count == last_count && strncmp(word, last, word_count) == 0) continue;
        (void)fprintf(out, "%s%.*s", last_count ? " " : "", (int)word_count, word);
        last = word;
        last_count = word_count;
    }
}

static bool takes_path(const struct cli_command *commands, const char *name)
{
    const struct cli_option *options[CLI_OPTIONS_MAX];

    for (; commands->words; commands++) {
        unsigned count = cli_options_of(commands, options);

        for (unsigned i = 0; i < count; i++)
            if (options[i]->kind == CLI_PATH && strcmp(options[i]->name, name) == 0) return true;
    }
    return false;
}

static void put_path_options(const struct cli_command *commands, const char *between, FILE *out)
{
    const struct cli_option *options[CLI_OPTIONS_MAX];
    const char *seen[CLI_OPTIONS_MAX];
    unsigned seen_count = 0;

    for (const struct cli_command *at = commands; at->words; at++) {
        unsigned count = cli_options_of(at, options);

        for (unsigned i = 0; i < count && seen_count < CLI_OPTIONS_MAX; i++) {
            bool known = !takes_path(commands, options[i]->name);

            for (unsigned j = 0; j < seen_count; j++)
                if (strcmp(seen[j], options[i]->name) == 0) known = true;
            if (known) continue;
            (void)fprintf(out, "%s--%s", seen_count ? between : "", options[i]->name);
            seen[seen_count++] = options[i]->name;
        }
    }
}

static void put_options(const struct cli_command *command, FILE *out)
{
    const struct cli_option *options[CLI_OPTIONS_MAX];
    unsigned count = cli_options_of(command, options);

    for (unsigned i = 0; i < count; i++)
        (void)fprintf(out, "%s--%s", i ? " " : "", options[i]->name);
}

/* One case for each command, and for each first word that has others behind it. */
static void put_cases(const struct cli_command *commands, FILE *out)
{
    const char *last = "";
    size_t last_count = 0;

    for (const struct cli_command *at = commands; at->words; at++) {
        size_t count = strcspn(at->words, " ");

        if (at->hidden) continue;
        if (at->words[count] == ' ' &&
            (count != last_count || strncmp(at->words, last, count) != 0)) {
            char first[64];

            (void)snprintf(first, sizeof first, "%.*s", (int)count, at->words);
            (void)fprintf(out, "    \"%s\") words=\"", first);
            put_next_words(commands, first, out);
            (void)fputs("\" ;;\n", out);
            last = at->words;
            last_count = count;
        }
        (void)fprintf(out, "    \"%s\") words=\"", at->words);
        put_options(at, out);
        (void)fputs("\" ;;\n", out);
    }
}

/* The same function for bash and zsh: which words may come, by the words before. */
static void put_lookup(const struct cli_command *commands, FILE *out)
{
    (void)fputs("_weir_words() {\n    local words\n    case \"$1\" in\n    \"\") words=\"", out);
    put_next_words(commands, "", out);
    (void)fputs("\" ;;\n", out);
    put_cases(commands, out);
    (void)fputs("    *) return 1 ;;\n    esac\n    echo \"$words\"\n}\n", out);
}

static void complete_bash(const struct cli_command *commands, FILE *out)
{
    (void)fputs("# bash completion for weir, made by: weir completion bash\n", out);
    put_lookup(commands, out);
    (void)fputs("_weir() {\n"
                "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
                "    local path=\"\" i words\n"
                "    case \"$before\" in\n    ",
                out);
    put_path_options(commands, "|", out);
    (void)fputs(") COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n    esac\n"
                "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
                "        [[ ${COMP_WORDS[i]} == -* ]] && break\n"
                "        _weir_words \"${path:+$path }${COMP_WORDS[i]}\" >/dev/null || break\n"
                "        path=\"${path:+$path }${COMP_WORDS[i]}\"\n"
                "    done\n"
                "    words=$(_weir_words \"$path\")\n"
                "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
                "    [[ ${#COMPREPLY[@]} -gt 0 ]] || COMPREPLY=($(compgen -f -- \"$word\"))\n"
                "}\n"
                "complete -F _weir weir\n",
                out);
}

static void complete_zsh(const struct cli_command *commands, FILE *out)
{
    (void)fputs("#compdef weir\n# zsh completion for weir, made by: weir completion zsh\n", out);
    put_lookup(commands, out);
    (void)fputs("_weir() {\n"
                "    local path_=\"\" i\n"
                "    for ((i = 2; i < CURRENT; i++)); do\n"
                "        [[ ${words[i]} == -* ]] && break\n"
                "        _weir_words \"${path_:+$path_ }${words[i]}\" >/dev/null || break\n"
                "        path_=\"${path_:+$path_ }${words[i]}\"\n"
                "    done\n"
                "    compadd -- ${=$(_weir_words \"$path_\")} || _files\n"
                "}\n"
                "_weir \"$@\"\n",
                out);
}

/* In single quotes. */
static void put_fish_text(const char *text, FILE *out)
{
    (void)fputc('\'', out);
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\') (void)fputc('\\', out);
        (void)fputc(*text, out);
    }
    (void)fputc('\'', out);
}

static void fish_command(const struct cli_command *command, FILE *out)
{
    const struct cli_option *options[CLI_OPTIONS_MAX];
    unsigned count = cli_options_of(command, options);
    size_t first = strcspn(command->words, " ");
    bool second = command->words[first] == ' ';

    (void)fprintf(out, "complete -c weir -n '%s%.*s' -a '%s' -d ",
                  second ? "__fish_seen_subcommand_from " : "__fish_use_subcommand",
                  second ? (int)first : 0, command->words,
                  second ? command->words + first + 1 : command->words);
    put_fish_text(command->summary, out);
    (void)fputc('\n', out);
    for (unsigned i = 0; i < count; i++) {
        (void)fprintf(out, "complete -c weir -n '__fish_seen_subcommand_from %.*s' -l %s%s",
                      (int)first, command->words, options[i]->name,
                      options[i]->kind == CLI_FLAG   ? ""
                      : options[i]->kind == CLI_PATH ? " -r -F"
                                                     : " -x");
        if (options[i]->letter) (void)fprintf(out, " -s %c", options[i]->letter);
        (void)fputs(" -d ", out);
        put_fish_text(options[i]->help, out);
        (void)fputc('\n', out);
    }
}

static void complete_fish(const struct cli_command *commands, FILE *out)
{
    (void)fputs("# fish completion for weir, made by: weir completion fish\n", out);
    for (; commands->words; commands++)
        if (!commands->hidden) fish_command(commands, out);
}

int cli_completion(const struct cli_command *commands, const char *shell, FILE *out)
{
    if (strcmp(shell, "bash") == 0)
        complete_bash(commands, out);
    else if (strcmp(shell, "zsh") == 0)
        complete_zsh(commands, out);
    else if (strcmp(shell, "fish") == 0)
        complete_fish(commands, out);
    else
        return CLI_USAGE;
    return CLI_OK;
}
