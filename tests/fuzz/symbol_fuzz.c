/* symbol_fuzz.c - names for addresses from any bytes that claim to be an ELF file.
 *
 * input = address (8 bytes, in the machine's order) image
 */
#include <errno.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "watch/symbol.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *name = NULL;
    const char *image;
    size_t image_bytes;
    uint64_t address;
    uint64_t start = 0;
    int r;

    if (size < sizeof address) return 0;
    memcpy(&address, data, sizeof address);
    image = (const char *)data + sizeof address;
    image_bytes = size - sizeof address;

    r = symbol_image_find(image, image_bytes, address, &name, &start);
    if (r < 0) {
        MUST(r == -ENOENT);
        MUST(name == NULL);
        return 0;
    }
    MUST(r == 0);
    MUST(start <= address);
    MUST(name >= image && name < image + image_bytes);
    MUST(name[0] != '\0');
    MUST(memchr(name, '\0', (size_t)(image + image_bytes - name)) != NULL);
    return 0;
}
