/* volume_tree.c - names: paths, entries, and the changes of directories. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

#include "sim/volume.h"

/* ---- Entries ---- */

void directory_init(struct volume_node *node, struct volume_node *parent)
{
    node->directory.parent = parent;
    list_init(&node->directory.entries);
    list_init(&node->directory.changes);
}

static struct volume_entry *entry_of(struct list *node)
{
    return container_of(node, struct volume_entry, node);
}

static struct volume_change *change_of(struct list *node)
{
    return container_of(node, struct volume_change, node);
}

/* A name that is in no directory yet. */
static struct volume_entry *entry_new(struct volume *volume, const char *name, size_t bytes,
                                      struct volume_node *target)
{
    struct volume_entry *entry = volume_alloc(volume, sizeof *entry + bytes + 1);

    if (!entry) return NULL;
    list_init(&entry->node);
    memcpy(entry->name, name, bytes);
    entry->target = target;
    target->refs++;
    return entry;
}

static void entry_free(struct volume *volume, struct volume_entry *take_entry)
{
    if (!take_entry) return;
    node_unref(volume, take_entry->target);
    volume_free(volume, take_entry);
}

static void entry_put(struct volume *volume, struct volume_node *directory,
                      struct volume_entry *entry)
{
    list_add_tail(&directory->directory.entries, &entry->node);
    entry->target->links++;
    node_count_use(volume, entry->target);
}

static void entry_take_out(struct volume *volume, struct volume_entry *entry)
{
    list_remove(&entry->node);
    entry->target->links--;
    node_count_use(volume, entry->target);
}

static struct volume_entry *entry_find(const struct volume_node *directory, const char *name,
                                       size_t bytes)
{
    list_for_each(node, &directory->directory.entries) {
        struct volume_entry *entry = entry_of(node);

        if (strncmp(entry->name, name, bytes) == 0 && entry->name[bytes] == '\0') return entry;
    }
    return NULL;
}

/* ---- Changes ---- */

static void change_free(struct volume *volume, struct volume_change *take_change)
{
    struct volume_directory *directory;

    if (!take_change) return;
    directory = &take_change->directory->directory;
    if (!list_empty(&take_change->node)) {
        list_remove(&take_change->node);
        directory->change_count--;
        if (directory->abandoned_count > 0) directory->abandoned_count--;
    }
    if (take_change->twin) take_change->twin->twin = NULL;
    for (int i = 0; i < 2; i++) entry_free(volume, take_change->removed[i]);
    volume_free(volume, take_change);
}

static struct volume_change *change_new(struct volume *volume, struct volume_node *directory)
{
    struct volume_change *change = volume_alloc(volume, sizeof *change);

    if (!change) return NULL;
    list_init(&change->node);
    change->directory = directory;
    change->number = ++volume->change_last;
    return change;
}

/* The changes up to this one are durable, and so are the other halves of their renames. */
static void save_up_to(struct volume *volume, struct volume_directory *directory, uint64_t number)
{
    struct list *first;

    while ((first = list_first(&directory->changes)) != NULL) {
        struct volume_change *change = change_of(first);
        struct volume_change *twin = change->twin;

        if (change->number > number) return;
        change_free(volume, change);
        if (twin) save_up_to(volume, &twin->directory->directory, twin->number);
    }
}

/* It has happened. */
static void change_add(struct volume *volume, struct volume_change *take_change)
{
    struct volume_node *node = take_change->directory;
    struct volume_directory *directory = &node->directory;

    for (int i = 0; i < 2; i++) {
        if (take_change->removed[i]) entry_take_out(volume, take_change->removed[i]);
    }
    if (take_change->added) entry_put(volume, node, take_change->added);
    node->changed_ns = volume->now_ns;
    list_add_tail(&directory->changes, &take_change->node);
    directory->change_count++;
}

/* After a change: a directory that nobody syncs does not grow for ever. */
static void bound_changes(struct volume *volume, struct volume_node *node)
{
    struct volume_directory *directory = &node->directory;

    while (directory->change_count > VOLUME_CHANGES_MAX) {
        save_up_to(volume, directory, change_of(list_first(&directory->changes))->number);
    }
}

void directory_save(struct volume *volume, struct volume_node *node)
{
    /* With nothing new in it, it counts as saved. A later change writes all of it. */
    if (node->directory.change_count == node->directory.abandoned_count) return;
    save_up_to(volume, &node->directory, UINT64_MAX);
}

void directory_abandon(struct volume_directory *directory)
{
    directory->abandoned_count = directory->change_count;
}

void directory_drop(struct volume *volume, struct volume_directory *directory)
{
    struct list *first;

    while ((first = list_first(&directory->changes)) != NULL) {
        change_free(volume, change_of(first));
    }
    while ((first = list_first(&directory->entries)) != NULL) {
        entry_take_out(volume, entry_of(first));
        entry_free(volume, entry_of(first));
    }
}

/* ---- Paths ---- */

/* Where a path ends: a name in a directory, and what it names, if anything. */
struct place {
    struct volume_node *directory;
    const char *name; /* NULL: it is the root, or ends with "." or ".." */
    size_t name_bytes;
    struct volume_entry *entry; /* NULL: there is none */
    struct volume_node *node;   /* NULL: there is none */
    bool as_directory;          /* a slash follows */
};

/* One step into `at`. */
static int step(struct place *place, const char *name, size_t bytes)
{
    struct volume_node *directory = place->node;

    if (!directory) return -ENOENT;
    if (!S_ISDIR(directory->mode)) return -ENOTDIR;
    if (bytes > NAME_MAX) return -ENAMETOOLONG;
    place->name = NULL;
    place->entry = NULL;
    if (bytes == 1 && name[0] == '.') return 0;
    if (bytes == 2 && name[0] == '.' && name[1] == '.') {
        place->node = directory->directory.parent;
        return 0;
    }
    place->directory = directory;
    place->name = name;
    place->name_bytes = bytes;
    place->entry = entry_find(directory, name, bytes);
    place->node = place->entry ? place->entry->target : NULL;
    return 0;
}

/* 0 also if only the last name of the path is missing. */
static int find(struct volume *volume, const char *path, struct place *ret_place)
{
    struct place place = {.directory = &volume->root, .node = &volume->root};

    if (path[0] == '\0') return -ENOENT;
    if (strnlen(path, PATH_MAX) >= PATH_MAX) return -ENAMETOOLONG;
    for (;;) {
        size_t bytes;
        int r;

        place.as_directory = *path == '/';
        path += strspn(path, "/");
        if (*path == '\0') break;
        bytes = strcspn(path, "/");
        r = step(&place, path, bytes);
        if (r < 0) return r;
        path += bytes;
    }
    *ret_place = place;
    return 0;
}

/* The same, and it has to be there. */
static int find_node(struct volume *volume, const char *path, struct place *ret_place)
{
    int r = find(volume, path, ret_place);

    if (r < 0) return r;
    if (!ret_place->node) return -ENOENT;
    return ret_place->as_directory && !S_ISDIR(ret_place->node->mode) ? -ENOTDIR : 0;
}

/* ---- Calls ---- */

static int make_node(struct volume *volume, const struct place *place, mode_t mode,
                     struct volume_node **ret_node)
{
    struct volume_change *change = change_new(volume, place->directory);
    struct volume_node *node = volume_alloc(volume, sizeof *node);

    if (!change || !node) goto fail;
    change->added = entry_new(volume, place->name, place->name_bytes, node);
    if (!change->added) goto fail;
    node->number = ++volume->number_last;
    node->mode = mode;
    node->changed_ns = volume->now_ns;
    if (S_ISDIR(mode)) directory_init(node, place->directory);
    list_add_tail(&volume->nodes, &node->node);
    change_add(volume, change);
    bound_changes(volume, place->directory);
    *ret_node = node;
    return 0;

fail:
    volume_free(volume, node);
    change_free(volume, change);
    return -ENOMEM;
}

int tree_open(struct volume *volume, const char *path, int flags, mode_t mode,
              struct volume_node **ret_node)
{
    /* O_PATH has few companions; the others are not looked at. */
    bool creates = (flags & O_CREAT) != 0 && (flags & O_PATH) == 0;
    bool writes =
        (flags & O_PATH) == 0 && ((flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0);
    struct place place;
    int r;

    if ((flags & O_TMPFILE) == O_TMPFILE) return -EOPNOTSUPP;
    if (creates && (flags & O_DIRECTORY) != 0) return -EINVAL;
    r = find(volume, path, &place);
    if (r < 0) return r;
    if (creates && place.as_directory) return -EISDIR;
    if (!place.node) {
        if (!creates) return -ENOENT;
        return make_node(volume, &place, S_IFREG | (mode & 07777), ret_node);
    }
    if (creates && (flags & O_EXCL) != 0) return -EEXIST;
    if (S_ISDIR(place.node->mode)) {
        if (writes || creates) return -EISDIR;
    } else if ((flags & O_DIRECTORY) != 0 || place.as_directory) {
        return -ENOTDIR;
    } else if (S_ISSOCK(place.node->mode) && (flags & O_PATH) == 0) {
        return -ENXIO;
    }
    *ret_node = place.node;
    return 0;
}

int volume_stat(struct volume *volume, const char *path, struct stat *ret_stat)
{
    struct place place;
    int r = find_node(volume, path, &place);

    if (r == 0) volume_stat_node(place.node, ret_stat);
    return r;
}

int volume_mkdir(struct volume *volume, const char *path, mode_t mode)
{
    struct volume_node *node;
    struct place place;
    int r = find(volume, path, &place);

    if (r < 0) return r;
    if (place.node) return -EEXIST;
    return make_node(volume, &place, S_IFDIR | (mode & 07777), &node);
}

int64_t volume_make_socket(struct volume *volume, const char *path)
{
    struct volume_node *node;
    struct place place;
    int r = find(volume, path, &place);

    if (r < 0) return r;
    if (place.node) return -EADDRINUSE;
    if (place.as_directory) return -ENOENT;
    r = make_node(volume, &place, S_IFSOCK | 0777, &node);
    return r < 0 ? r : (int64_t)node->number;
}

int64_t volume_find_socket(struct volume *volume, const char *path)
{
    struct place place;
    int r = find_node(volume, path, &place);

    if (r < 0) return r;
    return S_ISSOCK(place.node->mode) ? (int64_t)place.node->number : -ECONNREFUSED;
}

int volume_unlink(struct volume *volume, const char *path)
{
    struct volume_change *change;
    struct place place;
    int r = find_node(volume, path, &place);

    if (r < 0) return r;
    if (S_ISDIR(place.node->mode)) return -EISDIR;
    change = change_new(volume, place.directory);
    if (!change) return -ENOMEM;
    change->removed[0] = place.entry;
    change_add(volume, change);
    bound_changes(volume, place.directory);
    volume_reap(volume);
    return 0;
}

int volume_list(struct volume *volume, const char *path, int (*entry)(void *arg, const char *name),
                void *arg)
{
    struct place place;
    int r = find_node(volume, path, &place);

    if (r < 0) return r;
    if (!S_ISDIR(place.node->mode)) return -ENOTDIR;
    list_for_each(node, &place.node->directory.entries) {
        r = entry(arg, entry_of(node)->name);
        if (r < 0) return r;
    }
    return 0;
}

/* ---- Renaming ---- */

static bool is_inside(const struct volume_node *node, const struct volume_node *directory)
{
    for (;;) {
        if (node == directory) return true;
        if (node == node->directory.parent) return false;
        node = node->directory.parent;
    }
}

/* In the order in which Linux looks. */
static int check_rename(const struct place *from, const struct place *to)
{
    bool is_directory;

    if (!from->name || !to->name) return -EBUSY;
    if (!from->node) return -ENOENT;
    is_directory = S_ISDIR(from->node->mode);
    if (!is_directory && (from->as_directory || to->as_directory)) return -ENOTDIR;
    if (is_directory && is_inside(to->directory, from->node)) return -EINVAL;
    if (!to->node || to->node == from->node) return 0;
    if (S_ISDIR(to->node->mode) && is_inside(from->directory, to->node)) return -ENOTEMPTY;
    if (S_ISDIR(to->node->mode) && !is_directory) return -EISDIR;
    if (!S_ISDIR(to->node->mode) && is_directory) return -ENOTDIR;
    if (is_directory && !list_empty(&to->node->directory.entries)) return -ENOTEMPTY;
    return 0;
}

/* See the header about directories that move: all names that there are become durable. */
static void save_all(struct volume *volume)
{
    list_for_each(node, &volume->nodes) {
        struct volume_node *directory = container_of(node, struct volume_node, node);
        if (S_ISDIR(directory->mode)) save_up_to(volume, &directory->directory, UINT64_MAX);
    }
}

/* What moves into a directory is not lost with it: its own name is durable by then, and those of
 * the directories around it. */
static void save_names_of(struct volume *volume, struct volume_node *node)
{
    for (; node != node->directory.parent; node = node->directory.parent) {
        struct volume_directory *parent = &node->directory.parent->directory;
        uint64_t number = 0;

        list_for_each(at, &parent->changes) {
            const struct volume_change *change = change_of(at);
            if (change->added && change->added->target == node) number = change->number;
        }
        save_up_to(volume, parent, number);
    }
}

static int move(struct volume *volume, const struct place *from, const struct place *to)
{
    struct volume_change *target = change_new(volume, to->directory);
    bool is_apart = from->directory != to->directory;
    struct volume_change *source = is_apart ? change_new(volume, from->directory) : target;

    if (!target || !source) goto fail;
    target->added = entry_new(volume, to->name, to->name_bytes, from->node);
    if (!target->added) goto fail;
    target->removed[1] = to->entry;
    source->removed[0] = from->entry;
    if (is_apart) {
        save_names_of(volume, to->directory);
        source->number = target->number;
        source->twin = target;
        target->twin = source;
        change_add(volume, source);
    }
    change_add(volume, target);
    if (is_apart && S_ISDIR(from->node->mode)) {
        from->node->directory.parent = to->directory;
        save_all(volume);
    }
    bound_changes(volume, from->directory);
    bound_changes(volume, to->directory);
    volume_reap(volume);
    return 0;

fail:
    if (is_apart) change_free(volume, source);
    change_free(volume, target);
    return -ENOMEM;
}

int volume_rename(struct volume *volume, const char *from_path, const char *to_path)
{
    struct place from, to;
    int r = find(volume, from_path, &from);

    if (r == 0) r = find(volume, to_path, &to);
    if (r == 0) r = check_rename(&from, &to);
    if (r < 0) return r;
    if (from.entry == to.entry) return 0;
    return move(volume, &from, &to);
}

/* ---- Losing ---- */

/* Whether this and all before it are there after the crash. */
static void choose_kept(struct volume *volume, struct volume_directory *directory)
{
    unsigned kept =
        directory->change_count > 0
            ? volume->means.choose(volume->means.arg, directory->change_count + 1, "names")
            : 0;

    list_for_each(node, &directory->changes) {
        change_of(node)->is_kept = kept > 0;
        if (kept > 0) kept--;
    }
}

/* Nothing is kept after what is not, and nothing without its other half. True: this has changed
 * something. */
static bool agree(struct volume_directory *directory)
{
    bool is_kept = true;
    bool has_changed = false;

    list_for_each(node, &directory->changes) {
        struct volume_change *change = change_of(node);

        if (!change->is_kept || (change->twin && !change->twin->is_kept)) is_kept = false;
        if (change->is_kept != is_kept) has_changed = true;
        change->is_kept = is_kept;
    }
    return has_changed;
}

static void undo(struct volume *volume, struct volume_change *take_change)
{
    struct volume_node *directory = take_change->directory;

    if (take_change->added) {
        entry_take_out(volume, take_change->added);
        entry_free(volume, take_change->added);
    }
    for (int i = 0; i < 2; i++) {
        if (take_change->removed[i]) entry_put(volume, directory, take_change->removed[i]);
        take_change->removed[i] = NULL;
    }
    change_free(volume, take_change);
}

static void settle_names(struct volume *volume, struct volume_directory *directory)
{
    struct list *node;

    while ((node = list_last(&directory->changes)) != NULL && !change_of(node)->is_kept) {
        undo(volume, change_of(node));
    }
    while ((node = list_first(&directory->changes)) != NULL) change_free(volume, change_of(node));
    directory->abandoned_count = 0;
}

/* NULL: it is no directory. */
static struct volume_directory *directory_of(struct list *node)
{
    struct volume_node *found = container_of(node, struct volume_node, node);
    return S_ISDIR(found->mode) ? &found->directory : NULL;
}

void tree_crash(struct volume *volume)
{
    bool has_changed = true;

    list_for_each(node, &volume->nodes) {
        if (directory_of(node)) choose_kept(volume, directory_of(node));
    }
    while (has_changed) {
        has_changed = false;
        list_for_each(node, &volume->nodes) {
            if (directory_of(node) && agree(directory_of(node))) has_changed = true;
        }
    }
    list_for_each(node, &volume->nodes) {
        if (directory_of(node)) settle_names(volume, directory_of(node));
    }
    volume_reap(volume);
}
