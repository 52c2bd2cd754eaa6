/* memory.c - the counting allocator behind weir_set_allocator.
 *
 * Every block has a header that links it into a list and says who made it. Fresh
 * memory is filled with a pattern and freed memory with another, so that a reader
 * of either is noticed without a sanitizer.
 *
 * ThreadSanitizer does not see the list nor its lock: each allocation would order
 * the tasks that make one, and so hide their races.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/runtime.h>

#include "base/list.h"
#include "rt/sanitize.h"
#include "testing/harness.h"

enum {
    FRAMES_KEPT = 8,
    FRAMES_SKIPPED = 2,          /* our own */
    TRACED_BLOCKS_MAX = 1 << 17, /* beyond it, blocks are only counted: a trace costs 2 us */
    FILLED_BYTES_MAX = 4096,
    LEAKS_SHOWN = 5,
};

#define BLOCK_MAGIC UINT64_C(0x77656972626c6f6b)

struct block {
    struct list node;
    size_t bytes;
    uint64_t serial;
    void *frames[FRAMES_KEPT];
    int64_t frame_count;
    uint64_t magic; /* last: what writes in front of a block hits it */
};

_Static_assert(sizeof(struct block) % 16 == 0, "blocks keep malloc's alignment");

static struct {
    pthread_mutex_t mutex;
    struct list live;
    size_t blocks;
    size_t bytes;
    uint64_t serial;  /* allocations so far */
    uint64_t fail_at; /* the one that fails, or 0 */
    bool failed;
} memory = {.mutex = PTHREAD_MUTEX_INITIALIZER};

#if WEIR_TSAN
static void memory_lock(void)
{
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    pthread_mutex_lock(&memory.mutex);
}

static void memory_unlock(void)
{
    pthread_mutex_unlock(&memory.mutex);
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
}
#else
static void memory_lock(void)
{
    pthread_mutex_lock(&memory.mutex);
}

static void memory_unlock(void)
{
    pthread_mutex_unlock(&memory.mutex);
}
#endif

/* Count an allocation; false if it is the one that fails. */
static bool allocation_allowed(void)
{
    memory.serial++;
    if (memory.serial != memory.fail_at) return true;
    memory.fail_at = 0;
    memory.failed = true;
    return false;
}

static void block_link(struct block *block, size_t bytes)
{
    block->bytes = bytes;
    block->serial = memory.serial;
    block->magic = BLOCK_MAGIC;
    list_add_tail(&memory.live, &block->node);
    memory.blocks++;
    memory.bytes += bytes;
}

static void block_unlink(struct block *block)
{
    list_remove(&block->node);
    memory.blocks--;
    memory.bytes -= block->bytes;
}

static struct block *block_of(void *data)
{
    struct block *block = (struct block *)data - 1;

    if (block->magic == BLOCK_MAGIC) return block;
    fprintf(stderr, "memory %p was not allocated, was freed twice, or is overwritten in front\n",
            data);
    abort();
}

static __attribute__((noinline)) void block_trace(struct block *block, bool traced)
{
    void *frames[FRAMES_KEPT + FRAMES_SKIPPED];
    int count;

    block->frame_count = 0;
    if (!traced) return;
    count = frames_take(frames, FRAMES_KEPT + FRAMES_SKIPPED);
    for (int i = FRAMES_SKIPPED; i < count; i++) block->frames[block->frame_count++] = frames[i];
}

static void *block_new(size_t bytes)
{
    struct block *block;
    bool allowed, traced;

    memory_lock();
    allowed = allocation_allowed();
    traced = memory.blocks < TRACED_BLOCKS_MAX;
    memory_unlock();
    if (!allowed) return NULL;
    block = malloc(sizeof *block + bytes);
    if (block == NULL) return NULL;
    memset(block + 1, 0xa5, bytes < FILLED_BYTES_MAX ? bytes : FILLED_BYTES_MAX);
    block_trace(block, traced);
    memory_lock();
    block_link(block, bytes);
    memory_unlock();
    return block + 1;
}

static void block_free(struct block *block)
{
    memory_lock();
    block_unlink(block);
    memory_unlock();
    block->magic = 0;
    memset(block + 1, 0xdd, block->bytes < FILLED_BYTES_MAX ? block->bytes : FILLED_BYTES_MAX);
    free(block);
}

/* Always a new place: what keeps a pointer to the old one is noticed. */
static void *counting_resize(void *arg, void *data, size_t bytes)
{
    struct block *old;
    void *fresh;

    (void)arg;
    if (data == NULL) return bytes > 0 ? block_new(bytes) : NULL;
    old = block_of(data);
    if (bytes == 0) {
        block_free(old);
        return NULL;
    }
    fresh = block_new(bytes);
    if (fresh == NULL) return NULL;
    memcpy(fresh, data, bytes < old->bytes ? bytes : old->bytes);
    block_free(old);
    return fresh;
}

void memory_install(void)
{
    const weir_allocator counting = {.resize = counting_resize};

    list_init(&memory.live);
    /* A test may fork while other threads allocate. */
    pthread_atfork(memory_lock, memory_unlock, memory_unlock);
    if (weir_set_allocator(&counting) < 0)
        weir_test_fail(__FILE__, __LINE__, "weir_set_allocator refuses, with no runtime open");
}

void memory_mark(struct memory_mark *ret_mark)
{
    memory_lock();
    *ret_mark = (struct memory_mark){memory.serial, memory.blocks, memory.bytes};
    memory_unlock();
}

bool memory_check(const struct memory_mark *mark)
{
    int shown = 0;

    if (memory.blocks == mark->blocks && memory.bytes == mark->bytes) return true;
    fprintf(stderr, "leak: memory: %zu blocks with %zu bytes, and there were %zu with %zu\n",
            memory.blocks, memory.bytes, mark->blocks, mark->bytes);
    for (struct list *node = memory.live.next; node != &memory.live; node = node->next) {
        struct block *block = container_of(node, struct block, node);

        if (block->serial <= mark->serial) continue;
        if (++shown > LEAKS_SHOWN) break;
        fprintf(stderr, "  %zu bytes, allocation number %llu, made at\n", block->bytes,
                (unsigned long long)block->serial);
        frames_print(block->frames, (int)block->frame_count);
    }
    return false;
}

void weir_test_fail_alloc_at(uint64_t n)
{
    memory_lock();
    memory.fail_at = n > 0 ? memory.serial + n : 0;
    memory.failed = false;
    memory_unlock();
}

bool weir_test_alloc_failed(void)
{
    bool failed;

    memory_lock();
    failed = memory.failed;
    memory_unlock();
    return failed;
}

uint64_t weir_test_alloc_count(void)
{
    struct memory_mark mark;

    memory_mark(&mark);
    return mark.serial;
}

size_t weir_test_live_blocks(void)
{
    struct memory_mark mark;

    memory_mark(&mark);
    return mark.blocks;
}

size_t weir_test_live_bytes(void)
{
    struct memory_mark mark;

    memory_mark(&mark);
    return mark.bytes;
}
