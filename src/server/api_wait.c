/* api_wait.c - a request that waits for something of the store, as long as its client is there.
 *
 * Who has gone is not waited for any longer: the connection is watched meanwhile, without a task,
 * and its end ends the wait at once. A client that has sent more behind its request (another one,
 * or the last words of TLS) has a connection that is readable, which says nothing any more: then it
 * is looked at now and then. */
#include "server/api.h"
#include "server/session.h"

enum { LOOK_MS = 1000 };

struct watch {
    weir_scope *scope;
    bool woken; /* there was something to read, or the end */
};

/* On the worker of the request, whose task is in the scope. */
static void woken(weir_conn *conn, int status, void *arg)
{
    struct watch *watch = arg;

    (void)conn;
    if (status != 0) return; /* the wait is over, or is not to be watched */
    watch->woken = true;
    weir_scope_cancel(watch->scope, 0, "the client has closed its side, or has said more");
}

/* Once, up to `ms`: what it has given. The watch ends with the scope. */
static int wait_watched(struct exchange *x, int64_t ms, const struct api_wait *wait,
                        bool *ret_woken)
{
    struct watch watch = {.woken = false};
    int r = 0, closed = 0;

    WEIR_SCOPE(scope, &closed, .name = "wait", .on_failure = WEIR_COLLECT, .max_tasks = 1,
               .overflow = WEIR_REJECT) {
        watch.scope = scope;
        r = weir_conn_idle(scope, x->session->conn,
                           &(weir_idle_spec){.on_ready = woken, .keep_arg = &watch, .idle_ms = ms});
        WEIR_DEADLINE(r<0 && ms> LOOK_MS ? LOOK_MS : ms) { r = wait->fn(x, wait->arg); }
    }
    *ret_woken = watch.woken;
    return r == 0 && closed < 0 ? closed : r;
}

static int wait_looking(struct exchange *x, int64_t ms, const struct api_wait *wait)
{
    int r = WEIR_ETIMEDOUT;

    WEIR_DEADLINE(ms < LOOK_MS ? ms : LOOK_MS) { r = wait->fn(x, wait->arg); }
    return r;
}

int api_wait(struct exchange *x, int64_t ms, const struct api_wait *wait)
{
    int64_t until_ns = weir_now_ns() + ms * 1000000;
    bool watches = true, again = true;
    int r = WEIR_ETIMEDOUT;

    while (again && ms > 0 && !api_gone(x)) {
        bool is_woken = false;

        r = watches ? wait_watched(x, ms, wait, &is_woken) : wait_looking(x, ms, wait);
        again = r == WEIR_ETIMEDOUT || (r == WEIR_ECANCELED && is_woken);
        if (again) r = WEIR_ETIMEDOUT;
        if (is_woken) watches = false;
        ms = (until_ns - weir_now_ns()) / 1000000;
    }
    return r;
}
