/* load_sample.c - what the service says of itself: its metrics, over HTTP. */
#include <stdlib.h>
#include <string.h>

#include "lines.h"
#include "load.h"

enum { SAMPLE_MS = 400, METRICS_BYTES = 256 * 1024 };

static int get(const char *address, char *text, size_t bytes)
{
    size_t used = 0;
    weir_conn *conn;
    int r = weir_connect(address, &conn);

    if (r < 0) return r;
    r = line_say(conn, "GET /metrics HTTP/1.0\r\n\r\n");
    while (r == 0 && used + 1 < bytes) {
        ssize_t n = weir_conn_read(conn, text + used, bytes - 1 - used);
        if (n <= 0) {
            r = (int)n;
            break;
        }
        used += (size_t)n;
    }
    text[used] = '\0';
    weir_conn_close(conn);
    return r;
}

/* The value of a series that is named in full, or 0. */
static double value_of(const char *text, const char *series)
{
    size_t length = strlen(series);

    for (const char *at = text; (at = strstr(at, series)); at += length)
        if (at > text && at[-1] == '\n' && at[length] == ' ') return strtod(at + length, NULL);
    return 0;
}

int load_sample(struct load *load, struct sample *ret_sample)
{
    static char text[METRICS_BYTES]; /* one task samples */
    int r = WEIR_ECANCELED;

    memset(ret_sample, 0, sizeof *ret_sample);
    WEIR_DEADLINE(SAMPLE_MS) r = get(load->admin, text, sizeof text);
    if (r < 0) return r;
    ret_sample->depth[0] = value_of(text, "weir_stage_depth{stage=\"parse\"}");
    ret_sample->depth[1] = value_of(text, "weir_stage_depth{stage=\"fetch\"}");
    ret_sample->depth[2] = value_of(text, "weir_stage_depth{stage=\"rank\"}");
    ret_sample->depth[3] = value_of(text, "weir_stage_depth{stage=\"enrich\"}");
    ret_sample->queued = value_of(text, "search_queued");
    ret_sample->breaker =
        value_of(text, "weir_breaker_state{breaker=\"upstream\",state=\"half_open\"}") +
        2 * value_of(text, "weir_breaker_state{breaker=\"upstream\",state=\"open\"}");
    ret_sample->resident_mb = value_of(text, "process_resident_memory_bytes") / 1e6;
    ret_sample->upstream_calls = value_of(text, "search_upstream_requests_total{kind=\"index\"}");
    ret_sample->valid = true;
    return 0;
}
