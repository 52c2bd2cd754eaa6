/* map_walk.c - every boundary, by walking the tree of scopes.
 *
 * The other workers stand still meanwhile, as for a dump. Scopes are visited one by one
 * from a list on the heap: of each one its own row, then those of what belongs to it, then
 * its tasks are looked through for scopes that they have open. A worker that does not stand
 * still may change lists, so they are read under the scope's lock then, and its own tasks
 * and belongings are left alone.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <weir/map.h>

#include "rt/mem.h"
#include "rt/scope.h"
#include "rt/task.h"
#include "watch/map.h"
#include "watch/trace.h"

enum { ROWS_FIRST = 64, OWNER_LEVELS_MAX = 64 };
#define PAUSE_NS INT64_C(1000000000)

#if !WEIR_TSAN
#define AnnotateIgnoreReadsBegin(file, line) (void)0
#define AnnotateIgnoreReadsEnd(file, line) (void)0
#endif

/* ---- Rows ---- */

bool map_grow(struct map *map, void **array, size_t *room, size_t count, size_t bytes)
{
    size_t want = *room ? *room * 2 : (size_t)ROWS_FIRST;
    void *moved;

    if (count < *room) return true;
    moved = mem_resize(*array, want * bytes);
    if (!moved) {
        map->error = -ENOMEM;
        return false;
    }
    *array = moved;
    *room = want;
    return true;
}

static struct boundary new_boundary(const char *kind)
{
    return (struct boundary){.kind = kind, .wait_histogram = -1, .run_histogram = -1};
}

/* A row for the owner whose name was added last, or NULL: it is left out. */
static struct map_row *row_new(struct map *map, const char *kind, size_t owner)
{
    struct map_row *row;

    if (map->row_count == WEIR_MAP_ROWS_MAX) {
        map->omitted++;
        return NULL;
    }
    if (!map_grow(map, (void **)&map->rows, &map->row_room, map->row_count, sizeof *map->rows)) {
        return NULL;
    }
    row = &map->rows[map->row_count++];
    *row = (struct map_row){
        .boundary = new_boundary(kind), .inspected = true, .owner = owner, .scope = map->scope_row};
    return row;
}

/* ---- Owners ---- */

/* "root/main/serve": the scope's name, and the names that lead to it. Returns where it
 * begins. */
static size_t add_owner(struct map *map, const weir_scope *scope, const struct task *task)
{
    const char *names[2 * OWNER_LEVELS_MAX];
    size_t begin = map->owners.used;
    unsigned count = 0;

    if (map->row_count == WEIR_MAP_ROWS_MAX) return 0; /* there is no row for it */
    if (task) names[count++] = task->name;
    while (scope && count < 2 * OWNER_LEVELS_MAX - 1) {
        names[count++] = scope->name;
        if (!scope->opener) break;
        names[count++] = scope->opener->name;
        scope = scope->opener->scope;
    }
    if (count == 0) text_add(&map->owners, "runtime", strlen("runtime"));
    for (unsigned i = count; i > 0; i--) {
        text_add(&map->owners, names[i - 1], strlen(names[i - 1]));
        if (i > 1) text_add(&map->owners, "/", 1);
    }
    text_add(&map->owners, "", 1); /* its terminator */
    return begin;
}

/* ---- Scopes ---- */

static size_t list_count(const struct list *list)
{
    size_t count = 0;
    list_for_each(node, list) count++;
    return count;
}

static void describe_failure(const weir_scope *scope, struct boundary *boundary)
{
    switch (scope->on_failure) {
    case WEIR_FAIL_FAST:
        (void)snprintf(boundary->failure, sizeof boundary->failure,
                       "fail fast: the first failure cancels the others");
        break;
    case WEIR_COLLECT:
        (void)snprintf(boundary->failure, sizeof boundary->failure,
                       "collect: the others go on, all failures are kept");
        break;
    default:
        (void)snprintf(boundary->failure, sizeof boundary->failure,
                       "supervise: at most %d restarts in %lld ms", scope->restart.max_restarts,
                       (long long)scope->restart.window_ms);
        break;
    }
}

/* What never changes while the scope is open: needs no lock. */
static void describe_scope(const weir_scope *scope, struct boundary *boundary)
{
    (void)snprintf(boundary->name, sizeof boundary->name, "%s", scope->name);
    boundary->where = scope->opener ? scope->where : NULL;
    boundary->lifetime =
        scope->opener ? "lexical: closed before its opener leaves it" : "the runtime's";
    if (scope->max_tasks == SIZE_MAX) {
        (void)snprintf(boundary->bound, sizeof boundary->bound, "tasks of the runtime");
    } else {
        boundary_bound(boundary, scope->max_tasks, "tasks");
    }
    boundary->overflow = boundary_overflow((int)scope->overflow);
    describe_failure(scope, boundary);
}

static void count_scope(const weir_scope *scope, struct boundary *boundary)
{
    boundary_figure(boundary, "tasks", scope->live);
    boundary_figure(boundary, "waiting_to_spawn", list_count(&scope->spawners));
    boundary_figure(boundary, "ended_not_joined", list_count(&scope->ended));
    boundary_figure(boundary, "failures", scope->failures_total);
    boundary_figure(boundary, "belongings", list_count(&scope->belongings));
}

/* ---- What is in a scope ---- */

static void add_belonging(struct map *map, struct belonging *belonging, size_t owner)
{
    const struct belonging_kind *kind = belonging->kind;
    struct map_row *row;

    if (!map->still[belonging->worker->index]) {
        row = row_new(map, kind->name, owner);
        if (row) row->inspected = false;
        return;
    }
    for (unsigned i = 0;; i++) {
        struct boundary boundary = new_boundary(kind->name);
        if (!kind->boundary(belonging, i, &boundary)) return;
        row = row_new(map, kind->name, owner);
        if (row) row->boundary = boundary;
    }
}

static void add_no_deadline(struct map *map, const struct timed_block *timed,
                            const struct task *task)
{
    struct map_row *row = row_new(map, "no deadline", add_owner(map, task->scope, task));

    if (!row) return;
    row->scope = MAP_NONE;
    row->task = atom_load(&task->id);
    (void)snprintf(row->boundary.name, sizeof row->boundary.name, "%s", timed->reason);
    row->boundary.where = timed->where;
    row->boundary.lifetime = "until its block is left";
    (void)snprintf(row->boundary.bound, sizeof row->boundary.bound, "no bound in time");
    row->boundary.overflow = boundary_overflow(WEIR_WAIT);
    (void)snprintf(row->boundary.failure, sizeof row->boundary.failure,
                   "cancel and stop still end its waits");
}

/* Scopes that the task has open are visited later; the innermost is found first, and what
 * is visited last was noted first. */
static void look_through(struct map *map, const struct task *task)
{
    /* The outer blocks of one that has returned may be gone with its stack. */
    if (task->state == TASK_RUNNING && !task->stack) return;
    for (struct block *block = task->top; block && block != &task->base; block = block->outer) {
        if (block->kind == BLOCK_NO_DEADLINE) {
            add_no_deadline(map, (const struct timed_block *)block, task);
        }
        if (block->kind != BLOCK_SCOPE) continue;
        if (!map_grow(map, (void **)&map->pending, &map->pending_room, map->pending_count,
                      sizeof *map->pending)) {
            return;
        }
        map->pending[map->pending_count++] = (weir_scope *)block;
    }
}

/* A task that has not started has no blocks, and may be started by a busy worker. */
static bool inspectable(const struct map *map, const struct task *task)
{
    const struct worker *home = atom_load_acquire(&task->home);
    return home && map->still[home->index];
}

static void visit(struct map *map, weir_scope *scope)
{
    size_t owner = add_owner(map, scope->opener ? scope->opener->scope : NULL, scope->opener);
    struct map_row *row;
    size_t self;

    map->scope_row = MAP_NONE;
    row = row_new(map, "scope", owner);
    if (row) {
        describe_scope(scope, &row->boundary);
        row->task = scope->opener ? atom_load(&scope->opener->id) : 0;
        map->scope_row = (size_t)(row - map->rows);
    }
    if (!boundary_hold(&scope->lock, !map->all_still)) {
        if (row) row->inspected = false;
        return;
    }
    if (row) count_scope(scope, &row->boundary);
    self = add_owner(map, scope, NULL);
    list_for_each(node, &scope->belongings) {
        add_belonging(map, container_of(node, struct belonging, node), self);
    }
    list_for_each(node, &scope->children) {
        struct task *task = container_of(node, struct task, sibling);
        bool inspected = inspectable(map, task);
        if (map->with_tasks) {
            graph_add_task(map, task, map->scope_row,
                           inspected || (map->all_still && !atom_load(&task->home)));
        }
        if (inspected) look_through(map, task);
    }
    boundary_let_go(&scope->lock, !map->all_still);
}

/* ---- The runtime ---- */

static void add_executor(struct map *map, struct blocking *executor)
{
    struct map_row *row = row_new(map, "executor", add_owner(map, NULL, NULL));
    struct boundary *boundary;

    if (!row) return;
    boundary = &row->boundary;
    (void)snprintf(boundary->name, sizeof boundary->name, "%s", executor->name);
    boundary->lifetime = "the runtime's";
    (void)snprintf(boundary->bound, sizeof boundary->bound, "%d threads, %zu calls queued",
                   executor->threads_max, executor->queue_max);
    boundary->overflow = boundary_overflow(WEIR_REJECT);
    (void)snprintf(boundary->failure, sizeof boundary->failure,
                   "result to the caller; a caller that is cancelled leaves an orphan");
    row->inspected = boundary_hold(&executor->lock, true);
    if (!row->inspected) return;
    boundary_figure(boundary, "depth", executor->queue_count);
    boundary_figure(boundary, "running",
                    (uint64_t)executor->busy_count + executor->completion_count);
    boundary_figure(boundary, "orphans", executor->orphan_count);
    boundary_figure(boundary, "rejected", executor->rejected_total);
    boundary_let_go(&executor->lock, true);
}

static void add_tracer(struct map *map, struct tracer *tracer)
{
    struct map_row *row;
    struct boundary *boundary;
    struct tracer_figures figures;

    if (!tracer) return;
    row = row_new(map, "trace", add_owner(map, NULL, NULL));
    if (!row) return;
    boundary = &row->boundary;
    (void)snprintf(boundary->name, sizeof boundary->name, "%s", tracer->exporter.name);
    boundary->lifetime = "the runtime's";
    (void)snprintf(boundary->bound, sizeof boundary->bound, "%zu spans of each worker",
                   tracer->spec.buffer_max);
    boundary->overflow = boundary_overflow(tracer->spec.overflow);
    (void)snprintf(boundary->failure, sizeof boundary->failure,
                   "what cannot be exported is lost and counted");
    tracer_figures(tracer, &figures);
    boundary_figure(boundary, "depth", figures.buffered);
    boundary_figure(boundary, "ended", figures.ended);
    boundary_figure(boundary, "exported", figures.exported);
    boundary_figure(boundary, "dropped",
                    figures.dropped_full + figures.dropped_memory + figures.lost);
}

static void walk(struct map *map)
{
    weir_scope *scope = map->runtime->root;

    add_executor(map, &map->runtime->files);
    add_executor(map, &map->runtime->names);
    add_executor(map, &map->runtime->spawns);
    add_tracer(map, map->runtime->tracer);
    while (scope && map->error == 0) {
        visit(map, scope);
        scope = map->pending_count > 0 ? map->pending[--map->pending_count] : NULL;
    }
}

int map_walk(struct map *map)
{
    weir_runtime *runtime = worker_self()->runtime;

    map->runtime = runtime;
    text_init(&map->owners);
    (void)runtime_pause(runtime, PAUSE_NS);
    /* Who stands still is looked at once: one that does so later counts as busy. */
    map->all_still = true;
    for (unsigned i = 0; i < runtime->worker_count; i++) {
        map->still[i] = worker_stands_still(&runtime->workers[i]);
        map->all_still = map->all_still && map->still[i];
    }
    map->reason.runtime = runtime;
    map->reason.now_ns = runtime->kernel->now_ns(runtime->kernel);
    map->reason.all_still = map->all_still;
    map->reason.still = map->still;
    map->scope_row = MAP_NONE;
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    walk(map);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    runtime_resume(runtime);
    if (map->error == 0) map->error = map->owners.error;
    return map->error;
}

void map_deinit(struct map *map)
{
    mem_free(map->rows);
    mem_free(map->pending);
    mem_free(map->tasks);
    mem_free(map->by);
    text_deinit(&map->owners);
}
