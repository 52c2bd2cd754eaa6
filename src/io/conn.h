/* conn.h - what a connection is inside, and how one is made.
 *
 * Making one has two steps, so that memory is there before the descriptor: an
 * accept that finds no memory has then taken nothing from the backlog.
 *
 *     conn_prepare ──▶ no descriptor yet ──conn_adopt──▶ a connection
 *                              │ conn_abandon                │ weir_conn_close
 *                              ▼                             ▼
 *
 * Invariants: `reader` and `writer` are held for the duration of each call, and
 * `reader` for the duration of an idle wait, so that no two are interleaved.
 */
#ifndef WEIR_IO_CONN_H
#define WEIR_IO_CONN_H

#include "io/io.h"

struct weir_conn {
    struct io_head head;
    struct pollable *pollable;
    int fd;
    bool is_socket;
    enum weir_transport transport;
    io_claim reader; /* a task, or conn_idle_reader, conn_select_reader */
    io_claim writer;
    /* Of the reader. */
    bool short_read_drains; /* a read that stops short has taken all there was */
    bool watched;           /* a read has waited: edges are reported from then on */
    bool drained;           /* nothing is left, so the next read waits without trying */
    int pending_error;      /* taken from the socket by a look; the next read's, once */
};

/* Own `reader` of a connection that an idle wait has, or a select. */
extern const char conn_idle_reader[];
extern const char conn_select_reader[];

/* Making: on a worker. */
int conn_prepare(weir_conn **ret_conn);
void conn_adopt(weir_conn *conn, int take_fd, bool is_socket, enum weir_transport transport);
/* Only before conn_adopt. */
void conn_abandon(weir_conn *conn);

/* Is there something to read, or the end, or an error: would a read not wait? For
 * descriptors that cannot be looked into the answer is yes. By whoever has `reader`. */
bool conn_readable_now(weir_conn *conn);

#endif
