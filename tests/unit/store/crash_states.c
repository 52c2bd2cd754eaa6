/* crash_states.c - see crash_states.h. */
#include "unit/store/crash_states.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/test.h"
#include "unit/store/volume_kernel.h"

enum op_kind {
    OP_OPEN,
    OP_CLOSE,
    OP_WRITE,
    OP_SYNC,
    OP_NAME,
    OP_MAKE,
    OP_MARK,
};

enum {
    OPS_MAX = 4096,
    PATH_BYTES = 64,
    CHOICES_MAX = 256,
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
    unsigned mark, value;
};

static struct op ops[OPS_MAX];
static unsigned op_count;

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

void crash_mark(unsigned which, unsigned value)
{
    struct op *op;

    pthread_mutex_lock(&volume_kernel.mutex);
    op = op_add(OP_MARK, 0);
    op->mark = which;
    op->value = value;
    pthread_mutex_unlock(&volume_kernel.mutex);
}

static void set_hooks(bool on)
{
    volume_kernel.opened = on ? on_open : NULL;
    volume_kernel.closed = on ? on_close : NULL;
    volume_kernel.wrote = on ? on_write : NULL;
    volume_kernel.synced = on ? on_sync : NULL;
    volume_kernel.named = on ? on_name : NULL;
    volume_kernel.made = on ? on_make : NULL;
}

void crash_record_begin(uint64_t disk_bytes)
{
    set_hooks(true);
    kernel_override(volume_kernel_begin(disk_bytes));
}

void crash_record_end(void)
{
    kernel_override(NULL);
    volume_kernel_end();
    set_hooks(false);
}

/* ---- Making a disk again ---- */

static void redo(unsigned count, unsigned marks[CRASH_MARKS])
{
    const struct kernel *kernel = &volume_kernel.kernel;
    int fds[VOLUME_FDS];

    memset(marks, 0, CRASH_MARKS * sizeof *marks);
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
        case OP_MARK: marks[op->mark] = op->value; break;
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

/* ---- All of them ---- */

static void look_at_state(const struct crash_look *look, unsigned prefix)
{
    unsigned marks[CRASH_MARKS];

    (void)volume_kernel_begin(look->disk_bytes);
    volume_kernel.choose = choose;
    redo(prefix, marks);
    volume_kernel_crash();
    volume_kernel.choose = choose_nothing;
    look->look(look->arg, marks);
    volume_kernel_end();
}

const struct kernel *crash_kernel(void)
{
    return &volume_kernel.kernel;
}

void crash_again(void)
{
    volume_kernel_crash();
}

unsigned crash_enumerate(const struct crash_look *look, unsigned states_per_prefix)
{
    unsigned states = 0;

    for (unsigned prefix = 0; prefix <= op_count; prefix++) {
        unsigned done = 0;

        if (prefix > 0 && prefix < op_count && ops[prefix - 1].kind == OP_CLOSE) continue;
        memset(&choices, 0, sizeof choices);
        do { /* all ways, the last choices first, up to half of the bound */
            test_note("prefix %u, state %u", prefix, done);
            look_at_state(look, prefix);
            done++;
        } while (choose_next() && (choices.count = 0, done < states_per_prefix / 2));
        if (done >= states_per_prefix / 2) {
            for (choices.by_chance = true; done < states_per_prefix; done++) {
                choices.state = prefix * UINT64_C(1000003) + done;
                test_note("prefix %u, state %u, by chance", prefix, done);
                look_at_state(look, prefix);
            }
        }
        states += done;
    }
    for (unsigned i = 0; i < op_count; i++) free(ops[i].data);
    op_count = 0;
    return states;
}
