/* crc32c.h - the checksum of what lies on disks: CRC-32C (Castagnoli), as iSCSI and ext4 have it.
 *
 * The processor's instruction where it has one, tables where not; both give the same.
 *
 * Invariants: crc32c(crc32c(0, a), b) is the checksum of a followed by b. The checksum so far can
 * be anything: who starts with something else than 0 has checksums of its own.
 * Threads: any.
 */
#ifndef WEIR_BASE_CRC32C_H
#define WEIR_BASE_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of what has `crc` so far (0: nothing), followed by `data`. */
uint32_t crc32c(uint32_t crc, const void *data, size_t bytes);

/* The two ways, for tests; the first only where crc32c_has_instruction. */
bool crc32c_has_instruction(void);
uint32_t crc32c_by_instruction(uint32_t crc, const void *data, size_t bytes);
uint32_t crc32c_by_table(uint32_t crc, const void *data, size_t bytes);

#endif
