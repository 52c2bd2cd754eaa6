/* volume_data.c - the content of a file: its sectors, and which of them a crash leaves. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "sim/volume.h"

#define SECTOR VOLUME_SECTOR_BYTES

/* ---- Finding sectors ---- */

/* Where the sector `index` is, or belongs. */
static size_t find_place(const struct volume_content *content, uint64_t index)
{
    size_t low = 0;
    size_t high = content->sector_count;

    /* Most writes are at the end. */
    if (high > 0 && content->sectors[high - 1]->index < index) return high;
    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (content->sectors[middle]->index < index)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_at(const struct volume_content *content, size_t place, uint64_t index)
{
    return place < content->sector_count && content->sectors[place]->index == index;
}

static int make_room(struct volume *volume, struct volume_content *content)
{
    size_t room = content->sector_room > 0 ? content->sector_room * 2 : 8;
    struct volume_sector **larger;

    if (content->sector_count < content->sector_room) return 0;
    larger = volume_alloc(volume, room * sizeof(struct volume_sector *));
    if (!larger) return -ENOMEM;
    if (content->sector_count > 0) {
        memcpy(larger, content->sectors, content->sector_count * sizeof(struct volume_sector *));
    }
    volume_free(volume, content->sectors);
    content->sectors = larger;
    content->sector_room = room;
    return 0;
}

static int add_sector(struct volume *volume, struct volume_content *content, size_t place,
                      uint64_t index)
{
    struct volume_sector *sector;
    int r = make_room(volume, content);

    if (r < 0) return r;
    sector = volume_alloc(volume, sizeof *sector);
    if (!sector) return -ENOMEM;
    sector->index = index;
    sector->unsaved_count = 1;
    memmove(content->sectors + place + 1, content->sectors + place,
            (content->sector_count - place) * sizeof(struct volume_sector *));
    content->sectors[place] = sector;
    content->sector_count++;
    return 0;
}

/* Of what was not saved only the last content is of interest any more. */
static void forget_between(struct volume *volume, struct volume_sector *sector)
{
    for (int i = 0; i < VOLUME_BETWEEN_MAX; i++) {
        volume_free(volume, sector->between[i]);
        sector->between[i] = NULL;
    }
    if (sector->unsaved_count > 1) sector->unsaved_count = 1;
}

/* ... and this one is saved. */
static void forget(struct volume *volume, struct volume_sector *sector)
{
    forget_between(volume, sector);
    volume_free(volume, sector->saved);
    sector->saved = NULL;
    sector->unsaved_count = 0;
    sector->cut_bytes = 0;
    sector->is_abandoned = false;
}

static void free_sector(struct volume *volume, struct volume_sector *take_sector)
{
    forget(volume, take_sector);
    volume_free(volume, take_sector);
}

/* Take out those that are holes and have nothing behind them. */
static void drop_holes(struct volume *volume, struct volume_content *content)
{
    size_t kept = 0;

    for (size_t i = 0; i < content->sector_count; i++) {
        struct volume_sector *sector = content->sectors[i];

        if (sector->is_hole && !sector->saved)
            free_sector(volume, sector);
        else
            content->sectors[kept++] = sector;
    }
    content->sector_count = kept;
}

void content_drop(struct volume *volume, struct volume_content *content)
{
    for (size_t i = 0; i < content->sector_count; i++) free_sector(volume, content->sectors[i]);
    volume_free(volume, content->sectors);
    memset(content, 0, sizeof *content);
}

static void use_bytes(struct volume *volume, struct volume_node *node, int64_t more)
{
    node->content.bytes_used += (uint64_t)more;
    if (node->is_counted) volume->bytes_used += (uint64_t)more;
}

/* ---- Changing ---- */

/* Keep what is there now, before it changes. */
static int keep_content(struct volume *volume, struct volume_sector *sector)
{
    unsigned char *copy;

    if (sector->unsaved_count > VOLUME_BETWEEN_MAX) {
        copy = sector->between[VOLUME_BETWEEN_MAX - 1];
        sector->unsaved_count--;
    } else {
        copy = volume_alloc(volume, SECTOR);
        if (!copy) return -ENOMEM;
    }
    memcpy(copy, sector->now, SECTOR);
    if (sector->unsaved_count == 0) {
        sector->saved = copy;
    } else {
        memmove(sector->between + 1, sector->between,
                (VOLUME_BETWEEN_MAX - 1) * sizeof sector->between[0]);
        sector->between[0] = copy;
    }
    sector->unsaved_count++;
    sector->is_abandoned = false;
    return 0;
}

static void note_size(struct volume_content *content, uint64_t bytes)
{
    uint64_t bytes_min = UINT64_MAX;

    if (content->size_count > 0) bytes_min = content->sizes[content->size_count - 1].bytes_min;
    if (bytes < content->bytes && bytes < bytes_min) bytes_min = bytes;
    /* The oldest one stays: an empty file is what is left most often when one is replaced. */
    if (content->size_count == VOLUME_SIZES_MAX) {
        memmove(content->sizes + 1, content->sizes + 2,
                (VOLUME_SIZES_MAX - 2) * sizeof content->sizes[0]);
        content->size_count--;
    }
    content->sizes[content->size_count++] = (struct volume_size){bytes, bytes_min};
    content->bytes = bytes;
    content->size_is_abandoned = false;
}

/* One sector's part of a write. */
static int write_sector(struct volume *volume, struct volume_node *node, uint64_t index,
                        size_t start, const unsigned char *data, size_t bytes)
{
    struct volume_content *content = &node->content;
    size_t place = find_place(content, index);
    bool is_new = !is_at(content, place, index);
    struct volume_sector *sector;
    int r;

    if ((is_new || content->sectors[place]->is_hole) &&
        volume->bytes_used + SECTOR > volume->bytes_max) {
        return -ENOSPC;
    }
    r = is_new ? add_sector(volume, content, place, index)
               : keep_content(volume, content->sectors[place]);
    if (r < 0) return r;
    sector = content->sectors[place];
    if (is_new || sector->is_hole) use_bytes(volume, node, SECTOR);
    sector->is_hole = false;
    memcpy(sector->now + start, data, bytes);
    return 0;
}

int content_write(struct volume *volume, struct volume_node *node, const unsigned char *data,
                  size_t bytes, uint64_t offset, size_t *ret_written)
{
    size_t written = 0;
    int r = 0;

    while (written < bytes) {
        size_t start = (size_t)((offset + written) % SECTOR);
        size_t part = SECTOR - start < bytes - written ? SECTOR - start : bytes - written;

        r = write_sector(volume, node, (offset + written) / SECTOR, start, data + written, part);
        if (r < 0) break;
        written += part;
    }
    if (written > 0 && offset + written > node->content.bytes) {
        note_size(&node->content, offset + written);
    }
    *ret_written = written;
    return r;
}

void content_read(const struct volume_content *content, unsigned char *data, size_t bytes,
                  uint64_t offset)
{
    size_t place = find_place(content, offset / SECTOR);
    size_t done = 0;

    while (done < bytes) {
        size_t start = (size_t)((offset + done) % SECTOR);
        size_t part = SECTOR - start < bytes - done ? SECTOR - start : bytes - done;

        if (is_at(content, place, (offset + done) / SECTOR)) {
            memcpy(data + done, content->sectors[place]->now + start, part);
            place++;
        } else {
            memset(data + done, 0, part);
        }
        done += part;
    }
}

/* All of the sector is cut off. */
static int cut_sector(struct volume *volume, struct volume_node *node, struct volume_sector *sector)
{
    if (sector->is_hole) return 0;
    if (sector->unsaved_count == 0) {
        int r = keep_content(volume, sector);
        if (r < 0) return r;
    }
    forget_between(volume, sector);
    sector->is_hole = true;
    sector->cut_bytes = SECTOR;
    sector->is_abandoned = false;
    memset(sector->now, 0, SECTOR);
    use_bytes(volume, node, -SECTOR);
    return 0;
}

int content_truncate(struct volume *volume, struct volume_node *node, uint64_t bytes)
{
    struct volume_content *content = &node->content;
    size_t start = (size_t)(bytes % SECTOR);
    size_t place = find_place(content, bytes / SECTOR);
    int r = 0;

    node->changed_ns = volume->now_ns;
    if (bytes == content->bytes) return 0;
    if (bytes < content->bytes) {
        if (start > 0 && is_at(content, place, bytes / SECTOR)) {
            struct volume_sector *sector = content->sectors[place++];

            r = keep_content(volume, sector);
            if (r < 0) return r;
            /* Nor does what was cut off come back by way of an older content. */
            forget_between(volume, sector);
            memset(sector->now + start, 0, SECTOR - start);
            if (sector->cut_bytes < SECTOR - start) sector->cut_bytes = (unsigned)(SECTOR - start);
        }
        for (size_t i = place; i < content->sector_count && r == 0; i++) {
            r = cut_sector(volume, node, content->sectors[i]);
        }
        drop_holes(volume, content);
        if (r < 0) return r;
    }
    note_size(content, bytes);
    return 0;
}

/* ---- Saving ---- */

/* How much of what was saved of a sector is left, when its file was truncated to bytes_min. */
static size_t bytes_left(const struct volume_sector *sector, uint64_t bytes_min)
{
    uint64_t start = sector->index * SECTOR;
    uint64_t left = bytes_min > start ? bytes_min - start : 0;

    if (left < SECTOR - sector->cut_bytes) left = SECTOR - sector->cut_bytes;
    return left < SECTOR ? (size_t)left : SECTOR;
}

/* With the size its truncates are saved: what they cut off is gone, also of sectors that were
 * abandoned. */
static void save_size(struct volume *volume, struct volume_content *content)
{
    uint64_t bytes_min =
        content->size_count > 0 ? content->sizes[content->size_count - 1].bytes_min : UINT64_MAX;

    for (size_t i = 0; i < content->sector_count; i++) {
        struct volume_sector *sector = content->sectors[i];
        size_t left = bytes_left(sector, bytes_min);

        if (sector->saved && left == 0) {
            volume_free(volume, sector->saved);
            sector->saved = NULL;
        } else if (sector->saved) {
            memset(sector->saved + left, 0, SECTOR - left);
        }
        sector->cut_bytes = 0;
    }
    content->saved_bytes = content->bytes;
    content->size_count = 0;
}

void content_save(struct volume *volume, struct volume_node *node)
{
    struct volume_content *content = &node->content;

    for (size_t i = 0; i < content->sector_count; i++) {
        struct volume_sector *sector = content->sectors[i];
        if (sector->unsaved_count > 0 && !sector->is_abandoned) forget(volume, sector);
    }
    if (!content->size_is_abandoned) save_size(volume, content);
    drop_holes(volume, content);
}

void content_abandon(struct volume_content *content)
{
    for (size_t i = 0; i < content->sector_count; i++) {
        if (content->sectors[i]->unsaved_count > 0) content->sectors[i]->is_abandoned = true;
    }
    content->size_is_abandoned = content->size_count > 0;
}

/* ---- Losing ---- */

/* Whether a crash has a choice about this sector, when it leaves the file with this size. */
static bool is_open(const struct volume_sector *sector, const struct volume_size *size)
{
    if (sector->unsaved_count == 0 || sector->index * SECTOR >= size->bytes) return false;
    /* The truncate is lost: so is all that went where it had made room. */
    return sector->cut_bytes < SECTOR || sector->index * SECTOR >= size->bytes_min;
}

/* The content that `answer` stands for: 0, the saved one; then the newest, the one before, ... */
static const unsigned char *sector_content(const struct volume_sector *sector, unsigned answer)
{
    if (answer == 0) return sector->saved;
    if (answer > sector->unsaved_count) answer = sector->unsaved_count;
    return answer == 1 ? sector->now : sector->between[answer - 2];
}

static void settle_sector(struct volume *volume, struct volume_sector *sector,
                          const struct volume_size *size, unsigned answer)
{
    uint64_t start = sector->index * SECTOR;
    bool is_gone = start >= size->bytes;

    if (sector->unsaved_count > 0) {
        const unsigned char *content = sector_content(sector, answer);
        /* What was truncated for good does not come back. */
        size_t left = answer == 0 ? bytes_left(sector, size->bytes_min) : SECTOR;

        if (!content || left == 0)
            is_gone = true;
        else if (content != sector->now)
            memcpy(sector->now, content, SECTOR);
        memset(sector->now + left, 0, SECTOR - left);
        forget(volume, sector);
    }
    sector->is_hole = is_gone;
    if (!is_gone && size->bytes - start < SECTOR) {
        memset(sector->now + (size->bytes - start), 0, (size_t)(SECTOR - (size->bytes - start)));
    }
}

static struct volume_size choose_size(struct volume *volume, const struct volume_content *content)
{
    unsigned answer =
        content->size_count > 0
            ? volume->means.choose(volume->means.arg, content->size_count + 1, "file size")
            : 0;

    if (answer > 0) return content->sizes[content->size_count - answer];
    return (struct volume_size){content->saved_bytes, UINT64_MAX};
}

/* For ranges of so many unsaved sectors one choice each. */
static void settle_sectors(struct volume *volume, struct volume_content *content,
                           const struct volume_size *size, size_t range)
{
    unsigned answer = 0;
    size_t left = 0;

    for (size_t i = 0; i < content->sector_count; i++) {
        bool has_choice = is_open(content->sectors[i], size);

        if (has_choice && left == 0) {
            unsigned most = 0;

            for (size_t j = i; j < content->sector_count && left < range; j++) {
                const struct volume_sector *sector = content->sectors[j];

                if (!is_open(sector, size)) continue;
                if (sector->unsaved_count > most) most = sector->unsaved_count;
                left++;
            }
            answer = volume->means.choose(volume->means.arg, most + 1, "sector");
        }
        settle_sector(volume, content->sectors[i], size, has_choice ? answer : 0);
        if (has_choice) left--;
    }
}

void content_crash(struct volume *volume, struct volume_node *node)
{
    struct volume_content *content = &node->content;
    struct volume_size size = choose_size(volume, content);
    uint64_t bytes_used;
    size_t open_count = 0;

    for (size_t i = 0; i < content->sector_count; i++) {
        if (is_open(content->sectors[i], &size)) open_count++;
    }
    settle_sectors(volume, content, &size,
                   (open_count + VOLUME_RANGES_MAX - 1) / VOLUME_RANGES_MAX);
    drop_holes(volume, content);
    content->bytes = size.bytes;
    content->saved_bytes = size.bytes;
    content->size_count = 0;
    content->size_is_abandoned = false;
    bytes_used = content->sector_count * SECTOR;
    use_bytes(volume, node, (int64_t)(bytes_used - content->bytes_used));
}
