/* crc32c.c - see crc32c.h.
 *
 * The tables (slicing by 8) are made when first needed, by who comes first; who comes while they
 * are made goes bit by bit, and waits for nobody. */
#include "base/crc32c.h"

#include <string.h>

#include "base/atomic.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

enum { SLICES = 8, POLYNOMIAL_BITS = 8 };
#define POLYNOMIAL UINT32_C(0x82f63b78) /* 0x1edc6f41, its bits in reverse */

static uint32_t slices[SLICES][256];
enum { NOT_MADE, BEING_MADE, MADE };
static ATOM(int) slices_are;

static uint32_t by_bits(uint32_t crc)
{
    for (int i = 0; i < POLYNOMIAL_BITS; i++) crc = (crc & 1) ? crc >> 1 ^ POLYNOMIAL : crc >> 1;
    return crc;
}

/* False: somebody else is at it. */
static bool make_slices(void)
{
    int expected = NOT_MADE;

    if (!atom_cas(&slices_are, &expected, BEING_MADE)) return expected == MADE;
    for (uint32_t byte = 0; byte < 256; byte++) slices[0][byte] = by_bits(byte);
    for (int slice = 1; slice < SLICES; slice++) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t before = slices[slice - 1][byte];
            slices[slice][byte] = before >> 8 ^ slices[0][before & 0xff];
        }
    }
    atom_store_release(&slices_are, MADE);
    return true;
}

uint32_t crc32c_by_table(uint32_t crc, const void *data, size_t bytes)
{
    const unsigned char *at = data;

    crc = ~crc;
    if (atom_load_acquire(&slices_are) != MADE && !make_slices()) {
        for (; bytes > 0; bytes--, at++) crc = crc >> 8 ^ by_bits((crc ^ *at) & 0xff);
    }
    for (; bytes >= 8; bytes -= 8, at += 8) {
        uint32_t low = crc ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
                              (uint32_t)at[3] << 24);
        crc = slices[7][low & 0xff] ^ slices[6][low >> 8 & 0xff] ^ slices[5][low >> 16 & 0xff] ^
              slices[4][low >> 24] ^ slices[3][at[4]] ^ slices[2][at[5]] ^ slices[1][at[6]] ^
              slices[0][at[7]];
    }
    for (; bytes > 0; bytes--, at++) crc = crc >> 8 ^ slices[0][(crc ^ *at) & 0xff];
    return ~crc;
}

#if defined(__x86_64__)

bool crc32c_has_instruction(void)
{
    return __builtin_cpu_supports("sse4.2") != 0;
}

__attribute__((target("sse4.2"))) uint32_t crc32c_by_instruction(uint32_t crc, const void *data,
                                                                 size_t bytes)
{
    const unsigned char *at = data;
    uint64_t wide = ~crc;

    for (; bytes >= 8; bytes -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        wide = _mm_crc32_u64(wide, word);
    }
    for (; bytes > 0; bytes--, at++) wide = _mm_crc32_u8((uint32_t)wide, *at);
    return ~(uint32_t)wide;
}

#elif defined(__aarch64__)

enum { HAS_CRC32 = 1 << 7 }; /* HWCAP_CRC32, which not every libc declares */

bool crc32c_has_instruction(void)
{
    return (getauxval(AT_HWCAP) & HAS_CRC32) != 0;
}

/* In assembly: to have the instruction by its name, clang 14 wants it for the whole file. */
uint32_t crc32c_by_instruction(uint32_t crc, const void *data, size_t bytes)
{
    const unsigned char *at = data;

    crc = ~crc;
    for (; bytes >= 8; bytes -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
    }
    for (; bytes > 0; bytes--, at++) {
        uint32_t byte = *at;
        __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"(byte));
    }
    return ~crc;
}

#endif

uint32_t crc32c(uint32_t crc, const void *data, size_t bytes)
{
    return crc32c_has_instruction() ? crc32c_by_instruction(crc, data, bytes)
                                    : crc32c_by_table(crc, data, bytes);
}
