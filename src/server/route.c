/* route.c - the table of routes, cut into segments once, and a path against it. */
#include "server/route.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "rt/mem.h"

/* One for all routes that have the same path, whatever their parameters are called. */
struct route_path {
    struct bytes segments[HTTP_SEGMENTS_MAX]; /* `at` is NULL: takes any */
    unsigned segment_count;
    unsigned said; /* a bit for each segment that is said; those of the first ones are highest */
    unsigned allowed;
    const struct route *routes[METHOD_COUNT];
};

/* ---- The index ---- */

static bool is_parameter(struct bytes segment)
{
    return segment.count > 2 && segment.at[0] == '{' && segment.at[segment.count - 1] == '}';
}

static void cut_path(const char *path, struct route_path *ret_path)
{
    struct bytes rest = bytes_of(path + 1), part;
    unsigned parameters = 0;

    assert(path[0] == '/');
    *ret_path = (struct route_path){0};
    if (rest.count == 0) rest.at = NULL;
    while (bytes_split(&rest, '/', &part)) {
        unsigned at = ret_path->segment_count++;

        assert(at < HTTP_SEGMENTS_MAX);
        if (is_parameter(part)) {
            parameters++;
            continue;
        }
        ret_path->segments[at] = part;
        ret_path->said |= 1u << (HTTP_SEGMENTS_MAX - at);
    }
    assert(parameters <= ROUTE_PARAMETERS_MAX);
}

static bool is_same_path(const struct route_path *path, const struct route_path *other)
{
    if (path->segment_count != other->segment_count || path->said != other->said) return false;
    for (unsigned i = 0; i < path->segment_count; i++)
        if (!bytes_are(path->segments[i], other->segments[i])) return false;
    return true;
}

/* The one that has this path already, or a new one. */
static struct route_path *path_of(struct route_index *index, const char *text)
{
    struct route_path *path = &index->paths[index->path_count];

    cut_path(text, path);
    for (size_t i = 0; i < index->path_count; i++)
        if (is_same_path(&index->paths[i], path)) return &index->paths[i];
    index->path_count++;
    return path;
}

/* Short ones first; of one length those first that say most: a segment that is said counts for
 * more than all those behind it. */
static int compare_paths(const void *a, const void *b)
{
    const struct route_path *path = a, *other = b;

    if (path->segment_count != other->segment_count)
        return path->segment_count < other->segment_count ? -1 : 1;
    return path->said == other->said ? 0 : path->said > other->said ? -1 : 1;
}

int route_index_init(struct route_index *index, struct routes keep_routes)
{
    size_t at = 0;

    *index = (struct route_index){.paths = mem_alloc(keep_routes.count * sizeof *index->paths)};
    if (!index->paths) return -ENOMEM;
    for (size_t i = 0; i < keep_routes.count; i++) {
        const struct route *route = &keep_routes.at[i];
        struct route_path *path = path_of(index, route->path);

        assert(!path->routes[route->method]);
        path->routes[route->method] = route;
        path->allowed |= 1u << route->method;
        if (route->method == METHOD_GET) path->allowed |= 1u << METHOD_HEAD;
    }
    qsort(index->paths, index->path_count, sizeof *index->paths, compare_paths);
    for (unsigned length = 0; length <= HTTP_SEGMENTS_MAX; length++) {
        index->begin[length] = at;
        while (at < index->path_count && index->paths[at].segment_count == length) at++;
    }
    index->begin[HTTP_SEGMENTS_MAX + 1] = at;
    return 0;
}

void route_index_deinit(struct route_index *index)
{
    mem_free(index->paths);
    index->paths = NULL;
}

/* ---- Finding ---- */

/* HEAD is served by GET, whose body is then dropped. */
static enum http_method method_served(enum http_method method)
{
    return method == METHOD_HEAD ? METHOD_GET : method;
}

/* From behind: the first segments are those that most paths share. */
static bool fits(const struct route_path *path, const struct http_target *target)
{
    for (unsigned i = path->segment_count; i > 0; i--) {
        struct bytes segment = path->segments[i - 1];

        if (segment.at && !bytes_are(segment, target->segments[i - 1])) return false;
    }
    return true;
}

static void take_parameters(const struct route_path *path, const struct http_target *target,
                            struct route_match *match)
{
    for (unsigned i = 0; i < path->segment_count; i++)
        if (!path->segments[i].at)
            match->parameters[match->parameter_count++] = target->segments[i];
}

void route_find(const struct route_index *index, enum http_method method,
                const struct http_target *target, struct route_match *ret_match)
{
    enum http_method served = method_served(method);

    ret_match->route = NULL;
    ret_match->parameter_count = 0;
    ret_match->allowed = 0;
    if (target->ends_in_slash || target->asterisk) return;
    for (size_t i = index->begin[target->segment_count];
         i < index->begin[target->segment_count + 1]; i++) {
        const struct route_path *path = &index->paths[i];

        if (!fits(path, target)) continue;
        if (ret_match->allowed == 0) ret_match->allowed = path->allowed;
        if (!path->routes[served]) continue;
        ret_match->route = path->routes[served];
        take_parameters(path, target, ret_match);
        return;
    }
}
