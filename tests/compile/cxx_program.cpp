// cxx_program - libweir used from C++17: the specs by their named initialisers,
// a scope, two tasks, a sleep and a deadline block.
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
    if (sum != 42) {
        std::fprintf(stderr, "the tasks added up to %d instead of 42\n", sum.load());
        return 1;
    }
    return 0;
}
