/* log_format.c - see log_format.h and docs/formats/store.md. */
#include "store/log_format.h"

#include <string.h>

#include "base/crc32c.h"

/* Written as the machine has it, all else little-endian byte by byte: so a machine of the other
 * byte order sees what it has before it. */
#define ORDER_MARK UINT32_C(0x0a0b0c0d)
#define ORDER_MARK_SWAPPED UINT32_C(0x0d0c0b0a)

static const char meta_magic[8] = {'w', 'e', 'i', 'r', 'm', 'e', 't', 'a'};
static const char segment_magic[8] = {'w', 'e', 'i', 'r', '-', 'l', 'o', 'g'};

/* Offsets that META and segments have in common. */
enum {
    AT_MAGIC = 0,
    AT_VERSION = 8,
    AT_ORDER = 12,
    AT_ID = 16,
    AT_FIRST = 32,
    AT_SECOND = 40,
    AT_THIRD = 48,
    AT_FOURTH = 56,
    AT_CRC = 64,
};

static void put_le(unsigned char *at, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) at[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t get_le(const unsigned char *at, unsigned bytes)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

/* ---- META and headers: the same outside ---- */

struct block {
    const char *magic;
    struct log_id id;
    uint64_t numbers[4];
};

static void block_encode(const struct block *block, unsigned char *data)
{
    const uint32_t order = ORDER_MARK;

    memcpy(data + AT_MAGIC, block->magic, sizeof meta_magic);
    put_le(data + AT_VERSION, LOG_VERSION, 4);
    memcpy(data + AT_ORDER, &order, sizeof order);
    memcpy(data + AT_ID, block->id.bytes, LOG_ID_BYTES);
    put_le(data + AT_FIRST, block->numbers[0], 8);
    put_le(data + AT_SECOND, block->numbers[1], 8);
    put_le(data + AT_THIRD, block->numbers[2], 8);
    put_le(data + AT_FOURTH, block->numbers[3], 8);
    put_le(data + AT_CRC, crc32c(0, data, AT_CRC), 4);
}

/* What it is comes before whether it is whole: a newer version may have its checksum elsewhere. */
static const char *block_decode(const unsigned char *data, const char *magic,
                                struct block *ret_block, bool *ret_newer)
{
    uint32_t order;

    *ret_newer = false;
    memcpy(&order, data + AT_ORDER, sizeof order);
    if (memcmp(data + AT_MAGIC, magic, sizeof meta_magic) != 0)
        return "does not begin as it should";
    if (order == ORDER_MARK_SWAPPED)
        return "was written by a machine of the other byte order, which cannot be read here";
    if (order == ORDER_MARK && get_le(data + AT_VERSION, 4) > LOG_VERSION) {
        *ret_newer = true;
        return "has a newer version than this program knows: use a newer one";
    }
    if (get_le(data + AT_CRC, 4) != crc32c(0, data, AT_CRC)) return "has a wrong checksum";
    if (order != ORDER_MARK) return "has no mark of its byte order";
    if (get_le(data + AT_VERSION, 4) != LOG_VERSION) return "has a version that never was";
    memcpy(ret_block->id.bytes, data + AT_ID, LOG_ID_BYTES);
    ret_block->numbers[0] = get_le(data + AT_FIRST, 8);
    ret_block->numbers[1] = get_le(data + AT_SECOND, 8);
    ret_block->numbers[2] = get_le(data + AT_THIRD, 8);
    ret_block->numbers[3] = get_le(data + AT_FOURTH, 8);
    return NULL;
}

static bool segment_bytes_fit(uint64_t bytes)
{
    return bytes >= LOG_SEGMENT_BYTES_MIN && bytes <= LOG_SEGMENT_BYTES_MAX &&
           bytes % LOG_HEADER_BYTES == 0;
}

void log_meta_encode(const struct log_meta *meta, unsigned char slot[LOG_META_SLOT_BYTES])
{
    struct block block = {
        meta_magic,
        meta->id,
        {meta->segment_bytes, meta->generation, meta->sequence, meta->sequence_last}};

    memset(slot, 0, LOG_META_SLOT_BYTES);
    block_encode(&block, slot);
}

const char *log_meta_decode(const unsigned char slot[LOG_META_SLOT_BYTES],
                            struct log_meta *ret_meta, bool *ret_newer)
{
    struct block block;
    const char *why = block_decode(slot, meta_magic, &block, ret_newer);

    if (why) return why;
    if (!segment_bytes_fit(block.numbers[0])) return "has a size of segments that cannot be";
    if (block.numbers[1] == 0 || block.numbers[2] == 0 || block.numbers[2] > block.numbers[3])
        return "has numbers that cannot be";
    *ret_meta = (struct log_meta){.id = block.id,
                                  .segment_bytes = block.numbers[0],
                                  .generation = block.numbers[1],
                                  .sequence = block.numbers[2],
                                  .sequence_last = block.numbers[3]};
    return NULL;
}

void log_header_encode(const struct log_header *header, unsigned char data[LOG_HEADER_BYTES])
{
    struct block block = {
        segment_magic, header->id, {header->segment_bytes, header->sequence, header->position, 0}};

    memset(data, 0, LOG_HEADER_BYTES);
    block_encode(&block, data);
}

const char *log_header_decode(const unsigned char data[LOG_HEADER_BYTES],
                              struct log_header *ret_header, bool *ret_newer)
{
    struct block block;
    const char *why = block_decode(data, segment_magic, &block, ret_newer);

    if (why) return why;
    if (!segment_bytes_fit(block.numbers[0])) return "has a size that cannot be";
    /* The end of time for positions is far beyond what can be written. */
    if (block.numbers[2] < LOG_POSITION_FIRST || block.numbers[2] % LOG_ALIGN != 0 ||
        block.numbers[2] > UINT64_MAX / 2)
        return "begins at a position that cannot be";
    *ret_header = (struct log_header){.id = block.id,
                                      .segment_bytes = block.numbers[0],
                                      .sequence = block.numbers[1],
                                      .position = block.numbers[2]};
    return NULL;
}

/* ---- Frames ---- */

enum { AT_BYTES = 0, AT_KIND = 4, AT_NOTHING = 5, AT_TAG = 6, AT_DATA_CRC = 8, AT_HEAD_CRC = 12 };

uint32_t log_id_seed(const struct log_id *id)
{
    return crc32c(0, id->bytes, LOG_ID_BYTES);
}

static uint32_t seed_at(uint32_t seed, uint64_t position)
{
    unsigned char bytes[8];

    put_le(bytes, position, sizeof bytes);
    return crc32c(seed, bytes, sizeof bytes);
}

uint32_t log_frame_data_crc(uint32_t seed, uint64_t position, const void *data, size_t bytes)
{
    return crc32c(seed_at(seed, position), data, bytes);
}

void log_frame_encode(uint32_t seed, uint64_t position, const struct log_frame *frame,
                      unsigned char head[LOG_FRAME_BYTES])
{
    put_le(head + AT_BYTES, frame->bytes, 4);
    head[AT_KIND] = frame->kind;
    head[AT_NOTHING] = 0;
    put_le(head + AT_TAG, frame->tag, 2);
    put_le(head + AT_DATA_CRC, frame->data_crc, 4);
    put_le(head + AT_HEAD_CRC, crc32c(seed_at(seed, position), head, AT_HEAD_CRC), 4);
}

bool log_frame_decode(uint32_t seed, uint64_t position, const unsigned char head[LOG_FRAME_BYTES],
                      struct log_frame *ret_frame)
{
    struct log_frame frame = {
        .bytes = (uint32_t)get_le(head + AT_BYTES, 4),
        .kind = head[AT_KIND],
        .tag = (uint16_t)get_le(head + AT_TAG, 2),
        .data_crc = (uint32_t)get_le(head + AT_DATA_CRC, 4),
    };

    /* Looked at first: it is what zeroes and most other bytes fail by, without a checksum. */
    if (frame.kind == LOG_KIND_NONE || frame.bytes > LOG_RECORD_BYTES_LIMIT) return false;
    if (get_le(head + AT_HEAD_CRC, 4) != crc32c(seed_at(seed, position), head, AT_HEAD_CRC))
        return false;
    *ret_frame = frame;
    return true;
}

void log_mark_encode(uint32_t seed, uint64_t position, uint64_t synced,
                     unsigned char frame[LOG_MARK_SIZE])
{
    unsigned char *data = frame + LOG_FRAME_BYTES;
    struct log_frame head = {.bytes = LOG_MARK_BYTES, .kind = LOG_KIND_MARK};

    put_le(data, synced, LOG_MARK_BYTES);
    head.data_crc = log_frame_data_crc(seed, position, data, LOG_MARK_BYTES);
    log_frame_encode(seed, position, &head, frame);
}

uint64_t log_mark_synced(const unsigned char data[LOG_MARK_BYTES])
{
    return get_le(data, LOG_MARK_BYTES);
}
