/* buffer.h - bytes that are written one after the other, up to a bound.
 *
 * Memory comes from whoever opens it: a block that does not grow, or a hook that is asked for
 * more. The first failure stays, and what is put after it is dropped; so a writer puts all it has
 * and looks at buffer_error() once.
 *
 * Invariants: used <= room <= bytes_max. A put is whole or not at all.
 * Threads: one at a time.
 */
#ifndef WEIR_PROTO_BUFFER_H
#define WEIR_PROTO_BUFFER_H

#include "proto/bytes.h"

/* As realloc: bytes 0 gives the block back and returns NULL, NULL is a new one. */
typedef void *(*buffer_resize_fn)(void *arg, void *block, size_t bytes_before, size_t bytes);

struct buffer {
    char *at;
    size_t used, room, bytes_max;
    buffer_resize_fn resize; /* NULL: it does not grow */
    void *arg;
    int error;
};

void buffer_init(struct buffer *buffer, size_t bytes_max, buffer_resize_fn resize, void *arg);
/* On the caller's block, which has to outlive it. */
void buffer_init_fixed(struct buffer *buffer, char *keep_block, size_t bytes);
void buffer_deinit(struct buffer *buffer);

/* Empty again, and without an error; the memory stays. */
void buffer_clear(struct buffer *buffer);
/* The first `count` bytes were sent: the others move to the front. */
void buffer_drop(struct buffer *buffer, size_t count);

void buffer_put_uint(struct buffer *buffer, uint64_t value);
void buffer_put_int(struct buffer *buffer, int64_t value);

/* The same where it has to grow, or has failed. */
char *buffer_extend_slow(struct buffer *buffer, size_t count);

/* Room for `count` bytes, which are counted at once and filled by the caller; NULL: none. */
static inline char *buffer_extend(struct buffer *buffer, size_t count)
{
    if (buffer->error < 0 || count > buffer->room - buffer->used)
        return buffer_extend_slow(buffer, count);
    buffer->used += count;
    return buffer->at + (buffer->used - count);
}

static inline void buffer_put(struct buffer *buffer, const void *bytes, size_t count)
{
    char *at = count > 0 ? buffer_extend(buffer, count) : NULL;

    if (at) memcpy(at, bytes, count);
}

static inline void buffer_put_bytes(struct buffer *buffer, struct bytes bytes)
{
    buffer_put(buffer, bytes.at, bytes.count);
}

static inline void buffer_put_string(struct buffer *buffer, const char *string)
{
    buffer_put(buffer, string, strlen(string));
}

static inline void buffer_put_char(struct buffer *buffer, char c)
{
    buffer_put(buffer, &c, 1);
}

/* 0, -EMSGSIZE (its bound), -ENOMEM (the hook), or what buffer_fail() said. */
static inline int buffer_error(const struct buffer *buffer)
{
    return buffer->error;
}

/* What was written is of no use; an earlier failure stays. */
static inline void buffer_fail(struct buffer *buffer, int error)
{
    if (buffer->error == 0) buffer->error = error;
}

static inline struct bytes buffer_bytes(const struct buffer *buffer)
{
    return (struct bytes){buffer->at, buffer->used};
}

#endif
