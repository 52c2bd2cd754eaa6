/* log_format.h - the bytes of a store on disk: docs/formats/store.md, which is changed with it.
 *
 * Encoding and decoding only: no file, no clock, no memory of its own.
 *
 * A store is a folder: META (where the log begins), segments (the log), spares. A segment is a
 * header and frames, one after the other. A frame's checksums begin with the store's id and the
 * frame's position in the log, so bytes that lie elsewhere than where they were written (left over
 * in a segment that is used again, or of another store) are never a frame.
 *
 * Threads: any.
 */
#ifndef WEIR_STORE_LOG_FORMAT_H
#define WEIR_STORE_LOG_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LOG_VERSION = 1,
    LOG_ID_BYTES = 16,
    LOG_ALIGN = 8,
    LOG_HEADER_BYTES = 512,        /* of a segment, before its first frame */
    LOG_HEADER_USED_BYTES = 68,    /* of them; the others are 0 */
    LOG_META_SLOT_BYTES = 512,     /* written at once: one sector */
    LOG_META_USED_BYTES = 68,      /* of them */
    LOG_META_SLOT_DISTANCE = 4096, /* from one slot to the other */
    LOG_META_SLOTS = 2,
    LOG_META_BYTES = LOG_META_SLOT_DISTANCE + LOG_META_SLOT_BYTES,
    LOG_FRAME_BYTES = 16,    /* before a frame's data */
    LOG_MARK_BYTES = 8,      /* data of a mark */
    LOG_POSITION_FIRST = 64, /* of a new log: 0 is no position */
    LOG_SEGMENT_BYTES_MIN = 4096,
};
#define LOG_RECORD_BYTES_LIMIT (UINT32_C(16) << 20)
#define LOG_SEGMENT_BYTES_MAX (INT64_C(1) << 32)

/* What a frame is. */
enum log_kind {
    LOG_KIND_NONE = 0,
    LOG_KIND_RECORD = 1,
    LOG_KIND_MARK = 2, /* everything before a position was on disk when this was written */
    LOG_KIND_GAP = 3,  /* damage that a repair has covered: what was here is lost */
    LOG_KINDS,
};

struct log_id {
    unsigned char bytes[LOG_ID_BYTES];
};

struct log_meta {
    struct log_id id;
    uint64_t generation;    /* the valid slot with the higher one counts */
    uint64_t sequence;      /* of the first segment of the log */
    uint64_t sequence_last; /* a segment that was there; later ones may be */
    uint64_t segment_bytes;
};

struct log_header {
    struct log_id id;
    uint64_t sequence;
    uint64_t position; /* of its first frame */
    uint64_t segment_bytes;
};

struct log_frame {
    uint32_t bytes; /* of data */
    uint8_t kind;   /* enum log_kind */
    uint16_t tag;   /* of a record: its owner's */
    uint32_t data_crc;
};

/* Where all checksums of a store's frames begin. */
uint32_t log_id_seed(const struct log_id *id);

/* Bytes of a frame with so much data, its padding included. */
static inline uint64_t log_frame_size(uint64_t data_bytes)
{
    return (LOG_FRAME_BYTES + data_bytes + LOG_ALIGN - 1) & ~(uint64_t)(LOG_ALIGN - 1);
}

void log_meta_encode(const struct log_meta *meta, unsigned char slot[LOG_META_SLOT_BYTES]);
void log_header_encode(const struct log_header *header, unsigned char block[LOG_HEADER_BYTES]);

/* NULL, or why not, in words that follow the name of the file. `*ret_newer`: the version is one
 * that this code does not know. */
const char *log_meta_decode(const unsigned char slot[LOG_META_SLOT_BYTES],
                            struct log_meta *ret_meta, bool *ret_newer);
const char *log_header_decode(const unsigned char block[LOG_HEADER_BYTES],
                              struct log_header *ret_header, bool *ret_newer);

/* A frame: its checksum over `data`, and its head. */
uint32_t log_frame_data_crc(uint32_t seed, uint64_t position, const void *data, size_t bytes);
void log_frame_encode(uint32_t seed, uint64_t position, const struct log_frame *frame,
                      unsigned char head[LOG_FRAME_BYTES]);
/* Whether these bytes are the head of a frame at this position. Its data may still be torn. */
bool log_frame_decode(uint32_t seed, uint64_t position, const unsigned char head[LOG_FRAME_BYTES],
                      struct log_frame *ret_frame);

/* A mark, whole. */
enum { LOG_MARK_SIZE = LOG_FRAME_BYTES + LOG_MARK_BYTES };
void log_mark_encode(uint32_t seed, uint64_t position, uint64_t synced,
                     unsigned char frame[LOG_MARK_SIZE]);
uint64_t log_mark_synced(const unsigned char data[LOG_MARK_BYTES]);

#endif
