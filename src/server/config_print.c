/* config_print.c - settings for people and programs: a file, JSON, a man page, what is wrong. */
#include "server/config.h"

#include <inttypes.h>
#include <string.h>

#include "proto/json_write.h"
#include "rt/mem.h"

enum { JSON_BYTES_MAX = 1 << 20 };

void config_print(const struct config *config, bool origin, bool changed_only, FILE *out)
{
    const char *section = "";

    for (enum setting i = 0; i < SETTINGS; i++) {
        const struct setting_row *row = &setting_rows[i];
        const struct setting_value *value = &config->values[i];
        bool quoted = strpbrk(value->text, ";#") != NULL || value->text[0] == ' ';
        int width;

        if (changed_only && value->level == CONFIG_DEFAULT) continue;
        if (strcmp(section, row->section) != 0) {
            (void)fprintf(out, "%s[%s]\n", section[0] ? "\n" : "", row->section);
            section = row->section;
        }
        width = fprintf(out, quoted ? "%s = \"%s\"" : "%s = %s", row->key, value->text);
        if (origin)
            (void)fprintf(out, "%*s ; %s%s", width < 44 ? 44 - width : 1, "", value->origin,
                          row->reloadable ? ", reloadable" : "");
        (void)fputc('\n', out);
    }
}

static void *resize(void *arg, void *block, size_t bytes_before, size_t bytes)
{
    (void)arg, (void)bytes_before;
    if (bytes > 0) return mem_resize(block, bytes);
    mem_free(block);
    return NULL;
}

void config_print_json(const struct config *config, FILE *out)
{
    struct buffer buffer;
    struct json_writer json;

    buffer_init(&buffer, JSON_BYTES_MAX, resize, NULL);
    json_writer_init(&json, &buffer);
    json_open_array(&json);
    for (enum setting i = 0; i < SETTINGS; i++) {
        json_open_object(&json);
        json_key(&json, "section");
        json_put_string(&json, setting_rows[i].section);
        json_key(&json, "key");
        json_put_string(&json, setting_rows[i].key);
        json_key(&json, "value");
        json_put_string(&json, config->values[i].text);
        json_key(&json, "origin");
        json_put_string(&json, config->values[i].origin);
        json_key(&json, "reloadable");
        json_put_bool(&json, setting_rows[i].reloadable);
        json_close(&json);
    }
    json_close(&json);
    buffer_put_char(&buffer, '\n');
    if (buffer_error(&buffer) == 0) (void)fwrite(buffer.at, 1, buffer.used, out);
    buffer_deinit(&buffer);
}

void config_print_problems(const struct config *config, FILE *out)
{
    unsigned kept =
        config->problem_count < CONFIG_PROBLEMS_MAX ? config->problem_count : CONFIG_PROBLEMS_MAX;

    for (unsigned i = 0; i < kept; i++)
        (void)fprintf(out, "%s: %s\n", config->problems[i].where, config->problems[i].what);
    if (kept < config->problem_count)
        (void)fprintf(out, "and %u more\n", config->problem_count - kept);
}

/* ---- weir.conf(5) ---- */

/* Text of roff: no line begins with a control character, no backslash or hyphen is one. */
static void put_roff(const char *text, FILE *out)
{
    bool begin = true;

    for (; *text; text++) {
        if (begin && (*text == '.' || *text == '\'')) (void)fputs("\\&", out);
        if (*text == '\\')
            (void)fputs("\\e", out);
        else if (*text == '-')
            (void)fputs("\\-", out);
        else
            (void)fputc(*text, out);
        begin = *text == '\n';
    }
}

static void put_bounds(const struct setting_row *row, FILE *out)
{
    if (row->kind == SETTING_CHOICE) {
        (void)fputs("\nOne of", out);
        for (const char *const *choice = row->choices; *choice; choice++)
            (void)fprintf(out, "%s \\fB%s\\fR", choice == row->choices ? "" : ",", *choice);
        (void)fputs(".\n", out);
    } else if (row->max > 0) {
        (void)fprintf(out, "\n%" PRId64 " to %" PRId64 "%s.\n", row->min, row->max,
                      row->kind == SETTING_DURATION ? " ms"
                      : row->kind == SETTING_SIZE   ? " bytes"
                                                    : "");
    } else {
        (void)fputc('\n', out);
    }
}

void config_man(FILE *out)
{
    const char *section = "";

    (void)fputs(
        ".TH WEIR.CONF 5 2026-11-17 \"weir " WEIR_VERSION "\" \"File Formats\"\n"
        ".SH NAME\nweir.conf \\- settings of weir serve\n"
        ".SH DESCRIPTION\n"
        "Lines are\n.BR \"[section]\" ,\n.B key = value\nor comments, which begin with ; or "
        "#. A value may be in double quotes.\nEach setting can also be said by the "
        "environment, as\n.BR WEIR_SECTION_KEY ,\nand by\n.B weir serve \\-\\-set "
        "section.key=value\\fR:\nflags win over the environment, that over the file, that "
        "over the defaults.\n.B weir config show \\-\\-origin\ntells what holds and who has "
        "said it;\n.B weir config check FILE\ntells all that is wrong with a file.\n"
        ".PP\nSizes are 4096, 64K, 256M, 2G. Durations are 500ms, 30s, 1h30m.\n",
        out);
    for (enum setting i = 0; i < SETTINGS; i++) {
        const struct setting_row *row = &setting_rows[i];

        if (strcmp(section, row->section) != 0) {
            (void)fprintf(out, ".SH \"[%s]\"\n", row->section);
            section = row->section;
        }
        (void)fprintf(out, ".TP\n.B %s\n", row->key);
        put_roff(row->help, out);
        put_bounds(row, out);
        (void)fputs("Default: ", out);
        if (row->initial[0]) {
            (void)fputs("\\fB", out);
            put_roff(row->initial, out);
            (void)fputs("\\fR.", out);
        } else {
            (void)fputs("nothing.", out);
        }
        (void)fputs(row->reloadable ? "\nTaken over by HUP.\n" : "\n", out);
    }
    (void)fputs(".SH FILES\n.I /etc/weir/weir.conf\n.SH SEE ALSO\n.BR weir (1)\n", out);
}
