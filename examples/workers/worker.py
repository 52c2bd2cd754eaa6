#!/usr/bin/env python3
"""worker.py - a worker in Python, by plain HTTP and the standard library.

    WEIR_SERVER=http://127.0.0.1:7411 examples/workers/worker.py [QUEUE]
"""
import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request

SERVER = os.environ.get("WEIR_SERVER", "http://127.0.0.1:7411")
WORKER = "python-%d" % os.getpid()
LEASE_MS = 30000
AGAIN_S = 2  # after a request that nobody has answered


def ask(path, body, timeout=30):
    request = urllib.request.Request(SERVER + path, json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    if os.environ.get("WEIR_TOKEN"):
        request.add_header("Authorization", "Bearer " + os.environ["WEIR_TOKEN"])
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return json.load(answer)


def heartbeat(job, ended, cancelled):
    """Without it the lease runs out, and the job is given to another."""
    while not ended.wait(LEASE_MS / 3000):
        try:
            answer = ask("/v1/jobs/%s/extend" % job["id"],
                         {"token": job["token"], "worker": WORKER, "lease_ms": LEASE_MS})
            if "cancelled" in answer["orders"]:
                cancelled.set()
        except OSError as error:  # the next one may come through before the lease runs out
            print("job %s: %s" % (job["id"], error), file=sys.stderr)


def work(payload, cancelled):
    """One that takes long looks at `cancelled` now and then, and gives up."""
    return "hello " + str(payload)


def run(job):
    ended, cancelled = threading.Event(), threading.Event()
    beat = threading.Thread(target=heartbeat, args=(job, ended, cancelled), daemon=True)
    beat.start()
    how, body = "ack", {"token": job["token"]}
    try:
        body["result"] = work(job.get("payload"), cancelled)
    except Exception as error:  # what the work fails with is told, and tried again
        how = "fail"
        body.update(error_class=type(error).__name__, error_message=str(error))
    try:
        ask("/v1/jobs/%s/%s" % (job["id"], how), body)
    except urllib.error.HTTPError as error:
        print("job %s: %s" % (job["id"], error.read().decode()), file=sys.stderr)
    except OSError as error:  # its lease runs out, and it is given to somebody again
        print("job %s: %s" % (job["id"], error), file=sys.stderr)
    finally:
        ended.set()
        beat.join()


queue = sys.argv[1] if len(sys.argv) > 1 else "greet"
orders = []
while "end" not in orders:
    try:
        # One that is to be quiet is given no more jobs: it only asks whether it is to go on, or to end.
        if "quiet" in orders:
            time.sleep(AGAIN_S)
        answer = ask("/v1/queues/%s/lease" % queue,
                     {"worker": WORKER, "lease_ms": LEASE_MS, "wait_ms": 20000})
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        if error.code < 500 and error.code != 429:
            sys.exit("lease: " + text)
        print("lease: " + text, file=sys.stderr)
        time.sleep(AGAIN_S)
        continue
    except OSError as error:  # the server is being started again, perhaps
        print("lease: %s" % error, file=sys.stderr)
        time.sleep(AGAIN_S)
        continue
    orders = answer["orders"]
    for leased in answer["jobs"]:
        run(leased)
