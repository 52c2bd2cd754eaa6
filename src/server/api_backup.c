/* api_backup.c - a copy of the store while it is in use, in the folder of backups. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "server/api_handlers.h"
#include "server/api_in.h"
#include "server/api_out.h"

enum { NAME_BYTES_MAX = 64, FOLDER_BYTES = 1200 };

struct in_backup {
    struct bytes name;
};

static const struct json_member members[] = {
    {.name = "name",
     .type = JSON_TYPE_TEXT,
     .offset = offsetof(struct in_backup, name),
     .max = NAME_BYTES_MAX},
    {0},
};

/* Letters, digits, '-', '_' and '.', not first: it names a folder in the one of backups, and never
 * another. */
static bool is_name(struct bytes name)
{
    if (name.count == 0 || name.at[0] == '.') return false;
    for (size_t i = 0; i < name.count; i++)
        if (!is_letter(name.at[i]) && !is_digit(name.at[i]) && !strchr("-_.", name.at[i]))
            return false;
    return true;
}

static void name_by_time(char name[NAME_BYTES_MAX + 1])
{
    time_t seconds = (time_t)(api_now_ms() / 1000);
    struct tm tm;

    (void)gmtime_r(&seconds, &tm);
    (void)strftime(name, NAME_BYTES_MAX, "backup-%Y%m%dT%H%M%SZ", &tm);
}

static int copy(struct exchange *x, const char *name)
{
    const struct api *api = api_of(x);
    int64_t began_ns = weir_now_ns();
    char folder[FOLDER_BYTES];
    struct json_writer *json;
    int r;

    (void)snprintf(folder, sizeof folder, "%.1000s/%s", api->backups, name);
    r = weir_store_copy(api->store, folder);
    if (r == -EEXIST)
        return exchange_problem(x, PROBLEM_CONFLICT, "there is a backup '%s' already", name);
    /* It is the server that may not, not the client. */
    if (r == -EACCES || r == -EPERM)
        return exchange_problem(x, PROBLEM_INTERNAL, "the folder of backups cannot be written: %s",
                                weir_strerror(r));
    if (r < 0) return api_fail(x, r, "backup");
    json = exchange_json(x, 201);
    json_open_object(json);
    out_text(json, "name", name);
    out_text(json, "folder", folder);
    out_int(json, "ms", (weir_now_ns() - began_ns) / 1000000);
    out_text(json, "durability", api_durability_name(WEIR_SYNCED));
    json_close(json);
    return 0;
}

int admin_backup(struct exchange *x)
{
    char name[NAME_BYTES_MAX + 1] = "";
    struct in_backup in = {.name = {NULL, 0}};
    struct body body = {.memory = NULL};
    int r = api_allow(x, VERB_ADMIN, NULL);

    if (r == 0 && !api_of(x)->backups)
        r = exchange_problem(x, PROBLEM_NOT_SUPPORTED, "this server has no folder for backups");
    if (r == 0) r = api_no_key(x);
    if (r == 0) r = body_open(x, &body);
    if (r == 0) r = body_read(&body, members, &in);
    if (r == 0 && in.name.at && !is_name(in.name))
        r = exchange_problem(x, PROBLEM_INVALID,
                             "name has 1 to %d letters, digits, '-', '_' and '.', not first",
                             NAME_BYTES_MAX);
    if (r == 0) {
        if (in.name.at)
            (void)snprintf(name, sizeof name, "%.*s", (int)in.name.count, in.name.at);
        else
            name_by_time(name);
        r = copy(x, name);
    }
    body_close(&body);
    return r;
}
