/* route_test.c - which route a path has. */
#include "server/route.h"

#include "harness/test.h"

static const struct route table[] = {
    {.method = METHOD_GET, .path = "/"},
    {.method = METHOD_GET, .path = "/a/{x}"},
    {.method = METHOD_POST, .path = "/a/{x}"},
    {.method = METHOD_GET, .path = "/a/b"},
    {.method = METHOD_GET, .path = "/a/{x}/c"},
    {.method = METHOD_GET, .path = "/a/b/{y}"},
    {.method = METHOD_PUT, .path = "/{x}/{y}/{z}/{w}"},
};

static int find(enum http_method method, const char *path, struct route_match *match)
{
    static char block[256];
    static struct http_target target;
    const struct routes routes = {table, sizeof table / sizeof table[0]};
    struct route_index index;
    const char *why;

    CHECK_OK(http_target_parse(bytes_of(path), block, &target, &why));
    CHECK_OK(route_index_init(&index, routes));
    route_find(&index, method, &target, match);
    route_index_deinit(&index);
    return match->route ? (int)(match->route - table) : -1;
}

TEST(a_path_has_the_route_that_says_most_of_it)
{
    static const struct {
        enum http_method method;
        const char *path;
        int route;
        unsigned allowed;
    } rows[] = {
        {METHOD_GET, "/", 0, 0},
        {METHOD_GET, "/a/b", 3, 0},
        {METHOD_HEAD, "/a/b", 3, 0},
        {METHOD_GET, "/a/z", 1, 0},
        {METHOD_POST, "/a/b", 2, 0},
        {METHOD_GET, "/a/b/c", 5, 0},
        {METHOD_GET, "/a/z/c", 4, 0},
        {METHOD_PUT, "/1/2/3/4", 6, 0},
        {METHOD_GET, "/a", -1, 0},
        {METHOD_GET, "/a/", -1, 0},
        {METHOD_GET, "/a/b/", -1, 0},
        {METHOD_GET, "/a/b/c/d/e", -1, 0},
        {METHOD_GET, "/{x}", -1, 0},
        {METHOD_DELETE, "/a/z", -1, 1u << METHOD_GET | 1u << METHOD_HEAD | 1u << METHOD_POST},
        {METHOD_GET, "/1/2/3/4", -1, 1u << METHOD_PUT},
    };
    struct route_match match;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        test_note("%s %s", http_method_name(rows[i].method), rows[i].path);
        CHECK_INT(find(rows[i].method, rows[i].path, &match), ==, rows[i].route);
        if (rows[i].route < 0) CHECK_INT(match.allowed, ==, rows[i].allowed);
    }
}

TEST(parameters_are_decoded_and_in_their_order)
{
    struct route_match match;

    CHECK_INT(find(METHOD_PUT, "/one/t%2Fwo/%7bx%7d/%c3%a4", &match), ==, 6);
    CHECK_INT(match.parameter_count, ==, 4);
    CHECK(bytes_are(match.parameters[0], BYTES("one")));
    CHECK(bytes_are(match.parameters[1], BYTES("t/wo")));
    CHECK(bytes_are(match.parameters[2], BYTES("{x}")));
    CHECK(bytes_are(match.parameters[3], BYTES("\xc3\xa4")));
}
