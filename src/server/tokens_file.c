/* tokens_file.c - the file of tokens: {"version": 1, "tokens": [{...}]}, replaced whole. */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/json_write.h"
#include "rt/mem.h"
#include "rt/runtime.h"
#include "server/memory.h"
#include "server/tokens_inside.h"

enum { SAVE_MS = 10000 };

/* ---- Writing ---- */

static void put_hash(struct json_writer *json, const unsigned char hash[32])
{
    char text[65];

    for (int i = 0; i < 32; i++) (void)snprintf(text + 2 * i, 3, "%02x", hash[i]);
    json_put_string(json, text);
}

static void put_token(struct json_writer *json, const struct token *token)
{
    json_open_object(json);
    json_key(json, "id");
    json_put_string(json, token->id);
    json_key(json, "name");
    json_put_string(json, token->name);
    json_key(json, "sha256");
    put_hash(json, token->hash);
    json_key(json, "created_ms");
    json_put_int(json, token->created_ms);
    json_key(json, "expires_ms");
    json_put_int(json, atom_load(&token->expires_ms));
    json_key(json, "scopes");
    json_open_array(json);
    for (unsigned i = 0; i < token->scope_count; i++) {
        char text[TOKEN_QUEUE_BYTES + 16];

        (void)token_scope_format(&token->scopes[i], text, sizeof text);
        json_put_string(json, text);
    }
    json_close(json);
    json_close(json);
}

static void put_all(const struct tokens *tokens, struct buffer *out)
{
    struct json_writer json;

    json_writer_init(&json, out);
    json_open_object(&json);
    json_key(&json, "version");
    json_put_int(&json, 1);
    json_key(&json, "tokens");
    json_open_array(&json);
    for (unsigned i = 0; i < tokens->count; i++) put_token(&json, tokens->live[i]);
    json_close(&json);
    json_close(&json);
    buffer_put_char(out, '\n');
}

static int write_all(weir_file *file, struct bytes bytes)
{
    int64_t at = 0;

    while (bytes.count > 0) {
        size_t piece = bytes.count < WEIR_FILE_IO_BYTES_MAX ? bytes.count : WEIR_FILE_IO_BYTES_MAX;
        ssize_t n = weir_file_write(file, bytes.at, piece, at);

        if (n < 0) return (int)n;
        bytes = bytes_after(bytes, (size_t)n);
        at += n;
    }
    return 0;
}

static int sync_folder(const char *path)
{
    char folder[4096];
    char *slash;
    weir_file *file;
    int r, closed;

    (void)snprintf(folder, sizeof folder, "%s", path);
    slash = strrchr(folder, '/');
    if (slash == folder)
        slash[1] = '\0';
    else if (slash)
        *slash = '\0';
    r = weir_file_open(slash ? folder : ".", O_RDONLY | O_DIRECTORY, 0, &file);
    if (r < 0) return r;
    r = weir_file_sync(file, false);
    closed = weir_file_close(file);
    return r < 0 ? r : closed;
}

static int replace_file(const char *path, struct bytes bytes)
{
    char beside[4096];
    weir_file *file;
    int r, closed;

    (void)snprintf(beside, sizeof beside, "%s.new", path);
    r = weir_path_unlink(beside);
    if (r < 0 && r != -ENOENT) return r;
    r = weir_file_open(beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600, &file);
    if (r < 0) return r;
    r = write_all(file, bytes);
    if (r == 0) r = weir_file_sync(file, false);
    closed = weir_file_close(file);
    if (r == 0) r = closed;
    if (r == 0) r = weir_path_rename(beside, path);
    if (r == 0) r = sync_folder(path);
    return r;
}

int tokens_save(struct tokens *tokens)
{
    struct buffer out;
    int r;

    if (!tokens->path[0]) return 0;
    buffer_init(&out, TOKENS_FILE_BYTES_MAX, memory_resize_hook, NULL);
    put_all(tokens, &out);
    r = buffer_error(&out);
    if (r == 0) {
        /* Cut off between its steps it would leave a file that says what the rows do not. */
        r = WEIR_ETIMEDOUT;
        WEIR_SHIELD(SAVE_MS) { r = replace_file(tokens->path, buffer_bytes(&out)); }
    }
    buffer_deinit(&out);
    return r;
}

/* ---- Reading ---- */

struct token_in {
    struct tokens *tokens;
    struct bytes id, name, hash;
    int64_t created_ms, expires_ms;
    struct token_scope scopes[TOKEN_SCOPES_MAX];
    unsigned scope_count;
};

static int read_scopes(struct json_reader *reader, struct json_texts *texts,
                       struct json_token first, void *into)
{
    struct token_in *in = (struct token_in *)((char *)into - offsetof(struct token_in, scopes));

    if (first.kind != JSON_ARRAY) return json_refuse(reader, &first, "an array was expected");
    for (;;) {
        struct json_token token = json_next(reader);
        struct bytes text;
        const char *why;

        if (token.kind == JSON_ARRAY_END) return 0;
        if (token.kind == JSON_FAILED) return WEIR_EREFUSED;
        if (token.kind != JSON_STRING || in->scope_count == TOKEN_SCOPES_MAX)
            return json_refuse(reader, &token, "up to %d texts were expected", TOKEN_SCOPES_MAX);
        if (json_take_text(reader, texts, &token, &text) < 0) return WEIR_EREFUSED;
        if (token_scope_parse(text, &in->scopes[in->scope_count++], &why) < 0)
            return json_refuse(reader, &token, "%s", why);
    }
}

static const struct json_member token_members[] = {
    {.name = "id",
     .type = JSON_TYPE_TEXT,
     .offset = offsetof(struct token_in, id),
     .required = true,
     .max = TOKEN_ID_BYTES},
    {.name = "name",
     .type = JSON_TYPE_TEXT,
     .offset = offsetof(struct token_in, name),
     .required = true,
     .max = TOKEN_NAME_BYTES},
    {.name = "sha256",
     .type = JSON_TYPE_TEXT,
     .offset = offsetof(struct token_in, hash),
     .required = true,
     .max = 64},
    {.name = "created_ms",
     .type = JSON_TYPE_INT,
     .offset = offsetof(struct token_in, created_ms),
     .required = true,
     .max = INT64_MAX},
    {.name = "expires_ms",
     .type = JSON_TYPE_INT,
     .offset = offsetof(struct token_in, expires_ms),
     .required = true,
     .max = INT64_MAX},
    {.name = "scopes",
     .type = JSON_TYPE_BY,
     .offset = offsetof(struct token_in, scopes),
     .required = true,
     .read = read_scopes},
    {0},
};

static bool hash_of(struct bytes text, unsigned char hash[32])
{
    if (text.count != 64) return false;
    for (int i = 0; i < 32; i++) {
        int high = hex_value(text.at[2 * i]), low = hex_value(text.at[2 * i + 1]);

        if (high < 0 || low < 0) return false;
        hash[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}

static int take_token(struct json_reader *reader, const struct json_token *at, struct token_in *in)
{
    struct token *token;
    unsigned char hash[32];

    if (in->id.count != TOKEN_ID_BYTES || !hash_of(in->hash, hash))
        return json_refuse(reader, at, "id or sha256 are none");
    if (in->tokens->count == TOKENS_MAX) return json_refuse(reader, at, "too many tokens");
    token = token_new(in->tokens);
    if (!token) return json_refuse(reader, at, "there is no memory for the token");
    memcpy(token->id, in->id.at, TOKEN_ID_BYTES);
    memcpy(token->name, in->name.at, in->name.count);
    memcpy(token->hash, hash, sizeof hash);
    memcpy(token->scopes, in->scopes, sizeof in->scopes);
    token->scope_count = in->scope_count;
    token->created_ms = in->created_ms;
    atom_store(&token->expires_ms, in->expires_ms);
    token_enlist(in->tokens, token);
    return 0;
}

struct file_in {
    int64_t version;
    struct tokens *tokens;
};

static int read_tokens(struct json_reader *reader, struct json_texts *texts,
                       struct json_token first, void *into)
{
    struct tokens *tokens = *(struct tokens **)into;

    if (first.kind != JSON_ARRAY) return json_refuse(reader, &first, "an array was expected");
    for (;;) {
        struct json_token token = json_next(reader);
        struct token_in in = {.tokens = tokens};

        if (token.kind == JSON_ARRAY_END) return 0;
        if (token.kind == JSON_FAILED) return WEIR_EREFUSED;
        if (token.kind != JSON_OBJECT) return json_refuse(reader, &token, "no token");
        if (json_object(reader, texts, token_members, &in) < 0) return WEIR_EREFUSED;
        if (take_token(reader, &token, &in) < 0) return WEIR_EREFUSED;
    }
}

static const struct json_member file_members[] = {
    {.name = "version",
     .type = JSON_TYPE_INT,
     .offset = offsetof(struct file_in, version),
     .required = true,
     .min = 1,
     .max = 1},
    {.name = "tokens",
     .type = JSON_TYPE_BY,
     .offset = offsetof(struct file_in, tokens),
     .required = true,
     .read = read_tokens},
    {0},
};

static int parse(struct tokens *tokens, struct bytes bytes)
{
    struct json_key keys[32];
    struct json_limits limits = {.depth_max = 4, .keys = keys, .key_room = 32};
    struct json_texts texts = {.at = mem_alloc(bytes.count + 1), .room = bytes.count + 1};
    struct file_in in = {.tokens = tokens};
    struct json_reader reader;
    int r;

    if (!texts.at) return -ENOMEM;
    json_reader_init(&reader, bytes, &limits);
    r = json_document(&reader, &texts, file_members, &in);
    mem_free(texts.at);
    if (r == 0) return 0;
    return refuse_as(-EBADMSG, "%s: at byte %zu: %s", tokens->path, reader.failed_at, reader.why);
}

static int read_file(weir_file *file, size_t bytes, char *memory)
{
    size_t at = 0;

    while (at < bytes) {
        size_t left = bytes - at;
        ssize_t n = weir_file_read(file, memory + at,
                                   left < WEIR_FILE_IO_BYTES_MAX ? left : WEIR_FILE_IO_BYTES_MAX,
                                   (int64_t)at);

        if (n < 0) return (int)n;
        if (n == 0) return -EBADMSG;
        at += (size_t)n;
    }
    return 0;
}

int tokens_load(struct tokens *tokens)
{
    weir_file *file;
    struct stat stat;
    char *memory = NULL;
    int r = weir_file_open(tokens->path, O_RDONLY | O_NOFOLLOW, 0, &file), closed;

    if (r == -ENOENT) return 0; /* the first token makes it */
    if (r < 0) return r;
    r = weir_file_stat(file, &stat);
    if (r == 0 && (!S_ISREG(stat.st_mode) || (stat.st_mode & 077) != 0))
        r = refuse_as(-EPERM, "%s: others may read it (mode %03o): make it 0600", tokens->path,
                      (unsigned)(stat.st_mode & 0777));
    if (r == 0 && stat.st_size > TOKENS_FILE_BYTES_MAX)
        r = refuse_as(-EBADMSG, "%s: larger than %d bytes", tokens->path, TOKENS_FILE_BYTES_MAX);
    if (r == 0) {
        memory = mem_alloc((size_t)stat.st_size + 1);
        r = memory ? read_file(file, (size_t)stat.st_size, memory) : -ENOMEM;
    }
    closed = weir_file_close(file);
    if (r == 0) r = closed;
    if (r == 0) r = parse(tokens, (struct bytes){memory, (size_t)stat.st_size});
    if (r == 0) atom_store(&tokens->kept, true);
    mem_free(memory);
    return r;
}
