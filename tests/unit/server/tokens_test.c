/* tokens_test.c - tokens without HTTP: scopes, expiry, rotation, the file. */
#include "server/tokens.h"

#include <openssl/sha.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/tokens_inside.h"
#include "unit/store/store_test.h"

static struct token_scope scope_of(const char *text)
{
    struct token_scope scope;
    const char *why;

    CHECK_OK(token_scope_parse(bytes_of(text), &scope, &why));
    return scope;
}

TEST(scopes_are_verbs_with_a_queue_a_prefix_or_neither)
{
    static const char *const good[] = {"read",   "work:mail", "enqueue:mail*", "all",
                                       "all:x*", "admin",     "manage:*"};
    static const char *const bad[] = {"",         "fly",      "read:", "public", "admin:mail",
                                      "read:a*b", "read:a**", ":mail", "Read"};

    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct token_scope scope = scope_of(good[i]);
        char text[256];

        (void)token_scope_format(&scope, text, sizeof text);
        CHECK_STR(text, good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct token_scope scope;
        const char *why;

        test_note("%s", bad[i]);
        CHECK_INT(token_scope_parse(bytes_of(bad[i]), &scope, &why), ==, WEIR_EREFUSED);
    }
}

TEST(a_token_allows_what_one_of_its_scopes_does)
{
    struct token token = {.scope_count = 3};

    token.scopes[0] = scope_of("work:mail*");
    token.scopes[1] = scope_of("read");
    token.scopes[2] = scope_of("enqueue:bulk");
    CHECK(token_allows(&token, VERB_WORK, "mail", false));
    CHECK(token_allows(&token, VERB_WORK, "mailer", false));
    CHECK(!token_allows(&token, VERB_WORK, "mai", false));
    CHECK(!token_allows(&token, VERB_WORK, NULL, false));
    CHECK(token_allows(&token, VERB_WORK, "mailer", true));
    CHECK(!token_allows(&token, VERB_WORK, "ma", true));
    CHECK(token_allows(&token, VERB_READ, NULL, false));
    CHECK(token_allows(&token, VERB_READ, "any", true));
    CHECK(token_allows(&token, VERB_ENQUEUE, "bulk", false));
    CHECK(!token_allows(&token, VERB_ENQUEUE, "bulk", true));
    CHECK(!token_allows(&token, VERB_MANAGE, "mail", false));
    CHECK(token_has(&token, VERB_ENQUEUE) && !token_has(&token, VERB_ADMIN));
}

static struct tokens *opened(struct store_stand *stand, char path[128])
{
    struct tokens *tokens = NULL;

    (void)snprintf(path, 128, "%s/tokens.json", stand->path);
    CHECK_OK(tokens_open(stand->scope, path, &tokens));
    return tokens;
}

static void add(struct tokens *tokens, const char *name, int64_t expires_ms, int64_t now_ms,
                char text[TOKEN_TEXT_BYTES])
{
    struct token_scope scope = scope_of("read");

    CHECK_OK(
        tokens_add(tokens,
                   &(struct token_spec){
                       .name = name, .scopes = &scope, .scope_count = 1, .expires_ms = expires_ms},
                   now_ms, text));
}

STORE_TEST(tokens_are_found_until_they_expire_and_their_secrets_are_not_in_the_file)
{
    char path[128], forever[TOKEN_TEXT_BYTES], soon[TOKEN_TEXT_BYTES], bytes[8192];
    struct tokens *tokens = opened(stand, path);
    struct stat stat_;
    size_t count;
    FILE *file;

    add(tokens, "forever", 0, 1000, forever);
    add(tokens, "soon", 5000, 1000, soon);
    tokens_close(tokens);
    CHECK_INT(stat(path, &stat_), ==, 0);
    CHECK_INT(stat_.st_mode & 0777, ==, 0600);
    file = fopen(path, "r");
    CHECK(file);
    count = fread(bytes, 1, sizeof bytes - 1, file);
    bytes[count] = '\0';
    (void)fclose(file);
    CHECK_CONTAINS(bytes, "\"name\":\"forever\"");
    CHECK(!strstr(bytes, forever + 14) && !strstr(bytes, soon + 14));
    tokens = opened(stand, path);
    CHECK(tokens_find(tokens, bytes_of(forever), INT64_MAX));
    CHECK(tokens_find(tokens, bytes_of(soon), 4999));
    CHECK(!tokens_find(tokens, bytes_of(soon), 5000));
    forever[20] ^= 1;
    CHECK(!tokens_find(tokens, bytes_of(forever), 1000));
    CHECK(!tokens_find(tokens, BYTES("weir_"), 1000));
    CHECK(!tokens_find(tokens, (struct bytes){NULL, 0}, 1000));
    tokens_close(tokens);
}

STORE_TEST(an_id_of_a_token_is_one_word_on_a_command_line)
{
    char path[128], name[16], text[TOKEN_TEXT_BYTES];
    struct tokens *tokens = opened(stand, path);

    for (int i = 0; i < 64; i++) {
        (void)snprintf(name, sizeof name, "app-%d", i);
        add(tokens, name, 0, 1000, text);
        CHECK_INT(strspn(text + 5, "0123456789abcdefghjkmnpqrstvwxyz"), ==, TOKEN_ID_BYTES);
        CHECK_INT(text[5 + TOKEN_ID_BYTES], ==, '_');
    }
    tokens_close(tokens);
}

STORE_TEST(a_rotated_token_lives_as_long_as_was_said)
{
    char path[128], old[TOKEN_TEXT_BYTES], text[TOKEN_TEXT_BYTES], id[TOKEN_ID_BYTES + 1];
    struct tokens *tokens = opened(stand, path);
    const struct token *token;

    add(tokens, "app", 0, 1000, old);
    token = tokens_find(tokens, bytes_of(old), 1000);
    memcpy(id, token->id, sizeof id);
    CHECK_OK(tokens_rotate(tokens, id, 500, 2000, text));
    CHECK(tokens_find(tokens, bytes_of(old), 2499));
    CHECK(!tokens_find(tokens, bytes_of(old), 2500));
    token = tokens_find(tokens, bytes_of(text), 9999);
    CHECK(token);
    CHECK_STR(token->name, "app");
    memcpy(id, token->id, sizeof id);
    memcpy(old, text, sizeof old);
    /* At once. */
    CHECK_OK(tokens_rotate(tokens, id, 0, 3000, text));
    CHECK(!tokens_find(tokens, bytes_of(old), 3000));
    CHECK(tokens_find(tokens, bytes_of(text), 3000));
    CHECK_INT(tokens_rotate(tokens, id, 0, 3000, text), ==, -ENOENT);
    CHECK_INT(tokens_drop(tokens, "nobody", 3000), ==, -ENOENT);
    tokens_close(tokens);
}

STORE_TEST(a_file_of_tokens_that_others_may_read_or_that_is_damaged_is_refused)
{
    char path[128], text[TOKEN_TEXT_BYTES];
    struct tokens *tokens = opened(stand, path);
    FILE *file;

    add(tokens, "app", 0, 1000, text);
    tokens_close(tokens);
    tokens = NULL;
    CHECK_INT(chmod(path, 0640), ==, 0);
    CHECK_INT(tokens_open(stand->scope, path, &tokens), ==, -EPERM);
    CHECK_CONTAINS(weir_why(), "0600");
    CHECK_INT(chmod(path, 0600), ==, 0);
    file = fopen(path, "w");
    CHECK(file && fputs("{\"version\":1,\"tokens\":[{\"id\":\"x\"}]}", file) >= 0);
    (void)fclose(file);
    CHECK_INT(tokens_open(stand->scope, path, &tokens), ==, -EBADMSG);
    CHECK_CONTAINS(weir_why(), "at byte");
}

/* ---- How long a look takes ---- */

/* In a process of its own, which is stepped through: instructions from one stop to the next. */
static long steps_of_find(struct tokens *tokens, const char *text)
{
    pid_t pid = fork();
    long steps = 0;
    int status;

    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0) _exit(2);
        (void)raise(SIGSTOP);
        if (tokens_find(tokens, bytes_of(text), 1000)) _exit(3);
        (void)raise(SIGSTOP);
        _exit(0);
    }
    CHECK(pid > 0);
    CHECK_INT(waitpid(pid, &status, 0), ==, pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2) TEST_SKIP("processes cannot be traced here");
    CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    do {
        CHECK_INT(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), ==, 0);
        CHECK_INT(waitpid(pid, &status, 0), ==, pid);
        CHECK(WIFSTOPPED(status));
        steps++;
    } while (WSTOPSIG(status) != SIGSTOP);
    CHECK_INT(kill(pid, SIGKILL), ==, 0);
    CHECK_INT(waitpid(pid, &status, 0), ==, pid);
    return steps;
}

/* Wherever a wrong token differs from a right one, to find that out takes the same. */
STORE_TEST(a_wrong_token_takes_as_long_wherever_it_is_wrong)
{
    enum { PLACES = 4 };
    static const int places[PLACES] = {0, 1, 16, SHA256_DIGEST_LENGTH - 1};
    char path[128], text[TOKEN_TEXT_BYTES];
    struct tokens *tokens = opened(stand, path);
    struct token *token;
    long first = 0;

    if (TEST_SANITIZED) {
        tokens_close(tokens);
        TEST_SKIP("a sanitizer takes steps of its own");
    }
    add(tokens, "app", 0, 1000, text);
    /* What is linked at its first call is linked now. */
    token = (struct token *)(uintptr_t)tokens_find(tokens, bytes_of(text), 1000);
    CHECK(token);
    for (int i = 0; i < PLACES; i++) {
        long steps;

        token->hash[places[i]] ^= 0x80;
        CHECK(!tokens_find(tokens, bytes_of(text), 1000));
        steps = steps_of_find(tokens, text);
        token->hash[places[i]] ^= 0x80;
        test_note("at byte %d: %ld", places[i], steps);
        if (i == 0) first = steps;
        CHECK_INT(steps, >, 100);
        CHECK_INT(steps, ==, first);
    }
    tokens_close(tokens);
}

static const struct token *only(struct tokens *tokens)
{
    const struct token *found[2];

    CHECK_INT(tokens_list(tokens, found, 2), ==, 1);
    return found[0];
}

/* In the whole file, wherever it is said. */
static void rewrite(const char *path, const char *old, const char *instead)
{
    char *made = calloc(1, 8192), *at = made, *found;
    FILE *file = fopen(path, "r");

    CHECK(made && file && fread(made, 1, 8191, file) > 0);
    (void)fclose(file);
    file = fopen(path, "w");
    CHECK(file && strstr(made, old));
    for (; (found = strstr(at, old)); at = found + strlen(old))
        (void)fprintf(file, "%.*s%s", (int)(found - at), at, instead);
    CHECK(fputs(at, file) >= 0);
    (void)fclose(file);
    free(made);
}

/* By hand, or by a program that writes the file: what it says is what holds. */
STORE_TEST(a_token_whose_scopes_were_changed_in_the_file_has_them_after_a_reload)
{
    struct token_scope all = scope_of("all"), read = scope_of("read:mail");
    struct token_spec spec = {.name = "one", .scopes = &all, .scope_count = 1};
    struct tokens *tokens, *other;
    char path[128], text[TOKEN_TEXT_BYTES];
    const struct token *before;

    (void)snprintf(path, sizeof path, "%s/tokens.json", stand->path);
    CHECK_OK(tokens_open(stand->scope, path, &tokens));
    CHECK_OK(tokens_add(tokens, &spec, 1, text));
    before = only(tokens);
    CHECK_INT(tokens_reload(tokens), ==, 1);
    CHECK(only(tokens) == before); /* nothing has changed */
    rewrite(path, "\"all\"", "\"read:mail\"");
    CHECK_INT(tokens_reload(tokens), ==, 1);
    CHECK(tokens_find(tokens, bytes_of(text), 2) == only(tokens));
    CHECK(!token_allows(only(tokens), VERB_ADMIN, NULL, false));
    CHECK(token_allows(only(tokens), VERB_READ, read.queue, false));
    CHECK(before->dropped);
    tokens_close(tokens);
    CHECK_OK(tokens_open(stand->scope, path, &other));
    CHECK(token_allows(only(other), VERB_READ, "mail", false));
    tokens_close(other);
}

STORE_TEST(a_reload_that_fails_half_way_has_changed_no_token)
{
    char path[128], first[TOKEN_TEXT_BYTES], second[TOKEN_TEXT_BYTES];
    struct tokens *tokens = opened(stand, path);
    const struct token *before[2], *after[2];

    add(tokens, "first", 0, 1000, first);
    add(tokens, "second", 0, 1000, second);
    CHECK_INT(tokens_list(tokens, before, 2), ==, 2);
    rewrite(path, "\"read\"", "\"all\"");
    tokens->made = TOKENS_MADE_MAX - 1; /* there is a row for one of them */
    CHECK_INT(tokens_reload(tokens), ==, -ENOMEM);
    CHECK_INT(tokens_list(tokens, after, 2), ==, 2);
    for (int i = 0; i < 2; i++) {
        CHECK(after[i] == before[i]);
        CHECK(!after[i]->dropped);
    }
    CHECK(tokens_find(tokens, bytes_of(first), 2000) == before[0]);
    CHECK(tokens_find(tokens, bytes_of(second), 2000) == before[1]);
    tokens->made = 2;
    CHECK_INT(tokens_reload(tokens), ==, 2);
    CHECK(token_allows(tokens_find(tokens, bytes_of(first), 2000), VERB_ADMIN, NULL, false));
    CHECK(before[0]->dropped && before[1]->dropped);
    tokens_close(tokens);
}

/* Whoever replaces the file has moved the old one away, say. */
STORE_TEST(a_reload_without_the_file_leaves_the_tokens_as_they_are)
{
    char path[128], aside[160], text[TOKEN_TEXT_BYTES];
    struct tokens *tokens = opened(stand, path);

    CHECK_INT(tokens_reload(tokens), ==, 0); /* there never was one */
    CHECK(!tokens_are_kept(tokens));
    add(tokens, "one", 0, 1000, text);
    (void)snprintf(aside, sizeof aside, "%s.aside", path);
    CHECK_INT(rename(path, aside), ==, 0);
    CHECK_INT(tokens_reload(tokens), ==, -ENOENT);
    CHECK_CONTAINS(weir_why(), "nothing has changed");
    CHECK(tokens_find(tokens, bytes_of(text), 2000) == only(tokens));
    CHECK_INT(rename(aside, path), ==, 0);
    CHECK_INT(tokens_reload(tokens), ==, 1);
    CHECK(tokens_find(tokens, bytes_of(text), 2000) == only(tokens));
    tokens_close(tokens);
}

STORE_TEST(refusals_of_a_token_that_are_not_noted_are_counted)
{
    char path[128], text[TOKEN_TEXT_BYTES];
    struct tokens *tokens = opened(stand, path);
    struct token *token;
    uint64_t unnoted, left_out = 0;

    add(tokens, "app", 0, 1000, text);
    token = (struct token *)(uintptr_t)only(tokens);
    token->refusals.rate = 0; /* no minute passes */
    for (int i = 0; i < TOKENS_REFUSALS; i++) {
        CHECK(tokens_note_refusal(tokens, token->id, &unnoted));
        CHECK_INT(unnoted, ==, 0);
    }
    for (; left_out < 7; left_out++) CHECK(!tokens_note_refusal(tokens, token->id, &unnoted));
    bucket_give_back(&token->refusals, 1);
    CHECK(tokens_note_refusal(tokens, token->id, &unnoted));
    CHECK_INT(unnoted, ==, left_out);
    bucket_give_back(&token->refusals, 1);
    CHECK(tokens_note_refusal(tokens, token->id, &unnoted));
    CHECK_INT(unnoted, ==, 0);
    tokens_close(tokens);
}

/* ---- Cut off ---- */

/* How often the file says it. */
static unsigned said(const char *path, const char *what)
{
    static char text[16384];
    FILE *file = fopen(path, "r");
    unsigned count = 0;

    if (!file) return 0;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    (void)fclose(file);
    for (const char *at = text; (at = strstr(at, what)); at++) count++;
    return count;
}

static int change_tokens(struct tokens *tokens)
{
    char text[TOKEN_TEXT_BYTES], id[TOKEN_ID_BYTES + 1] = "";
    struct token_scope scope = scope_of("read");
    struct token_spec spec = {.name = "app", .scopes = &scope, .scope_count = 1};
    int r = tokens_add(tokens, &spec, 1000, text);

    if (r == 0) memcpy(id, text + 5, TOKEN_ID_BYTES);
    if (r == 0) r = tokens_rotate(tokens, id, 500, 1000, text);
    if (r == 0) r = tokens_drop(tokens, id, 1000);
    return r;
}

static int cut_off_task(void *arg)
{
    struct store_stand *stand = arg;
    struct tokens *tokens = NULL;
    unsigned lasting = 0;
    int r = 0, result = 0;
    char path[128];

    (void)snprintf(path, sizeof path, "%s/tokens.json", stand->path);
    (void)unlink(path);
    WEIR_SCOPE(scope, &result, .name = "cut off", .on_failure = WEIR_COLLECT, .max_tasks = 1,
               .overflow = WEIR_REJECT) {
        WEIR_DEADLINE(60000) r = tokens_open(scope, path, &tokens);
        if (r < 0) break;
        WEIR_DEADLINE(60000) r = change_tokens(tokens);
        for (unsigned i = 0; i < tokens->count; i++)
            lasting += atom_load(&tokens->live[i]->expires_ms) == 0;
        CHECK_INT(said(path, "\"id\":"), ==, tokens->count);
        CHECK_INT(said(path, "\"expires_ms\":0"), ==, lasting);
        tokens_close(tokens);
    }
    return r;
}

static int cut_off(void *arg)
{
    return weir_run(&(weir_config){.workers = 1, .log_level = WEIR_LOG_OFF}, cut_off_task, arg);
}

/* A server that is started again has what its clients were told, and no other. */
TEST(the_file_of_tokens_says_what_the_rows_do_wherever_it_is_cut_off)
{
    static struct store_stand stand;

    store_stand_make(&stand);
    CHECK_INT(test_sweep_cancel(cut_off, &stand), >, 3);
    store_stand_remove(&stand);
}
