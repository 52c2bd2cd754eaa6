/* addresses.c - open addressing with linear steps; a row that is left closes its gap. */
#include "server/addresses.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "rt/mem.h"

int addresses_init(struct addresses *addresses, size_t max, uint64_t seed)
{
    size_t count = 16;

    while (count < max * 2) count *= 2;
    addresses->rows = mem_alloc_zeroed(count * sizeof addresses->rows[0]);
    if (!addresses->rows) return -ENOMEM;
    addresses->row_count = count;
    addresses->seed = seed | 1;
    return 0;
}

void addresses_deinit(struct addresses *addresses)
{
    mem_free(addresses->rows);
    *addresses = (struct addresses){0};
}

/* An address of IPv4 looks like one of a network of IPv6 that is not given to anybody. */
static uint64_t key_of_four(uint32_t bits)
{
    return UINT64_C(0xffff00000000) | bits;
}

bool address_key(const weir_address *address, uint64_t *ret_key)
{
    const void *storage = &address->storage;

    if (address->storage.ss_family == AF_INET) {
        const struct sockaddr_in *four = storage;

        *ret_key = key_of_four(ntohl(four->sin_addr.s_addr));
        return true;
    }
    if (address->storage.ss_family == AF_INET6) {
        const struct sockaddr_in6 *six = storage;
        const unsigned char *bytes = six->sin6_addr.s6_addr;
        uint64_t key = 0;

        for (unsigned i = 0; i < 8; i++) key = key << 8 | bytes[i];
        if (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
            key = key_of_four((uint32_t)bytes[12] << 24 | (uint32_t)bytes[13] << 16 |
                              (uint32_t)bytes[14] << 8 | bytes[15]);
        }
        *ret_key = key;
        return true;
    }
    return false;
}

static size_t place_of(const struct addresses *addresses, uint64_t key)
{
    uint64_t mixed = (key ^ key >> 31) * addresses->seed;

    mixed ^= mixed >> 29;
    mixed *= UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(mixed >> 20) & (addresses->row_count - 1);
}

/* The key's row, or the free one where it would be. */
static size_t find(const struct addresses *addresses, uint64_t key)
{
    size_t at = place_of(addresses, key);

    while (addresses->rows[at].count > 0 && addresses->rows[at].key != key) {
        at = (at + 1) & (addresses->row_count - 1);
    }
    return at;
}

bool addresses_enter(struct addresses *addresses, uint64_t key, unsigned max)
{
    struct address_row *row = &addresses->rows[find(addresses, key)];

    if (row->count >= max) return false;
    row->key = key;
    row->count++;
    return true;
}

/* What lies behind the gap moves into it, unless it would come before its own place. */
static void close_gap(struct addresses *addresses, size_t gap)
{
    size_t mask = addresses->row_count - 1;

    for (size_t at = (gap + 1) & mask; addresses->rows[at].count > 0; at = (at + 1) & mask) {
        size_t home = place_of(addresses, addresses->rows[at].key);

        if (((at - home) & mask) < ((at - gap) & mask)) continue;
        addresses->rows[gap] = addresses->rows[at];
        addresses->rows[at].count = 0;
        gap = at;
    }
}

void addresses_leave(struct addresses *addresses, uint64_t key)
{
    size_t at = find(addresses, key);

    assert(addresses->rows[at].count > 0);
    if (--addresses->rows[at].count == 0) close_gap(addresses, at);
}
