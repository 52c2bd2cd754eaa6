// cxx_program - libweir used from C++17: the specs by their named initialisers,
// a scope, two tasks, a sleep and a deadline block, a channel, a pool and a semaphore.
#include <weir/weir.h>

#include <atomic>
#include <cstdio>

namespace
{

std::atomic<int> sum{0};

struct work {
    int value;
    int64_t sleep_ms;
};

int add(void *arg)
{
    auto *work_item = static_cast<work *>(arg);
    int r = weir_sleep(work_item->sleep_ms);
    if (r < 0) return r;
    sum += work_item->value;
    return 0;
}

int square(void *data)
{
    int *number = static_cast<int *>(data);
    *number *= *number;
    return 0;
}

// What moves values, by the untyped calls.
int move_values(weir_scope *scope)
{
    weir_chan_spec spec;
    weir_chan_spec_init(&spec);
    spec.name = "values";
    spec.capacity = 2;
    spec.overflow = WEIR_WAIT;
    spec.on_close = WEIR_DRAIN;

    weir_tx *tx = nullptr;
    weir_rx *rx = nullptr;
    int r = weir_chan_open_sized(scope, sizeof spec, &spec, sizeof(int), &tx, &rx);
    if (r < 0) return r;
    int value = 5, out = 0;
    weir_case cases[] = {weir_case_send(tx, &value), weir_case_timer(1000)};
    r = weir_select(cases, 2, WEIR_IN_ORDER);
    if (r == 0) r = weir_rx_recv(rx, &out);
    if (r < 0) return r;

    weir_pool_class work;
    work.name = "work";
    work.weight = 1;
    work.queue_max = 1;
    work.running_max = 0;
    work.latency_ms = 0;
    weir_pool_spec pool_spec;
    weir_pool_spec_init(&pool_spec);
    pool_spec.name = "pool";
    pool_spec.threads_max = 1;
    pool_spec.overflow = WEIR_WAIT;
    pool_spec.on_close = WEIR_DRAIN;
    pool_spec.classes = &work;
    pool_spec.class_count = 1;
    weir_pool *pool = nullptr;
    r = weir_pool_open(scope, &pool_spec, &pool);
    if (r == 0) r = weir_pool_run(pool, 0, square, &out, sizeof out);
    if (r < 0) return r;
    sum += out;

    weir_semaphore_spec permits;
    weir_semaphore_spec_init(&permits);
    permits.name = "permits";
    permits.permits = 1;
    permits.overflow = WEIR_REJECT;
    weir_semaphore *semaphore = nullptr;
    r = weir_semaphore_open(scope, &permits, &semaphore);
    if (r == 0) r = weir_semaphore_acquire(semaphore, 1);
    if (r == 0) weir_semaphore_release(semaphore, 1);
    return r;
}

int first_task(void *)
{
    weir_scope_spec spec;
    weir_scope_spec_init(&spec);
    spec.name = "sum";
    spec.on_failure = WEIR_FAIL_FAST;
    spec.max_tasks = 4;
    spec.overflow = WEIR_WAIT;
    spec.deadline_ms = 10000;

    weir_scope *scope = nullptr;
    int r = weir_scope_open(&spec, &scope);
    if (r < 0) {
        std::fprintf(stderr, "scope: %s: %s\n", weir_strerror(r), weir_why());
        return r;
    }

    const work works[] = {{40, 2}, {2, 1}};
    for (const work &work_item : works) {
        r = weir_spawn(scope, add, &work_item, sizeof work_item);
        if (r < 0) weir_scope_cancel(scope, r, "a task could not be spawned");
    }
    r = move_values(scope);
    if (r < 0) weir_scope_cancel(scope, r, "values could not be moved");
    WEIR_DEADLINE(1000) {
        r = weir_sleep(1);
        if (r < 0) weir_scope_cancel(scope, r, "the sleep failed");
    }
    return weir_scope_close(scope);
}

} // namespace

int main()
{
    weir_config config;
    weir_config_init(&config);
    config.name = "cxx";

    int r = weir_run(&config, first_task, nullptr);
    if (r < 0) {
        std::fprintf(stderr, "weir_run: %s: %s\n", weir_strerror(r), weir_why());
        return 1;
    }
    if (sum != 67) {
        std::fprintf(stderr, "the tasks added up to %d instead of 67\n", sum.load());
        return 1;
    }
    return 0;
}
