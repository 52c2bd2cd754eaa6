/* codec_parts.h - what the files of the codec share: values of rows as bytes, and jobs.
 *
 * Invariants: as codec.h. One way to write each value; what is read otherwise makes the reader bad.
 */
#ifndef WEIR_ENGINE_CODEC_PARTS_H
#define WEIR_ENGINE_CODEC_PARTS_H

#include "engine/codec.h"

/* ---- Values ---- */

static inline void put_byte(struct writer *writer, unsigned value)
{
    writer->bytes[writer->count++] = (unsigned char)value;
}

static inline unsigned get_byte(struct reader *reader)
{
    if (reader->at < reader->end) return *reader->at++;
    reader->bad = true;
    return 0;
}

/* Differences go around at 2^64, so each value has one, whatever it is compared with. */
static inline uint64_t zigzag(uint64_t difference)
{
    return difference << 1 ^ (0 - (difference >> 63));
}

static inline uint64_t zigzag_back(uint64_t number)
{
    return number >> 1 ^ (0 - (number & 1));
}

static inline void put_near(struct writer *writer, uint64_t value, uint64_t near)
{
    put_number(writer, zigzag(value - near));
}

static inline uint64_t get_near(struct reader *reader, uint64_t near)
{
    return near + zigzag_back(get_number(reader, UINT64_MAX));
}

/* Ids and turns: neither the first nor the last number. */
static inline uint64_t get_inside(struct reader *reader, uint64_t value)
{
    if (value == 0 || value == UINT64_MAX) reader->bad = true;
    return value;
}

/* The id of a job that was there before, as good as always: how far it is behind the last one. */
static inline void put_old_id(struct writer *writer, uint64_t id)
{
    put_number(writer, writer->base.last_id - id);
}

static inline uint64_t get_old_id(struct reader *reader)
{
    return get_inside(reader, reader->base.last_id - get_number(reader, UINT64_MAX));
}

static inline void put_time(struct writer *writer, int64_t time_ms)
{
    put_number(writer, time_ms == 0 ? 0 : 1 + zigzag((uint64_t)(time_ms - writer->base.now_ms)));
}

static inline int64_t get_time(struct reader *reader)
{
    uint64_t number = get_number(reader, 4 * (uint64_t)TIME_READ_MAX);
    int64_t time_ms;

    if (number == 0) return 0;
    time_ms = reader->base.now_ms + (int64_t)zigzag_back(number - 1);
    if (time_ms <= 0 || time_ms > TIME_READ_MAX) reader->bad = true;
    return time_ms;
}

static inline void put_bytes(struct writer *writer, struct engine_slice slice)
{
    if (slice.count > 0) memcpy(writer->bytes + writer->count, slice.at, slice.count);
    writer->count += slice.count;
}

static inline struct engine_slice get_bytes(struct reader *reader, size_t count)
{
    struct engine_slice slice = {0};
    if (reader->bad || count > (size_t)(reader->end - reader->at)) {
        reader->bad = true;
        return slice;
    }
    slice.at = reader->at;
    slice.count = count;
    reader->at += count;
    return slice;
}

static inline void put_slice(struct writer *writer, struct engine_slice slice)
{
    put_number(writer, slice.count);
    put_bytes(writer, slice);
}

static inline struct engine_slice get_slice(struct reader *reader, size_t count_max)
{
    return get_bytes(reader, get_number(reader, count_max));
}

static inline struct engine_slice get_name(struct reader *reader)
{
    struct engine_slice name = get_slice(reader, ENGINE_NAME_BYTES_MAX);
    if (name.count == 0) reader->bad = true;
    return name;
}

static inline struct engine_slice get_key(struct reader *reader)
{
    return get_slice(reader, ENGINE_NAME_BYTES_MAX);
}

static inline uint32_t get_u32(struct reader *reader)
{
    return (uint32_t)get_number(reader, UINT32_MAX);
}

static inline uint16_t get_u16(struct reader *reader)
{
    return (uint16_t)get_number(reader, UINT16_MAX);
}

static inline bool get_bool(struct reader *reader)
{
    return get_number(reader, 1) != 0;
}

/* ---- codec_job.c: behind the byte with the type, which has the state, too ---- */

/* All behind the id. A usual set has what most sets of its state have: that is shorter, and a type
 * of its own. */
bool set_is_usual(const struct record_head *base, const struct op_set *set);
void put_set(struct writer *writer, const struct op_set *set, bool usual);
void get_set(struct reader *reader, unsigned state, bool usual, struct op_set *set);
void put_job(struct writer *writer, const struct op_job *job);
void get_job(struct reader *reader, unsigned state, struct op_job *job);

#endif
