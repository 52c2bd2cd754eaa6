/* log_crash_test.c - every state that a power cut can leave of a store, opened.
 *
 * A log is run once on a disk in memory, and what it does there is recorded: writes, syncs, names,
 * and which records were acknowledged when. Then for each prefix of that the disk is made again,
 * the power is cut, and what is kept is chosen in every way, or in many ways where there are too
 * many. Each of those disks is recovered: all that was acknowledged is there, in order, and
 * nothing else but what was appended; after a second power cut recovery finds the same. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit/store/log_test.h"
#include "unit/store/volume_kernel.h"

enum op_kind {
    OP_OPEN,
    OP_CLOSE,
    OP_WRITE,
    OP_SYNC,
    OP_NAME,
    OP_MAKE,
    OP_ACKNOWLEDGED,
    OP_TRIMMED
};

enum {
    OPS_MAX = 4096,
    PATH_BYTES = 64,
    CHOICES_MAX = 256,
    RECORDS = 40,
    DISK_BYTES = 1 << 20,
    SEGMENT = 4096,
    BUFFER = 2048,
};

struct op {
    enum op_kind kind;
    int file; /* which of the open ones */
    int flags;
    int64_t offset;
    size_t bytes;
    unsigned char *data;
    char path[PATH_BYTES];
    char to[PATH_BYTES];
    unsigned count; /* acknowledged, or trimmed */
};

static struct op ops[OPS_MAX];
static unsigned op_count;
static unsigned sync_every; /* records */

static struct op *op_add(enum op_kind kind, int file)
{
    struct op *op = &ops[op_count];

    if (op_count == OPS_MAX) abort();
    op_count++;
    *op = (struct op){.kind = kind, .file = file};
    return op;
}

static void on_open(int file, const char *path, int flags)
{
    struct op *op = op_add(OP_OPEN, file);

    op->flags = flags;
    (void)snprintf(op->path, sizeof op->path, "%s", path);
}

static void on_close(int file)
{
    (void)op_add(OP_CLOSE, file);
}

static void on_write(int file, const void *data, size_t bytes, int64_t offset)
{
    struct op *op = op_add(OP_WRITE, file);

    op->data = malloc(bytes);
    if (!op->data) abort();
    memcpy(op->data, data, bytes);
    op->bytes = bytes;
    op->offset = offset;
}

static void on_sync(int file)
{
    (void)op_add(OP_SYNC, file);
}

static void on_name(const char *from, const char *to)
{
    struct op *op = op_add(OP_NAME, 0);

    (void)snprintf(op->path, sizeof op->path, "%s", from);
    if (to) (void)snprintf(op->to, sizeof op->to, "%s", to);
}

static void on_make(const char *path)
{
    (void)snprintf(op_add(OP_MAKE, 0)->path, PATH_BYTES, "%s", path);
}

static void note_count(enum op_kind kind, unsigned count)
{
    pthread_mutex_lock(&volume_kernel.mutex);
    op_add(kind, 0)->count = count;
    pthread_mutex_unlock(&volume_kernel.mutex);
}

/* ---- The run that is recorded ---- */

static int record_run(struct stand *stand)
{
    struct log *log;
    int r = 0;

    for (int life = 0; life < 2; life++) {
        CHECK_OK(stand_try(stand, &log));
        for (unsigned i = 0; i < RECORDS / 2 && r == 0; i++) {
            CHECK_OK(stand_append_one(stand, log, LOG_FOR_NEW));
            /* Batches of one or two, each written, and some of them synced together. */
            if (i % 2 == 1)
                CHECK_OK(log_wait(log, stand->places[stand->appended - 1].end, LOG_WRITTEN));
            if (i % sync_every != 0) continue;
            CHECK_OK(log_wait(log, stand->places[stand->appended - 1].end, LOG_SYNCED));
            note_count(OP_ACKNOWLEDGED, stand->appended);
            if (i / sync_every == 12 / sync_every) {
                note_count(OP_TRIMMED, stand->appended - 5);
                log_trim(log, stand->places[stand->appended - 5].position);
            }
        }
        CHECK_OK(log_close(log));
        note_count(OP_ACKNOWLEDGED, stand->appended);
    }
    return 0;
}

static void record(struct stand *stand)
{
    memset(stand, 0, sizeof *stand);
    stand_make(stand);
    stand_remove(stand); /* it is on the disk in memory */
    stand->spec.path = "/store";
    stand->spec.segment_bytes = SEGMENT;
    stand->spec.buffer_bytes = BUFFER;
    volume_kernel.opened = on_open;
    volume_kernel.closed = on_close;
    volume_kernel.wrote = on_write;
    volume_kernel.synced = on_sync;
    volume_kernel.named = on_name;
    volume_kernel.made = on_make;
    kernel_override(volume_kernel_begin(DISK_BYTES));
    CHECK_OK(stand_run(stand, record_run));
    kernel_override(NULL);
    volume_kernel_end();
    volume_kernel.opened = NULL;
    volume_kernel.closed = NULL;
    volume_kernel.wrote = NULL;
    volume_kernel.synced = NULL;
    volume_kernel.named = NULL;
    volume_kernel.made = NULL;
}

/* ---- Making a disk again ---- */

static void redo(unsigned count, unsigned *ret_acknowledged, unsigned *ret_trimmed)
{
    const struct kernel *kernel = &volume_kernel.kernel;
    int fds[VOLUME_FDS];

    *ret_acknowledged = *ret_trimmed = 0;
    for (unsigned i = 0; i < count; i++) {
        const struct op *op = &ops[i];

        switch (op->kind) {
        case OP_OPEN:
            fds[op->file] = kernel->open(kernel, op->path, op->flags, 0644);
            CHECK_INT(fds[op->file], >=, 0);
            break;
        case OP_CLOSE: CHECK_OK(kernel->close(kernel, fds[op->file])); break;
        case OP_WRITE:
            CHECK_INT(kernel->pwrite(kernel, fds[op->file], op->data, op->bytes, op->offset), ==,
                      op->bytes);
            break;
        case OP_SYNC: CHECK_OK(kernel->fsync(kernel, fds[op->file], true)); break;
        case OP_NAME:
            CHECK_OK(op->to[0] ? kernel->rename(kernel, op->path, op->to)
                               : kernel->unlink(kernel, op->path));
            break;
        case OP_MAKE: CHECK_OK(kernel->mkdir(kernel, op->path, 0755)); break;
        case OP_ACKNOWLEDGED: *ret_acknowledged = op->count; break;
        case OP_TRIMMED: *ret_trimmed = op->count; break;
        }
    }
}

/* ---- Choosing what a power cut keeps ---- */

static struct {
    unsigned path[CHOICES_MAX];
    unsigned of[CHOICES_MAX];
    unsigned count;
    bool by_chance;
    uint64_t state;
} choices;

static unsigned choose(void *arg, unsigned n)
{
    unsigned at = choices.count;

    (void)arg;
    if (choices.by_chance || at == CHOICES_MAX) {
        choices.state = choices.state * UINT64_C(6364136223846793005) + 1442695040888963407;
        return (unsigned)(choices.state >> 33) % n;
    }
    choices.of[at] = n;
    choices.count++;
    return choices.path[at];
}

/* The next way to choose; false: that was the last one. */
static bool choose_next(void)
{
    while (choices.count > 0) {
        unsigned last = choices.count - 1;

        if (++choices.path[last] < choices.of[last]) return true;
        choices.path[last] = 0;
        choices.count--;
    }
    return false;
}

static unsigned choose_nothing(void *arg, unsigned n)
{
    (void)arg, (void)n;
    return 0;
}

/* ---- Opening ---- */

static int recover(struct stand *stand)
{
    const struct log_recover_spec spec = {.create = true,
                                          .segment_bytes = SEGMENT,
                                          .spares_max = 4,
                                          .record = stand->spec.replay,
                                          .arg = stand};
    struct log_recovered found;
    struct log_folder folder;
    struct log_why why = {""};
    int r;

    stand->replayed = 0;
    stand->position_last = 0;
    stand->is_wrong = false;
    r = log_folder_open(&folder, &volume_kernel.kernel, "/store", true, &why);
    if (r == 0) r = log_folder_lock(&folder, &why);
    if (r == 0) r = log_recover(&folder, &spec, &found, &why);
    if (r < 0) TEST_FAIL("it cannot be opened: %s", why.text);
    log_recovered_free(&folder, &found);
    log_folder_close(&folder);
    return r;
}

static void check_state(struct stand *stand, unsigned prefix)
{
    unsigned acknowledged, trimmed, replayed;
    uint64_t next;

    (void)volume_kernel_begin(DISK_BYTES);
    volume_kernel.choose = choose;
    redo(prefix, &acknowledged, &trimmed);
    volume_kernel_crash();
    volume_kernel.choose = choose_nothing;
    recover(stand);
    CHECK(!stand->is_wrong);
    next = stand->replayed > 0 ? stand->next : trimmed;
    CHECK_INT(next, >=, acknowledged);
    CHECK_INT(next, <=, RECORDS);
    if (stand->replayed > 0) CHECK_INT(stand->first, <=, trimmed);
    replayed = stand->replayed;
    volume_kernel_crash(); /* it has lost nothing that was found */
    recover(stand);
    CHECK(!stand->is_wrong);
    CHECK_INT(stand->replayed, ==, replayed);
    volume_kernel_end();
}

static unsigned enumerate(struct stand *stand, unsigned states_per_prefix)
{
    unsigned states = 0;

    for (unsigned prefix = 0; prefix <= op_count; prefix++) {
        unsigned done = 0;

        if (prefix > 0 && prefix < op_count && ops[prefix - 1].kind == OP_CLOSE) continue;
        memset(&choices, 0, sizeof choices);
        do { /* all ways, the last choices first, up to half of the bound */
            test_note("prefix %u, state %u", prefix, done);
            check_state(stand, prefix);
            done++;
        } while (choose_next() && (choices.count = 0, done < states_per_prefix / 2));
        if (done >= states_per_prefix / 2) {
            for (choices.by_chance = true; done < states_per_prefix; done++) {
                choices.state = prefix * UINT64_C(1000003) + done;
                test_note("prefix %u, state %u, by chance", prefix, done);
                check_state(stand, prefix);
            }
        }
        states += done;
    }
    for (unsigned i = 0; i < op_count; i++) free(ops[i].data);
    op_count = 0;
    return states;
}

TEST_WITH(log_recovers_from_thousands_of_crash_states, .timeout_ms = 60000)
{
    static struct stand stand;
    unsigned states = 0;

    for (sync_every = 1; sync_every <= 6; sync_every += 5) {
        record(&stand);
        states += enumerate(&stand, TEST_SLOW ? 4 : 40);
    }
    CHECK_INT(states, >, TEST_SLOW ? 200 : 2000);
}

TEST_WITH(log_recovers_from_a_hundred_thousand_crash_states, .long_only = true,
          .timeout_ms = 900000)
{
    static struct stand stand;
    const unsigned wanted = TEST_SLOW ? 10000 : 100000;
    unsigned states = 0;

    for (sync_every = 1; states < wanted; sync_every = sync_every % 12 + 1) {
        record(&stand);
        states += enumerate(&stand, 600);
    }
    printf("crash states opened: %u\n", states);
}
