/* buffer.c - growth by doubling, and the bound. */
#include "proto/buffer.h"

#include <assert.h>
#include <errno.h>

enum { ROOM_MIN = 256, DIGITS_MAX = 20 };

void buffer_init(struct buffer *buffer, size_t bytes_max, buffer_resize_fn resize, void *arg)
{
    *buffer = (struct buffer){.bytes_max = bytes_max, .resize = resize, .arg = arg};
}

void buffer_init_fixed(struct buffer *buffer, char *keep_block, size_t bytes)
{
    *buffer = (struct buffer){.at = keep_block, .room = bytes, .bytes_max = bytes};
}

void buffer_deinit(struct buffer *buffer)
{
    if (buffer->resize && buffer->at) {
        (void)buffer->resize(buffer->arg, buffer->at, buffer->room, 0);
    }
    *buffer = (struct buffer){0};
}

void buffer_clear(struct buffer *buffer)
{
    buffer->used = 0;
    buffer->error = 0;
}

void buffer_drop(struct buffer *buffer, size_t count)
{
    assert(count <= buffer->used);
    buffer->used -= count;
    if (buffer->used > 0 && count > 0) memmove(buffer->at, buffer->at + count, buffer->used);
}

static bool grow(struct buffer *buffer, size_t needed)
{
    size_t room = buffer->room < ROOM_MIN ? ROOM_MIN : buffer->room;
    char *at;

    while (room < needed && room <= buffer->bytes_max / 2) room *= 2;
    if (room < needed || room > buffer->bytes_max) room = buffer->bytes_max;
    at = buffer->resize(buffer->arg, buffer->at, buffer->room, room);
    if (!at) {
        buffer->error = -ENOMEM;
        return false;
    }
    buffer->at = at;
    buffer->room = room;
    return true;
}

char *buffer_extend_slow(struct buffer *buffer, size_t count)
{
    char *at;

    if (buffer->error < 0) return NULL;
    if (count > buffer->bytes_max - buffer->used) {
        buffer->error = -EMSGSIZE;
        return NULL;
    }
    if (count > buffer->room - buffer->used && !grow(buffer, buffer->used + count)) return NULL;
    at = buffer->at + buffer->used;
    buffer->used += count;
    return at;
}

void buffer_put_uint(struct buffer *buffer, uint64_t value)
{
    char digits[DIGITS_MAX];
    size_t at = DIGITS_MAX;

    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    buffer_put(buffer, digits + at, DIGITS_MAX - at);
}

void buffer_put_int(struct buffer *buffer, int64_t value)
{
    char digits[DIGITS_MAX + 1];
    struct buffer text;

    /* In one put, so that a number is never cut after its sign. */
    buffer_init_fixed(&text, digits, sizeof digits);
    if (value < 0) buffer_put_char(&text, '-');
    buffer_put_uint(&text, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
    buffer_put_bytes(buffer, buffer_bytes(&text));
}
