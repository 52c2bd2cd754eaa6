/* shop.h - a shop's own database: orders, an outbox beside them, and the mails that were sent.
 *
 * Everything here blocks, and is called by one thread at a time: that of a pool with one thread, or
 * the program's first one before and after the runtime. Results are 0 or a count, or -EIO after a
 * line on standard error.
 */
#ifndef WEIR_EXAMPLES_OUTBOX_SHOP_H
#define WEIR_EXAMPLES_OUTBOX_SHOP_H

#include <sqlite3.h>
#include <weir/weir.h>

#include "crash.h"

enum { SHOP_BATCH_MAX = 3, SHOP_TEXT_BYTES = 128 };

struct shop {
    sqlite3 *database;
    struct crash *crash;
    /* What the rows of the last peek point to. */
    char texts[SHOP_BATCH_MAX][SHOP_TEXT_BYTES];
};

struct shop_counts {
    int orders, rows, mails;
    int wrong; /* orders that have not exactly one mail */
};

int shop_open(struct shop *shop, const char *path);
void shop_close(struct shop *shop);

/* One more order, with its row in the outbox: both or neither. */
int shop_place_order(struct shop *shop, const char *customer);

/* The three functions of the relay; keep_arg is the shop. */
int shop_peek(void *keep_arg, weir_outbox_row *ret_rows, size_t max);
int shop_done(void *keep_arg, const weir_outbox_row *rows, size_t count);
bool shop_refused(void *keep_arg, const weir_outbox_row *row, int error, const char *why);

/* A mail for a job; if the job was begun before and has sent it, there is no second one. */
int shop_send_mail(struct shop *shop, uint64_t job_id, const char *text);

int shop_count(struct shop *shop, struct shop_counts *ret_counts);

#endif
