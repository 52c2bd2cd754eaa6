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
#include "watch/text.h"

struct map_row {
    struct boundary boundary;
    bool inspected; /* false: its worker or its lock is busy */
    size_t owner;   /* where its owner begins in `owners`, terminated */
};

struct map {
    weir_runtime *runtime;
    struct map_row *rows;
    size_t row_count, row_room;
    size_t omitted; /* rows beyond WEIR_MAP_ROWS_MAX */
    struct text owners;
    int error;

    /* While it walks. */
    bool all_still;
    bool still[WEIR_WORKERS_MAX];
    weir_scope **pending; /* scopes that were found and not visited yet */
    size_t pending_count, pending_room;
};

/* Fill a zeroed map of the calling worker's runtime: 0, or map->error. */
int map_walk(struct map *map);
void map_deinit(struct map *map);

#endif
