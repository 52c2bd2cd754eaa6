/* lines.c - lines of text over a connection. */
#include "lines.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void line_reader_init(struct line_reader *reader, weir_conn *keep_conn)
{
    reader->conn = keep_conn;
    reader->begin = reader->end = 0;
}

char *line_take(struct line_reader *reader)
{
    char *line = reader->data + reader->begin;
    char *end = memchr(line, '\n', reader->end - reader->begin);

    if (!end) return NULL;
    reader->begin = (size_t)(end + 1 - reader->data);
    if (end > line && end[-1] == '\r') end--;
    *end = '\0';
    return line;
}

bool line_begun(const struct line_reader *reader)
{
    return reader->end > reader->begin;
}

int line_more(struct line_reader *reader)
{
    ssize_t n;

    if (reader->begin > 0) {
        memmove(reader->data, reader->data + reader->begin, reader->end - reader->begin);
        reader->end -= reader->begin;
        reader->begin = 0;
    }
    n = weir_conn_read(reader->conn, reader->data + reader->end, sizeof reader->data - reader->end);
    if (n <= 0) return n == 0 ? WEIR_ECLOSED : (int)n;
    reader->end += (size_t)n;
    return reader->end >= LINE_BYTES_MAX && !memchr(reader->data, '\n', LINE_BYTES_MAX) ? -EMSGSIZE
                                                                                        : 0;
}

int line_next(struct line_reader *reader, char **ret_line)
{
    while (!(*ret_line = line_take(reader))) {
        int r = line_more(reader);
        if (r < 0) return r;
    }
    return 0;
}

int line_say(weir_conn *conn, const char *format, ...)
{
    char line[LINE_BYTES_MAX];
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof line) return -EMSGSIZE;
    return weir_conn_send_all(conn, line, (size_t)length, NULL);
}

int line_ask(const char *address, const char *question, char *ret_answer, size_t answer_bytes)
{
    struct line_reader reader;
    weir_conn *conn;
    char *line;
    int r = weir_connect(address, &conn);

    if (r < 0) return r;
    line_reader_init(&reader, conn);
    r = line_say(conn, "%s\n", question);
    if (r == 0) r = line_next(&reader, &line);
    if (r == 0) (void)snprintf(ret_answer, answer_bytes, "%s", line);
    weir_conn_close(conn);
    return r;
}
