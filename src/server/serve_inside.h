/* serve_inside.h - what the parts of serve share: serve.c, serve_open.c, serve_drain.c, demo.c. */
#ifndef WEIR_SERVER_SERVE_INSIDE_H
#define WEIR_SERVER_SERVE_INSIDE_H

#include <weir/weir.h>

#include "server/api.h"
#include "server/log_sink.h"
#include "server/notify.h"
#include "server/otlp.h"
#include "server/sandbox.h"
#include "server/serve.h"
#include "server/tls.h"

enum {
    SERVE_PATH_BYTES = 1024,
    SERVE_HOSTS_MAX = CONFIG_HOSTS_MAX,
    SERVE_TEXT_BYTES = 16 * 1024,
    SERVE_CONFIG_TEXTS = 4,
};

struct serve {
    const struct serve_spec *spec;
    struct config *config;
    struct log_sink sink;
    struct notify notify;
    struct activation activation;
    struct otlp otlp;
    struct sandbox_report sandbox;

    char store_path[SERVE_PATH_BYTES], tokens_path[SERVE_PATH_BYTES], audit_path[SERVE_PATH_BYTES];
    char backups_path[SERVE_PATH_BYTES], trace_path[SERVE_PATH_BYTES];
    char config_texts[SERVE_CONFIG_TEXTS][SERVE_TEXT_BYTES]; /* in turn: one is being read */
    unsigned config_turn;
    struct service_listener listeners[SERVICE_LISTENERS_MAX];
    char addresses[SERVICE_LISTENERS_MAX][WEIR_ADDRESS_TEXT_MAX];
    size_t listener_count;
    char host_texts[SERVE_HOSTS_MAX][128];
    const char *hosts[SERVE_HOSTS_MAX];
    size_t host_count;

    struct api api;
    struct tokens *tokens; /* also api.tokens, once it is open */
    struct tls *tls;
    weir_scope *service_scope;
    bool failed;                 /* what is under way is not waited for as long */
    ATOM(bool) stopped;          /* the service has ended */
    int64_t drain_ns;            /* when the drain began; 0: it has not */
    unsigned under_way, cut_off; /* requests: when it began, and when it was over */
    enum serve_end end;
};

/* ---- Before the runtime, serve_prepare.c. SERVE_DRAINED: all is well. ---- */
enum serve_end serve_prepare(struct serve *serve);
void serve_sandbox(struct serve *serve);
/* What holds from now on is what the API shows. */
void serve_show_config(struct serve *serve);
/* Whether all listeners may be open to whom they are; says why not. */
bool serve_may_listen(struct serve *serve, bool has_tokens);

/* ---- Inside, serve_open.c ---- */
WEIR_SUSPENDS int serve_open_store(struct serve *serve, weir_scope *scope);
WEIR_SUSPENDS int serve_open_service(struct serve *serve, weir_scope *scope);
void serve_announce(struct serve *serve);

/* ---- The end, serve_drain.c ---- */
WEIR_SUSPENDS int serve_drain(struct serve *serve, weir_signal_watch *watch);
/* What there was, and what is left; after the service has ended. */
void serve_report(struct serve *serve);
/* HUP: settings, tokens, certificates. */
void serve_reload(struct serve *serve);

/* ---- Something to look at, demo.c: tasks of the scope ---- */
WEIR_SUSPENDS int demo_start(weir_scope *scope, weir_store *store, struct log_sink *sink);

#endif
