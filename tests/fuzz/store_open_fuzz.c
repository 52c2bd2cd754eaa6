/* store_open_fuzz.c - a store made of any bytes: it is opened, or refused with a sentence; looked
 * at, repaired, and what was repaired opens.
 *
 * input = flags (1 byte), META (64, if flags & META_GIVEN), a header (64, if flags & HEADER_GIVEN),
 * frames (the rest). What is not given is as it should be. With flags & SUMS_RIGHT checksums are
 * put right after that, so that what comes behind them is tried, too; with flags & TWO_SEGMENTS
 * the frames are two segments.
 */
#include <string.h>

#include "base/crc32c.h"
#include "fuzz/fuzz.h"
#include "store/log_recover.h"
#include "store/log_tool.h"
#include "unit/store/volume_kernel.h"

enum {
    SUMS_RIGHT = 1,
    META_GIVEN = 2,
    HEADER_GIVEN = 4,
    TWO_SEGMENTS = 8,
    SEGMENT = 4096,
    DISK_BYTES = 1 << 20,
    CRC_OFFSET = 64,
};

static const struct log_id id = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};

struct input {
    const uint8_t *data;
    size_t size;
};

static size_t take(struct input *input, void *data, size_t bytes)
{
    if (bytes > input->size) bytes = input->size;
    if (bytes > 0) memcpy(data, input->data, bytes);
    input->data += bytes;
    input->size -= bytes;
    return bytes;
}

static void put_file(const char *path, const unsigned char *data, size_t bytes)
{
    const struct kernel *kernel = &volume_kernel.kernel;
    int fd = kernel->open(kernel, path, 0102 /* O_RDWR | O_CREAT */, 0644);

    MUST(fd >= 0);
    MUST(kernel->pwrite(kernel, fd, data, bytes, 0) == (ssize_t)bytes);
    MUST(kernel->close(kernel, fd) == 0);
}

static void put_sum(unsigned char *block)
{
    uint32_t sum = crc32c(0, block, CRC_OFFSET);

    memcpy(block + CRC_OFFSET, &sum, sizeof sum);
}

/* Give frames one after the other the checksums that they should have; returns where they end. */
static uint64_t put_frame_sums(unsigned char *segment, uint64_t position)
{
    uint32_t seed = log_id_seed(&id);
    uint64_t offset = LOG_HEADER_BYTES;

    while (offset + LOG_FRAME_BYTES <= SEGMENT) {
        unsigned char *head = segment + offset;
        uint64_t at = position + (offset - LOG_HEADER_BYTES);
        struct log_frame frame = {
            .bytes = head[0] | (uint32_t)(head[1] & 3) << 8, .kind = head[4], .tag = head[6]};

        if (frame.kind == 0 || offset + log_frame_size(frame.bytes) > SEGMENT) break;
        frame.data_crc = log_frame_data_crc(seed, at, head + LOG_FRAME_BYTES, frame.bytes);
        if (head[5] == 0xff) frame.data_crc ^= 1; /* but not this one */
        log_frame_encode(seed, at, &frame, head);
        offset += log_frame_size(frame.bytes);
    }
    return position + (offset - LOG_HEADER_BYTES);
}

static uint64_t put_segment(struct input *input, unsigned flags, uint64_t sequence,
                            uint64_t position)
{
    static unsigned char segment[SEGMENT];
    struct log_header header = {
        .id = id, .sequence = sequence, .position = position, .segment_bytes = SEGMENT};
    char path[64], name[LOG_NAME_BYTES];
    uint64_t end = position;

    memset(segment, 0, sizeof segment);
    log_header_encode(&header, segment);
    if (flags & HEADER_GIVEN) (void)take(input, segment, CRC_OFFSET);
    if (flags & SUMS_RIGHT) put_sum(segment);
    if (flags & TWO_SEGMENTS && sequence == 1) {
        (void)take(input, segment + LOG_HEADER_BYTES, input->size / 2);
    } else {
        (void)take(input, segment + LOG_HEADER_BYTES, SEGMENT - LOG_HEADER_BYTES);
    }
    if (flags & SUMS_RIGHT) end = put_frame_sums(segment, position);
    log_name(name, sequence, LOG_SEGMENT);
    (void)snprintf(path, sizeof path, "/store/%s", name);
    put_file(path, segment, sizeof segment);
    return end;
}

static void put_store(struct input *input)
{
    static unsigned char meta[LOG_META_BYTES];
    struct log_meta right = {
        .id = id, .generation = 2, .sequence = 1, .sequence_last = 1, .segment_bytes = SEGMENT};
    unsigned char flags = 0;
    uint64_t end;

    (void)take(input, &flags, 1);
    memset(meta, 0, sizeof meta);
    log_meta_encode(&right, meta);
    if (flags & META_GIVEN) (void)take(input, meta, CRC_OFFSET);
    if (flags & SUMS_RIGHT) put_sum(meta);
    MUST(volume_kernel.kernel.mkdir(&volume_kernel.kernel, "/store", 0755) == 0);
    put_file("/store/META", meta, sizeof meta);
    end = put_segment(input, flags, 1, LOG_POSITION_FIRST);
    if (flags & TWO_SEGMENTS) (void)put_segment(input, flags, 2, end);
}

static int recover(const char *path, bool read_only, uint64_t *ret_records)
{
    const struct log_recover_spec spec = {.read_only = read_only, .spares_max = 2};
    struct log_recovered found;
    struct log_folder folder;
    struct log_why why = {""};
    int r = log_folder_open(&folder, &volume_kernel.kernel, path, false, &why);

    MUST(r == 0);
    r = log_recover(&folder, &spec, &found, &why);
    if (r < 0) {
        MUST(r == -EBADMSG || r == -ENOTSUP);
        MUST(why.text[0] != '\0');
    } else {
        *ret_records = found.record_count;
        log_recovered_free(&folder, &found);
    }
    log_folder_close(&folder);
    return r;
}

static int count_piece(void *arg, const struct log_piece *piece)
{
    (void)piece;
    (*(uint64_t *)arg)++;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    uint64_t looked = 0, settled = 0, again = 0, pieces = 0;
    struct log_summary summary;
    struct log_why why;
    int r, damage;

    (void)volume_kernel_begin(DISK_BYTES);
    put_store(&input);
    r = recover("/store", true, &looked);
    damage = log_dump(&volume_kernel.kernel, "/store", count_piece, &pieces, &why);
    MUST(r < 0 || damage == 0); /* what can be opened has no damage */
    damage = log_repair(&volume_kernel.kernel, "/store", "/copy", NULL, NULL, &why);
    if (damage >= 0) MUST(log_verify(&volume_kernel.kernel, "/copy", &summary, &why) == 0);
    if (r == 0) {
        MUST(damage >= 0);
        MUST(summary.record_count == looked);
        MUST(recover("/store", false, &settled) == 0);
        MUST(settled == looked);
        MUST(recover("/store", false, &again) == 0);
        MUST(again == looked);
    }
    volume_kernel_end();
    return 0;
}
