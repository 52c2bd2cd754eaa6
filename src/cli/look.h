/* look.h - into JSON that a server has answered: members by path, items of arrays.
 *
 *     look_text(answer, "queue.name", text, sizeof text);
 *     for (look_begin(&items, look(answer, "jobs")); look_next(&items, &job);) ...
 *
 * Invariants: what is not there, or is of another kind, is as if it were null: a command shows "-"
 * and goes on, since a newer server may say more and an older one less. Nothing that a job may hold
 * is too much: objects have as many members as they like, values are as deep as they like; so what
 * is passed over is only counted, brackets and quotes, and no more than that is checked.
 * Threads: any. No state.
 */
#ifndef WEIR_CLI_LOOK_H
#define WEIR_CLI_LOOK_H

#include "proto/json_read.h"

enum { LOOK_TEXT_BYTES = 256 };

/* A value as it stands; one with `at` NULL: none. */
struct bytes look(struct bytes json, const char *path);
bool look_is(struct bytes json, const char *path, const char *text);
/* Without escapes and control characters, cut to fit; of numbers as they stand. "" : none. */
void look_text(struct bytes json, const char *path, char *ret_text, size_t bytes);
/* All of a text, with whatever is in it, into memory of the allocator; NULL: none. */
char *look_copy(struct bytes json, const char *path, size_t *ret_count);
int64_t look_int(struct bytes json, const char *path, int64_t otherwise);
bool look_bool(struct bytes json, const char *path);

struct look_items {
    struct bytes rest; /* behind the last one */
    bool open;         /* `rest` is within brackets */
};

/* Of an array, or of an object, with its keys. */
void look_begin(struct look_items *items, struct bytes json);
bool look_next(struct look_items *items, struct bytes *ret_item);
bool look_next_member(struct look_items *items, char *ret_key, size_t bytes,
                      struct bytes *ret_value);

#endif
