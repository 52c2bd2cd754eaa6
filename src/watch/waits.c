/* waits.c - what a wait is for, from what its kind says. */
#include "watch/waits.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include "rt/scope.h"
#include "rt/task.h"
#include "watch/symbol.h"

bool waits_of(const struct task *task, bool all_still, struct waits *ret_waits)
{
    const struct wait_kind *kind = task->wait.kind;

    if (task->state != TASK_PARKED || !kind) return false;
    /* A wake-up that another worker has posted is as good as done. */
    if (atom_load(&task->mail_bits) != 0) return false;
    *ret_waits = (struct waits){
        .waiting = {.what = kind->what, .ends = kind->ends, .kind = ""},
        .call = kind->name,
        .since_ns = task->wait.since_ns,
        .deadline_ns = task->top->deadline_ns,
    };
    if (all_still && kind->facts) kind->facts(task->wait.object, &ret_waits->waiting);
    return true;
}

const struct task *waits_next_by(const struct waits *waits, struct waits_cursor *cursor)
{
    const struct waiting *waiting = &waits->waiting;
    const struct list *head, *node;

    if (cursor->index < waiting->by_count) return waiting->by[cursor->index++].task;
    if (!waiting->scope) return NULL;
    head = &waiting->scope->children;
    node = cursor->node ? ((const struct list *)cursor->node)->next : head->next;
    cursor->node = node;
    if (node == head) {
        cursor->node = head->prev; /* once more is the end again */
        return NULL;
    }
    return (const struct task *)(const void *)((const char *)node - offsetof(struct task, sibling));
}

/* ---- Words ---- */

struct words {
    char *text;
    size_t bytes, used;
};

__attribute__((format(printf, 2, 3))) static void say(struct words *words, const char *format, ...)
{
    size_t room = words->bytes - words->used;
    va_list arguments;
    int n;

    va_start(arguments, format);
    n = vsnprintf(words->text + words->used, room, format, arguments);
    va_end(arguments);
    if (n > 0) words->used += (size_t)n < room ? (size_t)n : room - 1;
}

static const char *const before[WAIT_FOR_COUNT] = {
    [WAIT_FOR_SOMETHING] = "",
    [WAIT_FOR_TASK] = "the end of ",
    [WAIT_FOR_SCOPE] = "",
    [WAIT_FOR_SLOT] = "room in ",
    [WAIT_FOR_LOCK] = "",
    [WAIT_FOR_PERMIT] = "a permit of ",
    [WAIT_FOR_ROOM] = "room in ",
    [WAIT_FOR_ITEM] = "an item of ",
    [WAIT_FOR_EVENT] = "",
    [WAIT_FOR_ONE_OF] = "one of ",
    [WAIT_FOR_ANSWER] = "an answer of ",
    [WAIT_FOR_END] = "the end of ",
    [WAIT_FOR_WORK] = "work for ",
    [WAIT_FOR_TIME] = "its time",
    [WAIT_FOR_CANCEL] = "its cancellation",
    [WAIT_FOR_DESCRIPTOR] = "its descriptor",
    [WAIT_FOR_THREAD] = "a thread",
    [WAIT_FOR_PROCESS] = "a process",
    [WAIT_FOR_SIGNAL] = "a signal",
};

static void say_holders(struct words *words, const struct waiting *waiting,
                        struct symbol_table *symbols)
{
    bool holds = waiting->what == WAIT_FOR_LOCK || waiting->what == WAIT_FOR_PERMIT;
    char place[160];

    if (waiting->what == WAIT_FOR_TASK) return; /* it is the object itself */
    for (unsigned i = 0; i < waiting->by_count; i++) {
        const struct waiting_by *by = &waiting->by[i];
        say(words, "%s task '%s' #%llu", i == 0 ? (holds ? ", held by" : ", by") : " and",
            by->task->name, (unsigned long long)atom_load(&by->task->id));
        if (!by->place || !symbols) continue;
        (void)symbol_format(symbols, by->place, place, sizeof place);
        say(words, " (taken at %s)", place);
    }
    if (waiting->by_cut) say(words, " and others");
}

void waits_sentence(const struct waits *waits, struct symbol_table *symbols, char *text,
                    size_t bytes)
{
    const struct waiting *waiting = &waits->waiting;
    struct words words = {text, bytes, 0};

    if (bytes == 0) return;
    text[0] = '\0';
    if (waiting->what == WAIT_FOR_SOMETHING) {
        say(&words, "%s", waits->call);
    } else if (waiting->what == WAIT_FOR_SCOPE && waiting->scope) {
        say(&words, "the end of %zu task%s of ", waiting->scope->live,
            waiting->scope->live == 1 ? "" : "s");
    } else {
        say(&words, "%s", before[waiting->what]);
    }
    if (waiting->kind && waiting->kind[0]) {
        bool apart = words.used > 0 && text[words.used - 1] != ' ';
        say(&words, "%s%s", apart ? " of " : "", waiting->kind);
    }
    if (waiting->name[0]) {
        say(&words, waiting->kind && waiting->kind[0] ? " '%s'" : "%s", waiting->name);
    }
    if (waiting->what == WAIT_FOR_TASK && waiting->by_count == 1) {
        say(&words, " #%llu", (unsigned long long)atom_load(&waiting->by[0].task->id));
    }
    say_holders(&words, waiting, symbols);
    if (words.used == 0) say(&words, "%s", waits->call);
}
