/* lines.h - lines of text over a connection, none of them longer than said.
 *
 * All programs of this example talk in lines. A reader has a buffer of its own, so whoever sends
 * costs no more memory than that, however long its lines are.
 */
#ifndef SEARCH_LINES_H
#define SEARCH_LINES_H

#include <stdbool.h>
#include <weir/weir.h>

enum { LINE_BYTES_MAX = 512 }; /* its end included */

struct line_reader {
    weir_conn *conn;
    size_t begin, end; /* what was read and not yet given out */
    char data[4 * LINE_BYTES_MAX];
};

/* line_reader_init - begin to read `keep_conn`. */
void line_reader_init(struct line_reader *reader, weir_conn *keep_conn);

/* line_take - the next line that is there already, without its end, terminated, valid until the
 * next call; NULL: more has to be read first. Never suspends. */
char *line_take(struct line_reader *reader);

/* line_begun - whether the beginning of a line has come, and not its end. */
bool line_begun(const struct line_reader *reader);

/* line_more - read at least one byte. Errors: WEIR_ECLOSED at the end of the stream, -EMSGSIZE if a
 * line is longer than LINE_BYTES_MAX, and those of weir_conn_read. */
WEIR_MUST_USE int line_more(struct line_reader *reader);

/* line_next - line_take, and line_more as often as it takes. Errors as line_more. */
WEIR_MUST_USE int line_next(struct line_reader *reader, char **ret_line);

/* line_say - print a line, its end included, and send it. Errors of weir_conn_send_all. */
WEIR_MUST_USE int line_say(weir_conn *conn, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* line_ask - connect, say one line, and read the one that answers it: for control ports. Errors
 * of connecting, and as line_next. */
WEIR_MUST_USE int line_ask(const char *address, const char *question, char *ret_answer,
                           size_t answer_bytes);

#endif
