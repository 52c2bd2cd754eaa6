/* api_health.c - for those who watch the server: is it there, does it work, figures, its API. */
#include <errno.h>
#include <string.h>

#include "proto/http_value.h"
#include "server/api_handlers.h"
#include "server/api_out.h"

/* ---- Alive, ready ---- */

int health_live(struct exchange *x)
{
    return exchange_bytes(x, 200, "text/plain; charset=utf-8", BYTES("ok\n"));
}

static void put_check(struct buffer *out, bool verbose, const char *name, const char *bad)
{
    if (!verbose) return;
    buffer_put_string(out, bad ? "[-]" : "[+]");
    buffer_put_string(out, name);
    buffer_put_string(out, bad ? ": " : " ok");
    if (bad) buffer_put_string(out, bad);
    buffer_put_char(out, '\n');
}

int health_ready(struct exchange *x)
{
    static const char *const names[] = {"verbose", NULL};
    struct api *api = api_of(x);
    weir_store_figures figures;
    const char *text;
    struct buffer *out;
    bool verbose, ready;
    int r = exchange_query_only(x, names);

    if (r >= 0) r = exchange_query(x, "verbose", &text);
    if (r < 0) return r;
    verbose = r > 0;
    weir_store_figures_of(api->store, &figures);
    ready = figures.error == 0 && !atom_load(&api->draining);
    out = exchange_text(x, ready ? 200 : 503, "text/plain; charset=utf-8");
    put_check(out, verbose, "store", figures.error ? weir_error_name(figures.error) : NULL);
    put_check(out, verbose, "serving", atom_load(&api->draining) ? "draining" : NULL);
    /* No new work is taken, but what there is goes on: that is no reason to send workers away. */
    put_check(out, verbose, "room",
              figures.room_error ? weir_error_name(figures.room_error) : NULL);
    buffer_put_string(out, ready ? "ready\n" : "not ready\n");
    return 0;
}

/* ---- Figures ---- */

/* "weir_jobs_total" without its end. */
static struct bytes family(struct bytes name)
{
    static const struct bytes end = BYTES("_total");

    if (name.count > end.count && memcmp(name.at + name.count - end.count, end.at, end.count) == 0)
        name.count -= end.count;
    return name;
}

/* OpenMetrics names a counter without _total in what it says of it, and with it where it counts.
 * Comments of another kind, and empty lines, are not in it. */
static void put_open_line(struct buffer *out, struct bytes line)
{
    struct bytes rest = line, word;

    if (line.count == 0) return;
    if (line.at[0] == '#') {
        (void)bytes_split(&rest, ' ', &word);
        (void)bytes_split(&rest, ' ', &word);
        if (!bytes_are(word, BYTES("HELP")) && !bytes_are(word, BYTES("TYPE"))) return;
        buffer_put_string(out, "# ");
        buffer_put_bytes(out, word);
        buffer_put_char(out, ' ');
        (void)bytes_split(&rest, ' ', &word);
        buffer_put_bytes(out, family(word));
        buffer_put_char(out, ' ');
        buffer_put_bytes(out, rest);
    } else {
        buffer_put_bytes(out, line);
    }
    buffer_put_char(out, '\n');
}

struct scrape {
    struct buffer *out;
    bool open_metrics;
};

static int take_figures(const char *text, size_t bytes, void *arg)
{
    struct scrape *scrape = arg;
    struct bytes rest = {text, bytes}, line;

    if (!scrape->open_metrics) {
        buffer_put(scrape->out, text, bytes);
        return 0;
    }
    while (bytes_split(&rest, '\n', &line)) put_open_line(scrape->out, line);
    buffer_put_string(scrape->out, "# EOF\n");
    return 0;
}

int metrics_show(struct exchange *x)
{
    static const char *const names[] = {NULL};
    unsigned plain, open;
    struct scrape scrape;
    int r = exchange_query_only(x, names);

    if (r >= 0) r = api_allow(x, VERB_READ, NULL);
    if (r < 0) return r;
    plain = http_accepts_media(x->message->fields, BYTES("text/plain"));
    open = http_accepts_media(x->message->fields, BYTES("application/openmetrics-text"));
    if (plain == 0 && open == 0)
        return exchange_problem(x, PROBLEM_NOT_ACCEPTABLE,
                                "figures are text/plain or application/openmetrics-text");
    scrape.open_metrics = open > plain;
    scrape.out = exchange_text(x, 200,
                               scrape.open_metrics
                                   ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                   : "text/plain; version=0.0.4; charset=utf-8");
    r = weir_metrics_read(WEIR_METRICS_PROMETHEUS, take_figures, &scrape);
    return r < 0 ? api_fail(x, r, "figures") : 0;
}

/* ---- The API ---- */

int openapi_show(struct exchange *x)
{
    openapi_write(api_routes(), WEIR_VERSION, exchange_text(x, 200, "application/json"));
    return 0;
}
