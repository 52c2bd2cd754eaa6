/* store.c - weir store: verify and restore a folder; a backup by the server that has it open. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/look.h"
#include "cli/output.h"
#include "cli/paths.h"
#include "proto/json_write.h"
#include "store/log_tool.h"

enum {
    PATH_BYTES = 4096,
    COPY_BYTES = 1 << 20,
    /* As long as the server gives it, and more: giving up would not stop it, and nobody would know
     * what there is. So --request-timeout is not for this. */
    BACKUP_MS = 3660 * 1000,
};

static enum cli_exit exit_of_error(int error)
{
    return error == -ENOENT ? CLI_NOT_FOUND : error == -EBUSY ? CLI_CONFLICT : CLI_FAILED;
}

/* The store of a data folder is its folder `store`; a backup is one itself. */
static void find_store(const char *folder, char path[PATH_BYTES])
{
    struct stat status;

    (void)snprintf(path, PATH_BYTES, "%.4000s/store", folder);
    if (stat(path, &status) < 0 || !S_ISDIR(status.st_mode))
        (void)snprintf(path, PATH_BYTES, "%.4000s", folder);
}

static int verify(const char *folder, struct log_summary *summary)
{
    char path[PATH_BYTES];
    struct log_why why = {""};
    int r;

    find_store(folder, path);
    r = log_verify(kernel_current(), path, summary, &why);
    if (r == -EBUSY)
        return fail(CLI_CONFLICT,
                    "%s; stop the server first, or verify a backup ('weir store "
                    "backup')",
                    why.text);
    if (r == -ENOENT) return fail(CLI_NOT_FOUND, "there is no store in '%s'", folder);
    if (r < 0)
        return fail(exit_of_error(r), "%s; 'weir-store repair %s COPY' saves what is whole",
                    why.text, path);
    return CLI_OK;
}

static void print_summary(const struct log_summary *summary, bool json)
{
    if (json) {
        (void)printf("{\"whole\": true, \"segments\": %" PRIu64 ", \"records\": %" PRIu64
                     ", \"gaps\": %" PRIu64 ", \"torn_bytes\": %" PRIu64 ", \"first\": %" PRIu64
                     ", \"end\": %" PRIu64 "}\n",
                     summary->segment_count, summary->record_count, summary->gap_count,
                     summary->torn_bytes, summary->first, summary->end);
        return;
    }
    (void)printf("whole: %" PRIu64 " records in %" PRIu64 " segments\n", summary->record_count,
                 summary->segment_count);
    if (summary->gap_count > 0)
        (void)printf("gaps: %" PRIu64 " (damage that was repaired)\n", summary->gap_count);
    if (summary->torn_bytes > 0)
        (void)printf("torn: %" PRIu64 " bytes at the end, never acknowledged\n",
                     summary->torn_bytes);
}

int command_store_verify(struct cli_call *call)
{
    struct log_summary summary;
    int status = verify(cli_argument_at(call, 0), &summary);

    if (status == CLI_OK) print_summary(&summary, cli_has(call, "json"));
    return status;
}

/* ---- Restore ---- */

static int copy_bytes(int from, int to)
{
    static char block[COPY_BYTES];

    for (;;) {
        ssize_t n = read(from, block, sizeof block);

        if (n == 0) return fsync(to) < 0 ? -errno : 0;
        if (n < 0 && errno != EINTR) return -errno;
        for (ssize_t at = 0; at < n;) {
            ssize_t m = write(to, block + at, (size_t)(n - at));

            if (m < 0 && errno != EINTR) return -errno;
            if (m > 0) at += m;
        }
    }
}

static int copy_file(int from_folder, int to_folder, const char *name)
{
    int from = openat(from_folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC), to, r;

    if (from < 0) return -errno;
    to = openat(to_folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    r = to < 0 ? -errno : copy_bytes(from, to);
    if (to >= 0 && close(to) < 0 && r == 0) r = -errno;
    (void)close(from);
    return r;
}

/* Files only: a store has no folders in it. */
static int copy_folder(const char *from_path, const char *to_path)
{
    DIR *from = opendir(from_path);
    int to = -1, r = 0;
    const struct dirent *entry;

    if (!from) return -errno;
    if (mkdir(to_path, 0700) < 0) r = -errno;
    if (r == 0) to = open(to_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r == 0 && to < 0) r = -errno;
    while (r == 0 && (entry = readdir(from)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (strcmp(entry->d_name, "LOCK") == 0) continue;
        progress("copying %s", entry->d_name);
        r = copy_file(dirfd(from), to, entry->d_name);
    }
    if (r == 0 && fsync(to) < 0) r = -errno;
    if (to >= 0) (void)close(to);
    (void)closedir(from);
    progress_end();
    return r;
}

static int sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;

    if (fd < 0) return -errno;
    if (fsync(fd) < 0) r = -errno;
    (void)close(fd);
    return r;
}

int command_store_restore(struct cli_call *call)
{
    const char *backup = cli_argument_at(call, 0), *data = cli_argument_at(call, 1);
    char from[PATH_BYTES], to[PATH_BYTES], partial[PATH_BYTES];
    struct log_summary summary;
    struct stat status;
    int r = verify(backup, &summary);

    if (r != CLI_OK) return r;
    find_store(backup, from);
    (void)snprintf(to, sizeof to, "%.4000s/store", data);
    (void)snprintf(partial, sizeof partial, "%.4000s/store.partial", data);
    if (stat(to, &status) == 0)
        return fail(CLI_CONFLICT,
                    "'%s' is there already; move it away first, or say another folder", to);
    if (mkdir(data, 0700) < 0 && errno != EEXIST)
        return fail(CLI_FAILED, "'%s': %s", data, strerror(errno));
    r = copy_folder(from, partial);
    if (r == -EEXIST)
        return fail(CLI_CONFLICT, "'%s' is there, of a restore that was cut off; remove it first",
                    partial);
    if (r == 0 && rename(partial, to) < 0) r = -errno;
    if (r == 0) r = sync_folder(data);
    if (r < 0) return fail(CLI_FAILED, "'%s': %s", to, weir_strerror(r));
    r = verify(data, &summary);
    if (r != CLI_OK) return r;
    print_summary(&summary, cli_has(call, "json"));
    say("'%s' was made; 'weir serve --data %s' serves it", to, data);
    return CLI_OK;
}

/* ---- Backup ---- */

static int ask_backup(struct cli_call *call, struct client *client)
{
    char text[512], name[LOOK_TEXT_BYTES];
    struct json_writer json;
    struct client_answer answer;
    struct buffer body;
    int status;

    buffer_init_fixed(&body, text, sizeof text);
    json_writer_init(&json, &body);
    json_open_object(&json);
    if (cli_argument_at(call, 0)) {
        json_key(&json, "name");
        json_put_string(&json, cli_argument_at(call, 0));
    }
    json_close(&json);
    progress("backup is being made");
    status = ask_server(client,
                        &(struct client_request){.method = METHOD_POST,
                                                 .target = PATH_BACKUP,
                                                 .body = buffer_bytes(&body),
                                                 .timeout_ms = BACKUP_MS},
                        "backup", &answer);
    progress_end();
    if (status != CLI_OK) return status;
    look_text(answer.body, "folder", name, sizeof name);
    if (cli_has(call, "json"))
        print_body(&answer);
    else
        (void)puts(name);
    return CLI_OK;
}

int command_store_backup(struct cli_call *call)
{
    return with_client(call, ask_backup);
}
