/* stack.c - slabs of guarded stacks, credits, and giving cold memory back. */
#include "rt/stack.h"

#include <assert.h>
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>
#include <weir/error.h>
#include <weir/runtime.h>

#include "rt/mem.h"
#include "rt/sanitize.h"

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102 /* Linux 6.13; not in the headers of Debian 12 */
#endif

enum { GUARD_PAGES = 4 };

/* Where frames begin differs from stack to stack, by lines of the cache: at the same
 * place of their pages all stacks would share a few sets of it, and a switch among more
 * than a handful of tasks would miss. */
enum { COLOURS = 16, COLOUR_BYTES = 64 };

/* Instrumented frames are several times as large. */
#if WEIR_ASAN || WEIR_TSAN
enum { SANITIZER_FACTOR = 4 };
#else
enum { SANITIZER_FACTOR = 1 };
#endif

/* STACK_SLAB_COUNT stacks, each with its guard below it, in one mapping. */
struct stack_slab {
    struct list node; /* in its class's slabs while it has cold stacks */
    struct list all_node;
    char *memory;
    size_t bytes;
    unsigned size_class;
    uint64_t cold; /* bit i: stack i is free and its memory untouched */
    struct stack stacks[STACK_SLAB_COUNT];
};
_Static_assert(STACK_SLAB_COUNT == 64, "the cold stacks of a slab are the bits of one word");

static size_t guard_bytes(const struct stack_pool *pool)
{
    return GUARD_PAGES * pool->page_bytes;
}

/* One page more than is promised: the colour is taken from it. */
static size_t mapped_bytes(const struct stack_pool *pool, unsigned size_class)
{
    return pool->classes[size_class].bytes + pool->page_bytes;
}

static size_t stride_bytes(const struct stack_pool *pool, unsigned size_class)
{
    return mapped_bytes(pool, size_class) + guard_bytes(pool);
}

static size_t charge_bytes(const struct stack_pool *pool, unsigned size_class)
{
    return pool->classes[size_class].bytes / STACK_CHARGE_PART;
}

void stack_pool_set_budget(struct stack_pool *pool, size_t budget_bytes, unsigned size_class)
{
    size_t least_bytes = STACK_COUNT_MAX_LEAST * charge_bytes(pool, size_class);
    size_t count;

    pool->budget_bytes = budget_bytes > least_bytes ? budget_bytes : least_bytes;
    count = pool->budget_bytes / charge_bytes(pool, size_class);
    if (pool->count_max > count) pool->count_max = count;
}

/* The lock is held. */
static bool has_room(const struct stack_pool *pool, unsigned size_class, size_t count)
{
    size_t left_bytes;

    if (pool->budget_bytes == 0) return true;
    left_bytes = pool->budget_bytes - pool->charged_bytes;
    return count <= left_bytes / charge_bytes(pool, size_class);
}

int stack_class_for(size_t bytes)
{
    size_t class_bytes = WEIR_STACK_BYTES_MIN;
    bytes *= SANITIZER_FACTOR;
    for (int i = 0; i < STACK_CLASSES; i++) {
        if (bytes <= class_bytes) return i;
        class_bytes *= 2;
    }
    return -1;
}

size_t stack_class_bytes(const struct stack_pool *pool, unsigned size_class)
{
    return pool->classes[size_class].bytes;
}

static int guard_install(const struct stack_pool *pool, char *guard)
{
    if (pool->guard_by_advice) {
        return pool->kernel->advise(pool->kernel, guard, guard_bytes(pool), MADV_GUARD_INSTALL);
    }
    return pool->kernel->protect(pool->kernel, guard, guard_bytes(pool), PROT_NONE);
}

/* Emulators answer 0 to advice they do not know, so the answer is not believed:
 * the kernel itself must refuse to read from the guard. */
static bool guard_advice_holds(struct stack_pool *pool)
{
    const struct kernel *kernel = pool->kernel;
    size_t bytes = 2 * guard_bytes(pool);
    bool holds = false;
    int fds[2];
    char *memory = kernel->map(kernel, bytes);

    if (!memory) return false;
    if (kernel->advise(kernel, memory, guard_bytes(pool), MADV_GUARD_INSTALL) < 0) goto out_unmap;
    if (kernel->pipe(kernel, fds) < 0) goto out_unmap;
    holds = kernel->write(kernel, fds[1], memory, 1) == -EFAULT &&
            kernel->write(kernel, fds[1], memory + guard_bytes(pool), 1) == 1;
    (void)kernel->close(kernel, fds[0]);
    (void)kernel->close(kernel, fds[1]);
out_unmap:
    kernel->unmap(kernel, memory, bytes);
    return holds;
}

int stack_pool_init(struct stack_pool *pool, const struct kernel *kernel, size_t count_max,
                    size_t caches)
{
    size_t bytes = WEIR_STACK_BYTES_MIN;
    size_t allowed;

    *pool = (struct stack_pool){.kernel = kernel, .caches = caches};
    lock_init(&pool->lock);
    list_init(&pool->all_slabs);
    pool->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < STACK_CLASSES; i++) {
        /* Guards and advice are by the page, which is up to 64 KiB on aarch64. */
        pool->classes[i].bytes = bytes > pool->page_bytes ? bytes : pool->page_bytes;
        list_init(&pool->classes[i].hot);
        list_init(&pool->classes[i].slabs);
        bytes *= 2;
    }
    pool->guard_by_advice = guard_advice_holds(pool);
    allowed = pool->guard_by_advice ? STACK_COUNT_MAX_DEFAULT : STACK_COUNT_MAX_PROTECTED;
    pool->count_max = count_max == 0 || count_max > allowed ? allowed : count_max;
    return 0;
}

static void slab_free(struct stack_pool *pool, struct stack_slab *slab)
{
    for (unsigned i = 0; i < STACK_SLAB_COUNT; i++) {
        if (slab->stacks[i].slab) sanitize_stack_forgotten(slab->stacks[i].known_as);
    }
    sanitize_stack_unmapped(slab->memory, slab->bytes);
    pool->kernel->unmap(pool->kernel, slab->memory, slab->bytes);
    mem_free(slab);
}

void stack_pool_deinit(struct stack_pool *pool)
{
    struct list *node;
    while ((node = list_pop(&pool->all_slabs))) {
        slab_free(pool, container_of(node, struct stack_slab, all_node));
    }
    lock_deinit(&pool->lock);
}

/* The guards of a slab: in one call if the kernel takes it, else one by one. */
static int guards_install(const struct stack_pool *pool, char *memory, size_t stride)
{
    struct iovec guards[STACK_SLAB_COUNT];

    for (unsigned i = 0; i < STACK_SLAB_COUNT; i++) {
        guards[i] = (struct iovec){memory + i * stride, guard_bytes(pool)};
    }
    if (pool->guard_by_advice && pool->kernel->advise_many &&
        pool->kernel->advise_many(pool->kernel, guards, STACK_SLAB_COUNT, MADV_GUARD_INSTALL) ==
            0) {
        return 0;
    }
    for (unsigned i = 0; i < STACK_SLAB_COUNT; i++) {
        int r = guard_install(pool, guards[i].iov_base);
        if (r < 0) return r;
    }
    return 0;
}

static int slab_add(struct stack_pool *pool, unsigned size_class)
{
    struct stack_pool_class *class = &pool->classes[size_class];
    size_t stride = stride_bytes(pool, size_class);
    struct stack_slab *slab = mem_alloc_zeroed(sizeof *slab);
    int r;

    if (!slab) return -ENOMEM;
    slab->size_class = size_class;
    slab->bytes = stride * STACK_SLAB_COUNT;
    slab->memory = pool->kernel->map(pool->kernel, slab->bytes);
    if (!slab->memory) {
        mem_free(slab);
        return -ENOMEM;
    }
    sanitize_stack_mapped(slab->memory, slab->bytes);
    r = guards_install(pool, slab->memory, stride);
    if (r < 0) {
        slab_free(pool, slab);
        return r == -EINTR ? -ENOMEM : r;
    }
    for (unsigned i = 0; i < STACK_SLAB_COUNT; i++) {
        struct stack *stack = &slab->stacks[i];
        list_init(&stack->node);
        stack->slab = slab;
        stack->low = slab->memory + i * stride + guard_bytes(pool);
        stack->top = stack->low + mapped_bytes(pool, size_class) - i % COLOURS * COLOUR_BYTES;
        stack->index = (uint8_t)i;
        stack->size_class = (uint8_t)size_class;
        stack->known_as = sanitize_stack_known(stack->low, stack->top);
    }
    slab->cold = UINT64_MAX;
    list_init(&slab->node);
    list_add_tail(&class->slabs, &slab->node);
    list_add_tail(&pool->all_slabs, &slab->all_node);
    class->mapped += STACK_SLAB_COUNT;
    return 0;
}

/* Map so much that `count` more credits of the class are good. The lock is held. */
static int ensure_mapped(struct stack_pool *pool, unsigned size_class, size_t count)
{
    struct stack_pool_class *class = &pool->classes[size_class];
    /* Every other worker may keep STACK_CACHE_MAX free stacks, and one more that it is
     * just leaving, which this one cannot reach. */
    size_t needed = class->credits + count + (pool->caches - 1) * (STACK_CACHE_MAX + 1);

    while (class->mapped < needed) {
        int r = slab_add(pool, size_class);
        if (r < 0) return r;
    }
    return 0;
}

int stack_credit_take(struct stack_pool *pool, unsigned size_class, size_t count)
{
    int r = WEIR_EOVERLOAD;

    lock_acquire(&pool->lock);
    if (pool->credits + count <= pool->count_max && has_room(pool, size_class, count)) {
        r = ensure_mapped(pool, size_class, count);
    }
    if (r == 0) {
        pool->classes[size_class].credits += count;
        pool->credits += count;
        pool->charged_bytes += count * charge_bytes(pool, size_class);
    }
    lock_release(&pool->lock);
    return r;
}

int stack_credit_lend(struct stack_pool *pool, unsigned size_class)
{
    int r = WEIR_EOVERLOAD;

    lock_acquire(&pool->lock);
    if (has_room(pool, size_class, 1)) r = ensure_mapped(pool, size_class, 1);
    if (r == 0) {
        pool->classes[size_class].credits++;
        pool->charged_bytes += charge_bytes(pool, size_class);
    }
    lock_release(&pool->lock);
    return r;
}

void stack_credit_unlend(struct stack_pool *pool, unsigned size_class)
{
    lock_acquire(&pool->lock);
    assert(pool->classes[size_class].credits > 0);
    pool->classes[size_class].credits--;
    pool->charged_bytes -= charge_bytes(pool, size_class);
    lock_release(&pool->lock);
}

void stack_credit_return(struct stack_pool *pool, unsigned size_class, size_t count)
{
    lock_acquire(&pool->lock);
    assert(pool->classes[size_class].credits >= count);
    pool->classes[size_class].credits -= count;
    pool->credits -= count;
    pool->charged_bytes -= count * charge_bytes(pool, size_class);
    lock_release(&pool->lock);
}

/* A stack that was never used, or whose memory was given back. */
static struct stack *cold_take(struct stack_pool_class *class)
{
    struct list *first = list_first(&class->slabs);
    if (!first) return NULL;

    struct stack_slab *slab = container_of(first, struct stack_slab, node);
    unsigned index = (unsigned)__builtin_ctzll(slab->cold);

    slab->cold &= slab->cold - 1;
    if (slab->cold == 0) list_remove(&slab->node);
    return &slab->stacks[index];
}

/* The lock is held. */
static void hot_count_add(struct stack_pool_class *class, int change)
{
    atom_store(&class->hot_count, atom_load(&class->hot_count) + (size_t)change);
}

static struct stack *hot_take(struct stack_pool_class *class)
{
    struct list *node = list_pop(&class->hot);
    if (!node) return NULL;
    hot_count_add(class, -1);
    return container_of(node, struct stack, node);
}

struct stack *stack_take(struct stack_pool *pool, struct stack_cache *cache, unsigned size_class)
{
    struct stack_pool_class *class = &pool->classes[size_class];
    struct stack *stack;

    if (cache->count[size_class] > 0) {
        return cache->stacks[size_class][--cache->count[size_class]];
    }
    lock_acquire(&pool->lock);
    stack = hot_take(class);
    if (!stack) stack = cold_take(class);
    lock_release(&pool->lock);
    assert(stack); /* the credit's promise */
    return stack;
}

void stack_return(struct stack_pool *pool, struct stack_cache *cache, struct stack *stack,
                  unsigned size_class)
{
    struct stack_pool_class *class = &pool->classes[size_class];

    if (cache->count[size_class] == STACK_CACHE_MAX) {
        for (unsigned i = 0; i < STACK_MOVE_COUNT; i++) {
            __builtin_prefetch(cache->stacks[size_class][i], 1);
        }
        /* The ones that were returned first are the coldest of the cache. */
        lock_acquire(&pool->lock);
        for (unsigned i = 0; i < STACK_MOVE_COUNT; i++) {
            list_add_head(&class->hot, &cache->stacks[size_class][i]->node);
        }
        hot_count_add(class, STACK_MOVE_COUNT);
        lock_release(&pool->lock);
        for (unsigned i = STACK_MOVE_COUNT; i < STACK_CACHE_MAX; i++) {
            cache->stacks[size_class][i - STACK_MOVE_COUNT] = cache->stacks[size_class][i];
        }
        cache->count[size_class] -= STACK_MOVE_COUNT;
    }
    cache->stacks[size_class][cache->count[size_class]++] = stack;
}

void stack_cache_flush(struct stack_pool *pool, struct stack_cache *cache)
{
    lock_acquire(&pool->lock);
    for (unsigned i = 0; i < STACK_CLASSES; i++) {
        while (cache->count[i] > 0) {
            struct stack *stack = cache->stacks[i][--cache->count[i]];
            list_add_head(&pool->classes[i].hot, &stack->node);
            hot_count_add(&pool->classes[i], 1);
        }
    }
    lock_release(&pool->lock);
}

bool stack_pool_has_hot(const struct stack_pool *pool)
{
    for (unsigned i = 0; i < STACK_CLASSES; i++) {
        if (atom_load(&pool->classes[i].hot_count) > 0) return true;
    }
    return false;
}

bool stack_cache_holds(const struct stack_cache *cache)
{
    for (unsigned i = 0; i < STACK_CLASSES; i++) {
        if (cache->count[i] > 0) return true;
    }
    return false;
}

size_t stack_pool_trim(struct stack_pool *pool, size_t count_max)
{
    size_t count = 0;

    lock_acquire(&pool->lock);
    for (unsigned i = 0; i < STACK_CLASSES; i++) {
        struct stack_pool_class *class = &pool->classes[i];
        struct list *node;
        while (count < count_max && (node = list_last(&class->hot))) {
            struct stack *stack = container_of(node, struct stack, node);
            struct stack_slab *slab = stack->slab;

            list_remove(node);
            hot_count_add(class, -1);
            /* If the advice fails the stack is merely not cold: its memory stays. */
            (void)pool->kernel->advise(pool->kernel, stack->low, mapped_bytes(pool, i),
                                       MADV_DONTNEED);
            if (slab->cold == 0) list_add_tail(&class->slabs, &slab->node);
            slab->cold |= UINT64_C(1) << stack->index;
            count++;
        }
    }
    lock_release(&pool->lock);
    return count;
}

size_t stack_touched_bytes(const struct stack_pool *pool, const struct stack *stack)
{
    size_t bytes = mapped_bytes(pool, stack->size_class);
    size_t touched = 0;
    unsigned char resident[64];
    size_t chunk = sizeof resident * pool->page_bytes;

    for (size_t offset = 0; offset < bytes; offset += chunk) {
        size_t part = bytes - offset < chunk ? bytes - offset : chunk;
        if (mincore(stack->low + offset, part, resident) < 0) return 0;
        for (size_t i = 0; i < part / pool->page_bytes; i++) {
            if (resident[i] & 1) touched += pool->page_bytes;
        }
    }
    return touched;
}

bool stack_guard_contains(const struct stack_pool *pool, const struct stack *stack,
                          const void *address)
{
    const char *at = address;
    return at < stack->low && at >= stack->low - guard_bytes(pool);
}
