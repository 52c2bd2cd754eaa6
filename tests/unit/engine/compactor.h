/* compactor.h - a log that is made shorter while commands go on, as a store does it: what rows need
 * of its old records is logged again, names are said again, then the old records are dropped. */
#ifndef WEIR_TESTS_ENGINE_COMPACTOR_H
#define WEIR_TESTS_ENGINE_COMPACTOR_H

#include "engine/engine.h"

enum { COMPACTOR_POSITIONS = 1 << 18 };

struct compactor_record {
    void *bytes;
    size_t count;
    uint64_t position;
};

struct compactor {
    struct compactor_record *records; /* by rising position */
    size_t count;
    size_t room;
    int64_t *live; /* by position, as the engine tells it */
    /* The one that is under way: records before `point` are to go. */
    bool running;
    size_t point;
    size_t at;
    struct engine_needed_cursor needed;
    struct engine_names_cursor names;
    bool names_done;
    unsigned relogged; /* jobs, and how often the log was made shorter: since the beginning */
    unsigned ended;
};

void compactor_init(struct compactor *compactor);
void compactor_deinit(struct compactor *compactor);
/* To be set as the engine's hook, with the compactor as its argument. */
void compactor_live(void *arg, uint64_t position, int64_t bytes);
void compactor_keep(struct compactor *compactor, const void *bytes, size_t count,
                    uint64_t position);
/* Logs a few jobs again: they are in the engine's next record. */
void compactor_step(struct compactor *compactor, struct engine *engine, int64_t now_ms);
/* Says names again, as a record of its own at `position`; false: it had nothing to say. Only while
 * the engine's record is empty. */
bool compactor_say_names(struct compactor *compactor, struct engine *engine, size_t bytes_max,
                         uint64_t position, const void **ret_bytes, size_t *ret_count);
/* If all is said again and logged: drops the old records, and what is left gives the same state in
 * `other`, which was just opened. Only while the engine's record is empty. */
bool compactor_may_end(const struct compactor *compactor);
void compactor_end(struct compactor *compactor, struct engine *engine, struct engine *other);

#endif
