/* log_recover.c - see log_recover.h. */
#include "store/log_recover.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <weir/error.h>

#include "base/planted.h"
#include "rt/mem.h"
#include "store/log_scan.h"

struct recovery {
    const struct log_folder *folder;
    const struct log_recover_spec *spec;
    struct log_recovered *out;
    struct log_listing listing;
    struct log_why *why;
};

static int fail_segment(const struct recovery *recovery, int error, uint64_t sequence,
                        uint64_t offset, const char *what)
{
    char name[LOG_NAME_BYTES];

    log_name(name, sequence, LOG_SEGMENT);
    return log_fail(recovery->why, error, "store '%s': %s, offset %" PRIu64 ": %s",
                    recovery->folder->path, name, offset, what);
}

/* ---- Look ---- */

static int segment_add(struct log_recovered *out, const struct log_recovered_segment *segment)
{
    if (out->segment_count == out->segment_room) {
        size_t room = out->segment_room > 0 ? 2 * out->segment_room : 8;
        struct log_recovered_segment *more =
            mem_resize(out->segments, room * sizeof *out->segments);

        if (!more) return -ENOMEM;
        out->segments = more;
        out->segment_room = room;
    }
    out->segments[out->segment_count++] = *segment;
    return 0;
}

/* Its header is as it must be: for this store, this name, and where the one before it ends. */
static int segment_check(struct recovery *recovery, int fd, uint64_t sequence, uint64_t position,
                         struct log_header *ret_header)
{
    unsigned char block[LOG_HEADER_BYTES] = {0};
    const struct log_meta *meta = &recovery->out->meta;
    const char *wrong;
    bool newer;
    ssize_t n = log_file_read(recovery->folder->kernel, fd, block, sizeof block, 0);

    if (n < 0) return fail_segment(recovery, (int)n, sequence, 0, weir_strerror((int)n));
    wrong = log_header_decode(block, ret_header, &newer);
    if (wrong) return fail_segment(recovery, newer ? -ENOTSUP : -EBADMSG, sequence, 0, wrong);
    if (memcmp(&ret_header->id, &meta->id, sizeof meta->id) != 0)
        return fail_segment(recovery, -EBADMSG, sequence, 0, "it belongs to another store");
    if (ret_header->sequence != sequence)
        return fail_segment(recovery, -EBADMSG, sequence, 0, "its header has another sequence");
    if (ret_header->segment_bytes != meta->segment_bytes)
        return fail_segment(recovery, -EBADMSG, sequence, 0, "its header has another size");
    if (position != 0 && ret_header->position != position)
        return fail_segment(recovery, -EBADMSG, sequence, 0,
                            "it does not begin where the segment before it ends: records are "
                            "missing or damaged there");
    return 0;
}

static int segment_size_check(struct recovery *recovery, uint64_t sequence)
{
    char name[LOG_NAME_BYTES];
    uint64_t bytes;
    int r;

    log_name(name, sequence, LOG_SEGMENT);
    r = log_folder_size(recovery->folder, name, &bytes, recovery->why);
    if (r < 0) return r;
    if (bytes == recovery->out->meta.segment_bytes) return 0;
    return fail_segment(recovery, -EBADMSG, sequence, bytes,
                        bytes < recovery->out->meta.segment_bytes
                            ? "the file ends here: it was truncated"
                            : "the file is longer than a segment");
}

/* ---- Replay ---- */

static int give(struct recovery *recovery, const struct log_found *found)
{
    const struct log_recover_spec *spec = recovery->spec;
    struct log_record record = {
        .position = found->position,
        .end = found->position + found->size,
        .tag = found->frame.tag,
        .data = found->data,
        .bytes = found->frame.bytes,
    };

    recovery->out->record_count++;
    return spec->record ? spec->record(spec->arg, &record) : 0;
}

/* All frames of a segment; `ret_offset` is behind the last one. */
static int replay_segment(struct recovery *recovery, struct log_scan *scan, uint64_t sequence,
                          uint64_t *ret_offset)
{
    uint64_t offset = LOG_HEADER_BYTES;
    int r;

    for (;;) {
        struct log_found found;

        r = log_scan_frame(scan, offset, &found);
        if (r == -ENOTSUP)
            return fail_segment(
                recovery, r, sequence, offset,
                "a kind of record that this program does not know: use a newer one");
        if (r < 0) return fail_segment(recovery, r, sequence, offset, weir_strerror(r));
        if (r == 0) break;
        if (found.frame.kind == LOG_KIND_MARK) {
            uint64_t synced = log_mark_synced(found.data);

            if (synced > found.position)
                return fail_segment(recovery, -EBADMSG, sequence, offset,
                                    "a mark tells of what comes after it");
            if (synced > recovery->out->synced) recovery->out->synced = synced;
            if (synced == found.position) recovery->out->marked_end = found.position + found.size;
        } else if (found.frame.kind == LOG_KIND_GAP) {
            recovery->out->gap_count++;
        } else {
            r = give(recovery, &found);
            if (r < 0)
                return log_fail(recovery->why, r,
                                "store '%s': the record at position %" PRIu64 " was refused: %s",
                                recovery->folder->path, found.position, weir_strerror(r));
        }
        offset += found.size;
    }
    *ret_offset = offset;
    return 0;
}

/* What is behind the frames of the newest segment. */
static int look_at_tail(struct recovery *recovery, struct log_scan *scan, uint64_t sequence,
                        uint64_t offset)
{
    struct log_tail tail;
    int r = log_scan_tail(scan, offset, &tail);

    if (r < 0) return fail_segment(recovery, r, sequence, offset, weir_strerror(r));
    if (tail.is_damage)
        return fail_segment(recovery, -EBADMSG, sequence, offset,
                            "damaged: what was here was on disk, as a later mark says");
    recovery->out->tail_offset = offset;
    recovery->out->tail_end = tail.end_offset;
    recovery->out->torn_bytes = tail.end_offset - offset;
    return 0;
}

/* One segment, which is the `last` or not. */
static int recover_segment(struct recovery *recovery, uint64_t sequence, bool last)
{
    struct log_recovered *out = recovery->out;
    struct log_recovered_segment segment = {.sequence = sequence};
    uint64_t before_end = out->segment_count > 0 ? out->segments[out->segment_count - 1].end : 0;
    struct log_header header;
    struct log_scan scan;
    char name[LOG_NAME_BYTES];
    uint64_t offset = 0;
    int r = segment_size_check(recovery, sequence);

    if (r < 0) return r;
    log_name(name, sequence, LOG_SEGMENT);
    segment.fd = log_folder_file(recovery->folder, name,
                                 recovery->spec->read_only ? O_RDONLY : O_RDWR, recovery->why);
    if (segment.fd < 0) return segment.fd;
    r = segment_check(recovery, segment.fd, sequence, before_end, &header);
    if (r < 0) goto fail_close;
    log_scan_init(&scan, recovery->folder->kernel, segment.fd, &header);
    r = replay_segment(recovery, &scan, sequence, &offset);
    if (r == 0 && last) r = look_at_tail(recovery, &scan, sequence, offset);
    log_scan_deinit(&scan);
    if (r < 0) goto fail_close;
    segment.position = header.position;
    segment.end = header.position + (offset - LOG_HEADER_BYTES);
    if (out->synced < segment.position) out->synced = segment.position;
    r = segment_add(out, &segment);
    if (r < 0) goto fail_close;
    return 0;

fail_close:
    (void)recovery->folder->kernel->close(recovery->folder->kernel, segment.fd);
    return r;
}

static int recover_segments(struct recovery *recovery)
{
    const struct log_listing *listing = &recovery->listing;
    const struct log_meta *meta = &recovery->out->meta;
    const uint64_t *sequences = listing->numbers[LOG_SEGMENT];
    size_t count = listing->count[LOG_SEGMENT];
    uint64_t expected = meta->sequence;
    char name[LOG_NAME_BYTES];
    int r;

    for (size_t i = 0; i < count; i++) {
        if (sequences[i] < meta->sequence) continue; /* given up, but not yet renamed */
        if (sequences[i] != expected) break;
        r = recover_segment(recovery, sequences[i], i + 1 == count);
        if (r < 0) return r;
        expected++;
    }
    if (expected > meta->sequence_last && (count == 0 || sequences[count - 1] < expected)) return 0;
    log_name(name, expected, LOG_SEGMENT);
    return log_fail(recovery->why, -EBADMSG, "store '%s': %s is missing: the log goes on after it",
                    recovery->folder->path, name);
}

/* ---- Settle ---- */

static uint64_t offset_of(const struct log_recovered_segment *segment, uint64_t position)
{
    return LOG_HEADER_BYTES + (position - segment->position);
}

/* Write [from, to) again as it is. */
static int write_again(const struct kernel *kernel, int fd, uint64_t from, uint64_t to)
{
    char *data = mem_alloc(LOG_ZERO_BYTES);
    int r = data ? 0 : -ENOMEM;

    while (r == 0 && from < to) {
        size_t bytes = to - from < LOG_ZERO_BYTES ? (size_t)(to - from) : LOG_ZERO_BYTES;
        ssize_t n = log_file_read(kernel, fd, data, bytes, from);

        r = n < 0               ? (int)n
            : (size_t)n < bytes ? -EIO
                                : log_file_write(kernel, fd, data, bytes, from);
        from += bytes;
    }
    mem_free(data);
    return r;
}

static int settle_tail(struct recovery *recovery)
{
    struct log_recovered *out = recovery->out;
    const struct kernel *kernel = recovery->folder->kernel;
    struct log_recovered_segment *last = &out->segments[out->segment_count - 1];
    /* With no mark in it, its header is not known to be on disk either. */
    uint64_t sure = out->synced > last->position ? offset_of(last, out->synced) : 0;
    int r = 0;

    if (PLANTED(LOG_TAIL_CUT_EARLY))
        out->tail_offset = sure > LOG_HEADER_BYTES ? sure : LOG_HEADER_BYTES;
    if (!PLANTED(LOG_RECOVERED_UNSYNCED)) r = write_again(kernel, last->fd, sure, out->tail_offset);
    if (r == 0 && !PLANTED(LOG_TAIL_NOT_CUT))
        r = log_file_zero(kernel, last->fd, out->tail_offset, out->tail_end);
    if (r == 0 && !PLANTED(LOG_RECOVERED_UNSYNCED)) r = log_file_sync(kernel, last->fd);
    if (r < 0) return fail_segment(recovery, r, last->sequence, out->tail_offset, weir_strerror(r));
    last->end = last->position + (out->tail_offset - LOG_HEADER_BYTES);
    out->synced = last->end;
    return 0;
}

/* A file that could be a spare: it is one from now on, or it goes. */
static int settle_spare(struct recovery *recovery, uint64_t number, enum log_suffix suffix)
{
    struct log_recovered *out = recovery->out;
    char name[LOG_NAME_BYTES], spare_name[LOG_NAME_BYTES];
    uint64_t bytes;
    int r;

    log_name(name, number, suffix);
    r = log_folder_size(recovery->folder, name, &bytes, recovery->why);
    if (r < 0) return r;
    if (suffix == LOG_NEW || bytes != out->meta.segment_bytes ||
        out->spare_count >= recovery->spec->spares_max)
        return log_folder_unlink(recovery->folder, name, recovery->why);
    if (suffix != LOG_SPARE) {
        number = out->number_next++;
        log_name(spare_name, number, LOG_SPARE);
        r = log_folder_rename(recovery->folder, name, spare_name, recovery->why);
        if (r < 0) return r;
    }
    log_name(spare_name, number, LOG_SPARE);
    r = log_folder_file(recovery->folder, spare_name, O_RDWR, recovery->why);
    if (r < 0) return r;
    out->spares[out->spare_count++] = (struct log_spare){.number = number, .fd = r};
    return 0;
}

static int settle_files(struct recovery *recovery)
{
    const struct log_listing *listing = &recovery->listing;
    struct log_recovered *out = recovery->out;
    int r = 0;

    out->number_next = 1;
    for (int suffix = LOG_SPARE; suffix <= LOG_NEW; suffix++) {
        size_t count = listing->count[suffix];
        uint64_t last = count > 0 ? listing->numbers[suffix][count - 1] : 0;

        if (last >= out->number_next) out->number_next = last + 1;
    }
    out->spares = mem_alloc((recovery->spec->spares_max + 1) * sizeof *out->spares);
    if (!out->spares) return log_fail(recovery->why, -ENOMEM, "store: no memory");
    for (int suffix = LOG_SUFFIXES - 1; suffix >= 0 && r == 0; suffix--) {
        for (size_t i = 0; i < listing->count[suffix] && r == 0; i++) {
            uint64_t number = listing->numbers[suffix][i];

            if (suffix == LOG_SEGMENT && number >= out->meta.sequence) continue;
            r = settle_spare(recovery, number, (enum log_suffix)suffix);
        }
    }
    if (r == 0 && listing->has_meta_new)
        r = log_folder_unlink(recovery->folder, "META.new", recovery->why);
    return r;
}

/* Names that an earlier process could not sync are not synced by us either, unless there is
 * something new to sync with them: so there is. */
static int settle_names(struct recovery *recovery)
{
    char name[LOG_NAME_BYTES];
    int fd, r;

    log_name(name, recovery->out->number_next, LOG_NEW);
    fd = log_folder_file(recovery->folder, name, O_WRONLY | O_CREAT, recovery->why);
    if (fd < 0) return fd;
    (void)recovery->folder->kernel->close(recovery->folder->kernel, fd);
    r = log_folder_unlink(recovery->folder, name, recovery->why);
    return r < 0 ? r : log_folder_sync(recovery->folder, recovery->why);
}

static int settle(struct recovery *recovery)
{
    int r = log_meta_write(recovery->folder, &recovery->out->meta, recovery->why);

    if (r == 0) r = settle_tail(recovery);
    if (r == 0) r = settle_files(recovery);
    if (r == 0) r = settle_names(recovery);
    return r;
}

/* ---- A new store ---- */

/* There is no META. A store that was never finished may have its first segment, without records;
 * anything else was a store. */
static int check_unfinished(struct recovery *recovery)
{
    const struct log_listing *listing = &recovery->listing;
    char name[LOG_NAME_BYTES];
    unsigned char block[2 * LOG_HEADER_BYTES] = {0};
    ssize_t n;
    int fd, r;

    if (listing->count[LOG_SEGMENT] == 0) return 0;
    log_name(name, listing->numbers[LOG_SEGMENT][0], LOG_SEGMENT);
    fd = log_folder_file(recovery->folder, name, O_RDONLY, recovery->why);
    if (fd < 0) return fd;
    n = log_file_read(recovery->folder->kernel, fd, block, sizeof block, 0);
    (void)recovery->folder->kernel->close(recovery->folder->kernel, fd);
    if (n < 0)
        return fail_segment(recovery, (int)n, listing->numbers[LOG_SEGMENT][0], 0,
                            weir_strerror((int)n));
    r = listing->count[LOG_SEGMENT] == 1 && listing->numbers[LOG_SEGMENT][0] == 1 ? 0 : -EBADMSG;
    for (size_t i = LOG_HEADER_BYTES; i < sizeof block; i++)
        if (block[i] != 0) r = -EBADMSG;
    if (r < 0)
        return log_fail(recovery->why, r, "store '%s': META is missing, and there are segments",
                        recovery->folder->path);
    return log_folder_unlink(recovery->folder, name, recovery->why);
}

static int create(struct recovery *recovery)
{
    const struct log_recover_spec *spec = recovery->spec;
    const struct kernel *kernel = recovery->folder->kernel;
    struct log_meta meta = {
        .generation = 1, .sequence = 1, .sequence_last = 1, .segment_bytes = spec->segment_bytes};
    struct log_header header = {
        .sequence = 1, .position = LOG_POSITION_FIRST, .segment_bytes = spec->segment_bytes};
    struct log_spare spare = {.number = 1};
    char name[LOG_NAME_BYTES];
    int r = check_unfinished(recovery);

    if (r < 0) return r;
    if (spec->id) {
        meta.id = *spec->id;
    } else {
        kernel->random(kernel, meta.id.bytes, LOG_ID_BYTES);
    }
    header.id = meta.id;
    /* Left over from one that was never finished: its size may be another. */
    for (size_t i = 0; i < recovery->listing.count[LOG_SPARE]; i++) {
        log_name(name, recovery->listing.numbers[LOG_SPARE][i], LOG_SPARE);
        r = log_folder_unlink(recovery->folder, name, recovery->why);
        if (r < 0) return r;
    }
    spare.fd =
        log_spare_make(recovery->folder, spare.number, meta.segment_bytes, NULL, recovery->why);
    if (spare.fd < 0) return spare.fd;
    r = log_segment_make(recovery->folder, &spare, &header, recovery->why);
    (void)kernel->close(kernel, spare.fd);
    if (r < 0) return r;
    r = log_folder_sync_name(recovery->folder, recovery->why);
    if (r < 0) return r;
    /* Last: with META it is a store. */
    r = log_meta_create(recovery->folder, &meta, recovery->why);
    return r < 0 ? r : log_folder_sync(recovery->folder, recovery->why);
}

/* ---- The whole ---- */

static int relist(struct recovery *recovery)
{
    log_listing_free(&recovery->listing);
    return log_listing_fill(&recovery->listing, recovery->folder, recovery->why);
}

int log_recover(const struct log_folder *folder, const struct log_recover_spec *spec,
                struct log_recovered *ret_recovered, struct log_why *why)
{
    struct log_recovered recovered = {0};
    struct recovery recovery = {.folder = folder, .spec = spec, .out = &recovered, .why = why};
    int r = log_listing_fill(&recovery.listing, folder, why);

    if (r < 0) return r;
    if (!recovery.listing.has_meta) {
        if (spec->create && !spec->read_only) {
            r = create(&recovery);
            if (r == 0) r = relist(&recovery);
        } else {
            r = log_fail(why, -ENOENT, "store '%s': there is no META: it is no store",
                         folder->path);
        }
    }
    if (r == 0) r = log_meta_read(folder, &recovered.meta, why);
    if (r == 0) r = recover_segments(&recovery);
    if (r == 0 && !spec->read_only) r = settle(&recovery);
    log_listing_free(&recovery.listing);
    if (r < 0) {
        log_recovered_free(folder, &recovered);
        return r;
    }
    *ret_recovered = recovered;
    return 0;
}

void log_recovered_free(const struct log_folder *folder, struct log_recovered *recovered)
{
    for (size_t i = 0; i < recovered->segment_count; i++) {
        int fd = recovered->segments[i].fd;
        if (fd >= 0) (void)folder->kernel->close(folder->kernel, fd);
    }
    for (size_t i = 0; i < recovered->spare_count; i++) {
        int fd = recovered->spares[i].fd;
        if (fd >= 0) (void)folder->kernel->close(folder->kernel, fd);
    }
    mem_free(recovered->segments);
    mem_free(recovered->spares);
    *recovered = (struct log_recovered){0};
}
