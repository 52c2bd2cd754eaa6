/* config.h - the settings of `weir serve`: one table, four places that say them, and who has.
 *
 *     flags  >  environment WEIR_SECTION_KEY  >  file (INI)  >  defaults
 *
 * The table (config_table.c) drives reading, checking, `weir config show --origin`, the man page
 * and the reload. All that is wrong is found in one go, each with its place (FILE:LINE, the
 * variable, the flag).
 *
 * Invariants: a value that is not valid is never taken: the one before stays. There is no setting
 * that is a secret itself: keys and tokens are in files, which settings name.
 * Threads: one at a time.
 */
#ifndef WEIR_SERVER_CONFIG_H
#define WEIR_SERVER_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "proto/bytes.h"

enum setting {
    SETTING_SERVER_LISTEN,
    SETTING_SERVER_HOSTS,
    SETTING_SERVER_DATA,
    SETTING_SERVER_BACKUPS,
    SETTING_SERVER_WORKERS,
    SETTING_SERVER_BACKEND,
    SETTING_SERVER_DRAIN,
    SETTING_LIMITS_CONNECTIONS,
    SETTING_LIMITS_CONNECTIONS_PER_ADDRESS,
    SETTING_LIMITS_REQUESTS,
    SETTING_LIMITS_REQUESTS_PER_CONNECTION,
    SETTING_LIMITS_HEAD_BYTES,
    SETTING_LIMITS_BODY_BYTES,
    SETTING_LIMITS_BODIES_BYTES,
    SETTING_LIMITS_ANSWER_BYTES,
    SETTING_LIMITS_HEAD_TIMEOUT,
    SETTING_LIMITS_BODY_TIMEOUT,
    SETTING_LIMITS_BODY_RATE_MIN,
    SETTING_LIMITS_IDLE_TIMEOUT,
    SETTING_LIMITS_WRITE_TIMEOUT,
    SETTING_LIMITS_TLS_TIMEOUT,
    SETTING_LIMITS_SHED_TARGET,
    SETTING_LIMITS_SHED_INTERVAL,
    SETTING_STORE_DURABILITY,
    SETTING_STORE_MEMORY,
    SETTING_STORE_DISK,
    SETTING_STORE_QUEUE_DEPTH,
    SETTING_STORE_QUEUE_OVERFLOW,
    SETTING_STORE_PAYLOAD_BYTES,
    SETTING_STORE_RESULT_BYTES,
    SETTING_STORE_HISTORY,
    SETTING_STORE_HISTORY_COUNT,
    SETTING_STORE_DEAD_HISTORY,
    SETTING_STORE_SEGMENT_BYTES,
    SETTING_STORE_ZONES,
    SETTING_TLS_CERTIFICATE,
    SETTING_TLS_KEY,
    SETTING_LOG_FORMAT,
    SETTING_LOG_LEVEL,
    SETTING_LOG_ACCESS,
    SETTING_TRACE_EXPORT,
    SETTING_TRACE_ADDRESS,
    SETTING_TRACE_FILE,
    SETTING_TRACE_SAMPLE,
    SETTING_TRACE_TIMEOUT,
    SETTING_SECURITY_SANDBOX,
    SETTING_SECURITY_TOKENS,
    SETTING_SECURITY_INSECURE_LISTEN,
    SETTINGS,
};

/* What has to be said to listen beyond this machine without tokens and TLS. */
#define CONFIG_INSECURE_SENTENCE "i accept that anybody can read and write jobs"

enum setting_kind {
    SETTING_KIND_NONE,
    SETTING_TEXT,
    SETTING_LIST, /* words, parted by commas or blanks */
    SETTING_INT,
    SETTING_SIZE,     /* bytes: 4096, 64K, 256M, 2G */
    SETTING_DURATION, /* in ms: 500ms, 30s, 1h30m */
    SETTING_CHOICE,
    SETTING_RATIO, /* 0 to 1, in millionths */
};

struct setting_row {
    const char *section, *key;
    enum setting_kind kind;
    const char *initial;
    int64_t min, max;           /* of numbers */
    const char *const *choices; /* ended by NULL */
    bool reloadable;            /* by HUP; others need a restart */
    const char *help;
};
extern const struct setting_row setting_rows[SETTINGS];

enum {
    CONFIG_TEXT_BYTES = 512,
    CONFIG_ORIGIN_BYTES = 256,
    CONFIG_PROBLEMS_MAX = 64,
    CONFIG_HOSTS_MAX = 32, /* of server.hosts */
};

/* Which wins: the higher. */
enum config_level { CONFIG_DEFAULT, CONFIG_FILE, CONFIG_ENVIRONMENT, CONFIG_FLAG };

struct setting_value {
    enum config_level level;
    char text[CONFIG_TEXT_BYTES];
    char origin[CONFIG_ORIGIN_BYTES]; /* "default", "FILE:LINE", "WEIR_LOG_LEVEL", "--listen" */
    int64_t number;
};

struct config_problem {
    char where[CONFIG_ORIGIN_BYTES];
    char what[CONFIG_TEXT_BYTES];
};

struct config {
    struct setting_value values[SETTINGS];
    struct config_problem problems[CONFIG_PROBLEMS_MAX];
    unsigned problem_count; /* may be more than are kept */
    char path[CONFIG_ORIGIN_BYTES];
};

/* With all defaults; NULL: no memory. */
struct config *config_new(void);
void config_free(struct config *config);

/* An INI text; `name` is for messages. */
void config_read_text(struct config *config, const char *name, struct bytes text);
/* 0, or why it cannot be read, which is noted as a problem too. */
int config_read_file(struct config *config, const char *path);
/* All WEIR_SECTION_KEY of an environment; others with the name of a section are problems. */
void config_read_environment(struct config *config, char *const *environment);
/* "section.key". What it says is taken if nothing above `level` has said it. */
void config_set(struct config *config, enum config_level level, const char *name,
                struct bytes value, const char *origin);
/* What contradicts itself, once all was read. */
void config_check(struct config *config);

static inline int64_t config_number(const struct config *config, enum setting setting)
{
    return config->values[setting].number;
}

static inline const char *config_text(const struct config *config, enum setting setting)
{
    return config->values[setting].text;
}

bool config_is(const struct config *config, enum setting setting, const char *text);
/* The words of a list: how many, at most `max`. */
size_t config_words(const struct config *config, enum setting setting, struct bytes *ret_words,
                    size_t max);

/* All settings, or those that are not the defaults. */
void config_print(const struct config *config, bool origin, bool changed_only, FILE *out);
void config_print_json(const struct config *config, FILE *out);
void config_print_problems(const struct config *config, FILE *out);
/* The man page weir.conf(5). */
void config_man(FILE *out);

/* Takes over what may change while running; the others that differ are told. How many of those. */
typedef void (*config_differs_fn)(void *arg, const struct setting_row *row, bool taken);
unsigned config_reload(struct config *config, const struct config *from, config_differs_fn differs,
                       void *arg);

/* "64K": 0, or WEIR_EREFUSED. */
int config_size_parse(struct bytes text, int64_t *ret_bytes);

#endif
