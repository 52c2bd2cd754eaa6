/* log_tool.c - see log_tool.h. */
#include "store/log_tool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <weir/error.h>

#include "rt/mem.h"
#include "store/log_scan.h"

int log_verify(const struct kernel *kernel, const char *path, struct log_summary *ret_summary,
               struct log_why *why)
{
    const struct log_recover_spec spec = {.read_only = true};
    struct log_recovered found;
    struct log_folder folder;
    int r = log_folder_open(&folder, kernel, path, false, why);

    if (r == 0) r = log_folder_lock(&folder, why);
    if (r == 0) r = log_recover(&folder, &spec, &found, why);
    if (r == 0) {
        *ret_summary = (struct log_summary){
            .meta = found.meta,
            .first = found.segments[0].position,
            .end = found.segments[found.segment_count - 1].end,
            .segment_count = found.segment_count,
            .record_count = found.record_count,
            .gap_count = found.gap_count,
            .torn_bytes = found.torn_bytes,
        };
        log_recovered_free(&folder, &found);
    }
    log_folder_close(&folder);
    return r;
}

/* ---- Walking over what may be damaged ---- */

struct walk {
    struct log_folder folder;
    struct log_listing listing;
    struct log_meta meta;
    log_piece_fn piece;
    void *arg;
    int damage_count;
    uint64_t position; /* behind what was seen; 0: not known yet */
    struct log_why *why;

    /* Of a repair: where the copy goes, and the segment as it will be. */
    const struct log_folder *to;
    unsigned char *image;
};

static int tell(struct walk *walk, const struct log_piece *piece)
{
    bool damage = piece->kind == LOG_PIECE_DAMAGE || piece->kind == LOG_PIECE_MISSING;

    if (damage) walk->damage_count++;
    return walk->piece ? walk->piece(walk->arg, piece) : 0;
}

/* Cover a range of the image with gaps. */
static void put_gap(const struct walk *walk, uint64_t offset, uint64_t position, uint64_t bytes)
{
    uint32_t seed = log_id_seed(&walk->meta.id);
    const uint64_t most = log_frame_size(LOG_RECORD_BYTES_LIMIT);

    while (bytes > 0) {
        /* What is left must hold a head. */
        uint64_t size = bytes <= most ? bytes : bytes - most < LOG_FRAME_BYTES ? most / 2 : most;
        unsigned char *head = walk->image + offset;
        struct log_frame frame = {.bytes = (uint32_t)(size - LOG_FRAME_BYTES),
                                  .kind = LOG_KIND_GAP};

        memset(head, 0, (size_t)size);
        frame.data_crc = log_frame_data_crc(seed, position, head + LOG_FRAME_BYTES, frame.bytes);
        log_frame_encode(seed, position, &frame, head);
        offset += size;
        position += size;
        bytes -= size;
    }
}

/* A frame that opening the store would take as it is: 1, 0. Its checksum can be right and it be
 * nonsense all the same, if it was written by nonsense. */
static int scan_sound(struct log_scan *scan, uint64_t offset, struct log_found *ret_found)
{
    int r = log_scan_frame(scan, offset, ret_found);

    if (r == -ENOTSUP) return 0;
    if (r == 1 && ret_found->frame.kind == LOG_KIND_MARK &&
        log_mark_synced(ret_found->data) > ret_found->position)
        return 0;
    return r;
}

/* The next offset from which on something is whole, or 0. */
static int find_whole(struct log_scan *scan, uint64_t offset, uint64_t *ret_offset)
{
    *ret_offset = 0;
    for (offset += LOG_ALIGN; offset + LOG_FRAME_BYTES <= scan->segment_bytes;
         offset += LOG_ALIGN) {
        struct log_found found;
        int r = scan_sound(scan, offset, &found);

        if (r < 0) return r;
        if (r != 1) continue;
        *ret_offset = offset;
        return 0;
    }
    return 0;
}

/* Frames and damage of a segment. `end`: the position that the next segment begins with, or 0: this
 * is the last one. */
static int walk_frames(struct walk *walk, struct log_scan *scan, uint64_t sequence, uint64_t end)
{
    uint64_t offset = LOG_HEADER_BYTES;
    int r;

    for (;;) {
        struct log_piece piece = {.sequence = sequence, .offset = offset};
        struct log_found found;
        struct log_tail tail;
        uint64_t next = 0;

        piece.position = walk->position = scan->position + (offset - LOG_HEADER_BYTES);
        if (end != 0 && piece.position == end) return 0;
        r = scan_sound(scan, offset, &found);
        if (r < 0) return r;
        if (r == 1) {
            piece.kind = LOG_PIECE_FRAME;
            piece.frame = found.frame;
            piece.data = found.data;
            r = tell(walk, &piece);
            if (r < 0) return r;
            offset += found.size;
            continue;
        }
        if (end == 0) {
            r = log_scan_tail(scan, offset, &tail);
            if (r < 0) return r;
            if (!tail.is_damage) {
                piece.kind = LOG_PIECE_TAIL;
                piece.bytes = tail.end_offset - offset;
                if (walk->image)
                    memset(walk->image + offset, 0, (size_t)(scan->segment_bytes - offset));
                return tell(walk, &piece);
            }
        }
        r = find_whole(scan, offset, &next);
        if (r < 0) return r;
        if (next == 0 && end > piece.position && end - scan->position <= scan->segment_bytes)
            next = LOG_HEADER_BYTES + (end - scan->position);
        piece.kind = LOG_PIECE_DAMAGE;
        piece.bytes = next > offset ? next - offset : scan->segment_bytes - offset;
        r = tell(walk, &piece);
        if (r < 0) return r;
        if (next <= offset) { /* nothing whole follows: the segment ends here */
            if (walk->image)
                memset(walk->image + offset, 0, (size_t)(scan->segment_bytes - offset));
            return 0;
        }
        if (walk->image) put_gap(walk, offset, piece.position, next - offset);
        offset = next;
    }
}

/* The header of a segment, or what it must have been: 1, 0 (it cannot be known). */
static int find_header(struct walk *walk, int fd, uint64_t sequence, struct log_header *ret_header,
                       bool *ret_whole)
{
    unsigned char block[LOG_HEADER_BYTES] = {0};
    ssize_t n = fd < 0 ? 0 : log_file_read(walk->folder.kernel, fd, block, sizeof block, 0);
    bool newer;

    if (n < 0) return (int)n;
    *ret_whole = !log_header_decode(block, ret_header, &newer) &&
                 ret_header->sequence == sequence &&
                 memcmp(&ret_header->id, &walk->meta.id, sizeof walk->meta.id) == 0 &&
                 ret_header->segment_bytes == walk->meta.segment_bytes;
    if (newer) return -ENOTSUP;
    if (*ret_whole) return 1;
    *ret_header = (struct log_header){.id = walk->meta.id,
                                      .sequence = sequence,
                                      .position = walk->position,
                                      .segment_bytes = walk->meta.segment_bytes};
    return walk->position != 0;
}

/* Where a segment begins, by its own header; 0: it is not there, or does not say. */
static uint64_t begin_of(struct walk *walk, uint64_t sequence)
{
    uint64_t position = walk->position;
    struct log_header header;
    char name[LOG_NAME_BYTES];
    bool whole = false;
    int fd;

    log_name(name, sequence, LOG_SEGMENT);
    fd = log_folder_file(&walk->folder, name, O_RDONLY, NULL);
    if (fd < 0) return 0;
    walk->position = 0;
    (void)find_header(walk, fd, sequence, &header, &whole);
    walk->position = position;
    (void)walk->folder.kernel->close(walk->folder.kernel, fd);
    return whole ? header.position : 0;
}

static int write_image(struct walk *walk, const struct log_header *header)
{
    char name[LOG_NAME_BYTES];
    int fd, r;

    log_name(name, header->sequence, LOG_SEGMENT);
    fd = log_folder_file(walk->to, name, O_WRONLY | O_CREAT | O_EXCL, walk->why);
    if (fd < 0) return fd;
    log_header_encode(header, walk->image);
    r = log_file_write(walk->to->kernel, fd, walk->image, (size_t)header->segment_bytes, 0);
    if (r == 0) r = log_file_sync(walk->to->kernel, fd);
    (void)walk->to->kernel->close(walk->to->kernel, fd);
    return r < 0 ? log_fail(walk->why, r, "'%s': write %s: %s", walk->to->path, name,
                            weir_strerror(r))
                 : 0;
}

static int walk_segment(struct walk *walk, uint64_t sequence, bool last)
{
    const struct kernel *kernel = walk->folder.kernel;
    struct log_piece piece = {.kind = LOG_PIECE_SEGMENT, .sequence = sequence};
    uint64_t end = last ? 0 : begin_of(walk, sequence + 1);
    struct log_header header;
    struct log_scan scan;
    char name[LOG_NAME_BYTES];
    bool whole = false; /* also if it cannot be read */
    ssize_t n = 0;
    int fd, r;

    log_name(name, sequence, LOG_SEGMENT);
    fd = log_folder_file(&walk->folder, name, O_RDONLY, walk->why);
    if (fd < 0 && fd != -ENOENT) return fd;
    r = find_header(walk, fd, sequence, &header, &whole);
    if (r == -ENOTSUP) log_fail(walk->why, r, "%s has a newer version than this program", name);
    if (fd < 0 || !whole) piece.kind = LOG_PIECE_MISSING;
    piece.position = r == 1 ? header.position : 0;
    if (r >= 0) {
        int told = tell(walk, &piece);
        if (told < 0) r = told;
    }
    if (r <= 0) goto out;
    if (walk->image) {
        memset(walk->image, 0, (size_t)header.segment_bytes);
        if (fd >= 0) n = log_file_read(kernel, fd, walk->image, (size_t)header.segment_bytes, 0);
    }
    if (n < 0) r = (int)n;
    if (r < 0) goto out;
    if (fd < 0) {
        /* Nothing is left of it but its range, if the next one says where it ends. */
        if (walk->image && end > header.position &&
            end - header.position <= header.segment_bytes - LOG_HEADER_BYTES)
            put_gap(walk, LOG_HEADER_BYTES, header.position, end - header.position);
        walk->position = end;
        r = 0;
    } else {
        log_scan_init(&scan, kernel, fd, &header);
        r = walk_frames(walk, &scan, sequence, end);
        if (r < 0) log_fail(walk->why, r, "%s: %s", name, weir_strerror(r));
        log_scan_deinit(&scan);
    }
    if (r == 0 && walk->image) r = write_image(walk, &header);
out:
    if (fd >= 0) (void)kernel->close(kernel, fd);
    return r < 0 ? r : 0;
}

/* Segments that are not there, as one piece. */
static int tell_missing(struct walk *walk, uint64_t sequence)
{
    struct log_piece piece = {.kind = LOG_PIECE_MISSING, .sequence = sequence};

    walk->position = 0; /* where the next one begins only that can say */
    return tell(walk, &piece);
}

static int walk_all(struct walk *walk)
{
    const uint64_t *sequences = walk->listing.numbers[LOG_SEGMENT];
    size_t count = walk->listing.count[LOG_SEGMENT];
    uint64_t next = walk->meta.sequence;
    int r = 0;

    for (size_t i = 0; r == 0 && i < count; i++) {
        if (sequences[i] < walk->meta.sequence) continue;
        /* One that is missing has its range between its neighbours; of more nothing is known. */
        if (sequences[i] - next > 1) r = tell_missing(walk, next);
        if (sequences[i] - next == 1) r = walk_segment(walk, next, false);
        if (r == 0) r = walk_segment(walk, sequences[i], i + 1 == count);
        next = sequences[i] + 1;
    }
    if (r == 0 && next <= walk->meta.sequence_last) r = tell_missing(walk, next);
    return r;
}

static int walk_begin(struct walk *walk, const struct kernel *kernel, const char *path)
{
    int r = log_folder_open(&walk->folder, kernel, path, false, walk->why);

    if (r == 0) r = log_folder_lock(&walk->folder, walk->why);
    if (r == 0) r = log_listing_fill(&walk->listing, &walk->folder, walk->why);
    if (r == 0) r = log_meta_read(&walk->folder, &walk->meta, walk->why);
    return r;
}

static void walk_end(struct walk *walk)
{
    log_listing_free(&walk->listing);
    log_folder_close(&walk->folder);
}

int log_dump(const struct kernel *kernel, const char *path, log_piece_fn piece, void *arg,
             struct log_why *why)
{
    struct walk walk = {.piece = piece, .arg = arg, .why = why};
    int r = walk_begin(&walk, kernel, path);

    if (r == 0) r = walk_all(&walk);
    walk_end(&walk);
    return r < 0 ? r : walk.damage_count;
}

/* ---- Repair ---- */

struct damage_only {
    log_piece_fn piece;
    void *arg;
};

static int tell_damage(void *arg, const struct log_piece *piece)
{
    const struct damage_only *only = arg;

    if (piece->kind != LOG_PIECE_DAMAGE && piece->kind != LOG_PIECE_MISSING) return 0;
    return only->piece ? only->piece(only->arg, piece) : 0;
}

static int check_free(const struct kernel *kernel, const char *path, struct log_why *why)
{
    struct stat found;
    int r = kernel->stat(kernel, path, &found);

    if (r == -ENOENT) return 0;
    return log_fail(why, r < 0 ? r : -EEXIST, "'%s' is there already", path);
}

/* Whether META's size of segments is that of one at least: memory is taken for it. */
static int check_size(struct walk *walk)
{
    for (size_t i = 0; i < walk->listing.count[LOG_SEGMENT]; i++) {
        char name[LOG_NAME_BYTES];
        uint64_t bytes;

        log_name(name, walk->listing.numbers[LOG_SEGMENT][i], LOG_SEGMENT);
        if (log_folder_size(&walk->folder, name, &bytes, walk->why) == 0 &&
            bytes == walk->meta.segment_bytes)
            return 0;
    }
    return log_fail(walk->why, -EBADMSG, "store '%s': no segment is as long as META says",
                    walk->folder.path);
}

static int repair_into(struct walk *walk, const struct log_folder *to)
{
    struct log_meta meta = walk->meta;
    struct log_recovered found;
    uint64_t first;
    int r;

    r = check_size(walk);
    if (r < 0) return r;
    walk->to = to;
    walk->image = mem_alloc((size_t)walk->meta.segment_bytes);
    if (!walk->image) return log_fail(walk->why, -ENOMEM, "no memory for a segment");
    r = walk_all(walk);
    mem_free(walk->image);
    if (r < 0) return r;
    /* Segments at the begin that nothing is known of are not there any more. */
    log_listing_free(&walk->listing);
    r = log_listing_fill(&walk->listing, to, walk->why);
    if (r == 0 && walk->listing.count[LOG_SEGMENT] == 0)
        r = log_fail(walk->why, -EBADMSG, "there is no segment that could be repaired");
    if (r < 0) return r;
    first = walk->listing.numbers[LOG_SEGMENT][0];
    meta.sequence = first;
    meta.sequence_last = walk->listing.numbers[LOG_SEGMENT][walk->listing.count[LOG_SEGMENT] - 1];
    r = log_meta_create(to, &meta, walk->why);
    if (r == 0) r = log_folder_sync(to, walk->why);
    /* What does not open is no repair: headers may contradict each other. */
    if (r == 0)
        r = log_recover(to, &(struct log_recover_spec){.read_only = true}, &found, walk->why);
    if (r == 0) log_recovered_free(to, &found);
    return r;
}

int log_repair(const struct kernel *kernel, const char *from, const char *to, log_piece_fn piece,
               void *arg, struct log_why *why)
{
    struct damage_only only = {piece, arg};
    struct walk walk = {.piece = tell_damage, .arg = &only, .why = why};
    char partial[LOG_PATH_BYTES];
    struct log_folder target;
    int r;

    if (snprintf(partial, sizeof partial, "%s.partial", to) >= (int)sizeof partial)
        return log_fail(why, -ENAMETOOLONG, "the path is too long");
    r = check_free(kernel, to, why);
    if (r == 0) r = check_free(kernel, partial, why);
    if (r < 0) return r;
    r = walk_begin(&walk, kernel, from);
    if (r == 0) {
        r = log_folder_open(&target, kernel, partial, true, why);
        if (r == 0) r = repair_into(&walk, &target);
        if (r == 0) {
            r = kernel->rename(kernel, partial, to);
            if (r < 0) log_fail(why, r, "rename to '%s': %s", to, weir_strerror(r));
        }
        /* What was told to be repaired must not be gone, or "partial", after a power cut. */
        if (r == 0) r = log_folder_sync_name(&target, why);
        log_folder_close(&target);
    }
    walk_end(&walk);
    return r < 0 ? r : walk.damage_count;
}
