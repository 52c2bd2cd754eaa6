"""stand - what the suites of tests/e2e share: a case, a folder and a server for it, waiting for events.

Each case has a folder of its own and a hard timeout; what it has started is ended with it.
"""
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

CASE_SECONDS = 60
WAIT_SECONDS = 20
CASES = []


def case(function):
    CASES.append(function)
    return function


def case_of(seconds):
    """A case that may take longer, or shorter."""
    def mark(function):
        function.seconds = seconds
        return case(function)
    return mark


class Skip(Exception):
    """What the case needs is not on this machine."""


class Failure(Exception):
    pass


def check(truth, what):
    if not truth:
        raise Failure(what)


def until(about, condition):
    """Wait for an event that can be looked at, not for a time."""
    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise Failure("did not happen in %d s: %s" % (WAIT_SECONDS, about))


def read_all(client):
    """Until the end, or until nothing has come for a while: then the test fails."""
    parts = []
    try:
        while True:
            data = client.recv(65536)
            if not data:
                break
            parts.append(data)
    except ConnectionResetError:
        pass
    return b"".join(parts)


class Stand:
    """A folder, a server if it is asked for, and all processes of one case."""

    def __init__(self, build):
        self.weir = os.path.abspath(os.path.join(build, "programs", "weir"))
        self.folder = tempfile.mkdtemp(prefix="weir-e2e-")
        self.data = os.path.join(self.folder, "data")
        self.socket = os.path.join(self.folder, "weir.sock")
        self.server = None
        self.processes = []
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("WEIR_", "LISTEN_"))}
        self.env["WEIR_SERVER"] = "unix:" + self.socket
        self.env["NO_COLOR"] = "1"

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, name, text=None, mode=0o600):
        path = os.path.join(self.folder, name)
        if text is not None:
            with open(path, "w") as out:
                out.write(text)
            os.chmod(path, mode)
        return path

    def start(self, *words, env=None, **more):
        log = open(self.path("log-%d" % len(self.processes)), "wb")
        process = subprocess.Popen([self.weir, *words], env={**self.env, **(env or {})},
                                   stdout=more.pop("stdout", subprocess.DEVNULL), stderr=log,
                                   stdin=subprocess.DEVNULL, cwd=self.folder, **more)
        process.log_path = log.name
        log.close()
        self.processes.append(process)
        return process

    def serve(self, *words, env=None, **more):
        self.server = self.start("serve", "--data", self.data, "--listen", "unix:" + self.socket,
                                 *words, env=env, **more)
        until("ready", lambda: "msg=ready" in self.log() or "\"ready\"" in self.log() or
              self.server.poll() is not None)
        check(self.server.poll() is None, "the server ended: " + self.log())
        return self.server

    def serve_tcp(self, *words, **more):
        """The same with a port of its own on loopback, which is then self.port."""
        self.serve("--listen", "tcp:127.0.0.1:0", *words, **more)
        self.port = int(self.log().split("address=tcp:127.0.0.1:")[1].split()[0])
        self.env["WEIR_SERVER"] = "http://127.0.0.1:%d" % self.port
        return self.server

    def ask(self, method, target, body=None, token=None, headers=None, port=None):
        """One request over TCP: status, body, and the fields of the answer."""
        fields = {"Host": "localhost", **(headers or {})}
        if token:
            fields["Authorization"] = "Bearer " + token
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
            fields.setdefault("Content-Type", "application/json")
        client = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=WAIT_SECONDS)
        try:
            client.request(method, target, body=body, headers=fields)
            answer = client.getresponse()
            return answer.status, answer.read(), answer
        finally:
            client.close()

    def send(self, data, port=None):
        """Bytes as they are: all that comes back until the other side closes."""
        with socket.create_connection(("127.0.0.1", port or self.port), timeout=WAIT_SECONDS) as client:
            try:
                client.sendall(data)
            except (BrokenPipeError, ConnectionResetError):
                pass  # it was refused and closed meanwhile
            return read_all(client)

    def descriptors(self):
        return len(os.listdir("/proc/%d/fd" % self.server.pid))

    def memory(self):
        """Bytes that the server has in memory of its own: files of programs do not count."""
        with open("/proc/%d/smaps_rollup" % self.server.pid) as text:
            return sum(int(line.split()[1]) * 1024 for line in text if line.startswith("Anonymous:"))

    def log(self, process=None):
        with open((process or self.server).log_path) as log:
            return log.read()

    def run(self, *words, status=0, data=None, env=None):
        done = subprocess.run([self.weir, *words], env={**self.env, **(env or {})}, input=data,
                              capture_output=True, timeout=WAIT_SECONDS, cwd=self.folder)
        out, err = done.stdout.decode(), done.stderr.decode()
        check(done.returncode == status, "weir %s: status %d instead of %d\n%s%s" %
              (" ".join(words), done.returncode, status, out, err))
        self.err = err
        return out

    def job(self, ident):
        return json.loads(self.run("job", ident, "--json"))

    def await_state(self, ident, state):
        return until("job %s is %s" % (ident, state),
                     lambda: (lambda job: job if job["state"] == state else None)(self.job(ident)))

    def end(self, status, signo=signal.SIGTERM):
        self.server.send_signal(signo)
        check(self.server.wait(WAIT_SECONDS) == status, "the server ended with %d instead of %d: %s" %
              (self.server.returncode, status, self.log()))


# ---- Running them ----

def run_one(function, build):
    stand = Stand(build)
    box = {}

    def body():
        try:
            function(stand)
        except Exception as error:  # noqa: BLE001: any is a failed case
            box["error"] = error
            box["trace"] = traceback.format_exc()

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    seconds = getattr(function, "seconds", CASE_SECONDS)
    thread.join(seconds)
    if thread.is_alive():
        box["error"] = Failure("still running after %d s" % seconds)
    if isinstance(box.get("error"), Skip):
        print("skipped %s: %s" % (function.__name__, box["error"]))
        stand.close()
        return None
    if "error" in box:
        error = box["error"]
        print("FAILED %s: %s" % (function.__name__, error if isinstance(error, Failure) else box["trace"]))
        for process in stand.processes:
            print("  %s\n%s" % (process.args[1:4], "".join(
                "    " + line for line in open(process.log_path, errors="replace").readlines()[-15:])))
    stand.close()
    return "error" not in box


def main(cases, program="run"):
    """Run the cases whose name contains one of the words; close with `N passed, N failed`."""
    if len(sys.argv) < 2:
        sys.exit("usage: tests/e2e/%s BUILD [NAME...]" % program)
    counts = {True: 0, False: 0, None: 0}
    for function in cases:
        if len(sys.argv) > 2 and not any(name in function.__name__ for name in sys.argv[2:]):
            continue
        counts[run_one(function, sys.argv[1])] += 1
        sys.stdout.flush()
    skipped = ", %d skipped" % counts[None] if counts[None] else ""
    print("%d passed, %d failed%s" % (counts[True], counts[False], skipped))
    sys.exit(1 if counts[False] or not (counts[True] or counts[None]) else 0)
