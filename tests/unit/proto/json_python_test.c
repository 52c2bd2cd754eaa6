/* json_python_test.c - the reader beside Python's: the same texts are JSON, and mean the same. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/test.h"
#include "proto/base64.h"
#include "proto/json_write.h"
#include "unit/policy/chance.h"

enum { TEXTS = 4000, TEXT_MAX = 160, KEYS = 64 };

/* A line of base64 in, a line out: '-' for what is no JSON, else base64 of it without blanks.
 * Python takes names that come twice, lone surrogates, NaN and any depth: refused by hand. */
static char program[] =
    "import base64, json, sys\n"
    "class N(str): pass\n"
    "def no(x): raise ValueError(x)\n"
    "def pairs(p):\n"
    "    if len({k for k, v in p}) < len(p): raise ValueError('twice')\n"
    "    return dict(p)\n"
    "def show(v, d):\n"
    "    if isinstance(v, (dict, list)) and d == 0: raise ValueError('deep')\n"
    "    if isinstance(v, N): return str(v)\n"
    "    if isinstance(v, dict):\n"
    "        return '{' + ','.join(show(k, 0) + ':' + show(w, d - 1) for k, w in v.items()) + '}'\n"
    "    if isinstance(v, list): return '[' + ','.join(show(w, d - 1) for w in v) + ']'\n"
    "    return json.dumps(v, ensure_ascii=False)\n"
    "for line in sys.stdin:\n"
    "    try:\n"
    "        text = base64.b64decode(line).decode('utf-8')\n"
    "        v = json.loads(text, parse_int=N, parse_float=N, parse_constant=no,\n"
    "                       object_pairs_hook=pairs)\n"
    "        print(base64.b64encode(show(v, 8).encode('utf-8')).decode())\n"
    "    except (ValueError, RecursionError):\n"
    "        print('-')\n";

/* Pieces that are near to each other in valid texts, and some that never are. */
static const char *const words[] = {
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"a\"",
    "\"b\"",
    "\"\"",
    "\"a\":",
    "\"b\":",
    "1",
    "-0",
    "0.5e-3",
    "1E+2",
    "true",
    "false",
    "null",
    " ",
    "\n",
    "\"\\n\"",
    "\"\\u00e4\"",
    "\"\\ud83d\\ude00\"",
    "\"\\ud800\"",
    "\"\xc3\xa4\"",
    "\"\xff\"",
    "01",
    "NaN",
    "\"\x7f\"",
    "\"\\u0061\":",
    "\"\\u001F\\\"\"",
    "\t",
};

struct text {
    char at[TEXT_MAX + 32];
    size_t count;
};

static void put_word(struct text *text, const char *word)
{
    size_t count = strlen(word);

    if (text->count + count > TEXT_MAX) return;
    memcpy(text->at + text->count, word, count);
    text->count += count;
}

/* Mostly valid: a value of some depth. */
static void put_value(uint64_t *chance, struct text *text, unsigned depth)
{
    static const char *const names[] = {"\"a\":", "\"b\":", "\"\\u0062\":", "\"c d\" :", "\"\":"};
    unsigned kind = (unsigned)chance_below(chance, depth > 0 ? 10 : 6);
    unsigned parts = (unsigned)chance_below(chance, 4);

    if (kind < 6) {
        put_word(text, words[6 + chance_below(chance, sizeof words / sizeof words[0] - 6)]);
        return;
    }
    put_word(text, kind < 8 ? "{" : "[");
    for (unsigned i = 0; i < parts; i++) {
        if (i > 0) put_word(text, chance_below(chance, 4) > 0 ? "," : " , ");
        if (kind < 8) put_word(text, names[chance_below(chance, 5)]);
        put_value(chance, text, depth - 1);
    }
    put_word(text, kind < 8 ? "}" : "]");
}

static void make_text(uint64_t *chance, struct text *text)
{
    unsigned kind = (unsigned)chance_below(chance, 4);

    text->count = 0;
    if (kind == 0) {
        for (size_t left = 1 + chance_below(chance, 8); left > 0; left--) {
            put_word(text, words[chance_below(chance, sizeof words / sizeof words[0])]);
        }
        return;
    }
    put_value(chance, text, kind == 3 ? 9 : 3);
    /* One byte of it is another. */
    if (kind == 1 && text->count > 0) {
        text->at[chance_below(chance, text->count)] = (char)chance_below(chance, 256);
    }
}

/* The same as Python's program writes, from tokens; false: it is no JSON. */
static bool rewrite(struct bytes text, struct buffer *out)
{
    static struct json_key keys[KEYS];
    struct json_limits limits = {.depth_max = 8, .keys = keys, .key_room = KEYS};
    struct json_reader reader;
    struct json_writer json;
    struct json_token token;
    char string[TEXT_MAX + 1];

    json_reader_init(&reader, text, &limits);
    json_writer_init(&json, out);
    for (token = json_next(&reader); token.kind > JSON_END; token = json_next(&reader)) {
        switch (token.kind) {
        case JSON_OBJECT: json_open_object(&json); break;
        case JSON_ARRAY: json_open_array(&json); break;
        case JSON_OBJECT_END:
        case JSON_ARRAY_END: json_close(&json); break;
        case JSON_KEY:
            string[json_text(&token, string)] = '\0';
            json_key(&json, string);
            break;
        case JSON_STRING:
            json_put_text(&json, (struct bytes){string, json_text(&token, string)});
            break;
        default: json_put_raw(&json, token.text);
        }
    }
    return token.kind == JSON_END;
}

static void write_texts(FILE *file, uint64_t seed)
{
    uint64_t chance = seed;
    char line[512];
    struct text text;

    for (int i = 0; i < TEXTS; i++) {
        make_text(&chance, &text);
        line[base64_encode((struct bytes){text.at, text.count}, line)] = '\0';
        fprintf(file, "%s\n", line);
    }
}

static unsigned compare_answers(FILE *answers, uint64_t seed)
{
    uint64_t chance = seed;
    char line[2048], wanted[1024], memory[2048];
    unsigned valid = 0;
    struct text text;

    for (int i = 0; i < TEXTS; i++) {
        struct buffer out;
        bool is_json;
        size_t count = 0;

        make_text(&chance, &text);
        CHECK(fgets(line, sizeof line, answers));
        buffer_init_fixed(&out, memory, sizeof memory);
        is_json = rewrite((struct bytes){text.at, text.count}, &out);
        test_note("WEIR_TEST_SEED=%llu, %d: %.*s\n -> %.*s\nPython: %s", (unsigned long long)seed,
                  i, (int)text.count, text.at, (int)out.used, out.at, line);
        line[strcspn(line, "\n")] = '\0';
        CHECK_INT(is_json, ==, line[0] != '-');
        if (!is_json) continue;
        valid++;
        CHECK_INT(base64_decode(bytes_of(line), wanted, &count), ==, 0);
        CHECK(bytes_are((struct bytes){wanted, count}, buffer_bytes(&out)));
    }
    return valid;
}

/* Python with the file at `path` to read from. Its lines; NULL: there is no Python. */
static FILE *start_python(const char *path, pid_t *ret_pid)
{
    static char name[] = "python3", option[] = "-c";
    char *arguments[] = {name, option, program, NULL};
    posix_spawn_file_actions_t actions;
    int fds[2], r;
    FILE *answers;

    CHECK_INT(pipe2(fds, O_CLOEXEC), ==, 0);
    CHECK_INT(posix_spawn_file_actions_init(&actions), ==, 0);
    CHECK_INT(posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, path, O_RDONLY, 0), ==, 0);
    CHECK_INT(posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO), ==, 0);
    r = posix_spawnp(ret_pid, name, &actions, NULL, arguments, environ);
    CHECK_INT(posix_spawn_file_actions_destroy(&actions), ==, 0);
    CHECK_INT(close(fds[1]), ==, 0);
    if (r != 0) {
        CHECK_INT(r, ==, ENOENT);
        CHECK_INT(close(fds[0]), ==, 0);
        return NULL;
    }
    answers = fdopen(fds[0], "re");
    CHECK(answers);
    return answers;
}

TEST(json_is_what_python_takes_for_it)
{
    char path[] = "/tmp/weir-json-XXXXXX";
    int fd = mkostemp(path, O_CLOEXEC), status = -1;
    uint64_t seed = chance_seed();
    FILE *file, *answers;
    unsigned valid;
    pid_t pid;

    CHECK(fd >= 0);
    file = fdopen(fd, "we");
    CHECK(file);
    write_texts(file, seed);
    CHECK_INT(fclose(file), ==, 0);
    answers = start_python(path, &pid);
    if (!answers) {
        CHECK_INT(remove(path), ==, 0);
        TEST_SKIP("there is no python3");
    }
    valid = compare_answers(answers, seed);
    CHECK_INT(fgetc(answers), ==, EOF);
    CHECK_INT(fclose(answers), ==, 0);
    CHECK_INT(waitpid(pid, &status, 0), ==, pid);
    CHECK_INT(status, ==, 0);
    CHECK_INT(remove(path), ==, 0);
    /* Both kinds are there in numbers. */
    CHECK_INT(valid, >, TEXTS / 10);
    CHECK_INT(valid, <, TEXTS * 9 / 10);
}
