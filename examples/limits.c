/* limits.c - the pieces of code of docs/guide/limits.md, as one program that runs them.
 *
 *     limits
 *
 * Each stop is a function; it says what happened, and the program ends with status 1 if that is
 * not what the guide promises. A test checks that the guide shows this code.
 */
#include <stdio.h>
#include <weir/weir.h>

#include "options.h"

/* ---- A rate ---- */

static int send_mail(int count, int *ret_sent)
{
    int result;

    WEIR_SCOPE(scope, &result, .name = "mail", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
               .overflow = WEIR_REJECT, .deadline_ms = 5000) {
        weir_rate *mail;
        int r = weir_rate_open(scope,
                               &(weir_rate_spec){.name = "mail",
                                                 .rate = 100, /* in a second, */
                                                 .burst = 2,  /* and two at once */
                                                 .overflow = WEIR_WAIT,
                                                 .waiters_max = 10},
                               &mail);
        for (int i = 0; i < count && r == 0; i++) {
            r = weir_rate_take(mail, 1); /* waits for its turn */
            if (r == 0) ++*ret_sent;
        }
        result = r;
    }
    return result;
}

/* ---- A limit ---- */

struct upstream {
    weir_limit *limit;
    int inside, inside_max, rejected;
};

static int ask_upstream(struct upstream *upstream)
{
    weir_limit_pass pass;
    int r = weir_limit_enter(upstream->limit, &pass);

    if (r < 0) return r; /* WEIR_EOVERLOAD: at once, and nothing to give back */
    if (++upstream->inside > upstream->inside_max) upstream->inside_max = upstream->inside;
    r = weir_sleep(10); /* the call itself */
    upstream->inside--;
    weir_limit_leave(upstream->limit, &pass, r); /* an adaptive one learns from this */
    return r;
}

static int ask_once(void *arg)
{
    struct upstream *upstream = *(struct upstream **)arg;
    int r = ask_upstream(upstream);

    if (r != WEIR_EOVERLOAD) return r;
    upstream->rejected++;
    return 0;
}

static int ask_all(int count, struct upstream *upstream)
{
    int result;

    WEIR_SCOPE(scope, &result, .name = "callers", .on_failure = WEIR_FAIL_FAST,
               .max_tasks = (size_t)count, .overflow = WEIR_REJECT, .deadline_ms = 5000,
               .place = WEIR_PLACE_HERE) {
        int r = weir_limit_open(scope,
                                &(weir_limit_spec){.name = "upstream",
                                                   .kind = WEIR_LIMIT_ADAPTIVE,
                                                   .concurrency = 8,
                                                   .concurrency_min = 2,
                                                   .concurrency_max = 100,
                                                   .overflow = WEIR_WAIT,
                                                   .waiters_max = 6},
                                &upstream->limit);
        for (int i = 0; i < count && r == 0; i++) {
            r = weir_spawn(scope, ask_once, &upstream, sizeof upstream);
        }
        result = r;
    }
    return result;
}

/* ---- Shedding ---- */

struct request {
    int64_t came_ns;
    int id;
};

static int serve(weir_shed *shed, const struct request *request)
{
    int r = weir_shed_enter(shed, weir_now_ns() - request->came_ns);

    if (r == WEIR_EOVERLOAD) return 0; /* tell the client that it is too much, and take the next */
    return r < 0 ? r : 1;              /* work on it */
}

static int serve_backlog(int *ret_served, int *ret_shed)
{
    int result;

    WEIR_SCOPE(scope, &result, .name = "server", .on_failure = WEIR_FAIL_FAST, .max_tasks = 1,
               .overflow = WEIR_REJECT) {
        weir_shed *shed;
        int r = weir_shed_open(
            scope, &(weir_shed_spec){.name = "requests", .target_ms = 5, .interval_ms = 100},
            &shed);
        for (int i = 0; i < 10 && r >= 0; i++) {
            /* Half of them have been in the queue for longer than anything may be. */
            int64_t waited_ns = (i % 2 ? 1000 : 1) * INT64_C(1000000);
            r = serve(shed, &(struct request){.came_ns = weir_now_ns() - waited_ns, .id = i});
            if (r > 0) ++*ret_served;
            if (r == 0) ++*ret_shed;
        }
        result = r < 0 ? r : 0;
    }
    return result;
}

/* ---- The program ---- */

static int run_all(void *arg)
{
    struct upstream upstream = {.limit = NULL};
    int sent = 0, served = 0, shed = 0;
    int r = send_mail(5, &sent);

    (void)arg;
    if (r == 0) r = ask_all(12, &upstream);
    if (r == 0) r = serve_backlog(&served, &shed);
    if (r < 0) return r;
    printf("mail: %d sent\n", sent);
    printf("upstream: at most %d at a time, %d rejected\n", upstream.inside_max, upstream.rejected);
    printf("requests: %d served, %d shed\n", served, shed);
    /* It begins with half of what it was told, to see how long a call takes. */
    if (sent != 5 || upstream.inside_max != 4 || upstream.rejected != 2) return WEIR_EREFUSED;
    return served == 5 && shed == 5 ? 0 : WEIR_EREFUSED;
}

int main(int argc, char **argv)
{
    const struct option_number options[] = {{0}};
    int at = options_read(argc, argv, "limits", options);
    int r;

    if (at < argc) return fprintf(stderr, "limits: unexpected argument '%s'\n", argv[at]), 2;
    r = weir_run(&(weir_config){.name = "limits", .workers = 1}, run_all, NULL);
    if (r < 0) fprintf(stderr, "limits: %s %s\n", weir_strerror(r), weir_why());
    return r < 0 ? 1 : 0;
}
