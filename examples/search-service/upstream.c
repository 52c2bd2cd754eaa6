/* upstream.c - the client of the upstream. */
#include "upstream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lines.h"

/* ---- Connections that are kept ---- */

void upstream_init(struct upstream *upstream, const char *keep_address)
{
    upstream->address = keep_address;
    upstream->idle_count = 0;
    (void)pthread_mutex_init(&upstream->lock, NULL);
}

void upstream_deinit(struct upstream *upstream)
{
    while (upstream->idle_count > 0) weir_conn_close(upstream->idle[--upstream->idle_count]);
    (void)pthread_mutex_destroy(&upstream->lock);
}

static weir_conn *take_idle(struct upstream *upstream)
{
    weir_conn *conn = NULL;

    (void)pthread_mutex_lock(&upstream->lock);
    if (upstream->idle_count > 0) conn = upstream->idle[--upstream->idle_count];
    (void)pthread_mutex_unlock(&upstream->lock);
    return conn;
}

static void keep_idle(struct upstream *upstream, weir_conn *conn)
{
    (void)pthread_mutex_lock(&upstream->lock);
    if (upstream->idle_count < UPSTREAM_IDLE_MAX) {
        upstream->idle[upstream->idle_count++] = conn;
        conn = NULL;
    }
    (void)pthread_mutex_unlock(&upstream->lock);
    weir_conn_close(conn); /* one too many, or NULL */
}

/* Nothing may have come on a connection that nobody has asked anything. */
static bool is_stale(weir_conn *conn)
{
    weir_case cases[] = {WEIR_CASE_READABLE(conn), WEIR_CASE_TIMER(0)};

    return weir_select(cases, 2, WEIR_IN_ORDER) != 1;
}

static int take_conn(struct upstream *upstream, weir_conn **ret_conn)
{
    while ((*ret_conn = take_idle(upstream))) {
        if (!is_stale(*ret_conn)) return 0;
        weir_conn_close(*ret_conn);
    }
    upstream->connected++;
    return weir_connect(upstream->address, ret_conn);
}

/* ---- Asking ---- */

static int ask(struct upstream *upstream, const char *question,
               bool (*read)(char *line, struct search *search), struct search *search)
{
    struct line_reader reader;
    weir_conn *conn;
    char nothing[1] = "", *line = nothing;
    int r;

    upstream->asked++;
    r = take_conn(upstream, &conn);
    if (r < 0) goto fail;
    line_reader_init(&reader, conn);
    r = weir_conn_send_all(conn, question, strlen(question), NULL);
    if (r == 0) r = line_next(&reader, &line);
    if (r == -EMSGSIZE) r = WEIR_EPROTOCOL;
    if (r < 0) goto fail_close;
    if (strncmp(line, "ERR ", 4) == 0) {
        r = -EREMOTEIO;
    } else if (!read(line, search) || line_begun(&reader)) {
        r = WEIR_EPROTOCOL;
        goto fail_close;
    }
    keep_idle(upstream, conn);
    if (r < 0) upstream->failed++;
    return r;
fail_close:
    weir_conn_close(conn);
fail:
    upstream->failed++;
    return r;
}

bool search_read_documents(char *line, struct search *search)
{
    if (strncmp(line, "DOCS ", 5) != 0) return false;
    search->hit_count = 0;
    for (const char *at = line + 4; at[0] == ' ' && at[1] == 'd';) {
        char *end;
        long document = strtol(at + 2, &end, 10);
        if (end == at + 2 || document < 0 || document > 1000000) return false;
        if (search->hit_count == SEARCH_HITS_MAX) return false;
        search->hits[search->hit_count++] = (struct search_hit){.document = (int)document};
        at = end;
        if (*at == '\0') return true;
    }
    return false;
}

bool search_read_titles(char *line, struct search *search)
{
    char *rest = NULL;
    char *word = strtok_r(line, " ", &rest);

    if (!word || strcmp(word, "TITLES") != 0) return false;
    for (int i = 0; i < search->hit_count && i < SEARCH_SHOWN; i++) {
        word = strtok_r(NULL, " ", &rest);
        if (!word || strlen(word) >= SEARCH_TITLE_BYTES) return false;
        memcpy(search->hits[i].title, word, strlen(word) + 1);
    }
    return strtok_r(NULL, " ", &rest) == NULL;
}

void search_ask_titles(const struct search *search, char *line, size_t bytes)
{
    size_t used = (size_t)snprintf(line, bytes, "TITLES");

    for (int i = 0; i < search->hit_count && i < SEARCH_SHOWN; i++)
        used += (size_t)snprintf(line + used, bytes - used, " d%d", search->hits[i].document);
    (void)snprintf(line + used, bytes - used, "\n");
}

int upstream_fetch(struct upstream *upstream, struct search *search)
{
    char question[LINE_BYTES_MAX];

    (void)snprintf(question, sizeof question, "FETCH %s\n", search->words);
    return ask(upstream, question, search_read_documents, search);
}

int upstream_titles(struct upstream *upstream, struct search *search)
{
    char question[LINE_BYTES_MAX];

    search_ask_titles(search, question, sizeof question);
    return ask(upstream, question, search_read_titles, search);
}
