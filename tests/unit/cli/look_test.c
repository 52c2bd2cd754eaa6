/* look_test.c - members and items of JSON that a server has answered. */
#include <stdio.h>
#include <string.h>

#include "cli/look.h"
#include "harness/test.h"
#include "rt/mem.h"

TEST(members_are_found_by_path_and_what_is_not_there_is_nothing)
{
    struct bytes json =
        BYTES("{\"a\": {\"b\": 17, \"t\": \"x\\n\\u00e9\"}, \"on\": true, \"n\": null}");
    char text[16], *all;
    size_t count;

    CHECK_INT(look_int(json, "a.b", -1), ==, 17);
    CHECK_INT(look_int(json, "a.c", -1), ==, -1);
    CHECK_INT(look_int(json, "on", -1), ==, -1);
    CHECK(look_bool(json, "on") && !look_bool(json, "a") && !look_bool(json, "n"));
    look_text(json, "a.t", text, sizeof text);
    CHECK_STR(text, "x?\xc3\xa9"); /* no control character reaches a terminal */
    look_text(BYTES("\"a\\u009b\\u0080b\\u00a0\\u00db\""), "", text, sizeof text);
    CHECK_STR(text, "a????b\xc2\xa0\xc3\x9b"); /* neither do those of two bytes */
    all = look_copy(json, "a.t", &count);
    CHECK(all && count == 4 && memcmp(all, "x\n\xc3\xa9", 4) == 0);
    mem_free(all);
    look_text(json, "a.b", text, sizeof text);
    CHECK_STR(text, "17");
    look_text(BYTES("no json"), "a", text, sizeof text);
    CHECK_STR(text, "");
}

TEST(items_and_members_come_one_by_one)
{
    struct look_items items;
    struct bytes item;
    char key[8];
    int count = 0;

    look_begin(&items, BYTES("[{\"id\": \"1\"}, {\"id\": \"2\"}, 3]"));
    while (look_next(&items, &item)) count++;
    CHECK_INT(count, ==, 3);
    look_begin(&items, BYTES("{\"a\": 1, \"b\": {\"c\": 2}}"));
    CHECK(look_next_member(&items, key, sizeof key, &item));
    CHECK_STR(key, "a");
    CHECK(look_next_member(&items, key, sizeof key, &item));
    CHECK_INT(look_int(item, "c", 0), ==, 2);
    CHECK(!look_next_member(&items, key, sizeof key, &item));
    look_begin(&items, (struct bytes){NULL, 0});
    CHECK(!look_next(&items, &item));
}

/* {"jobs": [{"payload": {"k0": 0, ...}, "id": "7"}], "orders": []} */
static size_t write_wide(char *out, size_t bytes, int members)
{
    size_t used = (size_t)snprintf(out, bytes, "{\"jobs\": [{\"payload\": {");

    for (int i = 0; i < members; i++)
        used += (size_t)snprintf(out + used, bytes - used, "%s\"k%d\": %d", i ? ", " : "", i, i);
    used +=
        (size_t)snprintf(out + used, bytes - used, "}, \"id\": \"7\"}], \"orders\": [\"end\"]}");
    return used;
}

TEST(what_a_job_holds_is_never_too_much_to_look_past)
{
    enum { BYTES_MAX = 256 * 1024, DEEP = 1000, MEMBERS = 10000 };
    char *text = mem_alloc(BYTES_MAX), deep[2 * DEEP + 64] = "{\"a\": ";
    size_t used = strlen(deep);
    struct look_items items;
    struct bytes json, job;

    CHECK(text != NULL);
    json = (struct bytes){text, write_wide(text, BYTES_MAX, MEMBERS)};
    look_begin(&items, look(json, "jobs"));
    CHECK(look_next(&items, &job));
    CHECK(look_is(job, "id", "7"));
    CHECK_INT(look_int(job, "payload.k9999", -1), ==, 9999);
    CHECK(look(json, "orders").at != NULL);
    mem_free(text);

    for (size_t i = 0; i < DEEP; i++) deep[used++] = '[';
    for (size_t i = 0; i < DEEP; i++) deep[used++] = ']';
    (void)snprintf(deep + used, sizeof deep - used, ", \"b\": 2}");
    CHECK_INT(look_int(bytes_of(deep), "b", -1), ==, 2);
}

TEST(what_looks_like_structure_in_a_text_is_none)
{
    struct bytes json = BYTES("{\"a\": \"}]\\\"{[,:\\\\\", \"b\" : [ 1 ,-2.5e3, true,null ] }");
    struct look_items items;
    struct bytes item;
    char text[16];
    int count = 0;

    look_text(json, "a", text, sizeof text);
    CHECK_STR(text, "}]\"{[,:\\");
    look_begin(&items, look(json, "b"));
    while (look_next(&items, &item)) count++;
    CHECK_INT(count, ==, 4);
}

/* Of an answer that was cut off anywhere nothing is read beyond its end. */
TEST(what_is_cut_off_is_not_there)
{
    const char whole[] = "{\"a\": [\"x\\n\", {\"b\": -1}], \"c\": {\"d\": \"e\"}, \"z\": 3}";

    for (size_t count = 0; count < sizeof whole - 1; count++) {
        char *cut = mem_alloc(count + 1);
        struct look_items items;
        struct bytes json, item;

        CHECK(cut != NULL);
        memcpy(cut + 1, whole, count); /* so that what is behind it is nobody's */
        json = (struct bytes){cut + 1, count};
        if (count < sizeof whole - 2) CHECK_INT(look_int(json, "z", -1), ==, -1);
        look_begin(&items, look(json, "a"));
        while (look_next(&items, &item)) CHECK(item.count > 0);
        mem_free(cut);
    }
}
