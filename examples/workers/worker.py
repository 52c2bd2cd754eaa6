#!/usr/bin/env python3
"""worker.py - a worker in Python, by plain HTTP and the standard library.

    WEIR_SERVER=http://127.0.0.1:7411 examples/workers/worker.py [QUEUE]
"""
import json
import os
import sys
import threading
import urllib.error
import urllib.request

SERVER = os.environ.get("WEIR_SERVER", "http://127.0.0.1:7411")
WORKER = "python-%d" % os.getpid()
LEASE_MS = 30000


def ask(path, body, timeout=30):
    request = urllib.request.Request(SERVER + path, json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    if os.environ.get("WEIR_TOKEN"):
        request.add_header("Authorization", "Bearer " + os.environ["WEIR_TOKEN"])
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return json.load(answer)


def heartbeat(job, ended):
    """Without it the lease runs out, and the job is given to another."""
    while not ended.wait(LEASE_MS / 3000):
        ask("/v1/jobs/%s/extend" % job["id"],
            {"token": job["token"], "worker": WORKER, "lease_ms": LEASE_MS})


def work(payload):
    return "hello " + str(payload)


def run(job):
    ended = threading.Event()
    beat = threading.Thread(target=heartbeat, args=(job, ended), daemon=True)
    beat.start()
    try:
        result = work(job.get("payload"))
        ask("/v1/jobs/%s/ack" % job["id"], {"token": job["token"], "result": result})
    except urllib.error.HTTPError as error:
        print("job %s: %s" % (job["id"], error.read().decode()), file=sys.stderr)
    except Exception as error:  # what the work itself fails with is told, and tried again
        ask("/v1/jobs/%s/fail" % job["id"], {"token": job["token"],
            "error_class": type(error).__name__, "error_message": str(error)})
    finally:
        ended.set()


queue = sys.argv[1] if len(sys.argv) > 1 else "greet"
while True:
    for leased in ask("/v1/queues/%s/lease" % queue, {"worker": WORKER, "lease_ms": LEASE_MS,
                                                      "wait_ms": 20000})["jobs"]:
        run(leased)
