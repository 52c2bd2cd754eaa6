/* postbox.c - functions from foreign threads, run as tasks of a scope.
 *
 *     OPEN ──the scope ends──▶ CLOSED (no more posts; what is queued is still run)
 *          ──queue empty, no mail under way──▶ let go by the scope
 *
 * The lock covers the queue and its state; posting happens under it, so that after
 * `closed` was set no poster can reach the worker any more.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <weir/postbox.h>
#include <weir/task.h>

#include "rt/mem.h"
#include "rt/runtime.h"
#include "rt/scope.h"
#include "rt/task.h"
#include "rt/timer.h"

#define RETRY_MS 10

struct post {
    struct post *next;
    const char *name;
    weir_task_fn fn;
    size_t arg_bytes;
    unsigned char arg[] __attribute__((aligned(16)));
};

struct weir_postbox {
    struct belonging belonging;
    struct timer retry; /* when a task could not be made for lack of memory */
    struct mail mail;
    ATOM(unsigned) holders;
    size_t capacity;
    unsigned fork_generation;
    char name[32];
    bool let_go;

    struct lock lock;
    struct post *head;
    struct post **tail;
    size_t count;
    bool mail_under_way;
    bool closed;
};

static void postbox_drain(struct worker *worker, weir_postbox *box);

static void retry_now(struct worker *worker, struct timer *timer)
{
    postbox_drain(worker, container_of(timer, weir_postbox, retry));
}

static struct post *peek(weir_postbox *box)
{
    struct post *post;
    lock_acquire(&box->lock);
    post = box->head;
    lock_release(&box->lock);
    return post;
}

static void drop_head(weir_postbox *box)
{
    struct post *post;
    lock_acquire(&box->lock);
    post = box->head;
    box->head = post->next;
    if (!box->head) box->tail = &box->head;
    box->count--;
    lock_release(&box->lock);
    mem_free(post);
}

/* Make a task of the post. WEIR_EOVERLOAD: the scope is full and tells us when it is
 * not. */
static int start_post(struct worker *worker, weir_scope *scope, const struct post *post)
{
    weir_task_spec spec = {
        .fn = post->fn, .arg = post->arg, .arg_bytes = post->arg_bytes, .name = post->name};
    struct task *task;
    int r;

    sanitize_acquire((void *)(uintptr_t)post);
    r = task_new(worker, scope, &spec, true, &task);
    if (r < 0) return r == WEIR_EOVERLOAD ? -ENOMEM : r;
    r = scope_admit(scope, NULL, task, true);
    if (r < 0) {
        task_release(worker, task);
        return r;
    }
    sanitize_release(task);
    worker_place(worker, task);
    return 0;
}

static void let_go(weir_postbox *box)
{
    bool settled;

    lock_acquire(&box->lock);
    settled = box->closed && !box->head && !box->mail_under_way;
    lock_release(&box->lock);
    if (!settled || box->let_go) return;
    box->let_go = true;
    if (scope_forget(&box->belonging)) weir_postbox_unref(box);
}

/* Start what is queued, as far as there is room. True: nothing is left. */
static bool start_posts(struct worker *worker, weir_postbox *box)
{
    struct post *post;

    while ((post = peek(box))) {
        int r = start_post(worker, box->belonging.scope, post);
        if (r == WEIR_EOVERLOAD) return false;
        if (r < 0) {
            timer_arm(worker, &box->retry, time_after_ms(worker->now_ns, RETRY_MS));
            return false;
        }
        drop_head(box);
    }
    return true;
}

static void postbox_drain(struct worker *worker, weir_postbox *box)
{
    bool empty;

    timer_disarm(worker, &box->retry);
    if (box->let_go) return;
    empty = start_posts(worker, box);
    scope_offer_room(box->belonging.scope);
    if (empty) let_go(box);
}

static void deliver_posts(struct worker *worker, struct mail *mail)
{
    weir_postbox *box = container_of(mail, weir_postbox, mail);
    lock_acquire(&box->lock);
    box->mail_under_way = false;
    lock_release(&box->lock);
    postbox_drain(worker, box);
}

static void postbox_signalled(struct worker *worker, struct belonging *belonging, uint8_t signals)
{
    (void)signals;
    postbox_drain(worker, container_of(belonging, weir_postbox, belonging));
}

static void postbox_release(struct worker *worker, struct belonging *belonging)
{
    weir_postbox *box = container_of(belonging, weir_postbox, belonging);

    if (box->let_go) { /* late mail has come back: see scope_forget */
        if (scope_forget(belonging)) weir_postbox_unref(box);
        return;
    }
    lock_acquire(&box->lock);
    box->closed = true;
    lock_release(&box->lock);
    postbox_drain(worker, box);
}

static void postbox_describe(const struct belonging *belonging, char *text, size_t bytes)
{
    const weir_postbox *box =
        (const weir_postbox *)(const void *)((const char *)belonging -
                                             offsetof(weir_postbox, belonging));
    (void)snprintf(text, bytes, "'%s', %zu of %zu queued", box->name, box->count, box->capacity);
}

static bool postbox_boundary(struct belonging *belonging, unsigned row,
                             struct boundary *ret_boundary)
{
    weir_postbox *box = container_of(belonging, weir_postbox, belonging);

    if (row > 0) return false;
    (void)snprintf(ret_boundary->name, sizeof ret_boundary->name, "%s", box->name);
    ret_boundary->lifetime = "until the scope ends; what is queued is still run";
    boundary_bound(ret_boundary, box->capacity, "functions queued");
    ret_boundary->overflow = boundary_overflow(WEIR_REJECT);
    (void)snprintf(ret_boundary->failure, sizeof ret_boundary->failure,
                   "a function that fails is a task of the scope that fails");
    if (boundary_hold(&box->lock, true)) {
        boundary_figure(ret_boundary, "depth", box->count);
        boundary_let_go(&box->lock, true);
    }
    return true;
}

static const struct belonging_kind postbox_kind = {
    .name = "postbox",
    .signalled = postbox_signalled,
    .release = postbox_release,
    .describe = postbox_describe,
    .boundary = postbox_boundary,
};

static int check_spec(const weir_postbox_spec *spec)
{
    if (!spec->name || !*spec->name) return refuse("postbox: name is not set");
    if (spec->capacity == 0) return refuse("postbox '%s': capacity is not set", spec->name);
    if (spec->overflow == WEIR_OVERFLOW_UNSET) {
        return refuse("postbox '%s': overflow is not set", spec->name);
    }
    if (spec->overflow != WEIR_REJECT) {
        return refuse("postbox '%s': overflow must be WEIR_REJECT, a foreign thread cannot wait",
                      spec->name);
    }
    return 0;
}

int weir_postbox_open_sized(weir_scope *scope, size_t spec_bytes, const weir_postbox_spec *given,
                            weir_postbox **ret_box)
{
    struct worker *worker = worker_self();
    weir_postbox_spec spec;
    weir_postbox *box;
    int r;

    if (!worker) return refuse_no_task("weir_postbox_open");
    scope_check(scope, "weir_postbox_open");
    spec_copy(&spec, sizeof spec, given, spec_bytes);
    r = check_spec(&spec);
    if (r < 0) return r;
    box = mem_alloc_zeroed(sizeof *box);
    if (!box) return -ENOMEM;
    atom_store(&box->holders, 2); /* the caller and the scope */
    box->capacity = spec.capacity;
    box->fork_generation = runtime_fork_generation();
    (void)snprintf(box->name, sizeof box->name, "%s", spec.name);
    timer_init(&box->retry, retry_now);
    box->mail.deliver = deliver_posts;
    box->tail = &box->head;
    lock_init(&box->lock);
    r = scope_own(scope, worker, &box->belonging, &postbox_kind);
    if (r < 0) {
        lock_deinit(&box->lock);
        mem_free(box);
        return r;
    }
    mem_hold();
    *ret_box = box;
    return 0;
}

weir_postbox *weir_postbox_ref(weir_postbox *box)
{
    (void)atom_add(&box->holders, 1);
    return box;
}

void weir_postbox_unref(weir_postbox *box)
{
    if (!box) return;
    sanitize_release(box);
    if (atom_sub(&box->holders, 1) != 1) return;
    sanitize_acquire(box);
    lock_deinit(&box->lock);
    mem_free(box);
    mem_unhold();
}

int weir_post_named(weir_postbox *box, const char *name, weir_task_fn fn, const void *arg,
                    size_t arg_bytes)
{
    struct post *post;
    int r = 0;

    if (box->fork_generation != runtime_fork_generation()) return refuse_no_task("weir_post");
    if (!fn) return refuse("postbox '%s': fn is NULL", box->name);
    if (arg_bytes > WEIR_ARG_BYTES_MAX || (arg_bytes > 0 && !arg)) {
        return refuse("postbox '%s': %zu bytes of argument, at most %d, not NULL", box->name,
                      arg_bytes, WEIR_ARG_BYTES_MAX);
    }
    post = mem_alloc(sizeof *post + arg_bytes);
    if (!post) return -ENOMEM;
    post->next = NULL;
    post->name = name ? name : "post";
    post->fn = fn;
    post->arg_bytes = arg_bytes;
    if (arg_bytes > 0) memcpy(post->arg, arg, arg_bytes);
    sanitize_release(post);

    lock_acquire(&box->lock);
    if (box->closed) {
        r = WEIR_ECLOSED;
    } else if (box->count >= box->capacity) {
        r = WEIR_EOVERLOAD;
    } else {
        *box->tail = post;
        box->tail = &post->next;
        box->count++;
        if (!box->mail_under_way) {
            box->mail_under_way = true;
            mail_post(box->belonging.worker, &box->mail);
        }
    }
    lock_release(&box->lock);
    if (r < 0) mem_free(post);
    return r;
}
