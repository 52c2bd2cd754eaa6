"""What is measured: the peers, and the rows of each group.

A new group is a new entry of GROUPS; a new peer a new entry of PEERS and, if it
is a program of its own, of PROGRAMS.
"""

from typing import Dict, NamedTuple, Optional, Tuple


class Program(NamedTuple):
    """How a peer's program is built, and what it needs on PATH for that.

    {source} is bench/, {out} the folder for what is built, {cc} the C compiler.
    """

    path: str
    needs: Tuple[str, ...] = ()
    command: Tuple[str, ...] = ()  # empty: the project's own build makes it
    cwd: str = "{source}"
    env: Dict[str, str] = {}
    pkg_config: Optional[str] = None  # a library whose flags the command gets
    install: str = ""  # Debian packages, for the notice


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
        command=("{cc}", *C_FLAGS, "-o", "{out}/bench-c", "peers/c/main.c"),
        install="gcc",
    ),
}


class Peer(NamedTuple):
    program: str
    env: Dict[str, str] = {}


# A 2 at the end of a name means two workers; everything else runs on one.
PEERS = {
    "weir": Peer("weir", {"BENCH_WORKERS": "1"}),
    "weir2": Peer("weir", {"BENCH_WORKERS": "2"}),
    "go": Peer("go", {"GOMAXPROCS": "1"}),
    "go2": Peer("go", {"GOMAXPROCS": "2"}),
    "tokio": Peer("tokio", {"BENCH_WORKERS": "1"}),
    "tokio2": Peer("tokio", {"BENCH_WORKERS": "2"}),
    "libuv": Peer("libuv"),
    "c": Peer("c"),
}


class Row(NamedTuple):
    """One workload, run by its peers in turn.

    `columns` maps the name printed to the peer that is run. `metrics` are the
    workload names that the program prints, when they differ from its argument.
    """

    name: str
    columns: Dict[str, str]
    n: int
    n_quick: int
    workload: str = ""  # the program's argument; default: the name
    metrics: Tuple[str, ...] = ()
    timeout_s: int = 60

    @property
    def argument(self):
        return self.workload or self.name

    def printed(self):
        """(name of the output line, name in the program's output) pairs."""
        if self.metrics:
            return [(metric, metric) for metric in self.metrics]
        return [(self.name, self.argument)]


TASKS = {"weir": "weir", "go": "go", "tokio": "tokio"}
TASKS_2 = {"weir": "weir2", "go": "go2", "tokio": "tokio2"}
TIMERS = {**TASKS, "libuv": "libuv"}

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
}
