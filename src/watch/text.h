/* text.h - text that grows on the heap, up to a bound.
 *
 * A part that does not fit any more, or finds no memory, sets `error` and is left out, and
 * so is everything after it: whoever made the text looks once, at its end.
 *
 * Strings of programs (names, reasons) are written with text_json or text_label, which
 * leave no control character and no broken UTF-8 in the output.
 */
#ifndef WEIR_WATCH_TEXT_H
#define WEIR_WATCH_TEXT_H

#include <stddef.h>
#include <stdint.h>

enum { TEXT_BYTES_MAX = 64 * 1024 * 1024 };

struct text {
    char *data;
    size_t bytes, used;
    int error; /* 0, -ENOMEM, -E2BIG (TEXT_BYTES_MAX) */
};

void text_init(struct text *text);
void text_deinit(struct text *text);

void text_add(struct text *text, const char *data, size_t bytes);
void text_say(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A string of JSON, with its quotes. */
void text_json(struct text *text, const char *string);
/* The value of a Prometheus label, with its quotes. */
void text_label(struct text *text, const char *string);
/* The same inside a quoted string of Graphviz, without its quotes. */
void text_dot(struct text *text, const char *string);
/* For people: control characters and broken UTF-8 are shown as '?'. */
void text_plain(struct text *text, const char *string);
/* As much of `string` as fits with a terminator, in whole characters; broken UTF-8 as '?'. */
void text_copy_name(char *to, size_t bytes, const char *string);
/* value / 10^digits, exactly: 1500 with 3 digits is 1.5. */
void text_decimal(struct text *text, uint64_t value, unsigned digits);

#endif
