/* serve_prepare.c - folders, sockets, sandbox: what happens while there is one thread. */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/serve_inside.h"

static enum serve_end refuse_start(struct serve *serve, const char *what, const char *about,
                                   int error)
{
    log_say(&serve->sink, WEIR_LOG_ERROR, what, LOG_TEXT("about", about),
            LOG_TEXT("error", error ? weir_strerror(error) : "refused"));
    return error ? SERVE_FAILED : SERVE_REFUSED;
}

static int make_folder(const char *path)
{
    struct stat status;

    if (mkdir(path, 0700) == 0) return 0;
    if (errno != EEXIST) return -errno;
    if (stat(path, &status) < 0) return -errno;
    return S_ISDIR(status.st_mode) ? 0 : -ENOTDIR;
}

static void path_in(char path[SERVE_PATH_BYTES], const char *folder, const char *name)
{
    (void)snprintf(path, SERVE_PATH_BYTES, "%.900s/%s", folder, name);
}

static void path_or(struct serve *serve, char path[SERVE_PATH_BYTES], enum setting setting,
                    const char *name)
{
    const char *said = config_text(serve->config, setting);

    if (said[0])
        (void)snprintf(path, SERVE_PATH_BYTES, "%s", said);
    else
        path_in(path, config_text(serve->config, SETTING_SERVER_DATA), name);
}

static enum serve_end make_folders(struct serve *serve)
{
    const char *data = config_text(serve->config, SETTING_SERVER_DATA);
    int r = make_folder(data);

    path_in(serve->store_path, data, "store");
    path_in(serve->audit_path, data, "audit.log");
    path_or(serve, serve->tokens_path, SETTING_SECURITY_TOKENS, "tokens.json");
    path_or(serve, serve->backups_path, SETTING_SERVER_BACKUPS, "backups");
    path_or(serve, serve->trace_path, SETTING_TRACE_FILE, "trace.json");
    if (r < 0) return refuse_start(serve, "the data folder cannot be used", data, r);
    /* A name that is mistyped, or a file that was lost, opens the server to nobody. */
    if (config_text(serve->config, SETTING_SECURITY_TOKENS)[0] &&
        access(serve->tokens_path, F_OK) < 0)
        return refuse_start(serve, "security.tokens: the file cannot be used", serve->tokens_path,
                            -errno);
    r = make_folder(serve->backups_path);
    if (r < 0)
        return refuse_start(serve, "the backup folder cannot be used", serve->backups_path, r);
    return SERVE_DRAINED;
}

/* ---- Where to listen ---- */

static void listen_at(struct serve *serve, struct bytes word)
{
    struct service_listener *listener = &serve->listeners[serve->listener_count];
    char *text = serve->addresses[serve->listener_count];
    bool tls = bytes_begin(word, BYTES("tls:"));

    (void)snprintf(text, WEIR_ADDRESS_TEXT_MAX, "%s%.*s", tls ? "tcp" : "",
                   (int)(word.count - (tls ? 3 : 0)), word.at + (tls ? 3 : 0));
    *listener = (struct service_listener){.address = text, .tls = tls};
    serve->listener_count++;
}

static void listen_on(struct serve *serve, size_t index)
{
    weir_address address = {.transport = WEIR_TCP, .bytes = sizeof address.storage};
    char *text = serve->addresses[index];

    if (getsockname(serve->activation.fds[index], (struct sockaddr *)&address.storage,
                    &address.bytes) == 0) {
        if (address.storage.ss_family == AF_UNIX) address.transport = WEIR_UNIX;
        (void)weir_address_format(&address, text, WEIR_ADDRESS_TEXT_MAX);
    }
    serve->listeners[serve->listener_count++] =
        (struct service_listener){.fd = serve->activation.fds[index],
                                  .tls = strncmp(serve->activation.names[index], "tls", 3) == 0};
}

static enum serve_end find_listeners(struct serve *serve)
{
    struct bytes words[SERVICE_LISTENERS_MAX];
    size_t count;

    for (size_t i = 0; i < serve->activation.count; i++) listen_on(serve, i);
    if (serve->listener_count > 0) return SERVE_DRAINED;
    count = config_words(serve->config, SETTING_SERVER_LISTEN, words, SERVICE_LISTENERS_MAX);
    for (size_t i = 0; i < count; i++) {
        weir_address address;

        listen_at(serve, words[i]);
        if (weir_address_parse(serve->addresses[i], &address) < 0)
            return refuse_start(serve, weir_why(), serve->addresses[i], 0);
    }
    return SERVE_DRAINED;
}

static bool is_loopback(const char *text)
{
    weir_address address;

    if (weir_address_parse(text, &address) < 0) return false;
    if (address.transport == WEIR_UNIX) return true;
    if (address.storage.ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)&address.storage;

        return ntohl(in->sin_addr.s_addr) >> 24 == 127;
    }
    if (address.storage.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)&address.storage;

        return IN6_IS_ADDR_LOOPBACK(&in->sin6_addr);
    }
    return false;
}

bool serve_may_listen(struct serve *serve, bool has_tokens)
{
    bool told =
        config_is(serve->config, SETTING_SECURITY_INSECURE_LISTEN, CONFIG_INSECURE_SENTENCE);

    for (size_t i = 0; i < serve->listener_count; i++) {
        const struct service_listener *listener = &serve->listeners[i];

        if (is_loopback(serve->addresses[i]) || (has_tokens && listener->tls)) continue;
        if (told) {
            log_say(&serve->sink, WEIR_LOG_WARNING,
                    "listening beyond this machine without tokens and TLS, as was said",
                    LOG_TEXT("address", serve->addresses[i]));
            continue;
        }
        log_say(&serve->sink, WEIR_LOG_ERROR,
                !has_tokens ? "refusing to listen beyond this machine without tokens: make one "
                              "('weir token create NAME --allow all --data FOLDER'), and listen on "
                              "tls:HOST:PORT; or say security.insecure_listen = "
                              "\"" CONFIG_INSECURE_SENTENCE "\""
                            : "refusing to listen beyond this machine without TLS: say "
                              "tls:HOST:PORT with tls.certificate and tls.key; or say "
                              "security.insecure_listen = \"" CONFIG_INSECURE_SENTENCE "\"",
                LOG_TEXT("address", serve->addresses[i]));
        return false;
    }
    return true;
}

static void find_hosts(struct serve *serve)
{
    struct bytes words[SERVE_HOSTS_MAX];
    size_t count = config_words(serve->config, SETTING_SERVER_HOSTS, words, SERVE_HOSTS_MAX);

    for (size_t i = 0; i < count; i++) {
        if (bytes_are(words[i], BYTES("*"))) {
            serve->host_count = 0;
            return;
        }
        (void)snprintf(serve->host_texts[i], sizeof serve->host_texts[i], "%.*s",
                       (int)words[i].count, words[i].at);
        serve->hosts[serve->host_count++] = serve->host_texts[i];
    }
}

/* Settings have no secrets, only names of files that have. */
void serve_show_config(struct serve *serve)
{
    char *text = serve->config_texts[serve->config_turn++ % SERVE_CONFIG_TEXTS];
    FILE *out = fmemopen(text, SERVE_TEXT_BYTES - 1, "we");

    if (!out) return;
    config_print(serve->config, true, false, out);
    (void)fclose(out);
    atom_store(&serve->api.config, text);
}

enum serve_end serve_prepare(struct serve *serve)
{
    char why[256];
    enum serve_end end;
    int r = notify_open(&serve->notify);

    if (r < 0) return refuse_start(serve, "NOTIFY_SOCKET cannot be used", "NOTIFY_SOCKET", r);
    r = activation_take(&serve->activation);
    if (r < 0)
        return refuse_start(serve, "a socket that was handed over cannot be used", "LISTEN_FDS", r);
    end = make_folders(serve);
    if (end == SERVE_DRAINED) end = find_listeners(serve);
    if (end != SERVE_DRAINED) return end;
    find_hosts(serve);
    serve_show_config(serve);
    serve->otlp.fd = -1;
    if (config_is(serve->config, SETTING_TRACE_EXPORT, "http") &&
        otlp_init(&serve->otlp, config_text(serve->config, SETTING_TRACE_ADDRESS),
                  config_number(serve->config, SETTING_TRACE_TIMEOUT), why, sizeof why) < 0)
        return refuse_start(serve, why, "trace.address", 0);
    return SERVE_DRAINED;
}

/* ---- The sandbox ---- */

/* The folder of a file: files are replaced, and read again by HUP. */
static const char *folder_of(const char *file, char path[SERVE_PATH_BYTES])
{
    const char *slash = strrchr(file, '/');

    if (!file[0]) return "";
    (void)snprintf(path, SERVE_PATH_BYTES, "%.*s", slash ? (int)(slash - file + 1) : 2,
                   slash ? file : "./");
    return path;
}

/* Backtraces of dumps read programs and libraries; figures read /proc and /sys; names, zones and
 * certificates are in /etc and /usr/share. */
static const char *const readable[] = {"/usr",  "/lib",           "/lib64",      "/etc",
                                       "/proc", "/sys/fs/cgroup", "/dev/urandom"};

void serve_sandbox(struct serve *serve)
{
    enum { FILES = 5 };
    static char folders[FILES + SERVICE_LISTENERS_MAX][SERVE_PATH_BYTES];
    struct sandbox_spec spec = {.read_count = 0};
    size_t used = FILES;

    if (config_is(serve->config, SETTING_SECURITY_SANDBOX, "off")) {
        serve->sandbox.landlock = serve->sandbox.seccomp = -ECANCELED;
        return;
    }
    for (size_t i = 0; i < sizeof readable / sizeof *readable; i++)
        sandbox_read(&spec, readable[i]);
    sandbox_read(&spec, config_text(serve->config, SETTING_STORE_ZONES));
    sandbox_write(&spec, config_text(serve->config, SETTING_SERVER_DATA));
    sandbox_write(&spec, serve->backups_path);
    sandbox_write(&spec, "/dev/null");
    sandbox_read(&spec, folder_of(config_text(serve->config, SETTING_TLS_CERTIFICATE), folders[0]));
    sandbox_read(&spec, folder_of(config_text(serve->config, SETTING_TLS_KEY), folders[1]));
    sandbox_read(&spec, folder_of(serve->config->path, folders[2]));
    sandbox_write(&spec, folder_of(serve->tokens_path, folders[3]));
    if (config_is(serve->config, SETTING_TRACE_EXPORT, "file"))
        sandbox_write(&spec, folder_of(serve->trace_path, folders[4]));
    for (size_t i = 0; i < serve->listener_count; i++) {
        const char *address = serve->addresses[i];

        if (strncmp(address, "unix:", 5) == 0 && address[5] != '@')
            sandbox_bind(&spec, folder_of(address + 5, folders[used++]));
    }
    sandbox_enter(&spec, &serve->sandbox);
}
