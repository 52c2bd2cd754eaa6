// boost.fiber's side of `bench flow`, on one thread.
//
// Usage: bench-boost-fiber WORKLOAD [N]; prints one line of JSON. WORKLOAD `version` prints
// that of boost. Fibers are made and joined as its users do; their stacks come from a pool.
#include <boost/fiber/all.hpp>
#include <boost/version.hpp>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace fibers = boost::fibers;

namespace
{

using clock_type = std::chrono::steady_clock;

constexpr size_t channel_capacity = 128; // of which its ring stores one less
constexpr size_t yielding_many = 1000;
constexpr size_t count_max = 1000000000;

struct measured {
    clock_type::duration elapsed;
    size_t ops;
};

template <typename Function> fibers::fiber spawn(Function function)
{
    static fibers::pooled_fixedsize_stack stacks;
    return fibers::fiber(fibers::launch::post, std::allocator_arg, stacks, std::move(function));
}

void join_all(std::vector<fibers::fiber> &all)
{
    for (fibers::fiber &one : all) one.join();
}

void require(fibers::channel_op_status status)
{
    if (status == fibers::channel_op_status::success) return;
    std::fprintf(stderr, "bench-boost-fiber: a channel was closed\n");
    std::exit(1);
}

measured ping_pong(size_t n)
{
    fibers::unbuffered_channel<uint64_t> there, back;
    std::vector<fibers::fiber> players;
    auto begin = clock_type::now();

    players.push_back(spawn([&] {
        uint64_t ball;
        for (size_t i = 0; i < n; i++) {
            require(there.push(i));
            require(back.pop(ball));
        }
    }));
    players.push_back(spawn([&] {
        uint64_t ball;
        for (size_t i = 0; i < n; i++) {
            require(there.pop(ball));
            require(back.push(ball));
        }
    }));
    join_all(players);
    return {clock_type::now() - begin, n};
}

measured channel(size_t n, size_t pairs)
{
    fibers::buffered_channel<uint64_t> items(channel_capacity);
    std::vector<fibers::fiber> all;
    size_t each = n / pairs;
    auto begin = clock_type::now();

    for (size_t i = 0; i < pairs; i++) {
        all.push_back(spawn([&items, each] {
            for (size_t k = 0; k < each; k++) require(items.push(k));
        }));
        all.push_back(spawn([&items, each] {
            uint64_t item;
            for (size_t k = 0; k < each; k++) require(items.pop(item));
        }));
    }
    join_all(all);
    return {clock_type::now() - begin, each * pairs};
}

measured mutex(size_t n, size_t tasks, bool yields)
{
    fibers::mutex critical;
    std::vector<fibers::fiber> all;
    size_t each = n / tasks;
    auto begin = clock_type::now();

    for (size_t i = 0; i < tasks; i++) {
        all.push_back(spawn([&critical, each, yields] {
            for (size_t k = 0; k < each; k++) {
                critical.lock();
                if (yields) boost::this_fiber::yield();
                critical.unlock();
            }
        }));
    }
    join_all(all);
    return {clock_type::now() - begin, each * tasks};
}

struct workload {
    const char *name;
    measured (*run)(size_t n);
};

const workload workloads[] = {
    {"ping_pong", ping_pong},
    {"channel_1_1", [](size_t n) { return channel(n, 1); }},
    {"channel_4_4", [](size_t n) { return channel(n, 4); }},
    {"mutex", [](size_t n) { return mutex(n, 1, false); }},
    {"mutex_1000", [](size_t n) { return mutex(n, yielding_many, true); }},
};

int refuse(const char *what, const char *text)
{
    std::fprintf(stderr, "bench-boost-fiber: %s '%s'\n", what, text);
    return 2;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc == 2 && std::strcmp(argv[1], "version") == 0) {
        std::printf("%s\n", BOOST_LIB_VERSION);
        return 0;
    }
    if (argc < 2 || argc > 3) return refuse("usage: WORKLOAD [N], not", argc < 2 ? "" : argv[3]);

    char *end = nullptr;
    long long n = argc == 3 ? std::strtoll(argv[2], &end, 10) : 1000000;
    if (n < 1 || static_cast<size_t>(n) > count_max || (end && *end))
        return refuse("N is no count:", argv[2]);

    for (const workload &one : workloads) {
        if (std::strcmp(one.name, argv[1]) != 0) continue;
        measured result = one.run(static_cast<size_t>(n));
        double ns = std::chrono::duration<double, std::nano>(result.elapsed).count();
        std::printf("{\"workload\":\"%s\",\"peer\":\"boost_fiber\",\"n\":%zu,\"ns_per_op\":%.3f}\n",
                    one.name, result.ops, ns / static_cast<double>(result.ops));
        return 0;
    }
    return refuse("no workload", argv[1]);
}
