"""The bars that weir holds, one table for each group.

The figures are those of the project's performance table; they change only when
that table does. `ratio_X` is weir's figure divided by X's, measured in the same
run, `weir_uring_ratio_X` that of weir's other backend, `ratio_weir_off` that to weir
with its metrics off; `weir` is weir's own figure. Exactly one of at_most and at_least is
given (times and bytes: at_most; rates: at_least).
"""

from typing import NamedTuple, Optional


class Bar(NamedTuple):
    figure: str
    at_most: Optional[float] = None
    at_least: Optional[float] = None

    def __str__(self):
        if self.at_most is not None:
            return f"{self.figure}<={self.at_most:g}"
        return f"{self.figure}>={self.at_least:g}"

    def held(self, value):
        if self.at_most is not None:
            return value <= self.at_most
        return value >= self.at_least


# Both backends of weir beside the better one of the raw loops, and beside everybody.
ECHO_CPU = [
    bar
    for ours in ("", "weir_uring_")
    for bar in (
        Bar(f"{ours}ratio_raw", 1.10),
        Bar(f"{ours}ratio_libuv", 1.0),
        Bar(f"{ours}ratio_tokio", 1.0),
        Bar(f"{ours}ratio_go", 1.0),
    )
]

# What measuring may cost.
METRICS = Bar("ratio_weir_off", 1.10)

BARS = {
    "runtime": {
        "spawn_join": [Bar("ratio_go", 0.12), Bar("ratio_tokio", 0.18)],
        "spawn_yield_join": [Bar("ratio_go", 0.25), Bar("ratio_tokio", 0.6)],
        "yield_1000": [Bar("ratio_go", 0.12), Bar("ratio_tokio", 0.25)],
        "yield_2": [Bar("ratio_go", 0.12)],
        "timer_insert": [Bar("ratio_go", 0.1), Bar("ratio_libuv", 0.5)],
        "timer_churn": [Bar("ratio_go", 0.1), Bar("ratio_libuv", 0.1)],
        "parked_create": [Bar("ratio_go", 1.2)],
        "parked_bytes": [Bar("weir", 4800)],
        "parked_cancel": [Bar("ratio_go", 0.4), Bar("ratio_tokio", 0.6)],
        "sequential": [Bar("ratio_c", 1.01)],
    },
    "echo": {
        "echo_64_cpu": ECHO_CPU,
        "echo_1000_cpu": ECHO_CPU,
    },
    "flow": {
        # libdill is not in Debian 12: its bar is shown as not measured.
        "ping_pong": [Bar("ratio_go", 0.12), Bar("ratio_tokio", 0.16), Bar("ratio_libdill", 0.6),
                      METRICS],
        "channel_1_1": [Bar("ratio_go", 0.3), Bar("ratio_tokio", 0.2), METRICS],
        "channel_4_4": [Bar("ratio_go", 0.35), Bar("ratio_tokio", 0.25), METRICS],
        "channel_1_1_2": [Bar("ratio_go", 1.0), Bar("ratio_tokio", 0.5), METRICS],
        "channel_4_4_2": [Bar("ratio_go", 0.9), Bar("ratio_tokio", 0.4), METRICS],
        "select_4_0": [Bar("ratio_go", 0.15), Bar("ratio_tokio", 0.25), METRICS],
        "select_4_128": [Bar("ratio_go", 0.2), Bar("ratio_tokio", 0.3), METRICS],
        "mutex": [Bar("ratio_go", 0.6), METRICS],
        "mutex_1000": [Bar("ratio_go", 0.15), METRICS],
        "pool": [Bar("ratio_go", 1.0), Bar("ratio_tokio", 0.5), METRICS],
        "pipeline_item": [METRICS],
        "pipeline_pool": [METRICS],
        "fan_out": [METRICS],
    },
    # Rates: weir's divided by the peer's, at least.
    "store": {
        "lifecycle_128_rate": [Bar("ratio_lmdb", at_least=2.0), Bar("ratio_sqlite", at_least=2.5),
                               Bar("ratio_bare", at_least=0.8)],
        "lifecycle_128_cpu": [Bar("weir", 4)],
        "lifecycle_128_bytes": [Bar("weir", 400)],
        "enqueue_256_rate": [Bar("ratio_bare", at_least=0.7)],
        "enqueue_256_p99": [Bar("ratio_disk", 2.5)],
        "open_time": [Bar("weir", 1000)],
        "claim_ratio": [Bar("weir", 2)],
        # What was promised of compaction, beside that table.
        "compaction_p99_ratio": [Bar("weir", 2)],
    },
    # Rates, and the processor time of the server for a request.
    "server": {
        "enqueue_64_rate": [Bar("ratio_redis", at_least=1.6), Bar("ratio_beanstalkd", at_least=8)],
        "lifecycle_64_rate": [Bar("ratio_redis", at_least=2), Bar("ratio_beanstalkd", at_least=8)],
        # As safe as Redis is then: written to the file, and synced later.
        "enqueue_64_relaxed_rate": [Bar("ratio_redis", at_least=0.9)],
        "get_64_rate": [Bar("ratio_nginx", at_least=1.0)],
        "get_64_cpu": [Bar("ratio_nginx", 0.95)],
    },
    # What a policy may cost a call of one worker that is alone with it, in ns.
    "resilience": {
        name: [Bar("weir", 60)] for name in ("shed", "shed_late", "rate", "limit", "limit_adaptive",
                                             "breaker", "breaker_by_time", "retry_budget")
    },
    # Simulated runs of six tasks in a minute, on one core.
    "sim": {name: [Bar("weir", at_least=5_000_000)] for name in ("sim_random", "sim_pct")},
}
