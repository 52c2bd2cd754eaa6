/* config_table.c - every setting there is, once. */
#include "server/config.h"

#include <weir/store.h>

static const char *const durabilities[] = {"memory", "written", "synced", NULL};
static const char *const overflows[] = {"reject", "wait", NULL};
static const char *const formats[] = {"logfmt", "json", NULL};
static const char *const levels[] = {"off", "error", "warning", "info", "debug", NULL};
static const char *const exports[] = {"off", "http", "file", NULL};
static const char *const switches[] = {"off", "on", NULL};
static const char *const backends[] = {"auto", "io_uring", "epoll", NULL};
static const char *const sandboxes[] = {"auto", "on", "off", NULL};

#define MS_DAY (24 * 3600 * 1000LL)
#define MS_MAX (366 * MS_DAY)
#define GB (1024LL * 1024 * 1024)

#define ROW(section_, key_, kind_, initial_, ...)                                       \
    {                                                                                   \
        .section = section_, .key = key_, .kind = SETTING_##kind_, .initial = initial_, \
        __VA_ARGS__                                                                     \
    }

const struct setting_row setting_rows[SETTINGS] = {
    [SETTING_SERVER_LISTEN] =
        ROW("server", "listen", LIST, "tcp:127.0.0.1:7411",
            .help = "Where to listen: tcp:HOST:PORT, tls:HOST:PORT (with [tls]) or unix:PATH, up "
                    "to eight. Port 0 takes any that is free. Under socket activation the "
                    "sockets that were passed are used instead."),
    [SETTING_SERVER_HOSTS] =
        ROW("server", "hosts", LIST, "localhost 127.0.0.1 [::1]",
            .help = "Names that requests may be for (the field Host, without the port); others "
                    "get 421. This keeps web pages of strangers from reaching the server through "
                    "a name of theirs. Up to 32; * takes any."),
    [SETTING_SERVER_DATA] =
        ROW("server", "data", TEXT, "weir-data",
            .help = "The folder of all that is kept. It is made if there is none."),
    [SETTING_SERVER_BACKUPS] =
        ROW("server", "backups", TEXT, "",
            .help = "The folder in which backups are made while running; empty: 'backups' in the "
                    "data folder."),
    [SETTING_SERVER_WORKERS] =
        ROW("server", "workers", INT, "0", .min = 0, .max = 256,
            .help = "Threads that run tasks; 0: the cores that the process may use."),
    [SETTING_SERVER_BACKEND] =
        ROW("server", "backend", CHOICE, "auto", .choices = backends,
            .help = "How the kernel is asked for what is ready: auto is io_uring where it works, "
                    "and epoll elsewhere; by name it is that one or no start."),
    [SETTING_SERVER_DRAIN] =
        ROW("server", "drain", DURATION, "10s", .min = 0, .max = 3600 * 1000, .reloadable = true,
            .help = "After TERM: how long requests under way may take to end."),
    [SETTING_LIMITS_CONNECTIONS] = ROW("limits", "connections", INT, "4096", .min = 1,
                                       .max = 1000000, .help = "Connections at a time."),
    [SETTING_LIMITS_CONNECTIONS_PER_ADDRESS] =
        ROW("limits", "connections_per_address", INT, "1024", .min = 1, .max = 1000000,
            .help = "Connections at a time of one address."),
    [SETTING_LIMITS_REQUESTS] = ROW(
        "limits", "requests", INT, "1024", .min = 1, .max = 1000000,
        .help = "Requests that are served at a time. Who waits for a job, for room, or for its own "
                "body is not among them."),
    [SETTING_LIMITS_REQUESTS_PER_CONNECTION] =
        ROW("limits", "requests_per_connection", INT, "0", .min = 0, .max = 1000000000,
            .help = "Requests of one connection before it is closed; 0: no limit."),
    [SETTING_LIMITS_HEAD_BYTES] = ROW("limits", "head_bytes", SIZE, "16K", .min = 1024,
                                      .max = 1 << 20, .help = "Bytes of a request's head."),
    [SETTING_LIMITS_BODY_BYTES] =
        ROW("limits", "body_bytes", SIZE, "64M", .min = 1024, .max = 16 * GB,
            .help = "Bytes of a request's body, also of one that streams; routes have lower ones."),
    [SETTING_LIMITS_BODIES_BYTES] =
        ROW("limits", "bodies_bytes", SIZE, "64M", .min = 8 << 20, .max = 1024 * GB,
            .help = "Bytes of all bodies at a time that do not stream, of those above 64K each."),
    [SETTING_LIMITS_ANSWER_BYTES] =
        ROW("limits", "answer_bytes", SIZE, "16M", .min = 512 << 10, .max = GB,
            .help = "Bytes of an answer that does not stream."),
    [SETTING_LIMITS_HEAD_TIMEOUT] =
        ROW("limits", "head_timeout", DURATION, "10s", .min = 10, .max = 600000,
            .help = "From the first byte of a request to the end of its head."),
    [SETTING_LIMITS_BODY_TIMEOUT] = ROW("limits", "body_timeout", DURATION, "10s", .min = 10,
                                        .max = 600000, .help = "A pause in a body."),
    [SETTING_LIMITS_BODY_RATE_MIN] =
        ROW("limits", "body_rate_min", SIZE, "1K", .min = 1, .max = GB,
            .help = "Bytes a second that a body must have after its first five seconds."),
    [SETTING_LIMITS_IDLE_TIMEOUT] = ROW("limits", "idle_timeout", DURATION, "75s", .min = 10,
                                        .max = MS_DAY, .help = "Between two requests."),
    [SETTING_LIMITS_WRITE_TIMEOUT] =
        ROW("limits", "write_timeout", DURATION, "10s", .min = 10, .max = 600000,
            .help = "A client that takes nothing for so long is closed."),
    [SETTING_LIMITS_TLS_TIMEOUT] = ROW("limits", "tls_timeout", DURATION, "5s", .min = 10,
                                       .max = 600000, .help = "A handshake of TLS."),
    [SETTING_LIMITS_SHED_TARGET] = ROW(
        "limits", "shed_target", DURATION, "50ms", .min = 1, .max = 60000,
        .help = "Requests that wait longer for their turn, for shed_interval on end, are shed."),
    [SETTING_LIMITS_SHED_INTERVAL] = ROW("limits", "shed_interval", DURATION, "500ms", .min = 1,
                                         .max = 600000, .help = "See shed_target."),
    [SETTING_STORE_DURABILITY] =
        ROW("store", "durability", CHOICE, "synced", .choices = durabilities,
            .help = "How safe something is when it is answered, unless the request says "
                    "otherwise: decided (memory), given to the system (written), on disk "
                    "(synced)."),
    [SETTING_STORE_MEMORY] =
        ROW("store", "memory", SIZE, "256M", .min = 1 << 20, .max = 1024 * GB,
            .help = "Bytes of the index of jobs; beyond it new work is refused."),
    [SETTING_STORE_DISK] = ROW("store", "disk", SIZE, "0", .min = 0, .max = 1024 * 1024 * GB,
                               .help = "Bytes of the store's folder; 0: what the disk has."),
    [SETTING_STORE_QUEUE_DEPTH] =
        ROW("store", "queue_depth", INT, "1000000", .min = 1, .max = UINT32_MAX,
            .help = "Jobs that wait in a queue that says nothing itself."),
    [SETTING_STORE_QUEUE_OVERFLOW] =
        ROW("store", "queue_overflow", CHOICE, "reject", .choices = overflows,
            .help = "What a full queue that says nothing itself does."),
    [SETTING_STORE_PAYLOAD_BYTES] =
        ROW("store", "payload_bytes", SIZE, "64K", .min = 1, .max = WEIR_STORE_PAYLOAD_BYTES_MAX,
            .help = "Bytes of a job's payload."),
    [SETTING_STORE_RESULT_BYTES] =
        ROW("store", "result_bytes", SIZE, "64K", .min = 1, .max = WEIR_STORE_PAYLOAD_BYTES_MAX,
            .help = "Bytes of a job's result."),
    [SETTING_STORE_HISTORY] = ROW("store", "history", DURATION, "1d", .min = 1, .max = MS_MAX,
                                  .help = "How long jobs that have ended are kept."),
    [SETTING_STORE_HISTORY_COUNT] =
        ROW("store", "history_count", INT, "10000", .min = 1, .max = UINT32_MAX,
            .help = "How many of them of one queue."),
    [SETTING_STORE_DEAD_HISTORY] = ROW("store", "dead_history", DURATION, "30d", .min = 1,
                                       .max = MS_MAX, .help = "How long dead letters are kept."),
    [SETTING_STORE_SEGMENT_BYTES] =
        ROW("store", "segment_bytes", SIZE, "64M", .min = WEIR_STORE_SEGMENT_BYTES_MIN, .max = GB,
            .help = "Bytes of each file of a new store."),
    [SETTING_STORE_ZONES] = ROW("store", "zones", TEXT, WEIR_STORE_ZONES_DEFAULT,
                                .help = "The folder of time zones, for schedules."),
    [SETTING_TLS_CERTIFICATE] =
        ROW("tls", "certificate", TEXT, "",
            .help = "File of the certificate and what it depends on (PEM). HUP reads it again."),
    [SETTING_TLS_KEY] =
        ROW("tls", "key", TEXT, "", .help = "File of its key (PEM). HUP reads it again."),
    [SETTING_LOG_FORMAT] = ROW("log", "format", CHOICE, "logfmt", .choices = formats,
                               .reloadable = true, .help = "Lines of key=value, or of JSON."),
    [SETTING_LOG_LEVEL] = ROW("log", "level", CHOICE, "info", .choices = levels, .reloadable = true,
                              .help = "What is said: this and what is worse."),
    [SETTING_LOG_ACCESS] =
        ROW("log", "access", CHOICE, "off", .choices = switches, .reloadable = true,
            .help = "A line of level info for each request: method, route, status, bytes, "
                    "milliseconds, peer, token's name."),
    [SETTING_TRACE_EXPORT] =
        ROW("trace", "export", CHOICE, "off", .choices = exports,
            .help = "Where spans go: to a collector over HTTP, to a file, nowhere."),
    [SETTING_TRACE_ADDRESS] =
        ROW("trace", "address", TEXT, "http://127.0.0.1:4318/v1/traces",
            .help = "The collector, for OTLP in JSON over HTTP: http://NUMERIC-HOST:PORT/PATH."),
    [SETTING_TRACE_FILE] = ROW("trace", "file", TEXT, "",
                               .help = "With export = file; empty: trace.json in the data folder."),
    [SETTING_TRACE_SAMPLE] = ROW("trace", "sample", RATIO, "1",
                                 .help = "Which part of the traces that begin here: 0 to 1."),
    [SETTING_TRACE_TIMEOUT] =
        ROW("trace", "timeout", DURATION, "5s", .min = 10, .max = 60000,
            .help = "How long the collector may take for one batch; then it is lost, and counted."),
    [SETTING_SECURITY_SANDBOX] =
        ROW("security", "sandbox", CHOICE, "auto", .choices = sandboxes,
            .help = "Landlock and seccomp: the process gives up all files but its own, and "
                    "system calls that it never makes. auto: as far as the kernel has them; on: "
                    "or it does not start."),
    [SETTING_SECURITY_TOKENS] =
        ROW("security", "tokens", TEXT, "",
            .help = "The file of tokens (hashes of them); empty: tokens.json in the data folder. "
                    "'weir token' writes it. One that is said here has to be there. HUP reads it "
                    "again."),
    [SETTING_SECURITY_INSECURE_LISTEN] =
        ROW("security", "insecure_listen", TEXT, "",
            .help = "To listen beyond this machine without tokens and TLS, say here: "
                    "\"" CONFIG_INSECURE_SENTENCE "\"."),
};
