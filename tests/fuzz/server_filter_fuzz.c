/* server_filter_fuzz.c - any text as a filter, and what is behind its first line as a payload. */
#include <string.h>
#include <weir/error.h>

#include "fuzz/fuzz.h"
#include "server/filter.h"

enum { KEYS = 64 };

static void check_taken(struct filter *filter, struct bytes payload)
{
    static struct json_key keys[KEYS];
    const struct json_limits limits = {.depth_max = 16, .keys = keys, .key_room = KEYS};

    MUST(filter->used <= sizeof filter->texts);
    MUST(filter->jobs.states != 0 && (filter->jobs.states & ~0x3feu) == 0);
    MUST(filter->field_count <= FILTER_FIELDS_MAX);
    for (unsigned i = 0; i < filter->field_count; i++) {
        MUST(filter->fields[i].path_count > 0 && filter->fields[i].path_count <= FILTER_PATH_MAX);
        MUST(filter->fields[i].value.count > 0);
    }
    filter_at(filter, INT64_C(1700000000000));
    MUST(filter->jobs.created_before_ms >= 0 && filter->jobs.created_from_ms >= 0);
    (void)filter_payload_passes(filter, payload, &limits);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t count)
{
    struct bytes payload = {(const char *)data, count}, text;
    struct filter_refusal refusal = {0};
    static struct filter filter;
    int r;

    (void)bytes_split(&payload, '\n', &text);
    r = filter_parse(text, &filter, &refusal);
    if (r == 0) {
        check_taken(&filter, payload);
    } else {
        MUST(r == WEIR_EREFUSED);
        MUST(refusal.offset <= text.count);
        MUST(refusal.why[0] != '\0' && strlen(refusal.why) < sizeof refusal.why);
    }
    return 0;
}
