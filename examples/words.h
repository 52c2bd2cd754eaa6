/* words.h - what the tutorial's programs share: words, and lines from a connection. */
#ifndef WEIR_EXAMPLES_WORDS_H
#define WEIR_EXAMPLES_WORDS_H

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <weir/weir.h>

enum { LINE_BYTES_MAX = 1024 };

static inline int count_words(const char *text)
{
    int words = 0;
    bool inside = false;

    for (; *text; text++) {
        bool blank = isspace((unsigned char)*text) != 0;
        if (!blank && !inside) words++;
        inside = !blank;
    }
    return words;
}

struct line {
    char data[LINE_BYTES_MAX];
    size_t bytes;
};

/* The next line, without its end. 0 at the end of the stream, 1 for a line. */
static inline int read_line(weir_conn *conn, struct line *buffer, char *ret_line)
{
    for (;;) {
        char *end = memchr(buffer->data, '\n', buffer->bytes);
        ssize_t n;

        if (end) {
            size_t taken = (size_t)(end - buffer->data) + 1;
            memcpy(ret_line, buffer->data, taken - 1);
            ret_line[taken - 1] = '\0';
            buffer->bytes -= taken;
            memmove(buffer->data, end + 1, buffer->bytes);
            return 1;
        }
        if (buffer->bytes == sizeof buffer->data) return -EMSGSIZE; /* every buffer has a bound */
        n = weir_conn_read(conn, buffer->data + buffer->bytes, sizeof buffer->data - buffer->bytes);
        if (n <= 0) return (int)n;
        buffer->bytes += (size_t)n;
    }
}

#endif
