/* map.h - the rows of the boundary map: map_walk.c finds them, map.c writes them.
 *
 * Invariant: after map_walk no row points into the program: its strings are constants or
 * its own, and meters live as long as the runtime. So the workers go on before a row is
 * written.
 */
#ifndef WEIR_WATCH_MAP_H
#define WEIR_WATCH_MAP_H

#include "rt/boundary.h"
#include "rt/runtime.h"
#include "watch/reason.h"
#include "watch/text.h"

struct map_row {
    struct boundary boundary;
    bool inspected; /* false: its worker or its lock is busy */
    size_t owner;   /* where its owner begins in `owners`, terminated */
    /* For the graph: the row of its scope, or MAP_NONE; the task that it belongs to, or 0. */
    size_t scope;
    uint64_t task;
};
#define MAP_NONE SIZE_MAX

/* A task, for the graph: strings begin where said in `owners`. */
struct map_task {
    uint64_t id;
    size_t name;
    size_t scope; /* the row of its scope */
    bool inspected;
    uint8_t state;
    size_t reason;
    bool waits; /* the members below are set */
    enum wait_for what;
    const char *object_kind; /* "" if there is no object */
    size_t object_name;
    size_t by, by_count; /* in `by`: ids of tasks that could end the wait */
};

struct map {
    weir_runtime *runtime;
    struct map_row *rows;
    size_t row_count, row_room;
    size_t omitted; /* rows beyond WEIR_MAP_ROWS_MAX */
    struct text owners;
    int error;

    /* Only for the graph. */
    bool with_tasks;
    struct map_task *tasks;
    size_t task_count, task_room;
    size_t tasks_omitted; /* beyond WEIR_MAP_ROWS_MAX */
    uint64_t *by;
    size_t by_count, by_room;

    /* While it walks. */
    bool all_still;
    bool still[WEIR_WORKERS_MAX];
    weir_scope **pending; /* scopes that were found and not visited yet */
    size_t pending_count, pending_room;
    size_t scope_row; /* of the scope that is visited */
    struct reason reason;
};

/* Fill a zeroed map of the calling worker's runtime: 0, or map->error. */
int map_walk(struct map *map);
void map_deinit(struct map *map);

/* Room for one more element of an array; false: no memory, and map->error says so. */
bool map_grow(struct map *map, void **array, size_t *room, size_t count, size_t bytes);

/* ---- graph.c ---- */

/* While it walks: a task of the scope with that row. */
void graph_add_task(struct map *map, const struct task *task, size_t scope_row, bool inspected);
/* Afterwards: the whole as input of Graphviz's dot. */
void graph_write(const struct map *map, struct text *text);

#endif
