"""ledger - what a server of jobs was asked and has told, and whether it has kept its word.

Clients write down each request before it is sent (ask) and each answer after it has come (tell);
a request without an answer may have happened or not. After a restart all jobs that are there are
told of as well (found). Ledger.read() takes these records in their order, and complains:

 1. What was acknowledged as safe is there: jobs, ends, results, leases and their times.
 2. No job has two leases that are valid at a time. Its tokens rise, and none is given twice.
 3. Who settles or extends with an old token is refused; who has a valid one is not.
 4. A key gives one job, however often it was sent, and whatever was lost in between.
 5. Nothing ends that nobody has ended; what has ended is leased no more.
 6. A commit has happened whole or not at all.
 7. Jobs with an order key are begun after all that came before them have ended.

Nothing in here depends on when the records were made but for `at_ms`, the time of the machine, which
is compared with that of leases, by more than a second.

A record is a dict. {"ask": N, "op": ...}: N is the number of the request; by its op it has
    enqueue   jobs: [{key, queue, order or None}]
    lease     queue, lease_ms
    extend    id, token, lease_ms
    settle    settle: [{id, token, how, result}], and for a commit jobs, as above
{"tell": N, "at_ms": T, "safe": bool}, safe being whether it was told as synced, with
    enqueue   ids
    lease     jobs: [{id, token, until_ms, key}]
    extend    until_ms, or error
    settle    outcomes: [a state, or {"error": code}], and for a commit ids; or error for all
{"found": [{id, key, state, until_ms}], "at_ms": T}: all jobs there are, after a start.
{"result": TEXT, "id": ID}
"""

ENDS = ("done", "dead", "cancelled", "expired")
END_OF = {"ack": "done", "dead": "dead"}
CLOCK_MS = 1500  # of which the machine's time and a store's may differ


class Complaint(Exception):
    pass


def complain_if(truth, words, *about):
    if truth:
        raise Complaint(words % about)


class Wanted:
    """A job as a client wants it: there is one for each key."""

    def __init__(self, job, asked):
        self.key, self.queue, self.order = job["key"], job["queue"], job.get("order")
        self.asked = asked  # the number of the first request
        self.told = None    # that of the first answer which says that it is safe
        self.id = None


class Lease:
    def __init__(self, asked, told, until_ms, lease_ms):
        self.asked, self.told = asked, told
        self.claimed_ms = until_ms - lease_ms
        self.until_ms = until_ms
        self.given_up = []    # the numbers of requests to settle it that were not refused
        self.unsure = False   # it may have been extended: nobody was told


class Job:
    def __init__(self, ident):
        self.id = ident
        self.wanted = None
        self.leases = {}      # by token; only those that are safe
        self.state = None     # an end that was told as safe
        self.token = None     # with which it was ended
        self.ended = 0        # the number of the answer that said so
        self.results = []     # of which it has one: all that were asked for
        self.result = None    # that was told
        self.may_be = []      # ends that were asked for, and not refused


class Ledger:
    def __init__(self):
        self.number = 0
        self.asked = {}    # requests without an answer
        self.wanted = {}   # by key
        self.jobs = {}     # by id
        self.tokens = {}   # of all leases: the job of each
        self.orders = {}   # by queue and order key: what is wanted
        self.commits = []  # that have no answer: [settles, jobs]

    def read(self, record):
        self.number += 1
        if "ask" in record:
            self.asked[record["ask"]] = (self.number, record)
            getattr(self, "ask_" + record["op"])(record)
        elif "tell" in record:
            began, ask = self.asked.pop(record["tell"])
            getattr(self, "tell_" + ask["op"])(began, ask, record)
        elif "found" in record:
            self.found(record)
        else:
            self.one_result(record)

    # ---- Jobs ----

    def job(self, ident):
        return self.jobs.setdefault(ident, Job(ident))

    def ask_enqueue(self, ask):
        for job in ask["jobs"]:
            if job["key"] in self.wanted:
                continue
            wanted = self.wanted[job["key"]] = Wanted(job, self.number)
            if wanted.order:
                self.orders.setdefault((wanted.queue, wanted.order), []).append(wanted)

    def belongs(self, ident, key):
        """The job with this id is the one that is wanted under the key."""
        wanted = self.wanted.get(key)
        complain_if(not wanted, "job %s has key %s, which nobody has sent", ident, key)
        job = self.job(ident)
        complain_if(job.wanted and job.wanted is not wanted,
                    "id %s was given twice: for keys %s and %s", ident,
                    job.wanted and job.wanted.key, key)
        complain_if(wanted.id and wanted.id != ident, "key %s gives jobs %s and %s", key, wanted.id,
                    ident)
        job.wanted = wanted
        return job, wanted

    def enqueued(self, jobs, ids, safe):
        complain_if(len(jobs) != len(ids), "%d jobs were enqueued, and %d told of", len(jobs), len(ids))
        if not safe:
            return
        for job, ident in zip(jobs, ids):
            _, wanted = self.belongs(ident, job["key"])
            wanted.id = ident
            wanted.told = wanted.told or self.number

    def tell_enqueue(self, began, ask, tell):
        self.enqueued(ask["jobs"], tell["ids"], tell["safe"])

    # ---- Leases ----

    def ask_lease(self, ask):
        pass

    def check_turn(self, job):
        mine = job.wanted
        for other in self.orders.get((mine.queue, mine.order), ()) if mine.order else ():
            if other is mine or not other.told or other.told > mine.asked:
                continue
            before = self.job(other.id)
            complain_if(not before.state and not before.may_be,
                        "job %s is begun, and %s before it in order has not ended", job.id, other.id)

    def check_alone(self, job):
        """Each lease of a job begins after the one before it has ended."""
        tokens = sorted(job.leases)
        for first, second in zip(tokens, tokens[1:]):
            one, two = job.leases[first], job.leases[second]
            if one.given_up and one.given_up[0] < two.told:
                continue
            complain_if(two.claimed_ms < one.until_ms,
                        "job %s has two valid leases: token %d until %d, token %d from %d on", job.id,
                        first, one.until_ms, second, two.claimed_ms)

    def tell_lease(self, began, ask, tell):
        for leased in tell["jobs"]:
            token = leased["token"]
            job, _ = self.belongs(leased["id"], leased["key"])
            complain_if(token in self.tokens, "token %d was given twice: for jobs %s and %s", token,
                        self.tokens.get(token), job.id)
            self.tokens[token] = job.id
            for other, lease in job.leases.items():
                complain_if(lease.told < began and other >= token,
                            "job %s was leased with token %d after %d", job.id, token, other)
            complain_if(job.state and token > (job.token or 0),
                        "job %s, which is %s, is leased", job.id, job.state)
            self.check_turn(job)
            if not tell["safe"]:
                continue
            job.wanted.id = job.id
            job.wanted.told = job.wanted.told or self.number
            job.leases[token] = Lease(began, self.number, leased["until_ms"], ask["lease_ms"])
            self.check_alone(job)

    def check_newest(self, job, token, began, what):
        for other, lease in job.leases.items():
            complain_if(other > token and lease.told < began,
                        "job %s was %s with token %d, and %d had been given", job.id, what, token,
                        other)

    def check_refused(self, job, token, error, tell):
        """That a lease is stale is told only of one that is."""
        lease = job.leases.get(token)
        if error not in ("stale-lease", "conflict", "no-such") or not lease or not tell["safe"]:
            return
        complain_if(error == "no-such", "job %s is lost", job.id)
        if lease.given_up or job.may_be or job.state:
            return
        complain_if(token == max(job.leases) and tell["at_ms"] + CLOCK_MS < lease.until_ms,
                    "job %s: token %d is refused (%s), and is valid until %d", job.id, token, error,
                    lease.until_ms)

    def ask_extend(self, ask):
        lease = self.job(ask["id"]).leases.get(ask["token"])
        if lease:
            lease.unsure = True

    def tell_extend(self, began, ask, tell):
        job, token = self.job(ask["id"]), ask["token"]
        lease = job.leases.get(token)
        if "error" in tell:
            self.check_refused(job, token, tell["error"], tell)
            return
        self.check_newest(job, token, began, "extended")
        complain_if(job.state and job.ended < began, "job %s, which is %s, is extended", job.id,
                    job.state)
        if lease and tell["safe"]:
            lease.until_ms = tell["until_ms"]
            lease.unsure = False
            self.check_alone(job)

    # ---- Ends ----

    def ask_settle(self, ask):
        if ask.get("jobs"):
            self.ask_enqueue(ask)
        for one in ask["settle"]:
            job = self.job(one["id"])
            lease = job.leases.get(one["token"])
            if lease:
                lease.given_up.append(self.number)
            if one["how"] in END_OF:
                job.may_be.append(END_OF[one["how"]])
                job.results.append(one.get("result", ""))

    def refused(self, job, one, error, began, tell):
        """It has not happened: as if nobody had asked."""
        lease = job.leases.get(one["token"])
        if one["how"] in END_OF:
            job.results.remove(one.get("result", ""))
            job.may_be.remove(END_OF[one["how"]])
        if lease and began in lease.given_up:
            lease.given_up.remove(began)
        self.check_refused(job, one["token"], error, tell)

    def settled(self, job, one, state, began, tell):
        token = one["token"]
        self.check_newest(job, token, began, "settled (%s)" % one["how"])
        # An answer may be late: others have had the job in between, and ended it.
        complain_if(job.state and (job.ended < began or one["how"] in END_OF),
                    "job %s, which is %s, is settled (%s) again", job.id, job.state, one["how"])
        if one["how"] not in END_OF:
            complain_if(state in ENDS, "job %s is %s, and was only told to %s", job.id, state,
                        one["how"])
            return
        complain_if(state != END_OF[one["how"]], "job %s is %s after %s", job.id, state, one["how"])
        complain_if(job.leases and max(job.leases) > token,
                    "job %s was settled (%s) with token %d, and %d had been given", job.id,
                    one["how"], token, max(job.leases))
        if tell["safe"]:
            job.state, job.token, job.result = state, token, one.get("result", "")
            job.ended = self.number

    def tell_settle(self, began, ask, tell):
        for i, one in enumerate(ask["settle"]):
            job = self.job(one["id"])
            outcome = tell["outcomes"][i] if "outcomes" in tell else {"error": tell["error"]}
            if isinstance(outcome, dict):
                # Of a commit it is not known which of its leases is meant.
                safe = tell["safe"] and ("outcomes" in tell or len(ask["settle"]) == 1)
                self.refused(job, one, outcome["error"], began, {**tell, "safe": safe})
            else:
                self.settled(job, one, outcome, began, tell)
        if ask.get("jobs") and "error" in tell:
            for job in ask["jobs"]:
                self.wanted[job["key"]].refused = True
        elif ask.get("jobs"):
            self.enqueued(ask["jobs"], tell["ids"], tell["safe"])

    # ---- After a start ----

    def check_lease(self, job, row, at_ms):
        """A lease that is safe and has not run out is there."""
        if not job.leases or job.state or job.may_be:
            return
        lease = job.leases[max(job.leases)]
        if lease.given_up or lease.until_ms < at_ms + CLOCK_MS:
            return
        complain_if(row["state"] != "leased", "job %s is %s, and its lease is valid until %d", job.id,
                    row["state"], lease.until_ms)
        complain_if(not lease.unsure and row["until_ms"] != lease.until_ms,
                    "job %s: its lease ends at %d, and it was told %d", job.id, row["until_ms"],
                    lease.until_ms)

    def check_state(self, job, state):
        complain_if(job.state and state != job.state, "job %s is %s, and was told to be %s", job.id,
                    state, job.state)
        complain_if(state in ENDS and not job.state and state not in job.may_be,
                    "job %s is %s, and nobody has ended it", job.id, state)

    def check_commit(self, ask, rows, keys):
        new = [job["key"] in keys for job in ask["jobs"]]
        ends = [rows[one["id"]]["state"] in ENDS for one in ask["settle"] if one["id"] in rows]
        complain_if(any(new) and not all(new), "of a commit some jobs are there, and some are not: %s",
                    [job["key"] for job in ask["jobs"]])
        complain_if(all(new) and not all(ends), "of a commit the jobs are there, and not the ends: %s",
                    [one["id"] for one in ask["settle"]])
        for one in ask["settle"]:
            # Nobody else has tried to end it: then this has.
            if not any(new) and len(self.job(one["id"]).results) == 1:
                complain_if(one["id"] in rows and rows[one["id"]]["state"] in ENDS,
                            "of a commit the end of job %s is there, and its jobs are not", one["id"])

    def found(self, record):
        rows = {}
        keys = {}
        for row in record["found"]:
            complain_if(row["id"] in rows, "job %s is listed twice", row["id"])
            complain_if(row["key"] in keys, "key %s has jobs %s and %s", row["key"],
                        keys.get(row["key"]), row["id"])
            rows[row["id"]] = row
            keys[row["key"]] = row["id"]
            job, wanted = self.belongs(row["id"], row["key"])
            complain_if(getattr(wanted, "refused", False), "job %s is of a commit that was refused",
                        row["id"])
            # What was found by a start is not lost by the next one.
            wanted.id = row["id"]
            wanted.told = wanted.told or self.number
            self.check_state(job, row["state"])
            self.check_lease(job, row, record["at_ms"])
        for wanted in self.wanted.values():
            complain_if(wanted.told and wanted.id not in rows, "job %s with key %s is lost", wanted.id,
                        wanted.key)
        # Requests without an answer get none any more.
        for _, ask in self.asked.values():
            if ask.get("jobs") and ask["op"] == "settle":
                self.commits.append(ask)
        self.asked.clear()
        for ask in self.commits:
            self.check_commit(ask, rows, keys)
        for row in rows.values():
            job = self.job(row["id"])
            if row["state"] in ENDS and not job.state:
                job.state, job.token = row["state"], max(job.leases, default=0)
                job.ended = self.number

    def one_result(self, record):
        job = self.job(record["id"])
        complain_if(job.result is not None and job.result != record["result"],
                    "job %s has result %s, and was told %s", job.id, record["result"], job.result)
        complain_if(record["result"] not in job.results, "job %s has result %s, which nobody gave",
                    job.id, record["result"])


# ---- Forged journals: each is wrong in one way, and that is what is said ----

def forged():
    """Pairs of what should be complained of (None: nothing), and records."""
    one = {"ask": 1, "op": "enqueue", "jobs": [{"key": "a", "queue": "q", "order": "o"}]}
    two = {"ask": 2, "op": "enqueue", "jobs": [{"key": "b", "queue": "q", "order": "o"}]}

    def told(number, **more):
        return {"tell": number, "at_ms": 1000, "safe": True, **more}

    def lease(number):
        return {"ask": number, "op": "lease", "queue": "q", "lease_ms": 10000}

    def leased(number, ident, token, until_ms, key="a", **more):
        return told(number, jobs=[{"id": ident, "token": token, "until_ms": until_ms, "key": key}], **more)

    def settle(number, token, how="ack", ident="7", **more):
        return {"ask": number, "op": "settle",
                "settle": [{"id": ident, "token": token, "how": how, "result": "r"}], **more}

    def commit(number):
        return settle(number, 5, jobs=[{"key": "c", "queue": "q"}, {"key": "d", "queue": "q"}])

    def row(ident, key, state, until_ms=0):
        return {"id": ident, "key": key, "state": state, "until_ms": until_ms}

    def found(*rows):
        return {"found": list(rows), "at_ms": 2000}

    begun = [one, told(1, ids=["7"]), lease(3), leased(3, "7", 5, 11000)]
    ended = begun + [settle(4, 5), told(4, outcomes=["done"])]
    extend = {"ask": 6, "op": "extend", "id": "7", "token": 5, "lease_ms": 10000}
    return [
        (None, ended + [found(row("7", "a", "done")), {"id": "7", "result": "r"}]),
        (None, begun + [settle(4, 5, "fail"), told(4, outcomes=["ready"]), lease(5),
                        leased(5, "7", 6, 12000), settle(6, 5), told(6, outcomes=[{"error": "stale-lease"}]),
                        found(row("7", "a", "leased", 12000))]),
        (None, begun + [settle(4, 5), found(row("7", "a", "done"))]),
        (None, begun + [settle(4, 5), found(row("7", "a", "leased", 11000))]),
        (None, [one, found()]),
        (None, begun + [commit(4), found(row("7", "a", "done"), row("8", "c", "ready"), row("9", "d", "ready"))]),
        (None, begun + [commit(4), found(row("7", "a", "leased", 11000))]),
        ("is lost", [one, told(1, ids=["7"]), found()]),
        ("is lost", [one, found(row("7", "a", "ready")), found()]),
        ("was told to be done", ended + [found(row("7", "a", "ready"))]),
        ("its lease is valid", begun + [found(row("7", "a", "ready"))]),
        ("and it was told", begun + [found(row("7", "a", "leased", 10999))]),
        ("two valid leases", begun + [lease(5), leased(5, "7", 6, 20999)]),
        ("two valid leases", begun + [lease(5), leased(5, "7", 6, 20999), settle(8, 5)]),
        ("two valid leases", begun + [extend, lease(5), leased(5, "7", 6, 21500), told(6, until_ms=15000)]),
        ("was given twice: for jobs", begun + [two, told(2, ids=["8"]), settle(4, 5), lease(5),
                                               leased(5, "8", 5, 30000, "b")]),
        ("after 5", begun + [lease(5), leased(5, "7", 4, 30000)]),
        ("had been given", begun + [lease(5), leased(5, "7", 6, 21000), settle(8, 5, "fail"),
                                    told(8, outcomes=["ready"])]),
        ("had been given", begun + [lease(5), leased(5, "7", 6, 21000), extend, told(6, until_ms=30000)]),
        ("had been given", begun + [settle(8, 5), lease(5), leased(5, "7", 6, 21000),
                                    told(8, outcomes=["done"])]),
        (None, begun + [settle(4, 5, "release"), lease(5), leased(5, "7", 6, 12000), settle(6, 6),
                        told(6, outcomes=["done"]), told(4, outcomes=["ready"])]),
        ("again", ended + [settle(8, 5), told(8, outcomes=["done"])]),
        ("again", ended + [settle(8, 5, "release"), told(8, outcomes=["ready"])]),
        ("is extended", ended + [extend, told(6, until_ms=30000)]),
        ("is refused", begun + [settle(8, 5), told(8, outcomes=[{"error": "stale-lease"}])]),
        ("is refused", begun + [extend, told(6, error="stale-lease")]),
        ("which is done, is leased", ended + [lease(5), leased(5, "7", 6, 21000)]),
        ("nobody has ended", begun + [found(row("7", "a", "done"))]),
        ("nobody has ended", begun + [settle(4, 5), told(4, error="stale-lease", at_ms=99000),
                                      found(row("7", "a", "done"))]),
        ("gives jobs", [one, told(1, ids=["7"]), {**one, "ask": 2}, told(2, ids=["8"])]),
        ("has jobs", [one, found(row("7", "a", "ready"), row("8", "a", "ready"))]),
        ("id 7 was given twice", [one, told(1, ids=["7"]), two, told(2, ids=["7"])]),
        ("nobody has sent", [one, found(row("7", "z", "ready"))]),
        ("before it in order", [one, told(1, ids=["7"]), two, told(2, ids=["8"]), lease(3),
                                leased(3, "8", 5, 11000, "b")]),
        ("some are not", begun + [commit(4), found(row("7", "a", "done"), row("8", "c", "ready"))]),
        ("not the ends", begun + [commit(4), found(row("7", "a", "leased", 11000), row("8", "c", "ready"),
                                                   row("9", "d", "ready"))]),
        ("its jobs are not", begun + [commit(4), found(row("7", "a", "done"))]),
        ("was refused", begun + [commit(4), told(4, error="stale-lease", at_ms=99000),
                                 found(row("7", "a", "leased", 11000), row("8", "c", "ready"),
                                       row("9", "d", "ready"))]),
        ("and was told r", ended + [{"id": "7", "result": "other"}]),
        ("which nobody gave", begun + [settle(4, 5), found(row("7", "a", "done")), {"id": "7", "result": "x"}]),
    ]


def self_test():
    """How many forged journals are judged rightly, and the others in words."""
    right, wrong = 0, []
    for expected, records in forged():
        said = None
        ledger = Ledger()
        try:
            for record in records:
                ledger.read(record)
        except Complaint as complaint:
            said = str(complaint)
        if (expected is None and said is None) or (expected and said and expected in said):
            right += 1
        else:
            wrong.append("expected %r, and was told %r: %s" % (expected, said, records))
    return right, wrong
