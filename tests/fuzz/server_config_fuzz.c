/* server_config_fuzz.c - any bytes as a file of settings: it is read to its end, what is taken is
 * within its bounds and has no control characters, and all of it can be printed. */
#include <string.h>

#include "fuzz/fuzz.h"
#include "server/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config *config = config_new();
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    if (!config || !out) abort();
    config_read_text(config, "input", (struct bytes){(const char *)data, size});
    config_check(config);
    for (enum setting i = 0; i < SETTINGS; i++) {
        const struct setting_row *row = &setting_rows[i];
        const struct setting_value *value = &config->values[i];

        MUST(strlen(value->text) < CONFIG_TEXT_BYTES);
        if (row->max > 0) MUST(value->number >= row->min && value->number <= row->max);
        for (const char *at = value->text; *at; at++)
            MUST((unsigned char)*at >= ' ' && *at != 0x7f);
    }
    config_print(config, false, false, out);
    if (fclose(out) != 0) abort();
    MUST(bytes > 0);
    free(text);
    config_free(config);
    return 0;
}
