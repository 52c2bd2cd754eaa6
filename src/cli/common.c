/* common.c - what most commands need: a runtime, a client, texts of arguments. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/output.h"
#include "rt/mem.h"

enum { TOKEN_FILE_BYTES = 1024, STACK_BYTES = 256 * 1024, ENDING_MS = 100 };

/* ---- The token ---- */

/* The first line of a file. CLI_OK, or another status. */
static int read_token(const char *path, char token[TOKEN_FILE_BYTES])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0) return fail(CLI_AUTH, "token file '%s': %s", path, strerror(errno));
    n = read(fd, token, TOKEN_FILE_BYTES - 1);
    (void)close(fd);
    if (n < 0) return fail(CLI_AUTH, "token file '%s': %s", path, strerror(errno));
    token[n] = '\0';
    token[strcspn(token, "\r\n")] = '\0';
    if (!token[0]) return fail(CLI_AUTH, "token file '%s' is empty", path);
    return CLI_OK;
}

int client_for(const struct cli_call *call, struct client *client)
{
    static char token[TOKEN_FILE_BYTES];
    const char *path = cli_text(call, "token-file"), *from_env = getenv("WEIR_TOKEN");
    struct client_spec spec = {.server = cli_text(call, "server"),
                               .ca_file = cli_text(call, "ca-file"),
                               .timeout_ms = cli_number(call, "request-timeout")};
    char why[CLI_WHY_BYTES];
    int r;

    /* What was said on the command line wins. */
    if (path && (!cli_value_of(call, "token-file")->from_env || !from_env || !*from_env)) {
        r = read_token(path, token);
        if (r != CLI_OK) return r;
        spec.token = token;
    } else if (from_env && *from_env) {
        spec.token = from_env;
    }
    r = client_init(client, &spec, why, sizeof why);
    if (r == 0) return CLI_OK;
    return fail(r == WEIR_EREFUSED ? CLI_USAGE : CLI_FAILED, "%s", why);
}

/* ---- The runtime ---- */

struct running {
    struct cli_call *call;
    ask_fn ask;
    int (*run)(struct cli_call *call);
    int status;
};

static int run_task(void *arg)
{
    struct running *running = arg;
    struct client client;

    if (running->run) {
        running->status = running->run(running->call);
    } else {
        running->status = client_for(running->call, &client);
        if (running->status == CLI_OK) {
            running->status = running->ask(running->call, &client);
            client_deinit(&client);
        }
    }
    (void)weir_stop(ENDING_MS);
    return 0;
}

static int run_in_runtime(struct running *running)
{
    int r = weir_run(
        &(weir_config){
            .name = "weir", .workers = 1, .stack_bytes = STACK_BYTES, .log_level = WEIR_LOG_ERROR},
        run_task, running);

    if (r < 0 && running->status == CLI_OK)
        return fail(CLI_FAILED, "%s", r == WEIR_EREFUSED ? weir_why() : weir_strerror(r));
    return running->status;
}

int with_client(struct cli_call *call, ask_fn ask)
{
    return run_in_runtime(&(struct running){.call = call, .ask = ask});
}

int with_runtime(struct cli_call *call, int (*run)(struct cli_call *call))
{
    return run_in_runtime(&(struct running){.call = call, .run = run});
}

/* ---- Asking ---- */

int ask_server(struct client *client, const struct client_request *request, const char *what,
               struct client_answer *ret_answer)
{
    int r = client_ask(client, request, ret_answer);

    if (r < 0) return fail_reach(client, r);
    if (ret_answer->status < 200 || ret_answer->status > 299) return fail_answer(ret_answer, what);
    return CLI_OK;
}

int ask_get(struct client *client, const char *target, const char *what,
            struct client_answer *ret_answer)
{
    return ask_server(client, &(struct client_request){.method = METHOD_GET, .target = target},
                      what, ret_answer);
}

void print_body(const struct client_answer *answer)
{
    struct bytes body = answer->body;

    if (body.count > 0) (void)fwrite(body.at, 1, body.count, stdout);
    if (body.count == 0 || body.at[body.count - 1] != '\n') (void)putchar('\n');
}

void put_encoded(struct buffer *out, const char *text)
{
    static const char digits[] = "0123456789ABCDEF";

    for (; *text; text++) {
        if (is_letter(*text) || is_digit(*text) || strchr("-._~", *text)) {
            buffer_put_char(out, *text);
        } else {
            buffer_put_char(out, '%');
            buffer_put_char(out, digits[(unsigned char)*text >> 4]);
            buffer_put_char(out, digits[(unsigned char)*text & 15]);
        }
    }
}

void put_query(struct buffer *out, const char *name, const char *value)
{
    bool first = memchr(out->at, '?', out->used) == NULL;

    if (!value) return;
    buffer_put_char(out, first ? '?' : '&');
    buffer_put_string(out, name);
    buffer_put_char(out, '=');
    put_encoded(out, value);
}

/* ---- Arguments that are files ---- */

static int read_stream(int fd, size_t bytes_max, char **ret_text, size_t *ret_count)
{
    size_t used = 0, room = 4096;
    char *text = mem_alloc(room + 1);
    int r = text ? 0 : -ENOMEM;

    while (r == 0) {
        ssize_t n;

        if (used == room) {
            char *larger = room > bytes_max ? NULL : mem_resize(text, room * 2 + 1);

            if (!larger) {
                r = room > bytes_max ? -EFBIG : -ENOMEM;
                break;
            }
            text = larger;
            room *= 2;
        }
        n = read(fd, text + used, room - used);
        if (n == 0) break;
        if (n < 0 && errno != EINTR) r = -errno;
        if (n > 0) used += (size_t)n;
    }
    if (r == 0 && used > bytes_max) r = -EFBIG;
    if (r < 0) {
        mem_free(text);
        return r;
    }
    text[used] = '\0';
    *ret_text = text;
    *ret_count = used;
    return 0;
}

int read_argument(const char *argument, size_t bytes_max, char **ret_text, size_t *ret_count)
{
    int fd, r;

    if (argument[0] != '@') {
        size_t count = strlen(argument);
        char *text = mem_alloc(count + 1);

        if (!text) return -ENOMEM;
        memcpy(text, argument, count + 1);
        *ret_text = text;
        *ret_count = count;
        return 0;
    }
    if (strcmp(argument, "@-") == 0)
        return read_stream(STDIN_FILENO, bytes_max, ret_text, ret_count);
    fd = open(argument + 1, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -errno;
    r = read_stream(fd, bytes_max, ret_text, ret_count);
    (void)close(fd);
    return r;
}
