/* bare.c - tasks, channels, a select and a lock with nothing around them: the least that they cost.
 *
 * One thread; a ring of tasks that can run; the library's own switch. No names, no scopes, no
 * cancellation, no deadlines, no budget, no figures, no look whether a channel is still open, no
 * failure. What a library costs beyond this is what it does beyond this.
 *
 * Calls are part of their callers: a function that switches returns to where the processor does not
 * expect it, which costs more than all the rest.
 */
#include "bare.h"

#include <stdbool.h>

#include "rt/switch.h"

enum { STACK_BYTES = 16384, TASKS_MAX = 1024, CASES = 4, CAPACITY = 128 };

#define LEAST static inline __attribute__((always_inline))

_Static_assert((TASKS_MAX & (TASKS_MAX - 1)) == 0 && TASKS_MAX > BENCH_YIELDING_MANY,
               "the ring holds all tasks, and its places are found by a mask");

/* ---- Tasks ---- */

struct task {
    struct switch_context context;
    void (*fn)(void *arg);
    void *arg;
    struct task *next; /* in the queue of a channel or a lock */
    uint64_t *item;    /* where what it waits for goes, or comes from */
    uint32_t waits_in; /* a select: one bit for each of its channels */
};

static struct task *ready[TASKS_MAX];
static unsigned ready_head, ready_tail, alive;
static struct task *current;
static struct switch_context main_context;

static inline void wake(struct task *task)
{
    ready[ready_tail++ % TASKS_MAX] = task;
}

/* Whoever parks knows that somebody can run: else all would wait for one another. */
LEAST void park(void)
{
    struct task *self = current;

    current = ready[ready_head++ % TASKS_MAX];
    switch_to(&self->context, &current->context);
}

_Noreturn static void task_entry(void)
{
    struct switch_context gone;

    current->fn(current->arg);
    if (--alive == 0) switch_to(&gone, &main_context);
    current = ready[ready_head++ % TASKS_MAX];
    switch_to(&gone, &current->context);
    __builtin_unreachable();
}

static void spawn(const struct bench *bench, void (*fn)(void *arg), void *arg)
{
    struct task *task = calloc(1, sizeof *task);
    char *stack = aligned_alloc(16, STACK_BYTES);

    if (!task || !stack) bench_fail(bench, bench->workload, "no memory");
    task->fn = fn;
    task->arg = arg;
    task->context.pc = (void *)(uintptr_t)task_entry;
#if defined(__x86_64__)
    task->context.sp = stack + STACK_BYTES - 8; /* as if it had been called */
#else
    task->context.sp = stack + STACK_BYTES;
#endif
    alive++;
    wake(task);
}

/* Runs all tasks to their ends, and prints what an operation took. */
static void run_all(const struct bench *bench, size_t op_count)
{
    int64_t begin_ns = bench_now_ns();

    current = ready[ready_head++ % TASKS_MAX];
    switch_to(&main_context, &current->context);
    bench_print_ns(bench, bench->workload, bench_now_ns() - begin_ns, op_count);
}

/* ---- Queues of tasks that wait ---- */

struct queue {
    struct task *first, *last;
};

static inline void queue_add(struct queue *queue, struct task *task)
{
    task->next = NULL;
    if (queue->first) {
        queue->last->next = task;
    } else {
        queue->first = task;
    }
    queue->last = task;
}

static inline struct task *queue_take(struct queue *queue)
{
    struct task *task = queue->first;

    queue->first = task->next;
    return task;
}

/* ---- Channels ---- */

struct chan {
    struct queue senders, receivers;
    struct task *selector; /* that has it among its cases, and waits */
    unsigned capacity, head, count, index;
    uint64_t items[CAPACITY];
};

static inline void chan_store(struct chan *chan, uint64_t item)
{
    chan->items[(chan->head + chan->count++) % CAPACITY] = item;
}

LEAST void chan_send(struct chan *chan, uint64_t *item)
{
    if (chan->receivers.first) {
        struct task *receiver = queue_take(&chan->receivers);
        *receiver->item = *item;
        wake(receiver);
    } else if (chan->selector && chan->selector->waits_in) {
        struct task *selector = chan->selector;
        *selector->item = *item;
        selector->waits_in = 0;
        wake(selector);
    } else if (chan->count < chan->capacity) {
        chan_store(chan, *item);
    } else {
        current->item = item;
        queue_add(&chan->senders, current);
        park();
    }
}

/* Whether there was something to take. */
static inline bool chan_take(struct chan *chan, uint64_t *ret_item)
{
    if (chan->count > 0) {
        *ret_item = chan->items[chan->head];
        chan->head = (chan->head + 1) % CAPACITY;
        chan->count--;
        if (chan->senders.first) {
            struct task *sender = queue_take(&chan->senders);
            chan_store(chan, *sender->item);
            wake(sender);
        }
        return true;
    }
    if (chan->senders.first) {
        struct task *sender = queue_take(&chan->senders);
        *ret_item = *sender->item;
        wake(sender);
        return true;
    }
    return false;
}

LEAST void chan_recv(struct chan *chan, uint64_t *ret_item)
{
    if (chan_take(chan, ret_item)) return;
    current->item = ret_item;
    queue_add(&chan->receivers, current);
    park();
}

/* Of channels that no other task receives from; the first to look at is the next each time. */
LEAST void chan_select(struct chan *chans, uint64_t *ret_item)
{
    static unsigned turn;
    unsigned first = turn++;

    for (unsigned i = 0; i < CASES; i++)
        if (chan_take(&chans[(first + i) % CASES], ret_item)) return;
    current->item = ret_item;
    current->waits_in = (1u << CASES) - 1;
    for (unsigned i = 0; i < CASES; i++) chans[i].selector = current;
    park();
}

/* ---- What is measured: as in bench/weir/flow.c ---- */

struct stream {
    struct chan *there, *back;
    size_t count;
};

static void ping(void *arg)
{
    struct stream *stream = arg;
    uint64_t ball;

    for (uint64_t i = 0; i < stream->count; i++) {
        chan_send(stream->there, &i);
        chan_recv(stream->back, &ball);
    }
}

static void pong(void *arg)
{
    struct stream *stream = arg;
    uint64_t ball;

    for (size_t i = 0; i < stream->count; i++) {
        chan_recv(stream->there, &ball);
        chan_send(stream->back, &ball);
    }
}

void bare_ping_pong(const struct bench *bench)
{
    static struct chan there, back;
    struct stream stream = {&there, &back, bench->n};

    spawn(bench, ping, &stream);
    spawn(bench, pong, &stream);
    run_all(bench, bench->n);
}

static void send_all(void *arg)
{
    struct stream *stream = arg;

    for (uint64_t i = 0; i < stream->count; i++) chan_send(stream->there, &i);
}

static void receive_all(void *arg)
{
    struct stream *stream = arg;
    uint64_t item;

    for (size_t i = 0; i < stream->count; i++) chan_recv(stream->there, &item);
}

static void channel_measured(const struct bench *bench, size_t pairs)
{
    static struct chan chan = {.capacity = CAPACITY};
    struct stream stream = {&chan, NULL, bench->n / pairs};

    for (size_t i = 0; i < pairs; i++) {
        spawn(bench, send_all, &stream);
        spawn(bench, receive_all, &stream);
    }
    run_all(bench, stream.count * pairs);
}

void bare_channel_1_1(const struct bench *bench)
{
    channel_measured(bench, 1);
}

void bare_channel_4_4(const struct bench *bench)
{
    channel_measured(bench, 4);
}

static void select_all(void *arg)
{
    struct stream *stream = arg;
    uint64_t item;

    for (size_t i = 0; i < stream->count; i++) chan_select(stream->there, &item);
}

static void select_measured(const struct bench *bench, unsigned capacity)
{
    static struct chan chans[CASES];
    struct stream senders[CASES];
    struct stream receiver = {chans, NULL, bench->n / CASES * CASES};

    for (unsigned i = 0; i < CASES; i++) {
        chans[i].capacity = capacity;
        senders[i] = (struct stream){&chans[i], NULL, bench->n / CASES};
        spawn(bench, send_all, &senders[i]);
    }
    spawn(bench, select_all, &receiver);
    run_all(bench, receiver.count);
}

void bare_select_4_0(const struct bench *bench)
{
    select_measured(bench, 0);
}

void bare_select_4_128(const struct bench *bench)
{
    select_measured(bench, CAPACITY);
}

struct mutex {
    bool held;
    struct queue waiting;
};

LEAST void mutex_lock(struct mutex *mutex)
{
    if (!mutex->held) {
        mutex->held = true;
        return;
    }
    queue_add(&mutex->waiting, current);
    park(); /* it is handed over */
}

LEAST void mutex_unlock(struct mutex *mutex)
{
    if (mutex->waiting.first) {
        wake(queue_take(&mutex->waiting));
    } else {
        mutex->held = false;
    }
}

LEAST void yield(void)
{
    if (ready_head == ready_tail) return;
    wake(current);
    park();
}

struct critical {
    struct mutex mutex;
    size_t count;
    bool yields;
};

static void lock_often(void *arg)
{
    struct critical *critical = arg;

    for (size_t i = 0; i < critical->count; i++) {
        mutex_lock(&critical->mutex);
        if (critical->yields) yield();
        mutex_unlock(&critical->mutex);
    }
}

static void mutex_measured(const struct bench *bench, size_t task_count, bool yields)
{
    struct critical critical = {.count = bench->n / task_count, .yields = yields};

    for (size_t i = 0; i < task_count; i++) spawn(bench, lock_often, &critical);
    run_all(bench, critical.count * task_count);
}

void bare_mutex(const struct bench *bench)
{
    mutex_measured(bench, 1, false);
}

void bare_mutex_1000(const struct bench *bench)
{
    mutex_measured(bench, BENCH_YIELDING_MANY, true);
}
