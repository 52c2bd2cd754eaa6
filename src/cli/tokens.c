/* tokens.c - weir token: over a server, or in the data folder of one, which HUP makes it read. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/look.h"
#include "cli/output.h"
#include "cli/paths.h"
#include "proto/json_write.h"
#include "server/tokens.h"

enum { PATH_BYTES = 4096, BODY_BYTES = 4096, TARGET_BYTES = 512, FILE_MS = 10000 };
enum { LIST_BYTES_MAX = 16 << 20 };

static void print_token(bool json, const char *id, const char *text)
{
    if (json)
        (void)printf("{\"id\":\"%s\",\"token\":\"%s\"}\n", id, text);
    else
        (void)puts(text);
    say("token %s; this is the only time that it is shown: keep it in a file that only you can "
        "read",
        id);
}

/* ---- In a folder ---- */

struct offline {
    struct cli_call *call;
    struct tokens *tokens;
    int status;
};

static int parse_scopes(const struct cli_call *call, struct token_scope *scopes)
{
    for (unsigned i = 0; i < call->many_count; i++) {
        const char *why;

        if (i == TOKEN_SCOPES_MAX)
            return fail(CLI_USAGE, "--allow: at most %d times", TOKEN_SCOPES_MAX);
        if (token_scope_parse(bytes_of(call->many[i]), &scopes[i], &why) < 0)
            return fail(CLI_USAGE, "--allow %s: %s", call->many[i], why);
    }
    return CLI_OK;
}

static int fail_tokens(int r)
{
    if (r == -EEXIST) return fail(CLI_CONFLICT, "there is a token of this name; 'weir token list'");
    if (r == -ENOENT) return fail(CLI_NOT_FOUND, "there is no such token; 'weir token list'");
    return fail(CLI_FAILED, "tokens: %s",
                r == WEIR_EREFUSED || r == -EPERM || r == -EBADMSG ? weir_why() : weir_strerror(r));
}

static void show_id(const struct cli_call *call, char text[TOKEN_TEXT_BYTES])
{
    char id[TOKEN_ID_BYTES + 1];

    (void)snprintf(id, sizeof id, "%.*s", TOKEN_ID_BYTES, text + 5);
    print_token(cli_has(call, "json"), id, text);
}

static int create_offline(struct cli_call *call, struct tokens *tokens)
{
    struct token_scope scopes[TOKEN_SCOPES_MAX];
    struct token_spec spec = {
        .name = cli_argument_at(call, 0), .scopes = scopes, .scope_count = call->many_count};
    char text[TOKEN_TEXT_BYTES];
    int64_t now_ms = unix_now_ms();
    int r = parse_scopes(call, scopes);

    if (r != CLI_OK) return r;
    if (cli_has(call, "expires")) spec.expires_ms = now_ms + cli_number(call, "expires");
    r = tokens_add(tokens, &spec, now_ms, text);
    if (r < 0) return fail_tokens(r);
    show_id(call, text);
    return CLI_OK;
}

static void add_token(struct table *table, const struct token *token)
{
    char text[TABLE_CELL_BYTES] = "", time[32];

    for (unsigned i = 0; i < token->scope_count; i++) {
        size_t used = strlen(text);

        if (used + 8 >= sizeof text) break;
        if (i > 0) text[used++] = ' ';
        (void)token_scope_format(&token->scopes[i], text + used, sizeof text - used);
    }
    table_cell(table, "%s", token->id);
    table_cell(table, "%s", token->name);
    table_cell(table, "%s", text);
    format_time_ms(token->created_ms, time, sizeof time);
    table_cell(table, "%s", time);
    format_time_ms(token->expires_ms, time, sizeof time);
    table_cell(table, "%s", time[0] ? time : "never");
}

static void put_token(struct json_writer *json, const struct token *token)
{
    char text[TABLE_CELL_BYTES + TOKEN_QUEUE_BYTES];

    json_open_object(json);
    json_key(json, "id");
    json_put_string(json, token->id);
    json_key(json, "name");
    json_put_string(json, token->name);
    json_key(json, "scopes");
    json_open_array(json);
    for (unsigned i = 0; i < token->scope_count; i++) {
        (void)token_scope_format(&token->scopes[i], text, sizeof text);
        json_put_string(json, text);
    }
    json_close(json);
    json_key(json, "created_ms");
    json_put_int(json, token->created_ms);
    if (token->expires_ms) {
        json_key(json, "expires_ms");
        json_put_int(json, token->expires_ms);
    }
    json_close(json);
}

static int print_tokens(const struct token *const *tokens, size_t count)
{
    struct json_writer json;
    struct buffer out;
    int r;

    buffer_init(&out, LIST_BYTES_MAX, client_resize, NULL);
    json_writer_init(&json, &out);
    json_open_object(&json);
    json_key(&json, "tokens");
    json_open_array(&json);
    for (size_t i = 0; i < count; i++) put_token(&json, tokens[i]);
    json_close(&json);
    json_close(&json);
    r = buffer_error(&out);
    if (r == 0) (void)printf("%.*s\n", (int)out.used, out.at);
    buffer_deinit(&out);
    return r < 0 ? fail(CLI_FAILED, "tokens: %s", weir_strerror(r)) : CLI_OK;
}

static int list_offline(const struct cli_call *call, struct tokens *tokens)
{
    static const struct token *found[TOKENS_MAX];
    size_t count = tokens_list(tokens, found, TOKENS_MAX);
    struct table table;

    if (cli_has(call, "json")) return print_tokens(found, count);
    table_init(&table, "id name allows created expires");
    for (size_t i = 0; i < count; i++) add_token(&table, found[i]);
    table_end(&table, "there is no token; everybody on this machine may do all");
    return CLI_OK;
}

static int act_offline(struct offline *offline)
{
    struct cli_call *call = offline->call;
    const char *action = strchr(call->command->words, ' ') + 1;
    char text[TOKEN_TEXT_BYTES];
    int r;

    if (strcmp(action, "create") == 0) return create_offline(call, offline->tokens);
    if (strcmp(action, "list") == 0) return list_offline(call, offline->tokens);
    if (strcmp(action, "revoke") == 0) {
        r = tokens_drop(offline->tokens, cli_argument_at(call, 0), unix_now_ms());
        return r < 0 ? fail_tokens(r) : CLI_OK;
    }
    r = tokens_rotate(offline->tokens, cli_argument_at(call, 0), cli_number(call, "overlap"),
                      unix_now_ms(), text);
    if (r < 0) return fail_tokens(r);
    show_id(call, text);
    return CLI_OK;
}

/* Holds the folder's store, so that no server begins in between; -1: there is none yet. */
static int hold_store(const char *data, bool *ret_served)
{
    char path[PATH_BYTES];
    int fd;

    (void)snprintf(path, sizeof path, "%.4000s/store/LOCK", data);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    *ret_served = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
    return fd;
}

/* The server has its own list, and replaces the file with it when that changes. */
static void say_served(const struct cli_call *call)
{
    if (strcmp(call->command->words, "token list") != 0)
        say("a server has '%s' open: it heeds this after HUP ('systemctl reload weir'), and a "
            "change over its API before that may undo it; --server asks it instead",
            cli_text(call, "data"));
}

static int run_offline(struct cli_call *call)
{
    const char *data = cli_text(call, "data");
    struct offline offline = {.call = call, .status = CLI_FAILED};
    char path[PATH_BYTES];
    int r = 0, result = 0, store_fd;
    bool served;

    if (mkdir(data, 0700) < 0 && errno != EEXIST)
        return fail(CLI_FAILED, "'%s': %s", data, strerror(errno));
    store_fd = hold_store(data, &served);
    (void)snprintf(path, sizeof path, "%.4000s/tokens.json", data);
    WEIR_SCOPE(scope, &result, .name = "tokens", .on_failure = WEIR_COLLECT, .max_tasks = 1,
               .overflow = WEIR_REJECT) {
        WEIR_DEADLINE(FILE_MS) {
            r = tokens_open(scope, path, &offline.tokens);
            if (r == 0) {
                offline.status = act_offline(&offline);
                tokens_close(offline.tokens);
            }
        }
    }
    if (store_fd >= 0) (void)close(store_fd);
    if (r == 0 && offline.status == CLI_OK && served) say_served(call);
    return r < 0 ? fail_tokens(r) : offline.status;
}

/* ---- Over a server ---- */

static int ask_create(struct cli_call *call, struct client *client)
{
    char space[BODY_BYTES], id[LOOK_TEXT_BYTES], text[LOOK_TEXT_BYTES];
    struct client_answer answer = {.status = 0};
    struct json_writer json;
    struct buffer body;
    int status;

    buffer_init_fixed(&body, space, sizeof space);
    json_writer_init(&json, &body);
    json_open_object(&json);
    json_key(&json, "name");
    json_put_string(&json, cli_argument_at(call, 0));
    json_key(&json, "scopes");
    json_open_array(&json);
    for (unsigned i = 0; i < call->many_count; i++) json_put_string(&json, call->many[i]);
    json_close(&json);
    if (cli_has(call, "expires")) {
        json_key(&json, "expires_ms");
        json_put_int(&json, unix_now_ms() + cli_number(call, "expires"));
    }
    json_close(&json);
    status =
        ask_server(client,
                   &(struct client_request){
                       .method = METHOD_POST, .target = PATH_TOKENS, .body = buffer_bytes(&body)},
                   "token", &answer);
    if (status != CLI_OK) return status;
    look_text(answer.body, "id", id, sizeof id);
    look_text(answer.body, "token", text, sizeof text);
    print_token(cli_has(call, "json"), id, text);
    return CLI_OK;
}

static void join_items(struct bytes array, char *text, size_t bytes)
{
    struct look_items items;
    struct bytes item;

    text[0] = '\0';
    look_begin(&items, array);
    while (look_next(&items, &item)) {
        size_t used = strlen(text);
        char one[LOOK_TEXT_BYTES];

        look_text(item, "", one, sizeof one);
        if (used + strlen(one) + 2 > bytes) return;
        if (used > 0) text[used++] = ' ';
        memcpy(text + used, one, strlen(one) + 1);
    }
}

static int ask_list(struct cli_call *call, struct client *client)
{
    struct client_answer answer = {.status = 0};
    struct look_items items;
    struct table table;
    struct bytes token;
    int status = ask_get(client, PATH_TOKENS, "tokens", &answer);

    if (status != CLI_OK) return status;
    if (cli_has(call, "json")) {
        print_body(&answer);
        return CLI_OK;
    }
    table_init(&table, "id name allows created expires");
    look_begin(&items, look(answer.body, "tokens"));
    while (look_next(&items, &token)) {
        char text[LOOK_TEXT_BYTES];

        look_text(token, "id", text, sizeof text);
        table_cell(&table, "%s", text);
        look_text(token, "name", text, sizeof text);
        table_cell(&table, "%.64s", text);
        join_items(look(token, "scopes"), text, sizeof text);
        table_cell(&table, "%.90s", text);
        format_time_ms(look_int(token, "created_ms", 0), text, sizeof text);
        table_cell(&table, "%s", text);
        format_time_ms(look_int(token, "expires_ms", 0), text, sizeof text);
        table_cell(&table, "%s", text[0] ? text : "never");
    }
    table_end(&table, "there is no token");
    return CLI_OK;
}

static const char *token_target(const struct cli_call *call, const char *action,
                                char space[TARGET_BYTES])
{
    struct buffer target;

    buffer_init_fixed(&target, space, TARGET_BYTES);
    buffer_put_string(&target, PATH_TOKENS "/");
    put_encoded(&target, cli_argument_at(call, 0));
    buffer_put_string(&target, action);
    buffer_put_char(&target, '\0');
    return space;
}

static int ask_revoke(struct cli_call *call, struct client *client)
{
    char space[TARGET_BYTES];
    struct client_answer answer = {.status = 0};
    int status = ask_server(
        client,
        &(struct client_request){.method = METHOD_DELETE, .target = token_target(call, "", space)},
        "token", &answer);

    if (status != CLI_OK) return status;
    if (cli_has(call, "json")) print_body(&answer);
    return CLI_OK;
}

static int ask_rotate(struct cli_call *call, struct client *client)
{
    char space[TARGET_BYTES], text[128], id[LOOK_TEXT_BYTES], token[LOOK_TEXT_BYTES];
    struct client_answer answer = {.status = 0};
    int status;

    (void)snprintf(text, sizeof text, "{\"overlap_ms\":%lld}",
                   (long long)cli_number(call, "overlap"));
    status = ask_server(client,
                        &(struct client_request){.method = METHOD_POST,
                                                 .target = token_target(call, "/rotate", space),
                                                 .body = bytes_of(text)},
                        "token", &answer);
    if (status != CLI_OK) return status;
    look_text(answer.body, "id", id, sizeof id);
    look_text(answer.body, "token", token, sizeof token);
    print_token(cli_has(call, "json"), id, token);
    return CLI_OK;
}

static int run(struct cli_call *call, ask_fn ask)
{
    return cli_has(call, "data") ? with_runtime(call, run_offline) : with_client(call, ask);
}

int command_token_create(struct cli_call *call)
{
    if (call->many_count == 0)
        return fail(CLI_USAGE, "say what it may do: --allow all, --allow enqueue:mail*, ...");
    return run(call, ask_create);
}

int command_token_list(struct cli_call *call)
{
    return run(call, ask_list);
}

int command_token_revoke(struct cli_call *call)
{
    return run(call, ask_revoke);
}

int command_token_rotate(struct cli_call *call)
{
    return run(call, ask_rotate);
}
