/* addresses.h - how many connections each address has: a table that does not grow.
 *
 * Of IPv6 a network of 64 bits counts as one address, since that is what one customer is given.
 *
 * Invariants: no more addresses than connections, so the table is at most half full. What was
 * entered is left once.
 * Threads: the caller's lock.
 */
#ifndef WEIR_SERVER_ADDRESSES_H
#define WEIR_SERVER_ADDRESSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/net.h>

struct address_row {
    uint64_t key;
    unsigned count; /* 0: the row is free */
};

struct addresses {
    struct address_row *rows;
    size_t row_count; /* a power of two */
    uint64_t seed;    /* so that nobody outside knows which addresses meet */
};

/* For at most `max` connections. 0 or -ENOMEM. */
int addresses_init(struct addresses *addresses, size_t max, uint64_t seed);
void addresses_deinit(struct addresses *addresses);

/* False: it is none that is counted (a unix socket). */
bool address_key(const weir_address *address, uint64_t *ret_key);

/* False: it has `max` already. */
bool addresses_enter(struct addresses *addresses, uint64_t key, unsigned max);
void addresses_leave(struct addresses *addresses, uint64_t key);

#endif
