"""weir-gdb.py - the tasks of weir in gdb: of a live process, and of a core file.

    (gdb) source weir-gdb.py
    (gdb) help weir

Nothing is called and nothing is written in the process: all of it is read from memory. The
backtrace of a parked task comes from an unwinder (class Parked) that presents the place where
the task was left as the caller of the selected thread's innermost frame, so it works on core
files too, whose registers cannot be set.

It needs gdb 12 or later with Python, and the debug information of weir (-g, as it is built by
default). It belongs to the weir of the same release: FIELDS, WORDS and WAITS below are all that
it knows about src/rt.
"""
import bisect
import re
import struct
import time

import gdb
import gdb.unwinder

# ---- What it knows about src/rt ----

# For each kind of object, what we call a member, and the path to it from the object. Pointers
# on the way are followed.
FIELDS = {
    "runtime": {
        "root": "root", "workers": "workers", "worker_count": "worker_count",
        "kernel": "kernel.name", "clock": "kernel.now_ns",
    },
    "worker": {"index": "index", "current": "current", "now_ns": "now_ns"},
    "task": {
        "id": "id", "name": "name", "state": "state", "scope": "scope", "worker": "home",
        "fn": "fn", "arg": "arg", "arg_bytes": "arg_bytes", "result": "result",
        "signals": "attention", "cancel_why": "cancel_why", "restart": "restart",
        "wait_kind": "wait.kind", "wait_object": "wait.object", "since_ns": "wait.since_ns",
        "top": "top", "base": "base", "sibling": "sibling",
        "stack": "stack", "low": "stack.low", "high": "stack.top",
        "size_class": "stack.size_class", "size_classes": "home.runtime.stacks.classes",
        "sp": "context.sp", "fp": "context.fp", "pc": "context.pc",
    },
    "scope": {
        "name": "name", "where": "where", "opener": "opener", "state": "state",
        "children": "children", "ended": "ended", "spawners": "spawners", "live": "live",
        "belongings": "belongings", "max_tasks": "max_tasks", "on_failure": "on_failure",
        "overflow": "overflow", "failures": "failures_total", "first_error": "first_error",
        "own": "block.own", "signals": "children_signals", "cancel_why": "cancel_why",
        "cancel_name": "cancel_name",
    },
    "block": {"outer": "outer", "kind": "kind", "deadline_ns": "deadline_ns"},
    "timed_block": {"where": "where", "reason": "reason"},
    "list": {"next": "next"},
    "size_class": {"bytes": "bytes"},
    "restart": {"total": "total"},
    "wait_kind": {"name": "name", "describe": "describe"},
}

# Enumerators and the words for them.
WORDS = {
    "enum task_state": {
        "TASK_FREE": "ending", "TASK_NEW": "not started", "TASK_READY": "ready",
        "TASK_RUNNING": "running", "TASK_PARKED": "parked", "TASK_BACKOFF": "restarts later",
        "TASK_ENDED": "ending",
    },
    "enum block_kind": {
        "BLOCK_TASK": "task", "BLOCK_SCOPE": "scope", "BLOCK_DEADLINE": "deadline",
        "BLOCK_SHIELD": "shield", "BLOCK_NO_DEADLINE": "no deadline",
    },
    "enum scope_state": {
        "SCOPE_FREE": "free", "SCOPE_OPEN": "open", "SCOPE_CLOSING": "closing",
        "SCOPE_CLOSED": "closed",
    },
    "enum weir_failure_policy": {
        "WEIR_FAILURE_UNSET": "?", "WEIR_FAIL_FAST": "fail fast", "WEIR_COLLECT": "collect",
        "WEIR_SUPERVISE": "supervise",
    },
}
SIGNAL_CANCELLED, SIGNAL_EXPIRED, SIGNAL_STOPPING = 1, 2, 4

# What a wait is for, by the function of the library that says it: the type of the object, and
# a sentence made of it.
WAITS = {
    "pollable_describe": ("struct pollable", lambda o, now: "descriptor %d" % o["fd"]),
    "sleep_describe": ("struct sleep_wait", lambda o, now: "%s left" % span(
        int(o["timer"]["wheel"]["at_ns"]) - now)),
    "spawn_describe": ("struct spawn_wait", lambda o, now: "room in scope '%s' (max_tasks %d)" % (
        text(o["scope"]["name"]), o["scope"]["max_tasks"])),
    "join_describe": ("struct join_wait", lambda o, now: "task '%s' #%d" % (
        text(o["target"]["name"]), o["target"]["id"]) if o["target"] else "a task that has ended"),
    "call_describe": ("struct blocking_call", lambda o, now: "%s %s" % (
        text(o["name"]), text(o["detail"]))),
    "close_describe": ("struct weir_scope", lambda o, now: "scope '%s', %d task%s alive" % (
        text(o["name"]), o["live"], plural(o["live"]))),
}

# The function and the file that tell the library from another program with the same names.
ENTRY = "weir_run_sized"
RUNTIMES, RUNTIMES_FILE = "runtimes", "rt/open_runtimes.c"
CLOCK = "real_now_ns"  # CLOCK_MONOTONIC

# Stack pointer, frame pointer and program counter, as gdb calls them.
REGISTERS = {"i386:x86-64": ("rsp", "rbp", "rip"), "aarch64": ("sp", "x29", "pc")}

NEVER_NS = 2 ** 63 - 1
SIZE_MAX = 2 ** 64 - 1
TASKS_SHOWN_MAX = 1000   # by `weir tasks` without "all"
BLOCKS_MAX = 1000        # of one task
LIST_MAX = 20000000      # a list that is longer is damaged
FRAMES_LOOKED_AT = 64    # of a thread, for the task that it runs


# ---- Reading ----

def get(kind, value, name):
    """The member of an object (or of what a pointer leads to) by our name for it."""
    path = FIELDS[kind][name]
    for part in path.split("."):
        try:
            value = value[part]
        except gdb.MemoryError:
            raise
        except (gdb.error, ValueError):
            raise gdb.GdbError("weir: this script does not fit the weir in the process: %s has no "
                               "member '%s'. Use the one of the release that the program was "
                               "built with." % (kind, path)) from None
    return value


def text(value):
    """A C string, or a character array; what cannot be read is a question mark."""
    try:
        if value.type.strip_typedefs().code == gdb.TYPE_CODE_PTR and not value:
            return ""
        # Control characters must not look like lines of ours.
        return re.sub(r"[\x00-\x1f\x7f]", "?", value.string(errors="replace"))
    except gdb.error:
        return "?"


def number(value):
    return int(value)


def plural(count):
    return "" if int(count) == 1 else "s"


def span(ns):
    ms = max(int(ns), 0) // 1000000
    return "%d ms" % ms if ms < 10000 else "%d.%d s" % (ms // 1000, ms // 100 % 10)


def list_nodes(head):
    """The nodes of an intrusive list; ends when it is damaged."""
    end = int(head.address)
    node = get("list", head, "next")
    for _ in range(LIST_MAX):
        if int(node) in (0, end):
            return
        yield node
        node = get("list", node, "next")


def container(node, type_, member):
    offset = next(f.bitpos // 8 for f in type_.fields() if f.name == member)
    return gdb.Value(int(node) - offset).cast(type_.pointer())


def plain(type_):
    """Without typedefs, const and _Atomic."""
    return type_.strip_typedefs().unqualified()


def function_at(address):
    block = gdb.block_for_pc(int(address)) if int(address) else None
    while block and not block.function:
        block = block.superblock
    return block.function if block else None


# ---- The weir of the process ----

class Weir:
    """What is the same for all commands while the process stands still."""

    def __init__(self):
        if not gdb.selected_inferior().threads():
            raise gdb.GdbError("weir: there is no process: run the program, attach to it, or open "
                               "a core file (gdb PROGRAM CORE)")
        symbols = [s for s in gdb.lookup_static_symbols(RUNTIMES)
                   if s.symtab.fullname().endswith(RUNTIMES_FILE)]
        if not symbols:
            raise gdb.GdbError(why_not_there())
        self.block = symbols[0].symtab.static_block()
        self.runtimes = []
        for symbol in symbols:
            array = symbol.value()
            low, high = array.type.range()
            try:
                found = [array[i] for i in range(low, high + 1)]
                self.runtimes += [r.cast(plain(r.type)) for r in found if r]
            except gdb.MemoryError:
                raise gdb.GdbError("weir: the memory of weir cannot be read: the core file does "
                                   "not hold it, or is of another program") from None
        if not self.runtimes:
            raise gdb.GdbError("weir: no runtime is open in this process: weir_run has not begun, "
                               "or has ended")
        first = self.runtimes[0]
        self.scope_type = plain(get("runtime", first, "root").type).target()
        self.scope_type = plain(self.scope_type)
        worker = get("runtime", first, "workers")
        self.task_type = plain(plain(get("worker", worker, "current").type).target())
        self.words = {}
        self.nows = {}
        self.threads = None

    def lookup(self, name):
        return gdb.lookup_type(name, self.block)

    def word(self, enum, value):
        if enum not in self.words:
            try:
                fields = self.lookup(enum).fields()
            except gdb.error:
                raise gdb.GdbError("weir: this script does not fit the weir in the process: it "
                                   "has no '%s'" % enum) from None
            known = WORDS[enum]
            self.words[enum] = {f.enumval: known.get(f.name, f.name) for f in fields}
        return self.words[enum].get(int(value), "? (%d)" % int(value))

    # ---- Time ----

    def now_ns(self, runtime):
        """The runtime's clock: of a live process now, of a core when a worker last looked."""
        key = int(runtime)
        if key not in self.nows:
            looked = max(number(get("worker", w, "now_ns")) for w in self.workers(runtime))
            self.nows[key] = max(looked, self.clock_ns(runtime))
        return self.nows[key]

    @staticmethod
    def clock_ns(runtime):
        connection = gdb.selected_inferior().connection
        function = function_at(get("runtime", runtime, "clock"))
        if connection and connection.type == "native" and function and function.name == CLOCK:
            return time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        return 0

    # ---- Workers, scopes, tasks ----

    @staticmethod
    def workers(runtime):
        array = get("runtime", runtime, "workers")
        return [array[i] for i in range(number(get("runtime", runtime, "worker_count")))]

    def children(self, scope):
        member = FIELDS["task"]["sibling"]
        for node in list_nodes(get("scope", scope, "children")):
            yield container(node, self.task_type, member)

    def blocks(self, task):
        """The blocks that a task is in, outermost first, without the task's own."""
        base = int(get("task", task, "base").address)
        block = get("task", task, "top")
        found = []
        while int(block) not in (0, base) and len(found) < BLOCKS_MAX:
            found.append(block)
            # Of a task whose function has returned only the innermost is sure to be there.
            if self.state(task) == "running" and not get("task", task, "stack"):
                break
            block = get("block", block, "outer")
        found.reverse()
        return found

    def open_scopes(self, task):
        for block in self.blocks(task):
            if self.word("enum block_kind", get("block", block, "kind")) == "scope":
                yield block.cast(self.scope_type.pointer())  # the block is its first member

    def tree(self, runtime):
        """(depth, scope, None) and (depth, scope, task), parents before what is below them."""
        levels = [iter([get("runtime", runtime, "root")])]
        scopes = [None]
        seen = set()
        while levels:
            item = next(levels[-1], None)
            if item is None:
                levels.pop()
                scopes.pop()
                continue
            if int(item) in seen:  # damaged, or changed while it was walked
                continue
            seen.add(int(item))
            if scopes[-1] is None or isinstance(scopes[-1], Opened):
                yield len(levels) - 1, item, None
                levels.append(self.children(item))
                scopes.append(item)
            else:
                yield len(levels) - 1, scopes[-1], item
                levels.append(self.open_scopes(item))
                scopes.append(Opened())

    def tasks(self):
        for runtime in self.runtimes:
            for _, _, task in self.tree(runtime):
                if task is not None:
                    yield runtime, task

    def path(self, scope):
        names = []
        while scope and len(names) < BLOCKS_MAX:
            names.append(text(get("scope", scope, "name")))
            opener = get("scope", scope, "opener")
            if not opener:
                break
            scope = get("task", opener, "scope")
        return "/".join(reversed(names))

    def state(self, task):
        return self.word("enum task_state", get("task", task, "state"))

    def find(self, wanted):
        """The task that a command's argument means."""
        if re.fullmatch(r"0x[0-9a-fA-F]+", wanted):
            matches = [(r, t) for r, t in self.tasks() if int(t) == int(wanted, 16)]
        elif re.fullmatch(r"#?[0-9]+", wanted):
            id_ = int(wanted.lstrip("#"))
            matches = [(r, t) for r, t in self.tasks() if number(get("task", t, "id")) == id_]
        else:
            matches = [(r, t) for r, t in self.tasks() if text(get("task", t, "name")) == wanted]
        if not matches:
            raise gdb.GdbError("weir: there is no task '%s' (weir tasks lists them)" % wanted)
        if len(matches) > 1:
            ids = ["#%d" % number(get("task", t, "id")) for _, t in matches]
            more = " and %d more" % (len(ids) - 20) if len(ids) > 20 else ""
            raise gdb.GdbError("weir: there are %d tasks '%s': say which (%s%s)" % (
                len(ids), wanted, ", ".join(ids[:20]), more))
        return matches[0]

    # ---- Threads ----

    def thread_of(self, task):
        """The thread that is on the task's stack, or None. It is looked for there and not by
        the task's state, for a worker may be stopped half way through a switch."""
        if self.threads is None:
            self.threads = sorted(stack_pointers(), key=lambda pair: pair[0])
        if not get("task", task, "stack"):
            return None
        low, high = number(get("task", task, "low")), number(get("task", task, "high"))
        at = bisect.bisect_left(self.threads, low, key=lambda pair: pair[0])
        if at < len(self.threads) and self.threads[at][0] <= high:
            return self.threads[at][1]
        return None

    def has_left(self, task):
        """Whether the task has a place to go on at."""
        return bool(get("task", task, "stack")) and self.state(task) in (
            "parked", "ready", "running")

    # ---- Words ----

    def wait(self, runtime, task):
        kind = get("task", task, "wait_kind")
        if not kind:
            return "?"
        words = text(get("wait_kind", kind, "name"))
        function = function_at(get("wait_kind", kind, "describe"))
        if function and function.name in WAITS:
            type_name, sentence = WAITS[function.name]
            try:
                type_ = gdb.lookup_type(type_name, function.symtab.static_block())
                thing = get("task", task, "wait_object").cast(type_.pointer())
                words += ": " + sentence(thing, self.now_ns(runtime))
            except gdb.error:
                pass  # what it waits for is told as far as it can be
        return words

    @staticmethod
    def signals(bits):
        bits = int(bits)
        words = ["cancelled"] if bits & SIGNAL_CANCELLED else []
        words += ["timed out"] if bits & SIGNAL_EXPIRED else []
        return words + (["stopping"] if bits & SIGNAL_STOPPING else [])

    def age(self, runtime, task):
        return span(self.now_ns(runtime) - number(get("task", task, "since_ns")))

    def stack_use(self, task):
        if not get("task", task, "stack"):
            return ""
        # What was promised: a little more is mapped, so that stacks begin at different lines.
        size_class = get("task", task, "size_classes")[int(get("task", task, "size_class"))]
        size = number(get("size_class", size_class, "bytes")) // 1024
        if self.thread_of(task):
            return "%d KiB" % size
        used = number(get("task", task, "high")) - number(get("task", task, "sp"))
        return "%.1f of %d KiB" % (used / 1024, size)

    def doing(self, runtime, task):
        """What a task does, as the last column of the table."""
        state = self.state(task)
        thread = self.thread_of(task)
        words = []
        if state == "parked":
            words.append(self.wait(runtime, task))
        elif state == "not started":
            function = function_at(get("task", task, "fn"))
            words.append("will run %s" % (function.name if function else "?"))
        elif state == "restarts later":
            words.append("failed with %d" % number(get("task", task, "result")))
        if thread:
            words.append("on thread %d%s" % (thread.num, "" if state == "running" else
                                             ", which is switching"))
        return "; ".join(words + self.signals(get("task", task, "signals")))

    def sentence(self, runtime, task, age=""):
        """The state of a task and what it does, in one."""
        state, doing = self.state(task), self.doing(runtime, task)
        if state == "parked":
            return "parked%s in %s" % (age, doing)
        return state + (", " + doing if doing else "")

    def headline(self, runtime, task):
        return "task '%s' #%d (%s): %s" % (
            text(get("task", task, "name")), number(get("task", task, "id")),
            self.path(get("task", task, "scope")),
            self.sentence(runtime, task, " " + self.age(runtime, task)))


class Opened:
    """A level of the tree that has the scopes which a task has open."""


def why_not_there():
    def known(name):
        try:
            gdb.parse_and_eval("&" + name)
            return True
        except gdb.error:
            return False
    if known(ENTRY):
        return ("weir: the weir of this process has no debug information: build it with -g (the "
                "default), or give gdb its symbols (symbol-file, add-symbol-file)")
    if known("main"):
        return "weir: this program does not use weir (there is no symbol %s in it)" % ENTRY
    return ("weir: this program has no symbols: it was stripped. Give gdb the unstripped file "
            "(symbol-file), or its separate debug information")


def stack_pointers():
    """(address, thread) for the frames of every thread: a signal handler may be on a stack of
    its own, above the frames of the task that it interrupted."""
    found = []
    with Selection():
        for thread in gdb.selected_inferior().threads():
            if not thread.is_valid():
                continue
            thread.switch()
            try:
                frame = gdb.newest_frame()
                for _ in range(FRAMES_LOOKED_AT):
                    found.append((int(frame.read_register("sp")), thread))
                    frame = frame.older()
                    if frame is None:
                        break
            except gdb.error:
                pass  # as far as it can be followed
    return found


class Selection:
    """Puts the selected thread and frame back."""

    def __enter__(self):
        self.thread = gdb.selected_thread()
        try:
            self.level = gdb.selected_frame().level()
        except gdb.error:
            self.level = 0
        return self

    def __exit__(self, *_):
        if self.thread and self.thread.is_valid():
            self.thread.switch()
            try:
                gdb.execute("select-frame %d" % self.level, to_string=True)
            except gdb.error:
                pass


# ---- Backtraces of parked tasks ----

class FrameId:
    def __init__(self, sp, pc):
        self.sp = sp
        self.pc = pc


class Parked(gdb.unwinder.Unwinder):
    """While it is switched on, the innermost frame of one thread was called from where a task
    was left: its stack pointer, frame pointer and program counter. The frames behind it are
    unwound by what the compiler has said about them. Other registers are lost in a switch."""

    def __init__(self):
        super().__init__("weir-parked")
        self.enabled = False

    def show(self, task, names):
        frame = gdb.newest_frame()
        self.names = names
        self.thread = gdb.selected_thread().ptid
        self.real = int(frame.read_register("sp")), int(frame.read_register("pc"))
        self.parked = [number(get("task", task, name)) for name in ("sp", "fp", "pc")]
        self.enabled = True
        gdb.invalidate_cached_frames()

    def hide(self):
        if self.enabled:
            self.enabled = False
            gdb.invalidate_cached_frames()

    def __call__(self, frame):
        thread = gdb.selected_thread()
        if not self.enabled or thread is None or thread.ptid != self.thread:
            return None
        if (int(frame.read_register("sp")), int(frame.read_register("pc"))) != self.real:
            return None
        # Below the frames of the task, as the innermost of a stack would be.
        info = frame.create_unwind_info(FrameId(gdb.Value(self.parked[0]),
                                                gdb.Value(self.parked[2])))
        for name, value in zip(self.names, self.parked):
            type_ = frame.read_register(name).type
            unsigned = gdb.Value(value).cast(gdb.lookup_type("unsigned long"))
            info.add_saved_register(name, unsigned.cast(type_))
        return info

    def first_level(self):
        """The level of the task's innermost frame: those of the thread are before it."""
        frame = gdb.newest_frame()
        while frame is not None:
            at = int(frame.read_register("sp")), int(frame.read_register("pc"))
            if at == (self.parked[0], self.parked[2]):
                return frame.level()
            frame = frame.older()
        raise gdb.GdbError("weir: the frames of this task cannot be read")


parked = Parked()
gdb.unwinder.register_unwinder(None, parked, replace=True)


def registers():
    name = gdb.selected_inferior().architecture().name()
    if name not in REGISTERS:
        raise gdb.GdbError("weir: there is no task switch for %s" % name)
    return REGISTERS[name]


def without_frames(output, count):
    """A backtrace from frame `count` on, with its numbers from 0 on."""
    kept = []
    keeping = False
    for line in output.splitlines():
        match = re.match(r"#(\d+)(\s+)(.*)", line)
        if match:
            level = int(match.group(1))
            keeping = level >= count
            line = "%-4s%s" % ("#%d" % (level - count), match.group(3))
        elif not line.startswith(" "):
            keeping = keeping or line.startswith("Backtrace stopped")
        if keeping:
            kept.append(line)
    return "\n".join(kept)


def backtrace(weir, task, options):
    """The backtrace as gdb prints it."""
    thread = weir.thread_of(task)
    with Selection():
        if thread:
            thread.switch()
            return gdb.execute("backtrace " + options, to_string=True).rstrip("\n")
        try:
            parked.show(task, registers())
            skip = parked.first_level()
            # A number of frames counts from the thread's own.
            options = re.sub(r"(?<!\S)\d+(?!\S)", lambda m: str(int(m.group(0)) + skip), options)
            return without_frames(gdb.execute("backtrace " + options, to_string=True), skip)
        finally:
            parked.hide()


# ---- Commands ----

def guarded(function):
    """What cannot be read is a sentence, not a traceback."""
    def invoke(self, argument, from_tty):
        try:
            function(self, argument.strip(), from_tty)
        except gdb.MemoryError as error:
            raise gdb.GdbError("weir: %s (the process was stopped in the middle of a change, or "
                               "its memory is damaged or not in the core file)" % error) from None
    invoke.__doc__ = function.__doc__
    return invoke


class WeirPrefix(gdb.Command):
    """The tasks and scopes of a program that uses weir, live or in a core file."""

    def __init__(self):
        super().__init__("weir", gdb.COMMAND_STACK, gdb.COMPLETE_NONE, True)

    def invoke(self, argument, from_tty):
        raise gdb.GdbError("weir: which command? tasks, bt, scopes, task, enter, leave, core "
                           "(help weir)" if not argument else
                           "weir: there is no command '%s' (help weir)" % argument)


class WeirTasks(gdb.Command):
    """List the tasks: weir tasks [all]
Id, name, the worker it runs on, its state, for how long it has been parked, the use of its
stack, its scopes, and what it waits for. The first 1000 of a runtime; with "all", all of them."""

    def __init__(self):
        super().__init__("weir tasks", gdb.COMMAND_STACK, gdb.COMPLETE_NONE)

    @guarded
    def invoke(self, argument, from_tty):
        if argument not in ("", "all"):
            raise gdb.GdbError("usage: weir tasks [all]")
        weir = Weir()
        for runtime in weir.runtimes:
            self.show(weir, runtime, argument == "all")

    @staticmethod
    def show(weir, runtime, everything):
        count = number(get("runtime", runtime, "worker_count"))
        print("runtime '%s': %d worker%s, kernel %s%s" % (
            text(get("scope", get("runtime", runtime, "root"), "name")), count, plural(count),
            text(get("runtime", runtime, "kernel")),
            "" if weir.clock_ns(runtime) else ", times as of a worker's last look at the clock"))
        rows = [("id", "name", "worker", "state", "for", "stack", "scope", "waits for")]
        states = {}
        for _, _, task in weir.tree(runtime):
            if task is None:
                continue
            if len(rows) > TASKS_SHOWN_MAX and not everything:
                print("(the first %d tasks; `weir tasks all` shows all)" % TASKS_SHOWN_MAX)
                break
            state = weir.state(task)
            states[state] = states.get(state, 0) + 1
            worker = get("task", task, "worker")
            rows.append((
                str(number(get("task", task, "id"))), text(get("task", task, "name")),
                str(number(get("worker", worker, "index"))) if worker else "-", state,
                weir.age(runtime, task) if state == "parked" else "", weir.stack_use(task),
                weir.path(get("task", task, "scope")), weir.doing(runtime, task)))
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        for row in rows:
            cells = [row[0].rjust(widths[0])] + [c.ljust(w) for c, w in zip(row[1:], widths[1:])]
            print("  ".join(cells).rstrip())
        print("%d task%s: %s" % (len(rows) - 1, plural(len(rows) - 1), ", ".join(
            "%d %s" % (n, state) for state, n in sorted(states.items())) or "none"))


class WeirBacktrace(gdb.Command):
    """Show where a task is: weir bt TASK|all [OPTION]... [COUNT]
TASK is an id (7 or #7), a name that only one task has, or an address (0x...). Options and COUNT
are those of gdb's backtrace (-full, -frame-arguments all, 5). A task that runs is shown by its
thread."""

    def __init__(self):
        super().__init__("weir bt", gdb.COMMAND_STACK, gdb.COMPLETE_NONE)

    @guarded
    def invoke(self, argument, from_tty):
        which, _, options = argument.partition(" ")
        if not which:
            raise gdb.GdbError("usage: weir bt TASK|all [OPTION]... [COUNT]")
        leave()
        weir = Weir()
        chosen = weir.tasks() if which == "all" else [weir.find(which)]
        for runtime, task in chosen:
            print(weir.headline(runtime, task))
            if weir.has_left(task):
                print(backtrace(weir, task, options))
            if which == "all":
                print()


class WeirScopes(gdb.Command):
    """Show the tree of scopes and tasks: weir scopes
A scope with where it was opened, what a failure does, its tasks and its bound; below it its
tasks, each with the scopes that it has open."""

    def __init__(self):
        super().__init__("weir scopes", gdb.COMMAND_STACK, gdb.COMPLETE_NONE)

    @guarded
    def invoke(self, argument, from_tty):
        if argument:
            raise gdb.GdbError("usage: weir scopes")
        weir = Weir()
        for runtime in weir.runtimes:
            for depth, scope, task in weir.tree(runtime):
                words = self.scope(weir, scope) if task is None else self.task(weir, runtime, task)
                print("  " * depth + words)

    @staticmethod
    def task(weir, runtime, task):
        return "task '%s' #%d: %s" % (text(get("task", task, "name")), number(
            get("task", task, "id")), weir.sentence(runtime, task))

    @staticmethod
    def scope(weir, scope):
        words = "scope '%s'" % text(get("scope", scope, "name"))
        if get("scope", scope, "opener"):
            words += " opened at %s" % text(get("scope", scope, "where"))
        live = number(get("scope", scope, "live"))
        most = number(get("scope", scope, "max_tasks"))
        words += ": %s, %d task%s (max %s)" % (
            weir.word("enum weir_failure_policy", get("scope", scope, "on_failure")), live,
            plural(live), "unlimited" if most == SIZE_MAX else most)
        for name, sentence in (("spawners", "waiting to spawn"), ("ended", "ended and not joined"),
                               ("belongings", "timers and the like")):
            count = sum(1 for _ in list_nodes(get("scope", scope, name)))
            words += ", %d %s" % (count, sentence) if count else ""
        failures = number(get("scope", scope, "failures"))
        if failures:
            words += ", %d failure%s (first %d)" % (
                failures, plural(failures), number(get("scope", scope, "first_error")))
        state = weir.word("enum scope_state", get("scope", scope, "state"))
        words += ", " + state if state != "open" else ""
        for signal in weir.signals(get("scope", scope, "signals")):
            words += ", " + signal
        if number(get("scope", scope, "own")) & (SIGNAL_CANCELLED | SIGNAL_EXPIRED):
            failed = text(get("scope", scope, "cancel_name"))
            words += ": " + ("task '%s' failed" % failed if failed else
                             text(get("scope", scope, "cancel_why")))
        return words


class WeirTask(gdb.Command):
    """Show all about one task: weir task TASK"""

    def __init__(self):
        super().__init__("weir task", gdb.COMMAND_STACK, gdb.COMPLETE_NONE)

    @guarded
    def invoke(self, argument, from_tty):
        if not argument or " " in argument:
            raise gdb.GdbError("usage: weir task TASK")
        weir = Weir()
        runtime, task = weir.find(argument)
        print(weir.headline(runtime, task))
        function = function_at(get("task", task, "fn"))
        if function:
            print("  function  %s at %s:%d" % (function.name, function.symtab.filename,
                                               function.line))
        print("  argument  %d bytes at %#x" % (number(get("task", task, "arg_bytes")),
                                               number(get("task", task, "arg"))))
        print("  memory    (struct task *) %#x" % int(task))
        worker = get("task", task, "worker")
        if worker:
            print("  worker    %d" % number(get("worker", worker, "index")))
        self.stack(weir, task)
        restart = get("task", task, "restart")
        if restart and number(get("restart", restart, "total")):
            print("  restarts  %d" % number(get("restart", restart, "total")))
        if get("task", task, "cancel_why"):
            print("  cancelled %s" % text(get("task", task, "cancel_why")))
        for block in weir.blocks(task):
            print("  in        " + self.block(weir, runtime, block))

    @staticmethod
    def stack(weir, task):
        if not get("task", task, "stack"):
            return
        low, high = number(get("task", task, "low")), number(get("task", task, "high"))
        print("  stack     %#x to %#x, %s" % (low, high, weir.stack_use(task)))
        if not weir.thread_of(task):
            pc = number(get("task", task, "pc"))
            function = function_at(pc - 1)
            print("  goes on   at %#x%s, stack pointer %#x" % (
                pc, " in " + function.name if function else "", number(get("task", task, "sp"))))

    @staticmethod
    def block(weir, runtime, block):
        kind = weir.word("enum block_kind", get("block", block, "kind"))
        if kind == "scope":
            scope = block.cast(weir.scope_type.pointer())
            return "scope '%s' opened at %s" % (text(get("scope", scope, "name")),
                                                text(get("scope", scope, "where")))
        words = kind
        deadline_ns = number(get("block", block, "deadline_ns"))
        if kind != "no deadline" and deadline_ns != NEVER_NS:
            left_ns = deadline_ns - weir.now_ns(runtime)
            words += ": %s left" % span(left_ns) if left_ns > 0 else \
                ": passed %s ago" % span(-left_ns)
        try:
            timed = block.cast(weir.lookup("struct timed_block").pointer())
        except gdb.error:
            return words
        if kind == "no deadline":
            words += ': "%s"' % text(get("timed_block", timed, "reason"))
        return words + " (%s)" % text(get("timed_block", timed, "where"))


class WeirEnter(gdb.Command):
    """Go into a parked task: weir enter TASK
Its frames take the place of the selected thread's, so that up, down, frame, info locals and
print work in them. It lasts until `weir leave` or until the program goes on; nothing of the
process is changed. Do not use step, finish or until meanwhile: they are about threads."""

    def __init__(self):
        super().__init__("weir enter", gdb.COMMAND_STACK, gdb.COMPLETE_NONE)

    @guarded
    def invoke(self, argument, from_tty):
        if not argument or " " in argument:
            raise gdb.GdbError("usage: weir enter TASK")
        leave()
        weir = Weir()
        runtime, task = weir.find(argument)
        thread = weir.thread_of(task)
        if not weir.has_left(task):
            raise gdb.GdbError("weir: task '%s' has no frames: it is %s" % (argument,
                                                                            weir.state(task)))
        if thread:
            thread.switch()
            print("it is on thread %d, which is selected now" % thread.num)
            return
        parked.show(task, registers())
        print(weir.headline(runtime, task))
        gdb.execute("frame %d" % parked.first_level())


class WeirLeave(gdb.Command):
    """Back to the thread: weir leave"""

    def __init__(self):
        super().__init__("weir leave", gdb.COMMAND_STACK, gdb.COMPLETE_NONE)

    @guarded
    def invoke(self, argument, from_tty):
        if argument:
            raise gdb.GdbError("usage: weir leave")
        leave()


# ---- Core files ----

class CoreFile:
    """The memory in an ELF core file of a 64-bit little-endian machine, for writing."""

    def __init__(self, file):
        self.file = file
        header = self.at(0, 64)
        offset, = struct.unpack_from("<Q", header, 32)
        entry_bytes, count = struct.unpack_from("<HH", header, 54)
        if count == 0xffff:  # more than fit: the number is in the first section's header
            sections, = struct.unpack_from("<Q", header, 40)
            count, = struct.unpack_from("<I", self.at(sections, 64), 44)
        self.loads = []
        for i in range(count):
            entry = self.at(offset + i * entry_bytes, entry_bytes)
            kind, _, start, address, _, bytes_ = struct.unpack_from("<IIQQQQ", entry)
            if kind == 1:  # PT_LOAD
                self.loads.append((address, bytes_, start))

    def at(self, offset, bytes_):
        self.file.seek(offset)
        return self.file.read(bytes_)

    def put(self, address, data):
        for low, bytes_, start in self.loads:
            if low <= address and address + len(data) <= low + bytes_:
                self.file.seek(start + address - low)
                self.file.write(data)
                return True
        return False


class WeirCore(gdb.Command):
    """Save a core file of the live process, with the stacks of its tasks: weir core FILE
As generate-core-file, which gives up on a mapping at the first page that it cannot read, such
as the guard below a task's stack, and says "Memory read failed for corefile section". The part
of each task's stack that is in use is put in afterwards."""

    def __init__(self):
        super().__init__("weir core", gdb.COMMAND_FILES, gdb.COMPLETE_FILENAME)

    @guarded
    def invoke(self, argument, from_tty):
        if not argument:
            raise gdb.GdbError("usage: weir core FILE")
        connection = gdb.selected_inferior().connection
        weir = Weir()
        if connection and connection.type == "core":
            raise gdb.GdbError("weir: this is a core file already")
        leave()
        gdb.execute("generate-core-file " + argument)
        saved = lost = 0
        try:
            with open(argument, "r+b") as file:
                core = CoreFile(file)
                for _, task in weir.tasks():
                    if not get("task", task, "stack"):
                        continue
                    if self.save(weir, core, task):
                        saved += 1
                    else:
                        lost += 1
        except (OSError, struct.error) as error:
            raise gdb.GdbError("weir: %s: %s" % (argument, error)) from None
        print("with the stacks of %d task%s%s" % (saved, plural(saved), "; those of %d could not "
                                                  "be put in" % lost if lost else ""))

    @staticmethod
    def save(weir, core, task):
        low, high = number(get("task", task, "low")), number(get("task", task, "high"))
        if not weir.thread_of(task):
            low = max(low, number(get("task", task, "sp")))
        data = gdb.selected_inferior().read_memory(low, high - low).tobytes()
        return core.put(low, data)


def leave(*_):
    parked.hide()


for command in (WeirPrefix, WeirTasks, WeirBacktrace, WeirScopes, WeirTask, WeirEnter, WeirLeave,
                WeirCore):
    command()
for event in ("cont", "exited", "new_objfile"):
    getattr(gdb.events, event).connect(leave)
