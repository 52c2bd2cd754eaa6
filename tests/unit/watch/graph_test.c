/* graph_test.c - the map as a graph that dot can draw, with who waits for what. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit/watch/dump_support.h"

static weir_mutex *state;
static weir_tx *tx;
static weir_rx *rx;

static int take_graph(void)
{
    int fd = open_memory();
    ssize_t bytes;

    CHECK_OK(weir_map(fd, WEIR_MAP_GRAPHVIZ));
    bytes = pread(fd, text, sizeof text - 1, 0);
    CHECK_INT(bytes, >, 0);
    CHECK_INT(bytes, <, sizeof text - 1);
    text[bytes] = '\0';
    return fd;
}

/* ---- The grammar, as far as it is used: one statement a line ---- */

/* A name: a letter and digits. Returns what follows it. */
static const char *skip_name(const char *at)
{
    CHECK(islower((unsigned char)*at));
    while (isalnum((unsigned char)*at)) at++;
    return at;
}

/* [name=value, ...]; a value is a word or a quoted string. */
static const char *skip_attributes(const char *at)
{
    CHECK_INT(*at, ==, '[');
    do {
        at = skip_name(at + 1 + (at[1] == ' '));
        CHECK_INT(*at++, ==, '=');
        if (*at != '"') {
            at = skip_name(at);
            continue;
        }
        for (at++; *at != '"'; at++) {
            CHECK_INT((unsigned char)*at, >=, 0x20);
            if (*at == '\\') at++; /* whatever is behind it is meant as it is */
        }
        at++;
    } while (*at == ',');
    CHECK_INT(*at, ==, ']');
    return at + 1;
}

/* Whether a node of that name is declared, by a line of its own. */
static bool has_node(const char *name, size_t bytes)
{
    char begin[64];

    (void)snprintf(begin, sizeof begin, "\n  %.*s [", (int)bytes, name);
    return strstr(text, begin) != NULL;
}

static void check_statement(const char *line)
{
    const char *from = line + 2, *end = skip_name(from), *to;

    CHECK(strncmp(line, "  ", 2) == 0);
    if (strncmp(end, " -> ", 4) == 0) {
        to = end + 4;
        CHECK(has_node(from, (size_t)(end - from)));
        end = skip_name(to);
        CHECK(has_node(to, (size_t)(end - to)));
    }
    CHECK_INT(*end, ==, ' ');
    end = skip_attributes(end + 1);
    CHECK(strncmp(end, ";\n", 2) == 0);
}

static void check_graph(void)
{
    const char *at = text;
    static const char begin[] =
        "digraph weir {\n  rankdir=LR;\n  node [fontsize=10];\n  edge [fontsize=9];\n";

    CHECK(strncmp(at, begin, strlen(begin)) == 0);
    for (at += strlen(begin); strcmp(at, "}\n") != 0; at = strchr(at, '\n') + 1) {
        test_note("%.*s", (int)strcspn(at, "\n"), at);
        check_statement(at);
    }
}

/* ---- Looking for nodes and edges ---- */

/* The name of the node whose label begins so. */
static const char *node(const char *label)
{
    static char names[4][16];
    static unsigned next;
    char *name = names[next++ % 4];
    char begin[128];
    const char *at, *line;

    (void)snprintf(begin, sizeof begin, "label=\"%s", label);
    at = strstr(text, begin);
    if (!at) TEST_FAIL("no node '%s':\n%s", label, text);
    for (line = at; line[-1] != '\n';) line--;
    (void)snprintf(name, sizeof names[0], "%.*s", (int)strcspn(line + 2, " "), line + 2);
    return name;
}

static void check_edge(const char *from, const char *to, const char *attributes)
{
    char edge[128];

    (void)snprintf(edge, sizeof edge, "\n  %s -> %s [%s];\n", from, to, attributes);
    if (!strstr(text, edge)) TEST_FAIL("no edge '%s':\n%s", edge, text);
}

/* ---- Scenes ---- */

static int writer(void *arg)
{
    int item, r;

    (void)arg;
    CHECK_OK(weir_mutex_lock(state));
    r = weir_rx_recv(rx, &item);
    weir_mutex_unlock(state);
    return r;
}

static int reader(void *arg)
{
    (void)arg;
    return weir_mutex_lock(state);
}

static int rests(void *arg)
{
    (void)arg;
    return weir_sleep(long_ms);
}

static int opener(void *arg)
{
    int r = 0;

    (void)arg;
    WEIR_SCOPE(scope, &r, .name = "in\"ner\\\n", PLAIN_SCOPE) {
        CHECK_OK(weir_spawn(scope, rests, NULL, 0));
    }
    return r;
}

static int joiner(void *arg)
{
    return weir_task_join(*(weir_task *)arg, NULL);
}

static void open_all(weir_scope *scope)
{
    weir_task handle;

    CHECK_OK(weir_chan_open_sized(
        scope, sizeof(weir_chan_spec),
        &(weir_chan_spec){
            .name = "orders", .capacity = 4, .overflow = WEIR_WAIT, .on_close = WEIR_DRAIN},
        sizeof(int), &tx, &rx));
    CHECK_OK(weir_mutex_open(scope, "state", &state));
    weir_mutex_may_suspend(state, "somebody has to wait for it");
    CHECK_OK(weir_spawn(scope, writer, NULL, 0));
    for (int i = 0; i < 3; i++) CHECK_OK(weir_spawn(scope, reader, NULL, 0));
    CHECK_OK(weir_spawn(scope, opener, NULL, 0));
    CHECK_OK(weir_task_spawn(scope, &(weir_task_spec){.fn = rests, .name = "slow"}, &handle));
    CHECK_OK(weir_spawn(scope, joiner, &handle, sizeof handle));
    for (int i = 0; i < 5; i++) CHECK_OK(weir_yield());
}

TEST_TASK(graph_shows_who_owns_and_who_waits_for_what, 1, test_clock_manual)
{
    WEIR_SCOPE(scope, &result, .name = "serve", PLAIN_SCOPE) {
        open_all(scope);
        CHECK_INT(close(take_graph()), ==, 0);
        weir_scope_cancel(scope, 0, "enough");
    }
    check_graph();
    /* Owners. */
    check_edge(node("scope 'root'"), node("task 'main'"), "color=gray");
    check_edge(node("task 'main'"), node("scope 'serve'"), "color=gray");
    check_edge(node("scope 'serve'"), node("channel 'orders'"), "color=gray");
    check_edge(node("scope 'serve'"), node("task 'writer'"), "color=gray");
    /* Waits. */
    check_edge(node("task 'reader'"), node("mutex 'state'"), "color=red, label=\"lock\"");
    check_edge(node("mutex 'state'"), node("task 'writer'"),
               "color=red, style=dashed, label=\"held by\"");
    CHECK_INT(count_parts("label=\"held by\""), ==, 1);
    check_edge(node("task 'writer'"), node("channel 'orders'"), "color=red, label=\"item\"");
    check_edge(node("task 'opener'"), node("scope 'in\\\"ner\\\\?'"), "color=red, label=\"end\"");
    check_edge(node("task 'joiner'"), node("task 'slow'"), "color=red, label=\"end\"");
    CHECK_CONTAINS(text, "\\nwaits for mutex 'state',\\nheld by task 'writer' #2");
    CHECK_CONTAINS(text, "fillcolor=palegreen, label=\"task 'main' #1\\nruns\"");
    return 0;
}

/* ---- What is ambiguous is not guessed ---- */

TEST_TASK(graph_does_not_guess_between_two_of_one_name, 1, test_clock_manual)
{
    weir_mutex *other;

    WEIR_SCOPE(scope, &result, .name = "serve", PLAIN_SCOPE) {
        CHECK_OK(weir_mutex_open(scope, "state", &other));
        open_all(scope);
        CHECK_INT(close(take_graph()), ==, 0);
        weir_scope_cancel(scope, 0, "enough");
    }
    check_graph();
    CHECK_CONTAINS(text, " [shape=note, label=\"mutex 'state'\"];\n");
    return 0;
}

/* ---- Beside traffic, and without memory ---- */

static int waits_or_not(void *arg)
{
    ATOM(bool) *over = *(ATOM(bool) **)arg;
    while (!atom_load(over)) CHECK_OK(weir_yield());
    return 0;
}

TEST_TASK(graph_is_whole_beside_other_workers, test_workers(), real_clock)
{
    ATOM(bool) over = false;
    ATOM(bool) *keep = &over;

    WEIR_SCOPE(scope, &result, .name = "serve", PLAIN_SCOPE) {
        for (int i = 0; i < 20; i++) CHECK_OK(weir_spawn(scope, waits_or_not, &keep, sizeof keep));
        for (int i = 0; i < 20; i++) {
            CHECK_INT(close(take_graph()), ==, 0);
            check_graph();
            CHECK_OK(weir_yield());
        }
        atom_store(&over, true);
    }
    return result;
}

static int one_graph(void *arg)
{
    int r = 0;
    int fd = open_memory();

    (void)arg;
    r = weir_map(fd, WEIR_MAP_GRAPHVIZ);
    CHECK_INT(close(fd), ==, 0);
    return r;
}

static int run_one_graph(void *arg)
{
    return weir_run(&(weir_config){.workers = 1, .log_level = WEIR_LOG_OFF}, one_graph, arg);
}

TEST(graph_without_memory_leaves_nothing_behind)
{
    CHECK_INT(test_sweep_alloc(run_one_graph, NULL), >, 5);
}

/* ---- dot ---- */

static int draw(void *arg)
{
    int r = 0;

    WEIR_SCOPE(scope, &r, .name = "serve", PLAIN_SCOPE) {
        open_all(scope);
        *(int *)arg = take_graph();
        weir_scope_cancel(scope, 0, "enough");
    }
    return 0;
}

static void become_dot(void *arg)
{
    CHECK_INT(lseek(*(int *)arg, 0, SEEK_SET), ==, 0);
    CHECK_INT(dup2(*(int *)arg, 0), ==, 0);
    test_become((const char *const[]){"/usr/bin/dot", "-Tsvg", NULL});
    TEST_FAIL("dot cannot be run");
}

TEST(dot_draws_the_graph)
{
    static char picture[256 * 1024];
    int fd = -1;

    if (access("/usr/bin/dot", X_OK) < 0) TEST_SKIP("there is no dot (package graphviz)");
    CHECK_OK(weir_run(&(weir_config){.workers = 1}, draw, &fd));
    CHECK_INT(test_child(become_dot, &fd, picture, sizeof picture), ==, 0);
    CHECK_INT(close(fd), ==, 0);
    CHECK_CONTAINS(picture, "</svg>");
    CHECK_CONTAINS(picture, "held by");
    if (strstr(picture, "Error") || strstr(picture, "Warning")) TEST_FAIL("%s", picture);
}
