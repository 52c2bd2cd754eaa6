/* log_test.h - a store in a folder of the test's own, and a log that remembers what it was given.
 *
 *     LOG_TEST(records_come_back_in_order)
 *     {
 *         struct log *log = stand_open(stand);
 *         stand_append(stand, log, 100);
 *         stand_close(log);
 *     }
 *
 * Records are made from their number, so that any one of them can be checked by itself. */
#ifndef WEIR_TESTS_UNIT_STORE_LOG_TEST_H
#define WEIR_TESTS_UNIT_STORE_LOG_TEST_H

#include <weir/weir.h>

#include "harness/test.h"
#include "store/log.h"

enum {
    STAND_RECORDS_MAX = 4096,
    STAND_RECORD_BYTES_MAX = 1024,
    STAND_SEGMENT_BYTES = 8192,
    STAND_BUFFER_BYTES = 4096,
    STAND_DEADLINE_MS = 3600000,
};

struct stand {
    char path[64];
    struct log_spec spec;
    /* What was appended, by number. */
    struct log_place places[STAND_RECORDS_MAX];
    unsigned appended;
    /* What was replayed. */
    unsigned replayed; /* records, */
    uint64_t first;    /* ... the number of the first one, */
    uint64_t next;     /* ... and the one that should come next */
    bool is_wrong;     /* a record was not what it should be */
    int refuse_at;     /* replay says no at this one; 0: at none */
    uint64_t position_last;
};

/* A new folder, and a spec with small segments; replay checks what comes. */
void stand_make(struct stand *stand);
/* Remove the folder and what is in it. */
void stand_remove(struct stand *stand);
void folder_remove_all(const char *path);
void file_copy(const char *from, const char *to);
void folder_copy_all(const char *from, const char *to);

/* The record of a number: its bytes. */
size_t stand_record(uint64_t number, unsigned char data[STAND_RECORD_BYTES_MAX]);

/* Open, with what is counted of replays put back. */
int stand_try(struct stand *stand, struct log **ret_log);
struct log *stand_open(struct stand *stand);
void stand_close(struct log *log);
/* Append the next `count` records, and wait until they are synced. */
void stand_append(struct stand *stand, struct log *log, unsigned count);
int stand_append_one(struct stand *stand, struct log *log, enum log_use use);
/* All that were appended came back. */
void stand_check(const struct stand *stand, unsigned count);

/* Files of the store. */
void stand_file(const struct stand *stand, const char *name, char path[128]);
bool stand_has(const struct stand *stand, const char *name);
unsigned stand_files(const struct stand *stand, const char *suffix);
void stand_remove_files(const struct stand *stand, const char *suffix);
/* Change one byte, or cut the file off. */
void stand_flip(const struct stand *stand, const char *name, uint64_t offset);
void stand_cut(const struct stand *stand, const char *name, uint64_t bytes);

/* fn(stand) in a runtime of its own, with a deadline; and the test made of one. */
int stand_run(struct stand *stand, int (*fn)(struct stand *stand));

#define LOG_TEST_WITH(name_, ...)                      \
    static void log_body_##name_(struct stand *stand); \
    static int log_main_##name_(struct stand *stand)   \
    {                                                  \
        log_body_##name_(stand);                       \
        return 0;                                      \
    }                                                  \
    TEST_WITH(name_, __VA_ARGS__)                      \
    {                                                  \
        static struct stand stand;                     \
        stand_make(&stand);                            \
        CHECK_OK(stand_run(&stand, log_main_##name_)); \
        stand_remove(&stand);                          \
    }                                                  \
    static void log_body_##name_(struct stand *stand)

#define LOG_TEST(name_) LOG_TEST_WITH(name_, .timeout_ms = TEST_TIMEOUT_MS_DEFAULT)

#endif
