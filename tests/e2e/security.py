"""security - what docs/security.md says of the program as a whole, against the real one.

Cases of tests/e2e/run; each is named in a row of that table.
"""
import glob
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading

from stand import WAIT_SECONDS, Failure, case, check, read_all, until

RAW = "/v1/queues/q/jobs?kind=k&idempotent=true"  # the body is the payload
VERBS = ("enqueue", "work", "read", "manage", "admin")


# ---- Who may ----

def operations(document):
    """(method, path with parameters said, scope, example body) of all that the document has."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            target = re.sub(r"\{[a-z]+\}", "1", path)
            # Of the right type, and nobody's: what it answers beyond "you may" does not matter.
            body = {} if "requestBody" in operation else None
            yield method.upper(), target, operation["x-weir-scope"], body


@case
def every_operation_of_the_document_asks_for_its_scope(stand):
    tokens = {verb: stand.run("token", "create", verb, "--allow", verb, "--data", stand.data).strip()
              for verb in VERBS}
    stand.serve_tcp()
    status, text, _ = stand.ask("GET", "/openapi.json")
    check(status == 200, "the document is public")
    found = list(operations(json.loads(text)))
    check(len(found) > 50 and {scope for _, _, scope, _ in found} == {*VERBS, "public"},
          "every operation says its scope: %s" % {scope for _, _, scope, _ in found})
    for method, target, scope, body in found:
        for verb, token in tokens.items():
            status, answer, _ = stand.ask(method, target, body, token)
            about = "%s %s (%s) with %s: %d %r" % (method, target, scope, verb, status, answer[:200])
            if scope in (verb, "public"):
                check(status not in (401, 403), about)
            else:
                check(status == 403, about)
    # Each connection of its own address: who fails too often is told to wait.
    for i, (method, target, scope, body) in enumerate(found):
        source = "127.1.%d.%d" % (i // 200, i % 200 + 1)
        with socket.create_connection(("127.0.0.1", stand.port), WAIT_SECONDS, (source, 0)) as client:
            data = json.dumps(body) if body is not None else ""
            client.sendall(("%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json"
                            "\r\nContent-Length: %d\r\n\r\n%s" % (method, target, len(data), data)).encode())
            line = read_all(client).split(b"\r\n")[0]
        check((b" 401 " in line) == (scope != "public"), "%s %s (%s) without a token: %r" %
              (method, target, scope, line))
    stand.end(0)


@case
def the_first_token_is_asked_for_at_once(stand):
    stand.serve_tcp()
    check(stand.ask("GET", "/v1/queues")[0] == 200, "without tokens everybody on this machine may")
    status, text, _ = stand.ask("POST", "/v1/tokens", {"name": "reader", "scopes": ["read"]})
    check(status == 422 and b"scope all or admin" in text, "it would shut everybody out: %r" % text)
    check(stand.ask("GET", "/v1/queues")[0] == 200, "nothing has changed")
    token = stand.run("token", "create", "ops", "--allow", "all").strip()
    check(stand.ask("GET", "/v1/queues")[0] == 401, "from now on it is needed")
    check(stand.ask("GET", "/v1/queues", token=token)[0] == 200, "and enough")
    ident = token.split("_")[1]
    stand.run("token", "revoke", ident, env={"WEIR_TOKEN": token})
    check(stand.ask("GET", "/v1/queues")[0] == 401, "without any it is not open again")
    stand.end(0)
    stand.serve_tcp()
    check(stand.ask("GET", "/v1/queues")[0] == 401, "nor after a restart")
    other = stand.run("token", "create", "next", "--allow", "all", "--data", stand.data).strip()
    stand.server.send_signal(signal.SIGHUP)
    until("it was read", lambda: "what=tokens" in stand.log())
    check(stand.ask("GET", "/v1/queues", token=other)[0] == 200, "the way back")
    stand.end(0)


@case
def a_first_token_of_the_folder_is_asked_for_after_hup(stand):
    stand.serve_tcp()
    check(stand.ask("GET", "/v1/queues")[0] == 200, "open")
    token = stand.run("token", "create", "ops", "--allow", "all", "--data", stand.data).strip()
    stand.server.send_signal(signal.SIGHUP)
    until("it says so", lambda: "from here on every request needs one" in stand.log())
    check(stand.ask("GET", "/v1/queues")[0] == 401, "it is needed")
    check(stand.ask("GET", "/v1/queues", token=token)[0] == 200, "and enough")
    # One that is rotated in the folder ends as was said there.
    ident = token.split("_")[1]
    other = stand.run("token", "rotate", ident, "--overlap", "0s", "--data", stand.data).strip()
    stand.server.send_signal(signal.SIGHUP)
    until("again", lambda: stand.log().count("what=tokens") == 2)
    check(stand.ask("GET", "/v1/queues", token=token)[0] == 401, "the old one has ended")
    check(stand.ask("GET", "/v1/queues", token=other)[0] == 200, "the new one has not")
    stand.end(0)


@case
def the_file_of_tokens_is_its_owners_alone(stand):
    old = os.umask(0)
    try:
        stand.run("token", "create", "ops", "--allow", "all", "--data", stand.data)
    finally:
        os.umask(old)
    path = os.path.join(stand.data, "tokens.json")
    check(os.stat(path).st_mode & 0o777 == 0o600, oct(os.stat(path).st_mode))
    os.chmod(path, 0o644)
    server = stand.start("serve", "--data", stand.data, "--listen", "unix:" + stand.socket)
    check(server.wait(WAIT_SECONDS) != 0, "it does not start")
    check("0600" in stand.log(server), "and says what to do: " + stand.log(server))


@case
def an_expired_token_is_refused(stand):
    stand.run("token", "create", "ops", "--allow", "all", "--data", stand.data)
    short = stand.run("token", "create", "short", "--allow", "all", "--expires", "2s", "--data",
                      stand.data).strip()
    stand.serve_tcp()
    until("it has expired", lambda: stand.ask("GET", "/v1/queues", token=short)[0] == 401)
    stand.end(0)


# ---- What is said over HTTP ----

@case
def a_page_of_a_stranger_cannot_ask_through_its_own_name(stand):
    stand.serve_tcp()
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "0.0.0.0", "[::ffff:127.0.0.1]"):
        status, text, _ = stand.ask("POST", "/v1/jobs", {"queue": "q", "kind": "k", "idempotent": True},
                                    headers={"Host": host + ":%d" % stand.port})
        check(status == 421, "%s: %d %r" % (host, status, text))
    check(stand.run("jobs", "--count") == "0\n", "nothing was enqueued")
    for host in ("localhost", "127.0.0.1", "[::1]"):
        check(stand.ask("GET", "/v1/queues", headers={"Host": host})[0] == 200, host)
    # No answer allows a page to read it, and a payload is no page.
    status, text, answer = stand.ask("POST", RAW, b"<script>alert(1)</script>",
                                     headers={"Content-Type": "text/html", "Origin": "http://evil.example"})
    check(status == 201 and answer.getheader("Access-Control-Allow-Origin") is None, str(answer.getheaders()))
    status, text, answer = stand.ask("GET", "/v1/jobs/1/payload")
    check(text == b"<script>alert(1)</script>", "the bytes that came")
    check(answer.getheader("Content-Type") == "application/octet-stream", str(answer.getheaders()))
    check(answer.getheader("X-Content-Type-Options") == "nosniff", str(answer.getheaders()))
    stand.end(0)


@case
def nothing_that_a_client_says_forges_a_line_of_the_log(stand):
    token = stand.run("token", "create", "a\nlevel=error msg=forged", "--allow", "all", "--data", stand.data).strip()
    stand.serve_tcp("--set", "log.access=on")
    evil = "%0alevel=error%20msg=forged%1b[31m"
    for target in ("/v1/queues/" + evil, "/" + evil, "/v1/jobs?filter=" + evil):
        stand.ask("GET", target, token=token)
        stand.ask("GET", target, token="weir_" + evil)
    stand.ask("DELETE", "/v1/schedules/nobody", token=token)
    stand.ask("GET", "/v1/queues/%22level=error%20msg=forged", token=token)
    stand.send(b"GET /\x1b[31m HTTP/1.1\r\nHost: localhost\nlevel=error msg=forged\r\n\r\n")
    stand.send(b"level=error msg=forged\r\n\r\n")
    until("the requests are told", lambda: stand.log().count("msg=request") >= 10)
    for line in stand.log().splitlines():
        check(line.startswith("time="), "a line of its own: %r" % line)
        check(all(" " <= c <= "~" for c in line), "nothing but letters: %r" % line)
        check(" level=error" not in line.split(" msg=")[0], "forged: %r" % line)
    check("route=/v1/queues/{queue} status=" in stand.log(), "the route is told: " + stand.log())
    stand.end(0)  # the file is written behind the answers, and whole when the server has ended
    with open(os.path.join(stand.data, "audit.log")) as audit:
        lines = audit.readlines()
    check(len(lines) >= 1, "an entry")
    for line in lines:
        check(json.loads(line)["method"] == "DELETE", "each line is one entry: %r" % line)


@case
def requests_are_logged_when_that_is_asked_for(stand):
    path = stand.path("weir.conf", "[log]\naccess = off\n")
    stand.serve_tcp("--config", path)
    # A line is said behind its answer: that of the first is past once the second was answered.
    client = http.client.HTTPConnection("127.0.0.1", stand.port, timeout=WAIT_SECONDS)
    for target in ("/v1/queues", "/livez"):
        client.request("GET", target)
        client.getresponse().read()
    stand.path("weir.conf", "[log]\naccess = on\n")
    stand.server.send_signal(signal.SIGHUP)
    until("it was read", lambda: "msg=reloaded" in stand.log())
    stand.ask("GET", "/v1/jobs/17?wait=1ms")
    line = until("a line", lambda: [line for line in stand.log().splitlines() if "route=/v1/jobs" in line])[0]
    check("route=/v1/queues" not in stand.log(), "not while it was off")
    client.close()
    check("method=GET route=/v1/jobs/{id} status=404 bytes=" in line and "peer=tcp:127.0.0.1:" in line, line)
    stand.end(0)


@case
def no_path_leads_out_of_the_folder(stand):
    stand.serve_tcp("--set", "security.sandbox=off")  # so that nothing but the names is in the way
    before = sorted(os.listdir(stand.folder))
    for name in ("../escape", "/tmp/weir-escape", "..", ".", "a/../../escape", "a\0b", "", "x" * 300, ".hidden/../x"):
        status, text, _ = stand.ask("POST", "/v1/admin/backup", {"name": name})
        check(status in (400, 422), "backup %r: %d %r" % (name, status, text))
    for target in ("/../../etc/passwd", "/v1/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc%2fpasswd",
                   "/v1/queues/..%2f..%2fetc", "//etc/passwd", "/v1/jobs/..%00", "/%c0%ae%c0%ae/etc/passwd"):
        status, text, _ = stand.ask("GET", target)
        check(status in (400, 404) and b"root:" not in text, "%s: %d %r" % (target, status, text))
    # Names are names, wherever they are kept.
    for queue in ("..%2f..%2fescape", "%2ftmp%2fweir-escape"):
        stand.ask("POST", "/v1/queues/%s/jobs?kind=k&idempotent=true" % queue, b"x", headers={"Content-Type": "text/plain"})
    check(sorted(os.listdir(stand.folder)) == before, str(os.listdir(stand.folder)))
    check(not os.path.exists("/tmp/weir-escape"), "nothing was made elsewhere")
    check(os.listdir(os.path.join(stand.data, "backups")) == [], "nor where it may be")
    stand.end(0)


@case
def a_body_without_an_end_is_cut_off(stand):
    stand.serve_tcp()
    stand.ask("GET", "/v1/queues")
    before = stand.memory()
    for path, kind in (("/v1/jobs", "application/json"), (RAW, "text/plain"),
                       ("/v1/jobs/many", "application/x-ndjson")):
        with socket.create_connection(("127.0.0.1", stand.port), WAIT_SECONDS) as client:
            client.sendall(("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\n"
                            "Transfer-Encoding: chunked\r\n\r\n" % (path, kind)).encode())
            sent, piece = 0, b"10000\r\n" + b" " * 65536 + b"\r\n"
            try:
                while sent < 512 << 20:
                    client.sendall(piece)
                    sent += 65536
            except (BrokenPipeError, ConnectionResetError):
                pass
            answer = read_all(client)
        check(sent < 100 << 20, "%s has taken %d MiB" % (path, sent >> 20))
        check(not answer or b" 413 " in answer.split(b"\r\n")[0], "%s: %r" % (path, answer[:200]))
    status, text, _ = stand.ask("POST", "/v1/jobs", b"{}", headers={
        "Content-Type": "application/json", "Content-Length": "99999999999999"})
    check(status == 413, "known beforehand: %d" % status)
    grown = stand.memory() - before
    check(grown < 96 << 20, "it has kept %d MiB" % (grown >> 20))
    stand.end(0)


@case
def a_body_that_is_packed_is_not_unpacked(stand):
    stand.serve_tcp()
    for path, kind in (("/v1/jobs", "application/json"), (RAW, "text/plain"),
                       ("/v1/jobs/many", "application/x-ndjson")):
        for coding in ("gzip", "deflate", "br", "gzip, gzip", "x"):
            status, text, _ = stand.ask("POST", path, b"\x1f\x8b\x08\0\0\0\0\0", headers={
                "Content-Type": kind, "Content-Encoding": coding})
            check(status == 415, "%s %s: %d %r" % (path, coding, status, text))
    status, text, _ = stand.ask("POST", RAW, b"x", headers={
        "Content-Type": "text/plain", "Content-Encoding": "identity"})
    check(status == 201, "%d %r" % (status, text))
    check(stand.run("jobs", "--count") == "1\n", "and nothing else was kept")
    stand.end(0)


@case
def a_key_is_one_request_of_one_queue(stand):
    stand.run("token", "create", "ops", "--allow", "all", "--data", stand.data)
    mine = stand.run("token", "create", "mine", "--allow", "enqueue:mine", "--data", stand.data).strip()
    theirs = stand.run("token", "create", "theirs", "--allow", "enqueue:theirs", "--data", stand.data).strip()
    stand.serve_tcp()

    def enqueue(queue, token, payload, key="k"):
        return stand.ask("POST", "/v1/jobs", {"queue": queue, "kind": "k", "idempotent": True, "payload": payload},
                         token=token, headers={"Idempotency-Key": key})

    first = json.loads(enqueue("theirs", theirs, 1)[1])
    check(json.loads(enqueue("theirs", theirs, 1)[1])["id"] == first["id"], "the same job")
    status, text, _ = enqueue("mine", mine, 1)
    check(status == 201 and json.loads(text)["id"] != first["id"], "another queue, another job: %r" % text)
    check(enqueue("theirs", mine, 1)[0] == 403, "not with a token of others")
    status, text, _ = enqueue("theirs", theirs, 2)
    check(status == 409 and b"key-reused" in text, "another payload: %d %r" % (status, text))
    for key in ("", "x" * 5000, "x" * 300):
        check(enqueue("theirs", theirs, 1, key)[0] in (422, 431), "a key of %d" % len(key))
    stand.end(0)


# ---- TLS ----

def certificate(stand, name):
    key, path = stand.path("key.pem"), stand.path("cert.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-keyout", key, "-out", path, "-days", "2", "-subj", "/CN=" + name,
                    "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True)
    return ["--listen", "tls:127.0.0.1:0", "--set", "tls.certificate=" + path, "--set", "tls.key=" + key]


def shake(port, *options):
    done = subprocess.run(["openssl", "s_client", "-connect", "127.0.0.1:%d" % port, *options],
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=WAIT_SECONDS)
    return done.stdout.decode(errors="replace") + done.stderr.decode(errors="replace")


@case
def old_versions_and_weak_ciphers_of_tls_are_refused(stand):
    stand.serve(*certificate(stand, "localhost"))
    port = int(stand.log().split("address=tcp:127.0.0.1:")[1].split()[0])
    weak = ["-cipher", "ALL:@SECLEVEL=0"]
    for version in ("-tls1", "-tls1_1"):
        text = shake(port, version, *weak)
        check("alert protocol version" in text and "Cipher is (NONE)" in text, version + ": " + text)
    for version, name in (("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")):
        text = shake(port, version)
        check(name in text and "Cipher is (NONE)" not in text, version + ": " + text)
    for cipher in ("NULL-SHA256", "AES128-SHA", "DES-CBC3-SHA", "ADH-AES128-SHA256"):
        text = shake(port, "-tls1_2", "-cipher", cipher + ":@SECLEVEL=0")
        check("Cipher is (NONE)" in text or "no cipher match" in text, cipher + ": " + text)
    # Words without TLS on its port are no request.
    plain = stand.send(b"GET /v1/queues HTTP/1.1\r\nHost: localhost\r\n\r\n", port)
    check(b"200" not in plain.split(b"\r\n")[0], "%r" % plain)
    # A connection goes on over a reload; new ones get the new certificate.
    context = ssl.create_default_context(cafile=stand.path("cert.pem"))
    with context.wrap_socket(socket.create_connection(("127.0.0.1", port), WAIT_SECONDS),
                             server_hostname="localhost") as client:
        client.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        check(b"200" in client.recv(4096), "before")
        certificate(stand, "second")
        stand.server.send_signal(signal.SIGHUP)
        until("it was read again", lambda: "what=certificate" in stand.log())
        client.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        check(b"200" in client.recv(4096), "after")
    check("CN = second" in shake(port), "the new one")
    stand.end(0)


# ---- The machine ----

@case
def secrets_are_in_no_log_no_file_and_no_command_line(stand):
    token = stand.run("token", "create", "ops", "--allow", "all", "--data", stand.data).strip()
    secret = token.split("_", 2)[2]
    stand.serve_tcp("--set", "log.level=debug", "--set", "log.access=on", "--set", "trace.export=file", "--set",
                    "trace.sample=1", env={"WEIR_TOKEN": token})
    made = json.loads(stand.ask("POST", "/v1/tokens", {"name": "made", "scopes": ["read"]}, token)[1])["token"]
    wrong = token[:-3] + "AAA"
    check(stand.ask("GET", "/v1/queues", token=wrong)[0] == 401, "a wrong one")
    stand.ask("GET", "/v1/queues?token=" + token)
    stand.run("enqueue", "q", "x", env={"WEIR_TOKEN": token})
    worker = stand.start("work", "q", "--", "sh", "-c", "env; cat /proc/$PPID/cmdline", env={"WEIR_TOKEN": token})
    until("it was done", lambda: stand.run("jobs", "state:done", "--count", env={"WEIR_TOKEN": token}) == "1\n")
    result = stand.run("job", "1", "--result", env={"WEIR_TOKEN": token})
    check(secret not in result, "a program has not what its worker has: " + result)
    shown = "".join(stand.ask("GET", path, token=token)[1].decode() for path in (
        "/v1/tokens", "/v1/admin/config", "/v1/admin/info", "/v1/admin/audit", "/v1/admin/tasks", "/metrics",
        "/v1/admin/connections", "/v1/admin/map"))
    seen = {"what it shows": shown}
    for process in stand.processes:
        with open("/proc/%d/cmdline" % process.pid) as text:
            seen["command line of %d" % process.pid] = text.read()
    for flag in ("--token", "--bearer"):
        stand.run("status", flag, token, status=2)
        check(secret not in stand.err, "nor what is said of it: " + stand.err)
    stand.server.send_signal(signal.SIGUSR1)
    until("the dump", lambda: "parked" in stand.log())
    stand.end(0)
    seen["its log, with a dump of its tasks"], seen["the worker's"] = stand.log(), stand.log(worker)
    for path in glob.glob(stand.data + "/**", recursive=True):
        if os.path.isfile(path):
            with open(path, "rb") as data:
                seen[path] = data.read().decode(errors="replace")
    for where, text in seen.items():
        for one in (token, made, wrong):
            check(one.split("_", 2)[2] not in text, "%s has a secret" % where)
    check(any(path.endswith("trace.json") and len(text) > 100 for path, text in seen.items()), "there were traces")


@case
def a_full_disk_refuses_new_jobs_and_lets_workers_finish(stand):
    stand.serve_tcp("--set", "store.disk=24M", "--set", "store.segment_bytes=4M", "--set", "store.payload_bytes=64K")
    payload = b"x" * 60000
    status = 201
    for i in range(600):
        status, text, answer = stand.ask("POST", RAW, payload, headers={
            "Content-Type": "application/octet-stream"})
        if status != 201:
            break
    check(status == 507 and b"no-room" in text and answer.getheader("Retry-After"), "%d %r" % (status, text))
    check(stand.ask("GET", "/readyz?verbose")[0] in (200, 503), "it answers")
    leased = json.loads(stand.ask("POST", "/v1/queues/q/lease", {"worker": "w", "count": 8})[1])["jobs"]
    check(len(leased) == 8, "leases go on")
    for job in leased:
        status, text, _ = stand.ask("POST", "/v1/jobs/%s/ack" % job["id"], {"token": job["token"]})
        check(status == 200, "and so do their ends: %d %r" % (status, text))
    stand.end(0)


@case
def slow_clients_hold_up_nobody(stand):
    stand.serve_tcp("--set", "limits.head_timeout=1s", "--set", "limits.body_timeout=1s", "--set", "limits.requests=4")
    slow = []
    for i in range(200):
        client = socket.create_connection(("127.0.0.1", stand.port), WAIT_SECONDS)
        client.sendall(b"GET /v1/queues HTTP/1.1\r\nHost: loc" if i % 2 else
                       b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                       b"Content-Length: 100\r\nExpect: 100-continue\r\n\r\n")
        slow.append(client)
    for i in range(20):
        status, text, _ = stand.ask("GET", "/livez")
        check(status == 200, "others are served meanwhile: %d" % status)
    for client in slow:
        answer = read_all(client)
        check(b" 408 " in answer or b" 503 " in answer, "it was told and let go: %r" % answer)
        client.close()
    stand.end(0)


# ---- The table itself ----

@case
def every_test_that_the_table_names_is_there(stand):
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with open(os.path.join(root, "docs", "security.md")) as text:
        lines = [line for line in text if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    rows = [row for row in rows if len(row) == 4 and row[0] != "who" and not row[0].startswith("--")]
    check(len(rows) >= 25, "%d rows" % len(rows))
    names = set()
    for path in glob.glob(root + "/tests/unit/**/*.c", recursive=True):
        with open(path) as source:
            names.update(re.findall(r"^[A-Z_]*TEST[A-Z_]*\(([a-z0-9_]+)", source.read(), re.M))
    for path in glob.glob(root + "/tests/e2e/*"):
        if os.path.isfile(path):
            with open(path) as source:
                names.update(re.findall(r"^@case[^\n]*\ndef ([a-z0-9_]+)\(", source.read(), re.M))
    seen = set()
    for row in rows:
        found = re.findall(r"`([a-z0-9_]+)`", row[3])
        check(len(found) == 1, "one test in a row: %s" % row)
        check(found[0] in names, "there is no test %s: %s" % (found[0], row))
        check(found[0] not in seen, "%s proves two rows" % found[0])
        seen.add(found[0])
