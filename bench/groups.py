"""What is measured: the peers, and the rows of each group.

A new group is a new entry of GROUPS; a new peer a new entry of PEERS and, if it
is a program of its own, of PROGRAMS.
"""

from typing import Dict, NamedTuple, Optional, Tuple


class Program(NamedTuple):
    """How a peer's program is built, and what it needs on PATH for that.

    {source} is bench/, {out} the folder for what is built, {cc} the C compiler.
    """

    path: str  # a name without a slash: a program that is installed, on PATH
    needs: Tuple[str, ...] = ()
    command: Tuple[str, ...] = ()  # empty: the project's own build makes it
    cwd: str = "{source}"
    env: Dict[str, str] = {}
    pkg_config: Optional[str] = None  # a library whose flags the command gets
    header: Optional[str] = None  # of a C++ library that pkg-config does not know
    install: str = ""  # Debian packages, for the notice
    version: str = ""  # a command of the shell that says it, for the JSON


C_FLAGS = ("-O2", "-g", "-std=gnu17", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-I.")

PROGRAMS = {
    "weir": Program(path="{build}/bench/bench-{group}"),
    "go": Program(
        path="{out}/bench-go",
        needs=("go",),
        command=("go", "build", "-o", "{out}/bench-go", "."),
        cwd="{source}/peers/go",
        install="golang",
    ),
    "tokio": Program(
        path="{out}/tokio/release/bench-tokio",
        needs=("cargo", "rustc"),
        command=("cargo", "build", "--release", "--quiet"),
        cwd="{source}/peers/tokio",
        env={"CARGO_TARGET_DIR": "{out}/tokio"},
        install="cargo-web rustc-web",
    ),
    "libuv": Program(
        path="{out}/bench-libuv",
        needs=("{cc}", "pkg-config"),
        command=("{cc}", *C_FLAGS, "-o", "{out}/bench-libuv", "peers/libuv/main.c"),
        pkg_config="libuv",
        install="gcc pkg-config libuv1-dev",
    ),
    "c": Program(
        path="{out}/bench-c",
        needs=("{cc}",),
        command=("{cc}", *C_FLAGS, "-I../src", "-pthread", "-o", "{out}/bench-c",
                 "peers/c/main.c", "peers/c/pool.c", "peers/c/bare.c"),
        install="gcc",
    ),
    "boost-fiber": Program(
        path="{out}/bench-boost-fiber",
        needs=("g++",),
        command=("g++", "-O3", "-DNDEBUG", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-o",
                 "{out}/bench-boost-fiber", "peers/boost-fiber/main.cpp", "-lboost_fiber",
                 "-lboost_context"),
        header="boost/fiber/all.hpp",
        install="g++ libboost-fiber-dev",
    ),
    "store-bare": Program(
        path="{out}/bench-store-bare",
        needs=("{cc}",),
        command=("{cc}", *C_FLAGS, "-I../src", "-pthread", "-o", "{out}/bench-store-bare",
                 "peers/c/store.c", "peers/c/store_bare.c", "../src/base/crc32c.c"),
        install="gcc",
    ),
    "store-sqlite": Program(
        path="{out}/bench-store-sqlite",
        needs=("{cc}", "pkg-config"),
        command=("{cc}", *C_FLAGS, "-o", "{out}/bench-store-sqlite", "peers/c/store.c",
                 "peers/c/store_sqlite.c"),
        pkg_config="sqlite3",
        install="gcc pkg-config libsqlite3-dev",
    ),
    "store-lmdb": Program(
        path="{out}/bench-store-lmdb",
        needs=("{cc}", "pkg-config"),
        command=("{cc}", *C_FLAGS, "-o", "{out}/bench-store-lmdb", "peers/c/store.c",
                 "peers/c/store_lmdb.c"),
        pkg_config="lmdb",
        install="gcc pkg-config liblmdb-dev",
    ),
    "echo-load": Program(
        path="{out}/bench-echo-load",
        needs=("{cc}",),
        command=("{cc}", *C_FLAGS, "-o", "{out}/bench-echo-load", "load/echo.c"),
        install="gcc",
    ),
    "server-load": Program(
        path="{out}/bench-server-load",
        needs=("{cc}",),
        command=("{cc}", *C_FLAGS, "-o", "{out}/bench-server-load", "load/server.c",
                 "load/server_child.c", "load/server_jobs.c", "load/server_get.c",
                 "load/server_http.c", "load/server_redis.c", "load/server_beanstalkd.c"),
        install="gcc",
    ),
    "server-bare": Program(
        path="{out}/bench-server-bare",
        needs=("{cc}",),
        command=("{cc}", *C_FLAGS, "-I../src", "-o", "{out}/bench-server-bare",
                 "peers/c/server_bare.c", "../src/base/crc32c.c"),
        install="gcc",
    ),
    "weir-server": Program(path="{build}/programs/weir"),
    "redis": Program(path="redis-server", install="redis-server",
                     version="redis-server --version"),
    "beanstalkd": Program(path="beanstalkd", install="beanstalkd", version="beanstalkd -v"),
    "nginx": Program(path="nginx", install="nginx", version="nginx -v"),
    "echo-epoll": Program(
        path="{out}/echo-epoll",
        needs=("{cc}",),
        command=("{cc}", *C_FLAGS, "-o", "{out}/echo-epoll", "peers/c/echo_epoll.c"),
        install="gcc",
    ),
    "echo-uring": Program(
        path="{out}/echo-uring",
        needs=("{cc}", "pkg-config"),
        command=("{cc}", *C_FLAGS, "-o", "{out}/echo-uring", "peers/c/echo_uring.c"),
        pkg_config="liburing",
        install="gcc pkg-config liburing-dev",
    ),
    "echo-libuv": Program(
        path="{out}/echo-libuv",
        needs=("{cc}", "pkg-config"),
        command=("{cc}", *C_FLAGS, "-o", "{out}/echo-libuv", "peers/libuv/echo.c"),
        pkg_config="libuv",
        install="gcc pkg-config libuv1-dev",
    ),
}


class Peer(NamedTuple):
    program: str
    env: Dict[str, str] = {}  # {source} is filled in
    serves: Tuple[str, ...] = ()  # as a server that a load drives: its arguments


# How a server is started, apart from when it syncs. Redis neither makes snapshots nor rewrites its
# file: both would only cost it time here.
WEIR_SERVES = ("serve", "--listen", "tcp:127.0.0.1:{port}", "--data", "{data}/store")
REDIS_SERVES = ("--bind", "127.0.0.1", "--port", "{port}", "--dir", "{data}", "--save", "",
                "--appendonly", "yes", "--auto-aof-rewrite-percentage", "0")
BEANSTALKD_SERVES = ("-l", "127.0.0.1", "-p", "{port}", "-b", "{data}")

# A 2 at the end of a name means two workers; everything else runs on one.
PEERS = {
    "weir": Peer("weir", {"BENCH_WORKERS": "1"}),
    "weir2": Peer("weir", {"BENCH_WORKERS": "2"}),
    "weir_off": Peer("weir", {"BENCH_WORKERS": "1", "BENCH_METRICS": "off"}),
    "weir2_off": Peer("weir", {"BENCH_WORKERS": "2", "BENCH_METRICS": "off"}),
    "weir2_apart": Peer("weir", {"BENCH_WORKERS": "2", "BENCH_APART": "1"}),
    "go": Peer("go", {"GOMAXPROCS": "1"}),
    "go2": Peer("go", {"GOMAXPROCS": "2"}),
    "tokio": Peer("tokio", {"BENCH_WORKERS": "1"}),
    "tokio2": Peer("tokio", {"BENCH_WORKERS": "2"}),
    "rayon": Peer("tokio", {"BENCH_WORKERS": "1", "BENCH_POOL": "rayon"}),
    "libuv": Peer("libuv"),
    "c": Peer("c", {"BENCH_WORKERS": "1"}),
    "c2": Peer("c", {"BENCH_WORKERS": "2"}),
    "boost_fiber": Peer("boost-fiber"),
    # Of the group store; the disk is a log that does nothing but sync.
    "bare_log": Peer("store-bare"),
    "bare_handed": Peer("store-bare", {"BENCH_HANDED": "1"}),
    "sqlite": Peer("store-sqlite"),
    "lmdb": Peer("store-lmdb"),
    "disk": Peer("store-bare", {"BENCH_SYNC_ONLY": "1"}),
    # Servers of the group echo.
    "weir_epoll": Peer("weir", {"BENCH_BACKEND": "epoll"}, ("serve_echo",)),
    "weir_uring": Peer("weir", {"BENCH_BACKEND": "io_uring"}, ("serve_echo",)),
    "weir_no_deadline": Peer("weir", {"BENCH_BACKEND": "epoll"}, ("serve_echo_no_deadline",)),
    "weir_no_task": Peer("weir", {"BENCH_BACKEND": "epoll"}, ("serve_echo_no_task",)),
    "raw_epoll": Peer("echo-epoll"),
    "raw_uring": Peer("echo-uring"),
    "libuv_echo": Peer("echo-libuv"),
    "go_echo": Peer("go", {"GOMAXPROCS": "1"}, ("serve_echo",)),
    "tokio_echo": Peer("tokio", {"BENCH_WORKERS": "1"}, ("serve_echo",)),
    # Of the group server; the load fills {port}, {data} and {config} in.
    "weir_server": Peer("weir-server", {"BENCH_PROTOCOL": "http"}, WEIR_SERVES),
    "weir_written": Peer("weir-server", {"BENCH_PROTOCOL": "http", "BENCH_DURABILITY": "written"},
                         WEIR_SERVES),
    "weir_memory": Peer("weir-server", {"BENCH_PROTOCOL": "http", "BENCH_DURABILITY": "memory"},
                        WEIR_SERVES),
    "bare_server": Peer("server-bare", {"BENCH_PROTOCOL": "http"}, ("{port}", "{data}")),
    "bare_server_written": Peer("server-bare",
                                {"BENCH_PROTOCOL": "http", "BENCH_DURABILITY": "written"},
                                ("{port}", "{data}")),
    "redis_always": Peer("redis", {"BENCH_PROTOCOL": "redis"},
                         (*REDIS_SERVES, "--appendfsync", "always")),
    "redis_everysec": Peer("redis", {"BENCH_PROTOCOL": "redis"},
                           (*REDIS_SERVES, "--appendfsync", "everysec")),
    "beanstalkd_always": Peer("beanstalkd", {"BENCH_PROTOCOL": "beanstalkd"},
                              (*BEANSTALKD_SERVES, "-f", "0")),
    "beanstalkd_50": Peer("beanstalkd", {"BENCH_PROTOCOL": "beanstalkd"},
                          (*BEANSTALKD_SERVES, "-f", "50")),
    "nginx": Peer("nginx", {"BENCH_PROTOCOL": "http",
                            "BENCH_CONFIG": "{source}/peers/server/nginx.conf"},
                  ("-e", "stderr", "-p", "{data}", "-c", "{config}")),
}


class Row(NamedTuple):
    """One workload, run by its peers in turn.

    `columns` maps the name printed to the peer that is run. `metrics` are the
    workload names that the program prints, when they differ from its argument.
    `load` is a program that starts the peer as a server and measures it. `ours`
    are the columns that are weir's: the ratios of the first are `ratio_X`, those
    of another `NAME_ratio_X`. `best` names groups of columns: the one that
    measured best in this run is a column of the ratios itself. `plain` are the
    metrics that are shown without ratios. `scales` maps a column to the one that
    has two workers instead of one: that is shown on lines of its own (SCALED). `some`
    are the metrics that not every column has. `follows` maps a column to the metric of
    weir that is its BENCH_GROUP: the last that was measured. With `data` a program gets
    a fresh folder beside the build, BENCH_DATA.
    """

    name: str
    columns: Dict[str, str]
    n: int
    n_quick: int
    workload: str = ""  # the program's argument; default: the name
    metrics: Tuple[str, ...] = ()
    timeout_s: int = 60
    load: str = ""
    ours: Tuple[str, ...] = ("weir",)
    best: Dict[str, Tuple[str, ...]] = {}
    plain: Tuple[str, ...] = ()
    scales: Dict[str, str] = {}
    some: Tuple[str, ...] = ()
    follows: Dict[str, str] = {}
    data: bool = False

    @property
    def argument(self):
        return self.workload or self.name

    def printed(self):
        """(name of the output line, name in the program's output) pairs."""
        if self.metrics:
            return [(metric, metric) for metric in self.metrics]
        return [(self.name, self.argument)]

    def names(self):
        """Of all output lines, those that are computed included."""
        names = [name for name, _ in self.printed()]
        return names + [f"{self.name}_{what}" for what in SCALED if self.scales]


# The lines that a row with `scales` has besides: the time on two workers, how many times as
# fast that is, and the part of the work that it says was not shared (Amdahl).
SCALED = ("2", "speedup", "sequential")

TASKS = {"weir": "weir", "go": "go", "tokio": "tokio"}
TASKS_2 = {"weir": "weir2", "go": "go2", "tokio": "tokio2"}
TIMERS = {**TASKS, "libuv": "libuv"}
# Beside itself with metrics off: what they cost.
FLOW = {"weir": "weir", "weir_off": "weir_off", "go": "go", "tokio": "tokio"}
FLOW_2 = {"weir": "weir2", "weir_off": "weir2_off", "go": "go2", "tokio": "tokio2"}
CHANNEL_2 = {**FLOW_2, "weir_apart": "weir2_apart"}
# Beside the least that there is: the same without a library.
BARE = {**FLOW, "bare": "c"}
FIBERS = {**BARE, "boost_fiber": "boost_fiber"}
# One worker and two threads of a pool; where callers and pool share workers, two of them.
POOLS = {"weir": "weir", "weir_off": "weir_off", "go": "go2", "tokio": "tokio2"}

ECHO = {
    "weir": "weir_epoll",
    "weir_uring": "weir_uring",
    "weir_no_deadline": "weir_no_deadline",
    "raw_epoll": "raw_epoll",
    "raw_uring": "raw_uring",
    "libuv": "libuv_echo",
    "go": "go_echo",
    "tokio": "tokio_echo",
}
IDLE = {
    "weir": "weir_epoll",
    "weir_no_task": "weir_no_task",
    "raw_epoll": "raw_epoll",
    "libuv": "libuv_echo",
    "go": "go_echo",
    "tokio": "tokio_echo",
}


def echo_row(name, columns, n, n_quick, ratios=(), plain=()):
    """A row of servers, driven by the load generator."""
    metrics = tuple(f"{name}_{metric}" for metric in (*ratios, *plain))
    return Row(name, columns, n, n_quick, metrics=metrics, load="echo-load", timeout_s=180,
               ours=("weir", "weir_uring"), best={"raw": ("raw_epoll", "raw_uring")},
               plain=metrics[len(ratios):])


# Policies of the group resilience, each around an empty call; with _2 on two workers at once.
POLICIES = ("shed", "shed_late", "rate", "limit", "limit_adaptive", "breaker", "breaker_by_time",
            "retry_budget", "guard", "guard_breaker", "guard_retry", "guard_hedge", "guard_all")


def policy_rows():
    return [row for name in POLICIES for row in (
        Row(name, {"weir": "weir"}, 20_000_000, 1_000_000),
        Row(f"{name}_2", {"weir": "weir2"}, 10_000_000, 500_000, workload=name),
    )]


STORE = {"weir": "weir", "bare": "bare_log", "lmdb": "lmdb", "sqlite": "sqlite"}
# And with a thread of its own that commits, as whoever has other tasks to run meanwhile needs.
HANDED = {**STORE, "bare_handed": "bare_handed"}
STORE_TIMEOUT_S = 150  # the programs give up before


def lifecycle_row(name, n, n_quick):
    """Insert, claim, acknowledge in groups of the size in the name."""
    metrics = tuple(f"{name}_{metric}" for metric in ("rate", "cpu", "bytes", "logged",
                                                    "compacted", "group", "p50", "p99"))
    own = metrics[3:]
    return Row(name, HANDED, n, n_quick, metrics=metrics, timeout_s=STORE_TIMEOUT_S, plain=own,
               some=own, data=True)


def tasks_row(tasks, n, n_quick, suffix=""):
    """Lifecycles of so many tasks with one job each at a time; the bare log with groups as large as
    weir's were, and the disk."""
    name = f"tasks_{tasks}{suffix}"
    metrics = tuple(f"{name}_{metric}" for metric in ("rate", "cpu", "bytes", "logged", "compacted",
                                                    "group", "p50", "p99"))
    return Row(name, {**STORE, "disk": "disk"}, n, n_quick, metrics=metrics,
               timeout_s=STORE_TIMEOUT_S, plain=metrics[3:6], some=metrics,
               follows={"bare": metrics[5]}, data=True)


def own_row(name, n, n_quick, metrics, some=()):
    """What only weir is asked for."""
    return Row(name, {"weir": "weir"}, n, n_quick,
               metrics=tuple(f"{name}_{metric}" for metric in metrics), timeout_s=STORE_TIMEOUT_S,
               some=tuple(f"{name}_{metric}" for metric in some), data=True)


def insert_row(group, n, n_quick, suffix=""):
    """Inserts in groups of this size."""
    name = f"insert_{group}{suffix}"
    rate, p50, p99 = (f"{name}_{metric}" for metric in ("rate", "p50", "p99"))
    return Row(name, STORE, n, n_quick, metrics=(rate, p50, p99), timeout_s=STORE_TIMEOUT_S,
               data=True)


def enqueue_row(producers, n, n_quick, suffix=""):
    """Inserts by so many producers; the bare log has groups as large as weir's were."""
    name = f"enqueue_{producers}{suffix}"
    rate, group, p50, p99 = (f"{name}_{metric}" for metric in ("rate", "group", "p50", "p99"))
    return Row(name, {**STORE, "disk": "disk"}, n, n_quick, metrics=(rate, group, p50, p99),
               timeout_s=STORE_TIMEOUT_S, plain=(group,), some=(rate, group),
               follows={"bare": group}, data=True)


SERVERS = {"weir": "weir_server", "redis": "redis_always", "beanstalkd": "beanstalkd_always",
           "bare": "bare_server"}
# Written before the answer, and synced within a second (beanstalkd: 50 ms); and not even written.
RELAXED = {"weir": "weir_written", "weir_memory": "weir_memory", "redis": "redis_everysec",
           "beanstalkd": "beanstalkd_50", "bare": "bare_server_written"}
GETS = {"weir": "weir_server", "nginx": "nginx", "bare": "bare_server"}


def server_row(name, columns, ms=3_000, **more):
    """A row of servers that are driven for so many milliseconds."""
    metrics = tuple(f"{name}_{metric}" for metric in ("rate", "cpu", "p50", "p99"))
    return Row(name, columns, ms, 300, metrics=metrics, load="server-load", timeout_s=120,
               plain=metrics[2:], data=True, **more)


GROUPS = {
    "runtime": [
        Row("spawn_join", TASKS, 1_000_000, 100_000),
        Row("spawn_yield_join", TASKS, 1_000_000, 100_000),
        Row("spawn_join_2", TASKS_2, 1_000_000, 100_000, workload="spawn_join"),
        Row("spawn_yield_join_2", TASKS_2, 1_000_000, 100_000, workload="spawn_yield_join"),
        Row("yield_1000", TASKS, 10_000_000, 1_000_000),
        Row("yield_2", TASKS, 10_000_000, 1_000_000),
        Row("timer_insert", TIMERS, 1_000_000, 100_000),
        Row("timer_churn_in_order", TIMERS, 1_000_000, 100_000),
        Row("timer_churn", TIMERS, 1_000_000, 100_000),
        Row("timer_new", TIMERS, 1_000_000, 100_000),
        Row(
            "parked_million",
            TASKS,
            1_000_000,
            50_000,
            metrics=("parked_create", "parked_bytes", "parked_cancel"),
            timeout_s=120,
        ),
        Row("sequential", {"weir": "weir", "c": "c"}, 400_000_000, 40_000_000),
    ],
    "echo": [
        echo_row("echo_64", ECHO, 300_000, 20_000, ("cpu",), ("rate", "p50", "p99")),
        echo_row("echo_1000", ECHO, 300_000, 20_000, ("cpu",), ("rate", "p50", "p99")),
        echo_row("calls_64", ECHO, 100_000, 10_000, (), ("all", "wait", "move", "other")),
        echo_row("calls_1000", ECHO, 100_000, 10_000, (), ("all", "wait", "move", "other")),
        echo_row("idle", IDLE, 10_000, 1_000, (), ("bytes",)),
    ],
    "flow": [
        Row("ping_pong", FIBERS, 3_000_000, 100_000),
        Row("channel_1_1", FIBERS, 10_000_000, 1_000_000),
        Row("channel_4_4", FIBERS, 10_000_000, 1_000_000),
        Row("channel_1_1_2", CHANNEL_2, 5_000_000, 200_000, workload="channel_1_1",
            ours=("weir", "weir_apart")),
        Row("channel_4_4_2", CHANNEL_2, 5_000_000, 200_000, workload="channel_4_4",
            ours=("weir", "weir_apart")),
        Row("select_4_0", BARE, 3_000_000, 100_000),
        Row("select_4_128", BARE, 5_000_000, 200_000),
        Row("mutex", FIBERS, 20_000_000, 1_000_000),
        Row("mutex_1000", FIBERS, 3_000_000, 100_000),
        Row("mutex_checked", {"weir": "weir"}, 3_000_000, 100_000),
        Row("mutex_inside_checked", {"weir": "weir"}, 1_000_000, 100_000),
        Row("pool", {**POOLS, "rayon": "rayon", "pthread": "c"}, 300_000, 64_000),
        Row("pipeline_item", FLOW, 1_000_000, 100_000),
        Row("pipeline_pool", POOLS, 200_000, 20_000),
        Row(
            "fan_out",
            {**FLOW, "pthread": "c", "weir_2": "weir2", "go_2": "go2", "tokio_2": "tokio2",
             "pthread_2": "c2"},
            40_000,
            2_000,
            scales={"weir": "weir_2", "go": "go_2", "tokio": "tokio_2", "pthread": "pthread_2"},
        ),
    ],
    "store": [
        Row("sync", {"disk": "disk"}, 5_000, 500, metrics=("sync_p50", "sync_p99"),
            plain=("sync_p50", "sync_p99"), timeout_s=STORE_TIMEOUT_S, data=True),
        lifecycle_row("lifecycle_1", 3_000, 200),
        lifecycle_row("lifecycle_16", 40_000, 3_200),
        lifecycle_row("lifecycle_128", 200_000, 12_800),
        lifecycle_row("lifecycle_1024", 400_000, 51_200),
        lifecycle_row("lifecycle_1_1k", 3_000, 200),
        lifecycle_row("lifecycle_16_1k", 40_000, 3_200),
        lifecycle_row("lifecycle_128_1k", 100_000, 12_800),
        lifecycle_row("lifecycle_1024_1k", 200_000, 51_200),
        tasks_row(1, 3_000, 200),
        tasks_row(16, 40_000, 3_200),
        tasks_row(64, 100_000, 6_400),
        tasks_row(256, 200_000, 25_600),
        tasks_row(1, 3_000, 200, "_1k"),
        tasks_row(16, 40_000, 3_200, "_1k"),
        tasks_row(64, 100_000, 6_400, "_1k"),
        tasks_row(256, 100_000, 25_600, "_1k"),
        enqueue_row(1, 5_000, 500),
        enqueue_row(16, 80_000, 3_200),
        enqueue_row(64, 200_000, 12_800),
        enqueue_row(256, 500_000, 51_200),
        enqueue_row(1, 5_000, 500, "_1k"),
        enqueue_row(16, 80_000, 3_200, "_1k"),
        enqueue_row(64, 100_000, 12_800, "_1k"),
        enqueue_row(256, 100_000, 51_200, "_1k"),
        insert_row(1, 3_000, 200),
        insert_row(16, 40_000, 3_200),
        insert_row(128, 200_000, 12_800),
        insert_row(1024, 400_000, 51_200),
        insert_row(1, 3_000, 200, "_1k"),
        insert_row(16, 40_000, 3_200, "_1k"),
        insert_row(128, 100_000, 12_800, "_1k"),
        insert_row(1024, 100_000, 51_200, "_1k"),
        own_row("open", 1_000_000, 50_000, ("time", "memory")),
        own_row("claim", 1_000_000, 50_000, ("none", "blocked", "ratio")),
        # Too short a run sees no compaction.
        own_row("compaction", 400_000, 400_000,
                ("rate", "copied", "part", "p99", "p99_without", "p99_ratio"),
                some=("p99", "p99_without", "p99_ratio")),
    ],
    "server": [
        *(server_row(f"{what}_{connections}", SERVERS)
          for what in ("enqueue", "lifecycle") for connections in (1, 16, 64)),
        *(server_row(f"{what}_64_apart", SERVERS) for what in ("enqueue", "lifecycle")),
        server_row("enqueue_64_relaxed", RELAXED, ours=("weir", "weir_memory")),
        server_row("get_64", GETS, 4_000),
    ],
    "resilience": policy_rows(),
    "sim": [
        Row(name, {"weir": "weir"}, 500_000, 20_000, metrics=(name, f"{name}_steps",
                                                              f"{name}_distinct"))
        for name in ("sim_random", "sim_pct")
    ],
}
