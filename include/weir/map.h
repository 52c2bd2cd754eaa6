/* map.h - every boundary of the running program, with what it declares and what it does.
 *
 * The map is found by walking the tree of scopes and tasks, so it shows what is there and
 * needs nothing to be registered: scopes, channels, actors, pools and their classes,
 * pipelines and their stages, rates, limits, shedders, locks, events, broadcasts, snapshots,
 * timers, postboxes, idle waits, signal watches, the executors of the runtime, and blocks that
 * wait without a deadline, with their reason. Each row says
 *
 *     kind, name, owner   the scopes and tasks that lead to it: "root/main/serve"
 *     lifetime            what ends it
 *     bound, overflow     how much it holds, and what happens to what is more
 *     failure             what becomes of errors and of what is left over
 *     latency_target_ms   what its users expect, if its spec says so; beside it
 *     wait, run           what was measured: count, p50, p95, p99, max
 *     figures             numbers of now: depth, rejected, ...
 *
 * Bounds: WEIR_MAP_ROWS_MAX rows; how many were left out is said at the end. The other
 * workers stand still while it is made (at most a second is waited for them), and go on
 * before it is written; what belongs to one that does not stand still is named and marked
 * as not inspected. The graph has as many tasks as rows at the most.
 * Threads: a task, a callback on a worker, or the thread that embeds the runtime.
 */
#ifndef WEIR_MAP_H
#define WEIR_MAP_H

#include <weir/defs.h>
#include <weir/error.h>

WEIR_BEGIN

#define WEIR_MAP_ROWS_MAX 10000

enum weir_map_format {
    WEIR_MAP_FORMAT_UNSET = 0,
    WEIR_MAP_TEXT,     /* for people: its words may change */
    WEIR_MAP_JSON,     /* {"boundaries": [{...}], "omitted": 0} */
    WEIR_MAP_GRAPHVIZ, /* for `dot -Tsvg`: boundaries and tasks, who owns what, who waits for
                          what, and who could end that wait */
};

/* weir_map - write the map of the calling task's runtime to `fd`. A reader that does not
 * read holds it up for a second at most (-EAGAIN). Other errors: WEIR_EREFUSED (the format),
 * WEIR_ENOTASK, -ENOMEM, or the kernel's from writing. Never suspends. */
WEIR_API WEIR_MUST_USE int weir_map(int fd, enum weir_map_format format);

WEIR_END

#endif
