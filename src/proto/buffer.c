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

/* The digits of a number, in pairs, up to `end`. Returns where they begin. */
static char *digits_before(char *end, uint64_t value)
{
    static const char pairs[] = "00010203040506070809101112131415161718192021222324"
                                "25262728293031323334353637383940414243444546474849"
                                "50515253545556575859606162636465666768697071727374"
                                "75767778798081828384858687888990919293949596979899";

    for (; value >= 100; value /= 100) {
        end -= 2;
        memcpy(end, pairs + value % 100 * 2, 2);
    }
    if (value < 10) {
        *--end = (char)('0' + value);
        return end;
    }
    end -= 2;
    memcpy(end, pairs + value * 2, 2);
    return end;
}

void buffer_put_uint(struct buffer *buffer, uint64_t value)
{
    char digits[DIGITS_MAX];
    const char *end = digits + DIGITS_MAX, *at = digits_before(digits + DIGITS_MAX, value);

    buffer_put(buffer, at, (size_t)(end - at));
}

void buffer_put_int(struct buffer *buffer, int64_t value)
{
    char digits[DIGITS_MAX + 1];
    char *end = digits + sizeof digits;
    char *at = digits_before(end, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);

    /* In one put, so that a number is never cut after its sign. */
    if (value < 0) *--at = '-';
    buffer_put(buffer, at, (size_t)(end - at));
}
