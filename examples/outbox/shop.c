/* shop.c - the shop's database, in SQLite. */
#include "shop.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A number is never used again, also when its row is gone (AUTOINCREMENT): it is the row's key. */
static const char schema[] =
    "PRAGMA journal_mode = WAL;"
    "PRAGMA synchronous = FULL;"
    "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, customer TEXT NOT NULL);"
    "CREATE TABLE IF NOT EXISTS outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT NOT NULL);"
    "CREATE TABLE IF NOT EXISTS mails (job_id INTEGER PRIMARY KEY, text TEXT NOT NULL);";

static int failed(struct shop *shop, const char *what)
{
    fprintf(stderr, "outbox: %s: %s\n", what, sqlite3_errmsg(shop->database));
    return -EIO;
}

static int run(struct shop *shop, const char *sql)
{
    if (sqlite3_exec(shop->database, sql, NULL, NULL, NULL) == SQLITE_OK) return 0;
    return failed(shop, sql);
}

/* A statement with its values: 'i' is a 64-bit number, 's' a string. */
static sqlite3_stmt *prepare(struct shop *shop, const char *sql, const char *types, ...)
{
    sqlite3_stmt *statement = NULL;
    va_list values;

    if (sqlite3_prepare_v2(shop->database, sql, -1, &statement, NULL) != SQLITE_OK) {
        (void)failed(shop, sql);
        return NULL;
    }
    va_start(values, types);
    for (int i = 0; types[i]; i++) {
        if (types[i] == 'i') {
            (void)sqlite3_bind_int64(statement, i + 1, va_arg(values, int64_t));
        } else {
            (void)sqlite3_bind_text(statement, i + 1, va_arg(values, const char *), -1,
                                    SQLITE_TRANSIENT);
        }
    }
    va_end(values);
    return statement;
}

/* Run a statement that has no rows. Takes NULL. */
static int finish(struct shop *shop, sqlite3_stmt *take_statement)
{
    int r = 0;

    if (!take_statement) return -EIO;
    if (sqlite3_step(take_statement) != SQLITE_DONE) r = failed(shop, "a statement has failed");
    (void)sqlite3_finalize(take_statement);
    return r;
}

/* The end of a transaction in which `r` was the result. */
static int commit(struct shop *shop, int r)
{
    if (r >= 0) r = run(shop, "COMMIT");
    if (r < 0) (void)sqlite3_exec(shop->database, "ROLLBACK", NULL, NULL, NULL);
    return r;
}

int shop_open(struct shop *shop, const char *path)
{
    if (sqlite3_open(path, &shop->database) != SQLITE_OK) return failed(shop, path);
    return run(shop, schema);
}

void shop_close(struct shop *shop)
{
    (void)sqlite3_close(shop->database);
    shop->database = NULL;
}

int shop_place_order(struct shop *shop, const char *customer)
{
    char text[SHOP_TEXT_BYTES];
    int r = run(shop, "BEGIN IMMEDIATE");

    if (r < 0) return r;
    r = finish(shop, prepare(shop, "INSERT INTO orders (customer) VALUES (?)", "s", customer));
    crash_at(shop->crash, CRASH_ORDER_WRITTEN);
    if (r == 0) {
        (void)snprintf(text, sizeof text, "%lld %s",
                       (long long)sqlite3_last_insert_rowid(shop->database), customer);
        r = finish(shop, prepare(shop, "INSERT INTO outbox (text) VALUES (?)", "s", text));
        crash_at(shop->crash, CRASH_ROW_WRITTEN);
    }
    r = commit(shop, r);
    crash_at(shop->crash, CRASH_COMMITTED);
    return r;
}

int shop_peek(void *keep_arg, weir_outbox_row *ret_rows, size_t max)
{
    struct shop *shop = keep_arg;
    sqlite3_stmt *statement = prepare(shop, "SELECT id, text FROM outbox ORDER BY id LIMIT ?", "i",
                                      (int64_t)(max < SHOP_BATCH_MAX ? max : SHOP_BATCH_MAX));
    int step, count = 0;

    if (!statement) return -EIO;
    while ((step = sqlite3_step(statement)) == SQLITE_ROW) {
        weir_outbox_row *row = &ret_rows[count];
        char *text = shop->texts[count++];
        (void)snprintf(row->key, sizeof row->key, "%s",
                       (const char *)sqlite3_column_text(statement, 0));
        (void)snprintf(text, SHOP_TEXT_BYTES, "%s",
                       (const char *)sqlite3_column_text(statement, 1));
        row->job.queue = "mail";
        row->job.kind = "confirmation";
        row->job.payload = text;
        row->job.payload_bytes = strlen(text) + 1;
        row->job.idempotent = WEIR_YES;
        row->job.retry.attempts_max = 10;
        row->job.retry.backoff_ms = 100;
        row->job.retry.backoff_ms_max = 10000;
    }
    if (step != SQLITE_DONE) count = failed(shop, "the outbox cannot be read");
    (void)sqlite3_finalize(statement);
    if (count > 0) crash_at(shop->crash, CRASH_PEEKED);
    return count;
}

int shop_done(void *keep_arg, const weir_outbox_row *rows, size_t count)
{
    struct shop *shop = keep_arg;
    int r;

    crash_at(shop->crash, CRASH_ENQUEUED);
    r = run(shop, "BEGIN IMMEDIATE");
    if (r < 0) return r;
    for (size_t i = 0; i < count && r == 0; i++)
        r = finish(shop, prepare(shop, "DELETE FROM outbox WHERE id = ?", "s", rows[i].key));
    crash_at(shop->crash, CRASH_MARKING);
    r = commit(shop, r);
    crash_at(shop->crash, CRASH_MARKED);
    return r;
}

/* A row that can never become a job is a mistake of the program: it stays, for somebody to look. */
bool shop_refused(void *keep_arg, const weir_outbox_row *row, int error, const char *why)
{
    (void)keep_arg;
    fprintf(stderr, "outbox: row %s: %s (%s)\n", row->key, why, weir_error_name(error));
    return false;
}

int shop_send_mail(struct shop *shop, uint64_t job_id, const char *text)
{
    int r = run(shop, "BEGIN IMMEDIATE");

    if (r < 0) return r;
    r = finish(shop, prepare(shop,
                             "INSERT INTO mails (job_id, text) VALUES (?, ?)"
                             " ON CONFLICT (job_id) DO NOTHING",
                             "is", (int64_t)job_id, text));
    crash_at(shop->crash, CRASH_MAILING);
    r = commit(shop, r);
    crash_at(shop->crash, CRASH_MAILED);
    return r;
}

static int count_of(struct shop *shop, const char *sql, int *ret_count)
{
    sqlite3_stmt *statement = prepare(shop, sql, "");
    int r = 0;

    if (!statement) return -EIO;
    if (sqlite3_step(statement) == SQLITE_ROW) {
        *ret_count = sqlite3_column_int(statement, 0);
    } else {
        r = failed(shop, sql);
    }
    (void)sqlite3_finalize(statement);
    return r;
}

int shop_count(struct shop *shop, struct shop_counts *ret_counts)
{
    int r = count_of(shop, "SELECT count(*) FROM orders", &ret_counts->orders);

    if (r == 0) r = count_of(shop, "SELECT count(*) FROM outbox", &ret_counts->rows);
    if (r == 0) r = count_of(shop, "SELECT count(*) FROM mails", &ret_counts->mails);
    if (r == 0) {
        r = count_of(shop,
                     "SELECT count(*) FROM orders WHERE 1 <> (SELECT count(*) FROM mails"
                     " WHERE mails.text = orders.id || ' ' || orders.customer)",
                     &ret_counts->wrong);
    }
    return r;
}
