/* graph.c - the map as a graph: input of Graphviz's dot.
 *
 *     box        a boundary, with its bound and its figures
 *     round      a task, with why it does not run; filled if it runs
 *     grey       from the owner to what it owns: scope to task and belonging, task to scope
 *     red        from a task to what it waits for
 *     red, dashed   from that to the tasks that could end the wait
 *
 * An edge that would have to guess is not drawn: if two boundaries have the kind and the name
 * of what is waited for, it gets a node of its own.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/map.h>

#include "rt/mem.h"
#include "rt/scope.h"
#include "rt/task.h"
#include "watch/map.h"

/* ---- While the workers stand still ---- */

static size_t keep_string(struct map *map, const char *string)
{
    size_t begin = map->owners.used;

    text_add(&map->owners, string, strlen(string) + 1);
    return begin;
}

static void keep_wait(struct map *map, struct map_task *row)
{
    const struct waiting *waiting = &map->reason.waits.waiting;

    row->waits = true;
    row->what = waiting->what;
    row->object_kind = waiting->kind ? waiting->kind : "";
    row->object_name = keep_string(map, waiting->name);
    row->by = map->by_count;
    for (unsigned i = 0; i < waiting->by_count; i++) {
        if (!map_grow(map, (void **)&map->by, &map->by_room, map->by_count, sizeof *map->by)) {
            return;
        }
        map->by[map->by_count++] = atom_load(&waiting->by[i].task->id);
        row->by_count++;
    }
}

void graph_add_task(struct map *map, const struct task *task, size_t scope_row, bool inspected)
{
    struct map_task *row;

    if (map->task_count == WEIR_MAP_ROWS_MAX) {
        map->tasks_omitted++;
        return;
    }
    if (!map_grow(map, (void **)&map->tasks, &map->task_room, map->task_count,
                  sizeof *map->tasks)) {
        return;
    }
    row = &map->tasks[map->task_count++];
    *row =
        (struct map_task){.id = atom_load(&task->id), .scope = scope_row, .inspected = inspected};
    row->name = keep_string(map, task->name);
    map->reason.text[0] = '\0';
    map->reason.parked = false;
    if (inspected) {
        row->state = task->state;
        reason_find(&map->reason, task);
    }
    row->reason = keep_string(map, map->reason.text);
    if (map->reason.parked) keep_wait(map, row);
}

/* ---- Afterwards ---- */

/* Boundaries by kind and name. */
struct place {
    const char *kind, *name;
    size_t row;
};

struct graph {
    const struct map *map;
    struct text *text;
    struct place *places; /* sorted; NULL: no memory, then nothing is found */
    uint64_t *ids;        /* of tasks that have a node, sorted; the same */
    uint32_t *told;       /* by row, bits of enum wait_for: who could end it was drawn */
};
_Static_assert(WAIT_FOR_COUNT <= 32, "bits of told");

static const char *string_at(const struct graph *graph, size_t at)
{
    return graph->map->owners.data + at;
}

static int compare_places(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    int kind = strcmp(x->kind, y->kind);
    return kind != 0 ? kind : strcmp(x->name, y->name);
}

static int compare_ids(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void index_all(struct graph *graph)
{
    const struct map *map = graph->map;

    graph->places = mem_alloc(map->row_count * sizeof *graph->places + 1);
    graph->ids = mem_alloc(map->task_count * sizeof *graph->ids + 1);
    graph->told = mem_alloc_zeroed(map->row_count * sizeof *graph->told + 1);
    if (graph->places) {
        for (size_t i = 0; i < map->row_count; i++) {
            const struct boundary *boundary = &map->rows[i].boundary;
            graph->places[i] = (struct place){boundary->kind, boundary->name, i};
        }
        qsort(graph->places, map->row_count, sizeof *graph->places, compare_places);
    }
    if (graph->ids) {
        for (size_t i = 0; i < map->task_count; i++) graph->ids[i] = map->tasks[i].id;
        qsort(graph->ids, map->task_count, sizeof *graph->ids, compare_ids);
    }
}

static bool has_task(const struct graph *graph, uint64_t id)
{
    return graph->ids && bsearch(&id, graph->ids, graph->map->task_count, sizeof id, compare_ids);
}

/* The row of the only boundary of that kind and name, or MAP_NONE. */
static size_t find_row(const struct graph *graph, const char *kind, const char *name)
{
    const struct place wanted = {kind, name, 0};
    const struct place *found, *end;

    if (!graph->places) return MAP_NONE;
    found = bsearch(&wanted, graph->places, graph->map->row_count, sizeof wanted, compare_places);
    if (!found) return MAP_NONE;
    end = graph->places + graph->map->row_count;
    if (found + 1 < end && compare_places(found + 1, &wanted) == 0) return MAP_NONE;
    if (found > graph->places && compare_places(found - 1, &wanted) == 0) return MAP_NONE;
    return found->row;
}

/* ---- Nodes ---- */

static void write_boundary(struct graph *graph, size_t index)
{
    const struct map_row *row = &graph->map->rows[index];
    const struct boundary *boundary = &row->boundary;
    struct text *text = graph->text;

    text_say(text, "  b%zu [shape=%s, label=\"", index,
             strcmp(boundary->kind, "scope") == 0 ? "folder" : "box");
    text_dot(text, boundary->kind);
    text_say(text, " '");
    text_dot(text, boundary->name);
    text_say(text, "'");
    if (boundary->bound[0]) {
        text_say(text, "\\n");
        text_dot(text, boundary->bound);
    }
    for (unsigned i = 0; i < boundary->figure_count; i++) {
        if (boundary->figures[i].value == 0) continue;
        text_say(text, "\\n%s %llu", boundary->figures[i].name,
                 (unsigned long long)boundary->figures[i].value);
    }
    if (!row->inspected) text_say(text, "\\nnot inspected (busy)");
    text_say(text, "\"];\n");
    if (row->scope != MAP_NONE) {
        text_say(text, "  b%zu -> b%zu [color=gray];\n", row->scope, index);
    } else if (row->task && has_task(graph, row->task)) {
        text_say(text, "  t%llu -> b%zu [color=gray];\n", (unsigned long long)row->task, index);
    }
}

/* A line for each part: one of them may be long enough. */
static void write_lines(struct graph *graph, const char *string)
{
    char part[REASON_BYTES];
    const char *comma;

    while ((comma = strstr(string, ", "))) {
        (void)snprintf(part, sizeof part, "%.*s,", (int)(comma - string), string);
        text_dot(graph->text, part);
        text_say(graph->text, "\\n");
        string = comma + 2;
    }
    text_dot(graph->text, string);
}

static void write_task(struct graph *graph, const struct map_task *task)
{
    struct text *text = graph->text;
    bool runs = task->inspected && task->state == TASK_RUNNING;
    const char *reason = string_at(graph, task->reason);

    text_say(text, "  t%llu [shape=box, style=%s, label=\"task '", (unsigned long long)task->id,
             runs ? "\"rounded,filled\", fillcolor=palegreen" : "rounded");
    text_dot(text, string_at(graph, task->name));
    text_say(text, "' #%llu\\n", (unsigned long long)task->id);
    write_lines(graph, !task->inspected ? "not inspected (busy)" : *reason ? reason : "runs");
    text_say(text, "\"];\n");
    if (task->scope != MAP_NONE) {
        text_say(text, "  b%zu -> t%llu [color=gray];\n", task->scope,
                 (unsigned long long)task->id);
    }
}

/* ---- Waits ---- */

static const char *wait_label(enum wait_for what)
{
    switch (what) {
    case WAIT_FOR_ROOM:
    case WAIT_FOR_SLOT: return "room";
    case WAIT_FOR_ITEM: return "item";
    case WAIT_FOR_PERMIT: return "permit";
    case WAIT_FOR_LOCK: return "lock";
    case WAIT_FOR_ANSWER: return "answer";
    case WAIT_FOR_WORK: return "work";
    case WAIT_FOR_TASK:
    case WAIT_FOR_SCOPE:
    case WAIT_FOR_END: return "end";
    default: return "waits";
    }
}

/* Those who wait for the same have the same who could end it: once is enough. */
static bool told_before(struct graph *graph, size_t row, enum wait_for what)
{
    bool before;

    if (row == MAP_NONE || !graph->told) return false;
    before = graph->told[row] >> what & 1;
    graph->told[row] |= UINT32_C(1) << what;
    return before;
}

/* What is waited for and who could end it: task -> object -> tasks, or without an object
 * task -> tasks. */
static void write_wait(struct graph *graph, const struct map_task *task)
{
    struct text *text = graph->text;
    const char *name = string_at(graph, task->object_name);
    const char *label = wait_label(task->what);
    bool direct = task->what == WAIT_FOR_TASK || !*task->object_kind;
    bool holds = task->what == WAIT_FOR_LOCK || task->what == WAIT_FOR_PERMIT;
    char object[48];
    size_t row = MAP_NONE;

    (void)snprintf(object, sizeof object, "t%llu", (unsigned long long)task->id);
    if (!direct) {
        row = find_row(graph, task->object_kind, name);
        if (row != MAP_NONE) {
            (void)snprintf(object, sizeof object, "b%zu", row);
        } else {
            (void)snprintf(object, sizeof object, "o%llu", (unsigned long long)task->id);
            text_say(text, "  %s [shape=note, label=\"", object);
            text_dot(text, task->object_kind);
            if (*name) {
                text_say(text, " '");
                text_dot(text, name);
                text_say(text, "'");
            }
            text_say(text, "\"];\n");
        }
        text_say(text, "  t%llu -> %s [color=red, label=\"%s\"];\n", (unsigned long long)task->id,
                 object, label);
    }
    if (told_before(graph, row, task->what)) return;
    for (size_t i = 0; i < task->by_count; i++) {
        uint64_t by = graph->map->by[task->by + i];

        if (!has_task(graph, by)) continue;
        text_say(text, "  %s -> t%llu [color=red%s, label=\"%s\"];\n", object,
                 (unsigned long long)by, direct ? "" : ", style=dashed",
                 direct  ? label
                 : holds ? "held by"
                         : "by");
    }
}

void graph_write(const struct map *map, struct text *text)
{
    struct graph graph = {.map = map, .text = text};

    index_all(&graph);
    text_say(text, "digraph weir {\n  rankdir=LR;\n  node [fontsize=10];\n  edge [fontsize=9];\n");
    for (size_t i = 0; i < map->row_count; i++) write_boundary(&graph, i);
    for (size_t i = 0; i < map->task_count; i++) write_task(&graph, &map->tasks[i]);
    for (size_t i = 0; i < map->task_count; i++) {
        if (map->tasks[i].waits) write_wait(&graph, &map->tasks[i]);
    }
    if (map->omitted + map->tasks_omitted > 0) {
        text_say(text,
                 "  omitted [shape=plaintext, label=\"%zu boundaries and %zu tasks are not "
                 "shown\"];\n",
                 map->omitted, map->tasks_omitted);
    }
    text_say(text, "}\n");
    mem_free(graph.places);
    mem_free(graph.ids);
    mem_free(graph.told);
}
