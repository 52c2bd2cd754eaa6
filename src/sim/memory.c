/* memory.c - memory in a run: what the library allocates, by host, and what it maps.
 *
 * Every block has a head that says who holds it, so that leaks are found and a killed host's memory
 * is found again. Mappings are kept for the next run, with their guards: mapping and guarding
 * stacks would take longer than the runs.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "rt/kernel_real.h"
#include "rt/mem.h"
#include "sim/raw_calls.h"
#include "sim/world.h"

/* The head of a block; the memory follows. */
struct sim_block {
    struct list node; /* in a host's blocks, or in the world's own or dead ones */
    size_t bytes;
    size_t unused;
};
_Static_assert(sizeof(struct sim_block) % 16 == 0, "what follows is aligned");

/* ---- The simulator's own ---- */

#if defined(__GLIBC__)

static struct sim_block *take_kept(size_t bytes)
{
    (void)bytes;
    return NULL;
}

static bool keep(struct sim_block *block)
{
    (void)block;
    return false;
}

#else

/* Larger blocks, a runtime's workers above all, are kept for the next run where the allocator maps
 * them anew each time, which takes longer than the run: glibc's does not. */
enum { KEPT_BYTES_MIN = 2 * 1024, KEPT_MAX = 64 };

static struct sim_block *kept[KEPT_MAX];
static unsigned kept_count;

static struct sim_block *take_kept(size_t bytes)
{
    for (unsigned i = 0; i < kept_count; i++) {
        struct sim_block *block = kept[i];
        if (block->bytes != bytes) continue;
        kept[i] = kept[--kept_count];
        return block;
    }
    return NULL;
}

static bool keep(struct sim_block *block)
{
    if (block->bytes < KEPT_BYTES_MIN || kept_count == KEPT_MAX) return false;
    kept[kept_count++] = block;
    return true;
}

#endif

static struct sim_block *block_new(size_t bytes)
{
    struct sim_block *block = take_kept(bytes);

    if (!block) block = malloc(sizeof *block + bytes);
    if (block) block->bytes = bytes;
    return block;
}

static void block_free(struct sim_block *block)
{
    if (!keep(block)) free(block);
}

void *sim_alloc(struct sim *sim, size_t bytes)
{
    struct sim_block *block = block_new(bytes);

    if (!block) return NULL;
    list_init(&block->node);
    list_add_tail(&sim->own_blocks, &block->node);
    memset(block + 1, 0, bytes);
    return block + 1;
}

void sim_free(struct sim *sim, void *memory)
{
    struct sim_block *block = memory;

    (void)sim;
    if (!block) return;
    block--;
    list_remove(&block->node);
    block_free(block);
}

static void free_all(struct list *blocks)
{
    struct list *node = blocks->next;

    while (node != blocks) {
        struct sim_block *block = container_of(node, struct sim_block, node);
        node = node->next;
        block_free(block);
    }
    list_init(blocks);
}

/* ---- What is mapped ---- */

struct sim_region {
    struct sim_region *next;
    char *memory;
    size_t bytes;
    bool stacks;  /* protect was called; else it is memory that must be zero at first */
    bool guarded; /* the guards are in force */
    const struct sim_host *host; /* that has mapped it */
    bool buried;                 /* that has been killed since */
};

/* There is one run at a time. */
static struct sim_region *free_regions;
static struct sim_region *used_regions;

static void regions_bury(const struct sim_host *host)
{
    for (struct sim_region *region = used_regions; region; region = region->next) {
        if (region->host == host) region->buried = true;
    }
}

/* ---- The library's ---- */

/* Who pays for it: the host that runs; the world, for what is made between hosts. */
static struct list *payer(struct sim *sim)
{
    struct sim_host *host = sim_host_running(sim);

    return host ? &host->blocks : &sim->own_blocks;
}

static void *resize(void *arg, void *memory, size_t bytes)
{
    struct sim *sim = arg;
    struct sim_block *block = memory ? (struct sim_block *)memory - 1 : NULL;
    struct sim_block *moved;

    if (bytes == 0) {
        sim_free(sim, memory);
        return NULL;
    }
    if (sim->running && sim_fault(sim, SIM_FAULT_NO_MEMORY, "allocation")) return NULL;
    if (!block) {
        moved = block_new(bytes);
        if (!moved) return NULL;
        list_init(&moved->node);
        list_add_tail(payer(sim), &moved->node);
        return moved + 1;
    }
    /* Out of its list while it moves. */
    {
        struct list *before = block->node.prev;

        list_remove(&block->node);
        moved = realloc(block, sizeof *block + bytes);
        if (moved) moved->bytes = bytes;
        block = moved ? moved : block;
        list_init(&block->node);
        list_add_head(before, &block->node);
    }
    return moved ? moved + 1 : NULL;
}

void sim_memory_bury(struct sim *sim, struct sim_host *host)
{
    struct list *node;

    while ((node = list_pop(&host->blocks))) list_add_tail(&sim->dead_blocks, node);
    regions_bury(host);
}

size_t sim_memory_left(const struct sim *sim, size_t *ret_blocks)
{
    size_t bytes = 0;

    *ret_blocks = 0;
    for (unsigned i = 0; i < sim->host_count; i++) {
        list_for_each(node, &sim->hosts[i]->blocks) {
            bytes += container_of(node, struct sim_block, node)->bytes;
            ++*ret_blocks;
        }
    }
    return bytes;
}

void sim_memory_begin(struct sim *sim)
{
    weir_allocator allocator = {.resize = resize, .arg = sim};

    list_init(&sim->own_blocks);
    list_init(&sim->dead_blocks);
    mem_override(&allocator);
}

/* ---- Mapping ---- */

static struct sim_region **find_region(struct sim_region **list, const char *memory, size_t bytes)
{
    while (*list && ((*list)->memory != memory || (*list)->bytes != bytes)) list = &(*list)->next;
    return list;
}

static void *table_map(const struct kernel *kernel, size_t bytes)
{
    struct sim *sim = sim_of(kernel);
    struct sim_region **at = &free_regions;
    struct sim_region *region;

    if (sim_fault(sim, SIM_FAULT_NO_MEMORY, "map")) return NULL;
    while (*at && (*at)->bytes != bytes) at = &(*at)->next;
    region = *at;
    if (region) {
        *at = region->next;
        if (!region->stacks) {
            raw_calls_off(); /* it is the simulator's own */
            (void)real_advise(kernel, region->memory, bytes, MADV_DONTNEED);
            raw_calls_on();
        }
    } else {
        region = malloc(sizeof *region);
        if (!region) return NULL;
        *region = (struct sim_region){.bytes = bytes, .memory = real_map(kernel, bytes)};
        if (!region->memory) {
            free(region);
            return NULL;
        }
    }
    region->host = sim_host_running(sim);
    region->buried = false;
    region->next = used_regions;
    used_regions = region;
    return region->memory;
}

static void keep_region(struct sim_region **list)
{
    struct sim_region *region = *list;

    *list = region->next;
    region->next = free_regions;
    free_regions = region;
}

static void table_unmap(const struct kernel *kernel, void *memory, size_t bytes)
{
    struct sim *sim = sim_of(kernel);
    struct sim_region **list = find_region(&used_regions, memory, bytes);

    if (!*list) sim_fail(sim, "the library unmaps what is not mapped");
    keep_region(list);
}

/* No advice is taken, guards by advice included: they are made by protect then. */
static int table_advise(const struct kernel *kernel, void *memory, size_t bytes, int advice)
{
    (void)kernel, (void)memory, (void)bytes;
    return advice == MADV_DONTNEED || advice == MADV_FREE ? 0 : -EINVAL;
}

static struct sim_region *region_around(const char *address)
{
    for (struct sim_region *region = used_regions; region; region = region->next) {
        if (address >= region->memory && address < region->memory + region->bytes) return region;
    }
    return NULL;
}

/* Stacks of one size lie in their slabs always alike: what is guarded stays so. The last guard
 * of a slab tells that all are there. */
static int table_protect(const struct kernel *kernel, void *memory, size_t bytes, int protection)
{
    struct sim_region *region = region_around(memory);

    if (region) region->stacks = true;
    if (region && region->guarded) return 0;
    return real_protect(kernel, memory, bytes, protection);
}

void sim_memory_fill_table(struct kernel *table)
{
    table->map = table_map;
    table->unmap = table_unmap;
    table->advise = table_advise;
    table->advise_many = NULL;
    table->protect = table_protect;
}

/* Of a host that was killed: its tasks' frames are gone. */
static void keep_buried(struct sim_region **list)
{
    if ((*list)->stacks) sanitize_stack_unmapped((*list)->memory, (*list)->bytes);
    keep_region(list);
}

void sim_memory_reclaim(const struct sim_host *host)
{
    struct sim_region **list = &used_regions;

    while (*list) {
        if ((*list)->buried && (*list)->host == host) {
            keep_buried(list);
        } else {
            list = &(*list)->next;
        }
    }
}

void sim_memory_end(struct sim *sim)
{
    mem_override(NULL);
    while (used_regions) keep_buried(&used_regions);
    for (struct sim_region *region = free_regions; region; region = region->next) {
        region->guarded = true;
    }
    free_all(&sim->dead_blocks);
    free_all(&sim->own_blocks);
}
