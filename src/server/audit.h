/* audit.h - who has changed what: the last entries in memory, all of them in a file with a bound.
 *
 * Each entry is a line of JSON. A task writes them, in their order; entries that come faster than
 * the disk takes them are kept in memory while there is room (AUDIT_KEPT), and what is passed over
 * is counted and said in the file. A file that would be larger than AUDIT_FILE_BYTES_MAX becomes
 * PATH.1, whose predecessor goes. An entry is in the file soon after its answer, not before it.
 *
 * Owner: a scope. Lifetime: until audit_close, which writes what is left. Failure: a file that
 * cannot be written is logged, and tried again with the next entry; nothing else is held up.
 * Threads: audit_note and audit_read any task; they never suspend.
 */
#ifndef WEIR_SERVER_AUDIT_H
#define WEIR_SERVER_AUDIT_H

#include <weir/weir.h>

#include "proto/buffer.h"
#include "proto/json_write.h"

struct audit;

enum {
    AUDIT_KEPT = 1024,
    AUDIT_TARGET_BYTES = 255,
    AUDIT_FILE_BYTES_MAX = 16 << 20,
};

struct audit_entry {
    uint64_t number; /* rises by one */
    int64_t at_ms;
    char who[65]; /* name of the token; "": nobody in particular */
    char token[9];
    char peer[WEIR_ADDRESS_TEXT_MAX];
    char method[8];
    const char *route;                   /* a constant */
    char target[AUDIT_TARGET_BYTES + 1]; /* as it was asked, cut */
    unsigned status;
    uint64_t request; /* its number */
    uint64_t unnoted; /* refusals of the token before it that have no entry */
};

/* `path` NULL: only in memory. */
WEIR_SUSPENDS int audit_open(weir_scope *scope, const char *path, struct audit **ret_audit);
WEIR_SUSPENDS int audit_close(struct audit *take_audit);
/* `number` is set here. */
void audit_note(struct audit *audit, const struct audit_entry *entry);
/* The entries before number `before` (0: the newest), newest first: how many. */
size_t audit_read(struct audit *audit, uint64_t before, struct audit_entry *ret_entries,
                  size_t max);
/* How many are in the file; and how many were passed over. */
void audit_counts(struct audit *audit, uint64_t *ret_written, uint64_t *ret_lost);
void audit_put(struct json_writer *json, const struct audit_entry *entry);

#endif
