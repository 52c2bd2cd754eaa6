/* listing.c - reading a directory into memory. */
#include "io/listing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rt/kernel.h"
#include "rt/mem.h"

enum { LISTING_TEXT_MIN = 1024, LISTING_COUNT_MIN = 32 };

struct weir_listing {
    size_t count;
    size_t count_room;
    size_t entries_max;
    char *text; /* the names, as they were found */
    size_t text_bytes;
    size_t text_room;
    size_t *starts;     /* of each name in `text`, while it may still move */
    const char **names; /* sorted, once all are there */
};

void weir_listing_free(weir_listing *listing)
{
    if (!listing) return;
    mem_free(listing->text);
    mem_free(listing->starts);
    mem_free(listing->names);
    mem_free(listing);
}

size_t weir_listing_count(const weir_listing *listing)
{
    return listing->count;
}

const char *weir_listing_name(const weir_listing *listing, size_t index)
{
    return index < listing->count ? listing->names[index] : NULL;
}

/* Make room for `need` elements, at least twice as much as there was. */
static int make_room(void **memory, size_t *room, size_t need, size_t first, size_t element)
{
    size_t more = *room ? *room * 2 : first;
    void *larger;

    if (need <= *room) return 0;
    if (more < need) more = need;
    larger = mem_resize(*memory, more * element);
    if (!larger) return -ENOMEM;
    *memory = larger;
    *room = more;
    return 0;
}

static int add_name(void *arg, const char *name)
{
    weir_listing *listing = arg;
    size_t bytes = strlen(name) + 1;
    void *memory = listing->text;
    int r;

    if (listing->count == listing->entries_max) return -EOVERFLOW;
    r = make_room(&memory, &listing->text_room, listing->text_bytes + bytes, LISTING_TEXT_MIN, 1);
    listing->text = memory;
    if (r < 0) return r;
    memory = listing->starts;
    r = make_room(&memory, &listing->count_room, listing->count + 1, LISTING_COUNT_MIN,
                  sizeof listing->starts[0]);
    listing->starts = memory;
    if (r < 0) return r;
    memcpy(listing->text + listing->text_bytes, name, bytes);
    listing->starts[listing->count++] = listing->text_bytes;
    listing->text_bytes += bytes;
    return 0;
}

static int compare(const void *a, const void *b)
{
    const char *const *name_a = a;
    const char *const *name_b = b;
    return strcmp(*name_a, *name_b);
}

static int sort_names(weir_listing *listing)
{
    if (listing->count == 0) return 0;
    listing->names = mem_alloc(listing->count * sizeof listing->names[0]);
    if (!listing->names) return -ENOMEM;
    for (size_t i = 0; i < listing->count; i++) {
        listing->names[i] = listing->text + listing->starts[i];
    }
    qsort(listing->names, listing->count, sizeof listing->names[0], compare);
    mem_free(listing->starts);
    listing->starts = NULL;
    return 0;
}

int listing_fill(const struct kernel *kernel, const char *path, size_t entries_max,
                 weir_listing **ret_listing)
{
    weir_listing *listing = mem_alloc_zeroed(sizeof *listing);
    int r;

    if (!listing) return -ENOMEM;
    listing->entries_max = entries_max;
    r = kernel->list_directory(kernel, path, add_name, listing);
    if (r == 0) r = sort_names(listing);
    if (r < 0) {
        weir_listing_free(listing);
        return r;
    }
    *ret_listing = listing;
    return 0;
}
