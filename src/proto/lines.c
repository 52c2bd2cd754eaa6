/* lines.c - whole lines are shown in place, broken ones are put together. */
#include "proto/lines.h"

#include <errno.h>

void lines_init(struct lines *lines, char *keep_block, size_t bytes)
{
    *lines = (struct lines){.block = keep_block, .room = bytes};
}

static struct bytes without_cr(struct bytes line)
{
    if (line.count > 0 && line.at[line.count - 1] == '\r') line.count--;
    return line;
}

int lines_next(struct lines *lines, struct bytes *piece, struct bytes *ret_line)
{
    if (lines->shown) lines->used = 0;
    lines->shown = false;
    while (piece->count > 0) {
        const char *lf = memchr(piece->at, '\n', piece->count);
        size_t count = lf ? (size_t)(lf - piece->at) : piece->count;
        struct bytes line = {piece->at, count};

        if (count > lines->room - lines->used) return -EMSGSIZE;
        if (!lf || lines->used > 0) {
            memcpy(lines->block + lines->used, piece->at, count);
            lines->used += count;
            line = (struct bytes){lines->block, lines->used};
        }
        *piece = bytes_after(*piece, count + (lf ? 1 : 0));
        if (!lf) return 0;
        lines->number++;
        line = without_cr(line);
        if (line.count == 0) {
            lines->used = 0;
            continue;
        }
        lines->shown = true;
        *ret_line = line;
        return 1;
    }
    return 0;
}

int lines_end(struct lines *lines, struct bytes *ret_line)
{
    struct bytes line = without_cr((struct bytes){lines->block, lines->used});

    if (lines->shown || line.count == 0) return 0;
    lines->shown = true;
    lines->number++;
    *ret_line = line;
    return 1;
}
