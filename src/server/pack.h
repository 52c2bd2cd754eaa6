/* pack.h - bodies of answers, compressed (gzip).
 *
 * Only answers of JSON that are whole, from 1 KiB to 1 MiB: what is smaller gains nothing, and what
 * is larger would keep the worker from others (1 MiB takes about 10 ms).
 *
 * Owner: a ward; it is made when it is first needed, and one is enough, since a body is compressed
 * without a suspension. Failure: no memory means that the answer is sent as it is.
 * Threads: the ward's worker.
 */
#ifndef WEIR_SERVER_PACK_H
#define WEIR_SERVER_PACK_H

#include "proto/buffer.h"

enum { PACK_BYTES_MIN = 1024, PACK_BYTES_MAX = 1 << 20 };

struct packer;

/* Into `out`, which is cleared. False: it cannot be, or is not smaller. `packer` begins as NULL. */
bool pack(struct packer **packer, struct bytes body, struct buffer *out);
/* Takes NULL. */
void packer_free(struct packer *take_packer);

#endif
