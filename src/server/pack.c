/* pack.c - zlib, with memory of ours. */
#include "server/pack.h"

#include <zlib.h>

#include "rt/mem.h"
#include "rt/sanitize.h"

enum { LEVEL = 1, WINDOW_BITS = 15 + 16, MEMORY_LEVEL = 8 }; /* 16: with the head of gzip */

struct packer {
    z_stream stream;
};

static void *take_memory(void *arg, unsigned count, unsigned bytes)
{
    (void)arg;
    return mem_alloc_zeroed((size_t)count * bytes);
}

static void give_memory(void *arg, void *memory)
{
    (void)arg;
    mem_free(memory);
}

static struct packer *packer_new(void)
{
    struct packer *packer = mem_alloc_zeroed(sizeof *packer);

    if (!packer) return NULL;
    packer->stream.zalloc = take_memory;
    packer->stream.zfree = give_memory;
    if (deflateInit2(&packer->stream, LEVEL, Z_DEFLATED, WINDOW_BITS, MEMORY_LEVEL,
                     Z_DEFAULT_STRATEGY) != Z_OK) {
        mem_free(packer);
        return NULL;
    }
    return packer;
}

bool pack(struct packer **packer, struct bytes body, struct buffer *out)
{
    z_stream *stream;
    char *at;

    buffer_clear(out);
    if (!*packer) *packer = packer_new();
    if (!*packer) return false;
    sanitize_acquire(*packer); /* from other tasks of this worker */
    at = buffer_extend(out, body.count);
    if (!at) return false;
    stream = &(*packer)->stream;
    stream->next_in = (unsigned char *)(uintptr_t)body.at;
    stream->avail_in = (unsigned)body.count;
    stream->next_out = (unsigned char *)at;
    stream->avail_out = (unsigned)body.count;
    /* No room for the end: it is not smaller. */
    if (deflate(stream, Z_FINISH) != Z_STREAM_END)
        out->used = 0;
    else
        out->used = body.count - stream->avail_out;
    (void)deflateReset(stream);
    sanitize_release(*packer);
    return out->used > 0;
}

void packer_free(struct packer *take_packer)
{
    if (!take_packer) return;
    sanitize_acquire(take_packer);
    (void)deflateEnd(&take_packer->stream);
    mem_free(take_packer);
}
