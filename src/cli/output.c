/* output.c - tables, sentences, progress. */
#include "cli/output.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/look.h"
#include "rt/kernel.h"
#include "rt/mem.h"

static bool progress_shown;

/* ---- Tables ---- */

void table_init(struct table *table, const char *titles)
{
    memset(table, 0, sizeof *table);
    while (*titles && table->columns < TABLE_COLUMNS_MAX) {
        size_t count = strcspn(titles, " ");

        table->titles[table->columns] = titles;
        table->right[table->columns++] = titles[count - 1] == '>';
        titles += count;
        if (*titles == ' ') titles++;
    }
}

void table_cell(struct table *table, const char *format, ...)
{
    char *cell;
    va_list args;

    if (table->at == 0) {
        if (table->row_count == table->row_room) {
            size_t room = table->row_room ? table->row_room * 2 : 64;
            void *rows = mem_resize(table->rows, room * sizeof *table->rows);

            if (!rows) return;
            table->rows = rows;
            table->row_room = room;
        }
        table->row_count++;
    }
    cell = table->rows[table->row_count - 1][table->at];
    va_start(args, format);
    (void)vsnprintf(cell, TABLE_CELL_BYTES, format, args);
    va_end(args);
    if (!cell[0]) (void)snprintf(cell, TABLE_CELL_BYTES, "-");
    table->at = (table->at + 1) % table->columns;
}

static size_t title_count(const struct table *table, unsigned column)
{
    return strcspn(table->titles[column], " >");
}

static void put_cell(const struct table *table, unsigned column, const char *text, size_t count,
                     int width)
{
    int blanks = width - (int)count;

    if (table->right[column]) (void)printf("%*s", blanks, "");
    (void)printf("%.*s", (int)count, text);
    if (!table->right[column] && column + 1 < table->columns) (void)printf("%*s", blanks, "");
    (void)fputs(column + 1 < table->columns ? "  " : "\n", stdout);
}

void table_end(struct table *table, const char *none)
{
    int widths[TABLE_COLUMNS_MAX];

    if (table->row_count == 0) {
        if (none) say("%s", none);
        return;
    }
    for (unsigned c = 0; c < table->columns; c++) {
        widths[c] = (int)title_count(table, c);
        for (size_t r = 0; r < table->row_count; r++) {
            int count = (int)strlen(table->rows[r][c]);

            if (count > widths[c]) widths[c] = count;
        }
    }
    for (unsigned c = 0; c < table->columns; c++)
        put_cell(table, c, table->titles[c], title_count(table, c), widths[c]);
    for (size_t r = 0; r < table->row_count; r++)
        for (unsigned c = 0; c < table->columns; c++)
            put_cell(table, c, table->rows[r][c], strlen(table->rows[r][c]), widths[c]);
    mem_free(table->rows);
    table->rows = NULL;
    table->row_count = table->row_room = 0;
}

/* ---- Sentences ---- */

void say(const char *format, ...)
{
    va_list args;

    progress_end();
    (void)fputs("weir: ", stderr);
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fputc('\n', stderr);
}

int fail(enum cli_exit status, const char *format, ...)
{
    va_list args;

    progress_end();
    (void)fputs("weir: ", stderr);
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fputc('\n', stderr);
    return (int)status;
}

int fail_reach(const struct client *client, int error)
{
    const char *server = client->spec.server;

    switch (error) {
    case WEIR_ETIMEDOUT:
        return fail(CLI_TIMEOUT,
                    "%s did not answer within %lld ms; --request-timeout gives it longer, 'weir "
                    "tasks' tells what it does",
                    server, (long long)client->spec.timeout_ms);
    case WEIR_EPROTOCOL:
        if (client->secure && client_tls_why()[0])
            return fail(CLI_UNREACHABLE, "%s: TLS: %s; --ca-file says which certificates to trust",
                        server, client_tls_why());
        return fail(CLI_UNREACHABLE,
                    "%s does not speak HTTP/1.1 as it should; is it a weir server?", server);
    case WEIR_ENONAME:
    case WEIR_ENAMESERVER:
        return fail(CLI_UNREACHABLE, "%s: %s; check --server or WEIR_SERVER", server, weir_why());
    case -EMSGSIZE:
        return fail(CLI_FAILED, "the answer of %s is larger than what is taken", server);
    case -ENOMEM: return fail(CLI_FAILED, "no memory");
    case WEIR_EREFUSED: return fail(CLI_USAGE, "%s", weir_why());
    default:
        return fail(CLI_UNREACHABLE,
                    "%s cannot be reached: %s; is it running ('weir serve')? --server or "
                    "WEIR_SERVER says where it is",
                    server, weir_strerror(error));
    }
}

enum cli_exit exit_of_status(unsigned status)
{
    switch (status) {
    case 400:
    case 414:
    case 415:
    case 422: return CLI_USAGE;
    case 401:
    case 403: return CLI_AUTH;
    case 404: return CLI_NOT_FOUND;
    case 409: return CLI_CONFLICT;
    case 408:
    case 504: return CLI_TIMEOUT;
    default: return status >= 200 && status < 300 ? CLI_OK : CLI_FAILED;
    }
}

static const char *advice(unsigned status)
{
    switch (status) {
    case 401: return "; WEIR_TOKEN or --token-file has the token, 'weir token create' makes one";
    case 403: return "; ask for a token with that right ('weir token create --allow')";
    case 421: return "; its setting server.hosts lists the names that it answers to";
    case 429: return "; try again later";
    case 503: return "; try again later, 'weir status' tells how it is";
    default: return "";
    }
}

int fail_answer(const struct client_answer *answer, const char *what)
{
    char title[LOOK_TEXT_BYTES], detail[LOOK_TEXT_BYTES * 2];

    look_text(answer->body, "title", title, sizeof title);
    look_text(answer->body, "detail", detail, sizeof detail);
    return fail(exit_of_status(answer->status), "%s: %s%s", what,
                detail[0]  ? detail
                : title[0] ? title
                           : http_status_name(answer->status),
                advice(answer->status));
}

/* ---- Terminals ---- */

bool out_is_terminal(void)
{
    return isatty(STDOUT_FILENO) == 1;
}

void progress(const char *format, ...)
{
    va_list args;

    if (isatty(STDERR_FILENO) != 1) return;
    (void)fputs("\r\x1b[K", stderr);
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fflush(stderr);
    progress_shown = true;
}

void progress_end(void)
{
    if (!progress_shown) return;
    (void)fputs("\r\x1b[K", stderr);
    progress_shown = false;
}

static bool colored(void)
{
    const char *no = getenv("NO_COLOR");

    return out_is_terminal() && !(no && *no);
}

const char *color_of_state(const char *state)
{
    if (!colored()) return "";
    if (strcmp(state, "dead") == 0) return "\x1b[31m";
    if (strcmp(state, "done") == 0) return "\x1b[32m";
    if (strcmp(state, "leased") == 0) return "\x1b[36m";
    if (strcmp(state, "scheduled") == 0 || strcmp(state, "held") == 0) return "\x1b[33m";
    return "";
}

const char *color_end(void)
{
    return colored() ? "\x1b[0m" : "";
}

bool confirm(const char *question)
{
    char answer[16] = "";

    progress_end();
    (void)fprintf(stderr, "%s [y/N] ", question);
    (void)fflush(stderr);
    if (!fgets(answer, sizeof answer, stdin)) return false;
    return answer[0] == 'y' || answer[0] == 'Y';
}

/* ---- Times ---- */

int64_t unix_now_ms(void)
{
    const struct kernel *kernel = kernel_current();

    return kernel->wall_ns(kernel) / 1000000;
}

void format_ago(int64_t unix_ms, char *ret_text, size_t bytes)
{
    int64_t ms = unix_now_ms() - unix_ms, s;

    if (unix_ms <= 0) {
        ret_text[0] = '\0';
        return;
    }
    s = (ms < 0 ? -ms : ms) / 1000;
    if (s < 60)
        (void)snprintf(ret_text, bytes, "%llds", (long long)s);
    else if (s < 3600)
        (void)snprintf(ret_text, bytes, "%lldm%02llds", (long long)(s / 60), (long long)(s % 60));
    else if (s < 48 * 3600)
        (void)snprintf(ret_text, bytes, "%lldh%02lldm", (long long)(s / 3600),
                       (long long)(s / 60 % 60));
    else
        (void)snprintf(ret_text, bytes, "%lldd", (long long)(s / 86400));
}

void format_time_ms(int64_t unix_ms, char *ret_text, size_t bytes)
{
    time_t seconds = (time_t)(unix_ms / 1000);
    struct tm tm;

    ret_text[0] = '\0';
    if (unix_ms <= 0) return;
    (void)gmtime_r(&seconds, &tm);
    if (strftime(ret_text, bytes, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0) ret_text[0] = '\0';
}
