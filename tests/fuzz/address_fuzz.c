/* address_fuzz.c - addresses from any text: what parses is written as text that
 * parses to the same address.
 *
 * input = text [newline], so that the corpus can be edited as text
 */
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <sys/un.h>
#include <weir/net.h>

#include "fuzz/fuzz.h"

/* They are shown as '?' in a unix name, which is then another name. */
static bool has_control_characters(const char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f) return true;
    }
    return false;
}

static void check_round_trip(const char *text, const weir_address *address)
{
    char again_text[WEIR_ADDRESS_TEXT_MAX];
    weir_address again;
    size_t length = weir_address_format(address, again_text, sizeof again_text);

    MUST(length == strlen(again_text));
    MUST(length + 1 < sizeof again_text); /* WEIR_ADDRESS_TEXT_MAX is enough for any */
    MUST(!has_control_characters(again_text));
    MUST(weir_address_parse(again_text, &again) == 0);
    MUST(again.transport == address->transport);
    MUST(again.bytes == address->bytes);
    if (has_control_characters(text)) return;
    MUST(memcmp(&again.storage, &address->storage, sizeof again.storage) == 0);
}

/* Cut to every shorter size, the text is still terminated and a beginning of the whole. */
static void check_cut(const weir_address *address)
{
    char whole[WEIR_ADDRESS_TEXT_MAX];
    char cut[WEIR_ADDRESS_TEXT_MAX];
    size_t length = weir_address_format(address, whole, sizeof whole);

    for (size_t bytes = 1; bytes <= length; bytes++) {
        MUST(weir_address_format(address, cut, bytes) == bytes - 1);
        MUST(memcmp(cut, whole, bytes - 1) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weir_address address;
    char *text;
    int r;

    if (size > 0 && data[size - 1] == '\n') size--;
    text = malloc(size + 1); /* of this very size, so that a byte too far is found */
    if (text == NULL) return 0;
    if (size > 0) memcpy(text, data, size);
    text[size] = '\0';
    r = weir_address_parse(text, &address);
    if (r < 0) {
        MUST(r == WEIR_EREFUSED);
        MUST(weir_why()[0] != '\0');
    } else {
        MUST(address.bytes <= (address.transport == WEIR_UNIX ? sizeof(struct sockaddr_un)
                                                              : sizeof(struct sockaddr_in6)));
        check_round_trip(text, &address);
        check_cut(&address);
    }
    free(text);
    return 0;
}
