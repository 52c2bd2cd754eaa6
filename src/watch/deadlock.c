/* deadlock.c - tasks that can never go on.
 *
 * Looked for once a second at most, by a worker that has nothing to do, while all workers stand
 * still. Whoever is not known to be stuck counts as alive; from there liveness spreads along the
 * waits (watch/waits.h) until nothing changes:
 *
 *     waits for all of some tasks    alive if all of them are
 *     waits for any of some tasks    alive if one of them is
 *     waits for a task, which is     alive if any task is, or something outside may act
 *     not known                      (a timer, a descriptor, another thread)
 *
 * What is left can never be woken by anybody. It is followed from task to task: that ends in a
 * cycle (a deadlock), at a lock whose holder has ended (a leak), or where nobody is left who
 * could act (a leak if all wait for one thing, else a deadlock).
 *
 * Alive by definition: what is not parked, or has waited for less than a second, or has a
 * deadline, or is being interrupted or stopped, or waits for something outside. So what is
 * said is so; what is not said is in docs/debugging.md.
 *
 * With a lock that is only held for the time of the walk nothing is written: see dump.c for
 * why all of it is read while others stand still.
 */
#include <stdio.h>
#include <string.h>

#include "rt/mem.h"
#include "rt/scope.h"
#include "rt/task.h"
#include "watch/checks.h"
#include "watch/waits.h"

enum {
    STUCK_FIRST = 64,
    PASSES_MAX = 64,     /* over all that may be stuck; more: another time */
    DEEPER_MAX = 4,      /* from one of them in a pass: it may wait for many */
    MEMBERS_MAX = 16,    /* of a cycle that are shown */
    REPORTS_MAX = 4,     /* of one search */
    COST_PART = 100,     /* searching takes at most one part in so many of the time */
    SYMBOL_BYTES = 1024, /* of a sentence */
};
#define SECOND_NS INT64_C(1000000000)
#define PAUSE_NS INT64_C(20000000)

#if !WEIR_TSAN
#define AnnotateIgnoreReadsBegin(file, line) (void)0
#define AnnotateIgnoreReadsEnd(file, line) (void)0
#endif

/* A task that may be stuck. */
struct stuck {
    const struct task *task;
    bool alive;          /* after all */
    uint8_t deeper;      /* how often the pass has gone on from here to who could end its wait */
    uint32_t visit;      /* the walk that has come here */
    uint32_t pass;       /* the pass that has */
    struct stuck *after; /* who waits for it: the way back of that */
};

/* One of a report: where it waits. */
struct member {
    char name[WAITING_NAME_BYTES];
    unsigned long long id;
    struct waits waits;
    struct backtrace backtrace;
};

struct finding {
    enum weir_check_kind kind;
    bool cycle; /* the last waits for the first */
    uint64_t key;
    unsigned count, more;
    struct member members[MEMBERS_MAX];
    char sentences[MEMBERS_MAX][SYMBOL_BYTES / 2];
};

struct search {
    struct checks *checks;
    weir_runtime *runtime;
    int64_t now_ns, patience_ns;
    bool failed; /* no memory, or not all stand still: another time */
    bool young;  /* somebody has not waited for long enough */
    bool more;   /* there are more findings than one search has room for */
    bool any_alive;
    size_t count, room;
    struct stuck *stuck;
    size_t slots; /* of the table, a power of two */
    uint32_t *table;
    size_t pending_count, pending_room;
    const weir_scope **pending;
    uint32_t visits;
    unsigned finding_count;
    struct finding *findings[REPORTS_MAX];
};

static bool grow(struct search *search, void **array, size_t *room, size_t count, size_t bytes)
{
    size_t want = *room ? *room * 2 : (size_t)STUCK_FIRST;
    void *moved;

    if (count < *room) return true;
    moved = mem_resize(*array, want * bytes);
    if (!moved) {
        search->failed = true;
        return false;
    }
    *array = moved;
    *room = want;
    return true;
}

/* ---- Who may be stuck ---- */

static bool may_be_stuck(struct search *search, const struct task *task)
{
    struct waits waits;

    if (task->attention & (SIGNAL_INTERRUPTS | SIGNAL_STOPPING)) return false;
    if (!waits_of(task, true, &waits)) return false;
    if (waits.waiting.ends == ENDS_OUTSIDE || waits.deadline_ns != INT64_MAX) return false;
    if (search->now_ns - waits.since_ns < search->patience_ns) {
        search->young = true;
        return false;
    }
    return true;
}

/* An attendant that has nothing to do: nobody waits for it, and it does nothing by itself. */
static bool is_idle_attendant(const struct task *task)
{
    return task->state == TASK_PARKED && task->wait.kind && atom_load(&task->mail_bits) == 0 &&
           task->wait.kind->ends == ENDS_AT_CLOSE;
}

static void look_at_task(struct search *search, const struct task *task)
{
    if (is_idle_attendant(task)) {
        /* Neither. */
    } else if (may_be_stuck(search, task)) {
        if (grow(search, (void **)&search->stuck, &search->room, search->count,
                 sizeof *search->stuck)) {
            search->stuck[search->count++] = (struct stuck){.task = task};
        }
    } else {
        search->any_alive = true;
    }
    if (task->state == TASK_RUNNING && !task->stack) return;
    for (const struct block *block = task->top; block && block != &task->base;
         block = block->outer) {
        if (block->kind != BLOCK_SCOPE) continue;
        if (grow(search, (void **)&search->pending, &search->pending_room, search->pending_count,
                 sizeof *search->pending)) {
            search->pending[search->pending_count++] = (const weir_scope *)block;
        }
    }
}

static void look_at_scope(struct search *search, const weir_scope *scope)
{
    list_for_each(node, &scope->belongings) {
        const struct belonging *belonging = container_of(node, struct belonging, node);
        if (!belonging->kind->is_passive || !belonging->kind->is_passive(belonging)) {
            search->any_alive = true;
        }
    }
    list_for_each(node, &scope->children) {
        look_at_task(search, container_of(node, struct task, sibling));
    }
}

/* What else may act: whatever it is, some task may be woken by it. */
static void look_outside(struct search *search)
{
    weir_runtime *runtime = search->runtime;

    if (runtime->embedded || (runtime->signals & WEIR_SIGNAL_DRAIN)) search->any_alive = true;
    for (unsigned i = 0; i < runtime->worker_count; i++) {
        struct worker *worker = &runtime->workers[i];
        if (worker_has_work(worker) || worker_timers_count(worker) > 0) search->any_alive = true;
    }
}

static void collect(struct search *search)
{
    const weir_scope *scope = search->runtime->root;

    look_outside(search);
    while (scope && !search->failed) {
        look_at_scope(search, scope);
        scope = search->pending_count > 0 ? search->pending[--search->pending_count] : NULL;
    }
}

/* ---- Finding them again ---- */

static size_t slot_of(const struct search *search, const struct task *task)
{
    return (size_t)(((uintptr_t)task >> 6) * UINT64_C(0x9e3779b97f4a7c15) >> 20) &
           (search->slots - 1);
}

static bool make_table(struct search *search)
{
    search->slots = STUCK_FIRST;
    while (search->slots < search->count * 2) search->slots *= 2;
    search->table = mem_alloc_zeroed(search->slots * sizeof *search->table);
    if (!search->table) {
        search->failed = true;
        return false;
    }
    for (size_t i = 0; i < search->count; i++) {
        size_t slot = slot_of(search, search->stuck[i].task);
        while (search->table[slot]) slot = (slot + 1) & (search->slots - 1);
        search->table[slot] = (uint32_t)i + 1;
    }
    return true;
}

/* The task if it is stuck as far as is known, else NULL. */
static struct stuck *find_stuck(struct search *search, const struct task *task)
{
    for (size_t slot = slot_of(search, task); search->table[slot];
         slot = (slot + 1) & (search->slots - 1)) {
        struct stuck *stuck = &search->stuck[search->table[slot] - 1];
        if (stuck->task == task) return stuck->alive ? NULL : stuck;
    }
    return NULL;
}

/* ---- Who is not ---- */

/* The first of those who could end the wait that is stuck; `ret_other`: one is not. */
static struct stuck *stuck_by(struct search *search, const struct waits *waits, bool *ret_other)
{
    struct waits_cursor cursor = {0};
    const struct task *task;
    struct stuck *found = NULL;

    *ret_other = waits->waiting.by_cut;
    while ((task = waits_next_by(waits, &cursor))) {
        struct stuck *stuck = find_stuck(search, task);
        if (!stuck) *ret_other = true;
        if (stuck && !found) found = stuck;
        if (found && (*ret_other || waits->waiting.ends == ENDS_WITH_ALL)) break;
    }
    return found;
}

/* `ret_by`: one who could end its wait, and is stuck; or NULL. */
static bool can_go_on(struct search *search, const struct task *task, struct stuck **ret_by)
{
    struct waits waits;
    bool other;

    *ret_by = NULL;
    if (!waits_of(task, true, &waits)) return true;
    if (waits.waiting.gone) return false;
    switch (waits.waiting.ends) {
    case ENDS_WITH_ALL: return (*ret_by = stuck_by(search, &waits, &other)) == NULL;
    case ENDS_WITH_ANY: return !(*ret_by = stuck_by(search, &waits, &other)) || other;
    case ENDS_WITH_TASKS: return search->any_alive;
    default: return true;
    }
}

/* From one to who could end its wait, and on; who turns out to be alive tells the one before. */
static bool spread_to(struct search *search, struct stuck *one, uint32_t pass)
{
    struct stuck *by;
    bool changed = false;

    one->after = NULL;
    one->deeper = 0;
    one->pass = pass;
    while (one) {
        if (can_go_on(search, one->task, &by)) {
            one->alive = search->any_alive = changed = true;
            one = one->after;
            continue;
        }
        /* The next pass does what is left. */
        if (!by || by->pass == pass || one->deeper++ == DEEPER_MAX) break;
        by->after = one;
        by->deeper = 0;
        by->pass = pass;
        one = by;
    }
    return changed;
}

/* Children come after who waits for them, so that from the end one pass does nearly all. */
static void spread(struct search *search)
{
    bool changed = true;

    for (uint32_t pass = 1; changed; pass++) {
        if (pass > PASSES_MAX) {
            search->failed = true;
            return;
        }
        changed = false;
        for (size_t i = search->count; i-- > 0;) {
            struct stuck *stuck = &search->stuck[i];
            if (stuck->alive || stuck->pass == pass) continue;
            if (spread_to(search, stuck, pass)) changed = true;
        }
    }
}

/* ---- What is left ---- */

static uint64_t key_with(uint64_t key, const struct task *task, const struct waits *waits)
{
    return checks_mix(checks_mix(key, atom_load(&task->id)), (uint64_t)waits->since_ns);
}

static void add_member(struct finding *finding, const struct task *task, const struct waits *waits)
{
    struct member *member;

    finding->key = key_with(finding->key, task, waits);
    if (finding->count == MEMBERS_MAX) {
        finding->more++;
        return;
    }
    member = &finding->members[finding->count];
    (void)snprintf(member->name, sizeof member->name, "%s", task->name);
    member->id = (unsigned long long)atom_load(&task->id);
    member->waits = *waits;
    backtrace_parked(&task->context, task->stack->low, stack_top(task->stack), &member->backtrace);
    /* Now: names of others may be gone when it is written. */
    waits_sentence(waits, NULL, finding->sentences[finding->count],
                   sizeof finding->sentences[finding->count]);
    finding->count++;
}

static struct finding *new_finding(struct search *search, enum weir_check_kind kind, bool cycle)
{
    struct finding *finding;

    if (search->finding_count == REPORTS_MAX) {
        search->more = true;
        return NULL;
    }
    finding = mem_alloc_zeroed(sizeof *finding);
    if (!finding) {
        search->failed = true;
        return NULL;
    }
    finding->kind = kind;
    finding->cycle = cycle;
    search->findings[search->finding_count++] = finding;
    return finding;
}

/* For whom a stuck task waits that is stuck itself; NULL: for nobody who is known. */
static struct stuck *next_of(struct search *search, const struct stuck *stuck,
                             struct waits *ret_waits)
{
    bool other;

    if (!waits_of(stuck->task, true, ret_waits) || ret_waits->waiting.gone) return NULL;
    if (ret_waits->waiting.ends == ENDS_WITH_TASKS) return NULL;
    return stuck_by(search, ret_waits, &other);
}

/* The smallest id first, so that a cycle is the same wherever it was entered. */
static struct stuck *first_of(struct search *search, struct stuck *inside)
{
    struct stuck *first = inside, *one = inside;
    struct waits waits;

    do {
        if (atom_load(&one->task->id) < atom_load(&first->task->id)) first = one;
        one = next_of(search, one, &waits);
    } while (one && one != inside);
    return first;
}

static void note_cycle(struct search *search, struct stuck *inside)
{
    struct finding *finding;
    struct stuck *first = first_of(search, inside), *one = first;
    struct waits waits;
    uint64_t key = 0;

    do { /* It lasts: once it is said there is room for others. */
        struct stuck *next = next_of(search, one, &waits);
        key = key_with(key, one->task, &waits);
        one = next;
    } while (one && one != first);
    if (checks_said(search->checks, key)) return;
    finding = new_finding(search, WEIR_CHECK_DEADLOCK, true);
    if (!finding) return;
    one = first;
    do {
        struct stuck *next = next_of(search, one, &waits);
        add_member(finding, one->task, &waits);
        one = next;
    } while (one && one != first);
}

static void note_gone(struct search *search, const struct task *task, const struct waits *waits)
{
    struct finding *finding;

    if (checks_said(search->checks, key_with(0, task, waits))) return;
    finding = new_finding(search, WEIR_CHECK_LEAK, false);
    if (finding) add_member(finding, task, waits);
}

/* Follow the waits from each of them. True: there is a cycle, or an end that explains all. */
static bool follow(struct search *search)
{
    bool found = false;

    for (size_t i = 0; i < search->count; i++) {
        struct stuck *one = &search->stuck[i];
        uint32_t visit = ++search->visits;
        struct waits waits;

        while (one && !one->alive && one->visit == 0) {
            struct stuck *next = next_of(search, one, &waits);
            one->visit = visit;
            if (!next && waits.waiting.gone) {
                note_gone(search, one->task, &waits);
                found = true;
            }
            one = next;
        }
        if (one && !one->alive && one->visit == visit) {
            note_cycle(search, one);
            found = true;
        }
    }
    return found;
}

/* No task can act any more: those who wait for somebody to do so are the end of it all. */
static void note_standstill(struct search *search)
{
    struct finding *finding = NULL;
    const void *object = NULL;
    bool one_thing = true;
    struct waits waits;

    for (size_t i = 0; i < search->count; i++) {
        const struct stuck *stuck = &search->stuck[i];
        const struct waiting *waiting = &waits.waiting;
        if (stuck->alive || !waits_of(stuck->task, true, &waits)) continue;
        if (waiting->ends != ENDS_WITH_TASKS) continue;
        if (!finding) finding = new_finding(search, WEIR_CHECK_DEADLOCK, false);
        if (!finding) return;
        if (object && object != waiting->object) one_thing = false;
        object = waiting->object;
        add_member(finding, stuck->task, &waits);
    }
    if (finding && one_thing && object) finding->kind = WEIR_CHECK_LEAK;
}

/* ---- Saying it ---- */

static void say_age(struct report *report, int64_t ns)
{
    report_say(report, "%lld.%lld s", (long long)(ns / SECOND_NS),
               (long long)(ns / (SECOND_NS / 10) % 10));
}

static void say_member(struct report *report, const struct search *search,
                       const struct finding *finding, unsigned index)
{
    const struct member *member = &finding->members[index];
    unsigned at = report->symbols ? backtrace_first(&member->backtrace, report->symbols) + 1 : 0;

    report_say(report, "task '%s' #%llu waits for %s (since ", member->name, member->id,
               finding->sentences[index]);
    say_age(report, search->now_ns - member->waits.since_ns);
    report_say(report, ", at ");
    if (member->waits.waiting.place) {
        report_place(report, member->waits.waiting.place);
    } else {
        report_place(report, at < member->backtrace.count ? member->backtrace.frames[at] : 0);
    }
    report_say(report, ")");
    for (unsigned i = 0; i < member->waits.waiting.by_count; i++) {
        if (!member->waits.waiting.by[i].place) continue;
        report_say(report, " (taken at ");
        report_place(report, member->waits.waiting.by[i].place);
        report_say(report, ")");
        break;
    }
}

static void say_finding(const struct search *search, const struct finding *finding)
{
    struct report report;

    report_begin(&report, search->checks);
    if (finding->kind == WEIR_CHECK_LEAK) {
        report_say(&report, "leak: ");
    } else if (finding->cycle) {
        report_say(&report, "deadlock: ");
    } else {
        report_say(&report, "deadlock, nothing in this runtime can go on: ");
    }
    for (unsigned i = 0; i < finding->count; i++) {
        if (i > 0) report_say(&report, ",\n  and ");
        say_member(&report, search, finding, i);
    }
    if (finding->more > 0) report_say(&report, ",\n  and %u more", finding->more);
    if (finding->cycle) {
        report_say(&report, ": the first again");
    } else if (finding->kind == WEIR_CHECK_LEAK) {
        report_say(&report, finding->members[0].waits.waiting.gone
                                ? ": who holds it has ended"
                                : ": nobody is left who could do that");
    }
    for (unsigned i = 0; i < finding->count; i++) {
        report_say(&report, "\ntask '%s' #%llu:", finding->members[i].name, finding->members[i].id);
        report_backtrace(&report, &finding->members[i].backtrace,
                         finding->members[i].waits.waiting.place);
    }
    report_end(&report, finding->kind);
}

/* ---- The search ---- */

static void search_still(struct search *search)
{
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    search->now_ns = search->runtime->kernel->now_ns(search->runtime->kernel);
    collect(search);
    if (!search->failed && search->count > 0 && make_table(search)) {
        spread(search);
        if (!search->failed && !follow(search) && !search->any_alive) note_standstill(search);
    }
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}

static uint64_t batches(const weir_runtime *runtime)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < runtime->worker_count; i++) {
        sum += atom_load(&runtime->workers[i].batches);
    }
    return sum;
}

/* Nothing has run since it was looked at. */
static bool nothing_new(const struct checks *checks, uint64_t ran)
{
    return atom_load(&checks->searched_all) && atom_load(&checks->searched_batches) == ran;
}

static void look(struct checks *checks)
{
    weir_runtime *runtime = checks->runtime;
    struct search search = {
        .checks = checks, .runtime = runtime, .patience_ns = atom_load(&checks_patience_ns)};
    uint64_t ran = batches(runtime);

    if (nothing_new(checks, ran)) return;
    if (runtime_pause(runtime, PAUSE_NS) == runtime->worker_count - 1) {
        search_still(&search);
    } else {
        search.failed = true;
    }
    runtime_resume(runtime);
    for (unsigned i = 0; i < search.finding_count; i++) {
        struct finding *finding = search.findings[i];
        if (!search.failed && checks_first(checks, finding->key)) say_finding(&search, finding);
        mem_free(finding);
    }
    atom_store(&checks->searched_batches, ran);
    atom_store(&checks->searched_all, !search.failed && !search.young && !search.more);
    mem_free(search.stuck);
    mem_free(search.table);
    mem_free(search.pending);
}

/* Returns how long it should be until the next. */
static int64_t look_measured(struct checks *checks)
{
    const struct kernel *kernel = checks->runtime->kernel;
    int64_t began_ns = kernel->thread_now_ns(kernel);
    int64_t patience_ns = atom_load(&checks_patience_ns);
    int64_t pause_ns;

    look(checks);
    pause_ns = (kernel->thread_now_ns(kernel) - began_ns) * COST_PART;
    return pause_ns < patience_ns ? patience_ns : pause_ns;
}

int64_t checks_idle(struct worker *worker, int64_t limit_ns)
{
    struct checks *checks = worker->runtime->checks;
    const struct kernel *kernel = worker->runtime->kernel;
    int64_t at_ns = atom_load(&checks->search_at_ns);
    int64_t now_ns = worker->now_ns;

    if (atom_load(&worker->runtime->ending) || nothing_new(checks, batches(worker->runtime))) {
        return limit_ns;
    }
    /* One at a time: who searches has put the time off for the others. */
    if (now_ns >= at_ns && atom_cas(&checks->search_at_ns, &at_ns, INT64_MAX)) {
        int64_t began_ns = kernel->now_ns(kernel);
        int64_t pause_ns = look_measured(checks);
        now_ns = kernel->now_ns(kernel);
        limit_ns = limit_ns > now_ns - began_ns ? limit_ns - (now_ns - began_ns) : 0;
        at_ns = now_ns + pause_ns;
        atom_store_release(&checks->search_at_ns, at_ns);
        if (limit_ns > 0 && worker_has_work(worker)) return 0;
    }
    return at_ns - now_ns < limit_ns && at_ns > now_ns ? at_ns - now_ns : limit_ns;
}
