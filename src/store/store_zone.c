/* store_zone.c - zone files for schedules: read by a task, decided with by the engine. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <weir/file.h>

#include "rt/mem.h"
#include "store/store.h"

enum { ZONE_FILE_BYTES_MAX = 256 * 1024 };

/* A name below the folder, and nothing else. */
static bool is_zone_name(const char *name)
{
    if (name[0] == '\0' || name[0] == '/' || strlen(name) > WEIR_JOB_NAME_BYTES_MAX) return false;
    if (strstr(name, "..")) return false;
    return strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+-/") ==
           strlen(name);
}

static int read_all(weir_file *file, unsigned char *bytes, size_t *ret_count)
{
    size_t count = 0;

    while (count < ZONE_FILE_BYTES_MAX) {
        ssize_t n =
            weir_file_read(file, bytes + count, ZONE_FILE_BYTES_MAX - count, (int64_t)count);
        if (n < 0) return (int)n;
        if (n == 0) break;
        count += (size_t)n;
    }
    *ret_count = count;
    return 0;
}

static int read_zone(const char *path, unsigned char *bytes, size_t *ret_count)
{
    weir_file *file;
    int r = weir_file_open(path, O_RDONLY | O_CLOEXEC, 0, &file);
    int closed;

    if (r < 0) return r;
    r = read_all(file, bytes, ret_count);
    closed = weir_file_close(file);
    return r < 0 ? r : closed;
}

int store_load_zone(struct store *store, const char *name)
{
    char path[PATH_MAX];
    unsigned char *bytes;
    size_t count = 0;
    int r;

    if (!is_zone_name(name))
        return refuse_as(-ENOENT, "store '%s': '%s' is no name of a zone", store->object.name,
                         name);
    if (snprintf(path, sizeof path, "%s/%s", store->spec.zones, name) >= (int)sizeof path)
        return -ENAMETOOLONG;
    bytes = mem_alloc(ZONE_FILE_BYTES_MAX);
    if (!bytes) return -ENOMEM;
    r = read_zone(path, bytes, &count);
    if (r < 0) {
        mem_free(bytes);
        return refuse_as(r, "store '%s': zone '%s': %s: %s", store->object.name, name, path,
                         weir_strerror(r));
    }
    store_lock(store);
    r = engine_zone_set(store->engine, slice_of(name), (struct engine_slice){bytes, count});
    if (r < 0) (void)store_refuse(store, r);
    store_unlock(store);
    mem_free(bytes);
    return r;
}

int store_load_zones(struct store *store)
{
    uint32_t cursor = 0;
    int r = 0;

    for (;;) {
        struct engine_schedule_info info;
        char name[WEIR_JOB_NAME_BYTES_MAX + 1];
        bool missing;

        store_lock(store);
        r = engine_schedule_next(store->engine, &cursor, &info);
        missing = r == 1 && info.state.zone_missing;
        if (missing) {
            memcpy(name, info.zone.at, info.zone.count);
            name[info.zone.count] = '\0';
        }
        store_unlock(store);
        if (r <= 0) return 0;
        if (!missing) continue;
        r = store_load_zone(store, name);
        if (r == WEIR_ECANCELED || r == WEIR_ETIMEDOUT || r == -ENOMEM) return r;
        if (r < 0)
            log_write(store->object.stable.runtime, WEIR_LOG_ERROR, task_self(),
                      "store '%s': a schedule does not come, its zone '%s' cannot be read: %s",
                      store->object.name, name, weir_strerror(r));
    }
}
